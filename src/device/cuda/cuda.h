/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA backend: opening a real device, and questions about CUDA that need none. An open device is
 * used through device.h.
 */
#ifndef VV_DEVICE_CUDA_CUDA_H
#define VV_DEVICE_CUDA_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/device.h"

struct vv_device_cuda_opts {
    /* In the driver's order. -1: the device of the calling thread's current context, otherwise the
     * first with an active primary context, otherwise 0. */
    int index;
    const char *library; /* NULL: libcuda.so.1 */
};

/*
 * Opens a device, on its primary context: the one that the CUDA runtime, PyTorch and OpenACC use.
 * It is created if the application has not done so, kept as long as the device is open, and never
 * left current in the calling thread. NULL opts: index -1. May take a second if CUDA was not in
 * use yet.
 *   -ENODEV   no driver, no GPU, or it cannot be used now
 *   -EINVAL   there is no device of that index
 *   -ENOTSUP  driver or GPU are too old
 *   -ENOMEM
 * `err` gets one line with the failed action and the reason.
 */
VV_WARN_UNUSED int vv_device_open_cuda(const struct vv_device_cuda_opts *opts, char *err,
                                       size_t err_bytes, struct vv_device **ret_device);

/* The driver's code behind the last vv_device_open_cuda or vv_device_cuda_list that failed in this
 * thread, and its name; 0 and "": it failed for another reason. */
int vv_device_cuda_open_code(const char **ret_name);

/* The driver's handle of a stream (CUstream), as an application would pass it to the library. */
void *vv_device_cuda_native(struct vv_device *d, struct vv_stream *s);

/* True if this process uses CUDA already: the driver is loaded and initialised, and a context is
 * current in the calling thread or a primary one active. Initialises nothing. */
bool vv_device_cuda_in_use(void);

/* True if `ptr` is memory of a GPU that the processor cannot reach. False where CUDA is not in use,
 * and for managed memory. Initialises nothing. */
bool vv_device_cuda_owns(const void *ptr);

struct vv_device_cuda_gpu {
    char name[64];
    char pci_bus_id[16];
    uint64_t memory_bytes;
    int capability_major, capability_minor;
};

struct vv_device_cuda_report {
    int driver_version; /* 13000: 13.0 */
    int count;          /* of GPUs; may exceed the number requested */
};

/* Lists the GPUs, for people to read. Initialises CUDA, creates no context. Fills in up to `max`
 * GPUs. The errors of vv_device_open_cuda; -ENODEV without a code: there is no driver. */
VV_WARN_UNUSED int vv_device_cuda_list(const char *library, char *err, size_t err_bytes,
                                       struct vv_device_cuda_gpu *gpus, size_t max,
                                       struct vv_device_cuda_report *ret_report);

#endif
