/* SPDX-License-Identifier: Apache-2.0 */
/* A second lower bound on blocked time: the optimum of a linear program, by GLPK, which is found at run time. */
#ifndef LAB_SHOT_BOUND_LP_H
#define LAB_SHOT_BOUND_LP_H

#include "cli/report/bound.h"
#include "lab/shot/shot.h"

/*
 * For the same events and machine as bound_compute. Time grows fast with calls times versions.
 *   -ENOTSUP   there is no GLPK
 *   -EINVAL    the events are wrong
 *   -EDOM      the solver has not found the optimum
 *   -ENOMEM
 */
VV_WARN_UNUSED int bound_lp(const struct bound_event *events, size_t nr_events,
                            const struct bound_params *params, double *ret_s);

/* As shot_bound, with the compute time of the script. */
VV_WARN_UNUSED int shot_lp(const struct shot_script *script, const struct shot_machine *machine,
                           double *ret_s);

#endif
