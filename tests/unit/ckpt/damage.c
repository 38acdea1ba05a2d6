/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Damaged files: the error names version, region and tier; a version whose
 * file cannot be read at opening does not vanish, and can be discarded.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <varve/ckpt.h>

#include "base/hash.h"
#include "ckpt/ckpt_hooks.h"
#include "fault_os.h"
#include "store/files/ckfile.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, BYTES = 8 * PAGE, REGION_A = 0, REGION_B = 5 };

static struct ck_cfg config(void)
{
    return (struct ck_cfg){
        .host_cache = 64 * PAGE, .local = t_tmpdir(), .level = VARVE_LEVEL_LOCAL};
}

static void error_is(struct varve_ctx *ctx, uint64_t version, int region, int tier,
                     const char *text)
{
    struct varve_error e = {.error_size = sizeof(e)};
    ck_error(ctx, -EBADMSG, text);
    T_OK(varve_last_error(ctx, &e));
    T_EQ(e.version, version);
    T_EQ(e.region, region);
    T_EQ(e.tier, tier);
}

/* The path of the file of a version, and whether there is one. */
static bool file_of(const struct ck_cfg *cfg, uint64_t version, char *ret_path, size_t n)
{
    char folder[512], start[64];
    snprintf(folder, sizeof(folder), "%s/h", cfg->local);
    snprintf(start, sizeof(start), "r0.v%llu.g", (unsigned long long)version);
    DIR *d = opendir(folder);
    T_CHECK(d);
    bool there = false;
    for (struct dirent *e; (e = readdir(d));) {
        if (strncmp(e->d_name, start, strlen(start)) == 0) {
            snprintf(ret_path, n, "%s/%s", folder, e->d_name);
            there = true;
        }
    }
    closedir(d);
    return there;
}

static void write_some(const struct ck_cfg *cfg, uint64_t n)
{
    struct varve_ctx *ctx = ck_open(cfg);
    struct varve_history *h = ck_history(ctx, "h");
    char *a = malloc(BYTES), *b = malloc(BYTES);
    T_OK(varve_protect(h, REGION_A, a, BYTES));
    T_OK(varve_protect(h, REGION_B, b, BYTES));
    for (uint64_t v = 1; v <= n; v++) {
        ck_fill(a, BYTES, v, REGION_A);
        ck_fill(b, BYTES, v, REGION_B);
        T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
    }
    T_OK(varve_close(ctx));
    free(a);
    free(b);
}

static void damage(const struct ck_cfg *cfg, uint64_t version, off_t at)
{
    char path[1024];
    T_CHECK(file_of(cfg, version, path, sizeof(path)));
    int fd = open(path, O_RDWR);
    T_CHECK(fd >= 0);
    T_EQ(pwrite(fd, "damage", 6, at), 6);
    close(fd);
}

/* Checksums cover chunks: a wrong one fails the version for every region, also for
 * those that have no byte in it. */
static void test_names_region(void)
{
    struct ck_cfg cfg = config();
    char *a = malloc(BYTES), *b = malloc(BYTES);
    write_some(&cfg, 3);
    damage(&cfg, 1, PAGE + BYTES + 3 * PAGE); /* behind the header and the first region */
    damage(&cfg, 2, PAGE + 2 * PAGE);
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "h");
    T_OK(varve_protect(h, REGION_B, b, BYTES));
    T_ERR(varve_restore_for(h, 1, CK_LIMIT_MS), -EBADMSG);
    error_is(ctx, 1, REGION_B, 1, "version 1, region 5");
    ck_error(ctx, -EBADMSG, "local files");
    T_OK(varve_protect(h, REGION_A, a, BYTES));
    T_ERR(varve_restore_for(h, 2, CK_LIMIT_MS), -EBADMSG);
    error_is(ctx, 2, REGION_A, 1, "version 2, region 0");
    T_ERR(varve_restore_for(h, 1, CK_LIMIT_MS), -EBADMSG);
    error_is(ctx, 1, REGION_B, 1, "version 1, region 5");
    T_OK(varve_restore_for(h, 3, CK_LIMIT_MS));
    ck_check(a, BYTES, 3, REGION_A);
    ck_check(b, BYTES, 3, REGION_B);
    T_OK(varve_close(ctx));
    free(a);
    free(b);
}

/* ---- found at opening ---- */

/* Files are only read if there is no index. */
static void drop_index(const struct ck_cfg *cfg)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/h/index.0", cfg->local);
    T_OK(unlink(path));
}

static void cut(const struct ck_cfg *cfg, uint64_t version)
{
    char path[1024];
    T_CHECK(file_of(cfg, version, path, sizeof(path)));
    T_OK(truncate(path, 2 * PAGE));
}

/* A valid file of a format that this library does not know. */
static void make_newer(const struct ck_cfg *cfg, uint64_t version)
{
    char path[1024];
    struct vv_ckfile_header header;
    struct vv_ckfile_footer footer;
    T_CHECK(file_of(cfg, version, path, sizeof(path)));
    int fd = open(path, O_RDWR);
    T_CHECK(fd >= 0);
    off_t end = lseek(fd, 0, SEEK_END);
    off_t at = end - (off_t)sizeof(footer);
    T_EQ(pread(fd, &header, sizeof(header), 0), sizeof(header));
    T_EQ(pread(fd, &footer, sizeof(footer), at), sizeof(footer));
    header.format = footer.format = VV_CKFILE_FORMAT + 1;
    header.sum = vv_hash64(&header, offsetof(struct vv_ckfile_header, sum));
    footer.header_sum = header.sum;
    T_EQ(pwrite(fd, &header, sizeof(header), 0), sizeof(header));
    T_EQ(pwrite(fd, &footer, sizeof(footer), at), sizeof(footer));
    char *tail = malloc(footer.tail_bytes);
    T_EQ(pread(fd, tail, footer.tail_bytes, end - (off_t)footer.tail_bytes), footer.tail_bytes);
    footer.tail_sum = vv_hash64(tail, footer.tail_bytes - sizeof(footer.tail_sum));
    T_EQ(pwrite(fd, &footer, sizeof(footer), at), sizeof(footer));
    free(tail);
    close(fd);
}

/* Version 3 of 3 is unusable: every call that names it reports this, the others are as they
 * were, and once discarded it may be written again. */
static void unusable(void (*spoil)(const struct ck_cfg *cfg, uint64_t version), const char *text)
{
    struct ck_cfg cfg = config();
    char *a = malloc(BYTES), path[1024];
    uint64_t v, found[4];
    size_t n;
    write_some(&cfg, 3);
    spoil(&cfg, 3);
    drop_index(&cfg);
    for (int life = 0; life < 2; life++) { /* the index is there again in the second */
        struct varve_ctx *ctx = ck_open(&cfg);
        struct varve_history *h = ck_history(ctx, "h");
        T_OK(varve_protect(h, REGION_A, a, BYTES));
        T_ERR(varve_restore_for(h, 3, CK_LIMIT_MS), -EBADMSG);
        error_is(ctx, 3, -1, 1, text);
        T_ERR(varve_wait(h, 3, VARVE_LEVEL_LOCAL, CK_LIMIT_MS), -EBADMSG);
        error_is(ctx, 3, -1, 1, text);
        T_ERR(varve_region_size(h, 3, REGION_A, &n), -EBADMSG);
        error_is(ctx, 3, -1, 1, text);
        T_ERR(varve_checkpoint_for(h, 3, CK_LIMIT_MS), -EEXIST);
        ck_error(ctx, -EEXIST, text);
        T_OK(varve_versions(h, found, 4, &n));
        T_EQ(n, 2);
        T_OK(varve_latest(h, &v));
        T_EQ(v, 2);
        T_OK(varve_restore_for(h, 2, CK_LIMIT_MS));
        ck_check(a, BYTES, 2, REGION_A);
        T_CHECK(file_of(&cfg, 3, path, sizeof(path)));
        if (life == 1) {
            T_OK(varve_discard(h, 3));
            T_CHECK(!file_of(&cfg, 3, path, sizeof(path)));
            T_ERR(varve_discard(h, 3), -ENOENT);
            T_ERR(varve_restore_for(h, 3, CK_LIMIT_MS), -ENOENT);
            ck_fill(a, BYTES, 33, REGION_A);
            T_OK(varve_checkpoint_for(h, 3, CK_LIMIT_MS));
        }
        T_OK(varve_close(ctx));
    }
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "h");
    T_OK(varve_protect(h, REGION_A, a, BYTES));
    T_OK(varve_restore_for(h, 3, CK_LIMIT_MS));
    ck_check(a, BYTES, 33, REGION_A);
    T_OK(varve_close(ctx));
    free(a);
}

static void test_cut_off(void)
{
    unusable(cut, "version 3: its file");
}

static void test_newer_format(void)
{
    unusable(make_newer, "format");
}

static struct varve_history *overwriting(struct varve_ctx *ctx, char *a)
{
    struct varve_history_opts opts;
    struct varve_history *h;
    T_OK(varve_history_opts_init(&opts, sizeof(opts)));
    opts.overwrite = 1;
    T_OK(varve_history_open_with(ctx, "h", &opts, &h));
    T_OK(varve_protect(h, REGION_A, a, BYTES));
    return h;
}

/* With `overwrite` a damaged file is replaced. One that cannot be opened may be intact: it stays. */
static void test_overwritten(void)
{
    struct ck_cfg cfg = config();
    char *a = malloc(BYTES), path[1024], target[1100];
    write_some(&cfg, 3);
    cut(&cfg, 2);
    T_CHECK(file_of(&cfg, 3, path, sizeof(path)));
    snprintf(target, sizeof(target), "%s/of-another-tool", cfg.local);
    T_EQ(rename(path, target), 0);
    T_EQ(symlink(path, path), 0);
    drop_index(&cfg);
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = overwriting(ctx, a);
    ck_fill(a, BYTES, 22, REGION_A);
    T_ERR(varve_restore_for(h, 2, CK_LIMIT_MS), -EBADMSG);
    T_OK(varve_checkpoint_for(h, 2, CK_LIMIT_MS));
    T_ERR(varve_checkpoint_for(h, 3, CK_LIMIT_MS), -EEXIST);
    ck_error(ctx, -EEXIST, "version 3: its file");
    T_OK(varve_close(ctx));
    T_EQ(rename(target, path), 0);
    ctx = ck_open(&cfg);
    h = overwriting(ctx, a);
    T_OK(varve_restore_for(h, 2, CK_LIMIT_MS));
    ck_check(a, BYTES, 22, REGION_A);
    T_OK(varve_restore_for(h, 3, CK_LIMIT_MS));
    ck_check(a, BYTES, 3, REGION_A);
    T_OK(varve_close(ctx));
    free(a);
}

/* ---- files that stay ---- */

/* Reported by the next call, or at the latest by closing; the version is there again afterwards. */
static void not_removed(bool flush)
{
    struct ck_cfg cfg = config();
    struct fault_os os;
    struct vv_ckpt_hooks hooks = {.os = &os.os};
    size_t n;
    write_some(&cfg, 3);
    fault_os_init(&os);
    vv_ckpt_set_hooks(&hooks);
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "h");
    os.calls = 1u << FAULT_UNLINKAT;
    os.at = 1;
    os.mode = FAULT_FOREVER;
    T_OK(varve_discard(h, 2));
    if (flush) {
        int rc = varve_flush(h, CK_LIMIT_MS);
        T_EQ(rc, -EIO);
        ck_error(ctx, -EIO, "discarded version 2 could not be removed");
        T_ERR(varve_flush(h, CK_LIMIT_MS), -EIO); /* it has tried again */
        T_ERR(varve_close(ctx), -EIO);
    } else {
        T_ERR(varve_close(ctx), -EIO);
        ck_error(NULL, -EIO, "discarded version 2 could not be removed");
    }
    vv_ckpt_set_hooks(NULL);
    ctx = ck_open(&cfg);
    T_OK(varve_versions(ck_history(ctx, "h"), NULL, 0, &n));
    T_EQ(n, 3);
    T_OK(varve_close(ctx));
}

/* A damaged version whose file cannot be removed stays damaged, and can be discarded later. */
static void test_damaged_not_removed(void)
{
    struct ck_cfg cfg = config();
    struct fault_os os;
    struct vv_ckpt_hooks hooks = {.os = &os.os};
    char path[1024], *a = malloc(BYTES);
    write_some(&cfg, 2);
    cut(&cfg, 2);
    drop_index(&cfg);
    fault_os_init(&os);
    vv_ckpt_set_hooks(&hooks);
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "h");
    T_OK(varve_protect(h, REGION_A, a, BYTES));
    os.calls = 1u << FAULT_UNLINKAT;
    os.at = 1;
    os.mode = FAULT_FOREVER;
    T_ERR(varve_discard(h, 2), -EIO);
    T_ERR(varve_restore_for(h, 2, CK_LIMIT_MS), -EBADMSG);
    T_ERR(varve_checkpoint_for(h, 2, CK_LIMIT_MS), -EEXIST);
    os.mode = FAULT_NONE;
    T_OK(varve_discard(h, 2));
    T_CHECK(!file_of(&cfg, 2, path, sizeof(path)));
    T_ERR(varve_restore_for(h, 2, CK_LIMIT_MS), -ENOENT);
    T_OK(varve_close(ctx));
    vv_ckpt_set_hooks(NULL);
    free(a);
}

static void test_not_removed(void)
{
    not_removed(true);
    not_removed(false);
}

/* A file that was cut while no process had it open counts as damaged although the index knows it: it is not
 * the latest version, and not safe. */
static void test_cut_behind_the_index(void)
{
    struct ck_cfg cfg = config();
    char path[1024];
    uint64_t latest;
    write_some(&cfg, 3);
    T_CHECK(file_of(&cfg, 3, path, sizeof(path)));
    T_OK(truncate(path, 0));
    T_CHECK(file_of(&cfg, 2, path, sizeof(path)));
    T_OK(unlink(path));
    T_OK(mkfifo(path, 0600));
    alarm(60); /* ends a test that hangs */
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "h");
    T_OK(varve_latest(h, &latest));
    T_EQ(latest, 1);
    T_EQ(ck_count(h), 1);
    T_ERR(varve_wait(h, 3, VARVE_LEVEL_LOCAL, CK_LIMIT_MS), -EBADMSG);
    T_ERR(varve_restore_for(h, 3, CK_LIMIT_MS), -EBADMSG);
    ck_error(ctx, -EBADMSG, "0 bytes");
    T_ERR(varve_restore_for(h, 2, CK_LIMIT_MS), -EBADMSG);
    ck_error(ctx, -EBADMSG, "not a regular file");
    T_OK(varve_discard(h, 2));
    T_OK(varve_discard(h, 3));
    T_OK(varve_close(ctx));
    T_CHECK(!file_of(&cfg, 2, path, sizeof(path)));
    T_CHECK(!file_of(&cfg, 3, path, sizeof(path)));
    alarm(0);
}

/* At level complete the record names the file: the error says in which folder it is. */
static void test_of_the_shared_folder(void)
{
    struct ck_cfg cfg = config(), files = cfg;
    char path[1024];
    cfg.level = VARVE_LEVEL_COMPLETE;
    cfg.remote = cfg.local;
    cfg.local = NULL;
    write_some(&cfg, 3);
    T_CHECK(file_of(&files, 2, path, sizeof(path)));
    T_OK(unlink(path));
    T_CHECK(file_of(&files, 3, path, sizeof(path)));
    T_OK(unlink(path));
    T_OK(mkfifo(path, 0600));
    alarm(60); /* ends a test that hangs */
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "h");
    T_EQ(ck_count(h), 1);
    T_ERR(varve_wait(h, 2, VARVE_LEVEL_COMPLETE, CK_LIMIT_MS), -EBADMSG);
    ck_error(ctx, -EBADMSG, "in the shared folder: it is missing");
    T_ERR(varve_wait(h, 3, VARVE_LEVEL_COMPLETE, CK_LIMIT_MS), -EBADMSG);
    ck_error(ctx, -EBADMSG, "in the shared folder: not a regular file");
    T_OK(varve_close(ctx));
    alarm(0);
}

int main(void)
{
    T_RUN(test_names_region);
    T_RUN(test_cut_off);
    T_RUN(test_cut_behind_the_index);
    T_RUN(test_of_the_shared_folder);
    T_RUN(test_newer_format);
    T_RUN(test_overwritten);
    T_RUN(test_damaged_not_removed);
    T_RUN(test_not_removed);
    return t_done();
}
