/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time that a mover may sleep while the device copies for it, learnt from earlier copies.
 *
 * A mover sleeps through three quarters of the expected duration of a copy and then polls now and
 * then. It must not sleep past the end of one copy after the other. Two rules prevent that:
 *   - A copy that has ended at the first poll shows that the sleep was too long, but not how long
 *     the copy took: the expectation shrinks.
 *   - A copy that takes far longer than expected, because the thread was not run or another process
 *     used the link, counts as one of twice the expected time: a single one does not slow down
 *     those behind it, and a link that stays slow is learnt within some copies.
 */
#ifndef VV_ENGINE_COPY_SLEEP_H
#define VV_ENGINE_COPY_SLEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"

struct vvi_copy_sleep {
    uint64_t ns_per_mib; /* expected, from the time that the link is free for the copy */
};

/* No link is much faster than this. */
#define VVI_COPY_SLEEP_FIRST_NS_PER_MIB 16000

static inline void vvi_copy_sleep_init(struct vvi_copy_sleep *n)
{
    n->ns_per_mib = VVI_COPY_SLEEP_FIRST_NS_PER_MIB;
}

/* Copies smaller than a MiB take about as long as one MiB. */
static inline uint64_t vvi_copy_sleep_mib(uint64_t bytes)
{
    return VV_MAX(bytes >> 20, (uint64_t)1);
}

static inline uint64_t vvi_copy_sleep_ns(const struct vvi_copy_sleep *n, uint64_t bytes)
{
    return n->ns_per_mib * vvi_copy_sleep_mib(bytes) / 4 * 3;
}

/* A copy has ended, `took_ns` after it was submitted, or, if others were queued before it, after the
 * mover saw the last of these end. `overslept`: at the first poll the copy had ended. */
static inline void vvi_copy_sleep_learn(struct vvi_copy_sleep *n, uint64_t bytes, uint64_t took_ns,
                                        bool overslept)
{
    uint64_t old = n->ns_per_mib, now = took_ns / vvi_copy_sleep_mib(bytes);

    n->ns_per_mib = overslept ? old - old / 4 : old - old / 4 + VV_MIN(now, 2 * old) / 4;
}

#endif
