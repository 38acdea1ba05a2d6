/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The programming interface of VELOC, on Varve. Programs written for VELOC are compiled with this
 * header and linked with -lveloc-client, unchanged. docs/veloc.md and veloc(7) describe each call and
 * each key of a configuration file.
 *
 * Functions return VELOC_SUCCESS or VELOC_FAILURE unless stated otherwise; the reason of a failure is
 * printed to the standard error stream. Any thread may call them, one at a time. All processes of the
 * communicator make the calls marked collective, in the same order.
 */
#ifndef VELOC_H
#define VELOC_H

#include <stdbool.h>
#include <stddef.h>

/* VELOC_Init takes a communicator, so it is declared only if mpi.h is found. */
#if !defined(VELOC_NO_MPI) && !defined(MPI_VERSION) && defined(__has_include)
#if __has_include(<mpi.h>)
#include <mpi.h>
#endif
#endif

#include <veloc/defs.h>

#if defined(__GNUC__)
#define VELOC_API __attribute__((visibility("default")))
#else
#define VELOC_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- beginning and end ---- */

#if defined(MPI_VERSION) && !defined(VELOC_NO_MPI)
/* Collective. The processes of `comm` checkpoint and restart as a group. */
VELOC_API int VELOC_Init(MPI_Comm comm, const char *cfg_file);
#endif
/* This process checkpoints and restarts by itself, under a number of its own. */
VELOC_API int VELOC_Init_single(unsigned int id, const char *cfg_file);
/* Collective. When it returns, all checkpoints of this process have reached the storage that the
 * configuration names, including persistent storage. With `drain` not 0 it fails if one of them failed on
 * the way. */
VELOC_API int VELOC_Finalize(int drain);

/* ---- memory ---- */

/* Declares `count` elements of `base_size` bytes, in host or device memory, as region `id`. An id in
 * use gets a new declaration. */
VELOC_API int VELOC_Mem_protect(int id, void *ptr, size_t count, size_t base_size);
/* The same for checkpoints called `name` only. A name that has regions of its own uses only these. */
VELOC_API int VELOC_Region_protect(int id, void *ptr, size_t count, size_t base_size,
                                   const char *name);
/* Removes the declaration of a region. VELOC_FAILURE: there is no such region. */
VELOC_API int VELOC_Mem_unprotect(int id);
VELOC_API int VELOC_Region_unprotect(int id, const char *name);
VELOC_API int VELOC_Mem_clear(void);
VELOC_API int VELOC_Region_clear(const char *name);

/* ---- files ---- */

/* Returns the path at which the application itself writes (between VELOC_Checkpoint_begin and _end) or
 * reads (between VELOC_Restart_begin and _end) its file. `routed` has VELOC_MAX_NAME bytes. */
VELOC_API int VELOC_Route_file(const char *original, char *routed);
/* Removes all versions that this process has written of a checkpoint. */
VELOC_API int VELOC_Cleanup(const char *name);

/* ---- checkpoints ---- */

/* Collective, as is VELOC_Checkpoint_end. `version` is not negative. An existing version is replaced. */
VELOC_API int VELOC_Checkpoint_begin(const char *name, int version);
/* Writes the content of all regions, of those in `ids`, or of all others. */
VELOC_API int VELOC_Checkpoint_selective(int mode, int *ids, int no_ids);
VELOC_API int VELOC_Checkpoint_mem(void);
/* With `success` 0 the version is discarded. */
VELOC_API int VELOC_Checkpoint_end(int success);
/* Waits for all work in the background. VELOC_FAILURE: some of it failed. */
VELOC_API int VELOC_Checkpoint_wait(void);
/* VELOC_SUCCESS: no work is left in the background, and VELOC_Checkpoint_wait would not wait. */
VELOC_API int VELOC_Checkpoint_finished(void);
/* VELOC_Checkpoint_begin, _mem and _end. */
VELOC_API int VELOC_Checkpoint(const char *name, int version);

/* ---- restart ---- */

/* Collective. Returns the newest version that all processes have, not above `version` unless that is 0;
 * VELOC_FAILURE: there is none. */
VELOC_API int VELOC_Restart_test(const char *name, int version);
/* Collective. */
VELOC_API int VELOC_Restart_begin(const char *name, int version);
/* Restores all regions of the checkpoint, those in `ids`, or all others. Each must be protected, with
 * enough room. */
VELOC_API int VELOC_Recover_selective(int mode, int *ids, int no_ids);
/* Bytes of a region in the checkpoint; -1: it has no such region, or its size does not fit an int. */
VELOC_API int VELOC_Recover_size(int id);
/* The same for regions of any size. */
VELOC_API long long VELOC_Recover_size64(int id);
VELOC_API int VELOC_Recover_mem(void);
VELOC_API int VELOC_Restart_end(int success);
/* VELOC_Restart_begin, VELOC_Recover_mem and VELOC_Restart_end. */
VELOC_API int VELOC_Restart(const char *name, int version);

/* ---- prefetching ---- */

/* Declares the version to be restored next, after those enqueued before. It need not exist yet. */
VELOC_API int VELOC_Prefetch_enqueue(const char *name, int version);
/* Starts prefetching now, instead of at the first restart. */
VELOC_API int VELOC_Prefetch_start(void);
/* True if a version has been prefetched and has the region. All regions of a version are prefetched
 * together. */
VELOC_API bool VELOC_Next_prefetched(const char *name, int version, int region);
/* Bytes of a region in any checkpoint; (size_t)-1: there is none. */
VELOC_API size_t VELOC_Recover_ckpt_size(const char *name, int version, int region);
/* The bytes moved between each pair of memories, as text of at most VELOC_MAX_NAME bytes. */
VELOC_API void VELOC_Get_trf_metrics(char *text);

/* Implements the overload below. */
VELOC_API int VELOC_Mem_protect_flags(int id, void *ptr, size_t count, size_t base_size,
                                      unsigned int flags, int (*release)(void));

#ifdef __cplusplus
}

#ifndef DEFAULT
#define DEFAULT (0)
#endif
#ifndef READ_ONLY
#define READ_ONLY (1) /* the region is not written to while it is protected */
#endif
typedef int (*release_routine)(void);

/* `release` is called when the region is no longer protected. */
inline int VELOC_Mem_protect(int id, void *ptr, size_t count, size_t base_size, unsigned int flags,
                             release_routine release = NULL)
{
    return VELOC_Mem_protect_flags(id, ptr, count, base_size, flags, release);
}
#endif

#endif
