/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our own kernels on the emulated device, the application's streams as ours, and the description of the
 * device.
 *
 * A kernel is an item of its stream like any other and runs on the compute thread, as the application's kernels do:
 * one at a time, so a kernel that is held makes ours wait on any stream. Its addresses are checked and converted to
 * ones that the processor can use when it is submitted; mem_free waits for submitted work, so they stay valid.
 *
 * The handle of an application's stream is the stream itself. Adoptions are counted: freeing an adopted stream only
 * ends the adoption, and a test detects one that was forgotten.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/pattern.h"
#include "base/xxh3.h"
#include "device/host/host_private.h"

/* Longest time of a kernel. A test that requests more by mistake must not hang. */
#define MAX_SPIN_NS VV_NS_PER_S

/* ---- kernels ---- */

/* Converts `ptr` to the processor's address. -EINVAL: not device memory; -EFAULT: it ends too soon. */
static int map_locked(const struct vvi_device_host *d, const void *ptr, size_t bytes,
                      void **ret_map)
{
    uintptr_t p = (uintptr_t)ptr;
    const struct vvi_device_range *r = vvi_device_ranges_find(&d->allocs, p);

    if (!r || r->dead)
        return -EINVAL;
    if (p - r->start > r->bytes || bytes > r->bytes - (p - r->start))
        return -EFAULT;
    *ret_map = (char *)r->map + (p - r->start);
    return 0;
}

static int check_locked(const struct vvi_device_host *d, const struct vv_kernel *k,
                        struct vv_kernel *ret_mapped)
{
    struct vv_kernel mapped = *k;
    void *map;
    int rc;

    switch (k->kind) {
    case VV_KERNEL_SPIN:
        break;
    case VV_KERNEL_VERIFY:
        if ((uintptr_t)k->bad % 8)
            return -EINVAL;
        rc = map_locked(d, k->bad, sizeof(*k->bad), &map);
        if (rc)
            return rc;
        mapped.bad = map;
        /* fall through */
    case VV_KERNEL_FILL:
        if ((uintptr_t)k->ptr % 16 || k->offset % 8)
            return -EINVAL;
        rc = map_locked(d, k->ptr, k->bytes, &mapped.ptr);
        if (rc)
            return rc;
        break;
    case VV_KERNEL_HASH: /* its spans are segments of the item */
        if (k->n_spans == 0 || k->n_spans > VV_KERNEL_SPANS || (uintptr_t)k->sums % 8)
            return -EINVAL;
        rc = map_locked(d, k->sums, k->n_spans * sizeof(*k->sums), &map);
        if (rc)
            return rc;
        mapped.sums = map;
        mapped.spans = NULL;
        break;
    default:
        return -EINVAL;
    }
    *ret_mapped = mapped;
    return 0;
}

static int add_spans_locked(const struct vvi_device_host *d, const struct vv_kernel *k,
                            struct vvi_device_item *it)
{
    for (uint32_t i = 0; i < k->n_spans; i++) {
        void *map;
        int rc = (uintptr_t)k->spans[i].ptr % 8
                     ? -EINVAL
                     : map_locked(d, k->spans[i].ptr, k->spans[i].bytes, &map);

        if (rc)
            return rc;
        it->segs[i] = (struct vv_copy_seg){&it->kernel.sums[i], map, k->spans[i].bytes};
    }
    it->n_segs = k->n_spans;
    return 0;
}

void vvi_device_kernel_run(const struct vvi_device_item *it)
{
    const struct vv_kernel *k = &it->kernel;

    if (k->kind == VV_KERNEL_HASH)
        for (size_t i = 0; i < it->n_segs; i++)
            *(uint64_t *)it->segs[i].dst = vv_xxh3(it->segs[i].src, it->segs[i].bytes);
    else if (k->kind == VV_KERNEL_FILL)
        vv_pattern_fill(k->ptr, k->bytes, k->seed, k->version, k->offset);
    else if (k->kind == VV_KERNEL_VERIFY)
        *k->bad += vv_pattern_count_bad(k->ptr, k->bytes, k->seed, k->version, k->offset);
}

int vvi_device_launch(struct vv_device *dev, struct vv_stream *s, const struct vv_kernel *k)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);
    struct vvi_device_item *it = NULL;
    struct vv_kernel mapped;
    int rc = vvi_device_enter(d, VV_DEVICE_OP_LAUNCH);

    if (rc)
        return rc;
    rc = check_locked(d, k, &mapped);
    if (!rc) {
        it =
            vvi_device_item_new(VVI_DEVICE_ITEM_KERNEL, k->kind == VV_KERNEL_HASH ? k->n_spans : 0);
        rc = it ? 0 : -ENOMEM;
    }
    if (!rc) {
        it->kernel = mapped;
        if (k->kind == VV_KERNEL_HASH)
            rc = add_spans_locked(d, k, it);
        if (rc)
            free(it);
    }
    if (!rc) {
        it->engine = VVI_DEVICE_ENGINE_APP;
        it->ours = mapped.kind != VV_KERNEL_SPIN;
        it->run_ns = VV_MIN(k->ns, MAX_SPIN_NS);
        vvi_device_submit_locked(d, s, it);
    }
    vvi_device_leave(d);
    return rc;
}

/* ---- the application's streams ---- */

/* The application's stream behind a handle, or NULL. */
static struct vv_stream *native_locked(struct vvi_device_host *d, const void *native)
{
    if (!native)
        return d->app;
    for (struct vv_stream *s = d->streams; s; s = s->next)
        if (s == native)
            return s->native && !s->closing ? s : NULL;
    return NULL;
}

int vvi_device_stream_adopt(struct vv_device *dev, void *native, struct vv_stream **ret_stream)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);
    struct vv_stream *s;
    int rc = vvi_device_enter(d, VV_DEVICE_OP_STREAM_ADOPT);

    if (rc)
        return rc;
    s = native_locked(d, native);
    if (!s) {
        rc = -EINVAL;
    } else if (s->capturing) {
        rc = -EBUSY;
    } else {
        s->adopted++;
        d->stats.n_streams++;
        *ret_stream = s;
    }
    vvi_device_leave(d);
    return rc;
}

int vvi_device_stream_id(struct vv_device *dev, struct vv_stream *s, uint64_t *ret_id)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);
    int rc = vvi_device_enter(d, VV_DEVICE_OP_STREAM_ADOPT);

    if (rc)
        return rc;
    *ret_id = s->id;
    vvi_device_leave(d);
    return 0;
}

/* NULL for the legacy stream, as for the application. */
void *vvi_device_stream_native(struct vv_device *dev, struct vv_stream *s)
{
    return s == vvi_device_host_of(dev)->app ? NULL : s;
}

int vv_device_host_run(struct vv_device *dev, const void *native, void (*fn)(void *arg), void *arg)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);
    struct vv_stream *s;

    vv_mutex_lock(&d->lock);
    for (s = native ? d->streams : d->app; native && s && s != native; s = s->next)
        ;
    s = s && !s->closing ? s : NULL;
    vv_mutex_unlock(&d->lock);
    return s ? vvi_device_app_submit(d, s, fn, arg, 0, false) : -EINVAL;
}

int vv_device_host_native_new(struct vv_device *dev, void **ret_native)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);
    struct vv_stream *s;
    int rc;

    vv_mutex_lock(&d->lock);
    rc = vvi_device_stream_new_locked(d, &s);
    if (!rc) {
        s->native = true;
        *ret_native = s;
    }
    vv_mutex_unlock(&d->lock);
    return rc;
}

void vv_device_host_native_free(struct vv_device *dev, void *native)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);
    struct vv_stream *s;

    if (!native)
        return;
    vv_mutex_lock(&d->lock);
    s = native_locked(d, native);
    vv_assert(s && s != d->app && !s->adopted);
    vvi_device_stream_end_locked(d, s);
    vv_mutex_unlock(&d->lock);
}

void vv_device_host_native_capture(struct vv_device *dev, void *native, bool on)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);
    struct vv_stream *s;

    vv_mutex_lock(&d->lock);
    s = native_locked(d, native);
    vv_assert(s);
    s->capturing = on;
    vv_mutex_unlock(&d->lock);
}

int vv_device_host_native_hold(struct vv_device *dev, void *native)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);
    struct vv_stream *s;

    vv_mutex_lock(&d->lock);
    s = native_locked(d, native);
    vv_mutex_unlock(&d->lock);
    return s ? vvi_device_app_submit(d, s, NULL, NULL, 0, true) : -EINVAL;
}

/* ---- description ---- */

void vvi_device_describe(struct vv_device *dev, struct vv_device_info *ret_info)
{
    (void)dev;
    *ret_info = (struct vv_device_info){.name = "emulated device", .kernels = true};
}

int vvi_device_last_code(struct vv_device *dev, const char **ret_name)
{
    (void)dev;
    *ret_name = "";
    return 0;
}
