/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of processors for the library's threads. */
#include "policy/cores.h"

#include "base/cpus.h"
#include "base/util.h"
#include "t.h"

static cpu_set_t set(const char *list)
{
    cpu_set_t cpus;

    CPU_ZERO(&cpus);
    if (list[0])
        T_OK(vv_cpus_parse(list, &cpus));
    return cpus;
}

/* Cores of one processor each, or of two, n and n + 8. */
static void cores_of_16(uint16_t *core_of, bool two)
{
    for (int i = 0; i < CPU_SETSIZE; i++)
        core_of[i] = (uint16_t)(two && i < 16 ? i % 8 : i);
}

/* The free ones of 16 processors, by the application's threads and their number. `two`: cores of
 * two, n and n + 8. */
static const char *free_of(const char *const *masks, size_t n, const char *machine, bool two,
                           unsigned app_threads, unsigned *ret_cores)
{
    static char text[64];
    cpu_set_t mask[8], cpus;
    uint16_t core_of[CPU_SETSIZE];
    struct vv_cores_question q = {.masks = mask,
                                  .nmasks = n,
                                  .machine = set(machine),
                                  .core_of = core_of,
                                  .app_threads = app_threads};
    enum vv_cores_how how;

    cores_of_16(core_of, two);
    for (size_t i = 0; i < n; i++)
        mask[i] = set(masks[i]);
    *ret_cores = vv_cores_choose(&q, &cpus, &how);
    T_EQ(how, *ret_cores ? VV_CORES_LEFT : VV_CORES_ANY);
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
    /* No thread is bound: only their number decides. */
    FREE("", 0, "", false, 0, "0-15");
    FREE("", 0, "", false, 16, "0-15");
    FREE("", 0, "", false, 99, "0-15");
    FREE("15", 1, "", false, 15, "0-15");
    FREE("12-15", 4, "", false, 12, "0-15", "0-15");
    FREE("6-7,14-15", 2, "", true, 6, "0-15"); /* whole cores */
    FREE("", 0, "", true, 8, "0-15");
    FREE("7", 1, "", false, 7, "0-7"); /* only processors that the process may use are chosen */
    /* Bound threads leave the other processors free. */
    FREE("3-15", 13, "", false, 0, "0", "1", "0-15"); /* the third, unbound, gets core 2 */
    FREE("3-7,11-15", 5, "", true, 0, "0", "1",
         "0-15");                              /* no core with a bound thread on its other half */
    FREE("15", 1, "", false, 15, "0", "0-15"); /* 13 more threads are to come */
    FREE("", 0, "", false, 0, "0", "1");       /* they use all known processors */
    /* All threads are bound by OpenMP: the machine shows the other processors. */
    FREE("15", 1, "0-15", false, 15, "0");
    FREE("", 0, "0-15", false, 0, "0"); /* it will use all */
    FREE("", 0, "0-15", false, 16, "0");
    FREE("2-15", 14, "0-15", false, 2, "0", "1");
    FREE("", 0, "", false, 1, "3"); /* a process on one processor has no other */
}

/* Processes bound by a launcher. */
struct job {
    const char *mine, *job, *ranks, *idle, *near;
    bool owned, all_known, two;
};

static const char *of_job(const struct job *j, enum vv_cores_how *ret_how, unsigned *ret_cores)
{
    static char text[64];
    uint16_t core_of[CPU_SETSIZE];
    cpu_set_t mask = set(j->mine), cpus;
    struct vv_cores_question q = {.masks = &mask,
                                  .nmasks = 1,
                                  .core_of = core_of,
                                  .job = set(j->job),
                                  .owned = j->owned,
                                  .ranks = set(j->ranks ? j->ranks : ""),
                                  .all_known = j->all_known,
                                  .idle = set(j->idle ? j->idle : ""),
                                  .near = set(j->near ? j->near : "")};

    cores_of_16(core_of, j->two);
    *ret_cores = vv_cores_choose(&q, &cpus, ret_how);
    return vv_cpus_format(&cpus, text, sizeof(text));
}

#define JOB(want, how, ncores, ...)                   \
    do {                                              \
        struct job job_ = {__VA_ARGS__};              \
        enum vv_cores_how how_;                       \
        unsigned cores_;                              \
        T_STREQ(of_job(&job_, &how_, &cores_), want); \
        T_EQ(how_, how);                              \
        T_EQ(cores_, ncores);                         \
    } while (0)

static void jobs(void)
{
    /* One process, bound to one core of sixteen: the others of the job, or those that are idle. */
    JOB("1-15", VV_CORES_JOB, 15, "0", "0-15", .owned = true, .all_known = true);
    JOB("1-15", VV_CORES_IDLE, 15, "0", "0-15", .idle = "0-15", .all_known = true);
    JOB("4-7", VV_CORES_IDLE, 4, "0", "0-15", .idle = "4-7", .all_known = true);
    JOB("", VV_CORES_ANY, 0, "0", "0-15", .all_known = true);
    /* Four processes. One with an unknown binding may be anywhere: only idle processors. */
    JOB("4-15", VV_CORES_JOB, 12, "1", "0-15", "0-3", .owned = true, .all_known = true);
    JOB("8-15", VV_CORES_IDLE, 8, "1", "0-15", "0-2", .idle = "8-15", .owned = true);
    /* A process is bound to half of a core: the core is not free. */
    JOB("1-7,9-15", VV_CORES_JOB, 7, "0", "0-15", .owned = true, .all_known = true, .two = true);
    JOB("4-5,12-13", VV_CORES_JOB, 2, "0,8", "0-15", "1-3,6,15", .owned = true, .all_known = true,
        .two = true);
    JOB("6,14", VV_CORES_IDLE, 1, "0", "0-15", .idle = "4-6,9,14", .all_known = true, .two = true);
    /* All are in use; or the process may use all that the job has. */
    JOB("", VV_CORES_ANY, 0, "0-1", "0-3", "2-3", .owned = true, .all_known = true);
    JOB("", VV_CORES_ANY, 0, "0-3", "", .owned = true, .all_known = true);
    JOB("", VV_CORES_ANY, 0, "3", "3", .owned = true, .all_known = true);
    /* Near the device, if they are enough. */
    JOB("8-15", VV_CORES_JOB, 8, "0", "0-15", .near = "8-15", .owned = true, .all_known = true);
    JOB("3-15", VV_CORES_JOB, 13, "0", "0-15", "1-2", .near = "0-5", .owned = true,
        .all_known = true);
    JOB("4-7", VV_CORES_JOB, 4, "0", "0-15", "1-3", .near = "0-7", .owned = true,
        .all_known = true);
    /* Never beyond the processors of the job, idle or not. */
    JOB("2-3", VV_CORES_IDLE, 2, "0-1", "0-3", .idle = "0-15", .all_known = true);
}

/* A thread that may run anywhere, like some of MPI's own, is bound to no core; one with a smaller
 * mask is. */
static void threads_of_a_job(void)
{
    uint16_t core_of[CPU_SETSIZE];
    cpu_set_t mask[3] = {set("0"), set("0-15"), set("5")}, cpus;
    struct vv_cores_question q = {.masks = mask,
                                  .nmasks = 3,
                                  .core_of = core_of,
                                  .job = set("0-15"),
                                  .owned = true,
                                  .all_known = true};
    enum vv_cores_how how;
    char text[64];

    cores_of_16(core_of, false);
    T_EQ(vv_cores_choose(&q, &cpus, &how), 14);
    T_STREQ(vv_cpus_format(&cpus, text, sizeof(text)), "1-4,6-15");
}

int main(void)
{
    T_RUN(free_cores);
    T_RUN(jobs);
    T_RUN(threads_of_a_job);
    return t_done();
}
