/* SPDX-License-Identifier: Apache-2.0 */
/* Regions of 0 bytes, among others and alone: at every level, with and without a device, on streams,
 * and lent. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <varve/ckpt.h>

#include "ckpt/ckpt_hooks.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, BYTES = 2 * PAGE + 5 };

static void check_sizes(struct varve_history *h, uint64_t v, const size_t *sizes, size_t n)
{
    int list[8];
    size_t got = 0, bytes;
    T_OK(varve_regions(h, v, list, 8, &got));
    T_EQ(got, n);
    for (size_t i = 0; i < n; i++) {
        bytes = 77;
        T_EQ(list[i], (int)i);
        T_OK(varve_region_size(h, v, list[i], &bytes));
        T_EQ(bytes, sizes[i]);
    }
}

/* Empty regions first, between others and last, restored with all, some and none of them. */
static void among_others(bool device)
{
    static const size_t sizes[] = {0, BYTES, 0, 0, PAGE, 0};
    enum { N = sizeof(sizes) / sizeof(sizes[0]) };
    struct ck_cfg cfg = {.device = device,
                         .device_cache = 16 * PAGE,
                         .host_cache = 16 * PAGE,
                         .local = t_tmpdir(),
                         .level = VARVE_LEVEL_LOCAL};
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "among");
    char *a = ck_alloc(ctx, device, BYTES), *b = ck_alloc(ctx, device, PAGE), some;
    for (int i = 0; i < N; i++)
        T_OK(varve_protect(h, i, sizes[i] == 0 ? (i ? NULL : &some) : i == 1 ? a : b, sizes[i]));
    for (uint64_t v = 0; v < 12; v++) {
        ck_fill(a, BYTES, v, 1);
        ck_fill(b, PAGE, v, 4);
        T_OK(v % 2 ? varve_checkpoint_on(h, v, NULL) : varve_checkpoint(h, v));
        if (device)
            ck_stream_sync(vv_ckpt_device(ctx), NULL);
    }
    for (uint64_t v = 12; v-- > 0;) {
        ck_set(a, 0, BYTES);
        ck_set(b, 0, PAGE);
        if (v == 5)
            T_OK(varve_unprotect(h, 3));
        T_OK(v % 2 ? varve_restore(h, v) : varve_restore_on(h, v, NULL));
        T_OK(varve_wait(h, v, VARVE_LEVEL_LOCAL, CK_LIMIT_MS));
        if (device)
            ck_stream_sync(vv_ckpt_device(ctx), NULL);
        ck_check(a, BYTES, v, 1);
        ck_check(b, PAGE, v, 4);
        check_sizes(h, v, sizes, N);
    }
    /* A larger buffer for an empty region, and none for one that is not. */
    T_OK(varve_protect(h, 2, a, BYTES));
    T_OK(varve_unprotect(h, 1));
    ck_fill(a, BYTES, 99, 9);
    T_OK(varve_restore(h, 3));
    ck_check(a, BYTES, 99, 9);
    T_OK(varve_protect(h, 4, NULL, 0));
    T_ERR(varve_restore(h, 3), -ENOBUFS);
    ck_free(ctx, device, a);
    ck_free(ctx, device, b);
    T_OK(varve_close(ctx));
}

static void test_among_others(void)
{
    among_others(false);
    among_others(true);
}

static void test_bad(void)
{
    struct ck_cfg cfg = {.host_cache = 16 * PAGE};
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "bad");
    T_ERR(varve_protect(h, 0, NULL, 1), -EINVAL);
    T_ERR(varve_protect(h, -1, NULL, 0), -EINVAL);
    T_ERR(varve_checkpoint(h, 0), -ENODATA);
    T_OK(varve_close(ctx));
}

/* All operations on a version, on one without bytes. */
static void alone(const struct ck_cfg *cfg, int nregions)
{
    static const size_t none[8];
    struct varve_history_opts opts;
    T_OK(varve_history_opts_init(&opts, sizeof(opts)));
    opts.overwrite = 1;
    uint64_t latest = 0;
    for (int life = 0; life < 2; life++) {
        struct varve_ctx *ctx = ck_open(cfg);
        struct varve_history *h;
        char byte = 7;
        bool kept = life == 1 && cfg->level >= VARVE_LEVEL_LOCAL;
        T_OK(varve_history_open_with(ctx, "alone", &opts, &h));
        T_EQ(ck_count(h), kept ? 3 : 0);
        for (int i = 0; i < nregions; i++)
            T_OK(varve_protect(h, i, i % 2 ? &byte : NULL, 0));
        if (kept) {
            T_OK(varve_latest(h, &latest));
            T_EQ(latest, 3);
            for (uint64_t v = 1; v < 4; v++) {
                check_sizes(h, v, none, (size_t)nregions);
                T_OK(varve_restore_for(h, v, CK_LIMIT_MS));
            }
        }
        for (uint64_t v = 4; v-- > 0;)
            T_OK(varve_hint(h, v));
        T_OK(varve_hint(h, 2));
        for (uint64_t v = 0; v < 4; v++)
            T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
        T_OK(varve_prefetch_start(h));
        T_OK(varve_checkpoint(h, 3));
        for (int level = VARVE_LEVEL_CACHED; level <= cfg->level; level++)
            T_OK(varve_wait(h, 3, (enum varve_level)level, CK_LIMIT_MS));
        for (uint64_t v = 4; v-- > 0;)
            T_OK(varve_restore_for(h, v, CK_LIMIT_MS));
        T_OK(varve_restore_for(h, 2, CK_LIMIT_MS));
        int ready = 0;
        T_OK(varve_ready(h, 2, &ready));
        T_EQ(ready, 1);
        enum varve_level reached = VARVE_LEVEL_CACHED;
        T_OK(varve_flush(h, CK_LIMIT_MS));
        T_OK(varve_version_level(h, 2, &reached));
        T_EQ((int)reached, cfg->level);
        T_OK(varve_discard(h, 0));
        T_ERR(varve_restore(h, 0), -ENOENT);
        T_EQ(byte, 7);
        T_OK(varve_close(ctx));
    }
}

static void alone_at(int level, bool local, bool remote, bool device)
{
    for (int nregions = 1; nregions <= 3; nregions += 2)
        for (int policy = 0; policy < 2; policy++) {
            struct ck_cfg cfg = {.device = device,
                                 .device_cache = device ? 8 * PAGE : 0,
                                 .host_cache = 8 * PAGE,
                                 .local = local ? t_tmpdir() : NULL,
                                 .remote = remote ? t_tmpdir() : NULL,
                                 .level = level,
                                 .policy = policy ? VARVE_POLICY_SCORE : VARVE_POLICY_NEXT};
            alone(&cfg, nregions);
        }
}

static void test_alone(void)
{
    for (int device = 0; device < 2; device++) {
        alone_at(VARVE_LEVEL_CACHED, false, false, device);
        alone_at(VARVE_LEVEL_CACHED, true, false, device);
        alone_at(VARVE_LEVEL_CACHED, true, true, device);
        alone_at(VARVE_LEVEL_LOCAL, true, false, device);
        alone_at(VARVE_LEVEL_REMOTE, true, true, device);
        alone_at(VARVE_LEVEL_REMOTE, false, true, device);
        alone_at(VARVE_LEVEL_COMPLETE, true, true, device);
        alone_at(VARVE_LEVEL_COMPLETE, false, true, device);
    }
}

/* Found in the shared folder by a node without local files, and among versions that have bytes. */
static void test_other_node(void)
{
    struct ck_cfg cfg = {.host_cache = 16 * PAGE,
                         .local = t_tmpdir(),
                         .remote = t_tmpdir(),
                         .level = VARVE_LEVEL_COMPLETE};
    static char buf[BYTES];
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "node");
    for (uint64_t v = 0; v < 6; v++) {
        T_OK(varve_protect(h, 0, buf, v % 2 ? 0 : BYTES));
        ck_fill(buf, BYTES, v, 0);
        T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
    }
    T_OK(varve_close(ctx));
    cfg.local = t_tmpdir();
    ctx = ck_open(&cfg);
    h = ck_history(ctx, "node");
    T_EQ(ck_count(h), 6);
    T_OK(varve_protect(h, 0, buf, BYTES));
    for (uint64_t v = 0; v < 6; v++) {
        ck_fill(buf, BYTES, 50, 0);
        T_OK(varve_restore_for(h, v, CK_LIMIT_MS));
        ck_check(buf, BYTES, v % 2 ? 50 : v, 0);
    }
    T_OK(varve_close(ctx));
}

/* The oldest versions are removed, and so are restored ones, also if nothing moves. */
static void test_retention(void)
{
    for (int local = 0; local < 2; local++) {
        struct ck_cfg cfg = {.host_cache = 16 * PAGE,
                             .local = local ? t_tmpdir() : NULL,
                             .level = local ? VARVE_LEVEL_LOCAL : VARVE_LEVEL_CACHED};
        struct varve_ctx *ctx = ck_open(&cfg);
        struct varve_history *h;
        struct varve_history_opts opts;
        T_OK(varve_history_opts_init(&opts, sizeof(opts)));
        opts.keep = 2;
        opts.consume = VARVE_CONSUME_ONCE;
        T_OK(varve_history_open_with(ctx, "keep", &opts, &h));
        T_OK(varve_protect(h, 0, NULL, 0));
        for (uint64_t v = 0; v < 5; v++)
            T_OK(varve_checkpoint(h, v));
        T_OK(varve_flush(h, CK_LIMIT_MS));
        T_EQ(ck_count(h), 2);
        T_OK(varve_restore(h, 4));
        T_EQ(ck_count(h), 1);
        T_OK(varve_close(ctx));
    }
}

/* No memory is lent for an empty region, but it counts as lent. */
static void test_lent(void)
{
    for (int device = 0; device < 2; device++) {
        struct ck_cfg cfg = {.device = device,
                             .device_cache = device ? 16 * PAGE : 0,
                             .host_cache = 16 * PAGE,
                             .local = t_tmpdir(),
                             .level = VARVE_LEVEL_LOCAL};
        struct varve_ctx *ctx = ck_open(&cfg);
        struct varve_history *h = ck_history(ctx, "lent");
        void *p = &cfg, *q = NULL;
        size_t bytes = 1;
        T_OK(varve_reserve(h, 1, 0, 0, NULL, &p));
        T_CHECK(p == NULL);
        T_ERR(varve_reserve(h, 1, 0, 0, NULL, &p), -EEXIST);
        T_OK(varve_reserve(h, 1, 1, PAGE, NULL, &q));
        if (device)
            ck_know(ctx, q, PAGE);
        ck_fill(q, PAGE, 1, 1);
        if (device)
            ck_forget(q);
        T_OK(varve_reserve(h, 1, 2, 0, NULL, &p));
        T_OK(varve_commit(h, 1, NULL));
        T_OK(varve_wait(h, 1, VARVE_LEVEL_LOCAL, CK_LIMIT_MS));
        check_sizes(h, 1, (size_t[]){0, PAGE, 0}, 3);
        T_OK(varve_reserve(h, 2, 0, 0, NULL, &p));
        T_OK(varve_reserve(h, 2, 1, 0, NULL, &p));
        T_OK(varve_commit(h, 2, NULL));
        T_OK(varve_wait(h, 2, VARVE_LEVEL_LOCAL, CK_LIMIT_MS));
        check_sizes(h, 2, (size_t[]){0, 0}, 2);
        T_OK(varve_reserve(h, 3, 0, 0, NULL, &p));
        T_OK(varve_abort(h, 3));
        T_ERR(varve_commit(h, 3, NULL), -ENODATA);
        for (uint64_t v = 1; v < 3; v++) {
            p = &cfg;
            T_OK(varve_acquire(h, v, 0, NULL, &p, &bytes));
            T_CHECK(p == NULL && bytes == 0);
            T_ERR(varve_acquire(h, v, 0, NULL, &p, &bytes), -EBUSY);
            T_OK(varve_release(h, v, 0, NULL));
            T_ERR(varve_release(h, v, 0, NULL), -ENOENT);
        }
        T_OK(varve_acquire(h, 1, 2, NULL, &p, &bytes)); /* behind the last byte */
        T_OK(varve_acquire(h, 1, 1, NULL, &q, &bytes));
        T_EQ(bytes, PAGE);
        T_OK(varve_release(h, 1, 2, NULL));
        T_OK(varve_release(h, 1, 1, NULL));
        T_OK(varve_close(ctx));
    }
}

int main(void)
{
    ck_any_device();
    T_RUN(test_among_others);
    T_RUN(test_bad);
    T_RUN(test_alone);
    T_RUN(test_other_node);
    T_RUN(test_retention);
    T_RUN(test_lent);
    return t_done();
}
