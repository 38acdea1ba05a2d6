/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bound as a longest path.
 *
 * Node n stands for "call n has returned", node 0 for the start; beta(n) is the blocked time so
 * far. Every edge m -> n of weight w says that beta(n) - beta(m) >= w under any schedule, so
 * beta(n) is at least the longest path from 0 to n. All edges point forward, so one pass over the
 * start nodes in ascending order suffices. An edge is a window of calls j..i (start node j - 1),
 * which lasts the blocked time in it plus the gaps before calls j + 1..i: the gap before call j
 * lies outside, because the window opens when call j starts.
 *
 *   copy      one call: its bytes over the rate of the first copy.
 *   write     what was put in j..i has gone down, less the most that can have stayed above the hop
 *             until it died, or until i returned.
 *   restore   what calls j..i read has come up, less the most that can have stayed above the hop
 *             since it was put or read before, or since j started.
 *   cross     for a cut m inside the window, both at once: a byte above the hop at m saves one
 *             crossing if it was put in j..m or is read in m+1..i, and two if both. Or the bytes of
 *             the two edges above, added up.
 *
 * "The most that can have stayed" is a packing of intervals of calls, each of a width (its bytes, of
 * which any part may be taken), with at most C side by side at any node. Every byte taken saves one
 * crossing, however long its interval, so short ones are worth most:
 *
 *   - Reads, in the order in which their intervals end: take as much of each as is free. This is
 *     optimal. Proof: let OPT agree with the choice before interval k = [u, g) and have less of k
 *     than the choice has. Add a little of k to OPT. At nodes of [u, g) that are now too full, OPT
 *     has some of an interval that comes later in the order, because the choice was feasible there
 *     with k. Of the first such node t take that interval: it ends at g or later, so it covers
 *     [t, g) and with it every node that is too full. Give up as much of it: OPT is feasible again
 *     and as large. The choice for one read does not depend on reads that end later: one pass over
 *     i serves all windows that begin at j. C is kept as amounts with the node since which they are
 *     free; a read from u takes those that became free last, up to u.
 *   - Lives of what was put in the window, in the order in which they begin: take all of each, and
 *     while more than C are side by side give up those that end last (Belady's rule; the same
 *     argument, mirrored). A window that ends at i cuts all longer lives off there, which leaves
 *     their order as it is, so what was given up by i is the answer for i.
 *
 * Several streams make calls at the same time; nodes are in the order in which the calls returned, and
 * beta(n) is what the stream of call n has stalled so far. The window j..i opens when the first of its
 * calls starts, whichever stream makes it. That time is not known. Its lower bound is used: the least of
 * the lower bounds for each stream's first call in the window. A call of another stream may have begun by then or
 * at a cut, and have part of its object: a byte that a call has been given, or has still to give, is in
 * the application's memory, so what fits above a hop grows by the largest object for each further
 * stream. With one stream this is the same as the above.
 *
 * A window never spans a fence: the time of the fence counts for no call. Leaving edges out only
 * lowers the bound, so very long scripts are handled by taking fewer start nodes and cuts.
 *
 * A life is one put of a version until it is discarded or read for the last time; it is live at
 * nodes put .. dead - 1. With a version that is consumed by its read, the read's own node is the
 * first at which it is dead.
 *
 * Pure computation, no thread. Risk: a rate below the real speed of the hop makes the result too large, and then
 * it is no bound; see docs/bound.md.
 */
#include "cli/report/bound.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define NONE SIZE_MAX

/* So many edges take a fraction of a second. */
static const double max_edges = 2e8;

enum edge { EDGE_COPY, EDGE_WRITE, EDGE_RESTORE, EDGE_CROSS };

struct life {
    double bytes;
    size_t put;  /* the call that wrote it                       */
    size_t dead; /* the first node at which it is not needed any more */
    size_t next_dying;
};

struct call {
    enum bound_kind kind;
    size_t prev; /* of the same stream, 0 if none */
    size_t life;
    size_t prev_get;    /* the read of the same life before this one, 0 if none */
    size_t dying;       /* list of lives whose `dead` is this node             */
    size_t segment_end; /* the last call before the next fence               */
    double gap_until_s; /* gaps before the stream's calls up to this one, added up */
};

/* A version and its present life. */
struct entry {
    uint64_t version;
    size_t life;
    size_t last_get;
};

/* The bytes that can have stayed above one hop, for the present start node. */
struct packing {
    /* For reads: free[n] bytes of the capacity are free since node n. A node whose amount is used up leads to an
     * earlier one. */
    double *free;
    size_t *earlier;
    /* For lives: a heap of those that stay, the one that ends last on top. */
    size_t *heap;
    size_t nr_heap;
    double *stays; /* by life: bytes of it */
    double up, down, side_by_side;
};

struct graph {
    const struct bound_params *params;
    struct packing *packings; /* one for each hop */
    struct call *calls;       /* 1..nr_calls */
    size_t nr_calls;
    size_t *last; /* call of each stream; 0: none */
    uint32_t nr_streams;
    double *above; /* of each hop, what fits; see the top */
    /* The earliest time at which the present window opens, in the time of the stream of call `opener`. */
    double opens_s;
    size_t opener;
    struct life *lives;
    size_t nr_lives;
    struct entry *entries; /* sorted by version */
    size_t nr_entries;
    size_t *cuts; /* calls that write, directly before one that reads */
    size_t nr_cuts;
    double *cut_written; /* for the present start node: bytes put since and live at the cut */
    double *beta;
    size_t *from;
    enum edge *kind;
};

static void graph_fini(struct graph *g)
{
    for (size_t h = 0; g->packings && h < g->params->nr_hops; h++) {
        free(g->packings[h].free);
        free(g->packings[h].earlier);
        free(g->packings[h].heap);
        free(g->packings[h].stays);
    }
    free(g->packings);
    free(g->last);
    free(g->above);
    free(g->calls);
    free(g->lives);
    free(g->entries);
    free(g->cuts);
    free(g->cut_written);
    free(g->beta);
    free(g->from);
    free(g->kind);
}

static int compare_entries(const void *a, const void *b)
{
    uint64_t x = ((const struct entry *)a)->version, y = ((const struct entry *)b)->version;

    return x < y ? -1 : x > y;
}

static struct entry *find_entry(struct graph *g, uint64_t version)
{
    struct entry key = {.version = version};

    return bsearch(&key, g->entries, g->nr_entries, sizeof(key), compare_entries);
}

static void collect_versions(struct graph *g, const struct bound_event *events, size_t nr_events)
{
    size_t n = 0, unique = 0;

    for (size_t i = 0; i < nr_events; i++)
        if (events[i].kind == BOUND_PUT)
            g->entries[n++] = (struct entry){events[i].version, NONE, 0};
    qsort(g->entries, n, sizeof(*g->entries), compare_entries);
    for (size_t i = 0; i < n; i++)
        if (unique == 0 || g->entries[i].version != g->entries[unique - 1].version)
            g->entries[unique++] = g->entries[i];
    g->nr_entries = unique;
}

static int packing_alloc(struct packing *p, size_t n)
{
    p->free = calloc(n, sizeof(*p->free));
    p->earlier = calloc(n, sizeof(*p->earlier));
    p->heap = calloc(n, sizeof(*p->heap));
    p->stays = calloc(n, sizeof(*p->stays));
    return p->free && p->earlier && p->heap && p->stays ? 0 : -ENOMEM;
}

static int graph_alloc(struct graph *g, size_t nr_events)
{
    size_t n = nr_events + 1;

    g->packings = calloc(g->params->nr_hops + 1, sizeof(*g->packings));
    g->above = calloc(g->params->nr_hops + 1, sizeof(*g->above));
    g->last = calloc(g->nr_streams, sizeof(*g->last));
    if (!g->packings || !g->above || !g->last)
        return -ENOMEM;
    for (size_t h = 0; h < g->params->nr_hops; h++)
        if (packing_alloc(&g->packings[h], n) < 0)
            return -ENOMEM;

    g->calls = calloc(n, sizeof(*g->calls));
    g->lives = calloc(n, sizeof(*g->lives));
    g->entries = calloc(n, sizeof(*g->entries));
    g->cuts = calloc(n, sizeof(*g->cuts));
    g->cut_written = calloc(n, sizeof(*g->cut_written));
    g->beta = calloc(n, sizeof(*g->beta));
    g->from = calloc(n, sizeof(*g->from));
    g->kind = calloc(n, sizeof(*g->kind));
    if (!g->calls || !g->lives || !g->entries || !g->cuts || !g->cut_written || !g->beta ||
        !g->from || !g->kind)
        return -ENOMEM;
    return 0;
}

/* The life ends: it is not needed at node `dead` and after. A node past the last call is no window's end, so such
 * a death changes nothing. */
static void end_life(struct graph *g, struct entry *e, size_t dead)
{
    g->lives[e->life].dead = dead;
    e->life = NONE;
}

static int add_call(struct graph *g, const struct bound_event *ev)
{
    struct entry *e = find_entry(g, ev->version);
    size_t n = ++g->nr_calls;
    struct call *call = &g->calls[n];

    if (ev->stream >= g->nr_streams)
        return -EINVAL;
    call->kind = ev->kind == BOUND_PUT ? BOUND_PUT : BOUND_GET;
    call->prev = g->last[ev->stream];
    call->gap_until_s = g->calls[call->prev].gap_until_s + (double)ev->gap_ns * 1e-9;
    g->last[ev->stream] = n;
    if (ev->kind == BOUND_PUT) {
        if (e->life != NONE)
            return -EINVAL;
        e->life = g->nr_lives++;
        e->last_get = 0;
        g->lives[e->life] = (struct life){(double)ev->bytes, n, NONE, NONE};
        call->life = e->life;
        return 0;
    }
    if (!e || e->life == NONE)
        return -EINVAL;
    call->life = e->life;
    call->prev_get = e->last_get;
    e->last_get = n;
    if (g->params->consume_once || ev->kind == BOUND_TAKE)
        end_life(g, e, n);
    return 0;
}

/* Converts events to calls. The fences give the segments. */
static int build_calls(struct graph *g, const struct bound_event *events, size_t nr_events)
{
    size_t segment_start = 1;

    for (size_t i = 0; i < nr_events; i++) {
        const struct bound_event *ev = &events[i];
        struct entry *e;
        int rc;

        switch (ev->kind) {
        case BOUND_PUT:
        case BOUND_GET:
        case BOUND_TAKE:
            rc = add_call(g, ev);
            if (rc < 0)
                return rc;
            break;
        case BOUND_DISCARD:
            e = find_entry(g, ev->version);
            if (!e || e->life == NONE)
                return -EINVAL;
            /* Between two calls: still kept when the one before returns. */
            end_life(g, e, g->nr_calls + 1);
            break;
        case BOUND_FENCE:
            for (; segment_start <= g->nr_calls; segment_start++)
                g->calls[segment_start].segment_end = g->nr_calls;
            break;
        default:
            return -EINVAL;
        }
    }
    for (; segment_start <= g->nr_calls; segment_start++)
        g->calls[segment_start].segment_end = g->nr_calls;
    return 0;
}

static void index_deaths_and_cuts(struct graph *g)
{
    for (size_t n = 0; n <= g->nr_calls; n++)
        g->calls[n].dying = NONE;
    for (size_t i = 0; i < g->nr_lives; i++) {
        struct life *life = &g->lives[i];

        if (life->dead > g->nr_calls)
            continue;
        life->next_dying = g->calls[life->dead].dying;
        g->calls[life->dead].dying = i;
    }
    for (size_t n = 1; n < g->nr_calls; n++)
        if (g->calls[n].kind == BOUND_PUT && g->calls[n + 1].kind == BOUND_GET &&
            g->calls[n].segment_end > n)
            g->cuts[g->nr_cuts++] = n;
}

static void relax(struct graph *g, size_t from, size_t to, double beta, enum edge kind)
{
    if (beta > g->beta[to]) {
        g->beta[to] = beta;
        g->from[to] = from;
        g->kind[to] = kind;
    }
}

/* Call i returns `seconds` after the window at hand opens, or later. */
static void relax_window_by(struct graph *g, size_t i, double seconds, enum edge kind)
{
    relax(g, g->calls[g->opener].prev, i, g->opens_s + seconds - g->calls[i].gap_until_s, kind);
}

/* The window that opens at call j includes call k. */
static void open_window(struct graph *g, size_t j, size_t k)
{
    const struct call *call = &g->calls[k];
    double starts_s = g->beta[call->prev] + call->gap_until_s;

    if (k == j || (call->prev < j && starts_s < g->opens_s)) {
        g->opens_s = starts_s;
        g->opener = k;
    }
}

static double copy_bps(const struct bound_params *p, enum bound_kind kind, double bytes)
{
    if (kind != BOUND_PUT)
        return p->get_copy_bps;
    return p->put_beyond_bps > 0 && bytes > p->first_bytes ? p->put_beyond_bps : p->put_copy_bps;
}

static void relax_copy(struct graph *g, size_t n)
{
    double bytes = g->lives[g->calls[n].life].bytes;
    double bps = copy_bps(g->params, g->calls[n].kind, bytes);
    double seconds = bps > 0 ? bytes / bps : 0;

    size_t prev = g->calls[n].prev;

    relax(g, prev, n, g->beta[prev] + seconds, EDGE_COPY);
    /* A free copy is still an edge: the path must not end here. */
    if (g->beta[n] <= g->beta[prev]) {
        g->beta[n] = g->beta[prev];
        g->from[n] = prev;
        g->kind[n] = EDGE_COPY;
    }
}

/* ---- what can have stayed ---- */

/* The last node up to `n` since which some of the capacity is free; `none` if there is none. Nodes whose amount is
 * used up are skipped from then on. */
static size_t last_free(struct packing *p, size_t n, size_t none)
{
    size_t root = n;

    while (root > none && p->free[root] <= 0)
        root = p->earlier[root];
    while (n > root) {
        size_t next = p->earlier[n];
        p->earlier[n] = root;
        n = next;
    }
    return root;
}

/* The read at node `at` of `bytes`, which were used before at node `since`; the window opens after `start`. */
static void pack_read(struct packing *p, size_t start, size_t since, size_t at, double bytes)
{
    double left = bytes;

    for (size_t n = last_free(p, since, start); left > 0 && p->free[n] > 0;
         n = last_free(p, since, start)) {
        double taken = fmin(left, p->free[n]);
        p->free[n] -= taken;
        p->free[at] += taken;
        left -= taken;
    }
    p->up += left;
}

static bool ends_later(const struct graph *g, size_t a, size_t b)
{
    return g->lives[a].dead > g->lives[b].dead;
}

static void heap_push(const struct graph *g, struct packing *p, size_t life)
{
    size_t i = p->nr_heap++;

    for (; i > 0 && ends_later(g, life, p->heap[(i - 1) / 2]); i = (i - 1) / 2)
        p->heap[i] = p->heap[(i - 1) / 2];
    p->heap[i] = life;
}

static void heap_pop(const struct graph *g, struct packing *p)
{
    size_t last = p->heap[--p->nr_heap], i = 0;

    for (size_t c = 1; c < p->nr_heap; c = 2 * i + 1) {
        if (c + 1 < p->nr_heap && ends_later(g, p->heap[c + 1], p->heap[c]))
            c++;
        if (!ends_later(g, p->heap[c], last))
            break;
        p->heap[i] = p->heap[c];
        i = c;
    }
    p->heap[i] = last;
}

/* The put of a life. The bytes that do not fit go down, the latest end first. A life that has ended has no bytes
 * here any more; it never comes to the top while one that lasts is left. */
static void pack_life(const struct graph *g, struct packing *p, size_t life, double above)
{
    p->stays[life] = g->lives[life].bytes;
    p->side_by_side += p->stays[life];
    heap_push(g, p, life);
    while (p->side_by_side > above && p->nr_heap > 0) {
        size_t latest = p->heap[0];
        double given_up = fmin(p->stays[latest], p->side_by_side - above);
        p->stays[latest] -= given_up;
        p->side_by_side -= given_up;
        p->down += given_up;
        if (p->stays[latest] <= 0)
            heap_pop(g, p);
    }
}

static void pack_death(struct packing *p, size_t life)
{
    p->side_by_side -= p->stays[life];
    p->stays[life] = 0;
}

/* Windows that open at call j. */
static void pack_begin(struct graph *g, size_t j)
{
    for (size_t h = 0; h < g->params->nr_hops; h++) {
        struct packing *p = &g->packings[h];
        for (size_t n = j - 1; n <= g->calls[j].segment_end; n++) {
            p->free[n] = 0;
            p->earlier[n] = n ? n - 1 : 0;
        }
        p->free[j - 1] = g->above[h];
        p->nr_heap = 0;
        p->up = p->down = p->side_by_side = 0;
    }
}

static void pack_call(struct graph *g, size_t j, size_t i)
{
    const struct call *call = &g->calls[i];
    const struct life *life = &g->lives[call->life];
    size_t since = VV_MAX(VV_MAX(life->put, call->prev_get), j - 1);

    for (size_t h = 0; h < g->params->nr_hops; h++) {
        struct packing *p = &g->packings[h];
        for (size_t d = call->dying; d != NONE; d = g->lives[d].next_dying)
            if (g->lives[d].put >= j)
                pack_death(p, d);
        if (call->kind == BOUND_PUT)
            pack_life(g, p, call->life, g->above[h]);
        else
            pack_read(p, j - 1, since, i, life->bytes);
    }
}

/* The least time in which the hop moves these bytes in both directions. Without a rate for both together the hop is one
 * medium, and the times of the directions add up. Otherwise the highest of the three rates applies to the sum. */
static double both_s(const struct bound_hop *hop, double down, double up)
{
    if (hop->both_bps <= 0)
        return down / hop->down_bps + up / hop->up_bps;
    return (down + up) / fmax(hop->both_bps, fmax(hop->down_bps, hop->up_bps));
}

/* The edges of the window at hand, which ends at call i, over one hop. */
static void relax_window(struct graph *g, size_t i, size_t h)
{
    const struct bound_hop *hop = &g->params->hops[h];
    const struct packing *p = &g->packings[h];

    if (hop->down_bps > 0)
        relax_window_by(g, i, p->down / hop->down_bps, EDGE_WRITE);
    if (hop->up_bps > 0)
        relax_window_by(g, i, p->up / hop->up_bps, EDGE_RESTORE);
    if (hop->down_bps > 0 && hop->up_bps > 0)
        relax_window_by(g, i, both_s(hop, p->down, p->up), EDGE_CROSS);
}

/* Windows that open at call j. Leaves the data of cross windows in cut_written. */
static void relax_windows(struct graph *g, size_t j, size_t first_cut)
{
    double written = 0;
    size_t cut = first_cut;

    pack_begin(g, j);
    for (size_t i = j; i <= g->calls[j].segment_end; i++) {
        const struct call *call = &g->calls[i];

        for (size_t d = call->dying; d != NONE; d = g->lives[d].next_dying)
            if (g->lives[d].put >= j)
                written -= g->lives[d].bytes;
        if (call->kind == BOUND_PUT)
            written += g->lives[call->life].bytes;
        if (cut < g->nr_cuts && g->cuts[cut] == i)
            g->cut_written[cut++] = written;
        open_window(g, j, i);
        pack_call(g, j, i);
        for (size_t h = 0; h < g->params->nr_hops; h++)
            relax_window(g, i, h);
    }
}

/* The least time for all crossings, if `written` bytes were put before the cut, `read` are read after it, and
 * `shared` are in both. Bytes above at the cut save time: those in both first, then the slower way. */
static double cross_s(const struct bound_hop *hop, double above, double written, double read,
                      double shared)
{
    double twice = fmin(above, shared), left = above - twice;
    double down = written - twice, up = read - twice, saved;

    if (hop->both_bps <= 0 && hop->up_bps < hop->down_bps) {
        saved = fmin(left, read - shared);
        return both_s(hop, down - fmin(left - saved, written - shared), up - saved);
    }
    saved = fmin(left, written - shared);
    return both_s(hop, down - saved, up - fmin(left - saved, read - shared));
}

static void relax_cross(struct graph *g, size_t j, size_t first_cut, size_t cut_stride)
{
    size_t end = g->calls[j].segment_end;

    for (size_t c = first_cut; c < g->nr_cuts && g->cuts[c] < end; c++) {
        size_t m = g->cuts[c];
        double read = 0, shared = 0;

        if (c % cut_stride != 0)
            continue;
        for (size_t i = j; i <= m; i++)
            open_window(g, j, i);
        for (size_t i = m + 1; i <= end; i++) {
            const struct call *call = &g->calls[i];
            const struct life *life = &g->lives[call->life];

            open_window(g, j, i);
            if (call->kind != BOUND_GET || life->put > m || call->prev_get > m)
                continue;
            read += life->bytes;
            if (life->put >= j)
                shared += life->bytes;
            for (size_t h = 0; h < g->params->nr_hops; h++) {
                const struct bound_hop *hop = &g->params->hops[h];

                /* A direction without limit makes the two together unlimited as well. */
                if (hop->down_bps > 0 && hop->up_bps > 0)
                    relax_window_by(g, i,
                                    cross_s(hop, g->above[h], g->cut_written[c], read, shared),
                                    EDGE_CROSS);
            }
        }
    }
}

static void find_above(struct graph *g)
{
    double largest = 0;

    for (size_t i = 0; i < g->nr_lives; i++)
        largest = fmax(largest, g->lives[i].bytes);
    for (size_t h = 0; h < g->params->nr_hops; h++)
        g->above[h] = g->params->hops[h].above_bytes + (g->nr_streams - 1) * largest;
}

static void longest_path(struct graph *g)
{
    double n = (double)g->nr_calls;
    size_t start_stride = (size_t)(n * n / max_edges) + 1;
    size_t cut_stride = (size_t)(n * n * (double)g->nr_cuts / 8 / max_edges) + 1;
    size_t first_cut = 0;

    for (size_t j = 1; j <= g->nr_calls; j++) {
        while (first_cut < g->nr_cuts && g->cuts[first_cut] < j)
            first_cut++;
        relax_copy(g, j);
        if ((j - 1) % start_stride != 0)
            continue;
        relax_windows(g, j, first_cut);
        relax_cross(g, j, first_cut, cut_stride);
    }
}

/* The result of the stream whose last call is `last`. */
static struct bound_result trace_path(const struct graph *g, size_t last)
{
    struct bound_result r = {.total_s = g->beta[last]};

    for (size_t n = last; n > 0; n = g->from[n]) {
        double seconds = g->beta[n] - g->beta[g->from[n]];

        switch (g->kind[n]) {
        case EDGE_COPY:
            r.copy_s += seconds;
            break;
        case EDGE_WRITE:
            r.write_s += seconds;
            break;
        case EDGE_RESTORE:
            r.restore_s += seconds;
            break;
        case EDGE_CROSS:
            r.cross_s += seconds;
            break;
        }
    }
    return r;
}

static bool is_amount(double x)
{
    return isfinite(x) && x >= 0;
}

static bool params_valid(const struct bound_params *p)
{
    if (!is_amount(p->put_copy_bps) || !is_amount(p->get_copy_bps) || (p->nr_hops && !p->hops) ||
        !is_amount(p->first_bytes) || !is_amount(p->put_beyond_bps))
        return false;
    for (size_t h = 0; h < p->nr_hops; h++) {
        const struct bound_hop *hop = &p->hops[h];

        if (!is_amount(hop->above_bytes) || !is_amount(hop->down_bps) || !is_amount(hop->up_bps) ||
            !is_amount(hop->both_bps))
            return false;
    }
    return true;
}

int bound_compute(const struct bound_event *events, size_t nr_events,
                  const struct bound_params *params, struct bound_result *ret_result)
{
    return bound_compute_calls(events, nr_events, params, NULL, ret_result);
}

int bound_compute_calls(const struct bound_event *events, size_t nr_events,
                        const struct bound_params *params, double *ret_at_s,
                        struct bound_result *ret_result)
{
    struct graph g = {.params = params};
    int rc;

    if (!params || !ret_result || (nr_events && !events) || !params_valid(params))
        return -EINVAL;
    g.nr_streams = params->nr_streams > 1 ? params->nr_streams : 1;
    rc = graph_alloc(&g, nr_events);
    if (rc == 0) {
        collect_versions(&g, events, nr_events);
        rc = build_calls(&g, events, nr_events);
    }
    if (rc == 0) {
        index_deaths_and_cuts(&g);
        find_above(&g);
        longest_path(&g);
        for (uint32_t s = 0; s < g.nr_streams; s++)
            ret_result[s] = trace_path(&g, g.last[s]);
        for (size_t n = 1; n <= g.nr_calls && ret_at_s; n++)
            ret_at_s[n - 1] = g.beta[n];
    }
    graph_fini(&g);
    return rc;
}
