/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks: a large read-only array of cells, cut into blocks, of which a GPU caches those that kernels
 * request. This header is the host's part; <varve/blocks_device.h> has the functions that kernels call.
 *
 * The blocks that a kernel needs are known only when it runs. Work is therefore cut into items, and a
 * kernel looks cells up through the cache. If a cell is not there, the kernel requests its block and
 * leaves the item undone. The host brings blocks while the kernel still runs, and runs it again for the
 * items that are left:
 *
 *     varve_blocks_open(ctx, &opts, &blocks);
 *     varve_blocks_run(blocks, items, launch, arg, stream);
 *
 * varve_blocks_run calls `launch` once for each round; `launch` starts the kernel on the given stream,
 * with the given view. The items of a run are independent of one another, and an item that is begun
 * again does the same again.
 *
 * Progress. The blocks that a round requested are not evicted before the next round. If a round completes no
 * item, each following one does fewer items, down to one. If cells are in host memory that kernels can
 * read, items that are left after `rounds` rounds read them from there. Kernels can read the memory unless
 * it is pinned in pieces, cannot be pinned, or begins at an address that is not a multiple of `cell_bytes`.
 *
 * Threads. Several threads may run work on one cache at a time; a block is evicted only when no kernel can
 * use it. One thread opens and closes the array.
 */
#ifndef VARVE_BLOCKS_H
#define VARVE_BLOCKS_H

#include <varve/varve.h>

#ifdef __cplusplus
extern "C" {
#endif

struct varve_blocks;
struct varve_blocks_view; /* argument of kernels: varve/blocks_device.h */
struct varve_history;
struct CUstream_st;

enum varve_blocks_policy {
    VARVE_BLOCKS_CLOCK /* evicts the block that was used least often and longest ago */
};

/* The largest value of `ahead`. */
enum { VARVE_BLOCKS_AHEAD_MAX = 8 };

/* Options of an array, with their defaults in parentheses. Plain data; fields are only ever appended. */
struct varve_blocks_opts {
    size_t opts_size;  /* sizeof(struct varve_blocks_opts), as varve_blocks_opts_init sets it */
    uint64_t cells[3]; /* number of cells along x (contiguous), y and z; 1: axis not used (1) */
    uint32_t edge[3];  /* size of a block in cells, powers of two (32 along each axis; 32768 for an
                             array with x only) */
    uint32_t cell_bytes;  /* 1, 2, 4, 8 or 16 (4) */
    uint32_t rounds;      /* after this number of rounds, remaining items read cells from host
                             memory, if kernels can (8; 0: all items, from the first round on) */
    uint64_t cache_bytes; /* on the device; at least one block; must be set */
    uint32_t ahead;  /* blocks brought in addition to each missing one, in the direction of progress
                             (1; 0: none; VARVE_BLOCKS_AHEAD_MAX at most) */
    int32_t policy;  /* enum varve_blocks_policy (VARVE_BLOCKS_CLOCK) */
    int32_t readers; /* threads that read files, or call `read` (4) */

    /* Source of the cells, block after block as varve_blocks_pack lays them out: one of these. */
    const void *memory;   /* host memory; neither content nor pinning may change until
                             varve_blocks_close */
    const char *path;     /* a file */
    uint64_t path_offset; /* where the array begins in the file (0) */
    /* Reads a block: 0 or a negative errno. Called on any thread, on several at a time. */
    int (*read)(void *arg, uint64_t block, void *buf, size_t bytes);
    void *read_arg;                /* the first argument of `read` */
    struct varve_history *history; /* a region of a version, read when the array is opened */
    uint64_t version;              /* of the history */
    int32_t region;                /* of the version */
};

/* Fills in the defaults. `opts_size` is sizeof(struct varve_blocks_opts). -EINVAL: NULL or an
 * impossible size. */
VARVE_API int varve_blocks_opts_init(struct varve_blocks_opts *opts, size_t opts_size) VARVE_CHECK;

/* The size of the array in bytes, block after block. -EINVAL: cells, edge or cell_bytes are invalid;
 * -EFBIG: more than 2^32 - 2 blocks. */
VARVE_API int varve_blocks_bytes(const struct varve_blocks_opts *opts,
                                 uint64_t *ret_bytes) VARVE_CHECK;

/* Lays an array out block after block: x runs fastest, in the array and in a block. The part of a block
 * beyond the end of the array is filled with zeros. `ret_packed` has room for varve_blocks_bytes. */
VARVE_API int varve_blocks_pack(const struct varve_blocks_opts *opts, const void *array,
                                void *ret_packed) VARVE_CHECK;

/*
 * Opens an array on the device of the context, which stays open until after varve_blocks_close.
 *   -EINVAL   an option is invalid
 *   -ENODEV   the context has no device
 *   -ENOMEM   the cache cannot be allocated
 *   -EFBIG    not even one block fits the cache
 *   -ENODATA  the file or the region is shorter than the array
 * and those of open(2) and varve_restore. varve_last_error has the details.
 */
VARVE_API int varve_blocks_open(struct varve_ctx *ctx, const struct varve_blocks_opts *opts,
                                struct varve_blocks **ret_blocks) VARVE_CHECK;
/* Closes an array and frees its memory; NULL is allowed. -EBUSY: a run is in progress; the array stays
 * open. */
VARVE_API int varve_blocks_close(struct varve_blocks *blocks);

/* Starts the kernel for the items of one round on the stream: 0, or a negative errno that ends the
 * run. */
typedef int (*varve_blocks_launch)(void *arg, const struct varve_blocks_view *view,
                                   struct CUstream_st *stream);

/*
 * Runs until every item is done and all work on the stream has ended. `items` is at most 2^32 - 2.
 *   -EINVAL   no array, no `launch`, or too many items; or a kernel has requested a cell outside of the
 *             array, or leaves an item undone although no block of it is missing
 *   -EFBIG    an item needs more blocks at a time than the cache holds
 *   -EIO      blocks could not be read
 *   -ENODATA  the file has become shorter
 *   -ENODEV   the device is lost
 *   -EBUSY    the stream is being captured
 * Errors of `read` and `launch` are returned as they are. When the call returns an error, all work of the
 * run has ended, and its results are undefined.
 */
VARVE_API int varve_blocks_run(struct varve_blocks *blocks, uint64_t items,
                               varve_blocks_launch launch, void *arg,
                               struct CUstream_st *stream) VARVE_CHECK;

struct varve_blocks_stats {
    size_t stats_size;          /* in: sizeof(struct varve_blocks_stats) */
    uint64_t slots, used_slots; /* places for blocks on the device, and those in use */
    uint64_t runs, rounds;      /* calls of varve_blocks_run, and of `launch` */
    uint64_t missed;            /* blocks that kernels requested */
    uint64_t ahead;             /* blocks brought before they were requested */
    uint64_t evicted;           /* blocks evicted */
    uint64_t bytes;             /* bytes brought to the device */
    uint64_t undone;            /* items that were begun again */
    uint64_t from_host;         /* items that read cells from host memory */
    /* These add up to the elapsed time of runs. */
    uint64_t management_ns; /* everything else: slots, maps and lists, and choosing blocks to bring
                               and to evict */
    uint64_t moving_ns;     /* calls that copy blocks and maps, and reading blocks */
    uint64_t launching_ns;  /* calls that start rounds, including the application's */
    uint64_t waiting_ns;    /* polling or sleeping, for kernels, copies and other runs */
};

/* Figures since the array was opened. The caller sets stats_size. -EINVAL: NULL, or no size. */
VARVE_API int varve_blocks_stats(struct varve_blocks *blocks,
                                 struct varve_blocks_stats *ret_stats) VARVE_CHECK;

#ifdef __cplusplus
}
#endif

#endif
