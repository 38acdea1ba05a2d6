/* SPDX-License-Identifier: Apache-2.0 */
/* XXH3 in pieces has the same value as xxHash. */
#include "base/xxh3.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/util.h"
#include "t.h"

enum { MOST = 300 << 10 };

static unsigned char *random_bytes(size_t n)
{
    struct t_rng rng = {t_seed()};
    uint64_t *words = malloc(n + sizeof(*words));
    T_CHECK(words != NULL);
    for (size_t i = 0; i <= n / sizeof(*words); i++)
        words[i] = t_rng_u64(&rng);
    return (unsigned char *)words;
}

static void every_short_length(void)
{
    unsigned char *p = random_bytes(MOST);
    for (size_t n = 0; n <= 4 * VV_XXH3_BLOCK + 200; n++)
        T_EQ(vv_xxh3(p, n), vv_hash64(p, n));
    free(p);
}

static void around_pages(void)
{
    static const size_t near[] = {4096, 64 << 10, 256 << 10};
    unsigned char *p = random_bytes(MOST);
    for (size_t i = 0; i < VV_ARRAY_SIZE(near); i++)
        for (size_t n = near[i] - 70; n <= near[i] + 70; n++)
            T_EQ(vv_xxh3(p, n), vv_hash64(p, n));
    free(p);
}

/* The order of a kernel: sums of all blocks first, in any order, the chain afterwards. */
static void in_parallel_pieces(void)
{
    size_t n = (100 << 10) + 12345, blocks = vv_xxh3_blocks(n);
    unsigned char *p = random_bytes(n);
    uint64_t(*sum)[VV_XXH3_LANES] = calloc(blocks, sizeof(*sum));
    uint64_t acc[VV_XXH3_LANES];
    T_CHECK(sum != NULL);
    for (size_t k = blocks * VV_XXH3_LANES; k-- > 0;)
        sum[k / VV_XXH3_LANES][k % VV_XXH3_LANES] =
            vv_xxh3_stripes(p + k / VV_XXH3_LANES * VV_XXH3_BLOCK, VV_XXH3_BLOCK_STRIPES,
                            (unsigned)(k % VV_XXH3_LANES));
    for (unsigned i = 0; i < VV_XXH3_LANES; i++) {
        acc[i] = vv_xxh3_start(i);
        for (size_t b = 0; b < blocks; b++)
            acc[i] = vv_xxh3_scramble(acc[i] + sum[b][i], i);
        acc[i] += vv_xxh3_rest(p, n, i);
    }
    T_EQ(vv_xxh3_finish(acc, n), vv_hash64(p, n));
    free(sum);
    free(p);
}

static void one_bit_matters(void)
{
    size_t n = 64 << 10;
    unsigned char *p = random_bytes(n);
    uint64_t before = vv_xxh3(p, n);
    for (size_t at = 0; at < n; at += 997) {
        p[at] ^= 1;
        T_CHECK(vv_xxh3(p, n) != before);
        p[at] ^= 1;
    }
    T_EQ(vv_xxh3(p, n), before);
    free(p);
}

/* Pieces of any length, one after the other; and its value may be asked for in between. */
static void as_a_stream(void)
{
    struct t_rng rng = {t_seed()};
    unsigned char *p = random_bytes(MOST);
    for (int round = 0; round < 50; round++) {
        struct vv_hash_stream *s = vv_hash_stream_new();
        size_t done = 0;
        T_CHECK(s != NULL);
        T_EQ(vv_hash_stream_value(s), vv_hash64(p, 0));
        while (done < MOST) {
            size_t n = t_rng_below(&rng, (uint64_t)1 << t_rng_below(&rng, 17));
            n = VV_MIN(n, MOST - done);
            vv_hash_stream_add(s, p + done, n);
            done += n;
            if (t_rng_below(&rng, 8) == 0)
                T_EQ(vv_hash_stream_value(s), vv_hash64(p, done));
        }
        T_EQ(vv_hash_stream_value(s), vv_hash64(p, MOST));
        vv_hash_stream_free(s);
    }
    vv_hash_stream_free(NULL);
    free(p);
}

int main(void)
{
    T_RUN(every_short_length);
    T_RUN(around_pages);
    T_RUN(in_parallel_pieces);
    T_RUN(one_bit_matters);
    T_RUN(as_a_stream);
    return t_done();
}
