/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every combination of tiers, every policy, every order of restoring, with and without hints: what
 * was written is what comes back. Caches are far smaller than the history, so that every version
 * takes the way down and up again where there is one.
 */
#include <stdio.h>
#include <stdlib.h>

#include <varve/ckpt.h>

#include "t.h"
#include "t_cuda.h"
#include "unit/ckpt/ck.h"

enum { K = 16, PAGE = 4096, MAX_BYTES = 9 * PAGE };

enum order { SEQ, REV, IRR, ORDERS };

static size_t size_of(uint64_t v)
{
    return 1 + (v * 7919) % MAX_BYTES;
}

static uint64_t nth(enum order order, uint64_t i)
{
    return order == SEQ ? i : order == REV ? K - 1 - i : (i * 7 + 3) % K;
}

static void shot(const struct ck_cfg *cfg, const char *name, enum order order, bool hints,
                 bool wait)
{
    struct varve_ctx *ctx = ck_open(cfg);
    struct varve_history *h = ck_history(ctx, name);
    char *buf = ck_alloc(ctx, cfg->device, MAX_BYTES);

    for (uint64_t i = 0; hints && i < K; i++)
        T_OK(varve_hint(h, nth(order, i)));
    for (uint64_t v = 0; v < K; v++) {
        ck_fill(buf, size_of(v), v, 0);
        T_OK(varve_protect(h, 0, buf, size_of(v)));
        T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
    }
    if (wait)
        T_OK(varve_flush(h, CK_LIMIT_MS));
    T_OK(varve_prefetch_start(h));
    for (uint64_t i = 0; i < K; i++) {
        uint64_t v = nth(order, i);
        ck_set(buf, 0xee, MAX_BYTES);
        T_OK(varve_protect(h, 0, buf, MAX_BYTES));
        T_OK(varve_restore_for(h, v, CK_LIMIT_MS));
        ck_check(buf, size_of(v), v, 0);
        if (size_of(v) < MAX_BYTES)
            T_EQ((unsigned char)ck_byte(buf, size_of(v)), 0xee);
    }
    struct varve_stats s = {.stats_size = sizeof(s)};
    T_OK(varve_stats(ctx, &s));
    T_EQ(s.checkpoints, K);
    T_EQ(s.restores, K);
    T_EQ(s.versions, K);
    ck_free(ctx, cfg->device, buf);
    T_OK(varve_close(ctx));
}

static void all_shots(struct ck_cfg cfg)
{
    if (cfg.local)
        cfg.local = t_tmpdir();
    /* Decisions of policies depend neither on the kind of device nor on sanitizers. */
    bool one = (t_device_is_cuda() || t_sanitized()) && !t_long();
    int last = one ? VARVE_POLICY_NEXT : VARVE_POLICY_LRU;
    for (int policy = VARVE_POLICY_NEXT; policy <= last; policy++) {
        for (int order = SEQ; order < ORDERS; order++) {
            for (int hints = 0; hints < 2; hints++) {
                /* The policies that are there to be compared with: one case with hints, one
                 * without. */
                if (policy != VARVE_POLICY_NEXT && (order == SEQ || hints != (order == REV)))
                    continue;
                char name[64];
                snprintf(name, sizeof(name), "p%d-o%d-h%d", policy, order, hints);
                cfg.policy = policy;
                shot(&cfg, name, (enum order)order, hints, order == IRR);
            }
        }
    }
}

static void test_host_only(void)
{
    all_shots((struct ck_cfg){.host_cache = 2 * K * MAX_BYTES});
}

static void test_host_and_spill(void)
{
    all_shots(
        (struct ck_cfg){.host_cache = 12 * PAGE, .local = "", .local_cache = 4 * K * MAX_BYTES});
}

static void test_host_and_files(void)
{
    all_shots((struct ck_cfg){.host_cache = 12 * PAGE,
                              .local = "",
                              .local_cache = 4 * K * MAX_BYTES,
                              .level = VARVE_LEVEL_LOCAL});
}

static void test_device_and_host(void)
{
    all_shots((struct ck_cfg){
        .device = true, .device_cache = 16 * PAGE, .host_cache = 2 * K * MAX_BYTES});
}

static void test_device_host_and_spill(void)
{
    all_shots((struct ck_cfg){.device = true,
                              .device_cache = 12 * PAGE,
                              .host_cache = 20 * PAGE,
                              .local = "",
                              .local_cache = 4 * K * MAX_BYTES});
}

static void test_device_host_and_files(void)
{
    all_shots((struct ck_cfg){.device = true,
                              .device_cache = 12 * PAGE,
                              .host_cache = 20 * PAGE,
                              .local = "",
                              .local_cache = 4 * K * MAX_BYTES,
                              .level = VARVE_LEVEL_LOCAL});
}

static void test_no_host_cache(void)
{
    all_shots((struct ck_cfg){
        .device = true, .device_cache = 12 * PAGE, .local = "", .local_cache = 4 * K * MAX_BYTES});
    all_shots(
        (struct ck_cfg){.local = "", .local_cache = 4 * K * MAX_BYTES, .level = VARVE_LEVEL_LOCAL});
}

static void test_device_without_cache(void)
{
    all_shots((struct ck_cfg){
        .device = true, .host_cache = 12 * PAGE, .local = "", .local_cache = 4 * K * MAX_BYTES});
}

/* Tiers that hold nothing of an object pass it through to the next one that can. */
static void test_larger_than_caches(void)
{
    for (int level = VARVE_LEVEL_CACHED; level <= VARVE_LEVEL_LOCAL; level++) {
        struct ck_cfg cfg = {.device = true,
                             .device_cache = 4 * PAGE,
                             .host_cache = 6 * PAGE,
                             .local = t_tmpdir(),
                             .level = level};
        struct varve_ctx *ctx = ck_open(&cfg);
        struct varve_history *h = ck_history(ctx, "large");
        size_t bytes = 200 * PAGE + 17;
        char *buf = ck_alloc(ctx, true, bytes);
        for (uint64_t v = 0; v < 3; v++) {
            ck_fill(buf, bytes, v, 5);
            T_OK(varve_protect(h, 5, buf, bytes));
            T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
        }
        for (uint64_t v = 0; v < 3; v++) {
            ck_set(buf, 0, bytes);
            T_OK(varve_restore_for(h, v, CK_LIMIT_MS));
            ck_check(buf, bytes, v, 5);
        }
        ck_free(ctx, true, buf);
        T_OK(varve_close(ctx));
    }
}

/* Host memory on a context with a device, and device memory restored into host memory. */
static void test_across_kinds(void)
{
    struct ck_cfg cfg = {
        .device = true, .device_cache = 8 * PAGE, .host_cache = 8 * PAGE, .local = t_tmpdir()};
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "kinds");
    char *dev = ck_alloc(ctx, true, MAX_BYTES), *host = ck_alloc(ctx, false, MAX_BYTES);
    for (uint64_t v = 0; v < 8; v++) {
        char *buf = v % 2 ? dev : host;
        ck_fill(buf, MAX_BYTES, v, 0);
        T_OK(varve_protect(h, 0, buf, MAX_BYTES));
        T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
    }
    for (uint64_t v = 0; v < 8; v++) {
        for (int other = 0; other < 2; other++) {
            char *buf = other ? dev : host;
            ck_set(buf, 0, MAX_BYTES);
            T_OK(varve_protect(h, 0, buf, MAX_BYTES));
            T_OK(varve_restore_for(h, v, CK_LIMIT_MS));
            ck_check(buf, MAX_BYTES, v, 0);
        }
    }
    ck_free(ctx, true, dev);
    ck_free(ctx, false, host);
    T_OK(varve_close(ctx));
}

int main(void)
{
    ck_any_device();
    if (!t_device_is_cuda()) {
        T_RUN(test_host_only);
        T_RUN(test_host_and_spill);
        T_RUN(test_host_and_files);
    }
    T_RUN(test_device_and_host);
    T_RUN(test_device_host_and_spill);
    T_RUN(test_device_host_and_files);
    T_RUN(test_no_host_cache);
    T_RUN(test_device_without_cache);
    T_RUN(test_larger_than_caches);
    T_RUN(test_across_kinds);
    return t_done();
}
