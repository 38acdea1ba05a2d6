/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ways to process a survey without the library, as they are written by hand.
 *
 * Double buffering. The items are cut into batches whose tables fit one half of the cache. A
 * separate stream copies the tables of a batch to a half, once the last kernel that used this half
 * has ended. The kernel of the batch begins after its copies. So one half is filled while the other
 * is used.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "device/device.h"
#include "lab/ooc/ooc_survey.h"

struct half {
    struct vv_event *filled, *used;
    void *offsets; /* on the device: where each table is in the cache */
    uint64_t *at;  /* the same, in host memory */
};

struct buffers {
    struct ooc_job *j;
    struct vv_device *d;
    struct vv_stream *copies, *app;
    unsigned char *cache;
    uint64_t half_bytes;
    struct half half[2];
    struct vv_copy_seg *segs;
    uint32_t *seen; /* the batch that copied each table last, from 1 on; 0: none */
    uint32_t batches;
};

static int buffers_init(struct buffers *b, uint64_t cache_bytes)
{
    size_t bytes = b->j->s.tables * sizeof(uint64_t);
    int rc = vv_device_stream_new(b->d, &b->copies);

    b->half_bytes = cache_bytes / 2 / 256 * 256;
    b->segs = malloc(b->j->s.tables * sizeof(*b->segs));
    b->seen = calloc(b->j->s.tables, sizeof(*b->seen));
    if (rc == 0 && (!b->segs || !b->seen))
        rc = -ENOMEM;
    if (rc == 0)
        rc = vv_device_stream_adopt(b->d, NULL, &b->app);
    if (rc == 0)
        rc = varve_device_alloc(b->j->ctx, 2 * b->half_bytes, (void **)&b->cache);
    for (int i = 0; i < 2 && rc == 0; i++) {
        struct half *h = &b->half[i];

        h->at = calloc(b->j->s.tables, sizeof(*h->at));
        rc = h->at ? vv_device_event_new(b->d, &h->filled) : -ENOMEM;
        if (rc == 0)
            rc = vv_device_event_new(b->d, &h->used);
        if (rc == 0)
            rc = varve_device_alloc(b->j->ctx, bytes, &h->offsets);
    }
    return rc;
}

static void buffers_fini(struct buffers *b)
{
    for (int i = 0; i < 2; i++) {
        vv_device_event_free(b->d, b->half[i].filled);
        vv_device_event_free(b->d, b->half[i].used);
        varve_device_free(b->j->ctx, b->half[i].offsets);
        free(b->half[i].at);
    }
    varve_device_free(b->j->ctx, b->cache);
    if (b->app)
        vv_device_stream_free(b->d, b->app);
    if (b->copies)
        vv_device_stream_free(b->d, b->copies);
    free(b->segs);
    free(b->seen);
}

/* Takes items from `from` on while their tables fit the half. Returns the number of segments to copy; *ret_to is
 * the start of the next batch: `from` itself if not even one item fits. */
static size_t take_items(struct buffers *b, uint64_t from, unsigned which, uint64_t *ret_to)
{
    const struct survey *s = &b->j->s;
    uint64_t used = 0, item = from;
    size_t n = 0;

    b->batches++;
    for (; item < s->items; item++) {
        uint64_t before = used;
        size_t had = n;

        for (uint64_t k = s->first[item]; k < s->first[item + 1]; k++) {
            uint32_t t = s->uses[k];

            if (b->seen[t] == b->batches)
                continue;
            if (used + s->bytes[t] <= b->half_bytes) {
                b->seen[t] = b->batches;
                b->half[which].at[t] = which * b->half_bytes + used;
                b->segs[n++] = (struct vv_copy_seg){b->cache + b->half[which].at[t],
                                                    b->j->memory + b->j->offsets[t], s->bytes[t]};
            }
            used += (s->bytes[t] + 255) / 256 * 256;
        }
        if (used > b->half_bytes) { /* left to the next batch: not copied */
            used = before;
            n = had;
            break;
        }
    }
    *ret_to = item;
    return n;
}

static int run_batch(struct buffers *b, uint64_t from, uint64_t to, unsigned which, size_t n)
{
    struct half *h = &b->half[which];
    struct ooc_survey_args args = b->j->args;
    struct vv_copy_seg list = {h->offsets, h->at, b->j->s.tables * sizeof(*h->at)};
    int rc = vv_device_stream_wait_event(b->d, b->copies, h->used);

    if (rc == 0)
        rc = vv_device_copy_async(b->d, b->copies, b->segs, n);
    if (rc == 0)
        rc = vv_device_copy_async(b->d, b->copies, &list, 1);
    if (rc == 0)
        rc = vv_device_event_record(b->d, h->filled, b->copies);
    if (rc == 0)
        rc = vv_device_stream_wait_event(b->d, b->app, h->filled);
    args.from = (uint32_t)from;
    args.to = (uint32_t)to;
    args.memory = b->cache;
    args.offsets = h->offsets;
    if (rc == 0)
        rc = b->j->launcher->plain(b->j->ctx, &args, NULL);
    return rc == 0 ? vv_device_event_record(b->d, h->used, b->app) : rc;
}

static int run_batches(struct buffers *b, struct ooc_way *way)
{
    uint64_t from = 0, to;
    unsigned which = 0;
    int rc = 0;

    while (rc == 0 && from < b->j->s.items) {
        size_t n = take_items(b, from, which, &to);

        if (to == from)
            return -EFBIG;
        rc = run_batch(b, from, to, which, n);
        for (size_t i = 0; i < n; i++)
            way->bytes += b->segs[i].bytes;
        way->missed += n;
        way->rounds++;
        from = to;
        which = !which;
    }
    for (int i = 0; i < 2; i++) {
        int ended = vv_device_event_wait(b->d, b->half[i].used, -1);

        rc = rc ? rc : ended;
    }
    return rc;
}

int ooc_survey_double(struct ooc_job *j, uint64_t cache_bytes, struct ooc_way *way)
{
    struct buffers b = {.j = j, .d = j->device};
    int rc = ooc_survey_clear(j);
    uint64_t start;

    if (rc)
        return rc;
    rc = buffers_init(&b, cache_bytes);
    if (rc == 0) {
        start = vv_now_ns();
        rc = run_batches(&b, way);
        way->seconds = (double)(vv_now_ns() - start) * 1e-9;
    }
    buffers_fini(&b);
    if (rc == -EFBIG) {
        snprintf(way->skipped, OOC_TEXT, "the tables of an item do not fit half of the cache");
        return 0;
    }
    return rc ? rc : ooc_survey_compare(j, way);
}

int ooc_survey_direct(struct ooc_job *j, bool managed, struct ooc_way *way)
{
    struct ooc_survey_args args = j->args;
    void *there = NULL;
    uint64_t start;
    int rc = ooc_survey_clear(j);

    if (rc)
        return rc;
    if (managed)
        rc = j->launcher->managed_new ? j->launcher->managed_new(j->memory, j->s.sum_bytes, &there)
                                      : -ENOTSUP;
    else
        rc = (there = j->shared) ? 0 : -ENOTSUP;
    if (rc == -ENOTSUP || rc == -ENOSPC) {
        snprintf(way->skipped, OOC_TEXT, "%s",
                 rc == -ENOSPC ? "a copy does not fit the memory of device and host"
                 : managed     ? "the device has no managed memory"
                               : "kernels cannot read host memory");
        return 0;
    }
    if (rc)
        return rc;
    args.memory = there;
    start = vv_now_ns();
    rc = j->launcher->plain(j->ctx, &args, NULL);
    if (rc == 0) /* waits for the stream */
        rc = ooc_survey_compare(j, way);
    way->seconds = (double)(vv_now_ns() - start) * 1e-9;
    way->rounds = 1;
    if (managed)
        j->launcher->managed_free(there);
    return rc;
}
