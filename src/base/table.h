/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hash table of the library: finds items by a 64-bit number.
 *
 * An item is a struct of the caller that begins with VV_TABLE_ITEM. Its key is a number, or the hash of
 * something longer. In that case the caller also compares the full key, and moves to the next item with the same
 * hash by vv_table_same(). Several items may have one key.
 *
 * Items are in chains. The number of chains is a power of two, and at least 4/3 of the number of items: in a large
 * table each step along a chain is a cache miss. If there is no memory for more chains they become longer, so adding
 * never fails, and removing takes no memory. The table never moves or frees an item.
 *
 * Threads: the caller locks. It is a header only, because libraries on top of this one use it too.
 */
#ifndef VV_BASE_TABLE_H
#define VV_BASE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct vv_table_item {
    struct vv_table_item *next; /* in the same chain */
    uint64_t key;
};

/* First member of a struct that is kept in a table. `name` is its key, which must not change while it is there. */
#define VV_TABLE_ITEM(name)                 \
    union {                                 \
        struct vv_table_item item;          \
        struct {                            \
            struct vv_table_item *in_chain; \
            uint64_t name;                  \
        };                                  \
    }

/* All zero: empty. */
struct vv_table {
    struct vv_table_item **chain; /* NULL: `only` is the only chain */
    struct vv_table_item *only;
    size_t n;       /* items */
    unsigned shift; /* 64 - log2 of the number of chains */
};

static inline size_t vv_table_chains(const struct vv_table *t)
{
    return t->chain ? (size_t)1 << (64 - t->shift) : 1;
}

/* Chain `i`, modulo their number. */
static inline struct vv_table_item **vv_table_chain(const struct vv_table *t, size_t i)
{
    return t->chain ? &t->chain[i & (vv_table_chains(t) - 1)] : (struct vv_table_item **)&t->only;
}

/* Eight consecutive keys have their chains in one cache line, because they are often used one after another. The
 * golden ratio spreads the groups of eight; the high bits depend on all bits of the number. */
static inline struct vv_table_item **vvi_table_chain_of(const struct vv_table *t, uint64_t key)
{
    uint64_t group = key / 8 * UINT64_C(0x9e3779b97f4a7c15);

    return t->chain ? &t->chain[group >> t->shift ^ key % 8] : (struct vv_table_item **)&t->only;
}

static inline void *vvi_table_seek(struct vv_table_item *item, uint64_t key)
{
    while (item && item->key != key)
        item = item->next;
    return item;
}

/* The first item with the key; NULL: there is none. */
static inline void *vv_table_find(const struct vv_table *t, uint64_t key)
{
    return vvi_table_seek(*vvi_table_chain_of(t, key), key);
}

/* The next item with the key of this one, or NULL. */
static inline void *vv_table_same(const void *item)
{
    const struct vv_table_item *it = item;

    return vvi_table_seek(it->next, it->key);
}

static inline void vvi_table_grow(struct vv_table *t)
{
    enum { BITS_FIRST = 4 };
    size_t old = vv_table_chains(t);
    struct vv_table more = {.shift = t->chain ? t->shift - 1 : 64 - BITS_FIRST, .n = t->n};

    more.chain = calloc((size_t)1 << (64 - more.shift), sizeof(struct vv_table_item *));
    if (!more.chain)
        return;
    for (size_t i = 0; i < old; i++)
        for (struct vv_table_item *it = *vv_table_chain(t, i), *next; it; it = next) {
            struct vv_table_item **to = vvi_table_chain_of(&more, it->key);

            next = it->next;
            it->next = *to;
            *to = it;
        }
    free(t->chain);
    *t = more;
}

/* Adds an item; its key is set. */
static inline void vv_table_add(struct vv_table *t, void *item)
{
    struct vv_table_item *it = item, **to;

    if (4 * t->n >= 3 * vv_table_chains(t))
        vvi_table_grow(t);
    to = vvi_table_chain_of(t, it->key);
    it->next = *to;
    *to = it;
    t->n++;
}

/* Returns true if the item was there. */
static inline bool vv_table_remove(struct vv_table *t, const void *item)
{
    const struct vv_table_item *it = item;
    struct vv_table_item **at = vvi_table_chain_of(t, it->key);

    while (*at && *at != it)
        at = &(*at)->next;
    if (!*at)
        return false;
    *at = it->next;
    t->n--;
    return true;
}

static inline void *vvi_table_from(const struct vv_table *t, size_t chain)
{
    for (; chain < vv_table_chains(t); chain++)
        if (*vv_table_chain(t, chain))
            return *vv_table_chain(t, chain);
    return NULL;
}

/* Iterate over all items, in no particular order; NULL: end. To remove an item, get the next one first. Adding an
 * item may change the order. */
static inline void *vv_table_first(const struct vv_table *t)
{
    return vvi_table_from(t, 0);
}

static inline void *vv_table_next(const struct vv_table *t, const void *item)
{
    const struct vv_table_item *it = item;

    if (it->next)
        return it->next;
    return t->chain ? vvi_table_from(t, 1 + (size_t)(vvi_table_chain_of(t, it->key) - t->chain))
                    : NULL;
}

/* Removes all items, and keeps the memory of the chains. */
static inline void vv_table_clear(struct vv_table *t)
{
    memset(vv_table_chain(t, 0), 0, vv_table_chains(t) * sizeof(struct vv_table_item *));
    t->n = 0;
}

/* Frees the chains. The caller frees the items, before or after. */
static inline void vv_table_fini(struct vv_table *t)
{
    free(t->chain);
    *t = (struct vv_table){0};
}

/* The same, and also frees the items, which were allocated by malloc. */
static inline void vv_table_fini_items(struct vv_table *t)
{
    for (void *item = vv_table_first(t), *next; item; item = next) {
        next = vv_table_next(t, item);
        free(item);
    }
    vv_table_fini(t);
}

#endif
