/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records that begin with an int, their id, in an array and found by it. Adding, finding and removing
 * one take a few steps, in whatever order they come. The array is in ascending order of ids after
 * vv_idmap_sort(), until the next change. A header: libraries on top of ours use it too.
 */
#ifndef VV_CORE_IDMAP_H
#define VV_CORE_IDMAP_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/util.h"

struct vv_idmap {
    size_t bytes; /* of a record; all else begins with zeros */
    void *v;
    size_t n, cap;
    bool unsorted;
    uint32_t *slot; /* twice `cap` of them, open-addressed: 1 + place in v, 0: free */
};

static inline int *vvi_idmap_at(const struct vv_idmap *map, size_t i)
{
    return (int *)((char *)map->v + i * map->bytes);
}

static inline size_t vvi_idmap_home(const struct vv_idmap *map, int id)
{
    uint32_t x = (uint32_t)id * UINT32_C(0x9e3779b1);

    return (x ^ x >> 15) & (2 * map->cap - 1);
}

/* The slot of `id`, or the free one where it belongs. */
static inline size_t vvi_idmap_slot(const struct vv_idmap *map, int id)
{
    size_t i = vvi_idmap_home(map, id);

    while (map->slot[i] && *vvi_idmap_at(map, map->slot[i] - 1) != id)
        i = (i + 1) & (2 * map->cap - 1);
    return i;
}

static inline void vvi_idmap_index(struct vv_idmap *map)
{
    memset(map->slot, 0, 2 * map->cap * sizeof(*map->slot));
    for (size_t i = 0; i < map->n; i++)
        map->slot[vvi_idmap_slot(map, *vvi_idmap_at(map, i))] = (uint32_t)i + 1;
}

static inline void vv_idmap_fini(struct vv_idmap *map)
{
    free(map->v);
    free(map->slot);
}

/* NULL: it is not there. */
static inline void *vv_idmap_find(const struct vv_idmap *map, int id)
{
    uint32_t i = map->n > 0 ? map->slot[vvi_idmap_slot(map, id)] : 0;

    return i ? vvi_idmap_at(map, i - 1) : NULL;
}

/* Adds one whose id is not there. */
VV_WARN_UNUSED static inline int vv_idmap_add(struct vv_idmap *map, const void *record)
{
    int id = *(const int *)record;

    if (map->n == map->cap) {
        size_t cap = map->cap ? 2 * map->cap : 8;
        void *v = realloc(map->v, cap * map->bytes);
        uint32_t *slot = v ? malloc(2 * cap * sizeof(*slot)) : NULL;
        map->v = v ? v : map->v;
        if (!slot)
            return -ENOMEM;
        free(map->slot);
        map->slot = slot;
        map->cap = cap;
        vvi_idmap_index(map);
    }
    map->unsorted |= map->n > 0 && *vvi_idmap_at(map, map->n - 1) > id;
    memcpy(vvi_idmap_at(map, map->n), record, map->bytes);
    map->slot[vvi_idmap_slot(map, id)] = (uint32_t)++map->n;
    return 0;
}

/* Removes one that is there. The last one takes its place. */
static inline void vv_idmap_remove(struct vv_idmap *map, int id)
{
    size_t mask = 2 * map->cap - 1, hole = vvi_idmap_slot(map, id), at = map->slot[hole] - 1;

    /* Later members of the run move up, so that none ends at a gap. */
    for (size_t i = (hole + 1) & mask; map->slot[i]; i = (i + 1) & mask) {
        size_t home = vvi_idmap_home(map, *vvi_idmap_at(map, map->slot[i] - 1));
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            map->slot[hole] = map->slot[i];
            hole = i;
        }
    }
    map->slot[hole] = 0;
    if (at == --map->n)
        return;
    map->slot[vvi_idmap_slot(map, *vvi_idmap_at(map, map->n))] = (uint32_t)at + 1;
    memcpy(vvi_idmap_at(map, at), vvi_idmap_at(map, map->n), map->bytes);
    map->unsorted = true;
}

static inline int vvi_idmap_order(const void *x, const void *y)
{
    int a = *(const int *)x, b = *(const int *)y;

    return a < b ? -1 : a > b;
}

static inline void vv_idmap_sort(struct vv_idmap *map)
{
    if (!map->unsorted)
        return;
    qsort(map->v, map->n, map->bytes, vvi_idmap_order);
    vvi_idmap_index(map);
    map->unsorted = false;
}

#endif
