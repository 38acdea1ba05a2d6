/* SPDX-License-Identifier: Apache-2.0 */
/* The checksum of everything that leaves memory: XXH3, 64 bits, seed 0. Stored in files, so it
 * never changes. */
#ifndef VV_CORE_HASH_H
#define VV_CORE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t vv_hash64(const void *p, size_t n);

#endif
