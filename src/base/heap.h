/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An indexed binary heap: largest key first, every element knows its place. What goes first for the
 * room it has, and what comes first of what is wanted (with keys that count down), is kept in it.
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
    uint32_t *pos; /* where the element keeps its place; VV_HEAP_OUT when it is not in the heap */
};

struct vv_heap {
    struct vv_heap_item *item;
    uint32_t n, cap;
};

void vv_heap_fini(struct vv_heap *heap);
/* Makes room for n elements in all, so that a set that follows cannot fail. */
int vv_heap_reserve(struct vv_heap *heap, uint32_t n) VV_WARN_UNUSED;
/* Puts an element in, or moves it to its new key. Room must have been reserved. */
void vv_heap_set(struct vv_heap *heap, uint32_t *pos, void *value, uint64_t key);
void vv_heap_remove(struct vv_heap *heap, uint32_t *pos);

static inline void *vv_heap_top(const struct vv_heap *heap)
{
    return heap->n ? heap->item[0].value : NULL;
}

#endif
