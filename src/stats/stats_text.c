/* SPDX-License-Identifier: Apache-2.0 */
#include "stats/stats_text.h"

#include <stdint.h>

/* Length of the character at `s`, with `n` bytes left; 0: not a character, or not printable. */
static size_t character(const unsigned char *s, size_t n)
{
    size_t bytes = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    uint32_t code = bytes == 1 ? s[0] : s[0] & (0xffu >> (bytes + 1));

    if (bytes == 0 || bytes > n || s[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < bytes; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (s[i] & 0x3fu);
    }
    /* An overlong form, a surrogate, a code beyond the end, or a control character. */
    if ((bytes == 3 && code < 0x800) || (bytes == 4 && (code < 0x10000 || code > 0x10ffff)) ||
        (code >= 0xd800 && code < 0xe000) || code < 0x20 || (code >= 0x7f && code < 0xa0))
        return 0;
    return bytes;
}

void vv_stats_text_clean(char *text, size_t size)
{
    size_t n = 0;

    text[size - 1] = '\0';
    while (text[n])
        n++;
    for (size_t i = 0; i < n;) {
        size_t bytes = character((const unsigned char *)text + i, n - i);

        if (bytes == 0)
            text[i] = '?';
        i += bytes ? bytes : 1;
    }
}
