/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varve bench vector: a program that computes on an array, writes it every few time steps and reads
 * all of it back; with blocking I/O on either of two layers, and with a vector on host memory and both.
 * The layers are throttled, by default to the proportions of the MLBS paper, so that the figures depend
 * on the throttles and little on the machine. For each ratio of computing to I/O: the time spent
 * waiting (Table II), the speed-up of the whole program, expected and actual (Table III).
 *
 * The model's prediction is computed from bandwidths measured before the run, and again from
 * those measured while it ran.
 */
#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "cli/common/command.h"
#include "cli/common/json.h"
#include "cli/common/options.h"
#include "cli/common/output.h"
#include "cli/common/plot.h"
#include "cli/common/progress.h"
#include "lab/lab.h"
#include "lab/outofcore/bench_outofcore.h"

#define COMMAND "varve bench vector"

/* The proportions of the paper: bandwidths of Table II at ratio 1 over that of Lustre, and the computing of one
 * step (1800 s for 7000 of them) in units of the time that Lustre takes for one array. */
#define PAPER_BUFFER 3.157 /* 48910 s / 15491.2 s */
#define PAPER_COPY   160.7 /* 92 GiB/s, from the I/O time of MLBS at ratio 50 */
#define PAPER_STEP   0.03681
/* Table IV, 2.9 GiB: the expected speed-ups of burst buffer and MLBS give the time of I/O on the burst
 * buffer and of computing, in units of the time with Lustre; host memory held 5% of the records. */
#define RTM_BUFFER    8.23
#define RTM_WINDOW    0.1876 /* computing between two records over Lustre's time for one */
#define RTM_RATIO     8
#define RTM_HOST_PART 20

enum pattern { MICRO, RTM, VPIC, HACC };

static const char *const pattern_names[] = {"micro", "rtm", "vpic", "hacc"};

struct ooc_opts {
    int pattern; /* enum pattern */
    int order;   /* 0: lifo */
    struct ooc_plan plan;
    uint64_t ratio[OOC_RATIOS_MAX], host_cache, part;
    size_t nr_ratios;
    bool ratios_given, steps_given, fast_given, step_given, host_given, order_given;
    bool json, check;
    const char *csv, *svg, *dir;
    uint64_t runs;
};

struct ooc_row {
    struct ooc_plan plan;
    struct ooc_start start;
    struct ooc_run slow, fast, varve;
    struct vv_model_answer expected; /* from the measurements before the run */
    struct vv_model_answer measured; /* from the measurements during the run */
};

struct ooc_rows {
    const struct ooc_opts *o;
    struct ooc_row row[OOC_RATIOS_MAX];
    size_t nr;
};

/* ---- the command line ---- */

static int parse_rate(const char *value, struct ooc_rate *ret_rate)
{
    return output_parse_rates(value, 1000, &ret_rate->write, &ret_rate->read);
}

static int set_ratios(const char *value, void *arg)
{
    struct ooc_opts *o = arg;

    return output_parse_list(value, UINT32_MAX, o->ratio, OOC_RATIOS_MAX, &o->nr_ratios);
}

static int set_slow(const char *value, void *arg)
{
    return parse_rate(value, &((struct ooc_opts *)arg)->plan.slow);
}

static int set_fast(const char *value, void *arg)
{
    return parse_rate(value, &((struct ooc_opts *)arg)->plan.fast);
}

static int set_copy(const char *value, void *arg)
{
    struct ooc_rate copy;
    int rc = parse_rate(value, &copy);

    if (rc == 0)
        ((struct ooc_opts *)arg)->plan.copy = copy.write;
    return rc;
}

static int set_dir(const char *value, void *arg)
{
    ((struct ooc_opts *)arg)->dir = value;
    return strlen(value) < OOC_PATH_BYTES / 2 ? 0 : -EINVAL;
}

#define AT(field)    offsetof(struct ooc_opts, field)
#define GIVEN(field) OPT_GIVEN(struct ooc_opts, field)
#define RATES        "WRITE[:READ] of 1000 bytes a second at least (for example 16M:32M)"

static const struct opt options[] = {
    {OPT_WORD, .name = "pattern", .arg = "NAME", .at = AT(pattern), .words = "micro|rtm|vpic|hacc",
     .help = "micro: the micro-benchmark of the MLBS paper (Tables II and III);\n"
             "rtm: seismic imaging (Table IV); vpic: 16 records are written, and\n"
             "nothing else is done; hacc: the same, and read in order (micro)"},
    {OPT_BYTES, .name = "record", .arg = "SIZE", .at = AT(plan.record_bytes), .least = 4096,
     .help = "the array (1M)", .takes = "a size from 4K on (for example 1M)"},
    {OPT_U64, .name = "steps", .arg = "N", .at = AT(plan.steps), .given = GIVEN(steps_given),
     .least = 1, .most = UINT32_MAX, .help = "time steps of each phase (120; rtm: 480)"},
    {OPT_SET, .name = "ratio", .arg = "N,...", .set = set_ratios, .given = GIVEN(ratios_given),
     .help = "time steps between two records (1,2,3,5,10,15,20,30,40,50)",
     .takes = "a list of whole numbers (for example 1,10,50)"},
    {OPT_REAL, .name = "step-time", .arg = "S", .at = AT(plan.step_s), .given = GIVEN(step_given),
     .high = 3600, .help = "seconds that one step computes (in proportion)"},
    {OPT_SET, .name = "slow", .arg = "W[:R]", .set = set_slow, .takes = RATES,
     .help = "bandwidths of the slow layer, the file system (16M)"},
    {OPT_SET, .name = "fast", .arg = "W[:R]", .set = set_fast, .given = GIVEN(fast_given),
     .takes = RATES, .help = "those of the fast one, the burst buffer (in proportion)"},
    {OPT_SET, .name = "copy", .arg = "RATE", .set = set_copy, .takes = RATES,
     .help = "that of host memory (in proportion)"},
    {OPT_BYTES, .name = "host-cache", .arg = "SIZE", .at = AT(host_cache),
     .given = GIVEN(host_given),
     .help = "host memory for records, two of them at least (4 records)"},
    {OPT_U64, .name = "part", .arg = "N", .at = AT(part), .least = 1, .most = 1000000,
     .help = "the fast layer holds one Nth of the records (1: all)"},
    {OPT_WORD, .name = "order", .arg = "NAME", .at = AT(order), .given = GIVEN(order_given),
     .words = "lifo|fifo", .help = "lifo or fifo: how records are read back (lifo; hacc: fifo)"},
    {OPT_FLAG, .name = "spin", .at = AT(plan.spin),
     .help = "computing keeps its thread busy, and does not sleep"},
    {OPT_U64, .name = "runs", .arg = "N", .at = AT(runs), .least = 1, .most = 100,
     .help = "the best of so many runs (1)"},
    {OPT_SET, .name = "dir", .arg = "FOLDER", .set = set_dir,
     .takes = "a path that is short enough",
     .help = "where folders for the layers are made ($TMPDIR, or /tmp)"},
    {OPT_TEXT, .name = "local", .arg = "FOLDER", .help = "the fast layer, instead",
     .at = AT(plan.fast_dir)},
    {OPT_TEXT, .name = "remote", .arg = "FOLDER", .help = "the slow one", .at = AT(plan.slow_dir)},
    {OPT_FLAG, .name = "check", .at = AT(check),
     .help = "exit 1 if the run is too far from the model"},
    {OPT_TEXT, .name = "csv", .arg = "FILE", .at = AT(csv),
     .help = "write the rows as CSV; -: to standard output"},
    {OPT_TEXT, .name = "svg", .arg = "FILE", .help = "draw them", .at = AT(svg)},
    {OPT_FLAG, .name = "json", .help = "print one JSON object", .at = AT(json)},
};

static const struct opts command = {
    .command = COMMAND,
    .usage = "[OPTION]...",
    .about =
        "Runs a program that computes on an array, writes it every few time steps and reads all\n"
        "of it back, with blocking I/O on a slow and on a fast layer, and with a vector that\n"
        "uses host memory and both. Prints how long it waited, and the time that the model "
        "expects.",
    OPT_LIST(options),
};

static int refuse(const char *text)
{
    fprintf(stderr, COMMAND ": %s\n", text);
    return CLI_USAGE;
}

/* Options that were not given follow from the pattern, in the paper's proportions. */
static int settle(struct ooc_opts *o)
{
    struct ooc_plan *p = &o->plan;
    double array_s = (double)p->record_bytes / p->slow.write;
    bool io_only = o->pattern == VPIC || o->pattern == HACC;

    p->reads = o->pattern != VPIC;
    if (!o->fast_given) {
        double times = o->pattern == RTM ? RTM_BUFFER : PAPER_BUFFER;
        p->fast = (struct ooc_rate){times * p->slow.write, times * p->slow.read};
    }
    if (p->copy == 0)
        p->copy = PAPER_COPY * p->slow.write;
    if (!o->step_given)
        p->step_s = io_only             ? 0
                    : o->pattern == RTM ? RTM_WINDOW / RTM_RATIO * array_s
                                        : PAPER_STEP * array_s;
    if (!o->steps_given)
        p->steps = io_only ? 16 : o->pattern == RTM ? 60 * RTM_RATIO : 120;
    p->lifo = o->order_given ? o->order == 0 : o->pattern != HACC;
    if (!o->ratios_given && o->pattern != MICRO) {
        o->ratio[0] = o->pattern == RTM ? RTM_RATIO : 1;
        o->nr_ratios = 1;
    }
    while (!o->ratios_given && o->nr_ratios > 1 && o->ratio[o->nr_ratios - 1] > p->steps)
        o->nr_ratios--;
    if (!o->host_given)
        o->host_cache = o->pattern == RTM ? p->steps / o->ratio[0] * p->record_bytes / RTM_HOST_PART
                                          : 4 * p->record_bytes;
    if (o->host_cache < 2 * p->record_bytes)
        return refuse("--host-cache: room for two records at least");
    for (size_t i = 0; i < o->nr_ratios; i++)
        if (o->ratio[i] > p->steps)
            return refuse("--ratio: no record is written in so few steps");
    return -1;
}

/* Returns an exit status, or -1 to go on. */
static int parse(int argc, char **argv, struct ooc_opts *o)
{
    int first, status = opts_parse(&command, argc, argv, o, &first);

    return status >= 0 ? status : settle(o);
}

/* ---- running ---- */

static void make_plan(const struct ooc_opts *o, uint64_t ratio, struct ooc_plan *ret)
{
    *ret = o->plan;
    ret->ratio = ratio;
    ret->records = ret->steps / ratio;
    ret->host_bytes = o->host_cache;
    /* Whole pages, and two more, so that the last record of all fits too. */
    uint64_t page = 64 << 10, each = vv_align_up(ret->record_bytes, page);
    ret->fast_bytes = VV_MAX(vv_div_up(ret->records * each, o->part), each) +
                      (o->part == 1 ? ret->records * each / 4 : 0);
}

static void keep_best(struct ooc_run *best, const struct ooc_run *run, bool first)
{
    uint64_t bytes = best->bytes + run->bytes, wrong = best->wrong_bytes + run->wrong_bytes;

    if (first || run->wall_s < best->wall_s)
        *best = *run;
    best->bytes = bytes;
    best->wrong_bytes = wrong;
}

static int run_row(const struct ooc_opts *o, uint64_t ratio, char *err, size_t err_bytes,
                   struct ooc_row *row)
{
    int rc;

    *row = (struct ooc_row){0};
    make_plan(o, ratio, &row->plan);
    rc = ooc_measure_start(&row->plan, err, err_bytes, &row->start);
    for (uint64_t i = 0; i < o->runs && rc == 0; i++) {
        struct ooc_run run;
        rc = ooc_run_direct(&row->plan, false, err, err_bytes, &run);
        if (rc == 0)
            keep_best(&row->slow, &run, i == 0);
        if (rc == 0)
            rc = ooc_run_direct(&row->plan, true, err, err_bytes, &run);
        if (rc == 0)
            keep_best(&row->fast, &run, i == 0);
        if (rc == 0)
            rc = ooc_run_varve(&row->plan, err, err_bytes, &run);
        if (rc == 0)
            keep_best(&row->varve, &run, i == 0);
    }
    if (rc < 0)
        return rc;
    const struct ooc_start *s = &row->start;
    const struct ooc_run *v = &row->varve;
    struct ooc_rate fast = {v->fast.write > 0 ? v->fast.write : s->fast.write,
                            v->fast.read > 0 ? v->fast.read : s->fast.read};
    struct ooc_rate slow = {v->slow.write > 0 ? v->slow.write : s->slow.write,
                            v->slow.read > 0 ? v->slow.read : s->slow.read};
    double phases = row->plan.reads ? 2 : 1;
    row->expected = ooc_expect(&row->plan, s->step_s, s->copy, &s->fast, &s->slow);
    row->measured = ooc_expect(&row->plan, v->kernel_s / phases / (double)row->plan.steps, s->copy,
                               &fast, &slow);
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

static int run_all(struct ooc_rows *rows)
{
    const struct ooc_opts *o = rows->o;
    struct progress bar;
    char err[512] = "";
    int rc = 0;

    progress_init(&bar);
    for (size_t i = 0; i < o->nr_ratios && rc == 0; i++) {
        progress_show(&bar, (double)i / (double)o->nr_ratios, "runs");
        rc = run_row(o, o->ratio[i], err, sizeof(err), &rows->row[i]);
        rows->nr += rc == 0;
    }
    progress_clear(&bar);
    if (rc < 0)
        fprintf(stderr, COMMAND ": %s\n", err);
    return rc < 0 ? CLI_FAILED : CLI_OK;
}

/* ---- results ---- */

static double actual(const struct ooc_row *r)
{
    return r->slow.wall_s / r->varve.wall_s;
}

static double share_blocked(const struct ooc_row *r)
{
    return ooc_blocked_s(&r->varve) / r->varve.wall_s;
}

static uint64_t wrong_bytes(const struct ooc_row *r)
{
    return r->slow.wrong_bytes + r->fast.wrong_bytes + r->varve.wrong_bytes;
}

static bool limit_held(const struct ooc_row *r)
{
    return r->varve.fast_peak_bytes <= r->varve.fast_limit_bytes;
}

static void print_setup(const struct ooc_opts *o)
{
    const struct ooc_plan *p = &o->plan;
    char a[VV_BYTES_TEXT], b[VV_BYTES_TEXT];

    printf("%s: an array of %s, %" PRIu64 " steps of %.3f ms, host memory for %s of records\n",
           pattern_names[o->pattern], vv_bytes_human(p->record_bytes, a, sizeof(a)), p->steps,
           p->step_s * 1e3, vv_bytes_human(o->host_cache, b, sizeof(b)));
    printf("copy : fast : slow = %.1f : %.2f : 1, slow %.1f MB/s; the fast layer holds ",
           p->copy / p->slow.write, p->fast.write / p->slow.write, p->slow.write / 1e6);
    if (o->part == 1)
        printf("all records\n\n");
    else
        printf("one of %" PRIu64 "\n\n", o->part);
}

static void print_table(const void *result)
{
    const struct ooc_rows *r = result;

    print_setup(r->o);
    printf("%5s %7s %8s | %-26s | %-31s | %s\n", "", "", "", "      waiting, s",
           "   speed-up over slow", "waiting");
    printf("%5s %7s %8s | %8s %8s %8s | %6s %8s %8s %6s | %7s\n", "ratio", "records", "kernel s",
           "slow", "fast", "varve", "fast", "expected", "measured", "actual", "of wall");
    for (size_t i = 0; i < r->nr; i++) {
        const struct ooc_row *row = &r->row[i];
        printf("%5" PRIu64 " %7" PRIu64 " %8.2f | %8.2f %8.2f %8.2f | %6.2f %8.2f %8.2f %6.2f | "
               "%6.2f%%%s%s\n",
               row->plan.ratio, row->plan.records, row->varve.kernel_s, ooc_blocked_s(&row->slow),
               ooc_blocked_s(&row->fast), ooc_blocked_s(&row->varve),
               row->slow.wall_s / row->fast.wall_s, row->expected.speedup, row->measured.speedup,
               actual(row), 100 * share_blocked(row), row->expected.hides ? "  hides" : "",
               wrong_bytes(row)  ? "  WRONG BYTES"
               : limit_held(row) ? ""
                                 : "  LIMIT EXCEEDED");
    }
    printf(
        "\nexpected: by the model, from bandwidths measured before the run; measured: from those "
        "while it ran.\n");
}

static void json_rate(struct json *j, const char *name, const struct ooc_rate *r)
{
    json_object(j, name);
    json_real(j, "write", r->write);
    json_real(j, "read", r->read);
    json_close(j);
}

static void json_run(struct json *j, const char *name, const struct ooc_run *r)
{
    json_object(j, name);
    json_uint(j, "verified_bytes", r->bytes);
    json_uint(j, "wrong_bytes", r->wrong_bytes);
    json_real(j, "wall_s", r->wall_s);
    json_real(j, "kernel_s", r->kernel_s);
    json_real(j, "write_s", r->write_s);
    json_real(j, "read_s", r->read_s);
    json_close(j);
}

static void json_row(struct json *j, const struct ooc_row *row)
{
    json_gap(j, "\n");
    json_object(j, NULL);
    json_uint(j, "ratio", row->plan.ratio);
    json_uint(j, "records", row->plan.records);
    json_uint(j, "fast_limit_bytes", row->varve.fast_limit_bytes);
    json_uint(j, "fast_peak_bytes", row->varve.fast_peak_bytes);
    json_uint(j, "moved_down_bytes", row->varve.down_bytes);
    json_uint(j, "moved_up_bytes", row->varve.up_bytes);
    json_uint(j, "slow_written_bytes", row->varve.slow_written_bytes);
    json_real(j, "expected_speedup", row->expected.speedup);
    json_real(j, "expected_speedup_measured", row->measured.speedup);
    json_real(j, "actual_speedup", actual(row));
    json_real(j, "fast_speedup", row->slow.wall_s / row->fast.wall_s);
    json_real(j, "expected_blocked_s", row->expected.blocked_s);
    json_real(j, "blocked_s", ooc_blocked_s(&row->varve));
    json_real(j, "blocked_share", share_blocked(row));
    json_bool(j, "hides", row->expected.hides);
    json_rate(j, "start_fast", &row->start.fast);
    json_rate(j, "start_slow", &row->start.slow);
    json_rate(j, "running_fast", &row->varve.fast);
    json_rate(j, "running_slow", &row->varve.slow);
    json_run(j, "direct_slow", &row->slow);
    json_run(j, "direct_fast", &row->fast);
    json_run(j, "varve", &row->varve);
    json_close(j);
}

static void print_json(const void *result)
{
    const struct ooc_rows *r = result;
    const struct ooc_plan *p = &r->o->plan;
    struct json j = json_begin(stdout, JSON_COMPACT);

    json_object(&j, NULL);
    json_text(&j, "pattern", pattern_names[r->o->pattern]);
    json_uint(&j, "record_bytes", p->record_bytes);
    json_uint(&j, "steps", p->steps);
    json_uint(&j, "host_bytes", r->o->host_cache);
    json_uint(&j, "part", r->o->part);
    json_text(&j, "order", p->lifo ? "lifo" : "fifo");
    json_real(&j, "step_s", p->step_s);
    json_real(&j, "copy", p->copy);
    json_rate(&j, "fast", &p->fast);
    json_rate(&j, "slow", &p->slow);
    json_array(&j, "rows");
    for (size_t i = 0; i < r->nr; i++)
        json_row(&j, &r->row[i]);
    json_gap(&j, "\n");
    json_close(&j);
    json_close(&j);
    json_end(&j);
}

static int print_csv(FILE *f, const void *result)
{
    const struct ooc_rows *r = result;

    fprintf(f, "ratio,records,kernel_s,slow_blocked_s,fast_blocked_s,varve_blocked_s,fast_speedup,"
               "expected_speedup,measured_speedup,actual_speedup,blocked_share\n");
    for (size_t i = 0; i < r->nr; i++) {
        const struct ooc_row *row = &r->row[i];
        fprintf(f, "%" PRIu64 ",%" PRIu64 ",%.6f,%.6f,%.6f,%.6f,%.4f,%.4f,%.4f,%.4f,%.6f\n",
                row->plan.ratio, row->plan.records, row->varve.kernel_s, ooc_blocked_s(&row->slow),
                ooc_blocked_s(&row->fast), ooc_blocked_s(&row->varve),
                row->slow.wall_s / row->fast.wall_s, row->expected.speedup, row->measured.speedup,
                actual(row), share_blocked(row));
    }
    return 0;
}

static int draw(FILE *f, const void *result)
{
    enum { PANELS = 2, SERIES = 4 };
    static const char *const colours[SERIES] = {"#d55e00", "#e69f00", "#0072b2", "#009e73"};
    static const char *const names[SERIES] = {"slow layer", "fast layer", "varve", "model"};
    const struct ooc_rows *r = result;
    static double x[OOC_RATIOS_MAX], y[PANELS][SERIES][OOC_RATIOS_MAX];
    struct plot_series series[PANELS][SERIES];
    struct plot_panel panels[PANELS];
    char note[160];
    struct plot plot = {
        .title = "Waiting for records", .note = note, .panels = panels, .nr_panels = PANELS};

    for (size_t i = 0; i < r->nr; i++) {
        const struct ooc_row *row = &r->row[i];
        x[i] = (double)row->plan.ratio;
        y[0][0][i] = ooc_blocked_s(&row->slow);
        y[0][1][i] = ooc_blocked_s(&row->fast);
        y[0][2][i] = ooc_blocked_s(&row->varve);
        y[0][3][i] = row->expected.blocked_s;
        y[1][0][i] = 1;
        y[1][1][i] = row->slow.wall_s / row->fast.wall_s;
        y[1][2][i] = actual(row);
        y[1][3][i] = row->expected.speedup;
    }
    for (size_t p = 0; p < PANELS; p++) {
        for (size_t s = 0; s < SERIES; s++)
            series[p][s] = (struct plot_series){.name = names[s],
                                                .colour = colours[s],
                                                .dash = s == 3 ? PLOT_DASHED : PLOT_SOLID,
                                                .x = x,
                                                .y = y[p][s],
                                                .nr = r->nr};
        panels[p] = (struct plot_panel){.kind = PLOT_LINES,
                                        .title = p ? "the whole program" : "time spent waiting",
                                        .x_label = "time steps between two records",
                                        .y_label = p ? "speed-up over the slow layer" : "s",
                                        .log_x = true,
                                        .log_y = p == 0,
                                        .series = series[p],
                                        .nr_series = SERIES};
    }
    snprintf(note, sizeof(note), "%s; copy : fast : slow = %.0f : %.2f : 1; %s",
             pattern_names[r->o->pattern], r->o->plan.copy / r->o->plan.slow.write,
             r->o->plan.fast.write / r->o->plan.slow.write,
             r->o->part == 1 ? "the fast layer holds all records"
                             : "the fast layer holds part of the records");
    return plot_write(f, &plot);
}

/* ---- what should hold ---- */

static bool verdict(bool good, const struct ooc_row *row, const char *text, double got, double want)
{
    if (!good)
        fprintf(stderr, COMMAND ": ratio %" PRIu64 ": %s: %.4f, should be %.4f\n", row->plan.ratio,
                text, got, want);
    return good;
}

/* Where all I/O is hidden, waits take less than 2%. Elsewhere the speed-up is within 10% of the model's, and at
 * least 95% of it if the fast layer is small. */
static bool as_expected(const struct ooc_opts *o, const struct ooc_row *row)
{
    double off = actual(row) / row->expected.speedup;
    bool good = true;

    if (row->expected.hides)
        good &= verdict(share_blocked(row) < 0.02, row, "share of the time spent waiting",
                        share_blocked(row), 0.02);
    else
        good &= verdict(off > 0.9 && off < 1.1, row, "actual over expected speed-up", off, 1);
    if (o->part > 1)
        good &= verdict(off >= 0.95, row, "actual over expected speed-up", off, 0.95);
    if (o->pattern == MICRO && o->part == 1 && row->plan.ratio == 1 && !o->fast_given &&
        !o->step_given)
        good &= verdict(actual(row) >= 3.6, row, "speed-up", actual(row), 3.6);
    if (o->pattern == RTM && o->part == 1 && !o->fast_given && !o->step_given && !o->ratios_given)
        good &= verdict(actual(row) >= 6, row, "speed-up", actual(row), 6);
    return good;
}

static int judge(const struct ooc_rows *r)
{
    int status = CLI_OK;

    for (size_t i = 0; i < r->nr; i++) {
        const struct ooc_row *row = &r->row[i];
        if (wrong_bytes(row) || !limit_held(row)) {
            fprintf(stderr, COMMAND ": ratio %" PRIu64 ": %s\n", row->plan.ratio,
                    wrong_bytes(row) ? "wrong bytes were read" : "the limit was exceeded");
            status = CLI_FAILED;
        }
        if (r->o->check && !as_expected(r->o, row))
            status = CLI_FAILED;
    }
    return status;
}

int lab_bench_outofcore(int argc, char **argv)
{
    struct ooc_opts o = {
        .plan = {.record_bytes = 1 << 20, .slow = {16e6, 16e6}, .seed = 20200616, .lifo = true},
        .ratio = {1, 2, 3, 5, 10, 15, 20, 30, 40, 50},
        .nr_ratios = 10,
        .part = 1,
        .runs = 1};
    static struct ooc_rows rows;
    struct output_forms forms = {
        .print_json = print_json, .print_table = print_table, .print_csv = print_csv, .draw = draw};
    int status = parse(argc, argv, &o);

    if (status >= 0)
        return status;
    if (output_try(COMMAND, o.csv) || output_try(COMMAND, o.svg))
        return CLI_FAILED;
    const char *dir = o.dir ? o.dir : getenv("TMPDIR");
    rows.o = &o;
    snprintf(o.plan.folder, sizeof(o.plan.folder), "%.*s/varve-outofcore-XXXXXX",
             OOC_PATH_BYTES / 2, dir && *dir ? dir : "/tmp");
    if (!mkdtemp(o.plan.folder)) {
        fprintf(stderr, COMMAND ": no folder can be made in %s (--dir): %s\n",
                dir && *dir ? dir : "/tmp", strerror(errno));
        return CLI_FAILED;
    }
    status = run_all(&rows);
    nftw(o.plan.folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    if (status != CLI_OK)
        return status;
    forms.json = o.json;
    forms.csv = o.csv;
    forms.svg = o.svg;
    status = output_print(COMMAND, &forms, &rows);
    int judged = judge(&rows);
    return status == CLI_OK ? judged : status;
}
