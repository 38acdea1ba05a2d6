/* SPDX-License-Identifier: Apache-2.0 */
/* Stream-ordered checkpoints and restores: when they exist, their content, how they
 * fail. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "ckpt/ckpt_hooks.h"
#include "device/host/host.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, BYTES = 5 * PAGE + 321 };

/* The device of the context opened last. */
static struct vv_device *device;

static struct vv_device *see_device(void *arg, struct vv_device *inner)
{
    (void)arg;
    device = inner;
    return inner;
}

static struct varve_ctx *open_ctx(const struct ck_cfg *cfg)
{
    static const struct vv_ckpt_hooks hooks = {.device = see_device};

    vv_ckpt_set_hooks(&hooks);
    struct varve_ctx *ctx = ck_open(cfg);
    vv_ckpt_set_hooks(NULL);
    return ctx;
}

static const struct ck_cfg roomy = {
    .device = true, .device_cache = 64 * PAGE, .host_cache = 64 * PAGE};

/* Nothing is copied in the background, so that the next copy is the call's. */
static const struct ck_cfg alone = {.device = true, .device_cache = 64 * PAGE, .host_cache = 0};

static struct CUstream_st *stream_new(void)
{
    void *native = NULL;
    T_OK(vv_device_host_native_new(device, &native));
    return native;
}

struct fill {
    char *buf;
    uint64_t version;
};

static void fill_kernel(void *arg)
{
    const struct fill *f = arg;
    ck_fill(f->buf, BYTES, f->version, 0);
}

struct see {
    char *buf;
    uint64_t version;
    bool same;
};

static void see_kernel(void *arg)
{
    struct see *s = arg;
    s->same = ck_same(s->buf, BYTES, s->version, 0);
}

/* ---- order ---- */

static void checkpoint_takes_its_place(void)
{
    struct varve_ctx *ctx = open_ctx(&roomy);
    struct varve_history *h = ck_history(ctx, "h");
    char *buf = ck_alloc(ctx, true, BYTES);
    struct fill before = {buf, 1}, after = {buf, 99};
    uint64_t latest = 0;
    size_t bytes = 0;

    T_OK(varve_protect(h, 0, buf, BYTES));
    ck_fill(buf, BYTES, 50, 0);
    T_OK(vv_device_host_app_hold(device));
    T_OK(vv_device_host_app_run(device, fill_kernel, &before));
    T_OK(varve_checkpoint_on(h, 1, NULL));
    T_OK(vv_device_host_app_run(device, fill_kernel, &after));

    /* The stream has not reached it. */
    T_CHECK(ck_same(buf, BYTES, 50, 0));
    T_EQ(ck_count(h), 0);
    T_ERR(varve_latest(h, &latest), -ENOENT);
    T_ERR(varve_region_size(h, 1, 0, &bytes), -ENOENT);
    T_ERR(varve_wait(h, 1, VARVE_LEVEL_CACHED, 0), -ETIMEDOUT);
    T_ERR(varve_restore_for(h, 1, 0), -ETIMEDOUT);
    T_ERR(varve_restore_on_for(h, 1, NULL, 0), -EAGAIN);
    T_ERR(varve_checkpoint(h, 1), -EEXIST);

    vv_device_host_app_release(device);
    T_OK(varve_wait(h, 1, VARVE_LEVEL_CACHED, CK_LIMIT_MS));
    T_EQ(ck_count(h), 1);
    T_OK(varve_latest(h, &latest));
    T_EQ(latest, 1);
    T_OK(varve_region_size(h, 1, 0, &bytes));
    T_EQ(bytes, BYTES);
    T_OK(varve_restore(h, 1));
    ck_check(buf, BYTES, 1, 0);
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
}

static void restore_takes_its_place(void)
{
    struct varve_ctx *ctx = open_ctx(&roomy);
    struct varve_history *h = ck_history(ctx, "h");
    char *buf = ck_alloc(ctx, true, BYTES);
    struct fill before = {buf, 98};
    struct see see = {buf, 1, false};

    T_OK(varve_protect(h, 0, buf, BYTES));
    ck_fill(buf, BYTES, 1, 0);
    T_OK(varve_checkpoint(h, 1));
    ck_fill(buf, BYTES, 50, 0);
    T_OK(vv_device_host_app_hold(device));
    T_OK(vv_device_host_app_run(device, fill_kernel, &before));
    T_OK(varve_restore_on(h, 1, NULL));
    T_OK(vv_device_host_app_run(device, see_kernel, &see));
    T_CHECK(ck_same(buf, BYTES, 50, 0));
    vv_device_host_app_release(device);
    ck_stream_sync(device, NULL);
    T_CHECK(see.same);
    ck_check(buf, BYTES, 1, 0);
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
}

/* A restore on another stream, or without one, waits for the version. */
static void restore_waits_for_the_stream(void)
{
    struct varve_ctx *ctx = open_ctx(&roomy);
    struct varve_history *h = ck_history(ctx, "h");
    char *buf = ck_alloc(ctx, true, BYTES);
    struct CUstream_st *writer = stream_new(), *reader = stream_new();

    T_OK(varve_protect(h, 0, buf, BYTES));
    ck_fill(buf, BYTES, 7, 0);
    T_OK(vv_device_host_native_hold(device, writer));
    T_OK(varve_checkpoint_on(h, 7, writer));
    T_ERR(varve_restore_on_for(h, 7, reader, 20), -ETIMEDOUT);
    vv_device_host_app_release(device);
    T_OK(varve_restore_on(h, 7, reader));
    ck_stream_sync(device, reader);
    ck_check(buf, BYTES, 7, 0);
    vv_device_host_native_free(device, writer);
    vv_device_host_native_free(device, reader);
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
}

/* ---- refusals ---- */

static void capture_is_refused(void)
{
    struct varve_ctx *ctx = open_ctx(&roomy);
    struct varve_history *h = ck_history(ctx, "h");
    char *buf = ck_alloc(ctx, true, BYTES);
    struct CUstream_st *s = stream_new();

    T_OK(varve_protect(h, 0, buf, BYTES));
    ck_fill(buf, BYTES, 1, 0);
    T_OK(varve_checkpoint_on(h, 1, s));
    vv_device_host_native_capture(device, s, true);
    T_ERR(varve_checkpoint_on(h, 2, s), -EBUSY);
    ck_error(ctx, -EBUSY, "captured");
    T_ERR(varve_restore_on(h, 1, s), -EBUSY);
    vv_device_host_native_capture(device, s, false);
    T_OK(varve_checkpoint_on(h, 2, s));
    T_OK(varve_restore_on(h, 1, s));
    vv_device_host_native_free(device, s);
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
}

static void would_block(void)
{
    struct ck_cfg cfg = {.device = true, .device_cache = 8 * PAGE, .host_cache = 0};
    struct varve_ctx *ctx = open_ctx(&cfg);
    struct varve_history *h = ck_history(ctx, "h");
    char *buf = ck_alloc(ctx, true, BYTES);
    struct vv_device_host_stats before, after;

    T_OK(varve_protect(h, 0, buf, BYTES));
    ck_fill(buf, BYTES, 1, 0);
    T_OK(vv_device_host_app_hold(device));
    T_OK(varve_checkpoint_on(h, 1, NULL));
    vv_device_host_stats(device, &before);
    T_ERR(varve_checkpoint_on_for(h, 2, NULL, 0), -EAGAIN);
    ck_error(ctx, -EAGAIN, "wait");
    vv_device_host_stats(device, &after);
    T_EQ(after.n_pending, before.n_pending);
    T_EQ(after.calls[VV_DEVICE_OP_COPY_ASYNC], before.calls[VV_DEVICE_OP_COPY_ASYNC]);
    /* Part of it is in the stream, which does not prevent another try. */
    T_ERR(varve_checkpoint_on_for(h, 2, NULL, 20), -ETIMEDOUT);
    vv_device_host_stats(device, &after);
    T_CHECK(after.calls[VV_DEVICE_OP_COPY_ASYNC] > before.calls[VV_DEVICE_OP_COPY_ASYNC]);
    T_ERR(varve_wait(h, 2, VARVE_LEVEL_CACHED, 0), -ENOENT);
    T_ERR(varve_checkpoint_on_for(h, 2, NULL, 0), -EAGAIN);
    T_ERR(varve_checkpoint_on_for(h, 2, NULL, 20), -ETIMEDOUT);
    vv_device_host_app_release(device);
    T_OK(varve_wait(h, 1, VARVE_LEVEL_CACHED, CK_LIMIT_MS));
    T_EQ(ck_count(h), 1);
    /* No room can become free: memory only, and full. */
    T_ERR(varve_checkpoint_on(h, 2, NULL), -ENOSPC);
    T_OK(varve_discard(h, 1));
    T_OK(varve_checkpoint_on_for(h, 2, NULL, 0));
    T_OK(varve_restore(h, 2));
    ck_check(buf, BYTES, 1, 0);
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
}

static void without_a_device(void)
{
    struct ck_cfg cfg = {.host_cache = 64 * PAGE};
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "h");
    char *buf = ck_alloc(ctx, false, BYTES);

    T_OK(varve_protect(h, 0, buf, BYTES));
    ck_fill(buf, BYTES, 1, 0);
    T_ERR(varve_checkpoint_on(h, 1, (struct CUstream_st *)buf), -ENODEV);
    ck_error(ctx, -ENODEV, "no device");
    T_OK(varve_checkpoint_on(h, 1, NULL));
    T_OK(varve_checkpoint_on_for(h, 2, NULL, 0));
    memset(buf, 0, BYTES);
    T_OK(varve_restore_on_for(h, 1, NULL, 0));
    ck_check(buf, BYTES, 1, 0);
    ck_free(ctx, false, buf);
    T_OK(varve_close(ctx));
}

/* The processor copies regions in host memory, after the stream's work. */
static void host_regions_wait(void)
{
    struct varve_ctx *ctx = open_ctx(&roomy);
    struct varve_history *h = ck_history(ctx, "h");
    char *there = ck_alloc(ctx, true, BYTES), *here = ck_alloc(ctx, false, BYTES);

    T_OK(varve_protect(h, 0, there, BYTES));
    T_OK(varve_protect(h, 1, here, BYTES));
    ck_fill(there, BYTES, 1, 0);
    ck_fill(here, BYTES, 1, 1);
    T_OK(vv_device_host_app_hold(device));
    T_ERR(varve_checkpoint_on_for(h, 1, NULL, 0), -EAGAIN);
    T_ERR(varve_checkpoint_on_for(h, 1, NULL, 10), -ETIMEDOUT);
    vv_device_host_app_release(device);
    T_OK(varve_checkpoint_on(h, 1, NULL));
    T_EQ(ck_count(h), 1);
    memset(there, 0, BYTES);
    memset(here, 0, BYTES);
    T_OK(varve_restore_on(h, 1, NULL));
    ck_check(there, BYTES, 1, 0);
    ck_check(here, BYTES, 1, 1);
    ck_free(ctx, true, there);
    ck_free(ctx, false, here);
    T_OK(varve_close(ctx));
}

/* The stream has reached the call, but there is no room, or the bytes are still on disk. */
static void host_regions_would_block(void)
{
    struct ck_cfg cfg = {.device = true, .device_cache = 8 * PAGE, .host_cache = 8 * PAGE};
    enum { LARGE = 600 * PAGE };
    cfg.local = t_tmpdir();
    cfg.rate = "h2f=20M,f2h=20M";
    struct varve_ctx *ctx = open_ctx(&cfg);
    struct varve_history *h = ck_history(ctx, "h");
    char *buf = ck_alloc(ctx, false, LARGE);

    T_OK(varve_protect(h, 0, buf, LARGE));
    ck_fill(buf, LARGE, 1, 0);
    T_ERR(varve_checkpoint_on_for(h, 1, NULL, 0), -EAGAIN);
    T_ERR(varve_checkpoint_on_for(h, 1, NULL, 1), -ETIMEDOUT);
    T_EQ(ck_count(h), 0);
    T_OK(varve_checkpoint_on(h, 1, NULL));
    T_ERR(varve_restore_on_for(h, 1, NULL, 0), -EAGAIN);
    ck_error(ctx, -EAGAIN, "wait");
    memset(buf, 0, LARGE);
    T_OK(varve_restore_on(h, 1, NULL));
    ck_check(buf, LARGE, 1, 0);
    ck_free(ctx, false, buf);
    T_OK(varve_close(ctx));
}

/* ---- failures ---- */

static void late_failure(void)
{
    struct varve_ctx *ctx = open_ctx(&alone);
    struct varve_history *h = ck_history(ctx, "h");
    char *buf = ck_alloc(ctx, true, BYTES);

    T_OK(varve_protect(h, 0, buf, BYTES));
    ck_fill(buf, BYTES, 1, 0);
    T_OK(vv_device_host_app_hold(device));
    T_OK(vv_device_host_fail_async(device, 1, 1, -EIO));
    T_OK(varve_checkpoint_on(h, 1, NULL));
    vv_device_host_app_release(device);
    T_ERR(varve_wait(h, 1, VARVE_LEVEL_CACHED, CK_LIMIT_MS), -EIO);
    ck_error(ctx, -EIO, "stream-ordered checkpoint");
    T_ERR(varve_wait(h, 1, VARVE_LEVEL_CACHED, CK_LIMIT_MS), -ENOENT);
    T_EQ(ck_count(h), 0);

    /* Without a wait, the next call reports it. */
    T_OK(vv_device_host_fail_async(device, 1, 1, -EIO));
    T_OK(varve_checkpoint_on(h, 2, NULL));
    while (varve_wait(h, 2, VARVE_LEVEL_CACHED, 0) == -ETIMEDOUT)
        ;
    T_OK(vv_device_host_fail_async(device, 1, 1, -EIO));
    T_OK(varve_checkpoint_on(h, 3, NULL));
    ck_stream_sync(device, NULL);
    int rc;
    while ((rc = varve_checkpoint_on(h, 4, NULL)) == 0)
        T_OK(varve_discard(h, 4));
    T_EQ(rc, -EIO);
    ck_error(ctx, -EIO, "version 3");
    T_OK(varve_checkpoint_on(h, 3, NULL));
    T_OK(varve_restore(h, 3));

    /* A restore that fails leaves its version. */
    T_OK(vv_device_host_fail_async(device, 1, 1, -EIO));
    T_OK(varve_restore_on(h, 3, NULL));
    while ((rc = varve_prefetch_start(h)) == 0)
        ;
    T_EQ(rc, -EIO);
    ck_error(ctx, -EIO, "restore");
    T_OK(varve_restore(h, 3));
    ck_check(buf, BYTES, 1, 0);
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
}

/* Without other calls, closing reports it. */
static void late_failure_at_close(void)
{
    struct varve_ctx *ctx = open_ctx(&alone);
    struct varve_history *h = ck_history(ctx, "h");
    char *buf = ck_alloc(ctx, true, BYTES);

    T_OK(varve_protect(h, 0, buf, BYTES));
    ck_fill(buf, BYTES, 1, 0);
    T_OK(vv_device_host_fail_async(device, 1, 1, -EIO));
    T_OK(varve_checkpoint_on(h, 1, NULL));
    T_ERR(varve_history_close(h), -EIO);
    ck_error(ctx, -EIO, "version 1");
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
}

/* Each device call of a stream-ordered checkpoint and restore fails once. */
static void every_call_fails_once(void)
{
    static const enum vv_device_op ops[] = {VV_DEVICE_OP_STREAM_ADOPT, VV_DEVICE_OP_COPY_ASYNC,
                                            VV_DEVICE_OP_EVENT_NEW,    VV_DEVICE_OP_EVENT_RECORD,
                                            VV_DEVICE_OP_EVENT_QUERY,  VV_DEVICE_OP_STREAM_NEW};

    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
        for (uint64_t nth = 1; nth <= 3; nth++) {
            struct varve_ctx *ctx = open_ctx(&roomy);
            struct varve_history *h = ck_history(ctx, "h");
            char *buf = ck_alloc(ctx, true, BYTES);

            T_OK(varve_protect(h, 0, buf, BYTES));
            ck_fill(buf, BYTES, 1, 0);
            T_OK(vv_device_host_fail(device, ops[i], nth, 1, -EIO));
            int rc = varve_checkpoint_on(h, 1, NULL);
            if (rc == 0)
                rc = varve_wait(h, 1, VARVE_LEVEL_CACHED, CK_LIMIT_MS);
            T_CHECK(rc == 0 || rc == -EIO);
            vv_device_host_heal(device);
            T_EQ(ck_count(h), rc == 0);
            if (rc) {
                T_OK(varve_checkpoint_on(h, 1, NULL));
                T_OK(varve_wait(h, 1, VARVE_LEVEL_CACHED, CK_LIMIT_MS));
            }
            memset(buf, 0, BYTES);
            rc = varve_restore_on(h, 1, NULL);
            if (rc == -EIO) /* the flush failed, and this call reports it */
                rc = varve_restore_on(h, 1, NULL);
            T_OK(rc);
            ck_stream_sync(device, NULL);
            ck_check(buf, BYTES, 1, 0);
            ck_free(ctx, true, buf);
            T_OK(varve_close(ctx));
        }
}

/* ---- a device call that fails after the copies ---- */

static struct {
    const struct vv_device_ops *real;
    struct vv_device_ops ops;
    atomic_bool armed;                 /* the next event_record fails */
    _Atomic(struct vv_event *) failed; /* the event whose record failed */
    atomic_int waits;                  /* successful waits for that event */
} behind;

static int failing_record(struct vv_device *dev, struct vv_event *event, struct vv_stream *stream)
{
    if (!atomic_exchange(&behind.armed, false))
        return behind.real->event_record(dev, event, stream);
    atomic_store(&behind.failed, event);
    return -EIO;
}

static int counting_wait(struct vv_device *dev, struct vv_event *event, int64_t timeout_ns)
{
    int rc = behind.real->event_wait(dev, event, timeout_ns);
    if (rc == 0 && event == atomic_load(&behind.failed))
        atomic_fetch_add(&behind.waits, 1);
    return rc;
}

static struct vv_device *fail_behind(void *arg, struct vv_device *inner)
{
    (void)arg;
    device = inner;
    behind.real = inner->ops;
    behind.ops = *inner->ops;
    behind.ops.event_record = failing_record;
    behind.ops.event_wait = counting_wait;
    inner->ops = &behind.ops;
    return inner;
}

/* The copies are in the stream, and the event after them cannot be recorded. The call fails only
 * after they have ended: from then on their pages and the application's memory can be reused. */
static void copies_end_before_the_call_fails(void)
{
    static const struct vv_ckpt_hooks hooks = {.device = fail_behind};

    vv_ckpt_set_hooks(&hooks);
    struct varve_ctx *ctx = ck_open(&alone);
    vv_ckpt_set_hooks(NULL);
    struct varve_history *h = ck_history(ctx, "h");
    char *buf = ck_alloc(ctx, true, BYTES);
    T_OK(varve_protect(h, 0, buf, BYTES));
    ck_fill(buf, BYTES, 1, 0);
    T_OK(varve_checkpoint_on(h, 1, NULL));
    T_OK(varve_wait(h, 1, VARVE_LEVEL_CACHED, CK_LIMIT_MS));
    behind.waits = 0;
    behind.armed = true;
    T_ERR(varve_checkpoint_on(h, 2, NULL), -EIO);
    T_CHECK(!behind.armed);
    T_EQ(behind.waits, 1);
    behind.armed = true;
    T_ERR(varve_restore_on(h, 1, NULL), -EIO);
    T_EQ(behind.waits, 2);
    T_OK(varve_restore_on(h, 1, NULL));
    ck_stream_sync(device, NULL);
    ck_check(buf, BYTES, 1, 0);
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
}

static void lost_device(void)
{
    struct varve_ctx *ctx = open_ctx(&roomy);
    struct varve_history *h = ck_history(ctx, "h");
    char *buf = ck_alloc(ctx, true, BYTES);

    T_OK(varve_protect(h, 0, buf, BYTES));
    ck_fill(buf, BYTES, 1, 0);
    T_OK(vv_device_host_app_hold(device));
    T_OK(varve_checkpoint_on(h, 1, NULL));
    vv_device_host_lose(device);
    T_ERR(varve_wait(h, 1, VARVE_LEVEL_CACHED, CK_LIMIT_MS), -ENODEV);
    T_CHECK(varve_checkpoint_on(h, 2, NULL) == -ENODEV);
    T_OK(varve_close(ctx));
}

/* ---- while it is in progress ---- */

/* Queries about a version that a stream will overwrite are answered from the old one; a call that reads it
 * waits for the new one. */
static void asked_while_pending(void)
{
    struct ck_cfg cfg = roomy;
    cfg.local = t_tmpdir();
    cfg.level = VARVE_LEVEL_LOCAL;
    cfg.run = "job";
    struct varve_ctx *ctx = open_ctx(&cfg);
    char *buf = ck_alloc(ctx, true, 2 * BYTES);
    struct varve_history_opts opts;
    struct varve_history *h;
    enum varve_level level = VARVE_LEVEL_CACHED;
    uint64_t run[2] = {0}, latest = 0;
    size_t bytes = 0, n = 0;
    int ready = -1, region = -1;
    void *ptr;

    T_OK(varve_history_opts_init(&opts, sizeof(opts)));
    opts.overwrite = 1;
    T_OK(varve_history_open_with(ctx, "h", &opts, &h));
    T_OK(varve_protect(h, 0, buf, BYTES));
    T_OK(varve_checkpoint(h, 1));
    T_OK(varve_flush(h, CK_LIMIT_MS));
    T_OK(varve_version_run(h, 1, &run[0]));
    T_OK(varve_protect(h, 0, buf, 2 * BYTES));
    ck_fill(buf, 2 * BYTES, 2, 0);
    T_OK(vv_device_host_app_hold(device));
    T_OK(varve_checkpoint_on(h, 1, NULL));

    T_EQ(ck_count(h), 1);
    T_OK(varve_latest(h, &latest));
    T_OK(varve_region_size(h, 1, 0, &bytes));
    T_EQ(bytes, BYTES);
    T_OK(varve_regions(h, 1, &region, 1, &n));
    T_EQ(n, 1);
    T_OK(varve_ready(h, 1, &ready));
    T_OK(varve_version_level(h, 1, &level));
    T_EQ(level, VARVE_LEVEL_LOCAL);
    T_OK(varve_version_run(h, 1, &run[1]));
    T_EQ(run[1], run[0]);
    T_ERR(varve_wait(h, 1, VARVE_LEVEL_LOCAL, 0), -ETIMEDOUT);
    T_ERR(varve_restore_for(h, 1, 0), -ETIMEDOUT);
    T_ERR(varve_restore_on_for(h, 1, NULL, 0), -EAGAIN);
    T_ERR(varve_acquire_for(h, 1, 0, NULL, 0, &ptr, &bytes), -EAGAIN);

    vv_device_host_app_release(device);
    T_OK(varve_restore(h, 1)); /* the stream has read the memory when this call writes it */
    ck_check(buf, 2 * BYTES, 2, 0);
    ck_set(buf, 0, 2 * BYTES);
    T_OK(varve_restore(h, 1));
    ck_check(buf, 2 * BYTES, 2, 0);
    T_OK(varve_region_size(h, 1, 0, &bytes));
    T_EQ(bytes, 2 * BYTES);
    T_OK(varve_version_run(h, 1, &run[1]));
    T_CHECK(run[1] != run[0]);
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
}

static void discard_while_pending(void)
{
    struct varve_ctx *ctx = open_ctx(&roomy);
    struct varve_history *h = ck_history(ctx, "h");
    char *buf = ck_alloc(ctx, true, BYTES);

    T_OK(varve_protect(h, 0, buf, BYTES));
    ck_fill(buf, BYTES, 1, 0);
    T_OK(varve_checkpoint(h, 0));
    T_OK(vv_device_host_app_hold(device));
    T_OK(varve_restore_on(h, 0, NULL));
    T_OK(varve_discard(h, 0));
    T_OK(varve_checkpoint_on(h, 1, NULL));
    T_OK(varve_discard(h, 1));
    T_ERR(varve_discard(h, 1), -ENOENT);
    T_OK(varve_checkpoint_on(h, 1, NULL)); /* again, before the first has ended */
    vv_device_host_app_release(device);
    T_OK(varve_wait(h, 1, VARVE_LEVEL_CACHED, CK_LIMIT_MS));
    T_EQ(ck_count(h), 1);
    memset(buf, 0, BYTES);
    T_OK(varve_restore(h, 1));
    ck_check(buf, BYTES, 1, 0);
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
}

static void close_while_pending(void)
{
    struct ck_cfg cfg = roomy;
    cfg.close_timeout_ms = -2;
    struct varve_ctx *ctx = open_ctx(&cfg);
    struct varve_history *h = ck_history(ctx, "h"), *other = ck_history(ctx, "other");
    char *buf = ck_alloc(ctx, true, BYTES);

    T_OK(varve_protect(h, 0, buf, BYTES));
    T_OK(varve_protect(other, 0, buf, BYTES));
    ck_fill(buf, BYTES, 1, 0);
    T_OK(varve_checkpoint(h, 0));
    T_OK(vv_device_host_app_hold(device));
    T_OK(varve_checkpoint_on(h, 1, NULL));
    T_OK(varve_restore_on(h, 0, NULL));
    T_OK(varve_checkpoint_on(other, 1, NULL));
    T_ERR(varve_history_close(h), -ETIMEDOUT);
    ck_error(ctx, -ETIMEDOUT, "stream");
    /* The number of the history is not reused while it has transfers in progress. */
    h = ck_history(ctx, "h");
    T_OK(varve_protect(h, 0, buf, BYTES));
    T_EQ(ck_count(h), 0);
    T_OK(varve_checkpoint_on(h, 5, NULL));
    vv_device_host_app_release(device);
    T_OK(varve_wait(h, 5, VARVE_LEVEL_CACHED, CK_LIMIT_MS));
    T_OK(varve_wait(other, 1, VARVE_LEVEL_CACHED, CK_LIMIT_MS));
    T_OK(varve_history_close(h));
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
}

static void *release_later(void *arg)
{
    (void)arg;
    vv_device_host_app_release(device);
    return NULL;
}

/* Closing waits for streams, and at level local for the files of their versions. */
static void close_waits(void)
{
    struct ck_cfg cfg = roomy;
    cfg.local = t_tmpdir();
    cfg.level = VARVE_LEVEL_LOCAL;
    struct varve_ctx *ctx = open_ctx(&cfg);
    struct varve_history *h = ck_history(ctx, "h");
    char *buf = ck_alloc(ctx, true, BYTES);
    pthread_t thread;

    T_OK(varve_protect(h, 0, buf, BYTES));
    ck_fill(buf, BYTES, 1, 0);
    T_OK(vv_device_host_app_hold(device));
    T_OK(varve_checkpoint_on(h, 1, NULL));
    T_OK(pthread_create(&thread, NULL, release_later, NULL));
    T_OK(varve_history_close(h));
    T_OK(pthread_join(thread, NULL));
    h = ck_history(ctx, "h");
    T_OK(varve_protect(h, 0, buf, BYTES));
    memset(buf, 0, BYTES);
    T_OK(varve_restore_on(h, 1, NULL));
    T_OK(varve_wait(h, 1, VARVE_LEVEL_LOCAL, CK_LIMIT_MS));
    ck_stream_sync(device, NULL);
    ck_check(buf, BYTES, 1, 0);
    T_OK(vv_device_host_app_hold(device));
    T_OK(varve_checkpoint_on(h, 2, NULL));
    T_ERR(varve_wait(h, 2, VARVE_LEVEL_LOCAL, 10), -ETIMEDOUT);
    T_ERR(varve_flush(h, 10), -ETIMEDOUT);
    vv_device_host_app_release(device);
    T_OK(varve_flush(h, CK_LIMIT_MS));
    T_OK(varve_wait(h, 2, VARVE_LEVEL_LOCAL, 0));
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
}

/* A version that is larger than all memory moves in parts; each part waits for the stream. */
static void larger_than_memory(void)
{
    for (int policy = 0; policy < 2; policy++) {
        struct ck_cfg cfg = {.device = true, .device_cache = 8 * PAGE, .host_cache = 8 * PAGE};
        enum { LARGE = 600 * PAGE };
        cfg.local = t_tmpdir();
        cfg.level = policy ? VARVE_LEVEL_LOCAL : VARVE_LEVEL_CACHED;
        struct varve_ctx *ctx = open_ctx(&cfg);
        struct varve_history *h = ck_history(ctx, "h");
        char *buf = ck_alloc(ctx, true, LARGE);
        struct CUstream_st *s = stream_new();

        T_OK(varve_protect(h, 0, buf, LARGE));
        for (uint64_t v = 0; v < 3; v++) {
            ck_fill(buf, LARGE, v, 0);
            T_OK(varve_checkpoint_on(h, v, s));
            ck_stream_sync(device, s);
        }
        for (uint64_t v = 3; v-- > 0;) {
            memset(buf, 0, LARGE);
            T_OK(varve_restore_on(h, v, s));
            ck_stream_sync(device, s);
            ck_check(buf, LARGE, v, 0);
        }
        T_ERR(varve_restore_on_for(h, 0, s, 0), -EAGAIN);
        vv_device_host_native_free(device, s);
        ck_free(ctx, true, buf);
        T_OK(varve_close(ctx));
    }
}

/* A call that ran out of time half-way has copies in the stream when its history is closed. */
static void close_after_giving_up(void)
{
    struct ck_cfg cfg = {.device = true, .device_cache = 8 * PAGE, .host_cache = 8 * PAGE};
    enum { LARGE = 6000 * PAGE }; /* more than passes through memory at once */
    cfg.local = t_tmpdir();
    cfg.local_cache = 4 * LARGE;
    cfg.close_timeout_ms = -2;
    struct varve_ctx *ctx = open_ctx(&cfg);
    struct varve_history *h = ck_history(ctx, "h");
    char *buf = ck_alloc(ctx, true, LARGE);

    T_OK(varve_protect(h, 0, buf, LARGE));
    ck_fill(buf, LARGE, 1, 0);
    T_OK(varve_checkpoint(h, 1));
    T_OK(vv_device_host_app_hold(device));
    T_ERR(varve_restore_on_for(h, 1, NULL, 20), -ETIMEDOUT);
    T_ERR(varve_checkpoint_on_for(h, 2, NULL, 20), -ETIMEDOUT);
    T_ERR(varve_history_close(h), -ETIMEDOUT);
    h = ck_history(ctx, "h");
    T_EQ(ck_count(h), 0);
    vv_device_host_app_release(device);
    T_OK(varve_protect(h, 0, buf, LARGE));
    T_OK(varve_checkpoint(h, 3));
    memset(buf, 0, LARGE);
    T_OK(varve_restore(h, 3));
    T_OK(varve_history_close(h));
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
}

/* Failures after closing the history are not reported. */
static void failure_after_closing(void)
{
    struct ck_cfg cfg = alone;
    cfg.close_timeout_ms = -2;
    struct varve_ctx *ctx = open_ctx(&cfg);
    struct varve_history *h = ck_history(ctx, "h");
    char *buf = ck_alloc(ctx, true, BYTES);

    T_OK(varve_protect(h, 0, buf, BYTES));
    ck_fill(buf, BYTES, 1, 0);
    T_OK(varve_checkpoint(h, 1));
    T_OK(varve_flush(h, CK_LIMIT_MS));
    T_OK(vv_device_host_app_hold(device));
    T_OK(vv_device_host_fail_async(device, 1, 1, -EIO));
    T_OK(varve_restore_on(h, 1, NULL));
    T_ERR(varve_history_close(h), -ETIMEDOUT);
    vv_device_host_app_release(device);
    ck_stream_sync(device, NULL);
    h = ck_history(ctx, "h");
    T_OK(varve_protect(h, 0, buf, BYTES));
    T_OK(varve_checkpoint(h, 1));
    T_OK(varve_history_close(h));
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
}

/* ---- many ---- */

enum { THREADS = 4, ROUNDS = 40 };

struct worker {
    struct varve_ctx *ctx;
    struct varve_history *h;
    int id;
};

static void *work(void *arg)
{
    const struct worker *w = arg;
    char *buf = ck_alloc(w->ctx, true, BYTES);
    struct CUstream_st *s = stream_new();
    char name[16] = {'w', (char)('0' + w->id)};
    struct varve_history *h = ck_history(w->ctx, name);

    T_OK(varve_protect(h, 0, buf, BYTES));
    for (uint64_t v = 0; v < ROUNDS; v++) {
        ck_stream_sync(device, s);
        ck_fill(buf, BYTES, v, w->id);
        T_OK(varve_checkpoint_on(h, v, s));
        if (v % 3 == 2) {
            T_OK(varve_restore_on(h, v - 1, s));
            ck_stream_sync(device, s);
            ck_check(buf, BYTES, v - 1, w->id);
        }
        if (v % 7 == 6)
            T_OK(varve_discard(h, v - 5));
    }
    for (uint64_t v = ROUNDS; v-- > 0;) {
        if (v % 7 == 1 && v + 5 < ROUNDS)
            continue;
        T_OK(varve_restore_on(h, v, s));
        ck_stream_sync(device, s);
        ck_check(buf, BYTES, v, w->id);
    }
    ck_stream_sync(device, s);
    T_OK(varve_history_close(h));
    vv_device_host_native_free(device, s);
    ck_free(w->ctx, true, buf);
    return NULL;
}

static void threads_and_streams(void)
{
    struct ck_cfg cfg = {.device = true, .device_cache = 40 * PAGE, .host_cache = 40 * PAGE};
    cfg.local = t_tmpdir();
    struct varve_ctx *ctx = open_ctx(&cfg);
    struct worker w[THREADS];
    pthread_t thread[THREADS];

    for (int i = 0; i < THREADS; i++) {
        w[i] = (struct worker){ctx, NULL, i};
        T_OK(pthread_create(&thread[i], NULL, work, &w[i]));
    }
    for (int i = 0; i < THREADS; i++)
        T_OK(pthread_join(thread[i], NULL));
    T_OK(varve_close(ctx));
}

int main(void)
{
    T_RUN(checkpoint_takes_its_place);
    T_RUN(restore_takes_its_place);
    T_RUN(restore_waits_for_the_stream);
    T_RUN(capture_is_refused);
    T_RUN(would_block);
    T_RUN(without_a_device);
    T_RUN(host_regions_wait);
    T_RUN(host_regions_would_block);
    T_RUN(late_failure);
    T_RUN(late_failure_at_close);
    T_RUN(every_call_fails_once);
    T_RUN(copies_end_before_the_call_fails);
    T_RUN(lost_device);
    T_RUN(asked_while_pending);
    T_RUN(discard_while_pending);
    T_RUN(close_while_pending);
    T_RUN(close_waits);
    T_RUN(larger_than_memory);
    T_RUN(close_after_giving_up);
    T_RUN(failure_after_closing);
    T_RUN(threads_and_streams);
    return t_done();
}
