/* SPDX-License-Identifier: Apache-2.0 */
/* An indexed binary heap: largest key first, every element knows its place. */
#ifndef VV_ENGINE_HEAP_H
#define VV_ENGINE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/util.h"

#define VVI_HEAP_OUT UINT32_MAX

struct vvi_heap_item {
    uint64_t key;
    void *value;
    uint32_t *pos; /* where the element keeps its place; VVI_HEAP_OUT when it is not in the heap */
};

struct vvi_heap {
    struct vvi_heap_item *item;
    uint32_t n, cap;
};

void vvi_heap_fini(struct vvi_heap *heap);
/* Makes room for one more element, so that a set that follows cannot fail. */
int vvi_heap_reserve(struct vvi_heap *heap, uint32_t n) VV_WARN_UNUSED;
/* Puts an element in, or moves it to its new key. Room must have been reserved. */
void vvi_heap_set(struct vvi_heap *heap, uint32_t *pos, void *value, uint64_t key);
void vvi_heap_remove(struct vvi_heap *heap, uint32_t *pos);

static inline void *vvi_heap_top(const struct vvi_heap *heap)
{
    return heap->n ? heap->item[0].value : NULL;
}

#endif
