/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a script against an engine, as an application would. */
#ifndef LAB_SHOT_SHOT_RUN_H
#define LAB_SHOT_SHOT_RUN_H

#include "lab/shot/shot.h"
#include "lab/shot/shot_app.h"
#include "lab/shot/shot_engine.h"

/* The measurements of one process; arrays as long as the script has such calls. */
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
    /* Called before the first operation and by SHOT_BARRIER. A negative errno ends the run. May be NULL. */
    int (*barrier)(void *arg);
    /* Called after every operation with the number done; may be NULL. */
    void (*progress)(void *arg, size_t ops_done);
    void *arg;
};

/* Fills before each put and verifies after each get, both outside the time that counts as blocked. Wrong bytes are
 * not an error: `verified` is false then, and `err` names them. Other errors: those of the engine, with a line of
 * text. first_utilisation is the used share of the fastest tier, averaged from when checkpoints exceed it until
 * the last restore begins; 0: they never did. */
VV_WARN_UNUSED int shot_run(const struct shot_run *run, char *err, size_t err_size,
                            struct shot_trace *trace);

#endif
