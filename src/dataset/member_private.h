/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the membership state machine: member.c, member_probe.c, member_wire.c. */
#ifndef VV_DATASET_MEMBER_PRIVATE_H
#define VV_DATASET_MEMBER_PRIVATE_H

#include "dataset/member.h"

enum vvi_member_kind {
    MEMBER_PING = 1,  /* answer with ACK */
    MEMBER_ACK,       /* `target` answered: the sender, or whom it pinged for us */
    MEMBER_PING_REQ,  /* ping `target` for me */
    MEMBER_NEWS,      /* records, nothing to answer */
    MEMBER_TABLE,     /* a piece of the sender's table */
    MEMBER_TABLE_REQ, /* the same; and he wants ours */
    MEMBER_KINDS
};

/* RANK_UP covers ALIVE and SUSPECT. */
enum vvi_member_rank { RANK_UP, RANK_DEAD, RANK_GONE, RANK_FORGOTTEN, RANKS };

struct vvi_record {
    /* What travels. */
    struct vv_member_info info;
    uint32_t life, refutation;
    uint8_t rank;
    bool suspect;
    /* What does not. */
    unsigned tell;     /* how many more messages it rides on */
    uint64_t since_ns; /* when it came to be suspected or dead, as seen here */
    bool
        discounted; /* dead for so long, or fenced from for so long, that it does not count any more */
};

struct vvi_probe {
    uint64_t id;
    uint32_t life; /* that he was asked in */
    uint32_t seq;
    bool asked;           /* others were asked */
    uint64_t indirect_ns; /* when to ask them */
    uint64_t end_ns;      /* when it counts as failed */
};

/* Whom we ping for somebody else. */
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
    struct vv_member_opts opts; /* without defaults */
    uint64_t now_ns, rng;
    bool left;
    struct vvi_record *all; /* in the order of their numbers */
    size_t nr, room, self;  /* self: its index */
    uint64_t version;
    uint64_t counted, sum, digest; /* the version that the other two are of */
    bool fenced;
    uint64_t fenced_ns; /* since when */
    uint64_t period_at_ns, dead_probe_at_ns, synced_ns;
    uint32_t seq;
    unsigned failed; /* probes in this period */
    struct vvi_probe probes[VVI_PROBES];
    unsigned nr_probes;
    struct vvi_relay relays[VVI_RELAYS];
    unsigned nr_relays;
    /* What is to be sent. */
    struct vvi_out *outs;
    size_t nr_outs, outs_room, next_out;
    uint8_t *bytes;
    size_t nr_bytes, bytes_room;
    bool building; /* a message that is being put together */
    bool urgent;   /* something has changed that others shall hear at once ... */
    bool first;    /* ... and we are the first to know */
};

/* ---- member.c ---- */
struct vvi_record *vvi_member_find(struct vv_member *m, uint64_t id);
/* Takes a record that somebody sent into account. `himself`: it is his own. */
void vvi_member_merge(struct vv_member *m, const struct vvi_record *r, bool himself);
void vvi_member_suspect(struct vv_member *m, struct vvi_record *r);
void vvi_member_set_rank(struct vv_member *m, struct vvi_record *r, enum vvi_member_rank rank);
/* Of who is there, in which life: equal tables have equal ones. */
uint64_t vvi_member_digest(struct vv_member *m);
uint64_t vvi_member_draw(struct vv_member *m, uint64_t below);
/* Time goes on; what was due while we were not there is forgotten. */
void vvi_member_at(struct vv_member *m, uint64_t now_ns);
/* At the end of each call: fencing, and news to those who shall hear at once. */
void vvi_member_settle(struct vv_member *m);

/* ---- member_probe.c ---- */
void vvi_member_probe(struct vv_member *m, uint64_t id);
void vvi_member_acked(struct vv_member *m, uint32_t seq, uint64_t target);
void vvi_member_relay(struct vv_member *m, uint64_t his, uint32_t his_seq, uint64_t target);
/* Sends our table to somebody, and asks for his. */
void vvi_member_sync(struct vv_member *m, uint64_t to, bool want);

/* ---- member_wire.c ---- */
struct vvi_member_head {
    uint8_t kind;
    uint16_t nr;
    uint32_t seq;
    uint64_t from, target, digest;
};

#define VVI_MEMBER_HEAD 32u

/* A message to `to`: begun, filled with records while they fit, ended. */
void vvi_member_begin(struct vv_member *m, uint64_t to, enum vvi_member_kind kind, uint32_t seq,
                      uint64_t target);
bool vvi_member_put(struct vv_member *m, const struct vvi_record *r);
void vvi_member_end(struct vv_member *m);
/* -EBADMSG. */
VV_WARN_UNUSED int vvi_member_head(const uint8_t *p, size_t bytes,
                                   struct vvi_member_head *ret_head);
/* The record at *io_at; moves it on. -EBADMSG. */
VV_WARN_UNUSED int vvi_member_get(const uint8_t *p, size_t bytes, size_t *io_at,
                                  struct vvi_record *ret_record);

#endif
