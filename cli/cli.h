/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commands of the `varve` tool. A command lives in a file of its own; main.c lists it. It
 * prints its results to standard output and its complaints to standard error, and returns an exit
 * status.
 */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stddef.h>

enum {
    CLI_OK = 0,
    CLI_FAILED = 1, /* it was tried, and did not work or found something wrong */
    CLI_USAGE = 2   /* the command line makes no sense */
};

struct cli_command {
    const char *name, *summary;
    /* argv[0] is "varve" and the name of the command. */
    int (*run)(int argc, char **argv);
};

/* Runs the part of a command that argv[1] names, as "varve bench" has "ooc"; its argv[0] is all three words, which
 * getopt's messages begin with. -1: there is no such part, and nothing was said. */
int cli_part(const char *command, const struct cli_command *parts, size_t nr, int argc,
             char **argv);

int cli_bench(int argc, char **argv);
int cli_bench_gpufile(int argc, char **argv);   /* a part of bench */
int cli_bench_ooc(int argc, char **argv);       /* a part of bench */
int cli_bench_outofcore(int argc, char **argv); /* a part of bench */
int cli_bench_paper(int argc, char **argv);     /* a part of bench */
int cli_cached(int argc, char **argv);
int cli_doctor(int argc, char **argv);
int cli_helper(int argc, char **argv);
int cli_model(int argc, char **argv);
int cli_ls(int argc, char **argv);
int cli_probe(int argc, char **argv);
int cli_ring(int argc, char **argv);
int cli_ring_sim(int argc, char **argv); /* a part of ring */
int cli_rm(int argc, char **argv);
int cli_sim(int argc, char **argv);
int cli_sim_scale(int argc, char **argv);
int cli_sim_training(int argc, char **argv);
int cli_top(int argc, char **argv);
int cli_trace(int argc, char **argv);
int cli_trace_report(int argc, char **argv); /* a part of trace */
int cli_verify(int argc, char **argv);

#endif
