/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group: the threads that work for one context in the background, where they may run, and what they
 * have cost. Threads of vv_thread_start join the group of the thread that starts them; a thread that
 * is in none (the application's) enters one for as long as it starts threads for it.
 */
#ifndef VV_BASE_THREAD_GROUP_H
#define VV_BASE_THREAD_GROUP_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cpus.h"
#include "base/util.h"

struct vv_thread_group;

/*
 * `cores`: "none" or "any", where the thread that makes the group may run; a list of processors, "3" or
 * "0-3,8"; or "auto", none until vv_thread_group_move says otherwise. `nice`: their priority, 0 to 19, or
 * below 0 where the process may. -EINVAL, with a text: not a list, or none of it may be used;
 * -ENOMEM.
 */
VV_WARN_UNUSED int vv_thread_group_new(const char *cores, int nice, char *err, size_t err_bytes,
                                       struct vv_thread_group **ret_group);
/* None of its threads is left. Accepts NULL. */
void vv_thread_group_free(struct vv_thread_group *group);

/* From now on its threads, those to come as well, run on these processors, of so many cores; 0: on
 * any, as above. Any thread. */
void vv_thread_group_move(struct vv_thread_group *group, const cpu_set_t *cpus, unsigned cores);
/* Where each thread of the process that is in no group may run. For the caller to free; NULL: nothing
 * is known. */
cpu_set_t *vv_thread_group_app_masks(size_t *ret_n);

/* Threads that the calling thread starts from now on belong to this group; NULL: to none. Returns what
 * it was before, to be set again. */
struct vv_thread_group *vv_thread_group_enter(struct vv_thread_group *group);
/* Names the work of the calling thread, for lists; long names are cut. Does nothing outside a group. */
void vv_thread_group_name(const char *name);
/* Cores, and so processors, that its threads are bound to; 0: they are not. Accepts NULL. */
unsigned vv_thread_group_cores(struct vv_thread_group *group);

enum { VV_THREAD_GROUP_CORES_TEXT = 64, VV_THREAD_GROUP_NAME = 24 };

struct vv_thread_group_member {
    char name[VV_THREAD_GROUP_NAME];
    int cpu;         /* that it ran on last; -1: not known */
    int nice;        /* as the system has it */
    uint64_t cpu_ns; /* that it has taken */
};

struct vv_thread_group_stats {
    uint64_t threads, ended;                /* there are; there were */
    uint64_t cpu_ns;                        /* of both together */
    unsigned cores;                         /* as vv_thread_group_cores */
    char where[VV_THREAD_GROUP_CORES_TEXT]; /* the processors as a list, cut; "any" */
};

/* Any thread. Accept NULL: nothing. */
void vv_thread_group_get_stats(struct vv_thread_group *group,
                               struct vv_thread_group_stats *ret_stats);
/* Up to `max` of its threads, and how many there are. */
size_t vv_thread_group_list(struct vv_thread_group *group,
                            struct vv_thread_group_member *ret_members, size_t max);

/* ---- for threads of vv_thread_start ---- */

struct vv_thread_group *vv_thread_group_current(void);
/* The calling thread joins, and leaves before it ends. -ENOMEM: it works, and is not counted. */
int vv_thread_group_join(struct vv_thread_group *group);
void vv_thread_group_leave(struct vv_thread_group *group);

#endif
