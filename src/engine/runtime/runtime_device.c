/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Movers between device and host memory.
 *
 * A hop has one thread and one stream. All orders in flight on the hop are queued on the stream,
 * each with an event behind it. The thread waits for the oldest, reports it, and queues the orders
 * that follow. So the link does not idle between two orders. With more than two queued it does not
 * idle either when the thread is late, as happens on a machine with other work: the link would
 * first have to end all copies behind the oldest.
 *
 * Invariant: an order is completed only when the device no longer touches its memory, because the
 * core gives the pages away at once. An error does not guarantee that: after a failed event_record
 * a copy may run without an event to wait for. Hence vvi_device_settle before every completion with
 * an error.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/thread.h"
#include "engine/runtime/copy_sleep.h"
#include "engine/runtime/runtime_private.h"
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
    /* The device refuses everything and cannot be queried any more: from now on it counts as lost.
     * Copies accepted earlier get time to end. */
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

/* A mover's stream, with the orders in flight on it, oldest first. Owned by its thread. */
struct line {
    struct vvi_mover *mover;
    struct vv_stream *stream;
    struct {
        struct vv_event *event;
        struct vv_order *order;
    } place[VVI_MOVER_DEPTH];
    unsigned depth; /* most places in use */
    unsigned head, count;
    uint64_t from_ns; /* when the link began to carry the oldest */
    struct vvi_copy_sleep sleep;
};

/* Puts an order on the stream. 0, or an error: none of its copies is running. */
static int line_add(struct line *l, struct vv_order *o)
{
    struct vv_engine *e = l->mover->engine;
    struct vv_event *event = l->place[(l->head + l->count) % l->depth].event;
    struct vv_copy_seg segs[VV_ORDER_MAX_PAGES];
    size_t n = 0;
    for (uint32_t i = 0; i < o->nchunks; i++)
        n = vvi_seg_add(segs, n, vvi_engine_page(e, o->dst_tier, o->dst_page[i]),
                        vvi_engine_page(e, o->src_tier, o->src_page[i]),
                        vvi_order_chunk_bytes(e, o, o->chunk0 + i));
    int rc = vvi_device_copy(e, l->stream, segs, n);
    if (rc)
        return rc;
    rc = vv_device_event_record(e->cfg.device, event, l->stream);
    if (rc) {
        vvi_device_settle(e, l->stream, event, rc);
        return rc;
    }
    if (l->count == 0)
        l->from_ns = vv_now_ns();
    l->place[(l->head + l->count++) % l->depth].order = o;
    return 0;
}

/* Removes the oldest, which has ended or can no longer be queried. */
static struct vv_order *line_take(struct line *l, int status)
{
    struct vv_engine *e = l->mover->engine;
    struct vv_order *o = l->place[l->head].order;
    if (status)
        vvi_device_settle(e, l->stream, l->place[l->head].event, status);
    l->head = (l->head + 1) % l->depth;
    l->count--;
    l->from_ns = vv_now_ns();
    return o;
}

/* Puts the orders in the queue on the stream. Engine lock held, released while an order is put
 * there. */
static void queue_locked(struct line *l)
{
    struct vvi_mover *m = l->mover;
    struct vv_engine *e = m->engine;
    struct vv_order *o;
    while (l->count < l->depth && (o = vvi_order_pop(&m->queue))) {
        vvi_engine_unlock(e);
        vvi_trace_copy_start(e, o);
        int rc = line_add(l, o);
        if (rc)
            vvi_trace_copy_end(e, o, rc);
        vvi_engine_lock(e);
        if (rc)
            vvi_engine_complete_locked(e, o, rc);
    }
    atomic_store_explicit(&m->more, m->queue.head != NULL, memory_order_relaxed);
}

/* Sleeps through most of the oldest copy. False: there are more orders to queue. Engine lock held,
 * released while sleeping. */
static bool sleep_locked(struct line *l)
{
    struct vvi_mover *m = l->mover;
    uint64_t until_ns = l->from_ns + vvi_copy_sleep_ns(&l->sleep, l->place[l->head].order->bytes);
    while (vv_now_ns() < until_ns) {
        vvi_engine_wait_locked(m->engine, &m->cond, until_ns);
        if (m->queue.head && l->count < l->depth)
            return false;
    }
    return true;
}

/* Queries the oldest now and then until it has ended: 0 or its error; or until there are more
 * orders to queue: 1. Querying all the time would delay every other call of the driver, including
 * the application's. Noticing the end a little late costs nothing while the next copies are
 * queued. */
static int poll_oldest(struct line *l)
{
    struct vvi_mover *m = l->mover;
    bool overslept = true;
    int rc;
    while ((rc = vv_device_event_query(m->engine->cfg.device, l->place[l->head].event)) == -EBUSY) {
        if (l->count < l->depth && atomic_load_explicit(&m->more, memory_order_relaxed))
            return 1;
        overslept = false;
        vv_sleep_until_ns(vv_now_ns() + ASK_REST_NS);
    }
    vvi_copy_sleep_learn(&l->sleep, l->place[l->head].order->bytes, vv_now_ns() - l->from_ns,
                         overslept);
    return rc;
}

static void line_free(struct line *l)
{
    if (!l)
        return;
    struct vv_device *d = l->mover->engine->cfg.device;
    for (unsigned i = 0; i < l->depth; i++)
        vv_device_event_free(d, l->place[i].event);
    vv_device_stream_free(d, l->stream);
    free(l);
}

static int line_new(struct vvi_mover *m, struct line **ret_line)
{
    struct vv_device *d = m->engine->cfg.device;
    struct line *l = calloc(1, sizeof(*l));
    if (!l)
        return -ENOMEM;
    l->mover = m;
    l->depth = VV_MIN(m->engine->core_cfg.slots[m->hop], (unsigned)VVI_MOVER_DEPTH);
    vvi_copy_sleep_init(&l->sleep);
    int rc = vv_device_stream_new(d, &l->stream);
    for (unsigned i = 0; rc == 0 && i < l->depth; i++)
        rc = vv_device_event_new(d, &l->place[i].event);
    if (rc) {
        line_free(l);
        return rc;
    }
    *ret_line = l;
    return 0;
}

static void *device_mover_main(void *arg)
{
    struct line *l = arg;
    struct vvi_mover *m = l->mover;
    struct vv_engine *e = m->engine;

    vv_thread_sharpen();
    vv_trace_thread(vv_hop_name(m->hop));
    vvi_engine_lock(e);
    for (;;) {
        queue_locked(l);
        if (l->count > 0) {
            if (!sleep_locked(l))
                continue;
            vvi_engine_unlock(e);
            int rc = poll_oldest(l);
            struct vv_order *o = rc > 0 ? NULL : line_take(l, rc);
            if (o)
                vvi_trace_copy_end(e, o, rc);
            vvi_engine_lock(e);
            if (o)
                vvi_engine_complete_locked(e, o, rc);
        } else if (e->stopping) {
            break;
        } else {
            vvi_engine_wait_locked(e, &m->cond, VV_NEVER_NS);
        }
    }
    vvi_engine_unlock(e);
    line_free(l);
    return NULL;
}

int vvi_device_mover_start(struct vv_engine *e, enum vv_hop hop)
{
    struct vvi_mover *m = &e->mover[hop];
    struct line *l;
    int rc = line_new(m, &l);
    if (rc)
        return rc;
    rc = vv_thread_start(&m->thread, device_mover_main, l);
    if (rc) {
        line_free(l);
        return rc;
    }
    m->runs = true;
    return 0;
}
