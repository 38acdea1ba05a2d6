/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Charts of `varve bench blocks`, as paper 004's Figures 1 and 2 (the wave), 3 and 4 (the survey), and a page that
 * compares them with the paper's.
 */
#ifndef LAB_OOC_OOC_PAGE_H
#define LAB_OOC_OOC_PAGE_H

#include <stdio.h>

#include "lab/ooc/ooc_command.h"

enum { OOC_FIGURES = 2 }; /* of an experiment */

/* The number of figures; 0 if no way has a cache. */
unsigned ooc_figures(const struct ooc_report *r);
/* The file of a figure. */
const char *ooc_figure_file(const struct ooc_options *o, unsigned i);
/* Ways without a cache, and resident, whose cache holds everything, are left out. -ENOMEM, -EIO. */
int ooc_figure_draw(FILE *f, const struct ooc_options *o, const struct ooc_report *r, unsigned i);

/* The whole page. -ENOMEM, -EIO. */
int ooc_page_write(FILE *f, const struct ooc_options *o, const struct ooc_report *r);

/* Blocks, or tables, that were brought, in all and for each refresh: a round of a kernel, or a launch. */
uint64_t ooc_updates(const struct ooc_options *o, const struct ooc_way *w);
double ooc_per_refresh(uint64_t count, const struct ooc_way *w);
/* The share of time spent on managing the cache. */
double ooc_managing(const struct ooc_way *w);
/* The share of time for which the cache was full, to a thousandth; and its largest content. */
double ooc_full(const struct ooc_way *w);
double ooc_most(const struct ooc_way *w);

#endif
