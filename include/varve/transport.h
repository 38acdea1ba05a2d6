/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Partner copies: each process's checkpoints at level `local` have a second copy on another node's
 * local disk, so that losing a node needs no shared storage. The processes of a job talk to each other
 * for that over a transport. varve_open_mpi makes one of MPI; programs that have other means describe
 * them here.
 *
 *     struct varve_transport t = {.transport_size = sizeof(t), .rank = me, .ranks = n, ...};
 *     varve_open_with(&opts, &t, &ctx);
 *
 * Parity. With the option `parity` sets of processes keep parity of each other's checkpoints instead, which
 * takes less space (docs/durability.md). What follows holds for it too: "the copy is safe at the partner" then
 * says that all of the set have written the version and committed their parity, and `local_cache` is divided
 * as parity needs it. A version that not all write has none: waiting for it ends with -ETIMEDOUT, or the error of
 * the process that could not, and with -ENODATA if it was found so at opening.
 *
 * Partners. Processes with the same `node` (by default the name of the machine) are
 * on one node. The partner of a process is on the next node, in the order of ranks. Its copies are in
 * the folder `.partner` of the partner's local folder. `local_cache` is then halved: one half is for
 * a process's own versions, one for those that it keeps for others.
 *
 * Collective calls. With partner copies, varve_open_with, varve_history_open (in both forms) and
 * varve_history_repair are called by all processes of the transport, in the same order and for the same
 * histories, and fail on all if they fail on one; varve_history_close and varve_close are called by
 * all, too, and wait until those whose copies are here have what they need, for at most
 * `partner_timeout_ms`.
 *
 * Opening a history. A process that lacks versions, because its disk was lost or damaged or because it
 * runs on another node now, gets them back from wherever their copies are before the call returns.
 *
 * Waiting. varve_wait for level `local`, and varve_flush, return when the copy is safe at the partner
 * too. A copy that fails does not fail the checkpoint: the version is on local disk, and can be
 * restored; varve_wait, varve_flush and varve_close return the error, and try again first. A partner
 * that does not answer for `partner_timeout_ms` is such an error, -ETIMEDOUT.
 *
 * Overwriting. What is replaced stays, here and at the partner, until the partner has what replaces it;
 * varve_revert brings it back until then. `keep` counts versions that the partner has. If copies fail,
 * the newest `keep` that have one stay, and the newest `keep` on local disk.
 *
 * Threads. If the transport takes calls from any thread, at any time (`threads`), copies are made in
 * the background. Otherwise it is called inside of varve_checkpoint, varve_wait, varve_flush, the
 * closing and the collective calls, and nowhere else; then all processes should wait for the same
 * versions, because a process that waits needs its partner to be in one of these calls as well.
 */
#ifndef VARVE_TRANSPORT_H
#define VARVE_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>

#include <varve/ckpt.h>
#include <varve/varve.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Some bytes for or from one process. */
struct varve_part {
    void *data;   /* NULL: there are none */
    size_t bytes; /* how many */
};

/*
 * A way for the processes of a job to talk. Functions return 0 or a negative errno. Memory that
 * changes hands is of malloc or posix_memalign and ends with free().
 */
struct varve_transport {
    size_t transport_size; /* sizeof(struct varve_transport) */
    int32_t rank, ranks;   /* this process, and how many there are */
    int32_t threads; /* not 0: all functions may be called from any thread, several at a time */
    int32_t zero;    /* 0 */
    void *arg;       /* of all functions */
    /* Without `threads`: may the calling thread use it? NULL: any may, one at a time. */
    int (*may_call)(void *arg);
    /* Takes a message, whatever the result, and does not wait until it has arrived. Messages from one
     * process to another arrive in the order of sending. */
    int (*send)(void *arg, int32_t to, void *message, size_t bytes);
    /* Gives the next message that has arrived, aligned to 4096 bytes, to the caller. Does not wait:
     * -EAGAIN if there is none. */
    int (*receive)(void *arg, int32_t *ret_from, void **ret_message, size_t *ret_bytes);
    /* Collective: `out` and `ret_in` have one part for each process. What came in is the caller's,
     * aligned to 4096 bytes; NULL if it has no bytes. */
    int (*exchange)(void *arg, const struct varve_part *out, struct varve_part *ret_in);
    /* Collective: the greatest of the values. */
    int (*most)(void *arg, uint64_t value, uint64_t *ret_most);
    /* The context is closed. NULL: nothing is to be done then. */
    void (*close)(void *arg);
};

/*
 * Opens a context as varve_open does, on every process of `transport`, with partner copies (the option
 * `partner` is set), or with parity. The transport is copied; what it stands on outlives the context. With NULL it is
 * varve_open. Collective.
 *   -EINVAL   all processes are on one node, or cannot be divided into sets; two that are partners, or in
 *             one set, have the same local folder; the
 *             level is not `local`; runs differ; a process has an option that makes no sense
 *   other     as of varve_open, on any process
 */
VARVE_API int varve_open_with(const struct varve_opts *opts,
                              const struct varve_transport *transport,
                              struct varve_ctx **ret_ctx) VARVE_CHECK;
/*
 * Puts the local files of a version right from its partner copies, or parity: on the processes that call with
 * `needed` other than 0, because a restore has failed with -EBADMSG, -EIO or -ENOENT. Collective; each
 * process gets a result of its own. What memory holds of the version is not asked for.
 *   -EBADMSG  there is no good copy
 *   -ENOENT   the version is not known here
 *   -ENOTSUP  the context has no partner copies
 */
VARVE_API int varve_history_repair(struct varve_history *h, uint64_t version,
                                   int needed) VARVE_CHECK;
#define varve_history_mend varve_history_repair /* its former name, until 0.3 */
/*
 * Writes the record that varve_last_error gives, of the context, or with NULL that of this thread: for
 * libraries whose calls fail on a process because they have failed on another one. `text` is cut to
 * what a record holds. Returns `err`. Does not block.
 */
VARVE_API int varve_set_error(struct varve_ctx *ctx, const char *operation, int err,
                              const char *text);

#ifdef __cplusplus
}
#endif

#endif
