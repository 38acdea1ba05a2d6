/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that make a view. */
#ifndef CLI_REPORT_TRACE_VIEW_PRIVATE_H
#define CLI_REPORT_TRACE_VIEW_PRIVATE_H

#include "base/table.h"
#include "cli/report/trace_view.h"

/* Places of bytes; copies run between two of them. */
enum place { PLACE_APP, PLACE_DEVICE, PLACE_HOST, PLACE_DISK, PLACE_REMOTE, PLACE_NR };

/* All copies from one place to another: what the tables of a report call a hop. */
struct way {
    enum place src, dst;
    const struct vv_span **copies; /* by end */
    size_t nr;
    double best_bps; /* 0: not known */
};

/* Covered time: stretches that do not touch, by start. */
struct cover {
    uint64_t (*at)[2]; /* start, end */
    size_t nr;
};

/* Time for which a thread was blocked for a version. A call is one stretch. Writing into lent memory has two, to
 * reserve and to commit. */
struct stretch {
    uint64_t history, version, start_ns, end_ns;
    bool is_get;
    struct trace_call *call; /* NULL for the stretch before the call itself */
};

struct trace_view {
    const struct vv_timeline *timeline;
    struct trace_page page;
    /* By source and destination; most are empty. */
    struct way ways[PLACE_NR][PLACE_NR];
    /* Every copy of a version's data, by history, version and start. */
    const struct vv_span **by_version;
    size_t nr_by_version;
    struct stretch *stretches;
    size_t nr_stretches;
    bool on_streams; /* a call returned before its own bytes were copied */
    bool has_leases; /* the application wrote or read memory of a tier directly */
    double capacity[PLACE_NR];
    double transit_bytes; /* memory through which data passes a full cache */

    /* Owned data that the page points to. */
    struct trace_call *calls;
    struct lane *lanes;
    const char **labels;
    size_t labels_cap;
    struct vv_table label_numbers;
    struct trace_hop *hops;
    struct trace_tier *tiers;
    struct trace_error *errors;
    struct trace_picture *pictures;
    struct trace_pair *pairs[3];
    double *bound_at_s;
    char bound_how[1024];
    char lost_text[256], helpers_text[256];
    char title[256];
    struct text {
        struct text *next;
        char at[];
    } * texts; /* made here */
};

/* Orders versions by history, then by number: below 0, 0 or above 0. */
static inline int view_compare_version(uint64_t a_history, uint64_t a_version, uint64_t b_history,
                                       uint64_t b_version)
{
    if (a_history != b_history)
        return a_history < b_history ? -1 : 1;
    return a_version < b_version ? -1 : a_version > b_version;
}

enum place view_place(const struct trace_view *view, uint64_t history, int tier);
const char *view_place_name(enum place place);
/* A copy of a text that lives as long as the view; NULL: out of memory. */
const char *view_text(struct trace_view *view, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* trace_ways.c: the copies, their bytes, and the reasons of waits. -ENOMEM. */
VV_WARN_UNUSED int view_find_ways(struct trace_view *view);
VV_WARN_UNUSED int view_make_hops(struct trace_view *view);
VV_WARN_UNUSED int view_find_causes(struct trace_view *view);
/* The highest rate that some ways sustained together. 0: not known. -ENOMEM. */
VV_WARN_UNUSED int view_best_rate(const struct way *const *ways, size_t nr_ways, double *ret_bps);

/* trace_bound.c. Without a bound the page says why. -ENOMEM. */
VV_WARN_UNUSED int view_find_bound(struct trace_view *view);

#endif
