/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that are made again and again so that the next one of the application finds a processor that
 * knows the way: a checkpoint, a restore and a discard of a small version, in a history and a context
 * that nobody sees, on an engine without threads whose device does nothing. Everything from the first
 * line of a call down to the device's table of operations is run as it is for the application, with
 * other data.
 *
 * The context is the few fields of one that such calls look at; it has no folder, no list of histories,
 * no deputy and no part in a trace. Only the thread that rehearses uses it.
 *
 * What could go wrong: memory is lacking. Then there are no more rehearsals, and calls are slower.
 */
#include "ckpt/rehearse.h"

#include <errno.h>
#include <stdlib.h>

#include "ckpt/ckpt_private.h"
#include "core/pid.h"
#include "trace/trace.h"

enum { CHUNKS = 4 };

struct vvi_rehearsal {
    struct varve_ctx ctx;
    struct varve_history history;
    struct vvi_region region;
    uint64_t version;
    bool broken;
};

int vvi_rehearsal_open(const struct varve_ctx *ctx, struct vvi_rehearsal **ret_rehearsal)
{
    static char name[] = "rehearsal";
    struct vv_core_hist_cfg hist = {.level = VV_CORE_CACHED};
    struct vvi_rehearsal *r = calloc(1, sizeof(*r));
    if (!r)
        return -ENOMEM;
    vv_mutex_init(&r->ctx.lock, "context", VV_RANK_CTX);
    vv_mutex_init(&r->history.lock, "history", VV_RANK_HISTORY);
    r->ctx.pid = vv_pid();
    int rc = vv_engine_rehearsal_open(ctx->engine, &r->ctx.engine);
    if (rc == 0)
        rc = vv_engine_history_new(r->ctx.engine, &hist, NULL, 0, &r->history.hist);
    if (rc) {
        vvi_rehearsal_close(r);
        return rc;
    }
    r->region = (struct vvi_region){
        .kind = VV_MEM_DEVICE,
        .ptr = vv_engine_rehearsal_memory(r->ctx.engine),
        .bytes = (size_t)CHUNKS * ctx->opts.page_bytes,
    };
    r->history.ctx = &r->ctx;
    r->history.name = name;
    r->history.regions = (struct vv_idmap){.bytes = sizeof(r->region), .v = &r->region, .n = 1};
    *ret_rehearsal = r;
    return 0;
}

void vvi_rehearsal_close(struct vvi_rehearsal *r)
{
    if (!r)
        return;
    vv_engine_close(r->ctx.engine);
    vv_mutex_fini(&r->history.lock);
    vv_mutex_fini(&r->ctx.lock);
    free(r);
}

void vvi_rehearse(struct vvi_rehearsal *r)
{
    if (!r || r->broken)
        return;
    r->version++;
    vv_trace_mute(true); /* no application has made these calls */
    r->broken = vvi_rehearse_calls(&r->history, r->version) != 0;
    vv_trace_mute(false);
}

struct vv_engine *vvi_rehearsal_engine(const struct vvi_rehearsal *r)
{
    return r->ctx.engine;
}
