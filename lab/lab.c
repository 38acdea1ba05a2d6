/* SPDX-License-Identifier: Apache-2.0 */
/* varve-lab: the experiments. `varve` runs it for the commands below (cli/main.c). */
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "lab/lab.h"

/* A command that has parts. */
struct group {
    const char *command;
    const char *help;     /* all of the text */
    const char *question; /* where no part is named */
    const char *list;     /* of the parts, for messages */
    const struct cli_command *parts;
    size_t nr;
};

static int run_group(const struct group *g, int argc, char **argv)
{
    int status = cli_part(g->command, g->parts, g->nr, argc, argv);

    if (status >= 0)
        return status;
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(g->help, stdout);
        return CLI_OK;
    }
    if (argc > 1)
        fprintf(stderr, "%s: there is no '%s'; there are %s.\n", g->command, argv[1], g->list);
    else
        fprintf(stderr, "%s: %s There are %s.\n", g->command, g->question, g->list);
    return CLI_USAGE;
}

static int bench(int argc, char **argv)
{
    static const struct cli_command parts[] = {
        {"shot", NULL, lab_bench_shot},           {"script", NULL, lab_bench_script},
        {"stream", NULL, lab_bench_stream},       {"paper", NULL, lab_bench_paper},
        {"outofcore", NULL, lab_bench_outofcore}, {"ooc", NULL, lab_bench_ooc},
        {"gpufile", NULL, lab_bench_gpufile},
    };
    static const struct group group = {
        .command = "varve bench",
        .help = "usage: varve bench shot|script|stream|paper|outofcore|ooc|gpufile [OPTION]...\n\n"
                "'varve bench shot --help' and so on list the options.\n",
        .question = "what is to be measured?",
        .list = "'varve bench shot', 'varve bench script', 'varve bench stream',\n'varve bench "
                "paper', 'varve bench outofcore', "
                "'varve bench ooc' and 'varve bench gpufile'",
        .parts = parts,
        .nr = VV_ARRAY_SIZE(parts),
    };

    return run_group(&group, argc, argv);
}

static int sim(int argc, char **argv)
{
    static const struct cli_command parts[] = {
        {"shot", NULL, lab_sim_shot},         {"script", NULL, lab_sim_script},
        {"stream", NULL, lab_sim_stream},     {"make", NULL, lab_sim_make},
        {"set", NULL, lab_sim_set},           {"scale", NULL, lab_sim_scale},
        {"training", NULL, lab_sim_training},
    };
    static const struct group group = {
        .command = "varve sim",
        .help =
            "usage: varve sim shot [OPTION]...\n       varve sim script FILE [OPTION]...\n"
            "       varve sim stream [OPTION]...\n"
            "       varve sim make KIND [OPTION]...\n       varve sim set [OPTION]...\n"
            "       varve sim scale [OPTION]...\n"
            "       varve sim training [OPTION]...\n\n"
            "shot runs one experiment, scale the same on more and more nodes; script runs a\n"
            "workload that is written as text, stream steps of a program that runs ahead of its\n"
            "device, make prints such texts, and set runs many that\n"
            "are drawn at random; training is a job\n"
            "that reads a data set from its nodes' disks while nodes fail. 'varve sim shot "
            "--help'\n"
            "and so on list the options.\n",
        .question = "what is to be simulated?",
        .list = "'varve sim shot', 'varve sim script', 'varve sim stream',\n'varve sim make', "
                "'varve sim set', 'varve sim "
                "scale' and 'varve sim training'",
        .parts = parts,
        .nr = VV_ARRAY_SIZE(parts),
    };

    return run_group(&group, argc, argv);
}

static int ring(int argc, char **argv)
{
    static const struct cli_command parts[] = {
        {"sim", NULL, lab_ring_sim},
        {"where", NULL, lab_ring_where},
    };
    static const struct group group = {
        .command = "varve ring",
        .help =
            "usage: varve ring sim [OPTION]...\n       varve ring where [OPTION]... PATH...\n\n"
            "sim tells how evenly files are spread over nodes, and what a failure does; where\n"
            "tells who keeps a file. 'varve ring sim --help' and 'varve ring where --help' list\n"
            "the options.\n",
        .question = "what is to be done?",
        .list = "'varve ring sim' and 'varve ring where'",
        .parts = parts,
        .nr = VV_ARRAY_SIZE(parts),
    };

    return run_group(&group, argc, argv);
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
