/* SPDX-License-Identifier: Apache-2.0 */
/* Which cores are free, lists of processors as text, and threads that run where they are told to. */
#include "base/crew.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/lock.h"
#include "base/thread.h"
#include "base/topo.h"
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

/* What is free of 16 processors, by threads and their number. `two`: cores of two, n and n + 8. */
static const char *free_of(const char *const *masks, size_t n, const char *machine, bool two,
                           unsigned app_threads, unsigned *ret_cores)
{
    static char text[64];
    cpu_set_t mask[8], cpus;
    uint16_t core_of[CPU_SETSIZE];
    struct vv_crew_question q = {mask, n, set(machine), core_of, app_threads};

    for (int i = 0; i < CPU_SETSIZE; i++)
        core_of[i] = (uint16_t)(two && i < 16 ? i % 8 : i);
    for (size_t i = 0; i < n; i++)
        mask[i] = set(masks[i]);
    *ret_cores = vv_crew_free_cores(&q, &cpus);
    return vv_cpus_format(&cpus, text, sizeof(text));
}

#define FREE(want, ncores, machine, two, app, ...)                                         \
    do {                                                                                   \
        const char *masks_[] = {__VA_ARGS__};                                              \
        unsigned cores_;                                                                   \
        T_STREQ(free_of(masks_, VV_ARRAY_SIZE(masks_), machine, two, app, &cores_), want); \
        T_EQ(cores_, ncores);                                                              \
    } while (0)

static void free_cores(void)
{
    /* Nothing is bound: only the number of threads tells. */
    FREE("", 0, "", false, 0, "0-15");
    FREE("", 0, "", false, 16, "0-15");
    FREE("", 0, "", false, 99, "0-15");
    FREE("15", 1, "", false, 15, "0-15");
    FREE("12-15", 4, "", false, 12, "0-15", "0-15");
    FREE("6-7,14-15", 2, "", true, 6, "0-15"); /* whole cores */
    FREE("", 0, "", true, 8, "0-15");
    FREE("7", 1, "", false, 7, "0-7"); /* the process has been given half: no more than that */
    /* Threads that are bound leave the others. */
    FREE("3-15", 13, "", false, 0, "0", "1", "0-15");    /* one for the third of them */
    FREE("3-7,11-15", 5, "", true, 0, "0", "1", "0-15"); /* beside one on the same core: no */
    FREE("15", 1, "", false, 15, "0", "0-15");           /* more are to come */
    FREE("", 0, "", false, 0, "0", "1");                 /* all of what is known is theirs */
    /* All are bound by OpenMP: what there is besides is told by the machine. */
    FREE("15", 1, "0-15", false, 15, "0");
    FREE("", 0, "0-15", false, 0, "0"); /* it will use all */
    FREE("", 0, "0-15", false, 16, "0");
    FREE("2-15", 14, "0-15", false, 2, "0", "1");
    FREE("", 0, "", false, 1, "3"); /* a process on one processor has no other */
}

static struct vv_mutex lock;
static struct vv_cond changed;
static int running;
static bool stop;

static void *work(void *arg)
{
    volatile uint64_t sum = 0;

    vv_crew_name(arg);
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

/* A thread of a crew starts another, which is of the crew too. */
static void *parent(void *arg)
{
    pthread_t child;

    T_CHECK(vv_crew_current() == arg);
    T_OK(vv_thread_start(&child, work, (void *)"child with a name that is cut"));
    work((void *)"parent");
    T_EQ(pthread_join(child, NULL), 0);
    return NULL;
}

static void members(void)
{
    struct vv_crew *crew;
    struct vv_crew_stats s;
    struct vv_crew_member m[4];
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
    T_OK(vv_crew_new(one, 3, err, sizeof(err), &crew));
    T_EQ(vv_crew_cores(crew), 1);
    T_CHECK(vv_crew_enter(crew) == NULL);
    T_OK(vv_thread_start(&thread, parent, crew));
    T_CHECK(vv_crew_enter(NULL) == crew);
    vv_mutex_lock(&lock);
    while (running < 2)
        vv_cond_wait(&changed, &lock);
    vv_mutex_unlock(&lock);
    vv_crew_get_stats(crew, &s);
    T_EQ(s.threads, 2);
    T_EQ(s.ended, 0);
    T_EQ(s.cores, 1);
    T_STREQ(s.where, one);
    T_CHECK(s.cpu_ns > 0);
    T_EQ(vv_crew_list(crew, NULL, 0), 2);
    T_EQ(vv_crew_list(crew, m, 4), 2);
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
    vv_crew_get_stats(crew, &s);
    T_EQ(s.threads, 0);
    T_EQ(s.ended, 2);
    T_CHECK(s.cpu_ns >= before); /* what ended threads took is not forgotten */
    vv_crew_free(crew);
    /* The caller runs where it ran. */
    cpu_set_t now;
    T_EQ(sched_getaffinity(0, sizeof(now), &now), 0);
    T_CHECK(CPU_EQUAL(&mine, &now));
    vv_cond_fini(&changed);
    vv_mutex_fini(&lock);
}

static void refused(void)
{
    struct vv_crew *crew = NULL;
    struct vv_crew_stats s;
    char err[160] = "";

    T_ERR(vv_crew_new("all", 0, err, sizeof(err), &crew), -EINVAL);
    T_CHECK(strstr(err, "\"all\""));
    T_ERR(vv_crew_new("1023", 0, err, sizeof(err), &crew), -EINVAL);
    T_CHECK(strstr(err, "1023"));
    T_ERR(vv_crew_new("any", 20, err, sizeof(err), &crew), -EINVAL);
    T_CHECK(strstr(err, "20") && !crew);
    T_OK(vv_crew_new("auto", 0, err, sizeof(err), &crew));
    vv_crew_free(crew);
    vv_crew_free(NULL);
    vv_crew_get_stats(NULL, &s);
    T_CHECK(s.threads == 0 && vv_crew_cores(NULL) == 0 && vv_crew_list(NULL, NULL, 0) == 0);
    vv_crew_name("nobody");
}

/* OMP_NUM_THREADS below the number of cores leaves the last ones. */
static void by_openmp(void)
{
    struct vv_topo topo;
    struct vv_crew *crew;
    char err[160] = "", n[16];

    vv_topo_get(&topo);
    if (topo.cores < 2) {
        t_note("one core: nothing is free");
        return;
    }
    snprintf(n, sizeof(n), "%u", topo.cores - 1);
    T_EQ(setenv("OMP_NUM_THREADS", n, 1), 0);
    T_OK(vv_crew_new("auto", 0, err, sizeof(err), &crew));
    T_CHECK(vv_crew_cores(crew) <= 1);
    t_note("%u of %u cores free", vv_crew_cores(crew), topo.cores);
    vv_crew_free(crew);
    T_EQ(unsetenv("OMP_NUM_THREADS"), 0);
}

int main(void)
{
    T_RUN(lists);
    T_RUN(free_cores);
    T_RUN(members);
    T_RUN(refused);
    T_RUN(by_openmp);
    return t_done();
}
