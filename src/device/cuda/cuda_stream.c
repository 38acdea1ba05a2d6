/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams and events.
 *
 * Our streams are non-blocking: they do not wait for the application's legacy default stream, nor it for them, except
 * by after_app. Events carry no times, which makes them cheap, except those for measurements. Nothing here uses host
 * callbacks: the end of work is found by queries, which never block.
 *
 * Waiting queries in a loop at first, because a copy within the device ends sooner than a thread could be woken up,
 * and then sleeps in growing steps. The context stays current meanwhile; this affects only the calling thread.
 *
 * Streams and events are in lists under the device's lock only so that closing finds those that were not freed.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "base/clock.h"
#include "device/cuda/cuda_private.h"

/* The driver's other name for the legacy default stream; NULL means it too. */
#define LEGACY_HANDLE ((CUstream)(uintptr_t)1)

#define SPIN_NS      (150 * VV_NS_PER_US)
#define SLEEP_MIN_NS (20 * VV_NS_PER_US)
#define SLEEP_MAX_NS (100 * VV_NS_PER_US)

#define TIMER_SLACK_NS 1000UL

static void stream_link(struct vvi_cuda *d, struct vv_stream *s)
{
    vv_mutex_lock(&d->lock);
    s->next = d->streams;
    s->link = &d->streams;
    if (s->next)
        s->next->link = &s->next;
    d->streams = s;
    vv_mutex_unlock(&d->lock);
}

int vvi_cuda_stream_new(struct vv_device *dev, struct vv_stream **ret_stream)
{
    struct vvi_cuda *d = vvi_cuda_of(dev);
    struct vvi_cuda_scope scope;
    struct vv_stream *s;
    int rc = vvi_cuda_enter(d, &scope);

    if (rc)
        return rc;
    s = calloc(1, sizeof(*s));
    rc = s ? vvi_cuda_status(d, d->drv.cuStreamCreate(&s->native, VVI_CU_STREAM_NON_BLOCKING))
           : vvi_cuda_refuse(d, -ENOMEM);
    vvi_cuda_leave(d, &scope);
    if (rc) {
        free(s);
        return rc;
    }
    stream_link(d, s);
    *ret_stream = s;
    return 0;
}

/* 0 if our work may be put on this stream of the application. */
static int check_native(struct vvi_cuda *d, CUstream native)
{
    unsigned int capture = VVI_CU_CAPTURE_NONE;
    CUcontext ctx = d->ctx; /* NULL is the default stream of the current context, which is ours */
    int rc = native ? vvi_cuda_status(d, d->drv.cuStreamGetCtx(native, &ctx)) : 0;

    if (!rc && ctx != d->ctx)
        return vvi_cuda_refuse(d, -EXDEV);
    if (!rc)
        rc = vvi_cuda_status(d, d->drv.cuStreamIsCapturing(native, &capture));
    if (!rc && capture != VVI_CU_CAPTURE_NONE)
        return vvi_cuda_refuse(d, -EBUSY);
    return rc;
}

int vvi_cuda_stream_adopt(struct vv_device *dev, void *native, struct vv_stream **ret_stream)
{
    struct vvi_cuda *d = vvi_cuda_of(dev);
    CUstream stream = native == LEGACY_HANDLE ? NULL : native;
    struct vvi_cuda_scope scope;
    struct vv_stream *s;
    int rc = vvi_cuda_enter(d, &scope);

    if (rc)
        return rc;
    rc = check_native(d, stream);
    vvi_cuda_leave(d, &scope);
    if (rc)
        return rc;
    s = calloc(1, sizeof(*s));
    if (!s)
        return vvi_cuda_refuse(d, -ENOMEM);
    s->native = stream;
    s->adopted = true;
    stream_link(d, s);
    *ret_stream = s;
    return 0;
}

int vvi_cuda_stream_id(struct vv_device *dev, struct vv_stream *s, uint64_t *ret_id)
{
    struct vvi_cuda *d = vvi_cuda_of(dev);
    unsigned long long id = 0;
    struct vvi_cuda_scope scope;
    int rc;

    if (!d->drv.cuStreamGetId)
        return vvi_cuda_refuse(d, -ENOTSUP);
    rc = vvi_cuda_enter(d, &scope);
    if (rc)
        return rc;
    rc = vvi_cuda_status(d, d->drv.cuStreamGetId(s->native, &id));
    vvi_cuda_leave(d, &scope);
    if (rc)
        return rc;
    *ret_id = (uint64_t)id + 1; /* the driver's may be 0 */
    return 0;
}

/* Between enter and leave if `usable`, otherwise without the driver. */
static void stream_end(struct vvi_cuda *d, struct vv_stream *s, bool usable)
{
    CUevent event = atomic_load_explicit(&s->app_event, memory_order_acquire);

    if (usable && event)
        (void)d->drv.cuEventDestroy(event);
    if (usable && !s->adopted)
        (void)d->drv.cuStreamDestroy(s->native);
    free(s);
}

void vvi_cuda_stream_free(struct vv_device *dev, struct vv_stream *s)
{
    struct vvi_cuda *d = vvi_cuda_of(dev);
    struct vvi_cuda_scope scope;
    bool usable;

    if (!s)
        return;
    vv_mutex_lock(&d->lock);
    *s->link = s->next;
    if (s->next)
        s->next->link = s->link;
    vv_mutex_unlock(&d->lock);
    usable = vvi_cuda_enter(d, &scope) == 0;
    stream_end(d, s, usable);
    if (usable)
        vvi_cuda_leave(d, &scope);
}

int vvi_cuda_stream_wait_event(struct vv_device *dev, struct vv_stream *s, struct vv_event *ev)
{
    struct vvi_cuda *d = vvi_cuda_of(dev);
    struct vvi_cuda_scope scope;
    int rc = vvi_cuda_enter(d, &scope);

    if (rc)
        return rc;
    rc = vvi_cuda_status(d, d->drv.cuStreamWaitEvent(s->native, ev->native, 0));
    vvi_cuda_leave(d, &scope);
    return rc;
}

/* The stream's own event for after_app. If two threads make one at the same time, the first one is
 * kept. */
static int app_event(struct vvi_cuda *d, struct vv_stream *s, CUevent *ret_event)
{
    CUevent event = atomic_load_explicit(&s->app_event, memory_order_acquire);
    CUevent none = NULL;
    int rc;

    if (!event) {
        rc = vvi_cuda_status(d, d->drv.cuEventCreate(&event, VVI_CU_EVENT_DISABLE_TIMING));
        if (rc)
            return rc;
        if (!atomic_compare_exchange_strong_explicit(&s->app_event, &none, event,
                                                     memory_order_acq_rel, memory_order_acquire)) {
            (void)d->drv.cuEventDestroy(event);
            event = none;
        }
    }
    *ret_event = event;
    return 0;
}

/* If another thread records the event again before we wait for it, our stream waits for more of the application's work
 * than needed, never for less. While a blocking stream is being captured nothing may be put on the default stream, and
 * trying to would spoil the capture; cuStreamIsCapturing does not. */
int vvi_cuda_after_app(struct vv_device *dev, struct vv_stream *s)
{
    struct vvi_cuda *d = vvi_cuda_of(dev);
    struct vvi_cuda_scope scope;
    unsigned int capture;
    CUevent event;
    int rc = vvi_cuda_enter(d, &scope);

    if (rc)
        return rc;
    rc = vvi_cuda_status(d, d->drv.cuStreamIsCapturing(NULL, &capture));
    if (!rc && s->native) { /* otherwise `s` is the default stream itself */
        rc = app_event(d, s, &event);
        if (!rc)
            rc = vvi_cuda_status(d, d->drv.cuEventRecord(event, NULL));
        if (!rc)
            rc = vvi_cuda_status(d, d->drv.cuStreamWaitEvent(s->native, event, 0));
    }
    vvi_cuda_leave(d, &scope);
    return rc;
}

/* ---- events ---- */

static int event_new(struct vv_device *dev, unsigned int flags, struct vv_event **ret_event)
{
    struct vvi_cuda *d = vvi_cuda_of(dev);
    struct vvi_cuda_scope scope;
    struct vv_event *ev;
    int rc = vvi_cuda_enter(d, &scope);

    if (rc)
        return rc;
    ev = calloc(1, sizeof(*ev));
    rc = ev ? vvi_cuda_status(d, d->drv.cuEventCreate(&ev->native, flags))
            : vvi_cuda_refuse(d, -ENOMEM);
    vvi_cuda_leave(d, &scope);
    if (rc) {
        free(ev);
        return rc;
    }
    vv_mutex_lock(&d->lock);
    ev->next = d->events;
    ev->link = &d->events;
    if (ev->next)
        ev->next->link = &ev->next;
    d->events = ev;
    vv_mutex_unlock(&d->lock);
    *ret_event = ev;
    return 0;
}

int vvi_cuda_event_new(struct vv_device *dev, struct vv_event **ret_event)
{
    return event_new(dev, VVI_CU_EVENT_DISABLE_TIMING, ret_event);
}

int vvi_cuda_event_new_timed(struct vv_device *dev, struct vv_event **ret_event)
{
    return event_new(dev, 0, ret_event);
}

int vvi_cuda_event_elapsed(struct vv_device *dev, struct vv_event *from, struct vv_event *to,
                           uint64_t *ret_ns)
{
    struct vvi_cuda *d = vvi_cuda_of(dev);
    struct vvi_cuda_scope scope;
    float ms = 0;
    int rc;

    if (!d->drv.cuEventElapsedTime)
        return vvi_cuda_refuse(d, -ENOTSUP);
    rc = vvi_cuda_enter(d, &scope);
    if (rc)
        return rc;
    rc = vvi_cuda_status(d, d->drv.cuEventElapsedTime(&ms, from->native, to->native));
    vvi_cuda_leave(d, &scope);
    if (rc == 0)
        *ret_ns = ms > 0 ? (uint64_t)((double)ms * 1e6) : 0;
    return rc;
}

void vvi_cuda_event_free(struct vv_device *dev, struct vv_event *ev)
{
    struct vvi_cuda *d = vvi_cuda_of(dev);
    struct vvi_cuda_scope scope;

    if (!ev)
        return;
    vv_mutex_lock(&d->lock);
    *ev->link = ev->next;
    if (ev->next)
        ev->next->link = ev->link;
    vv_mutex_unlock(&d->lock);
    if (vvi_cuda_enter(d, &scope) == 0) {
        (void)d->drv.cuEventDestroy(ev->native);
        vvi_cuda_leave(d, &scope);
    }
    free(ev);
}

int vvi_cuda_event_record(struct vv_device *dev, struct vv_event *ev, struct vv_stream *s)
{
    struct vvi_cuda *d = vvi_cuda_of(dev);
    struct vvi_cuda_scope scope;
    int rc = vvi_cuda_enter(d, &scope);

    if (rc)
        return rc;
    rc = vvi_cuda_status(d, d->drv.cuEventRecord(ev->native, s->native));
    vvi_cuda_leave(d, &scope);
    return rc;
}

int vvi_cuda_event_query(struct vv_device *dev, struct vv_event *ev)
{
    struct vvi_cuda *d = vvi_cuda_of(dev);
    struct vvi_cuda_scope scope;
    int rc = vvi_cuda_enter(d, &scope);

    if (rc)
        return rc;
    rc = vvi_cuda_status(d, d->drv.cuEventQuery(ev->native));
    vvi_cuda_leave(d, &scope);
    return rc;
}

/* Threads sleep up to 50 us longer than requested unless this is set, which is much compared with our back-off.
 * Returns the old value, to be restored. */
static long sharpen_sleep(void)
{
    long slack_ns = prctl(PR_GET_TIMERSLACK);

    (void)prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
    return slack_ns;
}

/* Queries until the event is done or the time is over. */
static int poll_event(struct vvi_cuda *d, CUevent event, uint64_t start_ns, uint64_t deadline_ns)
{
    uint64_t backoff_ns = SLEEP_MIN_NS, now_ns;
    long slack_ns = -1;
    int rc;

    while ((rc = vvi_cuda_status(d, d->drv.cuEventQuery(event))) == -EBUSY) {
        unsigned int lost = atomic_load_explicit(&d->lost, memory_order_relaxed);

        /* Another thread may have found the loss. */
        if (lost) {
            rc = vvi_cuda_status(d, lost);
            break;
        }
        now_ns = vv_now_ns();
        if (now_ns >= deadline_ns) {
            rc = -ETIMEDOUT;
            break;
        }
        if (now_ns - start_ns < SPIN_NS)
            continue;
        if (slack_ns < 0)
            slack_ns = sharpen_sleep();
        vv_sleep_until_ns(VV_MIN(now_ns + backoff_ns, deadline_ns));
        backoff_ns = VV_MIN(backoff_ns + SLEEP_MIN_NS, SLEEP_MAX_NS);
    }
    if (slack_ns > 0)
        (void)prctl(PR_SET_TIMERSLACK, slack_ns);
    return rc;
}

int vvi_cuda_event_wait(struct vv_device *dev, struct vv_event *ev, int64_t timeout_ns)
{
    struct vvi_cuda *d = vvi_cuda_of(dev);
    uint64_t start_ns = vv_now_ns();
    uint64_t deadline_ns = timeout_ns < 0 ? VV_NEVER_NS : start_ns + (uint64_t)timeout_ns;
    struct vvi_cuda_scope scope;
    int rc = vvi_cuda_enter(d, &scope);

    if (rc)
        return rc;
    rc = poll_event(d, ev->native, start_ns, deadline_ns);
    vvi_cuda_leave(d, &scope);
    return rc;
}

void vvi_cuda_streams_fini(struct vvi_cuda *d)
{
    bool usable = !atomic_load_explicit(&d->lost, memory_order_relaxed);
    struct vv_stream *s;
    struct vv_event *ev;

    while ((s = d->streams)) {
        d->streams = s->next;
        /* The driver cannot drop work, and afterwards the caller may reuse its memory. */
        if (usable && !s->adopted)
            (void)d->drv.cuStreamSynchronize(s->native);
        stream_end(d, s, usable);
    }
    while ((ev = d->events)) {
        d->events = ev->next;
        if (usable)
            (void)d->drv.cuEventDestroy(ev->native);
        free(ev);
    }
}

void *vv_device_cuda_native(struct vv_device *dev, struct vv_stream *s)
{
    (void)dev;
    return s->native;
}
