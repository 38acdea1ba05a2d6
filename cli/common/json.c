/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/common/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>

#include "base/assert.h"
#include "cli/common/text.h"

static uint64_t level(const struct json *j)
{
    return UINT64_C(1) << j->depth;
}

struct json json_begin(FILE *f, enum json_style style)
{
    return (struct json){.f = f, .style = style};
}

void json_end(struct json *j)
{
    vv_assert(j->depth == 0);
    fputc('\n', j->f);
}

/* The gap replaces the blank behind a comma. */
static void separate(struct json *j, bool comma)
{
    if (comma)
        fputc(',', j->f);
    if (j->gap)
        fputs(j->gap, j->f);
    else if (comma && j->style == JSON_SPACED)
        fputc(' ', j->f);
    j->gap = NULL;
}

static void put_text(struct json *j, const char *text)
{
    if (j->style == JSON_IN_PAGE)
        text_json_in_page(j->f, text);
    else
        text_json(j->f, text);
}

/* Writes the white space and the key before a value. */
static void next(struct json *j, const char *key)
{
    vv_assert(!key == !(j->objects & level(j)));
    separate(j, j->begun & level(j));
    if (j->depth > 0)
        j->begun |= level(j);
    if (!key)
        return;
    put_text(j, key);
    fputs(j->style == JSON_SPACED ? ": " : ":", j->f);
}

static void open_level(struct json *j, const char *key, bool object)
{
    next(j, key);
    fputc(object ? '{' : '[', j->f);
    j->depth++;
    vv_assert(j->depth < 64);
    j->begun &= ~level(j);
    j->objects = object ? j->objects | level(j) : j->objects & ~level(j);
}

void json_object(struct json *j, const char *key)
{
    open_level(j, key, true);
}

void json_array(struct json *j, const char *key)
{
    open_level(j, key, false);
}

void json_close(struct json *j)
{
    vv_assert(j->depth > 0);
    separate(j, false);
    fputc(j->objects & level(j) ? '}' : ']', j->f);
    j->depth--;
}

void json_gap(struct json *j, const char *white)
{
    j->gap = white;
}

void json_text(struct json *j, const char *key, const char *text)
{
    next(j, key);
    if (text)
        put_text(j, text);
    else
        fputs("null", j->f);
}

void json_uint(struct json *j, const char *key, uint64_t value)
{
    next(j, key);
    fprintf(j->f, "%" PRIu64, value);
}

void json_int(struct json *j, const char *key, int64_t value)
{
    next(j, key);
    fprintf(j->f, "%" PRId64, value);
}

void json_real(struct json *j, const char *key, double value)
{
    next(j, key);
    if (isfinite(value))
        fprintf(j->f, "%.9g", value);
    else
        fputs("null", j->f);
}

void json_bool(struct json *j, const char *key, bool value)
{
    next(j, key);
    fputs(value ? "true" : "false", j->f);
}

void json_null(struct json *j, const char *key)
{
    next(j, key);
    fputs("null", j->f);
}

void json_textf(struct json *j, const char *key, const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    json_text(j, key, text);
}

void json_number(struct json *j, const char *key, const char *fmt, ...)
{
    va_list ap;

    next(j, key);
    va_start(ap, fmt);
    vfprintf(j->f, fmt, ap);
    va_end(ap);
}
