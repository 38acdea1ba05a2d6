/* SPDX-License-Identifier: Apache-2.0 */
/* Copies in host memory, by the calling thread alone or with the help of a pool. */
#ifndef VV_BASE_COPY_H
#define VV_BASE_COPY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/util.h"

/* By the calling thread, as the C library does it. The two ranges must not overlap. */
void vv_copy(void *dst, const void *src, size_t n);
/* From so many bytes on, copies leave the caches alone: they would not find room there. */
size_t vv_copy_stream_min(void);

struct vv_copy_seg {
    void *dst;
    const void *src;
    size_t bytes;
};

struct vv_copy_pool;

/* As many as memory bandwidth gains from: a core each, as far as there are, and seven at most. */
#define VV_COPY_HELPERS_AUTO UINT32_MAX

/* `helpers` threads beside the callers; 0 is a pool in which the caller works alone. -ENOMEM,
 * -EAGAIN, -EINVAL. */
VV_WARN_UNUSED int vv_copy_pool_new(unsigned helpers, struct vv_copy_pool **ret_pool);
/* No copy may be running. Accepts NULL. */
void vv_copy_pool_free(struct vv_copy_pool *pool);

/*
 * Copies all segments and returns when the last byte is there. Any thread; the caller takes part,
 * and copies alone if the pool is busy with another caller's copy or NULL. Segments must not
 * overlap. `whole`: they are parts of something that has so many bytes and is copied at one go; by
 * that it is decided whether the caches are left alone.
 */
void vv_copy_part(struct vv_copy_pool *pool, const struct vv_copy_seg *segs, size_t count,
                  size_t whole);

/* Below this, waking helpers takes longer than the copy. */
#define VV_COPY_ALONE_BYTES ((size_t)2 << 20)

/* The same for something that is all there. What is small costs no more than memcpy. */
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
