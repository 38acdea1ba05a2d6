/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Completing requests after their calls have returned.
 *
 * A copy within a device takes less than a hundred microseconds, and the completion of a request
 * takes a tenth of that: if the application had to wait for it, it would lose a tenth of its
 * bandwidth. So the caller, once all its copies have ended well, only puts its request on a list
 * and returns. The next thread that takes the engine lock completes it first (vvi_engine_lock). No
 * call can tell the difference, since none reads the core before that.
 *
 * The finisher is a thread that takes the lock if no other does, so that flushes and prefetches
 * continue. It is woken after the copies have been submitted, while they run, because waking a
 * thread is a system call; until the request comes it checks the list every few microseconds.
 *
 * Risk: a request that has returned success can no longer fail. If a flush that ran ahead has
 * failed in between, vv_core_promise turns its error into a late error of the version.
 */
#include <errno.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/thread.h"
#include "engine/runtime/runtime_private.h"

#define LOOK_FIRST_NS (20 * VV_NS_PER_US)
#define LOOK_MOST_NS  (200 * VV_NS_PER_US)

static void drain_locked(struct vv_engine *e)
{
    struct vvi_req *newest = atomic_exchange_explicit(&e->finished, NULL, memory_order_acquire);
    struct vvi_req *oldest = NULL;

    while (newest) {
        struct vvi_req *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    while (oldest) {
        struct vvi_req *r = oldest;
        oldest = r->next;
        vv_core_promise(e->core, &r->req);
        vvi_req_complete_locked(e, r);
        vv_assert(r->done);
        vvi_req_put_locked(e, r);
    }
}

void vvi_engine_lock(struct vv_engine *e)
{
    vv_mutex_lock(&e->lock);
    vvi_engine_drain_locked(e);
}

void vvi_engine_drain_locked(struct vv_engine *e)
{
    if (atomic_load_explicit(&e->finished, memory_order_relaxed))
        drain_locked(e);
}

void vvi_finisher_wake(struct vv_engine *e)
{
    atomic_fetch_add_explicit(&e->finishing, 1, memory_order_relaxed);
    vv_mutex_lock(&e->finisher_lock);
    if (!e->finisher_awake) {
        e->finisher_awake = true;
        vv_cond_signal(&e->finisher_cond);
    }
    vv_mutex_unlock(&e->finisher_lock);
}

void vvi_finisher_forget(struct vv_engine *e)
{
    atomic_fetch_sub_explicit(&e->finishing, 1, memory_order_relaxed);
}

void vvi_finish(struct vv_engine *e, struct vvi_req *r)
{
    r->next = atomic_load_explicit(&e->finished, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&e->finished, &r->next, r, memory_order_release,
                                                  memory_order_relaxed))
        ;
    atomic_fetch_sub_explicit(&e->finishing, 1, memory_order_release);
}

/* Returns when no request is about to be finished and none is on the list. */
static void finish_all(struct vv_engine *e)
{
    uint64_t look_ns = LOOK_FIRST_NS;

    for (;;) {
        bool coming = atomic_load_explicit(&e->finishing, memory_order_acquire) > 0;

        if (atomic_load_explicit(&e->finished, memory_order_relaxed)) {
            vvi_engine_lock(e);
            vvi_engine_unlock(e);
            look_ns = LOOK_FIRST_NS;
        } else if (!coming) {
            return;
        } else {
            vv_sleep_until_ns(vv_now_ns() + look_ns);
            look_ns = VV_MIN(look_ns + look_ns / 2, (uint64_t)LOOK_MOST_NS);
        }
    }
}

static void *finisher_main(void *arg)
{
    struct vv_engine *e = arg;

    vv_thread_sharpen();
    vv_trace_thread("finisher");
    vv_mutex_lock(&e->finisher_lock);
    while (!e->finisher_stop) {
        if (!e->finisher_awake) {
            vv_cond_wait(&e->finisher_cond, &e->finisher_lock);
            continue;
        }
        vv_mutex_unlock(&e->finisher_lock);
        finish_all(e);
        vv_mutex_lock(&e->finisher_lock);
        /* A request that came after the last check has found the finisher awake. Pairs with the
         * release in vvi_finish: a request no longer counted is visible on the list. */
        if (atomic_load_explicit(&e->finishing, memory_order_acquire) == 0 &&
            !atomic_load_explicit(&e->finished, memory_order_relaxed))
            e->finisher_awake = false;
    }
    vv_mutex_unlock(&e->finisher_lock);
    return NULL;
}

int vvi_finisher_start(struct vv_engine *e)
{
    int rc = vv_thread_start(&e->finisher, finisher_main, e);

    e->finisher_runs = rc == 0;
    return rc;
}

void vvi_finisher_stop(struct vv_engine *e)
{
    if (!e->finisher_runs)
        return;
    vv_mutex_lock(&e->finisher_lock);
    e->finisher_stop = true;
    vv_cond_signal(&e->finisher_cond);
    vv_mutex_unlock(&e->finisher_lock);
    pthread_join(e->finisher, NULL);
    e->finisher_runs = false;
}
