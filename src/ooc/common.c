/* SPDX-License-Identifier: Apache-2.0 */
/* What blocks and tables do in the same way: options, memory, and waiting for the device. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ooc/ooc_private.h"

enum { OPTS_MAX = 4096 }; /* more is no structure of options, but whatever was in that memory */

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
