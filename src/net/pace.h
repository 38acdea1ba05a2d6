/* SPDX-License-Identifier: Apache-2.0 */
/* How long a peer's answers take, and how long to wait for the next. Plain data and arithmetic. */
#ifndef VV_NET_PACE_H
#define VV_NET_PACE_H

#include <stdint.h>

#define VVI_PACE_MIN_NS   UINT64_C(20000000)
#define VVI_PACE_MAX_NS   UINT64_C(2000000000)
#define VVI_PACE_FIRST_NS UINT64_C(500000000) /* nothing is known yet */

struct vvi_pace {
    uint64_t mean_ns, deviation_ns; /* of answers that have little or no data; 0: none yet */
    uint64_t rate;                  /* bytes a second of those that have much; 0: unknown */
    unsigned missed;                /* deadlines in a row */
};

/* An answer with this much data took so long. */
void vvi_pace_add(struct vvi_pace *p, uint64_t took_ns, uint64_t bytes);
/* A deadline has passed. */
void vvi_pace_miss(struct vvi_pace *p);
uint64_t vvi_pace_patience_ns(const struct vvi_pace *p, uint64_t bytes);

#endif
