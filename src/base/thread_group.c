/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Thread groups. A member is on its group's list from its first action to its last. So a thread that holds the
 * lock may read the processor time of any thread on the list, and the sum over ended threads is exact. A thread
 * sets its own binding and priority when it joins; if the system refuses, it runs unchanged, and the lists show
 * how. A group that moves binds the threads on its list under the lock, so that a thread that joins meanwhile is
 * bound too.
 */
#include "base/thread_group.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/lock.h"

enum { THREADS_MAX = 4096 };

struct member {
    struct member *next;
    pthread_t thread;
    pid_t tid;
    char name[VV_THREAD_GROUP_NAME];
};

struct vv_thread_group {
    cpu_set_t
        home; /* processors of the thread that made the group; immutable, like the next field */
    int nice;
    struct vv_mutex lock;
    cpu_set_t cpus; /* Synchronization: lock, as all that follow */
    unsigned cores; /* 0: not bound */
    struct member *members;
    uint64_t ended, ended_ns;
};

/* Owner: the thread. */
static _Thread_local struct vv_thread_group *current;
static _Thread_local struct member *me;

/* Threads of all groups, so that no group mistakes another group's threads for the application's. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct vv_mutex ours_lock;
static pid_t ours[THREADS_MAX]; /* Synchronization: ours_lock, like the next variable */
static size_t nours;

static void init(void)
{
    vv_mutex_init(&ours_lock, "threads of all groups", VV_RANK_THREAD_GROUP);
}

static void ours_add(pid_t tid)
{
    vv_mutex_lock(&ours_lock);
    if (nours < THREADS_MAX)
        ours[nours++] = tid;
    vv_mutex_unlock(&ours_lock);
}

static void ours_remove(pid_t tid)
{
    vv_mutex_lock(&ours_lock);
    for (size_t i = 0; i < nours; i++)
        if (ours[i] == tid) {
            ours[i] = ours[--nours];
            break;
        }
    vv_mutex_unlock(&ours_lock);
}

static bool is_ours(pid_t tid)
{
    bool found = false;

    vv_mutex_lock(&ours_lock);
    for (size_t i = 0; i < nours; i++)
        found |= ours[i] == tid;
    vv_mutex_unlock(&ours_lock);
    return found;
}

/* ---- the application's threads ---- */

cpu_set_t *vv_thread_group_app_masks(size_t *ret_n)
{
    DIR *dir = opendir("/proc/self/task");
    cpu_set_t *masks = NULL;
    size_t n = 0, room = 0;

    for (struct dirent *e; dir && (e = readdir(dir)) != NULL && n < THREADS_MAX;) {
        pid_t tid = (pid_t)atoi(e->d_name);
        cpu_set_t mask;
        if (tid <= 0 || is_ours(tid) || sched_getaffinity(tid, sizeof(mask), &mask) != 0)
            continue;
        if (n == room) {
            cpu_set_t *more = realloc(masks, (room = room ? 2 * room : 16) * sizeof(*masks));
            if (!more)
                break;
            masks = more;
        }
        masks[n++] = mask;
    }
    if (dir)
        closedir(dir);
    *ret_n = n;
    return masks;
}

/* ---- thread groups ---- */

static int take_list(const char *list, char *err, size_t err_bytes, struct vv_thread_group *group)
{
    cpu_set_t cpus, now, got;
    bool usable;

    if (vv_cpus_parse(list, &cpus)) {
        snprintf(err, err_bytes,
                 "helper_cores: \"%.60s\" is neither auto, none nor a list of "
                 "processors, such as 0-3,8",
                 list);
        return -EINVAL;
    }
    /* The only way to find out if the system allows these processors is to bind this thread to them. */
    if (sched_getaffinity(0, sizeof(now), &now) != 0)
        return -errno;
    usable = sched_setaffinity(0, sizeof(cpus), &cpus) == 0 &&
             sched_getaffinity(0, sizeof(got), &got) == 0;
    if (usable)
        (void)!sched_setaffinity(0, sizeof(now), &now);
    if (!usable) {
        snprintf(err, err_bytes, "helper_cores: this process may use none of processors %.60s",
                 list);
        return -EINVAL;
    }
    group->cpus = got;
    group->cores = (unsigned)CPU_COUNT(&got);
    return 0;
}

int vv_thread_group_new(const char *cores, int nice, char *err, size_t err_bytes,
                        struct vv_thread_group **ret_group)
{
    struct vv_thread_group *group = calloc(1, sizeof(*group));
    int rc = 0;

    if (!group)
        return -ENOMEM;
    vv_mutex_init(&group->lock, "thread group", VV_RANK_THREAD_GROUP);
    group->nice = nice;
    pthread_once(&once, init);
    if (sched_getaffinity(0, sizeof(group->home), &group->home) != 0)
        CPU_ZERO(&group->home);
    if (nice < -20 || nice > 19) {
        snprintf(err, err_bytes, "helper_nice: %d is not between -20 and 19", nice);
        rc = -EINVAL;
    } else if (strcmp(cores, "auto") != 0 && strcmp(cores, "none") != 0 &&
               strcmp(cores, "any") != 0) {
        rc = take_list(cores, err, err_bytes, group);
    }
    if (rc) {
        vv_thread_group_free(group);
        return rc;
    }
    *ret_group = group;
    return 0;
}

void vv_thread_group_free(struct vv_thread_group *group)
{
    if (!group)
        return;
    vv_mutex_fini(&group->lock);
    free(group);
}

struct vv_thread_group *vv_thread_group_enter(struct vv_thread_group *group)
{
    struct vv_thread_group *before = current;

    current = group;
    return before;
}

struct vv_thread_group *vv_thread_group_current(void)
{
    return current;
}

unsigned vv_thread_group_cores(struct vv_thread_group *group)
{
    if (!group)
        return 0;
    vv_mutex_lock(&group->lock);
    unsigned cores = group->cores;
    vv_mutex_unlock(&group->lock);
    return cores;
}

void vv_thread_group_move(struct vv_thread_group *group, const cpu_set_t *cpus, unsigned cores)
{
    const cpu_set_t *to = cores ? cpus : &group->home;

    vv_mutex_lock(&group->lock);
    group->cpus = *to;
    group->cores = cores;
    for (const struct member *m = group->members; m; m = m->next)
        (void)!sched_setaffinity(m->tid, sizeof(*to), to);
    vv_mutex_unlock(&group->lock);
}

/* ---- members ---- */

int vv_thread_group_join(struct vv_thread_group *group)
{
    struct member *m = calloc(1, sizeof(*m));

    current = group;
    pid_t tid = (pid_t)syscall(SYS_gettid);
    if (group->nice)
        (void)!setpriority(PRIO_PROCESS, (id_t)tid, group->nice);
    if (!m)
        return -ENOMEM;
    m->thread = pthread_self();
    m->tid = tid;
    me = m;
    ours_add(tid);
    vv_mutex_lock(&group->lock);
    if (group->cores)
        (void)!sched_setaffinity(0, sizeof(group->cpus), &group->cpus);
    m->next = group->members;
    group->members = m;
    vv_mutex_unlock(&group->lock);
    return 0;
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec ts;

    if (clock_gettime(clock, &ts) != 0)
        return 0;
    return (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec;
}

void vv_thread_group_leave(struct vv_thread_group *group)
{
    struct member *m = me;

    vv_mutex_lock(&group->lock);
    struct member **at = &group->members;
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    group->ended++;
    group->ended_ns += clock_ns(CLOCK_THREAD_CPUTIME_ID);
    vv_mutex_unlock(&group->lock);
    ours_remove(m->tid);
    me = NULL;
    current = NULL;
    free(m);
}

void vv_thread_group_name(const char *name)
{
    if (!me)
        return;
    vv_mutex_lock(&current->lock);
    snprintf(me->name, sizeof(me->name), "%s", name);
    vv_mutex_unlock(&current->lock);
}

/* ---- figures ---- */

static uint64_t member_ns(const struct member *m)
{
    clockid_t clock;

    return pthread_getcpuclockid(m->thread, &clock) == 0 ? clock_ns(clock) : 0;
}

void vv_thread_group_get_stats(struct vv_thread_group *group,
                               struct vv_thread_group_stats *ret_stats)
{
    struct vv_thread_group_stats s = {.where = "any"};

    if (group) {
        vv_mutex_lock(&group->lock);
        s.cores = group->cores;
        if (group->cores)
            vv_cpus_format(&group->cpus, s.where, sizeof(s.where));
        s.ended = group->ended;
        s.cpu_ns = group->ended_ns;
        for (const struct member *m = group->members; m; m = m->next) {
            s.threads++;
            s.cpu_ns += member_ns(m);
        }
        vv_mutex_unlock(&group->lock);
    }
    *ret_stats = s;
}

/* The processor that a thread ran on last: field 39 of its stat. Counting starts after the name, which may have
 * any characters. */
static int last_cpu(pid_t tid)
{
    char path[64], text[1024], *at;
    int cpu = -1;
    size_t n;

    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)tid);
    FILE *f = fopen(path, "re");
    if (!f)
        return -1;
    n = fread(text, 1, sizeof(text) - 1, f);
    fclose(f);
    text[n] = 0;
    at = strrchr(text, ')');
    for (int word = 2; at && word < 39; word++)
        at = strchr(at + 1, ' ');
    if (at)
        cpu = atoi(at + 1);
    return cpu;
}

size_t vv_thread_group_list(struct vv_thread_group *group,
                            struct vv_thread_group_member *ret_members, size_t max)
{
    size_t n = 0;

    if (!group)
        return 0;
    vv_mutex_lock(&group->lock);
    for (const struct member *m = group->members; m; m = m->next, n++) {
        if (n >= max)
            continue;
        struct vv_thread_group_member *r = &ret_members[n];
        *r = (struct vv_thread_group_member){.cpu = m->tid, .cpu_ns = member_ns(m)};
        memcpy(r->name, m->name, sizeof(r->name));
    }
    vv_mutex_unlock(&group->lock);
    /* Read files without the lock; a thread that has ended meanwhile has no file. */
    for (size_t i = 0; i < VV_MIN(n, max); i++) {
        pid_t tid = ret_members[i].cpu;
        ret_members[i].cpu = last_cpu(tid);
        ret_members[i].nice = getpriority(PRIO_PROCESS, (id_t)tid);
    }
    return n;
}
