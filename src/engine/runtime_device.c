/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Movers between device and host memory.
 *
 * A hop has as many threads as orders may be in flight on it, each with a stream and an event of
 * its own: while one waits for its copy the other has the next one queued at the copy engine, so
 * that the link does not idle between two orders. Both take from one queue; the core has put it in
 * order.
 *
 * What must stay true: an order is completed only when the device no longer touches its memory,
 * because the core gives the pages away at once. An error does not say that: a failed event_record
 * leaves a copy running that nobody can wait for. Hence vvi_device_settle before every completion
 * with an error.
 */
#include <errno.h>
#include <stdlib.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/thread.h"
#include "engine/nap.h"
#include "engine/runtime_private.h"
#include "trace/trace.h"

#define WAIT_STEP_NS   ((int64_t)1000000000)
#define SETTLE_TRIES   4
#define ASK_REST_NS    (20 * VV_NS_PER_US)
#define SETTLE_REST_NS (100 * VV_NS_PER_MS)

size_t vvi_seg_add(struct vv_copy_seg *segs, size_t n, char *dst, const char *src, size_t bytes)
{
    if (n > 0) {
        struct vv_copy_seg *last = &segs[n - 1];
        if ((char *)last->dst + last->bytes == dst &&
            (const char *)last->src + last->bytes == src) {
            last->bytes += bytes;
            return n;
        }
    }
    segs[n] = (struct vv_copy_seg){dst, src, bytes};
    return n + 1;
}

int vvi_device_copy(struct vv_engine *e, struct vv_stream *stream, const struct vv_copy_seg *segs,
                    size_t n)
{
    if (atomic_load_explicit(&e->device_lost, memory_order_relaxed))
        return -ENODEV;
    return vv_device_copy_async(e->cfg.device, stream, segs, n);
}

void vvi_device_drain(struct vv_engine *e)
{
    struct vv_device *d = e->cfg.device;
    /* Freeing memory waits for all work submitted so far. */
    void *ptr;
    if (vv_device_mem_alloc(d, 1, &ptr) == 0 && vv_device_mem_free(d, ptr) == 0)
        return;
    /* The device refuses everything and can no longer be asked: from now on it counts as lost. All
     * that is left is to give copies accepted earlier the time to end. */
    atomic_store_explicit(&e->device_lost, true, memory_order_relaxed);
    vv_sleep_until_ns(vv_now_ns() + SETTLE_REST_NS);
}

void vvi_device_settle(struct vv_engine *e, struct vv_stream *stream, struct vv_event *event,
                       int error)
{
    struct vv_device *d = e->cfg.device;
    if (error == -ENODEV) {
        /* A lost device has stopped touching memory. */
        atomic_store_explicit(&e->device_lost, true, memory_order_relaxed);
        return;
    }
    for (int i = 0; i < SETTLE_TRIES; i++) {
        if (vv_device_event_record(d, event, stream))
            continue;
        int rc;
        do
            rc = vv_device_event_wait(d, event, WAIT_STEP_NS);
        while (rc == -ETIMEDOUT);
        if (rc == 0 || rc == -ENODEV)
            return;
    }
    vvi_device_drain(e);
}

struct device_worker {
    struct vvi_mover *mover;
    struct vv_stream *stream;
    struct vv_event *event;
    struct vvi_nap nap;
};

/* Sleeps through most of a copy and then asks now and then. Asking all the time would hold up every
 * other call of the driver, the application's own among them; to notice the end a little late costs
 * nothing, because the other thread of the hop has its copy queued behind. */
static int wait_politely(struct device_worker *w, uint64_t bytes)
{
    uint64_t start_ns = vv_now_ns();
    bool overslept = true;
    int rc;

    vv_sleep_until_ns(start_ns + vvi_nap_ns(&w->nap, bytes));
    while ((rc = vv_device_event_query(w->mover->engine->cfg.device, w->event)) == -EBUSY) {
        overslept = false;
        vv_sleep_until_ns(vv_now_ns() + ASK_REST_NS);
    }
    vvi_nap_learn(&w->nap, bytes, vv_now_ns() - start_ns, overslept);
    return rc;
}

static int move_order(struct device_worker *w, const struct vv_order *o)
{
    struct vv_engine *e = w->mover->engine;
    struct vv_device *d = e->cfg.device;
    struct vv_copy_seg segs[VV_ORDER_MAX_PAGES];
    size_t n = 0;
    for (uint32_t i = 0; i < o->nchunks; i++)
        n = vvi_seg_add(segs, n, vvi_engine_page(e, o->dst_tier, o->dst_page[i]),
                        vvi_engine_page(e, o->src_tier, o->src_page[i]),
                        vvi_order_chunk_bytes(e, o, o->chunk0 + i));
    int rc = vvi_device_copy(e, w->stream, segs, n);
    if (rc)
        return rc;
    rc = vv_device_event_record(d, w->event, w->stream);
    if (rc == 0)
        rc = wait_politely(w, o->bytes);
    if (rc)
        vvi_device_settle(e, w->stream, w->event, rc);
    return rc;
}

static void worker_free(struct device_worker *w)
{
    if (!w)
        return;
    struct vv_device *d = w->mover->engine->cfg.device;
    vv_device_event_free(d, w->event);
    vv_device_stream_free(d, w->stream);
    free(w);
}

static int worker_new(struct vvi_mover *m, struct device_worker **ret_worker)
{
    struct vv_device *d = m->engine->cfg.device;
    struct device_worker *w = calloc(1, sizeof(*w));
    if (!w)
        return -ENOMEM;
    w->mover = m;
    vvi_nap_init(&w->nap);
    int rc = vv_device_stream_new(d, &w->stream);
    if (rc == 0)
        rc = vv_device_event_new(d, &w->event);
    if (rc) {
        worker_free(w);
        return rc;
    }
    *ret_worker = w;
    return 0;
}

static void *device_mover_main(void *arg)
{
    struct device_worker *w = arg;
    struct vvi_mover *m = w->mover;
    struct vv_engine *e = m->engine;

    vv_thread_sharpen();
    vv_trace_thread(vv_hop_name(m->hop));
    vvi_engine_lock(e);
    for (;;) {
        struct vv_order *o = vvi_order_pop(&m->queue);
        if (!o) {
            if (e->stopping)
                break;
            vvi_engine_wait_locked(e, &m->cond, VV_NEVER_NS);
            continue;
        }
        vvi_engine_unlock(e);
        vvi_trace_copy_start(e, o);
        int rc = move_order(w, o);
        vvi_trace_copy_end(e, o, rc);
        vvi_engine_lock(e);
        vvi_engine_complete_locked(e, o, rc);
    }
    vvi_engine_unlock(e);
    worker_free(w);
    return NULL;
}

int vvi_device_mover_start(struct vv_engine *e, enum vv_hop hop)
{
    struct vvi_mover *m = &e->mover[hop];
    for (int i = 0; i < VVI_DEVICE_MOVER_THREADS; i++) {
        struct device_worker *w;
        int rc = worker_new(m, &w);
        if (rc)
            return rc;
        rc = vv_thread_start(&m->thread[m->nthreads], device_mover_main, w);
        if (rc) {
            worker_free(w);
            return rc;
        }
        m->nthreads++;
    }
    return 0;
}
