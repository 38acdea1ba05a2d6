/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A peer that does not keep to the protocol: random bytes, frames out of order, changed frames, excessive sizes,
 * reflected proofs, answers without a request. A node must neither crash nor stop serving others. The peer here
 * implements the protocol itself, over TCP, as far as the test needs.
 */
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "net/mac.h"
#include "net/net_private.h"
#include "unit/net/nt.h"

#define TOKEN "a token of a job, long enough"
#define SELF  UINT64_C(4001)

static struct nt a;
static struct nt_far good;

static int dial(int receive_bytes)
{
    struct vvi_addr addr;
    struct timeval limit = {.tv_sec = 20};
    int fd, one = 1;

    T_OK(vvi_addr_parse(vv_net_addr(a.net), &addr));
    fd = socket(AF_INET, SOCK_STREAM, 0);
    T_CHECK(fd >= 0);
    if (receive_bytes)
        T_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes)), 0);
    T_EQ(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), 0);
    T_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
    T_EQ(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)), 0);
    T_EQ(connect(fd, (struct sockaddr *)&addr.sa, addr.bytes), 0);
    return fd;
}

/* False: the other side has gone. */
static bool put(int fd, const void *p, size_t n)
{
    const uint8_t *b = p;

    while (n) {
        ssize_t k = send(fd, b, n, MSG_NOSIGNAL);
        if (k <= 0)
            return false;
        b += k;
        n -= (size_t)k;
    }
    return true;
}

static bool get(int fd, void *p, size_t n)
{
    uint8_t *b = p;

    while (n) {
        ssize_t k = recv(fd, b, n, 0);
        if (k <= 0)
            return false;
        b += k;
        n -= (size_t)k;
    }
    return true;
}

static bool put_frame(int fd, struct vvi_head h, const void *body)
{
    uint8_t wire[VVI_NET_HEAD];

    vvi_head_encode(&h, body, wire);
    return put(fd, wire, sizeof(wire)) && put(fd, body, h.body_bytes);
}

static bool get_frame(int fd, struct vvi_head *ret_head, uint8_t *body, size_t room)
{
    uint8_t wire[VVI_NET_HEAD];

    if (!get(fd, wire, sizeof(wire)))
        return false;
    T_OK(vvi_head_decode(wire, true, ret_head));
    T_CHECK(ret_head->body_bytes <= room);
    if (!get(fd, body, ret_head->body_bytes))
        return false;
    T_CHECK(vvi_head_check(wire, body, ret_head->body_bytes));
    return true;
}

static void put64(uint8_t *p, uint64_t v)
{
    for (unsigned i = 0; i < 8; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

enum shaking {
    PLAIN,
    REFLECT,         /* sends the other's proof back as its own */
    DIRECT,          /* a direct connection */
    DIRECT_UNPROVED, /* the same, with the proof of a plain one */
};

/* Does the handshake up to the proof; returns true if it was accepted. */
static bool shake(int fd, enum shaking how)
{
    uint8_t hello[33] = {1, 2, 3}, body[128], msg[65], mac[VVI_MAC_BYTES];
    uint32_t hello_bytes = how >= DIRECT ? 33 : 32;
    struct vvi_head h;

    put64(hello + 16, SELF);
    put64(hello + 24, a.id);
    hello[32] = msg[64] = 1;
    if (!put_frame(fd, (struct vvi_head){.kind = VVI_HELLO, .body_bytes = hello_bytes}, hello) ||
        !get_frame(fd, &h, body, sizeof(body)) || h.kind != VVI_CHALLENGE)
        return false;
    memcpy(msg, "varve-net-1 from", 16);
    memcpy(msg + 16, hello, 16);
    memcpy(msg + 32, body, 16);
    put64(msg + 48, SELF);
    put64(msg + 56, a.id);
    vvi_net_mac(TOKEN, strlen(TOKEN), msg, how == DIRECT ? 65 : 64, mac);
    if (how == REFLECT)
        memcpy(mac, body + 24, sizeof(mac));
    if (!put_frame(fd, (struct vvi_head){.kind = VVI_PROOF, .body_bytes = 32}, mac) ||
        !get_frame(fd, &h, body, sizeof(body)))
        return false;
    return h.kind == VVI_WELCOME;
}

static void still_serves(void)
{
    T_OK(nt_far_echo(&good, a.id));
}

/* Reads until the node closes. */
static void drain(int fd)
{
    uint8_t buf[4096];

    shutdown(fd, SHUT_WR);
    while (recv(fd, buf, sizeof(buf), 0) > 0)
        ;
    close(fd);
}

static void test_proofs(void)
{
    struct vv_net_stats stats;
    int fd = dial(0);

    T_CHECK(shake(fd, PLAIN));
    drain(fd);
    fd = dial(0);
    T_CHECK(!shake(fd, REFLECT));
    drain(fd);
    fd = dial(0);
    T_CHECK(!shake(fd, DIRECT_UNPROVED));
    drain(fd);
    vv_net_stats(a.net, &stats);
    T_EQ(stats.denied, 2);
    still_serves();
}

/* The direct connections of a peer end with its other one; however many it makes, there is room for that one. */
static void test_direct(void)
{
    int fds[1000], nr = 0, fd = dial(0);
    uint8_t byte;

    T_CHECK(shake(fd, PLAIN));
    T_CHECK(shake(fds[0] = dial(0), DIRECT));
    drain(fd);
    T_EQ(recv(fds[0], &byte, 1, 0), 0);
    close(fds[0]);
    for (fds[0] = dial(0); shake(fds[nr], DIRECT); fds[nr] = dial(0))
        T_CHECK(++nr < 1000);
    drain(fds[nr]);
    fd = dial(0);
    T_CHECK(shake(fd, PLAIN)); /* which ends the old connections, too */
    while (nr > 0) {
        T_EQ(recv(fds[--nr], &byte, 1, 0), 0);
        close(fds[nr]);
    }
    drain(fd);
    still_serves();
}

/* Requests before the proof are ignored. */
static void test_out_of_order(void)
{
    uint8_t body[64] = {0}, byte;

    for (unsigned kind = 0; kind < VVI_KINDS + 2; kind++) {
        int fd = dial(0);
        if (kind != VVI_HELLO) {
            (void)put_frame(fd, (struct vvi_head){.kind = (uint8_t)kind, .body_bytes = 32}, body);
            T_EQ(recv(fd, &byte, 1, 0) <= 0, 1);
        }
        drain(fd);
    }
    still_serves();
}

static void random_bytes(struct t_rng *rng, int fd)
{
    uint8_t buf[300];

    for (unsigned i = 0; i < sizeof(buf); i++)
        buf[i] = (uint8_t)t_rng_u64(rng);
    if (t_rng_below(rng, 2))
        memcpy(buf, "VVN1\1", 5);
    (void)put(fd, buf, 1 + t_rng_below(rng, sizeof(buf)));
}

/* Sends a frame with a right sum and random fields. */
static void random_frame(struct t_rng *rng, int fd)
{
    static const uint64_t sizes[] = {0, 1, 64, 1 << 20, VV_NET_DATA_MAX, UINT64_MAX, 1 << 16};
    uint8_t body[256];
    struct vvi_head h = {
        .kind = (uint8_t)t_rng_below(rng, VVI_KINDS + 1),
        .type = (uint16_t)(t_rng_below(rng, 2) ? NT_HOLD : t_rng_u64(rng)),
        .flags = (uint32_t)t_rng_below(rng, 4),
        .id = t_rng_below(rng, 2) ? t_rng_below(rng, 4) : t_rng_u64(rng),
        .epoch = t_rng_below(rng, 3),
        .status = -(int)t_rng_below(rng, 200),
        .body_bytes = (uint32_t)t_rng_below(rng, sizeof(body)),
        .data_bytes = sizes[t_rng_below(rng, VV_ARRAY_SIZE(sizes))],
        .data_sum = t_rng_u64(rng),
    };

    if (h.type == NT_MEMORY || h.type == NT_FILE || h.type == NT_SHORT || h.type == NT_STATUS)
        h.type = NT_ECHO; /* the test's own answers trust their input */
    for (unsigned i = 0; i < sizeof(body); i++)
        body[i] = (uint8_t)t_rng_u64(rng);
    (void)put_frame(fd, h, body);
}

static void test_random(void)
{
    struct t_rng rng = {t_seed()};
    uint64_t n = t_cases(300, 20000);

    for (uint64_t i = 0; i < n; i++) {
        int fd = dial(0);
        bool proved = t_rng_below(&rng, 4) != 0 && shake(fd, PLAIN);
        for (uint64_t k = 1 + t_rng_below(&rng, 6); k > 0; k--) {
            if (proved)
                random_frame(&rng, fd);
            else
                random_bytes(&rng, fd);
        }
        if (t_rng_below(&rng, 2))
            close(fd);
        else
            drain(fd);
        nt_answer_held(&a);
        if (i % 50 == 0)
            still_serves();
    }
    still_serves();
}

/* A peer sends requests and never receives an answer: it is refused, then disconnected; memory does not grow. */
static void test_never_takes(void)
{
    int fd = dial(4096);
    struct nt_range range = {0, 64 << 10};
    struct vvi_head h = {.kind = VVI_REQUEST,
                         .type = NT_FILE,
                         .body_bytes = sizeof(range),
                         .data_bytes = 64 << 10,
                         .data_sum = NT_S};
    unsigned sent = 0;

    T_CHECK(shake(fd, PLAIN));
    while (sent < 100000 && put_frame(fd, h, &range))
        sent++;
    T_CHECK(sent < 100000);
    t_note("disconnected after %u requests", sent);
    close(fd);
    still_serves();
}

/* The file ends while it is being sent: the stream stays in step, and the sum is wrong. */
static void test_spoiled(void)
{
    int fd = dial(4096);
    struct nt_range range = {0, NT_FILE_BYTES};
    struct vvi_head h = {.kind = VVI_REQUEST,
                         .type = NT_FILE,
                         .id = 5,
                         .body_bytes = sizeof(range),
                         .data_bytes = NT_FILE_BYTES,
                         .data_sum = NT_S},
                    answer;
    uint8_t *data = malloc(NT_FILE_BYTES), body[64];

    T_CHECK(data && shake(fd, PLAIN));
    T_CHECK(put_frame(fd, h, &range));
    T_CHECK(get_frame(fd, &answer, body, sizeof(body)));
    T_EQ(answer.data_bytes, NT_FILE_BYTES);
    T_EQ(ftruncate(a.file, NT_FILE_BYTES - 65536), 0);
    T_CHECK(get(fd, data, NT_FILE_BYTES));
    T_CHECK(vv_hash64(data, NT_FILE_BYTES) != answer.data_sum);
    T_CHECK(nt_is_pattern(data, NT_FILE_BYTES - 65536, 0));
    h.type = NT_ECHO;
    h.id = 6;
    T_CHECK(put_frame(fd, h, &range));
    T_CHECK(get_frame(fd, &answer, body, sizeof(body)));
    T_EQ(answer.id, 6);
    free(data);
    drain(fd);
    still_serves();
}

/* Listens at any port, and returns the address. */
static int listen_at(char *text, size_t size)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(sa);
    int lfd = socket(AF_INET, SOCK_STREAM, 0);

    T_EQ(bind(lfd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    T_EQ(listen(lfd, 10), 0);
    T_EQ(getsockname(lfd, (struct sockaddr *)&sa, &bytes), 0);
    snprintf(text, size, "127.0.0.1:%u", ntohs(sa.sin_port));
    return lfd;
}

/* A listener that answers our connections with random bytes. */
static void *bad_listener(void *arg)
{
    int lfd = *(int *)arg;
    struct t_rng rng = {t_seed() + 1};

    for (;;) {
        int fd = accept(lfd, NULL, NULL);
        if (fd < 0)
            return NULL;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        (void)poll(&p, 1, 1000);
        if (t_rng_below(&rng, 2))
            random_bytes(&rng, fd);
        else
            random_frame(&rng, fd);
        close(fd);
    }
}

static void test_bad_server(void)
{
    char text[64];
    int lfd = listen_at(text, sizeof(text));
    pthread_t thread;
    size_t none = 0;

    T_EQ(pthread_create(&thread, NULL, bad_listener, &lfd), 0);
    for (unsigned i = 0; i < 20; i++) {
        struct vv_net_ask ask = nt_ask(5000 + i, NT_ECHO, NULL, 0);
        T_OK(vv_net_peer_set(a.net, 5000 + i, text, 0));
        T_CHECK(vv_net_call(a.net, &ask, NULL, &none, NULL) < 0);
        vv_net_peer_drop(a.net, 5000 + i);
    }
    shutdown(lfd, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(lfd);
    still_serves();
}

/* ---- a server with wrong answers ---- */

/* On each connection of the node the server proves `token` as node `id`, and then behaves as its fields say. */
struct server {
    uint64_t id;         /* that the node connects to */
    uint64_t says;       /* id that the server gives */
    const char *token;   /* that it proves */
    const char *label;   /* role in the proof */
    uint64_t data_bytes; /* of its first answer */
    unsigned proofs;     /* received from the node */
    unsigned requests;   /* of the node */
    /* Direct connections of the node: they are accepted, and closed with the same bytes. */
    unsigned directs;
    int lfd;
    pthread_t thread;
};

static bool challenge(const struct server *s, int fd, bool *ret_direct)
{
    uint8_t hello[33], out[16 + 8 + VVI_MAC_BYTES] = {7, 8, 9}, msg[65];
    struct vvi_head h;

    if (!get_frame(fd, &h, hello, sizeof(hello)) || h.kind != VVI_HELLO)
        return false;
    *ret_direct = h.body_bytes == sizeof(hello);
    put64(out + 16, s->says);
    memcpy(msg, s->label, 16);
    memcpy(msg + 16, hello, 16);
    memcpy(msg + 32, out, 16);
    put64(msg + 48, a.id);
    put64(msg + 56, s->says);
    msg[64] = 1;
    vvi_net_mac(s->token, strlen(s->token), msg, *ret_direct ? 65 : 64, out + 24);
    return put_frame(fd, (struct vvi_head){.kind = VVI_CHALLENGE, .body_bytes = sizeof(out)}, out);
}

/* False: the connection has ended. */
static bool answer_one(struct server *s, int fd)
{
    static uint8_t data[64 << 10];
    uint8_t body[256];
    struct vvi_head h, r;

    memset(data, 0xee, sizeof(data));
    if (!get_frame(fd, &h, body, sizeof(body)) || h.kind != VVI_REQUEST)
        return false;
    r = (struct vvi_head){.kind = VVI_ANSWER, .id = h.id, .epoch = h.epoch};
    r.data_bytes = s->requests++ == 0 ? s->data_bytes : 0;
    r.data_sum = vv_hash64(data, r.data_bytes);
    return put_frame(fd, r, NULL) && put(fd, data, r.data_bytes);
}

static void let_in_and_close(struct server *s, int fd)
{
    uint8_t wire[2 * VVI_NET_HEAD];

    vvi_head_encode(&(struct vvi_head){.kind = VVI_WELCOME}, NULL, wire);
    vvi_head_encode(&(struct vvi_head){.kind = VVI_BYE}, NULL, wire + VVI_NET_HEAD);
    (void)put(fd, wire, sizeof(wire));
    s->directs++;
}

/* Returns true if requests come on the connection. */
static bool let_in(struct server *s, int fd)
{
    uint8_t body[256];
    struct vvi_head h;
    bool direct;

    if (!challenge(s, fd, &direct) || !get_frame(fd, &h, body, sizeof(body)) || h.kind != VVI_PROOF)
        return false;
    s->proofs++;
    if (direct)
        let_in_and_close(s, fd);
    return !direct && put_frame(fd, (struct vvi_head){.kind = VVI_WELCOME}, NULL);
}

static void *server_main(void *arg)
{
    struct server *s = arg;
    int fd = -1; /* the connection on which requests come */

    for (;;) {
        struct pollfd p[2] = {{.fd = s->lfd, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
        T_CHECK(poll(p, 2, -1) > 0);
        if (p[1].revents && !answer_one(s, fd)) {
            close(fd);
            fd = -1;
        }
        if (!p[0].revents)
            continue;
        int next = accept(s->lfd, NULL, NULL);
        if (next < 0)
            break;
        if (!let_in(s, next)) {
            close(next);
            continue;
        }
        T_EQ(fd, -1);
        fd = next;
    }
    if (fd >= 0)
        close(fd);
    return NULL;
}

static void server_open(struct server *s)
{
    char text[64];

    s->lfd = listen_at(text, sizeof(text));
    T_EQ(pthread_create(&s->thread, NULL, server_main, s), 0);
    T_OK(vv_net_peer_set(a.net, s->id, text, 0));
}

static void server_close(struct server *s)
{
    vv_net_peer_drop(a.net, s->id);
    shutdown(s->lfd, SHUT_RDWR);
    pthread_join(s->thread, NULL);
    close(s->lfd);
}

static int ask_server(const struct server *s, unsigned flags)
{
    struct vv_net_ask ask = nt_ask(s->id, NT_ECHO, NULL, 0);
    size_t none = 0;

    ask.flags = flags;
    ask.deadline_ns = vv_now_ns() + 5 * NT_S;
    return vv_net_call(a.net, &ask, NULL, &none, NULL);
}

/* A server that cannot prove the token gets no proof, which it could use elsewhere, and no request. */
static void test_server_unproved(void)
{
    static const char from[] = "varve-net-1 from", to[] = "varve-net-1 to  ";
    struct server bad[] = {
        {.id = 6001, .says = 6001, .token = "another token of another job", .label = to},
        {.id = 6002, .says = 6999, .token = TOKEN, .label = to},
        {.id = 6003, .says = 6003, .token = TOKEN, .label = from},
    };
    struct server well = {.id = 6004, .says = 6004, .token = TOKEN, .label = to};
    struct vv_net_stats stats;
    uint64_t denied;

    for (size_t i = 0; i < VV_ARRAY_SIZE(bad); i++) {
        vv_net_stats(a.net, &stats);
        denied = stats.denied;
        server_open(&bad[i]);
        T_CHECK(ask_server(&bad[i], 0) < 0);
        server_close(&bad[i]);
        T_EQ(bad[i].proofs, 0);
        T_EQ(bad[i].requests, 0);
        vv_net_stats(a.net, &stats);
        T_CHECK(stats.denied > denied);
    }
    /* The server itself works: one with the right proof gets requests. */
    server_open(&well);
    T_OK(ask_server(&well, 0));
    server_close(&well);
    T_EQ(well.proofs, 1);
    T_EQ(well.requests, 1);
    still_serves();
}

/* It answers with more data than requested: refused, and nothing is written behind the buffer. The next frame on the
 * connection is handled normally. */
static void test_server_too_much(void)
{
    enum { ROOM = 4096 };
    static uint8_t buf[64 << 10];
    struct server s = {.id = 6011,
                       .says = 6011,
                       .token = TOKEN,
                       .label = "varve-net-1 to  ",
                       .data_bytes = sizeof(buf)};
    struct vv_net_ask ask = nt_ask(s.id, NT_MEMORY, NULL, 0);
    struct vv_net_answer answer;
    struct vv_net_call *call;

    memset(buf, 0x11, sizeof(buf));
    server_open(&s);
    ask.data_max = ROOM;
    ask.dst = buf;
    T_OK(vv_net_start(a.net, &ask, &call));
    T_ERR(vv_net_wait(call, VV_NEVER_NS, &answer), -EMSGSIZE);
    vv_net_end(call);
    for (size_t i = 0; i < sizeof(buf); i++)
        T_EQ(buf[i], 0x11);
    T_OK(ask_server(&s, 0));
    server_close(&s);
    T_EQ(s.proofs, 1);
    T_EQ(s.requests, 2);
    still_serves();
}

/* A direct connection is accepted and closed at once: requests go by the other connection, and after the pause, which
 * is longer than this test, there is another attempt. Closing the node checks that none is counted any more. */
static void test_server_direct(void)
{
    struct server s = {.id = 6031, .says = 6031, .token = TOKEN, .label = "varve-net-1 to  "};

    server_open(&s);
    for (unsigned i = 0; i < 500; i++)
        T_OK(ask_server(&s, VV_NET_DIRECT));
    server_close(&s);
    T_EQ(s.requests, 500);
    T_EQ(s.directs, 1);
    still_serves();
}

/* A call has one answer, on the connection that it went out on. While that is being received, which takes a while if
 * its data comes by UCX, a second one is refused. */
static void test_one_answer(void)
{
    enum { PEER = 6021, SERIAL = 1 << 30 }; /* no connection has this one */
    struct vv_net_ask ask = nt_ask(PEER, NT_ECHO, NULL, 0);
    struct vv_net_call *call, *first;
    struct vv_net_answer answer;
    char text[64];
    int lfd = listen_at(
        text, sizeof(text)); /* no process answers there: the request stays in the queue */

    T_OK(vv_net_peer_set(a.net, PEER, text, 0));
    T_OK(vv_net_start(a.net, &ask, &call));
    T_CHECK(vvi_call_sending(a.net, call->id, SERIAL));
    T_CHECK(!vvi_call_find(a.net, call->id, SERIAL + 1));
    first = vvi_call_find(a.net, call->id, SERIAL);
    T_CHECK(first == call);
    T_CHECK(!vvi_call_find(a.net, call->id, SERIAL));
    vvi_conn_data_end(a.net, first, -EPROTO);
    T_ERR(vv_net_wait(call, VV_NEVER_NS, &answer), -EPROTO);
    T_CHECK(!vvi_call_find(a.net, call->id, SERIAL));
    vv_net_end(call);
    vv_net_peer_drop(a.net, PEER);
    close(lfd);
    still_serves();
}

static void tune(struct vv_net_opts *o)
{
    o->memory_max = 1; /* everything is sent from the file, which tests change */
    o->retry_max_ns = 600 * NT_S;
    o->peers_max = 30;
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    nt_transport = VV_NET_TCP;
    nt_far_open(&good, 1002, TOKEN, NULL);
    nt_open(&a, 1001, TOKEN, tune);
    nt_meet(&a, &good);
    T_RUN(test_proofs);
    T_RUN(test_direct);
    T_RUN(test_out_of_order);
    T_RUN(test_random);
    T_RUN(test_never_takes);
    T_RUN(test_bad_server);
    T_RUN(test_server_unproved);
    T_RUN(test_server_too_much);
    T_RUN(test_server_direct);
    T_RUN(test_one_answer);
    T_RUN(test_spoiled);
    nt_far_close(&good);
    nt_close(&a);
    return t_done();
}
