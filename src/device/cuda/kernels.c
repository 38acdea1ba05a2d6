/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading and launching our kernels.
 *
 * The fatbin is part of the binary if an nvcc built it. The gather kernel exists in four sizes that differ in the
 * number of segments in their parameter; the tables begin alike, so one table serves all, and the smallest kernel for
 * the number of segments is launched. Drivers before CUDA 12.1 have only the two small ones: then more segments take
 * more launches.
 *
 * Threads share only the loaded kernels, which do not change.
 */
#include "device/cuda/kernels.h"

#include <stdlib.h>

#include "base/pattern.h"
#include "base/util.h"
#include "device/cuda/gather.h"
#include "device/cuda/hash_kernel.h"

#define FILL_THREADS  256
#define BLOCKS_PER_SM 8

/* The first driver version with kernel parameters of more than 4 KiB. */
#define LARGE_PARAMETERS_SINCE 12010

enum { GATHERS = 4, GATHERS_ALWAYS = 2 };

struct vvi_cuda_kernels {
    CUmodule module;
    CUfunction fill, verify, spin, hash, copy;
    CUfunction gather[GATHERS]; /* NULL: the driver does not support this size */
    unsigned int blocks;        /* enough to keep the whole device busy */
};

static const struct {
    const char *name;
    uint32_t segs;
} gathers[GATHERS] = {
    {"varve_gather_few", VVI_GATHER_FEW},
    {"varve_gather_small", VVI_GATHER_SMALL},
    {"varve_gather_middle", VVI_GATHER_MIDDLE},
    {"varve_gather_large", VVI_GATHER_LARGE},
};

#ifdef VV_HAVE_KERNELS
extern const unsigned char vvi_cuda_fatbin[];
static const unsigned char *const fatbin = vvi_cuda_fatbin;
#else
static const unsigned char *const fatbin = NULL;
#endif

bool vvi_cuda_kernels_built(void)
{
    return fatbin != NULL;
}

static unsigned int find_all(const struct vvi_cuda_driver *driver, struct vvi_cuda_kernels *k)
{
    const struct {
        const char *name;
        CUfunction *function;
    } wanted[] = {
        {"varve_fill", &k->fill},         {"varve_verify", &k->verify},
        {"varve_spin", &k->spin},         {"varve_hash", &k->hash},
        {gathers[0].name, &k->gather[0]}, {gathers[1].name, &k->gather[1]},
        {"varve_copy", &k->copy},
    };
    unsigned int code = VVI_CU_SUCCESS;

    for (size_t i = 0; i < VV_ARRAY_SIZE(wanted) && code == VVI_CU_SUCCESS; i++)
        code = driver->cuModuleGetFunction(wanted[i].function, k->module, wanted[i].name);
    if (code != VVI_CU_SUCCESS || driver->version < LARGE_PARAMETERS_SINCE)
        return code;
    /* A toolkit that is too old leaves these out; small launches replace them. */
    for (size_t i = GATHERS_ALWAYS; i < GATHERS; i++)
        if (driver->cuModuleGetFunction(&k->gather[i], k->module, gathers[i].name) !=
            VVI_CU_SUCCESS)
            k->gather[i] = NULL;
    return VVI_CU_SUCCESS;
}

unsigned int vvi_cuda_kernels_load(const struct vvi_cuda_driver *driver, CUdevice device,
                                   struct vvi_cuda_kernels **ret_kernels)
{
    struct vvi_cuda_kernels *k;
    int processors = 0;
    unsigned int code;

    if (!vvi_cuda_kernels_built() || !driver->cuModuleLoadDataEx || !driver->cuModuleUnload ||
        !driver->cuModuleGetFunction || !driver->cuLaunchKernel)
        return VVI_CU_NOT_SUPPORTED;
    k = calloc(1, sizeof(*k));
    if (!k)
        return VVI_CU_OUT_OF_MEMORY;
    code = driver->cuDeviceGetAttribute(&processors, VVI_CU_DEVICE_MULTIPROCESSORS, device);
    k->blocks = BLOCKS_PER_SM * (unsigned int)VV_MAX(processors, 1);
    if (code == VVI_CU_SUCCESS)
        code = driver->cuModuleLoadDataEx(&k->module, fatbin, 0, NULL, NULL);
    if (code == VVI_CU_SUCCESS)
        code = find_all(driver, k);
    if (code == VVI_CU_SUCCESS)
        *ret_kernels = k;
    else
        vvi_cuda_kernels_unload(driver, k, true);
    return code;
}

void vvi_cuda_kernels_unload(const struct vvi_cuda_driver *driver, struct vvi_cuda_kernels *kernels,
                             bool alive)
{
    if (kernels && kernels->module && alive)
        (void)driver->cuModuleUnload(kernels->module);
    free(kernels);
}

static unsigned int launch(const struct vvi_cuda_driver *driver, CUfunction function,
                           unsigned int blocks, unsigned int threads, CUstream stream,
                           void **parameters)
{
    return driver->cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, parameters,
                                  NULL);
}

/* Number of blocks for so many 16-byte words; at least one, which handles the last bytes. */
static unsigned int blocks_for(const struct vvi_cuda_kernels *kernels, size_t bytes)
{
    uint64_t blocks = vv_div_up(bytes / 16, FILL_THREADS);

    return (unsigned int)VV_MIN(VV_MAX(blocks, UINT64_C(1)), (uint64_t)kernels->blocks);
}

_Static_assert((int)VVI_HASH_SPANS == (int)VV_KERNEL_SPANS, "both are the limit of one HASH");

static unsigned int launch_hash(const struct vvi_cuda_driver *driver,
                                const struct vvi_cuda_kernels *kernels, CUstream stream,
                                const struct vv_kernel *k)
{
    struct vvi_hash_params t = {.sums = (uintptr_t)k->sums, .n_spans = k->n_spans};

    if (k->n_spans == 0 || k->n_spans > VVI_HASH_SPANS || t.sums % 8)
        return VVI_CU_INVALID_VALUE;
    for (uint32_t i = 0; i < k->n_spans; i++) {
        t.span[i].ptr = (uintptr_t)k->spans[i].ptr;
        t.span[i].bytes = k->spans[i].bytes;
        if (t.span[i].ptr % 8)
            return VVI_CU_INVALID_VALUE;
    }
    return launch(driver, kernels->hash, k->n_spans, VVI_HASH_THREADS, stream, (void *[]){&t});
}

unsigned int vvi_cuda_kernels_launch(const struct vvi_cuda_driver *driver,
                                     const struct vvi_cuda_kernels *kernels, CUstream stream,
                                     const struct vv_kernel *k)
{
    CUdeviceptr ptr = (uintptr_t)k->ptr, bad = (uintptr_t)k->bad;
    uint64_t bytes = k->bytes, ns = k->ns;
    uint64_t first = vv_pattern_word(k->seed, k->version, k->offset / 8);

    if (!kernels)
        return VVI_CU_NOT_SUPPORTED;
    if (k->kind == VV_KERNEL_SPIN)
        return launch(driver, kernels->spin, 1, 1, stream, (void *[]){&ns});
    if (k->kind == VV_KERNEL_HASH)
        return launch_hash(driver, kernels, stream, k);
    if (ptr % 16 || k->offset % 8)
        return VVI_CU_INVALID_VALUE;
    if (k->kind == VV_KERNEL_FILL)
        return launch(driver, kernels->fill, blocks_for(kernels, k->bytes), FILL_THREADS, stream,
                      (void *[]){&ptr, &bytes, &first, &ns});
    if (k->kind == VV_KERNEL_VERIFY && bad && bad % 8 == 0)
        return launch(driver, kernels->verify, blocks_for(kernels, k->bytes), FILL_THREADS, stream,
                      (void *[]){&ptr, &bytes, &first, &bad, &ns});
    return VVI_CU_INVALID_VALUE;
}

unsigned int vvi_cuda_kernels_copy(const struct vvi_cuda_driver *driver,
                                   const struct vvi_cuda_kernels *kernels, CUstream stream,
                                   const struct vv_copy_seg *seg)
{
    CUdeviceptr dst = (uintptr_t)seg->dst, src = (uintptr_t)seg->src;
    uint64_t bytes = seg->bytes, blocks = bytes / 16 / VVI_COPY_THREADS + 1;

    if (!kernels)
        return VVI_CU_NOT_SUPPORTED;
    if (blocks > INT32_MAX)
        return VVI_CU_INVALID_VALUE;
    return launch(driver, kernels->copy, (unsigned int)blocks, VVI_COPY_THREADS, stream,
                  (void *[]){&dst, &src, &bytes});
}

static unsigned int launch_gather(const struct vvi_cuda_driver *driver,
                                  const struct vvi_cuda_kernels *kernels, CUstream stream,
                                  struct vvi_gather_head *head, size_t n_segs, uint32_t n_tiles)
{
    size_t i = 0;

    *head = (struct vvi_gather_head){
        .n_segs = (uint32_t)n_segs,
        .n_tiles = n_tiles,
        .segs_per_tile = vvi_gather_segs_per_tile((uint32_t)n_segs, n_tiles),
    };
    while (gathers[i].segs < n_segs || !kernels->gather[i])
        i++;
    return launch(driver, kernels->gather[i], n_tiles, VVI_GATHER_THREADS, stream,
                  (void *[]){head});
}

/* Any number of segments of any size. A function of its own: its stack frame of 32 KiB would move the driver's stack
 * to memory that is not in the cache. */
__attribute__((noinline)) static unsigned int
gather_many(const struct vvi_cuda_driver *driver, const struct vvi_cuda_kernels *kernels,
            CUstream stream, const struct vv_copy_seg *segs, size_t n_segs, bool *ret_begun)
{
    struct vvi_gather_large table;
    size_t most = VVI_GATHER_SMALL, n = 0;
    uint32_t tiles = 0;

    for (size_t i = GATHERS_ALWAYS; i < GATHERS; i++)
        if (kernels->gather[i])
            most = gathers[i].segs;
    for (size_t i = 0; i < n_segs; i++) {
        for (size_t at = 0, bytes; at < segs[i].bytes; at += bytes) {
            bytes = VV_MIN(segs[i].bytes - at, (size_t)VVI_GATHER_MAX_BYTES);
            if (n == most) {
                unsigned int code = launch_gather(driver, kernels, stream, &table.head, n, tiles);

                if (code != VVI_CU_SUCCESS)
                    return code;
                *ret_begun = true;
                n = tiles = 0;
            }
            tiles += (uint32_t)vv_div_up(bytes, VVI_GATHER_TILE);
            table.seg[n++] = (struct vvi_gather_seg){
                .dst = (uintptr_t)segs[i].dst + at,
                .src = (uintptr_t)segs[i].src + at,
                .bytes = (uint32_t)bytes,
                .end_tile = tiles,
            };
        }
    }
    return n ? launch_gather(driver, kernels, stream, &table.head, n, tiles) : VVI_CU_SUCCESS;
}

unsigned int vvi_cuda_kernels_gather(const struct vvi_cuda_driver *driver,
                                     const struct vvi_cuda_kernels *kernels, CUstream stream,
                                     const struct vv_copy_seg *segs, size_t n_segs, bool *ret_begun)
{
    struct vvi_gather_few table;
    uint32_t tiles = 0;

    *ret_begun = false;
    if (!kernels)
        return VVI_CU_NOT_SUPPORTED;
    if (n_segs > VVI_GATHER_FEW)
        return gather_many(driver, kernels, stream, segs, n_segs, ret_begun);
    for (size_t i = 0; i < n_segs; i++) {
        size_t bytes = segs[i].bytes;

        if (bytes > VVI_GATHER_MAX_BYTES)
            return gather_many(driver, kernels, stream, segs, n_segs, ret_begun);
        tiles += (uint32_t)((bytes + VVI_GATHER_TILE - 1) / VVI_GATHER_TILE);
        table.seg[i] = (struct vvi_gather_seg){
            .dst = (uintptr_t)segs[i].dst,
            .src = (uintptr_t)segs[i].src,
            .bytes = (uint32_t)bytes,
            .end_tile = tiles,
        };
    }
    return tiles ? launch_gather(driver, kernels, stream, &table.head, n_segs, tiles)
                 : VVI_CU_SUCCESS;
}
