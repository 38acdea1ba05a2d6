/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "core/util.h"

static const struct cli_command commands[] = {
    {"doctor", "what this build and this machine have, what is off, and how to get it", cli_doctor},
    {"probe", "measure this machine and find settings that suit it", cli_probe},
    {"model", "foretell how long a program will wait for its records", cli_model},
    {"bench", "run an experiment and compare it with the least time it could take", cli_bench},
    {"sim", "run the same experiment in virtual time", cli_sim},
    {"trace", "what a run did and when: timelines, tables, reports", cli_trace},
    {"helper", "read and write files for the processes of a job on this node", cli_helper},
    {"top", "watch running processes: tiers, movers, hits, blocked time", cli_top},
    {"cached", "run the daemon of the dataset cache, and talk to it", cli_cached},
    {"ring", "where files of a dataset go, and what a failing node moves", cli_ring},
    {"ls", "list the histories and versions in a folder", cli_ls},
    {"verify", "check every byte of the checkpoints in a folder", cli_verify},
    {"rm", "remove versions from a folder", cli_rm},
};

static void usage(FILE *out)
{
    fprintf(out, "usage: varve COMMAND [OPTION]...\n\n");
    for (size_t i = 0; i < VV_ARRAY_SIZE(commands); i++)
        fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].summary);
    fprintf(out,
            "\n'varve COMMAND --help' tells about one command, 'varve --version' the version.\n");
}

/* How many characters two words have in common from the start. */
static size_t common(const char *a, const char *b)
{
    size_t n = 0;

    while (a[n] && a[n] == b[n])
        n++;
    return n;
}

static int unknown(const char *name)
{
    const char *best = NULL;
    size_t most = 1; /* one letter in common is no hint */

    for (size_t i = 0; i < VV_ARRAY_SIZE(commands); i++) {
        if (common(commands[i].name, name) > most) {
            most = common(commands[i].name, name);
            best = commands[i].name;
        }
    }
    fprintf(stderr, "varve: there is no command '%s'", name);
    if (best)
        fprintf(stderr, "; did you mean '%s'?\n", best);
    else
        fprintf(stderr, "; 'varve --help' lists them\n");
    return CLI_USAGE;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : NULL;

    if (!name) {
        usage(stderr);
        return CLI_USAGE;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        usage(stdout);
        return CLI_OK;
    }
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        printf("varve %s\n", VV_VERSION);
        return CLI_OK;
    }
    for (size_t i = 0; i < VV_ARRAY_SIZE(commands); i++) {
        char full[32];

        if (strcmp(commands[i].name, name) != 0)
            continue;
        /* What getopt's messages begin with. */
        snprintf(full, sizeof(full), "varve %s", name);
        argv[1] = full;
        return commands[i].run(argc - 1, argv + 1);
    }
    return unknown(name);
}
