/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process id is kept in a page that the system zeroes in every child, also in those for which
 * pthread_atfork handlers are not called. A thread that finds 0 stores the id again; all threads store the
 * same value.
 *
 * Failures: there is no memory, or the system is older than such pages (Linux 4.14). Then each call of
 * vv_pid is a system call.
 */
#include "base/pid.h"

#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

enum { PAGE = 4096 };

typedef _Atomic pid_t cell;

/* NULL: not made yet. Synchronization: stored with release, loaded with acquire. */
static _Atomic(cell *) kept;

static cell *make(void)
{
    cell *none = NULL,
         *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if ((void *)page == MAP_FAILED)
        return NULL;
    if (madvise(page, PAGE, MADV_WIPEONFORK) == 0 &&
        atomic_compare_exchange_strong_explicit(&kept, &none, page, memory_order_acq_rel,
                                                memory_order_acquire))
        return page;
    (void)munmap(page, PAGE); /* another thread was first, or the system has no such pages */
    return none;
}

pid_t vv_pid(void)
{
    cell *c = atomic_load_explicit(&kept, memory_order_acquire);
    pid_t pid;

    if (!c)
        c = make();
    pid = c ? atomic_load_explicit(c, memory_order_relaxed) : 0;
    if (pid == 0) {
        pid = getpid();
        if (c)
            atomic_store_explicit(c, pid, memory_order_relaxed);
    }
    return pid;
}
