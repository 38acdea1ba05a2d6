/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Predicts the application's next call on device memory from the calls before, so that work that
 * would delay it is not begun just before.
 *
 * A program that computes between its calls makes them at about equal distances. A gap is the time
 * from the end of a call to the start of the next. After a call ends, the next one is expected when
 * the shorter of the last two gaps has passed. Work that takes `ns` fits if it ends before that.
 * Otherwise it waits for the call, which may be late by an eighth of the gap; after that the program
 * has gone on to something else, and no call is expected. If the expected gap is shorter than
 * twice `ns`, the work does not wait.
 *
 * Synchronization: all relaxed, and one word each. Calls of several threads mix their gaps, which
 * are short then. A stale value delays one call, or costs one wait in vain.
 */
#ifndef VV_ENGINE_GAPS_H
#define VV_ENGINE_GAPS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"

struct vvi_gaps {
    _Atomic uint64_t end_ns; /* of the last call; 0: none yet */
    _Atomic uint64_t gap_ns, gap_before_ns;
};

#define VVI_GAPS_LATE 8 /* a call may be late by 1/8 of a gap */

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

/* The time until which work that takes `ns` should wait for a call; 0: it need not wait. */
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
