/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Level cached: storage for versions that do not fit memory. With one folder, local or remote, it is a spill file
 * there. With both, it is two layers (store/spill/layers.h), the first with the limit `local_cache`.
 *
 * The layers query the engine for the restore order: from hints, a declared order or the detector. The engine
 * notifies them of every page that it frees, under its own lock; they query it without holding any of theirs.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "ckpt/ckpt_private.h"

/* The engine keeps a table of all pages of the spill. Without a configured limit, a huge disk must not make the
 * table huge: 4 TiB of the usual pages are enough. */
#define SPILL_PAGES_MAX (UINT32_C(1) << 24)

static void next_use(void *arg, struct vv_layers_version *v, size_t n)
{
    const struct varve_ctx *ctx = arg;
    for (size_t i = 0; i < n; i++) {
        struct vv_wanted wanted;
        v[i].gone =
            vv_engine_wanted(ctx->engine, v[i].hist, v[i].version, v[i].generation, &wanted) != 0;
        if (v[i].gone)
            continue;
        v[i].rank = wanted.rank;
        v[i].restoring = wanted.restoring;
        v[i].present = wanted.present;
    }
}

static int folder_make(const char *key, const char *path, char *err, size_t err_bytes)
{
    if (mkdir(path, 0777) == 0 || errno == EEXIST)
        return 0;
    int rc = -errno;
    snprintf(err, err_bytes, "%s = %s: the folder cannot be made: %s%s", key, path, strerror(-rc),
             rc == -ENOENT ? "; those above it have to be there" : "");
    return rc;
}

static int layers_open(struct varve_ctx *ctx, const struct vv_store_opts *fast,
                       const struct vv_store_opts *slow, char *err, size_t err_bytes)
{
    const struct varve_opts *o = &ctx->opts;
    struct vv_layers_opts layers = {
        .pages_max = SPILL_PAGES_MAX, .trace_id = ctx->trace_id, .next_use = next_use, .arg = ctx};
    int rc = vv_budget_new(o->remote, VV_BUDGET_FOLDER, NULL, &ctx->shared);
    if (rc)
        return rc;
    layers.layer[VV_LAYER_FAST].folder = o->local;
    layers.layer[VV_LAYER_FAST].bytes = o->local_cache;
    layers.layer[VV_LAYER_FAST].store = *fast;
    layers.layer[VV_LAYER_FAST].budget = ctx->disk;
    layers.layer[VV_LAYER_FAST].bytes_per_s = o->local_rate;
    layers.layer[VV_LAYER_SLOW].folder = o->remote;
    layers.layer[VV_LAYER_SLOW].store = *slow;
    layers.layer[VV_LAYER_SLOW].budget = ctx->shared;
    layers.layer[VV_LAYER_SLOW].bytes_per_s = o->remote_rate;
    return vv_layers_new(&layers, err, err_bytes, &ctx->layers);
}

int vvi_spill_open(struct varve_ctx *ctx, const struct vv_store_opts *fast, char *err,
                   size_t err_bytes)
{
    const struct varve_opts *o = &ctx->opts;
    struct vv_store_opts slow = *fast;
    uint64_t f2r, r2f;
    vvi_opts_remote_rates(o, &f2r, &r2f);
    slow.mode = VV_STORE_AUTO;
    slow.gds = NULL;
    slow.write_bytes_per_s = f2r;
    slow.read_bytes_per_s = r2f;
    int rc = o->local[0] ? folder_make("local", o->local, err, err_bytes) : 0;
    if (rc == 0 && o->remote[0])
        rc = folder_make("remote", o->remote, err, err_bytes);
    if (rc)
        return rc;
    if (o->local[0] && o->remote[0])
        return layers_open(ctx, fast, &slow, err, err_bytes);
    return o->local[0] ? vv_spill_new(o->local, o->local_cache, fast, err, err_bytes, &ctx->spill)
                       : vv_spill_new(o->remote, 0, &slow, err, err_bytes, &ctx->spill);
}

uint32_t vvi_spill_pages(const struct varve_ctx *ctx)
{
    return ctx->layers ? vv_layers_pages(ctx->layers)
                       : VV_MIN(vv_spill_pages(ctx->spill), SPILL_PAGES_MAX);
}

void vvi_spill_gone(void *arg, uint32_t first, uint32_t n)
{
    vv_layers_gone(arg, first, n);
}

void vvi_spill_stats(struct varve_ctx *ctx, struct varve_stats *stats)
{
    struct vv_layers_stats l;
    vv_layers_get_stats(ctx->layers, &l);
    for (int i = 0; i < VV_LAYERS; i++) {
        stats->layer_used_bytes[i] = l.used_bytes[i];
        stats->layer_peak_bytes[i] = l.peak_bytes[i];
        stats->layer_bytes[i] = l.capacity_bytes[i];
        stats->layer_write_rate[i] = (uint64_t)l.write_bytes_per_s[i];
        stats->layer_read_rate[i] = (uint64_t)l.read_bytes_per_s[i];
        stats->layer_start_write_rate[i] = (uint64_t)l.start_write_bytes_per_s[i];
        stats->layer_start_read_rate[i] = (uint64_t)l.start_read_bytes_per_s[i];
    }
    stats->layer_skips = l.skips;
    stats->layer_skipped = l.skipped;
    stats->moved_down_bytes = l.down_bytes;
    stats->moved_up_bytes = l.up_bytes;
    stats->remote_written_bytes = l.written_bytes[VV_LAYER_SLOW];
    stats->remote_read_bytes = l.read_bytes[VV_LAYER_SLOW];
}
