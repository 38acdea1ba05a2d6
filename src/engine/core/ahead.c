/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orders that run ahead: space planned on the time line of a stream.
 *
 * A program that uses streams enqueues work long before the device comes to it. What the host has
 * seen to end says nothing about the time at which that work will run. So a stream of the
 * application and two lanes of the library, one down and one up, make a family, and within it a
 * copy counts as done when it is queued on its lane. It leaves a stamp on the pages that it reads
 * and writes, and everything that the family queues later waits for that stamp. This is the planned
 * view. It decides about pages of the device only, and only for the same family. For everything
 * else a page is being filled, or pinned, until the host has seen the copy end.
 *
 * Invariants:
 *  - An order of a family waits for its own lanes and for EARLY, never for another family. EARLY
 *    waits for nothing: the data copied there is finished and no order writes it. So every wait
 *    leads into the past of one stream, and no two streams can wait for each other.
 *  - A page goes to another chunk by plan only after the copy that saves its bytes is queued on a
 *    lane (vv_core_enqueued). If a lane refuses a copy, nothing is lost.
 *  - A page keeps its pins and stamps when it changes hands. An order that ends looks for its chunk
 *    only if its output is still there (vvi_ahead_wrote).
 *  - Limbo: pages without an owner that orders still use. They are free for their family, by stamp,
 *    and for all others when the last use has been seen to end.
 *  - Pages of the host are given away only by observation.
 *  - A copy that fails spoils copies that were enqueued after it for the same object, and nothing
 *    else.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/core/core_private.h"

/* ---- families ---- */

static bool ahead_start(struct vv_core *core)
{
    struct ahead *a = &core->ahead;

    for (unsigned t = 0; t < core->ntiers && core->tier[t].memory; t++) {
        if (!a->stamp[t])
            a->stamp[t] = calloc(vv_core_tier_records(core, t), sizeof(struct stamp));
        if (!a->stamp[t])
            return false;
    }
    for (unsigned f = 1; f <= VV_FAMILIES; f++)
        a->family[f].limbo = a->family[f].limbo_last = VV_PAGE_NONE;
    a->on = true;
    /* From now on copies on the device are also kept in the heap HELD. */
    for (uint32_t p = 0; p < vv_core_tier_records(core, (unsigned)core->device);
         p = vv_arena_next(&core->tier[core->device].arena, p)) {
        const struct vv_page *page = &core->tier[core->device].arena.page[p];
        const struct vv_copy *copy = page->state == VV_PAGE_FREE ? NULL : page->u.owner;
        if (copy && copy->page[page->chunk] == p)
            vvi_object_refresh(core, copy->obj);
    }
    return true;
}

void vvi_ahead_fini(struct vv_core *core)
{
    for (unsigned t = 0; t < VV_MAX_TIERS; t++)
        free(core->ahead.stamp[t]);
}

unsigned vv_core_family(struct vv_core *core, uint64_t id)
{
    struct ahead *a = &core->ahead;
    unsigned idle = 0;

    if (!core->paged || core->device < 0 || id == 0 || (!a->on && !ahead_start(core)))
        return 0;
    for (unsigned f = 1; f <= VV_FAMILIES; f++) {
        struct family *family = &a->family[f];
        if (family->id == id) {
            family->used = ++a->clock;
            family->used_ns = core->now_ns;
            return f;
        }
        if (family->reqs == 0 && family->orders == 0 &&
            (!idle || family->used < a->family[idle].used))
            idle = f;
    }
    if (!idle)
        return 0;
    a->family[idle].id = id;
    a->family[idle].used = ++a->clock;
    a->family[idle].used_ns = core->now_ns;
    for (uint32_t i = 0; i < core->nhist; i++)
        if (core->hist[i].family == idle)
            core->hist[i].family = 0;
    return idle;
}

static bool in_use(const struct vv_core *core, const struct family *f)
{
    return f->id && (f->orders > 0 || core->now_ns - f->used_ns < STREAM_IDLE_NS);
}

/* Pages used by one stream are not available to others until it has ended its work. A stream that
 * takes all free pages would leave nothing to those that come a moment later. */
bool vvi_ahead_has_share(const struct vv_core *core, unsigned family)
{
    uint32_t n = 0;

    for (unsigned f = 1; f <= VV_FAMILIES; f++)
        n += f == family || in_use(core, &core->ahead.family[f]);
    return n > 1 &&
           core->ahead.family[family].pages >= core->tier[core->device].arena.npromised / n;
}

/* ---- limbo ---- */

static void limbo_remove(struct vv_core *core, unsigned tier, uint32_t page)
{
    struct stamp *all = core->ahead.stamp[tier], *st = &all[page];
    struct family *family = &core->ahead.family[st->limbo == LIMBO_ALONE ? 0 : st->limbo];

    if (st->limbo != LIMBO_ALONE) {
        *(st->prev != VV_PAGE_NONE ? &all[st->prev].next : &family->limbo) = st->next;
        *(st->next != VV_PAGE_NONE ? &all[st->next].prev : &family->limbo_last) = st->prev;
    }
    st->limbo = 0;
}

void vvi_ahead_limbo(struct vv_core *core, unsigned tier, uint32_t page)
{
    struct vv_page *p = &core->tier[tier].arena.page[page];
    struct stamp *st = vvi_stamp(core, tier, page);
    struct family *family;

    vv_assert(st && !st->limbo);
    p->u.owner = NULL;
    p->chunk = 0;
    p->state = VV_PAGE_RESERVED;
    p->class = 0;
    st->planned = false;
    st->limbo = LIMBO_ALONE;
    if ((int)tier != core->device || vv_arena_is_part(&core->tier[tier].arena, page) ||
        st->family == 0 || st->family == FAMILY_MIXED || p->pins != st->reads)
        return;
    family = &core->ahead.family[st->family];
    st->limbo = st->family;
    /* The page that lost its owner first can be written first. */
    st->next = VV_PAGE_NONE;
    st->prev = family->limbo_last;
    family->limbo_last = page;
    *(st->prev != VV_PAGE_NONE ? &core->ahead.stamp[tier][st->prev].next : &family->limbo) = page;
}

/* ---- data due to be copied down ---- */

/*
 * The lane down copies in the order in which copies were put there. A copy that waits for bytes
 * that are not written yet holds up all behind it, and the link is idle for that time: when the
 * stream comes to the puts that need the room, it stalls. So planned copies down take only data
 * that the stream has written by the time the lane comes to them. The duration of kernels is
 * unknown. The bytes that the stream puts serve as a clock: a copy down takes as long as the stream
 * needs to put a little more than it copies. A stream that puts faster loses nothing, because the
 * data was written before it was due; a slower stream has time.
 */
uint64_t vvi_ahead_due(const struct vv_core *core, unsigned family)
{
    const struct family *f = &core->ahead.family[family];
    uint64_t recent =
        (uint64_t)core->tier[core->device].arena.npages * core->cfg.page_bytes / RECENT_PART;
    uint64_t due = VV_MIN(f->due_at, f->put_bytes > recent ? f->put_bytes - recent : 0);

    return VV_MAX(due, f->seen_bytes);
}

void vvi_ahead_forget(struct vv_core *core, struct vv_copy *copy)
{
    struct family *f = &core->ahead.family[copy->recent];

    if (!copy->recent)
        return;
    *(copy->before ? &copy->before->behind : &f->recent) = copy->behind;
    *(copy->behind ? &copy->behind->before : &f->recent_last) = copy->before;
    copy->recent = 0;
}

static void put_on(struct vv_core *core, struct vv_order *o)
{
    struct family *f = &core->ahead.family[o->family];
    struct vv_copy *copy = o->obj->copy[o->dst_tier];

    f->put_bytes += o->bytes;
    if (o->dst_tier != core->device)
        return;
    vvi_ahead_forget(core, copy);
    copy->put_at = f->put_bytes;
    copy->recent = o->family;
    copy->before = f->recent_last;
    copy->behind = NULL;
    *(copy->before ? &copy->before->behind : &f->recent) = copy;
    f->recent_last = copy;
    vvi_object_refresh(core, o->obj);
}

static void find_due(struct vv_core *core, unsigned family)
{
    struct family *f = &core->ahead.family[family];
    uint64_t due = vvi_ahead_due(core, family);

    while (f->recent && f->recent->put_at <= due) {
        struct vv_copy *copy = f->recent;
        vvi_ahead_forget(core, copy);
        vvi_object_refresh(core, copy->obj);
    }
}

/* Adds a copy of data put up to `put_at` to the lane's work. Other families may share the link. */
static void charge_lane(struct vv_core *core, unsigned family, uint64_t put_at, uint64_t bytes)
{
    struct family *f = &core->ahead.family[family];
    uint64_t from = VV_MAX(VV_MAX(f->down_at, f->seen_bytes), put_at), all = 0;

    for (unsigned k = 1; k <= VV_FAMILIES; k++)
        all += core->ahead.family[k].down > 0 ? bytes + bytes / 4 : 0;
    f->down_at = VV_MIN(from + all, f->put_bytes);
}

/* ---- stamps ---- */

bool vvi_ahead_writable(const struct vv_core *core, unsigned family, const struct vv_copy *copy,
                        uint32_t c)
{
    const struct vv_page *p = vvi_page(core, copy, c);
    const struct stamp *st = vvi_stamp(core, copy->tier, copy->page[c]);

    return st && !copy->readers && (st->family == 0 || st->family == family) &&
           p->pins == st->reads &&
           (p->state == VV_PAGE_VALID || (p->state == VV_PAGE_FILLING && st->planned));
}

/* Parts of pages change hands only by observation. */
static bool is_part(const struct vv_core *core, const struct vv_copy *copy, uint32_t c)
{
    return vv_arena_is_part(&core->tier[copy->tier].arena, copy->page[c]);
}

bool vvi_ahead_only(const struct vv_core *core, const struct vv_copy *copy, uint32_t c)
{
    const struct stamp *st = vvi_stamp(core, copy->tier, copy->page[c]);

    return st && !is_part(core, copy, c) && (int)copy->tier == core->device &&
           st->reads + st->writes > 0 && st->family != FAMILY_MIXED &&
           vvi_ahead_writable(core, st->family, copy, c);
}

static const struct stamp *filling_stamp(const struct vv_core *core, const struct vv_object *obj,
                                         unsigned tier, uint32_t c)
{
    if (vvi_chunk_state(core, obj, tier, c) != VV_PAGE_FILLING || !core->tier[tier].is_arena)
        return NULL;
    return vvi_stamp(core, tier, obj->copy[tier]->page[c]);
}

static bool of_family(unsigned stream, unsigned family)
{
    return stream == 0 || (stream - 1) / (VV_LANES - 1) + 1 == family;
}

bool vvi_ahead_readable(const struct vv_core *core, unsigned family, const struct vv_object *obj,
                        unsigned tier, uint32_t c)
{
    const struct stamp *st;

    if (vvi_chunk_valid(core, obj, tier, c))
        return true;
    st = family ? filling_stamp(core, obj, tier, c) : NULL;
    return st && st->planned && of_family(st->writer, family);
}

bool vvi_ahead_foreign(const struct vv_core *core, unsigned family, const struct vv_object *obj,
                       unsigned tier, uint32_t c)
{
    const struct stamp *st = filling_stamp(core, obj, tier, c);

    return st && ((st->planned && st->writer != 0 && !of_family(st->writer, family)) ||
                  (st->queued && st->queued != family));
}

static void wait_for(const struct vv_core *core, struct vv_order *o, unsigned lane, uint64_t seq)
{
    if (lane != o->lane && seq > core->ahead.seen[vv_lane_stream(o->family, (enum vv_lane)lane)])
        o->wait[lane] = VV_MAX(o->wait[lane], seq);
}

void vvi_ahead_issued(struct vv_core *core, struct vv_order *o)
{
    struct family *family = &core->ahead.family[o->family];

    family->orders++;
    family->down += o->hop == VV_HOP_D2H && o->kind == VV_ORDER_COPY;
    family->flushes += o->hop == VV_HOP_D2H && o->kind == VV_ORDER_COPY;
    if (o->req)
        o->req->unqueued++;
    if (o->kind == VV_ORDER_APP && o->dst_tier != VV_TIER_APP)
        put_on(core, o);
    for (uint32_t i = 0; i < o->nchunks; i++) {
        const struct stamp *from =
            o->src_tier == VV_TIER_APP
                ? NULL
                : filling_stamp(core, o->obj, (unsigned)o->src_tier, o->chunk0 + i);
        struct stamp *to = o->dst_tier == VV_TIER_APP
                               ? NULL
                               : vvi_stamp(core, (unsigned)o->dst_tier, o->dst_page[i]);
        if (from)
            wait_for(core, o, from->writer ? (from->writer - 1u) % (VV_LANES - 1) + 1 : 0,
                     from->wrote);
        for (unsigned lane = 0; to && to->reads + to->writes > 0 && lane < VV_LANES; lane++)
            wait_for(core, o, lane, to->last[lane]);
        if (to && o->lane != VV_LANE_EARLY)
            to->queued = o->family;
    }
}

static void set_family(struct vv_core *core, int tier, struct stamp *st, uint8_t family)
{
    struct family *all = core->ahead.family;

    if (tier == core->device && st->family != 0 && st->family != FAMILY_MIXED)
        all[st->family].pages--;
    if (tier == core->device && family != 0 && family != FAMILY_MIXED)
        all[family].pages++;
    st->family = family;
}

static struct stamp *use(struct vv_core *core, const struct vv_order *o, int tier, uint32_t page)
{
    struct stamp *st = vvi_stamp(core, (unsigned)tier, page);

    if (st->reads + st->writes == 0)
        memset(st->last, 0, sizeof(st->last));
    if (o->lane != VV_LANE_EARLY && st->family != o->family)
        set_family(core, tier, st, st->family == 0 ? o->family : FAMILY_MIXED);
    st->last[o->lane] = o->seq;
    return st;
}

static void unuse(struct vv_core *core, int tier, uint32_t page)
{
    struct vv_page *p = &core->tier[tier].arena.page[page];
    struct stamp *st = vvi_stamp(core, (unsigned)tier, page);

    if (st->reads + st->writes > 0)
        return;
    set_family(core, tier, st, 0);
    if (!st->limbo || p->pins > 0)
        return;
    limbo_remove(core, (unsigned)tier, page);
    vvi_space_untake(core, (unsigned)tier, &page, 1);
    core->tier[tier].freed_epoch++;
}

void vvi_ahead_ended(struct vv_core *core, struct vv_order *o)
{
    struct family *family = &core->ahead.family[o->family];
    unsigned stream = vv_lane_stream(o->family, (enum vv_lane)o->lane);
    bool down = o->hop == VV_HOP_D2H && o->kind == VV_ORDER_COPY;

    family->orders--;
    family->down -= down;
    if (o->kind == VV_ORDER_APP && o->dst_tier != VV_TIER_APP)
        family->seen_bytes += o->bytes;
    if (o->seq == 0) {
        family->flushes -= down;
        if (o->req)
            o->req->unqueued--;
    }
    core->ahead.seen[stream] = VV_MAX(core->ahead.seen[stream], o->seq);
    for (uint32_t i = 0; i < o->nchunks; i++) {
        if (o->src_tier != VV_TIER_APP) {
            core->tier[o->src_tier].arena.page[o->src_page[i]].pins--;
            vvi_stamp(core, (unsigned)o->src_tier, o->src_page[i])->reads -= o->seq > 0;
            unuse(core, o->src_tier, o->src_page[i]);
        }
        if (o->dst_tier != VV_TIER_APP && o->seq == 0)
            vvi_stamp(core, (unsigned)o->dst_tier, o->dst_page[i])->queued = 0;
        if (o->dst_tier != VV_TIER_APP && o->seq > 0) {
            vvi_stamp(core, (unsigned)o->dst_tier, o->dst_page[i])->writes--;
            unuse(core, o->dst_tier, o->dst_page[i]);
        }
    }
}

bool vvi_ahead_wrote(const struct vv_core *core, const struct vv_order *o, uint32_t i)
{
    const struct vv_copy *to = o->obj->copy[o->dst_tier];
    const struct stamp *st = vvi_stamp(core, (unsigned)o->dst_tier, o->dst_page[i]);

    return to && to->page[o->chunk0 + i] == o->dst_page[i] &&
           (o->seq == 0 || (st->planned && st->wrote == o->seq &&
                            st->writer == vv_lane_stream(o->family, (enum vv_lane)o->lane)));
}

void vvi_ahead_poison(struct vv_core *core, const struct vv_order *o)
{
    uint32_t end = o->chunk0 + o->nchunks;

    if (o->seq == 0 || o->dst_tier == VV_TIER_APP)
        return;
    for (struct vv_order *later = core->orders; later; later = later->all_next)
        if (later->obj == o->obj && later->family && later->src_tier == o->dst_tier &&
            (later->seq == 0 || later->serial > o->serial) && later->chunk0 < end &&
            o->chunk0 < later->chunk0 + later->nchunks)
            later->poisoned = true;
}

bool vvi_ahead_somewhere(const struct vv_core *core, const struct vv_object *obj, uint32_t c)
{
    for (unsigned t = 0; t < core->ntiers; t++) {
        const struct stamp *st = filling_stamp(core, obj, t, c);
        if (vvi_chunk_valid(core, obj, t, c) || (st && st->planned))
            return true;
    }
    return false;
}

/* ---- effects of an order that is queued on a lane ---- */

/* The bytes have no further use on this time line: the family may take their pages. */
static void spend(struct vv_core *core, unsigned family, struct vv_object *obj)
{
    struct vv_copy *copy = obj->copy[core->device];

    obj->spent = true;
    for (uint32_t c = 0; copy && c < obj->nchunks; c++)
        if (copy->page[c] != VV_PAGE_NONE && vvi_ahead_only(core, copy, c) &&
            vvi_ahead_writable(core, family, copy, c))
            vvi_chunk_drop(core, copy, c);
    vvi_core_reclass(core, obj, 0, obj->nchunks);
    vvi_copy_maybe_free(core, copy);
}

/* All copies of a restore are queued on the stream. */
static void restored(struct vv_core *core, struct vv_req *req)
{
    struct vv_object *obj = req->obj;

    if (req->keep || req->error || obj->dead)
        return;
    if (vvi_hist(core, obj->hist)->cfg.consume_once) {
        if (obj->restoring == 1 && obj->lent == 0)
            spend(core, req->family, obj);
        return;
    }
    req->planned = true;
    obj->restoring--;
    vvi_object_consumed(core, obj);
}

void vv_core_enqueued(struct vv_core *core, struct vv_order *o, uint64_t seq, uint64_t now_ns)
{
    struct vv_req *req = o->req;

    vv_assert(o->family && o->seq == 0 && seq > 0);
    vvi_core_enter(core, now_ns);
    o->seq = seq;
    o->serial = ++core->ahead.serial;
    core->ahead.family[o->family].flushes -= o->hop == VV_HOP_D2H && o->kind == VV_ORDER_COPY;
    for (uint32_t i = 0; i < o->nchunks; i++) {
        if (o->src_tier != VV_TIER_APP)
            use(core, o, o->src_tier, o->src_page[i])->reads++;
        if (o->dst_tier != VV_TIER_APP) {
            struct stamp *st = use(core, o, o->dst_tier, o->dst_page[i]);
            st->writes++;
            st->wrote = seq;
            st->writer = (uint8_t)vv_lane_stream(o->family, (enum vv_lane)o->lane);
            st->planned = true;
            st->queued = 0;
        }
    }
    if (o->dst_tier != VV_TIER_APP)
        vvi_gets_look_again(core, o->obj, o->chunk0);
    if (req && --req->unqueued == 0 && req->kind == VV_REQ_GET && req->unissued == 0)
        restored(core, req);
    vvi_core_leave(core);
}

/* ---- victims ---- */

/* True if a slower tier has the bytes for good, or will have them by an order that is on a lane. */
static bool saved(const struct vv_core *core, const struct vv_object *obj, uint32_t c)
{
    for (unsigned t = (unsigned)core->device + 1; t < core->ntiers; t++) {
        const struct stamp *st = filling_stamp(core, obj, t, c);
        if ((vvi_chunk_valid(core, obj, t, c) && vvi_chunk_kept_by(core, obj, t, c)) ||
            (st && st->planned))
            return true;
    }
    return false;
}

static bool usable(const struct vv_core *core, unsigned family, const struct vv_copy *copy,
                   uint32_t c)
{
    const struct vv_object *obj = copy->obj;

    if (copy->page[c] == VV_PAGE_NONE || is_part(core, copy, c) ||
        !vvi_ahead_writable(core, family, copy, c))
        return false;
    return saved(core, obj, c) ||
           (!obj->dead && !vvi_flush_stopped(obj) &&
            vvi_chunk_state(core, obj, (unsigned)core->host, c) == VV_PAGE_FREE);
}

/* The last chunk of the copy whose page the family may have; `own`: only pages that it uses. */
static bool last_usable(const struct vv_core *core, unsigned family, bool own,
                        const struct vv_copy *copy, uint32_t *ret_c)
{
    for (uint32_t c = copy->held_top + 1; c-- > 0;)
        if (usable(core, family, copy, c) &&
            (!own || vvi_stamp(core, copy->tier, copy->page[c])->family == family)) {
            *ret_c = c;
            return true;
        }
    return false;
}

struct victim {
    unsigned family;
    bool own;
    bool found;     /* `rank` is set: by a victim, or by `least` at first */
    uint64_t least; /* the victim must be wanted later than this; 0: at any time */
    uint64_t rank;
    struct vv_copy *copy;
    uint32_t chunk;
    unsigned looked_at;
};

static bool take_victim(const struct vv_core *core, struct victim *v, struct vv_copy *copy,
                        uint64_t rank)
{
    uint32_t c;

    v->looked_at++;
    /* The usable chunk may be wanted sooner than the last one: two objects would take pages from
     * each other for ever. */
    if (!last_usable(core, v->family, v->own, copy, &c) ||
        (v->least && vvi_rank(core, copy->obj, copy->tier, c) <= v->least))
        return false;
    v->found = true;
    v->rank = rank;
    v->copy = copy;
    v->chunk = c;
    return true;
}

/* Entries below a place in a heap are wanted sooner. */
static void search_heap(const struct vv_core *core, const struct vv_heap *heap, uint32_t at,
                        struct victim *v)
{
    struct vv_copy *copy;
    uint64_t rank;

    if (at >= heap->n || v->looked_at >= VICTIMS_LOOKED_AT)
        return;
    copy = heap->item[at].value;
    rank = vvi_rank_relative(core, copy->obj, heap->item[at].key);
    if ((v->found && rank <= v->rank) || take_victim(core, v, copy, rank))
        return;
    search_heap(core, heap, 2 * at + 1, v);
    search_heap(core, heap, 2 * at + 2, v);
}

static void search_all(const struct vv_core *core, struct victim *v)
{
    unsigned device = (unsigned)core->device;

    for (uint32_t i = 0; i < core->nhist; i++) {
        v->looked_at = 0;
        search_heap(core, &core->hist[i].heap[device][HEAP_HELD], 0, v);
    }
    v->looked_at = 0;
    for (struct vv_copy *copy = core->ahead.family[v->family].recent;
         !v->copy && copy && v->looked_at < VICTIMS_LOOKED_AT; copy = copy->behind) {
        uint64_t rank = vvi_rank(core, copy->obj, device, copy->held_top);
        if (!v->found || rank > v->rank)
            (void)take_victim(core, v, copy, rank);
    }
}

/* The copy on the device that is wanted last, among those with a page for the family; for a
 * prefetch, later than `obj`. If none is due, the one that will be due first. A family that has its
 * share gives up its own pages as long as it can. */
static struct vv_copy *farthest(struct vv_core *core, unsigned family, const struct vv_object *obj,
                                uint32_t chunk, enum vv_purpose purpose, uint32_t *ret_c)
{
    struct victim v = {.family = family,
                       .own = vvi_ahead_has_share(core, family),
                       .found = purpose == VV_FOR_PREFETCH};

    if (v.found)
        v.rank = v.least = vvi_rank(core, obj, (unsigned)core->device, chunk);
    for (unsigned f = 1; f <= VV_FAMILIES; f++)
        find_due(core, f);
    search_all(core, &v);
    if (v.own && !v.copy) {
        v.own = false;
        search_all(core, &v);
    }
    *ret_c = v.chunk;
    return v.copy;
}

/* Takes the saved pages of the copy from chunk `top` down. */
static uint32_t take_from(struct vv_core *core, unsigned family, struct vv_copy *copy, uint32_t top,
                          uint32_t most, uint32_t *pages)
{
    struct vv_object *obj = copy->obj;
    uint32_t n = 0;

    while (n < most && n <= top && copy->page[top - n] != VV_PAGE_NONE &&
           vvi_ahead_writable(core, family, copy, top - n) && saved(core, obj, top - n)) {
        pages[n] = vvi_chunk_out(core, copy, top - n);
        n++;
    }
    core->stats.evicted_pages += n;
    vv_trace5(VV_TRACE_EVICT, vvi_trace_history(core, obj->hist), obj->version, copy->tier,
              top + 1 - n, n);
    vvi_core_reclass(core, obj, top + 1 - n, n);
    vvi_copy_maybe_free(core, copy);
    return n;
}

uint32_t vvi_ahead_take(struct vv_core *core, unsigned family, struct vv_object *obj,
                        uint32_t chunk, uint32_t want, enum vv_purpose purpose, uint32_t *pages)
{
    unsigned device = (unsigned)core->device;
    uint32_t got = 0, page, c = 0;

    while (got < want && (page = core->ahead.family[family].limbo) != VV_PAGE_NONE) {
        limbo_remove(core, device, page);
        pages[got++] = page;
    }
    while (got < want) {
        uint32_t asks = purpose == VV_FOR_PREFETCH ? chunk + got : chunk, most = want - got;
        struct vv_copy *copy = farthest(core, family, obj, asks, purpose, &c);
        if (!copy || !saved(core, copy->obj, c))
            break;
        /* One victim at a time, by the rank of the next chunk, as in space.c. */
        if (purpose == VV_FOR_PREFETCH &&
            vv_next_use(vvi_rank(core, obj, device, asks)) != VV_USE_HINTED)
            most = 1;
        /* While their order is unknown, every object keeps the same share. */
        if (vv_next_use(vvi_rank(core, copy->obj, device, c)) == VV_USE_UNKNOWN)
            most = VV_MIN(most, VV_MAX(copy->obj->nchunks / PARTS, (uint32_t)1));
        got += take_from(core, family, copy, c, most, pages + got);
    }
    return got;
}

/* The number of chunks from `top` down that one order can save: either all written, or none. */
static uint32_t unsaved_run(const struct vv_core *core, unsigned family, const struct vv_copy *copy,
                            uint32_t top, uint32_t most)
{
    bool written = vvi_chunk_valid(core, copy->obj, copy->tier, top);
    uint32_t n = 0;

    while (n < most && n <= top && usable(core, family, copy, top - n) &&
           !saved(core, copy->obj, top - n) &&
           vvi_chunk_valid(core, copy->obj, copy->tier, top - n) == written)
        n++;
    return n;
}

bool vvi_ahead_flush(struct vv_core *core, unsigned family, struct vv_object *obj, uint32_t chunk,
                     uint32_t want, enum vv_purpose purpose)
{
    uint32_t pages[VV_ORDER_MAX_PAGES], done = 0, c = 0;
    unsigned device = (unsigned)core->device, host = (unsigned)core->host;

    if (core->ahead.family[family].flushes > 0)
        return true; /* their pages are available once they are queued on their lanes */
    /* Only now: the data copied down last has been replaced, or is not wanted last. */
    core->ahead.family[family].due_at = core->ahead.family[family].down_at;
    while (done < want && !core->ahead.family[family].refused) {
        struct vv_copy *copy = farthest(core, family, obj, chunk, purpose, &c);
        uint32_t n, got;
        uint64_t put_at;
        enum vv_lane lane;
        if (!copy || saved(core, copy->obj, c))
            break;
        put_at = copy->put_at;
        n = unsaved_run(core, family, copy, c,
                        VV_MIN(want - done, AHEAD_BATCHES * core->hop[VV_HOP_D2H].batch));
        /* Data that is already written depends on no stream: copies of it may go on EARLY, for
         * which other families can wait. */
        lane = vvi_chunk_valid(core, copy->obj, device, c) ? VV_LANE_EARLY : VV_LANE_DOWN;
        n = VV_MIN(n, (uint32_t)VV_ORDER_MAX_PAGES);
        got = vvi_space_take(core, host, copy->obj, c, n, VV_FOR_FLUSH, pages);
        if (got == 0 || !vvi_issue_ahead(core, family, lane, copy->obj, core->device, core->host,
                                         c + 1 - got, got, pages, VV_COPY_WRITE_IN_PROGRESS))
            break;
        charge_lane(core, family, lane == VV_LANE_DOWN ? put_at : 0,
                    (uint64_t)got * core->cfg.page_bytes);
        done += got;
    }
    return done > 0;
}

/* ---- up ---- */

/* Host to device on the lane of a family, into pages that are free on its time line. */
enum fetch vvi_ahead_fetch(struct vv_core *core, unsigned family, struct vv_object *obj)
{
    unsigned device = (unsigned)core->device, host = (unsigned)core->host;
    uint32_t share = vvi_device_share(core, obj), there = vvi_on_device(core, obj);
    uint32_t pages[VV_ORDER_MAX_PAGES], c = 0, n = 0, got, most;

    if (!obj->copy[core->host] || there >= share || obj->spent)
        return FETCH_NOTHING;
    most = VV_MIN(AHEAD_BATCHES * core->hop[VV_HOP_H2D].batch, share - there);
    most = VV_MIN(most, (uint32_t)VV_ORDER_MAX_PAGES);
    while (c < obj->nchunks && (vvi_chunk_state(core, obj, device, c) != VV_PAGE_FREE ||
                                !vvi_ahead_readable(core, family, obj, host, c)))
        c++;
    while (c + n < obj->nchunks && n < most &&
           vvi_chunk_state(core, obj, device, c + n) == VV_PAGE_FREE &&
           vvi_ahead_readable(core, family, obj, host, c + n))
        n++;
    if (n == 0)
        return FETCH_NOTHING;
    if (vvi_lend_waits(core, device))
        return FETCH_NO_ROOM;
    got = vvi_ahead_has_share(core, family)
              ? 0
              : vvi_space_take(core, device, obj, c, n, VV_FOR_PREFETCH, pages);
    if (got == 0)
        got = vvi_ahead_take(core, family, obj, c, n, VV_FOR_PREFETCH, pages);
    if (got == 0)
        (void)vvi_ahead_flush(core, family, obj, c, n, VV_FOR_PREFETCH);
    if (got == 0 || !vvi_issue_ahead(core, family, VV_LANE_UP, obj, core->host, core->device, c,
                                     got, pages, VV_COPY_READ_IN_PROGRESS))
        return FETCH_NO_ROOM;
    return FETCH_ISSUED;
}
