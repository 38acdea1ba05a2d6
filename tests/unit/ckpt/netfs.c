/* SPDX-License-Identifier: Apache-2.0 */
/* Shared folders on deficient file systems: listings that are out of date, and
 * locks that do not exclude others, so that an earlier run of a job continues to write. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <varve/ckpt.h>

#include "base/util.h"
#include "ckpt/ckpt_hooks.h"
#include "store/os.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, BYTES = 3 * PAGE + 5, MAX_VERSIONS = 16 };

static char buf[BYTES];

/* ---- what is there ---- */

static void put(struct varve_history *h, uint64_t version, int life)
{
    ck_fill(buf, BYTES, version, life);
    T_OK(varve_protect(h, 0, buf, BYTES));
    T_OK(varve_checkpoint_for(h, version, CK_LIMIT_MS));
}

/* Checks the listed versions, each of the given run; 0: not there. */
static void expect(struct varve_history *h, const int *life, size_t n)
{
    uint64_t found[MAX_VERSIONS];
    size_t nfound, want = 0;
    T_OK(varve_versions(h, found, MAX_VERSIONS, &nfound));
    T_OK(varve_protect(h, 0, buf, BYTES));
    for (size_t v = 0; v < n; v++) {
        if (life[v] == 0)
            continue;
        T_CHECK(want < nfound);
        T_EQ(found[want++], v);
        memset(buf, 0, BYTES);
        T_OK(varve_restore_for(h, v, CK_LIMIT_MS));
        ck_check(buf, BYTES, v, life[v]);
    }
    T_EQ(nfound, want);
}

static struct varve_ctx *open_on(const struct vv_os *os, struct ck_cfg *cfg, const char *run)
{
    struct vv_ckpt_hooks hooks = {.os = os};
    cfg->run = run;
    vv_ckpt_set_hooks(&hooks);
    struct varve_ctx *ctx = ck_open(cfg);
    vv_ckpt_set_hooks(NULL);
    return ctx;
}

/* ---- listings ---- */

/* A node that lists a folder as it was at the first listing, until it changes the folder itself. */
enum { SNAPSHOTS = 8, NAMES = 256 };

static struct snapshot {
    bool used;
    dev_t dev;
    ino_t ino;
    char name[NAMES][100];
    size_t n;
} snapshots[SNAPSHOTS];

static struct snapshot *snapshot_of(int dirfd)
{
    struct stat st;
    T_OK(fstat(dirfd, &st));
    for (int i = 0; i < SNAPSHOTS; i++)
        if (snapshots[i].used && snapshots[i].dev == st.st_dev && snapshots[i].ino == st.st_ino)
            return &snapshots[i];
    return NULL;
}

static void changed(int dirfd)
{
    struct snapshot *s = snapshot_of(dirfd);
    if (s)
        s->used = false;
}

static int snap(void *user, const char *name)
{
    struct snapshot *s = user;
    T_CHECK(s->n < NAMES);
    snprintf(s->name[s->n++], sizeof(s->name[0]), "%s", name);
    return 0;
}

static int stale_list(const struct vv_os *os, int dirfd, int (*visit)(void *user, const char *name),
                      void *user)
{
    (void)os;
    const struct vv_os *real = vv_os_posix();
    struct snapshot *s = snapshot_of(dirfd);
    struct stat st;
    int rc = 0;
    if (!s) {
        for (s = snapshots; s->used; s++)
            T_CHECK(s + 1 < snapshots + SNAPSHOTS);
        T_OK(fstat(dirfd, &st));
        *s = (struct snapshot){.used = true, .dev = st.st_dev, .ino = st.st_ino};
        T_OK(real->list(real, dirfd, snap, s));
    }
    static struct snapshot now; /* visiting may change the folder */
    now = *s;
    for (size_t i = 0; i < now.n && rc == 0; i++)
        rc = visit(user, now.name[i]);
    return rc;
}

static int stale_openat(const struct vv_os *os, int dirfd, const char *path, int flags,
                        unsigned mode)
{
    (void)os;
    const struct vv_os *real = vv_os_posix();
    if ((flags & O_CREAT) && dirfd != AT_FDCWD && faccessat(dirfd, path, F_OK, 0) != 0)
        changed(dirfd);
    return real->openat(real, dirfd, path, flags, mode);
}

static int stale_unlinkat(const struct vv_os *os, int dirfd, const char *path)
{
    (void)os;
    const struct vv_os *real = vv_os_posix();
    int rc = real->unlinkat(real, dirfd, path);
    if (rc == 0)
        changed(dirfd);
    return rc;
}

static int stale_rename(const struct vv_os *os, int dirfd, const char *from, const char *to,
                        bool may_replace)
{
    (void)os;
    const struct vv_os *real = vv_os_posix();
    changed(dirfd);
    return real->rename(real, dirfd, from, to, may_replace);
}

static int ignore_name(void *user, const char *name)
{
    (void)user;
    (void)name;
    return 0;
}

static void look_at(const struct vv_os *os, const char *folder, const char *below)
{
    char path[600];
    snprintf(path, sizeof(path), "%s/%s", folder, below);
    int fd = open(path, O_RDONLY | O_DIRECTORY);
    T_CHECK(fd >= 0);
    T_OK(os->list(os, fd, ignore_name, NULL));
    close(fd);
}

/* A job returns to a node that has listed the folder shortly before. */
static void stale(int level, bool local)
{
    struct vv_os node = *vv_os_posix();
    struct ck_cfg cfg = {.host_cache = 16 * PAGE, .remote = t_tmpdir(), .level = level};
    struct varve_ctx *ctx;
    memset(snapshots, 0, sizeof(snapshots));
    node.list = stale_list;
    node.openat = stale_openat;
    node.unlinkat = stale_unlinkat;
    node.rename = stale_rename;
    for (int life = 1; life <= 3; life++) {
        char run[8];
        snprintf(run, sizeof(run), "%d", life);
        cfg.local = local ? t_tmpdir() : NULL;
        /* The second run is on another node. */
        ctx = open_on(life == 2 ? vv_os_posix() : &node, &cfg, run);
        struct varve_history *h = ck_history(ctx, "h");
        expect(h, (const int[]){0, 1, 2}, (size_t)life);
        put(h, (uint64_t)life, life);
        T_OK(varve_wait(h, (uint64_t)life, (enum varve_level)level, CK_LIMIT_MS));
        T_OK(varve_close(ctx));
        look_at(&node, cfg.remote, "h");
        look_at(&node, cfg.remote, "h/group");
    }
}

static void test_stale_listings(void)
{
    for (int local = 0; local < 2; local++) {
        stale(VARVE_LEVEL_REMOTE, local);
        stale(VARVE_LEVEL_COMPLETE, local);
    }
}

/* ---- locks ---- */

static int no_lock(const struct vv_os *os, int fd)
{
    (void)os;
    (void)fd;
    return 0;
}

/* Run 1 continues after run 2 has begun. */
static void zombie(int level, bool local)
{
    struct vv_os node = *vv_os_posix();
    struct varve_history_opts keep;
    struct varve_history *old, *h;
    struct ck_cfg cfg = {.host_cache = 64 * PAGE, .remote = t_tmpdir(), .level = level};
    node.lock = node.lock_shared = no_lock;
    T_OK(varve_history_opts_init(&keep, sizeof(keep)));
    keep.keep = 2;
    cfg.local = local ? t_tmpdir() : NULL;
    struct varve_ctx *zombie = open_on(&node, &cfg, "1");
    T_OK(varve_history_open_with(zombie, "h", &keep, &old));
    for (uint64_t v = 1; v < 4; v++)
        put(old, v, 1);
    T_OK(varve_flush(old, CK_LIMIT_MS));
    for (int i = 0; i < CK_LIMIT_MS && ck_count(old) > 2; i++)
        usleep(1000); /* the retention rule is applied in the background */
    T_OK(varve_flush(old, CK_LIMIT_MS));

    cfg.local = local ? t_tmpdir() : NULL;
    struct varve_ctx *ctx = open_on(&node, &cfg, "2");
    h = ck_history(ctx, "h");
    expect(h, (const int[]){0, 0, 1, 1}, 4);
    put(h, 4, 2);
    T_OK(varve_wait(h, 4, (enum varve_level)level, CK_LIMIT_MS));

    /* Its checkpoints fail with an error; versions that its retention rule would remove stay. */
    for (uint64_t v = 4; v < 8; v++) {
        int rc = -EIO;
        ck_fill(buf, BYTES, v, 1);
        T_OK(varve_protect(old, 0, buf, BYTES));
        /* A late error of the previous checkpoint may come first. */
        for (int tries = 0; tries < 3 && rc != 0; tries++)
            rc = varve_checkpoint_for(old, v, CK_LIMIT_MS);
        T_OK(rc);
        T_ERR(varve_wait(old, v, (enum varve_level)level, CK_LIMIT_MS), -ECANCELED);
    }
    (void)varve_discard(old, 3);
    T_CHECK(varve_flush(old, CK_LIMIT_MS) != 0);
    put(h, 5, 2);
    T_OK(varve_wait(h, 5, (enum varve_level)level, CK_LIMIT_MS));
    (void)varve_close(zombie);
    T_OK(varve_close(ctx));

    cfg.local = local ? t_tmpdir() : NULL;
    ctx = open_on(vv_os_posix(), &cfg, "3");
    h = ck_history(ctx, "h");
    expect(h, (const int[]){0, 0, 1, 1, 2, 2, 0, 0}, 8);
    T_OK(varve_close(ctx));
}

static void test_zombie(void)
{
    for (int local = 0; local < 2; local++) {
        zombie(VARVE_LEVEL_REMOTE, local);
        zombie(VARVE_LEVEL_COMPLETE, local);
    }
}

int main(void)
{
    T_RUN(test_stale_listings);
    T_RUN(test_zombie);
    return t_done();
}
