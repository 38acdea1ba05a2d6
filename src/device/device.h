/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device: memory of its own, copy engines, streams and events, behind one table of operations.
 *
 * Every backend (cuda/, and the emulated one in host/) embeds `struct vv_device` as its first
 * member and fills `struct vv_device_ops`. Callers use the inline wrappers below and never name a
 * backend after opening it.
 *
 * Threads: every operation may be called from any thread, several at once. A stream or event must not be freed while
 * another thread uses it. No operation calls back into the caller.
 *
 * Blocking: each operation states if it may block. Any call may also be held up while another thread registers host
 * memory, as with real drivers; the emulated device imitates that.
 *
 * Errors: 0 or a negative errno. After the device is lost every call returns -ENODEV, also for pending events. Once the
 * first -ENODEV has been returned, the device does not touch caller memory any more.
 */
#ifndef VV_DEVICE_DEVICE_H
#define VV_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/copy.h"
#include "base/util.h"

enum vv_mem_kind {
    VV_MEM_HOST,
    VV_MEM_DEVICE,
};

struct vv_device_ops;

/* Common part of all backends; a backend's own structure starts with it. */
struct vv_device {
    const struct vv_device_ops *ops;
};

/* Owned by the backend that made them. */
struct vv_stream;
struct vv_event;

struct vv_device_info {
    char name[64];
    char pci_bus_id[16]; /* "0000:00:06.0", empty: none */
    int index;           /* in the driver's order */
    bool kernels;        /* launch works */
};

/* Our own kernels. None of them is needed to move data; measurements and tests use them. */
enum vv_kernel_kind {
    /* These two take at least `ns`, so that their time does not depend on other load; a second at most. */
    VV_KERNEL_FILL,   /* writes pattern_word(seed, version, offset / 8 + i) to word i of ptr */
    VV_KERNEL_VERIFY, /* adds the number of bytes that differ from it to *bad */
    VV_KERNEL_SPIN,   /* keeps one block busy for `ns` */
    VV_KERNEL_HASH,   /* writes the checksum (vv_hash64) of spans[i] to sums[i] */
};

/* A piece of device memory, 8-byte aligned. */
struct vv_kernel_span {
    const void *ptr;
    uint64_t bytes;
};

/* Most spans of one HASH. */
enum { VV_KERNEL_SPANS = 64 };

struct vv_kernel {
    enum vv_kernel_kind kind;
    void *ptr; /* device memory, 16-byte aligned */
    size_t bytes;
    uint64_t seed, version;
    uint64_t offset; /* of ptr in the object, a multiple of 8 */
    uint64_t *bad;   /* device memory, 8-byte aligned */
    uint64_t ns;
    const struct vv_kernel_span *spans; /* host memory, read before launch returns */
    uint32_t n_spans;                   /* 1 to VV_KERNEL_SPANS */
    uint64_t *sums;                     /* device memory, 8-byte aligned */
};

/* Names the operations, for counters and injected failures. */
enum vv_device_op {
    VV_DEVICE_OP_MEM_ALLOC,
    VV_DEVICE_OP_MEM_FREE,
    VV_DEVICE_OP_MEM_INFO,
    VV_DEVICE_OP_HOST_REGISTER,
    VV_DEVICE_OP_HOST_UNREGISTER,
    VV_DEVICE_OP_PTR_KIND,
    VV_DEVICE_OP_STREAM_NEW,
    VV_DEVICE_OP_STREAM_FREE,
    VV_DEVICE_OP_COPY_ASYNC,
    VV_DEVICE_OP_EVENT_NEW,
    VV_DEVICE_OP_EVENT_FREE,
    VV_DEVICE_OP_EVENT_RECORD,
    VV_DEVICE_OP_EVENT_QUERY,
    VV_DEVICE_OP_EVENT_WAIT,
    VV_DEVICE_OP_STREAM_WAIT_EVENT,
    VV_DEVICE_OP_AFTER_APP,
    VV_DEVICE_OP_STREAM_ADOPT,
    VV_DEVICE_OP_LAUNCH,
    VV_DEVICE_OP_COUNT,
    VV_DEVICE_OP_ANY = VV_DEVICE_OP_COUNT,
};

struct vv_device_ops {
    const char *name;

    /* Drops pending work or waits for it, frees everything that the device still holds, and the device.
     * Accepts NULL. */
    void (*close)(struct vv_device *d);

    /* Device memory. -ENOMEM when it does not fit, -EINVAL for 0 bytes. */
    int (*mem_alloc)(struct vv_device *d, size_t bytes, void **ret_ptr);

    /* Waits for the work already submitted, as drivers do. Accepts NULL; any other pointer that mem_alloc did not
     * return is -EINVAL. */
    int (*mem_free)(struct vv_device *d, void *ptr);
    int (*mem_info)(struct vv_device *d, size_t *ret_free, size_t *ret_total);

    /* Pins a slice of host memory, so that copies from and to it run asynchronously and at full
     * speed. Holds up all other calls meanwhile: pin large memory slice by slice. -EEXIST if part
     * of it is pinned already. */
    int (*host_register)(struct vv_device *d, void *ptr, size_t bytes);

    /* Pins host memory as host_register does, for kernels of the device to read and write; `ret_ptr` is its address for
     * them. `read_only`: for a mapping that may not be written, such as one of a file; kernels may only read it
     * then. host_unregister undoes it. Counts as host_register. -ENOTSUP: the device cannot. */
    int (*host_share)(struct vv_device *d, void *ptr, size_t bytes, bool read_only, void **ret_ptr);

    /* The address of registered host memory, ours or the application's, for kernels of the device. Counts as ptr_kind.
     * -EINVAL: it is not registered, or not for use by kernels. */
    int (*host_address)(struct vv_device *d, const void *ptr, void **ret_ptr);

    /* Unpins a slice. `ptr`: as it was registered, -EINVAL otherwise. Waits for the work already submitted, the
     * application's kernels included. */
    int (*host_unregister)(struct vv_device *d, void *ptr);

    /* The kind of memory that `ptr` points to, and how many bytes from there lie in the same allocation (device) or in
     * the same registered slice (host). Host memory that is not registered: SIZE_MAX. NULL: -EINVAL. Never blocks on
     * device work. */
    int (*ptr_kind)(struct vv_device *d, const void *ptr, enum vv_mem_kind *ret_kind,
                    size_t *ret_bytes_left);

    int (*stream_new)(struct vv_device *d, struct vv_stream **ret_stream);

    /* Work already submitted still runs. Accepts NULL. */
    void (*stream_free)(struct vv_device *d, struct vv_stream *s);

    /* Enqueues one batch. The direction of each segment follows from its pointers; at least one side must be device
     * memory (-EINVAL otherwise). Either the whole batch is enqueued, or, after an error, no part of it is running.
     * Segments of one batch may run in any order, so they must not depend on one another. With a segment in
     * unregistered host memory the call returns only when the batch is done. A segment may cross from one registered
     * slice to the next: drivers refuse that, so backends split it. A segment that is only partly registered is
     * -EINVAL. `segs` may be reused at once. -EFAULT: a range leaves its device allocation. */
    int (*copy_async)(struct vv_device *d, struct vv_stream *s, const struct vv_copy_seg *segs,
                      size_t n_segs);

    int (*event_new)(struct vv_device *d, struct vv_event **ret_event);

    /* An event for event_elapsed. Counts as event_new. */
    int (*event_new_timed)(struct vv_device *d, struct vv_event **ret_event);

    /* The device's time from one event's recording to another's, which must both be done; 0 if the second was earlier.
     * For measurements. -EBUSY: one is not done; -ENOTSUP: the device cannot. Counts as event_query. */
    int (*event_elapsed)(struct vv_device *d, struct vv_event *from, struct vv_event *to,
                         uint64_t *ret_ns);

    /* Allowed while pending. Accepts NULL. */
    void (*event_free)(struct vv_device *d, struct vv_event *ev);

    /* The event now stands for all work submitted to `s` so far; an earlier recording is forgotten.
     */
    int (*event_record)(struct vv_device *d, struct vv_event *ev, struct vv_stream *s);

    /* 0: done (or never recorded); -EBUSY: not yet; otherwise the error of the work since the
     * stream's previous record. Never blocks on device work. */
    int (*event_query)(struct vv_device *d, struct vv_event *ev);

    /* As event_query, but waits: `timeout_ns` negative without limit, 0 polls; -ETIMEDOUT when the
     * time is over. */
    int (*event_wait)(struct vv_device *d, struct vv_event *ev, int64_t timeout_ns);

    /* Work submitted to `s` from now on starts after the event's current recording. The host does
     * not wait. */
    int (*stream_wait_event)(struct vv_device *d, struct vv_stream *s, struct vv_event *ev);

    /* Work submitted to `s` from now on starts after the application's work on its legacy default stream. If `s` is
     * that stream itself, this only checks that work may be put on it now. */
    int (*after_app)(struct vv_device *d, struct vv_stream *s);

    /* One of the application's streams as one of ours, so that work is submitted to it in the
     * application's own order. `native` is the driver's handle; NULL: the legacy default stream.
     * -EBUSY while the stream is being captured into a graph. stream_free frees our part and
     * leaves the application's stream alone. Cheap: may be called for every request. */
    int (*stream_adopt)(struct vv_device *d, void *native, struct vv_stream **ret_stream);

    /* An id of one of the application's streams, above 0. It is never reused, although the handle may be. -ENOTSUP: the
     * driver has none. Counts as stream_adopt. */
    int (*stream_id)(struct vv_device *d, struct vv_stream *s, uint64_t *ret_id);

    /* The driver's handle of a stream, ours or adopted, for work of other libraries. The emulated device's is for
     * vv_device_host_run. */
    void *(*stream_native)(struct vv_device *d, struct vv_stream *s);

    /* Between enter and leave, calls of other libraries in the calling thread use this device: a real driver's
     * context is made current, and the caller's is restored afterwards. Pairs nest; a thread is inside one device at
     * a time (-EBUSY). Operations on it cost less inside. */
    int (*enter)(struct vv_device *d);
    void (*leave)(struct vv_device *d);

    /* Submits one kernel. -ENOTSUP: kernels were not built, or the device cannot run them. */
    int (*launch)(struct vv_device *d, struct vv_stream *s, const struct vv_kernel *k);

    /* Never blocks, works on a lost device. */
    void (*describe)(struct vv_device *d, struct vv_device_info *ret_info);

    /* The driver's own code behind the last error that the calling thread got from this device,
     * and its name ("CUDA_ERROR_OUT_OF_MEMORY"); 0 and "": there is none. `ret_name` is constant. */
    int (*last_code)(struct vv_device *d, const char **ret_name);
};

static inline void vv_device_close(struct vv_device *d)
{
    if (d)
        d->ops->close(d);
}

VV_WARN_UNUSED static inline int vv_device_mem_alloc(struct vv_device *d, size_t bytes,
                                                     void **ret_ptr)
{
    return d->ops->mem_alloc(d, bytes, ret_ptr);
}

static inline int vv_device_mem_free(struct vv_device *d, void *ptr)
{
    return d->ops->mem_free(d, ptr);
}

VV_WARN_UNUSED static inline int vv_device_mem_info(struct vv_device *d, size_t *ret_free,
                                                    size_t *ret_total)
{
    return d->ops->mem_info(d, ret_free, ret_total);
}

VV_WARN_UNUSED static inline int vv_device_host_register(struct vv_device *d, void *ptr,
                                                         size_t bytes)
{
    return d->ops->host_register(d, ptr, bytes);
}

VV_WARN_UNUSED static inline int vv_device_host_share(struct vv_device *d, void *ptr, size_t bytes,
                                                      bool read_only, void **ret_ptr)
{
    return d->ops->host_share(d, ptr, bytes, read_only, ret_ptr);
}

VV_WARN_UNUSED static inline int vv_device_host_address(struct vv_device *d, const void *ptr,
                                                        void **ret_ptr)
{
    return d->ops->host_address(d, ptr, ret_ptr);
}

static inline int vv_device_host_unregister(struct vv_device *d, void *ptr)
{
    return d->ops->host_unregister(d, ptr);
}

VV_WARN_UNUSED static inline int vv_device_ptr_kind(struct vv_device *d, const void *ptr,
                                                    enum vv_mem_kind *ret_kind,
                                                    size_t *ret_bytes_left)
{
    return d->ops->ptr_kind(d, ptr, ret_kind, ret_bytes_left);
}

VV_WARN_UNUSED static inline int vv_device_stream_new(struct vv_device *d,
                                                      struct vv_stream **ret_stream)
{
    return d->ops->stream_new(d, ret_stream);
}

static inline void vv_device_stream_free(struct vv_device *d, struct vv_stream *s)
{
    d->ops->stream_free(d, s);
}

VV_WARN_UNUSED static inline int vv_device_copy_async(struct vv_device *d, struct vv_stream *s,
                                                      const struct vv_copy_seg *segs, size_t n_segs)
{
    return d->ops->copy_async(d, s, segs, n_segs);
}

VV_WARN_UNUSED static inline int vv_device_event_new(struct vv_device *d,
                                                     struct vv_event **ret_event)
{
    return d->ops->event_new(d, ret_event);
}

VV_WARN_UNUSED static inline int vv_device_event_new_timed(struct vv_device *d,
                                                           struct vv_event **ret_event)
{
    return d->ops->event_new_timed(d, ret_event);
}

VV_WARN_UNUSED static inline int vv_device_event_elapsed(struct vv_device *d, struct vv_event *from,
                                                         struct vv_event *to, uint64_t *ret_ns)
{
    return d->ops->event_elapsed(d, from, to, ret_ns);
}

static inline void vv_device_event_free(struct vv_device *d, struct vv_event *ev)
{
    d->ops->event_free(d, ev);
}

VV_WARN_UNUSED static inline int vv_device_event_record(struct vv_device *d, struct vv_event *ev,
                                                        struct vv_stream *s)
{
    return d->ops->event_record(d, ev, s);
}

VV_WARN_UNUSED static inline int vv_device_event_query(struct vv_device *d, struct vv_event *ev)
{
    return d->ops->event_query(d, ev);
}

VV_WARN_UNUSED static inline int vv_device_event_wait(struct vv_device *d, struct vv_event *ev,
                                                      int64_t timeout_ns)
{
    return d->ops->event_wait(d, ev, timeout_ns);
}

VV_WARN_UNUSED static inline int
vv_device_stream_wait_event(struct vv_device *d, struct vv_stream *s, struct vv_event *ev)
{
    return d->ops->stream_wait_event(d, s, ev);
}

VV_WARN_UNUSED static inline int vv_device_after_app(struct vv_device *d, struct vv_stream *s)
{
    return d->ops->after_app(d, s);
}

VV_WARN_UNUSED static inline int vv_device_stream_adopt(struct vv_device *d, void *native,
                                                        struct vv_stream **ret_stream)
{
    return d->ops->stream_adopt(d, native, ret_stream);
}

VV_WARN_UNUSED static inline int vv_device_stream_id(struct vv_device *d, struct vv_stream *s,
                                                     uint64_t *ret_id)
{
    return d->ops->stream_id(d, s, ret_id);
}

static inline void *vv_device_stream_native(struct vv_device *d, struct vv_stream *s)
{
    return d->ops->stream_native(d, s);
}

VV_WARN_UNUSED static inline int vv_device_enter(struct vv_device *d)
{
    return d->ops->enter(d);
}

static inline void vv_device_leave(struct vv_device *d)
{
    d->ops->leave(d);
}

VV_WARN_UNUSED static inline int vv_device_launch(struct vv_device *d, struct vv_stream *s,
                                                  const struct vv_kernel *k)
{
    return d->ops->launch(d, s, k);
}

static inline void vv_device_describe(struct vv_device *d, struct vv_device_info *ret_info)
{
    d->ops->describe(d, ret_info);
}

static inline int vv_device_last_code(struct vv_device *d, const char **ret_name)
{
    return d->ops->last_code(d, ret_name);
}

#endif
