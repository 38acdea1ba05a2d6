/* SPDX-License-Identifier: Apache-2.0 */
/* Peers that die, freeze or do not take what they asked for, as processes, over every transport. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "unit/net/nt.h"

#define TOKEN "a token of a job, long enough"

static struct nt a;
static struct nt_far child;

static void open_with_child(void)
{
    nt_far_open(&child, 2001, TOKEN, NULL);
    nt_open(&a, 1001, TOKEN, NULL);
    nt_meet(&a, &child);
}

static void test_killed(void)
{
    struct vv_net_ask ask = VV_NET_ASK_INIT;
    struct vv_net_answer answer;
    struct vv_net_call *call;
    size_t none = 0;

    open_with_child();
    ask.peer = 2001;
    ask.type = NT_HOLD;
    ask.deadline_ns = vv_now_ns() + 600 * NT_S;
    T_OK(vv_net_start(a.net, &ask, &call));
    T_ERR(vv_net_wait(call, vv_now_ns() + 200 * VV_NS_PER_MS, &answer), -EAGAIN);
    nt_await(&a, VV_NET_UP, 1);
    nt_far_kill(&child);
    /* Long before its deadline; the next ones say that nobody is there. */
    T_ERR(vv_net_wait(call, VV_NEVER_NS, &answer), -ECONNRESET);
    vv_net_end(call);
    nt_await(&a, VV_NET_LOST, 1);
    nt_await(&a, VV_NET_REFUSED, 1);
    T_EQ(a.changed_peer[VV_NET_REFUSED], 2001);
    int rc = vv_net_call(a.net, &ask, NULL, &none, NULL);
    T_CHECK(rc == -ENOTCONN || rc == -ECONNREFUSED);
    nt_close(&a);
}

/* The one who asked dies: whoever serves goes on. */
static void test_asker_killed(void)
{
    open_with_child();
    nt_far_load(&child, 1001, 100000);
    struct vv_net_stats stats;
    do {
        usleep(1000);
        vv_net_stats(a.net, &stats);
    } while (stats.sent_bytes < 8 << 20);
    nt_far_kill(&child);
    nt_await(&a, VV_NET_LOST, 1);
    /* It never had a connection of ours: that it is gone was looked for. */
    nt_await(&a, VV_NET_REFUSED, 1);
    nt_close(&a);
}

static void test_frozen(void)
{
    struct vv_net_ask ask = VV_NET_ASK_INIT;
    struct vv_net_stats stats;
    size_t none = 0;
    struct nt_far b;

    nt_far_open(&b, 1002, TOKEN, NULL);
    open_with_child();
    nt_meet(&a, &b);
    ask.peer = 2001;
    ask.type = NT_ECHO;
    ask.deadline_ns = vv_now_ns() + 60 * NT_S;
    T_OK(vv_net_call(a.net, &ask, NULL, &none, NULL));
    /* It stops in the middle of taking many megabytes. */
    nt_far_load(&child, 1001, 100000);
    do {
        usleep(1000);
        vv_net_stats(a.net, &stats);
    } while (stats.sent_bytes < 2 << 20);
    kill(child.pid, SIGSTOP);
    T_EQ(waitpid(child.pid, NULL, WUNTRACED), child.pid);
    ask.deadline_ns = vv_now_ns() + 100 * VV_NS_PER_MS;
    T_ERR(vv_net_call(a.net, &ask, NULL, &none, NULL), -ETIMEDOUT);
    /* Meanwhile others are served. */
    for (unsigned i = 0; i < 20; i++) {
        struct vv_net_ask other = nt_ask(b.id, NT_ECHO, NULL, 0);
        T_OK(vv_net_call(a.net, &other, NULL, &none, NULL));
    }
    kill(child.pid, SIGCONT);
    ask.deadline_ns = vv_now_ns() + 60 * NT_S;
    T_OK(vv_net_call(a.net, &ask, NULL, &none, NULL));
    /* And stopping does not wait for one that is frozen. */
    kill(child.pid, SIGSTOP);
    T_EQ(waitpid(child.pid, NULL, WUNTRACED), child.pid);
    nt_close(&a);
    nt_far_close(&b);
    nt_far_kill(&child);
}

/* A file that changes while it waits to be sent is never taken for the right bytes. */
static void test_spoiled(void)
{
    struct vv_net_stats stats;
    int rc;

    open_with_child();
    nt_far_load(&child, 1001, 6);
    T_OK(nt_far_result(&child));
    T_EQ(ftruncate(a.file, 3 << 20), 0);
    nt_far_load(&child, 1001, 6);
    rc = nt_far_result(&child);
    /* The file was seen to be short when its checksum was computed. */
    T_ERR(rc, -EILSEQ);
    vv_net_stats(a.net, &stats);
    T_EQ(stats.accepted, 1);
    nt_far_kill(&child);
    nt_close(&a);
}

/* A peer that comes back at another address, and then at the same. */
static void test_returns(void)
{
    struct vv_net_ask ask = VV_NET_ASK_INIT;
    struct nt_far second;
    size_t none = 0;

    nt_far_open(&second, 2001, TOKEN, NULL);
    open_with_child();
    ask.peer = 2001;
    ask.type = NT_ECHO;
    ask.deadline_ns = vv_now_ns() + 60 * NT_S;
    T_OK(vv_net_call(a.net, &ask, NULL, &none, NULL));
    nt_far_kill(&child);
    nt_await(&a, VV_NET_REFUSED, 1);
    T_OK(vv_net_peer_set(a.net, 2001, second.addr, 0));
    int rc;
    do {
        rc = vv_net_call(a.net, &ask, NULL, &none, NULL);
        T_CHECK(rc == 0 || rc == -ENOTCONN);
    } while (rc);
    nt_far_kill(&second);
    nt_close(&a);
}

static void cases(void)
{
    NT_RUN(test_killed);
    NT_RUN(test_asker_killed);
    NT_RUN(test_frozen);
    NT_RUN(test_spoiled);
    NT_RUN(test_returns);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    nt_over_all(cases);
    return t_done();
}
