/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which tables are needed last.
 *
 * The tables whose next use is farthest away are evicted first. They are the last of a sorted list, a few steps from
 * its end: tables that launches hold lie between them. The list has the tables that may be evicted soon, for some ten
 * batches; `floor` separates them from the rest. A table enters it when its next use is set to one beyond the floor
 * (vvi_space_next), at first unsorted. Outdated entries, whose table was evicted or used, are removed when the
 * search reaches them.
 *
 * With time the next uses of all tables get beyond the floor, and the list is shortened. When it is too short, or has
 * changed much, all tables in the cache are searched.
 */
#include <stdlib.h>
#include <string.h>

#include "ooc/tables_private.h"

/* The part of the cache whose tables are listed as those that may be evicted soon: enough for some ten batches. */
enum { LATE_PART = 16 };
/* The list is made again when it has so many more entries, or this part of all tables. */
enum { LATE_MORE = 256, LATE_MORE_PART = 16 };

/* Moves the largest entries to the front, until their tables have enough bytes; returns how many. Works as
 * quickselect, by weight: the front is not sorted. */
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
                front += vvi_space_room(s, vvi_entry_table(e));
            }
        if (front <= bytes) {
            bytes -= front;
            low = at;
        } else if (at - low == 1) {
            return at;
        } else {
            /* The pivot goes behind the larger ones, which may be enough without it. */
            for (i = low; entries[i] != pivot; i++)
                ;
            entries[i] = entries[at - 1];
            entries[at - 1] = pivot;
            front -= vvi_space_room(s, vvi_entry_table(pivot));
            if (front >= bytes) {
                high = at - 1;
            } else {
                return at;
            }
        }
    }
    return low;
}

static uint32_t late_more(const struct vvi_space *s)
{
    return VV_MIN(LATE_MORE, s->tables / LATE_MORE_PART);
}

static uint64_t entry_of(const struct vvi_space *s, uint32_t table, uint32_t next)
{
    return (uint64_t)(next >= s->late_end ? VVI_NONE : next) << 32 | table;
}

/* The next use from which tables are listed: the floor. Uses at the end of the run or behind are beyond every floor. */
static uint32_t late_from(const struct vvi_space *s)
{
    return VV_MIN((uint32_t)(s->floor >> 32), s->late_end);
}

/* True if the entry is still up to date. */
static bool valid(const struct vvi_space *s, uint64_t entry)
{
    const struct vvi_held *h = &s->held[vvi_entry_table(entry)];

    return h->index != VVI_NONE && entry_of(s, vvi_entry_table(entry), h->next) == entry;
}

static int smaller_first(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* Lists tables that are needed last: `bytes` of those that may be evicted now, and all others that are needed as
 * late. */
static void list_late(struct vvi_space *s, uint32_t end, uint64_t bytes)
{
    uint32_t n = 0, most;

    s->late_end = end;
    for (uint32_t i = 0; i < s->nr_fresh; i++)
        s->held[s->fresh[i]].fresh = false;
    s->nr_fresh = s->nr_late = 0;
    for (uint32_t i = 0; i < s->nr; i++)
        if (!vvi_bit(s->pinned, s->list[i]))
            s->order[n++] = entry_of(s, s->list[i], s->nexts[i]);
    most = select_largest(s, s->order, n, bytes);
    s->floor = most < n ? UINT64_MAX : 0;
    for (uint32_t i = 0; i < most; i++)
        s->floor = VV_MIN(s->floor, s->order[i]);
    s->late_from = late_from(s);
    for (uint32_t i = 0; i < s->nr; i++) {
        uint64_t entry = entry_of(s, s->list[i], s->nexts[i]);

        if (entry >= s->floor)
            s->late[s->nr_late++] = entry;
    }
    qsort(s->late, s->nr_late, sizeof(*s->late), smaller_first);
    s->late_most = 2 * s->nr_late + late_more(s);
}

/* Removes outdated entries. */
static void clean_late(struct vvi_space *s)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->nr_late; i++)
        if (valid(s, s->late[i]))
            s->late[n++] = s->late[i];
    s->nr_late = n;
}

/* Sorts in the tables whose next use has become known since. */
static void merge_fresh(struct vvi_space *s)
{
    for (uint32_t i = 0; i < s->nr_fresh; i++) {
        uint32_t t = s->fresh[i], low = 0, high;
        uint64_t entry = entry_of(s, t, s->held[t].next);

        s->held[t].fresh = false;
        if (s->held[t].index == VVI_NONE || entry < s->floor)
            continue;
        if (s->nr_late == s->tables)
            clean_late(s);
        for (high = s->nr_late; low < high;) {
            uint32_t middle = low + (high - low) / 2;

            if (s->late[middle] < entry)
                low = middle + 1;
            else
                high = middle;
        }
        if (low < s->nr_late && s->late[low] == entry)
            continue;
        memmove(s->late + low + 1, s->late + low, (s->nr_late - low) * sizeof(*s->late));
        s->late[low] = entry;
        s->nr_late++;
    }
    s->nr_fresh = 0;
}

/* Raises the floor, because with time the next uses of all tables get beyond it. */
static void shorten_late(struct vvi_space *s)
{
    uint32_t n = VV_MAX(s->late_most / 2, 1);

    memmove(s->late, s->late + s->nr_late - n, n * sizeof(*s->late));
    s->nr_late = n;
    s->floor = s->late[0];
    s->late_from = late_from(s);
}

/* Copies tables of the list that may be evicted, last ones first, to s->order until they have enough bytes. Returns how
 * many. */
static uint32_t take_late(struct vvi_space *s, uint64_t bytes, uint64_t *ret_bytes)
{
    const uint64_t gone = UINT64_MAX; /* not a valid entry */
    uint64_t got = 0;
    uint32_t n = 0, i = s->nr_late, left;

    while (i > 0 && got < bytes) {
        uint64_t entry = s->late[--i];

        if (vvi_bit(s->pinned, vvi_entry_table(entry)))
            continue;
        if (!valid(s, entry)) {
            s->late[i] = gone;
        } else if (!s->held[vvi_entry_table(entry)].keep) {
            s->order[n++] = entry;
            got += vvi_space_room(s, vvi_entry_table(entry));
        }
    }
    for (left = i; i < s->nr_late; i++) {
        s->late[left] = s->late[i];
        left += s->late[i] != gone;
    }
    s->nr_late = left;
    *ret_bytes = got;
    return n;
}

uint32_t vvi_space_choose(struct vvi_space *s, uint32_t end, uint64_t bytes)
{
    uint64_t found, enough = VV_MAX(2 * bytes, s->capacity / LATE_PART);
    uint32_t n;

    if (end != s->late_end || s->nr_fresh > late_more(s))
        list_late(s, end, enough);
    else
        merge_fresh(s);
    if (s->nr_late > s->late_most)
        shorten_late(s);
    n = take_late(s, bytes, &found);
    /* Some of the counted tables are used by the current batch. */
    for (; found < bytes && s->floor > 0; enough = UINT64_MAX) {
        list_late(s, end, enough);
        n = take_late(s, bytes, &found);
    }
    return n;
}

/* Checks that the list is in order, except for entries that are still to be sorted in. */
bool vvi_space_check_late(const struct vvi_space *s)
{
    uint32_t fresh = 0, late = 0;

    for (uint32_t t = 0; t < s->tables; t++) {
        const struct vvi_held *h = &s->held[t];

        late += h->index != VVI_NONE && !h->fresh && entry_of(s, t, h->next) >= s->floor;
        fresh += h->fresh;
    }
    for (uint32_t i = 0; i < s->nr_fresh; i++)
        if (!s->held[s->fresh[i]].fresh)
            return false;
    for (uint32_t i = 0; i < s->nr_late; i++) {
        if (i > 0 && s->late[i - 1] >= s->late[i])
            return false;
        late -= valid(s, s->late[i]) && !s->held[vvi_entry_table(s->late[i])].fresh;
    }
    return late == 0 && fresh == s->nr_fresh;
}
