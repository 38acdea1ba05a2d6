/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts for data that found no room or did not reach the disk: the tier, the setting, the size.
 *
 * They are made after the failure from figures that other threads keep changing. They only describe: no decision
 * depends on them.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "ckpt/ckpt_private.h"

/* The texts have 255 characters: a long path must not push out the advice at the end. */
enum { PATH_SHOWN = 80 };

/* "the host cache", "local disk, FOLDER". Returns buf. */
static char *tier_name(const struct varve_ctx *ctx, int tier, char *buf, size_t size)
{
    if (tier >= 0 && vv_engine_tier_kind(ctx->engine, (unsigned)tier) == VV_TIER_FILES)
        snprintf(buf, size, "%s, %.*s", ctx->opts.local[0] ? "local disk" : "the remote folder",
                 PATH_SHOWN, vvi_files_path(ctx));
    else
        snprintf(buf, size, "%s", vvi_tier_name(ctx, tier));
    return buf;
}

const char *vvi_flush_reason(int err)
{
    switch (err) {
    case -ENOSPC:
        return "no space is left there";
    case -EDQUOT:
        return "the disk quota is used up";
    case -EFBIG:
        return "the file is larger than its file system or a limit (ulimit -f) allows";
    default:
        return vv_strerror(err);
    }
}

/* Writes "device_cache 8M and host_cache 16M", the caches of the context. True if there are two. */
static bool caches(const struct varve_ctx *ctx, char *buf, size_t size)
{
    char host[VV_BYTES_TEXT], device[VV_BYTES_TEXT];
    vv_bytes_format(ctx->opts.host_cache, host, sizeof(host));
    if (!ctx->device || ctx->opts.device_cache == 0) {
        snprintf(buf, size, "host_cache %s", host);
        return false;
    }
    vv_bytes_format(ctx->opts.device_cache, device, sizeof(device));
    snprintf(buf, size, "device_cache %s and host_cache %s", device, host);
    return true;
}

/* Size of all arenas together, or of the largest one. */
static uint64_t arena_bytes(const struct varve_ctx *ctx, const struct vv_core_stats *s,
                            bool together)
{
    uint64_t bytes = 0;
    for (unsigned t = 0; t < vv_engine_tiers(ctx->engine); t++) {
        uint64_t b = s->tier_pages[t] * ctx->opts.page_bytes;
        bytes = together ? bytes + b : VV_MAX(bytes, b);
    }
    return bytes;
}

struct first_failure {
    uint64_t version;
    int err;
};

static void find_failure(void *arg, const struct vv_object_info *info)
{
    struct first_failure *f = arg;
    if (f->err == 0 && !info->durable && info->flush_error) {
        f->version = info->version;
        f->err = info->flush_error;
    }
}

static void no_room(struct varve_history *h, const struct vv_core_stats *s, char *text, size_t size)
{
    const struct varve_ctx *ctx = h->ctx;
    struct first_failure failed = {0};
    char names[80], limit[VV_BYTES_TEXT], used[VV_BYTES_TEXT];
    bool two = caches(ctx, names, sizeof(names));
    vv_bytes_format(ctx->opts.local_cache, limit, sizeof(limit));
    vv_bytes_human(s->files_bytes, used, sizeof(used));
    vv_engine_each(ctx->engine, h->hist, find_failure, &failed);
    if (failed.err && failed.err != -ENOENT) {
        snprintf(text, size,
                 "%s %s full, and what is in there cannot be written to %.*s (version %llu: %s)",
                 names, two ? "are" : "is", PATH_SHOWN, vvi_files_path(ctx),
                 (unsigned long long)failed.version, vvi_flush_reason(failed.err));
    } else if (ctx->folder && ctx->opts.local_cache) {
        snprintf(text, size, "local_cache %s has %s in use; discard versions or raise local_cache",
                 limit, used);
    } else if (ctx->layers) {
        snprintf(text, size,
                 "%s, local_cache and the remote folder are full of versions that nothing else "
                 "holds; raise them or discard versions",
                 names);
    } else if (ctx->spill) {
        snprintf(text, size,
                 "%s and the spill file (local_cache %s) are full of versions that nothing else "
                 "holds; raise them or discard versions",
                 names, ctx->opts.local_cache ? limit : "not set, so all of the disk");
    } else {
        snprintf(text, size,
                 "%s %s full of versions that nothing else holds; %sraise host_cache, or discard "
                 "versions",
                 names, two ? "are" : "is", ctx->folder ? "" : "set `local`, ");
    }
}

static void too_big(const struct varve_ctx *ctx, const struct vv_core_stats *s, char *text,
                    size_t size)
{
    char names[80], all[VV_BYTES_TEXT], limit[VV_BYTES_TEXT];
    /* Only the policy that works page by page spreads one version over several tiers. */
    bool together = ctx->opts.policy == VARVE_POLICY_NEXT;
    bool two = caches(ctx, names, sizeof(names));
    vv_bytes_human(arena_bytes(ctx, s, together), all, sizeof(all));
    vv_bytes_format(ctx->opts.local_cache, limit, sizeof(limit));
    if (ctx->folder && ctx->opts.local_cache)
        snprintf(text, size, "local_cache is %s, and a file needs a little more than its data",
                 limit);
    else if (ctx->folder)
        snprintf(text, size, "%s hold%s %s, and the disk cannot take the rest", names,
                 two ? "" : "s", all);
    else if (ctx->layers)
        snprintf(text, size, "%s and both folders hold %s", names, all);
    else if (ctx->spill)
        snprintf(text, size, "%s and the spill file hold %s%s; raise host_cache or local_cache",
                 names, all, together ? " together" : " at most");
    else
        snprintf(text, size, "%s hold%s %s%s; set `local` or raise host_cache", names,
                 two ? "" : "s", all, two ? (together ? " together" : " at most") : "");
}

int vvi_fail_put(struct varve_history *h, uint64_t version, uint64_t size, int rc)
{
    struct vvi_where here = {"checkpoint", version, -1, -1};
    struct vv_core_stats s;
    char text[224] = "", bytes[VV_BYTES_TEXT];
    vv_engine_get_stats(h->ctx->engine, &s);
    if (rc == -ENOSPC)
        no_room(h, &s, text, sizeof(text));
    else
        too_big(h->ctx, &s, text, sizeof(text));
    return vvi_fail(h->ctx, &here, rc, "version %llu (%s) %s: %s", (unsigned long long)version,
                    vv_bytes_human(size, bytes, sizeof(bytes)),
                    rc == -ENOSPC ? "finds no room" : "can never fit", text);
}

int vvi_fail_flush(struct varve_history *h, const char *operation, uint64_t version, int tier,
                   int rc)
{
    struct vvi_where here = {operation, version, -1, tier};
    char name[PATH_SHOWN + 32];
    int disk = (int)vv_engine_tiers(h->ctx->engine) - 1;
    tier_name(h->ctx, tier >= 0 ? tier : disk, name, sizeof(name));
    return vvi_fail(h->ctx, &here, rc,
                    "version %llu could not be brought to %s: %s. It can be restored until the "
                    "history is closed",
                    (unsigned long long)version, name, vvi_flush_reason(rc));
}

int vvi_fail_flush_all(struct varve_history *h, int rc)
{
    static const struct vvi_where here = {"flush", 0, -1, -1};
    struct first_failure failed = {0};
    vv_engine_each(h->ctx->engine, h->hist, find_failure, &failed);
    if (failed.err && rc != -ETIMEDOUT)
        return vvi_fail_flush(h, "flush", failed.version, -1, rc);
    return vvi_fail(h->ctx, &here, rc, "versions are not flushed yet: %s", vv_strerror(rc));
}
