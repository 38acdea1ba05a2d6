/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Membership of a running node: member.h driven over net.h, with a clock and a thread.
 *
 *     vv_gossip_new(&opts, &g);                    whose callbacks may come from vv_gossip_start on
 *     net_opts.events.message = ... vv_gossip_message(g, m) if m->type == VV_GOSSIP_TYPE ...
 *     net_opts.events.peer    = ... vv_gossip_peer(g, peer, change) ...
 *     net_opts.events.epoch   = ... vv_gossip_epoch(g, from) ...
 *     vv_net_open(&net_opts, ..., &net);
 *     vv_gossip_start(g, net, addr);               addr: where others reach us
 *     vv_gossip_add(g, ...);                       for everybody on the list
 *     ...
 *     vv_gossip_stop(g); vv_net_stop(net); vv_gossip_free(g); vv_net_free(net);
 *
 * It tells the net of every member and its address (vv_net_peer_set), and of the epoch.
 *
 * Threads: any. Messages and evidence are taken in on the I/O thread of the net, so that news travel on
 * without waiting for a thread to wake up; `changed` is called on a thread of its own.
 */
#ifndef VV_DATASET_GOSSIP_H
#define VV_DATASET_GOSSIP_H

#include "dataset/member.h"
#include "net/net.h"

#define VV_GOSSIP_TYPE 1u /* messages of this type are ours */

struct vv_gossip_opts {
    struct vv_member_opts member; /* self.addr may be empty until vv_gossip_start */
    void *user;
    /* Who is there, or whether we are fenced, has changed (perhaps several times). No lock is held; it may
     * call what is below, and may take its time. */
    void (*changed)(void *user);
};

struct vv_gossip;

VV_WARN_UNUSED int vv_gossip_new(const struct vv_gossip_opts *opts, struct vv_gossip **ret_gossip);
/* Begins to talk. `addr`: where others reach us; NULL: vv_net_addr. */
VV_WARN_UNUSED int vv_gossip_start(struct vv_gossip *g, struct vv_net *net, const char *addr);
/* Says that we leave, if `leave`, and ends its thread; nothing is called back or sent after it. */
void vv_gossip_stop(struct vv_gossip *g, bool leave);
/* After the net was stopped. Accepts NULL. */
void vv_gossip_free(struct vv_gossip *g);

VV_WARN_UNUSED int vv_gossip_add(struct vv_gossip *g, const struct vv_member_info *info);

/* Takes a member out, on all nodes. The errors of vv_member_forget; -ESHUTDOWN. */
VV_WARN_UNUSED int vv_gossip_forget(struct vv_gossip *g, uint64_t id);

/* From the net's events. */
void vv_gossip_message(struct vv_gossip *g, const struct vv_net_msg *m);
void vv_gossip_peer(struct vv_gossip *g, uint64_t peer, enum vv_net_change change);
void vv_gossip_epoch(struct vv_gossip *g, uint64_t from);
/* From whoever asked a peer: a deadline has passed. */
void vv_gossip_silent(struct vv_gossip *g, uint64_t peer);

/* ---- looking: consistent, and without waiting for anybody ---- */

struct vv_gossip_view {
    uint64_t epoch;
    bool fenced;
    size_t nr; /* of rows, in the order of ids, with those that are FORGOTTEN */
    struct vv_member_row rows[];
};

/* A snapshot, freed with free(). -ENOMEM. */
VV_WARN_UNUSED int vv_gossip_view(struct vv_gossip *g, struct vv_gossip_view **ret_view);
bool vv_gossip_fenced(struct vv_gossip *g);

#endif
