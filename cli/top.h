/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of `varve top`. */
#ifndef CLI_TOP_H
#define CLI_TOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"
#include "stats/stats_page.h"

/* The requested pages, by process and context. */
struct top_pages {
    const char *folder; /* NULL: the default folders */
    uint64_t pid;       /* 0: all */
    struct vv_stats_page *page;
    size_t n, cap;
    /* Results of the last scan. */
    unsigned removed; /* pages of processes that have ended; removed */
    unsigned damaged;
    char trouble[256]; /* about the first page that could not be read */
};

/* Scans again. -ENOMEM, or the folder cannot be read. Calls `tell` for each page that is removed or cannot be
 * read; `tell` may be NULL. */
int top_look(struct top_pages *pages, void (*tell)(const struct vv_stats_page *page));
void top_pages_free(struct top_pages *pages);

/* ---- top_view.c: text, cut to a width ---- */

struct top_text {
    char *data; /* rows, separated by newlines */
    size_t bytes, cap, rows;
    unsigned width; /* in characters */
    bool bold;      /* headings, by escape sequences */
    bool failed;    /* out of memory */
};

void top_text_free(struct top_text *t);
/* Adds a row, without newline. */
void top_row(struct top_text *t, const char *fmt, ...) VV_PRINTF(2, 3);
void top_view_process(struct top_text *t, const struct vv_stats_page *page);
/* Marks `selected`; SIZE_MAX: none. */
void top_view_list(struct top_text *t, const struct top_pages *pages, size_t selected);
void top_view_help(struct top_text *t);

/* ---- top_term.c ---- */

/* Shows them until a key or a signal ends it. Returns an exit status. */
int top_terminal(struct top_pages *pages, double interval_s);
/* True if there is a terminal to draw on. */
bool top_has_terminal(void);
/* The width of the terminal, or COLUMNS, or 80. */
unsigned top_width(void);

#endif
