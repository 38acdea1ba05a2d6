/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots against a model with a state and a count for each: random fills, uses and evictions.
 *
 * Evicted blocks are READY and not among those that must stay, and were passed over as often as they were used; every
 * block that may be evicted is found. A slot is free again only when the rounds that began before it left have
 * ended.
 */
#include <stdlib.h>
#include <string.h>

#include "ooc/ooc_private.h"
#include "t.h"

/* Slots of more than one line of words. */
enum {
    BLOCKS = 1400,
    SLOTS = 530,
    WORDS = (SLOTS + 64 * VVI_LINE - 1) / (64 * VVI_LINE) * VVI_LINE
};
enum { TAKEN = 4 };

static uint64_t at;

static uint64_t some(void)
{
    uint64_t h = (at += UINT64_C(0x9e3779b97f4a7c15));

    h = (h ^ h >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    h = (h ^ h >> 27) * UINT64_C(0x94d049bb133111eb);
    return h ^ h >> 31;
}

struct model {
    struct vvi_slots s;
    uint32_t map[BLOCKS], before[BLOCKS]; /* `before`: at the last check */
    uint64_t seen[WORDS];
    uint32_t gone[SLOTS];
    enum vvi_slot_state state[SLOTS];
    uint32_t block[SLOTS];
    uint64_t left_at[SLOTS];
};

/* Every entry that has changed lies in the range of the slots. */
static void check_map(struct model *m)
{
    uint32_t used = 0;

    for (uint32_t i = 0; i < BLOCKS; i++) {
        T_CHECK(m->map[i] == m->before[i] || (i >= m->s.from && i < m->s.to));
        used += vvi_bit(m->s.have, i);
    }
    T_EQ(m->s.used, used);
    memcpy(m->before, m->map, sizeof(m->map));
    m->s.from = BLOCKS;
    m->s.to = 0;
}

static void check(struct model *m)
{
    uint32_t used = 0, nfree = 0, leaving = 0;

    for (uint32_t i = 0; i < SLOTS; i++) {
        bool has = m->state[i] == VVI_SLOT_FILLING || m->state[i] == VVI_SLOT_READY;

        T_EQ(vvi_bit(m->s.ready, i), m->state[i] == VVI_SLOT_READY);
        if (has)
            T_EQ(m->map[m->block[i]], m->state[i] == VVI_SLOT_READY ? i + 1 : 0);
        if (has)
            T_CHECK(vvi_bit(m->s.have, m->block[i]));
        if (m->state[i] != VVI_SLOT_READY && !m->s.paper)
            T_CHECK(!vvi_bit(m->s.often[0], i) && !vvi_bit(m->s.often[1], i));
        used += has;
        nfree += m->state[i] == VVI_SLOT_FREE;
        leaving += m->state[i] == VVI_SLOT_LEAVING;
    }
    T_EQ(m->s.used, used);
    T_EQ(m->s.nfree, nfree);
    T_EQ(m->s.nleaving, leaving);
    check_map(m);
}

/* Takes slots for some blocks from this one on, as long as slots are free; blocks with a slot are listed separately. */
static void take(struct model *m, uint32_t block)
{
    uint32_t list[TAKEN], nr = 1 + (uint32_t)(some() % TAKEN), n = 1, had = 0, nfree = m->s.nfree;
    struct vvi_fill fills[TAKEN + 1] = {{BLOCKS, SLOTS}};
    uint32_t expected[TAKEN], again[TAKEN], nexpected = 0, nagain = 0, looked = 0, got, ngiven = 0;
    uint64_t given[WORDS] = {0};

    for (uint32_t i = 0; i < nr; i++)
        list[i] = (block + i) % BLOCKS;
    for (; looked < nr; looked++)
        if (vvi_bit(m->s.have, list[looked]))
            again[nagain++] = list[looked];
        else if (nexpected < nfree)
            expected[nexpected++] = list[looked];
        else
            break;
    got = vvi_slots_take(&m->s, list, nr, given, fills, &n, list, &had);
    T_EQ(got, looked);
    T_EQ(n, 1 + nexpected);
    T_EQ(had, nagain);
    T_CHECK(fills[0].block == BLOCKS && fills[0].slot == SLOTS);
    for (uint32_t i = 0; i < SLOTS; i++)
        ngiven += vvi_bit(given, i);
    T_EQ(ngiven, nexpected);
    for (uint32_t i = 0; i < had; i++)
        T_EQ(list[i], again[i]);
    for (uint32_t i = 1; i < n; i++) {
        T_EQ(fills[i].block, expected[i - 1]);
        T_CHECK(vvi_bit(given, fills[i].slot));
        T_EQ(m->state[fills[i].slot], VVI_SLOT_FREE);
        m->state[fills[i].slot] = VVI_SLOT_FILLING;
        m->block[fills[i].slot] = fills[i].block;
    }
}

/* Ends the filling of one slot, successfully or not. */
static void end_filling(struct model *m, uint32_t from, bool filled)
{
    for (uint32_t k = 0; k < SLOTS; k++) {
        uint32_t i = (from + k) % SLOTS;

        if (m->state[i] != VVI_SLOT_FILLING)
            continue;
        if (filled)
            vvi_slots_filled(&m->s, &(struct vvi_fill){m->s.held[i], i}, 1);
        else
            vvi_slots_give_back(&m->s, i);
        m->state[i] = filled ? VVI_SLOT_READY : VVI_SLOT_FREE;
        return;
    }
}

static uint32_t often(const struct vvi_slots *s, uint32_t slot)
{
    return vvi_bit(s->often[0], slot) + 2U * vvi_bit(s->often[1], slot);
}

/* A use counts, up to three; every other time all counts fall by one. */
static void touch(struct model *m)
{
    uint64_t used[WORDS];
    uint32_t before[SLOTS];

    for (uint32_t w = 0; w < WORDS; w++)
        used[w] = some() & some(); /* also beyond the last slot */
    memset(m->seen, 0, sizeof(m->seen));
    for (uint32_t i = 0; i < SLOTS; i++)
        before[i] = often(&m->s, i);
    vvi_slots_touch(&m->s, used, m->seen);
    for (uint32_t i = 0; i < SLOTS; i++) {
        uint32_t n = before[i] + (vvi_bit(m->seen, i) && before[i] < 3);

        T_EQ(often(&m->s, i), n - (n > 0 && m->s.touches % 2 == 0));
    }
    for (uint32_t i = 0; i < 64 * WORDS; i++)
        T_EQ(vvi_bit(m->seen, i), i < SLOTS && m->state[i] == VVI_SLOT_READY && vvi_bit(used, i));
}

static void evict(struct model *m, uint32_t most)
{
    uint32_t may = 0, n;

    for (uint32_t w = 0; w < WORDS; w++)
        m->s.stay[w] = some() | some();
    for (uint32_t i = 0; i < SLOTS; i++)
        may += m->state[i] == VVI_SLOT_READY && !vvi_bit(m->s.stay, i);
    n = vvi_slots_evict(&m->s, most, m->gone);
    if (m->s.paper)
        T_CHECK(n <= VV_MIN(may, most)); /* of those that were READY when the round ended */
    else
        T_EQ(n, VV_MIN(may, most)); /* with any number of uses */
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = 0;

        while (i < SLOTS && !(m->state[i] == VVI_SLOT_READY && m->block[i] == m->gone[k]))
            i++;
        T_CHECK(i < SLOTS);
        if (i == SLOTS)
            return;
        T_CHECK(!vvi_bit(m->s.stay, i));
        m->state[i] = VVI_SLOT_LEAVING;
        m->left_at[i] = m->s.now;
    }
}

static void reclaim(struct model *m, uint64_t oldest)
{
    vvi_slots_reclaim(&m->s, oldest);
    for (uint32_t i = 0; i < SLOTS; i++)
        if (m->state[i] == VVI_SLOT_LEAVING && m->left_at[i] < oldest)
            m->state[i] = VVI_SLOT_FREE;
}

static void against_model(void)
{
    for (int paper = 0; paper < 2; paper++) {
        struct model *m = calloc(1, sizeof(*m));

        T_OK(vvi_slots_init(&m->s, BLOCKS, SLOTS, paper));
        m->s.map = m->map;
        for (uint64_t n = 0; n < t_cases(3000, 100000); n++) {
            uint64_t what = some() % 16;

            m->s.now += some() % 4 == 0;
            if (what < 6)
                take(m, (uint32_t)(some() % BLOCKS));
            else if (what < 12)
                end_filling(m, (uint32_t)(some() % SLOTS), what != 6);
            else if (what == 12)
                touch(m);
            else if (what < 15)
                evict(m, 1 + (uint32_t)(some() % 8));
            else
                reclaim(m, some() % 2 ? m->s.now : UINT64_MAX);
            check(m);
        }
        T_CHECK(m->s.evicted > 0);
        vvi_slots_fini(&m->s);
        free(m);
    }
}

static void bring(struct vvi_slots *s, uint32_t block)
{
    struct vvi_fill fill;
    uint32_t n = 0, had = 0, again;
    uint64_t given[WORDS] = {0};

    T_EQ(vvi_slots_take(s, &block, 1, given, &fill, &n, &again, &had), 1);
    T_EQ(n, 1);
    vvi_slots_filled(s, &fill, 1);
}

/* A block that was used often outlives others for as many turns of the hand, or until its count has faded. */
static void frequent(void)
{
    struct vvi_slots s;
    uint64_t used[WORDS] = {0}, seen[WORDS] = {0};
    uint32_t gone[SLOTS], map[BLOCKS] = {0};

    T_OK(vvi_slots_init(&s, BLOCKS, SLOTS, false));
    s.map = map;
    for (uint32_t i = 0; i < SLOTS; i++)
        bring(&s, i);
    for (uint32_t block = 10; block < 90; block++)
        vvi_bit_set(used, s.map[block] - 1);
    for (int n = 0; n < 3; n++)
        vvi_slots_touch(&s, used, seen);
    T_EQ(vvi_slots_evict(&s, SLOTS - 80, gone), SLOTS - 80);
    for (uint32_t k = 0; k < SLOTS - 80; k++)
        T_CHECK(gone[k] < 10 || gone[k] >= 90);
    T_EQ(s.used, 80);
    T_EQ(vvi_slots_evict(&s, 1, gone), 1); /* no other block is left */
    T_CHECK(gone[0] >= 10 && gone[0] < 90);
    vvi_slots_fini(&s);
}

/* A block that a round asked for while it was READY stays while others are evicted for the same round. */
static void wanted(void)
{
    for (int paper = 0; paper < 2; paper++) {
        uint32_t gone[SLOTS], map[BLOCKS] = {0}, wants[2] = {3, 70};
        uint64_t seen[WORDS] = {0};
        struct vvi_slots s;

        T_OK(vvi_slots_init(&s, BLOCKS, SLOTS, paper));
        s.map = map;
        for (uint32_t block = 0; block < SLOTS; block++)
            bring(&s, block);
        for (int i = 0; i < 2; i++)
            vvi_slots_wanted(&s, s.map[wants[i]] - 1, seen);
        T_EQ(vvi_slots_evict(&s, SLOTS, gone), SLOTS - 2);
        for (int i = 0; i < 2; i++) {
            T_CHECK(s.map[wants[i]] != 0);
            T_CHECK(vvi_bit(seen, s.map[wants[i]] - 1));
        }
        T_EQ(s.used, 2);
        vvi_slots_fini(&s);
    }
}

int main(void)
{
    at = t_seed();
    T_RUN(against_model);
    T_RUN(frequent);
    T_RUN(wanted);
    return t_done();
}
