/* SPDX-License-Identifier: Apache-2.0 */
/* One flipped bit in every kind of block, in the local copy of a version or in the shared one, while
 * the history is closed or open: the bytes come back right, or not at all, and the bad copy is
 * repaired. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <varve/ckpt.h>

#include "base/util.h"
#include "ckpt/ckpt_hooks.h"
#include "fault_os.h"
#include "store/files/ckfile.h"
#include "store/target/folder/target_folder.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, BYTES = 6 * PAGE + 3, CHUNKS = 7 };

static char buf[BYTES];

static void put(struct varve_history *h, uint64_t v)
{
    ck_fill(buf, BYTES, v, 0);
    T_OK(varve_protect(h, 0, buf, BYTES));
    T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
}

static int get(struct varve_history *h, uint64_t v)
{
    memset(buf, 0, BYTES);
    T_OK(varve_protect(h, 0, buf, BYTES));
    int rc = varve_restore_for(h, v, CK_LIMIT_MS);
    if (rc == 0)
        ck_check(buf, BYTES, v, 0);
    return rc;
}

/* The one file of a history's folder whose name begins and ends so. */
static void find(const char *folder, const char *below, const char *begin, const char *end,
                 char path[1024])
{
    char dirname[512];
    int n = 0;
    snprintf(dirname, sizeof(dirname), "%s/%s", folder, below);
    DIR *dir = opendir(dirname);
    T_CHECK(dir != NULL);
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        size_t len = strlen(e->d_name), tail = strlen(end);
        if (strncmp(e->d_name, begin, strlen(begin)) != 0 || len < tail ||
            strcmp(e->d_name + len - tail, end) != 0)
            continue;
        snprintf(path, 1024, "%s/%s", dirname, e->d_name);
        n++;
    }
    closedir(dir);
    T_EQ(n, 1);
}

static void flip(const char *path, uint64_t at)
{
    char c;
    int fd = open(path, O_RDWR);
    T_CHECK(fd >= 0);
    T_EQ(pread(fd, &c, 1, (off_t)at), 1);
    c ^= 16;
    T_EQ(pwrite(fd, &c, 1, (off_t)at), 1);
    T_OK(fsync(fd));
    close(fd);
}

static void ignore(void *user, const struct vv_ckfile_problem *p)
{
    (void)user;
    (void)p;
}

static bool good(const char *path)
{
    return vv_ckfile_verify(vv_target_cwd(), path, ignore, NULL, NULL) == 0;
}

static struct varve_stats stats(struct varve_ctx *ctx)
{
    struct varve_stats s = {.stats_size = sizeof(s)};
    T_OK(varve_stats(ctx, &s));
    return s;
}

/* Offsets into every kind of block of the file. */
static const struct block {
    const char *what;
    uint64_t at;
} blocks[] = {
    {"header", 32},
    {"history name", 64},
    {"first chunk", PAGE},
    {"middle chunk", PAGE + 3 * PAGE + 77},
    {"last chunk", PAGE + 6 * PAGE + 1},
    {"region table", PAGE + 7 * PAGE + 8},
    {"checksum table", PAGE + 7 * PAGE + 16 + 9},
    {"footer", PAGE + 8 * PAGE - 128 + 40},
};

static struct ck_cfg config(int level)
{
    return (struct ck_cfg){
        .host_cache = 8 * PAGE, .local = t_tmpdir(), .remote = t_tmpdir(), .level = level};
}

static void write_some(const struct ck_cfg *cfg)
{
    struct varve_ctx *ctx = ck_open(cfg);
    struct varve_history *h = ck_history(ctx, "heal");
    for (uint64_t v = 0; v < 3; v++)
        put(h, v);
    T_OK(varve_close(ctx));
}

/* Without the index, which would still have the damaged data. */
static void forget_index(const struct ck_cfg *cfg)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/heal/index.0", cfg->local);
    unlink(path);
    snprintf(path, sizeof(path), "%s/heal/index.0", cfg->remote);
    unlink(path);
}

static void wait_good(const char *path)
{
    for (int i = 0; i < CK_LIMIT_MS && !good(path); i++)
        usleep(1000);
    T_CHECK(good(path));
}

/* A bit of the local copy of version 1. */
static void local_bit(int level, const struct block *b, bool index, bool open)
{
    struct ck_cfg cfg = config(level);
    char path[1024];
    write_some(&cfg);
    struct varve_ctx *ctx = NULL;
    struct varve_history *h = NULL;
    if (open) {
        ctx = ck_open(&cfg);
        h = ck_history(ctx, "heal");
    }
    find(cfg.local, "heal", "r0.v1.", ".ckpt", path);
    flip(path, b->at);
    T_CHECK(!good(path));
    if (!open) {
        if (!index)
            forget_index(&cfg);
        ctx = ck_open(&cfg);
        h = ck_history(ctx, "heal");
    }
    T_EQ(ck_count(h), 3);
    for (uint64_t v = 0; v < 3; v++)
        T_OK(get(h, v));
    /* A reader that has the footer does not need this bit of the header. */
    if (b->at >= PAGE) {
        wait_good(path);
        struct varve_stats s = stats(ctx);
        for (int i = 0; i < CK_LIMIT_MS && s.repaired_chunks == 0; i++, s = stats(ctx))
            usleep(1000);
        T_CHECK(s.repaired_chunks >= 1);
        if (b->at < PAGE + BYTES)
            T_CHECK(s.healed_chunks >= 1);
    }
    T_OK(varve_close(ctx));
}

static void test_local(void)
{
    int n = 0;
    for (size_t i = 0; i < VV_ARRAY_SIZE(blocks); i++)
        for (int how = 0; how < 3; how += 1 + t_sanitized(), n++)
            local_bit(i % 2 ? VARVE_LEVEL_REMOTE : VARVE_LEVEL_COMPLETE, &blocks[i], how == 1,
                      how == 2);
    t_note("%d flipped bits in local files", n);
}

/* A bit of the shared copy: with a local copy nothing is noticed, or the copy is repaired. Without one, what
 * is damaged fails, and nothing else does. */
static void remote_bit(int level, const struct block *b, bool local)
{
    struct ck_cfg cfg = config(level);
    char path[1024];
    write_some(&cfg);
    find(cfg.remote, "heal", "r0.v1.", ".ckpt", path);
    flip(path, b->at);
    forget_index(&cfg);
    if (!local)
        cfg.local = t_tmpdir();
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "heal");
    T_OK(get(h, 0));
    T_OK(get(h, 2));
    if (local) {
        T_OK(get(h, 1));
        T_EQ(ck_count(h), 3);
        if (b->at < PAGE || b->at >= PAGE + BYTES)
            wait_good(path); /* it could be seen at opening */
    } else {
        int rc = get(h, 1);
        T_CHECK(rc == -EBADMSG);
        T_ERR(varve_checkpoint_for(h, 1, CK_LIMIT_MS), -EEXIST);
        T_OK(varve_discard(h, 1));
        T_OK(varve_flush(h, CK_LIMIT_MS));
        put(h, 1);
        T_OK(varve_flush(h, CK_LIMIT_MS));
        T_OK(get(h, 1));
    }
    T_OK(varve_close(ctx));
    ctx = ck_open(&cfg);
    h = ck_history(ctx, "heal");
    T_EQ(ck_count(h), 3);
    T_OK(get(h, 1));
    T_OK(varve_close(ctx));
}

static void test_remote(void)
{
    int n = 0;
    for (size_t i = 0; i < VV_ARRAY_SIZE(blocks); i++)
        for (int how = 0; how < 4; how += 1 + 2 * t_sanitized(), n++)
            remote_bit(how & 1 ? VARVE_LEVEL_REMOTE : VARVE_LEVEL_COMPLETE, &blocks[i], how & 2);
    t_note("%d flipped bits in shared files", n);
}

/* The same chunk in both: there is no good copy. Other chunks heal. */
static void test_both(void)
{
    for (int same = 0; same < 2; same++) {
        struct ck_cfg cfg = config(VARVE_LEVEL_COMPLETE);
        char a[1024], b[1024];
        write_some(&cfg);
        find(cfg.local, "heal", "r0.v1.", ".ckpt", a);
        find(cfg.remote, "heal", "r0.v1.", ".ckpt", b);
        flip(a, PAGE + 2 * PAGE);
        flip(b, PAGE + (same ? 2 : 5) * PAGE);
        struct varve_ctx *ctx = ck_open(&cfg);
        struct varve_history *h = ck_history(ctx, "heal");
        if (same) {
            T_ERR(get(h, 1), -EBADMSG);
            ck_error(ctx, -EBADMSG, "region 0");
        } else {
            T_OK(get(h, 1));
            wait_good(a);
            T_OK(get(h, 1));
        }
        T_OK(get(h, 0));
        T_OK(get(h, 2));
        T_OK(varve_close(ctx));
    }
}

/* The local file is gone. */
static void test_missing(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_COMPLETE);
    char path[1024];
    write_some(&cfg);
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "heal");
    find(cfg.local, "heal", "r0.v1.", ".ckpt", path);
    T_OK(unlink(path));
    T_OK(get(h, 1));
    wait_good(path);
    T_OK(varve_close(ctx));
    /* The shared one is, and the local one is good. */
    find(cfg.remote, "heal", "r0.v1.", ".ckpt", path);
    T_OK(unlink(path));
    ctx = ck_open(&cfg);
    h = ck_history(ctx, "heal");
    T_EQ(ck_count(h), 3);
    T_OK(get(h, 1));
    wait_good(path);
    T_OK(varve_close(ctx));
}

/* Records, lives, markers. */
static void test_group(void)
{
    char path[1024];
    struct stat st;
    int n = 0;
    for (int what = 0; what < 2; what++) {
        for (uint64_t at = 0; at < 96; at += t_sanitized() ? 37 : 13, n++) {
            struct ck_cfg cfg = config(VARVE_LEVEL_COMPLETE);
            write_some(&cfg);
            find(cfg.remote, "heal/group", what ? "life." : "v1.", what ? "0" : ".group", path);
            T_OK(stat(path, &st));
            flip(path, at % (uint64_t)st.st_size);
            struct varve_ctx *ctx = ck_open(&cfg);
            struct varve_history *h = ck_history(ctx, "heal");
            T_EQ(ck_count(h), 3); /* the record can be rebuilt from the files */
            for (uint64_t v = 0; v < 3; v++)
                T_OK(get(h, v));
            put(h, 3);
            T_OK(varve_wait(h, 3, VARVE_LEVEL_COMPLETE, CK_LIMIT_MS));
            T_OK(varve_close(ctx));
        }
    }
    t_note("%d flipped bits in records and lives", n);
}

/* The shared copy is bad and cannot be replaced: the local one is no longer redundant, even if another
 * version needs its room. */
static void test_last_copy(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_COMPLETE);
    char path[1024], inside[1100];
    write_some(&cfg);
    find(cfg.remote, "heal", "r0.v0.", ".ckpt", path);
    T_OK(unlink(path));
    T_OK(mkdir(path, 0777));
    snprintf(inside, sizeof(inside), "%s/in the way", path);
    T_OK(mkdir(inside, 0777));
    forget_index(&cfg);
    cfg.local_cache = 5 * (BYTES + 3 * PAGE);
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "heal");
    for (uint64_t v = 3; v < 12; v++)
        put(h, v);
    T_OK(varve_flush(h, CK_LIMIT_MS));
    for (uint64_t v = 12; v-- > 0;)
        T_OK(get(h, v));
    T_OK(varve_close(ctx));
}

/* A version whose record cannot be made again now is not removed: after a repair by hand it is there. */
static void test_record_lost(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_COMPLETE);
    char record[1024], local[1024], remote[1024], command[2200];
    write_some(&cfg);
    find(cfg.remote, "heal/group", "v1.", ".group", record);
    find(cfg.local, "heal", "r0.v1.", ".ckpt", local);
    find(cfg.remote, "heal", "r0.v1.", ".ckpt", remote);
    flip(record, 70);
    T_OK(truncate(remote, 100));
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "heal");
    T_EQ(ck_count(h), 2);
    T_ERR(get(h, 1), -EBADMSG);
    for (uint64_t v = 3; v < 5; v++) {
        put(h, v);
        T_OK(varve_wait(h, v, VARVE_LEVEL_COMPLETE, CK_LIMIT_MS));
    }
    T_OK(varve_close(ctx));
    snprintf(command, sizeof(command), "cp %s %s", local, remote);
    T_EQ(system(command), 0);
    ctx = ck_open(&cfg);
    h = ck_history(ctx, "heal");
    T_EQ(ck_count(h), 5);
    T_OK(get(h, 1));
    T_OK(varve_close(ctx));
}

/* One fsync after the other fails; versions discarded then do not come back, from either folder.
 * Returns true if the fsync that was to fail was never made. */
static bool discard_after(long at, long *ret_opening)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_REMOTE);
    struct fault_os os;
    cfg.host_cache = 32 * PAGE; /* a version that fails is kept */
    fault_os_init(&os);
    os.calls = 1u << FAULT_FSYNC | 1u << FAULT_AIO_FSYNC;
    os.at = at;
    os.mode = FAULT_ONCE;
    struct vv_ckpt_hooks hooks = {.os = &os.os};
    vv_ckpt_set_hooks(&hooks);
    struct varve_ctx *ctx = ck_open(&cfg);
    vv_ckpt_set_hooks(NULL);
    struct varve_history *h = ck_history(ctx, "heal");
    *ret_opening = atomic_load(&os.count);
    put(h, 0);
    (void)!varve_wait(h, 0, VARVE_LEVEL_REMOTE, CK_LIMIT_MS);
    bool over = atomic_load(&os.count) < at;
    T_OK(varve_discard(h, 0));
    int rc = varve_flush(h, CK_LIMIT_MS);
    int closed = varve_close(ctx);
    ctx = ck_open(&cfg);
    h = ck_history(ctx, "heal");
    T_CHECK(rc != 0 || closed != 0 || ck_count(h) == 0);
    T_OK(varve_close(ctx));
    return over;
}

static void test_discarded(void)
{
    long opening, ignored, at;
    T_CHECK(discard_after(LONG_MAX, &opening));
    for (at = opening + 1; !discard_after(at, &ignored);)
        at++;
    T_CHECK(at > opening + 3);
}

int main(void)
{
    T_RUN(test_local);
    T_RUN(test_remote);
    T_RUN(test_both);
    T_RUN(test_missing);
    T_RUN(test_group);
    T_RUN(test_last_copy);
    T_RUN(test_record_lost);
    T_RUN(test_discarded);
    return t_done();
}
