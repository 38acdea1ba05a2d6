/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set of numbers below a fixed size. Adding, removing and finding the next member take a few
 * steps, whatever the size: each word of a level has one bit in the level above it, which is set
 * while the word is not zero.
 */
#ifndef VV_BASE_BITSET_H
#define VV_BASE_BITSET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/assert.h"
#include "base/util.h"

enum { VV_BITSET_LEVELS = 7 }; /* 64 to the power of 7: more than memory holds */

struct vv_bitset {
    uint64_t *level[VV_BITSET_LEVELS]; /* one allocation, at level[0] */
    unsigned nlevels;
    uint64_t size;
};

/* Makes an empty set of numbers below `size`. */
int vv_bitset_init(struct vv_bitset *set, uint64_t size) VV_WARN_UNUSED;
void vv_bitset_fini(struct vv_bitset *set); /* accepts a set that is all zeros */
void vv_bitset_remove(struct vv_bitset *set, uint64_t i);
/* The least member that is not below `from`; `size` if there is none. */
uint64_t vv_bitset_next(const struct vv_bitset *set, uint64_t from);

/* Call it when a word of the lowest level gets its first member: sets its bits in the levels above. */
void vvi_bitset_raise(struct vv_bitset *set, uint64_t word);

static inline void vv_bitset_add(struct vv_bitset *set, uint64_t i)
{
    vv_assert(i < set->size);
    uint64_t *word = &set->level[0][i / 64], before = *word;

    *word = before | UINT64_C(1) << (i % 64);
    if (!before)
        vvi_bitset_raise(set, i / 64);
}

static inline bool vv_bitset_has(const struct vv_bitset *set, uint64_t i)
{
    return i < set->size && (set->level[0][i / 64] >> (i % 64) & 1);
}

#endif
