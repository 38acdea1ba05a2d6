/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A discrete-event simulation. Each process has an engine core, links, and threads with a script each; time
 * jumps from one event to the next. A link serves its orders one after the other, each for bytes / rate; both
 * directions of the disk are one link, those of the device are two. The application's own copies
 * use the links that they cross.
 *
 * On nodes, processes share their disk, their host memory and, in groups, the links to it. An order
 * then passes all that it crosses at the same time, each in the order of submission, and ends when
 * the last has let it through. Engines are separate: each measures its own bandwidth, as the library does, and
 * begins with its share as a first estimate.
 *
 * Processes that share nothing, not even a barrier, cannot influence each other. They are simulated
 * one group after the other, so that memory is needed for one group only.
 *
 * Threads of a program that runs ahead have a stream each (sim_ahead.c): the host puts a step there call by call,
 * each taking CALL_NS, and blocks only where the library would.
 *
 * No data is moved, but it is tracked: each page of each tier holds a tag of the chunk that
 * was written there last, so that a copy out of the wrong page, or of a page that was reused too
 * early, is seen as wrong bytes.
 */
#include "lab/sim/sim_run.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <varve/varve.h>

#include "engine/core/core.h"
#include "lab/shot/bound_lp.h"
#include "lab/sim/sim_ahead.h"

enum { CALL_NS = 20000 };

enum link { LINK_D2D, LINK_D2H, LINK_H2D, LINK_DISK, LINK_COUNT };

struct event {
    uint64_t at_ns, seq;
    uint32_t proc;
    struct vv_order *order; /* ends now; NULL: the thread goes on */
    struct thread *thread;
};

/* Resources that the processes of a node share: the end of their use. */
struct node {
    uint64_t disk_ns, memory_ns;
};

/* One link to host memory and the devices behind it. */
struct node_link {
    uint64_t down_ns, up_ns;
};

/* A thread that runs ahead. */
struct call {
    struct vv_req req; /* first: completion casts a request to its call */
    bool entered, ended;
    uint64_t before_ns, after_ns;     /* the time at which its stream came there */
    struct vv_order *first, **behind; /* to be put on the stream, linked by `runtime` */
};

struct thread {
    struct vv_req req; /* first: completion casts a request to its thread */
    uint32_t proc;
    const struct shot_script *script;
    size_t pc, nputs, ngets;
    uint64_t call_ns;
    uint64_t left_ns;    /* the last call or wait ended */
    uint64_t barrier_ns; /* came to the barrier */
    uint64_t *gaps_ns;   /* before each put and get, barriers included */
    bool woken;          /* its call has ended */
    bool done;
    struct shot_proc *out;
    /* Running ahead: all calls of the thread, and the host's present one; NULL: none. */
    struct call *calls, *call;
    size_t ncalls;
    uint64_t end_ns; /* the end of all entries of the stream; UINT64_MAX: not yet known */
};

struct proc {
    struct vv_core *core;
    struct vv_core_cfg cfg;
    struct shot_work own;         /* made for this process */
    const struct shot_work *work; /* the work made here, or the one that was given */
    uint32_t *hist;
    struct thread *thread;
    uint64_t free_ns[LINK_COUNT];
    uint64_t *tags[VV_MAX_TIERS]; /* by page */
};

/* The fields from `proc` to `seq` belong to the present group. */
struct sim {
    const struct shot_opts *opts;
    const struct sim_nodes *nodes; /* NULL: every process has a machine of its own */
    const struct shot_work *work;  /* NULL: a shot */
    const char *name;              /* of the workload */
    uint64_t rate[VV_HOP_COUNT];
    uint64_t latency_ns[VV_HOP_COUNT];
    struct proc *proc;
    struct node *node;
    struct node_link *link;
    uint32_t nprocs, nthreads, ndone, nwaiting;
    struct event *heap;
    size_t nheap, cap;
    uint64_t now_ns, seq;
    bool runs_ahead;
    struct sim_ahead *ahead;                      /* of the only process */
    struct vv_order *lanes_first, **lanes_behind; /* to be put on lanes, linked by `runtime` */
    uint64_t interval_ns;
    char *err;
    size_t err_size;
};

/* ---- events ---- */

static bool before(const struct event *a, const struct event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->seq < b->seq;
}

static int event_add(struct sim *s, struct event e)
{
    size_t i = s->nheap;

    if (s->nheap == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 64;
        struct event *heap = realloc(s->heap, cap * sizeof(*heap));
        if (!heap)
            return -ENOMEM;
        s->heap = heap;
        s->cap = cap;
    }
    s->nheap++;
    e.seq = s->seq++;
    for (; i > 0 && before(&e, &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = e;
    return 0;
}

static int order_ends(struct sim *s, uint64_t at_ns, uint32_t proc, struct vv_order *order)
{
    return event_add(s, (struct event){.at_ns = at_ns, .proc = proc, .order = order});
}

static int thread_goes_on(struct sim *s, uint64_t at_ns, struct thread *t)
{
    return event_add(s, (struct event){.at_ns = at_ns, .proc = t->proc, .thread = t});
}

static struct event event_pop(struct sim *s)
{
    struct event top = s->heap[0], last = s->heap[--s->nheap];
    size_t i = 0;

    for (;;) {
        size_t c = 2 * i + 1;
        if (c >= s->nheap)
            break;
        if (c + 1 < s->nheap && before(&s->heap[c + 1], &s->heap[c]))
            c++;
        if (!before(&s->heap[c], &last))
            break;
        s->heap[i] = s->heap[c];
        i = c;
    }
    if (s->nheap)
        s->heap[i] = last;
    return top;
}

/* ---- the way of the data ---- */

static uint64_t tag_of(const struct vv_order *o, uint32_t chunk)
{
    uint64_t x = o->version * UINT64_C(0x9e3779b97f4a7c15) +
                 o->generation * UINT64_C(0xc2b2ae3d27d4eb4f) + chunk;

    x ^= x >> 29;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    return x | 1;
}

/* Moves the tags of the transfer's pages. False: a source page has other bytes than expected. Called when the transfer
 * ends, because a source page must stay as it is until then. */
static bool follow(struct proc *p, const struct vv_order *o)
{
    for (uint32_t i = 0; i < o->nchunks; i++) {
        uint64_t tag = tag_of(o, o->chunk0 + i);
        if (o->src_tier != VV_TIER_APP && p->tags[o->src_tier] &&
            p->tags[o->src_tier][o->src_page[i]] != tag)
            return false;
        if (o->dst_tier != VV_TIER_APP && p->tags[o->dst_tier])
            p->tags[o->dst_tier][o->dst_page[i]] = tag;
    }
    return true;
}

/* ---- carrying orders out ---- */

static enum link link_of(enum vv_hop hop)
{
    switch (hop) {
    case VV_HOP_D2H:
        return LINK_D2H;
    case VV_HOP_H2D:
        return LINK_H2D;
    case VV_HOP_H2F:
    case VV_HOP_F2H:
        return LINK_DISK;
    default:
        return LINK_D2D;
    }
}

/* The time at which `bytes` that come now have passed a resource that is busy until *busy_ns. */
static uint64_t pass(const struct sim *s, uint64_t *busy_ns, uint64_t bytes, uint64_t rate)
{
    uint64_t ns = rate ? (uint64_t)((double)bytes * 1e9 / (double)rate) : 0;

    *busy_ns = VV_MAX(*busy_ns, s->now_ns) + ns;
    return *busy_ns;
}

/* The time at which the order has passed the resources that its process shares. */
static uint64_t pass_shared(struct sim *s, uint32_t i, const struct vv_order *o)
{
    struct node *node = &s->node[i / s->nodes->procs];
    struct node_link *link = &s->link[i / s->nodes->link_procs];
    uint64_t memory_bps = s->nodes->memory_bps;
    uint64_t done, memory_done;

    switch (o->hop) {
    case VV_HOP_D2D:
        return 0;
    case VV_HOP_H2H: /* read and written */
        return pass(s, &node->memory_ns, 2 * o->bytes, memory_bps);
    case VV_HOP_D2H:
        done = pass(s, &link->down_ns, o->bytes, s->nodes->link_bps);
        break;
    case VV_HOP_H2D:
        done = pass(s, &link->up_ns, o->bytes, s->nodes->link_bps);
        break;
    default:
        done = pass(s, &node->disk_ns, o->bytes, s->rate[o->hop]);
        break;
    }
    memory_done = pass(s, &node->memory_ns, o->bytes, memory_bps);
    return VV_MAX(done, memory_done);
}

static uint64_t order_end_ns(struct sim *s, uint32_t i, const struct vv_order *o)
{
    struct proc *p = &s->proc[i];
    uint64_t *busy_ns = &p->free_ns[link_of(o->hop)];
    uint64_t end, shared_end;

    if (o->kind != VV_ORDER_COPY && o->kind != VV_ORDER_APP)
        return s->now_ns;
    pass(s, busy_ns, o->bytes, s->rate[o->hop]);
    end = *busy_ns += s->latency_ns[o->hop];
    if (s->nodes) {
        shared_end = pass_shared(s, i, o);
        end = VV_MAX(end, shared_end);
    }
    return end;
}

static int start_order(struct sim *s, uint32_t i, struct vv_order *o)
{
    return order_ends(s, order_end_ns(s, i, o), i, o);
}

static int finish_call(struct sim *s, struct thread *t)
{
    const struct shot_op *op = &t->script->ops[t->pc];
    double blocked = (double)(s->now_ns - t->call_ns) / 1e9;

    if (t->req.status < 0) {
        snprintf(s->err, s->err_size, "version %" PRIu64 ": %s", op->version,
                 strerror(-t->req.status));
        return t->req.status;
    }
    if (op->kind == SHOT_PUT) {
        t->out->put_blocked_s[t->nputs++] = blocked;
    } else if (op->kind == SHOT_GET) {
        t->out->distance[t->ngets] = t->req.distance;
        t->out->get_blocked_s[t->ngets++] = blocked;
    } else {
        t->out->wait_s += blocked;
    }
    t->left_ns = s->now_ns;
    t->pc++;
    return 0;
}

/* ---- streams ---- */

static uint64_t begin_on_stream(void *arg, const struct vv_order *o)
{
    return order_end_ns(arg, 0, o);
}

static void link_order(struct vv_order **first, struct vv_order ***behind, struct vv_order *o)
{
    o->runtime = NULL;
    *(*first ? *behind : first) = o;
    *behind = (struct vv_order **)&o->runtime;
}

/* Puts the first of a list on its stream. */
static int put_first(struct sim *s, uint32_t thread, struct vv_order **first)
{
    struct vv_order *o = *first;
    uint64_t seq;
    int r;

    *first = o->runtime;
    r = sim_ahead_order(s->ahead, thread, o, &seq);
    if (r == 0 && seq > 0)
        vv_core_enqueued(s->proc[0].core, o, seq, s->now_ns);
    return r;
}

static int take_orders(struct sim *s)
{
    struct vv_order *o;
    int r = 0;

    while (r == 0 && (o = vv_core_next_order(s->proc[0].core))) {
        struct call *call = (struct call *)(void *)o->req;
        if (o->kind == VV_ORDER_WAKE && o->req->kind == VV_REQ_WAIT)
            ((struct thread *)(void *)o->req)->woken = true;
        else if (o->kind == VV_ORDER_WAKE)
            call->ended = true;
        else if (call)
            link_order(&call->first, &call->behind, o);
        else if (o->family)
            link_order(&s->lanes_first, &s->lanes_behind, o);
        else
            r = start_order(s, 0, o);
    }
    return r;
}

/* Starts all orders. As in the library, orders that a call depends on stand on their lanes before the call on its
 * stream. */
static int drain_ahead(struct sim *s)
{
    int r = take_orders(s);

    while (r == 0) {
        struct thread *t = s->proc[0].thread, *end = t + s->nthreads;
        while (t < end && !(t->call && t->call->first))
            t++;
        if (s->lanes_first)
            r = put_first(s, 0, &s->lanes_first);
        else if (t < end)
            r = put_first(s, (uint32_t)(t - s->proc[0].thread), &t->call->first);
        else
            break;
        if (r == 0)
            r = take_orders(s);
    }
    return r;
}

/* Starts all orders, and marks the threads whose calls have ended. */
static int drain(struct sim *s, uint32_t i)
{
    struct vv_order *o;
    int r = 0;

    if (s->ahead)
        return drain_ahead(s);
    while (r == 0 && (o = vv_core_next_order(s->proc[i].core))) {
        if (o->kind == VV_ORDER_WAKE)
            ((struct thread *)(void *)o->req)->woken = true;
        else
            r = start_order(s, i, o);
    }
    return r;
}

/* ---- the application ---- */

static int pass_barrier(struct sim *s, struct thread *t)
{
    int r = 0;

    t->barrier_ns = s->now_ns;
    if (++s->nwaiting < s->nprocs * s->nthreads)
        return 0;
    s->nwaiting = 0;
    for (uint32_t k = 0; r == 0 && k < s->nprocs * s->nthreads; k++) {
        struct thread *each = &s->proc[k / s->nthreads].thread[k % s->nthreads];
        each->out->barrier_s += (double)(s->now_ns - each->barrier_ns) / 1e9;
        each->pc++;
        r = thread_goes_on(s, s->now_ns, each);
    }
    return r;
}

static int start_call(struct sim *s, struct thread *t, const struct shot_op *op)
{
    struct proc *p = &s->proc[t->proc];
    uint32_t hist = p->hist[op->hist];
    bool on_device = shot_has_device(s->opts);
    int r;

    t->call_ns = s->now_ns;
    if (op->kind != SHOT_WAIT_FLUSH)
        t->gaps_ns[t->nputs + t->ngets] = s->now_ns - t->left_ns;
    if (op->kind == SHOT_PUT)
        r = vv_core_put(p->core, hist, op->version, op->bytes, 0, on_device, s->now_ns, &t->req);
    else if (op->kind == SHOT_GET)
        r = vv_core_get(p->core, hist, op->version, on_device, s->now_ns, &t->req);
    else
        r = vv_core_wait_all(p->core, hist, s->now_ns, &t->req);
    if (r < 0) {
        snprintf(s->err, s->err_size, "version %" PRIu64 ": %s", op->version, strerror(-r));
        return r;
    }
    return drain(s, t->proc);
}

/* Operations that take no time. */
static int do_at_once(struct sim *s, const struct thread *t, const struct shot_op *op)
{
    struct proc *p = &s->proc[t->proc];
    uint32_t hist = p->hist[op->hist];
    int r = 0;

    if (op->kind == SHOT_HINT)
        r = vv_core_hint(p->core, hist, op->version, s->now_ns);
    else if (op->kind == SHOT_START)
        vv_core_prefetch_start(p->core, hist, s->now_ns);
    else
        r = vv_core_discard(p->core, hist, op->version, s->now_ns);
    if (r < 0)
        snprintf(s->err, s->err_size, "version %" PRIu64 ": %s", op->version, strerror(-r));
    return r < 0 ? r : drain(s, t->proc);
}

static void end_thread(struct sim *s, struct thread *t)
{
    struct vv_core_stats stats;

    vv_core_get_stats(s->proc[t->proc].core, &stats);
    t->out->utilisation = stats.utilisation;
    t->out->wall_s = (double)s->now_ns / 1e9;
    t->done = true;
    s->ndone++;
}

/* Runs the thread until it has to wait. */
static int step(struct sim *s, struct thread *t)
{
    int r = 0;

    while (r == 0 && t->pc < t->script->nr_ops) {
        const struct shot_op *op = &t->script->ops[t->pc];
        switch (op->kind) {
        case SHOT_COMPUTE:
            t->pc++;
            return thread_goes_on(s, s->now_ns + op->ns, t);
        case SHOT_BARRIER:
            return pass_barrier(s, t);
        case SHOT_PUT:
        case SHOT_GET:
        case SHOT_WAIT_FLUSH:
            r = start_call(s, t, op);
            if (r < 0 || !t->woken)
                return r;
            t->woken = false;
            r = finish_call(s, t);
            break;
        case SHOT_HINT:
        case SHOT_START:
        case SHOT_DISCARD:
            r = do_at_once(s, t, op);
            t->pc++;
            break;
        }
    }
    if (r == 0 && !t->done)
        end_thread(s, t);
    return r;
}

/* ---- the same, running ahead ---- */

static uint32_t index_of(const struct sim *s, const struct thread *t)
{
    return (uint32_t)(t - s->proc[0].thread);
}

/* All of the call stands on the stream, so the host goes on. */
static int return_call(struct sim *s, struct thread *t)
{
    struct call *call = t->call;
    const struct shot_op *op = &t->script->ops[t->pc];
    int r = call->req.error ? call->req.error : call->ended ? call->req.status : 0;

    if (r < 0) {
        snprintf(s->err, s->err_size, "version %" PRIu64 ": %s", op->version, strerror(-r));
        return r;
    }
    t->call = NULL;
    t->pc++;
    r = sim_ahead_mark(s->ahead, index_of(s, t), &call->after_ns);
    return r < 0 ? r : thread_goes_on(s, s->now_ns + CALL_NS, t);
}

/* The present call of the host, or its wait until the version is written. */
static int enter_call(struct sim *s, struct thread *t)
{
    const struct shot_op *op = &t->script->ops[t->pc];
    struct vv_req *req = &t->call->req;
    struct vv_core *core = s->proc[0].core;
    uint32_t hist = s->proc[0].hist[op->hist];
    struct vv_object_info info;
    bool waits;
    int r;

    req->ordered = true;
    req->family = (uint8_t)vv_core_family(core, 1 + index_of(s, t));
    waits = op->kind == SHOT_GET && vv_core_lookup(core, hist, op->version, &info) < 0;
    if (op->kind == SHOT_PUT)
        r = vv_core_put(core, hist, op->version, op->bytes, 0, true, s->now_ns, req);
    else if (waits)
        r = vv_core_wait(core, hist, op->version, VV_CORE_CACHED, s->now_ns, &t->req);
    else
        r = vv_core_get(core, hist, op->version, true, s->now_ns, req);
    if (r < 0) {
        snprintf(s->err, s->err_size, "version %" PRIu64 ": %s", op->version, strerror(-r));
        return r;
    }
    t->call->entered = !waits;
    return drain(s, 0);
}

static int call_ahead(struct sim *s, struct thread *t)
{
    int r;

    t->call = &t->calls[t->ncalls++];
    r = sim_ahead_mark(s->ahead, index_of(s, t), &t->call->before_ns);
    return r < 0 ? r : enter_call(s, t);
}

/* Runs the host until it has made a call. */
static int step_ahead(struct sim *s, struct thread *t)
{
    int r = 0;

    while (r == 0 && t->pc < t->script->nr_ops) {
        const struct shot_op *op = &t->script->ops[t->pc];
        if (op->kind == SHOT_PUT || op->kind == SHOT_GET)
            return call_ahead(s, t);
        if (op->kind == SHOT_COMPUTE)
            r = sim_ahead_kernel(s->ahead, index_of(s, t), op->ns);
        else if (op->kind == SHOT_HINT || op->kind == SHOT_DISCARD)
            r = do_at_once(s, t, op);
        t->pc++; /* running ahead there is no moment to start prefetching, and no wait */
    }
    return r == 0 ? sim_ahead_mark(s->ahead, index_of(s, t), &t->end_ns) : r;
}

static int go_on_ahead(struct sim *s)
{
    int r = 0;

    for (uint32_t k = 0; r == 0 && k < s->nthreads; k++) {
        struct thread *t = &s->proc[0].thread[k];
        struct call *call = t->call;
        if (t->woken) {
            t->woken = false;
            r = enter_call(s, t);
        }
        if (r == 0 && call && call->entered &&
            (call->ended || call->req.error || call->req.unissued == 0))
            r = return_call(s, t);
        if (t->end_ns == UINT64_MAX || t->done)
            continue;
        end_thread(s, t);
        t->out->wall_s = (double)t->end_ns / 1e9;
    }
    return r;
}

/* Reports the work of the streams as figures of a thread that waits. */
static void keep_calls(struct thread *t)
{
    uint64_t last_ns = 0;

    for (size_t i = 0; i < t->ncalls; i++) {
        const struct call *c = &t->calls[i];
        double blocked = (double)(c->after_ns - c->before_ns) / 1e9;
        t->gaps_ns[i] = c->before_ns - last_ns;
        last_ns = c->after_ns;
        if (c->req.kind == VV_REQ_GET)
            t->out->distance[t->ngets] = c->req.distance;
        *(c->req.kind == VV_REQ_PUT ? &t->out->put_blocked_s[t->nputs++]
                                    : &t->out->get_blocked_s[t->ngets++]) = blocked;
    }
}

/* Continues threads whose calls have ended, and threads whose calls end because of that. */
static int go_on(struct sim *s, struct proc *p)
{
    int r = 0;

    for (uint32_t k = 0; r == 0 && k < s->nthreads; k++) {
        struct thread *t = &p->thread[k];
        if (!t->woken)
            continue;
        t->woken = false;
        r = finish_call(s, t);
        if (r == 0)
            r = step(s, t);
        k = UINT32_MAX; /* from the first again */
    }
    return r;
}

static int end_order(struct sim *s, uint32_t proc, struct vv_order *o)
{
    struct proc *p = &s->proc[proc];

    if ((o->kind == VV_ORDER_COPY || o->kind == VV_ORDER_APP) && !follow(p, o)) {
        snprintf(s->err, s->err_size, "version %" PRIu64 ": wrong bytes", o->version);
        return -EBADMSG;
    }
    vv_core_complete(p->core, o, 0, s->now_ns);
    return drain(s, proc);
}

/* The time of the next event, on streams or elsewhere. */
static int run_next(struct sim *s)
{
    uint64_t stream_ns = s->ahead ? sim_ahead_next_ns(s->ahead, s->now_ns) : UINT64_MAX;
    struct vv_order *o;
    struct event e;
    int r = 0;

    if (stream_ns < UINT64_MAX && (!s->nheap || stream_ns <= s->heap[0].at_ns)) {
        s->now_ns = stream_ns;
        while (r == 0 && (o = sim_ahead_run(s->ahead, s->now_ns)))
            r = end_order(s, 0, o);
    } else {
        e = event_pop(s);
        s->now_ns = e.at_ns;
        r = e.order    ? end_order(s, e.proc, e.order)
            : s->ahead ? step_ahead(s, e.thread)
                       : step(s, e.thread);
        if (r == 0 && !s->ahead)
            return go_on(s, &s->proc[e.proc]);
    }
    return r == 0 ? go_on_ahead(s) : r;
}

static int run_events(struct sim *s)
{
    uint32_t threads = s->nprocs * s->nthreads;
    int r = 0;

    for (uint32_t k = 0; r == 0 && k < threads; k++)
        r = thread_goes_on(s, 0, &s->proc[k / s->nthreads].thread[k % s->nthreads]);
    while (r == 0 && s->ndone < threads &&
           (s->nheap || (s->ahead && sim_ahead_next_ns(s->ahead, s->now_ns) < UINT64_MAX)))
        r = run_next(s);
    if (r == 0 && s->ndone < threads) {
        snprintf(s->err, s->err_size, "the simulation came to a stop with requests pending");
        return -EDEADLK;
    }
    return r;
}

/* ---- setting up ---- */

void sim_core_cfg(const struct shot_opts *opts, uint64_t history_bytes, struct vv_core_cfg *ret_cfg)
{
    struct vv_core_cfg cfg = {.page_bytes = (uint32_t)opts->page_bytes, .disk_shared = true};
    bool disk = !opts->local || strcmp(opts->local, "none") != 0;
    uint64_t local = shot_cap_bytes(&opts->local_cache, history_bytes, opts->page_bytes);
    uint64_t device = 0;
    uint64_t host = shot_cap_bytes(&opts->host_cache, history_bytes, opts->page_bytes);

    cfg.policy = (enum vv_policy)opts->policy;
    if (shot_has_device(opts)) {
        device = shot_cap_bytes(&opts->device_cache, history_bytes, opts->page_bytes);
        cfg.tier[cfg.ntiers].kind = VV_TIER_DEVICE;
        cfg.tier[cfg.ntiers++].capacity_bytes = device;
    }
    cfg.tier[cfg.ntiers].kind = VV_TIER_HOST;
    cfg.tier[cfg.ntiers++].capacity_bytes = host;
    if (!cfg.page_bytes)
        cfg.page_bytes = vv_core_page_bytes(device, host);
    if (disk && opts->level == VARVE_LEVEL_CACHED) {
        cfg.tier[cfg.ntiers].kind = VV_TIER_SPILL;
        /* Twice the history, so that contiguous policies find their windows in it. */
        cfg.tier[cfg.ntiers++].capacity_bytes = local ? local : 2 * history_bytes + (64u << 20);
    } else if (disk) {
        cfg.tier[cfg.ntiers].kind = VV_TIER_FILES;
        cfg.tier[cfg.ntiers++].capacity_bytes = local;
        cfg.written_stays = local == 0; /* as the library has it */
    }
    cfg.rate[VV_HOP_D2D] = opts->rate[SHOT_HOP_D2D];
    /* As the library has it: the first copy is within host memory where there is no device. */
    cfg.rate[VV_HOP_H2H] =
        opts->rate[SHOT_HOP_H2H] ? opts->rate[SHOT_HOP_H2H] : opts->rate[SHOT_HOP_D2D];
    cfg.rate[VV_HOP_D2H] = opts->rate[SHOT_HOP_D2H];
    cfg.rate[VV_HOP_H2D] = opts->rate[SHOT_HOP_H2D];
    cfg.rate[VV_HOP_H2F] = opts->rate[SHOT_HOP_H2F];
    cfg.rate[VV_HOP_F2H] = opts->rate[SHOT_HOP_F2H];
    vv_core_cfg_tune(&cfg);
    *ret_cfg = cfg;
}

int sim_check_rates(const struct shot_opts *opts, char *err, size_t err_size)
{
    bool device = shot_has_device(opts);
    bool disk = !opts->local || strcmp(opts->local, "none") != 0;
    const struct {
        enum shot_hop hop;
        bool used;
        const char *example;
    } hops[] = {
        {SHOT_HOP_D2D, device, "4G"},   {SHOT_HOP_H2H, !device, "4G"},
        {SHOT_HOP_D2H, device, "400M"}, {SHOT_HOP_H2D, device, "400M"},
        {SHOT_HOP_H2F, disk, "40M"},    {SHOT_HOP_F2H, disk, "40M"},
    };
    char missing[64] = "", example[96] = "";
    size_t nm = 0, ne = 0;

    for (size_t i = 0; i < VV_ARRAY_SIZE(hops); i++) {
        const char *name = shot_hop_name(hops[i].hop);
        if (!hops[i].used)
            continue;
        ne += (size_t)snprintf(example + ne, sizeof(example) - ne, "%s%s=%s", ne ? "," : "", name,
                               hops[i].example);
        if (opts->rate[hops[i].hop] == 0)
            nm +=
                (size_t)snprintf(missing + nm, sizeof(missing) - nm, "%s%s", nm ? ", " : "", name);
    }
    if (nm == 0)
        return 0;
    snprintf(err, err_size,
             "simulated hops need a rate, and %s %s none: give for example --rate %s", missing,
             strchr(missing, ',') ? "have" : "has", example);
    return -EINVAL;
}

static void set_machine(const struct shot_opts *opts, const struct vv_core_cfg *cfg,
                        struct shot_machine *m)
{
    *m = (struct shot_machine){.has_device = shot_has_device(opts)};
    for (unsigned t = 0; t < cfg->ntiers; t++) {
        uint64_t bytes = cfg->tier[t].capacity_bytes / cfg->page_bytes * cfg->page_bytes;
        if (cfg->tier[t].kind == VV_TIER_DEVICE)
            m->device_bytes = bytes;
        else if (cfg->tier[t].kind == VV_TIER_HOST)
            m->host_bytes = bytes;
        else
            m->has_disk = true;
    }
    m->staging_bytes = 2 * (uint64_t)cfg->transit_pages * cfg->page_bytes;
    for (int h = 0; h < SHOT_HOP_NR; h++)
        m->rate[h] = (double)opts->rate[h];
    m->rate[SHOT_HOP_H2H] = (double)cfg->rate[VV_HOP_H2H];
}

/* The share of one process: the first estimate of its engine. */
static void share_rates(const struct sim_nodes *nodes, struct shot_opts *opts)
{
    uint32_t on_node = VV_MIN(nodes->procs, opts->procs);
    uint64_t link = nodes->link_bps / VV_MIN(nodes->link_procs, on_node);
    const enum shot_hop links[] = {SHOT_HOP_D2H, SHOT_HOP_H2D};

    for (size_t i = 0; link && i < VV_ARRAY_SIZE(links); i++)
        if (opts->rate[links[i]] > link)
            opts->rate[links[i]] = link;
    opts->rate[SHOT_HOP_H2F] /= on_node;
    opts->rate[SHOT_HOP_F2H] /= on_node;
}

/* The sizes of one process on a node, for the caller to free. */
static int turn_sizes(const struct sim *s, uint32_t rank, const struct shot_sizes *sizes,
                      struct shot_sizes *ret_sizes)
{
    size_t start = rank % s->nodes->procs * (sizes->nr / s->nodes->procs) + rank / s->nodes->procs;
    struct shot_sizes turned = *sizes;

    turned.bytes = calloc(sizes->nr, sizeof(*turned.bytes));
    if (!turned.bytes)
        return -ENOMEM;
    for (size_t v = 0; v < sizes->nr; v++)
        turned.bytes[v] = sizes->bytes[(start + v) % sizes->nr];
    *ret_sizes = turned;
    return 0;
}

/* The work of a process, made from the options unless it is given. */
static int proc_work(const struct sim *s, struct proc *p, uint32_t rank,
                     const struct shot_sizes *sizes)
{
    struct shot_plan plan;
    struct shot_sizes turned;
    int r;

    p->work = s->work;
    if (s->work)
        return 0;
    p->work = &p->own;
    shot_plan_init(&plan);
    if (!s->nodes)
        return shot_work_init(s->opts, &plan, sizes, s->interval_ns, rank, &p->own);
    r = turn_sizes(s, rank, sizes, &turned);
    if (r < 0)
        return r;
    r = shot_work_init(s->opts, &plan, &turned, s->interval_ns, rank, &p->own);
    shot_sizes_fini(&turned);
    return r;
}

static int thread_init(struct proc *p, uint32_t proc, uint32_t k)
{
    struct thread *t = &p->thread[k];

    t->proc = proc;
    t->script = &p->work->threads[k];
    t->gaps_ns = calloc(t->script->nr_puts + t->script->nr_gets + 1, sizeof(*t->gaps_ns));
    t->calls = calloc(t->script->nr_puts + t->script->nr_gets + 1, sizeof(*t->calls));
    t->end_ns = UINT64_MAX;
    return t->gaps_ns && t->calls ? 0 : -ENOMEM;
}

static int add_history(struct sim *s, struct proc *p, uint32_t k)
{
    const struct shot_hist *h = &p->work->hists[k];
    bool cached = s->opts->level == VARVE_LEVEL_CACHED;
    struct vv_core_hist_cfg cfg = {.consume_once = h->consume_once,
                                   .order = (enum vv_restore_order)h->order,
                                   .level = cached ? VV_CORE_CACHED : VV_CORE_DURABLE};

    return vv_core_history_new(p->core, &cfg, &p->hist[k]);
}

static int proc_core(struct sim *s, struct proc *p)
{
    struct shot_opts opts = *s->opts;
    bool disk_by_default;
    int r;

    if (s->nodes)
        share_rates(s->nodes, &opts);
    /* Streams are those of a device at full speed; only its copy rate is known at first. */
    for (int h = SHOT_HOP_D2D; s->runs_ahead && h < SHOT_HOP_NR; h++)
        if (h == SHOT_HOP_D2D || h == SHOT_HOP_D2H || h == SHOT_HOP_H2D)
            opts.rate[h] = 0;
    sim_core_cfg(&opts, p->work->peak_live_bytes, &p->cfg);
    /* Add a page for each version: its last page on the disk need not be full. */
    disk_by_default = opts.local_cache.bytes == 0 && opts.local_cache.share <= 0;
    for (uint32_t k = 0; k < p->work->nr_threads && disk_by_default; k++)
        if (p->cfg.tier[p->cfg.ntiers - 1].kind == VV_TIER_SPILL)
            p->cfg.tier[p->cfg.ntiers - 1].capacity_bytes +=
                p->work->threads[k].nr_puts * p->cfg.page_bytes;
    memcpy(p->cfg.rate, s->rate, s->runs_ahead ? sizeof(p->cfg.rate) : 0);
    p->cfg.check = getenv("VARVE_CHECK");
    r = vv_core_new(&p->cfg, &p->core);
    for (uint32_t k = 0; r == 0 && k < p->work->nr_hists; k++)
        r = add_history(s, p, k);
    for (unsigned t = 0; r == 0 && t < p->cfg.ntiers; t++) {
        uint64_t pages = vv_core_tier_records(p->core, t);
        if (pages == 0)
            continue;
        p->tags[t] = calloc(pages, sizeof(uint64_t));
        if (!p->tags[t])
            r = -ENOMEM;
    }
    return r;
}

static int proc_init(struct sim *s, uint32_t i, uint32_t rank, const struct shot_sizes *sizes)
{
    struct proc *p = &s->proc[i];
    int r = proc_work(s, p, rank, sizes);

    if (r < 0)
        return r;
    s->nthreads = p->work->nr_threads;
    p->thread = calloc(s->nthreads, sizeof(*p->thread));
    p->hist = calloc(p->work->nr_hists, sizeof(*p->hist));
    if (!p->thread || !p->hist)
        return -ENOMEM;
    for (uint32_t k = 0; r == 0 && k < s->nthreads; k++)
        r = thread_init(p, i, k);
    return r == 0 ? proc_core(s, p) : r;
}

static void proc_fini(struct sim *s, struct proc *p)
{
    vv_core_free(p->core);
    for (uint32_t k = 0; p->thread && k < s->nthreads; k++) {
        free(p->thread[k].gaps_ns);
        free(p->thread[k].calls);
    }
    shot_work_fini(&p->own);
    free(p->thread);
    free(p->hist);
    for (unsigned t = 0; t < VV_MAX_TIERS; t++)
        free(p->tags[t]);
}

/* Takes an order that waits to be put on a stream, or else one from a stream; NULL: there is none. */
static struct vv_order *take_left(struct sim *s)
{
    struct vv_order **first = &s->lanes_first, *o;

    for (uint32_t k = 0; !*first && k < s->nthreads; k++)
        if (s->proc[0].thread[k].call)
            first = &s->proc[0].thread[k].call->first;
    o = *first;
    if (o)
        *first = o->runtime;
    return o ? o : sim_ahead_take(s->ahead);
}

/* Ends the orders that a finished process left behind, so that its core may be freed. They succeed: a failed
 * prefetch would be ordered again, without end. */
static void complete_rest(struct sim *s)
{
    struct vv_order *left;

    while (s->ahead && (left = take_left(s)))
        vv_core_complete(s->proc[0].core, left, 0, s->now_ns);
    while (s->nheap) {
        struct event e = event_pop(s);
        if (e.order)
            vv_core_complete(s->proc[e.proc].core, e.order, 0, s->now_ns);
    }
    for (uint32_t i = 0; i < s->nprocs; i++) {
        struct vv_order *o;
        while (s->proc[i].core && (o = vv_core_next_order(s->proc[i].core)))
            if (o->kind != VV_ORDER_WAKE)
                vv_core_complete(s->proc[i].core, o, 0, s->now_ns);
    }
}

/* ---- groups of processes that share something ---- */

static int group_init(struct sim *s, uint32_t first, uint32_t nprocs,
                      const struct shot_sizes *sizes)
{
    int r = 0;

    s->now_ns = s->seq = 0;
    s->ndone = s->nwaiting = 0;
    s->nprocs = nprocs;
    s->proc = calloc(nprocs, sizeof(*s->proc));
    if (!s->proc)
        return -ENOMEM;
    if (s->nodes) {
        s->node = calloc(vv_div_up(nprocs, s->nodes->procs), sizeof(*s->node));
        s->link = calloc(vv_div_up(nprocs, s->nodes->link_procs), sizeof(*s->link));
        if (!s->node || !s->link)
            return -ENOMEM;
    }
    for (uint32_t i = 0; r == 0 && i < nprocs; i++)
        r = proc_init(s, i, first + i, sizes);
    /* Declare the streams: a real run knows them from earlier steps. */
    for (uint32_t k = 0; r == 0 && s->runs_ahead && k < s->nthreads; k++)
        (void)vv_core_family(s->proc[0].core, 1 + k);
    if (r == 0 && s->runs_ahead)
        s->ahead = sim_ahead_new(s->nthreads, begin_on_stream, s);
    return r == 0 && s->runs_ahead && !s->ahead ? -ENOMEM : r;
}

/* Accepts a group that group_init left half-built. */
static void group_fini(struct sim *s)
{
    if (s->proc)
        complete_rest(s);
    for (uint32_t i = 0; s->proc && i < s->nprocs; i++)
        proc_fini(s, &s->proc[i]);
    sim_ahead_free(s->ahead);
    free(s->proc);
    free(s->node);
    free(s->link);
    s->ahead = NULL;
    s->proc = NULL;
    s->node = NULL;
    s->link = NULL;
}

static int thread_report(const struct sim *s, const struct thread *t,
                         const struct shot_machine *machine)
{
    memcpy(t->out->gaps_ns, t->gaps_ns,
           (t->script->nr_puts + t->script->nr_gets) * sizeof(*t->gaps_ns));
    t->out->put_bytes = t->script->put_bytes;
    t->out->get_bytes = t->script->get_bytes;
    t->out->verified = true;
    t->out->no_bound = t->script->foreign;
    if (s->opts->no_bound || t->script->foreign)
        return 0;
    if (s->opts->lp) {
        int r = shot_lp(t->script, machine, &t->out->lp_s);
        if (r < 0) {
            snprintf(s->err, s->err_size, "the linear program: %s",
                     r == -ENOTSUP ? "GLPK (libglpk) is not installed" : strerror(-r));
            return r;
        }
    }
    return shot_bound(t->script, machine, t->gaps_ns, &t->out->bound);
}

/* Allocates places in the report for the processes from `first` on. */
static int group_outputs(struct sim *s, uint32_t first, struct shot_report *report)
{
    int r = 0;

    if (!report->procs) {
        r = shot_report_init(s->opts->procs * s->nthreads, report);
        if (r == 0)
            set_machine(s->opts, &s->proc[0].cfg, &report->machine);
    }
    for (uint32_t k = 0; r == 0 && k < s->nprocs * s->nthreads; k++) {
        struct thread *t = &s->proc[k / s->nthreads].thread[k % s->nthreads];
        t->out = &report->procs[first * s->nthreads + k];
        r = shot_report_calls(t->out, t->script->nr_puts, t->script->nr_gets);
    }
    return r;
}

/* Runs processes from `first` on. */
static int run_group(struct sim *s, uint32_t first, uint32_t nprocs, const struct shot_sizes *sizes,
                     struct shot_report *report)
{
    int r = group_init(s, first, nprocs, sizes);

    if (r == 0)
        r = group_outputs(s, first, report);
    if (r == 0)
        r = run_events(s);
    for (uint32_t k = 0; r == 0 && s->ahead && k < s->nthreads; k++)
        keep_calls(&s->proc[0].thread[k]);
    for (uint32_t k = 0; r == 0 && k < s->nprocs * s->nthreads; k++)
        r = thread_report(s, &s->proc[k / s->nthreads].thread[k % s->nthreads], &report->machine);
    group_fini(s);
    return r;
}

static int run_groups(struct sim *s, const struct shot_sizes *sizes, struct shot_report *report)
{
    uint32_t procs = s->opts->procs;
    uint32_t group = s->opts->barrier ? procs : s->nodes ? s->nodes->procs : 1;
    int r = 0;

    for (uint32_t first = 0; r == 0 && first < procs; first += group)
        r = run_group(s, first, VV_MIN(group, procs - first), sizes, report);
    if (r < 0)
        return r;
    report->command = "sim";
    report->script = s->name;
    report->opts = *s->opts;
    report->interval_ns = s->interval_ns;
    shot_report_finish(report);
    return 0;
}

static int check_nodes(const struct sim_nodes *nodes, char *err, size_t err_size)
{
    if (nodes->procs == 0 || nodes->link_procs == 0) {
        snprintf(err, err_size, "--node-gpus, --link-gpus: expected 1 or more");
        return -EINVAL;
    }
    if (nodes->procs % nodes->link_procs != 0) {
        snprintf(err, err_size,
                 "%" PRIu32 " processes on a node cannot be shared out to links of %" PRIu32,
                 nodes->procs, nodes->link_procs);
        return -EINVAL;
    }
    return 0;
}

static const enum shot_hop option_of[VV_HOP_COUNT] = {
    [VV_HOP_D2D] = SHOT_HOP_D2D, [VV_HOP_H2H] = SHOT_HOP_H2H, [VV_HOP_D2H] = SHOT_HOP_D2H,
    [VV_HOP_H2D] = SHOT_HOP_H2D, [VV_HOP_H2F] = SHOT_HOP_H2F, [VV_HOP_F2H] = SHOT_HOP_F2H,
};

/* Runs all processes, with the links of the options. */
static int run(struct sim *s, const struct shot_sizes *sizes, struct shot_report *ret_report)
{
    struct shot_report report = {0};
    struct vv_core_cfg cfg;
    int r;

    sim_core_cfg(s->opts, s->work ? s->work->peak_live_bytes : sizes->total_bytes, &cfg);
    memcpy(s->rate, cfg.rate, sizeof(s->rate));
    for (int h = 0; h < VV_HOP_COUNT; h++)
        s->latency_ns[h] = s->opts->latency_ns[option_of[h]];
    r = run_groups(s, sizes, &report);
    free(s->heap);
    if (r < 0)
        shot_report_fini(&report);
    else
        *ret_report = report;
    return r;
}

int sim_run_nodes(const struct shot_opts *opts, const struct sim_nodes *nodes, char *err,
                  size_t err_size, struct shot_report *ret_report)
{
    struct sim s = {.opts = opts, .nodes = nodes, .err = err, .err_size = err_size};
    uint32_t on_disk = nodes ? VV_MAX(VV_MIN(nodes->procs, opts->procs), UINT32_C(1)) : 1;
    double disk_bps = (double)opts->rate[SHOT_HOP_H2F] / on_disk;
    struct shot_sizes sizes = {0};
    int r = nodes ? check_nodes(nodes, err, err_size) : 0;

    if (r == 0)
        r = shot_sizes_init(opts, err, err_size, &sizes);
    if (r < 0)
        return r;
    r = shot_interval_ns(opts, &sizes, disk_bps, &s.interval_ns);
    if (r < 0)
        snprintf(err, err_size, "--load needs the rate of the disk: --rate h2f=...");
    if (r == 0)
        r = run(&s, &sizes, ret_report);
    shot_sizes_fini(&sizes);
    return r;
}

int sim_run_shot(const struct shot_opts *opts, char *err, size_t err_size,
                 struct shot_report *ret_report)
{
    return sim_run_nodes(opts, NULL, err, err_size, ret_report);
}

static int run_work(struct sim *s, const struct shot_opts *opts, struct shot_report *ret_report)
{
    struct shot_opts one = *opts;

    one.procs = 1;
    one.barrier = false; /* the script has its own hints */
    s->opts = &one;
    return run(s, NULL, ret_report);
}

int sim_run_work(const char *name, const struct shot_opts *opts, const struct shot_work *work,
                 char *err, size_t err_size, struct shot_report *ret_report)
{
    struct sim s = {.work = work, .name = name, .err = err, .err_size = err_size};

    return run_work(&s, opts, ret_report);
}

int sim_run_streams(const char *name, const struct shot_opts *opts, const struct shot_work *work,
                    char *err, size_t err_size, struct shot_report *ret_report)
{
    struct sim s = {
        .work = work, .name = name, .runs_ahead = true, .err = err, .err_size = err_size};

    return run_work(&s, opts, ret_report);
}
