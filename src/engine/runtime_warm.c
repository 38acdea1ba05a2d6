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
 * books because movers and the finisher have written them on other processors. For the code, whole
 * calls are rehearsed by whoever makes them (ckpt/rehearse.c), on an engine that is opened here; and
 * the thread looks at the books of the real core, under the lock if nobody has it, without changing
 * anything. Each of these is a step of its own, as a call that comes meanwhile has to wait for its end.
 */
#include <errno.h>

#include "core/assert.h"
#include "core/fetch.h"
#include "device/still.h"
#include "engine/runtime_private.h"

enum { WARM_BYTES = 64, WARM_APART = 2 << 20 };
enum { REHEARSAL_PAGES = 32 };

/* ---- the engine ---- */

int vv_engine_rehearsal_open(const struct vv_engine *e, struct vv_engine **ret_engine)
{
    char err[160];
    struct vv_engine_cfg cfg = {
        .page_bytes = e->cfg.page_bytes,
        .device_cache_bytes = (uint64_t)REHEARSAL_PAGES * e->cfg.page_bytes,
        .device = vv_device_still(),
        .policy = e->cfg.policy,
        .still = true,
    };
    return vv_engine_open(&cfg, err, sizeof(err), ret_engine);
}

void *vv_engine_rehearsal_memory(const struct vv_engine *rehearsal)
{
    return rehearsal->base[0];
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
    /* The pinner may still look at the rest. */
    w->memory = NULL;
    w->event = NULL;
    w->app = w->stream = NULL;
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

/* One small copy, as requests make them, if the last one has ended. */
static int warm_copy(struct vv_engine *e)
{
    struct vv_device *d = e->cfg.device;
    struct vvi_warm *w = &e->warm;
    char *from = w->memory, *to = from + WARM_APART;
    const struct vv_copy_seg segs[] = {{to, from, WARM_BYTES},
                                       {to + WARM_APART / 2, from + WARM_APART / 2, WARM_BYTES}};
    int rc = w->pending ? vv_device_event_query(d, w->event) : 0;
    if (rc == -EBUSY)
        return 0;
    if (rc == 0)
        rc = vvi_device_copy(e, w->stream, segs, 1 + (w->count++ & 1));
    if (rc == 0)
        rc = vv_device_event_record(d, w->event, w->stream);
    w->pending = rc == 0;
    return rc;
}

/* What requests ask before they copy. Refused while a graph is being captured, or where the memory has
 * been freed, which is no concern of ours. */
static void warm_questions(struct vv_engine *e)
{
    struct vvi_warm *w = &e->warm;
    const void *ptr = atomic_load_explicit(&w->asked, memory_order_relaxed);
    enum vv_mem_kind kind;
    size_t left;
    int rc = w->app ? vv_device_after_app(e->cfg.device, w->app) : 0;
    if (rc == 0 && ptr)
        rc = vv_device_ptr_kind(e->cfg.device, ptr, &kind, &left);
    (void)rc;
}

/* Not while memory is being registered, which holds up all other calls of the driver: that waits for
 * this to end, though not for ever, and this does not begin before that has ended. Both sides write their own word
 * and then read the other's, sequentially consistent. */
static void warm_device(struct vv_engine *e)
{
    struct vvi_warm *w = &e->warm;
    if (!w->memory || w->broken)
        return;
    atomic_store_explicit(&w->busy, true, memory_order_seq_cst);
    if (!atomic_load_explicit(&e->grow.pinning, memory_order_seq_cst) &&
        vv_device_enter(e->cfg.device) == 0) {
        warm_questions(e);
        /* Whatever it is, requests will meet it too, and can tell somebody. */
        w->broken = warm_copy(e) != 0;
        vv_device_leave(e->cfg.device);
    }
    atomic_store_explicit(&w->busy, false, memory_order_release);
}

void vv_engine_warm(struct vv_engine *e, enum vv_engine_warmth what)
{
    switch (what) {
    case VV_ENGINE_WARM_DEVICE:
        warm_device(e);
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
