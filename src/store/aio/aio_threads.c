/* SPDX-License-Identifier: Apache-2.0 */
/* The aio backend for kernels without io_uring: a few threads take requests from one queue, call
 * preadv, pwritev and the syncs, and put them on another. One lock protects both queues and is never
 * held across a system call. The owner sleeps on `done`, the workers on `todo`. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/thread.h"
#include "base/thread_group.h"
#include "store/aio/aio_private.h"

#define WORKERS_MAX 8u

struct threads_aio {
    struct vv_aio base;
    struct vv_mutex lock;
    struct vv_cond todo_cond, done_cond;
    /* Synchronization: lock, down to `stopping`. */
    struct vvi_aio_queue todo, done;
    bool kicked, stopping;
    unsigned nworkers;
    pthread_t workers[WORKERS_MAX];
};

static int64_t attempt(struct threads_aio *aio, struct vv_aio_req *req)
{
    const struct iovec *iov;
    struct iovec cut;
    unsigned niov;
    int rc = vvi_aio_attempt(&aio->base, req, &cut, &iov, &niov);
    if (rc < 0)
        return rc;
    ssize_t n = -1;
    switch (req->op) {
    case VV_AIO_READ:
        n = preadv(req->fd, iov, (int)niov, (off_t)req->offset);
        break;
    case VV_AIO_WRITE:
        n = pwritev(req->fd, iov, (int)niov, (off_t)req->offset);
        break;
    case VV_AIO_FSYNC:
        n = fsync(req->fd);
        break;
    case VV_AIO_RANGE:
        n = req->bytes == 0
                ? fdatasync(req->fd)
                : sync_file_range(req->fd, (off_t)req->offset, req->bytes, VVI_AIO_RANGE_FLAGS);
        break;
    }
    return n < 0 ? -errno : n;
}

static void *worker(void *arg)
{
    struct threads_aio *aio = arg;
    vv_thread_group_name("I/O");
    vv_mutex_lock(&aio->lock);
    for (;;) {
        struct vv_aio_req *req = vvi_aio_queue_pop(&aio->todo);
        if (!req) {
            if (aio->stopping)
                break;
            vv_cond_wait(&aio->todo_cond, &aio->lock);
            continue;
        }
        vv_mutex_unlock(&aio->lock);
        while (!vvi_aio_answer(req, attempt(aio, req)))
            continue;
        vv_mutex_lock(&aio->lock);
        vvi_aio_queue_push(&aio->done, req);
        vv_cond_signal(&aio->done_cond);
    }
    vv_mutex_unlock(&aio->lock);
    return NULL;
}

static void threads_free(struct vv_aio *base)
{
    struct threads_aio *aio = (struct threads_aio *)base;
    vv_mutex_lock(&aio->lock);
    aio->stopping = true; /* workers end when `todo` is empty, so every request is finished */
    vv_cond_broadcast(&aio->todo_cond);
    vv_mutex_unlock(&aio->lock);
    for (unsigned i = 0; i < aio->nworkers; i++)
        pthread_join(aio->workers[i], NULL);
    vv_cond_fini(&aio->done_cond);
    vv_cond_fini(&aio->todo_cond);
    vv_mutex_fini(&aio->lock);
    free(aio);
}

static void threads_submit(struct vv_aio *base, struct vv_aio_req *req)
{
    struct threads_aio *aio = (struct threads_aio *)base;
    vv_mutex_lock(&aio->lock);
    vvi_aio_queue_push(&aio->todo, req);
    vv_cond_signal(&aio->todo_cond);
    vv_mutex_unlock(&aio->lock);
}

static void threads_flush(struct vv_aio *base)
{
    (void)base;
}

static int threads_wait(struct vv_aio *base, struct vv_aio_req **ret_reqs, unsigned max,
                        int64_t timeout_ns)
{
    struct threads_aio *aio = (struct threads_aio *)base;
    uint64_t deadline = timeout_ns < 0 ? VV_NEVER_NS : vv_now_ns() + (uint64_t)timeout_ns;
    unsigned n = 0;
    int rc = 0;
    vv_mutex_lock(&aio->lock);
    while (!aio->done.head && !aio->kicked && rc == 0)
        rc = timeout_ns == 0 ? -ETIMEDOUT
                             : vv_cond_wait_until(&aio->done_cond, &aio->lock, deadline);
    while (n < max && aio->done.head)
        ret_reqs[n++] = vvi_aio_queue_pop(&aio->done);
    if (n == 0 && aio->kicked) {
        aio->kicked = false;
        rc = 0;
    }
    vv_mutex_unlock(&aio->lock);
    return n > 0 ? (int)n : rc;
}

static void threads_kick(struct vv_aio *base)
{
    struct threads_aio *aio = (struct threads_aio *)base;
    vv_mutex_lock(&aio->lock);
    aio->kicked = true;
    vv_cond_signal(&aio->done_cond);
    vv_mutex_unlock(&aio->lock);
}

static const struct vvi_aio_ops threads_ops = {
    .name = "threads",
    .free = threads_free,
    .submit = threads_submit,
    .flush = threads_flush,
    .wait = threads_wait,
    .kick = threads_kick,
};

int vvi_aio_threads_new(const struct vv_os *os, unsigned depth, struct vv_aio **ret_aio)
{
    struct threads_aio *aio = calloc(1, sizeof(*aio));
    if (!aio)
        return -ENOMEM;
    aio->base = (struct vv_aio){.ops = &threads_ops, .os = os, .depth = depth};
    vv_mutex_init(&aio->lock, "aio threads", VV_RANK_AIO);
    vv_cond_init(&aio->todo_cond);
    vv_cond_init(&aio->done_cond);
    vvi_aio_queue_init(&aio->todo);
    vvi_aio_queue_init(&aio->done);

    int rc = 0;
    for (unsigned i = 0; i < VV_MIN(depth, WORKERS_MAX); i++) {
        rc = vv_thread_start(&aio->workers[i], worker, aio);
        if (rc != 0)
            break;
        aio->nworkers++;
    }
    if (aio->nworkers == 0) {
        threads_free(&aio->base);
        return rc;
    }
    *ret_aio = &aio->base;
    return 0;
}
