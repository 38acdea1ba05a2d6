/* SPDX-License-Identifier: Apache-2.0 */
/* A set of disjoint address ranges, sorted by address: device allocations, and registered slices of
 * host memory. */
#ifndef VV_DEVICE_HOST_RANGES_H
#define VV_DEVICE_HOST_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

struct vvi_device_range {
    uintptr_t start;
    size_t bytes;    /* as requested */
    size_t reserved; /* address space that belongs to it; at least `bytes` */
    void *map;       /* its address for the processor */
    bool dead;       /* being freed, or freed and kept out of use */
};

struct vvi_device_ranges {
    struct vvi_device_range *v;
    size_t n;
    size_t cap;
};

void vvi_device_ranges_fini(struct vvi_device_ranges *r);

/* The range whose address space contains `p`, or NULL. Valid until the next add or remove. */
struct vvi_device_range *vvi_device_ranges_find(const struct vvi_device_ranges *r, uintptr_t p);

/* True if [p, p + bytes) touches any range. An end past the address space is cut off. */
bool vvi_device_ranges_touches(const struct vvi_device_ranges *r, uintptr_t p, size_t bytes);

/* Makes room for one more, so that the next add cannot fail. -ENOMEM. */
VV_WARN_UNUSED int vvi_device_ranges_reserve(struct vvi_device_ranges *r);

/* The caller has checked that it touches no other range, and called reserve. */
void vvi_device_ranges_add(struct vvi_device_ranges *r, struct vvi_device_range range);
void vvi_device_ranges_remove(struct vvi_device_ranges *r, uintptr_t start);

#endif
