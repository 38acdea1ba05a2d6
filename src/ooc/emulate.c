/* SPDX-License-Identifier: Apache-2.0 */
/* varve/emulate.h: an application's kernels on the emulated device. Any thread. */
#include <varve/emulate.h>

#include <errno.h>
#include <string.h>

#include "ckpt/face.h"
#include "device/host/host.h"

int varve_emulate(struct varve_ctx *ctx, void (*kernel)(void *arg), void *arg,
                  struct CUstream_st *stream)
{
    struct vv_device *d;
    int rc;

    if (!ctx || !kernel)
        return vv_ckpt_fail_ctx(NULL, "emulate", -EINVAL, false,
                                ctx ? "kernel is NULL" : "ctx is NULL");
    rc = vv_ckpt_enter(ctx);
    if (rc)
        return rc;
    d = vv_ckpt_device(ctx);
    if (!d)
        rc = vv_ckpt_fail_ctx(ctx, "emulate", -ENODEV, false, "the context has no device");
    else if (strcmp(d->ops->name, "host") != 0)
        rc = vv_ckpt_fail_ctx(ctx, "emulate", -ENOTSUP, false,
                              "this device is not the emulated one: launch kernels on it");
    else
        rc = vv_device_host_run(d, stream, kernel, arg);
    vv_ckpt_leave(ctx);
    return rc;
}
