/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tool. The experiments are commands of another program, varve-lab (lab/). This program runs it as git runs
 * its commands.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "build_info.h"
#include "cli/cli.h"
#include "cli/common/beside.h"

bool cli_find_lab(char *ret_path, size_t bytes)
{
    static const char *const places[] = {"varve-lab", VV_LIBEXEC_FROM_BIN "/varve-lab"};

    return beside_find(places, VV_ARRAY_SIZE(places), X_OK, ret_path, bytes);
}

/* argv[0] is "varve" and the name of the command. */
static int run_lab(int argc, char **argv)
{
    char program[4096], *name = strchr(argv[0], ' ') + 1;
    char **args = calloc((size_t)argc + 2, sizeof(*args));

    if (!args) {
        fprintf(stderr, "varve: out of memory\n");
    } else if (!cli_find_lab(program, sizeof(program))) {
        fprintf(stderr,
                "varve: '%s' is a command of varve-lab, which is not installed: it is expected "
                "beside varve, or in " VV_LIBEXEC_FROM_BIN " from there\n",
                name);
    } else {
        args[0] = (char *)"varve";
        args[1] = name;
        memcpy(args + 2, argv + 1, (size_t)argc * sizeof(*args)); /* and the NULL at the end */
        execv(program, args);
        fprintf(stderr, "varve: %s: %s\n", program, strerror(errno));
    }
    free(args);
    return CLI_FAILED;
}

static const struct cli_command commands[] = {
    {"doctor", "list the parts of this build and machine, and how to get missing ones", cli_doctor},
    {"probe", "measure this machine and find settings that suit it", cli_probe},
    {"model", "predict how long a program will wait for its records", run_lab},
    {"bench", "run an experiment and compare it with the least time it could take", run_lab},
    {"sim", "run the same experiment in virtual time", run_lab},
    {"trace", "the events of a run: timelines, tables, reports", cli_trace},
    {"helper", "read and write files for the processes of a job on this node", cli_helper},
    {"top", "watch running processes: tiers, movers, hits, blocked time", cli_top},
    {"cached", "run the daemon of the dataset cache, and talk to it", cli_cached},
    {"ring", "the places of a dataset's files, and the moves after a failure", run_lab},
    {"ls", "list the histories and versions in a folder", cli_ls},
    {"verify", "check every byte of the checkpoints in a folder, and repair them", cli_verify},
    {"export", "write checkpoints as files of VELOC", cli_export},
    {"rm", "remove versions from a folder", cli_rm},
};

int main(int argc, char **argv)
{
    return cli_run("varve", commands, VV_ARRAY_SIZE(commands), argc, argv);
}
