/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands that look into a folder of checkpoints share. */
#ifndef CLI_FILES_H
#define CLI_FILES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* The folder to look into: the option's argument, or else VARVE_LOCAL. NULL: none, and said so. */
const char *files_folder(const char *command, const char *option);

/* "2026-11-15 04:55:39" in UTC. Returns buf. */
char *files_time(uint64_t ns, char *buf, size_t size);

/* Text as a JSON string, quotes included. */
void files_json_text(FILE *out, const char *text);

/* A line on standard error that overwrites itself; on a terminal only. Call with total 0 to clear. */
void files_progress(const char *what, uint64_t done, uint64_t total);

/* A whole unsigned number, nothing else. */
bool files_number(const char *text, uint64_t *ret_value);

/* Says why a folder or history could not be read. Returns CLI_FAILED. */
int files_complain(const char *command, const char *folder, const char *history, int rc);

#endif
