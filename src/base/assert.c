/* SPDX-License-Identifier: Apache-2.0 */
#include "base/assert.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static void stop(const char *file, int line, const char *text)
{
    fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, text);
    abort();
}

/* Synchronization: atomic, relaxed; a handler is installed before the threads that use it start. */
static _Atomic(vv_assert_handler) current = stop;

vv_assert_handler vv_assert_set_handler(vv_assert_handler handler)
{
    return atomic_exchange_explicit(&current, handler ? handler : stop, memory_order_relaxed);
}

void vv_assert_fail(const char *file, int line, const char *text)
{
    atomic_load_explicit(&current, memory_order_relaxed)(file, line, text);
}
