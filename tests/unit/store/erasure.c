/* SPDX-License-Identifier: Apache-2.0 */
/* Erasure codes: any k blocks of a stripe follow from the others, against a reference that multiplies bit by bit. */
#include <stdlib.h>

#include "base/util.h"
#include "store/parity/erasure.h"
#include "t.h"

enum { BYTES = 512, MOST = 12 };

static _Alignas(64) uint8_t block[MOST][BYTES], made[BYTES];

static uint32_t next(void)
{
    static uint64_t state;
    if (state == 0)
        state = t_seed() | 1;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32);
}

/* m of the n blocks, without `want`, in some order. */
static void choose(uint32_t n, uint32_t m, uint32_t want, uint32_t *ret)
{
    uint32_t all[MOST], count = 0;
    for (uint32_t i = 0; i < n; i++)
        if (i != want)
            all[count++] = i;
    for (uint32_t i = 0; i < m; i++) {
        uint32_t j = i + next() % (count - i), t = all[i];
        all[i] = all[j];
        all[j] = t;
        ret[i] = all[i];
    }
}

static void make(uint32_t n, uint32_t k, const uint32_t *have, uint32_t want, uint8_t *dst)
{
    struct vv_erasure e;
    const void *from[MOST];
    for (uint32_t i = 0; i < n - k; i++)
        from[i] = block[have[i]];
    T_OK(vv_erasure_solve(n, k, have, want, &e));
    vv_erasure_make(&e, from, dst, BYTES);
}

static void one_code(uint32_t n, uint32_t k)
{
    uint32_t m = n - k, have[MOST];
    for (uint32_t i = 0; i < m; i++) {
        have[i] = i;
        for (size_t b = 0; b < BYTES; b++)
            block[i][b] = (uint8_t)next();
    }
    for (uint32_t i = m; i < n; i++)
        make(n, k, have, i, block[i]);
    for (uint32_t want = 0; want < n; want++)
        for (int times = t_long() ? 200 : 10; times > 0; times--) {
            choose(n, m, want, have);
            make(n, k, have, want, made);
            T_CHECK(memcmp(made, block[want], BYTES) == 0);
        }
}

static void every_block_follows_from_others(void)
{
    for (uint32_t n = 2; n <= MOST; n++)
        for (uint32_t k = 1; k < n && k <= (vv_erasure_any() ? 4 : 1); k++)
            one_code(n, k);
}

static void xor_is_exclusive_or(void)
{
    uint32_t have[3] = {0, 1, 2};
    for (uint32_t i = 0; i < 3; i++)
        for (size_t b = 0; b < BYTES; b++)
            block[i][b] = (uint8_t)next();
    make(4, 1, have, 3, made);
    for (size_t b = 0; b < BYTES; b++)
        T_EQ(made[b], block[0][b] ^ block[1][b] ^ block[2][b]);
}

/* Files that end early count as zeros from there on. */
static void missing_blocks_are_zeros(void)
{
    for (uint32_t k = 1; k <= (vv_erasure_any() ? 2 : 1); k++)
        for (unsigned none = 0; none < 16; none++) {
            uint32_t n = 4 + k, have[4] = {0, 1, 2, 3};
            struct vv_erasure e;
            const void *from[4];
            for (uint32_t i = 0; i < 4; i++) {
                for (size_t b = 0; b < BYTES; b++)
                    block[i][b] = none >> i & 1 ? 0 : (uint8_t)next();
                from[i] = none >> i & 1 ? NULL : block[i];
            }
            make(n, k, have, n - 1, block[n - 1]);
            T_OK(vv_erasure_solve(n, k, have, n - 1, &e));
            vv_erasure_make(&e, from, made, BYTES);
            T_CHECK(memcmp(made, block[n - 1], BYTES) == 0);
        }
}

static void invalid_blocks_are_refused(void)
{
    struct vv_erasure e;
    uint32_t twice[3] = {0, 1, 1}, itself[3] = {0, 1, 3}, good[3] = {0, 1, 2};
    T_ERR(vv_erasure_solve(4, 1, twice, 3, &e), -EINVAL);
    T_ERR(vv_erasure_solve(4, 1, itself, 3, &e), -EINVAL);
    T_ERR(vv_erasure_solve(4, 0, good, 3, &e), -EINVAL);
    T_ERR(vv_erasure_solve(4, 4, good, 3, &e), -EINVAL);
    T_ERR(vv_erasure_solve(4, 1, good, 4, &e), -EINVAL);
    T_ERR(vv_erasure_solve(VV_ERASURE_MAX + 1, 1, good, 4, &e), -EINVAL);
    T_ERR(vv_erasure_solve(5, 2, good, 4, &e), vv_erasure_any() ? 0 : -ENOTSUP);
}

/* Each member has each block number once, and each stripe each member. */
static void blocks_are_dealt_evenly(void)
{
    for (uint32_t n = 2; n <= 9; n++)
        for (uint32_t s = 0; s < n; s++) {
            uint64_t seen = 0;
            for (uint32_t i = 0; i < n; i++) {
                uint32_t b = vv_erasure_block(n, s, i);
                seen |= UINT64_C(1) << b;
                T_EQ(vv_erasure_member(n, s, b), i);
                T_EQ(vv_erasure_stripe(n, i, b), s);
            }
            T_EQ(seen, (UINT64_C(1) << n) - 1);
        }
    T_EQ(vv_erasure_segment(100, 3, 4096), 4096);
    T_EQ(vv_erasure_segment(3 * 4096 + 1, 3, 1 << 18), 2 * 4096);
    T_EQ(vv_erasure_segment(UINT64_C(7) << 30, 7, 1 << 18), UINT64_C(1) << 30);
    T_EQ(vv_erasure_segment((UINT64_C(7) << 30) + 1, 7, 1 << 18), (UINT64_C(1) << 30) + (1 << 18));
}

int main(void)
{
    T_RUN(every_block_follows_from_others);
    T_RUN(xor_is_exclusive_or);
    T_RUN(missing_blocks_are_zeros);
    T_RUN(invalid_blocks_are_refused);
    T_RUN(blocks_are_dealt_evenly);
    return t_done();
}
