/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the layers: layers.c (slots, versions, opening), layers_store.c (the movers'
 * stores), layers_move.c (moving between the layers). */
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

/* A version with at least one page here. Synchronization: layers->lock. */
struct vvi_lversion {
    VV_TABLE_ITEM(generation);
    uint32_t hist;
    uint64_t version, size;
    uint64_t rank; /* as next_use last gave it */
    uint32_t nchunks, npages;
    bool stuck;      /* a move of it failed: it stays where it is */
    uint32_t page[]; /* by chunk; VVI_SLOT_NONE: not here */
};

/* A page of the engine. Synchronization: layers->lock. */
struct vvi_lpage {
    struct vvi_lversion *version; /* NULL: the page is free */
    struct vvi_move *move;        /* set while it is copied to the other layer */
    uint32_t chunk;
    uint32_t slot[VV_LAYERS];        /* VVI_SLOT_NONE: no copy there */
    uint32_t clean_prev, clean_next; /* list of pages with two copies */
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

/* Consecutive chunks of a version that are moved to the other layer. */
struct vvi_move {
    struct vv_store_io io;
    struct vvi_move *next;
    char *mem; /* of move_pages pages */
    void *chunk_mem[VVI_MOVE_PAGES];
    uint32_t n, page[VVI_MOVE_PAGES];
    uint32_t src[VVI_MOVE_PAGES], dst[VVI_MOVE_PAGES]; /* slots */
    bool dead[VVI_MOVE_PAGES]; /* the page was freed meanwhile. Synchronization: layers->lock */
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
    /* Owner: the thread. The versions in the order of their last ranking, best first. */
    struct vv_layers_version *plan;
    size_t nplan, plan_room, plan_at;
    uint64_t plan_due_ns; /* when the plan is made again */
    bool restoring;       /* some history of the plan is being restored */
};

/* The slow layer for the engine's movers: one thread with a store for each direction. */
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
    /* Synchronization: lock, all below that do not say otherwise. */
    struct vvi_lslots slots[VV_LAYERS];
    struct vv_table versions;                 /* by generation */
    uint32_t clean_first, clean_last, nclean; /* pages with two copies, the oldest first */
    uint64_t queued_bytes[VV_LAYERS], last_done_ns[VV_LAYERS];
    struct vv_rate rate[VV_LAYERS][2]; /* read, write */
    struct vv_reroute reroute;         /* decides when writes bypass the fast layer */
    uint64_t farthest_rank; /* largest rank on the fast layer, as last given by next_use */
    bool restoring;
    bool stopping, stopped; /* threads; moving */
    /* Moves in flight. Synchronization: relaxed; a late look costs only time. */
    _Atomic bool given_up;
    struct vv_layers_stats stats;

    struct vvi_lserver server[2]; /* reading, writing */
    struct vvi_lmover mover[2];   /* down, up */
};

/* ---- layers.c ---- */

struct vvi_lversion *vvi_lversion_find(struct vv_layers *l, uint64_t generation);
/* The version of the request; NULL: out of memory. `ret_new`: it was created. */
struct vvi_lversion *vvi_lversion_of(struct vv_layers *l, const struct vv_store_io *io,
                                     bool *ret_new);
void vvi_lversion_unref_page(struct vv_layers *l, struct vvi_lversion *v, uint32_t chunk);
/* Number of free slots, including those of pages with another copy: such a slot can be reclaimed at once
 * unless it is being read. */
uint32_t vvi_slots_free(const struct vv_layers *l, enum vv_layer layer);
/* Takes one of them; VVI_SLOT_NONE: none. */
uint32_t vvi_slot_take(struct vv_layers *l, enum vv_layer layer);
/* Takes the slot of a page with two copies whose version has at least this rank. */
uint32_t vvi_slot_reclaim(struct vv_layers *l, enum vv_layer layer, uint64_t rank);
void vvi_slot_give(struct vv_layers *l, enum vv_layer layer, uint32_t slot);
void vvi_clean_add(struct vv_layers *l, uint32_t page);
void vvi_clean_remove(struct vv_layers *l, uint32_t page);
/* Counts transfers of a layer, for the figures and the choice of a layer. */
void vvi_layer_begins(struct vv_layers *l, enum vv_layer layer, uint64_t bytes);
void vvi_layer_ended(struct vv_layers *l, enum vv_layer layer, bool write, uint64_t bytes,
                     uint64_t begun_ns, bool good);
/* A store on one of the layers, for one thread. */
VV_WARN_UNUSED int vvi_layer_store(struct vv_layers *l, enum vv_layer layer,
                                   struct vv_store **ret_store);
/* Wakes the movers after a change that may make a move possible. */
void vvi_layers_wake_locked(struct vv_layers *l);

/* ---- layers_store.c ---- */

struct vvi_lpart;
VV_WARN_UNUSED int vvi_lserver_start(struct vv_layers *l, struct vvi_lserver *s);
void vvi_lserver_stop(struct vvi_lserver *s);

/* ---- layers_move.c ---- */

VV_WARN_UNUSED int vvi_lmover_start(struct vv_layers *l, enum vv_layer from, struct vvi_lmover *m);
/* Accepts a mover that was not started. */
void vvi_lmover_stop(struct vvi_lmover *m);
void vvi_lmover_fini(struct vvi_lmover *m);

#endif
