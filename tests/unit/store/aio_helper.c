/* SPDX-License-Identifier: Apache-2.0 */
/* The helper process and its connection, both ends in this process: each request comes back once, with the
 * right bytes, however the helper ends. */
#define _GNU_SOURCE
#include "store/aio/helper.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "aio_test.h"
#include "base/clock.h"
#include "fault_os.h"
#include "store/aio/aio.h"
#include "store/aio/helper_private.h"
#include "t.h"

/* ---- a helper on a thread ---- */

struct served {
    pthread_t thread;
    int listen_fd, stop_fd, rc;
    struct vv_helper_served result;
    struct vv_helper_serve_opts opts;
};

static char name[64];

static void *serve(void *arg)
{
    struct served *s = arg;
    char err[256] = "";
    s->rc = vv_helper_serve(s->listen_fd, &s->opts, err, sizeof(err), &s->result);
    return NULL;
}

static void serve_start(struct served *s, int idle_ms)
{
    static int n;
    snprintf(name, sizeof(name), "test-%d-%d", (int)getpid(), n++);
    *s = (struct served){0};
    T_OK(vv_helper_listen(name, &s->listen_fd));
    s->stop_fd = eventfd(0, EFD_CLOEXEC);
    s->opts = (struct vv_helper_serve_opts){.idle_ms = idle_ms, .stop_fd = s->stop_fd};
    T_OK(pthread_create(&s->thread, NULL, serve, s));
}

static void serve_stop(struct served *s)
{
    uint64_t one = 1;
    T_EQ(write(s->stop_fd, &one, sizeof(one)), sizeof(one));
}

static void serve_join(struct served *s)
{
    pthread_join(s->thread, NULL);
    close(s->stop_fd);
    T_OK(s->rc);
}

static struct vv_helper *helper_open(void)
{
    struct vv_helper_opts o = {.name = name, .no_start = true};
    struct vv_helper *h = NULL;
    char err[256] = "";
    T_OK(vv_helper_open(&o, err, sizeof(err), &h));
    return h;
}

static struct vv_helper_stats stats_of(struct vv_helper *h)
{
    struct vv_helper_stats s;
    vv_helper_get_stats(h, &s);
    return s;
}

/* ---- cases ---- */

static void transfers(void)
{
    struct served s;
    struct vv_aio *aio;
    void *mem, *back;
    serve_start(&s, -1);
    struct vv_helper *h = helper_open();
    T_EQ(stats_of(h).pid, getpid());
    T_OK(vv_helper_map(h, AT_BLOCKS * AT_BLOCK, &mem));
    T_OK(vv_helper_map(h, AT_BLOCKS * AT_BLOCK, &back));
    T_OK(vv_aio_new_helped(NULL, VV_AIO_AUTO, 8, h, &aio));
    T_STREQ(vv_aio_name(aio), "helper");
    int fd = at_file_new();
    at_there_and_back(aio, fd, false, mem, back);
    struct vv_helper_stats st = stats_of(h);
    T_EQ(st.requests, 2);
    T_EQ(st.bytes, 2 * AT_BLOCKS * AT_BLOCK);
    T_EQ(st.redone, 0);
    T_CHECK(st.alive && st.cpu >= 0 && st.threads > 0);
    vv_aio_free(aio);
    vv_helper_unmap(h, mem);
    vv_helper_unmap(h, back);
    vv_helper_close(h);
    serve_stop(&s);
    serve_join(&s);
    T_EQ(s.result.requests, 2);
    T_EQ(s.result.processes, 1);
    close(fd);
}

/* Memory that the helper does not share: small pieces are sent along, large ones are done here. */
static void other_memory(void)
{
    struct served s;
    struct vv_aio *aio;
    void *area;
    serve_start(&s, -1);
    struct vv_helper *h = helper_open();
    T_OK(vv_helper_map(h, 2 * AT_BLOCK, &area));
    T_OK(vv_aio_new_helped(NULL, VV_AIO_AUTO, 8, h, &aio));
    int fd = at_file_new();
    char *mem = malloc(AT_BLOCKS * AT_BLOCK), *back = malloc(AT_BLOCKS * AT_BLOCK);
    at_there_and_back(aio, fd, false, mem, back); /* too many pieces */
    T_EQ(stats_of(h).requests, 0);
    for (int pass = 0; pass < 2; pass++) {
        struct iovec iov[2] = {{pass ? back : mem, AT_BLOCK},
                               {(char *)area + pass * AT_BLOCK, AT_BLOCK}};
        struct vv_aio_req r = {
            .op = pass ? VV_AIO_READ : VV_AIO_WRITE, .fd = fd, .iov = iov, .niov = 2};
        if (!pass) {
            at_fill(area, AT_BLOCK, 77);
            at_fill(mem, AT_BLOCK, 78);
        }
        vv_aio_submit(aio, &r);
        at_wait_n(aio, 1);
        T_OK(r.result);
    }
    T_EQ(stats_of(h).requests, 2);
    T_CHECK(memcmp(mem, back, AT_BLOCK) == 0 &&
            memcmp(area, (char *)area + AT_BLOCK, AT_BLOCK) == 0);
    /* An address belongs to the area only while it is mapped: a buffer may take its place. */
    vv_helper_unmap(h, area);
    at_there_and_back(aio, fd, false, mem, back);
    T_EQ(stats_of(h).requests, 2);
    vv_aio_free(aio);
    vv_helper_close(h);
    serve_stop(&s);
    serve_join(&s);
    free(mem);
    free(back);
    close(fd);
}

static void short_transfers_and_errors(void)
{
    static struct fault_os fault;
    struct served s;
    struct vv_aio *aio;
    void *mem, *back;
    serve_start(&s, -1);
    struct vv_helper *h = helper_open();
    T_OK(vv_helper_map(h, AT_BLOCKS * AT_BLOCK, &mem));
    T_OK(vv_helper_map(h, AT_BLOCKS * AT_BLOCK, &back));
    fault_os_init(&fault);
    fault.short_bytes = 1000;
    T_OK(vv_aio_new_helped(&fault.os, VV_AIO_AUTO, 4, h, &aio));
    int fd = at_file_new();
    at_there_and_back(aio, fd, false, mem, back);
    T_CHECK(stats_of(h).requests > 2 * AT_BLOCKS);
    fault.short_bytes = 0;

    struct iovec iov = {mem, AT_BLOCK};
    struct vv_aio_req past = {
        .op = VV_AIO_READ, .fd = fd, .offset = 1u << 30, .iov = &iov, .niov = 1};
    vv_aio_submit(aio, &past);
    at_wait_n(aio, 1);
    T_EQ(past.result, -ENODATA);
    iov = (struct iovec){mem, AT_BLOCK};
    struct vv_aio_req bad = {.op = VV_AIO_READ, .fd = -1, .iov = &iov, .niov = 1};
    vv_aio_submit(aio, &bad);
    at_wait_n(aio, 1);
    T_EQ(bad.result, -EBADF);
    fault.mode = FAULT_ONCE;
    fault.err = ENOSPC;
    fault.at = 1;
    atomic_store(&fault.count, 0);
    iov = (struct iovec){mem, AT_BLOCK};
    struct vv_aio_req full = {.op = VV_AIO_WRITE, .fd = fd, .iov = &iov, .niov = 1};
    vv_aio_submit(aio, &full);
    at_wait_n(aio, 1);
    T_EQ(full.result, -ENOSPC);
    /* A write to a read-only descriptor: the helper's system call fails. */
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int ro = open(path, O_RDONLY | O_CLOEXEC);
    iov = (struct iovec){mem, AT_BLOCK};
    struct vv_aio_req refused = {.op = VV_AIO_WRITE, .fd = ro, .iov = &iov, .niov = 1};
    vv_aio_submit(aio, &refused);
    at_wait_n(aio, 1);
    T_EQ(refused.result, -EBADF);
    close(ro);
    vv_aio_free(aio);
    vv_helper_unmap(h, mem);
    vv_helper_unmap(h, back);
    vv_helper_close(h);
    serve_stop(&s);
    serve_join(&s);
    close(fd);
}

static void kicks_and_timeouts(void)
{
    struct served s;
    struct vv_aio *aio;
    serve_start(&s, -1);
    struct vv_helper *h = helper_open();
    T_OK(vv_aio_new_helped(NULL, VV_AIO_AUTO, 4, h, &aio));
    at_waiting_ends(aio);
    at_kicks_wake(aio);
    vv_aio_free(aio);
    vv_helper_close(h);
    serve_stop(&s);
    serve_join(&s);
}

/* ---- a helper that ends ---- */

enum { MOVERS = 3, ROUNDS = 40, EACH = 24 };

struct mover {
    pthread_t thread;
    struct vv_aio *aio;
    char *mem;
    int fd;
    uint64_t seed;
};

/* Writes and reads back many times: every request comes back, with the bytes written. */
static void *mover_main(void *arg)
{
    struct mover *m = arg;
    struct vv_aio *aio = m->aio;
    struct vv_aio_req req[EACH];
    struct iovec iov[EACH];
    char *back = m->mem + EACH * AT_BLOCK;
    unsigned rounds = t_sanitized() ? ROUNDS / 4 : ROUNDS;
    for (unsigned round = 0; round < rounds; round++) {
        at_fill(m->mem, EACH * AT_BLOCK, m->seed + round);
        memset(back, 0, EACH * AT_BLOCK);
        for (int pass = 0; pass < 2; pass++) {
            for (unsigned i = 0; i < EACH; i++) {
                iov[i] = (struct iovec){(pass ? back : m->mem) + i * AT_BLOCK, AT_BLOCK};
                req[i] = (struct vv_aio_req){.op = pass ? VV_AIO_READ : VV_AIO_WRITE,
                                             .fd = m->fd,
                                             .offset = (i * 7 % EACH) * AT_BLOCK,
                                             .iov = &iov[i],
                                             .niov = 1};
                vv_aio_submit(aio, &req[i]);
            }
            at_wait_n(aio, EACH);
            for (unsigned i = 0; i < EACH; i++)
                T_OK(req[i].result);
        }
        T_CHECK(memcmp(m->mem, back, EACH * AT_BLOCK) == 0);
    }
    return NULL;
}

static void ends_in_the_middle(void)
{
    for (uint64_t pass = 0; pass < t_cases(6, 60); pass++) {
        struct served s;
        struct mover m[MOVERS];
        serve_start(&s, -1);
        struct vv_helper *h = helper_open();
        for (int i = 0; i < MOVERS; i++) {
            void *mem;
            T_OK(vv_helper_map(h, 2 * EACH * AT_BLOCK, &mem));
            m[i] = (struct mover){
                .mem = mem, .fd = at_file_new(), .seed = t_seed() + 1000 * (uint64_t)i};
            T_OK(vv_aio_new_helped(NULL, VV_AIO_AUTO, 8, h, &m[i].aio));
            T_OK(pthread_create(&m[i].thread, NULL, mover_main, &m[i]));
        }
        struct t_rng r = {t_seed() + pass};
        vv_sleep_until_ns(vv_now_ns() + t_rng_below(&r, 4) * VV_NS_PER_MS);
        serve_stop(&s);
        serve_join(&s);
        for (int i = 0; i < MOVERS; i++) {
            pthread_join(m[i].thread, NULL);
            vv_aio_free(m[i].aio);
            vv_helper_unmap(h, m[i].mem);
            close(m[i].fd);
        }
        for (int i = 0; stats_of(h).alive && i < 10000; i++)
            vv_sleep_until_ns(vv_now_ns() + VV_NS_PER_MS);
        T_CHECK(!stats_of(h).alive);
        vv_helper_close(h);
    }
}

/* Without a listening helper there is none; without connections the helper ends. */
static void idle_ends(void)
{
    struct vv_helper_opts o = {.name = "test-idle", .no_start = true};
    struct served s;
    struct vv_helper *h = NULL;
    char err[256] = "";
    T_ERR(vv_helper_open(&o, err, sizeof(err), &h), -ECONNREFUSED);
    T_CHECK(strstr(err, "test-idle"));
    serve_start(&s, 20);
    serve_join(&s);
    T_EQ(s.result.processes, 0);
    int fd;
    serve_start(&s, 50);
    T_ERR(vv_helper_listen(name, &fd), -EADDRINUSE);
    h = helper_open();
    vv_helper_close(h);
    serve_join(&s);
    T_EQ(s.result.processes, 1);
}

/* A missing program is an error that names it, and is found at once. */
static void no_program(void)
{
    struct vv_helper_opts o = {.name = "test-none", .program = "/nonexistent/varve"};
    struct vv_helper *h = NULL;
    char err[256] = "";
    T_ERR(vv_helper_open(&o, err, sizeof(err), &h), -ENOENT);
    T_CHECK(strstr(err, "/nonexistent/varve"));
    o.program = "/bin/false";
    T_ERR(vv_helper_open(&o, err, sizeof(err), &h), -ECHILD);
}

/* ---- invalid messages ---- */

static int raw_connect(void)
{
    struct sockaddr_un addr;
    socklen_t len = vvi_helper_address(name, &addr);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    T_OK(connect(fd, (struct sockaddr *)&addr, len));
    return fd;
}

static struct vvi_helper_reply raw_recv(int fd, ssize_t *ret_n)
{
    struct vvi_helper_reply r = {0};
    *ret_n = recv(fd, &r, sizeof(r), 0);
    return r;
}

static void raw_hello(int fd)
{
    struct vvi_helper_msg hello = {.kind = VVI_HELPER_HELLO, .id = VVI_HELPER_VERSION};
    ssize_t n;
    T_OK(vvi_helper_send(fd, &hello, VVI_HELPER_MSG_BYTES(0), -1, 0));
    T_EQ(raw_recv(fd, &n).kind, VVI_HELPER_WELCOME);
}

static void hostile(void)
{
    struct served s;
    struct vv_aio *aio;
    void *mem, *back;
    serve_start(&s, -1);
    struct vv_helper *h = helper_open();
    T_OK(vv_helper_map(h, AT_BLOCKS * AT_BLOCK, &mem));
    T_OK(vv_helper_map(h, AT_BLOCKS * AT_BLOCK, &back));
    T_OK(vv_aio_new_helped(NULL, VV_AIO_AUTO, 8, h, &aio));
    int fd = at_file_new();
    static const struct vvi_helper_msg bad[] = {
        {.kind = 99},
        {.kind = VVI_HELPER_HELLO, .id = VVI_HELPER_VERSION},
        {.kind = VVI_HELPER_IO, .op = VV_AIO_FSYNC, .nsegs = 1},
        {.kind = VVI_HELPER_IO, .op = VV_AIO_READ, .nsegs = 0},
        {.kind = VVI_HELPER_IO, .op = VV_AIO_READ, .nsegs = 1, .offset = UINT64_MAX},
        {.kind = VVI_HELPER_IO, .op = VV_AIO_READ, .nsegs = 600},
        {.kind = VVI_HELPER_AREA, .offset = 0},
        {.kind = VVI_HELPER_AREA, .offset = UINT64_MAX},
    };
    ssize_t n;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        int raw = raw_connect();
        raw_hello(raw);
        T_OK(vvi_helper_send(raw, &bad[i], VVI_HELPER_MSG_BYTES(bad[i].nsegs % 512), -1, 0));
        raw_recv(raw, &n);
        T_EQ(n, 0);
        close(raw);
        at_there_and_back(aio, fd, false, mem, back); /* the other connection still works */
    }
    int raw = raw_connect(); /* without a greeting */
    T_OK(vvi_helper_send(raw, &bad[0], 3, -1, 0));
    raw_recv(raw, &n);
    T_EQ(n, 0);
    close(raw);
    /* An unknown area, and a missing descriptor: refused, and the connection stays. */
    raw = raw_connect();
    raw_hello(raw);
    struct vvi_helper_msg io = {.kind = VVI_HELPER_IO, .id = 5, .op = VV_AIO_READ, .nsegs = 1};
    io.seg[0] = (struct vvi_helper_seg){.area = 7, .bytes = 1};
    T_OK(vvi_helper_send(raw, &io, VVI_HELPER_MSG_BYTES(1), fd, 0));
    struct vvi_helper_reply r = raw_recv(raw, &n);
    T_CHECK(r.kind == VVI_HELPER_REFUSED && r.id == 5);
    T_OK(vvi_helper_send(raw, &io, VVI_HELPER_MSG_BYTES(1), -1, 0));
    T_EQ(raw_recv(raw, &n).kind, VVI_HELPER_REFUSED);
    /* Beyond the end of an area: the connection ends. */
    struct vvi_helper_msg area = {.kind = VVI_HELPER_AREA, .id = 7, .offset = AT_BLOCK};
    int shared = memfd_create("t", MFD_CLOEXEC);
    T_OK(ftruncate(shared, AT_BLOCK));
    T_OK(vvi_helper_send(raw, &area, VVI_HELPER_MSG_BYTES(0), shared, 0));
    T_OK(vvi_helper_send(raw, &io, VVI_HELPER_MSG_BYTES(1), fd, 0));
    T_EQ(raw_recv(raw, &n).kind, VVI_HELPER_DONE);
    /* Truncated memory is an error of the transfer. */
    T_OK(ftruncate(shared, 0));
    T_OK(vvi_helper_send(raw, &io, VVI_HELPER_MSG_BYTES(1), fd, 0));
    r = raw_recv(raw, &n);
    T_CHECK(r.kind == VVI_HELPER_DONE && r.result == -EFAULT);
    io.seg[0].offset = AT_BLOCK;
    T_OK(vvi_helper_send(raw, &io, VVI_HELPER_MSG_BYTES(1), fd, 0));
    raw_recv(raw, &n);
    T_EQ(n, 0);
    close(raw);
    close(shared);
    at_there_and_back(aio, fd, false, mem, back);
    vv_aio_free(aio);
    vv_helper_unmap(h, mem);
    vv_helper_unmap(h, back);
    vv_helper_close(h);
    serve_stop(&s);
    serve_join(&s);
    close(fd);
}

/* A helper that refuses everything, as when it has no free descriptors. */
static void *refuse_all(void *arg)
{
    int fd = accept4(*(int *)arg, NULL, NULL, SOCK_CLOEXEC);
    static struct vvi_helper_msg m;
    ssize_t n;
    while ((n = recv(fd, &m, sizeof(m), 0)) > 0) {
        struct vvi_helper_reply r = {.kind = VVI_HELPER_REFUSED, .id = m.id};
        if (m.kind == VVI_HELPER_HELLO)
            r.kind = VVI_HELPER_WELCOME;
        if (m.kind == VVI_HELPER_HELLO || m.kind == VVI_HELPER_IO)
            T_OK(vvi_helper_send(fd, &r, sizeof(r), -1, 0));
    }
    close(fd);
    return NULL;
}

static void refusals_are_done_here(void)
{
    struct vv_aio *aio;
    pthread_t thread;
    void *mem, *back;
    int listen_fd;
    snprintf(name, sizeof(name), "test-%d-refuses", (int)getpid());
    T_OK(vv_helper_listen(name, &listen_fd));
    T_EQ(fcntl(listen_fd, F_SETFL, 0), 0);
    T_OK(pthread_create(&thread, NULL, refuse_all, &listen_fd));
    struct vv_helper *h = helper_open();
    T_OK(vv_helper_map(h, AT_BLOCKS * AT_BLOCK, &mem));
    T_OK(vv_helper_map(h, AT_BLOCKS * AT_BLOCK, &back));
    T_OK(vv_aio_new_helped(NULL, VV_AIO_AUTO, 8, h, &aio));
    int fd = at_file_new();
    at_there_and_back(aio, fd, false, mem, back);
    T_EQ(stats_of(h).requests, 0);
    T_EQ(stats_of(h).redone, 2);
    vv_aio_free(aio);
    vv_helper_unmap(h, mem);
    vv_helper_unmap(h, back);
    vv_helper_close(h);
    pthread_join(thread, NULL);
    close(listen_fd);
    close(fd);
}

/* A helper that takes everything and answers nothing, as a stopped process does: it is killed, and its
 * requests are done here. */
static void hung_is_ended(void)
{
    struct vv_helper_opts o = {.name = name, .no_start = true, .tick_ms = 5};
    struct vv_helper *h = NULL;
    struct vv_aio *aio;
    void *mem, *back;
    int ready[2], status = 0;
    char err[256] = "";
    snprintf(name, sizeof(name), "test-%d-hung", (int)getpid());
    T_OK(pipe(ready));
    pid_t pid = fork(); /* the process that listens is killed: it must not be this one */
    T_CHECK(pid >= 0);
    if (pid == 0) {
        struct vvi_helper_reply r = {.kind = VVI_HELPER_WELCOME, .id = VVI_HELPER_VERSION};
        int listen_fd;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        T_OK(vv_helper_listen(name, &listen_fd));
        T_EQ(fcntl(listen_fd, F_SETFL, 0), 0);
        close(ready[0]);
        close(ready[1]);
        int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
        T_OK(vvi_helper_send(fd, &r, sizeof(r), -1, 0));
        for (;;)
            pause();
    }
    close(ready[1]);
    T_EQ(read(ready[0], err, 1), 0); /* it listens */
    close(ready[0]);
    T_OK(vv_helper_open(&o, err, sizeof(err), &h));
    T_CHECK(stats_of(h).alive);
    T_OK(vv_helper_map(h, AT_BLOCKS * AT_BLOCK, &mem));
    T_OK(vv_helper_map(h, AT_BLOCKS * AT_BLOCK, &back));
    T_OK(vv_aio_new_helped(NULL, VV_AIO_AUTO, 8, h, &aio));
    int fd = at_file_new();
    at_there_and_back(aio, fd, false, mem, back);
    T_EQ(waitpid(pid, &status, 0), pid);
    T_CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    T_CHECK(!stats_of(h).alive && stats_of(h).requests == 0 && stats_of(h).redone > 0);
    vv_aio_free(aio);
    vv_helper_unmap(h, mem);
    vv_helper_unmap(h, back);
    vv_helper_close(h);
    close(fd);
}

int main(void)
{
    T_RUN(transfers);
    T_RUN(other_memory);
    T_RUN(short_transfers_and_errors);
    T_RUN(kicks_and_timeouts);
    T_RUN(ends_in_the_middle);
    T_RUN(idle_ends);
    T_RUN(no_program);
    T_RUN(hostile);
    T_RUN(refusals_are_done_here);
    T_RUN(hung_is_ended);
    return t_done();
}
