/* SPDX-License-Identifier: Apache-2.0 */
/* varve sim script: a workload from a text, in virtual time. varve sim make: prints such texts. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <varve/varve.h>

#include "base/util.h"
#include "cli/common/command.h"
#include "cli/common/options.h"
#include "cli/common/output.h"
#include "lab/lab.h"
#include "lab/shot/script_file.h"
#include "lab/shot/shot_csv.h"
#include "lab/sim/sim_run.h"

static int complain(const char *command, const char *text)
{
    fprintf(stderr, "%s: %s\n", command, text);
    return CLI_FAILED;
}

/* Prints the report and frees it. */
static int report(const char *command, const struct shot_opts *opts, const struct shot_work *work,
                  struct shot_report *r)
{
    char err[512] = "";
    int rc = 0;

    if (opts->json)
        shot_report_print_json(stdout, r);
    else
        shot_report_print(stdout, r);
    if (opts->csv)
        rc = shot_csv_write(opts->csv, r, work, err, sizeof(err));
    if (rc == 0)
        rc = shot_report_check(r, err, sizeof(err));
    shot_report_fini(r);
    return rc < 0 ? complain(command, err) : CLI_OK;
}

int lab_sim_script(int argc, char **argv)
{
    static const char command[] = "varve sim script";
    struct script_file file;
    struct shot_report r;
    char err[512] = "";
    int rc, status = script_file_open(command, argc, argv, &file);

    if (status >= 0)
        return status;
    status = CLI_USAGE;
    if (file.opts.engine != SHOT_ENGINE_VARVE || file.opts.compute != SHOT_COMPUTING_SLEEP ||
        file.opts.calls != SHOT_CALLS_BLOCKING || file.opts.trace) {
        complain(command,
                 "--engine, --compute, --calls and --trace are allowed only with 'varve bench'");
        goto out;
    }
    if (sim_check_rates(&file.opts, err, sizeof(err)) < 0) {
        complain(command, err);
        goto out;
    }
    status = CLI_FAILED;
    if (output_try(command, file.opts.csv) < 0)
        goto out;
    rc = sim_run_work(file.name, &file.opts, &file.work, err, sizeof(err), &r);
    if (rc < 0) {
        complain(command, err[0] ? err : varve_strerror(rc));
        goto out;
    }
    status = report(command, &file.opts, &file.work, &r);
out:
    script_file_close(&file);
    return status;
}

/* ---- make ---- */

struct make_args {
    struct shot_args shot; /* first */
    struct shot_plan plan;
};

#define AT(field)   offsetof(struct make_args, plan.field)
#define WORDS(list) .arg = (list), .words = (list)

static const struct opt make_list[] = {
    {OPT_U32, .name = "rounds", .arg = "N", .at = AT(rounds), .least = 1, .most = 1000000,
     .help = "sweeps, overlap, activations: how many (3)"},
    {OPT_U32, .name = "distance", .arg = "N", .at = AT(distance), .least = 1, .most = 100000000,
     .help = "queue: puts between a put and its get (24)"},
    {OPT_U32, .name = "repeat", .arg = "N", .at = AT(repeat), .least = 1, .most = 1000000,
     .help = "gets of a version in succession (1)"},
    {OPT_U32, .name = "swap", .arg = "N", .at = AT(swap), .least = 1, .most = 100000000,
     .help = "--hints swapped: how far apart the two are (50)"},
    {OPT_WORD, .name = "vary", WORDS("none|uniform|tail"), .at = AT(vary),
     .help = "sizes around those given: a quarter to 1.75 times, or heavy-tailed (none)"},
    {OPT_WORD, .name = "declare", WORDS("hints|fifo|lifo"), .at = AT(declare),
     .help = "order that the histories declare (hints: none)"},
    {OPT_U32, .name = "threads", .arg = "N", .at = AT(threads), .least = 1,
     .most = SHOT_MAX_THREADS, .help = "threads that do the same, each with its history (1)"},
};

static const struct opts make_options = {
    .command = "varve sim make",
    .usage = "KIND [OPTION]...",
    .about = "Prints a script for 'varve sim script'. Kinds:\n\n"
             "  shot         all puts, then all gets: --order seq|rev|irr|binomial\n"
             "  revolve      binomial checkpointing of --ckpts steps with --slots states\n"
             "  sweeps       all puts, then gets backward, forward, backward...\n"
             "  queue        put i, get i - distance\n"
             "  overlap      rounds, each read backward while the next one is written\n"
             "  activations  rounds of puts and of gets backward, which compute twice as long\n\n"
             "Beside these, it takes the options of 'varve sim shot'; those of the machine become\n"
             "'set' lines of the script:",
    .operands = true,
    .list = make_list,
    .nr = VV_ARRAY_SIZE(make_list),
    .also = &shot_options,
};

/* The options that the kind requires. */
static int settle(const char *kind, struct make_args *a, char *err, size_t err_size)
{
    a->plan.kind = opts_word(SHOT_KINDS, kind);
    if (a->plan.kind < 0) {
        snprintf(err, err_size, "'%s' is not a kind, expected one of " SHOT_KINDS, kind);
        return -EINVAL;
    }
    if (a->shot.given_order && a->plan.kind != SHOT_KIND_SHOT) {
        snprintf(err, err_size, "--order is allowed only with 'varve sim make shot'");
        return -EINVAL;
    }
    if (a->shot.o.procs != 1) {
        snprintf(err, err_size, "--procs: a script has one process: use --threads");
        return -EINVAL;
    }
    if (a->plan.kind == SHOT_KIND_REVOLVE)
        a->shot.o.order = SHOT_ORDER_BINOMIAL;
    if (a->plan.kind > SHOT_KIND_SWEEPS) { /* puts and gets mix */
        if (a->shot.wait == true) {
            snprintf(err, err_size, "--wait is not allowed: this kind mixes puts and gets");
            return -EINVAL;
        }
        a->shot.wait = false;
    }
    return shot_args_settle(&a->shot, err, err_size);
}

int lab_sim_make(int argc, char **argv)
{
    struct make_args a;
    struct shot_work work;
    char err[512] = "";
    int first, status;

    shot_args_init(&a.shot);
    shot_plan_init(&a.plan);
    status = opts_parse(&make_options, argc, argv, &a, &first);
    if (status >= 0)
        return status;
    if (first + 1 != argc) {
        complain(make_options.command, "expected one kind: " SHOT_KINDS "; see --help");
        return CLI_USAGE;
    }
    if (settle(argv[first], &a, err, sizeof(err)) < 0) {
        complain(make_options.command, err);
        return CLI_USAGE;
    }
    if (shot_work_make(&a.shot.o, &a.plan, err, sizeof(err), &work) < 0)
        return complain(make_options.command, err);
    shot_opts_print_set(stdout, &a.shot.o);
    shot_work_print(stdout, &work);
    shot_work_fini(&work);
    return CLI_OK;
}
