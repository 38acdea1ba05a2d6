/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The least time that any schedule must block an application which writes objects through a cache
 * hierarchy and reads them back. docs/bound.md has the derivation.
 */
#ifndef CLI_REPORT_BOUND_H
#define CLI_REPORT_BOUND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

enum bound_kind {
    BOUND_PUT,     /* a call: the application waits until the bytes are taken         */
    BOUND_GET,     /* a call: the application waits until the bytes are given back    */
    BOUND_DISCARD, /* no call: the version is not needed any more */
    BOUND_FENCE,   /* no call: time passes here that counts neither as blocked nor as */
                   /* compute (a wait for the flushes); no window reaches across it   */
    BOUND_TAKE     /* BOUND_GET, and then the version is not needed any more */
};

struct bound_event {
    enum bound_kind kind;
    uint64_t version;
    uint64_t bytes;  /* BOUND_PUT                                                       */
    uint64_t gap_ns; /* calls: from the end of the call before to the start of this one */
    uint32_t stream; /* the stream, if several make calls at the same time; see nr_streams */
};

/* One hop of the hierarchy. A bandwidth of 0 means no limit. */
struct bound_hop {
    double above_bytes; /* the most that can be kept above the hop                           */
    double down_bps;    /* away from the application                                         */
    double up_bps;      /* towards it                                                        */
    double both_bps;    /* both directions together; never taken below the larger of the two.
                           0: one medium, which is busy with one transfer at a time           */
};

struct bound_params {
    double put_copy_bps; /* into the first tier, all ways in together; 0: free  */
    double get_copy_bps; /* out to the application, all ways together           */
    bool consume_once;   /* a version is not needed any more after it was read */
    const struct bound_hop *hops;
    size_t nr_hops;
    /* A put of more than this does not fit the first tier; the rest may go to the next one at the same time. */
    double first_bytes;
    double put_beyond_bps; /* then, all ways in together; 0: as any put */
    /* 0, 1: one. Several share hops and caches. Events are then in the order in which the calls returned; a gap lies
     * between calls of the same stream. */
    uint32_t nr_streams;
};

/* The bound of a stream. The parts add up to the total: the time that the longest path spends on each kind of
 * edge. */
struct bound_result {
    double total_s;
    double copy_s;
    double write_s;
    double restore_s;
    double cross_s;
};

/* `ret_result`: one for each stream. Errors: -EINVAL if a version is read or discarded that does not exist, or
 * written twice, or a number is negative or not finite; -ENOMEM. Without calls the bound is 0. */
VV_WARN_UNUSED int bound_compute(const struct bound_event *events, size_t nr_events,
                                 const struct bound_params *params,
                                 struct bound_result *ret_result);

/* The same, and the bound of the calls up to each one: `ret_at_s` has a place for every put and get,
 * or is NULL. It never falls. */
VV_WARN_UNUSED int bound_compute_calls(const struct bound_event *events, size_t nr_events,
                                       const struct bound_params *params, double *ret_at_s,
                                       struct bound_result *ret_result);

#endif
