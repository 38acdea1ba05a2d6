/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing the server: the socket, the description of the roots for clients, the threads. Requests are
 * handled in server_loop.c and server_work.c.
 *
 * The socket's mode is set before it has a name, so that other users can never connect; besides, the kernel gives the
 * user of each connection, which is checked. A socket that a killed daemon left behind is replaced if no process
 * answers there. Of two daemons that start at the same instant, one gets the lock on a file beside the socket; it is
 * held as long as the server is open.
 */
#include "dataset/server.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "dataset/server_private.h"
#include "dataset/shared_fs.h"

#define WORKERS_MAX 32
#define CLIENTS_MAX 4096
#define WAIT_NS     (30 * VV_NS_PER_S)

/* ---- the welcome for clients ---- */

static int add_root(struct vv_server *d, const char *path, bool sole)
{
    struct vv_server_root root = {.flags = sole ? VV_SERVER_SOLE : 0};
    struct vv_server_welcome welcome;
    size_t bytes = strlen(path);
    struct stat st;

    if (!sole && stat(path, &st) == 0) {
        root.dev = (uint64_t)st.st_dev;
        root.ino = (uint64_t)st.st_ino;
    }
    memcpy(&welcome, d->welcome, sizeof(welcome));
    if (welcome.nr_roots == VV_SERVER_ROOTS_MAX ||
        d->welcome_bytes + sizeof(root) + bytes + sizeof(struct vv_server_reply) >
            VV_SERVER_MSG_MAX)
        return -E2BIG;
    root.path_bytes = (uint32_t)bytes;
    memcpy(d->welcome + d->welcome_bytes, &root, sizeof(root));
    d->welcome_bytes += sizeof(root);
    memcpy(d->welcome + d->welcome_bytes, path, bytes);
    d->welcome_bytes += bytes;
    welcome.nr_roots++;
    memcpy(d->welcome, &welcome, sizeof(welcome));
    return 0;
}

/* Each root as it was given, and as the kernel resolves it: from /proc and getcwd a program has the resolved
 * form. */
static int make_welcome(struct vv_server *d, char *err, size_t err_bytes)
{
    struct vv_server_welcome welcome = {0};
    struct stat st;

    if (stat("/", &st) == 0) {
        welcome.root_dev = (uint64_t)st.st_dev;
        welcome.root_ino = (uint64_t)st.st_ino;
    }
    if (stat("/proc/self/ns/mnt", &st) == 0)
        welcome.mount_ns = (uint64_t)st.st_ino;
    welcome.index = d->opts.index ? vv_index_boot(d->opts.index) : 0;
    memcpy(d->welcome, &welcome, sizeof(welcome));
    d->welcome_bytes = sizeof(welcome);
    for (size_t i = 0; i < d->opts.nr_roots; i++) {
        struct vv_root root;
        char *real;
        int rc = vv_root_parse(d->opts.roots[i], &root, err, err_bytes);

        if (rc < 0)
            return rc;
        real = root.url ? NULL : realpath(root.path, NULL);
        rc = add_root(d, root.path, root.url != NULL);
        if (rc == 0 && real && strcmp(real, root.path) != 0)
            rc = add_root(d, real, false);
        free(real);
        if (rc < 0)
            snprintf(err, err_bytes, "%s: too many folders to serve", root.path);
        vv_root_fini(&root);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- the socket ---- */

/* True if a process answers there. */
static bool is_answered(const struct sockaddr_un *addr)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool yes = fd >= 0 && (connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) == 0 ||
                           errno == EAGAIN || errno == EPROTOTYPE);

    if (fd >= 0)
        close(fd);
    return yes;
}

/* Removes a socket that an earlier daemon left; any other file at that place is an error. */
static int make_place(const struct sockaddr_un *addr)
{
    struct stat st;

    if (lstat(addr->sun_path, &st) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (!S_ISSOCK(st.st_mode))
        return -EEXIST;
    if (is_answered(addr))
        return -EADDRINUSE;
    return unlink(addr->sun_path) < 0 && errno != ENOENT ? -errno : 0;
}

static int lock_place(struct vv_server *d)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char path[PATH_MAX];

    if (snprintf(path, sizeof(path), "%s.lock", d->socket_path) >= (int)sizeof(path))
        return -ENAMETOOLONG;
    d->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (d->lock_fd < 0)
        return -errno;
    if (fcntl(d->lock_fd, F_OFD_SETLK, &lock) < 0)
        return errno == EAGAIN || errno == EACCES ? -EADDRINUSE : -errno;
    return 0;
}

/* Clients that cannot read this file ask the socket. */
static void write_life(struct vv_server *d)
{
    struct vv_server_life life = {.magic = VV_SERVER_LIFE_MAGIC,
                                  .version = VV_SERVER_VERSION,
                                  .alive_ns = vv_now_ns(),
                                  .welcome_bytes = (uint32_t)d->welcome_bytes};
    char all[sizeof(life) + VV_SERVER_MSG_MAX];

    memcpy(all, &life, sizeof(life));
    memcpy(all + sizeof(life), d->welcome, d->welcome_bytes);
    if (ftruncate(d->lock_fd, 0) < 0 ||
        pwrite(d->lock_fd, all, sizeof(life) + d->welcome_bytes, 0) < 0)
        (void)ftruncate(d->lock_fd, 0);
}

void vvi_server_heartbeat(struct vv_server *d, uint64_t now_ns)
{
    if (d->lock_fd >= 0)
        (void)!pwrite(d->lock_fd, &now_ns, sizeof(now_ns),
                      offsetof(struct vv_server_life, alive_ns));
}

static int listen_at(struct vv_server *d)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    struct stat st;
    int rc;

    if (strlen(d->socket_path) >= sizeof(addr.sun_path))
        return -ENAMETOOLONG;
    memcpy(addr.sun_path, d->socket_path, strlen(d->socket_path));
    rc = lock_place(d);
    if (rc == 0)
        rc = make_place(&addr);
    if (rc < 0)
        return rc;
    d->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (d->listen_fd < 0 || fchmod(d->listen_fd, 0600) < 0 ||
        bind(d->listen_fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
        return -errno;
    if (lstat(d->socket_path, &st) < 0)
        return -errno;
    d->socket_dev = (uint64_t)st.st_dev;
    d->socket_ino = (uint64_t)st.st_ino;
    if ((st.st_mode & 0077) != 0 && chmod(d->socket_path, 0600) < 0)
        return -errno;
    if (listen(d->listen_fd, SOMAXCONN) < 0)
        return -errno;
    write_life(d);
    return 0;
}

/* ---- opening and closing ---- */

static void set_defaults(struct vv_server_opts *o)
{
    struct rlimit limit;

    if (o->loops == 0)
        o->loops = sysconf(_SC_NPROCESSORS_ONLN) >= 16 ? 2 : 1;
    if (o->workers_max == 0)
        o->workers_max = WORKERS_MAX;
    if (o->waiting_max == 0)
        o->waiting_max = 4 * o->workers_max;
    if (o->clients_max == 0) {
        o->clients_max = CLIENTS_MAX;
        if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur / 2 < o->clients_max)
            o->clients_max = (unsigned)(limit.rlim_cur / 2);
    }
    if (o->wait_ns == 0)
        o->wait_ns = WAIT_NS;
}

static int open_server(struct vv_server *d, char *err, size_t err_bytes)
{
    int rc = make_welcome(d, err, err_bytes);

    if (rc < 0)
        return rc;
    rc = listen_at(d);
    for (unsigned i = 0; i < d->opts.loops && rc == 0; i++)
        rc = vvi_server_loop_start(d, &d->loops[i]);
    if (rc < 0)
        snprintf(err, err_bytes, "%s: %s", d->socket_path,
                 rc == -EADDRINUSE ? "another daemon answers there" : strerror(-rc));
    return rc;
}

int vv_server_open(const struct vv_server_opts *opts, char *err, size_t err_bytes,
                   struct vv_server **ret_server)
{
    struct vv_server *d;
    int rc = 0;

    if (!opts->ops || !opts->socket_path || opts->nr_roots == 0) {
        snprintf(err, err_bytes,
                 "a server needs a socket, a table of functions and at least one folder");
        return -EINVAL;
    }
    d = calloc(1, sizeof(*d));
    if (!d)
        return -ENOMEM;
    d->opts = *opts;
    set_defaults(&d->opts);
    d->listen_fd = d->lock_fd = -1;
    d->last = &d->first;
    d->uid = (unsigned)geteuid();
    vv_mutex_init(&d->lock, "server", VV_RANK_STORE);
    vv_cond_init(&d->work);
    d->socket_path = strdup(opts->socket_path);
    d->workers = calloc(d->opts.workers_max, sizeof(*d->workers));
    d->loops = calloc(d->opts.loops, sizeof(*d->loops));
    if (!d->socket_path || !d->workers || !d->loops) {
        snprintf(err, err_bytes, "%s", strerror(ENOMEM));
        rc = -ENOMEM;
    }
    if (rc == 0)
        rc = open_server(d, err, err_bytes);
    if (rc < 0) {
        vv_server_close(d);
        return rc;
    }
    *ret_server = d;
    return 0;
}

/* Only if the socket is still the one that this server made. */
static void remove_socket(struct vv_server *d)
{
    struct stat st;

    if (d->socket_ino && lstat(d->socket_path, &st) == 0 && (uint64_t)st.st_dev == d->socket_dev &&
        (uint64_t)st.st_ino == d->socket_ino)
        (void)unlink(d->socket_path);
}

void vv_server_close(struct vv_server *d)
{
    if (!d)
        return;
    if (d->socket_path)
        remove_socket(d);
    atomic_store_explicit(&d->stop, true, memory_order_release);
    for (unsigned i = 0; d->loops && i < d->opts.loops; i++)
        vvi_server_loop_stop(&d->loops[i]);
    vvi_server_stop_workers(d);
    for (unsigned i = 0; d->loops && i < d->opts.loops; i++)
        vvi_server_loop_free(&d->loops[i]);
    if (d->listen_fd >= 0)
        close(d->listen_fd);
    if (d->lock_fd >= 0) {
        if (d->socket_ino) /* otherwise the file is another daemon's */
            vvi_server_heartbeat(d, 0);
        close(d->lock_fd);
    }
    vv_cond_fini(&d->work);
    vv_mutex_fini(&d->lock);
    free(d->loops);
    free(d->workers);
    free(d->socket_path);
    free(d);
}

void vv_server_stats(struct vv_server *d, struct vv_server_stats *ret_stats)
{
#define GET(field) atomic_load_explicit(&d->counts.field, memory_order_relaxed)
    *ret_stats = (struct vv_server_stats){
        .clients = GET(clients),
        .accepted = GET(accepted),
        .refused = GET(refused),
        .broken = GET(broken),
        .opens = GET(opens),
        .stats = GET(stats),
        .writes = GET(writes),
        .waited = GET(waited),
        .declined = GET(declined),
        .late = GET(late),
        .full = GET(full),
    };
#undef GET
}
