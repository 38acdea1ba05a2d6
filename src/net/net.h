/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages and bulk data between the nodes of one job.
 *
 * A node opens one `struct vv_net`. It listens at one address, and has one connection of its own to each peer that it
 * sends to. The connection is made when there is something to send (or kept up, see VV_NET_KEEP), and made again,
 * with growing pauses, when it is lost. A node's requests go out on its own connection and are answered there; a peer
 * uses its own connection for its requests. So two nodes never have to choose between two connections that cross.
 *
 * Three kinds of data:
 *
 *   a message    one way, at most once. Lost with the connection; the sender must be able to do without it
 *   a request    answered at most once, or it ends with an error: at its deadline (-ETIMEDOUT), with its
 *                connection (-ECONNRESET), or refused. Then it is unknown whether it was carried out
 *   an answer    a status, a body, and if the request allows it bulk data, of a range of a file or of
 *                memory. Bulk data is only sent on request, so that the receiver always has room for it
 *
 * Invariants:
 *   - Bulk data is delivered whole and with the checksum (XXH3) that the sender computed, or not at all; a caller may do
 *     without this checksum (VV_NET_NO_SUM). Headers and bodies have a checksum too. A descriptor or buffer of the
 *     caller is written only after the checksum was found right.
 *   - Only peers with the job's token are accepted. Both sides prove it by a keyed hash of numbers that both chose; the
 *     token itself is never sent. It separates jobs and users. It does not protect against an attacker who can change
 *     packets on the way.
 *   - Every frame has the membership epoch of its sender. A receiver with a newer epoch refuses the request: -ESTALE,
 *     and the answer has the newer epoch. An epoch newer than our own is reported to `events.epoch`.
 *   - Input is limited before it is used: header, body, data, number of requests. Malformed input ends its connection
 *     and has no other effect.
 *   - Every request that started ends. No queue grows without limit: when one is full, more is refused (-EAGAIN).
 *   - A slow peer does not slow down others.
 *
 * Threads: one of its own, the I/O thread, which does all the I/O except that of direct connections (VV_NET_DIRECT),
 * and calls `events`. Every function may be called by any thread unless it is noted otherwise. None blocks except
 * vv_net_open, vv_net_stop, vv_net_free, vv_net_wait, vv_net_wait_any, vv_net_call, vv_net_peer_set with an address
 * that is a name and, for as long as reading a file takes, vv_net_respond.
 *
 * A peer's id is a 64-bit number that means the same node everywhere (vv_place_node_id of its name). Data between nodes
 * never refers to memory or tables of another node: files are named by path and generation. Byte order on the wire is
 * little endian; docs/format/net.md has the format.
 *
 * Two backends (net_private.h has the table): TCP, and TCP with UCX for bulk data, which is opened at run time
 * and also has RDMA. Nodes of both understand each other.
 */
#ifndef VV_NET_NET_H
#define VV_NET_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/util.h"

#define VV_NET_ADDR_MAX  127u                /* "host:port", "[fe80::1]:port" */
#define VV_NET_BODY_MAX  (256u << 10)        /* bytes, of any message */
#define VV_NET_DATA_MAX  (UINT64_C(1) << 30) /* bytes of one answer */
#define VV_NET_TOKEN_MIN 16u                 /* bytes */
#define VV_NET_TOKEN_MAX 1024u

enum vv_net_transport { VV_NET_AUTO, VV_NET_TCP, VV_NET_UCX, VV_NET_TRANSPORTS };

const char *vv_net_transport_name(enum vv_net_transport t);
VV_WARN_UNUSED int vv_net_transport_parse(const char *name, enum vv_net_transport *ret_transport);
/* 0, or -ENOTSUP with the reason in `err`: not in this build, or its library is not on this machine. */
int vv_net_transport_check(enum vv_net_transport t, char *err, size_t err_bytes);

struct vv_net;
struct vv_net_call;
struct vv_net_req;

/* Changes in the state of a peer. */
enum vv_net_change {
    VV_NET_UP, /* our connection to it is made, both have proved the token */
    VV_NET_LOST, /* our connection, or one that it made to us, broke; the next attempt begins at once */
    VV_NET_REFUSED,     /* its machine answers that no process listens there: it has ended */
    VV_NET_UNREACHABLE, /* no connection within connect_ns, or no way to it */
    VV_NET_DENIED,      /* it has another token, name or version */
    VV_NET_BYE,         /* it has closed regularly */
};

struct vv_net_msg {
    uint64_t from;  /* proved to be of this job; the id itself is not proved */
    uint64_t epoch; /* of the sender */
    uint16_t type;  /* the caller's */
    const void *body;
    size_t body_bytes;
};

/* Called on the I/O thread unless noted, with no lock held. They may call all functions here that do not block, and
 * must not block themselves: all peers would wait. Any of them may be NULL. */
struct vv_net_events {
    void *user;
    /* A request. Any thread must answer it once, at any time, with vv_net_respond. The body is valid until then. */
    void (*request)(void *user, struct vv_net_req *req, const struct vv_net_msg *m);
    /* A message; it is valid until this returns. */
    void (*message)(void *user, const struct vv_net_msg *m);
    void (*peer)(void *user, uint64_t peer, enum vv_net_change change, int err);
    /* A peer has a newer epoch than we do. Also called by threads that wait for an answer. */
    void (*epoch)(void *user, uint64_t from, uint64_t epoch);
};

struct vv_net_opts {
    enum vv_net_transport transport; /* AUTO: TCP */
    const char *listen;              /* "host:port"; port 0: any */
    uint64_t self;
    const void *token; /* copied */
    size_t token_bytes;
    struct vv_net_events events;
    /* Limits; 0: the defaults below. */
    unsigned peers_max;   /* 4096 */
    unsigned queue_max;   /* frames that wait for one peer: 1024 */
    unsigned serving_max; /* requests of one peer that wait for our answer: 256 */
    /* Bytes of answers that wait in memory to be sent: 256 MiB. Above that they are sent from the file, which
     * takes longer. */
    uint64_t memory_max;
    uint64_t connect_ns;   /* until a connection is made and proved: 2 s */
    uint64_t retry_ns;     /* the first pause before connecting again: 20 ms, doubling to ... */
    uint64_t retry_max_ns; /* 1 s */
    uint64_t idle_ns;      /* a direct connection without use for so long is closed: 10 s */
};

/* Listens, and starts the thread. -ENOTSUP: no such backend here; -EADDRINUSE and other errors of sockets; -EINVAL;
 * each with a text in `err`. With UCX it may set variables UCX_* that are not set: call it before other threads read
 * the environment. */
VV_WARN_UNUSED int vv_net_open(const struct vv_net_opts *opts, char *err, size_t err_bytes,
                               struct vv_net **ret_net);
/* Sends a goodbye, ends every call (-ESHUTDOWN), and returns when the thread has ended, within about a second, whatever
 * the peers do. No callback comes after it. To be called once. */
void vv_net_stop(struct vv_net *net);
/* Stops the net if that was not done. Every call must have been ended and every request answered. Accepts NULL. */
void vv_net_free(struct vv_net *net);

/* Its address: the host of `listen`, with the actual port. Immutable. */
const char *vv_net_addr(const struct vv_net *net);
enum vv_net_transport vv_net_transport_of(const struct vv_net *net);

/* Sets the epoch of all frames from here on. */
void vv_net_set_epoch(struct vv_net *net, uint64_t epoch);
uint64_t vv_net_epoch(const struct vv_net *net);

/* ---- peers ---- */

#define VV_NET_KEEP 1u /* keep a connection up, so that its end is noticed at once */

/* Adds a peer with its address and flags, or changes these. -EINVAL: not an address; -ENOSPC: peers_max. Looks up
 * names, which may block; numeric addresses do not. */
VV_WARN_UNUSED int vv_net_peer_set(struct vv_net *net, uint64_t peer, const char *addr,
                                   unsigned flags);
/* True if vv_net_peer_set takes it without looking up a name. */
bool vv_net_addr_is_numeric(const char *addr);
/* Removes a peer: its connection is closed, its calls end with -ECONNRESET. */
void vv_net_peer_drop(struct vv_net *net, uint64_t peer);

/* ---- sending ---- */

#define VV_NET_ANY_EPOCH 1u /* not refused for its epoch */
#define VV_NET_SLOW \
    2u /* takes as long as work at the peer does: does not count for vv_net_patience_ns */

/* The calling thread sends and receives itself, on a connection that it alone uses meanwhile, if there is one: for
 * short requests that may be repeated. -ECONNRESET may be of that connection alone. The thread that started the call
 * must wait, with vv_net_wait, which is accurate to 10 ms. */
#define VV_NET_DIRECT 4u
/* Bulk data comes without a checksum: the caller has one of its own, and compares it. */
#define VV_NET_NO_SUM 8u

/* Sends a message. The body is copied. -ENOENT: no such peer; -EMSGSIZE; -EAGAIN: its queue is full; -ENOTCONN: not
 * connected, and the last attempt has just failed; -ENOMEM, -ESHUTDOWN. */
int vv_net_send(struct vv_net *net, uint64_t peer, uint16_t type, const void *body,
                size_t body_bytes);

struct vv_net_ask {
    uint64_t peer;
    uint16_t type;
    unsigned flags;
    const void *body; /* copied */
    size_t body_bytes;
    uint64_t deadline_ns; /* vv_now_ns(); see vv_net_patience_ns */
    /* Most bulk data that the answer may have; 0: none. More ends the call with -EMSGSIZE. */
    size_t data_max;
    /* Destination of the data once it is verified. Without `dst` and `dst_fd`, use the answer's `data`. */
    void *dst;  /* data_max bytes */
    int dst_fd; /* -1 or, if dst is NULL, a file; written by the thread that waits */
    uint64_t dst_offset;
};

#define VV_NET_ASK_INIT \
    {                   \
        .dst_fd = -1    \
    }

struct vv_net_answer {
    int status;     /* set by the peer: 0 or a negative errno */
    uint64_t epoch; /* the peer's */
    const void *body;
    size_t body_bytes;
    const void *data; /* in the call's own memory or in dst; NULL after dst_fd */
    size_t data_bytes;
    uint64_t data_sum; /* vv_hash64 of the data; with VV_NET_NO_SUM 0 */
};

/* Begins a request. -ENOENT, -EMSGSIZE, -EAGAIN, -ENOTCONN, -ENOMEM, -ESHUTDOWN as above. */
VV_WARN_UNUSED int vv_net_start(struct vv_net *net, const struct vv_net_ask *ask,
                                struct vv_net_call **ret_call);
/* Waits for the end of a call, until `until_ns` at most. 0: there is an answer with any status, valid until vv_net_end.
 * One thread at a time; may be called again after -EAGAIN.
 *   -EAGAIN      until_ns has come and the call has not ended
 *   -ETIMEDOUT   its deadline has come
 *   -ECONNRESET  the peer is gone, or its connection; -ECONNREFUSED, -EHOSTUNREACH, -EACCES: there was none
 *   -ESTALE      our epoch is older than the peer's; `epoch` of the answer is set to it
 *   -EBADMSG     the bytes were damaged on the way
 *   -EMSGSIZE, -ESHUTDOWN, -EBUSY (serving_max), -ENOMEM, errors of writing to dst_fd */
VV_WARN_UNUSED int vv_net_wait(struct vv_net_call *call, uint64_t until_ns,
                               struct vv_net_answer *ret_answer);
/* Waits until one of several has ended (NULLs are skipped): vv_net_wait on it returns at once. -EAGAIN:
 * until_ns has come; -EINVAL: no call. */
VV_WARN_UNUSED int vv_net_wait_any(struct vv_net_call *const *calls, size_t nr, uint64_t until_ns,
                                   size_t *ret_which);
/* Frees it. If it has not ended, its answer will be dropped. Accepts NULL. */
void vv_net_end(struct vv_net_call *call);

/* A whole request in one call, for answers with a short body: start, wait, copy the body, end. `body` has room for
 * `*io_bytes`, which is set to the body's size; -ENOBUFS if that is larger. ret_answer (may be NULL): the answer
 * without its body, and without its data unless `dst` is set. */
VV_WARN_UNUSED int vv_net_call(struct vv_net *net, const struct vv_net_ask *ask, void *body,
                               size_t *io_bytes, struct vv_net_answer *ret_answer);

/* How long to wait for an answer with `bytes` of data from a peer, by the duration of recent such answers; longer after
 * deadlines that passed, at least 20 ms and at most 2 s. For answers that need no further work at the
 * peer. */
uint64_t vv_net_patience_ns(struct vv_net *net, uint64_t peer, uint64_t bytes);

/* ---- answering ---- */

struct vv_net_reply {
    int status;
    const void *body; /* copied; at most 2 KiB if there is bulk data */
    size_t body_bytes;
    /* Bulk data, if any: a range of a file, if data is NULL and data_bytes is not 0 ... */
    int fd; /* duplicated */
    uint64_t offset;
    /* The range is in memory, so no disk has to be waited for. If no checksum is needed, the range is sent from the
     * file and not read before. */
    bool in_memory;
    /* ... or memory, which is copied. */
    const void *data;
    uint64_t data_bytes;
};

/* Answers a request and frees it in any case. Reads the file, unless the I/O thread sends from it (in_memory).
 *   -EMSGSIZE    more data than was asked for, or a body that is too long: answered with this status
 *   -ENODATA     the range exceeds the file: answered with this status
 *   -ECONNRESET  the peer is gone
 *   errors of reading: answered with -EIO */
int vv_net_respond(struct vv_net_req *req, const struct vv_net_reply *reply);
/* The deadline of the asking side; an answer after it is useless. */
uint64_t vv_net_req_deadline_ns(const struct vv_net_req *req);
/* Most data that the asking side accepts. */
uint64_t vv_net_req_data_max(const struct vv_net_req *req);

/* ---- looking ---- */

struct vv_net_stats {
    uint64_t peers, connected; /* of ours; of these, those with a connection of ours */
    uint64_t accepted;         /* connections that peers have to us, without direct ones */
    uint64_t direct;           /* direct connections of ours */
    uint64_t calls;            /* not ended */
    /* Since opening: */
    uint64_t sent, received;             /* frames */
    uint64_t sent_bytes, received_bytes; /* of bulk data */
    uint64_t timeouts, resets, stale, denied, malformed, bad_sums, dropped;
    uint64_t apart_bytes; /* of received_bytes: received by UCX */
};

void vv_net_stats(struct vv_net *net, struct vv_net_stats *ret_stats);

#endif
