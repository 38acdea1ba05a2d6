/* SPDX-License-Identifier: Apache-2.0 */
/* Levels remote and complete on one rank: versions in the shared folder, versions found there when
 * the local folder is lost, effects of runs on each other, retention. */
#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <varve/ckpt.h>

#include "base/util.h"
#include "ckpt/ckpt_hooks.h"
#include "store/os.h"
#include "store/target/target.h"
#include "t.h"
#include "t_s3.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, BYTES = 9 * PAGE + 3 };

static char buf[BYTES];

static void put(struct varve_history *h, uint64_t v, int life)
{
    ck_fill(buf, BYTES, v, life);
    T_OK(varve_protect(h, 2, buf, BYTES));
    T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
}

static void get(struct varve_history *h, uint64_t v, int life)
{
    memset(buf, 0, BYTES);
    T_OK(varve_protect(h, 2, buf, BYTES));
    T_OK(varve_restore_for(h, v, CK_LIMIT_MS));
    ck_check(buf, BYTES, v, life);
}

static struct varve_stats stats(struct varve_ctx *ctx)
{
    struct varve_stats s = {.stats_size = sizeof(s)};
    T_OK(varve_stats(ctx, &s));
    return s;
}

struct counting {
    const char *end;
    int n;
};

static int count_name(void *user, const char *name, uint64_t bytes)
{
    struct counting *c = user;
    size_t len = strlen(name), tail = strlen(c->end);
    (void)bytes;
    c->n += len > tail && strcmp(name + len - tail, c->end) == 0;
    return 0;
}

/* Files in a history's folder whose names end so. */
static int count_files(const char *folder, const char *below, const char *end)
{
    struct counting c = {.end = end};
    struct vv_target *at;
    char path[512], err[256];
    snprintf(path, sizeof(path), "%s/%s", folder, below);
    if (vv_target_open(vv_os_posix(), path, err, sizeof(err), &at) < 0)
        return 0;
    T_OK(at->ops->list(at, count_name, &c));
    vv_target_close(at);
    return c.n;
}

static struct ck_cfg config(int level, bool local)
{
    return (struct ck_cfg){.host_cache = 16 * PAGE,
                           .local = local ? t_tmpdir() : NULL,
                           .remote = t_shared(),
                           .level = level};
}

/* Written, waited for, closed, and found by another node, which has only the shared folder. */
static void round_trip(int level, bool local)
{
    struct ck_cfg cfg = config(level, local);
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "trip");
    uint64_t latest;
    T_ERR(varve_latest(h, &latest), -ENOENT);
    for (uint64_t v = 0; v < 5; v++)
        put(h, v, 0);
    T_OK(varve_wait(h, 4, (enum varve_level)level, CK_LIMIT_MS));
    T_OK(varve_wait(h, 4, VARVE_LEVEL_LOCAL, CK_LIMIT_MS));
    T_OK(varve_latest(h, &latest));
    T_EQ(latest, 4);
    if (level == VARVE_LEVEL_REMOTE)
        T_ERR(varve_wait(h, 4, VARVE_LEVEL_COMPLETE, CK_LIMIT_MS), -EINVAL);
    T_OK(varve_flush(h, CK_LIMIT_MS));
    T_EQ(stats(ctx).remote_written_bytes, local ? 5 * BYTES : 0);
    T_OK(varve_discard(h, 2));
    T_OK(varve_close(ctx));
    T_EQ(count_files(cfg.remote, "trip", ".ckpt"), 4);
    T_EQ(count_files(cfg.remote, "trip", ".tmp"), 0);
    T_EQ(count_files(cfg.remote, "trip/group", ".group"), level == VARVE_LEVEL_COMPLETE ? 4 : 0);
    T_EQ(count_files(cfg.remote, "trip/group", ".mark"), 0);
    T_EQ(count_files(cfg.remote, "trip/group", ".tmp"), 0);

    for (int life = 0; life < 2; life++) {
        if (local && life == 1)
            cfg.local = t_tmpdir();
        ctx = ck_open(&cfg);
        h = ck_history(ctx, "trip");
        T_EQ(ck_count(h), 4 + life);
        T_OK(varve_latest(h, &latest));
        T_EQ(latest, life == 0 ? 4 : 7);
        for (uint64_t v = 0; v < 5; v++)
            if (v != 2)
                get(h, v, 0);
        T_EQ(stats(ctx).remote_read_bytes > 0, local && life == 1);
        T_EQ(stats(ctx).healed_chunks, 0);
        memset(buf, 0, BYTES);
        T_ERR(varve_restore_for(h, 2, CK_LIMIT_MS), -ENOENT);
        T_ERR(varve_checkpoint_for(h, 1, CK_LIMIT_MS), -EEXIST);
        put(h, 7 + (uint64_t)life, 0);
        T_OK(varve_close(ctx)); /* brings it there */
    }
}

static void test_remote(void)
{
    round_trip(VARVE_LEVEL_REMOTE, true);
}

/* Without a local folder the engine writes to the shared one itself, which must be a folder. */
static void test_remote_direct(void)
{
    if (t_on_s3())
        return;
    round_trip(VARVE_LEVEL_REMOTE, false);
}

static void test_complete(void)
{
    round_trip(VARVE_LEVEL_COMPLETE, true);
}

static void test_complete_direct(void)
{
    if (t_on_s3())
        return;
    round_trip(VARVE_LEVEL_COMPLETE, false);
}

/* A version that only reached local disk is found there by the next run, brought to the
 * shared folder, or may be overwritten. */
static void test_unfinished(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_REMOTE, true);
    cfg.rate = "f2r=1K"; /* one version takes half a minute */
    cfg.close_timeout_ms = -2;
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "u");
    uint64_t latest;
    for (uint64_t v = 0; v < 3; v++)
        put(h, v, 0);
    for (uint64_t v = 0; v < 3; v++) /* each: they may be committed in another order */
        T_OK(varve_wait(h, v, VARVE_LEVEL_LOCAL, CK_LIMIT_MS));
    T_ERR(varve_wait(h, 2, VARVE_LEVEL_REMOTE, 0), -ETIMEDOUT);
    T_ERR(varve_close(ctx), -ETIMEDOUT);
    T_CHECK(count_files(cfg.remote, "u", ".ckpt") <= 1);
    T_EQ(count_files(cfg.remote, "u", ".tmp"), 0);

    cfg.rate = NULL;
    cfg.close_timeout_ms = 0;
    ctx = ck_open(&cfg);
    h = ck_history(ctx, "u");
    T_EQ(ck_count(h), 3);
    put(h, 2, 1);
    T_OK(varve_wait(h, 1, VARVE_LEVEL_REMOTE, CK_LIMIT_MS));
    T_OK(varve_wait(h, 2, VARVE_LEVEL_REMOTE, CK_LIMIT_MS));
    T_OK(varve_latest(h, &latest));
    T_EQ(latest, 2);
    get(h, 1, 0);
    get(h, 2, 1);
    T_OK(varve_close(ctx));
    cfg.local = t_tmpdir();
    ctx = ck_open(&cfg);
    h = ck_history(ctx, "u");
    T_EQ(ck_count(h), 3);
    get(h, 2, 1);
    T_OK(varve_close(ctx));
}

/* Versions of an earlier run on local disk are brought to the shared folder while the application continues
 * from an older version and has not used them: writing the number still replaces them. If a call has
 * returned the version, writing it fails with -EEXIST. */
static void test_finished_behind(void)
{
    for (int notified = 0; notified < 3; notified++) {
        struct ck_cfg cfg = config(VARVE_LEVEL_LOCAL, true);
        const char *shared = cfg.remote;
        uint64_t latest;
        cfg.remote = NULL;
        struct varve_ctx *ctx = ck_open(&cfg);
        put(ck_history(ctx, "behind"), 7, 1);
        T_OK(varve_close(ctx));
        cfg.remote = shared;
        cfg.level = VARVE_LEVEL_REMOTE;
        ctx = ck_open(&cfg);
        struct varve_history *h = ck_history(ctx, "behind");
        for (int i = 0; i < CK_LIMIT_MS && stats(ctx).remote_written_bytes < BYTES; i++)
            usleep(1000);
        while (count_files(shared, "behind", ".ckpt") == 0)
            usleep(1000);
        usleep(20000);
        if (notified == 1)
            T_OK(varve_wait(h, 7, VARVE_LEVEL_REMOTE, CK_LIMIT_MS));
        if (notified == 2)
            T_OK(varve_latest(h, &latest));
        if (notified) {
            T_OK(varve_protect(h, 2, buf, BYTES));
            T_ERR(varve_checkpoint_for(h, 7, CK_LIMIT_MS), -EEXIST);
            get(h, 7, 1);
        } else {
            put(h, 7, 2);
            T_OK(varve_wait(h, 7, VARVE_LEVEL_REMOTE, CK_LIMIT_MS));
            get(h, 7, 2);
        }
        T_OK(varve_close(ctx));
        cfg.local = t_tmpdir();
        ctx = ck_open(&cfg);
        get(ck_history(ctx, "behind"), 7, notified ? 1 : 2);
        T_OK(varve_close(ctx));
    }
}

/* At level complete the next run does not find a version that only reached local disk: the ranks could not agree
 * on it. */
static void test_incomplete(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_COMPLETE, true);
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "i");
    put(h, 0, 0);
    T_OK(varve_wait(h, 0, VARVE_LEVEL_COMPLETE, CK_LIMIT_MS));
    T_OK(varve_close(ctx));
    cfg.rate = "f2r=1K";
    cfg.close_timeout_ms = -2;
    ctx = ck_open(&cfg);
    h = ck_history(ctx, "i");
    put(h, 1, 0);
    put(h, 2, 0);
    T_OK(varve_wait(h, 2, VARVE_LEVEL_LOCAL, CK_LIMIT_MS));
    T_ERR(varve_close(ctx), -ETIMEDOUT);

    cfg.rate = NULL;
    cfg.close_timeout_ms = 0;
    ctx = ck_open(&cfg);
    h = ck_history(ctx, "i");
    T_EQ(ck_count(h), 1);
    put(h, 1, 1);
    T_OK(varve_wait(h, 1, VARVE_LEVEL_COMPLETE, CK_LIMIT_MS));
    /* Leftovers are removed when a version of the later run is complete. */
    for (int i = 0; i < CK_LIMIT_MS && count_files(cfg.local, "i", ".ckpt") > 2; i++)
        usleep(1000);
    T_EQ(count_files(cfg.local, "i", ".ckpt"), 2);
    T_EQ(count_files(cfg.remote, "i", ".ckpt"), 2);
    T_OK(varve_close(ctx));
    ctx = ck_open(&cfg);
    h = ck_history(ctx, "i");
    T_EQ(ck_count(h), 2);
    get(h, 0, 0);
    get(h, 1, 1);
    T_OK(varve_close(ctx));
}

/* A node that was missing while another continued must not bring its own versions back. */
static void test_two_nodes(void)
{
    struct ck_cfg a = config(VARVE_LEVEL_REMOTE, true), b = a;
    b.local = t_tmpdir();
    struct varve_ctx *ctx = ck_open(&a);
    struct varve_history *h = ck_history(ctx, "n");
    put(h, 1, 0);
    T_OK(varve_close(ctx));
    a.rate = "f2r=1K";
    a.close_timeout_ms = -2;
    ctx = ck_open(&a);
    h = ck_history(ctx, "n");
    put(h, 2, 0);
    put(h, 3, 0);
    T_OK(varve_wait(h, 3, VARVE_LEVEL_LOCAL, CK_LIMIT_MS));
    T_ERR(varve_close(ctx), -ETIMEDOUT);
    a.rate = NULL;
    a.close_timeout_ms = 0;

    ctx = ck_open(&b); /* elsewhere, from version 1 */
    h = ck_history(ctx, "n");
    T_EQ(ck_count(h), 1);
    put(h, 2, 1);
    T_OK(varve_close(ctx));

    ctx = ck_open(&a);
    h = ck_history(ctx, "n");
    T_EQ(ck_count(h), 2);
    get(h, 1, 0);
    get(h, 2, 1);
    T_ERR(varve_restore_for(h, 3, CK_LIMIT_MS), -ENOENT);
    put(h, 3, 2);
    T_OK(varve_close(ctx));
    ctx = ck_open(&b);
    h = ck_history(ctx, "n");
    get(h, 2, 1);
    get(h, 3, 2);
    T_OK(varve_close(ctx));
}

static int no_version_0(const struct vv_os *os, int dirfd, const char *from, const char *to,
                        bool may_replace)
{
    if (strncmp(to, "r0.v0.", 6) == 0)
        return -EIO;
    return vv_os_posix()->rename(os, dirfd, from, to, may_replace);
}

/* A run that finds version 0 on local disk only, cannot bring it to the shared folder, but brings
 * version v there. */
static void go_on_past(const struct ck_cfg *cfg, uint64_t v)
{
    struct vv_os os = *vv_os_posix();
    struct vv_ckpt_hooks hooks = {.os = &os};
    os.rename = no_version_0;
    vv_ckpt_set_hooks(&hooks);
    struct varve_ctx *ctx = ck_open(cfg);
    vv_ckpt_set_hooks(NULL);
    struct varve_history *h = ck_history(ctx, "p");
    get(h, 0, 0);
    T_ERR(varve_wait(h, 0, VARVE_LEVEL_REMOTE, CK_LIMIT_MS), -EIO);
    put(h, v, 0);
    T_OK(varve_wait(h, v, VARVE_LEVEL_REMOTE, CK_LIMIT_MS));
    T_ERR(varve_close(ctx), -EIO);
}

/* A version on local disk only stays through any number of runs on that node, until a run on another node has continued. */
static void test_passed_on_the_way(void)
{
    struct ck_cfg a = config(VARVE_LEVEL_REMOTE, true), b = a;
    b.local = t_tmpdir();
    a.rate = "f2r=1K";
    a.close_timeout_ms = -2;
    struct varve_ctx *ctx = ck_open(&a);
    struct varve_history *h = ck_history(ctx, "p");
    put(h, 0, 0);
    T_OK(varve_wait(h, 0, VARVE_LEVEL_LOCAL, CK_LIMIT_MS));
    T_ERR(varve_close(ctx), -ETIMEDOUT);
    a.rate = NULL;
    a.close_timeout_ms = 0;
    for (uint64_t v = 1; v <= 3; v++)
        go_on_past(&a, v);

    ctx = ck_open(&b);
    h = ck_history(ctx, "p");
    T_EQ(ck_count(h), 3);
    put(h, 4, 0);
    T_OK(varve_close(ctx));
    ctx = ck_open(&a);
    h = ck_history(ctx, "p");
    T_EQ(ck_count(h), 4);
    get(h, 4, 0);
    T_ERR(varve_restore_for(h, 0, CK_LIMIT_MS), -ENOENT);
    T_OK(varve_close(ctx));
}

static atomic_int renames_of_0;

/* The first rename of a file of version 0 is that on local disk; all others fail. */
static int version_0_stays_local(const struct vv_os *os, int dirfd, const char *from,
                                 const char *to, bool may_replace)
{
    if (strncmp(to, "r0.v0.", 6) == 0 && atomic_fetch_add(&renames_of_0, 1) > 0)
        return -EIO;
    return vv_os_posix()->rename(os, dirfd, from, to, may_replace);
}

/* A version that was discarded and written again carries another run id, and comes to the shared folder
 * before an older one whose copy fails: the next opening does not take it for that of another node. */
static void test_passed_by_another_edition(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_REMOTE, true);
    struct vv_os os = *vv_os_posix();
    struct vv_ckpt_hooks hooks = {.os = &os};
    cfg.run = "one"; /* given, so that the editions of versions count */
    os.rename = version_0_stays_local;
    vv_ckpt_set_hooks(&hooks);
    struct varve_ctx *ctx = ck_open(&cfg);
    vv_ckpt_set_hooks(NULL);
    struct varve_history *h = ck_history(ctx, "e");
    put(h, 0, 0);
    T_ERR(varve_wait(h, 0, VARVE_LEVEL_REMOTE, CK_LIMIT_MS), -EIO);
    put(h, 1, 0);
    T_OK(varve_wait(h, 1, VARVE_LEVEL_LOCAL, CK_LIMIT_MS));
    T_OK(varve_discard(h, 1));
    put(h, 1, 1);
    T_OK(varve_wait(h, 1, VARVE_LEVEL_REMOTE, CK_LIMIT_MS));
    T_ERR(varve_close(ctx), -EIO);

    cfg.run = "two";
    ctx = ck_open(&cfg);
    h = ck_history(ctx, "e");
    get(h, 0, 0);
    get(h, 1, 1);
    T_OK(varve_close(ctx));
}

/* An overwrite that is reverted when it has reached the level: the version has its old content, in the
 * shared folder too. */
static void taken_back(int level, bool local)
{
    struct ck_cfg cfg = config(level, local);
    struct varve_history_opts o;
    struct varve_history *h;
    T_OK(varve_history_opts_init(&o, sizeof(o)));
    o.overwrite = o.confirm = 1;
    struct varve_ctx *ctx = ck_open(&cfg);
    T_OK(varve_history_open_with(ctx, "b", &o, &h));
    put(h, 0, 0);
    T_OK(varve_confirm(h, 0));
    T_OK(varve_flush(h, CK_LIMIT_MS));
    put(h, 0, 1);
    T_OK(varve_flush(h, CK_LIMIT_MS));
    T_OK(varve_revert(h, 0));
    get(h, 0, 0);
    T_OK(varve_flush(h, CK_LIMIT_MS));
    T_OK(varve_close(ctx));
    ctx = ck_open(&cfg);
    h = ck_history(ctx, "b");
    get(h, 0, 0);
    T_OK(varve_close(ctx));
}

static void test_taken_back(void)
{
    for (int i = 0; i < 4; i += t_on_s3() ? 2 : 1)
        taken_back(i < 2 ? VARVE_LEVEL_REMOTE : VARVE_LEVEL_COMPLETE, i % 2 == 0);
}

static void keep_some(int level, bool local)
{
    struct ck_cfg cfg = config(level, local);
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history_opts o;
    struct varve_history *h;
    T_OK(varve_history_opts_init(&o, sizeof(o)));
    o.keep = 3;
    o.keep_every = 5;
    T_OK(varve_history_open_with(ctx, "k", &o, &h));
    for (uint64_t v = 0; v < 13; v++) {
        put(h, v, 0);
        T_OK(varve_wait(h, v, (enum varve_level)level, CK_LIMIT_MS));
        T_CHECK(ck_count(h) >= VV_MIN(v + 1, (uint64_t)3));
    }
    /* 0, 5, 10 by number; 11 and 12 with it as the newest. */
    for (int i = 0; i < CK_LIMIT_MS && ck_count(h) > 5; i++)
        usleep(1000);
    T_EQ(ck_count(h), 5);
    T_OK(varve_close(ctx));
    T_EQ(count_files(cfg.remote, "k", ".ckpt"), 5);
    if (local)
        T_EQ(count_files(cfg.local, "k", ".ckpt"), 5);
    T_EQ(count_files(cfg.remote, "k/group", ".group"), level == VARVE_LEVEL_COMPLETE ? 5 : 0);
    ctx = ck_open(&cfg);
    h = ck_history(ctx, "k");
    static const uint64_t left[] = {0, 5, 10, 11, 12};
    T_EQ(ck_count(h), 5);
    for (int i = 0; i < 5; i++)
        get(h, left[i], 0);
    T_OK(varve_close(ctx));
}

static void test_keep(void)
{
    keep_some(VARVE_LEVEL_REMOTE, true);
    keep_some(VARVE_LEVEL_COMPLETE, true);
    if (t_on_s3())
        return;
    keep_some(VARVE_LEVEL_REMOTE, false);
    keep_some(VARVE_LEVEL_COMPLETE, false);
}

/* When a version is removed, the newer one is known to have reached the level. */
static void test_keep_and_level(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_REMOTE, true);
    struct varve_history_opts o;
    struct varve_history *h;
    T_OK(varve_history_opts_init(&o, sizeof(o)));
    o.keep = 1;
    struct varve_ctx *ctx = ck_open(&cfg);
    T_OK(varve_history_open_with(ctx, "l", &o, &h));
    put(h, 0, 0);
    for (uint64_t v = 1; v < 300; v++) {
        enum varve_level level = VARVE_LEVEL_CACHED;
        put(h, v, 0);
        while (ck_count(h) > 1)
            continue;
        T_OK(varve_version_level(h, v, &level));
        T_EQ(level, VARVE_LEVEL_REMOTE);
    }
    T_OK(varve_close(ctx));
}

/* Nothing is removed for a version that has not reached the level. */
static void test_keep_waits(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_COMPLETE, true);
    struct varve_history_opts o;
    struct varve_history *h;
    cfg.ranks = 2; /* and the other one never comes */
    cfg.run = "1";
    struct varve_ctx *ctx = ck_open(&cfg);
    T_OK(varve_history_opts_init(&o, sizeof(o)));
    o.keep = 1;
    T_OK(varve_history_open_with(ctx, "w", &o, &h));
    for (uint64_t v = 0; v < 4; v++) {
        put(h, v, 0);
        T_OK(varve_wait(h, v, VARVE_LEVEL_REMOTE, CK_LIMIT_MS));
        T_ERR(varve_wait(h, v, VARVE_LEVEL_COMPLETE, 1), -ETIMEDOUT);
        ck_error(ctx, -ETIMEDOUT, "a rank has not");
    }
    T_EQ(ck_count(h), 4);
    uint64_t latest;
    T_ERR(varve_latest(h, &latest), -ENOENT);
    T_OK(varve_close(ctx));
    T_EQ(count_files(cfg.remote, "w", ".ckpt"), 4);
}

/* A run id is used once. */
static void test_run_twice(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_COMPLETE, true);
    struct varve_history *h;
    cfg.run = "job 7";
    struct varve_ctx *ctx = ck_open(&cfg);
    h = ck_history(ctx, "r");
    put(h, 0, 0);
    T_OK(varve_history_close(h));
    h = ck_history(ctx, "r"); /* the same start of the job */
    get(h, 0, 0);
    put(h, 1, 0);
    T_OK(varve_close(ctx));
    ctx = ck_open(&cfg);
    T_OK(varve_history_open(ctx, "other", &h));
    T_OK(varve_close(ctx));
    cfg.run = "job 7 again";
    ctx = ck_open(&cfg);
    h = ck_history(ctx, "r");
    T_EQ(ck_count(h), 2);
    T_OK(varve_close(ctx));
    ctx = ck_open(&cfg);
    T_ERR(varve_history_open(ctx, "r", &h), -EINVAL);
    ck_error(ctx, -EINVAL, "run");
    T_OK(varve_close(ctx));
    /* Not the last one, but an earlier one. */
    cfg.run = "job 7";
    ctx = ck_open(&cfg);
    T_ERR(varve_history_open(ctx, "r", &h), -EINVAL);
    ck_error(ctx, -EINVAL, "run");
    T_OK(varve_close(ctx));
}

/* A rank cannot open the history yet, because a process of the previous run still has it, and tries
 * again. It belongs to the same run as the ranks that succeeded at once: their versions become complete. */
static void open_later(bool local)
{
    struct varve_history *h[2], *other;
    struct varve_ctx *ctx[2];
    struct ck_cfg cfg = config(VARVE_LEVEL_COMPLETE, local);
    cfg.ranks = 2;
    cfg.run = "1";
    struct varve_ctx *before = ck_open(&cfg);
    h[0] = ck_history(before, "h");
    cfg.run = "2";
    for (cfg.rank = 0; cfg.rank < 2; cfg.rank++) {
        if (local)
            cfg.local = t_tmpdir(); /* on other nodes: only the shared folder is held */
        ctx[cfg.rank] = ck_open(&cfg);
    }
    for (int i = 0; i < 3; i++)
        T_ERR(varve_history_open(ctx[0], "h", &other), -EBUSY);
    h[1] = ck_history(ctx[1], "h");
    put(h[1], 1, 0);
    T_OK(varve_close(before));
    h[0] = ck_history(ctx[0], "h");
    T_ERR(varve_history_open(ctx[0], "h", &other), -EBUSY); /* it is open */
    put(h[0], 1, 0);
    for (int i = 0; i < 2; i++)
        T_OK(varve_wait(h[i], 1, VARVE_LEVEL_COMPLETE, CK_LIMIT_MS));
    /* Closed and opened again on both: a new run, and again the same one on both. */
    for (int i = 0; i < 2; i++) {
        T_OK(varve_history_close(h[i]));
        h[i] = ck_history(ctx[i], "h");
        put(h[i], 2, 0);
    }
    for (int i = 0; i < 2; i++) {
        T_OK(varve_wait(h[i], 2, VARVE_LEVEL_COMPLETE, CK_LIMIT_MS));
        get(h[i], 1, 0);
        T_OK(varve_close(ctx[i]));
    }
}

static void test_open_later(void)
{
    open_later(true);
    open_later(false);
}

static uint64_t folder_bytes(const char *folder, const char *below)
{
    char path[1024];
    uint64_t bytes = 0;
    snprintf(path, sizeof(path), "%s/%s", folder, below);
    DIR *dir = opendir(path);
    T_CHECK(dir != NULL);
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        struct stat st;
        if (strstr(e->d_name, ".v") != NULL && fstatat(dirfd(dir), e->d_name, &st, 0) == 0)
            bytes += (uint64_t)st.st_size;
    }
    closedir(dir);
    return bytes;
}

/* A limit on local disk removes local copies, not versions. */
static void test_local_limit(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_COMPLETE, true);
    cfg.local_cache = 4 * (BYTES + 3 * PAGE);
    cfg.host_cache = 32 * PAGE;
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "l");
    for (uint64_t v = 0; v < 20; v++) {
        put(h, v, 0);
        T_CHECK(folder_bytes(cfg.local, "l") <= cfg.local_cache);
    }
    T_OK(varve_flush(h, CK_LIMIT_MS));
    T_EQ(ck_count(h), 20);
    T_CHECK(folder_bytes(cfg.local, "l") <= cfg.local_cache);
    T_CHECK(count_files(cfg.local, "l", ".ckpt") <= 4);
    T_EQ(count_files(cfg.remote, "l", ".ckpt"), 20);
    struct varve_stats s = stats(ctx);
    T_EQ(s.tier_used_bytes[s.tiers - 1], folder_bytes(cfg.local, "l"));
    for (uint64_t v = 20; v-- > 0;)
        get(h, v, 0);
    T_CHECK(stats(ctx).remote_read_bytes > 0);
    for (uint64_t v = 0; v < 20; v += 2)
        T_OK(varve_discard(h, v));
    for (uint64_t v = 20; v < 30; v++)
        put(h, v, 0);
    T_OK(varve_close(ctx));
    /* Another node, and back; everything but one file's worth is elsewhere. */
    const char *first = cfg.local;
    for (int node = 0; node < 2; node++) {
        cfg.local = node ? first : t_tmpdir();
        ctx = ck_open(&cfg);
        h = ck_history(ctx, "l");
        T_EQ(ck_count(h), 20 + node);
        for (uint64_t v = 1; v < 30; v += v < 20 ? 2 : 1)
            get(h, v, 0);
        put(h, 30 + (uint64_t)node, 0);
        T_OK(varve_close(ctx));
        T_CHECK(folder_bytes(cfg.local, "l") <= cfg.local_cache);
    }
    cfg.local_cache = 2 * PAGE;
    ctx = ck_open(&cfg);
    h = ck_history(ctx, "l");
    ck_fill(buf, BYTES, 40, 0);
    T_OK(varve_protect(h, 2, buf, BYTES));
    T_ERR(varve_checkpoint_for(h, 40, CK_LIMIT_MS), -EFBIG);
    ck_error(ctx, -EFBIG, "local_cache");
    T_OK(varve_close(ctx));
}

/* ... and if the shared folder accepts nothing, versions stay in memory and the error is reported. */
static void test_local_limit_stuck(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_REMOTE, true);
    cfg.local_cache = 2 * (BYTES + 3 * PAGE);
    cfg.host_cache = 128 * PAGE;
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "s");
    char path[1024];
    snprintf(path, sizeof(path), "rm -rf %s/s && : > %s/s", cfg.remote, cfg.remote);
    T_EQ(system(path), 0);
    int failures = 0;
    for (uint64_t v = 0; v < 6; v++) {
        ck_fill(buf, BYTES, v, 0);
        T_OK(varve_protect(h, 2, buf, BYTES));
        int rc;
        while ((rc = varve_checkpoint_for(h, v, CK_LIMIT_MS)) != 0 && failures++ < 100)
            T_CHECK(rc != -ETIMEDOUT && rc != -EEXIST);
        T_OK(rc);
    }
    int rc;
    while ((rc = varve_restore_for(h, 0, CK_LIMIT_MS)) != 0 && failures++ < 100)
        T_CHECK(rc != -ETIMEDOUT);
    ck_check(buf, BYTES, 0, 0);
    rc = varve_wait(h, 5, VARVE_LEVEL_REMOTE, CK_LIMIT_MS);
    T_CHECK(rc != 0 && rc != -ETIMEDOUT);
    T_CHECK(varve_close(ctx) != 0);
    T_CHECK(folder_bytes(cfg.local, "s") <= cfg.local_cache);
}

static atomic_int refused, refusals; /* removals of version 0 that are refused, and that may be */

static int refusing_unlinkat(const struct vv_os *os, int dirfd, const char *path)
{
    if (strncmp(path, "r0.v0.", 6) == 0 && atomic_fetch_add(&refused, 1) < atomic_load(&refusals))
        return -EACCES;
    return vv_os_posix()->unlinkat(os, dirfd, path);
}

/* A version that could not be removed still exists: its local copy is removed when another one needs
 * the room. */
static void test_local_limit_not_removed(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_REMOTE, true);
    struct vv_os os = *vv_os_posix();
    struct vv_ckpt_hooks hooks = {.os = &os};
    os.unlinkat = refusing_unlinkat;
    atomic_store(&refused, 0);
    atomic_store(&refusals, 1);
    cfg.local_cache = BYTES + 3 * PAGE;
    vv_ckpt_set_hooks(&hooks);
    struct varve_ctx *ctx = ck_open(&cfg);
    vv_ckpt_set_hooks(NULL);
    struct varve_history *h = ck_history(ctx, "n");
    put(h, 0, 0);
    T_OK(varve_wait(h, 0, VARVE_LEVEL_REMOTE, CK_LIMIT_MS));
    T_OK(varve_discard(h, 0));
    while (atomic_load(&refused) == 0)
        usleep(1000);
    ck_fill(buf, BYTES, 1, 0);
    int rc = varve_checkpoint_for(h, 1, CK_LIMIT_MS); /* reports it, if it is known already */
    bool reported = rc == -EACCES;
    T_OK(reported ? varve_checkpoint_for(h, 1, CK_LIMIT_MS) : rc);
    T_OK(varve_wait(h, 1, VARVE_LEVEL_REMOTE, CK_LIMIT_MS / 6));
    T_EQ(refused, 2); /* in the shared folder, then here */
    T_EQ(count_files(cfg.local, "n", ".ckpt"), 1);
    T_EQ(count_files(cfg.remote, "n", ".ckpt"), 2);
    T_ERR(varve_close(ctx), reported ? 0 : -EACCES);
}

/* A discarded version that the shared folder never got, and whose local file cannot be removed, keeps
 * its room: a write that needs it fails, and does not wait for a copy that is never made. */
static void test_local_limit_not_copied(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_REMOTE, true);
    struct vv_os os = *vv_os_posix();
    struct vv_ckpt_hooks hooks = {.os = &os};
    os.unlinkat = refusing_unlinkat;
    cfg.local_cache = BYTES + 3 * PAGE;
    cfg.close_timeout_ms = 1;
    struct varve_opts opts;
    struct varve_ctx *ctx;
    ck_opts(&cfg, &opts);
    opts.remote_rate = 100; /* the copy of a version takes minutes */
    vv_ckpt_set_hooks(&hooks);
    T_OK(varve_open(&opts, &ctx));
    vv_ckpt_set_hooks(NULL);
    struct varve_history *h = ck_history(ctx, "c");
    put(h, 0, 0);
    T_OK(varve_wait(h, 0, VARVE_LEVEL_LOCAL, CK_LIMIT_MS));
    atomic_store(&refused, 0);
    atomic_store(&refusals, 1000);
    T_OK(varve_discard(h, 0));
    while (atomic_load(&refused) == 0)
        usleep(1000);
    ck_fill(buf, BYTES, 1, 0);
    int rc =
        varve_checkpoint_for(h, 1, CK_LIMIT_MS); /* reports the removal, if it is known already */
    T_OK(rc == -EACCES ? varve_checkpoint_for(h, 1, CK_LIMIT_MS) : rc);
    while ((rc = varve_wait(h, 1, VARVE_LEVEL_LOCAL, CK_LIMIT_MS)) == -EACCES)
        ;
    T_ERR(rc, -ENOSPC);
    atomic_store(&refusals, 0);
    while ((rc = varve_flush(h, 1)) == -EACCES)
        ;                  /* it was not reported yet */
    T_ERR(rc, -ETIMEDOUT); /* the removal was tried again */
    T_OK(varve_wait(h, 1, VARVE_LEVEL_LOCAL, CK_LIMIT_MS));
    T_ERR(varve_close(ctx), -ETIMEDOUT);
}

static char refused_name[64]; /* exactly this file */

static int refusing_one(const struct vv_os *os, int dirfd, const char *path)
{
    if (strcmp(path, refused_name) == 0)
        return -EACCES;
    return vv_os_posix()->unlinkat(os, dirfd, path);
}

/* The one committed file of version 0 in a folder. */
static void name_of_file(const char *folder, char name[64])
{
    char path[1024];
    struct dirent *e;
    snprintf(path, sizeof(path), "%s/o", folder);
    DIR *dir = opendir(path);
    T_CHECK(dir != NULL);
    name[0] = 0;
    while ((e = readdir(dir)))
        if (strncmp(e->d_name, "r0.v0.", 6) == 0 && strstr(e->d_name, ".ckpt"))
            snprintf(name, 64, "%s", e->d_name);
    closedir(dir);
    T_CHECK(name[0] != 0);
}

/* A run was killed before it had removed the file that an overwrite replaced. When the version is removed, that file is removed
 * first: in the other order the next opening could find it. */
static void oldest_first(int level)
{
    struct ck_cfg cfg = config(level, false);
    struct vv_os os = *vv_os_posix();
    struct vv_ckpt_hooks hooks = {.os = &os};
    char command[2400];
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "o");
    put(h, 0, 0);
    T_OK(varve_flush(h, CK_LIMIT_MS));
    name_of_file(cfg.remote, refused_name);
    snprintf(command, sizeof(command), "cp %s/o/%s %s/kept", cfg.remote, refused_name, cfg.remote);
    T_EQ(system(command), 0);
    T_OK(varve_discard(h, 0));
    put(h, 0, 1);
    T_OK(varve_flush(h, CK_LIMIT_MS));
    T_OK(varve_close(ctx));
    snprintf(command, sizeof(command), "mv %s/kept %s/o/%s", cfg.remote, cfg.remote, refused_name);
    T_EQ(system(command), 0);
    os.unlinkat = refusing_one;
    vv_ckpt_set_hooks(&hooks);
    ctx = ck_open(&cfg);
    vv_ckpt_set_hooks(NULL);
    h = ck_history(ctx, "o");
    get(h, 0, 1);
    T_OK(varve_discard(h, 0));
    T_ERR(varve_flush(h, CK_LIMIT_MS), -EACCES);
    T_EQ(count_files(cfg.remote, "o", ".ckpt"), 2);
    refused_name[0] = 0;
    int rc;
    while ((rc = varve_flush(h, CK_LIMIT_MS)) == -EACCES)
        ; /* a second try may have failed before */
    T_OK(rc);
    T_EQ(count_files(cfg.remote, "o", ".ckpt"), 0);
    T_OK(varve_close(ctx));
}

static void test_oldest_first(void)
{
    oldest_first(VARVE_LEVEL_REMOTE);   /* the engine knows of the older file */
    oldest_first(VARVE_LEVEL_COMPLETE); /* no record names it */
}

static atomic_int renamed; /* files of version 0: the first is the local one */
static atomic_bool full;

static int refusing_rename(const struct vv_os *os, int dirfd, const char *from, const char *to,
                           bool may_replace)
{
    if (strncmp(to, "r0.v0.", 6) == 0 && atomic_fetch_add(&renamed, 1) > 0 && atomic_load(&full))
        return -ENOSPC;
    return vv_os_posix()->rename(os, dirfd, from, to, may_replace);
}

/* A version could not be brought to the shared folder, and a wait has reported it: the next one tries again. */
static void test_tried_again(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_REMOTE, true);
    struct vv_os os = *vv_os_posix();
    struct vv_ckpt_hooks hooks = {.os = &os};
    os.rename = refusing_rename;
    atomic_store(&full, true);
    vv_ckpt_set_hooks(&hooks);
    struct varve_ctx *ctx = ck_open(&cfg);
    vv_ckpt_set_hooks(NULL);
    struct varve_history *h = ck_history(ctx, "t");
    put(h, 0, 0);
    T_ERR(varve_wait(h, 0, VARVE_LEVEL_REMOTE, CK_LIMIT_MS), -ENOSPC);
    T_ERR(varve_wait(h, 0, VARVE_LEVEL_REMOTE, CK_LIMIT_MS), -ENOSPC);
    atomic_store(&full, false);
    T_OK(varve_wait(h, 0, VARVE_LEVEL_REMOTE, CK_LIMIT_MS));
    T_EQ(count_files(cfg.remote, "t", ".ckpt"), 1);
    T_OK(varve_close(ctx));
}

/* Markers vanish as soon as they are there. */
static int forgetful_rename(const struct vv_os *os, int dirfd, const char *from, const char *to,
                            bool may_replace)
{
    int rc = vv_os_posix()->rename(os, dirfd, from, to, may_replace);
    return rc == 0 && strstr(to, ".mark") ? vv_os_posix()->unlinkat(os, dirfd, to) : rc;
}

/* The shared folder is removed before the version is complete: waiting for it ends. */
static void test_marker_removed(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_COMPLETE, true);
    struct vv_os os = *vv_os_posix();
    struct vv_ckpt_hooks hooks = {.os = &os};
    os.rename = forgetful_rename;
    vv_ckpt_set_hooks(&hooks);
    struct varve_ctx *ctx = ck_open(&cfg);
    vv_ckpt_set_hooks(NULL);
    struct varve_history *h = ck_history(ctx, "m");
    put(h, 0, 0);
    T_ERR(varve_wait(h, 0, VARVE_LEVEL_COMPLETE, CK_LIMIT_MS), -ENOTDIR);
    get(h, 0, 0);
    T_OK(varve_close(ctx)); /* it does not wait for records */
}

/* For tests/cli: some versions in two folders. */
static void make(const char *local, const char *remote)
{
    struct ck_cfg cfg = {
        .host_cache = 16 * PAGE, .local = local, .remote = remote, .level = VARVE_LEVEL_COMPLETE};
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "made");
    for (uint64_t v = 0; v < 4; v++)
        put(h, v, 0);
    T_OK(varve_flush(h, CK_LIMIT_MS));
    T_OK(varve_close(ctx));
    cfg.ranks = 2;
    cfg.run = "one of two";
    ctx = ck_open(&cfg);
    h = ck_history(ctx, "alone");
    put(h, 4, 0);
    T_OK(varve_close(ctx));
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "make") == 0) {
        make(argv[2], argv[3]);
        return 0;
    }
    T_RUN(test_remote);
    T_RUN(test_remote_direct);
    T_RUN(test_complete);
    T_RUN(test_complete_direct);
    T_RUN(test_unfinished);
    T_RUN(test_finished_behind);
    T_RUN(test_incomplete);
    T_RUN(test_two_nodes);
    T_RUN(test_taken_back);
    T_RUN(test_keep);
    T_RUN(test_keep_and_level);
    T_RUN(test_keep_waits);
    T_RUN(test_run_twice);
    T_RUN(test_local_limit);
    if (t_on_s3()) /* the others need locks, or faults of a file system */
        return t_done();
    T_RUN(test_passed_on_the_way);
    T_RUN(test_passed_by_another_edition);
    T_RUN(test_open_later);
    T_RUN(test_local_limit_stuck);
    T_RUN(test_local_limit_not_removed);
    T_RUN(test_local_limit_not_copied);
    T_RUN(test_oldest_first);
    T_RUN(test_tried_again);
    T_RUN(test_marker_removed);
    return t_done();
}
