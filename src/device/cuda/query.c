/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Questions about CUDA that need no open device.
 *
 * A program that does not use CUDA must not pay for it: loading and initialising the driver takes up to a second and
 * hundreds of megabytes. Every program asks two questions: is CUDA in use, and is a pointer the GPU's? They only use a
 * library that is already loaded, and functions that work without initialisation, or report that it is missing.
 *
 * Any thread.
 */
#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "device/cuda/cuda.h"
#include "device/cuda/cuda_private.h"

/* The functions of a library that this process has loaded already. */
struct loaded {
    void *lib;
    unsigned int (*cuCtxGetCurrent)(CUcontext *ctx);
    unsigned int (*cuDeviceGetCount)(int *count);
    unsigned int (*cuDeviceGet)(CUdevice *device, int ordinal);
    unsigned int (*cuDevicePrimaryCtxGetState)(CUdevice device, unsigned int *flags, int *active);
    unsigned int (*cuPointerGetAttributes)(unsigned int count, unsigned int *attributes,
                                           void **values, CUdeviceptr ptr);
};

static void *find(const struct loaded *l, const char *symbol)
{
    return dlsym(l->lib, symbol);
}

static int take_loads(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    if (bytes > offsetof(struct dl_phdr_info, dlpi_adds))
        *(unsigned long long *)arg = info->dlpi_adds;
    return 1; /* all entries have the same counts */
}

/* Number of libraries that this process has loaded so far; 0: not known. */
static unsigned long long count_loads(void)
{
    unsigned long long loads = 0;

    (void)dl_iterate_phdr(take_loads, &loads);
    return loads;
}

static bool loaded_open(struct loaded *ret_loaded)
{
    /* The dynamic linker searches its folders before it fails, which is too slow for a check in every varve_protect. As
     * long as no library was loaded since, the answer is the same. Synchronization: relaxed; a stale number only causes
     * another search. */
    static _Atomic unsigned long long absent_at;
    unsigned long long loads = count_loads();
    struct loaded l = {0};

    if (loads && atomic_load_explicit(&absent_at, memory_order_relaxed) == loads)
        return false;
    l.lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (!l.lib) {
        atomic_store_explicit(&absent_at, loads, memory_order_relaxed);
        return false;
    }
    *(void **)&l.cuCtxGetCurrent = find(&l, "cuCtxGetCurrent");
    *(void **)&l.cuDeviceGetCount = find(&l, "cuDeviceGetCount");
    *(void **)&l.cuDeviceGet = find(&l, "cuDeviceGet");
    *(void **)&l.cuDevicePrimaryCtxGetState = find(&l, "cuDevicePrimaryCtxGetState");
    *(void **)&l.cuPointerGetAttributes = find(&l, "cuPointerGetAttributes");
    if (!l.cuCtxGetCurrent || !l.cuDeviceGetCount || !l.cuDeviceGet ||
        !l.cuDevicePrimaryCtxGetState || !l.cuPointerGetAttributes) {
        (void)dlclose(l.lib);
        return false;
    }
    *ret_loaded = l;
    return true;
}

static bool in_use(const struct loaded *l)
{
    CUcontext ctx = NULL;
    int count = 0;

    /* Before cuInit this returns an error. */
    if (l->cuCtxGetCurrent(&ctx) != 0)
        return false;
    if (ctx)
        return true;
    if (l->cuDeviceGetCount(&count) != 0)
        return false;
    for (int i = 0; i < count; i++) {
        unsigned int flags;
        CUdevice device;
        int active = 0;

        if (l->cuDeviceGet(&device, i) == 0 &&
            l->cuDevicePrimaryCtxGetState(device, &flags, &active) == 0 && active)
            return true;
    }
    return false;
}

bool vv_device_cuda_in_use(void)
{
    struct loaded l;
    bool yes;

    if (!loaded_open(&l))
        return false;
    yes = in_use(&l);
    (void)dlclose(l.lib);
    return yes;
}

bool vv_device_cuda_owns(const void *ptr)
{
    unsigned int attributes[] = {VVI_CU_POINTER_MEMORY_TYPE, VVI_CU_POINTER_IS_MANAGED};
    unsigned int type = 0, managed = 0;
    void *values[] = {&type, &managed};
    struct loaded l;
    bool yes;

    if (!ptr || !loaded_open(&l))
        return false;
    yes = in_use(&l) &&
          l.cuPointerGetAttributes(VV_ARRAY_SIZE(attributes), attributes, values, (uintptr_t)ptr) ==
              0 &&
          type == VVI_CU_MEMORYTYPE_DEVICE && !managed;
    (void)dlclose(l.lib);
    return yes;
}

static void describe_gpu(const struct vvi_cuda_driver *drv, int index,
                         struct vv_device_cuda_gpu *ret_gpu)
{
    struct vv_device_cuda_gpu gpu = {0};
    size_t bytes = 0;
    CUdevice device;

    if (drv->cuDeviceGet(&device, index) == 0) {
        (void)drv->cuDeviceGetName(gpu.name, (int)sizeof(gpu.name), device);
        (void)drv->cuDeviceGetPCIBusId(gpu.pci_bus_id, (int)sizeof(gpu.pci_bus_id), device);
        (void)drv->cuDeviceTotalMem(&bytes, device);
        (void)drv->cuDeviceGetAttribute(&gpu.capability_major, VVI_CU_DEVICE_CAPABILITY_MAJOR,
                                        device);
        (void)drv->cuDeviceGetAttribute(&gpu.capability_minor, VVI_CU_DEVICE_CAPABILITY_MINOR,
                                        device);
        gpu.memory_bytes = bytes;
    }
    *ret_gpu = gpu;
}

int vv_device_cuda_list(const char *library, char *err, size_t err_bytes,
                        struct vv_device_cuda_gpu *gpus, size_t max,
                        struct vv_device_cuda_report *ret_report)
{
    struct vv_device_cuda_report report = {0};
    struct vvi_cuda_driver drv;
    unsigned int code;
    int rc = vvi_cuda_driver_load(library, err, err_bytes, &code, &drv);

    if (rc) {
        vvi_cuda_open_failed(code);
        return rc;
    }
    report.driver_version = drv.version;
    if (drv.cuDeviceGetCount(&report.count) != 0)
        report.count = 0;
    for (int i = 0; i < report.count && (size_t)i < max; i++)
        describe_gpu(&drv, i, &gpus[i]);
    vvi_cuda_driver_unload(&drv);
    *ret_report = report;
    return 0;
}
