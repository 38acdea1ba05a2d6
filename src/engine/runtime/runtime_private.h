/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of engine/runtime. No other module includes it. */
#ifndef VV_ENGINE_RUNTIME_PRIVATE_H
#define VV_ENGINE_RUNTIME_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/copy.h"
#include "base/lock.h"
#include "engine/runtime/gaps.h"
#include "engine/runtime/runtime.h"
#include "trace/trace.h"

enum {
    VVI_MOVER_DEPTH = 4, /* most orders in flight on a memory hop */
    VVI_LANE_DEPTH = 4,  /* copies one request keeps in flight on one stream */
    VVI_LANES = 2,
    VVI_BAD_CHUNKS = 8,
    VVI_CONTROL_IOS = 8, /* commits and removals in flight beside the writes */
    VVI_TOUCHERS = 16,   /* most threads that touch host memory */
    VVI_SLICE_BYTES =
        32 << 20, /* host memory is registered with the device in slices of this size */
};

/* Orders that wait for their carrier, linked through order->runtime.
 * Synchronization: engine lock. */
struct vvi_order_queue {
    struct vv_order *head, *tail;
};

static inline void vvi_order_push(struct vvi_order_queue *q, struct vv_order *o)
{
    o->runtime = NULL;
    if (q->tail)
        q->tail->runtime = o;
    else
        q->head = o;
    q->tail = o;
}

static inline struct vv_order *vvi_order_pop(struct vvi_order_queue *q)
{
    struct vv_order *o = q->head;
    if (o) {
        q->head = o->runtime;
        if (!q->head)
            q->tail = NULL;
        o->runtime = NULL;
    }
    return o;
}

/* The thread that carries out the copies of one hop in one direction. */
struct vvi_mover {
    struct vv_engine *engine;       /* immutable */
    enum vv_hop hop;                /* immutable */
    struct vv_store *store;         /* immutable; storage hops only; used by the mover's thread */
    struct disk_worker *disk;       /* storage hops only. Synchronization: engine lock */
    struct vvi_order_queue queue;   /* Synchronization: engine lock */
    struct vvi_order_queue control; /* commits and removals. Synchronization: engine lock */
    /* True if a queue may hold something. Synchronization: stored under the engine lock, relaxed;
     * if it is seen late, an order waits for the next check. */
    _Atomic bool more;
    bool kick;           /* to be woken from poll at unlock. Synchronization: engine lock */
    struct vv_cond cond; /* orders came, or stop */
    bool polling;        /* the thread is inside store->poll. Synchronization: engine lock */
    bool runs;           /* its thread exists. Owner: the thread that opens and closes the engine */
    pthread_t thread;
};

/* A stream with the copies in flight on it, oldest first. Owned by the thread of one request. */
struct vvi_lane {
    struct vv_stream *stream;
    bool ordered; /* this request's copies on it come after the application's work */
    struct vv_event *event[VVI_LANE_DEPTH];
    struct vv_order *order[VVI_LANE_DEPTH];
    unsigned head, count;
};

/* Streams for a request on device memory: one for each copy engine that may serve it, so that the
 * part on the device and the part on the host move at the same time. Kept for later requests. */
struct vvi_lanes {
    struct vvi_lane lane[VVI_LANES];
    struct vvi_lanes *next; /* Synchronization: engine lock, while in the pool */
};

struct vvi_on;

/* A request under way. Made by the application's thread, and used again when it has ended. */
struct vvi_req {
    struct vv_req req;
    struct vv_cond cond;             /* signalled with the engine lock held */
    struct vvi_order_queue orders;   /* Synchronization: engine lock */
    bool done;                       /* Synchronization: engine lock */
    const struct vv_engine_app *app; /* until the call returns */
    struct vvi_lanes *lanes;         /* owner thread */
    uint32_t chunks_left;            /* not yet submitted to a lane. Owner thread */
    bool failed;                     /* a submitted copy has failed. Owner thread */
    uint64_t end_ns;                 /* when its last copy had ended. Owner thread */
    struct vvi_req *next;            /* in the pool, or among the finished */
    struct vvi_on *on;               /* ordered by a stream: the call that it belongs to, or NULL */
};

/* Work that was put on a stream of the application, up to one event. See runtime_on.c. */
struct vvi_batch {
    struct vv_event *event;
    struct vvi_order_queue orders; /* to be completed when it fires */
    int status;                    /* first error of querying it, while it may still be running */
    struct vv_engine_lend *lend;   /* to be given back when it fires */
    /* For a family: its place, and the work it has waited for. See runtime_ahead.c. */
    uint8_t family, lane;
    uint64_t seq, wait[VV_LANES];
    struct vvi_batch *next;
};

/* Batches on one stream of a family, or on EARLY, whose end the core has not seen: `first` up to,
 * but not including, `end`, at their numbers modulo `cap`. Synchronization: engine lock. */
struct vvi_ring {
    struct vvi_batch **batch;
    uint64_t first, end, cap;
};

/* Puts orders that run ahead on lanes. A group is EARLY, 0, or a family.
 * Synchronization: engine lock; fields of the group's owner say so. */
struct vvi_ahead {
    struct vvi_order_queue queue[VV_FAMILIES + 1]; /* copies to be put on a lane */
    bool owned[VV_FAMILIES + 1];                   /* a thread puts work on the group's streams */
    struct vv_cond free;                           /* a group has lost its owner */
    struct vv_stream *stream[VV_STREAMS]; /* the library's. Owner: the group's; then immutable */
    uint64_t waited[VV_STREAMS]
                   [VV_LANES]; /* dependencies of the stream up to here. Owner: the group's */
    struct vvi_ring ring[VV_STREAMS];
    struct vvi_batch *spare[VV_FAMILIES + 1];
};

/* Pages lent to the application. See runtime_lend.c. */
struct vv_engine_lend {
    struct vv_lend lend;
    uint32_t hist;
    uint64_t version, generation; /* acquired: of the version that was lent */
    bool consume;                 /* its return counts as a restore */
    unsigned uses; /* the application, a copy from or to it, its return: given back when none is
                      left. Synchronization: engine lock */
};

/* The thread that waits for the application's streams. */
struct vvi_watcher {
    struct vv_mutex start_lock; /* around starting it */
    _Atomic bool started; /* Synchronization: stored with release under start_lock, after everything
                             that the thread needs; loaded with acquire */
    pthread_t thread;
    struct vv_stream *stream; /* used by the thread only, for errors */
    struct vv_event *settled;
    /* Synchronization: engine lock, all below. */
    struct vvi_batch *incoming, *spare;
    bool idle; /* it sleeps until there is a batch */
    bool wake; /* to be woken at unlock */
    struct vv_cond cond;
    uint64_t pending; /* requests whose calls have returned */
};

/* A chunk whose checksum did not match. */
struct vvi_bad_chunk {
    bool set;
    uint64_t version, generation;
    uint32_t chunk;
    int tier;
};

struct vvi_engine_hist {
    struct vv_files *files;
    uint64_t inflight; /* orders for movers, issued and not completed */
    /* Being dropped: the core may give the number to a new history as soon as the last order has
     * ended, but the dropping thread reads this record once more after that, having released the
     * lock. */
    bool draining;
    bool dropped; /* no call can ask for its errors any more */
    /* The last chunks whose bytes did not verify, each of another version. Several, because
     * prefetching continues with the next version while the error of this one is being returned to
     * the caller. */
    struct vvi_bad_chunk bad[VVI_BAD_CHUNKS];
    uint32_t bad_next;
    /* A failed removal that no call has reported yet. See keep_removal_error_locked. */
    struct {
        int err, tier;
        uint64_t version;
    } unremoved;
    uint64_t ordered;      /* requests that wait for a stream of the application */
    struct vvi_on *failed; /* requests that failed and are not reported yet; oldest first */
};

/* Copies between host memory and host memory, slowed down to a rate for measurements.
 * Synchronization: its own lock, of rank MOVER. */
struct vvi_pacer {
    struct vv_mutex lock;
    uint64_t bytes_per_s; /* immutable; 0: do not pace */
    uint64_t next_free_ns;
};

/* Time of the pinner, by activity. */
struct vvi_grow_spent {
    uint64_t touching_ns, passing_ns, registering_ns, resting_ns;
    uint64_t slowest_ns;  /* the slowest registration */
    uint64_t expected_ns; /* expected duration of the next registration */
    uint64_t lap_ns;      /* time at which the last activity ended */
    unsigned turns;
};

/* The host cache while it is made ready, slice by slice. See runtime_grow.c. */
struct vvi_grow {
    unsigned tier; /* immutable once open, as is all of this block */
    char *base;
    size_t bytes, nslices; /* of the cache, transit pages not counted */
    bool shared;           /* with the helper process */
    bool own_cores; /* the library has processors of its own: its work disturbs no other thread */
    bool transit_pinned;
    bool runs; /* the pinner exists. Owner: the thread that opens and closes the engine */
    pthread_t pinner, toucher[VVI_TOUCHERS];
    unsigned ntouchers;

    struct vv_mutex lock; /* rank MOVER */
    struct vv_cond cond;  /* a turn has begun, the last piece of one was touched, or stop */
    bool turn;            /* of the touchers. Synchronization: lock */
    uint64_t until_ns;    /* end of that turn. Synchronization: lock */
    size_t least;         /* pieces before this one belong to the turn. Synchronization: lock */
    size_t next;          /* next piece to be touched. Synchronization: lock */
    unsigned touching;    /* pieces being touched. Synchronization: lock */
    int error;            /* the error that ended touching, or 0. Synchronization: lock */
    size_t failed;        /* with an error, the first untouched piece. Synchronization: lock */
    _Atomic bool stop;    /* set under the lock; read relaxed between two pieces of work */
    size_t nready; /* Owner: the pinner; without it, the thread that opens and closes the engine */
    bool refused;  /* the device has refused a slice. Owner: the pinner */
    struct vvi_grow_spent spent; /* Owner: the pinner */
    char text[160];              /* Synchronization: written before `late` is set */
    _Atomic int late;            /* an error that no call has reported yet */
};

struct vv_engine {
    struct vv_engine_cfg cfg;    /* immutable */
    struct vv_core_cfg core_cfg; /* immutable */
    unsigned ntiers;             /* immutable, as is all of this block once open */
    enum vv_tier_kind kind[VV_MAX_TIERS];
    char *base[VV_MAX_TIERS];          /* buffers of the memory tiers */
    uint64_t first_part[VV_MAX_TIERS]; /* numbers from here on are parts of pages */
    size_t base_bytes[VV_MAX_TIERS];
    struct vvi_grow grow; /* see there */
    struct vvi_pacer h2h;
    /* Synchronization: stored with release when it was made, loaded with acquire. */
    _Atomic(struct vv_copy_pool *) copy_pool;

    /* Synchronization: relaxed. A stale value costs one more call that fails. */
    _Atomic bool device_lost;
    /* Requests of the application on device memory under way. Synchronization: relaxed; if it is
     * seen late, one of them waits for a registration. */
    _Atomic uint32_t device_calls;
    struct vvi_gaps gaps; /* between these requests */
    /* Checkpoints that wait for room. Synchronization: as device_calls. */
    _Atomic uint32_t starved;

    /* Protects the core and every field marked with it. Never held across a copy, a wait for a
     * device or a system call. */
    struct vv_mutex lock;
    struct vv_core *core;
    struct vvi_engine_hist *hist; /* by history number */
    uint32_t nhist;
    struct vv_cond idle; /* some inflight count reached 0, a drop ended, or see `lingering` */
    unsigned lingering;  /* calls that wait until discarded versions are gone */
    struct vvi_order_queue removals; /* to be handed to their mover when they delay no other work */
    uint64_t inflight;               /* orders of all histories */
    bool stopping;
    struct vvi_lanes *spare_lanes;
    struct vvi_req *spare_reqs;

    /* Requests that have already returned success, newest first, to be completed by the next thread
     * that takes the lock. See runtime_finish.c. Synchronization: pushed with release, taken with
     * acquire by the holder of the lock. */
    _Atomic(struct vvi_req *) finished;
    /* Requests that will be pushed soon. Synchronization: decremented with release after the push,
     * read with acquire by the finisher. */
    _Atomic uint32_t finishing;
    struct vv_mutex finisher_lock; /* rank MOVER */
    struct vv_cond finisher_cond;
    bool finisher_awake, finisher_stop; /* Synchronization: finisher_lock */
    bool finisher_runs;                 /* its thread exists */
    pthread_t finisher;

    struct vvi_mover mover[VV_HOP_COUNT]; /* of hops that have threads */
    struct vvi_watcher watcher;
    struct vvi_ahead ahead;
};

/* Hands out the orders that the core has issued since the last call. Engine lock held. */
void vvi_engine_dispatch_locked(struct vv_engine *e);
/* Reports the end of an order and dispatches the orders that follow. Engine lock held. */
void vvi_engine_complete_locked(struct vv_engine *e, struct vv_order *o, int status);
/* The same for an order that ended at `now_ns`. */
void vvi_engine_complete_at_locked(struct vv_engine *e, struct vv_order *o, int status,
                                   uint64_t now_ns);
/* Takes the engine lock, and completes the requests that have finished meanwhile. */
void vvi_engine_lock(struct vv_engine *e);
/* Completes the requests that have finished, for a thread that holds the engine lock again after a
 * wait. */
void vvi_engine_drain_locked(struct vv_engine *e);
/* Unlocks, then wakes the watcher and movers that wait inside a store, which takes system calls. */
void vvi_engine_unlock(struct vv_engine *e);
/* Waits on a condition variable of the engine lock, with those wake-ups done first. 0, perhaps
 * without a signal, or -ETIMEDOUT. */
int vvi_engine_wait_locked(struct vv_engine *e, struct vv_cond *cond, uint64_t deadline_ns);

/* The record of a version, or NULL. Engine lock held. */
static inline struct vvi_bad_chunk *vvi_bad_chunk_find(struct vvi_engine_hist *h, uint64_t version,
                                                       uint64_t generation)
{
    for (int i = 0; i < VVI_BAD_CHUNKS; i++)
        if (h->bad[i].set && h->bad[i].version == version && h->bad[i].generation == generation)
            return &h->bad[i];
    return NULL;
}

/* The address of a page or of a part of one. */
static inline char *vvi_engine_page(const struct vv_engine *e, int tier, uint32_t page)
{
    if (page >= e->first_part[tier])
        return e->base[tier] + vv_core_page_offset(e->core, (unsigned)tier, page);
    return e->base[tier] + (uint64_t)page * e->cfg.page_bytes;
}

/* Bytes of chunk `chunk` of an object. */
static inline uint64_t vvi_order_chunk_bytes(const struct vv_engine *e, const struct vv_order *o,
                                             uint32_t chunk)
{
    uint64_t from = (uint64_t)chunk * e->cfg.page_bytes;
    return VV_MIN((uint64_t)e->cfg.page_bytes, o->size - from);
}

/* ---- traces ---- */

static inline uint64_t vvi_trace_history_of(const struct vv_engine *e, const struct vv_order *o)
{
    return VV_TRACE_HISTORY(e->cfg.trace_id, o->hist);
}

static inline void vvi_trace_copy_start(const struct vv_engine *e, const struct vv_order *o)
{
    vv_trace5(VV_TRACE_COPY_START, VV_TRACE_ROUTE(o->hop, o->src_tier, o->dst_tier),
              vvi_trace_history_of(e, o), o->version, o->chunk0, o->bytes);
}

static inline void vvi_trace_copy_end(const struct vv_engine *e, const struct vv_order *o,
                                      int status)
{
    vv_trace5(VV_TRACE_COPY_END, VV_TRACE_ROUTE(o->hop, o->src_tier, o->dst_tier),
              vvi_trace_history_of(e, o), o->version, o->chunk0, (uint64_t)(int64_t)status);
}

/* The same for a copy that was seen to end earlier. */
static inline void vvi_trace_copy_ended(const struct vv_engine *e, const struct vv_order *o,
                                        uint64_t end_ns)
{
    if (!vv_trace_enabled())
        return;
    const uint64_t arg[VV_TRACE_ARGS] = {VV_TRACE_ROUTE(o->hop, o->src_tier, o->dst_tier),
                                         vvi_trace_history_of(e, o), o->version, o->chunk0, 0};
    vv_trace_at(end_ns, VV_TRACE_COPY_END, arg);
}

/* ---- runtime_mem.c ---- */
/* Fails if the machine does not have that much memory. Called before the core sizes its tables by
 * it. */
int vvi_engine_mem_check(const struct vv_engine_cfg *cfg, char *err, size_t err_bytes);
int vvi_engine_mem_init(struct vv_engine *e, char *err, size_t err_bytes);
void vvi_engine_mem_fini(struct vv_engine *e);

/* ---- runtime_grow.c ---- */
/* Memory that the system can still give, 0 if unknown. Tests replace it before any engine is
 * open. */
extern uint64_t (*vvi_memory_available)(void);
/* The longest time that memory is touched before it is registered. Tests replace it likewise: with
 * 0, turns are of one slice. */
extern uint64_t vvi_grow_turn_ns;
/* Makes the transit pages and the first slice of a host tier that is mapped. */
int vvi_grow_init(struct vv_engine *e, unsigned tier, char *err, size_t err_bytes);
/* Starts making the rest, if there is any. */
int vvi_grow_start(struct vv_engine *e);
/* Returns when no thread makes any more of it. */
void vvi_grow_stop(struct vv_engine *e);
/* Unregisters the slices that were registered. */
void vvi_grow_fini(struct vv_engine *e);

void vvi_pacer_init(struct vvi_pacer *p, uint64_t bytes_per_s);
void vvi_pacer_fini(struct vvi_pacer *p);
/* Sleeps until a copy of so many bytes that began at start_ns may end. */
void vvi_pacer_end(struct vvi_pacer *p, uint64_t start_ns, uint64_t bytes);

/* ---- runtime_device.c ---- */
/* Adds a segment, joined to the last one if it continues it on both sides. Returns the new number
 * of segments. */
size_t vvi_seg_add(struct vv_copy_seg *segs, size_t n, char *dst, const char *src, size_t bytes);
/* Starts copies, unless the device is lost. */
int vvi_device_copy(struct vv_engine *e, struct vv_stream *stream, const struct vv_copy_seg *segs,
                    size_t n);
/* After an error on a stream: returns when its copies have stopped touching memory. */
void vvi_device_settle(struct vv_engine *e, struct vv_stream *stream, struct vv_event *event,
                       int error);
/* Returns when the device has ended all work submitted so far, the application's included, or counts
 * it as lost. */
void vvi_device_drain(struct vv_engine *e);
int vvi_device_mover_start(struct vv_engine *e, enum vv_hop hop);

/* ---- runtime_disk.c ---- */
/* The history is dropped: its requests no longer wait for the rate limit. */
void vvi_disk_give_up_locked(struct vv_engine *e, uint32_t hist);
/* True if everything under way is in the store: then nothing else will make room. */
bool vvi_disk_alone_locked(const struct vv_engine *e, const struct vvi_mover *m);
int vvi_disk_mover_start(struct vv_engine *e, enum vv_hop hop, struct vv_store *store);

/* ---- runtime_app.c ---- */
/* The threads that help to copy in host memory, started by the first copy that is worth it. NULL:
 * the caller copies alone. */
struct vv_copy_pool *vvi_copy_pool(struct vv_engine *e, uint64_t bytes);
/* A request for `size` bytes of `app`, NULL if memory is lacking. Engine lock held. */
struct vvi_req *vvi_req_new_locked(struct vv_engine *e, const struct vv_engine_app *app,
                                   uint64_t size);
/* Back to the pool. Engine lock held. */
void vvi_req_put_locked(struct vv_engine *e, struct vvi_req *r);
/* Runs a request that the core has taken until it ends, and gives it back. Engine lock held on
 * entry, released on return. */
int vvi_req_run(struct vv_engine *e, struct vvi_req *r, uint64_t deadline_ns);
/* Completes the copies of a request on its lanes, after all have ended well. */
void vvi_req_complete_locked(struct vv_engine *e, struct vvi_req *r);
void vvi_reqs_free(struct vv_engine *e);

/* ---- runtime_finish.c ---- */
int vvi_finisher_start(struct vv_engine *e);
void vvi_finisher_stop(struct vv_engine *e);
/* A request will be finished soon: wakes the finisher. */
void vvi_finisher_wake(struct vv_engine *e);
/* After vvi_finisher_wake: the request will not be pushed after all, and continues under the lock. */
void vvi_finisher_forget(struct vv_engine *e);
/* Leaves the completion of the request to the next thread that takes the lock. The engine owns the
 * request from now on. */
void vvi_finish(struct vv_engine *e, struct vvi_req *r);

/* ---- runtime.c ---- */
/* Continues after a call of the core for a request: `rc` is its immediate result. Engine lock held
 * on entry, released on return. */
int vvi_request_finish(struct vv_engine *e, struct vvi_req *r, int rc, uint64_t deadline_ns);

/* ---- runtime_lend.c ---- */
void vvi_lend_unuse_locked(struct vv_engine *e, struct vv_engine_lend *lend);

/* ---- runtime_on.c ---- */
/* A request that a stream orders. */
struct vvi_on_args {
    enum vv_req_kind kind; /* PUT or GET */
    bool lent;             /* PUT: `lends` become the version's pages */
    uint32_t hist;
    uint64_t version, generation; /* GET: generation */
    uint64_t size, user;          /* PUT */
    const struct vv_engine_app *app;
    struct vv_engine_lend *const *lends; /* in use until it has ended */
    size_t nlends;
    void *native;
    uint64_t deadline_ns;
};
/* `ret_accepted`: the core has taken the request, even if the call fails. */
int vvi_on_call(struct vv_engine *e, const struct vvi_on_args *args, bool *ret_accepted,
                uint32_t *ret_distance);
/* A request or copy ordered by a stream has ended. Engine lock held, as for all below. */
void vvi_ordered_end_locked(struct vv_engine *e, uint32_t hist);
void vvi_orders_end_locked(struct vv_engine *e, struct vvi_order_queue *orders, int status);
void vvi_watcher_wake_locked(struct vv_engine *e);
/* Queries the event of the batch. true: its work has ended, with b->status. Without the lock. */
bool vvi_batch_ended(struct vv_engine *e, struct vvi_batch *b);
/* `b`: a spare one, or NULL. Without the lock. */
int vvi_batch_init(struct vv_engine *e, struct vvi_batch *b, struct vvi_batch **ret_batch);

/* ---- runtime_ahead.c ---- */
void vvi_lanes_ahead_init(struct vv_engine *e);
/* No copy is on any lane, and the watcher has ended. */
void vvi_lanes_ahead_fini(struct vv_engine *e);
/* Identifies the stream and creates what it needs to run ahead; 0: it cannot. Without the lock. */
uint64_t vvi_ahead_stream_id(struct vv_engine *e, struct vv_stream *stream);
unsigned vvi_ahead_family_locked(struct vv_engine *e, uint64_t stream_id);
/* Queues a copy to be put on a lane. */
void vvi_ahead_push_locked(struct vv_engine *e, struct vv_order *o);
/* Puts copies that wait for the family's lanes, or for EARLY, on them. False: there are none. The
 * lock is released in between. */
bool vvi_ahead_submit_locked(struct vv_engine *e, unsigned family);
/* Puts orders of a request of the family on its stream. The lock is released in between. */
void vvi_ahead_app_locked(struct vv_engine *e, unsigned family, struct vv_stream *stream,
                          const struct vv_engine_app *app, struct vvi_order_queue *orders);
/* True if a copy is on a lane, or to be put there. */
bool vvi_ahead_pending_locked(const struct vv_engine *e);
/* For the watcher: queries all lanes, completes copies that have ended, and puts waiting copies on
 * lanes that no call serves. The lock is released in between. True: something has happened. */
bool vvi_ahead_watch_locked(struct vv_engine *e);

/* Gives the pages back when the stream has come to this point. */
int vvi_on_release(struct vv_engine *e, struct vv_engine_lend *lend, void *native);
void vvi_watcher_init(struct vv_engine *e);
/* Waits until the application's streams have no work for the engine. Before the movers are
 * stopped. */
void vvi_watcher_drain_locked(struct vv_engine *e);
/* After `stopping` was set, without the lock. */
void vvi_watcher_fini(struct vv_engine *e);
/* The core has ended the request. Engine lock held. */
void vvi_on_ended_locked(struct vv_engine *e, struct vvi_on *on);
/* The core's `version_lost`: keeps the error for the next caller. Engine lock held. */
bool vvi_on_lost_locked(void *arg, uint32_t hist, uint64_t version, int status);
/* Forgets unreported errors. Engine lock held. */
void vvi_on_forget_locked(struct vv_engine *e, uint32_t hist);

#endif
