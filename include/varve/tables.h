/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables: many read-only tables of different sizes. GPUs cache the tables that launches need. This
 * header is the host's part; <varve/tables_device.h> has the functions that kernels call.
 *
 * The tables of an item of work are known before it runs. The whole work order is therefore passed at
 * once. Items are launched in batches whose tables fit the cache together, while the tables of the next
 * batches are copied:
 *
 *     varve_tables_open(ctx, &opts, &tables);
 *     varve_tables_run(tables, &work);
 *
 * varve_tables_run calls `launch` for each batch; `launch` starts the kernel on the given stream, with
 * the given view. Each item is launched once, roughly in order. Launches run concurrently, on several
 * streams: items must not depend on one another, and two items that write to the same place must use
 * atomic operations, as within a launch. With `lanes` of 1 launches run one after another, on the stream
 * of the work. Unused tables stay in the cache, also from one run to the next, until their space is
 * needed; the table whose next use is farthest is evicted first.
 *
 * Layouts. Flat: a table is contiguous on the device, and kernels get a pointer; when free space is
 * fragmented, tables that no launch uses are moved together. Chunked: a table is spread over chunks of
 * 64 KiB, found through a map; nothing is ever moved.
 *
 * Several devices. Each has a cache and a part of the work order, and takes work over from another one
 * when its own is done. A context may be listed several times: its device then has that many caches.
 *
 * Processor. With `host`, the processor does the items that it would finish sooner, by the speeds
 * measured so far, and those whose tables never fit.
 *
 * Threads. One run at a time. One thread opens and closes the tables. Any thread may call
 * varve_tables_stats.
 */
#ifndef VARVE_TABLES_H
#define VARVE_TABLES_H

#include <varve/varve.h>

#ifdef __cplusplus
extern "C" {
#endif

struct varve_tables;
struct varve_tables_view; /* argument of kernels: varve/tables_device.h */
struct varve_history;
struct CUstream_st;

enum varve_tables_layout {
    VARVE_TABLES_FLAT,   /* a table is contiguous, and kernels get a pointer */
    VARVE_TABLES_CHUNKED /* a table is spread over chunks of 64 KiB, and nothing is ever moved */
};

enum varve_tables_policy {
    VARVE_TABLES_NEXT_USE /* evicts the table whose next use is farthest */
};

/* Options of a set of tables, with their defaults in parentheses. Plain data; fields are only ever
 * appended. */
struct varve_tables_opts {
    size_t opts_size;      /* sizeof(struct varve_tables_opts), as varve_tables_opts_init sets it */
    uint32_t tables;       /* number of tables; 2^24 at most; must be set */
    const uint64_t *bytes; /* size of each, at least 1; copied; must be set */
    uint64_t cache_bytes;  /* on each device, for tables and the other data of launches; must be
                              set */
    int32_t layout;        /* enum varve_tables_layout (VARVE_TABLES_FLAT) */
    int32_t policy;        /* enum varve_tables_policy (VARVE_TABLES_NEXT_USE) */
    uint32_t item_bytes;   /* bytes that each item passes to the kernel, besides its tables (0) */
    uint32_t batch_items;  /* most items of a launch (1024) */
    uint64_t
        batch_bytes; /* most bytes of the tables of a launch, unless it has one item (0: 1/64 of
                              the cache, or 1/32 with chunks) */
    uint32_t depth;  /* launches whose tables are being copied to a device (2) */
    int32_t readers; /* threads that read files, or call `read` (4) */
    uint64_t staging_bytes; /* pinned memory that such tables pass through (64 MiB) */

    /* Source of the tables: one of these. */
    const uint64_t *offsets; /* of each table in memory, file or region; NULL: contiguous */
    const void *memory;      /* host memory; it must not change until varve_tables_close */
    const char *path;        /* a file */
    uint64_t path_offset;    /* added to each of `offsets` in the file (0) */
    /* Reads bytes of a table: 0 or a negative errno. Called on any thread, on several at a time. */
    int (*read)(void *arg, uint32_t table, uint64_t offset, void *buf, size_t bytes);
    void *read_arg;                /* the first argument of `read` */
    struct varve_history *history; /* a region of a version, read when the tables are opened */
    uint64_t version;              /* of the history */
    int32_t region;                /* of the version */

    struct varve_ctx *const
        *more;        /* contexts of further devices, which stay open like the first one */
    uint32_t nr_more; /* number of `more` (0) */
    uint32_t lanes; /* launches that may run concurrently on a device, on streams of the library, 64
                       at most (12); 1: one after another, on the stream of the work */
};

/* Fills in the defaults. `opts_size` is sizeof(struct varve_tables_opts). -EINVAL: NULL or an
 * impossible size. */
VARVE_API int varve_tables_opts_init(struct varve_tables_opts *opts, size_t opts_size) VARVE_CHECK;

/*
 * Opens tables on the device of the context, which stays open until after varve_tables_close, and on
 * those of `more`.
 *   -EINVAL   an option is invalid
 *   -ENODEV   a context has no device
 *   -ENOMEM   the cache cannot be allocated
 *   -EFBIG    a table is larger than the cache
 *   -ENODATA  the file or the region is shorter than the tables
 * and those of open(2) and varve_restore. varve_last_error of the first context has the details.
 */
VARVE_API int varve_tables_open(struct varve_ctx *ctx, const struct varve_tables_opts *opts,
                                struct varve_tables **ret_tables) VARVE_CHECK;
/* Closes tables and frees their memory; NULL is allowed. -EBUSY: a run is in progress; the tables stay
 * open. */
VARVE_API int varve_tables_close(struct varve_tables *tables);

/* Starts the kernel for a batch of items on the stream: 0, or a negative errno that ends the run.
 * `device` is 0 for the context's own, or 1 + the index in `more`; it is the current device. The function
 * may be called on another thread than that of varve_tables_run, and for different devices on several
 * threads at a time. The view is valid until the function returns; the kernel gets a copy. The next call
 * may come before that kernel has ended. */
typedef int (*varve_tables_launch)(void *arg, const struct varve_tables_view *view, uint32_t device,
                                   struct CUstream_st *stream);

/* Does an item on the processor: 0, or a negative errno that ends the run. `tables[i]` is the item's i-th
 * table in host memory. One call at a time, on another thread than that of varve_tables_run. */
typedef int (*varve_tables_host)(void *arg, uint64_t item, const void *const *tables);

/* A work order. Plain data; fields are only ever appended; set unused ones to 0. */
struct varve_tables_work {
    size_t work_size;      /* sizeof(struct varve_tables_work) */
    uint64_t items;        /* 2^32 - 2 at most */
    const uint64_t *first; /* items + 1 entries: where the tables of each item begin in `uses` */
    const uint32_t *uses;  /* numbers of tables; a number may occur twice */
    const void *meta;      /* item_bytes for each item; NULL if item_bytes is 0 */
    const double *cost;    /* cost of computing each item, in any unit; NULL: all equal */
    varve_tables_launch launch; /* starts the kernel */
    varve_tables_host host;     /* NULL: devices do all items */
    void *arg;                  /* the first argument of both */
    struct CUstream_st *const
        *streams; /* one for each device: launches begin after its earlier work;
                                           NULL: their default streams */
};

/*
 * Runs until every item is done and all work on the streams has ended, those of the library and those of
 * `work`. The data that `work` points to must not change meanwhile.
 *   -EINVAL   an item uses a table that does not exist; or a kernel has read beyond a table
 *   -EFBIG    the tables of an item, which the error names, do not fit the cache together, and there
 *             is no `host`
 *   -EIO      tables could not be read
 *   -ENODATA  the file has become shorter
 *   -ENODEV   a device is lost
 *   -EBUSY    a run is in progress, or a stream is being captured
 * Errors of `read`, `launch` and `host` are returned as they are. When the call returns an error, all work
 * of the run has ended, and its results are undefined.
 */
VARVE_API int varve_tables_run(struct varve_tables *tables,
                               const struct varve_tables_work *work) VARVE_CHECK;

struct varve_tables_stats {
    size_t stats_size;                   /* in: sizeof(struct varve_tables_stats) */
    uint64_t capacity_bytes, used_bytes; /* space for tables, and its used part, on all devices */
    uint64_t meta_bytes;                 /* space set aside for the other data of launches */
    uint64_t runs, launches;             /* runs that have succeeded, and calls of `launch` */
    uint64_t items, host_items;          /* items done in total, and by the processor */
    uint64_t found, missed;              /* tables of batches that were cached, and that were not */
    uint64_t evicted;                    /* tables evicted */
    uint64_t bytes;                      /* bytes brought to devices */
    uint64_t moved, moved_bytes;         /* tables moved to join free space, and their bytes */
    uint64_t queued_ns;                  /* time with work queued */
    uint64_t management_ns; /* time that threads spent on planning, without transfers */
    double utilisation;     /* bytes of cached tables over capacity, averaged over the time with
                                    work queued */
};

/* Figures since the tables were opened; during a run they may be slightly out of date. The caller sets
 * stats_size. -EINVAL: NULL, or no size. */
VARVE_API int varve_tables_stats(struct varve_tables *tables,
                                 struct varve_tables_stats *ret_stats) VARVE_CHECK;

/* Assumed speeds, for varve_tables_plan. */
struct varve_tables_speeds {
    size_t speeds_size; /* sizeof(struct varve_tables_speeds) */
    double link_bytes;  /* bytes per second to each device */
    double device_cost; /* cost of items per second on a device; 0: items take no time */
    double host_cost;   /* cost of items per second on the processor; 0: there is no `host` */
    double launch_s;    /* shortest time of a launch in seconds, even with few items */
};

/*
 * Simulates a run that begins with an empty cache, on a device (and `nr_more` others) of the given speeds:
 * the decisions are those of a run, the times are computed. Nothing is read, launched or moved; `opts`
 * needs no source, and `more`, `launch` and `host` are ignored.
 *   -EINVAL   an option is invalid, or an item uses a table that does not exist
 *   -EFBIG    a table is larger than the cache, or the tables of an item do not fit it together and
 *             host_cost is 0
 *   -ENOMEM   not enough host memory
 */
VARVE_API int varve_tables_plan(const struct varve_tables_opts *opts,
                                const struct varve_tables_work *work,
                                const struct varve_tables_speeds *speeds,
                                struct varve_tables_stats *ret_stats) VARVE_CHECK;

/* A lower bound for comparing policies: the bytes that farthest-next-use eviction would bring if it kept
 * chunks of 64 KiB instead of tables, in the whole cache of one device, item after item. Nothing is read
 * or moved; `opts` needs no source. -EINVAL: an option is invalid, or an item uses a table that does not
 * exist; -EFBIG: a table is larger than the cache, or the tables of an item do not fit it together;
 * -ENOMEM: not enough host memory. */
VARVE_API int varve_tables_least(const struct varve_tables_opts *opts,
                                 const struct varve_tables_work *work,
                                 uint64_t *ret_bytes) VARVE_CHECK;

#ifdef __cplusplus
}
#endif

#endif
