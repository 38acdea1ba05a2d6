/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internals of net/: frames, connections, peers, calls, and the table of functions that a backend is.
 *
 * Ownership: connections, and the state of a backend, belong to the I/O thread. Peers are in a table under net->lock;
 * only the I/O thread removes them. A call belongs to the thread that started it, and is in a table under net->lock
 * until it ends. A backend that receives its data has a reference of its own, so that the end of a call never frees
 * memory during a transfer. Other threads submit frames to the I/O thread by net->inbox.
 */
#ifndef VV_NET_NET_PRIVATE_H
#define VV_NET_NET_PRIVATE_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "base/lock.h"
#include "base/table.h"
#include "net/net.h"
#include "net/pace.h"

/* ---- frames: docs/format/net.md ---- */

#define VVI_NET_MAGIC     UINT32_C(0x314e5656) /* "VVN1" */
#define VVI_NET_HEAD      64u                  /* bytes of a header on the wire */
#define VVI_NET_PROOF_MAX 128u                 /* bytes of a body before the token is proved */
#define VVI_NET_BULK_BODY 2048u                /* bytes of a body that comes with bulk data */

enum vvi_net_kind {
    VVI_HELLO = 1,
    VVI_CHALLENGE,
    VVI_PROOF,
    VVI_WELCOME,
    VVI_DENY,
    VVI_MESSAGE,
    VVI_REQUEST,
    VVI_ANSWER,
    VVI_BYE,
    VVI_REACH, /* address for bulk data that does not use this connection */
    VVI_KINDS
};

#define VVI_FLAG_ANY_EPOCH 1u
#define VVI_FLAG_REFUSED   2u /* an answer of the transport, not of the peer's program */
#define VVI_FLAG_APART     4u /* an answer whose data comes by UCX */
#define VVI_FLAG_NO_SUM    8u /* data without a checksum: the asking side compares one of its own */

struct vvi_head {
    uint8_t kind;
    uint16_t type;
    uint32_t flags;
    uint64_t id; /* of the call */
    uint64_t epoch;
    int32_t status;
    uint32_t body_bytes;
    uint64_t data_bytes; /* of an answer: that follow; of a request: that it accepts */
    uint64_t data_sum;   /* of an answer: the data's; of a request: the time left, ns */
};

/* The checksum covers the header and the body. */
void vvi_head_encode(const struct vvi_head *h, const void *body, uint8_t ret_wire[VVI_NET_HEAD]);
/* -EBADMSG: not a header, or sizes above the limits (`proved`: the peer has proved the token). */
VV_WARN_UNUSED int vvi_head_decode(const uint8_t wire[VVI_NET_HEAD], bool proved,
                                   struct vvi_head *ret_head);
bool vvi_head_check(const uint8_t wire[VVI_NET_HEAD], const void *body, size_t body_bytes);

/* A frame to be sent. Owned by the code that holds the pointer; queues are lists of frames. */
struct vvi_frame {
    struct vvi_frame *next;
    uint64_t peer;   /* not 0: goes out on our connection to this peer; or ... */
    uint64_t serial; /* ... on this connection */
    uint64_t call;   /* of its request, or 0 */
    bool answer;     /* counts as one of conn->serving */
    /* Bulk data: memory of the pool, or a range of a file. */
    void *data;
    size_t data_room;
    int fd;
    bool spoiled; /* the file ended early or cannot be read: zeros are sent instead, and the
                  * checksum is wrong */
    uint64_t offset, data_bytes;
    size_t head_bytes; /* header and body */
    uint64_t done;     /* bytes that a backend has sent */
    uint8_t bytes[];
};

/* Copies the body. NULL: no memory. */
struct vvi_frame *vvi_frame_new(const struct vvi_head *h, const void *body);
/* On the I/O thread, or before the frame was submitted to it. */
void vvi_frame_free(struct vv_net *net, struct vvi_frame *f);

/* ---- addresses ---- */

struct vvi_addr {
    struct sockaddr_storage sa;
    socklen_t bytes;
};

/* -EINVAL: no address, or a name that cannot be resolved. */
VV_WARN_UNUSED int vvi_addr_parse(const char *text, struct vvi_addr *ret_addr);
uint16_t vvi_addr_port(const struct vvi_addr *a);
/* The same host as in `text`, with this port. */
void vvi_addr_with_port(const char *text, uint16_t port, char ret_text[VV_NET_ADDR_MAX + 1]);

/* ---- connections ---- */

enum vvi_conn_state {
    CONN_CONNECTING, /* ours: not connected yet */
    CONN_HELLO,      /* ours: sent HELLO, waiting for a challenge */
    CONN_PROVING,    /* ours: answered it, waiting for WELCOME */
    CONN_ACCEPTED,   /* theirs: waiting for its name */
    CONN_CHALLENGED, /* theirs: waiting for the proof */
    CONN_OPEN,
    CONN_DENIED, /* refused; ends when the other side closes it, or at its deadline */
};

struct vvi_conn {
    VV_TABLE_ITEM(serial); /* never used again */
    struct vv_net *net;
    enum vvi_conn_state state;
    struct vvi_peer *peer; /* ours: the peer */
    /* For one caller at a time (direct.c), beside the connection that shows the peer's state. */
    bool direct;
    uint64_t from;        /* theirs: the id that it gave */
    uint64_t deadline_ns; /* it must be open by then */
    uint8_t nonce[2][16]; /* of the connecting side, and of the other */
    unsigned serving;     /* its requests that are not answered yet */
    struct vvi_conn *next, *prev;
    void *io;    /* the backend's */
    void *apart; /* of UCX */
};

/* Called by a backend, on the I/O thread. After an error the backend must stop what it is doing with this connection,
 * and call vvi_conn_broken with that error when the connection can be freed. */
struct vvi_conn *vvi_conn_accepted(struct vv_net *net); /* NULL: the limit is reached */
VV_WARN_UNUSED int vvi_conn_connected(struct vvi_conn *c);
/* A frame without data. */
VV_WARN_UNUSED int vvi_conn_frame(struct vvi_conn *c, const struct vvi_head *h,
                                  const uint8_t wire[VVI_NET_HEAD], const void *body);
/* An answer with data comes. Returns its call, with a reference and memory for it in `call->data`; NULL: the call
 * has ended, and the data is dropped. *ret_rc: as above. */
struct vv_net_call *vvi_conn_data(struct vvi_conn *c, const struct vvi_head *h,
                                  const uint8_t wire[VVI_NET_HEAD], const void *body, int *ret_rc);
/* The data has come, or will not (rc). Gives the reference back. */
void vvi_conn_data_end(struct vv_net *net, struct vv_net_call *call, int rc);
/* The connection is unusable: frees it, through ops->disconnect. The caller must not use it any more. */
void vvi_conn_broken(struct vvi_conn *c, int err);

/* ---- backends ---- */

struct vvi_net_ops {
    bool from_memory; /* bulk data is sent from memory, never from a file */
    /* Listens. *ret_port: the actual port. */
    int (*open)(struct vv_net *net, const struct vvi_addr *listen, char *err, size_t err_bytes,
                void **ret_io, uint16_t *ret_port);
    void (*close)(void *io); /* the I/O thread has ended, or was never started */
    /* Begins to connect; vvi_conn_connected or vvi_conn_broken follows, after this call. */
    int (*connect)(void *io, struct vvi_conn *c, const struct vvi_addr *addr);
    /* Takes ownership of the frame. Errors are reported later. */
    void (*send)(void *io, struct vvi_conn *c, struct vvi_frame *f);
    /* Frames that wait to be sent. */
    unsigned (*queued)(const struct vvi_conn *c);
    void (*disconnect)(void *io, struct vvi_conn *c);
    /* Waits for events, until `until_ns` at most, and handles them. */
    void (*poll)(void *io, uint64_t until_ns);
    /* UCX for bulk data; all of them may be NULL: our connection is open; a peer has sent its UCX address; the data
     * of an answer will come by UCX (takes the reference to its call); it will not (returns the reference, or
     * NULL). */
    void (*opened)(void *io, struct vvi_conn *c);
    void (*reached)(void *io, struct vvi_conn *c, const void *body, size_t bytes);
    void (*expect)(void *io, struct vvi_conn *c, uint64_t id, struct vv_net_call *call,
                   uint64_t bytes);
    struct vv_net_call *(*give_up)(void *io, const struct vvi_conn *c, uint64_t id);
    void (*wake)(void *io); /* any thread: poll returns */
};

extern const struct vvi_net_ops vvi_net_tcp;
extern const struct vvi_net_ops vvi_net_ucx;
/* 0, or -ENOTSUP. */
int vvi_net_ucx_check(char *err, size_t err_bytes);

/* ---- calls ---- */

struct vv_net_call {
    VV_TABLE_ITEM(id);
    struct vv_net *net;
    uint64_t peer, deadline_ns, started_ns; /* immutable */
    size_t data_max;                        /* immutable */
    bool paced, no_sum;                     /* immutable */
    struct vvi_direct *direct; /* of the thread that waits; NULL: the I/O thread sends it */
    void *dst;
    int dst_fd;
    uint64_t dst_offset;
    /* Synchronization: net->lock. */
    unsigned refs;
    uint64_t serial; /* of the connection that it went out on; 0: not sent yet */
    bool done, receiving, verified;
    int rc;
    struct vv_cond *waiter; /* of the thread that waits */
    /* Written by the thread that receives the answer before `done`, not changed afterwards. */
    struct vv_net_answer answer;
    int refused;   /* the reason, if the peer's transport refused it */
    bool unsummed; /* the data has no checksum */
    void *body;
    void *data; /* from net->pool */
    size_t data_room, data_bytes;
};

void vvi_call_unref(struct vv_net_call *call);
/* Ends the call with the status of an answer, whose body is in call->body. */
void vvi_call_answered(struct vv_net_call *call, const struct vvi_head *h);
/* Ends the call unless it has ended. Takes the lock. */
void vvi_call_finish(struct vv_net *net, struct vv_net_call *call, int rc);
/* Finds a call and takes a reference; NULL: it has ended, or went out on another connection. */
struct vv_net_call *vvi_call_find(struct vv_net *net, uint64_t id, uint64_t serial);
/* Ends calls that went out on a connection (serial), or that wait for a peer, or, if both are 0, all. */
void vvi_calls_fail(struct vv_net *net, uint64_t serial, uint64_t peer, int rc);
/* True if it has not ended yet. */
bool vvi_call_goes_on(struct vv_net *net, uint64_t id);
/* False: it has ended, and need not be sent. */
bool vvi_call_sending(struct vv_net *net, uint64_t id, uint64_t serial);

/* ---- direct connections ---- */

/* Takes an idle one, or returns NULL; then one is made for later calls. */
struct vvi_direct *vvi_direct_take(struct vv_net *net, uint64_t peer);
/* On the I/O thread: true if one has to be made now; then vvi_direct_made follows. */
bool vvi_direct_begin(struct vv_net *net, struct vvi_peer *p);
/* On the I/O thread: one was made, or (-1) that failed. Takes ownership of the descriptor. */
void vvi_direct_made(struct vv_net *net, uint64_t peer, int fd);
/* Closes idle ones, to a peer or (0) to all. */
void vvi_direct_close(struct vv_net *net, uint64_t peer);
/* On the I/O thread: closes connections that have been idle for too long. */
void vvi_direct_expire(struct vv_net *net, uint64_t now_ns);
/* -ECONNRESET: the connection is unusable. */
VV_WARN_UNUSED int vvi_direct_send(struct vvi_direct *d, const struct vvi_frame *f);
/* Waits until the call has ended: 0, and its connection is given back or closed. -EAGAIN: not yet. */
VV_WARN_UNUSED int vvi_direct_wait(struct vv_net_call *call, uint64_t until_ns);
/* Ends the call's use of its connection, in any state. */
void vvi_direct_end(struct vv_net_call *call);

/* Takes memory for bulk data, which the pool reuses. NULL: none. */
void *vvi_pool_take(struct vv_net *net, size_t bytes, size_t *ret_room);
void vvi_pool_give(struct vv_net *net, void *p, size_t room);
/* Bytes that are in use. */
uint64_t vvi_pool_out(struct vv_net *net);

/* ---- peers ---- */

struct vvi_peer {
    VV_TABLE_ITEM(id);
    /* Synchronization: net->lock. */
    struct vvi_addr addr;
    unsigned flags;
    bool dirty;   /* its address is new, and the I/O thread has not handled that yet */
    bool dropped; /* the I/O thread has to remove it */
    bool pausing; /* the last attempt failed, and the next one is not due */
    bool open;    /* there is a connection */
    bool make_direct, making_direct; /* the I/O thread has to make a direct one; is making it */
    uint64_t direct_at_ns;           /* no attempt before this: the last one failed */
    int why;                         /* error of the last attempt */
    unsigned queued;
    struct vvi_pace pace;
    /* Used by the I/O thread only. */
    struct vvi_conn *conn;
    struct vvi_frame *first, **last; /* until the connection is open */
    uint64_t retry_at_ns, pause_ns;  /* retry_at_ns 0: not pausing */
    unsigned probes; /* attempts left to find out if it runs, even without frames to send */
};

struct vvi_peer *vvi_peer_find_locked(struct vv_net *net, uint64_t id);
/* A peer has connected to us: try to connect at once. */
void vvi_peer_seen(struct vv_net *net, uint64_t id);
/* A connection of ours to it has ended. */
void vvi_peer_lost(struct vv_net *net, struct vvi_peer *p, bool was_open, int err);
/* A connection that it had to us has ended: connects to see if it still runs, unless there is a connection or an
 * attempt is due already. */
void vvi_peer_probe(struct vv_net *net, uint64_t id);
void vvi_peer_opened(struct vv_net *net, struct vvi_peer *p);

/* ---- struct vv_net ---- */

enum { VVI_POOL_MAX = 16 };

struct vvi_net_counts {
    _Atomic uint64_t sent, received, sent_bytes, received_bytes;
    _Atomic uint64_t timeouts, resets, stale, denied, malformed, bad_sums, dropped;
    _Atomic uint64_t connected, accepted, apart_bytes;
};

struct vv_net {
    /* Immutable once open. */
    struct vv_net_opts opts;
    const struct vvi_net_ops *ops;
    enum vv_net_transport transport;
    void *io;
    uint8_t token[VV_NET_TOKEN_MAX];
    char addr[VV_NET_ADDR_MAX + 1];
    pthread_t thread;
    bool stopped; /* the thread has been joined */
    /* Synchronization: relaxed. A message may carry a slightly older epoch. */
    _Atomic uint64_t epoch;
    _Atomic uint64_t next_call;
    struct vvi_net_counts count;

    struct vv_mutex lock; /* rank NET: never held across a system call */
    /* Synchronization: lock. */
    struct vvi_frame *inbox, **inbox_last;
    bool stopping, woken, peers_dirty;
    struct vv_table peers;
    unsigned nr_peers;     /* without dropped ones */
    struct vv_table calls; /* that have not ended */
    uint64_t nr_open_calls,
        nr_reqs; /* objects that callers own: all must be freed before vv_net_free */
    struct {
        void *p;
        size_t room;
    } pool[VVI_POOL_MAX];
    unsigned nr_pool;
    struct vvi_direct *direct; /* idle ones, last used first */
    unsigned nr_direct;        /* all of them */
    uint64_t pool_out;         /* bytes taken from the pool */

    /* Used by the I/O thread only. */
    struct vvi_conn *conns;
    struct vv_table by_serial;
    uint64_t next_serial, timer_ns;
    uint64_t log_denied_ns; /* earliest time of the next message about a refused token */
    unsigned nr_conns;
};

#define vvi_count(net, what, n) \
    atomic_fetch_add_explicit(&(net)->count.what, n, memory_order_relaxed)

/* Submits a frame to the I/O thread. -ESHUTDOWN: the caller still owns it. */
int vvi_net_submit(struct vv_net *net, struct vvi_frame *f);
/* On the I/O thread: makes the timer fire at this time at the latest. */
void vvi_net_at(struct vv_net *net, uint64_t ns);
void vvi_net_tell(struct vv_net *net, uint64_t peer, enum vv_net_change change, int err);
struct vvi_conn *vvi_conn_new(struct vv_net *net);
struct vvi_conn *vvi_conn_find(struct vv_net *net, uint64_t serial);
void vvi_conn_send(struct vvi_conn *c, struct vvi_frame *f);
/* Ends connections that have not opened in time. */
void vvi_conns_expire(struct vv_net *net, uint64_t now_ns);
void vvi_peers_work(struct vv_net *net, uint64_t now_ns);
void vvi_peer_submit(struct vv_net *net, struct vvi_frame *f);
void vvi_peers_free(struct vv_net *net);

#endif
