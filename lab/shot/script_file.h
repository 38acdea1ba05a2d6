/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of the commands that run a script: `varve sim script` and `varve bench script`. */
#ifndef LAB_SHOT_SCRIPT_FILE_H
#define LAB_SHOT_SCRIPT_FILE_H

#include "lab/shot/work.h"

struct script_file {
    const char *name; /* "-": standard input */
    struct shot_work work;
    struct shot_opts opts; /* of the script, overridden by those of the command line */
};

/* Reads options and script. Returns -1, or an exit status after a message. */
VV_WARN_UNUSED int script_file_open(const char *command, int argc, char **argv,
                                    struct script_file *ret_file);
void script_file_close(struct script_file *file);

#endif
