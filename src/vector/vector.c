/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vectors: each has one lease of the host cache and the size of its elements.
 *
 * Invariants between two calls: capacity is the number of whole elements that fit the lease; size is at most capacity;
 * data is the lease's memory, NULL exactly if there is none. A call that fails leaves the vector unchanged, except for a
 * read that fails half-way: it leaves the vector without elements, because the content of its memory is undefined.
 *
 * Reading exchanges memory if possible (vv_ckpt_swap). Otherwise it copies, into the vector's own memory if the record
 * fits. If not, new memory is taken first; the old memory is given back before that only if there is no room for both.
 *
 * Threads: the caller's. A vector has no lock; one thread at a time uses it.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <varve/vector.h>

#include "base/clock.h"
#include "ckpt/lease.h"

struct vector {
    struct varve_vector head; /* the public part; first */
    struct varve_history *h;
    struct vv_lease lease;
    void *attached;
    void (*release)(void *attached);
};

static struct vector *of(struct varve_vector *v)
{
    return (struct vector *)v;
}

/* Sets the public fields from the lease. */
static void set_lease(struct vector *v, const struct vv_lease *lease, size_t size)
{
    v->lease = *lease;
    v->head.data = lease->ptr;
    v->head.capacity = lease->bytes / v->head.elem_bytes;
    v->head.size = size;
}

static void drop_lease(struct vector *v)
{
    static const struct vv_lease none = {0};
    vv_ckpt_unlease(v->h, &v->lease);
    set_lease(v, &none, 0);
}

/* Size of `count` elements in bytes; -ENOSPC: more than any memory. */
static int bytes_of(const struct vector *v, size_t count, size_t *ret_bytes)
{
    if (count > (size_t)INT64_MAX / v->head.elem_bytes)
        return vv_ckpt_fail(v->h, "lease", 0, -ENOSPC,
                            "%zu elements of %zu bytes are more than any memory holds", count,
                            v->head.elem_bytes);
    *ret_bytes = count * v->head.elem_bytes;
    return 0;
}

/* Takes memory for `count` elements, more than the vector has, and copies its elements there. */
static int grow(struct vector *v, size_t count, uint64_t deadline_ns)
{
    struct vv_lease lease;
    size_t bytes = 0;
    int rc = bytes_of(v, count, &bytes);
    if (rc == 0)
        rc = vv_ckpt_lease(v->h, bytes, deadline_ns, &lease);
    if (rc)
        return rc;
    size_t size = v->head.size;
    if (size)
        vv_ckpt_copy(v->h, lease.ptr, v->head.data, size * v->head.elem_bytes);
    vv_ckpt_unlease(v->h, &v->lease);
    set_lease(v, &lease, size);
    return 0;
}

static int resize(struct vector *v, size_t count, uint64_t deadline_ns)
{
    size_t size = v->head.size;
    int rc = count > v->head.capacity ? grow(v, count, deadline_ns) : 0;
    if (rc)
        return rc;
    if (count > size)
        memset((char *)v->head.data + size * v->head.elem_bytes, 0,
               (count - size) * v->head.elem_bytes);
    v->head.size = count;
    return 0;
}

/* ---- creation and end ---- */

static int vector_new(struct varve_history *h, size_t elem_bytes, struct vector **ret_vector)
{
    int rc = vv_ckpt_usable(h);
    if (rc)
        return rc;
    if (elem_bytes == 0)
        return vv_ckpt_fail(h, "lease", 0, -EINVAL,
                            "elem_bytes is 0: elements have at least 1 byte");
    struct vector *v = calloc(1, sizeof(*v));
    if (!v)
        return -ENOMEM;
    v->h = h;
    v->head.elem_bytes = elem_bytes;
    *ret_vector = v;
    return 0;
}

int varve_vector_new(struct varve_history *h, size_t elem_bytes, size_t count,
                     struct varve_vector **ret_vector)
{
    struct vector *v;
    int rc = ret_vector ? vector_new(h, elem_bytes, &v) : -EINVAL;
    if (rc)
        return rc;
    rc = resize(v, count, VV_NEVER_NS);
    if (rc) {
        varve_vector_free(&v->head);
        return rc;
    }
    *ret_vector = &v->head;
    return 0;
}

void varve_vector_free(struct varve_vector *vector)
{
    struct vector *v = of(vector);
    if (!v)
        return;
    drop_lease(v);
    if (v->release && v->attached)
        v->release(v->attached);
    free(v);
}

int varve_vector_copy(const struct varve_vector *v, struct varve_vector **ret_vector)
{
    const struct vector *from = (const struct vector *)v;
    struct vector *to;
    int rc = v && ret_vector ? vector_new(from->h, v->elem_bytes, &to) : -EINVAL;
    if (rc)
        return rc;
    rc = v->size ? grow(to, v->size, VV_NEVER_NS) : 0;
    if (rc) {
        varve_vector_free(&to->head);
        return rc;
    }
    if (v->size)
        vv_ckpt_copy(to->h, to->head.data, v->data, v->size * v->elem_bytes);
    to->head.size = v->size;
    *ret_vector = &to->head;
    return 0;
}

/* ---- sizes ---- */

int varve_vector_resize_for(struct varve_vector *v, size_t count, int timeout_ms)
{
    int rc = v ? vv_ckpt_usable(of(v)->h) : -EINVAL;
    return rc ? rc : resize(of(v), count, vv_deadline_ns(timeout_ms));
}

int varve_vector_resize(struct varve_vector *v, size_t count)
{
    return varve_vector_resize_for(v, count, -1);
}

int varve_vector_reserve(struct varve_vector *v, size_t count)
{
    int rc = v ? vv_ckpt_usable(of(v)->h) : -EINVAL;
    if (rc || count <= v->capacity)
        return rc;
    return grow(of(v), count, VV_NEVER_NS);
}

int varve_vector_shrink(struct varve_vector *vector)
{
    struct vector *v = of(vector);
    int rc = v ? vv_ckpt_usable(v->h) : -EINVAL;
    if (rc)
        return rc;
    if (v->head.size == 0) {
        drop_lease(v);
        return 0;
    }
    vv_ckpt_trim(v->h, &v->lease, v->head.size * v->head.elem_bytes);
    set_lease(v, &v->lease, v->head.size);
    return 0;
}

int varve_vector_push_back(struct varve_vector *vector, const void *element)
{
    struct vector *v = of(vector);
    const char *from = element;
    int rc = v && element ? vv_ckpt_usable(v->h) : -EINVAL;
    if (rc)
        return rc;
    size_t size = v->head.size, bytes = v->head.elem_bytes;
    if (size == v->head.capacity) {
        /* `element` may be in the vector's own memory, which is about to move. */
        uintptr_t at = (uintptr_t)element - (uintptr_t)v->head.data;
        bool own = v->head.data && at < size * bytes;
        size_t twice = size > SIZE_MAX / 2 ? size : 2 * size;
        rc = twice > size + 1 ? grow(v, twice, VV_NEVER_NS) : -ENOSPC;
        if (rc == -ENOSPC)
            rc = grow(v, size + 1, VV_NEVER_NS);
        if (rc)
            return rc;
        if (own)
            from = (const char *)v->head.data + at;
    }
    memcpy((char *)v->head.data + size * bytes, from, bytes);
    v->head.size++;
    return 0;
}

/* ---- records ---- */

int varve_vector_write_for(struct varve_vector *v, uint64_t id, int timeout_ms)
{
    int rc = v ? vv_ckpt_usable(of(v)->h) : -EINVAL;
    return rc ? rc
              : vv_ckpt_write(of(v)->h, id, v->data, v->size * v->elem_bytes, v->elem_bytes,
                              vv_deadline_ns(timeout_ms));
}

int varve_vector_write(struct varve_vector *v, uint64_t id)
{
    return varve_vector_write_for(v, id, -1);
}

int varve_vector_write_move_for(struct varve_vector *vector, uint64_t id, int timeout_ms)
{
    struct vector *v = of(vector);
    if (v && v->head.size == 0) {
        int rc = varve_vector_write_for(vector, id, timeout_ms);
        if (rc == 0)
            drop_lease(v);
        return rc;
    }
    int rc = v ? vv_ckpt_usable(v->h) : -EINVAL;
    if (rc)
        return rc;
    rc = vv_ckpt_write_lease(v->h, id, &v->lease, v->head.size * v->head.elem_bytes,
                             v->head.elem_bytes, vv_deadline_ns(timeout_ms));
    set_lease(v, &v->lease, v->lease.lend ? v->head.size : 0);
    return rc;
}

int varve_vector_write_move(struct varve_vector *v, uint64_t id)
{
    return varve_vector_write_move_for(v, id, -1);
}

/* Takes memory for the copy of a record. The vector's old content is not needed any more. */
static int make_room(struct vector *v, size_t bytes, uint64_t deadline_ns)
{
    struct vv_lease lease;
    if (bytes <= v->lease.bytes)
        return 0;
    int rc = vv_ckpt_lease(v->h, bytes, deadline_ns, &lease);
    if (rc == -ENOSPC && v->lease.lend) {
        drop_lease(v);
        rc = vv_ckpt_lease(v->h, bytes, deadline_ns, &lease);
    }
    if (rc)
        return rc;
    vv_ckpt_unlease(v->h, &v->lease);
    set_lease(v, &lease, 0);
    return 0;
}

static int read_copy(struct vector *v, uint64_t id, uint64_t deadline_ns)
{
    size_t bytes = 0;
    int rc = vv_ckpt_size(v->h, id, v->head.elem_bytes, &bytes);
    if (rc)
        return rc;
    v->head.size = 0;
    rc = make_room(v, bytes, deadline_ns);
    if (rc == 0)
        rc = vv_ckpt_read(v->h, id, v->lease.ptr, bytes, deadline_ns);
    if (rc == 0)
        v->head.size = bytes / v->head.elem_bytes;
    return rc;
}

int varve_vector_read_for(struct varve_vector *vector, uint64_t id, int timeout_ms)
{
    struct vector *v = of(vector);
    uint64_t deadline_ns = vv_deadline_ns(timeout_ms);
    size_t bytes = 0;
    int rc = v ? vv_ckpt_swap(v->h, id, v->head.elem_bytes, &v->lease, &bytes) : -EINVAL;
    if (rc == 0)
        set_lease(v, &v->lease, bytes / v->head.elem_bytes);
    if (rc != -EAGAIN)
        return rc;
    /* Repeat: another thread may overwrite the record meanwhile, with more elements. */
    do
        rc = read_copy(v, id, deadline_ns);
    while (rc == -ENOBUFS);
    return rc;
}

int varve_vector_read(struct varve_vector *v, uint64_t id)
{
    return varve_vector_read_for(v, id, -1);
}

/* ---- the attached pointer ---- */

int varve_vector_attach(struct varve_vector *vector, void *what, void (*release)(void *what))
{
    struct vector *v = of(vector);
    if (!v)
        return -EINVAL;
    if (v->release && v->attached)
        v->release(v->attached);
    v->attached = what;
    v->release = release;
    return 0;
}

void *varve_vector_attached(const struct varve_vector *v)
{
    return v ? ((const struct vector *)v)->attached : NULL;
}
