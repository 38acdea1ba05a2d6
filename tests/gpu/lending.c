/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An application that uses the CUDA driver works in the device cache's memory: it reads versions where they are
 * cached, and writes new ones there, on its own streams.
 */
#include <stdlib.h>

#include <varve/ckpt.h>

#include "gpu/gpu.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, BYTES = 61 * PAGE + 9, VERSIONS = 10 };

static const struct ck_cfg cfg = {
    .device = true, .device_cache = 512 * PAGE, .host_cache = 4096 * PAGE};

static void primary_and_stream(void **ret_stream)
{
    void *primary;
    CU(retain(&primary, 0));
    CU(push(primary));
    CU(stream(ret_stream, 1));
}

static void check_bytes(const void *ptr, size_t bytes, char want)
{
    char *back = malloc(bytes);
    T_CHECK(back);
    CU(to_host(back, (uintptr_t)ptr, bytes));
    for (size_t i = 0; i < bytes; i++)
        T_EQ(back[i], want);
    free(back);
}

static uint64_t moved(struct varve_ctx *ctx)
{
    struct varve_stats s = {.stats_size = sizeof(s)};
    T_OK(varve_stats(ctx, &s));
    return s.moved_bytes[0]; /* d2d */
}

/* Written and read in the cache: no byte is copied within the device. A version may be evicted to host memory before
 * it is read, and come back at another place; but not all of them are. */
static void without_a_copy(void)
{
    void *s, *ptr, *seen;
    size_t bytes;
    unsigned in_place = 0;
    primary_and_stream(&s);
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "lent");
    uint64_t before = moved(ctx);
    for (unsigned char v = 0; v < VERSIONS; v++) {
        T_OK(varve_reserve_for(h, v, 0, BYTES, s, CK_LIMIT_MS, &ptr));
        CU(set_async((uintptr_t)ptr, (unsigned char)(v + 1), BYTES, s));
        T_OK(varve_commit_for(h, v, s, CK_LIMIT_MS));
        T_OK(varve_wait(h, v, VARVE_LEVEL_CACHED, CK_LIMIT_MS));
        T_OK(varve_acquire_for(h, v, 0, s, CK_LIMIT_MS, &seen, &bytes));
        in_place += seen == ptr;
        T_EQ(bytes, BYTES);
        CU(sync(s)); /* it may have been brought back on the stream */
        check_bytes(seen, bytes, (char)(v + 1));
        T_OK(varve_release(h, v, 0, s));
    }
    T_CHECK(in_place > 0);
    T_EQ(moved(ctx), before);
    T_OK(varve_close(ctx));
    CU(stream_free(s));
}

/* Regions at odd offsets are gathered on the stream, or assembled there. */
static void with_copies(void)
{
    void *s, *a, *b;
    size_t bytes;
    primary_and_stream(&s);
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "odd");
    for (unsigned char v = 0; v < VERSIONS; v++) {
        T_OK(varve_reserve_for(h, v, 0, 1001, s, CK_LIMIT_MS, &a));
        T_OK(varve_reserve_for(h, v, 1, BYTES, s, CK_LIMIT_MS, &b));
        CU(set_async((uintptr_t)a, (unsigned char)(v + 1), 1001, s));
        CU(set_async((uintptr_t)b, (unsigned char)(v + 101), BYTES, s));
        T_OK(varve_commit_for(h, v, s, CK_LIMIT_MS));
    }
    for (unsigned char v = VERSIONS; v-- > 0;) {
        T_OK(varve_acquire_for(h, v, 0, s, CK_LIMIT_MS, &a, &bytes));
        T_EQ(bytes, 1001);
        T_OK(varve_acquire_for(h, v, 1, s, CK_LIMIT_MS, &b, &bytes));
        T_EQ((uintptr_t)b % 256, 0);
        CU(sync(s));
        check_bytes(a, 1001, (char)(v + 1));
        check_bytes(b, BYTES, (char)(v + 101));
        T_OK(varve_release(h, v, 0, s));
        T_OK(varve_release(h, v, 1, s));
    }
    T_OK(varve_close(ctx));
    CU(stream_free(s));
}

static void not_into_a_capture(void)
{
    void *s, *graph, *ptr;
    size_t bytes;
    primary_and_stream(&s);
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "capture");
    T_OK(varve_reserve_for(h, 0, 0, BYTES, s, CK_LIMIT_MS, &ptr));
    CU(begin_capture(s, 0));
    T_ERR(varve_commit_for(h, 0, s, CK_LIMIT_MS), -EBUSY);
    T_ERR(varve_reserve_for(h, 1, 0, BYTES, s, CK_LIMIT_MS, &ptr), -EBUSY);
    CU(end_capture(s, &graph));
    T_OK(varve_commit_for(h, 0, s, CK_LIMIT_MS));
    T_OK(varve_wait(h, 0, VARVE_LEVEL_CACHED, CK_LIMIT_MS));
    T_OK(varve_acquire_for(h, 0, 0, s, CK_LIMIT_MS, &ptr, &bytes));
    CU(begin_capture(s, 0));
    T_ERR(varve_release(h, 0, 0, s), -EBUSY);
    CU(end_capture(s, &graph));
    T_OK(varve_release(h, 0, 0, s));
    T_OK(varve_close(ctx));
    CU(stream_free(s));
}

/* ---- threads ---- */

static void *user_main(void *arg)
{
    const struct gpu_user *u = arg;
    char name[8] = {(char)('a' + u->id), 0};
    void *s, *ptr;
    size_t bytes;
    int rc;
    CU(push(u->primary));
    CU(stream(&s, (unsigned)u->id % 2));
    struct varve_history *h = ck_history(u->ctx, name);
    for (unsigned char v = 0; v < VERSIONS; v++) {
        while ((rc = varve_reserve_for(h, v, 0, BYTES, s, CK_LIMIT_MS, &ptr)) == -ENOSPC)
            ; /* other threads hold half of the cache */
        T_OK(rc);
        CU(set_async((uintptr_t)ptr, (unsigned char)(v + 16 * u->id), BYTES, s));
        T_OK(varve_commit_for(h, v, s, CK_LIMIT_MS));
    }
    for (unsigned char v = VERSIONS; v-- > 0;) {
        while ((rc = varve_acquire_for(h, v, 0, s, CK_LIMIT_MS, &ptr, &bytes)) == -ENOSPC)
            ;
        T_OK(rc);
        CU(sync(s));
        check_bytes(ptr, bytes, (char)(v + 16 * u->id));
        T_OK(varve_release(h, v, 0, s));
    }
    T_OK(varve_history_close(h));
    CU(stream_free(s));
    return NULL;
}

static void in_many_threads(void)
{
    struct varve_ctx *ctx = ck_open(&cfg);
    gpu_run_users(ctx, user_main);
    T_OK(varve_close(ctx));
}

/* The device is reset while memory is lent: releasing returns an error, and closing ends. */
static void reset_while_lent(void)
{
    void *s, *ptr;
    size_t bytes;
    primary_and_stream(&s);
    struct varve_ctx *ctx = ck_open(&cfg);
    struct varve_history *h = ck_history(ctx, "reset");
    T_OK(varve_reserve_for(h, 0, 0, BYTES, s, CK_LIMIT_MS, &ptr));
    T_OK(varve_commit_for(h, 0, s, CK_LIMIT_MS));
    T_OK(varve_wait(h, 0, VARVE_LEVEL_CACHED, CK_LIMIT_MS));
    T_OK(varve_acquire_for(h, 0, 0, s, CK_LIMIT_MS, &ptr, &bytes));
    T_OK(varve_reserve_for(h, 1, 0, BYTES, s, CK_LIMIT_MS, &ptr));
    CU(reset(0));
    T_ERR(varve_release(h, 0, 0, s), -ENODEV);
    T_ERR(varve_release(h, 0, 0, s), -ENOENT);
    T_OK(varve_abort(h, 1));
    int rc = varve_close(ctx);
    T_CHECK(rc != -EBUSY && rc != -ETIMEDOUT);
}

int main(void)
{
    gpu_need();
    GPU_RUN(without_a_copy);
    GPU_RUN(with_copies);
    GPU_RUN(not_into_a_capture);
    GPU_RUN(in_many_threads);
    GPU_RUN(reset_while_lent);
    return t_done();
}
