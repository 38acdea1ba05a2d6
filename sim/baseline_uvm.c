/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The baseline that leaves the movement of data to the driver: managed memory, with all the advice
 * an application can give (section 5.2.2 of the paper that the engine is built on).
 *
 * Every version has a place in one managed allocation. A checkpoint copies into it on the device;
 * the flusher then advises that it belongs in host memory and moves it there. With hints, the
 * prefetcher moves versions to the device in the order of the hints. What is on the device, or on
 * its way there or back, is counted and stays within the device cache that the library would have:
 * a checkpoint waits for the flusher, the prefetcher for the application. A version consumed counts
 * as gone at once and is advised to belong in host memory, so that the driver may drop it first; it
 * is not moved back, which is more than fair, as it costs the link nothing.
 *
 * The allocation is never larger than what the device has free: otherwise the driver would evict on
 * its own, and that would measure something else.
 *
 * Threads: the application's, the flusher and the prefetcher; `lock` covers the states, the count
 * and both queues, and is never held during a call of the device. Moving a version that is being
 * read is the driver's business: managed memory is coherent.
 *
 * No deadlock: prefetches leave room for the largest version, and everything else that is counted is
 * about to be flushed, so a checkpoint gets its room without the application doing anything.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/bytes.h"
#include "device/cuda/managed.h"
#include "sim/shot_engine.h"

#define SLOT_ALIGN    ((size_t)2 << 20)
#define RESERVE_BYTES ((size_t)1 << 30) /* for the application, the driver and our kernels */

enum place {
    NOWHERE,   /* not written, or discarded */
    ON_DEVICE, /* counted; the flusher has it in its queue */
    CLAIMED,   /* counted; ready to be restored, not to be flushed */
    MOVING_UP, /* counted; the prefetcher moves it */
    ON_HOST,
};

struct version {
    enum place place;
    bool consumed; /* to be advised only */
    bool queued;   /* for the flusher */
    bool moving;   /* the flusher moves it */
};

/* Version numbers, first in, first out. */
struct queue {
    uint64_t *v;
    size_t head, n, cap;
};

struct uvm {
    struct shot_engine base;
    struct vv_device *device;
    const struct shot_sizes *sizes;
    uint64_t cache_bytes;
    bool consume_once;
    char *map;
    size_t *slot;

    struct vv_stream *app_stream, *flush_stream, *up_stream;
    struct vv_event *app_event, *flush_event, *up_event;
    pthread_t flusher, prefetcher;
    bool flusher_runs, prefetcher_runs;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Synchronization: lock, from here on. */
    struct version *version;
    uint64_t counted_bytes;
    struct queue flush, hints;
    uint64_t distance;
    bool started, busy, stop;
    int error; /* of a thread, the first */
};

static struct uvm *of(struct shot_engine *e)
{
    return (struct uvm *)e;
}

static int queue_push(struct queue *q, uint64_t version)
{
    if (q->head + q->n == q->cap) {
        size_t cap = q->cap ? 2 * q->cap : 256;
        uint64_t *v = realloc(q->v, cap * sizeof(*v));

        if (!v)
            return -ENOMEM;
        q->v = v;
        q->cap = cap;
    }
    q->v[q->head + q->n++] = version;
    return 0;
}

static uint64_t queue_pop(struct queue *q)
{
    q->n--;
    return q->v[q->head++];
}

static int wait_for(struct uvm *u, struct vv_event *event, struct vv_stream *stream)
{
    int rc = vv_device_event_record(u->device, event, stream);

    return rc ? rc : vv_device_event_wait(u->device, event, -1);
}

static uint64_t bytes_of(const struct uvm *u, uint64_t version)
{
    return u->sizes->bytes[version];
}

/* ---- the flusher ---- */

static int flush_one(struct uvm *u, uint64_t version, bool move)
{
    const char *ptr = u->map + u->slot[version];
    size_t bytes = bytes_of(u, version);
    int rc = vv_device_cuda_managed_advise(u->device, ptr, bytes, VV_DEVICE_CUDA_PREFER_HOST);

    if (rc || !move)
        return rc;
    rc = vv_device_cuda_managed_move(u->device, u->flush_stream, ptr, bytes, true);
    return rc ? rc : wait_for(u, u->flush_event, u->flush_stream);
}

static void *flusher_main(void *arg)
{
    struct uvm *u = arg;

    pthread_mutex_lock(&u->lock);
    while (!u->stop) {
        struct version *ver;
        uint64_t version;
        bool move;
        int rc;

        if (u->flush.n == 0) {
            pthread_cond_wait(&u->changed, &u->lock);
            continue;
        }
        version = queue_pop(&u->flush);
        ver = &u->version[version];
        ver->queued = false;
        move = ver->place == ON_DEVICE;
        if (!move && !ver->consumed)
            continue; /* claimed again meanwhile */
        u->busy = ver->moving = true;
        pthread_mutex_unlock(&u->lock);
        rc = flush_one(u, version, move);
        pthread_mutex_lock(&u->lock);
        u->busy = ver->moving = false;
        if (rc && !u->error)
            u->error = rc;
        /* Consumed or claimed while it moved: whoever did that has settled the count. */
        if (move && ver->place == ON_DEVICE) {
            ver->place = ON_HOST;
            u->counted_bytes -= bytes_of(u, version);
        }
        pthread_cond_broadcast(&u->changed);
    }
    pthread_mutex_unlock(&u->lock);
    return NULL;
}

static int queue_flush_locked(struct uvm *u, uint64_t version)
{
    int rc = 0;

    if (!u->version[version].queued)
        rc = queue_push(&u->flush, version);
    if (rc == 0)
        u->version[version].queued = true;
    pthread_cond_broadcast(&u->changed);
    return rc;
}

/* ---- the prefetcher ---- */

/* Whether the next hint can be acted upon; hints that say nothing any more are dropped. */
static bool next_hint_locked(struct uvm *u, uint64_t *ret_version)
{
    while (u->started && u->hints.n > 0) {
        uint64_t version = u->hints.v[u->hints.head];
        struct version *ver = &u->version[version];
        uint64_t room = u->cache_bytes - VV_MIN(u->cache_bytes, u->sizes->largest_bytes);

        if (ver->place == NOWHERE && !ver->consumed)
            return false; /* not written yet */
        if (ver->place == ON_DEVICE)
            ver->place = CLAIMED; /* it is where it shall be */
        if (ver->place == ON_HOST) {
            if (u->counted_bytes + bytes_of(u, version) > room)
                return false;
            *ret_version = version;
            return true;
        }
        (void)queue_pop(&u->hints);
    }
    return false;
}

static void *prefetcher_main(void *arg)
{
    struct uvm *u = arg;

    pthread_mutex_lock(&u->lock);
    while (!u->stop) {
        uint64_t version;
        const char *ptr;
        int rc;

        if (!next_hint_locked(u, &version)) {
            pthread_cond_wait(&u->changed, &u->lock);
            continue;
        }
        (void)queue_pop(&u->hints);
        u->version[version].place = MOVING_UP;
        u->counted_bytes += bytes_of(u, version);
        pthread_mutex_unlock(&u->lock);
        ptr = u->map + u->slot[version];
        rc = vv_device_cuda_managed_advise(u->device, ptr, bytes_of(u, version),
                                           VV_DEVICE_CUDA_PREFER_DEVICE);
        if (rc == 0)
            rc = vv_device_cuda_managed_move(u->device, u->up_stream, ptr, bytes_of(u, version),
                                             false);
        if (rc == 0)
            rc = wait_for(u, u->up_event, u->up_stream);
        pthread_mutex_lock(&u->lock);
        if (rc && !u->error)
            u->error = rc;
        u->version[version].place = CLAIMED;
        pthread_cond_broadcast(&u->changed);
    }
    pthread_mutex_unlock(&u->lock);
    return NULL;
}

/* ---- the application's calls ---- */

static int copy(struct uvm *u, void *dst, const void *src, size_t bytes)
{
    struct vv_copy_seg seg = {dst, src, bytes};
    int rc = vv_device_copy_async(u->device, u->app_stream, &seg, 1);

    return rc ? rc : wait_for(u, u->app_event, u->app_stream);
}

static int check(const struct uvm *u, uint64_t version, size_t bytes)
{
    return version < u->sizes->nr && bytes <= bytes_of(u, version) ? 0 : -EINVAL;
}

static int hint(struct shot_engine *e, uint64_t version)
{
    struct uvm *u = of(e);
    int rc = check(u, version, 0);

    if (rc)
        return rc;
    pthread_mutex_lock(&u->lock);
    rc = queue_push(&u->hints, version);
    pthread_cond_broadcast(&u->changed);
    pthread_mutex_unlock(&u->lock);
    return rc;
}

static void start_locked(struct uvm *u)
{
    u->started = true;
    pthread_cond_broadcast(&u->changed);
}

static int start(struct shot_engine *e)
{
    struct uvm *u = of(e);

    pthread_mutex_lock(&u->lock);
    start_locked(u);
    pthread_mutex_unlock(&u->lock);
    return 0;
}

static int checkpoint(struct shot_engine *e, uint64_t version, void *buf, size_t bytes)
{
    struct uvm *u = of(e);
    int rc = check(u, version, bytes);

    if (rc)
        return rc;
    pthread_mutex_lock(&u->lock);
    /* One that is larger than the cache goes alone; one of the same number may still be on its way
     * out. */
    while (!u->error &&
           (u->version[version].moving ||
            (u->counted_bytes > 0 && u->counted_bytes + bytes_of(u, version) > u->cache_bytes)))
        pthread_cond_wait(&u->changed, &u->lock);
    rc = u->error;
    if (rc == 0)
        u->counted_bytes += bytes_of(u, version);
    pthread_mutex_unlock(&u->lock);
    if (rc == 0)
        rc = copy(u, u->map + u->slot[version], buf, bytes);
    if (rc)
        return rc;
    pthread_mutex_lock(&u->lock);
    u->version[version].place = ON_DEVICE;
    u->version[version].consumed = false;
    rc = queue_flush_locked(u, version);
    pthread_mutex_unlock(&u->lock);
    return rc;
}

/* How many others have been prefetched and not consumed. */
static uint64_t distance_locked(const struct uvm *u, uint64_t version)
{
    uint64_t n = 0;

    for (size_t v = 0; v < u->sizes->nr; v++)
        n += v != version && u->version[v].place == CLAIMED;
    return n;
}

static int restore(struct shot_engine *e, uint64_t version, void *buf, size_t bytes)
{
    struct uvm *u = of(e);
    struct version *ver;
    int rc = check(u, version, bytes);

    if (rc)
        return rc;
    ver = &u->version[version];
    pthread_mutex_lock(&u->lock);
    start_locked(u);
    u->distance = distance_locked(u, version);
    while (ver->place == MOVING_UP && !u->error)
        pthread_cond_wait(&u->changed, &u->lock);
    rc = u->error;
    if (rc == 0 && ver->place == NOWHERE)
        rc = -ENOENT;
    pthread_mutex_unlock(&u->lock);
    if (rc == 0)
        rc = copy(u, buf, u->map + u->slot[version], bytes);
    if (rc)
        return rc;
    pthread_mutex_lock(&u->lock);
    if (u->consume_once) {
        if (ver->place != ON_HOST)
            u->counted_bytes -= bytes_of(u, version);
        ver->place = NOWHERE;
        ver->consumed = true;
        rc = queue_flush_locked(u, version);
    } else if (ver->place == CLAIMED) {
        ver->place = ON_DEVICE; /* the flusher may have it */
        rc = queue_flush_locked(u, version);
    }
    pthread_mutex_unlock(&u->lock);
    return rc;
}

static int flush(struct shot_engine *e)
{
    struct uvm *u = of(e);
    int rc;

    pthread_mutex_lock(&u->lock);
    while (!u->error && (u->flush.n > 0 || u->busy))
        pthread_cond_wait(&u->changed, &u->lock);
    rc = u->error;
    pthread_mutex_unlock(&u->lock);
    return rc;
}

static int discard(struct shot_engine *e, uint64_t version)
{
    struct uvm *u = of(e);
    struct version *ver;
    int rc = check(u, version, 0);

    if (rc)
        return rc;
    ver = &u->version[version];
    pthread_mutex_lock(&u->lock);
    while (ver->place == MOVING_UP && !u->error)
        pthread_cond_wait(&u->changed, &u->lock);
    if (ver->place == ON_DEVICE || ver->place == CLAIMED)
        u->counted_bytes -= bytes_of(u, version);
    ver->place = NOWHERE;
    ver->consumed = true;
    rc = u->error ? u->error : queue_flush_locked(u, version);
    pthread_mutex_unlock(&u->lock);
    return rc;
}

static void sample(struct shot_engine *e, struct shot_sample *ret_sample)
{
    struct uvm *u = of(e);

    pthread_mutex_lock(&u->lock);
    *ret_sample = (struct shot_sample){.distance = u->distance};
    pthread_mutex_unlock(&u->lock);
}

static void explain(struct shot_engine *e, int rc, char *buf, size_t size)
{
    const char *name = "";
    int code = vv_device_last_code(of(e)->device, &name);

    if (code)
        snprintf(buf, size, "%s (%s)", varve_strerror(rc), name);
    else
        snprintf(buf, size, "%s", varve_strerror(rc));
}

/* ---- opening and closing ---- */

/* Accepts a half-open one. */
static int uvm_close(struct shot_engine *e)
{
    struct uvm *u = of(e);
    int rc;

    pthread_mutex_lock(&u->lock);
    u->stop = true;
    pthread_cond_broadcast(&u->changed);
    pthread_mutex_unlock(&u->lock);
    if (u->flusher_runs)
        pthread_join(u->flusher, NULL);
    if (u->prefetcher_runs)
        pthread_join(u->prefetcher, NULL);
    rc = u->error;
    vv_device_event_free(u->device, u->app_event);
    vv_device_event_free(u->device, u->flush_event);
    vv_device_event_free(u->device, u->up_event);
    vv_device_stream_free(u->device, u->app_stream);
    vv_device_stream_free(u->device, u->flush_stream);
    vv_device_stream_free(u->device, u->up_stream);
    vv_device_cuda_managed_free(u->device, u->map);
    pthread_cond_destroy(&u->changed);
    pthread_mutex_destroy(&u->lock);
    free(u->flush.v);
    free(u->hints.v);
    free(u->version);
    free(u->slot);
    free(u);
    return rc;
}

static const struct shot_engine_ops ops = {
    .hint = hint,
    .start = start,
    .checkpoint = checkpoint,
    .restore = restore,
    .flush = flush,
    .discard = discard,
    .sample = sample,
    .explain = explain,
    .close = uvm_close,
};

static int alloc_managed(struct uvm *u, char *err, size_t err_size)
{
    char want[VV_BYTES_TEXT], have[VV_BYTES_TEXT];
    size_t free_bytes = 0, total = 0, bytes = u->slot[u->sizes->nr];
    void *map;
    int rc = vv_device_mem_info(u->device, &free_bytes, &total);

    if (rc == 0 && (free_bytes < RESERVE_BYTES || bytes > free_bytes - RESERVE_BYTES)) {
        snprintf(err, err_size,
                 "uvm: %s of managed memory wanted, but the device has %s free, less %zu MiB",
                 vv_bytes_human(bytes, want, sizeof(want)),
                 vv_bytes_human(free_bytes, have, sizeof(have)), RESERVE_BYTES >> 20);
        return -ENOMEM;
    }
    if (rc == 0)
        rc = vv_device_cuda_managed_alloc(u->device, bytes, &map);
    if (rc == 0) {
        u->map = map;
        rc = vv_device_cuda_managed_advise(u->device, map, bytes, VV_DEVICE_CUDA_USED_BY_DEVICE);
    }
    if (rc)
        snprintf(err, err_size, "uvm: managed memory: %s", varve_strerror(rc));
    return rc;
}

static int start_threads(struct uvm *u)
{
    struct vv_device *d = u->device;
    int rc = vv_device_stream_adopt(d, NULL, &u->app_stream);

    if (rc == 0)
        rc = vv_device_stream_new(d, &u->flush_stream);
    if (rc == 0)
        rc = vv_device_stream_new(d, &u->up_stream);
    if (rc == 0)
        rc = vv_device_event_new(d, &u->app_event);
    if (rc == 0)
        rc = vv_device_event_new(d, &u->flush_event);
    if (rc == 0)
        rc = vv_device_event_new(d, &u->up_event);
    if (rc == 0)
        rc = -pthread_create(&u->flusher, NULL, flusher_main, u);
    u->flusher_runs = rc == 0;
    if (rc == 0)
        rc = -pthread_create(&u->prefetcher, NULL, prefetcher_main, u);
    u->prefetcher_runs = rc == 0;
    return rc;
}

int shot_engine_uvm(const struct shot_baseline *o, char *err, size_t err_size,
                    struct shot_engine **ret_engine)
{
    struct uvm *u = calloc(1, sizeof(*u));
    int rc;

    if (!u) {
        snprintf(err, err_size, "uvm: %s", varve_strerror(-ENOMEM));
        return -ENOMEM;
    }
    *u = (struct uvm){.base.ops = &ops,
                      .device = o->device,
                      .sizes = o->sizes,
                      .cache_bytes = o->device_cache_bytes,
                      .consume_once = o->consume_once};
    pthread_mutex_init(&u->lock, NULL);
    pthread_cond_init(&u->changed, NULL);
    u->slot = calloc(o->sizes->nr + 1, sizeof(*u->slot));
    u->version = calloc(o->sizes->nr, sizeof(*u->version));
    rc = u->slot && u->version ? 0 : -ENOMEM;
    for (size_t v = 0; rc == 0 && v < o->sizes->nr; v++)
        u->slot[v + 1] = u->slot[v] + vv_align_up(o->sizes->bytes[v], SLOT_ALIGN);
    if (rc == 0)
        rc = alloc_managed(u, err, err_size);
    else
        snprintf(err, err_size, "uvm: %s", varve_strerror(rc));
    if (rc == 0) {
        rc = start_threads(u);
        if (rc)
            snprintf(err, err_size, "uvm: %s", varve_strerror(rc));
    }
    if (rc)
        uvm_close(&u->base);
    else
        *ret_engine = &u->base;
    return rc;
}
