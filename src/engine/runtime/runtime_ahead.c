/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orders that run ahead: putting them on lanes, and seeing them end.
 *
 * The core plans them (engine/core/ahead.c). Each goes on its lane as a batch of its own: waits for
 * its dependencies, its copies, an event behind them. APP orders go on the application's stream, as
 * one batch for each submission. The number of a batch is its seq in the core; the ring of its
 * stream finds the event of a number.
 *
 * Invariants:
 * - An order is reported to the core (vv_core_enqueued) when its event has been recorded, and only
 *   then does the core plan orders that wait for it. So no stream waits for an event that was never
 *   recorded, which would not wait at all.
 * - One thread at a time puts work on the streams of a group, so that numbers grow in the order of
 *   the work on the stream. The driver may block it for as long as the stream of the application is
 *   blocked: no thread that serves others waits for it. The watcher skips a group that is owned,
 *   and long lanes.
 * - An event is recorded again only after the end of its batch was reported to the core, and only by
 *   an owner of the same group. A thread may have looked the event up before that. It then waits for
 *   later work of that group than it must: of its own family, or of EARLY, which waits for nothing.
 * - The end of a batch is reported to the core after the ends of all before it on its stream and of
 *   all that it has waited for.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "engine/runtime/runtime_private.h"
#include "engine/runtime/spans.h"

enum {
    RING_FIRST = 64,
    ASK_MOST = 8,    /* batches of one stream that are queried in one round */
    LANE_LONG = 128, /* batches on a lane to which the watcher adds no more */
};

void vvi_lanes_ahead_init(struct vv_engine *e)
{
    vv_cond_init(&e->ahead.free);
    for (unsigned s = 0; s < VV_STREAMS; s++)
        e->ahead.ring[s].first = e->ahead.ring[s].end = 1;
}

void vvi_lanes_ahead_fini(struct vv_engine *e)
{
    for (unsigned s = 0; s < VV_STREAMS; s++) {
        vv_assert(e->ahead.ring[s].first == e->ahead.ring[s].end);
        free(e->ahead.ring[s].batch);
        if (e->ahead.stream[s])
            vv_device_stream_free(e->cfg.device, e->ahead.stream[s]);
    }
    for (unsigned g = 0; g <= VV_FAMILIES; g++)
        while (e->ahead.spare[g]) {
            struct vvi_batch *b = e->ahead.spare[g];
            e->ahead.spare[g] = b->next;
            vv_device_event_free(e->cfg.device, b->event);
            free(b);
        }
    vv_cond_fini(&e->ahead.free);
}

/* ---- groups ---- */

static unsigned group_of(unsigned family, unsigned lane)
{
    return lane == VV_LANE_EARLY ? 0 : family;
}

static void own_locked(struct vv_engine *e, unsigned group)
{
    while (e->ahead.owned[group])
        vvi_engine_wait_locked(e, &e->ahead.free, VV_NEVER_NS);
    e->ahead.owned[group] = true;
}

static void disown_locked(struct vv_engine *e, unsigned group)
{
    e->ahead.owned[group] = false;
    vv_cond_broadcast(&e->ahead.free);
}

static bool lanes_made(const struct vv_engine *e, unsigned family)
{
    return e->ahead.stream[0] && e->ahead.stream[vv_lane_stream(family, VV_LANE_DOWN)] &&
           e->ahead.stream[vv_lane_stream(family, VV_LANE_UP)];
}

/* Creates the stream of a lane, once. The lock is released in between. */
static void make_lane_locked(struct vv_engine *e, unsigned family, enum vv_lane lane)
{
    unsigned group = group_of(family, lane), s = vv_lane_stream(family, lane);
    struct vv_stream *stream = NULL;

    own_locked(e, group);
    if (!e->ahead.stream[s]) {
        vvi_engine_unlock(e);
        int rc = vv_device_stream_new(e->cfg.device, &stream);
        vvi_engine_lock(e);
        e->ahead.stream[s] = rc ? NULL : stream;
    }
    disown_locked(e, group);
}

uint64_t vvi_ahead_stream_id(struct vv_engine *e, struct vv_stream *stream)
{
    uint64_t id;

    if (e->kind[0] != VV_TIER_DEVICE || vv_device_stream_id(e->cfg.device, stream, &id))
        return 0;
    vvi_engine_lock(e);
    unsigned family = vv_core_family(e->core, id);
    if (family && !lanes_made(e, family)) {
        make_lane_locked(e, family, VV_LANE_EARLY);
        make_lane_locked(e, family, VV_LANE_DOWN);
        make_lane_locked(e, family, VV_LANE_UP);
    }
    vvi_engine_unlock(e);
    return family ? id : 0;
}

unsigned vvi_ahead_family_locked(struct vv_engine *e, uint64_t stream_id)
{
    unsigned family = stream_id ? vv_core_family(e->core, stream_id) : 0;

    return family && lanes_made(e, family) ? family : 0;
}

/* ---- rings ---- */

static bool ring_reserve(struct vvi_ring *r)
{
    uint64_t cap = r->cap ? 2 * r->cap : RING_FIRST;
    struct vvi_batch **batch;

    if (r->end - r->first < r->cap)
        return true;
    batch = malloc(cap * sizeof(struct vvi_batch *));
    if (!batch)
        return false;
    for (uint64_t seq = r->first; seq < r->end; seq++)
        batch[seq % cap] = r->batch[seq % r->cap];
    free(r->batch);
    r->batch = batch;
    r->cap = cap;
    return true;
}

/* The event behind all batches up to that number; NULL: they have ended. */
static struct vv_event *ring_event(const struct vvi_ring *r, uint64_t seq)
{
    vv_assert(seq < r->end);
    return seq < r->first ? NULL : r->batch[seq % r->cap]->event;
}

/* ---- submission ---- */

/* Work for one stream of a group, from the core's order until it is reported as enqueued. */
struct submission {
    unsigned family, lane, stream_number;
    struct vv_stream *stream;
    const struct vv_engine_app *app; /* NULL: between two tiers */
    struct vvi_order_queue orders;
    uint64_t wait[VV_LANES];
    struct vv_event *event[VV_LANES]; /* to be waited for */
    struct vvi_batch *batch;
};

/* The caller owns the group. */
static int submission_prepare_locked(struct vv_engine *e, struct submission *p)
{
    unsigned group = group_of(p->family, p->lane);

    p->stream_number = vv_lane_stream(p->family, (enum vv_lane)p->lane);
    for (const struct vv_order *o = p->orders.head; o; o = o->runtime)
        for (unsigned lane = 0; lane < VV_LANES; lane++)
            p->wait[lane] = VV_MAX(p->wait[lane], o->wait[lane]);
    for (unsigned lane = 0; lane < VV_LANES; lane++) {
        unsigned s = vv_lane_stream(p->family, (enum vv_lane)lane);
        if (p->wait[lane] > e->ahead.waited[p->stream_number][lane])
            p->event[lane] = ring_event(&e->ahead.ring[s], p->wait[lane]);
    }
    p->batch = e->ahead.spare[group];
    if (p->batch)
        e->ahead.spare[group] = p->batch->next;
    return ring_reserve(&e->ahead.ring[p->stream_number]) ? 0 : -ENOMEM;
}

static int order_segs(const struct vv_engine *e, const struct vv_order *o, struct vvi_segs *s)
{
    int rc = 0;

    for (uint32_t i = 0; i < o->nchunks && rc == 0; i++) {
        struct vvi_span span = {.dst = vvi_engine_page(e, o->dst_tier, o->dst_page[i]),
                                .src = vvi_engine_page(e, o->src_tier, o->src_page[i]),
                                .bytes = vvi_order_chunk_bytes(e, o, o->chunk0 + i)};
        struct vv_copy_seg *last = s->n ? &s->v[s->n - 1] : NULL;
        if (last && (char *)last->dst + last->bytes == span.dst &&
            (const char *)last->src + last->bytes == span.src)
            last->bytes += span.bytes;
        else
            rc = vvi_segs_add(s, &span);
    }
    return rc;
}

/* After an error none of its work is running. */
static int submission_put(struct vv_engine *e, struct submission *p)
{
    struct vv_device *d = e->cfg.device;
    struct vvi_segs s;
    int rc = vvi_batch_init(e, p->batch, &p->batch);

    for (unsigned lane = 0; lane < VV_LANES && rc == 0; lane++)
        if (p->event[lane])
            rc = vv_device_stream_wait_event(d, p->stream, p->event[lane]);
    if (rc)
        return rc;
    vvi_segs_init(&s);
    for (const struct vv_order *o = p->orders.head; o && rc == 0; o = o->runtime) {
        vvi_trace_copy_start(e, o);
        rc = p->app ? vvi_order_spans(e, p->app, o, vvi_segs_add, &s) : order_segs(e, o, &s);
    }
    if (rc == 0 && s.n > 0)
        rc = vvi_device_copy(e, p->stream, s.v, s.n);
    vvi_segs_fini(&s);
    if (rc)
        return rc;
    rc = vv_device_event_record(d, p->batch->event, p->stream);
    if (rc)
        vvi_device_settle(e, p->stream, p->batch->event, rc);
    /* Recorded only after success: later batches of this stream skip these waits. This batch keeps
     * the number of the stream from being given to another one until everything that it waits for
     * has ended. */
    for (unsigned lane = 0; lane < VV_LANES && rc == 0; lane++)
        if (p->event[lane])
            e->ahead.waited[p->stream_number][lane] = p->wait[lane];
    return rc;
}

static void submission_report_locked(struct vv_engine *e, struct submission *p, int rc)
{
    unsigned group = group_of(p->family, p->lane);
    struct vvi_ring *r = &e->ahead.ring[p->stream_number];
    struct vvi_batch *b = p->batch;

    if (rc) {
        if (rc == -ENODEV)
            atomic_store_explicit(&e->device_lost, true, memory_order_relaxed);
        if (b) {
            b->next = e->ahead.spare[group];
            e->ahead.spare[group] = b;
        }
        vvi_orders_end_locked(e, &p->orders, rc);
        return;
    }
    b->orders = p->orders;
    b->family = (uint8_t)p->family;
    b->lane = (uint8_t)p->lane;
    b->seq = r->end++;
    memcpy(b->wait, p->wait, sizeof(b->wait));
    r->batch[b->seq % r->cap] = b;
    for (struct vv_order *o = b->orders.head, *next; o; o = next) {
        next = o->runtime;
        vv_core_enqueued(e->core, o, b->seq, vv_now_ns());
    }
    vvi_engine_dispatch_locked(e);
    vvi_watcher_wake_locked(e);
}

/* The caller owns the group. The lock is released in between. */
static void submission_send_locked(struct vv_engine *e, struct submission *p)
{
    int rc = submission_prepare_locked(e, p);

    vvi_engine_unlock(e);
    if (rc == 0)
        rc = submission_put(e, p);
    vvi_engine_lock(e);
    submission_report_locked(e, p, rc);
}

void vvi_ahead_app_locked(struct vv_engine *e, unsigned family, struct vv_stream *stream,
                          const struct vv_engine_app *app, struct vvi_order_queue *orders)
{
    struct submission p = {
        .family = family, .lane = VV_LANE_APP, .stream = stream, .app = app, .orders = *orders};

    own_locked(e, family);
    submission_send_locked(e, &p);
    disown_locked(e, family);
}

void vvi_ahead_push_locked(struct vv_engine *e, struct vv_order *o)
{
    vvi_order_push(&e->ahead.queue[group_of(o->family, o->lane)], o);
    e->hist[o->hist].ordered++;
    e->watcher.pending++;
    vvi_watcher_wake_locked(e);
}

/* Sends the first order in the queue of a group. False: the lane is too long for a thread that
 * `serves`. */
static bool send_first_locked(struct vv_engine *e, unsigned group, bool serves)
{
    struct vv_order *o = e->ahead.queue[group].head;
    unsigned s = vv_lane_stream(o->family, (enum vv_lane)o->lane);
    struct submission p = {.family = o->family, .lane = o->lane, .stream = e->ahead.stream[s]};

    if (serves && e->ahead.ring[s].end - e->ahead.ring[s].first >= LANE_LONG)
        return false;
    vvi_order_push(&p.orders, vvi_order_pop(&e->ahead.queue[group]));
    submission_send_locked(e, &p);
    return true;
}

static void submit_group_locked(struct vv_engine *e, unsigned group)
{
    own_locked(e, group);
    while (e->ahead.queue[group].head)
        (void)send_first_locked(e, group, false);
    disown_locked(e, group);
}

bool vvi_ahead_submit_locked(struct vv_engine *e, unsigned family)
{
    bool any = false;

    for (unsigned i = 0; i < 2 && family; i++) {
        unsigned group = i ? family : 0;
        if (!e->ahead.queue[group].head)
            continue;
        submit_group_locked(e, group);
        any = true;
    }
    return any;
}

/* ---- called by the watcher ---- */

bool vvi_ahead_pending_locked(const struct vv_engine *e)
{
    for (unsigned s = 0; s < VV_STREAMS; s++)
        if (e->ahead.ring[s].first < e->ahead.ring[s].end)
            return true;
    for (unsigned g = 0; g <= VV_FAMILIES; g++)
        if (e->ahead.queue[g].head)
            return true;
    return false;
}

/* The first batches of a stream, and the number of them that have ended. */
struct queried {
    struct vvi_batch *batch[ASK_MOST];
    unsigned n, ended;
};

static void list_locked(const struct vv_engine *e, struct queried *queried)
{
    for (unsigned s = 0; s < VV_STREAMS; s++) {
        const struct vvi_ring *r = &e->ahead.ring[s];
        queried[s].n = queried[s].ended = 0;
        for (uint64_t seq = r->first; seq < r->end && queried[s].n < ASK_MOST; seq++)
            queried[s].batch[queried[s].n++] = r->batch[seq % r->cap];
    }
}

static bool waits_ended_locked(const struct vv_engine *e, const struct vvi_batch *b)
{
    for (unsigned lane = 0; lane < VV_LANES; lane++)
        if (b->wait[lane] >= e->ahead.ring[vv_lane_stream(b->family, (enum vv_lane)lane)].first)
            return false;
    return true;
}

static bool report_ended_locked(struct vv_engine *e, struct queried *a, unsigned s)
{
    unsigned n = 0;

    for (; n < a->ended && waits_ended_locked(e, a->batch[n]); n++) {
        struct vvi_batch *b = a->batch[n];
        unsigned group = group_of(b->family, b->lane);
        e->ahead.ring[s].first++;
        vvi_orders_end_locked(e, &b->orders, b->status);
        b->next = e->ahead.spare[group];
        e->ahead.spare[group] = b;
    }
    a->ended -= n;
    memmove(a->batch, a->batch + n, a->ended * sizeof(struct vvi_batch *));
    return n > 0;
}

static bool serve_queues_locked(struct vv_engine *e)
{
    bool any = false;

    for (unsigned g = 0; g <= VV_FAMILIES; g++) {
        if (e->ahead.owned[g] || !e->ahead.queue[g].head)
            continue;
        own_locked(e, g);
        while (e->ahead.queue[g].head && send_first_locked(e, g, true))
            any = true;
        disown_locked(e, g);
    }
    return any;
}

bool vvi_ahead_watch_locked(struct vv_engine *e)
{
    struct queried queried[VV_STREAMS];
    bool any = serve_queues_locked(e), more = true;

    list_locked(e, queried);
    vvi_engine_unlock(e);
    for (unsigned s = 0; s < VV_STREAMS; s++)
        while (queried[s].ended < queried[s].n &&
               vvi_batch_ended(e, queried[s].batch[queried[s].ended]))
            queried[s].ended++;
    vvi_engine_lock(e);
    while (more) {
        more = false;
        for (unsigned s = 0; s < VV_STREAMS; s++)
            more |= report_ended_locked(e, &queried[s], s);
        any |= more;
    }
    return any;
}
