/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the committed-file tier: folder and open objects (folder.c), one history (files.c), its
 * index (files_index.c) and the stores (files_store.c). */
#ifndef VV_STORE_FILES_PRIVATE_H
#define VV_STORE_FILES_PRIVATE_H

#include <stdatomic.h>
#include <sys/types.h>

#include "base/lock.h"
#include "base/table.h"
#include "store/files/ckfile.h"
#include "store/store_private.h"
#include "store/target/folder/target_folder.h"

/* ---- open objects ---- */

/* An object that is being written or was read of late. Synchronization: folder->lock, but for what
 * is marked; `fd` does not change while the object is pinned. */
struct vvi_obj {
    VV_TABLE_ITEM(version);      /* as in id */
    struct vvi_obj *prev, *next; /* with a descriptor: most recently used first */
    struct vv_files *files;      /* immutable, as are id and nchunks */
    struct vv_ckfile_id id;
    uint32_t nchunks;
    bool temp;    /* not committed: under its temporary name */
    bool renamed; /* it has its committed name, or had it: on the disk it may have it still */
    bool left;    /* it was to be removed, and could not be: see vvi_obj_remove */
    bool dead;    /* out of the table; the last pin frees it */
    unsigned pins;
    int fd;                   /* -1: closed to make room */
    struct vvi_gds_file *gds; /* fd for device memory; NULL: not asked for yet */
    /* The first error of writing or committing it, or 0. Set by the store that writes the object,
     * which may therefore read it without the lock. Never cleared: the kernel drops pages that it
     * could not write and reports that once, so that success later on would prove nothing. */
    int spoiled;
    /* Owner: the one store that writes the object. */
    bool header_sent;
    uint32_t written; /* chunks */
    /* Written and not reported before a sync of their data: those that the running one is for, the first of them
     * its carrier, and those that the next one is for. */
    struct vvi_batch *keeping, *to_keep;
    uint64_t header_sum;
    /* Entry c is stored before the write of chunk c is reported and loaded by those who were told;
     * immutable then. */
    uint64_t *sums;
};

struct vv_folder {
    struct vv_store_opts opts; /* immutable, down to pace */
    char *path;
    int dirfd;
    struct vv_target
        *target; /* the place, where it is no folder: none of the rest; NULL otherwise */
    bool direct;
    bool keeps, ranges; /* data is synced before a write is reported; parts of a file can be */
    struct vvi_pace pace;
    struct vv_mutex lock;
    /* Synchronization: lock. */
    struct vv_table objects;      /* all of them */
    struct vvi_obj *first, *last; /* those with a descriptor */
    unsigned nopen;               /* how many these are */
};

/* Finds or creates the object under its temporary name, blocks allocated. Pins it. A spoiled one is
 * refused with its error, and failing to create it spoils it. */
int vvi_obj_create(const struct vv_store_io *io, struct vvi_obj **ret_obj);
/* Finds or opens the object for reading, written in part or committed. Pins it. */
int vvi_obj_open(struct vv_files *files, const struct vv_store_key *key, struct vvi_obj **ret_obj);
void vvi_obj_unpin(struct vvi_obj *obj);
/* Its file for device memory; it goes with the descriptor, not while the object is pinned. */
int vvi_obj_gds(struct vvi_obj *obj, struct vvi_gds_file **ret_file);
/* From now on only reads and removal. */
void vvi_obj_spoil(struct vvi_obj *obj, int error);
/* Gives the object its committed name. */
int vvi_obj_rename(struct vvi_obj *obj);
/* Takes it away again, if that can be done: its commit has failed, and no opening shall take it for the version. */
void vvi_obj_unname(struct vvi_obj *obj);
/* Deletes whatever there is. ret_sync: it lasts only once the folder was synced. After a failure the
 * object is as it was, and goes before any later generation of its version does. */
int vvi_obj_remove(struct vv_files *files, const struct vv_store_key *key, bool *ret_sync);
/* Drops every object of a history, deleting uncommitted files. */
void vvi_obj_drop_all(struct vv_files *files);

/* ---- index ---- */

#define VVI_INDEX_MAGIC  "VARVEIX\n"
#define VVI_RECORD_MAGIC UINT32_C(0x52495656) /* "VVIR" */
#define VVI_INDEX_FORMAT 2u

struct vvi_index_header {
    char magic[8];
    uint32_t format;
    uint32_t rank;
    uint64_t history_sum; /* of the history's name */
    uint64_t zero[4];
    uint64_t sum;
};
_Static_assert(sizeof(struct vvi_index_header) == 64, "on disk");

enum vvi_record_kind { VVI_RECORD_COMMIT = 1, VVI_RECORD_REMOVE = 2 };

struct vvi_index_record {
    uint64_t sum; /* of everything behind it, regions included */
    uint32_t magic;
    uint32_t bytes; /* of the record with its regions */
    uint32_t kind;
    uint32_t nregions;
    uint64_t version;
    uint64_t generation;
    uint64_t size;
    uint64_t run_id;
    uint64_t commit_time_ns;
    uint64_t file_bytes; /* the length of the file */
};
_Static_assert(sizeof(struct vvi_index_record) == 72, "on disk");

/* The index of one history and rank, open for appending. Synchronization: lock, from `fd` on.
 *
 * On a target that takes whole files only, all of it is in `buf`, and is written again now and then: what it
 * lacks is read from the files at the next open, a few of them. */
struct vvi_index {
    const struct vv_os *os;
    int dirfd;
    struct vv_target *target; /* NULL: in a folder */
    char name[32];
    struct vv_mutex lock;
    int fd;       /* -1: given up until the next open */
    uint64_t end; /* where the next record goes */
    char *buf;    /* records not written yet */
    size_t used, room;
    /* Records, those not written yet included; versions that they say are there. The latter is an
     * estimate between two compactions: removals of what was never committed have records too. */
    uint64_t nrecords, nlive;
    bool whole;       /* on a target: `buf` is the index */
    uint64_t unsaved; /* on a target: records that the file lacks */
    bool published;   /* under its own name, not the temporary one */
};

/* What the index says. Records and regions live in `text`. */
struct vvi_index_view {
    char *text;
    uint64_t bytes;       /* in the file */
    uint64_t valid_bytes; /* up to the first bad record; 0: no usable index */
    uint64_t nrecords;
};

/* Is most of an index about what is gone? */
static inline bool vvi_index_stale(uint64_t nrecords, uint64_t nlive)
{
    return nrecords > 2 * nlive + 64;
}

void vvi_index_init(struct vvi_index *ix, const struct vv_os *os, int dirfd, uint32_t rank);
void vvi_index_fini(struct vvi_index *ix);
/* Reads the file. A missing or foreign one is an empty view, not an error. */
int vvi_index_read(struct vvi_index *ix, const char *history, uint32_t rank,
                   struct vvi_index_view *ret_view);
/* The record at *at, moving on; NULL at the end of the valid part. */
const struct vvi_index_record *vvi_index_next(const struct vvi_index_view *view, uint64_t *at);
const struct vv_store_region *vvi_index_regions(const struct vvi_index_record *record);
/* Continues the file behind its valid part, which knows `nlive` versions that are there. */
int vvi_index_continue(struct vvi_index *ix, const struct vvi_index_view *view, uint64_t nlive);
/* Starts a new file, under a temporary name until vvi_index_publish. */
int vvi_index_restart(struct vvi_index *ix, const char *history, uint32_t rank);
int vvi_index_publish(struct vvi_index *ix);
/* Adds a record in memory; flush writes all that were added with one call, and writes the index again
 * without what is gone once that is most of it. The index is a cache: a failure deletes it, to be
 * rebuilt at the next open, and is not reported. */
void vvi_index_add(struct vvi_index *ix, enum vvi_record_kind kind,
                   const struct vv_files_entry *entry);
void vvi_index_flush(struct vvi_index *ix);

/* ---- one history ---- */

struct vvi_found {
    struct vv_files_entry entry;
    uint64_t listed_bytes;         /* as in the listing, if it tells */
    bool known;                    /* entry is complete */
    uint64_t unsynced_boot;        /* as in the file, if the index did not know it */
    int status;                    /* what reading the file gave, if not known */
    char *what;                    /* what is wrong with it, if not known; owned */
    struct vv_store_region *owned; /* regions read from the file itself */
};

struct vvi_hidden {
    uint64_t version, generation;
};

struct vv_files {
    struct vv_folder *folder; /* immutable, down to nhidden */
    char history[VV_CKFILE_HISTORY_MAX + 1];
    struct vv_target *
        at; /* its place: `place`, or one of the folder's target; NULL: for reading, and not there */
    struct vv_target_folder place;
    int dirfd, lock_fd; /* on a target: -1 */
    pid_t locked_by;
    uint32_t rank;
    uint64_t run_id, first_generation;
    uint64_t serial; /* no other open history of the process has it */
    bool all_generations, shared, read_only;
    struct vv_remote_hist *remote;   /* that sees what is committed here; NULL: nobody does */
    struct vv_partner_hist *partner; /* the same for partner copies */
    /* Versions whose highest generation is damaged (known is false), ascending, and the lower
     * generations of them that were left where they are. */
    struct vvi_found *damaged;
    size_t ndamaged;
    struct vvi_hidden *hidden;
    size_t nhidden;
    /* A removal was not synced. Repeated, it finds no file and must be synced all the same. */
    atomic_bool removal_unsynced;
    struct vvi_index index;
    /* Found at open; until vv_files_list, or, for reading only, to the end. Owner: whoever opened; immutable once listed. */
    struct vvi_found *found;
    size_t nfound;
    struct vvi_index_view view;
};

/* What was found of a version at open, before it was listed. */
enum vvi_files_state {
    VVI_FILES_NONE,
    VVI_FILES_HAVE,   /* this generation, or a higher one */
    VVI_FILES_BROKEN, /* this generation, but it cannot be used */
    VVI_FILES_GONE    /* this generation was here and was removed */
};
enum vvi_files_state vvi_files_state(const struct vv_files *files, uint64_t version,
                                     uint64_t generation);
/* How many ranks the job's last life had, as this rank recorded it in the folder of its history; 0:
 * there is no valid record. */
uint32_t vvi_recorded_ranks(struct vv_target *at, uint32_t rank);
/* Where a history is for reading only: is this the file that was found at opening? `rc` and `run_id`: of opening
 * it now. 0, -EIDRM or rc. */
int vvi_files_same(const struct vv_files *files, uint64_t version, uint64_t generation, int rc,
                   uint64_t run_id);
/* The store of a folder that is a target: reads and removals only. */
VV_WARN_UNUSED int vvi_target_store(struct vv_folder *folder, struct vv_store **ret_store);
/* Looks again, after files were put there. */
VV_WARN_UNUSED int vvi_files_again(struct vv_files *files, char *err, size_t err_bytes);

#endif
