/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of the library. */
#ifndef VV_BASE_THREAD_H
#define VV_BASE_THREAD_H

#include <pthread.h>

#include "base/util.h"

/* Starts a thread, of the caller's group if it is in one, with every signal blocked: signals are the application's, and none of its
 * handlers shall run on a thread it does not know. 0, or -EAGAIN, -ENOMEM. Joined with
 * pthread_join. */
int vv_thread_start(pthread_t *ret_thread, void *(*fn)(void *), void *arg) VV_WARN_UNUSED;

/* Sleeps of the calling thread end when they should, not up to 50 us later: for threads that look
 * for something every few microseconds. */
void vv_thread_sharpen(void);

/* The calling thread may run on all processors that the system lets the process use, whatever the
 * thread that started it is bound to. */
void vv_thread_unbind(void);

#endif
