/* SPDX-License-Identifier: Apache-2.0 */
/* One bandwidth budget for each disk and each remote folder, shared by the processes of a user on a
 * node, so that flushes of one process do not starve restores of another. Any thread. */
#ifndef VV_STORE_BUDGET_H
#define VV_STORE_BUDGET_H

#include <stdint.h>

#include "base/util.h"
#include "store/store.h"

struct vv_budget;

enum vv_budget_of { VV_BUDGET_DISK, VV_BUDGET_FOLDER };

/* The budget of the folder at the path, or of the disk under it. Without shared memory the budget
 * is private to this process. `name`: name of the shared memory, for tests; NULL: the usual one.
 * -ENOMEM. */
VV_WARN_UNUSED int vv_budget_new(const char *path, enum vv_budget_of what, const char *name,
                                 struct vv_budget **ret_budget);
/* Accepts NULL. */
void vv_budget_free(struct vv_budget *budget);

/* Cancels the booking of a flush that is not made, so that its time is free again. */
void vv_budget_unbook_flush(struct vv_budget *budget, uint64_t bytes, uint64_t bytes_per_s,
                            uint64_t now_ns);
/* Books a transfer at `bytes_per_s` (0: no limit) and returns
 * the time at which it may begin; the caller waits until then. A
 * restore goes ahead of all flushes that have not begun, and
 * never waits here. */
uint64_t vv_budget_book_flush(struct vv_budget *budget, uint64_t bytes, uint64_t bytes_per_s,
                              uint64_t now_ns);
void vv_budget_book_restore(struct vv_budget *budget, uint64_t bytes, uint64_t bytes_per_s,
                            uint64_t now_ns);

/* If another process of the node restores from the folder: the
 * time, at most a few milliseconds from now, until which a flush
 * should wait before it begins. 0: no process restores. */
uint64_t vv_budget_yield_until(struct vv_budget *budget, uint64_t now_ns);

/* Wraps a store on a disk, see budget_store.c. bytes_per_s:
 * limit on writes, of all processes that share the budget
 * together; 0: none. The budget outlives the store. Closing the
 * store closes the inner one; on failure the inner one stays the
 * caller's. */
VV_WARN_UNUSED int vv_budget_store(struct vv_budget *budget, struct vv_store *inner,
                                   uint32_t page_bytes, uint64_t bytes_per_s,
                                   struct vv_store **ret_store);

#endif
