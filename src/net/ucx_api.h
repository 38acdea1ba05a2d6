/* SPDX-License-Identifier: Apache-2.0 */
/*
 * UCX, opened at run time: a build that found its headers also runs on machines without it, and reports there that the
 * transport is not available. All functions that are used are in one list.
 */
#ifndef VV_NET_UCX_API_H
#define VV_NET_UCX_API_H

#if HAVE_UCX

#include <ucp/api/ucp.h>

#include "base/util.h"

#define VVI_UCX_FUNCTIONS(X)          \
    X(ucp_get_version)                \
    X(ucp_init_version)               \
    X(ucp_cleanup)                    \
    X(ucp_config_read)                \
    X(ucp_config_release)             \
    X(ucp_worker_create)              \
    X(ucp_worker_destroy)             \
    X(ucp_worker_progress)            \
    X(ucp_worker_get_efd)             \
    X(ucp_worker_arm)                 \
    X(ucp_worker_get_address)         \
    X(ucp_worker_release_address)     \
    X(ucp_worker_set_am_recv_handler) \
    X(ucp_ep_create)                  \
    X(ucp_ep_close_nbx)               \
    X(ucp_am_send_nbx)                \
    X(ucp_am_recv_data_nbx)           \
    X(ucp_am_data_release)            \
    X(ucp_request_free)

struct vvi_ucx_api {
#define X(name) __typeof__(name) *name;
    VVI_UCX_FUNCTIONS(X)
#undef X
};

/* 0, or -ENOTSUP with the reason. It is never unloaded, because UCX has memory hooks that cannot be removed. Any
 * thread. */
VV_WARN_UNUSED int vvi_ucx_load(char *err, size_t err_bytes, const struct vvi_ucx_api **ret_api);
/* Converts a status to a negative errno. */
int vvi_ucx_errno(ucs_status_t status);

#endif
#endif
