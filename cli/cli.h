/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of the `varve` tool. A command lives in a file of its own; main.c lists it. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stdbool.h>

#include "cli/common/command.h"

/* The program with the commands that are experiments. False: it is not installed. */
bool cli_find_lab(char *ret_path, size_t bytes);

int cli_cached(int argc, char **argv);
int cli_doctor(int argc, char **argv);
int cli_export(int argc, char **argv);
int cli_helper(int argc, char **argv);
int cli_ls(int argc, char **argv);
int cli_probe(int argc, char **argv);
int cli_rm(int argc, char **argv);
int cli_top(int argc, char **argv);
int cli_trace(int argc, char **argv);
int cli_trace_report(int argc, char **argv); /* a part of trace */
int cli_trace_script(int argc, char **argv); /* the same */
int cli_verify(int argc, char **argv);

#endif
