/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections to the daemon. There is a fixed number of slots; a call takes a free one, uses its connection or makes
 * one, and gives it back. No call waits for a slot: a thread that finds none proceeds without the daemon, and a
 * signal handler that interrupts a call takes another one.
 *
 * Events that a connection must survive, and how they are detected:
 *   the program closes it      before each use the kernel is asked if the descriptor is still this socket, so that
 *                              nothing is sent to a file or peer of the program's
 *   fork, in whatever way      a page that the kernel empties in the child; the child forgets all slots
 *   vfork                      the child has a copy of the descriptors and our memory: a connection of the child is
 *                              not the parent's, and is closed and forgotten when its request has ended
 *   exec                       close-on-exec
 *   another user id            compared before each use
 *   chroot, another namespace  hooked; the next use connects again, which compares the roots of both sides
 *   the daemon stops           no reply within the patience: no request for a time, which doubles each time
 *   the daemon ends            the connection ends; one attempt at another, then one per second
 *   there never was one        no more attempts in this process and its forked children
 *   no descriptor is left      idle connections are closed, and the program gets their numbers
 *
 * Replies carry the id of their request, which is unique among all slots. So even if a program closes a connection in
 * the moment of its use, and the number becomes another connection's, no request gets the answer to another one. A
 * connection on which anything unexpected arrives is closed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "preload/preload.h"

#define SLOTS        64
#define HIGH_FD      960 /* connections use numbers from here on, away from those that programs expect */
#define NEVER        UINT64_MAX
#define NS_PER_MS    UINT64_C(1000000)
#define RETRY_NS     (1000 * NS_PER_MS)
#define FROZEN_MIN   (1000 * NS_PER_MS)
#define FROZEN_MAX   (60000 * NS_PER_MS)
#define ALIVE_NS     (1000 * NS_PER_MS) /* a daemon on a busy machine may be silent for so long */
#define SLICE_MS     100u               /* of waiting; after each, the daemon's state is checked */
#define TOTAL_NS     (120000 * NS_PER_MS) /* longest request, even with PENDING messages */
#define INDEX_AFTER  3                    /* files requested before the index is */
#define WELCOME_ROOM ((size_t)32768)

struct connection {
    bool there;
    int fd;
    uint64_t dev, ino; /* of the socket */
    unsigned view;
    uint64_t index; /* identity of the daemon's index; 0: none */
    long uid;
};

struct vvi_preload_slot {
    /* Stored with release, taken with acquire. Its owner uses the other members. */
    atomic_bool busy;
    bool fresh; /* the connection was made for this request */
    struct connection c;
    uint64_t id;
    struct vv_server_request req;
    char path[VV_SERVER_PATH_MAX + 1 + sizeof(uint64_t)]; /* follows req: both are sent as one */
};
_Static_assert(offsetof(struct vvi_preload_slot, path) ==
                   offsetof(struct vvi_preload_slot, req) + sizeof(struct vv_server_request),
               "sent as one");

/* The daemon's roots that are the same folders in this process. Immutable once published. */
struct roots {
    uint32_t nr;
    struct {
        uint32_t at, bytes;
        uint64_t mount; /* here; 0: this process has the daemon's mounts, and need not compare */
        bool sole;      /* its files are in no file system */
    } root[VV_SERVER_ROOTS_MAX];
    bool has_sole;
    char text[];
};

static struct vvi_preload_slot slots[SLOTS];
/* Published with release. Old ones stay: a thread may be reading them, and they are few. */
static _Atomic(const struct roots *) served;
/* Synchronization: relaxed; each is a value independent of other memory. */
static _Atomic uint64_t not_before_ns; /* NEVER: no daemon */
static _Atomic uint64_t frozen_ns;     /* next pause after a timeout */
static _Atomic uint64_t last_id;
static _Atomic unsigned answered; /* files that the daemon has given */
static atomic_bool was_there;
static atomic_uint view;

/* ---- forks ---- */

enum { FORKED = 0, SETTLING, SETTLED };

/* Emptied by the kernel in every child that has memory of its own. NULL: the kernel cannot do that, and `owner` is
 * compared. */
static _Atomic uint32_t *settled;
static long owner; /* process that owns this memory: a child of vfork has another number */

__attribute__((constructor)) static void watch_forks(void)
{
    int saved = errno;
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    owner = syscall(SYS_getpid);
    atomic_store_explicit(&last_id, (uint64_t)owner << 40, memory_order_relaxed);
    if (page != MAP_FAILED && madvise(page, 4096, MADV_WIPEONFORK) == 0) {
        settled = page;
        atomic_store_explicit(settled, SETTLED, memory_order_relaxed);
    }
    errno = saved;
}

static bool is_socket(const struct vvi_preload_slot *s)
{
    struct stat st;

    return syscall(SYS_fstat, s->c.fd, &st) == 0 && (uint64_t)st.st_dev == s->c.dev &&
           (uint64_t)st.st_ino == s->c.ino;
}

/* Closes this process's copies of its parent's connections. */
static void forget_slots(void)
{
    for (int i = 0; i < SLOTS; i++) {
        struct vvi_preload_slot *s = &slots[i];

        if (s->c.there && is_socket(s))
            syscall(SYS_close, s->c.fd);
        s->c.there = false;
        s->c.fd = -1;
        atomic_store_explicit(&s->busy, false, memory_order_release);
    }
}

/* False: another call is doing it; use no connection now. */
static bool settle(void)
{
    uint32_t was = FORKED;

    if (!settled)
        return syscall(SYS_getpid) == owner;
    if (atomic_load_explicit(settled, memory_order_acquire) == SETTLED)
        return true;
    /* A signal handler in between finds SETTLING, and proceeds without the daemon. */
    if (!atomic_compare_exchange_strong_explicit(settled, &was, SETTLING, memory_order_acquire,
                                                 memory_order_relaxed))
        return false;
    forget_slots();
    owner = syscall(SYS_getpid);
    atomic_store_explicit(settled, SETTLED, memory_order_release);
    return true;
}

/* ---- roots ---- */

static void learn(void);

static const struct roots *known_roots(void)
{
    const struct roots *r = atomic_load_explicit(&served, memory_order_acquire);

    if (!r) {
        learn();
        r = atomic_load_explicit(&served, memory_order_acquire);
    }
    return r;
}

/* True if a path is below a root, or is a root that no file system has itself. */
static bool is_of(const struct roots *r, uint32_t i, const char *path)
{
    const char *root = r->text + r->root[i].at;

    return vvi_preload_is_below(path, root, r->root[i].bytes) ||
           (r->root[i].sole && vvi_preload_is_root(path, root, r->root[i].bytes));
}

static bool below_served(const char *path)
{
    const struct roots *r = known_roots();

    if (!r)
        return true; /* not known yet */
    for (uint32_t i = 0; i < r->nr; i++)
        if (is_of(r, i, path))
            return true;
    return false;
}

static bool below_sole(const struct roots *r, const char *path)
{
    for (uint32_t i = 0; i < r->nr; i++)
        if (r->root[i].sole && is_of(r, i, path))
            return true;
    return false;
}

static struct vvi_preload_slot *acquire(void);
static void release(struct vvi_preload_slot *s);

static bool relative_is_sole(const struct roots *r, int dirfd, const char *path)
{
    struct vvi_preload_slot *s = settle() ? acquire() : NULL;
    int saved = errno;
    bool is;

    if (!s)
        return dirfd != AT_FDCWD && vvi_preload_is_folder(dirfd);
    is = vvi_preload_path(dirfd, path, true, s->path, VV_SERVER_PATH_MAX + 1) > 0 &&
         below_sole(r, s->path);
    release(s);
    errno = saved;
    return is;
}

bool vvi_preload_is_sole(int dirfd, const char *path)
{
    const struct roots *r = known_roots();

    if (!r || !r->has_sole || !vvi_preload_can_read(path) || path[0] == '\0')
        return false;
    if (path[0] != '/')
        return relative_is_sole(r, dirfd, path);
    return below_sole(r, path);
}

bool vvi_preload_refuses(int dirfd, const char *path)
{
    if (!vvi_preload_on() || !vvi_preload_is_sole(dirfd, path))
        return false;
    errno = EROFS;
    return true;
}

/* VARVE_PRELOAD_ROOTS: the daemon is used only for these. */
static bool below_wanted(const char *path)
{
    const char *at = vvi_preload_settings.roots;

    if (*at == '\0')
        return true;
    while (*at) {
        size_t bytes = strcspn(at, ":"), trimmed = bytes;

        while (trimmed > 1 && at[trimmed - 1] == '/')
            trimmed--;
        if (trimmed > 0 &&
            (vvi_preload_is_below(path, at, trimmed) || vvi_preload_is_root(path, at, trimmed)))
            return true;
        at += bytes + (at[bytes] == ':');
    }
    return false;
}

bool vvi_preload_may_be_ours(const char *path)
{
    if (atomic_load_explicit(&not_before_ns, memory_order_relaxed) == NEVER ||
        !vvi_preload_can_read(path))
        return false;
    return path[0] != '/' || (below_wanted(path) && below_served(path));
}

/* The mount that a path ends in; 0: unknown, or no such file. */
static uint64_t mount_of(int dirfd, const char *path, bool nofollow)
{
    struct statx st;

    if (syscall(SYS_statx, dirfd, path,
                AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT | (nofollow ? AT_SYMLINK_NOFOLLOW : 0),
                STATX_MNT_ID, &st) < 0 ||
        !(st.stx_mask & STATX_MNT_ID))
        return 0;
    return st.stx_mnt_id;
}

/* For a process with mounts of its own, as in a container: true if a path below a root leads to the same mount as in
 * the daemon. A mount in between, or on the file, exists only in this process. */
static bool sees_the_same(const char *absolute, int dirfd, const char *path, bool nofollow)
{
    const struct roots *r = atomic_load_explicit(&served, memory_order_acquire);

    for (uint32_t i = 0; r && i < r->nr; i++)
        if (vvi_preload_is_below(absolute, r->text + r->root[i].at, r->root[i].bytes))
            return r->root[i].mount == 0 || mount_of(dirfd, path, nofollow) == r->root[i].mount;
    return true;
}

static bool same_inode(const char *path, uint64_t dev, uint64_t ino)
{
    struct stat st;

    return syscall(SYS_newfstatat, AT_FDCWD, path, &st, 0) == 0 && (uint64_t)st.st_dev == dev &&
           (uint64_t)st.st_ino == ino;
}

static bool same_mounts(uint64_t ns)
{
    struct stat st;

    return ns != 0 && syscall(SYS_newfstatat, AT_FDCWD, "/proc/self/ns/mnt", &st, 0) == 0 &&
           (uint64_t)st.st_ino == ns;
}

/* Reads a welcome of `bytes` at `from` into `r`. Leaves out a root that is another folder here. */
static bool read_welcome(const char *from, size_t bytes, struct roots *r, uint64_t *ret_index)
{
    struct vv_server_welcome w;
    size_t used = 0;
    bool same;

    if (bytes < sizeof(w))
        return false;
    memcpy(&w, from, sizeof(w));
    from += sizeof(w);
    bytes -= sizeof(w);
    if (w.nr_roots > VV_SERVER_ROOTS_MAX)
        return false;
    *ret_index = 0;
    same = same_mounts(w.mount_ns) && same_inode("/", w.root_dev, w.root_ino);
    for (uint32_t i = 0; i < w.nr_roots; i++) {
        struct vv_server_root root;

        if (bytes < sizeof(root))
            return false;
        memcpy(&root, from, sizeof(root));
        from += sizeof(root);
        bytes -= sizeof(root);
        if (root.path_bytes == 0 || root.path_bytes > bytes || from[0] != '/')
            return false;
        memcpy(r->text + used, from, root.path_bytes);
        r->text[used + root.path_bytes] = '\0';
        from += root.path_bytes;
        bytes -= root.path_bytes;
        r->root[r->nr].sole = (root.flags & VV_SERVER_SOLE) != 0;
        r->root[r->nr].mount =
            same || r->root[r->nr].sole ? 0 : mount_of(AT_FDCWD, r->text + used, false);
        if (!same && !r->root[r->nr].sole &&
            (!same_inode(r->text + used, root.dev, root.ino) || r->root[r->nr].mount == 0))
            continue;
        r->has_sole = r->has_sole || r->root[r->nr].sole;
        r->root[r->nr].at = (uint32_t)used;
        r->root[r->nr].bytes = root.path_bytes;
        r->nr++;
        used += root.path_bytes + 1;
    }
    /* The index names files in the folder of the cache, which may be another folder here. */
    if (same)
        *ret_index = w.index;
    return true;
}

static uint64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 * NS_PER_MS + (uint64_t)ts.tv_nsec;
}

/* Publishes roots that were read into memory of WELCOME_ROOM bytes, or frees it. */
static void publish(struct roots *r, bool good)
{
    const struct roots *was = atomic_load_explicit(&served, memory_order_acquire);

    if (!good || (was && memcmp(was, r, WELCOME_ROOM) == 0))
        munmap(r, WELCOME_ROOM);
    else
        atomic_store_explicit(&served, r, memory_order_release);
}

/* ---- the daemon's file beside its socket ---- */

/* Reads it, and up to `bytes` behind its header. Returns the number of these; -1: there is no file of this user. */
static long read_life(struct vv_server_life *life, void *more, size_t bytes)
{
    char path[sizeof(vvi_preload_settings.socket) + 8];
    struct {
        void *at;
        size_t bytes;
    } part[2] = {{life, sizeof(*life)}, {more, bytes}};
    size_t n = strlen(vvi_preload_settings.socket);
    struct stat st;
    long got = -1;
    int fd, saved = errno;

    memcpy(path, vvi_preload_settings.socket, n);
    memcpy(path + n, ".lock", 6);
    fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    errno = saved;
    if (fd < 0)
        return -1;
    if (syscall(SYS_fstat, fd, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 022) == 0 &&
        (long)st.st_uid == syscall(SYS_geteuid))
        got = syscall(SYS_readv, fd, part, more ? 2 : 1);
    syscall(SYS_close, fd);
    errno = saved;
    if (got < (long)sizeof(*life) || life->magic != VV_SERVER_LIFE_MAGIC ||
        life->version != VV_SERVER_VERSION)
        return -1;
    return got - (long)sizeof(*life);
}

/* Learns the roots from that file: a program that reads nothing below them does not even connect. */
static void learn(void)
{
    static atomic_bool done;
    struct vv_server_life life;
    struct roots *r;
    uint64_t index;
    int saved = errno;
    bool good = false;
    char *welcome;

    if (atomic_exchange_explicit(&done, true, memory_order_relaxed))
        return;
    r = mmap(NULL, WELCOME_ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (r != MAP_FAILED) {
        welcome = (char *)r + WELCOME_ROOM / 2;
        good = read_life(&life, welcome, VV_SERVER_MSG_MAX) >= (long)life.welcome_bytes &&
               read_welcome(welcome, life.welcome_bytes, r, &index);
        memset(welcome, 0, VV_SERVER_MSG_MAX);
        publish(r, good);
    }
    errno = saved;
}

/* True if the daemon has not marked itself alive for longer than the patience: waiting for it would be useless. */
static bool is_stopped(void)
{
    uint64_t limit_ns = vvi_preload_settings.patience_ms * NS_PER_MS;
    struct vv_server_life life;

    if (read_life(&life, NULL, 0) < 0 || life.alive_ns == 0)
        return false;
    return now_ns() > life.alive_ns + (limit_ns < ALIVE_NS ? ALIVE_NS : limit_ns);
}

/* ---- connecting ---- */

static void leave_alone(uint64_t ns)
{
    atomic_store_explicit(&not_before_ns, ns == NEVER ? NEVER : now_ns() + ns,
                          memory_order_relaxed);
}

/* The daemon does not answer: do not ask it for a while. */
static void pause_requests(void)
{
    uint64_t ns = atomic_load_explicit(&frozen_ns, memory_order_relaxed);

    ns = ns < FROZEN_MIN ? FROZEN_MIN : ns;
    leave_alone(ns);
    atomic_store_explicit(&frozen_ns, 2 * ns > FROZEN_MAX ? FROZEN_MAX : 2 * ns,
                          memory_order_relaxed);
}

static void disconnect(struct vvi_preload_slot *s)
{
    if (s->c.there && is_socket(s))
        syscall(SYS_close, s->c.fd);
    s->c.there = false;
    s->c.fd = -1;
}

static void close_both(const int fds[2])
{
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0)
            syscall(SYS_close, fds[i]);
}

/* CLOSED: on this side, by the program. */
enum outcome { RECEIVED, NOTHING, ENDED, CLOSED, MALFORMED };

/* Receives one message: the reply, `more` after it, and two descriptors (-1: none), which the caller owns in any
 * case. */
static enum outcome receive(struct vvi_preload_slot *s, int flags, struct vv_server_reply *r,
                            void *more, size_t more_bytes, size_t *ret_more, int ret_fds[2])
{
    union {
        struct cmsghdr align;
        char buf[CMSG_SPACE(2 * sizeof(int))];
    } control;
    struct iovec iov[2] = {{r, sizeof(*r)}, {more, more_bytes}};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = more ? 2 : 1};
    uint64_t until_ns = 0;
    struct cmsghdr *h;
    long n;

    ret_fds[0] = ret_fds[1] = -1;
    do {
        uint64_t begun_ns = until_ns == 0 ? now_ns() : 0;

        msg.msg_control = control.buf;
        msg.msg_controllen = sizeof(control.buf);
        n = syscall(SYS_recvmsg, s->c.fd, &msg, flags);
        /* A steady flow of signals does not prolong the wait. */
        if (until_ns == 0)
            until_ns = begun_ns + vvi_preload_settings.patience_ms * NS_PER_MS;
    } while (n < 0 && (errno == EINTR || (errno == EAGAIN && !is_stopped())) &&
             now_ns() < until_ns);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return NOTHING;
    if (n <= 0)
        return n < 0 && (errno == EBADF || errno == ENOTSOCK) ? CLOSED : ENDED;
    h = CMSG_FIRSTHDR(&msg);
    if (h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS &&
        h->cmsg_len >= CMSG_LEN(sizeof(int)) && h->cmsg_len <= CMSG_LEN(2 * sizeof(int)))
        memcpy(ret_fds, CMSG_DATA(h), h->cmsg_len - CMSG_LEN(0));
    if ((size_t)n < sizeof(*r) || (msg.msg_flags & MSG_TRUNC) || r->magic != VV_SERVER_MAGIC ||
        r->version != VV_SERVER_VERSION || r->id != s->id)
        return MALFORMED;
    *ret_more = (size_t)n - sizeof(*r);
    return RECEIVED;
}

static enum outcome send_request(struct vvi_preload_slot *s, enum vv_server_op op, uint32_t flags,
                                 size_t path_bytes, uint64_t inode)
{
    size_t bytes = sizeof(s->req) + path_bytes;
    long n;

    if (flags & VV_SERVER_INODE) {
        memcpy(s->path + path_bytes, &inode, sizeof(inode));
        bytes += sizeof(inode);
    }

    s->id = atomic_fetch_add_explicit(&last_id, 1, memory_order_relaxed) + 1;
    s->req = (struct vv_server_request){VV_SERVER_MAGIC, VV_SERVER_VERSION,   (uint16_t)op, s->id,
                                        flags,           (uint32_t)path_bytes};
    do {
        n = syscall(SYS_sendto, s->c.fd, &s->req, bytes, MSG_NOSIGNAL, NULL, 0);
    } while (n < 0 && errno == EINTR);
    if (flags & VV_SERVER_INODE)
        s->path[path_bytes] = '\0';
    if (n < 0 && (errno == EBADF || errno == ENOTSOCK))
        return CLOSED;
    return n == (long)bytes ? RECEIVED : ENDED;
}

/* Sends HELLO and handles the answer. */
static enum outcome say_hello(struct vvi_preload_slot *s)
{
    struct roots *r =
        mmap(NULL, WELCOME_ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *welcome;
    struct vv_server_reply reply;
    enum outcome outcome;
    size_t bytes = 0;
    int fds[2] = {-1, -1};

    if (r == MAP_FAILED)
        return MALFORMED;
    welcome = (char *)r + WELCOME_ROOM / 2;
    outcome = send_request(s, VV_SERVER_OP_HELLO, 0, 0, 0);
    if (outcome == RECEIVED)
        outcome = receive(s, MSG_CMSG_CLOEXEC, &reply, welcome, VV_SERVER_MSG_MAX, &bytes, fds);
    close_both(fds);
    if (outcome == RECEIVED &&
        (reply.kind != VV_SERVER_WELCOME || !read_welcome(welcome, bytes, r, &s->c.index)))
        outcome = MALFORMED;
    if (outcome == RECEIVED)
        memset(welcome, 0, VV_SERVER_MSG_MAX);
    publish(r, outcome == RECEIVED);
    return outcome;
}

/* Moves a descriptor to a high number. */
static int move_up(int fd)
{
    struct {
        uint64_t cur, max;
    } limit;
    long up = HIGH_FD;

    if (syscall(SYS_prlimit64, 0, 7 /* RLIMIT_NOFILE */, NULL, &limit) == 0 &&
        limit.cur <= HIGH_FD + SLOTS)
        up = (long)(limit.cur / 4 * 3);
    up = syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, up);
    if (up < 0)
        return fd;
    syscall(SYS_close, fd);
    return (int)up;
}

/* Returns a socket that is connected to a process of this user. */
static int connect_daemon(long uid)
{
    unsigned ms = vvi_preload_settings.patience_ms;
    struct timeval patience = {ms / 1000, ms % 1000 * 1000};
    struct timeval slice = {0, (ms < SLICE_MS ? ms : SLICE_MS) * 1000};
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    struct ucred cred;
    socklen_t len = sizeof(cred);
    int fd = (int)syscall(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -EMFILE; /* of this process, perhaps only for now */
    memcpy(addr.sun_path, vvi_preload_settings.socket, sizeof(addr.sun_path));
    if (syscall(SYS_setsockopt, fd, SOL_SOCKET, SO_RCVTIMEO, &slice, sizeof(slice)) == 0 &&
        syscall(SYS_setsockopt, fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) == 0 &&
        syscall(SYS_connect, fd, &addr, sizeof(addr)) == 0 &&
        syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0) {
        if ((long)cred.uid == uid)
            return move_up(fd);
        errno = EPERM;
    }
    len = (socklen_t)errno;
    syscall(SYS_close, fd);
    return -(int)len;
}

/* There is no daemon. Later requests try again if there was one before, since it may come back, or if there are files
 * that only a daemon can give; otherwise they do not. */
static void not_there(void)
{
    const struct roots *r = known_roots();

    leave_alone(atomic_load_explicit(&was_there, memory_order_relaxed) || (r && r->has_sole)
                    ? RETRY_NS
                    : NEVER);
}

static bool connect_slot(struct vvi_preload_slot *s, long uid)
{
    unsigned seen = atomic_load_explicit(&view, memory_order_relaxed);
    enum outcome outcome;
    struct stat st;
    int fd;

    if (is_stopped()) {
        leave_alone(RETRY_NS);
        return false;
    }
    fd = connect_daemon(uid);
    if (fd < 0) {
        if (fd == -EAGAIN || fd == -ETIMEDOUT)
            pause_requests();
        else if (fd != -EMFILE && fd != -EINTR)
            not_there();
        return false;
    }
    if (syscall(SYS_fstat, fd, &st) < 0) {
        syscall(SYS_close, fd);
        return false;
    }
    s->c.fd = fd;
    s->c.dev = (uint64_t)st.st_dev;
    s->c.ino = (uint64_t)st.st_ino;
    s->c.view = seen;
    s->c.uid = uid;
    s->c.there = s->fresh = true;
    outcome = say_hello(s);
    if (outcome == RECEIVED) {
        atomic_store_explicit(&was_there, true, memory_order_relaxed);
        return true;
    }
    disconnect(s);
    if (outcome == NOTHING)
        pause_requests();
    else if (outcome != CLOSED) /* perhaps too many clients, or another version */
        leave_alone(RETRY_NS);
    return false;
}

/* ---- asking ---- */

static struct vvi_preload_slot *acquire(void)
{
    for (int i = 0; i < SLOTS; i++) {
        bool was = false;

        if (!atomic_load_explicit(&slots[i].busy, memory_order_relaxed) &&
            atomic_compare_exchange_strong_explicit(&slots[i].busy, &was, true,
                                                    memory_order_acquire, memory_order_relaxed))
            return &slots[i];
    }
    return NULL;
}

/* Takes a slot. Below a root that no file system has, waits for one if there are more threads than slots. */
static struct vvi_preload_slot *acquire_for(bool sole)
{
    static const struct timespec pause = {0, NS_PER_MS};
    struct vvi_preload_slot *s;

    while (!(s = acquire()) && sole)
        syscall(SYS_nanosleep, &pause, NULL);
    return s;
}

static void release(struct vvi_preload_slot *s)
{
    atomic_store_explicit(&s->busy, false, memory_order_release);
}

/* Makes sure that the slot has a valid connection. */
static bool ready(struct vvi_preload_slot *s)
{
    long uid = syscall(SYS_geteuid);

    s->fresh = false;
    if (s->c.there &&
        (s->c.view != atomic_load_explicit(&view, memory_order_relaxed) || s->c.uid != uid))
        disconnect(s);
    if (s->c.there && is_socket(s))
        return true;
    s->c.there = false; /* the program closed it; do not close the number */
    return connect_slot(s, uid);
}

/* Waits for the end of a request, `limit_ns` at most while PENDING messages come. Sets errno: 0, or the status of
 * DONE. */
static enum outcome finish(struct vvi_preload_slot *s, int flags, uint64_t limit_ns,
                           struct vv_server_reply *reply, int fds[2])
{
    uint64_t until_ns = 0;
    enum outcome outcome;
    size_t more;

    do {
        outcome = receive(s, flags, reply, NULL, 0, &more, fds);
        if (outcome == RECEIVED && reply->kind == VV_SERVER_PENDING) {
            if (until_ns == 0)
                until_ns = now_ns() + limit_ns;
            else if (now_ns() > until_ns)
                outcome = NOTHING;
        }
    } while (outcome == RECEIVED && reply->kind == VV_SERVER_PENDING && fds[0] < 0);
    if (outcome == RECEIVED && (reply->kind != VV_SERVER_DONE || more != 0))
        outcome = MALFORMED;
    if (outcome != RECEIVED || reply->status != 0) {
        close_both(fds);
        fds[0] = fds[1] = -1;
    }
    errno = outcome == RECEIVED ? reply->status : EIO;
    return outcome;
}

/* A process that has requested some files is likely to request more: it gets the index. If this loses the connection,
 * the next request makes another one. */
static void fetch_index(struct vvi_preload_slot *s)
{
    struct vv_server_reply reply;
    int fds[2] = {-1, -1};

    if (send_request(s, VV_SERVER_OP_INDEX, 0, 0, 0) != RECEIVED ||
        finish(s, MSG_CMSG_CLOEXEC, TOTAL_NS, &reply, fds) != RECEIVED) {
        disconnect(s);
        return;
    }
    if (fds[0] >= 0 && fds[1] >= 0)
        vvi_preload_index_map(fds, s->c.view);
    close_both(fds);
}

/* The error of a declined request for a path that is in no file system. */
static int error_of(int status)
{
    static const int own[] = {ENOENT,       ENOTDIR, EISDIR, EACCES, ELOOP,
                              ENAMETOOLONG, ENOSPC,  EFBIG,  ENOMEM};

    for (size_t i = 0; i < VVI_PRELOAD_ARRAY_SIZE(own); i++)
        if (status == own[i])
            return status;
    return status == EINVAL ? ENOENT : EIO; /* EINVAL: outside of the root by way of ".." */
}

static bool gives_descriptor(enum vv_server_op op)
{
    return op == VV_SERVER_OP_OPEN || op == VV_SERVER_OP_LIST;
}

/* Longest time of a request while PENDING messages come. A change does not wait longer for other nodes than for a
 * silent daemon. */
static uint64_t limit_of(const struct vvi_preload_ask *ask, bool sole)
{
    if (ask->op == VV_SERVER_OP_INVALIDATE)
        return vvi_preload_settings.patience_ms * NS_PER_MS;
    return sole ? NEVER / 2 : TOTAL_NS;
}

/* Makes a request whose path is in the slot. If it fails, `a->error` is set: see error_of. */
static bool exchange(struct vvi_preload_slot *s, const struct vvi_preload_ask *ask, size_t bytes,
                     bool sole, struct vvi_preload_answer *a)
{
    struct vv_server_reply reply;
    int fds[2] = {-1, -1};
    enum outcome outcome;

    a->error = EIO;
    for (;;) {
        if (!ready(s) || !below_served(s->path))
            return false;
        outcome = send_request(s, ask->op, (ask->nofollow ? VV_SERVER_NOFOLLOW : 0) | ask->flags,
                               bytes, ask->inode);
        if (outcome == RECEIVED)
            outcome =
                finish(s, ask->cloexec ? MSG_CMSG_CLOEXEC : 0, limit_of(ask, sole), &reply, fds);
        if (outcome == RECEIVED)
            break;
        disconnect(s);
        /* The daemon was restarted: the end of the old connection does not show if a daemon runs now. */
        if (outcome == ENDED && !s->fresh)
            continue;
        if (outcome == NOTHING)
            pause_requests();
        else if (outcome == ENDED)
            leave_alone(RETRY_NS);
        return false;
    }
    atomic_store_explicit(&frozen_ns, 0, memory_order_relaxed);
    /* If there were too many descriptors to receive one, there is no answer. */
    if (errno != 0 || (gives_descriptor(ask->op) ? fds[0] < 0 || fds[1] >= 0 : fds[0] >= 0)) {
        a->error = error_of(errno);
        close_both(fds);
        return false;
    }
    if (gives_descriptor(ask->op) &&
        (syscall(SYS_fstat, fds[0], &a->real) < 0 || !S_ISREG(a->real.st_mode) ||
         (uint64_t)a->real.st_size != reply.stat.size)) {
        close_both(fds);
        return false;
    }
    a->fd = fds[0];
    a->stat = reply.stat;
    a->readable = (reply.flags & VV_SERVER_READABLE) != 0;
    if (ask->op != VV_SERVER_OP_INVALIDATE && s->c.index != 0 &&
        s->c.index != vvi_preload_index_mapped() &&
        atomic_fetch_add_explicit(&answered, 1, memory_order_relaxed) >= INDEX_AFTER)
        fetch_index(s);
    return true;
}

/* The same, also in a child of vfork: there the slot stays as its parent left it. */
static bool do_request(struct vvi_preload_slot *s, const struct vvi_preload_ask *ask, size_t bytes,
                       bool sole, struct vvi_preload_answer *a)
{
    bool vfork_child = syscall(SYS_getpid) != owner, ok;
    struct connection was = s->c;

    ok = exchange(s, ask, bytes, sole, a);
    if (vfork_child) {
        if (s->c.ino != was.ino || s->c.dev != was.dev)
            disconnect(s);
        s->c = was;
    }
    return ok;
}

static bool from_index(const struct vvi_preload_ask *ask, const struct vvi_preload_name *name,
                       struct vvi_preload_answer *a)
{
    a->readable = true;
    if (ask->op == VV_SERVER_OP_OPEN)
        return vvi_preload_index_open(name, ask->cloexec, a);
    return ask->op == VV_SERVER_OP_STAT && vvi_preload_index_stat(name, &a->stat);
}

static bool is_time(void)
{
    uint64_t not_before = atomic_load_explicit(&not_before_ns, memory_order_relaxed);

    return not_before == 0 || (not_before != NEVER && now_ns() >= not_before);
}

/* True for a slash or a dot at the end: then the path must be a folder. */
static bool wants_folder(const char *path)
{
    size_t n = strlen(path);

    return n > 0 &&
           (path[n - 1] == '/' ||
            (path[n - 1] == '.' && (n == 1 || path[n - 2] == '/' ||
                                    (path[n - 2] == '.' && (n == 2 || path[n - 3] == '/')))));
}

/* Checks that an answer is for the right file: not one that the program has written to, by whatever name, or another
 * file in its mounts. */
static bool is_meant(const struct vvi_preload_ask *ask, const char *path, bool sole,
                     struct vvi_preload_answer *a)
{
    if (sole && wants_folder(ask->path) && !S_ISDIR(a->stat.mode)) {
        a->error = ENOTDIR;
        return false;
    }
    return sole || (!vvi_preload_has_written(vvi_preload_inode_hash(a->stat.ino)) &&
                    sees_the_same(path, ask->dirfd, ask->path, ask->nofollow));
}

bool vvi_preload_ask(const struct vvi_preload_ask *ask, struct vvi_preload_answer *ret_answer)
{
    struct vvi_preload_answer a = {.error = EIO};
    struct vvi_preload_slot *s = NULL;
    struct vvi_preload_name name;
    bool sole = vvi_preload_is_sole(ask->dirfd, ask->path), ok = false;
    int saved = errno;

    if (vvi_preload_is_other())
        a.error = EACCES;
    else if (is_time() && settle())
        s = acquire_for(sole);
    if (s) {
        name = (struct vvi_preload_name){
            .path = s->path,
            .bytes = vvi_preload_path(ask->dirfd, ask->path, sole, s->path, VV_SERVER_PATH_MAX + 1),
            .nofollow = ask->nofollow && !sole,
            .view = atomic_load_explicit(&view, memory_order_relaxed)};
        if (name.bytes > 0 && below_wanted(s->path) && below_served(s->path)) {
            name.hash = vv_server_hash(s->path, name.bytes);
            if (sole || !vvi_preload_has_written(name.hash))
                ok = from_index(ask, &name, &a) || do_request(s, ask, name.bytes, sole, &a);
            if (ok && !is_meant(ask, s->path, sole, &a)) {
                if (gives_descriptor(ask->op))
                    syscall(SYS_close, a.fd);
                ok = false;
            }
        }
        release(s);
    }
    errno = saved;
    if (!ok)
        ret_answer->error = sole ? a.error : 0;
    else
        *ret_answer = a;
    return ok;
}

/* ---- changes ---- */

/* False as long as the roots are not known: makes no request to find them out. */
bool vvi_preload_fd_is_ours(int fd)
{
    struct vvi_preload_slot *s;
    bool is = false;

    if (!settle() || !(s = acquire()))
        return false;
    if (below_served("/") || vvi_preload_fd_path(fd, s->path, VV_SERVER_PATH_MAX + 1) == 0)
        ; /* unknown roots, or no name */
    else
        is = below_served(s->path);
    release(s);
    return is;
}

bool vvi_preload_is_vfork_child(void)
{
    return syscall(SYS_getpid) != owner;
}

/* Describes the file before the change. */
static void look_at(struct vvi_preload_change *c)
{
    struct stat st;

    if (c->is_new)
        return;
    if (c->path ? syscall(SYS_newfstatat, c->dirfd, c->path, &st,
                          c->nofollow ? AT_SYMLINK_NOFOLLOW : 0) < 0
                : syscall(SYS_fstat, c->dirfd, &st) < 0)
        return;
    c->inode = (uint64_t)st.st_ino;
    c->tree = (S_ISDIR(st.st_mode) && !c->flat) || S_ISLNK(st.st_mode);
}

/* Takes a slot and puts the path of a change in it; the caller owns the slot. NULL: it is not below a root. */
static struct vvi_preload_slot *place(struct vvi_preload_change *c, size_t *ret_bytes)
{
    struct vvi_preload_slot *s;
    size_t bytes;

    if (!settle() || !(s = acquire())) {
        /* The file cannot be recorded, so all are. */
        vvi_preload_wrote_all();
        return NULL;
    }
    bytes = c->path ? vvi_preload_path(c->dirfd, c->path, true, s->path, VV_SERVER_PATH_MAX + 1)
                    : vvi_preload_fd_path(c->dirfd, s->path, VV_SERVER_PATH_MAX + 1);
    if (bytes == 0 || (c->path && !below_wanted(s->path)) || !below_served(s->path)) {
        release(s);
        return NULL;
    }
    *ret_bytes = bytes;
    return s;
}

/* Reports that the file whose path is in the slot is about to be changed, or was, and records it here, even without a
 * daemon. The paths below a folder are unknown here, so without a daemon all paths count as changed. */
static void report_change(struct vvi_preload_slot *s, size_t bytes,
                          const struct vvi_preload_change *c, bool begins)
{
    struct vvi_preload_ask ask = {
        .op = VV_SERVER_OP_INVALIDATE,
        .cloexec = true,
        .flags = (begins ? VV_SERVER_BEGINS : 0) | (c->tree ? VV_SERVER_TREE : 0) |
                 (c->inode ? VV_SERVER_INODE : 0),
        .inode = c->inode,
    };
    struct vvi_preload_answer a;

    vvi_preload_wrote(vv_server_hash(s->path, bytes));
    if (c->inode)
        vvi_preload_wrote(vvi_preload_inode_hash(c->inode));
    if (!(is_time() && do_request(s, &ask, bytes, false, &a)) && c->tree && below_served(s->path))
        vvi_preload_wrote_all();
}

static void change(struct vvi_preload_change *c, bool begins)
{
    struct vvi_preload_slot *s;
    int saved = errno;
    size_t bytes;

    s = place(c, &bytes);
    if (s) {
        if (begins)
            look_at(c);
        /* Files below a folder are known by the folder's real path, so report that one if it is below a root. Otherwise
         * report the path as given, through which files are reached by a link. */
        if (c->tree && c->path) {
            size_t real = vvi_preload_resolve(c->dirfd, c->path, s->path, VV_SERVER_PATH_MAX + 1);

            bytes =
                real && below_served(s->path)
                    ? real
                    : vvi_preload_path(c->dirfd, c->path, true, s->path, VV_SERVER_PATH_MAX + 1);
        }
        c->ours = bytes > 0;
        if (c->ours)
            report_change(s, bytes, c, begins);
        release(s);
    }
    errno = saved;
}

void vvi_preload_begin(struct vvi_preload_change *c)
{
    c->ours = false;
    if (vvi_preload_on() && (!c->path || vvi_preload_may_be_ours(c->path)))
        change(c, true);
}

void vvi_preload_end(struct vvi_preload_change *c)
{
    if (c->ours)
        change(c, false);
}

struct vvi_preload_slot *vvi_preload_closing(int fd, struct vvi_preload_change *c)
{
    struct vvi_preload_slot *s;
    int saved = errno;
    size_t bytes;

    *c = (struct vvi_preload_change){.dirfd = fd};
    if (!vvi_preload_on() || atomic_load_explicit(&not_before_ns, memory_order_relaxed) == NEVER)
        return NULL;
    s = place(c, &bytes);
    if (s)
        look_at(c);
    errno = saved;
    return s;
}

void vvi_preload_left(struct vvi_preload_slot *s, struct vvi_preload_change *c, bool again)
{
    int saved = errno;

    if (!s)
        return;
    report_change(s, strlen(s->path), c, again);
    release(s);
    errno = saved;
}

void vvi_preload_closed(struct vvi_preload_slot *s, struct vvi_preload_change *c)
{
    vvi_preload_left(s, c, false);
}

bool vvi_preload_was_there(void)
{
    return atomic_load_explicit(&was_there, memory_order_relaxed);
}

bool vvi_preload_give_way(void)
{
    int saved = errno;
    bool any = false;

    if (!vvi_preload_was_there() || !settle() || syscall(SYS_getpid) != owner)
        return false;
    for (int i = 0; i < SLOTS; i++) {
        struct vvi_preload_slot *s = &slots[i];
        bool was = false;

        if (!atomic_compare_exchange_strong_explicit(&s->busy, &was, true, memory_order_acquire,
                                                     memory_order_relaxed))
            continue;
        any = any || s->c.there;
        disconnect(s);
        release(s);
    }
    errno = saved;
    return any;
}

void vvi_preload_view_changed(void)
{
    atomic_fetch_add_explicit(&view, 1, memory_order_relaxed);
}
