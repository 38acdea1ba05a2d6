/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeping the engine warm changes nothing: calls are rehearsed on an engine that nobody else has and
 * that is empty again after each time.
 */
#include "ckpt/ckpt_private.h"
#include "ckpt/rehearse.h"
#include "engine/runtime_private.h"
#include "t.h"
#include "trace/trace.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, BYTES = 8 * PAGE, TIMES = 300 };

static void test_rehearsing(void)
{
    struct ck_cfg cfg = {.device = true, .device_cache = 64 * BYTES, .host_cache = 64 * BYTES};
    struct varve_opts opts;
    struct varve_ctx *ctx = NULL;
    struct vv_core_stats before, after;
    struct vv_trace_log log;
    struct vvi_rehearsal *r = NULL;

    ck_opts(&cfg, &opts);
    T_OK(
        varve_opts_set(&opts, "deputy", "off")); /* this thread is the one that keeps itself warm */
    T_OK(varve_open(&opts, &ctx));
    struct varve_history *h = ck_history(ctx, "h");
    struct vv_engine *e = ctx->engine;
    char *buf = ck_alloc(ctx, true, BYTES);
    T_OK(varve_protect(h, 0, buf, BYTES));
    T_OK(varve_checkpoint_for(h, 1, CK_LIMIT_MS));
    T_OK(varve_flush(h, CK_LIMIT_MS));
    T_OK(vv_engine_warm_start(e));
    T_OK(vvi_rehearsal_open(ctx, &r));
    vv_engine_get_stats(e, &before);
    for (int i = 0; i < TIMES; i++) {
        vv_engine_warm(e, (enum vv_engine_warmth)(i % VV_ENGINE_WARMTHS));
        vvi_rehearse(r);
    }
    vv_engine_get_stats(e, &after);
    T_EQ(after.puts, before.puts);
    T_EQ(after.gets, before.gets);
    T_EQ(after.objects, before.objects);
    T_EQ(after.tier_used_pages[0], before.tier_used_pages[0]);

    T_EQ(ctx->calls, 0u);
    T_EQ(h->calls, 0u);

    /* They did take place, and left nothing behind. */
    struct vv_engine *own = vvi_rehearsal_engine(r);
    vv_engine_get_stats(own, &after);
    T_EQ(after.puts, (uint64_t)TIMES);
    T_EQ(after.gets, after.puts);
    T_EQ(after.hits, after.gets);
    T_EQ(after.objects, 0u);
    T_EQ(after.tier_used_pages[0], 0u);
    T_EQ(after.inflight_orders, 0u);
    T_EQ(own->inflight, 0u);
    T_CHECK(vv_core_check(own->core) == NULL);

    /* Nothing of them is recorded; what the thread does next is. */
    before = after;
    vv_trace_start(0);
    vvi_rehearse(r);
    vv_trace(VV_TRACE_DISTANCE, 77, 0, 0, 0);
    vv_trace_stop();
    T_OK(vv_trace_snapshot(&log));
    T_EQ(log.count, 1u);
    T_EQ(log.records[0].kind, VV_TRACE_DISTANCE);
    vv_trace_log_fini(&log);
    vv_engine_get_stats(own, &after);
    T_EQ(after.puts, before.puts + 1);
    vvi_rehearsal_close(r);

    T_OK(varve_restore_for(h, 1, CK_LIMIT_MS));
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
}

int main(void)
{
    T_RUN(test_rehearsing);
    return t_done();
}
