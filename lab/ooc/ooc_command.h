/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of `varve bench blocks` and its output, for the tool itself and for the program with kernels
 * for a GPU that it executes.
 */
#ifndef LAB_OOC_OOC_COMMAND_H
#define LAB_OOC_OOC_COMMAND_H

#include <stdio.h>

#include "lab/ooc/ooc.h"

#ifdef __cplusplus
extern "C" {
#endif

enum ooc_device { OOC_AUTO, OOC_EMULATED, OOC_CUDA };

struct ooc_options {
    enum ooc_device device;
    bool json;
    bool emulated;         /* set by ooc_command */
    const char *csv, *out; /* NULL: none */
    bool tables;           /* the survey; else the wave */
    bool volume;           /* was given */
    struct ooc_wave_opts wave;
    struct ooc_survey_opts survey;
};

/* Reads the command line, as opts_parse does: -1, or an exit status. Defaults of sizes depend on the device:
 * `small` for the emulated one. */
int ooc_parse(int argc, char **argv, bool small, struct ooc_options *ret_options);

/* Runs the experiment of the options, and prints it. Returns an exit status: 0, 1 if it failed or sums differ, 77
 * if there is no such device. */
int ooc_command(const struct ooc_options *options, const struct ooc_launcher *launcher);

#ifdef __cplusplus
}
#endif

#endif
