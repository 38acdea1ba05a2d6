/* SPDX-License-Identifier: Apache-2.0 */
/* The description of a job, read from folders that look like those of a system. */
#include "base/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/cpus.h"
#include "t.h"

enum { INIT = 1, BATCH = 10, MPIRUN = 20, SHELL = 30, OTHER = 40 };

static char proc[400];

static cpu_set_t set(const char *list)
{
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    if (list[0])
        T_OK(vv_cpus_parse(list, &cpus));
    return cpus;
}

static const char *text_of(const cpu_set_t *cpus)
{
    static char text[64];
    return vv_cpus_format(cpus, text, sizeof(text));
}

static void put(const char *name, const char *text, size_t bytes)
{
    char path[1000];
    snprintf(path, sizeof(path), "%s/%s", proc, name);
    FILE *f = fopen(path, "w");
    T_CHECK(f != NULL);
    T_EQ(fwrite(text, 1, bytes, f), bytes);
    T_EQ(fclose(f), 0);
}

/* A process that has taken `used` ticks; `children`: as the system lists them. */
static void process(const char *pid, int parent, const char *cpus, const char *variable,
                    const char *children, unsigned used)
{
    char name[100], text[300];
    const char *const folders[] = {"", "/task", "/task/"};
    for (int i = 0; i < 3; i++) {
        char path[1000];
        snprintf(path, sizeof(path), "%s/%s%s%s", proc, pid, folders[i], i == 2 ? pid : "");
        (void)mkdir(path, 0777);
    }
    snprintf(name, sizeof(name), "%s/status", pid);
    snprintf(text, sizeof(text), "Name:\tx\nPPid:\t%d\nCpus_allowed:\tff\nCpus_allowed_list:\t%s\n",
             parent, cpus);
    put(name, text, strlen(text));
    snprintf(name, sizeof(name), "%s/environ", pid);
    int n = snprintf(text, sizeof(text), "A=1%c%s=4%cZ=2", 0, variable, 0);
    put(name, text, (size_t)n + 1);
    snprintf(name, sizeof(name), "%s/stat", pid);
    snprintf(text, sizeof(text), "%s (a (b) c) S %d 1 1 0 -1 4194304 1 2 3 4 %u %u 0 0 20 0\n", pid,
             parent, used / 2, used - used / 2);
    put(name, text, strlen(text));
    snprintf(name, sizeof(name), "%s/task/%s/children", pid, pid);
    put(name, children, strlen(children));
}

/* Processors 0 to 7: so many ticks busy each, and idle. */
static void processors(const unsigned *busy, const unsigned *idle)
{
    char text[1000] = "cpu  1 2 3 4 5 6 7 8 0 0\n";
    for (int i = 0; i < 8; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "cpu%d %u 0 0 %u 0 0 0 0 0 0\n",
                 i, busy[i], idle[i]);
    snprintf(text + strlen(text), sizeof(text) - strlen(text), "intr 1 2 3\n");
    put("stat", text, strlen(text));
}

/* mpirun, started from a shell of a batch job, has started this process through a shell (31 below
 * 30) and another (40). */
static void start(const char *launcher_cpus)
{
    static const unsigned none[8] = {0};
    const char *dir = t_tmpdir();
    snprintf(proc, sizeof(proc), "%s/proc", dir);
    T_EQ(mkdir(proc, 0777), 0);
    process("self", SHELL, "2", "OMPI_COMM_WORLD_SIZE", "", 7);
    process("1", 0, "0-7", "X", "10", 0);
    process("10", INIT, "0-7", "X", "20", 0);
    process("20", BATCH, launcher_cpus, "XOMPI_COMM_WORLD_SIZE", "30 40", 0);
    process("30", MPIRUN, "2", "OMPI_COMM_WORLD_SIZE", "31", 0);
    process("31", SHELL, "2", "OMPI_COMM_WORLD_SIZE", "", 100);
    process("40", MPIRUN, "3", "OMPI_COMM_WORLD_SIZE", "", 200);
    put("self/cgroup", "0::/user.slice\n", 15);
    processors(none, none);
    T_EQ(setenv("OMPI_COMM_WORLD_SIZE", "2", 1), 0);
}

static struct vv_job find(const char *mine, const char *allowed)
{
    cpu_set_t m = set(mine), a = set(allowed);
    struct vv_job job;
    vvi_job_find_in(proc, &m, &a, &job);
    return job;
}

static void who_launched(void)
{
    start("0-5");
    struct vv_job job = find("2", "0-7");
    T_CHECK(job.launched && !job.owned);
    T_EQ(job.launcher, MPIRUN);
    T_STREQ(text_of(&job.cpus), "0-5");
    job = find("2", "1-3"); /* a control group has less than the launcher */
    T_STREQ(text_of(&job.cpus), "1-3");
    job = find("2", "2");
    T_CHECK(!job.launched);
    /* A binding of the launcher is meant for its processes: ancestors above it do not count. */
    start("2");
    T_CHECK(!find("2", "0-7").launched);
    start("0-5");
    T_CHECK(!find("0-5", "0-7").launched); /* not bound to a part */
    T_EQ(unsetenv("OMPI_COMM_WORLD_SIZE"), 0);
    T_CHECK(!find("2", "0-7").launched); /* by hand */
    snprintf(proc, sizeof(proc), "%s/nothing", t_tmpdir());
    T_EQ(setenv("PMI_RANK", "0", 1), 0);
    job = find("2", "0-7");
    T_CHECK(job.launched && !job.launcher); /* not visible */
    T_STREQ(text_of(&job.cpus), "0-7");
    T_EQ(unsetenv("PMI_RANK"), 0);
}

static void owned(void)
{
    static const char slurm[] = "0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\n";
    start("0-7");
    put("self/cgroup", slurm, sizeof(slurm) - 1);
    T_CHECK(find("2", "0-3").owned);
    T_CHECK(!find("2", "0-7").owned); /* the group has the whole machine, like all processes */
    T_EQ(setenv("SLURM_CPUS_ON_NODE", "7", 1), 0);
    T_CHECK(!find("2", "0-7").owned);
    T_EQ(setenv("SLURM_CPUS_ON_NODE", "8", 1), 0);
    T_CHECK(find("2", "0-7").owned);
    T_EQ(unsetenv("SLURM_CPUS_ON_NODE"), 0);
}

static void idle(void)
{
    static const unsigned none[8] = {0};
    struct vv_job_sample before, after;
    cpu_set_t free_ones;
    start("0-5");
    struct vv_job job = find("2", "0-7");
    vv_job_look(&job, &before);
    T_CHECK(before.listed);
    T_EQ(before.nprocs, 3);
    T_EQ(before.used, 300);
    T_STREQ(text_of(&before.ranks), "2-3");
    /* 10 ticks: two processes of the job, and one of another on 4. */
    processors((const unsigned[8]){0, 1, 10, 10, 10}, (const unsigned[8]){10, 9, 0, 0, 0, 10, 10});
    process("31", SHELL, "2", "OMPI_COMM_WORLD_SIZE", "", 110);
    process("40", MPIRUN, "3", "OMPI_COMM_WORLD_SIZE", "", 210);
    vv_job_look(&job, &after);
    vv_job_idle(&job, &before, &after, &free_ones);
    T_STREQ(text_of(&free_ones), "0-1,5");
    /* Only the job's processes ran, so they may share their processors. */
    process("40", MPIRUN, "3", "OMPI_COMM_WORLD_SIZE", "", 220);
    vv_job_look(&job, &after);
    vv_job_idle(&job, &before, &after, &free_ones);
    T_STREQ(text_of(&free_ones), "0-5");
    /* A system without these counters reports nothing. */
    processors(none, none);
    vv_job_look(&job, &after);
    vv_job_idle(&job, &before, &after, &free_ones);
    T_STREQ(text_of(&free_ones), "");
}

int main(void)
{
    for (const char *const *v =
             (const char *const[]){"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_SIZE", "PMI_RANK",
                                   "MPI_LOCALNRANKS", "PALS_RANKID", "FLUX_TASK_RANK",
                                   "SLURM_PROCID", "SLURM_CPUS_ON_NODE", NULL};
         *v; v++)
        (void)unsetenv(*v);
    T_RUN(who_launched);
    T_RUN(owned);
    T_RUN(idle);
    return t_done();
}
