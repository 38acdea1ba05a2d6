/* SPDX-License-Identifier: Apache-2.0 */
/* Estimates from measured bandwidths and queued transfers. Times are integer nanoseconds, so that
 * equal times compare equal. */
#ifndef VV_POLICY_PREDICT_H
#define VV_POLICY_PREDICT_H

#include <stdint.h>

/* A measured bandwidth: an exponentially weighted average over transfers, in which larger ones
 * count more. */
struct vv_rate {
    double bytes_per_s;
    double
        weight_bytes; /* bytes measured, saturating: the first sample replaces a first estimate */
    double start_bytes_per_s; /* of the first 64 MiB, or of all bytes until then; 0: nothing yet */
};

void vv_rate_init(struct vv_rate *rate, uint64_t first_estimate);
void vv_rate_add(struct vv_rate *rate, uint64_t bytes, uint64_t ns);

/* Time until `bytes` behind `ahead_bytes` have passed. 0 when the rate is unknown. */
uint64_t vv_predict_transfer_ns(uint64_t ahead_bytes, uint64_t bytes, uint64_t bytes_per_s);
/* Time until a prefetched copy has been consumed: the restores before it, each with its interval
 * and its copy. */
uint64_t vv_predict_consumed_ns(uint64_t distance, uint64_t interval_ns, uint64_t bytes,
                                uint64_t bytes_per_s);

#endif
