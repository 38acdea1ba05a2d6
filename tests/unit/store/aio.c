/* SPDX-License-Identifier: Apache-2.0 */
/* The same tests on every aio backend. */
#include "store/aio/aio.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aio_test.h"
#include "fault_os.h"
#include "t.h"

static enum vv_aio_backend backend;
static struct fault_os fault;

static struct vv_aio *aio_new(unsigned depth)
{
    struct vv_aio *aio = NULL;
    fault_os_init(&fault);
    T_OK(vv_aio_new(&fault.os, backend, depth, &aio));
    T_STREQ(vv_aio_name(aio), backend == VV_AIO_URING ? "uring" : "threads");
    return aio;
}

/* Writes scattered memory to consecutive offsets and reads it back. */
static void vectored(int64_t short_bytes)
{
    struct vv_aio *aio = aio_new(4);
    int fd = at_file_new();
    fault.short_bytes = short_bytes;
    char *mem = malloc(AT_BLOCKS * AT_BLOCK), *back = malloc(AT_BLOCKS * AT_BLOCK);
    at_there_and_back(aio, fd, true, mem, back);
    if (short_bytes > 0)
        T_CHECK(atomic_load(&fault.per_call[FAULT_AIO_WRITE]) > AT_BLOCKS);
    vv_aio_free(aio);
    close(fd);
    free(mem);
    free(back);
}

static void whole_transfers(void)
{
    vectored(0);
}

static void short_transfers_go_on(void)
{
    vectored(1000);
    vectored(1);
}

static void reading_past_the_end(void)
{
    struct vv_aio *aio = aio_new(4);
    int fd = at_file_new();
    char buf[2 * AT_BLOCK];
    T_EQ(pwrite(fd, "abc", 3, 0), 3);
    struct iovec iov = {buf, sizeof(buf)};
    struct vv_aio_req r = {.op = VV_AIO_READ, .fd = fd, .iov = &iov, .niov = 1};
    vv_aio_submit(aio, &r);
    at_wait_n(aio, 1);
    T_EQ(r.result, -ENODATA);
    vv_aio_free(aio);
    close(fd);
}

static void errors_are_results(void)
{
    struct vv_aio *aio = aio_new(4);
    char buf[16];
    struct iovec iov = {buf, sizeof(buf)};
    struct vv_aio_req r = {.op = VV_AIO_READ, .fd = -1, .iov = &iov, .niov = 1};
    vv_aio_submit(aio, &r);
    at_wait_n(aio, 1);
    T_EQ(r.result, -EBADF);
    int fd = at_file_new();
    fault.mode = FAULT_ONCE;
    fault.err = ENOSPC;
    fault.at = 2;
    atomic_store(&fault.count, 0);
    fault.short_bytes = 8; /* the second attempt of the same request is refused */
    struct vv_aio_req w = {.op = VV_AIO_WRITE, .fd = fd, .iov = &iov, .niov = 1};
    memset(buf, 1, sizeof(buf));
    vv_aio_submit(aio, &w);
    at_wait_n(aio, 1);
    T_EQ(w.result, -ENOSPC);
    vv_aio_free(aio);
    close(fd);
}

/* All requests are served, far more than the depth. */
static void more_than_the_depth(void)
{
    enum { N = 200 };
    struct vv_aio *aio = aio_new(3);
    int fd = at_file_new();
    static char mem[N][64];
    struct iovec iov[N];
    struct vv_aio_req reqs[N];
    for (unsigned pass = 0; pass < 2; pass++) {
        for (unsigned i = 0; i < N; i++) {
            memset(mem[i], pass == 0 ? (int)i : 0, sizeof(mem[i]));
            iov[i] = (struct iovec){mem[i], sizeof(mem[i])};
            reqs[i] = (struct vv_aio_req){.op = pass == 0 ? VV_AIO_WRITE : VV_AIO_READ,
                                          .fd = fd,
                                          .offset = i * sizeof(mem[i]),
                                          .iov = &iov[i],
                                          .niov = 1};
            vv_aio_submit(aio, &reqs[i]);
        }
        at_wait_n(aio, N);
    }
    for (unsigned i = 0; i < N; i++) {
        T_OK(reqs[i].result);
        for (unsigned k = 0; k < sizeof(mem[i]); k++)
            T_EQ((unsigned char)mem[i][k], i & 0xff);
    }
    vv_aio_free(aio);
    close(fd);
}

static void freeing_waits(void)
{
    struct vv_aio *aio = aio_new(2);
    int fd = at_file_new();
    static char mem[8][AT_BLOCK];
    struct iovec iov[8];
    struct vv_aio_req reqs[8];
    for (int i = 0; i < 8; i++) {
        iov[i] = (struct iovec){mem[i], AT_BLOCK};
        reqs[i] = (struct vv_aio_req){.op = VV_AIO_WRITE,
                                      .fd = fd,
                                      .offset = (uint64_t)i * AT_BLOCK,
                                      .iov = &iov[i],
                                      .niov = 1};
        vv_aio_submit(aio, &reqs[i]);
    }
    vv_aio_free(aio);
    struct stat st;
    T_OK(fstat(fd, &st));
    T_EQ(st.st_size, 8 * AT_BLOCK);
    close(fd);
}

static void waiting_ends_in_time(void)
{
    struct vv_aio *aio = aio_new(2);
    at_waiting_ends(aio);
    vv_aio_free(aio);
}

static void kick_wakes(void)
{
    struct vv_aio *aio = aio_new(2);
    at_kicks_wake(aio);
    vv_aio_free(aio);
}

static void *come_and_go(void *unused)
{
    (void)unused;
    for (int i = 0; i < 20; i++) {
        struct vv_aio *aio;
        int rc = vv_aio_new(NULL, backend, 2, &aio);
        if (rc == 0)
            vv_aio_free(aio);
        else
            T_CHECK(rc == -EOPNOTSUPP || rc == -EAGAIN); /* a limit of the process */
    }
    return NULL;
}

/* A freed ring's memory is reused by another thread's ring: no race, and none is reported. */
static void memory_comes_again(void)
{
    pthread_t t[4];

    for (int i = 0; i < 4; i++)
        T_OK(pthread_create(&t[i], NULL, come_and_go, NULL));
    for (int i = 0; i < 4; i++)
        T_OK(pthread_join(t[i], NULL));
}

static void bad_arguments(void)
{
    struct vv_aio *aio;
    T_ERR(vv_aio_new(NULL, backend, 0, &aio), -EINVAL);
    T_ERR(vv_aio_new(NULL, backend, 5000, &aio), -EINVAL);
    vv_aio_free(NULL);
}

int main(void)
{
    static const enum vv_aio_backend backends[] = {VV_AIO_THREADS, VV_AIO_URING};
    for (unsigned i = 0; i < 2; i++) {
        backend = backends[i];
        struct vv_aio *aio;
        int rc = vv_aio_new(NULL, backend, 1, &aio);
        if (backend == VV_AIO_URING && rc == -EOPNOTSUPP) {
            t_note("io_uring: not available here, not tested");
            continue;
        }
        T_OK(rc);
        vv_aio_free(aio);
        T_RUN(whole_transfers);
        T_RUN(short_transfers_go_on);
        T_RUN(reading_past_the_end);
        T_RUN(errors_are_results);
        T_RUN(more_than_the_depth);
        T_RUN(freeing_waits);
        T_RUN(waiting_ends_in_time);
        T_RUN(kick_wakes);
        T_RUN(memory_comes_again);
        T_RUN(bad_arguments);
    }
    return t_done();
}
