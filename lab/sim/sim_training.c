/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varve sim training: the cost of failures for a training job, for each mode to handle them, on more and more
 * nodes. Node counts are computed one after the other, each on all threads; all modes see the same failures.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/topo.h"
#include "cli/common/command.h"
#include "cli/common/json.h"
#include "cli/common/options.h"
#include "cli/common/output.h"
#include "cli/common/plot.h"
#include "lab/lab.h"
#include "lab/sim/training.h"

#define COMMAND       "varve sim training"
#define LIST_MAX      32
#define DEFAULT_NODES "64,128,256,512,1024"

struct train_opts {
    struct training_opts sim;
    uint64_t nodes[LIST_MAX];
    size_t nr_nodes;
    bool json, params;
    const char *csv, *svg;
};

struct rows {
    const struct train_opts *o;
    struct training_row (*row)[TRAINING_MODES]; /* of each number of nodes */
    struct sim_progress progress;
};

/* ---- the command line ---- */

static int parse_params(const char *list, struct training_params *p)
{
    char word[64], *eq, *end;

    do {
        double value;

        if (!output_next_word(&list, word, sizeof(word)) || !(eq = strchr(word, '=')))
            return -EINVAL;
        *eq = '\0';
        value = strtod(eq + 1, &end);
        if (end == eq + 1 || *end || training_params_set(p, word, value) < 0)
            return -EINVAL;
    } while (*list);
    return 0;
}

static int set_nodes(const char *value, void *arg)
{
    struct train_opts *o = arg;

    return output_parse_list(value, VV_PLACE_NODES_MAX, o->nodes, LIST_MAX, &o->nr_nodes);
}

static int set_params(const char *value, void *arg)
{
    return parse_params(value, &((struct train_opts *)arg)->sim.params);
}

static int set_scheme(const char *value, void *arg)
{
    struct train_opts *o = arg;
    int rc = vv_place_scheme_parse(value, &o->sim.scheme);

    return rc == 0 && o->sim.scheme == VV_PLACE_MOD ? -EINVAL : rc;
}

#define AT(field) offsetof(struct train_opts, field)

static const struct opt options[] = {
    {OPT_NOTE, .help =
                   "  none            the job ends and is started again\n"
                   "  redirect        lost files are read from the shared file system, every "
                   "epoch\n"
                   "  recache-demand  a lost file's new owner fetches it when it is first asked "
                   "for it\n"
                   "  recache         new owners fetch lost files as soon as they know\n"
                   "  replicas        every file is on two nodes\n"},
    {OPT_NOTE, .help = ""},
    {OPT_SET, .name = "nodes", .arg = "N,...", .set = set_nodes,
     .help = "numbers of nodes (" DEFAULT_NODES ")",
     .takes = "a list of whole numbers from 1 to 65536"},
    {OPT_U32, .name = "runs", .arg = "N", .at = AT(sim.runs), .least = 1, .most = 100000,
     .help = "jobs with different failures; their mean is shown (20)"},
    {OPT_SET, .name = "set", .arg = "NAME=VALUE,...", .set = set_params,
     .help = "parameters of the model",
     .takes = "a list of NAME=VALUE that the model knows (see --params)"},
    {OPT_FLAG, .name = "params", .at = AT(params),
     .help = "print them, with their sources, and end"},
    {OPT_SET, .name = "scheme", .arg = "NAME", .set = set_scheme,
     .help = "placement: ring, hrw or hrw-bounded (hrw-bounded)",
     .takes = "one of ring, hrw, hrw-bounded"},
    {OPT_U64, .name = "seed", .arg = "N", .at = AT(sim.seed), .least = 1,
     .help = "other failures (1)"},
    {OPT_U32, .name = "jobs", .arg = "N", .at = AT(sim.jobs), .least = 1, .most = SIM_JOBS_MAX,
     .help = "threads (a core each)"},
    {OPT_TEXT, .name = "csv", .arg = "FILE", .at = AT(csv),
     .help = "write the rows as CSV; -: to standard output"},
    {OPT_TEXT, .name = "svg", .arg = "FILE", .help = "draw them", .at = AT(svg)},
    {OPT_FLAG, .name = "json", .help = "print one JSON object", .at = AT(json)},
};

static const struct opts command = {
    .command = COMMAND,
    .usage = "[OPTION]...",
    .about =
        "Simulates training on nodes that keep the data set on their local disks, while nodes\n"
        "fail, and prints how much longer it takes than without a failure, for each mode:",
    OPT_LIST(options),
};

static int check(const struct train_opts *o)
{
    for (size_t i = 0; i < o->nr_nodes; i++) {
        if (o->sim.params.failures >= (double)o->nodes[i]) {
            fprintf(stderr, COMMAND ": --failures %g: expected fewer than the %" PRIu64 " nodes\n",
                    o->sim.params.failures, o->nodes[i]);
            return CLI_USAGE;
        }
    }
    if (o->json && o->csv && strcmp(o->csv, "-") == 0) {
        fprintf(stderr,
                COMMAND ": --json and --csv - both write to standard output: give --csv a file\n");
        return CLI_USAGE;
    }
    return -1;
}

/* Returns an exit status, or -1 to go on. */
static int parse(int argc, char **argv, struct train_opts *o)
{
    int first, status = opts_parse(&command, argc, argv, o, &first);

    return status >= 0 ? status : check(o);
}

static double param_value(const struct training_params *p, const struct training_param_info *i)
{
    return *(const double *)(const void *)((const char *)p + i->offset);
}

static void print_params(const struct training_params *p)
{
    printf("%-13s %10s %-5s %-9s %s\n", "NAME", "VALUE", "UNIT", "SOURCE", "MEANING");
    for (const struct training_param_info *i = training_param_table; i->name; i++)
        printf("%-13s %10.10g %-5s %-9s %s\n", i->name, param_value(p, i), i->unit,
               training_source_name(i->source), i->meaning);
}

/* ---- running ---- */

static int run_rows(void *arg)
{
    struct rows *r = arg;
    struct training_opts o = r->o->sim;
    int rc = 0;

    for (size_t i = 0; i < r->o->nr_nodes && rc == 0; i++) {
        o.nodes = (uint32_t)r->o->nodes[i];
        rc = training_run(&o, &r->progress, r->row[i]);
    }
    return rc;
}

/* ---- printing ---- */

/* The paper's measurement on its machine; NAN: it has none. */
static double paper_overhead(const struct training_row *x)
{
    bool first = x->nodes == 64, last = x->nodes == 1024;

    if (x->mode == TRAINING_REDIRECT && (first || last))
        return first ? 0.322 : 0.687;
    if ((x->mode == TRAINING_DEMAND || x->mode == TRAINING_RECACHE) && (first || last))
        return first ? 0.125 : 0.267;
    return (double)NAN;
}

static void print_table(const void *result)
{
    const struct rows *r = result;
    struct training_params usual;
    bool as_usual;

    training_params_init(&usual);
    as_usual = memcmp(&usual, &r->o->sim.params, sizeof(usual)) == 0;
    printf("%g epochs, %g samples, %g failures after the first epoch, mean of %" PRIu32 " runs\n\n",
           r->o->sim.params.epochs, r->o->sim.params.samples, r->o->sim.params.failures,
           r->o->sim.runs);
    printf("                       no failure  with failures            longer by   of that:       "
           "            epoch, s     shared\n"
           "nodes  mode                     s        s      sd        (paper)   restarts    reads  "
           "   clean   victim      reads\n");
    for (size_t i = 0; i < r->o->nr_nodes; i++) {
        for (int m = 0; m < TRAINING_MODES; m++) {
            const struct training_row *x = &r->row[i][m];
            char paper[16] = "", victim[16] = "-";

            if (as_usual && !isnan(paper_overhead(x)))
                snprintf(paper, sizeof(paper), "(%.1f%%)", 100 * paper_overhead(x));
            if (isfinite(x->victim_epoch_s))
                snprintf(victim, sizeof(victim), "%.1f", x->victim_epoch_s);
            printf("%5" PRIu32 "  %-15s %10.1f %8.1f %7.1f %7.1f%% %8s %9.1f%% %7.2f%% %8.1f %8s "
                   "%10.0f\n",
                   x->nodes, training_mode_name(x->mode), x->baseline_s, x->total_s, x->total_sd,
                   100 * x->overhead, paper, 100 * x->overhead_restart, 100 * x->overhead_reads,
                   x->epoch_s, victim, x->shared_reads);
        }
    }
}

/* X(name, value): the figures of a row. */
#define COLUMNS(X)                           \
    X(baseline_s, x->baseline_s)             \
    X(total_s, x->total_s)                   \
    X(total_sd, x->total_sd)                 \
    X(overhead, x->overhead)                 \
    X(overhead_restart, x->overhead_restart) \
    X(overhead_reads, x->overhead_reads)     \
    X(epoch_s, x->epoch_s)                   \
    X(victim_epoch_s, x->victim_epoch_s)     \
    X(shared_reads, x->shared_reads)         \
    X(paper_overhead, paper_overhead(x))

static int print_csv(FILE *f, const void *arg)
{
    const struct rows *r = arg;

    fprintf(f, "nodes,mode");
#define X(name, value) fprintf(f, "," #name);
    COLUMNS(X)
#undef X
    fputc('\n', f);
    for (size_t i = 0; i < r->o->nr_nodes; i++) {
        for (int m = 0; m < TRAINING_MODES; m++) {
            const struct training_row *x = &r->row[i][m];

            fprintf(f, "%" PRIu32 ",%s", x->nodes, training_mode_name(x->mode));
#define X(name, value)              \
    if (isfinite(value))            \
        fprintf(f, ",%.9g", value); \
    else                            \
        fputc(',', f);
            COLUMNS(X)
#undef X
            fputc('\n', f);
        }
    }
    return 0;
}

static void print_json(const void *result)
{
    const struct rows *r = result;
    struct json j = json_begin(stdout, JSON_COMPACT);

    json_object(&j, NULL);
    json_text(&j, "command", "sim training");
    json_uint(&j, "runs", r->o->sim.runs);
    json_uint(&j, "seed", r->o->sim.seed);
    json_text(&j, "scheme", vv_place_scheme_name(r->o->sim.scheme));
    json_object(&j, "params");
    for (const struct training_param_info *i = training_param_table; i->name; i++)
        json_real(&j, i->name, param_value(&r->o->sim.params, i));
    json_close(&j);
    json_array(&j, "rows");
    for (size_t i = 0; i < r->o->nr_nodes; i++) {
        for (int m = 0; m < TRAINING_MODES; m++) {
            const struct training_row *x = &r->row[i][m];

            json_gap(&j, "\n");
            json_object(&j, NULL);
            json_uint(&j, "nodes", x->nodes);
            json_text(&j, "mode", training_mode_name(x->mode));
#define X(name, value) json_real(&j, #name, value);
            COLUMNS(X)
#undef X
            json_close(&j);
        }
    }
    json_gap(&j, "\n");
    json_close(&j);
    json_close(&j);
    json_end(&j);
}

/* Figure 5(b), the duration of a job, and Figure 6(a), that of an epoch with a failure. */
static int draw(FILE *f, const void *arg)
{
    enum { PANELS = 2, SERIES = TRAINING_MODES };
    static const char *const colours[SERIES] = {"#56b4e9", "#d55e00", "#e69f00", "#009e73",
                                                "#0072b2"};
    const struct rows *r = arg;
    size_t nr = r->o->nr_nodes;
    char names[LIST_MAX][16], note[128];
    const char *groups[LIST_MAX];
    double y[PANELS][SERIES][LIST_MAX];
    struct plot_series series[PANELS][SERIES];
    struct plot_panel panels[PANELS];
    struct plot plot = {
        .title = "Training while nodes fail", .note = note, .panels = panels, .nr_panels = PANELS};

    for (size_t i = 0; i < nr; i++) {
        snprintf(names[i], sizeof(names[i]), "%" PRIu64, r->o->nodes[i]);
        groups[i] = names[i];
        /* Instead of the job that is started again: no failure at all. */
        y[0][0][i] = r->row[i][0].baseline_s / 60;
        y[1][0][i] = r->row[i][0].epoch_s;
        for (size_t m = 1; m < SERIES; m++) {
            y[0][m][i] = r->row[i][m].total_s / 60;
            y[1][m][i] = r->row[i][m].victim_epoch_s;
        }
    }
    for (size_t p = 0; p < PANELS; p++) {
        for (size_t m = 0; m < SERIES; m++)
            series[p][m] = (struct plot_series){
                .name = m ? training_mode_name((enum training_mode)m) : "no failure",
                .colour = colours[m],
                .y = y[p][m],
                .nr = nr};
        panels[p] =
            (struct plot_panel){.kind = PLOT_BARS,
                                .title = p ? "an epoch in which nodes failed" : "the whole job",
                                .x_label = "nodes",
                                .y_label = p ? "s" : "minutes",
                                .groups = groups,
                                .nr_groups = nr,
                                .series = series[p],
                                .nr_series = SERIES};
    }
    snprintf(note, sizeof(note), "%g epochs, %g failures after the first, mean of %" PRIu32 " runs",
             r->o->sim.params.epochs, r->o->sim.params.failures, r->o->sim.runs);
    return plot_write(f, &plot);
}

static int print_all(const struct rows *r)
{
    struct output_forms forms = {.json = r->o->json,
                                 .csv = r->o->csv,
                                 .svg = r->o->svg,
                                 .print_json = print_json,
                                 .print_table = print_table,
                                 .print_csv = print_csv,
                                 .draw = draw};

    return output_print(COMMAND, &forms, r);
}

int lab_sim_training(int argc, char **argv)
{
    struct train_opts o = {.sim = {.scheme = VV_PLACE_HRW_BOUNDED, .runs = 20, .seed = 1}};
    struct rows r = {.o = &o};
    int rc;

    o.sim.jobs = VV_MIN(vv_topo_threads(), SIM_JOBS_MAX);
    training_params_init(&o.sim.params);
    if (output_parse_list(DEFAULT_NODES, VV_PLACE_NODES_MAX, o.nodes, LIST_MAX, &o.nr_nodes) < 0)
        return CLI_FAILED;
    rc = parse(argc, argv, &o);
    if (rc >= 0)
        return rc;
    if (o.params) {
        print_params(&o.sim.params);
        return CLI_OK;
    }
    if (output_try(COMMAND, o.csv) || output_try(COMMAND, o.svg))
        return CLI_FAILED;
    r.row = calloc(o.nr_nodes, sizeof(*r.row));
    r.progress.all = (uint64_t)o.nr_nodes * o.sim.runs;
    rc = r.row ? output_watch(run_rows, &r, &r.progress, "training") : -ENOMEM;
    if (rc < 0)
        fprintf(stderr, COMMAND ": %s\n", strerror(-rc));
    rc = rc < 0 ? CLI_FAILED : print_all(&r);
    free(r.row);
    return rc;
}
