/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One word, `state`, says whose turn it is:
 *
 *   ASLEEP -> IDLE        the deputy, when it was woken
 *   IDLE -> ASLEEP        the deputy, when no call came for a while
 *   IDLE -> CLAIMED       a caller, which alone writes the call then
 *   CLAIMED -> POSTED     the same caller
 *   POSTED -> TAKEN       the deputy, which alone reads the call and writes its result then
 *   POSTED -> IDLE        the caller, which takes back a call that was not taken in time
 *   TAKEN -> DONE         the deputy
 *   DONE -> IDLE          the caller, which has read the result
 *
 * Every edge that hands something over is a release and is seen with an acquire. The caller watches
 * for a while and then sleeps on a condition variable; `sleeper` tells the deputy that it does. Both
 * sides write one of `state` and `sleeper` and then read the other, sequentially consistent, so that
 * one of them at least sees what the other wrote; and the caller looks once more under the lock that
 * the deputy takes to wake it.
 *
 * What could go wrong: the deputy is awake but the system does not run it. Calls not yet taken are
 * taken back. If that happens time and again there is no processor to spare, and it is sent to sleep,
 * each time for longer (`misses`, `rest_until_ns`); once is nothing, as systems and the machines below
 * them let any thread wait now and then, and the calls made without it cost more than the look. One
 * that is keeping itself warm (`warming`) is being run, and is given more time before it is thought of
 * like that. A call that it has taken has to be waited for.
 */
#include "core/deputy.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/crew.h"
#include "core/lock.h"
#include "core/thread.h"

#define AWAKE_NS ((uint64_t)40 * VV_NS_PER_MS)
#define WARM_NS  ((uint64_t)17 * VV_NS_PER_US)
#define TAKE_NS  ((uint64_t)20 * VV_NS_PER_US)
#define WATCH_NS ((uint64_t)300 * VV_NS_PER_US) /* a caller, before it sleeps */
#define REST_NS  ((uint64_t)8 * VV_NS_PER_MS)   /* when it was too slow to take two calls */
#define RESTS    7                              /* times that rest is doubled: 1 s at most */
#define WARMING  8                              /* times take_ns for one that keeps itself warm */
#define LOOKS    16                             /* at the state between two looks at the clock */

enum { ASLEEP, IDLE, CLAIMED, POSTED, TAKEN, DONE };

struct vv_deputy {
    struct vv_deputy_opts opts; /* immutable */
    pthread_t thread;           /* immutable */

    _Alignas(128) _Atomic int state;
    /* The call. Owner: see the edges above. */
    int (*fn)(void *arg);
    void *arg;
    int result;
    _Atomic bool sleeper;
    /* It is inside `warm`. Synchronization: relaxed; seen late, a call is taken back in vain or waits
     * a little longer. */
    _Atomic bool warming;
    _Atomic uint64_t calls; /* Synchronization: relaxed, a figure */

    /* Synchronization: relaxed, all four. Seen late, the deputy sleeps or wakes a call later. */
    _Alignas(128) _Atomic uint64_t last_ns; /* when a call was last made without it */
    _Atomic uint64_t rest_until_ns;
    _Atomic unsigned misses; /* calls that it was too slow to take, less those taken since */
    _Atomic bool stop;

    struct vv_mutex lock;
    struct vv_cond wake, done; /* for the deputy; for a caller */
    bool woken;                /* Synchronization: lock */
};

static inline void pause_a_little(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool move(struct vv_deputy *d, int from, int to)
{
    return atomic_compare_exchange_strong_explicit(&d->state, &from, to, memory_order_acq_rel,
                                                   memory_order_relaxed);
}

/* ---- the deputy ---- */

static void serve(struct vv_deputy *d)
{
    d->result = d->fn(d->arg);
    atomic_fetch_add_explicit(&d->calls, 1, memory_order_relaxed);
    atomic_store_explicit(&d->state, DONE, memory_order_seq_cst);
    if (atomic_load_explicit(&d->sleeper, memory_order_seq_cst)) {
        vv_mutex_lock(&d->lock);
        vv_cond_signal(&d->done);
        vv_mutex_unlock(&d->lock);
    }
}

static void keep_warm(struct vv_deputy *d, unsigned step)
{
    if (!d->opts.warm)
        return;
    atomic_store_explicit(&d->warming, true, memory_order_relaxed);
    d->opts.warm(d->opts.warm_arg, step);
    atomic_store_explicit(&d->warming, false, memory_order_relaxed);
}

/* Serves calls until none has come for a while. */
static void stay_awake(struct vv_deputy *d)
{
    uint64_t last_ns = vv_now_ns(), warm_ns = last_ns;
    unsigned step = 0;

    while (!atomic_load_explicit(&d->stop, memory_order_relaxed)) {
        for (int i = 0; i < LOOKS; i++) {
            if (atomic_load_explicit(&d->state, memory_order_relaxed) == POSTED)
                break;
            pause_a_little();
        }
        if (move(d, POSTED, TAKEN)) {
            serve(d);
            last_ns = warm_ns = vv_now_ns();
            continue;
        }
        uint64_t now_ns = vv_now_ns();
        bool rests = now_ns < atomic_load_explicit(&d->rest_until_ns, memory_order_relaxed);
        if ((rests || now_ns - last_ns > d->opts.awake_ns) && move(d, IDLE, ASLEEP))
            return;
        if (now_ns - warm_ns > d->opts.warm_ns) {
            keep_warm(d, step);
            step = step + 1 < d->opts.warm_steps ? step + 1 : 0;
            warm_ns = vv_now_ns();
        }
    }
}

static void *deputy_main(void *arg)
{
    struct vv_deputy *d = arg;

    vv_crew_name("deputy");
    vv_mutex_lock(&d->lock);
    while (!atomic_load_explicit(&d->stop, memory_order_relaxed)) {
        if (!d->woken) {
            vv_cond_wait(&d->wake, &d->lock);
            continue;
        }
        d->woken = false;
        vv_mutex_unlock(&d->lock);
        if (d->opts.wakes)
            d->opts.wakes(d->opts.warm_arg);
        /* What it does first is as cold as its caller would be. */
        for (unsigned step = 0; step < VV_MAX(d->opts.warm_steps, 1u); step++)
            keep_warm(d, step);
        if (move(d, ASLEEP, IDLE))
            stay_awake(d);
        if (d->opts.sleeps)
            d->opts.sleeps(d->opts.warm_arg);
        vv_mutex_lock(&d->lock);
    }
    vv_mutex_unlock(&d->lock);
    return NULL;
}

/* ---- callers ---- */

/* A call was taken back: the first of them may be chance. More than make a difference are not counted:
 * they would have to be made good. */
static void missed(struct vv_deputy *d)
{
    unsigned before = atomic_load_explicit(&d->misses, memory_order_relaxed);

    if (before < RESTS + 2)
        atomic_fetch_add_explicit(&d->misses, 1, memory_order_relaxed);
    if (before > 0)
        atomic_store_explicit(&d->rest_until_ns,
                              vv_now_ns() + (REST_NS << VV_MIN(before - 1, (unsigned)RESTS)),
                              memory_order_relaxed);
}

/* Waits until the deputy has taken the call, or takes it back. */
static bool taken(struct vv_deputy *d)
{
    uint64_t start_ns = vv_now_ns();

    for (;;) {
        for (int i = 0; i < LOOKS; i++) {
            int state = atomic_load_explicit(&d->state, memory_order_relaxed);
            if (state == TAKEN || state == DONE)
                return true;
            pause_a_little();
        }
        bool warming = atomic_load_explicit(&d->warming, memory_order_relaxed);
        uint64_t most_ns = warming ? WARMING * d->opts.take_ns : d->opts.take_ns;
        if (vv_now_ns() - start_ns > most_ns && move(d, POSTED, IDLE)) {
            missed(d);
            return false;
        }
    }
}

static void wait_done(struct vv_deputy *d)
{
    uint64_t start_ns = vv_now_ns();

    do {
        for (int i = 0; i < LOOKS; i++) {
            if (atomic_load_explicit(&d->state, memory_order_acquire) == DONE)
                return;
            pause_a_little();
        }
    } while (vv_now_ns() - start_ns < WATCH_NS);

    atomic_store_explicit(&d->sleeper, true, memory_order_seq_cst);
    vv_mutex_lock(&d->lock);
    while (atomic_load_explicit(&d->state, memory_order_seq_cst) != DONE)
        vv_cond_wait(&d->done, &d->lock);
    vv_mutex_unlock(&d->lock);
    atomic_store_explicit(&d->sleeper, false, memory_order_relaxed);
}

bool vv_deputy_call(struct vv_deputy *d, int (*fn)(void *arg), void *arg, int *ret_result)
{
    if (atomic_load_explicit(&d->state, memory_order_relaxed) != IDLE || !move(d, IDLE, CLAIMED))
        return false;
    d->fn = fn;
    d->arg = arg;
    atomic_store_explicit(&d->state, POSTED, memory_order_release);
    if (!taken(d))
        return false;
    unsigned misses = atomic_load_explicit(&d->misses, memory_order_relaxed);
    if (misses > 0)
        atomic_store_explicit(&d->misses, misses - 1, memory_order_relaxed);
    wait_done(d);
    *ret_result = d->result;
    atomic_store_explicit(&d->state, IDLE, memory_order_release);
    return true;
}

void vv_deputy_missed(struct vv_deputy *d)
{
    uint64_t now_ns = vv_now_ns();
    uint64_t last_ns = atomic_exchange_explicit(&d->last_ns, now_ns, memory_order_relaxed);

    if (now_ns - last_ns > d->opts.awake_ns ||
        now_ns < atomic_load_explicit(&d->rest_until_ns, memory_order_relaxed) ||
        atomic_load_explicit(&d->state, memory_order_relaxed) != ASLEEP)
        return;
    vv_mutex_lock(&d->lock);
    d->woken = true;
    vv_cond_signal(&d->wake);
    vv_mutex_unlock(&d->lock);
}

uint64_t vv_deputy_calls(const struct vv_deputy *d)
{
    return atomic_load_explicit(&d->calls, memory_order_relaxed);
}

/* ---- its life ---- */

int vv_deputy_new(const struct vv_deputy_opts *opts, struct vv_deputy **ret_deputy)
{
    struct vv_deputy *d = aligned_alloc(_Alignof(struct vv_deputy), sizeof(*d));
    if (!d)
        return -ENOMEM;
    *d = (struct vv_deputy){.opts = *opts, .woken = opts->awake};
    if (d->opts.awake_ns == 0)
        d->opts.awake_ns = AWAKE_NS;
    if (d->opts.warm_ns == 0)
        d->opts.warm_ns = WARM_NS;
    if (d->opts.take_ns == 0)
        d->opts.take_ns = TAKE_NS;
    vv_mutex_init(&d->lock, "deputy", VV_RANK_MOVER);
    vv_cond_init(&d->wake);
    vv_cond_init(&d->done);
    int rc = vv_thread_start(&d->thread, deputy_main, d);
    if (rc) {
        vv_cond_fini(&d->done);
        vv_cond_fini(&d->wake);
        vv_mutex_fini(&d->lock);
        free(d);
        return rc;
    }
    *ret_deputy = d;
    return 0;
}

void vv_deputy_free(struct vv_deputy *d)
{
    if (!d)
        return;
    vv_mutex_lock(&d->lock);
    atomic_store_explicit(&d->stop, true, memory_order_relaxed);
    vv_cond_signal(&d->wake);
    vv_mutex_unlock(&d->lock);
    pthread_join(d->thread, NULL);
    vv_assert(d->state == ASLEEP || d->state == IDLE);
    vv_cond_fini(&d->done);
    vv_cond_fini(&d->wake);
    vv_mutex_fini(&d->lock);
    free(d);
}
