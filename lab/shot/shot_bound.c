/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bound of a script on a machine: the hops, the capacity above each, and the speed of the first copy. See
 * docs/bound.md.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "lab/shot/bound_lp.h"
#include "lab/shot/shot.h"

/* The sum of the rates of ways that may be used at the same time; no limit if one has none. */
static double together(double a, double b)
{
    return a > 0 && b > 0 ? a + b : 0;
}

/* The faster of two ways, for calls that use one of them. */
static double either(double a, double b)
{
    return a > 0 && b > 0 ? fmax(a, b) : 0;
}

/* A put enters through one way, unless it is larger than the first tier: then what does not fit may go to
 * the host at the same time. A restore may come through two: the resident part from the first tier while the
 * rest comes from below. */
static void set_copies(const struct shot_machine *m, struct bound_params *p)
{
    const double *rate = m->rate;

    if (m->has_device && m->device_bytes > 0) {
        p->put_copy_bps = either(rate[SHOT_HOP_D2D], rate[SHOT_HOP_D2H]);
        p->get_copy_bps = together(rate[SHOT_HOP_D2D], rate[SHOT_HOP_H2D]);
        p->first_bytes = (double)m->device_bytes;
        p->put_beyond_bps = together(rate[SHOT_HOP_D2D], rate[SHOT_HOP_D2H]);
    } else if (m->has_device) {
        p->put_copy_bps = rate[SHOT_HOP_D2H];
        p->get_copy_bps = rate[SHOT_HOP_H2D];
    } else {
        p->put_copy_bps = rate[SHOT_HOP_H2H];
        p->get_copy_bps = rate[SHOT_HOP_H2H];
    }
}

static size_t set_hops(const struct shot_machine *m, struct bound_hop *hops)
{
    const double *rate = m->rate;
    size_t n = 0;

    if (m->has_device)
        hops[n++] = (struct bound_hop){
            .above_bytes = (double)m->device_bytes,
            .down_bps = rate[SHOT_HOP_D2H],
            .up_bps = rate[SHOT_HOP_H2D],
            /* Full duplex unless the link is known to be slower. */
            .both_bps = rate[SHOT_HOP_LINK] > 0 ? rate[SHOT_HOP_LINK]
                                                : rate[SHOT_HOP_D2H] + rate[SHOT_HOP_H2D],
        };
    if (m->has_disk)
        hops[n++] = (struct bound_hop){
            .above_bytes = (double)m->host_bytes + (double)m->staging_bytes +
                           (m->has_device ? (double)m->device_bytes : 0),
            .down_bps = rate[SHOT_HOP_H2F],
            .up_bps = rate[SHOT_HOP_F2H],
            .both_bps = rate[SHOT_HOP_DISK], /* 0: one medium */
        };
    return n;
}

/* One number for a version of a history. Versions of texts are small enough; of shots there is one history. */
static uint64_t number_of(const struct shot_op *op)
{
    return op->version << 16 | op->hist;
}

static size_t make_events(const struct shot_script *script, const uint64_t *gaps_ns,
                          struct bound_event *events)
{
    size_t n = 0, call = 0;
    uint64_t gap_ns = 0;

    for (size_t i = 0; i < script->nr_ops; i++) {
        const struct shot_op *op = &script->ops[i];

        switch (op->kind) {
        case SHOT_COMPUTE:
            gap_ns += op->ns;
            break;
        case SHOT_PUT:
        case SHOT_GET:
            events[n++] = (struct bound_event){
                .kind = op->kind == SHOT_PUT ? BOUND_PUT
                        : op->once           ? BOUND_TAKE
                                             : BOUND_GET,
                .version = number_of(op),
                .bytes = op->bytes,
                .gap_ns = gaps_ns ? gaps_ns[call] : gap_ns,
            };
            call++;
            gap_ns = 0;
            break;
        case SHOT_DISCARD:
            events[n++] = (struct bound_event){.kind = BOUND_DISCARD, .version = number_of(op)};
            break;
        case SHOT_WAIT_FLUSH:
            events[n++] = (struct bound_event){.kind = BOUND_FENCE};
            break;
        case SHOT_BARRIER:
        case SHOT_HINT:
        case SHOT_START:
            break;
        }
    }
    return n;
}

/* Runs one of the bounds. */
static int compute(const struct shot_script *script, const struct shot_machine *machine,
                   const uint64_t *gaps_ns, struct bound_result *ret_bound, double *ret_lp_s)
{
    struct bound_hop hops[2];
    struct bound_params params = {.hops = hops};
    struct bound_event *events = calloc(script->nr_ops + 1, sizeof(*events));
    size_t nr_events;
    int rc;

    if (!events)
        return -ENOMEM;
    set_copies(machine, &params);
    params.nr_hops = set_hops(machine, hops);
    nr_events = make_events(script, gaps_ns, events);
    rc = ret_bound ? bound_compute(events, nr_events, &params, ret_bound)
                   : bound_lp(events, nr_events, &params, ret_lp_s);
    free(events);
    return rc;
}

int shot_bound(const struct shot_script *script, const struct shot_machine *machine,
               const uint64_t *gaps_ns, struct bound_result *ret_bound)
{
    return compute(script, machine, gaps_ns, ret_bound, NULL);
}

int shot_lp(const struct shot_script *script, const struct shot_machine *machine, double *ret_s)
{
    return compute(script, machine, NULL, NULL, ret_s);
}

/* ---- several streams ---- */

/* A stream's events, and the next one to take. */
struct queue {
    struct bound_event *events;
    size_t nr, next;
    size_t puts, gets; /* calls that were taken */
    double end_s;      /* of the last of them */
};

/* The time of a stream's next event. */
static double next_end_s(const struct queue *q, const struct shot_stream *s)
{
    const struct bound_event *ev = &q->events[q->next];
    double gap_s = (double)ev->gap_ns * 1e-9;

    if (ev->kind == BOUND_PUT)
        return q->end_s + gap_s + s->put_blocked_s[q->puts];
    if (ev->kind == BOUND_GET || ev->kind == BOUND_TAKE)
        return q->end_s + gap_s + s->get_blocked_s[q->gets];
    return q->end_s;
}

/* Takes the events of all streams in the order in which they took place. */
static size_t merge(struct queue *queues, const struct shot_stream *streams, uint32_t nr,
                    struct bound_event *events)
{
    for (size_t n = 0;; n++) {
        struct queue *first = NULL;
        double first_s = INFINITY;

        for (uint32_t t = 0; t < nr; t++) {
            struct queue *q = &queues[t];

            if (q->next < q->nr && next_end_s(q, &streams[t]) < first_s) {
                first = q;
                first_s = next_end_s(q, &streams[t]);
            }
        }
        if (!first)
            return n;
        events[n] = first->events[first->next++];
        events[n].stream = (uint32_t)(first - queues);
        first->puts += events[n].kind == BOUND_PUT;
        first->gets += events[n].kind == BOUND_GET || events[n].kind == BOUND_TAKE;
        first->end_s = first_s;
    }
}

int shot_bound_streams(const struct shot_stream *streams, uint32_t nr,
                       const struct shot_machine *machine, struct bound_result *ret_bounds)
{
    struct bound_hop hops[2];
    struct bound_params params = {.hops = hops, .nr_streams = nr};
    struct queue *queues = calloc(nr + 1, sizeof(*queues));
    struct bound_event *events = NULL;
    size_t nr_events = 0;
    int rc = queues ? 0 : -ENOMEM;

    for (uint32_t t = 0; rc == 0 && t < nr; t++) {
        struct queue *q = &queues[t];

        q->events = calloc(streams[t].script->nr_ops + 1, sizeof(*q->events));
        if (!q->events)
            rc = -ENOMEM;
        else
            nr_events += q->nr = make_events(streams[t].script, streams[t].gaps_ns, q->events);
    }
    if (rc == 0)
        events = calloc(nr_events + 1, sizeof(*events));
    if (!events)
        rc = -ENOMEM;
    if (rc == 0) {
        set_copies(machine, &params);
        params.nr_hops = set_hops(machine, hops);
        rc = bound_compute(events, merge(queues, streams, nr, events), &params, ret_bounds);
    }
    for (uint32_t t = 0; queues && t < nr; t++)
        free(queues[t].events);
    free(queues);
    free(events);
    return rc;
}
