/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For vector/: memory of the host cache that belongs to a history but to no version, and conversion between it and
 * versions of one region, number 0. Failures are recorded, and calls counted and traced, like those of the public API.
 * One thread at a time for each lease.
 */
#ifndef VV_CKPT_LEASE_H
#define VV_CKPT_LEASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <varve/ckpt.h>

#include "base/util.h"

struct vv_engine_lend;

/* All zero: no lease. */
struct vv_lease {
    struct vv_engine_lend *lend;
    char *ptr;    /* aligned to the page size */
    size_t bytes; /* usable size: whole pages */
};

/* Takes a lease of at least `bytes` bytes, with undefined content. Blocks while there is no room. -ENOSPC: more than
 * half of the cache would be lent, or no room can be freed; -ENOTSUP: the first cache is not in host memory; -EAGAIN:
 * the deadline is 0 and the call would block. */
int vv_ckpt_lease(struct varve_history *h, size_t bytes, uint64_t deadline_ns,
                  struct vv_lease *ret_lease) VV_WARN_UNUSED;
/* Gives the lease back and zeroes it. */
void vv_ckpt_unlease(struct varve_history *h, struct vv_lease *lease);
/* Copies within host memory, with the copy pool of checkpoints. */
void vv_ckpt_copy(struct varve_history *h, void *dst, const void *src, size_t bytes);
/* Gives back the memory after the first `bytes` bytes, at least 1. */
void vv_ckpt_trim(struct varve_history *h, struct vv_lease *lease, size_t bytes);

/* Writes `bytes` bytes (0 is allowed) of elements of `unit` bytes as a version, by a copy. Otherwise like
 * varve_checkpoint_for. */
int vv_ckpt_write(struct varve_history *h, uint64_t version, char *ptr, size_t bytes, size_t unit,
                  uint64_t deadline_ns) VV_WARN_UNUSED;
/* Makes a version from the memory itself; `lease` is then zero. After a failure `lease` may be zero or not, as
 * documented for varve_commit. */
int vv_ckpt_write_lease(struct varve_history *h, uint64_t version, struct vv_lease *lease,
                        size_t bytes, size_t unit, uint64_t deadline_ns) VV_WARN_UNUSED;

/* Stored size of a version's region 0. -EINVAL, with a text: its elements do not have `unit` bytes or, if the element
 * size is not known, its size is not a multiple of `unit`. Otherwise like varve_region_size. */
int vv_ckpt_size(struct varve_history *h, uint64_t version, size_t unit,
                 size_t *ret_bytes) VV_WARN_UNUSED;
/*
 * Exchanges a version's own memory for that of `lease`, see vv_core_swap. The version counts as restored. -EAGAIN: it
 * must be copied (vv_ckpt_read). Does not block.
 */
int vv_ckpt_swap(struct varve_history *h, uint64_t version, size_t unit, struct vv_lease *lease,
                 size_t *ret_bytes) VV_WARN_UNUSED;
/* Reads region 0 of a version into `bytes` bytes at `ptr`, by a copy. Otherwise like varve_restore_for. */
int vv_ckpt_read(struct varve_history *h, uint64_t version, char *ptr, size_t bytes,
                 uint64_t deadline_ns) VV_WARN_UNUSED;

/* Returns 0 if this process may use the history; -EINVAL, -EPERM. */
int vv_ckpt_usable(struct varve_history *h) VV_WARN_UNUSED;
/* Records a failure of `operation` in the context, with a text, and returns `err`. */
int vv_ckpt_fail(struct varve_history *h, const char *operation, uint64_t version, int err,
                 const char *fmt, ...) VV_PRINTF(5, 6);

#endif
