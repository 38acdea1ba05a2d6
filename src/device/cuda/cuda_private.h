/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of device/cuda/ only. */
#ifndef VV_DEVICE_CUDA_PRIVATE_H
#define VV_DEVICE_CUDA_PRIVATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"
#include "device/cuda/cuda.h"
#include "device/cuda/cuda_ranges.h"
#include "device/cuda/driver.h"
#include "device/cuda/kernels.h"
#include "device/device.h"

struct vvi_cuda {
    struct vv_device base;

    /* Immutable once open. */
    struct vvi_cuda_driver drv;
    CUdevice device;
    CUcontext ctx;
    unsigned long long ctx_id; /* distinguishes the context from a later one; 0: unknown */
    uint64_t serial;           /* of this opening, never used twice */
    unsigned forks;            /* of the process, at opening */
    struct vv_device_info info;
    struct vvi_cuda_kernels *kernels; /* owned; NULL: not built, or not for this device */

    /* The code that ended the device, 0 while it works. Set once. Synchronization: relaxed; it orders no
     * other memory. */
    _Atomic unsigned int lost;

    struct vvi_cuda_ranges ranges; /* changed under `lock`, read without */

    struct vv_mutex lock;
    struct vv_stream *streams; /* Synchronization: lock, with all links in them */
    struct vv_event *events;   /* Synchronization: lock */
};

struct vv_stream {
    struct vv_stream *next, **link;
    CUstream native;
    bool adopted;               /* the application's: must not be destroyed here */
    _Atomic(CUevent) app_event; /* for after_app, made at its first use */
};

struct vv_event {
    struct vv_event *next, **link;
    CUevent native;
};

static inline struct vvi_cuda *vvi_cuda_of(struct vv_device *d)
{
    return (struct vvi_cuda *)d;
}

/* ---- cuda.c: the way into every operation ---- */

/* State of the calling thread before the call, to be restored. */
struct vvi_cuda_scope {
    unsigned int capture_mode;
    bool inner; /* the thread is inside the device already: nothing was changed */
};

/* Makes our context current. -ENODEV on a lost device and in a forked child, without a call of the driver; then leave
 * must not be called. */
VV_WARN_UNUSED int vvi_cuda_enter(struct vvi_cuda *d, struct vvi_cuda_scope *scope);
void vvi_cuda_leave(struct vvi_cuda *d, const struct vvi_cuda_scope *scope);

/* The negative errno of a driver's result, which is kept for last_code. A result that means the end of the context,
 * or comes after it, makes the device lost. Between enter and leave. */
int vvi_cuda_status(struct vvi_cuda *d, unsigned int code);

/* For vv_device_cuda_open_code. */
void vvi_cuda_open_failed(unsigned int code);

/* Returns `err`, an error of our own without a driver's code. May be called anywhere. */
int vvi_cuda_refuse(const struct vvi_cuda *d, int err);

/* ---- pointer.c: kinds of memory ---- */

/* A range of memory that contains a pointer. */
struct vvi_cuda_place {
    uintptr_t start, last;
    enum vv_mem_kind kind;
    bool pinned; /* host: copies from and to it are asynchronous */
    bool known;  /* all of [start, last] is of the same kind; otherwise only the pointer is known */
    bool managed; /* device memory that may be on the host at present */
};

/* -EXDEV: memory of another device or context. Between enter and leave. */
VV_WARN_UNUSED int vvi_cuda_place_of(struct vvi_cuda *d, const void *ptr,
                                     struct vvi_cuda_place *ret_place);

/* The same for ptr_kind of the table of operations. */
VV_WARN_UNUSED int vvi_cuda_ptr_kind(struct vv_device *dev, const void *ptr,
                                     enum vv_mem_kind *ret_kind, size_t *ret_bytes_left);

/* ---- cuda_copy.c ---- */

VV_WARN_UNUSED int vvi_cuda_copy_async(struct vv_device *dev, struct vv_stream *s,
                                       const struct vv_copy_seg *segs, size_t n_segs);

/* ---- launch.c ---- */

VV_WARN_UNUSED int vvi_cuda_launch(struct vv_device *dev, struct vv_stream *s,
                                   const struct vv_kernel *k);

/* ---- cuda_stream.c ---- */

VV_WARN_UNUSED int vvi_cuda_stream_new(struct vv_device *dev, struct vv_stream **ret_stream);
VV_WARN_UNUSED int vvi_cuda_stream_id(struct vv_device *dev, struct vv_stream *s, uint64_t *ret_id);
int vvi_cuda_stream_adopt(struct vv_device *dev, void *native, struct vv_stream **ret_stream);
void vvi_cuda_stream_free(struct vv_device *dev, struct vv_stream *s);
VV_WARN_UNUSED int vvi_cuda_stream_wait_event(struct vv_device *dev, struct vv_stream *s,
                                              struct vv_event *ev);
VV_WARN_UNUSED int vvi_cuda_after_app(struct vv_device *dev, struct vv_stream *s);
VV_WARN_UNUSED int vvi_cuda_event_new(struct vv_device *dev, struct vv_event **ret_event);
VV_WARN_UNUSED int vvi_cuda_event_new_timed(struct vv_device *dev, struct vv_event **ret_event);
VV_WARN_UNUSED int vvi_cuda_event_elapsed(struct vv_device *dev, struct vv_event *from,
                                          struct vv_event *to, uint64_t *ret_ns);
void vvi_cuda_event_free(struct vv_device *dev, struct vv_event *ev);
VV_WARN_UNUSED int vvi_cuda_event_record(struct vv_device *dev, struct vv_event *ev,
                                         struct vv_stream *s);
VV_WARN_UNUSED int vvi_cuda_event_query(struct vv_device *dev, struct vv_event *ev);
VV_WARN_UNUSED int vvi_cuda_event_wait(struct vv_device *dev, struct vv_event *ev,
                                       int64_t timeout_ns);
/* Frees streams and events that are left at closing. */
void vvi_cuda_streams_fini(struct vvi_cuda *d);

#endif
