/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the tier of committed files: folder and open objects (folder.c), one history (files.c), its
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

/* An object that is being written or was read recently. Synchronization: folder->lock, unless a field
 * says otherwise; `fd` does not change while the object is pinned. */
struct vvi_obj {
    VV_TABLE_ITEM(version);      /* as in id */
    struct vvi_obj *prev, *next; /* list of objects with a descriptor: most recently used first */
    struct vv_files *files;      /* immutable, as are id and nchunks */
    struct vv_ckfile_id id;
    uint32_t nchunks;
    bool temp;    /* not committed: under its temporary name */
    bool renamed; /* was given its committed name; the file on the disk may still have it */
    bool left;    /* its removal failed: see vvi_obj_remove */
    bool dead;    /* no longer in the table; the last unpin frees it */
    unsigned pins;
    int fd;                   /* -1: closed, to limit open descriptors */
    struct vvi_gds_file *gds; /* fd for device memory; NULL: not asked for yet */
    /* First error of writing or committing the object, or 0. Set by the store that writes it, which
     * may therefore read it without the lock. Never cleared: the kernel drops pages that it could not
     * write and reports that once, so a later success would prove nothing. */
    int spoiled;
    /* Owner: the one store that writes the object. */
    bool header_sent;
    uint32_t written; /* chunks */
    /* Writes that wait for a sync of their data before they are reported: `keeping` are those of the running
     * sync, headed by the batch that carries it; `to_keep` are those of the next one. */
    struct vvi_batch *keeping, *to_keep;
    uint64_t header_sum;
    /* Entry c is stored before the write of chunk c is reported, and loaded only after that report;
     * immutable from then on. */
    uint64_t *sums;
};

struct vv_folder {
    struct vv_store_opts opts; /* immutable, down to ranges */
    char *path;
    int dirfd;
    /* Set if the place is not a folder; the fields below are then unused. */
    struct vv_target *target;
    bool direct;
    /* keeps: data is synced before a write is reported. ranges: a range of a file can be synced. */
    bool keeps, ranges;
    struct vvi_pace pace;
    struct vv_mutex lock;
    /* Synchronization: lock. */
    struct vv_table objects;      /* all objects */
    struct vvi_obj *first, *last; /* objects with a descriptor */
    unsigned nopen;               /* number of these */
};

/* Finds the object, or creates it under its temporary name with its blocks allocated. Pins it. A spoiled
 * object is refused with its error; a failure to create it spoils it. */
int vvi_obj_create(const struct vv_store_io *io, struct vvi_obj **ret_obj);
/* Finds or opens the object for reading, partly written or committed. Pins it. */
int vvi_obj_open(struct vv_files *files, const struct vv_store_key *key, struct vvi_obj **ret_obj);
void vvi_obj_unpin(struct vvi_obj *obj);
/* The object's file for device memory. It is closed with the descriptor, and not while the object is pinned. */
int vvi_obj_gds(struct vvi_obj *obj, struct vvi_gds_file **ret_file);
/* Allows only reads and removal from now on. */
void vvi_obj_spoil(struct vvi_obj *obj, int error);
/* Gives the object its committed name. */
int vvi_obj_rename(struct vvi_obj *obj);
/* Tries to undo the rename after a failed commit, so that no later open takes the file for the version. */
void vvi_obj_unname(struct vvi_obj *obj);
/* Deletes all files of the object. ret_sync: the folder must be synced to make it durable. After a
 * failure the object is unchanged, and is removed before any later generation of its version is. */
int vvi_obj_remove(struct vv_files *files, const struct vv_store_key *key, bool *ret_sync);
/* Deletes what must go before the object: older files of its version that are hidden by it, or whose removal has
 * failed. *ret_any, always set: there were some. */
int vvi_obj_remove_older(struct vv_files *files, const struct vv_store_key *key, bool *ret_any);
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
 * On a target that replaces only whole files, all of it is in `buf` and is rewritten from time to time. Records
 * that the file lacks are read from the checkpoint files at the next open; they are few. */
struct vvi_index {
    const struct vv_os *os;
    int dirfd;
    struct vv_target *target; /* NULL: in a folder */
    char name[32];
    struct vv_mutex lock;
    int fd;       /* -1: abandoned until the next open */
    uint64_t end; /* offset of the next record */
    char *buf;    /* records not written yet */
    size_t used, room;
    /* Number of records, unwritten ones included, and of versions that exist according to them. The latter is
     * an estimate between two compactions: removals of objects that were never committed have records too. */
    uint64_t nrecords, nlive;
    bool whole;       /* on a target: `buf` is the index */
    uint64_t unsaved; /* on a target: records that the file lacks */
    bool published;   /* under its final name, not the temporary one */
};

/* Contents of the index. Records and regions are in `text`. */
struct vvi_index_view {
    char *text;
    uint64_t bytes;       /* in the file */
    uint64_t valid_bytes; /* up to the first bad record; 0: no usable index */
    uint64_t nrecords;
};

/* True if there are more records than 64 plus two for each version: most are then about removed versions. */
static inline bool vvi_index_stale(uint64_t nrecords, uint64_t nlive)
{
    return nrecords > 2 * nlive + 64;
}

void vvi_index_init(struct vvi_index *ix, const struct vv_os *os, int dirfd, uint32_t rank);
void vvi_index_fini(struct vvi_index *ix);
/* Reads the file. A missing or foreign file gives an empty view, not an error. */
int vvi_index_read(struct vvi_index *ix, const char *history, uint32_t rank,
                   struct vvi_index_view *ret_view);
/* Returns the record at *at and advances; NULL at the end of the valid part. */
const struct vvi_index_record *vvi_index_next(const struct vvi_index_view *view, uint64_t *at);
const struct vv_store_region *vvi_index_regions(const struct vvi_index_record *record);
/* Appends to the file behind its valid part, which lists `nlive` existing versions. */
int vvi_index_continue(struct vvi_index *ix, const struct vvi_index_view *view, uint64_t nlive);
/* Starts a new file, under a temporary name until vvi_index_publish. */
int vvi_index_restart(struct vvi_index *ix, const char *history, uint32_t rank);
int vvi_index_publish(struct vvi_index *ix);
/* Adds a record in memory. Flush writes all added records with one call, and rewrites the index without
 * removed versions once they are most of it. The index is a cache: after a failure it is deleted and
 * rebuilt at the next open, and no error is reported. */
void vvi_index_add(struct vvi_index *ix, enum vvi_record_kind kind,
                   const struct vv_files_entry *entry);
void vvi_index_flush(struct vvi_index *ix);
/* True if vvi_index_fini will write the index to its target. vvi_index_leave: it will not. */
bool vvi_index_unsaved(const struct vvi_index *ix);
void vvi_index_leave(struct vvi_index *ix);

/* ---- one history ---- */

struct vvi_found {
    struct vv_files_entry entry;
    uint64_t listed_bytes;         /* length from the listing, if it tells it */
    bool known;                    /* entry is complete */
    uint64_t unsynced_boot;        /* from the file, if it is not in the index */
    int status;                    /* result of reading the file, if not known */
    char *what;                    /* what is wrong with the file, if not known; owned */
    struct vv_store_region *owned; /* regions read from the file itself */
};

struct vvi_hidden {
    uint64_t version, generation;
};

struct vv_files {
    struct vv_folder *folder; /* immutable, down to nhidden */
    char history[VV_CKFILE_HISTORY_MAX + 1];
    /* Its place: `place`, or one in the folder's target; NULL: read-only and missing. */
    struct vv_target *at;
    struct vv_target_folder place;
    int dirfd, lock_fd; /* on a target: -1 */
    pid_t locked_by;
    uint32_t rank;
    uint64_t run_id, first_generation;
    uint64_t serial; /* unique among the open histories of the process */
    bool all_generations, shared, read_only;
    struct vv_remote_hist *remote;   /* gets notified of commits; NULL: none */
    struct vv_partner_hist *partner; /* the same for partner copies */
    /* Versions whose highest generation is damaged (known is false), ascending, and their lower
     * generations, which stay on the disk. */
    struct vvi_found *damaged;
    size_t ndamaged;
    struct vvi_hidden *hidden;
    size_t nhidden;
    /* The sync after a removal failed. A repeated removal finds no file, but must still sync. */
    atomic_bool removal_unsynced;
    struct vvi_index index;
    /* Found at open. Freed by vv_files_list, or at close if read-only. Owner: the opening thread;
     * immutable once listed. */
    struct vvi_found *found;
    size_t nfound;
    struct vvi_index_view view;
};

/* State of a version at open, before it was listed. */
enum vvi_files_state {
    VVI_FILES_NONE,
    VVI_FILES_HAVE,   /* this generation or a higher one exists */
    VVI_FILES_BROKEN, /* this generation exists, but cannot be used */
    VVI_FILES_GONE    /* this generation existed and was removed */
};
enum vvi_files_state vvi_files_state(const struct vv_files *files, uint64_t version,
                                     uint64_t generation);
/* Number of ranks in the job's last life, as this rank recorded it in the folder of its history. -ENOENT: there is
 * no record; -EBADMSG: it has no valid number. */
VV_WARN_UNUSED int vvi_recorded_ranks(struct vv_target *at, uint32_t rank, uint32_t *ret_ranks);
/* For a read-only history: checks that this is the file found at opening. `rc` and `run_id`: result of opening it
 * now. Returns 0, -EIDRM or rc. */
int vvi_files_same(const struct vv_files *files, uint64_t version, uint64_t generation, int rc,
                   uint64_t run_id);
/* Ends uploads of the rank's files that were begun and never committed. The caller must own the rank: the uploads of
 * a running job are ended too. Those that cannot be ended now are ended next time. */
void vvi_files_sweep(struct vv_files *files);
/* The store of a folder that is a target: only reads and removals. */
VV_WARN_UNUSED int vvi_target_store(struct vv_folder *folder, struct vv_store **ret_store);
/* Lists the folder again, after files were put there. */
VV_WARN_UNUSED int vvi_files_again(struct vv_files *files, char *err, size_t err_bytes);

#endif
