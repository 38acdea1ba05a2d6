/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of opening a cached file for a program under libvarve-preload.so, compared within one run with the
 * least that passing a descriptor between two processes can cost, and with a plain open of a local file. All
 * take turns, so that they see the same machine; medians of rounds are compared.
 *
 *   plain   open and close of a file on local disk
 *   bare    one byte to a process that answers with a descriptor it has open already, and close
 *   cached  open and close of a cached file, through the library and the daemon
 *   read    the same with reading all of it: 100 KiB files, by one program and by several at once, and one
 *           large file, by one and by several, cached over plain. On a machine that others use too, the time
 *           that processors spent on it tells more than the time it took: both are printed.
 *
 * With the index, clients themselves open files that they had open before. --index off leaves it out: every open asks
 * the daemon then.
 *
 * Each measurement of one program is shorter than the time slice that a program gets on a busy machine.
 *
 * --cpus binds program and daemon to processors: the same one for both is the cheapest way to wake each
 * other, two are what users have. Default: not bound.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/common/options.h"
#include "cli/measure/samples.h"
#include "dataset/owner.h"
#include "dataset/server.h"

#define FILES      64
#define FILE_BYTES (100 << 10)
#define LARGE      ((size_t)256 << 20)
#define ROUNDS_MAX 99
#define TOGETHER   20

static char folder[64];
static struct server_opts {
    const char *library; /* NULL: the one beside the program */
    int with_index;
    int readers, opens, rounds, client_cpu, server_cpu;
} opt = {NULL, 1, 8, 500, 15, -1, -1};

__attribute__((noreturn)) static void die(const char *what)
{
    fprintf(stderr, "bench_server: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void bind_to(int cpu)
{
    cpu_set_t set;

    if (cpu < 0)
        return;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    if (sched_setaffinity(0, sizeof(set), &set) < 0)
        die("sched_setaffinity");
}

/* ---- the daemon ---- */

static int do_open(void *user, const struct vv_server_ask *ask, int *ret_fd,
                   struct vv_server_stat *ret_stat)
{
    struct vv_shared_stat st;
    int rc = ask->now ? vv_owner_get_now(user, ask->path, ret_fd, &st, NULL)
                      : vv_owner_get(user, ask->path, ask->deadline_ns, ret_fd, &st);

    if (rc == 0)
        vv_shared_stat_to_wire(&st, ret_stat);
    return rc;
}

static void do_show(void *user, const char *path)
{
    vv_owner_show(user, path, path, 0);
}

static void serve(int ready)
{
    static const struct vv_server_ops ops = {.open = do_open, .stat = NULL, .invalidate = NULL};
    struct vv_dataset_opts opts = {.capacity = UINT64_C(4) << 30};
    struct vv_owner_opts owner_opts = {.revalidate_ns = 5 * VV_NS_PER_S};
    struct vv_server_opts server_opts = {.nr_roots = 1, .ops = &ops, .show = do_show, .loops = 1};
    char socket_path[100], cache[100], root[100], err[200] = "";
    const char *roots[1] = {root};
    struct vv_owner *owner;
    struct vv_shared *shared;
    struct vv_dataset *d;
    struct vv_server *server;

    snprintf(socket_path, sizeof(socket_path), "%s/socket", folder);
    snprintf(cache, sizeof(cache), "%s/cache", folder);
    snprintf(root, sizeof(root), "%s/data", folder);
    server_opts.socket_path = socket_path;
    server_opts.roots = roots;
    if (opt.with_index && vv_index_new(cache, VV_INDEX_SLOTS, &opts.index) < 0)
        die("index");
    server_opts.index = opts.index;
    if (vv_dataset_open(cache, &opts, err, sizeof(err), &d) < 0 ||
        vv_shared_new(roots, 1, &shared) < 0)
        die(err);
    owner_opts.cache = d;
    owner_opts.shared = shared;
    if (vv_owner_new(&owner_opts, &owner) < 0)
        die("owner");
    server_opts.user = owner;
    if (vv_server_open(&server_opts, err, sizeof(err), &server) < 0)
        die(err);
    if (write(ready, "", 1) != 1)
        die("write");
    for (;;)
        pause();
}

static void serve_bare(int fd, int file)
{
    union {
        struct cmsghdr align;
        char buf[CMSG_SPACE(sizeof(int))];
    } control;
    char byte;

    while (recv(fd, &byte, 1, 0) == 1) {
        struct iovec iov = {&byte, 1};
        struct msghdr msg = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.buf,
                             .msg_controllen = sizeof(control.buf)};
        struct cmsghdr *h = CMSG_FIRSTHDR(&msg);

        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(h), &file, sizeof(int));
        if (sendmsg(fd, &msg, 0) < 0)
            die("sendmsg");
    }
    _exit(0);
}

static pid_t start(void (*fn)(int, int), int a, int b)
{
    pid_t pid = fork();

    if (pid < 0)
        die("fork");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        bind_to(opt.server_cpu);
        fn(a, b);
    }
    return pid;
}

static void serve_fn(int ready, int unused)
{
    (void)unused;
    serve(ready);
}

/* ---- the program ---- */

static double plain(const char *path)
{
    uint64_t t = vv_now_ns();

    for (int i = 0; i < opt.opens; i++)
        syscall(SYS_close, syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC));
    return (double)(vv_now_ns() - t) / opt.opens / 1e3;
}

static double bare(int fd)
{
    union {
        struct cmsghdr align;
        char buf[CMSG_SPACE(sizeof(int))];
    } control;
    uint64_t t = vv_now_ns();

    for (int i = 0; i < opt.opens; i++) {
        char byte = 0;
        struct iovec iov = {&byte, 1};
        struct msghdr msg = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.buf,
                             .msg_controllen = sizeof(control.buf)};
        int got;

        if (send(fd, &byte, 1, 0) != 1 || recvmsg(fd, &msg, MSG_CMSG_CLOEXEC) != 1)
            die("bare");
        memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(int));
        syscall(SYS_close, got);
    }
    return (double)(vv_now_ns() - t) / opt.opens / 1e3;
}

static void name_of(char *path, size_t bytes, const char *where, int i)
{
    snprintf(path, bytes, "%s/%s/%d", folder, where, i % FILES);
}

static double cached(void)
{
    char path[FILES][100];
    uint64_t t;

    for (int i = 0; i < FILES; i++)
        name_of(path[i], sizeof(path[i]), "data", i);
    t = vv_now_ns();
    for (int i = 0; i < opt.opens; i++) {
        int fd = open(path[i % FILES], O_RDONLY | O_CLOEXEC);

        if (fd < 0)
            die(path[i % FILES]);
        syscall(SYS_close, fd);
    }
    return (double)(vv_now_ns() - t) / opt.opens / 1e3;
}

/* A duration in microseconds: by the clock, and of processors. */
struct cost {
    double us, cpu_us;
};

static double cpu_us(int who)
{
    struct rusage u;

    if (getrusage(who, &u) < 0)
        die("getrusage");
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e6 +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* Opens, reads and closes. */
static void read_file(const char *path, bool hooked)
{
    static char buf[1 << 20];
    int fd = hooked ? open(path, O_RDONLY | O_CLOEXEC)
                    : (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        die(path);
    while (read(fd, buf, sizeof(buf)) > 0)
        ;
    syscall(SYS_close, fd);
}

/* All small files, or the large one, `times` times. */
static void read_all(bool hooked, bool large, int times)
{
    char path[100];

    for (int i = 0; i < times; i++) {
        if (large) {
            snprintf(path, sizeof(path), "%s/%s/large", folder, hooked ? "data" : "local");
            read_file(path, hooked);
        }
        for (int k = 0; k < FILES && !large; k++) {
            name_of(path, sizeof(path), hooked ? "data" : "local", k);
            read_file(path, hooked);
        }
    }
}

/* Per file, of this program alone. */
static struct cost read_alone(bool hooked, bool large)
{
    int times = large ? 2 : 1, nr = large ? times : times * FILES;
    double cpu = cpu_us(RUSAGE_SELF);
    uint64_t t = vv_now_ns();

    read_all(hooked, large, times);
    return (struct cost){(double)(vv_now_ns() - t) / 1e3 / nr, (cpu_us(RUSAGE_SELF) - cpu) / nr};
}

/* Per file, when several programs read at once, each all files several times. */
static struct cost read_together(bool hooked, bool large)
{
    int times = large ? 1 : TOGETHER, nr = opt.readers * times * (large ? 1 : FILES);
    double cpu = cpu_us(RUSAGE_CHILDREN);
    uint64_t t = vv_now_ns();
    int status, failed = 0;

    for (int i = 0; i < opt.readers; i++) {
        pid_t pid = fork();

        if (pid < 0)
            die("fork");
        if (pid == 0) {
            read_all(hooked, large, times);
            _exit(0);
        }
    }
    for (int i = 0; i < opt.readers; i++)
        failed += wait(&status) < 0 || status != 0;
    if (failed)
        die("a reader failed");
    return (struct cost){(double)(vv_now_ns() - t) / 1e3 / nr,
                         (cpu_us(RUSAGE_CHILDREN) - cpu) / nr};
}

static double median(double *v)
{
    return samples_median(v, (size_t)opt.rounds);
}

/* The kinds of reading, and what each round found: plain, then cached. */
static struct reading {
    const char *name;
    struct cost (*read)(bool hooked, bool large);
    bool large;
    struct {
        double us[ROUNDS_MAX], cpu_us[ROUNDS_MAX];
    } plain, cached;
} readings[] = {
    {"100 KiB files", read_alone, false, {{0}, {0}}, {{0}, {0}}},
    {"  several at once", read_together, false, {{0}, {0}}, {{0}, {0}}},
    {"256 MiB file", read_alone, true, {{0}, {0}}, {{0}, {0}}},
    {"  several at once", read_together, true, {{0}, {0}}, {{0}, {0}}},
};

static void read_round(struct reading *r, int round)
{
    struct cost plain, cached;

    /* Plain and cached take turns to be first, because each leaves its data in the caches of the processors. */
    if (round % 2 == 0) {
        plain = r->read(false, r->large);
        cached = r->read(true, r->large);
    } else {
        cached = r->read(true, r->large);
        plain = r->read(false, r->large);
    }
    r->plain.us[round] = plain.us;
    r->plain.cpu_us[round] = plain.cpu_us;
    r->cached.us[round] = cached.us;
    r->cached.cpu_us[round] = cached.cpu_us;
}

static void print_reading(struct reading *r)
{
    double us = median(r->cached.us), plain_us = median(r->plain.us);

    printf("%-21s %8.2f us   %.2f of the speed of a plain local read (%.2f us), by processor time "
           "%.2f\n",
           r->name, us, plain_us / us, plain_us,
           median(r->plain.cpu_us) / median(r->cached.cpu_us));
}

static int run_client(int bare_fd)
{
    double p[ROUNDS_MAX], b[ROUNDS_MAX], c[ROUNDS_MAX];
    char local[100], root[100];
    struct stat st, real;
    int fd;

    bind_to(opt.client_cpu);
    snprintf(local, sizeof(local), "%s/local/0", folder);
    snprintf(root, sizeof(root), "%s/data/0", folder);
    (void)cached(); /* brings them */
    read_all(true, true, 1);
    read_all(false, true, 1);
    fd = open(root, O_RDONLY);
    if (fd < 0 || syscall(SYS_fstat, fd, &real) < 0 || stat(root, &st) < 0 ||
        real.st_ino == st.st_ino) {
        fprintf(stderr, "bench_server: files do not come from the cache\n");
        return 1;
    }
    for (int i = 0; i < opt.rounds; i++) {
        p[i] = plain(local);
        b[i] = bare(bare_fd);
        c[i] = cached();
        for (size_t k = 0; k < VV_ARRAY_SIZE(readings); k++)
            read_round(&readings[k], i);
    }
    printf("plain open+close      %8.2f us\n", median(p));
    printf("bare round trip+close %8.2f us\n", median(b));
    printf("cached open+close     %8.2f us   %.2f x bare, %.1f x plain\n", median(c),
           median(c) / median(b), median(c) / median(p));
    printf("reading, %d programs where it is several:\n", opt.readers);
    for (size_t k = 0; k < VV_ARRAY_SIZE(readings); k++)
        print_reading(&readings[k]);
    return 0;
}

/* ---- both ---- */

static void write_file(const char *path, size_t bytes)
{
    static char block[1 << 16];
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

    if (fd < 0)
        die(path);
    memset(block, (int)bytes & 0xff, sizeof(block));
    for (size_t done = 0; done < bytes; done += VV_MIN(sizeof(block), bytes - done))
        if (write(fd, block, VV_MIN(sizeof(block), bytes - done)) < 0)
            die(path);
    close(fd);
}

static void make_files(const char *where)
{
    char path[100];

    snprintf(path, sizeof(path), "%s/%s", folder, where);
    if (mkdir(path, 0700) < 0)
        die(path);
    for (int i = 0; i < FILES; i++) {
        name_of(path, sizeof(path), where, i);
        write_file(path, FILE_BYTES);
    }
    snprintf(path, sizeof(path), "%s/%s/large", folder, where);
    write_file(path, LARGE);
}

static int measure(char **argv)
{
    int ready[2], pair[2], status = 1;
    char fd_text[20], file[100], socket_path[100];
    pid_t daemon, other, client;
    char byte;

    make_files("data");
    make_files("local");
    snprintf(file, sizeof(file), "%s/local/0", folder);
    if (pipe(ready) < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) < 0)
        die("pipe");
    daemon = start(serve_fn, ready[1], 0);
    other = start(serve_bare, pair[1], open(file, O_RDONLY));
    close(pair[1]);
    close(ready[1]);
    if (read(ready[0], &byte, 1) == 1) {
        client = fork();
        if (client == 0) {
            snprintf(fd_text, sizeof(fd_text), "%d", pair[0]);
            snprintf(socket_path, sizeof(socket_path), "%s/socket", folder);
            setenv("VARVE_CACHED_SOCKET", socket_path, 1);
            setenv("BENCH_SERVER_FD", fd_text, 1);
            setenv("BENCH_SERVER_FOLDER", folder, 1);
            setenv("LD_PRELOAD", opt.library, 1);
            execv("/proc/self/exe", argv);
            _exit(1);
        }
        waitpid(client, &status, 0);
    }
    kill(daemon, SIGKILL);
    kill(other, SIGKILL);
    waitpid(daemon, NULL, 0);
    waitpid(other, NULL, 0);
    return status == 0 ? 0 : 1;
}

static int set_cpus(const char *value, void *arg)
{
    struct server_opts *o = arg;
    char more;
    return sscanf(value, "%d,%d%c", &o->client_cpu, &o->server_cpu, &more) == 2 ? 0 : -EINVAL;
}

#define AT(field) offsetof(struct server_opts, field)

static const struct opt options[] = {
    {OPT_TEXT, .name = "library", .arg = "FILE", .at = AT(library),
     .help = "libvarve-preload.so (the one beside this program)"},
    {OPT_INT, .name = "opens", .arg = "N", .at = AT(opens), .least = 1,
     .help = "of a measurement (500)"},
    {OPT_INT, .name = "rounds", .arg = "N", .at = AT(rounds), .least = 1, .most = ROUNDS_MAX,
     .help = "rounds, whose median counts (15)"},
    {OPT_INT, .name = "readers", .arg = "N", .at = AT(readers), .least = 1,
     .help = "programs, where it is several (8)"},
    {OPT_SET, .name = "cpus", .arg = "CLIENT,SERVER", .set = set_cpus,
     .takes = "two processors (such as 0,1)", .help = "bind program and daemon (not bound)"},
    {OPT_WORD, .name = "index", .arg = "on|off", .at = AT(with_index), .words = "off|on",
     .help = "off: every open asks the daemon (on)"},
};

static const struct opts command = {
    .command = "bench_server",
    .usage = "[OPTION]...",
    .about = "Compares opening and reading cached files with plain files and bare round trips.",
    OPT_LIST(options),
};

int main(int argc, char **argv)
{
    char beside[4096], remove[100], *slash;
    int rc, first;

    rc = opts_parse(&command, argc, argv, &opt, &first);
    if (rc >= 0)
        return rc;
    if (getenv("BENCH_SERVER_FD")) {
        snprintf(folder, sizeof(folder), "%s", getenv("BENCH_SERVER_FOLDER"));
        return run_client(atoi(getenv("BENCH_SERVER_FD")));
    }
    if (!opt.library) {
        ssize_t n = readlink("/proc/self/exe", beside, sizeof(beside) - 40);

        beside[n > 0 ? n : 0] = '\0';
        slash = strrchr(beside, '/');
        strcpy(slash ? slash : beside, "/../lib/libvarve-preload.so");
        opt.library = beside;
    }
    if (access(opt.library, R_OK) < 0)
        die(opt.library);
    snprintf(folder, sizeof(folder), "%s", "/tmp/bench_server.XXXXXX");
    if (!mkdtemp(folder))
        die(folder);
    rc = measure(argv);
    snprintf(remove, sizeof(remove), "rm -rf %s", folder);
    return system(remove) == 0 ? rc : 1;
}
