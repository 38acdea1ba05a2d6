/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts on a GPU, over the stand-in driver: when `device = auto` takes one, the error of opening
 * without one, memory of the application, and the error record of a device that
 * failed.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/ckpt_private.h"
#include "device/cuda/driver.h"
#include "engine/runtime/runtime_private.h"
#include "t.h"
#include "t_cuda.h"
#include "unit/ckpt/ck.h"

#define MIB   ((size_t)1 << 20)
#define BYTES (3 * MIB + 100)

static struct t_fake fake;
static struct vvi_cuda_driver app; /* the application's calls */
static unsigned (*reset_device)(CUdevice device);

static void opts_for(int device, struct varve_opts *ret_opts)
{
    ck_opts(&(struct ck_cfg){.device_cache = 8 * MIB, .host_cache = 16 * MIB}, ret_opts);
    ret_opts->device = device;
}

static int try_open(int device, struct varve_ctx **ret_ctx)
{
    struct varve_opts o;

    opts_for(device, &o);
    return varve_open(&o, ret_ctx);
}

static struct varve_ctx *must_open(int device)
{
    struct varve_ctx *ctx = NULL;

    T_OK(try_open(device, &ctx));
    return ctx;
}

/* The record of a failure; `text` is part of it. */
static struct varve_error error_of(struct varve_ctx *ctx, int err, const char *text)
{
    struct varve_error e = {.error_size = sizeof(e)};

    T_OK(varve_last_error(ctx, &e));
    T_EQ(e.err, err);
    if (!strstr(e.text, text))
        t_fail(__FILE__, __LINE__, "\"%s\" lacks \"%s\"", e.text, text);
    return e;
}

static bool has_device(struct varve_ctx *ctx)
{
    void *p;
    int rc = varve_device_alloc(ctx, 64, &p);

    if (rc == 0)
        T_OK(varve_device_free(ctx, p));
    else
        T_EQ(rc, -ENODEV);
    return rc == 0;
}

/* Before anything else has called the driver. */
static void auto_leaves_cuda_alone(void)
{
    struct varve_ctx *ctx = must_open(VARVE_DEVICE_AUTO);

    T_CHECK(!has_device(ctx));
    T_EQ(fake.calls("cuInit"), 0);
    T_OK(varve_close(ctx));
}

static void opening_says_what_is_missing(void)
{
    struct varve_ctx *ctx = NULL;
    struct varve_opts o;
    struct varve_error e;

    T_EQ(fake.fail("cuInit", 1, 1, VVI_CU_NO_DEVICE), 0);
    T_ERR(try_open(VARVE_DEVICE_CUDA, &ctx), -ENODEV);
    e = error_of(NULL, -ENODEV, "device = cuda: the NVIDIA driver sees no GPU");
    T_STREQ(e.domain, "cuda");
    T_EQ(e.code, VVI_CU_NO_DEVICE);

    opts_for(VARVE_DEVICE_CUDA, &o);
    T_OK(varve_opts_set(&o, "device_id", "5"));
    T_ERR(varve_open(&o, &ctx), -EINVAL);
    error_of(NULL, -EINVAL, "device 5");

    opts_for(VARVE_DEVICE_CUDA, &o);
    o.device_cache = UINT64_C(1) << 36;
    o.page_bytes = 1u << 20;
    T_ERR(varve_open(&o, &ctx), -ENOMEM);
    e = error_of(NULL, -ENOMEM, "device cache: 64.0 GiB wanted");
    T_CHECK(strstr(e.text, "free") && strstr(e.text, "CUDA_ERROR_OUT_OF_MEMORY"));
    T_STREQ(e.domain, "cuda");
    T_EQ(e.code, VVI_CU_OUT_OF_MEMORY);
    T_CHECK(!ctx);
    T_EQ(fake.live("contexts"), 0);
}

/* Checkpoints and restores the application's own device memory. */
static void round_trip(struct varve_ctx *ctx, CUdeviceptr at)
{
    struct varve_history *h = ck_history(ctx, "h");
    char *mem = fake.map((void *)at);

    T_CHECK(mem);
    T_OK(varve_protect(h, 0, (void *)at, BYTES));
    for (uint64_t v = 0; v < 4; v++) {
        ck_fill(mem, BYTES, v, 0);
        T_OK(varve_checkpoint(h, v));
    }
    for (uint64_t v = 0; v < 4; v++) {
        memset(mem, 0, BYTES);
        T_OK(varve_restore(h, v));
        ck_check(mem, BYTES, v, 0);
    }
    T_OK(varve_history_close(h));
}

static void auto_takes_the_gpu_in_use(void)
{
    struct varve_ctx *ctx, *none;
    struct varve_history *h;
    CUdeviceptr at = 0;
    CUcontext cuda;

    T_EQ(app.cuDevicePrimaryCtxRetain(&cuda, 0), 0);
    T_EQ(app.cuCtxPushCurrent(cuda), 0);
    T_EQ(app.cuMemAlloc(&at, BYTES), 0);
    ctx = must_open(VARVE_DEVICE_AUTO);
    T_CHECK(has_device(ctx));
    round_trip(ctx, at);
    T_OK(varve_close(ctx));

    /* The same pointer without a device: an error, not a crash. */
    none = must_open(VARVE_DEVICE_NONE);
    h = ck_history(none, "h");
    T_ERR(varve_protect(h, 3, (void *)at, BYTES), -ENODEV);
    T_EQ(error_of(none, -ENODEV, "device = cuda").region, 3);
    T_OK(varve_close(none));
    none = must_open(VARVE_DEVICE_HOST);
    h = ck_history(none, "h");
    T_ERR(varve_protect(h, 3, (void *)at, BYTES), -ENODEV);
    T_OK(varve_close(none));

    T_EQ(app.cuMemFree(at), 0);
    T_EQ(app.cuCtxPopCurrent(&cuda), 0);
    T_EQ(app.cuDevicePrimaryCtxRelease(0), 0);
    ctx = must_open(VARVE_DEVICE_AUTO);
    T_CHECK(!has_device(ctx));
    T_OK(varve_close(ctx));
    T_EQ(fake.live("contexts") + fake.live("allocations") + fake.live("registrations"), 0);
}

static void memory_of_another_gpu_is_refused(void)
{
    struct varve_ctx *ctx = must_open(VARVE_DEVICE_CUDA);
    struct varve_history *h = ck_history(ctx, "h");
    CUdeviceptr at = 0;
    CUcontext other;

    T_EQ(app.cuDevicePrimaryCtxRetain(&other, 1), 0);
    T_EQ(app.cuCtxPushCurrent(other), 0);
    T_EQ(app.cuMemAlloc(&at, MIB), 0);
    T_ERR(varve_protect(h, 0, (void *)at, MIB), -EXDEV);
    error_of(ctx, -EXDEV, "device_id");
    T_EQ(app.cuMemFree(at), 0);
    T_EQ(app.cuCtxPopCurrent(&other), 0);
    T_EQ(app.cuDevicePrimaryCtxRelease(1), 0);
    T_OK(varve_close(ctx));
}

static void failures_carry_the_code(void)
{
    struct varve_ctx *ctx = must_open(VARVE_DEVICE_CUDA);
    struct varve_error e;
    void *p;

    T_ERR(varve_device_alloc(ctx, UINT64_C(1) << 45, &p), -ENOMEM);
    e = error_of(ctx, -ENOMEM, "CUDA_ERROR_OUT_OF_MEMORY");
    T_STREQ(e.domain, "cuda");
    T_EQ(e.code, VVI_CU_OUT_OF_MEMORY);
    T_OK(varve_device_alloc(ctx, MIB, &p));
    T_ERR(varve_device_copy(ctx, p, "x", SIZE_MAX), -EFAULT);
    e = error_of(ctx, -EFAULT, "copy of");
    T_STREQ(e.domain, "errno");
    T_EQ(e.code, EFAULT);
    T_OK(varve_close(ctx)); /* frees memory that the application did not free */
    T_EQ(fake.live("allocations"), 0);
}

static void a_lost_gpu_is_an_error(void)
{
    struct varve_ctx *ctx = must_open(VARVE_DEVICE_CUDA);
    struct varve_history *h = ck_history(ctx, "h");
    struct varve_error e;
    void *p;

    T_OK(varve_device_alloc(ctx, MIB, &p));
    T_OK(varve_protect(h, 0, p, MIB));
    T_OK(varve_checkpoint(h, 0));
    T_EQ(reset_device(0), 0);
    /* The failed flush of version 0 may be reported first. */
    T_ERR(varve_checkpoint(h, 1), -ENODEV);
    e = error_of(ctx, -ENODEV, "version ");
    T_EQ(e.scope, VARVE_SCOPE_DEVICE);
    T_ERR(varve_restore(h, 0), -ENODEV);
    T_ERR(varve_device_copy(ctx, p, p, 10), -ENODEV);
    e = error_of(ctx, -ENODEV, "CUDA_ERROR_");
    T_STREQ(e.domain, "cuda");
    T_CHECK(e.code != 0);
    T_OK(varve_close(ctx));
    T_EQ(fake.live("contexts"), 0);
}

/* Options of a program of an earlier version end before device_id. */
static void short_options_are_not_overrun(void)
{
    struct {
        struct varve_opts o;
        char behind[64];
    } s;
    size_t shorter = offsetof(struct varve_opts, device_id);

    memset(&s, 0x55, sizeof(s));
    T_OK(varve_opts_init(&s.o, shorter));
    T_OK(varve_opts_set(&s.o, "device_id", "3"));
    T_OK(varve_opts_set(&s.o, "rank", "2"));
    T_EQ(s.o.rank, 2);
    T_EQ(s.o.opts_size, shorter);
    for (const char *p = (char *)&s + shorter; p < (char *)(&s + 1); p++)
        T_EQ(*p, 0x55);
}

static void load(void)
{
    unsigned int code;
    void *handle;
    char err[256];

    /* From now on the name libcuda.so.1 means the stand-in. */
    T_CHECK(t_fake_load(t_fake_path(false), &handle, &fake));
    T_EQ(fake.set("devices", 2), 0);
    T_RUN(auto_leaves_cuda_alone);
    T_RUN(opening_says_what_is_missing);
    T_OK(vvi_cuda_driver_load(NULL, err, sizeof(err), &code, &app));
    *(void **)&reset_device = dlsym(handle, "cuDevicePrimaryCtxReset_v2");
    T_CHECK(reset_device);
}

int main(void)
{
    load();
    T_RUN(auto_takes_the_gpu_in_use);
    T_RUN(memory_of_another_gpu_is_refused);
    T_RUN(failures_carry_the_code);
    T_RUN(a_lost_gpu_is_an_error);
    T_RUN(short_options_are_not_overrun);
    vvi_cuda_driver_unload(&app);
    return t_done();
}
