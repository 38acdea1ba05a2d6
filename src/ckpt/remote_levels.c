/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Levels remote and complete: use of a shared folder by a context and a history (store/remote/remote.h).
 *
 * The engine has one folder of files, the local one, or the shared one if there is no local one. Its stores are
 * wrapped, and the wrapper copies every committed version to the shared folder. This file waits for these copies and
 * reports their failures. The engine is notified of files that have reached the level, and decides which may be
 * removed.
 *
 * Threads: the remote folder's worker calls `reached`.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "ckpt/ckpt_private.h"

bool vvi_is_shared(const struct varve_opts *opts)
{
    return opts->level >= VARVE_LEVEL_REMOTE;
}

const char *vvi_files_path(const struct varve_ctx *ctx)
{
    return ctx->remote && !ctx->opts.local[0] ? ctx->opts.remote : ctx->opts.local;
}

uint64_t vvi_shared_run_id(const char *run)
{
    uint64_t id = vv_hash64(run, strlen(run));
    return id ? id : 1;
}

int vvi_shared_open(struct varve_ctx *ctx, const struct vv_store_opts *store, uint64_t f2r,
                    uint64_t r2f, char *err, size_t err_bytes)
{
    const struct varve_opts *o = &ctx->opts;
    struct vv_remote_opts r = {
        .path = o->remote,
        .store = *store,
        .rank = (uint32_t)o->rank,
        .ranks = (uint32_t)o->ranks,
        .run_id = o->run_id,
        .complete = o->level == VARVE_LEVEL_COMPLETE,
        .direct = !o->local[0],
        .bytes_per_s = o->remote_rate,
        .pace_bytes_per_s = f2r,
        .disk = ctx->disk,
        .local_bytes = o->local[0] ? o->local_cache : 0,
    };
    r.store.mode = VV_STORE_AUTO;
    if (r.direct) {
        r.store.write_bytes_per_s = f2r ? f2r : store->write_bytes_per_s;
    } else {
        r.store.write_bytes_per_s = 0;
        r.store.gds = NULL;
    }
    r.store.read_bytes_per_s = r2f ? r2f : r.direct ? store->read_bytes_per_s : 0;
    return vv_remote_new(&r, err, err_bytes, &ctx->remote);
}

/* ---- histories ---- */

static void reached(void *arg, uint64_t version, uint64_t generation)
{
    struct varve_history *h = arg;
    vv_engine_reached(h->ctx->engine, h->hist, version, generation);
}

int vvi_shared_history(struct varve_history *h, char *err, size_t err_bytes)
{
    struct vv_remote_hist_opts o = {.reached = reached, .arg = h};
    int rc = vv_remote_open(h->ctx->remote, h->name, h->files, &o, err, err_bytes, &h->remote);
    if (rc == 0 && !h->files)
        h->files = vv_remote_files(h->remote);
    return rc;
}

bool vvi_shared_fits(const struct varve_ctx *ctx, uint64_t size)
{
    const struct varve_opts *o = &ctx->opts;
    return !ctx->remote || !o->local[0] || !o->local_cache ||
           vv_files_bytes(size, 64, o->page_bytes) <= o->local_cache;
}

/* ---- waiting ---- */

static int fail_remote(struct varve_history *h, const char *operation, uint64_t version, int rc)
{
    struct vvi_where here = {operation, version, -1, (int)vv_engine_tiers(h->ctx->engine)};
    unsigned long long v = version;
    const char *path = h->ctx->opts.remote;
    if (rc == -ECANCELED)
        return vvi_fail(h->ctx, &here, rc,
                        "version %llu: a later run of the job has written it in %.100s, or has "
                        "replaced this run: end this process",
                        v, path);
    if (rc == -ERANGE)
        return vvi_fail(h->ctx, &here, rc,
                        "version %llu: the option ranks is %d here and differs on other ranks", v,
                        (int)h->ctx->opts.ranks);
    return vvi_fail(h->ctx, &here, rc, "version %llu could not be brought to %.100s: %s", v, path,
                    vvi_flush_reason(rc));
}

int vvi_shared_wait(struct varve_history *h, uint64_t version, enum varve_level level,
                    uint64_t deadline_ns)
{
    int rc = vv_remote_wait(h->remote, version,
                            level == VARVE_LEVEL_COMPLETE ? VV_REMOTE_COMPLETE : VV_REMOTE_STORED,
                            deadline_ns);
    if (rc == 0 && (int)level == h->ctx->opts.level)
        vv_engine_acknowledge(h->ctx->engine, h->hist, &version);
    if (rc == 0)
        return 0;
    if (rc == -ENOENT)
        return vvi_history_say(h, "wait", version, rc);
    if (rc == -ETIMEDOUT) {
        struct vvi_where here = {"wait", version, -1, -1};
        bool stored = vv_remote_wait(h->remote, version, VV_REMOTE_STORED, vv_now_ns()) == 0;
        return vvi_fail(
            h->ctx, &here, rc, "version %llu is %s after the timeout", (unsigned long long)version,
            stored ? "not complete: a rank has not written its part to the remote folder"
                   : "still on its way to the remote folder");
    }
    return fail_remote(h, "wait", version, rc);
}

int vvi_shared_flush(struct varve_history *h, const char *operation, bool alone,
                     uint64_t deadline_ns)
{
    uint64_t version = 0;
    int rc = vv_remote_wait_all(h->remote, alone, deadline_ns, &version);
    if (rc == 0)
        vv_engine_acknowledge(h->ctx->engine, h->hist, NULL);
    return rc ? fail_remote(h, operation, version, rc) : 0;
}

int vvi_shared_late_error(struct varve_history *h, const char *operation)
{
    uint64_t version = 0;
    int rc = h->remote ? vv_remote_take_error(h->remote, &version) : 0;
    return rc ? fail_remote(h, operation, version, rc) : 0;
}
