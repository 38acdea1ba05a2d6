/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runtime around engine/core: the engine lock, the handing out of orders, and the calls of
 * other modules.
 *
 * One mutex protects the core. Every call of the core is followed by vvi_engine_dispatch_locked
 * before the mutex is released, so that no order is left behind: COPY, COMMIT and REMOVE go to the
 * queue of a mover, APP to the request whose thread will carry it out, WAKE ends a request. No
 * section under the mutex copies data or makes a system call; waking a mover that sits inside a
 * store takes one and is postponed until the unlock.
 *
 * A mover's orders are counted per history, so that dropping a history can wait until no order uses
 * its files any more, and in total, so that the engine can stop its threads when nothing is left to
 * carry out.
 *
 * Errors: a device or disk that fails only makes orders end with an error; the core decides what
 * follows from it. Threads that cannot be started make vv_engine_open fail.
 */
#include "engine/runtime/runtime.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "engine/runtime/runtime_private.h"
#include "trace/trace.h"

enum {
    LIMITED_PER_S = 8,    /* requests per second under a rate limit */
    REMOVALS_AT_ONCE = 4, /* while restores may come */
};

/* ---- orders ---- */

static struct vvi_mover *mover_of(struct vv_engine *e, const struct vv_order *o)
{
    return &e->mover[o->kind == VV_ORDER_COPY ? o->hop : VV_HOP_H2F];
}

static void wake_mover_locked(struct vvi_mover *m)
{
    atomic_store_explicit(&m->more, true, memory_order_relaxed);
    if (m->polling)
        m->kick = true;
    else
        vv_cond_signal(&m->cond);
}

static void queue_for_mover_locked(struct vv_engine *e, struct vv_order *o)
{
    struct vvi_mover *m = mover_of(e, o);
    e->hist[o->hist].inflight++;
    e->inflight++;
    if (o->kind == VV_ORDER_REMOVE) {
        vvi_order_push(&e->removals, o);
        return;
    }
    vvi_order_push(o->kind == VV_ORDER_COPY ? &m->queue : &m->control, o);
    wake_mover_locked(m);
}

/* Removing a file makes the disk change more than a name: journal, flushes, discarded blocks. While
 * the disk reads for restores and nothing waits for space, removals are postponed; in pauses a few
 * go at once. */
static void release_removals_locked(struct vv_engine *e)
{
    struct vvi_mover *m = &e->mover[VV_HOP_H2F];
    bool pressed = e->lingering > 0 || vv_core_space_wanted(e->core);
    unsigned most = pressed ? UINT_MAX : REMOVALS_AT_ONCE;
    if (!e->removals.head || (!pressed && (m->control.head || vv_core_disk_reads(e->core))))
        return;
    for (unsigned n = 0; n < most && e->removals.head; n++)
        vvi_order_push(&m->control, vvi_order_pop(&e->removals));
    wake_mover_locked(m);
}

void vvi_engine_dispatch_locked(struct vv_engine *e)
{
    struct vv_order *o;
    while ((o = vv_core_next_order(e->core))) {
        struct vvi_req *r = o->req ? o->req->user : NULL;
        switch (o->kind) {
        case VV_ORDER_APP:
            vvi_order_push(&r->orders, o);
            vv_cond_signal(&r->cond);
            break;
        case VV_ORDER_WAKE:
            r->done = true;
            vv_cond_signal(&r->cond);
            if (r->on)
                vvi_on_ended_locked(e, r->on);
            break;
        default:
            if (o->family)
                vvi_ahead_push_locked(e, o);
            else
                queue_for_mover_locked(e, o);
            break;
        }
    }
    release_removals_locked(e);
    /* The mover checks this itself before each poll. */
    if (e->mover[VV_HOP_H2F].polling && vvi_disk_alone_locked(e, &e->mover[VV_HOP_H2F]))
        e->mover[VV_HOP_H2F].kick = true;
    if (e->lingering)
        vv_cond_broadcast(&e->idle);
}

void vvi_engine_complete_locked(struct vv_engine *e, struct vv_order *o, int status)
{
    vvi_engine_complete_at_locked(e, o, status, vv_now_ns());
}

void vvi_engine_complete_at_locked(struct vv_engine *e, struct vv_order *o, int status,
                                   uint64_t now_ns)
{
    bool lane = o->family && o->kind != VV_ORDER_APP;
    uint32_t hist = o->hist;
    if (o->kind != VV_ORDER_APP && !lane) {
        struct vvi_engine_hist *h = &e->hist[o->hist];
        vv_assert(h->inflight > 0 && e->inflight > 0);
        h->inflight--;
        e->inflight--;
        if (h->inflight == 0)
            vv_cond_broadcast(&e->idle);
    }
    if (status)
        vv_trace5(VV_TRACE_ERROR, vvi_trace_history_of(e, o), o->version, (uint64_t)o->src_tier,
                  o->chunk0, (uint64_t)(int64_t)status);
    vv_core_complete(e->core, o, status, now_ns);
    vvi_engine_dispatch_locked(e);
    if (lane)
        vvi_ordered_end_locked(e, hist);
}

void vvi_engine_unlock(struct vv_engine *e)
{
    struct vv_store *kick[VV_HOP_COUNT];
    unsigned n = 0;
    for (unsigned hop = VV_HOP_H2F; hop <= VV_HOP_F2H; hop++) {
        if (e->mover[hop].kick)
            kick[n++] = e->mover[hop].store;
        e->mover[hop].kick = false;
    }
    bool wake = e->watcher.wake;
    e->watcher.wake = false;
    vv_mutex_unlock(&e->lock);
    if (wake)
        vv_cond_signal(&e->watcher.cond);
    for (unsigned i = 0; i < n; i++)
        kick[i]->ops->kick(kick[i]);
}

int vvi_engine_wait_locked(struct vv_engine *e, struct vv_cond *cond, uint64_t deadline_ns)
{
    if (e->mover[VV_HOP_H2F].kick || e->mover[VV_HOP_F2H].kick || e->watcher.wake) {
        vvi_engine_unlock(e);
        vvi_engine_lock(e);
        return 0;
    }
    int rc = vv_cond_wait_until(cond, &e->lock, deadline_ns);
    vvi_engine_drain_locked(e);
    return rc;
}

/* ---- open and close ---- */

static void add_tier(struct vv_engine *e, enum vv_tier_kind kind, uint64_t capacity_bytes)
{
    struct vv_core_cfg *core = &e->core_cfg;
    e->kind[e->ntiers++] = kind;
    core->tier[core->ntiers].kind = kind;
    core->tier[core->ntiers].capacity_bytes = capacity_bytes;
    core->tier[core->ntiers].grows = kind == VV_TIER_HOST;
    core->ntiers++;
}

static void release_user(void *arg, uint64_t user)
{
    struct vv_engine *e = arg;
    if (e->cfg.release_user)
        e->cfg.release_user(e->cfg.user_arg, user);
}

static uint64_t file_bytes(void *arg, uint64_t size, uint64_t user)
{
    const struct vv_engine *e = arg;
    uint32_t nregions =
        e->cfg.describe_user ? e->cfg.describe_user(e->cfg.user_arg, user, size, NULL, 0) : 0;
    return vv_files_bytes(size, nregions, e->cfg.page_bytes);
}

static void pages_gone(void *arg, uint32_t first, uint32_t n)
{
    const struct vv_engine *e = arg;
    e->cfg.pages_gone(e->cfg.pages_arg, first, n);
}

static int core_init(struct vv_engine *e)
{
    const struct vv_engine_cfg *cfg = &e->cfg;
    struct vv_core_cfg *core = &e->core_cfg;
    core->page_bytes = cfg->page_bytes;
    core->policy = cfg->policy;
    core->disk_shared = true;
    core->written_stays = cfg->written_stays;
    core->gds = cfg->gds != NULL;
    core->check = cfg->check;
    core->trace_id = cfg->trace_id;
    core->release_user = release_user;
    core->file_bytes = file_bytes;
    core->release_arg = e;
    core->pages_gone = cfg->pages_gone ? pages_gone : NULL;
    core->version_lost = vvi_on_lost_locked;
    if (cfg->device && cfg->device_cache_bytes >= cfg->page_bytes)
        add_tier(e, VV_TIER_DEVICE, cfg->device_cache_bytes);
    add_tier(e, VV_TIER_HOST, cfg->host_cache_bytes);
    if (cfg->write_store)
        add_tier(e, cfg->disk, cfg->disk_bytes);
    memcpy(core->rate, cfg->rate, sizeof(core->rate));
    vv_core_cfg_tune(core);
    /* Under a rate limit a request waits for its turn as a whole: none may need many seconds. */
    if (cfg->write_limit)
        core->batch_pages[VV_HOP_H2F] = (uint32_t)VV_MIN(
            (uint64_t)core->batch_pages[VV_HOP_H2F],
            VV_MAX(cfg->write_limit / LIMITED_PER_S / core->page_bytes, (uint64_t)1));
    return vv_core_new(core, &e->core);
}

static int movers_start(struct vv_engine *e)
{
    int rc = e->cfg.device ? vvi_finisher_start(e) : 0;
    if (rc == 0 && e->kind[0] == VV_TIER_DEVICE) {
        rc = vvi_device_mover_start(e, VV_HOP_D2H);
        if (rc == 0)
            rc = vvi_device_mover_start(e, VV_HOP_H2D);
    }
    if (rc == 0 && e->cfg.write_store) {
        rc = vvi_disk_mover_start(e, VV_HOP_H2F, e->cfg.write_store);
        if (rc == 0)
            rc = vvi_disk_mover_start(e, VV_HOP_F2H, e->cfg.read_store);
    }
    return rc;
}

uint64_t vv_engine_host_cache(const struct vv_engine *e, uint64_t bytes)
{
    return vv_core_host_cache(&e->core_cfg, bytes);
}

int vv_engine_open(const struct vv_engine_cfg *cfg, char *err, size_t err_bytes,
                   struct vv_engine **ret_engine)
{
    if (!vv_is_pow2(cfg->page_bytes) || cfg->page_bytes < VV_PAGE_BYTES_MIN ||
        !cfg->write_store != !cfg->read_store)
        return -EINVAL;
    struct vv_engine *e = calloc(1, sizeof(*e));
    if (!e)
        return -ENOMEM;
    e->cfg = *cfg;
    vv_mutex_init(&e->lock, "engine", VV_RANK_ENGINE);
    vv_cond_init(&e->idle);
    vv_mutex_init(&e->finisher_lock, "engine finisher", VV_RANK_MOVER);
    vv_cond_init(&e->finisher_cond);
    vv_mutex_init(&e->grow.lock, "engine grow", VV_RANK_MOVER);
    vv_cond_init(&e->grow.cond);
    for (int hop = 0; hop < VV_HOP_COUNT; hop++) {
        e->mover[hop].engine = e;
        e->mover[hop].hop = (enum vv_hop)hop;
        vv_cond_init(&e->mover[hop].cond);
    }
    vvi_pacer_init(&e->h2h, cfg->rate[VV_HOP_H2H]);
    vvi_watcher_init(e);
    vvi_lanes_ahead_init(e);

    int rc = vvi_engine_mem_check(cfg, err, err_bytes);
    if (rc == 0) {
        rc = core_init(e);
        if (rc)
            snprintf(err, err_bytes, "the engine cannot be set up: %s", strerror(-rc));
    }
    if (rc == 0)
        rc = vvi_engine_mem_init(e, err, err_bytes);
    if (rc == 0 && cfg->gds && e->kind[0] == VV_TIER_DEVICE)
        rc = vv_gds_memory_add(cfg->gds, e->base[0], e->base_bytes[0], err, err_bytes);
    if (rc == 0) {
        rc = movers_start(e);
        if (rc)
            snprintf(err, err_bytes, "movers cannot be started: %s", strerror(-rc));
    }
    if (rc == 0) {
        rc = vvi_grow_start(e);
        if (rc)
            snprintf(err, err_bytes, "host cache: its threads cannot be started: %s",
                     strerror(-rc));
    }
    if (rc) {
        vv_engine_close(e);
        return rc;
    }
    *ret_engine = e;
    return 0;
}

/* Accepts engines that are half open. */
void vv_engine_close(struct vv_engine *e)
{
    if (!e)
        return;
    vvi_grow_stop(e);
    vvi_engine_lock(e);
    vvi_watcher_drain_locked(e);
    while (e->inflight > 0)
        vvi_engine_wait_locked(e, &e->idle, VV_NEVER_NS);
    e->stopping = true;
    for (int hop = 0; hop < VV_HOP_COUNT; hop++)
        vv_cond_broadcast(&e->mover[hop].cond);
    vvi_engine_unlock(e);
    vvi_finisher_stop(e);
    for (int hop = 0; hop < VV_HOP_COUNT; hop++)
        if (e->mover[hop].runs)
            pthread_join(e->mover[hop].thread, NULL);
    vvi_watcher_fini(e);

    vvi_reqs_free(e);
    vv_core_free(e->core);
    if (e->cfg.gds)
        vv_gds_memory_remove(e->cfg.gds);
    vvi_engine_mem_fini(e);
    for (int hop = 0; hop < VV_HOP_COUNT; hop++)
        vv_cond_fini(&e->mover[hop].cond);
    vv_cond_fini(&e->idle);
    vv_cond_fini(&e->grow.cond);
    vv_mutex_fini(&e->grow.lock);
    vv_cond_fini(&e->finisher_cond);
    vv_mutex_fini(&e->finisher_lock);
    vvi_pacer_fini(&e->h2h);
    vv_mutex_fini(&e->lock);
    free(e->hist);
    free(e);
}

/* ---- histories ---- */

int vv_engine_history_new(struct vv_engine *e, const struct vv_core_hist_cfg *cfg,
                          struct vv_files *files, uint64_t first_generation, uint32_t *ret_hist)
{
    struct vv_core_hist_cfg core_cfg = *cfg;
    uint32_t hist;
    core_cfg.first_generation = first_generation;
    vvi_engine_lock(e);
    int rc;
    while ((rc = vv_core_history_new(e->core, &core_cfg, &hist)) == 0 && hist < e->nhist &&
           e->hist[hist].draining) {
        vv_core_history_drop(e->core, hist, vv_now_ns());
        vvi_engine_wait_locked(e, &e->idle, VV_NEVER_NS);
    }
    if (rc == 0 && hist >= e->nhist) {
        uint32_t n = VV_MAX(hist + 1, 2 * e->nhist);
        struct vvi_engine_hist *more = realloc(e->hist, n * sizeof(*more));
        if (more) {
            memset(more + e->nhist, 0, (n - e->nhist) * sizeof(*more));
            e->hist = more;
            e->nhist = n;
        } else {
            vv_core_history_drop(e->core, hist, vv_now_ns());
            rc = -ENOMEM;
        }
    }
    if (rc == 0)
        e->hist[hist] = (struct vvi_engine_hist){.files = files};
    vvi_engine_unlock(e);
    if (rc == 0)
        *ret_hist = hist;
    return rc;
}

void vv_engine_history_drop(struct vv_engine *e, uint32_t hist)
{
    vvi_engine_lock(e);
    e->hist[hist].draining = e->hist[hist].dropped = true;
    e->lingering++;
    vv_core_history_drop(e->core, hist, vv_now_ns());
    vvi_engine_dispatch_locked(e);
    vvi_disk_give_up_locked(e, hist);
    while (e->hist[hist].inflight > 0)
        vvi_engine_wait_locked(e, &e->idle, VV_NEVER_NS);
    e->lingering--;
    vvi_on_forget_locked(e, hist);
    e->hist[hist].files = NULL;
    e->hist[hist].draining = false;
    vv_cond_broadcast(&e->idle); /* a new history with this number may wait for it */
    vvi_engine_unlock(e);
}

int vv_engine_adopt(struct vv_engine *e, uint32_t hist, uint64_t version, uint64_t generation,
                    uint64_t size, uint64_t user, bool reached)
{
    vvi_engine_lock(e);
    int rc = vv_core_adopt(e->core, hist, version, generation, size, user, reached);
    vvi_engine_dispatch_locked(e);
    vvi_engine_unlock(e);
    return rc;
}

/* ---- requests ---- */

/* Continues after a call of the core for a request: `rc` is its immediate result. Engine lock held
 * on entry, released on return. */
int vvi_request_finish(struct vv_engine *e, struct vvi_req *r, int rc, uint64_t deadline_ns)
{
    vvi_engine_dispatch_locked(e);
    if (rc == 0)
        return vvi_req_run(e, r, deadline_ns);
    if (r)
        vvi_req_put_locked(e, r);
    vvi_engine_unlock(e);
    return rc;
}

/* Counts calls on device memory: background work avoids them. */
static void device_call_begins(struct vv_engine *e, const struct vv_engine_app *app)
{
    if (!app->device)
        return;
    vvi_gaps_begin(&e->gaps, vv_now_ns());
    atomic_fetch_add_explicit(&e->device_calls, 1, memory_order_relaxed);
}

static void device_call_ended(struct vv_engine *e, const struct vv_engine_app *app)
{
    if (!app->device)
        return;
    vvi_gaps_end(&e->gaps, vv_now_ns());
    atomic_fetch_sub_explicit(&e->device_calls, 1, memory_order_relaxed);
}

int vv_engine_put(struct vv_engine *e, uint32_t hist, uint64_t version, uint64_t size,
                  uint64_t user, const struct vv_engine_app *app, uint64_t deadline_ns)
{
    device_call_begins(e, app);
    vvi_engine_lock(e);
    struct vvi_req *r = vvi_req_new_locked(e, app, size);
    if (r)
        r->req.replace = app->replace;
    int rc = r ? vv_core_put(e->core, hist, version, size, user, app->device, vv_now_ns(), &r->req)
               : -ENOMEM;
    if (rc)
        release_user(e, user);
    rc = vvi_request_finish(e, r, rc, deadline_ns);
    device_call_ended(e, app);
    return rc;
}

int vv_engine_get(struct vv_engine *e, uint32_t hist, uint64_t version, uint64_t generation,
                  const struct vv_engine_app *app, uint64_t deadline_ns, uint32_t *ret_distance)
{
    struct vv_object_info info = {0};
    struct vvi_req *r = NULL;
    uint32_t distance = 0;
    device_call_begins(e, app);
    vvi_engine_lock(e);
    int rc = vv_core_lookup(e->core, hist, version, &info);
    if (rc == 0 && info.generation != generation)
        rc = -ESTALE;
    if (rc == 0) {
        r = vvi_req_new_locked(e, app, info.size);
        if (r) {
            r->req.keep = app->keep;
            r->req.again = app->again;
        }
        rc = r ? vv_core_get(e->core, hist, version, app->device, vv_now_ns(), &r->req) : -ENOMEM;
    }
    if (rc == 0)
        distance = r->req.distance;
    rc = vvi_request_finish(e, r, rc, deadline_ns);
    device_call_ended(e, app);
    if (rc == 0)
        *ret_distance = distance;
    return rc;
}

int vv_engine_damage(struct vv_engine *e, uint32_t hist, uint64_t version, uint64_t generation,
                     int *ret_tier, uint64_t *ret_from, uint64_t *ret_to)
{
    int rc = -ENOENT;
    vvi_engine_lock(e);
    const struct vvi_bad_chunk *bad = vvi_bad_chunk_find(&e->hist[hist], version, generation);
    if (bad) {
        *ret_tier = bad->tier;
        *ret_from = (uint64_t)bad->chunk * e->cfg.page_bytes;
        *ret_to = *ret_from + e->cfg.page_bytes;
        rc = 0;
    }
    vvi_engine_unlock(e);
    return rc;
}

int vv_engine_wait(struct vv_engine *e, uint32_t hist, uint64_t version, enum vv_core_level level,
                   uint64_t deadline_ns)
{
    vvi_engine_lock(e);
    struct vvi_req *r = vvi_req_new_locked(e, NULL, 0);
    int rc = r ? vv_core_wait(e->core, hist, version, level, vv_now_ns(), &r->req) : -ENOMEM;
    return vvi_request_finish(e, r, rc, deadline_ns);
}

/* Keeps the error of a failed removal for a later call. A wait for all versions clears the core's
 * late error, because failed flushes remain recorded in their versions. A failed removal is recorded
 * nowhere else, because its version is gone. */
static void keep_removal_error_locked(struct vv_engine *e, uint32_t hist)
{
    struct vvi_engine_hist *h = &e->hist[hist];
    struct vv_object_info info;
    uint64_t version;
    int tier, err = vv_core_take_error(e->core, hist, &version, &tier);
    if (err == 0 || h->unremoved.err || vv_core_lookup(e->core, hist, version, &info) == 0)
        return;
    h->unremoved.err = err;
    h->unremoved.tier = tier;
    h->unremoved.version = version;
}

int vv_engine_wait_gone(struct vv_engine *e, uint32_t hist, uint64_t deadline_ns)
{
    vvi_engine_lock(e);
    /* The file of a version discarded during its flush is removed when the flush has ended: a count
     * of removals would miss those still to come. */
    e->lingering++;
    release_removals_locked(e);
    int rc = 0;
    while (rc == 0 && vv_core_dying(e->core, hist))
        rc = vvi_engine_wait_locked(e, &e->idle, deadline_ns);
    e->lingering--;
    vvi_engine_unlock(e);
    return rc;
}

int vv_engine_wait_all(struct vv_engine *e, uint32_t hist, uint64_t deadline_ns)
{
    vvi_engine_lock(e);
    keep_removal_error_locked(e, hist);
    struct vvi_req *r = vvi_req_new_locked(e, NULL, 0);
    int rc = r ? vv_core_wait_all(e->core, hist, vv_now_ns(), &r->req) : -ENOMEM;
    rc = vvi_request_finish(e, r, rc, deadline_ns);
    int late = rc != -ETIMEDOUT ? vv_engine_wait_gone(e, hist, deadline_ns) : 0;
    return rc ? rc : late;
}

int vv_engine_hint(struct vv_engine *e, uint32_t hist, uint64_t version)
{
    vvi_engine_lock(e);
    int rc = vv_core_hint(e->core, hist, version, vv_now_ns());
    vvi_engine_dispatch_locked(e);
    vvi_engine_unlock(e);
    return rc;
}

void vv_engine_hint_clear(struct vv_engine *e, uint32_t hist)
{
    vvi_engine_lock(e);
    vv_core_hint_clear(e->core, hist, vv_now_ns());
    vvi_engine_dispatch_locked(e);
    vvi_engine_unlock(e);
}

void vv_engine_prefetch_start(struct vv_engine *e, uint32_t hist)
{
    vvi_engine_lock(e);
    vv_core_prefetch_start(e->core, hist, vv_now_ns());
    vvi_engine_dispatch_locked(e);
    vvi_engine_unlock(e);
}

int vv_engine_discard(struct vv_engine *e, uint32_t hist, uint64_t version)
{
    vvi_engine_lock(e);
    int rc = vv_core_discard(e->core, hist, version, vv_now_ns());
    vvi_engine_dispatch_locked(e);
    vvi_engine_unlock(e);
    return rc;
}

void vv_engine_reached(struct vv_engine *e, uint32_t hist, uint64_t version, uint64_t generation)
{
    vvi_engine_lock(e);
    vv_core_reached(e->core, hist, version, generation, vv_now_ns());
    vvi_engine_dispatch_locked(e);
    vvi_engine_unlock(e);
}

void vv_engine_missed(struct vv_engine *e, uint32_t hist, uint64_t version, uint64_t generation)
{
    vvi_engine_lock(e);
    vv_core_missed(e->core, hist, version, generation, vv_now_ns());
    vvi_engine_dispatch_locked(e);
    vvi_engine_unlock(e);
}

int vv_engine_confirm(struct vv_engine *e, uint32_t hist, uint64_t version)
{
    vvi_engine_lock(e);
    int rc = vv_core_confirm(e->core, hist, version, vv_now_ns());
    vvi_engine_dispatch_locked(e);
    vvi_engine_unlock(e);
    return rc;
}

int vv_engine_take_back(struct vv_engine *e, uint32_t hist, uint64_t version)
{
    vvi_engine_lock(e);
    int rc = vv_core_take_back(e->core, hist, version, vv_now_ns());
    vvi_engine_dispatch_locked(e);
    vvi_engine_unlock(e);
    return rc;
}

void vv_engine_acknowledge(struct vv_engine *e, uint32_t hist, const uint64_t *version)
{
    vvi_engine_lock(e);
    vv_core_acknowledge(e->core, hist, version, vv_now_ns());
    vvi_engine_dispatch_locked(e);
    vvi_engine_unlock(e);
}

/* ---- queries ---- */

int vv_engine_lookup(struct vv_engine *e, uint32_t hist, uint64_t version,
                     struct vv_object_info *ret_info)
{
    vvi_engine_lock(e);
    int rc = vv_core_lookup(e->core, hist, version, ret_info);
    if (rc == 0 && e->cfg.retain_user)
        e->cfg.retain_user(e->cfg.user_arg, ret_info->user);
    vvi_engine_unlock(e);
    return rc;
}

int vv_engine_wanted(struct vv_engine *e, uint32_t hist, uint64_t version, uint64_t generation,
                     struct vv_wanted *ret_wanted)
{
    vvi_engine_lock(e);
    int rc = vv_core_wanted(e->core, hist, version, generation, ret_wanted);
    vvi_engine_unlock(e);
    return rc;
}

int vv_engine_latest(struct vv_engine *e, uint32_t hist, uint64_t *ret_version)
{
    vvi_engine_lock(e);
    int rc = vv_core_latest(e->core, hist, ret_version);
    vvi_engine_unlock(e);
    return rc;
}

void vv_engine_each(struct vv_engine *e, uint32_t hist,
                    void (*fn)(void *arg, const struct vv_object_info *info), void *arg)
{
    vvi_engine_lock(e);
    vv_core_each(e->core, hist, fn, arg);
    vvi_engine_unlock(e);
}

bool vv_engine_has_error(struct vv_engine *e, uint32_t hist)
{
    vvi_engine_lock(e);
    const struct vvi_engine_hist *h = &e->hist[hist];
    bool any = h->failed || h->unremoved.err || vv_core_has_error(e->core, hist);
    vvi_engine_unlock(e);
    return any;
}

int vv_engine_take_error(struct vv_engine *e, uint32_t hist, uint64_t *ret_version, int *ret_tier)
{
    vvi_engine_lock(e);
    struct vvi_engine_hist *h = &e->hist[hist];
    int rc = h->unremoved.err;
    if (rc) {
        *ret_version = h->unremoved.version;
        *ret_tier = h->unremoved.tier;
        h->unremoved.err = 0;
    } else {
        rc = vv_core_take_error(e->core, hist, ret_version, ret_tier);
    }
    vvi_engine_unlock(e);
    return rc;
}

void vv_engine_get_stats(struct vv_engine *e, struct vv_core_stats *ret_stats)
{
    vvi_engine_lock(e);
    vv_core_get_stats(e->core, ret_stats);
    vvi_engine_unlock(e);
}

void vv_engine_get_hist_stats(struct vv_engine *e, uint32_t hist,
                              struct vv_core_hist_stats *ret_stats)
{
    vvi_engine_lock(e);
    vv_core_get_hist_stats(e->core, hist, ret_stats);
    vvi_engine_unlock(e);
}

unsigned vv_engine_tiers(const struct vv_engine *e)
{
    return e->ntiers;
}

enum vv_tier_kind vv_engine_tier_kind(const struct vv_engine *e, unsigned tier)
{
    return e->kind[tier];
}
