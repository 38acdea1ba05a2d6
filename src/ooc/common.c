/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by blocks and tables: options, memory, and waiting for the device. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "ckpt/face.h"
#include "ooc/ooc_private.h"

enum { OPTS_MAX = 4096 }; /* a larger opts_size was not set by a caller */

int vvi_ooc_opts_init(const void *defaults, size_t bytes, void *opts, size_t opts_size)
{
    if (!opts || opts_size < sizeof(opts_size) || opts_size > OPTS_MAX)
        return -EINVAL;
    memset(opts, 0, opts_size);
    memcpy(opts, defaults, VV_MIN(opts_size, bytes));
    memcpy(opts, &opts_size, sizeof(opts_size));
    return 0;
}

int vvi_ooc_opts_take(const void *defaults, size_t bytes, const void *opts, void *ret_opts)
{
    size_t opts_size;

    if (!opts)
        return -EINVAL;
    memcpy(&opts_size, opts, sizeof(opts_size));
    if (opts_size < sizeof(opts_size) || opts_size > OPTS_MAX)
        return -EINVAL;
    memcpy(ret_opts, defaults, bytes);
    memcpy(ret_opts, opts, VV_MIN(opts_size, bytes));
    return 0;
}

int vvi_ooc_bad(const char *operation, const char *what)
{
    return vv_ckpt_fail_ctx(NULL, operation, -EINVAL, false, "%s", what);
}

int vvi_ooc_enter(struct varve_ctx *ctx, const char *operation)
{
    int rc = vv_ckpt_enter(ctx);

    if (rc)
        (void)vv_ckpt_fail_ctx(NULL, operation, rc, false, "%s",
                               ctx ? vv_strerror(rc) : "ctx is NULL");
    return rc;
}

const char *vvi_ooc_room(struct vv_device *device, int rc, char *buf, size_t size)
{
    size_t left = 0, total = 0;

    buf[0] = '\0';
    if (rc == -ENOMEM && vv_device_mem_info(device, &left, &total) == 0)
        (void)snprintf(buf, size, "; the device has %zu bytes, %zu of them free", total, left);
    return buf;
}

void *vvi_ooc_zeroed(size_t n, size_t bytes)
{
    size_t all = vv_align_up(VV_MAX(n * bytes, 1), 64);
    void *p = aligned_alloc(64, all);

    if (p)
        memset(p, 0, all);
    return p;
}

int vvi_ooc_wait(struct vv_device *device, struct vv_event *event)
{
    int rc;

    do
        rc = vv_device_event_wait(device, event, VVI_OOC_WAIT_NS);
    while (rc == -ETIMEDOUT);
    return rc;
}
