/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace as a timeline, for exporters and reports: lanes with spans of time, the calls of the application one by one, the
 * occupancy of tiers, and totals. Exporters and reports use this instead of records.
 *
 * Times are nanoseconds since `origin_ns` of the records' clock, the first event; the last event is at `length_ns`. A span
 * that began before the trace, or had not ended at its end, is cut there. Texts belong to the timeline or to its file,
 * which must outlive it.
 */
#ifndef VV_TRACE_TIMELINE_H
#define VV_TRACE_TIMELINE_H

#include "trace/file.h"

enum vv_lane_kind {
    VV_LANE_APP,   /* a thread of the application */
    VV_LANE_MOVER, /* a hop of a context: the copies of its movers */
};

enum vv_span_kind {
    VV_SPAN_COMPUTE, /* the application is not in the library: `name` is its phase, or "forward" or
                        "backward" (see vv_timeline.phased) */
    VV_SPAN_WRITE,   /* it waits in a checkpoint, reserve or commit */
    VV_SPAN_READ,    /* it waits in a restore or acquire */
    VV_SPAN_OTHER,   /* it waits for a level, a flush, or closing */
    VV_SPAN_COPY,    /* movers: one order; also the application's own copies, in their lane */
    VV_SPAN_COMMIT,  /* movers: a file is made durable */
    VV_SPAN_PHASE,   /* a phase that the application marked, calls in it included */
};
#define VV_SPAN_KINDS (VV_SPAN_PHASE + 1)

/* "compute", "blocked write", ... */
const char *vv_span_kind_name(enum vv_span_kind kind);

struct vv_span {
    uint64_t start_ns, end_ns;
    uint16_t kind; /* enum vv_span_kind */
    uint16_t
        row;  /* row in the lane; no two spans of a row overlap. APP: 0 is the thread's activity,
                      1 and on are phases by depth */
    bool cut; /* began before the trace, or had not ended when it ended */
    bool up;  /* COPY: towards the application (prefetch, restore), not away from it */
    int16_t src_tier, dst_tier; /* COPY; -1: the application */
    int32_t status;             /* 0 or a negative errno value */
    const char *name;           /* of a phase, a call or a hop; never NULL */
    uint64_t history, version;  /* COPY, COMMIT and calls; history as in records, 0: none */
    uint64_t bytes;             /* bytes moved, or size of the version */
};

struct vv_lane {
    enum vv_lane_kind kind;
    const char *label; /* "application", "d2h"; with the context if there are several */
    uint32_t thread;   /* APP */
    uint32_t context;  /* MOVER */
    uint32_t hop;      /* MOVER: number of the hop */
    unsigned rows;
    const struct vv_span *spans; /* by start */
    size_t nspans;
    uint64_t kind_ns[VV_SPAN_KINDS]; /* time of each kind; overlapping spans count once */
    uint64_t bytes;                  /* MOVER: moved without error */
    uint64_t commit_alone_ns;        /* MOVER: a commit was pending, and nothing was copied */
};

/* A checkpoint or restore (or commit, acquire) of the application: one iteration of its loop. */
#define VV_NO_DISTANCE UINT64_MAX
struct vv_iteration {
    uint64_t start_ns, end_ns; /* blocked meanwhile */
    uint64_t gap_ns;           /* since the previous call of this thread ended; 0: there was none */
    bool restore;
    uint32_t call; /* enum vv_trace_call */
    uint32_t thread;
    uint64_t history, version, bytes;
    uint64_t distance; /* hinted versions that were ready when a restore began; VV_NO_DISTANCE */
    int32_t status;
};

struct vv_occupancy_point {
    uint64_t time_ns, bytes;
};

struct vv_occupancy {
    uint32_t context, tier;
    const char *label;       /* "device", "host", ...; with the context if there are several */
    uint64_t capacity_bytes; /* 0: no limit */
    uint64_t peak_bytes;
    const struct vv_occupancy_point *points; /* each value holds until the next */
    size_t npoints;
};

/* A history while it was open. */
struct vv_trace_history {
    uint64_t history;
    uint64_t start_ns, end_ns;
    const char *name;
};

struct vv_timeline_totals {
    uint64_t checkpoints, restores;
    uint64_t checkpoint_bytes, restore_bytes;
    uint64_t write_ns, read_ns, other_ns; /* blocked, of all threads together */
    uint64_t compute_ns;                  /* of the threads that call the library */
    uint64_t errors, evicted_pages, discards, hints;
};

struct vv_timeline {
    const struct vv_trace_file *file;
    uint64_t origin_ns, length_ns;
    /* True if the application marked phases: then they name the VV_SPAN_COMPUTE spans ("" outside of them). Otherwise
     * these are "forward" until the first restore begins, and then "backward". */
    bool phased;
    const struct vv_lane
        *lanes; /* threads of the application first, then movers by context and hop */
    size_t nlanes;
    const struct vv_iteration *iterations; /* by start */
    size_t niterations;
    const struct vv_occupancy *occupancy; /* by context and tier */
    size_t noccupancy;
    const struct vv_trace_history *histories; /* by start */
    size_t nhistories;
    uint32_t ncontexts;
    struct vv_timeline_totals totals;

    struct vvi_timeline_arena *arena; /* private */
};

/* -ENOMEM. */
VV_WARN_UNUSED int vv_timeline_new(const struct vv_trace_file *file,
                                   struct vv_timeline **ret_timeline);
/* Accepts NULL. */
void vv_timeline_free(struct vv_timeline *t);

/* The name of a history at that time; "?" if it is not in the trace. */
const char *vv_timeline_history(const struct vv_timeline *t, uint64_t history, uint64_t time_ns);
/* The name of a tier of a context: "device", "host", "disk"; "?". */
const char *vv_timeline_tier(const struct vv_timeline *t, uint32_t context, int tier);

#endif
