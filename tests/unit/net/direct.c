/* SPDX-License-Identifier: Apache-2.0 */
/* Direct connections: a caller sends and receives itself. Peers that answer, die and are closed; and malformed answers,
 * on a connection that the test has put in place. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "net/net_private.h"
#include "unit/net/nt.h"

#define TOKEN "a token of a job, long enough"

static struct nt a;
static struct nt_far b;

static void open_both(void)
{
    nt_far_open(&b, 1002, TOKEN, NULL);
    nt_open(&a, 1001, TOKEN, NULL);
    nt_meet(&a, &b);
}

static uint64_t nr_direct(void)
{
    struct vv_net_stats stats;

    vv_net_stats(a.net, &stats);
    return stats.direct;
}

static unsigned nr_idle(void)
{
    unsigned nr = 0;

    vv_mutex_lock(&a.net->lock);
    for (struct vvi_direct *d = a.net->direct; d; d = *(struct vvi_direct **)d)
        nr++;
    vv_mutex_unlock(&a.net->lock);
    return nr;
}

static void ask_file(uint64_t offset, unsigned flags)
{
    static uint8_t buf[300000];
    struct nt_range range = {offset, sizeof(buf) - offset % 1000};
    struct vv_net_ask ask = nt_ask(b.id, NT_FILE, &range, sizeof(range));
    struct vv_net_answer answer;
    struct vv_net_call *call;

    ask.flags = flags;
    ask.data_max = sizeof(buf);
    ask.dst = buf;
    T_OK(vv_net_start(a.net, &ask, &call));
    T_OK(vv_net_wait(call, VV_NEVER_NS, &answer));
    T_EQ(answer.status, 0);
    T_EQ(answer.data_bytes, range.bytes);
    T_CHECK(nt_is_pattern(buf, range.bytes, offset));
    T_EQ(answer.data_sum, flags & VV_NET_NO_SUM ? 0 : vv_hash64(buf, range.bytes));
    vv_net_end(call);
}

/* The first calls go by the I/O thread, until there is a direct connection; one caller at a time needs one. */
static void await_direct(void)
{
    for (unsigned i = 0; nr_idle() == 0; i++)
        ask_file(i % 1000, VV_NET_DIRECT);
}

static void test_talk(void)
{
    open_both();
    await_direct();
    for (unsigned i = 0; i < 100; i++)
        ask_file(i * 777, VV_NET_DIRECT | (i % 2 ? VV_NET_NO_SUM : 0));
    for (unsigned i = 0; i < 10; i++)
        ask_file(i * 777, VV_NET_NO_SUM);
    T_EQ(nr_direct(), 1);
    /* Dropping the peer closes its connections. */
    vv_net_peer_drop(a.net, b.id);
    while (nr_direct() > 0)
        usleep(1000);
    nt_close(&a);
    nt_far_close(&b);
}

static void idle_soon(struct vv_net_opts *opts)
{
    opts->idle_ns = 50 * VV_NS_PER_MS;
}

/* An idle connection is closed; the other connection stays, and a later call gets a new one. */
static void test_idle(void)
{
    nt_far_open(&b, 1002, TOKEN, NULL);
    nt_open(&a, 1001, TOKEN, idle_soon);
    nt_meet(&a, &b);
    for (unsigned round = 0; round < 2; round++) {
        await_direct();
        while (nr_direct() > 0)
            usleep(1000);
    }
    T_EQ(a.changes[VV_NET_LOST], 0);
    nt_close(&a);
    nt_far_close(&b);
}

static unsigned port_of(int fd)
{
    struct sockaddr_in sa;
    socklen_t bytes = sizeof(sa);

    return getpeername(fd, (struct sockaddr *)&sa, &bytes) == 0 && sa.sin_family == AF_INET
               ? ntohs(sa.sin_port)
               : 0;
}

static int option(int fd, int level, int name)
{
    int value = 0;
    socklen_t bytes = sizeof(value);

    T_EQ(getsockopt(fd, level, name, &value, &bytes), 0);
    return value;
}

/* All connections to a peer end soon if its machine is gone, even if nothing is sent on them. */
static void test_keepalive(void)
{
    unsigned port, nr = 0;

    open_both();
    await_direct();
    port = (unsigned)atoi(strrchr(b.addr, ':') + 1);
    for (int fd = 0; fd < 256; fd++) {
        if (port_of(fd) != port)
            continue;
        nr++;
        T_EQ(option(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
        T_CHECK(option(fd, IPPROTO_TCP, TCP_KEEPIDLE) * 1000 <
                option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT));
    }
    T_EQ(nr, 2);
    nt_close(&a);
    nt_far_close(&b);
}

static struct vv_net_call *hold(uint64_t limit_ns)
{
    struct vv_net_ask ask = nt_ask(b.id, NT_HOLD, NULL, 0);
    struct vv_net_answer answer;
    struct vv_net_call *call;

    ask.flags = VV_NET_DIRECT;
    ask.deadline_ns = vv_now_ns() + limit_ns;
    T_OK(vv_net_start(a.net, &ask, &call));
    T_CHECK(call->direct);
    T_ERR(vv_net_wait(call, vv_now_ns() + 50 * VV_NS_PER_MS, &answer), -EAGAIN);
    return call;
}

/* A deadline passes; a peer is killed. */
static void test_ends(void)
{
    struct vv_net_answer answer;
    struct vv_net_call *call;
    int rc;

    open_both();
    await_direct();
    call = hold(200 * VV_NS_PER_MS);
    T_ERR(vv_net_wait(call, VV_NEVER_NS, &answer), -ETIMEDOUT);
    vv_net_end(call);
    /* Its answer may still come: the connection was closed. */
    T_EQ(nr_idle(), 0);
    await_direct();
    vv_net_end(hold(600 * NT_S));
    T_EQ(nr_idle(), 0);
    await_direct();
    call = hold(600 * NT_S);
    nt_far_kill(&b);
    rc = vv_net_wait(call, VV_NEVER_NS, &answer);
    T_CHECK(rc == -ECONNRESET ||
            rc == -ECONNREFUSED); /* depends on which of the two connections noticed it */
    vv_net_end(call);
    nt_await(&a, VV_NET_REFUSED, 1);
    T_EQ(nr_direct(), 0);
    nt_close(&a);
}

/* A requested connection is not made: the peer is dropped, or the net ends. Closing checks that none is counted. */
static void test_unmade(void)
{
    open_both();
    ask_file(0, 0);
    T_CHECK(!vvi_direct_take(a.net, b.id));
    vv_net_peer_drop(a.net, b.id);
    nt_close(&a);
    nt_open(&a, 1001, TOKEN, NULL);
    nt_meet(&a, &b);
    ask_file(0, 0);
    T_CHECK(!vvi_direct_take(a.net, b.id));
    nt_close(&a);
    nt_far_close(&b);
}

static void *stop_net(void *arg)
{
    usleep(50000);
    vv_net_stop(arg);
    return NULL;
}

static void test_stop(void)
{
    struct vv_net_answer answer;
    struct vv_net_call *call;
    pthread_t thread;

    open_both();
    await_direct();
    call = hold(600 * NT_S);
    T_EQ(pthread_create(&thread, NULL, stop_net, a.net), 0);
    T_ERR(vv_net_wait(call, VV_NEVER_NS, &answer), -ESHUTDOWN);
    pthread_join(thread, NULL);
    vv_net_end(call);
    nt_close(&a);
    nt_far_kill(&b);
}

/* ---- answers that no peer sends ---- */

enum evil {
    RIGHT,
    MUCH,
    OTHER_ID,
    BAD_CHECK,
    BYE,
    CLOSED,
    HALF,
    NO_SUM,
    BAD_SUM,
    APART,
    TRICKLE,
    EVILS
};

/* Sends one byte at a time, until the other side has closed. Each one ends a wait for bytes. */
static void trickle(int fd, const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n && send(fd, p + i, 1, MSG_NOSIGNAL) == 1; i++)
        usleep(5000);
}

static void answer_with(int fd, enum evil how, uint64_t id)
{
    uint8_t data[1000], wire[VVI_NET_HEAD];
    struct vvi_head h = {.kind = VVI_ANSWER, .id = id, .data_bytes = sizeof(data)};
    size_t bytes = sizeof(data);

    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = nt_pattern(i);
    h.data_sum = vv_hash64(data, sizeof(data)) + (how == BAD_SUM || how == NO_SUM);
    h.kind = how == BYE ? VVI_BYE : VVI_ANSWER;
    h.id += how == OTHER_ID;
    h.data_bytes = how == MUCH ? 2000 : how == BYE ? 0 : sizeof(data);
    h.flags = how == NO_SUM ? VVI_FLAG_NO_SUM : how == APART ? VVI_FLAG_APART : 0;
    vvi_head_encode(&h, NULL, wire);
    wire[60] ^= how == BAD_CHECK;
    if (how == HALF)
        bytes /= 2;
    if (how == CLOSED) {
        shutdown(fd, SHUT_RDWR);
    } else if (how == TRICKLE) {
        trickle(fd, wire, sizeof(wire));
        trickle(fd, data, sizeof(data));
    } else {
        T_CHECK(write(fd, wire, sizeof(wire)) == sizeof(wire) && write(fd, data, bytes) > 0);
    }
}

struct evil_answer {
    int fd;
    enum evil how;
    uint64_t id;
};

static void *answer_main(void *arg)
{
    struct evil_answer *e = arg;

    answer_with(e->fd, e->how, e->id);
    return NULL;
}

static int ask_evil(enum evil how)
{
    uint8_t wire[VVI_NET_HEAD], buf[1000] = {0};
    struct vv_net_ask ask = nt_ask(b.id, NT_ECHO, NULL, 0);
    struct vv_net_answer answer;
    struct vv_net_call *call;
    struct evil_answer evil;
    struct vvi_head h;
    pthread_t thread;
    int fds[2], rc;

    T_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    vv_mutex_lock(&a.net->lock);
    a.net->nr_direct++;
    vv_mutex_unlock(&a.net->lock);
    vvi_direct_made(a.net, b.id, fds[0]);
    ask.flags = VV_NET_DIRECT;
    ask.data_max = sizeof(buf);
    ask.dst = buf;
    ask.deadline_ns =
        vv_now_ns() + (how == HALF || how == TRICKLE ? 100 * VV_NS_PER_MS : 600 * NT_S);
    T_OK(vv_net_start(a.net, &ask, &call));
    T_EQ(read(fds[1], wire, sizeof(wire)), sizeof(wire));
    T_OK(vvi_head_decode(wire, true, &h));
    evil = (struct evil_answer){fds[1], how, h.id};
    if (how == TRICKLE)
        T_EQ(pthread_create(&thread, NULL, answer_main, &evil), 0);
    else
        answer_main(&evil);
    rc = vv_net_wait(call, VV_NEVER_NS, &answer);
    /* Wrong bytes are not written to the destination. */
    T_EQ(nt_is_pattern(buf, sizeof(buf), 0), rc == 0);
    T_EQ(buf[0] == 0 || rc == 0, 1);
    vv_net_end(call);
    /* A connection that is in step is used again. */
    T_EQ(nr_idle(), rc == 0 || rc == -EBADMSG);
    vvi_direct_close(a.net, 0);
    if (how == TRICKLE)
        T_EQ(pthread_join(thread, NULL), 0);
    close(fds[1]);
    return rc;
}

static void test_evil(void)
{
    static const int expected[EVILS] = {
        [MUCH] = -EMSGSIZE,     [OTHER_ID] = -ECONNRESET, [BAD_CHECK] = -ECONNRESET,
        [BYE] = -ECONNRESET,    [CLOSED] = -ECONNRESET,   [HALF] = -ETIMEDOUT,
        [NO_SUM] = -EBADMSG,    [BAD_SUM] = -EBADMSG,     [APART] = -ECONNRESET,
        [TRICKLE] = -ETIMEDOUT,
    };

    open_both();
    ask_file(0, 0);
    for (enum evil how = RIGHT; how < EVILS; how++)
        T_EQ(ask_evil(how), expected[how]);
    ask_file(0, VV_NET_DIRECT);
    nt_close(&a);
    nt_far_close(&b);
}

int main(void)
{
    /* With UCX, data does not come on these connections. */
    nt_transport = VV_NET_TCP;
    NT_RUN(test_talk);
    NT_RUN(test_idle);
    NT_RUN(test_keepalive);
    NT_RUN(test_ends);
    NT_RUN(test_stop);
    NT_RUN(test_unmade);
    NT_RUN(test_evil);
    return t_done();
}
