/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Nth call of the CUDA driver fails, once and for ever, with codes that real drivers return,
 * or is accepted and fails on the device, while a small history is written, flushed, restored and
 * closed. Uses the stand-in for the driver.
 *
 * Whatever fails: no call crashes; none hangs (each has a time limit that it must not need); no restore returns wrong
 * bytes with success; and every error comes with a text. Afterwards, without failures, everything works again.
 */
#include <dlfcn.h>
#include <stdlib.h>

#include <varve/ckpt.h>

#include "t.h"
#include "t_cuda.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, K = 5, BYTES = 9 * PAGE + 3, SAMPLE = 5 };

enum {
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    DEINITIALIZED = 4,
    ECC_UNCORRECTABLE = 214,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_FAILED = 719,
    UNKNOWN = 999,
};

static struct t_fake fake;
static int (*reset)(int device);
static int (*pop)(void **ret_ctx);
static uint64_t failures; /* calls of the library that returned an error */
static bool undisturbed;  /* no call may fail */

static bool went_well(struct varve_ctx *ctx, const char *what, int rc)
{
    if (rc == 0)
        return true;
    failures++;
    if (undisturbed) {
        struct varve_error e = {.error_size = sizeof(e)};
        T_OK(varve_last_error(ctx, &e));
        t_note("%s: %s (%s)", what, t_errname(rc), e.text);
    }
    if (rc == -ETIMEDOUT || rc > 0)
        t_fail(__FILE__, __LINE__, "%s: %s", what, t_errname(rc));
    if (ctx) {
        struct varve_error e = {.error_size = sizeof(e)};
        T_OK(varve_last_error(ctx, &e));
        T_CHECK(e.err != 0 && e.text[0] && e.operation[0]);
    }
    return false;
}

/* `view` is the processor's address of `buf`. */
static void write_and_read(struct varve_ctx *ctx, struct varve_history *h, char *view)
{
    bool put[K] = {false};
    for (uint64_t v = 0; v < K; v++)
        went_well(ctx, "hint", varve_hint(h, K - 1 - v));
    for (uint64_t v = 0; v < K; v++) {
        ck_fill(view, BYTES, v, 0);
        for (int try = 0; try < 2 && !put[v]; try++) /* a late error is reported once */
            put[v] = went_well(ctx, "checkpoint", varve_checkpoint_for(h, v, CK_LIMIT_MS));
    }
    went_well(ctx, "flush", varve_flush(h, CK_LIMIT_MS));
    for (uint64_t v = K; v-- > 0;) {
        memset(view, 0, BYTES);
        if (went_well(ctx, "restore", varve_restore_for(h, v, CK_LIMIT_MS))) {
            T_CHECK(put[v]);
            ck_check(view, BYTES, v, 0);
        }
    }
}

static void work(int level)
{
    struct ck_cfg cfg = {.device = true,
                         .device_cache = 16 * PAGE,
                         .host_cache = 32 * PAGE,
                         .local = t_tmpdir(),
                         .level = level};
    struct varve_opts opts;
    struct varve_ctx *ctx = NULL;
    struct varve_history *h = NULL;
    void *buf = NULL;
    ck_opts(&cfg, &opts);
    if (!went_well(NULL, "open", varve_open(&opts, &ctx)))
        return;
    if (went_well(ctx, "history", varve_history_open(ctx, "driver", &h)) &&
        went_well(ctx, "alloc", varve_device_alloc(ctx, BYTES, &buf)) &&
        went_well(ctx, "protect", varve_protect(h, 0, buf, BYTES)))
        write_and_read(ctx, h, fake.map(buf));
    varve_device_free(ctx, buf);
    went_well(NULL, "close", varve_close(ctx));
}

/* Leftovers of a failed call are freed with the context. */
static void clean_up(void)
{
    fake.heal();
    while (pop(NULL) == 0) /* a context that the library could not pop */
        ;
    T_EQ(reset(0), 0);
    T_EQ(fake.live("contexts"), 0);
    T_EQ(fake.live("pending"), 0);
}

/* Runs without failures and returns the number of driver calls. */
static uint64_t sound(int level)
{
    uint64_t before = fake.calls("*");
    failures = 0;
    undisturbed = true;
    work(level);
    undisturbed = false;
    T_EQ(failures, 0);
    T_EQ(fake.live("contexts"), 0);
    T_EQ(fake.live("allocations"), 0);
    T_EQ(fake.live("registrations"), 0);
    T_EQ(fake.live("streams"), 0);
    return fake.calls("*") - before;
}

static void fail_calls(int level, int code, long long count)
{
    uint64_t calls = sound(level);
    struct t_rng rng = {t_seed() + (uint64_t)code * 4 + (uint64_t)level * 2 + (count < 0)};
    uint64_t runs = t_long() ? calls : SAMPLE;
    for (uint64_t i = 0; i < runs; i++) {
        uint64_t nth = t_long() ? i + 1 : 1 + t_rng_below(&rng, calls);
        T_EQ(fake.fail("*", nth, count, code), 0);
        t_note("level %d: call %llu of %llu fails with %d, %s", level, (unsigned long long)nth,
               (unsigned long long)calls, code, count < 0 ? "for ever" : "once");
        work(level);
        clean_up();
    }
    sound(level);
}

static void test_once(void)
{
    static const int codes[] = {INVALID_VALUE, OUT_OF_MEMORY, ECC_UNCORRECTABLE, UNKNOWN};
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
        fail_calls(i % 2 ? VARVE_LEVEL_LOCAL : VARVE_LEVEL_CACHED, codes[i], 1);
}

static void test_for_ever(void)
{
    fail_calls(VARVE_LEVEL_CACHED, DEINITIALIZED, -1);
    fail_calls(VARVE_LEVEL_LOCAL, ILLEGAL_ADDRESS, -1);
}

/* A call is accepted and fails when it runs: that breaks the whole context. */
static void test_on_the_device(void)
{
    static const int codes[] = {ILLEGAL_ADDRESS, LAUNCH_FAILED, ECC_UNCORRECTABLE};
    for (unsigned nth = 1; nth <= 12; nth++) {
        T_EQ(fake.fail_async(nth, 1, codes[nth % 3]), 0);
        failures = 0;
        work(nth % 2 ? VARVE_LEVEL_LOCAL : VARVE_LEVEL_CACHED);
        T_CHECK(failures > 0);
        clean_up();
    }
    sound(VARVE_LEVEL_LOCAL);
}

/* Another thread takes the device away in the middle. */
static void test_lost(void)
{
    struct ck_cfg cfg = {.device = true,
                         .device_cache = 16 * PAGE,
                         .host_cache = 32 * PAGE,
                         .local = t_tmpdir(),
                         .level = VARVE_LEVEL_LOCAL};
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "lost");
    void *buf;
    char *host = malloc(BYTES);
    T_CHECK(host);
    T_OK(varve_device_alloc(ctx, BYTES, &buf));
    ck_fill(fake.map(buf), BYTES, 1, 0);
    T_OK(varve_protect(h, 0, buf, BYTES));
    T_OK(varve_checkpoint_for(h, 1, CK_LIMIT_MS));
    T_OK(varve_wait(h, 1, VARVE_LEVEL_LOCAL, CK_LIMIT_MS));
    fake.lose(ECC_UNCORRECTABLE);
    T_ERR(varve_checkpoint_for(h, 2, CK_LIMIT_MS), -ENODEV);
    T_ERR(varve_device_alloc(ctx, BYTES, &(void *){NULL}), -ENODEV);
    struct varve_error e = {.error_size = sizeof(e)};
    T_OK(varve_last_error(ctx, &e));
    T_EQ(e.scope, VARVE_SCOPE_DEVICE);
    varve_close(ctx);
    fake.lose(0);
    /* Committed versions exist. */
    cfg.device = false;
    ctx = ck_open(&cfg);
    h = ck_history(ctx, "lost");
    T_OK(varve_protect(h, 0, host, BYTES));
    T_OK(varve_restore_for(h, 1, CK_LIMIT_MS));
    ck_check(host, BYTES, 1, 0);
    T_OK(varve_close(ctx));
    free(host);
}

int main(void)
{
    void *lib, *fn;
    T_CHECK(t_fake_load(t_fake_path(false), &lib, &fake));
    fn = dlsym(lib, "cuDevicePrimaryCtxReset_v2");
    T_CHECK(fn);
    memcpy(&reset, &fn, sizeof(fn));
    fn = dlsym(lib, "cuCtxPopCurrent_v2");
    T_CHECK(fn);
    memcpy(&pop, &fn, sizeof(fn));
    /* From now on the library is found by its name, because it is loaded. */
    T_EQ(setenv("VARVE_TEST_DEVICE", "cuda", 1), 0);
    ck_any_device();
    T_RUN(test_once);
    T_RUN(test_for_ever);
    T_RUN(test_on_the_device);
    T_RUN(test_lost);
    return t_done();
}
