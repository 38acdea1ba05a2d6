/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands of a program. A command prints its results to standard output and its complaints to standard error, and returns
 * an exit status.
 */
#ifndef CLI_COMMON_COMMAND_H
#define CLI_COMMON_COMMAND_H

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

/* Runs the command that argv[1] names; --help lists them, --version prints the version. `program` is named in texts. */
int cli_run(const char *program, const struct cli_command *commands, size_t nr, int argc,
            char **argv);

/* Runs the part of a command that argv[1] names, as "varve bench" has "shot"; its argv[0] is all three words, which
 * messages about its options begin with. -1: there is no such part, and nothing was said. */
int cli_part(const char *command, const struct cli_command *parts, size_t nr, int argc,
             char **argv);

#endif
