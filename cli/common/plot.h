/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Charts as SVG: lines over numbers, or bars in groups. A chart has one or more panels side by side
 * and one legend for all of them, so every panel has the same series in the same order. No script,
 * no font and no file from elsewhere; light on a light page and dark on a dark one.
 */
#ifndef CLI_COMMON_PLOT_H
#define CLI_COMMON_PLOT_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/util.h"

enum plot_kind { PLOT_LINES, PLOT_BARS };

/* The style of a line, in addition to its colour. */
enum plot_dash { PLOT_SOLID, PLOT_DASHED, PLOT_DOTTED };

/* As a y: no value was expected, so none is missing. */
#define PLOT_NOTHING INFINITY

struct plot_series {
    const char *name;
    const char *colour; /* of cli/common/palette.h, or a series of its own */
    enum plot_dash dash;
    bool fill;  /* lines: the area below is tinted */
    bool plain; /* lines: no marks at the points, however few they are */
    /* Lines: nr points, x rising. Bars: y[g] belongs to group g. A y that is not finite, or not above 0 on a
     * logarithmic axis, is missing: a cross on the axis, and a gap in a line. */
    const double *x;
    const double *y;
    size_t nr;
    const double *err; /* bars: the error bar, so far up and down; NULL: none */
};

struct plot_panel {
    enum plot_kind kind;
    const char *title; /* NULL: none, the chart has one */
    const char *x_label;
    const char *y_label;       /* with the unit */
    bool log_x;                /* base 2, lines only */
    bool log_y;                /* base 10            */
    const char *const *groups; /* bars: their names */
    size_t nr_groups;
    const struct plot_series *series;
    size_t nr_series;
};

struct plot {
    const char *title;
    const char *note; /* a line below the title; NULL: none */
    double width;     /* in pixels; 0: that of a page. Text keeps its size, so that a chart that is
                       * to be read on a phone has to be narrow. */
    const struct plot_panel *panels;
    size_t nr_panels;
};

/* Writes one <svg> element. -EINVAL: no panel, or panels whose series do not match; -EIO. */
VV_WARN_UNUSED int plot_write(FILE *f, const struct plot *plot);

/* An axis that holds lo to hi, and the step of its ticks: 1, 2 or 5 times a power of ten, at most `most` steps.
 * For tests. */
void plot_axis(double lo, double hi, unsigned most, double *ret_lo, double *ret_hi,
               double *ret_step);

#endif
