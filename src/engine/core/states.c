/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life cycle of a copy on one tier (Figure 1 of Maurya et al., HPDC'23, with the ways back that
 * it leaves out).
 *
 *   INIT -> WRITE_IN_PROGRESS -> WRITE_COMPLETE -> FLUSHED     checkpointing path
 *   INIT -> READ_IN_PROGRESS  -> READ_COMPLETE  -> CONSUMED    prefetching path
 *   WRITE_COMPLETE, FLUSHED -> READ_COMPLETE                   a hint or restore claims it
 *   CONSUMED -> READ_COMPLETE                                  wanted again
 *   READ_COMPLETE -> FLUSHED                                   hint cleared, passed over or revoked
 *   WRITE_IN_PROGRESS, READ_IN_PROGRESS -> INIT                failed or cancelled
 *
 * Eviction and discard end a copy; they are not transitions. The state describes a copy as a whole.
 * chunk_may_go() in object.c decides for each page whether it may go: pages of a partly resident copy
 * come and go.
 */
#include "engine/core/core_private.h"
#include "trace/trace.h"

#define S(state) (1u << VV_COPY_##state)

static const unsigned may_become[VV_COPY_STATE_COUNT] = {
    [VV_COPY_INIT] = S(WRITE_IN_PROGRESS) | S(READ_IN_PROGRESS),
    [VV_COPY_WRITE_IN_PROGRESS] = S(WRITE_COMPLETE) | S(INIT),
    [VV_COPY_WRITE_COMPLETE] = S(FLUSHED) | S(READ_COMPLETE),
    [VV_COPY_FLUSHED] = S(READ_COMPLETE),
    [VV_COPY_READ_IN_PROGRESS] = S(READ_COMPLETE) | S(INIT),
    [VV_COPY_READ_COMPLETE] = S(CONSUMED) | S(FLUSHED),
    [VV_COPY_CONSUMED] = S(READ_COMPLETE),
};

static const char *const names[VV_COPY_STATE_COUNT] = {
    [VV_COPY_INIT] = "INIT",
    [VV_COPY_WRITE_IN_PROGRESS] = "WRITE_IN_PROGRESS",
    [VV_COPY_WRITE_COMPLETE] = "WRITE_COMPLETE",
    [VV_COPY_FLUSHED] = "FLUSHED",
    [VV_COPY_READ_IN_PROGRESS] = "READ_IN_PROGRESS",
    [VV_COPY_READ_COMPLETE] = "READ_COMPLETE",
    [VV_COPY_CONSUMED] = "CONSUMED",
};

const char *vv_copy_state_name(enum vv_copy_state state)
{
    return (unsigned)state < VV_COPY_STATE_COUNT ? names[state] : "unknown";
}

bool vv_copy_state_may_change(enum vv_copy_state from, enum vv_copy_state to)
{
    return (unsigned)from < VV_COPY_STATE_COUNT && (unsigned)to < VV_COPY_STATE_COUNT &&
           (may_become[from] >> to & 1);
}

void vvi_copy_set_state(struct vv_core *core, struct vv_copy *copy, enum vv_copy_state to)
{
    enum vv_copy_state from = (enum vv_copy_state)copy->state;

    if (from == to)
        return;
    vv_assert(vv_copy_state_may_change(from, to));
    copy->state = (uint8_t)to;
    vv_trace5(VV_TRACE_STATE, vvi_trace_history(core, copy->obj->hist), copy->obj->version,
              copy->tier, from, to);
}
