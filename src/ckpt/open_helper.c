/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A context's use of the node's helper process (store/aio/helper.h).
 *
 * The helper process is optional: without it, and after it has ended, threads of the context do its work. So failing to
 * reach it is not an error, only a line in the log and a 0 in the figures.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/thread_group.h"
#include "ckpt/ckpt_private.h"
#include "stats/stats_page.h"
#include "store/aio/helper.h"

void vvi_helper_open(struct varve_ctx *ctx)
{
    const struct varve_opts *o = &ctx->opts;
    struct vv_thread_group_stats group;
    char err[256] = "";
    if (!o->helper_process || !(o->local[0] || o->remote[0]))
        return;
    /* The helper runs where the threads of the first process that needs it would run. A list that was cut is not
     * used. */
    vv_thread_group_get_stats(ctx->group, &group);
    bool bound = group.cores > 0 && !strstr(group.where, "...");
    struct vv_helper_opts h = {.name = o->helper_name,
                               .program = o->helper_program,
                               .cores = bound ? group.where : "any",
                               .nice = o->helper_nice};
    if (vv_helper_open(&h, err, sizeof(err), &ctx->helper))
        vv_log(VV_LOG_WARNING, "no helper process, threads do its work: %s", err);
}

void vvi_helper_stats(struct varve_ctx *ctx, struct varve_stats *stats)
{
    struct vv_helper_stats h;
    vv_helper_get_stats(ctx->helper, &h);
    stats->helper_pid = (uint64_t)h.pid;
    stats->helper_alive = h.alive;
    stats->helper_requests = h.requests;
    stats->helper_bytes = h.bytes;
    stats->helper_process_cpu_ns = h.cpu_ns;
    stats->helper_redone = h.redone;
}

bool vvi_helper_describe(struct varve_ctx *ctx, struct varve_helper *ret_helper)
{
    struct vv_helper_stats h;
    if (!ctx->helper)
        return false;
    vv_helper_get_stats(ctx->helper, &h);
    *ret_helper = (struct varve_helper){.cpu = h.cpu, .nice = h.nice, .cpu_ns = h.cpu_ns};
    snprintf(ret_helper->name, sizeof(ret_helper->name), "%s %d", h.alive ? "process" : "ended",
             (int)h.pid);
    return true;
}

void vvi_helper_publish(const struct varve_ctx *ctx, struct vv_stats_record *r)
{
    struct vv_helper_stats h;
    if (!ctx->helper)
        return;
    vv_helper_get_stats(ctx->helper, &h);
    r->process_pid = (uint64_t)h.pid;
    r->process_alive = h.alive;
    r->process_requests = h.requests;
    r->process_bytes = h.bytes;
    r->process_cpu_ns = h.cpu_ns;
    r->process_redone = h.redone;
    snprintf(r->process_where, sizeof(r->process_where), "%s", h.where);
}
