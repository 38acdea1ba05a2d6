/* SPDX-License-Identifier: Apache-2.0 */
/* Items of work that each add up an element of three tables, on a device that has room for a quarter of
 * the tables. As C this runs on the emulated device; tables.cu makes it a program for a GPU, with the same
 * kernel. */
#ifndef __CUDACC__
#define VARVE_EMULATE 1
#endif
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

/* Arguments of a kernel. */
struct job {
    struct varve_tables_view view;
    double *sums; /* on the device */
};

/* ---- one thread of the kernel, on a GPU or on the CPU ---- */

VARVE_D_FN void add_up(const struct job *j)
{
    const struct varve_tables_view *v = &j->view;
    uint32_t begin = varve_d_block() * varve_d_threads() + varve_d_thread();

    for (uint32_t i = begin; i < v->items; i += varve_d_blocks() * varve_d_threads()) {
        uint32_t item = varve_tables_item(v, i);

        for (uint32_t k = 0; k < varve_tables_count(v, i); k++) {
            struct varve_table t = varve_tables_get(v, i, k);
            double x;

            if (varve_tables_f64(v, &t, item, &x)) /* beyond its end: an error of the run */
                j->sums[item] += x;
        }
    }
}

/* ---- the launch ---- */

#ifdef __CUDACC__

enum { DEVICE = VARVE_DEVICE_CUDA };

__global__ void kernel(struct job j)
{
    add_up(&j);
}

static int start(const struct job *j, struct CUstream_st *stream)
{
    kernel<<<4, 128, 0, stream>>>(*j);
    return cudaGetLastError() == cudaSuccess ? 0 : -EIO;
}

#else

enum { DEVICE = VARVE_DEVICE_HOST };

static void thread(void *arg)
{
    add_up((const struct job *)arg);
}

static void grid(void *arg)
{
    if (varve_emu_launch(4, 8, 2, 1, thread, arg) != 0) /* 4 blocks of 8 threads */
        abort();
    free(arg);
}

/* The next launch comes before this kernel has ended, so each kernel gets a copy of its arguments, like in CUDA. */
static int start(const struct job *j, struct CUstream_st *stream)
{
    struct job *own = (struct job *)malloc(sizeof(*own));
    int rc;

    if (!own)
        return -ENOMEM;
    *own = *j;
    rc = varve_emulate(ctx, grid, own, stream);
    if (rc)
        free(own);
    return rc;
}

#endif

/* Called for each batch of items. */
static int launch(void *arg, const struct varve_tables_view *view, uint32_t device,
                  struct CUstream_st *stream)
{
    struct job j;

    (void)device; /* there is only one */
    j.view = *view;
    j.sums = (double *)arg;
    return start(&j, stream);
}

/* ---- the host ---- */

static void must(int rc)
{
    if (rc == 0)
        return;
    fprintf(stderr, "tables: %s\n", varve_error(ctx));
    exit(1);
}

int main(void)
{
    static struct varve_tables_work work; /* 0 where nothing is set below */
    struct varve_tables_stats stats;
    struct varve_tables_opts options;
    struct varve_tables *tables;
    struct varve_opts opts;
    uint64_t total = 0;
    double *memory, *to;
    void *on_device;
    int wrong = 0;

    for (uint32_t t = 0; t < TABLES; t++) /* of different sizes */
        total += bytes[t] = (ITEMS + 100 * t) * sizeof(double);
    memory = to = (double *)malloc(total);
    must(memory ? 0 : -ENOMEM);
    for (uint32_t t = 0; t < TABLES; t++)
        for (uint64_t i = 0; i < bytes[t] / sizeof(double); i++)
            *to++ = element(t, i);
    for (uint32_t i = 0; i < ITEMS; i++) { /* neighbours have tables in common */
        first[i + 1] = first[i] + EACH;
        for (uint32_t k = 0; k < EACH; k++)
            uses[first[i] + k] = table_of(i, k);
    }
    must(varve_opts_init(&opts, sizeof(opts)));
    opts.device = DEVICE;
    opts.device_cache = opts.host_cache = 0; /* caches for histories: not needed here */
    must(varve_open(&opts, &ctx));
    must(varve_device_alloc(ctx, sizeof(sums), &on_device));
    must(varve_device_copy(ctx, on_device, sums, sizeof(sums))); /* zeros */
    must(varve_tables_opts_init(&options, sizeof(options)));
    options.tables = TABLES;
    options.bytes = bytes;
    options.memory = memory; /* one after another */
    options.cache_bytes = total / 4;
    options.batch_bytes = total / 16; /* 1/64 of such a small cache would be less than one table */
    must(varve_tables_open(ctx, &options, &tables));
    work.work_size = sizeof(work);
    work.items = ITEMS;
    work.first = first;
    work.uses = uses;
    work.launch = launch;
    work.arg = on_device;
    must(varve_tables_run(tables, &work));
    stats.stats_size = sizeof(stats);
    must(varve_tables_stats(tables, &stats));
    must(varve_device_copy(ctx, sums, on_device, sizeof(sums)));
    must(varve_tables_close(tables));
    must(varve_device_free(ctx, on_device));
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
