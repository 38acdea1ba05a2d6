/* SPDX-License-Identifier: Apache-2.0 */
/* Partner copies: each process's committed files have a second copy on another node's local disk; or parity on those
 * of several, which takes less space. What follows says copy for both.
 *
 * A vv_partner wraps the stores of the movers (vv_partner_store) and sees what they commit and
 * remove. It copies every committed file, over a wire (wire.h), to the process's partner, a process
 * of the next node, which keeps it in the folder `.partner` of its own local folder; and it keeps
 * there what others send. Opening a history is collective: what a process lacks, because its disk was
 * lost or damaged, comes back from where its copies are.
 *
 * With `threads` of the wire a thread of its own does the work. Without, it is done inside of calls
 * of the application: vv_partner_attend, _wait, _flush and the collective ones. See partner.c. */
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
    const char *node;         /* what this process calls its node; "": found out */
    uint64_t run_id;
    uint64_t timeout_ns;  /* how long nothing may come from a process that owes us something */
    uint64_t cache_bytes; /* for own files and others', or parity, together; 0: no limit */
    uint32_t
        parity; /* how many of a set may be lost, whose files have parity instead of copies; 0: copies */
    uint32_t set;           /* members of a set, about */
    struct vv_budget *disk; /* of the local folder; NULL: none */
    int status;             /* collective: what opening came to so far in this process */
};

/* Collective: all processes of the wire, whatever has failed in them before (`status`). If one fails
 * all do, with the least of the errors. -EINVAL with a text: all processes are on one node, ... */
VV_WARN_UNUSED int vv_partner_new(const struct vv_partner_opts *opts, char *err, size_t err_bytes,
                                  struct vv_partner **ret_partner);
/* After its stores and histories were closed. Accepts NULL. */
void vv_partner_free(struct vv_partner *partner);
/* Is it parity? */
bool vv_partner_parity(const struct vv_partner *partner);
/* Where the second copy is, for a message: "its copy at rank 3", "its parity". */
const char *vv_partner_what(const struct vv_partner *partner, char text[64]);
/* Of cache_bytes, what is for own files; 0: no limit. */
uint64_t vv_partner_own_bytes(const struct vv_partner *partner);
/* As vv_budget_store. */
VV_WARN_UNUSED int vv_partner_store(struct vv_partner *partner, struct vv_store *inner,
                                    struct vv_store **ret_store);

/* Collective. `files`: of the history, with what was found not listed yet; NULL if that failed with
 * `status`. Files that this process lacks are put there and found. Its generations begin at
 * vv_partner_first_generation. If one process fails all do. */
VV_WARN_UNUSED int vv_partner_open(struct vv_partner *partner, const char *history,
                                   struct vv_files *files, int status, char *err, size_t err_bytes,
                                   struct vv_partner_hist **ret_hist);
uint64_t vv_partner_first_generation(const struct vv_partner_hist *hist);
/* Removes the parity of a history that is not open, of this process and of ranks from `first_rank` on that do not run any
 * more, so that it does not bring back what is removed. Copies stay. */
VV_WARN_UNUSED int vv_partner_remove(struct vv_partner *partner, const char *history,
                                     uint32_t first_rank);
/* Collective: whether all have succeeded. Closes nothing. */
VV_WARN_UNUSED int vv_partner_agree(struct vv_partner *partner, int status);
/* Collective: processes that need it (`needed`) get the bytes of a version back from their copies, and
 * their local file is put right. 0: this one has what it needed. */
VV_WARN_UNUSED int vv_partner_repair(struct vv_partner_hist *hist, uint64_t version, bool needed);
/* Is the copy of this file safe at the partner? */
bool vv_partner_has_copy(struct vv_partner_hist *hist, uint64_t version, uint64_t generation);
/* From now on `report` is called when a copy is safe at the partner (status 0) or has failed, which is
 * said again when it fails once more; not for copies that were there at opening. It decides which files
 * go. Called with no lock held, on the thread that copies: the partner's own, or one of the application
 * inside of a call that waits. Not after vv_partner_stop, which may be called without a start. */
typedef void vv_partner_report_fn(void *arg, uint64_t version, uint64_t generation, int status);
void vv_partner_start(struct vv_partner_hist *hist, vv_partner_report_fn *report, void *arg);
void vv_partner_stop(struct vv_partner_hist *hist);
/* With no request on it in flight; before `files` is closed. Accepts NULL. */
void vv_partner_close(struct vv_partner_hist *hist);

/* Does what can be done at once, if it is not a thread's business. */
void vv_partner_attend(struct vv_partner *partner);
/* Waits until the copy of a committed version is safe at the partner, and reported. What had failed is
 * tried again first. -ENOENT: not known here; -ETIMEDOUT: not in time, or the partner does not answer; -EPERM:
 * this thread must not use the wire. */
VV_WARN_UNUSED int vv_partner_wait(struct vv_partner_hist *hist, uint64_t version,
                                   uint64_t deadline_ns);
/* This process will not wait for the version, because of `status`: others need not stay for its sake. */
void vv_partner_give_up(struct vv_partner_hist *hist, uint64_t version, int status);
/* The same as vv_partner_wait for all; the first error. *ret_version is set on failure. */
VV_WARN_UNUSED int vv_partner_flush(struct vv_partner_hist *hist, uint64_t deadline_ns,
                                    uint64_t *ret_version);
/* After vv_partner_flush, and the removals that followed from it: stays until those whose copies are here
 * have what they need. `last`: before closing, also where a thread would do it. */
void vv_partner_linger(struct vv_partner_hist *hist, bool last, uint64_t deadline_ns);

struct vv_partner_stats {
    uint64_t sent, received;             /* copies that were made */
    uint64_t sent_bytes, received_bytes; /* of files, by these */
    uint64_t pending;                    /* versions here that have no copy yet */
    uint64_t held_bytes;                 /* of disk, that others' files take here */
    uint64_t errors;                     /* copies that failed */
    uint64_t recovered;                  /* files that came back */
    uint64_t repaired_chunks;
};
void vv_partner_get_stats(struct vv_partner *partner, struct vv_partner_stats *ret_stats);

#endif
