/* SPDX-License-Identifier: Apache-2.0 */
/* The remote folder: committed files are copied to shared storage, and read back from there.
 *
 * A vv_remote is between an engine and its storage tier. It wraps the stores of the movers (vv_remote_store). It
 * copies every commit that they report to the shared folder, in the background, in the order of writing, under the
 * same name and with the same bytes; with more than one rank it leaves markers and group records (group.h). Reads
 * that the local folder cannot serve, or serves with wrong bytes, are served from the shared one, and the local copy
 * is repaired. A removal deletes the shared copy first. The engine above sees one folder of files.
 *
 * Without a local folder (`direct`) the engine writes to the shared one: nothing is copied, only markers and records
 * are written.
 *
 * Threads: any; see remote.c. */
#ifndef VV_STORE_REMOTE_H
#define VV_STORE_REMOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"
#include "store/store.h"

struct vv_budget;
struct vv_remote;      /* a context's connection to the shared folder */
struct vv_remote_hist; /* one history there */

struct vv_remote_opts {
    const char *path;
    struct vv_store_opts store; /* of the shared folder */
    uint32_t rank, ranks;
    uint64_t run_id;           /* 0: draw one */
    bool complete;             /* write group records */
    bool direct;               /* the engine writes to the shared folder itself */
    uint64_t bytes_per_s;      /* limit on copies of the whole node; 0: none */
    uint64_t pace_bytes_per_s; /* the same for this process alone */
    struct vv_budget *disk;    /* of the local folder; outlives this; NULL: none */
    uint64_t local_bytes;      /* limit on local disk used by files; 0: none */
};

VV_WARN_UNUSED int vv_remote_new(const struct vv_remote_opts *opts, char *err, size_t err_bytes,
                                 struct vv_remote **ret_remote);
/* Call it after its stores and histories were closed. Accepts NULL. */
void vv_remote_free(struct vv_remote *remote);
/* The shared folder. With `direct` the engine uses it. */
struct vv_folder *vv_remote_folder(struct vv_remote *remote);
/* Wraps a store of the engine's folder; closing the wrapper closes it. On failure it stays the
 * caller's. */
VV_WARN_UNUSED int vv_remote_store(struct vv_remote *remote, struct vv_store *inner,
                                   struct vv_store **ret_store);

/* ---- histories ---- */

struct vv_remote_hist_opts {
    /* A file has reached the level of the context. Called once for each, on the worker's thread, with
     * no lock held, between vv_remote_start and vv_remote_stop; not for files that had reached it at
     * opening. The engine decides what follows. */
    void (*reached)(void *arg, uint64_t version, uint64_t generation);
    void *arg;
};

/*
 * Opens a history: takes its lock in the shared folder, finds the versions there and in `local` (opened with all
 * generations; NULL if direct), and draws generations for this life.
 *   -EINVAL  the history was written by another number of ranks; or the run id is that of its last
 *            life
 */
VV_WARN_UNUSED int vv_remote_open(struct vv_remote *remote, const char *history,
                                  struct vv_files *local, const struct vv_remote_hist_opts *opts,
                                  char *err, size_t err_bytes, struct vv_remote_hist **ret_hist);
/*
 * Opens the files of one rank of any job for reading: nothing is written, locked or repaired, and later writes of
 * others are not seen. `ranks`: of the job that wrote it. `local`: also opened for reading, or NULL if direct. The
 * history does nothing in the background, with or without vv_remote_start.
 *   -ENOENT  the history does not exist
 */
VV_WARN_UNUSED int vv_remote_open_part(struct vv_remote *remote, const char *history, uint32_t rank,
                                       uint32_t ranks, struct vv_files *local, char *err,
                                       size_t err_bytes, struct vv_remote_hist **ret_hist);
/* Starts background work. Call it when the engine has listed the versions. trace_history: name of the
 * history in traces. */
void vv_remote_start(struct vv_remote_hist *hist, uint64_t trace_history);
/* Begins no more copies and expires nothing; removals go on. Call it before the engine drops the
 * history. */
void vv_remote_stop(struct vv_remote_hist *hist);
/* Call it with no request on the history in flight, and before `local` is closed. Accepts NULL. */
void vv_remote_close(struct vv_remote_hist *hist);
/* The handle that the engine writes to, with `direct`. */
struct vv_files *vv_remote_files(struct vv_remote_hist *hist);
uint64_t vv_remote_first_generation(const struct vv_remote_hist *hist);
/* The run id in this life's files. */
uint64_t vv_remote_run_id(const struct vv_remote_hist *hist);

/* As vv_files_list and vv_files_list_damaged, over both folders. */
int vv_remote_list(struct vv_remote_hist *hist,
                   int (*visit)(void *user, const struct vv_files_entry *e), void *user);
int vv_remote_list_damaged(const struct vv_remote_hist *hist,
                           int (*visit)(void *user, const struct vv_files_damage *d), void *user);

enum vv_remote_level { VV_REMOTE_STORED, VV_REMOTE_COMPLETE };

/* Waits until a committed version is in the shared folder, or complete. After a failure it is tried again
 * first. -ENOENT: not known here; -ETIMEDOUT; -ECANCELED: complete in a later run. */
VV_WARN_UNUSED int vv_remote_wait(struct vv_remote_hist *hist, uint64_t version,
                                  enum vv_remote_level level, uint64_t deadline_ns);
/* The same for all committed versions; returns the first error. `marked`: waits only for what this rank
 * can do alone. ret_version is set on failure. */
VV_WARN_UNUSED int vv_remote_wait_all(struct vv_remote_hist *hist, bool marked,
                                      uint64_t deadline_ns, uint64_t *ret_version);
/* True if this generation of a version has reached the level of the context. */
bool vv_remote_has_reached(struct vv_remote_hist *hist, uint64_t version, uint64_t generation);
/* Returns an error of the background work, once; 0: none. */
int vv_remote_take_error(struct vv_remote_hist *hist, uint64_t *ret_version);

struct vv_remote_stats {
    uint64_t written_bytes, read_bytes; /* of data, to and from the shared folder */
    uint64_t healed_chunks;             /* read from there because the local copy was bad */
    uint64_t repaired_chunks;           /* bad chunks that were rewritten */
    uint64_t local_bytes;               /* local disk in use; 0 without a limit */
};
void vv_remote_get_stats(struct vv_remote *remote, struct vv_remote_stats *ret_stats);

#endif
