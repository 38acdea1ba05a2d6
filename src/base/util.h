/* SPDX-License-Identifier: Apache-2.0 */
/* Small macros and functions that every module uses. */
#ifndef VV_BASE_UTIL_H
#define VV_BASE_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* These evaluate their arguments twice. */
#define VV_MIN(a, b)     ((a) < (b) ? (a) : (b))
#define VV_MAX(a, b)     ((a) > (b) ? (a) : (b))
#define VV_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#define VV_WARN_UNUSED  __attribute__((warn_unused_result))
#define VV_PRINTF(f, a) __attribute__((format(printf, f, a)))

/* Size of a page, the unit of memory tiers; one page holds one chunk of an object. */
#define VV_PAGE_BYTES_DEFAULT (UINT64_C(256) << 10)
#define VV_PAGE_BYTES_MIN     (UINT64_C(4) << 10)

static inline uint64_t vv_div_up(uint64_t n, uint64_t d)
{
    return n / d + (n % d != 0);
}

/* `align` is a power of two. */
static inline uint64_t vv_align_up(uint64_t n, uint64_t align)
{
    return (n + align - 1) & ~(align - 1);
}

static inline uint64_t vv_align_down(uint64_t n, uint64_t align)
{
    return n & ~(align - 1);
}

static inline bool vv_is_pow2(uint64_t n)
{
    return n != 0 && (n & (n - 1)) == 0;
}

#endif
