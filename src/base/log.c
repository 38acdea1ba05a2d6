/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/lock.h"

_Atomic int vvi_log_lowest = INT_MAX;

static struct {
    struct vv_mutex lock;
    vv_log_sink sink; /* Synchronization: lock */
    void *user;       /* Synchronization: lock */
} current;

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void init(void)
{
    vv_mutex_init(&current.lock, "log", VV_RANK_LOG);
}

void vv_log_set_sink(vv_log_sink sink, void *user, enum vv_log_level lowest)
{
    pthread_once(&once, init);
    vv_mutex_lock(&current.lock);
    current.sink = sink;
    current.user = user;
    atomic_store_explicit(&vvi_log_lowest, sink ? (int)lowest : INT_MAX, memory_order_relaxed);
    vv_mutex_unlock(&current.lock);
}

void vvi_log_write(enum vv_log_level level, const char *fmt, ...)
{
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    pthread_once(&once, init);
    /* The sink runs under the lock, so that lines do not mix and a removed sink is never called. */
    vv_mutex_lock(&current.lock);
    if (current.sink)
        current.sink(current.user, level, text);
    vv_mutex_unlock(&current.lock);
}
