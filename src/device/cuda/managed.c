/* SPDX-License-Identifier: Apache-2.0 */
/* Each function is one call of the driver. */
#include "device/cuda/managed.h"

#include <errno.h>
#include <string.h>

#include "device/cuda/cuda_private.h"

static int enter(struct vv_device *dev, struct vvi_cuda_scope *scope)
{
    if (strcmp(dev->ops->name, "cuda") != 0)
        return -EINVAL;
    return vvi_cuda_enter(vvi_cuda_of(dev), scope);
}

static int finish(struct vv_device *dev, struct vvi_cuda_scope *scope, unsigned int code)
{
    int rc = vvi_cuda_status(vvi_cuda_of(dev), code);

    vvi_cuda_leave(vvi_cuda_of(dev), scope);
    return rc;
}

static struct vvi_cu_location device_location(const struct vvi_cuda *d)
{
    return (struct vvi_cu_location){.type = VVI_CU_LOCATION_DEVICE, .id = d->device};
}

static struct vvi_cu_location host_location(void)
{
    return (struct vvi_cu_location){.type = VVI_CU_LOCATION_HOST};
}

int vv_device_cuda_managed_alloc(struct vv_device *dev, size_t bytes, void **ret_ptr)
{
    struct vvi_cuda *d = vvi_cuda_of(dev);
    struct vvi_cuda_scope scope;
    CUdeviceptr ptr = 0;
    int concurrent = 0;
    unsigned int code;
    int rc = enter(dev, &scope);

    if (rc)
        return rc;
    code = d->drv.cuDeviceGetAttribute(&concurrent, VVI_CU_DEVICE_CONCURRENT_MANAGED, d->device);
    /* Without concurrent access nothing can be moved ahead of its use. */
    if (code == VVI_CU_SUCCESS && (!concurrent || !d->drv.cuMemAllocManaged))
        code = VVI_CU_NOT_SUPPORTED;
    if (code == VVI_CU_SUCCESS)
        code = d->drv.cuMemAllocManaged(&ptr, bytes, VVI_CU_MEM_ATTACH_GLOBAL);
    rc = finish(dev, &scope, code);
    if (!rc)
        *ret_ptr = (void *)(uintptr_t)ptr;
    return rc;
}

int vv_device_cuda_managed_free(struct vv_device *dev, void *ptr)
{
    struct vvi_cuda_scope scope;
    int rc;

    if (!ptr)
        return 0;
    rc = enter(dev, &scope);
    return rc ? rc : finish(dev, &scope, vvi_cuda_of(dev)->drv.cuMemFree((uintptr_t)ptr));
}

int vv_device_cuda_managed_advise(struct vv_device *dev, const void *ptr, size_t bytes,
                                  enum vv_device_cuda_advice advice)
{
    struct vvi_cuda *d = vvi_cuda_of(dev);
    struct vvi_cuda_scope scope;
    int rc = enter(dev, &scope);

    if (rc)
        return rc;
    if (!d->drv.cuMemAdvise)
        return finish(dev, &scope, VVI_CU_NOT_SUPPORTED);
    return finish(dev, &scope,
                  d->drv.cuMemAdvise((uintptr_t)ptr, bytes,
                                     advice == VV_DEVICE_CUDA_USED_BY_DEVICE
                                         ? VVI_CU_ADVISE_SET_ACCESSED_BY
                                         : VVI_CU_ADVISE_SET_PREFERRED_LOCATION,
                                     advice == VV_DEVICE_CUDA_PREFER_HOST ? host_location()
                                                                          : device_location(d)));
}

int vv_device_cuda_managed_move(struct vv_device *dev, struct vv_stream *s, const void *ptr,
                                size_t bytes, bool to_host)
{
    struct vvi_cuda *d = vvi_cuda_of(dev);
    struct vvi_cuda_scope scope;
    int rc = enter(dev, &scope);

    if (rc)
        return rc;
    if (!d->drv.cuMemPrefetchAsync)
        return finish(dev, &scope, VVI_CU_NOT_SUPPORTED);
    return finish(dev, &scope,
                  d->drv.cuMemPrefetchAsync((uintptr_t)ptr, bytes,
                                            to_host ? host_location() : device_location(d), 0,
                                            s->native));
}
