/* SPDX-License-Identifier: Apache-2.0 */
/* A map from four numbers to one. Private to trace/. */
#ifndef VV_TRACE_MAP_H
#define VV_TRACE_MAP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/table.h"

#define VVI_MAP_NONE UINT32_MAX

struct vvi_map_key {
    uint64_t word[4];
};

struct vvi_map_entry {
    VV_TABLE_ITEM(hash);
    struct vvi_map_key key;
    uint32_t value;
};

/* All zero: empty. */
struct vvi_map {
    struct vv_table table;
};

static inline struct vvi_map_entry *vvi_map_find(const struct vvi_map *m,
                                                 const struct vvi_map_key *key)
{
    struct vvi_map_entry *e = vv_table_find(&m->table, vv_hash64(key, sizeof(*key)));

    while (e && memcmp(&e->key, key, sizeof(*key)) != 0)
        e = vv_table_same(e);
    return e;
}

static inline uint32_t vvi_map_get(const struct vvi_map *m, struct vvi_map_key key)
{
    const struct vvi_map_entry *e = vvi_map_find(m, &key);

    return e ? e->value : VVI_MAP_NONE;
}

/* False: not enough memory. */
static inline bool vvi_map_put(struct vvi_map *m, struct vvi_map_key key, uint32_t value)
{
    struct vvi_map_entry *e = vvi_map_find(m, &key);

    if (!e) {
        e = malloc(sizeof(*e));
        if (!e)
            return false;
        e->hash = vv_hash64(&key, sizeof(key));
        e->key = key;
        vv_table_add(&m->table, e);
    }
    e->value = value;
    return true;
}

/* Removes a key, which must be in the map. */
static inline void vvi_map_remove(struct vvi_map *m, struct vvi_map_key key)
{
    struct vvi_map_entry *e = vvi_map_find(m, &key);

    (void)vv_table_remove(&m->table, e);
    free(e);
}

static inline void vvi_map_fini(struct vvi_map *m)
{
    vv_table_fini_items(&m->table);
}

#endif
