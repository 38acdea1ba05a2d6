/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of the stand-in. Pointers are looked up and ranges checked when a copy is submitted, as
 * the driver does: a host range that is registered in part, or in two registrations, is refused,
 * and so is a device range that exceeds its allocation.
 *
 * Host memory that is not pinned: a copy from it first waits for the stream and then stages the bytes, so that the
 * source is free at the return while the device may not have the bytes yet; a copy to it is synchronous.
 */
#include <stdlib.h>
#include <string.h>

#include "private.h"

enum { SRC_ORDER_STREAM = 1, SRC_ORDER_ANY = 3 };

struct copy_attributes {
    int src_order;
    int src_location[2], dst_location[2];
    unsigned flags;
};

struct batch {
    struct fake_op *op;
    bool pageable_src, pageable_dst;
    bool to_host, from_host;
};

static bool pageable(const struct fake_mem *m)
{
    return !m;
}

static int batch_init(struct batch *b, size_t n)
{
    memset(b, 0, sizeof(*b));
    b->op = fake_op_new(FAKE_OP_COPY);
    if (b->op)
        b->op->segs = calloc(n ? n : 1, sizeof(*b->op->segs));
    if (b->op && b->op->segs)
        return 0;
    fake_op_unref(b->op);
    return FAKE_OUT_OF_MEMORY;
}

static int batch_add(struct batch *b, uintptr_t dst, uintptr_t src, size_t bytes)
{
    const struct fake_mem *to, *from;
    struct fake_seg *seg = &b->op->segs[b->op->n_segs];
    char *real_src;
    if (bytes == 0)
        return 0;
    int rc = fake_mem_range(dst, bytes, &seg->dst, &to);
    if (rc == 0)
        rc = fake_mem_range(src, bytes, &real_src, &from);
    if (rc)
        return rc;
    seg->src = real_src;
    seg->bytes = bytes;
    b->op->n_segs++;
    b->pageable_dst |= pageable(to);
    b->pageable_src |= pageable(from);
    b->to_host |= !fake_mem_is_device(to);
    b->from_host |= !fake_mem_is_device(from);
    return 0;
}

/* Copies the bytes of all segments to memory of the operation. */
static int stage(struct fake_op *op)
{
    size_t bytes = 0, at = 0;
    for (size_t i = 0; i < op->n_segs; i++)
        bytes += op->segs[i].bytes;
    op->staging = malloc(bytes ? bytes : 1);
    if (!op->staging)
        return FAKE_OUT_OF_MEMORY;
    for (size_t i = 0; i < op->n_segs; i++) {
        memcpy(op->staging + at, op->segs[i].src, op->segs[i].bytes);
        op->segs[i].src = op->staging + at;
        at += op->segs[i].bytes;
    }
    return 0;
}

/* Submits the batch and frees it. `sync`: returns when the copy is done. */
static int batch_submit(struct batch *b, struct fake_stream *s, bool sync)
{
    struct fake_op *op = b->op;
    struct fake_ctx *c = s->ctx;
    op->pace_bytes_per_s = (uint64_t)(b->from_host ? fake_set.rate_h2d
                                      : b->to_host ? fake_set.rate_d2h
                                                   : fake_set.rate_d2d);
    op->fail = fake_late_failure();
    int rc = 0;
    if (b->pageable_src && !s->capture) {
        if (s->last)
            fake_op_wait(s->last);
        rc = fake_ctx_usable(c);
        if (rc == 0)
            rc = stage(op);
    }
    if (rc) {
        fake_op_unref(op);
        return rc;
    }
    bool wait = (sync || b->pageable_dst) && !s->capture;
    op->refs++;
    rc = fake_submit(s, op);
    if (rc == 0 && wait) {
        fake_op_wait(op);
        rc = fake_ctx_usable(c);
    }
    fake_op_unref(op);
    return rc;
}

static int copy(uintptr_t dst, uintptr_t src, size_t bytes, void *stream, bool sync)
{
    struct fake_stream *s;
    struct batch b;
    int rc = fake_stream_find(stream, &s);
    if (rc || (bytes == 0 && !sync))
        return rc;
    rc = batch_init(&b, 1);
    if (rc)
        return rc;
    rc = batch_add(&b, dst, src, bytes);
    if (rc) {
        fake_op_unref(b.op);
        return rc;
    }
    return batch_submit(&b, s, sync);
}

API int cuMemcpyAsync(uintptr_t dst, uintptr_t src, size_t bytes, void *stream)
{
    ENTER(cuMemcpyAsync, FAKE_NEED_CTX);
    LEAVE(copy(dst, src, bytes, stream, false));
}

API int cuMemcpy(uintptr_t dst, uintptr_t src, size_t bytes)
{
    ENTER(cuMemcpy, FAKE_NEED_CTX | FAKE_NEED_CALM);
    LEAVE(copy(dst, src, bytes, NULL, true));
}

API int cuMemcpyHtoD_v2(uintptr_t dst, const void *src, size_t bytes)
{
    ENTER(cuMemcpyHtoD, FAKE_NEED_CTX | FAKE_NEED_CALM);
    LEAVE(copy(dst, (uintptr_t)src, bytes, NULL, true));
}

API int cuMemcpyDtoH_v2(void *dst, uintptr_t src, size_t bytes)
{
    ENTER(cuMemcpyDtoH, FAKE_NEED_CTX | FAKE_NEED_CALM);
    LEAVE(copy((uintptr_t)dst, src, bytes, NULL, true));
}

API int cuMemcpyDtoD_v2(uintptr_t dst, uintptr_t src, size_t bytes)
{
    ENTER(cuMemcpyDtoD, FAKE_NEED_CTX | FAKE_NEED_CALM);
    LEAVE(copy(dst, src, bytes, NULL, true));
}

API int cuMemcpyHtoDAsync_v2(uintptr_t dst, const void *src, size_t bytes, void *stream)
{
    ENTER(cuMemcpyHtoDAsync, FAKE_NEED_CTX);
    LEAVE(copy(dst, (uintptr_t)src, bytes, stream, false));
}

API int cuMemcpyDtoHAsync_v2(void *dst, uintptr_t src, size_t bytes, void *stream)
{
    ENTER(cuMemcpyDtoHAsync, FAKE_NEED_CTX);
    LEAVE(copy((uintptr_t)dst, src, bytes, stream, false));
}

API int cuMemcpyDtoDAsync_v2(uintptr_t dst, uintptr_t src, size_t bytes, void *stream)
{
    ENTER(cuMemcpyDtoDAsync, FAKE_NEED_CTX);
    LEAVE(copy(dst, src, bytes, stream, false));
}

/* ---- batches ---- */

#ifndef FAKE_CUDA_OLD
static int check_attributes(size_t n, const struct copy_attributes *attributes, const size_t *first,
                            size_t n_attributes)
{
    if (n == 0 || n_attributes == 0 || n_attributes > n || !attributes || !first || first[0] != 0)
        return FAKE_INVALID_VALUE;
    for (size_t i = 0; i < n_attributes; i++) {
        if (attributes[i].src_order < SRC_ORDER_STREAM || attributes[i].src_order > SRC_ORDER_ANY)
            return FAKE_INVALID_VALUE;
        if (i > 0 && (first[i] <= first[i - 1] || first[i] >= n))
            return FAKE_INVALID_VALUE;
    }
    return 0;
}

static int copy_batch(const uintptr_t *dst, const uintptr_t *src, const size_t *bytes, size_t n,
                      const struct copy_attributes *attributes, const size_t *first,
                      size_t n_attributes, size_t *ret_failed, void *stream)
{
    struct fake_stream *s;
    struct batch b;
    int rc = fake_stream_find(stream, &s);
    if (rc == 0 && s == s->ctx->legacy)
        rc = FAKE_INVALID_VALUE;
    if (rc == 0)
        rc = check_attributes(n, attributes, first, n_attributes);
    if (rc == 0)
        rc = batch_init(&b, n);
    if (rc)
        return rc;
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = bytes[i] ? batch_add(&b, dst[i], src[i], bytes[i]) : FAKE_INVALID_VALUE;
        if (rc && ret_failed)
            *ret_failed = i;
    }
    if (rc) {
        fake_op_unref(b.op);
        return rc;
    }
    return batch_submit(&b, s, false);
}

API int cuMemcpyBatchAsync(uintptr_t *dst, uintptr_t *src, size_t *bytes, size_t n,
                           struct copy_attributes *attributes, size_t *first, size_t n_attributes,
                           size_t *ret_failed, void *stream)
{
    ENTER(cuMemcpyBatchAsync, FAKE_NEED_CTX);
    *ret_failed = SIZE_MAX;
    LEAVE(copy_batch(dst, src, bytes, n, attributes, first, n_attributes, ret_failed, stream));
}

API int cuMemcpyBatchAsync_v2(uintptr_t *dst, uintptr_t *src, size_t *bytes, size_t n,
                              struct copy_attributes *attributes, size_t *first,
                              size_t n_attributes, void *stream)
{
    ENTER(cuMemcpyBatchAsync, FAKE_NEED_CTX);
    LEAVE(copy_batch(dst, src, bytes, n, attributes, first, n_attributes, NULL, stream));
}
#endif

/* ---- filling ---- */

static int set(uintptr_t dst, uint32_t value, unsigned width, size_t n, void *stream, bool sync)
{
    struct fake_stream *s;
    const struct fake_mem *m;
    char *real;
    int rc = fake_stream_find(stream, &s);
    if (rc == 0)
        rc = fake_mem_range(dst, n * width, &real, &m);
    if (rc == 0 && (!m || dst % width))
        rc = FAKE_INVALID_VALUE;
    if (rc || n == 0)
        return rc;
    struct fake_op *op = fake_op_new(FAKE_OP_SET);
    if (op)
        op->segs = calloc(1, sizeof(*op->segs));
    if (!op || !op->segs) {
        fake_op_unref(op);
        return FAKE_OUT_OF_MEMORY;
    }
    op->segs[0] = (struct fake_seg){real, NULL, n * width};
    op->n_segs = 1;
    op->value = value;
    op->width = width;
    op->refs++;
    rc = fake_submit(s, op);
    if (rc == 0 && sync && !s->capture)
        fake_op_wait(op);
    fake_op_unref(op);
    return rc;
}

API int cuMemsetD8_v2(uintptr_t dst, unsigned char value, size_t n)
{
    ENTER(cuMemsetD8, FAKE_NEED_CTX | FAKE_NEED_CALM);
    LEAVE(set(dst, value, 1, n, NULL, true));
}

API int cuMemsetD32_v2(uintptr_t dst, unsigned value, size_t n)
{
    ENTER(cuMemsetD32, FAKE_NEED_CTX | FAKE_NEED_CALM);
    LEAVE(set(dst, value, 4, n, NULL, true));
}

API int cuMemsetD8Async(uintptr_t dst, unsigned char value, size_t n, void *stream)
{
    ENTER(cuMemsetD8Async, FAKE_NEED_CTX);
    LEAVE(set(dst, value, 1, n, stream, false));
}

API int cuMemsetD32Async(uintptr_t dst, unsigned value, size_t n, void *stream)
{
    ENTER(cuMemsetD32Async, FAKE_NEED_CTX);
    LEAVE(set(dst, value, 4, n, stream, false));
}
