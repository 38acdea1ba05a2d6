/* SPDX-License-Identifier: Apache-2.0 */
/* Points that drift through a field, on a device that has room for a quarter of it. As C this runs on the
 * emulated device; blocks.cu makes it a program for a GPU, with the same kernel. */
#ifndef __CUDACC__
#define VARVE_EMULATE 1
#endif
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <varve/blocks.h>
#include <varve/blocks_device.h>
#include <varve/emulate.h>

enum { SIDE = 128, CELLS = SIDE * SIDE * SIDE, POINTS = 2000, STEPS = 30 };

static float field[CELLS], sums[POINTS]; /* sums: of the values on the path of each point */

static struct varve_ctx *ctx;

/* Arguments of a kernel. */
struct job {
    struct varve_blocks_view view;
    uint32_t step;
    float *sums; /* on the device */
};

/* ---- one thread of the kernel, on a GPU or on the CPU ---- */

VARVE_D_FN void drift(const struct job *j)
{
    const struct varve_blocks_view *v = &j->view;
    uint32_t first = varve_d_block() * varve_d_threads() + varve_d_thread();

    for (uint32_t i = first; i < v->items; i += varve_d_blocks() * varve_d_threads()) {
        struct varve_blocks_cursor c = varve_blocks_cursor();
        uint32_t item = varve_blocks_item(v, i);
        float cell;

        if (varve_blocks_f32(v, &c, item * 7 % SIDE, item * 13 % SIDE, 4 * j->step, &cell))
            j->sums[item] += cell;
        else
            varve_blocks_again(v, item); /* repeat it in the next round, when the block is there */
    }
}

/* ---- the launch ---- */

#ifdef __CUDACC__

enum { DEVICE = VARVE_DEVICE_CUDA };

__global__ void kernel(struct job j)
{
    drift(&j);
}

static int start(struct job *j, struct CUstream_st *stream)
{
    kernel<<<POINTS / 128, 128, 0, stream>>>(*j);
    return cudaGetLastError() == cudaSuccess ? 0 : -EIO;
}

#else

enum { DEVICE = VARVE_DEVICE_HOST };

static void thread(void *arg)
{
    drift((const struct job *)arg);
}

static void grid(void *arg)
{
    if (varve_emu_launch(4, 8, 2, 1, thread, arg) != 0) /* 4 blocks of 8 threads */
        abort();
}

static int start(struct job *j, struct CUstream_st *stream)
{
    return varve_emulate(ctx, grid, j, stream);
}

#endif

/* Called for each round. */
static int launch(void *arg, const struct varve_blocks_view *view, struct CUstream_st *stream)
{
    struct job *j = (struct job *)arg;

    j->view = *view;
    return start(j, stream);
}

/* ---- the host ---- */

static void must(int rc)
{
    if (rc == 0)
        return;
    fprintf(stderr, "blocks: %s\n", varve_error(ctx));
    exit(1);
}

int main(void)
{
    struct varve_blocks_stats stats;
    struct varve_blocks_opts options;
    struct varve_blocks *blocks;
    struct varve_opts opts;
    uint64_t bytes;
    void *packed, *on_device;
    struct job j;
    int wrong = 0;

    for (uint32_t i = 0; i < CELLS; i++)
        field[i] = (float)(i % 1009);
    must(varve_opts_init(&opts, sizeof(opts)));
    opts.device = DEVICE;
    opts.device_cache = opts.host_cache = 0; /* caches for histories: not needed here */
    must(varve_open(&opts, &ctx));
    must(varve_device_alloc(ctx, sizeof(sums), &on_device));
    must(varve_device_copy(ctx, on_device, sums, sizeof(sums))); /* zeros */
    must(varve_blocks_opts_init(&options, sizeof(options)));
    options.cells[0] = options.cells[1] = options.cells[2] = SIDE;
    must(varve_blocks_bytes(&options, &bytes));
    packed = malloc(bytes);
    must(packed ? 0 : -ENOMEM);
    must(varve_blocks_pack(&options, field, packed)); /* block after block */
    options.memory = packed;
    options.cache_bytes = bytes / 4;
    must(varve_blocks_open(ctx, &options, &blocks));
    j.sums = (float *)on_device;
    for (j.step = 0; j.step < STEPS; j.step++)
        must(varve_blocks_run(blocks, POINTS, launch, &j, NULL));
    stats.stats_size = sizeof(stats);
    must(varve_blocks_stats(blocks, &stats));
    must(varve_device_copy(ctx, sums, on_device, sizeof(sums)));
    must(varve_blocks_close(blocks));
    must(varve_device_free(ctx, on_device));
    must(varve_close(ctx));

    for (uint32_t i = 0; i < POINTS; i++) {
        float sum = 0;

        for (uint32_t step = 0; step < STEPS; step++)
            sum += field[(4 * step * SIDE + i * 13 % SIDE) * SIDE + i * 7 % SIDE];
        wrong += sum != sums[i];
    }
    printf("%d blocks came, %d went, %d sums are wrong\n", (int)(stats.bytes / (32 * 32 * 32 * 4)),
           (int)stats.evicted, wrong);
    free(packed);
    return wrong != 0;
}
