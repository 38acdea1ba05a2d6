/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parallel copies. A job is a list of segments, cut into slices. Caller and helpers take slices from
 * one atomic counter until none is left, so a helper that wakes late only does fewer slices.
 *
 * Ordinary or streaming stores (copy_kernels.c) are chosen by the size of the whole copy, which may be
 * larger than a job. A copy that fits the last cache level uses memcpy: streaming is slower there. A larger
 * copy is streamed, slice by slice; memcpy would treat each slice as a copy that fits. A thread that copies
 * one large piece alone uses memcpy, which handles that case as well.
 *
 * Waking a thread costs as much as copying some hundred KiB. So the caller makes small copies alone. For
 * larger ones, as many helpers are woken as have work: the caller wakes the first, and each helper the next.
 *
 * One job runs at a time. A second caller copies by itself, without waiting for the first: memory
 * bandwidth is in use by then anyway.
 *
 * A job lives on its caller's stack. Helpers enter it under the lock (`active` counts them), and the caller
 * returns only when the last one has left, so that no helper uses a job that no longer exists.
 */
#include "base/copy.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/copy_kernels.h"
#include "base/lock.h"
#include "base/thread.h"
#include "base/thread_group.h"
#include "base/topo.h"

/* Small enough to share a few MiB evenly, large enough that the counter does not matter. */
#define SLICE_MIN_BYTES ((size_t)64 << 10)
#define SLICE_MAX_BYTES ((size_t)512 << 10)
#define SLICES_EACH     4

/* A copy has one helper for each of these, as far as the pool has them. */
#define HELPER_BYTES ((size_t)1 << 20)

/* Caches of some hundred MiB are shared by many cores, and by other processes. */
#define STREAM_MIN_MOST ((size_t)64 << 20)

/* Number of times that the caller polls for the last helper's leaving before it sleeps. Polling takes less time
 * than sleeping and waking up. */
#define LOOKS 2000

#define HELPERS_MAX 256

struct job {
    const struct vv_copy_seg *segs; /* immutable */
    size_t count;                   /* immutable */
    size_t slice_bytes, slices;     /* immutable */
    enum vv_copy_kernel kernel;     /* immutable */
    unsigned helpers; /* helpers that have not entered yet. Synchronization: pool's lock */
    _Atomic size_t
        next; /* next slice. Relaxed: it only hands out numbers; the lock orders the bytes */
};

struct vv_copy_pool {
    struct vv_mutex lock;
    struct vv_cond work; /* a job was posted, or stop */
    struct vv_cond idle; /* active fell to 0 */
    struct job *job;     /* Synchronization: lock. NULL when none is running */
    uint64_t posted; /* Synchronization: lock. Number of jobs so far: a helper enters each at most
                        once */
    _Atomic unsigned active; /* helpers inside the job. Synchronization: stored under lock; loaded
                                without it as a hint */
    bool busy;               /* Synchronization: lock. A caller owns the pool */
    bool stop;               /* Synchronization: lock */
    unsigned helpers;
    pthread_t threads[];
};

void vv_copy(void *dst, const void *src, size_t n)
{
    memcpy(dst, src, n);
}

size_t vv_copy_stream_min(void)
{
    return VV_MIN(vv_topo_cache_bytes() / 4 * 3, STREAM_MIN_MOST);
}

static size_t slices_of(const struct job *job, size_t bytes)
{
    return vv_div_up(bytes, job->slice_bytes);
}

static void work_on(struct job *job)
{
    size_t seg = 0,
           first = 0; /* first: slice number at the start of segs[seg]; both only increase */
    size_t slice;

    while ((slice = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed)) < job->slices) {
        const struct vv_copy_seg *s;
        size_t offset;

        while (slice - first >= slices_of(job, job->segs[seg].bytes))
            first += slices_of(job, job->segs[seg++].bytes);
        s = &job->segs[seg];
        offset = (slice - first) * job->slice_bytes;
        vv_copy_with(job->kernel, (char *)s->dst + offset, (const char *)s->src + offset,
                     VV_MIN(job->slice_bytes, s->bytes - offset));
    }
}

static void *helper_main(void *arg)
{
    struct vv_copy_pool *pool = arg;
    uint64_t seen = 0;

    vv_thread_group_name("copy");
    vv_mutex_lock(&pool->lock);
    for (;;) {
        struct job *job;

        while (!pool->stop && (!pool->job || pool->posted == seen || pool->job->helpers == 0))
            vv_cond_wait(&pool->work, &pool->lock);
        if (pool->stop)
            break;
        seen = pool->posted;
        job = pool->job;
        pool->active++;
        if (--job->helpers > 0)
            vv_cond_signal(&pool->work);
        vv_mutex_unlock(&pool->lock);
        work_on(job);
        vv_mutex_lock(&pool->lock);
        if (--pool->active == 0)
            vv_cond_signal(&pool->idle);
    }
    vv_mutex_unlock(&pool->lock);
    return NULL;
}

/* At most one thread for each core, and eight in all. Two hardware threads of a core copy no faster
 * than one, and more than four cores gain little: on one machine memcpy by 1, 4 and 8 threads
 * reached 9, 29 and 31 GB/s. */
static unsigned helpers_auto(void)
{
    struct vv_topo topo;

    vv_topo_get(&topo);
    return VV_MIN(topo.cores, 8U) - 1;
}

int vv_copy_pool_new(unsigned helpers, struct vv_copy_pool **ret_pool)
{
    struct vv_copy_pool *pool;

    if (helpers == VV_COPY_HELPERS_AUTO)
        helpers = helpers_auto();
    if (helpers > HELPERS_MAX)
        return -EINVAL;
    pool = calloc(1, sizeof(*pool) + helpers * sizeof(pool->threads[0]));
    if (!pool)
        return -ENOMEM;
    vv_mutex_init(&pool->lock, "copy pool", VV_RANK_COPY);
    vv_cond_init(&pool->work);
    vv_cond_init(&pool->idle);
    for (; pool->helpers < helpers; pool->helpers++) {
        int rc = vv_thread_start(&pool->threads[pool->helpers], helper_main, pool);

        if (rc != 0) {
            vv_copy_pool_free(pool);
            return rc;
        }
    }
    *ret_pool = pool;
    return 0;
}

void vv_copy_pool_free(struct vv_copy_pool *pool)
{
    if (!pool)
        return;
    vv_mutex_lock(&pool->lock);
    pool->stop = true;
    vv_cond_broadcast(&pool->work);
    vv_mutex_unlock(&pool->lock);
    for (unsigned i = 0; i < pool->helpers; i++)
        pthread_join(pool->threads[i], NULL);
    vv_cond_fini(&pool->work);
    vv_cond_fini(&pool->idle);
    vv_mutex_fini(&pool->lock);
    free(pool);
}

/* Makes the caller the owner of the pool, if it has none. */
static bool post(struct vv_copy_pool *pool, struct job *job)
{
    bool mine;

    vv_mutex_lock(&pool->lock);
    mine = !pool->busy;
    if (mine) {
        pool->busy = true;
        pool->job = job;
        pool->posted++;
        vv_cond_signal(&pool->work);
    }
    vv_mutex_unlock(&pool->lock);
    return mine;
}

/* Processor hint for a polling loop. */
static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void retire(struct vv_copy_pool *pool)
{
    vv_mutex_lock(&pool->lock);
    pool->job = NULL; /* from here on no helper enters */
    if (pool->active > 0) {
        vv_mutex_unlock(&pool->lock);
        for (int i = 0; i < LOOKS && atomic_load_explicit(&pool->active, memory_order_relaxed); i++)
            relax();
        vv_mutex_lock(&pool->lock);
    }
    while (pool->active > 0)
        vv_cond_wait(&pool->idle, &pool->lock);
    pool->busy = false;
    vv_mutex_unlock(&pool->lock);
}

/* Copies by the calling thread. Segments that are small by themselves and large together are streamed. */
static void copy_alone(const struct vv_copy_seg *segs, size_t count, size_t whole)
{
    size_t min = vv_copy_stream_min();

    for (size_t i = 0; i < count; i++)
        vv_copy_with(whole >= min && segs[i].bytes < min ? vv_copy_kernel_best() : VV_COPY_PLAIN,
                     segs[i].dst, segs[i].src, segs[i].bytes);
}

void vv_copy_part(struct vv_copy_pool *pool, const struct vv_copy_seg *segs, size_t count,
                  size_t whole)
{
    struct job job = {.segs = segs, .count = count};
    size_t bytes = 0;

    for (size_t i = 0; i < count; i++)
        bytes += segs[i].bytes;
    if (!pool || pool->helpers == 0 || bytes < VV_COPY_ALONE_BYTES) {
        copy_alone(segs, count, whole);
        return;
    }
    job.helpers = (unsigned)VV_MIN((size_t)pool->helpers, bytes / HELPER_BYTES);
    job.kernel = whole >= vv_copy_stream_min() ? vv_copy_kernel_best() : VV_COPY_PLAIN;
    job.slice_bytes = bytes / ((job.helpers + 1) * SLICES_EACH) / SLICE_MIN_BYTES * SLICE_MIN_BYTES;
    job.slice_bytes = VV_MIN(VV_MAX(job.slice_bytes, SLICE_MIN_BYTES), SLICE_MAX_BYTES);
    for (size_t i = 0; i < count; i++)
        job.slices += slices_of(&job, segs[i].bytes);
    if (!post(pool, &job)) {
        copy_alone(segs, count, whole);
        return;
    }
    work_on(&job);
    retire(pool);
}
