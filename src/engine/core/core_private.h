/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine/core, inside. What each file does:
 *
 *   core.c     open and close, requests, completions, growth
 *   ask.c      questions
 *   object.c   objects, their versions, copies and pages: the books
 *   states.c   the life cycle of a copy
 *   hints.c    the restore order: hints, passed-over hints, predictions
 *   space.c    who makes room for whom
 *   sched.c    which order goes out next on each hop
 *   histories.c  opened and dropped
 *   lend.c     pages that the application uses itself
 *   ahead.c    orders planned on the time line of a stream
 *   generations.c  versions that are overwritten: which generation counts, which one stays
 *   filing.c   files that are being written, and what becomes of those that fail
 *   removals.c  the files of generations that have ended, until they are gone
 *   check.c    invariants and the digest
 *
 * Where a chunk is, is written in one place only: the page table of each copy and the state of each
 * page. All that is derived from it (what may go, what must be flushed, what could move up, how
 * many of each) is kept by vvi_core_reclass(), which every change of a chunk ends with.
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
    PREDICT_AHEAD = 4096, /* most predicted hints outstanding, */
    PREDICT_FIRST = 64,   /* when a pattern is found, */
    PREDICT_STEP = 16,    /* and more with each restore */
    OVERTAKEN_MOST = 3,   /* see hints.c, as the next two */
    SURPRISES_MOST = 1,
    WRONG_MOST = 8,
    MIXED_MOST = 8,  /* restores without a put until no more are expected between them */
    REUSE_MOST = 3,  /* restores without reuse until no more is expected */
    LOOK_AHEAD = 32, /* hinted versions beyond the first incomplete one that a prefetch considers */
    APP_SLOTS = 2,   /* orders in flight for one request on one hop */
    AHEAD_PART = 24, /* room for one object is made ahead where it is at most this part of a tier */
    SHARE_LEAST = 16, /* a device so many times faster than its link restores without its help */
    /* Numbers of files that each put may use, one after the other, as its writes fail: at the next
     * opening the numbers give the order of writing. */
    GENERATION_STEP = 8,
    AHEAD_BATCHES = 4, /* an order that runs ahead moves as much as so many others */
    PARTS = 32,        /* an object of unknown order loses this part of itself at a time */
    /* Of what a stream has put last, this part of the device is not copied down before it is written. */
    RECENT_PART = 4,
    VICTIMS_LOOKED_AT = 64, /* in search of one */
    REFLUSH_MOST = 64,      /* times that a page is dropped before it is flushed, by and large */
};

/* A stream that was not used for so long leaves its share to the others. */
#define STREAM_IDLE_NS UINT64_C(1000000000)

/* Where the sequence numbers of hints begin, which are counted up and down; half of what a rank
 * holds. */
#define HINT_MIDDLE (UINT64_C(1) << 55)

/* What a page is good for, derived; bits of vv_page.class. */
enum {
    CLASS_EVICT = 1, /* may go: a slower tier has its bytes */
    CLASS_DIRTY = 2, /* no slower tier has its bytes: to be flushed */
    CLASS_UP = 4,    /* no faster memory tier has its bytes: could be prefetched */
    CLASS_DUP = 8,   /* may go: a faster tier has its bytes */
    CLASS_PASS =
        16, /* may go, but stands in a transit page: its going makes no room in the arena */
};

/* HELD: all that has pages on the device, once something runs ahead. */
enum heap_kind { HEAP_EVICT, HEAP_DIRTY, HEAP_DUP, HEAP_HELD, HEAP_KINDS };

/* States of a chunk in a file that is being written, kept in the copy's page table. */
#define FILE_CHUNK_FILLING (VV_PAGE_NONE - 1)
#define FILE_CHUNK_VALID   0u
#define FILE_CHUNK_OLD     1u /* valid in the file before, which failed: see vvi_file_clean */

struct vv_copy {
    struct vv_object *obj;
    uint8_t tier : 4;
    uint8_t recent : 4; /* in the list of this family; 0: in none */
    uint8_t state;      /* enum vv_copy_state */
    bool whole;         /* contiguous policies: all its pages are one run, taken at once */
    bool commit_issued;
    bool failed;    /* whole: a transfer to it failed, it goes when no other uses it */
    bool salvaging; /* a SALVAGE order is out for it */
    /* Orders that read all of it. None of its pages may go meanwhile, whatever their class: it is
     * out of the heaps that victims are taken from. Cheaper than a pin on each page. */
    uint16_t readers;
    uint32_t nvalid, nfilling, nreserved;
    uint32_t ntransit;                  /* of these, in transit pages */
    uint32_t nevict, ndirty, nup, ndup; /* pages of each class */
    uint32_t evict_top, dirty_top,
        up_low;        /* no page of the class beyond here; a bound, not exact */
    uint32_t held_top; /* the same for pages of any class */
    uint32_t heap_pos[HEAP_KINDS];
    union {
        struct {                          /* contiguous policies */
            uint64_t stamp_in, stamp_use; /* fifo, lru; flushes go by stamp_in */
            uint64_t flush_mark;          /* bytes queued for flushing before it, ever */
        };
        struct {             /* `next`: */
            uint64_t put_at; /* put_bytes of its family behind its last chunk; 0: none has put it */
            struct vv_copy *before, *behind; /* in family.recent */
        };
    };
    /* Of a file: orders that read it; the file that failed and has the chunks marked FILE_CHUNK_OLD,
     * 0: none; how many these are. */
    uint32_t nreading, nold;
    uint64_t old_generation;
    uint32_t page[]; /* by chunk: page number, or VV_PAGE_NONE */
};

/* The file of an object that has ended, and whether it may still be there (removals.c). */
enum removal {
    REMOVAL_NONE,  /* not ended, or gone */
    REMOVAL_DUE,   /* in hist->ending, as are the next two */
    REMOVAL_ASKED, /* a REMOVE order is out for it */
    REMOVAL_FAILED /* the next wait for everything tries again */
};

/* There is one for every version. What questions and hints read stands first, together. */
struct vv_object {
    VV_TABLE_ITEM(version);
    uint64_t generation, size, user;
    uint64_t file_generation;
    uint32_t edition; /* see vv_object_info */
    uint32_t nchunks;
    struct vv_copy *copy[VV_MAX_TIERS];
    uint8_t gen : 3;      /* enum vv_gen_state; written, writing and dead follow from it */
    uint8_t home : 2;     /* tier it enters and is prefetched to */
    uint8_t err_tier : 2; /* that flush_err is about */
    bool written : 1;     /* its put has ended: it may be restored */
    uint8_t removal : 2;  /* enum removal */
    bool writing : 1;     /* its put is pending */
    bool ordered : 1;     /* its put is ordered by a stream: known before it is written */
    bool dead : 1;        /* HELD or ENDED: no restore gets it; of a HELD one the file stays */
    bool consumed : 1;
    bool nameless : 1;    /* of a lease: no version, never in the table */
    bool durable : 1;     /* committed on the files tier */
    bool dropped : 1;     /* ENDED by DROPPED: the next opening should find others of the version */
    bool passed : 1;      /* hint passed over */
    bool no_prefetch : 1; /* a transfer up failed: left to restores */
    bool down : 1;      /* written, and complete on the slowest tier or given up: in hist->ndown */
    bool keep_file : 1; /* dead for this process only: its committed file stays */
    bool beside : 1;    /* in hist->replacements: it will replace the one in the table */
    bool reached : 1;   /* the store says that its file has reached the level */
    bool missed : 1;    /* the store says that its copy has failed */
    bool provisional : 1; /* the one it replaces stays until vv_core_confirm */
    bool
        unfinished : 1; /* an earlier life left it below the level, and no caller has heard of it */
    bool exempt : 1;    /* no longer among the newest, and kept by keep_every */
    bool filled : 1;    /* `streams`: all bytes are in the tiers, its put waits for the commit */
    bool pass_through : 1; /* larger than its tier: its put goes through transit pages as well */
    bool streams : 1;      /* too large to stay in memory until its file is committed */
    bool spoiled : 1;  /* a write to its file or its commit failed: that file is good for nothing */
    bool told : 1;     /* its flush_err has been reported */
    int16_t flush_err; /* why flushing it was given up; 0: not */
    uint16_t restoring : 14; /* restores under way: it is wanted before anything else */
    uint16_t restored : 1;   /* at least once */
    uint16_t used : 1;       /* it would be `consumed` without the hint that it has */
    uint32_t nmem;           /* chunks valid or filling on a memory tier */
    uint32_t hist : 29;
    uint32_t left : 1;  /* a file of it that failed is there: its removal failed, too */
    uint32_t lost : 1;  /* a flush that ran ahead failed, and its pages are gone: its put fails */
    uint32_t spent : 1; /* restored and consumed, on the time line of a stream */
    uint64_t hint_first, hint_last;  /* sequence numbers of its live hints; 0: none */
    struct vv_object *older, *newer; /* in order of writing; written objects only */
    /* The same, without those marked `exempt`. */
    struct vv_object *expires_before, *expires_after;
    struct vv_object *old; /* HELD until this one is safe */
    uint64_t ordinal;      /* place in the order of writing, for the detector */
    uint64_t file_bytes;   /* of the files tier's capacity that it takes */
    uint32_t miss_low;     /* no chunk before this one is missing from memory */
    uint32_t refs;         /* orders in flight and pending requests */
    uint32_t reflushed;    /* pages dropped before they were flushed, another tier having them */
    uint32_t lent;         /* times that pages of it are lent in place */
};

/* A million versions are a usual history. */
_Static_assert(sizeof(struct vv_object) <= 184,
               "an object and its allocator's header take more than three cache lines");

/* Sets of open hints; OPEN_TIER + t for memory tier t, of which there are two at most. */
enum { OPEN_READY, OPEN_TIER, OPEN_SETS = OPEN_TIER + 2 };

struct hint {
    struct vv_object *obj;
    uint64_t next_same : 63; /* the next live hint of the same version; 0: none */
    uint64_t predicted : 1;  /* by the detector */
};

/* The highest edition that was discarded or taken back of a version. */
struct edition {
    VV_TABLE_ITEM(version);
    uint32_t edition;
};

struct hist {
    bool used;
    bool started;                      /* prefetching has begun */
    bool hinted;                       /* the application has given hints, or declared an order */
    uint8_t njudges, surprises, wrong; /* how good hints are: see hints.c */
    uint8_t reuse; /* above 0: restored versions are likely to be wanted again */
    struct vv_core_hist_cfg cfg;

    struct vv_table versions;     /* live objects */
    struct vv_table replacements; /* puts under way that will replace one of them, by version */
    size_t nalive;                /* dead ones included */
    struct vv_object *oldest, *newest;
    struct vv_object *expires_first, *expires_last; /* not `exempt`, in the same order */
    uint64_t next_ordinal, ndurable, nwritten, ndown;
    uint64_t next_generation;
    uint64_t nsafe, nexempt;  /* versions that vvi_gen_counts; of them, those marked `exempt` */
    struct vv_table editions; /* of struct edition, owned */
    uint32_t ncopies[VV_MAX_TIERS];

    struct hint *ring;              /* live hints, by sequence number modulo its size */
    uint64_t ring_size, head, tail; /* [head, tail) */
    uint64_t ngiven, npredicted;    /* hints of the application, and behind them the detector's */
    uint64_t predicted_at;          /* none of them is before it */
    uint64_t judge[OVERTAKEN_MOST]; /* the highest places of hints that came true, ascending */
    /* Places in the ring of first hints whose version is not known to be complete: on the tier that
     * it is restored from; for each memory tier, there or faster. */
    struct vv_bitset open[OPEN_SETS];
    uint64_t first_open[OPEN_SETS]; /* no hint before it is open */
    unsigned nopen;                 /* sets in use */
    /* The first LOOK_AHEAD open hints of the tier can bring nothing up: nothing to look at until a hint
     * is opened or closed. */
    bool idle[OPEN_SETS];
    uint64_t round;   /* of core->round in which nothing was left to prefetch */
    uint8_t family;   /* of the stream that ordered its last request; 0: none did */
    uint64_t *passed; /* versions of passed-over hints, oldest first */
    size_t npassed, passed_cap, passed_at;
    struct vv_object *predict_from; /* next object to predict a hint for */
    struct vv_table ending;         /* ended, and their files may be there: see removals.c */
    size_t nunremoved;

    uint64_t ready,
        missing_chunks; /* hinted and written objects; their chunks that are on no memory tier */
    uint64_t unwritten; /* hinted, not yet written: puts to come */

    struct vv_detect detect;
    uint64_t interval_ns, last_end_ns; /* between two requests, averaged */
    struct vv_heap heap[VV_MAX_TIERS][HEAP_KINDS];

    int late_err, late_tier;
    uint64_t late_version;
    uint64_t nfailed; /* versions whose flushing was given up */
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
    uint32_t nevict; /* pages that may go */
    uint32_t ndirty; /* pages to be flushed */
    uint32_t lent;   /* pages lent and not on their way back, or to be lent to requests that wait */
    uint64_t freed_epoch; /* counts events that may make room */
    uint64_t tried_epoch
        [2]; /* contiguous, by purpose: nothing has changed since a window was sought in vain */
    uint32_t tried_pages[2];
    uint64_t lease_epoch; /* the same for leases */
    uint32_t lease_pages;
    struct { /* score: the window committed to, by purpose */
        struct vv_object *obj;
        uint32_t first, n;
    } commit[2];
};

struct hop_state {
    uint32_t inflight, slots, batch;
    struct vv_rate rate;
    uint64_t last_done_ns, queued_bytes, done_bytes, moved_bytes;
    /* For the figures only: orders of any kind under way, for how long there was at least one, the
     * present one of these times not included, and how many failed. */
    uint64_t orders, busy_ns, busy_since_ns, errors;
};

/* What orders that run ahead do to a page, of those that stand on their lanes and have not been seen to
 * end: when its bytes are valid, and when it may be overwritten. All 0: there are none. */
struct stamp {
    uint64_t last[VV_LANES]; /* the last use by each lane of the family */
    uint64_t wrote;          /* the last write, on the stream `writer` */
    uint16_t reads, writes;
    uint8_t family; /* 0: none but EARLY; FAMILY_MIXED: several */
    uint8_t writer;
    uint8_t
        queued; /* the family of an order that will write it and is not on its lane yet; 0: none */
    bool planned;        /* the page is being filled, and that write stands on its lane */
    uint8_t limbo;       /* nobody's: in this family's list; LIMBO_ALONE: in none; 0: not */
    uint32_t next, prev; /* in the list */
};

enum { FAMILY_MIXED = 254, LIMBO_ALONE = 255 };

struct family {
    uint64_t id, used; /* of its stream, 0: none; when it was last asked for */
    uint64_t used_ns;
    uint32_t pages;                 /* of the device, in use by it alone and by EARLY */
    uint32_t reqs, orders;          /* that have not ended */
    uint32_t flushes;               /* orders down, issued and not yet on their lane */
    uint32_t down;                  /* orders down that have not been seen to end */
    uint64_t put_bytes, seen_bytes; /* put by its stream; of them, seen to end */
    /* put_bytes when the lane down will have copied all that stands there; the same when something
     * to be copied was sought last. See ahead.c. */
    uint64_t down_at, due_at;
    struct vv_copy *recent, *recent_last; /* not due yet, in the order in which they were put */
    bool refused; /* a lane did not take a flush: no more of them before the next request */
    /* Pages of the device that are nobody's and may be this family's, first and last: in the order in
     * which they were left. */
    uint32_t limbo, limbo_last;
};

struct ahead {
    bool on;                           /* a stream has a family */
    struct stamp *stamp[VV_MAX_TIERS]; /* of the memory tiers */
    uint64_t seen[VV_STREAMS];         /* each stream has ended all up to here */
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
    uint64_t round;                           /* times that a hop was looked at for prefetches */
    uint64_t inflight, issued;                /* orders issued and not completed; issued, ever */
    struct vv_order *ready_head, *ready_tail; /* to be handed out */
    struct vv_order *orders;                  /* all of them, handed out or not */
    struct vv_order *free_orders, wake_order;
    struct vv_req *wake_head, *wake_tail; /* ended, to be told */
    struct vv_req *puts, *gets, *waits;   /* pending, oldest first */
    /* Puts and gets with all orders issued that wait for a stream of the application, newest first,
     * and waits for such puts: none of them is blocked on anything that the core could do. There may
     * be thousands of `ordered`: no call walks it, but where something has failed or ends. */
    struct vv_req *ordered, *sights;
    struct vv_lend *lends; /* all of them */
    uint32_t nending;      /* those whose return is under way */
    bool lent_ever;        /* a lease was made: where pages stand matters to the next */
    enum vv_phase phase;
    uint64_t largest_bytes;     /* object seen */
    uint64_t put_bytes;         /* size of the last one */
    uint32_t mixed;             /* above 0: puts come between restores */
    uint32_t reads_since_write; /* on the disk; VV_NEXT_WRITE_TURN at most */
    bool put_short;             /* a put found no room when puts were last served */
    bool stands_still;          /* and no flush is under way that would make any */
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
    struct {           /* what the trace was told last of each tier */
        uint64_t bytes, time_ns;
    } traced[VV_MAX_TIERS];
    struct vv_core_stats stats;
};

/* With every version that is hinted written, no put is expected; unless hints come with the puts. */
static inline bool vvi_puts_over(const struct hist *h)
{
    return h->hinted && h->unwritten == 0 && h->cfg.order == VV_RESTORE_BY_HINTS;
}

/* Histories take turns: while one of them waits or restores, another one's put may be blocked. */
static inline enum vv_phase vvi_phase(const struct vv_core *core)
{
    return core->puts ? VV_PHASE_WRITING : core->phase;
}

/* object.c */
static inline struct hist *vvi_hist(const struct vv_core *core, uint32_t hist)
{
    return &core->hist[hist];
}
/* The history as traces know it. */
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

/* Nothing of it is flushed: that was given up, or something still uses the file that failed. */
static inline bool vvi_flush_rests(const struct vv_object *obj)
{
    return obj->flush_err || obj->spoiled;
}

/* One of the pages behind the arena. */
static inline bool vvi_transit_page(const struct tier *t, uint32_t page)
{
    return page - t->arena.npages < 2 * t->transit_all; /* a page of the arena wraps around */
}

/* Does it stand in one of them, for a moment? */
static inline bool vvi_chunk_in_transit(const struct vv_core *core, const struct vv_object *obj,
                                        unsigned tier, uint32_t c)
{
    const struct vv_copy *copy = obj->copy[tier];

    return core->tier[tier].is_arena && copy && copy->page[c] != VV_PAGE_NONE &&
           vvi_transit_page(&core->tier[tier], copy->page[c]);
}

/* Do chunks that were written to its file, which is not committed, let faster copies go? Only of the
 * first file: when one has failed, memory keeps what it has until the next is committed. */
static inline bool vvi_file_keeps(const struct vv_core *core, const struct vv_object *obj)
{
    const struct vv_copy *file = obj->copy[core->disk];

    return core->cfg.written_stays && file && !file->old_generation && !obj->spoiled;
}

/* Does a chunk that is valid on this slower tier let faster copies go? What is written to a file
 * may be lost until the file is committed. Where it can be read back until then, it does; elsewhere
 * memory keeps it, transit pages not counted, unless it could never hold all of the object. */
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

/* Will there be more pages on some tier, whatever else happens? */
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
/* One that will replace what is in the table. */
struct vv_object *vvi_object_beside(struct vv_core *core, uint32_t hist, uint64_t version);
struct vv_object *vvi_object_nameless(struct vv_core *core, uint32_t hist);
/* Into the books as a written version, and out of them; `successor`, or NULL, takes its place in the
 * table and its hints. */
void vvi_object_enter(struct vv_core *core, struct vv_object *obj);
void vvi_object_leave(struct vv_core *core, struct vv_object *obj, struct vv_object *successor);
/* keep_every keeps it for good: retention looks at it no more. */
void vvi_object_exempt(struct vv_core *core, struct vv_object *obj);
/* Gives up the memory of one that has left, as far as no transfer uses it. */
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
/* Chunks of which no memory tier has anything yet, to be filled now: vvi_chunk_place, but cheaper. */
void vvi_chunks_fill(struct vv_core *core, struct vv_copy *copy, uint32_t c0, uint32_t n,
                     const uint32_t *pages);
void vvi_chunk_set(struct vv_core *core, struct vv_copy *copy, uint32_t c,
                   enum vv_page_state state);
void vvi_chunk_drop(struct vv_core *core, struct vv_copy *copy, uint32_t c);
/* The same for chunks [c0, c0 + n), valid pages of an arena, and cheaper. Ends, like the
 * other, with classes to be derived anew. */
void vvi_chunks_drop(struct vv_core *core, struct vv_copy *copy, uint32_t c0, uint32_t n);
void vvi_core_reclass(struct vv_core *core, struct vv_object *obj, uint32_t c0, uint32_t n);
/* Chunks from `c` on have come or gone on some tier: restores under way look at them again. */
void vvi_gets_look_again(struct vv_core *core, const struct vv_object *obj, uint32_t c);
void vvi_object_refresh(struct vv_core *core, struct vv_object *obj); /* its rank has changed */
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
/* Tells the trace how full the tiers are: what changed by more than a small part of the tier at
 * once, and the rest after a millisecond. */
void vvi_trace_occupancy(struct vv_core *core);

/* states.c */
void vvi_copy_set_state(struct vv_core *core, struct vv_copy *copy, enum vv_copy_state to);

/* hints.c */
int vvi_hint_add(struct vv_core *core, uint32_t hist, uint64_t version);
void vvi_hint_clear(struct vv_core *core, uint32_t hist);
/* The version has been written: its place in a declared order. */
void vvi_hint_written(struct vv_core *core, struct vv_object *obj);
/* Takes its hints out of the queue with it. */
void vvi_hint_gone(struct vv_core *core, struct vv_object *obj);
/* A restore of it came: hints are judged, predictions follow. */
void vvi_hint_restored(struct vv_core *core, struct vv_object *obj);
void vvi_hint_moved(struct vv_core *core, struct vv_object *from, struct vv_object *to);
void vvi_hint_account(struct vv_core *core, const struct vv_object *obj, int sign);
struct vv_object *vvi_hint_at(const struct hist *h, uint64_t seq);
/* The version may be incomplete now: prefetching, and the count of those ready, look at it again. */
void vvi_hint_reopen(struct vv_core *core, const struct vv_object *obj);
void vvi_hint_reopen_at(struct vv_core *core, const struct vv_object *obj, unsigned tier);
/* Open hints of a set from `seq` on; the tail if there is none. One that was found complete is closed. */
uint64_t vvi_hint_next_open(const struct hist *h, unsigned set, uint64_t seq);
uint64_t vvi_hint_first_open(struct hist *h, unsigned set);
void vvi_hint_close(struct hist *h, unsigned set, uint64_t seq);
void vvi_hint_refresh_first(struct vv_core *core, struct hist *h);
/* Forgets the pattern. */
void vvi_detect_again(struct vv_core *core, struct hist *h);
uint32_t vvi_hint_distance_ready(struct vv_core *core, uint32_t hist);
void vvi_predict_forget(struct vv_core *core, struct vv_object *obj);
bool vvi_object_expected(const struct vv_core *core, const struct vv_object *obj);
/* The rank of its second use by the hints; UINT64_MAX: none is known. */
uint64_t vvi_hint_after(const struct vv_core *core, const struct vv_object *obj);

/* Takes a chunk out of the books; its page is nobody's then, and returned. */
uint32_t vvi_chunk_out(struct vv_core *core, struct vv_copy *copy, uint32_t c);

/* ahead.c */
static inline struct stamp *vvi_stamp(const struct vv_core *core, unsigned tier, uint32_t page)
{
    return core->ahead.on && core->ahead.stamp[tier] ? &core->ahead.stamp[tier][page] : NULL;
}
/* Is the page in use by orders that run ahead and have not been seen to end? */
static inline bool vvi_ahead_busy(const struct vv_core *core, unsigned tier, uint32_t page)
{
    const struct stamp *st = vvi_stamp(core, tier, page);

    return st && st->reads + st->writes > 0;
}
/* A page that nobody owns and that something still uses: it is free when that has been seen to end, and
 * before that for its family. */
void vvi_ahead_limbo(struct vv_core *core, unsigned tier, uint32_t page);
/* May what the family puts on its lanes now overwrite the page? */
bool vvi_ahead_writable(const struct vv_core *core, unsigned family, const struct vv_copy *copy,
                        uint32_t c);
/* The same for some family: nothing else uses the page. */
bool vvi_ahead_only(const struct vv_core *core, const struct vv_copy *copy, uint32_t c);
/* Are the bytes there for what the family puts on its lanes now? */
bool vvi_ahead_readable(const struct vv_core *core, unsigned family, const struct vv_object *obj,
                        unsigned tier, uint32_t c);
/* Are the bytes on their way there at the time of another stream, which may never come to it? */
bool vvi_ahead_foreign(const struct vv_core *core, unsigned family, const struct vv_object *obj,
                       unsigned tier, uint32_t c);
/* The order was issued for the family: what it has to wait for. */
void vvi_ahead_issued(struct vv_core *core, struct vv_order *o);
/* It has ended, or could not be put on its lane: its pages are used by one less. */
void vvi_ahead_ended(struct vv_core *core, struct vv_order *o);
/* Is this still what the order has written there? */
bool vvi_ahead_wrote(const struct vv_core *core, const struct vv_order *o, uint32_t i);
/* Is the chunk valid on some tier, or will it be, by what stands on lanes? */
bool vvi_ahead_somewhere(const struct vv_core *core, const struct vv_object *obj, uint32_t c);
/* It has failed: so has all that read what it was to write. */
void vvi_ahead_poison(struct vv_core *core, const struct vv_order *o);
/* Pages of the device that are free on the time line of the family, by now or because others are there
 * too that are wanted later. */
uint32_t vvi_ahead_take(struct vv_core *core, unsigned family, struct vv_object *obj,
                        uint32_t chunk, uint32_t want, enum vv_purpose purpose, uint32_t *pages);
/* Has what is wanted last copied down, so that its pages can be taken. False: there is nothing. */
bool vvi_ahead_flush(struct vv_core *core, unsigned family, struct vv_object *obj, uint32_t chunk,
                     uint32_t want, enum vv_purpose purpose);
/* Flushes that run ahead take the link, and make room for all that is expected. */
static inline bool vvi_ahead_flushes(const struct vv_core *core, const struct hist *h)
{
    return h->family && core->ahead.family[h->family].down > 0 && !core->puts && !core->gets &&
           !core->waits;
}
/* What an attempt to bring chunks up has come to. */
enum fetch { FETCH_NOTHING, FETCH_ISSUED, FETCH_NO_ROOM };
/* Host to device, on the family's lane, into pages that are free on its time line. */
enum fetch vvi_ahead_fetch(struct vv_core *core, unsigned family, struct vv_object *obj);
/* Does the family use as much of the device as every stream may that is in use? */
bool vvi_ahead_has_share(const struct vv_core *core, unsigned family);
/* The copy is about to be freed. */
void vvi_ahead_forget(struct vv_core *core, struct vv_copy *copy);
/* What the stream of the family has put, up to here, may be copied down by what is planned now. */
uint64_t vvi_ahead_due(const struct vv_core *core, unsigned family);
void vvi_ahead_fini(struct vv_core *core);

/* space.c */
uint32_t vvi_space_take(struct vv_core *core, unsigned tier, struct vv_object *obj, uint32_t chunk0,
                        uint32_t want, enum vv_purpose purpose, uint32_t *pages);
/* Transit pages, [0] down, [1] up; `reclaim`: a blocked restore may take them from a prefetch. */
uint32_t vvi_space_transit(struct vv_core *core, int up, bool reclaim, uint32_t want,
                           uint32_t *pages);
/* The copy whose farthest evictable page is farthest of all on the tier. */
struct vv_copy *vvi_space_farthest(const struct vv_core *core, unsigned tier);
uint32_t vvi_space_evict(struct vv_core *core, struct vv_copy *copy, uint32_t n);
/* Lets all parts of a page go that may. */
uint32_t vvi_space_evict_parts(struct vv_core *core, unsigned tier, uint32_t page);
/* Makes room on the device for the put that will follow the one of `written`. */
void vvi_space_ahead(struct vv_core *core, const struct vv_object *written);
/* Lets one page go that may. */
void vvi_space_evict_page(struct vv_core *core, struct vv_copy *copy, uint32_t c);
/* Contiguous policies: may all of it go, and let it go. */
bool vvi_space_whole_may_go(const struct vv_copy *copy);
void vvi_space_evict_run(struct vv_core *core, struct vv_copy *copy);
void vvi_space_untake(struct vv_core *core, unsigned tier, const uint32_t *pages, uint32_t n);
bool vvi_space_fits(const struct vv_core *core, unsigned tier, const struct vv_object *obj);
bool vvi_space_room_for(struct vv_core *core, unsigned tier, const struct vv_object *obj,
                        uint32_t chunk, enum vv_purpose purpose);
/* May what a put waits for still come? */
bool vvi_room_may_come(const struct vv_core *core);

/* sched.c */
/* An order about the object, which it holds a reference to; NULL: no memory. And handing it out. */
struct vv_order *vvi_order_for(struct vv_core *core, enum vv_order_kind kind,
                               struct vv_object *obj);
void vvi_core_push(struct vv_core *core, struct vv_order *o);
/* Starts moving chunks [c0, c0 + n) ahead, on a lane of the family. `pages`: where they go on dst; given
 * back when memory for the order is lacking. */
bool vvi_issue_ahead(struct vv_core *core, unsigned family, enum vv_lane lane,
                     struct vv_object *obj, int src, int dst, uint32_t c0, uint32_t n,
                     const uint32_t *pages, enum vv_copy_state born);
/* Could the tier give this chunk to the restore now? */
bool vvi_get_gives(const struct vv_core *core, const struct vv_req *req, unsigned tier, uint32_t c);
/* Is it where a restore gets it fastest: on the device, but for the share that the link delivers in
 * the same time, or wherever it is restored from? */
bool vvi_object_ready(const struct vv_core *core, const struct vv_object *obj);
/* Checks all invariants, which reads all there is: with large tiers or long histories at some calls
 * only, so that the cost for each call stays bounded. */
void vvi_core_check_sometimes(struct vv_core *core);
void vvi_sched(struct vv_core *core);

/* ---- waits.c ---- */

/* Ends the waits whose version or history has reached its level, or has failed. */
void vvi_end_waits(struct vv_core *core);
/* Nothing can be started: fails a request if nothing under way can help it, or lets a put go another way. True:
 * something has changed, and the scheduler looks again. */
bool vvi_fail_stuck(struct vv_core *core);
/* Issues all of a new request at once if it is the only one and only the device has to do with it.
 * True: it is done with, and whatever else could be started can as well be started when it ends, in
 * less than a hundred microseconds, rather than while the application waits. */
bool vvi_sched_quick(struct vv_core *core, struct vv_req *req);
/* Takes a put's share of a files tier with a capacity; false: not yet. */
bool vvi_charge_file(struct vv_core *core, struct vv_req *req);
/* Chunks of the object that belong on the device, and that are there or on their way. */
uint32_t vvi_device_share(const struct vv_core *core, const struct vv_object *obj);
uint32_t vvi_on_device(const struct vv_core *core, const struct vv_object *obj);

/* filing.c */
void vvi_sched_commit(struct vv_core *core, struct vv_object *obj);
void vvi_sched_remove_file(struct vv_core *core, struct vv_object *obj, uint64_t file_generation);
/* Takes back what was written to a spoiled file, once nothing uses it, and has it removed; but for what
 * only that file has: it stays until another one is committed. */
void vvi_file_clean(struct vv_core *core, struct vv_object *obj);
/* Brings what only the file that failed has into the one that takes its place, order by order. */
void vvi_sched_salvage(struct vv_core *core, struct vv_object *obj);
void vvi_commit_done(struct vv_core *core, struct vv_object *obj, int status);
void vvi_salvage_done(struct vv_core *core, const struct vv_order *o, int status);

/* removals.c */
/* It has ended: its file goes when it can. `dropped`: it should not be found any more, and need not wait
 * for older ones. */
void vvi_removal_due(struct vv_core *core, struct vv_object *obj, bool dropped);
/* No order uses its file any more. False: it has none. */
bool vvi_removal_begin(struct vv_core *core, struct vv_object *obj);
void vvi_removal_done(struct vv_core *core, struct vv_object *obj);
/* A file that could not be removed still takes its space, and its version would be there again when
 * the history is opened next. The next caller hears of it, and the next wait for everything tries
 * again. */
void vvi_removal_failed(struct vv_core *core, struct vv_object *obj, uint64_t file_generation,
                        int status);
/* Those that failed: tries again; the history ends and leaves them. */
void vvi_removals_retry(struct vv_core *core, struct hist *h);
void vvi_removals_forget(struct vv_core *core, struct hist *h);

/* lend.c */
/* Serves a lease; false: there is no room now. */
bool vvi_lend_serve(struct vv_core *core, struct vv_req *req);
/* A lease heads the queue for this tier. */
bool vvi_lend_waits(const struct vv_core *core, unsigned tier);
void vvi_lend_failed(struct vv_core *core, const struct vv_req *req);
/* A version takes leases over with its share of the disk, or not at all: one that waited for that and
 * failed would take them along. -EAGAIN: not yet; -ENOSPC: nothing will make room. */
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
/* What every entry that changes something begins and ends with. */
void vvi_core_enter(struct vv_core *core, uint64_t now_ns);
void vvi_core_leave(struct vv_core *core);
/* Somebody reads the version: hints, predictions and figures follow. */
void vvi_restore_begins(struct vv_core *core, struct vv_object *obj);
void vvi_lease_start(struct vv_core *core, uint32_t hist, struct vv_object *obj,
                     struct vv_req *req);
void vvi_fail_gets_of(struct vv_core *core, const struct vv_object *obj, int status);
void vvi_req_end(struct vv_core *core, struct vv_req *req, int status);
/* A flush to the tier, or a commit, could not be made: the put hears of it, or else the next caller. */
struct vv_req *vvi_put_of(const struct vv_core *core, const struct vv_object *obj);
void vvi_flush_failed(struct vv_core *core, struct vv_object *obj, int tier, int status);
/* A put or a get of an object without chunks: no order would end it. */
void vvi_req_nothing(struct vv_core *core, struct vv_req *req);
/* All orders of an ordered request are out: it is not blocked any more. */
void vvi_req_issued(struct vv_core *core, struct vv_req *req);
struct vv_order *vvi_order_new(struct vv_core *core, enum vv_order_kind kind);

/* ---- generations.c ---- */

/* Does retention count it among the versions that have reached the level? Not what may be taken back.
 * One that an earlier life left unfinished does once a caller has heard of it: until then the
 * application may overwrite it, having gone on from an older one. */
static inline bool vvi_gen_counts(const struct vv_object *obj)
{
    return obj->gen == VV_GEN_SAFE && !obj->unfinished && !obj->provisional;
}

/* May be waited for and discarded. */
static inline bool vvi_gen_known(const struct vv_object *obj)
{
    return obj->written || (obj->writing && obj->ordered);
}

/* The put under way that will replace this one; NULL: none will. */
static inline struct vv_object *vvi_gen_replacement(const struct vv_core *core,
                                                    const struct vv_object *obj)
{
    bool in_table = !obj->beside && !obj->dead;

    return in_table ? vv_table_find(&vvi_hist(core, obj->hist)->replacements, obj->version) : NULL;
}

/* The newest generation that a caller may know of: one that a stream will write counts before it is
 * written. NULL: there is no such version. */
static inline struct vv_object *vvi_gen_last(const struct vv_core *core, uint32_t hist,
                                             uint64_t version)
{
    struct vv_object *obj = vvi_object_find(core, hist, version);
    struct vv_object *next = obj ? vvi_gen_replacement(core, obj) : NULL;

    return next && next->ordered ? next : obj;
}

/* Is the version there, or being written, and not to be replaced? */
bool vvi_gen_refuses(const struct vv_core *core, uint32_t hist, uint64_t version, bool replace);
/* The object that a put writes: beside the version that it replaces, or what holds its hints. A put
 * that a stream has still to carry out gives way to it. Where nothing outlives the process, so does
 * what is replaced, to make room. NULL: no memory. */
struct vv_object *vvi_gen_begin(struct vv_core *core, uint32_t hist, uint64_t version);
/* The edition of an object that is about to be written. */
uint32_t vvi_edition_next(const struct vv_core *core, const struct vv_object *obj);
/* It is about to end, and the version may be written again: that will be another edition. -ENOMEM. */
VV_WARN_UNUSED int vvi_edition_ends(struct vv_core *core, const struct vv_object *obj);
/* Changes the state of a generation, as the table allows. The caller keeps the books. */
void vvi_gen_step(struct vv_core *core, struct vv_object *obj, enum vv_gen_event event);
/* It ends, by REPLACED, DROPPED or DISCARDED; what follows for the others of its version follows. */
void vvi_gen_end(struct vv_core *core, struct vv_object *obj, enum vv_gen_event event);
/* The version goes by itself. Without memory for its edition it stays until it is looked at again. */
void vvi_gen_expire(struct vv_core *core, struct vv_object *obj);
/* Its file is committed, its put has ended, or the store said that it has reached the level. */
void vvi_gen_durable(struct vv_core *core, struct vv_object *obj);
void vvi_gen_retain(struct vv_core *core, struct hist *h);
/* The history ends: its files stay. */
void vvi_gen_close(struct vv_core *core, struct vv_object *obj);
/* A put of a live object has failed or was taken back, or its bytes are lost. True: a wait ends with
 * `status`. */
bool vvi_put_failed(struct vv_core *core, struct vv_object *obj, int status);

#endif
