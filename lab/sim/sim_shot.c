/* SPDX-License-Identifier: Apache-2.0 */
/* varve sim shot: the experiment in virtual time. */
#include <stdio.h>
#include <string.h>

#include <varve/varve.h>

#include "base/util.h"
#include "cli/common/command.h"
#include "cli/common/output.h"
#include "lab/lab.h"
#include "lab/shot/shot_csv.h"
#include "lab/sim/sim_run.h"

static int complain(const char *text)
{
    fprintf(stderr, "varve sim shot: %s\n", text);
    return CLI_FAILED;
}

int lab_sim_shot(int argc, char **argv)
{
    struct shot_opts opts;
    struct shot_report report;
    char err[512] = "";
    int rc, status = shot_opts_parse("varve sim shot", argc, argv, &opts);

    if (status >= 0)
        return status;
    if (opts.engine != SHOT_ENGINE_VARVE || opts.compute != SHOT_COMPUTING_SLEEP ||
        opts.calls != SHOT_CALLS_BLOCKING || opts.trace) {
        complain(
            "--engine, --compute, --calls and --trace are allowed only with 'varve bench shot'");
        return CLI_USAGE;
    }
    rc = sim_check_rates(&opts, err, sizeof(err));
    if (rc < 0) {
        complain(err);
        return CLI_USAGE;
    }
    if (output_try("varve sim shot", opts.csv) < 0)
        return CLI_FAILED;
    rc = sim_run_shot(&opts, err, sizeof(err), &report);
    if (rc < 0)
        return complain(err[0] ? err : varve_strerror(rc));
    if (opts.json)
        shot_report_print_json(stdout, &report);
    else
        shot_report_print(stdout, &report);
    rc = opts.csv ? shot_csv_write(opts.csv, &report, NULL, err, sizeof(err)) : 0;
    if (rc == 0)
        rc = shot_report_check(&report, err, sizeof(err));
    shot_report_fini(&report);
    return rc < 0 ? complain(err) : CLI_OK;
}
