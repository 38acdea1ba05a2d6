/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Protected regions: one set for all checkpoints, and sets for checkpoints of a name. The memory itself is not accessed
 * here.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <veloc.h>

#include "veloc/veloc_private.h"

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
        if (sets->regions.n > 0 && strcmp(sets->name, name) == 0)
            return sets;
        if (sets->name[0] == 0)
            common = sets;
    }
    return common;
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
    set->regions.bytes = sizeof(struct vvi_veloc_region);
    set->next = *sets;
    *sets = *ret_set = set;
    return 0;
}

int vvi_veloc_region_add(struct vvi_veloc_set **sets, const char *name,
                         const struct vvi_veloc_region *region)
{
    struct vvi_veloc_set *set = set_find(*sets, name);
    int rc = set ? 0 : set_new(sets, name, &set);
    if (rc)
        return rc;
    struct vvi_veloc_region *there = vv_idmap_find(&set->regions, region->id);
    /* Another region whose number differs only in the sign. */
    if (!there && vv_idmap_find(&set->regions, region->id ^ INT32_MIN))
        return -EEXIST;
    if (!there)
        return vv_idmap_add(&set->regions, region);
    if (there->release != region->release || there->ptr != region->ptr)
        let_go(there);
    *there = *region;
    return 0;
}

int vvi_veloc_region_remove(struct vvi_veloc_set *sets, const char *name, int id)
{
    struct vvi_veloc_set *set = set_find(sets, name);
    const struct vvi_veloc_region *there = set ? vv_idmap_find(&set->regions, id) : NULL;
    if (!there)
        return -ENOENT;
    struct vvi_veloc_region gone = *there;
    vv_idmap_remove(&set->regions, id);
    let_go(&gone);
    return 0;
}

static void let_all_go(struct vvi_veloc_set *set)
{
    struct vvi_veloc_region *v = set->regions.v;
    vv_idmap_sort(&set->regions);
    for (size_t i = 0; i < set->regions.n; i++)
        let_go(&v[i]);
    vv_idmap_fini(&set->regions);
    set->regions = (struct vv_idmap){.bytes = sizeof(*v)};
}

void vvi_veloc_region_clear(struct vvi_veloc_set *sets, const char *name)
{
    struct vvi_veloc_set *set = set_find(sets, name);
    if (set)
        let_all_go(set);
}

void vvi_veloc_sets_free(struct vvi_veloc_set *sets)
{
    while (sets) {
        struct vvi_veloc_set *next = sets->next;
        let_all_go(sets);
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

/* Sets r->bytes. Returns a text that says what is wrong with the region, or NULL. */
static const char *refusal(const char *name, struct vvi_veloc_region *r, size_t count,
                           size_t base_size)
{
    if (!name)
        return "the name of the checkpoint is NULL";
    if (__builtin_mul_overflow(count, base_size, &r->bytes))
        return "count times size is more than any memory holds";
    if (r->bytes > 0 && !r->ptr)
        return "the pointer is NULL; only an empty region needs no memory";
    if (vvi_veloc_number(r->id) == VVI_VELOC_FILE || vvi_veloc_number(r->id) == VVI_VELOC_EMPTY)
        return "this number is reserved; choose another";
    return NULL;
}

static int protect(const char *call, const char *name, const struct vvi_veloc_region *region,
                   size_t count, size_t base_size)
{
    struct vvi_veloc_region r = *region;
    struct vvi_veloc *c = vvi_veloc_enter(call);
    if (!c)
        return VELOC_FAILURE;
    int rc = 0;
    const char *wrong = refusal(name, &r, count, base_size);
    if (wrong) {
        rc = -EINVAL;
        vvi_veloc_say(c, "%s: region %d: %s", call, r.id, wrong);
    } else {
        rc = vvi_veloc_region_add(&c->sets, name, &r);
        if (rc == -EEXIST)
            vvi_veloc_say(c, "%s: another region differs from %d only in the sign", call, r.id);
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
    (void)flags; /* READ_ONLY needs no special handling: checkpoints are copies */
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
