/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams and events of the emulated device.
 *
 * A stream is a queue. Its head is either with an engine (copies, kernels), or a wait for a mark that is not yet
 * done; in that case the stream is parked on that mark. Records, and waits for marks that are done, are removed at
 * once. So after every change the affected streams are stepped until none can move, and nothing ever polls. Stepping
 * works through a list, not by recursion: a mark may free any number of streams, whose records free others.
 *
 * Invariants whenever the lock is free: no stream is runnable; a stream with a head is either dispatched or parked;
 * every submitted item is on the live list, oldest first.
 *
 * Runs on callers' threads and on the engines' threads, under the device's lock.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"
#include "device/host/host_private.h"

/* ---- marks and items ---- */

static struct vvi_device_mark *mark_new(void)
{
    struct vvi_device_mark *m = calloc(1, sizeof(*m));

    if (m)
        m->refs = 1;
    return m;
}

static struct vvi_device_mark *mark_ref(struct vvi_device_mark *m)
{
    m->refs++;
    return m;
}

static void mark_unref(struct vvi_device_mark *m)
{
    if (m && --m->refs == 0) {
        vv_assert(!m->parked);
        free(m);
    }
}

struct vvi_device_item *vvi_device_item_new(enum vvi_device_item_kind kind, size_t n_segs)
{
    struct vvi_device_item *it;

    if (n_segs > (SIZE_MAX - sizeof(*it)) / sizeof(it->segs[0]))
        return NULL;
    it = malloc(sizeof(*it) + n_segs * sizeof(it->segs[0]));
    if (it)
        *it = (struct vvi_device_item){.kind = kind};
    return it;
}

static void item_free(struct vvi_device_item *it)
{
    mark_unref(it->mark);
    free(it);
}

void vvi_device_items_free(struct vvi_device_host *d, struct vvi_device_item *chain)
{
    vv_assert(vv_mutex_held(&d->lock));
    (void)d;
    while (chain) {
        struct vvi_device_item *next = chain->next;

        item_free(chain);
        chain = next;
    }
}

static void live_add(struct vvi_device_host *d, struct vvi_device_item *it)
{
    it->seq = ++d->last_seq;
    it->next_live = NULL;
    it->prev_live = d->live_tail;
    if (d->live_tail)
        d->live_tail->next_live = it;
    else
        d->live_head = it;
    d->live_tail = it;
    d->stats.n_pending++;
}

static void live_remove(struct vvi_device_host *d, struct vvi_device_item *it)
{
    if (it->prev_live)
        it->prev_live->next_live = it->next_live;
    else
        d->live_head = it->next_live;
    if (it->next_live)
        it->next_live->prev_live = it->prev_live;
    else
        d->live_tail = it->prev_live;
    d->stats.n_pending--;
}

/* ---- waiting ---- */

int vvi_device_wait_changed_locked(struct vvi_device_host *d, uint64_t deadline_ns)
{
    int rc;

    d->n_waiters++;
    rc = vv_cond_wait_until(&d->changed, &d->lock, deadline_ns);
    d->n_waiters--;
    return rc;
}

static void changed_locked(struct vvi_device_host *d)
{
    if (d->n_waiters)
        vv_cond_broadcast(&d->changed);
}

void vvi_device_drain_locked(struct vvi_device_host *d)
{
    uint64_t seq = d->last_seq;

    while (d->live_head && d->live_head->seq <= seq)
        (void)vvi_device_wait_changed_locked(d, VV_NEVER_NS);
}

/* The caller holds a reference to the mark. */
static int wait_mark_locked(struct vvi_device_host *d, struct vvi_device_mark *m,
                            uint64_t deadline_ns)
{
    while (!m->done) {
        if (vvi_device_wait_changed_locked(d, deadline_ns) == -ETIMEDOUT && !m->done)
            return -ETIMEDOUT;
    }
    /* -ENODEV means that no other stream's copy is running either. */
    while (d->losing && !d->lost)
        (void)vvi_device_wait_changed_locked(d, VV_NEVER_NS);
    return m->err;
}

/* ---- stepping ---- */

static void make_runnable(struct vvi_device_host *d, struct vv_stream *s)
{
    if (s->runnable || s->parked)
        return;
    s->runnable = true;
    s->next_runnable = d->runnable;
    d->runnable = s;
}

static void stream_destroy(struct vvi_device_host *d, struct vv_stream *s)
{
    if (s->prev)
        s->prev->next = s->next;
    else
        d->streams = s->next;
    if (s->next)
        s->next->prev = s->prev;
    free(s);
}

static void pop_head(struct vvi_device_host *d, struct vv_stream *s)
{
    struct vvi_device_item *it = s->head;

    s->head = it->next;
    if (!s->head)
        s->tail = NULL;
    live_remove(d, it);
    item_free(it);
    changed_locked(d);
}

static void run_record(struct vvi_device_host *d, struct vv_stream *s,
                       const struct vvi_device_item *it)
{
    struct vvi_device_mark *m = it->mark;
    struct vv_stream *parked = m->parked;

    m->done = true;
    m->time_ns = VV_MAX(s->clock_ns, it->submit_ns);
    m->err = d->losing ? -ENODEV : s->err;
    if (!it->keep_error)
        s->err = 0;
    m->parked = NULL;
    while (parked) {
        struct vv_stream *next = parked->next_parked;

        parked->parked = false;
        make_runnable(d, parked);
        parked = next;
    }
}

static void start_item(struct vvi_device_host *d, struct vv_stream *s, struct vvi_device_item *it)
{
    it->ready_ns = VV_MAX(it->submit_ns, s->clock_ns);
    vvi_device_engine_push_locked(d, it);
}

static void step_stream(struct vvi_device_host *d, struct vv_stream *s)
{
    struct vvi_device_item *it;

    while ((it = s->head)) {
        switch (it->kind) {
        case VVI_DEVICE_ITEM_COPY:
        case VVI_DEVICE_ITEM_KERNEL:
            if (!it->dispatched)
                start_item(d, s, it);
            return;
        case VVI_DEVICE_ITEM_RECORD:
            run_record(d, s, it);
            break;
        case VVI_DEVICE_ITEM_WAIT:
            if (!it->mark->done) {
                s->parked = true;
                s->next_parked = it->mark->parked;
                it->mark->parked = s;
                return;
            }
            s->clock_ns = VV_MAX(s->clock_ns, it->mark->time_ns);
            break;
        }
        pop_head(d, s);
    }
    if (s->closing)
        stream_destroy(d, s);
}

static void step_all(struct vvi_device_host *d)
{
    vv_assert(vv_mutex_held(&d->lock));
    while (d->runnable) {
        struct vv_stream *s = d->runnable;

        d->runnable = s->next_runnable;
        s->runnable = false;
        step_stream(d, s);
    }
}

void vvi_device_submit_locked(struct vvi_device_host *d, struct vv_stream *s,
                              struct vvi_device_item *chain)
{
    uint64_t now_ns = vv_now_ns();

    vv_assert(!d->losing && !s->closing);
    for (struct vvi_device_item *it = chain; it; it = it->next) {
        it->stream = s;
        it->submit_ns = now_ns;
        live_add(d, it);
        if (s->tail)
            s->tail->next = it;
        else
            s->head = it;
        s->tail = it;
    }
    make_runnable(d, s);
    step_all(d);
}

void vvi_device_item_done_locked(struct vvi_device_host *d, struct vvi_device_item *it, int err,
                                 uint64_t time_ns)
{
    struct vv_stream *s = it->stream;

    vv_assert(s->head == it && it->dispatched);
    if (err && !s->err)
        s->err = err;
    s->clock_ns = VV_MAX(s->clock_ns, time_ns);
    pop_head(d, s);
    make_runnable(d, s);
    step_all(d);
}

/* ---- streams ---- */

int vvi_device_stream_new_locked(struct vvi_device_host *d, struct vv_stream **ret_stream)
{
    struct vv_stream *s = calloc(1, sizeof(*s));

    if (!s)
        return -ENOMEM;
    s->id = ++d->stream_ids;
    s->next = d->streams;
    if (s->next)
        s->next->prev = s;
    d->streams = s;
    *ret_stream = s;
    return 0;
}

int vvi_device_stream_new(struct vv_device *dev, struct vv_stream **ret_stream)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);
    int rc = vvi_device_enter(d, VV_DEVICE_OP_STREAM_NEW);

    if (rc)
        return rc;
    rc = vvi_device_stream_new_locked(d, ret_stream);
    if (!rc)
        d->stats.n_streams++;
    vvi_device_leave(d);
    return rc;
}

void vvi_device_stream_free(struct vv_device *dev, struct vv_stream *s)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);

    if (!s)
        return;
    vvi_device_enter_void(d, VV_DEVICE_OP_STREAM_FREE);
    d->stats.n_streams--;
    if (s->native) {
        vv_assert(s->adopted > 0);
        s->adopted--; /* the application owns the stream itself */
    } else {
        vvi_device_stream_end_locked(d, s);
    }
    vvi_device_leave(d);
}

void vvi_device_stream_end_locked(struct vvi_device_host *d, struct vv_stream *s)
{
    vv_assert(vv_mutex_held(&d->lock) && !s->closing);
    if (s->head)
        s->closing = true; /* the step that removes its last item frees it */
    else
        stream_destroy(d, s);
}

/* Frees streams and events that the caller did not. The engines have stopped, and nothing is pending. */
void vvi_device_streams_fini(struct vvi_device_host *d)
{
    vv_assert(!d->live_head);
    while (d->events) {
        struct vv_event *ev = d->events;

        d->events = ev->next;
        mark_unref(ev->mark);
        free(ev);
    }
    while (d->streams)
        stream_destroy(d, d->streams);
}

static int append_mark_locked(struct vvi_device_host *d, struct vv_stream *s,
                              enum vvi_device_item_kind kind, struct vvi_device_mark *m,
                              bool keep_error)
{
    struct vvi_device_item *it = vvi_device_item_new(kind, 0);

    if (!it)
        return -ENOMEM;
    it->mark = mark_ref(m);
    it->keep_error = keep_error;
    vvi_device_submit_locked(d, s, it);
    return 0;
}

int vvi_device_sync_locked(struct vvi_device_host *d, struct vv_stream *s)
{
    struct vvi_device_mark *m = mark_new();
    int rc;

    if (!m)
        return -ENOMEM;
    rc = append_mark_locked(d, s, VVI_DEVICE_ITEM_RECORD, m, true);
    if (!rc) {
        /* The next event reports a failed copy. */
        (void)wait_mark_locked(d, m, VV_NEVER_NS);
        rc = d->lost ? -ENODEV : 0;
    }
    mark_unref(m);
    return rc;
}

/* ---- events ---- */

int vvi_device_event_new(struct vv_device *dev, struct vv_event **ret_event)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);
    struct vv_event *ev;
    int rc = vvi_device_enter(d, VV_DEVICE_OP_EVENT_NEW);

    if (rc)
        return rc;
    ev = calloc(1, sizeof(*ev));
    if (ev) {
        ev->next = d->events;
        if (ev->next)
            ev->next->prev = ev;
        d->events = ev;
        d->stats.n_events++;
        *ret_event = ev;
    }
    vvi_device_leave(d);
    return ev ? 0 : -ENOMEM;
}

void vvi_device_event_free(struct vv_device *dev, struct vv_event *ev)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);

    if (!ev)
        return;
    vvi_device_enter_void(d, VV_DEVICE_OP_EVENT_FREE);
    if (ev->prev)
        ev->prev->next = ev->next;
    else
        d->events = ev->next;
    if (ev->next)
        ev->next->prev = ev->prev;
    d->stats.n_events--;
    mark_unref(ev->mark);
    free(ev);
    vvi_device_leave(d);
}

int vvi_device_event_record(struct vv_device *dev, struct vv_event *ev, struct vv_stream *s)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);
    struct vvi_device_mark *m;
    int rc = vvi_device_enter(d, VV_DEVICE_OP_EVENT_RECORD);

    if (rc)
        return rc;
    m = mark_new();
    rc = m ? append_mark_locked(d, s, VVI_DEVICE_ITEM_RECORD, m, false) : -ENOMEM;
    if (rc) {
        mark_unref(m);
    } else {
        mark_unref(ev->mark);
        ev->mark = m;
    }
    vvi_device_leave(d);
    return rc;
}

int vvi_device_event_query(struct vv_device *dev, struct vv_event *ev)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);
    int rc = vvi_device_enter(d, VV_DEVICE_OP_EVENT_QUERY);

    if (rc)
        return rc;
    if (ev->mark)
        rc = ev->mark->done ? ev->mark->err : -EBUSY;
    vvi_device_leave(d);
    return rc;
}

int vvi_device_event_wait(struct vv_device *dev, struct vv_event *ev, int64_t timeout_ns)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);
    uint64_t now_ns = vv_now_ns();
    uint64_t deadline_ns = VV_NEVER_NS;
    int rc = vvi_device_enter(d, VV_DEVICE_OP_EVENT_WAIT);

    if (rc)
        return rc;
    if (timeout_ns >= 0 && (uint64_t)timeout_ns < VV_NEVER_NS - now_ns)
        deadline_ns = now_ns + (uint64_t)timeout_ns;
    if (ev->mark) {
        /* A reference of our own: the event may be recorded again during the wait for this recording. */
        struct vvi_device_mark *m = mark_ref(ev->mark);

        rc = wait_mark_locked(d, m, deadline_ns);
        mark_unref(m);
    }
    vvi_device_leave(d);
    return rc;
}

int vvi_device_event_elapsed(struct vv_device *dev, struct vv_event *from, struct vv_event *to,
                             uint64_t *ret_ns)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);
    int rc = vvi_device_enter(d, VV_DEVICE_OP_EVENT_QUERY);

    if (rc)
        return rc;
    if (!from->mark || !to->mark)
        rc = -EINVAL;
    else if (!from->mark->done || !to->mark->done)
        rc = -EBUSY;
    else
        *ret_ns = to->mark->time_ns - VV_MIN(from->mark->time_ns, to->mark->time_ns);
    vvi_device_leave(d);
    return rc;
}

int vvi_device_stream_wait_event(struct vv_device *dev, struct vv_stream *s, struct vv_event *ev)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);
    int rc = vvi_device_enter(d, VV_DEVICE_OP_STREAM_WAIT_EVENT);

    if (rc)
        return rc;
    if (ev->mark && !ev->mark->done)
        rc = append_mark_locked(d, s, VVI_DEVICE_ITEM_WAIT, ev->mark, false);
    vvi_device_leave(d);
    return rc;
}

int vvi_device_after_app(struct vv_device *dev, struct vv_stream *s)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);
    struct vvi_device_mark *m;
    int rc = vvi_device_enter(d, VV_DEVICE_OP_AFTER_APP);

    if (rc)
        return rc;
    if (d->app->head && s != d->app) {
        m = mark_new();
        rc = m ? append_mark_locked(d, d->app, VVI_DEVICE_ITEM_RECORD, m, true) : -ENOMEM;
        if (!rc)
            rc = append_mark_locked(d, s, VVI_DEVICE_ITEM_WAIT, m, false);
        mark_unref(m);
    }
    vvi_device_leave(d);
    return rc;
}
