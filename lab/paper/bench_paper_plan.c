/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runs of the figures. A figure requests a run by its key, and figures with the same key share it: the
 * sequential shots of Figure 6a are Figure 7, the first point of Figure 8a is in Figure 6b.
 *
 * The most important runs come first: if the time is over before the last one, every figure has its main series.
 * Engines take turns, so that a machine that slows down slows all of them.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common/plot.h"
#include "lab/paper/bench_paper.h"

static const char *const engine_names[] = {
    [PAPER_VARVE] = "varve",       [PAPER_SCORE] = "score", [PAPER_UVM] = "uvm",
    [PAPER_ONDEMAND] = "ondemand", [PAPER_FILE] = "file",
};
static const char *const engine_titles[] = {
    [PAPER_VARVE] = "Varve",        [PAPER_SCORE] = "Varve, policy score",
    [PAPER_UVM] = "UVM, optimised", [PAPER_ONDEMAND] = "on-demand copies",
    [PAPER_FILE] = "plain files",
};
static const char *const order_names[] = {
    [SHOT_ORDER_SEQ] = "seq", [SHOT_ORDER_REV] = "rev", [SHOT_ORDER_IRR] = "irr"};
static const char *const hints_names[] = {
    [SHOT_HINTS_NONE] = "none", [SHOT_HINTS_ONE] = "one", [SHOT_HINTS_ALL] = "all"};
static const char *const hints_titles[] = {[SHOT_HINTS_NONE] = "no hints",
                                           [SHOT_HINTS_ONE] = "single hint",
                                           [SHOT_HINTS_ALL] = "all hints"};
static const char *const status_names[] = {[PAPER_TO_DO] = "not run",
                                           [PAPER_OK] = "ok",
                                           [PAPER_DOUBTFUL] = "doubtful",
                                           [PAPER_FAILED] = "failed"};

const struct paper_figure paper_figures[PAPER_FIGURE_NR] = {
    [PAPER_5A] =
        {"5a", "Uniform sizes, restores wait for the flushes", PAPER_OVER_ORDERS, false, true,
         false,
         "Eight A100 GPUs, 48 GB each: checkpoints and restores 2 to 74 times as fast as "
         "optimised UVM, at least twice as fast without any hint. Checkpoint rates of both "
         "are alike, because the host cache is still being pinned and because the last "
         "checkpoints wait for the disk. ADIOS2, without a cache on the GPU, is slowest "
         "everywhere. Flushing took about 70 s a process, 685 MB/s, and is not counted."},
    [PAPER_5B] = {"5b", "Variable sizes, restores wait for the flushes", PAPER_OVER_ORDERS, true,
                  true, false,
                  "1.6 to 52 times UVM. Checkpoints are faster than with uniform sizes, since the "
                  "first ones are small; restores are slower, since free space is fragmented and "
                  "a prefetch waits for one contiguous stretch. Restores are at least twice as "
                  "fast as with UVM and with ADIOS2."},
    [PAPER_6A] = {"6a", "Uniform sizes, restores begin at once", PAPER_OVER_ORDERS, false, false,
                  false,
                  "1.8 to 3.6 times UVM. Restore rates are orders of magnitude below those of "
                  "Figure 5a, because checkpoints are still being flushed, but the whole run is "
                  "shorter by the 70 s that Figure 5a waits. ADIOS2 is slowest again."},
    [PAPER_6B] =
        {"6b", "Variable sizes, restores begin at once", PAPER_OVER_ORDERS, true, false, false,
         "2.9 to 22.8 times UVM, and faster restores than with uniform sizes. The "
         "irregular order is the hardest case: checkpoints 3.7 times and restores 38 times "
         "as fast as with UVM."},
    [PAPER_7] =
        {"7", "Restore rate and prefetch distance, iteration by iteration", PAPER_OVER_TIME, false,
         false, false,
         "Sequential order, uniform sizes. All hints: the number of checkpoints prefetched "
         "ahead grows to what the GPU cache holds (32), the host cache supplies restores up "
         "to iteration 96, and then the file system sets the pace. Single hint: nothing is "
         "ahead, and about 6.3 GB/s are reached. No hints: best at the end, where the last "
         "checkpoints written are still cached."},
    [PAPER_8A] =
        {"8a", "Compute time between the calls", PAPER_OVER_INTERVALS, true, false, false,
         "Variable sizes, irregular order. Checkpoint rates do not depend on the interval; "
         "ADIOS2 is well below the others. Restore rates with all hints rise with the "
         "interval and reach the bandwidth of device memory at 30 ms."},
    [PAPER_8B] = {"8b", "Size of the GPU cache", PAPER_OVER_CACHES, true, false, false,
                  "Variable sizes, irregular order, 10 ms. Checkpoint rates rise with the GPU "
                  "cache, because evictions come later; checkpoints and restores are up to 2.6 "
                  "times as fast as with UVM. ADIOS2 has no GPU cache and stays where it is."},
    [PAPER_9A] = {"9a", "Many GPUs, a barrier at each iteration", PAPER_OVER_GPUS, true, false,
                  true,
                  "8 to 32 GPUs, variable sizes, irregular order: rates per process are nearly "
                  "independent of the number of GPUs. The barrier keeps processes in step, which "
                  "lessens their competition for links and disks."},
    [PAPER_9B] = {"9b", "Many GPUs, no synchronisation", PAPER_OVER_GPUS, true, false, false,
                  "8 to 32 GPUs: rates per process stay nearly the same here as well. At scale the "
                  "advantage over UVM is 22.8 times without hints and 13 times with a single hint. "
                  "ADIOS2 loses checkpoint rate as processes are added."},
};

/* One hue for each engine and one lightness for each number of hints; colour-blind readers, too,
 * distinguish blue and orange, and the two greys have neither. */
static const struct paper_series all_series[] = {
    {PAPER_FILE, SHOT_HINTS_NONE, "no hints, plain files", "#57606a", PLOT_DOTTED},
    {PAPER_ONDEMAND, SHOT_HINTS_NONE, "no hints, on-demand copies", "#a3abb5", PLOT_DOTTED},
    {PAPER_UVM, SHOT_HINTS_NONE, "no hints, UVM", "#f6cf8b", PLOT_DASHED},
    {PAPER_SCORE, SHOT_HINTS_NONE, "no hints, Varve score", "#8fd6c1", PLOT_DASHED},
    {PAPER_VARVE, SHOT_HINTS_NONE, "no hints, Varve", "#b3daf7", PLOT_DASHED},
    {PAPER_UVM, SHOT_HINTS_ONE, "single hint, UVM", "#e69f00", PLOT_DOTTED},
    {PAPER_SCORE, SHOT_HINTS_ONE, "single hint, Varve score", "#1fb58a", PLOT_DOTTED},
    {PAPER_VARVE, SHOT_HINTS_ONE, "single hint, Varve", "#4fa3dd", PLOT_DOTTED},
    {PAPER_UVM, SHOT_HINTS_ALL, "all hints, UVM", "#b36b00", PLOT_SOLID},
    {PAPER_SCORE, SHOT_HINTS_ALL, "all hints, Varve score", "#0a7d5c", PLOT_SOLID},
    {PAPER_VARVE, SHOT_HINTS_ALL, "all hints, Varve", "#1565b0", PLOT_SOLID},
};

static const int orders[] = {SHOT_ORDER_SEQ, SHOT_ORDER_REV, SHOT_ORDER_IRR};
/* Shares of the interval and of the cache of the other figures. At about a quarter of the interval one H200 loads
 * its link as much as the paper's GPUs loaded theirs. */
static const double intervals[] = {0.24, 0.5, 1, 1.5, 2, 2.5, 3};
static const double short_intervals[] = {0.24, 1, 2, 3};
static const double caches[] = {0.5, 1, 2, 4};

const char *paper_engine_name(enum paper_engine engine)
{
    return engine_names[engine];
}

const char *paper_engine_title(enum paper_engine engine)
{
    return engine_titles[engine];
}

const char *paper_order_name(int order)
{
    return order_names[order];
}

const char *paper_hints_name(int hints)
{
    return hints_names[hints];
}

const char *paper_hints_title(int hints)
{
    return hints_titles[hints];
}

const char *paper_status_name(enum paper_status status)
{
    return status_names[status];
}

static bool takes_part(enum paper_kind kind, const struct paper_series *s)
{
    switch (kind) {
    case PAPER_OVER_ORDERS:
        return true;
    case PAPER_OVER_TIME:
        return s->engine == PAPER_VARVE;
    case PAPER_OVER_INTERVALS:
    case PAPER_OVER_CACHES:
        return s->hints != SHOT_HINTS_ONE && s->engine != PAPER_FILE;
    case PAPER_OVER_GPUS:
        return s->engine != PAPER_UVM && s->engine != PAPER_FILE;
    }
    return false;
}

size_t paper_series(const struct paper_opts *opts, enum paper_figure_id figure,
                    struct paper_series *ret_series)
{
    enum paper_kind kind = paper_figures[figure].kind;
    size_t n = 0;

    for (size_t i = 0; i < VV_ARRAY_SIZE(all_series); i++) {
        const struct paper_series *s = &all_series[i];
        /* The simulation runs on any machine. */
        bool chosen = kind == PAPER_OVER_GPUS || (opts->engines & 1u << s->engine);

        if (chosen && takes_part(kind, s))
            ret_series[n++] = *s;
    }
    return n;
}

static size_t scaled(const double *shares, size_t nr, double unit, double *ret_points)
{
    for (size_t i = 0; i < nr; i++)
        ret_points[i] = shares[i] * unit;
    return nr;
}

size_t paper_points(const struct paper_opts *opts, enum paper_figure_id figure, double *ret_points)
{
    switch (paper_figures[figure].kind) {
    case PAPER_OVER_ORDERS:
        for (size_t i = 0; i < VV_ARRAY_SIZE(orders); i++)
            ret_points[i] = orders[i];
        return VV_ARRAY_SIZE(orders);
    case PAPER_OVER_TIME:
        ret_points[0] = SHOT_ORDER_SEQ;
        return 1;
    case PAPER_OVER_INTERVALS:
        return opts->is_short
                   ? scaled(short_intervals, VV_ARRAY_SIZE(short_intervals), opts->interval_ms,
                            ret_points)
                   : scaled(intervals, VV_ARRAY_SIZE(intervals), opts->interval_ms, ret_points);
    case PAPER_OVER_CACHES:
        return scaled(caches, VV_ARRAY_SIZE(caches), (double)opts->device_cache, ret_points);
    case PAPER_OVER_GPUS:
        break;
    }
    return 0;
}

/* Smaller ranks run earlier: the runs that the paper's claims depend on come first. */
static int rank_of(const struct paper_run *r, enum paper_kind kind)
{
    static const int of_engine[] = {[PAPER_VARVE] = 0,
                                    [PAPER_SCORE] = 5,
                                    [PAPER_UVM] = 0,
                                    [PAPER_ONDEMAND] = 1,
                                    [PAPER_FILE] = 6};

    return of_engine[r->engine] + (r->hints == SHOT_HINTS_ONE ? 4 : 0) +
           (kind == PAPER_OVER_ORDERS && r->order == SHOT_ORDER_SEQ ? 3 : 0) +
           (kind == PAPER_OVER_INTERVALS || kind == PAPER_OVER_CACHES ? 2 : 0);
}

bool paper_run_at(const struct paper_opts *opts, enum paper_figure_id figure,
                  const struct paper_series *series, double point, struct paper_run *ret_run)
{
    const struct paper_figure *fig = &paper_figures[figure];
    struct paper_run r = {
        .engine = series->engine,
        .variable = fig->variable,
        .wait = fig->wait,
        .order = SHOT_ORDER_IRR,
        .hints = series->hints,
        .interval_ms = opts->interval_ms,
        .device_cache = opts->device_cache,
    };

    if (fig->kind == PAPER_OVER_GPUS)
        return false;
    if (fig->kind == PAPER_OVER_ORDERS || fig->kind == PAPER_OVER_TIME)
        r.order = (int)point;
    else if (fig->kind == PAPER_OVER_INTERVALS)
        r.interval_ms = point;
    else
        r.device_cache = vv_align_down((uint64_t)point, VV_PAGE_BYTES_MIN);
    /* The cost of plain files does not depend on the order, and they take longest. */
    if (opts->is_short && r.engine == PAPER_FILE && r.order != SHOT_ORDER_REV)
        return false;
    r.rank = rank_of(&r, fig->kind);
    *ret_run = r;
    return true;
}

struct paper_run *paper_find(const struct paper *paper, const struct paper_run *key)
{
    for (size_t i = 0; i < paper->nr_runs; i++) {
        struct paper_run *r = &paper->runs[i];

        if (r->engine == key->engine && r->variable == key->variable && r->wait == key->wait &&
            r->order == key->order && r->hints == key->hints &&
            r->interval_ms == key->interval_ms && r->device_cache == key->device_cache)
            return r;
    }
    return NULL;
}

static int add_run(struct paper *paper, const struct paper_run *run, enum paper_figure_id figure)
{
    struct paper_run *r = paper_find(paper, run);

    if (!r) {
        if (paper->nr_runs == paper->cap_runs) {
            size_t cap = paper->cap_runs ? 2 * paper->cap_runs : 64;
            struct paper_run *runs = realloc(paper->runs, cap * sizeof(*runs));

            if (!runs)
                return -ENOMEM;
            paper->runs = runs;
            paper->cap_runs = cap;
        }
        r = &paper->runs[paper->nr_runs++];
        *r = *run;
    }
    r->figures |= 1u << figure;
    r->rank = VV_MIN(r->rank, run->rank);
    return 0;
}

static int add_figure(struct paper *paper, enum paper_figure_id figure)
{
    struct paper_series series[PAPER_SERIES_MAX];
    double points[PAPER_POINTS_MAX];
    size_t nr_series = paper_series(&paper->opts, figure, series);
    size_t nr_points = paper_points(&paper->opts, figure, points);
    struct paper_run run;
    int rc = 0;

    for (size_t i = 0; i < nr_points; i++)
        for (size_t s = 0; s < nr_series && rc == 0; s++)
            if (paper_run_at(&paper->opts, figure, &series[s], points[i], &run))
                rc = add_run(paper, &run, figure);
    return rc;
}

/* By rank; runs of one rank stay in the order of the plan. Insertion sort: there are about a hundred. */
static void sort_runs(struct paper *paper)
{
    for (size_t i = 1; i < paper->nr_runs; i++) {
        struct paper_run r = paper->runs[i];
        size_t k = i;

        for (; k > 0 && paper->runs[k - 1].rank > r.rank; k--)
            paper->runs[k] = paper->runs[k - 1];
        paper->runs[k] = r;
    }
}

int paper_plan(struct paper *paper)
{
    int rc = 0;

    for (int f = 0; f < PAPER_FIGURE_NR && rc == 0; f++)
        if (paper->opts.figures & 1u << f)
            rc = add_figure(paper, (enum paper_figure_id)f);
    sort_runs(paper);
    return rc;
}

void paper_plan_fini(struct paper *paper)
{
    for (size_t i = 0; i < paper->nr_runs; i++) {
        free(paper->runs[i].restore_s);
        free(paper->runs[i].distance);
    }
    free(paper->runs);
    free(paper->scale);
    paper->runs = NULL;
    paper->scale = NULL;
    paper->nr_runs = paper->cap_runs = paper->nr_scale = 0;
}
