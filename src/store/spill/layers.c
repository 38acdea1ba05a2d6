/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two layers of pages: bookkeeping, opening and closing.
 *
 * Each layer is a spill file of its own (spill.c), divided into slots of one page. A page of the engine has a slot
 * on one layer or, after it was moved up, on both: then it is on the list of clean pages, and either slot can be
 * reclaimed at once. Invariants, under the lock:
 *
 *   - a slot belongs to one page or to one move in flight, or is free; so a layer never holds more than its slots;
 *   - a page that was written and not freed has a slot whose write has succeeded;
 *   - a slot is not reused while it is read: a page with readers keeps it, and a move owns the slots of pages that
 *     are freed meanwhile until it has ended.
 *
 * Threads, besides those of the callers' stores:
 *
 *   server x 2   the slow layer for the engine's movers, one for reading and one for writing. Each has a
 *                store, because a mover waits in one store only, that of the fast layer
 *   mover x 2    down and up between the layers; each reads a run of pages, then writes it while it
 *                reads the next
 *
 * One lock (rank STORE) for all; under it no system call is made except to wake a thread.
 *
 * Possible failures: a write that fails leaves its pages as they were, and the engine gets the error. A move
 * that fails changes nothing: the page stays where it is, and its version is not moved again.
 */
#include "store/spill/layers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "base/clock.h"
#include "store/spill/layers_private.h"
#include "store/store_private.h"

/* Fraction of the fast layer that is kept free while versions are written. */
#define LOW_PART 32

enum { RECLAIM_LOOKS = 32 };
#define MOVE_BYTES_MAX (UINT32_C(4) << 20)

/* ---- versions ---- */

struct vvi_lversion *vvi_lversion_find(struct vv_layers *l, uint64_t generation)
{
    return vv_table_find(&l->versions, generation);
}

struct vvi_lversion *vvi_lversion_of(struct vv_layers *l, const struct vv_store_io *io,
                                     bool *ret_new)
{
    struct vvi_lversion *v = vvi_lversion_find(l, io->key.generation);
    uint32_t nchunks = (uint32_t)vv_div_up(io->size, l->page_bytes);
    *ret_new = false;
    if (v)
        return v->size == io->size ? v : NULL;
    v = malloc(sizeof(*v) + nchunks * sizeof(v->page[0]));
    if (!v)
        return NULL;
    *v = (struct vvi_lversion){.hist = io->hist,
                               .version = io->key.version,
                               .generation = io->key.generation,
                               .size = io->size,
                               .nchunks = nchunks,
                               .rank = ~io->key.generation};
    memset(v->page, 0xff, nchunks * sizeof(v->page[0]));
    vv_table_add(&l->versions, v);
    *ret_new = true;
    return v;
}

void vvi_lversion_unref_page(struct vv_layers *l, struct vvi_lversion *v, uint32_t chunk)
{
    v->page[chunk] = VVI_SLOT_NONE;
    if (--v->npages > 0)
        return;
    (void)vv_table_remove(&l->versions, v);
    free(v);
}

/* ---- slots ---- */

uint32_t vvi_slots_free(const struct vv_layers *l, enum vv_layer layer)
{
    const struct vvi_lslots *s = &l->slots[layer];
    return s->nfree + (s->n - s->fresh) + l->nclean;
}

void vvi_clean_add(struct vv_layers *l, uint32_t page)
{
    struct vvi_lpage *p = &l->page[page];
    p->clean_prev = l->clean_last;
    p->clean_next = VVI_SLOT_NONE;
    if (l->clean_last != VVI_SLOT_NONE)
        l->page[l->clean_last].clean_next = page;
    else
        l->clean_first = page;
    l->clean_last = page;
    l->nclean++;
}

void vvi_clean_remove(struct vv_layers *l, uint32_t page)
{
    struct vvi_lpage *p = &l->page[page];
    if (p->clean_prev != VVI_SLOT_NONE)
        l->page[p->clean_prev].clean_next = p->clean_next;
    else
        l->clean_first = p->clean_next;
    if (p->clean_next != VVI_SLOT_NONE)
        l->page[p->clean_next].clean_prev = p->clean_prev;
    else
        l->clean_last = p->clean_prev;
    l->nclean--;
}

uint32_t vvi_slot_reclaim(struct vv_layers *l, enum vv_layer layer, uint64_t rank)
{
    uint32_t looked = 0;
    for (uint32_t i = l->clean_first; i != VVI_SLOT_NONE; i = l->page[i].clean_next) {
        struct vvi_lpage *p = &l->page[i];
        /* Pages at the head were moved up first, and are restored first. */
        if (rank > 0 && looked++ == RECLAIM_LOOKS)
            break;
        if (p->readers[layer] > 0 || p->version->rank < rank)
            continue;
        uint32_t slot = p->slot[layer];
        vvi_clean_remove(l, i);
        p->slot[layer] = VVI_SLOT_NONE;
        return slot;
    }
    return VVI_SLOT_NONE;
}

uint32_t vvi_slot_take(struct vv_layers *l, enum vv_layer layer)
{
    struct vvi_lslots *s = &l->slots[layer];
    uint32_t slot;
    if (s->nfree > 0)
        slot = s->free[--s->nfree];
    else if (s->fresh < s->n)
        slot = s->fresh++;
    else
        return vvi_slot_reclaim(l, layer, 0);
    s->used++;
    s->peak = VV_MAX(s->peak, s->used);
    return slot;
}

void vvi_slot_give(struct vv_layers *l, enum vv_layer layer, uint32_t slot)
{
    struct vvi_lslots *s = &l->slots[layer];
    vv_assert(s->used > 0 && slot < s->n);
    s->used--;
    s->free[s->nfree++] = slot;
}

/* ---- figures ---- */

void vvi_layer_begins(struct vv_layers *l, enum vv_layer layer, uint64_t bytes)
{
    l->queued_bytes[layer] += bytes;
}

/* `ns` 0: the write failed, or was too short to measure. */
static void reroute_ended(struct vv_layers *l, enum vv_layer layer, uint64_t bytes, uint64_t ns,
                          uint64_t now_ns)
{
    double own = l->rate[VV_LAYER_FAST][1].bytes_per_s,
           next = l->rate[VV_LAYER_SLOW][1].bytes_per_s;
    double rate = ns ? (double)bytes * 1e9 / (double)ns : 0;
    if (layer == VV_LAYER_SLOW)
        vv_reroute_next(&l->reroute, bytes, own, next, now_ns);
    else if (vv_reroute_own(&l->reroute, bytes, rate, own, next, now_ns))
        l->rate[VV_LAYER_FAST][1] = (struct vv_rate){
            .bytes_per_s = rate, .start_bytes_per_s = l->rate[VV_LAYER_FAST][1].start_bytes_per_s};
}

void vvi_layer_ended(struct vv_layers *l, enum vv_layer layer, bool write, uint64_t bytes,
                     uint64_t begun_ns, bool good)
{
    uint64_t now_ns = vv_now_ns(), since_ns = VV_MAX(begun_ns, l->last_done_ns[layer]);
    l->queued_bytes[layer] -= bytes;
    l->last_done_ns[layer] = now_ns;
    if (good && now_ns > since_ns)
        vv_rate_add(&l->rate[layer][write], bytes, now_ns - since_ns);
    if (write)
        reroute_ended(l, layer, bytes, good && now_ns > since_ns ? now_ns - since_ns : 0, now_ns);
    if (!good)
        return;
    *(write ? &l->stats.written_bytes[layer] : &l->stats.read_bytes[layer]) += bytes;
}

void vv_layers_get_stats(struct vv_layers *l, struct vv_layers_stats *ret_stats)
{
    vv_mutex_lock(&l->lock);
    *ret_stats = l->stats;
    for (int i = 0; i < VV_LAYERS; i++) {
        ret_stats->used_bytes[i] = (uint64_t)l->slots[i].used * l->page_bytes;
        ret_stats->peak_bytes[i] = (uint64_t)l->slots[i].peak * l->page_bytes;
        ret_stats->capacity_bytes[i] = (uint64_t)l->slots[i].n * l->page_bytes;
        ret_stats->read_bytes_per_s[i] = l->rate[i][0].bytes_per_s;
        ret_stats->write_bytes_per_s[i] = l->rate[i][1].bytes_per_s;
        ret_stats->start_read_bytes_per_s[i] = l->rate[i][0].start_bytes_per_s;
        ret_stats->start_write_bytes_per_s[i] = l->rate[i][1].start_bytes_per_s;
    }
    ret_stats->skips = l->reroute.skips;
    ret_stats->skipped = l->reroute.skipped;
    vv_mutex_unlock(&l->lock);
}

/* ---- pages that are freed ---- */

void vvi_layers_wake_locked(struct vv_layers *l)
{
    if (l->stopped)
        return;
    if (vvi_slots_free(l, VV_LAYER_FAST) < l->low_pages)
        vv_cond_signal(&l->mover[0].work);
    else if (l->slots[VV_LAYER_SLOW].used > 0)
        vv_cond_signal(&l->mover[1].work);
}

static void page_gone(struct vv_layers *l, uint32_t page)
{
    struct vvi_lpage *p = &l->page[page];
    struct vvi_move *m = p->move;
    if (!p->version)
        return;
    vv_assert(p->readers[0] == 0 && p->readers[1] == 0);
    vvi_lversion_unref_page(l, p->version, p->chunk);
    if (!m && p->slot[0] != VVI_SLOT_NONE && p->slot[1] != VVI_SLOT_NONE)
        vvi_clean_remove(l, page);
    for (int i = 0; i < VV_LAYERS; i++)
        if (p->slot[i] != VVI_SLOT_NONE && !m)
            vvi_slot_give(l, (enum vv_layer)i, p->slot[i]);
    for (uint32_t i = 0; m && i < m->n; i++)
        m->dead[i] |= m->page[i] == page;
    *p = (struct vvi_lpage){.slot = {VVI_SLOT_NONE, VVI_SLOT_NONE}};
}

void vv_layers_gone(struct vv_layers *l, uint32_t first, uint32_t n)
{
    vv_mutex_lock(&l->lock);
    for (uint32_t i = 0; i < n; i++)
        page_gone(l, first + i);
    vvi_layers_wake_locked(l);
    vv_mutex_unlock(&l->lock);
}

/* ---- opening and closing ---- */

int vvi_layer_store(struct vv_layers *l, enum vv_layer layer, struct vv_store **ret_store)
{
    struct vv_store *inner;
    int rc = vv_spill_store(l->spill[layer], &inner);
    if (rc < 0 || !l->opts.layer[layer].budget) {
        if (rc == 0)
            *ret_store = inner;
        return rc;
    }
    rc = vv_budget_store(l->opts.layer[layer].budget, inner, l->page_bytes,
                         l->opts.layer[layer].bytes_per_s, ret_store);
    if (rc < 0)
        inner->ops->close(inner);
    return rc;
}

/* Memory that is allocated on first touch. */
static void *map_lazily(size_t bytes)
{
    void *mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return mem == MAP_FAILED ? NULL : mem;
}

static int set_up_slots(struct vv_layers *l)
{
    uint64_t n = 0;
    for (int i = 0; i < VV_LAYERS; i++) {
        struct vvi_lslots *s = &l->slots[i];
        uint64_t most = l->opts.pages_max ? l->opts.pages_max - n : UINT32_MAX - 1 - n;
        s->n = (uint32_t)VV_MIN((uint64_t)vv_spill_pages(l->spill[i]), most);
        n += s->n;
        s->free_bytes = (size_t)s->n * sizeof(uint32_t);
        s->free = s->n ? map_lazily(s->free_bytes) : NULL;
        if (s->n && !s->free)
            return -ENOMEM;
    }
    l->npages = (uint32_t)n;
    l->low_pages = l->slots[VV_LAYER_FAST].n / LOW_PART;
    l->page_map_bytes = (size_t)n * sizeof(struct vvi_lpage);
    l->page = map_lazily(l->page_map_bytes);
    return l->page ? 0 : -ENOMEM;
}

static int start_threads(struct vv_layers *l)
{
    int rc = 0;
    for (int i = 0; i < 2 && rc == 0; i++)
        rc = vvi_lserver_start(l, &l->server[i]);
    for (int i = 0; i < 2 && rc == 0; i++)
        rc = vvi_lmover_start(l, (enum vv_layer)i, &l->mover[i]);
    return rc;
}

int vv_layers_new(const struct vv_layers_opts *opts, char *err, size_t err_bytes,
                  struct vv_layers **ret_layers)
{
    if (opts->layer[0].store.page_bytes != opts->layer[1].store.page_bytes)
        return vvi_error(-EINVAL, err, err_bytes, "malformed options");
    struct vv_layers *l = calloc(1, sizeof(*l));
    if (!l)
        return vvi_error(-ENOMEM, err, err_bytes, "out of memory");
    l->opts = *opts;
    l->page_bytes = opts->layer[0].store.page_bytes;
    l->clean_first = l->clean_last = VVI_SLOT_NONE;
    l->farthest_rank = UINT64_MAX; /* until it is known, no rank is larger */
    l->move_pages = VV_MAX(VV_MIN(MOVE_BYTES_MAX / l->page_bytes, (uint32_t)VVI_MOVE_PAGES), 1u);
    vv_mutex_init(&l->lock, "layers", VV_RANK_STORE);
    for (int i = 0; i < 2; i++) {
        vv_cond_init(&l->server[i].come);
        vv_cond_init(&l->mover[i].work);
    }
    int rc = 0;
    for (int i = 0; i < VV_LAYERS && rc == 0; i++) {
        const struct vv_store_opts *o = &opts->layer[i].store;
        rc = vv_spill_new(opts->layer[i].folder, opts->layer[i].bytes, o, err, err_bytes,
                          &l->spill[i]);
        vv_rate_init(&l->rate[i][0], o->read_bytes_per_s);
        vv_rate_init(&l->rate[i][1], o->write_bytes_per_s);
    }
    if (rc == 0) {
        rc = set_up_slots(l);
        if (rc == 0)
            rc = start_threads(l);
        if (rc < 0)
            vvi_error(rc, err, err_bytes, "layers: %s", strerror(-rc));
    }
    if (rc < 0) {
        vv_layers_free(l);
        return rc;
    }
    *ret_layers = l;
    return 0;
}

uint32_t vv_layers_pages(const struct vv_layers *l)
{
    return l->npages;
}

void vv_layers_stop(struct vv_layers *l)
{
    if (!l)
        return;
    vv_mutex_lock(&l->lock);
    l->stopped = true;
    atomic_store_explicit(&l->given_up, true, memory_order_relaxed);
    for (int i = 0; i < 2; i++)
        vv_cond_signal(&l->mover[i].work);
    vv_mutex_unlock(&l->lock);
    for (int i = 0; i < 2; i++)
        vvi_lmover_stop(&l->mover[i]);
}

/* Accepts layers that were opened only in part. */
void vv_layers_free(struct vv_layers *l)
{
    if (!l)
        return;
    vv_layers_stop(l);
    for (int i = 0; i < 2; i++) {
        vvi_lserver_stop(&l->server[i]);
        vvi_lmover_fini(&l->mover[i]);
        vv_cond_fini(&l->server[i].come);
        vv_cond_fini(&l->mover[i].work);
    }
    vv_table_fini_items(&l->versions);
    for (int i = 0; i < VV_LAYERS; i++) {
        if (l->slots[i].free)
            munmap(l->slots[i].free, l->slots[i].free_bytes);
        vv_spill_free(l->spill[i]);
    }
    if (l->page)
        munmap(l->page, l->page_map_bytes);
    vv_mutex_fini(&l->lock);
    free(l);
}
