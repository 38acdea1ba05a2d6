/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine/core, inside. The files:
 *
 *   core.c     open and close, requests, completions, growth
 *   ask.c      queries
 *   object.c   tables and counters: objects, their versions, copies and pages
 *   states.c   the life cycle of a copy
 *   hints.c    the restore order: hints, passed-over hints, predictions
 *   space.c    which data makes room for which
 *   sched.c    the next order on each hop
 *   histories.c  histories: opened and dropped
 *   lend.c     pages that the application uses directly
 *   ahead.c    orders planned on the time line of a stream
 *   generations.c  versions that are overwritten: which generation counts, which one stays
 *   filing.c   files that are being written, and recovery from those that fail
 *   removals.c  the files of generations that have ended, until they are gone
 *   check.c    invariants and the digest
 *
 * The location of a chunk is recorded in one place only: the page table of each copy and the state
 * of each page. vvi_core_reclass() keeps everything derived from it (pages that may go, must be
 * flushed, could move up, and their numbers); every change of a chunk ends with it.
 */
#ifndef VV_ENGINE_CORE_PRIVATE_H
#define VV_ENGINE_CORE_PRIVATE_H

#include "base/assert.h"
#include "base/bitset.h"
#include "base/heap.h"
#include "base/table.h"
#include "engine/core/core.h"
#include "policy/detect.h"
#include "policy/generation.h"
#include "policy/next.h"
#include "policy/predict.h"
#include "policy/window.h"
#include "store/arena/arena.h"
#include "trace/trace.h"

enum {
    PREDICT_AHEAD = 4096, /* most predicted hints outstanding */
    PREDICT_FIRST = 64,   /* predicted when a pattern is found */
    PREDICT_STEP = 16,    /* predicted with each further restore */
    OVERTAKEN_MOST = 3,   /* see hints.c, as the next two */
    SURPRISES_MOST = 1,
    WRONG_MOST = 8,
    MIXED_MOST = 8,  /* after this many restores in a row, no put is expected between restores */
    REUSE_MOST = 3,  /* after this many restores without reuse, no reuse is expected */
    LOOK_AHEAD = 32, /* hinted versions beyond the first incomplete one that a prefetch considers */
    APP_SLOTS = 2,   /* orders in flight for one request on one hop */
    AHEAD_PART = 24, /* room is made ahead for an object of at most 1/24 of a tier */
    SHARE_LEAST = 16, /* a device this many times faster than its link restores without its help */
    /* File numbers reserved for each put, for one attempt after the other as its writes fail: at
     * the next opening the numbers give the order of writing. */
    GENERATION_STEP = 8,
    AHEAD_BATCHES = 4, /* an order that runs ahead moves as much as this many others */
    PARTS = 32,        /* an object of unknown order loses 1/32 of its chunks at a time */
    /* The data that a stream put last, as much as a quarter of the device, is not copied down before
     * the stream has been seen to write it. */
    RECENT_PART = 4,
    VICTIMS_LOOKED_AT = 64, /* in one search */
    REFLUSH_MOST = 64,      /* times that a page is dropped before it is flushed, approximately */
};

/* A stream that was not used for this long leaves its share to the others. */
#define STREAM_IDLE_NS UINT64_C(1000000000)

/* The first sequence number of hints, which are counted up and down; half of what a rank holds. */
#define HINT_MIDDLE (UINT64_C(1) << 55)

/* Uses of a page, derived; bits of vv_page.class. */
enum {
    CLASS_EVICT = 1, /* may go: a slower tier has its bytes */
    CLASS_DIRTY = 2, /* no slower tier has its bytes: to be flushed */
    CLASS_UP = 4,    /* no faster memory tier has its bytes: could be prefetched */
    CLASS_DUP = 8,   /* may go: a faster tier has its bytes */
    CLASS_PASS = 16, /* may go, but is a transit page: that makes no room in the arena */
};

/* HELD: once something runs ahead, the copies with pages on the device, except those in a list
 * `recent`. */
enum heap_kind { HEAP_EVICT, HEAP_DIRTY, HEAP_DUP, HEAP_HELD, HEAP_KINDS };

/* States of a chunk in a file that is being written, kept in the copy's page table. */
#define FILE_CHUNK_FILLING (VV_PAGE_NONE - 1)
#define FILE_CHUNK_VALID   0u
#define FILE_CHUNK_OLD     1u /* valid in the previous file, which failed: see vvi_file_clean */

struct vv_copy {
    struct vv_object *obj;
    uint8_t tier : 4;
    uint8_t recent : 4; /* in the list of this family; 0: in none */
    uint8_t state;      /* enum vv_copy_state */
    bool whole;         /* contiguous policies: all its pages are one run, taken at once */
    bool commit_issued;
    bool failed;    /* whole: a transfer to it failed; freed when no other transfer uses it */
    bool salvaging; /* a SALVAGE order is out for it */
    /* Orders that read all of it. None of its pages may go meanwhile, whatever their class: it is
     * not in the heaps that victims are taken from. Cheaper than a pin on each page. */
    uint16_t readers;
    uint32_t nvalid, nfilling, nreserved;
    uint32_t ntransit;                  /* part of these three: in transit pages */
    uint32_t nevict, ndirty, nup, ndup; /* pages of each class */
    uint32_t evict_top, dirty_top,
        up_low;        /* bounds: no page of the class is above its top, or below up_low */
    uint32_t held_top; /* bound: no page is above it, of any class */
    uint32_t heap_pos[HEAP_KINDS];
    union {
        struct {                          /* contiguous policies */
            uint64_t stamp_in, stamp_use; /* fifo, lru; flushes go by stamp_in */
            uint64_t flush_mark;          /* bytes queued for flushing before it, since the start */
        };
        struct {             /* `next`: */
            uint64_t put_at; /* put_bytes of its family after its last chunk; 0: no stream put it */
            struct vv_copy *before, *behind; /* in family.recent */
        };
    };
    /* A copy in a file: orders that read it; the file that failed and has the chunks marked
     * FILE_CHUNK_OLD, or 0; the number of these chunks. */
    uint32_t nreading, nold;
    uint64_t old_generation;
    uint32_t page[]; /* by chunk: page number, or VV_PAGE_NONE */
};

/* The file of an object that has ended, which may still be on the disk (removals.c). */
enum removal {
    REMOVAL_NONE,  /* not ended, or gone */
    REMOVAL_DUE,   /* in hist->ending, as are the next two */
    REMOVAL_ASKED, /* a REMOVE order is out for it */
    REMOVAL_FAILED /* the next wait for all versions tries again */
};

/* One for every version. The fields that queries and hints read come first, together. */
struct vv_object {
    VV_TABLE_ITEM(version);
    uint64_t generation, size, user;
    uint64_t file_generation;
    uint32_t edition; /* see vv_object_info */
    uint32_t nchunks;
    struct vv_copy *copy[VV_MAX_TIERS];
    uint8_t gen : 3;      /* enum vv_gen_state; written, writing and dead follow from it */
    uint8_t home : 2;     /* tier it enters and is prefetched to */
    uint8_t err_tier : 2; /* the tier of flush_err */
    bool written : 1;     /* its put has ended: it may be restored */
    uint8_t removal : 2;  /* enum removal */
    bool writing : 1;     /* its put is pending */
    bool ordered : 1; /* its put is ordered by a stream: callers may name it before it is written */
    bool dead : 1;    /* HELD or ENDED: no restore gets it; the file of a HELD one stays */
    bool consumed : 1;
    bool nameless : 1;    /* the object of a lease: no version, never in the table */
    bool durable : 1;     /* committed on the files tier */
    bool dropped : 1;     /* ENDED by DROPPED: the next opening must not find this generation */
    bool passed : 1;      /* hint passed over */
    bool no_prefetch : 1; /* a transfer up failed: only restores read it */
    bool down : 1;      /* written, and complete on the slowest tier or given up: in hist->ndown */
    bool keep_file : 1; /* dead in this process only: its committed file stays */
    bool beside : 1;    /* in hist->replacements: it will replace the version in the table */
    bool reached : 1;   /* the store says that its file has reached the level */
    bool missed : 1;    /* the store says that its copy has failed */
    bool provisional : 1; /* the version that it replaces stays until vv_core_confirm */
    bool unfinished : 1; /* a previous process left it below the level, and no caller has seen it */
    bool exempt : 1;     /* no longer among the newest, and kept by keep_every */
    bool filled : 1;     /* `streams`: all bytes are in the tiers, its put waits for the commit */
    bool pass_through : 1;   /* larger than its tier: its put goes through transit pages as well */
    bool streams : 1;        /* too large to stay in memory until its file is committed */
    bool spoiled : 1;        /* a write to its file or its commit failed: that file is unusable */
    bool reported : 1;       /* its flush_err has been reported */
    int16_t flush_err;       /* the error that ended its flushing; 0: none */
    uint16_t restoring : 14; /* restores under way: it is wanted before anything else */
    uint16_t restored : 1;   /* at least once */
    uint16_t used : 1;       /* it would be `consumed` if it had no hint */
    uint32_t nmem;           /* chunks valid or filling on a memory tier */
    uint32_t hist : 29;
    uint32_t left : 1; /* a failed file of it remains, because its removal failed as well */
    uint32_t
        lost : 1; /* a flush that ran ahead failed after its pages were reused: its put fails */
    uint32_t spent : 1;              /* restored and consumed, on the time line of a stream */
    uint64_t hint_first, hint_last;  /* sequence numbers of its live hints; 0: none */
    struct vv_object *older, *newer; /* in order of writing; written objects only */
    /* The same, without those marked `exempt`. */
    struct vv_object *expires_before, *expires_after;
    struct vv_object *old; /* HELD until this one is safe */
    uint64_t ordinal;      /* place in the order of writing, for the detector */
    uint64_t file_bytes;   /* its share of the files tier's capacity */
    uint32_t miss_low;     /* no chunk before this one is missing from memory */
    uint32_t refs;         /* orders in flight and pending requests */
    uint32_t reflushed; /* pages dropped before they were flushed, because another tier has them */
    uint32_t lent;      /* times that pages of it are lent in place */
};

/* A history of a million versions is common. */
_Static_assert(sizeof(struct vv_object) <= 184,
               "an object and its allocator's header take more than three cache lines");

/* Sets of open hints; OPEN_TIER + t is that of memory tier t. There are at most two memory
 * tiers. */
enum { OPEN_READY, OPEN_TIER, OPEN_SETS = OPEN_TIER + 2 };

struct hint {
    struct vv_object *obj;
    uint64_t next_same : 63; /* the next live hint of the same version; 0: none */
    uint64_t predicted : 1;  /* by the detector */
};

/* The highest edition of a version that was discarded or taken back. */
struct edition {
    VV_TABLE_ITEM(version);
    uint32_t edition;
};

struct hist {
    bool used;
    bool started;                      /* prefetching has begun */
    bool hinted;                       /* the application has given hints or declared an order */
    uint8_t njudges, surprises, wrong; /* how good hints are: see hints.c */
    uint8_t reuse; /* above 0: restored versions will probably be wanted again */
    struct vv_core_hist_cfg cfg;

    struct vv_table versions;     /* live objects */
    struct vv_table replacements; /* puts under way that will replace one of them, by version */
    size_t nalive;                /* dead ones included */
    struct vv_object *oldest, *newest;
    struct vv_object *expires_first, *expires_last; /* not `exempt`, in the same order */
    uint64_t next_ordinal, ndurable, nwritten, ndown;
    uint64_t next_generation;
    uint64_t nsafe, nexempt;  /* versions that vvi_gen_counts; the `exempt` ones among them */
    struct vv_table editions; /* of struct edition, owned */
    uint32_t ncopies[VV_MAX_TIERS];

    struct hint *ring;              /* live hints, by sequence number modulo its size */
    uint64_t ring_size, head, tail; /* [head, tail) */
    uint64_t ngiven, npredicted;    /* live hints of the application, and of the detector */
    uint64_t predicted_at;          /* no predicted hint is before it */
    uint64_t judge[OVERTAKEN_MOST]; /* the highest places of hints that came true, ascending */
    /* Ring places of open hints: first hints of versions that are not known to be complete. In
     * OPEN_READY that means complete in the tier from which the version is restored, in
     * OPEN_TIER + t complete in tier t or a faster one. */
    struct vv_bitset open[OPEN_SETS];
    uint64_t first_open[OPEN_SETS]; /* no hint before it is open */
    unsigned nopen;                 /* sets in use */
    /* The first LOOK_AHEAD open hints of the tier can bring nothing up: skipped until a hint is
     * opened or closed. */
    bool idle[OPEN_SETS];
    uint64_t round;   /* the value of core->round when nothing was left to prefetch */
    uint8_t family;   /* of the stream that ordered its last request; 0: no stream did */
    uint64_t *passed; /* versions of passed-over hints, oldest first */
    size_t npassed, passed_cap, passed_at;
    struct vv_object *predict_from; /* next object to predict a hint for */
    struct vv_table ending;         /* ended objects whose files may still exist: see removals.c */
    size_t nunremoved;

    uint64_t ready,
        missing_chunks; /* hinted and written objects; their chunks that are on no memory tier */
    uint64_t unwritten; /* hinted, not yet written: puts to come */

    struct vv_detect detect;
    uint64_t interval_ns, last_end_ns; /* between two requests, averaged */
    struct vv_heap heap[VV_MAX_TIERS][HEAP_KINDS];

    int late_err, late_tier;
    uint64_t late_version;
    uint64_t nfailed; /* versions that are no longer flushed */
    uint32_t pending; /* requests */
};

struct tier {
    enum vv_tier_kind kind;
    bool memory; /* device or host */
    bool is_arena;
    uint64_t capacity_bytes, used_bytes; /* files */
    struct vv_arena arena;
    uint32_t *transit[2]; /* stacks of free transit pages: [0] down, [1] up */
    uint32_t ntransit[2];
    uint32_t transit_all;
    uint32_t nevict;      /* pages that may go */
    uint32_t ndirty;      /* pages to be flushed */
    uint32_t lent;        /* pages lent and not being returned, or promised to requests that wait */
    uint64_t freed_epoch; /* counts events that may make room */
    uint64_t tried_epoch
        [2]; /* contiguous, by purpose: freed_epoch + 1 when the last search found no window */
    uint32_t tried_pages[2];
    uint64_t lease_epoch; /* the same for leases */
    uint32_t lease_pages;
    struct { /* score: the chosen window, by purpose */
        struct vv_object *obj;
        uint32_t first, n;
    } commit[2];
};

struct hop_state {
    uint32_t inflight, slots, batch;
    struct vv_rate rate;
    uint64_t last_done_ns, queued_bytes, done_bytes, moved_bytes;
    /* For the figures only: orders of any kind under way; how long there was at least one, without
     * the present such period; how many failed. */
    uint64_t orders, busy_ns, busy_since_ns, errors;
};

/* Uses of a page by orders that run ahead, are on their lanes and have not been seen to end. They
 * say when the bytes of the page are valid and when it may be overwritten. All 0: there is no such
 * order. */
struct stamp {
    uint64_t last[VV_LANES]; /* the last use by each lane of the family */
    uint64_t wrote;          /* the last write, on the stream `writer` */
    uint16_t reads, writes;
    uint8_t family; /* 0: only EARLY; FAMILY_MIXED: several */
    uint8_t writer;
    uint8_t
        queued; /* the family of an order that will write it and is not on its lane yet; 0: none */
    bool planned;  /* the page is being filled, by a write that is on its lane */
    uint8_t limbo; /* without an owner: in this family's list; LIMBO_ALONE: in none; 0: owned */
    uint32_t next, prev; /* in the list */
};

enum { FAMILY_MIXED = 254, LIMBO_ALONE = 255 };

struct family {
    uint64_t id, used; /* of its stream, 0: none; when vv_core_family last returned it */
    uint64_t used_ns;
    uint32_t pages;                 /* of the device, used only by it and by EARLY */
    uint32_t reqs, orders;          /* that have not ended */
    uint32_t flushes;               /* orders down, issued and not yet on their lane */
    uint32_t down;                  /* orders down that have not been seen to end */
    uint64_t put_bytes, seen_bytes; /* put by its stream; the part that was seen to end */
    /* down_at: put_bytes when the lane down will have copied all that is on it. due_at: down_at at
     * the last search for data to copy down. See ahead.c. */
    uint64_t down_at, due_at;
    struct vv_copy *recent, *recent_last; /* not due yet, in the order in which they were put */
    bool refused; /* a lane did not take a flush: no more of them before the next request */
    /* Limbo: pages of the device that have no owner and that orders on lanes still use. This family
     * may take them. First and last, in the order in which they lost their owner. */
    uint32_t limbo, limbo_last;
};

struct ahead {
    bool on;                           /* a stream has a family */
    struct stamp *stamp[VV_MAX_TIERS]; /* of the memory tiers */
    uint64_t seen[VV_STREAMS];         /* each stream has ended everything up to here */
    uint64_t serial, clock;
    struct family family[VV_FAMILIES + 1]; /* from 1 on */
};

struct vv_core {
    struct vv_core_cfg cfg;
    bool paged;
    unsigned ntiers;
    int device, host, disk; /* tier numbers, -1: none */
    bool gds;               /* the disk reads and writes the device itself */
    struct tier tier[VV_MAX_TIERS];
    struct hop_state hop[VV_HOP_COUNT];
    struct hist *hist;
    uint32_t nhist;
    uint64_t now_ns, stamp;
    uint64_t round;                           /* searches of a hop for prefetches */
    uint64_t inflight, issued;                /* orders issued and not completed; all ever issued */
    struct vv_order *ready_head, *ready_tail; /* to be handed out */
    struct vv_order *orders;                  /* all of them, handed out or not */
    struct vv_order *free_orders, wake_order;
    struct vv_req *wake_head, *wake_tail; /* ended, without a WAKE order yet */
    struct vv_req *puts, *gets, *waits;   /* pending, oldest first */
    /* Puts and gets whose orders are all issued and that wait for a stream of the application,
     * newest first; and waits for such puts. None of them is blocked on anything that the core
     * could do. `ordered` may have thousands of entries: no call walks it, except when something
     * fails or a history ends. */
    struct vv_req *ordered, *stream_waits;
    struct vv_lend *lends; /* all of them */
    uint32_t nending;      /* those whose return is under way */
    bool lent_ever;        /* a lease was made: the next ones depend on where pages are */
    enum vv_phase phase;
    uint64_t largest_bytes;     /* of all objects so far */
    uint64_t put_bytes;         /* size of the last one */
    uint32_t mixed;             /* above 0: puts come between restores */
    uint32_t reads_since_write; /* on the disk; VV_NEXT_WRITE_TURN at most */
    bool put_short;             /* a put found no room when puts were last served */
    bool stands_still;          /* and no flush is under way that would make room */
    struct vv_object
        *filing; /* its file is being written: it is finished before another is begun */
    uint32_t
        seed_pages; /* restoring: pages that may still be given up to begin an exchange of places */
    struct ahead ahead;
    struct vv_frag *frags; /* scratch for window searches */
    size_t frags_cap;
    double used_page_ns[VV_MAX_TIERS]; /* occupancy of memory tiers over time */
    uint64_t used_since_ns;
    uint64_t check_in; /* calls until the next check of the invariants */
    struct {           /* the last values traced of each tier */
        uint64_t bytes, time_ns;
    } traced[VV_MAX_TIERS];
    struct vv_core_stats stats;
};

/* When every hinted version is written, no put is expected, unless hints come with the puts. */
static inline bool vvi_puts_over(const struct hist *h)
{
    return h->hinted && h->unwritten == 0 && h->cfg.order == VV_RESTORE_BY_HINTS;
}

/* WRITING while any put is pending: one history may restore while the put of another is blocked. */
static inline enum vv_phase vvi_phase(const struct vv_core *core)
{
    return core->puts ? VV_PHASE_WRITING : core->phase;
}

/* object.c */
static inline struct hist *vvi_hist(const struct vv_core *core, uint32_t hist)
{
    return &core->hist[hist];
}
/* The identifier of the history in traces. */
static inline uint64_t vvi_trace_history(const struct vv_core *core, uint32_t hist)
{
    return VV_TRACE_HISTORY(core->cfg.trace_id, hist);
}
static inline uint32_t vvi_nchunks(const struct vv_core *core, uint64_t bytes)
{
    return (uint32_t)((bytes + core->cfg.page_bytes - 1) / core->cfg.page_bytes);
}
static inline struct vv_page *vvi_page(const struct vv_core *core, const struct vv_copy *copy,
                                       uint32_t c)
{
    return &core->tier[copy->tier].arena.page[copy->page[c]];
}

static inline enum vv_page_state
vvi_chunk_state(const struct vv_core *core, const struct vv_object *obj, unsigned tier, uint32_t c)
{
    const struct vv_copy *copy = obj->copy[tier];

    if (!copy)
        return core->tier[tier].kind == VV_TIER_FILES && obj->durable ? VV_PAGE_VALID
                                                                      : VV_PAGE_FREE;
    if (copy->page[c] == VV_PAGE_NONE)
        return VV_PAGE_FREE;
    if (core->tier[tier].is_arena)
        return (enum vv_page_state)vvi_page(core, copy, c)->state;
    return copy->page[c] <= FILE_CHUNK_OLD ? VV_PAGE_VALID : VV_PAGE_FILLING;
}

static inline bool vvi_chunk_valid(const struct vv_core *core, const struct vv_object *obj,
                                   unsigned tier, uint32_t c)
{
    return vvi_chunk_state(core, obj, tier, c) == VV_PAGE_VALID;
}

/* True if nothing of it is flushed: flushing has ended, or something still uses the file that
 * failed. */
static inline bool vvi_flush_stopped(const struct vv_object *obj)
{
    return obj->flush_err || obj->spoiled;
}

/* True for a page behind the arena. */
static inline bool vvi_transit_page(const struct tier *t, uint32_t page)
{
    /* For a page of the arena the difference wraps around to a large number. */
    return page - t->arena.npages < 2 * t->transit_all;
}

/* True if the chunk passes through a transit page. */
static inline bool vvi_chunk_in_transit(const struct vv_core *core, const struct vv_object *obj,
                                        unsigned tier, uint32_t c)
{
    const struct vv_copy *copy = obj->copy[tier];

    return core->tier[tier].is_arena && copy && copy->page[c] != VV_PAGE_NONE &&
           vvi_transit_page(&core->tier[tier], copy->page[c]);
}

/* True if chunks written to its uncommitted file let faster copies go. Only those of the first
 * file: when one has failed, memory keeps what it has until the next is committed. */
static inline bool vvi_file_keeps(const struct vv_core *core, const struct vv_object *obj)
{
    const struct vv_copy *file = obj->copy[core->disk];

    return core->cfg.written_stays && file && !file->old_generation && !obj->spoiled;
}

/* True if a chunk that is valid on this slower tier lets faster copies go. Data written to a file
 * may be lost until the file is committed. Where it can be read back until then, it lets them go;
 * elsewhere memory keeps it, not counting transit pages, unless memory could never hold all of the
 * object. */
static inline bool vvi_chunk_kept_by(const struct vv_core *core, const struct vv_object *obj,
                                     unsigned tier, uint32_t c)
{
    bool files = core->tier[core->ntiers - 1].kind == VV_TIER_FILES;

    if (!files || obj->durable || obj->streams)
        return true;
    if (core->tier[tier].is_arena)
        return !vvi_chunk_in_transit(core, obj, tier, c);
    return vvi_file_keeps(core, obj) ||
           (obj->copy[tier] && obj->copy[tier]->page[c] == FILE_CHUNK_OLD);
}

/* True if some tier will get more pages, whatever else happens. */
static inline bool vvi_growing(const struct vv_core *core)
{
    for (unsigned t = 0; t < core->ntiers; t++)
        if (vv_arena_growing(&core->tier[t].arena))
            return true;
    return false;
}
uint64_t vvi_chunk_bytes(const struct vv_core *core, const struct vv_object *obj, uint32_t chunk0,
                         uint32_t n);
struct vv_object *vvi_object_find(const struct vv_core *core, uint32_t hist, uint64_t version);
struct vv_object *vvi_object_new(struct vv_core *core, uint32_t hist, uint64_t version);
/* An object that will replace the one in the table. */
struct vv_object *vvi_object_beside(struct vv_core *core, uint32_t hist, uint64_t version);
struct vv_object *vvi_object_nameless(struct vv_core *core, uint32_t hist);
/* _enter adds a written version to the tables and counts, _leave removes it. `successor`, or NULL,
 * takes over its place in the table and its hints. */
void vvi_object_enter(struct vv_core *core, struct vv_object *obj);
void vvi_object_leave(struct vv_core *core, struct vv_object *obj, struct vv_object *successor);
/* keep_every keeps it for good: retention skips it from now on. */
void vvi_object_exempt(struct vv_core *core, struct vv_object *obj);
/* Frees the memory of an object that has left, except pages that a transfer uses. */
void vvi_object_drop_pages(struct vv_core *core, struct vv_object *obj);
void vvi_object_file_gone(struct vv_core *core,
                          struct vv_object *obj); /* gives back its share of the capacity */
void vvi_object_unref(struct vv_core *core, struct vv_object *obj);
void vvi_object_written(struct vv_core *core, struct vv_object *obj);
void vvi_object_consumed(struct vv_core *core, struct vv_object *obj);
struct vv_copy *vvi_copy_get(struct vv_core *core, struct vv_object *obj, unsigned tier,
                             enum vv_copy_state born);
void vvi_copy_maybe_free(struct vv_core *core, struct vv_copy *copy);
void vvi_copy_free(struct vv_core *core, struct vv_copy *copy);
bool vvi_chunk_in_memory(const struct vv_core *core, const struct vv_object *obj,
                         uint32_t c); /* or on its way */
void vvi_chunk_place(struct vv_core *core, struct vv_copy *copy, uint32_t c, uint32_t page,
                     enum vv_page_state state);
/* For chunks that no memory tier has, to be filled now: like vvi_chunk_place, but cheaper. */
void vvi_chunks_fill(struct vv_core *core, struct vv_copy *copy, uint32_t c0, uint32_t n,
                     const uint32_t *pages);
void vvi_chunk_set(struct vv_core *core, struct vv_copy *copy, uint32_t c,
                   enum vv_page_state state);
void vvi_chunk_drop(struct vv_core *core, struct vv_copy *copy, uint32_t c);
/* The same for chunks [c0, c0 + n), valid pages of an arena, and cheaper. After each of the two
 * the caller must derive the classes again. */
void vvi_chunks_drop(struct vv_core *core, struct vv_copy *copy, uint32_t c0, uint32_t n);
void vvi_core_reclass(struct vv_core *core, struct vv_object *obj, uint32_t c0, uint32_t n);
/* Chunks from `c` on have come to a tier or left it: restores under way look at them again. */
void vvi_gets_look_again(struct vv_core *core, const struct vv_object *obj, uint32_t c);
void vvi_object_refresh(struct vv_core *core, struct vv_object *obj); /* its rank has changed */
void vvi_copy_refresh(struct vv_core *core, struct vv_copy *copy);    /* or its pages have */
void vvi_object_settle(struct vv_core *core,
                       struct vv_object *obj); /* advance the life cycle of its copies */
uint64_t vvi_rank(const struct vv_core *core, const struct vv_object *obj, unsigned tier,
                  uint32_t c);
uint64_t vvi_rank_absolute(const struct vv_core *core, const struct vv_object *obj, unsigned tier,
                           uint32_t c);
/* The rank of a page of the object from its absolute form. */
static inline uint64_t vvi_rank_relative(const struct vv_core *core, const struct vv_object *obj,
                                         uint64_t absolute)
{
    bool hinted = vv_next_use(absolute) == VV_USE_HINTED && !obj->restoring;

    return hinted ? absolute - vvi_hist(core, obj->hist)->head : absolute;
}
/* The class bits that a page of the object on that tier should have now. */
unsigned vvi_classify(const struct vv_core *core, const struct vv_object *obj, unsigned tier,
                      uint32_t c, const struct vv_page *p);
bool vvi_object_complete_at(const struct vv_core *core, const struct vv_object *obj, unsigned tier);
bool vvi_object_complete_down(const struct vv_core *core, const struct vv_object *obj);

/* ask.c */
/* Traces how full the tiers are. A large change is traced immediately, a small one only if the last
 * record of the tier is at least a millisecond old. */
void vvi_trace_occupancy(struct vv_core *core);

/* states.c */
void vvi_copy_set_state(struct vv_core *core, struct vv_copy *copy, enum vv_copy_state to);

/* hints.c */
int vvi_hint_add(struct vv_core *core, uint32_t hist, uint64_t version);
void vvi_hint_clear(struct vv_core *core, uint32_t hist);
/* The version has been written: gives it its place in a declared order. */
void vvi_hint_written(struct vv_core *core, struct vv_object *obj);
/* Removes its hints from the queue. */
void vvi_hint_gone(struct vv_core *core, struct vv_object *obj);
/* A restore of it has come: judges hints and makes predictions. */
void vvi_hint_restored(struct vv_core *core, struct vv_object *obj);
void vvi_hint_moved(struct vv_core *core, struct vv_object *from, struct vv_object *to);
void vvi_hint_account(struct vv_core *core, const struct vv_object *obj, int sign);
struct vv_object *vvi_hint_at(const struct hist *h, uint64_t seq);
/* The version may be incomplete now: prefetching and the count of ready versions examine it
 * again. */
void vvi_hint_reopen(struct vv_core *core, const struct vv_object *obj);
void vvi_hint_reopen_at(struct vv_core *core, const struct vv_object *obj, unsigned tier);
/* Open hints of a set from `seq` on; the tail if there is none. A hint found complete is closed. */
uint64_t vvi_hint_next_open(const struct hist *h, unsigned set, uint64_t seq);
uint64_t vvi_hint_first_open(struct hist *h, unsigned set);
void vvi_hint_close(struct hist *h, unsigned set, uint64_t seq);
void vvi_hint_refresh_first(struct vv_core *core, struct hist *h);
/* Forgets the pattern. */
void vvi_detect_again(struct vv_core *core, struct hist *h);
uint32_t vvi_hint_distance_ready(struct vv_core *core, uint32_t hist);
void vvi_predict_forget(struct vv_core *core, struct vv_object *obj);
bool vvi_object_expected(const struct vv_core *core, const struct vv_object *obj);
/* The rank of its second use by the hints; UINT64_MAX: unknown. */
uint64_t vvi_hint_after(const struct vv_core *core, const struct vv_object *obj);

/* Removes a chunk from its copy and returns its page, which then has no owner. */
uint32_t vvi_chunk_out(struct vv_core *core, struct vv_copy *copy, uint32_t c);

/* ahead.c */
static inline struct stamp *vvi_stamp(const struct vv_core *core, unsigned tier, uint32_t page)
{
    return core->ahead.on && core->ahead.stamp[tier] ? &core->ahead.stamp[tier][page] : NULL;
}
/* True if orders that run ahead and have not been seen to end use the page. */
static inline bool vvi_ahead_busy(const struct vv_core *core, unsigned tier, uint32_t page)
{
    const struct stamp *st = vvi_stamp(core, tier, page);

    return st && st->reads + st->writes > 0;
}
/* The page has no owner any more, but orders on lanes still use it. Until they have been seen to
 * end, only their family may take it; then it is free. */
void vvi_ahead_limbo(struct vv_core *core, unsigned tier, uint32_t page);
/* True if orders that the family queues now may overwrite the page. */
bool vvi_ahead_writable(const struct vv_core *core, unsigned family, const struct vv_copy *copy,
                        uint32_t c);
/* True if only one family uses the page, and orders that this family queues now may overwrite it. */
bool vvi_ahead_only(const struct vv_core *core, const struct vv_copy *copy, uint32_t c);
/* True if orders that the family queues now will find the bytes there. */
bool vvi_ahead_readable(const struct vv_core *core, unsigned family, const struct vv_object *obj,
                        unsigned tier, uint32_t c);
/* True if an order of another stream will bring the bytes there. That stream may never come to the
 * order. */
bool vvi_ahead_foreign(const struct vv_core *core, unsigned family, const struct vv_object *obj,
                       unsigned tier, uint32_t c);
/* The order was issued for the family: sets its dependencies. */
void vvi_ahead_issued(struct vv_core *core, struct vv_order *o);
/* It has ended, or could not be queued on its lane: its pages have one use less. */
void vvi_ahead_ended(struct vv_core *core, struct vv_order *o);
/* True if the page still holds the bytes that the order has written. */
bool vvi_ahead_wrote(const struct vv_core *core, const struct vv_order *o, uint32_t i);
/* True if some tier has the chunk, or will have it by an order on a lane. */
bool vvi_ahead_somewhere(const struct vv_core *core, const struct vv_object *obj, uint32_t c);
/* The order has failed: all orders that read its output fail as well. */
void vvi_ahead_poison(struct vv_core *core, const struct vv_order *o);
/* Pages of the device that are free on the time line of the family: unused by now, or holding data
 * that other tiers have too and that is wanted later. */
uint32_t vvi_ahead_take(struct vv_core *core, unsigned family, struct vv_object *obj,
                        uint32_t chunk, uint32_t want, enum vv_purpose purpose, uint32_t *pages);
/* Copies down the data wanted last, so that its pages can be taken. False: there is none. */
bool vvi_ahead_flush(struct vv_core *core, unsigned family, struct vv_object *obj, uint32_t chunk,
                     uint32_t want, enum vv_purpose purpose);
/* True if flushes of the history's family run ahead and no request waits: these flushes occupy the
 * link, and make room for everything that is expected. */
static inline bool vvi_ahead_flushes(const struct vv_core *core, const struct hist *h)
{
    return h->family && core->ahead.family[h->family].down > 0 && !core->puts && !core->gets &&
           !core->waits;
}
/* Result of an attempt to bring chunks up. */
enum fetch { FETCH_NOTHING, FETCH_ISSUED, FETCH_NO_ROOM };
/* Host to device, on the family's lane, into pages that are free on its time line. */
enum fetch vvi_ahead_fetch(struct vv_core *core, unsigned family, struct vv_object *obj);
/* True if the family uses as much of the device as each of the active streams may. */
bool vvi_ahead_has_share(const struct vv_core *core, unsigned family);
/* The copy is about to be freed. */
void vvi_ahead_forget(struct vv_core *core, struct vv_copy *copy);
/* Orders planned now may copy data down if the stream of the family put it before this position,
 * in bytes put. */
uint64_t vvi_ahead_due(const struct vv_core *core, unsigned family);
void vvi_ahead_fini(struct vv_core *core);

/* space.c */
uint32_t vvi_space_take(struct vv_core *core, unsigned tier, struct vv_object *obj, uint32_t chunk0,
                        uint32_t want, enum vv_purpose purpose, uint32_t *pages);
/* Transit pages, [0] down, [1] up; `reclaim`: for a blocked restore, may take them from a
 * prefetch. */
uint32_t vvi_space_transit(struct vv_core *core, int up, bool reclaim, uint32_t want,
                           uint32_t *pages);
/* The copy whose farthest evictable page is the farthest on the tier. */
struct vv_copy *vvi_space_farthest(const struct vv_core *core, unsigned tier);
uint32_t vvi_space_evict(struct vv_core *core, struct vv_copy *copy, uint32_t n);
/* Evicts all parts of a page that may go. */
uint32_t vvi_space_evict_parts(struct vv_core *core, unsigned tier, uint32_t page);
/* Makes room on the device for the put that will follow that of `written`. */
void vvi_space_ahead(struct vv_core *core, const struct vv_object *written);
/* Evicts one page that may go. */
void vvi_space_evict_page(struct vv_core *core, struct vv_copy *copy, uint32_t c);
/* Contiguous policies. _whole_may_go: true if all pages of the copy may go. _evict_run: evicts
 * them. */
bool vvi_space_whole_may_go(const struct vv_copy *copy);
void vvi_space_evict_run(struct vv_core *core, struct vv_copy *copy);
void vvi_space_untake(struct vv_core *core, unsigned tier, const uint32_t *pages, uint32_t n);
bool vvi_space_fits(const struct vv_core *core, unsigned tier, const struct vv_object *obj);
bool vvi_space_room_for(struct vv_core *core, unsigned tier, const struct vv_object *obj,
                        uint32_t chunk, enum vv_purpose purpose);
/* True if the room that a put waits for may still come. */
bool vvi_room_may_come(const struct vv_core *core);

/* sched.c */
/* _order_for makes an order for the object, with a reference to it; NULL: no memory. _push queues
 * the order to be handed out. */
struct vv_order *vvi_order_for(struct vv_core *core, enum vv_order_kind kind,
                               struct vv_object *obj);
void vvi_core_push(struct vv_core *core, struct vv_order *o);
/* Issues an order that moves chunks [c0, c0 + n) ahead, on a lane of the family. `pages`: their
 * places on dst; given back if there is no memory for the order. */
bool vvi_issue_ahead(struct vv_core *core, unsigned family, enum vv_lane lane,
                     struct vv_object *obj, int src, int dst, uint32_t c0, uint32_t n,
                     const uint32_t *pages, enum vv_copy_state born);
/* True if the tier could give this chunk to the restore now. */
bool vvi_get_gives(const struct vv_core *core, const struct vv_req *req, unsigned tier, uint32_t c);
/* True if the object is where a restore gets it fastest: on the device, except for the share that
 * the link delivers in the same time, or in whatever tier it is restored from. */
bool vvi_object_ready(const struct vv_core *core, const struct vv_object *obj);
/* Checks all invariants, which reads the whole state: with large tiers or long histories only at
 * some calls, so that the cost for each call stays bounded. */
void vvi_core_check_sometimes(struct vv_core *core);
void vvi_sched(struct vv_core *core);

/* ---- waits.c ---- */

/* Ends the waits whose version or history has reached its level, or has failed. */
void vvi_end_waits(struct vv_core *core);
/* Nothing can be started: fails a request that nothing under way can help, or lets a put take
 * another path. True: something has changed, and the scheduler looks again. */
bool vvi_fail_stuck(struct vv_core *core);
/* Issues all of a new request at once if it is the only one and only the device is involved. True:
 * the caller may skip the scheduler. Other work can start when the request ends, in less than a
 * hundred microseconds, instead of while the application waits. */
bool vvi_sched_quick(struct vv_core *core, struct vv_req *req);
/* Takes a put's share of a files tier with a capacity; false: not yet. */
bool vvi_charge_file(struct vv_core *core, struct vv_req *req);
/* Chunks of the object that belong on the device, and that are there or on their way. */
uint32_t vvi_device_share(const struct vv_core *core, const struct vv_object *obj);
uint32_t vvi_on_device(const struct vv_core *core, const struct vv_object *obj);

/* filing.c */
void vvi_sched_commit(struct vv_core *core, struct vv_object *obj);
void vvi_sched_remove_file(struct vv_core *core, struct vv_object *obj, uint64_t file_generation);
/* Takes back the chunks written to a spoiled file, once nothing uses it, and has the file removed.
 * If only that file has some chunks, it stays until another one is committed. */
void vvi_file_clean(struct vv_core *core, struct vv_object *obj);
/* Copies the chunks that only the failed file has into the file that replaces it, order by
 * order. */
void vvi_sched_salvage(struct vv_core *core, struct vv_object *obj);
void vvi_commit_done(struct vv_core *core, struct vv_object *obj, int status);
void vvi_salvage_done(struct vv_core *core, const struct vv_order *o, int status);

/* removals.c */
/* The object has ended: its file is removed when it can be. `dropped`: no opening may find it any
 * more, and it need not wait for older ones. */
void vvi_removal_due(struct vv_core *core, struct vv_object *obj, bool dropped);
/* Called when no order uses the object's file any more: removes the file when its turn comes. False:
 * there is nothing to remove, or its removal was given up. */
bool vvi_removal_begin(struct vv_core *core, struct vv_object *obj);
void vvi_removal_done(struct vv_core *core, struct vv_object *obj);
/* The file could not be removed: it still takes its space, and its version would exist again when
 * the history is opened next. The next caller gets the error, and the next wait for all versions
 * tries again. */
void vvi_removal_failed(struct vv_core *core, struct vv_object *obj, uint64_t file_generation,
                        int status);
/* _retry tries failed removals again. _forget leaves their files, because the history ends. */
void vvi_removals_retry(struct vv_core *core, struct hist *h);
void vvi_removals_forget(struct vv_core *core, struct hist *h);

/* lend.c */
/* Serves a lease; false: there is no room now. */
bool vvi_lend_serve(struct vv_core *core, struct vv_req *req);
/* A lease is first in the queue for this tier. */
bool vvi_lend_waits(const struct vv_core *core, unsigned tier);
void vvi_lend_failed(struct vv_core *core, const struct vv_req *req);
/* A version takes leases over together with its share of the disk, or not at all: if it waited for
 * that share and failed, the leases would be lost. -EAGAIN: not yet; -ENOSPC: nothing will make
 * room. */
int vvi_lend_admit(const struct vv_core *core, uint64_t file_bytes);
/* Leases become the pages of an object that is about to be put. */
int vvi_lend_take_over(struct vv_core *core, struct vv_object *obj, struct vv_lend *const *lends,
                       size_t n);

/* ask.c */
/* An order has ended: for the figures. */
void vvi_figures_done(struct vv_core *core, const struct vv_order *o, int status);

/* histories.c */
void vvi_history_fini(struct hist *h, unsigned ntiers);

/* core.c */
/* Every call that changes something begins with _enter and ends with the function below it. */
void vvi_core_enter(struct vv_core *core, uint64_t now_ns);
void vvi_core_leave(struct vv_core *core);
/* A read of the version begins: updates hints, predictions and figures. */
void vvi_restore_begins(struct vv_core *core, struct vv_object *obj);
void vvi_lease_start(struct vv_core *core, uint32_t hist, struct vv_object *obj,
                     struct vv_req *req);
void vvi_fail_gets_of(struct vv_core *core, const struct vv_object *obj, int status);
void vvi_req_end(struct vv_core *core, struct vv_req *req, int status);
/* The pending put of the object, or NULL. */
struct vv_req *vvi_put_of(const struct vv_core *core, const struct vv_object *obj);
/* A flush to the tier, or a commit, has failed. The put of the version returns the error if it is
 * still pending, otherwise a later call does. */
void vvi_flush_failed(struct vv_core *core, struct vv_object *obj, int tier, int status);
/* A put or a get of an object without chunks, which no order would end. */
void vvi_req_nothing(struct vv_core *core, struct vv_req *req);
/* All orders of an ordered request are out: it is no longer blocked. */
void vvi_req_issued(struct vv_core *core, struct vv_req *req);
struct vv_order *vvi_order_new(struct vv_core *core, enum vv_order_kind kind);

/* ---- generations.c ---- */

/* True if retention counts it among the versions that have reached the level: not while it may be
 * taken back. A version that a previous process left unfinished counts once a caller has seen it:
 * until then the application may overwrite it, having continued from an older one. */
static inline bool vvi_gen_counts(const struct vv_object *obj)
{
    return obj->gen == VV_GEN_SAFE && !obj->unfinished && !obj->provisional;
}

/* True if it may be waited for and discarded. */
static inline bool vvi_gen_known(const struct vv_object *obj)
{
    return obj->written || (obj->writing && obj->ordered);
}

/* The put under way that will replace this one, or NULL. */
static inline struct vv_object *vvi_gen_replacement(const struct vv_core *core,
                                                    const struct vv_object *obj)
{
    bool in_table = !obj->beside && !obj->dead;

    return in_table ? vv_table_find(&vvi_hist(core, obj->hist)->replacements, obj->version) : NULL;
}

/* The newest generation that a caller may name: a version to be written by a stream counts before
 * it is written. NULL: the version does not exist. */
static inline struct vv_object *vvi_gen_last(const struct vv_core *core, uint32_t hist,
                                             uint64_t version)
{
    struct vv_object *obj = vvi_object_find(core, hist, version);
    struct vv_object *next = obj ? vvi_gen_replacement(core, obj) : NULL;

    return next && next->ordered ? next : obj;
}

/* True if the version exists or is being written, and may not be replaced. */
bool vvi_gen_refuses(const struct vv_core *core, uint32_t hist, uint64_t version, bool replace);
/* The object that a put writes: beside the version that it replaces, or the object that holds its
 * hints. A put that a stream has still to carry out is dropped in its favour. Where nothing
 * outlives the process, so is the replaced version, to make room. NULL: no memory. */
struct vv_object *vvi_gen_begin(struct vv_core *core, uint32_t hist, uint64_t version);
/* The edition of an object that is about to be written. */
uint32_t vvi_edition_next(const struct vv_core *core, const struct vv_object *obj);
/* The object is about to end, and the version may be written again, as another edition. -ENOMEM. */
VV_WARN_UNUSED int vvi_edition_ends(struct vv_core *core, const struct vv_object *obj);
/* Changes the state of a generation, as the table allows. The caller updates tables and counts. */
void vvi_gen_step(struct vv_core *core, struct vv_object *obj, enum vv_gen_event event);
/* It ends by REPLACED, DROPPED or DISCARDED; updates the other generations of its version. */
void vvi_gen_end(struct vv_core *core, struct vv_object *obj, enum vv_gen_event event);
/* Retention ends the version. Without memory for its edition it stays until the next attempt. */
void vvi_gen_expire(struct vv_core *core, struct vv_object *obj);
/* Its file is committed, its put has ended, or the store reported that it has reached the level. */
void vvi_gen_durable(struct vv_core *core, struct vv_object *obj);
void vvi_gen_retain(struct vv_core *core, struct hist *h);
/* The history ends: its files stay. */
void vvi_gen_close(struct vv_core *core, struct vv_object *obj);
/* A put of a live object has failed or was taken back, or its bytes are lost. True: a wait has
 * ended with `status`. */
bool vvi_put_failed(struct vv_core *core, struct vv_object *obj, int status);

#endif
