/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which processors the threads of the library keep to, so that they take none from the application,
 * from other processes of its job, or from other jobs. Sets go in, a set comes out.
 */
#ifndef VV_POLICY_CORES_H
#define VV_POLICY_CORES_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vv_cores_question {
    const cpu_set_t *masks; /* where each thread of the application may run */
    size_t nmasks;
    cpu_set_t machine; /* that the process could use although its threads are all bound to less;
                                empty: not known */
    const uint16_t *core_of; /* by processor: a number of its core */
    unsigned app_threads;    /* that the application is going to use; 0: not known */

    /* Of processes that a launcher has started and bound; all empty or 0 otherwise. */
    cpu_set_t job;   /* that the job may use on this node; this process was given a part */
    bool owned;      /* no other job has any of them */
    cpu_set_t ranks; /* that the processes of the node are bound to, as far as that is known */
    bool all_known;  /* it is, of all processes of the job */
    cpu_set_t idle;  /* where nothing of others has run just now */
    cpu_set_t near;  /* near the device */
};

enum vv_cores_how {
    VV_CORES_ANY,   /* none is free for certain: wherever the process may run */
    VV_CORES_LEFT,  /* left by the application's own threads */
    VV_CORES_JOB,   /* of the job, bound to by none of its processes */
    VV_CORES_IDLE,  /* likewise; others may have them too, and none uses them */
    VV_CORES_GIVEN, /* a list in the configuration */
};

/*
 * How many cores, whole ones; 0: VV_CORES_ANY, and the set is empty.
 *
 * Of a job whose launcher has bound this process to a part: those of the job on which no process is
 * bound to run. If the job may share them with others, or a process of it is not known, only those
 * that are idle. Those near the device if they are enough.
 *
 * Otherwise whole cores on which no thread of the application is bound to run, less one for each
 * thread that it is going to use and that is not bound or not there yet. A thread is bound if it may
 * run on less than all of them together may. The last ones of them.
 */
unsigned vv_cores_choose(const struct vv_cores_question *q, cpu_set_t *ret_cpus,
                         enum vv_cores_how *ret_how);

#endif
