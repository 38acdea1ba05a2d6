/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of blocks: slots and their blocks, sources of blocks, and runs. */
#ifndef VV_OOC_PRIVATE_H
#define VV_OOC_PRIVATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <varve/blocks.h>
#include <varve/blocks_device.h>

#include "base/assert.h"
#include "base/lock.h"
#include "base/util.h"
#include "device/device.h"
#include "ooc/ooc_hooks.h"

/* ---- slots (slots.c): decisions only, no lock, no device ---- */

enum vvi_slot_state {
    VVI_SLOT_FREE,
    VVI_SLOT_FILLING, /* a block is on its way; not in the map */
    VVI_SLOT_READY,   /* in the map */
    VVI_SLOT_LEAVING  /* out of the map; kernels that began before that may still read it */
};

/* Words of bits that are processed together: a cache line. Arrays of such words end with whole lines, so that
 * compilers can vectorize. */
enum { VVI_LINE = 8 };

static inline bool vvi_bit(const uint64_t *bits, uint32_t i)
{
    return bits[i / 64] >> i % 64 & 1;
}

static inline void vvi_bit_set(uint64_t *bits, uint32_t i)
{
    bits[i / 64] |= UINT64_C(1) << i % 64;
}

/* Slots that left the map together, and the time. */
struct vvi_leaving {
    uint64_t at;
    uint32_t nr;
};

/*
 * Times: each round that begins takes the next one. A slot that left at t may be filled again when all rounds that
 * began at t or before have ended.
 */
struct vvi_slots {
    uint32_t blocks, nr;
    uint32_t words; /* of 64 slots each, in whole cache lines */
    uint32_t *map;  /* per block: slot + 1 if it is READY, or 0; owned by the run that writes it */
    uint32_t from, to; /* written entries of the map lie in [from, to) */
    uint64_t *have;    /* a bit for each block that has a slot */
    uint32_t *held;    /* per slot, FILLING and READY: its block */
    uint64_t *ready;
    uint64_t *often[2];
    uint64_t *stay; /* slots that must not be evicted */
    uint32_t *free, nfree;
    uint32_t *leaving; /* a ring of slots, in the order of leaving; and a ring of the times */
    uint32_t leave_first, nleaving;
    struct vvi_leaving *times;
    uint32_t time_first, ntimes;
    uint32_t used; /* FILLING, READY */
    uint32_t hand, touches;
    uint64_t now;
    uint64_t evicted;
    bool paper;
    uint64_t *last;  /* paper: when it was last used */
    uint64_t *order; /* paper: slots by last use, sorted again each round */
    uint32_t order_nr, order_at;
};

struct vvi_fill {
    uint32_t block, slot;
};

/* The caller sets `map` afterwards, to one that is all 0. */
VV_WARN_UNUSED int vvi_slots_init(struct vvi_slots *s, uint32_t blocks, uint32_t slots, bool paper);
void vvi_slots_fini(struct vvi_slots *s);
/* Goes through the list, up to the first block that has no slot and finds none free. A block without a slot takes one:
 * the pair is added to `fills` behind the first *n entries, and the slot to `got`. A block that has a slot is added to
 * `ret_had` behind the first *had entries; `ret_had` may be the memory of the list, if it is written no further on than
 * it is read. `fills` and `ret_had` need room for one entry more than is added, nr at most. Returns how many blocks
 * were handled. */
uint32_t vvi_slots_take(struct vvi_slots *s, const uint32_t *blocks, uint32_t nr, uint64_t *got,
                        struct vvi_fill *fills, uint32_t *n, uint32_t *ret_had, uint32_t *had);
/* To be called when the copies to these slots were submitted. */
void vvi_slots_filled(struct vvi_slots *s, const struct vvi_fill *fills, uint32_t n);
/* To be called for a slot that could not be filled. */
void vvi_slots_give_back(struct vvi_slots *s, uint32_t slot);
/* `used`: a bit for each slot that a round has used, as the device wrote it. Adds the READY ones to `seen`. */
void vvi_slots_touch(struct vvi_slots *s, const uint64_t *used, uint64_t *seen);
/* Adds a READY slot that a round has asked for to `seen`, so that it stays. */
void vvi_slots_wanted(struct vvi_slots *s, uint32_t slot, uint64_t *seen);
/* Evicts up to `most` blocks that are READY and not in `stay`. Returns how many. */
uint32_t vvi_slots_evict(struct vvi_slots *s, uint32_t most, uint32_t *ret_blocks);
/* Frees slots that left before all rounds under way began. `oldest`: the time at which the first of those began;
 * UINT64_MAX: there are none. */
void vvi_slots_reclaim(struct vvi_slots *s, uint64_t oldest);

/* ---- sources (source.c) ---- */

/* Bytes of a source, and their destination on the device. */
struct vvi_piece {
    uint64_t offset; /* in memory, file or region */
    size_t bytes;
    unsigned char *to;
    uint64_t id, within; /* for `read`: the block or table, and the offset in it */
};

/* A source of bytes: one of memory, path, read and history. */
struct vvi_source_opts {
    const char *operation; /* for errors */
    uint64_t bytes;        /* least size of the source */
    size_t half_bytes;     /* half of the staging memory; no piece is larger */
    int readers;
    const void *memory;
    const char *path;
    uint64_t path_offset;
    int (*read)(void *arg, const struct vvi_piece *piece, void *buf);
    void *read_arg;
    struct varve_history *history;
    uint64_t version;
    int32_t region;
};

/* The options of a source, which have the same names in blocks and tables. */
#define VVI_SOURCE_OF(o)                                                               \
    .readers = (o)->readers, .memory = (o)->memory, .path = (o)->path,                 \
    .path_offset = (o)->path_offset, .history = (o)->history, .version = (o)->version, \
    .region = (o)->region

struct vvi_source {
    struct varve_ctx *ctx;
    struct vv_device *device;
    const char *operation;
    const unsigned char *memory;     /* NULL: pieces are read */
    const unsigned char *dev_memory; /* its address for kernels; NULL: they cannot read it, ... */
    const char *apart;               /* ... for this reason */
    bool registered;                 /* copies read it directly */
    struct vvi_shared *shared;       /* sources have registered it; NULL: the application has */
    unsigned char *own;              /* the memory that a region was read into */
    size_t own_bytes;
    int fd;
    uint64_t offset;
    int (*read)(void *arg, const struct vvi_piece *piece, void *buf);
    void *read_arg;
    /* Pieces that are read come through here. */
    unsigned char *staging;
    size_t half_bytes;
    bool staging_registered;
    struct vv_event *staged[2]; /* per half: the last copy from it has ended */
    unsigned half;
    /* Error of a copy from staging memory; Synchronization: stored under lock. */
    _Atomic int failed;
    struct vv_mutex lock; /* one fill through the staging memory at a time */
    struct vvi_readers *readers;
};

VV_WARN_UNUSED int vvi_source_init(struct vvi_source *src, struct varve_ctx *ctx,
                                   struct vv_device *device, const struct vvi_source_opts *opts);
void vvi_source_fini(struct vvi_source *src);
/* Submits the copies of pieces on the stream, and reads them first if needed. If a piece could not be read, *ret_id is
 * its id; after any other error it is VVI_NO_ID. */
#define VVI_NO_ID UINT64_MAX
VV_WARN_UNUSED int vvi_source_fill(struct vvi_source *src, struct vv_stream *stream,
                                   const struct vvi_piece *pieces, size_t n, uint64_t *ret_id);
/* The same for n whole blocks of registered memory of equal size, to slots from `to` on. */
VV_WARN_UNUSED int vvi_source_fill_slots(struct vvi_source *src, struct vv_stream *stream,
                                         const struct vvi_fill *fills, size_t n, unsigned char *to,
                                         size_t bytes);
/* Returns the error of a copy from staging memory, if there was one: events recorded on the stream later do not report
 * it. Any thread, no lock. */
VV_WARN_UNUSED int vvi_source_check(struct vvi_source *src);
/* Waits for everything on the stream; errors up to here are no longer reported. */
void vvi_source_settle(struct vvi_source *src, struct vv_stream *stream);
/* Reads a piece into host memory. Any thread. */
VV_WARN_UNUSED int vvi_source_read(const struct vvi_source *src, const struct vvi_piece *piece,
                                   void *buf);

/* Limits of each half: so many blocks, and so many bytes unless one block has more. */
enum { VVI_STAGED = 32, VVI_STAGED_BYTES = 32 << 20 };

/* ---- arrays ---- */

/* Counters of a round, on the device and as copied. Data behind them begins at multiples of this. */
#define VVI_COUNTS_BYTES 64

/* Memory and events of one run, kept for the next. */
struct vvi_run {
    struct vvi_run *next;  /* in the list of active or idle runs */
    struct vvi_run *other; /* in the list of all runs */
    struct varve_blocks_view view;
    unsigned char *meta;  /* device: need, counts, uses, and the map */
    unsigned char *lists; /* device: both lists of `todo` */
    uint32_t *todo[2];
    uint64_t todo_items; /* capacity of each list */
    unsigned char *host; /* host memory that kernels write; the map that is sent; and copies */
    size_t host_bytes;
    const uint64_t *missing; /* in `host`, as are the following */
    uint32_t *map;
    const uint32_t *counts; /* with the uses behind them */
    const uint64_t *used;
    struct vv_event *event;  /* the end of a round */
    struct vv_event *ready;  /* after the copies to slots that the round relies on */
    struct vv_event *filled; /* after copies to slots that are waited for */
    struct vv_event *sent;   /* after the map of the round; `sends`: it was recorded */
    bool sends;
    struct vvi_fill *fills;   /* room for all slots */
    struct vvi_piece *pieces; /* the same, for a source that is read */
    uint32_t *asked;          /* blocks of this round that are not there yet */
    uint32_t nasked;
    uint32_t *gone;          /* evicted blocks: room for all slots */
    uint32_t *later, nlater; /* blocks for the next run: room for all slots */
    uint32_t read_at;        /* entries of `missing` that were handled */
    uint64_t began;          /* by the clock of the slots */
    uint32_t round;          /* its number */
    /* A bit for each slot; these stay while the run has a round, or makes room. */
    uint64_t *seen;    /* that kernels used, or asked for while it was READY */
    uint64_t *got;     /* that the run gave to a block */
    uint32_t from, to; /* entries of the map that changed since the last send lie in [from, to) */
    /* Changes by other runs since this run was last the holder, in order: the slot of each block, UINT32_MAX: none.
     * If there are as many as blocks, the list has overflowed. */
    struct vvi_fill *dirty;
    uint32_t ndirty;
};

/* A batch of copies that was submitted ahead. */
struct vvi_early {
    struct vv_event *event;
    bool relied_on; /* rounds may have begun after them, and their result was not checked since */
};

struct varve_blocks {
    struct varve_ctx *ctx;
    struct vv_device *device;
    struct varve_blocks_opts opts;
    struct varve_blocks_view view; /* shared by all rounds */
    size_t block_bytes;
    size_t need_bytes, used_bytes, map_bytes;
    struct vvi_source source;
    unsigned char *cache, *zeros; /* device: slots; the initial contents of a round's memory */
    struct vv_stream *moves;      /* copies to slots */
    struct vv_stream *early;      /* copies that no kernel waits for yet */
    struct vv_event *moved;

    struct vv_mutex lock;
    struct vv_cond changed;
    /* Synchronization: lock, from here on. */
    struct vvi_slots slots;
    struct vvi_run *all, *idle, *active;
    struct vvi_run *holder; /* its map is the slots' own, and up to date */
    struct vvi_run *alone;  /* the only one that may begin rounds; NULL: all may */
    int broken;             /* error of copies to slots: the cache is unusable */
    uint32_t round;
    uint32_t runs;          /* under way */
    uint32_t fills;         /* slots being filled */
    struct vvi_fill *ahead; /* the copies on `early` */
    uint32_t nahead;
    uint8_t *inside; /* per block: two bits for each axis, set unless it is the first or last */
    struct vvi_early earlier[2]; /* its last two batches */
    unsigned early_at;           /* index of the last one */
    uint32_t expect;             /* number of blocks that recent runs missed */
    struct varve_blocks_stats stats;
};

/* Reads and waits are cut into pieces of this, so that a lost device does not make them hang. */
#define VVI_OOC_WAIT_NS INT64_C(1000000000)

/* common.c: common parts of opening blocks and tables. */

#define VVI_OOC_NO_DEVICE \
    "the context has no device: set device to cuda, or to host for the emulated one"

#define VVI_OOC_OPTS  "opts is NULL, or its opts_size is absurd: the _opts_init function sets it"
#define VVI_OOC_STATS "ret_stats is NULL, or its stats_size is not set to its sizeof"

/* For a bad argument without a context to record the error in: records `what` for the thread. Returns -EINVAL. */
int vvi_ooc_bad(const char *operation, const char *what);
/* vv_ckpt_enter; if it fails, the thread's record gives the reason. */
VV_WARN_UNUSED int vvi_ooc_enter(struct varve_ctx *ctx, const char *operation);
/* After a failed allocation: a text with the size of the device's memory; empty for other errors, or if the size is not
 * known. Returns buf. */
#define VVI_OOC_ROOM 96
const char *vvi_ooc_room(struct vv_device *device, int rc, char *buf, size_t size);

/* Initializes options of `bytes` bytes, whose first member is their size in the caller's version. */
VV_WARN_UNUSED int vvi_ooc_opts_init(const void *defaults, size_t bytes, void *opts,
                                     size_t opts_size);
/* Converts to this library's options: members that the caller's version lacks get their defaults. */
VV_WARN_UNUSED int vvi_ooc_opts_take(const void *defaults, size_t bytes, const void *opts,
                                     void *ret_opts);
/* Allocates memory for n elements of `bytes` bytes, and touches its pages, so that runs have no page
 * faults. */
void *vvi_ooc_zeroed(size_t n, size_t bytes);
/* Waits without a limit; returns the error of the work before the event. */
int vvi_ooc_wait(struct vv_device *device, struct vv_event *event);

/* run.c. For tests: evicts the block in the slot even if a run needs it, unless it is being filled. Any thread. */
void vvi_blocks_send_away(struct varve_blocks *b, uint32_t slot);

/* blocks.c */
VV_WARN_UNUSED int vvi_blocks_run_new(struct varve_blocks *b, uint64_t items,
                                      struct vvi_run **ret_run);
void vvi_blocks_run_free(struct varve_blocks *b, struct vvi_run *r);
int vvi_blocks_wait(struct varve_blocks *b, struct vv_event *event);
int vvi_blocks_fail(struct varve_blocks *b, const char *operation, int rc, const char *fmt, ...)
    VV_PRINTF(4, 5);

#endif
