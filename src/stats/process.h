/* SPDX-License-Identifier: Apache-2.0 */
/* Identity of a process, and if it is still running. Process ids are reused: a process is identified by its id and its
 * start time. */
#ifndef VV_STATS_PROCESS_H
#define VV_STATS_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/util.h"

/* The start of the process, in the kernel's ticks since boot. -ESRCH: there is none, or it is a
 * zombie; other errors: its start is not known. */
int vvi_process_start(const char *proc, pid_t pid, uint64_t *ret_ticks) VV_WARN_UNUSED;

/* The process id namespace of the calling process; 0: not known. */
uint64_t vvi_process_space(void);

/* Numbers for the machine, by its name, and for its current boot; 0: not known. */
uint64_t vvi_process_node(void);
uint64_t vvi_process_boot(void);

/* The arguments of this process, separated by blanks, cut to size. */
void vvi_process_command(char *buf, size_t size);

#endif
