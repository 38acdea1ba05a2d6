/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The baseline that leaves the movement of data to the driver: managed memory, with the advice that
 * makes it faster (section 5.2.2 of the paper that the engine is built on).
 *
 * Every version has a place in one managed allocation. A checkpoint copies into it on the device;
 * the flusher then advises that it belongs in host memory and moves it there. With hints, the
 * prefetcher moves versions to the device in the order of the hints. Versions on the device, or on their way there
 * or back, are counted and limited to the device cache that the library would have: a checkpoint waits for the
 * flusher, the prefetcher for the application. A consumed version does not count any more; it is not moved back,
 * which is more than fair, as it costs the link nothing. With `gone` it is advised to belong in host memory, so
 * that the driver may drop it first, which on an H200 made restores eight times slower and never paid, as nothing
 * has to be dropped.
 *
 * A copy into pages that are not on the device is a storm of faults, many times slower than moving
 * them there, so a checkpoint moves its place up first; a restore without hints likewise. Places can
 * be moved up ahead of their checkpoints (`ahead`), by the prefetcher and within the same budget:
 * they are PREPARED, and a call that finds its place prepared only copies. On an H200 that was five times
 * slower than moving them in the call: the calls then wait for the driver, which serves both
 * threads. Pages can also be moved up and down once before the run (`touch`); on an H200 new pages
 * are moved up ten times faster than pages that have a place on the host.
 *
 * The driver moves managed memory in the thread that asks for it, for the most part, and keeps other
 * calls waiting meanwhile: advice about memory waits for the end of every move under way, and
 * everything else, copies too, for the advice. So both threads move in steps, and begin neither a step
 * nor advice while a call copies; a call that comes in between waits for the end of one step, not for that
 * of a whole version. A thread gives advice while the other one is idle, as the driver has it anyway.
 *
 * The allocation is never larger than what the device has free: otherwise the driver would evict on
 * its own, and that would measure something else.
 *
 * Threads: the application's, the flusher and the prefetcher; `lock` covers the states, the count
 * and both queues, and is never held during a call of the device. Moving a version that is being
 * read is the driver's business: managed memory is coherent.
 *
 * No deadlock: prefetches leave room for the largest version, a checkpoint that finds no room takes
 * that of places prepared for others, and everything else that is counted is about to be flushed, so
 * a checkpoint gets its room without the application doing anything. Steps wait for calls that copy,
 * never for calls that wait.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "device/cuda/managed.h"
#include "lab/shot/shot_engine.h"
#include "lab/shot/shot_managed.h"

#define SLOT_ALIGN    ((size_t)2 << 20)
#define RESERVE_BYTES ((size_t)1 << 30) /* for the application, the driver and our kernels */

enum place {
    NOWHERE,   /* not written, or discarded */
    PREPARING, /* counted; the prefetcher moves its place up */
    PREPARED,  /* counted; its empty place is on the device */
    WRITING,   /* counted; a checkpoint has it */
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

/* The state of a thread towards the driver. */
struct steps {
    bool under_way; /* a step or advice is */
    bool advises;   /* it gives advice, or is about to */
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
    struct shot_uvm_opts opts;
    char *map;
    size_t *slot;

    struct vv_stream *app_stream;
    struct vv_event *app_event;
    struct managed_mover down, up; /* the flusher's and the prefetcher's */
    struct managed_mover own;      /* the application's */
    pthread_t flusher, prefetcher;
    bool flusher_runs, prefetcher_runs;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Synchronization: lock, for all fields below. */
    struct version *version;
    uint64_t counted_bytes;
    struct queue flush, hints;
    uint64_t distance;
    uint64_t next_put; /* places from here on are prepared; nr: none */
    bool started, busy, stop;
    bool waiting; /* a checkpoint that waits for room */
    bool copying; /* a call copies */
    int error;    /* the first error of a thread */
    struct steps flusher_steps, prefetcher_steps;
    unsigned turns; /* threads that wait for theirs */
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

static uint64_t bytes_of(const struct uvm *u, uint64_t version)
{
    return u->sizes->bytes[version];
}

static bool is_written(const struct version *ver)
{
    return ver->place == ON_DEVICE || ver->place == CLAIMED || ver->place == MOVING_UP ||
           ver->place == ON_HOST;
}

static char *at(const struct uvm *u, uint64_t version)
{
    return u->map + u->slot[version];
}

/* ---- moving ---- */

static struct steps *steps_of(struct uvm *u, bool to_host)
{
    return to_host ? &u->flusher_steps : &u->prefetcher_steps;
}

/* The application goes first, then advice, which is given while no other call runs. */
static bool has_turn_locked(const struct uvm *u, const struct steps *other, bool advice)
{
    if (u->stop)
        return true;
    return !u->copying && (advice ? !other->under_way : !other->advises);
}

/* A step of a thread, or its advice. */
static void begin(struct uvm *u, bool to_host, bool advice)
{
    struct steps *steps = steps_of(u, to_host);

    pthread_mutex_lock(&u->lock);
    steps->advises = advice;
    u->turns++;
    while (!has_turn_locked(u, steps_of(u, !to_host), advice))
        pthread_cond_wait(&u->changed, &u->lock);
    u->turns--;
    steps->under_way = true;
    pthread_mutex_unlock(&u->lock);
}

static void end(struct uvm *u, bool to_host)
{
    pthread_mutex_lock(&u->lock);
    *steps_of(u, to_host) = (struct steps){0};
    if (u->turns > 0)
        pthread_cond_broadcast(&u->changed);
    pthread_mutex_unlock(&u->lock);
}

/* A thread's advice. */
static int advise(struct uvm *u, struct managed_mover *m, uint64_t version, bool to_host)
{
    int rc;

    begin(u, to_host, true);
    rc = managed_advise(m, at(u, version), bytes_of(u, version), to_host);
    end(u, to_host);
    return rc;
}

/* In steps, as the threads do it. */
static int move_in_steps(struct uvm *u, struct managed_mover *m, uint64_t version, bool to_host)
{
    size_t bytes = bytes_of(u, version);
    size_t step = u->opts.step_bytes ? u->opts.step_bytes : bytes;
    int rc = advise(u, m, version, to_host);

    for (size_t done = 0; rc == 0 && done < bytes; done += step) {
        begin(u, to_host, false);
        rc = managed_move(m, at(u, version) + done, VV_MIN(step, bytes - done), to_host);
        end(u, to_host);
    }
    return rc;
}

/* Moves a place up in one piece, as calls do. */
static int move_in_call(struct uvm *u, uint64_t version)
{
    size_t bytes = bytes_of(u, version);
    int rc = managed_advise(&u->own, at(u, version), bytes, false);

    return rc ? rc : managed_move(&u->own, at(u, version), bytes, false);
}

/* ---- the flusher ---- */

static int flush_one(struct uvm *u, uint64_t version, bool down)
{
    if (down)
        return move_in_steps(u, &u->down, version, true);
    return u->opts.gone ? advise(u, &u->down, version, true) : 0;
}

static void *flusher_main(void *arg)
{
    struct uvm *u = arg;

    pthread_mutex_lock(&u->lock);
    while (!u->stop) {
        struct version *ver;
        uint64_t version;
        bool down;
        int rc;

        if (u->flush.n == 0) {
            pthread_cond_wait(&u->changed, &u->lock);
            continue;
        }
        version = queue_pop(&u->flush);
        ver = &u->version[version];
        ver->queued = false;
        down = ver->place == ON_DEVICE;
        if (!down && !(ver->consumed && ver->place == NOWHERE)) {
            pthread_cond_broadcast(&u->changed); /* claimed or written again meanwhile */
            continue;
        }
        u->busy = ver->moving = true;
        pthread_mutex_unlock(&u->lock);
        rc = flush_one(u, version, down);
        pthread_mutex_lock(&u->lock);
        u->busy = ver->moving = false;
        if (rc && !u->error)
            u->error = rc;
        /* If it was consumed or claimed while it moved, that call has adjusted the count. */
        if (down && ver->place == ON_DEVICE) {
            ver->place = ON_HOST;
            u->counted_bytes -= bytes_of(u, version);
        }
        pthread_cond_broadcast(&u->changed);
    }
    pthread_mutex_unlock(&u->lock);
    return NULL;
}

/* The caller wakes the flusher. */
static int queue_flush_locked(struct uvm *u, uint64_t version)
{
    int rc = 0;

    if (!u->version[version].queued)
        rc = queue_push(&u->flush, version);
    if (rc == 0)
        u->version[version].queued = true;
    return rc;
}

/* ---- the prefetcher ---- */

/* True if the next hint can be acted upon. Hints that are out of date are dropped. */
static bool next_hint_locked(struct uvm *u, uint64_t *ret_version)
{
    while (u->started && u->hints.n > 0) {
        uint64_t version = u->hints.v[u->hints.head];
        struct version *ver = &u->version[version];
        uint64_t room = u->cache_bytes - VV_MIN(u->cache_bytes, u->sizes->largest_bytes);

        if (!is_written(ver) && !ver->consumed)
            return false;
        if (ver->place == ON_DEVICE && ver->moving)
            return false; /* it is on its way to the host, and comes back afterwards */
        if (ver->place == ON_DEVICE)
            ver->place = CLAIMED; /* it is on the device already */
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

/* True if a place is to be prepared. Those ahead of it are prepared already. A waiting checkpoint gets the room
 * first. */
static bool next_place_locked(struct uvm *u, uint64_t *ret_version)
{
    uint64_t end = VV_MIN(u->next_put + u->opts.ahead, u->sizes->nr);

    if (u->waiting)
        return false;
    for (uint64_t v = u->next_put; v < end; v++) {
        if (u->version[v].place != NOWHERE)
            continue;
        if (u->version[v].moving || u->counted_bytes + bytes_of(u, v) > u->cache_bytes)
            return false;
        *ret_version = v;
        return true;
    }
    return false;
}

/* Moves one up. */
static void move_up_locked(struct uvm *u, uint64_t version, enum place meanwhile, enum place then)
{
    struct version *ver = &u->version[version];
    int rc;

    ver->place = meanwhile;
    u->counted_bytes += bytes_of(u, version);
    pthread_mutex_unlock(&u->lock);
    rc = move_in_steps(u, &u->up, version, false);
    pthread_mutex_lock(&u->lock);
    if (rc && !u->error)
        u->error = rc;
    /* If it was consumed while it moved, that call has adjusted the count. */
    if (ver->place == meanwhile)
        ver->place = then;
    pthread_cond_broadcast(&u->changed);
}

/* Prepares places for writes before it acts upon hints: a thread that still writes reads only later. */
static void *prefetcher_main(void *arg)
{
    struct uvm *u = arg;

    pthread_mutex_lock(&u->lock);
    while (!u->stop) {
        uint64_t version;

        if (next_place_locked(u, &version)) {
            move_up_locked(u, version, PREPARING, PREPARED);
        } else if (next_hint_locked(u, &version)) {
            (void)queue_pop(&u->hints);
            move_up_locked(u, version, MOVING_UP, CLAIMED);
        } else {
            pthread_cond_wait(&u->changed, &u->lock);
        }
    }
    pthread_mutex_unlock(&u->lock);
    return NULL;
}

/* Prepared places are empty: to give them up, only the count changes. */
static void give_up_places_locked(struct uvm *u, uint64_t but)
{
    for (uint64_t v = 0; v < u->sizes->nr; v++)
        if (v != but && u->version[v].place == PREPARED) {
            u->version[v].place = NOWHERE;
            u->counted_bytes -= bytes_of(u, v);
        }
}

/* ---- the application's calls ---- */

static int copy(struct uvm *u, void *dst, const void *src, size_t bytes)
{
    struct vv_copy_seg seg = {dst, src, bytes};
    int rc = vv_device_copy_async(u->device, u->app_stream, &seg, 1);

    if (rc == 0)
        rc = vv_device_event_record(u->device, u->app_event, u->app_stream);
    if (rc == 0)
        rc = vv_device_event_wait(u->device, u->app_event, -1);
    return rc;
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
    if (u->started)
        return; /* every restore comes here: do not spend time on waking threads again */
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

/* Waits until no other thread has the place of the version. */
static void await_place_locked(struct uvm *u, const struct version *ver)
{
    while (!u->error && (ver->moving || ver->place == PREPARING || ver->place == MOVING_UP))
        pthread_cond_wait(&u->changed, &u->lock);
}

static bool lacks_room_locked(const struct uvm *u, uint64_t version)
{
    return !u->error && u->counted_bytes > 0 &&
           u->counted_bytes + bytes_of(u, version) > u->cache_bytes;
}

/* Waits until the place of the version is counted and no other thread has it. The result is true if it is on the
 * device. A place that is larger than the cache has to be the only one. */
static bool take_place_locked(struct uvm *u, uint64_t version)
{
    struct version *ver = &u->version[version];

    await_place_locked(u, ver);
    if (ver->place == PREPARED)
        return true;
    u->waiting = true;
    if (ver->place == ON_DEVICE || ver->place == CLAIMED) /* written once more */
        u->counted_bytes -= bytes_of(u, version);
    ver->place = NOWHERE;
    if (lacks_room_locked(u, version))
        give_up_places_locked(u, version);
    while (lacks_room_locked(u, version)) {
        pthread_cond_wait(&u->changed, &u->lock);
        give_up_places_locked(u, version); /* the places that were being prepared */
    }
    u->waiting = false;
    u->counted_bytes += bytes_of(u, version);
    return false;
}

static int checkpoint(struct shot_engine *e, uint64_t version, void *buf, size_t bytes)
{
    struct uvm *u = of(e);
    bool prepared;
    int rc = check(u, version, bytes);

    if (rc)
        return rc;
    pthread_mutex_lock(&u->lock);
    prepared = take_place_locked(u, version);
    u->version[version].place = WRITING;
    u->next_put = version + 1;
    u->copying = u->opts.yield;
    rc = u->error;
    pthread_mutex_unlock(&u->lock);
    if (rc == 0 && !prepared)
        rc = move_in_call(u, version);
    if (rc == 0)
        rc = copy(u, at(u, version), buf, bytes);
    pthread_mutex_lock(&u->lock);
    u->copying = false;
    u->version[version].place = ON_DEVICE;
    u->version[version].consumed = false;
    pthread_cond_broadcast(&u->changed);
    if (rc == 0)
        rc = queue_flush_locked(u, version);
    pthread_mutex_unlock(&u->lock);
    return rc;
}

/* The number of other versions that were prefetched and not consumed. */
static uint64_t distance_locked(const struct uvm *u, uint64_t version)
{
    uint64_t n = 0;

    for (size_t v = 0; v < u->sizes->nr; v++)
        n += v != version && u->version[v].place == CLAIMED;
    return n;
}

/* True if the call has to move the place to the device. The place is counted from now on. */
static bool take_back_locked(struct uvm *u, uint64_t version)
{
    struct version *ver = &u->version[version];

    while (ver->place == MOVING_UP && !u->error)
        pthread_cond_wait(&u->changed, &u->lock);
    if (!u->opts.fetch || ver->place != ON_HOST)
        return false;
    ver->place = CLAIMED;
    u->counted_bytes += bytes_of(u, version);
    return true;
}

/* A restored version is consumed, or goes to the flusher. */
static int let_go_locked(struct uvm *u, uint64_t version)
{
    struct version *ver = &u->version[version];

    if (u->consume_once) {
        if (ver->place != ON_HOST)
            u->counted_bytes -= bytes_of(u, version);
        ver->place = NOWHERE;
        ver->consumed = true;
    } else if (ver->place == CLAIMED) {
        ver->place = ON_DEVICE;
    } else {
        return 0;
    }
    return queue_flush_locked(u, version);
}

static int restore(struct shot_engine *e, uint64_t version, void *buf, size_t bytes)
{
    struct uvm *u = of(e);
    bool fetch;
    int rc = check(u, version, bytes);

    if (rc)
        return rc;
    pthread_mutex_lock(&u->lock);
    start_locked(u);
    /* The thread restores, so it does not write next. */
    u->next_put = u->sizes->nr;
    give_up_places_locked(u, u->sizes->nr);
    u->distance = distance_locked(u, version);
    fetch = take_back_locked(u, version);
    rc = u->error;
    if (rc == 0 && !is_written(&u->version[version]))
        rc = -ENOENT;
    u->copying = u->opts.yield && rc == 0;
    pthread_mutex_unlock(&u->lock);
    if (rc)
        return rc;
    if (fetch)
        rc = move_in_call(u, version);
    if (rc == 0)
        rc = copy(u, buf, at(u, version), bytes);
    pthread_mutex_lock(&u->lock);
    u->copying = false;
    pthread_cond_broadcast(&u->changed);
    if (rc == 0)
        rc = let_go_locked(u, version);
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
    while ((ver->place == MOVING_UP || ver->place == PREPARING) && !u->error)
        pthread_cond_wait(&u->changed, &u->lock);
    if (ver->place == ON_DEVICE || ver->place == CLAIMED || ver->place == PREPARED)
        u->counted_bytes -= bytes_of(u, version);
    ver->place = NOWHERE;
    ver->consumed = true;
    rc = u->error ? u->error : queue_flush_locked(u, version);
    pthread_cond_broadcast(&u->changed);
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
    shot_device_explain(of(e)->device, rc, buf, size);
}

/* ---- opening and closing ---- */

/* Accepts a half-open engine. */
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
    vv_device_stream_free(u->device, u->app_stream);
    managed_mover_fini(&u->down);
    managed_mover_fini(&u->up);
    managed_mover_fini(&u->own);
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

static int open_movers(struct uvm *u)
{
    int rc = vv_device_stream_adopt(u->device, NULL, &u->app_stream);

    if (rc == 0)
        rc = vv_device_event_new(u->device, &u->app_event);
    if (rc == 0)
        rc = managed_mover_init(u->device, &u->down);
    if (rc == 0)
        rc = managed_mover_init(u->device, &u->up);
    if (rc == 0)
        rc = managed_mover_init(u->device, &u->own);
    return rc;
}

/* Up first: pages that come to the host from the device need not be cleared there. */
static int touch(struct uvm *u)
{
    int rc = 0;

    for (uint64_t v = 0; rc == 0 && u->opts.touch && v < u->sizes->nr; v++) {
        rc = move_in_call(u, v);
        if (rc == 0)
            rc = move_in_steps(u, &u->own, v, true);
    }
    return rc;
}

/* The first places are ready when the run begins. */
static int start_threads(struct uvm *u)
{
    uint64_t v;
    int rc = -pthread_create(&u->flusher, NULL, flusher_main, u);

    u->flusher_runs = rc == 0;
    if (rc == 0)
        rc = -pthread_create(&u->prefetcher, NULL, prefetcher_main, u);
    u->prefetcher_runs = rc == 0;
    if (rc)
        return rc;
    pthread_mutex_lock(&u->lock);
    while (!u->error && (next_place_locked(u, &v) || u->version[0].place == PREPARING))
        pthread_cond_wait(&u->changed, &u->lock);
    rc = u->error;
    pthread_mutex_unlock(&u->lock);
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
                      .consume_once = o->consume_once,
                      .opts = o->uvm};
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
        rc = open_movers(u);
        if (rc == 0)
            rc = touch(u);
        if (rc == 0)
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
