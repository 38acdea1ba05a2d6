/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VV_DATASET_DATASET_PRIVATE_H
#define VV_DATASET_DATASET_PRIVATE_H

#include <stdatomic.h>

#include "base/hash.h"
#include "base/lock.h"
#include "base/table.h"
#include "dataset/client_index_private.h"
#include "dataset/dataset.h"

#define VVI_DATASET_BLOCK UINT64_C(4096)
#define VVI_DATASET_NAME  24 /* "0123456789abcdef.data" */

/* FILLING -> READY -> DOOMED -> gone; FILLING -> gone; READY -> GOING -> gone, or back if somebody has
 * it open; DOOMED -> GOING likewise. One function (dataset.c) changes states. */
enum vvi_dataset_state {
    DATASET_FILLING, /* its fill's; not handed out */
    DATASET_READY,
    DATASET_DOOMED, /* not handed out any more; on disk while somebody has it open */
    DATASET_GOING,  /* somebody tries to remove it */
    DATASET_GONE,   /* not in any list; freed when nobody has it pinned */
};

struct vvi_entry {
    VV_TABLE_ITEM(hash); /* of the path */
    /* Immutable once the entry is in the table. */
    uint64_t id; /* of its file; never used twice */
    struct vv_dataset_gen gen;
    char *path;
    /* Synchronization: dataset->lock. */
    enum vvi_dataset_state state;
    uint64_t sum; /* of the content; set before READY */
    /* Bytes on disk, with what a seal takes; set before READY, and from then on immutable. */
    uint64_t space;
    bool sealed;
    bool has_digest; /* found out by this life: the next hand-out has to find the same */
    uint8_t digest[VV_OS_DIGEST];
    /* Written under manifest.lock as well: either lock is enough to read it. */
    bool doomed; /* never to be handed out again; where GOING came from and may go back to */
    bool copy;   /* another node keeps it; likewise */
    bool verified;
    unsigned pins; /* somebody uses its file without the lock: it must not go */
    unsigned
        held; /* somebody has it in a list, and looks at nothing but what does not change; it may go */
    uint64_t next_use, last_use;
    uint64_t round; /* of the scrub that has read it */
    uint32_t shown; /* its first slot in the index, plus one; 0: none */
    size_t at;      /* in dataset->all */
    /* Synchronization: manifest.lock. The manifest has a record of it that none has ended. */
    bool listed;
};

struct vvi_manifest {
    struct vv_mutex lock; /* rank MANIFEST: held across system calls, and around dataset->lock */
    /* Synchronization: lock. */
    int fd;                 /* -1: none, because it could not be written */
    uint64_t bytes;         /* where the next record goes */
    uint64_t records, gone; /* in it; how many of them are of files that are gone */
};

struct vv_dataset {
    struct vv_dataset_opts opts; /* immutable, without defaults */
    const struct vv_os *os;
    char *folder; /* immutable: its path, in case it has to be made again */
    /* Synchronization: the numbers are immutable. What they stand for is exchanged in one step when the folder has
     * to be made again, under manifest.lock. */
    int dirfd, lock_fd;
    struct vvi_manifest manifest;
    struct vv_mutex lock; /* rank STORE: never held across a system call */
    /* Synchronization: lock. */
    struct vvi_entry **all;
    size_t nr, room;
    struct vv_table by_path; /* without those that are doomed */
    uint64_t next_id, clock, place;
    uint64_t refused; /* copies that found no room, since some were let go for others */
    /* The scrub goes through `all`; what slips behind it, because places are filled from the end,
     * makes it go through once more. */
    uint64_t round;
    size_t scrub_at;
    bool scrub_again;
    struct vv_dataset_stats stats;
    /* Synchronization: stored under lock, loaded relaxed without it. */
    _Atomic uint64_t files, load; /* stats.files; stats.used without stats.copy_bytes */
    /* Synchronization: relaxed. Files are sealed, as far as is known. */
    atomic_bool seals;
    /* Synchronization: manifest.lock. When a folder that is gone may be made again. */
    uint64_t restore_ns;
    /* Synchronization: relaxed. When a full disk may be told of again. */
    _Atomic uint64_t tell_full_ns;
};

struct vv_dataset_fill {
    struct vv_dataset *d;
    struct vvi_entry *e;
    int fd;
    uint64_t written;
    struct vv_hash_stream *hash;
};

static inline bool vvi_dataset_same_gen(const struct vv_dataset_gen *a,
                                        const struct vv_dataset_gen *b)
{
    return a->size == b->size && a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns &&
           a->inode == b->inode;
}

static inline uint64_t vvi_dataset_blocks(uint64_t size)
{
    return vv_align_up(size, VVI_DATASET_BLOCK);
}

/* What a file of this size takes: its blocks, and for a sealed one those of its tree of hashes, 128 in a
 * block, and one more. */
static inline uint64_t vvi_dataset_space(uint64_t size, bool sealed)
{
    uint64_t space = vvi_dataset_blocks(size), blocks = space / VVI_DATASET_BLOCK;

    if (!sealed)
        return space;
    while (blocks > 1) {
        blocks = (blocks + 127) / 128;
        space += blocks * VVI_DATASET_BLOCK;
    }
    return space + VVI_DATASET_BLOCK;
}

void vvi_dataset_name(char name[VVI_DATASET_NAME], uint64_t id, bool temp);

/* dataset.c: the table. _locked: dataset->lock. */
struct vvi_entry *vvi_dataset_find_locked(struct vv_dataset *d, const char *path);
/* Room in the table for one more; entry_new gives it an identity. */
int vvi_dataset_add_locked(struct vv_dataset *d, struct vvi_entry *e);
struct vvi_entry *vvi_dataset_entry_new(const char *path, const struct vv_dataset_gen *gen);
void vvi_dataset_entry_free(struct vvi_entry *e);
void vvi_dataset_set_state_locked(struct vv_dataset *d, struct vvi_entry *e,
                                  enum vvi_dataset_state state);
void vvi_dataset_unpin_locked(struct vv_dataset *d, struct vvi_entry *e);
/* A copy is none any more; manifest.lock must be held. */
void vvi_dataset_own(struct vv_dataset *d, struct vvi_entry *e);
/* Takes an entry that is ready, pinned, and to be handed out no more off the list. */
void vvi_dataset_doom(struct vv_dataset *d, struct vvi_entry *e);
/* Tries to remove the files of entries that nobody is to be given any more. */
void vvi_dataset_bury(struct vv_dataset *d);
/* A file, or the folder, was not found. If the folder was deleted, all files are gone; it is made again, empty, or if
 * that cannot be, files find no room. True: it was. */
bool vvi_dataset_restore(struct vv_dataset *d);
/* Makes room for so many bytes on disk, and takes them. `rank`, if not 0: only files that rank farther
 * go, and the high watermark is the limit. */
int vvi_dataset_reserve(struct vv_dataset *d, uint64_t bytes, uint64_t rank);
/* For a copy: takes free room only, up to the low watermark, and now and then that of other copies: whether there is
 * any, and how much room is to be made then. */
bool vvi_dataset_may_copy(struct vv_dataset *d, uint64_t bytes, uint64_t *ret_room);
int vvi_dataset_reserve_copy(struct vv_dataset *d, uint64_t bytes, uint64_t room);
/* So many bytes more, or fewer, are on disk. */
void vvi_dataset_used_locked(struct vv_dataset *d, int64_t bytes);
/* The rank that only copies are beyond. */
uint64_t vvi_dataset_rank_of_copies(void);
uint64_t vvi_dataset_rank_locked(const struct vv_dataset *d, uint64_t next_use, uint64_t last_use);

/* manifest.c */
/* Reads it and fills the table with what it lists and the folder has; removes everything else. */
int vvi_manifest_load(struct vv_dataset *d);
void vvi_manifest_close(struct vv_dataset *d);
/* What it was written to is gone: the next record writes it again. manifest.lock must be held. */
void vvi_manifest_forget_locked(struct vv_dataset *d);
/* An entry that can be handed out, or that cannot any more, which need not have been listed;
 * manifest.lock must be held. A failure costs the manifest, not the cache: it is written anew with
 * the next record. */
void vvi_manifest_list_locked(struct vv_dataset *d, struct vvi_entry *e);
void vvi_manifest_unlist_locked(struct vv_dataset *d, struct vvi_entry *e);
/* An entry that was listed as a copy is none any more; manifest.lock must be held. */
void vvi_manifest_own_locked(struct vv_dataset *d, struct vvi_entry *e);

/* fill.c: whether files of this folder can be sealed. -EOPNOTSUPP, or another error. */
int vvi_dataset_try_seal(struct vv_dataset *d);

/* dataset_verify.c: reads all of a file. -EBADMSG: its bytes or its size are others. */
int vvi_dataset_verify(const struct vv_dataset *d, int fd, uint64_t size, uint64_t sum);

#endif
