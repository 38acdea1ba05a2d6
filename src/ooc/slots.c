/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots of device memory and the blocks in them.
 *
 * What stays true: a block has at most one slot; a slot is free, filled or being filled with one
 * block, or leaving; `map` and `slot` say the same. A slot is handed out again only when no round is
 * under way that could have found it in its map.
 *
 * Eviction goes round with a hand. A block that was used in several rounds is passed over as often,
 * three times at most; blocks that a round under way may need stay. The paper's way (to compare with) takes the one that was used longest ago, from an order
 * that is made once a round.
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
    s->free = calloc(slots, sizeof(*s->free));
    s->leaving = calloc(slots, sizeof(*s->leaving));
    s->order = paper ? calloc(slots, sizeof(*s->order)) : NULL;
    if (!s->map || !s->slot || !s->free || !s->leaving || (paper && !s->order)) {
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
    free(s->free);
    free(s->leaving);
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
    s->slot[slot] =
        (struct vvi_slot){.block = block, .came = round, .last = round, .state = VVI_SLOT_FILLING};
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
    s->map[s->slot[slot].block] = 0;
    s->slot[slot].state = VVI_SLOT_FREE;
    s->free[s->nfree++] = slot;
    s->used--;
}

static void touch_one(struct vvi_slot *slot, uint32_t round)
{
    if (slot->state != VVI_SLOT_READY)
        return;
    slot->last = round;
    if (slot->often < OFTEN_MAX)
        slot->often++;
}

/* Most slots were not used: eight are looked at together. */
void vvi_slots_touch(struct vvi_slots *s, const uint32_t *touched, uint32_t round)
{
    uint32_t i = 0;

    for (; i + 8 <= s->nr; i += 8) {
        const uint32_t *t = touched + i;
        unsigned any = (t[0] == round) | (t[1] == round) | (t[2] == round) | (t[3] == round) |
                       (t[4] == round) | (t[5] == round) | (t[6] == round) | (t[7] == round);

        for (uint32_t k = 0; any && k < 8; k++)
            if (t[k] == round)
                touch_one(&s->slot[i + k], round);
    }
    for (; i < s->nr; i++)
        if (touched[i] == round)
            touch_one(&s->slot[i], round);
    s->order_nr = s->order_at = 0;
}

static uint32_t leave(struct vvi_slots *s, uint32_t i)
{
    struct vvi_slot *slot = &s->slot[i];
    uint32_t block = slot->block;

    s->map[block] = 0;
    slot->state = VVI_SLOT_LEAVING;
    slot->since = s->now;
    s->leaving[(s->leave_first + s->nleaving++) % s->nr] = i;
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

        if (s->slot[i].since >= oldest)
            return;
        s->leave_first = (s->leave_first + 1) % s->nr;
        s->nleaving--;
        s->slot[i].state = VVI_SLOT_FREE;
        s->free[s->nfree++] = i;
    }
}
