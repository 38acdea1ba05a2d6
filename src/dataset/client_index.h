/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index that a daemon shares with the programs of its node: which files they may open themselves, in
 * the folder of the cache, without asking (docs/format/dataset-client.md). A program opens the content file,
 * takes the shared lock that keeps it, and looks whether it is still in the index; if not, it asks.
 *
 * What always holds: a file is in it only while the cache would hand it out (ready, verified), only as
 * long as its owner need not look at it again, and only while the daemon runs and serves.
 *
 * Threads: any. What is in it changes under the cache's lock (dataset.h).
 */
#ifndef VV_DATASET_CLIENT_INDEX_H
#define VV_DATASET_CLIENT_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"
#include "dataset/server_wire.h"

#define VV_INDEX_SLOTS (1u << 16) /* 32 MiB at most, of which only what is used is there */

struct vv_index;

/* `folder` is that of the cache, as clients can open it: absolute. `slots`: a multiple of VV_SERVER_WAYS.
 * -EINVAL, -ENAMETOOLONG, -ENOMEM, -ENOSYS: this kernel cannot share memory that way. */
VV_WARN_UNUSED int vv_index_new(const char *folder, uint32_t slots, struct vv_index **ret_index);
/* Ends it for the clients too. No cache uses it any more. Accepts NULL. */
void vv_index_free(struct vv_index *x);

/* What clients are given: to map for reading, and the counters. Closed by vv_index_free. */
void vv_index_fds(const struct vv_index *x, int ret_fds[2]);
uint64_t vv_index_boot(const struct vv_index *x);

/* The daemon is alive: to be said several times in VV_SERVER_ALIVE_NS. */
void vv_index_beat(struct vv_index *x);
/* Whether clients may use it. A node that fences itself, or drains, switches it off first. On when new. */
void vv_index_enable(struct vv_index *x, bool on);

#endif
