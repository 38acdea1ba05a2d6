/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traces: a context's description of itself in the trace, and the application's own events.
 *
 * A context with a trace file joins it after all its other parts were made, so that a failed opening leaves no
 * file. It leaves the file after its engine has ended, so that the file has all of its events. The
 * description serves only the reading of traces: if there is no memory for a part of it, that part is left out.
 */
#include <varve/trace.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/thread_group.h"
#include "ckpt/ckpt_private.h"
#include "device/device.h"
#include "trace/write.h"

enum { NAME_BYTES_MAX = 255 };

static const struct vvi_where in_trace = {"trace", 0, -1, -1};

_Static_assert((int)VV_TRACE_HOP_F2R == (int)VV_HOP_COUNT, "they follow the engine's hops");

/* ---- contexts ---- */

static void say(const struct varve_ctx *ctx, const char *key, const char *value)
{
    (void)!vv_trace_meta(ctx->trace_id, key, value);
}

static void say_number(const struct varve_ctx *ctx, const char *key, uint64_t value)
{
    char text[32];
    snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    say(ctx, key, text);
}

static void say_option(void *arg, const char *key, const char *value)
{
    char name[80];
    snprintf(name, sizeof(name), "config.%s", key);
    say(arg, name, value);
}

static void say_device(const struct varve_ctx *ctx)
{
    struct vv_device_info info;
    if (!ctx->device)
        return;
    memset(&info, 0, sizeof(info));
    vv_device_describe(ctx->device, &info);
    say(ctx, "device", info.name);
    size_t left = 0, total = 0;
    if (vv_device_mem_info(ctx->device, &left, &total) == 0)
        say_number(ctx, "device.memory", total);
}

static void say_tiers(const struct varve_ctx *ctx)
{
    struct vv_core_stats stats;
    char key[48];
    vv_engine_get_stats(ctx->engine, &stats);
    for (unsigned t = 0; t < vv_engine_tiers(ctx->engine); t++) {
        enum vv_tier_kind kind = vv_engine_tier_kind(ctx->engine, t);
        uint64_t bytes = stats.tier_pages[t] * ctx->opts.page_bytes;
        snprintf(key, sizeof(key), "tier.%u", t);
        say(ctx, key, vv_tier_kind_name(kind));
        snprintf(key, sizeof(key), "tier.%u.bytes", t);
        say_number(ctx, key, kind == VV_TIER_FILES ? ctx->opts.local_cache : bytes);
    }
    say_number(ctx, "transit.bytes", stats.transit_pages * ctx->opts.page_bytes);
    for (int hop = 0; hop < VV_HOP_COUNT; hop++) {
        snprintf(key, sizeof(key), "hop.%d", hop);
        say(ctx, key, vv_hop_name((enum vv_hop)hop));
    }
    if (ctx->remote) {
        snprintf(key, sizeof(key), "hop.%d", VV_TRACE_HOP_F2R);
        say(ctx, key, "f2r");
        snprintf(key, sizeof(key), "hop.%d", VV_TRACE_HOP_R2F);
        say(ctx, key, "r2f");
    }
}

int vvi_trace_open(struct varve_ctx *ctx, char *err, size_t err_bytes)
{
    char path[VARVE_PATH_BYTES + 64], why[224] = "";
    if (ctx->opts.trace)
        vv_trace_start(0);
    if (!ctx->opts.trace_file[0])
        return 0;
    int rc = vv_trace_path(ctx->opts.trace_file, ctx->opts.rank, path, sizeof(path));
    if (rc == 0)
        rc = vv_trace_write_start(path, why, sizeof(why));
    if (rc) {
        snprintf(err, err_bytes, "trace_file: %s", why[0] ? why : vv_strerror(rc));
        return rc;
    }
    ctx->trace_file = true;
    (void)!vv_trace_meta_machine();
    vvi_opts_each(&ctx->opts, say_option, ctx);
    say_device(ctx);
    say_tiers(ctx);
    return 0;
}

/* The model's expectation, and the actual result. */
static void say_expected(struct varve_ctx *ctx, const struct vv_core_stats *stats)
{
    struct vvi_expected e;
    char value[32];
    vvi_expect(ctx, stats, &e);
    if (e.speedup <= 0)
        return;
    snprintf(value, sizeof(value), "%.2f", e.actual);
    say(ctx, "speed-up", value);
    snprintf(value, sizeof(value), "%.2f", e.speedup);
    say(ctx, "speed-up expected", value);
    snprintf(value, sizeof(value), "%.2f", e.speedup_start);
    say(ctx, "speed-up expected at start", value);
}

static void say_layers(struct varve_ctx *ctx)
{
    static const char *const name[VV_LAYERS] = {"local", "remote"};
    struct vv_layers_stats l;
    char key[48];
    if (!ctx->layers)
        return;
    vv_layers_get_stats(ctx->layers, &l);
    for (int i = 0; i < VV_LAYERS; i++) {
        snprintf(key, sizeof(key), "rate.%s.write", name[i]);
        say_number(ctx, key, (uint64_t)l.write_bytes_per_s[i]);
        snprintf(key, sizeof(key), "rate.%s.read", name[i]);
        say_number(ctx, key, (uint64_t)l.read_bytes_per_s[i]);
        snprintf(key, sizeof(key), "rate.%s.write.start", name[i]);
        say_number(ctx, key, (uint64_t)l.start_write_bytes_per_s[i]);
        snprintf(key, sizeof(key), "rate.%s.read.start", name[i]);
        say_number(ctx, key, (uint64_t)l.start_read_bytes_per_s[i]);
    }
}

void vvi_trace_closing(struct varve_ctx *ctx)
{
    struct vv_core_stats stats;
    char key[48];
    if (!ctx->trace_file)
        return;
    vv_engine_get_stats(ctx->engine, &stats);
    for (int hop = 0; hop < VV_HOP_COUNT; hop++) {
        snprintf(key, sizeof(key), "rate.%s", vv_hop_name((enum vv_hop)hop));
        say_number(ctx, key, stats.rate[hop]);
        snprintf(key, sizeof(key), "rate.%s.start", vv_hop_name((enum vv_hop)hop));
        say_number(ctx, key, stats.start_rate[hop]);
        snprintf(key, sizeof(key), "moved.%s", vv_hop_name((enum vv_hop)hop));
        say_number(ctx, key, stats.moved_bytes[hop]);
    }
    say_layers(ctx);
    say_expected(ctx, &stats);
    say_number(ctx, "restore.hits", stats.hits);
    say_number(ctx, "restore.misses", stats.misses);
    say_number(ctx, "revoked.pages", stats.revoked_pages);
    struct vv_thread_group_stats group;
    vv_thread_group_get_stats(ctx->group, &group);
    struct vvi_cores_report report;
    vvi_cores_describe(ctx, &report);
    say(ctx, "helpers.where", group.where);
    say(ctx, "helpers.how", report.how);
    say_number(ctx, "helpers.cores", group.cores);
    say(ctx, "app.where", report.app);
    say_number(ctx, "app.processors", report.app_cpus);
    say_number(ctx, "helpers.threads", group.threads + group.ended);
    say_number(ctx, "helpers.cpu_ns", group.cpu_ns);
    if (ctx->helper) {
        struct vv_helper_stats h;
        vv_helper_get_stats(ctx->helper, &h);
        say(ctx, "helpers.process.where", h.where);
        say_number(ctx, "helpers.process.pid", (uint64_t)h.pid);
        say_number(ctx, "helpers.process.bytes", h.bytes);
        say_number(ctx, "helpers.process.cpu_ns", h.cpu_ns);
        say_number(ctx, "helpers.process.redone", h.redone);
    }
}

int vvi_trace_close(struct varve_ctx *ctx)
{
    int rc = ctx->trace_file ? vv_trace_write_stop() : 0;
    ctx->trace_file = false;
    return rc;
}

int vvi_trace_fail(const char *file, int rc)
{
    return vvi_fail(NULL, &in_trace, rc, "trace_file: %.150s is not whole: %s; all else succeeded",
                    file, strerror(-rc)); /* the file system's, not a tier's */
}

/* ---- the application ---- */

int varve_trace_on(void)
{
    return vv_trace_enabled();
}

void varve_trace_begin(const char *phase)
{
    if (vv_trace_enabled())
        vv_trace(VV_TRACE_PHASE_BEGIN, vv_trace_name(phase), 0, 0, 0);
}

void varve_trace_end(void)
{
    vv_trace(VV_TRACE_PHASE_END, 0, 0, 0, 0);
}

int varve_trace_note(const char *key, const char *value)
{
    if (!key || !value || !key[0] ||
        strnlen(key, VARVE_TRACE_NOTE_BYTES) + strnlen(value, VARVE_TRACE_NOTE_BYTES) >=
            VARVE_TRACE_NOTE_BYTES)
        return vvi_fail(NULL, &in_trace, -EINVAL, "a note lacks its key or value, or is too long");
    int rc = vv_trace_note(key, value);
    return rc ? vvi_fail(NULL, &in_trace, rc, "note: %s", vv_strerror(rc)) : 0;
}

static bool name_ok(const char *name)
{
    size_t n = name ? strnlen(name, NAME_BYTES_MAX + 1) : 0;
    return n > 0 && n <= NAME_BYTES_MAX;
}

int varve_trace_attach(const char *name, const char *type, const void *bytes, size_t size)
{
    if (!name_ok(name) || !name_ok(type) || (!bytes && size > 0))
        return vvi_fail(
            NULL, &in_trace, -EINVAL,
            "name and type of an attachment must have 1 to %d bytes, and it needs content",
            NAME_BYTES_MAX);
    if (size > VARVE_TRACE_ATTACH_BYTES)
        return vvi_fail(NULL, &in_trace, -EFBIG, "attachment %.80s: %zu bytes, at most %zu", name,
                        size, VARVE_TRACE_ATTACH_BYTES);
    int rc = vv_trace_attach(name, type, bytes, size);
    return rc ? vvi_fail(NULL, &in_trace, rc, "attachment %.80s: %s", name, vv_strerror(rc)) : 0;
}

int varve_trace_flush(void)
{
    int rc = vv_trace_flush();
    return rc ? vvi_fail(NULL, &in_trace, rc, "the trace file could not be written: %s",
                         vv_strerror(rc))
              : 0;
}
