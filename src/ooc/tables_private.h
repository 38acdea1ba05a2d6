/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of tables: the order of work, places in a cache, plans, and runs. */
#ifndef VV_OOC_TABLES_PRIVATE_H
#define VV_OOC_TABLES_PRIVATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <varve/tables.h>
#include <varve/tables_device.h>

#include "base/lock.h"
#include "base/util.h"
#include "ooc/ooc_private.h"

/* No table, item or chunk; or a use that never comes. */
#define VVI_NONE UINT32_MAX

#define VVI_CHUNK_BYTES (UINT64_C(1) << VARVE_TABLES_CHUNK_SHIFT)
/* Flat tables begin at multiples of this. */
#define VVI_FLAT_ALIGN UINT64_C(256)

/* ---- the order of work (tables_order.c): decisions only ---- */

/* Converts the options to this library's version and checks them, except for the source; returns NULL, or a text
 * about the bad one. `paper`: accepts that policy too. */
const char *vvi_tables_take_opts(const struct varve_tables_opts *opts, bool paper,
                                 struct varve_tables_opts *ret_opts);

struct vvi_order {
    struct varve_tables_work work;
    uint32_t tables;
    const uint64_t *bytes; /* per table */
    bool chunked;
    uint32_t item_bytes;
    /* Per use, from the first item's on: the next item that uses the table, if it was looked up; and the table's index
     * within its batch, which is the one that the item was launched in, or that the dry run cut. */
    uint32_t *nexts, *locals;
    /* Batches as the dry run cut them, the tables of all of them, and the item behind the batch that uses each next. */
    struct vvi_cut *cuts;
    uint32_t nr_cuts, *cut_tables, *cut_nexts;
    char why[96]; /* text of an error */
};

/* Converts `work` to this library's version. -EINVAL, with the reason in *ret_why; -ENOMEM. */
VV_WARN_UNUSED int vvi_order_init(struct vvi_order *o, const struct varve_tables_opts *opts,
                                  const struct varve_tables_work *work, const char **ret_why);
void vvi_order_fini(struct vvi_order *o);
static inline uint32_t *vvi_order_locals(const struct vvi_order *o, uint64_t use)
{
    return o->locals + (use - o->work.first[0]);
}

/* Finds next uses, once: batches of the dry run have theirs without. -ENOMEM. */
VV_WARN_UNUSED int vvi_order_find_nexts(struct vvi_order *o);
/* The next item that uses the table of this use. Only after they have been found. */
static inline uint32_t vvi_order_next(const struct vvi_order *o, uint64_t use)
{
    return o->nexts[use - o->work.first[0]];
}
/* The cost of the items [from, to). */
double vvi_order_cost(const struct vvi_order *o, uint32_t from, uint32_t to);

static inline uint64_t vvi_tables_room(uint64_t bytes, bool chunked)
{
    return vv_align_up(bytes, chunked ? VVI_CHUNK_BYTES : VVI_FLAT_ALIGN);
}

static inline uint64_t vvi_order_room(const struct vvi_order *o, uint32_t table)
{
    return vvi_tables_room(o->bytes[table], o->chunked);
}

/* ---- batches (tables_order.c) ---- */

/* Layout of the data for the device beside tables: in this order, each part aligned to 16 bytes. */
struct vvi_meta {
    uint64_t outside, item, first, uses, refs, chunks, meta; /* where each part begins */
    uint64_t bytes;
};

/* Consecutive items, and their tables, each once. */
struct vvi_batch {
    uint32_t from, to;
    uint32_t *tables, nr, room; /* `room`: capacity of the list */
    uint64_t uses, chunks;
    uint64_t bytes; /* of the tables in the cache */
    /* The item behind it that uses each table next, if the dry run cut it; NULL: use the order. */
    const uint32_t *nexts;
    bool located; /* the order's `locals` belong to the batch */
    struct vvi_meta meta;
};

struct vvi_limits {
    uint32_t items;
    uint64_t bytes, meta_bytes;
};

/* A batch: `first` is where its tables begin in cut_tables. There is one more entry behind the last batch. */
struct vvi_cut {
    uint64_t first, bytes;
    uint32_t from;
};

/* A table is in the current batch if its stamp is `now`; `local` is its index within the batch. The other members are
 * here because every use of a table needs them. */
struct vvi_mark {
    uint32_t stamp, local;
    uint64_t room;
};

struct vvi_marks {
    struct vvi_mark *of; /* per table */
    uint32_t now;
};

/* `chunked`: sizes are rounded up to whole chunks. */
VV_WARN_UNUSED int vvi_marks_init(struct vvi_marks *m, const uint64_t *bytes, uint32_t tables,
                                  bool chunked);
void vvi_marks_fini(struct vvi_marks *m);
/* Begins an empty batch with the item. */
void vvi_batch_begin(struct vvi_batch *b, struct vvi_marks *m, uint32_t tables, uint32_t from);
/* Adds the next item if it stays within the limits; a single one always does. -ENOSPC: it does not. */
VV_WARN_UNUSED int vvi_batch_add(struct vvi_batch *b, const struct vvi_order *o,
                                 struct vvi_marks *m, const struct vvi_limits *limits);
/* Takes the batch that the dry run cut, if one begins with the item and does not go beyond `to`. `cut`: where to search
 * first. -ENOENT: there is none. */
VV_WARN_UNUSED int vvi_batch_take(struct vvi_batch *b, const struct vvi_order *o, uint32_t from,
                                  uint32_t to, uint32_t *cut);
/* The batch is final: writes for each use the index of its table in the batch. The marks must still be the batch's. */
void vvi_batch_locate(struct vvi_batch *b, const struct vvi_order *o, const struct vvi_marks *m);
void vvi_batch_fini(struct vvi_batch *b);
/* The first item whose tables take most room; or, if no item can take more than half a cache, the first whose tables
 * may take most. And the first item of the batch that needs most beside tables. */
struct vvi_largest {
    uint32_t item;
    uint64_t bytes;
    uint32_t meta_item;
};

/* The dry run: the most that a launch needs beside tables, among launches that fit such a cache, and the largest
 * item. Keeps the batches, within the limits. */
VV_WARN_UNUSED int vvi_order_meta(struct vvi_order *o, const struct vvi_limits *limits,
                                  uint64_t cache_bytes, uint64_t *ret_bytes,
                                  struct vvi_largest *ret_largest);

/* ---- places in a cache (tables_place.c): decisions only ---- */

struct vvi_held {
    uint64_t at;    /* flat: its place; chunked: where in `chunks` its list begins */
    uint32_t refs;  /* batches under way that use it: vvi_space_hold, vvi_space_release */
    uint32_t next;  /* the next item that uses it */
    uint32_t index; /* in `list`; VVI_NONE: it is not in the cache */
    bool keep;      /* the current batch uses it */
    bool fresh;     /* in `fresh` */
};

/* A move of a flat table, in the order of execution: the table moves down, over bytes that are no longer needed. */
struct vvi_move {
    uint32_t table;
    uint64_t from, to;
};

struct vvi_space {
    const uint64_t *bytes; /* per table */
    uint32_t tables;
    bool chunked;
    uint64_t capacity;
    /* Flat: bytes that may be evicted beyond the necessary ones, for a better place. */
    uint64_t slack;
    struct vvi_held *held; /* per table */
    uint64_t *pinned;      /* a bit for each: it has refs; ... */
    uint64_t *pooled;      /* ... flat: it is expendable. The search for places reads these bits */
    uint32_t *list, nr;    /* tables in the cache, ... */
    uint32_t *nexts; /* ... and their next uses: few of them matter, and these are close together */
    /* Tables that may be evicted soon, with their next uses, for runs that end at late_end: all in the cache that are
     * not before `floor`, in order, and some outdated entries; and tables that are still to be sorted in. */
    uint64_t *late;
    uint32_t *fresh, nr_late, nr_fresh, late_most, late_end;
    uint32_t late_from;    /* tables with an earlier next use are not listed */
    uint64_t floor;        /* a next use, and a table below it */
    uint64_t used_bytes;   /* by tables, ... */
    uint64_t used_room;    /* ... including what rounding adds */
    uint64_t *free_chunks; /* chunked: a bit for each free one, ... */
    uint64_t *free_words;  /* ... and for each 64 of them with a free one */
    uint32_t chunks_made;  /* chunked: number that has memory */
    /* Chunked: the list of each table, which lies in one piece; lists of evicted tables lie between. */
    uint32_t *chunks, *other_chunks;
    uint64_t chunks_end;
    uint32_t nr_chunks, nr_free, hand;
    uint64_t evicted;
    struct vvi_seg *segs; /* flat: the same by place */
    uint32_t nr_segs;
    uint64_t pool_bytes; /* size of all expendable tables */
    /* Flat: free or expendable space, in the order of places, if it is known; some entries may have no bytes. Every
     * hole is listed that the smallest table fits in. */
    struct vvi_hole *holes;
    uint32_t nr_holes;
    bool holes_known;
    uint64_t least_room;
    /* Valid during one call. */
    bool keep_all;
    struct vvi_seg *other, *placed;
    uint64_t *order;
    uint32_t *missing, *gone;
    uint32_t nr_gone;
    struct vvi_move *moves;
    uint32_t nr_moves;
    struct vvi_hole *found;
    struct vvi_stretch *stretches; /* in `other` */
    uint32_t nr_stretches;
};

VV_WARN_UNUSED int vvi_space_init(struct vvi_space *s, const uint64_t *bytes, uint32_t tables,
                                  bool chunked, uint64_t capacity);
void vvi_space_fini(struct vvi_space *s);
/* Evicts every table, even those with `refs`, and sets the capacity, at most the one it was made with. */
void vvi_space_empty(struct vvi_space *s, uint64_t capacity);
/*
 * Gives places to tables that have none. Tables with `keep` or `refs` are not evicted, and those with `refs` do not
 * move. The tables that are needed last are evicted first. `end`: uses from there on do not count. -EAGAIN:
 * impossible before some batch has ended; then nothing has changed.
 */
VV_WARN_UNUSED int vvi_space_place(struct vvi_space *s, const uint32_t *tables, uint32_t nr,
                                   uint32_t end);
/* The paper's policy: best fit, largest first, no eviction. -EAGAIN as above. */
VV_WARN_UNUSED int vvi_space_fit(struct vvi_space *s, const uint32_t *tables, uint32_t nr);
/* Makes the table not expendable: a batch uses it. */
void vvi_space_unpool(struct vvi_space *s, uint32_t table);
/* Removes the table from the cache. */
void vvi_space_drop(struct vvi_space *s, uint32_t table);
/* Checks all invariants of a space; false: one is violated. */
bool vvi_space_check(const struct vvi_space *s);

/* Sets the next use of a table. */
static inline void vvi_space_next(struct vvi_space *s, uint32_t table, uint32_t next)
{
    struct vvi_held *h = &s->held[table];

    h->next = next;
    if (h->index == VVI_NONE)
        return;
    s->nexts[h->index] = next;
    if (next >= s->late_from && !h->fresh) {
        h->fresh = true;
        s->fresh[s->nr_fresh++] = table;
    }
}

/* A batch uses the table. */
static inline void vvi_space_hold(struct vvi_space *s, uint32_t table)
{
    if (s->held[table].refs++ == 0)
        s->pinned[table / 64] |= UINT64_C(1) << table % 64;
}

/* The batch does not use it any more. Returns true if another one does. */
static inline bool vvi_space_release(struct vvi_space *s, uint32_t table)
{
    if (--s->held[table].refs > 0)
        return true;
    s->pinned[table / 64] &= ~(UINT64_C(1) << table % 64);
    return false;
}

static inline uint64_t vvi_space_room(const struct vvi_space *s, uint32_t table)
{
    return vvi_tables_room(s->bytes[table], s->chunked);
}

/* Chunked: the chunks of a table in the cache; vvi_space_room gives their number. */
static inline const uint32_t *vvi_space_chunks(const struct vvi_space *s, uint32_t table)
{
    return s->chunks + s->held[table].at;
}

static inline uint32_t vvi_space_nr_chunks(const struct vvi_space *s, uint32_t table)
{
    return (uint32_t)(vvi_space_room(s, table) / VVI_CHUNK_BYTES);
}

/* How many of the n chunks of a list are consecutive, from its first on. Numbers go up in a list, except where it wraps
 * around to 0. So if two are as far apart as their numbers, all between them are consecutive too. */
static inline uint32_t vvi_chunks_run(const uint32_t *list, uint32_t n)
{
    uint32_t i = 1;

    while (i + 8 <= n && list[i + 7] == list[0] + i + 7)
        i += 8;
    while (i < n && list[i] == list[0] + i)
        i++;
    return i;
}

/* ---- which tables are needed last (tables_late.c): decisions only ---- */

/* The table of an entry of `order` or `late`. */
static inline uint32_t vvi_entry_table(uint64_t entry)
{
    return (uint32_t)entry;
}

/* Chooses tables that may be evicted, the ones needed last, until they have `bytes`; uses from `end` on do not count.
 * They are at the front of s->order. Returns how many. */
uint32_t vvi_space_choose(struct vvi_space *s, uint32_t end, uint64_t bytes);
bool vvi_space_check_late(const struct vvi_space *s);

/* ---- plans (tables_plan.c): decisions only ---- */

/* A batch with places. The batch holds its tables until vvi_plan_done. */
struct vvi_step {
    struct vvi_batch batch;
    uint32_t *fills, nr_fills; /* tables to bring, after the moves */
    struct vvi_move *moves;
    uint32_t nr_moves;
    uint32_t fills_room, moves_room; /* capacity of the lists */
    uint64_t fill_bytes;
};

struct vvi_plan_stats {
    uint64_t launches, items, found, missed, bytes, moved, moved_bytes;
};

/* One device's part of the order of work, and its cache. */
struct vvi_plan {
    struct vvi_order *o;
    struct vvi_space space;
    struct vvi_marks marks;
    struct vvi_limits limits;
    bool paper;
    uint32_t from, to; /* remaining items */
    uint32_t cut;      /* index of the order's batch near there */
    struct vvi_plan_stats stats;
};

VV_WARN_UNUSED int vvi_plan_init(struct vvi_plan *p, const struct varve_tables_opts *opts,
                                 uint64_t capacity);
void vvi_plan_fini(struct vvi_plan *p);
/* Begins a run: the content of the cache stays. */
void vvi_plan_begin(struct vvi_plan *p, struct vvi_order *o, const struct vvi_limits *limits,
                    uint32_t from, uint32_t to);
/*
 * The next batch. `more`: only if no table has to be evicted for it. `step` is zero, or one that was done. -ENODATA: no
 * items are left; -EAGAIN: there is no room for the first of them before some batch has ended; -EFBIG: its tables never
 * fit; -ENOMEM.
 */
VV_WARN_UNUSED int vvi_plan_next(struct vvi_plan *p, bool more, struct vvi_step *step);
/* Skips the first remaining item: the processor does it. */
void vvi_plan_skip(struct vvi_plan *p);
/* No launch uses the batch any more. `lost`: its tables were not brought. */
void vvi_plan_done(struct vvi_plan *p, struct vvi_step *step, bool lost);
void vvi_step_fini(struct vvi_step *step);
/* Gives a device without work the later half of another's remaining items. Returns true if it got any. */
bool vvi_plan_share(struct vvi_plan *plans, uint32_t nr, uint32_t mine);
/* Where part `which` of nr parts of about the same cost begins. */
uint32_t vvi_plan_part(const struct vvi_order *o, uint32_t nr, uint32_t which);

/* Limit of launches under way that need no eviction. */
enum { VVI_LAUNCHES = 256 };

/* The division of a cache, by a dry run. */
struct vvi_split {
    struct vvi_limits limits; /* per batch */
    uint32_t lanes;           /* streams that launches compute on */
    uint32_t depth;           /* launches whose tables are on their way; ... */
    uint32_t most;            /* launches under way if no table has to be evicted for them */
    uint64_t meta_bytes;      /* for their data beside tables */
    uint64_t scratch_bytes;   /* through which flat tables are moved */
    uint64_t capacity;        /* for tables: the rest */
    struct vvi_largest largest;
};

/* True if enough launches are under way, `travelling` of them with tables still on their way: then no table is
 * evicted for another launch. */
static inline bool vvi_split_enough(const struct vvi_split *s, uint32_t under_way,
                                    uint32_t travelling)
{
    return travelling >= s->depth || under_way >= s->depth + s->lanes - 1;
}

/* -EFBIG: no room is left for tables, because of the item in *ret_split; -ENOMEM. */
VV_WARN_UNUSED int vvi_plan_split(const struct varve_tables_opts *opts, struct vvi_order *o,
                                  struct vvi_split *ret_split);

/* ---- sharing work between devices and the processor (tables_plan.c) ---- */

/* The measured speed of a device or of the processor. */
struct vvi_pace {
    double cost, ns;
};

/* True if the idle processor would finish work of this cost before a device that has work of cost `ahead` to do
 * first. An unknown speed counts as fast enough to try. */
bool vvi_pace_host_first(const struct vvi_pace *host, const struct vvi_pace *device, double cost,
                         double ahead);

/* ---- tables ---- */

/* A launch that may be under way. Its memory is kept for the next one. */
struct vvi_launch {
    struct vvi_step step;
    unsigned char
        *host; /* the data copied to the device beside tables, and the count that comes back */
    unsigned char *dev;     /* destination of that data */
    struct vv_event *ready; /* its tables and data are on the device */
    struct vv_event *done;  /* it has ended */
    struct vv_stream *lane; /* that it computes on */
    uint32_t *outside;      /* in `host` */
    double cost;
    bool planned, recorded; /* it holds tables; `done` was recorded */
};

/* One cache. */
struct vvi_cache {
    struct varve_tables *t;
    struct varve_ctx *ctx;
    struct vv_device *device;
    uint32_t which;
    struct vvi_source source;
    unsigned char
        *memory; /* device: tables, data of launches beside them, and scratch space for moves */
    unsigned char *meta, *scratch;
    uint64_t scratch_bytes;
    struct vv_stream *moves; /* everything that writes to the cache */
    struct vv_event *moved;
    struct vv_stream **lanes; /* that launches compute on, if there are several */
    uint32_t nr_lanes;
    struct vvi_launch *launches; /* VVI_LAUNCHES; runs use `most` of them, as a ring */
    unsigned char *host;         /* pinned, for all of them */
    size_t host_bytes;
    struct vvi_piece *pieces; /* for one step */
    size_t nr_pieces;
    /* State of a run. */
    uint32_t first, nr; /* launches under way */
    uint32_t ready; /* of these, the first ones: the host has seen that their tables are there */
    uint32_t lane;  /* of the next one */
    double ahead;   /* cost of the launches under way */
    struct vvi_pace pace;
    uint64_t busy_since, spent_ns;
    struct vv_stream *stream; /* the application's */
    int error;
};

struct varve_tables {
    struct varve_ctx *ctx;
    struct varve_tables_opts opts; /* bytes and offsets point to our copies */
    uint64_t *bytes, *offsets;
    struct vvi_split split; /* the current division of the caches */
    bool divided;
    uint32_t nr;
    struct vvi_cache *caches;
    atomic_bool reported; /* the error of the run has been recorded */

    struct vv_mutex lock;
    struct vv_cond changed;
    /* Synchronization: lock, from here on. */
    struct vvi_plan *plans; /* per cache */
    bool running;
    struct varve_tables_stats stats; /* without the part of the plans */
    double used_ns;                  /* bytes times ns */
    uint64_t seen_ns;                /* time of the last update */
};

/* The part of a run that all its threads share. */
struct vvi_tables_run {
    struct varve_tables *t;
    struct vvi_order order;
    /* Synchronization: the tables' lock, from here on. */
    int error;
    uint32_t *host_items, host_nr, host_room; /* for the processor */
    bool host_busy, host_stop;
    struct vvi_pace host_pace;
};

/* tables.c */
int vvi_tables_wait(struct vvi_cache *c, struct vv_event *event);
int vvi_tables_fail(struct vvi_cache *c, int rc, const char *fmt, ...) VV_PRINTF(3, 4);
/* Divides the caches for a run; their content is lost if they were divided otherwise. */
VV_WARN_UNUSED int vvi_tables_divide(struct varve_tables *t, const struct vvi_split *split);
/* Marks the cache as empty. */
void vvi_tables_forget(struct vvi_cache *c);
/* The pieces of a table, to the cache; `room` of them fit in `ret`. Returns how many there are. */
size_t vvi_tables_pieces(const struct vvi_cache *c, uint32_t table, struct vvi_piece *ret,
                         size_t room);

/* tables_run.c: accounts time up to `now`, which was read a moment ago; called before the used bytes change. */
void vvi_tables_account_locked(struct varve_tables *t, uint64_t now);

#endif
