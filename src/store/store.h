/* SPDX-License-Identifier: Apache-2.0 */
/* Storage tiers as the file movers use them: one table of operations. Two implementations hold bytes;
 * others combine or wrap these.
 *
 * `spill` keeps pages in one unlinked file that is never synced; it ends with the process.
 * `files` keeps one file per version, committed by rename; a committed version survives the
 * process.
 *
 * The shared state of a tier (struct vv_spill, struct vv_folder) has locks inside. A struct
 * vv_store is one mover's end of it and belongs to one thread at a time (kick excepted). Open one
 * for every mover: each may read what another has written as soon as the write was reported,
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
    /* Pacing: both directions share one medium. A transfer occupies it for its bytes over its
     * rate, and is not reported before that time is over. 0: no limit. Keep two batches in
     * flight; with one the medium idles between a report and the next submit. */
    uint64_t write_bytes_per_s;
    uint64_t read_bytes_per_s;
    /* Files: nothing is synced. Commits and removals outlive the process, but not a power cut or
     * an error of the kernel's write-back: see vv_files_open. */
    bool unsynced;
    /* Files: a write through the page cache is reported when it is on the disk, since after a
     * failed sync the kernel may drop dirty pages. Direct writes are on the disk anyhow; without
     * syncs no sync can fail. */
    bool written_stays;
    /* Takes requests on device memory too. Needs direct I/O: -ENOTSUP where the file system has
     * none. NULL: host memory only. Outlives spill, folder and stores. */
    struct vv_gds *gds;
    /* A helper process that reads and writes for this one, where the memory is of vv_helper_map.
     * NULL: none. Outlives the stores. */
    struct vv_helper *helper;
    /* Spill: one file per record instead of one for all. Needs a file system that can punch
     * holes, and gds NULL; otherwise one file for all. */
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

/* One batch: consecutive chunks of one object, or a commit or removal. The caller owns it and
 * everything it points to, and changes none of it (mem, pages and meta arrays included) from submit
 * until poll returns it.
 *
 * WRITE   each chunk once, in any order; all chunks of an object through one store. (files) With
 *         `written_stays`, reported chunks can be read back until the object is committed or
 *         removed, even if that fails.
 * READ    chunks whose write was reported, or chunks of a committed object.
 * COMMIT  (files) once, after every write of the object was reported. Reported with status 0: the
 *         object survives a crash.
 * REMOVE  (files) with nothing of the object in flight. Deletes the object in whatever state it is,
 *         even if nothing was written; once reported, no crash brings it back. It also deletes
 *         every earlier generation of the version that this life wrote and failed to remove.
 * SALVAGE (files) a WRITE whose bytes come from the file of `from_generation`, which this life
 *         wrote and could not commit: chunks whose write was reported. They are read back and
 *         verified before they are written; -EBADMSG: the file has other bytes than were written.
 *
 * After a failed WRITE or COMMIT of an object (this generation of it), all further ones are
 * refused with that first error. Reads go on as before, and only REMOVE ends the object. (Misuse
 * is refused and changes nothing: -EINVAL for a COMMIT with writes missing or another size,
 * -EEXIST for a chunk written twice or a committed object.) Meanwhile the version may be written
 * again under a higher generation, whatever the failed one has left on disk. Spill has neither
 * commit nor removal: a page is overwritten when its owner changes.
 *
 * With `device` the chunks are in device memory, in the buffer of the store's gds, and the host
 * never touches them. Such writes are whole multiples of 4 KiB, because padding with zeros goes
 * through host memory; otherwise, or without a gds, -EINVAL. Chunks of one object may be written
 * either way, and each may be read either way. */
struct vv_store_io {
    enum vv_store_op op;
    struct vv_store_key key;
    uint64_t size; /* of the object */
    uint32_t hist; /* number of the history in the engine; layers ask it for the restore order */
    /* WRITE, COMMIT: how often this life has written the version; vv_files_run_id. */
    uint32_t edition;
    uint64_t from_generation; /* SALVAGE */
    uint32_t chunk0, nchunks;
    bool device;                      /* mem is device memory */
    void **mem;                       /* memory of each chunk: page_bytes, 4 KiB aligned. Reads and
                                       * writes (with zeros) overwrite it from the
                                       * object's last byte up to the next 4 KiB. */
    const uint32_t *pages;            /* spill: page number of each chunk */
    const struct vv_store_meta *meta; /* COMMIT */
    /* Any thread may set it while the request is in flight, when the result is no longer needed.
     * The request then stops waiting for the rates that limit it: a write that has not begun ends
     * with -ECANCELED, and a finished transfer is reported at once. Checked after a kick and every
     * VV_STORE_LOOK_NS. NULL: never given up. */
    const _Atomic bool *given_up;

    /* Results. status: 0, or -ENOSPC, -EIO, ... as the system returned it; -EBADMSG: the bytes read
     * are not those written, bad_chunk is the first such chunk; -ENOENT: no such object. */
    int status;
    uint32_t bad_chunk;
    void *user;
    struct vv_store_io *next; /* private */
};

/* Translates an error of a store for callers that deal in versions, not files: to them -ENOENT
 * means that the version does not exist, and -ESTALE that it was replaced. -ENOTDIR: the folder
 * is missing. -EBADF: a committed file is missing. */
static inline int vv_store_error(int err)
{
    return err == -ENOENT ? -ENOTDIR : err == -ESTALE ? -EIO : err;
}
static inline int vv_store_read_error(int err)
{
    return err == -ENOENT ? -EBADF : vv_store_error(err);
}

/* Longest time that a request limited by a rate waits between two looks at given_up. */
#define VV_STORE_LOOK_NS (50 * VV_NS_PER_MS)

static inline bool vv_store_given_up(const struct vv_store_io *io)
{
    return io->given_up && atomic_load_explicit(io->given_up, memory_order_relaxed);
}

struct vv_store_ops {
    const char *name;
    /* Waits for all requests in flight; their results are lost. */
    void (*close)(struct vv_store *store);
    /* 0: poll will report it. -EINVAL (a malformed request, or a new object whose generation is not
     * new) and -ENOMEM: refused without effect. */
    int (*submit)(struct vv_store *store, struct vv_store_io *io);
    /* Number of requests reported, 0 after a kick, or -ETIMEDOUT. Timeout as in vv_aio_wait. There
     * may be more to report: call again. Any other error means that the kernel cannot be asked now;
     * requests in flight stay in flight: call again after a pause. */
    int (*poll)(struct vv_store *store, struct vv_store_io **ret_done, size_t max,
                int64_t timeout_ns);
    void (*kick)(struct vv_store *store); /* any thread */
    /* All requests of the caller that are in flight are held by the store (see `held`), and the
     * caller will not submit others by itself: so none of its requests will make room for them.
     * NULL: the store holds no requests. */
    void (*alone)(struct vv_store *store);
};

struct vv_store {
    const struct vv_store_ops *ops;
    /* Number of writes in flight that wait until other requests make room for them. NULL: the
     * store never holds any. Synchronization: changed by the store's thread, relaxed. */
    const _Atomic unsigned *held;
};

/* ---- spill ---- */

/* A file of at most capacity_bytes (rounded down to pages; 0: the space free now) in the folder.
 * It is unlinked at once and allocated in steps as pages are first written. err gets a text on
 * failure. */
VV_WARN_UNUSED int vv_spill_new(const char *folder, uint64_t capacity_bytes,
                                const struct vv_store_opts *opts, char *err, size_t err_bytes,
                                struct vv_spill **ret_spill);
/* Call it after its stores were closed. Accepts NULL. */
void vv_spill_free(struct vv_spill *spill);
uint32_t vv_spill_pages(const struct vv_spill *spill);
VV_WARN_UNUSED int vv_spill_store(struct vv_spill *spill, struct vv_store **ret_store);

/* ---- files ---- */

/* The folder is created if missing (not its parents). */
VV_WARN_UNUSED int vv_folder_new(const char *path, const struct vv_store_opts *opts, char *err,
                                 size_t err_bytes, struct vv_folder **ret_folder);
/* Call it after its stores and histories were closed. Accepts NULL. */
void vv_folder_free(struct vv_folder *folder);
VV_WARN_UNUSED int vv_folder_store(struct vv_folder *folder, struct vv_store **ret_store);

/* A new run id: never 0, never drawn twice. */
uint64_t vv_files_draw_id(void);

struct vv_files_opts {
    uint64_t run_id; /* written into every file; 0: draw one */
    /* Lists every usable generation and deletes none. For a caller that chooses the generation by
     * other rules than the highest number. */
    bool all_generations;
    /* Other nodes write to the folder too: the listing must bypass the client's cache. */
    bool shared;
    /* Number of processes in the job. A history written by another number of them is refused with
     * -EINVAL. Only jobs of more than one process record the number. 0: no check, no record. */
    uint32_t ranks;
    /* Only reads will follow. Nothing is created, deleted or locked, every generation is listed,
     * and a missing history is empty. -EIDRM: a file was deleted before it was read, or is
     * another life's of that name. */
    bool read_only;
};

/* Opens or creates a history, takes its lock, deletes leftovers of unfinished writes and lists
 * the committed versions. -EBUSY: in use; the text names the process. -EINVAL: not a history name
 * (empty, a leading dot, a slash, over 200 bytes). May block on the disk; any thread, one at a
 * time for one history.
 *
 * The lock ends with vv_files_close or with the process. A child forked meanwhile shares it: if the
 * process is killed, the history stays in use until the child calls exec or ends. */
VV_WARN_UNUSED int vv_files_open(struct vv_folder *folder, const char *history, uint32_t rank,
                                 const struct vv_files_opts *opts, char *err, size_t err_bytes,
                                 struct vv_files **ret_files);
/* Requires that no request on it is in flight. Deletes objects that are neither committed nor
 * removed. An object whose commit failed in its last step, after the rename, may be found at the
 * next open. NULL is fine. */
void vv_files_close(struct vv_files *files);

struct vv_files_entry {
    uint64_t version, generation, size, run_id, commit_time_ns;
    uint64_t file_bytes; /* length of the file; 0: not known */
    uint32_t rank, nregions;
    const struct vv_store_region *regions;
};

/* Calls visit for every version found at open, ascending, until visit returns non-zero; returns
 * that value. Works once per open: the list is freed afterwards. */
int vv_files_list(struct vv_files *files, int (*visit)(void *user, const struct vv_files_entry *e),
                  void *user);
/*
 * The run id that a file of this life carries. Files of a version on several ranks belong
 * together if their run ids are equal. So each time that a life writes a version counts as a run
 * of its own: the id is that of the life with another lower half, which depends on the edition
 * alone. Edition 0 and 1 (the first write) have the id of the life.
 */
uint64_t vv_files_run_id(const struct vv_files *files, uint32_t edition);

/* A version whose file existed at open but cannot be used. */
struct vv_files_damage {
    uint64_t version, generation;
    int status;       /* -EBADMSG: damaged or of a newer format; otherwise why it cannot be read */
    const char *what; /* in words */
};

/* The same for the versions that are not listed because their highest generation cannot be used;
 * may be called any number of times. Their files stay, lower generations of the version included;
 * a REMOVE of the reported generation deletes them all. */
int vv_files_list_damaged(const struct vv_files *files,
                          int (*visit)(void *user, const struct vv_files_damage *d), void *user);
/* Higher than every generation that this history is known to have had. With a lower one a stale
 * index record could describe a new file. */
uint64_t vv_files_first_generation(const struct vv_files *files);

/* Bytes of disk that an object's file takes. */
uint64_t vv_files_bytes(uint64_t size, uint32_t nregions, uint32_t page_bytes);

#endif
