/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve bench vector`: shared by the command (bench_outofcore.c) and the runs (bench_outofcore_run.c).
 */
#ifndef LAB_OUTOFCORE_BENCH_OUTOFCORE_H
#define LAB_OUTOFCORE_BENCH_OUTOFCORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"
#include "policy/model.h"

enum { OOC_RATIOS_MAX = 32, OOC_PATH_BYTES = 512 };

/* Bytes per second, as a layer is throttled or was measured. */
struct ooc_rate {
    double write, read;
};

/* One program: computes `steps` times, writes its array every `ratio` steps and, if it reads, does the
 * same again with the records it has. */
struct ooc_plan {
    uint64_t record_bytes, steps, ratio, records;
    double step_s;
    bool reads, lifo, spin;
    uint64_t seed;
    struct ooc_rate fast, slow; /* throttles */
    double copy;
    uint64_t host_bytes;         /* for records */
    uint64_t fast_bytes;         /* limit of the fast layer */
    char folder[OOC_PATH_BYTES]; /* `fast` and `slow` are made in this folder, unless given: */
    const char *fast_dir, *slow_dir;
};

struct ooc_run {
    double wall_s, kernel_s, write_s, read_s; /* the last two: blocked */
    uint64_t bytes, wrong_bytes;              /* verified */
    /* For Varve only. */
    uint64_t fast_peak_bytes, fast_limit_bytes, slow_written_bytes, down_bytes, up_bytes;
    struct ooc_rate fast, slow; /* measured while running; 0: not used */
};

static inline double ooc_blocked_s(const struct ooc_run *r)
{
    return r->write_s + r->read_s;
}

/* Times of a few computing steps and a few blocking transfers of each layer, before the run. */
struct ooc_start {
    double step_s, copy;
    struct ooc_rate fast, slow;
};

/* All of these return 0 or a negative errno, with a line in `err`. */
VV_WARN_UNUSED int ooc_measure_start(const struct ooc_plan *plan, char *err, size_t err_bytes,
                                     struct ooc_start *ret_start);
/* Blocking I/O on one layer: a file for each record. */
VV_WARN_UNUSED int ooc_run_direct(const struct ooc_plan *plan, bool fast, char *err,
                                  size_t err_bytes, struct ooc_run *ret_run);
/* A vector. */
VV_WARN_UNUSED int ooc_run_varve(const struct ooc_plan *plan, char *err, size_t err_bytes,
                                 struct ooc_run *ret_run);

/* The model's prediction for these bandwidths and this time of a step. */
struct vv_model_answer ooc_expect(const struct ooc_plan *plan, double step_s, double copy,
                                  const struct ooc_rate *fast, const struct ooc_rate *slow);

#endif
