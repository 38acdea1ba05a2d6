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
 * Device memory. A blocking call on device memory runs after the application's earlier work on the
 * default stream, and has ended when it returns, like a synchronous copy. For work on other streams,
 * synchronize first or use the calls named `_on`. Host memory needs no alignment.
 *
 * Time. Calls named `_for` and those with `timeout_ms` end after about that time with -ETIMEDOUT: 0
 * polls, negative waits without limit. Every other blocking call waits without limit. A wait that
 * nothing in progress can end returns an error at once (-ENOSPC, -EIO, ...). Copies already begun on
 * the caller's memory are finished first.
 *
 * Late errors. A failure after a checkpoint has returned (for example a flush to a full disk) is
 * reported once: by a varve_wait for that version, or else by the next varve_checkpoint, varve_restore,
 * varve_acquire, varve_reserve, varve_commit (in any form), varve_prefetch_start or varve_flush on
 * the history. That call has then done nothing and may be repeated. varve_last_error names the
 * version and the tier.
 *
 * Besides the errors that it lists, every function returns -EINVAL for NULL handles and invalid
 * arguments, and -EPERM in a forked child.
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
struct CUstream_st; /* type behind a CUDA stream handle */

enum varve_consume {
    VARVE_CONSUME_KEEP, /* a restored version stays */
    VARVE_CONSUME_ONCE  /* a restored version is discarded, and its pending flushes are dropped */
};

/* The order in which versions will be restored, if it is known beforehand. */
enum varve_order {
    VARVE_ORDER_HINTS, /* that of varve_hint, or one that the library detects */
    VARVE_ORDER_FIFO,  /* that of writing: first in, first out */
    VARVE_ORDER_LIFO   /* the reverse of writing: last in, first out */
};

struct varve_history_opts {
    size_t opts_size;    /* sizeof(struct varve_history_opts), as varve_history_opts_init sets it */
    int consume;         /* enum varve_consume */
    uint64_t keep;       /* number of newest versions to keep, counting those that have reached the
                            level; older ones are discarded; 0: keep all */
    uint64_t keep_every; /* with `keep`, versions whose number is a multiple of this stay too; 0:
                            none */
    int overwrite;       /* not 0: varve_checkpoint, in any form, of a version that exists replaces
                            it. The old content stays until the new one has reached the level of the
                            context: if the checkpoint fails or the process is killed, the version
                            is unchanged. At level `cached` the old content is freed at once */
    int order;           /* enum varve_order. With FIFO or LIFO the library hints every version as
                            it is written, and varve_hint fails with -EINVAL */
    int confirm;         /* not 0: a checkpoint is provisional until varve_confirm. The version that
                            it replaced stays, varve_revert brings it back, and `keep` does not count
                            the provisional one. If the process is killed, the next opening finds the
                            provisional one, if it has a file. At level `cached` the replaced version
                            is freed, and varve_revert leaves none */
};

/* Fills in the defaults, which keep all versions. */
VARVE_API int varve_history_opts_init(struct varve_history_opts *opts,
                                      size_t opts_size) VARVE_CHECK;

/*
 * Opens a history, which is new or has the versions committed earlier: at level `local` and `remote` all
 * of them, at level `complete` those that are complete. The caller owns the handle and ends it with
 * varve_history_close; closing the context ends it too. `name` has 1 to 200 bytes, no '/', no leading
 * dot. Blocks while the folder is read.
 *   -EBUSY    another process, or another handle of this one, has this history and rank open
 *   -EINVAL   invalid name or options; another number of ranks wrote the history; at level `complete`,
 *             the history was last written by a job with the same `run`
 * With partner copies (varve/transport.h) the call is collective.
 * A history opens even if the file of a version is damaged or of a newer format: see varve_restore and
 * varve_discard.
 */
VARVE_API int varve_history_open(struct varve_ctx *ctx, const char *name,
                                 struct varve_history **ret_history) VARVE_CHECK;
VARVE_API int varve_history_open_with(struct varve_ctx *ctx, const char *name,
                                      const struct varve_history_opts *opts,
                                      struct varve_history **ret_history) VARVE_CHECK;
/*
 * Closes the history; NULL is allowed. Pending flushes are treated as varve_close treats them:
 * finished at level `local`, within close_timeout_ms, dropped at level `cached`. -EBUSY: a call on
 * it is in progress, or a region is lent or reserved; nothing was done. Every other result frees the
 * handle.
 */
VARVE_API int varve_history_close(struct varve_history *h);
/*
 * The number of ranks that wrote a history, open or not, as recorded in the folders of the context. 0: not
 * recorded, as with one rank at level `local`. A history of another number of ranks cannot be opened. Blocks while the
 * folder is read.
 */
VARVE_API int varve_history_ranks(struct varve_ctx *ctx, const char *name,
                                  int *ret_ranks) VARVE_CHECK;
/*
 * Removes from the folders of the context the files of a history's ranks `first_rank` and above. Versions
 * that these ranks had a part of are no longer complete. With 0 the whole history is removed, for any
 * number of ranks that wrote it; call it before opening the history. With the number of ranks of the job,
 * it removes the files of additional ranks that a larger job left. All processes of a job may call it at
 * the same time; files that other processes of the job have written since are kept. Parity is removed with
 * the files; copies at partners stay. Returns 0 also if there was nothing to remove. Blocks while files are
 * removed.
 *   -EBUSY    the history is open in this process, or in another program as this rank or as a rank that
 *             the job does not have
 */
VARVE_API int varve_history_remove(struct varve_ctx *ctx, const char *name,
                                   int first_rank) VARVE_CHECK;
/*
 * Read a history that another job wrote, with any number of ranks. varve_parts returns the number of ranks that
 * wrote it: its parts are numbered from 0. varve_part_open opens the part of one rank, in any process of any job,
 * as a read-only history: its versions are those of that rank, and regions, restores, hints, prefetching and leases
 * work as in any other history. A process may have several parts open, and the same one twice. varve_history_close
 * ends a part. Neither call takes the history's lock or is collective. The context must be at level remote or
 * complete. At level complete a part has the complete versions, each as its group record names it, so that all
 * parts of a version are of one run. At level remote a part has the versions that the rank wrote to the remote
 * folder; parts of a version belong together if varve_version_run returns the same run.
 *
 * A part lists the versions that existed when it was opened. Calls that would change it return -EROFS: checkpoints,
 * varve_reserve, varve_discard, varve_revert, varve_confirm, varve_resume. If the job has removed a version since, or
 * the history was removed and written again, restores return -EIDRM and never bytes of another run. A restore
 * replaces damaged bytes by those of a good copy in the local folder, but files are not repaired. Blocks while the
 * folder is read.
 *   -ENOENT   the history does not exist
 *   -EINVAL   invalid name or rank, or the level is below remote
 */
VARVE_API int varve_parts(struct varve_ctx *ctx, const char *name, int *ret_parts) VARVE_CHECK;
VARVE_API int varve_part_open(struct varve_ctx *ctx, const char *name, int rank,
                              struct varve_history **ret_part) VARVE_CHECK;
/* The context of a history, for varve_last_error and the like. NULL if `h` is NULL. Does not block. */
VARVE_API struct varve_ctx *varve_history_ctx(struct varve_history *h);

/*
 * Declares a region: `bytes` of host or device memory at `ptr`, under a number of the application's
 * choice (0 or greater). A number in use gets the new declaration. With 0 bytes the region is empty:
 * `ptr` may be NULL, versions list the region, and a restore finds it. A version may have only empty
 * regions. The library keeps the pointer until varve_unprotect: memory that is freed before that must not
 * be checkpointed or restored. Does not block.
 *   -EFAULT  device memory that is not wholly inside one allocation
 *   -ENODEV  memory of a GPU, and the context was opened without one; or the device is lost
 *   -EXDEV   memory of another GPU than the context's, or of a CUDA context that is not the primary
 *            one of its device
 */
VARVE_API int varve_protect(struct varve_history *h, int region, void *ptr,
                            size_t bytes) VARVE_CHECK;
/* Removes the declaration of a region. -ENOENT: no region with this number is declared. */
VARVE_API int varve_unprotect(struct varve_history *h, int region);

/*
 * Writes all protected regions as a new version. Returns when the memory may be changed again: when
 * the bytes are in a cache, or in a slower tier if they fit no cache. Blocks while there is no room.
 * Device memory is read after the earlier work of the default stream; wait for kernels on other streams
 * first, or use varve_checkpoint_on.
 *   -EEXIST   the version exists, and the history was opened without `overwrite`; or its file was found
 *             unusable at opening and must be discarded first. With `overwrite` that is necessary only
 *             if the file could not be opened: a damaged file is removed before writing
 *   -ENODATA  no region is protected
 *   -ENOSPC   there is no room and nothing in progress will free any
 *   -EFBIG    the version can never fit
 *   -ENODEV, -EIO  the device failed
 * A checkpoint that fails leaves no version, and does not change earlier ones.
 */
VARVE_API int varve_checkpoint(struct varve_history *h, uint64_t version) VARVE_CHECK;
VARVE_API int varve_checkpoint_for(struct varve_history *h, uint64_t version,
                                   int timeout_ms) VARVE_CHECK;

/*
 * Reads a version back into the regions that are protected now. Each of them must be in the version,
 * with at most as many bytes as its buffer has; a larger buffer gets the stored bytes at its beginning.
 * Other regions of the version are skipped. Returns when the memory may be used. Blocks while data is
 * being read.
 *   -ENOENT   the version does not exist
 *   -ENODATA  no region is protected
 *   -ESRCH    a protected region is not in the version (varve_last_error names it)
 *   -ENOBUFS  a protected region is too small (varve_last_error has the sizes)
 *   -EBADMSG  stored bytes are damaged and there is no good copy; varve_last_error names region and
 *             tier. The whole version is verified: damage in a skipped region is an error too.
 *             For a version whose file was found unusable at opening (damaged, of a newer format),
 *             varve_restore, varve_region_size and varve_wait return this; varve_versions and
 *             varve_latest leave it out
 *   -EIO, -ENODEV  disk or device failed
 * After an error other than the first four the content of the regions is undefined.
 */
VARVE_API int varve_restore(struct varve_history *h, uint64_t version) VARVE_CHECK;
VARVE_API int varve_restore_for(struct varve_history *h, uint64_t version,
                                int timeout_ms) VARVE_CHECK;

/* A region passed to a call instead of the protected ones. */
struct varve_region {
    int region;   /* its number, 0 or greater */
    void *ptr;    /* host or device memory; NULL only with 0 bytes */
    size_t bytes; /* size of the region, or of the buffer for it */
};
/*
 * Checkpoint and restore `n` regions that are passed to the call, by ascending number. Protected regions
 * are not used, so that several threads can write and read versions of one history with memory of their
 * own, without taking turns. Otherwise like varve_checkpoint_for and varve_restore_for; with a stream,
 * like varve_checkpoint_on_for and varve_restore_on_for. The library keeps no pointer into the list.
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

/* Stored size of a region. -ENOENT: the version does not exist; -ESRCH: the region is not in the
 * version. Does not block. */
VARVE_API int varve_region_size(struct varve_history *h, uint64_t version, int region,
                                size_t *ret_bytes) VARVE_CHECK;

/*
 * Appends a version to the expected restore order, by which data is prefetched. A hint is only advice:
 * it may be wrong, and it may name a version that is not written yet or never will be. -ENOMEM;
 * -EINVAL: the history has a declared order. Does not block.
 */
VARVE_API int varve_hint(struct varve_history *h, uint64_t version) VARVE_CHECK;
/* Removes all hints. Does not block. */
VARVE_API int varve_hint_clear(struct varve_history *h);
/* Starts prefetching now, instead of at the first restore. Does not block. */
VARVE_API int varve_prefetch_start(struct varve_history *h);

/*
 * Waits until a version has reached a level. -EINVAL: a level above that of the context; -ENOENT:
 * the version does not exist; -ETIMEDOUT, also if another rank does not write its part; -ECANCELED: a
 * later run of the job has written the version; otherwise the error that stops it from reaching the level.
 */
VARVE_API int varve_wait(struct varve_history *h, uint64_t version, enum varve_level level,
                         int timeout_ms) VARVE_CHECK;
/* Waits until nothing is left to flush: every version has reached the level of the context (at level
 * `cached`, is complete on the slowest tier), and the files of discarded versions are removed. At level
 * `complete` this includes waiting for the other ranks. After a late error it waits only for the files of
 * discarded versions. */
VARVE_API int varve_flush(struct varve_history *h, int timeout_ms) VARVE_CHECK;

/* Removes a version, also from disk and the remote folder. It stops to exist at once and may be written
 * again. At level `complete` it is no longer complete, on any rank, once this rank's part is removed.
 * -ENOENT. Does not block, with one exception: if the version's file was found unusable at opening, the
 * call waits until the file is removed, and returns the error if that fails. */
VARVE_API int varve_discard(struct varve_history *h, uint64_t version);

/* The newest version that has reached the level of the context. -ENOENT: there is none. Does not
 * block. */
VARVE_API int varve_latest(struct varve_history *h, uint64_t *ret_version) VARVE_CHECK;
/*
 * Declares that the application continues with version `next`. Checkpoints then overwrite version `next`
 * and greater ones that earlier runs left, as with `overwrite` of struct varve_history_opts; until then
 * these can be restored. Versions that this run has written are not overwritten. Meant for levels local
 * and remote, where the ranks of a job may have reached different versions. At level complete, incomplete
 * versions are overwritten without this call, and complete ones need `overwrite`. varve_latest_mpi makes
 * this call for all ranks. Not allowed during other calls on the history. Does not block.
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
/* Stores 1 if a version is complete in the fastest tier, 0 if it must be brought up first. -ENOENT: the
 * version does not exist. Does not block; the answer may be out of date at once. */
VARVE_API int varve_ready(struct varve_history *h, uint64_t version, int *ret_ready) VARVE_CHECK;
/*
 * The run that wrote a version: `run_id` of the context that wrote it. If that context has overwritten the
 * version, or discarded it and written it again, the lower half of the number is another one. (It stays the
 * same in a context of one rank, below level complete, that drew its run_id: no other process has versions of
 * that run.) If processes of one job have the same version from the same run, these are parts of one state.
 * Versions from different runs are not, even if their numbers are equal. -ENOENT: the version does not exist.
 * Does not block.
 */
VARVE_API int varve_version_run(struct varve_history *h, uint64_t version,
                                uint64_t *ret_run_id) VARVE_CHECK;
/* The level that a version has reached. (A copy at a partner is not a level: use varve_wait for it.)
 * -ENOENT: the version does not exist. Does not block; the answer may be out of date at once. */
VARVE_API int varve_version_level(struct varve_history *h, uint64_t version,
                                  enum varve_level *ret_level) VARVE_CHECK;

/*
 * Checkpoint and restore in stream order. `stream` is a handle of the CUDA driver or runtime, NULL for the
 * legacy default stream. The calls do the same as varve_checkpoint and varve_restore, after the work that is
 * already in the stream and before work that is put there later. Later work of the same stream may use the
 * memory at once; other users of the memory must wait for the stream. A call returns when its copies are
 * enqueued. It may block until there is room in a cache or, for a restore, until the last bytes have been
 * read from disk and verified. It waits for the stream itself in two cases only: regions in host memory,
 * which the processor copies, and a version larger than the memory that it passes through. With
 * `timeout_ms` 0 the call returns -EAGAIN instead of blocking, and has enqueued nothing.
 *
 * A version written in this way exists once the stream has executed its copies. Until then it is not
 * listed, is not the latest and has no region sizes; if it overwrites a version, these calls return what
 * holds for the old one (at level cached the old one is gone). varve_restore, varve_restore_on and
 * varve_wait wait for the new version, and varve_discard drops it. A failure on the stream is a late error
 * (see varve_ckpt(7)), which varve_wait for that version reports too; the version then never appears.
 *   -EAGAIN     timeout_ms is 0 and the call would have to wait
 *   -EBUSY      the stream is being captured into a graph
 *   -ENODEV     a stream is given, but the context has no device
 *   -ETIMEDOUT  part of the copies may be in the stream; the version will not exist, or the content
 *               of the regions is undefined
 * and those of varve_checkpoint and varve_restore. Without a device, stream must be NULL, and the calls are
 * the same as varve_checkpoint and varve_restore. Closing a history waits for the streams for at most
 * close_timeout_ms (-ETIMEDOUT); closing the context waits without limit for memory that a stream still uses.
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
 * to 256 bytes, or to host memory if the context has no device cache. Nothing is copied if the region
 * is contiguous in the fastest cache; otherwise it is gathered there, on the stream. Work put on `stream`
 * from now on may read the memory, which is read-only. It stays valid until varve_release, even if the
 * version is discarded. Acquiring a version counts as restoring it, and blocks like a restore. An empty
 * region is lent as NULL and 0 bytes, and released like any other.
 *   -EBUSY    the region is lent already, or the stream is being captured
 *   -ENOSPC   more than half of the cache would be lent, or there is no room. The call does not wait for
 *             room, because the caller itself may hold it
 *   -ESRCH    the region is not in the version
 * and those of varve_restore_on.
 */
VARVE_API int varve_acquire(struct varve_history *h, uint64_t version, int region,
                            struct CUstream_st *stream, void **ret_ptr,
                            size_t *ret_bytes) VARVE_CHECK;
VARVE_API int varve_acquire_for(struct varve_history *h, uint64_t version, int region,
                                struct CUstream_st *stream, int timeout_ms, void **ret_ptr,
                                size_t *ret_bytes) VARVE_CHECK;
/*
 * Gives an acquired region back. Its memory is in use until `stream` has executed the work enqueued before
 * this call. When the last lent region of a version is released, the version counts as restored: a history
 * with VARVE_CONSUME_ONCE discards it then. Does not block.
 *   -ENOENT   the region is not lent, or was released already
 *   -EBUSY    the stream is being captured, or another call works on the region
 *   -ENODEV   the device is lost; or a stream is given, but the context has no device
 * The region is given back even if the device fails.
 */
VARVE_API int varve_release(struct varve_history *h, uint64_t version, int region,
                            struct CUstream_st *stream);

/*
 * Reserves memory in the fastest cache for one region of a version that will be written: device
 * memory, or host memory if the context has no device cache, aligned to the page size, with undefined
 * content. Work put on `stream`, or on another stream that the caller orders after it, may write the memory
 * until varve_commit or varve_abort. A version may have several reserved regions. With 0 bytes nothing is
 * lent: the pointer is NULL, and the version has an empty region. Blocks while there is no room.
 *   -EEXIST   the version exists, or the region is reserved already
 *   -ENOSPC   more than half of the cache would be lent, or there is no room
 *   -EINVAL   the region is negative, or ret_ptr is NULL
 * and those of varve_checkpoint_on.
 */
VARVE_API int varve_reserve(struct varve_history *h, uint64_t version, int region, size_t bytes,
                            struct CUstream_st *stream, void **ret_ptr) VARVE_CHECK;
VARVE_API int varve_reserve_for(struct varve_history *h, uint64_t version, int region, size_t bytes,
                                struct CUstream_st *stream, int timeout_ms,
                                void **ret_ptr) VARVE_CHECK;
/*
 * Makes a version from the regions reserved for it, with their content when `stream` has executed the work
 * enqueued before this call; the version exists from then on, as after varve_checkpoint_on. Protected
 * regions are not used. Nothing is copied if there is one region or, under policy `next`, if the sizes of
 * all regions except the one with the highest number are multiples of the page size; otherwise the regions
 * are copied on the stream. The caller must not use the memory any more.
 *   -ENODATA  no region is reserved for the version
 *   -EEXIST   the version exists
 * and those of varve_checkpoint_on. After an error the regions are still reserved, with one exception: when
 * nothing is copied, and the call times out or the device fails, they are given back.
 */
VARVE_API int varve_commit(struct varve_history *h, uint64_t version,
                           struct CUstream_st *stream) VARVE_CHECK;
VARVE_API int varve_commit_for(struct varve_history *h, uint64_t version,
                               struct CUstream_st *stream, int timeout_ms) VARVE_CHECK;
/* Gives the reserved memory of a version back at once: the caller makes sure that no work uses it.
 * -ENODATA: no region is reserved for the version. Does not block. */
VARVE_API int varve_abort(struct varve_history *h, uint64_t version);
/*
 * Undoes the last checkpoint of a version, as long as it has not reached the level of the context or, in
 * a history opened with `confirm`, was not confirmed. The version is then the one that was replaced, if
 * that had a file, or does not exist. Does not block.
 *   -ENOENT    the version does not exist
 *   -EALREADY  it has reached the level and is not provisional. At level `cached` a version reaches the
 *              level when its checkpoint returns
 */
VARVE_API int varve_revert(struct varve_history *h, uint64_t version);
/* Makes the last checkpoint of a version final, in a history opened with `confirm`, so that the version
 * it replaced can be freed. -ENOENT: the version does not exist. Does not block. */
VARVE_API int varve_confirm(struct varve_history *h, uint64_t version) VARVE_CHECK;

#ifdef __cplusplus
}
#endif

#endif
