/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls: requests on the side that makes them.
 *
 * A call is in the table until it ends, and it ends once. The I/O thread ends it when its answer has come or its
 * connection is lost; the thread that waits ends it at its deadline. So a deadline depends on the waiting thread alone;
 * an I/O thread that was held up cannot delay it. The thread that waits computes the checksum of bulk data, so that the
 * I/O thread can continue. Only after that are bytes written to the caller's destination.
 *
 * References: one of the thread that started it, until vv_net_end; one of a backend while it receives data, so that the
 * memory stays until the last byte, even if the call has ended.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/hash.h"
#include "net/net_private.h"

#define POOL_UNIT     (UINT64_C(64) << 10)
#define POOL_KEEP_MAX (UINT64_C(16) << 20) /* larger buffers are not kept */

/* ---- memory for bulk data ---- */

void *vvi_pool_take(struct vv_net *net, size_t bytes, size_t *ret_room)
{
    size_t room = vv_align_up(bytes, POOL_UNIT);
    void *p = NULL;

    vv_mutex_lock(&net->lock);
    /* Begin with the last one used, which may still be in a cache. */
    for (unsigned i = net->nr_pool; i-- > 0 && !p;) {
        if (net->pool[i].room < room || net->pool[i].room / 4 > room)
            continue;
        p = net->pool[i].p;
        room = net->pool[i].room;
        net->pool[i] = net->pool[--net->nr_pool];
    }
    net->pool_out += room;
    vv_mutex_unlock(&net->lock);
    if (!p && posix_memalign(&p, 4096, room) != 0) {
        vv_mutex_lock(&net->lock);
        net->pool_out -= room;
        vv_mutex_unlock(&net->lock);
        return NULL;
    }
    *ret_room = room;
    return p;
}

uint64_t vvi_pool_out(struct vv_net *net)
{
    uint64_t out;

    vv_mutex_lock(&net->lock);
    out = net->pool_out;
    vv_mutex_unlock(&net->lock);
    return out;
}

void vvi_pool_give(struct vv_net *net, void *p, size_t room)
{
    if (!p)
        return;
    vv_mutex_lock(&net->lock);
    vv_assert(net->pool_out >= room);
    net->pool_out -= room;
    if (room <= POOL_KEEP_MAX && net->nr_pool < VVI_POOL_MAX) {
        net->pool[net->nr_pool].p = p;
        net->pool[net->nr_pool++].room = room;
        p = NULL;
    }
    vv_mutex_unlock(&net->lock);
    free(p);
}

/* ---- the table ---- */

static void finish_locked(struct vv_net *net, struct vv_net_call *call, int rc)
{
    struct vvi_peer *p;

    vv_assert(vv_mutex_held(&net->lock));
    if (call->done)
        return;
    (void)vv_table_remove(&net->calls, call);
    call->done = true;
    call->rc = rc;
    p = vvi_peer_find_locked(net, call->peer);
    if (p && rc == -ETIMEDOUT)
        vvi_pace_miss(&p->pace);
    else if (p && rc == 0 && call->paced)
        vvi_pace_add(&p->pace, vv_now_ns() - call->started_ns, call->data_bytes);
    if (rc == -ETIMEDOUT)
        vvi_count(net, timeouts, 1);
    else if (rc == -ECONNRESET)
        vvi_count(net, resets, 1);
    else if (rc == -ESTALE)
        vvi_count(net, stale, 1);
    if (call->waiter)
        vv_cond_signal(call->waiter);
}

void vvi_call_finish(struct vv_net *net, struct vv_net_call *call, int rc)
{
    vv_mutex_lock(&net->lock);
    finish_locked(net, call, rc);
    vv_mutex_unlock(&net->lock);
}

struct vv_net_call *vvi_call_find(struct vv_net *net, uint64_t id, uint64_t serial)
{
    struct vv_net_call *call;

    vv_mutex_lock(&net->lock);
    call = vv_table_find(&net->calls, id);
    /* Refuse a second answer while one is being received. */
    if (call && (call->serial != serial || call->receiving))
        call = NULL;
    if (call) {
        call->refs++;
        call->receiving = true;
    }
    vv_mutex_unlock(&net->lock);
    return call;
}

bool vvi_call_goes_on(struct vv_net *net, uint64_t id)
{
    bool goes_on;

    vv_mutex_lock(&net->lock);
    goes_on = vv_table_find(&net->calls, id) != NULL;
    vv_mutex_unlock(&net->lock);
    return goes_on;
}

bool vvi_call_sending(struct vv_net *net, uint64_t id, uint64_t serial)
{
    struct vv_net_call *call;

    vv_mutex_lock(&net->lock);
    call = vv_table_find(&net->calls, id);
    if (call)
        call->serial = serial;
    vv_mutex_unlock(&net->lock);
    return call != NULL;
}

void vvi_calls_fail(struct vv_net *net, uint64_t serial, uint64_t peer, int rc)
{
    vv_mutex_lock(&net->lock);
    for (struct vv_net_call *call = vv_table_first(&net->calls), *next; call; call = next) {
        next = vv_table_next(&net->calls, call);
        if (serial ? call->serial == serial
                   : peer == 0 || (call->serial == 0 && call->peer == peer))
            finish_locked(net, call, rc);
    }
    vv_mutex_unlock(&net->lock);
}

void vvi_call_answered(struct vv_net_call *call, const struct vvi_head *h)
{
    call->answer = (struct vv_net_answer){.status = h->status,
                                          .epoch = h->epoch,
                                          .body = call->body,
                                          .body_bytes = h->body_bytes,
                                          .data_sum = h->data_sum};
    call->refused = h->flags & VVI_FLAG_REFUSED ? h->status : 0;
    call->unsummed = call->no_sum && h->flags & VVI_FLAG_NO_SUM;
}

void vvi_call_unref(struct vv_net_call *call)
{
    struct vv_net *net = call->net;
    bool last;

    vv_mutex_lock(&net->lock);
    last = --call->refs == 0;
    if (last) {
        vv_assert(call->done);
        net->nr_open_calls--;
    }
    vv_mutex_unlock(&net->lock);
    if (!last)
        return;
    vvi_pool_give(net, call->data, call->data_room);
    free(call->body);
    free(call);
}

/* ---- for callers ---- */

static struct vvi_frame *request_frame(struct vv_net *net, const struct vv_net_ask *ask,
                                       uint64_t id, uint64_t now)
{
    struct vvi_head h = {
        .kind = VVI_REQUEST,
        .type = ask->type,
        .flags = (ask->flags & VV_NET_ANY_EPOCH ? VVI_FLAG_ANY_EPOCH : 0) |
                 (ask->flags & VV_NET_NO_SUM ? VVI_FLAG_NO_SUM : 0),
        .id = id,
        .epoch = vv_net_epoch(net),
        .body_bytes = (uint32_t)ask->body_bytes,
        .data_bytes = ask->data_max,
        .data_sum = ask->deadline_ns > now ? ask->deadline_ns - now : 0,
    };
    struct vvi_frame *f = vvi_frame_new(&h, ask->body);

    if (f) {
        f->peer = ask->peer;
        f->call = id;
    }
    return f;
}

/* Sends a request on a direct connection, if there is one. */
static bool send_direct(struct vv_net *net, struct vv_net_call *call, struct vvi_frame *f)
{
    /* With UCX the data would not come on that connection. */
    call->direct = net->transport == VV_NET_TCP ? vvi_direct_take(net, call->peer) : NULL;
    if (!call->direct)
        return false;
    if (vvi_direct_send(call->direct, f) < 0) {
        vvi_direct_end(call);
        return false;
    }
    vvi_count(net, sent, 1);
    f->peer = 0; /* the frame was not counted for its peer */
    vvi_frame_free(net, f);
    return true;
}

int vv_net_start(struct vv_net *net, const struct vv_net_ask *ask, struct vv_net_call **ret_call)
{
    uint64_t now = vv_now_ns();
    struct vv_net_call *call;
    struct vvi_frame *f;
    int rc;

    if (ask->body_bytes > VV_NET_BODY_MAX || ask->data_max > VV_NET_DATA_MAX)
        return -EMSGSIZE;
    call = calloc(1, sizeof(*call));
    if (!call)
        return -ENOMEM;
    call->net = net;
    call->id = 1 + atomic_fetch_add_explicit(&net->next_call, 1, memory_order_relaxed);
    call->peer = ask->peer;
    call->deadline_ns = ask->deadline_ns;
    call->started_ns = now;
    call->data_max = ask->data_max;
    call->paced = !(ask->flags & VV_NET_SLOW);
    call->no_sum = ask->flags & VV_NET_NO_SUM;
    call->dst = ask->dst;
    call->dst_fd = ask->dst_fd;
    call->dst_offset = ask->dst_offset;
    call->refs = 1;
    f = request_frame(net, ask, call->id, now);
    if (!f) {
        free(call);
        return -ENOMEM;
    }
    vv_mutex_lock(&net->lock);
    vv_table_add(&net->calls, call);
    net->nr_open_calls++;
    vv_mutex_unlock(&net->lock);
    if (ask->flags & VV_NET_DIRECT && send_direct(net, call, f)) {
        *ret_call = call;
        return 0;
    }
    rc = vvi_net_submit(net, f);
    if (rc) {
        /* It was not submitted, and so not counted for its peer. */
        f->peer = 0;
        vvi_frame_free(net, f);
        vvi_call_finish(net, call, rc);
        vvi_call_unref(call);
        return rc;
    }
    *ret_call = call;
    return 0;
}

static int write_all(int fd, const uint8_t *p, size_t bytes, uint64_t offset)
{
    while (bytes > 0) {
        ssize_t n = pwrite(fd, p, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        p += n;
        offset += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return 0;
}

/* Delivers the answer of a call that succeeded. Only this thread uses the call and its memory now. */
static int deliver(struct vv_net_call *call)
{
    struct vv_net_answer *a = &call->answer;

    if (call->verified)
        return call->rc;
    call->verified = true;
    if (call->data_bytes == 0)
        return 0;
    if (!call->unsummed && vv_hash64(call->data, call->data_bytes) != a->data_sum) {
        vvi_count(call->net, bad_sums, 1);
        return -EBADMSG;
    }
    a->data = call->data;
    a->data_bytes = call->data_bytes;
    if (call->dst) {
        memcpy(call->dst, call->data, call->data_bytes);
        a->data = call->dst;
    } else if (call->dst_fd >= 0) {
        a->data = NULL;
        return write_all(call->dst_fd, call->data, call->data_bytes, call->dst_offset);
    }
    return 0;
}

/* Ends calls whose deadline has passed; returns the first deadline of the others. */
static uint64_t first_deadline_locked(struct vv_net_call *const *calls, size_t nr, uint64_t now,
                                      size_t *ret_done)
{
    uint64_t first = VV_NEVER_NS;

    *ret_done = nr;
    for (size_t i = nr; i-- > 0;) {
        if (!calls[i])
            continue;
        if (!calls[i]->done && calls[i]->deadline_ns <= now)
            finish_locked(calls[i]->net, calls[i], -ETIMEDOUT);
        if (calls[i]->done)
            *ret_done = i;
        else
            first = VV_MIN(first, calls[i]->deadline_ns);
    }
    return first;
}

int vv_net_wait_any(struct vv_net_call *const *calls, size_t nr, uint64_t until_ns,
                    size_t *ret_which)
{
    struct vv_net *net = NULL;
    struct vv_cond cond;
    size_t done = nr;
    int rc = 0;

    for (size_t i = 0; i < nr; i++)
        net = calls[i] ? calls[i]->net : net;
    if (!net)
        return -EINVAL;
    vv_cond_init(&cond);
    vv_mutex_lock(&net->lock);
    for (size_t i = 0; i < nr; i++) {
        if (calls[i])
            calls[i]->waiter = &cond;
    }
    for (;;) {
        uint64_t now = vv_now_ns(), first = first_deadline_locked(calls, nr, now, &done);
        if (done < nr)
            break;
        if (now >= until_ns) {
            rc = -EAGAIN;
            break;
        }
        (void)vv_cond_wait_until(&cond, &net->lock, VV_MIN(first, until_ns));
    }
    for (size_t i = 0; i < nr; i++) {
        if (calls[i])
            calls[i]->waiter = NULL;
    }
    vv_mutex_unlock(&net->lock);
    vv_cond_fini(&cond);
    if (rc == 0)
        *ret_which = done;
    return rc;
}

int vv_net_wait(struct vv_net_call *call, uint64_t until_ns, struct vv_net_answer *ret_answer)
{
    size_t which;
    int rc = call->direct ? vvi_direct_wait(call, until_ns)
                          : vv_net_wait_any(&call, 1, until_ns, &which);

    if (rc)
        return rc;
    if (call->rc == 0)
        call->rc = deliver(call);
    if (call->rc == 0)
        *ret_answer = call->answer;
    else if (call->rc == -ESTALE)
        ret_answer->epoch = call->answer.epoch;
    return call->rc;
}

void vv_net_end(struct vv_net_call *call)
{
    if (!call)
        return;
    vvi_call_finish(call->net, call, -ECANCELED);
    vvi_direct_end(call);
    vvi_call_unref(call);
}

int vv_net_call(struct vv_net *net, const struct vv_net_ask *ask, void *body, size_t *io_bytes,
                struct vv_net_answer *ret_answer)
{
    struct vv_net_answer answer = {0};
    struct vv_net_call *call;
    int rc = vv_net_start(net, ask, &call);

    if (rc)
        return rc;
    rc = vv_net_wait(call, VV_NEVER_NS, &answer);
    if (rc == 0 && answer.body_bytes > *io_bytes)
        rc = -ENOBUFS;
    if (rc == 0) {
        if (answer.body_bytes)
            memcpy(body, answer.body, answer.body_bytes);
        *io_bytes = answer.body_bytes;
    }
    answer.body = NULL;
    if (answer.data != ask->dst)
        answer.data = NULL;
    if (ret_answer && (rc == 0 || rc == -ESTALE))
        *ret_answer = answer;
    vv_net_end(call);
    return rc;
}
