/* SPDX-License-Identifier: Apache-2.0 */
/* Items of work that each add up an element of three tables, on a device that has room for a quarter of
 * the tables. The kernel compiles as C and runs on the emulated device; for a GPU, make it a __global__
 * function and launch that. */
#define VARVE_EMULATE 1
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <varve/emulate.h>
#include <varve/tables.h>
#include <varve/tables_device.h>

enum { TABLES = 64, ITEMS = 1000, EACH = 3 };

static struct varve_ctx *ctx;
static uint64_t bytes[TABLES], first[ITEMS + 1];
static uint32_t uses[ITEMS * EACH];
static double sums[ITEMS];

static uint32_t table_of(uint32_t item, uint32_t k)
{
    return (item / 20 + 5 * k) % TABLES;
}

static double element(uint32_t table, uint64_t i)
{
    return 1000.0 * table + (double)i;
}

static void add_up(void *arg)
{
    const struct varve_tables_view *v = arg;
    uint32_t begin = varve_d_block() * varve_d_threads() + varve_d_thread();

    for (uint32_t i = begin; i < v->items; i += varve_d_blocks() * varve_d_threads()) {
        uint32_t item = varve_tables_item(v, i);

        for (uint32_t k = 0; k < varve_tables_count(v, i); k++) {
            struct varve_table t = varve_tables_get(v, i, k);
            double x;

            if (varve_tables_f64(v, &t, item, &x)) /* beyond its end: an error of the run */
                sums[item] += x;
        }
    }
}

static void grid(void *arg)
{
    if (varve_emu_launch(4, 8, 2, 1, add_up, arg) != 0) /* 4 blocks of 8 threads */
        abort();
    free(arg);
}

/* Called again before this kernel has ended: each has a view of its own. */
static int launch(void *arg, const struct varve_tables_view *view, uint32_t device,
                  struct CUstream_st *stream)
{
    struct varve_tables_view *own = malloc(sizeof(*own));
    int rc;

    (void)arg, (void)device;
    if (!own)
        return -ENOMEM;
    *own = *view;
    rc = varve_emulate(ctx, grid, own, stream); /* add_up<<<4, 8, 0, stream>>>(*view) */
    if (rc)
        free(own);
    return rc;
}

static void must(int rc)
{
    struct varve_error e = {.error_size = sizeof(e)};

    if (rc == 0)
        return;
    /* The context has the record, or, where a call has none or ends it, this thread. */
    if ((varve_last_error(ctx, &e) != 0 || e.err != rc) &&
        (varve_last_error(NULL, &e) != 0 || e.err != rc))
        snprintf(e.text, sizeof(e.text), "%s", varve_strerror(rc));
    fprintf(stderr, "tables: %s\n", e.text);
    exit(1);
}

int main(void)
{
    struct varve_tables_stats stats = {.stats_size = sizeof(stats)};
    struct varve_tables_work work = {.work_size = sizeof(work)};
    struct varve_tables_opts options;
    struct varve_tables *tables;
    struct varve_opts opts;
    uint64_t total = 0;
    double *memory, *to;
    int wrong = 0;

    for (uint32_t t = 0; t < TABLES; t++) /* of different sizes */
        total += bytes[t] = (ITEMS + 100 * t) * sizeof(double);
    memory = to = malloc(total);
    for (uint32_t t = 0; memory && t < TABLES; t++)
        for (uint64_t i = 0; i < bytes[t] / sizeof(double); i++)
            *to++ = element(t, i);
    for (uint32_t i = 0; i < ITEMS; i++) { /* neighbours have tables in common */
        first[i + 1] = first[i] + EACH;
        for (uint32_t k = 0; k < EACH; k++)
            uses[first[i] + k] = table_of(i, k);
    }
    must(varve_opts_init(&opts, sizeof(opts)));
    opts.device = VARVE_DEVICE_HOST;         /* or VARVE_DEVICE_CUDA */
    opts.device_cache = opts.host_cache = 0; /* for histories */
    must(varve_open(&opts, &ctx));
    must(varve_tables_opts_init(&options, sizeof(options)));
    options.tables = TABLES;
    options.bytes = bytes;
    options.memory = memory; /* one after another */
    options.cache_bytes = total / 4;
    options.batch_bytes = total / 16; /* of a cache this small, a 64th is not one table */
    must(varve_tables_open(ctx, &options, &tables));
    work.items = ITEMS;
    work.first = first;
    work.uses = uses;
    work.launch = launch;
    must(varve_tables_run(tables, &work));
    must(varve_tables_stats(tables, &stats));
    must(varve_tables_close(tables));
    must(varve_close(ctx));
    ctx = NULL;

    for (uint32_t i = 0; i < ITEMS; i++) {
        double sum = 0;

        for (uint32_t k = 0; k < EACH; k++)
            sum += element(table_of(i, k), i);
        wrong += sum != sums[i];
    }
    printf("%d launches, %d tables came, %d went, %d sums are wrong\n", (int)stats.launches,
           (int)stats.missed, (int)stats.evicted, wrong);
    free(memory);
    return wrong != 0;
}
