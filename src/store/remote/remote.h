/* SPDX-License-Identifier: Apache-2.0 */
/* The remote folder: committed files go on to shared storage, and come back from there.
 *
 * A vv_remote stands between an engine and its storage tier. It wraps the stores of the movers
 * (vv_remote_store): every commit they report it copies to the shared folder, in the background, in
 * the order of writing, under the same name and with the same bytes; with more than one rank it
 * leaves markers and group records (group.h). Reads that the local folder cannot serve, or serves
 * with wrong bytes, are served from the shared one, and the local copy is repaired. Removals take
 * the shared copy away first. The engine above sees one folder of files.
 *
 * Without a local folder (`direct`) the engine's folder is the shared one: nothing is copied, only
 * markers and records are written.
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
struct vv_remote;      /* a context's way to the shared folder */
struct vv_remote_hist; /* one history there */

struct vv_remote_opts {
    const char *path;
    struct vv_store_opts store; /* of the shared folder */
    uint32_t rank, ranks;
    uint64_t run_id;           /* 0: draw one */
    bool complete;             /* group records are wanted */
    bool direct;               /* the engine writes to the shared folder itself */
    uint64_t bytes_per_s;      /* of copies, for the whole node; 0: no limit */
    uint64_t pace_bytes_per_s; /* the same for this process alone */
    struct vv_budget *disk;    /* of the local folder; outlives this; NULL: none */
    uint64_t local_bytes;      /* of local disk that the files take at most; 0: no limit */
};

VV_WARN_UNUSED int vv_remote_new(const struct vv_remote_opts *opts, char *err, size_t err_bytes,
                                 struct vv_remote **ret_remote);
/* After its stores and histories were closed. Accepts NULL. */
void vv_remote_free(struct vv_remote *remote);
/* The shared folder: the engine's, if `direct`. */
struct vv_folder *vv_remote_folder(struct vv_remote *remote);
/* Wraps a store of the engine's folder; closing the wrapper closes it. On failure it stays the
 * caller's. */
VV_WARN_UNUSED int vv_remote_store(struct vv_remote *remote, struct vv_store *inner,
                                   struct vv_store **ret_store);

/* ---- histories ---- */

struct vv_remote_hist_opts {
    /* A file has reached the level of the context. Called once for each, on the worker's thread, with
     * no lock held, between vv_remote_start and vv_remote_stop; not for those that had reached it at
     * opening. What follows from it is the engine's to decide. */
    void (*reached)(void *arg, uint64_t version, uint64_t generation);
    void *arg;
};

/*
 * Opens a history: takes its lock in the shared folder, finds what is there and what `local` has
 * (opened with all generations; NULL if direct), and draws generations for this life.
 *   -EINVAL  the history was written by another number of ranks; or the run id is that of its last
 *            life
 */
VV_WARN_UNUSED int vv_remote_open(struct vv_remote *remote, const char *history,
                                  struct vv_files *local, const struct vv_remote_hist_opts *opts,
                                  char *err, size_t err_bytes, struct vv_remote_hist **ret_hist);
/*
 * Opens what one rank of any job has there, for reading: nothing is written, locked or repaired, and what others
 * write later is not seen. `ranks`: of the job that wrote it. `local`: opened likewise, or NULL if direct. Nothing of it
 * works in the background, started or not.
 *   -ENOENT  there is no such history
 */
VV_WARN_UNUSED int vv_remote_open_part(struct vv_remote *remote, const char *history, uint32_t rank,
                                       uint32_t ranks, struct vv_files *local, char *err,
                                       size_t err_bytes, struct vv_remote_hist **ret_hist);
/* From here on it works in the background: when the engine knows what was listed. trace_history: what
 * the history is called in traces. */
void vv_remote_start(struct vv_remote_hist *hist, uint64_t trace_history);
/* No copy is begun and nothing expires any more; removals go on. Before the engine drops the
 * history. */
void vv_remote_stop(struct vv_remote_hist *hist);
/* With no request on it in flight. Before `local` is closed. Accepts NULL. */
void vv_remote_close(struct vv_remote_hist *hist);
/* The handle that the engine writes to, if direct. */
struct vv_files *vv_remote_files(struct vv_remote_hist *hist);
uint64_t vv_remote_first_generation(const struct vv_remote_hist *hist);
/* The id that this life's files carry. */
uint64_t vv_remote_run_id(const struct vv_remote_hist *hist);

/* As vv_files_list and vv_files_list_damaged, over both folders. */
int vv_remote_list(struct vv_remote_hist *hist,
                   int (*visit)(void *user, const struct vv_files_entry *e), void *user);
int vv_remote_list_damaged(const struct vv_remote_hist *hist,
                           int (*visit)(void *user, const struct vv_files_damage *d), void *user);

enum vv_remote_level { VV_REMOTE_STORED, VV_REMOTE_COMPLETE };

/* Waits until a version that was committed is in the shared folder, or complete. What had failed is
 * tried again first. -ENOENT: not known here; -ETIMEDOUT; -ECANCELED: complete in a later run. */
VV_WARN_UNUSED int vv_remote_wait(struct vv_remote_hist *hist, uint64_t version,
                                  enum vv_remote_level level, uint64_t deadline_ns);
/* The same for all that was committed; the first error. `marked`: as far as this rank can bring
 * them alone. ret_version is set on failure. */
VV_WARN_UNUSED int vv_remote_wait_all(struct vv_remote_hist *hist, bool marked,
                                      uint64_t deadline_ns, uint64_t *ret_version);
/* Has this generation of a version reached the level of the context? */
bool vv_remote_has_reached(struct vv_remote_hist *hist, uint64_t version, uint64_t generation);
/* What failed in the background, told once: 0 if nothing. */
int vv_remote_take_error(struct vv_remote_hist *hist, uint64_t *ret_version);

struct vv_remote_stats {
    uint64_t written_bytes, read_bytes; /* of data, to and from the shared folder */
    uint64_t healed_chunks;             /* read from there because the local copy was bad */
    uint64_t repaired_chunks;           /* put right where they were bad */
    uint64_t local_bytes;               /* of local disk in use; 0 without a limit */
};
void vv_remote_get_stats(struct vv_remote *remote, struct vv_remote_stats *ret_stats);

#endif
