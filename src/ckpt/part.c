/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts: the versions of one rank of another job, read-only.
 *
 * A part is a read-only history. Its versions are those that an opening by the old rank would find, but it takes no
 * lock, repairs nothing and begins no run. So all processes of a new job may have any parts open, and their own
 * histories at the same time. The engine treats a part like any other history that has nothing to flush or remove.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "ckpt/ckpt_private.h"
#include "store/remote/purge.h"

int vvi_may_write(struct varve_history *h, const char *operation, uint64_t version)
{
    struct vvi_where here = {operation, version, -1, -1};
    if (!h->part)
        return 0;
    return vvi_fail(
        h->ctx, &here, -EROFS,
        "version %llu: this is the part of rank %u in history %.60s, for reading only: write "
        "to a history of this job",
        (unsigned long long)version, h->part_rank, h->name);
}

/* The number of parts, or an error with a text. */
static int count(struct varve_ctx *ctx, const char *name, uint32_t *ret_parts, char *err,
                 size_t err_bytes)
{
    int rc = vvi_name_check(name);
    if (rc) {
        snprintf(err, err_bytes, VVI_NAME_RULE);
        return rc;
    }
    if (!ctx->remote) {
        snprintf(
            err, err_bytes,
            "other ranks can only be read from a shared folder: open the context at level remote "
            "or complete");
        return -EINVAL;
    }
    rc = vv_files_parts(vv_remote_folder(ctx->remote), name, ret_parts);
    if (rc == -ENOENT)
        snprintf(err, err_bytes, "there is no history %.60s in %.100s", name, ctx->opts.remote);
    else if (rc)
        snprintf(err, err_bytes, "history %.60s in %.100s: %s", name, ctx->opts.remote,
                 vv_strerror(rc));
    return rc;
}

int varve_parts(struct varve_ctx *ctx, const char *name, int *ret_parts)
{
    static const struct vvi_where here = {"parts", 0, -1, -1};
    char err[256] = "";
    uint32_t parts = 0;
    int rc = vvi_ctx_enter(ctx);
    if (rc)
        return rc;
    if (!ret_parts) {
        rc = -EINVAL;
        snprintf(err, sizeof(err), "ret_parts is NULL");
    } else {
        rc = count(ctx, name, &parts, err, sizeof(err));
    }
    if (rc)
        vvi_fail(ctx, &here, rc, "%s", err);
    else
        *ret_parts = (int)parts;
    vvi_ctx_leave(ctx);
    return rc;
}

/* Opens the part's files, and adds it to the engine. */
static int fill(struct varve_history *h, uint32_t parts, char *err, size_t err_bytes)
{
    static const struct vv_files_opts files = {.read_only = true};
    static const struct vv_core_hist_cfg cfg = {
        .level = VV_CORE_DURABLE, .hold = true, .order = VV_RESTORE_BY_HINTS};
    struct varve_ctx *ctx = h->ctx;
    int rc = 0;
    if (ctx->opts.local[0])
        rc = vv_files_open(ctx->folder, h->name, h->part_rank, &files, err, err_bytes, &h->files);
    if (rc == 0)
        rc = vv_remote_open_part(ctx->remote, h->name, h->part_rank, parts, h->files, err,
                                 err_bytes, &h->remote);
    if (rc == 0 && !h->files)
        h->files = vv_remote_files(h->remote);
    if (rc == 0)
        rc = vvi_history_engine(h, &cfg);
    if (rc == 0)
        vv_remote_start(h->remote, vvi_trace_history(h));
    return rc;
}

static int part_new(struct varve_ctx *ctx, const char *name, int rank, char *err, size_t err_bytes,
                    struct varve_history **ret_part)
{
    uint32_t parts = 0;
    int rc = count(ctx, name, &parts, err, err_bytes);
    if (rc)
        return rc;
    if (rank < 0 || (uint32_t)rank >= parts) {
        snprintf(err, err_bytes,
                 "history %.60s was written by %u rank%s: rank %d is not one of them", name, parts,
                 parts == 1 ? "" : "s", rank);
        return -EINVAL;
    }
    struct varve_history *h = calloc(1, sizeof(*h));
    if (!h)
        return -ENOMEM;
    h->ctx = ctx;
    h->part = true;
    h->part_rank = (uint32_t)rank;
    h->regions.bytes = sizeof(struct vvi_region);
    vv_mutex_init(&h->lock, "history", VV_RANK_HISTORY);
    h->name = strdup(name);
    rc = h->name ? fill(h, parts, err, err_bytes) : -ENOMEM;
    if (rc) {
        vvi_history_free(h);
        return rc;
    }
    *ret_part = h;
    return 0;
}

int varve_part_open(struct varve_ctx *ctx, const char *name, int rank,
                    struct varve_history **ret_part)
{
    static const struct vvi_where here = {"part_open", 0, -1, -1};
    struct varve_history *h = NULL;
    char err[256] = "";
    int rc = vvi_ctx_enter(ctx);
    if (rc)
        return rc;
    if (!ret_part) {
        rc = -EINVAL;
        snprintf(err, sizeof(err), "ret_part is NULL");
    } else {
        rc = part_new(ctx, name, rank, err, sizeof(err), &h);
    }
    if (rc) {
        vvi_fail(ctx, &here, rc, "%s", err[0] ? err : vv_strerror(rc));
    } else {
        vv_mutex_lock(&ctx->lock);
        h->next = ctx->histories;
        ctx->histories = h;
        vv_mutex_unlock(&ctx->lock);
        if (vv_trace_enabled())
            vv_trace(VV_TRACE_HISTORY_OPEN, vvi_trace_history(h), vv_trace_name(name), 0, 0);
        *ret_part = h;
    }
    vvi_ctx_leave(ctx);
    return rc;
}
