/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An array of records that begin with an int, their id, and are found by it. Adding, finding and removing
 * a record take a few steps, in any order. The array is in ascending order of ids after vv_idmap_sort(),
 * until the next change. It is a header only, because libraries on top of this one use it too.
 */
#ifndef VV_BASE_IDMAP_H
#define VV_BASE_IDMAP_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/table.h"
#include "base/util.h"

struct vv_idmap {
    size_t bytes; /* size of a record. Initialise all other fields to 0 */
    void *v;
    size_t n, cap;
    bool unsorted;
    struct vv_table_item *item; /* of the record at the same place in v */
    struct vv_table table;
};

static inline int *vvi_idmap_at(const struct vv_idmap *map, size_t i)
{
    return (int *)((char *)map->v + i * map->bytes);
}

/* Enters the record at place i, which is new there, into the table. */
static inline void vvi_idmap_enter(struct vv_idmap *map, size_t i)
{
    map->item[i].key = (uint32_t)*vvi_idmap_at(map, i);
    vv_table_add(&map->table, &map->item[i]);
}

static inline void vvi_idmap_enter_all(struct vv_idmap *map)
{
    vv_table_clear(&map->table);
    for (size_t i = 0; i < map->n; i++)
        vvi_idmap_enter(map, i);
}

static inline void vv_idmap_fini(struct vv_idmap *map)
{
    free(map->v);
    free(map->item);
    vv_table_fini(&map->table);
}

/* NULL: it is not there. */
static inline void *vv_idmap_find(const struct vv_idmap *map, int id)
{
    const struct vv_table_item *item = vv_table_find(&map->table, (uint32_t)id);

    return item ? vvi_idmap_at(map, (size_t)(item - map->item)) : NULL;
}

/* Adds a record; its id must not be in the map. */
VV_WARN_UNUSED static inline int vv_idmap_add(struct vv_idmap *map, const void *record)
{
    if (map->n == map->cap) {
        size_t cap = map->cap ? 2 * map->cap : 8;
        void *v = realloc(map->v, cap * map->bytes);
        struct vv_table_item *item = v ? malloc(cap * sizeof(*item)) : NULL;
        map->v = v ? v : map->v;
        if (!item)
            return -ENOMEM;
        free(map->item);
        map->item = item;
        map->cap = cap;
        vvi_idmap_enter_all(map);
    }
    map->unsorted |= map->n > 0 && *vvi_idmap_at(map, map->n - 1) > *(const int *)record;
    memcpy(vvi_idmap_at(map, map->n), record, map->bytes);
    vvi_idmap_enter(map, map->n++);
    return 0;
}

/* Removes a record that is in the map. The last record takes its place. */
static inline void vv_idmap_remove(struct vv_idmap *map, int id)
{
    struct vv_table_item *item = vv_table_find(&map->table, (uint32_t)id);
    size_t at = (size_t)(item - map->item);

    vv_table_remove(&map->table, item);
    if (at == --map->n)
        return;
    vv_table_remove(&map->table, &map->item[map->n]);
    memcpy(vvi_idmap_at(map, at), vvi_idmap_at(map, map->n), map->bytes);
    vvi_idmap_enter(map, at);
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
    vvi_idmap_enter_all(map);
    map->unsorted = false;
}

#endif
