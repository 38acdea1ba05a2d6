/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/heap.h"

#include <errno.h>
#include <stdlib.h>

#include "core/assert.h"

void vvi_heap_fini(struct vvi_heap *heap)
{
    free(heap->item);
    *heap = (struct vvi_heap){0};
}

int vvi_heap_reserve(struct vvi_heap *heap, uint32_t n)
{
    uint32_t cap = heap->cap ? heap->cap : 16;
    struct vvi_heap_item *item;

    if (n <= heap->cap)
        return 0;
    while (cap < n)
        cap *= 2;
    item = realloc(heap->item, cap * sizeof(*item));
    if (!item)
        return -ENOMEM;
    heap->item = item;
    heap->cap = cap;
    return 0;
}

static void place(struct vvi_heap *heap, uint32_t at, struct vvi_heap_item item)
{
    heap->item[at] = item;
    *item.pos = at;
}

static void sift(struct vvi_heap *heap, uint32_t at, struct vvi_heap_item item)
{
    while (at > 0 && heap->item[(at - 1) / 2].key < item.key) {
        place(heap, at, heap->item[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= heap->n)
            break;
        if (child + 1 < heap->n && heap->item[child + 1].key > heap->item[child].key)
            child++;
        if (heap->item[child].key <= item.key)
            break;
        place(heap, at, heap->item[child]);
        at = child;
    }
    place(heap, at, item);
}

void vvi_heap_set(struct vvi_heap *heap, uint32_t *pos, void *value, uint64_t key)
{
    struct vvi_heap_item item = {.key = key, .value = value, .pos = pos};

    if (*pos != VVI_HEAP_OUT && heap->item[*pos].key == key)
        return;
    if (*pos == VVI_HEAP_OUT) {
        vv_assert(heap->n < heap->cap);
        *pos = heap->n++;
    }
    sift(heap, *pos, item);
}

void vvi_heap_remove(struct vvi_heap *heap, uint32_t *pos)
{
    uint32_t at = *pos;

    if (at == VVI_HEAP_OUT)
        return;
    *pos = VVI_HEAP_OUT;
    heap->n--;
    if (at < heap->n)
        sift(heap, at, heap->item[heap->n]);
}
