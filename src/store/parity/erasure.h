/* SPDX-License-Identifier: Apache-2.0 */
/* Erasure codes over the files of a set of n processes, k of which may be lost. No I/O.
 *
 * A file is a string of m = n - k segments of equal length, padded with zeros. There are n stripes of n
 * blocks, one of each member: block b of stripe s belongs to member (b - s) mod n. Blocks 0 to m - 1 are
 * data, segment b of the member's string; blocks m to n - 1 are parity. So every member has k blocks of
 * parity, and any m blocks of a stripe yield the others. With k = 1 the parity is the exclusive or of the
 * data; otherwise a Cauchy matrix over GF(256) makes it, which needs ISA-L. */
#ifndef VV_STORE_ERASURE_H
#define VV_STORE_ERASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

enum { VV_ERASURE_MAX = 64 }; /* members of a set */

/* True if the library was built with ISA-L. Without it, k must be 1. */
bool vv_erasure_any(void);

static inline uint32_t vv_erasure_block(uint32_t n, uint32_t stripe, uint32_t member)
{
    return (stripe + member) % n;
}

static inline uint32_t vv_erasure_member(uint32_t n, uint32_t stripe, uint32_t block)
{
    return (block + n - stripe % n) % n;
}

/* The stripe in which a member has this block. */
static inline uint32_t vv_erasure_stripe(uint32_t n, uint32_t member, uint32_t block)
{
    return (block + n - member) % n;
}

/* Length of a segment, if the longest string has so many bytes: a multiple of 4 KiB and, if that costs
 * little, of `chunk`, a power of two, so that chunks with checksums are read once. */
uint64_t vv_erasure_segment(uint64_t longest, uint32_t m, uint64_t chunk);

/* The coefficients by which one block of a stripe follows from m others. */
struct vv_erasure {
    uint32_t m;
    bool plain;                                      /* by exclusive or */
    _Alignas(32) uint8_t table[32 * VV_ERASURE_MAX]; /* for ISA-L */
};

/* `have`: m different blocks, without `want`. -ENOTSUP: needs ISA-L; -EINVAL: invalid blocks. */
VV_WARN_UNUSED int vv_erasure_solve(uint32_t n, uint32_t k, const uint32_t *have, uint32_t want,
                                    struct vv_erasure *ret_erasure);
/* Makes the block's bytes, a multiple of 64, from those of the m others in the order of `have`, all aligned
 * to 64 bytes. NULL: zeros. */
void vv_erasure_make(const struct vv_erasure *e, const void *const *have, void *dst, size_t bytes);

#endif
