/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queries about one version: its regions, its readiness, the run that wrote it. They do not wait, and except for
 * varve_resume change nothing.
 */
#include <errno.h>

#include "base/clock.h"
#include "ckpt/ckpt_private.h"

/* Begins a query. On success the caller has a reference on ret_info->user and must call ask_end. */
static int ask_begin(struct varve_history *h, const char *operation, uint64_t version,
                     struct vv_object_info *ret_info)
{
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    rc = vvi_damage_check(h, operation, version, 0);
    if (rc == 0) {
        rc = vv_engine_lookup(h->ctx->engine, h->hist, version, ret_info);
        if (rc)
            vvi_history_say(h, operation, version, rc);
    }
    if (rc)
        vvi_history_leave(h);
    return rc;
}

static void ask_end(struct varve_history *h, const struct vv_object_info *info)
{
    vvi_layout_release(NULL, info->user);
    vvi_history_leave(h);
}

int varve_regions(struct varve_history *h, uint64_t version, int *ret_regions, size_t max,
                  size_t *ret_count)
{
    struct vv_object_info info;
    if (!ret_count || (max > 0 && !ret_regions))
        return vvi_fail(NULL, &(struct vvi_where){"regions", version, -1, -1}, -EINVAL,
                        "ret_count or ret_regions is NULL");
    int rc = ask_begin(h, "regions", version, &info);
    if (rc)
        return rc;
    uint32_t n = vvi_layout_count(info.user);
    for (uint32_t i = 0; i < n && i < max; i++)
        ret_regions[i] = vvi_layout_region(info.user, info.size, i).id;
    *ret_count = n;
    ask_end(h, &info);
    return 0;
}

int varve_ready(struct varve_history *h, uint64_t version, int *ret_ready)
{
    struct vv_object_info info;
    if (!ret_ready)
        return vvi_fail(NULL, &(struct vvi_where){"ready", version, -1, -1}, -EINVAL,
                        "ret_ready is NULL");
    int rc = ask_begin(h, "ready", version, &info);
    if (rc)
        return rc;
    *ret_ready = info.ready;
    ask_end(h, &info);
    return 0;
}

int varve_version_run(struct varve_history *h, uint64_t version, uint64_t *ret_run_id)
{
    struct vv_object_info info;
    if (!ret_run_id)
        return vvi_fail(NULL, &(struct vvi_where){"version_run", version, -1, -1}, -EINVAL,
                        "ret_run_id is NULL");
    int rc = ask_begin(h, "version_run", version, &info);
    if (rc)
        return rc;
    /* Find the last run that begins at or before the version's generation. There are few. */
    size_t at = h->nruns - 1;
    while (at > 0 && h->runs[at].generation > info.generation)
        at--;
    *ret_run_id =
        h->files && info.edition > 0 ? vv_files_run_id(h->files, info.edition) : h->runs[at].run_id;
    ask_end(h, &info);
    return 0;
}

int varve_version_level(struct varve_history *h, uint64_t version, enum varve_level *ret_level)
{
    struct vv_object_info info;
    enum varve_level level = VARVE_LEVEL_CACHED;
    if (!ret_level)
        return vvi_fail(NULL, &(struct vvi_where){"version_level", version, -1, -1}, -EINVAL,
                        "ret_level is NULL");
    int rc = ask_begin(h, "version_level", version, &info);
    if (rc)
        return rc;
    if (h->files && info.durable)
        level = VARVE_LEVEL_LOCAL;
    /* The engine is informed of the level first, and then removes older versions at once. Use its answer:
     * a caller that finds older versions removed must see this level. */
    if (h->remote && info.safe)
        level = (enum varve_level)h->ctx->opts.level;
    for (int l = VARVE_LEVEL_REMOTE; h->remote && (int)level == l - 1 && l <= h->ctx->opts.level;
         l++)
        if (vv_remote_wait(h->remote, version,
                           l == VARVE_LEVEL_COMPLETE ? VV_REMOTE_COMPLETE : VV_REMOTE_STORED,
                           vv_now_ns()) == 0)
            level = (enum varve_level)l;
    *ret_level = level;
    ask_end(h, &info);
    return 0;
}

/* True if this run has written the version, and it is in a file or on its way to one. */
static bool written_now(struct varve_history *h, uint64_t version)
{
    struct vv_object_info info;
    if (!h->files || vv_engine_lookup(h->ctx->engine, h->hist, version, &info) != 0)
        return false;
    vvi_layout_release(NULL, info.user);
    return info.edition > 0;
}

bool vvi_replaces(struct varve_history *h, uint64_t version)
{
    return h->overwrite ||
           (atomic_load_explicit(&h->resumed, memory_order_acquire) &&
            version >= atomic_load_explicit(&h->next_version, memory_order_relaxed) &&
            !written_now(h, version));
}

int varve_resume(struct varve_history *h, uint64_t next)
{
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    /* At level cached nothing outlives a context, and complete versions need `overwrite`. */
    rc = vvi_may_write(h, "resume", next);
    if (rc == 0 && h->files && h->ctx->opts.level < VARVE_LEVEL_COMPLETE) {
        atomic_store_explicit(&h->next_version, next, memory_order_relaxed);
        atomic_store_explicit(&h->resumed, true, memory_order_release);
    }
    vvi_history_leave(h);
    return rc;
}
