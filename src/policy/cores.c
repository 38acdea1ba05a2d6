/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/cores.h"

#include "base/util.h"

/* This many cores near the device suffice to move what one device can take. */
enum { NEAR_ENOUGH = 4 };

static bool is_bound(const cpu_set_t *mask, const cpu_set_t *all)
{
    return !CPU_EQUAL(mask, all);
}

/* Removes from `cpus` each core that has a processor in `all` but not in `cpus`. Returns the number
 * of cores that are left. */
static unsigned whole_cores(const struct vv_cores_question *q, const cpu_set_t *all,
                            cpu_set_t *cpus)
{
    bool broken[CPU_SETSIZE] = {false}, seen[CPU_SETSIZE] = {false};
    unsigned n = 0;

    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, all) && !CPU_ISSET(i, cpus))
            broken[q->core_of[i]] = true;
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, cpus))
            continue;
        if (broken[q->core_of[i]])
            CPU_CLR(i, cpus);
        else if (!seen[q->core_of[i]])
            n += seen[q->core_of[i]] = true;
    }
    return n;
}

/* Removes the first `n` cores. */
static void leave_first(const struct vv_cores_question *q, unsigned n, cpu_set_t *cpus)
{
    bool theirs[CPU_SETSIZE] = {false};

    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, cpus))
            continue;
        if (n > 0 && !theirs[q->core_of[i]]) {
            theirs[q->core_of[i]] = true;
            n--;
        }
        if (theirs[q->core_of[i]])
            CPU_CLR(i, cpus);
    }
}

static unsigned left_by_threads(const struct vv_cores_question *q, cpu_set_t *ret_cpus)
{
    cpu_set_t all, bound, cpus;
    size_t nbound = 0;
    unsigned cores;

    CPU_ZERO(&all);
    CPU_ZERO(&bound);
    for (size_t i = 0; i < q->nmasks; i++)
        CPU_OR(&all, &all, &q->masks[i]);
    for (size_t i = 0; i < q->nmasks; i++)
        if (is_bound(&q->masks[i], &all)) {
            CPU_OR(&bound, &bound, &q->masks[i]);
            nbound++;
        }
    /* All threads bound, or a single thread bound to a part: `machine` shows which cores they
     * leave. */
    bool by_machine = CPU_COUNT(&q->machine) > 0 && (nbound == q->nmasks || q->nmasks == 1) &&
                      CPU_COUNT(&all) < CPU_COUNT(&q->machine);
    if (by_machine) {
        bound = all;
        nbound = q->nmasks;
        CPU_OR(&all, &all, &q->machine);
    }
    cpus = all;
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &bound))
            CPU_CLR(i, &cpus);
    cores = whole_cores(q, &all, &cpus);
    /* Unbound threads, and those that do not exist yet, take the first cores. */
    unsigned all_theirs = q->app_threads ? q->app_threads : (unsigned)q->nmasks;
    unsigned theirs = all_theirs > nbound ? all_theirs - (unsigned)nbound : 0;
    bool known = q->app_threads > 0 || (nbound > 0 && !by_machine);
    if (!known || theirs >= cores) {
        CPU_ZERO(&cpus);
        cores = 0;
    } else {
        leave_first(q, theirs, &cpus);
        cores -= theirs;
    }
    *ret_cpus = cpus;
    return cores;
}

/* The job's processors to which none of its processes is bound. */
static unsigned left_by_job(const struct vv_cores_question *q, cpu_set_t *ret_cpus, bool *ret_idle)
{
    cpu_set_t all = q->job, cpus = q->job, near, taken = q->ranks;
    bool bound = false;

    /* A thread that may run anywhere, like some of MPI's own, is bound to no core. */
    for (size_t i = 0; i < q->nmasks; i++) {
        CPU_AND(&near, &q->masks[i], &q->job);
        if (CPU_EQUAL(&near, &q->job))
            continue;
        CPU_OR(&taken, &taken, &q->masks[i]);
        bound = true;
    }
    if (!bound)
        taken = q->job;
    *ret_idle = !q->owned || !q->all_known;
    for (size_t i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &taken) || (*ret_idle && !CPU_ISSET(i, &q->idle)))
            CPU_CLR(i, &cpus);
    CPU_OR(&all, &all, &taken); /* a core is not whole if a process is bound to half of it */
    unsigned cores = whole_cores(q, &all, &cpus);
    CPU_AND(&near, &cpus, &q->near);
    unsigned ncores = whole_cores(q, &near, &near);
    *ret_cpus = ncores >= NEAR_ENOUGH ? near : cpus;
    return ncores >= NEAR_ENOUGH ? ncores : cores;
}

unsigned vv_cores_choose(const struct vv_cores_question *q, cpu_set_t *ret_cpus,
                         enum vv_cores_how *ret_how)
{
    bool idle = false;
    unsigned cores = left_by_job(q, ret_cpus, &idle);

    *ret_how = idle ? VV_CORES_IDLE : VV_CORES_JOB;
    if (cores > 0)
        return cores;
    cores = left_by_threads(q, ret_cpus);
    *ret_how = cores > 0 ? VV_CORES_LEFT : VV_CORES_ANY;
    return cores;
}
