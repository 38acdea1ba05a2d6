/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VV_DATASET_CLIENT_INDEX_PRIVATE_H
#define VV_DATASET_CLIENT_INDEX_PRIVATE_H

#include "dataset/client_index.h"

struct vvi_entry;

/* All under the lock of the cache that owns the entries. `entry->shown` is the first slot of an entry, plus
 * one. */
void vvi_index_put(struct vv_index *x, struct vvi_entry *e, const char *path,
                   const struct vv_server_stat *stat, uint64_t until_ns, bool direct);
void vvi_index_withdraw(struct vv_index *x, struct vvi_entry *e);
/* Calls fn for each entry that clients opened since the last call. Returns the number of all such opens. */
uint64_t vvi_index_harvest(struct vv_index *x, void (*fn)(void *user, struct vvi_entry *e),
                           void *user);

#endif
