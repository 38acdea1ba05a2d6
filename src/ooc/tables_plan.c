/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans: the items that a device launches together, and the moves that this needs.
 *
 * A device has a part of the order of work and goes through it item by item. A batch has places for all its tables
 * before it is launched, and holds them (`refs`) until the launch has ended. Nothing else holds a table: it stays
 * until its place is needed, and its next use decides if it is evicted. With the paper's policy it is evicted when it
 * has no `refs`.
 *
 * Next uses. All items before `from` are in batches or belong to another device, so the next use of a table is the
 * first from there on: the one that follows the last in the batch that takes the table, or in the item that is skipped.
 * When `from` jumps, all items from there on are searched.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "ooc/tables_private.h"

/* Data beside tables, of launches whose tables are on their way, takes at most this part of a cache, unless a single
 * item needs more. */
#define META_SHARE    16
#define SCRATCH_BYTES (UINT64_C(4) << 20)

int vvi_plan_init(struct vvi_plan *p, const struct varve_tables_opts *opts, uint64_t capacity)
{
    int rc;

    *p = (struct vvi_plan){.paper = opts->policy == VV_TABLES_PAPER};
    rc = vvi_space_init(&p->space, opts->bytes, opts->tables, opts->layout == VARVE_TABLES_CHUNKED,
                        capacity);
    return rc ? rc
              : vvi_marks_init(&p->marks, opts->bytes, opts->tables,
                               opts->layout == VARVE_TABLES_CHUNKED);
}

void vvi_plan_fini(struct vvi_plan *p)
{
    vvi_space_fini(&p->space);
    vvi_marks_fini(&p->marks);
}

/* Finds the next uses of all tables in the cache after a jump of `from`. */
static void look_through(struct vvi_plan *p)
{
    const struct varve_tables_work *w = &p->o->work;
    struct vvi_space *s = &p->space;

    for (uint32_t i = 0; i < s->nr; i++)
        vvi_space_next(s, s->list[i], VVI_NONE);
    for (uint32_t i = p->to; s->nr > 0 && i-- > p->from;)
        for (uint64_t u = w->first[i]; u < w->first[i + 1]; u++)
            vvi_space_next(s, w->uses[u], i);
}

void vvi_plan_begin(struct vvi_plan *p, struct vvi_order *o, const struct vvi_limits *limits,
                    uint32_t from, uint32_t to)
{
    p->o = o;
    p->limits = *limits;
    p->from = from;
    p->to = to;
    p->cut = 0;
    look_through(p);
}

/* Takes items up to `from`. Next uses have been found. */
static void take_items(struct vvi_plan *p, uint32_t from)
{
    const struct varve_tables_work *w = &p->o->work;

    /* The last use counts. */
    for (uint64_t u = w->first[p->from]; u < w->first[from]; u++)
        vvi_space_next(&p->space, w->uses[u], vvi_order_next(p->o, u));
    p->from = from;
}

void vvi_plan_skip(struct vvi_plan *p)
{
    if (vvi_order_find_nexts(p->o) == 0) {
        take_items(p, p->from + 1);
    } else { /* without memory: search all items */
        p->from++;
        look_through(p);
    }
}

/* ---- batches ---- */

static int step_room(struct vvi_step *step, uint32_t fills, uint32_t moves)
{
    if (fills >= step->fills_room) {
        uint32_t *f = realloc(step->fills, 2 * ((size_t)fills + 1) * sizeof(*f));

        if (!f)
            return -ENOMEM;
        step->fills = f;
        step->fills_room = 2 * (fills + 1);
    }
    if (moves > step->moves_room) {
        struct vvi_move *m = realloc(step->moves, 2 * (size_t)moves * sizeof(*m));

        if (!m)
            return -ENOMEM;
        step->moves = m;
        step->moves_room = 2 * moves;
    }
    return 0;
}

/* Lists tables of the batch from index `first` on that are not in the cache. Returns how many. */
static uint32_t not_there(const struct vvi_plan *p, const struct vvi_batch *b, uint32_t first,
                          uint32_t *ret_tables)
{
    const struct vvi_held *held = p->space.held;
    uint32_t n = 0;

    for (uint32_t i = first; i < b->nr; i++) {
        ret_tables[n] = b->tables[i];
        n += held[b->tables[i]].index == VVI_NONE;
    }
    return n;
}

/* Marks the tables of the batch: they must not be evicted. */
static void keep(struct vvi_plan *p, const struct vvi_batch *b)
{
    struct vvi_held *held = p->space.held;

    for (uint32_t i = 0; i < b->nr; i++) {
        held[b->tables[i]].keep = true;
        if (vvi_bit(p->space.pooled, b->tables[i]))
            vvi_space_unpool(&p->space, b->tables[i]);
    }
}

static void keep_no_more(struct vvi_plan *p, const struct vvi_batch *b)
{
    for (uint32_t i = 0; i < b->nr; i++)
        p->space.held[b->tables[i]].keep = false;
}

/* The batch has its places and will be launched: holds its tables, and sets their next uses behind it. */
static void take_batch(struct vvi_plan *p, const struct vvi_batch *b)
{
    struct vvi_space *s = &p->space;

    if (!b->nexts)
        take_items(p, b->to);
    p->from = b->to;
    for (uint32_t i = 0; i < b->nr; i++) {
        uint32_t t = b->tables[i];

        if (b->nexts)
            vvi_space_next(s, t, b->nexts[i]);
        s->held[t].keep = false;
        vvi_space_hold(s, t);
        if (vvi_bit(s->pooled, t))
            vvi_space_unpool(s, t);
    }
}

/* Forms a batch from the first remaining item, as far as the limits allow. */
static int cut(struct vvi_plan *p, const struct vvi_limits *limits, struct vvi_batch *b)
{
    int rc = vvi_order_find_nexts(p->o);

    if (rc)
        return rc;
    vvi_batch_begin(b, &p->marks, p->o->tables, p->from);
    do
        rc = vvi_batch_add(b, p->o, &p->marks, limits);
    while (rc == 0 && b->to < p->to);
    return rc == -ENOSPC ? 0 : rc;
}

/* Forms a batch as far as the limits allow, and gives places to all of it. Unless items were skipped, the dry run has
 * formed this batch already. If there is no room for all of it, tries half of it. `more`: only if no table has to be
 * evicted for it. */
static int form(struct vvi_plan *p, bool more, struct vvi_step *step)
{
    struct vvi_limits limits = p->limits;
    struct vvi_batch *b = &step->batch;
    int rc;

    for (;;) {
        rc = limits.items == p->limits.items ? vvi_batch_take(b, p->o, p->from, p->to, &p->cut)
                                             : -ENOENT;
        if (rc == -ENOENT)
            rc = cut(p, &limits, b);
        if (rc)
            return rc;
        if (b->bytes > p->space.capacity) {
            if (b->to - b->from == 1)
                return -EFBIG;
        } else {
            rc = step_room(step, b->nr, 0);
            if (rc)
                return rc;
            step->nr_fills = not_there(p, b, 0, step->fills);
            if (more)
                return vvi_space_fit(&p->space, step->fills, step->nr_fills);
            keep(p, b);
            rc = vvi_space_place(&p->space, step->fills, step->nr_fills, p->to);
            if (rc)
                keep_no_more(p, b);
            if (rc != -EAGAIN || b->to - b->from == 1)
                return rc;
        }
        limits.items = (b->to - b->from) / 2;
    }
}

/* The paper's policy: item after item, as long as there is room for it in one piece. */
static int form_paper(struct vvi_plan *p, struct vvi_step *step)
{
    struct vvi_batch *b = &step->batch;
    int rc = vvi_order_find_nexts(p->o);

    if (rc)
        return rc;
    vvi_batch_begin(b, &p->marks, p->o->tables, p->from);
    step->nr_fills = 0;
    while (b->to < p->to) {
        struct vvi_batch before = *b;
        uint32_t n;

        rc = vvi_batch_add(b, p->o, &p->marks, &p->limits);
        if (rc)
            break;
        rc = b->to - b->from == 1 && b->bytes > p->space.capacity ? -EFBIG : 0;
        if (rc == 0)
            rc = step_room(step, b->nr, 0);
        if (rc)
            return rc; /* the first item alone does not fit */
        n = not_there(p, b, before.nr, step->fills + step->nr_fills);
        rc = vvi_space_fit(&p->space, step->fills + step->nr_fills, n);
        if (rc) {
            before.tables = b->tables;
            before.room = b->room;
            for (uint32_t i = before.nr; i < b->nr; i++)
                p->marks.of[b->tables[i]].stamp = p->marks.now - 1;
            *b = before;
            break;
        }
        step->nr_fills += n;
    }
    return b->to > b->from ? 0 : rc;
}

int vvi_plan_next(struct vvi_plan *p, bool more, struct vvi_step *step)
{
    int rc;

    if (p->from >= p->to)
        return -ENODATA;
    /* Do not try with a cache that is nearly full; free space among flat tables is in pieces. */
    if (more && !p->paper &&
        p->space.capacity - p->space.used_room < p->space.capacity / (p->space.chunked ? 256 : 64))
        return -EAGAIN;
    rc = p->paper ? form_paper(p, step) : form(p, more, step);
    if (rc == 0) {
        rc = step_room(step, step->nr_fills, p->space.nr_moves);
        if (rc)
            keep_no_more(p, &step->batch);
    }
    if (rc)
        return rc;
    vvi_batch_locate(&step->batch, p->o, &p->marks);
    take_batch(p, &step->batch);
    step->nr_moves = p->space.nr_moves;
    if (step->nr_moves > 0)
        memcpy(step->moves, p->space.moves, step->nr_moves * sizeof(*step->moves));
    step->fill_bytes = 0;
    for (uint32_t i = 0; i < step->nr_fills; i++)
        step->fill_bytes += p->space.bytes[step->fills[i]];
    p->stats.launches++;
    p->stats.items += step->batch.to - step->batch.from;
    p->stats.missed += step->nr_fills;
    p->stats.found += step->batch.nr - step->nr_fills;
    p->stats.bytes += step->fill_bytes;
    p->stats.moved += step->nr_moves;
    for (uint32_t i = 0; i < step->nr_moves; i++)
        p->stats.moved_bytes += p->space.bytes[step->moves[i].table];
    return 0;
}

void vvi_plan_done(struct vvi_plan *p, struct vvi_step *step, bool lost)
{
    for (uint32_t i = 0; i < step->batch.nr; i++) {
        uint32_t t = step->batch.tables[i];

        vv_assert(p->space.held[t].refs > 0);
        if (!vvi_space_release(&p->space, t) && p->paper)
            vvi_space_drop(&p->space, t);
    }
    for (uint32_t i = 0; lost && i < step->nr_fills; i++) {
        uint32_t t = step->fills[i];

        if (p->space.held[t].index != VVI_NONE && p->space.held[t].refs == 0)
            vvi_space_drop(&p->space, t);
    }
    step->batch.nr = 0;
}

void vvi_step_fini(struct vvi_step *step)
{
    vvi_batch_fini(&step->batch);
    free(step->fills);
    free(step->moves);
    *step = (struct vvi_step){0};
}

/* ---- several devices ---- */

uint32_t vvi_plan_part(const struct vvi_order *o, uint32_t nr, uint32_t which)
{
    double all = vvi_order_cost(o, 0, (uint32_t)o->work.items), sum = 0;
    uint32_t items = (uint32_t)o->work.items;

    if (which == 0 || which == nr)
        return which == 0 ? 0 : items;
    if (!o->work.cost || all <= 0)
        return (uint32_t)((uint64_t)items * which / nr);
    for (uint32_t i = 0; i < items; i++) {
        if (sum >= all * which / nr)
            return i;
        sum += o->work.cost[i];
    }
    return items;
}

bool vvi_plan_share(struct vvi_plan *plans, uint32_t nr, uint32_t mine)
{
    struct vvi_plan *from = NULL, *p = &plans[mine];

    for (uint32_t i = 0; i < nr; i++)
        if (i != mine && plans[i].from + 1 < plans[i].to &&
            (!from || plans[i].to - plans[i].from > from->to - from->from))
            from = &plans[i];
    if (!from)
        return false;
    p->to = from->to;
    p->from = from->to = from->from + (from->to - from->from + 1) / 2;
    look_through(p);
    return true;
}

/* ---- the parts of a cache ---- */

int vvi_plan_split(const struct varve_tables_opts *opts, struct vvi_order *o,
                   struct vvi_split *ret_split)
{
    /* A small cache is for tables first. */
    struct vvi_split s = {
        .limits = {opts->batch_items, opts->batch_bytes, opts->cache_bytes / META_SHARE}};
    uint64_t cache = vv_align_down(opts->cache_bytes, VVI_FLAT_ALIGN), most = 0;
    int rc;

    /* Flat tables that launches hold are obstacles to others. */
    if (s.limits.bytes == 0)
        s.limits.bytes = opts->cache_bytes / (opts->layout == VARVE_TABLES_CHUNKED ? 32 : 64);
    rc = vvi_order_meta(o, &s.limits, opts->cache_bytes, &most, &s.largest);
    if (rc)
        return rc;
    s.limits.meta_bytes = most;
    s.lanes = opts->lanes;
    s.depth = opts->depth;
    while (s.depth > 1 && s.depth * most > opts->cache_bytes / META_SHARE)
        s.depth--;
    s.most = VVI_LAUNCHES;
    while (s.most > s.depth && s.most * most > opts->cache_bytes / 256)
        s.most--;
    s.meta_bytes = s.most * most;
    if (opts->layout == VARVE_TABLES_FLAT)
        s.scratch_bytes = vv_align_down(VV_MIN(cache / 256, SCRATCH_BYTES), VVI_FLAT_ALIGN);
    rc = s.meta_bytes + s.scratch_bytes < cache ? 0 : -EFBIG;
    if (rc == 0)
        s.capacity = cache - s.scratch_bytes - s.meta_bytes;
    *ret_split = s;
    return rc;
}

/* ---- sharing work ---- */

bool vvi_pace_host_first(const struct vvi_pace *host, const struct vvi_pace *device, double cost,
                         double ahead)
{
    if (host->cost <= 0)
        return true;
    if (device->cost <= 0)
        return false;
    return cost * host->ns / host->cost < (ahead + cost) * device->ns / device->cost;
}
