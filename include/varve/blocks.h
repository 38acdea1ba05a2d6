/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks: a large read-only array of cells, cut into blocks. A GPU holds the blocks that kernels
 * ask for. This header is the host's part; <varve/blocks_device.h> has the functions that kernels call.
 *
 * Which blocks a kernel needs is known only when it runs. So work is cut into items, and a kernel
 * looks cells up through the cache: if one is not there, the block is asked for and the item left
 * undone. The host brings blocks while the kernel still runs, and runs it again for what is left:
 *
 *     varve_blocks_open(ctx, &opts, &blocks);
 *     varve_blocks_run(blocks, items, launch, arg, stream);
 *
 * varve_blocks_run calls `launch` once for each round; `launch` starts the kernel on the stream it is
 * given, with the view that it is given. The items of a run are independent of one another, and an
 * item that is begun again does the same again.
 *
 * Progress. Blocks that a round touched are the last to go before the next. If rounds get nowhere,
 * each of the following does fewer items, down to one; with cells in host memory that kernels can read,
 * items that are left after `rounds` read them from there. They can unless the memory is pinned in
 * pieces, cannot be pinned, or begins at an address that is no multiple of `cell_bytes`.
 *
 * Threads. Several may run on one cache at a time; a block goes only when no kernel can use it.
 * Opening and closing is one thread's business.
 */
#ifndef VARVE_BLOCKS_H
#define VARVE_BLOCKS_H

#include <varve/varve.h>

#ifdef __cplusplus
extern "C" {
#endif

struct varve_blocks;
struct varve_blocks_view; /* what kernels are given: varve/blocks_device.h */
struct varve_history;
struct CUstream_st;

enum varve_blocks_policy {
    VARVE_BLOCKS_CLOCK /* the block that was used least often and longest ago goes */
};

/* The most for `ahead`. */
enum { VARVE_BLOCKS_AHEAD_MAX = 8 };

/* Options of an array, with their defaults in parentheses. Plain data; fields are only ever appended. */
struct varve_blocks_opts {
    size_t opts_size;    /* sizeof(struct varve_blocks_opts), as varve_blocks_opts_init sets it */
    uint64_t cells[3];   /* along x (neighbours side by side), y and z; 1: no such axis (1) */
    uint32_t edge[3];    /* of a block in cells, powers of two (32 along each axis; of an array with
                             x alone 32768) */
    uint32_t cell_bytes; /* 1, 2, 4, 8 or 16 (4) */
    uint32_t rounds;     /* after so many, items that are left read cells from host memory, where
                             kernels can (8; 0: all items do, from the first round on) */
    uint64_t cache_bytes; /* on the device: one block at least; to be set */
    uint32_t ahead;  /* blocks brought beyond each one that was missing, where the front moves to
                             (1; 0: none; VARVE_BLOCKS_AHEAD_MAX at most) */
    int32_t policy;  /* enum varve_blocks_policy (VARVE_BLOCKS_CLOCK) */
    int32_t readers; /* threads that read files, or call `read` (4) */

    /* Where the cells are, block after block as varve_blocks_pack lays them: one of these. */
    const void
        *memory;      /* host memory; it stays as it is until varve_blocks_close, pinned if it is */
    const char *path; /* a file */
    uint64_t path_offset; /* where the array begins in the file (0) */
    /* Gives a block: 0 or a negative errno. It is called on any thread, on several at a time. */
    int (*read)(void *arg, uint64_t block, void *buf, size_t bytes);
    void *read_arg;                /* the first argument of `read` */
    struct varve_history *history; /* a region of a version, read when the array is opened */
    uint64_t version;              /* of the history */
    int32_t region;                /* of the version */
};

/* Fills in the defaults. `opts_size` is sizeof(struct varve_blocks_opts). -EINVAL: NULL or an absurd
 * size. */
VARVE_API int varve_blocks_opts_init(struct varve_blocks_opts *opts, size_t opts_size) VARVE_CHECK;

/* How many bytes the array has, block after block. -EINVAL: cells, edge or cell_bytes make no sense;
 * -EFBIG: more than 2^32 - 2 blocks. */
VARVE_API int varve_blocks_bytes(const struct varve_blocks_opts *opts,
                                 uint64_t *ret_bytes) VARVE_CHECK;

/* Lays an array out block after block: x runs fastest, in the array and in a block; blocks that
 * reach beyond the array are filled with zeros there. `ret_packed` has room for varve_blocks_bytes. */
VARVE_API int varve_blocks_pack(const struct varve_blocks_opts *opts, const void *array,
                                void *ret_packed) VARVE_CHECK;

/*
 * Opens an array on the device of the context, which stays open until after varve_blocks_close.
 *   -EINVAL   an option makes no sense
 *   -ENODEV   the context has no device
 *   -ENOMEM   the cache cannot be had
 *   -EFBIG    not even one block fits the cache
 *   -ENODATA  the file or the region is shorter than the array
 * and those of open(2) and varve_restore. varve_last_error tells more.
 */
VARVE_API int varve_blocks_open(struct varve_ctx *ctx, const struct varve_blocks_opts *opts,
                                struct varve_blocks **ret_blocks) VARVE_CHECK;
/* Closes an array and frees its memory; NULL is allowed. -EBUSY: a run is under way, and the array stays. */
VARVE_API int varve_blocks_close(struct varve_blocks *blocks);

/* Starts the kernel for the items of one round on the stream: 0, or a negative errno that ends the
 * run. */
typedef int (*varve_blocks_launch)(void *arg, const struct varve_blocks_view *view,
                                   struct CUstream_st *stream);

/*
 * Runs until every item is done; then so is all work on the stream. `items` is at most 2^32 - 2.
 *   -EINVAL   no array, no `launch`, or too many items; or a kernel has asked for a cell outside of the
 *             array, or leaves an item undone that is missing none
 *   -EFBIG    an item needs more blocks at a time than the cache holds
 *   -EIO      blocks could not be read; also what `read` and `launch` return
 *   -ENODATA  the file has become shorter
 *   -ENODEV   the device is lost
 *   -EBUSY    the stream is being captured
 * After an error nothing of the run is under way any more, and what it was to compute is undefined.
 */
VARVE_API int varve_blocks_run(struct varve_blocks *blocks, uint64_t items,
                               varve_blocks_launch launch, void *arg,
                               struct CUstream_st *stream) VARVE_CHECK;

struct varve_blocks_stats {
    size_t stats_size;          /* in: sizeof(struct varve_blocks_stats) */
    uint64_t slots, used_slots; /* places for blocks on the device, and those that have one */
    uint64_t runs, rounds;      /* of varve_blocks_run, and calls of `launch` */
    uint64_t missed;            /* blocks that kernels asked for */
    uint64_t ahead;             /* blocks that were brought before anybody asked */
    uint64_t evicted;           /* blocks that made room */
    uint64_t bytes;             /* brought to the device */
    uint64_t undone;            /* items that were begun again */
    uint64_t from_host;         /* items that were left to read host memory */
    /* The time of runs, by the clock, adds up to these. */
    uint64_t management_ns; /* all that is not of the kinds below: slots, maps and lists, and
                               choosing what comes and what goes */
    uint64_t moving_ns;     /* calls that copy blocks and maps, and reading them where need be */
    uint64_t launching_ns;  /* calls that start rounds, the application's among them */
    uint64_t
        waiting_ns; /* for kernels, copies and other runs, by asking again and again or asleep */
};

/* Figures since the array was opened. The caller sets stats_size. -EINVAL: NULL, or no size. */
VARVE_API int varve_blocks_stats(struct varve_blocks *blocks,
                                 struct varve_blocks_stats *ret_stats) VARVE_CHECK;

#ifdef __cplusplus
}
#endif

#endif
