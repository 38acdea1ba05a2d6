/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A test of the placement: files on nodes, then one node fails, many times. It is the experiment behind Figure
 * 6(b) of Lee et al., "Fault-Tolerant Deep Learning Cache with Hash Ring for Load Balancing in HPC Systems", for
 * every scheme.
 */
#ifndef LAB_RING_RING_SIM_H
#define LAB_RING_RING_SIM_H

#include "cli/common/parallel.h"
#include "policy/place.h"

struct ring_sim_opts {
    enum vv_place_scheme scheme;
    uint32_t nodes; /* at least 2 */
    uint32_t trials;
    uint32_t vnodes;    /* ring only */
    uint32_t limit_pct; /* hrw-bounded only; 0: the default */
    uint64_t files;
    uint64_t seed;
    /* Capacities of the nodes, taken in turn; none: all the same. */
    const uint64_t *weights;
    size_t nr_weights;
    unsigned jobs;
    uint32_t checks; /* healthy files checked in a trial */
};

/* A receiver is a node that gets a file it did not have. */
struct ring_sim_result {
    enum vv_place_scheme scheme;
    uint32_t vnodes; /* 0: the scheme has none */
    double receivers_mean, receivers_sd;
    double files_per_receiver_mean, files_per_receiver_sd;
    double max_over_mean;       /* the fullest node over its share, all nodes up */
    double max_over_mean_after; /* after a failure, mean of all trials */
    double max_over_mean_worst; /* after the worst one */
    double healthy_moved_fraction;
    double away_fraction; /* hrw-bounded: files that are not at home */
};

/* The steps that a run reports to its progress. */
uint64_t ring_sim_steps(const struct ring_sim_opts *o);

/* The result does not depend on the number of threads. -EINVAL, -ERANGE, -ENOMEM. */
VV_WARN_UNUSED int ring_sim_run(const struct ring_sim_opts *o, struct sim_progress *progress,
                                struct ring_sim_result *ret_result);

#endif
