/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The programming interface of VELOC, on Varve: programs written for VELOC are compiled with this
 * header and linked with -lveloc-client, unchanged. What each call does here, and what each key of a
 * configuration file means, is in docs/veloc.md and veloc(7).
 *
 * Functions return VELOC_SUCCESS or VELOC_FAILURE unless they say otherwise; why a call failed is
 * printed to the standard error stream. They may be called from any thread, one at a time. Calls
 * marked collective are made by all processes of the communicator, in the same order.
 */
#ifndef VELOC_H
#define VELOC_H

#include <stdbool.h>
#include <stddef.h>

/* VELOC_Init takes a communicator and is declared where mpi.h can be found. */
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
/* Collective. When it returns, everything that this process has checkpointed is where the configuration
 * says, persistent storage included; with `drain` not 0 it tells whether something failed on the way. */
VELOC_API int VELOC_Finalize(int drain);

/* ---- memory ---- */

/* Declares `count` elements of `base_size` bytes, in host or device memory, as region `id`. An id in
 * use gets a new declaration. */
VELOC_API int VELOC_Mem_protect(int id, void *ptr, size_t count, size_t base_size);
/* The same for checkpoints called `name` only. A name that has regions of its own uses those and none
 * of the others. */
VELOC_API int VELOC_Region_protect(int id, void *ptr, size_t count, size_t base_size,
                                   const char *name);
/* VELOC_FAILURE: there is no such region. */
VELOC_API int VELOC_Mem_unprotect(int id);
VELOC_API int VELOC_Region_unprotect(int id, const char *name);
VELOC_API int VELOC_Mem_clear(void);
VELOC_API int VELOC_Region_clear(const char *name);

/* ---- files ---- */

/* The path under which the application itself writes (between VELOC_Checkpoint_begin and _end) or
 * reads (between VELOC_Restart_begin and _end) its file. `routed` has VELOC_MAX_NAME bytes. */
VELOC_API int VELOC_Route_file(const char *original, char *routed);
/* Removes all versions of a checkpoint that this process has written. */
VELOC_API int VELOC_Cleanup(const char *name);

/* ---- checkpoints ---- */

/* Collective, as is VELOC_Checkpoint_end. `version` is not negative. One that exists is replaced. */
VELOC_API int VELOC_Checkpoint_begin(const char *name, int version);
/* Takes the content of all regions, of those in `ids`, or of all but those. */
VELOC_API int VELOC_Checkpoint_selective(int mode, int *ids, int no_ids);
VELOC_API int VELOC_Checkpoint_mem(void);
/* With `success` 0 the version is discarded. */
VELOC_API int VELOC_Checkpoint_end(int success);
/* Waits for everything that goes on in the background, and tells whether it succeeded. */
VELOC_API int VELOC_Checkpoint_wait(void);
/* VELOC_SUCCESS: nothing goes on any more, and VELOC_Checkpoint_wait would not wait. */
VELOC_API int VELOC_Checkpoint_finished(void);
/* VELOC_Checkpoint_begin, _mem and _end. */
VELOC_API int VELOC_Checkpoint(const char *name, int version);

/* ---- restart ---- */

/* Collective. The newest version that all processes have, not above `version` unless that is 0;
 * VELOC_FAILURE: none. */
VELOC_API int VELOC_Restart_test(const char *name, int version);
/* Collective. */
VELOC_API int VELOC_Restart_begin(const char *name, int version);
/* Fills all regions of the checkpoint, those in `ids`, or all but those. Each has to be protected,
 * with enough room. */
VELOC_API int VELOC_Recover_selective(int mode, int *ids, int no_ids);
/* Bytes of a region in the checkpoint; -1: it has no such region, or one too large for an int. */
VELOC_API int VELOC_Recover_size(int id);
/* The same for regions of any size. */
VELOC_API long long VELOC_Recover_size64(int id);
VELOC_API int VELOC_Recover_mem(void);
VELOC_API int VELOC_Restart_end(int success);
/* VELOC_Restart_begin, VELOC_Recover_mem and VELOC_Restart_end. */
VELOC_API int VELOC_Restart(const char *name, int version);

/* ---- prefetching ---- */

/* The version to be restored next, after those enqueued before. It need not exist yet. */
VELOC_API int VELOC_Prefetch_enqueue(const char *name, int version);
/* Bringing up begins now, instead of at the first restart. */
VELOC_API int VELOC_Prefetch_start(void);
/* Whether a version has been brought up. All regions of a version are together: `region` is only
 * looked at to see whether there is such a region. */
VELOC_API bool VELOC_Next_prefetched(const char *name, int version, int region);
/* Bytes of a region in any checkpoint; (size_t)-1: there is none. */
VELOC_API size_t VELOC_Recover_ckpt_size(const char *name, int version, int region);
/* How many bytes have moved between which memories, as text of at most VELOC_MAX_NAME bytes. */
VELOC_API void VELOC_Get_trf_metrics(char *text);

/* What the overload below calls. */
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

/* `release` is called when the library lets go of the region: it is not protected any more. */
inline int VELOC_Mem_protect(int id, void *ptr, size_t count, size_t base_size, unsigned int flags,
                             release_routine release = NULL)
{
    return VELOC_Mem_protect_flags(id, ptr, count, base_size, flags, release);
}
#endif

#endif
