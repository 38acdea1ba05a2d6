/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peers: one connection of ours to each, made when there is something to send, and made again.
 *
 *   idle       nothing to send
 *   making     a connection is being made; frames wait
 *   open       frames go out
 *   pausing    the last attempt failed: frames are refused until the pause is over
 *
 * A connection that breaks is made again without a pause, even if there is nothing to send. The attempt shows whether
 * the process is gone (refused) or only the connection; membership needs that at once. A process that is being killed
 * closes its connections before or after its listener. So an attempt that is reset half-way shows nothing, and is
 * repeated a few times, a millisecond later, then two, and so on. Other pauses double from retry_ns to retry_max_ns,
 * and end early when the peer connects to us.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "net/net_private.h"

#define PROBES        6
#define PROBE_WAIT_NS VV_NS_PER_MS

struct vvi_peer *vvi_peer_find_locked(struct vv_net *net, uint64_t id)
{
    struct vvi_peer *p = vv_table_find(&net->peers, id);

    vv_assert(vv_mutex_held(&net->lock));
    while (p && p->dropped)
        p = vv_table_same(p);
    return p;
}

static struct vvi_peer *find(struct vv_net *net, uint64_t id)
{
    struct vvi_peer *p;

    vv_mutex_lock(&net->lock);
    p = vvi_peer_find_locked(net, id);
    vv_mutex_unlock(&net->lock);
    return p;
}

static bool same_addr(const struct vvi_addr *a, const struct vvi_addr *b)
{
    return a->bytes == b->bytes && memcmp(&a->sa, &b->sa, a->bytes) == 0;
}

int vv_net_peer_set(struct vv_net *net, uint64_t peer, const char *addr, unsigned flags)
{
    struct vvi_peer *p, *fresh = calloc(1, sizeof(*fresh));
    struct vvi_addr a;
    bool wake = false;
    int rc = vvi_addr_parse(addr, &a);

    if (!fresh)
        return -ENOMEM;
    if (rc == 0 && (peer == 0 || peer == net->opts.self || vvi_addr_port(&a) == 0))
        rc = -EINVAL;
    if (rc) {
        free(fresh);
        return rc;
    }
    vv_mutex_lock(&net->lock);
    p = vvi_peer_find_locked(net, peer);
    if (net->stopping) {
        rc = -ESHUTDOWN;
    } else if (!p && net->nr_peers >= net->opts.peers_max) {
        rc = -ENOSPC;
    } else {
        if (!p) {
            p = fresh;
            fresh = NULL;
            *p = (struct vvi_peer){.id = peer, .last = &p->first};
            vv_table_add(&net->peers, p);
            net->nr_peers++;
        }
        if (p->flags != flags || !same_addr(&p->addr, &a)) {
            p->dirty = p->dirty || !same_addr(&p->addr, &a);
            p->addr = a;
            p->flags = flags;
            net->peers_dirty = true;
            wake = !net->woken;
            net->woken = true;
        }
    }
    vv_mutex_unlock(&net->lock);
    free(fresh);
    if (wake)
        net->ops->wake(net->io);
    return rc;
}

void vv_net_peer_drop(struct vv_net *net, uint64_t peer)
{
    struct vvi_peer *p;
    bool wake = false;

    vv_mutex_lock(&net->lock);
    p = vvi_peer_find_locked(net, peer);
    if (p) {
        p->dropped = true;
        net->nr_peers--;
        net->peers_dirty = true;
        wake = !net->woken;
        net->woken = true;
    }
    vv_mutex_unlock(&net->lock);
    if (wake)
        net->ops->wake(net->io);
}

uint64_t vv_net_patience_ns(struct vv_net *net, uint64_t peer, uint64_t bytes)
{
    struct vvi_pace none = {0};
    struct vvi_peer *p;
    uint64_t ns;

    vv_mutex_lock(&net->lock);
    p = vvi_peer_find_locked(net, peer);
    ns = vvi_pace_patience_ns(p ? &p->pace : &none, bytes);
    vv_mutex_unlock(&net->lock);
    return ns;
}

/* ---- on the I/O thread ---- */

static void set_pausing(struct vv_net *net, struct vvi_peer *p, bool pausing, int why)
{
    vv_mutex_lock(&net->lock);
    p->pausing = pausing;
    p->why = why;
    vv_mutex_unlock(&net->lock);
}

/* Direct connections end with our other connection. */
static void set_open(struct vv_net *net, struct vvi_peer *p, bool open)
{
    vv_mutex_lock(&net->lock);
    p->open = open;
    vv_mutex_unlock(&net->lock);
    if (!open)
        vvi_direct_close(net, p->id);
}

static void make_connection(struct vv_net *net, struct vvi_peer *p)
{
    struct vvi_addr addr;
    struct vvi_conn *c;
    int rc;

    vv_assert(!p->conn);
    vv_mutex_lock(&net->lock);
    addr = p->addr;
    p->pausing = false;
    vv_mutex_unlock(&net->lock);
    p->retry_at_ns = 0;
    c = vvi_conn_new(net);
    if (!c) {
        vvi_peer_lost(net, p, false, -ENOBUFS);
        return;
    }
    c->peer = p;
    p->conn = c;
    rc = net->ops->connect(net->io, c, &addr);
    if (rc)
        vvi_conn_broken(c, rc);
}

static void give_up_frames(struct vv_net *net, struct vvi_peer *p, int err)
{
    struct vvi_frame *f = p->first;

    p->first = NULL;
    p->last = &p->first;
    while (f) {
        struct vvi_frame *next = f->next;
        if (!f->call)
            vvi_count(net, dropped, 1);
        vvi_frame_free(net, f);
        f = next;
    }
    vvi_calls_fail(net, 0, p->id, err);
}

static enum vv_net_change change_of(int err)
{
    switch (err) {
    case -ECONNREFUSED:
        return VV_NET_REFUSED;
    case -EACCES:
        return VV_NET_DENIED;
    case -ESHUTDOWN:
        return VV_NET_BYE;
    default:
        return VV_NET_UNREACHABLE;
    }
}

/* True if the address has changed since the last connection: then the end of that one shows nothing about the peer. */
static bool has_moved(struct vv_net *net, struct vvi_peer *p)
{
    bool moved;

    vv_mutex_lock(&net->lock);
    moved = p->dirty;
    vv_mutex_unlock(&net->lock);
    return moved;
}

void vvi_peer_lost(struct vv_net *net, struct vvi_peer *p, bool was_open, int err)
{
    uint64_t now = vv_now_ns(), id = p->id;

    set_open(net, p, false);
    if (has_moved(net, p)) {
        p->retry_at_ns = now; /* work_on checks it next */
        return;
    }
    if (was_open && err != -ESHUTDOWN) {
        p->pause_ns = 0;
        p->probes = PROBES;
        p->retry_at_ns = now;
        vvi_net_at(net, now);
        vvi_net_tell(net, id, VV_NET_LOST, err);
        return;
    }
    if (p->probes && (err == -ECONNRESET || err == -EPIPE)) {
        p->retry_at_ns = now + (PROBE_WAIT_NS << (PROBES - p->probes--));
        vvi_net_at(net, p->retry_at_ns);
        return;
    }
    p->probes = 0;
    p->pause_ns =
        p->pause_ns ? VV_MIN(2 * p->pause_ns, net->opts.retry_max_ns) : net->opts.retry_ns;
    if (err == -ESHUTDOWN)
        p->pause_ns = net->opts.retry_max_ns;
    p->retry_at_ns = now + p->pause_ns;
    set_pausing(net, p, true, err);
    give_up_frames(net, p, err == -ESHUTDOWN || err == -EBADMSG ? -ECONNRESET : err);
    vvi_net_at(net, p->retry_at_ns);
    vvi_net_tell(net, id, change_of(err), err);
}

void vvi_peer_opened(struct vv_net *net, struct vvi_peer *p)
{
    struct vvi_frame *f = p->first;

    p->pause_ns = 0;
    p->probes = 0;
    p->first = NULL;
    p->last = &p->first;
    set_open(net, p, true);
    vvi_count(net, connected, 1);
    if (net->ops->opened)
        net->ops->opened(net->io, p->conn);
    while (f) {
        struct vvi_frame *next = f->next;
        f->next = NULL;
        vvi_conn_send(p->conn, f);
        f = next;
    }
    vvi_net_tell(net, p->id, VV_NET_UP, 0);
}

void vvi_peer_seen(struct vv_net *net, uint64_t id)
{
    struct vvi_peer *p = find(net, id);

    if (!p || p->conn || !p->retry_at_ns)
        return;
    p->pause_ns = 0;
    p->retry_at_ns = vv_now_ns();
    set_pausing(net, p, false, 0);
    vvi_net_at(net, p->retry_at_ns);
}

void vvi_peer_probe(struct vv_net *net, uint64_t id)
{
    struct vvi_peer *p = find(net, id);

    if (!p || p->conn || p->retry_at_ns)
        return;
    p->probes = PROBES;
    make_connection(net, p);
}

void vvi_peer_submit(struct vv_net *net, struct vvi_frame *f)
{
    struct vvi_peer *p = find(net, f->peer);

    if (!p || (p->retry_at_ns && !p->probes)) {
        uint64_t id = f->call;
        struct vv_net_call *call = id ? vvi_call_find(net, id, 0) : NULL;
        int why = p && p->why ? p->why : -ECONNRESET;
        if (call) {
            vvi_call_finish(net, call, why == -ESHUTDOWN ? -ECONNRESET : why);
            vvi_call_unref(call);
        } else {
            vvi_count(net, dropped, 1);
        }
        vvi_frame_free(net, f);
        return;
    }
    if (p->conn && p->conn->state == CONN_OPEN) {
        vvi_conn_send(p->conn, f);
        return;
    }
    f->next = NULL;
    *p->last = f;
    p->last = &f->next;
    if (!p->conn && !p->retry_at_ns)
        make_connection(net, p);
}

/* Makes a direct connection for later calls. */
static void make_direct(struct vv_net *net, struct vvi_peer *p)
{
    struct vvi_addr addr;
    struct vvi_conn *c;
    int rc;

    if (!vvi_direct_begin(net, p))
        return;
    vv_mutex_lock(&net->lock);
    addr = p->addr;
    vv_mutex_unlock(&net->lock);
    c = p->conn && p->conn->state == CONN_OPEN ? vvi_conn_new(net) : NULL;
    if (!c) {
        vvi_direct_made(net, p->id, -1);
        return;
    }
    c->peer = p;
    c->direct = true;
    rc = net->ops->connect(net->io, c, &addr);
    if (rc)
        vvi_conn_broken(c, rc);
}

/* Ends its connections. This is our own doing, and not reported as an event. */
static void part(struct vv_net *net, struct vvi_peer *p)
{
    struct vvi_conn *c = p->conn;
    uint64_t serial;

    for (struct vvi_conn *d = net->conns, *next; d; d = next) {
        next = d->next;
        if (d->direct && d->peer == p)
            vvi_conn_broken(d, -ECONNRESET);
    }
    set_open(net, p, false);
    if (!c)
        return;
    serial = c->serial;
    if (c->state == CONN_OPEN)
        atomic_fetch_sub_explicit(&net->count.connected, 1, memory_order_relaxed);
    c->peer = NULL;
    p->conn = NULL;
    c->state = CONN_DENIED;
    vvi_conn_broken(c, -ECONNRESET);
    vvi_calls_fail(net, serial, 0, -ECONNRESET);
}

/* Removes a peer and frees it; frames that wait for it fail. */
static void remove_peer(struct vv_net *net, struct vvi_peer *p)
{
    vv_mutex_lock(&net->lock);
    (void)vv_table_remove(&net->peers, p);
    vv_mutex_unlock(&net->lock);
    part(net, p);
    give_up_frames(net, p, -ECONNRESET);
    free(p);
}

static void work_on(struct vv_net *net, struct vvi_peer *p, uint64_t now)
{
    bool dirty, dropped, keep;

    vv_mutex_lock(&net->lock);
    dirty = p->dirty;
    dropped = p->dropped;
    keep = p->flags & VV_NET_KEEP;
    p->dirty = false;
    vv_mutex_unlock(&net->lock);
    if (dropped) {
        remove_peer(net, p);
        return;
    }
    make_direct(net, p);
    if (dirty)
        part(net, p); /* it has moved; requests to the old address are lost */
    if (dirty && p->retry_at_ns)
        p->retry_at_ns = now;
    if (p->conn)
        return;
    if (p->retry_at_ns > now) {
        vvi_net_at(net, p->retry_at_ns);
        return;
    }
    if (keep || p->first || p->probes) {
        make_connection(net, p);
    } else if (p->retry_at_ns) {
        p->retry_at_ns = 0;
        set_pausing(net, p, false, 0);
    }
}

/* Only this thread removes peers. If another thread adds one meanwhile, the order may change, and some are handled
 * twice or not at all: peers_dirty makes the loop run again. */
void vvi_peers_work(struct vv_net *net, uint64_t now_ns)
{
    struct vvi_peer *p, *next;

    vv_mutex_lock(&net->lock);
    p = vv_table_first(&net->peers);
    vv_mutex_unlock(&net->lock);
    for (; p; p = next) {
        vv_mutex_lock(&net->lock);
        next = vv_table_next(&net->peers, p);
        vv_mutex_unlock(&net->lock);
        work_on(net, p, now_ns);
    }
}

void vvi_peers_free(struct vv_net *net)
{
    for (struct vvi_peer *p = vv_table_first(&net->peers); p; p = vv_table_next(&net->peers, p))
        vv_assert(!p->first && !p->conn);
    vv_table_fini_items(&net->peers);
}
