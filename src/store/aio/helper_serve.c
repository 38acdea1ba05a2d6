/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The helper process: reads and writes files for other processes of the same user.
 *
 * The main thread takes connections and messages and never waits for a disk. Threads carry out requests, one
 * from each connection in turn, so that no process starves another.
 *
 * Invariants:
 *
 *   - This end closes a connection only with none of its requests running: so the other end may at once repeat
 *     the unanswered ones. When this process is killed, the kernel closes the connection after the last thread
 *     has left its system call; that is why requests are plain system calls of threads here.
 *   - Memory of an area stays mapped while a request on it runs.
 *   - Nothing is kept of a process whose connection has ended: its memory is unmapped, its descriptors are
 *     closed.
 *
 * Possible failures: an invalid message ends its connection. A descriptor that was not received, because
 * too many are open, or an area that could not be mapped, leads to a refusal without effect. Memory that its
 * owner has truncated is an error of the system call.
 *
 * Locks: `lock` (rank NET) protects the fields of connections that threads use. Only the main thread
 * makes, searches and frees connections.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/thread.h"
#include "base/thread_group.h"
#include "store/aio/helper_private.h"

enum {
    THREADS = 4,
    THREADS_MAX = 64,
    AREAS_MAX = 64,
    BACKLOG = 128,
    TURN = 64 /* messages taken from one connection before the next one's turn */
};

struct area {
    struct area *next;
    uint32_t id;
    char *base;
    size_t bytes;
    bool gone; /* to be unmapped when no request uses it */
};

struct job {
    struct job *next;
    struct conn *conn;
    uint32_t id, op, niov;
    uint64_t offset;
    int file; /* owned */
    struct iovec iov[];
};

struct conn {
    struct conn *next; /* owner: the main thread, as the next three */
    struct area *areas;
    unsigned nareas;
    bool greeted;
    int fd; /* immutable */
    /* Synchronization: server's lock, all below. */
    struct job *queue, **tail;
    struct conn *ready_next; /* list of connections with queued requests */
    bool is_ready;
    unsigned running;
    bool closing; /* takes no more requests; freed when none runs */
};

struct server {
    int listen_fd, wake_fd;
    const struct vv_helper_serve_opts *opts;
    struct vv_thread_group *group;
    struct conn *conns; /* owner: the main thread, as the next two */
    unsigned nconns;
    uint64_t processes;
    struct vv_mutex lock;
    struct vv_cond work;
    /* Synchronization: lock, down to `stop`. */
    struct conn *ready, **ready_tail;
    uint64_t requests, bytes;
    bool stop;
    pthread_t thread[THREADS_MAX];
    unsigned nthreads;
};

/* ---- requests ---- */

static void ready_push_locked(struct server *s, struct conn *c)
{
    if (c->is_ready)
        return;
    c->is_ready = true;
    c->ready_next = NULL;
    *s->ready_tail = c;
    s->ready_tail = &c->ready_next;
}

static struct job *take_locked(struct server *s)
{
    struct conn *c = s->ready;
    if (!c)
        return NULL;
    s->ready = c->ready_next;
    if (!s->ready)
        s->ready_tail = &s->ready;
    c->is_ready = false;
    struct job *job = c->queue;
    c->queue = job->next;
    if (!c->queue)
        c->tail = &c->queue;
    else
        ready_push_locked(s, c);
    c->running++;
    return job;
}

static void job_free(struct job *job)
{
    if (job->file >= 0)
        close(job->file);
    free(job);
}

static uint64_t thread_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * VV_NS_PER_S + (uint64_t)ts.tv_nsec;
}

static int64_t carry_out(const struct job *job)
{
    ssize_t n;
    do
        n = job->op == VV_AIO_READ
                ? preadv(job->file, job->iov, (int)job->niov, (off_t)job->offset)
                : pwritev(job->file, job->iov, (int)job->niov, (off_t)job->offset);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

static void close_begin_locked(struct server *s, struct conn *c);

static void *worker(void *arg)
{
    struct server *s = arg;
    uint64_t one = 1;
    vv_thread_group_name("I/O");
    vv_mutex_lock(&s->lock);
    for (;;) {
        struct job *job = take_locked(s);
        if (!job) {
            if (s->stop)
                break;
            vv_cond_wait(&s->work, &s->lock);
            continue;
        }
        vv_mutex_unlock(&s->lock);
        struct conn *c = job->conn;
        uint64_t begun = thread_ns();
        struct vvi_helper_reply r = {.kind = VVI_HELPER_DONE, .id = job->id};
        r.result = carry_out(job);
        job_free(job);
        r.cpu = sched_getcpu();
        r.cpu_ns = thread_ns() - begun;
        /* A client that does not read its answers, so that no more fit, is dropped: it would block us. */
        int rc = vvi_helper_send(c->fd, &r, sizeof(r), -1, MSG_DONTWAIT);
        vv_mutex_lock(&s->lock);
        s->requests++;
        s->bytes += r.result > 0 ? (uint64_t)r.result : 0;
        c->running--;
        if (rc < 0)
            close_begin_locked(s, c);
        /* Once the lock is released, the main thread may free the connection. */
        if (c->running == 0 && !c->queue && write(s->wake_fd, &one, sizeof(one)) < 0)
            vv_assert(errno == EAGAIN); /* the main thread is awake */
    }
    vv_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- connections ---- */

/* Drops the queued requests. */
static void close_begin_locked(struct server *s, struct conn *c)
{
    struct job *job = c->queue;
    c->closing = true;
    c->queue = NULL;
    c->tail = &c->queue;
    for (struct job *next; job; job = next) {
        next = job->next;
        job_free(job);
    }
    if (!c->is_ready)
        return;
    struct conn **at = &s->ready;
    while (*at != c)
        at = &(*at)->ready_next;
    *at = c->ready_next;
    c->is_ready = false;
    s->ready_tail = &s->ready;
    while (*s->ready_tail)
        s->ready_tail = &(*s->ready_tail)->ready_next;
}

static void areas_unmap(struct conn *c, bool all)
{
    for (struct area **at = &c->areas, *a; (a = *at);) {
        if (!all && !a->gone) {
            at = &a->next;
            continue;
        }
        *at = a->next;
        munmap(a->base, a->bytes);
        free(a);
        c->nareas--;
    }
}

/* With no request running and no other reference. */
static void conn_free(struct conn *c)
{
    areas_unmap(c, true);
    close(c->fd);
    free(c);
}

/* Frees connections that have ended, and areas no longer used. */
static void tidy(struct server *s)
{
    for (struct conn **at = &s->conns, *c; (c = *at);) {
        vv_mutex_lock(&s->lock);
        bool idle = c->running == 0 && !c->queue, over = idle && c->closing;
        vv_mutex_unlock(&s->lock);
        if (idle) /* only this thread takes messages: it stays idle */
            areas_unmap(c, false);
        if (!over) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        s->nconns--;
        conn_free(c);
    }
}

static void accept_one(struct server *s)
{
    struct ucred peer = {0};
    socklen_t bytes = sizeof(peer);
    int fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    struct conn *c = NULL;
    /* The other end gives us its files and memory, so it must be of the same user. */
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid())
        c = calloc(1, sizeof(*c));
    if (!c) {
        close(fd);
        return;
    }
    c->fd = fd;
    c->tail = &c->queue;
    c->next = s->conns;
    s->conns = c;
    s->nconns++;
    s->processes++;
}

/* ---- messages ---- */

static void answer(const struct conn *c, uint32_t kind, uint32_t id)
{
    struct vvi_helper_reply r = {.kind = kind, .id = id};
    /* An answer that does not fit may be lost: PING is repeated, and a client that reads nothing is dropped. */
    (void)vvi_helper_send(c->fd, &r, sizeof(r), -1, MSG_DONTWAIT);
}

static bool greet(struct server *s, struct conn *c, const struct vvi_helper_msg *m)
{
    struct vv_thread_group_stats group;
    struct vvi_helper_reply r = {.kind = VVI_HELPER_WELCOME,
                                 .id = VVI_HELPER_VERSION,
                                 .nice = s->opts->nice,
                                 .threads = s->nthreads};
    vv_thread_group_get_stats(s->group, &group);
    snprintf(r.where, sizeof(r.where), "%s", group.where);
    if (c->greeted || m->id != VVI_HELPER_VERSION)
        return false;
    c->greeted = true;
    return vvi_helper_send(c->fd, &r, sizeof(r), -1, MSG_DONTWAIT) == 0;
}

/* If the area cannot be mapped, requests on it are refused. */
static bool add_area(struct conn *c, const struct vvi_helper_msg *m, int fd)
{
    if (m->offset == 0 || m->offset > SIZE_MAX / 2 || c->nareas == AREAS_MAX)
        return false;
    struct area *a = fd >= 0 ? calloc(1, sizeof(*a)) : NULL;
    void *base = a ? mmap(NULL, m->offset, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (base == MAP_FAILED) {
        free(a);
        return true;
    }
    *a = (struct area){.next = c->areas, .id = m->id, .base = base, .bytes = m->offset};
    c->areas = a;
    c->nareas++;
    return true;
}

static struct area *area_find(struct conn *c, uint32_t id)
{
    struct area *a = c->areas;
    while (a && (a->id != id || a->gone))
        a = a->next;
    return a;
}

/* The request takes over the descriptor. False: the message is invalid. */
static bool add_job(struct server *s, struct conn *c, const struct vvi_helper_msg *m, int *fd)
{
    if ((m->op != VV_AIO_READ && m->op != VV_AIO_WRITE) || m->nsegs == 0 || m->offset > INT64_MAX)
        return false;
    struct job *job = malloc(sizeof(*job) + m->nsegs * sizeof(job->iov[0]));
    bool there = job && *fd >= 0;
    for (uint32_t i = 0; i < m->nsegs && there; i++) {
        const struct vvi_helper_seg *g = &m->seg[i];
        const struct area *a = area_find(c, g->area);
        there = a;
        if (there && (g->offset > a->bytes || g->bytes > a->bytes - g->offset)) {
            free(job);
            return false;
        }
        if (there)
            job->iov[i] = (struct iovec){a->base + g->offset, g->bytes};
    }
    if (!there) {
        free(job);
        answer(c, VVI_HELPER_REFUSED, m->id);
        return true;
    }
    job->next = NULL;
    job->conn = c;
    job->id = m->id;
    job->op = m->op;
    job->niov = m->nsegs;
    job->offset = m->offset;
    job->file = *fd;
    *fd = -1;
    vv_mutex_lock(&s->lock);
    bool taken = !c->closing;
    if (taken) {
        *c->tail = job;
        c->tail = &job->next;
        ready_push_locked(s, c);
        vv_cond_signal(&s->work);
    }
    vv_mutex_unlock(&s->lock);
    if (!taken)
        job_free(job);
    return true;
}

static bool take_message(struct server *s, struct conn *c, const struct vvi_helper_msg *m,
                         size_t bytes, int *fd)
{
    struct area *a;
    if (bytes < VVI_HELPER_MSG_BYTES(0) || m->nsegs > VV_AIO_IOV_MAX ||
        bytes != VVI_HELPER_MSG_BYTES(m->nsegs) || (!c->greeted && m->kind != VVI_HELPER_HELLO))
        return false;
    switch (m->kind) {
    case VVI_HELPER_HELLO:
        return greet(s, c, m);
    case VVI_HELPER_AREA:
        return add_area(c, m, *fd);
    case VVI_HELPER_FORGET:
        a = area_find(c, m->id);
        if (a)
            a->gone = true;
        return true;
    case VVI_HELPER_IO:
        return add_job(s, c, m, fd);
    case VVI_HELPER_PING:
        answer(c, VVI_HELPER_PONG, 0);
        return true;
    }
    return false;
}

/* True: there may be more. */
static bool receive(struct server *s, struct conn *c)
{
    struct vvi_helper_msg m;
    union {
        struct cmsghdr align;
        char buf[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {.iov_base = &m, .iov_len = sizeof(m)};
    struct msghdr h = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.buf,
                       .msg_controllen = sizeof(control.buf)};
    ssize_t n = recvmsg(c->fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    int fd = -1;
    struct cmsghdr *cm = n > 0 ? CMSG_FIRSTHDR(&h) : NULL;
    if (cm && cm->cmsg_level == SOL_SOCKET && cm->cmsg_type == SCM_RIGHTS &&
        cm->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(&fd, CMSG_DATA(cm), sizeof(int));
    bool good = n > 0 && !(h.msg_flags & MSG_TRUNC) && take_message(s, c, &m, (size_t)n, &fd);
    if (fd >= 0)
        close(fd);
    if (!good) {
        vv_mutex_lock(&s->lock);
        close_begin_locked(s, c);
        vv_mutex_unlock(&s->lock);
    }
    return good;
}

/* ---- the main thread ---- */

static bool is_closing(struct server *s, const struct conn *c)
{
    vv_mutex_lock(&s->lock);
    bool closing = c->closing;
    vv_mutex_unlock(&s->lock);
    return closing;
}

/* Waits for an event, at most timeout_ms. False: the helper must end. */
static bool look(struct server *s, struct pollfd *p, int timeout_ms)
{
    unsigned n = 3;
    uint64_t woken;
    p[0] = (struct pollfd){.fd = s->listen_fd, .events = POLLIN};
    p[1] = (struct pollfd){.fd = s->wake_fd, .events = POLLIN};
    p[2] = (struct pollfd){.fd = s->opts->stop_fd, .events = POLLIN};
    for (struct conn *c = s->conns; c; c = c->next)
        p[n++] = (struct pollfd){.fd = is_closing(s, c) ? -1 : c->fd, .events = POLLIN};
    if (poll(p, n, timeout_ms) < 0)
        return errno == EINTR;
    if (p[1].revents && read(s->wake_fd, &woken, sizeof(woken)) < 0)
        vv_assert(errno == EAGAIN);
    n = 3;
    for (struct conn *c = s->conns; c; c = c->next)
        if (p[n++].revents)
            for (unsigned i = 0; i < TURN && receive(s, c); i++)
                continue;
    if (p[0].revents)
        accept_one(s);
    tidy(s);
    return p[2].revents == 0;
}

static int run(struct server *s)
{
    struct pollfd *p = NULL;
    unsigned room = 0;
    uint64_t idle_ns = vv_now_ns();
    for (;;) {
        unsigned need = s->nconns + 3;
        if (need > room) {
            struct pollfd *more = realloc(p, 2 * need * sizeof(*p));
            if (!more) {
                free(p);
                return -ENOMEM;
            }
            p = more;
            room = 2 * need;
        }
        int timeout_ms = -1;
        if (s->nconns > 0)
            idle_ns = vv_now_ns();
        else if (s->opts->idle_ms >= 0)
            timeout_ms =
                VV_MAX(0, s->opts->idle_ms - (int)((vv_now_ns() - idle_ns) / VV_NS_PER_MS));
        if (timeout_ms == 0 || !look(s, p, timeout_ms))
            break;
    }
    free(p);
    return 0;
}

static void server_end(struct server *s)
{
    close(s->listen_fd); /* no new connections */
    vv_mutex_lock(&s->lock);
    for (struct conn *c = s->conns; c; c = c->next)
        close_begin_locked(s, c);
    s->stop = true;
    vv_cond_broadcast(&s->work);
    vv_mutex_unlock(&s->lock);
    for (unsigned i = 0; i < s->nthreads; i++)
        pthread_join(s->thread[i], NULL);
    for (struct conn *c = s->conns, *next; c; c = next) {
        next = c->next;
        conn_free(c);
    }
}

static int start_threads(struct server *s, unsigned want)
{
    struct vv_thread_group *before = vv_thread_group_enter(s->group);
    int rc = 0;
    while (s->nthreads < want && rc == 0) {
        rc = vv_thread_start(&s->thread[s->nthreads], worker, s);
        s->nthreads += rc == 0;
    }
    vv_thread_group_enter(before);
    return s->nthreads > 0 ? 0 : rc;
}

int vv_helper_serve(int listen_fd, const struct vv_helper_serve_opts *opts, char *err,
                    size_t err_bytes, struct vv_helper_served *ret_served)
{
    struct server s = {.listen_fd = listen_fd, .opts = opts};
    struct vv_thread_group_stats group;
    int rc = vv_thread_group_new(opts->cores ? opts->cores : "any", opts->nice, err, err_bytes,
                                 &s.group);
    if (rc < 0) {
        close(listen_fd);
        return rc;
    }
    s.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    rc = s.wake_fd < 0 ? -errno : 0;
    vv_mutex_init(&s.lock, "helper process", VV_RANK_NET);
    vv_cond_init(&s.work);
    s.ready_tail = &s.ready;
    unsigned want = opts->threads > 0 ? VV_MIN(opts->threads, (unsigned)THREADS_MAX) : THREADS;
    if (rc == 0)
        rc = start_threads(&s, want);
    if (rc == 0)
        rc = run(&s);
    server_end(&s);
    vv_thread_group_get_stats(s.group, &group);
    if (rc < 0)
        snprintf(err, err_bytes, "%s", vv_strerror(rc));
    else if (ret_served) {
        *ret_served = (struct vv_helper_served){.processes = s.processes,
                                                .requests = s.requests,
                                                .bytes = s.bytes,
                                                .cpu_ns = group.cpu_ns};
        snprintf(ret_served->where, sizeof(ret_served->where), "%s", group.where);
    }
    if (s.wake_fd >= 0)
        close(s.wake_fd);
    vv_cond_fini(&s.work);
    vv_mutex_fini(&s.lock);
    vv_thread_group_free(s.group);
    return rc;
}

int vv_helper_listen(const char *name, int *ret_fd)
{
    struct sockaddr_un addr;
    socklen_t len = vvi_helper_address(vvi_helper_name(name), &addr);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (bind(fd, (struct sockaddr *)&addr, len) < 0 || listen(fd, BACKLOG) < 0) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    *ret_fd = fd;
    return 0;
}
