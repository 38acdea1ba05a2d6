/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The restore order of each history: a queue of hints, each with a sequence number that never
 * changes. An object knows its first live hint, and each hint the next one of the same version, so
 * that the distance of an object is one subtraction.
 *
 * A hint may name a version that does not exist yet: then an empty object holds its place in the
 * table of versions and becomes the real one when it is written. hist->ready and ->missing_chunks
 * count what is hinted and written, hist->unwritten what is hinted and still to come;
 * vvi_hint_account() takes an object out of the counts before a change and puts it back after.
 *
 * Prefetching skips hints whose versions are complete. It remembers them, so that its cost does not
 * grow with the number of hints: h->open has, for each tier, the hints that it must look at. Only
 * the first hint of a version is there, because complete or not is the same for all of them. A hint
 * is closed when its version is found complete, and opened again when that may have changed.
 *
 * The detector's predictions are hints like any other, but for being dropped at the first miss.
 *
 * In a history with a declared order every version is hinted as it is written: behind all others
 * (first in, first out), or before them (last in, first out), for which sequence numbers begin high
 * enough to count down. Such a hint goes with its version.
 */
#include <errno.h>
#include <stdlib.h>

#include "engine/core/core_private.h"
#include "trace/trace.h"

static struct hint *hint_of(const struct hist *h, uint64_t seq)
{
    return &h->ring[seq & (h->ring_size - 1)];
}

struct vv_object *vvi_hint_at(const struct hist *h, uint64_t seq)
{
    return hint_of(h, seq)->obj;
}

uint64_t vvi_hint_next_open(const struct hist *h, unsigned set, uint64_t seq)
{
    uint64_t at = seq & (h->ring_size - 1), next;

    if (seq >= h->tail || vv_bitset_has(&h->open[set], at))
        return VV_MIN(seq, h->tail);
    next = vv_bitset_next(&h->open[set], at);
    if (next >= h->ring_size) { /* the ring goes round */
        next = vv_bitset_next(&h->open[set], 0);
        if (next >= at)
            return h->tail;
        next += h->ring_size;
    }
    /* What is found behind the end stands before `seq`. */
    return VV_MIN(seq + (next - at), h->tail);
}

uint64_t vvi_hint_first_open(struct hist *h, unsigned set)
{
    return h->first_open[set] = vvi_hint_next_open(h, set, VV_MAX(h->first_open[set], h->head));
}

void vvi_hint_close(struct hist *h, unsigned set, uint64_t seq)
{
    vv_bitset_remove(&h->open[set], seq & (h->ring_size - 1));
    h->idle[set] = false;
}

static void open_at(struct hist *h, unsigned set, uint64_t seq)
{
    vv_bitset_add(&h->open[set], seq & (h->ring_size - 1));
    h->first_open[set] = VV_MIN(h->first_open[set], seq);
    h->idle[set] = false;
}

static void close_all(struct hist *h, uint64_t seq)
{
    for (unsigned i = 0; seq && i < h->nopen; i++)
        vvi_hint_close(h, i, seq);
}

static void open_all(struct hist *h, uint64_t seq)
{
    for (unsigned i = 0; seq && i < h->nopen; i++)
        open_at(h, i, seq);
}

void vvi_hint_reopen(struct vv_core *core, const struct vv_object *obj)
{
    open_all(vvi_hist(core, obj->hist), obj->hint_first);
}

void vvi_hint_reopen_at(struct vv_core *core, const struct vv_object *obj, unsigned tier)
{
    struct hist *h = vvi_hist(core, obj->hist);

    if (!obj->hint_first)
        return;
    open_at(h, OPEN_TIER + tier, obj->hint_first);
    open_at(h, OPEN_READY, obj->hint_first);
}

static int ring_grow(struct hist *h)
{
    uint64_t size = h->ring_size ? h->ring_size * 2 : 64;
    struct hint *ring = NULL;
    struct vv_bitset open[OPEN_SETS] = {0};
    bool ok;

    ring = calloc(size, sizeof(*ring));
    ok = ring != NULL;
    for (unsigned i = 0; i < h->nopen; i++)
        ok = ok && vv_bitset_init(&open[i], size) == 0;
    if (!ok) {
        for (unsigned i = 0; i < OPEN_SETS; i++)
            vv_bitset_fini(&open[i]);
        free(ring);
        return -ENOMEM;
    }
    for (uint64_t s = h->head; s < h->tail; s++) {
        ring[s & (size - 1)] = *hint_of(h, s);
        for (unsigned i = 0; i < h->nopen; i++)
            if (vv_bitset_has(&h->open[i], s & (h->ring_size - 1)))
                vv_bitset_add(&open[i], s & (size - 1));
    }
    for (unsigned i = 0; i < h->nopen; i++) {
        vv_bitset_fini(&h->open[i]);
        h->open[i] = open[i];
    }
    free(h->ring);
    h->ring = ring;
    h->ring_size = size;
    return 0;
}

void vvi_hint_account(struct vv_core *core, const struct vv_object *obj, int sign)
{
    struct hist *h = vvi_hist(core, obj->hist);
    uint64_t n = (uint64_t)(int64_t)sign;

    if (!obj->hint_first || obj->dead)
        return;
    if (obj->written) {
        h->ready += n;
        h->missing_chunks += n * (obj->nchunks - obj->nmem);
    } else if (!obj->writing) {
        h->unwritten += n;
    }
}

static int ring_reserve(struct hist *h)
{
    return h->tail - h->head < h->ring_size ? 0 : ring_grow(h);
}

/* A hint before all others. */
static int hint_prepend(struct vv_core *core, struct vv_object *obj)
{
    struct hist *h = vvi_hist(core, obj->hist);
    uint64_t seq;

    if (ring_reserve(h) < 0)
        return -ENOMEM;
    seq = --h->head;
    *hint_of(h, seq) = (struct hint){.obj = obj, .next_same = obj->hint_first};
    vvi_hint_account(core, obj, -1);
    if (!obj->hint_first)
        obj->hint_last = seq;
    close_all(h, obj->hint_first);
    obj->hint_first = seq;
    open_all(h, seq);
    obj->passed = false;
    obj->consumed = false;
    vvi_hint_account(core, obj, 1);
    vvi_object_refresh(core, obj);
    return 0;
}

static int hint_append(struct vv_core *core, struct vv_object *obj)
{
    struct hist *h = vvi_hist(core, obj->hist);
    uint64_t seq;

    if (ring_reserve(h) < 0)
        return -ENOMEM;
    seq = h->tail++;
    *hint_of(h, seq) = (struct hint){.obj = obj};
    if (obj->hint_first) {
        hint_of(h, obj->hint_last)->next_same = seq;
        obj->hint_last = seq;
        return 0;
    }
    obj->hint_first = obj->hint_last = seq;
    open_all(h, seq);
    obj->passed = false;
    obj->consumed = false;
    vvi_hint_account(core, obj, 1);
    vvi_object_refresh(core, obj);
    return 0;
}

/* The first versions are ranked by themselves while no restore or hint has come: after a change
 * of that, again. */
void vvi_hint_refresh_first(struct vv_core *core, struct hist *h)
{
    struct vv_object *obj = h->oldest;

    for (int i = 0; i < VV_NEXT_FIRST_KEPT && obj; i++, obj = obj->newer)
        vvi_object_refresh(core, obj);
}

int vvi_hint_add(struct vv_core *core, uint32_t hist, uint64_t version)
{
    struct hist *h = vvi_hist(core, hist);
    struct vv_object *obj;
    int r;

    if (h->predicting)
        vvi_hint_clear(core, hist);
    if (!h->hinted) {
        h->hinted = true;
        vvi_hint_refresh_first(core, h);
    }
    obj = vvi_object_find(core, hist, version);
    if (!obj)
        obj = vvi_object_new(core, hist, version);
    if (!obj)
        return -ENOMEM;
    r = hint_append(core, obj);
    if (r < 0) { /* it may have been made for the hint alone */
        obj->refs++;
        vvi_object_unref(core, obj);
    }
    core->stats.hints += r == 0;
    vv_trace(VV_TRACE_HINT, vvi_trace_history(core, hist), version, h->tail - h->head, 0);
    return r;
}

void vvi_hint_written(struct vv_core *core, struct vv_object *obj)
{
    struct hist *h = vvi_hist(core, obj->hist);

    if (h->cfg.order == VV_RESTORE_BY_HINTS)
        return;
    /* Without memory for it the version is not expected: a hint is advice. */
    if (h->cfg.order == VV_RESTORE_LIFO)
        (void)hint_prepend(core, obj);
    else
        (void)hint_append(core, obj);
}

/* Nothing expects it any more: a copy that was claimed for a restore is an ordinary one again. */
static void unclaim(struct vv_core *core, struct vv_object *obj)
{
    for (unsigned t = 0; t < core->ntiers; t++)
        if (obj->copy[t] && obj->copy[t]->state == VV_COPY_READ_COMPLETE)
            vvi_copy_set_state(core, obj->copy[t], VV_COPY_FLUSHED);
}

/* Takes the object's first live hint out of the queue. */
static void hint_pop(struct vv_core *core, struct vv_object *obj)
{
    struct hist *h = vvi_hist(core, obj->hist);
    struct hint *hint = hint_of(h, obj->hint_first);

    vvi_hint_account(core, obj, -1);
    close_all(h, obj->hint_first);
    obj->hint_first = hint->next_same;
    open_all(h, obj->hint_first);
    if (!obj->hint_first) {
        obj->hint_last = 0;
        for (unsigned t = 0; t < core->ntiers; t++)
            core->tier[t].freed_epoch++; /* nothing claims its copies any more */
    }
    *hint = (struct hint){0};
    vvi_hint_account(core, obj, 1);
    vvi_object_refresh(core, obj);
}

static void skip_empty_head(struct hist *h)
{
    while (h->head < h->tail && !vvi_hint_at(h, h->head))
        h->head++;
}

static void remember_passed(struct hist *h, uint64_t version)
{
    if (h->npassed == h->passed_cap) {
        size_t cap = h->passed_cap ? h->passed_cap * 2 : 64;
        uint64_t *p = realloc(h->passed, cap * sizeof(*p));
        if (!p)
            return; /* then it is not prefetched: a hint is advice */
        h->passed = p;
        h->passed_cap = cap;
    }
    h->passed[h->npassed++] = version;
}

void vvi_hint_restored(struct vv_core *core, struct vv_object *obj)
{
    struct hist *h = vvi_hist(core, obj->hist);
    uint64_t until = obj->hint_first;

    obj->passed = false;
    if (!until)
        return;
    for (uint64_t s = h->head; s < until; s++) {
        struct vv_object *o = vvi_hint_at(h, s);
        if (!o)
            continue;
        o->refs++;
        hint_pop(core, o);
        if (!o->hint_first) {
            o->passed = true;
            unclaim(core, o);
            remember_passed(h, o->version);
        }
        vvi_object_unref(core, o);
    }
    hint_pop(core, obj);
    skip_empty_head(h);
}

void vvi_hint_clear(struct vv_core *core, uint32_t hist)
{
    struct hist *h = vvi_hist(core, hist);

    for (uint64_t s = h->head; s < h->tail; s++) {
        struct vv_object *obj = vvi_hint_at(h, s);
        if (!obj)
            continue;
        obj->refs++;
        hint_pop(core, obj);
        if (!obj->hint_first)
            unclaim(core, obj);
        vvi_object_unref(core, obj);
    }
    h->head = h->tail;
    h->npassed = h->passed_at = 0;
    h->predicting = false;
    h->hinted =
        h->cfg.order != VV_RESTORE_BY_HINTS; /* the detector keeps out of what is declared */
    h->predict_from = NULL;
    vvi_hint_refresh_first(core, h);
}

void vvi_hint_moved(struct vv_core *core, struct vv_object *from, struct vv_object *to)
{
    struct hist *h = vvi_hist(core, from->hist);

    if (to)
        open_all(h, from->hint_first);
    else
        close_all(h, from->hint_first);
    for (uint64_t s = from->hint_first; s;) {
        struct hint *hint = hint_of(h, s);
        hint->obj = to;
        s = hint->next_same;
    }
    if (to) {
        to->hint_first = from->hint_first;
        to->hint_last = from->hint_last;
    }
    from->hint_first = from->hint_last = 0;
}

void vvi_hint_gone(struct vv_core *core, struct vv_object *obj)
{
    vvi_hint_moved(core, obj, NULL);
    skip_empty_head(vvi_hist(core, obj->hist));
}

uint32_t vvi_hint_distance_ready(struct vv_core *core, uint32_t hist)
{
    struct hist *h = vvi_hist(core, hist);
    uint64_t s = vvi_hint_first_open(h, OPEN_READY);

    while (s < h->tail) {
        const struct vv_object *obj = vvi_hint_at(h, s);
        if (!obj->written || !vvi_object_ready(core, obj))
            break;
        vvi_hint_close(h, OPEN_READY, s);
        s = vvi_hint_next_open(h, OPEN_READY, s + 1);
        core->stats.hints_looked_at++;
    }
    return (uint32_t)(s - h->head);
}

bool vvi_object_expected(const struct vv_core *core, const struct vv_object *obj)
{
    return obj->hint_first || (vvi_hist(core, obj->hist)->predicting && !obj->consumed);
}

/* ---- predictions ---- */

static struct vv_object *walk(struct vv_object *obj, int64_t stride)
{
    for (; obj && stride > 0; stride--)
        obj = obj->newer;
    for (; obj && stride < 0; stride++)
        obj = obj->older;
    return obj;
}

static void predict_more(struct vv_core *core, struct hist *h)
{
    while (h->predict_from && h->tail - h->head < PREDICT_AHEAD) {
        if (!h->predict_from->hint_first && hint_append(core, h->predict_from) < 0)
            return;
        h->predict_from = walk(h->predict_from, h->detect.stride);
    }
}

void vvi_predict(struct vv_core *core, struct vv_object *obj)
{
    struct hist *h = vvi_hist(core, obj->hist);
    bool first_ever = !h->detect.any;

    if (h->hinted)
        return;
    switch (vv_detect_restore(&h->detect, obj->ordinal, h->oldest->ordinal, h->newest->ordinal)) {
    case VV_DETECT_NONE:
        break;
    case VV_DETECT_BROKEN:
        vvi_hint_clear(core, obj->hist);
        break;
    case VV_DETECT_FOUND:
        h->predicting = true;
        h->predict_from = walk(obj, h->detect.stride);
        predict_more(core, h);
        break;
    case VV_DETECT_HELD:
        predict_more(core, h);
        break;
    }
    /* The first versions were kept whole for this moment only. */
    if (first_ever)
        vvi_hint_refresh_first(core, h);
}

void vvi_predict_forget(struct vv_core *core, struct vv_object *obj)
{
    struct hist *h = vvi_hist(core, obj->hist);

    if (h->predict_from == obj)
        h->predict_from = walk(obj, h->detect.stride < 0 ? -1 : 1);
}
