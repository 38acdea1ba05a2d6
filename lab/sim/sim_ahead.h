/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams in virtual time, for the simulator (sim_run.c): those of the application with kernels and calls on them,
 * and the lanes of the engine. Entries of a stream run in order, each when all that it waits for has run.
 *
 * Two properties of a device that runs ahead are simulated: decisions are made when the host makes its calls,
 * long before the streams come to them, and copies of several streams share the links in the order in which they
 * may begin.
 */
#ifndef LAB_SIM_AHEAD_H
#define LAB_SIM_AHEAD_H

#include <stddef.h>
#include <stdint.h>

#include "base/util.h"
#include "engine/core/core.h"

struct sim_ahead;

/* Starts a copy now on the link of its hop. Returns the time of its end. */
typedef uint64_t sim_ahead_start_fn(void *arg, const struct vv_order *o);

/* `threads`: streams of the application. NULL: no memory. */
struct sim_ahead *sim_ahead_new(uint32_t threads, sim_ahead_start_fn *start, void *arg);
/* Accepts NULL. */
void sim_ahead_free(struct sim_ahead *a);

/* Appends a kernel to the stream of a thread. Returns the time at which the stream comes there. -ENOMEM. */
VV_WARN_UNUSED int sim_ahead_kernel(struct sim_ahead *a, uint32_t thread, uint64_t ns);
VV_WARN_UNUSED int sim_ahead_mark(struct sim_ahead *a, uint32_t thread, uint64_t *at_ns);
/* Appends an order to its lane, or to the stream of the thread if it belongs to a request. An order of a family
 * gets its number on its stream in *ret_seq, and the caller reports it to the core; others get 0. -ENOMEM. */
VV_WARN_UNUSED int sim_ahead_order(struct sim_ahead *a, uint32_t thread, struct vv_order *o,
                                   uint64_t *ret_seq);

/* The time of the next event, now or later; UINT64_MAX: nothing is under way. */
uint64_t sim_ahead_next_ns(const struct sim_ahead *a, uint64_t now_ns);
/* Runs until that time. Returns the orders that have ended, one per call; NULL: no other one has. */
struct vv_order *sim_ahead_run(struct sim_ahead *a, uint64_t now_ns);
/* Removes an order that has not ended from its stream; NULL: there is none. */
struct vv_order *sim_ahead_take(struct sim_ahead *a);

#endif
