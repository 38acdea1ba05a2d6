/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections, for any backend: the handshake, and the meaning of frames. All on the I/O thread.
 *
 *   connecting side                   accepting side
 *   HELLO nonce, own id, peer's id      ->
 *                                     <-  CHALLENGE nonce, keyed hash of both nonces and both names
 *   PROOF the same for the other role   ->
 *                                     <-  WELCOME, or DENY
 *
 * The hash is keyed with the token and includes the role that computed it, so that an answer cannot be sent back as
 * one's own. Until a peer has proved the token it may send only these frames, of a few dozen bytes, within
 * connect_ns. The accepting side proves itself first: its proof reveals nothing to a peer without the token.
 *
 * A peer may send anything. Each frame is checked for its sum, for its place in the handshake and for its sizes. A
 * frame that does not fit ends the connection, and so all requests on it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/le.h"
#include "base/log.h"
#include "net/mac.h"
#include "net/serve.h"

#define LOG_DENIED_NS (60 * VV_NS_PER_S)

enum {
    NONCE = 16,
    HELLO_BYTES = NONCE + 16,
    DIRECT_BYTES = HELLO_BYTES + 1,
    SPARE_CONNS = 64,
    CHALLENGE_BYTES = NONCE + 8 + VVI_MAC_BYTES
};

struct vvi_conn *vvi_conn_new(struct vv_net *net)
{
    struct vvi_conn *c;

    /* Ours, theirs, and a few that are not identified yet. */
    if (net->nr_conns >= 2 * net->opts.peers_max + SPARE_CONNS)
        return NULL;
    c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->net = net;
    c->serial = ++net->next_serial;
    c->deadline_ns = vv_now_ns() + net->opts.connect_ns;
    c->next = net->conns;
    if (c->next)
        c->next->prev = c;
    net->conns = c;
    net->nr_conns++;
    vv_table_add(&net->by_serial, c);
    vvi_net_at(net, c->deadline_ns);
    return c;
}

struct vvi_conn *vvi_conn_find(struct vv_net *net, uint64_t serial)
{
    return vv_table_find(&net->by_serial, serial);
}

void vvi_conn_send(struct vvi_conn *c, struct vvi_frame *f)
{
    if (f->call && !vvi_call_sending(c->net, f->call, c->serial)) {
        vvi_frame_free(c->net, f);
        return;
    }
    vvi_count(c->net, sent, 1);
    vvi_count(c->net, sent_bytes, f->data_bytes);
    c->net->ops->send(c->net->io, c, f);
}

static int send_plain(struct vvi_conn *c, enum vvi_net_kind kind, const void *body, size_t bytes)
{
    struct vvi_head h = {
        .kind = (uint8_t)kind, .body_bytes = (uint32_t)bytes, .epoch = vv_net_epoch(c->net)};
    struct vvi_frame *f = vvi_frame_new(&h, body);

    if (!f)
        return -ENOMEM;
    vvi_conn_send(c, f);
    return 0;
}

/* ---- the handshake ---- */

/* role 0: proof of the connecting side; 1: of the accepting side. On a direct connection one more byte is proved. */
static void proof_of(const struct vvi_conn *c, unsigned role, uint8_t ret_mac[VVI_MAC_BYTES])
{
    static const char label[2][16] = {"varve-net-1 from", "varve-net-1 to  "};
    const struct vv_net *net = c->net;
    uint64_t other = c->peer ? c->peer->id : c->from;
    uint8_t msg[16 + 2 * NONCE + 16 + 1];

    memcpy(msg, label[role], 16);
    memcpy(msg + 16, c->nonce[0], NONCE);
    memcpy(msg + 16 + NONCE, c->nonce[1], NONCE);
    vv_le_put(msg + 16 + 2 * NONCE, c->peer ? net->opts.self : other, 8);
    vv_le_put(msg + 24 + 2 * NONCE, c->peer ? other : net->opts.self, 8);
    msg[sizeof(msg) - 1] = 1;
    vvi_net_mac(net->token, net->opts.token_bytes, msg, sizeof(msg) - !c->direct, ret_mac);
}

static bool proof_is(const struct vvi_conn *c, unsigned role, const uint8_t *mac)
{
    uint8_t own[VVI_MAC_BYTES];

    proof_of(c, role, own);
    return vvi_net_mac_equal(own, mac);
}

static int draw(uint8_t *ret_nonce)
{
    return getrandom(ret_nonce, NONCE, 0) == NONCE ? 0 : -EIO;
}

int vvi_conn_connected(struct vvi_conn *c)
{
    uint8_t body[DIRECT_BYTES];
    int rc = draw(c->nonce[0]);

    vv_assert(c->peer && c->state == CONN_CONNECTING);
    if (rc)
        return rc;
    memcpy(body, c->nonce[0], NONCE);
    vv_le_put(body + NONCE, c->net->opts.self, 8);
    vv_le_put(body + NONCE + 8, c->peer->id, 8);
    body[HELLO_BYTES] = 1;
    c->state = CONN_HELLO;
    return send_plain(c, VVI_HELLO, body, c->direct ? DIRECT_BYTES : HELLO_BYTES);
}

struct vvi_conn *vvi_conn_accepted(struct vv_net *net)
{
    struct vvi_conn *c = vvi_conn_new(net);

    if (c)
        c->state = CONN_ACCEPTED;
    return c;
}

/* Logs a peer without the token. It may try at any rate: there is at most one message a minute. */
static void log_denied(const struct vvi_conn *c, uint64_t peer)
{
    struct vv_net *net = c->net;
    uint64_t now_ns = vv_now_ns();

    if (now_ns < net->log_denied_ns)
        return;
    net->log_denied_ns = now_ns + LOG_DENIED_NS;
    vv_log(VV_LOG_WARNING,
           "a node (%016" PRIx64 ") with another token than this one's was refused; nodes of one "
           "job need the same token (%" PRIu64 " connections refused so far)",
           peer, atomic_load_explicit(&net->count.denied, memory_order_relaxed));
}

/* Sends a refusal; the peer has until its deadline to close the connection. */
static int deny(struct vvi_conn *c)
{
    vvi_count(c->net, denied, 1);
    c->state = CONN_DENIED;
    return send_plain(c, VVI_DENY, NULL, 0);
}

static int take_hello(struct vvi_conn *c, const struct vvi_head *h, const uint8_t *body)
{
    uint8_t out[CHALLENGE_BYTES];
    int rc;

    c->direct = h->body_bytes == DIRECT_BYTES && body[HELLO_BYTES] == 1;
    if (h->body_bytes != HELLO_BYTES && !c->direct)
        return -EBADMSG;
    /* Direct connections leave room for one other connection of each peer. */
    if (c->direct && c->net->nr_conns > c->net->opts.peers_max + SPARE_CONNS)
        return -ENOBUFS;
    c->from = vv_le_get(body + NONCE, 8);
    if (c->from == c->net->opts.self || vv_le_get(body + NONCE + 8, 8) != c->net->opts.self)
        return deny(c);
    memcpy(c->nonce[0], body, NONCE);
    rc = draw(c->nonce[1]);
    if (rc)
        return rc;
    memcpy(out, c->nonce[1], NONCE);
    vv_le_put(out + NONCE, c->net->opts.self, 8);
    proof_of(c, 1, out + NONCE + 8);
    c->state = CONN_CHALLENGED;
    return send_plain(c, VVI_CHALLENGE, out, sizeof(out));
}

static int take_challenge(struct vvi_conn *c, const struct vvi_head *h, const uint8_t *body)
{
    uint8_t mac[VVI_MAC_BYTES];

    if (h->body_bytes != CHALLENGE_BYTES)
        return -EBADMSG;
    memcpy(c->nonce[1], body, NONCE);
    if (vv_le_get(body + NONCE, 8) != c->peer->id || !proof_is(c, 1, body + NONCE + 8)) {
        vvi_count(c->net, denied, 1);
        log_denied(c, c->peer->id);
        return -EACCES;
    }
    proof_of(c, 0, mac);
    c->state = CONN_PROVING;
    return send_plain(c, VVI_PROOF, mac, sizeof(mac));
}

/* Closes the connections that a peer has to us, except `except`, when the backend is done with its events. This is not
 * reported as an event. */
static void retire(struct vv_net *net, uint64_t from, const struct vvi_conn *except)
{
    for (struct vvi_conn *c = net->conns; c; c = c->next) {
        if (c == except || c->peer || c->from != from || c->state != CONN_OPEN)
            continue;
        c->state = CONN_DENIED;
        c->deadline_ns = vv_now_ns();
        if (!c->direct)
            atomic_fetch_sub_explicit(&net->count.accepted, 1, memory_order_relaxed);
        vvi_net_at(net, c->deadline_ns);
    }
}

static int take_proof(struct vvi_conn *c, const struct vvi_head *h, const uint8_t *body)
{
    if (h->body_bytes != VVI_MAC_BYTES)
        return -EBADMSG;
    if (!proof_is(c, 0, body)) {
        int rc = deny(c);

        log_denied(c, c->from);
        return rc;
    }
    c->state = CONN_OPEN;
    if (!c->direct) {
        vvi_count(c->net, accepted, 1);
        /* A peer has one connection to us, and makes direct ones after it: all others are stale. */
        retire(c->net, c->from, c);
        vvi_peer_seen(c->net, c->from);
    }
    return send_plain(c, VVI_WELCOME, NULL, 0);
}

static int shake(struct vvi_conn *c, const struct vvi_head *h, const uint8_t *body)
{
    if (h->kind == VVI_HELLO && c->state == CONN_ACCEPTED)
        return take_hello(c, h, body);
    if (h->kind == VVI_CHALLENGE && c->state == CONN_HELLO)
        return take_challenge(c, h, body);
    if (h->kind == VVI_PROOF && c->state == CONN_CHALLENGED)
        return take_proof(c, h, body);
    if (h->kind == VVI_DENY && (c->state == CONN_HELLO || c->state == CONN_PROVING))
        return -EACCES;
    if (h->kind == VVI_WELCOME && c->state == CONN_PROVING) {
        c->state = CONN_OPEN;
        if (!c->direct)
            vvi_peer_opened(c->net, c->peer);
        return 0;
    }
    return -EBADMSG;
}

/* ---- after it ---- */

static void compare_epoch(struct vvi_conn *c, uint64_t epoch)
{
    const struct vv_net_events *e = &c->net->opts.events;

    if (epoch > vv_net_epoch(c->net) && e->epoch)
        e->epoch(e->user, c->peer ? c->peer->id : c->from, epoch);
}

/* Stores an answer's status and body in the call; its data is yet to come. */
static int fill_answer(struct vv_net_call *call, const struct vvi_head *h, const void *body)
{
    free(call->body); /* of an answer whose data did not come by UCX */
    call->body = h->body_bytes ? malloc(h->body_bytes) : NULL;
    if (h->body_bytes && !call->body)
        return -ENOMEM;
    if (h->body_bytes)
        memcpy(call->body, body, h->body_bytes);
    vvi_call_answered(call, h);
    return 0;
}

static int take_answer(struct vvi_conn *c, const struct vvi_head *h, const void *body)
{
    struct vv_net *net = c->net;
    struct vv_net_call *call;
    int filled;

    if (h->flags & VVI_FLAG_APART && !net->ops->expect)
        return -EBADMSG;
    call = vvi_call_find(net, h->id, c->serial);
    if (!call)
        return 0; /* the call has ended */
    filled = fill_answer(call, h, body);
    if (filled == 0 && h->data_bytes > call->data_max)
        filled = -EMSGSIZE;
    if (filled == 0 && h->flags & VVI_FLAG_APART) {
        vvi_count(net, received_bytes, h->data_bytes);
        net->ops->expect(net->io, c, h->id, call, h->data_bytes);
        return 0;
    }
    vvi_conn_data_end(net, call, filled ? filled : call->refused);
    return 0;
}

static int take_request(struct vvi_conn *c, const struct vvi_head *h, const void *body)
{
    if (h->epoch < vv_net_epoch(c->net) && !(h->flags & VVI_FLAG_ANY_EPOCH)) {
        vvi_count(c->net, stale, 1);
        return vvi_serve_refuse(c, h, -ESTALE);
    }
    return vvi_serve(c, h, body);
}

/* Answers come on our connections, requests and messages on the peers'. */
static int take_open(struct vvi_conn *c, const struct vvi_head *h, const void *body)
{
    const struct vv_net_events *e = &c->net->opts.events;
    struct vv_net_msg m = {.from = c->from,
                           .epoch = h->epoch,
                           .type = h->type,
                           .body = body,
                           .body_bytes = h->body_bytes};

    if (h->kind == VVI_BYE)
        return -ESHUTDOWN;
    compare_epoch(c, h->epoch);
    if (h->kind == VVI_ANSWER && c->peer)
        return take_answer(c, h, body);
    if (h->kind == VVI_REQUEST && !c->peer)
        return take_request(c, h, body);
    if (h->kind == VVI_REACH && !c->peer) {
        if (c->net->ops->reached)
            c->net->ops->reached(c->net->io, c, body, h->body_bytes);
        return 0;
    }
    if (h->kind != VVI_MESSAGE || c->peer)
        return -EBADMSG;
    if (e->message)
        e->message(e->user, &m);
    return 0;
}

int vvi_conn_frame(struct vvi_conn *c, const struct vvi_head *h, const uint8_t wire[VVI_NET_HEAD],
                   const void *body)
{
    int rc;

    if (!vvi_head_check(wire, body, h->body_bytes))
        rc = -EBADMSG;
    else if (c->state == CONN_DENIED)
        return 0;
    else if (c->state == CONN_OPEN)
        rc = take_open(c, h, body);
    else
        rc = shake(c, h, body);
    vvi_count(c->net, received, 1);
    if (rc == -EBADMSG)
        vvi_count(c->net, malformed, 1);
    return rc;
}

struct vv_net_call *vvi_conn_data(struct vvi_conn *c, const struct vvi_head *h,
                                  const uint8_t wire[VVI_NET_HEAD], const void *body, int *ret_rc)
{
    struct vv_net *net = c->net;
    struct vv_net_call *call;
    int rc = 0;

    *ret_rc = 0;
    if (!vvi_head_check(wire, body, h->body_bytes) || c->state != CONN_OPEN || !c->peer ||
        h->kind != VVI_ANSWER) {
        vvi_count(net, malformed, 1);
        *ret_rc = -EBADMSG;
        return NULL;
    }
    vvi_count(net, received, 1);
    vvi_count(net, received_bytes, h->data_bytes);
    compare_epoch(c, h->epoch);
    call = vvi_call_find(net, h->id, c->serial);
    if (!call && net->ops->give_up)
        call = net->ops->give_up(net->io, c, h->id);
    if (!call)
        return NULL;
    if (h->data_bytes > call->data_max)
        rc = -EMSGSIZE;
    else
        rc = fill_answer(call, h, body);
    if (rc == 0) {
        call->data = vvi_pool_take(net, h->data_bytes, &call->data_room);
        call->data_bytes = h->data_bytes;
        rc = call->data ? 0 : -ENOMEM;
    }
    if (rc) {
        vvi_conn_data_end(net, call, rc);
        return NULL;
    }
    return call;
}

void vvi_conn_data_end(struct vv_net *net, struct vv_net_call *call, int rc)
{
    vvi_call_finish(net, call, rc);
    vvi_call_unref(call);
}

static void unlist(struct vvi_conn *c)
{
    struct vv_net *net = c->net;

    (void)vv_table_remove(&net->by_serial, c);
    *(c->prev ? &c->prev->next : &net->conns) = c->next;
    if (c->next)
        c->next->prev = c->prev;
    net->nr_conns--;
}

void vvi_conn_broken(struct vvi_conn *c, int err)
{
    struct vv_net *net = c->net;
    bool was_open = c->state == CONN_OPEN;
    struct vvi_peer *p = c->peer;
    uint64_t from = c->from;

    net->ops->disconnect(net->io, c);
    unlist(c);
    if (c->direct) {
        if (p)
            vvi_direct_made(net, p->id, -1);
        free(c);
        return;
    }
    if (was_open)
        atomic_fetch_sub_explicit(p ? &net->count.connected : &net->count.accepted, 1,
                                  memory_order_relaxed);
    if (p)
        vvi_calls_fail(net, c->serial, 0, was_open ? -ECONNRESET : err);
    free(c);
    if (p) {
        p->conn = NULL;
        vvi_peer_lost(net, p, was_open, err);
    } else if (was_open) {
        retire(net, from, NULL); /* its direct connections */
        vvi_net_tell(net, from, err == -ESHUTDOWN ? VV_NET_BYE : VV_NET_LOST, err);
        if (err != -ESHUTDOWN)
            vvi_peer_probe(net, from);
    }
}

void vvi_conns_expire(struct vv_net *net, uint64_t now_ns)
{
    for (struct vvi_conn *c = net->conns, *next; c; c = next) {
        next = c->next;
        if (c->state == CONN_OPEN)
            continue;
        if (now_ns >= c->deadline_ns)
            vvi_conn_broken(c, -ETIMEDOUT);
        else
            vvi_net_at(net, c->deadline_ns);
    }
}
