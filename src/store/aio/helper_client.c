/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process's connection to the helper of its node.
 *
 * Requests and answers are messages on a Unix socket that keeps their boundaries and order (SEQPACKET).
 * Bytes go between files and memory that both processes have mapped. A socket rather than a queue in
 * shared memory, because the kernel reports the end of the other process, and only after its last answer:
 * answers are read first, and no process has to guess what a dead one was doing with a queue.
 *
 * Invariants:
 *
 *   - A request is in one place: in a call here, from before it is sent until its answer is read or the
 *     helper has ended; then on a list of its port. So each comes back exactly once.
 *   - The socket of a killed helper is closed when its last thread has left the kernel. The helper itself
 *     closes a connection only with none of its requests running, and uses plain system calls, which
 *     transfer nothing after they return. So requests not answered when the connection ends can be
 *     repeated at once. Some file systems let a killed process go while direct I/O is under way: such
 *     files are not given to the helper (may_leave).
 *   - A helper gets no fsync: the kernel reports an error of earlier writes once, and if the helper died with
 *     that report, the error would be lost.
 *   - An address belongs to an area only while the area is mapped here.
 *
 * Threads: movers call, each for its own port; a receiver thread takes answers and kicks movers. `lock`
 * (rank NET) protects calls, ports, areas and figures; under it no system call is made but a kick.
 *
 * Possible failures: a helper that is stopped, or hangs, answers nothing. The receiver pings it every
 * second while a request is in flight. Its main thread never waits for a disk, so it answers unless it
 * cannot run at all. After HUNG silent seconds it is killed, which ends the connection. If this process
 * was stopped together with its helper, that time counts as one second.
 */
#define _GNU_SOURCE
#include "store/aio/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/thread_group.h"
#include "store/aio/helper_private.h"

#define HUGE_BYTES ((size_t)2 << 20)
enum {
    AREAS = 32,
    BLOCKS = 128,
    BLOCK_BYTES = 16384, /* small pieces of memory outside all areas are copied through these */
    HUNG = 20,           /* ticks without an answer */
    TICK_MS = 1000,
    WELCOME_MS = 5000,
    TRIES = 3,
};

struct area {
    char *base; /* NULL: not in use */
    size_t bytes;
    uint32_t id;
};

struct bit {
    uint32_t block;
    void *mem;
    size_t bytes;
};

struct call {
    struct vv_aio_req *req; /* NULL: free */
    struct vvi_helper_port *port;
    uint64_t bytes;
    unsigned nbits;
    struct bit bit[VVI_HELPER_BITS];
    uint32_t next_free;
};

struct vv_helper {
    int fd, pidfd; /* immutable, as the next four; pidfd -1: not available */
    pid_t pid;
    int tick_ms;
    char *blocks; /* BLOCKS of BLOCK_BYTES; an area of its own */
    pthread_t receiver;
    struct vv_mutex lock;
    /* Synchronization: lock, all below. */
    struct area area[AREAS];
    uint32_t next_area;
    struct call call[VVI_HELPER_CALLS];
    uint32_t free_call; /* VVI_HELPER_CALLS: none */
    unsigned ncalls;
    uint32_t free_block[BLOCKS];
    unsigned nfree_blocks;
    struct vvi_helper_port *ports;
    bool dead, closing;
    struct vv_helper_stats stats;
};

/* ---- messages ---- */

int vvi_helper_send(int fd, const void *msg, size_t bytes, int pass_fd, int flags)
{
    union {
        struct cmsghdr align;
        char buf[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)msg, .iov_len = bytes};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (pass_fd >= 0) {
        m.msg_control = control.buf;
        m.msg_controllen = sizeof(control.buf);
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &pass_fd, sizeof(int));
    }
    ssize_t n;
    do
        n = sendmsg(fd, &m, flags | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : 0;
}

static bool is_end(int rc)
{
    return rc == -EPIPE || rc == -ECONNRESET || rc == -ENOTCONN;
}

/* ---- calls; lock held ---- */

static void call_release(struct vv_helper *h, struct call *c)
{
    for (unsigned i = 0; i < c->nbits; i++)
        h->free_block[h->nfree_blocks++] = c->bit[i].block;
    *c = (struct call){.next_free = h->free_call};
    h->free_call = (uint32_t)(c - h->call);
    h->ncalls--;
}

static const struct area *area_of(const struct vv_helper *h, const struct iovec *iov)
{
    const char *at = iov->iov_base;
    for (unsigned i = 0; i < AREAS; i++) {
        const struct area *a = &h->area[i];
        if (a->base && at >= a->base && at < a->base + a->bytes &&
            iov->iov_len <= (size_t)(a->base + a->bytes - at))
            return a;
    }
    return NULL;
}

static bool add_seg(struct vvi_helper_msg *msg, uint32_t area, uint64_t offset, size_t bytes)
{
    struct vvi_helper_seg *last = msg->nsegs > 0 ? &msg->seg[msg->nsegs - 1] : NULL;
    if (bytes > UINT32_MAX)
        return false;
    if (last && last->area == area && last->offset + last->bytes == offset &&
        (uint64_t)last->bytes + bytes <= UINT32_MAX)
        last->bytes += (uint32_t)bytes;
    else
        msg->seg[msg->nsegs++] = (struct vvi_helper_seg){offset, area, (uint32_t)bytes};
    return true;
}

/* A piece of memory outside all areas goes through a block, if it is small and a block is free. */
static bool add_bit(struct vv_helper *h, struct call *c, const struct iovec *iov,
                    struct vvi_helper_msg *msg)
{
    if (iov->iov_len > BLOCK_BYTES || c->nbits == VVI_HELPER_BITS || h->nfree_blocks == 0)
        return false;
    uint32_t block = h->free_block[--h->nfree_blocks];
    c->bit[c->nbits++] = (struct bit){block, iov->iov_base, iov->iov_len};
    struct iovec there = {h->blocks + (size_t)block * BLOCK_BYTES, iov->iov_len};
    const struct area *a = area_of(h, &there);
    return a && add_seg(msg, a->id, (uint64_t)((char *)there.iov_base - a->base), iov->iov_len);
}

/* A call with all of its memory in the message; NULL: not possible. */
static struct call *call_new(struct vv_helper *h, const struct iovec *iov, unsigned niov,
                             struct vvi_helper_msg *msg)
{
    if (h->dead || h->free_call == VVI_HELPER_CALLS)
        return NULL;
    struct call *c = &h->call[h->free_call];
    h->free_call = c->next_free;
    h->ncalls++;
    *c = (struct call){0};
    msg->nsegs = 0;
    for (unsigned i = 0; i < niov; i++) {
        const struct area *a = area_of(h, &iov[i]);
        bool there =
            a ? add_seg(msg, a->id, (uint64_t)((char *)iov[i].iov_base - a->base), iov[i].iov_len)
              : add_bit(h, c, &iov[i], msg);
        if (!there) {
            call_release(h, c);
            return NULL;
        }
        c->bytes += iov[i].iov_len;
    }
    return c;
}

/* ---- which files ---- */

/* File systems on which a killed process stays until its direct transfer has ended. On others it may
 * end first; the transfer could then collide with its repetition on the same memory or the same place
 * in the file. With buffered I/O no file system touches the caller's memory after the process has ended. */
static bool stays(long type)
{
    switch ((unsigned long)type) {
    case 0xef53:     /* ext2, ext3, ext4 */
    case 0x58465342: /* XFS */
    case 0x9123683e: /* btrfs */
    case 0x01021994: /* tmpfs */
    case 0xf2f52010: /* F2FS */
    case 0x2fc12fc1: /* ZFS */
    case 0x794c7630: /* overlayfs */
    case 0x0bd00bd0: /* Lustre */
        return true;
    }
    return false;
}

static bool may_leave(int fd)
{
    struct statfs fs;
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0)
        return true; /* carried out here, the request fails with the right error */
    return (flags & O_DIRECT) != 0 && (fstatfs(fd, &fs) < 0 || !stays((long)fs.f_type));
}

int vvi_helper_call(struct vv_helper *h, struct vvi_helper_port *port, struct vv_aio_req *req,
                    const struct iovec *iov, unsigned niov, struct vvi_helper_msg *msg)
{
    if (vv_aio_is_sync(req->op) || may_leave(req->fd))
        return -EOPNOTSUPP;
    vv_mutex_lock(&h->lock);
    struct call *c = call_new(h, iov, niov, msg);
    if (!c) {
        vv_mutex_unlock(&h->lock);
        return -EAGAIN;
    }
    c->req = req;
    c->port = port;
    for (unsigned i = 0; i < c->nbits && req->op == VV_AIO_WRITE; i++)
        memcpy(h->blocks + (size_t)c->bit[i].block * BLOCK_BYTES, c->bit[i].mem, c->bit[i].bytes);
    vv_mutex_unlock(&h->lock);
    msg->kind = VVI_HELPER_IO;
    msg->id = (uint32_t)(c - h->call);
    msg->op = (uint32_t)req->op;
    msg->offset = req->offset;
    int rc = vvi_helper_send(h->fd, msg, VVI_HELPER_MSG_BYTES(msg->nsegs), req->fd, 0);
    /* At the end of the connection the receiver returns all calls, this one included. */
    if (rc == 0 || is_end(rc))
        return 0;
    vv_mutex_lock(&h->lock);
    bool mine = !h->dead;
    if (mine)
        call_release(h, c);
    vv_mutex_unlock(&h->lock);
    return mine ? rc : 0;
}

/* ---- ports ---- */

void vvi_helper_attach(struct vv_helper *h, struct vvi_helper_port *port)
{
    vvi_aio_queue_init(&port->answered);
    vvi_aio_queue_init(&port->redo);
    vv_mutex_lock(&h->lock);
    port->next = h->ports;
    h->ports = port;
    vv_mutex_unlock(&h->lock);
}

void vvi_helper_detach(struct vv_helper *h, struct vvi_helper_port *port)
{
    vv_mutex_lock(&h->lock);
    struct vvi_helper_port **at = &h->ports;
    while (*at != port)
        at = &(*at)->next;
    *at = port->next;
    vv_mutex_unlock(&h->lock);
}

static void queue_take(struct vvi_aio_queue *from, struct vvi_aio_queue *ret)
{
    struct vv_aio_req *req;
    vvi_aio_queue_init(ret);
    while ((req = vvi_aio_queue_pop(from)))
        vvi_aio_queue_push(ret, req);
}

void vvi_helper_collect(struct vv_helper *h, struct vvi_helper_port *port,
                        struct vvi_aio_queue *ret_answered, struct vvi_aio_queue *ret_redo)
{
    vv_mutex_lock(&h->lock);
    queue_take(&port->answered, ret_answered);
    queue_take(&port->redo, ret_redo);
    vv_mutex_unlock(&h->lock);
}

/* ---- the receiver ---- */

static void give_back_locked(struct vv_helper *h, struct call *c)
{
    struct vvi_helper_port *port = c->port;
    vvi_aio_queue_push(&port->redo, c->req);
    h->stats.redone++;
    call_release(h, c);
    vv_aio_kick(port->inner);
}

static void answered_locked(struct vv_helper *h, struct call *c, const struct vvi_helper_reply *r)
{
    struct vv_aio_req *req = c->req;
    struct vvi_helper_port *port = c->port;
    for (unsigned i = 0; i < c->nbits && req->op == VV_AIO_READ; i++)
        memcpy(c->bit[i].mem, h->blocks + (size_t)c->bit[i].block * BLOCK_BYTES, c->bit[i].bytes);
    h->stats.requests++;
    h->stats.bytes += r->result > 0 ? (uint64_t)r->result : 0;
    h->stats.cpu_ns += r->cpu_ns;
    h->stats.cpu = r->cpu;
    /* An answer with more bytes than requested is wrong. */
    req->result = r->result > 0 && (uint64_t)r->result > c->bytes ? -EIO : (int)r->result;
    vvi_aio_queue_push(&port->answered, req);
    call_release(h, c);
    vv_aio_kick(port->inner);
}

/* False: the other end does not follow the protocol. */
static bool take_reply(struct vv_helper *h, const struct vvi_helper_reply *r, size_t bytes)
{
    bool good = bytes == sizeof(*r);
    vv_mutex_lock(&h->lock);
    if (good && (r->kind == VVI_HELPER_DONE || r->kind == VVI_HELPER_REFUSED)) {
        struct call *c = r->id < VVI_HELPER_CALLS ? &h->call[r->id] : NULL;
        good = c && c->req;
        if (good && r->kind == VVI_HELPER_DONE)
            answered_locked(h, c, r);
        else if (good)
            give_back_locked(h, c);
    } else {
        good = good && r->kind == VVI_HELPER_PONG;
    }
    vv_mutex_unlock(&h->lock);
    return good;
}

static void kill_helper(const struct vv_helper *h)
{
    if (h->pidfd >= 0)
        syscall(SYS_pidfd_send_signal, h->pidfd, SIGKILL, NULL, 0);
    else
        kill(h->pid, SIGKILL);
}

/* Handles a tick without a message. */
static void tick(struct vv_helper *h, unsigned *silent)
{
    struct vvi_helper_msg ping = {.kind = VVI_HELPER_PING};
    vv_mutex_lock(&h->lock);
    bool waiting = h->ncalls > 0;
    vv_mutex_unlock(&h->lock);
    *silent = waiting ? *silent + 1 : 0;
    if (!waiting)
        return;
    /* A ping that cannot be sent, because the helper reads nothing, counts as not answered. */
    (void)vvi_helper_send(h->fd, &ping, VVI_HELPER_MSG_BYTES(0), -1, MSG_DONTWAIT);
    if (*silent == HUNG) {
        vv_log(VV_LOG_WARNING, "helper process %d does not answer: it is killed", (int)h->pid);
        kill_helper(h);
    }
}

/* Runs until the connection ends. */
static void receive(struct vv_helper *h)
{
    struct vvi_helper_reply r;
    unsigned silent = 0;
    for (;;) {
        struct pollfd p = {.fd = h->fd, .events = POLLIN};
        int n = poll(&p, 1, h->tick_ms);
        if (n == 0) {
            tick(h, &silent);
            continue;
        }
        ssize_t got = n > 0 ? recv(h->fd, &r, sizeof(r), MSG_DONTWAIT) : -1;
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got <= 0)
            return;
        silent = 0;
        if (!take_reply(h, &r, (size_t)got)) {
            /* It may be working on any of our memory: it must have ended before we go on. */
            vv_log(VV_LOG_WARNING, "helper process %d sent an invalid message: it is killed",
                   (int)h->pid);
            kill_helper(h);
        }
    }
}

static void *receiver_main(void *arg)
{
    struct vv_helper *h = arg;
    vv_thread_group_name("helper link");
    receive(h);
    vv_mutex_lock(&h->lock);
    h->dead = true;
    h->stats.alive = false;
    bool expected = h->closing;
    unsigned n = h->ncalls;
    for (unsigned i = 0; i < VVI_HELPER_CALLS; i++)
        if (h->call[i].req)
            give_back_locked(h, &h->call[i]);
    vv_mutex_unlock(&h->lock);
    if (!expected)
        vv_log(VV_LOG_WARNING,
               "helper process %d has ended: threads repeat %u requests and carry out all others",
               (int)h->pid, n);
    return NULL;
}

/* ---- memory ---- */

static int map_shared(size_t bytes, int *ret_fd, char **ret_base)
{
    int fd = memfd_create("varve", MFD_CLOEXEC);
    if (fd < 0)
        return -errno;
    char *map = MAP_FAILED;
    if (ftruncate(fd, (off_t)bytes) == 0)
        map = mmap(NULL, bytes + HUGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    char *base = (char *)vv_align_up((uintptr_t)map, HUGE_BYTES);
    if (mmap(base, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        int rc = -errno;
        munmap(map, bytes + HUGE_BYTES);
        close(fd);
        return rc;
    }
    if (base > map)
        munmap(map, (size_t)(base - map));
    munmap(base + bytes, (size_t)(map + HUGE_BYTES - base));
    madvise(base, bytes, MADV_HUGEPAGE); /* if the system supports it for shared memory */
    *ret_fd = fd;
    *ret_base = base;
    return 0;
}

int vv_helper_map(struct vv_helper *h, size_t bytes, void **ret_ptr)
{
    struct vvi_helper_msg msg = {.kind = VVI_HELPER_AREA};
    char *base = NULL;
    int fd = -1;
    if (bytes == 0)
        return -EINVAL;
    bytes = vv_align_up(bytes, (size_t)sysconf(_SC_PAGESIZE));
    int rc = map_shared(bytes, &fd, &base);
    if (rc < 0)
        return rc;
    struct area *a = NULL;
    vv_mutex_lock(&h->lock);
    for (unsigned i = 0; i < AREAS && !a; i++)
        a = h->area[i].base ? NULL : &h->area[i];
    if (a)
        *a = (struct area){base, bytes, h->next_area++};
    msg.id = a ? a->id : 0;
    vv_mutex_unlock(&h->lock);
    msg.offset = bytes;
    /* Messages are read in order: the helper has the area before the first request on it. If it cannot
     * map the area, or has ended, requests on the area are refused and carried out here. */
    if (a)
        (void)vvi_helper_send(h->fd, &msg, VVI_HELPER_MSG_BYTES(0), fd, 0);
    close(fd);
    if (!a) {
        munmap(base, bytes);
        return -ENOSPC;
    }
    *ret_ptr = base;
    return 0;
}

void vv_helper_unmap(struct vv_helper *h, void *ptr)
{
    struct vvi_helper_msg msg = {.kind = VVI_HELPER_FORGET};
    struct area gone = {0};
    if (!ptr)
        return;
    vv_mutex_lock(&h->lock);
    for (unsigned i = 0; i < AREAS; i++)
        if (h->area[i].base == ptr) {
            gone = h->area[i];
            h->area[i] = (struct area){0};
        }
    vv_mutex_unlock(&h->lock);
    vv_assert(gone.base);
    msg.id = gone.id;
    (void)vvi_helper_send(h->fd, &msg, VVI_HELPER_MSG_BYTES(0), -1, 0);
    munmap(gone.base, gone.bytes);
}

/* ---- opening and closing ---- */

/* Waits for the answer to HELLO. */
static int welcome(int fd, struct vvi_helper_reply *ret)
{
    uint64_t until = vv_now_ns() + (uint64_t)WELCOME_MS * VV_NS_PER_MS;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        uint64_t now = vv_now_ns();
        int n = now >= until ? 0 : poll(&p, 1, (int)((until - now) / VV_NS_PER_MS) + 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            return -ETIMEDOUT;
        ssize_t got = n < 0 ? -1 : recv(fd, ret, sizeof(*ret), MSG_DONTWAIT);
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got <= 0)
            return -ECONNREFUSED; /* the helper is about to end */
        return (size_t)got == sizeof(*ret) && ret->kind == VVI_HELPER_WELCOME &&
                       ret->id == VVI_HELPER_VERSION
                   ? 0
                   : -EPROTO;
    }
}

static int try_connect(const char *name, pid_t *ret_pid, int *ret_fd, struct vvi_helper_reply *ret)
{
    struct vvi_helper_msg hello = {.kind = VVI_HELPER_HELLO, .id = VVI_HELPER_VERSION};
    struct sockaddr_un addr;
    struct ucred peer = {0};
    socklen_t len = vvi_helper_address(name, &addr), peer_bytes = sizeof(peer);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), rc = 0;
    if (fd < 0)
        return -errno;
    if (connect(fd, (struct sockaddr *)&addr, len) < 0 ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes) < 0)
        rc = -errno;
    else if (peer.uid != geteuid())
        rc = -EPERM; /* it would get our memory and our files */
    else if (peer.pid <= 0)
        rc = -ESRCH; /* in another pid namespace: it could not be killed if it hangs */
    if (rc == 0)
        rc = vvi_helper_send(fd, &hello, VVI_HELPER_MSG_BYTES(0), -1, 0);
    if (is_end(rc))
        rc = -ECONNREFUSED;
    if (rc == 0)
        rc = welcome(fd, ret);
    if (rc < 0) {
        close(fd);
        return rc;
    }
    *ret_pid = peer.pid;
    *ret_fd = fd;
    return 0;
}

static int reach(struct vv_helper *h, const struct vv_helper_opts *opts, char *err,
                 size_t err_bytes)
{
    const char *name = vvi_helper_name(opts->name);
    struct vvi_helper_reply r;
    int rc = -ECONNREFUSED;
    for (int i = 0; i < TRIES && rc == -ECONNREFUSED; i++) {
        rc = try_connect(name, &h->pid, &h->fd, &r);
        if (rc != -ECONNREFUSED || opts->no_start)
            break;
        rc = vvi_helper_start(opts, name, err, err_bytes);
        if (rc < 0)
            return rc;
        rc = try_connect(name, &h->pid, &h->fd, &r);
    }
    if (rc < 0) {
        snprintf(err, err_bytes, "helper %s: %s", name,
                 rc == -EPROTO  ? "it is of another version"
                 : rc == -EPERM ? "it is another user's"
                                : vv_strerror(rc));
        return rc;
    }
    h->stats = (struct vv_helper_stats){
        .pid = h->pid, .alive = true, .cpu = -1, .nice = r.nice, .threads = r.threads};
    memcpy(h->stats.where, r.where, sizeof(r.where));
    h->stats.where[sizeof(h->stats.where) - 1] = 0;
    return 0;
}

static int set_up(struct vv_helper *h)
{
    void *blocks;
    h->pidfd = (int)syscall(SYS_pidfd_open, h->pid, 0);
    for (unsigned i = 0; i < VVI_HELPER_CALLS; i++)
        h->call[i].next_free = i + 1;
    for (unsigned i = 0; i < BLOCKS; i++)
        h->free_block[h->nfree_blocks++] = i;
    int rc = vv_helper_map(h, (size_t)BLOCKS * BLOCK_BYTES, &blocks);
    if (rc < 0)
        return rc;
    h->blocks = blocks;
    return vv_thread_start(&h->receiver, receiver_main, h);
}

static void helper_free(struct vv_helper *h)
{
    if (h->blocks)
        vv_helper_unmap(h, h->blocks);
    if (h->pidfd >= 0)
        close(h->pidfd);
    if (h->fd >= 0)
        close(h->fd);
    vv_mutex_fini(&h->lock);
    free(h);
}

int vv_helper_open(const struct vv_helper_opts *opts, char *err, size_t err_bytes,
                   struct vv_helper **ret_helper)
{
    struct vv_helper *h = calloc(1, sizeof(*h));
    if (!h)
        return -ENOMEM;
    h->fd = h->pidfd = -1;
    h->tick_ms = opts->tick_ms > 0 ? opts->tick_ms : TICK_MS;
    vv_mutex_init(&h->lock, "helper", VV_RANK_NET);
    int rc = reach(h, opts, err, err_bytes);
    if (rc == 0) {
        rc = set_up(h);
        if (rc < 0)
            snprintf(err, err_bytes, "helper: %s", vv_strerror(rc));
    }
    if (rc < 0) {
        helper_free(h);
        return rc;
    }
    *ret_helper = h;
    return 0;
}

void vv_helper_close(struct vv_helper *h)
{
    if (!h)
        return;
    vv_mutex_lock(&h->lock);
    vv_assert(h->ncalls == 0 && !h->ports);
    h->closing = true;
    vv_mutex_unlock(&h->lock);
    shutdown(h->fd, SHUT_RDWR); /* ends the receiver */
    pthread_join(h->receiver, NULL);
    helper_free(h);
}

void vv_helper_get_stats(struct vv_helper *h, struct vv_helper_stats *ret_stats)
{
    vv_mutex_lock(&h->lock);
    *ret_stats = h->stats;
    vv_mutex_unlock(&h->lock);
}
