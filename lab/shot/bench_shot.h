/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the parent of `varve bench shot` (bench_shot.c) and its children (bench_child.c). */
#ifndef LAB_SHOT_BENCH_SHOT_H
#define LAB_SHOT_BENCH_SHOT_H

#include <stdatomic.h>

#include "engine/core/core.h"
#include "lab/shot/report.h"
#include "lab/shot/shot_run.h"
#include "lab/shot/work.h"

#define BENCH_TEXT_BYTES 512

/* Figures of one thread of a child. Synchronization: owned by the child until it is reaped, except ops_done. The
 * first thread of a child has the child's result. */
struct bench_child {
    int rc;
    bool finished;
    char err[BENCH_TEXT_BYTES];
    double open_s;
    uint64_t helper_cores;        /* processors that the library's threads are bound to; 0: none */
    double helper_cpu_s;          /* processor time that they took */
    double host_ready_s;          /* from the beginning of the opening; 0: not waited for */
    struct shot_trace trace;      /* its arrays are in the same mapping */
    struct stream_figures stream; /* of steps on streams */
    _Atomic uint64_t ops_done;    /* relaxed: for the progress display only */
};

/* Figures of the child that measures the device: the parent never uses a device. */
struct bench_probe {
    int rc;
    bool finished;
    char err[BENCH_TEXT_BYTES];
    double d2d_bps, d2h_bps, h2d_bps;
    double link_bps; /* both directions at once */
    struct shot_expected expected;
};

/* At the start of the mapping that parent and children share. */
struct bench_shared {
    /* A barrier that can be cancelled: the last to arrive starts the next round. Arrivals are counted with
     * acq_rel, so that writes before the barrier are visible after it. */
    _Atomic uint32_t arrived;
    _Atomic uint32_t round; /* release by the last, acquire by the waiters */
    _Atomic bool failed;    /* relaxed: a waiter may see it a poll later */
};

struct bench {
    const char *command;              /* for messages */
    const char *script;               /* the file; NULL: a shot */
    const struct shot_work *work;     /* of the script, or of the streams */
    const struct stream_plan *stream; /* steps on streams; NULL: a host that waits for its calls */
    struct shot_opts opts;
    struct shot_sizes sizes; /* of a script only how many and how much */
    uint32_t nr_threads;     /* of each child */
    uint64_t interval_ns;
    uint64_t history_bytes;        /* the total that shares refer to */
    char folder[VARVE_PATH_BYTES]; /* empty: no disk */
    const char *made;              /* the folder around it, if it was missing; NULL: it was not */
    struct vv_core_cfg core;       /* for the capacities and the size of the transit buffers */
    struct bench_shared *shared;
    struct bench_child *children; /* nr_threads for each process */
    size_t mapping_bytes;
    char err[BENCH_TEXT_BYTES];
};

/* Writes a message of BENCH_TEXT_BYTES at most; returns rc. */
VV_PRINTF(3, 4) int bench_fail(char *err, int rc, const char *fmt, ...);

/* Both run in a child of their own, which is the only process with a device: neither CUDA nor the emulated
 * device's threads survive a fork. */

/* Runs the work of process `rank`. `c`: of its threads. */
VV_WARN_UNUSED int bench_child_run(struct bench *b, uint32_t rank, struct bench_child *c);

/* The work of process `rank`: that of the script, or made in *own, which the caller always frees. */
VV_WARN_UNUSED int bench_work(const struct bench *b, uint32_t rank, struct shot_work *own,
                              const struct shot_work **ret_work);

/* Measures the device and its link, and the expected times of the baseline. */
VV_WARN_UNUSED int bench_child_probe(const struct bench *b, struct bench_probe *probe);

#endif
