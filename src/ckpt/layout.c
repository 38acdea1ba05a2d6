/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The regions of a version, kept as the `user` word of its object.
 *
 * Most checkpoints have one region, and a history may have millions of them. One region is encoded in the word
 * itself: the lowest bit set, the number above, the size of its elements above that; its size is the object's. More
 * regions, or elements of 2 GiB and more, are a reference-counted table on the heap: the object has one reference,
 * and so does each thread that looked it up. The engine calls retain and release under its lock; a table never
 * changes, so reading it needs no lock.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "ckpt/ckpt_private.h"

#define ELEM_SHIFT 33
#define ELEM_END   (1u << (64 - ELEM_SHIFT))

struct layout {
    _Atomic uint32_t refs;
    uint32_t n;
    struct vv_store_region regions[];
};

static bool is_inline(uint64_t user)
{
    return user & 1;
}

static struct layout *table(uint64_t user)
{
    return (struct layout *)(uintptr_t)user;
}

int vvi_layout_new(const struct vv_store_region *regions, uint32_t n, uint64_t *ret_user)
{
    if (n == 1 && regions[0].elem_bytes < ELEM_END) {
        *ret_user = (uint64_t)regions[0].elem_bytes << ELEM_SHIFT |
                    (uint64_t)(uint32_t)regions[0].id << 1 | 1;
        return 0;
    }
    struct layout *l = malloc(sizeof(*l) + n * sizeof(*regions));
    if (!l)
        return -ENOMEM;
    atomic_init(&l->refs, 1);
    l->n = n;
    memcpy(l->regions, regions, n * sizeof(*regions));
    *ret_user = (uint64_t)(uintptr_t)l;
    vv_assert(!is_inline(*ret_user));
    return 0;
}

void vvi_layout_retain(void *arg, uint64_t user)
{
    (void)arg;
    if (!is_inline(user))
        atomic_fetch_add_explicit(&table(user)->refs, 1, memory_order_relaxed);
}

void vvi_layout_release(void *arg, uint64_t user)
{
    (void)arg;
    if (is_inline(user) || user == 0)
        return;
    /* Before the table is freed: release this thread's reads of it, and acquire those of others. */
    if (atomic_fetch_sub_explicit(&table(user)->refs, 1, memory_order_acq_rel) == 1)
        free(table(user));
}

uint32_t vvi_layout_count(uint64_t user)
{
    return is_inline(user) ? 1 : table(user)->n;
}

struct vv_store_region vvi_layout_region(uint64_t user, uint64_t size, uint32_t i)
{
    if (is_inline(user))
        return (struct vv_store_region){.id = (int32_t)(uint32_t)(user >> 1),
                                        .elem_bytes = (uint32_t)(user >> ELEM_SHIFT),
                                        .bytes = size};
    return table(user)->regions[i];
}

uint32_t vvi_layout_describe(void *arg, uint64_t user, uint64_t size,
                             struct vv_store_region *ret_regions, uint32_t max)
{
    (void)arg;
    uint32_t n = vvi_layout_count(user);
    for (uint32_t i = 0; i < n && i < max; i++)
        ret_regions[i] = vvi_layout_region(user, size, i);
    return n;
}
