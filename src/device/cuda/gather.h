/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of segments that the gather kernel takes as its parameter, used by the kernel and by the host code that
 * fills it in. Compiles as C and as device code.
 *
 * A tile is the part that one thread block copies. `end_tile` counts the tiles of this segment and of those before
 * it, so that a block finds the segment of any tile by bisection, and long segments are shared out like short ones.
 * Segments are mostly of the same length: a block guesses first.
 */
#ifndef VV_DEVICE_CUDA_GATHER_H
#define VV_DEVICE_CUDA_GATHER_H

#include <stdint.h>

#define VVI_COPY_THREADS 256 /* of the kernel that takes a single segment without a table */

#define VVI_GATHER_THREADS 512
#define VVI_GATHER_TILE    (VVI_GATHER_THREADS * 16)

/* A longer segment is cut, so that its length fits in 32 bits. A multiple of the tile. */
#define VVI_GATHER_MAX_BYTES (UINT32_C(1) << 31)

struct vvi_gather_seg {
    uint64_t dst, src;
    uint32_t bytes;
    uint32_t end_tile;
};

struct vvi_gather_head {
    uint32_t n_segs;
    uint32_t n_tiles;
    uint64_t segs_per_tile; /* in units of 2^-32, rounded up */
};

/* Every launch copies its whole parameter, so there are four sizes: half of the limit of all drivers, for most
 * requests; that limit (4 KiB); the limit of newer ones (32,764 bytes); and one between. */
#define VVI_GATHER_FEW    84
#define VVI_GATHER_SMALL  170
#define VVI_GATHER_MIDDLE 600
#define VVI_GATHER_LARGE  1364

struct vvi_gather_few {
    struct vvi_gather_head head;
    struct vvi_gather_seg seg[VVI_GATHER_FEW];
};

struct vvi_gather_small {
    struct vvi_gather_head head;
    struct vvi_gather_seg seg[VVI_GATHER_SMALL];
};

struct vvi_gather_middle {
    struct vvi_gather_head head;
    struct vvi_gather_seg seg[VVI_GATHER_MIDDLE];
};

struct vvi_gather_large {
    struct vvi_gather_head head;
    struct vvi_gather_seg seg[VVI_GATHER_LARGE];
};

#ifdef __CUDACC__
#define VVI_GATHER_FN __device__ __forceinline__ static
#else
#define VVI_GATHER_FN static inline
#endif

static inline uint64_t vvi_gather_segs_per_tile(uint32_t n_segs, uint32_t n_tiles)
{
    return (((uint64_t)n_segs << 32) + n_tiles - 1) / n_tiles;
}

/* The segment that contains the tile if all have the same length; otherwise any of them. */
VVI_GATHER_FN uint32_t vvi_gather_guess(const struct vvi_gather_head *head, uint32_t tile)
{
    uint32_t guess = (uint32_t)(tile * head->segs_per_tile >> 32);

    return guess < head->n_segs ? guess : head->n_segs - 1;
}

/* The segment that contains the tile; and its own first tile. */
VVI_GATHER_FN uint32_t vvi_gather_find(const struct vvi_gather_head *head,
                                       const struct vvi_gather_seg *seg, uint32_t tile,
                                       uint32_t *ret_first)
{
    uint32_t lo = vvi_gather_guess(head, tile), hi;
    uint32_t first = lo ? seg[lo - 1].end_tile : 0;

    if (tile < first) {
        hi = lo - 1;
        lo = 0;
    } else if (tile >= seg[lo].end_tile) {
        lo++;
        hi = head->n_segs - 1;
    } else {
        *ret_first = first;
        return lo;
    }
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;

        if (seg[mid].end_tile > tile)
            hi = mid;
        else
            lo = mid + 1;
    }
    *ret_first = lo ? seg[lo - 1].end_tile : 0;
    return lo;
}

#endif
