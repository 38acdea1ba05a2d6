/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Protected regions: one set for all checkpoints, and sets for checkpoints of a name. Nothing here
 * looks at the memory.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <veloc.h>

#include "compat/veloc/veloc_private.h"

static struct vvi_veloc_set *set_find(struct vvi_veloc_set *sets, const char *name)
{
    while (sets && strcmp(sets->name, name) != 0)
        sets = sets->next;
    return sets;
}

const struct vvi_veloc_set *vvi_veloc_set_for(const struct vvi_veloc_set *sets, const char *name)
{
    const struct vvi_veloc_set *common = NULL;
    for (; sets; sets = sets->next) {
        if (sets->n > 0 && strcmp(sets->name, name) == 0)
            return sets;
        if (sets->name[0] == 0)
            common = sets;
    }
    return common;
}

/* Where `id` is, or would be. */
static size_t place_of(const struct vvi_veloc_set *set, int id)
{
    size_t low = 0, high = set->n;
    if (high > 0 && set->v[high - 1].id < id)
        return high; /* most programs number them upwards */
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (set->v[mid].id < id)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

const struct vvi_veloc_region *vvi_veloc_region_find(const struct vvi_veloc_set *set, int id)
{
    size_t i = set ? place_of(set, id) : 0;
    return set && i < set->n && set->v[i].id == id ? &set->v[i] : NULL;
}

static void let_go(struct vvi_veloc_region *region)
{
    if (region->release)
        (void)region->release();
    region->release = NULL;
}

static int set_new(struct vvi_veloc_set **sets, const char *name, struct vvi_veloc_set **ret_set)
{
    struct vvi_veloc_set *set = calloc(1, sizeof(*set));
    char *copy = strdup(name);
    if (!set || !copy) {
        free(set);
        free(copy);
        return -ENOMEM;
    }
    set->name = copy;
    set->next = *sets;
    *sets = *ret_set = set;
    return 0;
}

static int set_grow(struct vvi_veloc_set *set)
{
    if (set->n < set->cap)
        return 0;
    size_t cap = set->cap ? 2 * set->cap : 8;
    struct vvi_veloc_region *v = realloc(set->v, cap * sizeof(*v));
    if (!v)
        return -ENOMEM;
    set->v = v;
    set->cap = cap;
    return 0;
}

int vvi_veloc_region_add(struct vvi_veloc_set **sets, const char *name,
                         const struct vvi_veloc_region *region)
{
    struct vvi_veloc_set *set = set_find(*sets, name);
    int rc = set ? 0 : set_new(sets, name, &set);
    if (rc == 0)
        rc = set_grow(set);
    if (rc)
        return rc;
    size_t at = place_of(set, region->id);
    if (at < set->n && set->v[at].id == region->id) {
        if (set->v[at].release != region->release || set->v[at].ptr != region->ptr)
            let_go(&set->v[at]);
    } else {
        /* Numbers that only the sign tells apart. */
        if (vvi_veloc_region_find(set, region->id ^ INT32_MIN))
            return -EEXIST;
        memmove(&set->v[at + 1], &set->v[at], (set->n - at) * sizeof(*set->v));
        set->n++;
    }
    set->v[at] = *region;
    return 0;
}

int vvi_veloc_region_remove(struct vvi_veloc_set *sets, const char *name, int id)
{
    struct vvi_veloc_set *set = set_find(sets, name);
    size_t at = set ? place_of(set, id) : 0;
    if (!set || at == set->n || set->v[at].id != id)
        return -ENOENT;
    struct vvi_veloc_region gone = set->v[at];
    set->n--;
    memmove(&set->v[at], &set->v[at + 1], (set->n - at) * sizeof(*set->v));
    let_go(&gone);
    return 0;
}

void vvi_veloc_region_clear(struct vvi_veloc_set *sets, const char *name)
{
    struct vvi_veloc_set *set = set_find(sets, name);
    for (size_t i = 0; set && i < set->n; i++)
        let_go(&set->v[i]);
    if (set)
        set->n = 0;
}

void vvi_veloc_sets_free(struct vvi_veloc_set *sets)
{
    while (sets) {
        struct vvi_veloc_set *next = sets->next;
        for (size_t i = 0; i < sets->n; i++)
            let_go(&sets->v[i]);
        free(sets->v);
        free(sets->name);
        free(sets);
        sets = next;
    }
}

bool vvi_veloc_chosen(const struct vvi_veloc_choice *choice, int id)
{
    bool found = false;
    for (int i = 0; i < choice->n && !found; i++)
        found = vvi_veloc_number(choice->ids[i]) == vvi_veloc_number(id);
    return choice->mode == VELOC_CKPT_ALL || found == (choice->mode == VELOC_CKPT_SOME);
}

/* ---- the calls ---- */

static int protect(const char *call, const char *name, const struct vvi_veloc_region *region,
                   size_t count, size_t base_size)
{
    struct vvi_veloc_region r = *region;
    struct vvi_veloc *c = vvi_veloc_enter(call);
    if (!c)
        return VELOC_FAILURE;
    int rc = 0;
    if (__builtin_mul_overflow(count, base_size, &r.bytes) || (r.bytes > 0 && !r.ptr) || !name ||
        vvi_veloc_number(r.id) == VVI_VELOC_FILE || vvi_veloc_number(r.id) == VVI_VELOC_EMPTY) {
        rc = -EINVAL;
        vvi_veloc_say(c, "%s: region %d makes no sense", call, r.id);
    } else {
        rc = vvi_veloc_region_add(&c->sets, name, &r);
        if (rc == -EEXIST)
            vvi_veloc_say(c, "%s: there is a region already that only the sign tells from %d", call,
                          r.id);
    }
    return vvi_veloc_leave(rc);
}

int VELOC_Mem_protect(int id, void *ptr, size_t count, size_t base_size)
{
    return protect("VELOC_Mem_protect", "", &(struct vvi_veloc_region){.id = id, .ptr = ptr}, count,
                   base_size);
}

int VELOC_Mem_protect_flags(int id, void *ptr, size_t count, size_t base_size, unsigned int flags,
                            int (*release)(void))
{
    struct vvi_veloc_region r = {.id = id, .ptr = ptr, .release = release};
    (void)flags; /* checkpoints are copies: a region that is only read needs nothing else */
    return protect("VELOC_Mem_protect", "", &r, count, base_size);
}

int VELOC_Region_protect(int id, void *ptr, size_t count, size_t base_size, const char *name)
{
    return protect("VELOC_Region_protect", name, &(struct vvi_veloc_region){.id = id, .ptr = ptr},
                   count, base_size);
}

static int unprotect(const char *call, int id, const char *name)
{
    struct vvi_veloc *c = vvi_veloc_enter(call);
    if (!c)
        return VELOC_FAILURE;
    return vvi_veloc_leave(name ? vvi_veloc_region_remove(c->sets, name, id) : -EINVAL);
}

int VELOC_Mem_unprotect(int id)
{
    return unprotect("VELOC_Mem_unprotect", id, "");
}

int VELOC_Region_unprotect(int id, const char *name)
{
    return unprotect("VELOC_Region_unprotect", id, name);
}

static int clear(const char *call, const char *name)
{
    struct vvi_veloc *c = vvi_veloc_enter(call);
    if (!c)
        return VELOC_FAILURE;
    if (name)
        vvi_veloc_region_clear(c->sets, name);
    return vvi_veloc_leave(name ? 0 : -EINVAL);
}

int VELOC_Mem_clear(void)
{
    return clear("VELOC_Mem_clear", "");
}

int VELOC_Region_clear(const char *name)
{
    return clear("VELOC_Region_clear", name);
}
