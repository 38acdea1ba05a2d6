/* SPDX-License-Identifier: Apache-2.0 */
/* A history looked at from outside: how many ranks have written it, and removing what they left. For jobs
 * that come back with another number of ranks, to which the history is not open. Any thread. */
#ifndef VV_STORE_PURGE_H
#define VV_STORE_PURGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/util.h"
#include "store/store.h"

/* 0: nothing tells; one rank leaves no trace. -ENOENT: there is no such history. */
VV_WARN_UNUSED int vv_files_ranks(struct vv_folder *folder, const char *history,
                                  uint32_t *ret_ranks);

/* The same where one rank counts as one: -ENOENT if nothing is there of any. */
VV_WARN_UNUSED int vv_files_parts(struct vv_folder *folder, const char *history,
                                  uint32_t *ret_ranks);

struct vv_purge {
    const char *history;
    uint32_t first_rank;  /* this rank and those above it */
    uint32_t rank, ranks; /* of the caller's job, all of whose processes may be at it */
    uint64_t run_id;      /* and its run: what other ranks have written since is theirs */
};

/* Removes the files of these ranks, under their locks, and the group records that name them. When it
 * returns 0 nothing of that comes back. 0 also if there was nothing; -EBUSY: another program has the
 * history open as the caller's rank, or as one that its job does not have. */
VV_WARN_UNUSED int vv_files_purge(struct vv_folder *folder, const struct vv_purge *purge, char *err,
                                  size_t err_bytes);

#endif
