/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is still available to this process. */
#ifndef VV_BASE_MEMORY_H
#define VV_BASE_MEMORY_H

#include <stdint.h>

/* Bytes that can be allocated without the system having to kill a process: the machine's available memory,
 * or less if control groups (version 2) limit the process. 0: not known. Reads a few small files. Any
 * thread. */
uint64_t vv_memory_available(void);

/* The same with other folders for /proc and /sys/fs/cgroup; for tests. */
uint64_t vvi_memory_available_in(const char *proc, const char *cgroup);

#endif
