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

/* FILLING -> READY or gone; READY -> DOOMED or GOING; DOOMED -> GOING; GOING -> gone, or back to READY or DOOMED if the
 * file is open in a process. One function (dataset.c) changes states. */
enum vvi_dataset_state {
    DATASET_FILLING, /* a fill owns it; not handed out */
    DATASET_READY,
    DATASET_DOOMED, /* not handed out any more; on disk while a process has it open */
    DATASET_GOING,  /* a thread tries to remove it */
    DATASET_GONE,   /* not in any list; freed when it is not pinned */
};

struct vvi_entry {
    VV_TABLE_ITEM(hash); /* of the path */
    /* Immutable once the entry is in the table. */
    uint64_t id; /* of its content file; never used twice */
    struct vv_dataset_gen gen;
    char *path;
    /* Synchronization: dataset->lock. */
    enum vvi_dataset_state state;
    uint64_t sum; /* of the content; set before READY */
    /* Bytes on disk, including the seal's; set before READY, and immutable from then on. */
    uint64_t space;
    bool sealed;
    bool has_digest; /* taken in this run: the next hand-out must find the same */
    uint8_t digest[VV_OS_DIGEST];
    /* Written under manifest.lock as well: either lock is enough to read it. */
    bool doomed; /* never handed out again; GOING goes back to DOOMED if set, to READY if not */
    bool copy;   /* another node keeps it; written under the same locks as `doomed` */
    bool verified;
    unsigned pins; /* uses of its file without the lock: the file must stay */
    /* Lists that it is in: their threads read only its immutable fields, and its file may be removed. */
    unsigned held;
    uint64_t next_use, last_use;
    uint64_t round; /* of the last scrub that read it */
    uint32_t shown; /* its first slot in the index, plus one; 0: none */
    size_t at;      /* in dataset->all */
    /* Synchronization: manifest.lock. The manifest has a record of it that is still valid. */
    bool listed;
};

struct vvi_manifest {
    struct vv_mutex lock; /* rank MANIFEST: held across system calls, and around dataset->lock */
    /* Synchronization: lock. */
    int fd;                 /* -1: none, because it could not be written */
    uint64_t bytes;         /* offset of the next record */
    uint64_t records, gone; /* all of them; those of files that are gone */
};

struct vv_dataset {
    struct vv_dataset_opts opts; /* immutable; zeros are replaced by the defaults */
    const struct vv_os *os;
    char *folder; /* immutable: its path, used if the folder has to be made again */
    /* Synchronization: the numbers are immutable. If the folder has to be made again, the files behind them are
     * exchanged in one step, under manifest.lock. */
    int dirfd, lock_fd;
    struct vvi_manifest manifest;
    struct vv_mutex lock; /* rank STORE: never held across a system call */
    /* Synchronization: lock. */
    struct vvi_entry **all;
    size_t nr, room;
    struct vv_table by_path; /* without doomed entries */
    uint64_t next_id, clock, place;
    uint64_t refused; /* copies that found no room, since the last swap of copies */
    /* The scrub goes through `all`. The last entry takes the place of a removed one, so an entry may move to a place
     * that the scrub has passed. Then the scrub goes through `all` once more. */
    uint64_t round;
    size_t scrub_at;
    bool scrub_again;
    struct vv_dataset_stats stats;
    /* Synchronization: stored under lock, loaded relaxed without it. */
    _Atomic uint64_t files, load; /* stats.files; stats.used without stats.copy_bytes */
    /* Synchronization: relaxed. True until sealing turns out to be impossible. */
    atomic_bool seals;
    /* Synchronization: manifest.lock. Earliest time at which a deleted folder may be made again. */
    uint64_t restore_ns;
    /* Synchronization: relaxed. Earliest time of the next message about a full disk. */
    _Atomic uint64_t full_log_ns;
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

/* Space of a file of this size: its blocks. A sealed file also has a tree of hashes, 128 in a block, and one more
 * block. */
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

/* dataset.c: the table. _locked: the caller holds dataset->lock. */
struct vvi_entry *vvi_dataset_find_locked(struct vv_dataset *d, const char *path);
/* Adds an entry from entry_new to the table. */
int vvi_dataset_add_locked(struct vv_dataset *d, struct vvi_entry *e);
struct vvi_entry *vvi_dataset_entry_new(const char *path, const struct vv_dataset_gen *gen);
void vvi_dataset_entry_free(struct vvi_entry *e);
void vvi_dataset_set_state_locked(struct vv_dataset *d, struct vvi_entry *e,
                                  enum vvi_dataset_state state);
void vvi_dataset_unpin_locked(struct vv_dataset *d, struct vvi_entry *e);
/* Turns a copy into a kept file; manifest.lock must be held. */
void vvi_dataset_own(struct vv_dataset *d, struct vvi_entry *e);
/* Dooms a ready, pinned entry: it is never handed out again. */
void vvi_dataset_doom(struct vv_dataset *d, struct vvi_entry *e);
/* Tries to remove the files of doomed entries. */
void vvi_dataset_bury(struct vv_dataset *d);
/* Called when a file or the folder was not found. True: the folder was deleted, and all files are gone. Then the folder
 * is made again, empty; as long as that fails, no file can be stored. */
bool vvi_dataset_restore(struct vv_dataset *d);
/* Makes room for `bytes` on disk, and takes it. `rank`, if not 0: evicts only files that rank farther, and the
 * limit is the high watermark. */
int vvi_dataset_reserve(struct vv_dataset *d, uint64_t bytes, uint64_t rank);
/* A copy takes free room only, up to the low watermark, and sometimes the room of other copies. True if one may be
 * stored now; `ret_room`: the room that has to be made first. */
bool vvi_dataset_may_copy(struct vv_dataset *d, uint64_t bytes, uint64_t *ret_room);
int vvi_dataset_reserve_copy(struct vv_dataset *d, uint64_t bytes, uint64_t room);
/* Adds `bytes` to the space that is used; negative: less. */
void vvi_dataset_used_locked(struct vv_dataset *d, int64_t bytes);
/* Only copies rank beyond this. */
uint64_t vvi_dataset_rank_of_copies(void);
uint64_t vvi_dataset_rank_locked(const struct vv_dataset *d, uint64_t next_use, uint64_t last_use);

/* manifest.c */
/* Reads the manifest. Adds to the table each file that is both in the manifest and in the folder, and removes all other
 * files from the folder. */
int vvi_manifest_load(struct vv_dataset *d);
void vvi_manifest_close(struct vv_dataset *d);
/* The manifest's file is gone: the next record causes the whole manifest to be written again. manifest.lock must be
 * held. */
void vvi_manifest_forget_locked(struct vv_dataset *d);
/* Adds a record of an entry that can be handed out, or of one that cannot any more (which need not have been listed);
 * manifest.lock must be held. A failure loses the manifest, not the cache: the next record rewrites
 * it. */
void vvi_manifest_list_locked(struct vv_dataset *d, struct vvi_entry *e);
void vvi_manifest_unlist_locked(struct vv_dataset *d, struct vvi_entry *e);
/* Records that an entry listed as a copy is now kept; manifest.lock must be held. */
void vvi_manifest_own_locked(struct vv_dataset *d, struct vvi_entry *e);

/* fill.c: tests whether files of this folder can be sealed. -EOPNOTSUPP, or another error. */
int vvi_dataset_try_seal(struct vv_dataset *d);

/* dataset_verify.c: reads all of a file. -EBADMSG: its bytes or its size are not as expected. */
int vvi_dataset_verify(const struct vv_dataset *d, int fd, uint64_t size, uint64_t sum);

#endif
