/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Address ranges that are known without a call of the driver: our device allocations and our slices of registered host
 * memory. Disjoint, sorted by address. Lookups take no lock and may run while another thread adds or removes; the
 * caller serialises adding and removing.
 */
#ifndef VV_DEVICE_CUDA_RANGES_H
#define VV_DEVICE_CUDA_RANGES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

enum vvi_cuda_range_kind {
    VVI_CUDA_NONE, /* not in any range */
    VVI_CUDA_ALLOC,
    VVI_CUDA_SLICE,
};

struct vvi_cuda_range {
    uintptr_t start;
    uintptr_t last; /* of its bytes */
    enum vvi_cuda_range_kind kind;
};

struct vvi_cuda_ranges {
    /* Synchronization: `seq` is odd while the table changes. See cuda_ranges.c. */
    _Atomic uint64_t seq;
    _Atomic(struct vvi_cuda_table *) table;
};

void vvi_cuda_ranges_init(struct vvi_cuda_ranges *r);
/* No thread may be in a lookup. */
void vvi_cuda_ranges_fini(struct vvi_cuda_ranges *r);

/* The range that contains `p`. If there is none, the gap around `p`: kind VVI_CUDA_NONE, from the end of the last range
 * before it to the start of the next one. Any thread, does not block for longer than an add or remove takes. */
struct vvi_cuda_range vvi_cuda_ranges_find(const struct vvi_cuda_ranges *r, uintptr_t p);

/* -EEXIST: it touches another range; -ENOMEM. */
VV_WARN_UNUSED int vvi_cuda_ranges_add(struct vvi_cuda_ranges *r, enum vvi_cuda_range_kind kind,
                                       const void *ptr, size_t bytes);

/* -EINVAL: no range of this kind starts at `ptr`. */
int vvi_cuda_ranges_remove(struct vvi_cuda_ranges *r, enum vvi_cuda_range_kind kind,
                           const void *ptr);

/* The first range of the kind, or one of kind VVI_CUDA_NONE. The caller holds the lock for changes. */
struct vvi_cuda_range vvi_cuda_ranges_first(const struct vvi_cuda_ranges *r,
                                            enum vvi_cuda_range_kind kind);

#endif
