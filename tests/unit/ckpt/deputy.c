/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which calls the deputy of a context makes: those on device memory alone, and none that names the
 * default stream of the calling thread, which would be another one in the deputy. Whoever makes a
 * call, bytes and errors are the same.
 */
#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ckpt/ckpt_private.h"
#include "ckpt/rehearse.h"
#include "core/clock.h"
#include "core/deputy.h"
#include "t.h"
#include "trace/trace.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, BYTES = 8 * PAGE };

static struct varve_ctx *open_with(const char *deputy)
{
    struct ck_cfg cfg = {.device = true, .device_cache = 64 * BYTES, .host_cache = 64 * BYTES};
    struct varve_opts opts;
    struct varve_ctx *ctx;
    ck_opts(&cfg, &opts);
    T_OK(varve_opts_set(&opts, "deputy", deputy));
    T_OK(varve_open(&opts, &ctx));
    return ctx;
}

/* Writes the version over and over until the deputy was the one, or two minutes have gone by. */
static bool deputy_works(struct varve_ctx *ctx, struct varve_history *h)
{
    uint64_t limit_ns = vv_now_ns() + 120 * VV_NS_PER_S, before = vv_deputy_calls(ctx->deputy);
    while (vv_deputy_calls(ctx->deputy) == before && vv_now_ns() < limit_ns) {
        T_OK(varve_checkpoint_for(h, 1, CK_LIMIT_MS));
        T_OK(varve_discard(h, 1));
    }
    return vv_deputy_calls(ctx->deputy) > before;
}

static void fill(struct varve_ctx *ctx, char *device, char with)
{
    char buf[BYTES];
    memset(buf, with, sizeof(buf));
    T_OK(varve_device_copy(ctx, device, buf, sizeof(buf)));
}

/* It is awake when the context is opened, and rehearses calls before there are any. */
static void test_rehearses(void)
{
    struct varve_ctx *ctx = open_with("on");
    uint64_t limit_ns = vv_now_ns() + 120 * VV_NS_PER_S;
    struct vv_core_stats stats = {0};
    struct varve_stats seen = {.stats_size = sizeof(seen)};
    while (stats.gets == 0 && vv_now_ns() < limit_ns)
        vv_engine_get_stats(vvi_rehearsal_engine(ctx->rehearsal), &stats);
    T_CHECK(stats.gets > 0);
    T_OK(varve_stats(ctx, &seen));
    T_EQ(seen.checkpoint_bytes, 0u);
    T_EQ(seen.restore_bytes, 0u);
    T_OK(varve_close(ctx));
}

static void test_same_bytes_and_errors(void)
{
    struct varve_ctx *ctx = open_with("on");
    struct varve_history *h = ck_history(ctx, "h");
    char *buf = ck_alloc(ctx, true, BYTES), back[BYTES];
    T_OK(varve_protect(h, 0, buf, BYTES));
    T_CHECK(deputy_works(ctx, h));
    for (uint64_t v = 10; v < 40; v++) {
        fill(ctx, buf, (char)v);
        T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
    }
    T_ERR(varve_checkpoint_for(h, 10, CK_LIMIT_MS), -EEXIST);
    struct varve_error e = {.error_size = sizeof(e)};
    T_OK(varve_last_error(ctx, &e));
    T_EQ(e.version, 10u);
    T_STREQ(e.operation, "checkpoint");
    T_ERR(varve_restore_for(h, 99, CK_LIMIT_MS), -ENOENT);
    for (uint64_t v = 39; v >= 10; v--) {
        T_OK(varve_restore_for(h, v, CK_LIMIT_MS));
        T_OK(varve_device_copy(ctx, back, buf, BYTES));
        T_EQ(back[0], (char)v);
        T_CHECK(memcmp(back, back + 1, BYTES - 1) == 0);
    }
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
}

static void test_not_for_all(void)
{
    struct varve_ctx *ctx = open_with("on");
    struct varve_history *h = ck_history(ctx, "h");
    char *buf = ck_alloc(ctx, true, BYTES), host[PAGE] = "";
    T_OK(varve_protect(h, 0, buf, BYTES));
    T_CHECK(deputy_works(ctx, h));

    uint64_t before = vv_deputy_calls(ctx->deputy);
    struct CUstream_st *of_thread = (struct CUstream_st *)(uintptr_t)2;
    for (uint64_t v = 10; v < 30; v++)
        T_CHECK(varve_checkpoint_on_for(h, v, of_thread, CK_LIMIT_MS) <= 0);
    T_OK(varve_protect(h, 1, host, sizeof(host)));
    for (uint64_t v = 30; v < 50; v++)
        T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
    T_EQ(vv_deputy_calls(ctx->deputy), before);

    T_OK(varve_unprotect(h, 1));
    T_CHECK(deputy_works(ctx, h));
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
}

/* A trace has all of a call under the thread that waited for it. */
static void test_traced_by_the_caller(void)
{
    struct varve_ctx *ctx = open_with("on");
    struct varve_history *h = ck_history(ctx, "h");
    char *buf = ck_alloc(ctx, true, BYTES);
    uint64_t limit_ns = vv_now_ns() + 3 * VV_NS_PER_S, before;
    struct vv_trace_log log;
    size_t distances = 0;
    T_OK(varve_protect(h, 0, buf, BYTES));
    T_OK(varve_checkpoint_for(h, 1, CK_LIMIT_MS));
    vv_trace_start(0);
    do {
        before = vv_deputy_calls(ctx->deputy);
        T_OK(varve_restore_for(h, 1, CK_LIMIT_MS));
    } while (vv_deputy_calls(ctx->deputy) == before && vv_now_ns() < limit_ns);
    if (vv_deputy_calls(ctx->deputy) == before)
        t_note("the deputy was not run in time to make a call");
    vv_trace_stop();
    T_OK(vv_trace_snapshot(&log));
    for (size_t i = 0; i < log.count; i++)
        if (log.records[i].kind == VV_TRACE_DISTANCE) {
            T_EQ(log.records[i].thread, (uint32_t)gettid());
            distances++;
        }
    T_CHECK(distances > 0);
    vv_trace_log_fini(&log);
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
}

/* A child of fork has no deputy, whatever it finds in memory, and no context. */
static void test_refused_in_a_child(void)
{
    struct varve_ctx *ctx = open_with("on");
    struct varve_history *h = ck_history(ctx, "h");
    char *buf = ck_alloc(ctx, true, BYTES);
    T_OK(varve_protect(h, 0, buf, BYTES));
    T_CHECK(deputy_works(ctx, h));
    for (int traced = 0; traced < 2; traced++) {
        if (traced)
            vv_trace_start(0);
        pid_t child = fork();
        if (child == 0)
            _exit(varve_checkpoint_for(h, 7, CK_LIMIT_MS) == -EPERM &&
                          varve_restore_for(h, 7, CK_LIMIT_MS) == -EPERM
                      ? 0
                      : 1);
        int status = -1;
        T_EQ(waitpid(child, &status, 0), child);
        T_EQ(status, 0);
    }
    vv_trace_stop();
    T_ERR(varve_checkpoint_for(NULL, 7, CK_LIMIT_MS), -EINVAL);
    T_ERR(varve_restore_for(NULL, 7, CK_LIMIT_MS), -EINVAL);
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
}

static void test_off(void)
{
    struct varve_ctx *ctx = open_with("off");
    T_CHECK(ctx->deputy == NULL);
    T_OK(varve_close(ctx));
}

int main(void)
{
    T_RUN(test_rehearses);
    T_RUN(test_same_bytes_and_errors);
    T_RUN(test_not_for_all);
    T_RUN(test_traced_by_the_caller);
    T_RUN(test_refused_in_a_child);
    T_RUN(test_off);
    return t_done();
}
