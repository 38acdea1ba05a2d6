/* SPDX-License-Identifier: Apache-2.0 */
/* Requests, answers, messages and bulk data between two nodes, over every transport. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
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

static void close_both(void)
{
    nt_close(&a);
    nt_far_close(&b);
}

static void test_echo(void)
{
    static uint8_t body[VV_NET_BODY_MAX], back[VV_NET_BODY_MAX];
    size_t sizes[] = {0, 1, 511, 512, 513, 8000, 70000, VV_NET_BODY_MAX};

    open_both();
    for (size_t i = 0; i < sizeof(body); i++)
        body[i] = nt_pattern(i);
    for (size_t i = 0; i < VV_ARRAY_SIZE(sizes); i++) {
        struct vv_net_ask ask = nt_ask(b.id, NT_ECHO, body, sizes[i]);
        size_t bytes = sizeof(back);
        struct vv_net_answer answer;
        memset(back, 0, sizeof(back));
        T_OK(vv_net_call(a.net, &ask, back, &bytes, &answer));
        T_EQ(bytes, sizes[i]);
        T_EQ(answer.status, 0);
        T_EQ(memcmp(body, back, bytes), 0);
    }
    /* A body above the limit is refused here; one that is too long for the caller fails in vv_net_call. */
    struct vv_net_ask ask = nt_ask(b.id, NT_ECHO, body, VV_NET_BODY_MAX + 1);
    size_t bytes = 3;
    T_ERR(vv_net_call(a.net, &ask, back, &bytes, NULL), -EMSGSIZE);
    ask = nt_ask(b.id, NT_ECHO, body, 4);
    T_ERR(vv_net_call(a.net, &ask, back, &bytes, NULL), -ENOBUFS);
    T_EQ(bytes, 3);
    close_both();
}

static void test_status(void)
{
    int status = -ENOENT;
    struct vv_net_answer answer;
    size_t none = 0;

    open_both();
    struct vv_net_ask ask = nt_ask(b.id, NT_STATUS, &status, sizeof(status));
    T_OK(vv_net_call(a.net, &ask, NULL, &none, &answer));
    T_EQ(answer.status, -ENOENT);
    /* -ESTALE set by the peer's program is its answer, not a refusal. */
    status = -ESTALE;
    T_OK(vv_net_call(a.net, &ask, NULL, &none, &answer));
    T_EQ(answer.status, -ESTALE);
    ask.peer = 77;
    T_ERR(vv_net_call(a.net, &ask, NULL, &none, NULL), -ENOENT);
    T_ERR(vv_net_send(a.net, 77, 1, "x", 1), -ENOENT);
    T_ERR(vv_net_peer_set(a.net, a.id, "127.0.0.1:1", 0), -EINVAL);
    T_ERR(vv_net_peer_set(a.net, 5, "127.0.0.1", 0), -EINVAL);
    T_ERR(vv_net_peer_set(a.net, 5, "::1:7", 0), -EINVAL);
    T_ERR(vv_net_peer_set(a.net, 5, "127.0.0.1:0", 0), -EINVAL);
    close_both();
}

/* One range of the file or of memory, delivered in each of the ways. */
static void bulk(enum nt_type type, struct nt_range range)
{
    struct vv_net_ask ask = nt_ask(b.id, type, &range, sizeof(range));
    uint8_t *dst = malloc(range.bytes + 1);
    int fd = memfd_create("dst", 0);
    struct vv_net_answer answer;
    struct vv_net_call *call;

    ask.data_max = range.bytes;
    T_OK(vv_net_start(a.net, &ask, &call));
    T_OK(vv_net_wait(call, VV_NEVER_NS, &answer));
    T_EQ(answer.status, 0);
    T_EQ(answer.data_bytes, range.bytes);
    T_CHECK(nt_is_pattern(answer.data, range.bytes, range.offset));
    T_CHECK(range.bytes == 0 || answer.data_sum == vv_hash64(answer.data, range.bytes));
    T_EQ(answer.body_bytes, type == NT_FILE ? 4 : 0);
    vv_net_end(call);

    ask.dst = dst;
    T_OK(vv_net_start(a.net, &ask, &call));
    T_OK(vv_net_wait(call, VV_NEVER_NS, &answer));
    T_OK(vv_net_wait(call, 0, &answer)); /* again, with the same result */
    T_EQ(answer.data_bytes, range.bytes);
    T_CHECK(nt_is_pattern(dst, range.bytes, range.offset));
    vv_net_end(call);

    ask.dst = NULL;
    ask.dst_fd = fd;
    ask.dst_offset = 17;
    T_OK(vv_net_start(a.net, &ask, &call));
    T_OK(vv_net_wait(call, VV_NEVER_NS, &answer));
    T_CHECK(!answer.data);
    T_EQ(pread(fd, dst, range.bytes, 17), range.bytes);
    T_CHECK(nt_is_pattern(dst, range.bytes, range.offset));
    T_EQ(lseek(fd, 0, SEEK_END), range.bytes ? range.bytes + 17 : 0);
    vv_net_end(call);
    close(fd);
    free(dst);
}

static void test_bulk(void)
{
    uint64_t sizes[] = {0, 1, 4095, 65536, 65537, 1 << 20, (4 << 20) + 3};

    open_both();
    for (size_t i = 0; i < VV_ARRAY_SIZE(sizes); i++) {
        bulk(NT_FILE, (struct nt_range){i * 1001, sizes[i]});
        bulk(NT_MEMORY, (struct nt_range){i * 1001, sizes[i]});
    }
    /* The large ones came by UCX, if available, and not by TCP. */
    struct vv_net_stats stats;
    vv_net_stats(a.net, &stats);
    T_CHECK((stats.apart_bytes > 20 << 20) == (nt_transport == VV_NET_UCX));
    close_both();
}

static void from_files(struct vv_net_opts *o)
{
    o->memory_max = 100000;
}

/* Data above memory_max is sent from the file. */
static void test_bulk_of_files(void)
{
    uint64_t sizes[] = {4095, 100000, 1 << 20, (4 << 20) + 3};

    nt_far_open(&b, 1002, TOKEN, from_files);
    nt_open(&a, 1001, TOKEN, NULL);
    nt_meet(&a, &b);
    for (size_t i = 0; i < VV_ARRAY_SIZE(sizes); i++)
        bulk(NT_FILE, (struct nt_range){i * 1001, sizes[i]});
    close_both();
}

/* Only the other node has UCX: everything goes by TCP. */
static void test_mixed(void)
{
    struct vv_net_stats stats;

    nt_far_open(&b, 1002, TOKEN, NULL);
    nt_transport = VV_NET_TCP;
    nt_open(&a, 1001, TOKEN, NULL);
    nt_meet(&a, &b);
    bulk(NT_FILE, (struct nt_range){5, 1 << 20});
    nt_far_load(&b, a.id, 3);
    T_OK(nt_far_result(&b));
    vv_net_stats(a.net, &stats);
    T_EQ(stats.apart_bytes, 0);
    close_both();
}

static void test_too_much(void)
{
    struct nt_range range = {0, 100000};
    struct vv_net_answer answer;
    struct vv_net_call *call;

    open_both();
    struct vv_net_ask ask = nt_ask(b.id, NT_FILE, &range, sizeof(range));
    ask.data_max = range.bytes - 1;
    T_OK(vv_net_start(a.net, &ask, &call));
    T_OK(vv_net_wait(call, VV_NEVER_NS, &answer));
    T_EQ(answer.status, -EMSGSIZE);
    T_EQ(answer.data_bytes, 0);
    vv_net_end(call);
    ask.data_max = 0;
    T_OK(vv_net_start(a.net, &ask, &call));
    T_OK(vv_net_wait(call, VV_NEVER_NS, &answer));
    T_EQ(answer.status, -EMSGSIZE);
    vv_net_end(call);
    ask = nt_ask(b.id, NT_SHORT, &range, sizeof(range));
    ask.data_max = range.bytes;
    T_OK(vv_net_start(a.net, &ask, &call));
    T_OK(vv_net_wait(call, VV_NEVER_NS, &answer));
    T_EQ(answer.status, -ENODATA);
    vv_net_end(call);
    close_both();
}

static void test_messages(void)
{
    unsigned sent = 0;

    open_both();
    for (unsigned i = 0; i < 500; i++) {
        uint8_t byte = (uint8_t)i;
        int rc = vv_net_send(a.net, b.id, 1, &byte, 1);
        T_CHECK(rc == 0 || rc == -EAGAIN);
        sent += rc == 0;
    }
    nt_far_await_messages(&b, sent);
    close_both();
}

static void send_when_unreachable(void *user, uint64_t peer, enum vv_net_change change, int err)
{
    (void)user;
    (void)peer;
    (void)err;
    if (change == VV_NET_UNREACHABLE)
        T_OK(vv_net_send(a.net, b.id, 1, NULL, 0));
}

static void long_pauses(struct vv_net_opts *o)
{
    o->connect_ns = o->retry_ns = o->retry_max_ns = 600 * NT_S;
    o->events.peer = send_when_unreachable;
}

/* A message sent by a callback goes out at once: there is no other traffic, and no timer. */
static void test_message_from_callback(void)
{
    struct vv_net_ask ask;
    size_t none = 0;

    nt_far_open(&b, 1002, TOKEN, NULL);
    nt_open(&a, 1001, TOKEN, long_pauses);
    nt_meet(&a, &b);
    ask = nt_ask(b.id, NT_ECHO, NULL, 0);
    T_OK(vv_net_call(a.net, &ask, NULL, &none, NULL));
    /* A multicast address: connecting fails at once. */
    T_OK(vv_net_peer_set(a.net, 1003, "224.0.0.1:9", VV_NET_KEEP));
    nt_far_await_messages(&b, 1);
    close_both();
}

static void test_deadline(void)
{
    struct vv_net_answer answer;
    struct vv_net_stats stats;
    struct vv_net_call *call, *other;
    size_t which;

    open_both();
    struct vv_net_ask ask = nt_ask(b.id, NT_HOLD, NULL, 0);
    ask.deadline_ns = vv_now_ns() + 50 * VV_NS_PER_MS;
    T_OK(vv_net_start(a.net, &ask, &call));
    int rc = vv_net_wait(call, 0, &answer);
    T_CHECK(rc == -EAGAIN || (rc == -ETIMEDOUT && vv_now_ns() >= ask.deadline_ns));
    T_ERR(vv_net_wait(call, VV_NEVER_NS, &answer), -ETIMEDOUT);
    T_ERR(vv_net_wait(call, VV_NEVER_NS, &answer), -ETIMEDOUT);
    T_CHECK(vv_now_ns() >= ask.deadline_ns);
    vv_net_end(call);
    vv_net_stats(a.net, &stats);
    T_EQ(stats.timeouts, 1);
    T_EQ(stats.calls, 0);
    /* The late answer is dropped; the connection stays. */
    nt_far_answer_held(&b);
    T_OK(vv_net_start(a.net, &ask, &call));
    T_ERR(vv_net_wait(call, VV_NEVER_NS, &answer), -ETIMEDOUT);
    vv_net_end(call);

    /* One of two calls is answered. */
    ask.deadline_ns = vv_now_ns() + 60 * NT_S;
    T_OK(vv_net_start(a.net, &ask, &call));
    ask = nt_ask(b.id, NT_ECHO, "x", 1);
    T_OK(vv_net_start(a.net, &ask, &other));
    struct vv_net_call *both[] = {call, NULL, other};
    T_OK(vv_net_wait_any(both, 3, VV_NEVER_NS, &which));
    T_EQ(which, 2);
    T_OK(vv_net_wait(other, 0, &answer));
    both[2] = NULL;
    T_ERR(vv_net_wait_any(both, 3, vv_now_ns() + VV_NS_PER_MS, &which), -EAGAIN);
    T_ERR(vv_net_wait_any(both + 1, 1, VV_NEVER_NS, &which), -EINVAL);
    vv_net_end(other);
    vv_net_end(call); /* before it has ended */
    T_EQ(a.changes[VV_NET_LOST], 0);
    close_both();
}

static void test_token(void)
{
    struct vv_net_stats stats;
    struct nt_far c;
    size_t none = 0;

    nt_far_open(&b, 1002, TOKEN, NULL);
    nt_far_open(&c, 1003, "another token, as long as needed", NULL);
    nt_open(&a, 1001, TOKEN, NULL);
    nt_meet(&a, &c);
    struct vv_net_ask ask = nt_ask(c.id, NT_ECHO, NULL, 0);
    T_ERR(vv_net_call(a.net, &ask, NULL, &none, NULL), -EACCES);
    T_ERR(nt_far_echo(&c, a.id), -EACCES);
    nt_await(&a, VV_NET_DENIED, 1);
    vv_net_stats(a.net, &stats);
    T_EQ(stats.accepted + stats.connected, 0);
    /* Another node listens at the peer's address. */
    T_OK(vv_net_peer_set(a.net, 1004, b.addr, 0));
    ask.peer = 1004;
    T_ERR(vv_net_call(a.net, &ask, NULL, &none, NULL), -EACCES);
    /* With the right address it works. */
    T_OK(vv_net_peer_set(a.net, b.id, b.addr, 0));
    ask.peer = b.id;
    T_OK(vv_net_call(a.net, &ask, NULL, &none, NULL));
    nt_far_close(&c);
    close_both();
}

static void test_epoch(void)
{
    struct vv_net_answer answer = {0};
    size_t none = 0;

    open_both();
    struct vv_net_ask ask = nt_ask(b.id, NT_ECHO, NULL, 0);
    vv_net_set_epoch(a.net, 7);
    nt_far_epoch(&b, 8);
    T_ERR(vv_net_call(a.net, &ask, NULL, &none, &answer), -ESTALE);
    T_EQ(answer.epoch, 8);
    pthread_mutex_lock(&a.lock);
    T_EQ(a.newer_epoch, 8);
    pthread_mutex_unlock(&a.lock);
    ask.flags = VV_NET_ANY_EPOCH;
    T_OK(vv_net_call(a.net, &ask, NULL, &none, &answer));
    T_EQ(answer.epoch, 8);
    ask.flags = 0;
    vv_net_set_epoch(a.net, 8);
    T_OK(vv_net_call(a.net, &ask, NULL, &none, &answer));
    vv_net_set_epoch(a.net, 9);
    T_OK(vv_net_call(a.net, &ask, NULL, &none, &answer));
    T_EQ(answer.epoch, 8);
    struct nt_seen seen;
    nt_far_see(&b, &seen);
    T_EQ(seen.newer_epoch, 9);
    close_both();
}

static void few(struct vv_net_opts *o)
{
    o->queue_max = 4;
    o->serving_max = 3;
    o->peers_max = 2;
}

static void test_limits(void)
{
    struct vv_net_call *calls[4];
    struct vv_net_answer answer;

    nt_far_open(&b, 1002, TOKEN, few);
    nt_open(&a, 1001, TOKEN, few);
    nt_meet(&a, &b);
    struct vv_net_ask ask = nt_ask(b.id, NT_HOLD, NULL, 0);
    for (unsigned i = 0; i < 3; i++)
        T_OK(vv_net_start(a.net, &ask, &calls[i]));
    nt_far_await_held(&b, 3);
    /* A fourth at once is refused by the peer, and the three continue. */
    T_OK(vv_net_start(a.net, &ask, &calls[3]));
    T_ERR(vv_net_wait(calls[3], VV_NEVER_NS, &answer), -EBUSY);
    nt_far_answer_held(&b);
    for (unsigned i = 0; i < 3; i++)
        T_OK(vv_net_wait(calls[i], VV_NEVER_NS, &answer));
    for (unsigned i = 0; i < 4; i++)
        vv_net_end(calls[i]);
    T_OK(vv_net_peer_set(a.net, 2001, "127.0.0.1:9", 0));
    T_ERR(vv_net_peer_set(a.net, 2002, "127.0.0.1:9", 0), -ENOSPC);
    vv_net_peer_drop(a.net, 2001);
    T_OK(vv_net_peer_set(a.net, 2002, "127.0.0.1:9", 0));
    close_both();
}

static void test_drop(void)
{
    struct vv_net_answer answer;
    struct vv_net_call *call;
    size_t none = 0;

    open_both();
    struct vv_net_ask ask = nt_ask(b.id, NT_HOLD, NULL, 0);
    T_OK(vv_net_start(a.net, &ask, &call));
    nt_far_await_held(&b, 1);
    vv_net_peer_drop(a.net, b.id);
    T_ERR(vv_net_wait(call, VV_NEVER_NS, &answer), -ECONNRESET);
    vv_net_end(call);
    T_ERR(vv_net_start(a.net, &ask, &call), -ENOENT);
    nt_far_answer_held(&b);
    /* And again. */
    T_OK(vv_net_peer_set(a.net, b.id, b.addr, VV_NET_KEEP));
    nt_await(&a, VV_NET_UP, 2);
    ask = nt_ask(b.id, NT_ECHO, NULL, 0);
    T_OK(vv_net_call(a.net, &ask, NULL, &none, NULL));
    T_EQ(a.changes[VV_NET_LOST], 0);
    close_both();
}

/* Accepts connections, and never sends a byte. */
static int mute_listener(char *ret_addr, size_t size)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(in);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    T_CHECK(fd >= 0);
    T_EQ(bind(fd, (struct sockaddr *)&in, len), 0);
    T_EQ(listen(fd, 4), 0);
    T_EQ(getsockname(fd, (struct sockaddr *)&in, &len), 0);
    snprintf(ret_addr, size, "127.0.0.1:%u", ntohs(in.sin_port));
    return fd;
}

static void test_stop(void)
{
    struct vv_net_answer answer;
    struct vv_net_call *call, *waiting;
    char mute[32];
    int fd = mute_listener(mute, sizeof(mute));

    open_both();
    struct vv_net_ask ask = nt_ask(b.id, NT_HOLD, NULL, 0);
    T_OK(vv_net_start(a.net, &ask, &call));
    nt_far_await_held(&b, 1);
    ask.peer = 1004;
    T_OK(vv_net_peer_set(a.net, 1004, mute, 0));
    T_OK(vv_net_start(a.net, &ask, &waiting));
    vv_net_stop(a.net);
    T_ERR(vv_net_wait(call, VV_NEVER_NS, &answer), -ESHUTDOWN);
    T_ERR(vv_net_wait(waiting, VV_NEVER_NS, &answer), -ESHUTDOWN);
    vv_net_end(call);
    vv_net_end(waiting);
    T_ERR(vv_net_start(a.net, &ask, &call), -ESHUTDOWN);
    T_ERR(vv_net_send(a.net, b.id, 1, NULL, 0), -ESHUTDOWN);
    nt_far_await(&b, VV_NET_BYE);
    struct nt_seen seen;
    nt_far_see(&b, &seen);
    T_EQ(seen.changes[VV_NET_LOST], 0);
    close_both();
    close(fd);
}

static void test_bad_opts(void)
{
    struct vv_net_opts opts = {
        .listen = "127.0.0.1:0", .self = 1, .token = TOKEN, .token_bytes = 15};
    char err[128];
    struct vv_net *net;

    T_ERR(vv_net_open(&opts, err, sizeof(err), &net), -EINVAL);
    opts.token_bytes = 20;
    opts.self = 0;
    T_ERR(vv_net_open(&opts, err, sizeof(err), &net), -EINVAL);
    opts.self = 1;
    opts.listen = "nowhere";
    T_ERR(vv_net_open(&opts, err, sizeof(err), &net), -EINVAL);
    nt_open(&a, 1001, TOKEN, NULL);
    opts.listen = vv_net_addr(a.net);
    opts.transport = nt_transport;
    int rc = vv_net_open(&opts, err, sizeof(err), &net);
    T_ERR(rc, -EADDRINUSE);
    T_CHECK(strstr(err, vv_net_addr(a.net)));
    nt_close(&a);
}

/* Many calls at once, some ended at random moments. */
static uint64_t seed;

static void *worker(void *arg)
{
    struct t_rng rng = {seed + (uintptr_t)arg};

    for (unsigned i = 0; i < (t_sanitized() ? 20 : 200); i++) {
        struct nt_range range = {t_rng_below(&rng, 1 << 20), 1 + t_rng_below(&rng, 1 << 20)};
        enum nt_type type = t_rng_below(&rng, 2) ? NT_FILE : NT_MEMORY;
        struct vv_net_ask ask = nt_ask(b.id, type, &range, sizeof(range));
        struct vv_net_answer answer;
        struct vv_net_call *call;
        ask.data_max = range.bytes;
        T_OK(vv_net_start(a.net, &ask, &call));
        if (t_rng_below(&rng, 4) == 0) {
            int rc = vv_net_wait(call, vv_now_ns() + t_rng_below(&rng, 2 * VV_NS_PER_MS), &answer);
            T_CHECK(rc == 0 || rc == -EAGAIN);
        } else {
            T_OK(vv_net_wait(call, VV_NEVER_NS, &answer));
            T_EQ(answer.data_bytes, range.bytes);
            T_CHECK(nt_is_pattern(answer.data, range.bytes, range.offset));
        }
        vv_net_end(call);
    }
    return NULL;
}

static void test_many(void)
{
    pthread_t threads[4];

    seed = t_seed();
    open_both();
    nt_far_load(&b, a.id, t_sanitized() ? 20 : 60); /* and the other way */
    for (uintptr_t i = 0; i < VV_ARRAY_SIZE(threads); i++)
        T_EQ(pthread_create(&threads[i], NULL, worker, (void *)i), 0);
    for (size_t i = 0; i < VV_ARRAY_SIZE(threads); i++)
        pthread_join(threads[i], NULL);
    T_OK(nt_far_result(&b));
    T_EQ(a.changes[VV_NET_LOST], 0);
    close_both();
}

static void cases(void)
{
    NT_RUN(test_echo);
    NT_RUN(test_status);
    NT_RUN(test_bulk);
    NT_RUN(test_bulk_of_files);
    NT_RUN(test_mixed);
    NT_RUN(test_too_much);
    NT_RUN(test_messages);
    NT_RUN(test_message_from_callback);
    NT_RUN(test_deadline);
    NT_RUN(test_token);
    NT_RUN(test_epoch);
    NT_RUN(test_limits);
    NT_RUN(test_drop);
    NT_RUN(test_stop);
    NT_RUN(test_bad_opts);
    NT_RUN(test_many);
}

int main(void)
{
    nt_over_all(cases);
    return t_done();
}
