/* SPDX-License-Identifier: Apache-2.0 */
/* The checksum of all data that leaves memory: XXH3, 64 bits, seed 0. It is stored in files, so it must
 * never change. */
#ifndef VV_BASE_HASH_H
#define VV_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t vv_hash64(const void *p, size_t n);

/* The same hash for bytes that are added piece by piece. One thread at a time. */
struct vv_hash_stream;

/* NULL: out of memory. */
struct vv_hash_stream *vv_hash_stream_new(void);
void vv_hash_stream_free(struct vv_hash_stream *s);
void vv_hash_stream_add(struct vv_hash_stream *s, const void *p, size_t n);
/* The hash of the bytes added so far; more may follow. */
uint64_t vv_hash_stream_value(const struct vv_hash_stream *s);

#endif
