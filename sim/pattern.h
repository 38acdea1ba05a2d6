/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contents that can be checked without keeping a copy: each 8-byte word depends on seed, version
 * and its place in the object, so that a page of another version, or of another place, is found
 * out.
 */
#ifndef VARVE_SIM_PATTERN_H
#define VARVE_SIM_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Writes bytes offset..offset+n-1 of the object to buf. offset is a multiple of 8; n need not be.
 */
void pattern_fill(void *buf, size_t n, uint64_t seed, uint64_t version, uint64_t offset);

/* Whether buf holds what pattern_fill would write. If not, and ret_bad is not NULL, the offset in
 * buf of the first wrong byte is stored there. */
bool pattern_verify(const void *buf, size_t n, uint64_t seed, uint64_t version, uint64_t offset,
                    size_t *ret_bad);

#endif
