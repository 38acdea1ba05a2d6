/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is there: membership by gossip, as a state machine. Messages, time and evidence go in; messages and
 * changes come out. No I/O, no clock, no thread, no lock; the same calls with the same arguments give the
 * same results. gossip.h drives it over net.h.
 *
 * Every member has a record of every other: who, where, how large (fixed), and a state with two numbers.
 *
 *   ALIVE    answers, as far as anybody knows
 *   SUSPECT  has not answered somebody, neither directly nor through others; still counts as there
 *   DEAD     was suspected for suspect_ns and did not object. It may run on, beyond a broken link
 *   GONE     is known not to run: it left, or its machine said that nobody listens there
 *   FORGOTTEN  was taken out by the user: it counts nowhere, and only its record stays, so that all hear of it
 *
 * Records only ever grow, by (life, rank of DEAD, GONE and FORGOTTEN, refutation, SUSPECT): a node that has two keeps the
 * greater, so that all who have heard the same have the same, in whatever order they heard it. Only a member
 * itself begins a new life or a new refutation: the latter when it hears that it is suspected, the former
 * when it hears that it is DEAD, GONE or FORGOTTEN, or starts again. Both together are what SWIM calls an incarnation.
 *
 * The **epoch** is computed from the lives and the ranks of all records: equal tables have equal ones, each
 * change of who is there makes it larger, and suspicion and its refutation leave it as it is.
 *
 * Each period a member pings the next one in the order of numbers and one that is drawn; whoever does not
 * answer within ping_ns is pinged through others; who has not answered by the end of the period is suspected. News are told
 * at once to a few (all, in small jobs), and ride on every message for a while; tables whose epochs differ
 * are exchanged. DEAD members are tried now and then, so that a mended link is found.
 *
 * **Fenced** is a member that sees at most half (of exactly half, the one with the smallest number) of those who may be running: it
 * may be on the wrong side of a broken link. GONE and FORGOTTEN members do not count, nor those that have been DEAD for
 * forget_ns while the others were the larger part, nor names that were added and from which no member has ever heard.
 * A fence lasts fence_ns at most: then the members that are DEAD do not count any more, and this part goes on by itself.
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
#define VV_MEMBER_MSG_MAX  (32u << 10) /* bytes; a table that is larger comes in pieces */

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
    /* Larger than that of its last start if possible: seconds of a clock will do. If it is not, and the address is
     * another one, those who hear of it say so. */
    uint32_t life;
    uint64_t seed;          /* of what is drawn */
    uint64_t period_ns;     /* 0: 300 ms */
    uint64_t ping_ns;       /* 0: a third of the period */
    uint64_t suspect_ns;    /* 0: 4 periods */
    uint64_t dead_probe_ns; /* how often one that is DEAD is tried; 0: 3 periods */
    uint64_t forget_ns;     /* 0: 60 s */
    uint64_t fence_ns;      /* how long it is fenced at most; at least 20 periods */
    unsigned indirect;      /* how many are asked to ping for us; 0: 3 */
};

struct vv_member;

VV_WARN_UNUSED int vv_member_new(const struct vv_member_opts *opts, uint64_t now_ns,
                                 struct vv_member **ret_member);
void vv_member_free(struct vv_member *m);

/* Somebody to begin with, from a list: taken for ALIVE in its life 0, which everything overrides; its whole table is asked for.
 * One that has not been heard, is DEAD or GONE, and is elsewhere now is looked for there.
 * -EEXIST: known; -ENOSPC: VV_MEMBERS_MAX; -EINVAL. */
VV_WARN_UNUSED int vv_member_add(struct vv_member *m, uint64_t now_ns,
                                 const struct vv_member_info *info);

/* A message of another member. -EBADMSG: it makes no sense, and has changed nothing. */
int vv_member_receive(struct vv_member *m, uint64_t now_ns, const void *msg, size_t bytes);

/* Time has come to `now_ns`. To be called at vv_member_due_ns or later. */
void vv_member_tick(struct vv_member *m, uint64_t now_ns);
uint64_t vv_member_due_ns(const struct vv_member *m);

/* Direct evidence. */
enum vv_member_evidence {
    VV_MEMBER_SILENT, /* a request to it has passed its deadline: it is pinged now */
    VV_MEMBER_BROKEN, /* a connection to it has ended: it is suspected, and pinged now */
    VV_MEMBER_ENDED,  /* nobody listens where it is: it is GONE */
};

void vv_member_evidence(struct vv_member *m, uint64_t now_ns, uint64_t id,
                        enum vv_member_evidence what);

/* Somebody has another epoch than ours: tables are exchanged with him. */
void vv_member_differs(struct vv_member *m, uint64_t now_ns, uint64_t id);

/* This member leaves: it is GONE for all who hear it, and objects no more. */
void vv_member_leave(struct vv_member *m, uint64_t now_ns);

/* Takes a member out, here and everywhere. If it runs after all, it comes back in a new life when it hears of that.
 * -ENOENT: not known; -EINVAL: it is this one; -EBUSY: it is up; -EALREADY. */
VV_WARN_UNUSED int vv_member_forget(struct vv_member *m, uint64_t now_ns, uint64_t id);

/* What is to be sent, in this order: after each of the calls above, until false. `msg` is good until the
 * next call of any kind. */
struct vv_member_out {
    uint64_t to;
    const void *msg;
    size_t bytes;
};
bool vv_member_next_out(struct vv_member *m, struct vv_member_out *ret_out);

/* ---- looking ---- */

uint64_t vv_member_epoch(const struct vv_member *m);
bool vv_member_fenced(const struct vv_member *m);
/* Grows by one with every change that vv_member_rows would show. */
uint64_t vv_member_version(const struct vv_member *m);
/* All members, with this one and those that are FORGOTTEN, in the order of their numbers: how many there are; the
 * first `max` are stored. */
size_t vv_member_rows(const struct vv_member *m, struct vv_member_row *ret_rows, size_t max);
/* -ENOENT. */
int vv_member_row(const struct vv_member *m, uint64_t id, struct vv_member_row *ret_row);

#endif
