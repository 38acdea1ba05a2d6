/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places of tables in a cache: who goes, who moves, who comes where.
 *
 * Chunked: tables take any free chunks, those after one another first, since a run of chunks is one
 * copy. As many tables go as have to, the one that is needed last first.
 *
 * Flat: tables that come together are placed together. Some more than have to go are taken to be
 * expendable (`slack`); holes are what lies between tables that are not. The largest table takes the
 * hole that fits best, and so on; expendable tables go only where somebody takes their place. What finds
 * no hole gets one by moving: of all windows with enough free or expendable bytes the one is chosen in
 * which the fewest others are; those move down, and the place is behind them.
 *
 * All of this is worked out in a list of segments, and takes effect at its end, or not at all.
 *
 * What stays true: tables do not overlap; `list` is in the order of places; what has `refs` does not
 * move or go; moves go down only and keep the order, so that, made in that order, none writes over a
 * table that has yet to move. Without `refs` every set of tables that fits the cache finds its place:
 * then one window is the whole cache.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "ooc/tables_private.h"

/* Tables have numbers of so many bits; a size in units of VVI_FLAT_ALIGN goes before them. */
enum { TABLE_BITS = 24 };

enum kind {
    PINNED,     /* launches use it */
    STAYS,      /* it may move */
    EXPENDABLE, /* it may go */
    COMES,      /* it has yet to be brought, and may be placed elsewhere */
};

struct vvi_seg {
    uint64_t at, bytes;
    uint32_t table;
    enum kind kind;
};

struct vvi_hole {
    uint64_t at, end;
};

/* ---- making and unmaking ---- */

static int chunks_init(struct vvi_space *s)
{
    size_t words = vv_div_up(s->nr_chunks, 64);

    s->free_chunks = calloc(words, sizeof(*s->free_chunks));
    s->chunk_next = calloc(s->nr_chunks, sizeof(*s->chunk_next));
    if (!s->free_chunks || !s->chunk_next)
        return -ENOMEM;
    for (uint32_t c = 0; c < s->nr_chunks; c++)
        s->free_chunks[c / 64] |= UINT64_C(1) << c % 64;
    s->nr_free = s->nr_chunks;
    return 0;
}

int vvi_space_init(struct vvi_space *s, const uint64_t *bytes, uint32_t tables, bool chunked,
                   uint64_t capacity)
{
    *s = (struct vvi_space){.bytes = bytes, .tables = tables, .chunked = chunked};
    s->capacity = vv_align_down(capacity, chunked ? VVI_CHUNK_BYTES : VVI_FLAT_ALIGN);
    s->slack = s->capacity / 64;
    if (chunked)
        s->nr_chunks = s->nr_free = (uint32_t)(s->capacity / VVI_CHUNK_BYTES);
    s->held = malloc(tables * sizeof(*s->held));
    s->list = malloc(tables * sizeof(*s->list));
    s->order = malloc(tables * sizeof(*s->order));
    s->missing = malloc(tables * sizeof(*s->missing));
    s->segs = malloc(2 * (size_t)tables * sizeof(*s->segs)); /* two lists */
    s->holes = malloc(((size_t)tables + 1) * sizeof(*s->holes));
    s->moves = malloc(tables * sizeof(*s->moves));
    if (!s->held || !s->list || !s->order || !s->missing || !s->segs || !s->holes || !s->moves)
        return -ENOMEM;
    for (uint32_t t = 0; t < tables; t++)
        s->held[t] = (struct vvi_held){.chunk = VVI_NONE, .next = VVI_NONE, .index = VVI_NONE};
    return chunked && s->nr_chunks > 0 ? chunks_init(s) : 0;
}

void vvi_space_fini(struct vvi_space *s)
{
    free(s->held);
    free(s->list);
    free(s->order);
    free(s->missing);
    free(s->segs);
    free(s->holes);
    free(s->moves);
    free(s->free_chunks);
    free(s->chunk_next);
    *s = (struct vvi_space){0};
}

/* ---- chunks ---- */

static uint32_t take_chunk(struct vvi_space *s)
{
    uint32_t words = (s->nr_chunks + 63) / 64, w = s->hand / 64;
    uint64_t left = s->free_chunks[w] >> s->hand % 64 << s->hand % 64;

    vv_assert(s->nr_free > 0);
    while (!left) {
        w = w + 1 < words ? w + 1 : 0;
        left = s->free_chunks[w];
    }
    s->hand = w * 64 + (uint32_t)__builtin_ctzll(left);
    s->free_chunks[w] &= ~(UINT64_C(1) << s->hand % 64);
    s->nr_free--;
    return s->hand;
}

static void take_chunks(struct vvi_space *s, uint32_t table)
{
    uint32_t n = (uint32_t)(vvi_space_room(s, table) / VVI_CHUNK_BYTES);
    uint32_t *link = &s->held[table].chunk;

    while (n-- > 0) {
        uint32_t c = take_chunk(s);

        *link = c;
        link = &s->chunk_next[c];
    }
    *link = VVI_NONE;
}

static void free_chunks(struct vvi_space *s, uint32_t table)
{
    for (uint32_t c = s->held[table].chunk; c != VVI_NONE; c = s->chunk_next[c]) {
        s->free_chunks[c / 64] |= UINT64_C(1) << c % 64;
        s->nr_free++;
    }
    s->held[table].chunk = VVI_NONE;
}

/* ---- what goes ---- */

/* Takes everything about the table back but its place in `list`. */
static void leave(struct vvi_space *s, uint32_t table)
{
    vv_assert(s->held[table].refs == 0 && s->held[table].index != VVI_NONE);
    s->held[table].index = VVI_NONE;
    s->used_bytes -= s->bytes[table];
    s->used_room -= vvi_space_room(s, table);
    s->evicted++;
    if (s->chunked)
        free_chunks(s, table);
}

static void come(struct vvi_space *s, uint32_t table, uint32_t index)
{
    s->held[table].index = index;
    s->used_bytes += s->bytes[table];
    s->used_room += vvi_space_room(s, table);
}

void vvi_space_drop(struct vvi_space *s, uint32_t table)
{
    uint32_t at = s->held[table].index;

    leave(s, table);
    s->nr--;
    if (!s->chunked) { /* the order stays */
        memmove(s->list + at, s->list + at + 1, (s->nr - at) * sizeof(*s->list));
        for (uint32_t i = at; i < s->nr; i++)
            s->held[s->list[i]].index = i;
    } else if (at < s->nr) {
        s->list[at] = s->list[s->nr];
        s->held[s->list[at]].index = at;
    }
}

static uint32_t entry_table(uint64_t entry)
{
    return (uint32_t)entry;
}

/* Brings entries to the front that are larger than the rest, until their bytes are enough; how many.
 * As quickselect, by weight: the front is not sorted. */
static uint32_t select_largest(const struct vvi_space *s, uint64_t *entries, uint32_t n,
                               uint64_t bytes)
{
    uint32_t low = 0, high = n;

    while (low < high && bytes > 0) {
        uint64_t pivot = entries[low + (high - low) / 2], front = 0;
        uint32_t i = low, at = low;

        /* Three parts: larger, the pivot, smaller. Entries are all different. */
        for (; i < high; i++)
            if (entries[i] >= pivot) {
                uint64_t e = entries[i];

                entries[i] = entries[at];
                entries[at++] = e;
                front += vvi_space_room(s, entry_table(e));
            }
        if (front <= bytes) {
            bytes -= front;
            low = at;
        } else if (at - low == 1) {
            return at;
        } else {
            /* The pivot goes behind the larger ones, which alone may be enough. */
            for (i = low; entries[i] != pivot; i++)
                ;
            entries[i] = entries[at - 1];
            entries[at - 1] = pivot;
            front -= vvi_space_room(s, entry_table(pivot));
            if (front >= bytes) {
                high = at - 1;
            } else {
                return at;
            }
        }
    }
    return low;
}

/* Tables that may go, `bytes` of them if there are so many, the ones that are needed last. They are at
 * the front of s->order. */
static uint32_t choose(struct vvi_space *s, uint32_t end, uint64_t bytes)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->nr; i++) {
        const struct vvi_held *h = &s->held[s->list[i]];

        if (h->refs == 0 && !h->keep)
            s->order[n++] = (uint64_t)(h->next >= end ? VVI_NONE : h->next) << 32 | s->list[i];
    }
    return select_largest(s, s->order, n, bytes);
}

static int larger_first(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? 1 : x > y ? -1 : 0;
}

static int place_chunked(struct vvi_space *s, const uint32_t *tables, uint32_t nr, uint32_t end)
{
    uint64_t need = 0, freed = (uint64_t)s->nr_free * VVI_CHUNK_BYTES;
    uint32_t n = 0;

    for (uint32_t i = 0; i < nr; i++)
        need += vvi_space_room(s, tables[i]);
    if (need > freed) {
        n = choose(s, end, need - freed);
        for (uint32_t i = 0; i < n; i++)
            freed += vvi_space_room(s, entry_table(s->order[i]));
        if (freed < need)
            return -EAGAIN;
    }
    for (uint32_t i = 0; i < n; i++)
        vvi_space_drop(s, entry_table(s->order[i]));
    for (uint32_t i = 0; i < nr; i++) {
        take_chunks(s, tables[i]);
        come(s, tables[i], s->nr);
        s->list[s->nr++] = tables[i];
    }
    return 0;
}

/* ---- flat: segments ---- */

/* The cache as it is; what is at the front of s->order is expendable. */
static void make_segs(struct vvi_space *s, uint32_t nr_expendable)
{
    for (uint32_t i = 0; i < s->nr; i++) {
        uint32_t t = s->list[i];
        const struct vvi_held *h = &s->held[t];

        s->segs[i] = (struct vvi_seg){h->at, vvi_space_room(s, t), t, h->refs ? PINNED : STAYS};
    }
    for (uint32_t i = 0; i < nr_expendable; i++)
        s->segs[s->held[entry_table(s->order[i])].index].kind = EXPENDABLE;
}

static uint32_t find_holes(struct vvi_space *s)
{
    uint64_t at = 0;
    uint32_t n = 0;

    for (uint32_t i = 0; i <= s->nr; i++) {
        if (i < s->nr && s->segs[i].kind == EXPENDABLE)
            continue;
        if (i == s->nr || s->segs[i].at > at) {
            uint64_t end = i < s->nr ? s->segs[i].at : s->capacity;

            if (end > at)
                s->holes[n++] = (struct vvi_hole){at, end};
        }
        if (i < s->nr)
            at = s->segs[i].at + s->segs[i].bytes;
    }
    return n;
}

static struct vvi_hole *best_hole(struct vvi_space *s, uint32_t nr_holes, uint64_t bytes)
{
    struct vvi_hole *best = NULL;

    for (uint32_t i = 0; i < nr_holes; i++) {
        uint64_t size = s->holes[i].end - s->holes[i].at;

        if (size >= bytes && (!best || size < best->end - best->at))
            best = &s->holes[i];
    }
    return best;
}

static int by_place(const void *a, const void *b)
{
    uint64_t x = ((const struct vvi_seg *)a)->at, y = ((const struct vvi_seg *)b)->at;

    return x < y ? -1 : x > y ? 1 : 0;
}

/* Merges `more` segments that come, behind the `n` of the cache, into the list; expendable ones that they
 * lie on are left out. */
static uint32_t merge(struct vvi_space *s, uint32_t n, uint32_t more, struct vvi_seg *to)
{
    struct vvi_seg *segs = s->segs;
    uint32_t i = 0, j = n, out = 0;

    qsort(segs + n, more, sizeof(*segs), by_place);
    while (i < n || j < n + more) {
        if (j == n + more || (i < n && segs[i].at + segs[i].bytes <= segs[j].at)) {
            to[out++] = segs[i++];
        } else if (i < n && segs[i].at < segs[j].at + segs[j].bytes) {
            vv_assert(segs[i].kind == EXPENDABLE);
            i++;
        } else {
            to[out++] = segs[j++];
        }
    }
    return out;
}

/* ---- flat: moving together ---- */

struct window {
    uint32_t left, right; /* the segments in it: [left, right) */
};

/* A byte that may have to be brought again costs several that move. */
static uint64_t cost_of(const struct vvi_seg *seg)
{
    return seg->kind == STAYS ? seg->bytes : seg->kind == EXPENDABLE ? 4 * seg->bytes : 0;
}

/* The window with so many bytes free or expendable in which the least has to move. */
static bool find_window(const struct vvi_seg *segs, uint32_t n, uint64_t capacity, uint64_t bytes,
                        struct window *ret_window)
{
    uint64_t best = UINT64_MAX, cost = 0, taken = 0;
    uint32_t l = 0;

    for (uint32_t r = 0; r <= n; r++) {
        uint64_t end = r < n ? segs[r].at : capacity;

        /* From behind segment l - 1 up to segment r: shorter, as long as it is enough. */
        while (l <= r) {
            uint64_t start = l ? segs[l - 1].at + segs[l - 1].bytes : 0;

            if (end - start - taken < bytes)
                break;
            if (cost < best) {
                best = cost;
                *ret_window = (struct window){l, r};
            }
            if (l == r)
                break;
            taken -= segs[l].kind == EXPENDABLE ? 0 : segs[l].bytes;
            cost -= cost_of(&segs[l]);
            l++;
        }
        if (r < n && segs[r].kind == PINNED) {
            l = r + 1;
            cost = taken = 0;
        } else if (r < n) {
            taken += segs[r].kind == EXPENDABLE ? 0 : segs[r].bytes;
            cost += cost_of(&segs[r]);
        }
    }
    return best != UINT64_MAX;
}

/* Makes a place of so many bytes by moving and dropping, in the list of *n segments; the new segment is
 * in it then. false: no window is large enough. */
static bool make_window(struct vvi_seg *segs, uint32_t *n, uint64_t capacity, uint32_t table,
                        uint64_t bytes)
{
    struct window w = {0, 0};
    uint32_t out;
    uint64_t at;

    if (!find_window(segs, *n, capacity, bytes, &w))
        return false;
    at = w.left ? segs[w.left - 1].at + segs[w.left - 1].bytes : 0;
    out = w.left;
    for (uint32_t i = w.left; i < w.right; i++)
        if (segs[i].kind != EXPENDABLE) {
            struct vvi_seg seg = segs[i];

            seg.at = at;
            at += seg.bytes;
            segs[out++] = seg;
        }
    memmove(segs + out + 1, segs + w.right, (*n - w.right) * sizeof(*segs));
    segs[out] = (struct vvi_seg){at, bytes, table, COMES};
    *n = out + 1 + *n - w.right;
    return true;
}

/* ---- flat ---- */

/* Tables by size, the largest first, to s->missing. */
static void sort_by_size(struct vvi_space *s, const uint32_t *tables, uint32_t nr)
{
    for (uint32_t i = 0; i < nr; i++)
        s->order[i] = vvi_space_room(s, tables[i]) / VVI_FLAT_ALIGN << TABLE_BITS | tables[i];
    qsort(s->order, nr, sizeof(*s->order), larger_first);
    for (uint32_t i = 0; i < nr; i++)
        s->missing[i] = (uint32_t)s->order[i] & ((UINT32_C(1) << TABLE_BITS) - 1);
}

/* The cache is as the n segments say. */
static void take_effect(struct vvi_space *s, const struct vvi_seg *segs, uint32_t n)
{
    uint32_t before = s->nr;

    memcpy(s->missing, s->list, before * sizeof(*s->missing));
    s->nr_moves = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t t = segs[i].table;
        struct vvi_held *h = &s->held[t];

        s->list[i] = t;
        if (segs[i].kind == COMES)
            come(s, t, i);
        else if (h->at != segs[i].at)
            s->moves[s->nr_moves++] = (struct vvi_move){t, h->at, segs[i].at};
        h->index = i;
        h->at = segs[i].at;
    }
    s->nr = n;
    for (uint32_t i = 0; i < before; i++) {
        uint32_t t = s->missing[i], at = s->held[t].index;

        if (at >= n || s->list[at] != t)
            leave(s, t);
    }
}

/* Gives s->missing places: where something is expendable or free, and, if `move`, where others can move
 * away from. */
static bool arrange(struct vvi_space *s, uint32_t nr, uint32_t nr_expendable, bool move)
{
    struct vvi_seg *segs = s->segs + s->tables;
    uint32_t n = s->nr, placed = 0, left = 0, holes;
    bool fits = true;

    make_segs(s, nr_expendable);
    holes = find_holes(s);
    for (uint32_t i = 0; i < nr; i++) {
        uint32_t t = s->missing[i];
        uint64_t bytes = vvi_space_room(s, t);
        struct vvi_hole *hole = best_hole(s, holes, bytes);

        if (hole) {
            s->segs[n + placed++] = (struct vvi_seg){hole->at, bytes, t, COMES};
            hole->at += bytes;
        } else {
            s->missing[left++] = t;
        }
    }
    if (left > 0 && !move)
        return false;
    n = merge(s, n, placed, segs);
    for (uint32_t i = 0; fits && i < left; i++)
        fits = make_window(segs, &n, s->capacity, s->missing[i], vvi_space_room(s, s->missing[i]));
    if (fits)
        take_effect(s, segs, n);
    return fits;
}

static int place_flat(struct vvi_space *s, const uint32_t *tables, uint32_t nr, uint32_t end)
{
    uint64_t need = 0, vacant = s->capacity - s->used_room, slack = s->slack;

    for (uint32_t i = 0; i < nr; i++)
        need += vvi_space_room(s, tables[i]);
    for (;;) {
        uint64_t wanted = need + slack > vacant ? need + slack - vacant : 0, found = 0;
        uint32_t n;

        sort_by_size(s, tables, nr);
        n = choose(s, end, wanted);
        for (uint32_t i = 0; i < n; i++)
            found += vvi_space_room(s, entry_table(s->order[i]));
        if (vacant + found >= need && arrange(s, nr, n, true))
            return 0;
        if (found < wanted) /* that was all that may go */
            return -EAGAIN;
        slack = slack * 4 + VVI_FLAT_ALIGN;
    }
}

/* ---- either ---- */

int vvi_space_place(struct vvi_space *s, const uint32_t *tables, uint32_t nr, uint32_t end)
{
    s->nr_moves = 0;
    if (nr == 0)
        return 0;
    return s->chunked ? place_chunked(s, tables, nr, end) : place_flat(s, tables, nr, end);
}

int vvi_space_fit(struct vvi_space *s, const uint32_t *tables, uint32_t nr)
{
    uint64_t need = 0;

    s->nr_moves = 0;
    if (nr == 0)
        return 0;
    for (uint32_t i = 0; i < nr; i++)
        need += vvi_space_room(s, tables[i]);
    if (s->capacity - s->used_room < need)
        return -EAGAIN;
    if (s->chunked)
        return place_chunked(s, tables, nr, 0);
    sort_by_size(s, tables, nr);
    return arrange(s, nr, 0, false) ? 0 : -EAGAIN;
}

static bool check_chunks(const struct vvi_space *s)
{
    uint64_t chunks = s->nr_free;

    for (uint32_t i = 0; i < s->nr; i++) {
        uint64_t n = 0;

        for (uint32_t c = s->held[s->list[i]].chunk; c != VVI_NONE; c = s->chunk_next[c]) {
            if (c >= s->nr_chunks || s->free_chunks[c / 64] >> c % 64 & 1 || n > s->nr_chunks)
                return false;
            n++;
        }
        if (n * VVI_CHUNK_BYTES != vvi_space_room(s, s->list[i]))
            return false;
        chunks += n;
    }
    /* Each is in one list at most, then: as many as there are in all. */
    for (uint32_t c = 0, n = 0; c <= s->nr_chunks; c++) {
        if (c == s->nr_chunks && n != s->nr_free)
            return false;
        n += c < s->nr_chunks && s->free_chunks[c / 64] >> c % 64 & 1;
    }
    return chunks == s->nr_chunks;
}

bool vvi_space_check(const struct vvi_space *s)
{
    uint64_t bytes = 0, room = 0, at = 0;
    uint32_t held = 0;

    for (uint32_t i = 0; i < s->nr; i++) {
        uint32_t t = s->list[i];

        if (t >= s->tables || s->held[t].index != i)
            return false;
        if (!s->chunked && s->held[t].at < at)
            return false;
        at = s->held[t].at + vvi_space_room(s, t);
        bytes += s->bytes[t];
        room += vvi_space_room(s, t);
    }
    for (uint32_t t = 0; t < s->tables; t++) {
        held += s->held[t].index != VVI_NONE;
        if (s->held[t].index == VVI_NONE && s->held[t].refs)
            return false;
    }
    return held == s->nr && bytes == s->used_bytes && room == s->used_room && room <= s->capacity &&
           (s->chunked ? s->nr_chunks == 0 || check_chunks(s) : at <= s->capacity);
}
