/* SPDX-License-Identifier: Apache-2.0 */
/* Storage tiers as the file movers use them: one ops table, two implementations.
 *
 * `spill` keeps pages of one unlinked, never synced file; it dies with the process.
 * `files` keeps one file per version, committed by rename; what it committed survives.
 *
 * The shared state of a tier (struct vv_spill, struct vv_folder) is locked inside; a struct
 * vv_store is one mover's way to it and belongs to one thread at a time (kick excepted). Open one
 * for every mover: what one has written another may read as soon as the write was reported,
 * committed or not. */
#ifndef VV_STORE_STORE_H
#define VV_STORE_STORE_H

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/util.h"
#include "store/aio/aio.h"
#include "store/aio/gds.h"
#include "store/aio/helper.h"
#include "store/os.h"

struct vv_store;
struct vv_spill;  /* the spill file, shared by the stores on it */
struct vv_folder; /* a folder of committed files, shared by histories and stores */
struct vv_files;  /* one history and rank in a folder, locked against other processes */

/* Memory and file alignment of all I/O. */
#define VV_STORE_ALIGN 4096u

/* ---- options ---- */

enum vv_store_mode {
    VV_STORE_AUTO,    /* direct where the file system takes it, buffered elsewhere */
    VV_STORE_DIRECT,  /* O_DIRECT or an error */
    VV_STORE_BUFFERED /* through the page cache */
};

struct vv_store_opts {
    const struct vv_os *os; /* the real one by default */
    enum vv_aio_backend backend;
    enum vv_store_mode mode;
    uint32_t page_bytes; /* power of two, 4 KiB or more */
    unsigned depth;      /* requests each store keeps in the kernel */
    unsigned max_open;   /* files kept open (folder only); those in use come on top */
    /* Pacing: both directions share one medium, which a transfer occupies for its bytes over its
     * rate; it is not reported before that time is over. 0: as fast as it goes. Keep two batches in
     * flight, or the medium idles between a report and the next submit. */
    uint64_t write_bytes_per_s;
    uint64_t read_bytes_per_s;
    /* Files: nothing is synced. What is committed or removed outlives the process, and not a power cut or an
     * error of the kernel's writing behind it: see vv_files_open. */
    bool unsynced;
    /* Files: a write through the page cache is reported when it is on the disk, since after a failed sync the kernel
     * may drop what it has not written. A direct one is there anyhow; without syncs none can fail. */
    bool written_stays;
    /* Takes requests on device memory too. Needs direct I/O: -ENOTSUP where the file system has
     * none. NULL: host memory only. Outlives spill, folder and stores. */
    struct vv_gds *gds;
    /* A process that reads and writes for this one, where memory is of vv_helper_map. NULL: none.
     * Outlives the stores. */
    struct vv_helper *helper;
    /* Spill: a file for each record instead of one for all, where the file system can give space of a
     * file back and gds is NULL; otherwise one for all. */
    bool record_files;
};

void vv_store_opts_init(struct vv_store_opts *opts);

/* ---- objects and requests ---- */

struct vv_store_key {
    struct vv_files *history; /* NULL for spill */
    uint64_t version;
    uint64_t generation; /* of new objects: vv_files_first_generation() or more */
};

struct vv_store_region {
    int32_t id;
    uint32_t elem_bytes; /* of an element, if it is an array; 0: not known */
    uint64_t bytes;
};

struct vv_store_meta {
    uint32_t nregions;
    const struct vv_store_region *regions; /* in object order; their bytes add up to the size */
};

enum vv_store_op {
    VV_STORE_READ,
    VV_STORE_WRITE,
    VV_STORE_COMMIT,
    VV_STORE_REMOVE,
    VV_STORE_SALVAGE
};

/* One batch: consecutive chunks of one object, or a commit or removal. Caller-owned, as is
 * everything it points to; untouched from submit until poll returns it (mem, pages and meta
 * arrays included).
 *
 * WRITE   each chunk once, in any order, all of an object's through one store. (files) With
 *         `written_stays` what was reported can be read back until the object is committed or removed, even
 *         if that fails.
 * READ    chunks whose write was reported, or of a committed object.
 * COMMIT  (files) once, after every write of the object was reported; when it is reported with
 *         status 0 the object survives a crash.
 * REMOVE  (files) with nothing of the object in flight. Deletes it in whatever shape it is,
 *         nothing written included; when reported, no crash brings it back. With it goes every earlier
 *         generation of the version that was written in this life and whose removal has failed.
 * SALVAGE (files) a WRITE whose bytes come from the file of `from_generation`, which was written in this
 *         life and could not be committed: chunks whose write was reported. They are read back and
 *         verified before they are written; -EBADMSG: they are not what was written.
 * After a WRITE or COMMIT of an object (this generation of it) that was reported as failed, all
 * further ones are refused with that first error; reads go on as before, and only REMOVE ends it.
 * (Misuse is refused and spoils nothing: -EINVAL for a COMMIT with writes missing or another size,
 * -EEXIST for the first chunk twice or what is committed.) Meanwhile the version may be written
 * again under a higher generation, whatever the failed one has left on disk.
 * Spill has neither commit nor removal: a page is written again when its owner changes.
 *
 * With `device` the chunks are in device memory, in the buffer of the store's gds, and never touched
 * from the host. Writes then are of whole multiples of 4 KiB: what would be filled up with zeros
 * goes through host memory. -EINVAL otherwise, or without a gds. Some chunks of an object may be
 * written this way and some the other, and each read either way. */
struct vv_store_io {
    enum vv_store_op op;
    struct vv_store_key key;
    uint64_t size; /* of the object */
    uint32_t hist; /* as the engine numbers it: for layers, which ask it */
    uint32_t
        edition; /* WRITE, COMMIT: how often this life has written the version; vv_files_run_id */
    uint64_t from_generation; /* SALVAGE */
    uint32_t chunk0, nchunks;
    bool device;                      /* mem is device memory */
    void **mem;                       /* memory of each chunk: page_bytes, 4 KiB aligned. What
                                       * follows the object's last byte up to the next 4 KiB is
                                       * overwritten, by writes (zeros) and reads alike. */
    const uint32_t *pages;            /* spill: page number of each chunk */
    const struct vv_store_meta *meta; /* COMMIT */
    /* Set meanwhile, by any thread: what the request is for is given up. Then it no longer waits for
     * the rates that it is held to: a write whose turn has not come ends with -ECANCELED, and
     * what has been done is reported at once. Looked at after a kick, and now and then. NULL: never.
     */
    const _Atomic bool *given_up;

    /* Results. status: 0, or -ENOSPC, -EIO, ... as the system gave it; -EBADMSG: what was read is
     * not what was written, bad_chunk is the first such chunk; -ENOENT: no such object. */
    int status;
    uint32_t bad_chunk;
    void *user;
    struct vv_store_io *next; /* private */
};

/* An error of a store as it is passed on to those who know versions and not files, to whom -ENOENT
 * means that there is no such version, and -ESTALE that it was replaced. -ENOTDIR: the folder is
 * gone. -EBADF: a committed file is. */
static inline int vv_store_error(int err)
{
    return err == -ENOENT ? -ENOTDIR : err == -ESTALE ? -EIO : err;
}
static inline int vv_store_read_error(int err)
{
    return err == -ENOENT ? -EBADF : vv_store_error(err);
}

/* How long a request that is held to a rate may wait before it looks at given_up. */
#define VV_STORE_LOOK_NS (50 * VV_NS_PER_MS)

static inline bool vv_store_given_up(const struct vv_store_io *io)
{
    return io->given_up && atomic_load_explicit(io->given_up, memory_order_relaxed);
}

struct vv_store_ops {
    const char *name;
    /* Waits for what is in flight (its results are lost). */
    void (*close)(struct vv_store *store);
    /* 0: poll will report it. -EINVAL (a malformed request, or a new object whose generation is not
     * new) and -ENOMEM: refused, nothing done. */
    int (*submit)(struct vv_store *store, struct vv_store_io *io);
    /* Number of requests reported, 0 after a kick, or -ETIMEDOUT. Timeout as in vv_aio_wait. There
     * may be more to report: call again. Any other error is the kernel's, which cannot be asked at
     * the moment: what is in flight stays so; call again, after a rest. */
    int (*poll)(struct vv_store *store, struct vv_store_io **ret_done, size_t max,
                int64_t timeout_ns);
    void (*kick)(struct vv_store *store); /* any thread */
    /* The caller has nothing under way but requests that the store holds (see below), and orders nothing of
     * itself: none of its requests will make room for them. NULL: the store holds none. */
    void (*alone)(struct vv_store *store);
};

struct vv_store {
    const struct vv_store_ops *ops;
    /* Writes that are held until others have made room for them, among those in flight; NULL: there never are any.
     * Synchronization: changed by the store's thread, relaxed. */
    const _Atomic unsigned *held;
};

/* ---- spill ---- */

/* A file of at most capacity_bytes (rounded down to pages; 0: the space free now) in the folder,
 * unlinked at once, allocated in steps as pages are first written. err gets a text on failure. */
VV_WARN_UNUSED int vv_spill_new(const char *folder, uint64_t capacity_bytes,
                                const struct vv_store_opts *opts, char *err, size_t err_bytes,
                                struct vv_spill **ret_spill);
/* After its stores were closed. Accepts NULL. */
void vv_spill_free(struct vv_spill *spill);
uint32_t vv_spill_pages(const struct vv_spill *spill);
VV_WARN_UNUSED int vv_spill_store(struct vv_spill *spill, struct vv_store **ret_store);

/* ---- files ---- */

/* The folder is created if missing (not its parents). */
VV_WARN_UNUSED int vv_folder_new(const char *path, const struct vv_store_opts *opts, char *err,
                                 size_t err_bytes, struct vv_folder **ret_folder);
/* After its stores and histories were closed. Accepts NULL. */
void vv_folder_free(struct vv_folder *folder);
VV_WARN_UNUSED int vv_folder_store(struct vv_folder *folder, struct vv_store **ret_store);

/* A run id: never 0, and not drawn twice. */
uint64_t vv_files_draw_id(void);

struct vv_files_opts {
    uint64_t run_id; /* written into every file; 0: draw one */
    /* Lists every generation that can be used, and deletes none: for whoever knows better than by
     * its height which one counts. */
    bool all_generations;
    /* Others write there too, from other nodes: the listing must be a fresh one. */
    bool shared;
    /* Processes of the job: a history that another number of them has written is refused, -EINVAL. Only
     * jobs of more than one leave a record of it. 0: not asked, and nothing is recorded. */
    uint32_t ranks;
    /* Only reads will follow. Nothing is created, deleted or locked, and every generation is listed; where the history is
     * not there, nothing is. A file that is gone by the time it is read, or is another life's of that name: -EIDRM. */
    bool read_only;
};

/* Opens or creates a history, takes its lock, deletes leftovers of unfinished writes and finds what
 * was committed. -EBUSY: in use; the text names the process. -EINVAL: not a history name (empty, a
 * leading dot, a slash, over 200 bytes). May block on the disk; any thread, one at a time for one
 * history.
 *
 * The lock ends with vv_files_close or with the process. A child forked meanwhile shares it: should
 * the process be killed, the history is in use until the child has called exec or ended. */
VV_WARN_UNUSED int vv_files_open(struct vv_folder *folder, const char *history, uint32_t rank,
                                 const struct vv_files_opts *opts, char *err, size_t err_bytes,
                                 struct vv_files **ret_files);
/* With no request on it in flight. Objects neither committed nor removed are deleted; one whose
 * commit failed in its last step, after the rename, may be found at the next open. NULL is fine. */
void vv_files_close(struct vv_files *files);

struct vv_files_entry {
    uint64_t version, generation, size, run_id, commit_time_ns;
    uint64_t file_bytes; /* the length of the file; 0: not known */
    uint32_t rank, nregions;
    const struct vv_store_region *regions;
};

/* Calls visit for every version found at open, ascending, until it returns non-zero, and returns
 * that. The list is then forgotten: once per open. */
int vv_files_list(struct vv_files *files, int (*visit)(void *user, const struct vv_files_entry *e),
                  void *user);
/*
 * The id that a file of this life carries. Files of a version that several ranks have belong together
 * if they were written in the same run, so that each time a life writes a version counts as a run of
 * its own: its id is that of the life with another lower half, the same on every rank that has written
 * it as often. The first time, 1 or 0, has the id of the life.
 */
uint64_t vv_files_run_id(const struct vv_files *files, uint32_t edition);

/* A version whose file was there at open but cannot be used. */
struct vv_files_damage {
    uint64_t version, generation;
    int status;       /* -EBADMSG: damaged or of a newer format; otherwise why it cannot be read */
    const char *what; /* in words */
};

/* The same for the versions that are not listed because their highest generation cannot be used;
 * any number of times. Their files are left where they are, lower generations of the version
 * included; a REMOVE of the one told here deletes those with it. */
int vv_files_list_damaged(const struct vv_files *files,
                          int (*visit)(void *user, const struct vv_files_damage *d), void *user);
/* Higher than every generation this history was seen to have had. Writing below it could let a
 * stale index record speak for a new file. */
uint64_t vv_files_first_generation(const struct vv_files *files);

/* Bytes of disk that an object's file takes. */
uint64_t vv_files_bytes(uint64_t size, uint32_t nregions, uint32_t page_bytes);

#endif
