/* SPDX-License-Identifier: Apache-2.0 */
#include "core/thread.h"

#include <signal.h>
#include <sys/prctl.h>

#define SLACK_NS 1000UL

int vv_thread_start(pthread_t *ret_thread, void *(*fn)(void *), void *arg)
{
    sigset_t all, old;
    pthread_t thread;

    /* A thread inherits the mask of its creator; blocking in the thread itself would leave a gap. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&thread, NULL, fn, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc == 0)
        *ret_thread = thread;
    return -rc;
}

void vv_thread_sharpen(void)
{
    (void)prctl(PR_SET_TIMERSLACK, SLACK_NS, 0UL, 0UL, 0UL);
}
