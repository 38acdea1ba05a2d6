/* SPDX-License-Identifier: Apache-2.0 */
/* For tests and measurements: the system calls of a GPU file system, servers that fail, the time that servers spend,
 * and the modes of papers that ours are compared with. */
#ifndef VV_GPUFILE_HOOKS_H
#define VV_GPUFILE_HOOKS_H

#include <stdint.h>

#include <varve/gpufile.h>

#include "store/os.h"

/* The system calls of file systems opened from now on; NULL: the real ones. One thread. */
void vv_gpufile_set_os(const struct vv_os *os);

/* One server ends when it takes its next request, which is never answered. Any thread. */
void vv_gpufile_lose_server(struct varve_gpufs *fs);

/* Sums over the running servers since they were started. */
struct vv_gpufile_times {
    uint64_t answered; /* requests */
    uint64_t idle_ns;  /* waited for requests, not counting waits of a millisecond and more */
    uint64_t timed,
        timed_ns; /* requests that were timed, and the time that carrying them out took */
};

/* Any thread, while no thread starts or stops servers. */
void vv_gpufile_server_times(struct varve_gpufs *fs, struct vv_gpufile_times *ret);

/* Values of `readahead`, `replace` and `queue` in the options that varve_gpufs_open refuses. */
enum {
    VV_GREADAHEAD_FIXED = 1, /* windows of one size; kernels wait for all of them */
    VV_GREPLACE_GLOBAL = 1,  /* one queue for all groups */
    VV_GQUEUE_SLOTS = 1      /* each stream has places of its own, which belong to one server */
};

/* As varve_gpufs_open, but accepts these values too. */
int vv_gpufile_open(struct varve_ctx *ctx, const struct varve_gpufs_opts *opts,
                    struct varve_gpufs **ret_fs) VARVE_CHECK;

#endif
