/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages for events without a return value: a fallback taken, a leftover file removed. The library
 * never prints; a program that wants to see the messages installs a sink. Without a sink a message costs
 * one load.
 */
#ifndef VV_BASE_LOG_H
#define VV_BASE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/util.h"

enum vv_log_level { VV_LOG_DEBUG, VV_LOG_INFO, VV_LOG_WARNING };

/* Called with one line without newline, from any thread, one call at a time. It must not call into
 * the library. */
typedef void (*vv_log_sink)(void *user, enum vv_log_level level, const char *text);

/* NULL removes the sink. When this returns, the previous sink is not running and will not be called
 * again. */
void vv_log_set_sink(vv_log_sink sink, void *user, enum vv_log_level lowest);

void vvi_log_write(enum vv_log_level level, const char *fmt, ...) VV_PRINTF(2, 3);

/* Synchronization: relaxed. The lowest level that is wanted, above all levels if there is no sink.
 */
extern _Atomic int vvi_log_lowest;

#define vv_log(level, ...)                                                               \
    do {                                                                                 \
        if ((int)(level) >= atomic_load_explicit(&vvi_log_lowest, memory_order_relaxed)) \
            vvi_log_write(level, __VA_ARGS__);                                           \
    } while (0)

#endif
