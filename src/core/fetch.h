/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that will be used soon. */
#ifndef VV_CORE_FETCH_H
#define VV_CORE_FETCH_H

#include <stddef.h>

/* Lets the processor bring it into its caches, without waiting for it. Accepts NULL. */
static inline void vv_fetch(const void *memory, size_t bytes)
{
    enum { LINE = 64 };
    const char *p = memory;

    for (size_t at = 0; p && at < bytes; at += LINE)
        __builtin_prefetch(p + at, 1);
}

#endif
