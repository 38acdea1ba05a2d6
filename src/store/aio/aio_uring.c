/* SPDX-License-Identifier: Apache-2.0 */
/* The aio backend on io_uring.
 *
 * The ring belongs to the owner's thread. At most `depth` requests are in the kernel; others wait
 * in `backlog`, in order. A kick writes to an eventfd on which the ring keeps one read outstanding,
 * so that waiting for I/O and for a kick are one system call. The completion queue has room for
 * every request in the kernel plus that read, so it cannot overflow. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "store/aio/aio_private.h"

#ifdef HAVE_LIBURING
#include <liburing.h>
#include <sys/eventfd.h>

struct uring_aio {
    struct vv_aio base;
    struct io_uring ring;
    struct vvi_aio_queue backlog, done;
    unsigned in_kernel; /* requests, without the read of the eventfd */
    struct iovec *cuts; /* one per request in the kernel: transfers cut short by the fault hook */
    struct vv_aio_req **slots;
    int event_fd;
    uint64_t event_value;
    bool kicked;
    /* Synchronization: atomic. Set by kick, cleared when the owner takes the event of that kick.
     * Kicks while it is set make no system call: the owner wakes once for all of them. It is cleared
     * before the owner looks for the reason of the kick; a kick after that writes again. */
    atomic_bool kick_pending;
};

/* Synchronization: atomic. How often a ring began or ended. The memory of an ended ring may be reused for the
 * next, by another thread. The kernel keeps them apart, but a race detector cannot see that, because liburing
 * makes its system calls itself; it does see this counter. */
static atomic_ulong ring_turns;

/* user_data: slot number, or this for the read of the eventfd. */
#define EVENT_DATA UINT64_MAX

static struct io_uring_sqe *sqe_get(struct uring_aio *aio)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&aio->ring);
    if (!sqe) {
        io_uring_submit(&aio->ring);
        sqe = io_uring_get_sqe(&aio->ring);
    }
    return sqe;
}

static void arm_event(struct uring_aio *aio)
{
    struct io_uring_sqe *sqe = sqe_get(aio);
    vv_assert(sqe);
    io_uring_prep_read(sqe, aio->event_fd, &aio->event_value, sizeof(aio->event_value), 0);
    io_uring_sqe_set_data64(sqe, EVENT_DATA);
}

/* Puts one attempt of a request that owns a slot into the submission queue. */
static int queue_attempt(struct uring_aio *aio, unsigned slot)
{
    struct vv_aio_req *req = aio->slots[slot];
    const struct iovec *iov;
    unsigned niov;
    int rc = vvi_aio_attempt(&aio->base, req, &aio->cuts[slot], &iov, &niov);
    if (rc < 0)
        return rc;
    struct io_uring_sqe *sqe = sqe_get(aio);
    if (!sqe)
        return -EBUSY;
    switch (req->op) {
    case VV_AIO_READ:
        io_uring_prep_readv(sqe, req->fd, iov, niov, req->offset);
        break;
    case VV_AIO_WRITE:
        io_uring_prep_writev(sqe, req->fd, iov, niov, req->offset);
        break;
    case VV_AIO_FSYNC:
        io_uring_prep_fsync(sqe, req->fd, 0);
        break;
    case VV_AIO_RANGE:
        if (req->bytes == 0)
            io_uring_prep_fsync(sqe, req->fd, IORING_FSYNC_DATASYNC);
        else
            io_uring_prep_sync_file_range(sqe, req->fd, req->bytes, req->offset,
                                          VVI_AIO_RANGE_FLAGS);
        break;
    }
    /* A buffered transfer is a memory copy. Without the flag the kernel would make it inside
     * io_uring_enter, on the thread that should be hashing. */
    if (req->may_block && !vv_aio_is_sync(req->op))
        io_uring_sqe_set_flags(sqe, IOSQE_ASYNC);
    io_uring_sqe_set_data64(sqe, slot);
    return 0;
}

static void end_slot(struct uring_aio *aio, unsigned slot)
{
    vvi_aio_queue_push(&aio->done, aio->slots[slot]);
    aio->slots[slot] = NULL;
    aio->in_kernel--;
}

static unsigned free_slot(const struct uring_aio *aio)
{
    unsigned i = 0;
    while (aio->slots[i])
        i++;
    return i;
}

/* Moves requests from the backlog to the kernel while it has slots. */
static void feed(struct uring_aio *aio)
{
    while (aio->in_kernel < aio->base.depth && aio->backlog.head) {
        unsigned slot = free_slot(aio);
        aio->slots[slot] = vvi_aio_queue_pop(&aio->backlog);
        aio->in_kernel++;
        int rc = queue_attempt(aio, slot);
        if (rc < 0) {
            aio->slots[slot]->result = rc;
            end_slot(aio, slot);
        }
    }
}

static void take_completion(struct uring_aio *aio, uint64_t data, int res)
{
    if (data == EVENT_DATA) {
        atomic_store(&aio->kick_pending, false);
        aio->kicked = true;
        arm_event(aio);
        return;
    }
    unsigned slot = (unsigned)data;
    bool over = vvi_aio_answer(aio->slots[slot], res);
    if (!over) {
        int rc = queue_attempt(aio, slot);
        over = rc < 0;
        if (over)
            aio->slots[slot]->result = rc;
    }
    if (over)
        end_slot(aio, slot);
}

static void reap(struct uring_aio *aio)
{
    struct io_uring_cqe *cqe;
    while (io_uring_peek_cqe(&aio->ring, &cqe) == 0) {
        uint64_t data = io_uring_cqe_get_data64(cqe);
        int res = cqe->res;
        io_uring_cqe_seen(&aio->ring, cqe);
        take_completion(aio, data, res);
    }
    feed(aio);
}

static void uring_submit(struct vv_aio *base, struct vv_aio_req *req)
{
    struct uring_aio *aio = (struct uring_aio *)base;
    vvi_aio_queue_push(&aio->backlog, req);
    feed(aio);
}

static void uring_flush(struct vv_aio *base)
{
    struct uring_aio *aio = (struct uring_aio *)base;
    /* After an error here (out of kernel memory) the entries stay in the queue; the next enter takes
     * them. */
    (void)io_uring_submit(&aio->ring);
}

/* Returns 0, or an error that may occur again at the next try. */
static int enter(struct uring_aio *aio, uint64_t left_ns)
{
    struct io_uring_cqe *cqe;
    if (left_ns == VV_NEVER_NS) {
        int rc = io_uring_submit_and_wait(&aio->ring, 1);
        return rc == -EINTR ? 0 : VV_MIN(rc, 0);
    }
    struct __kernel_timespec ts = {.tv_sec = (long long)(left_ns / 1000000000u),
                                   .tv_nsec = (long long)(left_ns % 1000000000u)};
    int rc = io_uring_submit_and_wait_timeout(&aio->ring, &cqe, 1, &ts, NULL);
    return rc == -EINTR || rc == -ETIME ? 0 : VV_MIN(rc, 0);
}

static int uring_wait(struct vv_aio *base, struct vv_aio_req **ret_reqs, unsigned max,
                      int64_t timeout_ns)
{
    struct uring_aio *aio = (struct uring_aio *)base;
    uint64_t deadline = timeout_ns < 0 ? VV_NEVER_NS : vv_now_ns() + (uint64_t)timeout_ns;
    bool entered = false;
    int rc = 0;
    for (;;) {
        reap(aio);
        unsigned n = 0;
        while (n < max && aio->done.head)
            ret_reqs[n++] = vvi_aio_queue_pop(&aio->done);
        if (n > 0) {
            uring_flush(base); /* continuations and the backlog go on while the caller works */
            return (int)n;
        }
        if (aio->kicked) {
            aio->kicked = false;
            uring_flush(base);
            return 0;
        }
        if (rc < 0)
            return rc;
        uint64_t now = timeout_ns < 0 ? 0 : vv_now_ns();
        if (now >= deadline && entered)
            return -ETIMEDOUT;
        entered = true;
        if (now >= deadline)
            /* Polling: also collects completions that wait for this thread to enter the kernel. */
            io_uring_submit_and_get_events(&aio->ring);
        else
            rc = enter(aio, timeout_ns < 0 ? VV_NEVER_NS : deadline - now);
    }
}

static void uring_kick(struct vv_aio *base)
{
    struct uring_aio *aio = (struct uring_aio *)base;
    uint64_t one = 1;
    if (atomic_exchange(&aio->kick_pending, true))
        return;
    /* Cannot fail: the eventfd holds at most one unread kick. */
    ssize_t n = write(aio->event_fd, &one, sizeof(one));
    (void)n;
}

static void uring_free(struct vv_aio *base)
{
    struct uring_aio *aio = (struct uring_aio *)base;
    /* Return only when the kernel no longer uses the callers' memory. */
    for (reap(aio); aio->in_kernel > 0; reap(aio))
        if (enter(aio, VV_NEVER_NS) < 0)
            vv_sleep_until_ns(vv_now_ns() + VV_AIO_REST_NS);
    atomic_fetch_add_explicit(&ring_turns, 1, memory_order_acq_rel);
    io_uring_queue_exit(&aio->ring);
    close(aio->event_fd);
    free(aio->cuts);
    free(aio->slots);
    free(aio);
}

static const struct vvi_aio_ops uring_ops = {
    .name = "uring",
    .free = uring_free,
    .submit = uring_submit,
    .flush = uring_flush,
    .wait = uring_wait,
    .kick = uring_kick,
};

int vvi_aio_uring_new(const struct vv_os *os, unsigned depth, struct vv_aio **ret_aio)
{
    int rc = -ENOMEM;
    struct uring_aio *aio = calloc(1, sizeof(*aio));
    if (!aio)
        return -ENOMEM;
    aio->base = (struct vv_aio){.ops = &uring_ops, .os = os, .depth = depth};
    vvi_aio_queue_init(&aio->backlog);
    vvi_aio_queue_init(&aio->done);
    aio->cuts = calloc(depth, sizeof(*aio->cuts));
    aio->slots = calloc(depth, sizeof(struct vv_aio_req *));
    if (!aio->cuts || !aio->slots)
        goto fail_memory;
    aio->event_fd = eventfd(0, EFD_CLOEXEC);
    if (aio->event_fd < 0) {
        rc = -errno;
        goto fail_memory;
    }
    struct io_uring_params params = {.flags = IORING_SETUP_CLAMP};
    /* One entry more than requests, for the read of the eventfd. */
    if (io_uring_queue_init_params(depth + 1, &aio->ring, &params) < 0) {
        rc = -EOPNOTSUPP;
        goto fail_event;
    }
    atomic_fetch_add_explicit(&ring_turns, 1, memory_order_acq_rel);
    /* Needed to wait with a time limit without spending an entry on it; Linux 5.11. */
    if (!(params.features & IORING_FEAT_EXT_ARG) || !(params.features & IORING_FEAT_NODROP)) {
        rc = -EOPNOTSUPP;
        goto fail_ring;
    }
    arm_event(aio);
    io_uring_submit(&aio->ring);
    *ret_aio = &aio->base;
    return 0;

fail_ring:
    io_uring_queue_exit(&aio->ring);
fail_event:
    close(aio->event_fd);
fail_memory:
    free(aio->cuts);
    free(aio->slots);
    free(aio);
    return rc;
}

#else

int vvi_aio_uring_new(const struct vv_os *os, unsigned depth, struct vv_aio **ret_aio)
{
    (void)os;
    (void)depth;
    (void)ret_aio;
    return -EOPNOTSUPP;
}

#endif
