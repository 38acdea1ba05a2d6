/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set of workloads drawn at random from the generators: orders, sizes, tiers, rates and loads. A case is
 * known by its number and the seed of the set. Hints and policy are not part of it: they are compared on the same
 * cases.
 */
#ifndef LAB_SIM_SET_H
#define LAB_SIM_SET_H

#include "lab/shot/work.h"

/* The largest number of versions that a case writes. */
#define SIM_SET_OBJECTS 96

struct sim_set_case {
    struct shot_opts opts; /* the caller may change hints and policy */
    struct shot_plan plan;
};

void sim_set_draw(uint64_t seed, uint32_t id, struct sim_set_case *ret_case);
/* In a few words: "rev, repeat 3, tail". */
void sim_set_describe(const struct sim_set_case *c, char *buf, size_t size);

/* The number of versions. */
uint32_t sim_set_objects(const struct sim_set_case *c);

struct sim_set_result {
    double blocked_s;
    double bound_s;  /* the larger of the two, with opts.lp */
    double object_s; /* the time of the largest version on the slower direction of the disk */
    double read_s;   /* the same, read */
    double refill_s; /* all caches, read */
    double least_s;  /* the shortest time that a thread was blocked */
    double most_s;   /* and the longest */
};

/* Runs one. Errors as sim_run_work, and of shot_report_check, with a line of text. */
VV_WARN_UNUSED int sim_set_run(const struct sim_set_case *c, char *err, size_t err_size,
                               struct sim_set_result *ret_result);

#endif
