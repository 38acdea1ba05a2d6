/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that are ordered by a stream of the application.
 *
 * The caller's thread takes the APP orders of its request, puts all their copies on the
 * application's stream as one batch, records an event behind them and returns when every chunk has
 * an order. Nothing on the stream ever waits for a decision of the host. The request itself is on
 * the heap. One thread, the watcher, started at the first use, queries the events and completes the
 * orders of those that have fired. It polls because callbacks of drivers run on the driver's
 * threads and must not take locks. It sleeps in between, longer and longer, and without limit while
 * there is nothing to query.
 *
 * Invariants:
 * - An order is completed only when its memory is not touched any more, as everywhere. A fired
 *   event says so. An error of the query does not: then the watcher makes its own stream wait for
 *   the event and settles that stream. It never waits for the application's stream, whose later
 *   work may wait for the thread that waits for the library.
 * - Future space may depend on orders that are on the stream already (an object larger than memory
 *   passes through it in parts). So all issued orders are submitted, and handed to the watcher,
 *   before the caller waits for more. Only a caller that does not want to wait gives its orders
 *   back instead.
 * - A request belongs to its caller until `returned` is set, and to the engine afterwards: the
 *   thread that dispatches its end frees it, or keeps it in the history's list of failures if the
 *   caller has returned success.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/thread.h"
#include "base/thread_group.h"
#include "engine/runtime/runtime_private.h"
#include "engine/runtime/spans.h"
#include "trace/trace.h"

#define POLL_FIRST_NS (20 * VV_NS_PER_US)
#define POLL_LAST_NS  (500 * VV_NS_PER_US)
#define WAIT_STEP_NS  ((int64_t)100000000)
#define RETRY_NS      VV_NS_PER_MS
#define QUERY_TRIES   4

struct vvi_on {
    struct vvi_req r;
    uint64_t stream_id; /* 0: it cannot run ahead */
    uint64_t version;
    uint32_t hist;
    bool returned; /* its call has returned. Synchronization: engine lock, all below */
    bool notified; /* the call has returned the failure */
    bool lent;     /* its bytes are already in its pages: nothing is copied */
    struct vv_engine_lend **lends; /* used until it has ended */
    size_t nlends;
    struct vvi_on *next;
};

/* ---- ends ---- */

static void on_unuse_locked(struct vv_engine *e, struct vvi_on *on)
{
    for (size_t i = 0; i < on->nlends; i++)
        vvi_lend_unuse_locked(e, on->lends[i]);
    on->nlends = 0;
}

static void on_free(struct vvi_on *on)
{
    vv_cond_fini(&on->r.cond);
    free(on->lends);
    free(on);
}

void vvi_ordered_end_locked(struct vv_engine *e, uint32_t hist)
{
    struct vvi_engine_hist *h = &e->hist[hist];
    vv_assert(h->ordered > 0 && e->watcher.pending > 0);
    h->ordered--;
    e->watcher.pending--;
    if (h->ordered == 0 || e->watcher.pending == 0)
        vv_cond_broadcast(&e->idle);
}

static void keep_failed_locked(struct vvi_engine_hist *h, struct vvi_on *on)
{
    struct vvi_on **at = &h->failed;
    while (*at)
        at = &(*at)->next;
    *at = on;
}

bool vvi_on_lost_locked(void *arg, uint32_t hist, uint64_t version, int status)
{
    struct vv_engine *e = arg;
    struct vvi_on *on = e->hist[hist].dropped ? NULL : calloc(1, sizeof(*on));
    if (!on)
        return e->hist[hist].dropped;
    vv_cond_init(&on->r.cond);
    on->r.req.kind = VV_REQ_WAIT; /* neither a put nor a get has failed */
    on->r.req.status = status;
    on->version = version;
    keep_failed_locked(&e->hist[hist], on);
    return true;
}

/* The call has returned and the request has ended. */
static void on_finish_locked(struct vv_engine *e, struct vvi_on *on)
{
    struct vvi_engine_hist *h = &e->hist[on->hist];
    vvi_ordered_end_locked(e, on->hist);
    on_unuse_locked(e, on);
    /* A version that was discarded meanwhile has not failed. */
    if (on->r.req.status == 0 || on->r.req.status == -ECANCELED || on->notified || h->dropped) {
        on_free(on);
        return;
    }
    keep_failed_locked(h, on);
}

void vvi_on_ended_locked(struct vv_engine *e, struct vvi_on *on)
{
    if (on->returned)
        on_finish_locked(e, on);
}

void vvi_on_forget_locked(struct vv_engine *e, uint32_t hist)
{
    struct vvi_on *on = e->hist[hist].failed, *next;
    e->hist[hist].failed = NULL;
    for (; on; on = next) {
        next = on->next;
        on_free(on);
    }
}

int vv_engine_take_ordered_error(struct vv_engine *e, uint32_t hist, const uint64_t *version,
                                 uint64_t *ret_version, enum vv_req_kind *ret_kind)
{
    int err = 0;
    vvi_engine_lock(e);
    struct vvi_on **at = &e->hist[hist].failed, *on;
    while (*at && version && (*at)->version != *version)
        at = &(*at)->next;
    on = *at;
    if (on) {
        *at = on->next;
        err = on->r.req.status;
        *ret_version = on->version;
        *ret_kind = on->r.req.kind;
        on_free(on);
    }
    vvi_engine_unlock(e);
    return err;
}

int vv_engine_wait_ordered(struct vv_engine *e, uint32_t hist, uint64_t deadline_ns)
{
    int rc = 0;
    vvi_engine_lock(e);
    while (e->hist[hist].ordered > 0 && rc == 0)
        rc = vvi_engine_wait_locked(e, &e->idle, deadline_ns);
    if (e->hist[hist].ordered == 0)
        rc = 0;
    vvi_engine_unlock(e);
    return rc;
}

/* ---- the watcher ---- */

/* Queries one event. true: its work has ended, with batch->status. */
bool vvi_batch_ended(struct vv_engine *e, struct vvi_batch *b)
{
    struct vv_device *d = e->cfg.device;
    struct vvi_watcher *w = &e->watcher;
    int rc = 0;
    for (int i = 0; i < QUERY_TRIES; i++) {
        rc = vv_device_event_query(d, b->event);
        if (rc == -EBUSY)
            return false;
        if (rc == 0)
            return true;
        b->status = b->status ? b->status : rc;
        if (rc == -ENODEV)
            break;
    }
    /* Either the work has failed, or the device does not answer. */
    for (int i = 0; i < QUERY_TRIES && rc != -ENODEV; i++) {
        if (vv_device_stream_wait_event(d, w->stream, b->event))
            continue;
        vvi_device_settle(e, w->stream, w->settled, rc);
        return true;
    }
    if (rc == -ENODEV)
        atomic_store_explicit(&e->device_lost, true, memory_order_relaxed);
    else
        vvi_device_drain(e);
    return true;
}

/* Moves batches that have ended from the list to `ret_ended`. */
static void watch(struct vv_engine *e, struct vvi_batch **list, struct vvi_batch **ret_ended)
{
    struct vvi_batch *b;
    while ((b = *list)) {
        if (!vvi_batch_ended(e, b)) {
            list = &b->next;
            continue;
        }
        *list = b->next;
        b->next = *ret_ended;
        *ret_ended = b;
    }
}

static void batches_complete_locked(struct vv_engine *e, struct vvi_batch *ended)
{
    struct vv_order *o;
    for (struct vvi_batch *b = ended, *next; b; b = next) {
        next = b->next;
        while ((o = vvi_order_pop(&b->orders))) {
            vvi_trace_copy_end(e, o, b->status);
            vvi_engine_complete_locked(e, o, b->status);
        }
        if (b->lend) {
            vvi_ordered_end_locked(e, b->lend->hist);
            vvi_lend_unuse_locked(e, b->lend);
        }
        b->next = e->watcher.spare;
        e->watcher.spare = b;
    }
}

static void *watcher_main(void *arg)
{
    struct vv_engine *e = arg;
    struct vvi_watcher *w = &e->watcher;
    struct vvi_batch *list = NULL, **tail;
    uint64_t rest_ns = POLL_FIRST_NS;

    vv_thread_sharpen();
    vv_trace_thread("watcher");
    vvi_engine_lock(e);
    while (!e->stopping || list || w->incoming || vvi_ahead_pending_locked(e)) {
        if (w->incoming) {
            for (tail = &list; *tail; tail = &(*tail)->next)
                ;
            *tail = w->incoming;
            w->incoming = NULL;
            rest_ns = POLL_FIRST_NS;
        }
        if (!list && !vvi_ahead_pending_locked(e)) {
            w->idle = true;
            vvi_engine_wait_locked(e, &w->cond, VV_NEVER_NS);
            w->idle = false;
            continue;
        }
        struct vvi_batch *ended = NULL;
        bool any = vvi_ahead_watch_locked(e);
        vvi_engine_unlock(e);
        watch(e, &list, &ended);
        any |= ended != NULL;
        if (!any)
            vv_sleep_until_ns(vv_now_ns() + rest_ns);
        rest_ns = any ? POLL_FIRST_NS : VV_MIN(2 * rest_ns, (uint64_t)POLL_LAST_NS);
        vvi_engine_lock(e);
        batches_complete_locked(e, ended);
    }
    vvi_engine_unlock(e);
    return NULL;
}

void vvi_watcher_init(struct vv_engine *e)
{
    vv_mutex_init(&e->watcher.start_lock, "engine watcher", VV_RANK_MOVER);
    vv_cond_init(&e->watcher.cond);
}

/* Pairs with the release below: a thread that sees `started` sees the other fields as well. */
static int watcher_start(struct vv_engine *e)
{
    struct vvi_watcher *w = &e->watcher;
    struct vv_device *d = e->cfg.device;
    if (atomic_load_explicit(&w->started, memory_order_acquire))
        return 0;
    int rc = 0;
    vv_mutex_lock(&w->start_lock);
    if (!atomic_load_explicit(&w->started, memory_order_relaxed)) {
        if (!w->stream)
            rc = vv_device_stream_new(d, &w->stream);
        if (rc == 0 && !w->settled)
            rc = vv_device_event_new(d, &w->settled);
        if (rc == 0) {
            struct vv_thread_group *before = vv_thread_group_enter(e->cfg.group);
            rc = vv_thread_start(&w->thread, watcher_main, e);
            vv_thread_group_enter(before);
        }
        if (rc == 0)
            atomic_store_explicit(&w->started, true, memory_order_release);
    }
    vv_mutex_unlock(&w->start_lock);
    return rc;
}

void vvi_watcher_wake_locked(struct vv_engine *e)
{
    struct vvi_watcher *w = &e->watcher;
    /* While it has other events to query it checks here itself: no system call for the caller. If
     * it sleeps, it is woken after the unlock, because before that it would only wait for the
     * lock. */
    w->wake |= w->idle;
    w->idle = false;
}

void vvi_watcher_drain_locked(struct vv_engine *e)
{
    while (e->watcher.pending > 0)
        vvi_engine_wait_locked(e, &e->idle, VV_NEVER_NS);
}

void vvi_watcher_fini(struct vv_engine *e)
{
    struct vvi_watcher *w = &e->watcher;
    if (atomic_load_explicit(&w->started, memory_order_acquire)) {
        vvi_engine_lock(e);
        vv_cond_signal(&w->cond);
        vvi_engine_unlock(e);
        pthread_join(w->thread, NULL);
    }
    while (w->spare) {
        struct vvi_batch *next = w->spare->next;
        vv_device_event_free(e->cfg.device, w->spare->event);
        free(w->spare);
        w->spare = next;
    }
    vvi_lanes_ahead_fini(e);
    if (w->settled)
        vv_device_event_free(e->cfg.device, w->settled);
    if (w->stream)
        vv_device_stream_free(e->cfg.device, w->stream);
    vv_cond_fini(&w->cond);
    vv_mutex_fini(&w->start_lock);
}

/* ---- submission ---- */

static struct vvi_batch *batch_spare_locked(struct vv_engine *e)
{
    struct vvi_batch *b = e->watcher.spare;
    if (b)
        e->watcher.spare = b->next;
    return b;
}

/* `b`: a spare one, or NULL. Without the engine lock. */
int vvi_batch_init(struct vv_engine *e, struct vvi_batch *b, struct vvi_batch **ret_batch)
{
    if (!b) {
        b = calloc(1, sizeof(*b));
        if (!b)
            return -ENOMEM;
        int rc = vv_device_event_new(e->cfg.device, &b->event);
        if (rc) {
            free(b);
            return rc;
        }
    }
    b->status = 0;
    b->lend = NULL;
    b->next = NULL;
    *ret_batch = b;
    return 0;
}

static int batch_get(struct vv_engine *e, struct vvi_batch **ret_batch)
{
    vvi_engine_lock(e);
    struct vvi_batch *b = batch_spare_locked(e);
    vvi_engine_unlock(e);
    return vvi_batch_init(e, b, ret_batch);
}

static void batch_put_locked(struct vv_engine *e, struct vvi_batch *b)
{
    if (!b)
        return;
    b->next = e->watcher.spare;
    e->watcher.spare = b;
}

static void batch_watch_locked(struct vv_engine *e, struct vvi_batch *b)
{
    struct vvi_watcher *w = &e->watcher;
    b->next = w->incoming;
    w->incoming = b;
    vvi_watcher_wake_locked(e);
}

/* Puts the copies of all these orders on the stream, and the batch's event behind them. After an
 * error none of them is running any more. */
static int submit(struct vv_engine *e, struct vv_stream *stream, const struct vvi_on *on,
                  struct vvi_batch *b)
{
    struct vvi_segs s;
    int rc = 0;
    vvi_segs_init(&s);
    for (const struct vv_order *o = b->orders.head; o && rc == 0; o = o->runtime) {
        vvi_trace_copy_start(e, o);
        if (!on->lent)
            rc = vvi_order_spans(e, on->r.app, o, vvi_segs_add, &s);
    }
    if (rc == 0 && s.n > 0)
        rc = vvi_device_copy(e, stream, s.v, s.n);
    vvi_segs_fini(&s);
    if (rc)
        return rc;
    rc = vv_device_event_record(e->cfg.device, b->event, stream);
    if (rc)
        vvi_device_settle(e, stream, b->event, rc);
    return rc;
}

void vvi_orders_end_locked(struct vv_engine *e, struct vvi_order_queue *orders, int status)
{
    struct vv_order *o;
    while ((o = vvi_order_pop(orders))) {
        vvi_trace_copy_end(e, o, status);
        vvi_engine_complete_locked(e, o, status);
    }
}

/* Submits the orders issued so far. Engine lock held, released in between. */
static void submit_locked(struct vv_engine *e, struct vvi_on *on, struct vv_stream *stream)
{
    struct vvi_order_queue orders = on->r.orders;
    struct vvi_batch *b = NULL;
    on->r.orders = (struct vvi_order_queue){0};
    if (on->r.req.family) {
        vvi_ahead_app_locked(e, on->r.req.family, stream, on->r.app, &orders);
        return;
    }
    if (!e->cfg.device) { /* the bytes are in place */
        vv_assert(on->lent);
        vvi_orders_end_locked(e, &orders, 0);
        return;
    }
    struct vvi_batch *spare = batch_spare_locked(e);
    vvi_engine_unlock(e);
    int rc = vvi_batch_init(e, spare, &b);
    if (rc == 0) {
        b->orders = orders;
        rc = submit(e, stream, on, b);
        if (rc)
            b->orders = (struct vvi_order_queue){0};
    }
    vvi_engine_lock(e);
    if (rc == 0) {
        batch_watch_locked(e, b);
        return;
    }
    batch_put_locked(e, b);
    if (rc == -ENODEV)
        atomic_store_explicit(&e->device_lost, true, memory_order_relaxed);
    vvi_orders_end_locked(e, &orders, rc);
}

/* Gives up: returns the orders that were issued and not submitted. */
static void give_up_locked(struct vv_engine *e, struct vvi_on *on, int status)
{
    struct vvi_order_queue orders = on->r.orders;
    on->r.orders = (struct vvi_order_queue){0};
    vv_core_cancel(e->core, &on->r.req, status, vv_now_ns());
    vvi_engine_dispatch_locked(e);
    vvi_orders_end_locked(e, &orders, status);
    on->notified = true;
}

/* Runs until every chunk has its order on the stream. Returns the result of the call; the request
 * itself may still be pending then. */
static int on_run_locked(struct vv_engine *e, struct vvi_on *on, struct vv_stream *stream,
                         uint64_t deadline_ns)
{
    struct vvi_req *r = &on->r;
    for (;;) {
        /* The work that its orders will wait for must be on its lane first. */
        if (vvi_ahead_submit_locked(e, r->req.family))
            continue;
        if (r->done)
            return r->req.status;
        if (r->req.error) { /* the request ends when its work on the stream has ended */
            int error = r->req.error;
            give_up_locked(e, on, error);
            return error;
        }
        bool all = r->req.unissued == 0;
        if (!all && deadline_ns == 0) {
            give_up_locked(e, on, -EAGAIN);
            return -EAGAIN;
        }
        if (r->orders.head) {
            submit_locked(e, on, stream);
            continue;
        }
        if (all)
            return 0;
        if (vvi_engine_wait_locked(e, &r->cond, deadline_ns) == -ETIMEDOUT && !r->done &&
            !r->orders.head && r->req.unissued > 0) {
            give_up_locked(e, on, -ETIMEDOUT);
            return -ETIMEDOUT;
        }
    }
}

static int on_new(struct vv_engine *e, const struct vvi_on_args *a, struct vv_stream **ret_stream,
                  struct vvi_on **ret_on)
{
    int rc = e->cfg.device ? watcher_start(e) : 0;
    if (rc)
        return rc;
    struct vvi_on *on = calloc(1, sizeof(*on));
    if (!on)
        return -ENOMEM;
    on->lends = a->nlends && !a->lent ? calloc(a->nlends, sizeof(struct vv_engine_lend *)) : NULL;
    if (a->nlends && !a->lent && !on->lends)
        rc = -ENOMEM;
    if (rc == 0 && e->cfg.device)
        rc = vv_device_stream_adopt(e->cfg.device, a->native, ret_stream);
    if (rc == 0 && e->cfg.device && a->nlends == 0)
        on->stream_id = vvi_ahead_stream_id(e, *ret_stream);
    if (rc) {
        free(on->lends);
        free(on);
        return rc;
    }
    vv_cond_init(&on->r.cond);
    on->r.app = a->app;
    on->r.req.user = &on->r;
    on->r.req.ordered = true;
    on->r.req.keep = a->app && a->app->keep;
    on->r.req.again = a->app && a->app->again;
    on->r.req.replace = a->app && a->app->replace;
    on->r.on = on;
    on->hist = a->hist;
    on->version = a->version;
    on->lent = a->lent;
    *ret_on = on;
    return 0;
}

/* Starts the request in the core. */
static int on_start_locked(struct vv_engine *e, struct vvi_on *on, const struct vvi_on_args *a)
{
    struct vv_object_info info;
    uint64_t now_ns = vv_now_ns();
    int rc;
    on->r.req.family = (uint8_t)vvi_ahead_family_locked(e, on->stream_id);
    if (a->kind == VV_REQ_GET) {
        rc = vv_core_lookup(e->core, a->hist, a->version, &info);
        if (rc == 0 && info.generation != a->generation)
            rc = -ESTALE;
        if (rc == 0)
            rc = vv_core_get(e->core, a->hist, a->version, true, now_ns, &on->r.req);
    } else if (a->lent) {
        struct vv_lend *few[8], **list = few;
        if (a->nlends > VV_ARRAY_SIZE(few))
            list = malloc(a->nlends * sizeof(struct vv_lend *));
        for (size_t i = 0; list && i < a->nlends; i++)
            list[i] = &a->lends[i]->lend;
        rc = list ? vv_core_put_lent(e->core, a->hist, a->version, a->size, a->user, list,
                                     a->nlends, now_ns, &on->r.req)
                  : -ENOMEM;
        if (list != few)
            free(list);
    } else {
        rc = vv_core_put(e->core, a->hist, a->version, a->size, a->user, true, now_ns, &on->r.req);
    }
    for (size_t i = 0; rc == 0 && on->lends && i < a->nlends; i++) {
        on->lends[on->nlends++] = a->lends[i];
        a->lends[i]->uses++;
    }
    return rc;
}

/* The same, tried again while the disk has no room yet for a version made of leases. */
static int on_start_in_time_locked(struct vv_engine *e, struct vvi_on *on,
                                   const struct vvi_on_args *a)
{
    int rc;
    while ((rc = on_start_locked(e, on, a)) == -EAGAIN && vv_now_ns() < a->deadline_ns) {
        vvi_engine_dispatch_locked(e);
        vvi_engine_wait_locked(e, &e->idle, VV_MIN(a->deadline_ns, vv_now_ns() + RETRY_NS));
    }
    return rc == -EAGAIN && a->deadline_ns != 0 ? -ETIMEDOUT : rc;
}

static int on_call(struct vv_engine *e, const struct vvi_on_args *a, bool *ret_accepted,
                   uint32_t *ret_distance)
{
    struct vv_stream *stream = NULL;
    struct vvi_on *on = NULL;
    int rc = on_new(e, a, &stream, &on);
    *ret_accepted = false;
    if (rc) {
        if (a->kind == VV_REQ_PUT && e->cfg.release_user)
            e->cfg.release_user(e->cfg.user_arg, a->user);
        return rc;
    }
    vvi_engine_lock(e);
    rc = on_start_in_time_locked(e, on, a);
    vvi_engine_dispatch_locked(e);
    if (rc == 0) {
        *ret_accepted = true;
        rc = on_run_locked(e, on, stream, a->deadline_ns);
    } else if (a->kind == VV_REQ_PUT && e->cfg.release_user) {
        e->cfg.release_user(e->cfg.user_arg, a->user);
    }
    if (rc == 0 && ret_distance)
        *ret_distance = on->r.req.distance;
    if (*ret_accepted && !on->r.done) {
        e->hist[on->hist].ordered++;
        e->watcher.pending++;
        on->returned = true;
        on = NULL;
    } else {
        on_unuse_locked(e, on);
    }
    vvi_engine_unlock(e);
    if (on)
        on_free(on);
    if (stream)
        vv_device_stream_free(e->cfg.device, stream);
    return rc;
}

/* The whole call within one device scope, in which device operations are cheaper. */
int vvi_on_call(struct vv_engine *e, const struct vvi_on_args *a, bool *ret_accepted,
                uint32_t *ret_distance)
{
    bool inside = e->cfg.device && vv_device_enter(e->cfg.device) == 0;
    int rc = on_call(e, a, ret_accepted, ret_distance);
    if (inside)
        vv_device_leave(e->cfg.device);
    return rc;
}

int vv_engine_put_on(struct vv_engine *e, uint32_t hist, uint64_t version, uint64_t size,
                     uint64_t user, const struct vv_engine_app *app, void *native,
                     uint64_t deadline_ns)
{
    struct vvi_on_args args = {.kind = VV_REQ_PUT,
                               .hist = hist,
                               .version = version,
                               .size = size,
                               .user = user,
                               .app = app,
                               .native = native,
                               .deadline_ns = deadline_ns};
    bool accepted;
    return vvi_on_call(e, &args, &accepted, NULL);
}

int vv_engine_get_on(struct vv_engine *e, uint32_t hist, uint64_t version, uint64_t generation,
                     const struct vv_engine_app *app, void *native, uint64_t deadline_ns,
                     uint32_t *ret_distance)
{
    struct vvi_on_args args = {.kind = VV_REQ_GET,
                               .hist = hist,
                               .version = version,
                               .generation = generation,
                               .app = app,
                               .native = native,
                               .deadline_ns = deadline_ns};
    bool accepted;
    return vvi_on_call(e, &args, &accepted, ret_distance);
}

/* Records the event of a release. After an error the stream has no such event. */
static int record_release(struct vv_engine *e, struct vv_stream *stream,
                          struct vvi_batch **ret_batch)
{
    struct vvi_batch *b = NULL;
    int rc = batch_get(e, &b);
    if (rc == 0)
        rc = vv_device_event_record(e->cfg.device, b->event, stream);
    if (rc == 0) {
        *ret_batch = b;
        return 0;
    }
    vvi_engine_lock(e);
    batch_put_locked(e, b);
    vvi_engine_unlock(e);
    return rc;
}

int vvi_on_release(struct vv_engine *e, struct vv_engine_lend *lend, void *native)
{
    struct vv_stream *stream = NULL;
    struct vvi_batch *b = NULL;
    int rc = watcher_start(e);
    if (rc == 0)
        rc = vv_device_stream_adopt(e->cfg.device, native, &stream);
    if (rc == 0)
        rc = record_release(e, stream, &b);
    if (stream)
        vv_device_stream_free(e->cfg.device, stream);
    if (rc)
        return rc;
    vvi_engine_lock(e);
    b->orders = (struct vvi_order_queue){0};
    b->lend = lend;
    vv_core_lend_ends(e->core, &lend->lend);
    e->hist[lend->hist].ordered++;
    e->watcher.pending++;
    batch_watch_locked(e, b);
    vvi_engine_unlock(e);
    return 0;
}

int vv_engine_stream_check(struct vv_engine *e, void *native)
{
    struct vv_stream *stream;
    if (!e->cfg.device)
        return native ? -ENODEV : 0;
    int rc = vv_device_stream_adopt(e->cfg.device, native, &stream);
    if (rc == 0)
        vv_device_stream_free(e->cfg.device, stream);
    return rc;
}

int vv_engine_stream_wait(struct vv_engine *e, void *native, uint64_t deadline_ns)
{
    struct vv_device *d = e->cfg.device;
    struct vv_stream *stream;
    struct vvi_batch *b = NULL;
    int rc = vv_device_stream_adopt(d, native, &stream);
    if (rc)
        return rc;
    rc = batch_get(e, &b);
    if (rc == 0)
        rc = vv_device_event_record(d, b->event, stream);
    for (bool ended = rc != 0; !ended;) {
        uint64_t now_ns = vv_now_ns(), left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
        rc = vv_device_event_wait(d, b->event,
                                  VV_MIN((int64_t)VV_MIN(left_ns, INT64_MAX), WAIT_STEP_NS));
        ended = rc != -ETIMEDOUT || left_ns == 0;
    }
    if (rc == -ETIMEDOUT && deadline_ns == 0)
        rc = -EAGAIN;
    vvi_engine_lock(e);
    batch_put_locked(e, b);
    vvi_engine_unlock(e);
    vv_device_stream_free(d, stream);
    return rc;
}
