/* SPDX-License-Identifier: Apache-2.0 */
/* vv_pid() returns the process's own id in every child and grandchild. */
#include "base/pid.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "t.h"

enum { THREADS = 4 };

static int check(void)
{
    return vv_pid() == getpid() && vv_pid() == getpid() ? 0 : 1;
}

static void wait_for(pid_t child)
{
    int status = -1;
    T_EQ(waitpid(child, &status, 0), child);
    T_EQ(status, 0);
}

static void *thread_main(void *arg)
{
    (void)arg;
    T_EQ(check(), 0);
    return NULL;
}

/* Threads call vv_pid() at the same time. These are the first calls, which make the page that keeps
 * the id. */
static void test_threads(void)
{
    pthread_t t[THREADS];
    for (int i = 0; i < THREADS; i++)
        T_EQ(pthread_create(&t[i], NULL, thread_main, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        T_EQ(pthread_join(t[i], NULL), 0);
    T_EQ(vv_pid(), getpid());
}

static void test_children(void)
{
    pid_t child = fork();
    if (child == 0) {
        int rc = check();
        pid_t grandchild = fork();
        if (grandchild == 0)
            _exit(check());
        int status = -1;
        waitpid(grandchild, &status, 0);
        _exit(rc || status);
    }
    wait_for(child);
    T_EQ(vv_pid(), getpid());
}

/* A child made by the system call itself: the C library calls no pthread_atfork handlers. */
static void test_child_of_the_system(void)
{
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (child == 0)
        _exit(check());
    wait_for(child);
    T_EQ(vv_pid(), getpid());
}

int main(void)
{
    T_RUN(test_threads);
    T_RUN(test_children);
    T_RUN(test_child_of_the_system);
    return t_done();
}
