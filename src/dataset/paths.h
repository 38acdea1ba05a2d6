/* SPDX-License-Identifier: Apache-2.0 */
/* Tables with a path as the key. An entry begins with a struct vvi_path. No lock of its own. */
#ifndef VV_DATASET_PATHS_H
#define VV_DATASET_PATHS_H

#include <stddef.h>
#include <stdint.h>

#include "base/table.h"
#include "base/util.h"

struct vvi_path {
    VV_TABLE_ITEM(hash);
    char *path; /* owned by the table */
};

/* All zero: empty. */
struct vvi_paths {
    struct vv_table table;
};

/* NULL: not there. */
void *vvi_paths_find(const struct vvi_paths *t, const char *path);
/* Adds an entry that is not there; copies the path. -ENOMEM: the caller still owns `e`. */
VV_WARN_UNUSED int vvi_paths_add(struct vvi_paths *t, const char *path, struct vvi_path *e);
/* Removes an entry and frees its path; the caller owns `e` again. */
void vvi_paths_remove(struct vvi_paths *t, struct vvi_path *e);
/* Calls fn for all entries, in no order; fn may remove the entry that it gets. */
void vvi_paths_each(struct vvi_paths *t, void (*fn)(void *user, struct vvi_path *e), void *user);
/* The same for the next `chains` chains from `at` on. Returns where to continue. */
size_t vvi_paths_step(struct vvi_paths *t, size_t at, size_t chains,
                      void (*fn)(void *user, struct vvi_path *e), void *user);
/* Frees the table, and each entry with fn (after its path). */
void vvi_paths_fini(struct vvi_paths *t, void (*fn)(struct vvi_path *e));

#endif
