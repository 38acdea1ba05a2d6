/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests: the work of the application's thread inside a put, a get or a wait.
 *
 * The thread takes the APP orders of its request and carries them out itself. Between host memory
 * and host memory it copies, with the help of other threads if there is much. Otherwise it uses two
 * streams, so that the part of an object on the device and the part on the host move at the same
 * time. Copies within the device go to the application's own default stream, as a plain copy would:
 * they need no wait for it, which would take longer than submitting them. Copies over the link have
 * a stream of their own, because work behind them would have to wait. In between the thread waits
 * for more orders, for the end of the request, or for its deadline.
 *
 * Invariants:
 * - An order is completed only when nothing touches its memory any more (see runtime_device.c), and
 *   a request ends only when none of its orders is outstanding: then the memory is the caller's
 *   again.
 * - The deadline is checked only when no order is waiting and none is in flight. An order that has
 *   been issued is carried out, which takes the time of one copy, and a request that can be served
 *   at once is served even with a deadline in the past.
 *
 * When the last copy of a request has been submitted, the thread waits for it without the lock and
 * leaves its completion to other threads (runtime_finish.c). The engine lock protects the fields of
 * a request that dispatch writes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/thread_group.h"
#include "base/topo.h"
#include "engine/runtime/runtime_private.h"
#include "engine/runtime/spans.h"
#include "trace/trace.h"

#define WAIT_BOTH_NS   ((int64_t)100000)  /* while the other stream may finish first */
#define WAIT_ONE_NS    ((int64_t)1000000) /* while more orders may come */
#define WAIT_FINISH_NS ((int64_t)1000000000)
#define SEGS_MAX       1024

#define COPIERS_MAX 8u /* more threads do not copy faster */

enum { LANE_DEVICE, LANE_LINK };

struct vvi_req *vvi_req_new_locked(struct vv_engine *e, const struct vv_engine_app *app,
                                   uint64_t size)
{
    struct vvi_req *r = e->spare_reqs;

    if (r) {
        e->spare_reqs = r->next;
    } else {
        r = calloc(1, sizeof(*r));
        if (!r)
            return NULL;
        vv_cond_init(&r->cond);
    }
    r->orders = (struct vvi_order_queue){NULL, NULL};
    r->done = r->failed = false;
    r->app = app;
    r->chunks_left = (uint32_t)vv_div_up(size, e->cfg.page_bytes);
    r->req = (struct vv_req){.user = r};
    r->lanes = NULL;
    if (!app || !app->device)
        return r;
    if (e->spare_lanes) {
        r->lanes = e->spare_lanes;
        e->spare_lanes = r->lanes->next;
    }
    return r;
}

void vvi_req_put_locked(struct vv_engine *e, struct vvi_req *r)
{
    if (r->lanes) {
        for (int i = 0; i < VVI_LANES; i++)
            r->lanes->lane[i].ordered = false;
        r->lanes->next = e->spare_lanes;
        e->spare_lanes = r->lanes;
        r->lanes = NULL;
    }
    r->next = e->spare_reqs;
    e->spare_reqs = r;
}

/* ---- streams ---- */

static void lanes_free(struct vv_engine *e, struct vvi_lanes *lanes)
{
    if (!lanes)
        return;
    for (int i = 0; i < VVI_LANES; i++) {
        for (int k = 0; k < VVI_LANE_DEPTH; k++)
            vv_device_event_free(e->cfg.device, lanes->lane[i].event[k]);
        vv_device_stream_free(e->cfg.device, lanes->lane[i].stream);
    }
    free(lanes);
}

static int lanes_new(struct vv_engine *e, struct vvi_lanes **ret_lanes)
{
    struct vvi_lanes *lanes = calloc(1, sizeof(*lanes));
    if (!lanes)
        return -ENOMEM;
    int rc = 0;
    for (int i = 0; i < VVI_LANES && rc == 0; i++) {
        rc = i == LANE_DEVICE ? vv_device_stream_adopt(e->cfg.device, NULL, &lanes->lane[i].stream)
                              : vv_device_stream_new(e->cfg.device, &lanes->lane[i].stream);
        for (int k = 0; k < VVI_LANE_DEPTH && rc == 0; k++)
            rc = vv_device_event_new(e->cfg.device, &lanes->lane[i].event[k]);
    }
    if (rc) {
        lanes_free(e, lanes);
        return rc;
    }
    *ret_lanes = lanes;
    return 0;
}

/* The application's own work on its memory comes before the first copy on a lane. */
static int lane_ready(struct vv_engine *e, struct vvi_req *r, unsigned index,
                      struct vvi_lane **ret_lane)
{
    int rc = r->lanes ? 0 : lanes_new(e, &r->lanes);

    if (rc)
        return rc;
    struct vvi_lane *lane = &r->lanes->lane[index];
    if (!lane->ordered) {
        rc = vv_device_after_app(e->cfg.device, lane->stream);
        if (rc)
            return rc;
        lane->ordered = true;
    }
    *ret_lane = lane;
    return 0;
}

void vvi_reqs_free(struct vv_engine *e)
{
    vv_copy_pool_free(e->copy_pool);
    while (e->spare_lanes) {
        struct vvi_lanes *lanes = e->spare_lanes;
        e->spare_lanes = lanes->next;
        lanes_free(e, lanes);
    }
    while (e->spare_reqs) {
        struct vvi_req *r = e->spare_reqs;
        e->spare_reqs = r->next;
        vv_cond_fini(&r->cond);
        free(r);
    }
}

/* ---- one order ---- */

/* Collects the copies of an order: for the stream, and within host memory for the processors. */
struct gather {
    struct vv_engine *e;
    struct vv_stream *stream;
    size_t n, nhost;
    uint64_t host_bytes;
    size_t whole;   /* bytes of all pieces of the request */
    bool submitted; /* the stream has work of this order */
    /* Last: most orders have one segment, so only a page of these arrays is touched. */
    struct vv_copy_seg segs[SEGS_MAX], host_segs[SEGS_MAX];
};

struct vv_copy_pool *vvi_copy_pool(struct vv_engine *e, uint64_t bytes)
{
    struct vv_copy_pool *pool = atomic_load_explicit(&e->copy_pool, memory_order_acquire);
    struct vv_copy_pool *none = NULL;
    unsigned helpers;

    if (pool || bytes < VV_COPY_ALONE_BYTES)
        return pool;
    helpers = vv_thread_group_cores(e->cfg.group)
                  ? VV_MIN(vv_thread_group_cores(e->cfg.group), COPIERS_MAX - 1)
                  : VV_MIN(vv_topo_threads(), COPIERS_MAX) - 1;
    if (e->cfg.copy_helpers)
        helpers = (unsigned)VV_MAX(e->cfg.copy_helpers, 0);
    struct vv_thread_group *before = vv_thread_group_enter(e->cfg.group);
    int rc = helpers ? vv_copy_pool_new(helpers, &pool) : -ENODEV;
    vv_thread_group_enter(before);
    if (rc)
        return NULL;
    if (atomic_compare_exchange_strong_explicit(&e->copy_pool, &none, pool, memory_order_acq_rel,
                                                memory_order_acquire))
        return pool;
    vv_copy_pool_free(pool); /* another thread was first */
    return none;
}

static void gather_copy(struct gather *g)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < g->nhost; i++)
        bytes += g->host_segs[i].bytes;
    if (g->nhost > 0)
        vv_copy_part(vvi_copy_pool(g->e, bytes), g->host_segs, g->nhost, g->whole);
    g->host_bytes += bytes;
    g->nhost = 0;
}

static int gather_submit(struct gather *g)
{
    if (g->n == 0)
        return 0;
    int rc = vvi_device_copy(g->e, g->stream, g->segs, g->n);
    if (rc == 0)
        g->submitted = true;
    g->n = 0;
    return rc;
}

static inline int gather_add(void *arg, const struct vvi_span *span)
{
    struct gather *g = arg;
    if (!span->device) {
        if (g->nhost == SEGS_MAX)
            gather_copy(g);
        g->nhost = vvi_seg_add(g->host_segs, g->nhost, span->dst, span->src, span->bytes);
        return 0;
    }
    if (g->n == SEGS_MAX) {
        int rc = gather_submit(g);
        if (rc)
            return rc;
    }
    /* Segments are not joined here: adjacent pieces may be two allocations, and drivers refuse a
     * copy across both. */
    g->segs[g->n++] = (struct vv_copy_seg){span->dst, span->src, span->bytes};
    return 0;
}

/* Starts all copies of an order between the application's pieces and a tier's pages. */
static int gather_order(struct gather *g, const struct vv_engine_app *app, const struct vv_order *o)
{
    int rc = vvi_order_spans(g->e, app, o, gather_add, g);
    if (rc == 0)
        rc = gather_submit(g);
    gather_copy(g); /* while the stream works */
    return rc;
}

static bool needs_device(const struct vv_engine *e, const struct vvi_req *r,
                         const struct vv_order *o)
{
    int tier = o->src_tier == VV_TIER_APP ? o->dst_tier : o->src_tier;
    return e->kind[tier] == VV_TIER_DEVICE || r->app->device;
}

/* Starts an order. 1: in flight on a lane; otherwise it has ended, with the status returned. */
static int order_start(struct vv_engine *e, struct vvi_req *r, struct vv_order *o)
{
    uint64_t start_ns = e->h2h.bytes_per_s ? vv_now_ns() : 0;
    int rc = 0;
    vvi_trace_copy_start(e, o);
    struct vvi_lane *lane = NULL;
    if (needs_device(e, r, o))
        rc = lane_ready(e, r, o->hop == VV_HOP_D2D ? LANE_DEVICE : LANE_LINK, &lane);
    if (rc)
        return rc;
    struct gather g; /* not cleared: it is large, and segments are written before they are read */
    g.e = e;
    g.stream = lane ? lane->stream : NULL;
    g.n = g.nhost = 0;
    g.host_bytes = 0;
    g.whole = o->size;
    g.submitted = false;
    rc = gather_order(&g, r->app, o);
    if (g.host_bytes)
        vvi_pacer_end(&e->h2h, start_ns, g.host_bytes);
    if (g.submitted) {
        unsigned at = (lane->head + lane->count) % VVI_LANE_DEPTH;
        int rec = rc ? rc : vv_device_event_record(e->cfg.device, lane->event[at], lane->stream);
        if (rec == 0) {
            lane->order[at] = o;
            lane->count++;
            r->chunks_left -= o->nchunks;
            return 1;
        }
        vvi_device_settle(e, lane->stream, lane->event[at], rec);
        rc = rec;
    }
    return rc;
}

/* ---- orders in flight ---- */

struct ended {
    struct vv_order *order;
    int status;
};

/* The oldest copy of a lane, if it has ended. */
static bool lane_reap(struct vv_engine *e, struct vvi_lane *lane, int64_t wait_ns,
                      struct ended *ret_ended)
{
    if (lane->count == 0)
        return false;
    struct vv_event *event = lane->event[lane->head];
    int rc = wait_ns ? vv_device_event_wait(e->cfg.device, event, wait_ns)
                     : vv_device_event_query(e->cfg.device, event);
    if (rc == -EBUSY || rc == -ETIMEDOUT)
        return false;
    if (rc)
        vvi_device_settle(e, lane->stream, event, rc);
    *ret_ended = (struct ended){lane->order[lane->head], rc};
    lane->head = (lane->head + 1) % VVI_LANE_DEPTH;
    lane->count--;
    return true;
}

/* Waits a while for copies in flight; returns how many have ended. */
static size_t lanes_reap(struct vv_engine *e, struct vvi_lanes *lanes, struct ended *ret_ended)
{
    size_t n = 0;
    for (int i = 0; i < VVI_LANES; i++)
        while (lane_reap(e, &lanes->lane[i], 0, &ret_ended[n]))
            n++;
    if (n > 0)
        return n;
    struct vvi_lane *a = &lanes->lane[0], *b = &lanes->lane[1];
    bool both = a->count && b->count;
    if (lane_reap(e, a->count ? a : b, both ? WAIT_BOTH_NS : WAIT_ONE_NS, ret_ended))
        n++;
    return n;
}

static unsigned lanes_inflight(const struct vvi_lanes *lanes)
{
    return lanes ? lanes->lane[0].count + lanes->lane[1].count : 0;
}

static bool lanes_full(const struct vvi_lanes *lanes)
{
    return lanes &&
           (lanes->lane[0].count == VVI_LANE_DEPTH || lanes->lane[1].count == VVI_LANE_DEPTH);
}

/* ---- the loop ---- */

static void order_end_locked(struct vv_engine *e, struct vv_order *o, int status)
{
    vvi_trace_copy_end(e, o, status);
    vvi_engine_complete_locked(e, o, status);
}

static void reap_locked(struct vv_engine *e, struct vvi_req *r)
{
    struct ended ended[VVI_LANES * VVI_LANE_DEPTH];
    vvi_engine_unlock(e);
    size_t n = lanes_reap(e, r->lanes, ended);
    vvi_engine_lock(e);
    for (size_t i = 0; i < n; i++) {
        r->failed |= ended[i].status != 0;
        order_end_locked(e, ended[i].order, ended[i].status);
    }
}

void vvi_req_complete_locked(struct vv_engine *e, struct vvi_req *r)
{
    for (int i = 0; i < VVI_LANES; i++) {
        struct vvi_lane *lane = &r->lanes->lane[i];
        for (; lane->count > 0; lane->count--) {
            struct vv_order *o = lane->order[lane->head];
            lane->head = (lane->head + 1) % VVI_LANE_DEPTH;
            vvi_trace_copy_ended(e, o, r->end_ns);
            vvi_engine_complete_at_locked(e, o, 0, r->end_ns);
        }
    }
}

/* All copies of the request are in flight or have ended well: waits for them without the lock, and
 * leaves the completion to other threads. False: one has failed, or did not end within a second. */
static bool finish_behind(struct vv_engine *e, struct vvi_req *r)
{
    vvi_finisher_wake(e);
    for (int i = 0; i < VVI_LANES; i++) {
        struct vvi_lane *lane = &r->lanes->lane[i];
        for (unsigned k = 0; k < lane->count; k++) {
            struct vv_event *event = lane->event[(lane->head + k) % VVI_LANE_DEPTH];
            if (vv_device_event_wait(e->cfg.device, event, WAIT_FINISH_NS)) {
                vvi_finisher_forget(e);
                return false;
            }
        }
    }
    r->end_ns = vv_now_ns();
    vvi_finish(e, r);
    return true;
}

/* Starts an order, and finishes the request if it was the last, within one device scope, in which
 * device operations are cheaper. A finished request must not be used any more. */
static int start_inside(struct vv_engine *e, struct vvi_req *r, struct vv_order *o, bool may_finish,
                        bool *ret_finished)
{
    bool inside = r->app->device && vv_device_enter(e->cfg.device) == 0;
    int rc = order_start(e, r, o);
    *ret_finished =
        rc > 0 && may_finish && r->chunks_left == 0 && !r->failed && finish_behind(e, r);
    if (inside)
        vv_device_leave(e->cfg.device);
    return rc;
}

int vvi_req_run(struct vv_engine *e, struct vvi_req *r, uint64_t deadline_ns)
{
    int status;

    for (;;) {
        struct vv_order *o = lanes_full(r->lanes) ? NULL : vvi_order_pop(&r->orders);
        if (o) {
            /* A put that waits for its commit may still fail. */
            bool finished, may_finish = !vv_core_put_waits(&r->req);
            vvi_engine_unlock(e);
            int rc = start_inside(e, r, o, may_finish, &finished);
            if (finished)
                return 0;
            vvi_engine_lock(e);
            if (rc <= 0)
                order_end_locked(e, o, rc);
            continue;
        }
        if (lanes_inflight(r->lanes)) {
            reap_locked(e, r);
            continue;
        }
        if (r->done)
            break;
        bool starved = r->req.kind == VV_REQ_PUT && r->req.unissued > 0;
        atomic_fetch_add_explicit(&e->starved, starved, memory_order_relaxed);
        int rc = vvi_engine_wait_locked(e, &r->cond, deadline_ns);
        atomic_fetch_sub_explicit(&e->starved, starved, memory_order_relaxed);
        if (rc == -ETIMEDOUT && !r->done && !r->orders.head) {
            vv_core_cancel(e->core, &r->req, -ETIMEDOUT, vv_now_ns());
            vvi_engine_dispatch_locked(e);
        }
    }
    status = r->req.status;
    vvi_req_put_locked(e, r);
    vvi_engine_unlock(e);
    return status;
}
