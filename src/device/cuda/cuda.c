/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA backend: opening and closing, the way into the driver, and memory.
 *
 * Every operation makes the device's primary context current in the calling thread and removes it
 * again, so that the application finds its own context as it was. It also puts the thread in the relaxed capture mode:
 * otherwise a mere query of one of our events would spoil a graph capture of the application. Streams and events have
 * no lock; `lock` covers the lists of objects to be freed at closing, and changes of `ranges`.
 *
 * Invariants:
 * - A result that means the end of the context makes the device lost, for good: from then on no operation calls the
 *   driver any more. The application may also have reset the context (cudaDeviceReset) and even created it again, which
 *   shows as odd results: after every error the context's identity is checked.
 * - In a forked child nothing calls the driver: CUDA does not survive fork.
 * - A range is in `ranges` only while the memory is there: it is added after the driver gave the memory, and removed
 *   before that is given back.
 *
 * Failures: closing after the context has gone. Handles are then invalid and using them could crash the driver, so they
 * are not freed. Our reference to the primary context is kept too, unless it is known to be the one that we took: after
 * a reset it may be the application's new one.
 */
#include "device/cuda/cuda.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "device/cuda/cuda_private.h"
#include "device/cuda/kernels.h"

/* ---- results ---- */

/* The last error of the calling thread. */
static _Thread_local struct {
    uint64_t serial; /* of the device; 0: opening one */
    unsigned int code;
} last_error;

/* Synchronization: relaxed; it changes in a child that has one thread. */
static _Atomic unsigned fork_count;
static _Atomic uint64_t next_serial = 1;

static void count_fork(void)
{
    atomic_fetch_add_explicit(&fork_count, 1, memory_order_relaxed);
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, count_fork);
}

static void remember(const struct vvi_cuda *d, unsigned int code)
{
    last_error.serial = d->serial;
    last_error.code = code;
}

/* True if our context is still the one that we opened. */
static bool alive(const struct vvi_cuda *d)
{
    unsigned long long id = 0;
    unsigned int flags;
    int active = 0;

    if (d->drv.cuDevicePrimaryCtxGetState(d->device, &flags, &active) != 0 || !active)
        return false;
    if (!d->drv.cuCtxGetId || !d->ctx_id)
        return true;
    return d->drv.cuCtxGetId(d->ctx, &id) == 0 && id == d->ctx_id;
}

static int lose(struct vvi_cuda *d, unsigned int code)
{
    unsigned int none = 0;

    atomic_compare_exchange_strong_explicit(&d->lost, &none, code, memory_order_relaxed,
                                            memory_order_relaxed);
    return -ENODEV;
}

int vvi_cuda_status(struct vvi_cuda *d, unsigned int code)
{
    bool lost;
    int rc;

    /* Every call of the driver comes through here, and the table is slower than most of them. */
    if (code == VVI_CU_SUCCESS)
        return 0;
    if (code == VVI_CU_NOT_READY)
        return -EBUSY;
    rc = vvi_cuda_errno(code, &lost);
    if (atomic_load_explicit(&d->lost, memory_order_relaxed)) {
        lost = true; /* whatever this code means */
    } else if (!lost && !alive(d)) {
        code = VVI_CU_CONTEXT_IS_DESTROYED;
        lost = true;
    }
    remember(d, code);
    return lost ? lose(d, code) : rc;
}

/* 0, or the code that ended all calls of the driver. */
static unsigned int gone(const struct vvi_cuda *d)
{
    unsigned int code = atomic_load_explicit(&d->lost, memory_order_relaxed);

    if (!code && atomic_load_explicit(&fork_count, memory_order_relaxed) != d->forks)
        code = VVI_CU_NOT_INITIALIZED;
    return code;
}

int vvi_cuda_refuse(const struct vvi_cuda *d, int err)
{
    remember(d, VVI_CU_SUCCESS);
    return err;
}

/* The scope that the thread has opened with the operation `enter`. Operations inside it open no
 * scope of their own: a call of the library on device memory then makes a dozen fewer calls of the
 * driver. */
static _Thread_local struct {
    const struct vvi_cuda *d; /* NULL: none */
    unsigned depth;
    struct vvi_cuda_scope scope;
} inside;

int vvi_cuda_enter(struct vvi_cuda *d, struct vvi_cuda_scope *scope)
{
    unsigned int code = gone(d);

    if (code) {
        remember(d, code);
        return -ENODEV;
    }
    scope->inner = inside.d == d;
    if (scope->inner)
        return 0;
    /* A failed push marks the device as lost only if the context is gone. Otherwise copies
     * continue, and a caller that frees their memory must be able to wait for them. */
    code = d->drv.cuCtxPushCurrent(d->ctx);
    if (code)
        return vvi_cuda_status(d, code);
    scope->capture_mode = VVI_CU_CAPTURE_MODE_RELAXED;
    if (d->drv.cuThreadExchangeStreamCaptureMode)
        (void)d->drv.cuThreadExchangeStreamCaptureMode(&scope->capture_mode);
    return 0;
}

void vvi_cuda_leave(struct vvi_cuda *d, const struct vvi_cuda_scope *scope)
{
    unsigned int mode = scope->capture_mode;
    CUcontext ours;

    if (scope->inner)
        return;
    if (d->drv.cuThreadExchangeStreamCaptureMode)
        (void)d->drv.cuThreadExchangeStreamCaptureMode(&mode);
    (void)d->drv.cuCtxPopCurrent(&ours);
}

/* A thread is inside one device at a time. Meanwhile its operations on another device open scopes
 * of their own, as usual. */
static int enter(struct vv_device *dev)
{
    struct vvi_cuda *d = vvi_cuda_of(dev);
    struct vvi_cuda_scope scope;
    int rc;

    if (inside.d == d && !gone(d)) {
        inside.depth++;
        return 0;
    }
    if (inside.d && inside.d != d)
        return -EBUSY;
    rc = vvi_cuda_enter(d, &scope);
    if (rc)
        return rc;
    inside.d = d;
    inside.depth = 1;
    inside.scope = scope;
    return 0;
}

static void leave(struct vv_device *dev)
{
    struct vvi_cuda *d = vvi_cuda_of(dev);

    if (--inside.depth > 0)
        return;
    inside.d = NULL;
    vvi_cuda_leave(d, &inside.scope);
}

static int last_code(struct vv_device *dev, const char **ret_name)
{
    unsigned int code =
        last_error.serial == vvi_cuda_of(dev)->serial ? last_error.code : VVI_CU_SUCCESS;

    *ret_name = vvi_cuda_error_name(code);
    return (int)code;
}

void vvi_cuda_open_failed(unsigned int code)
{
    last_error.serial = 0;
    last_error.code = code;
}

int vv_device_cuda_open_code(const char **ret_name)
{
    unsigned int code = last_error.serial == 0 ? last_error.code : VVI_CU_SUCCESS;

    *ret_name = vvi_cuda_error_name(code);
    return (int)code;
}

/* ---- memory ---- */

static int mem_alloc(struct vv_device *dev, size_t bytes, void **ret_ptr)
{
    struct vvi_cuda *d = vvi_cuda_of(dev);
    struct vvi_cuda_scope scope;
    CUdeviceptr ptr = 0;
    int rc;

    if (!bytes)
        return vvi_cuda_refuse(d, -EINVAL);
    rc = vvi_cuda_enter(d, &scope);
    if (rc)
        return rc;
    rc = vvi_cuda_status(d, d->drv.cuMemAlloc(&ptr, bytes));
    if (!rc) {
        vv_mutex_lock(&d->lock);
        rc = vvi_cuda_ranges_add(&d->ranges, VVI_CUDA_ALLOC, (void *)(uintptr_t)ptr, bytes);
        vv_mutex_unlock(&d->lock);
        if (rc) {
            (void)d->drv.cuMemFree(ptr);
            (void)vvi_cuda_refuse(d, rc);
        } else {
            *ret_ptr = (void *)(uintptr_t)ptr;
        }
    }
    vvi_cuda_leave(d, &scope);
    return rc;
}

static int forget_range(struct vvi_cuda *d, enum vvi_cuda_range_kind kind, const void *ptr)
{
    int rc;

    vv_mutex_lock(&d->lock);
    rc = vvi_cuda_ranges_remove(&d->ranges, kind, ptr);
    vv_mutex_unlock(&d->lock);
    return rc ? vvi_cuda_refuse(d, rc) : 0;
}

/* cuMemFree waits for the work that was submitted. */
static int mem_free(struct vv_device *dev, void *ptr)
{
    struct vvi_cuda *d = vvi_cuda_of(dev);
    struct vvi_cuda_scope scope;
    int rc = vvi_cuda_enter(d, &scope);

    if (rc)
        return rc;
    if (ptr) {
        rc = forget_range(d, VVI_CUDA_ALLOC, ptr);
        if (!rc)
            rc = vvi_cuda_status(d, d->drv.cuMemFree((uintptr_t)ptr));
    }
    vvi_cuda_leave(d, &scope);
    return rc;
}

static int mem_info(struct vv_device *dev, size_t *ret_free, size_t *ret_total)
{
    struct vvi_cuda *d = vvi_cuda_of(dev);
    struct vvi_cuda_scope scope;
    size_t free_bytes, total;
    int rc = vvi_cuda_enter(d, &scope);

    if (rc)
        return rc;
    rc = vvi_cuda_status(d, d->drv.cuMemGetInfo(&free_bytes, &total));
    vvi_cuda_leave(d, &scope);
    if (rc)
        return rc;
    *ret_free = free_bytes;
    *ret_total = total;
    return 0;
}

/* `ret_ptr`, unless NULL: the device's address of it. */
static int register_as(struct vvi_cuda *d, void *ptr, size_t bytes, unsigned int flags,
                       void **ret_ptr)
{
    struct vvi_cuda_scope scope;
    CUdeviceptr at = 0;
    int rc;

    if (!ptr || !bytes || bytes - 1 > UINTPTR_MAX - (uintptr_t)ptr)
        return vvi_cuda_refuse(d, -EINVAL);
    rc = vvi_cuda_enter(d, &scope);
    if (rc)
        return rc;
    rc = vvi_cuda_status(d, d->drv.cuMemHostRegister(ptr, bytes, flags));
    if (!rc && ret_ptr) {
        rc = vvi_cuda_status(d, d->drv.cuMemHostGetDevicePointer(&at, ptr, 0));
        if (rc)
            (void)d->drv.cuMemHostUnregister(ptr);
    }
    if (!rc) {
        vv_mutex_lock(&d->lock);
        rc = vvi_cuda_ranges_add(&d->ranges, VVI_CUDA_SLICE, ptr, bytes);
        vv_mutex_unlock(&d->lock);
        if (rc) {
            (void)d->drv.cuMemHostUnregister(ptr);
            (void)vvi_cuda_refuse(d, rc);
        }
    }
    vvi_cuda_leave(d, &scope);
    if (!rc && ret_ptr)
        *ret_ptr = (void *)(uintptr_t)at;
    return rc;
}

static int host_register(struct vv_device *dev, void *ptr, size_t bytes)
{
    return register_as(vvi_cuda_of(dev), ptr, bytes, VVI_CU_HOST_REGISTER_PORTABLE, NULL);
}

static int host_share(struct vv_device *dev, void *ptr, size_t bytes, bool read_only,
                      void **ret_ptr)
{
    return register_as(vvi_cuda_of(dev), ptr, bytes,
                       VVI_CU_HOST_REGISTER_PORTABLE | VVI_CU_HOST_REGISTER_DEVICEMAP |
                           (read_only ? VVI_CU_HOST_REGISTER_READ_ONLY : 0),
                       ret_ptr);
}

static int host_address(struct vv_device *dev, const void *ptr, void **ret_ptr)
{
    struct vvi_cuda *d = vvi_cuda_of(dev);
    struct vvi_cuda_scope scope;
    CUdeviceptr at = 0;
    int rc;

    if (!ptr)
        return vvi_cuda_refuse(d, -EINVAL);
    rc = vvi_cuda_enter(d, &scope);
    if (rc)
        return rc;
    rc = vvi_cuda_status(d, d->drv.cuMemHostGetDevicePointer(&at, (void *)(uintptr_t)ptr, 0));
    vvi_cuda_leave(d, &scope);
    if (!rc)
        *ret_ptr = (void *)(uintptr_t)at;
    return rc;
}

static int host_unregister(struct vv_device *dev, void *ptr)
{
    struct vvi_cuda *d = vvi_cuda_of(dev);
    struct vvi_cuda_scope scope;
    int rc;

    if (!ptr)
        return vvi_cuda_refuse(d, -EINVAL);
    rc = vvi_cuda_enter(d, &scope);
    if (rc)
        return rc;
    rc = forget_range(d, VVI_CUDA_SLICE, ptr);
    if (!rc)
        rc = vvi_cuda_status(d, d->drv.cuMemHostUnregister(ptr));
    vvi_cuda_leave(d, &scope);
    return rc;
}

static void describe(struct vv_device *dev, struct vv_device_info *ret_info)
{
    *ret_info = vvi_cuda_of(dev)->info;
}

/* ---- opening and closing ---- */

static void free_ranges(struct vvi_cuda *d)
{
    struct vvi_cuda_range r;

    while ((r = vvi_cuda_ranges_first(&d->ranges, VVI_CUDA_ALLOC)).kind != VVI_CUDA_NONE) {
        (void)vvi_cuda_ranges_remove(&d->ranges, VVI_CUDA_ALLOC, (void *)r.start);
        (void)d->drv.cuMemFree(r.start);
    }
    while ((r = vvi_cuda_ranges_first(&d->ranges, VVI_CUDA_SLICE)).kind != VVI_CUDA_NONE) {
        (void)vvi_cuda_ranges_remove(&d->ranges, VVI_CUDA_SLICE, (void *)r.start);
        (void)d->drv.cuMemHostUnregister((void *)r.start);
    }
}

/* True if our reference to the primary context still has to be released. */
static bool holds_context(const struct vvi_cuda *d)
{
    if (!d->ctx || atomic_load_explicit(&fork_count, memory_order_relaxed) != d->forks)
        return false;
    return alive(d) && (d->ctx_id || !gone(d));
}

/* Accepts a device that was opened half-way. */
static void cuda_close(struct vv_device *dev)
{
    struct vvi_cuda *d = vvi_cuda_of(dev);
    struct vvi_cuda_scope scope;
    bool usable;

    if (!d)
        return;
    usable = holds_context(d) && vvi_cuda_enter(d, &scope) == 0;
    if (!usable)
        lose(d, VVI_CU_DEINITIALIZED);
    vvi_cuda_streams_fini(d);
    vvi_cuda_kernels_unload(&d->drv, d->kernels, usable);
    if (usable) {
        free_ranges(d);
        vvi_cuda_leave(d, &scope);
    }
    if (holds_context(d))
        (void)d->drv.cuDevicePrimaryCtxRelease(d->device);
    vvi_cuda_ranges_fini(&d->ranges);
    vvi_cuda_driver_unload(&d->drv);
    vv_mutex_fini(&d->lock);
    free(d);
}

static const struct vv_device_ops cuda_ops = {
    .name = "cuda",
    .close = cuda_close,
    .mem_alloc = mem_alloc,
    .mem_free = mem_free,
    .mem_info = mem_info,
    .host_register = host_register,
    .host_share = host_share,
    .host_address = host_address,
    .host_unregister = host_unregister,
    .ptr_kind = vvi_cuda_ptr_kind,
    .stream_new = vvi_cuda_stream_new,
    .stream_free = vvi_cuda_stream_free,
    .copy_async = vvi_cuda_copy_async,
    .event_new = vvi_cuda_event_new,
    .event_new_timed = vvi_cuda_event_new_timed,
    .event_elapsed = vvi_cuda_event_elapsed,
    .event_free = vvi_cuda_event_free,
    .event_record = vvi_cuda_event_record,
    .event_query = vvi_cuda_event_query,
    .event_wait = vvi_cuda_event_wait,
    .stream_wait_event = vvi_cuda_stream_wait_event,
    .after_app = vvi_cuda_after_app,
    .stream_adopt = vvi_cuda_stream_adopt,
    .stream_id = vvi_cuda_stream_id,
    .stream_native = vv_device_cuda_native,
    .enter = enter,
    .leave = leave,
    .launch = vvi_cuda_launch,
    .describe = describe,
    .last_code = last_code,
};

/* Writes a text with the failed action, and returns the errno. */
static int open_error(unsigned int code, const char *what, char *err, size_t err_bytes)
{
    bool lost;
    int rc = vvi_cuda_errno(code, &lost);

    vvi_cuda_open_failed(code);
    if (rc)
        snprintf(err, err_bytes, "%s: %s (%u)", what, vvi_cuda_error_name(code), code);
    return rc;
}

/* The device of the calling thread's context, or one that the process uses, or the first. */
static int default_index(const struct vvi_cuda_driver *drv, int count)
{
    CUcontext current = NULL;
    CUdevice device;
    unsigned int flags;
    int active;

    if (drv->cuCtxGetCurrent(&current) == 0 && current && drv->cuCtxGetDevice(&device) == 0) {
        for (int i = 0; i < count; i++) {
            CUdevice other;

            if (drv->cuDeviceGet(&other, i) == 0 && other == device)
                return i;
        }
    }
    for (int i = 0; i < count; i++) {
        if (drv->cuDeviceGet(&device, i) == 0 &&
            drv->cuDevicePrimaryCtxGetState(device, &flags, &active) == 0 && active)
            return i;
    }
    return 0;
}

static int choose_device(struct vvi_cuda *d, int index, char *err, size_t err_bytes)
{
    int count = 0, unified = 0;
    int rc = open_error(d->drv.cuDeviceGetCount(&count), "counting GPUs", err, err_bytes);

    if (rc)
        return rc;
    if (count <= 0 || index >= count || index < -1) {
        snprintf(err, err_bytes, "device %d: the NVIDIA driver sees %d GPU%s", index, count,
                 count == 1 ? "" : "s");
        return count <= 0 ? -ENODEV : -EINVAL;
    }
    if (index < 0)
        index = default_index(&d->drv, count);
    rc = open_error(d->drv.cuDeviceGet(&d->device, index), "choosing a GPU", err, err_bytes);
    if (rc)
        return rc;
    d->info.index = index;
    (void)d->drv.cuDeviceGetName(d->info.name, (int)sizeof(d->info.name), d->device);
    (void)d->drv.cuDeviceGetPCIBusId(d->info.pci_bus_id, (int)sizeof(d->info.pci_bus_id),
                                     d->device);
    rc = open_error(
        d->drv.cuDeviceGetAttribute(&unified, VVI_CU_DEVICE_UNIFIED_ADDRESSING, d->device),
        "asking a GPU for its attributes", err, err_bytes);
    if (!rc && !unified) {
        snprintf(err, err_bytes, "%s has no address space in common with the host", d->info.name);
        rc = -ENOTSUP;
    }
    return rc;
}

static int open_context(struct vvi_cuda *d, char *err, size_t err_bytes)
{
    CUcontext ctx = NULL;
    int rc = open_error(d->drv.cuDevicePrimaryCtxRetain(&ctx, d->device),
                        "using the GPU's primary context", err, err_bytes);

    if (rc)
        return rc;
    d->ctx = ctx;
    if (d->drv.cuCtxGetId && d->drv.cuCtxGetId(ctx, &d->ctx_id) != 0)
        d->ctx_id = 0;
    return 0;
}

/* The device works without kernels, so the reason why they cannot be loaded is ignored; unless the device cannot be
 * used at all. */
static int open_kernels(struct vvi_cuda *d, char *err, size_t err_bytes)
{
    struct vvi_cuda_scope scope;
    unsigned int code;
    bool lost = false;
    int rc = vvi_cuda_enter(d, &scope);

    if (!rc) {
        code = vvi_cuda_kernels_load(&d->drv, d->device, &d->kernels);
        (void)vvi_cuda_errno(code, &lost);
        if (lost)
            rc = open_error(code, "loading kernels", err, err_bytes);
        vvi_cuda_leave(d, &scope);
    } else {
        rc = open_error(gone(d), "using the GPU's primary context", err, err_bytes);
    }
    d->info.kernels = d->kernels != NULL;
    return rc;
}

int vv_device_open_cuda(const struct vv_device_cuda_opts *opts, char *err, size_t err_bytes,
                        struct vv_device **ret_device)
{
    static const struct vv_device_cuda_opts defaults = {.index = -1};
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct vvi_cuda *d;
    unsigned int code;
    int rc;

    vvi_cuda_open_failed(VVI_CU_SUCCESS);
    if (!opts)
        opts = &defaults;
    d = calloc(1, sizeof(*d));
    if (!d) {
        snprintf(err, err_bytes, "no memory for a device");
        return -ENOMEM;
    }
    (void)pthread_once(&once, watch_forks);
    d->base.ops = &cuda_ops;
    d->serial = atomic_fetch_add_explicit(&next_serial, 1, memory_order_relaxed);
    d->forks = atomic_load_explicit(&fork_count, memory_order_relaxed);
    vv_mutex_init(&d->lock, "device cuda", VV_RANK_DEVICE);
    vvi_cuda_ranges_init(&d->ranges);
    rc = vvi_cuda_driver_load(opts->library, err, err_bytes, &code, &d->drv);
    vvi_cuda_open_failed(code);
    if (!rc)
        rc = choose_device(d, opts->index, err, err_bytes);
    if (!rc)
        rc = open_context(d, err, err_bytes);
    if (!rc)
        rc = open_kernels(d, err, err_bytes);
    if (rc) {
        cuda_close(&d->base);
        return rc;
    }
    *ret_device = &d->base;
    return 0;
}
