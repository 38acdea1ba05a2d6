/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the parts of `varve trace`. */
#ifndef CLI_TRACE_H
#define CLI_TRACE_H

#include "trace/timeline.h"

/* An open trace. */
struct cli_trace {
    struct vv_trace_file *file;
    struct vv_timeline *timeline;
};

/* Reads a trace, and prints what is wrong with it: why it cannot be read, or, as a warning, that parts of it are
 * missing. Messages begin with `command`. 0, or an exit status. */
int cli_trace_open(const char *command, const char *path, struct cli_trace *ret_trace);
void cli_trace_close(struct cli_trace *trace);

/* True if both are names of one file, so that writing one would destroy the other. */
bool cli_trace_same_file(const char *a, const char *b);

#endif
