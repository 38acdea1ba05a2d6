/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The emulated device: the contract of device.h, on a machine without a GPU, with settable speed and with failures on
 * demand. Functions here take the `struct vv_device` that vv_device_open_host returned, and no other. They may be
 * called from any thread unless noted, and are themselves neither counted nor failed.
 */
#ifndef VV_DEVICE_HOST_HOST_H
#define VV_DEVICE_HOST_HOST_H

#include <stdbool.h>
#include <stdint.h>

#include "device/device.h"

enum vv_device_host_engine {
    VV_DEVICE_HOST_D2D,
    VV_DEVICE_HOST_D2H,
    VV_DEVICE_HOST_H2D,
    VV_DEVICE_HOST_ENGINES,
};

struct vv_device_host_rate {
    uint64_t bytes_per_s; /* 0: as fast as the processor copies */
    uint64_t latency_ns;  /* added to every batch */
};

struct vv_device_host_opts {
    uint64_t capacity_bytes;
    struct vv_device_host_rate engine[VV_DEVICE_HOST_ENGINES];
    /* Copies from and to unregistered memory; 0: the engine's rate. */
    uint64_t pageable_bytes_per_s;
    uint64_t register_bytes_per_s; /* registering stalls other calls at this rate; 0: not at all */

    /* Device pointers cannot be dereferenced (SIGSEGV, as on a real GPU), and freed ones stay invalid until close
     * instead of being reused. vv_device_host_map() returns the address for test code. */
    bool guard;

    /* Leave the memory to be faulted in at first use: cheaper for large, sparsely used devices, but
     * the first copies into it may miss their rate. */
    bool lazy;
};

/* 1 GiB, everything as fast as possible, no guard, not lazy. */
void vv_device_host_opts_init(struct vv_device_host_opts *ret_opts);

/* NULL opts: the defaults. -EINVAL for a capacity of 0. */
VV_WARN_UNUSED int vv_device_open_host(const struct vv_device_host_opts *opts,
                                       struct vv_device **ret_device);

/* Applies to batches that have not started yet. */
void vv_device_host_set_rate(struct vv_device *d, enum vv_device_host_engine engine,
                             struct vv_device_host_rate rate);
void vv_device_host_set_pageable_rate(struct vv_device *d, uint64_t bytes_per_s);
void vv_device_host_set_register_rate(struct vv_device *d, uint64_t bytes_per_s);

/* The address at which the processor may read and write device memory; NULL if `ptr` is not device
 * memory. Without `guard` it is `ptr` itself. */
void *vv_device_host_map(struct vv_device *d, const void *ptr);

/* ---- the application's legacy default stream ---- */

/* For copies and events of "the application". Belongs to the device. */
struct vv_stream *vv_device_host_app_stream(struct vv_device *d);

/* A kernel that runs for `ns`. */
VV_WARN_UNUSED int vv_device_host_app_launch(struct vv_device *d, uint64_t ns);

/* A kernel that calls `fn` on the device's compute thread. `fn` must not call the device. */
VV_WARN_UNUSED int vv_device_host_app_run(struct vv_device *d, void (*fn)(void *arg), void *arg);

/* The same on any stream of the device, by its handle (stream_native); NULL: the legacy one. -EINVAL: there is
 * no such stream. */
VV_WARN_UNUSED int vv_device_host_run(struct vv_device *d, const void *native,
                                      void (*fn)(void *arg), void *arg);

/* A kernel that runs until it is released; each release ends one, the oldest first. */
VV_WARN_UNUSED int vv_device_host_app_hold(struct vv_device *d);
void vv_device_host_app_release(struct vv_device *d);

/* ---- other streams of the application ---- */

/* A non-blocking stream of the application: the handle that stream_adopt takes. The caller owns it; those that are
 * left are freed with the device. */
VV_WARN_UNUSED int vv_device_host_native_new(struct vv_device *d, void **ret_native);

/* Work already submitted still runs. Accepts NULL; the stream must not be adopted. */
void vv_device_host_native_free(struct vv_device *d, void *native);

/* The stream is being captured into a graph, or no longer. `native` NULL: the legacy stream. */
void vv_device_host_native_capture(struct vv_device *d, void *native, bool on);

/* As vv_device_host_app_hold, on this stream. Held kernels end in the order in which they started.
 */
VV_WARN_UNUSED int vv_device_host_native_hold(struct vv_device *d, void *native);

/* ---- failures ---- */

/* The nth next call (1: the very next) of `op`, or of any operation, and the calls after it up to `count` in all
 * (negative: for ever) return `err` and do nothing. Operations without a result (stream_free, event_free) are counted
 * but do not fail. Several rules may be set; the first that fires wins. -EINVAL: err is not negative, or nth or count
 * is 0; -ENOSPC: all rule slots are taken. */
VV_WARN_UNUSED int vv_device_host_fail(struct vv_device *d, enum vv_device_op op, uint64_t nth,
                                       int64_t count, int err);

/* The same for batches that are accepted and fail later: nothing of the batch is copied, and the
 * error comes from the next event recorded on its stream, and from that one only. */
VV_WARN_UNUSED int vv_device_host_fail_async(struct vv_device *d, uint64_t nth, int64_t count,
                                             int err);

/* Loses the device, at once or within the nth next call of `op`. When the first -ENODEV is returned, the device does
 * not touch memory any more. vv_device_host_lose must not be called from a kernel function. */
void vv_device_host_lose(struct vv_device *d);
VV_WARN_UNUSED int vv_device_host_lose_at(struct vv_device *d, enum vv_device_op op, uint64_t nth);

/* Removes all rules. A lost device stays lost. */
void vv_device_host_heal(struct vv_device *d);

/* ---- counters ---- */

struct vv_device_host_stats {
    uint64_t calls[VV_DEVICE_OP_COUNT + 1]; /* failed ones too; [VV_DEVICE_OP_ANY] is the sum */
    uint64_t failed_calls;                  /* by vv_device_host_fail */
    struct {
        uint64_t batches;
        uint64_t bytes;
        uint64_t busy_ns; /* by the engine's own clock: latency and bytes over rate */
    } engine[VV_DEVICE_HOST_ENGINES];
    uint64_t stall_until_ns; /* calls are held up until this time (vv_now_ns) */
    size_t n_allocs;
    size_t n_slices;
    size_t n_streams;
    size_t n_events;
    size_t n_pending; /* work submitted and not ended */
};

void vv_device_host_stats(struct vv_device *d, struct vv_device_host_stats *ret_stats);

#endif
