/* SPDX-License-Identifier: Apache-2.0 */
/* A table of paths, by hash. */
#include "dataset/paths.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

void *vvi_paths_find(const struct vvi_paths *t, const char *path)
{
    struct vvi_path *e = vv_table_find(&t->table, vv_hash64(path, strlen(path)));

    while (e && strcmp(e->path, path) != 0)
        e = vv_table_same(e);
    return e;
}

int vvi_paths_add(struct vvi_paths *t, const char *path, struct vvi_path *e)
{
    e->path = strdup(path);
    if (!e->path)
        return -ENOMEM;
    e->hash = vv_hash64(path, strlen(path));
    vv_table_add(&t->table, e);
    return 0;
}

void vvi_paths_remove(struct vvi_paths *t, struct vvi_path *e)
{
    (void)vv_table_remove(&t->table, e);
    free(e->path);
    e->path = NULL;
}

size_t vvi_paths_step(struct vvi_paths *t, size_t at, size_t chains,
                      void (*fn)(void *user, struct vvi_path *e), void *user)
{
    for (size_t i = 0; i < VV_MIN(chains, vv_table_chains(&t->table)); i++, at++) {
        for (struct vv_table_item *e = *vv_table_chain(&t->table, at), *next; e; e = next) {
            next = e->next;
            fn(user, (struct vvi_path *)e);
        }
    }
    return at;
}

void vvi_paths_each(struct vvi_paths *t, void (*fn)(void *user, struct vvi_path *e), void *user)
{
    (void)vvi_paths_step(t, 0, vv_table_chains(&t->table), fn, user);
}

void vvi_paths_fini(struct vvi_paths *t, void (*fn)(struct vvi_path *e))
{
    for (struct vvi_path *e = vv_table_first(&t->table), *next; e; e = next) {
        next = vv_table_next(&t->table, e);
        free(e->path);
        fn(e);
    }
    vv_table_fini(&t->table);
}
