/* SPDX-License-Identifier: Apache-2.0 */
/* The checksum compiled for wider registers than every processor of its kind has. */
#ifndef VV_BASE_HASH_PRIVATE_H
#define VV_BASE_HASH_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Was it? If not, it is the same code as vv_hash64. */
extern const bool vvi_hash64_is_avx2;
/* Only on a processor with AVX2, if it was. */
uint64_t vvi_hash64_avx2(const void *p, size_t n);

#endif
