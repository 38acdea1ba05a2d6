/* SPDX-License-Identifier: Apache-2.0 */
/* Estimates from measured bandwidths and queued transfers. Times are integer nanoseconds, so that
 * ties are ties. */
#ifndef VV_POLICY_PREDICT_H
#define VV_POLICY_PREDICT_H

#include <stdint.h>

/* A bandwidth, measured: an exponentially weighted average over transfers, the larger ones counting
 * more. */
struct vv_rate {
    double bytes_per_s;
    double
        weight_bytes; /* how much has been seen, saturating: a first estimate gives way at once */
    double
        start_bytes_per_s; /* of the first 64 MiB, and of what there was until then; 0: nothing */
};

void vv_rate_init(struct vv_rate *rate, uint64_t first_estimate);
void vv_rate_add(struct vv_rate *rate, uint64_t bytes, uint64_t ns);

/* Until `bytes` behind `ahead_bytes` have passed. 0 when the rate is unknown. */
uint64_t vv_predict_transfer_ns(uint64_t ahead_bytes, uint64_t bytes, uint64_t bytes_per_s);
/* Until a prefetched copy has been consumed: the restores before it, each with its interval and its
 * copy. */
uint64_t vv_predict_consumed_ns(uint64_t distance, uint64_t interval_ns, uint64_t bytes,
                                uint64_t bytes_per_s);

#endif
