/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Nth system call of a small history at levels local, remote and complete fails, for every N:
 * once with an I/O error, and from then on with a full disk; and every read and write may be
 * short.
 *
 * Whatever fails: no call crashes or needs its time limit, no restore returns wrong bytes, and versions reported as
 * committed exist when the history is opened again. After a temporary failure everything can be repeated: opening, the
 * checkpoint, the wait, which writes the version again, and the restore.
 */
#include <stdio.h>
#include <stdlib.h>

#include <varve/ckpt.h>

#include "base/util.h"
#include "ckpt/ckpt_hooks.h"
#include "fault_os.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, K = 3, BYTES = 5 * PAGE + 7 };

struct run {
    struct ck_cfg cfg;
    struct fault_os os;
    enum fault_mode mode;
    bool put[K], committed[K];
    long failures; /* calls that returned an error */
};

/* True if the call has failed and may be repeated, because the failure is temporary. */
static bool failed(struct run *r, const char *what, int rc)
{
    if (rc == 0)
        return false;
    r->failures++;
    if (rc == -ETIMEDOUT || rc > 0 || r->mode == FAULT_NONE)
        t_fail(__FILE__, __LINE__, "%s, call %ld: %s", what, r->os.at, t_errname(rc));
    return true;
}

/* The error of one system call is returned by one call of the library, a late error by one more. */
#define TRY(r, expr)                           \
    ({                                         \
        int try_rc_ = 0;                       \
        for (int try_ = 0; try_ < 3; try_++) { \
            try_rc_ = (expr);                  \
            if (!failed(r, #expr, try_rc_))    \
                break;                         \
        }                                      \
        if ((r)->mode == FAULT_ONCE)           \
            T_OK(try_rc_);                     \
        try_rc_ == 0;                          \
    })

static struct varve_ctx *open_all(struct run *r, struct varve_history **ret_h)
{
    struct varve_opts opts;
    struct varve_ctx *ctx = NULL;
    ck_opts(&r->cfg, &opts);
    if (!TRY(r, varve_open(&opts, &ctx)))
        return NULL;
    if (TRY(r, varve_history_open(ctx, "os", ret_h)))
        return ctx;
    varve_close(ctx);
    return NULL;
}

static void write_phase(struct run *r, char *buf)
{
    struct varve_history *h;
    struct varve_ctx *ctx = open_all(r, &h);
    if (!ctx)
        return;
    T_OK(varve_protect(h, 0, buf, BYTES));
    for (uint64_t v = 0; v < K; v++) {
        ck_fill(buf, BYTES, v, 0);
        r->put[v] = TRY(r, varve_checkpoint_for(h, v, CK_LIMIT_MS));
        if (r->put[v] && v != 1)
            r->committed[v] = TRY(r, varve_wait(h, v, (enum varve_level)r->cfg.level, CK_LIMIT_MS));
    }
    /* Errors on the way are reported, but all versions are in memory. */
    for (uint64_t v = 0; v < K; v++) {
        memset(buf, 0, BYTES);
        if (r->put[v] && TRY(r, varve_restore_for(h, v, CK_LIMIT_MS)))
            ck_check(buf, BYTES, v, 0);
    }
    if (r->put[1]) {
        T_OK(varve_discard(h, 1));
        r->put[1] = false;
        TRY(r, varve_flush(h, CK_LIMIT_MS)); /* reports a failed removal */
    }
    int rc = varve_close(ctx);
    failed(r, "close", rc);
    for (int v = 0; v < K; v++)
        r->committed[v] |= rc == 0 && r->put[v];
}

static void read_phase(struct run *r, char *buf)
{
    struct varve_history *h;
    uint64_t found[K + 1];
    size_t n;
    struct varve_ctx *ctx = open_all(r, &h);
    if (!ctx)
        return;
    T_OK(varve_protect(h, 0, buf, BYTES));
    T_OK(varve_versions(h, found, K + 1, &n));
    T_CHECK(n <= K);
    for (uint64_t v = 0; v < K; v++) {
        bool listed = false;
        for (size_t i = 0; i < n; i++)
            listed |= found[i] == v;
        if (r->mode == FAULT_NONE && r->committed[v])
            T_CHECK(listed);
        if (listed && v == 1)
            T_CHECK(r->failures > 0); /* it could not be removed, and that was reported */
        memset(buf, 0, BYTES);
        if (listed && TRY(r, varve_restore_for(h, v, CK_LIMIT_MS)))
            ck_check(buf, BYTES, v, 0);
    }
    failed(r, "close", varve_close(ctx));
}

/* The folders of the history. */
struct where {
    int level;
    bool local, remote;
};

/* Returns the number of calls. */
static long one(const struct where *w, enum fault_mode mode, long at, int err, int64_t short_bytes)
{
    struct run r = {.cfg = {.host_cache = 64 * PAGE,
                            .local = w->local ? t_tmpdir() : NULL,
                            .remote = w->remote ? t_tmpdir() : NULL,
                            .level = w->level,
                            .close_timeout_ms = CK_LIMIT_MS},
                    .mode = mode};
    char *buf = malloc(BYTES);
    fault_os_init(&r.os);
    r.os.mode = mode;
    r.os.at = at;
    r.os.err = err;
    r.os.short_bytes = short_bytes;
    struct vv_ckpt_hooks hooks = {.os = &r.os.os};
    vv_ckpt_set_hooks(&hooks);
    write_phase(&r, buf);
    read_phase(&r, buf);
    long seen = atomic_load(&r.os.count);
    r.os.mode = r.mode = FAULT_NONE;
    read_phase(&r, buf);
    vv_ckpt_set_hooks(NULL);
    T_EQ(atomic_load(&r.os.descriptors), 0);
    free(buf);
    return seen;
}

static void every(const struct where *w, enum fault_mode mode, int err, uint64_t gate)
{
    static uint64_t salt;
    long seen = one(w, FAULT_NONE, 0, 0, 0);
    T_CHECK(seen > 30);
    /* All of them, or a regular sample. */
    uint64_t n = t_cases(VV_MIN(gate, (uint64_t)seen), (uint64_t)seen), step = (uint64_t)seen / n;
    struct t_rng rng = {t_seed() + (uint64_t)mode + salt++};
    t_note("%ld system calls, one in %llu made to fail", seen, (unsigned long long)step);
    for (long at = 1 + (long)t_rng_below(&rng, step); at <= seen; at += (long)step)
        one(w, mode, at, err, 0);
}

static const struct where local = {VARVE_LEVEL_LOCAL, true, false};
static const struct where remote = {VARVE_LEVEL_REMOTE, true, true};
static const struct where complete = {VARVE_LEVEL_COMPLETE, true, true};
static const struct where direct = {VARVE_LEVEL_COMPLETE, false, true};

static void test_once(void)
{
    every(&local, FAULT_ONCE, EIO, UINT64_MAX);
}

static void test_for_ever(void)
{
    every(&local, FAULT_FOREVER, ENOSPC, UINT64_MAX);
}

static void test_remote(void)
{
    every(&remote, FAULT_ONCE, EIO, 24);
    every(&remote, FAULT_FOREVER, ENOSPC, 10);
}

static void test_complete(void)
{
    every(&complete, FAULT_ONCE, EIO, 24);
    every(&complete, FAULT_FOREVER, ENOSPC, 10);
}

static void test_direct(void)
{
    every(&direct, FAULT_ONCE, EIO, 12);
    every(&direct, FAULT_FOREVER, ENOSPC, 6);
}

/* Short reads and writes. */
static void test_short(void)
{
    const struct where *all[] = {&local, &remote, &complete, &direct};
    for (size_t i = 0; i < VV_ARRAY_SIZE(all); i++)
        one(all[i], FAULT_NONE, 0, 0, PAGE);
}

int main(void)
{
    T_RUN(test_once);
    T_RUN(test_for_ever);
    T_RUN(test_remote);
    T_RUN(test_complete);
    T_RUN(test_direct);
    T_RUN(test_short);
    return t_done();
}
