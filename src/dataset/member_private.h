/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of the membership state machine: member.c, member_probe.c, member_wire.c. */
#ifndef VV_DATASET_MEMBER_PRIVATE_H
#define VV_DATASET_MEMBER_PRIVATE_H

#include "dataset/member.h"

enum vvi_member_kind {
    MEMBER_PING = 1,  /* answer with ACK */
    MEMBER_ACK,       /* `target` answered: the sender, or the member that it pinged for us */
    MEMBER_PING_REQ,  /* ping `target` for me */
    MEMBER_NEWS,      /* records, nothing to answer */
    MEMBER_TABLE,     /* a piece of the sender's table */
    MEMBER_TABLE_REQ, /* the same; answer with our table */
    MEMBER_KINDS
};

/* RANK_UP covers ALIVE and SUSPECT. */
enum vvi_member_rank { RANK_UP, RANK_DEAD, RANK_GONE, RANK_FORGOTTEN, RANKS };

struct vvi_record {
    /* Sent. */
    struct vv_member_info info;
    uint32_t life, refutation;
    uint8_t rank;
    bool suspect;
    /* Not sent. */
    unsigned sends;    /* number of messages that still carry it */
    uint64_t since_ns; /* when this node saw it become suspect or dead */
    bool discounted;   /* not counted for the fence: dead, or this node was fenced, for too long */
};

struct vvi_probe {
    uint64_t id;
    uint32_t life; /* at the time of the ping */
    uint32_t seq;
    bool asked;           /* indirect pings were sent */
    uint64_t indirect_ns; /* when to send them */
    uint64_t end_ns;      /* when the probe has failed */
};

/* A ping that we send for another member. */
struct vvi_relay {
    uint32_t seq, his_seq;
    uint64_t his, target;
    uint64_t end_ns;
};

struct vvi_out {
    uint64_t to;
    size_t at, bytes;
};

enum { VVI_PROBES = 64, VVI_RELAYS = 128 };

struct vv_member {
    struct vv_member_opts opts; /* zeros are replaced by the defaults */
    uint64_t now_ns, rng;
    bool left;
    struct vvi_record *all; /* in the order of their numbers */
    size_t nr, room, self;  /* self: its index */
    uint64_t version;
    uint64_t counted, sum, digest; /* counted: the version that `sum` and `digest` belong to */
    bool fenced;
    uint64_t fenced_ns; /* since when */
    uint64_t period_at_ns, dead_probe_at_ns, synced_ns;
    uint32_t seq;
    unsigned failed; /* probes in this period */
    struct vvi_probe probes[VVI_PROBES];
    unsigned nr_probes;
    struct vvi_relay relays[VVI_RELAYS];
    unsigned nr_relays;
    /* Messages to send. */
    struct vvi_out *outs;
    size_t nr_outs, outs_room, next_out;
    uint8_t *bytes;
    size_t nr_bytes, bytes_room;
    bool building; /* a message is being built */
    bool urgent;   /* a change has to be sent at once ... */
    bool first;    /* ... and no other member has sent it yet */
};

/* ---- member.c ---- */
struct vvi_record *vvi_member_find(struct vv_member *m, uint64_t id);
/* Merges a record from a message. `from_self`: the member itself sent it. */
void vvi_member_merge(struct vv_member *m, const struct vvi_record *r, bool from_self);
void vvi_member_suspect(struct vv_member *m, struct vvi_record *r);
void vvi_member_set_rank(struct vv_member *m, struct vvi_record *r, enum vvi_member_rank rank);
/* Digest of the members and their lives: equal tables have equal digests. */
uint64_t vvi_member_digest(struct vv_member *m);
uint64_t vvi_member_draw(struct vv_member *m, uint64_t below);
/* Advances time. After a long pause of this process, deadlines are dropped. */
void vvi_member_at(struct vv_member *m, uint64_t now_ns);
/* At the end of each call: updates the fence, and sends urgent news. */
void vvi_member_settle(struct vv_member *m);

/* ---- member_probe.c ---- */
void vvi_member_probe(struct vv_member *m, uint64_t id);
void vvi_member_acked(struct vv_member *m, uint32_t seq, uint64_t target);
void vvi_member_relay(struct vv_member *m, uint64_t his, uint32_t his_seq, uint64_t target);
/* Sends our table to a member, and asks for its table. */
void vvi_member_sync(struct vv_member *m, uint64_t to, bool want);

/* ---- member_wire.c ---- */
struct vvi_member_head {
    uint8_t kind;
    uint16_t nr;
    uint32_t seq;
    uint64_t from, target, digest;
};

#define VVI_MEMBER_HEAD 32u

/* Builds a message to `to`: begin, put records while they fit, end. */
void vvi_member_begin(struct vv_member *m, uint64_t to, enum vvi_member_kind kind, uint32_t seq,
                      uint64_t target);
bool vvi_member_put(struct vv_member *m, const struct vvi_record *r);
void vvi_member_end(struct vv_member *m);
/* -EBADMSG. */
VV_WARN_UNUSED int vvi_member_head(const uint8_t *p, size_t bytes,
                                   struct vvi_member_head *ret_head);
/* Decodes the record at *io_at and moves past it. -EBADMSG. */
VV_WARN_UNUSED int vvi_member_get(const uint8_t *p, size_t bytes, size_t *io_at,
                                  struct vvi_record *ret_record);

#endif
