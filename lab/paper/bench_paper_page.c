/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Output after all runs: for every figure a CSV and an SVG, a CSV of all runs, and
 * one page that shows everything and needs no other file.
 *
 * All numbers are formatted by paper_number(): a number in a table of the page can be found in the CSV letter by
 * letter. A run that failed, or was never started, has a row in every table, with the reason, and a cross in its
 * chart; bad results are not left out.
 *
 * Files appear by rename, so that a page is never seen half written.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "cli/common/output.h"
#include "cli/common/page.h"
#include "cli/common/plot.h"
#include "lab/paper/bench_paper.h"

/* One row of a figure's table: a series at a point. */
struct row {
    struct paper_series series;
    double point;
    const struct paper_run *run;          /* NULL: simulated    */
    const struct paper_scale_row *scaled; /* NULL: a real run   */
    double checkpoint_gbps, restore_gbps; /* NAN: none          */
    double wall_s;                        /* the whole shot     */
};

struct table {
    struct row *rows;
    size_t nr, cap;
};

char *paper_number(double x, char *buf, size_t size)
{
    if (isfinite(x))
        snprintf(buf, size, "%.5g", x);
    else
        snprintf(buf, size, "%s", "");
    return buf;
}

/* ---- the rows of a figure ---- */

static int add_row(struct table *t, const struct row *row)
{
    if (t->nr == t->cap) {
        size_t cap = t->cap ? 2 * t->cap : 64;
        struct row *rows = realloc(t->rows, cap * sizeof(*rows));

        if (!rows)
            return -ENOMEM;
        t->rows = rows;
        t->cap = cap;
    }
    t->rows[t->nr++] = *row;
    return 0;
}

static bool shows(const struct paper_run *run)
{
    return run->status == PAPER_OK || run->status == PAPER_DOUBTFUL;
}

static int add_runs(const struct paper *paper, enum paper_figure_id figure, struct table *t)
{
    struct paper_series series[PAPER_SERIES_MAX];
    double points[PAPER_POINTS_MAX];
    size_t nr_series = paper_series(&paper->opts, figure, series);
    size_t nr_points = paper_points(&paper->opts, figure, points);
    int rc = 0;

    for (size_t i = 0; i < nr_points; i++) {
        for (size_t s = 0; s < nr_series && rc == 0; s++) {
            struct row row = {.series = series[s],
                              .point = points[i],
                              .checkpoint_gbps = NAN,
                              .restore_gbps = NAN,
                              .wall_s = NAN};
            struct paper_run key;

            if (!paper_run_at(&paper->opts, figure, &series[s], points[i], &key))
                continue;
            row.run = paper_find(paper, &key);
            if (row.run && shows(row.run)) {
                row.checkpoint_gbps = row.run->checkpoint_gbps;
                row.restore_gbps = row.run->restore_gbps;
                row.wall_s = row.run->wall_s;
            }
            rc = add_row(t, &row);
        }
    }
    return rc;
}

static int add_simulated(const struct paper *paper, enum paper_figure_id figure, struct table *t)
{
    struct paper_series series[PAPER_SERIES_MAX];
    size_t nr_series = paper_series(&paper->opts, figure, series);
    int rc = 0;

    for (size_t i = 0; i < paper->nr_scale; i++) {
        const struct paper_scale_row *r = &paper->scale[i];

        for (size_t s = 0; s < nr_series && rc == 0; s++) {
            struct row row = {.series = series[s],
                              .point = r->gpus,
                              .scaled = r,
                              .checkpoint_gbps = r->checkpoint_gbps,
                              .restore_gbps = r->restore_gbps,
                              .wall_s = r->wall_s};

            if (r->engine == series[s].engine && r->hints == series[s].hints &&
                r->barrier == paper_figures[figure].barrier)
                rc = add_row(t, &row);
        }
    }
    return rc;
}

static int make_table(const struct paper *paper, enum paper_figure_id figure, struct table *t)
{
    return paper_figures[figure].kind == PAPER_OVER_GPUS ? add_simulated(paper, figure, t)
                                                         : add_runs(paper, figure, t);
}

static const struct row *find_row(const struct table *t, const struct paper_series *s, double point)
{
    for (size_t i = 0; i < t->nr; i++)
        if (t->rows[i].series.engine == s->engine && t->rows[i].series.hints == s->hints &&
            t->rows[i].point == point)
            return &t->rows[i];
    return NULL;
}

/* ---- cells ---- */

static const char *point_name(enum paper_kind kind)
{
    switch (kind) {
    case PAPER_OVER_ORDERS:
    case PAPER_OVER_TIME:
        return "order";
    case PAPER_OVER_INTERVALS:
        return "interval_ms";
    case PAPER_OVER_CACHES:
        return "device_cache_bytes";
    case PAPER_OVER_GPUS:
        break;
    }
    return "gpus";
}

static const char *point_text(enum paper_kind kind, double point, char *buf, size_t size)
{
    if (kind == PAPER_OVER_ORDERS || kind == PAPER_OVER_TIME)
        return paper_order_name((int)point);
    snprintf(buf, size, kind == PAPER_OVER_INTERVALS ? "%.6g" : "%.0f", point);
    return buf;
}

static const char *row_status(const struct row *row)
{
    if (row->scaled)
        return row->scaled->failed ? "failed" : "simulated";
    return paper_status_name(row->run ? row->run->status : PAPER_TO_DO);
}

/* ---- CSV ---- */

static void csv_text(FILE *f, const char *s)
{
    fputc('"', f);
    for (; *s; s++) {
        if (*s == '"')
            fputc('"', f);
        fputc(*s == '\n' ? ' ' : *s, f);
    }
    fputc('"', f);
}

static int csv_table(FILE *f, const struct paper *paper, enum paper_figure_id figure,
                     const struct table *t)
{
    const struct paper_figure *fig = &paper_figures[figure];

    (void)paper;
    fprintf(f, "figure,sizes,wait,%s,hints,engine,checkpoint_gbps,restore_gbps,wall_s,status\n",
            point_name(fig->kind));
    for (size_t i = 0; i < t->nr; i++) {
        const struct row *r = &t->rows[i];
        char point[PAPER_NUMBER], put[PAPER_NUMBER], get[PAPER_NUMBER], wall[PAPER_NUMBER];

        fprintf(f, "%s,%s,%s,%s,%s,%s,%s,%s,%s,%s\n", fig->id,
                fig->variable ? "variable" : "uniform", fig->wait ? "wait" : "no-wait",
                point_text(fig->kind, r->point, point, sizeof(point)),
                paper_hints_name(r->series.hints), paper_engine_name(r->series.engine),
                paper_number(r->checkpoint_gbps, put, sizeof(put)),
                paper_number(r->restore_gbps, get, sizeof(get)),
                paper_number(r->wall_s, wall, sizeof(wall)), row_status(r));
    }
    return 0;
}

/* The throughput of restore i of a run with uniform sizes. */
static double restore_rate(const struct paper_run *run, size_t i)
{
    double bytes = (double)run->get_bytes / (double)run->nr_gets;

    return run->restore_s[i] > 0 ? bytes / run->restore_s[i] / 1e9 : NAN;
}

static int csv_iterations(FILE *f, const struct paper *paper, enum paper_figure_id figure,
                          const struct table *t)
{
    (void)paper;
    fprintf(f, "figure,hints,engine,iteration,restore_gbps,prefetch_distance\n");
    for (size_t k = 0; k < t->nr; k++) {
        const struct row *r = &t->rows[k];

        for (size_t i = 0; r->run && shows(r->run) && i < r->run->nr_gets; i++) {
            char rate[PAPER_NUMBER], distance[PAPER_NUMBER];

            fprintf(f, "%s,%s,%s,%zu,%s,%s\n", paper_figures[figure].id,
                    paper_hints_name(r->series.hints), paper_engine_name(r->series.engine), i,
                    paper_number(restore_rate(r->run, i), rate, sizeof(rate)),
                    paper_number(r->run->distance ? r->run->distance[i] : NAN, distance,
                                 sizeof(distance)));
        }
    }
    return 0;
}

static void csv_run(FILE *f, const struct paper_run *r)
{
    const double numbers[] = {r->interval_ms,
                              (double)r->device_cache,
                              r->checkpoint_gbps,
                              r->restore_gbps,
                              r->blocked_checkpoint_s,
                              r->blocked_restore_s,
                              r->prefetch_distance,
                              r->utilisation,
                              r->first_utilisation,
                              r->ready_s,
                              r->host_ready_s,
                              r->wait_s,
                              r->wall_s,
                              r->bound_ratio,
                              r->expected_checkpoint_s,
                              r->expected_restore_s,
                              r->elapsed_s};
    char text[PAPER_NUMBER];
    const char *between = "";

    fprintf(f, "%s,", r->id);
    for (int i = 0; i < PAPER_FIGURE_NR; i++) {
        if (r->figures & 1u << i) {
            fprintf(f, "%s%s", between, paper_figures[i].id);
            between = " ";
        }
    }
    fprintf(f, ",%s,%s,%s,%s,%s", paper_engine_name(r->engine),
            r->variable ? "variable" : "uniform", r->wait ? "wait" : "no-wait",
            paper_order_name(r->order), paper_hints_name(r->hints));
    for (size_t i = 0; i < VV_ARRAY_SIZE(numbers); i++) {
        if (i == 1)
            fprintf(f, ",%" PRIu64, r->device_cache);
        else
            fprintf(f, ",%s", paper_number(numbers[i], text, sizeof(text)));
    }
    fprintf(f, ",%s,%s,", paper_status_name(r->status), r->kept ? "yes" : "no");
    csv_text(f, r->text);
    fputc(',', f);
    csv_text(f, r->command);
    fputc('\n', f);
}

static int csv_runs(FILE *f, const struct paper *paper, enum paper_figure_id figure,
                    const struct table *t)
{
    (void)figure;
    (void)t;
    fprintf(f, "id,figures,engine,sizes,wait,order,hints,interval_ms,device_cache_bytes,"
               "checkpoint_gbps,restore_gbps,blocked_checkpoint_s,blocked_restore_s,"
               "prefetch_distance_mean,utilisation,first_tier_utilisation,ready_s,host_ready_s,"
               "wait_s,wall_s,"
               "bound_ratio,expected_checkpoint_s,expected_restore_s,elapsed_s,"
               "status,kept,text,command\n");
    for (size_t i = 0; i < paper->nr_runs; i++)
        csv_run(f, &paper->runs[i]);
    return 0;
}

/* ---- charts ---- */

/* The arrays behind a chart: series x points, twice. */
struct chart {
    struct paper_series series[PAPER_SERIES_MAX];
    struct plot_series left[PAPER_SERIES_MAX], right[PAPER_SERIES_MAX];
    size_t nr_series;
    double *numbers;
};

static void set_series(const struct paper_series *s, const double *x, const double *y, size_t nr,
                       struct plot_series *ret)
{
    *ret = (struct plot_series){.name = s->name,
                                .colour = s->colour,
                                .dash = (enum plot_dash)s->dash,
                                .x = x,
                                .y = y,
                                .nr = nr};
}

/* The points of a figure in the unit of its axis. */
static size_t axis_points(const struct paper *paper, enum paper_figure_id figure, double *points)
{
    size_t n = 0;

    if (paper_figures[figure].kind != PAPER_OVER_GPUS)
        return paper_points(&paper->opts, figure, points);
    for (size_t i = 0; i < paper->nr_scale && n < PAPER_POINTS_MAX; i++) {
        bool known = false;

        for (size_t k = 0; k < n; k++)
            known |= points[k] == paper->scale[i].gpus;
        if (!known)
            points[n++] = paper->scale[i].gpus;
    }
    return n;
}

/* The unit of the axis of cache sizes, and its name. */
static double cache_unit(const struct paper_opts *o, const char **ret_label)
{
    if (o->device_cache >= UINT64_C(1) << 30) {
        *ret_label = "cache on the device, GiB";
        return 0x1p30;
    }
    if (o->device_cache >= UINT64_C(1) << 20) {
        *ret_label = "cache on the device, MiB";
        return 0x1p20;
    }
    *ret_label = "cache on the device, KiB";
    return 0x1p10;
}

static int chart_points(const struct paper *paper, enum paper_figure_id figure,
                        const struct table *t, struct chart *c)
{
    double points[PAPER_POINTS_MAX];
    size_t nr = axis_points(paper, figure, points);
    const char *label;
    double unit = 1, *x;

    if (paper_figures[figure].kind == PAPER_OVER_CACHES)
        unit = cache_unit(&paper->opts, &label);
    c->nr_series = paper_series(&paper->opts, figure, c->series);
    c->numbers = calloc(nr * (2 * c->nr_series + 1) + 1, sizeof(*c->numbers));
    if (!c->numbers)
        return -ENOMEM;
    x = c->numbers;
    for (size_t i = 0; i < nr; i++)
        x[i] = points[i] / unit;
    for (size_t s = 0; s < c->nr_series; s++) {
        double *put = c->numbers + nr * (2 * s + 1), *get = put + nr;

        for (size_t i = 0; i < nr; i++) {
            const struct row *row = find_row(t, &c->series[s], points[i]);

            put[i] = row ? row->checkpoint_gbps : PLOT_NOTHING;
            get[i] = row ? row->restore_gbps : PLOT_NOTHING;
        }
        set_series(&c->series[s], x, put, nr, &c->left[s]);
        set_series(&c->series[s], x, get, nr, &c->right[s]);
    }
    return 0;
}

static int chart_iterations(const struct paper *paper, const struct table *t, struct chart *c)
{
    size_t nr = paper->opts.ckpts;

    c->nr_series = paper_series(&paper->opts, PAPER_7, c->series);
    c->numbers = calloc(nr * (2 * c->nr_series + 1) + 1, sizeof(*c->numbers));
    if (!c->numbers)
        return -ENOMEM;
    for (size_t i = 0; i < nr; i++)
        c->numbers[i] = (double)i;
    for (size_t s = 0; s < c->nr_series; s++) {
        const struct row *row = find_row(t, &c->series[s], SHOT_ORDER_SEQ);
        const struct paper_run *run = row && row->run && shows(row->run) ? row->run : NULL;
        double *rate = c->numbers + nr * (2 * s + 1), *ahead = rate + nr;

        for (size_t i = 0; i < nr; i++) {
            rate[i] = run && i < run->nr_gets ? restore_rate(run, i) : NAN;
            ahead[i] = run && run->distance && i < run->nr_gets ? run->distance[i] : NAN;
        }
        set_series(&c->series[s], c->numbers, rate, nr, &c->left[s]);
        set_series(&c->series[s], c->numbers, ahead, nr, &c->right[s]);
    }
    return 0;
}

static const char *axis_label(const struct paper *paper, enum paper_kind kind)
{
    const char *label = "GPUs";

    switch (kind) {
    case PAPER_OVER_ORDERS:
        return "order of the restores";
    case PAPER_OVER_TIME:
        return "restore number";
    case PAPER_OVER_INTERVALS:
        return "compute time before each call, ms";
    case PAPER_OVER_CACHES:
        cache_unit(&paper->opts, &label);
        break;
    case PAPER_OVER_GPUS:
        break;
    }
    return label;
}

static void note_text(const struct paper *paper, const struct paper_figure *fig, char *buf,
                      size_t size)
{
    const struct paper_opts *o = &paper->opts;
    char device[VV_BYTES_TEXT], host[VV_BYTES_TEXT], each[VV_BYTES_TEXT], compute[48] = "";

    vv_bytes_human((uint64_t)((double)o->size_bytes * o->scale), each, sizeof(each));
    vv_bytes_human(o->device_cache, device, sizeof(device));
    vv_bytes_human(o->host_cache, host, sizeof(host));
    if (fig->kind != PAPER_OVER_INTERVALS)
        snprintf(compute, sizeof(compute), ", %g ms before each call", o->interval_ms);
    snprintf(buf, size, "%s%" PRIu32 " checkpoints %s%s, %s%s%s host cache%s%s",
             fig->kind == PAPER_OVER_GPUS ? "Simulated, for each GPU: " : "", o->ckpts,
             fig->variable ? "of variable size" : "of ", fig->variable ? "" : each,
             fig->kind == PAPER_OVER_CACHES ? "" : device,
             fig->kind == PAPER_OVER_CACHES ? "" : " device cache, ", host, compute,
             fig->kind == PAPER_OVER_TIME ? ", sequential restores" : "");
}

static int draw(FILE *f, const struct paper *paper, enum paper_figure_id figure,
                const struct table *t)
{
    static const char *const groups[] = {"sequential", "reverse", "irregular"};
    const struct paper_figure *fig = &paper_figures[figure];
    bool over_time = fig->kind == PAPER_OVER_TIME, bars = fig->kind == PAPER_OVER_ORDERS;
    struct chart c = {0};
    struct plot_panel panels[2];
    char title[160], note[256];
    struct plot plot = {.title = title, .note = note, .panels = panels, .nr_panels = 2};
    int rc = over_time ? chart_iterations(paper, t, &c) : chart_points(paper, figure, t, &c);

    panels[0] = (struct plot_panel){
        .kind = bars ? PLOT_BARS : PLOT_LINES,
        .title = over_time ? "Restore" : "Checkpoint",
        .x_label = axis_label(paper, fig->kind),
        .y_label = "GB/s, higher is better",
        .log_x = fig->kind == PAPER_OVER_CACHES || fig->kind == PAPER_OVER_GPUS,
        .log_y = true,
        .groups = bars ? groups : NULL,
        .nr_groups = bars ? VV_ARRAY_SIZE(groups) : 0,
        .series = c.left,
        .nr_series = c.nr_series,
    };
    panels[1] = panels[0];
    panels[1].title = over_time ? "Prefetch distance" : "Restore";
    panels[1].series = c.right;
    if (over_time) {
        panels[1].y_label = "checkpoints ready ahead";
        panels[1].log_y = false;
    }
    snprintf(title, sizeof(title), "Figure %s: %s", fig->id, fig->title);
    note_text(paper, fig, note, sizeof(note));
    if (rc == 0 && c.nr_series > 0)
        rc = plot_write(f, &plot);
    free(c.numbers);
    return rc;
}

/* ---- the page ---- */

struct range {
    double lo, hi;
    size_t nr;
};

/* The factor by which `engine` is faster than `other`, over all points of a figure. */
static struct range compare(const struct table *t, enum paper_engine engine,
                            enum paper_engine other, int hints, int other_hints, bool restore)
{
    struct range r = {INFINITY, -INFINITY, 0};

    for (size_t i = 0; i < t->nr; i++) {
        const struct row *a = &t->rows[i], *b;
        struct paper_series s = a->series;
        double x, y;

        if (s.engine != engine || s.hints != hints)
            continue;
        s.engine = other;
        s.hints = other_hints;
        b = find_row(t, &s, a->point);
        if (!b)
            continue;
        x = restore ? a->restore_gbps : a->checkpoint_gbps;
        y = restore ? b->restore_gbps : b->checkpoint_gbps;
        if (!(y > 0) || !isfinite(x))
            continue;
        r.lo = fmin(r.lo, x / y);
        r.hi = fmax(r.hi, x / y);
        r.nr++;
    }
    return r;
}

static void put_range(FILE *f, const struct range *r)
{
    if (r->hi / r->lo < 1.05)
        fprintf(f, "%.3g", (r->lo + r->hi) / 2);
    else
        fprintf(f, "%.3g to %.3g", r->lo, r->hi);
}

/* Varve against one other engine, a list item for each number of hints. */
static size_t put_comparison(FILE *f, const struct table *t, enum paper_engine other)
{
    size_t n = 0;

    for (int h = SHOT_HINTS_NONE; h <= SHOT_HINTS_ALL; h++) {
        bool hintless = other == PAPER_ONDEMAND || other == PAPER_FILE;
        int other_hints = hintless ? SHOT_HINTS_NONE : h;
        struct range put = compare(t, PAPER_VARVE, other, h, other_hints, false);
        struct range get = compare(t, PAPER_VARVE, other, h, other_hints, true);

        if (put.nr == 0 || get.nr == 0)
            continue;
        fprintf(f, "<li>Varve over %s, %s: checkpoint ", paper_engine_title(other),
                paper_hints_title(h));
        put_range(f, &put);
        fputs(" times, restore ", f);
        put_range(f, &get);
        fputs(" times</li>\n", f);
        n++;
    }
    return n;
}

static void widen(struct range *r, double x)
{
    if (!isfinite(x))
        return;
    r->lo = fmin(r->lo, x);
    r->hi = fmax(r->hi, x);
    r->nr++;
}

/* The blocked time compared with the bound, and for a baseline with the time that its own bandwidths explain. Only
 * runs with --bound have both. */
static void put_explained(FILE *f, const struct table *t)
{
    for (int e = 0; e < PAPER_ENGINE_NR; e++) {
        struct range bound = {INFINITY, -INFINITY, 0}, put = bound, get = bound;

        for (size_t i = 0; i < t->nr; i++) {
            const struct paper_run *r = t->rows[i].run;

            if (!r || !shows(r) || r->engine != (enum paper_engine)e)
                continue;
            widen(&bound, r->bound_ratio);
            widen(&put, r->blocked_checkpoint_s / r->expected_checkpoint_s);
            widen(&get, r->blocked_restore_s / r->expected_restore_s);
        }
        if (bound.nr) {
            fprintf(f, "<li>%s was blocked ", paper_engine_title((enum paper_engine)e));
            put_range(f, &bound);
            fputs(" times as long as the bound</li>\n", f);
        }
        if (put.nr && get.nr) {
            fprintf(f, "<li>%s: measured over what its bandwidths explain, checkpoint ",
                    paper_engine_title((enum paper_engine)e));
            put_range(f, &put);
            fputs(", restore ", f);
            put_range(f, &get);
            fputs("</li>\n", f);
        }
    }
}

/* The reached figures, if there is no engine to compare with. */
static size_t put_reached(FILE *f, const struct table *t)
{
    size_t n = 0;
    char put[PAPER_NUMBER], get[PAPER_NUMBER], point[PAPER_NUMBER];

    for (size_t i = 0; i < t->nr; i++) {
        const struct row *r = &t->rows[i];

        if (r->series.engine != PAPER_VARVE || !isfinite(r->checkpoint_gbps))
            continue;
        fprintf(f, "<li>%s, %s: checkpoint %s, restore %s GB/s</li>\n", r->series.name,
                r->scaled ? point_text(PAPER_OVER_GPUS, r->point, point, sizeof(point))
                          : paper_order_name(r->run->order),
                paper_number(r->checkpoint_gbps, put, sizeof(put)),
                paper_number(r->restore_gbps, get, sizeof(get)));
        n++;
    }
    return n;
}

static void put_iterations(FILE *f, const struct table *t)
{
    for (size_t k = 0; k < t->nr; k++) {
        const struct row *r = &t->rows[k];
        double most = 0, first = NAN;
        char rate[PAPER_NUMBER], mean[PAPER_NUMBER];

        if (!r->run || !shows(r->run) || !r->run->distance)
            continue;
        for (size_t i = 0; i < r->run->nr_gets; i++) {
            if (r->run->distance[i] > most) {
                most = r->run->distance[i];
                first = (double)i;
            }
        }
        fprintf(f, "<li>%s: %s GB/s over all restores; %s checkpoints ahead on average",
                paper_hints_title(r->series.hints),
                paper_number(r->restore_gbps, rate, sizeof(rate)),
                paper_number(r->run->prefetch_distance, mean, sizeof(mean)));
        if (most > 0)
            fprintf(f, ", %.0f at most, first at restore %.0f", most, first);
        fputs("</li>\n", f);
    }
}

static void put_showed(FILE *f, enum paper_figure_id figure, const struct table *t)
{
    static const enum paper_engine others[] = {PAPER_UVM, PAPER_ONDEMAND, PAPER_FILE, PAPER_SCORE};
    size_t n = 0;

    fputs("<ul>\n", f);
    if (paper_figures[figure].kind == PAPER_OVER_TIME)
        put_iterations(f, t);
    for (size_t i = 0; paper_figures[figure].kind != PAPER_OVER_TIME && i < VV_ARRAY_SIZE(others);
         i++)
        n += put_comparison(f, t, others[i]);
    if (n == 0 && paper_figures[figure].kind != PAPER_OVER_TIME)
        n = put_reached(f, t);
    put_explained(f, t);
    if (n == 0 && paper_figures[figure].kind != PAPER_OVER_TIME)
        fputs("<li class=\"bad\">nothing was measured</li>\n", f);
    fputs("</ul>\n", f);
}

static void put_table(FILE *f, enum paper_figure_id figure, const struct table *t)
{
    const struct paper_figure *fig = &paper_figures[figure];

    fprintf(f,
            "<details><summary>Table</summary>\n<div class=\"scroll\"><table "
            "id=\"table-%s\"><tr><th>%s</th>"
            "<th>hints</th><th>engine</th><th>checkpoint_gbps</th><th>restore_gbps</th>"
            "<th>wall_s</th><th>status</th><th>remark</th></tr>\n",
            fig->id, point_name(fig->kind));
    for (size_t i = 0; i < t->nr; i++) {
        const struct row *r = &t->rows[i];
        char point[PAPER_NUMBER], put[PAPER_NUMBER], get[PAPER_NUMBER], wall[PAPER_NUMBER];

        fprintf(f,
                "<tr><td>%s</td><td>%s</td><td>%s</td><td class=\"n\">%s</td>"
                "<td class=\"n\">%s</td><td class=\"n\">%s</td><td>%s</td><td>",
                point_text(fig->kind, r->point, point, sizeof(point)),
                paper_hints_name(r->series.hints), paper_engine_name(r->series.engine),
                paper_number(r->checkpoint_gbps, put, sizeof(put)),
                paper_number(r->restore_gbps, get, sizeof(get)),
                paper_number(r->wall_s, wall, sizeof(wall)), row_status(r));
        page_text(f, r->run ? r->run->text : "");
        fputs("</td></tr>\n", f);
    }
    fputs("</table></div></details>\n", f);
}

static int put_figure(FILE *f, const struct paper *paper, enum paper_figure_id figure)
{
    const struct paper_figure *fig = &paper_figures[figure];
    struct table t = {0};
    int rc = make_table(paper, figure, &t);

    fprintf(f, "<section id=\"fig-%s\">\n<h2>Figure %s: ", fig->id, fig->id);
    page_text(f, fig->title);
    fputs("</h2>\n", f);
    fputs("<div class=\"scroll wide\">\n", f);
    if (rc == 0)
        rc = draw(f, paper, figure, &t);
    fputs("</div>\n<div class=\"two\"><div><h3>The paper</h3>\n<p>", f);
    page_text(f, fig->claim);
    fprintf(f, "</p></div>\n<div><h3>%s</h3>\n",
            fig->kind == PAPER_OVER_GPUS ? "The simulation" : "This machine");
    if (fig->kind == PAPER_OVER_GPUS && paper->scale_text[0]) {
        fputs("<p class=\"bad\">The simulation failed: ", f);
        page_text(f, paper->scale_text);
        fputs("</p>\n", f);
    }
    if (fig->barrier)
        fputs(
            "<p>Waiting for other processes at a barrier is not blocked time. One that is blocked "
            "makes all others wait, and their transfers go on meanwhile: a series can reach a "
            "higher rate and yet take longer. The table has the duration of each shot.</p>\n",
            f);
    put_showed(f, figure, &t);
    fputs("</div></div>\n", f);
    put_table(f, figure, &t);
    fprintf(f, "<p>Data: <a href=\"fig-%s.csv\">fig-%s.csv</a>, chart: ", fig->id, fig->id);
    fprintf(f, "<a href=\"fig-%s.svg\">fig-%s.svg</a></p>\n</section>\n", fig->id, fig->id);
    free(t.rows);
    return rc;
}

static void put_machine(FILE *f, const struct paper *paper)
{
    const char *s = paper->machine;
    char name[64], text[512];

    fputs("<table id=\"machine\">\n", f);
    while (*s) {
        size_t n = strcspn(s, "\t"), m = strcspn(s + n, "\n");

        snprintf(name, sizeof(name), "%.*s", (int)n, s);
        snprintf(text, sizeof(text), "%.*s", m ? (int)m - 1 : 0, s + n + 1);
        page_pair(f, name, text, false);
        s += n + m + (s[n + m] == '\n');
    }
    page_pair(f, "command", paper->command, true);
    page_pair(f, "date", paper->date, false);
    snprintf(text, sizeof(text), "%.0f s", paper->elapsed_s);
    page_pair(f, "duration", text, false);
    fputs("</table>\n", f);
}

/* All runs with a problem, before the first figure. */
static void put_failures(FILE *f, const struct paper *paper)
{
    size_t count[PAPER_FAILED + 1] = {0}, kept = 0;

    for (size_t i = 0; i < paper->nr_runs; i++) {
        count[paper->runs[i].status]++;
        kept += paper->runs[i].kept;
    }
    fprintf(f,
            "<p id=\"counts\">%zu runs: %zu ok, %zu doubtful, %zu failed, %zu not run; %zu of them "
            "were kept from an earlier run of the command. Every byte that a run restored was "
            "verified.</p>\n",
            paper->nr_runs, count[PAPER_OK], count[PAPER_DOUBTFUL], count[PAPER_FAILED],
            count[PAPER_TO_DO], kept);
    if (count[PAPER_OK] == paper->nr_runs)
        return;
    fputs("<details open><summary class=\"bad\">Runs that are not ok</summary><div "
          "class=\"scroll\"><table>\n"
          "<tr><th>run</th><th>status</th><th>reason</th><th>command</th></tr>\n",
          f);
    for (size_t i = 0; i < paper->nr_runs; i++) {
        const struct paper_run *r = &paper->runs[i];

        if (r->status == PAPER_OK)
            continue;
        fprintf(f, "<tr><td>%s</td><td class=\"bad\">%s</td><td>", r->id,
                paper_status_name(r->status));
        page_text(f, r->status != PAPER_TO_DO ? r->text
                     : paper_interrupted      ? "interrupted"
                                              : "the time was over");
        fputs("</td><td><code>", f);
        page_text(f, r->command);
        fputs("</code></td></tr>\n", f);
    }
    fputs("</table></div></details>\n", f);
}

static int write_page(FILE *f, const struct paper *paper, enum paper_figure_id figure,
                      const struct table *t)
{
    int rc = 0;

    (void)figure;
    (void)t;
    page_begin(f, "Varve: the experiments of the HPDC'23 paper", false);
    fputs("<h1>GPU checkpoint caching and prefetching: the paper's experiments, repeated</h1>\n",
          f);
    fputs("<p>The experiments of \"GPU-Enabled Asynchronous Multi-level Checkpoint Caching and "
          "Prefetching\" (HPDC'23), Figures 5 to 9, as Varve performs them. A shot writes a number "
          "of checkpoints, computing before each, and then restores every one of them. Throughput "
          "is bytes over the time for which the calls blocked the application; 1 GB is 10<sup>9"
          "</sup> bytes. Axes of throughput are logarithmic.</p>\n"
          "<p>Of the paper's competitors, <em>UVM</em> is our own program after its description, "
          "and <em>on-demand copies</em> to pinned host memory stand where ADIOS2 stood: no cache "
          "on the GPU. <em>Plain files</em> are written and read through a staging buffer. A red "
          "cross is a run that failed or was not run.</p>\n",
          f);
    fputs(
        strcmp(paper->opts.device, "host") == 0
            ? "<p>Here the device is emulated by the processor: the figures show that the "
              "experiments run, not what a GPU would reach.</p>\n"
            : "<p>The paper measured eight GPUs of one node at once; here one GPU has the machine "
              "for itself.</p>\n",
        f);
    if (!(paper->opts.engines & 1u << PAPER_UVM))
        fputs("<p>UVM was not part of this run.</p>\n", f);
    put_machine(f, paper);
    put_failures(f, paper);
    for (int i = 0; i < PAPER_FIGURE_NR && rc == 0; i++)
        if (paper->opts.figures & 1u << i)
            rc = put_figure(f, paper, (enum paper_figure_id)i);
    if (paper->scale_command[0]) {
        fputs("<p>Figures 9a and 9b: <code>", f);
        page_text(f, paper->scale_command);
        fputs("</code></p>\n", f);
    }
    fputs("<p>All runs, with the command that repeats each: <a href=\"runs.csv\">runs.csv</a>"
          "</p>\n",
          f);
    page_end(f, false);
    return rc;
}

/* ---- files ---- */

typedef int writer(FILE *f, const struct paper *paper, enum paper_figure_id figure,
                   const struct table *t);

static int write_file(const struct paper *paper, const char *name, writer *write,
                      enum paper_figure_id figure, const struct table *t, char *err,
                      size_t err_size)
{
    struct output_file file;
    int rc = output_begin(paper->opts.out, name, &file);

    if (rc == 0)
        rc = write(file.f, paper, figure, t);
    return output_end(&file, rc, err, err_size);
}

static int write_figure(const struct paper *paper, enum paper_figure_id figure, char *err,
                        size_t err_size)
{
    const struct paper_figure *fig = &paper_figures[figure];
    struct table t = {0};
    char name[32];
    int rc = make_table(paper, figure, &t);

    if (rc < 0)
        snprintf(err, err_size, "%s", strerror(-rc));
    if (rc == 0) {
        snprintf(name, sizeof(name), "fig-%s.csv", fig->id);
        rc = write_file(paper, name, fig->kind == PAPER_OVER_TIME ? csv_iterations : csv_table,
                        figure, &t, err, err_size);
    }
    if (rc == 0) {
        snprintf(name, sizeof(name), "fig-%s.svg", fig->id);
        rc = write_file(paper, name, draw, figure, &t, err, err_size);
    }
    free(t.rows);
    return rc;
}

int paper_write(const struct paper *paper, char *err, size_t err_size)
{
    int rc = write_file(paper, "runs.csv", csv_runs, 0, NULL, err, err_size);

    for (int i = 0; i < PAPER_FIGURE_NR && rc == 0; i++)
        if (paper->opts.figures & 1u << i)
            rc = write_figure(paper, (enum paper_figure_id)i, err, err_size);
    if (rc == 0)
        rc = write_file(paper, "index.html", write_page, 0, NULL, err, err_size);
    return rc;
}
