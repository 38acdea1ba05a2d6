/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The aio backend that submits requests to a helper process. Another backend beside it takes the
 * requests that the helper cannot, and all requests once the helper has ended.
 *
 * A request is in one of these places: the backlog; the helper; one of the two lists on which the helper's
 * connection returns requests (answered, to be done here); the other backend; finished. The helper makes
 * one attempt, as the system call does; the rest of a short transfer is sent again from here.
 *
 * The owner waits in the other backend, which the connection kicks. The caller's kicks are counted apart
 * from these, so that each ends one wait.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "store/aio/helper_private.h"

/* Limit of requests at the helper for one mover. More would only hold descriptors there. */
#define AWAY_MAX 16u

struct helper_aio {
    struct vv_aio base;
    struct vv_helper *helper;
    struct vvi_helper_port port;
    struct vvi_aio_queue backlog, finished;
    unsigned away; /* sent and not collected */
    struct vvi_helper_msg *msg;
    atomic_bool kicked; /* Synchronization: atomic; kicked by the caller, not reported yet */
};

static void do_here(struct helper_aio *a, struct vv_aio_req *req)
{
    vv_aio_submit(a->port.inner, req);
}

/* One attempt of a request at the helper, or all of it here. */
static void start(struct helper_aio *a, struct vv_aio_req *req)
{
    const struct iovec *iov;
    struct iovec cut;
    unsigned niov;
    if (vv_aio_is_sync(req->op)) {
        do_here(a, req);
        return;
    }
    int rc = vvi_aio_attempt(&a->base, req, &cut, &iov, &niov);
    if (rc < 0) {
        req->result = rc;
        vvi_aio_queue_push(&a->finished, req);
    } else if (vvi_helper_call(a->helper, &a->port, req, iov, niov, a->msg) == 0) {
        a->away++;
    } else {
        do_here(a, req);
    }
}

static void feed(struct helper_aio *a)
{
    while (a->away < VV_MIN(a->base.depth, AWAY_MAX) && a->backlog.head)
        start(a, vvi_aio_queue_pop(&a->backlog));
}

static void collect(struct helper_aio *a)
{
    struct vvi_aio_queue answered, redo;
    struct vv_aio_req *req;
    vvi_helper_collect(a->helper, &a->port, &answered, &redo);
    while ((req = vvi_aio_queue_pop(&redo))) {
        a->away--;
        req->result = 0;
        do_here(a, req);
    }
    while ((req = vvi_aio_queue_pop(&answered))) {
        int n = req->result;
        a->away--;
        req->result = 0;
        if (vvi_aio_answer(req, n))
            vvi_aio_queue_push(&a->finished, req);
        else
            start(a, req);
    }
    feed(a);
}

static void helper_submit(struct vv_aio *base, struct vv_aio_req *req)
{
    struct helper_aio *a = (struct helper_aio *)base;
    vvi_aio_queue_push(&a->backlog, req);
    feed(a);
}

static void helper_flush(struct vv_aio *base)
{
    vv_aio_flush(((struct helper_aio *)base)->port.inner);
}

static unsigned take_finished(struct helper_aio *a, struct vv_aio_req **ret_reqs, unsigned max)
{
    unsigned n = 0;
    while (n < max && a->finished.head)
        ret_reqs[n++] = vvi_aio_queue_pop(&a->finished);
    return n;
}

static int helper_wait(struct vv_aio *base, struct vv_aio_req **ret_reqs, unsigned max,
                       int64_t timeout_ns)
{
    struct helper_aio *a = (struct helper_aio *)base;
    uint64_t deadline = timeout_ns < 0 ? VV_NEVER_NS : vv_now_ns() + (uint64_t)timeout_ns;
    int rc = 0;
    for (;;) {
        collect(a);
        unsigned n = take_finished(a, ret_reqs, max);
        if (n > 0) {
            helper_flush(base);
            return (int)n;
        }
        if (rc < 0)
            return rc;
        if (atomic_exchange(&a->kicked, false)) {
            helper_flush(base);
            return 0;
        }
        int64_t left = -1;
        if (deadline != VV_NEVER_NS) {
            uint64_t now = vv_now_ns();
            left = now < deadline ? (int64_t)(deadline - now) : 0;
        }
        rc = vv_aio_wait(a->port.inner, ret_reqs, max, left);
        if (rc > 0)
            return rc;
        /* Completions that came meanwhile go first; the error is returned only if there are none. */
    }
}

static void helper_kick(struct vv_aio *base)
{
    struct helper_aio *a = (struct helper_aio *)base;
    /* Set before the other backend's kick: its wait ends, and then sees the flag. */
    atomic_store(&a->kicked, true);
    vv_aio_kick(a->port.inner);
}

static void helper_aio_free(struct vv_aio *base)
{
    struct helper_aio *a = (struct helper_aio *)base;
    struct vv_aio_req *reqs[8];
    for (collect(a); a->away > 0 || a->backlog.head; collect(a))
        if (vv_aio_wait(a->port.inner, reqs, VV_ARRAY_SIZE(reqs), -1) < 0)
            vv_sleep_until_ns(vv_now_ns() + VV_AIO_REST_NS);
    vvi_helper_detach(a->helper, &a->port);
    vv_aio_free(a->port.inner);
    free(a->msg);
    free(a);
}

static const struct vvi_aio_ops helper_ops = {
    .name = "helper",
    .free = helper_aio_free,
    .submit = helper_submit,
    .flush = helper_flush,
    .wait = helper_wait,
    .kick = helper_kick,
};

int vv_aio_new_helped(const struct vv_os *os, enum vv_aio_backend backend, unsigned depth,
                      struct vv_helper *helper, struct vv_aio **ret_aio)
{
    if (!helper)
        return vv_aio_new(os, backend, depth, ret_aio);
    struct helper_aio *a = calloc(1, sizeof(*a));
    struct vvi_helper_msg *msg = calloc(1, sizeof(*msg));
    int rc = a && msg ? 0 : -ENOMEM;
    if (rc == 0)
        rc = vv_aio_new(os, backend, depth, &a->port.inner);
    if (rc < 0) {
        free(a);
        free(msg);
        return rc;
    }
    a->base = (struct vv_aio){.ops = &helper_ops, .os = os ? os : vv_os_posix(), .depth = depth};
    a->helper = helper;
    a->msg = msg;
    vvi_aio_queue_init(&a->backlog);
    vvi_aio_queue_init(&a->finished);
    vvi_helper_attach(helper, &a->port);
    *ret_aio = &a->base;
    return 0;
}
