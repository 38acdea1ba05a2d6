/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An order of work, and its division into batches.
 *
 * For each use of a table the next item that uses it is known. A batch is a run of items. Its end depends on the items
 * alone, not on the content of the cache, so a dry run before the first launch finds what every batch needs beside its
 * tables. The batches of the dry run are kept; the run uses them, unless items are skipped or find no room.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "ooc/tables_private.h"

#define META_ALIGN 16

/* ---- options ---- */

const char *vvi_tables_take_opts(const struct varve_tables_opts *opts, bool paper,
                                 struct varve_tables_opts *ret)
{
    struct varve_tables_opts o, defaults;

    if (varve_tables_opts_init(&defaults, sizeof(defaults)) ||
        vvi_ooc_opts_take(&defaults, sizeof(defaults), opts, &o))
        return VVI_OOC_OPTS;
    if (o.tables == 0 || o.tables > UINT32_C(1) << 24 || !o.bytes)
        return "there are 1 to 2^24 tables, and bytes says how long each is";
    for (uint32_t t = 0; t < o.tables; t++)
        if (o.bytes[t] == 0 || o.bytes[t] > UINT64_C(1) << 44)
            return "a table has 1 to 2^44 bytes";
    if (o.layout != VARVE_TABLES_FLAT && o.layout != VARVE_TABLES_CHUNKED)
        return "layout is flat or chunked";
    if (o.policy != VARVE_TABLES_NEXT_USE && !(paper && o.policy == VV_TABLES_PAPER))
        return "policy is VARVE_TABLES_NEXT_USE";
    if (o.item_bytes > UINT32_C(1) << 20)
        return "item_bytes is 1 MiB at most";
    if (o.batch_items == 0 || o.batch_items > UINT32_C(1) << 20)
        return "batch_items is 1 to 2^20";
    if (o.depth < 1 || o.depth > 64)
        return "depth is 1 to 64";
    if (o.lanes < 1 || o.lanes > 64)
        return "lanes are 1 to 64";
    if (o.readers < 1 || o.readers > 64)
        return "readers are 1 to 64";
    if (o.cache_bytes > UINT64_C(1) << 46)
        return "a cache has 2^46 bytes at most";
    if (o.nr_more > 63)
        return "there are 64 devices at most";
    *ret = o;
    return NULL;
}

/* ---- the order of work ---- */

/* The next two items that use a table. */
struct soon {
    uint32_t item, then;
};

/* Goes backwards, so that for each table the next item that uses it is known; and, since an item may name a table
 * twice, the one after that. */
static void find_nexts(struct vvi_order *o, struct soon *soon)
{
    const struct varve_tables_work *w = &o->work;

    memset(soon, 0xff, o->tables * sizeof(*soon));
    for (uint32_t i = (uint32_t)w->items; i-- > 0;)
        for (uint64_t u = w->first[i + 1]; u-- > w->first[i];) {
            struct soon *t = &soon[w->uses[u]];

            if (t->item != i)
                *t = (struct soon){i, t->item};
            o->nexts[u - w->first[0]] = t->then;
        }
}

/* Formats the text into `o`. */
__attribute__((format(printf, 2, 3))) static const char *because(struct vvi_order *o,
                                                                 const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(o->why, sizeof(o->why), fmt, ap);
    va_end(ap);
    return o->why;
}

/* Uses that are checked together. */
enum { CHECKED = 64 };

static bool any_beyond(const uint32_t *uses, uint32_t tables)
{
    uint32_t bad = 0; /* in the highest bit */

    for (uint32_t i = 0; i < CHECKED; i++)
        bad |= uses[i] | (tables - 1 - uses[i]);
    return bad >> 31;
}

static const char *why_not_uses(struct vvi_order *o)
{
    const struct varve_tables_work *w = &o->work;
    uint64_t u = w->items > 0 ? w->first[0] : 0, end = w->items > 0 ? w->first[w->items] : 0, i = 0;

    if (!w->uses && end > u)
        return "uses names the tables of each item";
    /* All at once first, since errors are rare. There are no more than 2^24 tables. */
    for (; u + CHECKED <= end; u += CHECKED)
        if (any_beyond(w->uses + u, o->tables))
            break;
    while (u < end && w->uses[u] < o->tables)
        u++;
    if (u == end)
        return NULL;
    while (w->first[i + 1] <= u)
        i++;
    return because(o, "item %llu uses table %u, and there are %u, from 0 on", (unsigned long long)i,
                   w->uses[u], o->tables);
}

static const char *why_not(struct vvi_order *o)
{
    const struct varve_tables_work *w = &o->work;

    if (w->items > UINT32_MAX - 1)
        return "there are 2^32 - 2 items at most";
    if (w->items > 0 && !w->first)
        return "first tells where the tables of each item begin";
    if (o->item_bytes > 0 && w->items > 0 && !w->meta)
        return "items of item_bytes need meta";
    for (uint64_t i = 0; i < w->items; i++) {
        if (w->first[i] > w->first[i + 1] || w->first[i + 1] - w->first[i] > UINT32_C(1) << 24)
            return because(o, "first goes up, by 2^24 at most for each item: not at item %llu",
                           (unsigned long long)i);
        if (w->cost && !(w->cost[i] >= 0 && w->cost[i] < 1e30))
            return because(o, "a cost is 0 or more: not that of item %llu", (unsigned long long)i);
    }
    return why_not_uses(o);
}

static uint64_t uses_of(const struct vvi_order *o)
{
    return o->work.items > 0 ? o->work.first[o->work.items] - o->work.first[0] : 0;
}

int vvi_order_find_nexts(struct vvi_order *o)
{
    struct soon *soon;

    if (o->nexts)
        return 0;
    soon = malloc(o->tables * sizeof(*soon));
    o->nexts = malloc((uses_of(o) + 1) * sizeof(*o->nexts));
    if (!soon || !o->nexts) {
        free(soon);
        free(o->nexts);
        o->nexts = NULL;
        return -ENOMEM;
    }
    find_nexts(o, soon);
    free(soon);
    return 0;
}

int vvi_order_init(struct vvi_order *o, const struct varve_tables_opts *opts,
                   const struct varve_tables_work *work, const char **ret_why)
{

    *o = (struct vvi_order){.tables = opts->tables,
                            .bytes = opts->bytes,
                            .chunked = opts->layout == VARVE_TABLES_CHUNKED,
                            .item_bytes = opts->item_bytes};
    *ret_why = "work is NULL, or its work_size is not set to its sizeof";
    if (!work || work->work_size < sizeof(size_t) || work->work_size > 4096)
        return -EINVAL;
    memcpy(&o->work, work, VV_MIN(work->work_size, sizeof(o->work)));
    *ret_why = why_not(o);
    if (*ret_why)
        return -EINVAL;
    o->locals = malloc((uses_of(o) + 1) * sizeof(*o->locals));
    return o->locals ? 0 : -ENOMEM;
}

void vvi_order_fini(struct vvi_order *o)
{
    free(o->nexts);
    free(o->locals);
    free(o->cuts);
    free(o->cut_tables);
    free(o->cut_nexts);
    o->nexts = o->locals = o->cut_tables = o->cut_nexts = NULL;
    o->cuts = NULL;
}

double vvi_order_cost(const struct vvi_order *o, uint32_t from, uint32_t to)
{
    double cost = 0;

    if (!o->work.cost)
        return to - from;
    for (uint32_t i = from; i < to; i++)
        cost += o->work.cost[i];
    return cost;
}

/* ---- batches ---- */

int vvi_marks_init(struct vvi_marks *m, const uint64_t *bytes, uint32_t tables, bool chunked)
{
    m->of = calloc(tables, sizeof(*m->of));
    m->now = 0;
    for (uint32_t t = 0; m->of && t < tables; t++)
        m->of[t].room = vvi_tables_room(bytes[t], chunked);
    return m->of ? 0 : -ENOMEM;
}

void vvi_marks_fini(struct vvi_marks *m)
{
    free(m->of);
    *m = (struct vvi_marks){0};
}

void vvi_batch_begin(struct vvi_batch *b, struct vvi_marks *m, uint32_t tables, uint32_t from)
{
    if (++m->now == 0) {
        for (uint32_t t = 0; t < tables; t++)
            m->of[t].stamp = 0;
        m->now = 1;
    }
    b->from = b->to = from;
    b->located = false;
    b->nexts = NULL;
    b->nr = 0;
    b->uses = b->chunks = b->bytes = 0;
    b->meta = (struct vvi_meta){0};
}

void vvi_batch_fini(struct vvi_batch *b)
{
    free(b->tables);
    *b = (struct vvi_batch){0};
}

/* Inlined so that compilers can drop the rest where only the size is used. */
__attribute__((always_inline)) static inline struct vvi_meta
lay_out(uint64_t items, uint64_t uses, uint64_t refs, uint64_t chunks, uint64_t item_bytes)
{
    struct vvi_meta m = {.outside = 0, .item = META_ALIGN};

    m.first = vv_align_up(m.item + items * sizeof(uint32_t), META_ALIGN);
    m.uses = vv_align_up(m.first + (items + 1) * sizeof(uint32_t), META_ALIGN);
    m.refs = vv_align_up(m.uses + uses * sizeof(uint32_t), META_ALIGN);
    m.chunks = vv_align_up(m.refs + refs * sizeof(struct varve_tables_ref), META_ALIGN);
    m.meta = vv_align_up(m.chunks + chunks * sizeof(uint32_t), META_ALIGN);
    m.bytes = vv_align_up(m.meta + items * item_bytes, VVI_FLAT_ALIGN);
    return m;
}

static int make_room(struct vvi_batch *b, uint64_t more)
{
    uint32_t room = VV_MAX(b->room, 64);
    uint32_t *list;

    while (room < b->nr + more)
        room *= 2;
    if (room == b->room)
        return 0;
    list = realloc(b->tables, room * sizeof(*list));
    if (!list)
        return -ENOMEM;
    b->tables = list;
    b->room = room;
    return 0;
}

/* The dry run: needs of batches, and the largest item. Batches whose tables do not fit a cache are left out. */
struct dry_run {
    uint64_t cache_bytes, most;
    struct vvi_largest largest;
    /* For the current batch: the first item that uses each of its tables. Room as in its list. */
    uint32_t *firsts, firsts_room;
    /* Per table: its last place in cut_tables, plus 1. */
    uint64_t *last;
    /* The largest item: its uses, the room of its tables if all were different, and its number. */
    uint64_t most_uses, most_room;
    uint32_t most_item;
};

static int dry_room(struct dry_run *d, const struct vvi_batch *b)
{
    uint32_t *firsts;

    if (d->firsts_room >= b->room)
        return 0;
    firsts = realloc(d->firsts, b->room * sizeof(*firsts));
    if (!firsts)
        return -ENOMEM;
    d->firsts = firsts;
    d->firsts_room = b->room;
    return 0;
}

/* Adds the tables of an item. `d` is NULL in a run. */
__attribute__((always_inline)) static inline uint32_t
add_uses(struct vvi_batch *b, struct vvi_marks *m, const uint32_t *named, uint64_t uses,
         uint32_t *locals, struct dry_run *d, uint64_t *bytes)
{
    uint32_t nr = b->nr, now = m->now, item = b->to, *tables = b->tables;
    uint32_t *firsts = d ? d->firsts : NULL;
    struct vvi_mark *of = m->of;
    uint64_t sum = *bytes, all = 0;

    /* Without branches: they would be mispredicted. */
    for (uint64_t u = 0; u < uses; u++) {
        uint32_t t = named[u], local;
        uint64_t room = of[t].room;
        bool fresh = of[t].stamp != now;

        tables[nr] = t;
        local = fresh ? nr : of[t].local;
        of[t].stamp = now;
        of[t].local = local;
        sum += fresh ? room : 0;
        if (d) {
            firsts[nr] = item;
            locals[u] = local;
            all += room;
        }
        nr += fresh;
    }
    if (d && all > d->most_room) {
        d->most_room = all;
        d->most_item = item;
    }
    *bytes = sum;
    return nr;
}

__attribute__((always_inline)) static inline int add(struct vvi_batch *b, const struct vvi_order *o,
                                                     struct vvi_marks *m,
                                                     const struct vvi_limits *limits,
                                                     struct dry_run *d)
{
    const struct varve_tables_work *w = &o->work;
    uint64_t at = w->first[b->to], uses = w->first[b->to + 1] - at, bytes = b->bytes, chunks;
    struct vvi_meta meta;
    uint32_t nr;
    int rc = make_room(b, uses);

    if (rc == 0 && d)
        rc = dry_room(d, b);
    if (rc)
        return rc;
    nr = add_uses(b, m, w->uses + at, uses, d ? vvi_order_locals(o, at) : NULL, d, &bytes);
    if (d)
        d->most_uses = VV_MAX(d->most_uses, uses);
    chunks = o->chunked ? bytes / VVI_CHUNK_BYTES : 0;
    meta = lay_out(b->to + 1 - b->from, b->uses + uses, nr, chunks, o->item_bytes);
    if (b->to > b->from && (b->to - b->from >= limits->items || bytes > limits->bytes ||
                            meta.bytes > limits->meta_bytes)) {
        while (nr > b->nr)
            m->of[b->tables[--nr]].stamp = m->now - 1;
        return -ENOSPC;
    }
    b->to++;
    b->nr = nr;
    b->uses += uses;
    b->bytes = bytes;
    b->chunks = chunks;
    if (!d) /* the dry run lays out whole batches */
        b->meta = meta;
    return 0;
}

int vvi_batch_add(struct vvi_batch *b, const struct vvi_order *o, struct vvi_marks *m,
                  const struct vvi_limits *limits)
{
    return add(b, o, m, limits, NULL);
}

/* True if the item alone may need more than `most`, or its tables more than `largest`: counted as if all were
 * different. */
static bool may_be_more(const struct vvi_order *o, uint32_t item, uint64_t most, uint64_t largest)
{
    const struct varve_tables_work *w = &o->work;
    uint64_t uses = w->first[item + 1] - w->first[item], bytes = 0;

    for (uint64_t u = w->first[item]; u < w->first[item + 1]; u++)
        bytes += vvi_order_room(o, w->uses[u]);
    return bytes > largest ||
           lay_out(1, uses, uses, o->chunked ? bytes / VVI_CHUNK_BYTES : 0, o->item_bytes).bytes >
               most;
}

void vvi_batch_locate(struct vvi_batch *b, const struct vvi_order *o, const struct vvi_marks *m)
{
    const struct varve_tables_work *w = &o->work;
    uint32_t *to = vvi_order_locals(o, w->first[b->from]);

    for (uint64_t u = w->first[b->from]; !b->located && u < w->first[b->to]; u++)
        *to++ = m->of[w->uses[u]].local;
    b->located = true;
}

/* Keeps the batch as the next one, and sets the next uses of tables that earlier batches have in common with it. */
static int keep_cut(struct vvi_order *o, const struct vvi_batch *b, const struct dry_run *d,
                    uint32_t *room)
{
    struct vvi_cut *cut;
    uint32_t *tables, *nexts = o->cut_nexts;
    uint64_t first;

    if (o->nr_cuts + 2 > *room) {
        struct vvi_cut *cuts = realloc(o->cuts, 2 * ((size_t)*room + 64) * sizeof(*cuts));

        if (!cuts)
            return -ENOMEM;
        o->cuts = cuts;
        *room = 2 * (*room + 64);
        if (o->nr_cuts == 0)
            cuts[0].first = 0;
    }
    cut = &o->cuts[o->nr_cuts];
    first = cut->first;
    tables = o->cut_tables + first;
    for (uint32_t i = 0; i < b->nr; i++) {
        uint32_t t = b->tables[i];

        tables[i] = t;
        nexts[d->last[t]] = d->firsts[i]; /* without a last place: entry 0, which is never read */
        nexts[first + i + 1] = VVI_NONE;
        d->last[t] = first + i + 1;
    }
    cut->from = b->from;
    cut->bytes = b->bytes;
    cut[1] = (struct vvi_cut){.first = cut->first + b->nr, .from = b->to};
    o->nr_cuts++;
    return 0;
}

int vvi_batch_take(struct vvi_batch *b, const struct vvi_order *o, uint32_t from, uint32_t to,
                   uint32_t *cut)
{
    const struct varve_tables_work *w = &o->work;
    const struct vvi_cut *c;
    uint32_t low = 0, high = o->nr_cuts;
    int rc;

    if (*cut < o->nr_cuts && o->cuts[*cut].from == from)
        low = high = *cut;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (o->cuts[middle].from < from)
            low = middle + 1;
        else
            high = middle;
    }
    *cut = low;
    if (low == o->nr_cuts)
        return -ENOENT;
    c = &o->cuts[low];
    if (c->from != from || c[1].from > to)
        return -ENOENT;
    b->nr = 0;
    rc = make_room(b, c[1].first - c->first);
    if (rc)
        return rc;
    b->from = from;
    b->to = c[1].from;
    b->located = true;
    b->nexts = o->cut_nexts + c->first + 1;
    b->nr = (uint32_t)(c[1].first - c->first);
    if (b->nr > 0)
        memcpy(b->tables, o->cut_tables + c->first, b->nr * sizeof(*b->tables));
    b->uses = w->first[b->to] - w->first[from];
    b->bytes = c->bytes;
    b->chunks = o->chunked ? b->bytes / VVI_CHUNK_BYTES : 0;
    b->meta = lay_out(b->to - from, b->uses, b->nr, b->chunks, o->item_bytes);
    ++*cut;
    return 0;
}

static void note_batch(struct dry_run *d, const struct vvi_batch *b)
{
    if (b->bytes > d->cache_bytes || b->meta.bytes <= d->most)
        return;
    d->most = b->meta.bytes;
    d->largest.meta_item = b->from;
}

static int cut_all(struct vvi_order *o, struct vvi_marks *m, const struct vvi_limits *limits,
                   struct dry_run *d)
{
    struct vvi_batch b = {0};
    uint32_t from = 0, room = 0;
    int rc = 0;

    o->nr_cuts = 0;
    while (rc == 0 && from < o->work.items) {
        vvi_batch_begin(&b, m, o->tables, from);
        do
            rc = add(&b, o, m, limits, d);
        while (rc == 0 && b.to < o->work.items);
        if (rc == 0 || rc == -ENOSPC)
            rc = keep_cut(o, &b, d, &room);
        from = b.to;
        b.meta = lay_out(b.to - b.from, b.uses, b.nr, b.chunks, o->item_bytes);
        note_batch(d, &b);
    }
    vvi_batch_fini(&b);
    return rc;
}

/* Finds the largest item, since a run may cut batches elsewhere, with an item alone that was not alone here. */
static int look_at_items(const struct vvi_order *o, struct vvi_marks *m, struct dry_run *d)
{
    const struct vvi_limits one = {1, 0, 0};
    uint64_t chunks = o->chunked ? d->most_room / VVI_CHUNK_BYTES : 0;
    struct vvi_batch b = {0};
    int rc = 0;

    /* Mostly no item comes near a limit, and exact values are not needed: the data of launches beside tables leaves
     * half of the cache to tables. */
    if (d->most_room <= d->cache_bytes / 2 && d->most <= d->cache_bytes / 4 &&
        lay_out(1, d->most_uses, d->most_uses, chunks, o->item_bytes).bytes <= d->most) {
        d->largest.item = d->most_item;
        d->largest.bytes = d->most_room;
        return 0;
    }
    for (uint32_t i = 0; rc == 0 && i < o->work.items; i++) {
        if (!may_be_more(o, i, d->most, d->largest.bytes))
            continue;
        vvi_batch_begin(&b, m, o->tables, i);
        rc = vvi_batch_add(&b, o, m, &one);
        note_batch(d, &b);
        if (b.bytes > d->largest.bytes) {
            d->largest.item = i;
            d->largest.bytes = b.bytes;
        }
    }
    vvi_batch_fini(&b);
    return rc;
}

static int dry_init(struct vvi_order *o, struct dry_run *d)
{
    uint64_t uses = uses_of(o);

    free(o->cut_tables);
    free(o->cut_nexts);
    o->cut_tables = malloc((uses + 1) * sizeof(*o->cut_tables));
    o->cut_nexts = malloc((uses + 1) * sizeof(*o->cut_nexts));
    d->last = calloc(o->tables, sizeof(*d->last));
    return o->cut_tables && o->cut_nexts && d->last ? 0 : -ENOMEM;
}

int vvi_order_meta(struct vvi_order *o, const struct vvi_limits *limits, uint64_t cache_bytes,
                   uint64_t *ret_bytes, struct vvi_largest *ret_largest)
{
    struct dry_run d = {.cache_bytes = cache_bytes};
    struct vvi_marks m;
    int rc = vvi_marks_init(&m, o->bytes, o->tables, o->chunked);

    if (rc == 0)
        rc = dry_init(o, &d);
    if (rc == 0)
        rc = cut_all(o, &m, limits, &d);
    if (rc == 0)
        rc = look_at_items(o, &m, &d);
    vvi_marks_fini(&m);
    free(d.firsts);
    free(d.last);
    if (rc == 0) {
        *ret_bytes = d.most;
        *ret_largest = d.largest;
    }
    return rc;
}
