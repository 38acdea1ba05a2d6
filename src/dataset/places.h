/* SPDX-License-Identifier: Apache-2.0 */
/* An order of use: at which places files are wanted, and how far it has come. No lock of its own. */
#ifndef VV_DATASET_PLACES_H
#define VV_DATASET_PLACES_H

#include "dataset/paths.h"

/* All zero: empty. */
struct vvi_places {
    struct vvi_paths paths;
    uint64_t now; /* the farthest place that a file was used at */
};

/* One place more of a file, behind those that it has. -ENOMEM. */
VV_WARN_UNUSED int vvi_places_add(struct vvi_places *p, const char *path, uint64_t place);
/* The first place of a file that is still to come, or `otherwise`. */
uint64_t vvi_places_next(const struct vvi_places *p, const char *path, uint64_t otherwise);
/* A file was used, which moves the order on. False: it is not in the order. ret_next: its next place, or
 * VV_DATASET_UNKNOWN. */
bool vvi_places_use(struct vvi_places *p, const char *path, uint64_t *ret_next);
void vvi_places_fini(struct vvi_places *p);

#endif
