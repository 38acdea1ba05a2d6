/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One batch of copies: checked first, then submitted.
 *
 * The check cuts each segment where a registered slice of host memory ends, because the driver refuses a copy that
 * touches two of them, and finds the direction of every piece. Nothing has been submitted when one of them is
 * refused. A batch that stays within the device has nothing to be cut, and no list is made of it. Pieces of one batch
 * may run in any order, so those of one direction are submitted together, in the fastest form. Within the device that
 * is a kernel of ours, if it was built: many small copies take thirty times as long one by one, and a large one takes
 * 5 to 9% longer by the driver, whose copies need multiprocessors as well. Over the link it is the driver's batched
 * copy, which keeps the link busy with pieces of one page; or for a single piece a plain copy.
 *
 * Host memory that is not registered is copied synchronously: cuMemcpyAsync returns before the end for some sizes and
 * directions, and after our call the caller may reuse its memory.
 *
 * Failures: the driver refuses a piece half-way through a batch although the check accepted it, or runs out of
 * memory. A caller that gets an error may free the memory at once, so the pieces before it are waited for.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cuda_private.h"
#include "device/cuda/gather.h"
#include "device/cuda/kernels.h"

enum direction { D2D, H2D, D2H, PAGEABLE, DIRECTIONS };

#define FEW       160 /* more than the engine's batches have; above that, memory is allocated */
#define PART_SIZE 160

struct batch {
    struct vvi_cuda *d;
    struct vvi_cuda_place dst, src; /* of the last segment; the next is often in the same place */
    struct vv_copy_seg *seg;
    uint8_t *direction;
    size_t n, cap;
    size_t count[DIRECTIONS];
    bool begun;   /* the driver may have taken some of it */
    bool managed; /* some of it is managed memory */
    struct vv_copy_seg few_seg[FEW];
    uint8_t few_direction[FEW];
};

static void batch_init(struct batch *b, struct vvi_cuda *d)
{
    b->d = d;
    b->dst.known = b->src.known = false;
    b->seg = b->few_seg;
    b->direction = b->few_direction;
    b->n = 0;
    b->cap = FEW;
    b->begun = b->managed = false;
    memset(b->count, 0, sizeof(b->count));
}

static void batch_fini(struct batch *b)
{
    if (b->seg != b->few_seg) {
        free(b->seg);
        free(b->direction);
    }
}

static int batch_grow(struct batch *b)
{
    struct vv_copy_seg *seg = calloc(2 * b->cap, sizeof(*seg));
    uint8_t *direction = calloc(2 * b->cap, sizeof(*direction));

    if (!seg || !direction) {
        free(seg);
        free(direction);
        return vvi_cuda_refuse(b->d, -ENOMEM);
    }
    memcpy(seg, b->seg, b->n * sizeof(*seg));
    memcpy(direction, b->direction, b->n * sizeof(*direction));
    batch_fini(b);
    b->seg = seg;
    b->direction = direction;
    b->cap *= 2;
    return 0;
}

static int batch_add(struct batch *b, enum direction direction, char *dst, const char *src,
                     size_t bytes)
{
    if (b->n == b->cap) {
        int rc = batch_grow(b);

        if (rc)
            return rc;
    }
    b->seg[b->n] = (struct vv_copy_seg){dst, src, bytes};
    b->direction[b->n] = (uint8_t)direction;
    b->count[direction]++;
    b->n++;
    return 0;
}

/* ---- looking ---- */

static int locate(struct batch *b, const char *ptr, struct vvi_cuda_place *place)
{
    uintptr_t p = (uintptr_t)ptr;
    int rc;

    if (place->known && p >= place->start && p <= place->last)
        return 0;
    rc = vvi_cuda_place_of(b->d, ptr, place);
    b->managed |= !rc && place->managed;
    return rc;
}

/* How much of the next `bytes` can be copied at once for this side. `first`: it begins the segment; the rest of a
 * segment that began in registered memory must be registered too. */
static int extent_of(struct vvi_cuda *d, const struct vvi_cuda_place *place, const char *ptr,
                     size_t bytes, bool first, size_t *ret_bytes)
{
    size_t beyond = place->last - (uintptr_t)ptr; /* the first byte not counted */
    struct vvi_cuda_place end;
    int rc;

    if (place->kind == VV_MEM_DEVICE) {
        if (beyond < bytes - 1)
            return vvi_cuda_refuse(d, -EFAULT);
        *ret_bytes = bytes;
        return 0;
    }
    if (place->pinned) {
        *ret_bytes = beyond < bytes - 1 ? beyond + 1 : bytes;
        return 0;
    }
    if (!first || beyond < bytes - 1)
        return vvi_cuda_refuse(d, -EINVAL);
    rc = vvi_cuda_place_of(d, ptr + (bytes - 1), &end);
    if (rc)
        return rc;
    if (end.kind != VV_MEM_HOST || end.pinned)
        return vvi_cuda_refuse(d, -EINVAL);
    *ret_bytes = bytes;
    return 0;
}

static enum direction direction_of(const struct vvi_cuda_place *dst,
                                   const struct vvi_cuda_place *src)
{
    if (!dst->pinned || !src->pinned)
        return PAGEABLE;
    if (dst->kind == VV_MEM_HOST)
        return D2H;
    return src->kind == VV_MEM_HOST ? H2D : D2D;
}

static int look_at(struct batch *b, const struct vv_copy_seg *seg)
{
    char *dst = seg->dst;
    const char *src = seg->src;
    size_t left = seg->bytes;

    if (left && (!dst || !src))
        return vvi_cuda_refuse(b->d, -EINVAL);
    while (left > 0) {
        bool first = left == seg->bytes;
        size_t dst_bytes, src_bytes, n;
        int rc = locate(b, dst, &b->dst);

        if (!rc)
            rc = locate(b, src, &b->src);
        if (rc)
            return rc;
        if (b->dst.kind == VV_MEM_HOST && b->src.kind == VV_MEM_HOST)
            return vvi_cuda_refuse(b->d, -EINVAL);
        rc = extent_of(b->d, &b->dst, dst, left, first, &dst_bytes);
        if (!rc)
            rc = extent_of(b->d, &b->src, src, left, first, &src_bytes);
        if (rc)
            return rc;
        n = VV_MIN(dst_bytes, src_bytes);
        rc = batch_add(b, direction_of(&b->dst, &b->src), dst, src, n);
        if (rc)
            return rc;
        dst += n;
        src += n;
        left -= n;
    }
    return 0;
}

/* A range of device memory. */
struct extent {
    uintptr_t start;
    size_t bytes; /* 0: none */
};

static inline bool holds(struct extent x, const void *ptr, size_t bytes)
{
    uintptr_t offset = (uintptr_t)ptr - x.start;

    return offset < x.bytes && bytes - 1 < x.bytes - offset;
}

/* The range that contains the segment's one side. Empty: it is not within one, or has to be refused. */
static int find_within(struct batch *b, const char *ptr, size_t bytes, struct vvi_cuda_place *place,
                       struct extent *ret_extent)
{
    struct extent x;
    int rc;

    *ret_extent = (struct extent){0};
    if (!bytes || !ptr)
        return 0;
    rc = locate(b, ptr, place);
    if (rc || place->kind != VV_MEM_DEVICE)
        return rc;
    x = (struct extent){place->start, place->last - place->start + 1};
    if (!place->known) /* valid for this segment only */
        x = (struct extent){(uintptr_t)ptr, VV_MIN(bytes, place->last - (uintptr_t)ptr + 1)};
    if (holds(x, ptr, bytes))
        *ret_extent = x;
    return 0;
}

/* True if on either side each segment lies in one range of device memory, as with a request that hits the device
 * cache: such a batch has one direction and nothing to cut, so no list of it has to be made. False at the first
 * segment that does not, or that may have to be refused. */
static int look_within(struct batch *b, const struct vv_copy_seg *segs, size_t n, bool *ret_within)
{
    struct extent dst = {0}, src = {0};
    int rc = 0;

    *ret_within = false;
    for (const struct vv_copy_seg *s = segs; s < segs + n; s++) {
        if (holds(dst, s->dst, s->bytes) && holds(src, s->src, s->bytes))
            continue;
        rc = find_within(b, s->dst, s->bytes, &b->dst, &dst);
        if (!rc && dst.bytes)
            rc = find_within(b, s->src, s->bytes, &b->src, &src);
        if (rc || !dst.bytes || !src.bytes)
            return rc;
    }
    *ret_within = n > 0;
    return 0;
}

/* ---- submitting ---- */

static CUdeviceptr address(const void *ptr)
{
    return (CUdeviceptr)(uintptr_t)ptr;
}

static int copy_each(struct batch *b, CUstream stream, const struct vv_copy_seg *seg, size_t n)
{
    struct vvi_cuda *d = b->d;
    int rc = 0;

    for (size_t i = 0; i < n && !rc; i++) {
        rc = vvi_cuda_status(d, d->drv.cuMemcpyAsync(address(seg[i].dst), address(seg[i].src),
                                                     seg[i].bytes, stream));
        b->begun |= !rc;
    }
    return rc;
}

/* -ENOTSUP: the driver has no batched copy, or refuses it. */
static int copy_batched(struct batch *b, CUstream stream, const struct vv_copy_seg *seg, size_t n)
{
    struct vvi_cuda *d = b->d;
    struct vvi_cu_copy_attributes attributes = {.src_access_order = VVI_CU_SRC_ACCESS_STREAM};
    CUdeviceptr dst[PART_SIZE], src[PART_SIZE];
    size_t bytes[PART_SIZE];
    size_t first = 0, failed = 0;

    /* The driver does not accept batches on the legacy default stream. */
    if (!stream || (!d->drv.cuMemcpyBatchAsync && !d->drv.cuMemcpyBatchAsync_v12080))
        return -ENOTSUP;
    for (size_t done = 0, part; done < n; done += part) {
        unsigned int code;
        int rc;

        part = VV_MIN(n - done, (size_t)PART_SIZE);
        for (size_t i = 0; i < part; i++) {
            dst[i] = address(seg[done + i].dst);
            src[i] = address(seg[done + i].src);
            bytes[i] = seg[done + i].bytes;
        }
        code =
            d->drv.cuMemcpyBatchAsync
                ? d->drv.cuMemcpyBatchAsync(dst, src, bytes, part, &attributes, &first, 1, stream)
                : d->drv.cuMemcpyBatchAsync_v12080(dst, src, bytes, part, &attributes, &first, 1,
                                                   &failed, stream);
        rc = vvi_cuda_status(d, code);
        if (rc)
            return rc;
        b->begun = true;
    }
    return 0;
}

/* True if our kernel is faster than the driver's copy of a single piece: not if it would have to copy parts of words,
 * and not if pages may have to come from the host first, which the driver does better. */
static bool by_kernel(const struct batch *b, const struct vv_copy_seg *seg)
{
    return ((uintptr_t)seg->dst | (uintptr_t)seg->src) % 16 == 0 && !b->managed;
}

static int copy_by_kernel(struct batch *b, CUstream stream, const struct vv_copy_seg *seg, size_t n)
{
    struct vvi_cuda *d = b->d;
    bool begun = false;
    unsigned int code = n == 1
                            ? vvi_cuda_kernels_copy(&d->drv, d->kernels, stream, seg)
                            : vvi_cuda_kernels_gather(&d->drv, d->kernels, stream, seg, n, &begun);
    int rc = vvi_cuda_status(d, code);

    b->begun |= !rc || begun;
    return rc;
}

/* Submits pieces that all have one direction. */
static int submit_alike(struct batch *b, CUstream stream, enum direction direction,
                        const struct vv_copy_seg *seg, size_t n)
{
    int rc = -ENOTSUP;

    if (direction == D2D && b->d->kernels && (n > 1 || by_kernel(b, seg)))
        return copy_by_kernel(b, stream, seg, n);
    if (n > 1 && direction != PAGEABLE)
        rc = copy_batched(b, stream, seg, n);
    return rc == -ENOTSUP ? copy_each(b, stream, seg, n) : rc;
}

/* Submits the pieces of one direction out of a mixture. */
static int submit_some(struct batch *b, CUstream stream, enum direction direction)
{
    struct vv_copy_seg part[PART_SIZE];
    size_t n = 0;
    int rc = 0;

    for (size_t i = 0; i < b->n && !rc; i++) {
        if (b->direction[i] == direction)
            part[n++] = b->seg[i];
        if (n == PART_SIZE || (n && i + 1 == b->n)) {
            rc = submit_alike(b, stream, direction, part, n);
            n = 0;
        }
    }
    return rc;
}

/* Waits until no part of a batch that failed half-way runs any more. The thread's last code stays that of the
 * failure. */
static int settle(struct vvi_cuda *d, CUstream stream)
{
    bool lost = false;
    unsigned int code = d->drv.cuStreamSynchronize(stream);

    (void)vvi_cuda_errno(code, &lost);
    return lost ? vvi_cuda_status(d, code) : 0;
}

static int submit(struct batch *b, CUstream stream)
{
    int rc = 0;

    for (int i = 0; i < DIRECTIONS && !rc; i++) {
        if (b->count[i] == b->n)
            rc = submit_alike(b, stream, (enum direction)i, b->seg, b->n);
        else if (b->count[i])
            rc = submit_some(b, stream, (enum direction)i);
    }
    if (!rc && b->count[PAGEABLE])
        rc = vvi_cuda_status(b->d, b->d->drv.cuStreamSynchronize(stream));
    return rc;
}

/* Checks and cuts the segments, and submits everything. */
static int look_and_submit(struct batch *b, CUstream stream, const struct vv_copy_seg *segs,
                           size_t n)
{
    int rc = 0;

    for (size_t i = 0; i < n && !rc; i++)
        rc = look_at(b, &segs[i]);
    return !rc && b->n ? submit(b, stream) : rc;
}

int vvi_cuda_copy_async(struct vv_device *dev, struct vv_stream *s, const struct vv_copy_seg *segs,
                        size_t n_segs)
{
    struct vvi_cuda *d = vvi_cuda_of(dev);
    struct vvi_cuda_scope scope;
    struct batch b;
    bool within;
    int rc = vvi_cuda_enter(d, &scope);

    if (rc)
        return rc;
    batch_init(&b, d);
    rc = look_within(&b, segs, n_segs, &within);
    if (!rc)
        rc = within ? submit_alike(&b, s->native, D2D, segs, n_segs)
                    : look_and_submit(&b, s->native, segs, n_segs);
    if (rc && rc != -ENODEV && b.begun && settle(d, s->native) == -ENODEV)
        rc = -ENODEV;
    batch_fini(&b);
    vvi_cuda_leave(d, &scope);
    return rc;
}
