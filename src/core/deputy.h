/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A deputy: a thread that makes short calls for others while they come often.
 *
 * A thread of the application that comes to a call after milliseconds of other work finds nothing
 * of what the call needs in its processor's caches; on some machines that costs more than the call.
 * The deputy has nothing else to do. While calls come often it stays awake, keeps what they need
 * warm, and makes them for their callers, who watch it doing so; when they stop coming, it sleeps.
 *
 * A deputy that is asleep, busy with a call, or not run by the system costs its caller nothing but
 * a look: the caller is told so and makes the call itself.
 */
#ifndef VV_CORE_DEPUTY_H
#define VV_CORE_DEPUTY_H

#include <stdbool.h>
#include <stdint.h>

#include "core/util.h"

struct vv_deputy;

struct vv_deputy_opts {
    /* Calls that come within this time of one another keep it awake. 0: 40 ms. */
    uint64_t awake_ns;
    /* Called by the deputy's thread about every warm_ns while it is awake and has no call, with the
     * steps from 0 to warm_steps - 1 in turn: a call that comes meanwhile waits for one step at most.
     * NULL: nothing. 0 ns: 17 us. */
    void (*warm)(void *arg, unsigned step);
    void *warm_arg;
    unsigned warm_steps;
    uint64_t warm_ns;
    /* Called by the deputy's thread when it has woken up, and before it sleeps again, with warm_arg;
     * NULL: nothing. */
    void (*wakes)(void *arg), (*sleeps)(void *arg);
    bool awake; /* from the beginning: calls are about to come */
    /* How long a caller waits for the deputy to take its call before it makes it itself. 0: 20 us.
     */
    uint64_t take_ns;
};

/* -ENOMEM, -EAGAIN and the like. */
int vv_deputy_new(const struct vv_deputy_opts *opts, struct vv_deputy **ret_deputy) VV_WARN_UNUSED;
/* No call may be under way. */
void vv_deputy_free(struct vv_deputy *d);

/* Has the deputy call fn(arg), returns when it has, and stores its result. False: it was not called
 * and will not be. Any thread, but not from within fn. */
VV_WARN_UNUSED bool vv_deputy_call(struct vv_deputy *d, int (*fn)(void *arg), void *arg,
                                   int *ret_result);

/* A call has been made without it: if another one was made shortly before, it wakes up. */
void vv_deputy_missed(struct vv_deputy *d);

/* Calls that it has made. For tests and figures. */
uint64_t vv_deputy_calls(const struct vv_deputy *d);

#endif
