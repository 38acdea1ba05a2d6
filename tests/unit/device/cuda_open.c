/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening a CUDA device over the stand-in driver: the choice of device and context, what is left after closing, and the
 * errors if it cannot be opened.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/cuda/cuda.h"
#include "device/cuda/driver.h"
#include "t.h"
#include "t_cuda.h"

static struct t_fake fake;
static struct vvi_cuda_driver app; /* the application's calls */
static const char *path;

static int open_index(int index, char *err, size_t err_bytes, struct vv_device **ret_device)
{
    struct vv_device_cuda_opts opts = {.index = index, .library = path};

    return vv_device_open_cuda(&opts, err, err_bytes, ret_device);
}

static int index_of(struct vv_device *d)
{
    struct vv_device_info info;

    vv_device_describe(d, &info);
    return info.index;
}

static void no_driver_is_told(void)
{
    struct vv_device_cuda_opts opts = {.index = -1, .library = "libcuda-that-is-not-there.so"};
    struct vv_device *d = NULL;
    char err[256] = "";
    const char *name;

    T_ERR(vv_device_open_cuda(&opts, err, sizeof(err), &d), -ENODEV);
    T_CHECK(!d && strstr(err, "no NVIDIA driver") && strstr(err, "that-is-not-there"));
    T_EQ(vv_device_cuda_open_code(&name), 0);
    T_STREQ(name, "");
}

static void a_library_that_is_no_driver_is_told(void)
{
    struct vv_device_cuda_opts opts = {.index = -1, .library = "libm.so.6"};
    struct vv_device *d = NULL;
    char err[256] = "";

    T_ERR(vv_device_open_cuda(&opts, err, sizeof(err), &d), -ENOTSUP);
    T_CHECK(strstr(err, "too old") && strstr(err, "cuInit"));
}

static void no_device_is_told(void)
{
    struct vv_device *d = NULL;
    char err[256] = "";
    const char *name;

    T_EQ(fake.fail("cuInit", 1, 1, VVI_CU_NO_DEVICE), 0);
    T_ERR(open_index(-1, err, sizeof(err), &d), -ENODEV);
    T_CHECK(strstr(err, "sees no GPU"));
    T_EQ(vv_device_cuda_open_code(&name), VVI_CU_NO_DEVICE);
    T_STREQ(name, "CUDA_ERROR_NO_DEVICE");
    T_EQ(fake.fail("cuInit", 1, 1, VVI_CU_SYSTEM_DRIVER_MISMATCH), 0);
    T_ERR(open_index(-1, err, sizeof(err), &d), -ENODEV);
    T_CHECK(strstr(err, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"));
    T_CHECK(!d);
}

static void indexes_are_checked(void)
{
    struct vv_device *d = NULL;
    char err[256] = "";

    T_ERR(open_index(2, err, sizeof(err), &d), -EINVAL);
    T_CHECK(strstr(err, "device 2") && strstr(err, "2 GPUs"));
    T_ERR(open_index(-2, err, sizeof(err), &d), -EINVAL);
    T_OK(open_index(1, err, sizeof(err), &d));
    T_EQ(index_of(d), 1);
    vv_device_close(d);
}

/* Each failure during opening is an error with a text, and leaves nothing behind. */
static void every_failure_is_clean(void)
{
    static const char *const calls[] = {"cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetAttribute",
                                        "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent"};

    for (size_t i = 0; i < VV_ARRAY_SIZE(calls); i++) {
        struct vv_device *d = NULL;
        char err[256] = "";

        T_EQ(fake.fail(calls[i], 1, -1, VVI_CU_DEVICE_UNAVAILABLE), 0);
        T_ERR(open_index(0, err, sizeof(err), &d), -ENODEV);
        T_CHECK(!d && err[0]);
        fake.heal();
        T_EQ(fake.live("contexts"), 0);
    }
    T_EQ(fake.live("streams") + fake.live("events") + fake.live("allocations"), 0);
}

static void the_context_is_the_primary_one(void)
{
    CUcontext primary = NULL, now = NULL;
    struct vv_device *d;
    char err[256];

    T_OK(open_index(-1, err, sizeof(err), &d));
    T_EQ(index_of(d), 0);
    T_EQ(app.cuCtxGetCurrent(&now), 0);
    T_CHECK(!now);
    T_EQ(fake.live("contexts"), 1);
    T_EQ(app.cuDevicePrimaryCtxRetain(&primary, 0), 0);
    vv_device_close(d);
    T_EQ(fake.live("contexts"), 1); /* the application still holds it */
    T_EQ(app.cuDevicePrimaryCtxRelease(0), 0);
    T_EQ(fake.live("contexts"), 0);
}

static void the_device_in_use_is_taken(void)
{
    CUcontext ctx, now;
    struct vv_device *d;
    char err[256];

    /* Active, but not current in any thread. */
    T_EQ(app.cuDevicePrimaryCtxRetain(&ctx, 1), 0);
    T_OK(open_index(-1, err, sizeof(err), &d));
    T_EQ(index_of(d), 1);
    vv_device_close(d);

    /* A context that is current in this thread is preferred to an active one. */
    T_EQ(app.cuCtxPushCurrent(ctx), 0);
    T_EQ(app.cuDevicePrimaryCtxRetain(&now, 0), 0);
    T_OK(open_index(-1, err, sizeof(err), &d));
    T_EQ(index_of(d), 1);
    vv_device_close(d);
    T_EQ(app.cuCtxPopCurrent(&now), 0);
    T_CHECK(now == ctx);
    T_EQ(app.cuDevicePrimaryCtxRelease(0), 0);
    T_EQ(app.cuDevicePrimaryCtxRelease(1), 0);
    T_EQ(fake.live("contexts"), 0);
}

static void gpus_are_listed(void)
{
    struct vv_device_cuda_report report;
    struct vv_device_cuda_gpu gpus[1] = {0};
    char err[256];

    T_OK(vv_device_cuda_list(path, err, sizeof(err), gpus, 1, &report));
    T_EQ(report.count, 2);
    T_EQ(report.driver_version, 13000);
    T_CHECK(gpus[0].name[0] && gpus[0].pci_bus_id[0] && gpus[0].memory_bytes);
    T_EQ(fake.live("contexts"), 0);
    T_ERR(vv_device_cuda_list("no-such-library", err, sizeof(err), gpus, 1, &report), -ENODEV);
}

/* Old drivers, without batched copies and identities of contexts, work. */
static void old_drivers_do(void)
{
    struct vv_device_cuda_opts opts = {.index = -1, .library = t_fake_path(true)};
    struct vv_device *d;
    char err[256];
    void *p;

    T_OK(vv_device_open_cuda(&opts, err, sizeof(err), &d));
    T_OK(vv_device_mem_alloc(d, 4096, &p));
    vv_device_close(d);
}

static void results_have_names(void)
{
    bool lost;

    T_EQ(vvi_cuda_errno(VVI_CU_SUCCESS, &lost), 0);
    T_CHECK(!lost);
    T_EQ(vvi_cuda_errno(VVI_CU_OUT_OF_MEMORY, &lost), -ENOMEM);
    T_CHECK(!lost);
    T_EQ(vvi_cuda_errno(VVI_CU_ECC_UNCORRECTABLE, &lost), -ENODEV);
    T_CHECK(lost);
    T_EQ(vvi_cuda_errno(12345, &lost), -EIO);
    T_CHECK(!lost && vvi_cuda_error_name(12345)[0]);
    T_STREQ(vvi_cuda_error_name(VVI_CU_ILLEGAL_ADDRESS), "CUDA_ERROR_ILLEGAL_ADDRESS");
    T_STREQ(vvi_cuda_error_name(VVI_CU_SUCCESS), "");
}

int main(void)
{
    unsigned int code;
    void *handle;
    char err[256];

    path = t_fake_path(false);
    T_CHECK(t_fake_load(path, &handle, &fake));
    T_EQ(fake.set("devices", 2), 0);
    T_RUN(no_driver_is_told);
    T_RUN(a_library_that_is_no_driver_is_told);
    T_RUN(no_device_is_told);
    T_OK(vvi_cuda_driver_load(path, err, sizeof(err), &code, &app));
    T_RUN(indexes_are_checked);
    T_RUN(every_failure_is_clean);
    T_RUN(the_context_is_the_primary_one);
    T_RUN(the_device_in_use_is_taken);
    T_RUN(gpus_are_listed);
    T_RUN(old_drivers_do);
    T_RUN(results_have_names);
    vvi_cuda_driver_unload(&app);
    return t_done();
}
