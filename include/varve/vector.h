/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vectors: arrays that write and read themselves. A vector is a contiguous array in host memory that
 * grows, for codes on the CPU whose data does not fit memory: what it holds is written as a numbered
 * record of a history, moves on in the background to whatever lies below, and is brought back before
 * it is asked for.
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
 * its id is the number of the version. Everything that histories can do is there: varve_hint for an
 * order that is neither first in, first out nor last in, first out, varve_wait for a level,
 * varve_discard, varve_versions. All vectors of a history share its records, whatever their elements
 * are: arrays that have ids of their own belong in histories of their own.
 *
 * Memory. A vector's elements are part of the host cache, `host_cache`, and at most half of that is
 * in the hands of vectors and other leases at a time; the rest holds records. They are aligned to
 * the page size of the context, 4 KiB at least. Growing takes other memory and copies. Contexts whose
 * first cache is on a device have no vectors: -ENOTSUP.
 *
 * Addresses of elements. `data` changes, and pointers to elements are invalid, when a vector grows
 * beyond its capacity, is shrunk, is read into (varve_vector_read), or has handed its memory over
 * (varve_vector_write_move). Nothing else moves elements.
 *
 * Threads. A vector is used by one thread at a time, as an array would be; different vectors, of one
 * history too, by any threads at once.
 *
 * Time and errors. Calls that may block wait without limit unless they are named `_for`; a wait that
 * nothing in progress can end returns an error at once instead. A failure after a write has
 * returned is reported by a later call (see varve_ckpt(7)), which may be varve_vector_write, _write_move
 * or _read, and which then does nothing else. Errors of every function besides its own: -EINVAL for NULL
 * and absurd arguments, -EPERM in a forked child.
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

/* To be read by the application, and changed by the functions below only. */
struct varve_vector {
    void *data;        /* the first element; NULL while the vector has no memory */
    size_t size;       /* elements */
    size_t capacity;   /* elements that fit without growing */
    size_t elem_bytes; /* of one element */
};

/*
 * A vector of `count` elements of `elem_bytes` bytes each, all bytes 0, in the memory of the
 * history's context. The history outlives it: it cannot be closed while a vector of it has memory.
 * The caller owns the vector and ends it with varve_vector_free. Blocks while there is no room.
 *   -EINVAL   elem_bytes is 0
 *   -ENOSPC   more than half of the host cache would be lent, or no run of it can be had
 *   -ENOTSUP  the first cache of the context is on a device
 *   -ENOMEM
 */
VARVE_API int varve_vector_new(struct varve_history *h, size_t elem_bytes, size_t count,
                               struct varve_vector **ret_vector) VARVE_CHECK;
/* Ends the vector and gives its memory back; its records stay. NULL is allowed. Does not block. */
VARVE_API void varve_vector_free(struct varve_vector *v);
/* Another vector of the same history, with the same elements. Errors as those of varve_vector_new. */
VARVE_API int varve_vector_copy(const struct varve_vector *v,
                                struct varve_vector **ret_vector) VARVE_CHECK;

/*
 * Changes the number of elements. Those that are new have all bytes 0; with fewer, the memory is
 * kept. Blocks while there is no room to grow, for at most `timeout_ms`: -ETIMEDOUT. Errors as those
 * of varve_vector_new; the vector is as it was then.
 */
VARVE_API int varve_vector_resize(struct varve_vector *v, size_t count) VARVE_CHECK;
VARVE_API int varve_vector_resize_for(struct varve_vector *v, size_t count,
                                      int timeout_ms) VARVE_CHECK;
/* Makes room for `count` elements, and changes nothing else. As varve_vector_resize. */
VARVE_API int varve_vector_reserve(struct varve_vector *v, size_t count) VARVE_CHECK;
/* Gives back the memory that the elements do not need: all of it if there are none. Does not block. */
VARVE_API int varve_vector_shrink(struct varve_vector *v);
/* Appends one element, `elem_bytes` bytes at `element`, which may be one of the vector's own. Grows
 * to twice the size, or as far as there is room. As varve_vector_resize. */
VARVE_API int varve_vector_push_back(struct varve_vector *v, const void *element) VARVE_CHECK;

/*
 * Writes all elements as record `id`, by a copy in memory: the vector is what it was and may be
 * changed at once. A vector without elements makes a record without elements.
 *   -EEXIST   there is such a record; see `overwrite` of struct varve_history_opts
 * and those of varve_checkpoint.
 */
VARVE_API int varve_vector_write(struct varve_vector *v, uint64_t id) VARVE_CHECK;
VARVE_API int varve_vector_write_for(struct varve_vector *v, uint64_t id,
                                     int timeout_ms) VARVE_CHECK;
/*
 * Makes record `id` of the vector's memory itself: no byte moves. The vector has no elements and no
 * memory then, and takes other memory when it grows or is read into. After an error it is as it was.
 * Errors as those of varve_vector_write. A record that is overwritten is copied.
 */
VARVE_API int varve_vector_write_move(struct varve_vector *v, uint64_t id) VARVE_CHECK;
VARVE_API int varve_vector_write_move_for(struct varve_vector *v, uint64_t id,
                                          int timeout_ms) VARVE_CHECK;
/*
 * Makes record `id` what the vector holds, and its size that of the record. If the record stands in
 * host memory in one piece and that memory can be spared, since the record is on a slower tier as
 * well or the history consumes what is restored, the vector takes it over in exchange for its own,
 * and no byte moves. Otherwise the record is copied, into the vector's memory if that is
 * large enough. `data` has changed in any case, as far as the caller knows. A record that is hinted
 * again is copied, so that it stays.
 *   -ENOENT   no such record
 *   -EINVAL   its elements have another size; where that was not stored (varve_checkpoint wrote it,
 *             or a version before 0.2), its bytes are no multiple of an element's
 *   -ESRCH    the version was not written by a vector: it has no region 0
 *   -ENOSPC   no memory for its elements, as for varve_vector_new
 * and those of varve_restore. After the first three the vector is as it was; after others it has no
 * elements.
 */
VARVE_API int varve_vector_read(struct varve_vector *v, uint64_t id) VARVE_CHECK;
VARVE_API int varve_vector_read_for(struct varve_vector *v, uint64_t id,
                                    int timeout_ms) VARVE_CHECK;

/*
 * Something of the caller's that belongs to the vector (a communicator, in varve/mpi.h): `release`,
 * which may be NULL, is called with it when something else takes its place, NULL included, and when
 * the vector ends. Copies of the vector have none.
 */
VARVE_API int varve_vector_attach(struct varve_vector *v, void *what, void (*release)(void *what));
/* The attached pointer, or NULL. */
VARVE_API void *varve_vector_attached(const struct varve_vector *v);

/* The elements, if they have the size of the type asked for; NULL otherwise. */
static inline void *varve_vector_as(const struct varve_vector *v, size_t elem_bytes)
{
    return v && v->elem_bytes == elem_bytes ? v->data : NULL;
}

/* The elements as an array of `type`: NULL if `type` has another size than they have, or if there is
 * no memory. */
#define VARVE_VECTOR(v, type) ((type *)varve_vector_as((v), sizeof(type)))
/* Element i, to be read or assigned. */
#define VARVE_AT(v, type, i) (((type *)(v)->data)[i])

#ifdef __cplusplus
}
#endif

#endif
