/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queries: versions, late errors and figures. Nothing here starts or decides anything; taking a
 * late error marks it as reported.
 */
#include <errno.h>

#include "engine/core/core_private.h"

const char *vv_hop_name(enum vv_hop hop)
{
    static const char *const names[VV_HOP_COUNT] = {"d2d", "h2h", "d2h", "h2d", "h2f", "f2h"};

    return (unsigned)hop < VV_HOP_COUNT ? names[hop] : "unknown";
}

const char *vv_tier_kind_name(enum vv_tier_kind kind)
{
    static const char *const names[] = {"device", "host", "spill", "files"};

    return (unsigned)kind < VV_ARRAY_SIZE(names) ? names[kind] : "unknown";
}

static void describe(const struct vv_core *core, const struct vv_object *obj,
                     struct vv_object_info *ret_info)
{
    const struct vv_object *next = vvi_gen_replacement(core, obj);

    *ret_info = (struct vv_object_info){
        .version = obj->version,
        .generation = obj->generation,
        .file_generation = obj->file_generation,
        .edition = obj->edition,
        .size = obj->size,
        .user = obj->user,
        .durable = obj->durable,
        .safe = obj->gen == VV_GEN_SAFE,
        .flush_error = obj->flush_err,
        .chunks = obj->nchunks,
        .ready = obj->written && vvi_object_ready(core, obj),
        .pending = next && next->ordered,
    };

    for (unsigned t = 0; t < core->ntiers; t++) {
        const struct vv_copy *copy = obj->copy[t];
        bool committed = core->tier[t].kind == VV_TIER_FILES && obj->durable;
        ret_info->resident[t] = copy ? copy->nvalid : committed ? obj->nchunks : 0;
        ret_info->state[t] = copy        ? (enum vv_copy_state)copy->state
                             : committed ? VV_COPY_WRITE_COMPLETE
                                         : VV_COPY_INIT;
    }
}

int vv_core_lookup(const struct vv_core *core, uint32_t hist, uint64_t version,
                   struct vv_object_info *ret_info)
{
    const struct vv_object *obj = vvi_object_find(core, hist, version);

    if (!obj || !obj->written)
        return -ENOENT;
    describe(core, obj, ret_info);
    return 0;
}

int vv_core_wanted(const struct vv_core *core, uint32_t hist, uint64_t version, uint64_t generation,
                   struct vv_wanted *ret_wanted)
{
    const struct vv_object *obj =
        hist < core->nhist && core->hist[hist].used ? vvi_object_find(core, hist, version) : NULL;
    if (!obj || obj->dead || obj->generation != generation)
        return -ENOENT;
    const struct hist *h = vvi_hist(core, hist);
    *ret_wanted = (struct vv_wanted){.rank = vvi_rank(core, obj, (unsigned)core->disk, 0),
                                     .restoring = h->started && core->phase == VV_PHASE_RESTORING,
                                     .present = obj->nmem == obj->nchunks ||
                                                (obj->consumed && !obj->hint_first)};
    if (vv_next_use(ret_wanted->rank) == VV_USE_UNKNOWN)
        ret_wanted->rank = vv_next_rank(VV_USE_UNKNOWN, h->next_ordinal - obj->ordinal);
    return 0;
}

void vv_core_each(const struct vv_core *core, uint32_t hist,
                  void (*fn)(void *arg, const struct vv_object_info *info), void *arg)
{
    for (const struct vv_object *obj = vvi_hist(core, hist)->oldest; obj; obj = obj->newer) {
        struct vv_object_info info;
        describe(core, obj, &info);
        fn(arg, &info);
    }
}

bool vv_core_has_error(struct vv_core *core, uint32_t hist)
{
    const struct hist *h = vvi_hist(core, hist);

    return h->late_err || h->nfailed;
}

int vv_core_take_error(struct vv_core *core, uint32_t hist, uint64_t *ret_version, int *ret_tier)
{
    struct hist *h = vvi_hist(core, hist);
    struct vv_object *obj = h->nfailed ? h->oldest : NULL;
    int err = h->late_err;

    if (err) {
        *ret_version = h->late_version;
        *ret_tier = h->late_tier;
        h->late_err = 0;
        return err;
    }
    while (obj && (!obj->flush_err || obj->reported))
        obj = obj->newer;
    if (!obj)
        return 0;
    obj->reported = true;
    *ret_version = obj->version;
    *ret_tier = obj->err_tier;
    return obj->flush_err;
}

bool vv_core_dying(const struct vv_core *core, uint32_t hist)
{
    for (const struct vv_order *o = core->orders; o; o = o->all_next)
        if (o->hist == hist && o->kind != VV_ORDER_APP &&
            (o->kind == VV_ORDER_REMOVE || o->obj->dead))
            return true;
    return false;
}

bool vv_core_space_wanted(const struct vv_core *core)
{
    return core->phase != VV_PHASE_RESTORING || core->puts || core->waits ||
           core->hop[VV_HOP_H2F].inflight > 0;
}

uint64_t vv_core_inflight(const struct vv_core *core)
{
    return core->inflight;
}

bool vv_core_disk_reads(const struct vv_core *core)
{
    return core->hop[VV_HOP_F2H].inflight > 0;
}

uint64_t vv_object_user(const struct vv_object *obj)
{
    return obj->user;
}

void vvi_figures_done(struct vv_core *core, const struct vv_order *o, int status)
{
    struct hop_state *hop = &core->hop[o->hop];

    if (--hop->orders == 0)
        hop->busy_ns += core->now_ns - hop->busy_since_ns;
    hop->errors += status < 0;
    core->stats.bad_reads += status == -EBADMSG;
    /* An earlier read of the version failed, and this one did not. */
    core->stats.reread +=
        status == 0 && o->kind == VV_ORDER_COPY && o->obj->no_prefetch && o->src_tier == core->disk;
}

static void add_requests(struct vv_core_stats *s, const struct vv_req *list)
{
    for (const struct vv_req *req = list; req; req = req->next) {
        if (req->kind == VV_REQ_GET)
            s->waiting_gets++;
        else
            s->waiting_puts++;
        if (!s->waiting_since_ns || req->start_ns < s->waiting_since_ns)
            s->waiting_since_ns = req->start_ns;
    }
}

static void add_hop(const struct vv_core *core, int hop, struct vv_core_stats *s)
{
    const struct hop_state *h = &core->hop[hop];

    s->moved_bytes[hop] = h->moved_bytes;
    s->rate[hop] = (uint64_t)h->rate.bytes_per_s;
    s->start_rate[hop] = (uint64_t)h->rate.start_bytes_per_s;
    s->hop_orders[hop] = h->orders;
    s->hop_errors[hop] = h->errors;
    s->hop_busy_ns[hop] = h->busy_ns + (h->orders ? core->now_ns - h->busy_since_ns : 0);
}

/* Successive hinted versions that a restore would find ready. The result up to the last restore is
 * known; versions that became ready since then are counted, up to LOOK: this runs under a lock. */
static uint64_t ready_distance(const struct vv_core *core, const struct hist *h)
{
    enum { LOOK = 256 };
    uint64_t to = vvi_hint_next_open(h, OPEN_READY, h->head);

    for (int i = 0; to < h->tail && i < LOOK; i++) {
        const struct vv_object *obj = vvi_hint_at(h, to);
        if (!obj->written || !vvi_object_ready(core, obj))
            break;
        to = vvi_hint_next_open(h, OPEN_READY, to + 1);
    }
    return to - h->head;
}

void vv_core_get_hist_stats(const struct vv_core *core, uint32_t hist,
                            struct vv_core_hist_stats *ret_stats)
{
    const struct hist *h = vvi_hist(core, hist);

    *ret_stats = (struct vv_core_hist_stats){
        .versions = h->nwritten,
        .durable = h->ndurable,
        .failed = h->nfailed,
        .hints = h->tail - h->head,
        .ready = ready_distance(core, h),
        .predicting = h->npredicted > 0,
        .prefetching = h->started,
        .pending = h->pending,
    };
}

void vv_core_get_stats(const struct vv_core *core, struct vv_core_stats *ret_stats)
{
    uint64_t pages = 0;
    double used_page_ns = 0;

    *ret_stats = core->stats;
    ret_stats->now_ns = core->now_ns;
    ret_stats->inflight_orders = core->inflight;
    for (int i = 0; i < VV_HOP_COUNT; i++)
        add_hop(core, i, ret_stats);
    add_requests(ret_stats, core->puts);
    add_requests(ret_stats, core->gets);
    for (unsigned t = 0; t < core->ntiers; t++) {
        const struct tier *tier = &core->tier[t];
        ret_stats->tier_pages[t] = tier->arena.npromised;
        ret_stats->tier_ready_pages[t] = tier->arena.nready;
        ret_stats->tier_used_pages[t] = tier->arena.nready - tier->arena.nfree;
        ret_stats->tier_dirty_pages[t] = tier->ndirty;
        ret_stats->tier_evictable_pages[t] = tier->nevict;
        for (uint32_t i = 0; i < core->nhist; i++)
            ret_stats->tier_copies[t] +=
                core->hist[i].ncopies[t] + (tier->is_arena ? 0 : core->hist[i].ndurable);
        ret_stats->tier_used_page_ns[t] = core->used_page_ns[t];
        used_page_ns += core->used_page_ns[t];
        ret_stats->transit_pages += 2 * tier->transit_all;
        pages += tier->memory ? tier->arena.npromised : 0;
        if (!tier->is_arena)
            ret_stats->files_bytes = tier->used_bytes;
    }
    ret_stats->object_bytes = core->stats.objects * sizeof(struct vv_object);
    for (uint32_t i = 0; i < core->nhist; i++)
        ret_stats->object_bytes += vv_table_chains(&core->hist[i].versions) * sizeof(void *) +
                                   core->hist[i].ring_size * sizeof(struct hint) +
                                   core->hist[i].ring_size * core->hist[i].nopen / 8;
    if (pages && core->now_ns > core->used_since_ns)
        ret_stats->utilisation =
            used_page_ns / ((double)pages * (double)(core->now_ns - core->used_since_ns));
}

void vvi_trace_occupancy(struct vv_core *core)
{
    enum { PART = 256 };
    const uint64_t late_ns = 1000000;

    for (unsigned t = 0; t < core->ntiers; t++) {
        const struct tier *tier = &core->tier[t];
        uint64_t page = core->cfg.page_bytes;
        uint64_t bytes =
            tier->is_arena ? (tier->arena.nready - tier->arena.nfree) * page : tier->used_bytes;
        uint64_t all = tier->is_arena ? tier->arena.npages * page : tier->capacity_bytes;
        uint64_t before = core->traced[t].bytes;
        uint64_t change = bytes > before ? bytes - before : before - bytes;

        if (change == 0 ||
            (change < all / PART && core->now_ns - core->traced[t].time_ns < late_ns))
            continue;
        core->traced[t].bytes = bytes;
        core->traced[t].time_ns = core->now_ns;
        vv_trace(VV_TRACE_OCCUPANCY, core->cfg.trace_id, t, bytes,
                 tier->is_arena ? tier->arena.nready * page : all);
    }
}
