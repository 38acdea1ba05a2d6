/* SPDX-License-Identifier: Apache-2.0 */
/* One bandwidth budget for each disk and each remote folder, shared by the processes of a node (and
 * user), so that flushes of one do not starve restores of another. Any thread. */
#ifndef VV_STORE_BUDGET_H
#define VV_STORE_BUDGET_H

#include <stdint.h>

#include "base/util.h"
#include "store/store.h"

struct vv_budget;

enum vv_budget_of { VV_BUDGET_DISK, VV_BUDGET_FOLDER };

/* The budget of the folder at the path, or of the disk that it is on. Where there is no shared memory
 * it is this process's own. `name`: of the shared memory, for tests; NULL: the usual one. -ENOMEM. */
VV_WARN_UNUSED int vv_budget_new(const char *path, enum vv_budget_of what, const char *name,
                                 struct vv_budget **ret_budget);
/* Accepts NULL. */
void vv_budget_free(struct vv_budget *budget);

/* Gives back what was booked for a transfer that is not made. */
void vv_budget_unbook_flush(struct vv_budget *budget, uint64_t bytes, uint64_t bytes_per_s,
                            uint64_t now_ns);
/* Books a transfer at `bytes_per_s` (0: no limit): the time at which it may begin. Those who book
 * wait until then. A restore comes before all flushes that have not begun, and is never made to
 * wait here. */
uint64_t vv_budget_book_flush(struct vv_budget *budget, uint64_t bytes, uint64_t bytes_per_s,
                              uint64_t now_ns);
void vv_budget_book_restore(struct vv_budget *budget, uint64_t bytes, uint64_t bytes_per_s,
                            uint64_t now_ns);

/* Another process of the node restores from the folder: a flush should wait until this time, a few
 * milliseconds at most, before it begins; 0: none does. */
uint64_t vv_budget_yield_until(struct vv_budget *budget, uint64_t now_ns);

/* Wraps a store on a disk, see budget_store.c. bytes_per_s: of writes, for all who share the budget; 0:
 * no limit. The budget outlives it; closing it closes the inner one. On failure that stays the
 * caller's. */
VV_WARN_UNUSED int vv_budget_store(struct vv_budget *budget, struct vv_store *inner,
                                   uint32_t page_bytes, uint64_t bytes_per_s,
                                   struct vv_store **ret_store);

#endif
