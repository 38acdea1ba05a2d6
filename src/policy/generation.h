/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The generations of a version: which one counts, which ones are kept behind it, and for how long.
 *
 * Writing a version that exists makes a new generation of it. The old one, if it has a file, stays
 * until the new one is safe. So at any instant, and after a kill at any instant, a version that was
 * safe can be restored: its old bytes or its new ones.
 *
 *   WRITING   its checkpoint is under way; the version is still the generation before it
 *   CURRENT   restores get this one; it has not reached the level of its history
 *   SAFE      restores get this one; it has reached the level
 *   HELD      replaced by a CURRENT one: no restore gets it, its file stays
 *   ENDED     not wanted; freed when its last reader has gone
 *
 * The stores report events of files. Only this table decides what follows.
 */
#ifndef VV_POLICY_GENERATION_H
#define VV_POLICY_GENERATION_H

#include <stdbool.h>
#include <stdint.h>

enum vv_gen_state {
    VV_GEN_NONE, /* nothing was written: the version is only hinted */
    VV_GEN_WRITING,
    VV_GEN_CURRENT,
    VV_GEN_SAFE,
    VV_GEN_HELD,
    VV_GEN_ENDED,
    VV_GEN_STATES
};

enum vv_gen_event {
    VV_GEN_BEGUN,     /* its checkpoint begins */
    VV_GEN_WRITTEN,   /* its checkpoint has ended well, or its file was found at opening */
    VV_GEN_REACHED,   /* it has reached the level of its history */
    VV_GEN_REPLACED,  /* a newer generation was written */
    VV_GEN_DROPPED,   /* its checkpoint failed, or was taken back */
    VV_GEN_DISCARDED, /* the version was discarded, restored for the last time, or expired */
    VV_GEN_RELEASED,  /* HELD: the one that replaced it is safe */
    VV_GEN_RETURNED,  /* HELD: the one that replaced it was dropped */
    VV_GEN_EVENTS
};

const char *vv_gen_state_name(enum vv_gen_state state);
const char *vv_gen_event_name(enum vv_gen_event event);
/* The state after the event. False: the event cannot happen in this state. */
bool vv_gen_next(enum vv_gen_state state, enum vv_gen_event event, enum vv_gen_state *ret_next);

/* Retention: true if a safe version with this many newer safe ones expires. keep: number of newest
 * versions that stay, 0: all. keep_every: multiples of it stay too, 0: none. Counts versions, not
 * generations. */
bool vv_gen_expires(uint64_t version, uint64_t newer_safe, uint64_t keep, uint64_t keep_every);

#endif
