/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables: many read-only tables of different sizes. GPUs hold the tables that launches need. This
 * header is the host's part; <varve/tables_device.h> has the functions that kernels call.
 *
 * Which tables an item of work uses is known before it runs. So the whole order of work is handed
 * over at once; items are launched in batches whose tables fit the cache together, while the tables
 * of the next batches travel:
 *
 *     varve_tables_open(ctx, &opts, &tables);
 *     varve_tables_run(tables, &work);
 *
 * varve_tables_run calls `launch` for each batch; `launch` starts the kernel on the stream it is
 * given, with the view that it is given. Items are launched about in their order, each once. Launches
 * compute side by side, on several streams: items do not depend on one another, and what two of them write
 * to the same place they add by atomic operations, as within a launch. With `lanes` of 1 launches follow
 * one another, on the stream of the work. Tables
 * stay when they are not in use, also from one run to the next, until the space is needed; then those go
 * first that are needed last.
 *
 * Layouts. Flat: a table is contiguous on the device, and kernels get a pointer; tables that no
 * launch uses are moved together when space is scattered. Chunked: a table is spread over chunks of
 * 64 KiB, found through a map; nothing is ever moved.
 *
 * Several devices: each has a cache and a part of the order of work, and takes over from another when
 * it is done. The same context may be named several times: so many caches on its device.
 *
 * Processor. With `host`, items are done by the processor when they would be done sooner there, by the
 * speeds seen so far, and those whose tables never fit.
 *
 * Threads. One run at a time; opening and closing is one thread's business; varve_tables_stats may be
 * called from any.
 */
#ifndef VARVE_TABLES_H
#define VARVE_TABLES_H

#include <varve/varve.h>

#ifdef __cplusplus
extern "C" {
#endif

struct varve_tables;
struct varve_tables_view; /* what kernels are given: varve/tables_device.h */
struct varve_history;
struct CUstream_st;

enum varve_tables_layout {
    VARVE_TABLES_FLAT,   /* a table is contiguous, and kernels get a pointer */
    VARVE_TABLES_CHUNKED /* a table is spread over chunks of 64 KiB, and nothing is ever moved */
};

enum varve_tables_policy {
    VARVE_TABLES_NEXT_USE /* the table goes that is needed last */
};

/* Options of a set of tables, with their defaults in parentheses. Plain data; fields are only ever
 * appended. */
struct varve_tables_opts {
    size_t opts_size;      /* sizeof(struct varve_tables_opts), as varve_tables_opts_init sets it */
    uint32_t tables;       /* how many; 2^24 at most; to be set */
    const uint64_t *bytes; /* of each, 1 at least; copied; to be set */
    uint64_t cache_bytes;  /* on each device: tables, and what launches need beside them;
                              to be set */
    int32_t layout;        /* enum varve_tables_layout (VARVE_TABLES_FLAT) */
    int32_t policy;        /* enum varve_tables_policy (VARVE_TABLES_NEXT_USE) */
    uint32_t item_bytes;   /* what each item hands to the kernel, besides its tables (0) */
    uint32_t batch_items;  /* most items of a launch (1024) */
    uint64_t batch_bytes; /* most bytes of the tables of a launch, unless it has one item (0: a 64th
                              of the cache, or a 32nd of chunks) */
    uint32_t depth;       /* launches whose tables are on their way to a device (2) */
    int32_t readers;      /* threads that read files, or call `read` (4) */
    uint64_t staging_bytes; /* of pinned memory through which such tables travel (64 MiB) */

    /* Where the tables are: one of these. */
    const uint64_t *offsets; /* of each table in memory, file or region; NULL: one after another */
    const void *memory;      /* host memory; it stays as it is until varve_tables_close */
    const char *path;        /* a file */
    uint64_t path_offset;    /* what is added to each of `offsets` in the file (0) */
    /* Gives bytes of a table: 0 or a negative errno. It is called on any thread, on several at a time. */
    int (*read)(void *arg, uint32_t table, uint64_t offset, void *buf, size_t bytes);
    void *read_arg;                /* the first argument of `read` */
    struct varve_history *history; /* a region of a version, read when the tables are opened */
    uint64_t version;              /* of the history */
    int32_t region;                /* of the version */

    struct varve_ctx *const
        *more;        /* contexts of further devices, which stay open as the first does */
    uint32_t nr_more; /* how many (0) */
    uint32_t lanes; /* launches that may compute side by side on a device, on streams of ours, 64 at
                       most (12); 1: one after another, on the stream of the work */
};

/* Fills in the defaults. `opts_size` is sizeof(struct varve_tables_opts). -EINVAL: NULL or an absurd
 * size. */
VARVE_API int varve_tables_opts_init(struct varve_tables_opts *opts, size_t opts_size) VARVE_CHECK;

/*
 * Opens tables on the device of the context, which stays open until after varve_tables_close, and on
 * those of `more`.
 *   -EINVAL   an option makes no sense
 *   -ENODEV   a context has no device
 *   -ENOMEM   the cache cannot be had
 *   -EFBIG    a table is larger than the cache
 *   -ENODATA  the file or the region is shorter than the tables
 * and those of open(2) and varve_restore. varve_last_error of the first context tells more.
 */
VARVE_API int varve_tables_open(struct varve_ctx *ctx, const struct varve_tables_opts *opts,
                                struct varve_tables **ret_tables) VARVE_CHECK;
/* Closes tables and frees their memory; NULL is allowed. -EBUSY: a run is under way, and the tables stay. */
VARVE_API int varve_tables_close(struct varve_tables *tables);

/* Starts the kernel for a batch of items on the stream: 0, or a negative errno that ends the run.
 * `device`: 0, the context's own, or 1 + its place in `more`. It may be called on another thread than
 * the one that runs, on several at a time for different devices; the device is the current one. The
 * view is valid until it returns, and a kernel has a copy; the next call may come before that kernel
 * has ended. */
typedef int (*varve_tables_launch)(void *arg, const struct varve_tables_view *view, uint32_t device,
                                   struct CUstream_st *stream);

/* Does an item by processor: 0, or a negative errno that ends the run. `tables[i]` is the item's i-th
 * table in host memory. One call at a time, on another thread than the one that runs. */
typedef int (*varve_tables_host)(void *arg, uint64_t item, const void *const *tables);

/* An order of work. Plain data; fields are only ever appended; set to 0 what is not used. */
struct varve_tables_work {
    size_t work_size;      /* sizeof(struct varve_tables_work) */
    uint64_t items;        /* 2^32 - 2 at most */
    const uint64_t *first; /* of items + 1: where the tables of each item begin in `uses` */
    const uint32_t *uses;  /* tables; the same may come twice */
    const void *meta;      /* item_bytes for each item; NULL where they are 0 */
    const double *cost;    /* of each item, in any unit: what it takes to compute it; NULL: alike */
    varve_tables_launch launch;         /* starts the kernel */
    varve_tables_host host;             /* NULL: everything is done by devices */
    void *arg;                          /* the first argument of both */
    struct CUstream_st *const *streams; /* of each device: launches begin after what is on it; NULL:
                                           their default streams */
};

/*
 * Runs until every item is done; then so is all work on the streams, ours and those of the work. What `work` points to stays as it
 * is meanwhile.
 *   -EINVAL   an item uses a table that there is none of; or a kernel has read beyond a table
 *   -EFBIG    the tables of an item, which the error names, do not fit the cache together, and there
 *             is no `host`
 *   -EIO      tables could not be read; also what `read`, `launch` and `host` return
 *   -ENODATA  the file has become shorter
 *   -ENODEV   a device is lost
 *   -EBUSY    a run is under way, or a stream is being captured
 * After an error nothing of the run is under way any more, and what it was to compute is undefined.
 */
VARVE_API int varve_tables_run(struct varve_tables *tables,
                               const struct varve_tables_work *work) VARVE_CHECK;

struct varve_tables_stats {
    size_t stats_size;                   /* in: sizeof(struct varve_tables_stats) */
    uint64_t capacity_bytes, used_bytes; /* for tables, and by tables, on all devices */
    uint64_t meta_bytes;         /* what is set aside for what launches need beside tables */
    uint64_t runs, launches;     /* that have ended well, and calls of `launch` */
    uint64_t items, host_items;  /* done in all, and by the processor */
    uint64_t found, missed;      /* tables of batches that were there, and that were not */
    uint64_t evicted;            /* tables that made room by going */
    uint64_t bytes;              /* brought to devices */
    uint64_t moved, moved_bytes; /* tables that made room by moving, and their bytes */
    uint64_t queued_ns;          /* time with work queued */
    uint64_t management_ns; /* time of threads spent on planning all this, outside of transfers */
    double
        utilisation; /* bytes of tables that had a place in the cache, over its capacity, averaged
                           over the time with work queued */
};

/* Figures since the tables were opened; while a run is under way as of a moment ago. The caller sets
 * stats_size. -EINVAL: NULL, or no size. */
VARVE_API int varve_tables_stats(struct varve_tables *tables,
                                 struct varve_tables_stats *ret_stats) VARVE_CHECK;

/* How fast things are thought to be, for varve_tables_plan. */
struct varve_tables_speeds {
    size_t speeds_size; /* sizeof(struct varve_tables_speeds) */
    double link_bytes;  /* to each device, a second */
    double device_cost; /* of items, a second; 0: it takes no time */
    double host_cost;   /* by the processor; 0: there is no `host` */
    double launch_s;    /* that a launch takes at least, in seconds, however few items it has */
};

/*
 * Simulates a run that begins with an empty cache, on a device (and `nr_more` others) of the given speeds:
 * the decisions are those of a run, the times are computed. Nothing is read, launched or moved; `opts`
 * needs no source, and `more`, `launch` and `host` are not looked at.
 *   -EINVAL   an option makes no sense, or an item uses a table that there is none of
 *   -EFBIG    a table is larger than the cache, or the tables of an item do not fit it together, and there
 *             is no speed of the processor
 *   -ENOMEM   of the host
 */
VARVE_API int varve_tables_plan(const struct varve_tables_opts *opts,
                                const struct varve_tables_work *work,
                                const struct varve_tables_speeds *speeds,
                                struct varve_tables_stats *ret_stats) VARVE_CHECK;

/* The bytes that farthest next use would bring if it kept chunks of 64 KiB, not tables, in the whole
 * cache of one device, item after item: what policies are measured by. Nothing is read or moved;
 * `opts` needs no source. -EINVAL: an option makes no sense, or an item uses a table that there is none of;
 * -EFBIG: a table is larger than the cache, or the tables of an item do not fit it together; -ENOMEM: of the
 * host. */
VARVE_API int varve_tables_least(const struct varve_tables_opts *opts,
                                 const struct varve_tables_work *work,
                                 uint64_t *ret_bytes) VARVE_CHECK;

#ifdef __cplusplus
}
#endif

#endif
