/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the layers share: layers.c (slots, versions, opening), layers_store.c (the stores
 * of the movers), layers_move.c (moving between the layers). */
#ifndef VV_STORE_LAYERS_PRIVATE_H
#define VV_STORE_LAYERS_PRIVATE_H

#include <pthread.h>

#include "base/lock.h"
#include "base/table.h"
#include "policy/predict.h"
#include "policy/reroute.h"
#include "store/budget.h"
#include "store/spill/layers.h"

#define VVI_SLOT_NONE UINT32_MAX

/* A version of which some page is here. Synchronization: layers->lock. */
struct vvi_lversion {
    VV_TABLE_ITEM(generation);
    uint32_t hist;
    uint64_t version, size;
    uint64_t rank; /* when it was last asked for */
    uint32_t nchunks, npages;
    bool stuck;      /* a move of it failed: it stays where it is */
    uint32_t page[]; /* by chunk; VVI_SLOT_NONE: not here */
};

/* A page of the engine's. Synchronization: layers->lock. */
struct vvi_lpage {
    struct vvi_lversion *version; /* NULL: it holds nothing */
    struct vvi_move *move;        /* it is being copied to the other layer */
    uint32_t chunk;
    uint32_t slot[VV_LAYERS];        /* VVI_SLOT_NONE: no copy there */
    uint32_t clean_prev, clean_next; /* on the list of those with two copies */
    uint16_t readers[VV_LAYERS];
    bool ready; /* it has been written */
};

/* The slots of one layer. Synchronization: layers->lock. */
struct vvi_lslots {
    uint32_t n, fresh, nfree, used, peak; /* fresh: the first that was never used */
    uint32_t *free;                       /* a stack */
    size_t free_bytes;
};

enum { VVI_MOVE_PAGES = 64 };

/* Consecutive chunks of a version on their way to the other layer. */
struct vvi_move {
    struct vv_store_io io;
    struct vvi_move *next;
    char *mem; /* of move_pages pages */
    void *chunk_mem[VVI_MOVE_PAGES];
    uint32_t n, page[VVI_MOVE_PAGES];
    uint32_t src[VVI_MOVE_PAGES], dst[VVI_MOVE_PAGES]; /* slots */
    bool dead[VVI_MOVE_PAGES]; /* the page is nobody's by now. Synchronization: layers->lock */
    uint64_t begun_ns;
};

/* One direction of moving: a thread with a store on either layer. */
struct vvi_lmover {
    struct vv_layers *layers;
    enum vv_layer from, to;
    struct vv_store *src, *dst;
    pthread_t thread;
    bool started;
    struct vv_cond work; /* with layers->lock */
    struct vvi_move move[3], *spare;
    char *mem;   /* of all three, owned; immutable, as the next */
    bool shared; /* with the helper process */
    /* Owner: the thread. The versions as they were last ranked, best first. */
    struct vv_layers_version *plan;
    size_t nplan, plan_room, plan_at;
    uint64_t plan_due_ns; /* when it is to be made anew */
    bool restoring;       /* some history of the plan is */
};

/* The slow layer for the movers of the engine: a thread with a store for each direction. */
struct vvi_lserver {
    struct vv_layers *layers;
    struct vv_store *store;
    pthread_t thread;
    bool started;
    struct vv_cond come;
    struct vvi_lpart *queue, **tail; /* Synchronization: layers->lock, as the next two */
    unsigned pending;                /* queued or in the store */
    bool polls;
};

struct vv_layers {
    struct vv_layers_opts opts; /* immutable, down to low_pages */
    struct vv_spill *spill[VV_LAYERS];
    uint32_t npages, page_bytes, move_pages, low_pages;
    struct vvi_lpage *page; /* Synchronization: lock */
    size_t page_map_bytes;

    struct vv_mutex lock;
    /* Synchronization: lock, all below. */
    struct vvi_lslots slots[VV_LAYERS];
    struct vv_table versions;                 /* by generation */
    uint32_t clean_first, clean_last, nclean; /* pages with two copies, the oldest first */
    uint64_t queued_bytes[VV_LAYERS], last_done_ns[VV_LAYERS];
    struct vv_rate rate[VV_LAYERS][2]; /* read, write */
    struct vv_reroute reroute;         /* of the fast one, past it */
    uint64_t farthest_rank;            /* of what the fast layer holds, when it was last asked */
    bool restoring;
    bool stopping, stopped; /* threads; moving */
    _Atomic bool
        given_up; /* moves under way. Synchronization: relaxed; a late look costs time only */
    struct vv_layers_stats stats;

    struct vvi_lserver server[2]; /* reading, writing */
    struct vvi_lmover mover[2];   /* down, up */
};

/* ---- layers.c ---- */

struct vvi_lversion *vvi_lversion_find(struct vv_layers *l, uint64_t generation);
/* The version that the request is about; NULL: no memory for it. `ret_new`: it was not known. */
struct vvi_lversion *vvi_lversion_of(struct vv_layers *l, const struct vv_store_io *io,
                                     bool *ret_new);
void vvi_lversion_unref_page(struct vv_layers *l, struct vvi_lversion *v, uint32_t chunk);
/* Free slots, with those of pages that have another: unless one is being read just now, it can be had
 * back at once. */
uint32_t vvi_slots_free(const struct vv_layers *l, enum vv_layer layer);
/* One of them; VVI_SLOT_NONE: there is none. */
uint32_t vvi_slot_take(struct vv_layers *l, enum vv_layer layer);
/* That of a page with two copies whose version ranks so far away at least. */
uint32_t vvi_slot_reclaim(struct vv_layers *l, enum vv_layer layer, uint64_t rank);
void vvi_slot_give(struct vv_layers *l, enum vv_layer layer, uint32_t slot);
void vvi_clean_add(struct vv_layers *l, uint32_t page);
void vvi_clean_remove(struct vv_layers *l, uint32_t page);
/* Transfers of a layer, for the figures and the choice between layers. */
void vvi_layer_begins(struct vv_layers *l, enum vv_layer layer, uint64_t bytes);
void vvi_layer_ended(struct vv_layers *l, enum vv_layer layer, bool write, uint64_t bytes,
                     uint64_t begun_ns, bool good);
/* A store on one of the layers, for a thread of its own. */
VV_WARN_UNUSED int vvi_layer_store(struct vv_layers *l, enum vv_layer layer,
                                   struct vv_store **ret_store);
/* Something has changed that may make a move possible. */
void vvi_layers_wake_locked(struct vv_layers *l);

/* ---- layers_store.c ---- */

struct vvi_lpart;
VV_WARN_UNUSED int vvi_lserver_start(struct vv_layers *l, struct vvi_lserver *s);
void vvi_lserver_stop(struct vvi_lserver *s);

/* ---- layers_move.c ---- */

VV_WARN_UNUSED int vvi_lmover_start(struct vv_layers *l, enum vv_layer from, struct vvi_lmover *m);
/* Accepts one that was not started. */
void vvi_lmover_stop(struct vvi_lmover *m);
void vvi_lmover_fini(struct vvi_lmover *m);

#endif
