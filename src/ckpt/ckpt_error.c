/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Error records. A context keeps the record of the last call on it that failed, under its lock. Calls without a
 * context (options, opening), and closing, after which there is no context, store their record in the calling
 * thread. In addition each thread keeps the text of its own last failure, on any context or none, for
 * varve_error: another thread's failure cannot replace it before it is read.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/pid.h"
#include "ckpt/ckpt_private.h"
#include "ckpt/face.h"

static _Thread_local struct varve_error thread_error;

/* The last failure in this thread. `ctx` is compared and never dereferenced: it may have been closed. */
static _Thread_local struct {
    const struct varve_ctx *ctx; /* NULL: a call without one */
    char text[sizeof(thread_error.text)];
} last;

static int scope_of(int err, int tier)
{
    if (err == -ENODEV)
        return VARVE_SCOPE_DEVICE;
    if ((err == -EIO || err == -EROFS) && tier >= 0)
        return VARVE_SCOPE_TIER;
    return VARVE_SCOPE_OPERATION;
}

static VV_PRINTF(5, 0) int record(struct varve_ctx *ctx, const struct vvi_where *where, int err,
                                  struct vvi_foreign foreign, const char *fmt, va_list ap)
{
    if (!foreign.domain)
        foreign = (struct vvi_foreign){"errno", -err, ""};
    struct varve_error e = {.error_size = sizeof(e),
                            .err = err,
                            .scope = scope_of(err, where->tier),
                            .tier = where->tier,
                            .region = where->region,
                            .code = foreign.code,
                            .version = where->version};
    int n = vsnprintf(e.text, sizeof(e.text), fmt, ap);
    if (foreign.name[0] && n >= 0 && (size_t)n < sizeof(e.text))
        snprintf(e.text + n, sizeof(e.text) - (size_t)n, " (%s)", foreign.name);
    snprintf(e.operation, sizeof(e.operation), "%s", where->operation);
    snprintf(e.domain, sizeof(e.domain), "%s", foreign.domain);
    last.ctx = ctx;
    memcpy(last.text, e.text, sizeof(last.text));
    if (!ctx) {
        thread_error = e;
        return err;
    }
    atomic_fetch_add_explicit(&ctx->failed_calls, 1, memory_order_relaxed);
    vv_mutex_lock(&ctx->lock);
    ctx->error = e;
    vv_mutex_unlock(&ctx->lock);
    return err;
}

int vvi_fail(struct varve_ctx *ctx, const struct vvi_where *where, int err, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    record(ctx, where, err, (struct vvi_foreign){0}, fmt, ap);
    va_end(ap);
    return err;
}

struct vvi_foreign vvi_device_code(struct vv_device *device)
{
    const char *name = "";
    int code = device ? vv_device_last_code(device, &name) : 0;
    return (struct vvi_foreign){code ? device->ops->name : NULL, code, name};
}

int vvi_fail_foreign(struct varve_ctx *ctx, const struct vvi_where *where, int err,
                     struct vvi_foreign foreign, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    record(ctx, where, err, foreign, fmt, ap);
    va_end(ap);
    return err;
}

int vv_ckpt_fail_ctx(struct varve_ctx *ctx, const char *operation, int err, bool device,
                     const char *fmt, ...)
{
    const struct vvi_where where = {operation, 0, -1, -1};
    va_list ap;
    va_start(ap, fmt);
    record(ctx, &where, err, device ? vvi_device_code(ctx->device) : (struct vvi_foreign){0}, fmt,
           ap);
    va_end(ap);
    return err;
}

const char *vvi_tier_name(const struct varve_ctx *ctx, int tier)
{
    if (tier < 0 || (unsigned)tier >= vv_engine_tiers(ctx->engine))
        return "memory of the application";
    switch (vv_engine_tier_kind(ctx->engine, (unsigned)tier)) {
    case VV_TIER_DEVICE:
        return "the device cache";
    case VV_TIER_HOST:
        return "the host cache";
    case VV_TIER_SPILL:
        return "the spill file";
    default:
        return ctx->opts.local[0] ? "the local files" : "the remote files";
    }
}

int varve_last_error(struct varve_ctx *ctx, struct varve_error *ret_error)
{
    if (!ret_error || ret_error->error_size < sizeof(size_t) + sizeof(int))
        return -EINVAL;
    size_t bytes = VV_MIN(ret_error->error_size, sizeof(*ret_error));
    struct varve_error e = thread_error;
    if (ctx) {
        int rc = vvi_ctx_enter(ctx);
        if (rc)
            return rc;
        vv_mutex_lock(&ctx->lock);
        e = ctx->error;
        vv_mutex_unlock(&ctx->lock);
        vvi_ctx_leave(ctx);
    }
    if (e.err == 0)
        return -ENODATA; /* rather than a record with an empty text */
    e.error_size = bytes;
    memcpy(ret_error, &e, bytes);
    return 0;
}

const char *varve_error(struct varve_ctx *ctx)
{
    static _Thread_local char text[sizeof(last.text)];
    /* A forked child must not take the context's lock, which another thread may have held at the fork. */
    bool ours = ctx && ctx->pid == vv_pid();
    if (last.text[0] && (!ours || !last.ctx || last.ctx == ctx))
        return last.text;
    text[0] = 0;
    if (ours) {
        vv_mutex_lock(&ctx->lock);
        memcpy(text, ctx->error.text, sizeof(text));
        vv_mutex_unlock(&ctx->lock);
    }
    return text[0] ? text : vv_strerror(0);
}

int varve_set_error(struct varve_ctx *ctx, const char *operation, int err, const char *text)
{
    int rc = ctx ? vvi_ctx_enter(ctx) : 0;
    if (rc)
        return err;
    vv_ckpt_fail_ctx(ctx, operation ? operation : "", err, false, "%s",
                     text ? text : vv_strerror(err));
    if (ctx)
        vvi_ctx_leave(ctx);
    return err;
}

const char *varve_strerror(int err)
{
    return vv_strerror(err);
}

const char *varve_version(void)
{
    return VV_VERSION;
}
