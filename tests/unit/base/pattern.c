/* SPDX-License-Identifier: Apache-2.0 */
/* Every single wrong byte is found, and so is right data in the wrong place. */
#include "base/pattern.h"

#include <stdlib.h>

#include "t.h"

static void every_length_and_byte(void)
{
    static unsigned char buf[5000], whole[5000];
    static const size_t lengths[] = {0, 1, 7, 8, 9, 63, 64, 65, 4095, 4096, 4097, 5000};

    vv_pattern_fill(whole, sizeof(whole), 1, 2, 0);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        size_t n = lengths[i], bad = 12345;

        memset(buf, 0xee, sizeof(buf));
        vv_pattern_fill(buf, n, 1, 2, 0);
        T_CHECK(memcmp(buf, whole, n) == 0);
        T_CHECK(n == sizeof(buf) || buf[n] == 0xee);
        T_CHECK(vv_pattern_verify(buf, n, 1, 2, 0, &bad));
        T_EQ(bad, 12345);
        for (size_t at = 0; at < n; at += 1 + at / 97) {
            buf[at] ^= 1;
            T_CHECK(!vv_pattern_verify(buf, n, 1, 2, 0, &bad));
            T_EQ(bad, at);
            buf[at] ^= 1;
        }
    }
}

static void wrong_bytes_are_counted(void)
{
    unsigned char buf[1003];

    for (size_t n = 990; n <= sizeof(buf); n++) {
        vv_pattern_fill(buf, n, 3, 4, 80);
        T_EQ(vv_pattern_count_bad(buf, n, 3, 4, 80), 0);
        for (size_t at = 0; at < n; at++) {
            buf[at] ^= (unsigned char)(1U << at % 8);
            T_EQ(vv_pattern_count_bad(buf, n, 3, 4, 80), at + 1);
        }
    }
    T_EQ(vv_pattern_count_bad(buf, 0, 3, 4, 80), 0);
}

static void parts_fit_together(void)
{
    unsigned char whole[1000], part[1000];

    vv_pattern_fill(whole, sizeof(whole), 9, 9, 4096);
    vv_pattern_fill(part, 400, 9, 9, 4096);
    vv_pattern_fill(part + 400, 600, 9, 9, 4096 + 400);
    T_CHECK(memcmp(whole, part, sizeof(whole)) == 0);
    T_CHECK(vv_pattern_verify(whole + 400, 600, 9, 9, 4496, NULL));
}

static void another_version_or_place(void)
{
    unsigned char buf[4096];

    vv_pattern_fill(buf, sizeof(buf), 5, 7, 0);
    T_CHECK(!vv_pattern_verify(buf, sizeof(buf), 5, 8, 0, NULL));
    T_CHECK(!vv_pattern_verify(buf, sizeof(buf), 6, 7, 0, NULL));
    T_CHECK(!vv_pattern_verify(buf, sizeof(buf), 5, 7, 4096, NULL));
}

int main(void)
{
    T_RUN(every_length_and_byte);
    T_RUN(wrong_bytes_are_counted);
    T_RUN(parts_fit_together);
    T_RUN(another_version_or_place);
    return t_done();
}
