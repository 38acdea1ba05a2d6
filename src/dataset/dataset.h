/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dataset cache of one node: copies of files of a shared file system in a folder on local disk,
 * handed out as descriptors. It knows nothing of other nodes and never looks at the shared file
 * system; whoever does brings the bytes, and says which generation of the file they are.
 *
 * What always holds: a descriptor that was handed out is one generation of one file, whole and
 * verified; what is on disk never exceeds the capacity; nothing that somebody has open goes. It is a
 * cache: a crash may lose any file of it, and never spoils one.
 *
 * Threads: any, on all calls but opening and closing. A fill belongs to one thread at a time.
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

/* What tells one state of a file from another. With the path it is the whole identity of bytes. */
struct vv_dataset_gen {
    uint64_t size;
    uint64_t mtime_ns, ctime_ns;
    uint64_t inode;
};

#define VV_DATASET_HIGH_PCT 95
#define VV_DATASET_LOW_PCT  90
#define VV_DATASET_PATH_MAX 4095u
#define VV_DATASET_UNKNOWN  UINT64_MAX /* as a next use */

/* Whether files are sealed (fs-verity): nobody can change them, and the kernel checks what it reads. */
enum vv_dataset_verity {
    VV_DATASET_VERITY_OFF,
    VV_DATASET_VERITY_AUTO, /* where kernel and file system can */
    VV_DATASET_VERITY_ON,   /* or the cache does not open: -EOPNOTSUPP */
};

struct vv_dataset_opts {
    const struct vv_os *os; /* NULL: the real one */
    uint64_t capacity;      /* bytes on disk, in blocks of 4 KiB */
    unsigned high_pct;      /* above this share room is made ... */
    unsigned low_pct;       /* ... down to this one; 0: the defaults */
    uint64_t max_file;      /* larger ones are refused; 0: only by the capacity */
    uint64_t big_file;      /* larger ones take free room and that of copies only; 0: none is */
    enum vv_dataset_verity verity;
    /* A file went to make room, although it is expected at a place: called by whoever needed the room, with
     * no lock held. NULL: nobody wants to know. */
    void (*evicted)(void *user, const char *path, uint64_t next_use);
    /* The order of use has passed the place at which a file was expected. Where is it expected next? (Or
     * VV_DATASET_UNKNOWN.) Called before room is made, with no lock held. NULL: nowhere. */
    uint64_t (*passed)(void *user, const char *path);
    void *user;
    struct vv_index *index; /* what is shown to clients; NULL: nothing. Must outlive the cache */
};

struct vv_dataset;
struct vv_dataset_fill;

/* Opens a folder, which is made if it is missing, and takes up what an earlier life left there.
 * -EBUSY: another process has it open; -EINVAL: options that make no sense; or the system's error,
 * with a text in `err`. */
VV_WARN_UNUSED int vv_dataset_open(const char *folder, const struct vv_dataset_opts *opts,
                                   char *err, size_t err_bytes, struct vv_dataset **ret_dataset);
/* All fills must have ended. Descriptors that were handed out stay good. Accepts NULL. */
void vv_dataset_close(struct vv_dataset *d);

/* ---- putting files in ---- */

struct vv_dataset_want {
    const char *path;
    struct vv_dataset_gen gen;
    uint64_t next_use; /* its place in the order of use, or VV_DATASET_UNKNOWN */
    /* Nobody waits for it: it takes the place only of files that are wanted later, or that nobody is
     * known to want. */
    bool ahead;
    /* A copy: another node keeps this file, and is asked for it when it is not here. It goes before all files that
     * are kept here. Unless `ahead` says otherwise it takes free room only, up to the low watermark, and now and
     * then that of other copies. */
    bool copy;
};

/* Begins to take in a file, making room for it. Blocks for as long as removing files takes.
 *   -EALREADY  it is being taken in by somebody else
 *   -EEXIST    this generation is here
 *   -EFBIG     larger than max_file or the capacity
 *   -ENOSPC    no room: what is here is in use or wanted earlier, or the disk is full
 *   -ENAMETOOLONG, -EINVAL, -ENOMEM, other system errors */
VV_WARN_UNUSED int vv_dataset_begin(struct vv_dataset *d, const struct vv_dataset_want *want,
                                    struct vv_dataset_fill **ret_fill);
/* The next bytes. -EFBIG: more than its size; or the system's error. */
VV_WARN_UNUSED int vv_dataset_write(struct vv_dataset_fill *f, const void *buf, size_t bytes);
/* The file is whole: it can be handed out from here on, and an older generation of it no more. The
 * fill is gone, whatever the result. `sum` is what the sender says its checksum (vv_hash64) is; NULL:
 * nobody says. -EBADMSG: it is not that; -ENODATA: bytes are missing; or the system's error. */
VV_WARN_UNUSED int vv_dataset_commit(struct vv_dataset_fill *f, const uint64_t *sum);
/* Forgets it. Accepts NULL. */
void vv_dataset_abort(struct vv_dataset_fill *f);

/* ---- handing them out ---- */

/* A descriptor of its own for each call, read-only, at the beginning of the file. As long as it or a
 * copy of it is open, the file stays. The first time after opening the folder the whole file is read
 * and verified. The caller closes it.
 *   -ENOENT   not here
 *   -ESTALE   another generation than `gen` is here (NULL takes any)
 *   -EBADMSG  what was here was damaged, and is here no more
 *   other system errors */
VV_WARN_UNUSED int vv_dataset_get(struct vv_dataset *d, const char *path,
                                  const struct vv_dataset_gen *gen, int *ret_fd,
                                  struct vv_dataset_gen *ret_gen);

/* What is here under a path, without touching the disk. -ENOENT. `ret_verified`: handing it out needs no
 * reading. */
VV_WARN_UNUSED int vv_dataset_peek(struct vv_dataset *d, const char *path,
                                   struct vv_dataset_gen *ret_gen, bool *ret_verified);

/* The checksum (vv_hash64) that this generation had when it was brought, without touching the disk. It goes
 * wherever the file goes, so that damage on the way, or on a disk, is seen by the next who gets it. -ENOENT,
 * -ESTALE as above. */
VV_WARN_UNUSED int vv_dataset_sum(struct vv_dataset *d, const char *path,
                                  const struct vv_dataset_gen *gen, uint64_t *ret_sum);

/* Reads all of a file now and compares its checksum, although it was verified before. -EBADMSG: it was damaged,
 * and is here no more; -ENOENT, -ESTALE as above; other system errors. */
VV_WARN_UNUSED int vv_dataset_check(struct vv_dataset *d, const char *path,
                                    const struct vv_dataset_gen *gen);

/* Lets clients open this generation of a file themselves, as `path`, if it could be handed out at once; until
 * somebody has to look at it again (by vv_now_ns), or it is handed out no more. `client_path` is what they call
 * it. -ENOENT, -ESTALE; -EAGAIN: not verified; -ENOSYS: there is no index. */
int vv_dataset_show(struct vv_dataset *d, const char *path, const struct vv_dataset_gen *gen,
                    const char *client_path, const struct vv_server_stat *stat, uint64_t until_ns,
                    bool direct);
/* Takes all of them out of the index: clients ask. */
void vv_dataset_hide(struct vv_dataset *d);

/* The file has changed, or shall go: it is handed out no more from here on. Its space is free when
 * nobody has it open. -ENOENT. */
int vv_dataset_drop(struct vv_dataset *d, const char *path);

/* This node keeps the file from now on: if it was a copy, it is none any more. */
void vv_dataset_own(struct vv_dataset *d, const char *path);
/* Whether the file is here, and not as a copy. */
bool vv_dataset_keeps(struct vv_dataset *d, const char *path);

/* When a file is wanted next: its place in the order of use. -ENOENT. */
int vv_dataset_expect(struct vv_dataset *d, const char *path, uint64_t next_use);
/* The order of use has come to this place; what is expected before it is expected no more. */
void vv_dataset_advance(struct vv_dataset *d, uint64_t place);

/* Reads and verifies files in turn until it has read `bytes`, or all of them once; what is damaged is
 * dropped. Returns how many were, or a negative errno. `ret_around`: every file there is has been
 * read since this was last true. */
int vv_dataset_scrub(struct vv_dataset *d, uint64_t bytes, bool *ret_around);

/* ---- looking ---- */

struct vv_dataset_stats {
    uint64_t files, bytes;       /* that can be handed out; bytes as on disk */
    uint64_t used;               /* bytes on disk, with what is being taken in or waits to go */
    uint64_t waiting;            /* files that were dropped and are still open somewhere */
    uint64_t sealed;             /* of `files`, those that cannot be changed */
    uint64_t copies, copy_bytes; /* of `files` and `bytes`, copies of files that other nodes keep */
    /* Since opening: */
    uint64_t hits, misses, evicted, damaged, refused_busy;
    uint64_t unsealed; /* files that were to be sealed and could not be */
    uint64_t direct;   /* files that clients opened themselves; not among the hits */
};

void vv_dataset_stats(struct vv_dataset *d, struct vv_dataset_stats *ret_stats);

/* Its `files`, at any moment, under any lock. */
uint64_t vv_dataset_files(const struct vv_dataset *d);
/* Its `used` without copies, likewise. */
uint64_t vv_dataset_load(const struct vv_dataset *d);

struct vv_dataset_entry {
    const char *path;
    struct vv_dataset_gen gen;
    uint64_t sum;
    bool copy;
};

/* Calls visit for every file that can be handed out, until it returns non-zero, which is then
 * returned. A snapshot, of which some may have gone meanwhile: visit may call anything. -ENOMEM. */
int vv_dataset_list(struct vv_dataset *d,
                    int (*visit)(void *user, const struct vv_dataset_entry *e), void *user);

#endif
