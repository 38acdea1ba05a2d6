/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPUDirect Storage from the outside: a history on a device and a disk, with a host cache far too
 * small for the data that passes between them, and a stand-in for libcufile. Once the test has loaded it, the
 * library finds it by its name.
 */
#include <varve/ckpt.h>

#include "ckpt/ckpt_hooks.h"
#include "store/aio/gds.h"
#include "t.h"
#include "t_cufile.h"
#include "unit/ckpt/ck.h"

enum { K = 24, PAGE = 4096, MAX_BYTES = 9 * PAGE };

static struct fake_cufile *fake;

static size_t size_of(uint64_t v)
{
    return v % 3 == 0 ? MAX_BYTES : 1 + (v * 7919) % MAX_BYTES;
}

static struct ck_cfg small_caches(int level)
{
    return (struct ck_cfg){.device = true,
                           .device_cache = 24 * PAGE,
                           .host_cache = 4 * PAGE,
                           .local = t_tmpdir(),
                           .level = level};
}

static int open_with_gds(const struct ck_cfg *cfg, struct varve_ctx **ret_ctx)
{
    struct varve_opts o;
    ck_opts(cfg, &o);
    T_OK(varve_opts_set(&o, "gds", "on"));
    T_EQ(o.gds, 1);
    return varve_open(&o, ret_ctx);
}

/* Checksums of data that bypasses the host are computed on the device. */
static bool have_kernels(void)
{
    struct ck_cfg cfg = small_caches(VARVE_LEVEL_LOCAL);
    struct varve_ctx *ctx = ck_open(&cfg);
    struct vv_device_info info;

    vv_device_describe(vv_ckpt_device(ctx), &info);
    T_OK(varve_close(ctx));
    return info.kernels;
}

static void without_the_library(void)
{
    struct ck_cfg cfg = small_caches(VARVE_LEVEL_LOCAL);
    struct varve_ctx *ctx;
    char err[256];
    if (vv_gds_find(NULL, err, sizeof(err)) == 0) {
        t_note("this machine has a libcufile");
        return;
    }
    T_ERR(open_with_gds(&cfg, &ctx), -ENOTSUP);
    ck_error(NULL, -ENOTSUP, have_kernels() ? "libcufile" : "kernels");
    /* Without a device and a disk it is not used. */
    cfg.device = false;
    T_OK(open_with_gds(&cfg, &ctx));
    T_OK(varve_close(ctx));
    cfg.device = true;
    cfg.local = NULL;
    cfg.level = VARVE_LEVEL_CACHED;
    T_OK(open_with_gds(&cfg, &ctx));
    T_OK(varve_close(ctx));
}

static void refused(void)
{
    struct ck_cfg cfg = small_caches(VARVE_LEVEL_LOCAL);
    struct varve_opts o;
    struct varve_ctx *ctx;
    t_cufile_reset();
    ck_opts(&cfg, &o);
    o.gds = 1;
    o.local_io = VARVE_LOCAL_IO_BUFFERED;
    T_ERR(varve_open(&o, &ctx), -ENOTSUP);
    ck_error(NULL, -ENOTSUP, "direct");
    o.local_io = VARVE_LOCAL_IO_AUTO;
    fake->driver_open_code = 5001;
    T_ERR(varve_open(&o, &ctx), -ENOTSUP);
    ck_error(NULL, -ENOTSUP, "5001");
    fake->driver_open_code = 0;
    fake->handle_code = 5008; /* a file system that it does not know */
    T_ERR(varve_open(&o, &ctx), -ENOTSUP);
    ck_error(NULL, -ENOTSUP, "no GPUDirect Storage here");
    fake->handle_code = 0;
    fake->buf_code = 5036;
    T_ERR(varve_open(&o, &ctx), -ENOMEM);
    ck_error(NULL, -ENOMEM, "device memory");
    fake->buf_code = 0;
    t_cufile_check();
}

/* Writes K versions, and restores them in reverse with hints. If a fault was injected on
 * purpose, a restore may fail; it never returns wrong bytes. */
static void shot(int level, unsigned spoil_nth, unsigned fail_nth)
{
    struct ck_cfg cfg = small_caches(level);
    struct varve_ctx *ctx;
    unsigned failed = 0;
    t_cufile_reset();
    T_OK(open_with_gds(&cfg, &ctx));
    struct varve_history *h = ck_history(ctx, "h");
    char *buf = ck_alloc(ctx, true, MAX_BYTES);
    for (uint64_t v = K; v-- > 0;)
        T_OK(varve_hint(h, v));
    for (uint64_t v = 0; v < K; v++) {
        ck_fill(buf, size_of(v), v, 0);
        T_OK(varve_protect(h, 0, buf, size_of(v)));
        T_OK(varve_checkpoint_for(h, v, CK_LIMIT_MS));
    }
    T_OK(varve_flush(h, CK_LIMIT_MS));
    T_CHECK(fake->writes > 0);
    fake->spoil_nth = spoil_nth;
    fake->fail_nth = fail_nth;
    fake->fail_errno = EIO;
    T_OK(varve_prefetch_start(h));
    for (uint64_t v = K; v-- > 0;) {
        ck_set(buf, 0xee, MAX_BYTES);
        T_OK(varve_protect(h, 0, buf, MAX_BYTES));
        int rc = varve_restore_for(h, v, CK_LIMIT_MS);
        if (rc != 0) {
            T_CHECK((spoil_nth && rc == -EBADMSG) || (fail_nth && rc == -EIO));
            failed++;
            T_OK(varve_restore_for(h, v, CK_LIMIT_MS)); /* what is on disk is good */
        }
        ck_check(buf, size_of(v), v, 0);
    }
    T_CHECK(failed <= 1);
    T_CHECK(fake->reads > 0);
    ck_free(ctx, true, buf);
    T_OK(varve_close(ctx));
    t_cufile_check();
}

static void files(void)
{
    shot(VARVE_LEVEL_LOCAL, 0, 0);
}

static void spilled(void)
{
    shot(VARVE_LEVEL_CACHED, 0, 0);
}

static void spoiled_reads(void)
{
    shot(VARVE_LEVEL_LOCAL, 2, 0);
    shot(VARVE_LEVEL_CACHED, 3, 0);
}

static void failed_reads(void)
{
    shot(VARVE_LEVEL_LOCAL, 0, 2);
    shot(VARVE_LEVEL_CACHED, 0, 1);
}

/* One process writes bypassing the host and another reads through it, and the reverse. */
static void either_way_is_the_same(void)
{
    struct ck_cfg cfg = small_caches(VARVE_LEVEL_LOCAL);
    for (int gds = 0; gds < 2; gds++) {
        struct varve_ctx *ctx = NULL;
        t_cufile_reset();
        for (int half = 0; half < 2; half++) {
            bool use = (half == 0) == (gds == 0);
            if (use)
                T_OK(open_with_gds(&cfg, &ctx));
            else
                ctx = ck_open(&cfg);
            struct varve_history *h = ck_history(ctx, gds ? "b" : "a");
            char *buf = ck_alloc(ctx, true, MAX_BYTES);
            for (uint64_t v = 0; v < K && half == 1; v++)
                T_OK(varve_hint(h, v));
            if (half == 1)
                T_OK(varve_prefetch_start(h));
            for (uint64_t v = 0; v < K; v++) {
                if (half == 0)
                    ck_fill(buf, size_of(v), v, 0);
                T_OK(varve_protect(h, 0, buf, size_of(v)));
                T_OK(half == 0 ? varve_checkpoint_for(h, v, CK_LIMIT_MS)
                               : varve_restore_for(h, v, CK_LIMIT_MS));
                ck_check(buf, size_of(v), v, 0);
            }
            ck_free(ctx, true, buf);
            T_OK(varve_close(ctx));
        }
        T_CHECK(gds == 0 ? fake->writes > 0 : fake->reads > 0);
        t_cufile_check();
    }
}

int main(void)
{
    ck_any_device();
    T_RUN(without_the_library);
    if (!have_kernels())
        T_SKIP("no kernels in this build");
    fake = t_cufile_load();
    struct ck_cfg cfg = small_caches(VARVE_LEVEL_LOCAL);
    struct varve_ctx *ctx;
    int rc = open_with_gds(&cfg, &ctx);
    if (rc == -ENOTSUP)
        T_SKIP("no direct I/O on this file system");
    T_OK(rc);
    T_OK(varve_close(ctx));
    T_RUN(refused);
    T_RUN(files);
    T_RUN(spilled);
    T_RUN(spoiled_reads);
    T_RUN(failed_reads);
    T_RUN(either_way_is_the_same);
    return t_done();
}
