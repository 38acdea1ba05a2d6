/* SPDX-License-Identifier: Apache-2.0 */
/* varve-lab: the experiments. `varve` runs it for the commands below (cli/main.c). */
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "lab/lab.h"

/* A command that has parts. */
struct group {
    const char *command;
    const char *help; /* all of the text */
    const char *list; /* of the parts, for messages */
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
        fprintf(stderr, "%s: missing command; there are %s\n", g->command, g->list);
    return CLI_USAGE;
}

static int bench(int argc, char **argv)
{
    static const struct cli_command parts[] = {
        {"shot", NULL, lab_bench_shot},
        {"script", NULL, lab_bench_script},
        {"stream", NULL, lab_bench_stream},
        {"paper", NULL, lab_bench_paper},
        {"vector", NULL, lab_bench_outofcore},
        {"blocks", NULL, lab_bench_ooc},
        {"gpufile", NULL, lab_bench_gpufile},
        /* Former names of vector and blocks. */
        {"outofcore", NULL, lab_bench_outofcore},
        {"ooc", NULL, lab_bench_ooc},
    };
    static const struct group group = {
        .command = "varve bench",
        .help = "usage: varve bench shot|script|stream|paper|vector|blocks|gpufile [OPTION]...\n\n"
                "  shot      checkpoints and restores of a history, against the bound\n"
                "  script    the same for a workload that is written as text\n"
                "  stream    steps of a program that runs ahead of its device\n"
                "  paper     the figures of the HPDC'23 paper\n"
                "  vector    arrays on the CPU that do not fit memory\n"
                "  blocks    blocks and tables for kernels, larger than the GPU\n"
                "  gpufile   files inside kernels\n\n"
                "'varve bench shot --help' and so on list the options.\n",
        .list = "'varve bench shot', 'script', 'stream', 'paper', 'vector', 'blocks' and 'gpufile'",
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
        .help = "usage: varve sim shot|script|stream|make|set|scale|training [OPTION]...\n\n"
                "  shot      checkpoints and restores of a history\n"
                "  script    the same for a workload that is written as text\n"
                "  stream    steps of a program that runs ahead of its device\n"
                "  make      print a script of some kind\n"
                "  set       many scripts, drawn at random\n"
                "  scale     shots on more and more nodes\n"
                "  training  a job that reads files from its nodes' disks while nodes fail\n\n"
                "'varve sim shot --help' and so on list the options.\n",
        .list = "'varve sim shot', 'script', 'stream', 'make', 'set', 'scale' and 'training'",
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
        .help = "usage: varve ring sim [OPTION]...\n       varve ring where [OPTION]... PATH...\n\n"
                "sim tells how evenly files are spread over nodes, and what a failure does; where\n"
                "tells who keeps a file. 'varve ring sim --help' and 'varve ring where --help'\n"
                "list the options.\n",
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
