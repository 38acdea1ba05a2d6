/* SPDX-License-Identifier: Apache-2.0 */
/* The job that a process is part of, as far as its node tells: who launched it, which processors the
 * job may use, and which of them are in use. */
#ifndef VV_BASE_JOB_H
#define VV_BASE_JOB_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

struct vv_job {
    bool launched;    /* by MPI or a batch system; otherwise the rest is empty */
    int launcher;     /* its process; 0: out of sight */
    cpu_set_t cpus;   /* that the job may use on this node */
    bool owned;       /* a batch system keeps other jobs off them */
    const char *proc; /* "/proc", but for tests */
};

/* `mine`: where the threads of this process may run. Takes a fraction of a millisecond. */
void vv_job_find(const cpu_set_t *mine, struct vv_job *ret_job);

/* A moment. Two of them tell what ran in between. */
struct vv_job_sample {
    bool listed;     /* the processes of the job could be seen */
    size_t nprocs;   /* how many, this one included */
    cpu_set_t ranks; /* that those are bound to which the launcher has bound */
    uint64_t used;   /* processor time that they have taken, in ticks */
    uint64_t busy[CPU_SETSIZE],
        idle[CPU_SETSIZE]; /* of each processor, in ticks; both 0: not known */
};

void vv_job_look(const struct vv_job *job, struct vv_job_sample *ret_sample);

/* Ticks are this long, and fewer than four of them tell nothing. */
#define VV_JOB_TICK_NS  UINT64_C(10000000)
#define VV_JOB_LEAST_NS (4 * VV_JOB_TICK_NS + VV_JOB_TICK_NS / 2)

/* Processors of the job on which between two moments hardly anything ran but the job's own processes. */
void vv_job_idle(const struct vv_job *job, const struct vv_job_sample *before,
                 const struct vv_job_sample *after, cpu_set_t *ret_idle);

/* The same with another folder for /proc, and with what control groups allow; for tests. */
void vvi_job_find_in(const char *proc, const cpu_set_t *mine, const cpu_set_t *allowed,
                     struct vv_job *ret_job);

#endif
