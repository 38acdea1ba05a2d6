/* SPDX-License-Identifier: Apache-2.0 */
/* An order of use: the places at which files are wanted, and the current place. No lock of its own. */
#ifndef VV_DATASET_PLACES_H
#define VV_DATASET_PLACES_H

#include "dataset/paths.h"

/* All zero: empty. */
struct vvi_places {
    struct vvi_paths paths;
    uint64_t now; /* the farthest place at which a file was used */
};

/* Adds a place to a file, behind its other places. -ENOMEM. */
VV_WARN_UNUSED int vvi_places_add(struct vvi_places *p, const char *path, uint64_t place);
/* The next place of a file, or `otherwise`. */
uint64_t vvi_places_next(const struct vvi_places *p, const char *path, uint64_t otherwise);
/* Records a use, which moves the order on. False: the file is not in the order. ret_next: its next place, or
 * VV_DATASET_UNKNOWN. */
bool vvi_places_use(struct vvi_places *p, const char *path, uint64_t *ret_next);
void vvi_places_fini(struct vvi_places *p);

#endif
