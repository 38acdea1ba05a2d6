/* SPDX-License-Identifier: Apache-2.0 */
/* A hash table with chains, which doubles when there are more entries than buckets. */
#include "dataset/paths.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"

#define BUCKETS_MIN 64

static struct vvi_path **bucket_of(const struct vvi_paths *t, uint64_t hash)
{
    return &t->bucket[hash & (t->nr_buckets - 1)];
}

void *vvi_paths_find(const struct vvi_paths *t, const char *path)
{
    uint64_t hash = vv_hash64(path, strlen(path));

    if (t->nr == 0)
        return NULL;
    for (struct vvi_path *e = *bucket_of(t, hash); e; e = e->chain)
        if (e->hash == hash && strcmp(e->path, path) == 0)
            return e;
    return NULL;
}

/* With too little memory the chains get longer, and that is all. */
static void grow(struct vvi_paths *t)
{
    size_t nr_old = t->nr_buckets, nr = nr_old ? 2 * nr_old : BUCKETS_MIN;
    struct vvi_path **old = t->bucket, **bucket = calloc(nr, sizeof(struct vvi_path *));

    if (!bucket)
        return;
    t->bucket = bucket;
    t->nr_buckets = nr;
    for (size_t i = 0; i < nr_old; i++) {
        for (struct vvi_path *e = old[i], *next; e; e = next) {
            struct vvi_path **to = bucket_of(t, e->hash);

            next = e->chain;
            e->chain = *to;
            *to = e;
        }
    }
    free(old);
}

int vvi_paths_add(struct vvi_paths *t, const char *path, struct vvi_path *e)
{
    struct vvi_path **to;

    if (t->nr >= t->nr_buckets)
        grow(t);
    if (t->nr_buckets == 0)
        return -ENOMEM;
    e->path = strdup(path);
    if (!e->path)
        return -ENOMEM;
    e->hash = vv_hash64(path, strlen(path));
    to = bucket_of(t, e->hash);
    e->chain = *to;
    *to = e;
    t->nr++;
    return 0;
}

void vvi_paths_remove(struct vvi_paths *t, struct vvi_path *e)
{
    struct vvi_path **at = bucket_of(t, e->hash);

    while (*at != e)
        at = &(*at)->chain;
    *at = e->chain;
    free(e->path);
    e->path = NULL;
    t->nr--;
}

size_t vvi_paths_step(struct vvi_paths *t, size_t at, size_t buckets,
                      void (*fn)(void *user, struct vvi_path *e), void *user)
{
    for (size_t i = 0; i < VV_MIN(buckets, t->nr_buckets); i++, at++) {
        for (struct vvi_path *e = t->bucket[at & (t->nr_buckets - 1)], *next; e; e = next) {
            next = e->chain;
            fn(user, e);
        }
    }
    return at;
}

void vvi_paths_each(struct vvi_paths *t, void (*fn)(void *user, struct vvi_path *e), void *user)
{
    (void)vvi_paths_step(t, 0, t->nr_buckets, fn, user);
}

void vvi_paths_fini(struct vvi_paths *t, void (*fn)(struct vvi_path *e))
{
    for (size_t i = 0; i < t->nr_buckets; i++) {
        for (struct vvi_path *e = t->bucket[i], *next; e; e = next) {
            next = e->chain;
            free(e->path);
            fn(e);
        }
    }
    free(t->bucket);
    *t = (struct vvi_paths){0};
}
