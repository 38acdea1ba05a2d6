/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses the processors for the threads of the library, so that they take none from the
 * application, from other processes of its job, or from other jobs. Sets go in, a set comes out.
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
    cpu_set_t machine; /* available to the process, although its threads are all bound to less;
                                empty: unknown */
    const uint16_t *core_of; /* by processor: the number of its core */
    unsigned app_threads;    /* that the application is going to use; 0: unknown */

    /* For processes started and bound by a launcher; otherwise all are empty or 0. */
    cpu_set_t job;   /* available to the job on this node; this process has a part of them */
    bool owned;      /* no other job may use them */
    cpu_set_t ranks; /* to which the processes of the node are bound, as far as known */
    bool all_known;  /* `ranks` includes all processes of the job */
    cpu_set_t idle;  /* where no other process has run just now */
    cpu_set_t near;  /* near the device */
};

enum vv_cores_how {
    VV_CORES_ANY,   /* none is free for certain: any that the process may use */
    VV_CORES_LEFT,  /* not used by the application's own threads */
    VV_CORES_JOB,   /* of the job, with none of its processes bound to them */
    VV_CORES_IDLE,  /* the same; other jobs may use them too, but they are idle */
    VV_CORES_GIVEN, /* a list in the configuration */
};

/*
 * Chooses whole cores, and returns their number; 0: VV_CORES_ANY, and the set is empty.
 *
 * If the launcher of a job has bound this process to a part of the job's processors, it chooses the
 * processors of the job to which no process is bound. If the job may share them with others, or a
 * process of the job is unknown, it chooses only those that are idle. If enough of them are near the
 * device, it chooses only these.
 *
 * Otherwise it chooses from the whole cores to which no thread of the application is bound. A thread
 * is bound if it may run on fewer processors than all threads together. The first of these cores are
 * left to the application: one for each thread that it is going to use and that is not bound or does
 * not exist yet.
 */
unsigned vv_cores_choose(const struct vv_cores_question *q, cpu_set_t *ret_cpus,
                         enum vv_cores_how *ret_how);

#endif
