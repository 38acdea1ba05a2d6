/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index that a daemon shares with the programs of its node: files that they may open themselves, in the
 * folder of the cache, without asking (docs/format/dataset-client.md). A program opens the content file, takes
 * the shared lock that keeps it, and checks that it is still in the index; if not, it asks.
 *
 * Invariant: a file is in the index only while the cache would hand it out (ready, verified), only until its
 * owner has to check it again, and only while the daemon runs and serves.
 *
 * Threads: any. Its contents change under the cache's lock (dataset.h).
 */
#ifndef VV_DATASET_CLIENT_INDEX_H
#define VV_DATASET_CLIENT_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"
#include "dataset/server_wire.h"

#define VV_INDEX_SLOTS (1u << 16) /* at most 32 MiB; only used pages take memory */

struct vv_index;

/* `folder` is the folder of the cache as clients open it: absolute. `slots`: a multiple of VV_SERVER_WAYS.
 * -EINVAL, -ENAMETOOLONG, -ENOMEM, -ENOSYS: this kernel cannot share memory that way. */
VV_WARN_UNUSED int vv_index_new(const char *folder, uint32_t slots, struct vv_index **ret_index);
/* Frees the index; clients stop using it. No cache may use it any more. Accepts NULL. */
void vv_index_free(struct vv_index *x);

/* The descriptors that clients are given: one to map for reading, and the counters. vv_index_free closes them. */
void vv_index_fds(const struct vv_index *x, int ret_fds[2]);
uint64_t vv_index_boot(const struct vv_index *x);

/* Reports that the daemon is alive. To be called several times within VV_SERVER_ALIVE_NS. */
void vv_index_beat(struct vv_index *x);
/* Lets clients use it, or not. A node that fences itself, or drains, switches it off first. A new one is on. */
void vv_index_enable(struct vv_index *x, bool on);

#endif
