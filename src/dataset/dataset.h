/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dataset cache of one node: copies of files of a shared file system in a folder on local disk, handed out as
 * descriptors. It has no connection to other nodes and never reads the shared file system: the caller brings
 * the bytes, and gives the generation of the file.
 *
 * Invariants: a descriptor that was handed out is one generation of one file, whole and verified; the bytes on disk
 * never exceed the capacity; no open file is removed. It is a cache: a crash may lose any file of it, and never
 * corrupts one.
 *
 * Threads: any, for all calls except opening and closing. One thread at a time uses a fill.
 */
#ifndef VV_DATASET_DATASET_H
#define VV_DATASET_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"
#include "dataset/client_index.h"
#include "dataset/server_wire.h"
#include "store/os.h"

/* Distinguishes states of one file. With the path it identifies the bytes. */
struct vv_dataset_gen {
    uint64_t size;
    uint64_t mtime_ns, ctime_ns;
    uint64_t inode;
};

#define VV_DATASET_HIGH_PCT 95
#define VV_DATASET_LOW_PCT  90
#define VV_DATASET_PATH_MAX 4095u
#define VV_DATASET_UNKNOWN  UINT64_MAX /* as a next use */

/* Sealing of files (fs-verity): no process can change a sealed file, and the kernel checks every read. */
enum vv_dataset_verity {
    VV_DATASET_VERITY_OFF,
    VV_DATASET_VERITY_AUTO, /* where kernel and file system can */
    VV_DATASET_VERITY_ON,   /* if they cannot, the cache does not open: -EOPNOTSUPP */
};

struct vv_dataset_opts {
    const struct vv_os *os; /* NULL: the real one */
    uint64_t capacity;      /* bytes on disk, in blocks of 4 KiB */
    unsigned high_pct;      /* above this share room is made ... */
    unsigned low_pct;       /* ... down to this one; 0: the defaults */
    uint64_t max_file;      /* larger files are refused; 0: only files larger than the capacity */
    uint64_t big_file;      /* larger files take free room and that of copies only; 0: no limit */
    enum vv_dataset_verity verity;
    /* A file with an expected place was evicted. Called by the thread that needed the room, with no lock held.
     * May be NULL. */
    void (*evicted)(void *user, const char *path, uint64_t next_use);
    /* The order of use has passed the place at which a file was expected. Returns its next place, or
     * VV_DATASET_UNKNOWN. Called before room is made, with no lock held. NULL: always unknown. */
    uint64_t (*passed)(void *user, const char *path);
    void *user;
    /* Files that clients open themselves; NULL: none. Must outlive the cache. */
    struct vv_index *index;
};

struct vv_dataset;
struct vv_dataset_fill;

/* Opens a folder and uses what an earlier run left there. Makes the folder if it is missing. -EBUSY: another process
 * has it open; -EINVAL: invalid options; or a system error. With a text in `err`. */
VV_WARN_UNUSED int vv_dataset_open(const char *folder, const struct vv_dataset_opts *opts,
                                   char *err, size_t err_bytes, struct vv_dataset **ret_dataset);
/* All fills must have ended. Descriptors that were handed out stay good. Accepts NULL. */
void vv_dataset_close(struct vv_dataset *d);

/* ---- putting files in ---- */

struct vv_dataset_want {
    const char *path;
    struct vv_dataset_gen gen;
    uint64_t next_use; /* its place in the order of use, or VV_DATASET_UNKNOWN */
    /* No request waits for it: it evicts only files that are wanted later, or that are not known to be
     * wanted. */
    bool ahead;
    /* A copy: another node keeps this file, and is asked for it when it is not here. Copies are evicted before all
     * files that are kept here. Unless `ahead` is set, a copy takes free room only, up to the low watermark, and
     * sometimes the room of other copies. */
    bool copy;
};

/* Begins to store a file, and makes room for it. Blocks for as long as removing files takes.
 *   -EALREADY  another fill is storing it
 *   -EEXIST    this generation is here
 *   -EFBIG     larger than max_file or the capacity
 *   -ENOSPC    no room: all files here are in use or wanted earlier, or the disk is full
 *   -ENAMETOOLONG, -EINVAL, -ENOMEM, other system errors */
VV_WARN_UNUSED int vv_dataset_begin(struct vv_dataset *d, const struct vv_dataset_want *want,
                                    struct vv_dataset_fill **ret_fill);
/* Writes the next bytes. -EFBIG: more than its size; or a system error. */
VV_WARN_UNUSED int vv_dataset_write(struct vv_dataset_fill *f, const void *buf, size_t bytes);
/* Ends the fill: from here on the file can be handed out, and an older generation of it cannot. The fill is freed
 * in any case. `sum` is the checksum (vv_hash64) that the sender gave, or NULL. -EBADMSG: the bytes have another
 * checksum; -ENODATA: bytes are missing; or a system error. */
VV_WARN_UNUSED int vv_dataset_commit(struct vv_dataset_fill *f, const uint64_t *sum);
/* Drops the fill. Accepts NULL. */
void vv_dataset_abort(struct vv_dataset_fill *f);

/* ---- handing files out ---- */

/* Returns a read-only descriptor at the beginning of the file; each call returns a descriptor of its own. The file
 * stays as long as the descriptor or a copy of it is open. The first call after opening the folder reads and verifies
 * the whole file. The caller closes the descriptor.
 *   -ENOENT   not here
 *   -ESTALE   another generation than `gen` is here (NULL takes any)
 *   -EBADMSG  the file was damaged and has been dropped
 *   other system errors */
VV_WARN_UNUSED int vv_dataset_get(struct vv_dataset *d, const char *path,
                                  const struct vv_dataset_gen *gen, int *ret_fd,
                                  struct vv_dataset_gen *ret_gen);

/* The generation under a path, without access to the disk. -ENOENT. `ret_verified`: it can be handed out without
 * reading it. */
VV_WARN_UNUSED int vv_dataset_peek(struct vv_dataset *d, const char *path,
                                   struct vv_dataset_gen *ret_gen, bool *ret_verified);

/* The checksum (vv_hash64) that this generation had when it was fetched, without access to the disk. It travels with
 * the file, so that the next node detects damage in transit or on a disk. -ENOENT, -ESTALE as above. */
VV_WARN_UNUSED int vv_dataset_sum(struct vv_dataset *d, const char *path,
                                  const struct vv_dataset_gen *gen, uint64_t *ret_sum);

/* Reads all of a file now and compares its checksum, although it was verified before. -EBADMSG: it was damaged
 * and has been dropped; -ENOENT, -ESTALE as above; other system errors. */
VV_WARN_UNUSED int vv_dataset_check(struct vv_dataset *d, const char *path,
                                    const struct vv_dataset_gen *gen);

/* Lets clients open this generation of a file themselves, as `client_path`, if it could be handed out at once. They may
 * until `until_ns` (by vv_now_ns), when the file has to be checked again, or until the cache stops handing it out, if
 * that is earlier. -ENOENT, -ESTALE; -EAGAIN: not verified; -ENOSYS: there is no index. */
int vv_dataset_show(struct vv_dataset *d, const char *path, const struct vv_dataset_gen *gen,
                    const char *client_path, const struct vv_server_stat *stat, uint64_t until_ns,
                    bool direct);
/* Takes all files out of the index: clients have to ask. */
void vv_dataset_hide(struct vv_dataset *d);

/* The file has changed, or is to be removed: from here on it is not handed out. Its space is free once no process
 * has it open. -ENOENT. */
int vv_dataset_drop(struct vv_dataset *d, const char *path);

/* This node keeps the file from now on: if it was a copy, it stops being one. */
void vv_dataset_own(struct vv_dataset *d, const char *path);
/* True if the file is here, and not as a copy. */
bool vv_dataset_keeps(struct vv_dataset *d, const char *path);

/* Sets when a file is wanted next: its place in the order of use. -ENOENT. */
int vv_dataset_expect(struct vv_dataset *d, const char *path, uint64_t next_use);
/* The order of use has come to this place; files expected before it are no longer expected. */
void vv_dataset_advance(struct vv_dataset *d, uint64_t place);

/* Reads and verifies files in turn until it has read `bytes`, or all of them once, and drops damaged ones. Returns how
 * many were damaged, or a negative errno. `ret_around`: all files have been read since it was last
 * true. */
int vv_dataset_scrub(struct vv_dataset *d, uint64_t bytes, bool *ret_around);

/* ---- figures ---- */

struct vv_dataset_stats {
    uint64_t files, bytes; /* that can be handed out; bytes as on disk */
    uint64_t used;         /* bytes on disk, including fills and files that wait to be removed */
    uint64_t waiting;      /* files that were dropped and are still open in a process */
    uint64_t sealed;       /* of `files`, those that cannot be changed */
    uint64_t copies, copy_bytes; /* of `files` and `bytes`, copies of files that other nodes keep */
    /* Since opening: */
    uint64_t hits, misses, evicted, damaged, refused_busy;
    uint64_t unsealed; /* files that should have been sealed and could not be */
    uint64_t direct;   /* files that clients opened themselves; not among the hits */
};

void vv_dataset_stats(struct vv_dataset *d, struct vv_dataset_stats *ret_stats);

/* `files` of the figures. May be called under any lock. */
uint64_t vv_dataset_files(const struct vv_dataset *d);
/* `used` of the figures without copies. May be called under any lock. */
uint64_t vv_dataset_load(const struct vv_dataset *d);

struct vv_dataset_entry {
    const char *path;
    struct vv_dataset_gen gen;
    uint64_t sum;
    bool copy;
};

/* Calls visit for every file that can be handed out, until it returns non-zero, and returns that value. It is a
 * snapshot: some files may be gone by then. visit may call anything. -ENOMEM. */
int vv_dataset_list(struct vv_dataset *d,
                    int (*visit)(void *user, const struct vv_dataset_entry *e), void *user);

#endif
