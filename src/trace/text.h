/* SPDX-License-Identifier: Apache-2.0 */
/* Text for files that others read. What is not UTF-8 becomes U+FFFD: a name may be any bytes, and one
 * bad byte would make a whole JSON or SVG file unreadable. */
#ifndef VV_TRACE_TEXT_H
#define VV_TRACE_TEXT_H

#include <stdio.h>

/* A JSON string, quotes included. */
void vv_text_json(FILE *f, const char *s);
/* For elements of SVG and HTML, and for their attributes in quotes. Control characters, which
 * XML does not know, become spaces. */
void vv_text_xml(FILE *f, const char *s);
/* For a terminal: control characters, which it might obey, become "?". */
void vv_text_plain(FILE *f, const char *s);
/* The character at `s`, which is not at its end, as it is; U+FFFD where there is none. Returns how
 * many bytes it has. */
size_t vv_text_character(FILE *f, const char *s);
/* A field of a CSV file, in quotes if it needs them. */
void vv_text_csv(FILE *f, const char *s);

#endif
