/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory the system would still give this process. */
#ifndef VV_BASE_MEMORY_H
#define VV_BASE_MEMORY_H

#include <stdint.h>

/* Bytes that can be had without anybody being killed for it: what the machine has available, or
 * less where control groups (version 2) limit the process. 0: the system does not tell. Reads a few
 * small files. Any thread. */
uint64_t vv_memory_available(void);

/* The same with /proc and /sys/fs/cgroup elsewhere. */
uint64_t vvi_memory_available_in(const char *proc, const char *cgroup);

#endif
