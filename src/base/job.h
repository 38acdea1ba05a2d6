/* SPDX-License-Identifier: Apache-2.0 */
/* The job that a process is part of, as seen on its node: its launcher, the processors that the job may use,
 * and those that are in use. */
#ifndef VV_BASE_JOB_H
#define VV_BASE_JOB_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

struct vv_job {
    bool launched;    /* by MPI or a batch system; otherwise the rest is empty */
    int launcher;     /* its process id; 0: not visible */
    cpu_set_t cpus;   /* processors that the job may use on this node */
    bool owned;       /* a batch system keeps other jobs off these processors */
    const char *proc; /* "/proc", except in tests */
};

/* Finds the job of this process. `mine`: processors of this process. Takes a fraction of a millisecond. */
void vv_job_find(const cpu_set_t *mine, struct vv_job *ret_job);

/* Figures at one time. The difference of two samples shows what ran in between. */
struct vv_job_sample {
    bool listed;     /* the processes of the job could be listed */
    size_t nprocs;   /* their number, including this one */
    cpu_set_t ranks; /* processors to which the launcher has bound processes */
    uint64_t used;   /* processor time of the processes, in ticks */
    uint64_t busy[CPU_SETSIZE],
        idle[CPU_SETSIZE]; /* of each processor, in ticks; both 0: not known */
};

void vv_job_look(const struct vv_job *job, struct vv_job_sample *ret_sample);

/* Length of a tick. Fewer than four ticks are too few to judge. */
#define VV_JOB_TICK_NS  UINT64_C(10000000)
#define VV_JOB_LEAST_NS (4 * VV_JOB_TICK_NS + VV_JOB_TICK_NS / 2)

/* Processors of the job on which, between two samples, hardly anything ran except the job's own processes. */
void vv_job_idle(const struct vv_job *job, const struct vv_job_sample *before,
                 const struct vv_job_sample *after, cpu_set_t *ret_idle);

/* The same with another folder for /proc, and with the processors that control groups allow; for tests. */
void vvi_job_find_in(const char *proc, const cpu_set_t *mine, const cpu_set_t *allowed,
                     struct vv_job *ret_job);

#endif
