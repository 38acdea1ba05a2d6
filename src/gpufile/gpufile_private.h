/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of gpufile/ only. */
#ifndef VV_GPUFILE_PRIVATE_H
#define VV_GPUFILE_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include <varve/gpufile.h>
#include <varve/gpufile_device.h>

#include "base/lock.h"
#include "device/device.h"
#include "store/aio/aio.h"
#include "store/os.h"

enum {
    VVI_GPUFILE_SERVERS_MAX = 64,
    VVI_GPUFILE_WINDOWS = 1 << 16, /* of all files together */
    VVI_GPUFILE_DEPTH = 32,        /* most reads that a server has under way, with io_uring */
    VVI_GPUFILE_BATCH = 4,         /* most tickets that a server draws at once */
    VVI_GPUFILE_OWN = 16, /* small reads of a file after which a server opens it for itself */
    VVI_GPUFILE_HOT = 64
};

/* Host memory that the device can access. */
struct vvi_gpufile_memory {
    unsigned char *ptr; /* ours */
    unsigned char *dev; /* the device's */
    size_t bytes;
    bool mapped;
};

/* A window of a file. Synchronization: fs->lock. */
struct vvi_gpufile_window {
    void *ptr; /* NULL: not mapped */
    size_t bytes;
    bool taken; /* it belongs to a file, mapped or not */
};

/* A server's own descriptor of a file. Owner: that server, within its turn; afterwards the thread that closes the
 * file. */
struct vvi_gpufile_own {
    int fd;         /* -1: none; the server uses the file's */
    uint32_t reads; /* small reads, up to VVI_GPUFILE_OWN; one more: opening was tried */
};

/* A registered file. Synchronization: fs->lock, except where noted. */
struct vvi_gpufile_file {
    /* Servers read them without the lock; they are closed when no server can be using them. -1: none.
     * Synchronization: release, acquire. */
    _Atomic int fd, direct_fd;
    struct vvi_gpufile_own *own; /* VVI_GPUFILE_SERVERS_MAX; valid while fd is */
    bool used;
    int flags; /* READ, and WRITE or not */
    dev_t dev;
    ino_t ino;
    uint32_t users;             /* registrations by the host that were not taken back */
    bool by_path;               /* a kernel has opened it by path */
    bool closing;               /* its last user has gone: lookups no longer find it */
    uint64_t bytes;             /* when it was registered */
    uint64_t windows;           /* first, plus 1; 0: none */
    uint64_t n_windows, mapped; /* and how many of them are mapped */
    bool shorter;               /* found shorter than at registration while windows were mapped */
};

struct vvi_gpufile_server {
    struct varve_gpufs *fs;
    uint32_t index, of; /* this server, and the number of servers */
    pthread_t thread;
    struct vv_aio *aio; /* NULL: pread */
    /* Odd while the server uses files. Synchronization: sequentially consistent, against the closing
     * of files. */
    _Atomic uint64_t turn;
    /* Figures, written only by the server; relaxed. */
    _Atomic uint64_t answered, failed, read_bytes, written_bytes;
    _Atomic uint64_t idle_ns, timed, timed_ns; /* vv_gpufile_times */
    char pad[128];                             /* the next server's words are on another line */
};

struct varve_gpufs {
    /* Immutable once open. */
    struct varve_ctx *ctx;
    struct vv_device *device;
    const struct vv_os *os;
    struct varve_gpufs_opts opts;
    struct varve_gfs view;    /* the handle for kernels */
    struct vv_stream *stream; /* for copies made here */
    struct vv_event *event;
    unsigned char *meta, *data; /* device memory */
    size_t meta_bytes;
    struct vvi_gpufile_memory shared, staging;

    unsigned char *page_staging; /* in `staging`; NULL: none */

    /* Host addresses in `shared`. */
    struct varve_g_entry *ring;
    uint64_t *mailboxes, *host_windows;
    struct varve_g_file *table;
    struct varve_g_host *host;

    struct vv_mutex lock;
    struct vvi_gpufile_file *files;      /* VARVE_G_FILES_MAX */
    struct vvi_gpufile_window *windows;  /* VVI_GPUFILE_WINDOWS */
    uint32_t n_files, next_id, used_ids; /* Synchronization: lock */
    uint64_t window_count, window_bytes; /* mapped now */

    /* Serializes mapping and unmapping, and with it calls of the device that may take long. Taken
     * before `lock`. */
    struct vv_mutex map_lock;

    /* Servers. `servers` and their number change while none runs. */
    struct vvi_gpufile_server servers[VVI_GPUFILE_SERVERS_MAX];
    uint32_t n_servers;
    _Atomic bool stopping;
    _Atomic uint32_t to_lose; /* servers to end, for tests */
    _Atomic uint32_t n_own;   /* descriptors that servers have opened for themselves */
    uint32_t own_limit;       /* limit of n_own */
    char pad0[128]; /* keeps fields that every request reads off the line that every draw writes */
    _Atomic uint64_t next_ticket;
    char pad1[128];
    /* Tickets that were drawn and not served. Synchronization: lock. */
    uint64_t orphans[VVI_GPUFILE_SERVERS_MAX * VVI_GPUFILE_BATCH];
    _Atomic uint32_t n_orphans; /* changed under the lock, read without */
    /* Per slot, 1: its last request had the lap bit. Owner: the slot's server. */
    uint8_t *slot_laps;
    uint64_t past[4]; /* figures of servers that have ended. Synchronization: lock */

    /* The thread that maps windows that are read often. */
    pthread_t control;
    bool control_runs;
    struct vv_cond control_wake;
    bool control_stop;             /* Synchronization: lock */
    uint64_t hot[VVI_GPUFILE_HOT]; /* file << 32 | window. Synchronization: lock */
    uint32_t n_hot;                /* Synchronization: lock */
    _Atomic uint32_t *heat;        /* KiB read of each window; relaxed */
};

/* ---- open.c ---- */

/* Copies and waits. The caller holds map_lock, or no other thread has the file system yet. */
VV_WARN_UNUSED int vvi_gpufile_copy(struct varve_gpufs *fs, void *dst, const void *src,
                                    size_t bytes);

/* Records a failure with the context, or with the thread if `fs` is NULL; returns `err`. Not to be called with a lock
 * held. Errors of requests from kernels go to the kernel and are not recorded here. */
int vvi_gpufile_fail(struct varve_gpufs *fs, const char *operation, int err, const char *fmt, ...)
    VV_PRINTF(4, 5);

/* Drops all pages; no kernel may run. */
VV_WARN_UNUSED int vvi_gpufile_drop(struct varve_gpufs *fs);

/* ---- gpufile_files.c ---- */

/* `users`: registrations by the host that this adds, 1; or 0, for a kernel. */
VV_WARN_UNUSED int vvi_gpufile_register(struct varve_gpufs *fs, const char *path, int flags,
                                        uint32_t users, uint32_t *ret_id);
/* Opens a file again, for one server to read; -1: that failed. */
int vvi_gpufile_own_open(struct varve_gpufs *fs, int fd);
/* The file, or NULL. */
struct vvi_gpufile_file *vvi_gpufile_file_locked(struct varve_gpufs *fs, uint32_t id);
/* Checks that a file that is or was mapped has not become shorter: 0, -ENODATA, or the error of the check. */
VV_WARN_UNUSED int vvi_gpufile_check_locked(struct varve_gpufs *fs, struct vvi_gpufile_file *f);
/* Forgets all files, at closing. */
int vvi_gpufile_files_fini(struct varve_gpufs *fs);

/* ---- map.c ---- */

VV_WARN_UNUSED int vvi_gpufile_map_windows(struct varve_gpufs *fs, uint32_t id, uint64_t first,
                                           uint64_t last, uint64_t *ret_bytes);
/* varve_gpufs_map without a record of the failure; after one, `ret_why` is set to a part of a sentence. */
VV_WARN_UNUSED int vvi_gpufile_map(struct varve_gpufs *fs, uint32_t id, uint64_t offset,
                                   uint64_t bytes, uint64_t *ret_bytes, const char **ret_why);
/* Unmaps all windows of a file. */
void vvi_gpufile_unmap_file(struct varve_gpufs *fs, uint32_t id);
/* Adds a server's read of `bytes` KiB of a file to the heat of its windows. */
void vvi_gpufile_warm(struct varve_gpufs *fs, uint32_t id, uint64_t offset, uint32_t bytes);
VV_WARN_UNUSED int vvi_gpufile_control_start(struct varve_gpufs *fs);
void vvi_gpufile_control_stop(struct varve_gpufs *fs);

/* ---- gpufile_serve.c ---- */

VV_WARN_UNUSED int vvi_gpufile_servers_start(struct varve_gpufs *fs, uint32_t n);
void vvi_gpufile_servers_stop(struct varve_gpufs *fs);
/* Waits until no server uses files that it looked up before this call. */
void vvi_gpufile_servers_pass(struct varve_gpufs *fs);

#endif
