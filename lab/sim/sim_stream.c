/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varve sim stream: steps on streams (lab/shot/stream.h), in virtual time. A step is like any other, so there is one.
 */
#include <stdio.h>

#include "cli/common/command.h"
#include "cli/common/output.h"
#include "lab/lab.h"
#include "lab/shot/shot_csv.h"
#include "lab/shot/stream.h"
#include "lab/sim/sim_run.h"

static const char command[] = "varve sim stream";

static int complain(const char *text, int status)
{
    fprintf(stderr, "%s: %s\n", command, text);
    return status;
}

static int run(const struct stream_args *args, const struct shot_work *work)
{
    const struct shot_opts *opts = &args->shot.o;
    struct shot_report r;
    char err[512] = "";
    int rc = sim_run_streams("stream", opts, work, err, sizeof(err), &r);

    if (rc < 0)
        return complain(err[0] ? err : varve_strerror(rc), CLI_FAILED);
    r.stream = &args->plan;
    for (uint32_t t = 0; t < work->nr_threads; t++)
        r.stream_largest_bytes = VV_MAX(r.stream_largest_bytes, work->threads[t].largest_bytes);
    rc = stream_report_bound(&r, work);
    if (rc < 0) {
        shot_report_fini(&r);
        return complain(varve_strerror(rc), CLI_FAILED);
    }
    shot_report_finish(&r);
    if (opts->json)
        shot_report_print_json(stdout, &r);
    else
        shot_report_print(stdout, &r);
    if (opts->csv)
        rc = shot_csv_write(opts->csv, &r, work, err, sizeof(err));
    if (rc == 0)
        rc = shot_report_check(&r, err, sizeof(err));
    shot_report_fini(&r);
    return rc < 0 ? complain(err, CLI_FAILED) : CLI_OK;
}

int lab_sim_stream(int argc, char **argv)
{
    struct stream_args args;
    struct shot_work work;
    char err[512];
    int status = stream_args_parse(command, argc, argv, &args);

    if (status >= 0)
        return status;
    if (args.plan.engine != STREAM_ENGINE_VARVE || args.shot.o.trace)
        return complain("--engine and --trace are allowed only with 'varve bench stream'",
                        CLI_USAGE);
    if (sim_check_rates(&args.shot.o, err, sizeof(err)) < 0)
        return complain(err, CLI_USAGE);
    if (output_try(command, args.shot.o.csv) < 0)
        return CLI_FAILED;
    if (stream_work_make(&args.shot.o, &args.plan, err, sizeof(err), &work) < 0)
        return complain(err, CLI_FAILED);
    status = run(&args, &work);
    shot_work_fini(&work);
    return status;
}
