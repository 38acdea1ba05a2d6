/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeping what a request needs warm: a thread's way to the device, and the engine itself.
 *
 * What a copy needs of the driver, code and data, leaves the caches of a processor within a
 * millisecond or two in which nobody uses it; a copy then takes 15 to 30 us longer to submit. So
 * the thread that is about to make calls copies a few bytes now and then, as requests do: in one
 * piece and in several, which are different ways through the driver. At most one such copy is under
 * way, on a stream of its own and between pieces of memory that nobody else has, so that nothing
 * waits for it and it waits for nothing that matters.
 *
 * The engine is forgotten as the driver is: its code because it is not run for milliseconds, its
 * books because movers and the finisher have written them on other processors. So the thread also
 * rehearses: it takes a small version through a core of its own, which has no threads and moves
 * nothing, so that a put and a get have just been run; and then it looks at the books of the real
 * core, under the lock if nobody has it, without changing anything. A rehearsal takes about as
 * long as the copy of a few bytes. Each of these is a step of its own, as a call that comes meanwhile
 * has to wait for its end.
 *
 * What could go wrong: the rehearsal would write events into a trace that no application has caused,
 * so there is none while events are recorded.
 */
#include <errno.h>

#include "core/assert.h"
#include "core/fetch.h"
#include "engine/runtime_private.h"
#include "trace/trace.h"

enum { WARM_BYTES = 64, WARM_APART = 2 << 20 };
enum { REHEARSE_CHUNKS = 4, REHEARSE_PAGES = 32, REHEARSE_NS = 100000 };

/* ---- the engine ---- */

static int rehearsal_init(struct vv_engine *e)
{
    struct vvi_rehearsal *r = &e->warm.rehearsal;
    struct vv_core_hist_cfg hist = {.level = VV_CORE_CACHED};
    struct vv_core_cfg cfg = {
        .page_bytes = e->cfg.page_bytes,
        .ntiers = 2,
        .policy = e->cfg.policy,
    };
    /* Nothing can be flushed, which is not what requests wait for. */
    cfg.tier[0].kind = VV_TIER_DEVICE;
    cfg.tier[0].capacity_bytes = (uint64_t)REHEARSE_PAGES * cfg.page_bytes;
    cfg.tier[1].kind = VV_TIER_HOST;
    vv_core_cfg_tune(&cfg);
    int rc = vv_core_new(&cfg, &r->core);
    return rc ? rc : vv_core_history_new(r->core, &hist, &r->hist);
}

/* Everything that was ordered has been done. */
static void rehearsal_orders(struct vvi_rehearsal *r)
{
    struct vv_order *o;
    r->now_ns += REHEARSE_NS;
    while ((o = vv_core_next_order(r->core)))
        if (o->kind != VV_ORDER_WAKE)
            vv_core_complete(r->core, o, 0, r->now_ns);
}

void vvi_rehearse(struct vv_engine *e)
{
    struct vvi_rehearsal *r = &e->warm.rehearsal;
    struct vv_req req = {.user = NULL};
    uint64_t size = (uint64_t)REHEARSE_CHUNKS * e->cfg.page_bytes;
    if (!r->core || vv_trace_enabled())
        return;
    r->version++;
    r->now_ns += REHEARSE_NS;
    r->broken |= vv_core_put(r->core, r->hist, r->version, size, 0, true, r->now_ns, &req) != 0;
    rehearsal_orders(r);
    r->broken |= req.status != 0;
    req = (struct vv_req){.user = NULL};
    if (!r->broken)
        r->broken = vv_core_get(r->core, r->hist, r->version, true, r->now_ns, &req) != 0;
    rehearsal_orders(r);
    r->broken |= req.status != 0;
    if (!r->broken)
        r->broken = vv_core_discard(r->core, r->hist, r->version, r->now_ns) != 0;
    rehearsal_orders(r);
    if (r->broken) { /* memory is lacking: without it, then */
        vv_core_free(r->core);
        r->core = NULL;
    }
}

static void look_at_lanes(const struct vvi_lanes *lanes)
{
    enum { HANDLE_BYTES = 64 }; /* what the device keeps of a stream or an event, by and large */
    vv_fetch(lanes, sizeof(*lanes));
    for (int i = 0; i < VVI_LANES; i++) {
        const struct vvi_lane *lane = &lanes->lane[i];
        vv_fetch(lane->stream, HANDLE_BYTES);
        vv_fetch(lane->event[lane->head], HANDLE_BYTES);
    }
}

/* Only if nobody has the lock: whoever has it brings all this to another processor anyway. */
static void look_at_books(struct vv_engine *e)
{
    enum { HISTORIES = 4 };
    if (!vv_mutex_trylock(&e->lock))
        return;
    vv_fetch(e->hist, VV_MIN(e->nhist, (uint32_t)HISTORIES) * sizeof(*e->hist));
    vv_fetch(e->spare_reqs, sizeof(*e->spare_reqs));
    if (e->spare_lanes)
        look_at_lanes(e->spare_lanes);
    vv_core_fetch(e->core);
    vv_mutex_unlock(&e->lock);
}

/* ---- the device ---- */

static int warm_init(struct vv_engine *e)
{
    struct vv_device *d = e->cfg.device;
    struct vvi_warm *w = &e->warm;
    int rc = vv_device_stream_new(d, &w->stream);
    if (rc == 0)
        rc = vv_device_event_new(d, &w->event);
    if (rc == 0)
        rc = vv_device_mem_alloc(d, 2 * WARM_APART, &w->memory);
    if (rc == 0)
        rc = rehearsal_init(e);
    /* While a graph is being captured it cannot be had, and we do without. */
    if (vv_device_stream_adopt(d, NULL, &w->app))
        w->app = NULL;
    return rc;
}

void vvi_warm_fini(struct vv_engine *e)
{
    struct vv_device *d = e->cfg.device;
    struct vvi_warm *w = &e->warm;
    if (!d)
        return;
    /* Freeing memory waits for the copy. */
    if (w->memory)
        (void)vv_device_mem_free(d, w->memory);
    vv_device_event_free(d, w->event);
    vv_device_stream_free(d, w->app);
    vv_device_stream_free(d, w->stream);
    vv_core_free(w->rehearsal.core);
    *w = (struct vvi_warm){0};
}

/* A driver makes and loads what a kind of copy needs when it meets the first of it, and streams when
 * they are asked for. That takes longer than the copies of many requests, and the first of them would
 * wait for it. What goes wrong here they will meet themselves, and can tell somebody. */
static void begin(struct vv_engine *e)
{
    struct vv_device *d = e->cfg.device;
    struct vvi_warm *w = &e->warm;
    char *from = w->memory, *to = from + WARM_APART;
    const struct vv_copy_seg whole = {to, from, WARM_APART};
    const struct vv_copy_seg halves[] = {
        {to, from, WARM_APART / 2 - WARM_BYTES},
        {to + WARM_APART / 2, from + WARM_APART / 2, WARM_APART / 2},
    };
    vvi_lanes_prepare(e);
    int rc = vvi_device_copy(e, w->stream, &whole, 1);
    if (rc == 0)
        rc = vvi_device_copy(e, w->stream, halves, VV_ARRAY_SIZE(halves));
    if (rc == 0)
        rc = vv_device_event_record(d, w->event, w->stream);
    w->pending = rc == 0;
    w->broken = rc != 0;
}

int vv_engine_warm_start(struct vv_engine *e)
{
    vv_assert(e->cfg.device && !e->warm.stream);
    int rc = warm_init(e);
    if (rc)
        vvi_warm_fini(e);
    else
        begin(e);
    return rc;
}

static void warm_device(struct vv_engine *e)
{
    struct vv_device *d = e->cfg.device;
    struct vvi_warm *w = &e->warm;
    char *from = w->memory, *to = from + WARM_APART;
    const struct vv_copy_seg segs[] = {{to, from, WARM_BYTES},
                                       {to + WARM_APART / 2, from + WARM_APART / 2, WARM_BYTES}};

    /* Registering memory holds up all other calls of the driver, and these would hold it up in turn.
     */
    if (!w->memory || w->broken || atomic_load_explicit(&e->grow.pinning, memory_order_relaxed) ||
        vv_device_enter(d))
        return;
    /* What requests ask before they copy. Refused while a graph is being captured, which is no
     * concern of ours. */
    int asked = w->app ? vv_device_after_app(d, w->app) : 0;
    (void)asked;
    int rc = w->pending ? vv_device_event_query(d, w->event) : 0;
    if (rc == 0)
        rc = vvi_device_copy(e, w->stream, segs, 1 + (w->count++ & 1));
    else if (rc == -EBUSY)
        rc = 1;
    if (rc == 0)
        rc = vv_device_event_record(d, w->event, w->stream);
    w->pending = rc >= 0;
    w->broken = rc < 0; /* whatever it is, requests will meet it too, and can tell somebody */
    vv_device_leave(d);
}

void vv_engine_warm(struct vv_engine *e, enum vv_engine_warmth what)
{
    switch (what) {
    case VV_ENGINE_WARM_DEVICE:
        warm_device(e);
        break;
    case VV_ENGINE_WARM_CODE:
        vvi_rehearse(e);
        break;
    default:
        look_at_books(e);
        break;
    }
}

void vv_engine_warm_enter(struct vv_engine *e)
{
    e->warm.inside = vv_device_enter(e->cfg.device) == 0;
}

void vv_engine_warm_leave(struct vv_engine *e)
{
    if (e->warm.inside)
        vv_device_leave(e->cfg.device);
    e->warm.inside = false;
}
