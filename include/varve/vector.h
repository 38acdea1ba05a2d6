/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vectors: arrays with records. A vector is a growing, contiguous array in host memory, for CPU codes
 * whose data does not fit memory. Its content is written as a numbered record of a history, moves in the
 * background to slower tiers, and is brought back before it is needed.
 *
 *     struct varve_history_opts o;
 *     varve_history_opts_init(&o, sizeof(o));
 *     o.order = VARVE_ORDER_LIFO;
 *     varve_history_open_with(ctx, "field", &o, &h);
 *     varve_vector_new(h, sizeof(double), n, &v);
 *     for (t = 0; t < steps; t++) { step(VARVE_VECTOR(v, double)); varve_vector_write(v, t); }
 *     for (t = steps; t-- > 0;) { varve_vector_read(v, t); image(VARVE_VECTOR(v, double)); }
 *     varve_vector_free(v);
 *
 * Records. A record is a version of the vector's history (varve/ckpt.h) with one region, number 0;
 * its id is the number of the version. All calls of histories work: varve_hint for an order that is
 * neither first in, first out nor last in, first out, varve_wait for a level, varve_discard,
 * varve_versions. All vectors of a history share its records, even if their elements differ: use a
 * separate history for each array that needs ids of its own.
 *
 * Memory. A vector's elements are part of the host cache, `host_cache`. Vectors and other leases take
 * at most half of it at a time; the rest holds records. Elements are aligned to the page size of the
 * context, at least 4 KiB. Growing copies them to other memory. Contexts whose first cache is on a
 * device have no vectors: -ENOTSUP.
 *
 * Addresses of elements. `data` changes, and pointers to elements are invalid, when a vector grows
 * beyond its capacity, is shrunk, is read into (varve_vector_read), or has moved its memory into a
 * record (varve_vector_write_move). Nothing else moves elements.
 *
 * Threads. One thread at a time uses a vector, like an array. Any threads may use different vectors at
 * once, also of one history.
 *
 * Time and errors. Calls that may block wait without limit unless they are named `_for`. A wait that
 * nothing in progress can end returns an error at once. A failure after a write has returned is reported
 * by a later call (see varve_ckpt(7)), which may be varve_vector_write, _write_move or _read; that call
 * does nothing else. Besides the errors that it lists, every function returns -EINVAL for NULL and invalid
 * arguments, and -EPERM in a forked child.
 */
#ifndef VARVE_VECTOR_H
#define VARVE_VECTOR_H

#include <stddef.h>
#include <stdint.h>

#include <varve/ckpt.h>
#include <varve/varve.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The application may read these fields. Only the functions of this header change them. */
struct varve_vector {
    void *data;        /* the first element; NULL while the vector has no memory */
    size_t size;       /* elements */
    size_t capacity;   /* elements that fit without growing */
    size_t elem_bytes; /* size of one element */
};

/*
 * Makes a vector of `count` elements of `elem_bytes` bytes each, all bytes 0, in the memory of the
 * history's context. The history cannot be closed while a vector of it has memory. The caller owns the
 * vector and ends it with varve_vector_free. Blocks while there is no room.
 *   -EINVAL   elem_bytes is 0
 *   -ENOSPC   more than half of the host cache would be lent, or no contiguous part of it can be freed
 *   -ENOTSUP  the first cache of the context is on a device
 *   -ENOMEM
 */
VARVE_API int varve_vector_new(struct varve_history *h, size_t elem_bytes, size_t count,
                               struct varve_vector **ret_vector) VARVE_CHECK;
/* Ends the vector and gives its memory back; its records stay. NULL is allowed. Does not block. */
VARVE_API void varve_vector_free(struct varve_vector *v);
/* Makes another vector of the same history, with the same elements. Errors are those of
 * varve_vector_new. */
VARVE_API int varve_vector_copy(const struct varve_vector *v,
                                struct varve_vector **ret_vector) VARVE_CHECK;

/*
 * Changes the number of elements. New ones have all bytes 0; with fewer, the memory is kept. Blocks
 * while there is no room to grow, for at most `timeout_ms`: -ETIMEDOUT. Errors are those of
 * varve_vector_new, and leave the vector unchanged.
 */
VARVE_API int varve_vector_resize(struct varve_vector *v, size_t count) VARVE_CHECK;
VARVE_API int varve_vector_resize_for(struct varve_vector *v, size_t count,
                                      int timeout_ms) VARVE_CHECK;
/* Makes room for `count` elements, and changes nothing else. Blocks and fails like
 * varve_vector_resize. */
VARVE_API int varve_vector_reserve(struct varve_vector *v, size_t count) VARVE_CHECK;
/* Gives back the memory that the elements do not need: all of it if there are none. Does not block. */
VARVE_API int varve_vector_shrink(struct varve_vector *v);
/* Appends one element, `elem_bytes` bytes at `element`, which may be one of the vector's own. Grows to
 * twice the size, or as far as there is room. Blocks and fails like varve_vector_resize. */
VARVE_API int varve_vector_push_back(struct varve_vector *v, const void *element) VARVE_CHECK;

/*
 * Writes all elements as record `id`, by a copy in memory: the vector keeps its elements, which may be
 * changed at once. A vector without elements makes a record without elements.
 *   -EEXIST   the record exists; see `overwrite` of struct varve_history_opts
 * and those of varve_checkpoint.
 */
VARVE_API int varve_vector_write(struct varve_vector *v, uint64_t id) VARVE_CHECK;
VARVE_API int varve_vector_write_for(struct varve_vector *v, uint64_t id,
                                     int timeout_ms) VARVE_CHECK;
/*
 * Makes record `id` from the vector's memory itself, without a copy. The vector then has no elements and
 * no memory, and takes other memory when it grows or is read into. An error leaves it unchanged. Errors
 * are those of varve_vector_write. Overwriting an existing record makes a copy.
 */
VARVE_API int varve_vector_write_move(struct varve_vector *v, uint64_t id) VARVE_CHECK;
VARVE_API int varve_vector_write_move_for(struct varve_vector *v, uint64_t id,
                                          int timeout_ms) VARVE_CHECK;
/*
 * Reads record `id` into the vector, which gets the size of the record. The vector takes over the memory
 * of the record in exchange for its own, without a copy, if the record is contiguous in host memory and
 * its memory can be spared: the record is on a slower tier as well, or the history consumes restored
 * versions. Otherwise the record is copied, into the vector's memory if that is large enough. Assume that
 * `data` has changed in any case. A record that is hinted again is copied, so that it stays cached.
 *   -ENOENT   the record does not exist
 *   -EINVAL   its elements have another size. If that was not stored (varve_checkpoint or a version
 *             before 0.2 wrote it), its size is not a multiple of an element's
 *   -ESRCH    the version was not written by a vector: it has no region 0
 *   -ENOSPC   no memory for its elements, as for varve_vector_new
 * and those of varve_restore. The first three leave the vector unchanged; after others it has no
 * elements.
 */
VARVE_API int varve_vector_read(struct varve_vector *v, uint64_t id) VARVE_CHECK;
VARVE_API int varve_vector_read_for(struct varve_vector *v, uint64_t id,
                                    int timeout_ms) VARVE_CHECK;

/*
 * Attaches a pointer of the caller to the vector (in varve/mpi.h, a communicator). `release`, which may be
 * NULL, is called with it when another pointer, including NULL, is attached, and when the vector ends.
 * Copies of the vector have no attached pointer.
 */
VARVE_API int varve_vector_attach(struct varve_vector *v, void *what, void (*release)(void *what));
/* The attached pointer, or NULL. */
VARVE_API void *varve_vector_attached(const struct varve_vector *v);

/* The elements if they have `elem_bytes` bytes each; NULL otherwise. */
static inline void *varve_vector_as(const struct varve_vector *v, size_t elem_bytes)
{
    return v && v->elem_bytes == elem_bytes ? v->data : NULL;
}

/* The elements as an array of `type`. NULL if `type` has another size than the elements, or the vector
 * has no memory. */
#define VARVE_VECTOR(v, type) ((type *)varve_vector_as((v), sizeof(type)))
/* Element i, to be read or assigned. */
#define VARVE_AT(v, type, i) (((type *)(v)->data)[i])

#ifdef __cplusplus
}
#endif

#endif
