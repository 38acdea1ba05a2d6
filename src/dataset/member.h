/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Membership by gossip, as a state machine. Messages, time and evidence go in; messages and changes come out. No I/O,
 * no clock, no thread, no lock; the same calls with the same arguments give the same results. gossip.h drives it
 * over net.h.
 *
 * Every member has a record of every other: name, address and size, which are fixed, and a state with two numbers.
 *
 *   ALIVE    answers, as far as is known
 *   SUSPECT  did not answer a member, neither directly nor through others; still counts as up
 *   DEAD     was suspected for suspect_ns and did not refute it. It may still run, beyond a broken link
 *   GONE     does not run: it left, or its machine reported that no process listens there
 *   FORGOTTEN  was removed by the user: it counts nowhere, and only its record stays, so that all members hear of it
 *
 * Records only grow, by (life, rank of DEAD, GONE and FORGOTTEN, refutation, SUSPECT). Of two records a node keeps the
 * greater. So all that received the same records have the same table, in whatever order they came. Only a member
 * itself begins a new life or a new refutation: a refutation when it hears that it is suspected, a life when it hears
 * that it is DEAD, GONE or FORGOTTEN, or starts again. Both together are what SWIM calls an incarnation.
 *
 * The **epoch** is computed from the lives and the ranks of all records. Equal tables have equal epochs. Each member
 * that comes or goes makes it larger; suspicion and its refutation do not change it.
 *
 * Each period a member pings the next one in the order of numbers and a random one. A member that does not answer
 * within ping_ns is pinged through others, and is suspected if it has not answered by the end of the period. News is
 * sent at once to a few members (all, in small jobs), and with every message for a while. Tables whose epochs differ
 * are exchanged. DEAD members are pinged from time to time, so that a repaired link is noticed.
 *
 * A member is **fenced** if it may be on the wrong side of a broken link: it sees less than half of the members that
 * may be running, or exactly half without the one with the smallest number. Three kinds do not count: members that are
 * GONE or FORGOTTEN; members that have been DEAD for forget_ns while the others were the larger part; names that were
 * added and that no member has ever heard. A fence lasts fence_ns at most: then DEAD members do not count any
 * more, and this part continues by itself.
 */
#ifndef VV_DATASET_MEMBER_H
#define VV_DATASET_MEMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

#define VV_MEMBER_NAME_MAX 63u
#define VV_MEMBER_ADDR_MAX 127u
#define VV_MEMBERS_MAX     4096u
#define VV_MEMBER_MSG_MAX  (32u << 10) /* bytes; a larger table is sent in pieces */

enum vv_member_state {
    VV_MEMBER_ALIVE,
    VV_MEMBER_SUSPECT,
    VV_MEMBER_DEAD,
    VV_MEMBER_GONE,
    VV_MEMBER_FORGOTTEN
};

const char *vv_member_state_name(enum vv_member_state s);

struct vv_member_info {
    uint64_t id; /* vv_place_node_id of the name */
    char name[VV_MEMBER_NAME_MAX + 1];
    char addr[VV_MEMBER_ADDR_MAX + 1];
    uint64_t weight; /* its capacity */
};

struct vv_member_row {
    struct vv_member_info info;
    enum vv_member_state state;
    uint32_t life, refutation;
};

struct vv_member_opts {
    struct vv_member_info self;
    /* Should be larger than the life of its last start: seconds of a clock will do. If it is not, but the node has
     * another address than before, members that hear this node make it begin a new life. */
    uint32_t life;
    uint64_t seed;          /* of the random numbers */
    uint64_t period_ns;     /* 0: 300 ms */
    uint64_t ping_ns;       /* 0: a third of the period */
    uint64_t suspect_ns;    /* 0: 4 periods */
    uint64_t dead_probe_ns; /* interval of pings to DEAD members; 0: 3 periods */
    uint64_t forget_ns;     /* 0: 60 s */
    uint64_t fence_ns;      /* longest time that it is fenced; at least 20 periods */
    unsigned indirect;      /* members asked to ping for us; 0: 3 */
};

struct vv_member;

VV_WARN_UNUSED int vv_member_new(const struct vv_member_opts *opts, uint64_t now_ns,
                                 struct vv_member **ret_member);
void vv_member_free(struct vv_member *m);

/* Adds a member from a list: ALIVE in life 0, which every record overrides. It is asked for its whole table. If the
 * name is known at another address and was never heard, is DEAD or is GONE, it is asked at the new address.
 * -EEXIST: known; -ENOSPC: VV_MEMBERS_MAX; -EINVAL. */
VV_WARN_UNUSED int vv_member_add(struct vv_member *m, uint64_t now_ns,
                                 const struct vv_member_info *info);

/* Handles a message of another member. -EBADMSG: it is malformed, and has changed nothing. */
int vv_member_receive(struct vv_member *m, uint64_t now_ns, const void *msg, size_t bytes);

/* Advances time to `now_ns`. To be called at vv_member_due_ns or later. */
void vv_member_tick(struct vv_member *m, uint64_t now_ns);
uint64_t vv_member_due_ns(const struct vv_member *m);

/* Direct evidence. */
enum vv_member_evidence {
    VV_MEMBER_SILENT, /* a request to it has passed its deadline: pings it now */
    VV_MEMBER_BROKEN, /* a connection to it has ended: suspects it, and pings it now */
    VV_MEMBER_ENDED,  /* no process listens there: it is GONE */
};

void vv_member_evidence(struct vv_member *m, uint64_t now_ns, uint64_t id,
                        enum vv_member_evidence what);

/* A member has another epoch than this one: exchanges tables with it. */
void vv_member_differs(struct vv_member *m, uint64_t now_ns, uint64_t id);

/* This member leaves: it is GONE for all that hear it, and does not refute that. */
void vv_member_leave(struct vv_member *m, uint64_t now_ns);

/* Removes a member, here and on all nodes. If it still runs, it comes back in a new life when it hears of that.
 * -ENOENT: not known; -EINVAL: it is this one; -EBUSY: it is up; -EALREADY. */
VV_WARN_UNUSED int vv_member_forget(struct vv_member *m, uint64_t now_ns, uint64_t id);

/* Messages to send, in this order: to be called after each of the calls above, until it returns false. `msg` is valid
 * until the next call of any kind. */
struct vv_member_out {
    uint64_t to;
    const void *msg;
    size_t bytes;
};
bool vv_member_next_out(struct vv_member *m, struct vv_member_out *ret_out);

/* ---- looking ---- */

uint64_t vv_member_epoch(const struct vv_member *m);
bool vv_member_fenced(const struct vv_member *m);
/* Grows by one with every change of the rows. */
uint64_t vv_member_version(const struct vv_member *m);
/* Stores the first `max` rows, in the order of the members' numbers. Returns the number of all members, this one and
 * FORGOTTEN ones included. */
size_t vv_member_rows(const struct vv_member *m, struct vv_member_row *ret_rows, size_t max);
/* -ENOENT. */
int vv_member_row(const struct vv_member *m, uint64_t id, struct vv_member_row *ret_row);

#endif
