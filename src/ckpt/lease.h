/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the host cache that belongs to a history but to no version, and versions of one region,
 * number 0, made from it and back: what vector/ stands on. Records failures, counts and traces as
 * the calls of the public API do. One thread at a time for each lease.
 */
#ifndef VV_CKPT_LEASE_H
#define VV_CKPT_LEASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <varve/ckpt.h>

#include "base/util.h"

struct vv_engine_lend;

/* Zeroed: none. */
struct vv_lease {
    struct vv_engine_lend *lend;
    char *ptr;    /* aligned to the page size */
    size_t bytes; /* that may be used: whole pages */
};

/* A lease of `bytes` bytes or some more, which hold anything. Blocks while there is no room.
 * -ENOSPC: more than half of the cache would be lent, or no room can be had; -ENOTSUP: the first
 * cache is not in host memory; -EAGAIN: the deadline is 0 and it would block. */
int vv_ckpt_lease(struct varve_history *h, size_t bytes, uint64_t deadline_ns,
                  struct vv_lease *ret_lease) VV_WARN_UNUSED;
/* Gives it back, and makes it none. */
void vv_ckpt_unlease(struct varve_history *h, struct vv_lease *lease);
/* Copies within host memory, as fast as checkpoints are. */
void vv_ckpt_copy(struct varve_history *h, void *dst, const void *src, size_t bytes);
/* Gives back what is not needed for its first `bytes` bytes, at least 1. */
void vv_ckpt_trim(struct varve_history *h, struct vv_lease *lease, size_t bytes);

/* Writes `bytes` bytes, 0 too, of elements of `unit` bytes as a version, by a copy. As
 * varve_checkpoint_for. */
int vv_ckpt_write(struct varve_history *h, uint64_t version, char *ptr, size_t bytes, size_t unit,
                  uint64_t deadline_ns) VV_WARN_UNUSED;
/* Makes the memory itself the version; there is none in `lease` then. After a failure there may be,
 * or not, as varve_commit has it. */
int vv_ckpt_write_lease(struct varve_history *h, uint64_t version, struct vv_lease *lease,
                        size_t bytes, size_t unit, uint64_t deadline_ns) VV_WARN_UNUSED;

/* Stored bytes of a version's region 0, if its elements have `unit` bytes or, where that is not
 * known, its bytes are a multiple of that. As varve_region_size; -EINVAL, with a text: they are not. */
int vv_ckpt_size(struct varve_history *h, uint64_t version, size_t unit,
                 size_t *ret_bytes) VV_WARN_UNUSED;
/*
 * Takes a version's own memory in exchange for what is in `lease`, as vv_core_swap has it. It counts
 * as restored. -EAGAIN: it has to be copied (vv_ckpt_read). Does not block.
 */
int vv_ckpt_swap(struct varve_history *h, uint64_t version, size_t unit, struct vv_lease *lease,
                 size_t *ret_bytes) VV_WARN_UNUSED;
/* Reads region 0 of a version into `bytes` bytes at `ptr`, by a copy. As varve_restore_for. */
int vv_ckpt_read(struct varve_history *h, uint64_t version, char *ptr, size_t bytes,
                 uint64_t deadline_ns) VV_WARN_UNUSED;

/* Is it this process that may use the history? -EINVAL, -EPERM. */
int vv_ckpt_usable(struct varve_history *h) VV_WARN_UNUSED;
/* Records a failure of `operation` in the context, with a text, and returns `err`. */
int vv_ckpt_fail(struct varve_history *h, const char *operation, uint64_t version, int err,
                 const char *fmt, ...) VV_PRINTF(5, 6);

#endif
