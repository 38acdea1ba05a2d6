/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our kernels (kernels.cu) on a CUDA device. The context that they are loaded into must be current in the calling
 * thread, here and in every later call. Results are the driver's.
 *
 * Threads: loading and unloading while no other thread uses them; the rest from any thread.
 */
#ifndef VV_DEVICE_CUDA_KERNELS_H
#define VV_DEVICE_CUDA_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

#include "device/cuda/driver.h"
#include "device/device.h"

/* Immutable once loaded. NULL: there are none, and every call returns VVI_CU_NOT_SUPPORTED. */
struct vvi_cuda_kernels;

/* True if this build has them. */
bool vvi_cuda_kernels_built(void);

/* Loads all of them now: a driver that loads at the first launch may have to wait until running kernels have ended,
 * which deadlocks if those wait for us. VVI_CU_NOT_SUPPORTED: not built, or the driver lacks a function. */
unsigned int vvi_cuda_kernels_load(const struct vvi_cuda_driver *driver, CUdevice device,
                                   struct vvi_cuda_kernels **ret_kernels);

/* Accepts NULL. `alive` false: the context is gone and the module with it. */
void vvi_cuda_kernels_unload(const struct vvi_cuda_driver *driver, struct vvi_cuda_kernels *kernels,
                             bool alive);

/* Submits FILL, VERIFY, SPIN or HASH. VVI_CU_INVALID_VALUE: misaligned. Does not check that the memory is the
 * device's. */
unsigned int vvi_cuda_kernels_launch(const struct vvi_cuda_driver *driver,
                                     const struct vvi_cuda_kernels *kernels, CUstream stream,
                                     const struct vv_kernel *k);

/* Copies one segment within the device; both sides are at multiples of 16. */
unsigned int vvi_cuda_kernels_copy(const struct vvi_cuda_driver *driver,
                                   const struct vvi_cuda_kernels *kernels, CUstream stream,
                                   const struct vv_copy_seg *seg);

/* Copies many segments within the device: of any size and alignment, independent of one another. One launch, or
 * several if there are too many segments for one; the segments may be reused at once. VVI_CU_NOT_SUPPORTED: nothing
 * was submitted. `ret_begun`: the first of several launches was accepted, even if another failed. */
unsigned int vvi_cuda_kernels_gather(const struct vvi_cuda_driver *driver,
                                     const struct vvi_cuda_kernels *kernels, CUstream stream,
                                     const struct vv_copy_seg *segs, size_t n_segs,
                                     bool *ret_begun);

#endif
