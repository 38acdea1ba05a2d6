/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Varve for MPI: the few calls that the processes of a job make together. They are in a library of
 * their own, libvarve-mpi, so that programs without MPI need none.
 *
 *     varve_open_mpi(MPI_COMM_WORLD, NULL, &ctx);
 *     varve_history_open(ctx, "state", &h);
 *     if (varve_latest_mpi(MPI_COMM_WORLD, h, &v) == 0) varve_restore_mpi(MPI_COMM_WORLD, h, v);
 *
 * Collective calls. All processes of the communicator call the functions here, in the same order, like
 * a collective operation of MPI; the result is the same on all of them. MPI is used only inside these
 * calls, not by checkpoints, restores or the library's threads, so any thread level of MPI is enough.
 * Each process calls all other functions (varve_checkpoint, varve_wait, varve_restore, ...) for itself.
 *
 * Partner copies (`partner`, see varve/transport.h) are the exception. With them varve_history_open is
 * collective as well. Under MPI_THREAD_MULTIPLE a thread of the library calls MPI, on communicators of
 * its own. Below that level varve_checkpoint, varve_wait, varve_flush and the calls that close use MPI
 * on the calling thread: under MPI_THREAD_FUNNELED and below only the main thread may wait, and all
 * processes should wait for the same versions. Contexts are closed before MPI_Finalize.
 *
 * Failures. Errors that MPI itself reports go to the error handler of the communicator. MPI handles the
 * death of a process: most implementations end the job.
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
 * Opens a context on every process of `comm`, as varve_open does. `rank` is set to the process's rank in
 * `comm`, and `ranks` to its size. All processes get the same run_id: that of rank 0, drawn if its
 * options have neither run_id nor `run`. Each process may have options of its own (a device, a local
 * folder); NULL: the defaults, including the environment. If any process fails, all fail, with the
 * most negative error. varve_last_error(NULL, ...) then has the details on the process that failed, and
 * names that process and its reason on the others. The communicator is not kept; partner copies use
 * duplicates of it. -EINVAL: also if only some processes set `partner`, or all are on one node.
 * -EPERM: before MPI_Init, or after MPI_Finalize.
 */
VARVE_API int varve_open_mpi(MPI_Comm comm, const struct varve_opts *opts,
                             struct varve_ctx **ret_ctx) VARVE_CHECK;
/* Closes the contexts, as varve_close does. 0: every process has flushed all its versions. Errors are
 * returned as by varve_open_mpi. */
VARVE_API int varve_close_mpi(MPI_Comm comm, struct varve_ctx *ctx);
/*
 * The newest version that all processes of `comm` have at the level of the context, all written by the
 * same run: a number that processes have from different runs is skipped. -ENOENT: there is none. All
 * processes get the same answer, even if they have different versions. At levels local and remote a
 * process may have newer versions from earlier runs: checkpoints overwrite them (varve_resume), or all
 * versions if no version is common.
 */
VARVE_API int varve_latest_mpi(MPI_Comm comm, struct varve_history *h,
                               uint64_t *ret_version) VARVE_CHECK;
/* Restores a version on every process. If any fails, all fail, with the most negative error, and
 * varve_last_error of the context names the process and its reason; the content of the regions is then
 * undefined. With partner copies, bytes that are damaged or missing on a process are first repaired
 * from its copy. */
VARVE_API int varve_restore_mpi(MPI_Comm comm, struct varve_history *h,
                                uint64_t version) VARVE_CHECK;

/*
 * The same for programs in other languages, with a communicator's Fortran handle (MPI_Comm_c2f): a
 * handle of `use mpi`, or MPI_VAL of one of `use mpi_f08`. The Fortran module varve_mpi calls these. An
 * invalid handle is reported to the error handlers of MPI.
 */
VARVE_API int varve_open_mpi_f(MPI_Fint comm, const struct varve_opts *opts,
                               struct varve_ctx **ret_ctx) VARVE_CHECK;
VARVE_API int varve_close_mpi_f(MPI_Fint comm, struct varve_ctx *ctx);
VARVE_API int varve_latest_mpi_f(MPI_Fint comm, struct varve_history *h,
                                 uint64_t *ret_version) VARVE_CHECK;
VARVE_API int varve_restore_mpi_f(MPI_Fint comm, struct varve_history *h,
                                  uint64_t version) VARVE_CHECK;

/*
 * Sets the communicator over which a vector is reduced. Not collective. The vector keeps the handle, not
 * a duplicate: free the communicator only after the vector, or after setting another one. Copies of the
 * vector have none. MPI_COMM_NULL removes it. -ENOMEM.
 */
VARVE_API int varve_vector_set_comm_mpi(struct varve_vector *v, MPI_Comm comm) VARVE_CHECK;
/*
 * Reduces the vectors of all processes element by element, like MPI_Reduce and MPI_Allreduce, in the
 * vectors' own memory: the result is in the vector of process `root`, or in all of them; with a root, the
 * other vectors are unchanged. `type` is the type of one element, `op` any operation that MPI or the
 * application defines for it.
 *   -EINVAL    on some process: no communicator, NULL, a type whose size is not that of the elements,
 *              or an invalid root
 *   -EMSGSIZE  the vectors differ in size
 * A process without a communicator returns -EINVAL by itself: it cannot reach the others.
 */
VARVE_API int varve_vector_reduce_mpi(struct varve_vector *v, MPI_Datatype type, MPI_Op op,
                                      int root) VARVE_CHECK;
VARVE_API int varve_vector_all_reduce_mpi(struct varve_vector *v, MPI_Datatype type,
                                          MPI_Op op) VARVE_CHECK;
/*
 * Writes or reads the vectors of all processes of `comm` as one file on a shared file system, by
 * collective MPI-IO. The file has the elements of process 0, then those of process 1, and so on, and
 * nothing else, so that any program can read it. Vectors may differ in size. Use it for results and for
 * data exchanged with other programs; records of a history need no such file.
 *
 * Exporting writes the current elements. The file has the ending `.part` until all of it is written and
 * synced; then it takes its name and replaces an existing file. Importing fills each vector with as many
 * elements as it has: resize the vectors before. Blocks while data moves.
 *   -EINVAL    on some process: NULL, an empty path, or one that is too long
 *   -EMSGSIZE  the vectors together do not have the length of the file; they are unchanged
 *   -ENOENT, -EACCES, -ENOSPC, -EDQUOT, -EIO  errors of the file, from MPI and the system. The content
 *              of vectors that were being filled is then undefined
 */
VARVE_API int varve_vector_export_mpi(MPI_Comm comm, const struct varve_vector *v,
                                      const char *path) VARVE_CHECK;
VARVE_API int varve_vector_import_mpi(MPI_Comm comm, struct varve_vector *v,
                                      const char *path) VARVE_CHECK;

#ifdef __cplusplus
}
#endif

#endif
