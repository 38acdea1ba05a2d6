/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of the library. */
#ifndef VV_BASE_THREAD_H
#define VV_BASE_THREAD_H

#include <pthread.h>

#include "base/util.h"

/* Starts a thread in the caller's group, if it has one. All signals are blocked in it: handlers of the
 * application must not run on the library's threads. Returns 0, -EAGAIN or -ENOMEM. The thread is joined with
 * pthread_join. */
int vv_thread_start(pthread_t *ret_thread, void *(*fn)(void *), void *arg) VV_WARN_UNUSED;

/* Makes sleeps of the calling thread end on time, not up to 50 us later. For threads that poll every few
 * microseconds. */
void vv_thread_sharpen(void);

/* Lets the calling thread run on all processors that the system allows the process, independent of the binding
 * of the thread that started it. */
void vv_thread_unbind(void);

#endif
