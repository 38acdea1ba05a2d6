/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames over TCP: sockets that never block, and epoll. All on the I/O thread, except for waking it up.
 *
 * Receiving: bytes go to one buffer that all connections share, and from there into a header or a body. Once a header
 * announces bulk data, the rest is received straight into the memory of its call. Each connection gets TURN_BYTES in a
 * row, then the next one has its turn (epoll reports the rest again), so that a fast peer does not starve the others.
 *
 * Sending: frames in a list, each of a header, a body and data from memory or, by sendfile, from a range of a file.
 * Bytes that cannot be sent stay until the socket accepts more. If the file is shorter than when its checksum was
 * computed, zeros are sent instead: the stream stays in step, and the receiver's checksum does not match.
 *
 * The UCX backend is this one with UCX for bulk data (ucx.c), whose events are in the same epoll set.
 *
 * A killed peer is noticed by the end of its stream, which its kernel sends. A peer whose machine or link is gone
 * answers nothing: TCP_USER_TIMEOUT ends a connection that has unanswered bytes for so long. On an idle one, such as
 * a peer's connection to us, the probes of SO_KEEPALIVE are such bytes.
 */
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "net/net_private.h"
#include "net/ucx.h"

#define TURN_BYTES      (UINT64_C(1) << 20)
#define BUF_BYTES       (UINT64_C(256) << 10)
#define LOW_BYTES       (UINT64_C(256) << 10) /* of bulk data, that justify a wake-up */
#define USER_TIMEOUT_MS 5000
#define KEEP_IDLE_S     2 /* several probes within USER_TIMEOUT_MS: the loss of one has no effect */
#define KEEP_EVERY_S    1
#define EVENTS          64
#define ACCEPT_PAUSE_NS (100 * VV_NS_PER_MS)

enum { SMALL_BODY = 512 };

struct tcp {
    struct vv_net *net;
    int epoll_fd, wake_fd, listen_fd;
    uint64_t accept_at_ns; /* after running out of descriptors: not before this; 0: now */
    uint8_t *buf;
    struct vvi_ucx *ucx; /* for bulk data, or NULL */
};

enum in_state { IN_HEAD, IN_BODY, IN_DATA };

struct tcp_conn {
    struct vvi_conn *c;
    int fd;
    bool connecting, want_out;
    struct vvi_frame *first, **last;
    unsigned queued;
    /* The frame that is being received. */
    enum in_state in;
    uint8_t head[VVI_NET_HEAD];
    struct vvi_head h;
    uint8_t *body; /* `small`, or allocated */
    uint8_t small[SMALL_BODY];
    struct vv_net_call *call; /* the call that its data is for; NULL: none */
    uint64_t have;            /* bytes of the current part */
    int low;                  /* SO_RCVLOWAT; 0: not set */
};

static const uint8_t zeros[64 << 10];

/* ---- connections ---- */

static int watch(struct tcp *t, struct tcp_conn *k, int op)
{
    struct epoll_event e = {.events = EPOLLIN | (k->want_out ? (uint32_t)EPOLLOUT : 0),
                            .data.ptr = k};

    return epoll_ctl(t->epoll_fd, op, k->fd, &e) < 0 ? -errno : 0;
}

static void want_out(struct tcp *t, struct tcp_conn *k, bool want)
{
    if (k->want_out == want)
        return;
    k->want_out = want;
    (void)watch(t, k, EPOLL_CTL_MOD);
}

static void tune(int fd)
{
    int one = 1, idle_s = KEEP_IDLE_S, every_s = KEEP_EVERY_S;
    unsigned ms = USER_TIMEOUT_MS;

    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof(every_s));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
}

/* Takes ownership of the descriptor in any case. */
static int attach(struct tcp *t, struct vvi_conn *c, int fd, bool connecting)
{
    struct tcp_conn *k = calloc(1, sizeof(*k));
    int rc;

    if (!k) {
        close(fd);
        return -ENOMEM;
    }
    *k = (struct tcp_conn){
        .c = c, .fd = fd, .connecting = connecting, .want_out = connecting, .last = &k->first};
    tune(fd);
    rc = watch(t, k, EPOLL_CTL_ADD);
    if (rc) {
        close(fd);
        free(k);
        return rc;
    }
    c->io = k;
    return 0;
}

static int tcp_connect(void *io, struct vvi_conn *c, const struct vvi_addr *addr)
{
    int fd = socket(addr->sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -errno;
    if (connect(fd, (const struct sockaddr *)&addr->sa, addr->bytes) < 0 && errno != EINPROGRESS) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    return attach(io, c, fd, true);
}

static void free_body(struct tcp_conn *k)
{
    if (k->body != k->small)
        free(k->body);
    k->body = NULL;
}

static void tcp_disconnect(void *io, struct vvi_conn *c)
{
    struct tcp *t = io;
    struct tcp_conn *k = c->io;

    if (t->ucx)
        vvi_ucx_part(t->ucx, c);
    if (!k)
        return;
    if (k->call)
        vvi_conn_data_end(t->net, k->call, -ECONNRESET);
    free_body(k);
    while (k->first) {
        struct vvi_frame *f = k->first;
        k->first = f->next;
        vvi_frame_free(t->net, f);
    }
    if (k->fd >= 0)
        close(k->fd);
    free(k);
    c->io = NULL;
}

/* ---- sending ---- */

static unsigned tcp_queued(const struct vvi_conn *c)
{
    const struct tcp_conn *k = c->io;

    return k ? k->queued + vvi_ucx_queued(c) : 0;
}

static ssize_t send_data(struct tcp_conn *k, struct vvi_frame *f, uint64_t at)
{
    size_t n = (size_t)VV_MIN(f->data_bytes - at, TURN_BYTES);
    off_t offset = (off_t)(f->offset + at);
    ssize_t sent;

    if (f->data)
        return send(k->fd, (uint8_t *)f->data + at, n, MSG_NOSIGNAL);
    if (!f->spoiled) {
        sent = sendfile(k->fd, f->fd, &offset, n);
        if (sent > 0 || (sent < 0 && (errno == EAGAIN || errno == EINTR || errno == EPIPE ||
                                      errno == ECONNRESET || errno == ETIMEDOUT)))
            return sent;
        f->spoiled = true;
    }
    return send(k->fd, zeros, VV_MIN(n, sizeof(zeros)), MSG_NOSIGNAL);
}

/* Sends one piece of a frame; returns the result of send. */
static ssize_t send_piece(struct tcp_conn *k, struct vvi_frame *f)
{
    if (f->done < f->head_bytes && f->data) {
        struct iovec iov[2] = {{f->bytes + f->done, f->head_bytes - f->done},
                               {f->data, (size_t)VV_MIN(f->data_bytes, TURN_BYTES)}};
        struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};

        return sendmsg(k->fd, &msg, MSG_NOSIGNAL);
    }
    if (f->done < f->head_bytes)
        return send(k->fd, f->bytes + f->done, f->head_bytes - f->done,
                    MSG_NOSIGNAL | (f->data_bytes || f->next ? MSG_MORE : 0));
    return send_data(k, f, f->done - f->head_bytes);
}

/* 0: all was sent, or the socket accepts no more for now. */
static int flush(struct tcp *t, struct tcp_conn *k)
{
    uint64_t turn = 0;

    while (k->first && turn < TURN_BYTES) {
        struct vvi_frame *f = k->first;
        ssize_t n = send_piece(k, f);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            return -errno;
        if (n < 0)
            break;
        f->done += (uint64_t)n;
        turn += (uint64_t)n;
        if (f->done < f->head_bytes + f->data_bytes)
            continue;
        k->first = f->next;
        if (!k->first)
            k->last = &k->first;
        k->queued--;
        vvi_frame_free(t->net, f);
    }
    want_out(t, k, k->first != NULL);
    return 0;
}

static void tcp_send(void *io, struct vvi_conn *c, struct vvi_frame *f)
{
    struct tcp *t = io;
    struct tcp_conn *k = c->io;
    struct vvi_frame *bare = t->ucx && f->data_bytes ? vvi_ucx_send(t->ucx, c, f) : NULL;
    bool idle = !k->first;

    f = bare ? bare : f;
    f->next = NULL;
    *k->last = f;
    k->last = &f->next;
    k->queued++;
    /* Ignore an error here: poll finds it again, and can free the connection. */
    if (idle && flush(t, k) != 0)
        want_out(t, k, true);
}

/* ---- receiving ---- */

/* While bulk data comes, waking up for each packet would cost more than receiving it. So the kernel wakes this thread
 * when a good piece, or all of the rest, is there. The end of the stream wakes it in any case. */
static void set_low(struct tcp_conn *k)
{
    int low = k->in == IN_DATA ? (int)VV_MIN(k->h.data_bytes - k->have, LOW_BYTES) : 1;

    if (low == (k->low ? k->low : 1))
        return;
    if (setsockopt(k->fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)) == 0)
        k->low = low;
}

/* Handles a complete header and body. */
static int take_frame(struct tcp_conn *k)
{
    int rc = 0;

    if (k->h.kind == VVI_ANSWER && k->h.data_bytes && !(k->h.flags & VVI_FLAG_APART)) {
        k->call = vvi_conn_data(k->c, &k->h, k->head, k->body, &rc);
        k->in = IN_DATA;
    } else {
        rc = vvi_conn_frame(k->c, &k->h, k->head, k->body);
        k->in = IN_HEAD;
    }
    free_body(k);
    k->have = 0;
    return rc;
}

static int take_head(struct tcp_conn *k)
{
    int rc = vvi_head_decode(k->head, k->c->state == CONN_OPEN, &k->h);

    if (rc) {
        vvi_count(k->c->net, malformed, 1);
        return rc;
    }
    k->have = 0;
    k->in = IN_BODY;
    k->body = k->h.body_bytes <= SMALL_BODY ? k->small : malloc(k->h.body_bytes);
    if (!k->body)
        return -ENOMEM;
    return k->h.body_bytes ? 0 : take_frame(k);
}

/* Takes bytes for the current part; returns how many. */
static size_t take_part(struct tcp_conn *k, const uint8_t *p, size_t n)
{
    uint64_t whole = k->in == IN_HEAD   ? VVI_NET_HEAD
                     : k->in == IN_BODY ? k->h.body_bytes
                                        : k->h.data_bytes;
    uint8_t *to = k->in == IN_HEAD   ? k->head
                  : k->in == IN_BODY ? k->body
                  : k->call          ? k->call->data
                                     : NULL;
    size_t take = (size_t)VV_MIN(whole - k->have, n);

    if (to)
        memcpy(to + k->have, p, take);
    k->have += take;
    return take;
}

static void data_came(struct tcp_conn *k)
{
    if (k->have < k->h.data_bytes)
        return;
    if (k->call)
        vvi_conn_data_end(k->c->net, k->call, 0);
    k->call = NULL;
    k->in = IN_HEAD;
    k->have = 0;
}

static int feed(struct tcp_conn *k, const uint8_t *p, size_t n)
{
    int rc = 0;

    while (n > 0 && rc == 0) {
        size_t take = take_part(k, p, n);
        p += take;
        n -= take;
        if (k->in == IN_HEAD && k->have == VVI_NET_HEAD)
            rc = take_head(k);
        else if (k->in == IN_BODY && k->have == k->h.body_bytes)
            rc = take_frame(k);
        else if (k->in == IN_DATA)
            data_came(k);
    }
    return rc;
}

static int receive(struct tcp *t, struct tcp_conn *k)
{
    for (uint64_t turn = 0; turn < TURN_BYTES;) {
        bool direct = k->in == IN_DATA && k->call;
        size_t room = direct ? (size_t)VV_MIN(k->h.data_bytes - k->have, TURN_BYTES) : BUF_BYTES;
        ssize_t n = recv(k->fd, direct ? (uint8_t *)k->call->data + k->have : t->buf, room, 0);
        int rc = 0;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n <= 0)
            return n < 0 ? -errno : -ECONNRESET;
        if (direct) {
            k->have += (uint64_t)n;
            data_came(k);
        } else {
            rc = feed(k, t->buf, (size_t)n);
        }
        if (rc)
            return rc;
        if ((size_t)n < room && (!direct || k->in == IN_DATA))
            break; /* most likely no more is there */
        turn += (uint64_t)n;
    }
    set_low(k);
    return 0;
}

/* ---- the loop ---- */

static int connected(struct tcp *t, struct tcp_conn *k)
{
    int err = 0;
    socklen_t bytes = sizeof(err);

    if (getsockopt(k->fd, SOL_SOCKET, SO_ERROR, &err, &bytes) < 0)
        err = errno;
    if (err)
        return -err;
    k->connecting = false;
    want_out(t, k, false);
    return vvi_conn_connected(k->c);
}

/* A direct connection of ours is open: callers use it from now on. */
static void hand_over(struct tcp *t, struct tcp_conn *k)
{
    uint64_t peer = k->c->peer->id;
    int fd = k->fd;

    (void)epoll_ctl(t->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    k->fd = -1;
    k->c->peer = NULL; /* so that the peer does not count as lost */
    vvi_conn_broken(k->c, 0);
    vvi_direct_made(t->net, peer, fd);
}

static void serve(struct tcp *t, struct tcp_conn *k, uint32_t events)
{
    int rc = 0;

    if (k->connecting) {
        rc = connected(t, k);
    } else {
        /* Receive the bytes before the end first: they may be a goodbye. */
        if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
            rc = receive(t, k);
        if (rc == 0 && events & EPOLLOUT)
            rc = flush(t, k);
    }
    if (rc)
        vvi_conn_broken(k->c, rc);
    else if (k->c->direct && k->c->peer && k->c->state == CONN_OPEN)
        hand_over(t, k);
}

static int watch_listener(struct tcp *t, bool on)
{
    struct epoll_event e = {.events = on ? (uint32_t)EPOLLIN : 0, .data.ptr = t};

    return epoll_ctl(t->epoll_fd, EPOLL_CTL_MOD, t->listen_fd, &e) < 0 ? -errno : 0;
}

static void accept_all(struct tcp *t)
{
    for (unsigned i = 0; i < EVENTS; i++) {
        struct vvi_conn *c;
        int rc, fd = accept4(t->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
                /* They stay in the kernel's queue; an immediate retry would fail the same way. */
                t->accept_at_ns = vv_now_ns() + ACCEPT_PAUSE_NS;
                vvi_net_at(t->net, t->accept_at_ns);
                (void)watch_listener(t, false);
            }
            return;
        }
        c = vvi_conn_accepted(t->net);
        if (!c) {
            close(fd);
            continue;
        }
        rc = attach(t, c, fd, false);
        if (rc)
            vvi_conn_broken(c, rc);
    }
}

static int timeout_ms(uint64_t until_ns)
{
    uint64_t now = vv_now_ns();

    if (until_ns == VV_NEVER_NS)
        return -1;
    if (until_ns <= now)
        return 0;
    return (int)VV_MIN(vv_div_up(until_ns - now, VV_NS_PER_MS), 60000);
}

static void tcp_poll(void *io, uint64_t until_ns)
{
    struct tcp *t = io;
    struct epoll_event events[EVENTS];
    int n;

    if (t->accept_at_ns && vv_now_ns() >= t->accept_at_ns) {
        t->accept_at_ns = 0;
        (void)watch_listener(t, true);
    }
    if (t->ucx)
        vvi_ucx_progress(t->ucx);
    n = epoll_wait(t->epoll_fd, events, EVENTS,
                   t->ucx && !vvi_ucx_may_sleep(t->ucx) ? 0 : timeout_ms(until_ns));
    for (int i = 0; i < n; i++) {
        if (events[i].data.ptr == &t->wake_fd) {
            uint64_t count;
            (void)!read(t->wake_fd, &count, sizeof(count));
        } else if (events[i].data.ptr == &t->ucx) {
            vvi_ucx_progress(t->ucx);
        } else if (events[i].data.ptr == t) {
            accept_all(t);
        } else {
            serve(t, events[i].data.ptr, events[i].events);
        }
    }
}

static void tcp_wake(void *io)
{
    struct tcp *t = io;
    uint64_t one = 1;

    (void)!write(t->wake_fd, &one, sizeof(one));
}

/* ---- opening ---- */

static int open_listener(struct tcp *t, const struct vvi_addr *addr, uint16_t *ret_port)
{
    struct vvi_addr own = {.bytes = sizeof(own.sa)};
    int one = 1;

    t->listen_fd = socket(addr->sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (t->listen_fd < 0)
        return -errno;
    (void)setsockopt(t->listen_fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(t->listen_fd, (const struct sockaddr *)&addr->sa, addr->bytes) < 0 ||
        listen(t->listen_fd, 1024) < 0 ||
        getsockname(t->listen_fd, (struct sockaddr *)&own.sa, &own.bytes) < 0)
        return -errno;
    *ret_port = vvi_addr_port(&own);
    return 0;
}

static void tcp_close(void *io)
{
    struct tcp *t = io;

    vvi_ucx_close(t->ucx);
    if (t->listen_fd >= 0)
        close(t->listen_fd);
    if (t->wake_fd >= 0)
        close(t->wake_fd);
    if (t->epoll_fd >= 0)
        close(t->epoll_fd);
    free(t->buf);
    free(t);
}

static int tcp_open(struct vv_net *net, const struct vvi_addr *addr, char *err, size_t err_bytes,
                    void **ret_io, uint16_t *ret_port)
{
    struct tcp *t = calloc(1, sizeof(*t));
    struct epoll_event wake, accept;
    int rc = 0;

    if (!t) {
        snprintf(err, err_bytes, "no memory");
        return -ENOMEM;
    }
    *t = (struct tcp){.net = net, .epoll_fd = -1, .wake_fd = -1, .listen_fd = -1};
    wake = (struct epoll_event){.events = EPOLLIN, .data.ptr = &t->wake_fd};
    accept = (struct epoll_event){.events = EPOLLIN, .data.ptr = t};
    t->buf = malloc(BUF_BYTES);
    t->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    t->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (!t->buf)
        rc = -ENOMEM;
    else if (t->epoll_fd < 0 || t->wake_fd < 0)
        rc = -errno;
    if (rc == 0)
        rc = open_listener(t, addr, ret_port);
    if (rc == 0 && (epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, t->wake_fd, &wake) < 0 ||
                    epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, t->listen_fd, &accept) < 0))
        rc = -errno;
    if (rc) {
        snprintf(err, err_bytes, "cannot listen at %s: %s", net->opts.listen, strerror(-rc));
        tcp_close(t);
        return rc;
    }
    *ret_io = t;
    return 0;
}

/* ---- with UCX ---- */

static void ucx_opened(void *io, struct vvi_conn *c)
{
    struct tcp *t = io;
    struct vvi_frame *f = vvi_ucx_reach(t->ucx);

    if (f)
        tcp_send(t, c, f);
}

static void ucx_reached(void *io, struct vvi_conn *c, const void *body, size_t bytes)
{
    vvi_ucx_reached(((struct tcp *)io)->ucx, c, body, bytes);
}

static void ucx_expect(void *io, struct vvi_conn *c, uint64_t id, struct vv_net_call *call,
                       uint64_t bytes)
{
    vvi_ucx_expect(((struct tcp *)io)->ucx, c, id, call, bytes);
}

static struct vv_net_call *ucx_give_up(void *io, const struct vvi_conn *c, uint64_t id)
{
    return vvi_ucx_give_up(((struct tcp *)io)->ucx, c, id);
}

static int ucx_open(struct vv_net *net, const struct vvi_addr *addr, char *err, size_t err_bytes,
                    void **ret_io, uint16_t *ret_port)
{
    struct epoll_event e;
    struct vvi_ucx *ucx;
    struct tcp *t;
    void *io;
    int rc = vvi_ucx_open(net, err, err_bytes, &ucx);

    if (rc)
        return rc;
    rc = tcp_open(net, addr, err, err_bytes, &io, ret_port);
    if (rc) {
        vvi_ucx_close(ucx);
        return rc;
    }
    t = io;
    t->ucx = ucx;
    e = (struct epoll_event){.events = EPOLLIN, .data.ptr = &t->ucx};
    if (epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, vvi_ucx_fd(ucx), &e) < 0) {
        rc = -errno;
        snprintf(err, err_bytes, "UCX cannot be waited for: %s", strerror(-rc));
        tcp_close(t);
        return rc;
    }
    *ret_io = t;
    return 0;
}

#define COMMON                                                                          \
    .close = tcp_close, .connect = tcp_connect, .send = tcp_send, .queued = tcp_queued, \
    .disconnect = tcp_disconnect, .poll = tcp_poll, .wake = tcp_wake

const struct vvi_net_ops vvi_net_tcp = {.open = tcp_open, COMMON};

const struct vvi_net_ops vvi_net_ucx = {
    .from_memory = true,
    .open = ucx_open,
    COMMON,
    .opened = ucx_opened,
    .reached = ucx_reached,
    .expect = ucx_expect,
    .give_up = ucx_give_up,
};
