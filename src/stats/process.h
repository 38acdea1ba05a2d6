/* SPDX-License-Identifier: Apache-2.0 */
/* Which process is it, and is it still there? Numbers of processes are used again: a process is
 * known by its number and the time at which it began. */
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

/* The namespace that the calling process has its number in; 0: not known. */
uint64_t vvi_process_space(void);

/* The machine by its name, and its run since it was switched on; 0: not known. */
uint64_t vvi_process_node(void);
uint64_t vvi_process_boot(void);

/* Its arguments separated by blanks, cut to size. */
void vvi_process_command(char *buf, size_t size);

#endif
