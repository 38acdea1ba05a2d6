/* SPDX-License-Identifier: Apache-2.0 */
/* varve-lab: the experiments. `varve` runs it for the commands below (cli/main.c). */
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "lab/lab.h"

/* A command that has parts. Parts without a summary are former names: they run, and no text lists them. */
struct group {
    const char *command;
    const char *tail; /* the end of the help text */
    const struct cli_command *parts;
    size_t nr;
};

static void help(const struct group *g)
{
    printf("usage: %s ", g->command);
    for (size_t i = 0; i < g->nr; i++)
        if (g->parts[i].summary)
            printf("%s%s", i ? "|" : "", g->parts[i].name);
    printf(" [OPTION]...\n\n");
    for (size_t i = 0; i < g->nr; i++)
        if (g->parts[i].summary)
            printf("  %-8s  %s\n", g->parts[i].name, g->parts[i].summary);
    printf("\n%s", g->tail);
}

static int run_group(const struct group *g, int argc, char **argv)
{
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        help(g);
        return CLI_OK;
    }
    return cli_part_or_usage(g->command, g->parts, g->nr, argc, argv);
}

static int bench(int argc, char **argv)
{
    static const struct cli_command parts[] = {
        {"shot", "checkpoints and restores of a history, against the bound", lab_bench_shot},
        {"script", "the same for a workload that is written as text", lab_bench_script},
        {"stream", "steps of a program that runs ahead of its device", lab_bench_stream},
        {"paper", "the figures of the HPDC'23 paper", lab_bench_paper},
        {"vector", "arrays on the CPU that do not fit memory", lab_bench_outofcore},
        {"blocks", "blocks and tables for kernels, larger than the GPU", lab_bench_ooc},
        {"gpufile", "files inside kernels", lab_bench_gpufile},
        /* Former names of vector and blocks. */
        {"outofcore", NULL, lab_bench_outofcore},
        {"ooc", NULL, lab_bench_ooc},
    };
    static const struct group group = {
        .command = "varve bench",
        .tail = "'varve bench shot --help' and so on list the options.\n",
        .parts = parts,
        .nr = VV_ARRAY_SIZE(parts),
    };

    return run_group(&group, argc, argv);
}

static int sim(int argc, char **argv)
{
    static const struct cli_command parts[] = {
        {"shot", "checkpoints and restores of a history", lab_sim_shot},
        {"script", "the same for a workload that is written as text", lab_sim_script},
        {"stream", "steps of a program that runs ahead of its device", lab_sim_stream},
        {"make", "print a script of some kind", lab_sim_make},
        {"set", "many scripts, drawn at random", lab_sim_set},
        {"scale", "shots on more and more nodes", lab_sim_scale},
        {"training", "a job that reads files from its nodes' disks while nodes fail",
         lab_sim_training},
    };
    static const struct group group = {
        .command = "varve sim",
        .tail = "'varve sim shot --help' and so on list the options.\n",
        .parts = parts,
        .nr = VV_ARRAY_SIZE(parts),
    };

    return run_group(&group, argc, argv);
}

static int ring(int argc, char **argv)
{
    static const struct cli_command parts[] = {
        {"sim", "how evenly files are spread over nodes, and what a failure does", lab_ring_sim},
        {"where", "the nodes that keep the files PATH...", lab_ring_where},
    };
    static const struct group group = {
        .command = "varve ring",
        .tail = "'varve ring sim --help' and 'varve ring where --help' list the options.\n",
        .parts = parts,
        .nr = VV_ARRAY_SIZE(parts),
    };

    return run_group(&group, argc, argv);
}

static const struct cli_command commands[] = {
    {"model", "predict how long a program will wait for its records", lab_model},
    {"bench", "run an experiment and compare it with the least time it could take", bench},
    {"sim", "run the same experiment in virtual time", sim},
    {"ring", "the places of a dataset's files, and the moves after a failure", ring},
};

int main(int argc, char **argv)
{
    return cli_run("varve-lab", commands, VV_ARRAY_SIZE(commands), argc, argv);
}
