/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ways: all copies from one place to another, of any mover. They give the totals of each way, the rate that it
 * sustained, and the activity while a call waited.
 *
 * A bound is computed from the rate of a way, so the rate has to be its highest one. It is taken
 * from the run itself: the best stretch of completions that holds a tenth of the way's bytes, and
 * several times what was in flight at once, so that copies that end together are no burst of
 * infinite speed. Time in which nothing was under way does not count.
 *
 * The time of a call is divided among causes in an order: its own copies first, then the possible reasons of its
 * wait. Each instant counts once, so the parts add up to the blocked time.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/report/trace_view_private.h"

#define WINDOW_SHARE  0.1
#define WINDOW_FLIGHT 8 /* times what is in flight */

/* ---- the copies ---- */

static bool is_copy(const struct vv_span *s)
{
    return s->kind == VV_SPAN_COPY && s->end_ns >= s->start_ns;
}

static int by_end(const void *x, const void *y)
{
    const struct vv_span *a = *(const struct vv_span *const *)x;
    const struct vv_span *b = *(const struct vv_span *const *)y;

    if (a->end_ns != b->end_ns)
        return a->end_ns < b->end_ns ? -1 : 1;
    return a->start_ns < b->start_ns ? -1 : a->start_ns > b->start_ns;
}

static int by_version(const void *x, const void *y)
{
    const struct vv_span *a = *(const struct vv_span *const *)x;
    const struct vv_span *b = *(const struct vv_span *const *)y;
    int order = view_compare_version(a->history, a->version, b->history, b->version);

    if (order)
        return order;
    return a->start_ns < b->start_ns ? -1 : a->start_ns > b->start_ns;
}

static struct way *way_of(struct trace_view *view, const struct vv_span *s)
{
    return &view->ways[view_place(view, s->history, s->src_tier)]
                      [view_place(view, s->history, s->dst_tier)];
}

typedef void visitor(struct trace_view *view, const struct vv_span *s);

static void visit_copies(struct trace_view *view, visitor *visit)
{
    const struct vv_timeline *t = view->timeline;

    for (size_t i = 0; i < t->nlanes; i++)
        for (size_t k = 0; k < t->lanes[i].nspans; k++)
            if (is_copy(&t->lanes[i].spans[k]))
                visit(view, &t->lanes[i].spans[k]);
}

static void count_copy(struct trace_view *view, const struct vv_span *s)
{
    way_of(view, s)->nr++;
    view->nr_by_version++;
}

static void take_copy(struct trace_view *view, const struct vv_span *s)
{
    struct way *way = way_of(view, s);

    way->copies[way->nr++] = s;
    view->by_version[view->nr_by_version++] = s;
}

int view_find_ways(struct trace_view *view)
{
    visit_copies(view, count_copy);
    view->by_version = calloc(view->nr_by_version + 1, sizeof(*view->by_version));
    if (!view->by_version)
        return -ENOMEM;
    view->nr_by_version = 0;
    for (int a = 0; a < PLACE_NR; a++) {
        for (int b = 0; b < PLACE_NR; b++) {
            struct way *way = &view->ways[a][b];

            way->src = (enum place)a;
            way->dst = (enum place)b;
            way->copies = calloc(way->nr + 1, sizeof(*way->copies));
            if (!way->copies)
                return -ENOMEM;
            way->nr = 0;
        }
    }
    visit_copies(view, take_copy);
    qsort(view->by_version, view->nr_by_version, sizeof(*view->by_version), by_version);
    for (int a = 0; a < PLACE_NR; a++) {
        for (int b = 0; b < PLACE_NR; b++) {
            struct way *way = &view->ways[a][b];
            const struct way *one = way;
            int rc;

            qsort(way->copies, way->nr, sizeof(*way->copies), by_end);
            rc = view_best_rate(&one, 1, &way->best_bps);
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

/* ---- covered time ---- */

static int by_start(const void *x, const void *y)
{
    const uint64_t *a = x, *b = y;

    return a[0] < b[0] ? -1 : a[0] > b[0];
}

/* The time in which at least one of the copies was under way. */
static int cover_make(const struct way *const *ways, size_t nr_ways, struct cover *ret)
{
    struct cover c = {0};
    size_t n = 0, out = 0;

    for (size_t i = 0; i < nr_ways; i++)
        n += ways[i]->nr;
    c.at = malloc((n + 1) * sizeof(*c.at));
    if (!c.at)
        return -ENOMEM;
    n = 0;
    for (size_t i = 0; i < nr_ways; i++) {
        for (size_t k = 0; k < ways[i]->nr; k++) {
            c.at[n][0] = ways[i]->copies[k]->start_ns;
            c.at[n++][1] = ways[i]->copies[k]->end_ns;
        }
    }
    qsort(c.at, n, sizeof(*c.at), by_start);
    for (size_t i = 0; i < n; i++) {
        if (out > 0 && c.at[i][0] <= c.at[out - 1][1]) {
            if (c.at[i][1] > c.at[out - 1][1])
                c.at[out - 1][1] = c.at[i][1];
        } else {
            memmove(c.at[out++], c.at[i], sizeof(c.at[i]));
        }
    }
    c.nr = out;
    *ret = c;
    return 0;
}

/* The first stretch that ends after t. */
static size_t cover_find(const struct cover *c, uint64_t t)
{
    size_t low = 0, high = c->nr;

    while (low < high) {
        size_t mid = (low + high) / 2;

        if (c->at[mid][1] <= t)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* ---- rates ---- */

struct flow {
    double bytes, busy_ns; /* up to the end of each copy */
};

/* The maximum of bytes that were under way at one time. */
static double most_in_flight(const struct vv_span *const *copies, size_t nr)
{
    double flying = 0, most = 0;
    size_t first = 0;

    /* Copies are in the order of their ends. `first` is the first copy that ends after this one starts. All copies
     * from there up to this one are counted. Some of them may not overlap each other; they only make the result
     * larger. */
    for (size_t i = 0; i < nr; i++) {
        flying += (double)copies[i]->bytes;
        while (copies[first]->end_ns <= copies[i]->start_ns && first < i)
            flying -= (double)copies[first++]->bytes;
        most = fmax(most, flying);
    }
    return most;
}

static double best_window(const struct flow *flow, size_t nr, double window)
{
    double best = 0;
    size_t j = 0;

    for (size_t i = 0; i < nr; i++) {
        while (j < nr && flow[j].bytes - flow[i].bytes < window)
            j++;
        if (j == nr)
            break;
        if (flow[j].busy_ns > flow[i].busy_ns)
            best = fmax(best, (flow[j].bytes - flow[i].bytes) /
                                  (flow[j].busy_ns - flow[i].busy_ns) * 1e9);
    }
    return best;
}

int view_best_rate(const struct way *const *ways, size_t nr_ways, double *ret_bps)
{
    struct cover cover;
    const struct vv_span **copies;
    struct flow *flow;
    size_t n = 0, at = 0;
    double busy = 0, bytes = 0, window;
    int rc = cover_make(ways, nr_ways, &cover);

    if (rc < 0)
        return rc;
    for (size_t i = 0; i < nr_ways; i++)
        n += ways[i]->nr;
    copies = calloc(n + 1, sizeof(*copies));
    flow = calloc(n + 1, sizeof(*flow));
    if (!copies || !flow)
        rc = -ENOMEM;
    n = 0;
    for (size_t i = 0; i < nr_ways && rc == 0; i++)
        for (size_t k = 0; k < ways[i]->nr; k++)
            if (ways[i]->copies[k]->status == 0 && !ways[i]->copies[k]->cut)
                copies[n++] = ways[i]->copies[k];
    if (rc == 0 && nr_ways > 1)
        qsort(copies, n, sizeof(*copies), by_end);
    for (size_t i = 0; i < n && rc == 0; i++) {
        for (; at < cover.nr && cover.at[at][1] <= copies[i]->end_ns; at++)
            busy += (double)(cover.at[at][1] - cover.at[at][0]);
        bytes += (double)copies[i]->bytes;
        flow[i + 1].bytes = bytes;
        flow[i + 1].busy_ns = busy;
        if (at < cover.nr && cover.at[at][0] < copies[i]->end_ns)
            flow[i + 1].busy_ns += (double)(copies[i]->end_ns - cover.at[at][0]);
    }
    if (rc == 0) {
        window = fmin(fmax(WINDOW_SHARE * bytes, WINDOW_FLIGHT * most_in_flight(copies, n)), bytes);
        *ret_bps = n > 0 ? best_window(flow, n + 1, window) : 0;
    }
    free(copies);
    free(flow);
    free(cover.at);
    return rc;
}

/* ---- the table ---- */

int view_make_hops(struct trace_view *view)
{
    view->hops = calloc(PLACE_NR * PLACE_NR, sizeof(*view->hops));
    if (!view->hops)
        return -ENOMEM;
    for (int a = 0; a < PLACE_NR; a++) {
        for (int b = 0; b < PLACE_NR; b++) {
            const struct way *way = &view->ways[a][b];
            struct trace_hop *hop = &view->hops[view->page.nr_hops];
            struct cover cover;
            int rc;

            if (way->nr == 0)
                continue;
            *hop = (struct trace_hop){
                .title = view_text(view, "%s to %s", view_place_name(way->src),
                                   view_place_name(way->dst)),
                .down = way->dst > way->src,
                .own = way->src == PLACE_APP || way->dst == PLACE_APP,
                .copies = way->nr,
                .best_bps = way->best_bps,
            };
            if (!hop->title)
                return -ENOMEM;
            for (size_t i = 0; i < way->nr; i++) {
                hop->failures += way->copies[i]->status != 0;
                hop->bytes += way->copies[i]->status == 0 ? way->copies[i]->bytes : 0;
            }
            rc = cover_make(&way, 1, &cover);
            if (rc < 0)
                return rc;
            for (size_t i = 0; i < cover.nr; i++)
                hop->busy_s += (double)(cover.at[i][1] - cover.at[i][0]) / 1e9;
            free(cover.at);
            view->page.nr_hops++;
        }
    }
    view->page.hops = view->hops;
    return 0;
}

/* ---- what calls waited for ---- */

/* The rest of a call's time. */
struct rest {
    uint64_t (*at)[2];
    size_t nr, cap;
};

static int rest_add(struct rest *r, uint64_t from, uint64_t to)
{
    if (to <= from)
        return 0;
    if (r->nr == r->cap) {
        size_t cap = r->cap ? 2 * r->cap : 64;
        void *at = realloc(r->at, cap * sizeof(*r->at));

        if (!at)
            return -ENOMEM;
        r->at = at;
        r->cap = cap;
    }
    r->at[r->nr][0] = from;
    r->at[r->nr++][1] = to;
    return 0;
}

/* Moves the covered time out of `from` and leaves the rest in `to`. Returns the covered time in seconds, or -1
 * without memory. */
static double take(const struct rest *from, const struct cover *c, struct rest *to)
{
    double taken = 0;

    to->nr = 0;
    for (size_t i = 0; i < from->nr; i++) {
        uint64_t at = from->at[i][0], end = from->at[i][1];

        for (size_t k = cover_find(c, at); k < c->nr && c->at[k][0] < end; k++) {
            uint64_t a = c->at[k][0] > at ? c->at[k][0] : at,
                     b = c->at[k][1] < end ? c->at[k][1] : end;

            if (rest_add(to, at, a) < 0)
                return -1;
            taken += (double)(b - a) / 1e9;
            at = b;
        }
        if (rest_add(to, at, end) < 0)
            return -1;
    }
    return taken;
}

/* The first copy of a version in view->by_version. */
static size_t find_version(const struct trace_view *view, uint64_t history, uint64_t version)
{
    size_t low = 0, high = view->nr_by_version;

    while (low < high) {
        size_t mid = (low + high) / 2;
        const struct vv_span *s = view->by_version[mid];

        if (view_compare_version(s->history, s->version, history, version) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* A call's own copies, as covered time. Records if a restore had to wait for a slower tier, and if a copy went on
 * after the call. */
static void look_at_copies(struct trace_view *view, const struct stretch *it, struct cover *own)
{
    bool ready = true, any = false;

    own->nr = 0;
    for (size_t i = find_version(view, it->history, it->version); i < view->nr_by_version; i++) {
        const struct vv_span *s = view->by_version[i];
        enum place src = view_place(view, s->history, s->src_tier);
        bool is_own = src == PLACE_APP || s->dst_tier < 0;

        if (view_compare_version(s->history, s->version, it->history, it->version) != 0 ||
            s->start_ns >= it->end_ns)
            break;
        if (s->end_ns <= it->start_ns)
            continue;
        if (!is_own) {
            ready &= !s->up;
            continue;
        }
        any = true;
        ready &= src != PLACE_DISK && src != PLACE_REMOTE;
        view->on_streams |= s->end_ns > it->end_ns + 1000;
        if (own->nr > 0 && s->start_ns <= own->at[own->nr - 1][1]) {
            if (s->end_ns > own->at[own->nr - 1][1])
                own->at[own->nr - 1][1] = s->end_ns;
        } else {
            own->at[own->nr][0] = s->start_ns;
            own->at[own->nr++][1] = s->end_ns;
        }
    }
    if (it->call && it->is_get)
        it->call->ready = any && ready && !it->call->failed;
}

/* The ways that a put, or a get, may wait for, by cause. */
static int make_cause(const struct trace_view *view, bool is_get, enum blocked_cause cause,
                      struct cover *ret)
{
    const struct way *ways[PLACE_NR * PLACE_NR];
    size_t n = 0;

    for (int a = PLACE_DEVICE; a < PLACE_NR; a++) {
        for (int b = PLACE_DEVICE; b < PLACE_NR; b++) {
            int slow = a > b ? a : b;
            enum blocked_cause of = slow == PLACE_REMOTE ? BLOCKED_REMOTE
                                    : slow == PLACE_DISK ? BLOCKED_DISK
                                                         : BLOCKED_LINK;

            if (of == cause && (b < a) == is_get)
                ways[n++] = &view->ways[a][b];
        }
    }
    return cover_make(ways, n, ret);
}

struct causes {
    struct cover cover[2][BLOCKED_CAUSE_NR];
    struct cover own;
    struct rest rest[2];
};

static int divide(struct trace_view *view, struct causes *c, const struct stretch *it)
{
    double *s = view->page.cause_s[it->is_get];
    struct rest *rest = &c->rest[0], *other = &c->rest[1], *swap;

    look_at_copies(view, it, &c->own);
    rest->nr = 0;
    if (rest_add(rest, it->start_ns, it->end_ns) < 0)
        return -ENOMEM;
    for (int cause = 0; cause < BLOCKED_ELSE; cause++) {
        const struct cover *cover =
            cause == BLOCKED_COPYING ? &c->own : &c->cover[it->is_get][cause];
        double taken = take(rest, cover, other);

        if (taken < 0)
            return -ENOMEM;
        s[cause] += taken;
        swap = rest;
        rest = other;
        other = swap;
    }
    for (size_t i = 0; i < rest->nr; i++)
        s[BLOCKED_ELSE] += (double)(rest->at[i][1] - rest->at[i][0]) / 1e9;
    return 0;
}

int view_find_causes(struct trace_view *view)
{
    struct causes c = {0};
    int rc = 0;

    c.own.at = malloc((view->nr_by_version + 1) * sizeof(*c.own.at));
    if (!c.own.at)
        return -ENOMEM;
    for (int g = 0; g < 2 && rc == 0; g++)
        for (int k = BLOCKED_DISK; k < BLOCKED_ELSE && rc == 0; k++)
            rc = make_cause(view, g, (enum blocked_cause)k, &c.cover[g][k]);
    for (size_t i = 0; i < view->nr_stretches && rc == 0; i++)
        rc = divide(view, &c, &view->stretches[i]);
    for (int g = 0; g < 2; g++)
        for (int k = BLOCKED_DISK; k < BLOCKED_ELSE; k++)
            free(c.cover[g][k].at);
    free(c.own.at);
    free(c.rest[0].at);
    free(c.rest[1].at);
    return rc;
}
