/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The next order on each hop.
 *
 * Every call into the core ends here. Each hop has a few slots for orders in flight. A free slot is
 * filled with the most urgent chunks of the moment, and nothing is queued behind it: the next
 * completion decides again. The order of urgency is:
 *
 *   restores that wait (APP orders, then disk reads for them), puts that wait, prefetches by
 *   distance, flushes farthest next use first.
 *
 * Where reads and writes share the bandwidth of the disk, a flush goes out only when no read is
 * under way, unless something waits for it: a blocked put, a wait for a level, or a history whose
 * level is durable.
 *
 * Progress: orders in flight always end, and so does the growing of a tier. With none in flight,
 * none to be started and no tier that grows, a request that is still pending can never end, and
 * fails (waits.c).
 */
#include <errno.h>
#include <string.h>

#include "engine/core/core_private.h"

/* ---- orders ---- */

static enum vv_hop hop_between(const struct vv_core *core, int src, int dst, bool app_is_device)
{
    enum vv_tier_kind app = app_is_device ? VV_TIER_DEVICE : VV_TIER_HOST;
    enum vv_tier_kind from = src == VV_TIER_APP ? app : core->tier[src].kind;
    enum vv_tier_kind to = dst == VV_TIER_APP ? app : core->tier[dst].kind;

    if (from != VV_TIER_DEVICE && from != VV_TIER_HOST)
        return VV_HOP_F2H;
    if (to != VV_TIER_DEVICE && to != VV_TIER_HOST)
        return VV_HOP_H2F;
    if (from == VV_TIER_DEVICE)
        return to == VV_TIER_DEVICE ? VV_HOP_D2D : VV_HOP_D2H;
    return to == VV_TIER_DEVICE ? VV_HOP_H2D : VV_HOP_H2H;
}

void vvi_core_push(struct vv_core *core, struct vv_order *o)
{
    o->issued_ns = core->now_ns;
    o->number = ++core->issued;
    o->next = NULL;
    if (core->ready_tail)
        core->ready_tail->next = o;
    else
        core->ready_head = o;
    core->ready_tail = o;
    o->all_prev = NULL;
    o->all_next = core->orders;
    if (core->orders)
        core->orders->all_prev = o;
    core->orders = o;
    core->inflight++;
    if (core->hop[o->hop].orders++ == 0)
        core->hop[o->hop].busy_since_ns = core->now_ns;
}

struct vv_order *vvi_order_for(struct vv_core *core, enum vv_order_kind kind, struct vv_object *obj)
{
    struct vv_order *o = vvi_order_new(core, kind);

    if (!o)
        return NULL;
    o->obj = obj;
    o->hist = obj->hist;
    o->version = obj->version;
    o->generation = obj->generation;
    o->file_generation = obj->file_generation;
    o->edition = obj->edition;
    o->size = obj->size;
    o->src_tier = o->dst_tier = VV_TIER_APP;
    obj->refs++;
    return o;
}

/* Under the contiguous policies a copy has its pages before it is filled. */
static bool whole_at(const struct vv_object *obj, int tier)
{
    return obj->copy[tier] && obj->copy[tier]->whole;
}

static void pin_pages(struct vv_core *core, struct vv_order *o)
{
    const struct vv_copy *from = o->obj->copy[o->src_tier];

    for (uint32_t i = 0; i < o->nchunks; i++) {
        o->src_page[i] = from->page[o->chunk0 + i];
        vvi_page(core, from, o->chunk0 + i)->pins++;
    }
}

/* An uncommitted file stays while it is read. All chunks of one order are in the same file. */
static void read_file(struct vv_order *o)
{
    struct vv_copy *file = o->obj->copy[o->src_tier];

    if (!file)
        return;
    o->uncommitted = true;
    file->nreading++;
    if (file->page[o->chunk0] == FILE_CHUNK_OLD)
        o->file_generation = file->old_generation;
}

static void fill_pages(struct vv_core *core, struct vv_order *o, struct vv_copy *to,
                       const uint32_t *pages)
{
    if (pages)
        memcpy(o->dst_page, pages, o->nchunks * sizeof(*pages));
    else
        memset(o->dst_page, 0, o->nchunks * sizeof(*pages));
    /* A put: no other tier has its chunks. */
    if (o->src_tier == VV_TIER_APP && !to->whole && !o->req->lent) {
        vvi_chunks_fill(core, to, o->chunk0, o->nchunks, pages);
        return;
    }
    for (uint32_t i = 0; i < o->nchunks; i++) {
        uint32_t c = o->chunk0 + i;
        vv_assert(to->page[c] == VV_PAGE_NONE || to->page[c] == pages[i]);
        if (to->page[c] == VV_PAGE_NONE)
            vvi_chunk_place(core, to, c, o->dst_page[i], VV_PAGE_FILLING);
        else
            vvi_chunk_set(core, to, c, VV_PAGE_FILLING);
    }
}

static bool issue_on(struct vv_core *core, unsigned family, enum vv_lane lane,
                     struct vv_object *obj, int src, int dst, uint32_t c0, uint32_t n,
                     const uint32_t *pages, struct vv_req *req, enum vv_copy_state born)
{
    struct vv_copy *to = NULL;
    struct vv_order *o;

    if (dst != VV_TIER_APP)
        to = vvi_copy_get(core, obj, (unsigned)dst, born);
    o = dst != VV_TIER_APP && !to ? NULL
                                  : vvi_order_for(core, req ? VV_ORDER_APP : VV_ORDER_COPY, obj);
    if (!o) {
        if (pages && !whole_at(obj, dst) && !(req && req->lent))
            vvi_space_untake(core, (unsigned)dst, pages, n);
        vvi_copy_maybe_free(core, to);
        return false;
    }
    o->src_tier = src;
    o->dst_tier = dst;
    o->hop = hop_between(core, src, dst, req && req->app_is_device);
    o->chunk0 = c0;
    o->nchunks = n;
    o->bytes = vvi_chunk_bytes(core, obj, c0, n);
    o->req = req;
    o->family = (uint8_t)family;
    o->lane = (uint8_t)lane;
    if (src != VV_TIER_APP && core->tier[src].is_arena)
        pin_pages(core, o);
    else if (src != VV_TIER_APP)
        read_file(o);
    if (dst != VV_TIER_APP)
        fill_pages(core, o, to, pages);
    /* A put into the only copy of an object changes no class: pages being filled have none. */
    if (src != VV_TIER_APP || obj->nmem > to->nfilling + to->nvalid)
        vvi_core_reclass(core, obj, c0, n);
    else if (core->ahead.on)
        vvi_object_refresh(core, obj);
    if (o->hop == VV_HOP_F2H && core->reads_since_write < VV_NEXT_WRITE_TURN)
        core->reads_since_write++;
    else if (o->hop == VV_HOP_H2F)
        core->reads_since_write = 0;
    if (req)
        req->unissued -= n;
    else if (!family)
        core->hop[o->hop].inflight++;
    vvi_core_push(core, o);
    if (family)
        vvi_ahead_issued(core, o);
    return true;
}

/* Issues an order that moves chunks [c0, c0 + n). `pages`: their places on dst, if that is an
 * arena; given back if there is no memory for the order. */
static bool issue(struct vv_core *core, struct vv_object *obj, int src, int dst, uint32_t c0,
                  uint32_t n, const uint32_t *pages, struct vv_req *req, enum vv_copy_state born)
{
    return issue_on(core, req ? req->family : 0, VV_LANE_APP, obj, src, dst, c0, n, pages, req,
                    born);
}

bool vvi_issue_ahead(struct vv_core *core, unsigned family, enum vv_lane lane,
                     struct vv_object *obj, int src, int dst, uint32_t c0, uint32_t n,
                     const uint32_t *pages, enum vv_copy_state born)
{
    return issue_on(core, family, lane, obj, src, dst, c0, n, pages, NULL, born);
}

static struct vv_copy *farthest_dirty(const struct vv_core *core, unsigned tier);

static bool slot_free(const struct vv_core *core, enum vv_hop hop)
{
    return core->hop[hop].inflight < core->hop[hop].slots;
}

/* ---- the application's own copies ---- */

static bool bit(const uint64_t *bits, uint32_t i)
{
    return bits[i / 64] >> (i % 64) & 1;
}

/* True if this tier can give the chunk to the restore now. A chunk that a faster tier has, or is
 * about to have, comes from there. */
bool vvi_get_gives(const struct vv_core *core, const struct vv_req *req, unsigned tier, uint32_t c)
{
    if (bit(req->issued, c) || !vvi_ahead_readable(core, req->family, req->obj, tier, c))
        return false;
    for (unsigned t = 0; t < tier; t++) {
        enum vv_page_state s = vvi_chunk_state(core, req->obj, t, c);
        if ((s == VV_PAGE_VALID || s == VV_PAGE_FILLING) &&
            !vvi_ahead_foreign(core, req->family, req->obj, t, c))
            return false;
    }
    return true;
}

/* If all of the object is on the device and no chunk has been issued, issues one order for all of
 * it. The order keeps the copy by a count of readers, without a pin on each page. This is the fast
 * path of a restore, which all prefetching aims at. */
static bool serve_get_whole(struct vv_core *core, struct vv_req *req, unsigned tier)
{
    struct vv_object *obj = req->obj;
    struct vv_copy *copy = obj->copy[tier];
    enum vv_hop hop = hop_between(core, (int)tier, VV_TIER_APP, req->app_is_device);
    struct vv_order *o;

    if ((int)tier != core->device || copy->nvalid < obj->nchunks || req->unissued < obj->nchunks ||
        obj->nchunks > core->hop[hop].batch || req->family)
        return false;
    o = vvi_order_for(core, VV_ORDER_APP, obj);
    if (!o)
        return false;
    o->whole = true;
    o->src_tier = (int)tier;
    o->hop = hop;
    o->nchunks = obj->nchunks;
    o->bytes = obj->size;
    o->req = req;
    memcpy(o->src_page, copy->page, obj->nchunks * sizeof(copy->page[0]));
    copy->readers++;
    vvi_object_refresh(core, obj);
    memset(req->issued, 0xff, vv_div_up(obj->nchunks, 64) * sizeof(*req->issued));
    req->scan = obj->nchunks;
    req->unissued = 0;
    req->from_inflight[tier]++;
    req->inflight++;
    vvi_core_push(core, o);
    return true;
}

static bool serve_get_from(struct vv_core *core, struct vv_req *req, unsigned tier)
{
    struct vv_object *obj = req->obj;
    enum vv_hop hop = hop_between(core, (int)tier, VV_TIER_APP, req->app_is_device);
    bool any = false;

    if (!obj->copy[tier])
        return false;
    if (serve_get_whole(core, req, tier))
        return true;
    while (req->look[tier] < obj->nchunks &&
           (req->ordered || req->from_inflight[tier] < APP_SLOTS)) {
        uint32_t n = 0, c = req->look[tier];
        while (c + n < obj->nchunks && n < core->hop[hop].batch &&
               vvi_get_gives(core, req, tier, c + n))
            n++;
        req->look[tier] = c + VV_MAX(n, 1);
        if (n == 0)
            continue;
        if (!issue(core, obj, (int)tier, VV_TIER_APP, c, n, NULL, req, VV_COPY_INIT)) {
            req->look[tier] = c;
            break;
        }
        for (uint32_t i = c; i < c + n; i++)
            req->issued[i / 64] |= UINT64_C(1) << (i % 64);
        req->from_inflight[tier]++;
        req->inflight++;
        any = true;
    }
    return any;
}

static bool serve_gets(struct vv_core *core)
{
    bool any = false;
    struct vv_req *next;

    for (struct vv_req *req = core->gets; req; req = next) {
        next = req->next;
        if (req->obj->dead && !req->error)
            req->error = -ENOENT;
        if (req->error) {
            if (req->inflight == 0)
                vvi_req_end(core, req, req->error);
            continue;
        }
        while (req->scan < req->obj->nchunks && bit(req->issued, req->scan))
            req->scan++;
        for (unsigned t = 0; t < core->ntiers && core->tier[t].memory; t++)
            any |= serve_get_from(core, req, t);
        if (req->obj->nchunks == 0) {
            vvi_req_nothing(core, req);
            any = true;
        } else if (req->ordered && req->unissued == 0) {
            vvi_req_issued(core, req);
        }
    }
    return any;
}

static void end_failed_puts(struct vv_core *core)
{
    struct vv_req *next;

    for (struct vv_req *req = core->puts; req; req = next) {
        next = req->next;
        if (req->kind == VV_REQ_PUT && req->obj->dead && !req->error)
            req->error = -ECANCELED;
        if (req->error && req->inflight == 0)
            vvi_req_end(core, req, req->error);
    }
}

/* The files tier never exceeds its configured capacity: a put waits for its share as long as
 * flushes, commits or removals under way may still free that much. */
bool vvi_charge_file(struct vv_core *core, struct vv_req *req)
{
    struct tier *t;

    if (req->file_bytes == 0)
        return true;
    t = &core->tier[core->disk];
    if (t->capacity_bytes && t->used_bytes + req->file_bytes > t->capacity_bytes)
        return false;
    t->used_bytes += req->file_bytes;
    req->obj->file_bytes = req->file_bytes;
    req->file_bytes = 0;
    return true;
}

/* Finds pages for the next chunks of a put, on its home tier or, in *tier, on another. Flushes from
 * a full device make room there as fast as the link allows, so sending chunks over the link
 * straight to the host would gain nothing. But while nothing can be flushed, because all of it is
 * lent or being read or filled, the host takes what the device cannot. */
static uint32_t put_room(struct vv_core *core, const struct vv_req *req, unsigned *tier,
                         uint32_t *pages)
{
    struct vv_object *obj = req->obj;
    unsigned host = (unsigned)core->host;
    enum vv_hop hop = hop_between(core, VV_TIER_APP, (int)*tier, req->app_is_device);
    uint32_t want = VV_MIN(core->hop[hop].batch, obj->nchunks - req->scan), got;
    bool ahead = req->family && (int)*tier == core->device;
    bool own = ahead && vvi_ahead_has_share(core, req->family);

    for (got = 0; req->lent && got < want; got++)
        pages[got] = obj->copy[*tier]->page[req->scan + got];
    if (req->lent)
        return got;
    got = own ? 0 : vvi_space_take(core, *tier, obj, req->scan, want, VV_FOR_PUT, pages);
    if (got == 0 && obj->pass_through)
        got = vvi_space_transit(core, 0, false, want, pages);
    if (got == 0 && ahead) {
        got = vvi_ahead_take(core, req->family, obj, req->scan, want, VV_FOR_PUT, pages);
        if (got == 0 && vvi_ahead_flush(core, req->family, obj, req->scan, want, VV_FOR_PUT))
            return 0;
    }
    if (got == 0 && own)
        got = vvi_space_take(core, *tier, obj, req->scan, want, VV_FOR_PUT, pages);
    if (got > 0 || !core->paged || *tier == host || core->hop[VV_HOP_D2H].inflight > 0 ||
        farthest_dirty(core, *tier))
        return got;
    hop = hop_between(core, VV_TIER_APP, (int)host, req->app_is_device);
    want = VV_MIN(core->hop[hop].batch, obj->nchunks - req->scan);
    got = vvi_space_take(core, host, obj, req->scan, want, VV_FOR_PUT, pages);
    if (got > 0)
        *tier = host;
    return got;
}

/* Issues the chunks that there is room for. False: the put is blocked. */
static bool serve_put(struct vv_core *core, struct vv_req *req, bool *any)
{
    struct vv_object *obj = req->obj;

    if (req->kind == VV_REQ_LEASE) {
        bool served = vvi_lend_serve(core, req);
        *any |= served;
        return served;
    }
    if (!vvi_charge_file(core, req))
        return false;
    while (req->scan < obj->nchunks && (req->ordered || req->inflight < APP_SLOTS)) {
        uint32_t pages[VV_ORDER_MAX_PAGES];
        unsigned tier = obj->home;
        uint32_t got = put_room(core, req, &tier, pages);
        core->put_short |= got == 0;
        if (got == 0)
            return false;
        if (!issue(core, obj, VV_TIER_APP, (int)tier, req->scan, got, pages, req,
                   VV_COPY_WRITE_IN_PROGRESS))
            return false;
        req->inflight++;
        req->scan += got;
        *any = true;
    }
    if (req->scan < obj->nchunks)
        return false;
    *any |= obj->nchunks == 0;
    if (obj->nchunks == 0)
        vvi_req_nothing(core, req);
    else if (req->ordered && !obj->filled)
        vvi_req_issued(core, req);
    return true;
}

/* Puts are served in order: a later one begins when space for all before it has been found. A put
 * whose bytes are already in its pages needs no space, and the others may wait for its end. */
static bool serve_puts(struct vv_core *core)
{
    bool any = false, blocked = false;
    struct vv_req *next;

    end_failed_puts(core);
    core->put_short = false;
    for (struct vv_req *req = core->puts; req; req = next) {
        next = req->next;
        if (req->error || (blocked && !req->lent))
            continue;
        blocked |= !serve_put(core, req, &any);
    }
    return any;
}

/* ---- up ---- */

/* The number of the chunks [c, c + n) that are in the same file: after a failure there may be
 * two. */
static uint32_t of_one_file(const struct vv_core *core, const struct vv_object *obj, uint32_t c,
                            uint32_t n)
{
    const struct vv_copy *file = core->disk >= 0 ? obj->copy[core->disk] : NULL;
    uint32_t same = 1;

    if (!file || !file->old_generation)
        return n;
    while (same < n && file->page[c + same] == file->page[c])
        same++;
    return VV_MIN(same, n);
}

static uint32_t missing_run(const struct vv_core *core, const struct vv_object *obj,
                            const struct vv_req *req, uint32_t from, uint32_t most,
                            uint32_t *ret_first)
{
    uint32_t c = from, n = 0;

    if (obj->nmem == 0 && !req) {
        *ret_first = from;
        return of_one_file(core, obj, from, VV_MIN(most, obj->nchunks - from));
    }
    while (c < obj->nchunks && (vvi_chunk_in_memory(core, obj, c) || (req && bit(req->issued, c))))
        c++;
    while (c + n < obj->nchunks && n < most && !vvi_chunk_in_memory(core, obj, c + n) &&
           !(req && bit(req->issued, c + n)))
        n++;
    *ret_first = c;
    return of_one_file(core, obj, c, n);
}

static bool on_disk(const struct vv_core *core, const struct vv_object *obj, uint32_t c)
{
    return core->disk >= 0 && vvi_chunk_valid(core, obj, (unsigned)core->disk, c);
}

static bool read_for_gets(struct vv_core *core)
{
    uint32_t pages[VV_ORDER_MAX_PAGES];
    bool any = false;

    for (struct vv_req *req = core->gets; req; req = req->next) {
        struct vv_object *obj = req->obj;
        uint32_t c, n, got;
        while (!req->error && slot_free(core, VV_HOP_F2H)) {
            n = missing_run(core, obj, req, req->need, core->hop[VV_HOP_F2H].batch, &c);
            req->need = c;
            if (n == 0 || !on_disk(core, obj, c))
                break;
            got = whole_at(obj, core->host) ? 0 : vvi_space_transit(core, 1, true, n, pages);
            if (got == 0)
                got = vvi_space_take(core, (unsigned)core->host, obj, c, n, VV_FOR_DEMAND, pages);
            if (got == 0)
                break;
            if (!issue(core, obj, core->disk, core->host, c, got, pages, NULL,
                       VV_COPY_READ_IN_PROGRESS))
                return any;
            any = true;
        }
    }
    return any;
}

/* The prefetcher has found the object complete here: it stays until it is consumed. */
static void claim(struct vv_core *core, struct vv_object *obj, unsigned tier)
{
    struct vv_copy *copy = obj->copy[tier];

    if (copy && (copy->state == VV_COPY_WRITE_COMPLETE || copy->state == VV_COPY_FLUSHED ||
                 copy->state == VV_COPY_CONSUMED))
        vvi_copy_set_state(core, copy, VV_COPY_READ_COMPLETE);
}

/* A restore takes chunks from device and host at the same time: the share of an object that the
 * link delivers while the device delivers the rest can stay on the host. An eighth at most, because
 * rates are estimates. If the link is far slower, no share stays there: it would be small, and
 * would wait for the transfers that the link has under way. Nor does any stay in transit pages,
 * which others need to get past the host. */
uint32_t vvi_device_share(const struct vv_core *core, const struct vv_object *obj)
{
    const struct vv_copy *host = obj->copy[core->host];
    double device = core->hop[VV_HOP_D2D].rate.bytes_per_s;
    double link = core->hop[VV_HOP_H2D].rate.bytes_per_s;
    uint32_t rest;

    if (!core->paged || device <= 0 || link * SHARE_LEAST < device || (host && host->ntransit > 0))
        return obj->nchunks;
    rest = (uint32_t)(obj->nchunks * (link / (device + link)));
    return obj->nchunks - VV_MIN(rest, obj->nchunks / 8);
}

uint32_t vvi_on_device(const struct vv_core *core, const struct vv_object *obj)
{
    const struct vv_copy *copy = obj->copy[core->device];

    return copy ? copy->nvalid + copy->nfilling : 0;
}

bool vvi_object_ready(const struct vv_core *core, const struct vv_object *obj)
{
    const struct vv_copy *copy = obj->copy[obj->home];

    if (obj->home != core->device)
        return vvi_object_complete_at(core, obj, obj->home);
    return obj->nmem == obj->nchunks && (copy ? copy->nvalid : 0) >= vvi_device_share(core, obj);
}

/* `least`: only histories of this level and above. */
static struct vv_copy *farthest_dirty_of(const struct vv_core *core, unsigned tier,
                                         enum vv_core_level least)
{
    struct vv_copy *best = NULL;
    uint64_t best_rank = 0;

    for (uint32_t i = 0; i < core->nhist; i++) {
        const struct vv_heap *heap = &core->hist[i].heap[tier][HEAP_DIRTY];
        struct vv_copy *copy = vv_heap_top(heap);
        uint64_t rank = 0;
        if (((int)tier == core->device && vvi_ahead_flushes(core, &core->hist[i])) ||
            core->hist[i].cfg.level < least)
            continue;
        if (copy)
            rank = core->paged ? vvi_rank(core, copy->obj, tier, copy->dirty_top) : ~copy->stamp_in;
        if (copy && (!best || rank > best_rank)) {
            best = copy;
            best_rank = rank;
        }
    }
    return best;
}

static struct vv_copy *farthest_dirty(const struct vv_core *core, unsigned tier)
{
    return farthest_dirty_of(core, tier, VV_CORE_CACHED);
}

/* A file is finished before another is begun: memory can only be freed when a file is committed. */
static struct vv_copy *next_dirty(const struct vv_core *core, unsigned tier)
{
    struct vv_copy *copy = core->filing ? core->filing->copy[tier] : NULL;

    return copy && copy->ndirty > 0 ? copy : farthest_dirty(core, tier);
}

/* The last run of dirty chunks: [*ret_first, top]. */
static uint32_t dirty_run(const struct vv_core *core, const struct vv_copy *copy, uint32_t most,
                          uint32_t *ret_first)
{
    uint32_t top = copy->dirty_top, n = 0;

    while (n < most && n <= top && copy->page[top - n] != VV_PAGE_NONE &&
           (vvi_page(core, copy, top - n)->class & CLASS_DIRTY))
        n++;
    *ret_first = top - n + 1;
    return n;
}

/* The last run of chunks that may be evicted from the device and are not on the host: [*ret_first,
 * top]. */
static uint32_t clean_run(const struct vv_core *core, const struct vv_copy *copy, uint32_t most,
                          uint32_t *ret_first)
{
    uint32_t top = copy->evict_top, n = 0;

    while (n < most && n <= top && copy->page[top - n] != VV_PAGE_NONE &&
           (vvi_page(core, copy, top - n)->class & CLASS_EVICT) &&
           vvi_chunk_state(core, copy->obj, (unsigned)core->host, top - n) == VV_PAGE_FREE)
        n++;
    *ret_first = top - n + 1;
    return n;
}

/* For a device full of data wanted later than this chunk: an exchange of places. The data wanted
 * last moves down into host pages that are free or duplicates, and the next completion finds the
 * room. A few pages may be evicted altogether to start the exchange. Returns true if room was made
 * at once. */
static bool demote_for(struct vv_core *core, const struct vv_object *obj, uint32_t chunk)
{
    unsigned device = (unsigned)core->device, host = (unsigned)core->host;
    struct vv_copy *clean = vvi_space_farthest(core, device), *dirty = farthest_dirty(core, device),
                   *from;
    uint64_t clean_rank = clean ? vvi_rank(core, clean->obj, device, clean->evict_top) : 0;
    uint64_t dirty_rank = dirty ? vvi_rank(core, dirty->obj, device, dirty->dirty_top) : 0;
    uint32_t pages[VV_ORDER_MAX_PAGES], c, n, got, most = core->hop[VV_HOP_D2H].batch;

    if (!core->paged || !slot_free(core, VV_HOP_D2H))
        return false;
    from = clean && (!dirty || clean_rank > dirty_rank) ? clean : dirty;
    if (!from || VV_MAX(clean_rank, dirty_rank) <= vvi_rank(core, obj, device, chunk))
        return false;
    n = from == clean && clean_rank >= dirty_rank ? clean_run(core, from, most, &c)
                                                  : dirty_run(core, from, most, &c);
    if (n == 0)
        return false;
    got = vvi_space_take(core, host, from->obj, c + n - 1, n, VV_FOR_DEMOTE, pages);
    if (got == 0) {
        if (from != clean || core->seed_pages == 0)
            return false;
        n = VV_MIN(n, core->seed_pages);
        core->seed_pages -= n;
        return vvi_space_evict(core, from, n) > 0;
    }
    (void)issue(core, from->obj, core->device, core->host, c + n - got, got, pages, NULL,
                VV_COPY_WRITE_IN_PROGRESS);
    return false;
}

/* Host to device. */
static enum fetch fetch_to_device(struct vv_core *core, struct vv_object *obj)
{
    struct vv_copy *from = obj->copy[core->host];
    unsigned family = vvi_hist(core, obj->hist)->family;
    uint32_t pages[VV_ORDER_MAX_PAGES], c, n = 0, got, most = core->hop[VV_HOP_H2D].batch;

    if (family)
        return vvi_ahead_fetch(core, family, obj);
    if (!from || from->nup == 0 || vvi_on_device(core, obj) >= vvi_device_share(core, obj))
        return FETCH_NOTHING;
    most = VV_MIN(most, vvi_device_share(core, obj) - vvi_on_device(core, obj));
    for (c = from->up_low; c < obj->nchunks; c++)
        if (from->page[c] != VV_PAGE_NONE && (vvi_page(core, from, c)->class & CLASS_UP))
            break;
    from->up_low = c;
    while (c + n < obj->nchunks && n < most && from->page[c + n] != VV_PAGE_NONE &&
           (vvi_page(core, from, c + n)->class & CLASS_UP))
        n++;
    if (n == 0)
        return FETCH_NOTHING;
    if (vvi_lend_waits(core, (unsigned)core->device))
        return FETCH_NO_ROOM;
    got = vvi_space_take(core, (unsigned)core->device, obj, c, n, VV_FOR_PREFETCH, pages);
    if (got == 0 && demote_for(core, obj, c))
        got = vvi_space_take(core, (unsigned)core->device, obj, c, n, VV_FOR_PREFETCH, pages);
    if (got == 0)
        return FETCH_NO_ROOM;
    if (!issue(core, obj, core->host, core->device, c, got, pages, NULL, VV_COPY_READ_IN_PROGRESS))
        return FETCH_NO_ROOM;
    return FETCH_ISSUED;
}

/* Disk to device, past a full host tier. */
static bool fetch_past_host(struct vv_core *core, struct vv_object *obj, uint32_t c, uint32_t n)
{
    uint32_t pages[VV_ORDER_MAX_PAGES], got;

    if (!core->gds || vvi_lend_waits(core, (unsigned)core->device))
        return false;
    got = vvi_space_take(core, (unsigned)core->device, obj, c, n, VV_FOR_PREFETCH, pages);
    return got > 0 && issue(core, obj, core->disk, core->device, c, got, pages, NULL,
                            VV_COPY_READ_IN_PROGRESS);
}

/* Disk to host, or past the host to the device if only the device has room. */
static enum fetch fetch_to_host(struct vv_core *core, struct vv_object *obj)
{
    uint32_t pages[VV_ORDER_MAX_PAGES], c, n, got;
    bool device_room;

    n = missing_run(core, obj, NULL, obj->miss_low, core->hop[VV_HOP_F2H].batch, &c);
    obj->miss_low = c;
    if (n == 0 || !on_disk(core, obj, c))
        return FETCH_NOTHING;
    if (vvi_lend_waits(core, (unsigned)core->host))
        return FETCH_NO_ROOM;
    got = vvi_space_take(core, (unsigned)core->host, obj, c, n, VV_FOR_PREFETCH, pages);
    device_room = got == 0 && obj->home == core->device && !whole_at(obj, core->host) &&
                  vvi_space_room_for(core, (unsigned)core->device, obj, c, VV_FOR_PREFETCH);
    if (device_room && fetch_past_host(core, obj, c, n))
        return FETCH_ISSUED;
    /* Transit pages hold chunks that no cache has room for yet; a restore that waits may take them.
     * Chunks that can go past the host do so once the device has room. */
    if (got == 0 && core->paged && (device_room || !core->gds))
        got = vvi_space_transit(core, 1, false, n, pages);
    if (got == 0)
        return FETCH_NO_ROOM;
    if (!issue(core, obj, core->disk, core->host, c, got, pages, NULL, VV_COPY_READ_IN_PROGRESS))
        return FETCH_NO_ROOM;
    return FETCH_ISSUED;
}

static bool fetchable(const struct vv_object *obj)
{
    return obj && obj->written && !obj->dead && !obj->no_prefetch;
}

static bool complete_for(const struct vv_core *core, const struct vv_object *obj, unsigned tier)
{
    if (obj->home > tier)
        return true; /* it is never brought up to this tier */
    if ((int)tier == core->host)
        return obj->nmem == obj->nchunks;
    return vvi_object_ready(core, obj);
}

static enum fetch fetch(struct vv_core *core, struct vv_object *obj, unsigned tier)
{
    return (int)tier == core->host ? fetch_to_host(core, obj) : fetch_to_device(core, obj);
}

/* Passed-over hints come after all live ones. */
static bool prefetch_passed(struct vv_core *core, struct hist *h, unsigned tier)
{
    for (size_t i = h->passed_at; i < h->npassed && i < h->passed_at + LOOK_AHEAD; i++) {
        struct vv_object *obj = vvi_object_find(core, (uint32_t)(h - core->hist), h->passed[i]);
        if (!obj || !obj->passed || (fetchable(obj) && complete_for(core, obj, tier))) {
            if (i == h->passed_at && (!obj || !obj->passed))
                h->passed_at++;
            continue;
        }
        if (!fetchable(obj))
            continue;
        return fetch(core, obj, tier) == FETCH_ISSUED;
    }
    return false;
}

/* The first open hint whose version is not complete here. Closes the complete ones before it. */
static uint64_t first_missing(struct vv_core *core, struct hist *h, unsigned tier)
{
    unsigned set = OPEN_TIER + tier;
    uint64_t s = vvi_hint_first_open(h, set);

    for (; s < h->tail; s = vvi_hint_next_open(h, set, s + 1)) {
        struct vv_object *obj = vvi_hint_at(h, s);
        core->stats.hints_looked_at++;
        if (!fetchable(obj) || !complete_for(core, obj, tier))
            break;
        claim(core, obj, tier);
        vvi_hint_close(h, set, s);
    }
    return s;
}

/* Starts one transfer for the history; false: none can be started. */
static bool prefetch_one(struct vv_core *core, struct hist *h, unsigned tier, enum vv_hop hop)
{
    bool idle = true, ahead = h->family && (int)tier == core->device;
    unsigned looked = 0, set = OPEN_TIER + tier;
    uint64_t s = vvi_hint_first_open(h, set);

    while (s < h->tail && looked < LOOK_AHEAD) {
        struct vv_object *obj = vvi_hint_at(h, s);
        bool settled = fetchable(obj) && complete_for(core, obj, tier);
        core->stats.hints_looked_at++;
        if (settled) {
            claim(core, obj, tier);
            vvi_hint_close(h, set, s);
        }
        /* A stream will write this version: data wanted later must not take its room first. */
        if (ahead && !settled && obj && obj->writing && obj->ordered)
            return false;
        if (settled || !fetchable(obj)) {
            s = vvi_hint_next_open(h, set, s + 1);
            looked += !settled;
            continue;
        }
        idle = false;
        /* The nearest version may arrive from below at any moment: keep a slot for it. */
        if (looked > 0 && core->hop[hop].inflight > 0 && !ahead)
            break;
        switch (fetch(core, obj, tier)) {
        case FETCH_ISSUED:
            return true;
        case FETCH_NOTHING:
            s = vvi_hint_next_open(h, set, s + 1);
            looked++;
            break;
        case FETCH_NO_ROOM:
            return false; /* a farther version would be refused as well */
        }
    }
    h->idle[set] = idle && looked == LOOK_AHEAD && s < h->tail;
    return s == h->tail && prefetch_passed(core, h, tier);
}

/* When the hinted restore is expected, by the pace of its history's calls. Not before now: an idle
 * history is no more urgent than one that is about to make a call. */
static double due_ns(const struct vv_core *core, const struct hist *h, uint64_t seq)
{
    double calls = (double)(seq - h->head) + 1;

    return VV_MAX((double)h->last_end_ns + calls * (double)h->interval_ns, (double)core->now_ns);
}

/* The history whose first missing version will be wanted soonest, among those that may have
 * something to fetch; NULL: none. */
static struct hist *most_urgent(struct vv_core *core, unsigned tier)
{
    struct hist *best = NULL;
    uint64_t best_first = 0;

    for (uint32_t i = 0; i < core->nhist; i++) {
        struct hist *h = vvi_hist(core, i);
        uint64_t first;
        if (!h->used || !h->started || h->idle[OPEN_TIER + tier] || h->round == core->round ||
            (h->family && (int)tier == core->device))
            continue;
        first = first_missing(core, h, tier);
        if (first == h->tail && h->passed_at == h->npassed)
            continue;
        /* There is mostly one candidate, for which no time is computed. */
        if (!best || due_ns(core, h, first) < due_ns(core, best, best_first)) {
            best = h;
            best_first = first;
        }
    }
    return best;
}

static bool prefetch(struct vv_core *core, unsigned tier, enum vv_hop hop)
{
    struct hist *h;
    bool any = false;

    core->round++;
    while (slot_free(core, hop) && (h = most_urgent(core, tier))) {
        if (prefetch_one(core, h, tier, hop))
            any = true;
        else
            h->round = core->round; /* skipped for the rest of this round */
    }
    return any;
}

/* Prefetches for restores on streams: the next version takes the place of versions that these
 * restores have read. It needs no free slot, because the lanes keep the order. */
static bool prefetch_ahead(struct vv_core *core)
{
    unsigned tier = (unsigned)core->device;
    bool any = false;

    for (uint32_t i = 0; core->ahead.on && i < core->nhist; i++) {
        struct hist *h = vvi_hist(core, i);
        while (h->used && h->started && h->family && !h->idle[OPEN_TIER + tier] &&
               prefetch_one(core, h, tier, VV_HOP_H2D))
            any = true;
    }
    return any;
}

/* ---- down ---- */

/* True if a flush may pass a full host tier through a transit page. While restoring, this holds
 * only if the disk takes the chunk next, or after chunks that pass in the same way: otherwise
 * chunks of the cache with a farther next use are flushed first, and the transit page is occupied
 * meanwhile. While writing, an occupied transit page does no harm: it is memory like any other, and
 * the next put finds room. */
static bool may_pass(const struct vv_core *core, const struct vv_object *obj, uint32_t chunk)
{
    const struct vv_copy *next = farthest_dirty(core, (unsigned)core->host);

    if (core->disk < 0)
        return false;
    /* The put of this object needs the device page that would be flushed. A copy in a transit page
     * does not free it, only one in a page of the host cache. While the host grows, such pages
     * become ready. */
    if (obj->writing && !obj->streams && vv_arena_growing(&core->tier[core->host].arena))
        return false;
    if (!next || core->inflight == 0)
        return true;
    if (!core->paged)
        return core->puts || core->waits;
    if (vvi_phase(core) != VV_PHASE_RESTORING ||
        vvi_chunk_in_transit(core, next->obj, (unsigned)core->host, next->dirty_top))
        return true;
    return vvi_rank(core, obj, (unsigned)core->host, chunk) >=
           vvi_rank(core, next->obj, (unsigned)core->host, next->dirty_top);
}

/* True if the object may be written while the disk reads. A version that has to become durable may
 * be written as long as that does not delay reads. An object whose file was begun may also be
 * written after a number of reads, since no other file is written before that one is finished. */
static bool write_beside_reads(const struct vv_core *core, const struct vv_object *obj)
{
    const struct hist *h = vvi_hist(core, obj->hist);
    bool turn = core->filing == obj && core->reads_since_write >= VV_NEXT_WRITE_TURN;
    uint64_t dirty = 0;

    for (unsigned t = 0; t < core->ntiers && core->tier[t].memory; t++)
        dirty += core->tier[t].ndirty;
    return (h->cfg.level == VV_CORE_DURABLE || turn) && core->hop[VV_HOP_H2F].inflight == 0 &&
           vv_next_write_beside_reads(
               h->ready, h->interval_ns, h->missing_chunks * core->cfg.page_bytes,
               dirty * core->cfg.page_bytes, (uint64_t)core->hop[VV_HOP_F2H].rate.bytes_per_s,
               core->reads_since_write);
}

static bool flush_may_go(const struct vv_core *core, const struct vv_object *obj)
{
    if (!core->cfg.disk_shared || core->puts || core->waits)
        return true;
    /* While restoring, one write at a time: the next read must not wait for two. */
    if (core->hop[VV_HOP_F2H].inflight == 0)
        return core->phase != VV_PHASE_RESTORING || core->hop[VV_HOP_H2F].inflight == 0;
    return write_beside_reads(core, obj);
}

/* Device to disk, past a full host tier: the last of chunks [c, c + n) that can take this path. An
 * end of an object that does not fill its page goes through the host, where the page can be
 * padded. */
static bool flush_past_host(struct vv_core *core, struct vv_object *obj, uint32_t c, uint32_t n)
{
    bool files = core->tier[core->disk].kind == VV_TIER_FILES;
    const struct vv_copy *filing = core->filing ? core->filing->copy[core->host] : NULL;
    uint32_t pages[VV_ORDER_MAX_PAGES], most = core->hop[VV_HOP_H2F].batch, got;

    if (!core->gds || !slot_free(core, VV_HOP_H2F) || !flush_may_go(core, obj) ||
        (core->filing != obj && filing && filing->ndirty > 0))
        return false;
    if (c + n == obj->nchunks && obj->size % core->cfg.page_bytes != 0)
        n--;
    got = VV_MIN(n, most);
    c += n - got;
    n = got;
    if (n > 0 && !files)
        got = vvi_space_take(core, (unsigned)core->disk, obj, c + n - 1, n, VV_FOR_FLUSH, pages);
    if (got == 0 || !issue(core, obj, core->device, core->disk, c + n - got, got,
                           files ? NULL : pages, NULL, VV_COPY_WRITE_IN_PROGRESS))
        return false;
    if (files)
        core->filing = obj;
    return true;
}

static bool flush_device(struct vv_core *core)
{
    uint32_t pages[VV_ORDER_MAX_PAGES];
    bool any = false;
    /* While restoring, free pages of the host are for chunks coming up; flushes only pass
     * through. */
    bool restoring =
        core->paged && core->phase == VV_PHASE_RESTORING && !core->puts && !core->waits;

    while (slot_free(core, VV_HOP_D2H)) {
        struct vv_copy *copy = next_dirty(core, (unsigned)core->device);
        struct vv_object *obj;
        uint32_t c, n, got;
        if (!copy)
            break;
        obj = copy->obj;
        n = dirty_run(core, copy, core->hop[VV_HOP_D2H].batch, &c);
        got = 0;
        if (!restoring)
            got = vvi_space_take(core, (unsigned)core->host, obj, core->paged ? c + n - 1 : c, n,
                                 VV_FOR_FLUSH, pages);
        if (got == 0 && may_pass(core, obj, c + n - 1) && !whole_at(obj, core->host)) {
            if (flush_past_host(core, obj, c, n)) {
                any = true;
                continue;
            }
            got = vvi_space_transit(core, 0, false, n, pages);
        }
        if (got == 0)
            break;
        /* The pages found are for the last chunks; a whole copy has a page for each. */
        if (!whole_at(obj, core->host))
            c += n - got;
        if (!issue(core, obj, core->device, core->host, c, got, pages, NULL,
                   VV_COPY_WRITE_IN_PROGRESS))
            break;
        any = true;
    }
    return any;
}

/* True if the flush of an object should wait for the end of its put. The application is blocked
 * while the processors copy; checksums and writes in parallel would make it wait up to twice as
 * long. The disk has everything else already, so it is idle only for the duration of that copy.
 * False if the put needs room, if a request waits for the disk, or once a file was begun. */
static bool waits_for_put(const struct vv_core *core, const struct vv_object *obj)
{
    const struct vv_req *req = core->puts;
    uint32_t dirty = 0;

    while (req && req->obj != obj)
        req = req->next;
    if (!req || req->inflight == 0 || req->lent || req->app_is_device || core->put_short ||
        core->waits || core->gets || core->filing || core->hop[VV_HOP_H2F].inflight > 0)
        return false;
    for (uint32_t i = 0; i < core->nhist; i++)
        dirty += core->hist[i].heap[core->host][HEAP_DIRTY].n;
    return dirty == 1;
}

/* The next object to write. Beside reads, versions that have to become durable come first. */
static struct vv_copy *next_write(const struct vv_core *core)
{
    struct vv_copy *copy = next_dirty(core, (unsigned)core->host);

    if (copy && copy->obj != core->filing && !flush_may_go(core, copy->obj))
        copy = farthest_dirty_of(core, (unsigned)core->host, VV_CORE_DURABLE);
    return copy && flush_may_go(core, copy->obj) ? copy : NULL;
}

static bool flush_host(struct vv_core *core)
{
    uint32_t pages[VV_ORDER_MAX_PAGES];
    bool any = false, files;

    if (core->disk < 0 || core->tier[core->host].ndirty == 0)
        return false;
    files = core->tier[core->disk].kind == VV_TIER_FILES;
    while (slot_free(core, VV_HOP_H2F)) {
        struct vv_copy *copy = next_write(core);
        struct vv_object *obj;
        uint32_t c, n, got;
        if (!copy || waits_for_put(core, copy->obj))
            break;
        obj = copy->obj;
        n = got = dirty_run(core, copy, core->hop[VV_HOP_H2F].batch, &c);
        if (!files) {
            got = vvi_space_take(core, (unsigned)core->disk, obj, core->paged ? c + n - 1 : c, n,
                                 VV_FOR_FLUSH, pages);
            if (got == 0)
                break;
            if (!whole_at(obj, core->disk))
                c += n - got;
        }
        if (!issue(core, obj, core->host, core->disk, c, got, files ? NULL : pages, NULL,
                   VV_COPY_WRITE_IN_PROGRESS))
            break;
        if (files)
            core->filing = obj;
        any = true;
    }
    return any;
}

static bool pass(struct vv_core *core)
{
    bool any = serve_gets(core);

    any |= serve_puts(core);
    if (core->disk >= 0)
        any |= read_for_gets(core);
    if (core->device >= 0)
        any |= prefetch(core, (unsigned)core->device, VV_HOP_H2D);
    any |= prefetch_ahead(core);
    if (core->disk >= 0 && !(core->puts && core->hop[VV_HOP_H2F].inflight > 0))
        any |= prefetch(core, (unsigned)core->host, VV_HOP_F2H);
    if (core->device >= 0)
        any |= flush_device(core);
    any |= flush_host(core);
    return any;
}

bool vvi_sched_quick(struct vv_core *core, struct vv_req *req)
{
    bool get = req->kind == VV_REQ_GET, any = false;
    struct vv_req *alone = get ? core->gets : core->puts;

    /* A request without orders takes the ordinary path: no other call would run the scheduler for
     * it. */
    if (core->device < 0 || req->ordered || !req->app_is_device || req->obj->dead ||
        req->obj->nchunks == 0 || alone != req || req->next || (get ? core->puts : core->gets))
        return false;
    if (get)
        return req->obj->copy[core->device] && serve_get_whole(core, req, (unsigned)core->device);
    return req->obj->home == core->device && serve_put(core, req, &any);
}

/* True if a put has spared pages that would have to be read again (next.c), and no flush under way
 * makes room for it. */
static bool put_stands_still(struct vv_core *core)
{
    bool still = core->puts && core->put_short && core->mixed > 0 && !core->stands_still &&
                 core->hop[VV_HOP_D2H].inflight == 0 && core->hop[VV_HOP_H2F].inflight == 0;

    core->stands_still = still;
    return still;
}

void vvi_sched(struct vv_core *core)
{
    do {
        while (pass(core))
            ;
        vvi_end_waits(core);
    } while (put_stands_still(core) || vvi_fail_stuck(core));
}
