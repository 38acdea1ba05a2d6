/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is freed all at once, and arrays that grow. Private to trace/. */
#ifndef VV_TRACE_POOL_H
#define VV_TRACE_POOL_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct vvi_pool_block {
    struct vvi_pool_block *next;
    size_t used, size;
    _Alignas(16) char data[];
};

/* All zero: empty. */
struct vvi_pool {
    struct vvi_pool_block *blocks;
};

static inline void *vvi_pool_alloc(struct vvi_pool *pool, size_t bytes)
{
    enum { BLOCK = 32768 };
    struct vvi_pool_block *b = pool->blocks;

    if (bytes > SIZE_MAX / 2)
        return NULL;
    bytes = (bytes + 15) & ~(size_t)15;
    if (!b || b->size - b->used < bytes) {
        size_t size = bytes > BLOCK ? bytes : BLOCK;

        b = malloc(sizeof(*b) + size);
        if (!b)
            return NULL;
        *b = (struct vvi_pool_block){.next = pool->blocks, .size = size};
        pool->blocks = b;
    }
    b->used += bytes;
    return b->data + b->used - bytes;
}

/* Copies a text up to a 0 byte, at most `bytes` of it. */
static inline char *vvi_pool_text(struct vvi_pool *pool, const char *text, size_t bytes)
{
    size_t n = strnlen(text, bytes);
    char *copy = vvi_pool_alloc(pool, n + 1);

    if (copy) {
        memcpy(copy, text, n);
        copy[n] = '\0';
    }
    return copy;
}

static inline void vvi_pool_fini(struct vvi_pool *pool)
{
    for (struct vvi_pool_block *b = pool->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    pool->blocks = NULL;
}

/* An array of `size`-byte elements. All zero: empty. */
struct vvi_list {
    void *v;
    size_t n, cap;
};

/* Appends `more` elements, at least 1, and returns the first of them, or NULL: no memory. */
static inline void *vvi_list_add(struct vvi_list *list, size_t size, size_t more)
{
    if (list->cap - list->n < more) {
        size_t cap = list->cap * 2 > list->n + more ? list->cap * 2 : list->n + more;
        void *v = cap < SIZE_MAX / 2 / size ? realloc(list->v, (cap < 16 ? 16 : cap) * size) : NULL;

        if (!v)
            return NULL;
        list->v = v;
        list->cap = cap < 16 ? 16 : cap;
    }
    list->n += more;
    return (char *)list->v + (list->n - more) * size;
}

#endif
