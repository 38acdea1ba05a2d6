/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Histories that are not open: the number of ranks that wrote them, and removing them. A job that restarts with another
 * number of ranks cannot open its old histories, and must be able to remove them.
 */
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "ckpt/ckpt_private.h"
#include "store/remote/purge.h"
#include "store/remote/remote.h"

enum { FOLDERS = 2 };

/* The folders of the context's histories, the shared one first; NULL: the folder does not exist. */
static void folders_of(struct varve_ctx *ctx, struct vv_folder *ret_folders[FOLDERS])
{
    bool histories = ctx->opts.level >= VARVE_LEVEL_LOCAL;
    ret_folders[0] = histories && ctx->remote ? vv_remote_folder(ctx->remote) : NULL;
    ret_folders[1] = histories && ctx->folder != ret_folders[0] ? ctx->folder : NULL;
}

int varve_history_ranks(struct varve_ctx *ctx, const char *name, int *ret_ranks)
{
    static const struct vvi_where here = {"history_ranks", 0, -1, -1};
    struct vv_folder *folders[FOLDERS];
    uint32_t ranks = 0;
    int rc = name && ret_ranks ? vvi_ctx_enter(ctx) : -EINVAL;
    if (rc)
        return rc;
    folders_of(ctx, folders);
    for (int i = 0; i < FOLDERS && rc == 0 && ranks == 0; i++) {
        rc = folders[i] ? vv_files_ranks(folders[i], name, &ranks) : 0;
        rc = rc == -ENOENT ? 0 : rc;
    }
    if (rc == 0)
        *ret_ranks = (int)ranks;
    else
        vvi_fail(ctx, &here, rc, "history %.60s: %s", name,
                 rc == -EINVAL ? VVI_NAME_RULE : vv_strerror(rc));
    vvi_ctx_leave(ctx);
    return rc;
}

/* True if a history or part of these ranks is open in this context. */
static bool is_open(struct varve_ctx *ctx, const char *name, int first_rank)
{
    bool open = false;
    vv_mutex_lock(&ctx->lock);
    for (const struct varve_history *h = ctx->histories; h; h = h->next)
        open |= strcmp(h->name, name) == 0 &&
                first_rank <= (h->part ? (int)h->part_rank : ctx->opts.rank);
    vv_mutex_unlock(&ctx->lock);
    return open;
}

int varve_history_remove(struct varve_ctx *ctx, const char *name, int first_rank)
{
    static const struct vvi_where here = {"history_remove", 0, -1, -1};
    struct vv_folder *folders[FOLDERS];
    char err[256] = "";
    int rc = name && first_rank >= 0 ? vvi_ctx_enter(ctx) : -EINVAL;
    if (rc)
        return rc;
    struct vv_purge purge = {.history = name,
                             .first_rank = (uint32_t)first_rank,
                             .rank = (uint32_t)ctx->opts.rank,
                             .ranks = (uint32_t)ctx->opts.ranks,
                             .run_id = ctx->opts.run_id};
    folders_of(ctx, folders);
    if (is_open(ctx, name, first_rank)) {
        rc = vvi_fail(ctx, &here, -EBUSY, "history %.60s is open: close it first", name);
    } else {
        if (ctx->partner)
            rc = vv_partner_remove(ctx->partner, name, (uint32_t)first_rank);
        for (int i = 0; i < FOLDERS && rc == 0; i++)
            rc = folders[i] ? vv_files_purge(folders[i], &purge, err, sizeof(err)) : 0;
        if (rc)
            vvi_fail(ctx, &here, rc, "%s", err[0] ? err : vv_strerror(rc));
    }
    vvi_ctx_leave(ctx);
    return rc;
}
