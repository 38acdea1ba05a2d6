/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of I/O queues, those in this process and those of the helper: files, waiting, blocks written and
 * read back, and kicks. */
#ifndef AIO_TEST_H
#define AIO_TEST_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "store/aio/aio.h"
#include "t.h"

#define AT_BLOCK 4096u

enum { AT_BLOCKS = 16 };

static inline int at_file_new(void)
{
    static int n;
    char path[4096];
    snprintf(path, sizeof(path), "%s/f%d", t_tmpdir(), n++);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    T_CHECK(fd >= 0);
    return fd;
}

/* Waits until n have ended. No thread kicks meanwhile, so each wait returns a request. */
static inline void at_wait_n(struct vv_aio *aio, unsigned n)
{
    struct vv_aio_req *reqs[8];
    while (n > 0) {
        int got = vv_aio_wait(aio, reqs, n < 8 ? n : 8, -1);
        T_CHECK(got > 0);
        n -= (unsigned)got;
    }
}

static inline void at_fill(char *mem, size_t bytes, uint64_t seed)
{
    struct t_rng r = {seed};
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t v = t_rng_u64(&r);
        memcpy(mem + i, &v, 8);
    }
}

/* Writes AT_BLOCKS blocks, consecutive in the file and backwards in memory, and reads them back. */
static inline void at_there_and_back(struct vv_aio *aio, int fd, bool may_block, char *mem,
                                     char *back)
{
    struct iovec iov[AT_BLOCKS];
    at_fill(mem, AT_BLOCKS * AT_BLOCK, t_seed());
    memset(back, 0, AT_BLOCKS * AT_BLOCK);
    for (int i = 0; i < AT_BLOCKS; i++)
        iov[i] = (struct iovec){mem + (AT_BLOCKS - 1 - i) * AT_BLOCK, AT_BLOCK};
    struct vv_aio_req w = {
        .op = VV_AIO_WRITE, .fd = fd, .offset = AT_BLOCK, .iov = iov, .niov = AT_BLOCKS};
    vv_aio_submit(aio, &w);
    at_wait_n(aio, 1);
    T_OK(w.result);
    struct vv_aio_req s = {.op = VV_AIO_FSYNC, .fd = fd};
    vv_aio_submit(aio, &s);
    at_wait_n(aio, 1);
    T_OK(s.result);
    for (int i = 0; i < AT_BLOCKS; i++)
        iov[i] = (struct iovec){back + (AT_BLOCKS - 1 - i) * AT_BLOCK, AT_BLOCK};
    struct vv_aio_req r = {.op = VV_AIO_READ,
                           .fd = fd,
                           .offset = AT_BLOCK,
                           .iov = iov,
                           .niov = AT_BLOCKS,
                           .may_block = may_block};
    vv_aio_submit(aio, &r);
    vv_aio_flush(aio);
    at_wait_n(aio, 1);
    T_OK(r.result);
    T_CHECK(memcmp(mem, back, AT_BLOCKS * AT_BLOCK) == 0);
}

static inline void at_waiting_ends(struct vv_aio *aio)
{
    struct vv_aio_req *req;
    T_ERR(vv_aio_wait(aio, &req, 1, 0), -ETIMEDOUT);
    uint64_t begin = vv_now_ns();
    T_ERR(vv_aio_wait(aio, &req, 1, 3000000), -ETIMEDOUT);
    T_CHECK(vv_now_ns() - begin >= 3000000);
}

static inline void *at_kicker(void *arg)
{
    vv_aio_kick(arg);
    return NULL;
}

static inline void at_kicks_wake(struct vv_aio *aio)
{
    struct vv_aio_req *req;
    for (int i = 0; i < 50; i++) {
        pthread_t t;
        T_OK(pthread_create(&t, NULL, at_kicker, aio));
        T_EQ(vv_aio_wait(aio, &req, 1, -1), 0);
        pthread_join(t, NULL);
    }
    /* Kicked while no thread waits: the next wait ends, and only that one. */
    vv_aio_kick(aio);
    vv_aio_kick(aio);
    T_EQ(vv_aio_wait(aio, &req, 1, -1), 0);
    T_ERR(vv_aio_wait(aio, &req, 1, 1000000), -ETIMEDOUT);
}

#endif
