/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The threads that talk to clients. Each has its own epoll set with the connections that it accepted; no other thread
 * uses these. A connection has one request at a time: the loop reads it, calls the table with `now`, and answers; most
 * are answered in the same turn, with three system calls. Otherwise a worker gets the request. Until it comes back
 * nothing is read from that connection, and the client gets a PENDING message from time to time, so that it can
 * tell a slow file from a stopped daemon.
 *
 * The thread that waited answers the request, so that its client need not wait for the loop as well; then the job comes
 * back. job->lock decides which thread answers: a job that the loop took back, because its client has gone or has
 * waited too long, is not answered by another thread.
 *
 * Nothing here waits for a client: a reply that does not fit into its socket ends the connection. As there is one
 * request at a time, this happens only to a client that does not read.
 *
 * A connection may end while a worker has its request. Then the job has no connection, and its descriptor is closed
 * when it comes back. Connections are freed after the events of a turn, which may refer to them.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "dataset/server_private.h"

#define EVENTS     64
#define PENDING_NS (200 * VV_NS_PER_MS) /* interval of PENDING messages */
#define TICK_MS    100
#define BEAT_NS    (250 * VV_NS_PER_MS)

/* ---- connections ---- */

/* After this call no other thread answers a job. False: it has been answered. */
static bool take_back_job(struct vvi_server_job *job)
{
    bool open;

    vv_mutex_lock(&job->lock);
    open = !job->answered;
    job->taken_back = true;
    vv_mutex_unlock(&job->lock);
    return open;
}

static void conn_end(struct vvi_server_conn *c)
{
    struct vvi_server_loop *loop = c->loop;

    if (c->fd < 0)
        return;
    if (c->job)
        (void)take_back_job(c->job);
    close(c->fd); /* takes it out of the epoll set as well: there is no duplicate */
    c->fd = -1;
    if (c->job) {
        c->job->conn = NULL;
        c->job = NULL;
        loop->waiting--;
    }
    if (c->prev)
        c->prev->next = c->next;
    else
        loop->conns = c->next;
    if (c->next)
        c->next->prev = c->prev;
    c->next = loop->dead;
    loop->dead = c;
    atomic_fetch_sub_explicit(&loop->server->counts.clients, 1, memory_order_relaxed);
}

static void conn_break(struct vvi_server_conn *c)
{
    vvi_server_add(&c->loop->server->counts.broken, 1);
    conn_end(c);
}

static int watch(struct vvi_server_conn *c, int op, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.ptr = c};

    return epoll_ctl(c->loop->epoll_fd, op, c->fd, &ev) < 0 ? -errno : 0;
}

/* Starts or stops reading requests from a connection. */
static void listen_to(struct vvi_server_conn *c, bool on)
{
    if (c->fd < 0 || c->deaf == !on)
        return;
    c->deaf = !on;
    if (watch(c, EPOLL_CTL_MOD, (on ? (uint32_t)EPOLLIN : 0) | EPOLLRDHUP) < 0)
        conn_break(c);
}

static bool may_come_in(struct vv_server *d, int fd)
{
    struct ucred cred;
    socklen_t len = sizeof(cred);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0 || cred.uid != d->uid)
        return false;
    if (atomic_fetch_add_explicit(&d->counts.clients, 1, memory_order_relaxed) <
        d->opts.clients_max)
        return true;
    atomic_fetch_sub_explicit(&d->counts.clients, 1, memory_order_relaxed);
    return false;
}

static void accept_some(struct vvi_server_loop *loop)
{
    struct vv_server *d = loop->server;

    for (int i = 0; i < EVENTS; i++) {
        int fd = accept4(d->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        struct vvi_server_conn *c;

        if (fd < 0) {
            /* Out of descriptors or memory: the connection stays in the queue, and epoll would report it at once. */
            if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
                vv_sleep_until_ns(vv_now_ns() + VV_NS_PER_MS);
            return;
        }
        if (!may_come_in(d, fd)) {
            vvi_server_add(&d->counts.refused, 1);
            close(fd);
            continue;
        }
        c = calloc(1, sizeof(*c));
        if (c) {
            c->loop = loop;
            c->fd = fd;
        }
        if (!c || watch(c, EPOLL_CTL_ADD, EPOLLIN | EPOLLRDHUP) < 0) {
            free(c);
            close(fd);
            atomic_fetch_sub_explicit(&d->counts.clients, 1, memory_order_relaxed);
            continue;
        }
        c->next = loop->conns;
        if (c->next)
            c->next->prev = c;
        loop->conns = c;
        vvi_server_add(&d->counts.accepted, 1);
    }
}

/* ---- replies ---- */

/* Sends one whole message, with up to two descriptors, or returns an error. */
static int send_reply(int sock, const struct vv_server_reply *reply, const void *more,
                      size_t more_bytes, const int *fds, size_t nr_fds)
{
    union {
        struct cmsghdr align;
        char buf[CMSG_SPACE(2 * sizeof(int))];
    } control;
    struct iovec iov[2] = {{(void *)(uintptr_t)reply, sizeof(*reply)},
                           {(void *)(uintptr_t)more, more_bytes}};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = more ? 2 : 1};

    if (nr_fds > 0) {
        struct cmsghdr *h;

        memset(&control, 0, sizeof(control));
        msg.msg_control = control.buf;
        msg.msg_controllen = CMSG_SPACE(nr_fds * sizeof(int));
        h = CMSG_FIRSTHDR(&msg);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(nr_fds * sizeof(int));
        memcpy(CMSG_DATA(h), fds, nr_fds * sizeof(int));
    }
    return sendmsg(sock, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static void end_after(struct vvi_server_conn *c, int rc)
{
    if (rc == -EPIPE || rc == -ECONNRESET)
        conn_end(c);
    else if (rc < 0)
        conn_break(c);
}

/* The same, but ends the connection after an error. */
static void say(struct vvi_server_conn *c, const struct vv_server_reply *reply, const void *more,
                size_t more_bytes, const int *fds, size_t nr_fds)
{
    end_after(c, send_reply(c->fd, reply, more, more_bytes, fds, nr_fds));
}

static void count_answer(struct vv_server *d, const struct vvi_server_job *job)
{
    struct vvi_server_counts *n = &d->counts;

    if (job->rc < 0)
        vvi_server_add(&n->declined, 1);
    else
        vvi_server_add(job->op == VV_SERVER_OP_OPEN         ? &n->opens
                       : job->op == VV_SERVER_OP_INVALIDATE ? &n->writes
                                                            : &n->stats,
                       1);
}

static struct vv_server_reply reply_of(const struct vvi_server_job *job)
{
    struct vv_server_reply reply = {
        .magic = VV_SERVER_MAGIC,
        .version = VV_SERVER_VERSION,
        .kind = VV_SERVER_DONE,
        .id = job->id,
        .status = -job->rc,
        .flags = job->rc == 0 && job->readable ? VV_SERVER_READABLE : 0,
    };

    if (job->rc == 0 && job->op != VV_SERVER_OP_INVALIDATE)
        reply.stat = job->stat;
    return reply;
}

/* Answers a connection's request. The caller owns the job. */
static void answer(struct vvi_server_conn *c, struct vvi_server_job *job)
{
    struct vv_server_reply reply = reply_of(job);

    count_answer(c->loop->server, job);
    say(c, &reply, NULL, 0, &job->fd, job->fd >= 0);
    if (job->fd >= 0)
        close(job->fd);
    job->fd = -1;
}

/* Sends nothing after the worker has answered. */
static void send_pending(struct vvi_server_conn *c)
{
    struct vv_server_reply reply = {
        .magic = VV_SERVER_MAGIC,
        .version = VV_SERVER_VERSION,
        .kind = VV_SERVER_PENDING,
        .id = c->job->id,
    };
    int rc = 0;

    vv_mutex_lock(&c->job->lock);
    if (!c->job->answered)
        rc = send_reply(c->fd, &reply, NULL, 0, NULL, 0);
    vv_mutex_unlock(&c->job->lock);
    end_after(c, rc);
}

/* ---- requests ---- */

/* Checks the path of a request, which a client may have sent malformed. */
static bool path_is_good(const struct vv_server *d, const char *path, size_t bytes, bool *ret_sole)
{
    if (bytes < 2 || path[0] != '/' || path[bytes - 1] == '/' || memchr(path, '\0', bytes))
        return false;
    for (const char *at = path; at; at = memchr(at + 1, '/', bytes - (size_t)(at + 1 - path))) {
        size_t left = bytes - (size_t)(at - path);

        if (left < 2 || at[1] == '/' || (at[1] == '.' && (left == 2 || at[2] == '/')))
            return false;
    }
    for (const char *at = d->welcome + sizeof(struct vv_server_welcome);
         at < d->welcome + d->welcome_bytes;) {
        struct vv_server_root root;

        memcpy(&root, at, sizeof(root));
        at += sizeof(root);
        *ret_sole = (root.flags & VV_SERVER_SOLE) != 0;
        if (bytes >= root.path_bytes + !*ret_sole && memcmp(path, at, root.path_bytes) == 0 &&
            (root.path_bytes == 1 || bytes == root.path_bytes || path[root.path_bytes] == '/'))
            return true;
        at += root.path_bytes;
    }
    return false;
}

static void greet(struct vvi_server_conn *c, const struct vv_server_request *req)
{
    struct vv_server *d = c->loop->server;
    struct vv_server_reply reply = {
        .magic = VV_SERVER_MAGIC,
        .version = VV_SERVER_VERSION,
        .kind = VV_SERVER_WELCOME,
        .id = req->id,
    };

    c->greeted = true;
    say(c, &reply, d->welcome, d->welcome_bytes, NULL, 0);
}

static void give_index(struct vvi_server_conn *c, const struct vv_server_request *req)
{
    struct vv_index *index = c->loop->server->opts.index;
    struct vv_server_reply reply = {
        .magic = VV_SERVER_MAGIC,
        .version = VV_SERVER_VERSION,
        .kind = VV_SERVER_DONE,
        .id = req->id,
        .status = index ? 0 : ENOSYS,
    };
    int fds[2];

    if (index)
        vv_index_fds(index, fds);
    say(c, &reply, NULL, 0, fds, index ? 2 : 0);
}

/* Calls the table for the loop's job, and hands it to a worker if it has to wait. */
static void serve(struct vvi_server_conn *c)
{
    struct vvi_server_loop *loop = c->loop;
    struct vv_server *d = loop->server;
    struct vvi_server_job *job = loop->job;
    int rc;

    job->pending_ns = vv_now_ns();
    job->deadline_ns = job->sole ? UINT64_MAX / 2 : job->pending_ns + d->opts.wait_ns;
    vvi_server_do(d, job, true);
    if (job->rc != -EAGAIN) {
        answer(c, job);
        return;
    }
    job->conn = c;
    job->sock = c->fd;
    job->taken_back = job->answered = false;
    job->send_rc = 0;
    /* Once it is submitted, the worker owns all of it except `conn`. */
    rc = vvi_server_submit(d, job);
    if (rc < 0) {
        job->rc = rc;
        vvi_server_add(&d->counts.full, 1);
        answer(c, job);
        return;
    }
    loop->job = NULL;
    loop->waiting++;
    c->job = job;
}

static bool is_about_path(uint16_t op)
{
    return op == VV_SERVER_OP_OPEN || op == VV_SERVER_OP_STAT || op == VV_SERVER_OP_INVALIDATE ||
           op == VV_SERVER_OP_LIST;
}

/* Handles one request, already in `msg`. False: it is malformed. */
static bool take(struct vvi_server_conn *c, const char *msg, size_t bytes)
{
    struct vvi_server_loop *loop = c->loop;
    struct vv_server_request req;
    const char *path = msg + sizeof(req);
    uint64_t inode = 0;
    bool sole = false;
    size_t rest;

    if (bytes < sizeof(req))
        return false;
    memcpy(&req, msg, sizeof(req));
    rest = req.flags & VV_SERVER_INODE ? sizeof(inode) : 0;
    if (req.magic != VV_SERVER_MAGIC || req.version != VV_SERVER_VERSION ||
        bytes - sizeof(req) < rest || req.path_bytes != bytes - sizeof(req) - rest)
        return false;
    memcpy(&inode, msg + bytes - rest, rest);
    if (req.op == VV_SERVER_OP_HELLO) {
        if (c->greeted || req.path_bytes != 0)
            return false;
        greet(c, &req);
        return true;
    }
    if (req.op == VV_SERVER_OP_INDEX) {
        if (!c->greeted || req.path_bytes != 0)
            return false;
        give_index(c, &req);
        return true;
    }
    if (!c->greeted || !is_about_path(req.op) ||
        (req.flags &
         ~(req.op == VV_SERVER_OP_INVALIDATE ? VV_SERVER_CHANGE : VV_SERVER_NOFOLLOW)) != 0 ||
        req.path_bytes > VV_SERVER_PATH_MAX ||
        !path_is_good(loop->server, path, req.path_bytes, &sole))
        return false;
    if (!loop->job) {
        loop->job = malloc(sizeof(*loop->job));
        if (!loop->job)
            return false;
        vv_mutex_init(&loop->job->lock, "server job", VV_RANK_STORE);
    }
    loop->job->loop = loop;
    loop->job->conn = NULL;
    loop->job->id = req.id;
    loop->job->op = req.op;
    loop->job->flags = req.flags;
    loop->job->inode = inode;
    loop->job->sole = sole;
    memcpy(loop->job->path, path, req.path_bytes);
    loop->job->path[req.path_bytes] = '\0';
    serve(c);
    return true;
}

static bool is_answered(struct vvi_server_job *job)
{
    bool answered;

    vv_mutex_lock(&job->lock);
    answered = job->answered;
    vv_mutex_unlock(&job->lock);
    return answered;
}

/* Frees a connection's job, which has been answered and which no other thread uses. */
static void let_go(struct vvi_server_conn *c)
{
    struct vvi_server_job *job = c->job;

    job->conn = NULL;
    c->job = NULL;
    c->loop->waiting--;
    end_after(c, job->send_rc);
    listen_to(c, true);
}

static void on_conn(struct vvi_server_conn *c, uint32_t events)
{
    char msg[VV_SERVER_MSG_MAX];
    ssize_t n;

    if (c->fd < 0)
        return;
    if (c->job && is_answered(c->job))
        let_go(c);
    if (c->fd >= 0 && c->job) {
        if (events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP))
            conn_end(c);
        else
            listen_to(c, false); /* one request at a time; epoll reports hanging up in any case */
        return;
    }
    if (c->fd < 0)
        return;
    /* The kernel discards descriptors that a client sends along, because recv has no buffer for them. */
    n = recv(c->fd, msg, sizeof(msg), MSG_DONTWAIT | MSG_TRUNC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0)
        conn_end(c);
    else if ((size_t)n > sizeof(msg) || !take(c, msg, (size_t)n))
        conn_break(c);
}

/* ---- jobs that come back ---- */

void vvi_server_loop_ended(struct vvi_server_loop *loop, struct vvi_server_job *job)
{
    uint64_t one = 1;
    bool first, answered;

    vv_mutex_lock(&job->lock);
    answered = job->answered && job->send_rc == 0;
    vv_mutex_unlock(&job->lock);
    vv_mutex_lock(&loop->lock);
    job->next = loop->ended;
    loop->ended = job;
    /* If the client has its answer, the loop need not be woken up: it takes the job back with the next request, or at
     * the next tick. */
    first = !loop->awake && !answered;
    loop->awake = loop->awake || first;
    vv_mutex_unlock(&loop->lock);
    /* The counter goes up to 2^64 - 2, so the write cannot block. */
    if (first && write(loop->event_fd, &one, sizeof(one)) < 0)
        vv_log(VV_LOG_WARNING, "server: cannot wake a thread");
}

void vvi_server_loop_answer(struct vvi_server_job *job)
{
    struct vv_server_reply reply = reply_of(job);

    vv_mutex_lock(&job->lock);
    if (!job->taken_back) {
        job->answered = true;
        vvi_server_add(&job->loop->server->counts.waited, job->rc == 0);
        count_answer(job->loop->server, job);
        job->send_rc = send_reply(job->sock, &reply, NULL, 0, &job->fd, job->fd >= 0);
    }
    vv_mutex_unlock(&job->lock);
    /* Outside of the lock: the client may have read the reply, and the loop may wait for the lock with the next
     * request. */
    if (job->fd >= 0)
        close(job->fd);
    job->fd = -1;
}

static void job_free(struct vvi_server_job *job)
{
    if (!job)
        return;
    if (job->fd >= 0)
        close(job->fd);
    vv_mutex_fini(&job->lock);
    free(job);
}

static void take_back(struct vvi_server_loop *loop)
{
    struct vvi_server_job *job, *next;
    uint64_t times;
    bool awake;

    vv_mutex_lock(&loop->lock);
    job = loop->ended;
    awake = loop->awake;
    loop->ended = NULL;
    loop->awake = false;
    vv_mutex_unlock(&loop->lock);
    while (awake && read(loop->event_fd, &times, sizeof(times)) < 0 && errno == EINTR)
        ;
    for (; job; job = next) {
        struct vvi_server_conn *c = job->conn;

        next = job->next;
        if (c)
            let_go(c);
        job_free(job);
    }
}

/* Sends PENDING to clients that wait, and declines requests that have waited too long. */
static void look_after(struct vvi_server_loop *loop)
{
    uint64_t now_ns = vv_now_ns();

    for (struct vvi_server_conn *c = loop->conns, *next; c; c = next) {
        struct vvi_server_job *job = c->job;

        next = c->next;
        if (!job)
            continue;
        if (now_ns >= job->deadline_ns) {
            struct vvi_server_job late = {.id = job->id, .op = job->op, .rc = -ETIMEDOUT, .fd = -1};

            if (!take_back_job(job))
                continue; /* the worker has answered, and the job is about to come back */
            job->conn = NULL;
            c->job = NULL;
            loop->waiting--;
            vvi_server_add(&loop->server->counts.late, 1);
            answer(c, &late);
            listen_to(c, true);
        } else if (now_ns - job->pending_ns >= PENDING_NS) {
            job->pending_ns = now_ns;
            send_pending(c);
        }
    }
}

static void *run(void *arg)
{
    struct vvi_server_loop *loop = arg;
    struct vv_index *index = loop->server->opts.index;
    struct epoll_event events[EVENTS];
    uint64_t looked_ns = 0, beat_ns = 0;

    while (!atomic_load_explicit(&loop->server->stop, memory_order_acquire)) {
        int n = epoll_wait(loop->epoll_fd, events, EVENTS, TICK_MS);

        if (index)
            vv_index_beat(index);
        if (vv_now_ns() - beat_ns >= BEAT_NS) {
            beat_ns = vv_now_ns();
            vvi_server_heartbeat(loop->server, beat_ns);
        }

        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr == loop)
                take_back(loop);
            else if (events[i].data.ptr == loop->server)
                accept_some(loop);
            else
                on_conn(events[i].data.ptr, events[i].events);
        }
        if (loop->waiting && vv_now_ns() - looked_ns >= TICK_MS * VV_NS_PER_MS) {
            looked_ns = vv_now_ns();
            take_back(loop);
            look_after(loop);
        }
        for (struct vvi_server_conn *c; (c = loop->dead);) {
            loop->dead = c->next;
            free(c);
        }
    }
    return NULL;
}

int vvi_server_loop_start(struct vv_server *d, struct vvi_server_loop *loop)
{
    struct epoll_event wake = {.events = EPOLLIN, .data.ptr = loop};
    struct epoll_event come = {.events = EPOLLIN | EPOLLEXCLUSIVE, .data.ptr = d};
    int rc;

    loop->server = d;
    vv_mutex_init(&loop->lock, "server loop", VV_RANK_STORE);
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    loop->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loop->epoll_fd < 0 || loop->event_fd < 0 ||
        epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, loop->event_fd, &wake) < 0 ||
        epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, d->listen_fd, &come) < 0)
        return -errno;
    rc = vv_thread_start(&loop->thread, run, loop);
    loop->started = rc == 0;
    return rc;
}

void vvi_server_loop_stop(struct vvi_server_loop *loop)
{
    uint64_t one = 1;

    if (!loop->started)
        return;
    while (write(loop->event_fd, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
    pthread_join(loop->thread, NULL);
    loop->started = false;
    while (loop->conns)
        conn_end(loop->conns);
}

void vvi_server_loop_free(struct vvi_server_loop *loop)
{
    if (!loop->server)
        return;
    for (struct vvi_server_job *job; (job = loop->ended);) {
        loop->ended = job->next;
        job_free(job);
    }
    for (struct vvi_server_conn *c; (c = loop->dead);) {
        loop->dead = c->next;
        free(c);
    }
    if (loop->job) {
        vv_mutex_fini(&loop->job->lock);
        free(loop->job); /* its descriptor was sent, or it had none */
    }
    if (loop->epoll_fd >= 0)
        close(loop->epoll_fd);
    if (loop->event_fd >= 0)
        close(loop->event_fd);
    vv_mutex_fini(&loop->lock);
}
