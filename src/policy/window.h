/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contiguous policies: the consecutive fragments that are evicted for a new one.
 *
 * `score` is Algorithm 1 of Maurya et al., HPDC'23: among all windows of consecutive fragments that
 * are large enough it takes the one that is evictable soonest (the sum of the times until each is),
 * and among equals the one whose fragments are wanted last (the sum of their prefetch distances).
 * A gap that is large enough is taken before all of them, the smallest first.
 * O(n): each end of the window moves forward only.
 */
#ifndef VV_POLICY_WINDOW_H
#define VV_POLICY_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vv_frag {
    uint64_t pages;
    uint64_t wait_ns;  /* estimated time until it may go; 0: now. Gaps: 0 */
    uint64_t distance; /* restores before it is wanted; gaps: 0 */
    uint64_t stamp;    /* fifo: time of arrival, lru: time of the last use; gaps: 0 */
    bool barred;       /* cannot go at any time: bars every window that contains it */
    bool gap;          /* free: the unneeded part of it stays free */
    uint32_t scratch;  /* used by the search */
};

struct vv_window {
    size_t first, end; /* fragments [first, end) */
    uint64_t wait_ns;  /* sum over them */
};

/* Algorithm 1. With `now_only`, fragments that cannot go at once bar a window too. false: there is
 * no window. */
bool vv_window_score(const struct vv_frag *frags, size_t n, uint64_t pages, bool now_only,
                     struct vv_window *ret_window);
/* The window whose newest fragment is the oldest, among those that may go at once. */
bool vv_window_oldest(struct vv_frag *frags, size_t n, uint64_t pages,
                      struct vv_window *ret_window);

#endif
