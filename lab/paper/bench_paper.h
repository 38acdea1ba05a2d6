/* SPDX-License-Identifier: Apache-2.0 */
/* varve bench paper: shared by its files. lab/paper/bench_paper.c explains their parts. */
#ifndef LAB_PAPER_BENCH_PAPER_H
#define LAB_PAPER_BENCH_PAPER_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/util.h"
#include "lab/shot/shot.h"

#define PAPER_COMMAND "varve bench paper"
#define PAPER_TEXT    512
#define PAPER_PATH    4096
#define PAPER_ARGS    48
#define PAPER_ARG     1100
#define PAPER_NUMBER  32
#define PAPER_LINE    4096 /* a command line */

/* `score` is Varve with the policy of that name, which is the paper's algorithm. */
enum paper_engine {
    PAPER_VARVE,
    PAPER_SCORE,
    PAPER_UVM,
    PAPER_ONDEMAND,
    PAPER_FILE,
    PAPER_ENGINE_NR
};

enum paper_figure_id {
    PAPER_5A,
    PAPER_5B,
    PAPER_6A,
    PAPER_6B,
    PAPER_7,
    PAPER_8A,
    PAPER_8B,
    PAPER_9A,
    PAPER_9B,
    PAPER_FIGURE_NR
};

struct paper_opts {
    const char *out;
    const char *sizes;
    const char *device;
    const char *local; /* NULL: the default of `bench shot` */
    const char *local_io;
    const char *rate; /* NULL: not throttled          */
    uint32_t ckpts;
    uint64_t size_bytes;
    double scale;
    uint64_t device_cache; /* bytes; never 0 after parsing */
    uint64_t host_cache;
    double interval_ms;
    uint64_t seed;
    unsigned engines;    /* bit per enum paper_engine    */
    unsigned figures;    /* bit per enum paper_figure_id */
    double time_limit_s; /* 0: none; no run is started after it */
    double run_limit_s;  /* a run that lasts longer is ended    */
    bool is_short;
    bool resume;
    bool bound;
    bool list;
    bool json;
};

enum paper_status {
    PAPER_TO_DO, /* not started: the time was over */
    PAPER_OK,
    PAPER_DOUBTFUL, /* bytes right, but `bench shot` rejects the figures: see the text */
    PAPER_FAILED
};

/* One shot. The fields of its key come first. */
struct paper_run {
    enum paper_engine engine;
    bool variable;
    bool wait;
    int order; /* enum shot_order */
    int hints; /* enum shot_hints */
    double interval_ms;
    uint64_t device_cache;

    unsigned figures; /* those that show it */
    int rank;         /* lower ones run first */
    char id[96];
    char command[PAPER_LINE]; /* the command that repeats it, starting with "varve" */

    enum paper_status status;
    bool kept; /* from an earlier run of the command */
    char text[PAPER_TEXT];
    double elapsed_s;
    /* NAN: not reported. */
    double checkpoint_gbps, restore_gbps;
    double blocked_checkpoint_s, blocked_restore_s;
    double prefetch_distance, utilisation;
    double first_utilisation; /* of the device's cache, once it was full */
    double ready_s;           /* opening, and the first checkpoint */
    double host_ready_s;      /* opening, until the host cache was ready: instead of ready_s */
    double wait_s, wall_s, bound_ratio;
    double expected_checkpoint_s, expected_restore_s; /* of a baseline, by its bandwidths */
    uint64_t get_bytes;
    double *restore_s; /* per restore; NULL: not reported */
    double *distance;
    size_t nr_gets;
};

/* One row of the simulation of many GPUs. */
struct paper_scale_row {
    bool barrier;
    int hints;
    enum paper_engine engine;
    uint32_t gpus;
    bool failed;
    double checkpoint_gbps, restore_gbps, wall_s;
};

struct paper {
    struct paper_opts opts;
    struct paper_run *runs;
    size_t nr_runs, cap_runs;
    struct paper_scale_row *scale;
    size_t nr_scale;
    char scale_command[PAPER_LINE];
    char scale_text[PAPER_TEXT]; /* the reason why `scale` is empty */
    char program[PAPER_PATH];    /* this program, to start runs */
    char command[PAPER_LINE];    /* this command line, as it was given */
    char machine[2048];          /* lines "name\ttext\n" */
    char date[32];
    double elapsed_s;
};

/* ---- bench_paper_plan.c: which runs there are ---- */

const char *paper_engine_name(enum paper_engine engine);  /* as on the command line */
const char *paper_engine_title(enum paper_engine engine); /* for people */
const char *paper_order_name(int order);
const char *paper_hints_name(int hints);
const char *paper_hints_title(int hints);
const char *paper_status_name(enum paper_status status);

/* The layout of the paper's figures. A figure over orders has one group for each order; one over intervals or
 * caches has one point for each. */
enum paper_kind {
    PAPER_OVER_ORDERS,
    PAPER_OVER_TIME,
    PAPER_OVER_INTERVALS,
    PAPER_OVER_CACHES,
    PAPER_OVER_GPUS
};

struct paper_figure {
    const char *id; /* "5a" */
    const char *title;
    enum paper_kind kind;
    bool variable, wait, barrier;
    const char *claim; /* of the paper, in our words */
};

extern const struct paper_figure paper_figures[PAPER_FIGURE_NR];

/* A series of a figure. Series that no figure over `kind` draws are left out. */
struct paper_series {
    enum paper_engine engine;
    int hints;
    const char *name;
    const char *colour;
    int dash; /* enum plot_dash */
};

#define PAPER_SERIES_MAX 16
#define PAPER_POINTS_MAX 8

/* The series of a figure, in the order of the legend. Returns their number. */
size_t paper_series(const struct paper_opts *opts, enum paper_figure_id figure,
                    struct paper_series *ret_series);

/* Positions along the x axis of a figure over orders (enum shot_order), intervals (ms) or caches (bytes). Returns
 * their number. */
size_t paper_points(const struct paper_opts *opts, enum paper_figure_id figure, double *ret_points);

/* The run at that point. False: the figure has none there. */
bool paper_run_at(const struct paper_opts *opts, enum paper_figure_id figure,
                  const struct paper_series *series, double point, struct paper_run *ret_run);

/* The planned run that equals `key`; NULL: none. */
struct paper_run *paper_find(const struct paper *paper, const struct paper_run *key);

/* Makes the list of all runs, in the order in which they have to run. -ENOMEM. */
VV_WARN_UNUSED int paper_plan(struct paper *paper);
void paper_plan_fini(struct paper *paper);

/* ---- bench_paper_run.c: running them ---- */

/* Set by the signal that ends the command. */
extern volatile sig_atomic_t paper_interrupted;

/* Gives every run its command and its name, and no result. */
void paper_name(struct paper *paper);

/* Takes the result of a run from an earlier one, or else, if it may be started, performs it. A failure of the run
 * is its result, not an error: -EINTR, -ENOMEM. */
VV_WARN_UNUSED int paper_perform(struct paper *paper, struct paper_run *run, bool may_start);

/* The simulation behind Figures 9a and 9b. The same errors. */
VV_WARN_UNUSED int paper_simulate(struct paper *paper);

/* Runs a program and collects its output, ended with a zero; the caller frees both. -EINTR, -ENOMEM, -ETIMEDOUT
 * and the errors of starting it; an exit status is not an error. */
VV_WARN_UNUSED int paper_spawn(const char *program, char *const *argv, double limit_s,
                               int *ret_status, char **ret_out, char **ret_err);

/* ---- bench_paper_page.c: what becomes of them ---- */

/* Formats numbers the same in every file. Returns buf. */
char *paper_number(double x, char *buf, size_t size);

/* Writes the CSV and the SVG of every figure, runs.csv and index.html. Negative errno, with the
 * file's name in `err`. */
VV_WARN_UNUSED int paper_write(const struct paper *paper, char *err, size_t err_size);

/* ---- bench_paper_machine.c ---- */

/* Describes the machine, one line "name\ttext\n" for each property. */
void paper_describe(const struct paper *paper, char *buf, size_t size);

#endif
