/* SPDX-License-Identifier: Apache-2.0 */
/* The library's threads: their number, their processors, and their figures. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include <varve/ckpt.h>

#include "base/clock.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { LIST = 64 };

static int last_cpu(void)
{
    cpu_set_t mine;
    int last = 0;
    T_EQ(sched_getaffinity(0, sizeof(mine), &mine), 0);
    for (int i = 0; i < CPU_SETSIZE; i++)
        last = CPU_ISSET(i, &mine) ? i : last;
    return last;
}

static struct varve_ctx *open_with(const char *helpers, const char *cores, const char *nice)
{
    struct ck_cfg cfg = {
        .host_cache = 32 << 20, .local = t_tmpdir(), .local_cache = 64 << 20, .page_bytes = 65536};
    struct varve_opts opts;
    struct varve_ctx *ctx = NULL;
    ck_opts(&cfg, &opts);
    T_OK(varve_opts_set(&opts, "helpers", helpers));
    T_OK(varve_opts_set(&opts, "helper_cores", cores));
    T_OK(varve_opts_set(&opts, "helper_nice", nice));
    T_OK(varve_open(&opts, &ctx));
    return ctx;
}

static struct varve_stats stats_of(struct varve_ctx *ctx)
{
    struct varve_stats s = {.stats_size = sizeof(s)};
    T_OK(varve_stats(ctx, &s));
    return s;
}

static unsigned named(struct varve_ctx *ctx, const char *name)
{
    struct varve_helper list[LIST];
    size_t n = 0;
    unsigned found = 0;
    T_OK(varve_helpers(ctx, list, LIST, &n));
    T_CHECK(n <= LIST);
    for (size_t i = 0; i < n; i++)
        found += strcmp(list[i].name, name) == 0;
    return found;
}

/* A thread is on the list when it has begun to run, which on a busy machine may be some time after it
 * was started. */
static void await(struct varve_ctx *ctx, const char *name, unsigned n)
{
    uint64_t limit_ns = vv_now_ns() + CK_LIMIT_MS * VV_NS_PER_MS;
    while (named(ctx, name) < n && vv_now_ns() < limit_ns)
        vv_sleep_until_ns(vv_now_ns() + VV_NS_PER_MS);
    T_EQ(named(ctx, name), n);
}

/* All of them run on the configured processors, also those that are started later. */
static void bound(void)
{
    char cores[16];
    struct varve_helper list[LIST];
    size_t n = 0, bytes = 8 << 20;
    snprintf(cores, sizeof(cores), "%d", last_cpu());
    struct varve_ctx *ctx = open_with("3", cores, "5");
    struct varve_history *h = ck_history(ctx, "h");
    char *buf = ck_alloc(ctx, false, bytes);
    T_OK(varve_protect(h, 0, buf, bytes));
    for (uint64_t v = 0; v < 6; v++) {
        ck_fill(buf, bytes, v, 0);
        T_OK(varve_checkpoint(h, v));
    }
    T_OK(varve_flush(h, CK_LIMIT_MS));
    await(ctx, "copy", 3);
    await(ctx, "h2f", 1);
    await(ctx, "f2h", 1);
    struct varve_stats s;
    size_t after;
    do { /* none of them began or ended meanwhile */
        T_OK(varve_helpers(ctx, list, LIST, &n));
        s = stats_of(ctx);
        T_OK(varve_helpers(ctx, NULL, 0, &after));
    } while (n != after);
    for (size_t i = 0; i < n; i++) {
        T_EQ(list[i].cpu, last_cpu());
        T_EQ(list[i].nice, 5);
    }
    T_CHECK(s.helper_threads == n && s.helper_cores == 1 && s.helper_cpu_ns > 0);
    for (uint64_t v = 0; v < 6; v++) {
        T_OK(varve_restore(h, v));
        ck_check(buf, bytes, v, 0);
    }
    ck_free(ctx, false, buf);
    T_OK(varve_close(ctx));
}

static void alone(void)
{
    size_t n = 0, bytes = 8 << 20;
    struct varve_ctx *ctx = open_with("0", "any", "0");
    struct varve_history *h = ck_history(ctx, "h");
    char *buf = ck_alloc(ctx, false, bytes);
    T_OK(varve_protect(h, 0, buf, bytes));
    ck_fill(buf, bytes, 1, 0);
    T_OK(varve_checkpoint(h, 1));
    T_EQ(named(ctx, "copy"), 0);
    T_EQ(stats_of(ctx).helper_cores, 0);
    await(ctx, "h2f", 1);
    T_OK(varve_helpers(ctx, NULL, 0, &n));
    T_CHECK(n > 0);
    T_ERR(varve_helpers(ctx, NULL, 1, &n), -EINVAL);
    T_ERR(varve_helpers(ctx, NULL, 0, NULL), -EINVAL);
    T_ERR(varve_helpers(NULL, NULL, 0, &n), -EINVAL);
    ck_free(ctx, false, buf);
    T_OK(varve_close(ctx));
}

static void refused(void)
{
    static const char *const bad[][3] = {{"-2", "any", "0"},       {"300", "any", "0"},
                                         {"1", "everywhere", "0"}, {"1", "1023", "0"},
                                         {"1", "any", "20"},       {"1", "any", "-21"}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct ck_cfg cfg = {.host_cache = 1 << 20};
        struct varve_opts opts;
        struct varve_ctx *ctx = NULL;
        ck_opts(&cfg, &opts);
        T_OK(varve_opts_set(&opts, "helpers", bad[i][0]));
        T_OK(varve_opts_set(&opts, "helper_cores", bad[i][1]));
        T_OK(varve_opts_set(&opts, "helper_nice", bad[i][2]));
        T_ERR(varve_open(&opts, &ctx), -EINVAL);
        ck_error(NULL, -EINVAL, "helper");
    }
}

int main(void)
{
    T_RUN(bound);
    T_RUN(alone);
    T_RUN(refused);
    return t_done();
}
