/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between two calls of the application, when all bytes have been moved, the threads of the library are
 * blocked: they run only a few times, independent of their earlier work.
 */
#include <varve/ckpt.h>

#include "base/clock.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, BYTES = 8 * PAGE, ROUNDS = 30, FEW = 10, RESTS = 100 };

#define REST_NS (10 * VV_NS_PER_MS)

/* Returns how often other threads ran in a pause without calls. On a busy machine bytes are still moved during the
 * first pauses; a thread that polls runs in every one. */
static uint64_t rest(void)
{
    uint64_t ran = FEW;

    for (int i = 0; i < RESTS && ran >= FEW; i++) {
        uint64_t before = t_others_blocked();
        vv_sleep_until_ns(vv_now_ns() + REST_NS);
        ran = t_others_blocked() - before;
    }
    return ran;
}

static void test_blocked_between_calls(void)
{
    struct ck_cfg cfg = {.device = true, .device_cache = 64 * BYTES, .host_cache = 256 * BYTES};
    struct varve_opts opts;
    struct varve_ctx *ctx;
    uint64_t ran;

    ck_opts(&cfg, &opts);
    T_OK(varve_opts_set(&opts, "stats", "off")); /* which are published ten times a second */
    T_OK(varve_open(&opts, &ctx));
    struct varve_history *h = ck_history(ctx, "h");
    char *buf = ck_alloc(ctx, true, BYTES);
    T_OK(varve_protect(h, 0, buf, BYTES));
    for (uint64_t v = 0; v < ROUNDS; v++) {
        ck_fill(buf, BYTES, v, 0);
        T_OK(varve_checkpoint_for(h, 2 * v, CK_LIMIT_MS));
        T_OK(varve_checkpoint_on_for(h, 2 * v + 1, NULL, CK_LIMIT_MS));
        T_OK(varve_wait(h, 2 * v + 1, VARVE_LEVEL_CACHED, CK_LIMIT_MS));
        T_OK(varve_restore_for(h, 2 * v, CK_LIMIT_MS));
        ck_check(buf, BYTES, v, 0);
        ran = rest();
        if (ran >= FEW)
            t_note("other threads ran %llu times in each of %d rests", (unsigned long long)ran,
                   RESTS);
        T_CHECK(ran < FEW);
    }
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
}

int main(void)
{
    ck_any_device();
    T_RUN(test_blocked_between_calls);
    return t_done();
}
