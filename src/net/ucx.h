/* SPDX-License-Identifier: Apache-2.0 */
/* Bulk data by UCX, beside the connections of tcp.c. On the I/O thread. */
#ifndef VV_NET_UCX_H
#define VV_NET_UCX_H

#include "net/net_private.h"

struct vvi_ucx;

/* -ENOTSUP: not in this build, or not on this machine. */
VV_WARN_UNUSED int vvi_ucx_open(struct vv_net *net, char *err, size_t err_bytes,
                                struct vvi_ucx **ret_ucx);
/* All connections are gone. Accepts NULL. */
void vvi_ucx_close(struct vvi_ucx *u);
/* Readable when there is something to do. */
int vvi_ucx_fd(const struct vvi_ucx *u);
void vvi_ucx_progress(struct vvi_ucx *u);
/* False: there is something to do already. */
bool vvi_ucx_may_sleep(struct vvi_ucx *u);

/* Where we are to be reached for the data of our requests: the body of a REACH. */
struct vvi_frame *vvi_ucx_reach(struct vvi_ucx *u);
/* A peer has said where he is. What makes no sense is left aside: he gets his data by TCP. */
void vvi_ucx_reached(struct vvi_ucx *u, struct vvi_conn *c, const void *body, size_t bytes);

/* Takes an answer with bulk data, sends the data, and returns the answer without it, to be sent by TCP. NULL: it
 * is not to go this way, and nothing was taken. */
struct vvi_frame *vvi_ucx_send(struct vvi_ucx *u, struct vvi_conn *c, struct vvi_frame *f);
/* How many answers of a connection UCX has. */
unsigned vvi_ucx_queued(const struct vvi_conn *c);

/* The data of an answer comes, or has come, by UCX. Takes the reference to the call. */
void vvi_ucx_expect(struct vvi_ucx *u, struct vvi_conn *c, uint64_t id, struct vv_net_call *call,
                    uint64_t bytes);
/* It comes by TCP after all: the call with its reference, or NULL if nothing is expected for it. */
struct vv_net_call *vvi_ucx_give_up(struct vvi_ucx *u, const struct vvi_conn *c, uint64_t id);

/* The connection ends. */
void vvi_ucx_part(struct vvi_ucx *u, struct vvi_conn *c);

#endif
