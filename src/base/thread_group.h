/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group: the background threads of one context, their processors, and their processor time. Threads of
 * vv_thread_start join the group of the thread that starts them. A thread of the application is in no group;
 * it enters one while it starts threads for it.
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
 * `cores`: "none" or "any", the processors of the calling thread; a list of processors, "3" or "0-3,8"; or
 * "auto", like "none" until vv_thread_group_move. `nice`: priority of the threads, 0 to 19, or below 0 if the
 * process has permission. -EINVAL, with a text: not a list, or this process may use none of it; -ENOMEM.
 */
VV_WARN_UNUSED int vv_thread_group_new(const char *cores, int nice, char *err, size_t err_bytes,
                                       struct vv_thread_group **ret_group);
/* Frees a group whose threads have all ended. Accepts NULL. */
void vv_thread_group_free(struct vv_thread_group *group);

/* From now on the group's threads, including new ones, run on `cpus`, which belong to `cores` cores; with
 * `cores` 0 they run as with "any". Any thread. */
void vv_thread_group_move(struct vv_thread_group *group, const cpu_set_t *cpus, unsigned cores);
/* The processors of each thread of the process that is in no group. The caller frees the array; NULL: not
 * known. */
cpu_set_t *vv_thread_group_app_masks(size_t *ret_n);

/* Threads that the calling thread starts from now on belong to this group; NULL: to none. Returns the previous
 * group, to be restored later. */
struct vv_thread_group *vv_thread_group_enter(struct vv_thread_group *group);
/* Names the work of the calling thread, for lists; long names are cut. Does nothing outside a group. */
void vv_thread_group_name(const char *name);
/* Number of cores that the group's threads are bound to; 0: not bound. Accepts NULL. */
unsigned vv_thread_group_cores(struct vv_thread_group *group);

enum { VV_THREAD_GROUP_CORES_TEXT = 64, VV_THREAD_GROUP_NAME = 24 };

struct vv_thread_group_member {
    char name[VV_THREAD_GROUP_NAME];
    int cpu;         /* processor that it ran on last; -1: not known */
    int nice;        /* its actual priority */
    uint64_t cpu_ns; /* its processor time */
};

struct vv_thread_group_stats {
    uint64_t threads, ended;                /* running, and ended */
    uint64_t cpu_ns;                        /* processor time of both together */
    unsigned cores;                         /* see vv_thread_group_cores */
    char where[VV_THREAD_GROUP_CORES_TEXT]; /* the processors as a list, cut; "any" */
};

/* Any thread. Accept NULL: all figures are 0. */
void vv_thread_group_get_stats(struct vv_thread_group *group,
                               struct vv_thread_group_stats *ret_stats);
/* Lists up to `max` of its threads, and returns their full number. */
size_t vv_thread_group_list(struct vv_thread_group *group,
                            struct vv_thread_group_member *ret_members, size_t max);

/* ---- for threads of vv_thread_start ---- */

struct vv_thread_group *vv_thread_group_current(void);
/* The calling thread joins, and leaves before it ends. -ENOMEM: it runs, but is not counted. */
int vv_thread_group_join(struct vv_thread_group *group);
void vv_thread_group_leave(struct vv_thread_group *group);

#endif
