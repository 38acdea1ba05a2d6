/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parallel copies. A job is a list of segments, cut into slices of SLICE_BYTES. Caller and helpers
 * take slices from one atomic counter until none is left, so that a helper that wakes late costs
 * nothing but its share.
 *
 * One job runs at a time. A second caller does not wait for the first: it copies by itself, since
 * by then memory bandwidth is being used anyway, and nobody is ever blocked on somebody else's
 * copy.
 *
 * A job lives on its caller's stack. Helpers enter it under the lock (`active` counts them) and the
 * caller returns only when the last one has left, so that none can touch a job that is gone.
 */
#include "core/copy.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/lock.h"
#include "core/thread.h"
#include "core/topo.h"

/* Small enough to share a few MiB evenly, large enough that the counter does not matter. */
#define SLICE_BYTES ((size_t)512 << 10)

/* Below this, waking helpers takes longer than the copy. */
#define PARALLEL_MIN_BYTES ((size_t)2 << 20)

#define HELPERS_MAX 256

struct job {
    const struct vv_copy_seg *segs; /* immutable */
    size_t count;                   /* immutable */
    size_t slices;                  /* immutable */
    _Atomic size_t next; /* relaxed: it only deals out numbers; the lock orders the bytes */
};

struct vv_copy_pool {
    struct vv_mutex lock;
    struct vv_cond work; /* a job was posted, or stop */
    struct vv_cond idle; /* active fell to 0 */
    struct job *job;     /* Synchronization: lock. NULL when none is running */
    uint64_t posted; /* Synchronization: lock. Number of jobs so far: a helper enters each at most
                        once */
    unsigned active; /* Synchronization: lock. Helpers inside the job */
    bool busy;       /* Synchronization: lock. A caller owns the pool */
    bool stop;       /* Synchronization: lock */
    unsigned helpers;
    pthread_t threads[];
};

void vv_copy(void *dst, const void *src, size_t n)
{
    memcpy(dst, src, n);
}

static size_t slices_of(size_t bytes)
{
    return vv_div_up(bytes, SLICE_BYTES);
}

static void work_on(struct job *job)
{
    size_t seg = 0, first = 0; /* slice number of segs[seg]'s beginning; both only move forward */
    size_t slice;

    while ((slice = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed)) < job->slices) {
        const struct vv_copy_seg *s;
        size_t offset;

        while (slice - first >= slices_of(job->segs[seg].bytes))
            first += slices_of(job->segs[seg++].bytes);
        s = &job->segs[seg];
        offset = (slice - first) * SLICE_BYTES;
        vv_copy((char *)s->dst + offset, (const char *)s->src + offset,
                VV_MIN(SLICE_BYTES, s->bytes - offset));
    }
}

static void *helper_main(void *arg)
{
    struct vv_copy_pool *pool = arg;
    uint64_t seen = 0;

    vv_mutex_lock(&pool->lock);
    for (;;) {
        struct job *job;

        while (!pool->stop && (!pool->job || pool->posted == seen))
            vv_cond_wait(&pool->work, &pool->lock);
        if (pool->stop)
            break;
        seen = pool->posted;
        job = pool->job;
        pool->active++;
        vv_mutex_unlock(&pool->lock);
        work_on(job);
        vv_mutex_lock(&pool->lock);
        if (--pool->active == 0)
            vv_cond_signal(&pool->idle);
    }
    vv_mutex_unlock(&pool->lock);
    return NULL;
}

/* Two hardware threads of a core copy no faster than one, and eight cores no faster than four to
 * eight: measured on the host, memcpy by 1, 4 and 8 threads reaches 9, 29 and 31 GB/s. */
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

/* Makes the caller the owner of the pool, if nobody is. */
static bool post(struct vv_copy_pool *pool, struct job *job)
{
    bool mine;

    vv_mutex_lock(&pool->lock);
    mine = !pool->busy;
    if (mine) {
        pool->busy = true;
        pool->job = job;
        pool->posted++;
        vv_cond_broadcast(&pool->work);
    }
    vv_mutex_unlock(&pool->lock);
    return mine;
}

static void retire(struct vv_copy_pool *pool)
{
    vv_mutex_lock(&pool->lock);
    pool->job = NULL; /* from here on no helper enters */
    while (pool->active > 0)
        vv_cond_wait(&pool->idle, &pool->lock);
    pool->busy = false;
    vv_mutex_unlock(&pool->lock);
}

void vv_copy_parallel(struct vv_copy_pool *pool, const struct vv_copy_seg *segs, size_t count)
{
    struct job job = {.segs = segs, .count = count};
    size_t bytes = 0;

    for (size_t i = 0; i < count; i++) {
        bytes += segs[i].bytes;
        job.slices += slices_of(segs[i].bytes);
    }
    if (!pool || pool->helpers == 0 || bytes < PARALLEL_MIN_BYTES || !post(pool, &job)) {
        work_on(&job);
        return;
    }
    work_on(&job);
    retire(pool);
}
