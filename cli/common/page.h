/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Output of SVG and HTML, and the frame of every page that the tool writes: one look, and nothing is loaded from
 * elsewhere. Output is buffered by stdio; the code that opened the file checks ferror() at the end.
 */
#ifndef CLI_COMMON_PAGE_H
#define CLI_COMMON_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Text for elements, and for attributes in quotes of either kind. Control characters, which XML does not allow,
 * become spaces. Bytes that are not UTF-8 become the replacement character. */
void page_text(FILE *f, const char *s);

/* Bytes in base64, on one line. */
void page_base64(FILE *f, const void *bytes, size_t nr_bytes);

/* Writes from the doctype to the start of the body. If `script`, the script that page_end will write may run, and
 * no other. */
void page_begin(FILE *f, const char *title, bool script);
void page_end(FILE *f, bool script);

/* A row of a table: a name and a text. */
void page_pair(FILE *f, const char *name, const char *text, bool code);

/* A time or an amount with its unit, three digits: "1.25 ms", "3.4 GiB", "12.5 GB/s". Returns `buf`, which has the
 * text. */
#define PAGE_AMOUNT 32
char *page_seconds(double s, char *buf, size_t size);
char *page_bytes(double bytes, char *buf, size_t size);
char *page_rate(double bytes_per_s, char *buf, size_t size);

#endif
