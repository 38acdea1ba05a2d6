/* SPDX-License-Identifier: Apache-2.0 */
/* A history seen from outside: how many ranks have written it, and removing their files. For jobs that return with
 * another number of ranks, and so cannot open the history. Any thread. */
#ifndef VV_STORE_PURGE_H
#define VV_STORE_PURGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/util.h"
#include "store/store.h"

/* 0: not recorded; a history of one rank has no record but at levels remote and complete. -ENOENT: the history does not exist. */
VV_WARN_UNUSED int vv_files_ranks(struct vv_folder *folder, const char *history,
                                  uint32_t *ret_ranks);

/* The same, but for a history without a recorded number: the number of its life files, or 1 if it has other files
 * only. -ENOENT: it has no files. */
VV_WARN_UNUSED int vv_files_parts(struct vv_folder *folder, const char *history,
                                  uint32_t *ret_ranks);

struct vv_purge {
    const char *history;
    uint32_t first_rank; /* this rank and those above it */
    /* For the caller's job; all its processes may call this at the same time. */
    uint32_t rank, ranks;
    uint64_t run_id; /* of that job: files that other ranks have written in this run stay */
};

/* Removes the files of these ranks, under their locks, and the group records that name them; durable when
 * it returns 0. 0 also if there were none; -EBUSY: another program has the history open as the caller's
 * rank, or as one that its job does not have. */
VV_WARN_UNUSED int vv_files_purge(struct vv_folder *folder, const struct vv_purge *purge, char *err,
                                  size_t err_bytes);

#endif
