/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places of tables in a cache: which are evicted, which move, and where new ones go.
 *
 * Chunked: tables take any free chunks, consecutive ones first, since a run of chunks is one copy; each table has a
 * list of its chunks. As many tables as necessary are evicted, those that are needed last first.
 *
 * Flat: tables that come together are placed together. Somewhat more tables than necessary (`slack`) count as
 * expendable; when none is left, others are chosen. Holes are the spaces between tables that are not expendable. The
 * largest table takes the hole that fits best, and so on; expendable tables are evicted only where another table takes
 * their place. A table that finds no hole gets a place by moving other tables. Of all windows with enough free or
 * expendable bytes, the one with the fewest other bytes is chosen; the tables in it move down, and the new place is
 * behind them. Sometimes tables that launches use leave no such window: then more tables are evicted from the stretch
 * between two of them that has most to offer. Holes are kept from one batch to the next.
 *
 * All of this is computed in a list of segments, and takes effect at its end, or not at all.
 *
 * Invariants: tables do not overlap; segments are in the order of places; tables with `refs` do not move and are not
 * evicted; moves go down only and keep the order, so that, made in that order, none overwrites a table that has yet
 * to move. Without `refs` every set of tables that fits the cache finds its place: then one window is the whole cache.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "ooc/tables_private.h"

/* Table numbers have so many bits; a size in units of VVI_FLAT_ALIGN is in the bits above. */
enum { TABLE_BITS = 24 };

/* Lists of chunks have room for so many times the chunks of the cache. When it is used up, the lists of evicted
 * tables are removed. */
enum { LISTS = 4 };
/* Up to so many tables are sorted by insertion. */
enum { FEW = 16 };
/* Chunks that are written into a list at a time. */
enum { RUN = 8 };

/* In the order of places. */
struct vvi_seg {
    uint64_t at, bytes;
    uint32_t table;
    bool comes; /* its place is not final yet */
};

struct vvi_hole {
    uint64_t at, end;
};

/* Between two tables that launches use: its free or expendable bytes, and the segment at its end. */
struct vvi_stretch {
    uint64_t vacant;
    uint32_t end;
};

/* ---- making and unmaking ---- */

static int chunks_init(struct vvi_space *s)
{
    s->free_chunks = vvi_ooc_zeroed(vv_div_up(s->chunks_made, 64), sizeof(*s->free_chunks));
    s->free_words = vvi_ooc_zeroed(vv_div_up(s->chunks_made, 4096), sizeof(*s->free_words));
    s->chunks = vvi_ooc_zeroed(LISTS * (size_t)s->chunks_made + RUN, sizeof(*s->chunks));
    s->other_chunks =
        vvi_ooc_zeroed(LISTS * (size_t)s->chunks_made + RUN, sizeof(*s->other_chunks));
    return s->free_chunks && s->free_words && s->chunks && s->other_chunks ? 0 : -ENOMEM;
}

static void chunks_empty(struct vvi_space *s)
{
    memset(s->free_chunks, 0, vv_div_up(s->chunks_made, 64) * sizeof(*s->free_chunks));
    memset(s->free_words, 0, vv_div_up(s->chunks_made, 4096) * sizeof(*s->free_words));
    for (uint32_t c = 0; c < s->nr_chunks; c++)
        vvi_bit_set(s->free_chunks, c);
    for (uint32_t w = 0; w < vv_div_up(s->nr_chunks, 64); w++)
        vvi_bit_set(s->free_words, w);
}

int vvi_space_init(struct vvi_space *s, const uint64_t *bytes, uint32_t tables, bool chunked,
                   uint64_t capacity)
{
    int rc = 0;

    *s = (struct vvi_space){.bytes = bytes, .tables = tables, .chunked = chunked};
    s->held = vvi_ooc_zeroed(tables, sizeof(*s->held));
    s->pinned = vvi_ooc_zeroed(vv_div_up(tables, 64), sizeof(*s->pinned));
    s->pooled = vvi_ooc_zeroed(vv_div_up(tables, 64), sizeof(*s->pooled));
    s->list = vvi_ooc_zeroed(tables, sizeof(*s->list));
    s->nexts = vvi_ooc_zeroed(tables, sizeof(*s->nexts));
    s->late = vvi_ooc_zeroed(tables, sizeof(*s->late));
    s->fresh = vvi_ooc_zeroed(tables, sizeof(*s->fresh));
    s->order = vvi_ooc_zeroed(tables, sizeof(*s->order));
    s->missing = vvi_ooc_zeroed(tables, sizeof(*s->missing));
    s->segs = vvi_ooc_zeroed(tables, sizeof(*s->segs));
    s->other = vvi_ooc_zeroed(tables, sizeof(*s->other));
    s->placed = vvi_ooc_zeroed(tables, sizeof(*s->placed));
    s->gone = vvi_ooc_zeroed(tables, sizeof(*s->gone));
    s->holes = vvi_ooc_zeroed((size_t)tables + 1, sizeof(*s->holes));
    s->moves = vvi_ooc_zeroed(tables, sizeof(*s->moves));
    s->found = vvi_ooc_zeroed((size_t)tables + 1, sizeof(*s->found));
    s->stretches = vvi_ooc_zeroed((size_t)tables + 1, sizeof(*s->stretches));
    if (!s->held || !s->pinned || !s->pooled || !s->list || !s->nexts || !s->late || !s->fresh ||
        !s->order || !s->missing || !s->segs || !s->other || !s->placed || !s->gone || !s->holes ||
        !s->moves || !s->found || !s->stretches)
        return -ENOMEM;
    s->least_room = UINT64_MAX;
    for (uint32_t t = 0; t < tables; t++)
        s->least_room = VV_MIN(s->least_room, vvi_space_room(s, t));
    if (chunked)
        s->chunks_made = (uint32_t)(capacity / VVI_CHUNK_BYTES);
    if (s->chunks_made > 0)
        rc = chunks_init(s);
    if (rc == 0)
        vvi_space_empty(s, capacity);
    return rc;
}

void vvi_space_empty(struct vvi_space *s, uint64_t capacity)
{
    s->evicted += s->nr;
    s->nr = s->nr_late = s->nr_fresh = s->late_most = s->late_end = s->late_from = 0;
    s->floor = s->used_bytes = s->used_room = s->chunks_end = s->pool_bytes = 0;
    s->nr_segs = s->nr_holes = s->hand = 0;
    s->holes_known = false;
    s->capacity = vv_align_down(capacity, s->chunked ? VVI_CHUNK_BYTES : VVI_FLAT_ALIGN);
    s->slack = s->capacity / 32;
    s->nr_chunks = s->nr_free = s->chunked ? (uint32_t)(s->capacity / VVI_CHUNK_BYTES) : 0;
    vv_assert(s->nr_chunks <= s->chunks_made);
    memset(s->pinned, 0, vv_div_up(s->tables, 64) * sizeof(*s->pinned));
    memset(s->pooled, 0, vv_div_up(s->tables, 64) * sizeof(*s->pooled));
    for (uint32_t t = 0; t < s->tables; t++)
        s->held[t] = (struct vvi_held){.next = VVI_NONE, .index = VVI_NONE};
    if (s->chunks_made > 0)
        chunks_empty(s);
}

void vvi_space_fini(struct vvi_space *s)
{
    free(s->held);
    free(s->pinned);
    free(s->pooled);
    free(s->list);
    free(s->nexts);
    free(s->late);
    free(s->fresh);
    free(s->order);
    free(s->missing);
    free(s->segs);
    free(s->other);
    free(s->placed);
    free(s->gone);
    free(s->holes);
    free(s->moves);
    free(s->found);
    free(s->stretches);
    free(s->free_chunks);
    free(s->free_words);
    free(s->chunks);
    free(s->other_chunks);
    *s = (struct vvi_space){0};
}

/* ---- chunks ---- */

/* Makes room for a list of n chunks, which are free now. */
static uint64_t new_list(struct vvi_space *s, uint32_t n)
{
    uint64_t at = s->chunks_end;

    if (at + n > (uint64_t)LISTS * s->nr_chunks) {
        uint32_t *to = s->other_chunks;

        at = 0;
        for (uint32_t i = 0; i < s->nr; i++) {
            uint32_t nr = vvi_space_nr_chunks(s, s->list[i]);

            memcpy(to + at, vvi_space_chunks(s, s->list[i]), nr * sizeof(*to));
            s->held[s->list[i]].at = at;
            at += nr;
        }
        s->other_chunks = s->chunks;
        s->chunks = to;
    }
    s->chunks_end = at + n;
    vv_assert(s->chunks_end <= (uint64_t)LISTS * s->nr_chunks);
    return at;
}

/* The next word behind this one, cyclically, that has a free chunk; there must be one. */
static uint32_t next_word(const struct vvi_space *s, uint32_t word)
{
    uint32_t groups = (s->nr_chunks + 4095) / 4096, group = word / 64;
    uint64_t left = s->free_words[group] & (UINT64_MAX - 1) << word % 64;

    while (!left) {
        group = group + 1 < groups ? group + 1 : 0;
        left = s->free_words[group];
    }
    return group * 64 + (uint32_t)__builtin_ctzll(left);
}

/* Writes consecutive chunk numbers, several at a time: the entries behind them are written later, or unused. */
static void write_run(uint32_t *list, uint32_t first, uint32_t len)
{
    for (uint32_t k = 0; k < len; k += RUN)
        for (uint32_t i = 0; i < RUN; i++)
            list[k + i] = first + k + i;
}

/* Takes the next free chunks behind the last that were taken. */
static void take_chunks(struct vvi_space *s, uint32_t table)
{
    uint32_t n = vvi_space_nr_chunks(s, table), w = s->hand / 64, *list;
    uint64_t left = s->free_chunks[w] & UINT64_MAX << s->hand % 64;

    vv_assert(s->nr_free >= n);
    s->held[table].at = new_list(s, n);
    list = s->chunks + s->held[table].at;
    s->nr_free -= n;
    while (n > 0) {
        uint32_t bit, len;
        uint64_t run;

        if (!left) {
            w = next_word(s, w);
            left = s->free_chunks[w];
        }
        bit = (uint32_t)__builtin_ctzll(left);
        run = ~(left >> bit);
        len = VV_MIN(run ? (uint32_t)__builtin_ctzll(run) : 64, n);
        run = UINT64_MAX >> (64 - len) << bit;
        left &= ~run;
        s->free_chunks[w] &= ~run;
        if (!s->free_chunks[w])
            s->free_words[w / 64] &= ~(UINT64_C(1) << w % 64);
        s->hand = w * 64 + bit + len - 1;
        write_run(list, w * 64 + bit, len);
        list += len;
        n -= len;
    }
}

static void free_chunks(struct vvi_space *s, uint32_t table)
{
    const uint32_t *list = vvi_space_chunks(s, table);
    uint32_t n = vvi_space_nr_chunks(s, table);

    s->nr_free += n;
    for (uint32_t i = 0, run; i < n; i += run) {
        uint32_t c = list[i], word = c / 64;

        /* Word by word. */
        run = VV_MIN(vvi_chunks_run(list + i, n - i), 64 - c % 64);
        s->free_chunks[word] |= UINT64_MAX >> (64 - run) << c % 64;
        vvi_bit_set(s->free_words, word);
    }
}

/* ---- eviction ---- */

static void come(struct vvi_space *s, uint32_t table)
{
    s->held[table].index = s->nr;
    s->list[s->nr++] = table;
    vvi_space_next(s, table, s->held[table].next);
    s->used_bytes += s->bytes[table];
    s->used_room += vvi_space_room(s, table);
}

/* The segment at a place. */
static uint32_t seg_at(const struct vvi_space *s, uint64_t at)
{
    uint32_t low = 0, high = s->nr_segs;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (s->segs[middle].at < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Returns true if it was expendable. */
static bool unpool(struct vvi_space *s, uint32_t table)
{
    if (!vvi_bit(s->pooled, table))
        return false;
    s->pooled[table / 64] &= ~(UINT64_C(1) << table % 64);
    s->pool_bytes -= vvi_space_room(s, table);
    return true;
}

/* Removes the table from its place; the caller updates its segment. */
static void leave(struct vvi_space *s, uint32_t table)
{
    uint32_t at = s->held[table].index;

    vv_assert(s->held[table].refs == 0 && at != VVI_NONE);
    (void)unpool(s, table);
    if (at < --s->nr) {
        s->list[at] = s->list[s->nr];
        s->nexts[at] = s->nexts[s->nr];
        s->held[s->list[at]].index = at;
    }
    s->held[table].index = VVI_NONE;
    s->used_bytes -= s->bytes[table];
    s->used_room -= vvi_space_room(s, table);
    s->evicted++;
    if (s->chunked)
        free_chunks(s, table);
}

void vvi_space_drop(struct vvi_space *s, uint32_t table)
{
    if (!s->chunked) {
        uint32_t i = seg_at(s, s->held[table].at);

        vv_assert(s->segs[i].table == table);
        memmove(s->segs + i, s->segs + i + 1, (--s->nr_segs - i) * sizeof(*s->segs));
        s->holes_known = false;
    }
    leave(s, table);
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
        n = vvi_space_choose(s, end, need - freed);
        for (uint32_t i = 0; i < n; i++)
            freed += vvi_space_room(s, vvi_entry_table(s->order[i]));
        if (freed < need)
            return -EAGAIN;
    }
    for (uint32_t i = 0; i < n; i++)
        vvi_space_drop(s, vvi_entry_table(s->order[i]));
    for (uint32_t i = 0; i < nr; i++) {
        take_chunks(s, tables[i]);
        come(s, tables[i]);
    }
    return 0;
}

/* ---- flat: expendable tables ---- */

static bool expendable(const struct vvi_space *s, const struct vvi_seg *seg)
{
    return vvi_bit(s->pooled, seg->table);
}

static void pool(struct vvi_space *s, uint32_t table)
{
    vvi_bit_set(s->pooled, table);
    s->pool_bytes += vvi_space_room(s, table);
}

/* Makes tables of so many bytes, or all that may be evicted, expendable. */
static void fill_pool(struct vvi_space *s, uint32_t end, uint64_t bytes)
{
    uint32_t n;

    memset(s->pooled, 0, vv_div_up(s->tables, 64) * sizeof(*s->pooled));
    s->pool_bytes = 0;
    s->holes_known = false;
    n = vvi_space_choose(s, end, bytes);
    for (uint32_t i = 0; i < n; i++)
        pool(s, vvi_entry_table(s->order[i]));
}

/* ---- flat: holes ---- */

/* Finds holes of `least` bytes or more among the segments [from, to), whose neighbours on both sides are not
 * expendable. keep_all: only free space. Returns how many. */
static uint32_t find_holes(const struct vvi_space *s, uint32_t from, uint32_t to, uint64_t least,
                           struct vvi_hole *ret_holes)
{
    const struct vvi_seg *seg = s->segs + from, *end = s->segs + to;
    const uint64_t *pooled = s->pooled;
    uint64_t at = from ? seg[-1].at + seg[-1].bytes : 0, last;
    uint32_t n = 0, go = !s->keep_all;

    /* Without branches: they would be mispredicted. */
    for (; seg < end; seg++) {
        uint32_t goes = vvi_bit(pooled, seg->table) & go;

        ret_holes[n].at = at;
        ret_holes[n].end = seg->at;
        n += (seg->at - at >= least) > goes;
        at = goes ? at : seg->at + seg->bytes;
    }
    last = to < s->nr_segs ? seg->at : s->capacity;
    if (last - at >= least)
        ret_holes[n++] = (struct vvi_hole){at, last};
    return n;
}

/* Makes sure that the list of holes is valid: it stays valid as long as every change updates it. */
static void know_holes(struct vvi_space *s)
{
    if (!s->holes_known)
        s->nr_holes = find_holes(s, 0, s->nr_segs, s->least_room, s->holes);
    s->holes_known = true;
}

/* Finds holes again after segments have changed, all except the first `before` and the last `behind` ones. */
static void renew_holes(struct vvi_space *s, uint32_t before, uint32_t behind)
{
    uint32_t from = before, to = s->nr_segs - behind, low = 0, high, n;
    uint64_t start, end;

    while (from > 0 && expendable(s, &s->segs[from - 1]))
        from--;
    while (to < s->nr_segs && expendable(s, &s->segs[to]))
        to++;
    start = from ? s->segs[from - 1].at + s->segs[from - 1].bytes : 0;
    end = to < s->nr_segs ? s->segs[to].at : s->capacity;
    while (low < s->nr_holes && s->holes[low].end <= start)
        low++;
    for (high = low; high < s->nr_holes && s->holes[high].end <= end;)
        high++;
    n = find_holes(s, from, to, s->least_room, s->found);
    memmove(s->holes + low + n, s->holes + high, (s->nr_holes - high) * sizeof(*s->holes));
    memcpy(s->holes + low, s->found, n * sizeof(*s->holes));
    s->nr_holes += n - (high - low);
}

/* Splits a hole around a table that stays. */
static void split_hole(struct vvi_space *s, uint64_t at, uint64_t bytes)
{
    for (uint32_t i = 0; i < s->nr_holes; i++) {
        struct vvi_hole *h = &s->holes[i], behind = {at + bytes, h->end};

        if (h->end <= at)
            continue;
        if (h->at > at)
            return; /* such small holes are not listed */
        h->end = at;
        if (behind.end - behind.at >= s->least_room) {
            memmove(h + 2, h + 1, (s->nr_holes - i - 1) * sizeof(*h));
            h[1] = behind;
            s->nr_holes++;
        }
        return;
    }
}

void vvi_space_unpool(struct vvi_space *s, uint32_t table)
{
    if (unpool(s, table) && s->holes_known)
        split_hole(s, s->held[table].at, vvi_space_room(s, table));
}

/* The smallest hole that is large enough. */
static struct vvi_hole *best_hole(struct vvi_space *s, uint64_t bytes)
{
    struct vvi_hole *holes = s->holes, *best = NULL;
    uint64_t least = s->capacity + 1;

    for (uint32_t i = 0; i < s->nr_holes; i++) {
        uint64_t over = holes[i].end - holes[i].at - bytes; /* wraps around if it is too small */

        if (over < least) {
            least = over;
            best = &holes[i];
        }
    }
    return best;
}

/* The first of n segments that ends behind `at`. */
static uint32_t seg_behind(const struct vvi_seg *segs, uint32_t n, uint64_t at)
{
    const struct vvi_seg *base = segs;

    /* Without branches: they would be mispredicted. */
    while (n > 1) {
        uint32_t half = n / 2;

        base += half & -(uint32_t)(base[half - 1].at + base[half - 1].bytes <= at);
        n -= half;
    }
    return (uint32_t)(base - segs) + (n && base->at + base->bytes <= at);
}

/* Inserts a segment into the list of n, and removes expendable ones that it lies on. Returns the new number. */
static uint32_t insert(struct vvi_space *s, struct vvi_seg *segs, uint32_t n, struct vvi_seg seg)
{
    uint32_t from = seg_behind(segs, n, seg.at), to = from;

    for (; to < n && segs[to].at < seg.at + seg.bytes; to++) {
        vv_assert(expendable(s, &segs[to]));
        s->gone[s->nr_gone++] = segs[to].table;
    }
    if (to != from + 1) /* one for one is the most frequent by far */
        memmove(segs + from + 1, segs + to, (n - to) * sizeof(*segs));
    segs[from] = seg;
    return n + 1 - (to - from);
}

/* ---- flat: moving together ---- */

struct window {
    uint32_t left, right; /* the segments in it: [left, right) */
};

/* Bytes of the segment that stay if the window is used. */
static uint64_t taken_by(const struct vvi_space *s, const struct vvi_seg *seg)
{
    return expendable(s, seg) ? 0 : seg->bytes;
}

/* Cost of a place that includes the segment: a byte that may have to be brought again counts as several that
 * move. */
static uint64_t cost_of(const struct vvi_space *s, const struct vvi_seg *seg)
{
    return seg->comes ? 0 : expendable(s, seg) ? 4 * seg->bytes : seg->bytes;
}

/* Windows lie between two tables that launches use. There are many such stretches, and hardly one of them has room
 * for a large table. So first find where they are, and how many bytes are free or expendable in each, without a
 * branch that would be mispredicted. */
static void find_stretches(struct vvi_space *s, uint32_t n)
{
    const struct vvi_seg *segs = s->other;
    const uint64_t *pinned = s->pinned, *pooled = s->pooled;
    struct vvi_stretch *to = s->stretches;
    uint64_t vacant = 0, at = 0;

    for (uint32_t i = 0; i < n; i++) {
        uint64_t start = segs[i].at, bytes = segs[i].bytes, before = vacant + (start - at);
        uint32_t t = segs[i].table;
        uint64_t stuck = vvi_bit(pinned, t);

        to->vacant = before;
        to->end = i;
        to += stuck;
        vacant = (before + (bytes & -(uint64_t)vvi_bit(pooled, t))) & (stuck - 1);
        at = start + bytes;
    }
    *to = (struct vvi_stretch){vacant + s->capacity - at, n};
    s->nr_stretches = (uint32_t)(to - s->stretches) + 1;
}

static struct window stretch(const struct vvi_space *s, uint32_t i)
{
    return (struct window){i ? s->stretches[i - 1].end + 1 : 0, s->stretches[i].end};
}

/* Finds the window in the stretch with so many bytes free or expendable that costs least, if that is less than
 * *best. */
static void find_window_in(const struct vvi_space *s, uint32_t n, struct window in, uint64_t bytes,
                           uint64_t *best, struct window *ret_window)
{
    const struct vvi_seg *segs = s->other;
    uint64_t cost = 0, taken = 0;
    uint32_t l = in.left;

    for (uint32_t r = l; r <= in.right && *best > bytes; r++) {
        uint64_t end = r < n ? segs[r].at : s->capacity;

        /* From behind segment l - 1 up to segment r: shortened while it is large enough. */
        for (;; l++) {
            uint64_t start = l ? segs[l - 1].at + segs[l - 1].bytes : 0;

            if (end - start - taken < bytes)
                break;
            if (cost < *best) {
                *best = cost;
                *ret_window = (struct window){l, r};
            }
            if (l == r)
                break;
            taken -= taken_by(s, &segs[l]);
            cost -= cost_of(s, &segs[l]);
        }
        if (r == in.right)
            break;
        taken += taken_by(s, &segs[r]);
        cost += cost_of(s, &segs[r]);
    }
}

/* Finds the window with so many bytes free or expendable that costs least, or one that costs no more than the table
 * itself. */
static bool find_window(const struct vvi_space *s, uint32_t n, uint64_t bytes,
                        struct window *ret_window)
{
    uint64_t best = UINT64_MAX;

    for (uint32_t i = 0; i < s->nr_stretches && best > bytes; i++)
        if (s->stretches[i].vacant >= bytes)
            find_window_in(s, n, stretch(s, i), bytes, &best, ret_window);
    return best != UINT64_MAX;
}

/* True for tables that may be evicted here although they are not expendable. */
static bool may_go(const struct vvi_space *s, const struct vvi_seg *seg)
{
    const struct vvi_held *h = &s->held[seg->table];

    return !seg->comes && !h->refs && !h->keep && !expendable(s, seg);
}

/* The stretch with most bytes free or expendable, of those where enough can be evicted. false: there is none. */
static bool find_stretch(const struct vvi_space *s, uint64_t bytes, struct window *ret_stretch,
                         uint64_t *ret_vacant)
{
    bool found = false;

    for (uint32_t i = 0; i < s->nr_stretches; i++) {
        uint64_t vacant = s->stretches[i].vacant, most = vacant;
        struct window w;

        if (found && vacant <= *ret_vacant)
            continue;
        w = stretch(s, i);
        for (uint32_t k = w.left; most < bytes && k < w.right; k++)
            most += may_go(s, &s->other[k]) ? s->other[k].bytes : 0;
        if (most < bytes)
            continue;
        *ret_stretch = w;
        *ret_vacant = vacant;
        found = true;
    }
    return found;
}

/* If tables that stay leave no window large enough, makes more tables expendable in one stretch: those that are needed
 * last. Returns the window that this gives. */
static bool widen(struct vvi_space *s, uint32_t n, uint64_t bytes, struct window *ret_window,
                  struct window *ret_stretch)
{
    struct vvi_seg *segs = s->other;
    struct window w = {0, 0};
    uint64_t vacant = 0, best = UINT64_MAX;

    if (!find_stretch(s, bytes, &w, &vacant))
        return false;
    while (vacant < bytes) {
        struct vvi_seg *last = NULL;

        for (struct vvi_seg *seg = segs + w.left; seg < segs + w.right; seg++)
            if (may_go(s, seg) && (!last || s->held[seg->table].next > s->held[last->table].next))
                last = seg;
        vv_assert(last);
        vacant += last->bytes;
        pool(s, last->table);
    }
    find_window_in(s, n, w, bytes, &best, ret_window);
    *ret_stretch = w;
    return true;
}

/* Makes a place for the table by moving and evicting, in s->other, which has *n segments. Its own segment is in it
 * afterwards, and `before` and `behind` count those at the ends that are unchanged, expendable or not. false: no
 * window is large enough. */
static bool make_window(struct vvi_space *s, uint32_t *n, uint32_t table, uint32_t *before,
                        uint32_t *behind)
{
    struct vvi_seg *segs = s->other;
    struct window w = {0, 0}, changed;
    uint64_t at, bytes = vvi_space_room(s, table);
    uint32_t out;

    vv_assert(!s->keep_all);
    find_stretches(s, *n);
    if (find_window(s, *n, bytes, &w))
        changed = w;
    else if (!widen(s, *n, bytes, &w, &changed))
        return false;
    at = w.left ? segs[w.left - 1].at + segs[w.left - 1].bytes : 0;
    out = w.left;
    for (uint32_t i = w.left; i < w.right; i++) {
        struct vvi_seg seg = segs[i];

        if (expendable(s, &seg)) {
            s->gone[s->nr_gone++] = seg.table;
            continue;
        }
        seg.at = at;
        at += seg.bytes;
        segs[out++] = seg;
    }
    memmove(segs + out + 1, segs + w.right, (*n - w.right) * sizeof(*segs));
    segs[out] = (struct vvi_seg){at, bytes, table, true};
    *before = VV_MIN(*before, changed.left);
    *behind = VV_MIN(*behind, *n - changed.right);
    *n = out + 1 + *n - w.right;
    return true;
}

/* ---- flat ---- */

/* Sorts, the largest first. There are mostly few. */
static void sort_entries(uint64_t *entries, uint32_t n)
{
    if (n > FEW) {
        qsort(entries, n, sizeof(*entries), larger_first);
        return;
    }
    for (uint32_t i = 1; i < n; i++) {
        uint64_t entry = entries[i];
        uint32_t at = i;

        for (; at > 0 && entries[at - 1] < entry; at--)
            entries[at] = entries[at - 1];
        entries[at] = entry;
    }
}

/* Sorts tables by size, the largest first, into s->missing. */
static void sort_by_size(struct vvi_space *s, const uint32_t *tables, uint32_t nr)
{
    for (uint32_t i = 0; i < nr; i++)
        s->order[i] = vvi_space_room(s, tables[i]) / VVI_FLAT_ALIGN << TABLE_BITS | tables[i];
    sort_entries(s->order, nr);
    for (uint32_t i = 0; i < nr; i++)
        s->missing[i] = (uint32_t)s->order[i] & ((UINT32_C(1) << TABLE_BITS) - 1);
}

/* Puts a table at its segment. */
static void settle_seg(struct vvi_space *s, struct vvi_seg *seg)
{
    uint32_t t = seg->table;

    if (seg->comes)
        come(s, t);
    else if (s->held[t].at != seg->at)
        s->moves[s->nr_moves++] = (struct vvi_move){t, s->held[t].at, seg->at};
    seg->comes = false;
    s->held[t].at = seg->at;
}

/* Makes the n segments of `segs` the state of the cache. They are unchanged except for some in the middle, and for
 * the first of s->placed, which may be among these, too. */
static void take_effect(struct vvi_space *s, struct vvi_seg *segs, uint32_t n, uint32_t before,
                        uint32_t behind, uint32_t placed)
{
    for (uint32_t i = 0; i < s->nr_gone; i++)
        leave(s, s->gone[i]);
    for (uint32_t i = before; i + behind < n; i++)
        settle_seg(s, &segs[i]);
    for (uint32_t i = 0; i < placed; i++) {
        uint32_t at;

        if (!s->placed[i].comes) {
            come(s, s->placed[i].table);
            s->held[s->placed[i].table].at = s->placed[i].at;
            continue;
        }
        at = seg_behind(segs, n, s->placed[i].at);
        if (at < n && segs[at].comes)
            settle_seg(s, &segs[at]);
    }
    if (segs == s->other) {
        s->other = s->segs;
        s->segs = segs;
    }
    s->nr_segs = n;
}

/* Gives places to s->missing: free or expendable space, and, if `move`, space that other tables can move away
 * from. */
static bool arrange(struct vvi_space *s, uint32_t nr, bool move)
{
    uint32_t n = s->nr_segs, placed = 0, left = 0, before, behind;
    struct vvi_seg *segs = s->segs;
    bool fits = true;

    s->nr_gone = s->nr_moves = 0;
    if (s->keep_all) /* the kept holes include expendable space */
        s->nr_holes = find_holes(s, 0, n, vvi_space_room(s, s->missing[nr - 1]), s->holes);
    else
        know_holes(s);
    for (uint32_t i = 0; i < nr; i++) {
        uint32_t t = s->missing[i];
        uint64_t bytes = vvi_space_room(s, t);
        struct vvi_hole *hole = best_hole(s, bytes);

        if (hole) {
            s->placed[placed++] = (struct vvi_seg){hole->at, bytes, t, false};
            hole->at += bytes;
        } else {
            s->missing[left++] = t;
        }
    }
    s->holes_known = false;
    if (left > 0 && !move)
        return false;
    if (left > 0) { /* this may fail: work on a copy */
        segs = s->other;
        memcpy(segs, s->segs, n * sizeof(*segs));
    }
    for (uint32_t i = 0; i < placed; i++) {
        s->placed[i].comes = left > 0; /* otherwise its place is final */
        n = insert(s, segs, n, s->placed[i]);
    }
    before = behind = n;
    for (uint32_t i = 0; fits && i < left; i++)
        fits = make_window(s, &n, s->missing[i], &before, &behind);
    if (fits) {
        take_effect(s, segs, n, before, behind, placed);
        if (left > 0)
            renew_holes(s, before, behind);
        s->holes_known = !s->keep_all;
    }
    return fits;
}

static int place_flat(struct vvi_space *s, const uint32_t *tables, uint32_t nr, uint32_t end)
{
    uint64_t need = 0, vacant = s->capacity - s->used_room, slack = s->slack;

    for (uint32_t i = 0; i < nr; i++)
        need += vvi_space_room(s, tables[i]);
    if (vacant + s->pool_bytes >= need + slack / 2) {
        sort_by_size(s, tables, nr);
        if (arrange(s, nr, true))
            return 0;
    }
    for (;; slack = slack * 4 + VVI_FLAT_ALIGN) {
        uint64_t wanted = need + slack > vacant ? need + slack - vacant : 0;

        fill_pool(s, end, wanted);
        sort_by_size(s, tables, nr);
        if (vacant + s->pool_bytes >= need && arrange(s, nr, true))
            return 0;
        if (s->pool_bytes < wanted) /* no more may be evicted */
            return -EAGAIN;
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
    bool fits;

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
    s->keep_all = true;
    fits = arrange(s, nr, false);
    s->keep_all = false;
    return fits ? 0 : -EAGAIN;
}

static bool check_chunks(const struct vvi_space *s)
{
    uint64_t chunks = s->nr_free, n = 0;

    for (uint32_t i = 0; i < s->nr; i++) {
        uint32_t nr = vvi_space_nr_chunks(s, s->list[i]);

        if (s->held[s->list[i]].at + nr > s->chunks_end)
            return false;
        for (uint32_t k = 0; k < nr; k++) {
            uint32_t c = vvi_space_chunks(s, s->list[i])[k];

            if (c >= s->nr_chunks || vvi_bit(s->free_chunks, c))
                return false;
        }
        chunks += nr;
    }
    /* Then each is in at most one list: count all. */
    for (uint32_t c = 0; c < s->nr_chunks; c++)
        n += vvi_bit(s->free_chunks, c);
    for (uint32_t w = 0; w < vv_div_up(s->nr_chunks, 64); w++)
        if (vvi_bit(s->free_words, w) != (s->free_chunks[w] != 0))
            return false;
    return n == s->nr_free && chunks == s->nr_chunks;
}

/* Checks the hole between two tables that stay; there may be none that the smallest table fits in. */
static bool check_hole(const struct vvi_space *s, uint32_t *i, uint64_t at, uint64_t end)
{
    for (; *i < s->nr_holes && s->holes[*i].end <= end; ++*i)
        if (s->holes[*i].end > s->holes[*i].at)
            return s->holes[*i].at == at && s->holes[(*i)++].end == end;
    return end - at < s->least_room;
}

static bool check_holes(const struct vvi_space *s)
{
    uint64_t at = 0;
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->nr_segs; i++) {
        if (expendable(s, &s->segs[i]))
            continue;
        if (s->segs[i].at > at && !check_hole(s, &n, at, s->segs[i].at))
            return false;
        at = s->segs[i].at + s->segs[i].bytes;
    }
    return check_hole(s, &n, at, s->capacity) && n == s->nr_holes;
}

static bool check_segs(const struct vvi_space *s)
{
    uint64_t at = 0, pool = 0;

    for (uint32_t i = 0; i < s->nr_segs; i++) {
        const struct vvi_seg *seg = &s->segs[i];

        if (seg->at < at || seg->at != s->held[seg->table].at || seg->comes ||
            seg->bytes != vvi_space_room(s, seg->table) || s->held[seg->table].index == VVI_NONE ||
            (expendable(s, seg) && vvi_bit(s->pinned, seg->table)))
            return false;
        at = seg->at + seg->bytes;
        pool += expendable(s, seg) ? seg->bytes : 0;
    }
    return s->nr_segs == s->nr && at <= s->capacity && pool == s->pool_bytes &&
           (!s->holes_known || check_holes(s));
}

bool vvi_space_check(const struct vvi_space *s)
{
    uint64_t bytes = 0, room = 0;
    uint32_t held = 0;

    for (uint32_t i = 0; i < s->nr; i++) {
        uint32_t t = s->list[i];

        if (t >= s->tables || s->held[t].index != i || s->nexts[i] != s->held[t].next)
            return false;
        bytes += s->bytes[t];
        room += vvi_space_room(s, t);
    }
    for (uint32_t t = 0; t < s->tables; t++) {
        held += s->held[t].index != VVI_NONE;
        if ((s->held[t].index == VVI_NONE && s->held[t].refs) ||
            vvi_bit(s->pinned, t) != (s->held[t].refs > 0))
            return false;
    }
    return held == s->nr && bytes == s->used_bytes && room == s->used_room && room <= s->capacity &&
           vvi_space_check_late(s) &&
           (s->chunked ? s->nr_chunks == 0 || check_chunks(s) : check_segs(s));
}
