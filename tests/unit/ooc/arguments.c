/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of arguments have a text, also without a context: then it is in the thread's record. The error of a cache
 * that does not fit the device includes the device's memory. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <varve/blocks.h>
#include <varve/emulate.h>
#include <varve/tables.h>

#include "ooc/ooc_hooks.h"
#include "t.h"

static struct varve_ctx *ctx;

static void open_context(void)
{
    struct varve_opts o;

    T_OK(varve_opts_init(&o, sizeof(o)));
    o.device = VARVE_DEVICE_HOST;
    o.device_cache = o.host_cache = 0;
    T_OK(varve_open(&o, &ctx));
}

/* The last record, of a context or of this thread, is of this call and contains these words. */
static void fails_with(struct varve_ctx *where, int rc, int want, const char *operation,
                       const char *words)
{
    struct varve_error e = {.error_size = sizeof(e)};

    T_ERR(rc, want);
    T_OK(varve_last_error(where, &e));
    T_EQ(e.err, want);
    T_STREQ(e.operation, operation);
    if (!strstr(e.text, words))
        t_fail(__FILE__, __LINE__, "%s: '%s' does not contain '%s'", operation, e.text, words);
}

#define FAILS(call, operation, words) fails_with(NULL, call, -EINVAL, operation, words)

static int launch_blocks(void *arg, const struct varve_blocks_view *view,
                         struct CUstream_st *stream)
{
    (void)arg, (void)view, (void)stream;
    return -EIO;
}

static void blocks(void)
{
    struct varve_blocks_opts o, absurd;
    struct varve_blocks *b = NULL;
    struct varve_blocks_stats stats = {.stats_size = sizeof(stats)};
    uint64_t bytes = 0;
    char cells[4096] = {0};

    FAILS(varve_blocks_opts_init(NULL, sizeof(o)), "blocks_opts_init", "opts is NULL");
    FAILS(varve_blocks_opts_init(&o, 1), "blocks_opts_init", "opts_size is absurd");
    T_OK(varve_blocks_opts_init(&o, sizeof(o)));
    o.cells[0] = 1024;
    o.edge[0] = 64;
    absurd = o;
    absurd.opts_size = 1;
    FAILS(varve_blocks_bytes(NULL, &bytes), "blocks_bytes", "opts is NULL");
    FAILS(varve_blocks_bytes(&absurd, &bytes), "blocks_bytes", "opts_size is absurd");
    FAILS(varve_blocks_bytes(&o, NULL), "blocks_bytes", "ret_bytes is NULL");
    FAILS(varve_blocks_pack(NULL, cells, cells), "blocks_pack", "opts is NULL");
    FAILS(varve_blocks_pack(&o, NULL, cells), "blocks_pack", "array is NULL");
    FAILS(varve_blocks_pack(&o, cells, NULL), "blocks_pack", "ret_packed is NULL");
    FAILS(varve_blocks_open(NULL, &o, &b), "blocks_open", "ctx is NULL");
    FAILS(varve_blocks_open(ctx, &o, NULL), "blocks_open", "ret_blocks is NULL");
    fails_with(ctx, varve_blocks_open(ctx, NULL, &b), -EINVAL, "blocks_open", "opts is NULL");
    T_CHECK(!b);
    FAILS(varve_blocks_run(NULL, 1, launch_blocks, NULL, NULL), "blocks_run", "blocks is NULL");
    FAILS(varve_blocks_stats(NULL, &stats), "blocks_stats", "blocks is NULL");
    o.memory = cells;
    o.cache_bytes = 4096;
    o.policy = VV_BLOCKS_PAPER;
    fails_with(ctx, varve_blocks_open(ctx, &o, &b), -EINVAL, "blocks_open",
               "policy is VARVE_BLOCKS_CLOCK");
    o.policy = VARVE_BLOCKS_CLOCK;
    T_OK(varve_blocks_open(ctx, &o, &b));
    FAILS(varve_blocks_stats(b, NULL), "blocks_stats", "ret_stats is NULL");
    stats.stats_size = 0;
    FAILS(varve_blocks_stats(b, &stats), "blocks_stats", "stats_size");
    T_OK(varve_blocks_close(b));
}

static void tables(void)
{
    struct varve_tables_speeds speeds = {.speeds_size = sizeof(speeds)};
    struct varve_tables_stats stats = {.stats_size = sizeof(stats)};
    struct varve_tables_work work = {.work_size = sizeof(work)};
    struct varve_tables_opts o;
    struct varve_tables *t = NULL;
    uint64_t each = 4096, bytes = 0;
    char memory[4096] = {0};

    FAILS(varve_tables_opts_init(NULL, sizeof(o)), "tables_opts_init", "opts is NULL");
    T_OK(varve_tables_opts_init(&o, sizeof(o)));
    o.tables = 1;
    o.bytes = &each;
    o.memory = memory;
    o.cache_bytes = 1 << 20;
    FAILS(varve_tables_open(NULL, &o, &t), "tables_open", "ctx is NULL");
    FAILS(varve_tables_open(ctx, &o, NULL), "tables_open", "ret_tables is NULL");
    fails_with(ctx, varve_tables_open(ctx, NULL, &t), -EINVAL, "tables_open", "opts is NULL");
    T_CHECK(!t);
    FAILS(varve_tables_run(NULL, &work), "tables_run", "tables is NULL");
    FAILS(varve_tables_stats(NULL, &stats), "tables_stats", "tables is NULL");
    FAILS(varve_tables_plan(NULL, &work, &speeds, &stats), "tables_plan", "opts is NULL");
    FAILS(varve_tables_plan(&o, NULL, &speeds, &stats), "tables_plan", "work is NULL");
    FAILS(varve_tables_plan(&o, &work, NULL, &stats), "tables_plan", "speeds is NULL");
    FAILS(varve_tables_plan(&o, &work, &speeds, NULL), "tables_plan", "ret_stats is NULL");
    FAILS(varve_tables_least(&o, &work, NULL), "tables_least", "ret_bytes is NULL");
    FAILS(varve_tables_least(NULL, &work, &bytes), "tables_least", "opts is NULL");
    speeds.link_bytes = -1;
    FAILS(varve_tables_plan(&o, &work, &speeds, &stats), "tables_plan", "0 or more");
    T_OK(varve_tables_open(ctx, &o, &t));
    fails_with(ctx, varve_tables_run(t, NULL), -EINVAL, "tables_run", "work is NULL");
    FAILS(varve_tables_stats(t, NULL), "tables_stats", "ret_stats is NULL");
    T_OK(varve_tables_close(t));
}

static void emulate(void)
{
    FAILS(varve_emulate(NULL, NULL, NULL, NULL), "emulate", "ctx is NULL");
    FAILS(varve_emulate(ctx, NULL, NULL, NULL), "emulate", "kernel is NULL");
}

/* A cache larger than any device here; its memory is never touched. */
static void larger_than_the_device(void)
{
    struct varve_tables_opts to;
    struct varve_blocks_opts bo;
    struct varve_tables *t = NULL;
    struct varve_blocks *b = NULL;
    uint64_t each = 4096;
    char memory[4096] = {0};

    T_OK(varve_tables_opts_init(&to, sizeof(to)));
    to.tables = 1;
    to.bytes = &each;
    to.memory = memory;
    to.cache_bytes = UINT64_C(1) << 46;
    fails_with(ctx, varve_tables_open(ctx, &to, &t), -ENOMEM, "tables_open",
               "a cache of 70368744177664 bytes: ");
    fails_with(ctx, varve_tables_open(ctx, &to, &t), -ENOMEM, "tables_open", "; the device has ");
    T_OK(varve_blocks_opts_init(&bo, sizeof(bo)));
    bo.cells[0] = UINT64_C(1) << 44;
    bo.edge[0] = 1 << 24;
    bo.memory = memory; /* not read before there is a cache */
    bo.cache_bytes = UINT64_C(1) << 46;
    fails_with(ctx, varve_blocks_open(ctx, &bo, &b), -ENOMEM, "blocks_open", "; the device has ");
}

int main(void)
{
    open_context();
    T_RUN(blocks);
    T_RUN(tables);
    T_RUN(emulate);
    T_RUN(larger_than_the_device);
    T_OK(varve_close(ctx));
    return t_done();
}
