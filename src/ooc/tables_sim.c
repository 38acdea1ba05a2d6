/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Simulated runs: the plans of a run, with computed times.
 *
 * A device has a link, over which the tables of batches travel one after another, and `lanes`: a batch begins when
 * its tables are there and the batch before in its lane has ended. Lanes share the device's computing speed, and each
 * batch takes a minimal time. A batch is planned as soon as the tables of fewer than `depth` are on their way. Moves
 * inside of a device take no time here. The processor does one item at a time.
 *
 * The simulated time goes from event to event: the tables of a batch are there, a batch ends, or the processor's item
 * does.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "ckpt/face.h"
#include "ooc/tables_private.h"

struct under_way {
    struct vvi_step step;
    double ready_s, end_s, cost;
};

struct device {
    struct under_way *launch; /* a ring of `depth` */
    uint32_t first, nr;
    uint32_t ready; /* of these, the first ones: their tables are there */
    double link_free, compute_free;
    double *lane_free; /* per lane */
    uint32_t lane;     /* of the next batch */
    double ahead;      /* cost of all launches under way */
    struct vvi_pace pace;
    double busy_since;
};

struct sim {
    struct vvi_order order;
    struct varve_tables_opts opts;
    struct varve_tables_speeds speeds;
    struct vvi_split split;
    struct vvi_plan *plans;
    struct device *devices;
    uint32_t nr;
    double now, host_end; /* INFINITY: idle */
    double host_began, host_cost;
    struct vvi_pace host;
    uint64_t host_items;
    double queued_s, used; /* bytes times seconds */
};

static void sim_fini(struct sim *s)
{
    for (uint32_t d = 0; s->plans && d < s->nr; d++)
        vvi_plan_fini(&s->plans[d]);
    for (uint32_t d = 0; s->devices && d < s->nr; d++) {
        for (uint32_t i = 0; s->devices[d].launch && i < s->split.most; i++)
            vvi_step_fini(&s->devices[d].launch[i].step);
        free(s->devices[d].launch);
        free(s->devices[d].lane_free);
    }
    free(s->plans);
    free(s->devices);
    vvi_order_fini(&s->order);
}

static int sim_init(struct sim *s, const struct varve_tables_opts *opts, bool paper,
                    const struct varve_tables_work *work)
{
    const char *why = vvi_tables_take_opts(opts, paper, &s->opts);
    int rc = why ? -EINVAL : vvi_order_init(&s->order, &s->opts, work, &why);

    if (why)
        return vv_ckpt_fail_ctx(NULL, "tables_plan", -EINVAL, false, "%s", why);
    if (rc == 0)
        rc = vvi_plan_split(&s->opts, &s->order, &s->split);
    if (rc)
        return rc;
    s->nr = 1 + s->opts.nr_more;
    s->host_end = INFINITY;
    s->plans = calloc(s->nr, sizeof(*s->plans));
    s->devices = calloc(s->nr, sizeof(*s->devices));
    if (!s->plans || !s->devices)
        return -ENOMEM;
    for (uint32_t d = 0; rc == 0 && d < s->nr; d++) {
        rc = vvi_plan_init(&s->plans[d], &s->opts, s->split.capacity);
        if (rc)
            return rc;
        vvi_plan_begin(&s->plans[d], &s->order, &s->split.limits,
                       vvi_plan_part(&s->order, s->nr, d), vvi_plan_part(&s->order, s->nr, d + 1));
        s->devices[d].launch = calloc(s->split.most, sizeof(*s->devices[d].launch));
        s->devices[d].lane_free = calloc(s->split.lanes, sizeof(double));
        rc = s->devices[d].launch && s->devices[d].lane_free ? 0 : -ENOMEM;
    }
    return rc;
}

/* ---- events ---- */

static void begin_launch(struct sim *s, uint32_t d, struct under_way *u)
{
    struct device *dev = &s->devices[d];
    double begin;

    dev->link_free =
        VV_MAX(dev->link_free, s->now) +
        (s->speeds.link_bytes > 0 ? (double)u->step.fill_bytes / s->speeds.link_bytes : 0);
    u->cost = vvi_order_cost(&s->order, u->step.batch.from, u->step.batch.to);
    u->ready_s = dev->link_free;
    begin = VV_MAX(dev->link_free, dev->lane_free[dev->lane]);
    dev->compute_free = VV_MAX(dev->compute_free, begin) +
                        (s->speeds.device_cost > 0 ? u->cost / s->speeds.device_cost : 0);
    u->end_s = VV_MAX(dev->compute_free, begin + s->speeds.launch_s);
    dev->lane_free[dev->lane] = u->end_s;
    dev->lane = (dev->lane + 1) % s->split.lanes;
    if (dev->nr++ == 0)
        dev->busy_since = s->now;
    dev->ahead += u->cost;
}

static void end_launch(struct sim *s, uint32_t d)
{
    struct device *dev = &s->devices[d];
    struct under_way *u = &dev->launch[dev->first];

    vvi_plan_done(&s->plans[d], &u->step, false);
    dev->first = (dev->first + 1) % s->split.most;
    dev->nr--;
    dev->ready--;
    dev->ahead -= u->cost;
    dev->pace.cost += u->cost;
    dev->pace.ns += s->now - dev->busy_since; /* in seconds, as for the processor */
    dev->busy_since = s->now;
}

/* Time of the device's next event: the tables of a batch are there, or the oldest one ends. */
static double next_of(const struct sim *s, const struct device *dev)
{
    if (dev->ready < dev->nr)
        return VV_MIN(dev->launch[(dev->first + dev->ready) % s->split.most].ready_s,
                      dev->ready > 0 ? dev->launch[dev->first].end_s : INFINITY);
    return dev->nr > 0 ? dev->launch[dev->first].end_s : INFINITY;
}

static void happen(struct sim *s, uint32_t d)
{
    struct device *dev = &s->devices[d];

    if (dev->ready < dev->nr &&
        dev->launch[(dev->first + dev->ready) % s->split.most].ready_s <= s->now)
        dev->ready++;
    else
        end_launch(s, d);
}

/* Advances time to the next event; false: there is none. */
static bool next_event(struct sim *s)
{
    double at = s->host_end;
    uint32_t which = s->nr;
    bool queued = false;
    uint64_t used = 0;

    for (uint32_t d = 0; d < s->nr; d++) {
        double next = next_of(s, &s->devices[d]);

        if (next < at) {
            at = next;
            which = d;
        }
        queued = queued || s->plans[d].from < s->plans[d].to;
        used += s->plans[d].space.used_bytes;
    }
    if (isinf(at))
        return false;
    if (queued) {
        s->queued_s += at - s->now;
        s->used += (at - s->now) * (double)used;
    }
    s->now = at;
    if (which < s->nr) {
        happen(s, which);
    } else {
        s->host.cost += s->host_cost;
        s->host.ns += s->now - s->host_began;
        s->host_end = INFINITY;
    }
    return true;
}

/* Gives the device's first remaining item to the processor. */
static void give_to_host(struct sim *s, uint32_t d)
{
    struct vvi_plan *p = &s->plans[d];

    s->host_cost = vvi_order_cost(&s->order, p->from, p->from + 1);
    s->host_began = s->now;
    s->host_end = s->now + s->host_cost / s->speeds.host_cost;
    s->host_items++;
    vvi_plan_skip(p);
}

/* Begins as much as possible on the device now. */
static int feed(struct sim *s, uint32_t d)
{
    struct vvi_plan *p = &s->plans[d];
    struct device *dev = &s->devices[d];
    bool host_idle = s->speeds.host_cost > 0 && isinf(s->host_end);

    while (dev->nr < s->split.most) {
        struct under_way *u = &dev->launch[(dev->first + dev->nr) % s->split.most];
        bool enough = vvi_split_enough(&s->split, dev->nr, dev->nr - dev->ready);
        int rc = vvi_plan_next(p, enough, &u->step);

        if (rc == 0) {
            begin_launch(s, d, u);
            continue;
        }
        if (rc == -ENODATA && vvi_plan_share(s->plans, s->nr, d))
            continue;
        if (rc == -ENODATA)
            return 0;
        if (rc == -EFBIG && s->speeds.host_cost <= 0)
            return rc;
        if (rc != -EAGAIN && rc != -EFBIG)
            return rc;
        if (enough && !p->paper)
            return 0; /* enough is under way */
        if (host_idle &&
            (rc == -EFBIG || p->paper ||
             vvi_pace_host_first(&s->host, &dev->pace,
                                 vvi_order_cost(&s->order, p->from, p->from + 1), dev->ahead))) {
            give_to_host(s, d);
            host_idle = false;
            continue;
        }
        return 0;
    }
    return 0;
}

static int run(struct sim *s)
{
    int rc = 0;

    do
        for (uint32_t d = 0; rc == 0 && d < s->nr; d++)
            rc = feed(s, d);
    while (rc == 0 && next_event(s));
    return rc;
}

static void results(const struct sim *s, struct varve_tables_stats *st)
{
    st->runs = 1;
    st->host_items = s->host_items;
    st->items = s->host_items;
    for (uint32_t d = 0; d < s->nr; d++) {
        const struct vvi_plan *p = &s->plans[d];

        st->capacity_bytes += p->space.capacity;
        st->used_bytes += p->space.used_bytes;
        st->meta_bytes += s->split.meta_bytes;
        st->launches += p->stats.launches;
        st->items += p->stats.items;
        st->found += p->stats.found;
        st->missed += p->stats.missed;
        st->evicted += p->space.evicted;
        st->bytes += p->stats.bytes;
        st->moved += p->stats.moved;
        st->moved_bytes += p->stats.moved_bytes;
    }
    st->queued_ns = (uint64_t)(s->queued_s * 1e9);
    st->utilisation = s->queued_s > 0 ? s->used / s->queued_s / (double)st->capacity_bytes : 0;
}

static int does_not_fit(const struct sim *s)
{
    const struct vvi_largest *l = &s->split.largest;

    if (!s->plans) /* the error came before */
        return vv_ckpt_fail_ctx(NULL, "tables_plan", -EFBIG, false,
                                "item %u needs %llu bytes beside its tables, for which a cache of "
                                "%llu has no room",
                                l->meta_item, (unsigned long long)s->split.meta_bytes,
                                (unsigned long long)s->opts.cache_bytes);
    return vv_ckpt_fail_ctx(
        NULL, "tables_plan", -EFBIG, false,
        "the tables of item %u take %llu bytes together, and a cache of %llu has "
        "to hold them and what launches need beside them",
        l->item, (unsigned long long)l->bytes, (unsigned long long)s->opts.cache_bytes);
}

static int plan(const struct varve_tables_opts *opts, bool paper,
                const struct varve_tables_work *work, const struct varve_tables_speeds *speeds,
                struct varve_tables_stats *ret_stats)
{
    struct varve_tables_stats st = {0};
    struct sim s = {0};
    int rc;

    if (!ret_stats || ret_stats->stats_size < sizeof(size_t))
        return vvi_ooc_bad("tables_plan", VVI_OOC_STATS);
    if (!speeds || speeds->speeds_size < sizeof(size_t))
        return vvi_ooc_bad("tables_plan", "speeds is NULL, or its speeds_size is not set");
    memcpy(&s.speeds, speeds, VV_MIN(speeds->speeds_size, sizeof(s.speeds)));
    if (!(s.speeds.link_bytes >= 0) || !(s.speeds.device_cost >= 0) || !(s.speeds.host_cost >= 0) ||
        !(s.speeds.launch_s >= 0))
        return vvi_ooc_bad("tables_plan", "speeds are 0 or more");
    rc = sim_init(&s, opts, paper, work);
    if (rc == 0)
        rc = run(&s);
    if (rc == -EFBIG)
        rc = does_not_fit(&s);
    if (rc == 0) {
        results(&s, &st);
        st.stats_size = VV_MIN(ret_stats->stats_size, sizeof(st));
        memcpy(ret_stats, &st, st.stats_size);
    }
    sim_fini(&s);
    return rc;
}

int varve_tables_plan(const struct varve_tables_opts *opts, const struct varve_tables_work *work,
                      const struct varve_tables_speeds *speeds,
                      struct varve_tables_stats *ret_stats)
{
    return plan(opts, false, work, speeds, ret_stats);
}

int vv_tables_plan(const struct varve_tables_opts *opts, const struct varve_tables_work *work,
                   const struct varve_tables_speeds *speeds, struct varve_tables_stats *ret_stats)
{
    return plan(opts, true, work, speeds, ret_stats);
}

/* ---- farthest next use on chunks ---- */

/* The chunks of a table are interchangeable, so only their number is kept: the rest of a table after some have been
 * evicted is its beginning. */
struct least {
    const struct vvi_order *o;
    uint32_t *have, *next;  /* per table: chunks; the next item that uses it */
    uint32_t *heap, *where; /* tables that have chunks, the one needed last on top */
    uint32_t nr;
    uint64_t free;
    uint64_t bytes;
};

static void heap_put(struct least *l, uint32_t at, uint32_t table)
{
    l->heap[at] = table;
    l->where[table] = at;
}

/* True if a is evicted before b. Ties are broken by number, so that the order is total. */
static bool later(const struct least *l, uint32_t a, uint32_t b)
{
    return l->next[a] > l->next[b] || (l->next[a] == l->next[b] && a > b);
}

static void heap_sift(struct least *l, uint32_t at)
{
    uint32_t table = l->heap[at];

    while (at > 0 && later(l, table, l->heap[(at - 1) / 2])) {
        heap_put(l, at, l->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (;;) {
        uint32_t child = 2 * at + 1;

        if (child + 1 < l->nr && later(l, l->heap[child + 1], l->heap[child]))
            child++;
        if (child >= l->nr || !later(l, l->heap[child], table))
            break;
        heap_put(l, at, l->heap[child]);
        at = child;
    }
    heap_put(l, at, table);
}

static void heap_remove(struct least *l, uint32_t table)
{
    uint32_t at = l->where[table], last = l->heap[--l->nr];

    l->where[table] = VVI_NONE;
    if (last != table) {
        heap_put(l, at, last);
        heap_sift(l, at);
    }
}

static uint64_t chunks_of(const struct least *l, uint32_t table)
{
    return vv_div_up(l->o->bytes[table], VVI_CHUNK_BYTES);
}

/* Processes one item. Its tables are not in the heap meanwhile. */
static int least_item(struct least *l, uint32_t item)
{
    const struct varve_tables_work *w = &l->o->work;
    uint64_t need = 0;

    for (uint64_t u = w->first[item]; u < w->first[item + 1]; u++) {
        uint32_t t = w->uses[u];

        if (l->next[t] > item && l->have[t] == chunks_of(l, t) && l->where[t] == VVI_NONE)
            continue; /* it was earlier in the list */
        if (l->where[t] != VVI_NONE)
            heap_remove(l, t);
        need += chunks_of(l, t) - l->have[t];
        if (l->have[t] < chunks_of(l, t))
            l->bytes += l->o->bytes[t] - l->have[t] * VVI_CHUNK_BYTES;
        l->have[t] = (uint32_t)chunks_of(l, t);
        l->next[t] = vvi_order_next(l->o, u);
    }
    while (l->free < need) {
        uint32_t t = l->nr ? l->heap[0] : VVI_NONE, n;

        if (t == VVI_NONE)
            return -EFBIG;
        n = (uint32_t)VV_MIN(need - l->free, l->have[t]);
        l->have[t] -= n;
        l->free += n;
        if (l->have[t] == 0)
            heap_remove(l, t);
    }
    l->free -= need;
    for (uint64_t u = w->first[item]; u < w->first[item + 1]; u++) {
        uint32_t t = w->uses[u];

        if (l->where[t] == VVI_NONE) {
            heap_put(l, l->nr++, t);
            heap_sift(l, l->nr - 1);
        }
    }
    return 0;
}

int varve_tables_least(const struct varve_tables_opts *opts, const struct varve_tables_work *work,
                       uint64_t *ret_bytes)
{
    struct varve_tables_opts o;
    struct vvi_order order = {0};
    struct least l = {.o = &order};
    uint32_t at = 0;
    const char *why = ret_bytes ? vvi_tables_take_opts(opts, false, &o) : "ret_bytes is NULL";
    int rc = why ? -EINVAL : vvi_order_init(&order, &o, work, &why);

    if (why)
        return vv_ckpt_fail_ctx(NULL, "tables_least", -EINVAL, false, "%s", why);
    if (rc)
        return rc;
    rc = vvi_order_find_nexts(&order);
    l.have = calloc(o.tables, sizeof(*l.have));
    l.next = calloc(o.tables, sizeof(*l.next));
    l.heap = calloc(o.tables, sizeof(*l.heap));
    l.where = malloc(o.tables * sizeof(*l.where));
    l.free = o.cache_bytes / VVI_CHUNK_BYTES;
    if (!l.have || !l.next || !l.heap || !l.where)
        rc = -ENOMEM;
    else
        memset(l.where, 0xff, o.tables * sizeof(*l.where));
    for (uint32_t i = 0; rc == 0 && i < order.work.items; i++)
        rc = least_item(&l, at = i);
    if (rc == -EFBIG)
        rc =
            vv_ckpt_fail_ctx(NULL, "tables_least", rc, false,
                             "the tables of item %u do not fit a cache of %llu in chunks of 64 KiB",
                             at, (unsigned long long)o.cache_bytes);
    if (rc == 0)
        *ret_bytes = l.bytes;
    free(l.have);
    free(l.next);
    free(l.heap);
    free(l.where);
    vvi_order_fini(&order);
    return rc;
}
