/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Test data that can be checked without keeping a copy: each 8-byte word depends on seed, version and its
 * place in the object, so that a page of another version or place is detected. Measurements and tests use
 * it; the kernels of device/ write and check the same words.
 *
 * Word k of an object is base + k * STEP; base is a hash of seed and version. STEP is odd, so no two words
 * of an object are equal. Words of two versions are equal with a probability of 2^-64.
 *
 * The inline functions compile as device code too.
 */
#ifndef VV_BASE_PATTERN_H
#define VV_BASE_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define VV_PATTERN_FN static __host__ __device__ inline
#else
#define VV_PATTERN_FN static inline
#endif

#define VV_PATTERN_STEP UINT64_C(0x9e3779b97f4a7c15)

VV_PATTERN_FN uint64_t vv_pattern_mix(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Word k of the object; the words after it are VV_PATTERN_STEP apart. */
VV_PATTERN_FN uint64_t vv_pattern_word(uint64_t seed, uint64_t version, uint64_t k)
{
    return vv_pattern_mix(vv_pattern_mix(seed + VV_PATTERN_STEP) ^ version) + k * VV_PATTERN_STEP;
}

/* The number of the eight bytes that differ. */
VV_PATTERN_FN unsigned vv_pattern_bytes_differing(uint64_t a, uint64_t b)
{
    uint64_t x = a ^ b;

    /* One bit for each byte that is not zero. */
    x |= x >> 4;
    x |= x >> 2;
    x |= x >> 1;
    x &= UINT64_C(0x0101010101010101);
    return (unsigned)(x * UINT64_C(0x0101010101010101) >> 56);
}

#ifndef __CUDACC__

/* Writes bytes offset..offset+n-1 of the object to buf. offset is a multiple of 8; n need not be.
 */
void vv_pattern_fill(void *buf, size_t n, uint64_t seed, uint64_t version, uint64_t offset);

/* True if buf has the bytes that vv_pattern_fill would write. If not, and ret_bad is not NULL, stores the
 * offset in buf of the first wrong byte. */
bool vv_pattern_verify(const void *buf, size_t n, uint64_t seed, uint64_t version, uint64_t offset,
                       size_t *ret_bad);

/* The number of bytes of buf that differ from what vv_pattern_fill would write. */
uint64_t vv_pattern_count_bad(const void *buf, size_t n, uint64_t seed, uint64_t version,
                              uint64_t offset);

#endif

#endif
