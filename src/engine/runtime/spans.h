/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spans: the parts of an order between the application's pieces and a tier's pages that are
 * contiguous on both sides. Inline, because within the device a copy of many runs takes no longer
 * than a function call for each of them would.
 */
#ifndef VV_ENGINE_SPANS_H
#define VV_ENGINE_SPANS_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "engine/runtime/runtime_private.h"

struct vvi_span {
    char *dst;
    const char *src;
    uint64_t bytes;
    bool device; /* at least one side is device memory */
};
typedef int vvi_span_fn(void *arg, const struct vvi_span *span);

/* The piece that holds byte `at` of the object, and the offset in it. */
static inline const struct vv_engine_piece *vvi_piece_at(const struct vv_engine_app *app,
                                                         uint64_t at, uint64_t *ret_offset)
{
    const struct vv_engine_piece *p = app->pieces, *end = p + app->npieces;
    while (p < end && at >= p->bytes)
        at -= (p++)->bytes;
    vv_assert(p < end);
    *ret_offset = at;
    return p;
}

/* Calls `fn` for everything that an order moves between the application's pieces and a tier's
 * pages, until it returns an error. Pages that are consecutive in the tier and in the object are
 * one span, but every span ends at the end of a piece, even if the next one continues it on both
 * sides. */
static inline int vvi_order_spans(const struct vv_engine *e, const struct vv_engine_app *app,
                                  const struct vv_order *o, vvi_span_fn *fn, void *arg)
{
    bool put = o->src_tier == VV_TIER_APP;
    int tier = put ? o->dst_tier : o->src_tier;
    const uint32_t *page = put ? o->dst_page : o->src_page, *end = page + o->nchunks;
    uint64_t page_bytes = e->cfg.page_bytes, whole = o->bytes, run = 0, offset;
    const struct vv_engine_piece *p = vvi_piece_at(app, o->chunk0 * page_bytes, &offset);
    char *mem = NULL;

    for (; whole > 0; p++, offset = 0) {
        uint64_t left = VV_MIN(whole, p->bytes - offset), bytes;
        char *at = p->ptr ? p->ptr + offset : NULL;
        bool device = e->kind[tier] == VV_TIER_DEVICE || p->kind == VV_MEM_DEVICE;

        whole -= left;
        for (; left > 0; left -= bytes) {
            if (run == 0) {
                vv_assert(page < end);
                uint32_t first = *page++, next = first + 1;
                for (; page < end && *page == next; page++)
                    next++;
                mem = vvi_engine_page(e, tier, first);
                run = (next - first) * page_bytes; /* the last page need not be full */
            }
            bytes = VV_MIN(left, run);
            if (at) {
                struct vvi_span span = {put ? mem : at, put ? at : mem, bytes, device};
                int rc = fn(arg, &span);
                if (rc)
                    return rc;
                at += bytes;
            }
            mem += bytes;
            run -= bytes;
        }
    }
    return 0;
}

/* The copies of several orders, for one submission. */
enum { VVI_SEGS_INLINE = 64 };

struct vvi_segs {
    struct vv_copy_seg few[VVI_SEGS_INLINE];
    struct vv_copy_seg *v;
    size_t n, cap;
};

static inline void vvi_segs_init(struct vvi_segs *s)
{
    s->v = s->few;
    s->n = 0;
    s->cap = VVI_SEGS_INLINE;
}

static inline void vvi_segs_fini(struct vvi_segs *s)
{
    if (s->v != s->few)
        free(s->v);
}

static inline int vvi_segs_add(void *arg, const struct vvi_span *span)
{
    struct vvi_segs *s = arg;
    if (s->n == s->cap) {
        size_t cap = 4 * s->cap;
        struct vv_copy_seg *more = malloc(cap * sizeof(*more));
        if (!more)
            return -ENOMEM;
        memcpy(more, s->v, s->n * sizeof(*more));
        if (s->v != s->few)
            free(s->v);
        s->v = more;
        s->cap = cap;
    }
    s->v[s->n++] = (struct vv_copy_seg){span->dst, span->src, span->bytes};
    return 0;
}

#endif
