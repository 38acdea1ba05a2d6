/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order in which a training job reads its files, from a seed: the draws of a framework's sampler, so that files can
 * be brought before they are requested. No I/O, no state.
 */
#ifndef VV_DATASET_ORDER_H
#define VV_DATASET_ORDER_H

#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

/* The numbers 0 to nr - 1 in the order of torch.randperm(nr, generator = torch.Generator() with
 * manual_seed(seed)) on the CPU. PyTorch's DistributedSampler shuffles by it, with the seed plus the number of the
 * epoch. nr is at most 2^32 - 1: -ERANGE. */
VV_WARN_UNUSED int vv_order_torch(uint64_t seed, uint64_t nr, uint64_t *ret_order);

#endif
