/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our kernels behind the table of operations. All addresses of a kernel are checked first: one that is not the
 * device's would end the context for the whole application, not only the kernel.
 */
#include <errno.h>

#include "device/cuda/cuda_private.h"
#include "device/cuda/kernels.h"

static int check_memory(struct vvi_cuda *d, const void *ptr, size_t bytes)
{
    struct vvi_cuda_place place;
    int rc = vvi_cuda_place_of(d, ptr, &place);

    if (rc)
        return rc;
    if (place.kind != VV_MEM_DEVICE)
        return -EINVAL;
    return bytes && place.last - (uintptr_t)ptr < bytes - 1 ? -EFAULT : 0;
}

static int check_spans(struct vvi_cuda *d, const struct vv_kernel *k)
{
    int rc = k->n_spans == 0 || k->n_spans > VV_KERNEL_SPANS
                 ? -EINVAL
                 : check_memory(d, k->sums, k->n_spans * sizeof(*k->sums));

    for (uint32_t i = 0; rc == 0 && i < k->n_spans; i++)
        rc = check_memory(d, k->spans[i].ptr, k->spans[i].bytes);
    return rc;
}

int vvi_cuda_launch(struct vv_device *dev, struct vv_stream *s, const struct vv_kernel *k)
{
    struct vvi_cuda *d = vvi_cuda_of(dev);
    struct vvi_cuda_scope scope;
    int rc;

    rc = vvi_cuda_enter(d, &scope);
    if (rc)
        return rc;
    if (!d->kernels)
        rc = -ENOTSUP;
    else if (k->kind == VV_KERNEL_FILL || k->kind == VV_KERNEL_VERIFY)
        rc = check_memory(d, k->ptr, k->bytes);
    else if (k->kind == VV_KERNEL_HASH)
        rc = check_spans(d, k);
    if (!rc && k->kind == VV_KERNEL_VERIFY)
        rc = check_memory(d, k->bad, sizeof(*k->bad));
    if (!rc)
        rc = vvi_cuda_status(d, vvi_cuda_kernels_launch(&d->drv, d->kernels, s->native, k));
    vvi_cuda_leave(d, &scope);
    return rc;
}
