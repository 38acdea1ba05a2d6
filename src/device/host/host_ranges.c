/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sorted array: the lookups of every copy are a binary search; adding and removing are rare and may move entries.
 * Invariant: ranges are disjoint (by `reserved`) and ordered by start. No lock of its own; the device's lock covers
 * it.
 */
#include "device/host/host_ranges.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

void vvi_device_ranges_fini(struct vvi_device_ranges *r)
{
    free(r->v);
    *r = (struct vvi_device_ranges){0};
}

/* Index of the first range that ends after `p`. */
static size_t first_ending_after(const struct vvi_device_ranges *r, uintptr_t p)
{
    size_t lo = 0;
    size_t hi = r->n;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (r->v[mid].start + (r->v[mid].reserved - 1) >= p)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

struct vvi_device_range *vvi_device_ranges_find(const struct vvi_device_ranges *r, uintptr_t p)
{
    size_t i = first_ending_after(r, p);

    return i < r->n && r->v[i].start <= p ? &r->v[i] : NULL;
}

bool vvi_device_ranges_touches(const struct vvi_device_ranges *r, uintptr_t p, size_t bytes)
{
    uintptr_t last;
    size_t i;

    if (!bytes)
        return false;
    last = bytes - 1 > UINTPTR_MAX - p ? UINTPTR_MAX : p + (bytes - 1);
    i = first_ending_after(r, p);
    return i < r->n && r->v[i].start <= last;
}

int vvi_device_ranges_reserve(struct vvi_device_ranges *r)
{
    size_t cap;
    void *v;

    if (r->n < r->cap)
        return 0;
    cap = r->cap ? 2 * r->cap : 16;
    v = realloc(r->v, cap * sizeof(*r->v));
    if (!v)
        return -ENOMEM;
    r->v = v;
    r->cap = cap;
    return 0;
}

void vvi_device_ranges_add(struct vvi_device_ranges *r, struct vvi_device_range range)
{
    size_t i = first_ending_after(r, range.start);

    vv_assert(r->n < r->cap);
    vv_assert(range.bytes && range.bytes <= range.reserved);
    vv_assert(!vvi_device_ranges_touches(r, range.start, range.reserved));
    memmove(&r->v[i + 1], &r->v[i], (r->n - i) * sizeof(*r->v));
    r->v[i] = range;
    r->n++;
}

void vvi_device_ranges_remove(struct vvi_device_ranges *r, uintptr_t start)
{
    size_t i = first_ending_after(r, start);

    vv_assert(i < r->n && r->v[i].start == start);
    memmove(&r->v[i], &r->v[i + 1], (r->n - i - 1) * sizeof(*r->v));
    r->n--;
}
