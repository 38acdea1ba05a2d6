/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Managed (unified) memory of a CUDA device. The library does not use it: measurements compare the library with an
 * application that leaves data movement to the driver.
 *
 * Functions take a device that vv_device_open_cuda returned (-EINVAL: another one), from any thread.
 * Managed memory is device memory to all other operations. -ENOTSUP: the driver or the device
 * cannot.
 */
#ifndef VV_DEVICE_CUDA_MANAGED_H
#define VV_DEVICE_CUDA_MANAGED_H

#include <stdbool.h>
#include <stddef.h>

#include "device/device.h"

enum vv_device_cuda_advice {
    VV_DEVICE_CUDA_PREFER_HOST,    /* prefers host memory: may leave the device first */
    VV_DEVICE_CUDA_PREFER_DEVICE,  /* prefers the device */
    VV_DEVICE_CUDA_USED_BY_DEVICE, /* the device keeps mappings to it wherever it is */
};

VV_WARN_UNUSED int vv_device_cuda_managed_alloc(struct vv_device *d, size_t bytes, void **ret_ptr);
/* Waits for the work already submitted. NULL is fine. */
int vv_device_cuda_managed_free(struct vv_device *d, void *ptr);
VV_WARN_UNUSED int vv_device_cuda_managed_advise(struct vv_device *d, const void *ptr, size_t bytes,
                                                 enum vv_device_cuda_advice advice);
/* Moves it, in the order of the stream. The call itself may take a good part of the time. */
VV_WARN_UNUSED int vv_device_cuda_managed_move(struct vv_device *d, struct vv_stream *s,
                                               const void *ptr, size_t bytes, bool to_host);

#endif
