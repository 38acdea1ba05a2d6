/* SPDX-License-Identifier: Apache-2.0 */
/* Copies in host memory, by the calling thread alone or with the help of a pool. */
#ifndef VV_BASE_COPY_H
#define VV_BASE_COPY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/util.h"

/* Copies by the calling thread, with memcpy. The two ranges must not overlap. */
void vv_copy(void *dst, const void *src, size_t n);
/* Copies of this size or more bypass the caches, which they would not fit. */
size_t vv_copy_stream_min(void);

struct vv_copy_seg {
    void *dst;
    const void *src;
    size_t bytes;
};

struct vv_copy_pool;

/* As many helpers as increase memory bandwidth: one for each available core but that of the caller,
 * seven at most. */
#define VV_COPY_HELPERS_AUTO UINT32_MAX

/* Makes a pool of `helpers` threads in addition to the callers; with 0 the caller works alone. -ENOMEM,
 * -EAGAIN, -EINVAL. */
VV_WARN_UNUSED int vv_copy_pool_new(unsigned helpers, struct vv_copy_pool **ret_pool);
/* Frees the pool; no copy may be running. Accepts NULL. */
void vv_copy_pool_free(struct vv_copy_pool *pool);

/*
 * Copies all segments and returns when all bytes are copied. Any thread; the caller takes part, and copies
 * alone if the pool is NULL or busy with another caller's copy. Segments must not overlap. `whole` is the
 * size of the whole copy that the segments are part of; it decides if the caches are bypassed.
 */
void vv_copy_part(struct vv_copy_pool *pool, const struct vv_copy_seg *segs, size_t count,
                  size_t whole);

/* Below this, waking helpers takes longer than the copy. */
#define VV_COPY_ALONE_BYTES ((size_t)2 << 20)

/* The same if the segments are the whole copy. A small copy costs no more than memcpy. */
static inline void vv_copy_parallel(struct vv_copy_pool *pool, const struct vv_copy_seg *segs,
                                    size_t count)
{
    size_t bytes = 0;

    if (count == 1 && segs->bytes < VV_COPY_ALONE_BYTES) {
        memcpy(segs->dst, segs->src, segs->bytes);
        return;
    }
    for (size_t i = 0; i < count; i++)
        bytes += segs[i].bytes;
    vv_copy_part(pool, segs, count, bytes);
}

#endif
