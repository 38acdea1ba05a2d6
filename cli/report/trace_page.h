/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report of one run: a page that needs no other file. This header has the content of the page, without its
 * source; cli/report/trace_view.h makes it from a trace.
 */
#ifndef CLI_REPORT_TRACE_PAGE_H
#define CLI_REPORT_TRACE_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/util.h"
#include "cli/common/palette.h"
#include "cli/report/bound.h"

/* Activities of a lane. X(name, colour, title). */
#define SPAN_KINDS(X)                                               \
    X(COMPUTE, COLOUR_COMPUTE, "computing")                         \
    X(PHASE, COLOUR_PHASE, "phase of the application")              \
    X(WRITE, COLOUR_WRITE, "blocked in a checkpoint")               \
    X(READ, COLOUR_READ, "blocked in a restore")                    \
    X(WAIT, COLOUR_WAIT, "waiting for a level, a flush or the end") \
    X(DOWN, COLOUR_DOWN, "away from the application")               \
    X(UP, COLOUR_UP, "towards the application")                     \
    X(OTHER, COLOUR_OTHER, "other work")

enum span_kind {
#define X(name, ...) SPAN_##name,
    SPAN_KINDS(X)
#undef X
        SPAN_KIND_NR
};

const char *span_kind_title(enum span_kind kind);
const char *span_kind_colour(enum span_kind kind);

/* Several spans that were drawn together have count > 1 and are busy for less than they last. */
struct span {
    uint64_t start_ns; /* from the start of the trace */
    uint64_t ns;
    uint64_t busy_ns;
    uint64_t bytes;
    uint64_t version; /* SPAN_NO_VERSION: of none */
    uint32_t label;   /* of struct trace_page; 0: none */
    uint32_t count;
    uint8_t kind; /* enum span_kind */
    bool failed;
};

#define SPAN_NO_VERSION UINT64_MAX

struct lane {
    const char *name;
    struct span *spans; /* by start; they may overlap */
    size_t nr;
};

/* One call of the application. */
struct trace_call {
    bool is_get;
    bool failed;
    bool ready;     /* a restore during which nothing was fetched from a slower tier */
    uint32_t label; /* the history */
    uint64_t version;
    uint64_t bytes;
    uint64_t start_ns;   /* from the start of the trace */
    uint64_t blocked_ns; /* with the time to reserve what it commits */
    double ahead;        /* restores: versions ready ahead of this one; NAN: not known */
};

/* The blocked time of puts, or of gets, by its cause: the first of these that was active. */
enum blocked_cause {
    BLOCKED_COPYING, /* its own bytes were copied from or to the application  */
    BLOCKED_DISK,    /* the disk was written (puts) or read (gets)            */
    BLOCKED_LINK,    /* the device's link was in use, down (puts) or up (gets) */
    BLOCKED_REMOTE,  /* remote storage, the same                              */
    BLOCKED_ELSE,    /* something else */
    BLOCKED_CAUSE_NR
};

struct trace_hop {
    const char *name;
    const char *title;
    bool down; /* away from the application */
    bool own;  /* to or from the application's own memory, not between tiers */
    uint64_t bytes;
    uint64_t copies;
    uint64_t failures;
    double busy_s;   /* at least one copy was going on */
    double best_bps; /* the highest rate that it sustained; 0: not known */
};

struct trace_tier {
    const char *name;
    uint64_t capacity; /* 0: not limited, or not known */
    uint64_t buffers;  /* taken beside it for what passes to the disk and back */
    double *time_s;    /* of the samples, rising */
    double *bytes;
    size_t nr;
};

struct trace_pair {
    const char *name, *text;
};

struct trace_pairs {
    const struct trace_pair *pairs;
    size_t nr;
};

struct trace_picture {
    const char *name, *caption, *type; /* type: "image/png" */
    const void *bytes;
    size_t nr_bytes;
};

struct trace_error {
    double time_s;
    const char *text;
};

/* The bound of the whole run: that of each thread that made calls, added up. */
struct trace_bound {
    const char *missing; /* the reason why there is none; NULL: there is one */
    struct bound_result result;
    double *at_s;    /* nr_calls: the bound of the calls so far, in the order of the calls */
    const char *how; /* the bandwidths and capacities that it was computed from */
};

struct trace_page {
    const char *title;
    const char *command, *when, *where; /* NULL: not known */
    const char *helpers; /* processors and time of the library's threads; NULL: not known */
    double wall_s;
    unsigned nr_threads; /* that made calls */
    const char *const *labels;
    size_t nr_labels;
    struct lane *lanes;
    size_t nr_lanes;
    const struct trace_call *calls; /* by start */
    size_t nr_calls;
    double other_s[2]; /* puts, gets: blocked time outside of these calls */
    size_t ready; /* restores whose bytes were all in the first tier when they were asked for */
    double cause_s[2][BLOCKED_CAUSE_NR]; /* puts, gets */
    const struct trace_hop *hops;
    size_t nr_hops;
    const struct trace_tier *tiers;
    size_t nr_tiers;
    struct trace_bound bound;
    const struct trace_picture *pictures;
    size_t nr_pictures;
    struct trace_pairs run, config, machine;
    const struct trace_error *errors;
    size_t nr_errors;
    uint64_t nr_repairs;
    uint64_t nr_records, lost_records;
    const char *lost_text; /* other missing parts, or NULL */
};

/* The sums over all calls of one kind. */
struct trace_total {
    size_t nr, failed, ready;
    double bytes, blocked_s;
    double ahead; /* added up over the nr_ahead calls for which it is known */
    size_t nr_ahead;
};

struct trace_totals {
    struct trace_total put, get;
    double blocked_s;
};

struct trace_totals trace_page_totals(const struct trace_page *page);

/* The largest number of spans of a page. More are combined, shortest first. */
#define TRACE_PAGE_SPANS 200000

/* Writes the page. -ENOMEM, -EIO. */
VV_WARN_UNUSED int trace_page_write(FILE *f, const struct trace_page *page);

/* Its figures as one JSON object on a line. */
void trace_page_json(FILE *f, const struct trace_page *page);

#endif
