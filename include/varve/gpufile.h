/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU files: files read and written from inside kernels. This header is the host's part: opening a
 * file system for the GPU of a context, registering files, controlling the servers, and figures. The
 * functions for kernels are in <varve/gpufile_device.h>.
 *
 * Use. Open a context with a device, then a file system on it; register files; hand the structure
 * that varve_gpufs_handle fills in to kernels, by value:
 *
 *     varve_gpufs_open(ctx, NULL, &fs);
 *     varve_gpufs_register(fs, "points.bin", VARVE_GFILE_READ, &id);
 *     varve_gpufs_handle(fs, &handle);
 *     kernel<<<132, 256>>>(handle, id, ...);
 *
 * Servers. The GPU requests bytes through a ring in host memory, and threads of the library, the servers,
 * answer. Servers make no driver call while they answer, because such a call could wait for the kernel that
 * waits for the answer. They run from varve_gpufs_open to varve_gpufs_close, unless they are stopped in
 * between. A server opens each file that it reads in small pieces again, for a descriptor of its own. The
 * descriptors of all servers are at most a quarter of those that the process may have.
 *
 * Mapping. A file that is in the page cache and read more than once needs no server: after
 * varve_gpufs_map the GPU reads the page cache itself, at the speed of the link. Mapping costs time
 * (lab/results/gpufile.md) and pins memory. Kernels see a mapped file with the size it had when it was
 * mapped; a file that has become shorter is detected when it is closed.
 *
 * Threads. Several threads may make calls on one file system. Opening and closing it, dropping its pages,
 * unmapping and unregistering are not allowed while a kernel uses it.
 */
#ifndef VARVE_GPUFILE_H
#define VARVE_GPUFILE_H

#include <varve/varve.h>

#ifdef __cplusplus
extern "C" {
#endif

struct varve_gpufs;
struct varve_gfs; /* argument of kernels: varve/gpufile_device.h */

enum varve_gio {
    VARVE_GIO_AUTO,  /* same as VARVE_GIO_PREAD */
    VARVE_GIO_PREAD, /* each server does one read at a time: best for files in the page cache */
    VARVE_GIO_URING  /* each server has many reads in flight: best for disks; -ENOTSUP where the
                        system has no io_uring */
};

enum varve_greadahead {
    VARVE_GREADAHEAD_ADAPTIVE, /* doubles while a group reads sequentially, off for random access;
                                  requested while the bytes before it are copied */
    VARVE_GREADAHEAD_OFF = 2   /* read only the bytes that are needed now. (1 is a mode for
                                  measurements, which varve_gpufs_open refuses) */
};

enum varve_greplace {
    VARVE_GREPLACE_OWN /* each group replaces the page that it took first */
};

enum varve_gqueue {
    VARVE_GQUEUE_TICKETS /* requests wait in one queue, and any server takes the next */
};

enum varve_gbypass {
    VARVE_GBYPASS_AUTO, /* files larger than the cache bypass it while they are read sequentially */
    VARVE_GBYPASS_NEVER, /* files bypass the cache only by advice */
};

/* Options of a file system, with their defaults in parentheses. Plain data; fields are only ever
 * appended. */
struct varve_gpufs_opts {
    size_t opts_size;      /* sizeof(struct varve_gpufs_opts), as varve_gpufs_opts_init sets it */
    uint64_t cache_bytes;  /* pages on the GPU (1 GiB) */
    uint64_t map_limit;    /* bytes of files that may be mapped at once (half of the memory that
                                  was free at opening) */
    uint64_t window_bytes; /* unit of mapping: a power of two, at least 2 MiB and at least a page
                                  (256 MiB) */
    uint32_t page_bytes;   /* a power of two, 4 KiB to 4 MiB (4 KiB) */
    uint32_t streams;      /* files that may be open at once, counted for each group: resident
                                  blocks times the files that each has open (264) */
    uint32_t files;        /* files that can be registered, 4096 at most (64) */
    uint32_t servers;      /* threads (processors less two, 1 to 14) */
    uint32_t readahead_bytes; /* largest window of a stream, a multiple of page_bytes, 8 MiB at most
                                  (512 KiB, or a page if that is more). With readahead off: largest
                                  request (64 KiB, or a page) */
    uint32_t split_bytes;     /* larger requests are split into parts of this size for several
                                  servers (128 KiB, or a page, 2 MiB at most) */
    uint32_t timeout_ms;      /* longest wait of a kernel for an answer (10000) */
    int32_t io;               /* enum varve_gio (VARVE_GIO_AUTO) */
    int32_t direct;           /* not 0: past the page cache (O_DIRECT), if the file system supports
                                  it and /proc is mounted (0) */
    int32_t readahead;        /* enum varve_greadahead (VARVE_GREADAHEAD_ADAPTIVE) */
    int32_t replace;          /* enum varve_greplace (VARVE_GREPLACE_OWN) */
    int32_t bypass;           /* enum varve_gbypass (VARVE_GBYPASS_AUTO) */
    int32_t
        map_hot; /* not 0: windows that servers have read twice are mapped, within map_limit (0) */
    int32_t queue; /* enum varve_gqueue (VARVE_GQUEUE_TICKETS) */
};

/* Fills in the defaults. `opts_size` is sizeof(struct varve_gpufs_opts). -EINVAL: NULL or an
 * impossible size. Does not block. */
VARVE_API int varve_gpufs_opts_init(struct varve_gpufs_opts *opts, size_t opts_size) VARVE_CHECK;

/*
 * Opens a file system on the device of the context: allocates the cache there and the staging memory
 * on the host, and starts the servers. NULL opts: the defaults. The context stays open until after
 * varve_gpufs_close.
 *   -EINVAL   an option is invalid
 *   -ENODEV   the context has no device
 *   -ENOMEM   cache or staging memory cannot be allocated
 *   -ENOTSUP  the system has no io_uring, or the device cannot read host memory
 * varve_last_error of the context has the details, also for the other calls of this header.
 */
VARVE_API int varve_gpufs_open(struct varve_ctx *ctx, const struct varve_gpufs_opts *opts,
                               struct varve_gpufs **ret_fs) VARVE_CHECK;
/*
 * Stops the servers, unmaps and closes all files, and frees the memory; NULL is allowed. No kernel may
 * use the file system any more. It is closed with every result. -ENODATA: a file has become shorter
 * since it was mapped, so that kernels may have read outdated bytes.
 */
VARVE_API int varve_gpufs_close(struct varve_gpufs *fs);

enum varve_gfile_flags {
    VARVE_GFILE_READ = 1,   /* kernels may read it */
    VARVE_GFILE_WRITE = 2,  /* kernels may write it, too; it is never mapped */
    VARVE_GFILE_CREATE = 4, /* with WRITE: created if missing */
    VARVE_GFILE_MAP = 8     /* map all of it now; servers read the part beyond map_limit */
};

/*
 * Opens a file and assigns it a number, by which kernels open it; `flags` are of enum varve_gfile_flags.
 * Registering the same file again, by any path, returns the same number, which stays valid until
 * varve_gpufs_unregister was called as often. A file that is registered both for reading and for writing
 * has two numbers, with separate pages: what kernels write by one is seen by the other only after
 * varve_gpufs_drop. The same holds for what other programs write to a registered file.
 *
 * A number keeps the file that its path named, and the size that the file had then or that kernels
 * have extended it to. Another file under the path gets another number, and so does a file for reading whose
 * size has changed, since cached pages and windows end where the file ended. The old number counts towards
 * `files` of the options until it is unregistered.
 *
 * May be called while kernels run. But if MAP fails for a window, the windows that this call has mapped are
 * unmapped, which waits for running kernels. Errors are those of open(2), and
 *   -EISDIR   a directory
 *   -EINVAL   anything else that is not a regular file
 *   -EMFILE   `files` numbers are in use, or the process has too many open files
 */
VARVE_API int varve_gpufs_register(struct varve_gpufs *fs, const char *path, int flags,
                                   uint32_t *ret_id) VARVE_CHECK;
/* Removes one registration. The last one unmaps and closes the file and drops its pages, even if a kernel
 * has opened it by path. A number is not reused before all pages of the cache were dropped, which this call
 * does when half of the 4096 numbers have been used. -EINVAL: no such number. -ENODATA: the file has become
 * shorter since it was mapped, so that kernels may have read outdated bytes; it is unregistered all the
 * same. */
VARVE_API int varve_gpufs_unregister(struct varve_gpufs *fs, uint32_t id);
/*
 * Maps bytes [offset, offset + bytes) of a file for the GPU, rounded outwards to windows; `bytes` 0:
 * to its end. Windows that are mapped already cost nothing. Other driver calls have to wait meanwhile.
 * `ret_bytes`, unless NULL, gets the number of bytes of the range that are mapped now.
 *   -ENOSPC   map_limit was reached, or files have 65536 windows; windows mapped before stay mapped
 *   -EINVAL   no such number, a file for writing, or an offset beyond its end
 *   -ENODATA  the file has become shorter
 *   -ENOTSUP  the device cannot read such memory
 */
VARVE_API int varve_gpufs_map(struct varve_gpufs *fs, uint32_t id, uint64_t offset, uint64_t bytes,
                              uint64_t *ret_bytes) VARVE_CHECK;
/* Unmaps a whole file. Waits for running kernels. -EINVAL: no such number. -ENODATA: the file has become
 * shorter since it was mapped, so that kernels may have read outdated bytes; it is unmapped all the same. */
VARVE_API int varve_gpufs_unmap(struct varve_gpufs *fs, uint32_t id);
/* Drops all pages on the GPU, including those that kernels did not give back before they ended, and closes
 * files that kernels left open. No kernel may use the file system meanwhile. -ENOMEM: not enough host
 * memory; -ENODEV: the device is lost. */
VARVE_API int varve_gpufs_drop(struct varve_gpufs *fs) VARVE_CHECK;

/* Starts the servers after they were stopped; `servers` 0: as many as before. -EALREADY: they are running.
 * -EINVAL: no file system, or more than 64. -EAGAIN and other errors of starting a thread. */
VARVE_API int varve_gpufs_start(struct varve_gpufs *fs, uint32_t servers) VARVE_CHECK;
/* Stops the servers after the requests that they have taken. All other requests of kernels, and later ones,
 * fail with -ENOTCONN. */
VARVE_API int varve_gpufs_stop(struct varve_gpufs *fs);

/* Fills in the structure that is passed to kernels by value. It stays valid until varve_gpufs_close.
 * -EINVAL: NULL. */
VARVE_API int varve_gpufs_handle(struct varve_gpufs *fs, struct varve_gfs *ret_handle) VARVE_CHECK;

struct varve_gpufs_stats {
    size_t stats_size; /* in: sizeof(struct varve_gpufs_stats) */
    /* Reported by kernels when they close a file. */
    uint64_t hits, misses;               /* pages found on the GPU, and not found */
    uint64_t mapped_bytes, served_bytes; /* copied from mapped files, and from servers' memory */
    uint64_t bypassed_bytes;             /* bytes of both kinds that bypassed the cache */
    uint64_t requests, requested_bytes;  /* requests sent to servers, and their bytes */
    uint64_t waits_ns;                   /* time spent waiting for answers, summed over groups */
    /* Reported by servers. */
    uint64_t answered, failed;          /* requests answered, and how many of these with an error */
    uint64_t read_bytes, written_bytes; /* bytes of files */
    uint64_t windows, window_bytes;     /* mapped now */
    uint32_t servers;                   /* running now */
    uint32_t files;                     /* registered now */
};

/* Figures since the file system was opened. The caller sets stats_size. -EINVAL: NULL, or no size;
 * -ENOMEM; -ENODEV: the device is lost. The call copies from the device: a thread that a kernel waits for
 * must not make it. */
VARVE_API int varve_gpufs_stats(struct varve_gpufs *fs,
                                struct varve_gpufs_stats *ret_stats) VARVE_CHECK;

#ifdef __cplusplus
}
#endif

#endif
