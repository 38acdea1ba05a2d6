/* SPDX-License-Identifier: Apache-2.0 */
/* Membership of real processes, over every transport: they meet, one is killed, one freezes, both come back. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "dataset/gossip.h"
#include "t.h"

#define TOKEN "a token of a job, long enough"

enum { NODES = 4 };

struct node {
    struct vv_net *net;
    struct vv_gossip *gossip;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned changes;
};

static enum vv_net_transport transport;
static uint32_t life;

static void on_message(void *user, const struct vv_net_msg *m)
{
    if (m->type == VV_GOSSIP_TYPE)
        vv_gossip_message(((struct node *)user)->gossip, m);
}

static void on_peer(void *user, uint64_t peer, enum vv_net_change change, int err)
{
    (void)err;
    vv_gossip_peer(((struct node *)user)->gossip, peer, change);
}

static void on_epoch(void *user, uint64_t from, uint64_t epoch)
{
    (void)epoch;
    vv_gossip_epoch(((struct node *)user)->gossip, from);
}

static void on_changed(void *user)
{
    struct node *n = user;

    pthread_mutex_lock(&n->lock);
    n->changes++;
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
}

static void open_node(struct node *n, uint64_t id)
{
    struct vv_gossip_opts opts = {.member = {.self = {.id = id, .weight = 1},
                                             .life = life,
                                             .seed = id,
                                             .period_ns = 60 * VV_NS_PER_MS},
                                  .user = n,
                                  .changed = on_changed};
    struct vv_net_opts net = {.transport = transport,
                              .listen = "127.0.0.1:0",
                              .self = id,
                              .token = TOKEN,
                              .token_bytes = strlen(TOKEN),
                              .events = {n, NULL, on_message, on_peer, on_epoch}};
    char err[256] = "";

    *n = (struct node){0};
    pthread_mutex_init(&n->lock, NULL);
    pthread_cond_init(&n->changed, NULL);
    snprintf(opts.member.self.name, sizeof(opts.member.self.name), "node%u", (unsigned)id);
    T_OK(vv_gossip_new(&opts, &n->gossip));
    if (vv_net_open(&net, err, sizeof(err), &n->net) != 0)
        t_fail(__FILE__, __LINE__, "vv_net_open: %s", err);
    T_OK(vv_gossip_start(n->gossip, n->net, NULL));
}

static void close_node(struct node *n, bool leave)
{
    vv_gossip_stop(n->gossip, leave);
    vv_net_stop(n->net);
    vv_gossip_free(n->gossip);
    vv_net_free(n->net);
    pthread_cond_destroy(&n->changed);
    pthread_mutex_destroy(&n->lock);
}

static void add(struct node *n, uint64_t id, const char *addr)
{
    struct vv_member_info info = {.id = id, .weight = 1};

    snprintf(info.name, sizeof(info.name), "node%u", (unsigned)id);
    snprintf(info.addr, sizeof(info.addr), "%s", addr);
    int rc = vv_gossip_add(n->gossip, &info);
    T_CHECK(rc == 0 || rc == -EEXIST);
}

/* Waits until `count` members are in this state, and returns the epoch. */
static uint64_t await(struct node *n, enum vv_member_state state, unsigned count)
{
    for (;;) {
        struct vv_gossip_view *v;
        unsigned seen, found = 0;
        pthread_mutex_lock(&n->lock);
        seen = n->changes;
        pthread_mutex_unlock(&n->lock);
        T_OK(vv_gossip_view(n->gossip, &v));
        for (size_t i = 0; i < v->nr; i++)
            found += v->rows[i].state == state;
        uint64_t epoch = v->epoch;
        free(v);
        if (found == count)
            return epoch;
        pthread_mutex_lock(&n->lock);
        while (n->changes == seen)
            pthread_cond_wait(&n->changed, &n->lock);
        pthread_mutex_unlock(&n->lock);
    }
}

struct child {
    pid_t pid;
    int in, out;
    char addr[VV_NET_ADDR_MAX + 1];
};

/* Sends its address, receives those of others, and runs until it receives an empty one; then it leaves. */
static void child_main(int in, int out, uint64_t id)
{
    char addr[VV_NET_ADDR_MAX + 1];
    struct node n;

    open_node(&n, id);
    T_EQ(write(out, vv_net_addr(n.net), sizeof(addr)), sizeof(addr));
    while (read(in, addr, sizeof(addr)) == sizeof(addr) && addr[0])
        add(&n, 1, addr);
    close_node(&n, true);
    _exit(0);
}

static void spawn(struct child *c, uint64_t id)
{
    int in[2], out[2];

    T_EQ(pipe2(in, O_CLOEXEC), 0);
    T_EQ(pipe2(out, O_CLOEXEC), 0);
    c->pid = fork();
    T_CHECK(c->pid >= 0);
    if (c->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(in[1]);
        close(out[0]);
        child_main(in[0], out[1], id);
    }
    close(in[0]);
    close(out[1]);
    c->in = in[1];
    c->out = out[0];
    T_EQ(read(c->out, c->addr, sizeof(c->addr)), sizeof(c->addr));
}

static void end(struct child *c, int sig)
{
    char none[VV_NET_ADDR_MAX + 1] = "";

    if (sig)
        kill(c->pid, sig);
    (void)!write(c->in, none, sizeof(none));
    close(c->in);
    waitpid(c->pid, NULL, 0);
    close(c->out);
}

static void test_lives(void)
{
    struct child child[NODES + 1], again;
    uint64_t epoch, next, killed;
    struct node n;

    life = 10;
    for (unsigned i = 2; i <= NODES; i++)
        spawn(&child[i], i);
    /* The replacement of a killed child, with the same life by its clock: it waits until that is gone. Forked now,
     * before this process opens a node. */
    spawn(&again, 2);
    open_node(&n, 1);
    for (unsigned i = 2; i <= NODES; i++)
        T_EQ(write(child[i].in, vv_net_addr(n.net), VV_NET_ADDR_MAX + 1), VV_NET_ADDR_MAX + 1);
    epoch = await(&n, VV_MEMBER_ALIVE, NODES);
    T_CHECK(vv_net_epoch(n.net) > 0);

    killed = vv_now_ns();
    kill(child[2].pid, SIGKILL);
    next = await(&n, VV_MEMBER_GONE, 1);
    t_note("%s: killed, and seen as gone after %.1f ms", vv_net_transport_name(transport),
           (double)(vv_now_ns() - killed) / 1e6);
    T_CHECK(next > epoch && !vv_gossip_fenced(n.gossip));
    end(&child[2], 0);

    T_EQ(write(again.in, vv_net_addr(n.net), VV_NET_ADDR_MAX + 1), VV_NET_ADDR_MAX + 1);
    epoch = await(&n, VV_MEMBER_ALIVE, NODES);
    T_CHECK(epoch > next);

    killed = vv_now_ns();
    kill(child[3].pid, SIGSTOP);
    next = await(&n, VV_MEMBER_DEAD, 1);
    t_note("%s: frozen, and seen as dead after %.1f ms (period 60 ms)",
           vv_net_transport_name(transport), (double)(vv_now_ns() - killed) / 1e6);
    T_CHECK(next > epoch);
    kill(child[3].pid, SIGCONT);
    epoch = await(&n, VV_MEMBER_ALIVE, NODES);
    T_CHECK(epoch > next);

    end(&child[4], 0); /* leaves regularly */
    (void)await(&n, VV_MEMBER_GONE, 1);
    close_node(&n, true);
    end(&child[3], SIGKILL);
    end(&again, SIGKILL);
}

int main(void)
{
    static const enum vv_net_transport all[] = {VV_NET_TCP, VV_NET_UCX};

    signal(SIGPIPE, SIG_IGN);
    if (t_sanitized())
        setenv("UCX_MEM_EVENTS", "n", 0); /* its hooks conflict with the sanitizer's */
    for (size_t i = 0; i < VV_ARRAY_SIZE(all); i++) {
        char err[256];
        transport = all[i];
        if (vv_net_transport_check(transport, err, sizeof(err)) != 0)
            t_note("%s: %s", vv_net_transport_name(transport), err);
        else
            T_RUN(test_lives);
    }
    return t_done();
}
