/* SPDX-License-Identifier: Apache-2.0 */
/* Carries a script out against the library, as an application would. */
#ifndef VARVE_SIM_SHOT_RUN_H
#define VARVE_SIM_SHOT_RUN_H

#include <varve/ckpt.h>

#include "sim/shot.h"

/* Where one process puts what it measured; arrays as long as the script has such calls. */
struct shot_trace {
    double *put_blocked_s;
    double *get_blocked_s;
    uint32_t *distance;
    uint64_t *gaps_ns; /* before each put and get, in order */
    double wall_s;
    double wait_s;
    double utilisation;
    bool verified;
};

struct shot_run {
    const struct shot_script *script;
    struct varve_ctx *ctx;
    struct varve_history *history;
    bool has_disk; /* the slowest tier is no cache in memory */
    void *buf;     /* of the script's largest object; the processor must be able to reach it */
    uint64_t seed; /* of the contents */
    /* Called before the first operation and by SHOT_BARRIER; negative errno: give up. May be
     * NULL. */
    int (*barrier)(void *arg);
    /* Called after every operation with the number done; NULL: not. */
    void (*progress)(void *arg, size_t ops_done);
    void *arg;
};

/* Fills before each put, verifies after each get, both outside the time that counts as blocked.
 * Wrong bytes are no error: `verified` is false then, and `err` says which. Other errors: those of
 * the library, with a line of text. */
VV_WARN_UNUSED int shot_run(const struct shot_run *run, char *err, size_t err_size,
                            struct shot_trace *trace);

#endif
