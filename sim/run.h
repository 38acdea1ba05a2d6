/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator: the engine's own core, in virtual time. */
#ifndef VARVE_SIM_RUN_H
#define VARVE_SIM_RUN_H

#include "sim/report.h"

/* Whether every hop that the shot crosses has a rate: without one it would take no time, and the
 * bound be 0. -EINVAL with a line of text that names the missing ones and an example. */
VV_WARN_UNUSED int sim_check_rates(const struct shot_opts *opts, char *err, size_t err_size);

/* Runs the shot and fills in the report, bound included; the caller frees it with
 * shot_report_fini(). Rates that are not given are taken as without limit. Every byte has a
 * place: a restore of a chunk that was lost is -EBADMSG, with a line of text in `err`. -EINVAL,
 * -ENOMEM, -ENOSPC and what the engine reports. */
VV_WARN_UNUSED int sim_run_shot(const struct shot_opts *opts, char *err, size_t err_size,
                                struct shot_report *ret_report);

/* What a script needs of an engine, from the options; shared with `varve bench`. */
struct vv_core_cfg;
void sim_core_cfg(const struct shot_opts *opts, uint64_t history_bytes,
                  struct vv_core_cfg *ret_cfg);

#endif
