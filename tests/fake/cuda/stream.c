/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams, events and capture of the stand-in.
 *
 * Each stream that has ever had work has a thread, which runs the stream's operations one by one,
 * so that each stream is in order and the streams run concurrently. An event, and a wait for one,
 * hold a reference to their operation. The legacy default stream waits for all blocking streams of
 * its context and they for it, by waits that are put in front of the work.
 *
 * An operation that fails makes its context unusable: queued work is dropped, and all calls return
 * the error. A stream that is being captured records nothing and runs nothing: the stand-in only
 * checks which calls are forbidden meanwhile, and that a forbidden call invalidates the capture.
 *
 * Threads are detached and end only after their stream; the library is never unloaded.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sched.h>

#include "private.h"

enum { MODE_GLOBAL, MODE_THREAD_LOCAL, MODE_RELAXED };
enum { CAPTURE_NONE, CAPTURE_ACTIVE, CAPTURE_INVALID };
enum { COPY_STEP = 1 << 20 };

struct event {
    struct event *next;
    struct fake_ctx *ctx;
    unsigned life;
    bool timing;
    bool captured;
    struct fake_op *op; /* NULL: never recorded */
};

static void run_host_call(void *arg);

static struct fake_stream *streams;
static struct event *events;
static size_t pending;
static uint64_t submitted;
static uint64_t captures;
static unsigned long long stream_ids;
static _Thread_local int thread_mode = MODE_GLOBAL;

/* ---- operations ---- */

struct fake_op *fake_op_new(enum fake_op_kind kind)
{
    struct fake_op *op = calloc(1, sizeof(*op));
    if (op) {
        op->kind = kind;
        op->refs = 1;
    }
    return op;
}

static struct fake_op *op_ref(struct fake_op *op)
{
    op->refs++;
    return op;
}

static void op_release_body(struct fake_op *op)
{
    if (op->free_arg)
        op->free_arg(op->arg);
    op->free_arg = NULL;
    free(op->segs);
    free(op->staging);
    op->segs = NULL;
    op->staging = NULL;
}

void fake_op_unref(struct fake_op *op)
{
    if (!op || --op->refs > 0)
        return;
    fake_op_unref(op->target);
    op_release_body(op);
    free(op);
}

void fake_op_wait(struct fake_op *op)
{
    op->refs++;
    while (!op->done)
        pthread_cond_wait(&fake_done, &fake_lock);
    fake_op_unref(op);
}

/* The operation has run or was dropped. Events and waits may refer to it for long, so its memory is freed. */
static void op_finish(struct fake_op *op)
{
    op->done = true;
    op->end_ns = fake_now_ns();
    op_release_body(op);
    fake_op_unref(op->target);
    op->target = NULL;
    pending--;
    fake_op_unref(op);
    pthread_cond_broadcast(&fake_done);
}

static bool stream_dead(const struct fake_stream *s)
{
    return !s->ctx->alive || s->ctx->life != s->life;
}

static void sleep_until(uint64_t ns)
{
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

static void run_set(const struct fake_op *op)
{
    char *dst = op->segs[0].dst;
    for (size_t at = 0; at + op->width <= op->segs[0].bytes; at += op->width)
        memcpy(dst + at, &op->value, op->width);
}

/* Without the lock. In steps, so that a large copy does not look atomic. */
static void run_copy(const struct fake_op *op, uint64_t latency_ns)
{
    uint64_t start = fake_now_ns(), bytes = 0;
    for (size_t i = 0; i < op->n_segs; i++) {
        const struct fake_seg *seg = &op->segs[i];
        for (size_t at = 0; at < seg->bytes; at += COPY_STEP) {
            size_t n = seg->bytes - at < COPY_STEP ? seg->bytes - at : COPY_STEP;
            memmove(seg->dst + at, seg->src + at, n);
        }
        bytes += seg->bytes;
    }
    if (op->pace_bytes_per_s)
        latency_ns += (uint64_t)((double)bytes / (double)op->pace_bytes_per_s * 1e9);
    if (latency_ns)
        sleep_until(start + latency_ns);
}

/* A lost context no longer touches memory when the first call reports the loss. */
void fake_streams_stop(const struct fake_ctx *c)
{
    for (struct fake_stream *s = streams; s;) {
        if (s->ctx == c && s->busy) {
            pthread_cond_wait(&fake_done, &fake_lock);
            s = streams; /* the list may have changed */
        } else {
            s = s->next;
        }
    }
}

/* With the lock held; drops it while it works. */
static void run_op(struct fake_stream *s, struct fake_op *op)
{
    uint64_t latency_ns = (uint64_t)fake_set.latency_ns;
    if (op->fail && s->ctx->error == 0) {
        fake_streams_stop(s->ctx);
        s->ctx->error = op->fail;
    }
    if (op->kind == FAKE_OP_WAIT) {
        while (!op->target->done && !stream_dead(s) && s->ctx->error == 0)
            pthread_cond_wait(&fake_done, &fake_lock);
        return;
    }
    if (op->kind == FAKE_OP_MARK || s->ctx->error || stream_dead(s))
        return;
    s->busy = op->fn !=
              run_host_call; /* a host function may wait for the thread that stops the streams */
    pthread_mutex_unlock(&fake_lock);
    if (op->kind == FAKE_OP_COPY)
        run_copy(op, latency_ns);
    else if (op->kind == FAKE_OP_SET)
        run_set(op);
    else
        op->fn(op->arg);
    pthread_mutex_lock(&fake_lock);
    s->busy = false;
}

static void stream_unref(struct fake_stream *s)
{
    if (--s->refs > 0)
        return;
    for (struct fake_stream **p = &streams; *p; p = &(*p)->next) {
        if (*p == s) {
            *p = s->next;
            break;
        }
    }
    fake_op_unref(s->last);
    pthread_cond_destroy(&s->work);
    free(s);
}

static void *stream_main(void *arg)
{
    struct fake_stream *s = arg;
    pthread_mutex_lock(&fake_lock);
    for (;;) {
        while (!s->head && !s->destroyed && !stream_dead(s))
            pthread_cond_wait(&s->work, &fake_lock);
        struct fake_op *op = s->head;
        if (!op)
            break;
        s->head = op->next;
        if (!s->head)
            s->tail = NULL;
        s->current = op;
        run_op(s, op);
        s->current = NULL;
        op_finish(op);
    }
    stream_unref(s);
    pthread_mutex_unlock(&fake_lock);
    return NULL;
}

static int start_thread(struct fake_stream *s)
{
    pthread_attr_t attr;
    pthread_t thread;
    if (s->thread)
        return 0;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    /* It stands for hardware, which is not subject to the program's affinity. */
    cpu_set_t all;
    memset(&all, 0xff, sizeof(all));
    pthread_attr_setaffinity_np(&attr, sizeof(all), &all);
    s->refs++;
    int rc = pthread_create(&thread, &attr, stream_main, s);
    pthread_attr_destroy(&attr);
    if (rc) {
        s->refs--;
        return FAKE_OUT_OF_MEMORY;
    }
    s->thread = true;
    return 0;
}

/* The queue takes over the caller's reference. */
static void append(struct fake_stream *s, struct fake_op *op)
{
    op->next = NULL;
    op->number = ++submitted;
    if (s->tail)
        s->tail->next = op;
    else
        s->head = op;
    s->tail = op;
    fake_op_unref(s->last);
    s->last = op_ref(op);
    pending++;
    pthread_cond_signal(&s->work);
}

static int append_wait(struct fake_stream *s, struct fake_op *target)
{
    if (!target || target->done)
        return 0;
    struct fake_op *op = fake_op_new(FAKE_OP_WAIT);
    if (!op)
        return FAKE_OUT_OF_MEMORY;
    op->target = op_ref(target);
    append(s, op);
    return 0;
}

/* Adds the implicit waits between the default stream and the blocking streams. */
static int wait_implicitly(struct fake_stream *s)
{
    struct fake_ctx *c = s->ctx;
    if (s->nonblocking)
        return 0;
    if (s != c->legacy)
        return append_wait(s, c->legacy->last);
    int rc = 0;
    for (struct fake_stream *o = streams; o && rc == 0; o = o->next) {
        if (o->ctx == c && o->life == c->life && !o->nonblocking && o != s)
            rc = append_wait(s, o->last);
    }
    return rc;
}

/* Work on the default stream would make a capture depend on it: it invalidates the capture instead. */
static int check_implicit(struct fake_stream *s)
{
    int rc = 0;
    for (struct fake_stream *o = streams; o && s == s->ctx->legacy; o = o->next) {
        if (o->ctx == s->ctx && !o->nonblocking && o->capture == CAPTURE_ACTIVE) {
            o->capture = CAPTURE_INVALID;
            rc = FAKE_CAPTURE_IMPLICIT;
        }
    }
    return rc;
}

int fake_submit(struct fake_stream *s, struct fake_op *op)
{
    int rc = s->capture == CAPTURE_INVALID ? FAKE_CAPTURE_INVALIDATED : check_implicit(s);
    if (rc || s->capture == CAPTURE_ACTIVE) {
        fake_op_unref(op);
        return rc;
    }
    rc = start_thread(s);
    if (rc == 0)
        rc = wait_implicitly(s);
    if (rc) {
        fake_op_unref(op);
        return rc;
    }
    append(s, op);
    return 0;
}

static bool has_work_up_to(const struct fake_stream *s, uint64_t limit)
{
    return (s->current && s->current->number <= limit) || (s->head && s->head->number <= limit);
}

void fake_drain(int dev)
{
    uint64_t limit = submitted;
    for (;;) {
        struct fake_stream *s = streams;
        while (s && (s->ctx->dev != dev || !has_work_up_to(s, limit)))
            s = s->next;
        if (!s)
            return;
        pthread_cond_wait(&fake_done, &fake_lock);
    }
}

/* A function of the application is not device work: it may take any time. */
static bool device_works(const struct fake_stream *s)
{
    return s->current && s->current->fn != run_host_call;
}

void fake_streams_drop(struct fake_ctx *c, unsigned life)
{
    for (;;) {
        struct fake_stream *s = streams;
        while (s && !(s->ctx == c && s->life == life && (s->head || device_works(s))))
            s = s->next;
        if (!s)
            break;
        while (s->head) {
            struct fake_op *op = s->head;
            s->head = op->next;
            op_finish(op);
        }
        s->tail = NULL;
        if (device_works(s)) {
            pthread_cond_broadcast(
                &fake_done); /* wakes waits, which check if their stream exists */
            pthread_cond_wait(&fake_done, &fake_lock);
        }
    }
    for (struct fake_stream *s = streams; s; s = s->next) {
        if (s->ctx == c && s->life == life)
            pthread_cond_signal(&s->work);
    }
}

/* ---- streams ---- */

struct fake_stream *fake_stream_make(struct fake_ctx *c, bool nonblocking)
{
    struct fake_stream *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->ctx = c;
    s->life = c->life;
    s->refs = 1;
    s->nonblocking = nonblocking;
    s->id = stream_ids++;
    pthread_cond_init(&s->work, NULL);
    s->next = streams;
    streams = s;
    return s;
}

/* Handles 0 and 1 are the legacy default stream, 2 is the per-thread one, which all threads share
 * here. */
static int stream_any(void *handle, struct fake_stream **ret_stream)
{
    struct fake_ctx *c = fake_current();
    if ((uintptr_t)handle <= 2) {
        int rc = fake_ctx_usable(c);
        if (rc == 0)
            *ret_stream = (uintptr_t)handle == 2 ? c->per_thread : c->legacy;
        return rc;
    }
    for (struct fake_stream *s = streams; s; s = s->next) {
        if ((void *)s != handle || s->destroyed)
            continue;
        if (stream_dead(s))
            return FAKE_CONTEXT_IS_DESTROYED;
        *ret_stream = s;
        return 0;
    }
    return FAKE_INVALID_HANDLE;
}

int fake_stream_find(void *handle, struct fake_stream **ret_stream)
{
    struct fake_stream *s;
    int rc = stream_any(handle, &s);
    if (rc)
        return rc;
    if (s->ctx != fake_current())
        return FAKE_INVALID_HANDLE;
    *ret_stream = s;
    return 0;
}

size_t fake_stream_live(const char *what)
{
    size_t n = 0;
    if (strcmp(what, "pending") == 0)
        return pending;
    if (strcmp(what, "events") == 0) {
        for (struct event *e = events; e; e = e->next)
            n += e->ctx->alive && e->ctx->life == e->life;
    } else if (strcmp(what, "streams") == 0) {
        for (struct fake_stream *s = streams; s; s = s->next)
            n += !s->destroyed && !stream_dead(s) && s != s->ctx->legacy && s != s->ctx->per_thread;
    }
    return n;
}

static int stream_create(void **ret_stream, unsigned flags)
{
    if (flags > 1)
        return FAKE_INVALID_VALUE;
    struct fake_stream *s = fake_stream_make(fake_current(), flags == 1);
    if (!s)
        return FAKE_OUT_OF_MEMORY;
    *ret_stream = s;
    return 0;
}

API int cuStreamCreate(void **ret_stream, unsigned flags)
{
    ENTER(cuStreamCreate, FAKE_NEED_CTX);
    LEAVE(stream_create(ret_stream, flags));
}

API int cuStreamCreateWithPriority(void **ret_stream, unsigned flags, int priority)
{
    ENTER(cuStreamCreateWithPriority, FAKE_NEED_CTX);
    (void)priority;
    LEAVE(stream_create(ret_stream, flags));
}

/* Work already submitted still runs; the handle is void at once. */
API int cuStreamDestroy_v2(void *handle)
{
    ENTER(cuStreamDestroy, FAKE_NEED_INIT);
    struct fake_stream *s;
    if ((uintptr_t)handle <= 2)
        LEAVE(FAKE_INVALID_HANDLE);
    int rc = stream_any(handle, &s);
    if (rc)
        LEAVE(rc);
    s->destroyed = true;
    pthread_cond_signal(&s->work);
    stream_unref(s);
    LEAVE(0);
}

API int cuStreamQuery(void *handle)
{
    ENTER(cuStreamQuery, FAKE_NEED_CTX | FAKE_NEED_CALM);
    struct fake_stream *s;
    int rc = fake_stream_find(handle, &s);
    if (rc)
        LEAVE(rc);
    if (s->capture)
        LEAVE(FAKE_CAPTURE_UNSUPPORTED);
    LEAVE(s->last && !s->last->done ? FAKE_NOT_READY : 0);
}

API int cuStreamSynchronize(void *handle)
{
    ENTER(cuStreamSynchronize, FAKE_NEED_CTX | FAKE_NEED_CALM);
    struct fake_stream *s;
    struct fake_ctx *c = fake_current();
    int rc = fake_stream_find(handle, &s);
    if (rc)
        LEAVE(rc);
    if (s->capture)
        LEAVE(FAKE_CAPTURE_UNSUPPORTED);
    if (s->last)
        fake_op_wait(s->last);
    LEAVE(fake_ctx_usable(c));
}

API int cuStreamGetCtx(void *handle, void **ret_ctx)
{
    ENTER(cuStreamGetCtx, FAKE_NEED_INIT);
    struct fake_stream *s;
    int rc = stream_any(handle, &s);
    if (rc == 0)
        *ret_ctx = s->ctx;
    LEAVE(rc);
}

struct host_call {
    void (*fn)(void *arg);
    void *arg;
};

static void run_host_call(void *arg)
{
    struct host_call *h = arg;
    h->fn(h->arg);
}

API int cuLaunchHostFunc(void *handle, void (*fn)(void *arg), void *arg)
{
    ENTER(cuLaunchHostFunc, FAKE_NEED_CTX);
    struct fake_stream *s;
    int rc = fn ? fake_stream_find(handle, &s) : FAKE_INVALID_VALUE;
    if (rc)
        LEAVE(rc);
    struct fake_op *op = fake_op_new(FAKE_OP_CALL);
    struct host_call *h = malloc(sizeof(*h));
    if (!op || !h) {
        fake_op_unref(op);
        free(h);
        LEAVE(FAKE_OUT_OF_MEMORY);
    }
    *h = (struct host_call){fn, arg};
    op->fn = run_host_call;
    op->arg = h;
    op->free_arg = free;
    LEAVE(fake_submit(s, op));
}

/* ---- events ---- */

static int event_any(void *handle, struct event **ret_event)
{
    for (struct event *e = events; e; e = e->next) {
        if ((void *)e != handle)
            continue;
        if (!e->ctx->alive || e->ctx->life != e->life)
            return FAKE_CONTEXT_IS_DESTROYED;
        *ret_event = e;
        return 0;
    }
    return FAKE_INVALID_HANDLE;
}

API int cuEventCreate(void **ret_event, unsigned flags)
{
    ENTER(cuEventCreate, FAKE_NEED_CTX);
    struct event *e = calloc(1, sizeof(*e));
    if (!e)
        LEAVE(FAKE_OUT_OF_MEMORY);
    e->ctx = fake_current();
    e->life = e->ctx->life;
    e->timing = !(flags & 2);
    e->next = events;
    events = e;
    *ret_event = e;
    LEAVE(0);
}

API int cuEventDestroy_v2(void *handle)
{
    ENTER(cuEventDestroy, FAKE_NEED_INIT);
    struct event *e;
    int rc = event_any(handle, &e);
    if (rc)
        LEAVE(rc);
    struct event **p = &events;
    while (*p != e)
        p = &(*p)->next;
    *p = e->next;
    fake_op_unref(e->op);
    free(e);
    LEAVE(0);
}

static int event_record(void *handle, void *stream)
{
    struct fake_stream *s;
    struct event *e;
    int rc = event_any(handle, &e);
    if (rc == 0)
        rc = fake_stream_find(stream, &s);
    if (rc)
        return rc;
    if (e->ctx != s->ctx)
        return FAKE_INVALID_HANDLE;
    struct fake_op *op = fake_op_new(FAKE_OP_MARK);
    if (!op)
        return FAKE_OUT_OF_MEMORY;
    op_ref(op);
    rc = fake_submit(s, op);
    if (rc) {
        fake_op_unref(op);
        return rc;
    }
    fake_op_unref(e->op);
    e->op = op;
    e->captured = s->capture == CAPTURE_ACTIVE;
    return 0;
}

API int cuEventRecord(void *handle, void *stream)
{
    ENTER(cuEventRecord, FAKE_NEED_CTX);
    LEAVE(event_record(handle, stream));
}

API int cuEventRecordWithFlags(void *handle, void *stream, unsigned flags)
{
    ENTER(cuEventRecordWithFlags, FAKE_NEED_CTX);
    (void)flags;
    LEAVE(event_record(handle, stream));
}

API int cuEventQuery(void *handle)
{
    ENTER(cuEventQuery, FAKE_NEED_INIT | FAKE_NEED_CALM);
    struct event *e;
    int rc = event_any(handle, &e);
    if (rc == 0)
        rc = e->captured ? FAKE_CAPTURED_EVENT : e->ctx->error;
    if (rc == 0 && e->op && !e->op->done)
        rc = FAKE_NOT_READY;
    LEAVE(rc);
}

API int cuEventSynchronize(void *handle)
{
    ENTER(cuEventSynchronize, FAKE_NEED_INIT | FAKE_NEED_CALM);
    struct event *e;
    int rc = event_any(handle, &e);
    if (rc == 0 && e->captured)
        rc = FAKE_CAPTURED_EVENT;
    if (rc)
        LEAVE(rc);
    struct fake_ctx *c = e->ctx;
    if (e->op)
        fake_op_wait(e->op);
    LEAVE(fake_ctx_usable(c));
}

static int elapsed(float *ret_ms, void *start, void *end)
{
    struct event *a, *b;
    int rc = event_any(start, &a);
    if (rc == 0)
        rc = event_any(end, &b);
    if (rc)
        return rc;
    if (!a->op || !b->op || !a->timing || !b->timing)
        return FAKE_INVALID_HANDLE;
    if (!a->op->done || !b->op->done)
        return FAKE_NOT_READY;
    *ret_ms = (float)((double)((int64_t)(b->op->end_ns - a->op->end_ns)) / 1e6);
    return 0;
}

API int cuEventElapsedTime(float *ret_ms, void *start, void *end)
{
    ENTER(cuEventElapsedTime, FAKE_NEED_INIT);
    LEAVE(elapsed(ret_ms, start, end));
}

API int cuEventElapsedTime_v2(float *ret_ms, void *start, void *end)
{
    ENTER(cuEventElapsedTime, FAKE_NEED_INIT);
    LEAVE(elapsed(ret_ms, start, end));
}

API int cuStreamWaitEvent(void *stream, void *handle, unsigned flags)
{
    ENTER(cuStreamWaitEvent, FAKE_NEED_CTX);
    struct fake_stream *s;
    struct event *e;
    (void)flags;
    int rc = event_any(handle, &e);
    if (rc == 0)
        rc = fake_stream_find(stream, &s);
    if (rc)
        LEAVE(rc);
    if (e->captured) {
        s->capture = CAPTURE_ACTIVE; /* it joins the capture */
        LEAVE(0);
    }
    if (!e->op || e->op->done)
        LEAVE(s->capture == CAPTURE_INVALID ? FAKE_CAPTURE_INVALIDATED : check_implicit(s));
    struct fake_op *op = fake_op_new(FAKE_OP_WAIT);
    if (!op)
        LEAVE(FAKE_OUT_OF_MEMORY);
    op->target = op_ref(e->op);
    LEAVE(fake_submit(s, op));
}

/* ---- capture ---- */

int fake_capture_check(void)
{
    int rc = 0;
    if (thread_mode == MODE_RELAXED)
        return 0;
    for (struct fake_stream *s = streams; s; s = s->next) {
        if (s->capture != CAPTURE_ACTIVE || s->capture_mode == MODE_RELAXED)
            continue;
        bool own = pthread_equal(s->capture_thread, pthread_self());
        if (own || (s->capture_mode == MODE_GLOBAL && thread_mode == MODE_GLOBAL)) {
            s->capture = CAPTURE_INVALID;
            rc = FAKE_CAPTURE_UNSUPPORTED;
        }
    }
    return rc;
}

API int cuThreadExchangeStreamCaptureMode(int *mode)
{
    ENTER(cuThreadExchangeStreamCaptureMode, FAKE_NEED_INIT);
    int old = thread_mode;
    if (*mode < MODE_GLOBAL || *mode > MODE_RELAXED)
        LEAVE(FAKE_INVALID_VALUE);
    thread_mode = *mode;
    *mode = old;
    LEAVE(0);
}

static int begin_capture(void *handle, int mode)
{
    struct fake_stream *s;
    int rc = fake_stream_find(handle, &s);
    if (rc)
        return rc;
    if (s == s->ctx->legacy)
        return FAKE_CAPTURE_UNSUPPORTED;
    if (s->capture || mode < MODE_GLOBAL || mode > MODE_RELAXED)
        return FAKE_INVALID_VALUE;
    s->capture = CAPTURE_ACTIVE;
    s->capture_mode = mode;
    s->capture_id = ++captures;
    s->capture_thread = pthread_self();
    return 0;
}

API int cuStreamBeginCapture(void *handle)
{
    ENTER(cuStreamBeginCapture, FAKE_NEED_CTX);
    LEAVE(begin_capture(handle, MODE_GLOBAL));
}

API int cuStreamBeginCapture_v2(void *handle, int mode)
{
    ENTER(cuStreamBeginCapture, FAKE_NEED_CTX);
    LEAVE(begin_capture(handle, mode));
}

/* There are no graphs here: the result is not a handle. */
API int cuStreamEndCapture(void *handle, void **ret_graph)
{
    ENTER(cuStreamEndCapture, FAKE_NEED_CTX);
    struct fake_stream *s;
    int rc = fake_stream_find(handle, &s);
    if (rc)
        LEAVE(rc);
    if (!s->capture)
        LEAVE(FAKE_INVALID_VALUE);
    rc = s->capture == CAPTURE_INVALID ? FAKE_CAPTURE_INVALIDATED : 0;
    s->capture = CAPTURE_NONE;
    *ret_graph = NULL;
    LEAVE(rc);
}

static int capture_status(void *handle, int *ret_status, uint64_t *ret_id)
{
    struct fake_stream *s;
    int rc = fake_stream_find(handle, &s);
    if (rc)
        return rc;
    for (struct fake_stream *o = streams; o && s == s->ctx->legacy; o = o->next) {
        if (o->ctx == s->ctx && !o->nonblocking && o->capture == CAPTURE_ACTIVE)
            return FAKE_CAPTURE_IMPLICIT;
    }
    *ret_status = s->capture;
    if (ret_id && s->capture == CAPTURE_ACTIVE)
        *ret_id = s->capture_id;
    return 0;
}

API int cuStreamGetId(void *handle, unsigned long long *ret_id)
{
    ENTER(cuStreamGetId, FAKE_NEED_CTX);
    struct fake_stream *s;
    int rc = fake_stream_find(handle, &s);
    if (rc == 0)
        *ret_id = s->id;
    LEAVE(rc);
}

API int cuStreamIsCapturing(void *handle, int *ret_status)
{
    ENTER(cuStreamIsCapturing, FAKE_NEED_CTX);
    LEAVE(capture_status(handle, ret_status, NULL));
}

API int cuStreamGetCaptureInfo(void *handle, int *ret_status, uint64_t *ret_id)
{
    ENTER(cuStreamGetCaptureInfo, FAKE_NEED_CTX);
    LEAVE(capture_status(handle, ret_status, ret_id));
}

API int cuStreamGetCaptureInfo_v2(void *handle, int *ret_status, uint64_t *ret_id, void **ret_graph,
                                  const void **ret_deps, size_t *ret_n)
{
    ENTER(cuStreamGetCaptureInfo, FAKE_NEED_CTX);
    LEAVE(ret_graph || ret_deps || ret_n ? FAKE_NOT_SUPPORTED
                                         : capture_status(handle, ret_status, ret_id));
}

API int cuStreamGetCaptureInfo_v3(void *handle, int *ret_status, uint64_t *ret_id, void **ret_graph,
                                  const void **ret_deps, const void **ret_edges, size_t *ret_n)
{
    ENTER(cuStreamGetCaptureInfo, FAKE_NEED_CTX);
    LEAVE(ret_graph || ret_deps || ret_edges || ret_n ? FAKE_NOT_SUPPORTED
                                                      : capture_status(handle, ret_status, ret_id));
}
