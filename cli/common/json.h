/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A writer of JSON. It keeps track of open objects and arrays, so that commas, quotes and escapes are right by
 * construction:
 *
 *     struct json j = json_begin(stdout, JSON_COMPACT);
 *
 *     json_object(&j, NULL);
 *     json_uint(&j, "bytes", n);
 *     json_array(&j, "names");
 *     json_text(&j, NULL, name);
 *     json_close(&j);
 *     json_close(&j);
 *     json_end(&j);
 *
 * A value has a key in an object and NULL in an array or at the outermost level. Errors are those of the stream.
 */
#ifndef CLI_COMMON_JSON_H
#define CLI_COMMON_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/util.h"

enum json_style {
    JSON_COMPACT, /* {"a":1,"b":2} */
    JSON_SPACED,  /* {"a": 1, "b": 2} */
    JSON_IN_PAGE  /* compact, and no text contains the start or the end of a tag of HTML */
};

struct json {
    FILE *f;
    enum json_style style;
    const char *gap;         /* white space in front of the next value or bracket; NULL: none */
    unsigned depth;          /* objects and arrays that are open, 63 at most */
    uint64_t objects, begun; /* a bit for each: it is an object; it is not empty */
};

struct json json_begin(FILE *f, enum json_style style);
/* All objects and arrays must be closed. Ends the line. */
void json_end(struct json *j);

void json_object(struct json *j, const char *key);
void json_array(struct json *j, const char *key);
void json_close(struct json *j);

/* Puts this white space, such as "\n  ", before the next value or closing bracket. */
void json_gap(struct json *j, const char *white);

void json_text(struct json *j, const char *key, const char *text); /* NULL: null */
void json_uint(struct json *j, const char *key, uint64_t value);
void json_int(struct json *j, const char *key, int64_t value);
void json_real(struct json *j, const char *key, double value); /* %.9g; JSON has no NaN: null */
void json_bool(struct json *j, const char *key, bool value);
void json_null(struct json *j, const char *key);
/* A text in a format of its own. */
VV_PRINTF(3, 4) void json_textf(struct json *j, const char *key, const char *fmt, ...);
/* A number in a format of its own. */
VV_PRINTF(3, 4) void json_number(struct json *j, const char *key, const char *fmt, ...);

#endif
