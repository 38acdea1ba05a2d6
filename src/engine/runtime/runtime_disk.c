/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Movers between memory and the storage tier: one thread each for writing and for reading, each
 * with a store of its own. The memory is the host's, or with GPUDirect Storage the device's,
 * according to the order.
 *
 * The thread keeps as many requests in the store as the core has slots, and waits in one of two
 * places: on its condition variable while nothing is in flight, otherwise inside store->poll. The
 * thread that queues an order signals the first, and kicks the store if the mover is in the second
 * (mover->polling, set and read under the engine lock). No wake-up is lost: a kick before the poll
 * makes the poll return at once.
 *
 * Commits and removals go with the writes. They have requests of their own, so that a long fsync
 * does not delay the writes of other objects.
 *
 * The store may refuse a request (out of memory); the order then fails with that error.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/thread.h"
#include "engine/runtime/runtime_private.h"
#include "trace/trace.h"

#define POLL_NS        ((int64_t)1000000000)
#define POLL_MAX       16
#define POLL_REST_NS   VV_NS_PER_MS /* after a failed poll: try again, without spinning */
#define REGIONS_INLINE 4

struct disk_io {
    struct vv_store_io io;
    _Atomic bool given_up; /* Synchronization: stored under the engine lock, loaded without it */
    struct vv_order *order;
    void *mem[VV_ORDER_MAX_PAGES];
    struct vv_store_region regions[REGIONS_INLINE];
    struct vv_store_region *more_regions; /* owned */
    struct vv_store_meta meta;
    struct disk_io *next;
};

struct disk_worker {
    struct vvi_mover *mover;
    struct disk_io *ios;
    unsigned nios;
    struct disk_io *spare_data, *spare_control; /* copies; commits and removals */
    unsigned inflight;
};

static bool is_control(const struct vv_order *o)
{
    return o->kind != VV_ORDER_COPY;
}

/* Returns a request with an order to carry out, or NULL: no order, or no spare request. Commits
 * come first, because a caller may be waiting for them. The core guarantees that no order depends
 * on another that is still queued. */
static struct disk_io *take_locked(struct disk_worker *w)
{
    struct vvi_mover *m = w->mover;
    bool control = m->control.head && w->spare_control;
    struct disk_io **spare = control ? &w->spare_control : &w->spare_data;
    struct disk_io *io = *spare;
    struct vv_order *o = io ? vvi_order_pop(control ? &m->control : &m->queue) : NULL;
    if (!o)
        return NULL;
    *spare = io->next;
    io->order = o;
    const struct vvi_engine_hist *h = &m->engine->hist[o->hist];
    atomic_store_explicit(&io->given_up, h->dropped, memory_order_relaxed);
    io->io.given_up = &io->given_up;
    io->io.key = (struct vv_store_key){h->files, o->version, o->file_generation};
    io->io.edition = o->edition;
    return io;
}

static void give_back(struct disk_worker *w, struct disk_io *io)
{
    struct disk_io **spare = is_control(io->order) ? &w->spare_control : &w->spare_data;
    free(io->more_regions);
    io->more_regions = NULL;
    io->order = NULL;
    io->next = *spare;
    *spare = io;
}

void vvi_disk_give_up_locked(struct vv_engine *e, uint32_t hist)
{
    for (unsigned hop = VV_HOP_H2F; hop <= VV_HOP_F2H; hop++) {
        struct vvi_mover *m = &e->mover[hop];
        struct disk_worker *w = m->disk;
        for (unsigned i = 0; w && i < w->nios; i++)
            if (w->ios[i].order && w->ios[i].order->hist == hist)
                atomic_store_explicit(&w->ios[i].given_up, true, memory_order_relaxed);
        m->kick |= m->polling;
    }
}

bool vvi_disk_alone_locked(const struct vv_engine *e, const struct vvi_mover *m)
{
    const _Atomic unsigned *held = m->store ? m->store->held : NULL;
    unsigned n = held ? atomic_load_explicit(held, memory_order_relaxed) : 0;
    return n > 0 && vv_core_inflight(e->core) == n;
}

static int describe(struct vv_engine *e, struct disk_io *io)
{
    const struct vv_engine_cfg *cfg = &e->cfg;
    struct vv_store_region *regions = io->regions;
    uint32_t max = REGIONS_INLINE, n = 0;
    if (cfg->describe_user)
        n = cfg->describe_user(cfg->user_arg, vv_object_user(io->order->obj), io->order->size,
                               regions, max);
    if (n > max) {
        io->more_regions = calloc(n, sizeof(*regions));
        if (!io->more_regions)
            return -ENOMEM;
        regions = io->more_regions;
        n = cfg->describe_user(cfg->user_arg, vv_object_user(io->order->obj), io->order->size,
                               regions, n);
    }
    io->meta = (struct vv_store_meta){n, regions};
    return 0;
}

static int submit(struct disk_worker *w, struct disk_io *io)
{
    struct vv_engine *e = w->mover->engine;
    struct vv_order *o = io->order;
    bool writes = w->mover->hop == VV_HOP_H2F;
    int memory_tier = writes ? o->src_tier : o->dst_tier;
    const uint32_t *memory_page = writes ? o->src_page : o->dst_page;

    io->io.device = o->kind == VV_ORDER_COPY && e->kind[memory_tier] == VV_TIER_DEVICE;
    io->io.size = o->size;
    io->io.hist = o->hist;
    io->io.chunk0 = o->chunk0;
    io->io.nchunks = o->nchunks;
    io->io.mem = io->mem;
    io->io.pages = writes ? o->dst_page : o->src_page;
    io->io.meta = NULL;
    io->io.status = 0;
    io->io.user = io;
    switch (o->kind) {
    case VV_ORDER_COPY:
        io->io.op = writes ? VV_STORE_WRITE : VV_STORE_READ;
        for (uint32_t i = 0; i < o->nchunks; i++)
            io->mem[i] = vvi_engine_page(e, memory_tier, memory_page[i]);
        vvi_trace_copy_start(e, o);
        break;
    case VV_ORDER_COMMIT: {
        io->io.op = VV_STORE_COMMIT;
        vv_trace(VV_TRACE_COMMIT_START, vvi_trace_history_of(e, o), o->version, o->size, 0);
        int rc = describe(e, io);
        if (rc)
            return rc;
        io->io.meta = &io->meta;
        break;
    }
    case VV_ORDER_SALVAGE:
        io->io.op = VV_STORE_SALVAGE;
        io->io.from_generation = o->from_generation;
        break;
    default:
        vv_assert(o->kind == VV_ORDER_REMOVE);
        io->io.op = VV_STORE_REMOVE;
        break;
    }
    return w->mover->store->ops->submit(w->mover->store, &io->io);
}

static void trace_end(const struct vv_engine *e, const struct vv_order *o, int status)
{
    if (o->kind == VV_ORDER_COPY)
        vvi_trace_copy_end(e, o, status);
    else if (o->kind == VV_ORDER_COMMIT)
        vv_trace(VV_TRACE_COMMIT_END, vvi_trace_history_of(e, o), o->version,
                 (uint64_t)(int64_t)status, 0);
}

/* Starts the orders for which there are requests; lock held on entry and return. */
static void start_locked(struct disk_worker *w)
{
    struct vv_engine *e = w->mover->engine;
    struct disk_io *io;
    while ((io = take_locked(w))) {
        vvi_engine_unlock(e);
        int rc = submit(w, io);
        vvi_engine_lock(e);
        if (rc == 0) {
            w->inflight++;
            continue;
        }
        struct vv_order *o = io->order;
        rc = vv_store_error(rc);
        trace_end(e, o, rc);
        give_back(w, io);
        vvi_engine_complete_locked(e, o, rc);
    }
}

static void finish_locked(struct disk_worker *w, struct disk_io *io)
{
    struct vv_order *o = io->order;
    int status = io->io.op == VV_STORE_READ ? vv_store_read_error(io->io.status)
                                            : vv_store_error(io->io.status);
    trace_end(w->mover->engine, o, status);
    if (status == -EBADMSG && o->kind == VV_ORDER_COPY) {
        struct vvi_engine_hist *h = &w->mover->engine->hist[o->hist];
        struct vvi_bad_chunk *bad = vvi_bad_chunk_find(h, o->version, o->generation);
        if (!bad)
            bad = &h->bad[h->bad_next++ % VVI_BAD_CHUNKS];
        *bad =
            (struct vvi_bad_chunk){true, o->version, o->generation, io->io.bad_chunk, o->src_tier};
    }
    w->inflight--;
    give_back(w, io);
    vvi_engine_complete_locked(w->mover->engine, o, status);
}

static void disk_worker_free(struct disk_worker *w)
{
    if (!w)
        return;
    free(w->ios);
    free(w);
}

static void *disk_mover_main(void *arg)
{
    struct disk_worker *w = arg;
    struct vvi_mover *m = w->mover;
    struct vv_engine *e = m->engine;
    struct vv_store_io *done[POLL_MAX];

    vv_trace_thread(vv_hop_name(m->hop));
    vvi_engine_lock(e);
    for (;;) {
        start_locked(w);
        if (w->inflight == 0) {
            if (e->stopping)
                break;
            vvi_engine_wait_locked(e, &m->cond, VV_NEVER_NS);
            continue;
        }
        bool alone = vvi_disk_alone_locked(e, m);
        m->polling = true;
        vvi_engine_unlock(e);
        if (alone)
            m->store->ops->alone(m->store);
        int n = m->store->ops->poll(m->store, done, POLL_MAX, POLL_NS);
        if (n < 0 && n != -ETIMEDOUT)
            vv_sleep_until_ns(vv_now_ns() + POLL_REST_NS);
        vvi_engine_lock(e);
        m->polling = false;
        for (int i = 0; i < n; i++)
            finish_locked(w, done[i]->user);
    }
    m->disk = NULL;
    vvi_engine_unlock(e);
    disk_worker_free(w);
    return NULL;
}

int vvi_disk_mover_start(struct vv_engine *e, enum vv_hop hop, struct vv_store *store)
{
    struct vvi_mover *m = &e->mover[hop];
    struct disk_worker *w = calloc(1, sizeof(*w));
    if (!w)
        return -ENOMEM;
    w->mover = m;
    m->store = store;
    unsigned data = e->core_cfg.slots[hop], all = data + VVI_CONTROL_IOS;
    w->ios = calloc(all, sizeof(*w->ios));
    w->nios = all;
    if (!w->ios) {
        disk_worker_free(w);
        return -ENOMEM;
    }
    for (unsigned i = 0; i < all; i++) {
        struct disk_io **spare = i < data ? &w->spare_data : &w->spare_control;
        w->ios[i].next = *spare;
        *spare = &w->ios[i];
    }
    m->disk = w;
    int rc = vv_thread_start(&m->thread, disk_mover_main, w);
    if (rc) {
        m->disk = NULL;
        disk_worker_free(w);
        return rc;
    }
    m->runs = true;
    return 0;
}
