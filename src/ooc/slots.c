/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots of device memory and the blocks in them.
 *
 * Invariants: a block has at most one slot; a slot is free, filled or being filled with one block, or leaving; `map`,
 * `have`, `held` and `ready` agree. A slot is handed out again only when no round is under way that could have found
 * it in its map. `map` is written only when a slot becomes READY and when it leaves: at other times it may be being
 * sent to the device.
 *
 * Eviction is a clock with a hand. A block that was used in several rounds is passed over as often, three times at
 * most; this count fades with the rounds. Blocks that a round under way may need stay. The paper's policy (for
 * comparison) evicts the least recently used one, from an order that is made once a round.
 *
 * The state of slots is kept in bits, and rounds and the hand process 64 slots at a time: there are tens of thousands
 * of slots, and a round uses some thousands. The number of uses has two bits, the lower in often[0]. It is 0 unless the
 * slot is READY.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "ooc/ooc_private.h"

/* A block is passed over so many times at most; the count falls by one every so many rounds. */
enum { OFTEN_MAX = 3, FADES = 2 };

int vvi_slots_init(struct vvi_slots *s, uint32_t blocks, uint32_t slots, bool paper)
{
    *s = (struct vvi_slots){.blocks = blocks, .nr = slots, .from = blocks, .paper = paper};
    s->words = (uint32_t)vv_align_up(vv_div_up(slots, 64), VVI_LINE);
    s->have = vvi_ooc_zeroed(vv_div_up(blocks, 64), sizeof(*s->have));
    s->held = vvi_ooc_zeroed(slots, sizeof(*s->held));
    s->ready = vvi_ooc_zeroed(s->words, sizeof(uint64_t));
    s->often[0] = vvi_ooc_zeroed(s->words, sizeof(uint64_t));
    s->often[1] = vvi_ooc_zeroed(s->words, sizeof(uint64_t));
    s->stay = vvi_ooc_zeroed(s->words, sizeof(uint64_t));
    s->free = vvi_ooc_zeroed(slots, sizeof(*s->free));
    s->leaving = vvi_ooc_zeroed(slots, sizeof(*s->leaving));
    s->times = vvi_ooc_zeroed(slots, sizeof(*s->times));
    s->last = paper ? vvi_ooc_zeroed(slots, sizeof(*s->last)) : NULL;
    s->order = paper ? vvi_ooc_zeroed(slots, sizeof(*s->order)) : NULL;
    if (!s->have || !s->held || !s->ready || !s->often[0] || !s->often[1] || !s->stay || !s->free ||
        !s->leaving || !s->times || (paper && (!s->last || !s->order))) {
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
    free(s->have);
    free(s->held);
    free(s->ready);
    free(s->often[0]);
    free(s->often[1]);
    free(s->stay);
    free(s->free);
    free(s->leaving);
    free(s->times);
    free(s->last);
    free(s->order);
    *s = (struct vvi_slots){0};
}

uint32_t vvi_slots_take(struct vvi_slots *s, const uint32_t *blocks, uint32_t nr, uint64_t *got,
                        struct vvi_fill *fills, uint32_t *n, uint32_t *ret_had, uint32_t *had)
{
    const uint32_t *from = s->free + s->nfree, *none = s->free;
    uint32_t *held = s->held, *to_had = ret_had + *had, i = 0, taken;
    struct vvi_fill *to = fills + *n, *first = to;
    uint64_t *have = s->have;

    /* A branch on `has` would be mispredicted: each block is written to both lists, and the next block overwrites one
     * of the two entries. */
    for (; i < nr && from > none; i++) {
        uint32_t block = blocks[i], slot = from[-1];
        uint64_t word = have[block / 64], has = word >> block % 64 & 1;

        vv_assert(block < s->blocks && !vvi_bit(s->ready, slot) && (has || s->map[block] == 0));
        have[block / 64] = word | UINT64_C(1) << block % 64;
        held[slot] = block;
        got[slot / 64] |= (has ^ 1) << slot % 64;
        *to_had = block;
        to_had += has;
        *to = (struct vvi_fill){block, slot};
        to += has ^ 1;
        from -= has ^ 1;
    }
    for (; i < nr && vvi_bit(have, blocks[i]); i++) {
        vv_assert(blocks[i] < s->blocks);
        *to_had++ = blocks[i];
    }
    taken = (uint32_t)(to - first);
    for (uint32_t k = 0; s->paper && k < taken; k++)
        s->last[first[k].slot] = s->now;
    s->nfree -= taken;
    s->used += taken;
    *n += taken;
    *had = (uint32_t)(to_had - ret_had);
    return i;
}

void vvi_slots_filled(struct vvi_slots *s, const struct vvi_fill *fills, uint32_t n)
{
    uint64_t *ready = s->ready;
    uint32_t *map = s->map, from = s->from, to = s->to;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t block = fills[i].block, slot = fills[i].slot;

        vv_assert(!vvi_bit(ready, slot) && s->held[slot] == block && map[block] == 0 &&
                  vvi_bit(s->have, block));
        vvi_bit_set(ready, slot);
        map[block] = slot + 1;
        from = VV_MIN(from, block);
        to = VV_MAX(to, block + 1);
    }
    s->from = from;
    s->to = to;
}

static void forget(struct vvi_slots *s, uint32_t block)
{
    s->have[block / 64] &= ~(UINT64_C(1) << block % 64);
}

void vvi_slots_give_back(struct vvi_slots *s, uint32_t slot)
{
    vv_assert(!vvi_bit(s->ready, slot) && vvi_bit(s->have, s->held[slot]));
    forget(s, s->held[slot]);
    s->free[s->nfree++] = slot;
    s->used--;
}

/* Subtracts one use from slots of the word that are in `which`. */
static void count_down(struct vvi_slots *s, uint32_t word, uint64_t which)
{
    uint64_t low = s->often[0][word], high = s->often[1][word], some = which & (low | high);

    s->often[0][word] = low ^ some;
    s->often[1][word] = high & ~(some & ~low);
}

/* Adds a use to the slots in `now`, and subtracts one from those in `fades`. */
static void count_uses(uint64_t *restrict low, uint64_t *restrict high, uint64_t *restrict seen,
                       const uint64_t *restrict ready, const uint64_t *restrict used,
                       uint64_t fades)
{
    for (uint32_t i = 0; i < VVI_LINE; i++) {
        /* Kernels are the application's, so `used` may be wrong; slots beyond the last are never READY. */
        uint64_t now = used[i] & ready[i], more = now & ~(low[i] & high[i]);
        uint64_t h = high[i] ^ (low[i] & more), l = low[i] ^ more, some = (l | h) & fades;

        seen[i] |= now;
        low[i] = l ^ some;
        high[i] = h & ~(some & ~l);
    }
}

void vvi_slots_touch(struct vvi_slots *s, const uint64_t *used, uint64_t *seen)
{
    uint64_t fades = ++s->touches % FADES == 0 ? UINT64_MAX : 0;

    for (uint32_t word = 0; word < s->words; word += VVI_LINE)
        count_uses(s->often[0] + word, s->often[1] + word, seen + word, s->ready + word,
                   used + word, fades);
    for (uint32_t i = 0; s->paper && i < s->nr; i++)
        if (vvi_bit(used, i) && vvi_bit(s->ready, i))
            s->last[i] = s->now;
    s->order_nr = s->order_at = 0;
}

void vvi_slots_wanted(struct vvi_slots *s, uint32_t slot, uint64_t *seen)
{
    vvi_bit_set(seen, slot);
    vvi_bit_set(s->stay, slot);
    if (s->paper)
        s->last[slot] = s->now;
}

/* Index behind the first n of a ring. */
static uint32_t ring_at(const struct vvi_slots *s, uint32_t first, uint32_t n)
{
    return first + n < s->nr ? first + n : first + n - s->nr;
}

static uint32_t leave(struct vvi_slots *s, uint32_t i)
{
    uint32_t block = s->held[i];

    forget(s, block);
    s->map[block] = 0;
    s->from = VV_MIN(s->from, block);
    s->to = VV_MAX(s->to, block + 1);
    s->leaving[ring_at(s, s->leave_first, s->nleaving++)] = i;
    return block;
}

/* Records that n more slots have left now. */
static void left_now(struct vvi_slots *s, uint32_t n)
{
    uint32_t end = ring_at(s, s->time_first, s->ntimes), last = end ? end - 1 : s->nr - 1;

    if (n == 0)
        return;
    if (s->ntimes > 0 && s->times[last].at == s->now) {
        s->times[last].nr += n;
        return;
    }
    s->times[end] = (struct vvi_leaving){s->now, n};
    s->ntimes++;
}

static int by_key(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* Makes sort keys: the slot in the lower half, its last use above. */
static void make_order(struct vvi_slots *s)
{
    s->order_nr = s->order_at = 0;
    for (uint32_t i = 0; i < s->nr; i++)
        if (vvi_bit(s->ready, i))
            s->order[s->order_nr++] = (uint64_t)(uint32_t)(s->last[i] - s->now - 1) << 32 | i;
    qsort(s->order, s->order_nr, sizeof(*s->order), by_key);
}

static uint32_t evict_longest_ago(struct vvi_slots *s, uint32_t most, uint32_t *ret_blocks)
{
    uint32_t n = 0;

    if (s->order_at == s->order_nr)
        make_order(s);
    while (s->order_at < s->order_nr && !vvi_bit(s->ready, (uint32_t)s->order[s->order_at]))
        s->order_at++;
    for (uint32_t at = s->order_at; n < most && at < s->order_nr; at++) {
        uint32_t i = (uint32_t)s->order[at];

        if (!vvi_bit(s->ready, i) || vvi_bit(s->stay, i))
            continue;
        s->ready[i / 64] &= ~(UINT64_C(1) << i % 64);
        ret_blocks[n++] = leave(s, i);
    }
    return n;
}

/* Evicts from the hand to the end of its word. */
static uint32_t evict_from_word(struct vvi_slots *s, uint32_t most, uint32_t *ret_blocks)
{
    const uint32_t *held = s->held;
    uint32_t word = s->hand / 64, next = 64 * (word + 1), n = 0;
    uint32_t *map = s->map, *leaving = s->leaving, nr = s->nr, from = s->from, to = s->to;
    uint32_t at = ring_at(s, s->leave_first, s->nleaving);
    uint64_t *have = s->have, may = s->ready[word] & ~s->stay[word] & UINT64_MAX << s->hand % 64;
    uint64_t goes = may & ~(s->often[0][word] | s->often[1][word]), rest = goes;

    for (; rest && n < most; rest &= rest - 1) {
        uint32_t slot = 64 * word + (uint32_t)__builtin_ctzll(rest), block = held[slot];

        map[block] = 0;
        from = VV_MIN(from, block);
        to = VV_MAX(to, block + 1);
        have[block / 64] &= ~(UINT64_C(1) << block % 64);
        leaving[at] = slot;
        at = at + 1 == nr ? 0 : at + 1;
        ret_blocks[n++] = block;
        next = slot + 1;
    }
    s->nleaving += n;
    s->from = from;
    s->to = to;
    if (n < most)
        next = 64 * (word + 1);
    else
        may &= next % 64 ? ~(UINT64_MAX << next % 64) : UINT64_MAX; /* up to the new hand */
    s->ready[word] &= ~(goes ^ rest);
    count_down(s, word, may);
    s->hand = next < nr ? next : 0;
    return n;
}

uint32_t vvi_slots_evict(struct vvi_slots *s, uint32_t most, uint32_t *ret_blocks)
{
    uint64_t words =
        (uint64_t)(OFTEN_MAX + 1) * s->words + 1; /* the hand begins in the middle of one */
    uint32_t n = 0;

    if (s->paper)
        n = evict_longest_ago(s, most, ret_blocks);
    else
        for (uint64_t k = 0; k < words && n < most; k++)
            n += evict_from_word(s, most - n, ret_blocks + n);
    left_now(s, n);
    s->used -= n;
    s->evicted += n;
    return n;
}

/* Frees the first n of the leaving slots. */
static void free_first(struct vvi_slots *s, uint32_t n)
{
    uint32_t before = VV_MIN(n, s->nr - s->leave_first), *to = s->free + s->nfree;

    memcpy(to, s->leaving + s->leave_first, before * sizeof(*to));
    memcpy(to + before, s->leaving, (n - before) * sizeof(*to));
    s->leave_first = ring_at(s, s->leave_first, n);
    s->nleaving -= n;
    s->nfree += n;
}

void vvi_slots_reclaim(struct vvi_slots *s, uint64_t oldest)
{
    for (; s->ntimes > 0 && s->times[s->time_first].at < oldest; s->ntimes--) {
        free_first(s, s->times[s->time_first].nr);
        s->time_first = ring_at(s, s->time_first, 1);
    }
}
