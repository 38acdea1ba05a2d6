/* SPDX-License-Identifier: Apache-2.0 */
/*
 * XXH3-64 in pieces, computed by many threads. A test checks that the value is that of vv_hash64(). Written in
 * the part of C that also compiles as CUDA.
 *
 * Inputs over 240 bytes are divided into blocks of 16 stripes of 64 bytes. Within a block the eight
 * accumulators are sums, and each term depends only on its own words of the input: any number of threads can
 * compute the terms in any order. Only the step between two blocks (the scrambling) is sequential, with a few
 * operations a block. So:
 *
 *   1. for each block b and lane i, in parallel: vv_xxh3_stripes(p + b * BLOCK, 16, i)
 *   2. for each lane i, block after block: acc = vv_xxh3_scramble(acc + those sums, i)
 *   3. the stripes left over and the last one, then vv_xxh3_finish()
 *
 * A word of the input adds to its own lane (multiplied with a key) and to its neighbour's (unchanged).
 * vv_xxh3_stripes reads both words itself, so that threads need not exchange values.
 */
#ifndef VV_BASE_XXH3_H
#define VV_BASE_XXH3_H

#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define VV_XXH3_FN    static __device__ inline
#define VV_XXH3_TABLE static __device__ __constant__ const
#else
#define VV_XXH3_FN    static inline
#define VV_XXH3_TABLE static const
#endif

enum {
    VV_XXH3_LANES = 8,
    VV_XXH3_STRIPE = 64,
    VV_XXH3_BLOCK = 1024, /* bytes */
    VV_XXH3_BLOCK_STRIPES = 16,
    VV_XXH3_SHORT_MAX = 240, /* bytes; longer inputs are cut in blocks */
};

#define VV_XXH3_P32_1 UINT64_C(0x9E3779B1)
#define VV_XXH3_P32_2 UINT64_C(0x85EBCA77)
#define VV_XXH3_P32_3 UINT64_C(0xC2B2AE3D)
#define VV_XXH3_P64_1 UINT64_C(0x9E3779B185EBCA87)
#define VV_XXH3_P64_2 UINT64_C(0xC2B2AE3D27D4EB4F)
#define VV_XXH3_P64_3 UINT64_C(0x165667B19E3779F9)
#define VV_XXH3_P64_4 UINT64_C(0x85EBCA77C2B2AE63)
#define VV_XXH3_P64_5 UINT64_C(0x27D4EB2F165667C5)

/* The 192 bytes that the algorithm mixes in, as little-endian words. */
VV_XXH3_TABLE uint64_t vv_xxh3_secret[24] = {
    0xbe4ba423396cfeb8u, 0x1cad21f72c81017cu, 0xdb979083e96dd4deu, 0x1f67b3b7a4a44072u,
    0x78e5c0cc4ee679cbu, 0x2172ffcc7dd05a82u, 0x8e2443f7744608b8u, 0x4c263a81e69035e0u,
    0xcb00c391bb52283cu, 0xa32e531b8b65d088u, 0x4ef90da297486471u, 0xd8acdea946ef1938u,
    0x3f349ce33f76faa8u, 0x1d4f0bc7c7bbdcf9u, 0x3159b4cd4be0518au, 0x647378d9c97e9fc8u,
    0xc3ebd33483acc5eau, 0xeb6313faffa081c5u, 0x49daf0b751dd0d17u, 0x9e68d429265516d3u,
    0xfca1477d58be162bu, 0xce31d07ad1b8f88fu, 0x280416958f3acb45u, 0x7e404bbbcafbd7afu,
};

/* Eight bytes of the secret, starting at any byte. */
VV_XXH3_FN uint64_t vv_xxh3_key(unsigned at)
{
    unsigned word = at / 8, shift = at % 8 * 8;
    uint64_t low = vv_xxh3_secret[word] >> shift;
    return shift == 0 ? low : low | vv_xxh3_secret[word + 1] << (64 - shift);
}

VV_XXH3_FN uint64_t vv_xxh3_read32(const unsigned char *p)
{
    return (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24;
}

VV_XXH3_FN uint64_t vv_xxh3_read64(const unsigned char *p)
{
    return vv_xxh3_read32(p) | vv_xxh3_read32(p + 4) << 32;
}

VV_XXH3_FN uint64_t vv_xxh3_rotl(uint64_t x, unsigned n)
{
    return x << n | x >> (64 - n);
}

VV_XXH3_FN uint64_t vv_xxh3_swap(uint64_t x)
{
    x = (x & UINT64_C(0x00ff00ff00ff00ff)) << 8 | (x >> 8 & UINT64_C(0x00ff00ff00ff00ff));
    x = (x & UINT64_C(0x0000ffff0000ffff)) << 16 | (x >> 16 & UINT64_C(0x0000ffff0000ffff));
    return x << 32 | x >> 32;
}

/* The product of two words, with its halves folded into one word. */
VV_XXH3_FN uint64_t vv_xxh3_fold(uint64_t a, uint64_t b)
{
    uint64_t al = (uint32_t)a, ah = a >> 32, bl = (uint32_t)b, bh = b >> 32;
    uint64_t mid = ah * bl + (al * bl >> 32), mid2 = al * bh + (uint32_t)mid;
    return (ah * bh + (mid >> 32) + (mid2 >> 32)) ^ (a * b);
}

VV_XXH3_FN uint64_t vv_xxh3_avalanche(uint64_t h)
{
    h ^= h >> 37;
    h *= UINT64_C(0x165667919E3779F9);
    return h ^ h >> 32;
}

/* ---- up to 240 bytes ---- */

VV_XXH3_FN uint64_t vv_xxh3_avalanche_tiny(uint64_t h)
{
    h ^= h >> 33;
    h *= VV_XXH3_P64_2;
    h ^= h >> 29;
    h *= VV_XXH3_P64_3;
    return h ^ h >> 32;
}

VV_XXH3_FN uint64_t vv_xxh3_tiny(const unsigned char *p, size_t n)
{
    if (n == 0)
        return vv_xxh3_avalanche_tiny(vv_xxh3_key(56) ^ vv_xxh3_key(64));
    if (n <= 3) {
        uint64_t word = (uint64_t)p[0] << 16 | (uint64_t)p[n / 2] << 24 | p[n - 1] | n << 8;
        uint64_t key = (uint32_t)vv_xxh3_key(0) ^ (uint32_t)vv_xxh3_key(4);
        return vv_xxh3_avalanche_tiny(word ^ key);
    }
    if (n <= 8) {
        uint64_t h = vv_xxh3_read32(p + n - 4) + (vv_xxh3_read32(p) << 32);
        h ^= vv_xxh3_key(8) ^ vv_xxh3_key(16);
        h ^= vv_xxh3_rotl(h, 49) ^ vv_xxh3_rotl(h, 24);
        h *= UINT64_C(0x9FB21C651E98DF25);
        h ^= (h >> 35) + n;
        h *= UINT64_C(0x9FB21C651E98DF25);
        return h ^ h >> 28;
    }
    uint64_t low = vv_xxh3_read64(p) ^ vv_xxh3_key(24) ^ vv_xxh3_key(32);
    uint64_t high = vv_xxh3_read64(p + n - 8) ^ vv_xxh3_key(40) ^ vv_xxh3_key(48);
    return vv_xxh3_avalanche(n + vv_xxh3_swap(low) + high + vv_xxh3_fold(low, high));
}

VV_XXH3_FN uint64_t vv_xxh3_mix16(const unsigned char *p, unsigned key)
{
    return vv_xxh3_fold(vv_xxh3_read64(p) ^ vv_xxh3_key(key),
                        vv_xxh3_read64(p + 8) ^ vv_xxh3_key(key + 8));
}

/* For n up to VV_XXH3_SHORT_MAX. */
VV_XXH3_FN uint64_t vv_xxh3_short(const unsigned char *p, size_t n)
{
    uint64_t h = n * VV_XXH3_P64_1;
    if (n <= 16)
        return vv_xxh3_tiny(p, n);
    if (n <= 128) {
        /* Pairs of 16 bytes, from both ends towards the middle. */
        for (unsigned i = 0; i < (unsigned)(n - 1) / 32 + 1; i++) {
            h += vv_xxh3_mix16(p + 16 * i, 32 * i);
            h += vv_xxh3_mix16(p + n - 16 * (i + 1), 32 * i + 16);
        }
        return vv_xxh3_avalanche(h);
    }
    for (unsigned i = 0; i < 8; i++)
        h += vv_xxh3_mix16(p + 16 * i, 16 * i);
    h = vv_xxh3_avalanche(h);
    for (unsigned i = 8; i < (unsigned)n / 16; i++)
        h += vv_xxh3_mix16(p + 16 * i, 16 * (i - 8) + 3);
    return vv_xxh3_avalanche(h + vv_xxh3_mix16(p + n - 16, 119));
}

/* ---- over 240 bytes ---- */

VV_XXH3_FN uint64_t vv_xxh3_start(unsigned lane)
{
    switch (lane) {
    case 0:
        return VV_XXH3_P32_3;
    case 1:
        return VV_XXH3_P64_1;
    case 2:
        return VV_XXH3_P64_2;
    case 3:
        return VV_XXH3_P64_3;
    case 4:
        return VV_XXH3_P64_4;
    case 5:
        return VV_XXH3_P32_2;
    case 6:
        return VV_XXH3_P64_5;
    default:
        return VV_XXH3_P32_1;
    }
}

/* The term that one stripe adds to a lane, with the key bytes at `key`. */
VV_XXH3_FN uint64_t vv_xxh3_term(uint64_t word, uint64_t neighbour, unsigned key)
{
    uint64_t keyed = word ^ vv_xxh3_key(key);
    return neighbour + (uint32_t)keyed * (keyed >> 32);
}

/* Input is read by words, so p is 8-byte aligned. */
VV_XXH3_FN uint64_t vv_xxh3_stripes(const unsigned char *p, unsigned stripes, unsigned lane)
{
    const uint64_t *words = (const uint64_t *)p;
    uint64_t sum = 0;
    for (unsigned s = 0; s < stripes; s++)
        sum += vv_xxh3_term(words[8 * s + lane], words[8 * s + (lane ^ 1)], 8 * (s + lane));
    return sum;
}

VV_XXH3_FN uint64_t vv_xxh3_scramble(uint64_t acc, unsigned lane)
{
    acc ^= acc >> 47;
    acc ^= vv_xxh3_key(128 + 8 * lane);
    return acc * VV_XXH3_P32_1;
}

/* The number of blocks that are scrambled. The stripes after them, and the last stripe, which ends with the input
 * and may overlap others, are added by vv_xxh3_rest. */
VV_XXH3_FN size_t vv_xxh3_blocks(size_t n)
{
    return (n - 1) / VV_XXH3_BLOCK;
}

/* The sum that the bytes after the last full block add to a lane. p is the whole input, 8-byte aligned. */
VV_XXH3_FN uint64_t vv_xxh3_rest(const unsigned char *p, size_t n, unsigned lane)
{
    size_t blocks = vv_xxh3_blocks(n);
    unsigned stripes = (unsigned)((n - 1) / VV_XXH3_STRIPE - blocks * VV_XXH3_BLOCK_STRIPES);
    const unsigned char *last = p + n - VV_XXH3_STRIPE;
    return vv_xxh3_stripes(p + blocks * VV_XXH3_BLOCK, stripes, lane) +
           vv_xxh3_term(vv_xxh3_read64(last + 8 * lane), vv_xxh3_read64(last + 8 * (lane ^ 1)),
                        121 + 8 * lane);
}

VV_XXH3_FN uint64_t vv_xxh3_finish(const uint64_t acc[VV_XXH3_LANES], size_t n)
{
    uint64_t h = n * VV_XXH3_P64_1;
    for (unsigned i = 0; i < VV_XXH3_LANES; i += 2)
        h += vv_xxh3_fold(acc[i] ^ vv_xxh3_key(11 + 8 * i), acc[i + 1] ^ vv_xxh3_key(19 + 8 * i));
    return vv_xxh3_avalanche(h);
}

/* The whole hash by one thread. p is 8-byte aligned. */
VV_XXH3_FN uint64_t vv_xxh3(const void *data, size_t n)
{
    const unsigned char *p = (const unsigned char *)data;
    uint64_t acc[VV_XXH3_LANES];
    if (n <= VV_XXH3_SHORT_MAX)
        return vv_xxh3_short(p, n);
    for (unsigned i = 0; i < VV_XXH3_LANES; i++) {
        acc[i] = vv_xxh3_start(i);
        for (size_t b = 0; b < vv_xxh3_blocks(n); b++)
            acc[i] = vv_xxh3_scramble(
                acc[i] + vv_xxh3_stripes(p + b * VV_XXH3_BLOCK, VV_XXH3_BLOCK_STRIPES, i), i);
        acc[i] += vv_xxh3_rest(p, n, i);
    }
    return vv_xxh3_finish(acc, n);
}

#endif
