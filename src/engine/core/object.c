/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables and counters: objects by version, copies by tier, pages by chunk.
 *
 * Invariants between two calls into the core:
 *  - a live object is in its history's table under its version; a dead one is not, and lives on
 *    for the orders and requests that hold a reference, and until its file is gone (removals.c);
 *  - copy->page[c] names a page exactly when that page's owner and chunk name the copy and c;
 *  - the counters of a copy (nvalid, nfilling, nreserved, nevict, ndirty, nup, ndup) and of an
 *    object (nmem) equal a recount;
 *  - a copy is in a heap of its history exactly when it has pages of that kind, and its key is that
 *    of its farthest page.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/core/core_private.h"

/* ---- versions ---- */

struct vv_object *vvi_object_find(const struct vv_core *core, uint32_t hist, uint64_t version)
{
    return vv_table_find(&vvi_hist(core, hist)->versions, version);
}

static void table_remove(struct hist *h, struct vv_object *obj)
{
    bool there = vv_table_remove(obj->beside ? &h->replacements : &h->versions, obj);

    vv_assert(there);
    (void)there;
    obj->beside = false;
}

static struct vv_object *object_new(struct vv_core *core, uint32_t hist, uint64_t version)
{
    struct vv_object *obj = calloc(1, sizeof(*obj));

    if (!obj)
        return NULL;
    obj->version = version;
    obj->hist = hist;
    core->stats.objects++;
    vvi_hist(core, hist)->nalive++;
    return obj;
}

struct vv_object *vvi_object_new(struct vv_core *core, uint32_t hist, uint64_t version)
{
    struct vv_object *obj = object_new(core, hist, version);

    if (obj)
        vv_table_add(&vvi_hist(core, hist)->versions, obj);
    return obj;
}

struct vv_object *vvi_object_beside(struct vv_core *core, uint32_t hist, uint64_t version)
{
    struct vv_object *obj = object_new(core, hist, version);

    if (!obj)
        return NULL;
    obj->beside = true;
    vv_table_add(&vvi_hist(core, hist)->replacements, obj);
    return obj;
}

struct vv_object *vvi_object_nameless(struct vv_core *core, uint32_t hist)
{
    struct vv_object *obj = calloc(1, sizeof(*obj));

    if (!obj)
        return NULL;
    obj->hist = hist;
    obj->nameless = obj->dead = true;
    obj->gen = VV_GEN_ENDED;
    vvi_hist(core, hist)->nalive++;
    return obj;
}

static void object_free(struct vv_core *core, struct vv_object *obj)
{
    if (obj->user && core->cfg.release_user)
        core->cfg.release_user(core->cfg.release_arg, obj->user);
    core->stats.objects -= !obj->nameless;
    vvi_hist(core, obj->hist)->nalive--;
    free(obj);
}

/* ---- chunks and pages ---- */

uint64_t vvi_chunk_bytes(const struct vv_core *core, const struct vv_object *obj, uint32_t chunk0,
                         uint32_t n)
{
    uint64_t from = (uint64_t)chunk0 * core->cfg.page_bytes;

    return VV_MIN(obj->size, from + (uint64_t)n * core->cfg.page_bytes) - from;
}

static bool on_its_way(enum vv_page_state state)
{
    return state == VV_PAGE_VALID || state == VV_PAGE_FILLING;
}

bool vvi_chunk_in_memory(const struct vv_core *core, const struct vv_object *obj, uint32_t c)
{
    for (unsigned t = 0; t < core->ntiers && core->tier[t].memory; t++)
        if (on_its_way(vvi_chunk_state(core, obj, t, c)))
            return true;
    return false;
}

static bool in_other_memory(const struct vv_core *core, const struct vv_object *obj, unsigned tier,
                            uint32_t c)
{
    for (unsigned t = 0; t < core->ntiers && core->tier[t].memory; t++)
        if (t != tier && on_its_way(vvi_chunk_state(core, obj, t, c)))
            return true;
    return false;
}

/* Counts `n` chunks from `c` on that are no longer in any memory tier. */
static inline void left_memory(struct vv_core *core, struct vv_object *obj, uint32_t c, uint32_t n)
{
    vvi_hint_account(core, obj, -1);
    obj->nmem -= n;
    obj->miss_low = VV_MIN(obj->miss_low, c);
    /* A hinted version is no longer complete: prefetching resumes with it from here. */
    vvi_hint_reopen(core, obj);
    vvi_hint_account(core, obj, 1);
}

static inline void count_in_memory(struct vv_core *core, struct vv_copy *copy, uint32_t c, bool in)
{
    struct vv_object *obj = copy->obj;

    if (!core->tier[copy->tier].memory || in_other_memory(core, obj, copy->tier, c))
        return;
    if (!in) {
        left_memory(core, obj, c, 1);
        return;
    }
    vvi_hint_account(core, obj, -1);
    obj->nmem++;
    vvi_hint_account(core, obj, 1);
}

static uint32_t *state_count(struct vv_copy *copy, enum vv_page_state state)
{
    return state == VV_PAGE_VALID     ? &copy->nvalid
           : state == VV_PAGE_FILLING ? &copy->nfilling
                                      : &copy->nreserved;
}

void vvi_chunk_place(struct vv_core *core, struct vv_copy *copy, uint32_t c, uint32_t page,
                     enum vv_page_state state)
{
    vv_assert(copy->page[c] == VV_PAGE_NONE);
    if (core->tier[copy->tier].is_arena) {
        copy->page[c] = page;
        copy->ntransit += vvi_transit_page(&core->tier[copy->tier], page);
        copy->held_top = VV_MAX(copy->held_top, c);
        /* A planned order took this page: others may still read its previous data. */
        *vvi_page(core, copy, c) = (struct vv_page){.u.owner = copy,
                                                    .chunk = c,
                                                    .pins = vvi_page(core, copy, c)->pins,
                                                    .state = (uint8_t)state};
    } else {
        copy->page[c] = state == VV_PAGE_VALID ? FILE_CHUNK_VALID : FILE_CHUNK_FILLING;
    }
    ++*state_count(copy, state);
    if (on_its_way(state))
        count_in_memory(core, copy, c, true);
}

void vvi_chunks_fill(struct vv_core *core, struct vv_copy *copy, uint32_t c0, uint32_t n,
                     const uint32_t *pages)
{
    struct tier *t = &core->tier[copy->tier];
    struct vv_object *obj = copy->obj;

    vv_assert(t->is_arena && t->memory);
    for (uint32_t i = 0; i < n; i++) {
        vv_assert(copy->page[c0 + i] == VV_PAGE_NONE);
        copy->page[c0 + i] = pages[i];
        copy->ntransit += vvi_transit_page(t, pages[i]);
        t->arena.page[pages[i]] = (struct vv_page){.u.owner = copy,
                                                   .chunk = c0 + i,
                                                   .pins = t->arena.page[pages[i]].pins,
                                                   .state = VV_PAGE_FILLING};
    }
    copy->nfilling += n;
    copy->held_top = VV_MAX(copy->held_top, c0 + n - 1);
    vvi_hint_account(core, obj, -1);
    obj->nmem += n;
    vvi_hint_account(core, obj, 1);
}

void vvi_chunk_set(struct vv_core *core, struct vv_copy *copy, uint32_t c, enum vv_page_state state)
{
    enum vv_page_state from = vvi_chunk_state(core, copy->obj, copy->tier, c);

    vv_assert(from != VV_PAGE_FREE && state != VV_PAGE_FREE);
    --*state_count(copy, from);
    ++*state_count(copy, state);
    if (core->tier[copy->tier].is_arena)
        vvi_page(core, copy, c)->state = (uint8_t)state;
    else
        copy->page[c] = state == VV_PAGE_VALID ? FILE_CHUNK_VALID : FILE_CHUNK_FILLING;
    if (core->tier[copy->tier].memory && vvi_stamp(core, copy->tier, copy->page[c]))
        vvi_stamp(core, copy->tier, copy->page[c])->planned = false;
    if (on_its_way(from) != on_its_way(state))
        count_in_memory(core, copy, c, on_its_way(state));
}

static void class_count(struct vv_core *core, struct vv_copy *copy, unsigned class, int sign)
{
    uint32_t one = (uint32_t)sign;

    copy->nevict += (class & CLASS_EVICT) ? one : 0;
    copy->ndirty += (class & CLASS_DIRTY) ? one : 0;
    copy->nup += (class & CLASS_UP) ? one : 0;
    copy->ndup += (class & CLASS_DUP) ? one : 0;
    core->tier[copy->tier].nevict += (class & CLASS_EVICT) ? one : 0;
    core->tier[copy->tier].ndirty += (class & CLASS_DIRTY) ? one : 0;
}

void vvi_gets_look_again(struct vv_core *core, const struct vv_object *obj, uint32_t c)
{
    for (struct vv_req *req = obj->restoring ? core->gets : NULL; req; req = req->next) {
        if (req->obj != obj)
            continue;
        req->need = VV_MIN(req->need, c);
        for (unsigned t = 0; t < core->ntiers; t++)
            req->look[t] = VV_MIN(req->look[t], c);
    }
}

uint32_t vvi_chunk_out(struct vv_core *core, struct vv_copy *copy, uint32_t c)
{
    struct tier *t = &core->tier[copy->tier];
    enum vv_page_state state = vvi_chunk_state(core, copy->obj, copy->tier, c);
    uint32_t page = copy->page[c];

    vv_assert(state != VV_PAGE_FREE);
    --*state_count(copy, state);
    if (t->is_arena) {
        struct vv_page *p = vvi_page(core, copy, c);
        struct stamp *st = t->memory ? vvi_stamp(core, copy->tier, page) : NULL;
        class_count(core, copy, p->class, -1);
        p->u.owner = NULL;
        p->state = VV_PAGE_RESERVED;
        p->class = 0;
        if (st)
            st->planned = false;
        t->freed_epoch++;
    }
    copy->page[c] = VV_PAGE_NONE;
    vvi_gets_look_again(core, copy->obj, c);
    if (!on_its_way(state))
        return page;
    count_in_memory(core, copy, c, false);
    if (t->memory)
        vvi_hint_reopen_at(core, copy->obj, copy->tier);
    return page;
}

void vvi_chunk_drop(struct vv_core *core, struct vv_copy *copy, uint32_t c)
{
    struct tier *t = &core->tier[copy->tier];
    uint32_t page = vvi_chunk_out(core, copy, c);

    if (!t->is_arena)
        return;
    vv_assert(!vvi_transit_page(t, page) || t->arena.page[page].pins == 0);
    copy->ntransit -= vvi_transit_page(t, page);
    vvi_space_untake(core, copy->tier, &page, 1);
    if (t->kind == VV_TIER_SPILL && core->cfg.pages_gone)
        core->cfg.pages_gone(core->cfg.release_arg, page, 1);
}

/* True if one other memory tier has all chunks of the object, or will have them. */
static bool all_elsewhere(const struct vv_core *core, const struct vv_object *obj, unsigned tier)
{
    for (unsigned t = 0; t < core->ntiers && core->tier[t].memory; t++)
        if (t != tier && obj->copy[t] &&
            obj->copy[t]->nvalid + obj->copy[t]->nfilling == obj->nchunks)
            return true;
    return false;
}

void vvi_chunks_drop(struct vv_core *core, struct vv_copy *copy, uint32_t c0, uint32_t n)
{
    struct tier *t = &core->tier[copy->tier];
    struct vv_object *obj = copy->obj;
    bool elsewhere = !t->memory || all_elsewhere(core, obj, copy->tier);
    uint32_t evict = 0, dirty = 0, up = 0, dup = 0, left = 0, lowest = c0 + n;

    for (uint32_t c = c0; c < c0 + n;) {
        uint32_t first = copy->page[c], run = 0;

        /* Consecutive pages are returned together. */
        for (; c + run < c0 + n && copy->page[c + run] == first + run; run++) {
            const struct vv_page *p = &t->arena.page[first + run];
            vv_assert(p->state == VV_PAGE_VALID && p->pins == 0);
            evict += (p->class & CLASS_EVICT) != 0;
            dirty += (p->class & CLASS_DIRTY) != 0;
            up += (p->class & CLASS_UP) != 0;
            dup += (p->class & CLASS_DUP) != 0;
            copy->page[c + run] = VV_PAGE_NONE;
        }
        if (vv_arena_is_part(&t->arena, first))
            vv_arena_give_part(&t->arena, first);
        else
            vv_arena_give(&t->arena, first, run);
        if (t->kind == VV_TIER_SPILL && core->cfg.pages_gone)
            core->cfg.pages_gone(core->cfg.release_arg, first, run);
        for (uint32_t k = c; !elsewhere && k < c + run; k++)
            if (!in_other_memory(core, obj, copy->tier, k)) {
                lowest = VV_MIN(lowest, k);
                left++;
            }
        c += run;
    }
    if (left)
        left_memory(core, obj, lowest, left);
    copy->nvalid -= n;
    copy->nevict -= evict;
    copy->ndirty -= dirty;
    copy->nup -= up;
    copy->ndup -= dup;
    t->nevict -= evict;
    t->ndirty -= dirty;
    t->freed_epoch++;
    vvi_gets_look_again(core, obj, c0);
    if (t->memory)
        vvi_hint_reopen_at(core, copy->obj, copy->tier);
}

/* ---- classes of pages ---- */

/* True if the page may go; no other function decides that. It may go if no transfer reads it and
 * the object is discarded or another tier has the same bytes complete. Under the contiguous policies
 * that must be a slower tier, except for transit pages: these policies never flush a copy a second
 * time. The policy decides if the page *should* go, and for which request. */
static bool chunk_may_go(const struct vv_core *core, const struct vv_object *obj, bool pinned,
                         bool on_faster, bool on_slower, bool transit)
{
    if (pinned)
        return false;
    return obj->dead || on_slower || (on_faster && (core->paged || transit));
}

/* True while its file must not be begun, because its put has not ended. A file begun earlier would
 * hold disk space while the put may wait for memory, and thereby for another file to be written,
 * which waits for that space. Memory keeps the pages until the commit in any case; those that it
 * cannot keep are flushed at once. */
static inline bool file_waits(const struct vv_core *core, const struct vv_object *obj,
                              unsigned tier, bool transit)
{
    return obj->writing && !obj->streams && !transit && tier + 2 == core->ntiers &&
           core->tier[tier + 1].kind == VV_TIER_FILES;
}

/* The properties of the page itself that its classes depend on. */
enum { CHUNK_STATE = 3, CHUNK_PINNED = 4, CHUNK_TRANSIT = 8, CHUNK_BITS = 4 };
/* A chunk in a file that failed has the same bit. Unlike one in a transit page, it lets faster copies
 * go: view.passes is true for a file. */
enum { CHUNK_OLD = CHUNK_TRANSIT };

static inline uint32_t page_bits(const struct vv_page *p, bool transit)
{
    return (transit ? CHUNK_TRANSIT : 0u) | (p->pins ? CHUNK_PINNED : 0u) | p->state;
}

/* Other tiers that have the bytes of a page. */
struct elsewhere {
    bool on_faster, on_slower; /* valid there; slower: sufficient to let this one go */
    bool to_faster, to_slower; /* valid, or on its way there */
};

static inline unsigned class_of(const struct vv_core *core, const struct vv_object *obj,
                                unsigned tier, uint32_t bits, struct elsewhere e)
{
    bool transit = bits & CHUNK_TRANSIT;
    unsigned class = 0;

    if ((bits & CHUNK_STATE) != VV_PAGE_VALID)
        return 0;
    if (chunk_may_go(core, obj, bits & CHUNK_PINNED, e.on_faster, e.on_slower, transit)) {
        /* If only a faster tier has the bytes as well, the page is no general candidate for
         * eviction: its bytes would have to be flushed again at once. It goes as a duplicate. */
        class |= obj->dead || e.on_slower ? CLASS_EVICT : 0;
        class |= e.on_faster ? CLASS_DUP : 0;
        if (transit)
            class = CLASS_PASS;
    }
    if (!e.to_slower && tier + 1 < core->ntiers && !vvi_flush_stopped(obj) && !obj->dead &&
        !file_waits(core, obj, tier, transit))
        class |= CLASS_DIRTY;
    if (obj->home < tier && !e.to_faster)
        class |= CLASS_UP;
    return class;
}

/* For checks: examines each tier by itself, not through views of all of them. */
unsigned vvi_classify(const struct vv_core *core, const struct vv_object *obj, unsigned tier,
                      uint32_t c, const struct vv_page *p)
{
    struct elsewhere e = {0};

    for (unsigned t = 0; t < core->ntiers; t++) {
        enum vv_page_state s = t == tier ? VV_PAGE_FREE : vvi_chunk_state(core, obj, t, c);
        if (t < tier) {
            e.on_faster |= s == VV_PAGE_VALID;
            e.to_faster |= on_its_way(s);
        } else {
            e.on_slower |= s == VV_PAGE_VALID && vvi_chunk_kept_by(core, obj, t, c);
            e.to_slower |= on_its_way(s);
        }
    }
    return class_of(core, obj, tier, page_bits(p, vvi_chunk_in_transit(core, obj, tier, c)), e);
}

static uint32_t top_of(const struct vv_core *core, const struct vv_copy *copy, unsigned class,
                       uint32_t from)
{
    for (uint32_t c = from + 1; c-- > 0;)
        if (copy->page[c] != VV_PAGE_NONE && (vvi_page(core, copy, c)->class & class))
            return c;
    return 0;
}

/* Absolute form of the rank: within one history, hinted objects compare by sequence number,
 * which does not change as the head of the queue moves on. */
uint64_t vvi_rank_absolute(const struct vv_core *core, const struct vv_object *obj, unsigned tier,
                           uint32_t c)
{
    const struct hist *h = vvi_hist(core, obj->hist);

    if (obj->restoring)
        return vv_next_rank(VV_USE_HINTED, 0);
    if (obj->hint_first)
        return vv_next_rank(VV_USE_HINTED, obj->hint_first);
    if (obj->consumed)
        return vv_next_rank(VV_USE_CONSUMED, vv_next_position(c, obj->nchunks));
    if (!h->hinted && !h->detect.any && obj->written && !obj->dead &&
        obj->ordinal < VV_NEXT_FIRST_KEPT && (int)tier == core->host &&
        (uint64_t)obj->nchunks * 2 * VV_NEXT_FIRST_KEPT <= core->tier[tier].arena.npromised)
        return vv_next_rank(VV_USE_FIRST, obj->ordinal);
    return vv_next_rank(VV_USE_UNKNOWN, vv_next_position(c, obj->nchunks));
}

uint64_t vvi_rank(const struct vv_core *core, const struct vv_object *obj, unsigned tier,
                  uint32_t c)
{
    return vvi_rank_relative(core, obj, vvi_rank_absolute(core, obj, tier, c));
}

static void heap_follow(struct vv_heap *heap, struct vv_copy *copy, enum heap_kind kind, bool in,
                        uint64_t key)
{
    if (in)
        vv_heap_set(heap, &copy->heap_pos[kind], copy, key);
    else if (copy->heap_pos[kind] != VV_HEAP_OUT)
        vv_heap_remove(heap, &copy->heap_pos[kind]);
}

static void held_refresh(struct vv_core *core, struct vv_copy *copy)
{
    bool held = copy->nvalid + copy->nfilling > 0 && !copy->recent;

    while (copy->held_top > 0 && copy->page[copy->held_top] == VV_PAGE_NONE)
        copy->held_top--;
    heap_follow(&vvi_hist(core, copy->obj->hist)->heap[copy->tier][HEAP_HELD], copy, HEAP_HELD,
                held, vvi_rank_absolute(core, copy->obj, copy->tier, copy->held_top));
}

void vvi_copy_refresh(struct vv_core *core, struct vv_copy *copy)
{
    struct vv_heap *heap = vvi_hist(core, copy->obj->hist)->heap[copy->tier];
    struct vv_object *obj = copy->obj;
    uint64_t key = 0;

    if (!core->tier[copy->tier].is_arena)
        return;
    if (copy->ndirty) {
        copy->dirty_top = top_of(core, copy, CLASS_DIRTY, copy->dirty_top);
        /* The contiguous policies flush in order of arrival, as the paper's queue does. */
        key = core->paged ? vvi_rank_absolute(core, obj, copy->tier, copy->dirty_top)
                          : ~copy->stamp_in;
    }
    heap_follow(&heap[HEAP_DIRTY], copy, HEAP_DIRTY, copy->ndirty > 0, key);
    if (!core->paged)
        return;
    if (copy->nevict) {
        copy->evict_top = top_of(core, copy, CLASS_EVICT, copy->evict_top);
        key = vvi_rank_absolute(core, obj, copy->tier, copy->evict_top);
    }
    heap_follow(&heap[HEAP_EVICT], copy, HEAP_EVICT, copy->nevict > 0 && !copy->readers, key);
    if (copy->ndup)
        key = ~vvi_rank_absolute(core, obj, copy->tier, 0);
    heap_follow(&heap[HEAP_DUP], copy, HEAP_DUP,
                copy->ndup > 0 && !copy->readers && core->tier[copy->tier].memory, key);
    if (core->ahead.on && (int)copy->tier == core->device)
        held_refresh(core, copy);
}

void vvi_object_refresh(struct vv_core *core, struct vv_object *obj)
{
    for (unsigned t = 0; t < core->ntiers; t++)
        if (obj->copy[t])
            vvi_copy_refresh(core, obj->copy[t]);
}

/* One copy of an object, for one pass over its chunks. */
struct view {
    struct vv_copy *copy;
    struct vv_page *record; /* NULL: a file */
    uint32_t npages;        /* pages from here on are transit pages, */
    uint32_t ntransit;      /* this many */
    bool keeps, passes; /* valid chunks let faster copies go: pages of the arena, transit pages */
    bool freed;         /* a page may go that could not before */
    uint32_t evict, dirty, up, dup; /* changes in the numbers of each class */
};

static unsigned views_of(const struct vv_core *core, const struct vv_object *obj, struct view *view)
{
    bool files = core->tier[core->ntiers - 1].kind == VV_TIER_FILES;
    bool keeps = !files || obj->durable || obj->streams;
    unsigned n = 0;

    for (unsigned t = 0; t < core->ntiers; t++) {
        const struct tier *tier = &core->tier[t];
        if (obj->copy[t])
            view[n++] = (struct view){.copy = obj->copy[t],
                                      .record = tier->arena.page,
                                      .npages = tier->arena.npages,
                                      .ntransit = 2 * tier->transit_all,
                                      .keeps = keeps || tier->is_arena || vvi_file_keeps(core, obj),
                                      .passes = keeps || !tier->is_arena};
    }
    return n;
}

/* Everything that the classes of a chunk depend on except its object, for one copy; and its
 * page. */
static inline uint32_t chunk_bits(const struct view *v, uint32_t c, struct vv_page **ret_page)
{
    uint32_t page = v->copy->page[c];
    struct vv_page *p = v->record && page != VV_PAGE_NONE ? &v->record[page] : NULL;

    *ret_page = p;
    if (p)
        return page_bits(p, page - v->npages < v->ntransit);
    return page == VV_PAGE_NONE       ? VV_PAGE_FREE
           : page == FILE_CHUNK_VALID ? VV_PAGE_VALID
           : page == FILE_CHUNK_OLD   ? VV_PAGE_VALID | CHUNK_OLD
                                      : VV_PAGE_FILLING;
}

/* The tiers that have a chunk, as bits. */
struct location {
    unsigned valid, way; /* way: valid, or on its way there */
    unsigned kept;       /* valid, and sufficient to let faster copies go */
};

static inline struct location locate(const struct vv_core *core, const struct vv_object *obj,
                                     const struct view *view, const uint32_t *bits, unsigned n)
{
    bool committed = obj->durable && !obj->copy[core->disk];
    unsigned file = committed ? 1u << core->disk : 0;
    struct location w = {.valid = file, .way = file, .kept = file};

    for (unsigned k = 0; k < n; k++) {
        unsigned tier = 1u << view[k].copy->tier, state = bits[k] & CHUNK_STATE;
        if (state == VV_PAGE_VALID) {
            w.valid |= tier;
            w.kept |= (bits[k] & CHUNK_TRANSIT ? view[k].passes : view[k].keeps) ? tier : 0;
        }
        w.way |= on_its_way((enum vv_page_state)state) ? tier : 0;
    }
    return w;
}

static inline unsigned classify_at(const struct vv_core *core, const struct vv_object *obj,
                                   unsigned tier, const struct location *w, uint32_t bits)
{
    unsigned faster = (1u << tier) - 1, slower = ~(faster | 1u << tier);
    struct elsewhere e = {.on_faster = w->valid & faster,
                          .on_slower = w->kept & slower,
                          .to_faster = w->way & faster,
                          .to_slower = w->way & slower};

    return class_of(core, obj, tier, bits, e);
}

static inline void set_class(struct view *v, uint32_t c, struct vv_page *p, unsigned class)
{
    struct vv_copy *copy = v->copy;
    unsigned old = p->class;

    v->evict += ((class & CLASS_EVICT) != 0) - ((old & CLASS_EVICT) != 0);
    v->dirty += ((class & CLASS_DIRTY) != 0) - ((old & CLASS_DIRTY) != 0);
    v->up += ((class & CLASS_UP) != 0) - ((old & CLASS_UP) != 0);
    v->dup += ((class & CLASS_DUP) != 0) - ((old & CLASS_DUP) != 0);
    v->freed |= (class & ~old & CLASS_EVICT) != 0;
    p->class = (uint8_t) class;
    if (class & CLASS_EVICT)
        copy->evict_top = VV_MAX(copy->evict_top, c);
    if (class & CLASS_DIRTY)
        copy->dirty_top = VV_MAX(copy->dirty_top, c);
    if (class & CLASS_UP)
        copy->up_low = VV_MIN(copy->up_low, c);
}

/* Called for every change of a chunk, and therefore made cheap: an object of many chunks passes
 * here a dozen times in its life. Neighbours are mostly alike, and then so are their classes. */
void vvi_core_reclass(struct vv_core *core, struct vv_object *obj, uint32_t c0, uint32_t n)
{
    struct view view[VV_MAX_TIERS];
    unsigned class[VV_MAX_TIERS], nviews = views_of(core, obj, view);
    uint32_t last = UINT32_MAX; /* equals no chunk */

    for (uint32_t c = c0; c < c0 + n; c++) {
        struct vv_page *page[VV_MAX_TIERS];
        uint32_t bits[VV_MAX_TIERS], all = 0;

        for (unsigned k = 0; k < nviews; k++) {
            bits[k] = chunk_bits(&view[k], c, &page[k]);
            all = all << CHUNK_BITS | bits[k];
        }
        if (all != last) {
            struct location w = locate(core, obj, view, bits, nviews);
            for (unsigned k = 0; k < nviews; k++)
                class[k] = classify_at(core, obj, view[k].copy->tier, &w, bits[k]);
            last = all;
        }
        for (unsigned k = 0; k < nviews; k++)
            if (page[k] && class[k] != page[k]->class)
                set_class(&view[k], c, page[k], class[k]);
    }
    for (unsigned k = 0; k < nviews; k++) {
        const struct view *v = &view[k];
        struct tier *tier = &core->tier[v->copy->tier];
        v->copy->nevict += v->evict;
        v->copy->ndirty += v->dirty;
        v->copy->nup += v->up;
        v->copy->ndup += v->dup;
        tier->nevict += v->evict;
        tier->ndirty += v->dirty;
        tier->freed_epoch += v->freed;
        vvi_copy_refresh(core, v->copy);
    }
}

/* ---- copies ---- */

struct vv_copy *vvi_copy_get(struct vv_core *core, struct vv_object *obj, unsigned tier,
                             enum vv_copy_state born)
{
    struct hist *h = vvi_hist(core, obj->hist);
    struct vv_copy *copy = obj->copy[tier];

    if (copy)
        return copy;
    for (int k = 0; k < HEAP_KINDS; k++)
        if (vv_heap_reserve(&h->heap[tier][k], h->ncopies[tier] + 1) < 0)
            return NULL;
    copy = calloc(1, sizeof(*copy) + (size_t)obj->nchunks * sizeof(copy->page[0]));
    if (!copy)
        return NULL;
    copy->obj = obj;
    copy->tier = (uint8_t)tier;
    copy->up_low = UINT32_MAX;
    if (!core->paged)
        copy->stamp_in = copy->stamp_use = ++core->stamp;
    for (int k = 0; k < HEAP_KINDS; k++)
        copy->heap_pos[k] = VV_HEAP_OUT;
    for (uint32_t c = 0; c < obj->nchunks; c++)
        copy->page[c] = VV_PAGE_NONE;
    obj->copy[tier] = copy;
    h->ncopies[tier]++;
    vvi_copy_set_state(core, copy, born);
    return copy;
}

void vvi_copy_free(struct vv_core *core, struct vv_copy *copy)
{
    struct hist *h = vvi_hist(core, copy->obj->hist);

    vvi_ahead_forget(core, copy);
    for (int k = 0; k < HEAP_KINDS; k++)
        vv_heap_remove(&h->heap[copy->tier][k], &copy->heap_pos[k]);
    h->ncopies[copy->tier]--;
    copy->obj->copy[copy->tier] = NULL;
    free(copy);
}

void vvi_copy_maybe_free(struct vv_core *core, struct vv_copy *copy)
{
    if (copy && copy->nvalid == 0 && copy->nfilling == 0 && copy->nreserved == 0)
        vvi_copy_free(core, copy);
}

bool vvi_object_complete_at(const struct vv_core *core, const struct vv_object *obj, unsigned tier)
{
    const struct vv_copy *copy = obj->copy[tier];

    if (!copy && core->tier[tier].kind == VV_TIER_FILES)
        return obj->durable;
    return (copy ? copy->nvalid : 0) == obj->nchunks;
}

bool vvi_object_complete_down(const struct vv_core *core, const struct vv_object *obj)
{
    unsigned last = core->ntiers - 1;

    if (core->tier[last].memory)
        return true; /* memory only: there is no slower tier */
    return core->tier[last].kind == VV_TIER_FILES ? obj->durable
                                                  : vvi_object_complete_at(core, obj, last);
}

static void settle_copy(struct vv_core *core, struct vv_object *obj, struct vv_copy *copy)
{
    bool above_done = true, below_done = true;

    for (unsigned t = 0; t < core->ntiers; t++) {
        const struct vv_copy *other = obj->copy[t];
        if (!other || other == copy)
            continue;
        if (t < copy->tier)
            above_done &= other->ndirty == 0;
        else
            below_done &= other->nfilling == 0;
    }
    if (copy->state == VV_COPY_WRITE_IN_PROGRESS && obj->written && above_done &&
        copy->nfilling == 0 && copy->nreserved == 0)
        vvi_copy_set_state(core, copy, VV_COPY_WRITE_COMPLETE);
    if (copy->state == VV_COPY_WRITE_COMPLETE && core->tier[copy->tier].is_arena &&
        (unsigned)copy->tier + 1 < core->ntiers && copy->ndirty == 0 && below_done &&
        !vvi_flush_stopped(obj))
        vvi_copy_set_state(core, copy, VV_COPY_FLUSHED);
    if (copy->state == VV_COPY_READ_IN_PROGRESS && copy->nvalid == obj->nchunks)
        vvi_copy_set_state(core, copy, VV_COPY_READ_COMPLETE);
    if (obj->consumed && copy->nfilling == 0 && copy->nreserved == 0) {
        if (copy->state == VV_COPY_WRITE_COMPLETE || copy->state == VV_COPY_FLUSHED ||
            copy->state == VV_COPY_READ_IN_PROGRESS)
            vvi_copy_set_state(core, copy, VV_COPY_READ_COMPLETE);
        if (copy->state == VV_COPY_READ_COMPLETE)
            vvi_copy_set_state(core, copy, VV_COPY_CONSUMED);
    }
}

void vvi_object_settle(struct vv_core *core, struct vv_object *obj)
{
    struct hist *h = vvi_hist(core, obj->hist);
    bool down;

    if (obj->dead)
        return;
    for (unsigned t = 0; t < core->ntiers; t++)
        if (obj->copy[t])
            settle_copy(core, obj, obj->copy[t]);
    down = obj->written && (obj->flush_err || vvi_object_complete_down(core, obj));
    h->ndown += (uint64_t)down - (uint64_t)obj->down;
    obj->down = down;
}

/* ---- objects enter and leave ---- */

/* The same order as list_link, without versions that keep_every keeps for good. */
static void expiring_link(struct hist *h, struct vv_object *obj)
{
    struct vv_object *before = h->expires_last;

    while (before && before->ordinal > obj->ordinal)
        before = before->expires_before;
    obj->expires_before = before;
    obj->expires_after = before ? before->expires_after : h->expires_first;
    *(obj->expires_after ? &obj->expires_after->expires_before : &h->expires_last) = obj;
    *(before ? &before->expires_after : &h->expires_first) = obj;
}

static void expiring_unlink(struct hist *h, struct vv_object *obj)
{
    struct vv_object *before = obj->expires_before, *after = obj->expires_after;

    *(before ? &before->expires_after : &h->expires_first) = after;
    *(after ? &after->expires_before : &h->expires_last) = before;
    obj->expires_before = obj->expires_after = NULL;
}

void vvi_object_exempt(struct vv_core *core, struct vv_object *obj)
{
    struct hist *h = vvi_hist(core, obj->hist);

    obj->exempt = true;
    h->nexempt++;
    expiring_unlink(h, obj);
}

/* Inserts in order of writing. A version that returns takes its old place. */
static void list_link(struct hist *h, struct vv_object *obj)
{
    struct vv_object *before = h->newest;

    while (before && before->ordinal > obj->ordinal)
        before = before->older;
    obj->older = before;
    obj->newer = before ? before->newer : h->oldest;
    *(obj->newer ? &obj->newer->older : &h->newest) = obj;
    *(before ? &before->newer : &h->oldest) = obj;
}

void vvi_object_enter(struct vv_core *core, struct vv_object *obj)
{
    struct hist *h = vvi_hist(core, obj->hist);

    vvi_hint_account(core, obj, 1);
    list_link(h, obj);
    expiring_link(h, obj);
    h->nwritten++;
    h->ndurable += obj->durable;
    vvi_hint_written(core, obj);
    vvi_hint_reopen(core, obj);
    vvi_object_refresh(core, obj);
    vvi_object_settle(core, obj);
}

void vvi_object_written(struct vv_core *core, struct vv_object *obj)
{
    if (obj->beside)
        vvi_gen_end(core, vvi_object_find(core, obj->hist, obj->version), VV_GEN_REPLACED);
    vvi_hint_account(core, obj, -1);
    vvi_gen_step(core, obj, VV_GEN_WRITTEN);
    if (core->disk >= 0 && !core->tier[core->disk].is_arena && !obj->durable)
        vvi_core_reclass(core, obj, 0, obj->nchunks); /* its file may be begun now */
    obj->ordered = false;
    obj->ordinal = vvi_hist(core, obj->hist)->next_ordinal++;
    vvi_object_enter(core, obj);
    vvi_gen_durable(core, obj);
}

static bool copy_busy(const struct vv_core *core, const struct vv_copy *copy)
{
    if (copy->nfilling > 0 || copy->readers > 0)
        return true;
    for (uint32_t c = 0; c < copy->obj->nchunks; c++)
        if (copy->page[c] != VV_PAGE_NONE && vvi_page(core, copy, c)->pins > 0)
            return true;
    return false;
}

/* Frees the pages that no transfer uses. The others follow as the orders in flight end. A run that
 * was taken whole is freed whole: the window searches rely on it. */
static void drop_idle_pages(struct vv_core *core, struct vv_object *obj)
{
    for (unsigned t = 0; t < core->ntiers; t++) {
        struct vv_copy *copy = obj->copy[t];
        if (!copy || !core->tier[t].is_arena || copy->readers ||
            (copy->whole && copy_busy(core, copy)))
            continue;
        for (uint32_t c = 0; c < obj->nchunks; c++)
            if (copy->page[c] != VV_PAGE_NONE &&
                ((vvi_page(core, copy, c)->state != VV_PAGE_FILLING &&
                  vvi_page(core, copy, c)->pins == 0) ||
                 vvi_ahead_only(core, copy, c)))
                vvi_chunk_drop(core, copy, c);
        vvi_copy_maybe_free(core, copy);
    }
    vvi_core_reclass(core, obj, 0, obj->nchunks);
}

static void list_unlink(struct hist *h, struct vv_object *obj)
{
    if (obj->older)
        obj->older->newer = obj->newer;
    else
        h->oldest = obj->newer;
    if (obj->newer)
        obj->newer->older = obj->older;
    else
        h->newest = obj->older;
}

/* The hints stay, because the version may be written again; those of a declared order are
 * removed. */
static void hints_leave(struct vv_core *core, struct vv_object *obj, struct vv_object *successor)
{
    if (!obj->hint_first)
        return;
    if (vvi_hist(core, obj->hist)->cfg.order != VV_RESTORE_BY_HINTS) {
        vvi_hint_gone(core, obj);
        return;
    }
    if (!successor)
        successor = vvi_object_new(core, obj->hist, obj->version);
    vvi_hint_moved(core, obj, successor);
    if (!successor)
        return;
    vvi_hint_account(core, successor, 1);
    vvi_object_refresh(core, successor); /* its hints now rank its pages */
}

void vvi_object_leave(struct vv_core *core, struct vv_object *obj, struct vv_object *successor)
{
    struct hist *h = vvi_hist(core, obj->hist);

    vvi_predict_forget(core, obj);
    vvi_hint_account(core, obj, -1);
    h->nfailed -= obj->flush_err != 0;
    if (obj->written) {
        list_unlink(h, obj);
        if (!obj->exempt)
            expiring_unlink(h, obj);
        h->nwritten--;
        h->ndown -= obj->down;
        h->ndurable -= obj->durable;
        h->nexempt -= obj->exempt;
        obj->down = obj->exempt = false;
    }
    table_remove(h, obj);
    if (successor) {
        if (successor->beside)
            table_remove(h, successor);
        vv_table_add(&h->versions, successor);
    }
    if (core->filing == obj)
        core->filing = NULL;
    for (unsigned t = 0; t < core->ntiers; t++)
        for (int p = 0; p < 2; p++)
            if (core->tier[t].commit[p].obj == obj)
                core->tier[t].commit[p].obj = NULL;
    hints_leave(core, obj, successor);
}

void vvi_object_drop_pages(struct vv_core *core, struct vv_object *obj)
{
    vvi_core_reclass(core, obj, 0, obj->nchunks);
    drop_idle_pages(core, obj);
}

void vvi_object_unref(struct vv_core *core, struct vv_object *obj)
{
    vv_assert(obj->refs > 0);
    if (--obj->refs > 0) {
        /* Only pages are lent: neither the file nor its other pages wait for their return. */
        if (obj->dead && !obj->nameless && obj->refs == obj->lent) {
            drop_idle_pages(core, obj);
            if (obj->gen == VV_GEN_ENDED)
                (void)vvi_removal_begin(core, obj);
        }
        return;
    }
    if (!obj->dead) {
        /* A placeholder for hints, without a hint now. */
        if (!obj->written && !obj->writing && !obj->hint_first) {
            table_remove(vvi_hist(core, obj->hist), obj);
            object_free(core, obj);
        }
        return;
    }
    drop_idle_pages(core, obj);
    if (obj->gen == VV_GEN_HELD)
        return; /* its file stays, because the version that replaced it is not safe */
    if (vvi_removal_begin(core, obj))
        return;
    if (core->disk >= 0 && obj->copy[core->disk])
        vvi_copy_free(core, obj->copy[core->disk]);
    object_free(core, obj);
}

void vvi_object_file_gone(struct vv_core *core, struct vv_object *obj)
{
    struct tier *t = &core->tier[core->disk];

    vv_assert(t->used_bytes >= obj->file_bytes);
    t->used_bytes -= obj->file_bytes;
    obj->file_bytes = 0;
}

void vvi_object_consumed(struct vv_core *core, struct vv_object *obj)
{
    if (vvi_hist(core, obj->hist)->cfg.consume_once) {
        vvi_gen_expire(core, obj);
        return;
    }
    obj->consumed |= !obj->hint_first;
    obj->used = obj->hint_first != 0;
    for (unsigned t = 0; t < core->ntiers && !core->paged; t++)
        if (obj->copy[t])
            obj->copy[t]->stamp_use = ++core->stamp;
    vvi_object_refresh(core, obj);
    vvi_object_settle(core, obj);
}
