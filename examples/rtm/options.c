/* SPDX-License-Identifier: Apache-2.0 */
/* Options have the form --name value or --name=value; other arguments are errors. */
#include "options.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rtm.h"

/* Prints words in lines of 80 columns, after the text printed so far. */
static void words(FILE *out, const char *text)
{
    const int column = 31, last = 80;
    int at = column;

    while (*text) {
        int n = (int)strcspn(text, " ");
        if (at > column && at + 1 + n > last)
            at = fprintf(out, "\n%*s", column, "") - 1;
        else if (at > column)
            at += fprintf(out, " ");
        at += fprintf(out, "%.*s", n, text);
        text += n + (text[n] == ' ');
    }
    fputc('\n', out);
}

static void help(const struct rtm_options *options, FILE *out)
{
    fputs(options->head, out);
    for (int i = 0; i < options->nr; i++) {
        const struct rtm_option *o = &options->table[i];
        char head[64];

        if (!o->name) {
            fprintf(out, "\n%s:\n", o->help);
            continue;
        }
        snprintf(head, sizeof(head), "--%s%s%s", o->name, o->value ? " " : "",
                 o->value ? o->value : "");
        fprintf(out, "  %-28s ", head);
        words(out, o->help);
    }
    fputs(options->tail, out);
}

int rtm_bad_value(const struct rtm_option *o, const char *value, const char *wanted)
{
    return rtm_error(-EINVAL, "--%s %.200s: %s", o->name, value, wanted); /* `wanted` must fit */
}

static int read_count(const struct rtm_option *o, const char *text, int max, int *ret)
{
    char *end;
    double value = strtod(text, &end);

    if (end == text || *end || !(value >= 1 && value <= max) || value != floor(value))
        return rtm_bad_value(o, text, "a whole number of 1 or more is needed");
    *ret = (int)value;
    return 0;
}

static int read_number(const struct rtm_option *o, const char *text, double *ret)
{
    char *end;
    double value = strtod(text, &end);
    bool number = end != text && !*end;

    if (o->kind == POSITIVE && !(number && value > 0 && value < 1e9))
        return rtm_bad_value(o, text, "a number above 0 is needed");
    if (!number || !(value >= 0) || !isfinite(value))
        return rtm_bad_value(o, text, "a number is needed, not below 0");
    *ret = value;
    return 0;
}

/* "host|emulated" is a word and its synonym, which help texts omit. */
static int read_choice(const struct rtm_option *o, const char *text, int *ret)
{
    const char *const *words = o->more;
    char wanted[128] = "one of";

    for (int i = 0; words[i]; i++) {
        size_t n = strcspn(words[i], "|");

        if ((strlen(text) == n && strncmp(words[i], text, n) == 0) ||
            (words[i][n] && strcmp(words[i] + n + 1, text) == 0)) {
            *ret = i;
            return 0;
        }
        snprintf(wanted + strlen(wanted), sizeof(wanted) - strlen(wanted), " %.*s", (int)n,
                 words[i]);
    }
    return rtm_bad_value(o, text, wanted);
}

static int read_size(const struct rtm_option *o, const char *text, uint64_t *ret)
{
    uint64_t bytes;

    if (rtm_parse_bytes(text, &bytes) || bytes == 0)
        return rtm_bad_value(o, text, "a size is needed, as 512K or 4G");
    *ret = bytes;
    return 0;
}

/* `text` is NULL for a flag. */
static int take(const struct rtm_options *options, const struct rtm_option *o, const char *text,
                void *params)
{
    void *to = (char *)params + o->at;

    switch (o->kind) {
    case TEXT:
        if (strlen(text) >= RTM_PATH)
            return rtm_bad_value(o, text, "too long");
        strcpy(to, text);
        return 0;
    case COUNT:
        return read_count(o, text, options->count_max, to);
    case NUMBER:
    case POSITIVE:
        return read_number(o, text, to);
    case SIZE:
        return read_size(o, text, to);
    case CHOICE:
        return read_choice(o, text, to);
    case SET:
    case CLEAR:
        *(bool *)to = o->kind == SET;
        return 0;
    default:
        return options->own(o, text, params);
    }
}

static const struct rtm_option *find(const struct rtm_options *options, const char *name,
                                     size_t length)
{
    for (int i = 0; i < options->nr; i++) {
        const struct rtm_option *o = &options->table[i];

        if (o->name && strlen(o->name) == length && strncmp(o->name, name, length) == 0)
            return o;
    }
    return NULL;
}

/* Reads one option and its value, if it has one. Returns the number of words used, 0 for help. */
static int read_one(const struct rtm_options *options, char **word, FILE *out, void *params)
{
    const char *name = word[0] + 2, *equals = strchr(word[0], '=');
    const struct rtm_option *o =
        strncmp(word[0], "--", 2) == 0
            ? find(options, name, equals ? (size_t)(equals - name) : strlen(name))
            : NULL;
    const char *value = equals ? equals + 1 : word[1];
    int rc;

    if (strcmp(word[0], "-h") == 0 || (o && o->kind == HELP)) {
        if (out)
            help(options, out);
        return 0;
    }
    if (!o)
        return rtm_error(-EINVAL, "%s is no option: --help lists them", word[0]);
    if (!o->value && equals)
        return rtm_bad_value(o, value, "takes no value");
    if (o->value && !value)
        return rtm_error(-EINVAL, "--%s needs a value: %s", o->name, o->value);
    rc = take(options, o, o->value ? value : NULL, params);
    return rc ? rc : o->value && !equals ? 2 : 1;
}

int rtm_options_read(const struct rtm_options *options, int argc, char **argv, FILE *out,
                     void *params)
{
    for (int i = 1; i < argc;) {
        int took = read_one(options, argv + i, out, params);

        if (took <= 0)
            return took < 0 ? took : 1;
        i += took;
    }
    return 0;
}
