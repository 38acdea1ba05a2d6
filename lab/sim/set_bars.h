/* SPDX-License-Identifier: Apache-2.0 */
/* Goals of the policy on the random set: each bar is a limit, and the figure that is compared with it. */
#ifndef LAB_SIM_SET_BARS_H
#define LAB_SIM_SET_BARS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lab/sim/set.h"

/* The ways to run each case, in this order. */
#define SET_BARS_SERIES                                                                       \
    "next/all,next/one,next/none,next/late,next/partial,next/wrong,next/all/twice,score/all," \
    "score-now/all,fifo/all,lru/all,score/none,score-now/none,fifo/none,lru/none"

enum {
    SET_BARS_ALL,
    SET_BARS_ONE,
    SET_BARS_NONE,
    SET_BARS_LATE,
    SET_BARS_PARTIAL,
    SET_BARS_WRONG,
    SET_BARS_TWICE,
    SET_BARS_OTHERS_ALL, /* the other policies */
    SET_BARS_OTHERS_NONE = SET_BARS_OTHERS_ALL + 4,
    SET_BARS_NR_SERIES = SET_BARS_OTHERS_NONE + 4
};

/* A case, run in each way. A failed run is not finite. */
struct set_bars_case {
    uint32_t id;
    const char *what;
    struct sim_set_result r[SET_BARS_NR_SERIES];
    /* Blocked time by the reference build; not finite: it is not known. */
    double before_one_s, before_none_s, before_twice_s;
};

struct set_bar {
    const char *name;
    double limit, reached;
    size_t cases, over; /* counted, and beyond the limit; a bar of a quantile is one of all cases */
    uint32_t worst;     /* the case that is farthest from the limit */
    bool one_figure;    /* a quantile or a share, which has no single case */
};

/* Returns the number of bars; bars without a case are left out. */
#define SET_BARS_MOST 16
size_t set_bars_make(const struct set_bars_case *cases, size_t nr_cases,
                     struct set_bar ret_bars[SET_BARS_MOST]);

/* Blocked times of the cases from the CSV of 'varve sim set'. -EINVAL: the file is not such a CSV. */
VV_WARN_UNUSED int set_bars_read_before(const char *path, struct set_bars_case *cases,
                                        size_t nr_cases);

#endif
