/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator: the engine's own core, in virtual time. */
#ifndef LAB_SIM_RUN_H
#define LAB_SIM_RUN_H

#include "lab/shot/report.h"
#include "lab/shot/work.h"

/* 0 if every hop that the shot crosses has a rate: without one it would take no time, and the bound would be 0.
 * -EINVAL with a line of text that names the missing rates and gives an example. */
VV_WARN_UNUSED int sim_check_rates(const struct shot_opts *opts, char *err, size_t err_size);

/* Runs the shot and fills in the report, bound included; the caller frees it with shot_report_fini(). Rates that
 * are not given mean no limit. Every byte is tracked: a restore of a lost chunk is -EBADMSG, with a line of text
 * in `err`. -EINVAL, -ENOMEM, -ENOSPC and the errors of the engine. */
VV_WARN_UNUSED int sim_run_shot(const struct shot_opts *opts, char *err, size_t err_size,
                                struct shot_report *ret_report);

/* The same for a workload, in one process on a machine of its own. The report has `name`, threads instead of
 * processes, and a bound unless a thread reads versions of another. */
VV_WARN_UNUSED int sim_run_work(const char *name, const struct shot_opts *opts,
                                const struct shot_work *work, char *err, size_t err_size,
                                struct shot_report *ret_report);

/* The same for threads that run ahead of a stream each, on a device: compute times are kernels, and a thread's
 * blocked time is the time for which its stream stalls. */
VV_WARN_UNUSED int sim_run_streams(const char *name, const struct shot_opts *opts,
                                   const struct shot_work *work, char *err, size_t err_size,
                                   struct shot_report *ret_report);

/* Machines of several processes each, one device for each process. The options' rates of h2f and f2h are those of
 * a node's disk, one medium for all; those of d2h and h2d are those of one device. */
struct sim_nodes {
    uint32_t procs;      /* on a node                                                            */
    uint32_t link_procs; /* devices behind one link to host memory; divides procs                */
    uint64_t link_bps;   /* of such a link, in each direction; 0: no limit                       */
    uint64_t memory_bps; /* of a node's host memory, reads and writes together; 0: no limit      */
};

/* The same on nodes: opts->procs processes fill them one after the other. Processes take the sizes in the same
 * order, but begin at different ones, spread evenly over a node. The bound is that of a process that has its node
 * to itself: valid, but lower than sharing allows. `nodes` NULL: sim_run_shot. -EINVAL also for inconsistent
 * nodes. */
VV_WARN_UNUSED int sim_run_nodes(const struct shot_opts *opts, const struct sim_nodes *nodes,
                                 char *err, size_t err_size, struct shot_report *ret_report);

/* The settings of an engine for a script, from the options; shared with `varve bench`. */
struct vv_core_cfg;
void sim_core_cfg(const struct shot_opts *opts, uint64_t history_bytes,
                  struct vv_core_cfg *ret_cfg);

#endif
