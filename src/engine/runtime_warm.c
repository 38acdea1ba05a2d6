/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeping a thread's way to the device warm.
 *
 * What a copy needs of the driver, code and data, leaves the caches of a processor within a
 * millisecond or two in which nobody uses it; a copy then takes 15 to 30 us longer to submit. So
 * the thread that is about to make calls copies a few bytes now and then, as requests do: in one
 * piece and in several, which are different ways through the driver. At most one such copy is under
 * way, on a stream of its own and between pieces of memory that nobody else has, so that nothing
 * waits for it and it waits for nothing that matters.
 */
#include <errno.h>

#include "core/assert.h"
#include "engine/runtime_private.h"

enum { WARM_BYTES = 64, WARM_APART = 4096 };

static int warm_init(struct vv_engine *e)
{
    struct vv_device *d = e->cfg.device;
    struct vvi_warm *w = &e->warm;
    int rc = vv_device_stream_new(d, &w->stream);
    if (rc == 0)
        rc = vv_device_event_new(d, &w->event);
    if (rc == 0)
        rc = vv_device_mem_alloc(d, 4 * WARM_APART, &w->memory);
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
    vv_device_stream_free(d, w->stream);
    *w = (struct vvi_warm){0};
}

int vv_engine_warm_start(struct vv_engine *e)
{
    vv_assert(e->cfg.device && !e->warm.stream);
    int rc = warm_init(e);
    if (rc)
        vvi_warm_fini(e);
    return rc;
}

void vv_engine_warm(struct vv_engine *e)
{
    struct vv_device *d = e->cfg.device;
    struct vvi_warm *w = &e->warm;
    char *from = w->memory, *to = from + 2 * WARM_APART;
    const struct vv_copy_seg segs[] = {{to, from, WARM_BYTES},
                                       {to + WARM_APART, from + WARM_APART, WARM_BYTES}};

    /* Registering memory holds up all other calls of the driver, and these would hold it up in turn.
     */
    if (!w->memory || w->broken || atomic_load_explicit(&e->grow.pinning, memory_order_relaxed) ||
        vv_device_enter(d))
        return;
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
