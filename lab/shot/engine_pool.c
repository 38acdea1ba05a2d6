/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The baselines of a training step on streams: `pool`, a good program without the library, and `none`, which saves
 * nothing.
 *
 * Pool. Device memory is two rings, one for each direction. A kernel writes its object into
 * the first; after it the down stream copies the object to its slot in pinned memory, and its piece of the ring is
 * free once that copy is done. The up stream copies objects into the second ring, in the order in which they will be
 * restored, `ahead` objects before the restore; a piece is free when the stream has gone past the kernel that read
 * it. The next writer of a piece waits for that on the device; the host never waits.
 *
 * Both rings free their pieces in the order in which they were taken: the oldest piece is always the next one that the
 * head reaches.
 *
 * One thread. Events are recorded again in every step; a step begins when the one before it has ended.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "lab/shot/shot_pinned.h"
#include "lab/shot/stream.h"

#define PIECE_ALIGN 4096

/* One object of a step. */
struct object {
    uint64_t bytes;
    char *at; /* place of its copy on the device: in the ring, or all the time (`none`) */
    struct vv_event *copied; /* down */
    struct vv_event *ready;  /* up */
    struct vv_event *read;   /* by the kernel after its restore */
};

/* Part of a ring that is in use. */
struct piece {
    size_t at, bytes;
    struct vv_event *free;
    const bool *recorded; /* `free` was recorded in this step */
};

struct ring {
    void *base;
    size_t bytes;
    size_t head;          /* where the next piece begins */
    struct piece *pieces; /* oldest first, from `first` on, round and round */
    size_t first, nr, cap;
};

struct pool {
    struct shot_engine base;
    struct vv_device *device;
    struct vv_stream *stream, *down, *up;
    struct vv_event *fork;
    struct shot_pinned pinned;
    struct object *objects;
    bool *copied, *read; /* by object: the event was recorded in this step */
    size_t nr;
    uint64_t *order; /* of the restores */
    size_t next_get, next_up;
    uint32_t ahead;
    struct ring down_ring, up_ring;
    uint64_t down_bytes, up_bytes;
};

static struct pool *of(struct shot_engine *e)
{
    return (struct pool *)e;
}

/* ---- rings ---- */

static int ring_init(struct pool *p, struct ring *r, size_t bytes)
{
    r->bytes = bytes;
    r->cap = p->nr + 1;
    r->pieces = calloc(r->cap, sizeof(*r->pieces));
    return r->pieces ? vv_device_mem_alloc(p->device, bytes, &r->base) : -ENOMEM;
}

static void ring_fini(struct pool *p, struct ring *r)
{
    vv_device_mem_free(p->device, r->base);
    free(r->pieces);
}

/* Makes `writer` wait for the oldest pieces that reach into [from, to). -EAGAIN: one of them is still to be used. */
static int give_up(struct pool *p, struct ring *r, size_t from, size_t to, struct vv_stream *writer)
{
    while (r->nr > 0) {
        struct piece *oldest = &r->pieces[r->first];
        int rc;

        if (oldest->at >= to || oldest->at + oldest->bytes <= from)
            return 0;
        if (!*oldest->recorded)
            return -EAGAIN;
        rc = vv_device_stream_wait_event(p->device, writer, oldest->free);
        if (rc)
            return rc;
        r->first = (r->first + 1) % r->cap;
        r->nr--;
    }
    return 0;
}

/* Takes a piece that `writer` may write. It is free again when `free` has occurred. */
static int take(struct pool *p, struct ring *r, struct vv_stream *writer, size_t bytes,
                struct vv_event *free, const bool *recorded, char **ret_at)
{
    int rc = 0;

    bytes = vv_align_up(bytes, (size_t)PIECE_ALIGN);
    if (r->head + bytes > r->bytes) {
        rc = give_up(p, r, r->head, r->bytes, writer);
        if (rc == 0)
            r->head = 0;
    }
    if (rc == 0)
        rc = r->nr == r->cap ? -EAGAIN : give_up(p, r, r->head, r->head + bytes, writer);
    if (rc)
        return rc;
    r->pieces[(r->first + r->nr++) % r->cap] = (struct piece){r->head, bytes, free, recorded};
    *ret_at = (char *)r->base + r->head;
    r->head += bytes;
    return 0;
}

/* ---- the calls ---- */

static int copy(struct pool *p, struct vv_stream *stream, void *dst, const void *src, size_t bytes,
                struct vv_event *done)
{
    struct vv_copy_seg seg = {dst, src, bytes};
    int rc = vv_device_copy_async(p->device, stream, &seg, 1);

    return rc ? rc : vv_device_event_record(p->device, done, stream);
}

/* Called when the kernel after the last restore is in the stream. */
static int note_read(struct pool *p)
{
    size_t last;

    if (p->next_get == 0)
        return 0;
    last = p->order[p->next_get - 1];
    if (p->read[last])
        return 0;
    p->read[last] = true;
    return vv_device_event_record(p->device, p->objects[last].read, p->stream);
}

/* The step before has ended, and so have all of its copies. */
static void begin_step(struct pool *p)
{
    p->next_get = p->next_up = 0;
    p->down_ring.nr = p->down_ring.head = 0;
    p->up_ring.nr = p->up_ring.head = 0;
}

/* Brings up the next objects, as far as the ring has room. */
static int bring_up(struct pool *p)
{
    while (p->next_up < p->nr && p->next_up <= p->next_get + p->ahead) {
        size_t i = p->order[p->next_up];
        struct object *o = &p->objects[i];
        int rc = take(p, &p->up_ring, p->up, o->bytes, o->read, &p->read[i], &o->at);

        if (rc == -EAGAIN && p->next_up > p->next_get)
            return 0;
        p->read[i] = false;
        if (rc == 0)
            rc = vv_device_stream_wait_event(p->device, p->up, o->copied);
        if (rc == 0)
            rc = copy(p, p->up, o->at, shot_pinned_at(&p->pinned, i), o->bytes, o->ready);
        if (rc)
            return rc;
        p->up_bytes += o->bytes;
        p->next_up++;
    }
    return 0;
}

static int pool_place(struct shot_engine *e, uint64_t version, bool reads, void **ret_buf)
{
    struct pool *p = of(e);
    size_t i = version % p->nr;
    struct object *o = &p->objects[i];
    char *at = NULL;
    int rc;

    if (reads) {
        rc = i == p->order[p->next_get % p->nr] ? note_read(p) : -EINVAL;
        if (rc == 0)
            rc = bring_up(p);
        at = o->at;
    } else {
        if (i == 0)
            begin_step(p);
        rc = take(p, &p->down_ring, p->stream, o->bytes, o->copied, &p->copied[i], &at);
        p->copied[i] = false;
    }
    if (rc == 0)
        *ret_buf = at;
    return rc;
}

static int pool_checkpoint(struct shot_engine *e, uint64_t version, void *buf, size_t bytes)
{
    struct pool *p = of(e);
    size_t i = version % p->nr;
    int rc = vv_device_event_record(p->device, p->fork, p->stream);

    if (rc == 0)
        rc = vv_device_stream_wait_event(p->device, p->down, p->fork);
    if (rc == 0)
        rc = copy(p, p->down, shot_pinned_at(&p->pinned, i), buf, bytes, p->objects[i].copied);
    p->copied[i] = rc == 0;
    p->down_bytes += bytes;
    return rc;
}

static int pool_restore(struct shot_engine *e, uint64_t version, void *buf, size_t bytes)
{
    struct pool *p = of(e);

    (void)buf;
    (void)bytes;
    p->next_get++;
    return vv_device_stream_wait_event(p->device, p->stream, p->objects[version % p->nr].ready);
}

static int nothing(struct shot_engine *e)
{
    (void)e;
    return 0;
}

static int accept_version(struct shot_engine *e, uint64_t version)
{
    (void)e;
    (void)version;
    return 0;
}

static void sample(struct shot_engine *e, struct shot_sample *ret_sample)
{
    *ret_sample = (struct shot_sample){.moved_down_bytes = of(e)->down_bytes,
                                       .moved_up_bytes = of(e)->up_bytes};
}

static void explain(struct shot_engine *e, int rc, char *buf, size_t size)
{
    shot_device_explain(of(e)->device, rc, buf, size);
}

static int pool_close(struct shot_engine *e)
{
    struct pool *p = of(e);

    ring_fini(p, &p->down_ring);
    ring_fini(p, &p->up_ring);
    for (size_t i = 0; p->objects && i < p->nr; i++) {
        vv_device_event_free(p->device, p->objects[i].copied);
        vv_device_event_free(p->device, p->objects[i].ready);
        vv_device_event_free(p->device, p->objects[i].read);
    }
    vv_device_event_free(p->device, p->fork);
    vv_device_stream_free(p->device, p->down);
    vv_device_stream_free(p->device, p->up);
    shot_pinned_fini(&p->pinned);
    free(p->objects);
    free(p->copied);
    free(p->read);
    free(p->order);
    free(p);
    return 0;
}

static const struct shot_engine_ops pool_ops = {
    .hint = accept_version,
    .start = nothing,
    .place = pool_place,
    .checkpoint = pool_checkpoint,
    .restore = pool_restore,
    .flush = nothing,
    .discard = accept_version,
    .sample = sample,
    .explain = explain,
    .close = pool_close,
};

/* ---- opening ---- */

/* Sizes and order, from the script. */
static int read_script(struct pool *p, const struct shot_script *script)
{
    size_t gets = 0;

    p->nr = script->nr_puts;
    p->objects = calloc(p->nr + 1, sizeof(*p->objects));
    p->copied = calloc(p->nr + 1, sizeof(*p->copied));
    p->read = calloc(p->nr + 1, sizeof(*p->read));
    p->order = calloc(p->nr + 1, sizeof(*p->order));
    if (!p->objects || !p->copied || !p->read || !p->order)
        return -ENOMEM;
    for (size_t i = 0; i < script->nr_ops; i++) {
        const struct shot_op *op = &script->ops[i];

        if (op->kind == SHOT_PUT)
            p->objects[op->version].bytes = op->bytes;
        else if (op->kind == SHOT_GET)
            p->order[gets++] = op->version;
    }
    return 0;
}

static int open_streams(struct pool *p)
{
    int rc = vv_device_stream_new(p->device, &p->down);

    if (rc == 0)
        rc = vv_device_stream_new(p->device, &p->up);
    if (rc == 0)
        rc = vv_device_event_new(p->device, &p->fork);
    for (size_t i = 0; rc == 0 && i < p->nr; i++) {
        rc = vv_device_event_new(p->device, &p->objects[i].copied);
        if (rc == 0)
            rc = vv_device_event_new(p->device, &p->objects[i].ready);
        if (rc == 0)
            rc = vv_device_event_new(p->device, &p->objects[i].read);
    }
    return rc;
}

static int pin(struct pool *p, char *err, size_t err_size)
{
    uint64_t *bytes = calloc(p->nr + 1, sizeof(*bytes));
    int rc;

    if (!bytes)
        return -ENOMEM;
    for (size_t i = 0; i < p->nr; i++)
        bytes[i] = p->objects[i].bytes;
    rc = shot_pinned_init(p->device, bytes, p->nr, err, err_size, &p->pinned);
    free(bytes);
    return rc;
}

static int begin_open(const struct stream_baseline *b, const struct shot_engine_ops *ops, char *err,
                      size_t err_size, struct pool **ret_pool)
{
    struct pool *p = calloc(1, sizeof(*p));
    int rc = -ENOMEM;

    if (p) {
        p->base.ops = ops;
        p->device = b->device;
        p->stream = b->stream;
        p->ahead = b->ahead;
        rc = read_script(p, b->script);
        if (rc)
            pool_close(&p->base);
    }
    if (rc)
        snprintf(err, err_size, "out of memory");
    else
        *ret_pool = p;
    return rc;
}

static int end_open(struct pool *p, int rc, char *err, size_t err_size,
                    struct shot_engine **ret_engine)
{
    if (rc) {
        if (!err[0])
            explain(&p->base, rc, err, err_size);
        pool_close(&p->base);
    } else {
        *ret_engine = &p->base;
    }
    return rc;
}

int stream_engine_pool(const struct stream_baseline *b, char *err, size_t err_size,
                       struct shot_engine **ret_engine)
{
    size_t half = vv_align_down((size_t)b->device_bytes / 2, (size_t)PIECE_ALIGN);
    size_t largest = vv_align_up((size_t)b->script->largest_bytes, (size_t)PIECE_ALIGN);
    char want[VV_BYTES_TEXT], have[VV_BYTES_TEXT];
    struct pool *p;
    int rc;

    err[0] = '\0';
    if (half < largest) {
        snprintf(err, err_size,
                 "--engine pool: a device cache of %s a stream, expected %s at least: half of it "
                 "has to hold the largest object",
                 vv_bytes_human(b->device_bytes, have, sizeof(have)),
                 vv_bytes_human(2 * largest, want, sizeof(want)));
        return -EFBIG;
    }
    rc = begin_open(b, &pool_ops, err, err_size, &p);
    if (rc)
        return rc;
    rc = open_streams(p);
    if (rc == 0)
        rc = ring_init(p, &p->down_ring, half);
    if (rc == 0)
        rc = ring_init(p, &p->up_ring, half);
    if (rc == 0)
        rc = pin(p, err, err_size);
    return end_open(p, rc, err, err_size, ret_engine);
}

/* ---- none ---- */

static int none_place(struct shot_engine *e, uint64_t version, bool reads, void **ret_buf)
{
    (void)reads;
    *ret_buf = of(e)->objects[version % of(e)->nr].at;
    return 0;
}

static int none_call(struct shot_engine *e, uint64_t version, void *buf, size_t bytes)
{
    (void)e;
    (void)version;
    (void)buf;
    (void)bytes;
    return 0;
}

static const struct shot_engine_ops none_ops = {
    .hint = accept_version,
    .start = nothing,
    .place = none_place,
    .checkpoint = none_call,
    .restore = none_call,
    .flush = nothing,
    .discard = accept_version,
    .sample = sample,
    .explain = explain,
    .close = pool_close,
};

/* All of a step in one ring, which never wraps around. */
int stream_engine_none(const struct stream_baseline *b, char *err, size_t err_size,
                       struct shot_engine **ret_engine)
{
    static const bool never = false;
    size_t bytes = 0;
    struct pool *p;
    int rc = begin_open(b, &none_ops, err, err_size, &p);

    if (rc)
        return rc;
    err[0] = '\0';
    for (size_t i = 0; i < p->nr; i++)
        bytes += vv_align_up((size_t)p->objects[i].bytes, (size_t)PIECE_ALIGN);
    rc = ring_init(p, &p->up_ring, bytes);
    for (size_t i = 0; rc == 0 && i < p->nr; i++)
        rc = take(p, &p->up_ring, p->stream, p->objects[i].bytes, NULL, &never, &p->objects[i].at);
    return end_open(p, rc, err, err_size, ret_engine);
}
