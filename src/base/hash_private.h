/* SPDX-License-Identifier: Apache-2.0 */
/* The checksum compiled for registers that not every processor of the architecture has. */
#ifndef VV_BASE_HASH_PRIVATE_H
#define VV_BASE_HASH_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* True if it was compiled for AVX2. If not, it is the same code as vv_hash64. */
extern const bool vvi_hash64_is_avx2;
/* If compiled for AVX2, call it only on a processor that has AVX2. */
uint64_t vvi_hash64_avx2(const void *p, size_t n);

#endif
