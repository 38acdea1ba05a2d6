/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varve ring sim: how evenly each scheme spreads files over nodes, and the effect of one failure. A row is a
 * scheme, or a ring with one number of virtual nodes. Rows are computed one after the other, each on all threads.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/topo.h"
#include "cli/common/command.h"
#include "cli/common/json.h"
#include "cli/common/options.h"
#include "cli/common/output.h"
#include "cli/common/plot.h"
#include "lab/lab.h"
#include "lab/ring/ring_sim.h"

#define COMMAND        "varve ring sim"
#define LIST_MAX       32
#define DEFAULT_VNODES "10,50,100,500,1000"

struct ring_opts {
    struct ring_sim_opts sim;
    enum vv_place_scheme schemes[VV_PLACE_SCHEMES];
    size_t nr_schemes;
    uint64_t vnodes[LIST_MAX];
    size_t nr_vnodes;
    uint64_t weights[LIST_MAX];
    bool json;
    const char *csv, *svg;
};

struct rows {
    const struct ring_opts *o;
    struct ring_sim_result *row;
    size_t nr;
    struct sim_progress progress;
};

static const char default_schemes[] = "ring,hrw,hrw-bounded,mod";

/* ---- the command line ---- */

static int parse_schemes(const char *list, struct ring_opts *o)
{
    char word[32];

    o->nr_schemes = 0;
    do {
        if (o->nr_schemes == VV_PLACE_SCHEMES || !output_next_word(&list, word, sizeof(word)) ||
            vv_place_scheme_parse(word, &o->schemes[o->nr_schemes++]) < 0)
            return -EINVAL;
    } while (*list);
    return 0;
}

static int set_schemes(const char *value, void *arg)
{
    return parse_schemes(value, arg);
}

static int set_vnodes(const char *value, void *arg)
{
    struct ring_opts *o = arg;

    return output_parse_list(value, VV_PLACE_VNODES_MAX, o->vnodes, LIST_MAX, &o->nr_vnodes);
}

static int set_weights(const char *value, void *arg)
{
    struct ring_opts *o = arg;

    o->sim.weights = o->weights;
    return output_parse_list(value, UINT32_MAX, o->weights, LIST_MAX, &o->sim.nr_weights);
}

#define AT(field) offsetof(struct ring_opts, field)

static const struct opt options[] = {
    {OPT_U32, .name = "nodes", .arg = "N", .at = AT(sim.nodes), .least = 1,
     .most = VV_PLACE_NODES_MAX, .help = "nodes (1024)"},
    {OPT_U64, .name = "files", .arg = "N", .at = AT(sim.files), .least = 1, .most = UINT32_MAX,
     .help = "files (524288)"},
    {OPT_U32, .name = "trials", .arg = "N", .at = AT(sim.trials), .least = 1, .most = 1000000,
     .help = "failures, one at a time, each from the beginning (500)"},
    {OPT_SET, .name = "scheme", .arg = "NAME,...", .set = set_schemes,
     .help = "ring, hrw, hrw-bounded, mod (all of them)",
     .takes = "a list of ring, hrw, hrw-bounded, mod"},
    {OPT_SET, .name = "vnodes", .arg = "N,...", .set = set_vnodes,
     .help = "virtual nodes of a node, for ring (" DEFAULT_VNODES ")",
     .takes = "a list of whole numbers from 1 to 65536"},
    {OPT_SET, .name = "weights", .arg = "N,...", .set = set_weights,
     .help = "capacities of nodes, taken in turn (all the same)",
     .takes = "a list of whole numbers from 1 on"},
    {OPT_U32, .name = "limit", .arg = "PERCENT", .at = AT(sim.limit_pct), .least = 100,
     .most = VV_PLACE_LIMIT_MAX, .help = "hrw-bounded: of the mean load (105)"},
    {OPT_U32, .name = "checks", .arg = "N", .at = AT(sim.checks), .least = 1, .most = 1u << 30,
     .help = "healthy files checked in a trial (1024); mod: all"},
    {OPT_U64, .name = "seed", .arg = "N", .at = AT(sim.seed), .least = 1,
     .help = "other files, and other nodes that fail (1)"},
    {OPT_U32, .name = "jobs", .arg = "N", .at = AT(sim.jobs), .least = 1, .most = SIM_JOBS_MAX,
     .help = "threads (a core each)"},
    {OPT_TEXT, .name = "csv", .arg = "FILE", .at = AT(csv),
     .help = "write the rows as CSV; -: to standard output"},
    {OPT_TEXT, .name = "svg", .arg = "FILE", .help = "draw them", .at = AT(svg)},
    {OPT_FLAG, .name = "json", .help = "print a JSON array of objects", .at = AT(json)},
};
_Static_assert(VV_PLACE_LIMIT_PCT == 105, "the help text says so");

static const struct opts command = {
    .command = COMMAND,
    .usage = "[OPTION]...",
    .about =
        "Places files on nodes, lets one node fail, many times over, and prints how many nodes\n"
        "take its files over, how even the load is, and whether healthy files moved.",
    OPT_LIST(options),
};

/* Returns an exit status, or -1 to go on. */
static int parse(int argc, char **argv, struct ring_opts *o)
{
    int first, status = opts_parse(&command, argc, argv, o, &first);

    if (status >= 0)
        return status;
    if (o->sim.nodes < 2)
        fprintf(stderr,
                COMMAND ": --nodes: expected 2 or more: one node fails, and others must remain\n");
    else if (o->json && o->csv && strcmp(o->csv, "-") == 0)
        fprintf(stderr,
                COMMAND ": --json and --csv - both write to standard output: give --csv a file\n");
    else
        return -1;
    return CLI_USAGE;
}

/* ---- running ---- */

static int run_rows(void *arg)
{
    struct rows *r = arg;
    struct ring_sim_opts o = r->o->sim;
    size_t n = 0;

    for (size_t s = 0; s < r->o->nr_schemes; s++) {
        bool ring = r->o->schemes[s] == VV_PLACE_RING;

        for (size_t v = 0; v < (ring ? r->o->nr_vnodes : 1); v++) {
            int rc;

            o.scheme = r->o->schemes[s];
            o.vnodes = (uint32_t)r->o->vnodes[v];
            rc = ring_sim_run(&o, &r->progress, &r->row[n++]);
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

/* ---- printing ---- */

static void print_table(const void *result)
{
    const struct rows *r = result;
    const struct ring_sim_opts *o = &r->o->sim;

    printf("%" PRIu32 " nodes, %" PRIu64 " files, %" PRIu32 " failures of one node\n\n", o->nodes,
           o->files, o->trials);
    printf("                       receivers      files per receiver     fullest over mean     "
           "healthy   not at\n"
           "scheme       vnodes    mean      sd       mean        sd    before   after   worst   "
           "moved     home\n");
    for (size_t i = 0; i < r->nr; i++) {
        const struct ring_sim_result *x = &r->row[i];
        char vnodes[16] = "-";

        if (x->vnodes)
            snprintf(vnodes, sizeof(vnodes), "%" PRIu32, x->vnodes);
        printf("%-12s %6s %7.1f %7.1f %10.2f %9.2f  %8.4f %7.4f %7.4f %7.2f%%  %6.2f%%\n",
               vv_place_scheme_name(x->scheme), vnodes, x->receivers_mean, x->receivers_sd,
               x->files_per_receiver_mean, x->files_per_receiver_sd, x->max_over_mean,
               x->max_over_mean_after, x->max_over_mean_worst, 100 * x->healthy_moved_fraction,
               100 * x->away_fraction);
    }
}

static int print_csv(FILE *f, const void *arg)
{
    const struct rows *r = arg;

    fprintf(f, "scheme,vnodes,receivers_mean,receivers_sd,files_per_receiver_mean,"
               "files_per_receiver_sd,max_over_mean,max_over_mean_after,max_over_mean_worst,"
               "healthy_moved_fraction,away_fraction\n");
    for (size_t i = 0; i < r->nr; i++) {
        const struct ring_sim_result *x = &r->row[i];

        fprintf(f, "%s,%" PRIu32 ",%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g\n",
                vv_place_scheme_name(x->scheme), x->vnodes, x->receivers_mean, x->receivers_sd,
                x->files_per_receiver_mean, x->files_per_receiver_sd, x->max_over_mean,
                x->max_over_mean_after, x->max_over_mean_worst, x->healthy_moved_fraction,
                x->away_fraction);
    }
    return 0;
}

static void print_json(const void *result)
{
    const struct rows *r = result;
    struct json j = json_begin(stdout, JSON_COMPACT);

    json_array(&j, NULL);
    for (size_t i = 0; i < r->nr; i++) {
        const struct ring_sim_result *x = &r->row[i];

        json_gap(&j, "\n");
        json_object(&j, NULL);
        json_text(&j, "scheme", vv_place_scheme_name(x->scheme));
        json_uint(&j, "vnodes", x->vnodes);
        json_real(&j, "receivers_mean", x->receivers_mean);
        json_real(&j, "receivers_sd", x->receivers_sd);
        json_real(&j, "files_per_receiver_mean", x->files_per_receiver_mean);
        json_real(&j, "max_over_mean", x->max_over_mean);
        json_real(&j, "healthy_moved_fraction", x->healthy_moved_fraction);
        json_close(&j);
    }
    json_gap(&j, "\n");
    json_close(&j);
    json_end(&j);
}

/* Three panels, one bar to a row in each. */
static int draw(FILE *f, const void *arg)
{
    enum { ROWS = LIST_MAX + VV_PLACE_SCHEMES, PANELS = 3 };
    static const char *const titles[PANELS] = {"nodes that take files over",
                                               "files that each of them takes",
                                               "fullest node over the mean"};
    const struct rows *r = arg;
    uint32_t limit = r->o->sim.limit_pct ? r->o->sim.limit_pct : VV_PLACE_LIMIT_PCT;
    char names[ROWS][32], note[128];
    const char *groups[ROWS];
    double y[PANELS][ROWS], err[PANELS][ROWS] = {0};
    struct plot_series series[PANELS];
    struct plot_panel panels[PANELS];
    struct plot plot = {
        .title = "One node fails", .note = note, .panels = panels, .nr_panels = PANELS};

    for (size_t i = 0; i < r->nr; i++) {
        const struct ring_sim_result *x = &r->row[i];

        if (x->vnodes)
            snprintf(names[i], sizeof(names[i]), "%" PRIu32, x->vnodes);
        else if (x->scheme == VV_PLACE_HRW_BOUNDED)
            snprintf(names[i], sizeof(names[i]), "≤%.4g", limit / 100.0);
        else
            snprintf(names[i], sizeof(names[i]), "%s", vv_place_scheme_name(x->scheme));
        groups[i] = names[i];
        y[0][i] = x->receivers_mean;
        err[0][i] = x->receivers_sd;
        y[1][i] = x->files_per_receiver_mean;
        err[1][i] = x->files_per_receiver_sd;
        y[2][i] = x->max_over_mean;
    }
    for (size_t p = 0; p < PANELS; p++) {
        series[p] = (struct plot_series){.name = "mean, with the standard deviation",
                                         .colour = "#0072b2",
                                         .y = y[p],
                                         .nr = r->nr,
                                         .err = err[p]};
        panels[p] = (struct plot_panel){.kind = PLOT_BARS,
                                        .title = titles[p],
                                        .x_label = "points of a ring, or a scheme (≤: bounded)",
                                        .y_label = p == 0   ? "nodes"
                                                   : p == 1 ? "files"
                                                            : "ratio",
                                        .log_y = p == 1,
                                        .groups = groups,
                                        .nr_groups = r->nr,
                                        .series = &series[p],
                                        .nr_series = 1};
    }
    snprintf(note, sizeof(note),
             "%" PRIu32 " nodes, %" PRIu64 " files, %" PRIu32 " failures of one node each",
             r->o->sim.nodes, r->o->sim.files, r->o->sim.trials);
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

int lab_ring_sim(int argc, char **argv)
{
    struct ring_opts o = {
        .sim = {.nodes = 1024, .files = 524288, .trials = 500, .seed = 1, .checks = 1024}};
    struct rows r = {.o = &o};
    size_t other;
    int rc;

    o.sim.jobs = VV_MIN(vv_topo_threads(), SIM_JOBS_MAX);
    if (parse_schemes(default_schemes, &o) < 0 ||
        output_parse_list(DEFAULT_VNODES, VV_PLACE_VNODES_MAX, o.vnodes, LIST_MAX, &o.nr_vnodes) <
            0)
        return CLI_FAILED;
    rc = parse(argc, argv, &o);
    if (rc >= 0)
        return rc;
    if (output_try(COMMAND, o.csv) || output_try(COMMAND, o.svg))
        return CLI_FAILED;
    other = o.nr_schemes;
    for (size_t s = 0; s < o.nr_schemes; s++)
        if (o.schemes[s] == VV_PLACE_RING) {
            r.nr += o.nr_vnodes;
            other--;
        }
    r.nr += other;
    r.row = calloc(r.nr, sizeof(*r.row));
    r.progress.all = r.nr * ring_sim_steps(&o.sim);
    rc = r.row ? output_watch(run_rows, &r, &r.progress, "placing files") : -ENOMEM;
    if (rc < 0)
        fprintf(stderr, COMMAND ": %s\n", strerror(-rc));
    rc = rc < 0 ? CLI_FAILED : print_all(&r);
    free(r.row);
    return rc;
}
