/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The threads that do the work: one per copy direction, so that all directions run at once, and one
 * for kernels, the application's and ours.
 *
 * Pacing. Each engine and each stream has a clock of its own: the time at which work would have ended if no thread
 * had ever been late. By these clocks, a batch starts when it is submitted, the work before it in its stream has
 * ended and the engine is free; it ends after its latency and its bytes over the rate. The thread copies at once and
 * then sleeps until that end. A thread that wakes up late does not move the clocks, so the next queued batch makes up
 * for the delay, and the rate holds on average for batches of any size. Time in which nothing was queued is not made
 * up for. If a caller waits for the only batch, it would lose the time of a late end, and virtual machines wake
 * sleepers 50 us late and more. Then, and only then, the thread sleeps less, by how late timers have been so far, and
 * spins for the rest.
 *
 * Without a rate a batch takes as long as the processor needs to copy it.
 *
 * An engine waits on its condition variable when it is idle and while it paces; losing the device ends both waits. An
 * item that an engine works on stays at the head of its stream, so streams keep their order by themselves.
 */
#include <errno.h>
#include <sys/prctl.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/copy.h"
#include "base/thread.h"
#include "device/host/host_private.h"

/* The longest time that an engine spins for one batch. */
#define MAX_SPIN_NS UINT64_C(150000)

static uint64_t bytes_to_ns(uint64_t bytes, uint64_t bytes_per_s)
{
    return (uint64_t)((double)bytes * 1e9 / (double)bytes_per_s);
}

static void copy_segs(const struct vvi_device_item *it)
{
    for (size_t i = 0; i < it->n_segs; i++)
        vv_copy(it->segs[i].dst, it->segs[i].src, it->segs[i].bytes);
}

/* True if ending `it` late costs time: a thread waits for it, and no other work is queued. */
static bool end_matters_locked(const struct vvi_device_host *d, const struct vvi_device_engine *e,
                               const struct vvi_device_item *it)
{
    const struct vvi_device_item *next = it->next;

    while (next && next->kind == VVI_DEVICE_ITEM_RECORD)
        next = next->next;
    return d->n_waiters && !e->head && !next;
}

/* Sleeps until `until_ns` at the latest, and measures how late this machine's timers are. */
static void sleep_locked(struct vvi_device_host *d, struct vvi_device_engine *e, uint64_t until_ns)
{
    if (vv_cond_wait_until(&e->cond, &d->lock, until_ns) == -ETIMEDOUT) {
        uint64_t late_ns = vv_now_ns() - until_ns;

        e->late_ns += ((double)VV_MIN(late_ns, MAX_SPIN_NS) - e->late_ns) / 8;
    }
}

static void pace_locked(struct vvi_device_host *d, struct vvi_device_engine *e,
                        const struct vvi_device_item *it, uint64_t end_ns)
{
    uint64_t now_ns;

    while (!d->losing && (now_ns = vv_now_ns()) < end_ns) {
        uint64_t spin_ns = VV_MIN((uint64_t)(1.5 * e->late_ns), MAX_SPIN_NS);

        if (!end_matters_locked(d, e, it)) {
            sleep_locked(d, e, end_ns);
        } else if (now_ns + spin_ns < end_ns) {
            sleep_locked(d, e, end_ns - spin_ns);
        } else {
            vv_mutex_unlock(&d->lock);
            while (vv_now_ns() < end_ns)
                ;
            vv_mutex_lock(&d->lock);
        }
    }
}

/* Returns with the lock held again, and with the end time by the engine's clock. */
static uint64_t run_copy_locked(struct vvi_device_host *d, struct vvi_device_engine *e,
                                const struct vvi_device_item *it, uint64_t start_ns)
{
    struct vv_device_host_rate rate = d->opts.engine[e->index];
    uint64_t cost_ns, before_ns, after_ns;

    if (it->pageable && d->opts.pageable_bytes_per_s)
        rate.bytes_per_s = d->opts.pageable_bytes_per_s;

    vv_mutex_unlock(&d->lock);
    before_ns = vv_now_ns();
    if (!it->fail_err)
        copy_segs(it);
    after_ns = vv_now_ns();
    vv_mutex_lock(&d->lock);

    cost_ns = rate.latency_ns;
    cost_ns += rate.bytes_per_s ? bytes_to_ns(it->bytes, rate.bytes_per_s) : after_ns - before_ns;
    pace_locked(d, e, it, start_ns + cost_ns);
    d->stats.engine[e->index].batches++;
    d->stats.engine[e->index].bytes += it->fail_err ? 0 : it->bytes;
    d->stats.engine[e->index].busy_ns += cost_ns;
    return start_ns + cost_ns;
}

static uint64_t run_kernel_locked(struct vvi_device_host *d, struct vvi_device_engine *e,
                                  const struct vvi_device_item *it, uint64_t start_ns)
{
    if (it->hold) {
        while (!d->losing && !d->app_releases)
            vv_cond_wait(&e->cond, &d->lock);
        if (!d->losing)
            d->app_releases--;
        return vv_now_ns();
    }
    if (it->fn) {
        vv_mutex_unlock(&d->lock);
        it->fn(it->arg);
        vv_mutex_lock(&d->lock);
        return vv_now_ns();
    }
    if (it->ours) {
        vv_mutex_unlock(&d->lock);
        vvi_device_kernel_run(it);
        vv_mutex_lock(&d->lock);
        if (!it->run_ns)
            return vv_now_ns();
        pace_locked(d, e, it, start_ns + it->run_ns);
        return VV_MAX(start_ns + it->run_ns, vv_now_ns());
    }
    pace_locked(d, e, it, start_ns + it->run_ns);
    return start_ns + it->run_ns;
}

static void run_item_locked(struct vvi_device_host *d, struct vvi_device_engine *e,
                            struct vvi_device_item *it)
{
    uint64_t end_ns = VV_MAX(it->ready_ns, e->next_free_ns);
    int err = -ENODEV;

    if (!d->losing) {
        bool kernel = it->kind == VVI_DEVICE_ITEM_KERNEL;

        end_ns = kernel ? run_kernel_locked(d, e, it, end_ns) : run_copy_locked(d, e, it, end_ns);
        e->next_free_ns = end_ns;
        err = it->fail_err;
    }
    vvi_device_item_done_locked(d, it, err, end_ns);
}

static void *engine_main(void *arg)
{
    struct vvi_device_engine *e = arg;
    struct vvi_device_host *d = e->device;

    vv_thread_unbind(); /* it emulates hardware, which takes no core */
    /* Timers of ordinary threads may fire 50 us late, a large part of one small batch. */
    (void)prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);

    vv_mutex_lock(&d->lock);
    for (;;) {
        struct vvi_device_item *it;

        while (!e->head && !d->stop)
            vv_cond_wait(&e->cond, &d->lock);
        it = e->head;
        if (!it)
            break;
        e->head = it->next_ready;
        if (!e->head)
            e->tail = NULL;
        run_item_locked(d, e, it);
    }
    vv_mutex_unlock(&d->lock);
    return NULL;
}

void vvi_device_engine_push_locked(struct vvi_device_host *d, struct vvi_device_item *it)
{
    struct vvi_device_engine *e = &d->engine[it->engine];

    vv_assert(!it->dispatched && vv_mutex_held(&d->lock));
    it->dispatched = true;
    it->next_ready = NULL;
    if (e->tail)
        e->tail->next_ready = it;
    else
        e->head = it;
    e->tail = it;
    vv_cond_signal(&e->cond);
}

int vvi_device_engines_start(struct vvi_device_host *d)
{
    for (unsigned i = 0; i < VVI_DEVICE_N_ENGINES; i++) {
        struct vvi_device_engine *e = &d->engine[i];
        int rc;

        rc = vv_thread_start(&e->thread, engine_main, e);
        if (rc)
            return rc;
        e->started = true;
    }
    return 0;
}

void vvi_device_engines_stop(struct vvi_device_host *d)
{
    vv_mutex_lock(&d->lock);
    d->stop = true;
    for (unsigned i = 0; i < VVI_DEVICE_N_ENGINES; i++)
        vv_cond_signal(&d->engine[i].cond);
    vv_mutex_unlock(&d->lock);

    for (unsigned i = 0; i < VVI_DEVICE_N_ENGINES; i++) {
        if (d->engine[i].started)
            (void)pthread_join(d->engine[i].thread, NULL);
        d->engine[i].started = false;
    }
}
