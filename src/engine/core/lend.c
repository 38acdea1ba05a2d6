/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lending: pages of the first tier that the application reads or writes directly, always one run.
 *
 * In place: the pages of a version, if its chunks are there one after the other. They are pinned
 * like pages that a transfer reads, and flushed meanwhile like any others.
 *
 * A lease: pages of no version. They belong to an object without a name, which is in no table and
 * dead from the start, so that nothing flushes, fetches or evicts it. Its pages are RESERVED, which
 * bars every window that contains them. A lease is filled with a copy of a version, or by the
 * application, and may become the pages of a new version (vv_core_put_lent). It is a request in the
 * queue of the puts: blocked like them, and failed like them when no room can come.
 *
 * Leases are contiguous under every policy. The window searches of policy/window.h look for them
 * among pages that may go at once; if there is no window, the next completion searches again. Where
 * copies are in pages, the search takes the run whose soonest use is the latest. Reason: the sum
 * that the paper's search uses grows with the number of fragments, so it prefers small pieces of
 * many versions, including those that are wanted next. While a lease is first in the queue no
 * prefetch enters its tier, so that the number of pages that may go only grows.
 *
 * A version may become a lease as well (vv_core_swap): if a slower tier has its bytes too, or it is
 * not wanted any more, its pages are handed over instead of copied.
 *
 * Risk: an application that waits for room may hold that room itself, as leases. So at most half of
 * the tier is lent, and a request beyond that is refused instead of waiting. Leases whose return is
 * under way do not count.
 */
#include <errno.h>
#include <stdlib.h>

#include "engine/core/core_private.h"

enum { LEND_TIER = 0 };

static bool may_lend(const struct vv_core *core, uint32_t npages)
{
    const struct tier *t = &core->tier[LEND_TIER];

    return npages <= t->arena.npromised / 2 && t->lent <= t->arena.npromised / 2 - npages;
}

static void lend_link(struct vv_core *core, struct vv_lend *lend)
{
    lend->prev = NULL;
    lend->next = core->lends;
    if (core->lends)
        core->lends->prev = lend;
    core->lends = lend;
}

static void lend_unlink(struct vv_core *core, struct vv_lend *lend)
{
    if (lend->prev)
        lend->prev->next = lend->next;
    else
        core->lends = lend->next;
    if (lend->next)
        lend->next->prev = lend->prev;
    core->tier[LEND_TIER].lent -= lend->ending ? 0 : lend->npages;
    core->nending -= lend->ending;
}

/* ---- in place ---- */

static bool in_one_run(const struct vv_core *core, const struct vv_object *obj, uint32_t chunk0,
                       uint32_t n)
{
    const struct vv_copy *copy = obj->copy[LEND_TIER];

    if (!copy)
        return false;
    for (uint32_t c = chunk0; c < chunk0 + n; c++) {
        if (!vvi_chunk_valid(core, obj, LEND_TIER, c) ||
            copy->page[c] >= core->tier[LEND_TIER].arena.npages || /* or part of a page */
            vvi_page(core, copy, c)->pins == UINT16_MAX)
            return false;
        if (c > chunk0 && copy->page[c] != copy->page[c - 1] + 1)
            return false;
    }
    return true;
}

int vv_core_lend(struct vv_core *core, uint32_t hist, uint64_t version, uint64_t generation,
                 uint32_t chunk0, uint32_t nchunks, bool first, uint64_t now_ns,
                 struct vv_lend *lend)
{
    struct vv_object *obj = vvi_object_find(core, hist, version);

    if (!obj || !obj->written)
        return -ENOENT;
    if (obj->generation != generation || obj != vvi_gen_last(core, hist, version))
        return -ESTALE;
    if (chunk0 > obj->nchunks || nchunks > obj->nchunks - chunk0)
        return -EINVAL;
    if (!may_lend(core, nchunks))
        return -ENOSPC;
    if (nchunks > 0 && !in_one_run(core, obj, chunk0, nchunks))
        return -EAGAIN;
    vvi_core_enter(core, now_ns);
    *lend = (struct vv_lend){.first_page = nchunks ? obj->copy[LEND_TIER]->page[chunk0] : 0,
                             .npages = nchunks,
                             .obj = obj,
                             .chunk0 = chunk0};
    obj->refs++;
    obj->lent++;
    for (uint32_t c = chunk0; c < chunk0 + nchunks; c++)
        vvi_page(core, obj->copy[LEND_TIER], c)->pins++;
    core->tier[LEND_TIER].lent += nchunks;
    lend_link(core, lend);
    if (first)
        vvi_restore_begins(core, obj);
    vvi_core_reclass(core, obj, chunk0, nchunks);
    vvi_core_leave(core);
    return 0;
}

static void unpin(struct vv_core *core, struct vv_lend *lend)
{
    struct vv_object *obj = lend->obj;

    for (uint32_t c = lend->chunk0; c < lend->chunk0 + lend->npages; c++) {
        struct vv_page *p = vvi_page(core, obj->copy[LEND_TIER], c);
        vv_assert(p->pins > 0);
        p->pins--;
    }
    obj->lent--;
    vvi_core_reclass(core, obj, lend->chunk0, lend->npages);
}

void vv_core_lend_ends(struct vv_core *core, struct vv_lend *lend)
{
    vv_assert(!lend->ending);
    lend->ending = true;
    core->nending++;
    core->tier[LEND_TIER].lent -= lend->npages;
}

void vv_core_unlend(struct vv_core *core, struct vv_lend *lend, uint64_t now_ns)
{
    vvi_core_enter(core, now_ns);
    lend_unlink(core, lend);
    if (!lend->lease)
        unpin(core, lend);
    vvi_object_unref(core, lend->obj);
    for (unsigned t = 0; t < core->ntiers; t++)
        core->tier[t].freed_epoch++; /* while a version is lent, no tier lets go of its copy */
    vvi_core_leave(core);
}

void vv_core_consume(struct vv_core *core, uint32_t hist, uint64_t version, uint64_t generation,
                     uint64_t now_ns)
{
    struct vv_object *obj = vvi_object_find(core, hist, version);

    if (!obj || !obj->written || obj->generation != generation)
        return;
    vvi_core_enter(core, now_ns);
    vvi_object_consumed(core, obj);
    vvi_core_leave(core);
}

/* ---- leases ---- */

/* A page that is cut into parts may go if all parts may. */
static bool parts_may_go(const struct vv_core *core, uint32_t page)
{
    const struct vv_arena *a = &core->tier[LEND_TIER].arena;
    uint32_t each = a->cut ? a->cut[page].each : 0, part = a->first_part + page * a->units;

    for (uint32_t u = 0; each && u + each <= a->units; u += each) {
        const struct vv_page *p = &a->page[part + u];
        const struct vv_copy *copy = p->u.owner;
        if (p->state != VV_PAGE_FREE &&
            (!copy || !(p->class & CLASS_EVICT) || copy->obj->lent > 0 || copy->readers > 0))
            return false;
    }
    return each > 0;
}

/* True if the page may go now: alone if copies are paged, otherwise with its whole copy. */
static bool page_may_go(const struct vv_core *core, uint32_t page)
{
    const struct vv_page *p = &core->tier[LEND_TIER].arena.page[page];
    const struct vv_copy *copy = p->u.owner;

    if (!copy)
        return parts_may_go(core, page);
    if (copy->obj->lent > 0 || copy->readers > 0)
        return false;
    return core->paged ? (p->class & CLASS_EVICT) != 0 : vvi_space_whole_may_go(copy);
}

static bool frags_grow(struct vv_core *core, size_t n)
{
    size_t cap = core->frags_cap ? core->frags_cap * 2 : 256;
    struct vv_frag *frags;

    if (n < core->frags_cap)
        return true;
    frags = realloc(core->frags, cap * sizeof(*frags));
    if (!frags)
        return false;
    core->frags = frags;
    core->frags_cap = cap;
    return true;
}

/* Lists gaps, and runs of pages of one copy: in each run either all pages may go, or none. */
static size_t list_runs(struct vv_core *core)
{
    const struct vv_arena *a = &core->tier[LEND_TIER].arena;
    size_t n = 0;

    for (uint32_t p = 0, end; p < a->nready; p = end, n++) {
        const struct vv_copy *copy = a->page[p].u.owner;
        if (!frags_grow(core, n))
            return 0;
        if (a->page[p].state == VV_PAGE_FREE) {
            end = p + vv_arena_run(a, p);
            core->frags[n] = (struct vv_frag){.pages = end - p, .gap = true};
            continue;
        }
        bool may_go = page_may_go(core, p);
        for (end = p + 1; end < a->nready && a->page[end].state != VV_PAGE_FREE &&
                          a->page[end].u.owner == copy && page_may_go(core, end) == may_go;)
            end++;
        core->frags[n] = (struct vv_frag){.pages = end - p, .barred = !may_go};
        if (may_go) {
            const struct hist *h = copy ? vvi_hist(core, copy->obj->hist) : core->hist;
            uint64_t first = copy ? copy->obj->hint_first : 0;
            core->frags[n].distance = first ? first - h->head : h->tail - h->head + 1;
            core->frags[n].stamp = UINT64_MAX - core->frags[n].distance; /* a gap has 0 */
        }
    }
    return n;
}

static void clear_run(struct vv_core *core, uint32_t first, uint32_t n)
{
    const struct vv_arena *a = &core->tier[LEND_TIER].arena;

    for (uint32_t p = first; p < first + n; p++) {
        if (a->page[p].state == VV_PAGE_FREE)
            continue;
        if (core->paged && !a->page[p].u.owner)
            vvi_space_evict_parts(core, LEND_TIER, p);
        else if (core->paged)
            vvi_space_evict_page(core, a->page[p].u.owner, a->page[p].chunk);
        else
            vvi_space_evict_run(core, a->page[p].u.owner);
    }
}

/* Takes a run of free pages, or one made from pages that may go. VV_PAGE_NONE: there is none
 * now. */
static uint32_t take_run(struct vv_core *core, uint32_t n)
{
    struct tier *t = &core->tier[LEND_TIER];
    struct vv_window w;
    uint32_t got = 0, first = vv_arena_take(&t->arena, n, &got);
    size_t nfrags;

    if (got == n)
        return first;
    if (got > 0)
        vv_arena_give(&t->arena, first, got);
    /* A search looks at every page: it is repeated only after something has changed. */
    if (t->lease_epoch == t->freed_epoch + 1 && t->lease_pages <= n)
        return VV_PAGE_NONE;
    nfrags = list_runs(core); /* before its result is used: it may move core->frags */
    if (!(core->paged ? vv_window_oldest(core->frags, nfrags, n, &w)
                      : vv_window_score(core->frags, nfrags, n, true, &w))) {
        t->lease_epoch = t->freed_epoch + 1;
        t->lease_pages = n;
        return VV_PAGE_NONE;
    }
    first = 0;
    for (size_t i = 0; i < w.first; i++)
        first += (uint32_t)core->frags[i].pages;
    clear_run(core, first, n);
    vv_arena_take_at(&t->arena, first, n);
    /* A request that waits for a window may have lost part of it. */
    for (int slot = 0; slot < 2; slot++)
        t->commit[slot].obj = NULL;
    return first;
}

bool vvi_lend_serve(struct vv_core *core, struct vv_req *req)
{
    struct vv_object *obj = req->obj;
    struct vv_copy *copy = vvi_copy_get(core, obj, LEND_TIER, VV_COPY_WRITE_IN_PROGRESS);
    uint32_t first;

    if (!copy)
        return false;
    first = take_run(core, obj->nchunks);
    if (first == VV_PAGE_NONE) {
        vvi_copy_free(core, copy);
        return false;
    }
    copy->whole = !core->paged;
    for (uint32_t c = 0; c < obj->nchunks; c++)
        vvi_chunk_place(core, copy, c, first + c, VV_PAGE_RESERVED);
    obj->refs++;
    req->lend->first_page = first;
    lend_link(core, req->lend);
    core->lent_ever = true;
    vvi_req_end(core, req, 0);
    return true;
}

bool vvi_lend_waits(const struct vv_core *core, unsigned tier)
{
    return tier == LEND_TIER && core->puts && core->puts->kind == VV_REQ_LEASE;
}

void vvi_lend_failed(struct vv_core *core, const struct vv_req *req)
{
    core->tier[LEND_TIER].lent -= req->obj->nchunks;
}

int vv_core_lease(struct vv_core *core, uint32_t hist, uint32_t npages, uint64_t now_ns,
                  struct vv_req *req, struct vv_lend *lend)
{
    struct vv_object *obj;

    if (npages == 0)
        return -EINVAL;
    if (!may_lend(core, npages))
        return -ENOSPC;
    obj = vvi_object_nameless(core, hist);
    if (!obj)
        return -ENOMEM;
    vvi_core_enter(core, now_ns);
    obj->nchunks = npages;
    obj->size = (uint64_t)npages * core->cfg.page_bytes;
    *lend = (struct vv_lend){.npages = npages, .obj = obj, .lease = true};
    core->tier[LEND_TIER].lent += npages;
    vvi_lease_start(core, hist, obj, req);
    req->lend = lend;
    vvi_core_leave(core);
    return 0;
}

void vv_core_lease_trim(struct vv_core *core, struct vv_lend *lend, uint32_t npages,
                        uint64_t now_ns)
{
    struct vv_object *obj = lend->obj;

    vv_assert(lend->lease && !lend->ending && npages > 0 && npages <= lend->npages);
    vvi_core_enter(core, now_ns);
    for (uint32_t c = npages; c < lend->npages; c++)
        vvi_chunk_drop(core, obj->copy[LEND_TIER], c);
    core->tier[LEND_TIER].lent -= lend->npages - npages;
    lend->npages = obj->nchunks = npages;
    obj->size = (uint64_t)npages * core->cfg.page_bytes;
    vvi_core_leave(core);
}

/* ---- a version becomes a lease ---- */

/* True if all its pages can be handed over as they are. */
static bool may_swap(const struct vv_core *core, const struct vv_object *obj)
{
    const struct vv_copy *copy = obj->copy[LEND_TIER];
    const struct hist *h = vvi_hist(core, obj->hist);
    bool again = obj->hint_first && h->ring[obj->hint_first & (h->ring_size - 1)].next_same;

    if (!in_one_run(core, obj, 0, obj->nchunks) || obj->lent || obj->restoring || copy->readers)
        return false;
    for (uint32_t c = 0; c < obj->nchunks; c++)
        if (vvi_page(core, copy, c)->pins)
            return false;
    if (h->cfg.consume_once)
        return true;
    return !again && copy->nevict == obj->nchunks;
}

/* Consumes the version. Its pages, if it had any, are free afterwards, for the caller to take. */
static void give_up_pages(struct vv_core *core, struct vv_object *obj)
{
    obj->refs++;
    vvi_restore_begins(core, obj);
    vvi_object_consumed(core, obj);
    if (obj->copy[LEND_TIER])
        vvi_space_evict(core, obj->copy[LEND_TIER], obj->nchunks);
    vvi_object_unref(core, obj);
}

static void lease_at(struct vv_core *core, struct vv_copy *copy, uint32_t first,
                     struct vv_lend *lend)
{
    struct vv_object *obj = copy->obj;

    vv_arena_take_at(&core->tier[LEND_TIER].arena, first, obj->nchunks);
    for (uint32_t c = 0; c < obj->nchunks; c++)
        vvi_chunk_place(core, copy, c, first + c, VV_PAGE_RESERVED);
    for (int slot = 0; slot < 2; slot++)
        core->tier[LEND_TIER].commit[slot].obj = NULL;
    *lend =
        (struct vv_lend){.first_page = first, .npages = obj->nchunks, .obj = obj, .lease = true};
    obj->refs++;
    core->tier[LEND_TIER].lent += obj->nchunks;
    core->lent_ever = true;
    lend_link(core, lend);
}

int vv_core_swap(struct vv_core *core, uint32_t hist, uint64_t version, uint64_t generation,
                 struct vv_lend *old, uint64_t now_ns, struct vv_lend *lend)
{
    struct vv_object *obj = vvi_object_find(core, hist, version), *to;
    struct tier *t = &core->tier[LEND_TIER];
    uint32_t back = old && !old->ending ? old->npages : 0, first;
    struct vv_copy *copy;
    bool fits;

    if (!obj || !obj->written)
        return -ENOENT;
    if (obj->generation != generation || obj != vvi_gen_last(core, hist, version))
        return -ESTALE;
    if (!may_swap(core, obj))
        return -EAGAIN;
    t->lent -= back;
    fits = may_lend(core, obj->nchunks);
    t->lent += back;
    if (!fits)
        return -ENOSPC;
    to = vvi_object_nameless(core, hist);
    if (!to)
        return -ENOMEM;
    vvi_core_enter(core, now_ns);
    to->nchunks = obj->nchunks;
    to->size = (uint64_t)to->nchunks * core->cfg.page_bytes;
    copy = vvi_copy_get(core, to, LEND_TIER, VV_COPY_WRITE_IN_PROGRESS);
    if (!copy) {
        to->refs++;
        vvi_object_unref(core, to);
        return -ENOMEM;
    }
    copy->whole = !core->paged;
    first = obj->copy[LEND_TIER]->page[0];
    give_up_pages(core, obj);
    lease_at(core, copy, first, lend);
    if (old) {
        lend_unlink(core, old);
        vvi_object_unref(core, old->obj);
    }
    t->freed_epoch++;
    vvi_core_leave(core);
    return 0;
}

/* ---- leases become a version ---- */

/* The pages of a lease become those of the version from chunk c on. */
static void adopt_pages(struct vv_core *core, struct vv_lend *lend, struct vv_copy *to, uint32_t c)
{
    struct vv_copy *from = lend->obj->copy[LEND_TIER];

    for (uint32_t i = 0; i < lend->npages; i++) {
        uint32_t page = from->page[i];
        from->page[i] = VV_PAGE_NONE;
        from->nreserved--;
        vvi_chunk_place(core, to, c + i, page, VV_PAGE_RESERVED);
    }
    vvi_copy_maybe_free(core, from);
}

static void charge_flush(struct vv_core *core, struct vv_copy *copy)
{
    struct hop_state *down =
        &core->hop[core->tier[LEND_TIER].kind == VV_TIER_DEVICE ? VV_HOP_D2H : VV_HOP_H2F];

    if (!core->paged)
        copy->flush_mark = down->queued_bytes;
    down->queued_bytes += copy->obj->size;
}

bool vv_core_lends_join(const struct vv_core *core, const uint64_t *bytes, size_t n)
{
    if (n > 1 && !core->paged)
        return false; /* under these policies a copy is one run */
    for (size_t i = 0; i + 1 < n; i++)
        if (bytes[i] % core->cfg.page_bytes)
            return false;
    return n > 0;
}

int vvi_lend_admit(const struct vv_core *core, uint64_t file_bytes)
{
    const struct tier *disk = core->disk >= 0 ? &core->tier[core->disk] : NULL;

    if (file_bytes == 0 || !disk->capacity_bytes ||
        disk->used_bytes + file_bytes <= disk->capacity_bytes)
        return 0;
    return vvi_room_may_come(core) ? -EAGAIN : -ENOSPC;
}

int vvi_lend_take_over(struct vv_core *core, struct vv_object *obj, struct vv_lend *const *lends,
                       size_t n)
{
    struct vv_copy *copy = vvi_copy_get(core, obj, LEND_TIER, VV_COPY_WRITE_IN_PROGRESS);
    uint32_t c = 0;

    if (!copy)
        return -ENOMEM;
    copy->whole = !core->paged;
    for (size_t i = 0; i < n; i++) {
        adopt_pages(core, lends[i], copy, c);
        c += lends[i]->npages;
        lend_unlink(core, lends[i]);
        vvi_object_unref(core, lends[i]->obj);
    }
    vv_assert(c == obj->nchunks);
    if (!core->paged)
        charge_flush(core, copy);
    return 0;
}
