/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varve-rtm: reverse time migration with its history of wavefields in Varve.
 *
 * Exit status: 0, 1 after an error, 2 for a wrong command line, 128 and its number after a signal.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "rtm.h"

static void on_signal(int number)
{
    /* The second time the default does its work: nothing has a name that would be left behind. */
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

int main(int argc, char **argv)
{
    static struct rtm_params params;
    struct rtm_result result;
    int rc = rtm_args(argc, argv, stdout, &params);

    if (rc == 1)
        return 0;
    if (rc < 0) {
        fprintf(stderr, "varve-rtm: %s\n", rtm_error_text());
        return 2;
    }
    catch_signals();
    rc = rtm_run(&params, NULL, &result);
    if (rc == 0) {
        if (params.out[0])
            rc = rtm_write_outputs(&params, &result);
        if (rc == 0 && params.json)
            rtm_report_json(stdout, &params, &result.summary);
        else if (rc == 0)
            rtm_report_table(stdout, &params, &result.summary);
        rtm_result_fini(&result);
    }
    if (rc < 0)
        fprintf(stderr, "varve-rtm: %s\n", rtm_error_text());
    if (rc == -EINTR && rtm_interrupted)
        return 128 + rtm_interrupted;
    return rc < 0 || fflush(stdout) != 0 ? 1 : 0;
}
