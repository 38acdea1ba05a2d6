/* SPDX-License-Identifier: Apache-2.0 */
/* Durations of a peer's answers, and how long to wait for the next. Plain data and arithmetic. */
#ifndef VV_NET_PACE_H
#define VV_NET_PACE_H

#include <stdint.h>

#define VVI_PACE_MIN_NS   UINT64_C(20000000)
#define VVI_PACE_MAX_NS   UINT64_C(2000000000)
#define VVI_PACE_FIRST_NS UINT64_C(500000000) /* before the first answer */

struct vvi_pace {
    uint64_t mean_ns, deviation_ns; /* of answers with little or no data; 0: none yet */
    uint64_t rate;                  /* bytes a second of answers with much; 0: unknown */
    unsigned missed;                /* deadlines missed in a row */
};

/* Adds an answer with this much data that took so long. */
void vvi_pace_add(struct vvi_pace *p, uint64_t took_ns, uint64_t bytes);
/* Adds a missed deadline. */
void vvi_pace_miss(struct vvi_pace *p);
uint64_t vvi_pace_patience_ns(const struct vvi_pace *p, uint64_t bytes);

#endif
