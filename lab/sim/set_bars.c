/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each bar limits a ratio: blocked time, less an allowance, over a reference. Bars with a quantile limit that quantile
 * over all cases, one limits the share of cases beyond 1.05, and the others limit every case. docs/script.md lists
 * them.
 */
#include "lab/sim/set_bars.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The ratio that a bar limits; not finite: the bar does not apply to the case. */
typedef double ratio_fn(const struct set_bars_case *c);

static double but(double blocked, double allowance, double reference)
{
    return fmax(blocked - allowance, 0) / reference;
}

static double to_bound(const struct set_bars_case *c)
{
    return c->r[SET_BARS_ALL].blocked_s / c->r[SET_BARS_ALL].bound_s;
}

static double to_bound_but_one(const struct set_bars_case *c)
{
    const struct sim_set_result *r = &c->r[SET_BARS_ALL];

    return but(r->blocked_s, r->object_s, r->bound_s);
}

static double to_fewer_hints(const struct set_bars_case *c)
{
    const struct sim_set_result *r = &c->r[SET_BARS_ALL];

    return but(r->blocked_s, r->object_s,
               fmin(c->r[SET_BARS_ONE].blocked_s, c->r[SET_BARS_NONE].blocked_s));
}

static double to_fewer_hints_before(const struct set_bars_case *c)
{
    const struct sim_set_result *r = &c->r[SET_BARS_ALL];

    return but(r->blocked_s, r->object_s, fmin(c->before_one_s, c->before_none_s));
}

static double hints_to_none(const struct set_bars_case *c, unsigned series)
{
    const struct sim_set_result *r = &c->r[series];

    return but(r->blocked_s, r->refill_s, c->r[SET_BARS_NONE].blocked_s);
}

static double late_to_none(const struct set_bars_case *c)
{
    return hints_to_none(c, SET_BARS_LATE);
}

static double partial_to_none(const struct set_bars_case *c)
{
    return hints_to_none(c, SET_BARS_PARTIAL);
}

static double wrong_to_none(const struct set_bars_case *c)
{
    return hints_to_none(c, SET_BARS_WRONG);
}

static double none_to_all(const struct set_bars_case *c, const char *kind)
{
    const struct sim_set_result *r = &c->r[SET_BARS_NONE];

    if (strncmp(c->what, kind, strlen(kind)) != 0)
        return NAN;
    return but(r->blocked_s, r->read_s, c->r[SET_BARS_ALL].blocked_s);
}

static double none_to_all_once(const struct set_bars_case *c)
{
    if (strstr(c->what, "repeat") || strstr(c->what, "keep"))
        return NAN;
    return none_to_all(c, strncmp(c->what, "rev", 3) == 0 && c->what[3] != 'o' ? "rev" : "seq");
}

static double none_to_all_repeated(const struct set_bars_case *c)
{
    return none_to_all(c, "rev, repeat");
}

static double to_others(const struct set_bars_case *c, unsigned own, unsigned others)
{
    double best = INFINITY;

    for (unsigned i = 0; i < 4; i++)
        best = fmin(best, c->r[others + i].blocked_s);
    return but(c->r[own].blocked_s, c->r[own].object_s, best);
}

static double all_to_others(const struct set_bars_case *c)
{
    return to_others(c, SET_BARS_ALL, SET_BARS_OTHERS_ALL);
}

static double none_to_others(const struct set_bars_case *c)
{
    return to_others(c, SET_BARS_NONE, SET_BARS_OTHERS_NONE);
}

static double twice_apart(const struct set_bars_case *c)
{
    return c->r[SET_BARS_TWICE].most_s / c->r[SET_BARS_TWICE].least_s;
}

static double twice_to_before(const struct set_bars_case *c)
{
    return c->r[SET_BARS_TWICE].blocked_s / c->before_twice_s;
}

static const struct {
    const char *name;
    ratio_fn *ratio;
    double limit;
    double quantile; /* 1: every case counts */
    bool share;      /* the limit is for the share of the cases that exceed 1.05 */
} bars[] = {
    {"all hints, blocked over bound, median", to_bound, 1.02, 0.5, false},
    {"all hints, less one object, over bound, 95%", to_bound_but_one, 1.10, 0.95, false},
    {"all hints, less one object, over bound", to_bound_but_one, 1.5, 1, false},
    {"all hints over the better of one and none", to_fewer_hints, 1.05, 1, false},
    {"the same, one and none as they were before", to_fewer_hints_before, 1.05, 1, false},
    {"late hints, less a refill, over none", late_to_none, 1.3, 1, false},
    {"partial hints, less a refill, over none", partial_to_none, 1.3, 1, false},
    {"wrong hints, less a refill, over none", wrong_to_none, 1.3, 1, false},
    {"seq and rev, no hints less a read, over all", none_to_all_once, 1.3, 1, false},
    {"each version three times, none over all", none_to_all_repeated, 1.5, 1, false},
    {"all hints, over the best other policy", all_to_others, 1.05, 1, false},
    {"no hints, share in which another is better", none_to_others, 0.05, 1, true},
    {"two at once, the one over the other", twice_apart, 1.2, 1, false},
    {"two at once, together over before", twice_to_before, 1.05, 1, false},
};

_Static_assert(sizeof(bars) / sizeof(bars[0]) <= SET_BARS_MOST, "there is room for all");

static int compare_reals(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

size_t set_bars_make(const struct set_bars_case *cases, size_t nr_cases,
                     struct set_bar ret_bars[SET_BARS_MOST])
{
    double *ratios = calloc(nr_cases + 1, sizeof(*ratios));
    size_t nr = 0;

    for (size_t b = 0; ratios && b < sizeof(bars) / sizeof(bars[0]); b++) {
        struct set_bar bar = {.name = bars[b].name, .limit = bars[b].limit};
        double most = bars[b].share ? 1.05 : bars[b].limit, worst = 0;

        for (size_t k = 0; k < nr_cases; k++) {
            double ratio = bars[b].ratio(&cases[k]);
            if (!isfinite(ratio))
                continue;
            ratios[bar.cases++] = ratio;
            bar.over += ratio > most;
            bar.worst = ratio > worst ? cases[k].id : bar.worst;
            worst = fmax(worst, ratio);
        }
        if (bar.cases == 0)
            continue;
        qsort(ratios, bar.cases, sizeof(*ratios), compare_reals);
        bar.one_figure = bars[b].share || bars[b].quantile < 1;
        bar.reached =
            bars[b].share
                ? (double)bar.over / (double)bar.cases
                : ratios[VV_MIN((size_t)(bars[b].quantile * (double)bar.cases), bar.cases - 1)];
        ret_bars[nr++] = bar;
    }
    free(ratios);
    return nr;
}

static struct set_bars_case *find_case(struct set_bars_case *cases, size_t nr_cases, uint32_t id)
{
    for (size_t k = 0; k < nr_cases; k++)
        if (cases[k].id == id)
            return &cases[k];
    return NULL;
}

static void take_before(struct set_bars_case *c, const char *series, double blocked_s)
{
    if (strcmp(series, "next/one") == 0)
        c->before_one_s = blocked_s;
    else if (strcmp(series, "next/none") == 0)
        c->before_none_s = blocked_s;
    else if (strcmp(series, "next/all/twice") == 0)
        c->before_twice_s = blocked_s;
}

int set_bars_read_before(const char *path, struct set_bars_case *cases, size_t nr_cases)
{
    FILE *f = fopen(path, "re");
    char line[512];
    size_t rows = 0;

    if (!f)
        return -errno;
    while (fgets(line, sizeof(line), f)) {
        struct set_bars_case *c;
        char series[32];
        double blocked_s;
        uint32_t id;

        if (sscanf(line, "%" SCNu32 ",%31[^,],\"%*[^\"]\",%lf", &id, series, &blocked_s) != 3)
            continue; /* the head, and the failures */
        c = find_case(cases, nr_cases, id);
        if (c)
            take_before(c, series, blocked_s);
        rows++;
    }
    fclose(f);
    return rows ? 0 : -EINVAL;
}
