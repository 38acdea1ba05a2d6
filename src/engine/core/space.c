/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Space: which data makes room for which. All reservations of arena space come through
 * vvi_space_take().
 *
 * Paged (`next`): free pages first, then pages that may go, one by one, farthest next use first, as
 * far as the policy agrees (policy/next.h). A duplicate of a chunk that a faster tier holds goes
 * before any page that would have to be read again: where it matters, tiers are exclusive. Space is
 * never promised in advance: a request that finds none tries again at the next completion.
 *
 * An object of at most half a page takes part of a page on the memory tiers, so that the unused
 * ends of small objects do not fill them. Where a whole page is wanted, the parts of a page go
 * together, if all may go. Such pages do not change hands on the time line of a stream (ahead.c).
 *
 * Contiguous (`score`, `score-now`, `fifo`, `lru`): an object's pages on a tier are one run, taken
 * at once, out of a window of consecutive fragments (policy/window.h). `score` commits to its
 * window and waits until all of it may go.
 *
 * Transit pages, a few of them in each direction, follow the host arena. They let a chunk pass a
 * full host tier and are never part of a window.
 */
#include <stdlib.h>

#include "engine/core/core_private.h"
#include "trace/trace.h"

/* ---- paged ---- */

/* True if the tier above has less room than the next put may need. Only while more puts are
 * expected. */
static bool headroom_low(const struct vv_core *core, unsigned tier, const struct hist *h)
{
    const struct tier *above;

    if (tier == 0)
        return true;
    if (core->puts)
        return true;
    if (vvi_puts_over(h))
        return false;
    above = &core->tier[tier - 1];
    return above->arena.nfree + above->nevict < vvi_nchunks(core, core->largest_bytes);
}

/* If puts come between restores, the disk has the time of a put and a restore for each version that
 * it reads, but has to write as many bytes as it reads. */
static bool disk_has_time(const struct vv_core *core, const struct hist *h)
{
    double reads = core->hop[VV_HOP_F2H].rate.bytes_per_s;
    double writes = core->hop[VV_HOP_H2F].rate.bytes_per_s;
    uint64_t missing = h->missing_chunks * core->cfg.page_bytes;

    if (core->mixed > 0 && reads > 0 && writes > 0)
        return vv_next_disk_has_time(h->ready, 2 * h->interval_ns, missing,
                                     (uint64_t)(reads * writes / (reads + writes)));
    return vv_next_disk_has_time(h->ready, h->interval_ns, missing, (uint64_t)reads);
}

static bool may_evict(const struct vv_core *core, unsigned tier, const struct vv_object *obj,
                      uint32_t chunk, const struct vv_copy *victim, enum vv_purpose purpose)
{
    const struct vv_object *v = victim->obj;
    const struct hist *h = vvi_hist(core, v->hist), *own = vvi_hist(core, obj->hist);
    uint64_t disk_rate = (uint64_t)core->hop[VV_HOP_F2H].rate.bytes_per_s;
    bool in_memory = false;
    struct vv_next_question q;

    if (purpose == VV_FOR_DEMAND || (purpose == VV_FOR_PUT && core->mixed == 0))
        return true;
    for (unsigned t = 0; t < core->ntiers && core->tier[t].memory; t++)
        in_memory |= t != tier && vvi_chunk_valid(core, v, t, victim->evict_top);
    q = (struct vv_next_question){
        .purpose = purpose,
        .phase = vvi_phase(core),
        .rank = vvi_rank(core, obj, tier, chunk),
        .rank_after = vvi_hint_after(core, obj),
        .victim = vvi_rank(core, v, tier, victim->evict_top),
        .victim_expected = vvi_object_expected(core, v),
        .victim_in_memory = in_memory,
        .mixed = core->mixed > 0,
        .stands_still = core->stands_still,
        .headroom_low =
            purpose == VV_FOR_FLUSH && headroom_low(core, tier, vvi_hist(core, obj->hist)),
        .disk_idles =
            obj->hint_first && vv_next_disk_idles(obj->hint_first - own->head,
                                                  (uint64_t)obj->nmem * core->cfg.page_bytes,
                                                  own->interval_ns, disk_rate),
        .disk_has_time = disk_has_time(core, h),
    };
    return vv_next_may_evict(&q);
}

struct vv_copy *vvi_space_farthest(const struct vv_core *core, unsigned tier)
{
    struct vv_copy *best = NULL;
    uint64_t best_rank = 0;

    for (uint32_t i = 0; i < core->nhist; i++) {
        const struct vv_heap *heap = &core->hist[i].heap[tier][HEAP_EVICT];
        struct vv_copy *copy = vv_heap_top(heap);
        uint64_t rank = copy ? vvi_rank_relative(core, copy->obj, heap->item[0].key) : 0;
        vv_assert(!copy || rank == vvi_rank(core, copy->obj, tier, copy->evict_top));
        if (copy && (!best || rank > best_rank)) {
            best = copy;
            best_rank = rank;
        }
    }
    return best;
}

/* A duplicate of an object that is wanted before `rank` and that a faster tier holds as well. */
static struct vv_copy *nearest_duplicate(const struct vv_core *core, unsigned tier, uint64_t rank)
{
    struct vv_copy *best = NULL;
    uint64_t best_rank = rank;

    for (uint32_t i = 0; i < core->nhist; i++) {
        struct vv_copy *copy = vv_heap_top(&core->hist[i].heap[tier][HEAP_DUP]);
        uint64_t r = copy ? vvi_rank(core, copy->obj, tier, 0) : 0;
        if (copy && r < best_rank) {
            best = copy;
            best_rank = r;
        }
    }
    return best;
}

/* Updates classes and counts after `gone` chunks of [low, high] have been dropped. The classes of
 * pages depend on other tiers, so those of the copy itself do not change. */
static uint32_t pages_gone(struct vv_core *core, struct vv_copy *copy, uint32_t low, uint32_t high,
                           uint32_t gone)
{
    struct vv_object *obj = copy->obj;
    bool others = false;

    if (gone == 0)
        return 0;
    core->stats.evicted_pages += gone;
    vv_trace5(VV_TRACE_EVICT, vvi_trace_history(core, obj->hist), obj->version, copy->tier, low,
              gone);
    for (unsigned t = 0; t < core->ntiers; t++)
        if (t != copy->tier && obj->copy[t] && core->tier[t].is_arena)
            others = true;
    if (others)
        vvi_core_reclass(core, obj, low, high - low + 1);
    else
        vvi_copy_refresh(core, copy);
    vvi_copy_maybe_free(core, copy);
    return gone;
}

/* Evicts up to `n` pages of the copy that may go, last chunks first. */
uint32_t vvi_space_evict(struct vv_core *core, struct vv_copy *copy, uint32_t n)
{
    bool revoked = copy->state == VV_COPY_READ_COMPLETE;
    uint32_t gone = 0, low = 0, high = 0;

    if (revoked)
        vvi_copy_set_state(core, copy, VV_COPY_FLUSHED);
    n = VV_MIN(n, copy->nevict); /* do not look for more than there are */
    for (uint32_t c = copy->evict_top + 1; c > 0 && gone < n;) {
        uint32_t run = 0;
        while (run < c && gone + run < n && copy->page[c - 1 - run] != VV_PAGE_NONE &&
               (vvi_page(core, copy, c - 1 - run)->class & CLASS_EVICT))
            run++;
        if (run == 0) {
            c--;
            continue;
        }
        if (gone == 0)
            high = c - 1;
        gone += run;
        c -= run;
        low = c;
        vvi_chunks_drop(core, copy, c, run);
    }
    core->stats.revoked_pages += revoked && copy->obj->hint_first ? gone : 0;
    return pages_gone(core, copy, low, high, gone);
}

void vvi_space_evict_page(struct vv_core *core, struct vv_copy *copy, uint32_t c)
{
    bool revoked = copy->state == VV_COPY_READ_COMPLETE;

    if (revoked)
        vvi_copy_set_state(core, copy, VV_COPY_FLUSHED);
    core->stats.revoked_pages += revoked && copy->obj->hint_first;
    vvi_chunk_drop(core, copy, c);
    pages_gone(core, copy, c, c, 1);
}

/* Evicts duplicates of chunks that are wanted before `rank`, first chunks first. A duplicate that
 * no slower tier has would have to be flushed again: it goes only if `unflushed`. */
static uint32_t evict_duplicates(struct vv_core *core, struct vv_copy *copy, uint64_t rank,
                                 bool unflushed, uint32_t n)
{
    const struct vv_object *obj = copy->obj;
    uint32_t gone = 0, low = 0, high = 0;

    n = VV_MIN(n, copy->ndup);
    for (uint32_t c = 0; c < obj->nchunks && gone < n; c++) {
        if (copy->page[c] == VV_PAGE_NONE || !(vvi_page(core, copy, c)->class & CLASS_DUP))
            continue;
        if (vvi_rank(core, obj, copy->tier, c) >= rank)
            break;
        if (vvi_page(core, copy, c)->class & CLASS_DIRTY) {
            /* Limited: flushing the chunk again may take back the page that it has made room for,
             * and the two would alternate for ever. */
            if (!unflushed || obj->reflushed / REFLUSH_MOST >= obj->nchunks)
                continue;
            copy->obj->reflushed++;
        }
        if (gone++ == 0)
            low = c;
        high = c;
        vvi_chunk_drop(core, copy, c);
    }
    return pages_gone(core, copy, low, high, gone);
}

/* Size of the part for the object: a page divided by the number that fit. 0: it takes whole
 * pages. */
static uint32_t part_units(const struct vv_core *core, unsigned tier, const struct vv_object *obj)
{
    const struct vv_arena *a = &core->tier[tier].arena;
    uint32_t need;

    if (obj->size > core->cfg.page_bytes / 2 || a->units < 2 || obj->nchunks != 1 ||
        (core->ahead.on && (int)tier == core->device))
        return 0;
    need = (uint32_t)vv_div_up(obj->size, (uint64_t)core->cfg.page_bytes / a->units);
    return need <= a->units / 2 ? a->units / (a->units / need) : 0;
}

uint32_t vvi_space_evict_parts(struct vv_core *core, unsigned tier, uint32_t page)
{
    const struct vv_arena *a = &core->tier[tier].arena;
    uint32_t each = a->cut[page].each, part = a->first_part + page * a->units, gone = 0;

    for (uint32_t u = 0; a->cut[page].each && u + each <= a->units; u += each) {
        const struct vv_page *p = &a->page[part + u];
        struct vv_copy *copy = p->u.owner;
        if (p->state == VV_PAGE_FREE || !(p->class & CLASS_EVICT) || copy->readers > 0)
            continue;
        vvi_space_evict_page(core, copy, 0);
        gone++;
    }
    return gone;
}

/* The page that the copy has a part of; VV_PAGE_NONE: it has whole pages. */
static uint32_t part_of(const struct vv_core *core, const struct vv_copy *copy)
{
    const struct vv_arena *a = &core->tier[copy->tier].arena;
    uint32_t page = copy->page[0];

    if (copy->obj->nchunks > 1 || page == VV_PAGE_NONE || !vv_arena_is_part(a, page))
        return VV_PAGE_NONE;
    return vv_arena_page_of(a, page);
}

/* True if the copy has places of the kind that `obj` takes there: whole pages, or parts of one
 * size. */
static bool same_places(const struct vv_core *core, const struct vv_copy *copy,
                        const struct vv_object *obj)
{
    const struct vv_arena *a = &core->tier[copy->tier].arena;
    uint32_t page = part_of(core, copy);

    return page == VV_PAGE_NONE || a->cut[page].each == part_units(core, copy->tier, obj);
}

/* True if all parts of the page may go to make room for `obj`. */
static bool parts_may_go(const struct vv_core *core, unsigned tier, uint32_t page,
                         const struct vv_object *obj, uint32_t chunk, enum vv_purpose purpose)
{
    const struct vv_arena *a = &core->tier[tier].arena;
    uint32_t each = a->cut[page].each, part = a->first_part + page * a->units;

    for (uint32_t u = 0; u + each <= a->units; u += each) {
        const struct vv_page *p = &a->page[part + u];
        const struct vv_copy *copy = p->u.owner;
        if (p->state != VV_PAGE_FREE && (!(p->class & CLASS_EVICT) || copy->readers > 0 ||
                                         !may_evict(core, tier, obj, chunk, copy, purpose)))
            return false;
    }
    return true;
}

/* Evicts up to `n` pages of the farthest copy. While its order is unknown, every object keeps the
 * same share: it loses a small part, and then another copy is the farthest. */
static uint32_t evict_farthest(struct vv_core *core, struct vv_copy *copy, uint32_t n)
{
    const struct vv_heap *heap = &vvi_hist(core, copy->obj->hist)->heap[copy->tier][HEAP_EVICT];

    if (vv_next_use(heap->item[copy->heap_pos[HEAP_EVICT]].key) == VV_USE_UNKNOWN)
        n = VV_MIN(n, VV_MAX(copy->obj->nchunks / PARTS, (uint32_t)1));
    return vvi_space_evict(core, copy, n);
}

/* While puts come between restores, each put takes those pages of the device that are wanted last.
 * True if the next put will leave the pages of this object on the device. If not, the host must keep
 * its copies of them. */
static bool next_put_spares(const struct vv_core *core, const struct vv_object *obj)
{
    const struct hist *h = vvi_hist(core, obj->hist);
    const struct tier *t;
    uint64_t later, put = vvi_nchunks(core, core->put_bytes);

    if (core->mixed == 0 || core->device < 0 || !obj->hint_first)
        return true;
    t = &core->tier[core->device];
    if (put > t->arena.npromised / 2)
        return true; /* the put takes most of the device, whatever the host keeps */
    later = t->arena.nfree + t->nevict;
    /* The put takes nothing that is wanted before it. The device holds few objects, so the first
     * hints are enough. */
    for (uint64_t s = h->head; s <= obj->hint_first && s < h->head + LOOK_AHEAD; s++) {
        const struct vv_object *o = vvi_hint_at(h, s);
        if (o && o->hint_first == s && o->copy[core->device])
            later -= o->copy[core->device]->nevict;
    }
    return later >= put;
}

static uint32_t evict_some(struct vv_core *core, unsigned tier, const struct vv_object *obj,
                           uint32_t chunk, uint32_t n, enum vv_purpose purpose)
{
    struct vv_copy *copy;
    uint32_t page;

    if (!vv_next_blocks(purpose)) {
        /* A flush replaces only duplicates of data that is wanted before its own. The faster tier
         * gives up the data wanted last first, and then needs the copy here. */
        uint64_t rank = purpose == VV_FOR_PREFETCH ? UINT64_MAX : vvi_rank(core, obj, tier, chunk);
        copy = nearest_duplicate(core, tier, rank);
        /* A flush must not replace chunks that it has itself brought here. */
        if (copy && (copy->obj != obj || purpose == VV_FOR_PREFETCH) &&
            next_put_spares(core, copy->obj) && same_places(core, copy, obj)) {
            const struct vv_object *flushed = purpose == VV_FOR_FLUSH ? obj : copy->obj;
            bool pressed = vvi_phase(core) == VV_PHASE_WRITING &&
                           headroom_low(core, tier, vvi_hist(core, flushed->hist));
            /* Pages that have to be flushed again go only if the page is really gained, and if
             * flushing them does not take it back: otherwise both would alternate for ever. */
            bool unflushed = purpose == VV_FOR_FLUSH ? pressed : !pressed;
            uint32_t gone = evict_duplicates(core, copy, rank, unflushed, n);
            if (gone)
                return gone;
        }
    }
    copy = vvi_space_farthest(core, tier);
    if (!copy)
        return 0;
    if (!may_evict(core, tier, obj, chunk, copy, purpose))
        return 0;
    if (same_places(core, copy, obj))
        return evict_farthest(core, copy, n);
    page = part_of(core, copy);
    /* The page is gained only if all its parts go. A blocked request evicts those that may go, and
     * then continues with another page. */
    if (!vv_next_blocks(purpose) && !parts_may_go(core, tier, page, obj, chunk, purpose))
        return 0;
    return vvi_space_evict_parts(core, tier, page);
}

/* The next put will evict the farthest data. While more puts are expected, that is done before the
 * put comes, so that it finds room at once. Only if the room is a small part of the tier. */
void vvi_space_ahead(struct vv_core *core, const struct vv_object *written)
{
    const struct hist *h = vvi_hist(core, written->hist);
    unsigned tier = written->home;
    struct tier *t = &core->tier[tier];
    uint32_t room = vvi_nchunks(core, core->largest_bytes);

    if (!core->paged || (int)tier != core->device || core->phase != VV_PHASE_WRITING ||
        core->puts || vvi_puts_over(h) || room > t->arena.npages / AHEAD_PART ||
        part_units(core, tier, written))
        return;
    while (t->arena.nfree < room) {
        struct vv_copy *copy = vvi_space_farthest(core, tier);
        if (!copy || part_of(core, copy) != VV_PAGE_NONE ||
            !evict_farthest(core, copy, room - t->arena.nfree))
            return;
    }
}

static uint32_t take_paged(struct vv_core *core, unsigned tier, struct vv_object *obj,
                           uint32_t chunk0, uint32_t want, enum vv_purpose purpose, uint32_t *pages)
{
    struct tier *t = &core->tier[tier];
    uint32_t each = part_units(core, tier, obj);

    /* A put that waits for a whole page has emptied part of one. The evicted data must not come
     * back there: the two would alternate for ever. */
    if (each && purpose == VV_FOR_PREFETCH && core->puts && core->put_short)
        return 0;
    /* Make room first, then take all pages at once: adjacent pages are one run again. */
    for (;;) {
        uint32_t have = t->arena.nfree, chunk, most;
        if (each && (pages[0] = vv_arena_take_part(&t->arena, each)) != VV_PAGE_NONE)
            return 1;
        if (have >= want)
            break;
        chunk = purpose == VV_FOR_PREFETCH ? chunk0 + have : chunk0;
        most = want - have;
        /* If chunks of one object differ in rank, one page is evicted at a time, by the rank of the
         * chunk that will get it: otherwise two versions without hints would take pages from each
         * other for ever. */
        if (purpose == VV_FOR_PREFETCH &&
            vv_next_use(vvi_rank(core, obj, tier, chunk)) != VV_USE_HINTED)
            most = 1;
        if (!evict_some(core, tier, obj, chunk, most, purpose))
            break;
        core->stands_still &= purpose != VV_FOR_PUT;
    }
    return vv_arena_take_pages(&t->arena, VV_MIN(t->arena.nfree, want), pages);
}

bool vvi_space_room_for(struct vv_core *core, unsigned tier, const struct vv_object *obj,
                        uint32_t chunk, enum vv_purpose purpose)
{
    struct vv_copy *copy;

    if (!core->paged || core->tier[tier].arena.nfree > 0)
        return core->paged;
    copy = vvi_space_farthest(core, tier);
    return copy && may_evict(core, tier, obj, chunk, copy, purpose);
}

/* ---- contiguous ---- */

/* A prefetch fills a run in several transfers. Between two of them the run may be evicted,
 * including the pages still to be filled. */
static bool half_fetched(const struct vv_copy *copy)
{
    return copy->state == VV_COPY_READ_IN_PROGRESS && copy->nreserved > 0 && copy->nfilling == 0;
}

bool vvi_space_whole_may_go(const struct vv_copy *copy)
{
    return !copy->readers &&
           copy->nevict + (half_fetched(copy) ? copy->nreserved : 0) == copy->obj->nchunks;
}

/* Fetched for a restore that is still to come: no other prefetch takes it. A passed-over version
 * makes room for live hints, but not for other passed-over versions: they would alternate for
 * ever. */
static bool claimed(const struct vv_copy *copy, const struct vv_object *by)
{
    if (!copy->obj->hint_first)
        return copy->obj->passed && by->passed;
    return copy->state == VV_COPY_READ_COMPLETE || copy->state == VV_COPY_READ_IN_PROGRESS;
}

/* Estimated time until the copy may go: that of its flush and the flushes queued before it, or that
 * until its restore. */
static uint64_t time_until_evictable(const struct vv_core *core, const struct vv_copy *copy)
{
    enum vv_hop down = core->tier[copy->tier].kind == VV_TIER_DEVICE ? VV_HOP_D2H : VV_HOP_H2F;
    const struct hop_state *hop = &core->hop[down];
    const struct hist *h = vvi_hist(core, copy->obj->hist);
    uint64_t ahead = copy->flush_mark > hop->done_bytes ? copy->flush_mark - hop->done_bytes : 0,
             ns;

    if (copy->state == VV_COPY_READ_COMPLETE && copy->obj->hint_first)
        ns =
            vv_predict_consumed_ns(copy->obj->hint_first - h->head, h->interval_ns, copy->obj->size,
                                   (uint64_t)core->hop[VV_HOP_D2D].rate.bytes_per_s);
    else
        ns = vv_predict_transfer_ns(ahead, copy->obj->size, (uint64_t)hop->rate.bytes_per_s);
    return VV_MAX(ns, 1);
}

static struct vv_frag fragment_of(const struct vv_core *core, const struct vv_copy *copy,
                                  const struct vv_object *by, enum vv_purpose purpose, bool revoke)
{
    const struct vv_object *obj = copy->obj;
    const struct hist *h = vvi_hist(core, obj->hist);
    struct vv_frag f = {
        .pages = obj->nchunks,
        .distance = obj->hint_first ? obj->hint_first - h->head : h->tail - h->head + 1,
        .stamp = core->cfg.policy == VV_POLICY_LRU ? copy->stamp_use : copy->stamp_in,
    };

    if (claimed(copy, by) && (purpose == VV_FOR_PREFETCH || !revoke))
        f.barred = true;
    else if (!vvi_space_whole_may_go(copy))
        f.wait_ns = time_until_evictable(core, copy);
    /* A copy that is being filled, or whose flush has failed, goes at a time that cannot be
     * predicted. */
    if (copy->nfilling || (copy->nreserved && !vvi_space_whole_may_go(copy)) ||
        vvi_flush_stopped(obj) || obj->lent)
        f.barred = true;
    return f;
}

static size_t list_fragments(struct vv_core *core, unsigned tier, const struct vv_object *by,
                             enum vv_purpose purpose, bool revoke)
{
    const struct vv_arena *a = &core->tier[tier].arena;
    size_t n = 0;

    for (uint32_t p = 0; p < a->nready;) {
        const struct vv_copy *copy = a->page[p].u.owner;
        if (n == core->frags_cap) {
            size_t cap = core->frags_cap ? core->frags_cap * 2 : 256;
            struct vv_frag *frags = realloc(core->frags, cap * sizeof(*frags));
            if (!frags)
                return 0;
            core->frags = frags;
            core->frags_cap = cap;
        }
        if (a->page[p].state == VV_PAGE_FREE)
            core->frags[n] = (struct vv_frag){.pages = vv_arena_run(a, p), .gap = true};
        else
            core->frags[n] = fragment_of(core, copy, by, purpose, revoke);
        p += (uint32_t)core->frags[n++].pages;
    }
    return n;
}

static bool find_window(struct vv_core *core, unsigned tier, const struct vv_object *obj,
                        enum vv_purpose purpose, uint32_t *ret_first, uint32_t *ret_n)
{
    struct vv_window w;
    uint32_t first = 0, pages = 0;
    bool found = false;

    for (int revoke = 0; revoke < 2 && !found; revoke++) {
        size_t n = list_fragments(core, tier, obj, purpose, revoke);
        if (core->cfg.policy == VV_POLICY_FIFO || core->cfg.policy == VV_POLICY_LRU)
            found = vv_window_oldest(core->frags, n, obj->nchunks, &w);
        else
            found = vv_window_score(core->frags, n, obj->nchunks,
                                    core->cfg.policy == VV_POLICY_SCORE_NOW, &w);
        /* Only a blocked request, or a flush that it waits for, takes fetched copies. */
        if (purpose == VV_FOR_PREFETCH ||
            (purpose == VV_FOR_FLUSH && !core->puts && !core->gets && !core->waits))
            break;
    }
    if (!found)
        return false;
    for (size_t i = 0; i < w.first; i++)
        first += (uint32_t)core->frags[i].pages;
    for (size_t i = w.first; i < w.end; i++)
        pages += (uint32_t)core->frags[i].pages;
    /* A gap at the end may be most of a large file: no more of it is taken than is needed. */
    if (core->frags[w.end - 1].gap)
        pages = obj->nchunks;
    *ret_first = first;
    *ret_n = pages;
    return true;
}

/* True if every page of the window is free or may go. */
static bool window_clear(const struct vv_core *core, unsigned tier, uint32_t first, uint32_t n,
                         const struct vv_object *by, enum vv_purpose purpose)
{
    const struct vv_arena *a = &core->tier[tier].arena;

    for (uint32_t p = first; p < first + n; p++) {
        const struct vv_copy *copy = a->page[p].u.owner;
        if (a->page[p].state == VV_PAGE_FREE)
            continue;
        if (!vvi_space_whole_may_go(copy) || (purpose == VV_FOR_PREFETCH && claimed(copy, by)))
            return false;
    }
    return true;
}

void vvi_space_evict_run(struct vv_core *core, struct vv_copy *copy)
{
    for (uint32_t c = 0; copy->nreserved > 0; c++)
        if (vvi_page(core, copy, c)->state == VV_PAGE_RESERVED)
            vvi_chunk_drop(core, copy, c);
    if (copy->nevict)
        vvi_space_evict(core, copy, copy->obj->nchunks);
    else
        vvi_copy_maybe_free(core, copy);
}

static void evict_window(struct vv_core *core, unsigned tier, uint32_t first, uint32_t n)
{
    const struct vv_arena *a = &core->tier[tier].arena;

    for (uint32_t p = first; p < first + n; p++)
        if (a->page[p].state != VV_PAGE_FREE)
            vvi_space_evict_run(core, a->page[p].u.owner);
}

static bool take_run(struct vv_core *core, unsigned tier, struct vv_object *obj, uint32_t first,
                     uint32_t n, enum vv_copy_state born)
{
    struct vv_copy *copy = vvi_copy_get(core, obj, tier, born);

    if (!copy)
        return false;
    evict_window(core, tier, first, n);
    /* The end of a window may be part of a larger gap: the rest stays free. */
    vv_arena_take_at(&core->tier[tier].arena, first, obj->nchunks);
    copy->whole = true;
    for (uint32_t c = 0; c < obj->nchunks; c++)
        vvi_chunk_place(core, copy, c, first + c, VV_PAGE_RESERVED);
    if (born == VV_COPY_WRITE_IN_PROGRESS) {
        struct hop_state *down =
            &core->hop[core->tier[tier].kind == VV_TIER_DEVICE ? VV_HOP_D2H : VV_HOP_H2F];
        copy->flush_mark = down->queued_bytes;
        down->queued_bytes += obj->size;
    }
    return true;
}

/* True if nothing waits for the window any more. */
static bool commit_stale(const struct vv_core *core, unsigned tier, unsigned slot)
{
    const struct vv_object *obj = core->tier[tier].commit[slot].obj;

    if (slot)
        return !obj->hint_first || vvi_object_complete_at(core, obj, tier);
    return !obj->writing && (tier == 0 || !obj->copy[tier - 1] || obj->copy[tier - 1]->ndirty == 0);
}

/* Reserves the whole object, or waits while the window that `score` has chosen empties. */
static bool reserve_whole(struct vv_core *core, unsigned tier, struct vv_object *obj,
                          enum vv_purpose purpose)
{
    struct tier *t = &core->tier[tier];
    unsigned slot = purpose == VV_FOR_PREFETCH;
    enum vv_copy_state born = slot ? VV_COPY_READ_IN_PROGRESS : VV_COPY_WRITE_IN_PROGRESS;
    uint32_t first, n;

    if (obj->nchunks > t->arena.npromised || obj->copy[tier])
        return false;
    /* A put that has begun to pass this tier in transit pages continues so: a run for it would
     * never be full. */
    if (purpose == VV_FOR_PUT && obj->pass_through)
        return false;
    for (unsigned below = tier + 1; purpose == VV_FOR_FLUSH && below < core->ntiers; below++)
        if (obj->copy[below])
            return false;
    if (t->commit[slot].obj && commit_stale(core, tier, slot))
        t->commit[slot].obj = NULL;
    if (t->commit[slot].obj && t->commit[slot].obj != obj)
        return false; /* one at a time: within a priority, reservations are served in order */
    if (t->commit[slot].obj == obj) {
        first = t->commit[slot].first;
        n = t->commit[slot].n;
    } else {
        if (t->tried_epoch[slot] == t->freed_epoch + 1 && t->tried_pages[slot] <= obj->nchunks)
            return false;
        if (!find_window(core, tier, obj, purpose, &first, &n)) {
            t->tried_epoch[slot] = t->freed_epoch + 1;
            t->tried_pages[slot] = obj->nchunks;
            return false;
        }
    }
    if (!window_clear(core, tier, first, n, obj, purpose)) {
        t->commit[slot].obj = obj;
        t->commit[slot].first = first;
        t->commit[slot].n = n;
        return false;
    }
    t->commit[slot].obj = NULL;
    return take_run(core, tier, obj, first, n, born);
}

static uint32_t take_whole(struct vv_core *core, unsigned tier, struct vv_object *obj,
                           uint32_t chunk0, uint32_t want, enum vv_purpose purpose, uint32_t *pages)
{
    uint32_t got = 0;

    if (!obj->copy[tier] && !reserve_whole(core, tier, obj, purpose))
        return 0;
    if (!obj->copy[tier]->whole)
        return 0;
    while (got < want && vvi_chunk_state(core, obj, tier, chunk0 + got) == VV_PAGE_RESERVED) {
        pages[got] = obj->copy[tier]->page[chunk0 + got];
        got++;
    }
    return got;
}

/* ---- both ---- */

bool vvi_space_fits(const struct vv_core *core, unsigned tier, const struct vv_object *obj)
{
    const struct tier *t = &core->tier[tier];

    return core->paged ? t->arena.npromised > 0 : obj->nchunks <= t->arena.npromised;
}

uint32_t vvi_space_take(struct vv_core *core, unsigned tier, struct vv_object *obj, uint32_t chunk0,
                        uint32_t want, enum vv_purpose purpose, uint32_t *pages)
{
    if (want == 0 || core->tier[tier].arena.npromised == 0)
        return 0;
    if (core->paged)
        return take_paged(core, tier, obj, chunk0, want, purpose, pages);
    /* A restore that waits reserves no window, but fills one that was reserved for it. */
    if (purpose == VV_FOR_DEMAND && !obj->copy[tier])
        return 0;
    return take_whole(core, tier, obj, chunk0, want, purpose, pages);
}

/* The disk has the data of a transit page on the way up as well: a restore may take the page from a
 * prefetch. */
static bool reclaim_transit_up(struct vv_core *core)
{
    struct tier *t = &core->tier[core->host];
    uint32_t first = t->arena.npages + t->transit_all;

    for (uint32_t p = first; p < first + t->transit_all; p++) {
        struct vv_page *page = &t->arena.page[p];
        struct vv_copy *copy = page->u.owner;
        if (page->state == VV_PAGE_VALID && (page->class & CLASS_PASS)) {
            uint32_t c = page->chunk;
            struct vv_object *obj = copy->obj;
            vvi_chunk_drop(core, copy, c);
            vvi_core_reclass(core, obj, c, 1);
            vvi_copy_maybe_free(core, copy);
            return true;
        }
    }
    return false;
}

uint32_t vvi_space_transit(struct vv_core *core, int up, bool reclaim, uint32_t want,
                           uint32_t *pages)
{
    struct tier *t = &core->tier[core->host];
    uint32_t got = 0;

    while (got < want) {
        if (t->ntransit[up] == 0 && !(up && reclaim && got == 0 && reclaim_transit_up(core)))
            break;
        pages[got] = t->transit[up][--t->ntransit[up]];
        t->arena.page[pages[got++]].state = VV_PAGE_RESERVED;
    }
    return got;
}

void vvi_space_untake(struct vv_core *core, unsigned tier, const uint32_t *pages, uint32_t n)
{
    struct tier *t = &core->tier[tier];

    for (uint32_t i = 0; i < n; i++) {
        if (!vvi_transit_page(t, pages[i]) &&
            (t->arena.page[pages[i]].pins > 0 || vvi_ahead_busy(core, tier, pages[i]))) {
            vvi_ahead_limbo(core, tier, pages[i]);
        } else if (pages[i] < t->arena.npages) {
            vv_arena_give(&t->arena, pages[i], 1);
        } else if (vv_arena_is_part(&t->arena, pages[i])) {
            vv_arena_give_part(&t->arena, pages[i]);
        } else {
            int up = pages[i] - t->arena.npages >= t->transit_all;
            t->arena.page[pages[i]] = (struct vv_page){0};
            t->transit[up][t->ntransit[up]++] = pages[i];
        }
    }
}

/* True for pages of a cache and for those through which flushes pass. */
static bool uses_room(const struct vv_core *core, int tier, uint32_t page)
{
    const struct tier *t = tier != VV_TIER_APP ? &core->tier[tier] : NULL;

    return t && t->is_arena &&
           (page < t->arena.npages + t->transit_all || vv_arena_is_part(&t->arena, page));
}

/* True if a put may still get room. A tier that grows will have more. Among the orders in flight,
 * flushes, commits and removals may make room, and so may every order that uses pages that a put
 * could get. Restores of other versions that pass through on their way up do not: a put must not
 * wait for them in vain as long as they go on. */
bool vvi_room_may_come(const struct vv_core *core)
{
    if (vvi_growing(core) || core->nending > 0)
        return true;
    for (const struct vv_order *o = core->orders; o; o = o->all_next) {
        if (o->kind == VV_ORDER_COMMIT || o->kind == VV_ORDER_REMOVE || o->kind == VV_ORDER_SALVAGE)
            return true;
        if (o->kind == VV_ORDER_COPY && o->dst_tier > o->src_tier)
            return true;
        if (uses_room(core, o->src_tier, o->src_page[0]) ||
            uses_room(core, o->dst_tier, o->dst_page[0]))
            return true;
    }
    return false;
}
