/* SPDX-License-Identifier: Apache-2.0 */
/* Bandwidths of a device, measured through its table of operations, for any backend. One thread uses a probe.
 * Errors are those of the device; -ENOMEM, -EINVAL. */
#ifndef CLI_MEASURE_PROBE_DEVICE_H
#define CLI_MEASURE_PROBE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"
#include "device/device.h"

struct probe_device;

/* Two buffers of `bytes` on the device and three in host memory, two of them registered. `bytes` is a multiple of
 * 2 MiB. The caller owns the device, which must outlive the probe. */
VV_WARN_UNUSED int probe_device_new(struct vv_device *device, size_t bytes,
                                    struct probe_device **ret_probe);
/* Accepts NULL. */
void probe_device_free(struct probe_device *probe);

struct probe_copies {
    double bps; /* by the median */
    uint64_t median_ns;
    uint64_t worst_ns;
};

/* One buffer is copied to the other, with a wait for each copy, again and again for `seconds`. If `interval_ns` is
 * not 0, each copy starts so long after the one before, at least 50 times; the thread spends the time without
 * sleeping. A thread that has done other work makes a copy more slowly than one that has just made one. Intervals
 * above 20 ms make no difference and count as 20 ms. */
VV_WARN_UNUSED int probe_device_copy(struct probe_device *probe, double seconds,
                                     uint64_t interval_ns, struct probe_copies *ret_copies);

/* The same without waiting in between. */
VV_WARN_UNUSED int probe_device_copy_stream(struct probe_device *probe, double seconds,
                                            double *ret_bps);

struct probe_link_opts {
    bool down, up;    /* device to host, host to device; both: at the same time       */
    size_t seg_bytes; /* of a scattered segment; divides the buffers                  */
    double seconds;
};

/* Between device and registered host memory, as the engine moves data: batches of about 16 MiB, two in flight in
 * each direction. The fastest round; both directions: the sum. */
VV_WARN_UNUSED int probe_device_link(struct probe_device *probe, const struct probe_link_opts *opts,
                                     double *ret_bps);

/* From or to host memory that is not registered. */
VV_WARN_UNUSED int probe_device_pageable(struct probe_device *probe, bool down, double seconds,
                                         double *ret_bps);

struct probe_pin_opts {
    size_t bytes;       /* fresh memory, faulted in before the clock starts */
    size_t slice_bytes; /* registered at a time */
    uint64_t pause_ns;  /* between two slices */
    unsigned threads;   /* threads that fault it in */
};

struct probe_pin {
    double pin_bps; /* pauses included */
    double unpin_bps;
    uint64_t worst_copy_ns; /* of the copies on the device, which run all the time */
};

VV_WARN_UNUSED int probe_device_pin(struct probe_device *probe, const struct probe_pin_opts *opts,
                                    struct probe_pin *ret_pin);

#endif
