/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of the library have every signal blocked, and their creators keep their own mask. */
#include <pthread.h>
#include <signal.h>

#include "base/thread.h"
#include "t.h"

static void *read_mask(void *arg)
{
    pthread_sigmask(SIG_BLOCK, NULL, arg);
    return NULL;
}

static void test_mask(void)
{
    sigset_t before, after, in_thread;
    pthread_t thread;
    sigemptyset(&before);
    sigaddset(&before, SIGUSR2);
    T_EQ(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
    T_OK(vv_thread_start(&thread, read_mask, &in_thread));
    T_EQ(pthread_join(thread, NULL), 0);
    T_EQ(pthread_sigmask(SIG_BLOCK, NULL, &after), 0);
    for (int s = 1; s < SIGRTMIN; s++) {
        /* Skip the two signals above SIGSYS, which the C library uses, and the two that cannot be
         * blocked. */
        if (s > SIGSYS || s == SIGKILL || s == SIGSTOP)
            continue;
        T_EQ(sigismember(&in_thread, s), 1);
        T_EQ(sigismember(&after, s), s == SIGUSR2);
    }
}

int main(void)
{
    T_RUN(test_mask);
    return t_done();
}
