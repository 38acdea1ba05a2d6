/* SPDX-License-Identifier: Apache-2.0 */
/* Text for files that other programs read. Bytes that are not UTF-8 become U+FFFD: a name may have any bytes, and
 * one bad byte would make a whole JSON or SVG file unreadable. */
#ifndef CLI_COMMON_TEXT_H
#define CLI_COMMON_TEXT_H

#include <stdio.h>

/* A JSON string, quotes included. */
void text_json(FILE *f, const char *s);
/* The same for a script in a page: no text contains the start or the end of a tag of HTML. */
void text_json_in_page(FILE *f, const char *s);
/* For elements of SVG and HTML, and for attributes in quotes. Control characters, which XML does not allow, become
 * spaces. */
void text_xml(FILE *f, const char *s);
/* For a terminal: control characters, which it could execute, become "?". */
void text_plain(FILE *f, const char *s);
/* A field of a CSV file, in quotes if it needs them. */
void text_csv(FILE *f, const char *s);

#endif
