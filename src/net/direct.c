/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Direct connections: a caller sends its request and receives the answer itself, on a connection that no other caller
 * uses meanwhile. With a call by the I/O thread there are three wake-ups: that thread to send and to receive, then the
 * caller. Here only the caller wakes up, once.
 *
 *   making    a caller found none: the I/O thread makes one, and that call goes by the I/O thread. After a failed
 *             attempt there is no other for retry_max_ns
 *   idle      in net->direct; closed after idle_ns without use
 *   in use    by one call, which gives it back when its answer is there; otherwise it is closed
 *
 * net->nr_direct counts them from vvi_direct_begin on, until they are closed or vvi_direct_made reports that making
 * failed.
 *
 * They are made while our other connection to the peer is open, and closed with it: only that one shows the peer's
 * state. A direct connection that breaks ends its call with -ECONNRESET and has no other effect.
 *
 * A receive returns after SLICE_US at the latest, so that deadlines and the end of the net are noticed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "net/net_private.h"

#define DIRECT_MAX 128
#define SLICE_US   10000

struct vvi_direct {
    struct vvi_direct *next;
    uint64_t peer;
    int fd;
    uint64_t idle_since_ns;
    /* The answer that is being received. */
    uint8_t head[VVI_NET_HEAD];
    struct vvi_head h;
    bool has_head;
    uint64_t have; /* bytes of the header, or of what follows it */
};

static void free_direct(struct vvi_direct *d)
{
    close(d->fd);
    free(d);
}

static void discard(struct vv_net *net, struct vvi_direct *d)
{
    vv_mutex_lock(&net->lock);
    net->nr_direct--;
    vv_mutex_unlock(&net->lock);
    free_direct(d);
}

/* ---- making them ---- */

struct vvi_direct *vvi_direct_take(struct vv_net *net, uint64_t peer)
{
    struct vvi_direct **at, *d = NULL;
    struct vvi_peer *p;

    vv_mutex_lock(&net->lock);
    p = vvi_peer_find_locked(net, peer);
    if (p && p->open && !net->stopping) {
        for (at = &net->direct; *at && (*at)->peer != peer; at = &(*at)->next)
            ;
        d = *at;
        if (d)
            *at = d->next;
        else if (!p->make_direct && !p->making_direct && vv_now_ns() >= p->direct_at_ns)
            p->make_direct = net->peers_dirty = true;
    }
    vv_mutex_unlock(&net->lock);
    return d;
}

bool vvi_direct_begin(struct vv_net *net, struct vvi_peer *p)
{
    bool begin;

    vv_mutex_lock(&net->lock);
    begin = p->make_direct && net->nr_direct < DIRECT_MAX;
    if (begin) {
        p->making_direct = true;
        net->nr_direct++;
    } else if (p->make_direct) {
        p->direct_at_ns = vv_now_ns() + net->opts.retry_max_ns;
    }
    p->make_direct = false;
    vv_mutex_unlock(&net->lock);
    if (begin)
        vvi_net_at(net, vv_now_ns() + net->opts.idle_ns); /* vvi_direct_expire */
    return begin;
}

void vvi_direct_made(struct vv_net *net, uint64_t peer, int fd)
{
    struct timeval slice = {.tv_usec = SLICE_US};
    struct vvi_direct *d = fd >= 0 ? calloc(1, sizeof(*d)) : NULL;
    uint64_t now_ns = vv_now_ns();
    struct vvi_peer *p;
    bool ok = d && fcntl(fd, F_SETFL, 0) == 0 &&
              setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &slice, sizeof(slice)) == 0 &&
              setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &slice, sizeof(slice)) == 0;

    vv_mutex_lock(&net->lock);
    p = vvi_peer_find_locked(net, peer);
    ok = ok && p && p->open && !net->stopping;
    if (p) {
        p->making_direct = false;
        p->direct_at_ns = ok ? 0 : now_ns + net->opts.retry_max_ns;
    }
    if (ok) {
        *d = (struct vvi_direct){
            .next = net->direct, .peer = peer, .fd = fd, .idle_since_ns = now_ns};
        net->direct = d;
    } else {
        net->nr_direct--;
    }
    vv_mutex_unlock(&net->lock);
    if (ok)
        return;
    free(d);
    if (fd >= 0)
        close(fd);
}

/* Closes connections that have been idle for so long, to a peer or (0) to all. */
static void close_idle(struct vv_net *net, uint64_t peer, uint64_t idle_ns)
{
    struct vvi_direct *gone = NULL;
    uint64_t now_ns;

    vv_mutex_lock(&net->lock);
    now_ns = vv_now_ns();
    for (struct vvi_direct **at = &net->direct, *d; (d = *at);) {
        if ((peer && d->peer != peer) || now_ns - d->idle_since_ns < idle_ns) {
            at = &d->next;
            continue;
        }
        *at = d->next;
        d->next = gone;
        gone = d;
        net->nr_direct--;
    }
    vv_mutex_unlock(&net->lock);
    for (struct vvi_direct *d; (d = gone);) {
        gone = d->next;
        free_direct(d);
    }
}

void vvi_direct_close(struct vv_net *net, uint64_t peer)
{
    close_idle(net, peer, 0);
}

void vvi_direct_expire(struct vv_net *net, uint64_t now_ns)
{
    bool any;

    close_idle(net, 0, net->opts.idle_ns);
    vv_mutex_lock(&net->lock);
    any = net->nr_direct > 0;
    vv_mutex_unlock(&net->lock);
    if (any)
        vvi_net_at(net, now_ns + net->opts.idle_ns);
}

/* ---- calls ---- */

int vvi_direct_send(struct vvi_direct *d, const struct vvi_frame *f)
{
    ssize_t n = send(d->fd, f->bytes, f->head_bytes, MSG_NOSIGNAL);

    return n == (ssize_t)f->head_bytes ? 0 : -ECONNRESET;
}

/* Handles a complete header: allocates memory for the rest. */
static int take_head(struct vv_net_call *call)
{
    struct vvi_direct *d = call->direct;
    int rc = vvi_head_decode(d->head, true, &d->h);

    if (rc || d->h.kind != VVI_ANSWER || d->h.id != call->id || d->h.flags & VVI_FLAG_APART)
        return -ECONNRESET; /* a goodbye, or a malformed frame */
    if (d->h.data_bytes > call->data_max)
        return -EMSGSIZE;
    d->has_head = true;
    d->have = 0;
    call->body = d->h.body_bytes ? malloc(d->h.body_bytes) : NULL;
    if (d->h.data_bytes)
        call->data = vvi_pool_take(call->net, d->h.data_bytes, &call->data_room);
    call->data_bytes = call->data ? d->h.data_bytes : 0;
    return (d->h.body_bytes && !call->body) || (d->h.data_bytes && !call->data) ? -ENOMEM : 0;
}

/* Bytes missing from an answer, or from its header while that is incomplete. */
static uint64_t missing(struct vv_net_call *call, struct iovec ret_iov[2])
{
    struct vvi_direct *d = call->direct;
    uint64_t body = d->h.body_bytes, have = d->have;

    ret_iov[1] = (struct iovec){0};
    if (!d->has_head) {
        ret_iov[0] = (struct iovec){d->head + have, VVI_NET_HEAD - have};
    } else {
        ret_iov[0] = (struct iovec){have < body ? (uint8_t *)call->body + have : NULL,
                                    have < body ? body - have : 0};
        have -= VV_MIN(have, body);
        ret_iov[1] = (struct iovec){call->data ? (uint8_t *)call->data + have : NULL,
                                    d->h.data_bytes - have};
    }
    return ret_iov[0].iov_len + ret_iov[1].iov_len;
}

/* 1: the answer is complete; 0: not yet. */
static int receive(struct vv_net_call *call)
{
    struct vvi_direct *d = call->direct;
    struct iovec iov[2];
    uint64_t rest;

    while ((rest = missing(call, iov)) > 0) {
        struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
        ssize_t n = recvmsg(d->fd, &msg, MSG_WAITALL);
        int rc = 0;

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (n <= 0)
            return -ECONNRESET;
        d->have += (uint64_t)n;
        if ((uint64_t)n < rest)
            return 0; /* the slice is over: the caller checks deadlines */
        if (!d->has_head)
            rc = take_head(call);
        if (rc)
            return rc;
    }
    return 1;
}

static int take_answer(struct vv_net_call *call)
{
    const struct vv_net_events *e = &call->net->opts.events;
    const struct vvi_head *h = &call->direct->h;

    if (!vvi_head_check(call->direct->head, call->body, h->body_bytes)) {
        vvi_count(call->net, malformed, 1);
        return -ECONNRESET;
    }
    vvi_count(call->net, received, 1);
    vvi_count(call->net, received_bytes, h->data_bytes);
    vvi_call_answered(call, h);
    if (h->epoch > vv_net_epoch(call->net) && e->epoch)
        e->epoch(e->user, call->peer, h->epoch);
    return 0;
}

static void give_back(struct vv_net_call *call)
{
    struct vv_net *net = call->net;
    struct vvi_direct *d = call->direct;
    struct vvi_peer *p;
    bool keep;

    call->direct = NULL;
    d->has_head = false;
    d->have = 0;
    d->idle_since_ns = vv_now_ns();
    vv_mutex_lock(&net->lock);
    p = vvi_peer_find_locked(net, d->peer);
    keep = p && p->open && !net->stopping;
    if (keep) {
        d->next = net->direct;
        net->direct = d;
    }
    vv_mutex_unlock(&net->lock);
    if (!keep)
        discard(net, d);
}

void vvi_direct_end(struct vv_net_call *call)
{
    if (call->direct)
        discard(call->net, call->direct);
    call->direct = NULL;
}

int vvi_direct_wait(struct vv_net_call *call, uint64_t until_ns)
{
    struct vv_net *net = call->net;

    while (call->direct) {
        int got = receive(call), rc = got == 1 ? take_answer(call) : got;
        uint64_t now_ns = vv_now_ns();
        bool done;

        if (rc == 0 && got == 0 && now_ns >= call->deadline_ns)
            rc = -ETIMEDOUT;
        if (rc || got == 1)
            vvi_call_finish(net, call, rc ? rc : call->refused);
        vv_mutex_lock(&net->lock);
        done = call->done; /* or the net has ended it */
        vv_mutex_unlock(&net->lock);
        if (done && got == 1 && rc == 0)
            give_back(call);
        else if (done)
            vvi_direct_end(call);
        else if (now_ns >= until_ns)
            return -EAGAIN;
    }
    return 0;
}
