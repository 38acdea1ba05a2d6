/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks on a real GPU, with so few slots that items are left to read host memory. They do so wherever the driver
 * allows it to kernels, with memory pinned by any library; elsewhere the run ends with an error and the GPU still
 * works. Rare orders of events are tested in tests/unit/ooc.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
#include "ooc/ooc_hooks.h"
#include "t.h"
}
#include <varve/blocks.h>
#include <varve/blocks_device.h>

enum { SIDE = 64, EDGE = 16, ITEMS = 5000, CELLS = SIDE * SIDE * SIDE, BYTES = CELLS * 4 };

static struct varve_ctx *ctx;
static float *field, *packed;
static float *sums; /* managed */

#define CUDA(call)                                                                \
    do {                                                                          \
        cudaError_t rc_ = (call);                                                 \
        if (rc_ != cudaSuccess)                                                   \
            t_fail(__FILE__, __LINE__, "%s: %s", #call, cudaGetErrorString(rc_)); \
    } while (0)

__host__ __device__ static uint32_t place(uint32_t item, uint32_t axis)
{
    uint32_t h = (3 * item + axis) * 2654435761u;

    return (h >> 16) % (SIDE - EDGE);
}

/* An item reads the corners of a cube whose edge is a block's: eight blocks. */
__global__ static void gather(struct varve_blocks_view v, uint32_t beyond, float *ret_sums)
{
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < v.items;
         i += gridDim.x * blockDim.x) {
        struct varve_blocks_cursor c = varve_blocks_cursor();
        uint32_t item = varve_blocks_item(&v, i);
        uint64_t x = place(item, 0), y = place(item, 1), z = place(item, 2);
        float sum = 0, cell;
        int here = 1;

        for (uint32_t k = 0; k < 8; k++) {
            here &= varve_blocks_f32(&v, &c, x + (k & 1) * EDGE, y + (k >> 1 & 1) * EDGE,
                                     z + (k >> 2) * EDGE + (item == 0 ? beyond : 0), &cell);
            sum += cell;
        }
        if (here)
            ret_sums[item] = sum;
        else
            varve_blocks_again(&v, item);
    }
}

static int launch(void *arg, const struct varve_blocks_view *view, struct CUstream_st *stream)
{
    gather<<<32, 128, 0, stream>>>(*view, *(const uint32_t *)arg, sums);
    return cudaGetLastError() == cudaSuccess ? 0 : -EIO;
}

static void opts_for(struct varve_blocks_opts *o, const void *memory, uint32_t slots)
{
    T_OK(varve_blocks_opts_init(o, sizeof(*o)));
    for (int i = 0; i < 3; i++) {
        o->cells[i] = SIDE;
        o->edge[i] = EDGE;
    }
    o->cache_bytes = (uint64_t)slots * EDGE * EDGE * EDGE * 4;
    o->rounds = 3;
    o->memory = memory;
}

static void must_say(int err, const char *text)
{
    struct varve_error e = {};

    e.error_size = sizeof(e);
    T_OK(varve_last_error(ctx, &e));
    if (e.err != err || !strstr(e.text, text))
        t_fail(__FILE__, __LINE__, "error %d \"%s\", not %d \"%s\"", e.err, e.text, err, text);
}

/* Items that read host memory: some, or none where there is room. */
static void run(struct varve_blocks *b, bool from_host)
{
    struct varve_blocks_stats st = {};
    uint32_t beyond = 0;

    memset(sums, 0xff, ITEMS * sizeof(*sums));
    if (varve_blocks_run(b, ITEMS, launch, &beyond, NULL)) {
        struct varve_error e = {};

        e.error_size = sizeof(e);
        (void)!varve_last_error(ctx, &e);
        t_fail(__FILE__, __LINE__, "%s", e.text);
    }
    for (uint32_t i = 0; i < ITEMS; i++) {
        float sum = 0;

        for (uint32_t k = 0; k < 8; k++)
            sum +=
                field[((place(i, 2) + (k >> 2) * EDGE) * SIDE + place(i, 1) + (k >> 1 & 1) * EDGE) *
                          SIDE +
                      place(i, 0) + (k & 1) * EDGE];
        if (sums[i] != sum)
            t_fail(__FILE__, __LINE__, "item %u: %g, not %g", i, (double)sums[i], (double)sum);
    }
    st.stats_size = sizeof(st);
    T_OK(varve_blocks_stats(b, &st));
    T_CHECK((st.from_host > 0) == from_host);
}

static void run_on(const void *memory, uint32_t slots, bool from_host)
{
    struct varve_blocks_opts o;
    struct varve_blocks *b;

    for (int policy = VARVE_BLOCKS_CLOCK; policy <= (int)VV_BLOCKS_PAPER; policy++) {
        opts_for(&o, memory, slots);
        o.policy = policy;
        T_OK(vv_blocks_open(ctx, &o, &b));
        run(b, from_host);
        T_OK(varve_blocks_close(b));
    }
}

static void pinned_by_us(void)
{
    struct varve_blocks_opts o;
    struct varve_blocks *b[2];

    run_on(packed, 64, false);
    for (uint32_t slots = 2; slots <= 4; slots++)
        run_on(packed, slots, true);
    opts_for(&o, packed, 2);
    for (int i = 0; i < 2; i++)
        T_OK(varve_blocks_open(ctx, &o, &b[i]));
    T_OK(varve_blocks_close(b[0]));
    run(b[1], true);
    T_OK(varve_blocks_close(b[1]));
}

static void pinned_by_the_application(void)
{
    static const unsigned flags[] = {cudaHostRegisterDefault, cudaHostRegisterPortable,
                                     cudaHostRegisterMapped};
    char *p;

    for (int i = 0; i < 3; i++) {
        CUDA(cudaHostRegister(packed, BYTES, flags[i]));
        run_on(packed, 2, true);
        CUDA(cudaHostUnregister(packed));
    }
    /* Also from the middle of it. */
    CUDA(cudaHostAlloc((void **)&p, BYTES + 4096, cudaHostAllocDefault));
    memcpy(p + 4096, packed, BYTES);
    run_on(p + 4096, 2, true);
    CUDA(cudaFreeHost(p));
}

/* A GPU that read such cells would be lost. */
static void misaligned(void)
{
    struct varve_blocks_opts o;
    struct varve_blocks *b;
    char *p = (char *)malloc(BYTES + 16);
    uint32_t beyond = 0;

    memcpy(p + 2, packed, BYTES);
    opts_for(&o, p + 2, 2);
    T_OK(varve_blocks_open(ctx, &o, &b));
    T_ERR(varve_blocks_run(b, ITEMS, launch, &beyond, NULL), -EFBIG);
    must_say(-EFBIG, "cannot read the memory itself");
    T_OK(varve_blocks_close(b));
    run_on(p + 2, 64, false);
    free(p);
}

static void outside(void)
{
    struct varve_blocks_opts o;
    struct varve_blocks *b;
    uint32_t beyond = 1000;

    opts_for(&o, packed, 64);
    T_OK(varve_blocks_open(ctx, &o, &b));
    T_ERR(varve_blocks_run(b, ITEMS, launch, &beyond, NULL), -EINVAL);
    must_say(-EINVAL, "outside of the array's 64 x 64 x 64 (8 times");
    run(b, false);
    T_OK(varve_blocks_close(b));
}

int main(void)
{
    struct varve_blocks_opts o;
    struct varve_opts opts;
    int n = 0;

    if (cudaGetDeviceCount(&n) != cudaSuccess || n == 0)
        T_SKIP("no GPU");
    T_OK(varve_opts_init(&opts, sizeof(opts)));
    opts.device = VARVE_DEVICE_CUDA;
    opts.device_cache = opts.host_cache = 0;
    T_OK(varve_open(&opts, &ctx));
    CUDA(cudaMallocManaged(&sums, ITEMS * sizeof(*sums)));
    field = (float *)malloc(BYTES);
    packed = (float *)aligned_alloc(4096, BYTES);
    for (uint32_t i = 0; i < CELLS; i++)
        field[i] = (float)(i % 1009);
    opts_for(&o, NULL, 2);
    T_OK(varve_blocks_pack(&o, field, packed));
    T_RUN(pinned_by_us);
    T_RUN(pinned_by_the_application);
    T_RUN(misaligned);
    T_RUN(outside);
    T_OK(varve_close(ctx));
    CUDA(cudaFree(sums));
    free(field);
    free(packed);
    return t_done();
}
