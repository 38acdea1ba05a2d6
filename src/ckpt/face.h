/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A context for other faces of the library: its device, its error record, keeping it open, and reading regions of
 * versions. Any thread.
 */
#ifndef VV_CKPT_FACE_H
#define VV_CKPT_FACE_H

#include "base/util.h"
#include "device/device.h"

struct varve_ctx;
struct varve_history;

/* Until vv_ckpt_leave the context cannot be closed: varve_close returns -EBUSY. -EINVAL: NULL; -EPERM: it belongs to
 * another process. */
VV_WARN_UNUSED int vv_ckpt_enter(struct varve_ctx *ctx);
void vv_ckpt_leave(struct varve_ctx *ctx);

/* Reads one region of a version into `bytes` bytes of host memory at `ptr`; protected regions are not used. Errors are
 * those of varve_restore. */
VV_WARN_UNUSED int vv_ckpt_read_region(struct varve_history *h, uint64_t version, int region,
                                       void *ptr, size_t bytes);

/* The context's device; NULL: it has none. */
struct vv_device *vv_ckpt_device(struct varve_ctx *ctx);

/* Records a failure of `operation` for varve_last_error, with the device's own code if `device` is true and it has
 * one, and returns `err`. */
int vv_ckpt_fail_ctx(struct varve_ctx *ctx, const char *operation, int err, bool device,
                     const char *fmt, ...) VV_PRINTF(5, 6);

#endif
