/* SPDX-License-Identifier: Apache-2.0 */
/* A table from four numbers to one, by open addressing. Private to trace/. */
#ifndef VV_TRACE_MAP_H
#define VV_TRACE_MAP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "core/hash.h"

#define VVI_MAP_NONE UINT32_MAX

struct vvi_map_key {
    uint64_t word[4];
};

struct vvi_map_slot {
    struct vvi_map_key key;
    uint32_t value; /* VVI_MAP_NONE: empty */
};

/* All zero is empty. */
struct vvi_map {
    struct vvi_map_slot *slot;
    size_t nslots, n; /* nslots is a power of two, and at most half of them are used */
};

static inline size_t vvi_map_home(const struct vvi_map *m, const struct vvi_map_key *key)
{
    return (size_t)vv_hash64(key, sizeof(*key)) & (m->nslots - 1);
}

/* Where the key is, or would be. */
static inline struct vvi_map_slot *vvi_map_find(const struct vvi_map *m,
                                                const struct vvi_map_key *key)
{
    for (size_t i = vvi_map_home(m, key);; i = (i + 1) & (m->nslots - 1)) {
        struct vvi_map_slot *s = &m->slot[i];
        bool same = s->key.word[0] == key->word[0] && s->key.word[1] == key->word[1] &&
                    s->key.word[2] == key->word[2] && s->key.word[3] == key->word[3];

        if (s->value == VVI_MAP_NONE || same)
            return s;
    }
}

static inline bool vvi_map_grow(struct vvi_map *m)
{
    struct vvi_map bigger = {.nslots = m->nslots ? 2 * m->nslots : 64, .n = m->n};

    bigger.slot = malloc(bigger.nslots * sizeof(*bigger.slot));
    if (!bigger.slot)
        return false;
    for (size_t i = 0; i < bigger.nslots; i++)
        bigger.slot[i].value = VVI_MAP_NONE;
    for (size_t i = 0; i < m->nslots; i++)
        if (m->slot[i].value != VVI_MAP_NONE)
            *vvi_map_find(&bigger, &m->slot[i].key) = m->slot[i];
    free(m->slot);
    *m = bigger;
    return true;
}

static inline uint32_t vvi_map_get(const struct vvi_map *m, struct vvi_map_key key)
{
    return m->nslots ? vvi_map_find(m, &key)->value : VVI_MAP_NONE;
}

/* False: not enough memory. */
static inline bool vvi_map_put(struct vvi_map *m, struct vvi_map_key key, uint32_t value)
{
    if (2 * m->n >= m->nslots && !vvi_map_grow(m))
        return false;
    struct vvi_map_slot *s = vvi_map_find(m, &key);
    m->n += s->value == VVI_MAP_NONE;
    *s = (struct vvi_map_slot){key, value};
    return true;
}

/* The key is there. Later entries that would not be found any more move up. */
static inline void vvi_map_remove(struct vvi_map *m, struct vvi_map_key key)
{
    size_t hole = (size_t)(vvi_map_find(m, &key) - m->slot), mask = m->nslots - 1;

    m->slot[hole].value = VVI_MAP_NONE;
    m->n--;
    for (size_t i = (hole + 1) & mask; m->slot[i].value != VVI_MAP_NONE; i = (i + 1) & mask) {
        size_t home = vvi_map_home(m, &m->slot[i].key);

        /* It may stay if its search begins behind the hole. */
        if (((i - home) & mask) < ((i - hole) & mask))
            continue;
        m->slot[hole] = m->slot[i];
        m->slot[i].value = VVI_MAP_NONE;
        hole = i;
    }
}

#endif
