/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of processors as text, and threads that run on their configured processors. */
#include "base/thread_group.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/lock.h"
#include "base/thread.h"
#include "t.h"

static cpu_set_t set(const char *list)
{
    cpu_set_t cpus;

    CPU_ZERO(&cpus);
    if (list[0])
        T_OK(vv_cpus_parse(list, &cpus));
    return cpus;
}

static void lists(void)
{
    static const char *const good[] = {"0", "0-3", "0-3,8", "1,3,5", "0-1,3-4,1023"};
    static const char *const bad[] = {"", ",", "1,", "-1", "3-1", "1-", "1024", "a", "1 2", "0-3x"};
    char text[64];
    cpu_set_t cpus;

    for (size_t i = 0; i < VV_ARRAY_SIZE(good); i++) {
        T_OK(vv_cpus_parse(good[i], &cpus));
        T_STREQ(vv_cpus_format(&cpus, text, sizeof(text)), good[i]);
    }
    for (size_t i = 0; i < VV_ARRAY_SIZE(bad); i++)
        T_ERR(vv_cpus_parse(bad[i], &cpus), -EINVAL);
    cpus = set("0-1,1,0,8-9,9"); /* twice is once */
    T_STREQ(vv_cpus_format(&cpus, text, sizeof(text)), "0-1,8-9");
    CPU_ZERO(&cpus);
    for (int i = 0; i < 400; i += 2)
        CPU_SET((size_t)i, &cpus);
    T_STREQ(vv_cpus_format(&cpus, text, 16), "0,2,4,6,8,10...");
    CPU_ZERO(&cpus);
    T_STREQ(vv_cpus_format(&cpus, text, sizeof(text)), "");
}

static struct vv_mutex lock;
static struct vv_cond changed;
static int running;
static bool stop;

static void *work(void *arg)
{
    volatile uint64_t sum = 0;

    vv_thread_group_name(arg);
    for (uint64_t i = 0; i < 2000000; i++)
        sum += i;
    (void)sum;
    vv_mutex_lock(&lock);
    running++;
    vv_cond_broadcast(&changed);
    while (!stop)
        vv_cond_wait(&changed, &lock);
    vv_mutex_unlock(&lock);
    return NULL;
}

/* A thread of a group starts another, which is of the group too. */
static void *parent(void *arg)
{
    pthread_t child;

    T_CHECK(vv_thread_group_current() == arg);
    T_OK(vv_thread_start(&child, work, (void *)"child with a name that is cut"));
    work((void *)"parent");
    T_EQ(pthread_join(child, NULL), 0);
    return NULL;
}

static void members(void)
{
    struct vv_thread_group *group;
    struct vv_thread_group_stats s;
    struct vv_thread_group_member m[4];
    cpu_set_t mine;
    char err[160] = "", one[64];
    pthread_t thread;
    int last = 0;

    vv_mutex_init(&lock, "test", VV_RANK_LOG);
    vv_cond_init(&changed);
    T_EQ(sched_getaffinity(0, sizeof(mine), &mine), 0);
    for (int i = 0; i < CPU_SETSIZE; i++)
        last = CPU_ISSET(i, &mine) ? i : last;
    snprintf(one, sizeof(one), "%d", last);
    T_OK(vv_thread_group_new(one, 3, err, sizeof(err), &group));
    T_EQ(vv_thread_group_cores(group), 1);
    T_CHECK(vv_thread_group_enter(group) == NULL);
    T_OK(vv_thread_start(&thread, parent, group));
    T_CHECK(vv_thread_group_enter(NULL) == group);
    vv_mutex_lock(&lock);
    while (running < 2)
        vv_cond_wait(&changed, &lock);
    vv_mutex_unlock(&lock);
    vv_thread_group_get_stats(group, &s);
    T_EQ(s.threads, 2);
    T_EQ(s.ended, 0);
    T_EQ(s.cores, 1);
    T_STREQ(s.where, one);
    T_CHECK(s.cpu_ns > 0);
    T_EQ(vv_thread_group_list(group, NULL, 0), 2);
    T_EQ(vv_thread_group_list(group, m, 4), 2);
    for (int i = 0; i < 2; i++) {
        T_EQ(m[i].cpu, last);
        T_EQ(m[i].nice, 3);
        T_CHECK(m[i].cpu_ns > 0);
    }
    T_CHECK(strcmp(m[0].name, m[1].name) != 0);
    vv_mutex_lock(&lock);
    stop = true;
    vv_cond_broadcast(&changed);
    vv_mutex_unlock(&lock);
    T_EQ(pthread_join(thread, NULL), 0);
    uint64_t before = s.cpu_ns;
    vv_thread_group_get_stats(group, &s);
    T_EQ(s.threads, 0);
    T_EQ(s.ended, 2);
    T_CHECK(s.cpu_ns >= before); /* the time of ended threads still counts */
    vv_thread_group_free(group);
    /* The caller's processors do not change. */
    cpu_set_t now;
    T_EQ(sched_getaffinity(0, sizeof(now), &now), 0);
    T_CHECK(CPU_EQUAL(&mine, &now));
    vv_cond_fini(&changed);
    vv_mutex_fini(&lock);
}

static void refused(void)
{
    struct vv_thread_group *group = NULL;
    struct vv_thread_group_stats s;
    char err[160] = "";

    T_ERR(vv_thread_group_new("all", 0, err, sizeof(err), &group), -EINVAL);
    T_CHECK(strstr(err, "\"all\""));
    T_ERR(vv_thread_group_new("1023", 0, err, sizeof(err), &group), -EINVAL);
    T_CHECK(strstr(err, "1023"));
    T_ERR(vv_thread_group_new("any", 20, err, sizeof(err), &group), -EINVAL);
    T_CHECK(strstr(err, "20") && !group);
    T_OK(vv_thread_group_new("auto", 0, err, sizeof(err), &group));
    vv_thread_group_free(group);
    vv_thread_group_free(NULL);
    vv_thread_group_get_stats(NULL, &s);
    T_CHECK(s.threads == 0 && vv_thread_group_cores(NULL) == 0 &&
            vv_thread_group_list(NULL, NULL, 0) == 0);
    vv_thread_group_name("no group");
}

/* Moving a group moves its threads and those started later; without cores, all threads run where the thread
 * that made the group may run. The masks of the application's threads do not include them. */
static void moves(void)
{
    struct vv_thread_group *group;
    struct vv_thread_group_member m[2];
    struct vv_thread_group_stats s;
    char err[160] = "", one[16], home[64];
    cpu_set_t mine, last;
    pthread_t thread[2];
    size_t before, after;
    int cpu = 0;

    T_EQ(sched_getaffinity(0, sizeof(mine), &mine), 0);
    for (int i = 0; i < CPU_SETSIZE; i++)
        cpu = CPU_ISSET(i, &mine) ? i : cpu;
    snprintf(one, sizeof(one), "%d", cpu);
    vv_cpus_format(&mine, home, sizeof(home));
    last = set(one);
    free(vv_thread_group_app_masks(&before));
    vv_mutex_init(&lock, "test", VV_RANK_LOG);
    vv_cond_init(&changed);
    running = 0;
    stop = false;
    T_OK(vv_thread_group_new("auto", 0, err, sizeof(err), &group));
    T_EQ(vv_thread_group_cores(group), 0);
    T_CHECK(vv_thread_group_enter(group) == NULL);
    T_OK(vv_thread_start(&thread[0], work, (void *)"there"));
    vv_mutex_lock(&lock);
    while (running < 1)
        vv_cond_wait(&changed, &lock);
    vv_mutex_unlock(&lock);
    vv_thread_group_move(group, &last, 1);
    T_OK(vv_thread_start(&thread[1], work, (void *)"to come"));
    T_CHECK(vv_thread_group_enter(NULL) == group);
    vv_mutex_lock(&lock);
    while (running < 2)
        vv_cond_wait(&changed, &lock);
    vv_mutex_unlock(&lock);
    T_EQ(vv_thread_group_cores(group), 1);
    vv_thread_group_get_stats(group, &s);
    T_STREQ(s.where, one);
    T_EQ(vv_thread_group_list(group, m, 2), 2);
    T_EQ(m[0].cpu, cpu);
    free(vv_thread_group_app_masks(&after));
    T_EQ(after, before);
    vv_thread_group_move(group, &last, 0);
    vv_thread_group_get_stats(group, &s);
    T_EQ(s.cores, 0);
    T_STREQ(s.where, "any");
    for (int i = 0; i < 2; i++) {
        cpu_set_t now;
        char text[64];
        T_EQ(pthread_getaffinity_np(thread[i], sizeof(now), &now), 0);
        T_STREQ(vv_cpus_format(&now, text, sizeof(text)), home);
    }
    vv_mutex_lock(&lock);
    stop = true;
    vv_cond_broadcast(&changed);
    vv_mutex_unlock(&lock);
    for (int i = 0; i < 2; i++)
        T_EQ(pthread_join(thread[i], NULL), 0);
    vv_thread_group_free(group);
    vv_cond_fini(&changed);
    vv_mutex_fini(&lock);
}

int main(void)
{
    T_RUN(lists);
    T_RUN(members);
    T_RUN(refused);
    T_RUN(moves);
    return t_done();
}
