/* SPDX-License-Identifier: Apache-2.0 */
/* Parts: any process of any job opens the versions of any rank of another job, read-only. A part has the versions that
 * are complete, of one run, even after a kill of the old job; damage is healed or reported; nothing is changed. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <varve/ckpt.h>

#include "base/clock.h"
#include "base/util.h"
#include "ckpt/ckpt_hooks.h"
#include "fault_os.h"
#include "store/os.h"
#include "store/remote/group.h"
#include "store/target/target.h"
#include "t.h"
#include "t_s3.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, WERE = 4, MOST = 7, VERSIONS = 3, FIELD = 3, COUNT = 5 };

static char buf[64 * PAGE];

/* Ranks differ in size, and the field of rank 2 is empty. */
static size_t field_bytes(int rank)
{
    return rank == 2 ? 0 : (size_t)(rank + 1) * 2 * PAGE + 7 * (size_t)rank;
}

/* A number for a run and a rank: each has a pattern of its own. */
static int owner(int life, int rank)
{
    return life * 100 + rank;
}

static struct ck_cfg config(int level, bool local)
{
    local |= t_on_s3(); /* such copies need one */
    return (struct ck_cfg){.host_cache = 64 * PAGE,
                           .local = local ? t_tmpdir() : NULL,
                           .remote = t_shared(),
                           .level = level};
}

static struct varve_ctx *open_as(struct ck_cfg cfg, int rank, int ranks, const char *run)
{
    cfg.rank = rank;
    cfg.ranks = ranks;
    cfg.run = run;
    return ck_open(&cfg);
}

static void put(struct varve_history *h, uint64_t v, int life, int rank)
{
    uint64_t count = v * 1000 + (uint64_t)rank;
    ck_fill(buf, field_bytes(rank), v, owner(life, rank));
    T_OK(varve_protect(h, FIELD, field_bytes(rank) ? buf : NULL, field_bytes(rank)));
    T_OK(varve_protect(h, COUNT, &count, sizeof(count)));
    T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
}

struct job {
    struct varve_ctx *ctx[WERE];
    struct varve_history *h[WERE];
};

static void job_open(const struct ck_cfg *cfg, const char *run, struct job *job)
{
    const struct varve_history_opts opts = {.opts_size = sizeof(opts), .overwrite = 1};
    for (int r = 0; r < WERE; r++) {
        job->ctx[r] = open_as(*cfg, r, WERE, run);
        T_OK(varve_history_open_with(job->ctx[r], "h", &opts, &job->h[r]));
    }
}

static void job_close(struct job *job)
{
    for (int r = 0; r < WERE; r++)
        T_OK(varve_history_close(job->h[r]));
    for (int r = 0; r < WERE; r++)
        T_OK(varve_close(job->ctx[r]));
}

static void old_job(const struct ck_cfg *cfg, const char *run, int life)
{
    struct job job;
    job_open(cfg, run, &job);
    for (uint64_t v = 0; v < VERSIONS; v++)
        for (int r = 0; r < WERE; r++)
            put(job.h[r], v, life, r);
    for (int r = 0; r < WERE; r++)
        T_OK(varve_flush(job.h[r], CK_LIMIT_MS));
    job_close(&job);
}

/* Restores a version of the part of `rank`. Returns its run, or an error. */
static int try_get(struct varve_history *part, uint64_t v, int rank)
{
    uint64_t count = 0;
    memset(buf, 0, sizeof(buf));
    T_OK(varve_protect(part, FIELD, buf, sizeof(buf)));
    T_OK(varve_protect(part, COUNT, &count, sizeof(count)));
    int rc = varve_restore_for(part, v, CK_LIMIT_MS);
    if (rc)
        return rc;
    T_EQ(count, v * 1000 + (uint64_t)rank);
    for (int life = 1; life < 1000; life++)
        if (ck_same(buf, field_bytes(rank), v, owner(life, rank)))
            return life;
    t_fail(__FILE__, __LINE__, "version %llu of rank %d is of no life", (unsigned long long)v,
           rank);
    return 0;
}

static void check_part(struct varve_ctx *ctx, int rank)
{
    struct varve_history *part;
    uint64_t run[VERSIONS];
    size_t bytes;
    int n = 0;
    T_OK(varve_parts(ctx, "h", &n));
    T_EQ(n, WERE);
    T_OK(varve_part_open(ctx, "h", rank, &part));
    T_EQ(ck_count(part), VERSIONS);
    for (uint64_t v = 0; v < VERSIONS; v++)
        T_OK(varve_hint(part, v));
    T_OK(varve_prefetch_start(part));
    for (uint64_t v = 0; v < VERSIONS; v++) {
        T_EQ(try_get(part, v, rank), 1);
        T_OK(varve_region_size(part, v, FIELD, &bytes));
        T_EQ(bytes, field_bytes(rank));
        T_OK(varve_version_run(part, v, &run[v]));
        T_EQ(run[v], run[0]);
    }
    T_OK(varve_latest(part, &run[0]));
    T_EQ(run[0], VERSIONS - 1);
    T_OK(varve_history_close(part));
}

/* Fewer and more than wrote it; on the node where it was written, or elsewhere. */
static void other_number(int level, bool local, bool same_node, int now)
{
    struct ck_cfg cfg = config(level, local);
    struct varve_ctx *ctx[MOST];
    old_job(&cfg, "first", 1);
    if (!same_node)
        cfg.local = cfg.local ? t_tmpdir() : NULL;
    for (int r = 0; r < now; r++)
        ctx[r] = open_as(cfg, r, now, "second");
    for (int r = 0; r < now; r++)
        for (int old = 0; old < WERE; old++)
            check_part(ctx[r], old);
    for (int r = 0; r < now; r++)
        T_OK(varve_close(ctx[r]));
}

static void test_other_number(void)
{
    for (int level = VARVE_LEVEL_REMOTE; level <= VARVE_LEVEL_COMPLETE; level++)
        for (int kind = 0; kind < 3; kind++)
            other_number(level, kind > 0, kind == 2, kind == 1 ? MOST : 3);
}

static void shell(const char *fmt, const char *folder)
{
    char command[1024];
    snprintf(command, sizeof(command), fmt, folder);
    T_EQ(system(command), 0);
}

/* Adds the hash of a name to a sum over the names in a folder, which does not depend on their order. */
static int add_name(void *user, const char *name, uint64_t bytes)
{
    uint64_t *sum = user, h = 1469598103934665603u;
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 1099511628211u;
    (void)bytes;
    *sum += h;
    return 0;
}

static uint64_t names_in(const char *place, const char *below)
{
    struct vv_target *at;
    char path[512], err[256];
    uint64_t sum = 0;
    snprintf(path, sizeof(path), "%s/%s", place, below);
    T_OK(vv_target_open(vv_os_posix(), path, err, sizeof(err), &at));
    T_OK(at->ops->list(at, add_name, &sum));
    vv_target_close(at);
    return sum;
}

/* Nothing can be changed through a part, and opening it changes nothing; other histories can be open as well. */
static void test_for_reading_only(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_COMPLETE, true);
    struct varve_history *part, *again, *own;
    void *lent;
    size_t bytes;
    old_job(&cfg, "first", 1);
    uint64_t before = names_in(cfg.remote, "h"), group = names_in(cfg.remote, "h/group"),
             local = names_in(cfg.local, "h");
    struct varve_ctx *ctx = open_as(cfg, 0, 3, "second");
    T_OK(varve_part_open(ctx, "h", 1, &part));
    T_OK(varve_part_open(ctx, "h", 1, &again));
    T_OK(varve_history_open(ctx, "new", &own));
    T_EQ(try_get(part, 1, 1), 1);
    T_ERR(varve_checkpoint(part, 9), -EROFS);
    ck_error(ctx, -EROFS, "part of rank 1 in history h, for reading only");
    T_ERR(varve_checkpoint(part, 1), -EROFS);
    T_ERR(varve_checkpoint_on(part, 9, NULL), -EROFS);
    T_ERR(varve_checkpoint_of(part, 9, &(struct varve_region){1, buf, 1}, 1, -1), -EROFS);
    T_ERR(varve_reserve(part, 9, 0, 1, NULL, &lent), -EROFS);
    T_ERR(varve_commit(part, 9, NULL), -ENODATA);
    T_ERR(varve_discard(part, 1), -EROFS);
    T_ERR(varve_revert(part, 1), -EROFS);
    T_ERR(varve_confirm(part, 1), -EROFS);
    T_ERR(varve_resume(part, 1), -EROFS);
    T_OK(varve_wait(part, 1, VARVE_LEVEL_COMPLETE, CK_LIMIT_MS));
    T_OK(varve_flush(part, CK_LIMIT_MS));
    T_OK(varve_acquire(part, 2, COUNT, NULL, &lent, &bytes));
    T_EQ(bytes, 8);
    T_ERR(varve_history_close(part), -EBUSY);
    T_OK(varve_release(part, 2, COUNT, NULL));
    T_ERR(varve_history_remove(ctx, "h", 0), -EBUSY);
    T_OK(varve_history_close(part));
    T_EQ(try_get(again, 2, 1), 1);
    put(own, 0, 1, 0);
    T_OK(varve_close(ctx)); /* ends the part, too */
    T_CHECK(names_in(cfg.remote, "h") == before && names_in(cfg.remote, "h/group") == group);
    T_CHECK(names_in(cfg.local, "h") == local);

    /* The old job restarts while parts of it are open. */
    struct varve_ctx *reader = open_as(cfg, 0, 3, "third");
    T_OK(varve_part_open(reader, "h", 0, &part));
    struct job job;
    job_open(&cfg, "fourth", &job);
    T_EQ(ck_count(job.h[0]), VERSIONS);
    for (int r = 0; r < WERE; r++)
        put(job.h[r], VERSIONS, 1, r);
    for (int r = 0; r < WERE; r++)
        T_OK(varve_flush(job.h[r], CK_LIMIT_MS));
    T_EQ(ck_count(part), VERSIONS); /* as it was at opening */
    T_EQ(try_get(part, 0, 0), 1);
    T_OK(varve_close(reader));
    job_close(&job);
}

static void test_wrong_numbers(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_REMOTE, true);
    struct varve_history *part = NULL;
    int n = -1;
    struct varve_ctx *ctx = open_as(cfg, 0, 2, "early");
    T_ERR(varve_parts(ctx, "h", &n), -ENOENT);
    ck_error(ctx, -ENOENT, "there is no history h");
    T_ERR(varve_part_open(ctx, "h", 0, &part), -ENOENT);
    T_OK(varve_close(ctx));
    old_job(&cfg, "first", 1);
    ctx = open_as(cfg, 0, 2, "second");
    T_ERR(varve_part_open(ctx, "h", WERE, &part), -EINVAL);
    ck_error(ctx, -EINVAL, "written by 4 ranks: rank 4 is not one of them");
    T_ERR(varve_part_open(ctx, "h", -1, &part), -EINVAL);
    T_ERR(varve_part_open(ctx, "../h", 0, &part), -EINVAL);
    T_ERR(varve_part_open(ctx, NULL, 0, &part), -EINVAL);
    T_ERR(varve_part_open(ctx, "h", 0, NULL), -EINVAL);
    T_ERR(varve_part_open(NULL, "h", 0, &part), -EINVAL);
    T_ERR(varve_parts(ctx, "h", NULL), -EINVAL);
    T_EQ(n, -1);
    T_CHECK(part == NULL);
    T_OK(varve_part_open(ctx, "h", 0, &part));
    T_ERR(varve_restore(part, 77), -ENODATA);
    T_ERR(try_get(part, 77, 0), -ENOENT);
    T_OK(varve_close(ctx));
    for (int level = VARVE_LEVEL_CACHED; level <= VARVE_LEVEL_LOCAL; level++) {
        struct ck_cfg low = {.host_cache = 16 * PAGE, .local = t_tmpdir(), .level = level};
        ctx = open_as(low, 0, 1, NULL);
        T_ERR(varve_part_open(ctx, "h", 0, &part), -EINVAL);
        ck_error(ctx, -EINVAL, "level remote or complete");
        T_OK(varve_close(ctx));
    }
    /* One rank is one part, at either level. */
    for (int level = VARVE_LEVEL_REMOTE; level <= VARVE_LEVEL_COMPLETE; level++) {
        struct ck_cfg one = config(level, true);
        ctx = open_as(one, 0, 1, "alone");
        struct varve_history *h = ck_history(ctx, "one");
        put(h, 0, 1, 0);
        T_OK(varve_close(ctx));
        ctx = open_as(one, 2, 3, "three");
        T_OK(varve_parts(ctx, "one", &n));
        T_EQ(n, 1);
        T_OK(varve_part_open(ctx, "one", 0, &part));
        T_EQ(try_get(part, 0, 0), 1);
        T_OK(varve_close(ctx));
    }
}

/* One rank did not write its part of the last version; another version has all markers and no record. */
static void test_incomplete(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_COMPLETE, true);
    struct job job;
    struct varve_history *part;
    job_open(&cfg, "first", &job);
    for (uint64_t v = 0; v < 2; v++)
        for (int r = 0; r < WERE; r++)
            if (v == 0 || r != 1)
                put(job.h[r], v, 1, r);
    for (int r = 0; r < WERE; r++)
        T_OK(varve_wait(job.h[r], 0, VARVE_LEVEL_COMPLETE, CK_LIMIT_MS));
    for (int r = 0; r < WERE; r++)
        if (r != 1)
            T_OK(varve_wait(job.h[r], 1, VARVE_LEVEL_REMOTE, CK_LIMIT_MS));
    cfg.local = t_tmpdir();
    struct varve_ctx *ctx = open_as(cfg, 0, 3, "second");
    for (int r = 0; r < WERE; r++) {
        T_OK(varve_part_open(ctx, "h", r, &part));
        T_EQ(ck_count(part), 1);
        T_EQ(try_get(part, 0, r), 1);
        T_ERR(try_get(part, 1, r), -ENOENT);
        T_OK(varve_history_close(part));
    }
    put(job.h[1], 1, 1, 1);
    for (int r = 0; r < WERE; r++)
        T_OK(varve_wait(job.h[r], 1, VARVE_LEVEL_COMPLETE, CK_LIMIT_MS));
    T_OK(varve_part_open(ctx, "h", 2, &part));
    T_EQ(try_get(part, 1, 2), 1);
    T_OK(varve_close(ctx));
    job_close(&job);
}

/* A job that stopped when all markers of a version were there, and its record was not. */
static void test_no_record(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_COMPLETE, true);
    struct varve_history *part;
    struct vv_group_record record;
    struct vv_target *at;
    char path[512], err[256];
    uint64_t run = 0;
    int n = 0;
    old_job(&cfg, "first", 1);
    cfg.local = t_tmpdir();
    struct varve_ctx *ctx = open_as(cfg, 0, 1, "second");
    T_OK(varve_part_open(ctx, "h", 3, &part));
    T_OK(varve_version_run(part, 0, &run));
    T_OK(varve_history_close(part));
    snprintf(path, sizeof(path), "%s/h", cfg.remote);
    T_OK(vv_target_open(vv_os_posix(), path, err, sizeof(err), &at));
    for (uint32_t r = 0; r < WERE; r++) {
        struct vv_group g;
        T_OK(vv_group_open(at, "h", r, WERE, false, &g));
        if (r == 0)
            T_OK(vv_group_read_record(&g, 0, run, &record));
        T_OK(vv_group_write_marker(&g, 0, run, &record.file[r]));
        vv_group_close(&g);
    }
    vv_group_record_fini(&record);
    vv_target_close(at);
    shell("cd %s/h/group && rm v0.*.group v1.*.group v2.*.group", cfg.remote);
    uint64_t group = names_in(cfg.remote, "h/group");
    T_OK(varve_parts(ctx, "h", &n));
    T_EQ(n, WERE);
    T_OK(varve_part_open(ctx, "h", 3, &part));
    T_EQ(ck_count(part), 1);
    T_EQ(try_get(part, 0, 3), 1);
    T_CHECK(names_in(cfg.remote, "h/group") == group);
    /* Without one of them it is not complete. */
    shell("cd %s/h/group && rm v0.*.r2.mark", cfg.remote);
    T_OK(varve_part_open(ctx, "h", 3, &part));
    T_EQ(ck_count(part), 0);
    T_OK(varve_close(ctx));
}

/* Shared copies with wrong bytes or a wrong end, records with wrong bytes. */
static void test_damage(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_COMPLETE, true), elsewhere = cfg;
    struct varve_history *part;
    struct varve_stats s = {.stats_size = sizeof(s)};
    old_job(&cfg, "first", 1);
    elsewhere.local = t_tmpdir();
    shell(
        "cd %s/h && printf x | dd of=$(ls r1.v1.*.ckpt) bs=1 seek=5000 conv=notrunc 2>/dev/null && "
        "f=$(ls r3.v2.*.ckpt) && printf xxxx | dd of=$f bs=1 seek=$(($(stat -c %%s $f) - 20)) "
        "conv=notrunc 2>/dev/null && "
        "f=$(ls group/v0.*.group) && printf xxxx | dd of=$f bs=1 seek=70 conv=notrunc 2>/dev/null "
        "&& "
        "cat r1.v1.*.ckpt r3.v2.*.ckpt group/v0.*.group | md5sum >sum",
        cfg.remote);
    struct varve_ctx *ctx = open_as(elsewhere, 0, 3, "second");
    T_OK(varve_part_open(ctx, "h", 1, &part));
    T_EQ(try_get(part, 0, 1), 1); /* its record is rebuilt from the files */
    T_ERR(try_get(part, 1, 1), -EBADMSG);
    ck_error(ctx, -EBADMSG, "version 1, region 3: its bytes in the remote folder are damaged");
    T_EQ(try_get(part, 2, 1), 1);
    T_OK(varve_part_open(ctx, "h", 3, &part));
    T_ERR(try_get(part, 2, 3), -EBADMSG);
    ck_error(ctx, -EBADMSG, "remote folder");
    T_EQ(try_get(part, 1, 3), 1);
    T_OK(varve_close(ctx));
    /* On the job's nodes there are good copies; damaged ones there are read from the shared folder. */
    shell("cd %s/h && printf x | dd of=$(ls r1.v2.*.ckpt) bs=1 seek=5000 conv=notrunc 2>/dev/null",
          cfg.local);
    ctx = open_as(cfg, 0, 3, "third");
    for (int r = 1; r < WERE; r += 2) {
        T_OK(varve_part_open(ctx, "h", r, &part));
        for (uint64_t v = 0; v < VERSIONS; v++)
            T_EQ(try_get(part, v, r), 1);
    }
    T_OK(varve_stats(ctx, &s));
    T_CHECK(s.healed_chunks > 0);
    T_OK(varve_close(ctx));
    T_EQ(s.repaired_chunks, 0);
    shell("cd %s/h && cat r1.v1.*.ckpt r3.v2.*.ckpt group/v0.*.group | md5sum | cmp - sum",
          cfg.remote);
}

/* At level remote a version that only the local folder of a node has is none of the part, there or elsewhere. */
static void test_not_shared(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_REMOTE, true);
    struct varve_history *part;
    old_job(&cfg, "first", 1);
    shell("rm %s/h/r1.v2.*.ckpt", cfg.remote);
    struct varve_ctx *ctx = open_as(cfg, 0, 3, "second");
    T_OK(varve_part_open(ctx, "h", 1, &part));
    T_EQ(ck_count(part), VERSIONS - 1);
    T_ERR(try_get(part, 2, 1), -ENOENT);
    T_ERR(varve_wait(part, 2, VARVE_LEVEL_REMOTE, CK_LIMIT_MS), -ENOENT);
    T_EQ(try_get(part, 1, 1), 1);
    T_OK(varve_close(ctx));
}

/* The history changes while a part is open: listed versions are restored unchanged, or not at all. */
static void test_gone(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_COMPLETE, true);
    struct varve_history *part;
    old_job(&cfg, "first", 1);
    struct ck_cfg elsewhere = cfg;
    elsewhere.local = t_tmpdir();
    struct varve_ctx *ctx = open_as(elsewhere, 0, 1, "reader");
    T_OK(varve_part_open(ctx, "h", 1, &part));
    T_EQ(ck_count(part), VERSIONS);
    for (int r = 0; r < WERE; r++) {
        struct varve_ctx *old = open_as(cfg, r, WERE, "second");
        T_OK(varve_history_remove(old, "h", 0));
        T_OK(varve_close(old));
    }
    T_ERR(try_get(part, 0, 1), -EIDRM);
    ck_error(ctx, -EIDRM, "since the part was opened");
    old_job(&cfg, "third", 2); /* the same names of files */
    for (uint64_t v = 0; v < VERSIONS; v++) {
        int life = try_get(part, v, 1);
        T_CHECK(life == 1 || life == -EIDRM);
    }
    T_OK(varve_part_open(ctx, "h", 1, &part));
    for (uint64_t v = 0; v < VERSIONS; v++)
        T_EQ(try_get(part, v, 1), 2);
    T_OK(varve_close(ctx));
}

/* The same after everything was removed by hand: generations begin again, and so do the names of files. */
static void same_names(bool local)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_COMPLETE, local);
    struct varve_history *part;
    old_job(&cfg, "first", 1);
    uint64_t names = names_in(cfg.remote, "h");
    struct varve_ctx *ctx = open_as(cfg, 0, 1, "reader");
    T_OK(varve_part_open(ctx, "h", 1, &part));
    shell("rm -rf %s/h/*", cfg.remote);
    if (local)
        shell("rm -rf %s/h/*", cfg.local);
    old_job(&cfg, "second", 2);
    T_CHECK(names_in(cfg.remote, "h") == names);
    for (uint64_t v = 0; v < VERSIONS; v++)
        T_ERR(try_get(part, v, 1), -EIDRM);
    T_OK(varve_close(ctx));
}

static void test_same_names(void)
{
    same_names(false);
    same_names(true);
}

/* Opens a part and reads a version. Returns its run, or the error. */
static int read_one(struct varve_ctx *ctx)
{
    struct varve_history *part;
    int rc = varve_part_open(ctx, "h", 1, &part);
    if (rc)
        return rc;
    T_OK(varve_protect(part, FIELD, buf, sizeof(buf)));
    memset(buf, 0, sizeof(buf));
    rc = varve_restore_for(part, 1, CK_LIMIT_MS);
    if (rc == 0 && !ck_same(buf, field_bytes(1), 1, owner(1, 1)))
        rc = 2; /* other bytes */
    T_OK(varve_history_close(part));
    return rc ? rc : 1;
}

/* Each of its system calls fails once: an error, or the right bytes, and right bytes afterwards. None of
 * the calls changes anything. */
static void test_faults(void)
{
    static const enum fault_call changes[] = {FAULT_MKDIRAT,   FAULT_UNLINKAT,  FAULT_RENAME,
                                              FAULT_FALLOCATE, FAULT_PUNCH,     FAULT_FTRUNCATE,
                                              FAULT_FSYNC,     FAULT_PWRITE,    FAULT_LOCK,
                                              FAULT_AIO_WRITE, FAULT_AIO_FSYNC, FAULT_AIO_RANGE};
    struct ck_cfg cfg = config(VARVE_LEVEL_COMPLETE, true);
    struct fault_os os;
    struct vv_ckpt_hooks hooks = {.os = &os.os};
    unsigned failed = 0;
    old_job(&cfg, "first", 1);
    cfg.local = t_tmpdir();
    fault_os_init(&os);
    vv_ckpt_set_hooks(&hooks);
    struct varve_ctx *ctx = open_as(cfg, 0, 3, "second");
    for (int i = 0; i < FAULT_CALLS; i++)
        atomic_store(&os.per_call[i], 0);
    T_EQ(read_one(ctx), 1);
    for (size_t i = 0; i < VV_ARRAY_SIZE(changes); i++)
        T_EQ(atomic_load(&os.per_call[changes[i]]), 0);
    os.err = EIO;
    for (os.at = 1;; os.at++) {
        atomic_store(&os.count, 0);
        os.mode = FAULT_ONCE;
        int rc = read_one(ctx);
        os.mode = FAULT_NONE;
        T_CHECK((rc < 0 && rc != -ENOENT) || rc == 1); /* -ENOENT would mean: no such version */
        failed += rc < 0;
        if (atomic_load(&os.count) < os.at)
            break;
        T_EQ(read_one(ctx), 1);
    }
    T_CHECK(failed > 3);
    t_note("%ld calls, %u errors", os.at - 1, failed);
    T_OK(varve_close(ctx));
    vv_ckpt_set_hooks(NULL);
}

/* The job writes versions 0 to 2 repeatedly, each run overwriting those of the previous one, and is killed at any
 * time: the parts of a version are of one run. */
static void life(const struct ck_cfg *cfg, int number, uint64_t ns)
{
    char run[32];
    uint64_t start_ns = vv_now_ns();
    snprintf(run, sizeof(run), "life %d", number);
    pid_t child = fork();
    T_CHECK(child >= 0);
    if (child == 0) {
        struct job job;
        job_open(cfg, run, &job);
        for (uint64_t i = 0; i < 1000; i++) {
            for (int r = 0; r < WERE; r++)
                put(job.h[(number + r) % WERE], i % VERSIONS, number, (number + r) % WERE);
            for (int r = 0; r < WERE && i % 2; r++)
                T_OK(varve_flush(job.h[r], CK_LIMIT_MS));
            if (ns == 0 && i == 2 * VERSIONS)
                _exit(0);
        }
        _exit(0);
    }
    if (ns != 0) {
        vv_sleep_until_ns(start_ns + ns);
        kill(child, SIGKILL);
    }
    int status;
    T_EQ(waitpid(child, &status, 0), child);
    T_CHECK(ns != 0 || status == 0);
}

static unsigned look(struct ck_cfg cfg, int *ret_newest)
{
    struct varve_history *part[WERE];
    unsigned found = 0;
    struct varve_ctx *ctx = open_as(cfg, 0, 3, "look");
    for (int r = 0; r < WERE; r++) {
        T_OK(varve_part_open(ctx, "h", r, &part[r]));
        T_EQ(ck_count(part[r]), ck_count(part[0]));
    }
    for (uint64_t v = 0; v < VERSIONS; v++) {
        int first = try_get(part[0], v, 0);
        T_CHECK(first > 0 || first == -ENOENT);
        found += first > 0;
        *ret_newest = VV_MAX(*ret_newest, first);
        for (int r = 1; r < WERE; r++) {
            int other = try_get(part[r], v, r);
            if (r == 2 && first > 0)
                T_CHECK(other > 0); /* it has no bytes that identify a run */
            else
                T_EQ(other, first);
        }
    }
    T_OK(varve_close(ctx));
    return found;
}

static void test_killed(void)
{
    struct ck_cfg cfg = config(VARVE_LEVEL_COMPLETE, true), elsewhere = cfg;
    struct t_rng rng = {t_seed()};
    unsigned found = 0;
    int newest = 0;
    uint64_t start_ns = vv_now_ns();
    elsewhere.local = t_tmpdir();
    life(&cfg, 1, 0);
    uint64_t whole_ns = vv_now_ns() - start_ns;
    int lives = 1 + (int)t_cases(15, 300);
    for (int i = 2; i <= lives; i++) {
        life(&cfg, i, 1 + t_rng_below(&rng, 2 * whole_ns));
        found += look(i % 2 ? cfg : elsewhere, &newest);
    }
    T_CHECK(found > 0);
    t_note("%u versions after %d kills, the newest of life %d", found, lives - 1, newest);
}

int main(void)
{
    if (t_on_s3())
        t_s3_start();
    T_RUN(test_other_number);
    T_RUN(test_for_reading_only);
    T_RUN(test_wrong_numbers);
    T_RUN(test_incomplete);
    T_RUN(test_gone);
    T_RUN(test_killed);
    if (!t_on_s3()) {
        T_RUN(test_same_names);
        T_RUN(test_faults);
        T_RUN(test_not_shared);
        T_RUN(test_no_record);
        T_RUN(test_damage);
    }
    return t_done();
}
