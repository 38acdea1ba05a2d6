/* SPDX-License-Identifier: Apache-2.0 */
/* Partner copies: each process's committed files have a second copy on another node's local disk; or parity on the
 * disks of several nodes, which takes less space. Below, "copy" means both.
 *
 * A vv_partner wraps the stores of the movers (vv_partner_store) and sees their commits and removals. It copies every
 * committed file, over a wire (wire.h), to the process's partner, a process of the next node. The partner keeps it in
 * the folder `.partner` of its own local folder. Opening a history is collective: files that a process has lost,
 * because its disk was lost or damaged, come back from their copies.
 *
 * If the wire has `threads`, a thread of the library does the work. Otherwise it is done inside calls of the
 * application: vv_partner_attend, _wait, _flush and the collective ones. See partner.c. */
#ifndef VV_STORE_PARTNER_H
#define VV_STORE_PARTNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"
#include "store/partner/wire.h"
#include "store/store.h"

#define VV_PARTNER_FOLDER ".partner"
#define VV_PARITY_FOLDER  ".parity"

struct vv_partner;
struct vv_partner_hist;
struct vv_budget;

struct vv_partner_opts {
    struct vv_wire wire;      /* outlives this */
    struct vv_folder *folder; /* the local one; outlives this. NULL: it could not be opened */
    /* Failure domain of this process: ranks in one are never partners; "": the node. */
    const char *node;
    uint64_t run_id;
    uint64_t timeout_ns;  /* longest silence of a process from which an answer is due */
    uint64_t cache_bytes; /* limit for own files and others', or parity, together; 0: none */
    uint32_t parity;      /* number of members of a set that may be lost, with parity; 0: copies */
    uint32_t set;         /* approximate number of members of a set */
    struct vv_budget *disk; /* of the local folder; NULL: none */
    int status;             /* collective: this process's error of opening so far */
};

/* Collective: called by all processes of the wire, even after an error (`status`). If one fails, all fail,
 * with the least of the errors. -EINVAL with a text: all processes are on one node, ... */
VV_WARN_UNUSED int vv_partner_new(const struct vv_partner_opts *opts, char *err, size_t err_bytes,
                                  struct vv_partner **ret_partner);
/* After its stores and histories were closed. Accepts NULL. */
void vv_partner_free(struct vv_partner *partner);
/* True with parity, false with copies. */
bool vv_partner_parity(const struct vv_partner *partner);
/* The place of the second copy, for a message: "its copy at rank 3", "its parity". */
const char *vv_partner_what(const struct vv_partner *partner, char text[64]);
/* The part of cache_bytes for own files; 0: no limit. */
uint64_t vv_partner_own_bytes(const struct vv_partner *partner);
/* As vv_budget_store. */
VV_WARN_UNUSED int vv_partner_store(struct vv_partner *partner, struct vv_store *inner,
                                    struct vv_store **ret_store);

/* Collective. `files`: of the history, not listed yet; NULL if opening them failed with `status`. Files that
 * this process lacks are put there and found. Its generations begin at vv_partner_first_generation. If one
 * process fails, all fail. */
VV_WARN_UNUSED int vv_partner_open(struct vv_partner *partner, const char *history,
                                   struct vv_files *files, int status, char *err, size_t err_bytes,
                                   struct vv_partner_hist **ret_hist);
uint64_t vv_partner_first_generation(const struct vv_partner_hist *hist);
/* Removes parity of a history that is not open, so that it does not restore removed files: the parity of this process,
 * and of ranks from `first_rank` on, which do not run any more. Copies stay. */
VV_WARN_UNUSED int vv_partner_remove(struct vv_partner *partner, const char *history,
                                     uint32_t first_rank);
/* Collective: 0 if all have succeeded. Closes nothing. */
VV_WARN_UNUSED int vv_partner_agree(struct vv_partner *partner, int status);
/* Collective: processes that need it (`needed`) get the bytes of a version from their copies, and their
 * local file is repaired. 0: this process has the bytes that it needed. */
VV_WARN_UNUSED int vv_partner_repair(struct vv_partner_hist *hist, uint64_t version, bool needed);
/* True if the copy of this file is committed at the partner. */
bool vv_partner_has_copy(struct vv_partner_hist *hist, uint64_t version, uint64_t generation);
/* From now on `report` is called when a copy is committed at the partner (status 0) or has failed (again after
 * each failure), but not for copies that existed at opening. It decides which files are removed. Called with no
 * lock held, on the thread that copies: the partner's own, or one of the application inside a call that waits.
 * Not called after vv_partner_stop, which may be called without a start. */
typedef void vv_partner_report_fn(void *arg, uint64_t version, uint64_t generation, int status);
void vv_partner_start(struct vv_partner_hist *hist, vv_partner_report_fn *report, void *arg);
void vv_partner_stop(struct vv_partner_hist *hist);
/* With no request on it in flight; before `files` is closed. Accepts NULL. */
void vv_partner_close(struct vv_partner_hist *hist);

/* Does the work that can be done at once, if there is no thread for it. */
void vv_partner_attend(struct vv_partner *partner);
/* Waits until the copy of a committed version is committed at the partner, and reported. A failed copy is tried
 * again first. -ENOENT: not known here; -ETIMEDOUT: not in time, or the partner does not answer; -EPERM:
 * this thread must not use the wire. */
VV_WARN_UNUSED int vv_partner_wait(struct vv_partner_hist *hist, uint64_t version,
                                   uint64_t deadline_ns);
/* This process will not wait for the version, because of `status`: other processes need not stay for this wait. */
void vv_partner_give_up(struct vv_partner_hist *hist, uint64_t version, int status);
/* The same as vv_partner_wait for all; the first error. *ret_version is set on failure. */
VV_WARN_UNUSED int vv_partner_flush(struct vv_partner_hist *hist, uint64_t deadline_ns,
                                    uint64_t *ret_version);
/* After vv_partner_flush, and the removals that followed: stays until the processes whose copies are here have
 * what they need. `last`: before closing, also if a thread does the work. */
void vv_partner_linger(struct vv_partner_hist *hist, bool last, uint64_t deadline_ns);

struct vv_partner_stats {
    uint64_t sent, received;             /* copies made */
    uint64_t sent_bytes, received_bytes; /* of files, in these copies */
    uint64_t pending;                    /* versions here without a copy */
    uint64_t held_bytes;                 /* disk used here by others' files */
    uint64_t errors;                     /* copies that failed */
    uint64_t recovered;                  /* files restored from copies */
    uint64_t repaired_chunks;
};
void vv_partner_get_stats(struct vv_partner *partner, struct vv_partner_stats *ret_stats);

#endif
