/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Partner copies: each process's checkpoints at level `local` have a second copy on another node's
 * local disk, so that recovering from the loss of a node needs no shared storage. For this the processes
 * of a job exchange messages over a transport. varve_open_mpi makes one from MPI; programs with other
 * means of communication describe them here.
 *
 *     struct varve_transport t = {.transport_size = sizeof(t), .rank = me, .ranks = n, ...};
 *     varve_open_with(&opts, &t, &ctx);
 *
 * Parity. With the option `parity` sets of processes keep parity of each other's checkpoints instead, which
 * takes less space (docs/durability.md). The text below applies to parity too: "the copy is safe at the
 * partner" then means that all processes of the set have written the version and committed their parity,
 * and `local_cache` is divided as parity needs it. A version that some process does not write has no
 * parity: waiting for it ends with -ETIMEDOUT or the error of the process that failed, and with -ENODATA if
 * it was found without parity at opening.
 *
 * Partners. Processes with the same `node` (by default the name of the machine) are on one node. The
 * partner of a process is on the next node, in the order of ranks. Its copies are in the folder `.partner`
 * of the partner's local folder. `local_cache` is halved: one half is for the process's own versions, the
 * other for copies of others.
 *
 * Collective calls. With partner copies, varve_open_with, varve_history_open (in both forms) and
 * varve_history_repair are called by all processes of the transport, in the same order and for the same
 * histories, and fail on all if they fail on one. All processes also call varve_history_close and
 * varve_close, which wait for at most `partner_timeout_ms` until the processes whose copies are here
 * have received what they need.
 *
 * Opening a history. A process may lack versions because its disk was lost or damaged, or because it
 * now runs on another node. It gets them back from their copies before the call returns.
 *
 * Waiting. varve_wait for level `local`, and varve_flush, return when the copy is safe at the partner
 * too. If a copy fails, the checkpoint does not: the version is on local disk and can be restored.
 * varve_wait, varve_flush and varve_close retry the copy, and return the error if it fails again. A
 * partner that does not answer for `partner_timeout_ms` is such an error, -ETIMEDOUT.
 *
 * Overwriting. A replaced version stays, here and at the partner, until the partner has the new one;
 * until then varve_revert brings it back. `keep` counts versions that the partner has. If copies fail,
 * the newest `keep` versions with a copy stay, and the newest `keep` on local disk.
 *
 * Threads. If the transport allows calls from any thread at any time (`threads`), copies are made in
 * the background. Otherwise it is called only inside varve_checkpoint, varve_wait, varve_flush, the
 * calls that close and the collective calls. All processes should then wait for the same versions,
 * because a waiting process needs its partner to be in one of these calls as well.
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

/* Bytes sent to, or received from, one process. */
struct varve_part {
    void *data;   /* NULL: no bytes */
    size_t bytes; /* length of `data` */
};

/*
 * A way for the processes of a job to exchange messages. Functions return 0 or a negative errno. Memory
 * that changes owner was allocated by malloc or posix_memalign, and the new owner calls free().
 */
struct varve_transport {
    size_t transport_size; /* sizeof(struct varve_transport) */
    int32_t rank, ranks;   /* rank of this process, and number of processes */
    int32_t threads; /* not 0: all functions may be called from any thread, several at a time */
    int32_t zero;    /* 0 */
    void *arg;       /* first argument of all functions */
    /* Without `threads`: not 0 if the calling thread may use the transport. NULL: any thread may, one
     * at a time. */
    int (*may_call)(void *arg);
    /* Sends a message and does not wait for its arrival. Owns the message from then on, even after an
     * error. Messages from one process to another arrive in the order of sending. */
    int (*send)(void *arg, int32_t to, void *message, size_t bytes);
    /* Returns the next message that has arrived, aligned to 4096 bytes; the caller owns it. Does not
     * wait: -EAGAIN if there is none. */
    int (*receive)(void *arg, int32_t *ret_from, void **ret_message, size_t *ret_bytes);
    /* Collective: `out` and `ret_in` have one part for each process. The caller owns the received
     * parts, aligned to 4096 bytes; NULL if a part has no bytes. */
    int (*exchange)(void *arg, const struct varve_part *out, struct varve_part *ret_in);
    /* Collective: the greatest of the values. */
    int (*most)(void *arg, uint64_t value, uint64_t *ret_most);
    /* Called when the context is closed. May be NULL. */
    void (*close)(void *arg);
};

/*
 * Opens a context as varve_open does, on every process of `transport`, with partner copies (the option
 * `partner` is set), or with parity. The transport is copied; its `arg` must outlive the context. With a
 * NULL transport the call is varve_open. Collective.
 *   -EINVAL   all processes are on one node, or cannot be divided into sets; two partners, or two
 *             processes of one set, have the same local folder; the level is not `local`; runs differ;
 *             or a process has an invalid option
 *   other     as varve_open, on any process
 */
VARVE_API int varve_open_with(const struct varve_opts *opts,
                              const struct varve_transport *transport,
                              struct varve_ctx **ret_ctx) VARVE_CHECK;
/*
 * Repairs the local files of a version from its partner copies or parity, on the processes that call it with
 * `needed` other than 0 because a restore has failed with -EBADMSG, -EIO or -ENOENT. Collective; each
 * process gets a result of its own. Bytes of the version in memory are not used.
 *   -EBADMSG  there is no good copy
 *   -ENOENT   the version is not known here
 *   -ENOTSUP  the context has no partner copies
 */
VARVE_API int varve_history_repair(struct varve_history *h, uint64_t version,
                                   int needed) VARVE_CHECK;
#define varve_history_mend varve_history_repair /* its former name, until 0.3 */
/*
 * Sets the record that varve_last_error returns, of the context, or with NULL that of this thread. For
 * libraries whose calls fail on a process because they have failed on another one. `text` is cut to the
 * size of a record. Returns `err`. Does not block.
 */
VARVE_API int varve_set_error(struct varve_ctx *ctx, const char *operation, int err,
                              const char *text);

#ifdef __cplusplus
}
#endif

#endif
