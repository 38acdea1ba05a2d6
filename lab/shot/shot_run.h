/* SPDX-License-Identifier: Apache-2.0 */
/* Carries a script out against an engine, as an application would. */
#ifndef LAB_SHOT_SHOT_RUN_H
#define LAB_SHOT_SHOT_RUN_H

#include "lab/shot/shot.h"
#include "lab/shot/shot_app.h"
#include "lab/shot/shot_engine.h"

/* Where one process puts what it measured; arrays as long as the script has such calls. */
struct shot_trace {
    double *put_blocked_s;
    double *get_blocked_s;
    uint32_t *distance;
    uint64_t *gaps_ns; /* before each put and get, in order */
    double wall_s;
    double wait_s;
    double barrier_s;         /* waiting for other processes */
    double utilisation;       /* of all memory tiers, mean over the calls */
    double first_utilisation; /* of the fastest tier, over time; see shot_run */
    double rate[SHOT_HOP_NR]; /* bytes/s, as the engine measured them; 0: not known */
    bool verified;
};

struct shot_run {
    const struct shot_script *script;
    struct shot_engine *const *engines; /* one for each history */
    struct shot_app *app;               /* with room for the script's largest object */
    bool gpu_compute;                   /* compute by a kernel instead of sleeping */
    uint64_t seed;                      /* of the contents */
    /* Called before the first operation and by SHOT_BARRIER; negative errno: give up. May be
     * NULL. */
    int (*barrier)(void *arg);
    /* Called after every operation with the number done; NULL: not. */
    void (*progress)(void *arg, size_t ops_done);
    void *arg;
};

/* Fills before each put, verifies after each get, both outside the time that counts as blocked.
 * Wrong bytes are no error: `verified` is false then, and `err` says which. Other errors: those of
 * the engine, with a line of text.
 * first_utilisation is the share of the fastest tier that was in use, averaged over the time from
 * when more had been checkpointed than it holds until the last restore began; 0: never so much. */
VV_WARN_UNUSED int shot_run(const struct shot_run *run, char *err, size_t err_size,
                            struct shot_trace *trace);

#endif
