/* SPDX-License-Identifier: Apache-2.0 */
/* The server, which calls functions that answer, wait or refuse depending on the path; and clients that ask, go
 * away, send malformed messages and do not read. */
#include "dataset/server.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/lock.h"
#include "t.h"

static char socket_path[200], content[200], root[160];

/* ---- functions of the server ---- */

static struct vv_mutex gate_lock;
static struct vv_cond gate_moved;
static bool gate_shut;
static _Atomic int in_gate, nr_invalidated;

static void gate(bool shut)
{
    vv_mutex_lock(&gate_lock);
    gate_shut = shut;
    vv_cond_broadcast(&gate_moved);
    vv_mutex_unlock(&gate_lock);
}

static int at_gate(const struct vv_server_ask *ask)
{
    if (!strstr(ask->path, "/slow"))
        return 0;
    if (ask->now)
        return -EAGAIN;
    atomic_fetch_add(&in_gate, 1);
    vv_mutex_lock(&gate_lock);
    while (gate_shut)
        vv_cond_wait(&gate_moved, &gate_lock);
    vv_mutex_unlock(&gate_lock);
    atomic_fetch_sub(&in_gate, 1);
    return 0;
}

static int do_open(void *user, const struct vv_server_ask *ask, int *ret_fd,
                   struct vv_server_stat *ret_stat)
{
    struct stat st;
    int fd, rc = at_gate(ask);

    T_CHECK(user == &gate_lock);
    if (rc < 0)
        return rc;
    if (strstr(ask->path, "/none"))
        return -ENOENT;
    if (ask->nofollow && strstr(ask->path, "/link"))
        return -ELOOP;
    fd = open(content, O_RDONLY | O_CLOEXEC);
    T_CHECK(fd >= 0);
    T_EQ(fstat(fd, &st), 0);
    vv_server_stat_of(&st, ret_stat);
    ret_stat->ino = 4711;
    *ret_fd = fd;
    return 0;
}

static int do_stat(void *user, const struct vv_server_ask *ask, struct vv_server_stat *ret_stat,
                   bool *ret_readable)
{
    int fd = -1, rc = do_open(user, ask, &fd, ret_stat);

    if (rc == 0)
        close(fd);
    *ret_readable = rc == 0 && !strstr(ask->path, "/dark");
    return rc;
}

static int do_invalidate(void *user, const struct vv_server_ask *ask)
{
    (void)user;
    if (ask->now)
        return -EAGAIN;
    atomic_fetch_add(&nr_invalidated, 1);
    return 0;
}

static const struct vv_server_ops ops = {
    .open = do_open, .stat = do_stat, .invalidate = do_invalidate};

static struct vv_server_opts server_opts(void)
{
    static const char *roots[1];

    roots[0] = root;
    return (struct vv_server_opts){
        .socket_path = socket_path, .roots = roots, .nr_roots = 1, .ops = &ops, .user = &gate_lock};
}

static struct vv_server *open_server(const struct vv_server_opts *opts)
{
    struct vv_server *d;
    char err[200] = "";
    int rc = vv_server_open(opts, err, sizeof(err), &d);

    if (rc < 0)
        t_fail(__FILE__, __LINE__, "%s (%d)", err, rc);
    return d;
}

static struct vv_server_stats stats(struct vv_server *d)
{
    struct vv_server_stats st;

    vv_server_stats(d, &st);
    return st;
}

/* ---- a client ---- */

static int try_connect(void)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    T_CHECK(fd >= 0);
    memcpy(addr.sun_path, socket_path, strlen(socket_path));
    if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0)
        return fd;
    close(fd);
    return -errno;
}

static void ask(int fd, unsigned op, unsigned flags, const char *name)
{
    struct {
        struct vv_server_request req;
        char path[VV_SERVER_PATH_MAX + 10];
    } m;
    size_t bytes = 0;

    if (name)
        bytes = (size_t)snprintf(m.path, sizeof(m.path), "%s/%s", root, name);
    m.req = (struct vv_server_request){VV_SERVER_MAGIC, VV_SERVER_VERSION, (uint16_t)op, 77,
                                       flags,           (uint32_t)bytes};
    T_EQ(send(fd, &m, sizeof(m.req) + bytes, MSG_NOSIGNAL), sizeof(m.req) + bytes);
}

/* Receives the next reply; 0: the connection has ended. */
static ssize_t hear(int fd, struct vv_server_reply *r, int *ret_fd, char *more, size_t more_bytes)
{
    union {
        struct cmsghdr align;
        char buf[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov[2] = {{r, sizeof(*r)}, {more, more_bytes}};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
    struct cmsghdr *h;
    ssize_t n;

    msg.msg_control = control.buf;
    msg.msg_controllen = sizeof(control.buf);
    n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC);
    *ret_fd = -1;
    if (n <= 0)
        return n < 0 && errno != ECONNRESET ? -errno : 0;
    T_CHECK(n >= (ssize_t)sizeof(*r));
    T_EQ(r->magic, VV_SERVER_MAGIC);
    T_EQ(r->version, VV_SERVER_VERSION);
    T_EQ(r->id, 77);
    h = CMSG_FIRSTHDR(&msg);
    if (h)
        memcpy(ret_fd, CMSG_DATA(h), sizeof(int));
    return n;
}

static int connected(void)
{
    char more[VV_SERVER_MSG_MAX];
    struct vv_server_welcome w;
    struct vv_server_reply r;
    int fd = try_connect(), got;

    T_CHECK(fd >= 0);
    ask(fd, VV_SERVER_OP_HELLO, 0, NULL);
    T_CHECK(hear(fd, &r, &got, more, sizeof(more)) > 0);
    T_EQ(r.kind, VV_SERVER_WELCOME);
    memcpy(&w, more, sizeof(w));
    T_CHECK(w.nr_roots >= 1 && w.root_ino != 0);
    return fd;
}

/* Receives DONE, and skips PENDING. */
static struct vv_server_reply done(int fd, int *ret_fd)
{
    struct vv_server_reply r;
    char more[8];

    do {
        T_CHECK(hear(fd, &r, ret_fd, more, sizeof(more)) == sizeof(r));
    } while (r.kind == VV_SERVER_PENDING);
    T_EQ(r.kind, VV_SERVER_DONE);
    return r;
}

static void open_now(int fd)
{
    struct vv_server_reply r;
    char buf[16];
    int got;

    ask(fd, VV_SERVER_OP_OPEN, 0, "file");
    r = done(fd, &got);
    T_EQ(r.status, 0);
    T_CHECK(got >= 0);
    T_EQ(pread(got, buf, sizeof(buf), 0), 7);
    T_EQ(fcntl(got, F_GETFL) & O_ACCMODE, O_RDONLY);
    close(got);
    T_EQ(r.stat.ino, 4711);
    T_EQ(r.flags, VV_SERVER_READABLE);
}

static bool ended(int fd)
{
    struct vv_server_reply r;
    char more[8];
    int got;

    return hear(fd, &r, &got, more, sizeof(more)) == 0;
}

/* ---- tests ---- */

static unsigned open_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    unsigned n = 0;

    T_CHECK(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static void test_answers(void)
{
    struct vv_server_opts opts = server_opts();
    unsigned before = open_descriptors();
    struct vv_server *d = open_server(&opts);
    struct vv_server_reply r;
    struct stat st;
    int got, fd;

    T_EQ(lstat(socket_path, &st), 0);
    T_EQ(st.st_mode & 0777, 0600);
    fd = connected();
    for (int i = 0; i < 20; i++)
        open_now(fd);
    ask(fd, VV_SERVER_OP_OPEN, 0, "none");
    r = done(fd, &got);
    T_EQ(r.status, ENOENT);
    T_EQ(got, -1);
    ask(fd, VV_SERVER_OP_OPEN, VV_SERVER_NOFOLLOW, "link");
    T_EQ(done(fd, &got).status, ELOOP);
    ask(fd, VV_SERVER_OP_STAT, 0, "dark");
    r = done(fd, &got);
    T_EQ(r.status, 0);
    T_EQ(r.flags, 0);
    T_EQ(r.stat.size, 7);
    ask(fd, VV_SERVER_OP_INVALIDATE, 0, "file");
    T_EQ(done(fd, &got).status, 0);
    T_EQ(atomic_load(&nr_invalidated), 1);
    T_EQ(stats(d).opens, 20);
    T_EQ(stats(d).declined, 2);
    T_EQ(stats(d).waited, 1);
    vv_server_close(d);
    T_CHECK(ended(fd));
    close(fd);
    T_EQ(access(socket_path, F_OK), -1);
    T_EQ(open_descriptors(), before);
}

/* A client that waits delays no other client, gets PENDING messages, and gets its file. */
static void test_waits(void)
{
    struct vv_server_opts opts = server_opts();
    struct vv_server *d = open_server(&opts);
    int slow = connected(), fast = connected(), got;
    struct vv_server_reply r;
    char more[8];

    gate(true);
    ask(slow, VV_SERVER_OP_OPEN, 0, "slow");
    for (int i = 0; i < 100; i++)
        open_now(fast);
    T_EQ(hear(slow, &r, &got, more, sizeof(more)), sizeof(r));
    T_EQ(r.kind, VV_SERVER_PENDING);
    gate(false);
    r = done(slow, &got);
    T_EQ(r.status, 0);
    close(got);
    open_now(slow);
    T_EQ(stats(d).waited, 1);
    close(slow);
    close(fast);
    vv_server_close(d);
}

static void test_too_long_and_too_many(void)
{
    struct vv_server_opts opts = server_opts();
    unsigned before = open_descriptors();
    struct vv_server *d;
    int c[4], got;

    opts.wait_ns = VV_NS_PER_S; /* no request has waited so long when the last one arrives */
    opts.workers_max = 1;
    opts.waiting_max = 2;
    d = open_server(&opts);
    gate(true);
    for (int i = 0; i < 4; i++)
        c[i] = connected();
    for (int i = 0; i < 4; i++) {
        ask(c[i], VV_SERVER_OP_OPEN, 0, "slow");
        while (i == 0 && atomic_load(&in_gate) == 0)
            usleep(1000);
    }
    T_EQ(done(c[3], &got).status, EBUSY);
    T_EQ(stats(d).full, 1);
    for (int i = 0; i < 3; i++)
        T_EQ(done(c[i], &got).status, ETIMEDOUT);
    T_EQ(stats(d).late, 3);
    open_now(c[0]);
    gate(false);
    for (int i = 0; i < 4; i++)
        close(c[i]);
    vv_server_close(d);
    T_EQ(open_descriptors(), before);
}

/* A client ends while a fetch for it is under way; and a daemon does. */
static void test_goes_while_waiting(void)
{
    struct vv_server_opts opts = server_opts();
    unsigned before = open_descriptors();
    struct vv_server *d = open_server(&opts);
    int gone = connected(), stays = connected();

    gate(true);
    ask(gone, VV_SERVER_OP_OPEN, 0, "slow");
    ask(stays, VV_SERVER_OP_OPEN, 0, "slow");
    while (atomic_load(&in_gate) != 2)
        usleep(1000);
    close(gone);
    while (stats(d).clients != 1)
        usleep(1000);
    gate(false);
    vv_server_close(d);
    /* An answer or the end of the connection: either may come first. */
    for (bool over = false; !over;) {
        struct vv_server_reply r;
        char more[8];
        int got;

        over = hear(stays, &r, &got, more, sizeof(more)) <= 0;
        if (!over && got >= 0)
            close(got);
    }
    close(stays);
    T_EQ(open_descriptors(), before);
}

static void send_raw(const void *msg, size_t bytes, bool greet)
{
    int fd = greet ? connected() : try_connect();

    T_CHECK(fd >= 0);
    T_EQ(send(fd, msg, bytes, MSG_NOSIGNAL), bytes);
    T_CHECK(ended(fd));
    close(fd);
}

static void send_path(const char *path)
{
    struct {
        struct vv_server_request req;
        char path[VV_SERVER_MSG_MAX];
    } m = {{VV_SERVER_MAGIC, VV_SERVER_VERSION, VV_SERVER_OP_OPEN, 1, 0, 0}, ""};

    m.req.path_bytes = (uint32_t)snprintf(m.path, sizeof(m.path), "%s", path);
    send_raw(&m, sizeof(m.req) + m.req.path_bytes, true);
}

static void test_nonsense(void)
{
    struct vv_server_request r = {VV_SERVER_MAGIC, VV_SERVER_VERSION, VV_SERVER_OP_OPEN, 1, 0, 0};
    struct t_rng rng = {t_seed()};
    struct vv_server_opts opts = server_opts();
    struct vv_server *d = open_server(&opts);
    int good = connected();
    char buf[VV_SERVER_MSG_MAX * 2] = "", *path = buf;

    send_raw(&r, sizeof(r), false); /* no HELLO */
    send_raw(&r, sizeof(r), true);  /* no path */
    send_raw(&r, 5, true);
    send_raw(buf, sizeof(buf), true);
    r.op = VV_SERVER_OP_HELLO;
    send_raw(&r, sizeof(r), true); /* a second HELLO */
    r.version = 2;
    send_raw(&r, sizeof(r), false);
    send_path("relative");
    send_path("/");
    send_path("/etc/passwd");
    send_path(root);
    for (const char *const *tail =
             (const char *const[]){"/", "//a", "/./a", "/a/.", "/a//b", "x/a", NULL};
         *tail; tail++) {
        snprintf(path, sizeof(buf), "%s%s", root, *tail);
        send_path(path);
    }
    memset(path, 'a', VV_SERVER_PATH_MAX + 1);
    memcpy(path, root, strlen(root));
    path[strlen(root)] = '/';
    path[VV_SERVER_PATH_MAX + 1] = '\0';
    send_path(path);
    for (uint64_t i = 0; i < t_cases(200, 20000); i++) {
        size_t bytes = 1 + (size_t)t_rng_below(&rng, 64);

        for (size_t k = 0; k < bytes; k++)
            buf[k] = (char)t_rng_u64(&rng);
        send_raw(buf, bytes, i % 2);
    }
    open_now(good);
    close(good);
    T_CHECK(stats(d).broken >= 200 / 4);
    vv_server_close(d);
}

/* A client sends requests and never reads. */
static void test_does_not_read(void)
{
    struct vv_server_opts opts = server_opts();
    struct vv_server *d = open_server(&opts);
    int deaf = connected(), good = connected();

    T_EQ(fcntl(deaf, F_SETFL, O_NONBLOCK), 0);
    while (stats(d).broken == 0) {
        struct {
            struct vv_server_request req;
            char path[200];
        } m = {{VV_SERVER_MAGIC, VV_SERVER_VERSION, VV_SERVER_OP_OPEN, 1, 0, 0}, ""};

        m.req.path_bytes = (uint32_t)snprintf(m.path, sizeof(m.path), "%s/file", root);
        if (send(deaf, &m, sizeof(m.req) + m.req.path_bytes, MSG_NOSIGNAL) < 0 && errno != EAGAIN)
            break;
        open_now(good);
    }
    while (stats(d).clients != 1)
        usleep(1000);
    open_now(good);
    close(deaf);
    close(good);
    vv_server_close(d);
}

static void test_too_many_clients(void)
{
    struct vv_server_opts opts = server_opts();
    struct vv_server *d;
    int a, b, c;

    opts.clients_max = 2;
    opts.loops = 2;
    d = open_server(&opts);
    a = connected();
    b = connected();
    c = try_connect();
    T_CHECK(c >= 0 && ended(c));
    close(c);
    close(a);
    while (stats(d).clients != 1)
        usleep(1000);
    a = connected();
    open_now(a);
    open_now(b);
    close(a);
    close(b);
    vv_server_close(d);
}

/* Other users are refused, even if the mode of the socket has changed. */
static void test_other_users(void)
{
    struct vv_server_opts opts = server_opts();
    struct vv_server *d = open_server(&opts);
    int status;
    pid_t pid;

    if (geteuid() != 0) {
        t_note("not root: there is no other user to refuse");
        vv_server_close(d);
        return;
    }
    T_EQ(chmod(socket_path, 0666), 0);
    pid = fork();
    T_CHECK(pid >= 0);
    if (pid == 0) {
        int fd;

        if (setgid(65534) < 0 || setuid(65534) < 0)
            _exit(2);
        fd = try_connect();
        /* The folder above may refuse it too. */
        _exit(fd < 0 || ended(fd) ? 0 : 3);
    }
    T_EQ(waitpid(pid, &status, 0), pid);
    T_EQ(status, 0);
    vv_server_close(d);
}

static void test_place(void)
{
    struct vv_server_opts opts = server_opts();
    struct vv_server *d = open_server(&opts), *other;
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    const char *relative = "relative";
    char err[200], lock[220];
    int fd;

    T_ERR(vv_server_open(&opts, err, sizeof(err), &other), -EADDRINUSE);
    fd = connected();
    open_now(fd); /* the first server still works */
    close(fd);
    vv_server_close(d);
    /* The socket that a killed daemon leaves. */
    memcpy(addr.sun_path, socket_path, strlen(socket_path));
    fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    T_EQ(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    close(fd);
    d = open_server(&opts);
    vv_server_close(d);
    fd = open(socket_path, O_CREAT | O_WRONLY, 0600);
    close(fd);
    T_ERR(vv_server_open(&opts, err, sizeof(err), &other), -EEXIST);
    T_EQ(unlink(socket_path), 0);
    snprintf(lock, sizeof(lock), "%s.lock", socket_path);
    T_EQ(unlink(lock), 0);
    opts.roots = &relative;
    T_ERR(vv_server_open(&opts, err, sizeof(err), &other), -EINVAL);
    opts.nr_roots = 0;
    T_ERR(vv_server_open(&opts, err, sizeof(err), &other), -EINVAL);
}

/* The mark of a memory file is in its name, as the kernel shows it. */
static void check_memory_mark(const struct vv_server_stat *st)
{
    char name[VV_SERVER_MEMORY_NAME], link[40], shown[300];
    struct vv_server_stat is = {0};
    ssize_t n;
    int fd;

    vv_server_memory_name(st, name);
    T_EQ(strlen(name), VV_SERVER_MEMORY_NAME - 1);
    fd = memfd_create(name, MFD_CLOEXEC);
    T_CHECK(fd >= 0);
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, shown, sizeof(shown));
    T_CHECK(n > 0 && vv_server_memory_named(shown, (size_t)n, &is));
    T_EQ(memcmp(st, &is, sizeof(is)), 0);
    /* A name that is cut, has a malformed mark, or begins differently is refused. */
    T_CHECK(!vv_server_memory_named(shown, VV_SERVER_MEMORY_NAME, &is));
    shown[20] = ' ';
    T_CHECK(!vv_server_memory_named(shown, (size_t)n, &is));
    shown[20] = '0';
    shown[8]++;
    T_CHECK(!vv_server_memory_named(shown, (size_t)n, &is));
    close(fd);
}

static void test_mark(void)
{
    struct vv_server_stat st = {.dev = UINT64_C(0x123456789a),
                                .ino = UINT64_MAX - 5,
                                .mode = 0100644,
                                .uid = 70000,
                                .gid = UINT32_MAX,
                                .blksize = 4 << 20,
                                .nlink = 1,
                                .size = 7,
                                .blocks = 9,
                                .atime = {1700000000, 0, 0},
                                .mtime = {-1, 999999999, 0},
                                .ctime = {1800000000, 123456789, 0}},
                          is;
    char copy[220];
    int fd = open(content, O_RDONLY), other, rc;
    struct vv_server_mark mark;

    check_memory_mark(&st);
    rc = vv_server_marked(fd, &is);
    if (rc == -EOPNOTSUPP) {
        t_note("no attributes here");
        close(fd);
        return;
    }
    T_OK(vv_server_mark(fd, &st));
    T_OK(vv_server_marked(fd, &is));
    T_EQ(memcmp(&st, &is, sizeof(st)), 0);
    st.nlink = 3;
    T_OK(vv_server_mark(fd, &st));
    T_OK(vv_server_marked(fd, &is));
    T_EQ(is.nlink, 3);
    /* A copy of the file has no valid mark. */
    snprintf(copy, sizeof(copy), "%s.copy", content);
    other = open(copy, O_RDWR | O_CREAT, 0600);
    T_EQ(write(other, "content", 7), 7);
    T_ERR(vv_server_marked(other, &is), -ENODATA);
    T_OK(vv_server_mark(other, &st));
    T_OK(vv_server_marked(other, &is));
    T_EQ(fgetxattr(fd, VV_SERVER_MARK_NAME, &mark, sizeof(mark)), sizeof(mark));
    T_EQ(fsetxattr(other, VV_SERVER_MARK_NAME, &mark, sizeof(mark), 0), 0);
    T_ERR(vv_server_marked(other, &is), -ENODATA);
    close(fd);
    close(other);
}

#define ASKERS 6

static void *asker(void *arg)
{
    struct t_rng rng = {(uintptr_t)arg};
    uint64_t times = t_cases(300, 20000);
    int fd = connected();

    for (uint64_t i = 0; i < times; i++) {
        int got;

        if (t_rng_below(&rng, 30) == 0) {
            if (t_rng_below(&rng, 2) == 0)
                ask(fd, VV_SERVER_OP_OPEN, 0, "slow");
            close(fd);
            fd = connected();
        } else if (t_rng_below(&rng, 4) == 0) {
            ask(fd, VV_SERVER_OP_OPEN, 0, "slow");
            T_EQ(done(fd, &got).status, 0);
            T_CHECK(got >= 0);
            close(got);
        } else {
            open_now(fd);
        }
    }
    close(fd);
    return NULL;
}

static void test_many(void)
{
    struct vv_server_opts opts = server_opts();
    unsigned before = open_descriptors();
    struct vv_server *d;
    pthread_t t[ASKERS];

    opts.loops = 2;
    opts.workers_max = 3;
    opts.waiting_max = 1000;
    d = open_server(&opts);
    for (uintptr_t i = 0; i < ASKERS; i++)
        T_EQ(pthread_create(&t[i], NULL, asker, (void *)(uintptr_t)(t_seed() + i)), 0);
    for (int i = 0; i < ASKERS; i++)
        T_EQ(pthread_join(t[i], NULL), 0);
    T_EQ(stats(d).broken, 0);
    vv_server_close(d);
    T_EQ(open_descriptors(), before);
}

int main(void)
{
    int fd;

    vv_mutex_init(&gate_lock, "gate", VV_RANK_CTX);
    vv_cond_init(&gate_moved);
    snprintf(root, sizeof(root), "%s/data", t_tmpdir());
    T_EQ(mkdir(root, 0700), 0);
    snprintf(socket_path, sizeof(socket_path), "%s/socket", t_tmpdir());
    snprintf(content, sizeof(content), "%s/content", t_tmpdir());
    fd = open(content, O_CREAT | O_WRONLY, 0600);
    T_EQ(write(fd, "content", 7), 7);
    close(fd);
    T_RUN(test_answers);
    T_RUN(test_waits);
    T_RUN(test_too_long_and_too_many);
    T_RUN(test_goes_while_waiting);
    T_RUN(test_nonsense);
    T_RUN(test_does_not_read);
    T_RUN(test_too_many_clients);
    T_RUN(test_other_users);
    T_RUN(test_place);
    T_RUN(test_mark);
    T_RUN(test_many);
    return t_done();
}
