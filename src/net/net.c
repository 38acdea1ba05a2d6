/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing, the I/O thread, and its inbox.
 *
 * The thread runs a loop: frames that were submitted, peers that were changed, timers, then the backend, which waits
 * for the network until the next timer or until it is woken up. Other work that could block is done elsewhere: the
 * answering thread reads files, the waiting thread computes checksums of data, the thread that sets a peer resolves
 * its name.
 *
 * Stopping: the thread sends a goodbye on every open connection and waits GOODBYE_NS for the bytes to leave; then all
 * connections are closed and all calls ended, in any state.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/thread.h"
#include "net/net_private.h"

#define GOODBYE_NS (300 * VV_NS_PER_MS)

static const char *const transport_names[VV_NET_TRANSPORTS] = {"auto", "tcp", "ucx"};

const char *vv_net_transport_name(enum vv_net_transport t)
{
    return (unsigned)t < VV_NET_TRANSPORTS ? transport_names[t] : "?";
}

int vv_net_transport_parse(const char *name, enum vv_net_transport *ret_transport)
{
    for (unsigned i = 0; i < VV_NET_TRANSPORTS; i++) {
        if (strcmp(name, transport_names[i]) == 0) {
            *ret_transport = (enum vv_net_transport)i;
            return 0;
        }
    }
    return -EINVAL;
}

int vv_net_transport_check(enum vv_net_transport t, char *err, size_t err_bytes)
{
    return t == VV_NET_UCX ? vvi_net_ucx_check(err, err_bytes) : 0;
}

/* The net whose I/O thread this is, or NULL. */
static _Thread_local const struct vv_net *io_thread_of;

/* ---- other threads ---- */

void vv_net_set_epoch(struct vv_net *net, uint64_t epoch)
{
    atomic_store_explicit(&net->epoch, epoch, memory_order_relaxed);
}

uint64_t vv_net_epoch(const struct vv_net *net)
{
    return atomic_load_explicit(&net->epoch, memory_order_relaxed);
}

const char *vv_net_addr(const struct vv_net *net)
{
    return net->addr;
}

enum vv_net_transport vv_net_transport_of(const struct vv_net *net)
{
    return net->transport;
}

/* Counts the frame if it may be queued: 0, or a negative errno. */
static int admit_locked(struct vv_net *net, const struct vvi_frame *f)
{
    struct vvi_peer *p;

    if (net->stopping)
        return -ESHUTDOWN;
    if (!f->peer)
        return 0;
    p = vvi_peer_find_locked(net, f->peer);
    if (!p)
        return -ENOENT;
    if (p->pausing)
        return -ENOTCONN;
    if (p->queued >= net->opts.queue_max)
        return -EAGAIN;
    p->queued++;
    return 0;
}

int vvi_net_submit(struct vv_net *net, struct vvi_frame *f)
{
    bool wake = false;
    int rc;

    f->next = NULL;
    vv_mutex_lock(&net->lock);
    rc = admit_locked(net, f);
    if (rc == 0) {
        *net->inbox_last = f;
        net->inbox_last = &f->next;
        wake = !net->woken;
        net->woken = true;
    }
    vv_mutex_unlock(&net->lock);
    /* The I/O thread itself checks before it waits (has_work). */
    if (wake && io_thread_of != net)
        net->ops->wake(net->io);
    return rc;
}

int vv_net_send(struct vv_net *net, uint64_t peer, uint16_t type, const void *body,
                size_t body_bytes)
{
    struct vvi_head h = {.kind = VVI_MESSAGE,
                         .type = type,
                         .epoch = vv_net_epoch(net),
                         .body_bytes = (uint32_t)body_bytes};
    struct vvi_frame *f;
    int rc;

    if (body_bytes > VV_NET_BODY_MAX)
        return -EMSGSIZE;
    if (peer == 0)
        return -ENOENT;
    f = vvi_frame_new(&h, body);
    if (!f)
        return -ENOMEM;
    f->peer = peer;
    rc = vvi_net_submit(net, f);
    if (rc) {
        f->peer = 0; /* not counted by its peer */
        vvi_frame_free(net, f);
        vvi_count(net, dropped, 1);
    }
    return rc;
}

void vv_net_stats(struct vv_net *net, struct vv_net_stats *ret_stats)
{
    struct vvi_net_counts *n = &net->count;

    *ret_stats = (struct vv_net_stats){
        .connected = atomic_load_explicit(&n->connected, memory_order_relaxed),
        .accepted = atomic_load_explicit(&n->accepted, memory_order_relaxed),
        .sent = atomic_load_explicit(&n->sent, memory_order_relaxed),
        .received = atomic_load_explicit(&n->received, memory_order_relaxed),
        .sent_bytes = atomic_load_explicit(&n->sent_bytes, memory_order_relaxed),
        .received_bytes = atomic_load_explicit(&n->received_bytes, memory_order_relaxed),
        .timeouts = atomic_load_explicit(&n->timeouts, memory_order_relaxed),
        .resets = atomic_load_explicit(&n->resets, memory_order_relaxed),
        .stale = atomic_load_explicit(&n->stale, memory_order_relaxed),
        .denied = atomic_load_explicit(&n->denied, memory_order_relaxed),
        .malformed = atomic_load_explicit(&n->malformed, memory_order_relaxed),
        .bad_sums = atomic_load_explicit(&n->bad_sums, memory_order_relaxed),
        .dropped = atomic_load_explicit(&n->dropped, memory_order_relaxed),
        .apart_bytes = atomic_load_explicit(&n->apart_bytes, memory_order_relaxed),
    };
    vv_mutex_lock(&net->lock);
    ret_stats->peers = net->nr_peers;
    ret_stats->calls = net->calls.n;
    ret_stats->direct = net->nr_direct;
    vv_mutex_unlock(&net->lock);
}

/* ---- the I/O thread ---- */

void vvi_net_at(struct vv_net *net, uint64_t ns)
{
    net->timer_ns = VV_MIN(net->timer_ns, ns);
}

void vvi_net_tell(struct vv_net *net, uint64_t peer, enum vv_net_change change, int err)
{
    bool stopping;

    vv_mutex_lock(&net->lock);
    stopping = net->stopping;
    vv_mutex_unlock(&net->lock);
    if (!stopping && net->opts.events.peer)
        net->opts.events.peer(net->opts.events.user, peer, change, err);
}

static void send_answer(struct vv_net *net, struct vvi_frame *f)
{
    struct vvi_conn *c = vvi_conn_find(net, f->serial);

    if (c && c->serving)
        c->serving--;
    if (c && c->state == CONN_OPEN)
        vvi_conn_send(c, f);
    else
        vvi_frame_free(net, f);
}

static void take_inbox(struct vv_net *net, bool *ret_dirty, bool *ret_stopping)
{
    struct vvi_frame *f;

    vv_mutex_lock(&net->lock);
    f = net->inbox;
    net->inbox = NULL;
    net->inbox_last = &net->inbox;
    net->woken = false;
    *ret_dirty = net->peers_dirty;
    net->peers_dirty = false;
    *ret_stopping = net->stopping;
    vv_mutex_unlock(&net->lock);
    while (f) {
        struct vvi_frame *next = f->next;
        f->next = NULL;
        if (f->serial)
            send_answer(net, f);
        else
            vvi_peer_submit(net, f);
        f = next;
    }
}

static bool anything_queued(struct vv_net *net)
{
    for (struct vvi_conn *c = net->conns; c; c = c->next) {
        if (c->state == CONN_OPEN && net->ops->queued(c) > 0)
            return true;
    }
    return false;
}

static void say_goodbye(struct vv_net *net)
{
    struct vvi_head h = {.kind = VVI_BYE, .epoch = vv_net_epoch(net)};
    uint64_t until = vv_now_ns() + GOODBYE_NS;

    vvi_calls_fail(net, 0, 0, -ESHUTDOWN);
    for (struct vvi_conn *c = net->conns; c; c = c->next) {
        struct vvi_frame *f = c->state == CONN_OPEN ? vvi_frame_new(&h, NULL) : NULL;
        if (f)
            vvi_conn_send(c, f);
    }
    while (anything_queued(net) && vv_now_ns() < until)
        net->ops->poll(net->io, VV_MIN(until, vv_now_ns() + 10 * VV_NS_PER_MS));
    while (net->conns)
        vvi_conn_broken(net->conns, -ESHUTDOWN);
}

/* Frees the frames that were not sent, after the last connection. */
static void give_up_all(struct vv_net *net)
{
    bool dirty, stopping;

    take_inbox(net, &dirty, &stopping);
    for (struct vvi_peer *p = vv_table_first(&net->peers); p; p = vv_table_next(&net->peers, p)) {
        for (struct vvi_frame *f = p->first, *next; f; f = next) {
            next = f->next;
            vvi_frame_free(net, f);
        }
        p->first = NULL;
        p->last = &p->first;
    }
    while (net->conns)
        vvi_conn_broken(net->conns, -ESHUTDOWN);
    vvi_calls_fail(net, 0, 0, -ESHUTDOWN);
}

/* True if there are new frames or changes since the inbox was emptied. Frames that this thread submits itself, in a
 * callback, cause no wake-up. */
static bool has_work(struct vv_net *net)
{
    bool has;

    vv_mutex_lock(&net->lock);
    has = net->woken;
    vv_mutex_unlock(&net->lock);
    return has;
}

static void *io_main(void *arg)
{
    struct vv_net *net = arg;

    io_thread_of = net;
    for (;;) {
        bool dirty, stopping;
        uint64_t now;
        take_inbox(net, &dirty, &stopping);
        if (stopping)
            break;
        now = vv_now_ns();
        if (dirty || now >= net->timer_ns) {
            net->timer_ns = VV_NEVER_NS;
            vvi_conns_expire(net, now);
            vvi_direct_expire(net, now);
            vvi_peers_work(net, now);
        }
        net->ops->poll(net->io, has_work(net) ? 0 : net->timer_ns);
    }
    say_goodbye(net);
    give_up_all(net);
    return NULL;
}

/* ---- opening and closing ---- */

static int check_opts(const struct vv_net_opts *opts, char *err, size_t err_bytes)
{
    if (opts->token_bytes < VV_NET_TOKEN_MIN || opts->token_bytes > VV_NET_TOKEN_MAX) {
        snprintf(err, err_bytes, "the token of a job has %u to %u bytes", VV_NET_TOKEN_MIN,
                 VV_NET_TOKEN_MAX);
        return -EINVAL;
    }
    if (opts->self == 0 || (unsigned)opts->transport >= VV_NET_TRANSPORTS) {
        snprintf(err, err_bytes, "a node has a number other than 0, and a transport that is known");
        return -EINVAL;
    }
    return 0;
}

static void set_defaults(struct vv_net *net, const struct vv_net_opts *opts)
{
    struct vv_net_opts *o = &net->opts;

    *o = *opts;
    memcpy(net->token, opts->token, opts->token_bytes);
    o->token = net->token;
    o->peers_max = o->peers_max ? o->peers_max : 4096;
    o->queue_max = o->queue_max ? o->queue_max : 1024;
    o->serving_max = o->serving_max ? o->serving_max : 256;
    o->memory_max = o->memory_max ? o->memory_max : UINT64_C(256) << 20;
    o->connect_ns = o->connect_ns ? o->connect_ns : 2 * VV_NS_PER_S;
    o->retry_ns = o->retry_ns ? o->retry_ns : 20 * VV_NS_PER_MS;
    o->retry_max_ns = o->retry_max_ns ? o->retry_max_ns : VV_NS_PER_S;
    o->idle_ns = o->idle_ns ? o->idle_ns : 10 * VV_NS_PER_S;
    net->inbox_last = &net->inbox;
    net->timer_ns = VV_NEVER_NS;
    net->transport = opts->transport == VV_NET_UCX ? VV_NET_UCX : VV_NET_TCP;
    net->ops = net->transport == VV_NET_UCX ? &vvi_net_ucx : &vvi_net_tcp;
}

int vv_net_open(const struct vv_net_opts *opts, char *err, size_t err_bytes,
                struct vv_net **ret_net)
{
    struct vvi_addr listen;
    struct vv_net *net;
    uint16_t port;
    int rc = check_opts(opts, err, err_bytes);

    if (rc == 0 && vvi_addr_parse(opts->listen, &listen) != 0) {
        snprintf(err, err_bytes, "'%s' is not an address to listen at: host:port", opts->listen);
        rc = -EINVAL;
    }
    if (rc)
        return rc;
    net = calloc(1, sizeof(*net));
    if (!net) {
        snprintf(err, err_bytes, "no memory");
        return -ENOMEM;
    }
    set_defaults(net, opts);
    vv_mutex_init(&net->lock, "net", VV_RANK_NET);
    rc = net->ops->open(net, &listen, err, err_bytes, &net->io, &port);
    net->opts.listen = NULL; /* the caller's string, valid only during this call */
    if (rc)
        goto fail_open;
    vvi_addr_with_port(opts->listen, port, net->addr);
    rc = vv_thread_start(&net->thread, io_main, net);
    if (rc) {
        snprintf(err, err_bytes, "no thread for the network: %s", strerror(-rc));
        goto fail_thread;
    }
    *ret_net = net;
    return 0;

fail_thread:
    net->ops->close(net->io);
fail_open:
    vv_mutex_fini(&net->lock);
    free(net);
    return rc;
}

void vv_net_stop(struct vv_net *net)
{
    vv_mutex_lock(&net->lock);
    net->stopping = true;
    net->woken = true;
    vv_mutex_unlock(&net->lock);
    if (net->stopped)
        return;
    net->ops->wake(net->io);
    pthread_join(net->thread, NULL);
    net->stopped = true;
}

void vv_net_free(struct vv_net *net)
{
    if (!net)
        return;
    vv_net_stop(net);
    /* It may own memory of calls that have ended. */
    net->ops->close(net->io);
    vv_assert(net->nr_open_calls == 0 && net->nr_reqs == 0);
    vvi_direct_close(net, 0);
    vv_assert(net->nr_direct == 0);
    vvi_peers_free(net);
    vv_table_fini(&net->calls);
    vv_table_fini(&net->by_serial);
    for (unsigned i = 0; i < net->nr_pool; i++)
        free(net->pool[i].p);
    vv_mutex_fini(&net->lock);
    free(net);
}
