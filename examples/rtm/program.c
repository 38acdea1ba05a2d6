/* SPDX-License-Identifier: Apache-2.0 */
/* The program around a migration: the command line, signals, printing and writing. */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "rtm.h"

static void on_signal(int number)
{
    /* A second signal has its default effect: no file is left, because none has a name. */
    signal(number, SIG_DFL);
    rtm_interrupted = number;
}

static void catch_signals(void)
{
    struct sigaction sa;

    memset(&sa, 0, sizeof(sa));
    sa.sa_handler = on_signal;
    sigemptyset(&sa.sa_mask);
    sa.sa_flags = SA_RESTART;
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    sigaction(SIGHUP, &sa, NULL);
}

static int finish(const struct rtm_params *params, const struct rtm_result *result)
{
    int rc = params->out[0] ? rtm_write_outputs(params, result) : 0;

    if (rc == 0 && params->json)
        rtm_report_json(stdout, params, &result->summary);
    else if (rc == 0)
        rtm_report_table(stdout, params, &result->summary);
    if (rc == 0 && fflush(stdout) != 0)
        rc = rtm_error(-errno, "standard output: %s", strerror(errno));
    return rc;
}

int rtm_main(int argc, char **argv, const struct rtm_part *part)
{
    static struct rtm_params params;
    struct rtm_result result;
    bool first = !part || part->rank == 0;
    int rc = rtm_args(argc, argv, first ? stdout : NULL, &params);

    if (rc == 1)
        return 0;
    if (rc < 0) {
        if (first)
            fprintf(stderr, "varve-rtm: %s\n", rtm_error_text());
        return 2;
    }
    if (part)
        params.varve.rank = part->rank;
    params.quiet = params.quiet || !first;
    catch_signals();
    rc = rtm_run(&params, part, &result);
    if (rc == 0) {
        rc = first ? finish(&params, &result) : 0;
        rtm_result_fini(&result);
    }
    if (rc < 0)
        fprintf(stderr, "varve-rtm: %s\n", rtm_error_text());
    if (rc == -EINTR && rtm_interrupted)
        return 128 + rtm_interrupted;
    return rc < 0;
}
