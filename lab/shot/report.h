/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of a shot, their comparison with the bound, and the report. */
#ifndef LAB_SHOT_REPORT_H
#define LAB_SHOT_REPORT_H

#include "lab/shot/shot.h"
#include "lab/shot/stream.h"

/* One process, or a thread of a script. The caller fills in all fields except the marked ones; the report owns the
 * arrays. */
struct shot_proc {
    size_t nr_puts;
    size_t nr_gets;
    double *put_blocked_s; /* nr_puts, in the order of the calls */
    double *get_blocked_s; /* nr_gets                            */
    uint64_t *gaps_ns;     /* before each call, puts and gets in the order of the calls */
    uint32_t *distance; /* nr_gets: successors that were prefetched at the start of the restore */
    uint64_t put_bytes;
    uint64_t get_bytes;
    double wall_s;      /* from the first operation to the end of the last */
    double wait_s;      /* in SHOT_WAIT_FLUSH, which counts for no call */
    double barrier_s;   /* in SHOT_BARRIER, waiting for other processes: not blocked either */
    double utilisation; /* mean share of the caches that holds live data, 0 to 1 */
    /* Utilisation of the fastest tier, over time, once it was full; 0: it never was. */
    double first_utilisation;
    double open_s;            /* opening the engine; 0: not measured */
    double host_ready_s;      /* the same, until the host cache was ready; 0: not waited for */
    uint64_t helper_cores;    /* processors that the library's threads are bound to; 0: none */
    double helper_cpu_s;      /* processor time that they took */
    double rate[SHOT_HOP_NR]; /* bytes/s, measured while it ran; 0: not known */
    bool verified;            /* every byte that came back was right */
    bool no_bound;            /* there is none: it reads versions of another thread */
    struct bound_result bound;
    double lp_s;                 /* the bound by a linear program; 0: not computed */
    double blocked_checkpoint_s; /* by shot_report_finish */
    double blocked_restore_s;    /* by shot_report_finish */
};

/* The expected time of a baseline: its bytes over the bandwidths of its calls. Not known for uvm, whose calls wait
 * for the driver. */
struct shot_expected {
    bool known;
    double put_bps, get_bps;
    char text[128]; /* the limit, in words */
};

/* All processes. Times and bytes are summed up (wall_s: the longest), so a throughput is that of the average
 * process, and a ratio compares all blocked time with all bounds. */
struct shot_report {
    const char *command; /* "bench" or "sim" */
    const char *script;  /* the file; NULL: a shot */
    /* Steps on streams, one for each of `procs`; time blocked is the time of stalls. NULL: a shot. */
    const struct stream_plan *stream;
    struct stream_figures stream_run; /* of all streams; 0 in a simulated run */
    uint64_t stream_largest_bytes;
    struct shot_opts opts;
    struct shot_machine machine; /* rates and capacities behind the bound */
    uint64_t interval_ns;
    bool head_printed;             /* shot_report_print_head was called when the run began */
    bool is_void;                  /* the bandwidths before and after differ too much */
    char changed[64];              /* the bandwidth that differs, and by how much */
    struct shot_expected expected; /* of baselines, instead of a bound */
    struct shot_proc *procs;
    uint32_t nr_procs;
    /* By shot_report_finish: */
    size_t nr_puts; /* of all processes */
    size_t nr_gets;
    bool has_bound; /* of every process */
    double checkpoint_gbps;
    double restore_gbps;
    double blocked_checkpoint_s;
    double blocked_restore_s;
    double bound_s;
    double bound_ratio;
    double lp_s; /* of all processes; 0: not computed */
    double prefetch_distance_mean;
    double utilisation;
    double first_utilisation;
    double open_s; /* the longest */
    /* Opening and the first checkpoint together; the longest. 0: not known, because the run waited for the host cache
     * between the two, until host_ready_s. */
    double ready_s;
    double host_ready_s;
    uint64_t helper_cores; /* of the process that has the fewest */
    double helper_cpu_s;
    double slowest_checkpoint_s, slowest_restore_s;
    double expected_checkpoint_s;
    double expected_restore_s;
    /* Over blocking I/O on the disk, of one process with a bound: the expectation of the performance model
     * (policy/model.h) for the bandwidths measured before, and for those during the run, and the actual value. 0:
     * not known. */
    double expected_speedup, expected_speedup_running, speedup;
    double wall_s;
    double wait_s;
    double barrier_s;
    bool verified;
};

/* A ratio below this means that the bound was wrong: blocked time can be less only if a bandwidth was measured too
 * low. */
#define SHOT_MIN_BOUND_RATIO 0.98

/* Processes that have made no calls yet. -ENOMEM, -EINVAL. */
VV_WARN_UNUSED int shot_report_init(uint32_t nr_procs, struct shot_report *ret_report);
/* Allocates the arrays of one. */
VV_WARN_UNUSED int shot_report_calls(struct shot_proc *proc, size_t nr_puts, size_t nr_gets);
void shot_report_fini(struct shot_report *report);

/* Adds up. Called after the last process was filled in. */
void shot_report_finish(struct shot_report *report);

/* 0, or why the run does not count, with a line of text: -EBADMSG wrong bytes, -EAGAIN the
 * bandwidths changed during the run, -ERANGE blocked for less than the bound. */
VV_WARN_UNUSED int shot_report_check(const struct shot_report *report, char *err, size_t err_size);

/* The line that repeats the run. */
void shot_report_print_head(FILE *f, const char *command, const char *script,
                            const struct shot_opts *opts);
void shot_report_print(FILE *f, const struct shot_report *report);
void shot_report_print_json(FILE *f, const struct shot_report *report);

#endif
