/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Word k of an object is base + k * STEP, base being a hash of seed and version. STEP is odd, so no
 * two words of an object are equal; the sequences of two versions would have to meet by a chance of
 * 2^-64 a word. Additions only: the compiler vectorises both loops, and they run at memory speed.
 */
#include "sim/pattern.h"

#include <string.h>

#define STEP UINT64_C(0x9e3779b97f4a7c15)

static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static uint64_t first_word(uint64_t seed, uint64_t version, uint64_t offset)
{
    return mix(mix(seed + STEP) ^ version) + offset / 8 * STEP;
}

void pattern_fill(void *buf, size_t n, uint64_t seed, uint64_t version, uint64_t offset)
{
    unsigned char *p = buf;
    uint64_t word = first_word(seed, version, offset);
    size_t words = n / 8;

    for (size_t k = 0; k < words; k++) {
        uint64_t w = word + k * STEP;

        memcpy(p + 8 * k, &w, 8);
    }
    word += words * STEP;
    memcpy(p + 8 * words, &word, n % 8);
}

/* No branch inside, so that it vectorises; which byte is wrong is left to the slow path. */
static bool words_equal(const unsigned char *p, size_t words, uint64_t word)
{
    uint64_t wrong = 0;

    for (size_t k = 0; k < words; k++) {
        uint64_t w;

        memcpy(&w, p + 8 * k, 8);
        wrong |= w ^ (word + k * STEP);
    }
    return wrong == 0;
}

bool pattern_verify(const void *buf, size_t n, uint64_t seed, uint64_t version, uint64_t offset,
                    size_t *ret_bad)
{
    const unsigned char *p = buf;
    uint64_t word = first_word(seed, version, offset);

    for (size_t at = 0; at < n;) {
        unsigned char want[64];
        size_t len = n - at < sizeof(want) ? n - at : sizeof(want);
        size_t words = (n - at) / 8 < 512 ? (n - at) / 8 : 512;

        if (words > 0 && words_equal(p + at, words, word)) {
            at += 8 * words;
            word += words * STEP;
            continue;
        }
        pattern_fill(want, len, seed, version, offset + at);
        for (size_t i = 0; i < len; i++) {
            if (p[at + i] == want[i])
                continue;
            if (ret_bad)
                *ret_bad = at + i;
            return false;
        }
        at += len;
        word += len / 8 * STEP;
    }
    return true;
}
