/* SPDX-License-Identifier: Apache-2.0 */
/* Integers in messages: little-endian, at any alignment. */
#ifndef VV_BASE_LE_H
#define VV_BASE_LE_H

#include <stdint.h>

static inline void vv_le_put(uint8_t *p, uint64_t v, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

static inline uint64_t vv_le_get(const uint8_t *p, unsigned bytes)
{
    uint64_t v = 0;

    for (unsigned i = 0; i < bytes; i++)
        v |= (uint64_t)p[i] << 8 * i;
    return v;
}

#endif
