/* SPDX-License-Identifier: Apache-2.0 */
/* Copies in host memory, by the calling thread alone or with the help of a pool. */
#ifndef VV_CORE_COPY_H
#define VV_CORE_COPY_H

#include <stddef.h>
#include <stdint.h>

#include "core/util.h"

/* The two ranges must not overlap. */
void vv_copy(void *dst, const void *src, size_t n);

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

/* Copies all segments and returns when the last byte is there. Any thread; the caller takes part,
 * and copies alone if the pool is busy with another caller's copy or NULL. Segments must not
 * overlap. */
void vv_copy_parallel(struct vv_copy_pool *pool, const struct vv_copy_seg *segs, size_t count);

#endif
