/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The emulated device: opening and closing, and its memory.
 *
 * Device memory is anonymous memory of its own, entered in `allocs`. With `guard` the address that callers get is an
 * inaccessible reservation and the bytes are elsewhere, so that code which dereferences a device pointer fails here
 * as it would on a GPU. A registered slice of host memory is entered in `slices`; it is not really pinned.
 *
 * Freeing and unregistering first mark the range dead, so that no new copy can use it, then wait for everything that
 * was submitted, as drivers do; only then are the bytes freed. Both waits end when the application's kernels do, or
 * when the device is lost.
 *
 * Every operation may come from any thread. The lock is released while memory is being mapped: the space is accounted
 * for before, the range entered after.
 */
#include "device/host/host.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "device/host/host_private.h"

#define HUGE_PAGE_BYTES (UINT64_C(2) << 20)

/* ---- device memory ---- */

static size_t page_align(size_t bytes)
{
    return vv_align_up(bytes, (uint64_t)sysconf(_SC_PAGESIZE));
}

static int map_bytes(size_t bytes, bool lazy, void **ret_map)
{
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (map == MAP_FAILED)
        return -ENOMEM;
    if (bytes >= HUGE_PAGE_BYTES)
        (void)madvise(map, bytes, MADV_HUGEPAGE);
    /* Memory of a real device is populated after allocation; page faults inside a copy would spoil its rate. If the
     * kernel cannot do this, the memory is faulted in later. */
    if (!lazy && madvise(map, bytes, MADV_POPULATE_WRITE) && errno == ENOMEM) {
        (void)munmap(map, bytes);
        return -ENOMEM;
    }
    *ret_map = map;
    return 0;
}

static void unmap_range(const struct vvi_device_range *r)
{
    if (r->map)
        (void)munmap(r->map, r->reserved);
    if (r->map != (void *)r->start)
        (void)munmap((void *)r->start, r->reserved);
}

/* Called without the lock. */
static int map_range(const struct vv_device_host_opts *opts, size_t bytes,
                     struct vvi_device_range *ret_range)
{
    struct vvi_device_range r = {.bytes = bytes, .reserved = page_align(bytes)};
    int rc;

    rc = map_bytes(r.reserved, opts->lazy, &r.map);
    if (rc)
        return rc;
    r.start = (uintptr_t)r.map;
    if (opts->guard) {
        void *start =
            mmap(NULL, r.reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        if (start == MAP_FAILED) {
            unmap_range(&r);
            return -ENOMEM;
        }
        r.start = (uintptr_t)start;
    }
    *ret_range = r;
    return 0;
}

static int mem_alloc(struct vv_device *dev, size_t bytes, void **ret_ptr)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);
    struct vvi_device_range range;
    int rc = vvi_device_enter(d, VV_DEVICE_OP_MEM_ALLOC);

    if (rc)
        return rc;
    if (!bytes)
        rc = -EINVAL;
    else if (bytes > d->opts.capacity_bytes - d->used_bytes)
        rc = -ENOMEM;
    if (rc) {
        vvi_device_leave(d);
        return rc;
    }
    d->used_bytes += bytes;
    vvi_device_leave(d);

    rc = map_range(&d->opts, bytes, &range);

    vv_mutex_lock(&d->lock);
    if (!rc) {
        rc = vvi_device_ranges_reserve(&d->allocs);
        if (rc)
            unmap_range(&range);
    }
    if (rc) {
        d->used_bytes -= bytes;
    } else {
        vvi_device_ranges_add(&d->allocs, range);
        d->stats.n_allocs++;
        *ret_ptr = (void *)range.start;
    }
    vv_mutex_unlock(&d->lock);
    return rc;
}

/* Marks the live range that starts at `ptr` dead and returns it; or NULL. */
static struct vvi_device_range *bury_locked(struct vvi_device_ranges *set, const void *ptr)
{
    struct vvi_device_range *r = vvi_device_ranges_find(set, (uintptr_t)ptr);

    if (!r || r->start != (uintptr_t)ptr || r->dead)
        return NULL;
    r->dead = true;
    return r;
}

static int mem_free(struct vv_device *dev, void *ptr)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);
    struct vvi_device_range *r;
    int rc = vvi_device_enter(d, VV_DEVICE_OP_MEM_FREE);

    if (rc)
        return rc;
    if (ptr && !bury_locked(&d->allocs, ptr)) {
        rc = -EINVAL;
    } else if (ptr) {
        vvi_device_drain_locked(d);
        /* Look up again: the table may have moved during the wait. */
        r = vvi_device_ranges_find(&d->allocs, (uintptr_t)ptr);
        d->used_bytes -= r->bytes;
        d->stats.n_allocs--;
        if (d->opts.guard) {
            (void)munmap(r->map, r->reserved);
            r->map = NULL;
        } else {
            unmap_range(r);
            vvi_device_ranges_remove(&d->allocs, (uintptr_t)ptr);
        }
    }
    vvi_device_leave(d);
    return rc;
}

static int mem_info(struct vv_device *dev, size_t *ret_free, size_t *ret_total)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);
    int rc = vvi_device_enter(d, VV_DEVICE_OP_MEM_INFO);

    if (rc)
        return rc;
    *ret_free = d->opts.capacity_bytes - d->used_bytes;
    *ret_total = d->opts.capacity_bytes;
    vvi_device_leave(d);
    return 0;
}

/* ---- host memory ---- */

static int add_slice_locked(struct vvi_device_host *d, void *ptr, size_t bytes)
{
    uintptr_t start = (uintptr_t)ptr;
    int rc;

    if (!ptr || !bytes || bytes - 1 > UINTPTR_MAX - start ||
        vvi_device_ranges_touches(&d->allocs, start, bytes))
        return -EINVAL;
    if (vvi_device_ranges_touches(&d->slices, start, bytes))
        return -EEXIST;
    rc = vvi_device_ranges_reserve(&d->slices);
    if (rc)
        return rc;
    vvi_device_ranges_add(
        &d->slices,
        (struct vvi_device_range){.start = start, .bytes = bytes, .reserved = bytes, .map = ptr});
    d->stats.n_slices++;
    return 0;
}

static int host_register(struct vv_device *dev, void *ptr, size_t bytes)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);
    int rc = vvi_device_enter(d, VV_DEVICE_OP_HOST_REGISTER);

    if (rc)
        return rc;
    rc = add_slice_locked(d, ptr, bytes);
    if (!rc && d->opts.register_bytes_per_s) {
        double ns = (double)bytes * 1e9 / (double)d->opts.register_bytes_per_s;
        uint64_t until_ns = vv_now_ns() + (uint64_t)ns;

        d->stall_until_ns = VV_MAX(d->stall_until_ns, until_ns);
        while (!d->losing && vv_now_ns() < until_ns)
            (void)vvi_device_wait_changed_locked(d, until_ns);
    }
    vvi_device_leave(d);
    return rc;
}

/* Kernels of the emulated device are code of the process. */
static int host_share(struct vv_device *dev, void *ptr, size_t bytes, bool read_only,
                      void **ret_ptr)
{
    int rc = host_register(dev, ptr, bytes);

    (void)read_only;
    if (!rc)
        *ret_ptr = ptr;
    return rc;
}

static int host_unregister(struct vv_device *dev, void *ptr)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);
    int rc = vvi_device_enter(d, VV_DEVICE_OP_HOST_UNREGISTER);

    if (rc)
        return rc;
    if (!ptr || !bury_locked(&d->slices, ptr)) {
        rc = -EINVAL;
    } else {
        vvi_device_drain_locked(d);
        vvi_device_ranges_remove(&d->slices, (uintptr_t)ptr);
        d->stats.n_slices--;
    }
    vvi_device_leave(d);
    return rc;
}

static int kind_locked(const struct vvi_device_host *d, const void *ptr, enum vv_mem_kind *ret_kind,
                       size_t *ret_bytes_left)
{
    uintptr_t p = (uintptr_t)ptr;
    const struct vvi_device_range *r = vvi_device_ranges_find(&d->allocs, p);

    if (!ptr || (r && (r->dead || p - r->start >= r->bytes)))
        return -EINVAL;
    *ret_kind = r ? VV_MEM_DEVICE : VV_MEM_HOST;
    if (!r)
        r = vvi_device_ranges_find(&d->slices, p);
    *ret_bytes_left = r && !r->dead ? r->bytes - (p - r->start) : SIZE_MAX;
    return 0;
}

static int ptr_kind(struct vv_device *dev, const void *ptr, enum vv_mem_kind *ret_kind,
                    size_t *ret_bytes_left)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);
    int rc = vvi_device_enter(d, VV_DEVICE_OP_PTR_KIND);

    if (rc)
        return rc;
    rc = kind_locked(d, ptr, ret_kind, ret_bytes_left);
    vvi_device_leave(d);
    return rc;
}

static int host_address(struct vv_device *dev, const void *ptr, void **ret_ptr)
{
    enum vv_mem_kind kind;
    size_t left;
    int rc = ptr_kind(dev, ptr, &kind, &left);

    if (rc == 0 && (kind != VV_MEM_HOST || left == SIZE_MAX))
        rc = -EINVAL;
    if (rc == 0)
        *ret_ptr = (void *)(uintptr_t)ptr;
    return rc;
}

void *vv_device_host_map(struct vv_device *dev, const void *ptr)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);
    const struct vvi_device_range *r;
    void *map = NULL;

    vv_mutex_lock(&d->lock);
    r = vvi_device_ranges_find(&d->allocs, (uintptr_t)ptr);
    if (r && !r->dead)
        map = (char *)r->map + ((uintptr_t)ptr - r->start);
    vv_mutex_unlock(&d->lock);
    return map;
}

/* ---- the application's stream ---- */

struct vv_stream *vv_device_host_app_stream(struct vv_device *dev)
{
    return vvi_device_host_of(dev)->app;
}

int vvi_device_app_submit(struct vvi_device_host *d, struct vv_stream *s, void (*fn)(void *arg),
                          void *arg, uint64_t run_ns, bool hold)
{
    struct vvi_device_item *it;
    int rc = 0;

    vv_mutex_lock(&d->lock);
    it = d->losing ? NULL : vvi_device_item_new(VVI_DEVICE_ITEM_KERNEL, 0);
    if (it) {
        it->engine = VVI_DEVICE_ENGINE_APP;
        it->fn = fn;
        it->arg = arg;
        it->run_ns = run_ns;
        it->hold = hold;
        vvi_device_submit_locked(d, s, it);
    } else {
        rc = d->losing ? -ENODEV : -ENOMEM;
    }
    vv_mutex_unlock(&d->lock);
    return rc;
}

int vv_device_host_app_launch(struct vv_device *dev, uint64_t ns)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);

    return vvi_device_app_submit(d, d->app, NULL, NULL, ns, false);
}

int vv_device_host_app_run(struct vv_device *dev, void (*fn)(void *arg), void *arg)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);

    return vvi_device_app_submit(d, d->app, fn, arg, 0, false);
}

int vv_device_host_app_hold(struct vv_device *dev)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);

    return vvi_device_app_submit(d, d->app, NULL, NULL, 0, true);
}

void vv_device_host_app_release(struct vv_device *dev)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);

    vv_mutex_lock(&d->lock);
    d->app_releases++;
    vv_cond_signal(&d->engine[VVI_DEVICE_ENGINE_APP].cond);
    vv_mutex_unlock(&d->lock);
}

/* ---- settings and statistics ---- */

void vv_device_host_set_rate(struct vv_device *dev, enum vv_device_host_engine engine,
                             struct vv_device_host_rate rate)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);

    vv_mutex_lock(&d->lock);
    d->opts.engine[engine] = rate;
    vv_mutex_unlock(&d->lock);
}

void vv_device_host_set_pageable_rate(struct vv_device *dev, uint64_t bytes_per_s)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);

    vv_mutex_lock(&d->lock);
    d->opts.pageable_bytes_per_s = bytes_per_s;
    vv_mutex_unlock(&d->lock);
}

void vv_device_host_set_register_rate(struct vv_device *dev, uint64_t bytes_per_s)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);

    vv_mutex_lock(&d->lock);
    d->opts.register_bytes_per_s = bytes_per_s;
    vv_mutex_unlock(&d->lock);
}

void vv_device_host_stats(struct vv_device *dev, struct vv_device_host_stats *ret_stats)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);

    vv_mutex_lock(&d->lock);
    *ret_stats = d->stats;
    ret_stats->stall_until_ns = d->stall_until_ns;
    vv_mutex_unlock(&d->lock);
}

/* ---- opening and closing ---- */

/* Frees everything that the device holds; also after a failed opening. */
static void host_free(struct vvi_device_host *d)
{
    vvi_device_streams_fini(d);
    for (size_t i = 0; i < d->allocs.n; i++)
        unmap_range(&d->allocs.v[i]);
    vvi_device_ranges_fini(&d->allocs);
    vvi_device_ranges_fini(&d->slices);
    for (size_t i = 0; i < VV_ARRAY_SIZE(d->engine); i++)
        vv_cond_fini(&d->engine[i].cond);
    vv_cond_fini(&d->changed);
    vv_mutex_fini(&d->lock);
    free(d);
}

static void host_close(struct vv_device *dev)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);

    if (!d)
        return;
    vv_device_host_lose(dev);
    vvi_device_engines_stop(d);
    host_free(d);
}

/* The emulated device has no context to make current. */
static int host_enter(struct vv_device *dev)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);

    vv_mutex_lock(&d->lock);
    bool lost = d->lost;
    vv_mutex_unlock(&d->lock);
    return lost ? -ENODEV : 0;
}

static void host_leave(struct vv_device *dev)
{
    (void)dev;
}

static const struct vv_device_ops host_ops = {
    .name = "host",
    .close = host_close,
    .mem_alloc = mem_alloc,
    .mem_free = mem_free,
    .mem_info = mem_info,
    .host_register = host_register,
    .host_share = host_share,
    .host_address = host_address,
    .host_unregister = host_unregister,
    .ptr_kind = ptr_kind,
    .stream_new = vvi_device_stream_new,
    .stream_free = vvi_device_stream_free,
    .copy_async = vvi_device_copy_async,
    .event_new = vvi_device_event_new,
    .event_new_timed = vvi_device_event_new, /* all of them keep times */
    .event_elapsed = vvi_device_event_elapsed,
    .event_free = vvi_device_event_free,
    .event_record = vvi_device_event_record,
    .event_query = vvi_device_event_query,
    .event_wait = vvi_device_event_wait,
    .stream_wait_event = vvi_device_stream_wait_event,
    .after_app = vvi_device_after_app,
    .stream_adopt = vvi_device_stream_adopt,
    .stream_id = vvi_device_stream_id,
    .stream_native = vvi_device_stream_native,
    .enter = host_enter,
    .leave = host_leave,
    .launch = vvi_device_launch,
    .describe = vvi_device_describe,
    .last_code = vvi_device_last_code,
};

void vv_device_host_opts_init(struct vv_device_host_opts *ret_opts)
{
    *ret_opts = (struct vv_device_host_opts){.capacity_bytes = UINT64_C(1) << 30};
}

int vv_device_open_host(const struct vv_device_host_opts *opts, struct vv_device **ret_device)
{
    struct vvi_device_host *d;
    int rc;

    if (opts && !opts->capacity_bytes)
        return -EINVAL;
    d = calloc(1, sizeof(*d));
    if (!d)
        return -ENOMEM;
    d->base.ops = &host_ops;
    if (opts)
        d->opts = *opts;
    else
        vv_device_host_opts_init(&d->opts);
    vv_mutex_init(&d->lock, "device host", VV_RANK_DEVICE);
    vv_cond_init(&d->changed);
    for (unsigned i = 0; i < VVI_DEVICE_N_ENGINES; i++) {
        d->engine[i].device = d;
        d->engine[i].index = i;
        vv_cond_init(&d->engine[i].cond);
    }

    rc = vvi_device_stream_new_locked(d, &d->app);
    if (!rc) {
        d->app->native = true;
        rc = vvi_device_engines_start(d);
    }
    if (rc) {
        vvi_device_engines_stop(d);
        host_free(d);
        return rc;
    }
    *ret_device = &d->base;
    return 0;
}
