/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of the HASH kernel, shared by its launch and the kernel. */
#ifndef VV_DEVICE_CUDA_HASH_H
#define VV_DEVICE_CUDA_HASH_H

#include <stdint.h>

#include "base/xxh3.h"

enum {
    VVI_HASH_SPANS = 64,
    VVI_HASH_THREADS = 512,
    VVI_HASH_TILE = 256, /* blocks of XXH3 whose sums are kept at once */
};

/* One block of threads for each span. */
struct vvi_hash_params {
    uint64_t sums, n_spans; /* addresses are the device's */
    struct {
        uint64_t ptr, bytes;
    } span[VVI_HASH_SPANS];
};

#endif
