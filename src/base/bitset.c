/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bitset.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"

int vv_bitset_init(struct vv_bitset *set, uint64_t size)
{
    struct vv_bitset made = {.size = size};
    uint64_t words[VV_BITSET_LEVELS], all = 0;
    uint64_t *memory;

    for (uint64_t n = size; made.nlevels == 0 || n > 1;) {
        n = VV_MAX(vv_div_up(n, 64), (uint64_t)1);
        words[made.nlevels++] = n;
        all += n;
        vv_assert(made.nlevels < VV_BITSET_LEVELS || n == 1);
    }
    memory = calloc(all, sizeof(*memory));
    if (!memory)
        return -ENOMEM;
    for (unsigned i = 0; i < made.nlevels; i++) {
        made.level[i] = memory;
        memory += words[i];
    }
    *set = made;
    return 0;
}

void vv_bitset_fini(struct vv_bitset *set)
{
    free(set->level[0]);
    *set = (struct vv_bitset){0};
}

void vvi_bitset_raise(struct vv_bitset *set, uint64_t word)
{
    for (unsigned k = 1; k < set->nlevels; k++, word /= 64) {
        uint64_t before = set->level[k][word / 64];
        set->level[k][word / 64] = before | UINT64_C(1) << (word % 64);
        if (before)
            return; /* the levels above are set already */
    }
}

void vv_bitset_remove(struct vv_bitset *set, uint64_t i)
{
    vv_assert(i < set->size);
    for (unsigned k = 0; k < set->nlevels; k++, i /= 64) {
        set->level[k][i / 64] &= ~(UINT64_C(1) << (i % 64));
        if (set->level[k][i / 64])
            return;
    }
}

uint64_t vv_bitset_next(const struct vv_bitset *set, uint64_t from)
{
    unsigned k = 0;
    uint64_t rest = 0, last = set->size - 1; /* of the level */

    if (from >= set->size)
        return set->size;
    /* Go up until a word has a member at or after the current place. */
    for (;;) {
        rest = set->level[k][from / 64] & (~UINT64_C(0) << (from % 64));
        if (rest)
            break;
        from = from / 64 + 1;
        last /= 64;
        if (++k == set->nlevels || from > last)
            return set->size;
    }
    /* Go down to the first member of that word. */
    for (;; k--) {
        from = from / 64 * 64 + (uint64_t)__builtin_ctzll(rest);
        if (k == 0)
            return from;
        from *= 64;
        rest = set->level[k - 1][from / 64];
    }
}
