/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store/arena: bookkeeping of one contiguous, pre-allocated buffer that is handed out in pages.
 *
 * It records which pages are free and who owns the others. It never touches the buffer itself, which may be device
 * memory, host memory or a file. Not thread-safe: it belongs to an engine core.
 *
 * Free pages are kept as maximal runs. A request takes the smallest run that holds it whole, or else the longest
 * run: so scattered space is used, and long runs are split no more than necessary.
 *
 * A page may be cut into parts of one size, for objects that are much smaller than a page. A part has a number of
 * its own, after those of the pages and of the extra pages; part sizes are counted in units, of which a page has
 * `units`. When its last part is returned, the page is free again.
 *
 * A buffer may be allocated while it is in use, from its first page on: only pages that are ready are free.
 * Promised pages are ready or will be, unless allocation fails (vv_arena_stop).
 */
#ifndef VV_STORE_ARENA_H
#define VV_STORE_ARENA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"

#define VV_PAGE_NONE UINT32_MAX

enum vv_page_state {
    VV_PAGE_FREE,
    VV_PAGE_RESERVED, /* owned, nothing written to it yet */
    VV_PAGE_FILLING,  /* a transfer writes to it */
    VV_PAGE_VALID,    /* holds its chunk */
};

struct vv_page {
    union {
        void *owner; /* not free: set by the owner */
        struct {
            uint32_t next,
                prev; /* free, first of its run: neighbours in the list of runs of that size */
        } run;
    } u;
    uint32_t chunk; /* not free: the owner's; free, first or last of its run: length of the run */
    uint16_t pins;  /* transfers that read it */
    uint8_t state;  /* enum vv_page_state */
    uint8_t class;  /* the owner's */
};

/* A page that is cut into parts. Its own record is RESERVED and has no owner. */
struct vv_arena_cut {
    uint32_t next, prev; /* list of pages cut to the same size that have a free part */
    uint16_t each;       /* units of a part; 0: the page is whole */
    uint16_t used;       /* parts in use */
};

struct vv_arena {
    struct vv_page *page;
    struct vv_arena_cut *cut; /* for each page; NULL: pages are not cut */
    uint32_t *cut_free;       /* by units of a part: the first page with a free part */
    uint32_t units;           /* per page */
    uint32_t first_part;      /* number of the first unit of page 0; VV_PAGE_NONE: none is cut */
    uint32_t npages;          /* of the buffer */
    uint32_t nready;          /* the first nready pages may be handed out */
    uint32_t npromised;       /* pages that are ready or will be: the most it can ever hold */
    uint32_t nfree;
    uint32_t bucket[32]; /* runs of [2^i, 2^(i+1)) free pages */
    uint32_t buckets_used;
};

/* The first `nready` pages are ready at once. `units` per page; 1: no page is cut. */
int vv_arena_init(struct vv_arena *arena, uint32_t npages, uint32_t nready, uint32_t extra_pages,
                  uint32_t units) VV_WARN_UNUSED;
void vv_arena_fini(struct vv_arena *arena);

/* Takes a run of at most `want` pages, marked RESERVED; returns its first page, or VV_PAGE_NONE
 * when none is free. */
uint32_t vv_arena_take(struct vv_arena *arena, uint32_t want, uint32_t *ret_got);
/* Takes up to `want` pages, fewer only if no more are free. Takes the same runs as repeated calls of
 * vv_arena_take, but in one call, and returns them page by page. Returns the number of pages. */
uint32_t vv_arena_take_pages(struct vv_arena *arena, uint32_t want, uint32_t *ret_pages);
/* Takes exactly these pages, all of which must be free. */
void vv_arena_take_at(struct vv_arena *arena, uint32_t first, uint32_t n);
void vv_arena_give(struct vv_arena *arena, uint32_t first, uint32_t n);
/* From now on the first `nready` pages are ready, no fewer than before and no more than promised. */
void vv_arena_grow(struct vv_arena *arena, uint32_t nready);
/* Withdraws the promise: no more pages become ready. */
static inline void vv_arena_stop(struct vv_arena *arena)
{
    arena->npromised = arena->nready;
}
static inline bool vv_arena_growing(const struct vv_arena *arena)
{
    return arena->nready < arena->npromised;
}
/* Takes a part of `each` units, at most half of a page. */
uint32_t vv_arena_take_part(struct vv_arena *arena, uint32_t each); /* VV_PAGE_NONE: no room */
void vv_arena_give_part(struct vv_arena *arena, uint32_t part);
static inline bool vv_arena_is_part(const struct vv_arena *arena, uint32_t page)
{
    return page >= arena->first_part;
}
/* The page that a part is cut from. */
static inline uint32_t vv_arena_page_of(const struct vv_arena *arena, uint32_t part)
{
    return (part - arena->first_part) / arena->units;
}
/* The next page or part number that may be in use: pages that are not cut have no parts. */
static inline uint32_t vv_arena_next(const struct vv_arena *arena, uint32_t page)
{
    uint32_t end = arena->first_part + arena->npages * arena->units;

    page++;
    while (vv_arena_is_part(arena, page) && page < end &&
           !arena->cut[vv_arena_page_of(arena, page)].each)
        page += arena->units;
    return page;
}
/* Length of the free run that begins at `first`, which must be the first page of one. */
uint32_t vv_arena_run(const struct vv_arena *arena, uint32_t first);
/* NULL, or the inconsistency found. */
const char *vv_arena_check(const struct vv_arena *arena);

#endif
