/* SPDX-License-Identifier: Apache-2.0 */
/* Tables with a path as the key. What is in one begins with a struct vvi_path. No lock of its own. */
#ifndef VV_DATASET_PATHS_H
#define VV_DATASET_PATHS_H

#include <stddef.h>
#include <stdint.h>

#include "base/table.h"
#include "base/util.h"

struct vvi_path {
    VV_TABLE_ITEM(hash);
    char *path; /* the table's */
};

/* All zero: empty. */
struct vvi_paths {
    struct vv_table table;
};

/* NULL: not there. */
void *vvi_paths_find(const struct vvi_paths *t, const char *path);
/* Adds what is not there; copies the path. -ENOMEM, and `e` is still the caller's. */
VV_WARN_UNUSED int vvi_paths_add(struct vvi_paths *t, const char *path, struct vvi_path *e);
/* Takes it out and frees its path; `e` is the caller's again. */
void vvi_paths_remove(struct vvi_paths *t, struct vvi_path *e);
/* All of them, in no order; fn may remove the one it is called with. */
void vvi_paths_each(struct vvi_paths *t, void (*fn)(void *user, struct vvi_path *e), void *user);
/* Those of the next `chains` chains from `at` on; the same. Returns where to go on. */
size_t vvi_paths_step(struct vvi_paths *t, size_t at, size_t chains,
                      void (*fn)(void *user, struct vvi_path *e), void *user);
/* Frees the table, and each entry with fn (after its path). */
void vvi_paths_fini(struct vvi_paths *t, void (*fn)(struct vvi_path *e));

#endif
