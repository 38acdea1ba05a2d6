/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The invariants of the core, and a digest of its state.
 *
 * vv_core_check() relies on no counter, no heap and no derived bit: it starts from the page tables,
 * the orders in flight and the pending requests, counts everything again and compares. It changes
 * nothing and allocates nothing, so that it may run after every call. Its cost grows with the whole
 * state, and with the square of the orders in flight.
 *
 * Properties that concern two states are checked by the code that drives the core: that a claimed
 * copy is not taken by a prefetch, and that a restore returns the bytes that were put
 * (tests/explore, tests/model).
 *
 * vv_core_digest() hashes the state that affects later decisions and leaves out the rest:
 * addresses, absolute stamps, sequence numbers and generations. Where only an order counts
 * (stamps), it hashes places in that order.
 */
#include <errno.h>

#include "engine/core/core_private.h"

#define REQUIRE(cond, text) \
    do {                    \
        if (!(cond))        \
            return text;    \
    } while (0)

static const struct vv_object *first_version(const struct hist *h)
{
    return vv_table_first(&h->versions);
}

static const struct vv_object *next_version(const struct hist *h, const struct vv_object *obj)
{
    return vv_table_next(&h->versions, obj);
}

/* ---- tiers ---- */

/* Each free transit page is once on the stack of its direction, and no other page is. Pages are
 * checked in pieces, with a set of those on the stack: a search for each page would take the square
 * of their number, at each call. */
static const char *check_transit_way(const struct tier *t, bool up)
{
    enum { PIECE = 1024 };
    uint32_t first = t->arena.npages + (up ? t->transit_all : 0);

    REQUIRE(t->ntransit[up] <= t->transit_all, "more free transit pages than there are");
    for (uint32_t from = 0; from < t->transit_all; from += PIECE) {
        uint64_t listed[PIECE / 64] = {0};
        for (uint32_t i = 0; i < t->ntransit[up]; i++) {
            uint32_t k = t->transit[up][i] - first;
            REQUIRE(k < t->transit_all,
                    "a page is on a stack of free transit pages of the other direction");
            if (k < from || k - from >= PIECE)
                continue;
            k -= from;
            REQUIRE(!(listed[k / 64] >> k % 64 & 1), "a free transit page is on its stack twice");
            listed[k / 64] |= UINT64_C(1) << k % 64;
        }
        for (uint32_t k = 0; k < PIECE && from + k < t->transit_all; k++) {
            bool on_stack = listed[k / 64] >> k % 64 & 1;
            if (t->arena.page[first + from + k].state == VV_PAGE_FREE)
                REQUIRE(on_stack, "a free transit page is not on its stack");
            else
                REQUIRE(!on_stack, "a transit page in use is on a stack of free ones");
        }
    }
    return NULL;
}

static const char *check_transit(const struct tier *t)
{
    const char *wrong = check_transit_way(t, false);

    return wrong ? wrong : check_transit_way(t, true);
}

static const char *check_page(const struct vv_core *core, unsigned tier, uint32_t page)
{
    const struct vv_page *p = &core->tier[tier].arena.page[page];
    const struct vv_copy *copy = p->u.owner;

    if (p->state == VV_PAGE_FREE)
        return vvi_ahead_busy(core, tier, page) ? "a free page is used by a stream" : NULL;
    if (!copy && vvi_stamp(core, tier, page) && vvi_stamp(core, tier, page)->limbo) {
        REQUIRE(p->state == VV_PAGE_RESERVED && (p->pins || vvi_ahead_busy(core, tier, page)),
                "a page without an owner or a use is not free");
        return NULL;
    }
    if (!copy && page < core->tier[tier].arena.npages && core->tier[tier].arena.cut &&
        core->tier[tier].arena.cut[page].each)
        return NULL;
    REQUIRE(copy, "a page in use has no owner");
    REQUIRE(copy->tier == tier, "a page is owned by a copy on another tier");
    REQUIRE(p->chunk < copy->obj->nchunks, "a page holds a chunk beyond its object's end");
    REQUIRE(copy->page[p->chunk] == page, "a page and its copy's page table disagree");
    REQUIRE(copy->obj->copy[tier] == copy, "a page belongs to a copy that is gone");
    return NULL;
}

static const char *check_arena_tier(const struct vv_core *core, unsigned tier)
{
    const struct tier *t = &core->tier[tier];
    const char *wrong = vv_arena_check(&t->arena);
    uint32_t nevict = 0, ndirty = 0;

    if (!wrong)
        wrong = check_transit(t);
    for (uint32_t p = 0; !wrong && p < vv_core_tier_records(core, tier);
         p = vv_arena_next(&t->arena, p)) {
        wrong = check_page(core, tier, p);
        if (t->arena.page[p].state != VV_PAGE_FREE) {
            nevict += (t->arena.page[p].class & CLASS_EVICT) != 0;
            ndirty += (t->arena.page[p].class & CLASS_DIRTY) != 0;
        }
    }
    REQUIRE(!wrong, wrong);
    REQUIRE(nevict == t->nevict, "pages of a tier that may go are miscounted");
    REQUIRE(ndirty == t->ndirty, "pages of a tier to be flushed are miscounted");
    for (int slot = 0; slot < 2; slot++) {
        const struct vv_object *obj = t->commit[slot].obj;
        REQUIRE(!obj || !obj->dead, "a window is kept for a discarded object");
        REQUIRE(!obj || t->commit[slot].first + t->commit[slot].n <= t->arena.nready,
                "a window reaches beyond its tier");
    }
    return NULL;
}

/* ---- orders that run ahead ---- */

static bool uses_page(const struct vv_order *o, int tier, uint32_t page, bool write)
{
    const uint32_t *pages = write ? o->dst_page : o->src_page;

    if (!o->family || (write ? o->dst_tier : o->src_tier) != tier)
        return false;
    for (uint32_t i = 0; i < o->nchunks; i++)
        if (pages[i] == page)
            return true;
    return false;
}

/* True if the order comes after that write: by its place on the lane, by a dependency, or because
 * the write has been seen to end. */
static bool behind(const struct vv_core *core, const struct vv_order *o, unsigned lane,
                   uint64_t seq)
{
    return lane == o->lane || seq <= o->wait[lane] ||
           seq <= core->ahead.seen[vv_lane_stream(o->family, (enum vv_lane)lane)];
}

/* Checks all uses of the page by this order's lanes that came before it. */
static const char *check_waits(const struct vv_core *core, const struct vv_order *o, uint32_t page)
{
    for (const struct vv_order *b = core->orders; b; b = b->all_next) {
        if (b == o || !b->family || b->seq == 0 || (o->seq > 0 && b->serial > o->serial))
            continue;
        if (!uses_page(b, o->dst_tier, page, true) && !uses_page(b, o->dst_tier, page, false))
            continue;
        REQUIRE(b->lane == VV_LANE_EARLY || b->family == o->family,
                "a page is overwritten that another stream still uses");
        REQUIRE(behind(core, o, b->lane, b->seq),
                "a page is overwritten without waiting for its last use");
    }
    return NULL;
}

static const char *check_stamp(const struct vv_core *core, unsigned tier, uint32_t page)
{
    const struct stamp *st = vvi_stamp(core, tier, page);
    const struct vv_page *p = &core->tier[tier].arena.page[page];

    REQUIRE(!st->planned || (p->state == VV_PAGE_FILLING && st->writes > 0),
            "a page is planned to be filled and is not being filled");
    REQUIRE(!st->queued || (p->state == VV_PAGE_FILLING && !st->planned),
            "an order is to write a page that is not being filled, or is on its lane");
    REQUIRE(st->reads + st->writes > 0 || st->family == 0,
            "a page that no stream uses has a family");
    REQUIRE(p->pins >= st->reads, "a page that a stream reads is not pinned");
    return NULL;
}

static const char *check_recent(const struct vv_core *core, unsigned f)
{
    const struct family *family = &core->ahead.family[f];
    const struct vv_copy *last = NULL;

    for (const struct vv_copy *copy = family->recent; copy; copy = copy->behind) {
        REQUIRE(copy->recent == f && (int)copy->tier == core->device && copy->before == last &&
                    (!last || last->put_at <= copy->put_at),
                "recent puts of a stream are not in order");
        last = copy;
    }
    REQUIRE(family->recent_last == last, "the list of recent puts of a stream has a wrong end");
    REQUIRE(family->seen_bytes <= family->put_bytes && family->down_at <= family->put_bytes &&
                family->due_at <= family->down_at,
            "a stream has put fewer bytes than were seen to end or are to be copied");
    return NULL;
}

static const char *check_ahead(const struct vv_core *core)
{
    const char *wrong = NULL;
    uint32_t orders[VV_FAMILIES + 1] = {0}, down[VV_FAMILIES + 1] = {0}, pages[UINT8_MAX + 1] = {0};
    uint64_t reads = 0, writes = 0;

    if (!core->ahead.on)
        return NULL;
    for (unsigned t = 0; t < core->ntiers && core->tier[t].memory; t++)
        for (uint32_t p = 0; p < vv_core_tier_records(core, t) && !wrong;
             p = vv_arena_next(&core->tier[t].arena, p)) {
            reads += vvi_stamp(core, t, p)->reads;
            writes += vvi_stamp(core, t, p)->writes;
            pages[vvi_stamp(core, t, p)->family] += (int)t == core->device;
            wrong = check_stamp(core, t, p);
        }
    for (const struct vv_order *o = core->orders; o && !wrong; o = o->all_next) {
        REQUIRE(o->family <= VV_FAMILIES, "an order of a family that does not exist");
        orders[o->family]++;
        down[o->family] += o->kind == VV_ORDER_COPY && o->hop == VV_HOP_D2H;
        reads -= o->seq > 0 && o->src_tier != VV_TIER_APP ? o->nchunks : 0;
        writes -= o->seq > 0 && o->dst_tier != VV_TIER_APP ? o->nchunks : 0;
        for (uint32_t i = 0; o->family && o->dst_tier != VV_TIER_APP && i < o->nchunks && !wrong;
             i++)
            wrong = check_waits(core, o, o->dst_page[i]);
    }
    REQUIRE(!wrong, wrong);
    REQUIRE(reads == 0 && writes == 0, "uses of pages by streams are miscounted");
    for (unsigned f = 1; f <= VV_FAMILIES && !wrong; f++) {
        REQUIRE(orders[f] == core->ahead.family[f].orders && down[f] == core->ahead.family[f].down,
                "orders of a family are miscounted");
        REQUIRE(pages[f] == core->ahead.family[f].pages, "pages of a family are miscounted");
        wrong = check_recent(core, f);
    }
    return wrong;
}

/* ---- orders and requests ---- */

static bool order_covers(const struct vv_order *o, const struct vv_object *obj, uint32_t c)
{
    return o->obj == obj && c >= o->chunk0 && c - o->chunk0 < o->nchunks;
}

/* A page of an order that runs ahead may have gone to another chunk. */
static bool order_fills(const struct vv_core *core, const struct vv_order *o,
                        const struct vv_object *obj, uint32_t c)
{
    return order_covers(o, obj, c) && (!o->family || vvi_ahead_wrote(core, o, c - o->chunk0));
}

static uint32_t readers(const struct vv_core *core, const struct vv_object *obj, int tier,
                        uint32_t c)
{
    uint32_t n = 0;

    for (const struct vv_order *o = core->orders; o; o = o->all_next)
        n += o->family ? uses_page(o, tier, obj->copy[tier]->page[c], false)
                       : o->src_tier == tier && !o->whole && order_covers(o, obj, c);
    for (const struct vv_lend *l = core->lends; l && tier == 0; l = l->next)
        n += !l->lease && l->obj == obj && c >= l->chunk0 && c - l->chunk0 < l->npages;
    return n;
}

/* Orders that read all of a copy. */
static uint32_t whole_readers(const struct vv_core *core, const struct vv_copy *copy)
{
    uint32_t n = 0;

    for (const struct vv_order *o = core->orders; o; o = o->all_next)
        n += o->whole && o->obj == copy->obj && o->src_tier == copy->tier;
    return n;
}

static uint32_t writers(const struct vv_core *core, const struct vv_object *obj, int tier,
                        uint32_t c)
{
    uint32_t n = 0;

    for (const struct vv_order *o = core->orders; o; o = o->all_next)
        n += o->dst_tier == tier && order_fills(core, o, obj, c);
    return n;
}

static const char *check_chunk_of_order(const struct vv_core *core, const struct vv_order *o,
                                        uint32_t i)
{
    uint32_t c = o->chunk0 + i;

    if (o->seq > 0 || o->poisoned)
        return NULL; /* on the time line of its stream the chunk may have gone: check_waits */
    if (o->src_tier != VV_TIER_APP) {
        bool arena = core->tier[o->src_tier].is_arena;
        REQUIRE(vvi_ahead_readable(core, o->family, o->obj, (unsigned)o->src_tier, c),
                "an order reads a chunk that is not there");
        if (arena) {
            REQUIRE(o->obj->copy[o->src_tier]->page[c] == o->src_page[i],
                    "an order reads a page that holds something else");
            REQUIRE(vvi_page(core, o->obj->copy[o->src_tier], c)->pins ==
                        readers(core, o->obj, o->src_tier, c),
                    "pins of a page and orders that read it differ");
        }
    }
    if (o->dst_tier != VV_TIER_APP) {
        REQUIRE(vvi_chunk_state(core, o->obj, (unsigned)o->dst_tier, c) == VV_PAGE_FILLING,
                "an order writes a chunk that is not being filled");
        REQUIRE(!core->tier[o->dst_tier].is_arena ||
                    o->obj->copy[o->dst_tier]->page[c] == o->dst_page[i],
                "an order writes a page that holds something else");
        REQUIRE(writers(core, o->obj, o->dst_tier, c) == 1, "two orders fill one chunk");
    }
    return NULL;
}

static const char *check_order(const struct vv_core *core, const struct vv_order *o)
{
    REQUIRE(!o->all_next || o->all_next->all_prev == o, "the list of orders is broken");
    REQUIRE(o->kind != VV_ORDER_WAKE, "a wake among the orders in flight");
    REQUIRE((o->kind == VV_ORDER_APP) == (o->req != NULL), "an order has a wrong request");
    if (o->kind == VV_ORDER_COMMIT)
        REQUIRE(o->obj->copy[core->disk] && o->obj->copy[core->disk]->commit_issued,
                "a commit is in flight that its copy does not record");
    for (uint32_t i = 0; i < o->nchunks; i++) {
        const char *wrong = check_chunk_of_order(core, o, i);
        REQUIRE(!wrong, wrong);
    }
    return NULL;
}

static uint32_t orders_of_req(const struct vv_core *core, const struct vv_req *req, int from)
{
    uint32_t n = 0;

    for (const struct vv_order *o = core->orders; o; o = o->all_next)
        n += o->req == req && (from == VV_TIER_APP || o->src_tier == from);
    return n;
}

static uint32_t chunks_unissued(const struct vv_req *req)
{
    uint32_t n = 0;

    for (uint32_t c = 0; c < req->obj->nchunks; c++)
        n += !(req->issued[c / 64] >> (c % 64) & 1);
    return n;
}

/* A request that waits for a stream has all its orders in flight. */
static const char *check_ordered(const struct vv_req *req)
{
    REQUIRE(req->ordered && req->unissued == 0 && req->inflight > 0,
            "a request waits for a stream that has no order of it");
    return NULL;
}

/* Chunks that a restore skips must have nothing for it. */
static const char *check_cursors(const struct vv_core *core, const struct vv_req *req)
{
    for (uint32_t c = 0; c < req->obj->nchunks; c++) {
        bool issued = req->issued[c / 64] >> (c % 64) & 1;
        REQUIRE(c >= req->need || issued || vvi_chunk_in_memory(core, req->obj, c),
                "a restore does not see that a chunk has to be read");
        for (unsigned t = 0; t < core->ntiers && core->tier[t].memory; t++)
            REQUIRE(c >= req->look[t] || !vvi_get_gives(core, req, t, c),
                    "a restore does not see that a tier has a chunk");
    }
    return NULL;
}

static const char *check_req(const struct vv_core *core, const struct vv_req *req)
{
    const char *wrong;

    REQUIRE(req->status == -EINPROGRESS, "a pending request has ended");
    REQUIRE(!req->next || req->next->prev == req, "a list of requests is broken");
    REQUIRE(req->inflight == orders_of_req(core, req, VV_TIER_APP),
            "orders in flight of a request are miscounted");
    if (req->kind == VV_REQ_PUT)
        REQUIRE(req->obj->writing || req->obj->dead,
                "a put of a version that is not being written");
    if (req->kind == VV_REQ_PUT)
        REQUIRE(req->unissued == req->obj->nchunks - req->scan, "chunks to be put are miscounted");
    if (req->kind == VV_REQ_GET)
        REQUIRE(req->unissued == chunks_unissued(req), "chunks to be restored are miscounted");
    if (req->kind == VV_REQ_GET)
        for (unsigned t = 0; t < core->ntiers; t++)
            REQUIRE(req->from_inflight[t] == orders_of_req(core, req, (int)t),
                    "orders in flight of a restore from one tier are miscounted");
    wrong =
        req->kind == VV_REQ_GET && !req->error && !req->ordered ? check_cursors(core, req) : NULL;
    REQUIRE(!wrong, wrong);
    return NULL;
}

static const char *check_requests(const struct vv_core *core)
{
    const struct vv_req *list[] = {core->puts, core->gets, core->waits, core->stream_waits,
                                   core->ordered};
    const char *wrong = NULL;

    for (unsigned i = 0; i < VV_ARRAY_SIZE(list); i++)
        for (const struct vv_req *req = list[i]; req && !wrong; req = req->next)
            wrong = check_req(core, req);
    for (const struct vv_req *req = core->ordered; req && !wrong; req = req->next)
        wrong = check_ordered(req);
    for (const struct vv_req *req = core->stream_waits; req && !wrong; req = req->next)
        if (!req->obj->writing || !req->obj->ordered)
            wrong = "a wait for a stream that has ended";
    REQUIRE(!wrong, wrong);
    REQUIRE(
        core->inflight > 0 ||
            (!core->puts && !core->gets && !core->waits && !core->stream_waits && !core->ordered) ||
            ((vvi_growing(core) || core->nending > 0) && !core->ordered && !core->stream_waits),
        "a request is blocked and nothing is in flight");
    return NULL;
}

static uint32_t pending_of_hist(const struct vv_core *core, uint32_t hist)
{
    const struct vv_req *list[] = {core->puts, core->gets, core->waits, core->stream_waits,
                                   core->ordered};
    uint32_t n = 0;

    for (unsigned i = 0; i < VV_ARRAY_SIZE(list); i++)
        for (const struct vv_req *req = list[i]; req; req = req->next)
            n += req->hist == hist;
    return n;
}

static uint32_t refs_of(const struct vv_core *core, const struct vv_object *obj)
{
    const struct vv_req *list[] = {core->puts, core->gets, core->waits, core->stream_waits,
                                   core->ordered};
    uint32_t n = 0;

    for (const struct vv_order *o = core->orders; o; o = o->all_next)
        n += o->obj == obj;
    for (unsigned i = 0; i < VV_ARRAY_SIZE(list); i++)
        for (const struct vv_req *req = list[i]; req; req = req->next)
            n += req->obj == obj;
    for (const struct vv_lend *l = core->lends; l; l = l->next)
        n += l->obj == obj;
    return n;
}

/* ---- copies ---- */

struct totals {
    uint32_t valid, filling, reserved, transit, evict, dirty, up, dup;
    uint32_t evict_top, dirty_top; /* exact */
};

static const char *check_chunk(const struct vv_core *core, const struct vv_copy *copy, uint32_t c,
                               struct totals *n)
{
    const struct vv_page *p = vvi_page(core, copy, c);
    unsigned class = p->class;
    bool elsewhere = copy->obj->dead;

    REQUIRE(copy->page[c] < vv_core_tier_records(core, copy->tier), "a page number is too large");
    REQUIRE(p->state != VV_PAGE_FREE, "a copy holds a free page");
    REQUIRE(p->u.owner == copy && p->chunk == c, "a copy holds a page of another one");
    REQUIRE(class == vvi_classify(core, copy->obj, copy->tier, c, p), "a page's class is stale");
    for (unsigned t = 0; t < core->ntiers; t++)
        elsewhere |= t != copy->tier && vvi_chunk_valid(core, copy->obj, t, c);
    if (class & (CLASS_EVICT | CLASS_DUP | CLASS_PASS))
        REQUIRE(p->state == VV_PAGE_VALID && p->pins == 0 && elsewhere,
                "a page may go although it is the only copy or is being read");
    REQUIRE(p->pins == 0 || readers(core, copy->obj, copy->tier, c) == p->pins,
            "the pins of a page and its readers differ");
    REQUIRE(p->state != VV_PAGE_FILLING || writers(core, copy->obj, copy->tier, c) == 1,
            "no order fills a page that is being filled");
    n->evict_top = class & CLASS_EVICT ? c : n->evict_top;
    n->dirty_top = class & CLASS_DIRTY ? c : n->dirty_top;
    REQUIRE(!(class & CLASS_UP) || c >= copy->up_low, "up_low is no bound");
    n->evict += (class & CLASS_EVICT) != 0;
    n->dirty += (class & CLASS_DIRTY) != 0;
    n->up += (class & CLASS_UP) != 0;
    n->dup += (class & CLASS_DUP) != 0;
    return NULL;
}

static const char *check_in_heap(const struct vv_core *core, const struct vv_copy *copy,
                                 enum heap_kind kind, bool in, uint64_t key)
{
    const struct vv_heap *heap = &vvi_hist(core, copy->obj->hist)->heap[copy->tier][kind];
    uint32_t at = copy->heap_pos[kind];

    REQUIRE(in == (at != VV_HEAP_OUT), "a copy is in a heap that it does not belong to, or not");
    if (!in)
        return NULL;
    REQUIRE(at < heap->n && heap->item[at].value == copy, "a copy's place in a heap is wrong");
    REQUIRE(heap->item[at].key == key, "a copy's key in a heap is stale");
    return NULL;
}

static const char *check_heaps_of(const struct vv_core *core, const struct vv_copy *copy,
                                  const struct totals *n)
{
    const struct vv_object *obj = copy->obj;
    uint64_t key = ~copy->stamp_in;
    const char *wrong;

    if (core->paged)
        key = vvi_rank_absolute(core, obj, copy->tier, n->dirty_top);
    wrong = check_in_heap(core, copy, HEAP_DIRTY, n->dirty > 0, key);
    if (!wrong)
        wrong = check_in_heap(core, copy, HEAP_HELD,
                              core->ahead.on && (int)copy->tier == core->device &&
                                  n->valid + n->filling > 0 && !copy->recent,
                              vvi_rank_absolute(core, obj, copy->tier, copy->held_top));
    if (!wrong)
        wrong = check_in_heap(core, copy, HEAP_EVICT, core->paged && n->evict > 0 && !copy->readers,
                              vvi_rank_absolute(core, obj, copy->tier, n->evict_top));
    if (!wrong)
        wrong = check_in_heap(core, copy, HEAP_DUP,
                              core->paged && n->dup > 0 && !copy->readers &&
                                  core->tier[copy->tier].memory,
                              ~vvi_rank_absolute(core, obj, copy->tier, 0));
    return wrong;
}

/* Chunks that only a file that failed has, and orders that read an uncommitted one. */
static const char *check_old_file(const struct vv_core *core, const struct vv_copy *copy)
{
    uint32_t nold = 0, nreading = 0, nsalvages = 0;

    for (uint32_t c = 0; c < copy->obj->nchunks; c++)
        nold += copy->page[c] == FILE_CHUNK_OLD;
    for (const struct vv_order *o = core->orders; o; o = o->all_next) {
        nreading += o->obj == copy->obj && o->uncommitted;
        if (o->obj != copy->obj || o->kind != VV_ORDER_SALVAGE)
            continue;
        nsalvages++;
        for (uint32_t c = o->chunk0; c < o->chunk0 + o->nchunks; c++)
            REQUIRE(copy->page[c] == FILE_CHUNK_OLD,
                    "a chunk to be salvaged is in no file that failed");
    }
    REQUIRE(nold == copy->nold, "chunks of a file that failed are miscounted");
    REQUIRE(nold == 0 || copy->old_generation, "chunks are in a file that failed, and none did");
    REQUIRE(nreading == copy->nreading, "readers of a file are miscounted");
    REQUIRE(nsalvages == copy->salvaging, "orders to salvage are miscounted");
    return NULL;
}

static const char *check_copy(const struct vv_core *core, const struct vv_object *obj,
                              unsigned tier)
{
    const struct vv_copy *copy = obj->copy[tier];
    bool arena = core->tier[tier].is_arena;
    struct totals n = {0};

    REQUIRE(copy->obj == obj && copy->tier == tier,
            "a copy is attached to the wrong object or tier");
    REQUIRE(copy->state != VV_COPY_INIT && copy->state < VV_COPY_STATE_COUNT,
            "a copy is in a state that may not last");
    for (uint32_t c = 0; c < obj->nchunks; c++) {
        enum vv_page_state s = vvi_chunk_state(core, obj, tier, c);
        n.valid += s == VV_PAGE_VALID;
        n.filling += s == VV_PAGE_FILLING;
        n.reserved += s == VV_PAGE_RESERVED;
        REQUIRE(!copy->whole || copy->page[c] == copy->page[0] + c, "a whole copy is not one run");
        if (!arena || copy->page[c] == VV_PAGE_NONE)
            continue;
        n.transit += vvi_transit_page(&core->tier[tier], copy->page[c]);
        const char *wrong = check_chunk(core, copy, c, &n);
        REQUIRE(!wrong, wrong);
    }
    REQUIRE(n.valid == copy->nvalid && n.filling == copy->nfilling &&
                n.reserved == copy->nreserved && n.transit == copy->ntransit,
            "pages of a copy are miscounted");
    REQUIRE(n.valid + n.filling + n.reserved > 0 || !arena, "a copy without a page was not freed");
    const char *wrong_file = arena ? NULL : check_old_file(core, copy);
    REQUIRE(!wrong_file, wrong_file);
    REQUIRE(copy->readers == whole_readers(core, copy), "readers of a copy are miscounted");
    REQUIRE(!copy->readers || n.valid == obj->nchunks, "a copy that is read whole has a gap");
    if (!arena)
        return NULL;
    REQUIRE(n.evict == copy->nevict && n.dirty == copy->ndirty && n.up == copy->nup &&
                n.dup == copy->ndup,
            "classes of a copy's pages are miscounted");
    for (uint32_t c = copy->held_top + 1; c < obj->nchunks; c++)
        REQUIRE(copy->page[c] == VV_PAGE_NONE, "held_top is no bound");
    REQUIRE(n.evict == 0 || n.evict_top <= copy->evict_top, "evict_top is no bound");
    REQUIRE(n.dirty == 0 || n.dirty_top <= copy->dirty_top, "dirty_top is no bound");
    return check_heaps_of(core, copy, &n);
}

/* ---- objects ---- */

/* The only copy of live data is never evicted, and a put ends only when every byte has a place. */
static const char *check_bytes_kept(const struct vv_core *core, const struct vv_object *obj)
{
    for (uint32_t c = 0; c < obj->nchunks; c++)
        REQUIRE(vvi_ahead_somewhere(core, obj, c) || obj->spent || obj->lost,
                "the only copy of live data is gone");
    return NULL;
}

static const char *check_copies(const struct vv_core *core, const struct vv_object *obj)
{
    const char *wrong = NULL;
    uint32_t nmem = 0;

    for (unsigned t = 0; t < core->ntiers && !wrong; t++)
        if (obj->copy[t])
            wrong = check_copy(core, obj, t);
    REQUIRE(!wrong, wrong);
    for (uint32_t c = 0; c < obj->nchunks; c++) {
        bool in = vvi_chunk_in_memory(core, obj, c);
        nmem += in;
        REQUIRE(in || c >= obj->miss_low, "miss_low is no bound");
    }
    REQUIRE(nmem == obj->nmem, "chunks in memory are miscounted");
    REQUIRE(refs_of(core, obj) == obj->refs, "references to an object are miscounted");
    return NULL;
}

static const char *check_live(const struct vv_core *core, const struct vv_object *obj)
{
    const char *wrong;

    REQUIRE(!obj->dead, "a discarded object is still in the table of versions");
    const struct vv_object *there = vvi_object_find(core, obj->hist, obj->version);
    REQUIRE(there && (obj->beside ? vvi_gen_replacement(core, there) : there) == obj,
            "a version cannot be found");
    REQUIRE(!obj->beside || (obj->writing && there->written),
            "an object beside the table is not about to replace another one");
    REQUIRE(!obj->old || obj->gen == VV_GEN_CURRENT || obj->provisional,
            "a safe generation holds an older one");
    REQUIRE(obj->gen != VV_GEN_SAFE || obj->durable, "a generation is safe without a file");
    REQUIRE(!(obj->written && obj->writing), "a version is written and being written");
    REQUIRE(obj->written || obj->writing || obj->hint_first,
            "a version is neither written nor hinted");
    REQUIRE(!obj->durable || obj->written, "a version is committed before it is written");
    REQUIRE(obj->down == (obj->written && (obj->flush_err || vvi_object_complete_down(core, obj))),
            "the flag for a version that is complete below is stale");
    wrong = check_copies(core, obj);
    if (!wrong && obj->written)
        wrong = check_bytes_kept(core, obj);
    return wrong;
}

static const char *check_version(const struct vv_core *core, const struct vv_object *obj)
{
    const char *wrong = check_live(core, obj);

    for (const struct vv_object *old = obj->old; old && !wrong; old = old->old)
        wrong = old->gen == VV_GEN_HELD && old->durable ? check_copies(core, old)
                                                        : "a generation is held without need";
    return wrong;
}

enum { REQ_LISTS = 5 };

static const struct vv_req *first_req(const struct vv_core *core, unsigned list)
{
    return list == 0   ? core->puts
           : list == 1 ? core->gets
           : list == 2 ? core->waits
           : list == 3 ? core->stream_waits
                       : core->ordered;
}

/* Discarded objects exist as long as orders and requests refer to them. */
static const char *check_dead(const struct vv_core *core)
{
    const char *wrong = NULL;

    for (const struct vv_order *o = core->orders; o && !wrong; o = o->all_next)
        if (o->obj->dead)
            wrong = check_copies(core, o->obj);
    for (unsigned i = 0; i < REQ_LISTS; i++)
        for (const struct vv_req *req = first_req(core, i); req && !wrong; req = req->next)
            if (req->obj && req->obj->dead)
                wrong = check_copies(core, req->obj);
    return wrong;
}

/* Lent pages are one run and do not move; leased pages hold nothing and belong to no version. */
static const char *check_lend(const struct vv_core *core, const struct vv_lend *l)
{
    const struct vv_copy *copy = l->obj->copy[0];

    REQUIRE(!l->next || l->next->prev == l, "the list of lent pages is broken");
    REQUIRE(copy || l->npages == 0, "lent pages are gone");
    for (uint32_t i = 0; i < l->npages; i++) {
        uint32_t c = l->chunk0 + i;
        REQUIRE(copy->page[c] == l->first_page + i, "lent pages are not one run");
        REQUIRE(vvi_page(core, copy, c)->state == (l->lease ? VV_PAGE_RESERVED : VV_PAGE_VALID),
                "a page that is lent is in a wrong state");
        REQUIRE(l->lease || vvi_page(core, copy, c)->pins > 0, "a page that is lent may go");
    }
    if (!l->lease)
        return NULL;
    REQUIRE(l->obj->nameless && l->obj->dead && l->npages == l->obj->nchunks,
            "the object of a lease has a name");
    return check_copies(core, l->obj);
}

static const char *check_lends(const struct vv_core *core)
{
    uint32_t lent = 0, ending = 0;

    for (const struct vv_lend *l = core->lends; l; l = l->next) {
        const char *wrong = check_lend(core, l);
        REQUIRE(!wrong, wrong);
        lent += l->ending ? 0 : l->npages;
        ending += l->ending;
    }
    for (const struct vv_req *req = core->puts; req; req = req->next)
        lent += req->kind == VV_REQ_LEASE ? req->obj->nchunks : 0;
    REQUIRE(lent == core->tier[0].lent, "lent pages are miscounted");
    REQUIRE(lent <= core->tier[0].arena.npages / 2, "more than half of a tier is lent");
    REQUIRE(ending == core->nending, "pages being given back are miscounted");
    return NULL;
}

/* The shares of a version and of those that it has replaced. */
static uint64_t files_of(const struct vv_object *obj)
{
    return obj ? obj->file_bytes + files_of(obj->old) : 0;
}

/* The shares of live and ended objects in the files tier must add up. */
static const char *check_files(const struct vv_core *core)
{
    uint64_t used = 0;

    for (uint32_t i = 0; i < core->nhist; i++) {
        const struct hist *h = &core->hist[i];
        size_t failed = 0;
        for (const struct vv_object *obj = first_version(h); obj; obj = next_version(h, obj))
            used += files_of(obj);
        for (const struct vv_object *obj = vv_table_first(&h->replacements); obj;
             obj = vv_table_next(&h->replacements, obj))
            used += files_of(obj);
        for (const struct vv_object *obj = vv_table_first(&h->ending); obj;
             obj = vv_table_next(&h->ending, obj)) {
            REQUIRE(obj->removal != REMOVAL_NONE && obj->gen == VV_GEN_ENDED &&
                        vvi_object_find(core, i, obj->version) != obj,
                    "the file of a live object is to be removed");
            used += obj->file_bytes;
            failed += obj->removal == REMOVAL_FAILED;
        }
        REQUIRE(failed == h->nunremoved, "failed removals are miscounted");
    }
    REQUIRE(core->tier[core->disk].used_bytes == used, "bytes of files are miscounted");
    return NULL;
}

/* ---- histories ---- */

static const char *check_hints(const struct hist *h)
{
    uint64_t live = 0, chained = 0, predicted = 0;

    for (uint64_t s = h->head; s < h->tail; s++) {
        const struct vv_object *obj = vvi_hint_at(h, s);
        live += obj != NULL;
        predicted += h->ring[s & (h->ring_size - 1)].predicted;
        REQUIRE(predicted == 0 || h->predicted_at <= s, "predictions begin before their place");
        REQUIRE(!obj || !predicted || h->ring[s & (h->ring_size - 1)].predicted,
                "a prediction stands before a hint");
        REQUIRE(!obj || (!obj->dead && obj->hint_first && obj->hint_first <= s),
                "a hint names an object that does not refer to it");
    }
    for (const struct vv_object *obj = first_version(h); obj; obj = next_version(h, obj)) {
        uint64_t last = 0;
        for (uint64_t s = obj->hint_first; s; s = h->ring[s & (h->ring_size - 1)].next_same) {
            REQUIRE(s > last && s >= h->head && s < h->tail && vvi_hint_at(h, s) == obj,
                    "the hints of one version are chained wrongly");
            last = s;
            chained++;
        }
        REQUIRE(last == obj->hint_last, "the last hint of a version is wrong");
    }
    REQUIRE(live == chained, "a hint is in no chain");
    REQUIRE(predicted == h->npredicted && live == h->ngiven + predicted,
            "hints and predictions are miscounted");
    REQUIRE(h->head == h->tail || vvi_hint_at(h, h->head), "the first hint of the queue is empty");
    return NULL;
}

/* Prefetching looks at open hints only, so the versions that it skips must need nothing. The
 * hint of a discarded version that will be written again is opened then. */
static const char *check_open_hints(const struct hist *h)
{
    for (unsigned set = 0; set < h->nopen; set++)
        for (uint64_t i = 0; h->ring_size && i < h->ring_size; i++) {
            uint64_t s = h->head + ((i - h->head) & (h->ring_size - 1));
            const struct vv_object *obj = s < h->tail ? vvi_hint_at(h, s) : NULL;
            bool first = obj && obj->hint_first == s;
            if (vv_bitset_has(&h->open[set], i))
                REQUIRE(first, "a place that is not the first hint of a version is open");
            else if (first && set >= OPEN_TIER && obj->written && !obj->no_prefetch &&
                     obj->home <= set - OPEN_TIER)
                REQUIRE(obj->nmem == obj->nchunks, "the hint of a version not in memory is closed");
        }
    return NULL;
}

static const char *check_idle(const struct hist *h)
{
    for (unsigned set = 0; set < h->nopen; set++) {
        uint64_t s = h->head;
        for (unsigned i = 0; h->idle[set] && i < LOOK_AHEAD; i++, s++) {
            s = vvi_hint_next_open(h, set, s);
            REQUIRE(s < h->tail && (!vvi_hint_at(h, s)->written || vvi_hint_at(h, s)->no_prefetch),
                    "hints with data to prefetch are skipped");
        }
    }
    return NULL;
}

static const char *check_heap_order(const struct hist *h, unsigned ntiers)
{
    for (unsigned t = 0; t < ntiers; t++)
        for (int k = 0; k < HEAP_KINDS; k++) {
            const struct vv_heap *heap = &h->heap[t][k];
            for (uint32_t i = 0; i < heap->n; i++) {
                REQUIRE(*heap->item[i].pos == i, "an element has a wrong place in its heap");
                REQUIRE(i == 0 || heap->item[(i - 1) / 2].key >= heap->item[i].key,
                        "a heap is out of order");
            }
        }
    return NULL;
}

static const char *check_order_of_writing(const struct hist *h)
{
    const struct vv_object *expires = h->expires_first;
    uint64_t listed = 0, ordinal = 0;

    for (const struct vv_object *obj = h->oldest; obj; obj = obj->newer) {
        REQUIRE(obj->written && !obj->dead, "a version is listed as written and is not");
        REQUIRE(listed == 0 || obj->ordinal > ordinal, "the order of writing is broken");
        REQUIRE(obj->newer ? obj->newer->older == obj : h->newest == obj,
                "the list of versions is broken");
        REQUIRE(obj->exempt || obj == expires, "the list of versions that may expire is broken");
        if (!obj->exempt)
            expires = expires->expires_after;
        ordinal = obj->ordinal;
        listed++;
    }
    REQUIRE(!expires, "a version that is gone may expire");
    REQUIRE(listed == h->nwritten, "written versions are miscounted");
    REQUIRE(!h->predict_from || (h->predict_from->written && !h->predict_from->dead),
            "predictions continue from a version that is gone");
    return NULL;
}

static const char *check_hist_counts(const struct vv_core *core, const struct hist *h)
{
    uint64_t objects = 0, ready = 0, missing = 0, unwritten = 0, durable = 0, down = 0, failed = 0,
             safe = 0, exempt = 0;

    for (const struct vv_object *obj = first_version(h); obj; obj = next_version(h, obj)) {
        objects++;
        durable += obj->written && obj->durable;
        safe += vvi_gen_counts(obj);
        exempt += obj->exempt;
        down += obj->down;
        failed += obj->flush_err != 0;
        if (!obj->hint_first)
            continue;
        ready += obj->written;
        missing += obj->written ? obj->nchunks - obj->nmem : 0;
        unwritten += !obj->written && !obj->writing;
    }
    REQUIRE(objects == h->versions.n, "versions are miscounted");
    REQUIRE(durable == h->ndurable, "committed versions are miscounted");
    REQUIRE(safe == h->nsafe && exempt == h->nexempt, "safe versions are miscounted");
    REQUIRE(down == h->ndown, "versions complete below are miscounted");
    REQUIRE(failed == h->nfailed, "versions whose flush failed are miscounted");
    REQUIRE(ready == h->ready, "hinted versions are miscounted");
    REQUIRE(missing == h->missing_chunks, "chunks to be read for hints are miscounted");
    REQUIRE(unwritten == h->unwritten, "hinted versions still to come are miscounted");
    REQUIRE(h->pending == pending_of_hist(core, (uint32_t)(h - core->hist)),
            "pending requests are miscounted");
    return NULL;
}

static const char *check_hist(const struct vv_core *core, const struct hist *h)
{
    const char *wrong = check_hist_counts(core, h);

    for (const struct vv_object *obj = first_version(h); obj && !wrong; obj = next_version(h, obj))
        wrong = check_version(core, obj);
    for (const struct vv_object *obj = vv_table_first(&h->replacements); obj && !wrong;
         obj = vv_table_next(&h->replacements, obj))
        wrong = obj->beside ? check_live(core, obj) : "a replacement is in the table already";
    if (!wrong)
        wrong = check_hints(h);
    if (!wrong)
        wrong = check_open_hints(h);
    if (!wrong)
        wrong = check_idle(h);
    if (!wrong)
        wrong = check_heap_order(h, core->ntiers);
    return wrong ? wrong : check_order_of_writing(h);
}

const char *vv_core_check(const struct vv_core *core)
{
    const char *wrong = NULL;
    uint64_t inflight = 0, of_hop[VV_HOP_COUNT] = {0};

    for (unsigned t = 0; t < core->ntiers && !wrong; t++)
        if (core->tier[t].is_arena)
            wrong = check_arena_tier(core, t);
    for (const struct vv_order *o = core->orders; o && !wrong; o = o->all_next) {
        wrong = check_order(core, o);
        inflight++;
        of_hop[o->hop]++;
    }
    REQUIRE(!wrong, wrong);
    REQUIRE(inflight == core->inflight, "orders in flight are miscounted");
    for (int i = 0; i < VV_HOP_COUNT; i++)
        REQUIRE(of_hop[i] == core->hop[i].orders, "orders of a hop are miscounted");
    for (uint32_t i = 0; i < core->nhist && !wrong; i++)
        wrong = check_hist(core, &core->hist[i]);
    if (!wrong)
        wrong = check_dead(core);
    if (!wrong)
        wrong = check_lends(core);
    if (!wrong)
        wrong = check_ahead(core);
    if (!wrong && core->disk >= 0 && !core->tier[core->disk].is_arena)
        wrong = check_files(core);
    return wrong ? wrong : check_requests(core);
}

/* The number of pages and objects that a check looks at. */
static uint64_t check_weight(const struct vv_core *core)
{
    uint64_t weight = core->stats.objects;

    for (unsigned t = 0; t < core->ntiers; t++)
        weight += core->tier[t].arena.nready;
    return weight;
}

void vvi_core_check_sometimes(struct vv_core *core)
{
    enum { CHECK_EACH_CALL = 512 };
    const char *wrong;

    if (core->check_in-- > 0)
        return;
    core->check_in = check_weight(core) / CHECK_EACH_CALL;
    core->stats.invariant_checks++;
    wrong = vv_core_check(core);
    if (wrong)
        vv_assert_fail(__FILE__, __LINE__, wrong);
}

/* ---- digest ---- */

static uint64_t mix(uint64_t h, uint64_t v)
{
    h ^= v + UINT64_C(0x9e3779b97f4a7c15) + (h << 6) + (h >> 2);
    h *= UINT64_C(0xbf58476d1ce4e5b9);
    return h ^ h >> 31;
}

/* The number of copies stamped before: the order of stamps decides, not their values. */
static uint64_t stamp_place(const struct vv_core *core, unsigned tier, uint64_t stamp, bool use)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < core->nhist; i++)
        for (const struct vv_object *obj = first_version(&core->hist[i]); obj;
             obj = next_version(&core->hist[i], obj)) {
            const struct vv_copy *copy = obj->copy[tier];
            n += copy && (use ? copy->stamp_use : copy->stamp_in) < stamp;
        }
    return n;
}

/* The work that the family has still to do until its use of the page. */
static uint64_t digest_stamp(const struct vv_core *core, unsigned tier, uint32_t page)
{
    const struct stamp *st = vvi_stamp(core, tier, page);
    uint64_t d;

    if (!st || st->reads + st->writes == 0)
        return 0;
    d = mix((uint64_t)st->family << 8 | st->planned, (uint64_t)st->reads << 16 | st->writes);
    for (unsigned lane = 0; lane < VV_LANES; lane++) {
        bool one = st->family > 0 && st->family <= VV_FAMILIES;
        unsigned stream = one ? vv_lane_stream(st->family, (enum vv_lane)lane) : 0;
        uint64_t seen = core->ahead.seen[stream];
        d = mix(d, st->last[lane] > seen ? st->last[lane] - seen : 0);
    }
    return d;
}

static uint64_t digest_copy(const struct vv_core *core, const struct vv_copy *copy, uint64_t d)
{
    const struct tier *t = &core->tier[copy->tier];
    enum vv_hop down = t->kind == VV_TIER_DEVICE ? VV_HOP_D2H : VV_HOP_H2F;
    uint64_t done = core->hop[down].done_bytes;

    d = mix(d, (uint64_t)copy->tier << 16 | (uint64_t)copy->state << 8 |
                   (uint64_t)copy->failed << 2 | (uint64_t)copy->whole << 1 |
                   (uint64_t)copy->commit_issued | (uint64_t)copy->readers << 32);
    d = mix(d, (uint64_t)copy->nreading << 2 | (uint64_t)copy->salvaging << 1 |
                   (uint64_t)(copy->old_generation != 0));
    for (uint32_t c = 0; c < copy->obj->nchunks; c++) {
        uint32_t page = copy->page[c];
        if (page == VV_PAGE_NONE || !t->is_arena) {
            d = mix(d, page);
            continue;
        }
        /* Transit pages of one direction are equivalent, and under `next` so are all pages, unless
         * a request wants a run of them. */
        if (vvi_ahead_busy(core, copy->tier, page))
            d = mix(d, digest_stamp(core, copy->tier, page));
        if (vvi_transit_page(t, page))
            page = t->arena.npages + (page - t->arena.npages >= t->transit_all);
        else if (core->paged && !core->lent_ever && !vv_arena_is_part(&t->arena, page))
            page = 0; /* parts of one page go together */
        d = mix(d, (uint64_t)page << 32 | (uint64_t)vvi_page(core, copy, c)->state << 16 |
                       vvi_page(core, copy, c)->pins);
    }
    if (core->paged) /* the time of the put matters only to copies in a list of recent ones */
        return copy->recent ? mix(d, core->ahead.family[copy->recent].put_bytes - copy->put_at) : d;
    d = mix(d, stamp_place(core, copy->tier, copy->stamp_in, false));
    d = mix(d, stamp_place(core, copy->tier, copy->stamp_use, true));
    return mix(d, copy->flush_mark > done ? copy->flush_mark - done : 0);
}

static uint64_t digest_object(const struct vv_core *core, const struct vv_object *obj)
{
    uint64_t flags = obj->written | obj->writing << 1 | obj->dead << 2 | obj->consumed << 3 |
                     obj->durable << 4 | (obj->removal == REMOVAL_ASKED) << 5 | obj->passed << 6 |
                     obj->no_prefetch << 7 | obj->down << 8 | obj->keep_file << 9 |
                     obj->pass_through << 10 | obj->streams << 11 | obj->ordered << 12 |
                     obj->filled << 13 | obj->provisional << 14 | obj->reached << 15;
    uint64_t d = mix(obj->hist, obj->version);
    const struct vv_object *next = vvi_gen_replacement(core, obj);

    d = mix(d, flags | (uint64_t)obj->home << 16 | (uint64_t)(uint16_t)obj->flush_err << 32);
    d = mix(mix(mix(d, obj->size), obj->refs), obj->reflushed);
    d = mix(d, obj->gen | (uint64_t)obj->unfinished << 8 | (uint64_t)obj->missed << 9 |
                   (uint64_t)obj->restored << 10 | (uint64_t)obj->used << 11 |
                   (uint64_t)obj->lost << 12 | (uint64_t)obj->spent << 13 |
                   (uint64_t)obj->spoiled << 14 | (uint64_t)obj->left << 16 |
                   (uint64_t)(obj->spoiled && obj->reported) << 15);
    d = mix(d, obj->old ? digest_object(core, obj->old) : 0);
    d = mix(d, next ? digest_object(core, next) : 0);
    for (unsigned t = 0; t < core->ntiers; t++)
        if (obj->copy[t])
            d = digest_copy(core, obj->copy[t], d);
    return d;
}

/* A set: the files are removed in the order of their generations. */
static uint64_t digest_ending(const struct vv_core *core, const struct hist *h)
{
    uint64_t d = 0;

    for (const struct vv_object *obj = vv_table_first(&h->ending); obj;
         obj = vv_table_next(&h->ending, obj))
        d += mix(digest_object(core, obj), (obj->removal == REMOVAL_FAILED) | obj->dropped << 1);
    return d;
}

static uint64_t digest_hist(const struct vv_core *core, const struct hist *h, uint64_t d)
{
    uint64_t flags = h->used | h->started << 1 | (h->npredicted > 0) << 2 | h->hinted << 3 |
                     h->detect.any << 4 | (uint64_t)h->family << 8;
    uint64_t origin = h->oldest ? h->oldest->ordinal : h->next_ordinal;

    d = mix(d, flags);
    d = mix(mix(d, (uint64_t)h->detect.stride), (uint64_t)h->detect.step);
    d = mix(mix(d, h->detect.last - origin), h->interval_ns);
    if (core->nhist > 1 && h->interval_ns > 0) /* the time decides which history is next */
        d = mix(d, core->now_ns - h->last_end_ns);
    for (const struct vv_object *obj = h->oldest; obj; obj = obj->newer)
        d = mix(mix(d, obj->ordinal - origin), digest_object(core, obj));
    for (uint64_t s = h->head; s < h->tail; s++) {
        const struct vv_object *obj = vvi_hint_at(h, s);
        d = mix(d, obj ? obj->version + 1 : 0);
        d = mix(d, h->ring[s & (h->ring_size - 1)].predicted);
    }
    d = mix(mix(mix(d, h->surprises), h->wrong), h->reuse);
    for (unsigned i = 0; i < h->njudges; i++)
        d = mix(d, h->judge[i] < h->head ? 0 : h->judge[i] - h->head + 1);
    for (unsigned set = OPEN_TIER; set < h->nopen; set++)
        for (uint64_t s = h->head; (s = vvi_hint_next_open(h, set, s)) < h->tail; s++)
            d = mix(d, s - h->head);
    for (size_t i = h->passed_at; i < h->npassed; i++)
        d = mix(d, h->passed[i]);
    d = mix(d, h->predict_from ? h->predict_from->version + 1 : 0);
    d = mix(d, (uint64_t)(int64_t)h->late_err);
    d = mix(d, digest_ending(core, h));
    /* Places distinguish equal keys. */
    for (unsigned t = 0; t < core->ntiers; t++)
        for (int k = 0; k < HEAP_KINDS; k++)
            for (uint32_t i = 0; i < h->heap[t][k].n; i++)
                d = mix(d, ((const struct vv_copy *)h->heap[t][k].item[i].value)->obj->version);
    return d;
}

static uint64_t digest_order(const struct vv_core *core, const struct vv_order *o)
{
    uint64_t d = mix((uint64_t)o->kind << 8 | (uint64_t)o->hop, (uint64_t)(o->src_tier + 1) << 8);

    d = mix(d, (uint64_t)(o->dst_tier + 1));
    d = mix(d, (uint64_t)o->chunk0 << 32 | o->nchunks);
    d = mix(d, digest_object(core, o->obj));
    if (!o->family)
        return d;
    d = mix(d, (uint64_t)o->family << 16 | (uint64_t)o->lane << 8 | o->poisoned);
    d = mix(d, o->seq - core->ahead.seen[vv_lane_stream(o->family, (enum vv_lane)o->lane)]);
    for (unsigned lane = 0; lane < VV_LANES; lane++) {
        uint64_t seen = core->ahead.seen[vv_lane_stream(o->family, (enum vv_lane)lane)];
        d = mix(d, o->wait[lane] > seen ? o->wait[lane] - seen : 0);
    }
    for (uint32_t i = 0; i < o->nchunks; i++)
        d = mix(d, (uint64_t)o->src_page[i] << 32 | o->dst_page[i]);
    return d;
}

static uint64_t digest_req(const struct vv_core *core, const struct vv_req *req, uint64_t d)
{
    uint64_t before = 0;

    d = mix(d, (uint64_t)req->kind << 8 | (uint64_t)req->ordered << 1 | req->app_is_device);
    d = mix(d, (uint64_t)req->inflight << 32 | req->chunks_left);
    d = mix(d, (uint64_t)req->scan << 32 | (uint32_t)req->error);
    d = mix(d, (uint64_t)req->family << 1 | req->planned);
    d = mix(d, req->obj ? digest_object(core, req->obj) : req->hist);
    for (uint32_t i = 0; req->issued && i < vv_div_up(req->obj->nchunks, 64); i++)
        d = mix(d, req->issued[i]);
    /* Reads that were under way before the request do not fail it. */
    for (const struct vv_order *o = core->orders; o; o = o->all_next)
        if (req->kind == VV_REQ_GET && o->obj == req->obj && o->src_tier == core->disk &&
            o->number <= req->number)
            before += mix(o->kind, o->chunk0);
    return mix(d, before);
}

static uint64_t digest_family(const struct vv_core *core, unsigned f, uint64_t d)
{
    const struct family *family = &core->ahead.family[f];

    for (uint32_t p = family->limbo; p != VV_PAGE_NONE; p = core->ahead.stamp[core->device][p].next)
        d = mix(d, digest_stamp(core, (unsigned)core->device, p) + f);
    d = mix(d, family->put_bytes - family->seen_bytes);
    d = mix(d, family->put_bytes - VV_MAX(family->down_at, family->seen_bytes));
    return mix(d, family->put_bytes - VV_MAX(family->due_at, family->seen_bytes));
}

uint64_t vv_core_digest(const struct vv_core *core)
{
    uint64_t orders = 0, d = mix(mix(core->phase, core->largest_bytes), core->seed_pages);

    d = mix(mix(d, core->mixed), core->mixed ? core->put_bytes : 0);
    d = mix(d, core->reads_since_write);

    for (uint32_t i = 0; i < core->nhist; i++)
        d = digest_hist(core, &core->hist[i], d);
    /* A set: the order of issue no longer matters. */
    for (const struct vv_order *o = core->orders; o; o = o->all_next)
        orders += digest_order(core, o);
    for (const struct vv_lend *l = core->lends; l; l = l->next)
        orders += mix((uint64_t)l->first_page << 32 | l->npages, digest_object(core, l->obj));
    d = mix(d, orders);
    for (unsigned i = 0; i < REQ_LISTS; i++)
        for (const struct vv_req *req = first_req(core, i); req; req = req->next)
            d = digest_req(core, req, mix(d, i));
    for (int i = 0; i < VV_HOP_COUNT; i++)
        d = mix(d, (uint64_t)core->hop[i].rate.bytes_per_s);
    for (unsigned f = 1; core->ahead.on && f <= VV_FAMILIES; f++)
        d = digest_family(core, f, d);
    for (unsigned t = 0; t < core->ntiers; t++) {
        const struct tier *tier = &core->tier[t];
        d = mix(mix(d, tier->used_bytes), tier->lent);
        d = mix(d, tier->lease_epoch == tier->freed_epoch + 1 ? tier->lease_pages + 1 : 0);
        d = mix(d, (uint64_t)tier->arena.nready << 32 | tier->arena.npromised);
        for (int slot = 0; slot < 2; slot++) {
            const struct vv_object *obj = tier->commit[slot].obj;
            bool tried = tier->tried_epoch[slot] == tier->freed_epoch + 1;
            d = mix(d, obj ? obj->version + 1 : 0);
            d = mix(d, obj ? (uint64_t)tier->commit[slot].first << 32 | tier->commit[slot].n : 0);
            d = mix(d, tried ? tier->tried_pages[slot] + 1 : 0);
        }
    }
    return d;
}
