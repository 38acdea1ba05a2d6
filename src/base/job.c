/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes of a job and their cores, from /proc and control groups.
 *
 * Launchers (mpirun, srun, ...) set variables in the processes that they start. The launcher is the nearest
 * ancestor of this process that was started without the variable, or whose variables cannot be read because
 * it belongs to another user. It binds the processes that it starts to parts of its own processors. The
 * job's processors on this node are those of the launcher, as far as the control groups of this process
 * allow them. A process without a launcher has the processors that it is bound to: a binding by hand
 * (taskset) is intended.
 *
 * Owned: a batch system has made a control group for the job with only part of the machine, or its variables
 * say that the job has all of the machine.
 *
 * Failures: /proc may be missing or hide processes. Then there is no launcher, no list of processes and no
 * idle processor, and the library's threads run on the application's processors.
 */
#include "base/job.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpus.h"
#include "base/thread.h"
#include "base/thread_group.h"

enum { PATH_BYTES = 128, TEXT_BYTES = 4096, ANCESTORS = 64, DEPTH = 8, BUSY_SHARE = 5 };

/* ---- files of /proc ---- */

/* Reads the beginning of a file as a string; false: it cannot be read. */
static bool read_text(const char *path, char *text, size_t size, size_t *ret_n)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    *ret_n = fread(text, 1, size - 1, f);
    text[*ret_n] = 0;
    fclose(f);
    return true;
}

/* The value of `key` in /proc/PID/status, where a line begins with it; NULL: the key is missing. */
static const char *status_field(const char *text, const char *key)
{
    size_t n = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, n) == 0 && line[n] == ':')
            return line + n + 1 + strspn(line + n + 1, " \t");
    }
    return NULL;
}

/* Reads the parent of a process and the processors that it may use. */
static bool read_process(const char *proc, int pid, int *ret_parent, cpu_set_t *ret_cpus)
{
    char path[PATH_BYTES], text[TEXT_BYTES], list[TEXT_BYTES];
    size_t n;
    snprintf(path, sizeof(path), "%s/%d/status", proc, pid);
    if (!read_text(path, text, sizeof(text), &n))
        return false;
    const char *parent = status_field(text, "PPid");
    const char *cpus = status_field(text, "Cpus_allowed_list");
    if (!parent || !cpus)
        return false;
    snprintf(list, sizeof(list), "%.*s", (int)strcspn(cpus, "\n"), cpus);
    *ret_parent = atoi(parent);
    return vv_cpus_parse(list, ret_cpus) == 0;
}

/* Processor time, in ticks: fields 14 and 15. Counting starts after the name, which may have any characters. */
static uint64_t used_by(const char *proc, int pid)
{
    char path[PATH_BYTES], text[1024];
    unsigned long long user = 0, system = 0;
    size_t n;
    snprintf(path, sizeof(path), "%s/%d/stat", proc, pid);
    const char *at = read_text(path, text, sizeof(text), &n) ? strrchr(text, ')') : NULL;
    if (!at || sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user,
                      &system) != 2)
        return 0;
    return user + system;
}

/* ---- the launcher ---- */

static const char *const launchers[] = {
    "OMPI_COMM_WORLD_SIZE", "PMIX_RANK",   "PMI_SIZE",       "PMI_RANK",
    "MPI_LOCALNRANKS",      "PALS_RANKID", "FLUX_TASK_RANK", "SLURM_PROCID"};

static const char *launch_variable(void)
{
    for (size_t i = 0; i < VV_ARRAY_SIZE(launchers); i++)
        if (getenv(launchers[i]))
            return launchers[i];
    return NULL;
}

/* True if the process was started with the variable. */
static bool started_with(const char *proc, int pid, const char *variable)
{
    char path[PATH_BYTES], *line = NULL;
    size_t room = 0, n = strlen(variable);
    bool found = false;
    snprintf(path, sizeof(path), "%s/%d/environ", proc, pid);
    FILE *f = fopen(path, "re");
    while (f && !found && getdelim(&line, &room, 0, f) > 0)
        found = strncmp(line, variable, n) == 0 && line[n] == '=';
    free(line);
    if (f)
        fclose(f);
    return found;
}

static int find_launcher(const char *proc, const char *variable, cpu_set_t *ret_cpus)
{
    char path[PATH_BYTES], text[TEXT_BYTES];
    size_t n;
    snprintf(path, sizeof(path), "%s/self/status", proc);
    const char *parent =
        read_text(path, text, sizeof(text), &n) ? status_field(text, "PPid") : NULL;
    int pid = parent ? atoi(parent) : 0, next;
    for (int i = 0; pid > 0 && i < ANCESTORS; i++, pid = next) {
        if (!read_process(proc, pid, &next, ret_cpus))
            return 0;
        if (!started_with(proc, pid, variable))
            return pid;
    }
    return 0;
}

/* ---- processors of the job ---- */

static void *ask_main(void *arg)
{
    cpu_set_t *cpus = arg;
    vv_thread_unbind();
    if (sched_getaffinity(0, sizeof(*cpus), cpus) != 0)
        CPU_ZERO(cpus);
    return NULL;
}

/* Determines the processors that control groups allow this process, independent of its binding: a thread that
 * asks for all processors gets these. The binding of the calling thread does not change. */
static void ask_allowed(cpu_set_t *ret_cpus)
{
    struct vv_thread_group *before = vv_thread_group_enter(NULL);
    pthread_t thread;
    CPU_ZERO(ret_cpus);
    if (vv_thread_start(&thread, ask_main, ret_cpus) == 0)
        pthread_join(thread, NULL);
    vv_thread_group_enter(before);
}

/* True if the process is in a control group of a batch system's job. */
static bool in_job_group(const char *proc)
{
    static const char *const marks[][2] = {
        {"slurm", "job_"}, {"pbs", "/"}, {"torque", "/"}, {"lsf", "/job."}, {"oar", "/"}};
    char path[PATH_BYTES], text[TEXT_BYTES];
    size_t n;
    snprintf(path, sizeof(path), "%s/self/cgroup", proc);
    if (!read_text(path, text, sizeof(text), &n))
        return false;
    for (size_t i = 0; i < VV_ARRAY_SIZE(marks); i++) {
        const char *at = strstr(text, marks[i][0]);
        if (at && strstr(at, marks[i][1]))
            return true;
    }
    return false;
}

/* Number of processors of the machine. */
static long online_cpus(const char *proc)
{
    char path[PATH_BYTES], line[512];
    long n = 0;
    snprintf(path, sizeof(path), "%s/stat", proc);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f))
        n += strncmp(line, "cpu", 3) == 0 && line[3] >= '0' && line[3] <= '9';
    if (f)
        fclose(f);
    return n;
}

static bool has_whole_node(long online)
{
    const char *text = getenv("SLURM_CPUS_ON_NODE");
    return text && online > 0 && strtol(text, NULL, 10) >= online;
}

void vvi_job_find_in(const char *proc, const cpu_set_t *mine, const cpu_set_t *allowed,
                     struct vv_job *ret_job)
{
    const char *variable = launch_variable();
    long online = online_cpus(proc);
    cpu_set_t theirs;
    *ret_job = (struct vv_job){.proc = proc, .launched = variable != NULL};
    if (!variable)
        return;
    ret_job->launcher = find_launcher(proc, variable, &theirs);
    ret_job->owned = (in_job_group(proc) && CPU_COUNT(allowed) < online) || has_whole_node(online);
    if (ret_job->launcher)
        CPU_AND(&ret_job->cpus, allowed, &theirs);
    else
        ret_job->cpus = *allowed;
    CPU_OR(&theirs, &ret_job->cpus, mine);
    /* This process may use all processors of the job: it is not bound to a part of them. */
    if (CPU_EQUAL(&theirs, mine))
        *ret_job = (struct vv_job){.proc = proc};
}

void vv_job_find(const cpu_set_t *mine, struct vv_job *ret_job)
{
    cpu_set_t allowed;
    *ret_job = (struct vv_job){.proc = "/proc"};
    if (!launch_variable())
        return;
    ask_allowed(&allowed);
    vvi_job_find_in("/proc", mine, &allowed, ret_job);
}

/* ---- samples ---- */

static void look_below(const struct vv_job *job, int pid, int depth, struct vv_job_sample *s);

/* Adds the children of all threads of a process. False: the system does not list them. */
static bool look_at_children(const struct vv_job *job, int pid, int depth, struct vv_job_sample *s)
{
    char path[PATH_BYTES];
    bool listed = false;
    snprintf(path, sizeof(path), "%s/%d/task", job->proc, pid);
    DIR *dir = depth < DEPTH ? opendir(path) : NULL;
    for (struct dirent *e; dir && (e = readdir(dir)) != NULL;) {
        int child;
        snprintf(path, sizeof(path), "%s/%d/task/%.20s/children", job->proc, pid, e->d_name);
        FILE *f = e->d_name[0] != '.' ? fopen(path, "re") : NULL;
        while (f && fscanf(f, "%d", &child) == 1)
            look_below(job, child, depth, s);
        listed |= f != NULL;
        if (f)
            fclose(f);
    }
    if (dir)
        closedir(dir);
    return listed;
}

static void look_below(const struct vv_job *job, int pid, int depth, struct vv_job_sample *s)
{
    cpu_set_t cpus, both;
    int parent;
    if (!read_process(job->proc, pid, &parent, &cpus))
        return; /* the process has ended */
    s->nprocs++;
    s->used += used_by(job->proc, pid);
    CPU_AND(&both, &cpus, &job->cpus);
    if (!CPU_EQUAL(&both, &job->cpus))
        CPU_OR(&s->ranks, &s->ranks, &cpus);
    (void)look_at_children(job, pid, depth + 1, s);
}

static void look_at_processors(const struct vv_job *job, struct vv_job_sample *s)
{
    char path[PATH_BYTES], line[512];
    snprintf(path, sizeof(path), "%s/stat", job->proc);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f)) {
        unsigned long long t[7];
        unsigned cpu;
        if (sscanf(line, "cpu%u %llu %llu %llu %llu %llu %llu %llu", &cpu, &t[0], &t[1], &t[2],
                   &t[3], &t[4], &t[5], &t[6]) != 8 ||
            cpu >= CPU_SETSIZE)
            continue;
        s->busy[cpu] = t[0] + t[1] + t[2] + t[5] + t[6];
        s->idle[cpu] = t[3] + t[4]; /* idle, and idle while waiting for a disk */
    }
    if (f)
        fclose(f);
}

void vv_job_look(const struct vv_job *job, struct vv_job_sample *ret_sample)
{
    memset(ret_sample, 0, sizeof(*ret_sample));
    if (!job->launched)
        return;
    if (job->launcher)
        ret_sample->listed = look_at_children(job, job->launcher, 0, ret_sample);
    look_at_processors(job, ret_sample);
}

void vv_job_idle(const struct vv_job *job, const struct vv_job_sample *before,
                 const struct vv_job_sample *after, cpu_set_t *ret_idle)
{
    uint64_t busy = 0, longest = 0, own = after->used - VV_MIN(after->used, before->used);
    CPU_ZERO(ret_idle);
    for (size_t i = 0; i < CPU_SETSIZE; i++) {
        uint64_t b = after->busy[i] - before->busy[i], all = b + after->idle[i] - before->idle[i];
        if (!CPU_ISSET(i, &job->cpus) || all == 0)
            continue;
        busy += b;
        longest = VV_MAX(longest, all);
        if (b * BUSY_SHARE <= all)
            CPU_SET(i, ret_idle);
    }
    /* Subtract this job's own time: its other processes may already use these processors, as this one
     * is about to. */
    uint64_t others = busy - VV_MIN(busy, own);
    if (after->listed && longest > 0 && others <= VV_MAX(longest / 2, (uint64_t)2))
        *ret_idle = job->cpus;
}
