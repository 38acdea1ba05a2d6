/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A crew: the threads that work for one context in the background, where they may run, and what they
 * have cost. Threads of vv_thread_start join the crew of the thread that starts them; a thread that
 * is in none (the application's) enters one for as long as it starts threads for it.
 */
#ifndef VV_BASE_CREW_H
#define VV_BASE_CREW_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

struct vv_crew;

/*
 * `cores`: "any", where the thread that starts them may run; a list of processors, "3" or "0-3,8";
 * or "auto", the cores that the application leaves free, if there are some for certain, and any
 * otherwise: see vv_crew_free_cores. `nice`: their priority, 0 to 19, or below 0 where the process
 * may. -EINVAL, with a text: not a list, or none of it may be used; -ENOMEM.
 */
VV_WARN_UNUSED int vv_crew_new(const char *cores, int nice, char *err, size_t err_bytes,
                               struct vv_crew **ret_crew);
/* None of its threads is left. Accepts NULL. */
void vv_crew_free(struct vv_crew *crew);

/* Threads that the calling thread starts from now on belong to this crew; NULL: to none. Returns what
 * it was before, to be set again. */
struct vv_crew *vv_crew_enter(struct vv_crew *crew);
/* What the calling thread does, for lists; cut. Not a member: nothing. */
void vv_crew_name(const char *name);
/* Cores, and so processors, that its threads are bound to; 0: they are not. Accepts NULL. */
unsigned vv_crew_cores(const struct vv_crew *crew);

enum { VV_CREW_CORES_TEXT = 64, VV_CREW_NAME = 24 };

struct vv_crew_member {
    char name[VV_CREW_NAME];
    int cpu;         /* that it ran on last; -1: not known */
    int nice;        /* as the system has it */
    uint64_t cpu_ns; /* that it has taken */
};

struct vv_crew_stats {
    uint64_t threads, ended;        /* there are; there were */
    uint64_t cpu_ns;                /* of both together */
    unsigned cores;                 /* as vv_crew_cores */
    char where[VV_CREW_CORES_TEXT]; /* the processors as a list, cut; "any" */
};

/* Any thread. Accept NULL: nothing. */
void vv_crew_get_stats(struct vv_crew *crew, struct vv_crew_stats *ret_stats);
/* Up to `max` of its threads, and how many there are. */
size_t vv_crew_list(struct vv_crew *crew, struct vv_crew_member *ret_members, size_t max);

/* ---- for threads of vv_thread_start ---- */

struct vv_crew *vv_crew_current(void);
/* The calling thread joins, and leaves before it ends. -ENOMEM: it works, and is not counted. */
int vv_crew_join(struct vv_crew *crew);
void vv_crew_leave(struct vv_crew *crew);

/* ---- which cores are free: a pure function ---- */

struct vv_crew_question {
    const cpu_set_t *masks; /* where each thread of the application may run */
    size_t nmasks;
    cpu_set_t machine; /* that the process could use although its threads are all bound to less;
                                empty: not known */
    const uint16_t *core_of; /* by processor: a number of its core */
    unsigned app_threads;    /* that the application is going to use; 0: not known */
};

/*
 * Whole cores on which no thread of the application is bound to run, less one for each thread that it
 * is going to use and that is not bound or not there yet. A thread is bound if it may run on less
 * than all of them together may. Returns how many cores, the last ones; 0: none is free for certain,
 * and `ret_cpus` is empty.
 */
unsigned vv_crew_free_cores(const struct vv_crew_question *q, cpu_set_t *ret_cpus);

/* "0-3,8". -EINVAL. */
VV_WARN_UNUSED int vv_cpus_parse(const char *text, cpu_set_t *ret_cpus);
/* The reverse; cut with "...". Returns buf. */
char *vv_cpus_format(const cpu_set_t *cpus, char *buf, size_t size);

#endif
