/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands of a program. A command prints results to standard output and messages to standard error, and returns
 * an exit status.
 */
#ifndef CLI_COMMON_COMMAND_H
#define CLI_COMMON_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

enum {
    CLI_OK = 0,
    CLI_FAILED = 1, /* it was tried, and did not work or found something wrong */
    CLI_USAGE = 2   /* the command line is wrong */
};

struct cli_command {
    const char *name, *summary;
    /* argv[0] is "varve" and the name of the command. */
    int (*run)(int argc, char **argv);
};

/* Runs the command that argv[1] names; --help lists them, --version prints the version. `program` is named in texts. */
int cli_run(const char *program, const struct cli_command *commands, size_t nr, int argc,
            char **argv);

/* Runs the part of a command that argv[1] names, as "varve bench" has "shot". Its argv[0] is all three words: messages
 * about its options begin with them. -1: argv[1] names no part, and nothing was printed. */
int cli_part(const char *command, const struct cli_command *parts, size_t nr, int argc,
             char **argv);

/* The same, and names the parts in a message if argv[1] is none of them. */
int cli_part_or_usage(const char *command, const struct cli_command *parts, size_t nr, int argc,
                      char **argv);

/* True if a user who typed `word` probably meant `name`: one letter in four may differ. */
bool cli_resembles(const char *word, const char *name);

#endif
