/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Membership of a running node: member.h driven over net.h, with a clock and a thread.
 *
 *     vv_gossip_new(&opts, &g);                    callbacks may come from vv_gossip_start on
 *     net_opts.events.message = ... vv_gossip_message(g, m) if m->type == VV_GOSSIP_TYPE ...
 *     net_opts.events.peer    = ... vv_gossip_peer(g, peer, change) ...
 *     net_opts.events.epoch   = ... vv_gossip_epoch(g, from) ...
 *     vv_net_open(&net_opts, ..., &net);
 *     vv_gossip_start(g, net, addr);               addr: where others reach this node
 *     vv_gossip_add(g, ...);                       for each node on the list
 *     ...
 *     vv_gossip_stop(g); vv_net_stop(net); vv_gossip_free(g); vv_net_free(net);
 *
 * The gossip gives the net the address of every member (vv_net_peer_set), and the epoch.
 *
 * Threads: any. The net's I/O thread handles messages and evidence, so that news travels on without waking another
 * thread; `changed` is called on a thread of its own.
 */
#ifndef VV_DATASET_GOSSIP_H
#define VV_DATASET_GOSSIP_H

#include "dataset/member.h"
#include "net/net.h"

#define VV_GOSSIP_TYPE 1u /* messages of this type are ours */

struct vv_gossip_opts {
    struct vv_member_opts member; /* self.addr may be empty until vv_gossip_start */
    void *user;
    /* The members, or whether this node is fenced, have changed, perhaps several times. Called with no lock held. It
     * may call the functions below, and may block. */
    void (*changed)(void *user);
};

struct vv_gossip;

VV_WARN_UNUSED int vv_gossip_new(const struct vv_gossip_opts *opts, struct vv_gossip **ret_gossip);
/* Starts the threads. `addr`: where others reach this node; NULL: vv_net_addr. */
VV_WARN_UNUSED int vv_gossip_start(struct vv_gossip *g, struct vv_net *net, const char *addr);
/* Announces that this node leaves, if `leave`, and ends the threads; no callback or message comes after it. */
void vv_gossip_stop(struct vv_gossip *g, bool leave);
/* To be called after the net was stopped. Accepts NULL. */
void vv_gossip_free(struct vv_gossip *g);

VV_WARN_UNUSED int vv_gossip_add(struct vv_gossip *g, const struct vv_member_info *info);

/* Removes a member on all nodes. Returns the errors of vv_member_forget; -ESHUTDOWN. */
VV_WARN_UNUSED int vv_gossip_forget(struct vv_gossip *g, uint64_t id);

/* To be called from the net's events. */
void vv_gossip_message(struct vv_gossip *g, const struct vv_net_msg *m);
void vv_gossip_peer(struct vv_gossip *g, uint64_t peer, enum vv_net_change change);
void vv_gossip_epoch(struct vv_gossip *g, uint64_t from);
/* To be called by a thread that asked a peer, when the deadline has passed. */
void vv_gossip_silent(struct vv_gossip *g, uint64_t peer);

/* ---- views: consistent, and without waiting ---- */

struct vv_gossip_view {
    uint64_t epoch;
    bool fenced;
    size_t nr; /* rows, in the order of ids, FORGOTTEN ones included */
    struct vv_member_row rows[];
};

/* A snapshot, freed with free(). -ENOMEM. */
VV_WARN_UNUSED int vv_gossip_view(struct vv_gossip *g, struct vv_gossip_view **ret_view);
bool vv_gossip_fenced(struct vv_gossip *g);

#endif
