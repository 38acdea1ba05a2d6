/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What SVG and HTML need beyond fprintf, and the frame of every page that the tool writes: one look,
 * and no way to load anything from elsewhere. Output is buffered by stdio; who opened the file looks
 * at ferror() in the end.
 */
#ifndef CLI_COMMON_PAGE_H
#define CLI_COMMON_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Text, fit for elements and for attributes in quotes of either kind. Control characters, which XML
 * does not know, become spaces, and bytes that are no UTF-8 the replacement character. */
void page_text(FILE *f, const char *s);

/* Bytes in base64, on one line. */
void page_base64(FILE *f, const void *bytes, size_t nr_bytes);

/* From the doctype to the start of the body. With `script`, the one that page_end will write may
 * run; no other can. */
void page_begin(FILE *f, const char *title, bool script);
void page_end(FILE *f, bool script);

/* A row of a table: a name and a text. */
void page_pair(FILE *f, const char *name, const char *text, bool code);

/* A time or an amount with its unit, three digits: "1.25 ms", "3.4 GiB", "12.5 GB/s". The text is
 * in `buf`, which is returned. */
#define PAGE_AMOUNT 32
char *page_seconds(double s, char *buf, size_t size);
char *page_bytes(double bytes, char *buf, size_t size);
char *page_rate(double bytes_per_s, char *buf, size_t size);

#endif
