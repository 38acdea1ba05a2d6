/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deadlines that follow the peer: the mean of its answers and four times their mean deviation, as in TCP; for bulk
 * data, also the time at a quarter of the measured rate. Each missed deadline doubles the patience, up to a limit, so
 * that calls to a peer that has become slow do not fail for ever; the next answer ends that.
 */
#include "net/pace.h"

#include "base/clock.h"
#include "base/util.h"

enum { SMALL_BYTES = 64 << 10, MISSED_MAX = 6 };

void vvi_pace_add(struct vvi_pace *p, uint64_t took_ns, uint64_t bytes)
{
    p->missed = 0;
    took_ns = VV_MAX(took_ns, 1);
    if (bytes > SMALL_BYTES) {
        uint64_t alone = took_ns > p->mean_ns ? took_ns - p->mean_ns : 1;
        uint64_t rate = (uint64_t)((double)bytes * (double)VV_NS_PER_S / (double)alone);
        p->rate = p->rate ? p->rate - p->rate / 8 + rate / 8 : rate;
        return;
    }
    if (p->mean_ns == 0) {
        p->mean_ns = took_ns;
        p->deviation_ns = took_ns / 2;
        return;
    }
    uint64_t off = took_ns > p->mean_ns ? took_ns - p->mean_ns : p->mean_ns - took_ns;
    p->deviation_ns = p->deviation_ns - p->deviation_ns / 4 + off / 4;
    p->mean_ns = VV_MAX(p->mean_ns - p->mean_ns / 8 + took_ns / 8, 1);
}

void vvi_pace_miss(struct vvi_pace *p)
{
    if (p->missed < MISSED_MAX)
        p->missed++;
}

uint64_t vvi_pace_patience_ns(const struct vvi_pace *p, uint64_t bytes)
{
    uint64_t ns = p->mean_ns ? p->mean_ns + 4 * p->deviation_ns : VVI_PACE_FIRST_NS;

    ns = VV_MAX(ns, VVI_PACE_MIN_NS);
    if (bytes > SMALL_BYTES)
        ns += p->rate ? (uint64_t)(4.0 * (double)bytes * (double)VV_NS_PER_S / (double)p->rate)
                      : VVI_PACE_FIRST_NS;
    if (ns >= VVI_PACE_MAX_NS >> p->missed)
        return VVI_PACE_MAX_NS;
    return ns << p->missed;
}
