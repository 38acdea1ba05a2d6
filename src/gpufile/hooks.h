/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: what a GPU file system makes of the system, and servers that fail. */
#ifndef VV_GPUFILE_HOOKS_H
#define VV_GPUFILE_HOOKS_H

#include "tier/os.h"

struct varve_gpufs;

/* The system calls of file systems opened from now on; NULL: the real ones. One thread. */
void vv_gpufile_set_os(const struct vv_os *os);

/* One server ends when it takes its next request, which nobody will answer. Any thread. */
void vv_gpufile_lose_server(struct varve_gpufs *fs);

#endif
