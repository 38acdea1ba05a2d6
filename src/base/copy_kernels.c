/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies with streaming stores. An ordinary store first reads the line that it writes into the cache. A
 * streaming store does not: a copy larger than the caches then moves two bytes of memory for each byte
 * copied instead of three, and does not evict other data from the caches. Below the size of the caches it
 * is slower; copy.c decides which one to use.
 *
 * Streaming stores are weakly ordered: because of the fence at the end, a later unlock or atomic store
 * publishes the bytes. They need aligned destinations, so memcpy copies the first bytes up to a line, and
 * the last ones.
 *
 * An attribute enables the instructions of each kernel, independent of the machine that the compiler builds
 * for; the kernel is chosen at run time. With other compilers or processors memcpy is used.
 */
#include "base/copy_kernels.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "base/util.h"

/* Sanitizers do not see the writes of streaming stores. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#if defined(__x86_64__) && defined(__GNUC__)
#define HAVE_X86 1
#include <immintrin.h>
#else
#define HAVE_X86 0
#endif

const char *vv_copy_kernel_name(enum vv_copy_kernel kernel)
{
    static const char *const names[VV_COPY_KERNELS] = {"plain", "avx2", "avx512"};

    return (unsigned)kernel < VV_COPY_KERNELS ? names[kernel] : "unknown";
}

#if HAVE_X86

/* Several pages at a time: memory reads of one page overlap with opening the row of another. */
enum { LINE = 64, PAGE = 4096, PAGES = 4, BLOCK = PAGES * PAGE, AHEAD = 4 * LINE };

/* Copies the bytes before the first aligned line of the destination, and returns their number. */
static size_t head(void *dst, const void *src, size_t n)
{
    size_t to_line = VV_MIN((size_t)(-(uintptr_t)dst & (LINE - 1)), n);

    memcpy(dst, src, to_line);
    return to_line;
}

__attribute__((target("avx2"))) static void copy_avx2(char *dst, const char *src, size_t n)
{
    enum { STEP = LINE };
    size_t at = head(dst, src, n);

    for (; n - at >= BLOCK; at += BLOCK)
        for (size_t in = at; in < at + PAGE; in += STEP) {
            __m256i v[PAGES][STEP / 32];
            for (size_t p = 0; p < PAGES; p++) {
                const char *from = src + in + p * PAGE;
                _mm_prefetch(from + AHEAD, _MM_HINT_T0);
                for (size_t i = 0; i < STEP / 32; i++)
                    v[p][i] = _mm256_loadu_si256((const void *)(from + 32 * i));
            }
            for (size_t p = 0; p < PAGES; p++)
                for (size_t i = 0; i < STEP / 32; i++)
                    _mm256_stream_si256((void *)(dst + in + p * PAGE + 32 * i), v[p][i]);
        }
    _mm_sfence();
    memcpy(dst + at, src + at, n - at);
}

__attribute__((target("avx512f"))) static void copy_avx512(char *dst, const char *src, size_t n)
{
    enum { STEP = 2 * LINE };
    size_t at = head(dst, src, n);

    for (; n - at >= BLOCK; at += BLOCK)
        for (size_t in = at; in < at + PAGE; in += STEP) {
            __m512i v[PAGES][STEP / 64];
            for (size_t p = 0; p < PAGES; p++)
                for (size_t i = 0; i < STEP / 64; i++) {
                    const char *from = src + in + p * PAGE + 64 * i;
                    _mm_prefetch(from + AHEAD, _MM_HINT_T0);
                    v[p][i] = _mm512_loadu_si512(from);
                }
            for (size_t p = 0; p < PAGES; p++)
                for (size_t i = 0; i < STEP / 64; i++)
                    _mm512_stream_si512((void *)(dst + in + p * PAGE + 64 * i), v[p][i]);
        }
    _mm_sfence();
    memcpy(dst + at, src + at, n - at);
}

bool vv_copy_kernel_usable(enum vv_copy_kernel kernel)
{
    switch (kernel) {
    case VV_COPY_PLAIN:
        return true;
    case VV_COPY_AVX2:
        return __builtin_cpu_supports("avx2");
    case VV_COPY_AVX512:
        return __builtin_cpu_supports("avx512f");
    default:
        return false;
    }
}

void vv_copy_with(enum vv_copy_kernel kernel, void *dst, const void *src, size_t n)
{
    switch (kernel) {
    case VV_COPY_AVX2:
        copy_avx2(dst, src, n);
        break;
    case VV_COPY_AVX512:
        copy_avx512(dst, src, n);
        break;
    default:
        memcpy(dst, src, n);
        break;
    }
}

#else

bool vv_copy_kernel_usable(enum vv_copy_kernel kernel)
{
    return kernel == VV_COPY_PLAIN;
}

void vv_copy_with(enum vv_copy_kernel kernel, void *dst, const void *src, size_t n)
{
    (void)kernel;
    memcpy(dst, src, n);
}

#endif

enum vv_copy_kernel vv_copy_kernel_best(void)
{
    /* Synchronization: relaxed; all threads compute the same value. 0: not computed yet. */
    static _Atomic int found;
    int best = atomic_load_explicit(&found, memory_order_relaxed) - 1;

    if (best >= 0)
        return (enum vv_copy_kernel)best;
    for (best = SANITIZED ? VV_COPY_PLAIN : VV_COPY_KERNELS - 1;
         !vv_copy_kernel_usable((enum vv_copy_kernel)best);)
        best--;
    atomic_store_explicit(&found, best + 1, memory_order_relaxed);
    return (enum vv_copy_kernel)best;
}
