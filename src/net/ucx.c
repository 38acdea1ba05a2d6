/* SPDX-License-Identifier: Apache-2.0 */
/* Builds without UCX. */
#include <errno.h>
#include <stdio.h>

#include "net/net_private.h"

int vvi_net_ucx_check(char *err, size_t err_bytes)
{
    snprintf(err, err_bytes, "this build has no UCX");
    return -ENOTSUP;
}

static int ucx_open(struct vv_net *net, const struct vvi_addr *listen, char *err, size_t err_bytes,
                    void **ret_io, uint16_t *ret_port)
{
    (void)net;
    (void)listen;
    (void)ret_io;
    (void)ret_port;
    return vvi_net_ucx_check(err, err_bytes);
}

const struct vvi_net_ops vvi_net_ucx = {.open = ucx_open};
