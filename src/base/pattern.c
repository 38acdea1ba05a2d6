/* SPDX-License-Identifier: Apache-2.0 */
/* Additions only: the compiler vectorises the loops, and they run at memory speed. */
#include "base/pattern.h"

#include <string.h>

void vv_pattern_fill(void *buf, size_t n, uint64_t seed, uint64_t version, uint64_t offset)
{
    unsigned char *p = buf;
    uint64_t word = vv_pattern_word(seed, version, offset / 8);
    size_t words = n / 8;

    for (size_t k = 0; k < words; k++) {
        uint64_t w = word + k * VV_PATTERN_STEP;

        memcpy(p + 8 * k, &w, 8);
    }
    word += words * VV_PATTERN_STEP;
    memcpy(p + 8 * words, &word, n % 8);
}

/* Without branches, so that it vectorises; the slow path finds the wrong byte. */
static bool words_equal(const unsigned char *p, size_t words, uint64_t word)
{
    uint64_t wrong = 0;

    for (size_t k = 0; k < words; k++) {
        uint64_t w;

        memcpy(&w, p + 8 * k, 8);
        wrong |= w ^ (word + k * VV_PATTERN_STEP);
    }
    return wrong == 0;
}

bool vv_pattern_verify(const void *buf, size_t n, uint64_t seed, uint64_t version, uint64_t offset,
                       size_t *ret_bad)
{
    const unsigned char *p = buf;
    uint64_t word = vv_pattern_word(seed, version, offset / 8);

    for (size_t at = 0; at < n;) {
        unsigned char want[64];
        size_t len = n - at < sizeof(want) ? n - at : sizeof(want);
        size_t words = (n - at) / 8 < 512 ? (n - at) / 8 : 512;

        if (words > 0 && words_equal(p + at, words, word)) {
            at += 8 * words;
            word += words * VV_PATTERN_STEP;
            continue;
        }
        vv_pattern_fill(want, len, seed, version, offset + at);
        for (size_t i = 0; i < len; i++) {
            if (p[at + i] == want[i])
                continue;
            if (ret_bad)
                *ret_bad = at + i;
            return false;
        }
        at += len;
        word += len / 8 * VV_PATTERN_STEP;
    }
    return true;
}

uint64_t vv_pattern_count_bad(const void *buf, size_t n, uint64_t seed, uint64_t version,
                              uint64_t offset)
{
    const unsigned char *p = buf;
    uint64_t word = vv_pattern_word(seed, version, offset / 8), bad = 0;
    size_t words = n / 8;

    for (size_t k = 0; k < words; k++) {
        uint64_t w;

        memcpy(&w, p + 8 * k, 8);
        bad += vv_pattern_bytes_differing(w, word + k * VV_PATTERN_STEP);
    }
    if (n % 8) {
        uint64_t last = word + words * VV_PATTERN_STEP, w = last;

        memcpy(&w, p + 8 * words, n % 8);
        bad += vv_pattern_bytes_differing(w, last);
    }
    return bad;
}
