/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training on many nodes that read the same files every epoch from a cache spread over their local disks, while
 * nodes fail: the time lost to the framework's restarts, and to reads. Modelled on the experiments of Lee et al.,
 * "Fault-Tolerant Deep Learning Cache with Hash Ring for Load Balancing in HPC Systems", Figures 5 and 6(a);
 * docs/dataset-sim.md has the model and the source of every parameter.
 */
#ifndef LAB_SIM_TRAINING_H
#define LAB_SIM_TRAINING_H

#include "cli/common/parallel.h"
#include "policy/place.h"

enum training_mode {
    TRAINING_NONE,     /* no fault tolerance: the job ends, and is started again */
    TRAINING_REDIRECT, /* lost files are read from the shared file system, every time */
    TRAINING_DEMAND,   /* the new owner fetches a lost file when it is first asked for it */
    TRAINING_RECACHE,  /* new owners fetch lost files as soon as the failure is detected */
    TRAINING_REPLICAS, /* every file is on two nodes */
    TRAINING_MODES,
};

enum training_source { SOURCE_PAPER, SOURCE_MEASURED, SOURCE_ASSUMED, SOURCE_FITTED };

/* X(name, default, least, most, unit, source, meaning) */
#define TRAINING_PARAMS(X)                                                                       \
    X(samples, 589824, 1, 4e9, "", PAPER,                                                        \
      "files that an epoch reads: 524288 to train, 65536 to "                                    \
      "validate")                                                                                \
    X(dataset_gb, 1300, 1e-6, 1e9, "GB", PAPER, "size of all files")                             \
    X(epochs, 5, 2, 1000, "", PAPER, "the first one fills the cache")                            \
    X(failures, 5, 0, 1000, "", PAPER, "nodes that fail, one at a time, after the first epoch")  \
    X(gpus, 8, 1, 1024, "", PAPER, "processes of a node")                                        \
    X(global_batch, 8192, 1, 1e9, "", ASSUMED, "samples of a step, of all processes together")   \
    X(open_s, 0.003, 0, 1e6, "s", MEASURED, "opening a cached file: FT-Cache takes 0.4 to 3 ms") \
    X(sample_s, 0.4, 0, 1e6, "s", FITTED, "reading, decoding and computing one sample")          \
    X(step_s, 0.64, 0, 1e6, "s", FITTED, "what a step takes besides")                            \
    X(jitter_s, 0.02, 0, 1e6, "s", ASSUMED,                                                      \
      "of a process in a step, mean of an exponential "                                          \
      "distribution")                                                                            \
    X(launch_s, 60, 0, 1e6, "s", ASSUMED, "starting the job")                                    \
    X(restart_s, 22.5, 0, 1e6, "s", FITTED, "the framework's restart after a failure")           \
    X(early, 0.06, 0, 1, "", FITTED, "failures strike in this first part of an epoch")           \
    X(detect_s, 3, 0, 1e6, "s", ASSUMED, "until the caches know of a failure")                   \
    X(trip_s, 0.035, 0, 1e6, "s", FITTED, "one round trip to the shared file system under load") \
    X(spread, 0.5, 0, 5, "", ASSUMED,                                                            \
      "of a file's round trips: sigma of a log-normal "                                          \
      "distribution")                                                                            \
    X(client_trips, 10, 0, 1e6, "", ASSUMED,                                                     \
      "of a training process that reads a file from the "                                        \
      "shared file system")                                                                      \
    X(fetch_trips, 2, 0, 1e6, "", ASSUMED, "of a cache that fetches a file whole")               \
    X(shared_gbps, 100, 1e-6, 1e9, "GB/s", ASSUMED, "of the shared file system for this job")    \
    X(shared_ops, 200000, 1e-6, 1e12, "/s", ASSUMED, "round trips it serves for this job")       \
    X(fetch_jobs, 16, 1, 1e6, "", ASSUMED, "files that a node fetches at once")                  \
    X(read_ahead, 0, 0, 64, "", ASSUMED, "batches that a process reads before they are wanted")

struct training_params {
#define X(name, value, least, most, unit, source, meaning) double name;
    TRAINING_PARAMS(X)
#undef X
};

struct training_param_info {
    const char *name, *unit, *meaning;
    double value, least, most; /* value: the default */
    enum training_source source;
    size_t offset; /* in training_params */
};

/* Ends with a name of NULL. */
extern const struct training_param_info training_param_table[];

void training_params_init(struct training_params *p);
/* Sets one by "name=value". -EINVAL: the name is unknown, or the value is out of range. */
VV_WARN_UNUSED int training_params_set(struct training_params *p, const char *name, double value);

struct training_opts {
    struct training_params params;
    enum vv_place_scheme scheme;
    uint32_t nodes;
    uint32_t runs; /* with different failures; figures are means */
    uint64_t seed;
    unsigned jobs;
};

/* Seconds, means of all runs. */
struct training_row {
    uint32_t nodes;
    enum training_mode mode;
    double baseline_s;       /* no failure */
    double total_s;          /* with failures */
    double total_sd;         /* over the runs */
    double overhead;         /* total over baseline, less 1 */
    double overhead_restart; /* of that: restarts, work done again, fewer nodes */
    double overhead_reads;   /* of that: waiting for files that were lost */
    double epoch_s;          /* an epoch without failure, all files cached */
    double victim_epoch_s;   /* an epoch in which nodes failed, from its last start on */
    double shared_reads;     /* files read from the shared file system after the first epoch */
};

/* Fills one row for each mode. The result does not depend on the number of threads. -EINVAL: more failures than
 * nodes can take, or no run; -ENOMEM. */
VV_WARN_UNUSED int training_run(const struct training_opts *o, struct sim_progress *progress,
                                struct training_row ret_rows[TRAINING_MODES]);

const char *training_mode_name(enum training_mode mode);
const char *training_source_name(enum training_source source);

#endif
