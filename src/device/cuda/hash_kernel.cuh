/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checksums of pages: one block of threads computes one span's. base/xxh3.h describes the parallel parts of the
 * algorithm: the threads add up the contribution of each KiB, as many KiB at a time as the table in shared memory
 * holds, and eight of them continue the chain from KiB to KiB. A page of 256 KiB is one such tile.
 *
 * Eight neighbouring threads read the 64 bytes of one stripe together, so that every sector from memory is used
 * whole.
 */
#ifndef VV_DEVICE_CUDA_HASH_CUH
#define VV_DEVICE_CUDA_HASH_CUH

#include "device/cuda/hash_kernel.h"

static_assert(sizeof(struct vvi_hash_params) <= 4096, "the limit of all drivers");

extern "C" __global__ void __launch_bounds__(VVI_HASH_THREADS)
    varve_hash(const __grid_constant__ struct vvi_hash_params t)
{
    __shared__ uint64_t sum[VVI_HASH_TILE][VV_XXH3_LANES];
    __shared__ uint64_t lanes[VV_XXH3_LANES];
    const unsigned char *p = (const unsigned char *)t.span[blockIdx.x].ptr;
    uint64_t n = t.span[blockIdx.x].bytes;
    uint64_t *out = (uint64_t *)t.sums + blockIdx.x;
    unsigned lane = threadIdx.x % VV_XXH3_LANES;

    if (n <= VV_XXH3_SHORT_MAX) {
        if (threadIdx.x == 0)
            *out = vv_xxh3_short(p, n);
        return;
    }
    uint64_t blocks = vv_xxh3_blocks(n), acc = vv_xxh3_start(lane);
    for (uint64_t first = 0; first < blocks; first += VVI_HASH_TILE) {
        unsigned in_tile =
            (unsigned)(blocks - first < VVI_HASH_TILE ? blocks - first : VVI_HASH_TILE);
        for (unsigned b = threadIdx.x / VV_XXH3_LANES; b < in_tile;
             b += VVI_HASH_THREADS / VV_XXH3_LANES)
            sum[b][lane] =
                vv_xxh3_stripes(p + (first + b) * VV_XXH3_BLOCK, VV_XXH3_BLOCK_STRIPES, lane);
        __syncthreads();
        if (threadIdx.x < VV_XXH3_LANES)
            for (unsigned b = 0; b < in_tile; b++)
                acc = vv_xxh3_scramble(acc + sum[b][lane], lane);
        __syncthreads();
    }
    if (threadIdx.x < VV_XXH3_LANES)
        lanes[lane] = acc + vv_xxh3_rest(p, n, lane);
    __syncthreads();
    if (threadIdx.x == 0)
        *out = vv_xxh3_finish(lanes, n);
}

#endif
