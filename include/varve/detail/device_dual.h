/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device code for two targets: one source that runs on a GPU and, for tests, in threads.
 *
 * Code that includes this header and uses only the functions below compiles as CUDA device code and, with
 * VARVE_EMULATE defined, as C. In C every thread of a block is a thread of the process, a block has a real
 * barrier and memory of its own, and atomics are the processor's, so that sanitizers check a protocol
 * without a GPU. With neither nvcc nor VARVE_EMULATE the header declares nothing.
 *
 * Warps. A warp has VARVE_D_WARP threads: 32 on a GPU, 2 in the emulation, which is enough to show a race
 * between lanes. All threads of a warp call functions named _warp at once, all threads of a block those
 * named _block.
 *
 * Memory. _dev is for memory that only this device uses, _sys for memory that the processor reads or
 * writes too. Words in host memory have one writer each: there is no read-modify-write of scope _sys,
 * because links do not guarantee it. Barriers of a warp or block order the memory of all its threads, so
 * that one thread may acquire or release for all of them.
 *
 * Time. varve_d_now_ns is a clock that all blocks share.
 */
#ifndef VARVE_DEVICE_DUAL_H
#define VARVE_DEVICE_DUAL_H

#include <stddef.h>
#include <stdint.h>

#if defined(__CUDACC__)

#define VARVE_D_CODE 1
#define VARVE_D_FN   static __device__ __forceinline__
/* For rarely called functions: out of line, so that they take no registers from the common path. */
#define VARVE_D_COLD static __device__ __noinline__ __attribute__((unused))
#define VARVE_D_WARP 32u

/* Memory of the block: `name` becomes a pointer to one `type` of it. Starts undefined. */
#define VARVE_D_SHARED(type, name)  \
    __shared__ type name##_shared_; \
    type *const name = &name##_shared_

/* ---- indices of this thread ---- */

VARVE_D_FN unsigned varve_d_thread(void)
{
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

VARVE_D_FN unsigned varve_d_threads(void)
{
    return blockDim.x * blockDim.y * blockDim.z;
}

VARVE_D_FN unsigned varve_d_block(void)
{
    return blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
}

VARVE_D_FN unsigned varve_d_blocks(void)
{
    return gridDim.x * gridDim.y * gridDim.z;
}

/* ---- barriers, shuffles and votes ---- */

VARVE_D_FN void varve_d_sync_block(void)
{
    __syncthreads();
}

VARVE_D_FN void varve_d_sync_warp(void)
{
    __syncwarp();
}

/* Returns the value that thread `lane` of the warp passes. */
VARVE_D_FN uint32_t varve_d_shfl32_warp(uint32_t v, unsigned lane)
{
    return __shfl_sync(0xffffffffu, v, (int)lane);
}

VARVE_D_FN uint64_t varve_d_shfl64_warp(uint64_t v, unsigned lane)
{
    return __shfl_sync(0xffffffffu, (unsigned long long)v, (int)lane);
}

/* One bit for each lane that passes something other than 0. */
VARVE_D_FN uint32_t varve_d_ballot_warp(int v)
{
    return __ballot_sync(0xffffffffu, v);
}

/* ---- words ---- */

#define VARVE_D_LOAD(name, ptx, bits, reg)                               \
    VARVE_D_FN uint##bits##_t name(const uint##bits##_t *p)              \
    {                                                                    \
        uint##bits##_t v;                                                \
        asm volatile(ptx " %0, [%1];" : "=" reg(v) : "l"(p) : "memory"); \
        return v;                                                        \
    }
#define VARVE_D_STORE(name, ptx, bits, reg)                         \
    VARVE_D_FN void name(uint##bits##_t *p, uint##bits##_t v)       \
    {                                                               \
        asm volatile(ptx " [%0], %1;" ::"l"(p), reg(v) : "memory"); \
    }
#define VARVE_D_RMW(name, ptx, bits, reg)                                              \
    VARVE_D_FN uint##bits##_t name(uint##bits##_t *p, uint##bits##_t v)                \
    {                                                                                  \
        uint##bits##_t old;                                                            \
        asm volatile(ptx " %0, [%1], %2;" : "=" reg(old) : "l"(p), reg(v) : "memory"); \
        return old;                                                                    \
    }
#define VARVE_D_CAS(name, ptx, bits, reg)                                                    \
    VARVE_D_FN uint##bits##_t name(uint##bits##_t *p, uint##bits##_t want, uint##bits##_t v) \
    {                                                                                        \
        uint##bits##_t old;                                                                  \
        asm volatile(ptx " %0, [%1], %2, %3;"                                                \
                     : "=" reg(old)                                                          \
                     : "l"(p), reg(want), reg(v)                                             \
                     : "memory");                                                            \
        return old;                                                                          \
    }

VARVE_D_LOAD(varve_d_load32_dev, "ld.relaxed.gpu.u32", 32, "r")
VARVE_D_LOAD(varve_d_load64_dev, "ld.relaxed.gpu.u64", 64, "l")
VARVE_D_LOAD(varve_d_acquire32_dev, "ld.acquire.gpu.u32", 32, "r")
VARVE_D_LOAD(varve_d_acquire64_dev, "ld.acquire.gpu.u64", 64, "l")
VARVE_D_LOAD(varve_d_load64_sys, "ld.relaxed.sys.u64", 64, "l")
VARVE_D_LOAD(varve_d_acquire64_sys, "ld.acquire.sys.u64", 64, "l")
VARVE_D_STORE(varve_d_store32_dev, "st.relaxed.gpu.u32", 32, "r")
VARVE_D_STORE(varve_d_store64_dev, "st.relaxed.gpu.u64", 64, "l")
VARVE_D_STORE(varve_d_release32_dev, "st.release.gpu.u32", 32, "r")
VARVE_D_STORE(varve_d_release64_dev, "st.release.gpu.u64", 64, "l")
VARVE_D_STORE(varve_d_store64_sys, "st.relaxed.sys.u64", 64, "l")
VARVE_D_STORE(varve_d_release64_sys, "st.release.sys.u64", 64, "l")
VARVE_D_RMW(varve_d_add32_dev, "atom.add.relaxed.gpu.u32", 32, "r")
VARVE_D_RMW(varve_d_add64_dev, "atom.add.relaxed.gpu.u64", 64, "l")
VARVE_D_RMW(varve_d_add32_acquire_dev, "atom.add.acquire.gpu.u32", 32, "r")
VARVE_D_RMW(varve_d_add32_release_dev, "atom.add.release.gpu.u32", 32, "r")
VARVE_D_RMW(varve_d_max64_dev, "atom.max.relaxed.gpu.u64", 64, "l")
VARVE_D_RMW(varve_d_or64_dev, "atom.or.relaxed.gpu.b64", 64, "l")
VARVE_D_CAS(varve_d_cas32_dev, "atom.cas.acq_rel.gpu.b32", 32, "r")
VARVE_D_CAS(varve_d_cas64_dev, "atom.cas.acq_rel.gpu.b64", 64, "l")
VARVE_D_CAS(varve_d_cas32_acquire_dev, "atom.cas.acquire.gpu.b32", 32, "r")

/* Two words at once, p aligned to 16 bytes: one transfer, though each may be seen before the other. */
VARVE_D_FN void varve_d_release64x2_sys(uint64_t *p, uint64_t a, uint64_t b)
{
    asm volatile("fence.acq_rel.sys;\n\tst.relaxed.sys.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"(a),
                 "l"(b)
                 : "memory");
}

VARVE_D_FN void varve_d_fence_dev(void)
{
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

VARVE_D_FN void varve_d_fence_sys(void)
{
    asm volatile("fence.acq_rel.sys;" ::: "memory");
}

/* Many words with one fence: loads that acquire come before varve_d_acquire_all_dev, stores that release
 * come after varve_d_release_all_dev. */
VARVE_D_RMW(varve_d_add32_early_dev, "atom.add.relaxed.gpu.u32", 32, "r")
VARVE_D_RMW(varve_d_add32_late_dev, "atom.add.relaxed.gpu.u32", 32, "r")
VARVE_D_STORE(varve_d_store32_late_dev, "st.relaxed.gpu.u32", 32, "r")

VARVE_D_FN void varve_d_acquire_all_dev(void)
{
    varve_d_fence_dev();
}

VARVE_D_FN void varve_d_release_all_dev(void)
{
    varve_d_fence_dev();
}

/* ---- time ---- */

VARVE_D_FN uint64_t varve_d_now_ns(void)
{
    uint64_t t;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

/* Pauses for about `ns`, at most 1 ms. */
VARVE_D_FN void varve_d_pause(unsigned ns)
{
    __nanosleep(ns);
}

/* ---- sixteen bytes at once ---- */

typedef ulonglong2 varve_d_v16;

/* Loads from memory that is read once: the processor's, or pages of the library's cache. */
VARVE_D_FN varve_d_v16 varve_d_load16(const void *p)
{
    return __ldcs((const ulonglong2 *)p);
}

VARVE_D_FN void varve_d_store16(void *p, varve_d_v16 v)
{
    *(ulonglong2 *)p = v;
}

#elif defined(VARVE_EMULATE)

#define VARVE_D_CODE 1
#include <varve/detail/device_emu.h>

#endif

#ifdef VARVE_D_CODE

VARVE_D_FN unsigned varve_d_lane(void)
{
    return varve_d_thread() % VARVE_D_WARP;
}

/* The index of this warp in its block, and the number of warps. */
VARVE_D_FN unsigned varve_d_warp(void)
{
    return varve_d_thread() / VARVE_D_WARP;
}

VARVE_D_FN unsigned varve_d_warps(void)
{
    return (varve_d_threads() + VARVE_D_WARP - 1) / VARVE_D_WARP;
}

#endif

#endif
