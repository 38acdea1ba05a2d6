/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stores of the engine's movers on two layers.
 *
 * A request becomes parts, each of consecutive chunks on one layer. Parts on the fast layer are carried out in a
 * store of the mover's own, those on the slow one by a server. The mover waits in its own store; a server that has
 * ended the last part of a request puts the request on the mover's list and kicks that store.
 *
 * A write is one part: a layer is chosen and all slots are taken before it begins, so that a request is refused as
 * a whole. A page counts as written when its part has succeeded.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/thread.h"
#include "store/spill/layers_private.h"
#include "store/store_private.h"
#include "trace/trace.h"

#define SERVER_POLL_NS ((int64_t)1000000000)
#define SERVER_REST_NS VV_NS_PER_MS
enum { SERVER_MAX = 16 };

struct layered_store {
    struct vv_store base;
    struct vv_layers *layers;
    struct vv_store *fast;
    /* Synchronization: layers->lock. */
    struct vv_store_io *done, **done_tail;
    unsigned away; /* requests not reported yet */
};

struct request {
    struct layered_store *store;
    struct vv_store_io *io;
    unsigned left; /* parts. Synchronization: layers->lock, as the rest */
    int status;
    uint32_t bad_chunk;
};

struct vvi_lpart {
    struct vv_store_io io;
    struct request *req;
    struct vvi_lpart *next;
    enum vv_layer layer;
    const uint32_t *pages; /* the engine's page numbers, in the request */
    uint64_t bytes, begun_ns;
    uint32_t slot[];
};

/* ---- parts ---- */

static struct vvi_lpart *part_new(struct vv_layers *l, struct request *req, uint32_t first,
                                  uint32_t n)
{
    const struct vv_store_io *io = req->io;
    struct vvi_lpart *part = malloc(sizeof(*part) + n * sizeof(part->slot[0]));
    if (!part)
        return NULL;
    *part = (struct vvi_lpart){.io = *io, .req = req, .pages = io->pages + first};
    part->io.chunk0 = io->chunk0 + first;
    part->io.nchunks = n;
    part->io.mem = io->mem + first;
    part->io.pages = part->slot;
    part->io.user = part;
    part->bytes = vvi_io_bytes(&part->io, l->page_bytes);
    return part;
}

static void request_report_locked(struct request *req)
{
    struct layered_store *s = req->store;
    struct vv_store_io *io = req->io;
    io->status = req->status;
    io->bad_chunk = req->bad_chunk;
    io->next = NULL;
    *s->done_tail = io;
    s->done_tail = &io->next;
    s->away--;
    free(req);
}

/* True: it was the last part of its request, and the mover must be kicked. */
static bool part_ended_locked(struct vv_layers *l, struct vvi_lpart *part)
{
    struct request *req = part->req;
    bool write = part->io.op == VV_STORE_WRITE, good = part->io.status == 0;
    vvi_layer_ended(l, part->layer, write, part->bytes, part->begun_ns, good);
    for (uint32_t i = 0; i < part->io.nchunks; i++) {
        struct vvi_lpage *p = &l->page[part->pages[i]];
        if (write)
            p->ready = good;
        else
            p->readers[part->layer]--;
    }
    if (!good && req->status == 0) {
        req->status = part->io.status;
        req->bad_chunk = part->io.bad_chunk;
    }
    bool last = --req->left == 0;
    if (last)
        request_report_locked(req);
    vvi_layers_wake_locked(l);
    return last;
}

static void part_ended(struct vv_layers *l, struct vvi_lpart *part)
{
    vv_mutex_lock(&l->lock);
    part_ended_locked(l, part);
    vv_mutex_unlock(&l->lock);
    free(part);
}

/* ---- the servers of the slow layer ---- */

static void served(struct vv_layers *l, struct vvi_lserver *server, struct vvi_lpart *part)
{
    struct vv_store *fast = part->req->store->fast;
    vv_mutex_lock(&l->lock);
    server->pending--;
    /* Under the lock: the mover's store may be closed once none of its requests is away. */
    if (part_ended_locked(l, part))
        fast->ops->kick(fast);
    vv_mutex_unlock(&l->lock);
    free(part);
}

static void *serve(void *arg)
{
    struct vvi_lserver *s = arg;
    struct vv_layers *l = s->layers;
    struct vv_store_io *done[SERVER_MAX];
    unsigned inflight = 0;
    vv_trace_thread(s == &l->server[0] ? "slow layer reader" : "slow layer writer");
    vv_mutex_lock(&l->lock);
    for (;;) {
        struct vvi_lpart *next, *list = s->queue;
        s->queue = NULL;
        s->tail = &s->queue;
        if (!list && inflight == 0) {
            if (l->stopping)
                break;
            vv_cond_wait(&s->come, &l->lock);
            continue;
        }
        s->polls = true;
        vv_mutex_unlock(&l->lock);
        for (; list; list = next) {
            next = list->next;
            int rc = s->store->ops->submit(s->store, &list->io);
            if (rc == 0) {
                inflight++;
                continue;
            }
            list->io.status = rc;
            served(l, s, list);
        }
        int n = inflight == 0 ? 0 : s->store->ops->poll(s->store, done, SERVER_MAX, SERVER_POLL_NS);
        if (n < 0 && n != -ETIMEDOUT)
            vv_sleep_until_ns(vv_now_ns() + SERVER_REST_NS);
        for (int i = 0; i < n; i++, inflight--)
            served(l, s, done[i]->user);
        vv_mutex_lock(&l->lock);
        s->polls = false;
    }
    vv_mutex_unlock(&l->lock);
    return NULL;
}

int vvi_lserver_start(struct vv_layers *l, struct vvi_lserver *s)
{
    s->layers = l;
    s->tail = &s->queue;
    int rc = vvi_layer_store(l, VV_LAYER_SLOW, &s->store);
    if (rc == 0)
        rc = vv_thread_start(&s->thread, serve, s);
    s->started = rc == 0;
    return rc;
}

void vvi_lserver_stop(struct vvi_lserver *s)
{
    struct vv_layers *l = s->layers;
    if (s->started) {
        vv_mutex_lock(&l->lock);
        l->stopping = true;
        vv_cond_signal(&s->come);
        vv_mutex_unlock(&l->lock);
        pthread_join(s->thread, NULL);
        s->started = false;
    }
    if (s->store)
        s->store->ops->close(s->store);
    s->store = NULL;
}

/* ---- requests ---- */

/* Begins the parts; the request was made under the lock. The last part may end it. */
static void begin(struct layered_store *s, struct vvi_lpart *parts, bool write)
{
    struct vv_layers *l = s->layers;
    struct vvi_lserver *server = &l->server[write];
    struct vvi_lpart *next, *fast = NULL;
    bool kick = false;
    vv_mutex_lock(&l->lock);
    for (; parts; parts = next) {
        next = parts->next;
        parts->next = NULL;
        if (parts->layer == VV_LAYER_FAST) {
            parts->next = fast;
            fast = parts;
            continue;
        }
        *server->tail = parts;
        server->tail = &parts->next;
        server->pending++;
        kick = server->polls;
        vv_cond_signal(&server->come);
    }
    vv_mutex_unlock(&l->lock);
    if (kick)
        server->store->ops->kick(server->store);
    for (; fast; fast = next) {
        next = fast->next;
        int rc = s->fast->ops->submit(s->fast, &fast->io);
        if (rc < 0) {
            fast->io.status = rc;
            part_ended(l, fast);
        }
    }
}

/* Gets the rank of a version that is new here. */
static void ask_rank(struct vv_layers *l, const struct vv_store_io *io)
{
    struct vv_layers_version ask = {
        .hist = io->hist, .version = io->key.version, .generation = io->key.generation};
    if (!l->opts.next_use)
        return;
    l->opts.next_use(l->opts.arg, &ask, 1);
    vv_mutex_lock(&l->lock);
    struct vvi_lversion *v = vvi_lversion_find(l, ask.generation);
    if (v && !ask.gone)
        v->rank = ask.rank;
    vv_mutex_unlock(&l->lock);
}

static bool take_slots_locked(struct vv_layers *l, enum vv_layer layer, struct vvi_lpart *part)
{
    for (uint32_t i = 0; i < part->io.nchunks; i++) {
        part->slot[i] = vvi_slot_take(l, layer);
        if (part->slot[i] != VVI_SLOT_NONE)
            continue;
        while (i-- > 0)
            vvi_slot_give(l, layer, part->slot[i]);
        return false;
    }
    part->layer = layer;
    return true;
}

static bool place_locked(struct vv_layers *l, uint64_t rank, struct vvi_lpart *part)
{
    struct vv_layers_question q = {.bytes = part->bytes,
                                   .pages = part->io.nchunks,
                                   .low_pages = l->low_pages,
                                   .rank = rank,
                                   .farthest_rank = l->farthest_rank,
                                   .skip_fast = vv_reroute_skips(&l->reroute, vv_now_ns())};
    q.try_fast = l->reroute.skipped && !q.skip_fast;
    for (int i = 0; i < VV_LAYERS; i++)
        q.layer[i] = (struct vv_layer_state){.queued_bytes = l->queued_bytes[i],
                                             .bytes_per_s = l->rate[i][1].bytes_per_s,
                                             .free_pages = vvi_slots_free(l, (enum vv_layer)i)};
    int layer = vv_layers_place(&q);
    if (layer < 0 || !(take_slots_locked(l, (enum vv_layer)layer, part) ||
                       take_slots_locked(l, (enum vv_layer) !layer, part)))
        return false;
    if (part->layer == VV_LAYER_FAST)
        vv_reroute_begins(&l->reroute);
    return true;
}

/* Assigns the pages to the version. */
static void own_locked(struct vv_layers *l, struct vvi_lversion *v, const struct vvi_lpart *part)
{
    for (uint32_t i = 0; i < part->io.nchunks; i++) {
        struct vvi_lpage *p = &l->page[part->pages[i]];
        uint32_t chunk = part->io.chunk0 + i;
        vv_assert(!p->version && v->page[chunk] == VVI_SLOT_NONE);
        *p = (struct vvi_lpage){
            .version = v, .chunk = chunk, .slot = {VVI_SLOT_NONE, VVI_SLOT_NONE}};
        p->slot[part->layer] = part->slot[i];
        v->page[chunk] = part->pages[i];
    }
    v->npages += part->io.nchunks;
}

static int write_start(struct layered_store *s, struct request *req)
{
    struct vv_layers *l = s->layers;
    struct vvi_lpart *part = part_new(l, req, 0, req->io->nchunks);
    bool fresh = false;
    if (!part)
        return -ENOMEM;
    vv_mutex_lock(&l->lock);
    struct vvi_lversion *v = vvi_lversion_of(l, req->io, &fresh);
    int rc = v ? 0 : -ENOMEM;
    if (rc == 0) {
        v->npages++; /* keeps the version while the lock is released */
        if (fresh) {
            vv_mutex_unlock(&l->lock);
            ask_rank(l, req->io);
            vv_mutex_lock(&l->lock);
        }
        rc = place_locked(l, v->rank, part) ? 0 : -ENOSPC;
        if (rc == 0)
            own_locked(l, v, part);
        v->npages--;
        if (v->npages == 0) {
            v->npages = 1;
            vvi_lversion_unref_page(l, v, 0);
        }
    }
    if (rc == 0) {
        vvi_layer_begins(l, part->layer, part->bytes);
        part->begun_ns = vv_now_ns();
        req->left = 1;
        s->away++;
    }
    vv_mutex_unlock(&l->lock);
    if (rc == 0)
        begin(s, part, true);
    else
        free(part);
    return rc;
}

static enum vv_layer layer_of_locked(const struct vv_layers *l, uint32_t page)
{
    return l->page[page].slot[VV_LAYER_FAST] != VVI_SLOT_NONE ? VV_LAYER_FAST : VV_LAYER_SLOW;
}

static int read_start(struct layered_store *s, struct request *req)
{
    struct vv_layers *l = s->layers;
    const struct vv_store_io *io = req->io;
    struct vvi_lpart *parts = NULL, **tail = &parts;
    int rc = 0;
    vv_mutex_lock(&l->lock);
    for (uint32_t i = 0, n; i < io->nchunks && rc == 0; i += n) {
        enum vv_layer layer = layer_of_locked(l, io->pages[i]);
        for (n = 1; i + n < io->nchunks && layer_of_locked(l, io->pages[i + n]) == layer;)
            n++;
        struct vvi_lpart *part = part_new(l, req, i, n);
        if (!part) {
            rc = -ENOMEM;
            break;
        }
        part->layer = layer;
        *tail = part;
        tail = &part->next;
        for (uint32_t k = 0; k < n; k++)
            part->slot[k] = l->page[io->pages[i + k]].slot[layer];
    }
    uint64_t now_ns = vv_now_ns();
    for (struct vvi_lpart *part = parts; part && rc == 0; part = part->next) {
        for (uint32_t k = 0; k < part->io.nchunks; k++)
            l->page[part->pages[k]].readers[part->layer]++;
        vvi_layer_begins(l, part->layer, part->bytes);
        part->begun_ns = now_ns;
        req->left++;
    }
    s->away += rc == 0;
    vv_mutex_unlock(&l->lock);
    if (rc == 0) {
        begin(s, parts, false);
        return 0;
    }
    for (struct vvi_lpart *next; parts; parts = next) {
        next = parts->next;
        free(parts);
    }
    return rc;
}

static bool pages_valid(struct vv_layers *l, const struct vv_store_io *io)
{
    bool valid = true;
    if (!io->pages || io->device || !vvi_io_valid(io, l->page_bytes))
        return false;
    vv_mutex_lock(&l->lock);
    for (uint32_t i = 0; i < io->nchunks && valid; i++)
        valid = io->pages[i] < l->npages &&
                (l->page[io->pages[i]].version == NULL) == (io->op == VV_STORE_WRITE);
    vv_mutex_unlock(&l->lock);
    return valid;
}

static int layered_submit(struct vv_store *store, struct vv_store_io *io)
{
    struct layered_store *s = (struct layered_store *)store;
    if ((io->op != VV_STORE_READ && io->op != VV_STORE_WRITE) || !pages_valid(s->layers, io))
        return -EINVAL;
    struct request *req = calloc(1, sizeof(*req));
    if (!req)
        return -ENOMEM;
    req->store = s;
    req->io = io;
    int rc = io->op == VV_STORE_WRITE ? write_start(s, req) : read_start(s, req);
    if (rc < 0)
        free(req);
    return rc;
}

static int take_done(struct layered_store *s, struct vv_store_io **ret_done, size_t max)
{
    int n = 0;
    vv_mutex_lock(&s->layers->lock);
    for (; s->done && (size_t)n < max; n++) {
        ret_done[n] = s->done;
        s->done = s->done->next;
        if (!s->done)
            s->done_tail = &s->done;
    }
    vv_mutex_unlock(&s->layers->lock);
    return n;
}

static int layered_poll(struct vv_store *store, struct vv_store_io **ret_done, size_t max,
                        int64_t timeout_ns)
{
    struct layered_store *s = (struct layered_store *)store;
    int n = take_done(s, ret_done, max);
    if (n > 0)
        return n;
    n = s->fast->ops->poll(s->fast, ret_done, max, timeout_ns);
    for (int i = 0; i < n; i++)
        part_ended(s->layers, ret_done[i]->user);
    if (n < 0 && n != -ETIMEDOUT)
        return n;
    int ntaken = take_done(s, ret_done, max);
    return ntaken > 0 || n >= 0 ? ntaken : n;
}

static void layered_kick(struct vv_store *store)
{
    struct layered_store *s = (struct layered_store *)store;
    s->fast->ops->kick(s->fast);
}

static void layered_close(struct vv_store *store)
{
    struct layered_store *s = (struct layered_store *)store;
    struct vv_store_io *done[SERVER_MAX];
    for (;;) {
        vv_mutex_lock(&s->layers->lock);
        bool idle = s->away == 0;
        vv_mutex_unlock(&s->layers->lock);
        if (idle)
            break;
        int n = layered_poll(store, done, SERVER_MAX, SERVER_POLL_NS);
        if (n < 0 && n != -ETIMEDOUT)
            vv_sleep_until_ns(vv_now_ns() + SERVER_REST_NS);
    }
    s->fast->ops->close(s->fast);
    free(s);
}

int vv_layers_store(struct vv_layers *l, struct vv_store **ret_store)
{
    static const struct vv_store_ops ops = {.name = "layers",
                                            .close = layered_close,
                                            .submit = layered_submit,
                                            .poll = layered_poll,
                                            .kick = layered_kick};
    struct layered_store *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->base.ops = &ops;
    s->layers = l;
    s->done_tail = &s->done;
    int rc = vvi_layer_store(l, VV_LAYER_FAST, &s->fast);
    if (rc < 0) {
        free(s);
        return rc;
    }
    *ret_store = &s->base;
    return 0;
}
