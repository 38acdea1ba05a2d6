/* SPDX-License-Identifier: Apache-2.0 */
/* Farthest next use, against every possible choice: no replacement brings fewer blocks. */
#include <stdlib.h>

#include "lab/ooc/ooc.h"
#include "t.h"

enum { BLOCKS = 6, STEPS = 5 };

static bool touched(const struct ooc_touches *t, uint32_t step, uint64_t block)
{
    return t->bits[step * t->words + block / 64] >> block % 64 & 1;
}

/* The least over all choices: `at` counts touches, step after step, block after block. */
static uint64_t least(const struct ooc_touches *t, uint64_t slots, unsigned there, uint32_t at)
{
    uint64_t block = at % BLOCKS, best = UINT64_MAX;

    if (at == STEPS * BLOCKS)
        return 0;
    if (!touched(t, at / BLOCKS, block) || there >> block & 1)
        return least(t, slots, there, at + 1);
    if ((uint64_t)__builtin_popcount(there) < slots)
        return 1 + least(t, slots, there | 1u << block, at + 1);
    for (unsigned victim = 0; victim < BLOCKS; victim++)
        if (there >> victim & 1) {
            uint64_t n = 1 + least(t, slots, (there & ~(1u << victim)) | 1u << block, at + 1);

            best = n < best ? n : best;
        }
    return best;
}

static void against_all(void)
{
    struct t_rng rng = {t_seed()};

    for (uint64_t i = 0; i < t_cases(200, 5000); i++) {
        uint64_t bits[STEPS], brought, seen, all = 0, slots = 1 + t_rng_below(&rng, 3);
        struct ooc_touches t = {.bits = bits, .blocks = BLOCKS, .words = 1, .steps = STEPS};

        for (int s = 0; s < STEPS; s++) {
            bits[s] = t_rng_u64(&rng) & t_rng_u64(&rng) & ((1 << BLOCKS) - 1);
            all |= bits[s];
        }
        T_OK(ooc_farthest(&t, slots, &brought, &seen));
        T_EQ(brought, least(&t, slots, 0, 0));
        T_EQ(seen, __builtin_popcountll(all));
    }
}

static void edges(void)
{
    uint64_t bits[2] = {5, 5}, brought, seen;
    struct ooc_touches t = {.bits = bits, .blocks = 3, .words = 1, .steps = 2};

    T_ERR(ooc_farthest(&t, 0, &brought, &seen), -EINVAL);
    T_OK(ooc_farthest(&t, 100, &brought, &seen));
    T_EQ(brought, 2);
    T_EQ(seen, 2);
}

int main(void)
{
    T_RUN(against_all);
    T_RUN(edges);
    return t_done();
}
