/* SPDX-License-Identifier: Apache-2.0 */
/* Bulk data by UCX, beside the connections of tcp.c. On the I/O thread. */
#ifndef VV_NET_UCX_H
#define VV_NET_UCX_H

#include "net/net_private.h"

struct vvi_ucx;

/* -ENOTSUP: not in this build, or not on this machine. */
VV_WARN_UNUSED int vvi_ucx_open(struct vv_net *net, char *err, size_t err_bytes,
                                struct vvi_ucx **ret_ucx);
/* To be called when all connections are gone. Accepts NULL. */
void vvi_ucx_close(struct vvi_ucx *u);
/* A descriptor that is readable when there are events. */
int vvi_ucx_fd(const struct vvi_ucx *u);
void vvi_ucx_progress(struct vvi_ucx *u);
/* False: there are events already. */
bool vvi_ucx_may_sleep(struct vvi_ucx *u);

/* The body of a REACH: our address for the data of our requests. */
struct vvi_frame *vvi_ucx_reach(struct vvi_ucx *u);
/* A peer has sent its address. A malformed one is ignored: that peer gets its data by TCP. */
void vvi_ucx_reached(struct vvi_ucx *u, struct vvi_conn *c, const void *body, size_t bytes);

/* Takes an answer with bulk data, sends the data, and returns the answer without it, to be sent by TCP. NULL: use TCP
 * for all of it; then nothing was taken. */
struct vvi_frame *vvi_ucx_send(struct vvi_ucx *u, struct vvi_conn *c, struct vvi_frame *f);
/* Number of answers of a connection that UCX is sending. */
unsigned vvi_ucx_queued(const struct vvi_conn *c);

/* The data of an answer comes, or has come, by UCX. Takes the reference to the call. */
void vvi_ucx_expect(struct vvi_ucx *u, struct vvi_conn *c, uint64_t id, struct vv_net_call *call,
                    uint64_t bytes);
/* The data comes by TCP after all: returns the call with its reference, or NULL if no data is expected for it. */
struct vv_net_call *vvi_ucx_give_up(struct vvi_ucx *u, const struct vvi_conn *c, uint64_t id);

/* The connection ends. */
void vvi_ucx_part(struct vvi_ucx *u, struct vvi_conn *c);

#endif
