/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kind of memory that a pointer points to.
 *
 * Our own allocations and slices are in a table and cost no call of the driver. All other addresses are looked up
 * every time: the application may free its memory, and the same address may be of another kind later. With the
 * driver's unified addresses a pointer alone determines device and kind.
 *
 * Memory of another device or, if the driver reports it, of another context cannot be used in our context. Memory
 * from pools and mapped reservations belongs to none and can; managed memory counts as device memory. Host memory
 * that another context registered may or may not be pinned for ours, so it counts as not pinned.
 */
#include <errno.h>
#include <stdint.h>

#include "device/cuda/cuda_private.h"

struct answer {
    CUcontext ctx;
    unsigned int type; /* 0: the driver does not know the address */
    unsigned int managed;
    int ordinal;
    CUdeviceptr start;
    size_t bytes;
};

static unsigned int ask(const struct vvi_cuda_driver *drv, uintptr_t p, struct answer *ret_answer)
{
    static const unsigned int attributes[] = {
        VVI_CU_POINTER_CONTEXT,        VVI_CU_POINTER_MEMORY_TYPE, VVI_CU_POINTER_IS_MANAGED,
        VVI_CU_POINTER_DEVICE_ORDINAL, VVI_CU_POINTER_RANGE_START, VVI_CU_POINTER_RANGE_SIZE};
    unsigned int which[VV_ARRAY_SIZE(attributes)];
    struct answer a = {.ordinal = -1};
    void *values[] = {&a.ctx, &a.type, &a.managed, &a.ordinal, &a.start, &a.bytes};
    unsigned int code;

    _Static_assert(VV_ARRAY_SIZE(attributes) == VV_ARRAY_SIZE(values), "one value each");
    for (size_t i = 0; i < VV_ARRAY_SIZE(attributes); i++)
        which[i] = attributes[i]; /* the driver's parameter is not const */
    code = drv->cuPointerGetAttributes(VV_ARRAY_SIZE(which), which, values, p);
    if (code == VVI_CU_SUCCESS)
        *ret_answer = a;
    return code;
}

static int place_of_foreign(struct vvi_cuda *d, uintptr_t p, struct vvi_cuda_range gap,
                            struct vvi_cuda_place *ret_place)
{
    struct vvi_cuda_place place = {gap.start, gap.last, VV_MEM_HOST, false, false, false};
    struct answer a = {0};
    int rc = vvi_cuda_status(d, ask(&d->drv, p, &a));

    if (rc)
        return rc;
    if (a.type == VVI_CU_MEMORYTYPE_DEVICE || a.managed) {
        if (!a.managed && (a.ordinal != d->device || (a.ctx && a.ctx != d->ctx)))
            return vvi_cuda_refuse(d, -EXDEV);
        place.kind = VV_MEM_DEVICE;
        place.pinned = true;
        place.managed = a.managed;
    } else if (a.type == VVI_CU_MEMORYTYPE_HOST) {
        place.pinned = !a.ctx || a.ctx == d->ctx;
    }
    if (a.type && a.bytes) {
        place.start = a.start;
        place.last = a.start + (a.bytes - 1);
        place.known = true;
    }
    *ret_place = place;
    return 0;
}

int vvi_cuda_place_of(struct vvi_cuda *d, const void *ptr, struct vvi_cuda_place *ret_place)
{
    uintptr_t p = (uintptr_t)ptr;
    struct vvi_cuda_range r = vvi_cuda_ranges_find(&d->ranges, p);

    if (r.kind == VVI_CUDA_NONE)
        return place_of_foreign(d, p, r, ret_place);
    *ret_place = (struct vvi_cuda_place){
        r.start, r.last, r.kind == VVI_CUDA_ALLOC ? VV_MEM_DEVICE : VV_MEM_HOST, true, true, false};
    return 0;
}

int vvi_cuda_ptr_kind(struct vv_device *dev, const void *ptr, enum vv_mem_kind *ret_kind,
                      size_t *ret_bytes_left)
{
    struct vvi_cuda *d = vvi_cuda_of(dev);
    struct vvi_cuda_scope scope;
    struct vvi_cuda_place place;
    int rc;

    if (!ptr)
        return vvi_cuda_refuse(d, -EINVAL);
    rc = vvi_cuda_enter(d, &scope);
    if (rc)
        return rc;
    rc = vvi_cuda_place_of(d, ptr, &place);
    vvi_cuda_leave(d, &scope);
    if (rc)
        return rc;
    *ret_kind = place.kind;
    *ret_bytes_left =
        place.kind == VV_MEM_HOST && !place.pinned ? SIZE_MAX : place.last - (uintptr_t)ptr + 1;
    return 0;
}
