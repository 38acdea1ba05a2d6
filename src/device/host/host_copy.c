/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checking a batch of copies and cutting it into work for the engines.
 *
 * Each side of a copy must lie, with its whole length, in one device allocation, in one registered slice of host
 * memory, or in host memory that touches no registered slice: real drivers accept nothing else (check_copy). Callers
 * do not see slices, so a segment is cut at their borders first; one that leaves registered memory in its middle is
 * refused. Device pointers are converted to addresses here, under the lock. They stay mapped until the copy has run,
 * because mem_free waits for submitted work.
 *
 * Consecutive segments that use the same engine, and are all pinned or all not, become one item. Nothing is submitted
 * before every segment was accepted and every item allocated.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "device/host/host_private.h"

struct place {
    enum vv_mem_kind kind;
    bool pinned;
    char *map;
};

/* True if [p, p + bytes) lies within the range `r`, which holds p. */
static bool fits(const struct vvi_device_range *r, uintptr_t p, size_t bytes)
{
    size_t offset = p - r->start;

    return !r->dead && offset <= r->bytes && bytes <= r->bytes - offset;
}

/* Checks that it is device memory with its whole length in one allocation, or no device memory at all. */
static int check_alloc(const struct vvi_device_host *d, const void *ptr, size_t bytes)
{
    uintptr_t p = (uintptr_t)ptr;
    const struct vvi_device_range *r = vvi_device_ranges_find(&d->allocs, p);

    if (r ? !fits(r, p, bytes) : vvi_device_ranges_touches(&d->allocs, p, bytes))
        return -EFAULT;
    return 0;
}

static int place_of(const struct vvi_device_host *d, const void *ptr, size_t bytes,
                    struct place *ret_place)
{
    uintptr_t p = (uintptr_t)ptr;
    const struct vvi_device_range *r;

    if (!ptr)
        return -EINVAL;
    if (check_alloc(d, ptr, bytes))
        return -EFAULT;
    r = vvi_device_ranges_find(&d->allocs, p);
    if (r) {
        *ret_place = (struct place){VV_MEM_DEVICE, true, (char *)r->map + (p - r->start)};
        return 0;
    }
    r = vvi_device_ranges_find(&d->slices, p);
    if (r ? !fits(r, p, bytes) : vvi_device_ranges_touches(&d->slices, p, bytes))
        return -EINVAL;
    *ret_place = (struct place){VV_MEM_HOST, r != NULL, (char *)p};
    return 0;
}

struct checked {
    struct vv_copy_seg seg;
    unsigned engine;
    bool pageable;
};

/* Checks as a driver does: one copy, without crossing borders. */
static int check_copy(const struct vvi_device_host *d, const struct vv_copy_seg *seg,
                      struct checked *ret_checked)
{
    struct place dst, src;
    unsigned engine;
    int rc;

    rc = place_of(d, seg->dst, seg->bytes, &dst);
    if (!rc)
        rc = place_of(d, seg->src, seg->bytes, &src);
    if (rc)
        return rc;
    if (dst.kind == VV_MEM_HOST && src.kind == VV_MEM_HOST)
        return -EINVAL;
    if (dst.kind == VV_MEM_HOST)
        engine = VV_DEVICE_HOST_D2H;
    else
        engine = src.kind == VV_MEM_HOST ? VV_DEVICE_HOST_H2D : VV_DEVICE_HOST_D2D;
    *ret_checked = (struct checked){
        .seg = {.dst = dst.map, .src = src.map, .bytes = seg->bytes},
        .engine = engine,
        .pageable = !dst.pinned || !src.pinned,
    };
    return 0;
}

int vvi_device_copy_check(const struct vvi_device_host *d, const struct vv_copy_seg *seg)
{
    struct checked checked;

    return check_copy(d, seg, &checked);
}

/* The copies of one batch. */
struct batch {
    struct checked few[8];
    struct checked *v; /* `few`, or allocated */
    size_t n, cap;
};

static int batch_add(struct batch *b, const struct checked *c)
{
    if (b->n == b->cap) {
        size_t cap = b->cap * 2;
        struct checked *v = malloc(cap * sizeof(*v));

        if (!v)
            return -ENOMEM;
        memcpy(v, b->v, b->n * sizeof(*v));
        if (b->v != b->few)
            free(b->v);
        b->v = v;
        b->cap = cap;
    }
    b->v[b->n++] = *c;
    return 0;
}

/* Bytes from `ptr` to the end of the registered slice that contains it; SIZE_MAX: none does. */
static size_t slice_left(const struct vvi_device_host *d, const void *ptr)
{
    uintptr_t p = (uintptr_t)ptr;
    const struct vvi_device_range *r = vvi_device_ranges_find(&d->slices, p);

    return r ? r->bytes - (p - r->start) : SIZE_MAX;
}

/* Cuts a segment at the borders of registered slices. */
static int split_seg(const struct vvi_device_host *d, const struct vv_copy_seg *seg,
                     struct batch *b)
{
    /* Check before cutting: memory beyond the end of an allocation may look like host memory. */
    if (seg->bytes &&
        (check_alloc(d, seg->dst, seg->bytes) || check_alloc(d, seg->src, seg->bytes)))
        return -EFAULT;
    for (size_t at = 0; at < seg->bytes;) {
        struct vv_copy_seg part = {(char *)seg->dst + at, (const char *)seg->src + at,
                                   seg->bytes - at};
        struct checked c;
        int rc;

        part.bytes = VV_MIN(part.bytes, slice_left(d, part.dst));
        part.bytes = VV_MIN(part.bytes, slice_left(d, part.src));
        rc = check_copy(d, &part, &c);
        if (!rc && at && c.pageable)
            rc = -EINVAL; /* it goes beyond the last slice */
        if (!rc)
            rc = batch_add(b, &c);
        if (rc)
            return rc;
        at += part.bytes;
    }
    return 0;
}

static struct vvi_device_item *make_item(const struct checked *c, size_t n, int fail_err)
{
    struct vvi_device_item *it = vvi_device_item_new(VVI_DEVICE_ITEM_COPY, n);

    if (!it)
        return NULL;
    it->engine = c[0].engine;
    it->pageable = c[0].pageable;
    it->fail_err = fail_err;
    it->n_segs = n;
    for (size_t i = 0; i < n; i++) {
        it->segs[i] = c[i].seg;
        it->bytes += c[i].seg.bytes;
    }
    return it;
}

/* -ENOMEM, or 0 with a chain of items in order. */
static int make_items(struct vvi_device_host *d, const struct checked *c, size_t n, int fail_err,
                      struct vvi_device_item **ret_chain)
{
    struct vvi_device_item *chain = NULL;
    struct vvi_device_item **link = &chain;

    for (size_t first = 0, end; first < n; first = end) {
        end = first + 1;
        while (end < n && c[end].engine == c[first].engine && c[end].pageable == c[first].pageable)
            end++;
        *link = make_item(&c[first], end - first, fail_err);
        if (!*link) {
            vvi_device_items_free(d, chain);
            return -ENOMEM;
        }
        link = &(*link)->next;
    }
    *ret_chain = chain;
    return 0;
}

static int copy_locked(struct vvi_device_host *d, struct vv_stream *s,
                       const struct vv_copy_seg *segs, size_t n_segs, struct batch *b)
{
    struct vvi_device_item *chain;
    bool pageable = false;
    int rc = 0;

    for (size_t i = 0; i < n_segs && !rc; i++)
        rc = split_seg(d, &segs[i], b);
    if (rc || !b->n)
        return rc;
    rc = make_items(d, b->v, b->n, vvi_device_async_error_locked(d), &chain);
    if (rc)
        return rc;
    for (size_t i = 0; i < b->n; i++)
        pageable |= b->v[i].pageable;
    vvi_device_submit_locked(d, s, chain);
    return pageable ? vvi_device_sync_locked(d, s) : 0;
}

int vvi_device_copy_async(struct vv_device *dev, struct vv_stream *s,
                          const struct vv_copy_seg *segs, size_t n_segs)
{
    struct vvi_device_host *d = vvi_device_host_of(dev);
    struct batch b = {.cap = VV_ARRAY_SIZE(b.few)};
    int rc = vvi_device_enter(d, VV_DEVICE_OP_COPY_ASYNC);

    if (rc)
        return rc;
    b.v = b.few;
    rc = copy_locked(d, s, segs, n_segs, &b);
    vvi_device_leave(d);
    if (b.v != b.few)
        free(b.v);
    return rc;
}
