/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sorted array under a sequence lock. Every copy looks up each of its addresses here while the
 * host cache is still being registered slice by slice, so readers must neither wait for one another
 * nor write to memory that they share.
 *
 * Invariant: `seq` is even when the table is at rest. A writer makes it odd, changes entries, and makes it even
 * again; a reader that saw an odd number, or a different one after reading than before, reads again. Entries are
 * written with release and read with acquire order: so a reader that got one new word also sees the odd number when
 * it reads `seq` the second time. Until then a reader may see a mixture of words, which must not lead it outside of
 * the array: it stays below `cap` of the table it has, and a table that was replaced by a larger one is kept until
 * the end.
 *
 * The caller's lock serialises writers.
 */
#include "device/cuda/cuda_ranges.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"

struct entry {
    _Atomic uintptr_t start, last;
    _Atomic int kind;
};

struct vvi_cuda_table {
    struct vvi_cuda_table *old; /* the previous one, kept for its readers */
    _Atomic size_t n;
    size_t cap; /* immutable */
    struct entry v[];
};

#define FIRST_CAP 64

void vvi_cuda_ranges_init(struct vvi_cuda_ranges *r)
{
    atomic_init(&r->seq, 0);
    atomic_init(&r->table, NULL);
}

void vvi_cuda_ranges_fini(struct vvi_cuda_ranges *r)
{
    struct vvi_cuda_table *t = atomic_load_explicit(&r->table, memory_order_relaxed);

    while (t) {
        struct vvi_cuda_table *old = t->old;

        free(t);
        t = old;
    }
    atomic_store_explicit(&r->table, NULL, memory_order_relaxed);
}

static uintptr_t get(const _Atomic uintptr_t *word)
{
    return atomic_load_explicit(word, memory_order_acquire);
}

static struct vvi_cuda_range get_entry(const struct entry *e)
{
    return (struct vvi_cuda_range){
        get(&e->start), get(&e->last),
        (enum vvi_cuda_range_kind)atomic_load_explicit(&e->kind, memory_order_acquire)};
}

static void put_entry(struct entry *e, struct vvi_cuda_range range)
{
    atomic_store_explicit(&e->start, range.start, memory_order_release);
    atomic_store_explicit(&e->last, range.last, memory_order_release);
    atomic_store_explicit(&e->kind, (int)range.kind, memory_order_release);
}

/* Index of the first range that ends at or after `p`. Bisection without a branch: its direction cannot be predicted,
 * and a misprediction costs more than the rest of the step. */
static size_t first_reaching(const struct vvi_cuda_table *t, size_t n, uintptr_t p)
{
    size_t first = 0;

    while (n > 1) {
        size_t half = n / 2;

        first += (size_t)(get(&t->v[first + half - 1].last) < p) * half;
        n -= half;
    }
    return n ? first + (get(&t->v[first].last) < p) : 0;
}

static struct vvi_cuda_range find_once(const struct vvi_cuda_table *t, uintptr_t p)
{
    struct vvi_cuda_range gap = {0, UINTPTR_MAX, VVI_CUDA_NONE};
    size_t n, i;

    if (!t)
        return gap;
    n = atomic_load_explicit(&t->n, memory_order_acquire);
    i = first_reaching(t, n, p);
    if (i < n) {
        struct vvi_cuda_range range = get_entry(&t->v[i]);

        if (range.start <= p)
            return range;
        gap.last = range.start - 1;
    }
    if (i > 0)
        gap.start = get(&t->v[i - 1].last) + 1;
    return gap;
}

struct vvi_cuda_range vvi_cuda_ranges_find(const struct vvi_cuda_ranges *r, uintptr_t p)
{
    for (;;) {
        uint64_t seq = atomic_load_explicit(&r->seq, memory_order_acquire);
        struct vvi_cuda_range range;

        if (seq & 1)
            continue;
        range = find_once(atomic_load_explicit(&r->table, memory_order_acquire), p);
        /* Relaxed: the acquire loads of the entries keep it behind them. */
        if (atomic_load_explicit(&r->seq, memory_order_relaxed) == seq)
            return range;
    }
}

static void change_begin(struct vvi_cuda_ranges *r)
{
    uint64_t seq = atomic_load_explicit(&r->seq, memory_order_relaxed);

    vv_assert(!(seq & 1));
    /* Relaxed: the release stores of the entries keep it before them. */
    atomic_store_explicit(&r->seq, seq + 1, memory_order_relaxed);
}

static void change_end(struct vvi_cuda_ranges *r)
{
    uint64_t seq = atomic_load_explicit(&r->seq, memory_order_relaxed);

    /* Pairs with the first load of `seq` in vvi_cuda_ranges_find. */
    atomic_store_explicit(&r->seq, seq + 1, memory_order_release);
}

/* A table with room for one more. */
static int table_with_room(struct vvi_cuda_ranges *r, struct vvi_cuda_table **ret_table)
{
    struct vvi_cuda_table *t = atomic_load_explicit(&r->table, memory_order_relaxed);
    size_t n = t ? atomic_load_explicit(&t->n, memory_order_relaxed) : 0;
    size_t cap = t ? 2 * t->cap : FIRST_CAP;
    struct vvi_cuda_table *bigger;

    if (t && n < t->cap) {
        *ret_table = t;
        return 0;
    }
    bigger = calloc(1, sizeof(*bigger) + cap * sizeof(bigger->v[0]));
    if (!bigger)
        return -ENOMEM;
    bigger->old = t;
    bigger->cap = cap;
    for (size_t i = 0; i < n; i++)
        put_entry(&bigger->v[i], get_entry(&t->v[i]));
    atomic_store_explicit(&bigger->n, n, memory_order_relaxed);
    /* It has the same ranges: a reader finds the same in either table. */
    atomic_store_explicit(&r->table, bigger, memory_order_release);
    *ret_table = bigger;
    return 0;
}

int vvi_cuda_ranges_add(struct vvi_cuda_ranges *r, enum vvi_cuda_range_kind kind, const void *ptr,
                        size_t bytes)
{
    struct vvi_cuda_range range = {(uintptr_t)ptr, (uintptr_t)ptr + (bytes - 1), kind};
    struct vvi_cuda_range around = vvi_cuda_ranges_find(r, range.start);
    struct vvi_cuda_table *t;
    size_t n, at;
    int rc;

    vv_assert(bytes > 0 && range.last >= range.start);
    if (around.kind != VVI_CUDA_NONE || around.last < range.last)
        return -EEXIST;
    rc = table_with_room(r, &t);
    if (rc)
        return rc;
    n = atomic_load_explicit(&t->n, memory_order_relaxed);
    at = first_reaching(t, n, range.start);
    change_begin(r);
    for (size_t i = n; i > at; i--)
        put_entry(&t->v[i], get_entry(&t->v[i - 1]));
    put_entry(&t->v[at], range);
    atomic_store_explicit(&t->n, n + 1, memory_order_release);
    change_end(r);
    return 0;
}

int vvi_cuda_ranges_remove(struct vvi_cuda_ranges *r, enum vvi_cuda_range_kind kind,
                           const void *ptr)
{
    struct vvi_cuda_table *t = atomic_load_explicit(&r->table, memory_order_relaxed);
    struct vvi_cuda_range range = vvi_cuda_ranges_find(r, (uintptr_t)ptr);
    size_t n, at;

    if (range.kind != kind || range.start != (uintptr_t)ptr)
        return -EINVAL;
    n = atomic_load_explicit(&t->n, memory_order_relaxed);
    at = first_reaching(t, n, range.start);
    change_begin(r);
    for (size_t i = at; i + 1 < n; i++)
        put_entry(&t->v[i], get_entry(&t->v[i + 1]));
    atomic_store_explicit(&t->n, n - 1, memory_order_release);
    change_end(r);
    return 0;
}

struct vvi_cuda_range vvi_cuda_ranges_first(const struct vvi_cuda_ranges *r,
                                            enum vvi_cuda_range_kind kind)
{
    struct vvi_cuda_table *t = atomic_load_explicit(&r->table, memory_order_relaxed);
    size_t n = t ? atomic_load_explicit(&t->n, memory_order_relaxed) : 0;

    for (size_t i = 0; i < n; i++) {
        struct vvi_cuda_range range = get_entry(&t->v[i]);

        if (range.kind == kind)
            return range;
    }
    return (struct vvi_cuda_range){0, 0, VVI_CUDA_NONE};
}
