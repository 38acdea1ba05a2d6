/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Nth operation of the device and store tables fails, once and for ever, refused at once or reported late, while a
 * small history is written, flushed, restored and closed.
 *
 * Whatever fails: no call crashes; none hangs (each has a time limit that it must not need); no restore returns wrong
 * bytes with success; every error comes with a text; and at level local every version that was reported as committed
 * exists when the history is opened again without failures.
 *
 * Which operation is the Nth depends on the interleaving of threads. The long mode runs every N, otherwise a sample
 * chosen by the seed.
 */
#include <stdio.h>
#include <stdlib.h>

#include <varve/ckpt.h>

#include "ckpt/ckpt_hooks.h"
#include "fault/inject.h"
#include "t.h"
#include "t_cuda.h"
#include "t_cufile.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, K = 6, BYTES = 7 * PAGE + 11, SAMPLE = 8, OTHERS = 100 };

struct run {
    struct ck_cfg cfg;
    struct varve_ctx *sound; /* its device does not fail; NULL: not used */
    bool committed[K];       /* reported to have reached level local, and not discarded since */
    uint64_t failures;       /* calls that returned an error */
};

static struct vv_device *hook_device(void *arg, struct vv_device *inner)
{
    return t_inject_device(arg, inner);
}

static struct vv_store *hook_store(void *arg, struct vv_store *inner)
{
    return t_inject_store(arg, inner);
}

/* Any error is accepted, except a time limit that ran out, which means a hang. */
static bool went_well(struct run *r, struct varve_ctx *ctx, const char *what, int rc)
{
    if (rc == 0)
        return true;
    r->failures++;
    if (rc == -ETIMEDOUT || rc > 0)
        t_fail(__FILE__, __LINE__, "%s: %s", what, t_errname(rc));
    if (ctx) {
        struct varve_error e = {.error_size = sizeof(e)};
        T_OK(varve_last_error(ctx, &e));
        T_CHECK(e.err != 0 && e.text[0] && e.operation[0]);
    }
    return false;
}

static void write_and_read(struct run *r, struct varve_ctx *ctx, struct varve_history *h, char *buf)
{
    bool put[K] = {false};
    for (uint64_t v = 0; v < K; v++)
        went_well(r, ctx, "hint", varve_hint(h, K - 1 - v));
    for (uint64_t v = 0; v < K; v++) {
        ck_fill(buf, BYTES, v, 0);
        for (int try = 0; try < 2 && !put[v]; try++) /* a late error is reported once */
            put[v] = went_well(r, ctx, "checkpoint", varve_checkpoint_for(h, v, CK_LIMIT_MS));
        if (put[v] && v % 2 == 0 && r->cfg.level == VARVE_LEVEL_LOCAL)
            r->committed[v] =
                went_well(r, ctx, "wait", varve_wait(h, v, VARVE_LEVEL_LOCAL, CK_LIMIT_MS));
    }
    went_well(r, ctx, "flush", varve_flush(h, CK_LIMIT_MS));
    went_well(r, ctx, "start", varve_prefetch_start(h));
    for (uint64_t v = K; v-- > 0;) {
        ck_set(buf, 0, BYTES);
        if (went_well(r, ctx, "restore", varve_restore_for(h, v, CK_LIMIT_MS))) {
            T_CHECK(put[v]); /* a checkpoint that failed left nothing behind */
            ck_check(buf, BYTES, v, 0);
        }
    }
    if (put[1] && went_well(r, ctx, "discard", varve_discard(h, 1)))
        r->committed[1] = false;
    for (uint64_t v = 0; v < K; v++)
        if (put[v] && v != 1 && r->cfg.level == VARVE_LEVEL_LOCAL)
            r->committed[v] |=
                went_well(r, ctx, "wait", varve_wait(h, v, VARVE_LEVEL_LOCAL, CK_LIMIT_MS));
}

/* Calls that a stream orders, and leased regions: of other versions, which are discarded again. */
static void order_and_lend(struct run *r, struct varve_ctx *ctx, struct varve_history *h)
{
    for (uint64_t v = OTHERS; v < OTHERS + K; v++) {
        void *ptr = NULL;
        size_t bytes = 0;
        if (v % 2) {
            went_well(r, ctx, "checkpoint_on", varve_checkpoint_on_for(h, v, NULL, CK_LIMIT_MS));
        } else if (went_well(r, ctx, "reserve",
                             varve_reserve_for(h, v, 0, BYTES, NULL, CK_LIMIT_MS, &ptr))) {
            if (!went_well(r, ctx, "commit", varve_commit_for(h, v, NULL, CK_LIMIT_MS)))
                varve_abort(h, v); /* unless the lease was returned */
        }
        went_well(r, ctx, "wait", varve_wait(h, v, VARVE_LEVEL_CACHED, CK_LIMIT_MS));
        if (went_well(r, ctx, "acquire",
                      varve_acquire_for(h, v, 0, NULL, CK_LIMIT_MS, &ptr, &bytes)))
            went_well(r, ctx, "release", varve_release(h, v, 0, NULL));
        went_well(r, ctx, "restore_on", varve_restore_on_for(h, v, NULL, CK_LIMIT_MS));
        if (v % 3 == 0)
            varve_discard(h, v);
    }
    for (uint64_t v = OTHERS; v < OTHERS + K; v++)
        varve_discard(h, v);
}

static void faulty_part(struct run *r)
{
    struct varve_opts opts;
    struct varve_ctx *ctx = NULL;
    struct varve_history *h = NULL;
    void *buf = NULL;
    ck_opts(&r->cfg, &opts);
    if (!went_well(r, NULL, "open", varve_open(&opts, &ctx)))
        return;
    if (went_well(r, ctx, "history", varve_history_open(ctx, "fault", &h)) &&
        went_well(r, ctx, "alloc", varve_device_alloc(ctx, BYTES, &buf)) &&
        went_well(r, ctx, "protect", varve_protect(h, 0, buf, BYTES))) {
        if (r->sound)
            ck_know(r->sound, buf, BYTES);
        write_and_read(r, ctx, h, buf);
        order_and_lend(r, ctx, h);
    }
    ck_forget(buf);
    varve_device_free(ctx, buf);
    int rc = varve_close(ctx);
    T_CHECK(rc != -EBUSY); /* no lease is left, whatever failed */
    went_well(r, NULL, "close", rc);
}

/* Without failures: versions reported as committed exist, and all versions are correct. */
static void look_again(struct run *r)
{
    struct varve_ctx *ctx = ck_open(&r->cfg);
    struct varve_history *h = ck_history(ctx, "fault");
    char *buf = malloc(BYTES);
    uint64_t found[2 * K + 1];
    size_t n;
    T_OK(varve_protect(h, 0, buf, BYTES));
    for (uint64_t v = 0; v < K; v++) {
        if (!r->committed[v])
            continue;
        T_OK(varve_restore_for(h, v, CK_LIMIT_MS));
        ck_check(buf, BYTES, v, 0);
    }
    T_OK(varve_versions(h, found, 2 * K + 1, &n));
    T_CHECK(n <= 2 * K);
    for (size_t i = 0; i < n; i++) {
        if (found[i] >= OTHERS)
            continue; /* could not be removed; not all of its bytes were written */
        T_OK(varve_restore_for(h, found[i], CK_LIMIT_MS));
        ck_check(buf, BYTES, found[i], 0);
    }
    free(buf);
    T_OK(varve_close(ctx));
}

/* Returns the number of operations. */
static uint64_t one(int level, bool gds, enum t_inject_mode mode, uint64_t nth, int64_t count)
{
    struct t_inject inj;
    struct vv_ckpt_hooks hooks = {.device = hook_device, .store = hook_store, .arg = &inj};
    struct run r = {.cfg = {.device = true,
                            .device_cache = 16 * PAGE,
                            .host_cache = gds ? 2 * PAGE : 16 * PAGE,
                            .gds = gds,
                            .local = t_tmpdir(),
                            .level = level,
                            .close_timeout_ms = CK_LIMIT_MS}};
    if (t_device_is_cuda())
        r.sound = ck_open(&(struct ck_cfg){.device = true, .host_cache = 16 * PAGE});
    t_inject_init(&inj);
    if (nth)
        t_inject_arm(&inj, mode, nth, count, -EIO);
    vv_ckpt_set_hooks(&hooks);
    faulty_part(&r);
    vv_ckpt_set_hooks(NULL);
    uint64_t seen = t_inject_seen(&inj), failed = t_inject_failed(&inj);
    t_inject_fini(&inj);
    T_OK(varve_close(r.sound));
    if (nth == 0)
        T_EQ(r.failures, 0);
    T_CHECK(failed == 0 || nth);
    if (gds)
        t_cufile_check();
    if (level == VARVE_LEVEL_LOCAL)
        look_again(&r);
    return seen;
}

static void all(int level, bool gds, enum t_inject_mode mode, int64_t count)
{
    uint64_t seen = one(level, gds, mode, 0, 0);
    struct t_rng rng = {t_seed() + (uint64_t)level * 16 + (uint64_t)mode * 4 +
                        (uint64_t)(count < 0)};
    uint64_t runs = t_cases(t_device_is_cuda() ? SAMPLE / 2 : SAMPLE, seen);
    T_CHECK(seen > 50);
#ifdef __SANITIZE_THREAD__
    /* If a device refuses everything, the library can only give it time to end its copies. They have ended
     * by then, but ThreadSanitizer cannot know that. */
    if (count < 0)
        return;
#endif
    t_note("level %d, mode %d, count %lld: %llu operations, %llu of them made to fail", level, mode,
           (long long)count, (unsigned long long)seen, (unsigned long long)runs);
    for (uint64_t i = 0; i < runs; i++)
        one(level, gds, mode, t_long() ? i + 1 : 1 + t_rng_below(&rng, seen), count);
}

static void test_cached_once(void)
{
    all(VARVE_LEVEL_CACHED, false, T_INJECT_REFUSE, 1);
    all(VARVE_LEVEL_CACHED, false, T_INJECT_REPORT, 1);
}

static void test_cached_for_ever(void)
{
    all(VARVE_LEVEL_CACHED, false, T_INJECT_REFUSE, -1);
    all(VARVE_LEVEL_CACHED, false, T_INJECT_REPORT, -1);
}

static void test_local_once(void)
{
    all(VARVE_LEVEL_LOCAL, false, T_INJECT_REFUSE, 1);
    all(VARVE_LEVEL_LOCAL, false, T_INJECT_REPORT, 1);
}

static void test_local_for_ever(void)
{
    all(VARVE_LEVEL_LOCAL, false, T_INJECT_REFUSE, -1);
    all(VARVE_LEVEL_LOCAL, false, T_INJECT_REPORT, -1);
}

/* Transfers that bypass the host, with a stand-in for libcufile, whose threads call the device too. */
static void test_past_the_host(void)
{
    struct fake_cufile *fake = t_cufile_load();
    for (int level = VARVE_LEVEL_CACHED; level <= VARVE_LEVEL_LOCAL; level++) {
        t_cufile_reset();
        all(level, true, T_INJECT_REFUSE, 1);
        all(level, true, T_INJECT_REPORT, 1);
        T_CHECK(fake->writes > 0 && fake->reads > 0);
    }
}

int main(void)
{
    ck_any_device();
    T_RUN(test_cached_once);
    T_RUN(test_cached_for_ever);
    T_RUN(test_local_once);
    T_RUN(test_local_for_ever);
    T_RUN(test_past_the_host); /* last: it is skipped without a stand-in */
    return t_done();
}
