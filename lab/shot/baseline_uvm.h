/* SPDX-License-Identifier: Apache-2.0 */
/* What those who measure want of the baseline with managed memory, besides its calls: an engine that
 * shot_engine_uvm made, and the thread that calls it. */
#ifndef VARVE_SIM_BASELINE_UVM_H
#define VARVE_SIM_BASELINE_UVM_H

#include "lab/shot/shot_engine.h"
#include "lab/shot/uvm_steps.h"

/* All steps since it was opened, or since they were forgotten. */
void shot_uvm_account(struct shot_engine *e, struct uvm_account *ret_account);
void shot_uvm_forget(struct shot_engine *e);

/* The flusher begins nothing while it is held. */
void shot_uvm_hold(struct shot_engine *e, bool hold);

/* Lets the flusher go on, and waits until it, or the prefetcher while `version` is ready, has begun
 * such a thing, and long enough for it to have come to the driver. False: none is to come. */
bool shot_uvm_await(struct shot_engine *e, enum uvm_met what, uint64_t version);

#endif
