/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The restore order of each history: a queue of hints, each with a sequence number that never
 * changes. An object refers to its first live hint, and each hint to the next one of the same
 * version, so that the distance of an object is one subtraction.
 *
 * A hint may name a version that does not exist yet: then an empty object holds its place in the
 * table of versions and becomes the real one when it is written. hist->ready and ->missing_chunks
 * count versions that are hinted and written, hist->unwritten those that are hinted and still to
 * come; vvi_hint_account() removes an object from the counts before a change and adds it again
 * after it.
 *
 * Prefetching skips hints whose versions are complete. It remembers them, so that its cost does not
 * grow with the number of hints: h->open has, for each tier, the hints that it must look at. It
 * contains only the first hint of a version, because completeness is the same for all of them. A
 * hint is closed when its version is found complete, and opened again when that may have changed.
 *
 * Hints are advice. The detector watches all restores, hinted or not. Its predictions follow the
 * hints in the queue, as hints of its own; a restore that it did not predict removes them. Hints
 * are judged by how well they predict:
 *   - A restore out of turn leaves the hints before it alone, except those that OVERTAKEN_MOST
 *     restores have overtaken: they are passed over, and are prefetched after all others.
 *   - When the detector has been right about SURPRISES_MOST restores that the hints did not
 *     predict, its predictions replace them, and new hints do not count until a prediction is
 *     wrong.
 *   - When hints predicted none of the last WRONG_MOST restores, all of them are passed over.
 *
 * In a history with a declared order every version is hinted as it is written: behind all others
 * (first in, first out), or before them (last in, first out). For the latter, sequence numbers
 * begin high enough to count down. Such a hint is removed with its version.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
    if (next >= h->ring_size) { /* continue at the start of the ring */
        next = vv_bitset_next(&h->open[set], 0);
        if (next >= at)
            return h->tail;
        next += h->ring_size;
    }
    /* A place found past the tail belongs to a hint before `seq`. */
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

/* Adds a hint before all others. Earlier restores were of hints behind it, so none has overtaken
 * it. */
static int hint_prepend(struct vv_core *core, struct vv_object *obj, bool predicted)
{
    struct hist *h = vvi_hist(core, obj->hist);
    uint64_t seq;

    if (ring_reserve(h) < 0)
        return -ENOMEM;
    seq = --h->head;
    h->njudges = 0;
    *hint_of(h, seq) =
        (struct hint){.obj = obj, .next_same = obj->hint_first, .predicted = predicted};
    h->ngiven += !predicted;
    h->npredicted += predicted;
    if (predicted)
        h->predicted_at = seq;
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

static int hint_append(struct vv_core *core, struct vv_object *obj, bool predicted)
{
    struct hist *h = vvi_hist(core, obj->hist);
    uint64_t seq;

    if (ring_reserve(h) < 0)
        return -ENOMEM;
    seq = h->tail++;
    *hint_of(h, seq) = (struct hint){.obj = obj, .predicted = predicted};
    if (predicted && h->npredicted++ == 0)
        h->predicted_at = seq;
    h->ngiven += !predicted;
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

/* The first versions have a rank of their own until a restore or a hint comes: ranks them again
 * after such a change. */
void vvi_hint_refresh_first(struct vv_core *core, struct hist *h)
{
    struct vv_object *obj = h->oldest;

    for (int i = 0; i < VV_NEXT_FIRST_KEPT && obj; i++, obj = obj->newer)
        vvi_object_refresh(core, obj);
}

static void drop_predictions(struct vv_core *core, struct hist *h);

/* True if the predictions have replaced the hints, which were less accurate. */
static bool pattern_leads(const struct hist *h)
{
    return h->npredicted > 0 && h->surprises >= SURPRISES_MOST;
}

/* If the version is the first predicted one, the prediction becomes the hint. */
static bool confirm_prediction(struct hist *h, uint64_t version)
{
    struct hint *hint;

    h->predicted_at = VV_MAX(h->predicted_at, h->head);
    while (!hint_of(h, h->predicted_at)->predicted)
        h->predicted_at++;
    hint = hint_of(h, h->predicted_at);
    if (hint->obj->version != version)
        return false;
    hint->predicted = false;
    h->npredicted--;
    h->ngiven++;
    return true;
}

int vvi_hint_add(struct vv_core *core, uint32_t hist, uint64_t version)
{
    struct hist *h = vvi_hist(core, hist);
    struct vv_object *obj;
    int r;

    if (!h->hinted) {
        h->hinted = true;
        vvi_hint_refresh_first(core, h);
    }
    core->stats.hints++;
    vv_trace(VV_TRACE_HINT, vvi_trace_history(core, hist), version, h->tail - h->head, 0);
    if (pattern_leads(h) || (h->npredicted && confirm_prediction(h, version)))
        return 0;
    drop_predictions(core, h);
    obj = vvi_object_find(core, hist, version);
    if (!obj)
        obj = vvi_object_new(core, hist, version);
    if (!obj)
        return -ENOMEM;
    r = hint_append(core, obj, false);
    if (r < 0) { /* the object may have been made for the hint alone */
        obj->refs++;
        vvi_object_unref(core, obj);
    }
    return r;
}

void vvi_hint_written(struct vv_core *core, struct vv_object *obj)
{
    struct hist *h = vvi_hist(core, obj->hist);
    enum vv_restore_order order = h->cfg.order;
    bool predicted = order == VV_RESTORE_BY_HINTS;

    if (obj->hint_first || (predicted && (h->npredicted == 0 || h->ngiven > 0)))
        return;
    /* A version written while a pattern is followed gets its place in the pattern. */
    if (predicted && h->detect.stride == -1)
        order = VV_RESTORE_LIFO;
    else if (predicted && h->detect.stride == 1 && !h->predict_from)
        order = VV_RESTORE_FIFO;
    /* Without memory for the hint the version is not expected: hints are advice. */
    if (order == VV_RESTORE_LIFO)
        (void)hint_prepend(core, obj, predicted);
    else if (order == VV_RESTORE_FIFO)
        (void)hint_append(core, obj, predicted);
}

/* No hint names it any more: copies claimed for a restore are ordinary ones again. */
static void unclaim(struct vv_core *core, struct vv_object *obj)
{
    for (unsigned t = 0; t < core->ntiers; t++)
        if (obj->copy[t] && obj->copy[t]->state == VV_COPY_READ_COMPLETE)
            vvi_copy_set_state(core, obj->copy[t], VV_COPY_FLUSHED);
}

/* Removes the object's first live hint from the queue. */
static void hint_pop(struct vv_core *core, struct vv_object *obj)
{
    struct hist *h = vvi_hist(core, obj->hist);
    struct hint *hint = hint_of(h, obj->hint_first);

    vvi_hint_account(core, obj, -1);
    close_all(h, obj->hint_first);
    h->npredicted -= hint->predicted;
    h->ngiven -= !hint->predicted;
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

/* The queue begins and ends with a live hint. */
static void trim(struct hist *h)
{
    while (h->head < h->tail && !vvi_hint_at(h, h->head))
        h->head++;
    while (h->tail > h->head && !vvi_hint_at(h, h->tail - 1))
        h->tail--;
    for (unsigned i = 0; i < h->njudges; i++)
        h->judge[i] = VV_MIN(h->judge[i], h->tail - 1);
}

static void remember_passed(struct hist *h, uint64_t version)
{
    if (h->npassed == h->passed_cap && h->passed_at > 0) {
        h->npassed -= h->passed_at;
        memmove(h->passed, h->passed + h->passed_at, h->npassed * sizeof(*h->passed));
        h->passed_at = 0;
    }
    if (h->npassed == h->passed_cap) {
        size_t cap = h->passed_cap ? h->passed_cap * 2 : 64;
        uint64_t *p = realloc(h->passed, cap * sizeof(*p));
        if (!p)
            return; /* it will not be prefetched: hints are advice */
        h->passed = p;
        h->passed_cap = cap;
    }
    h->passed[h->npassed++] = version;
}

/* Removes the first hint of the object hinted at `seq` from the queue. `pass`: it was passed over,
 * and the version is prefetched after all others. */
static void hint_drop(struct vv_core *core, struct hist *h, uint64_t seq, bool pass)
{
    struct vv_object *obj = vvi_hint_at(h, seq);

    obj->refs++;
    hint_pop(core, obj);
    if (!obj->hint_first) {
        unclaim(core, obj);
        if (pass) {
            obj->passed = true;
            remember_passed(h, obj->version);
        }
        if (!pass && obj->used && !obj->restoring) { /* no second use is expected */
            obj->consumed = true;
            vvi_object_refresh(core, obj);
            vvi_object_settle(core, obj);
        }
    }
    vvi_object_unref(core, obj);
}

static void drop_predictions(struct vv_core *core, struct hist *h)
{
    for (uint64_t s = VV_MAX(h->predicted_at, h->head); h->npredicted > 0; s++)
        if (hint_of(h, s)->predicted)
            hint_drop(core, h, s, false);
    trim(h);
    h->predict_from = NULL;
}

void vvi_detect_again(struct vv_core *core, struct hist *h)
{
    drop_predictions(core, h);
    h->detect = (struct vv_detect){0};
    h->surprises = h->wrong = 0;
    vvi_hint_refresh_first(core, h);
}

/* The hints of the application have proved wrong. */
static void pass_hints(struct vv_core *core, struct hist *h)
{
    for (uint64_t s = h->head; s < h->tail; s++)
        if (hint_of(h, s)->obj && !hint_of(h, s)->predicted)
            hint_drop(core, h, s, true);
    trim(h);
}

/* A hint at `seq` has come true. Returns the place before which OVERTAKEN_MOST restores have overtaken
 * every hint: the judges are the fulfilled hints that were farthest back. */
static uint64_t overtaken_before(struct hist *h, uint64_t seq)
{
    unsigned i = h->njudges < OVERTAKEN_MOST ? h->njudges++ : 0;

    if (i == 0 && h->njudges == OVERTAKEN_MOST && seq < h->judge[0])
        return h->judge[0];
    for (; i + 1 < h->njudges && h->judge[i + 1] < seq; i++)
        h->judge[i] = h->judge[i + 1];
    for (; i > 0 && h->judge[i - 1] > seq; i--)
        h->judge[i] = h->judge[i - 1];
    h->judge[i] = seq;
    return h->njudges == OVERTAKEN_MOST ? h->judge[0] : 0;
}

/* Removes the hint of a restore from the queue. */
static void hint_fulfil(struct vv_core *core, struct hist *h, struct vv_object *obj)
{
    uint64_t own = obj->hint_first, late;

    obj->passed = false;
    if (!own)
        return;
    hint_pop(core, obj);
    late = overtaken_before(h, own);
    for (uint64_t s = h->head; s < VV_MIN(late, own); s++)
        if (vvi_hint_at(h, s) && !hint_of(h, s)->predicted)
            hint_drop(core, h, s, true);
    for (uint64_t s = VV_MAX(h->predicted_at, h->head); h->npredicted > 0 && s < own; s++)
        if (hint_of(h, s)->predicted)
            hint_drop(core, h, s, false);
    trim(h);
}

void vvi_hint_clear(struct vv_core *core, uint32_t hist)
{
    struct hist *h = vvi_hist(core, hist);

    for (uint64_t s = h->head; s < h->tail; s++)
        if (vvi_hint_at(h, s))
            hint_drop(core, h, s, false);
    h->head = h->tail;
    h->npassed = h->passed_at = 0;
    h->njudges = h->surprises = h->wrong = 0;
    h->hinted =
        h->cfg.order != VV_RESTORE_BY_HINTS; /* a declared order does not use the detector */
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
        s = hint->next_same;
        hint->obj = to;
        if (!to) {
            h->npredicted -= hint->predicted;
            h->ngiven -= !hint->predicted;
            *hint = (struct hint){0};
        }
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
    trim(vvi_hist(core, obj->hist));
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

uint64_t vvi_hint_after(const struct vv_core *core, const struct vv_object *obj)
{
    const struct hist *h = vvi_hist(core, obj->hist);
    uint64_t after = obj->hint_first ? hint_of(h, obj->hint_first)->next_same : 0;

    return after ? vv_next_rank(VV_USE_HINTED, after - h->head) : UINT64_MAX;
}

bool vvi_object_expected(const struct vv_core *core, const struct vv_object *obj)
{
    return obj->hint_first || (vvi_hist(core, obj->hist)->npredicted > 0 && !obj->consumed);
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

/* The first version to predict: the one that follows this restore in the pattern, or, if there are
 * hints and they follow the pattern, the one that follows the last hint. NULL: the hints do not
 * follow the pattern, or the history ends there. */
static struct vv_object *predict_after(const struct hist *h, struct vv_object *obj)
{
    struct vv_object *last = h->head < h->tail ? vvi_hint_at(h, h->tail - 1) : NULL;
    int64_t steps = (int64_t)(h->tail - h->head);

    if (!last)
        return walk(obj, h->detect.stride);
    if (!last->written || last->ordinal != obj->ordinal + (uint64_t)(steps * h->detect.stride))
        return NULL;
    return walk(last, h->detect.stride);
}

/* Makes a few predictions at a time, because the application waits for it. */
static void predict_more(struct vv_core *core, struct hist *h)
{
    uint64_t most = h->npredicted ? h->npredicted + PREDICT_STEP : PREDICT_FIRST;

    while (h->predict_from && h->npredicted < VV_MIN(most, PREDICT_AHEAD)) {
        if (!h->predict_from->hint_first && hint_append(core, h->predict_from, true) < 0)
            return;
        h->predict_from = walk(h->predict_from, h->detect.stride);
    }
}

/* Some programs restore a version several times. Once that was seen, a restored version is expected
 * again until another one is restored. */
static void predict_again(struct vv_core *core, struct hist *h, struct vv_object *obj)
{
    if (h->reuse > 0 && h->ngiven == 0 && h->npredicted > 0 && !obj->hint_first)
        (void)hint_prepend(core, obj, true);
}

/* True if the version is among the first hints of the application. */
static bool among_first_hints(const struct hist *h, const struct vv_object *obj)
{
    unsigned before = 0;

    if (!obj->hint_first || hint_of(h, obj->hint_first)->predicted)
        return false;
    for (uint64_t s = h->head; s < obj->hint_first && before < OVERTAKEN_MOST; s++)
        before += vvi_hint_at(h, s) != NULL;
    return before < OVERTAKEN_MOST;
}

/* Judges the hints after a restore. `by_hints`: they predicted it; `by_pattern`: the detector
 * did. */
static void judge_hints(struct vv_core *core, struct hist *h, bool by_hints, bool by_pattern)
{
    /* Without hints there is nothing to judge; the last one may have come true just now. */
    if (h->ngiven == 0) {
        h->wrong = 0;
        return;
    }
    if (by_hints != by_pattern)
        h->surprises = by_pattern ? h->surprises + (h->surprises < SURPRISES_MOST) : 0;
    h->wrong = by_hints ? 0 : h->wrong + 1;
    if (h->surprises < SURPRISES_MOST && h->wrong < WRONG_MOST)
        return;
    pass_hints(core, h);
    h->wrong = 0;
}

/* The detector's verdict on a restore. `first`: it was predicted to come next. */
static enum vv_detect_verdict see_restore(struct hist *h, const struct vv_object *obj, bool first)
{
    int64_t stride = h->detect.stride;
    enum vv_detect_verdict verdict =
        vv_detect_restore(&h->detect, obj->ordinal, h->oldest->ordinal, h->newest->ordinal);

    if (!first || verdict == VV_DETECT_SAME)
        return verdict;
    h->detect.stride = stride; /* the pattern continued from a version that was written meanwhile */
    return VV_DETECT_HELD;
}

/* True if the restore was predicted to come next. Versions that were already restored and are
 * expected again may be before it. */
static bool predicted_next(const struct hist *h, const struct vv_object *obj)
{
    if (!obj->hint_first || h->ngiven > 0)
        return false;
    for (uint64_t s = h->head; s < obj->hint_first; s++)
        if (vvi_hint_at(h, s) && !(h->reuse > 0 && vvi_hint_at(h, s)->restored))
            return false;
    return true;
}

void vvi_hint_restored(struct vv_core *core, struct vv_object *obj)
{
    struct hist *h = vvi_hist(core, obj->hist);
    bool first_ever = !h->detect.any, by_hints = among_first_hints(h, obj);
    bool next = predicted_next(h, obj);
    enum vv_detect_verdict verdict;

    hint_fulfil(core, h, obj);
    if (h->cfg.order != VV_RESTORE_BY_HINTS)
        return;
    verdict = see_restore(h, obj, next);
    /* A version was restored again: the one restored last, or the newest (the top of a stack). */
    if (obj->restored && (verdict == VV_DETECT_SAME || obj == h->newest))
        h->reuse = REUSE_MOST;
    else if (h->reuse > 0)
        h->reuse--;
    obj->restored = true;
    if (verdict == VV_DETECT_FOUND || verdict == VV_DETECT_BROKEN)
        drop_predictions(core, h);
    if (verdict != VV_DETECT_HELD && verdict != VV_DETECT_SAME)
        h->surprises = 0;
    if (verdict != VV_DETECT_SAME)
        judge_hints(core, h, by_hints, verdict == VV_DETECT_HELD);
    if (verdict == VV_DETECT_FOUND || verdict == VV_DETECT_HELD) {
        if (!h->predict_from && h->npredicted == 0)
            h->predict_from = predict_after(h, obj);
        predict_more(core, h);
    }
    predict_again(core, h, obj);
    /* The first versions were kept whole only until now. */
    if (first_ever)
        vvi_hint_refresh_first(core, h);
}

void vvi_predict_forget(struct vv_core *core, struct vv_object *obj)
{
    struct hist *h = vvi_hist(core, obj->hist);

    if (h->predict_from == obj)
        h->predict_from = walk(obj, h->detect.stride < 0 ? -1 : 1);
}
