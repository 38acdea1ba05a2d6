/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/thread_group.h"

#define SLACK_NS 1000UL

/* Arguments of a thread that belongs to a group. */
struct start {
    void *(*fn)(void *);
    void *arg;
    struct vv_thread_group *group;
};

static void *member_main(void *arg)
{
    struct start s = *(struct start *)arg;
    void *result;

    free(arg);
    int joined = vv_thread_group_join(s.group);
    result = s.fn(s.arg);
    if (joined == 0)
        vv_thread_group_leave(s.group);
    return result;
}

static int start(pthread_t *ret_thread, void *(*fn)(void *), void *arg)
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

int vv_thread_start(pthread_t *ret_thread, void *(*fn)(void *), void *arg)
{
    struct vv_thread_group *group = vv_thread_group_current();
    struct start *s;

    if (!group)
        return start(ret_thread, fn, arg);
    s = malloc(sizeof(*s));
    if (!s)
        return -ENOMEM;
    *s = (struct start){fn, arg, group};
    int rc = start(ret_thread, member_main, s);
    if (rc)
        free(s);
    return rc;
}

void vv_thread_sharpen(void)
{
    (void)prctl(PR_SET_TIMERSLACK, SLACK_NS, 0UL, 0UL, 0UL);
}

void vv_thread_unbind(void)
{
    cpu_set_t all;

    /* The system removes processors that do not exist, or that control groups do not allow. */
    memset(&all, 0xff, sizeof(all));
    (void)!sched_setaffinity(0, sizeof(all), &all);
}
