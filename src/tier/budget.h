/* SPDX-License-Identifier: Apache-2.0 */
/* One bandwidth budget for each folder, shared by the processes of a node (and user), so that
 * flushes of one do not starve restores of another. Any thread. */
#ifndef VV_TIER_BUDGET_H
#define VV_TIER_BUDGET_H

#include <stdint.h>

#include "core/util.h"

struct vv_budget;

/* The budget of the folder that the descriptor is open on. Where there is no shared memory it is
 * this process's own. `name`: of the shared memory, for tests; NULL: the usual one. -ENOMEM. */
VV_WARN_UNUSED int vv_budget_new(int dirfd, const char *name, struct vv_budget **ret_budget);
/* Accepts NULL. */
void vv_budget_free(struct vv_budget *budget);

/* Books a transfer at `bytes_per_s` (0: no limit): the time at which it may begin. Those who book
 * wait until then. A restore comes before all flushes that have not begun, and is never made to
 * wait here. */
uint64_t vv_budget_book_flush(struct vv_budget *budget, uint64_t bytes, uint64_t bytes_per_s,
                              uint64_t now_ns);
void vv_budget_book_restore(struct vv_budget *budget, uint64_t bytes, uint64_t bytes_per_s,
                            uint64_t now_ns);

/* Another process of the node restores from the folder: a flush should wait until this time, a few
 * milliseconds at most, before it begins; 0: none does. */
uint64_t vv_budget_yield_until(const struct vv_budget *budget, uint64_t now_ns);

#endif
