/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When the application's next call on device memory will come, learnt from the calls before, so that
 * what would hold it up is not begun just before.
 *
 * A program that computes between its calls makes them at about the same distance: the next one is
 * expected as long after the end of the last as the shorter of the last two gaps. What takes `ns` fits
 * if it ends before that. Otherwise it waits for the call, which may be late by an eighth of the gap;
 * when that time is over too, the program has gone on to something else, and nothing is expected. Calls
 * that follow one another so closely that nothing fits in between are not waited for.
 *
 * Synchronization: all relaxed, and one word each. Calls of several threads mix their gaps, which are
 * then short. A value seen late costs one call a wait, or one wait in vain.
 */
#ifndef VV_ENGINE_GAPS_H
#define VV_ENGINE_GAPS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"

struct vvi_gaps {
    _Atomic uint64_t end_ns; /* of the last call; 0: there was none */
    _Atomic uint64_t gap_ns, gap_before_ns;
};

#define VVI_GAPS_LATE 8 /* of a gap */

static inline void vvi_gaps_begin(struct vvi_gaps *p, uint64_t now_ns)
{
    uint64_t end_ns = atomic_load_explicit(&p->end_ns, memory_order_relaxed);

    if (end_ns == 0 || now_ns < end_ns)
        return;
    atomic_store_explicit(&p->gap_before_ns, atomic_load_explicit(&p->gap_ns, memory_order_relaxed),
                          memory_order_relaxed);
    atomic_store_explicit(&p->gap_ns, now_ns - end_ns, memory_order_relaxed);
}

static inline void vvi_gaps_end(struct vvi_gaps *p, uint64_t now_ns)
{
    atomic_store_explicit(&p->end_ns, now_ns, memory_order_relaxed);
}

/* Until when something that takes `ns` had better wait for a call; 0: it need not. */
static inline uint64_t vvi_gaps_wait(const struct vvi_gaps *p, uint64_t now_ns, uint64_t ns)
{
    uint64_t end_ns = atomic_load_explicit(&p->end_ns, memory_order_relaxed);
    uint64_t gap_ns = atomic_load_explicit(&p->gap_ns, memory_order_relaxed);
    uint64_t before_ns = atomic_load_explicit(&p->gap_before_ns, memory_order_relaxed);

    if (before_ns > 0)
        gap_ns = VV_MIN(gap_ns, before_ns);
    uint64_t late_ns = end_ns + gap_ns + gap_ns / VVI_GAPS_LATE;
    if (gap_ns < 2 * ns || now_ns + ns <= end_ns + gap_ns || now_ns >= late_ns)
        return 0;
    return late_ns;
}

#endif
