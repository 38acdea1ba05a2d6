/* SPDX-License-Identifier: Apache-2.0 */
/* Failing allocations of the library: the linker passes each allocation through a test that includes this
 * (cmake/VarveTests.cmake). */
#ifndef TESTS_FAULT_FAIL_ALLOC_H
#define TESTS_FAULT_FAIL_ALLOC_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

/* For this thread: are allocations counted, how many there were, and which one fails. */
static _Thread_local bool counting;
static _Thread_local long allocs, fails_at;

static bool denied(void)
{
    return counting && ++allocs == fails_at;
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *mem, size_t bytes);
int __real_posix_memalign(void **ret_mem, size_t align, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *mem, size_t bytes);
int __wrap_posix_memalign(void **ret_mem, size_t align, size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    return denied() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    return denied() ? NULL : __real_calloc(n, bytes);
}

void *__wrap_realloc(void *mem, size_t bytes)
{
    return denied() ? NULL : __real_realloc(mem, bytes);
}

int __wrap_posix_memalign(void **ret_mem, size_t align, size_t bytes)
{
    return denied() ? ENOMEM : __real_posix_memalign(ret_mem, align, bytes);
}

#endif
