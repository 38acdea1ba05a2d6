/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the probes: a group of threads that run a body each and are joined. */
#ifndef CLI_MEASURE_PROBE_PRIVATE_H
#define CLI_MEASURE_PROBE_PRIVATE_H

#include <pthread.h>
#include <stdint.h>

#include "base/util.h"

/* Loops are cut into so many rounds; the fastest one counts. */
#define PROBE_ROUNDS 4

/* The part of the loop that one thread runs. Synchronization: owned by the thread until it is joined. */
struct probe_worker {
    pthread_t thread;
    void *job;
    unsigned index;
    uint64_t bytes; /* moved */
    int rc;
};

void probe_workers_init(struct probe_worker *w, unsigned n, void *job);

/* Runs the body once per worker; bytes per second of all together. */
VV_WARN_UNUSED int probe_workers_run(struct probe_worker *w, unsigned n, void *(*body)(void *),
                                     double *ret_bps);

/* The end of a round that starts now. */
uint64_t probe_round_deadline_ns(double seconds);

#endif
