/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/generation.h"

/* 0, VV_GEN_NONE: the event cannot happen. No event leads back to that state. */
static const unsigned char next[VV_GEN_STATES][VV_GEN_EVENTS] = {
    [VV_GEN_NONE] = {[VV_GEN_BEGUN] = VV_GEN_WRITING, [VV_GEN_WRITTEN] = VV_GEN_CURRENT},
    [VV_GEN_WRITING] = {[VV_GEN_WRITTEN] = VV_GEN_CURRENT,
                        [VV_GEN_DROPPED] = VV_GEN_ENDED,
                        [VV_GEN_DISCARDED] = VV_GEN_ENDED},
    [VV_GEN_CURRENT] = {[VV_GEN_REACHED] = VV_GEN_SAFE,
                        [VV_GEN_REPLACED] = VV_GEN_HELD,
                        [VV_GEN_DROPPED] = VV_GEN_ENDED,
                        [VV_GEN_DISCARDED] = VV_GEN_ENDED},
    [VV_GEN_SAFE] = {[VV_GEN_REPLACED] = VV_GEN_HELD,
                     [VV_GEN_DROPPED] = VV_GEN_ENDED,
                     [VV_GEN_DISCARDED] = VV_GEN_ENDED},
    [VV_GEN_HELD] = {[VV_GEN_RELEASED] = VV_GEN_ENDED,
                     [VV_GEN_RETURNED] = VV_GEN_CURRENT,
                     [VV_GEN_DISCARDED] = VV_GEN_ENDED},
};

static const char *const states[VV_GEN_STATES] = {
    [VV_GEN_NONE] = "NONE", [VV_GEN_WRITING] = "WRITING", [VV_GEN_CURRENT] = "CURRENT",
    [VV_GEN_SAFE] = "SAFE", [VV_GEN_HELD] = "HELD",       [VV_GEN_ENDED] = "ENDED",
};

static const char *const events[VV_GEN_EVENTS] = {
    [VV_GEN_BEGUN] = "BEGUN",       [VV_GEN_WRITTEN] = "WRITTEN",
    [VV_GEN_REACHED] = "REACHED",   [VV_GEN_REPLACED] = "REPLACED",
    [VV_GEN_DROPPED] = "DROPPED",   [VV_GEN_DISCARDED] = "DISCARDED",
    [VV_GEN_RELEASED] = "RELEASED", [VV_GEN_RETURNED] = "RETURNED",
};

const char *vv_gen_state_name(enum vv_gen_state state)
{
    return (unsigned)state < VV_GEN_STATES ? states[state] : "unknown";
}

const char *vv_gen_event_name(enum vv_gen_event event)
{
    return (unsigned)event < VV_GEN_EVENTS ? events[event] : "unknown";
}

bool vv_gen_next(enum vv_gen_state state, enum vv_gen_event event, enum vv_gen_state *ret_next)
{
    unsigned to = (unsigned)state < VV_GEN_STATES && (unsigned)event < VV_GEN_EVENTS
                      ? next[state][event]
                      : VV_GEN_NONE;

    if (to == VV_GEN_NONE)
        return false;
    *ret_next = (enum vv_gen_state)to;
    return true;
}

bool vv_gen_expires(uint64_t version, uint64_t newer_safe, uint64_t keep, uint64_t keep_every)
{
    return keep != 0 && newer_safe >= keep && (keep_every == 0 || version % keep_every != 0);
}
