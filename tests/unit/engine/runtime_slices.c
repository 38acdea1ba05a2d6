/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host memory registered in several slices: versions cross their borders, which only the device
 * sees. And the application's default stream: a checkpoint contains the results of work launched
 * before it.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "ckpt/ckpt_hooks.h"
#include "device/host/host.h"
#include "engine/runtime/runtime_private.h"
#include "t.h"
#include "unit/ckpt/ck.h"

static void test_borders(void)
{
    enum { K = 5 };
    size_t bytes = (size_t)20 << 20;
    struct ck_cfg cfg = {.device = true,
                         .host_cache = (uint64_t)3 * VVI_SLICE_BYTES + (8 << 20),
                         .page_bytes = 256 << 10};
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "borders");
    char *buf = ck_alloc(ctx, true, bytes);
    T_OK(varve_protect(h, 0, buf, bytes));
    for (uint64_t v = 0; v < K; v++) {
        ck_fill(buf, bytes, v, 0);
        T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
    }
    for (uint64_t v = 0; v < K; v++) {
        T_OK(varve_restore_for(h, v, CK_LIMIT_MS));
        ck_check(buf, bytes, v, 0);
    }
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
}

static struct vv_device *caught;

static struct vv_device *catch_device(void *arg, struct vv_device *inner)
{
    (void)arg;
    caught = inner;
    return inner;
}

struct kernel {
    char *buf;
    size_t bytes;
};

static void kernel_main(void *arg)
{
    struct kernel *k = arg;
    vv_sleep_until_ns(vv_now_ns() + 20 * VV_NS_PER_MS);
    ck_fill(k->buf, k->bytes, 42, 0);
}

static void test_behind_the_application(void)
{
    struct vv_ckpt_hooks hooks = {.device = catch_device};
    struct ck_cfg cfg = {.device = true, .device_cache = 1 << 20, .host_cache = 1 << 20};
    vv_ckpt_set_hooks(&hooks);
    struct varve_ctx *ctx = ck_open(&cfg);
    vv_ckpt_set_hooks(NULL);
    struct varve_history *h = ck_history(ctx, "order");
    struct kernel k = {ck_alloc(ctx, true, 100000), 100000};
    T_OK(varve_protect(h, 0, k.buf, k.bytes));
    T_OK(vv_device_host_app_run(caught, kernel_main, &k));
    T_OK(varve_checkpoint_for(h, 0, CK_LIMIT_MS));
    memset(k.buf, 0, k.bytes);
    T_OK(varve_restore_for(h, 0, CK_LIMIT_MS));
    ck_check(k.buf, k.bytes, 42, 0);
    ck_free(ctx, true, k.buf);
    T_OK(varve_close(ctx));
}

/* The device is lost half-way: errors, no crash, and versions on disk can be restored to host
 * memory. */
static void test_device_lost(void)
{
    struct vv_ckpt_hooks hooks = {.device = catch_device};
    struct ck_cfg cfg = {.device = true,
                         .device_cache = 64 << 10,
                         .host_cache = 64 << 10,
                         .local = t_tmpdir(),
                         .level = VARVE_LEVEL_LOCAL,
                         .close_timeout_ms = 5000};
    vv_ckpt_set_hooks(&hooks);
    struct varve_ctx *ctx = ck_open(&cfg);
    vv_ckpt_set_hooks(NULL);
    struct varve_history *h = ck_history(ctx, "lost");
    size_t bytes = 50000;
    char *dev = ck_alloc(ctx, true, bytes), *host = malloc(bytes);
    T_OK(varve_protect(h, 0, dev, bytes));
    for (uint64_t v = 0; v < 4; v++) {
        ck_fill(dev, bytes, v, 0);
        T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
    }
    T_OK(varve_flush(h, CK_LIMIT_MS));
    vv_device_host_lose(caught);
    int rc = varve_checkpoint_for(h, 4, CK_LIMIT_MS);
    T_EQ(rc, -ENODEV);
    struct varve_error e = {.error_size = sizeof(e)};
    T_OK(varve_last_error(ctx, &e));
    T_EQ(e.scope, VARVE_SCOPE_DEVICE);
    T_ERR(varve_protect(h, 1, host, bytes), -ENODEV);
    T_OK(varve_close(ctx));

    cfg.device = false;
    ctx = ck_open(&cfg);
    h = ck_history(ctx, "lost");
    T_OK(varve_protect(h, 0, host, bytes));
    for (uint64_t v = 0; v < 4; v++) {
        T_OK(varve_restore_for(h, v, CK_LIMIT_MS));
        ck_check(host, bytes, v, 0);
    }
    T_OK(varve_close(ctx));
    free(host);
}

int main(void)
{
    T_RUN(test_borders);
    T_RUN(test_behind_the_application);
    T_RUN(test_device_lost);
    return t_done();
}
