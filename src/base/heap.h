/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An indexed binary heap: the largest key is first, and every element stores its place. The core uses it for
 * pages to evict and, with descending keys, for pages to fetch.
 */
#ifndef VV_BASE_HEAP_H
#define VV_BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

#define VV_HEAP_OUT UINT32_MAX

struct vv_heap_item {
    uint64_t key;
    void *value;
    uint32_t
        *pos; /* the element's variable for its place; VV_HEAP_OUT when it is not in the heap */
};

struct vv_heap {
    struct vv_heap_item *item;
    uint32_t n, cap;
};

void vv_heap_fini(struct vv_heap *heap);
/* Makes room for n elements in total, so that vv_heap_set cannot fail. */
int vv_heap_reserve(struct vv_heap *heap, uint32_t n) VV_WARN_UNUSED;
/* Inserts an element, or moves it to its new key. Room must have been reserved. */
void vv_heap_set(struct vv_heap *heap, uint32_t *pos, void *value, uint64_t key);
void vv_heap_remove(struct vv_heap *heap, uint32_t *pos);

static inline void *vv_heap_top(const struct vv_heap *heap)
{
    return heap->n ? heap->item[0].value : NULL;
}

#endif
