/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine/core: every rule about objects, tiers, hints, space and waiting, as a state machine.
 *
 * It does no I/O, takes no lock, starts no thread and reads no clock. It is driven by three kinds
 * of call:
 *
 *   requests      vv_core_put, _get, _hint, _wait, _discard, ...      from the application
 *   completions   vv_core_complete(order, status)                     from the carrier of an order
 *   time          `now_ns`, passed in with each of them
 *
 * After every call the caller drains vv_core_next_order() and carries the orders out:
 * engine/runtime with threads, lab/sim in virtual time, tests by hand. Calls on one core are made by
 * one thread at a time (the runtime holds its engine lock).
 *
 * An object is one checkpoint version, cut in chunks of one page each; chunk c covers bytes
 * [c * page, min((c + 1) * page, size)). Space on arena tiers is kept in pages; a copy may be
 * partly resident.
 */
#ifndef VV_ENGINE_CORE_H
#define VV_ENGINE_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"
#include "policy/policy.h"

enum {
    VV_MAX_TIERS = 3, /* device, host, and spill or files */
    VV_TIER_APP = -1, /* the application's own memory, as source or destination of an order */
    VV_ORDER_MAX_PAGES = 1024, /* most chunks that one order moves */
    VV_FAMILIES = 4,           /* streams of the application that may run ahead at a time */
};

/*
 * Lanes of orders that run ahead (see ahead.c). A family is one stream of the application and two
 * streams of the library: copies down and up that may have to wait for it. Copies on EARLY, which
 * all families share, wait for nothing.
 */
enum vv_lane { VV_LANE_EARLY, VV_LANE_APP, VV_LANE_DOWN, VV_LANE_UP, VV_LANES };

enum { VV_STREAMS = 1 + VV_FAMILIES * (VV_LANES - 1) };

/* The index of a lane among all streams, 0 for EARLY. Families count from 1. */
static inline unsigned vv_lane_stream(unsigned family, enum vv_lane lane)
{
    return lane == VV_LANE_EARLY ? 0 : 1 + (family - 1) * (VV_LANES - 1) + (unsigned)lane - 1;
}

enum vv_tier_kind {
    VV_TIER_DEVICE, /* arena of device memory */
    VV_TIER_HOST,   /* arena of host memory; always present, if only for its transit pages */
    VV_TIER_SPILL,  /* arena in one pre-allocated file, level `cached` */
    VV_TIER_FILES,  /* one committed file per version, level `local` and above */
};

/* A hop is one direction of one link. H2F and F2H are writes and reads of the disk, from and to
 * either memory. H2H is the memory copy between the application's host buffers and the host tier;
 * D2D is the same within a device. */
enum vv_hop {
    VV_HOP_D2D,
    VV_HOP_H2H,
    VV_HOP_D2H,
    VV_HOP_H2D,
    VV_HOP_H2F,
    VV_HOP_F2H,
    VV_HOP_COUNT,
};

const char *vv_hop_name(enum vv_hop hop);
const char *vv_tier_kind_name(enum vv_tier_kind kind);

/* The life cycle of a copy: see docs/states.md, generated from the table in states.c. */
enum vv_copy_state {
    VV_COPY_INIT,
    VV_COPY_WRITE_IN_PROGRESS,
    VV_COPY_WRITE_COMPLETE,
    VV_COPY_FLUSHED,
    VV_COPY_READ_IN_PROGRESS,
    VV_COPY_READ_COMPLETE,
    VV_COPY_CONSUMED,
    VV_COPY_STATE_COUNT,
};

const char *vv_copy_state_name(enum vv_copy_state state);
bool vv_copy_state_may_change(enum vv_copy_state from, enum vv_copy_state to);

struct vv_core;
struct vv_object;

struct vv_core_cfg {
    uint32_t page_bytes;
    unsigned ntiers; /* fast to slow */
    struct {
        enum vv_tier_kind kind;
        uint64_t capacity_bytes; /* rounded down to pages; 0 on VV_TIER_FILES and VV_TIER_SPILL: the
                                    core sets no limit */
        bool grows; /* an arena whose pages are made while it is in use: at first only its transit
                       pages are ready, and vv_core_grow() reports the others */
    } tier[VV_MAX_TIERS];
    enum vv_policy policy;
    uint32_t transit_pages;             /* host pages kept for passing through, in each direction */
    uint64_t rate[VV_HOP_COUNT];        /* bytes/s, first estimates; 0: unknown */
    uint32_t slots[VV_HOP_COUNT];       /* orders in flight on each hop at most (movers only) */
    uint32_t batch_pages[VV_HOP_COUNT]; /* most pages in one order, at most VV_ORDER_MAX_PAGES */
    /* The movers of the disk can access device memory (GPUDirect Storage). Chunks that would only
     * pass through a full host tier then go past it, in an order of hop H2F or F2H whose other end
     * is the device. Downwards whole pages only. Under paged policies only. */
    bool gds;
    bool disk_shared; /* reads and writes of the disk share its bandwidth */
    /* VV_TIER_FILES: data written to a file can be read back before the commit, while the disk
     * keeps it, so memory releases it page by page. If false, memory keeps all of it until the
     * commit. */
    bool written_stays;
    bool check; /* assert every invariant after every call: tests and debugging */
    /* Called when an object with this `user` word has been freed. May be NULL. */
    void (*release_user)(void *arg, uint64_t user);
    void *release_arg;
    uint32_t trace_id; /* of the context, in traces */
    /* Size of the committed file of such an object; NULL: an estimate. With release_arg. */
    uint64_t (*file_bytes)(void *arg, uint64_t size, uint64_t user);
    /* Called when these pages of a spill tier have become empty. May be NULL. With release_arg. */
    void (*pages_gone)(void *arg, uint32_t first, uint32_t n);
    /* Called when a written version is lost: the copy that should have saved its bytes failed after
     * their pages had been used again. Returns false without memory to record that. May be NULL.
     * With release_arg. */
    bool (*version_lost)(void *arg, uint32_t hist, uint64_t version, int status);
};

enum vv_order_kind {
    VV_ORDER_COPY,   /* move chunks between two tiers: the mover of `hop` does it */
    VV_ORDER_APP,    /* move chunks between the application's memory and a tier: the thread of `req`
                        does it */
    VV_ORDER_COMMIT, /* VV_TIER_FILES: all chunks are written, make the file durable and visible */
    VV_ORDER_REMOVE, /* VV_TIER_FILES: remove the file, committed or not */
    VV_ORDER_SALVAGE, /* VV_TIER_FILES: copy chunks of a file that failed, `from_generation`, into
                         the file that replaces it, if their checksums still match */
    VV_ORDER_WAKE, /* request `req` has ended, with req->status. Needs no completion; the order is
                        void at the next call to vv_core_next_order(). */
};

/* Owned by the core from issue to completion; read-only for its carrier. */
struct vv_order {
    enum vv_order_kind kind;
    enum vv_hop hop;
    struct vv_object *obj;
    uint32_t hist;
    uint64_t version, generation; /* a version discarded and written again has another generation */
    uint64_t
        file_generation; /* of its file: a file that failed is written again under a higher one */
    uint64_t from_generation; /* SALVAGE */
    uint32_t edition;         /* of the object, see vv_object_info */
    uint64_t size;            /* of the object, in bytes */
    int src_tier, dst_tier;   /* VV_TIER_APP for the application's side */
    bool whole;               /* reads all chunks of the copy at src_tier */
    bool uncommitted;         /* reads a file that was not committed when it was issued */
    uint32_t chunk0, nchunks; /* consecutive chunks of the object */
    uint64_t bytes;           /* sum of their sizes */
    /* Above 0: the order runs ahead. It is queued on this lane of the family, and begins when each
     * of the family's lanes has ended everything up to wait[lane]. The carrier calls
     * vv_core_enqueued() when it has queued it. */
    uint8_t family, lane;
    uint64_t wait[VV_LANES];
    uint64_t seq;    /* its place on the lane; 0: not queued yet */
    uint64_t serial; /* its place in the order of enqueueing, over all lanes. Private to the core */
    uint64_t number; /* its place in the order of issue. Private to the core */
    bool poisoned;   /* the data that it reads was never written. Private to the core */
    uint32_t src_page[VV_ORDER_MAX_PAGES]; /* pages of each chunk, where that tier is an arena */
    uint32_t dst_page[VV_ORDER_MAX_PAGES];
    struct vv_req *req; /* APP and WAKE */
    void *runtime;      /* the carrier's, from issue to completion */
    uint64_t issued_ns; /* from here on private to the core */
    struct vv_order *next;
    struct vv_order *all_next, *all_prev; /* every order from issue to completion */
};

enum vv_req_kind { VV_REQ_PUT, VV_REQ_GET, VV_REQ_WAIT, VV_REQ_WAIT_ALL, VV_REQ_LEASE };

/* One run of pages of the first tier that the application accesses directly. The struct is the
 * caller's memory. It must stay at its address from the call that lends until the pages are given
 * back or have become those of a version. */
struct vv_lend {
    uint32_t first_page, npages;
    struct vv_object *obj; /* from here on private to the core: the owner of the pages */
    uint32_t chunk0;
    bool lease;  /* the pages belong to no version */
    bool ending; /* their return is under way */
    struct vv_lend *next, *prev;
};

/* A request that may take time. The struct is the caller's memory. It must stay at its address from
 * the call that starts the request until its WAKE order is handed out; status is -EINPROGRESS until
 * then. A request may end within the call that starts it. */
struct vv_req {
    enum vv_req_kind kind;
    int status;
    uint32_t
        distance; /* GET: successive hinted versions that were complete on the fastest tier when
                          the request arrived */
    void *user;   /* the caller's */
    /* PUT and GET, set by the caller: its orders are put on a stream of the application and may
     * take long to end. Any number of them is issued at once. When `unissued` has reached 0 the
     * request waits for that stream only and no longer counts as blocked. */
    bool ordered;
    /* GET, set by the caller. keep: it does not make the version consumed. again: it is part of a
     * restore that has already begun, and uses up no hint. */
    bool keep, again;
    bool replace;   /* PUT, set by the caller: an existing version is overwritten */
    uint8_t family; /* set by the caller: `ordered` by the stream of this family (vv_core_family),
                          runs ahead on its time line. 0: does not run ahead */
    uint32_t unissued; /* chunks without an order yet; read-only for the caller, as all below */
    uint64_t start_ns; /* from here on private to the core */
    struct vv_object *obj;
    uint32_t hist;
    uint8_t app_is_device, level;
    bool lent;            /* PUT: its bytes are already in its pages */
    struct vv_lend *lend; /* LEASE */
    uint32_t inflight;    /* APP orders issued and not completed */
    uint32_t unqueued;    /* those of a family that are not on its stream yet; part of `inflight` */
    bool planned; /* GET of a family: on the time line of its stream the restore has ended */
    uint32_t chunks_left;
    uint64_t file_bytes; /* PUT: waits for this much of the files tier's capacity */
    int error;           /* it fails with this as soon as none of its orders is in flight */
    uint32_t scan;       /* chunks before this one have been issued */
    /* GET: all chunks before `need` are issued or in memory. All chunks before look[t] are issued,
     * or tier t cannot give them to the restore. */
    uint32_t need, look[VV_MAX_TIERS];
    uint32_t from_inflight[VV_MAX_TIERS];
    uint64_t *issued;                   /* GET: one bit for each chunk */
    uint64_t number;                    /* GET: of the last order issued before the request */
    struct vv_req *next, *prev, **list; /* list: the one that it is in */
};

/* On arena tiers: pages the tier's buffer must hold, transit pages included (they come last). */
uint64_t vv_core_tier_pages(const struct vv_core *core, unsigned tier);
/* Page numbers from vv_core_tier_pages() on stand for parts of pages, which hold small objects.
 * _records: how many numbers there are, for pages and parts together. _page_offset: where the page
 * or part begins in the buffer. */
uint64_t vv_core_tier_records(const struct vv_core *core, unsigned tier);
uint64_t vv_core_page_offset(const struct vv_core *core, unsigned tier, uint32_t page);

/* The page size for caches of these sizes: small caches need small pages, because the ends of
 * objects waste part of a page. 16 KiB to 1 MiB. */
uint32_t vv_core_page_bytes(uint64_t device_cache_bytes, uint64_t host_cache_bytes);
/* Fills in slots, batches and transit pages that are 0, from the page size and the rates. The transit
 * pages of a host cache of 16 MiB or more are taken from its capacity, a quarter at most. */
void vv_core_cfg_tune(struct vv_core_cfg *cfg);
/* The capacity of the host tier to configure before vv_core_cfg_tune(), so that `bytes` of it remain
 * after the transit pages are taken from it. */
uint64_t vv_core_host_cache(const struct vv_core_cfg *cfg, uint64_t bytes);
int vv_core_new(const struct vv_core_cfg *cfg, struct vv_core **ret_core) VV_WARN_UNUSED;
/* All orders must have been completed. Accepts NULL. */
void vv_core_free(struct vv_core *core);

/*
 * A tier that grows: its first `npages` pages are ready. The number never falls, and is at most
 * vv_core_tier_pages() less the transit pages. The full size decides which objects fit and which
 * can never fit; a put that finds too few pages ready waits. The opener of a core with a tier that
 * grows must make all of it ready, or call vv_core_grow_stop(): then the ready pages are all that
 * the tier will have, and requests that need more fail.
 */
void vv_core_grow(struct vv_core *core, unsigned tier, uint64_t npages, uint64_t now_ns);
void vv_core_grow_stop(struct vv_core *core, unsigned tier, uint64_t now_ns);

enum vv_core_level { VV_CORE_CACHED, VV_CORE_DURABLE };

/* The order in which versions will be restored. */
enum vv_restore_order {
    VV_RESTORE_BY_HINTS, /* given by hints or found by the detector */
    VV_RESTORE_FIFO,     /* the order of writing */
    VV_RESTORE_LIFO,     /* its reverse */
};

struct vv_core_hist_cfg {
    bool consume_once;   /* a restored version is discarded and its pending flushes are dropped */
    uint64_t keep;       /* newest versions kept once they reached the level; 0: all */
    uint64_t keep_every; /* with `keep`, multiples of this stay too; 0: none */
    enum vv_core_level level;
    uint64_t first_generation; /* of new objects: above every generation its files ever had; 0: 1 */
    bool hold;                 /* the level is reached by vv_core_reached, not by the commit */
    /* With `hold`: a committed file is at the level, and vv_core_reached reports that it has a copy
     * as well. Versions without one count for vv_core_latest, but not for retention, and replace
     * none. */
    bool copies;
    bool confirm; /* a version that replaces another is provisional until vv_core_confirm */
    /* Count how often each version was written. Takes memory for each version that was discarded,
     * expired or was taken back. */
    bool editions;
    enum vv_restore_order order; /* declared: the core hints every version as it is written */
};

int vv_core_history_new(struct vv_core *core, const struct vv_core_hist_cfg *cfg,
                        uint32_t *ret_hist) VV_WARN_UNUSED;
/* Forgets the history: data that is only in memory is dropped, committed files stay. No request on
 * it may be pending except `ordered` ones, which end when their orders do. Orders in flight for it
 * still complete. */
void vv_core_history_drop(struct vv_core *core, uint32_t hist, uint64_t now_ns);
/* Declares a version found committed on the files tier when the history was opened, oldest first; a
 * later generation of the same version replaces the one before. `reached`: it has reached the
 * level, and has its copy. */
int vv_core_adopt(struct vv_core *core, uint32_t hist, uint64_t version, uint64_t generation,
                  uint64_t size, uint64_t user, bool reached) VV_WARN_UNUSED;

/*
 * Requests. PUT and GET end when the application's memory may be used again. `app_is_device`: where
 * the application's memory is. Immediate refusals come back from the call (then no WAKE follows):
 *   put   -EEXIST, -EFBIG, -ENOSPC, -ENOMEM
 *   get   -ENOENT, -EIO (lost), -ESTALE (an `ordered` put will replace it)
 * A version whose put is `ordered` and has not ended cannot be restored, but it can be waited for and
 * discarded. A lookup finds the version as it was before that put.
 */
int vv_core_put(struct vv_core *core, uint32_t hist, uint64_t version, uint64_t size, uint64_t user,
                bool app_is_device, uint64_t now_ns, struct vv_req *req) VV_WARN_UNUSED;
int vv_core_get(struct vv_core *core, uint32_t hist, uint64_t version, bool app_is_device,
                uint64_t now_ns, struct vv_req *req) VV_WARN_UNUSED;
/* Ends when the version has reached the level, or with the error that prevents it. If its put is
 * still pending and `ordered`, an error of that put counts as well. */
int vv_core_wait(struct vv_core *core, uint32_t hist, uint64_t version, enum vv_core_level level,
                 uint64_t now_ns, struct vv_req *req) VV_WARN_UNUSED;
/* Ends when every version of the history is complete on the slowest tier. */
int vv_core_wait_all(struct vv_core *core, uint32_t hist, uint64_t now_ns,
                     struct vv_req *req) VV_WARN_UNUSED;
/* Ends a pending request with `status`, through its WAKE order. A cancelled put leaves no version
 * behind. No APP order of the request may be in flight, unless it is `ordered`: then it gets no
 * more orders and ends when those in flight have ended. */
void vv_core_cancel(struct vv_core *core, struct vv_req *req, int status, uint64_t now_ns);
/* The put or get has returned success to its caller, because all its APP orders have been carried
 * out; their completions with status 0 follow at once. The request can no longer fail: if a flush
 * that ran ahead has failed a put meanwhile, that error becomes a late error of the version. */
void vv_core_promise(struct vv_core *core, struct vv_req *req);
/* True if the put ends only with the commit of its file. The answer no longer changes once all
 * orders of the put are issued. */
bool vv_core_put_waits(const struct vv_req *req);

/*
 * Lending: pages of the first tier for the application to access directly, always one run. At most
 * half of the tier is lent: -ENOSPC.
 *
 * vv_core_lend     chunks of a version, for reading in place. They stay until they are given back,
 *                  even if the version is discarded. -ENOENT, -ESTALE (another generation), -EAGAIN:
 *                  they are not in this tier in one run. `first`: counts as a restore. With no
 *                  chunks, the version is held in the same way.
 * vv_core_lease    empty pages of no version, a request like a put.
 * vv_core_put_lent a version whose bytes are in leases, in this order: the pages become its own. Its
 *                  APP orders move nothing; their completion says that the bytes are there. All
 *                  leases but the last are full: see vv_core_lends_join. Refusals as vv_core_put, and
 *                  -EAGAIN or -ENOSPC while the disk has no room for its file. After a refusal the
 *                  caller keeps the leases; on success they have ended.
 */
int vv_core_lend(struct vv_core *core, uint32_t hist, uint64_t version, uint64_t generation,
                 uint32_t chunk0, uint32_t nchunks, bool first, uint64_t now_ns,
                 struct vv_lend *lend) VV_WARN_UNUSED;
int vv_core_lease(struct vv_core *core, uint32_t hist, uint32_t npages, uint64_t now_ns,
                  struct vv_req *req, struct vv_lend *lend) VV_WARN_UNUSED;
bool vv_core_lends_join(const struct vv_core *core, const uint64_t *bytes, size_t n);
int vv_core_put_lent(struct vv_core *core, uint32_t hist, uint64_t version, uint64_t size,
                     uint64_t user, struct vv_lend *const *lends, size_t n, uint64_t now_ns,
                     struct vv_req *req) VV_WARN_UNUSED;
/*
 * A whole version, for the application to keep and to write: its pages in the first tier become a
 * lease, and `old`, if not NULL, is given back in exchange. It counts as restored. -EAGAIN, with
 * nothing changed: the pages are not one run in this tier, a transfer reads them, no slower tier
 * has the version and a restore would not consume it, or it is hinted again. -ENOENT, -ESTALE,
 * -ENOSPC (half of the tier), -ENOMEM. On success `old` is the caller's memory again.
 */
int vv_core_swap(struct vv_core *core, uint32_t hist, uint64_t version, uint64_t generation,
                 struct vv_lend *old, uint64_t now_ns, struct vv_lend *lend) VV_WARN_UNUSED;
/* Gives all but the first `npages` pages of a lease back. */
void vv_core_lease_trim(struct vv_core *core, struct vv_lend *lend, uint32_t npages,
                        uint64_t now_ns);
/* The application has begun to give the pages back, which cannot fail: requests may wait for this
 * room. */
void vv_core_lend_ends(struct vv_core *core, struct vv_lend *lend);
/* Gives the pages back. */
void vv_core_unlend(struct vv_core *core, struct vv_lend *lend, uint64_t now_ns);
/* Records that the version, if it is still this generation, has been restored. */
void vv_core_consume(struct vv_core *core, uint32_t hist, uint64_t version, uint64_t generation,
                     uint64_t now_ns);
/* True if the version exists or a put under way will create it. */
bool vv_core_exists(const struct vv_core *core, uint32_t hist, uint64_t version);

int vv_core_hint(struct vv_core *core, uint32_t hist, uint64_t version,
                 uint64_t now_ns) VV_WARN_UNUSED;
void vv_core_hint_clear(struct vv_core *core, uint32_t hist, uint64_t now_ns);
void vv_core_prefetch_start(struct vv_core *core, uint32_t hist, uint64_t now_ns);
/*
 * Generations: see policy/generation.h. A put with `replace` makes a new one of a version that exists.
 * Until it is written, and also if it fails, the version is what it was. An old generation that is safe
 * is held until the new one is safe.
 *
 * vv_core_reached    in a history with `hold`: this file has reached the level. Ignored if the
 *                    generation has ended meanwhile.
 * vv_core_missed     in a history with `copies`: the copy of this file has failed. With `keep`, a version
 *                    without a copy goes when it is not among the newest.
 * vv_core_confirm    the last put of the version is no longer provisional. -ENOENT.
 * vv_core_take_back  undoes the last put of the version, which is again what it was before.
 *                    -EALREADY: it has reached the level. -ENOENT.
 * vv_core_acknowledge  a caller has seen that the version, or with NULL every one, has reached the
 *                    level: a put without `replace` no longer overwrites it.
 */
void vv_core_reached(struct vv_core *core, uint32_t hist, uint64_t version,
                     uint64_t file_generation, uint64_t now_ns);
void vv_core_missed(struct vv_core *core, uint32_t hist, uint64_t version, uint64_t file_generation,
                    uint64_t now_ns);
int vv_core_confirm(struct vv_core *core, uint32_t hist, uint64_t version,
                    uint64_t now_ns) VV_WARN_UNUSED;
int vv_core_take_back(struct vv_core *core, uint32_t hist, uint64_t version,
                      uint64_t now_ns) VV_WARN_UNUSED;
void vv_core_acknowledge(struct vv_core *core, uint32_t hist, const uint64_t *version,
                         uint64_t now_ns);
/* No call finds the version or any of its generations any more; its space is freed when the last
 * reader ends. */
int vv_core_discard(struct vv_core *core, uint32_t hist, uint64_t version,
                    uint64_t now_ns) VV_WARN_UNUSED;

/* Orders. The pointer is valid until its completion. NULL: nothing more to start now. */
struct vv_order *vv_core_next_order(struct vv_core *core);
/* COPY, APP, COMMIT, REMOVE. status 0 or a negative errno. The bytes of a failed COPY or APP do not
 * count, and its source stays valid. After a failed read from disk, pending restores of the version
 * fail with `status`, it is no longer prefetched, and a later restore reads it again. After a
 * failed write the version stays where it was, and the error is reported once, late. */
void vv_core_complete(struct vv_core *core, struct vv_order *order, int status, uint64_t now_ns);

/*
 * The family of a stream of the application: its present one, or an unused one. 0: none is unused,
 * and the stream cannot run ahead. `id` is never given to another stream, and never 0.
 */
unsigned vv_core_family(struct vv_core *core, uint64_t id);
/* The order is queued on its lane as number `seq`. Numbers of one lane never fall; orders that end
 * together may share one. From now on the order counts as done in plans on the time line of its
 * family. It is completed after all before it on its lane and all that it waited for. An order that
 * could not be queued is completed with an error instead, and nothing depends on it. */
void vv_core_enqueued(struct vv_core *core, struct vv_order *order, uint64_t seq, uint64_t now_ns);

/* Queries. */
struct vv_object_info {
    uint64_t version, generation, size, user;
    uint64_t file_generation;
    /* 0: adopted. 1: the first write of the version, or the history does not count. Each later one
     * has a higher number, which does not depend on failures in between. */
    uint32_t edition;
    bool durable;    /* committed on the files tier */
    bool safe;       /* it has reached the level of its history */
    bool ready;      /* a restore of it now would be a hit */
    bool pending;    /* an `ordered` put will replace it: restores wait for that one */
    int flush_error; /* why it has not reached a slower tier, or 0 */
    uint32_t chunks, resident[VV_MAX_TIERS]; /* chunks valid on each tier */
    enum vv_copy_state state[VV_MAX_TIERS];
};
int vv_core_lookup(const struct vv_core *core, uint32_t hist, uint64_t version,
                   struct vv_object_info *ret_info) VV_WARN_UNUSED;
/* When the next use of a version is expected, for the store that keeps its bytes. */
struct vv_wanted {
    uint64_t rank;  /* as vv_next_rank(); without a known order the oldest is the farthest */
    bool restoring; /* prefetching has begun, and the core is in VV_PHASE_RESTORING */
    bool present;   /* all of it is in memory, or it was restored and is not wanted again */
};
/* -ENOENT: the version does not exist, or it is another generation by now. */
int vv_core_wanted(const struct vv_core *core, uint32_t hist, uint64_t version, uint64_t generation,
                   struct vv_wanted *ret_wanted) VV_WARN_UNUSED;
/* The newest version that has reached the history's level, and acknowledges it; -ENOENT when there is
 * none. */
int vv_core_latest(struct vv_core *core, uint32_t hist, uint64_t *ret_version) VV_WARN_UNUSED;
/* Calls back for every version that can be restored, in the order of writing. */
void vv_core_each(const struct vv_core *core, uint32_t hist,
                  void (*fn)(void *arg, const struct vv_object_info *info), void *arg);
/* True if the history may have a late error; false is certain. */
bool vv_core_has_error(struct vv_core *core, uint32_t hist);
/* Takes the oldest late error of the history (a flush that failed after its put had returned): 0
 * when none. */
int vv_core_take_error(struct vv_core *core, uint32_t hist, uint64_t *ret_version, int *ret_tier);
/* True if an order is in flight for a discarded version of the history or removes one of its files:
 * the files of discarded versions are gone only after it has ended. Reads by the application do not
 * count, because they may last for any time. */
bool vv_core_dying(const struct vv_core *core, uint32_t hist);
/* True if space on the disk may be wanted: the application is not restoring, a put or a wait is
 * pending, or a write to the disk is in flight. */
bool vv_core_space_wanted(const struct vv_core *core);
/* Orders issued and not completed. */
uint64_t vv_core_inflight(const struct vv_core *core);
/* True if the disk reads for restores. */
bool vv_core_disk_reads(const struct vv_core *core);
uint64_t vv_object_user(const struct vv_object *obj);

struct vv_core_stats {
    uint64_t puts, gets, hits, misses, hints, evicted_pages, revoked_pages, discarded,
        inflight_orders;
    uint64_t moved_bytes[VV_HOP_COUNT], rate[VV_HOP_COUNT];
    uint64_t start_rate[VV_HOP_COUNT]; /* of the first 64 MiB; 0: nothing has moved yet */
    uint64_t tier_pages[VV_MAX_TIERS], tier_used_pages[VV_MAX_TIERS];
    uint64_t tier_ready_pages[VV_MAX_TIERS];     /* fewer than tier_pages while a tier grows */
    uint64_t tier_dirty_pages[VV_MAX_TIERS];     /* to be flushed; 0 on files, as the next two */
    uint64_t tier_evictable_pages[VV_MAX_TIERS]; /* that may go */
    uint64_t tier_copies[VV_MAX_TIERS];          /* of versions, whole or in part */
    uint64_t transit_pages; /* in addition to those of the host tier, both directions */
    /* Orders of each hop: number under way, time with at least one under way, number that
     * failed. */
    uint64_t hop_orders[VV_HOP_COUNT], hop_busy_ns[VV_HOP_COUNT], hop_errors[VV_HOP_COUNT];
    uint64_t waiting_puts, waiting_gets; /* requests that have not ended */
    uint64_t waiting_since_ns;           /* the oldest of them; 0: there is none */
    uint64_t late_errors; /* versions that could not be flushed after their put had returned */
    uint64_t bad_reads;   /* orders that found bytes that do not verify */
    uint64_t reread;      /* orders that read a version after an earlier read of it had failed */
    uint64_t files_bytes, objects;
    uint64_t object_bytes; /* memory that the core itself takes */
    uint64_t invariant_checks;
    uint64_t hints_looked_at; /* by prefetching: the cost of hints */
    double utilisation;       /* share of the memory tiers' pages in use, averaged over time */
    double tier_used_page_ns[VV_MAX_TIERS]; /* memory tiers: pages in use, added up over time */
    uint64_t now_ns;                        /* these sums end at this time */
};
void vv_core_get_stats(const struct vv_core *core, struct vv_core_stats *ret_stats);

/* Figures of one history. */
struct vv_core_hist_stats {
    uint64_t versions, durable, failed; /* numbers of versions; failed: no longer flushed */
    uint64_t hints;                     /* not yet used */
    uint64_t ready;                     /* how many of the first hints are ready to be restored */
    uint64_t pending;                   /* requests */
    bool predicting, prefetching;
};
void vv_core_get_hist_stats(const struct vv_core *core, uint32_t hist,
                            struct vv_core_hist_stats *ret_stats);

/* Checks every invariant; cost grows with the whole state. Returns NULL, or the violated
 * invariant. */
const char *vv_core_check(const struct vv_core *core);
/* A digest of all state that affects later decisions, equal for equal states: for exhaustive
 * exploration. */
uint64_t vv_core_digest(const struct vv_core *core);

#endif
