/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our own kernels: writing and checking contents, keeping the device busy, and copying one or many
 * segments; checksums are in hash_kernel.cuh. kernels.c launches them by the names here; tests emulate them by the
 * same names.
 *
 * Invariants: no kernel needs another block to make progress, none writes outside of the ranges that it is given, and
 * each ends by itself within a second after its work is done.
 *
 * The two that copy are bound by memory. Each thread copies one word of 16 bytes, without keeping it in the caches:
 * the bytes are not read again. Small blocks that come and go keep more loads under way than large ones that loop.
 * The last words are copied first: the application's last writes, which are mostly at the end, are still in the
 * cache. Segments whose sides differ modulo 16 are copied in the widest words that fit both.
 */
#include <stdint.h>

#include "base/pattern.h"
#include "device/cuda/gather.h"
#include "device/cuda/hash_kernel.cuh"

#define SPIN_MAX_NS 1000000000ULL

/* CUDA 12.1 is the first to pass more than 4 KiB. */
#if __CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 1)
#define LARGE_PARAMETERS 1
#endif

static_assert(sizeof(struct vvi_gather_few) <= 2048, "half of the limit of all drivers");
static_assert(sizeof(struct vvi_gather_small) <= 4096, "the limit of all drivers");
static_assert(sizeof(struct vvi_gather_large) <= 32764, "the limit of newer drivers");

/* ---- time ---- */

__device__ static uint64_t global_ns()
{
    uint64_t ns;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

/* Waits until `ns` after `start`. Arithmetic alone: uses no memory bandwidth. */
__device__ static void stay(uint64_t start, uint64_t ns)
{
    if (ns > SPIN_MAX_NS)
        ns = SPIN_MAX_NS;
    while (global_ns() - start < ns)
        ;
}

extern "C" __global__ void varve_spin(uint64_t ns)
{
    stay(global_ns(), ns);
}

/* ---- contents ---- */

__device__ static uint64_t global_thread()
{
    return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ static uint64_t all_threads()
{
    return (uint64_t)gridDim.x * blockDim.x;
}

/* `first` is the pattern's word at p. Each thread writes two words at a time; one thread handles the last bytes, fewer
 * than 16. */
extern "C" __global__ void varve_fill(unsigned char *p, uint64_t bytes, uint64_t first, uint64_t ns)
{
    uint64_t start = global_ns();
    ulonglong2 *pairs = (ulonglong2 *)p;
    uint64_t n = bytes / 16;

    for (uint64_t i = global_thread(); i < n; i += all_threads()) {
        uint64_t w = first + 2 * i * VV_PATTERN_STEP;

        pairs[i] = make_ulonglong2(w, w + VV_PATTERN_STEP);
    }
    if (global_thread() == 0)
        for (uint64_t at = 16 * n; at < bytes; at++)
            p[at] = (unsigned char)(first + at / 8 * VV_PATTERN_STEP >> 8 * (at % 8));
    if (global_thread() == 0)
        stay(start, ns);
}

extern "C" __global__ void varve_verify(const unsigned char *p, uint64_t bytes, uint64_t first,
                                        unsigned long long *bad, uint64_t ns)
{
    uint64_t start = global_ns();
    const ulonglong2 *pairs = (const ulonglong2 *)p;
    uint64_t n = bytes / 16;
    unsigned long long wrong = 0;

    for (uint64_t i = global_thread(); i < n; i += all_threads()) {
        ulonglong2 v = __ldcs(&pairs[i]);
        uint64_t w = first + 2 * i * VV_PATTERN_STEP;

        wrong += vv_pattern_bytes_differing(v.x, w) +
                 vv_pattern_bytes_differing(v.y, w + VV_PATTERN_STEP);
    }
    if (global_thread() == 0)
        for (uint64_t at = 16 * n; at < bytes; at++)
            wrong += p[at] != (unsigned char)(first + at / 8 * VV_PATTERN_STEP >> 8 * (at % 8));
    if (wrong)
        atomicAdd(bad, wrong);
    if (global_thread() == 0)
        stay(start, ns);
}

/* ---- one segment ---- */

/* Both sides at multiples of 16. There are blocks for all words of 16 bytes and one more, whose thread copies the bytes
 * behind the last of them. */
extern "C" __global__ void __launch_bounds__(VVI_COPY_THREADS)
    varve_copy(unsigned char *dst, const unsigned char *src, uint64_t bytes)
{
    uint64_t i = (uint64_t)(gridDim.x - 1 - blockIdx.x) * VVI_COPY_THREADS + threadIdx.x;
    uint64_t n = bytes / 16;

    if (i < n)
        __stcs((uint4 *)dst + i, __ldcs((const uint4 *)src + i));
    else if (i == n)
        for (uint64_t at = 16 * n; at < bytes; at++)
            dst[at] = src[at];
}

/* ---- many segments ---- */

/* Both sides start at a multiple of sizeof(T); bytes is any number. All threads of the block. */
template <typename T>
__device__ static void copy_words(unsigned char *dst, const unsigned char *src, uint32_t bytes)
{
    const T *from = (const T *)src;
    T *to = (T *)dst;
    uint32_t n = bytes / sizeof(T);
    uint32_t i = threadIdx.x;

    for (; i < n; i += VVI_GATHER_THREADS)
        __stcs(&to[i], __ldcs(&from[i]));
    i = n * (uint32_t)sizeof(T) + threadIdx.x;
    if (i < bytes)
        dst[i] = src[i];
}

/* As copy_words, from any address, if both sides are equal modulo sizeof(T). */
template <typename T>
__device__ static void copy_alike(unsigned char *dst, const unsigned char *src, uint32_t bytes)
{
    uint32_t head = (uint32_t)(-(uint64_t)dst % sizeof(T));

    if (head > bytes)
        head = bytes;
    if (threadIdx.x < head)
        dst[threadIdx.x] = src[threadIdx.x];
    copy_words<T>(dst + head, src + head, bytes - head);
}

__device__ static void copy_tile(unsigned char *dst, const unsigned char *src, uint32_t bytes)
{
    uint64_t unlike = (uint64_t)dst ^ (uint64_t)src;

    if (unlike % 16 == 0)
        copy_alike<uint4>(dst, src, bytes);
    else if (unlike % 8 == 0)
        copy_alike<uint2>(dst, src, bytes);
    else if (unlike % 4 == 0)
        copy_alike<unsigned>(dst, src, bytes);
    else
        copy_alike<unsigned char>(dst, src, bytes);
}

template <typename Table> __device__ static void gather(const Table &t)
{
    uint32_t tile = t.head.n_tiles - 1 - blockIdx.x;
    uint32_t first, i = vvi_gather_find(&t.head, t.seg, tile, &first);
    uint32_t offset = (tile - first) * VVI_GATHER_TILE;
    uint32_t bytes = min(t.seg[i].bytes - offset, (uint32_t)VVI_GATHER_TILE);
    unsigned char *dst = (unsigned char *)t.seg[i].dst + offset;
    const unsigned char *src = (const unsigned char *)t.seg[i].src + offset;

    if (bytes == VVI_GATHER_TILE && ((uint64_t)dst | (uint64_t)src) % 16 == 0)
        __stcs((uint4 *)dst + threadIdx.x, __ldcs((const uint4 *)src + threadIdx.x));
    else
        copy_tile(dst, src, bytes);
}

extern "C" __global__ void __launch_bounds__(VVI_GATHER_THREADS)
    varve_gather_few(const __grid_constant__ struct vvi_gather_few t)
{
    gather(t);
}

extern "C" __global__ void __launch_bounds__(VVI_GATHER_THREADS)
    varve_gather_small(const __grid_constant__ struct vvi_gather_small t)
{
    gather(t);
}

#ifdef LARGE_PARAMETERS
extern "C" __global__ void __launch_bounds__(VVI_GATHER_THREADS)
    varve_gather_middle(const __grid_constant__ struct vvi_gather_middle t)
{
    gather(t);
}

extern "C" __global__ void __launch_bounds__(VVI_GATHER_THREADS)
    varve_gather_large(const __grid_constant__ struct vvi_gather_large t)
{
    gather(t);
}
#endif
