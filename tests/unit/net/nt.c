/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/net/nt.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

enum vv_net_transport nt_transport;

void nt_over_all(void (*cases)(void))
{
    static const enum vv_net_transport all[] = {VV_NET_TCP, VV_NET_UCX};
    const char *only = getenv("VARVE_TEST_TRANSPORT");

    if (t_sanitized())
        setenv("UCX_MEM_EVENTS", "n", 0); /* its hooks conflict with the sanitizer's */

    for (size_t i = 0; i < VV_ARRAY_SIZE(all); i++) {
        char err[256];
        if (only && strcmp(only, vv_net_transport_name(all[i])) != 0)
            continue;
        if (vv_net_transport_check(all[i], err, sizeof(err)) != 0) {
            t_note("%s: %s", vv_net_transport_name(all[i]), err);
            continue;
        }
        nt_transport = all[i];
        t_note("over %s", vv_net_transport_name(all[i]));
        cases();
    }
}

static void (*running)(void);

static void run_apart(void)
{
    int status;
    pid_t pid = fork();

    T_CHECK(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        running();
        exit(0);
    }
    T_EQ(waitpid(pid, &status, 0), pid);
    T_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void nt_run(const char *name, void (*fn)(void))
{
    running = fn;
    t_run(name, run_apart);
}

uint8_t nt_pattern(uint64_t at)
{
    return (uint8_t)((at * UINT64_C(0x9E3779B97F4A7C15)) >> 56);
}

enum { TABLE_BYTES = 8 << 20 };
static uint8_t table[TABLE_BYTES];

static void make_table(void)
{
    if (table[1] == nt_pattern(1))
        return;
    for (size_t i = 0; i < TABLE_BYTES; i++)
        table[i] = nt_pattern(i);
}

bool nt_is_pattern(const void *p, size_t n, uint64_t at)
{
    T_CHECK(at + n <= TABLE_BYTES);
    return n == 0 || memcmp(p, table + at, n) == 0;
}

static void hold(struct nt *n, struct vv_net_req *req)
{
    pthread_mutex_lock(&n->lock);
    T_CHECK(n->nr_held < NT_HOLD_MAX);
    n->held[n->nr_held++] = req;
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
}

static void on_request(void *user, struct vv_net_req *req, const struct vv_net_msg *m)
{
    struct nt *n = user;
    struct vv_net_reply reply = {.fd = -1};
    struct nt_range range = {0};

    if (m->type == NT_MEMORY || m->type == NT_FILE || m->type == NT_SHORT) {
        T_EQ(m->body_bytes, sizeof(range));
        memcpy(&range, m->body, sizeof(range));
    }
    reply.offset = range.offset;
    reply.data_bytes = range.bytes;
    switch (m->type) {
    case NT_ECHO:
        reply.body = m->body;
        reply.body_bytes = m->body_bytes;
        break;
    case NT_STATUS:
        memcpy(&reply.status, m->body, sizeof(reply.status));
        break;
    case NT_MEMORY:
        T_CHECK(range.offset + range.bytes <= TABLE_BYTES);
        reply.data = table + range.offset;
        break;
    case NT_SHORT:
        reply.offset = NT_FILE_BYTES - 1;
        reply.fd = n->file;
        break;
    case NT_FILE:
        reply.fd = n->file;
        reply.in_memory = range.offset % 2;
        reply.body = "file";
        reply.body_bytes = 4;
        break;
    default:
        hold(n, req);
        return;
    }
    (void)vv_net_respond(req, &reply);
}

static void on_message(void *user, const struct vv_net_msg *m)
{
    struct nt *n = user;

    pthread_mutex_lock(&n->lock);
    n->messages++;
    for (size_t i = 0; i < m->body_bytes; i++)
        n->message_sum += ((const uint8_t *)m->body)[i];
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
}

static void on_peer(void *user, uint64_t peer, enum vv_net_change change, int err)
{
    struct nt *n = user;

    (void)err;
    pthread_mutex_lock(&n->lock);
    n->changes[change]++;
    n->changed_peer[change] = peer;
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
}

static void on_epoch(void *user, uint64_t from, uint64_t epoch)
{
    struct nt *n = user;

    (void)from;
    pthread_mutex_lock(&n->lock);
    n->newer_epoch = epoch;
    pthread_mutex_unlock(&n->lock);
}

static int make_file(void)
{
    int fd = memfd_create("pattern", MFD_CLOEXEC);

    make_table();
    T_CHECK(fd >= 0);
    T_EQ(pwrite(fd, table, NT_FILE_BYTES, 0), NT_FILE_BYTES);
    return fd;
}

void nt_open(struct nt *n, uint64_t id, const char *token, void (*tune)(struct vv_net_opts *))
{
    struct vv_net_opts opts = {
        .transport = nt_transport,
        .listen = "127.0.0.1:0",
        .self = id,
        .token = token,
        .token_bytes = strlen(token),
        .events = {n, on_request, on_message, on_peer, on_epoch},
    };
    char err[256] = "";
    int rc;

    *n = (struct nt){.id = id, .file = make_file()};
    pthread_mutex_init(&n->lock, NULL);
    pthread_cond_init(&n->changed, NULL);
    if (tune)
        tune(&opts);
    rc = vv_net_open(&opts, err, sizeof(err), &n->net);
    if (rc)
        t_fail(__FILE__, __LINE__, "vv_net_open: %d, %s", rc, err);
}

void nt_close(struct nt *n)
{
    nt_answer_held(n);
    vv_net_stop(n->net);
    nt_answer_held(n);
    vv_net_free(n->net);
    close(n->file);
    pthread_cond_destroy(&n->changed);
    pthread_mutex_destroy(&n->lock);
}

void nt_await(struct nt *n, enum vv_net_change change, unsigned count)
{
    pthread_mutex_lock(&n->lock);
    while (n->changes[change] < count)
        pthread_cond_wait(&n->changed, &n->lock);
    pthread_mutex_unlock(&n->lock);
}

void nt_await_held(struct nt *n, unsigned count)
{
    pthread_mutex_lock(&n->lock);
    while (n->nr_held < count)
        pthread_cond_wait(&n->changed, &n->lock);
    pthread_mutex_unlock(&n->lock);
}

void nt_answer_held(struct nt *n)
{
    struct vv_net_reply reply = {.fd = -1, .body = "held", .body_bytes = 4};

    pthread_mutex_lock(&n->lock);
    while (n->nr_held) {
        struct vv_net_req *req = n->held[--n->nr_held];
        pthread_mutex_unlock(&n->lock);
        (void)vv_net_respond(req, &reply);
        pthread_mutex_lock(&n->lock);
    }
    pthread_mutex_unlock(&n->lock);
}

struct vv_net_ask nt_ask(uint64_t to, enum nt_type type, const void *body, size_t bytes)
{
    struct vv_net_ask ask = VV_NET_ASK_INIT;

    ask.peer = to;
    ask.type = (uint16_t)type;
    ask.body = body;
    ask.body_bytes = bytes;
    ask.deadline_ns = vv_now_ns() + 60 * NT_S;
    return ask;
}

/* ---- in another process ---- */

enum order_kind {
    FAR_PEER,
    FAR_EPOCH,
    FAR_ANSWER_HELD,
    FAR_AWAIT_HELD,
    FAR_AWAIT_MESSAGES,
    FAR_AWAIT,
    FAR_SEE,
    FAR_ECHO,
    FAR_LOAD,
    FAR_CLOSE,
};

struct order {
    enum order_kind kind;
    uint64_t number;
    unsigned count;
    char addr[VV_NET_ADDR_MAX + 1];
};

struct report {
    int rc;
    struct nt_seen seen;
};

static int load(struct nt *n, uint64_t peer, unsigned asks)
{
    int rc = 0;

    for (unsigned i = 0; i < asks && rc == 0; i++) {
        struct nt_range range = {UINT64_C(1048576) * (i % 6), 1048576};
        struct vv_net_ask ask = nt_ask(peer, NT_FILE, &range, sizeof(range));
        struct vv_net_answer answer;
        struct vv_net_call *call;
        ask.data_max = range.bytes;
        rc = vv_net_start(n->net, &ask, &call);
        if (rc)
            break;
        rc = vv_net_wait(call, VV_NEVER_NS, &answer);
        if (rc == 0 && (answer.data_bytes != range.bytes ||
                        !nt_is_pattern(answer.data, answer.data_bytes, range.offset)))
            rc = -EILSEQ;
        vv_net_end(call);
    }
    return rc;
}

static void await_messages(struct nt *n, unsigned count)
{
    pthread_mutex_lock(&n->lock);
    while (n->messages < count)
        pthread_cond_wait(&n->changed, &n->lock);
    pthread_mutex_unlock(&n->lock);
}

static void see(struct nt *n, struct nt_seen *ret_seen)
{
    pthread_mutex_lock(&n->lock);
    memcpy(ret_seen->changes, n->changes, sizeof(n->changes));
    ret_seen->messages = n->messages;
    ret_seen->held = n->nr_held;
    ret_seen->newer_epoch = n->newer_epoch;
    pthread_mutex_unlock(&n->lock);
}

static void obey(struct nt *n, const struct order *o, struct report *ret_report)
{
    struct vv_net_ask ask;
    size_t none = 0;

    switch (o->kind) {
    case FAR_PEER:
        T_OK(vv_net_peer_set(n->net, o->number, o->addr, 0));
        break;
    case FAR_EPOCH:
        vv_net_set_epoch(n->net, o->number);
        break;
    case FAR_ANSWER_HELD:
        nt_answer_held(n);
        break;
    case FAR_AWAIT_HELD:
        nt_await_held(n, o->count);
        break;
    case FAR_AWAIT_MESSAGES:
        await_messages(n, o->count);
        break;
    case FAR_AWAIT:
        nt_await(n, (enum vv_net_change)o->number, 1);
        break;
    case FAR_SEE:
        see(n, &ret_report->seen);
        break;
    case FAR_ECHO:
        ask = nt_ask(o->number, NT_ECHO, NULL, 0);
        ret_report->rc = vv_net_call(n->net, &ask, NULL, &none, NULL);
        break;
    case FAR_LOAD:
        ret_report->rc = load(n, o->number, o->count);
        break;
    case FAR_CLOSE:
        nt_close(n);
        break;
    }
}

static void far_main(int in, int out, uint64_t id, const char *token,
                     void (*tune)(struct vv_net_opts *))
{
    struct order o = {.kind = FAR_SEE};
    struct nt n;

    nt_open(&n, id, token, tune);
    T_EQ(write(out, vv_net_addr(n.net), VV_NET_ADDR_MAX + 1), VV_NET_ADDR_MAX + 1);
    while (o.kind != FAR_CLOSE && read(in, &o, sizeof(o)) == sizeof(o)) {
        struct report r = {0};
        obey(&n, &o, &r);
        T_EQ(write(out, &r, sizeof(r)), sizeof(r));
    }
    exit(0);
}

void nt_far_open(struct nt_far *f, uint64_t id, const char *token,
                 void (*tune)(struct vv_net_opts *))
{
    int in[2], out[2];

    T_EQ(pipe(in), 0);
    T_EQ(pipe(out), 0);
    f->id = id;
    f->pid = fork();
    T_CHECK(f->pid >= 0);
    if (f->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(in[1]);
        close(out[0]);
        far_main(in[0], out[1], id, token, tune);
    }
    close(in[0]);
    close(out[1]);
    f->in = in[1];
    f->out = out[0];
    T_EQ(read(f->out, f->addr, sizeof(f->addr)), sizeof(f->addr));
}

static void tell(struct nt_far *f, const struct order *o)
{
    T_EQ(write(f->in, o, sizeof(*o)), sizeof(*o));
}

static struct report order(struct nt_far *f, const struct order *o)
{
    struct report r;

    tell(f, o);
    T_EQ(read(f->out, &r, sizeof(r)), sizeof(r));
    return r;
}

static void reap(struct nt_far *f, int *ret_status)
{
    T_EQ(waitpid(f->pid, ret_status, 0), f->pid);
    f->pid = 0;
    close(f->in);
    close(f->out);
}

void nt_far_close(struct nt_far *f)
{
    int status;

    (void)order(f, &(struct order){.kind = FAR_CLOSE});
    reap(f, &status);
    T_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void nt_far_kill(struct nt_far *f)
{
    int status;

    kill(f->pid, SIGKILL);
    reap(f, &status);
}

void nt_far_peer(struct nt_far *f, const struct nt *peer)
{
    struct order o = {.kind = FAR_PEER, .number = peer->id};

    snprintf(o.addr, sizeof(o.addr), "%s", vv_net_addr(peer->net));
    (void)order(f, &o);
}

void nt_far_epoch(struct nt_far *f, uint64_t epoch)
{
    (void)order(f, &(struct order){.kind = FAR_EPOCH, .number = epoch});
}

void nt_far_answer_held(struct nt_far *f)
{
    (void)order(f, &(struct order){.kind = FAR_ANSWER_HELD});
}

void nt_far_await_held(struct nt_far *f, unsigned count)
{
    (void)order(f, &(struct order){.kind = FAR_AWAIT_HELD, .count = count});
}

void nt_far_await_messages(struct nt_far *f, unsigned count)
{
    (void)order(f, &(struct order){.kind = FAR_AWAIT_MESSAGES, .count = count});
}

void nt_far_await(struct nt_far *f, enum vv_net_change change)
{
    (void)order(f, &(struct order){.kind = FAR_AWAIT, .number = change});
}

void nt_far_see(struct nt_far *f, struct nt_seen *ret_seen)
{
    *ret_seen = order(f, &(struct order){.kind = FAR_SEE}).seen;
}

int nt_far_echo(struct nt_far *f, uint64_t peer)
{
    return order(f, &(struct order){.kind = FAR_ECHO, .number = peer}).rc;
}

void nt_far_load(struct nt_far *f, uint64_t peer, unsigned asks)
{
    tell(f, &(struct order){.kind = FAR_LOAD, .number = peer, .count = asks});
}

int nt_far_result(struct nt_far *f)
{
    struct report r;

    T_EQ(read(f->out, &r, sizeof(r)), sizeof(r));
    return r.rc;
}

void nt_meet(struct nt *a, struct nt_far *b)
{
    T_OK(vv_net_peer_set(a->net, b->id, b->addr, 0));
    nt_far_peer(b, a);
}
