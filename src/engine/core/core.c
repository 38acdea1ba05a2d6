/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests and completions: the surface of the state machine.
 *
 * Every entry that changes something has the same shape: take the time, update the state, let
 * sched.c start the orders that can be started now. A request ends in vvi_req_end() and nowhere
 * else.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/core/core_private.h"
#include "trace/trace.h"

/* ---- opening and closing ---- */

/* Parts of a page are 4 KiB or a multiple of it: the records of more parts would outweigh the
 * gain. */
static uint32_t units_of_page(const struct vv_core *core)
{
    enum { UNIT_LEAST = 4096, UNITS_MOST = 64 };

    return VV_MIN(core->cfg.page_bytes / UNIT_LEAST, (uint32_t)UNITS_MOST);
}

static int tier_init(struct vv_core *core, unsigned i)
{
    struct tier *t = &core->tier[i];
    uint64_t pages = core->cfg.tier[i].capacity_bytes / core->cfg.page_bytes;
    int r;

    t->kind = core->cfg.tier[i].kind;
    t->memory = t->kind == VV_TIER_DEVICE || t->kind == VV_TIER_HOST;
    t->is_arena = t->kind != VV_TIER_FILES;
    t->capacity_bytes = core->cfg.tier[i].capacity_bytes;
    if (!t->is_arena)
        return 0;
    if (pages >= VV_PAGE_NONE / 2)
        return -EINVAL;
    t->transit_all = t->kind == VV_TIER_HOST ? core->cfg.transit_pages : 0;
    r = vv_arena_init(&t->arena, (uint32_t)pages, core->cfg.tier[i].grows ? 0 : (uint32_t)pages,
                      2 * t->transit_all, t->memory && core->paged ? units_of_page(core) : 1);
    if (r < 0)
        return r;
    for (int up = 0; up < 2 && t->transit_all; up++) {
        t->transit[up] = malloc(t->transit_all * sizeof(uint32_t));
        if (!t->transit[up])
            return -ENOMEM;
        for (uint32_t k = t->transit_all; k-- > 0;)
            t->transit[up][t->ntransit[up]++] = (uint32_t)pages + (uint32_t)up * t->transit_all + k;
    }
    return 0;
}

static int tiers_check(struct vv_core *core)
{
    const struct vv_core_cfg *cfg = &core->cfg;

    core->device = core->host = core->disk = -1;
    if (cfg->ntiers == 0 || cfg->ntiers > VV_MAX_TIERS || cfg->page_bytes < 4096 ||
        (cfg->page_bytes & (cfg->page_bytes - 1)) || (unsigned)cfg->policy >= VV_POLICY_COUNT)
        return -EINVAL;
    for (unsigned i = 0; i < cfg->ntiers; i++) {
        enum vv_tier_kind kind = cfg->tier[i].kind;
        int *slot = kind == VV_TIER_DEVICE ? &core->device
                    : kind == VV_TIER_HOST ? &core->host
                                           : &core->disk;
        if (*slot >= 0 || (kind == VV_TIER_SPILL && cfg->tier[i].capacity_bytes == 0))
            return -EINVAL;
        *slot = (int)i;
    }
    /* Fast to slow; every hop begins or ends in host memory. */
    if (core->host < 0 || core->device > core->host || (core->disk >= 0 && core->disk < core->host))
        return -EINVAL;
    return core->disk >= 0 && cfg->transit_pages == 0 ? -EINVAL : 0;
}

int vv_core_new(const struct vv_core_cfg *cfg, struct vv_core **ret_core)
{
    struct vv_core *core = calloc(1, sizeof(*core));
    int r;

    if (!core)
        return -ENOMEM;
    core->cfg = *cfg;
    core->ntiers = cfg->ntiers;
    core->paged = cfg->policy == VV_POLICY_NEXT;
    r = tiers_check(core);
    core->gds = cfg->gds && core->paged && core->device >= 0 && core->disk >= 0;
    for (unsigned i = 0; r == 0 && i < core->ntiers; i++)
        r = tier_init(core, i);
    for (int i = 0; i < VV_HOP_COUNT; i++) {
        core->hop[i].slots = cfg->slots[i] ? cfg->slots[i] : 2;
        core->hop[i].batch =
            cfg->batch_pages[i] ? VV_MIN(cfg->batch_pages[i], (uint32_t)VV_ORDER_MAX_PAGES) : 4;
        vv_rate_init(&core->hop[i].rate, cfg->rate[i]);
    }
    if (r < 0) {
        vv_core_free(core);
        return r;
    }
    *ret_core = core;
    return 0;
}

void vv_core_free(struct vv_core *core)
{
    struct vv_order *o, *next;

    if (!core)
        return;
    for (uint32_t i = 0; i < core->nhist; i++)
        if (core->hist[i].used)
            vv_core_history_drop(core, i, core->now_ns);
    /* Orders issued by the drops are not carried out any more; temporary files are removed at the
     * next opening. */
    while ((o = vv_core_next_order(core)))
        if (o->kind != VV_ORDER_WAKE)
            vv_core_complete(core, o, 0, core->now_ns);
    for (uint32_t i = 0; i < core->nhist; i++)
        vvi_history_fini(&core->hist[i], core->ntiers);
    for (o = core->free_orders; o; o = next) {
        next = o->next;
        free(o);
    }
    for (unsigned t = 0; t < core->ntiers; t++) {
        vv_arena_fini(&core->tier[t].arena);
        free(core->tier[t].transit[0]);
        free(core->tier[t].transit[1]);
    }
    vvi_ahead_fini(core);
    free(core->frags);
    free(core->hist);
    free(core);
}

uint64_t vv_core_tier_pages(const struct vv_core *core, unsigned tier)
{
    const struct tier *t = &core->tier[tier];

    return t->is_arena ? (uint64_t)t->arena.npages + 2 * (uint64_t)t->transit_all : 0;
}

uint64_t vv_core_tier_records(const struct vv_core *core, unsigned tier)
{
    const struct vv_arena *a = &core->tier[tier].arena;
    uint64_t pages = vv_core_tier_pages(core, tier);

    return a->units > 1 ? pages + (uint64_t)a->npages * a->units : pages;
}

uint64_t vv_core_page_offset(const struct vv_core *core, unsigned tier, uint32_t page)
{
    const struct vv_arena *a = &core->tier[tier].arena;
    uint64_t unit = core->cfg.page_bytes / (a->units ? a->units : 1);

    return vv_arena_is_part(a, page) ? (page - a->first_part) * unit
                                     : (uint64_t)page * core->cfg.page_bytes;
}

/* ---- the shape of every entry ---- */

static uint32_t pages_used(const struct tier *t)
{
    return t->arena.nready - t->arena.nfree;
}

void vvi_core_enter(struct vv_core *core, uint64_t now_ns)
{
    if (core->now_ns && now_ns > core->now_ns)
        for (unsigned t = 0; t < core->ntiers && core->tier[t].memory; t++)
            core->used_page_ns[t] +=
                (double)pages_used(&core->tier[t]) * (double)(now_ns - core->now_ns);
    if (!core->used_since_ns)
        core->used_since_ns = now_ns;
    core->now_ns = VV_MAX(core->now_ns, now_ns);
}

static void leave_unscheduled(struct vv_core *core)
{
    if (vv_trace_enabled())
        vvi_trace_occupancy(core);
    if (core->cfg.check)
        vvi_core_check_sometimes(core);
}

void vvi_core_leave(struct vv_core *core)
{
    vvi_sched(core);
    leave_unscheduled(core);
}

static void leave_with(struct vv_core *core, struct vv_req *req)
{
    if (!vvi_sched_quick(core, req))
        vvi_sched(core);
    leave_unscheduled(core);
}

/* ---- requests ---- */

static void req_push(struct vv_req **list, struct vv_req *prev, struct vv_req *req)
{
    struct vv_req **at = prev ? &prev->next : list;

    req->list = list;
    req->prev = prev;
    req->next = *at;
    if (req->next)
        req->next->prev = req;
    *at = req;
}

/* At the end: requests are served in order. */
static void req_link(struct vv_req **list, struct vv_req *req)
{
    struct vv_req *last = *list;

    while (last && last->next)
        last = last->next;
    req_push(list, last, req);
}

static void req_unlink(struct vv_req *req)
{
    *(req->prev ? &req->prev->next : req->list) = req->next;
    if (req->next)
        req->next->prev = req->prev;
    req->next = req->prev = NULL;
}

static void req_start(struct vv_core *core, struct vv_req **list, struct vv_req *req,
                      enum vv_req_kind kind, uint32_t hist, struct vv_object *obj)
{
    struct hist *h = vvi_hist(core, hist);
    void *user = req->user;

    *req = (struct vv_req){.kind = kind,
                           .status = -EINPROGRESS,
                           .user = user,
                           .ordered = req->ordered,
                           .keep = req->keep,
                           .again = req->again,
                           .replace = req->replace,
                           .family = req->family,
                           .hist = hist,
                           .obj = obj,
                           .start_ns = core->now_ns};
    if (obj)
        obj->refs++;
    for (unsigned t = 0; t < core->ntiers; t++)
        core->tier[t].freed_epoch++; /* fetched copies that may now be evicted for this request */
    h->pending++;
    if (kind == VV_REQ_PUT || kind == VV_REQ_GET)
        h->family = req->family;
    core->ahead.family[req->family].reqs++;
    core->ahead.family[req->family].refused = false;
    req_link(list, req);
    vv_trace(VV_TRACE_REQUEST_START, kind, vvi_trace_history(core, hist), obj ? obj->version : 0,
             obj ? obj->size : 0);
}

/* Averages the time between two requests, which tells when the next will come. */
static void see_interval(struct vv_core *core, struct hist *h)
{
    uint64_t gap;

    if (!h->last_end_ns || core->now_ns < h->last_end_ns)
        return;
    gap = core->now_ns - h->last_end_ns;
    h->interval_ns = h->interval_ns ? h->interval_ns - h->interval_ns / 4 + gap / 4 : gap;
}

void vvi_req_issued(struct vv_core *core, struct vv_req *req)
{
    req_unlink(req);
    req_push(&core->ordered, NULL, req);
    /* For the application the call ends here. */
    vvi_hist(core, req->hist)->last_end_ns = core->now_ns;
}

void vvi_req_end(struct vv_core *core, struct vv_req *req, int status)
{
    struct hist *h = vvi_hist(core, req->hist);
    struct vv_object *obj = req->obj;

    vv_assert(req->inflight == 0 && req->status == -EINPROGRESS);
    req_unlink(req);
    req->status = status;
    free(req->issued);
    req->issued = NULL;
    if (core->wake_tail)
        core->wake_tail->next = req;
    else
        core->wake_head = req;
    core->wake_tail = req;
    h->pending--;
    core->ahead.family[req->family].reqs--;
    if (!req->ordered)
        h->last_end_ns = core->now_ns;
    vv_trace(VV_TRACE_REQUEST_END, req->kind, vvi_trace_history(core, req->hist),
             obj ? obj->version : 0, (uint64_t)(int64_t)status);
    if (req->kind == VV_REQ_PUT && !obj->dead) {
        if (status == 0) {
            vvi_object_written(core, obj);
            if (obj->spoiled)
                vvi_file_clean(core, obj); /* a flush that ran ahead has failed */
            vvi_space_ahead(core, obj);
        } else {
            vvi_put_failed(core, obj, status);
        }
    }
    if (req->kind == VV_REQ_LEASE && status < 0)
        vvi_lend_failed(core, req);
    if (req->kind == VV_REQ_GET && !req->planned) {
        obj->restoring--;
        /* A spent version has given its pages away, even if the restore failed. */
        if ((status == 0 || obj->spent) && !obj->dead && !req->keep)
            vvi_object_consumed(core, obj);
        else
            vvi_object_refresh(core, obj);
    }
    if (obj)
        vvi_object_unref(core, obj);
    if (!core->waits && core->phase == VV_PHASE_WAITING)
        core->phase = VV_PHASE_WRITING;
}

static bool has_files(const struct vv_core *core)
{
    return core->disk >= 0 && core->tier[core->disk].kind == VV_TIER_FILES;
}

/* Size of a committed file; without a callback an estimate: header, data in blocks, checksums. */
static uint64_t file_bytes(const struct vv_core *core, uint64_t size, uint64_t user)
{
    if (!has_files(core))
        return 0;
    if (core->cfg.file_bytes)
        return core->cfg.file_bytes(core->cfg.release_arg, size, user);
    return 4096 + vv_align_up(size, 4096) +
           vv_align_up((uint64_t)vvi_nchunks(core, size) * 8 + 128, 4096);
}

/* 0 if the tiers can ever hold a version of this size, otherwise -EFBIG. If there is no room now,
 * serve_puts() waits for it. */
static int put_admit(const struct vv_core *core, uint64_t size, uint64_t user, bool app_is_device)
{
    const struct tier *disk = core->disk >= 0 ? &core->tier[core->disk] : NULL;
    uint64_t pages = 0, chunks = (size + core->cfg.page_bytes - 1) / core->cfg.page_bytes;

    if (chunks >= FILE_CHUNK_FILLING)
        return -EFBIG;
    if (has_files(core))
        return disk->capacity_bytes && file_bytes(core, size, user) > disk->capacity_bytes ? -EFBIG
                                                                                           : 0;
    for (unsigned t = 0; t < core->ntiers; t++) {
        uint32_t n = core->tier[t].arena.npromised;
        if ((int)t == core->device && !app_is_device)
            continue; /* an object from host memory never enters the device */
        pages = core->paged ? pages + n : VV_MAX(pages, n);
    }
    return chunks > pages ? -EFBIG : 0;
}

/* The fastest tier that matches the application's memory and can hold the object. */
static uint8_t put_home(const struct vv_core *core, const struct vv_object *obj, bool app_is_device)
{
    if (app_is_device && core->device >= 0 && vvi_space_fits(core, (unsigned)core->device, obj))
        return (uint8_t)core->device;
    return (uint8_t)core->host;
}

/* True if the object is too large to stay in memory until its file is committed. Its put then ends
 * with the commit. */
static bool streams(const struct vv_core *core, const struct vv_object *obj)
{
    uint64_t pages = core->tier[core->host].arena.npromised;

    if (!has_files(core))
        return false;
    if (obj->home == core->device)
        pages = core->paged ? pages + core->tier[core->device].arena.npromised
                            : VV_MIN(pages, core->tier[core->device].arena.npromised);
    return obj->nchunks > pages;
}

/* True if the object is larger than the tier that it enters, so that transit pages have to help. */
static bool passes_through(const struct vv_core *core, const struct vv_object *obj)
{
    return obj->home == core->host && core->disk >= 0 &&
           obj->nchunks > core->tier[core->host].arena.npromised;
}

/* Tries again to flush a version whose flush has failed, because a caller waits for it. If its file
 * failed, this does nothing until that error was reported. The new flush begins at once, or when no
 * order uses the failed file any more. */
static void flush_again(struct vv_core *core, struct vv_object *obj)
{
    if (!obj->flush_err || (obj->spoiled && !obj->reported))
        return;
    obj->flush_err = 0;
    vvi_hist(core, obj->hist)->nfailed--;
    for (unsigned t = 0; t < core->ntiers; t++)
        if (obj->copy[t])
            obj->copy[t]->failed = false;
    vvi_core_reclass(core, obj, 0, obj->nchunks);
    vvi_object_settle(core, obj);
    vvi_sched_salvage(core, obj);
    vvi_sched_commit(core, obj);
}

/* Tries all failed flushes again: they may have failed because the disk had no room. */
static void retry_flushes(struct vv_core *core, struct hist *h)
{
    for (struct vv_object *obj = h->oldest; obj && h->nfailed; obj = obj->newer)
        flush_again(core, obj);
}

/* A flush that failed after its first half keeps a transit page from all others: each new request
 * that may need one tries that flush again. */
static void retry_transit(struct vv_core *core)
{
    struct tier *t = &core->tier[core->host];

    if (t->ntransit[0] == t->transit_all)
        return; /* all are free */
    for (uint32_t p = t->arena.npages; p < t->arena.npages + t->transit_all; p++) {
        struct vv_copy *copy = t->arena.page[p].u.owner;
        if (t->arena.page[p].state == VV_PAGE_VALID && !copy->obj->dead)
            flush_again(core, copy->obj);
    }
}

/* A put with no version left to restore begins a new shot. */
static void begin_writing(struct vv_core *core, struct hist *h)
{
    core->phase = VV_PHASE_WRITING;
    core->seed_pages = 2 * core->hop[VV_HOP_D2H].batch;
    if (h->started && h->ready > 0) {
        core->mixed = MIXED_MOST;
        return;
    }
    h->started = false;
    if (h->detect.any && h->ready == 0)
        vvi_detect_again(core, h);
}

/* `lends`: its bytes are already in these; NULL: they are not. */
static int put_start(struct vv_core *core, uint32_t hist, uint64_t version, uint64_t size,
                     uint64_t user, bool app_is_device, struct vv_lend *const *lends, size_t nlends,
                     struct vv_req *req)
{
    struct vv_object *obj;
    int r = vvi_gen_refuses(core, hist, version, req->replace) ? -EEXIST : 0;

    if (r == 0)
        r = put_admit(core, size, user, app_is_device);
    if (r == 0 && lends)
        r = vvi_lend_admit(core, file_bytes(core, size, user));
    if (r < 0)
        return r;
    /* Before the search for its object: predictions may go, and objects with them. */
    see_interval(core, vvi_hist(core, hist));
    begin_writing(core, vvi_hist(core, hist));
    obj = vvi_gen_begin(core, hist, version);
    if (!obj)
        return -ENOMEM;
    obj->size = size;
    obj->nchunks = vvi_nchunks(core, size);
    obj->home = put_home(core, obj, app_is_device);
    retry_transit(core);
    vvi_hint_account(core, obj, -1);
    vvi_gen_step(core, obj, VV_GEN_BEGUN);
    vvi_hint_account(core, obj, 1);
    obj->user = user;
    obj->edition = vvi_edition_next(core, obj);
    obj->provisional = vvi_hist(core, hist)->cfg.confirm;
    obj->generation = obj->file_generation = vvi_hist(core, hist)->next_generation;
    vvi_hist(core, hist)->next_generation += GENERATION_STEP;
    obj->pass_through = passes_through(core, obj);
    obj->streams = streams(core, obj);
    core->largest_bytes = VV_MAX(core->largest_bytes, size);
    core->put_bytes = size;
    if (lends && vvi_lend_take_over(core, obj, lends, nlends) < 0) {
        obj->user = 0; /* still the caller's */
        vvi_gen_end(core, obj, VV_GEN_DROPPED);
        return -ENOMEM;
    }
    req_start(core, &core->puts, req, VV_REQ_PUT, hist, obj);
    req->app_is_device = app_is_device;
    req->file_bytes = file_bytes(core, size, user);
    req->chunks_left = req->unissued = obj->nchunks;
    req->lent = lends != NULL;
    /* In a declared order its place is known before its stream writes it. The place decides which
     * pages make room for the puts behind it. */
    if (req->family && vvi_hist(core, hist)->cfg.order != VV_RESTORE_BY_HINTS)
        vvi_hint_written(core, obj);
    if (lends)
        (void)vvi_charge_file(core, req); /* it was admitted */
    obj->ordered = req->ordered;
    core->stats.puts++;
    return 0;
}

int vv_core_put(struct vv_core *core, uint32_t hist, uint64_t version, uint64_t size, uint64_t user,
                bool app_is_device, uint64_t now_ns, struct vv_req *req)
{
    int r;

    vvi_core_enter(core, now_ns);
    r = put_start(core, hist, version, size, user, app_is_device, NULL, 0, req);
    if (r == 0)
        leave_with(core, req);
    return r;
}

int vv_core_put_lent(struct vv_core *core, uint32_t hist, uint64_t version, uint64_t size,
                     uint64_t user, struct vv_lend *const *lends, size_t n, uint64_t now_ns,
                     struct vv_req *req)
{
    uint32_t pages = 0;
    int r;

    for (size_t i = 0; i < n; i++)
        pages += lends[i]->npages;
    if (size == 0 || pages != vvi_nchunks(core, size) || (n > 1 && !core->paged))
        return -EINVAL;
    vvi_core_enter(core, now_ns);
    r = put_start(core, hist, version, size, user, core->device == 0, lends, n, req);
    if (r == 0)
        vvi_core_leave(core);
    return r;
}

void vvi_lease_start(struct vv_core *core, uint32_t hist, struct vv_object *obj, struct vv_req *req)
{
    retry_transit(core);
    req_start(core, &core->puts, req, VV_REQ_LEASE, hist, obj);
}

void vvi_restore_begins(struct vv_core *core, struct vv_object *obj)
{
    struct hist *h = vvi_hist(core, obj->hist);

    see_interval(core, h);
    core->phase = VV_PHASE_RESTORING;
    core->mixed -= core->mixed > 0;
    h->started = true;
    vvi_hint_restored(core, obj);
    vvi_object_refresh(core, obj);
    core->stats.gets++;
    if (vvi_object_ready(core, obj))
        core->stats.hits++;
    else
        core->stats.misses++;
}

int vv_core_get(struct vv_core *core, uint32_t hist, uint64_t version, bool app_is_device,
                uint64_t now_ns, struct vv_req *req)
{
    struct vv_object *obj = vvi_object_find(core, hist, version);
    uint64_t *issued;

    if (!obj || !obj->written || obj->spent)
        return -ENOENT;
    if (obj != vvi_gen_last(core, hist, version))
        return -ESTALE;
    issued = calloc(VV_MAX(vv_div_up(obj->nchunks, 64), (uint64_t)1), sizeof(*issued));
    if (!issued)
        return -ENOMEM;
    vvi_core_enter(core, now_ns);
    /* The object is read now, whatever the hints say: it must not go while its hint is removed. */
    req_start(core, &core->gets, req, VV_REQ_GET, hist, obj);
    req->app_is_device = app_is_device;
    req->chunks_left = req->unissued = obj->nchunks;
    req->issued = issued;
    req->number = core->issued;
    obj->restoring++;
    if (!req->again)
        vvi_restore_begins(core, obj);
    else
        vvi_object_refresh(core, obj);
    req->distance = vvi_hint_distance_ready(core, hist);
    leave_with(core, req);
    return 0;
}

bool vv_core_exists(const struct vv_core *core, uint32_t hist, uint64_t version)
{
    const struct vv_object *obj = vvi_object_find(core, hist, version);

    return obj &&
           ((obj->written && !obj->unfinished) || obj->writing || vvi_gen_replacement(core, obj));
}

int vv_core_wait(struct vv_core *core, uint32_t hist, uint64_t version, enum vv_core_level level,
                 uint64_t now_ns, struct vv_req *req)
{
    struct vv_object *obj = vvi_gen_last(core, hist, version);
    bool cached = level == VV_CORE_CACHED;

    if (!obj || !vvi_gen_known(obj))
        return -ENOENT;
    if (level == VV_CORE_DURABLE && !has_files(core))
        return -EINVAL;
    vvi_core_enter(core, now_ns);
    /* A wait for the stream needs no flush. */
    req_start(core, cached ? &core->stream_waits : &core->waits, req, VV_REQ_WAIT, hist, obj);
    if (!cached)
        flush_again(core, obj);
    retry_transit(core);
    vvi_core_leave(core);
    return 0;
}

int vv_core_wait_all(struct vv_core *core, uint32_t hist, uint64_t now_ns, struct vv_req *req)
{
    struct hist *h = vvi_hist(core, hist);

    vvi_core_enter(core, now_ns);
    if (core->phase == VV_PHASE_WRITING)
        core->phase = VV_PHASE_WAITING;
    h->late_err = 0;
    retry_flushes(core, h);
    retry_transit(core);
    vvi_removals_retry(core, h);
    vvi_gen_retain(core, h); /* a previous process may have left too many */
    req_start(core, &core->waits, req, VV_REQ_WAIT_ALL, hist, NULL);
    vvi_core_leave(core);
    return 0;
}

void vv_core_cancel(struct vv_core *core, struct vv_req *req, int status, uint64_t now_ns)
{
    if (req->status != -EINPROGRESS)
        return;
    vvi_core_enter(core, now_ns);
    if (req->ordered && req->inflight > 0) {
        req->error = req->error ? req->error : status;
        /* Its copies end when the stream has carried them out. The version does not exist for its
         * caller any more: a later put of the version must not find the rest of it. */
        if (req->kind == VV_REQ_PUT && !req->obj->dead)
            vvi_put_failed(core, req->obj, req->error);
    } else {
        vvi_req_end(core, req, status);
    }
    vvi_core_leave(core);
}

int vv_core_hint(struct vv_core *core, uint32_t hist, uint64_t version, uint64_t now_ns)
{
    int r;

    vvi_core_enter(core, now_ns);
    r = vvi_hint_add(core, hist, version);
    vvi_core_leave(core);
    return r;
}

void vv_core_hint_clear(struct vv_core *core, uint32_t hist, uint64_t now_ns)
{
    vvi_core_enter(core, now_ns);
    vvi_hint_clear(core, hist);
    vvi_core_leave(core);
}

void vv_core_prefetch_start(struct vv_core *core, uint32_t hist, uint64_t now_ns)
{
    vvi_core_enter(core, now_ns);
    vvi_hist(core, hist)->started = true;
    if (!core->puts)
        core->phase = VV_PHASE_RESTORING;
    vvi_core_leave(core);
}

int vv_core_discard(struct vv_core *core, uint32_t hist, uint64_t version, uint64_t now_ns)
{
    struct vv_object *obj = vvi_object_find(core, hist, version);
    struct vv_object *last = vvi_gen_last(core, hist, version);

    if (!obj || !(vvi_gen_known(obj) || last != obj))
        return -ENOENT;
    if (vvi_edition_ends(core, obj) < 0)
        return -ENOMEM;
    vvi_core_enter(core, now_ns);
    vv_trace(VV_TRACE_DISCARD, vvi_trace_history(core, hist), version, 0, 0);
    if (last != obj)
        vvi_gen_end(core, last, VV_GEN_DISCARDED);
    vvi_gen_end(core, obj, VV_GEN_DISCARDED);
    retry_flushes(core, vvi_hist(core, hist));
    vvi_core_leave(core);
    return 0;
}

int vv_core_adopt(struct vv_core *core, uint32_t hist, uint64_t version, uint64_t generation,
                  uint64_t size, uint64_t user, bool reached)
{
    struct vv_object *obj = vvi_object_find(core, hist, version);

    if (!has_files(core))
        return -EINVAL;
    if (obj && (obj->writing || vvi_gen_replacement(core, obj) ||
                (obj->written && obj->generation >= generation)))
        return -EEXIST;
    if (!obj || obj->written)
        obj = vvi_gen_begin(core, hist, version);
    if (!obj)
        return -ENOMEM;
    obj->generation = obj->file_generation = generation;
    obj->size = size;
    obj->user = user;
    obj->nchunks = vvi_nchunks(core, size);
    obj->durable = true;
    obj->reached = reached;
    obj->unfinished = !reached && !vvi_hist(core, hist)->cfg.copies;
    obj->file_bytes = file_bytes(core, size, user);
    core->tier[core->disk].used_bytes += obj->file_bytes;
    /* The tier that it will be restored to is not known yet; the fastest one is the best guess. */
    obj->home = put_home(core, obj, true);
    vvi_hist(core, hist)->next_generation =
        VV_MAX(vvi_hist(core, hist)->next_generation, generation + 1);
    core->largest_bytes = VV_MAX(core->largest_bytes, size);
    vvi_object_written(core, obj);
    return 0;
}

/* ---- tiers that grow ---- */

void vv_core_grow(struct vv_core *core, unsigned tier, uint64_t npages, uint64_t now_ns)
{
    struct tier *t = &core->tier[tier];

    if (core->used_since_ns)
        vvi_core_enter(core, now_ns); /* before the first request, time is not counted */
    vv_arena_grow(&t->arena, (uint32_t)npages);
    t->freed_epoch++;
    /* `score` waits for windows that it would not have chosen with so much free space. */
    t->commit[0].obj = t->commit[1].obj = NULL;
    vvi_core_leave(core);
}

void vv_core_grow_stop(struct vv_core *core, unsigned tier, uint64_t now_ns)
{
    struct tier *t = &core->tier[tier];

    if (!vv_arena_growing(&t->arena))
        return;
    vvi_core_enter(core, now_ns);
    vv_arena_stop(&t->arena);
    t->freed_epoch++;
    /* Puts admitted for the full size may be too large now. Versions that are written keep their
     * place. */
    for (struct vv_req *req = core->puts; req; req = req->next) {
        struct vv_object *obj = req->obj;
        if (req->unissued == 0)
            continue; /* it has its place */
        if (!obj->copy[obj->home])
            obj->home = put_home(core, obj, req->app_is_device);
        obj->pass_through |= passes_through(core, obj);
        obj->streams |= streams(core, obj);
        vvi_core_reclass(core, obj, 0, obj->nchunks);
    }
    /* Ranks depend on how much the tier can hold. */
    for (uint32_t i = 0; i < core->nhist; i++)
        for (struct vv_object *obj = core->hist[i].oldest; obj; obj = obj->newer)
            vvi_object_refresh(core, obj);
    vvi_core_leave(core);
}

/* ---- orders and their ends ---- */

/* Leaves the page numbers, several KiB, uninitialised: only those of the order's chunks are
 * used. */
static void order_init(struct vv_order *o, enum vv_order_kind kind, struct vv_req *req)
{
    memset(o, 0, offsetof(struct vv_order, src_page));
    o->kind = kind;
    o->req = req;
    o->runtime = NULL;
}

struct vv_order *vvi_order_new(struct vv_core *core, enum vv_order_kind kind)
{
    struct vv_order *o = core->free_orders;

    if (o)
        core->free_orders = o->next;
    else
        o = malloc(sizeof(*o));
    if (!o)
        return NULL;
    order_init(o, kind, NULL);
    return o;
}

struct vv_order *vv_core_next_order(struct vv_core *core)
{
    struct vv_order *o = core->ready_head;
    struct vv_req *req = core->wake_head;

    if (o) {
        core->ready_head = o->next;
        if (!core->ready_head)
            core->ready_tail = NULL;
        return o;
    }
    if (!req)
        return NULL;
    core->wake_head = req->next;
    if (!core->wake_head)
        core->wake_tail = NULL;
    req->next = NULL;
    order_init(&core->wake_order, VV_ORDER_WAKE, req);
    core->wake_order.hist = req->hist;
    return &core->wake_order;
}

static void late_error(struct vv_core *core, struct vv_object *obj, int tier, int err)
{
    struct hist *h = vvi_hist(core, obj->hist);

    h->nfailed += !obj->flush_err;
    core->stats.late_errors++;
    obj->flush_err = (int16_t)err;
    obj->err_tier = (uint8_t)tier;
    obj->reported = false;
    vv_trace5(VV_TRACE_ERROR, vvi_trace_history(core, obj->hist), obj->version, (uint64_t)tier, 0,
              (uint64_t)(int64_t)err);
}

void vv_core_promise(struct vv_core *core, struct vv_req *req)
{
    struct vv_object *obj = req->obj;

    if (!req->error || obj->dead)
        return;
    if (req->kind == VV_REQ_PUT) {
        late_error(core, obj, core->disk >= 0 ? core->disk : core->host, req->error);
        vvi_core_reclass(core, obj, 0, obj->nchunks); /* flushing of it has ended */
    }
    req->error = 0;
}

/* True if no other tier has the chunk. Copies in transit pages are short-lived and do not count. */
static bool only_copy(const struct vv_core *core, const struct vv_copy *copy, uint32_t c)
{
    const struct vv_object *obj = copy->obj;

    if (obj->dead || !vvi_chunk_valid(core, obj, copy->tier, c))
        return false;
    for (unsigned t = 0; t < core->ntiers; t++)
        if (t != copy->tier && vvi_chunk_valid(core, obj, t, c) &&
            (t < copy->tier || vvi_chunk_kept_by(core, obj, t, c)) &&
            !vvi_chunk_in_transit(core, obj, t, c))
            return false;
    return true;
}

/* A transfer that failed leaves no half-filled run behind, once no other transfer uses it: under
 * the contiguous policies a copy is whole or absent. Chunks that came through transit pages may
 * have their only copy here, and stay. */
static void abandon_whole(struct vv_core *core, struct vv_copy *copy)
{
    struct vv_object *obj = copy->obj;

    if (!copy->failed || copy->nfilling > 0 || copy->readers > 0)
        return;
    for (uint32_t c = 0; c < obj->nchunks; c++)
        if (copy->page[c] != VV_PAGE_NONE &&
            (vvi_page(core, copy, c)->pins > 0 || only_copy(core, copy, c)))
            return;
    for (uint32_t c = 0; c < obj->nchunks; c++)
        if (copy->page[c] != VV_PAGE_NONE)
            vvi_chunk_drop(core, copy, c);
    vvi_core_reclass(core, obj, 0, obj->nchunks);
    vvi_copy_maybe_free(core, copy);
}

static void chunks_arrive(struct vv_core *core, struct vv_order *o, int status)
{
    struct vv_object *obj = o->obj;
    struct vv_copy *to = obj->copy[o->dst_tier];
    bool whole = to && to->whole;

    vvi_gets_look_again(core, obj, o->chunk0);
    for (uint32_t c = o->chunk0; c < o->chunk0 + o->nchunks; c++) {
        if (o->family && !vvi_ahead_wrote(core, o, c - o->chunk0))
            continue; /* given away on the time line of its stream */
        if (status == 0)
            vvi_chunk_set(core, to, c, VV_PAGE_VALID);
        else if (whole)
            vvi_chunk_set(core, to, c, VV_PAGE_RESERVED);
        else
            vvi_chunk_drop(core, to, c);
    }
    if (whole && to->nfilling == 0 && to->nreserved > 0)
        core->tier[o->dst_tier].freed_epoch++; /* partly filled: it may go now */
    if (!to)
        return;
    to->failed |= status < 0 && whole && o->kind == VV_ORDER_COPY;
    if (to->failed)
        abandon_whole(core, to);
    else
        vvi_copy_maybe_free(core, to);
}

/* Unpins the pages that a transfer has read. */
static void chunks_leave(struct vv_core *core, struct vv_order *o)
{
    struct vv_copy *from = o->obj->copy[o->src_tier];

    if (!core->tier[o->src_tier].is_arena && o->uncommitted &&
        from) /* NULL if the file was committed meanwhile, or is gone */
        from->nreading--;
    if (!core->tier[o->src_tier].is_arena || o->family)
        return;
    if (o->whole) {
        vv_assert(from->readers > 0);
        from->readers--;
        core->tier[o->src_tier].freed_epoch++;
        vvi_object_refresh(core, o->obj);
        return;
    }
    for (uint32_t c = o->chunk0; c < o->chunk0 + o->nchunks; c++) {
        struct vv_page *p = vvi_page(core, from, c);
        vv_assert(p->pins > 0);
        p->pins--;
    }
}

/* Frees the transit pages that a transfer has read, if their bytes are in another tier now. */
static void drop_transit(struct vv_core *core, struct vv_order *o)
{
    struct vv_copy *from = o->obj->copy[o->src_tier];

    if (o->src_tier != core->host || !from)
        return;
    for (uint32_t c = o->chunk0; from->ntransit && c < o->chunk0 + o->nchunks; c++) {
        if (!vvi_chunk_in_transit(core, o->obj, from->tier, c))
            continue;
        if (vvi_page(core, from, c)->class & CLASS_PASS)
            vvi_chunk_drop(core, from, c);
    }
    vvi_core_reclass(core, o->obj, o->chunk0, o->nchunks);
    vvi_copy_maybe_free(core, from);
}

void vvi_fail_gets_of(struct vv_core *core, const struct vv_object *obj, int status)
{
    for (struct vv_req *req = core->gets; req; req = req->next)
        if (req->obj == obj && !req->error)
            req->error = status;
}

struct vv_req *vvi_put_of(const struct vv_core *core, const struct vv_object *obj)
{
    struct vv_req *list[] = {core->puts, core->ordered};

    for (unsigned i = 0; i < VV_ARRAY_SIZE(list); i++)
        for (struct vv_req *req = list[i]; req; req = req->next)
            if (req->kind == VV_REQ_PUT && req->obj == obj)
                return req;
    return NULL;
}

/* While the version is being written its own put fails; later the error is a late one. */
void vvi_flush_failed(struct vv_core *core, struct vv_object *obj, int tier, int status)
{
    struct vv_req *put = obj->dead ? NULL : vvi_put_of(core, obj);

    if (put)
        put->error = put->error ? put->error : status;
    else if (!obj->dead)
        late_error(core, obj, tier, status);
}

/* A flush that ran ahead has failed, or an order that would have brought its bytes up again. If
 * pages were reused that it should have saved, the version is lost: a version that cannot be
 * restored must not stay listed, nor count for retention. A put that has not ended fails. */
static void lose(struct vv_core *core, const struct vv_order *o, int status)
{
    struct vv_object *obj = o->obj;
    struct hist *h = vvi_hist(core, obj->hist);
    bool lost = false;

    for (uint32_t c = o->chunk0; !obj->dead && c < o->chunk0 + o->nchunks; c++)
        lost |= !vvi_ahead_somewhere(core, obj, c);
    if (!lost)
        return;
    obj->lost = true;
    vvi_fail_gets_of(core, obj, -EIO);
    if (!obj->written) {
        vvi_flush_failed(core, obj, core->host, status);
        return;
    }
    core->stats.late_errors++;
    vv_trace5(VV_TRACE_ERROR, vvi_trace_history(core, obj->hist), obj->version,
              (uint64_t)core->host, 0, (uint64_t)(int64_t)status);
    if (vvi_put_failed(core, obj, status))
        return;
    if (!core->cfg.version_lost ||
        !core->cfg.version_lost(core->cfg.release_arg, obj->hist, obj->version, status)) {
        h->late_err = status;
        h->late_tier = core->host;
        h->late_version = obj->version;
    }
}

/* Restores that began after the read was issued try it again: the cause may be over. */
static void fail_gets_behind(struct vv_core *core, const struct vv_order *o, int status)
{
    for (struct vv_req *req = core->gets; req; req = req->next)
        if (req->obj == o->obj && req->number < o->number && !req->error)
            req->error = status;
}

static void copy_failed(struct vv_core *core, struct vv_order *o, int status)
{
    if (o->family)
        lose(core, o, status);
    if (o->family && o->seq == 0 && o->dst_tier > o->src_tier) {
        /* The flush never reached its lane. Nothing is lost, since it should only have made room. */
        core->ahead.family[o->family].refused = true;
        return;
    }
    if (o->dst_tier > o->src_tier) {
        bool file = core->tier[o->dst_tier].kind == VV_TIER_FILES;
        if (!file || !o->obj->spoiled) /* the failure of this file has been reported already */
            vvi_flush_failed(core, o->obj, o->dst_tier, status);
        o->obj->spoiled |= file;
    } else {
        /* The bytes stay where they are and are no longer prefetched. A restore that needs them
         * fails now and may be tried again. */
        o->obj->no_prefetch = true;
        if (o->src_tier == core->disk)
            fail_gets_behind(core, o, status);
    }
}

/* All bytes of the request have moved. If memory cannot hold the version until its commit, the put
 * waits for the commit: until then the version could be lost. */
static void req_filled(struct vv_core *core, struct vv_req *req)
{
    if (!vv_core_put_waits(req) || req->obj->dead) {
        vvi_req_end(core, req, 0);
        return;
    }
    req->obj->filled = true;
    req_unlink(req); /* it waits for the disk, even if a stream ordered it */
    req_link(&core->puts, req);
}

bool vv_core_put_waits(const struct vv_req *req)
{
    return req->kind == VV_REQ_PUT && req->obj->streams;
}

static void app_done(struct vv_core *core, struct vv_order *o, int status)
{
    struct vv_req *req = o->req;

    req->inflight--;
    if (req->kind == VV_REQ_GET)
        req->from_inflight[o->src_tier]--;
    if (status < 0 && !req->error)
        req->error = status;
    req->chunks_left -= o->nchunks;
    if (req->inflight == 0 && req->error)
        vvi_req_end(core, req, req->error);
    else if (req->inflight == 0 && req->chunks_left == 0)
        req_filled(core, req);
}

void vvi_req_nothing(struct vv_core *core, struct vv_req *req)
{
    struct vv_object *obj = req->obj;

    obj->refs++;
    vvi_req_end(core, req, 0);
    vvi_sched_commit(core, obj);
    vvi_gen_retain(core, vvi_hist(core, obj->hist));
    vvi_object_unref(core, obj);
}

static void remove_done(struct vv_core *core, const struct vv_order *o, int status)
{
    if (status < 0)
        vvi_removal_failed(core, o->obj, o->file_generation, status);
    else if (o->obj->removal != REMOVAL_NONE && o->file_generation == o->obj->file_generation)
        vvi_removal_done(core, o->obj);
}

/* True if the order moves part of a restore on the device while the link delivers the rest: the
 * caller waits for both, and may report the end of this order late. If the time counted, the device
 * would seem slower, the next restore would take more over the link, and so on. */
static bool partial(const struct vv_core *core, const struct vv_order *o)
{
    const struct vv_copy *from = o->src_tier == VV_TIER_APP ? NULL : o->obj->copy[o->src_tier];

    return o->hop == VV_HOP_D2D && o->src_tier == core->device && from &&
           from->nvalid < o->obj->nchunks;
}

static void measure(struct vv_core *core, const struct vv_order *o)
{
    struct hop_state *hop = &core->hop[o->hop];
    uint64_t from = VV_MAX(o->issued_ns, hop->last_done_ns);

    if (o->kind == VV_ORDER_COPY && !o->family)
        hop->inflight--;
    if (o->req && o->req->lent)
        return; /* nothing was moved */
    hop->moved_bytes += o->bytes;
    hop->done_bytes += o->bytes;
    /* The time on a stream depends more on the application's kernels before the copy. */
    if (o->family || (o->req && o->req->ordered))
        return;
    if (core->now_ns > from && !partial(core, o))
        vv_rate_add(&hop->rate, o->bytes, core->now_ns - from);
    hop->last_done_ns = core->now_ns;
}

static void transfer_done(struct vv_core *core, struct vv_order *o, int status)
{
    struct vv_object *obj = o->obj;

    measure(core, o);
    if (o->family)
        vvi_ahead_ended(core, o);
    if (o->src_tier != VV_TIER_APP)
        chunks_leave(core, o);
    if (o->dst_tier != VV_TIER_APP)
        chunks_arrive(core, o, status);
    if (status < 0 && o->family)
        vvi_ahead_poison(core, o);
    if (status < 0 && o->kind == VV_ORDER_COPY)
        copy_failed(core, o, status);
    if (!o->whole)
        vvi_core_reclass(core, obj, o->chunk0, o->nchunks);
    if (o->src_tier != VV_TIER_APP)
        drop_transit(core, o);
    if (o->src_tier != VV_TIER_APP && obj->copy[o->src_tier])
        abandon_whole(core, obj->copy[o->src_tier]);
    if (status < 0)
        vvi_core_reclass(core, obj, 0, obj->nchunks);
    if (obj->spoiled)
        vvi_file_clean(core, obj);
    vvi_object_settle(core, obj);
    if (o->kind == VV_ORDER_APP)
        app_done(core, o, status);
    vvi_sched_commit(core, obj);
}

void vv_core_complete(struct vv_core *core, struct vv_order *o, int status, uint64_t now_ns)
{
    struct vv_object *obj = o->obj;
    struct hist *h = vvi_hist(core, obj->hist);

    vvi_core_enter(core, now_ns);
    core->inflight--;
    status = status == 0 && o->poisoned ? -EIO : status;
    vvi_figures_done(core, o, status);
    if (o->all_prev)
        o->all_prev->all_next = o->all_next;
    else
        core->orders = o->all_next;
    if (o->all_next)
        o->all_next->all_prev = o->all_prev;
    switch (o->kind) {
    case VV_ORDER_COPY:
    case VV_ORDER_APP:
        transfer_done(core, o, status);
        break;
    case VV_ORDER_COMMIT:
        vvi_commit_done(core, obj, status);
        break;
    case VV_ORDER_REMOVE:
        remove_done(core, o, status);
        break;
    case VV_ORDER_SALVAGE:
        vvi_salvage_done(core, o, status);
        break;
    case VV_ORDER_WAKE:
        break;
    }
    if (h->used)
        vvi_gen_retain(core, h);
    vvi_object_unref(core, obj);
    o->next = core->free_orders;
    core->free_orders = o;
    vvi_core_leave(core);
}
