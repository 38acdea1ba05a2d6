/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bound against cases computed by hand, against its own monotonicity, and against the exact
 * optimum of small discretised instances, found by searching every schedule.
 */
#include "cli/report/bound.h"

#include <math.h>
#include <stdlib.h>

#include "t.h"

#define GAP(seconds) ((uint64_t)((seconds)*1e9))

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * (1 + fabs(a) + fabs(b));
}

static double bound_of(const struct bound_event *ev, size_t n, const struct bound_params *p)
{
    struct bound_result r;

    T_OK(bound_compute(ev, n, p, &r));
    T_CHECK(near(r.total_s, r.copy_s + r.write_s + r.restore_s + r.cross_s));
    return r.total_s;
}

static void nothing_to_do(void)
{
    struct bound_params p = {.put_copy_bps = 1};

    T_CHECK(bound_of(NULL, 0, &p) == 0);
}

static void copies_only_when_gaps_are_long(void)
{
    struct bound_event ev[] = {{BOUND_PUT, 1, 8, GAP(100), 0},
                               {BOUND_PUT, 2, 8, GAP(100), 0},
                               {BOUND_GET, 1, 0, GAP(100), 0},
                               {BOUND_GET, 2, 0, GAP(100), 0}};
    struct bound_hop hop = {8, 1, 1, 1};
    struct bound_params p = {4, 8, true, &hop, 1, 0, 0, 0};

    /* Two puts of 8 / 4 and two gets of 8 / 8. */
    T_CHECK(near(bound_of(ev, 4, &p), 6));
}

/* Two ways into a tier of 8: larger objects may take both. */
static void larger_than_the_first_tier(void)
{
    struct bound_event ev[] = {{BOUND_PUT, 1, 8, 0, 0}, {BOUND_PUT, 2, 12, 0, 0}};
    struct bound_params p = {.put_copy_bps = 4, .first_bytes = 8, .put_beyond_bps = 6};

    T_CHECK(near(bound_of(ev, 2, &p), 2 + 2));
    p.first_bytes = 12;
    T_CHECK(near(bound_of(ev, 2, &p), 2 + 3));
}

static void write_window_by_hand(void)
{
    struct bound_event ev[] = {{BOUND_PUT, 1, 10, GAP(7), 0},
                               {BOUND_PUT, 2, 10, GAP(3), 0},
                               {BOUND_PUT, 3, 10, GAP(3), 0}};
    struct bound_hop hop = {10, 2, 2, 2};
    struct bound_params p = {0, 0, true, &hop, 1, 0, 0, 0};

    /* 20 of 30 bytes must go down at 2 per second from the start of call 1 to the return of call 3,
     * 6 s of them are compute; the 7 s before call 1 do not help. */
    T_CHECK(near(bound_of(ev, 3, &p), 4));
    /* Without a cache compute time hides nothing: all bytes over the write rate. */
    hop.above_bytes = 0;
    T_CHECK(near(bound_of(ev, 3, &p), 15));
    /* With one but no compute time: all bytes that do not fit. */
    hop.above_bytes = 10;
    for (int i = 0; i < 3; i++)
        ev[i].gap_ns = 0;
    T_CHECK(near(bound_of(ev, 3, &p), 10));
}

static void fence_separates_the_phases(void)
{
    struct bound_event ev[] = {{BOUND_PUT, 1, 10, 0, 0},
                               {BOUND_PUT, 2, 10, 0, 0},
                               {BOUND_FENCE, 0, 0, 0, 0},
                               {BOUND_GET, 1, 0, GAP(5), 0},
                               {BOUND_GET, 2, 0, 0, 0}};
    struct bound_hop hop = {10, 1, 1, 1};
    struct bound_params p = {0, 0, true, &hop, 1, 0, 0, 0};

    /* 10 bytes down before the second put returns, 10 up between the gets. */
    T_CHECK(near(bound_of(ev, 5, &p), 20));
}

static void cross_window_by_hand(void)
{
    struct bound_event ev[] = {{BOUND_PUT, 1, 10, 0, 0},
                               {BOUND_PUT, 2, 10, 0, 0},
                               {BOUND_GET, 1, 0, GAP(4), 0},
                               {BOUND_GET, 2, 0, GAP(4), 0}};
    struct bound_hop hop = {10, 1, 1, 1};
    struct bound_params p = {0, 0, true, &hop, 1, 0, 0, 0};
    struct bound_result r;

    /* For any choice of kept bytes at the turn, 10 bytes go down and the same 10 come up, on one medium:
     * 20 s of traffic from the first put to the last get, less 8 s of compute. The write window
     * alone demands 10 s before the gets, the restore window 6 s after; together 16, more than 12.
     */
    T_OK(bound_compute(ev, 4, &p, &r));
    T_CHECK(near(r.total_s, 16));
    /* With time between the puts and between the gets but none at the turn: from the start of the
     * second put to the return of the first get either object 2 goes down or object 1 goes down
     * before and comes up again inside. */
    ev[1].gap_ns = GAP(9);
    ev[2].gap_ns = 0;
    ev[3].gap_ns = GAP(9);
    T_OK(bound_compute(ev, 4, &p, &r));
    T_CHECK(near(r.total_s, 10) && near(r.cross_s, 10));
    hop.both_bps = 2;
    T_CHECK(near(bound_of(ev, 4, &p), 5));
    /* With a wait in between it is no longer one window: 1 s before and 1 s after. */
    struct bound_event with_wait[] = {ev[0], ev[1], {BOUND_FENCE, 0, 0, 0, 0}, ev[2], ev[3]};
    T_CHECK(near(bound_of(with_wait, 5, &p), 2));
}

static void discarded_needs_no_crossing(void)
{
    struct bound_event ev[] = {{BOUND_PUT, 1, 10, 0, 0}, {BOUND_DISCARD, 1, 0, 0, 0},
                               {BOUND_PUT, 2, 10, 0, 0}, {BOUND_GET, 2, 0, 0, 0},
                               {BOUND_PUT, 1, 10, 0, 0}, {BOUND_GET, 1, 0, 0, 0}};
    struct bound_hop hop = {10, 1, 1, 1};
    struct bound_params p = {0, 0, true, &hop, 1, 0, 0, 0};

    T_CHECK(near(bound_of(ev, 6, &p), 0));
    /* Kept after the read, object 2 has to make room for the second life of object 1. */
    p.consume_once = false;
    T_CHECK(near(bound_of(ev, 6, &p), 10));
}

static void repeated_reads_count_once(void)
{
    struct bound_event ev[] = {{BOUND_PUT, 1, 10, 0, 0},  {BOUND_PUT, 2, 10, 0, 0},
                               {BOUND_FENCE, 0, 0, 0, 0}, {BOUND_GET, 1, 0, 0, 0},
                               {BOUND_GET, 1, 0, 0, 0},   {BOUND_GET, 1, 0, 0, 0}};
    struct bound_hop hop = {4, 1, 1, 1};
    struct bound_params p = {0, 0, false, &hop, 1, 0, 0, 0};

    /* 16 down; then 6 come up. A window does not claim that they come again, but three windows of one call each
     * claim 6 apiece: only 4 bytes fit above. */
    T_CHECK(near(bound_of(ev, 6, &p), 16 + 18));
    hop.above_bytes = 10;
    T_CHECK(near(bound_of(ev, 6, &p), 10));
}

static void bad_input(void)
{
    struct bound_event twice[] = {{BOUND_PUT, 1, 1, 0, 0}, {BOUND_PUT, 1, 1, 0, 0}};
    struct bound_event unknown[] = {{BOUND_PUT, 1, 1, 0, 0}, {BOUND_GET, 2, 0, 0, 0}};
    struct bound_event gone[] = {
        {BOUND_PUT, 1, 1, 0, 0}, {BOUND_GET, 1, 0, 0, 0}, {BOUND_DISCARD, 1, 0, 0, 0}};
    struct bound_event empty[] = {{BOUND_GET, 2, 0, 0, 0}};
    struct bound_params p = {.consume_once = true};
    struct bound_result r;

    T_ERR(bound_compute(twice, 2, &p, &r), -EINVAL);
    T_ERR(bound_compute(unknown, 2, &p, &r), -EINVAL);
    T_ERR(bound_compute(gone, 3, &p, &r), -EINVAL);
    T_ERR(bound_compute(empty, 1, &p, &r), -EINVAL);
    p.put_copy_bps = -1;
    T_ERR(bound_compute(twice, 1, &p, &r), -EINVAL);
    T_ERR(bound_compute(twice, 1, NULL, &r), -EINVAL);
}

/* The search. Sizes in units of 1 byte, a hop moves one unit a tick and direction (one in all on a shared medium),
 * copies are free. Schedules that move whole units in whole ticks are among all schedules, so the search finds at
 * least the true optimum, and the bound must not exceed it. */
#define MAX_OBJECTS 3
#define MAX_EVENTS  12

struct instance {
    struct bound_event ev[MAX_EVENTS]; /* gap_ns in ticks of one second, converted for the bound */
    unsigned nr;
    unsigned size[MAX_OBJECTS];
    unsigned above;
    bool once, shared;
};

struct state {
    unsigned pos, started, gap, left;
    unsigned dirty[MAX_OBJECTS], both[MAX_OBJECTS]; /* units above only; above and below */
};

#define KEY_BITS 21
#define FAR      255

struct search {
    const struct instance *in;
    uint8_t *dist;
    uint32_t *queue; /* 0-1 breadth first: two stacks per distance */
    uint32_t *next;
    size_t nr_queue, nr_next;
    uint8_t at;
};

static uint32_t pack(const struct state *s)
{
    uint32_t k = s->pos | s->started << 4 | s->gap << 5 | s->left << 7;

    for (int i = 0; i < MAX_OBJECTS; i++)
        k |= s->dirty[i] << (9 + 4 * i) | s->both[i] << (11 + 4 * i);
    return k;
}

static struct state unpack(uint32_t k)
{
    struct state s = {k & 15, k >> 4 & 1, k >> 5 & 3, k >> 7 & 3, {0}, {0}};

    for (int i = 0; i < MAX_OBJECTS; i++) {
        s.dirty[i] = k >> (9 + 4 * i) & 3;
        s.both[i] = k >> (11 + 4 * i) & 3;
    }
    return s;
}

static void reach(struct search *q, const struct state *s, unsigned cost)
{
    uint32_t k = pack(s);

    if (q->at + cost >= q->dist[k])
        return;
    q->dist[k] = (uint8_t)(q->at + cost);
    if (cost)
        q->next[q->nr_next++] = k;
    else
        q->queue[q->nr_queue++] = k;
}

static bool exists(const struct instance *in, const struct state *s, unsigned object)
{
    bool there = false;

    for (unsigned i = 0; i < s->pos; i++) {
        if (in->ev[i].version != object)
            continue;
        there = in->ev[i].kind == BOUND_PUT || (in->ev[i].kind == BOUND_GET && !in->once);
    }
    return there;
}

/* Units of an existing object that are below only. */
static unsigned below(const struct instance *in, const struct state *s, unsigned object)
{
    return in->size[object] - s->dirty[object] - s->both[object];
}

static unsigned used(const struct state *s)
{
    unsigned n = 0;

    for (int i = 0; i < MAX_OBJECTS; i++)
        n += s->dirty[i] + s->both[i];
    return n;
}

/* Actions without time: start and end calls, take in, give out units above, drop duplicates. */
static void free_moves(struct search *q, const struct state *s)
{
    const struct bound_event *ev = &q->in->ev[s->pos];
    unsigned v = (unsigned)ev->version;
    struct state t = *s;

    for (int i = 0; i < MAX_OBJECTS; i++) {
        if (s->both[i]) {
            t.both[i]--;
            reach(q, &t, 0);
            t = *s;
        }
    }
    if (ev->kind == BOUND_DISCARD || (s->started && s->left == 0 && ev->kind != BOUND_FENCE)) {
        if (ev->kind == BOUND_DISCARD)
            t.dirty[v] = t.both[v] = 0;
        t.pos++;
        t.started = 0;
        t.gap = t.pos < q->in->nr ? (unsigned)q->in->ev[t.pos].gap_ns : 0;
        reach(q, &t, 0);
        return;
    }
    if (ev->kind == BOUND_FENCE) {
        if (s->dirty[0] + s->dirty[1] + s->dirty[2] == 0) {
            t.pos++;
            t.gap = t.pos < q->in->nr ? (unsigned)q->in->ev[t.pos].gap_ns : 0;
            reach(q, &t, 0);
        }
        return;
    }
    if (!s->started && s->gap == 0) {
        t.started = 1;
        t.left = ev->kind == BOUND_PUT ? q->in->size[v] : below(q->in, s, v);
        if (ev->kind == BOUND_GET && q->in->once)
            t.dirty[v] = t.both[v] = 0; /* given out, and its space is free at once */
        reach(q, &t, 0);
    } else if (s->started && ev->kind == BOUND_PUT && used(s) < q->in->above) {
        t.left--;
        t.dirty[v]++;
        reach(q, &t, 0);
    }
}

static void up_moves(struct search *q, const struct state *s, unsigned cost)
{
    const struct bound_event *ev = &q->in->ev[s->pos];
    bool getting = s->started && ev->kind == BOUND_GET;
    struct state t = *s;

    reach(q, &t, cost);
    if (getting && s->left > 0) {
        t.left--;
        reach(q, &t, cost);
        if (!q->in->once && used(s) < q->in->above) {
            t.both[ev->version]++;
            reach(q, &t, cost);
        }
    }
    for (unsigned i = 0; i < MAX_OBJECTS; i++) {
        t = *s;
        if ((getting && i == ev->version) || !exists(q->in, s, i) || below(q->in, s, i) == 0 ||
            used(s) >= q->in->above)
            continue;
        t.both[i]++;
        reach(q, &t, cost);
    }
}

static void tick(struct search *q, const struct state *s)
{
    const struct bound_event *ev = &q->in->ev[s->pos];
    unsigned cost = s->started;
    struct state after = *s, t;

    if (!s->started && s->gap == 0 && ev->kind != BOUND_FENCE)
        return;
    if (!s->started && ev->kind != BOUND_FENCE)
        after.gap--;
    up_moves(q, &after, cost);
    for (unsigned i = 0; i < MAX_OBJECTS; i++) {
        t = after;
        if (t.dirty[i] == 0)
            continue;
        t.dirty[i]--;
        t.both[i]++;
        if (q->in->shared)
            reach(q, &t, cost);
        else
            up_moves(q, &t, cost);
    }
    if (s->started && ev->kind == BOUND_PUT && s->left > 0) {
        t = after;
        t.left--; /* straight through to below */
        if (q->in->shared)
            reach(q, &t, cost);
        else
            up_moves(q, &t, cost);
    }
}

static unsigned optimum(const struct instance *in)
{
    size_t max = (size_t)1 << KEY_BITS;
    struct search q = {.in = in,
                       .dist = malloc(max),
                       .queue = malloc(max * 8 * sizeof(uint32_t)),
                       .next = malloc(max * 8 * sizeof(uint32_t))};
    struct state s = {.gap = (unsigned)in->ev[0].gap_ns};
    unsigned best = FAR;

    T_CHECK(q.dist && q.queue && q.next);
    memset(q.dist, FAR, max);
    reach(&q, &s, 0);
    while (best == FAR) {
        while (q.nr_queue > 0 && best == FAR) {
            uint32_t k = q.queue[--q.nr_queue];

            s = unpack(k);
            if (q.dist[k] != q.at)
                continue;
            if (s.pos == in->nr) {
                best = q.at;
                break;
            }
            free_moves(&q, &s);
            tick(&q, &s);
        }
        if (best != FAR)
            break;
        T_CHECK(q.nr_next > 0);
        uint32_t *swap = q.queue;
        q.queue = q.next;
        q.nr_queue = q.nr_next;
        q.next = swap;
        q.nr_next = 0;
        q.at++;
    }
    free(q.dist);
    free(q.queue);
    free(q.next);
    return best;
}

static void push(struct instance *in, enum bound_kind kind, unsigned version, uint64_t gap)
{
    in->ev[in->nr++] = (struct bound_event){kind, version, in->size[version], gap, 0};
}

/* Puts, then gets in any order, with or without a wait between. */
static void make_phases(struct t_rng *r, struct instance *in)
{
    unsigned order[MAX_OBJECTS] = {0, 1, 2};
    unsigned k = 2 + (unsigned)t_rng_below(r, 2);
    uint64_t gap = t_rng_below(r, 4);

    for (unsigned i = k; i > 1; i--) {
        unsigned j = (unsigned)t_rng_below(r, i), swap = order[j];

        order[j] = order[i - 1];
        order[i - 1] = swap;
    }
    for (unsigned i = 0; i < k; i++)
        push(in, BOUND_PUT, i, gap);
    if (t_rng_below(r, 2))
        push(in, BOUND_FENCE, 0, 0);
    for (unsigned i = 0; i < k; i++)
        push(in, BOUND_GET, order[i], gap);
}

/* Any mixture of puts, repeated gets and discards. */
static void make_mixture(struct t_rng *r, struct instance *in)
{
    bool live[MAX_OBJECTS] = {0};

    for (unsigned tries = 0; tries < 40 && in->nr < 9; tries++) {
        unsigned v = (unsigned)t_rng_below(r, MAX_OBJECTS);
        uint64_t gap = t_rng_below(r, 4);

        if (!live[v]) {
            push(in, BOUND_PUT, v, gap);
            live[v] = true;
        } else if (t_rng_below(r, 4) == 0) {
            push(in, BOUND_DISCARD, v, 0);
            live[v] = false;
        } else {
            push(in, BOUND_GET, v, gap);
            live[v] = !in->once;
        }
    }
}

static void never_above_the_optimum(void)
{
    struct t_rng r = {t_seed()};
    unsigned instances = t_long() ? 2000 : 100, phases = 0, tight = 0, positive = 0;

    for (unsigned n = 0; n < instances; n++) {
        struct instance in = {.above = 1 + (unsigned)t_rng_below(&r, 4),
                              .once = t_rng_below(&r, 2),
                              .shared = t_rng_below(&r, 2)};
        struct bound_hop hop = {in.above, 1, 1, in.shared ? 1 : 2};
        struct bound_params p = {0, 0, in.once, &hop, 1, 0, 0, 0};
        struct bound_event ev[MAX_EVENTS];
        unsigned best;
        double bound;

        for (int i = 0; i < MAX_OBJECTS; i++)
            in.size[i] = 1 + (unsigned)t_rng_below(&r, 3);
        if (n % 2)
            make_mixture(&r, &in);
        else
            make_phases(&r, &in);
        memcpy(ev, in.ev, sizeof(ev));
        for (unsigned i = 0; i < in.nr; i++)
            ev[i].gap_ns *= 1000000000;
        best = optimum(&in);
        bound = bound_of(ev, in.nr, &p);
        if (bound > best + 1e-9)
            t_note("instance %u: bound %g, optimum %u", n, bound, best);
        T_CHECK(bound <= best + 1e-9);
        if (n % 2 == 0) {
            phases++;
            tight += bound > best - 1e-9;
            positive += best > 0;
        }
    }
    t_note("%u instances; of %u with two phases %u have a positive optimum, bound tight in %u",
           instances, phases, positive, tight);
    /* The bound is reached in some cases: one that is never reached would be worth nothing. */
    T_CHECK(positive >= phases / 4 && tight >= phases / 2);
}

/* ---- the most that can have stayed, against every choice ---- */

#define UNITS (MAX_OBJECTS * 3)

/* All units of the objects that can stay. Without compute time and with only one direction limited, blocked time
 * is the bytes that cross. */
struct paging {
    const struct instance *in;
    bool up; /* count what comes up; otherwise what goes down */
    unsigned best[MAX_EVENTS + 1][1 << UNITS];
};

static unsigned units_of(const struct instance *in, unsigned object)
{
    return ((1u << in->size[object]) - 1) << (3 * object);
}

/* The cost of call `pos` with `above` present: the units that come up, or nothing. */
static unsigned cost_of(const struct paging *p, unsigned pos, unsigned above)
{
    const struct bound_event *ev = &p->in->ev[pos];

    if (!p->up || ev->kind != BOUND_GET)
        return 0;
    return (unsigned)__builtin_popcount(units_of(p->in, (unsigned)ev->version) & ~above);
}

/* Units that a call adds, and units whose life it ends. */
static void effect(const struct paging *p, unsigned pos, unsigned *ret_added, unsigned *ret_ended)
{
    const struct bound_event *ev = &p->in->ev[pos];
    unsigned units = units_of(p->in, (unsigned)ev->version);
    bool ends = ev->kind == BOUND_DISCARD || (ev->kind == BOUND_GET && p->in->once);

    *ret_added = ev->kind == BOUND_PUT || (p->up && ev->kind == BOUND_GET && !ends) ? units : 0;
    *ret_ended = ends ? units : 0;
}

/* The least cost from event `pos` on, if `above` are above the hop. If units that go down count, those that have
 * always been there do. Dropping dead units is never worse, so `above` has only live ones. */
static unsigned least(struct paging *p, unsigned pos, unsigned above)
{
    unsigned added, ended, there, best = FAR, *known = &p->best[pos][above];

    if (pos == p->in->nr)
        return 0;
    if (*known != FAR)
        return *known;
    effect(p, pos, &added, &ended);
    there = (above | added) & ~ended;
    for (unsigned kept = there;; kept = (kept - 1) & there) {
        if ((unsigned)__builtin_popcount(kept) <= p->in->above) {
            unsigned lost = p->up ? 0 : (unsigned)__builtin_popcount(there & ~kept);
            best = VV_MIN(best, lost + least(p, pos + 1, kept));
        }
        if (kept == 0)
            break;
    }
    *known = best + cost_of(p, pos, above);
    return *known;
}

static void the_most_that_stays(void)
{
    struct t_rng r = {t_seed() ^ 2};
    struct paging *p = malloc(sizeof(*p));
    unsigned instances = t_long() ? 1000 : 60, repeated = 0;

    T_CHECK(p);
    for (unsigned n = 0; n < instances; n++) {
        struct instance in = {.above = 1 + (unsigned)t_rng_below(&r, 5), .once = n % 4 == 0};
        struct bound_hop hop = {.above_bytes = in.above};
        struct bound_params params = {0, 0, in.once, &hop, 1, 0, 0, 0};
        double bound;

        for (int i = 0; i < MAX_OBJECTS; i++)
            in.size[i] = 1 + (unsigned)t_rng_below(&r, 3);
        make_mixture(&r, &in);
        for (unsigned i = 0; i < in.nr; i++)
            in.ev[i].gap_ns = 0;
        *p = (struct paging){.in = &in, .up = n % 2};
        for (size_t i = 0; i < sizeof(p->best) / sizeof(unsigned); i++)
            ((unsigned *)p->best)[i] = FAR;
        *(n % 2 ? &hop.up_bps : &hop.down_bps) = 1;
        bound = bound_of(in.ev, in.nr, &params);
        if (!near(bound, least(p, 0, 0)))
            t_fail(__FILE__, __LINE__, "instance %u: bound %g, least %u", n, bound, least(p, 0, 0));
        repeated += bound > 0;
    }
    T_CHECK(repeated > instances / 4);
    free(p);
}

static void monotone(void)
{
    struct t_rng r = {t_seed() ^ 1};

    for (int n = 0; n < 200; n++) {
        struct bound_event ev[24];
        struct bound_hop hops[2] = {{0}}, better[2];
        struct bound_params p = {100, 150, true, hops, 2, 0, 0, 0}, q = p;
        double base;

        for (unsigned i = 0; i < 12; i++) {
            ev[i] = (struct bound_event){BOUND_PUT, i, 1 + t_rng_below(&r, 100), GAP(1), 0};
            ev[12 + i] = (struct bound_event){BOUND_GET, (i * 5) % 12, 0, GAP(1), 0};
        }
        for (int h = 0; h < 2; h++)
            hops[h] =
                (struct bound_hop){(double)t_rng_below(&r, 400), 1 + (double)t_rng_below(&r, 100),
                                   1 + (double)t_rng_below(&r, 100), 0};
        base = bound_of(ev, 24, &p);
        q.hops = better;
        for (int which = 0; which < 8; which++) {
            memcpy(better, hops, sizeof(better));
            struct bound_hop *b = &better[which / 4];

            b->above_bytes *= which % 4 == 0 ? 1.5 : 1;
            b->down_bps *= which % 4 == 1 ? 1.5 : 1;
            b->up_bps *= which % 4 == 2 ? 1.5 : 1;
            b->both_bps = which % 4 == 3 ? 500 : 0;
            T_CHECK(bound_of(ev, 24, &q) <= base + 1e-9);
        }
        memcpy(better, hops, sizeof(better));
        q.put_copy_bps = 200;
        T_CHECK(bound_of(ev, 24, &q) <= base + 1e-9);
    }
}

/* Fewer edges are taken, and the result is still a bound of the same size. */
static void long_scripts(void)
{
    size_t k = 12000;
    struct bound_event *ev = calloc(2 * k, sizeof(*ev));
    struct bound_hop hop = {1000, 1, 1, 1};
    struct bound_params p = {0, 0, true, &hop, 1, 0, 0, 0};
    double b;

    T_CHECK(ev);
    for (size_t i = 0; i < k; i++) {
        ev[i] = (struct bound_event){BOUND_PUT, i, 10, GAP(1), 0};
        ev[k + i] = (struct bound_event){BOUND_GET, k - 1 - i, 0, GAP(1), 0};
    }
    b = bound_of(ev, 2 * k, &p);
    /* 119,000 bytes each way, less the compute time of either phase; a start node that was left out costs a few
     * objects. */
    T_CHECK(b <= 2 * 107001.0 && b >= 2 * 107001.0 - 100);
    free(ev);
}

/* Two streams that write and read the same amounts at the same time have half of the hop each. */
static void streams_share_the_hop(void)
{
    const struct bound_hop hop = {.above_bytes = 0, .down_bps = 10, .up_bps = 10, .both_bps = 20};
    struct bound_params p = {.consume_once = true, .hops = &hop, .nr_hops = 1, .nr_streams = 2};
    struct bound_event ev[8];
    struct bound_result r[2];

    /* Puts 0..3 of 10 bytes, one second apart, in turns; then gets. The application holds one object, so of 40 bytes
     * 30 have gone down when the last put returns: 3 s after the first started, 1 s of that is a gap. */
    for (uint32_t i = 0; i < 4; i++) {
        ev[i] = (struct bound_event){BOUND_PUT, i, 10, 1000000000, i % 2};
        ev[4 + i] = (struct bound_event){BOUND_GET, i, 0, 0, i % 2};
    }
    T_OK(bound_compute(ev, 4, &p, r));
    T_CHECK(fabs(r[1].total_s - 2) < 1e-9);
    T_CHECK(fabs(r[0].total_s - 1) < 1e-9);
    T_CHECK(fabs(r[1].write_s + r[1].copy_s - r[1].total_s) < 1e-9);
    /* All of them come up again, but for one, from when the first stream begins to read, 2 s after it began. */
    T_OK(bound_compute(ev, 8, &p, r));
    T_CHECK(r[1].total_s >= 2 + 3 - 1 - 1e-9);
    p.nr_streams = 1; /* and event 1 is of the second */
    T_ERR(bound_compute(ev, 4, &p, r), -EINVAL);
}

/* Streams one after the other have a bound each: a call counts from the time at which its own stream makes it. */
static void streams_in_turn_do_not_wait(void)
{
    const struct bound_hop hop = {.above_bytes = 0, .down_bps = 10, .up_bps = 10, .both_bps = 20};
    struct bound_params p = {.hops = &hop, .nr_hops = 1, .nr_streams = 2};
    struct bound_event ev[4];
    struct bound_result r[2];

    for (uint32_t i = 0; i < 4; i++)
        ev[i] = (struct bound_event){BOUND_PUT, i, 10, i == 2 ? 100000000000 : 0, i / 2};
    T_OK(bound_compute(ev, 4, &p, r));
    T_CHECK(fabs(r[0].total_s - 1) < 1e-9 && fabs(r[1].total_s - 1) < 1e-9);
}

/* A stream may have been given an object before a call of another returns, and its place be used for that: nothing
 * crosses, although no more than one object fits. */
static void calls_under_way_hold_bytes(void)
{
    const struct bound_hop hop = {.above_bytes = 10, .down_bps = 10, .up_bps = 10, .both_bps = 20};
    struct bound_params p = {.consume_once = true, .hops = &hop, .nr_hops = 1, .nr_streams = 2};
    struct bound_event ev[] = {{BOUND_PUT, 1, 10, 0, 1},
                               {BOUND_PUT, 0, 10, 0, 0},
                               {BOUND_GET, 1, 0, 0, 1},
                               {BOUND_GET, 0, 0, 0, 0}};
    struct bound_result r[2];

    T_OK(bound_compute(ev, VV_ARRAY_SIZE(ev), &p, r));
    T_CHECK(r[0].total_s == 0 && r[1].total_s == 0);
}

/* The second to return may have started long before the first: it has had that time. */
static void windows_open_with_the_first_to_start(void)
{
    const struct bound_hop hop = {.above_bytes = 0, .down_bps = 10, .up_bps = 10, .both_bps = 20};
    struct bound_params p = {.hops = &hop, .nr_hops = 1, .nr_streams = 2};
    struct bound_event ev[] = {{BOUND_PUT, 0, 10, UINT64_C(5000000000), 0},
                               {BOUND_PUT, 1, 10, 0, 1}};
    struct bound_result r[2];

    T_OK(bound_compute(ev, VV_ARRAY_SIZE(ev), &p, r));
    T_CHECK(r[1].total_s < 5);
}

int main(void)
{
    T_RUN(nothing_to_do);
    T_RUN(copies_only_when_gaps_are_long);
    T_RUN(larger_than_the_first_tier);
    T_RUN(write_window_by_hand);
    T_RUN(fence_separates_the_phases);
    T_RUN(cross_window_by_hand);
    T_RUN(discarded_needs_no_crossing);
    T_RUN(repeated_reads_count_once);
    T_RUN(bad_input);
    T_RUN(never_above_the_optimum);
    T_RUN(the_most_that_stays);
    T_RUN(monotone);
    T_RUN(long_scripts);
    T_RUN(streams_share_the_hop);
    T_RUN(streams_in_turn_do_not_wait);
    T_RUN(calls_under_way_hold_bytes);
    T_RUN(windows_open_with_the_first_to_start);
    return t_done();
}
