/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch uses the Mersenne Twister MT19937, seeded with the low 32 bits. It permutes by swapping each place with one
 * at or behind it, drawn by a remainder. */
#include "dataset/order.h"

#include <errno.h>

#define WORDS  624
#define MIDDLE 397

struct twister {
    uint32_t word[WORDS];
    unsigned at;
};

static void seed_twister(struct twister *t, uint32_t seed)
{
    t->word[0] = seed;
    for (uint32_t i = 1; i < WORDS; i++)
        t->word[i] = UINT32_C(1812433253) * (t->word[i - 1] ^ (t->word[i - 1] >> 30)) + i;
    t->at = WORDS;
}

static void twist(struct twister *t)
{
    for (unsigned i = 0; i < WORDS; i++) {
        uint32_t y =
            (t->word[i] & UINT32_C(0x80000000)) | (t->word[(i + 1) % WORDS] & UINT32_C(0x7fffffff));

        t->word[i] = t->word[(i + MIDDLE) % WORDS] ^ (y >> 1) ^ (y & 1 ? UINT32_C(0x9908b0df) : 0);
    }
    t->at = 0;
}

static uint32_t draw(struct twister *t)
{
    uint32_t y;

    if (t->at == WORDS)
        twist(t);
    y = t->word[t->at++];
    y ^= y >> 11;
    y ^= (y << 7) & UINT32_C(0x9d2c5680);
    y ^= (y << 15) & UINT32_C(0xefc60000);
    return y ^ (y >> 18);
}

int vv_order_torch(uint64_t seed, uint64_t nr, uint64_t *ret_order)
{
    struct twister t;

    if (nr > UINT32_MAX)
        return -ERANGE;
    seed_twister(&t, (uint32_t)seed);
    for (uint64_t i = 0; i < nr; i++)
        ret_order[i] = i;
    for (uint64_t i = 0; i + 1 < nr; i++) {
        uint64_t other = i + draw(&t) % (nr - i), value = ret_order[i];

        ret_order[i] = ret_order[other];
        ret_order[other] = value;
    }
    return 0;
}
