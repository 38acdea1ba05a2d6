/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy `next`: paged, partly resident, farthest next use.
 *
 * Each page has a rank: how far away its next use is. The page of the highest rank is flushed first
 * and evicted first. Ranks compare across classes: a page with a live hint is nearer than any page
 * without one.
 */
#ifndef VV_POLICY_NEXT_H
#define VV_POLICY_NEXT_H

#include <stdbool.h>
#include <stdint.h>

enum vv_use {
    VV_USE_HINTED,  /* value: distance, live hints before it */
    VV_USE_FIRST,   /* order unknown, one of the versions kept whole in case the restores begin with
                       them */
    VV_USE_UNKNOWN, /* order unknown, value: position of the chunk within its object */
    VV_USE_CONSUMED, /* restored already and not hinted again */
    VV_USE_SPARE,    /* a second copy of data kept elsewhere */
};

enum {
    VV_NEXT_FIRST_KEPT = 3,     /* versions of VV_USE_FIRST */
    VV_NEXT_WRITE_TURN = 128,   /* reads for each write while the disk has no time for more */
    VV_NEXT_POSITION_BITS = 20, /* positions of chunks run from 0 to 2^20 - 1 */
};

static inline uint64_t vv_next_rank(enum vv_use use, uint64_t value)
{
    return (uint64_t)use << 56 | (value & ((UINT64_C(1) << 56) - 1));
}

static inline enum vv_use vv_next_use(uint64_t rank)
{
    return (enum vv_use)(rank >> 56);
}

/* Position of a chunk in its object. While the order is unknown, pages are evicted by position, so
 * that the same share of every object stays: near the optimum for any order that may follow. */
static inline uint64_t vv_next_position(uint32_t chunk, uint32_t nchunks)
{
    return ((uint64_t)chunk << VV_NEXT_POSITION_BITS) / nchunks;
}

enum vv_purpose {
    VV_FOR_PUT,      /* the application is blocked on it */
    VV_FOR_FLUSH,    /* room for a copy that a faster tier wants to evict */
    VV_FOR_PREFETCH, /* room for a copy that will be wanted */
    VV_FOR_DEMOTE,   /* room for a copy that leaves a faster tier to one that is wanted earlier */
    VV_FOR_DEMAND,   /* room for a copy that a blocked restore wants now */
};

enum vv_phase {
    VV_PHASE_WRITING,   /* the application's last request was a put */
    VV_PHASE_WAITING,   /* it waits for flushes to end */
    VV_PHASE_RESTORING, /* prefetching has begun */
};

struct vv_next_question {
    enum vv_purpose purpose;
    enum vv_phase phase;
    uint64_t rank;         /* of the page that needs room */
    uint64_t rank_after;   /* of its use after that; UINT64_MAX: unknown */
    uint64_t victim;       /* rank of the page that would be evicted */
    bool victim_expected;  /* a restore of it is expected, by a hint or by the detector */
    bool victim_in_memory; /* the same bytes are on another memory tier: no disk read will bring
                              them back */
    bool mixed;            /* puts come between restores */
    bool stands_still;     /* put: nothing is being flushed */
    bool headroom_low;     /* flush: the faster tier has less room than the next put may need */
    bool disk_idles;       /* vv_next_disk_idles() */
    bool disk_has_time;    /* vv_next_disk_has_time() */
};

/* True if the application is blocked on it. */
static inline bool vv_next_blocks(enum vv_purpose purpose)
{
    return purpose == VV_FOR_PUT || purpose == VV_FOR_DEMAND;
}

/* True if the victim may be evicted to make room for the other page. */
bool vv_next_may_evict(const struct vv_next_question *q);

/* While restoring, a copy that will be wanted saves a disk read. True if there is time for more
 * reads than are due: `calls` restores are expected, `interval_ns` apart; `missing_bytes` of them
 * are on disk only. */
bool vv_next_disk_has_time(uint64_t calls, uint64_t interval_ns, uint64_t missing_bytes,
                           uint64_t disk_rate);

/* While restoring: true if a write of a version that has to become durable may go beside the reads.
 * `missing_bytes` as above; `unwritten_bytes` are in memory only, `reads` were begun since the last
 * write. No request waits for the write: it takes time that the reads leave, and one turn in
 * VV_NEXT_WRITE_TURN if they leave none. */
bool vv_next_write_beside_reads(uint64_t calls, uint64_t interval_ns, uint64_t missing_bytes,
                                uint64_t unwritten_bytes, uint64_t disk_rate, uint32_t reads);

/* True if the disk would be idle before the very next restore for want of room, which must not
 * happen. `distance` live hints come before the object, `resident_bytes` of it are in memory or on
 * their way. Room for the amount that the disk reads in one interval is enough; after that restore
 * the next object uses it. */
bool vv_next_disk_idles(uint64_t distance, uint64_t resident_bytes, uint64_t interval_ns,
                        uint64_t disk_rate);

#endif
