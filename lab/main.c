/* SPDX-License-Identifier: Apache-2.0 */
/* varve-lab: the experiments. `varve` runs it for the commands below (cli/main.c). */
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "lab/lab.h"

static int bench(int argc, char **argv)
{
    static const struct cli_command parts[] = {
        {"shot", NULL, lab_bench_shot},           {"paper", NULL, lab_bench_paper},
        {"outofcore", NULL, lab_bench_outofcore}, {"ooc", NULL, lab_bench_ooc},
        {"gpufile", NULL, lab_bench_gpufile},
    };
    int status = cli_part("varve bench", parts, VV_ARRAY_SIZE(parts), argc, argv);

    if (status >= 0)
        return status;
    if (argc > 1 && strcmp(argv[1], "--help") == 0) {
        printf(
            "usage: varve bench shot|paper|outofcore|ooc|gpufile [OPTION]...\n\n'varve bench shot "
            "--help' and "
            "so on list the options.\n");
        return CLI_OK;
    }
    fprintf(stderr,
            "varve bench: what is to be measured? There are 'varve bench shot', 'varve bench "
            "paper',\n'varve bench outofcore', 'varve bench ooc' and 'varve bench gpufile'.\n");
    return CLI_USAGE;
}

static int sim(int argc, char **argv)
{
    static const struct cli_command parts[] = {
        {"shot", NULL, lab_sim_shot},
        {"scale", NULL, lab_sim_scale},
        {"training", NULL, lab_sim_training},
    };
    int status = cli_part("varve sim", parts, VV_ARRAY_SIZE(parts), argc, argv);

    if (status >= 0)
        return status;
    if (argc > 1 && strcmp(argv[1], "--help") == 0) {
        printf(
            "usage: varve sim shot [OPTION]...\n       varve sim scale [OPTION]...\n"
            "       varve sim training [OPTION]...\n\n"
            "shot runs one experiment, scale the same on more and more nodes; training is a job\n"
            "that reads a data set from its nodes' disks while nodes fail. 'varve sim shot "
            "--help'\nand so on list the options.\n");
        return CLI_OK;
    }
    fprintf(stderr, "varve sim: what is to be simulated? There are 'varve sim shot', "
                    "'varve sim scale' and\n'varve sim training'.\n");
    return CLI_USAGE;
}

static int ring(int argc, char **argv)
{
    static const struct cli_command parts[] = {
        {"sim", NULL, lab_ring_sim},
        {"where", NULL, lab_ring_where},
    };
    int status = cli_part("varve ring", parts, VV_ARRAY_SIZE(parts), argc, argv);

    if (status >= 0)
        return status;
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        printf(
            "usage: varve ring sim [OPTION]...\n       varve ring where [OPTION]... PATH...\n\n"
            "sim tells how evenly files are spread over nodes, and what a failure does; where\n"
            "tells who keeps a file. 'varve ring sim --help' and 'varve ring where --help' list\n"
            "the options.\n");
        return CLI_OK;
    }
    fprintf(stderr, "varve ring: what is to be done? There are 'varve ring sim' and "
                    "'varve ring where'.\n");
    return CLI_USAGE;
}

static const struct cli_command commands[] = {
    {"model", "foretell how long a program will wait for its records", lab_model},
    {"bench", "run an experiment and compare it with the least time it could take", bench},
    {"sim", "run the same experiment in virtual time", sim},
    {"ring", "where files of a dataset go, and what a failing node moves", ring},
};

int main(int argc, char **argv)
{
    return cli_run("varve-lab", commands, VV_ARRAY_SIZE(commands), argc, argv);
}
