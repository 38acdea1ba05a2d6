/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/common/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd"

/* The number of bytes of the character at `s`; 0: it is not a character. Overlong forms, surrogates and numbers
 * beyond Unicode are not. */
static size_t utf8_length(const char *s)
{
    const unsigned char *u = (const unsigned char *)s;
    size_t n = u[0] < 0x80 ? 1 : u[0] < 0xc2 ? 0 : u[0] < 0xe0 ? 2 : u[0] < 0xf0 ? 3 : 4;

    if (u[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((u[i] & 0xc0) != 0x80)
            return 0; /* the end of the string included */
    if ((u[0] == 0xe0 && u[1] < 0xa0) || (u[0] == 0xed && u[1] > 0x9f) ||
        (u[0] == 0xf0 && u[1] < 0x90) || (u[0] == 0xf4 && u[1] > 0x8f))
        return 0;
    return n;
}

/* The character at `s`, which is not the end, or U+FFFD if it is not a character. Returns the number of bytes. */
static size_t put_character(FILE *f, const char *s)
{
    size_t n = utf8_length(s);

    if (n == 0) {
        fputs(REPLACEMENT, f);
        return 1;
    }
    fwrite(s, 1, n, f);
    return n;
}

/* `also`: characters that are escaped in addition to those of JSON. */
static void put_json(FILE *f, const char *s, const char *also)
{
    fputc('"', f);
    while (*s) {
        unsigned char c = (unsigned char)*s;

        if (c == '"' || c == '\\')
            fprintf(f, "\\%c", c);
        else if (c < 0x20 || c == 0x7f || strchr(also, c))
            fprintf(f, "\\u%04x", c);
        else {
            s += put_character(f, s);
            continue;
        }
        s++;
    }
    fputc('"', f);
}

void text_json(FILE *f, const char *s)
{
    put_json(f, s, "");
}

void text_json_in_page(FILE *f, const char *s)
{
    put_json(f, s, "<>&");
}

void text_xml(FILE *f, const char *s)
{
    while (*s) {
        unsigned char c = (unsigned char)*s;
        const char *name = c == '&'    ? "&amp;"
                           : c == '<'  ? "&lt;"
                           : c == '>'  ? "&gt;"
                           : c == '"'  ? "&quot;"
                           : c == '\'' ? "&#39;"
                                       : NULL;

        if (name)
            fputs(name, f);
        else if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
            fputc(' ', f);
        else {
            s += put_character(f, s);
            continue;
        }
        s++;
    }
}

void text_plain(FILE *f, const char *s)
{
    while (*s) {
        unsigned char c = (unsigned char)s[0], d = (unsigned char)s[1];
        bool second = c == 0xc2 && d >= 0x80 && d < 0xa0; /* controls of two bytes */

        if (c < 0x20 || c == 0x7f || second) {
            fputc('?', f);
            s += second ? 2 : 1;
        } else {
            s += put_character(f, s);
        }
    }
}

void text_csv(FILE *f, const char *s)
{
    bool quoted = s[strcspn(s, ",\"\r\n")] != '\0';

    if (quoted)
        fputc('"', f);
    while (*s) {
        if (*s == '"')
            fputc('"', f);
        s += put_character(f, s);
    }
    if (quoted)
        fputc('"', f);
}
