/* SPDX-License-Identifier: Apache-2.0 */
#include "base/heap.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"

void vv_heap_fini(struct vv_heap *heap)
{
    free(heap->item);
    *heap = (struct vv_heap){0};
}

int vv_heap_reserve(struct vv_heap *heap, uint32_t n)
{
    uint32_t cap = heap->cap ? heap->cap : 16;
    struct vv_heap_item *item;

    if (n <= heap->cap)
        return 0;
    if (n > UINT32_MAX / 2)
        return -ENOMEM; /* doubling would overflow to 0 */
    while (cap < n)
        cap *= 2;
    item = realloc(heap->item, cap * sizeof(*item));
    if (!item)
        return -ENOMEM;
    heap->item = item;
    heap->cap = cap;
    return 0;
}

static void place(struct vv_heap *heap, uint32_t at, struct vv_heap_item item)
{
    heap->item[at] = item;
    *item.pos = at;
}

static void sift(struct vv_heap *heap, uint32_t at, struct vv_heap_item item)
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

void vv_heap_set(struct vv_heap *heap, uint32_t *pos, void *value, uint64_t key)
{
    struct vv_heap_item item = {.key = key, .value = value, .pos = pos};

    if (*pos != VV_HEAP_OUT && heap->item[*pos].key == key)
        return;
    if (*pos == VV_HEAP_OUT) {
        vv_assert(heap->n < heap->cap);
        *pos = heap->n++;
    }
    sift(heap, *pos, item);
}

void vv_heap_remove(struct vv_heap *heap, uint32_t *pos)
{
    uint32_t at = *pos;

    if (at == VV_HEAP_OUT)
        return;
    *pos = VV_HEAP_OUT;
    heap->n--;
    if (at < heap->n)
        sift(heap, at, heap->item[heap->n]);
}
