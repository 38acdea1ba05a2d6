/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/predict.h"

#include <stdbool.h>

void vv_rate_init(struct vv_rate *rate, uint64_t first_estimate)
{
    *rate = (struct vv_rate){.bytes_per_s = (double)first_estimate};
}

void vv_rate_add(struct vv_rate *rate, uint64_t bytes, uint64_t ns)
{
    /* Weight is limited, so that old samples are forgotten: the last 64 MiB, or the bytes of 10 ms,
     * count about as much as all before. With a fixed 64 MiB, one delayed copy would outweigh a
     * device that moves several times that amount in 10 ms. */
    const double start_bytes = 64.0 * 1024 * 1024, memory_s = 0.01;
    double memory, sample, weight = (double)bytes;

    if (bytes == 0 || ns == 0)
        return;
    bool start = rate->weight_bytes < start_bytes;
    sample = (double)bytes * 1e9 / (double)ns;
    if (rate->bytes_per_s <= 0)
        rate->weight_bytes = 0;
    /* Average times, not speeds: a fast sample must not outweigh a slow one of the same size. */
    if (rate->weight_bytes > 0)
        rate->bytes_per_s = (rate->weight_bytes + weight) /
                            (rate->weight_bytes / rate->bytes_per_s + weight / sample);
    else
        rate->bytes_per_s = sample;
    if (start)
        rate->start_bytes_per_s = rate->bytes_per_s;
    memory =
        rate->bytes_per_s * memory_s > start_bytes ? rate->bytes_per_s * memory_s : start_bytes;
    rate->weight_bytes =
        rate->weight_bytes + weight > memory ? memory : rate->weight_bytes + weight;
}

uint64_t vv_predict_transfer_ns(uint64_t ahead_bytes, uint64_t bytes, uint64_t bytes_per_s)
{
    if (bytes_per_s == 0)
        return 0;
    return (uint64_t)(((double)ahead_bytes + (double)bytes) * 1e9 / (double)bytes_per_s);
}

uint64_t vv_predict_consumed_ns(uint64_t distance, uint64_t interval_ns, uint64_t bytes,
                                uint64_t bytes_per_s)
{
    uint64_t copy_ns = vv_predict_transfer_ns(0, bytes, bytes_per_s);

    return (distance + 1) * (interval_ns + copy_ns);
}
