/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A peer that does not keep to the protocol: random bytes, frames out of order, frames that were changed, sizes
 * beyond everything, proofs sent back, answers nobody asked for. A node must neither crash nor stop serving
 * others. The peer here speaks TCP by itself, as far as it wants to.
 */
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/hash.h"
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

/* Everything up to the proof; `reflect`: sends the other's proof back as its own. */
static bool shake(int fd, bool reflect)
{
    uint8_t hello[32] = {1, 2, 3}, body[128], msg[64], mac[VVI_MAC_BYTES];
    struct vvi_head h;

    put64(hello + 16, SELF);
    put64(hello + 24, a.id);
    if (!put_frame(fd, (struct vvi_head){.kind = VVI_HELLO, .body_bytes = 32}, hello) ||
        !get_frame(fd, &h, body, sizeof(body)) || h.kind != VVI_CHALLENGE)
        return false;
    memcpy(msg, "varve-net-1 from", 16);
    memcpy(msg + 16, hello, 16);
    memcpy(msg + 32, body, 16);
    put64(msg + 48, SELF);
    put64(msg + 56, a.id);
    vvi_net_mac(TOKEN, strlen(TOKEN), msg, sizeof(msg), mac);
    if (reflect)
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

/* Whatever the node says, until it closes. */
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

    T_CHECK(shake(fd, false));
    drain(fd);
    fd = dial(0);
    T_CHECK(!shake(fd, true));
    drain(fd);
    vv_net_stats(a.net, &stats);
    T_EQ(stats.denied, 1);
    still_serves();
}

/* Requests before the proof are not listened to. */
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

/* A frame whose sum is right and whose fields are anything. */
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
        bool proved = t_rng_below(&rng, 4) != 0 && shake(fd, false);
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

/* It asks and asks, and never takes an answer: it is refused, then cut off; memory does not grow. */
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

    T_CHECK(shake(fd, false));
    while (sent < 100000 && put_frame(fd, h, &range))
        sent++;
    T_CHECK(sent < 100000);
    t_note("cut off after %u requests", sent);
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

    T_CHECK(data && shake(fd, false));
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

/* A listener that answers our connections with nonsense. */
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
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(sa);
    int lfd = socket(AF_INET, SOCK_STREAM, 0);
    char text[64];
    pthread_t thread;
    size_t none = 0;

    T_EQ(bind(lfd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    T_EQ(listen(lfd, 10), 0);
    T_EQ(getsockname(lfd, (struct sockaddr *)&sa, &bytes), 0);
    snprintf(text, sizeof(text), "127.0.0.1:%u", ntohs(sa.sin_port));
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

/* All is sent from the file, which others change. */
static void from_files(struct vv_net_opts *o)
{
    o->memory_max = 1;
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    nt_transport = VV_NET_TCP;
    nt_far_open(&good, 1002, TOKEN, NULL);
    nt_open(&a, 1001, TOKEN, from_files);
    nt_meet(&a, &good);
    T_RUN(test_proofs);
    T_RUN(test_out_of_order);
    T_RUN(test_random);
    T_RUN(test_never_takes);
    T_RUN(test_bad_server);
    T_RUN(test_spoiled);
    nt_far_close(&good);
    nt_close(&a);
    return t_done();
}
