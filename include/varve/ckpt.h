/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoint histories: named sequences of versions. A version is the content of the protected
 * regions at the time of the call, immutable from then on, and can be restored in any order, any
 * number of times, into the same or other buffers.
 *
 *     varve_protect(h, 0, field, bytes);
 *     for (v = 0; v < n; v++) { step(field); varve_hint(h, n - 1 - v); varve_checkpoint(h, v); }
 *     varve_prefetch_start(h);
 *     for (v = n; v-- > 0;) { varve_restore(h, v); adjoint_step(field); }
 *
 * Threads. All functions may be called from any thread. Calls on one history from several threads
 * are allowed; they see the regions protected when they start. A region's memory must stay valid
 * and, during a checkpoint, unchanged until the call returns.
 *
 * Device memory. A blocking call on device memory is ordered behind the application's work on the
 * default stream, and has ended when it returns, like a synchronous copy. Work on other streams is
 * the caller's to order, or uses the calls named `_on`. Host memory needs no alignment.
 *
 * Time. Calls named `_for` and those with `timeout_ms` end after about that time with -ETIMEDOUT: 0
 * polls, negative waits without limit. Every other blocking call waits without limit, but a wait
 * that nothing in progress can end returns an error at once instead (-ENOSPC, -EIO, ...). Copies
 * already begun on the caller's memory are finished first.
 *
 * Late errors. What fails after a checkpoint has returned (a flush to a full disk, say) is reported
 * once: by a varve_wait for that version, or else by the next varve_checkpoint, varve_restore,
 * varve_acquire, varve_reserve, varve_commit (in any form), varve_prefetch_start or varve_flush on
 * the history. That call has then done nothing and may be repeated. varve_last_error names the
 * version and the tier.
 *
 * Errors of every function besides its own: -EINVAL for NULL handles and absurd arguments, -EPERM
 * in a forked child.
 */
#ifndef VARVE_CKPT_H
#define VARVE_CKPT_H

#include <stddef.h>
#include <stdint.h>

#include <varve/varve.h>

#ifdef __cplusplus
extern "C" {
#endif

struct varve_history;
struct CUstream_st; /* what a stream handle of CUDA points to */

enum varve_consume {
    VARVE_CONSUME_KEEP, /* a restored version stays */
    VARVE_CONSUME_ONCE  /* a restored version is discarded, and what was left to flush of it is
                           dropped */
};

/* In which order versions will be restored, where that is known beforehand. */
enum varve_order {
    VARVE_ORDER_HINTS, /* that of varve_hint, or one that the library finds out */
    VARVE_ORDER_FIFO,  /* that of writing: first in, first out */
    VARVE_ORDER_LIFO   /* the reverse of it: last in, first out */
};

struct varve_history_opts {
    size_t opts_size;    /* sizeof(struct varve_history_opts), as varve_history_opts_init sets it */
    int consume;         /* enum varve_consume */
    uint64_t keep;       /* newest versions kept once they have reached the level; older ones are
                      discarded; 0: all */
    uint64_t keep_every; /* with `keep`, versions whose number is a multiple of this stay too; 0:
                            none */
    int overwrite;       /* not 0: varve_checkpoint, in any form, of a version that exists replaces
                            it. The old one stays until the new one has reached the level of the
                            context: if the checkpoint fails, or the process is killed, the version
                            is what it was. At level `cached` the old one goes at once */
    int order;           /* enum varve_order: with one that is declared the library hints every
                            version as it is written, and varve_hint is refused */
    int confirm;         /* not 0: a checkpoint is provisional until varve_confirm: what it replaced
                            stays, varve_revert brings that back, and `keep` does not count it. After
                            a kill the next opening finds the provisional one, if it has a file. At
                            level `cached` what it replaced is gone, and varve_revert leaves none */
};

/* Fills in the defaults: keep everything. */
VARVE_API int varve_history_opts_init(struct varve_history_opts *opts,
                                      size_t opts_size) VARVE_CHECK;

/*
 * Opens a history, new or, at level `local` and above, with every version committed earlier; at level
 * `complete`, with every version that is complete. The caller owns
 * the handle and ends it with varve_history_close; closing the context ends it too. `name` has 1 to
 * 200 bytes, no '/', no leading dot. Blocks while the folder is read.
 *   -EBUSY    another process, or another handle of this one, has this history and rank open
 *   -EINVAL   bad name or options; versions of another number of ranks are there; at level `complete`,
 *             the history was last written by a job with the same `run`
 * With partner copies (varve/transport.h) it is collective.
 * A version whose file is damaged or of a newer format does not keep the history from being opened:
 * see varve_restore and varve_discard.
 */
VARVE_API int varve_history_open(struct varve_ctx *ctx, const char *name,
                                 struct varve_history **ret_history) VARVE_CHECK;
VARVE_API int varve_history_open_with(struct varve_ctx *ctx, const char *name,
                                      const struct varve_history_opts *opts,
                                      struct varve_history **ret_history) VARVE_CHECK;
/*
 * Closes the history; NULL is allowed. Pending flushes are treated as varve_close treats them:
 * finished at level `local`, within close_timeout_ms, dropped at level `cached`. -EBUSY: a call on
 * it is in progress, or a region is lent or reserved: nothing was done. With any other result the
 * handle is gone.
 */
VARVE_API int varve_history_close(struct varve_history *h);
/*
 * How many ranks have written a history, open or not, as far as the folders of the context tell: 0 if
 * they do not, as with one rank. A history of another number of ranks cannot be opened. Blocks while the
 * folder is read.
 */
VARVE_API int varve_history_ranks(struct varve_ctx *ctx, const char *name,
                                  int *ret_ranks) VARVE_CHECK;
/*
 * Removes what rank `first_rank` of a history and those above it have in the folders of the context, and
 * with it the completeness of versions that they had a part in. 0: the whole history, before it is
 * opened, whatever number of ranks has written it. The number of ranks of the job: what a job with more
 * of them has left. All processes of a job may call it at the same time; what others of them have
 * written since is kept. Parity goes with the files; copies at partners stay. 0 also if there is nothing.
 * Blocks while files are removed.
 *   -EBUSY    the history is open here, or in another program as this rank or as one the job does not have
 */
VARVE_API int varve_history_remove(struct varve_ctx *ctx, const char *name,
                                   int first_rank) VARVE_CHECK;
/*
 * Reading what another job has written, by any number of ranks. varve_parts tells how many ranks have written a
 * history: its parts are numbered from 0. varve_part_open opens what one of them has written, in any process of any
 * job, as a history for reading only: its versions are those of that rank, and regions, restores, hints,
 * prefetching and leases work as in any other; a process may have several parts open, and the same one twice.
 * varve_history_close ends it. Neither call takes the history's lock or is collective. The context has to be at
 * level remote or complete. At level complete a part has the versions that are complete, each as its
 * group record names it, so that all parts of a version are of one run. At level remote it has what the rank brought
 * to the remote folder: parts of a version belong together if varve_version_run tells the same run.
 *
 * What is listed is what was there at opening. Calls that would change something give -EROFS: checkpoints,
 * varve_reserve, varve_discard, varve_revert, varve_confirm, varve_resume. A version that the job has removed since,
 * or a history that was removed and written again, gives -EIDRM from restores: never bytes of another run. Damage is
 * healed in passing where the local folder has a good copy, and is not repaired. Blocks while the folder is read.
 *   -ENOENT   there is no such history
 *   -EINVAL   a name or rank that cannot be, or the level is below remote
 */
VARVE_API int varve_parts(struct varve_ctx *ctx, const char *name, int *ret_parts) VARVE_CHECK;
VARVE_API int varve_part_open(struct varve_ctx *ctx, const char *name, int rank,
                              struct varve_history **ret_part) VARVE_CHECK;
/* The context of a history, for varve_last_error and the like. NULL: no history. Does not block. */
VARVE_API struct varve_ctx *varve_history_ctx(struct varve_history *h);

/*
 * Declares a region: `bytes` of host or device memory at `ptr`, under a number of the
 * application's choice (0 or greater). A number in use is declared again. An empty region is a region:
 * with 0 bytes `ptr` may be NULL, versions list the region, and a restore finds it. A version whose
 * regions are all empty is one like any other. The library keeps the
 * pointer until varve_unprotect: memory that is freed before that must not be checkpointed or
 * restored. Does not block.
 *   -EFAULT  device memory, but not wholly inside one allocation
 *   -ENODEV  memory of a GPU, and the context was opened without one; or the device is lost
 *   -EXDEV   memory of another GPU than the context's, or of a CUDA context that is not the primary
 *            one of its device
 */
VARVE_API int varve_protect(struct varve_history *h, int region, void *ptr,
                            size_t bytes) VARVE_CHECK;
/* Forgets a region that varve_protect has declared. -ENOENT: there is none of this number. */
VARVE_API int varve_unprotect(struct varve_history *h, int region);

/*
 * Writes all protected regions as a new version. Returns when the memory may be changed again, that
 * is when the bytes are in a cache, or have passed through to a slower tier if they fit no cache.
 * Blocks while there is no room. Device memory is read behind what stands in the default stream;
 * kernels on other streams have to be waited for first, or see varve_checkpoint_on.
 *   -EEXIST   the version exists, and the history was opened without `overwrite`; or its file was found
 *             unusable at opening and has to be discarded first: any such file without `overwrite`, with
 *             it one that could not be opened. `overwrite` removes a damaged file before it writes
 *   -ENODATA  no region is protected
 *   -ENOSPC   there is no room and nothing in progress will make any
 *   -EFBIG    it can never fit
 *   -ENODEV, -EIO  the device failed
 * A checkpoint that fails leaves no version behind, and all earlier ones as they were.
 */
VARVE_API int varve_checkpoint(struct varve_history *h, uint64_t version) VARVE_CHECK;
VARVE_API int varve_checkpoint_for(struct varve_history *h, uint64_t version,
                                   int timeout_ms) VARVE_CHECK;

/*
 * Reads a version back into the regions protected now. Each of them must exist in the version, with
 * at most as many bytes as its buffer has; a larger buffer gets the stored bytes at its beginning.
 * Regions of the version that are not protected now are left out. Returns when the memory may be
 * used. Blocks while data is on its way.
 *   -ENOENT   no such version
 *   -ENODATA  no region is protected
 *   -ESRCH    a protected region is not in the version (varve_last_error tells which)
 *   -ENOBUFS  a protected region is too small (varve_last_error tells the sizes)
 *   -EBADMSG  stored bytes are damaged and there is no good copy; varve_last_error names region and
 *             tier. All of a version is verified: damage in a region left out fails it too.
 *             A version whose file was found unusable at opening (damaged, of a newer format) gives
 *             this from varve_restore, varve_region_size and varve_wait; it is not listed by
 *             varve_versions and not the latest
 *   -EIO, -ENODEV  disk or device failed
 * After an error other than the first four the content of the regions is undefined.
 */
VARVE_API int varve_restore(struct varve_history *h, uint64_t version) VARVE_CHECK;
VARVE_API int varve_restore_for(struct varve_history *h, uint64_t version,
                                int timeout_ms) VARVE_CHECK;

/* A region that a call is given in place of those protected. */
struct varve_region {
    int region;   /* its number, 0 or greater */
    void *ptr;    /* host or device memory; NULL only with 0 bytes */
    size_t bytes; /* its size, or that of the buffer */
};
/*
 * Checkpoint and restore of `n` regions that are given with the call, by ascending number; those
 * that are protected have no part in it, so that threads which write and read versions of one
 * history with memory of their own need not take turns. Otherwise as varve_checkpoint_for and
 * varve_restore_for; those with a stream as varve_checkpoint_on_for and varve_restore_on_for. The
 * library keeps no pointer into the list.
 *   -ENODATA  n is 0
 *   -EINVAL   the numbers do not ascend, or as varve_protect
 *   -EFAULT, -ENODEV, -EXDEV  as varve_protect
 */
VARVE_API int varve_checkpoint_of(struct varve_history *h, uint64_t version,
                                  const struct varve_region *regions, size_t n,
                                  int timeout_ms) VARVE_CHECK;
VARVE_API int varve_checkpoint_of_on(struct varve_history *h, uint64_t version,
                                     const struct varve_region *regions, size_t n,
                                     struct CUstream_st *stream, int timeout_ms) VARVE_CHECK;
VARVE_API int varve_restore_to(struct varve_history *h, uint64_t version,
                               const struct varve_region *regions, size_t n,
                               int timeout_ms) VARVE_CHECK;
VARVE_API int varve_restore_to_on(struct varve_history *h, uint64_t version,
                                  const struct varve_region *regions, size_t n,
                                  struct CUstream_st *stream, int timeout_ms) VARVE_CHECK;

/* Stored size of a region. -ENOENT: no such version; -ESRCH: the version has no such region. Does
 * not block. */
VARVE_API int varve_region_size(struct varve_history *h, uint64_t version, int region,
                                size_t *ret_bytes) VARVE_CHECK;

/*
 * Appends a version to the restore order: advice by which data is brought up ahead of time. It may
 * name a version that is not written yet, or never will be; it may be wrong. -ENOMEM; -EINVAL: the
 * history has a declared order. Does not block.
 */
VARVE_API int varve_hint(struct varve_history *h, uint64_t version) VARVE_CHECK;
/* Forgets all hints. Does not block. */
VARVE_API int varve_hint_clear(struct varve_history *h);
/* Bringing up begins now, instead of at the first restore. Does not block. */
VARVE_API int varve_prefetch_start(struct varve_history *h);

/*
 * Waits until a version has reached a level. -EINVAL: a level above that of the context; -ENOENT:
 * no such version; -ETIMEDOUT, also if another rank does not bring its part; -ECANCELED: a later run of
 * the job has written the version; otherwise the error that keeps it from the level.
 */
VARVE_API int varve_wait(struct varve_history *h, uint64_t version, enum varve_level level,
                         int timeout_ms) VARVE_CHECK;
/* Waits until every version has reached the level of the context, and at level `cached` is complete on
 * the slowest tier there is, and the files of discarded versions are gone, so that nothing is left to
 * flush. At level `complete` that takes the other ranks. With a late error it waits for the files of
 * discarded versions only. */
VARVE_API int varve_flush(struct varve_history *h, int timeout_ms) VARVE_CHECK;

/* Removes a version, from disk and the remote folder too. It is gone at once and may be written
 * again; at level `complete` it is not complete any more, on any rank, once this one's part goes.
 * -ENOENT. Does not block, except for a version whose file was found unusable at opening: then it waits until the file
 * is gone, and returns the error if it cannot be removed. */
VARVE_API int varve_discard(struct varve_history *h, uint64_t version);

/* The newest version that has reached the level of the context. -ENOENT: there is none. Does not
 * block. */
VARVE_API int varve_latest(struct varve_history *h, uint64_t *ret_version) VARVE_CHECK;
/*
 * The application goes on with version `next`: that one and greater ones that earlier runs left are
 * written again by checkpoints, as `overwrite` of struct varve_history_opts does it; until then they can
 * be restored. What this run has written itself still exists. For levels local and remote, where the ranks
 * of a job may have come to different versions; at level complete, what is not complete gives way
 * without this, and what is complete needs `overwrite`. varve_latest_mpi does it for all ranks. Not during
 * other calls on the history. Does not block.
 */
VARVE_API int varve_resume(struct varve_history *h, uint64_t next) VARVE_CHECK;
/*
 * All versions that can be restored, in the order of writing. Stores up to `max` of them in
 * `ret_versions`, which may be NULL if `max` is 0, and their full number in `ret_count`. Does not
 * block.
 */
VARVE_API int varve_versions(struct varve_history *h, uint64_t *ret_versions, size_t max,
                             size_t *ret_count) VARVE_CHECK;

/*
 * The numbers of a version's regions, ascending: up to `max` of them in `ret_regions`, which may be
 * NULL if `max` is 0, and how many there are in `ret_count`. Errors as those of varve_region_size.
 * Does not block.
 */
VARVE_API int varve_regions(struct varve_history *h, uint64_t version, int *ret_regions, size_t max,
                            size_t *ret_count) VARVE_CHECK;
/* Whether a version stands ready where restores are fastest (1) or has to be brought up first (0).
 * -ENOENT: no such version. Does not block; what it tells may change at once. */
VARVE_API int varve_ready(struct varve_history *h, uint64_t version, int *ret_ready) VARVE_CHECK;
/*
 * The run that wrote a version: `run_id` of the context that did, with another lower half if it has
 * overwritten it, or discarded and written it again. (Not in a context that drew its run_id, is the
 * only rank and whose level is below complete: no other process has versions of its run.) Processes of one job that have the
 * same version of the same run have parts of one state; of different runs, they have not, even if
 * the number is the same. -ENOENT: no such version. Does not block.
 */
VARVE_API int varve_version_run(struct varve_history *h, uint64_t version,
                                uint64_t *ret_run_id) VARVE_CHECK;
/* The level that a version has reached. (A copy at a partner is no level: varve_wait tells of it.)
 * -ENOENT: no such version. Does not block; what it tells may change at once. */
VARVE_API int varve_version_level(struct varve_history *h, uint64_t version,
                                  enum varve_level *ret_level) VARVE_CHECK;

/*
 * Ordered by a stream. These calls do what varve_checkpoint and varve_restore do, behind the work
 * that stands in `stream` when they are called and before what is put there later: a handle of the
 * CUDA driver or runtime, NULL for the legacy default stream. The memory may be used again by later
 * work of the same stream at once, by anything else after that. A call returns when its copies
 * stand in the stream. It may block until there is room in a cache, or, for a restore, until the
 * last bytes have come up from disk and were verified, but it waits for the stream itself in two
 * cases only: regions in host memory, which the processor copies, and a version larger than the
 * memory that it passes through. `timeout_ms` 0: -EAGAIN instead of blocking, and then nothing
 * stands in the stream.
 *
 * A version written so is there when the stream has come to it: until then it is not listed, is not
 * the latest and has no region sizes, or, if it overwrites one, all of these are those of the old one
 * (at level cached the old one is gone); a varve_restore, varve_restore_on or varve_wait for it waits,
 * a varve_discard drops it. What fails on the stream is a late error (see varve_ckpt(7)), told by
 * varve_wait for that version too; the version never appears.
 *   -EAGAIN     timeout_ms is 0 and the call would have to wait
 *   -EBUSY      the stream is being captured into a graph
 *   -ENODEV     a stream, and no device
 *   -ETIMEDOUT  part of the copies may stand in the stream; the version will not be there, or the
 *               content of the regions is undefined
 * and those of varve_checkpoint and varve_restore. Without a device, stream must be NULL, and the
 * calls are those. Closing waits for the streams within close_timeout_ms, -ETIMEDOUT; memory that
 * a stream still uses is waited for without limit when the context is closed.
 */
VARVE_API int varve_checkpoint_on(struct varve_history *h, uint64_t version,
                                  struct CUstream_st *stream) VARVE_CHECK;
VARVE_API int varve_checkpoint_on_for(struct varve_history *h, uint64_t version,
                                      struct CUstream_st *stream, int timeout_ms) VARVE_CHECK;
VARVE_API int varve_restore_on(struct varve_history *h, uint64_t version,
                               struct CUstream_st *stream) VARVE_CHECK;
VARVE_API int varve_restore_on_for(struct varve_history *h, uint64_t version,
                                   struct CUstream_st *stream, int timeout_ms) VARVE_CHECK;

/*
 * Lends the cached bytes of one region of a version for reading: a pointer to device memory, aligned
 * to 256 bytes, or to host memory if the context has no device cache. No byte moves if the region
 * stands in the fastest cache in one piece; otherwise it is brought together there, on the stream.
 * Work put on `stream` from now on may read the memory, and nothing may write it. It stays until
 * varve_release, even if the version is discarded. Acquiring a version counts as restoring it, and
 * blocks as that does. An empty region is lent as NULL and 0 bytes, and released like any other.
 *   -EBUSY    the region is lent already, or the stream is being captured
 *   -ENOSPC   more than half of the cache would be lent, or no room can be had; waiting for it could
 *             be waiting for oneself
 *   -ESRCH    the version has no such region
 * and those of varve_restore_on.
 */
VARVE_API int varve_acquire(struct varve_history *h, uint64_t version, int region,
                            struct CUstream_st *stream, void **ret_ptr,
                            size_t *ret_bytes) VARVE_CHECK;
VARVE_API int varve_acquire_for(struct varve_history *h, uint64_t version, int region,
                                struct CUstream_st *stream, int timeout_ms, void **ret_ptr,
                                size_t *ret_bytes) VARVE_CHECK;
/*
 * Gives an acquired region back. The memory counts as read until `stream` has come to this point.
 * With the last region of a version that is lent, the version has been restored: a history that
 * consumes once discards it then. Does not block.
 *   -ENOENT   the region is not lent, or was released already
 *   -EBUSY    the stream is being captured, or another call works on the region
 *   -ENODEV   the device is lost; or a stream, and no device
 * If the device fails, the region is given back nonetheless.
 */
VARVE_API int varve_release(struct varve_history *h, uint64_t version, int region,
                            struct CUstream_st *stream);

/*
 * Reserves memory in the fastest cache for one region of a version that is still to be written:
 * device memory, or host memory if the context has no device cache, aligned to the page size. It
 * holds nothing. Work put on `stream`, or on any other that the caller orders, may write it until
 * varve_commit or varve_abort. A version may have several such regions. Blocks while there is no
 * room.
 *   -EEXIST   the version exists, or the region is reserved already
 *   -ENOSPC   more than half of the cache would be lent, or no room can be had
 *   -EINVAL   region negative, no place for the pointer
 * With 0 bytes nothing is lent: the pointer is NULL, and the version has an empty region.
 * and those of varve_checkpoint_on.
 */
VARVE_API int varve_reserve(struct varve_history *h, uint64_t version, int region, size_t bytes,
                            struct CUstream_st *stream, void **ret_ptr) VARVE_CHECK;
VARVE_API int varve_reserve_for(struct varve_history *h, uint64_t version, int region, size_t bytes,
                                struct CUstream_st *stream, int timeout_ms,
                                void **ret_ptr) VARVE_CHECK;
/*
 * Makes a version of the regions reserved for it, with what they hold when `stream` has come to this
 * point; it is there from then on, as after varve_checkpoint_on. Protected regions play no part. No
 * byte moves if there is one region, or, under policy `next`, if all but the one with the highest
 * number are multiples of the page size; otherwise they are copied on the stream. The memory is not
 * the caller's any more.
 *   -ENODATA  no region is reserved for the version
 *   -EEXIST   the version exists
 * and those of varve_checkpoint_on. After an error the regions are still reserved, except when the
 * call ran out of time, or the device failed, where no byte moves: then they are given back.
 */
VARVE_API int varve_commit(struct varve_history *h, uint64_t version,
                           struct CUstream_st *stream) VARVE_CHECK;
VARVE_API int varve_commit_for(struct varve_history *h, uint64_t version,
                               struct CUstream_st *stream, int timeout_ms) VARVE_CHECK;
/* Gives the reserved memory of a version back at once: the caller sees to it that no work on it is
 * left. -ENODATA: no region is reserved for the version. Does not block. */
VARVE_API int varve_abort(struct varve_history *h, uint64_t version);
/*
 * Takes the last checkpoint of a version back, as long as it has not reached the level of the context
 * or, in a history opened with `confirm`, was not confirmed. The version is then what it was before:
 * the one that was replaced, if that had a file, or none. Does not block.
 *   -ENOENT    no such version
 *   -EALREADY  it has reached the level, and is not provisional. At level `cached` that is so as soon
 *              as its checkpoint has returned
 */
VARVE_API int varve_revert(struct varve_history *h, uint64_t version);
/* In a history opened with `confirm`: the last checkpoint of the version counts, and what it replaced
 * may go. -ENOENT: no such version. Does not block. */
VARVE_API int varve_confirm(struct varve_history *h, uint64_t version) VARVE_CHECK;

#ifdef __cplusplus
}
#endif

#endif
