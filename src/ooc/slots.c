/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots of device memory and the blocks in them.
 *
 * What stays true: a block has at most one slot; a slot is free, filled or being filled with one
 * block, or leaving; `map` and `slot` say the same. A slot is handed out again only when no round is
 * under way that could have found it in its map.
 *
 * Eviction goes round with a hand. A block that was used in several rounds is passed over as often,
 * three times at most; blocks that a round under way may need stay. The paper's way (to compare with)
 * takes the one that was used longest ago, from an order that is made once a round.
 *
 * What rounds and the hand look at is apart from the rest and small: eight slots to a cache line.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "ooc/ooc_private.h"

/* A block that was used often is passed over as many times, unless it has not been for so many rounds
 * for each. */
enum { OFTEN_MAX = 3, AGE = 4 };

int vvi_slots_init(struct vvi_slots *s, uint32_t blocks, uint32_t slots, bool paper)
{
    *s = (struct vvi_slots){.blocks = blocks, .nr = slots, .paper = paper};
    s->map = calloc(blocks, sizeof(*s->map));
    s->slot = calloc(slots, sizeof(*s->slot));
    s->held = calloc(slots, sizeof(*s->held));
    s->free = calloc(slots, sizeof(*s->free));
    s->leaving = calloc(slots, sizeof(*s->leaving));
    s->left_at = calloc(slots, sizeof(*s->left_at));
    s->order = paper ? calloc(slots, sizeof(*s->order)) : NULL;
    if (!s->map || !s->slot || !s->held || !s->free || !s->leaving || !s->left_at ||
        (paper && !s->order)) {
        vvi_slots_fini(s);
        return -ENOMEM;
    }
    while (s->nfree < slots) {
        s->free[s->nfree] = slots - 1 - s->nfree;
        s->nfree++;
    }
    return 0;
}

void vvi_slots_fini(struct vvi_slots *s)
{
    free(s->map);
    free(s->slot);
    free(s->held);
    free(s->free);
    free(s->leaving);
    free(s->left_at);
    free(s->order);
    *s = (struct vvi_slots){0};
}

uint32_t vvi_slots_take(struct vvi_slots *s, uint32_t block, uint32_t round)
{
    uint32_t slot;

    vv_assert(block < s->blocks && s->map[block] == 0);
    if (s->nfree == 0)
        return UINT32_MAX;
    slot = s->free[--s->nfree];
    s->slot[slot] = (struct vvi_slot){.last = round, .state = VVI_SLOT_FILLING};
    s->held[slot] = (struct vvi_in_slot){.block = block, .came = round};
    s->map[block] = slot + 1;
    s->used++;
    return slot;
}

void vvi_slots_filled(struct vvi_slots *s, uint32_t slot)
{
    vv_assert(s->slot[slot].state == VVI_SLOT_FILLING);
    s->slot[slot].state = VVI_SLOT_READY;
}

void vvi_slots_give_back(struct vvi_slots *s, uint32_t slot)
{
    vv_assert(s->slot[slot].state == VVI_SLOT_FILLING);
    s->map[s->held[slot].block] = 0;
    s->slot[slot].state = VVI_SLOT_FREE;
    s->free[s->nfree++] = slot;
    s->used--;
}

static void touch_one(struct vvi_slot *slot, uint32_t round)
{
    if (slot->state != VVI_SLOT_READY)
        return;
    slot->last = round;
    slot->often += slot->often < OFTEN_MAX;
}

void vvi_slots_touch(struct vvi_slots *s, const uint64_t *used, uint32_t round)
{
    for (uint32_t first = 0; first < s->nr; first += 64)
        for (uint64_t bits = used[first / 64]; bits; bits &= bits - 1) {
            uint32_t i = first + (uint32_t)__builtin_ctzll(bits);

            if (i < s->nr) /* kernels are the application's */
                touch_one(&s->slot[i], round);
        }
    s->order_nr = s->order_at = 0;
}

static uint32_t leave(struct vvi_slots *s, uint32_t i)
{
    uint32_t block = s->held[i].block, at = s->leave_first + s->nleaving++;

    at = at < s->nr ? at : at - s->nr;
    s->map[block] = 0;
    s->slot[i].state = VVI_SLOT_LEAVING;
    s->leaving[at] = i;
    s->left_at[at] = s->now;
    s->used--;
    s->evicted++;
    return block;
}

/* Rounds are numbered by 32 bits that may turn over. */
static bool before(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) < 0;
}

static int by_key(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* The slot in the lower half, its last use above, counted so that they sort. */
static void make_order(struct vvi_slots *s, uint32_t keep)
{
    s->order_nr = s->order_at = 0;
    for (uint32_t i = 0; i < s->nr; i++)
        if (s->slot[i].state == VVI_SLOT_READY)
            s->order[s->order_nr++] =
                (uint64_t)(s->slot[i].last - keep + (UINT32_C(1) << 31)) << 32 | i;
    qsort(s->order, s->order_nr, sizeof(*s->order), by_key);
}

static uint32_t evict_longest_ago(struct vvi_slots *s, uint32_t keep)
{
    if (s->order_at == s->order_nr)
        make_order(s, keep);
    while (s->order_at < s->order_nr) {
        uint32_t i = (uint32_t)s->order[s->order_at];

        if (s->slot[i].state == VVI_SLOT_READY && !before(s->slot[i].last, keep))
            return UINT32_MAX; /* and all behind it */
        s->order_at++;
        if (s->slot[i].state == VVI_SLOT_READY)
            return leave(s, i);
    }
    return UINT32_MAX;
}

uint32_t vvi_slots_evict(struct vvi_slots *s, uint32_t keep)
{
    if (s->paper)
        return evict_longest_ago(s, keep);
    for (uint64_t n = 0; n < (uint64_t)(OFTEN_MAX + 1) * s->nr; n++) {
        uint32_t i = s->hand;
        struct vvi_slot *slot = &s->slot[i];

        s->hand = i + 1 == s->nr ? 0 : i + 1;
        if (slot->state != VVI_SLOT_READY || !before(slot->last, keep))
            continue;
        if (slot->often == 0 || keep - slot->last > AGE * slot->often)
            return leave(s, i);
        slot->often--;
    }
    return UINT32_MAX;
}

void vvi_slots_reclaim(struct vvi_slots *s, uint64_t oldest)
{
    while (s->nleaving > 0) {
        uint32_t i = s->leaving[s->leave_first];

        if (s->left_at[s->leave_first] >= oldest)
            return;
        s->leave_first = s->leave_first + 1 == s->nr ? 0 : s->leave_first + 1;
        s->nleaving--;
        s->slot[i].state = VVI_SLOT_FREE;
        s->free[s->nfree++] = i;
    }
}
