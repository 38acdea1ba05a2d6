/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices and contexts of the stand-in, and the lookup of entry points.
 *
 * A context's structure is never freed: a handle that outlives its context is answered with
 * CONTEXT_IS_DESTROYED, as the driver does after cuDevicePrimaryCtxReset. A primary context that is
 * retained again after that starts a new life under the same handle; streams, events and memory of
 * its former lives stay void.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "private.h"

enum { STACK = 32, HANDLE_BYTES = 16 };

struct fake_ctx *fake_contexts;

static _Thread_local struct {
    struct fake_ctx *at[STACK];
    int n;
} stack;

static bool have_device(int dev)
{
    return dev >= 0 && dev < fake_set.devices && dev < FAKE_MAX_DEVICES;
}

static struct fake_ctx *ctx_new(int dev, bool primary)
{
    struct fake_ctx *c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->dev = dev;
    c->primary = primary;
    c->next = fake_contexts;
    fake_contexts = c;
    return c;
}

static struct fake_ctx *ctx_find(const void *handle)
{
    struct fake_ctx *c = fake_contexts;
    while (c && (const void *)c != handle)
        c = c->next;
    return c;
}

struct fake_ctx *fake_primary(int dev)
{
    if (!have_device(dev))
        return NULL;
    for (struct fake_ctx *c = fake_contexts; c; c = c->next) {
        if (c->primary && c->dev == dev)
            return c;
    }
    return ctx_new(dev, true);
}

/* Begins a life, with its default streams. */
static int ctx_start(struct fake_ctx *c)
{
    static unsigned long long last_id;
    c->alive = true;
    c->error = 0;
    c->id = ++last_id;
    c->legacy = fake_stream_make(c, false);
    c->per_thread = fake_stream_make(c, false);
    if (c->legacy && c->per_thread)
        return 0;
    fake_ctx_destroy(c);
    return FAKE_OUT_OF_MEMORY;
}

void fake_ctx_destroy(struct fake_ctx *c)
{
    /* Change all of this before the lock is dropped: a retain meanwhile begins the next life. */
    unsigned life = c->life++;
    c->alive = false;
    c->legacy = c->per_thread = NULL;
    c->users = 0;
    fake_streams_drop(c, life);
    fake_modules_drop(c, life);
    fake_mem_drop(c, life);
}

struct fake_ctx *fake_current(void)
{
    return stack.n ? stack.at[stack.n - 1] : NULL;
}

int fake_ctx_usable(const struct fake_ctx *c)
{
    if (!c)
        return FAKE_INVALID_CONTEXT;
    return c->alive ? c->error : FAKE_CONTEXT_IS_DESTROYED;
}

/* ---- the driver ---- */

API int cuInit(unsigned flags)
{
    ENTER(cuInit, FAKE_NEED_NOTHING);
    if (flags)
        LEAVE(FAKE_INVALID_VALUE);
    if (fake_set.devices <= 0)
        LEAVE(FAKE_NO_DEVICE);
    fake_start();
    LEAVE(0);
}

API int cuDriverGetVersion(int *ret_version)
{
    ENTER(cuDriverGetVersion, FAKE_NEED_NOTHING);
    *ret_version = (int)fake_set.version;
    LEAVE(0);
}

static const struct {
    int code;
    const char *name, *text;
} errors[] = {
    {FAKE_OK, "CUDA_SUCCESS", "no error"},
    {FAKE_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {FAKE_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {FAKE_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {FAKE_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {FAKE_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no device"},
    {FAKE_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {FAKE_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {FAKE_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no image for the device"},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable memory error"},
    {FAKE_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {FAKE_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {FAKE_NOT_READY, "CUDA_ERROR_NOT_READY", "not ready"},
    {FAKE_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "illegal memory access"},
    {FAKE_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {FAKE_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "registered already"},
    {FAKE_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "not registered"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {FAKE_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "not supported"},
    {FAKE_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "not while capturing"},
    {FAKE_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "capture invalidated"},
    {FAKE_CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "not capturing"},
    {FAKE_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "would depend on a capture"},
    {FAKE_CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT", "event last recorded in a capture"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

API int cuGetErrorName(int code, const char **ret_name)
{
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (errors[i].code == code) {
            *ret_name = errors[i].name;
            return 0;
        }
    }
    *ret_name = NULL;
    return FAKE_INVALID_VALUE;
}

API int cuGetErrorString(int code, const char **ret_text)
{
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (errors[i].code == code) {
            *ret_text = errors[i].text;
            return 0;
        }
    }
    *ret_text = NULL;
    return FAKE_INVALID_VALUE;
}

#ifndef FAKE_CUDA_OLD
/* Entry points whose name has stood for several functions, and those that older drivers lack. All others
 * have always been exported under their own name. */
static const struct {
    const char *name;
    int since;
    const char *symbol;
} versions[] = {
    {"cuGetProcAddress", 11030, "cuGetProcAddress"},
    {"cuGetProcAddress", 12000, "cuGetProcAddress_v2"},
    {"cuDeviceTotalMem", 3020, "cuDeviceTotalMem_v2"},
    {"cuDeviceGetUuid", 9020, "cuDeviceGetUuid"},
    {"cuDeviceGetUuid", 11040, "cuDeviceGetUuid_v2"},
    {"cuDevicePrimaryCtxRelease", 7000, "cuDevicePrimaryCtxRelease"},
    {"cuDevicePrimaryCtxRelease", 11000, "cuDevicePrimaryCtxRelease_v2"},
    {"cuDevicePrimaryCtxReset", 7000, "cuDevicePrimaryCtxReset"},
    {"cuDevicePrimaryCtxReset", 11000, "cuDevicePrimaryCtxReset_v2"},
    {"cuCtxCreate", 3020, "cuCtxCreate_v2"},
    {"cuCtxCreate", 13000, "cuCtxCreate_v4"},
    {"cuCtxDestroy", 4000, "cuCtxDestroy_v2"},
    {"cuCtxPushCurrent", 4000, "cuCtxPushCurrent_v2"},
    {"cuCtxPopCurrent", 4000, "cuCtxPopCurrent_v2"},
    {"cuMemGetInfo", 3020, "cuMemGetInfo_v2"},
    {"cuMemAlloc", 3020, "cuMemAlloc_v2"},
    {"cuMemFree", 3020, "cuMemFree_v2"},
    {"cuMemGetAddressRange", 3020, "cuMemGetAddressRange_v2"},
    {"cuMemAllocHost", 3020, "cuMemAllocHost_v2"},
    {"cuMemHostRegister", 6050, "cuMemHostRegister_v2"},
    {"cuMemHostGetDevicePointer", 3020, "cuMemHostGetDevicePointer_v2"},
    {"cuMemPrefetchAsync", 8000, "cuMemPrefetchAsync"},
    {"cuMemPrefetchAsync", 12020, "cuMemPrefetchAsync_v2"},
    {"cuMemAdvise", 8000, "cuMemAdvise"},
    {"cuMemAdvise", 12020, "cuMemAdvise_v2"},
    {"cuMemcpyBatchAsync", 12080, "cuMemcpyBatchAsync"},
    {"cuMemcpyBatchAsync", 13000, "cuMemcpyBatchAsync_v2"},
    {"cuMemcpyHtoD", 3020, "cuMemcpyHtoD_v2"},
    {"cuMemcpyDtoH", 3020, "cuMemcpyDtoH_v2"},
    {"cuMemcpyDtoD", 3020, "cuMemcpyDtoD_v2"},
    {"cuMemcpyHtoDAsync", 3020, "cuMemcpyHtoDAsync_v2"},
    {"cuMemcpyDtoHAsync", 3020, "cuMemcpyDtoHAsync_v2"},
    {"cuMemcpyDtoDAsync", 3020, "cuMemcpyDtoDAsync_v2"},
    {"cuMemsetD8", 3020, "cuMemsetD8_v2"},
    {"cuMemsetD32", 3020, "cuMemsetD32_v2"},
    {"cuStreamDestroy", 4000, "cuStreamDestroy_v2"},
    {"cuStreamBeginCapture", 10000, "cuStreamBeginCapture"},
    {"cuStreamBeginCapture", 10010, "cuStreamBeginCapture_v2"},
    {"cuStreamGetCaptureInfo", 10010, "cuStreamGetCaptureInfo"},
    {"cuStreamGetCaptureInfo", 11030, "cuStreamGetCaptureInfo_v2"},
    {"cuStreamGetCaptureInfo", 12030, "cuStreamGetCaptureInfo_v3"},
    {"cuEventDestroy", 4000, "cuEventDestroy_v2"},
    {"cuEventElapsedTime", 2000, "cuEventElapsedTime"},
    {"cuEventElapsedTime", 12080, "cuEventElapsedTime_v2"},
    {"cuEventRecordWithFlags", 11010, "cuEventRecordWithFlags"},
    {"cuThreadExchangeStreamCaptureMode", 10010, "cuThreadExchangeStreamCaptureMode"},
    {"cuCtxGetId", 12000, "cuCtxGetId"},
    {"cuStreamGetId", 12000, "cuStreamGetId"},
};

static void *own_symbol(const char *symbol)
{
    Dl_info info;
    if (!dladdr((void *)(uintptr_t)own_symbol, &info))
        return NULL;
    void *self = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    void *fn = self ? dlsym(self, symbol) : NULL;
    if (self)
        dlclose(self);
    return fn;
}

/* `ret_status`: 0 found, 1 not found, 2 only in a newer version than requested. */
static int proc_address(const char *name, int version, void **ret_fn, int *ret_status)
{
    const char *symbol = NULL;
    bool listed = false;
    for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
        if (strcmp(versions[i].name, name) != 0)
            continue;
        listed = true;
        if (versions[i].since <= version && versions[i].since <= fake_set.version)
            symbol = versions[i].symbol;
    }
    if (!listed)
        symbol = name;
    *ret_fn =
        !symbol || strncmp(name, "cu", 2) != 0 || fake_hidden(name) ? NULL : own_symbol(symbol);
    *ret_status = *ret_fn ? 0 : listed ? 2 : 1;
    return *ret_fn ? 0 : FAKE_NOT_FOUND;
}

API int cuGetProcAddress(const char *name, void **ret_fn, int version, uint64_t flags)
{
    int status;
    ENTER(cuGetProcAddress, FAKE_NEED_NOTHING);
    (void)flags;
    LEAVE(proc_address(name, version, ret_fn, &status));
}

API int cuGetProcAddress_v2(const char *name, void **ret_fn, int version, uint64_t flags,
                            int *ret_status)
{
    int status;
    ENTER(cuGetProcAddress, FAKE_NEED_NOTHING);
    (void)flags;
    int rc = proc_address(name, version, ret_fn, &status);
    if (ret_status)
        *ret_status = status;
    LEAVE(rc);
}
#endif

/* ---- devices ---- */

API int cuDeviceGetCount(int *ret_n)
{
    ENTER(cuDeviceGetCount, FAKE_NEED_INIT);
    *ret_n = (int)fake_set.devices;
    LEAVE(0);
}

API int cuDeviceGet(int *ret_dev, int index)
{
    ENTER(cuDeviceGet, FAKE_NEED_INIT);
    if (!have_device(index))
        LEAVE(FAKE_INVALID_DEVICE);
    *ret_dev = index;
    LEAVE(0);
}

API int cuDeviceGetName(char *name, int bytes, int dev)
{
    ENTER(cuDeviceGetName, FAKE_NEED_INIT);
    if (!have_device(dev))
        LEAVE(FAKE_INVALID_DEVICE);
    if (!name || bytes <= 0)
        LEAVE(FAKE_INVALID_VALUE);
    snprintf(name, (size_t)bytes, "stand-in %d", dev);
    LEAVE(0);
}

API int cuDeviceGetPCIBusId(char *name, int bytes, int dev)
{
    ENTER(cuDeviceGetPCIBusId, FAKE_NEED_INIT);
    if (!have_device(dev))
        LEAVE(FAKE_INVALID_DEVICE);
    if (!name || bytes < 13)
        LEAVE(FAKE_INVALID_VALUE);
    snprintf(name, (size_t)bytes, "0000:%02X:00.0", 16 + dev);
    LEAVE(0);
}

static int uuid(unsigned char *ret_uuid, int dev)
{
    if (!have_device(dev))
        return FAKE_INVALID_DEVICE;
    memset(ret_uuid, 0xfa, HANDLE_BYTES);
    ret_uuid[0] = (unsigned char)dev;
    return 0;
}

API int cuDeviceGetUuid(unsigned char *ret_uuid, int dev)
{
    ENTER(cuDeviceGetUuid, FAKE_NEED_INIT);
    LEAVE(uuid(ret_uuid, dev));
}

API int cuDeviceGetUuid_v2(unsigned char *ret_uuid, int dev)
{
    ENTER(cuDeviceGetUuid, FAKE_NEED_INIT);
    LEAVE(uuid(ret_uuid, dev));
}

API int cuDeviceTotalMem_v2(size_t *ret_bytes, int dev)
{
    ENTER(cuDeviceTotalMem, FAKE_NEED_INIT);
    if (!have_device(dev))
        LEAVE(FAKE_INVALID_DEVICE);
    *ret_bytes = (size_t)fake_set.memory;
    LEAVE(0);
}

API int cuDeviceGetAttribute(int *ret_value, int attribute, int dev)
{
    static const struct {
        int attribute, value;
    } known[] = {
        {1, 1024}, /* threads per block */
        {10, 32},  /* warp size */
        {16, 4},   /* multiprocessors */
        {19, 1},   /* can map host memory */
        {31, 1},   /* concurrent kernels */
        {34, 0},   /* PCI device */
        {40, 3},   /* copy engines */
        {41, 1},   /* unified addressing */
        {50, 0},   /* PCI domain */
        {75, 9},   /* compute capability */
        {76, 0},   /* its minor number */
        {83, 1},   /* managed memory */
        {88, 0},   /* pageable memory access */
        {89, 1},   /* concurrent managed access */
        {91, 1},   /* registered memory at its own address */
        {134, -1}, /* NUMA node of the host */
    };
    ENTER(cuDeviceGetAttribute, FAKE_NEED_INIT);
    if (!have_device(dev))
        LEAVE(FAKE_INVALID_DEVICE);
    *ret_value = attribute == 33 ? 16 + dev : 0; /* 33: PCI bus */
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (known[i].attribute == attribute)
            *ret_value = known[i].value;
    }
    LEAVE(0);
}

/* ---- contexts ---- */

API int cuDevicePrimaryCtxRetain(void **ret_ctx, int dev)
{
    ENTER(cuDevicePrimaryCtxRetain, FAKE_NEED_INIT);
    if (!have_device(dev))
        LEAVE(FAKE_INVALID_DEVICE);
    struct fake_ctx *c = fake_primary(dev);
    int rc = !c ? FAKE_OUT_OF_MEMORY : c->alive ? 0 : ctx_start(c);
    if (rc)
        LEAVE(rc);
    c->users++;
    *ret_ctx = c;
    LEAVE(0);
}

static int primary_release(int dev)
{
    struct fake_ctx *c = fake_primary(dev);
    if (!c)
        return FAKE_INVALID_DEVICE;
    if (!c->alive || c->users == 0)
        return FAKE_INVALID_CONTEXT;
    if (--c->users == 0)
        fake_ctx_destroy(c);
    return 0;
}

API int cuDevicePrimaryCtxRelease(int dev)
{
    ENTER(cuDevicePrimaryCtxRelease, FAKE_NEED_INIT);
    LEAVE(primary_release(dev));
}

API int cuDevicePrimaryCtxRelease_v2(int dev)
{
    ENTER(cuDevicePrimaryCtxRelease, FAKE_NEED_INIT);
    LEAVE(primary_release(dev));
}

static int primary_reset(int dev)
{
    struct fake_ctx *c = fake_primary(dev);
    if (!c)
        return FAKE_INVALID_DEVICE;
    if (c->alive)
        fake_ctx_destroy(c);
    return 0;
}

API int cuDevicePrimaryCtxReset(int dev)
{
    ENTER(cuDevicePrimaryCtxReset, FAKE_NEED_INIT);
    LEAVE(primary_reset(dev));
}

API int cuDevicePrimaryCtxReset_v2(int dev)
{
    ENTER(cuDevicePrimaryCtxReset, FAKE_NEED_INIT);
    LEAVE(primary_reset(dev));
}

API int cuDevicePrimaryCtxGetState(int dev, unsigned *ret_flags, int *ret_active)
{
    ENTER(cuDevicePrimaryCtxGetState, FAKE_NEED_INIT);
    struct fake_ctx *c = fake_primary(dev);
    if (!c)
        LEAVE(FAKE_INVALID_DEVICE);
    *ret_flags = 0;
    *ret_active = c->alive;
    LEAVE(0);
}

static int ctx_create(void **ret_ctx, int dev)
{
    if (!have_device(dev))
        return FAKE_INVALID_DEVICE;
    struct fake_ctx *c = stack.n < STACK ? ctx_new(dev, false) : NULL;
    int rc = c ? ctx_start(c) : FAKE_OUT_OF_MEMORY;
    if (rc)
        return rc;
    c->users = 1;
    stack.at[stack.n++] = c;
    *ret_ctx = c;
    return 0;
}

API int cuCtxCreate_v2(void **ret_ctx, unsigned flags, int dev)
{
    ENTER(cuCtxCreate, FAKE_NEED_INIT);
    (void)flags;
    LEAVE(ctx_create(ret_ctx, dev));
}

API int cuCtxCreate_v4(void **ret_ctx, void *params, unsigned flags, int dev)
{
    ENTER(cuCtxCreate, FAKE_NEED_INIT);
    (void)flags;
    LEAVE(params ? FAKE_NOT_SUPPORTED : ctx_create(ret_ctx, dev));
}

API int cuCtxDestroy_v2(void *handle)
{
    ENTER(cuCtxDestroy, FAKE_NEED_INIT);
    struct fake_ctx *c = ctx_find(handle);
    if (!c || c->primary)
        LEAVE(FAKE_INVALID_CONTEXT);
    if (!c->alive)
        LEAVE(FAKE_CONTEXT_IS_DESTROYED);
    fake_ctx_destroy(c);
    if (stack.n && stack.at[stack.n - 1] == c)
        stack.n--;
    LEAVE(0);
}

API int cuCtxPushCurrent_v2(void *handle)
{
    ENTER(cuCtxPushCurrent, FAKE_NEED_INIT);
    struct fake_ctx *c = ctx_find(handle);
    if (!c)
        LEAVE(FAKE_INVALID_CONTEXT);
    if (!c->alive)
        LEAVE(FAKE_CONTEXT_IS_DESTROYED);
    if (stack.n == STACK)
        LEAVE(FAKE_OUT_OF_MEMORY);
    stack.at[stack.n++] = c;
    LEAVE(0);
}

API int cuCtxPopCurrent_v2(void **ret_ctx)
{
    ENTER(cuCtxPopCurrent, FAKE_NEED_INIT);
    if (!stack.n)
        LEAVE(FAKE_INVALID_CONTEXT);
    stack.n--;
    if (ret_ctx)
        *ret_ctx = stack.at[stack.n];
    LEAVE(0);
}

API int cuCtxSetCurrent(void *handle)
{
    ENTER(cuCtxSetCurrent, FAKE_NEED_INIT);
    struct fake_ctx *c = handle ? ctx_find(handle) : NULL;
    if (handle && !c)
        LEAVE(FAKE_INVALID_CONTEXT);
    if (c && !c->alive)
        LEAVE(FAKE_CONTEXT_IS_DESTROYED);
    if (stack.n)
        stack.n--;
    if (c)
        stack.at[stack.n++] = c;
    LEAVE(0);
}

API int cuCtxGetCurrent(void **ret_ctx)
{
    ENTER(cuCtxGetCurrent, FAKE_NEED_INIT);
    *ret_ctx = fake_current();
    LEAVE(0);
}

#ifndef FAKE_CUDA_OLD
/* Different for any two contexts and any two lives of one. */
API int cuCtxGetId(void *handle, unsigned long long *ret_id)
{
    ENTER(cuCtxGetId, FAKE_NEED_INIT);
    struct fake_ctx *c = handle ? ctx_find(handle) : fake_current();
    if (!c)
        LEAVE(FAKE_INVALID_CONTEXT);
    if (!c->alive)
        LEAVE(FAKE_CONTEXT_IS_DESTROYED);
    *ret_id = c->id;
    LEAVE(0);
}
#endif

API int cuCtxGetDevice(int *ret_dev)
{
    ENTER(cuCtxGetDevice, FAKE_NEED_CTX);
    *ret_dev = fake_current()->dev;
    LEAVE(0);
}

API int cuCtxGetStreamPriorityRange(int *ret_least, int *ret_greatest)
{
    ENTER(cuCtxGetStreamPriorityRange, FAKE_NEED_CTX);
    if (ret_least)
        *ret_least = 0;
    if (ret_greatest)
        *ret_greatest = -5;
    LEAVE(0);
}

API int cuCtxSynchronize(void)
{
    ENTER(cuCtxSynchronize, FAKE_NEED_CTX | FAKE_NEED_CALM);
    struct fake_ctx *c = fake_current();
    fake_drain(c->dev);
    LEAVE(fake_ctx_usable(c));
}
