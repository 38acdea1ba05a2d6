/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Varve for MPI: the few calls that the processes of a job make together. They are in a library of
 * their own, libvarve-mpi, so that programs without MPI need none.
 *
 *     varve_open_mpi(MPI_COMM_WORLD, NULL, &ctx);
 *     varve_history_open(ctx, "state", &h);
 *     if (varve_latest_mpi(MPI_COMM_WORLD, h, &v) == 0) varve_restore_mpi(MPI_COMM_WORLD, h, v);
 *
 * Collective calls. Every function here is called by all processes of the communicator, in the same
 * order, as a collective operation of MPI is, and returns the same result on all of them. MPI is used
 * inside these calls and nowhere else: not by checkpoints and restores, and not by the library's
 * threads, so that any thread level of MPI will do. Everything else (varve_checkpoint, varve_wait,
 * varve_restore, ...) each process calls for itself.
 *
 * Partner copies (`partner`, see varve/transport.h) are the exception. With them, varve_history_open is
 * collective as well; under MPI_THREAD_MULTIPLE a thread of the library calls MPI, on communicators of
 * its own; below that level varve_checkpoint, varve_wait, varve_flush and the calls that close do, on the
 * thread that makes them: under MPI_THREAD_FUNNELED and below only the main thread may be the one that
 * waits, and all processes should wait for the same versions. Contexts are closed before MPI_Finalize.
 *
 * Failures. What MPI itself reports goes to the error handler of the communicator. A process that
 * dies is MPI's business: most of them end the job.
 */
#ifndef VARVE_MPI_H
#define VARVE_MPI_H

#include <mpi.h>

#include <varve/ckpt.h>
#include <varve/varve.h>
#include <varve/vector.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Opens a context on every process of `comm`, as varve_open does, each with its number in `comm` as
 * its rank, and with their number as `ranks`. All get the same run_id: that of the first process, drawn
 * if its options have neither that nor `run`. Each process may have options of its own (a device, a local folder); NULL: the defaults, environment
 * included. If any process fails, all do, with the least of the errors; varve_last_error(NULL, ...)
 * tells more where it happened, and on the others where that was and why. The communicator is not
 * kept; partner copies use duplicates of it. -EINVAL: also if only some processes have `partner`, or all
 * are on one node. -EPERM: before MPI_Init, or after MPI_Finalize.
 */
VARVE_API int varve_open_mpi(MPI_Comm comm, const struct varve_opts *opts,
                             struct varve_ctx **ret_ctx) VARVE_CHECK;
/* Closes the contexts, as varve_close does. 0: every process has flushed what it had. Errors are returned as
 * by varve_open_mpi. */
VARVE_API int varve_close_mpi(MPI_Comm comm, struct varve_ctx *ctx);
/*
 * The newest version that all processes of `comm` have, at the level of the context, and that one run
 * has written: a number that one process has of this life of the job and another of an earlier one is
 * passed over. -ENOENT: there is none. Processes that disagree about what exists get the same answer.
 * At levels local and remote a process may have newer versions than that one, of earlier runs: checkpoints
 * write them again (varve_resume), all of them if there is none that all have.
 */
VARVE_API int varve_latest_mpi(MPI_Comm comm, struct varve_history *h,
                               uint64_t *ret_version) VARVE_CHECK;
/* Restores a version on every process. If any fails, all do, with the least of the errors, and
 * varve_last_error of the context tells which process that was and why; what their
 * regions hold is then undefined. With partner copies, bytes that are damaged or missing on a process are
 * put right from its copy first. */
VARVE_API int varve_restore_mpi(MPI_Comm comm, struct varve_history *h,
                                uint64_t version) VARVE_CHECK;

/*
 * The same for programs in other languages, which know a communicator as the number that Fortran has for
 * it (MPI_Comm_c2f): a handle of `use mpi`, or MPI_VAL of one of `use mpi_f08`. The Fortran module
 * varve_mpi calls these. A number that is no communicator is for the error handlers of MPI.
 */
VARVE_API int varve_open_mpi_f(MPI_Fint comm, const struct varve_opts *opts,
                               struct varve_ctx **ret_ctx) VARVE_CHECK;
VARVE_API int varve_close_mpi_f(MPI_Fint comm, struct varve_ctx *ctx);
VARVE_API int varve_latest_mpi_f(MPI_Fint comm, struct varve_history *h,
                                 uint64_t *ret_version) VARVE_CHECK;
VARVE_API int varve_restore_mpi_f(MPI_Fint comm, struct varve_history *h,
                                  uint64_t version) VARVE_CHECK;

/*
 * The communicator over which a vector is reduced. Not collective. The vector keeps the handle, not a
 * duplicate: the communicator is freed after the vector, or after another one has taken its place.
 * Copies of the vector have none. MPI_COMM_NULL takes it away. -ENOMEM.
 */
VARVE_API int varve_vector_set_comm_mpi(struct varve_vector *v, MPI_Comm comm) VARVE_CHECK;
/*
 * Combines the elements of the vectors of all processes one by one, as MPI_Reduce and MPI_Allreduce
 * do, in the vectors' own memory: the result stands in the vector of process `root`, or in all of
 * them; with a root, the others' are as they were. `type` is that of one element, `op` any operation
 * that MPI defines for it, or the application's own.
 *   -EINVAL    on some process: no communicator, NULL, a type of another size than its elements, no
 *              such root
 *   -EMSGSIZE  the vectors are not of the same size
 * A process without a communicator gets -EINVAL alone: it cannot tell the others.
 */
VARVE_API int varve_vector_reduce_mpi(struct varve_vector *v, MPI_Datatype type, MPI_Op op,
                                      int root) VARVE_CHECK;
VARVE_API int varve_vector_all_reduce_mpi(struct varve_vector *v, MPI_Datatype type,
                                          MPI_Op op) VARVE_CHECK;
/*
 * The vectors of all processes of `comm` in one file of a shared file system, by collective MPI-IO:
 * the elements of process 0, behind them those of process 1, and so on, and nothing else, so that any
 * program can read it. Vectors may differ in size. For results, and for what other programs shall
 * read; records of a history need no such file.
 *
 * Exporting writes what the vectors hold now. The file appears in its place, or replaces what is
 * there, when all of it is written and synced; until then it has the ending `.part`. Importing fills the
 * vectors, each with as many elements as it has: they are resized beforehand. Blocks while data moves.
 *   -EINVAL    on some process: NULL, or no path, or one that is too long
 *   -EMSGSIZE  the vectors together are not as long as the file; they are as they were
 *   -ENOENT, -EACCES, -ENOSPC, -EDQUOT, -EIO  of the file, as MPI and the system tell. What vectors that
 *              were to be filled hold is then undefined
 */
VARVE_API int varve_vector_export_mpi(MPI_Comm comm, const struct varve_vector *v,
                                      const char *path) VARVE_CHECK;
VARVE_API int varve_vector_import_mpi(MPI_Comm comm, struct varve_vector *v,
                                      const char *path) VARVE_CHECK;

#ifdef __cplusplus
}
#endif

#endif
