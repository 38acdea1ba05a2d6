/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU files: files read and written from inside kernels. This header is the host's part: opening a
 * file system for the GPU of a context, naming files, the servers behind it, and figures. What
 * kernels call is in <varve/gpufile_device.h>.
 *
 * Use. Open a context with a device, then a file system on it; register files; hand the structure
 * that varve_gpufs_handle fills in to kernels, by value:
 *
 *     varve_gpufs_open(ctx, NULL, &fs);
 *     varve_gpufs_register(fs, "points.bin", VARVE_GFILE_READ, &id);
 *     varve_gpufs_handle(fs, &handle);
 *     kernel<<<132, 256>>>(handle, id, ...);
 *
 * Servers. The GPU asks for bytes through a ring in host memory; threads of the library answer it
 * and make no call of the driver while they do, so that a kernel that waits can never be waited for.
 * They run from varve_gpufs_open to varve_gpufs_close, unless they are stopped between. Each opens files
 * that it reads in small pieces once more for itself, all of them together up to a quarter of the
 * descriptors that the process may have.
 *
 * Mapping. A file that is in the page cache and read more than once needs no server: after
 * varve_gpufs_map the GPU reads the page cache itself, at the speed of the link. Mapping costs time
 * (lab/results/gpufile.md) and pins memory; a mapped file keeps its size for kernels, and one that was cut short
 * meanwhile is found out when it is closed.
 *
 * Threads. Calls on one file system may come from several threads; opening and closing it, dropping
 * its pages, unmapping and unregistering are not to be done while a kernel uses it.
 */
#ifndef VARVE_GPUFILE_H
#define VARVE_GPUFILE_H

#include <varve/varve.h>

#ifdef __cplusplus
extern "C" {
#endif

struct varve_gpufs;
struct varve_gfs; /* what kernels are given: varve/gpufile_device.h */

enum varve_gio {
    VARVE_GIO_AUTO,  /* what VARVE_GIO_PREAD does */
    VARVE_GIO_PREAD, /* each server reads what it took: best for files in the page cache */
    VARVE_GIO_URING  /* each server has many reads under way: best for disks; -ENOTSUP where the
                        system has no io_uring */
};

enum varve_greadahead {
    VARVE_GREADAHEAD_ADAPTIVE, /* doubling while a group reads on, off for random access, and asked
                                  for while the bytes before it are copied */
    VARVE_GREADAHEAD_OFF = 2 /* what is wanted now, and no more; 1 is a mode for measurements, which
                                  varve_gpufs_open refuses */
};

enum varve_greplace {
    VARVE_GREPLACE_OWN /* each group gives up the page that it took first */
};

enum varve_gqueue {
    VARVE_GQUEUE_TICKETS /* requests wait in one queue, and any server takes the next */
};

enum varve_gbypass {
    VARVE_GBYPASS_AUTO,  /* files larger than the cache, while they are read on, pass it by */
    VARVE_GBYPASS_NEVER, /* unless advised so */
};

/* Options of a file system, with their defaults in parentheses. Plain data; fields are only ever
 * appended. */
struct varve_gpufs_opts {
    size_t opts_size;      /* sizeof(struct varve_gpufs_opts), as varve_gpufs_opts_init sets it */
    uint64_t cache_bytes;  /* pages on the GPU (1 GiB) */
    uint64_t map_limit;    /* bytes of files that may be mapped at once (half of the memory that
                                  was free at opening) */
    uint64_t window_bytes; /* in which files are mapped: a power of two, 2 MiB and a page at least
                                  (256 MiB) */
    uint32_t page_bytes;   /* a power of two, 4 KiB to 4 MiB (4 KiB) */
    uint32_t streams;      /* files that may be open at once, counted for each group: blocks that
                                  are resident at once, times files that each has open (264) */
    uint32_t files;        /* that can be registered, 4096 at most (64) */
    uint32_t servers;      /* threads (processors less two, 1 to 14) */
    uint32_t readahead_bytes; /* largest window of a stream, a multiple of page_bytes, 8 MiB at most
                                  (512 KiB, or a page if that is more). With readahead off: of one
                                  request for what is wanted now (64 KiB, or a page) */
    uint32_t split_bytes;     /* larger requests go to several servers, each of so many bytes
                                  (128 KiB, or a page, 2 MiB at most) */
    uint32_t timeout_ms;      /* what a kernel waits for an answer at most (10000) */
    int32_t io;               /* enum varve_gio (VARVE_GIO_AUTO) */
    int32_t direct;           /* not 0: past the page cache (O_DIRECT), where the file system has
                                  that and there is a /proc (0) */
    int32_t readahead;        /* enum varve_greadahead (VARVE_GREADAHEAD_ADAPTIVE) */
    int32_t replace;          /* enum varve_greplace (VARVE_GREPLACE_OWN) */
    int32_t bypass;           /* enum varve_gbypass (VARVE_GBYPASS_AUTO) */
    int32_t map_hot; /* not 0: what servers have read twice is mapped, within map_limit (0) */
    int32_t queue;   /* enum varve_gqueue (VARVE_GQUEUE_TICKETS) */
};

/* Fills in the defaults. `opts_size` is sizeof(struct varve_gpufs_opts). -EINVAL: NULL or an absurd
 * size. Does not block. */
VARVE_API int varve_gpufs_opts_init(struct varve_gpufs_opts *opts, size_t opts_size) VARVE_CHECK;

/*
 * Opens a file system on the device of the context: allocates the cache there and the staging memory
 * on the host, and starts the servers. NULL opts: the defaults. The context stays open until after
 * varve_gpufs_close.
 *   -EINVAL   an option makes no sense
 *   -ENODEV   the context has no device
 *   -ENOMEM   cache or staging memory cannot be had
 *   -ENOTSUP  no io_uring here, or a device that cannot read host memory
 * varve_last_error of the context tells more, and so it does of the calls below.
 */
VARVE_API int varve_gpufs_open(struct varve_ctx *ctx, const struct varve_gpufs_opts *opts,
                               struct varve_gpufs **ret_fs) VARVE_CHECK;
/*
 * Stops the servers, unmaps and closes all files, and frees the memory; NULL is allowed. No kernel
 * uses the file system any more. The file system is gone whatever the result. -ENODATA: a file that
 * had been mapped has become shorter than it was then, so that kernels may have read bytes of its
 * former life.
 */
VARVE_API int varve_gpufs_close(struct varve_gpufs *fs);

enum varve_gfile_flags {
    VARVE_GFILE_READ = 1,   /* kernels may read it */
    VARVE_GFILE_WRITE = 2,  /* kernels may write it, too; it is never mapped */
    VARVE_GFILE_CREATE = 4, /* with WRITE: made if missing */
    VARVE_GFILE_MAP = 8     /* map all of it now; what goes beyond map_limit is served */
};

/*
 * Opens a file and gives it a number, by which kernels open it; `flags` are of enum varve_gfile_flags. The same file, by
 * whatever path, gives the same number, which stays good until varve_gpufs_unregister was called as
 * often. A file that is registered once for reading and once for writing has two numbers, with pages
 * of their own: what kernels write by one of them is seen by the other after varve_gpufs_drop. So is what
 * anybody else writes to a file that is registered. A number keeps the file that its path led to, and
 * the size that it had then, or that kernels have written it to; another file under the path, and a
 * file for reading that has another size by now, get another number, since pages in the cache and windows
 * end where the file ended. The number that it had before counts until it is unregistered: `files` of the options
 * says how many there can be. May be called while kernels run; but if MAP fails for a window after others
 * of the file were mapped for this call, those are unmapped, which waits for kernels that run. Errors are those
 * of open(2), and
 *   -EISDIR   a directory, and anything else that is not a regular file is -EINVAL
 *   -EMFILE   as many numbers as `files` of the options allows, or open files as the process may have
 */
VARVE_API int varve_gpufs_register(struct varve_gpufs *fs, const char *path, int flags,
                                   uint32_t *ret_id) VARVE_CHECK;
/* Takes one registration back. With the last of them the file is forgotten: unmapped and closed, and its
 * pages dropped; that a kernel has opened it by path does not count. A number is not given out again before all
 * pages of the cache were dropped, which this call does when half of the 4096 numbers that there are
 * have been used. -EINVAL: no such number. -ENODATA: it had been mapped, and has become shorter than it was
 * then, so that kernels may have read bytes of its former life; the file is gone all the same. */
VARVE_API int varve_gpufs_unregister(struct varve_gpufs *fs, uint32_t id);
/*
 * Maps bytes [offset, offset + bytes) of a file for the GPU, rounded outwards to windows; `bytes` 0:
 * to its end. What is mapped already costs nothing. Other calls of the driver are held up meanwhile.
 * `ret_bytes`, unless NULL: how much of the range is mapped now.
 *   -ENOSPC   map_limit was reached, or files have 65536 windows already; what came before stays mapped
 *   -EINVAL   no such number, a file for writing, or an offset beyond its end
 *   -ENODATA  the file has become shorter
 *   -ENOTSUP  the device cannot read such memory
 */
VARVE_API int varve_gpufs_map(struct varve_gpufs *fs, uint32_t id, uint64_t offset, uint64_t bytes,
                              uint64_t *ret_bytes) VARVE_CHECK;
/* Unmaps a whole file. Waits for kernels that run. -EINVAL: no such number. -ENODATA: the file
 * has become shorter than it was when it was mapped, so that kernels may have read bytes of its former life;
 * it is unmapped all the same. */
VARVE_API int varve_gpufs_unmap(struct varve_gpufs *fs, uint32_t id);
/* Forgets all pages on the GPU, those that kernels ended without giving back as well, and files that they
 * ended without closing. No kernel uses the file system. -ENOMEM: of the host; -ENODEV: the device is
 * lost. */
VARVE_API int varve_gpufs_drop(struct varve_gpufs *fs) VARVE_CHECK;

/* Starts the servers after they were stopped; `servers` 0: as many as before. -EALREADY: they run. -EINVAL: no
 * file system, or more than 64. -EAGAIN and what else starting a thread says. */
VARVE_API int varve_gpufs_start(struct varve_gpufs *fs, uint32_t servers) VARVE_CHECK;
/* Stops the servers, after what they have taken. Kernels get -ENOTCONN for what no server has taken yet, and
 * from then on. */
VARVE_API int varve_gpufs_stop(struct varve_gpufs *fs);

/* Fills in what kernels are given, by value. It stays good until varve_gpufs_close. -EINVAL: NULL. */
VARVE_API int varve_gpufs_handle(struct varve_gpufs *fs, struct varve_gfs *ret_handle) VARVE_CHECK;

struct varve_gpufs_stats {
    size_t stats_size; /* in: sizeof(struct varve_gpufs_stats) */
    /* Reported by kernels when they close a file. */
    uint64_t hits, misses;               /* pages found on the GPU, or not */
    uint64_t mapped_bytes, served_bytes; /* pulled from mapped files, and from servers' memory */
    uint64_t bypassed_bytes;             /* of both, past the cache */
    uint64_t requests, requested_bytes;  /* sent to servers, and bytes that they asked for */
    uint64_t waits_ns;                   /* waited for answers, added up over groups */
    /* Reported by servers. */
    uint64_t answered, failed;          /* requests, and those of them that got an error */
    uint64_t read_bytes, written_bytes; /* of files */
    uint64_t windows, window_bytes;     /* mapped now */
    uint32_t servers;                   /* running now */
    uint32_t files;                     /* registered now */
};

/* Figures since the file system was opened. The caller sets stats_size. -EINVAL: NULL, or
 * no size; -ENOMEM; -ENODEV: the device is lost. Copies from the device: not for a thread that a kernel waits
 * for. */
VARVE_API int varve_gpufs_stats(struct varve_gpufs *fs,
                                struct varve_gpufs_stats *ret_stats) VARVE_CHECK;

#ifdef __cplusplus
}
#endif

#endif
