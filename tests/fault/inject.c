/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices and stores that fail on demand. The wrappers pass on everything that is not to fail.
 *
 * A late failure of a copy must be kept until the next event: streams and events are therefore wrapped too. A stream
 * holds the error of the swallowed batch, recording an event moves it to the event, and the event returns it once the
 * inner one is done, so that a failed batch is not reported before earlier work.
 *
 * A store request that is to fail late waits in a list for the next poll. Only one thread at a
 * time submits to and polls a store, so no thread sleeps in the inner poll while a request enters
 * the list.
 *
 * The struct t_inject has a lock, because operations come from many threads. The error in a stream or an event is
 * atomic, because several threads may use one; a store belongs to one thread.
 */
#include "fault/inject.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "t.h"

static const char *const device_op_name[VV_DEVICE_OP_COUNT] = {
    [VV_DEVICE_OP_MEM_ALLOC] = "mem_alloc",
    [VV_DEVICE_OP_MEM_FREE] = "mem_free",
    [VV_DEVICE_OP_MEM_INFO] = "mem_info",
    [VV_DEVICE_OP_HOST_REGISTER] = "host_register",
    [VV_DEVICE_OP_HOST_UNREGISTER] = "host_unregister",
    [VV_DEVICE_OP_PTR_KIND] = "ptr_kind",
    [VV_DEVICE_OP_STREAM_NEW] = "stream_new",
    [VV_DEVICE_OP_STREAM_FREE] = "stream_free",
    [VV_DEVICE_OP_COPY_ASYNC] = "copy_async",
    [VV_DEVICE_OP_EVENT_NEW] = "event_new",
    [VV_DEVICE_OP_EVENT_FREE] = "event_free",
    [VV_DEVICE_OP_EVENT_RECORD] = "event_record",
    [VV_DEVICE_OP_EVENT_QUERY] = "event_query",
    [VV_DEVICE_OP_EVENT_WAIT] = "event_wait",
    [VV_DEVICE_OP_STREAM_WAIT_EVENT] = "stream_wait_event",
    [VV_DEVICE_OP_AFTER_APP] = "after_app",
    [VV_DEVICE_OP_STREAM_ADOPT] = "stream_adopt",
    [VV_DEVICE_OP_LAUNCH] = "launch",
};

static const char *const store_op_name[] = {
    [VV_STORE_READ] = "store read",
    [VV_STORE_WRITE] = "store write",
    [VV_STORE_COMMIT] = "store commit",
    [VV_STORE_REMOVE] = "store remove",
};

/* ---- control ---- */

void t_inject_init(struct t_inject *inj)
{
    *inj = (struct t_inject){.nth = 0};
    T_EQ(pthread_mutex_init(&inj->lock, NULL), 0);
}

void t_inject_fini(struct t_inject *inj)
{
    T_EQ(pthread_mutex_destroy(&inj->lock), 0);
}

static void lock(struct t_inject *inj)
{
    T_EQ(pthread_mutex_lock(&inj->lock), 0);
}

static void unlock(struct t_inject *inj)
{
    T_EQ(pthread_mutex_unlock(&inj->lock), 0);
}

void t_inject_arm(struct t_inject *inj, enum t_inject_mode mode, uint64_t nth, int64_t count,
                  int err)
{
    T_CHECK(nth > 0 && count != 0 && err < 0);
    lock(inj);
    inj->mode = mode;
    inj->nth = nth;
    inj->count = count;
    inj->err = err;
    inj->seen = 0;
    inj->failed = 0;
    inj->first_failed = NULL;
    unlock(inj);
}

void t_inject_disarm(struct t_inject *inj)
{
    lock(inj);
    inj->nth = 0;
    unlock(inj);
}

void t_inject_skip(struct t_inject *inj, enum vv_device_op op)
{
    lock(inj);
    inj->skip |= UINT32_C(1) << op;
    unlock(inj);
}

uint64_t t_inject_seen(struct t_inject *inj)
{
    uint64_t seen;

    lock(inj);
    seen = inj->seen;
    unlock(inj);
    return seen;
}

uint64_t t_inject_failed(struct t_inject *inj)
{
    uint64_t failed;

    lock(inj);
    failed = inj->failed;
    unlock(inj);
    return failed;
}

const char *t_inject_first_failed(struct t_inject *inj)
{
    const char *name;

    lock(inj);
    name = inj->first_failed;
    unlock(inj);
    return name;
}

/* Counts one operation. Returns 0 or the error it has to fail with; *ret_late: only later. */
static int step(struct t_inject *inj, const char *name, bool *ret_late)
{
    int err = 0;

    lock(inj);
    inj->seen++;
    if (inj->nth && inj->seen >= inj->nth && inj->count) {
        err = inj->err;
        *ret_late = inj->mode == T_INJECT_REPORT;
        if (inj->count > 0)
            inj->count--;
        inj->failed++;
        if (!inj->first_failed)
            inj->first_failed = name;
    }
    unlock(inj);
    return err;
}

/* ---- device ---- */

struct inject_device {
    struct vv_device base;
    struct vv_device *inner;
    struct t_inject *inj;
};

struct inject_stream {
    struct vv_stream *inner;
    _Atomic int err; /* of batches swallowed since the last record */
};

struct inject_event {
    struct vv_event *inner;
    _Atomic int err;
};

static struct inject_device *device_of(struct vv_device *d)
{
    return (struct inject_device *)d;
}

static struct inject_stream *stream_of(struct vv_stream *s)
{
    return (struct inject_stream *)s;
}

static struct inject_event *event_of(struct vv_event *ev)
{
    return (struct inject_event *)ev;
}

static int device_step(struct inject_device *d, enum vv_device_op op, bool *ret_late)
{
    bool counted;

    lock(d->inj);
    counted = !(d->inj->skip >> op & 1);
    unlock(d->inj);
    return counted ? step(d->inj, device_op_name[op], ret_late) : 0;
}

/* For operations that fail at once in either mode. */
static int device_enter(struct inject_device *d, enum vv_device_op op)
{
    bool late;

    return device_step(d, op, &late);
}

static void inject_device_close(struct vv_device *dev)
{
    struct inject_device *d = device_of(dev);

    if (!d)
        return;
    vv_device_close(d->inner);
    free(d);
}

static int inject_mem_alloc(struct vv_device *dev, size_t bytes, void **ret_ptr)
{
    struct inject_device *d = device_of(dev);
    int rc = device_enter(d, VV_DEVICE_OP_MEM_ALLOC);

    return rc ? rc : vv_device_mem_alloc(d->inner, bytes, ret_ptr);
}

static int inject_mem_free(struct vv_device *dev, void *ptr)
{
    struct inject_device *d = device_of(dev);
    int rc = device_enter(d, VV_DEVICE_OP_MEM_FREE);

    return rc ? rc : vv_device_mem_free(d->inner, ptr);
}

static int inject_mem_info(struct vv_device *dev, size_t *ret_free, size_t *ret_total)
{
    struct inject_device *d = device_of(dev);
    int rc = device_enter(d, VV_DEVICE_OP_MEM_INFO);

    return rc ? rc : vv_device_mem_info(d->inner, ret_free, ret_total);
}

static int inject_host_register(struct vv_device *dev, void *ptr, size_t bytes)
{
    struct inject_device *d = device_of(dev);
    int rc = device_enter(d, VV_DEVICE_OP_HOST_REGISTER);

    return rc ? rc : vv_device_host_register(d->inner, ptr, bytes);
}

static int inject_host_share(struct vv_device *dev, void *ptr, size_t bytes, bool read_only,
                             void **ret_ptr)
{
    struct inject_device *d = device_of(dev);
    int rc = device_enter(d, VV_DEVICE_OP_HOST_REGISTER);

    return rc ? rc : vv_device_host_share(d->inner, ptr, bytes, read_only, ret_ptr);
}

static int inject_host_address(struct vv_device *dev, const void *ptr, void **ret_ptr)
{
    struct inject_device *d = device_of(dev);
    int rc = device_enter(d, VV_DEVICE_OP_PTR_KIND);

    return rc ? rc : vv_device_host_address(d->inner, ptr, ret_ptr);
}

static int inject_host_unregister(struct vv_device *dev, void *ptr)
{
    struct inject_device *d = device_of(dev);
    int rc = device_enter(d, VV_DEVICE_OP_HOST_UNREGISTER);

    return rc ? rc : vv_device_host_unregister(d->inner, ptr);
}

static int inject_ptr_kind(struct vv_device *dev, const void *ptr, enum vv_mem_kind *ret_kind,
                           size_t *ret_bytes_left)
{
    struct inject_device *d = device_of(dev);
    int rc = device_enter(d, VV_DEVICE_OP_PTR_KIND);

    return rc ? rc : vv_device_ptr_kind(d->inner, ptr, ret_kind, ret_bytes_left);
}

static int inject_stream_new(struct vv_device *dev, struct vv_stream **ret_stream)
{
    struct inject_device *d = device_of(dev);
    struct inject_stream *s;
    int rc = device_enter(d, VV_DEVICE_OP_STREAM_NEW);

    if (rc)
        return rc;
    s = calloc(1, sizeof(*s));
    T_CHECK(s);
    rc = vv_device_stream_new(d->inner, &s->inner);
    if (rc)
        free(s);
    else
        *ret_stream = (struct vv_stream *)s;
    return rc;
}

static void inject_stream_free(struct vv_device *dev, struct vv_stream *s)
{
    if (!s)
        return;
    vv_device_stream_free(device_of(dev)->inner, stream_of(s)->inner);
    free(s);
}

static int inject_copy_async(struct vv_device *dev, struct vv_stream *s,
                             const struct vv_copy_seg *segs, size_t n_segs)
{
    struct inject_device *d = device_of(dev);
    bool late = false;
    int rc = device_step(d, VV_DEVICE_OP_COPY_ASYNC, &late);

    if (late) {
        int none = 0;

        /* The first failure since the last record is the one that is reported. */
        (void)atomic_compare_exchange_strong(&stream_of(s)->err, &none, rc);
        return 0;
    }
    return rc ? rc : vv_device_copy_async(d->inner, stream_of(s)->inner, segs, n_segs);
}

static int inject_event_new(struct vv_device *dev, struct vv_event **ret_event)
{
    struct inject_device *d = device_of(dev);
    struct inject_event *ev;
    int rc = device_enter(d, VV_DEVICE_OP_EVENT_NEW);

    if (rc)
        return rc;
    ev = calloc(1, sizeof(*ev));
    T_CHECK(ev);
    rc = vv_device_event_new(d->inner, &ev->inner);
    if (rc)
        free(ev);
    else
        *ret_event = (struct vv_event *)ev;
    return rc;
}

static void inject_event_free(struct vv_device *dev, struct vv_event *ev)
{
    if (!ev)
        return;
    vv_device_event_free(device_of(dev)->inner, event_of(ev)->inner);
    free(ev);
}

static int inject_event_record(struct vv_device *dev, struct vv_event *ev, struct vv_stream *s)
{
    struct inject_device *d = device_of(dev);
    int rc = device_enter(d, VV_DEVICE_OP_EVENT_RECORD);

    if (!rc)
        rc = vv_device_event_record(d->inner, event_of(ev)->inner, stream_of(s)->inner);
    if (!rc)
        event_of(ev)->err = atomic_exchange(&stream_of(s)->err, 0);
    return rc;
}

/* The inner event's result, or else the swallowed batch's. */
static int event_result(struct vv_event *ev, int rc)
{
    return rc ? rc : event_of(ev)->err;
}

static int inject_event_query(struct vv_device *dev, struct vv_event *ev)
{
    struct inject_device *d = device_of(dev);
    int rc = device_enter(d, VV_DEVICE_OP_EVENT_QUERY);

    return rc ? rc : event_result(ev, vv_device_event_query(d->inner, event_of(ev)->inner));
}

static int inject_event_wait(struct vv_device *dev, struct vv_event *ev, int64_t timeout_ns)
{
    struct inject_device *d = device_of(dev);
    int rc = device_enter(d, VV_DEVICE_OP_EVENT_WAIT);

    if (rc)
        return rc;
    return event_result(ev, vv_device_event_wait(d->inner, event_of(ev)->inner, timeout_ns));
}

static int inject_stream_wait_event(struct vv_device *dev, struct vv_stream *s, struct vv_event *ev)
{
    struct inject_device *d = device_of(dev);
    int rc = device_enter(d, VV_DEVICE_OP_STREAM_WAIT_EVENT);

    if (rc)
        return rc;
    return vv_device_stream_wait_event(d->inner, stream_of(s)->inner, event_of(ev)->inner);
}

static int inject_after_app(struct vv_device *dev, struct vv_stream *s)
{
    struct inject_device *d = device_of(dev);
    int rc = device_enter(d, VV_DEVICE_OP_AFTER_APP);

    return rc ? rc : vv_device_after_app(d->inner, stream_of(s)->inner);
}

static int inject_enter(struct vv_device *dev)
{
    return vv_device_enter(device_of(dev)->inner);
}

static void inject_leave(struct vv_device *dev)
{
    vv_device_leave(device_of(dev)->inner);
}

static int inject_stream_id(struct vv_device *dev, struct vv_stream *stream, uint64_t *ret_id)
{
    struct inject_device *d = device_of(dev);
    int rc = device_enter(d, VV_DEVICE_OP_STREAM_ADOPT);

    return rc ? rc : vv_device_stream_id(d->inner, ((struct inject_stream *)stream)->inner, ret_id);
}

static int inject_stream_adopt(struct vv_device *dev, void *native, struct vv_stream **ret_stream)
{
    struct inject_device *d = device_of(dev);
    struct inject_stream *s;
    int rc = device_enter(d, VV_DEVICE_OP_STREAM_ADOPT);

    if (rc)
        return rc;
    s = calloc(1, sizeof(*s));
    T_CHECK(s);
    rc = vv_device_stream_adopt(d->inner, native, &s->inner);
    if (rc)
        free(s);
    else
        *ret_stream = (struct vv_stream *)s;
    return rc;
}

static int inject_launch(struct vv_device *dev, struct vv_stream *s, const struct vv_kernel *k)
{
    struct inject_device *d = device_of(dev);
    int rc = device_enter(d, VV_DEVICE_OP_LAUNCH);

    return rc ? rc : vv_device_launch(d->inner, stream_of(s)->inner, k);
}

static void inject_describe(struct vv_device *dev, struct vv_device_info *ret_info)
{
    vv_device_describe(device_of(dev)->inner, ret_info);
}

static int inject_last_code(struct vv_device *dev, const char **ret_name)
{
    return vv_device_last_code(device_of(dev)->inner, ret_name);
}

static const struct vv_device_ops inject_device_ops = {
    .name = "inject",
    .close = inject_device_close,
    .mem_alloc = inject_mem_alloc,
    .mem_free = inject_mem_free,
    .mem_info = inject_mem_info,
    .host_register = inject_host_register,
    .host_share = inject_host_share,
    .host_address = inject_host_address,
    .host_unregister = inject_host_unregister,
    .ptr_kind = inject_ptr_kind,
    .stream_new = inject_stream_new,
    .stream_free = inject_stream_free,
    .copy_async = inject_copy_async,
    .event_new = inject_event_new,
    .event_free = inject_event_free,
    .event_record = inject_event_record,
    .event_query = inject_event_query,
    .event_wait = inject_event_wait,
    .stream_wait_event = inject_stream_wait_event,
    .after_app = inject_after_app,
    .enter = inject_enter,
    .leave = inject_leave,
    .stream_adopt = inject_stream_adopt,
    .stream_id = inject_stream_id,
    .launch = inject_launch,
    .describe = inject_describe,
    .last_code = inject_last_code,
};

struct vv_device *t_inject_device(struct t_inject *inj, struct vv_device *inner)
{
    struct inject_device *d = calloc(1, sizeof(*d));

    T_CHECK(d);
    *d = (struct inject_device){{&inject_device_ops}, inner, inj};
    return &d->base;
}

/* ---- store ---- */

struct inject_store {
    struct vv_store base;
    struct vv_store *inner;
    struct t_inject *inj;
    struct vv_store_io *failed; /* accepted, not passed on; linked by `next`, oldest first */
    struct vv_store_io **failed_end;
};

static struct inject_store *store_of(struct vv_store *store)
{
    return (struct inject_store *)store;
}

static void inject_store_close(struct vv_store *store)
{
    struct inject_store *s = store_of(store);

    s->inner->ops->close(s->inner);
    free(s);
}

static int inject_submit(struct vv_store *store, struct vv_store_io *io)
{
    struct inject_store *s = store_of(store);
    bool late = false;
    int rc = step(s->inj, store_op_name[io->op], &late);

    if (late) {
        io->status = rc;
        io->bad_chunk = io->chunk0;
        io->next = NULL;
        *s->failed_end = io;
        s->failed_end = &io->next;
        return 0;
    }
    return rc ? rc : s->inner->ops->submit(s->inner, io);
}

static int inject_poll(struct vv_store *store, struct vv_store_io **ret_done, size_t max,
                       int64_t timeout_ns)
{
    struct inject_store *s = store_of(store);
    int n = 0;

    while (s->failed && (size_t)n < max) {
        struct vv_store_io *io = s->failed;

        s->failed = io->next;
        if (!s->failed)
            s->failed_end = &s->failed;
        io->next = NULL;
        ret_done[n++] = io;
    }
    return n ? n : s->inner->ops->poll(s->inner, ret_done, max, timeout_ns);
}

static void inject_kick(struct vv_store *store)
{
    struct inject_store *s = store_of(store);

    s->inner->ops->kick(s->inner);
}

static const struct vv_store_ops inject_store_ops = {
    .name = "inject",
    .close = inject_store_close,
    .submit = inject_submit,
    .poll = inject_poll,
    .kick = inject_kick,
};

struct vv_store *t_inject_store(struct t_inject *inj, struct vv_store *inner)
{
    struct inject_store *s = calloc(1, sizeof(*s));

    T_CHECK(s);
    *s = (struct inject_store){.base = {.ops = &inject_store_ops}, .inner = inner, .inj = inj};
    s->failed_end = &s->failed;
    return &s->base;
}
