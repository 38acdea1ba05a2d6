/* SPDX-License-Identifier: Apache-2.0 */
/* Peers that die, freeze or do not receive their answers, as processes, over every transport. */
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
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
    /* Long before its deadline; later calls fail because no process is there. */
    T_ERR(vv_net_wait(call, VV_NEVER_NS, &answer), -ECONNRESET);
    vv_net_end(call);
    nt_await(&a, VV_NET_LOST, 1);
    nt_await(&a, VV_NET_REFUSED, 1);
    T_EQ(a.changed_peer[VV_NET_REFUSED], 2001);
    int rc = vv_net_call(a.net, &ask, NULL, &none, NULL);
    T_CHECK(rc == -ENOTCONN || rc == -ECONNREFUSED);
    nt_close(&a);
}

/* The asking process dies: the serving node continues. */
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
    /* There was never a connection of ours to it: its end was found by an attempt. */
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
    /* It stops while it receives many megabytes. */
    nt_far_load(&child, 1001, 100000);
    do {
        usleep(1000);
        vv_net_stats(a.net, &stats);
    } while (stats.sent_bytes < 2 << 20);
    kill(child.pid, SIGSTOP);
    T_EQ(waitpid(child.pid, NULL, WUNTRACED), child.pid);
    ask.deadline_ns = vv_now_ns() + 100 * VV_NS_PER_MS;
    T_ERR(vv_net_call(a.net, &ask, NULL, &none, NULL), -ETIMEDOUT);
    /* Meanwhile other peers are served. */
    for (unsigned i = 0; i < 20; i++) {
        struct vv_net_ask other = nt_ask(b.id, NT_ECHO, NULL, 0);
        T_OK(vv_net_call(a.net, &other, NULL, &none, NULL));
    }
    kill(child.pid, SIGCONT);
    ask.deadline_ns = vv_now_ns() + 60 * NT_S;
    T_OK(vv_net_call(a.net, &ask, NULL, &none, NULL));
    /* And stopping does not wait for a frozen peer. */
    kill(child.pid, SIGSTOP);
    T_EQ(waitpid(child.pid, NULL, WUNTRACED), child.pid);
    nt_close(&a);
    nt_far_close(&b);
    nt_far_kill(&child);
}

/* Bytes of a file that changes while it waits to be sent are never accepted. */
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
    /* The file was too short when its checksum was computed. */
    T_ERR(rc, -EILSEQ);
    vv_net_stats(a.net, &stats);
    T_EQ(stats.accepted, 1);
    nt_far_kill(&child);
    nt_close(&a);
}

/* A peer comes back at another address, and then at the same. */
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

/* Two peers are killed while the I/O thread is busy; the event for the first one sets a new address for the other.
 * Blocks and counts on the I/O thread. */
static struct {
    struct nt_far first[2], second[2];
    sem_t entered, go, up;
    bool held;
    unsigned lost;
} moving;

static void on_moving(void *user, uint64_t peer, enum vv_net_change change, int err)
{
    struct nt *n = user;
    struct nt_far *other = peer == 2001 ? &moving.second[1] : &moving.second[0];

    (void)err;
    if (change == VV_NET_UP)
        sem_post(&moving.up);
    if (change != VV_NET_LOST)
        return;
    if (peer == 2000 && !moving.held) {
        moving.held = true;
        sem_post(&moving.entered);
        while (sem_wait(&moving.go) != 0)
            ;
    }
    if (peer != 2000 && moving.lost++ == 0)
        T_OK(vv_net_peer_set(n->net, other->id, other->addr, VV_NET_KEEP));
}

static void tune_moving(struct vv_net_opts *opts)
{
    opts->events.peer = on_moving;
}

static void wait_on(sem_t *sem, unsigned count)
{
    while (count > 0)
        count -= sem_wait(sem) == 0;
}

/* Events at a peer's old address are not reported once it has a new one. */
static void test_moved(void)
{
    T_EQ(sem_init(&moving.entered, 0, 0), 0);
    T_EQ(sem_init(&moving.go, 0, 0), 0);
    T_EQ(sem_init(&moving.up, 0, 0), 0);
    nt_far_open(&child, 2000, TOKEN, NULL);
    for (unsigned i = 0; i < 2; i++) {
        nt_far_open(&moving.first[i], 2001 + i, TOKEN, NULL);
        nt_far_open(&moving.second[i], 2001 + i, TOKEN, NULL);
    }
    nt_open(&a, 1001, TOKEN, tune_moving);
    T_OK(vv_net_peer_set(a.net, child.id, child.addr, VV_NET_KEEP));
    for (unsigned i = 0; i < 2; i++)
        T_OK(vv_net_peer_set(a.net, 2001 + i, moving.first[i].addr, VV_NET_KEEP));
    wait_on(&moving.up, 3);
    nt_far_kill(&child);
    wait_on(&moving.entered, 1);
    for (unsigned i = 0; i < 2; i++)
        nt_far_kill(&moving.first[i]);
    sem_post(&moving.go);
    wait_on(&moving.up, 1);
    nt_close(&a);
    T_EQ(moving.lost, 1);
    for (unsigned i = 0; i < 2; i++)
        nt_far_kill(&moving.second[i]);
}

static void cases(void)
{
    NT_RUN(test_killed);
    NT_RUN(test_asker_killed);
    NT_RUN(test_frozen);
    NT_RUN(test_spoiled);
    NT_RUN(test_returns);
    NT_RUN(test_moved);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    nt_over_all(cases);
    return t_done();
}
