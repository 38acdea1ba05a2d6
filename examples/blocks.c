/* SPDX-License-Identifier: Apache-2.0 */
/* Points that drift through a field, on a device that has room for a quarter of it. The kernel compiles
 * as C and runs on the emulated device; for a GPU, make it a __global__ function and launch that. */
#define VARVE_EMULATE 1
#include <stdio.h>
#include <stdlib.h>
#include <varve/blocks.h>
#include <varve/blocks_device.h>
#include <varve/emulate.h>

enum { SIDE = 128, CELLS = SIDE * SIDE * SIDE, POINTS = 2000, STEPS = 30 };

static float field[CELLS], sums[POINTS]; /* of each point: what it has seen on its way */

static struct varve_ctx *ctx;

struct kernel {
    struct varve_blocks_view view;
    uint32_t step;
};

static void drift(void *arg)
{
    struct kernel *k = arg;
    uint32_t first = varve_d_block() * varve_d_threads() + varve_d_thread();

    for (uint32_t i = first; i < k->view.items; i += varve_d_blocks() * varve_d_threads()) {
        struct varve_blocks_cursor c = varve_blocks_cursor();
        uint32_t item = varve_blocks_item(&k->view, i);
        float cell;

        if (varve_blocks_f32(&k->view, &c, item * 7 % SIDE, item * 13 % SIDE, 4 * k->step, &cell))
            sums[item] += cell;
        else
            varve_blocks_again(&k->view, item); /* in the next round, when the block is there */
    }
}

static void grid(void *arg)
{
    if (varve_emu_launch(4, 8, 2, 1, drift, arg) != 0) /* 4 blocks of 8 threads */
        abort();
}

static int launch(void *arg, const struct varve_blocks_view *view, struct CUstream_st *stream)
{
    struct kernel *k = arg;

    k->view = *view;
    return varve_emulate(ctx, grid, k, stream); /* drift<<<4, 8, 0, stream>>>(*k) */
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
    fprintf(stderr, "blocks: %s\n", e.text);
    exit(1);
}

int main(void)
{
    struct varve_blocks_stats stats = {.stats_size = sizeof(stats)};
    struct varve_blocks_opts options;
    struct varve_blocks *blocks;
    struct varve_opts opts;
    struct kernel k = {0};
    uint64_t bytes;
    void *packed;
    int wrong = 0;

    for (uint32_t i = 0; i < CELLS; i++)
        field[i] = (float)(i % 1009);
    must(varve_opts_init(&opts, sizeof(opts)));
    opts.device = VARVE_DEVICE_HOST;         /* or VARVE_DEVICE_CUDA */
    opts.device_cache = opts.host_cache = 0; /* for histories */
    must(varve_open(&opts, &ctx));
    must(varve_blocks_opts_init(&options, sizeof(options)));
    options.cells[0] = options.cells[1] = options.cells[2] = SIDE;
    must(varve_blocks_bytes(&options, &bytes));
    packed = malloc(bytes);
    must(varve_blocks_pack(&options, field, packed)); /* block after block */
    options.memory = packed;
    options.cache_bytes = bytes / 4;
    must(varve_blocks_open(ctx, &options, &blocks));
    for (k.step = 0; k.step < STEPS; k.step++)
        must(varve_blocks_run(blocks, POINTS, launch, &k, NULL));
    must(varve_blocks_stats(blocks, &stats));
    must(varve_blocks_close(blocks));
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
