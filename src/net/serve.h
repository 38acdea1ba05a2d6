/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of peers, between the connections (conn.c) and the threads that answer them. */
#ifndef VV_NET_SERVE_H
#define VV_NET_SERVE_H

#include "net/net_private.h"

struct vv_net_req {
    struct vv_net *net;
    uint64_t serial, id; /* the connection that it came on, and its number there */
    uint64_t data_max, deadline_ns;
    bool no_sum; /* the caller verifies the data: the answer needs no checksum of it */
    uint8_t body[];
};

/* Handles a request that has come: calls the event, or refuses it. Returns as vvi_conn_frame does. */
VV_WARN_UNUSED int vvi_serve(struct vvi_conn *c, const struct vvi_head *h, const void *body);
VV_WARN_UNUSED int vvi_serve_refuse(struct vvi_conn *c, const struct vvi_head *h, int status);

#endif
