/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pinned host memory of a baseline: a slot for each object, touched by many threads and registered slot by slot, so
 * that no copy crosses a border.
 */
#ifndef LAB_SHOT_SHOT_PINNED_H
#define LAB_SHOT_SHOT_PINNED_H

#include "device/device.h"

#define SHOT_PINNED_ALIGN 4096

struct shot_pinned {
    struct vv_device *device;
    char *map;
    size_t map_bytes;
    size_t *slot; /* the offset of each slot, and the end */
    size_t nr_slots;
    size_t nr_registered;
};

/* `bytes` of each slot: a multiple of SHOT_PINNED_ALIGN, or rounded up. -ENOMEM and the errors of the device, with
 * a line of text. */
VV_WARN_UNUSED int shot_pinned_init(struct vv_device *device, const uint64_t *bytes, size_t nr,
                                    char *err, size_t err_size, struct shot_pinned *ret_pinned);
/* Accepts a zeroed structure. */
void shot_pinned_fini(struct shot_pinned *p);

static inline char *shot_pinned_at(const struct shot_pinned *p, size_t i)
{
    return p->map + p->slot[i];
}

#endif
