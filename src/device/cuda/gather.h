/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of segments that the gather kernel takes as its parameter, seen by the kernel and by the
 * host code that fills it in. Compiles as C and as device code.
 *
 * A tile is what one thread block copies at a time. `end_tile` counts the tiles of this segment and
 * of those before it, so that a block finds the segment of any tile by bisection and long segments
 * are shared out like short ones.
 */
#ifndef VV_DEVICE_CUDA_GATHER_H
#define VV_DEVICE_CUDA_GATHER_H

#include <stdint.h>

#define VVI_GATHER_THREADS    1024
#define VVI_GATHER_PER_THREAD 4 /* 16-byte words that a thread has in flight */
#define VVI_GATHER_TILE       (VVI_GATHER_THREADS * VVI_GATHER_PER_THREAD * 16)

/* A longer segment is cut, so that its length fits 32 bits. A multiple of the tile. */
#define VVI_GATHER_MAX_BYTES (UINT32_C(1) << 31)

struct vvi_gather_seg {
    uint64_t dst, src;
    uint32_t bytes;
    uint32_t end_tile;
};

struct vvi_gather_head {
    uint32_t n_segs;
    uint32_t n_tiles;
};

/* Every launch copies its whole parameter, so there are three sizes: what all drivers take (4 KiB),
 * what newer ones take (32,764 bytes), and one between. */
#define VVI_GATHER_SMALL  170
#define VVI_GATHER_MIDDLE 600
#define VVI_GATHER_LARGE  1364

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

#endif
