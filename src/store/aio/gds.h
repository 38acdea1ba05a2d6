/* SPDX-License-Identifier: Apache-2.0 */
/* GPUDirect Storage: transfers between files and device memory that bypass host memory, through
 * NVIDIA's libcufile, which is opened at run time and never linked.
 *
 * A gds serves one device and one buffer of it. Stores that were given one (vv_store_opts.gds) take
 * requests whose pages lie in that buffer. One thread opens and closes it and sets the buffer;
 * everything else may be called from any thread. */
#ifndef VV_STORE_GDS_H
#define VV_STORE_GDS_H

#include <stddef.h>

#include "base/util.h"
#include "device/device.h"

struct vv_gds;

#define VV_GDS_LIBRARY "libcufile.so.0"

/* 0 if the library can be loaded and has all functions that we use; else -ENOTSUP, and the reason in
 * `err`. Initialises nothing. `library` NULL: VV_GDS_LIBRARY. */
VV_WARN_UNUSED int vv_gds_find(const char *library, char *err, size_t err_bytes);

/* Opens the library for a device, which outlives the gds. -ENOTSUP: no library, the library refuses to
 * work here, or the device does not run our kernels: data that is only in device memory needs one for
 * its checksums. */
VV_WARN_UNUSED int vv_gds_open(struct vv_device *device, const char *library, char *err,
                               size_t err_bytes, struct vv_gds **ret_gds);
/* Call it after its stores were closed and its buffer was removed (vv_gds_memory_remove). Accepts NULL. */
void vv_gds_close(struct vv_gds *gds);

/* Registers the buffer that requests may lie in; one at a time. Call vv_gds_memory_remove before the
 * memory is freed and with no request in flight. -EBUSY: a buffer is registered already. */
VV_WARN_UNUSED int vv_gds_memory_add(struct vv_gds *gds, void *base, size_t bytes, char *err,
                                     size_t err_bytes);
void vv_gds_memory_remove(struct vv_gds *gds);

#endif
