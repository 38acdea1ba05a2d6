/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sizes and rates as people write them.
 *
 * A size is a number, with a fraction if wanted, and a unit: none or B, K, M, G, T, P. A bare
 * letter and KiB, MiB, ... count in powers of 1024; KB, MB, ... in powers of 1000. In a rate (bytes
 * per second) the bare letter counts in powers of 1000, as bandwidths are quoted. Case does not
 * matter. "512M", "1.5GiB", "400MB", "0".
 */
#ifndef VV_BASE_BYTES_H
#define VV_BASE_BYTES_H

#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

/* -EINVAL: not a size. -ERANGE: more than fits 64 bits. A fraction of a byte is cut off. */
VV_WARN_UNUSED int vv_bytes_parse(const char *s, uint64_t *ret_bytes);
VV_WARN_UNUSED int vv_rate_parse(const char *s, uint64_t *ret_bytes_per_s);

/* Enough for any value. */
#define VV_BYTES_TEXT 24

/* The shortest exact form that vv_bytes_parse reads back to the same value: "512M", "1536M",
 * "1000". Returns buf. */
char *vv_bytes_format(uint64_t bytes, char *buf, size_t size);

/* For people: three digits and a binary unit, "1.50 GiB". Returns buf. */
char *vv_bytes_human(uint64_t bytes, char *buf, size_t size);

#endif
