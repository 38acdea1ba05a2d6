/* SPDX-License-Identifier: Apache-2.0 */
#include "lab/sim/sim_ahead.h"

#include <errno.h>
#include <stdlib.h>

struct item {
    uint64_t ns;     /* a kernel of that duration */
    uint64_t *at_ns; /* a mark */
    struct vv_order *order;
    struct item *next;
};

struct stream {
    struct item *head, *tail; /* the first one runs if `busy` */
    bool busy;
    uint64_t end_ns;
};

struct sim_ahead {
    sim_ahead_start_fn *start;
    void *arg;
    uint64_t now_ns;
    uint64_t put[VV_STREAMS], ran[VV_STREAMS]; /* numbers of orders */
    uint32_t nstreams;                         /* lanes, then streams of the threads */
    struct stream stream[];
};

struct sim_ahead *sim_ahead_new(uint32_t threads, sim_ahead_start_fn *start, void *arg)
{
    struct sim_ahead *a = calloc(1, sizeof(*a) + (VV_STREAMS + threads) * sizeof(a->stream[0]));

    if (!a)
        return NULL;
    a->start = start;
    a->arg = arg;
    a->nstreams = VV_STREAMS + threads;
    return a;
}

static void pop(struct stream *st)
{
    struct item *first = st->head;

    st->head = first->next;
    if (!st->head)
        st->tail = NULL;
    st->busy = false;
    free(first);
}

void sim_ahead_free(struct sim_ahead *a)
{
    for (uint32_t i = 0; a && i < a->nstreams; i++)
        while (a->stream[i].head)
            pop(&a->stream[i]);
    free(a);
}

static int push(struct sim_ahead *a, uint32_t stream, struct item item)
{
    struct stream *st = &a->stream[stream];
    struct item *last = malloc(sizeof(*last));

    if (!last)
        return -ENOMEM;
    *last = item;
    last->next = NULL;
    if (st->tail)
        st->tail->next = last;
    else
        st->head = last;
    st->tail = last;
    return 0;
}

int sim_ahead_kernel(struct sim_ahead *a, uint32_t thread, uint64_t ns)
{
    return push(a, VV_STREAMS + thread, (struct item){.ns = ns});
}

int sim_ahead_mark(struct sim_ahead *a, uint32_t thread, uint64_t *at_ns)
{
    return push(a, VV_STREAMS + thread, (struct item){.at_ns = at_ns});
}

static unsigned number_of(const struct vv_order *o)
{
    return vv_lane_stream(o->family, (enum vv_lane)o->lane);
}

int sim_ahead_order(struct sim_ahead *a, uint32_t thread, struct vv_order *o, uint64_t *ret_seq)
{
    uint32_t stream = o->req ? VV_STREAMS + thread : number_of(o);
    int rc = push(a, stream, (struct item){.order = o});

    if (rc == 0)
        *ret_seq = o->family ? ++a->put[number_of(o)] : 0;
    return rc;
}

/* True if all that it waits for has run. */
static bool may_begin(const struct sim_ahead *a, const struct item *item)
{
    const struct vv_order *o = item->order;

    for (unsigned lane = 0; o && o->family && lane < VV_LANES; lane++)
        if (o->wait[lane] > a->ran[vv_lane_stream(o->family, (enum vv_lane)lane)])
            return false;
    return true;
}

static bool begin(struct sim_ahead *a, struct stream *st)
{
    if (!st->head || st->busy || !may_begin(a, st->head))
        return false;
    st->busy = true;
    st->end_ns = st->head->order ? a->start(a->arg, st->head->order) : a->now_ns + st->head->ns;
    return true;
}

uint64_t sim_ahead_next_ns(const struct sim_ahead *a, uint64_t now_ns)
{
    uint64_t next_ns = UINT64_MAX;

    for (uint32_t i = 0; i < a->nstreams; i++) {
        const struct stream *st = &a->stream[i];
        if (st->busy)
            next_ns = VV_MIN(next_ns, st->end_ns);
        else if (st->head && may_begin(a, st->head))
            return now_ns;
    }
    return next_ns;
}

struct vv_order *sim_ahead_run(struct sim_ahead *a, uint64_t now_ns)
{
    a->now_ns = now_ns;
    for (bool any = true; any;) {
        any = false;
        for (uint32_t i = 0; i < a->nstreams; i++) {
            struct stream *st = &a->stream[i];
            struct vv_order *o;
            any |= begin(a, st);
            if (!st->busy || st->end_ns > now_ns)
                continue;
            any = true;
            o = st->head->order;
            if (st->head->at_ns)
                *st->head->at_ns = now_ns;
            pop(st);
            if (o && o->family)
                a->ran[number_of(o)]++;
            if (o)
                return o;
        }
    }
    return NULL;
}

struct vv_order *sim_ahead_take(struct sim_ahead *a)
{
    for (uint32_t i = 0; i < a->nstreams; i++)
        while (a->stream[i].head) {
            struct vv_order *o = a->stream[i].head->order;
            pop(&a->stream[i]);
            if (o)
                return o;
        }
    return NULL;
}
