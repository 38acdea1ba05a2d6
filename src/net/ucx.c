/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames as UCX active messages. On the I/O thread, but for waking it.
 *
 * A frame is one active message. Without bulk data its header is ours and its payload the body; with it, header
 * and body together are the header, and the payload is the data, which UCX then moves by rendezvous:
 * straight from the memory of the sender's pool to that of the receiver's, by RDMA where there is any. Every
 * message asks for a reply endpoint, which is how a receiver knows the connection it came on.
 *
 * UCX calls back from within its progress function, where endpoints must not be made or closed. So connection
 * requests, errors and protocol violations are noted there, and dealt with afterwards (settle_noted).
 *
 * UCX decides when it lets go of memory. A connection's own memory (struct link) stays until its
 * endpoint is closed and its last send is done; data that is being received has a reference to its call. What UCX
 * has not let go of when the worker is destroyed is taken back then.
 *
 * Endpoints have error handling mode PEER: the end of the other process is told within milliseconds. That
 * of a frozen one is never told; calls have deadlines.
 */
#include "net/net_private.h"

#if HAVE_UCX

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/assert.h"
#include "core/clock.h"
#include "net/ucx_api.h"

enum { AM_ID = 7, PROGRESS_MAX = 256, LINK_BUCKETS = 512, TRIALS_MAX = 14 };

#define TRIAL_NS (100 * VV_NS_PER_MS)

struct link {
    struct ucx *u;
    struct vvi_conn *c; /* NULL: the connection is gone, UCX is not done yet */
    ucp_ep_h ep;
    unsigned sending;   /* frames that UCX has */
    unsigned receiving; /* payloads that it is receiving */
    bool fresh;         /* ours: made, and not told yet */
    bool noted;         /* is in the list */
    int err;            /* to be told */
    bool closed;
    void *close_request;  /* UCX's, until it is done */
    struct vvi_addr addr; /* ours: where it goes */
    int trial_fd;         /* or -1 */
    uint64_t trial_until_ns;
    struct link *next_noted, *chain, *next, *prev;
};

/* A frame with UCX. */
struct sending {
    struct link *k;
    struct vvi_frame *f;
    void *request; /* UCX's */
    struct sending *next, *prev;
};

/* A payload that comes by rendezvous. */
struct receiving {
    struct ucx *u;
    struct link *k;
    struct vv_net_call *call; /* its data; or NULL, and a body: */
    struct vvi_head h;
    uint8_t wire[VVI_NET_HEAD];
    uint8_t *body;
    void *request; /* UCX's */
    struct receiving *next, *prev;
};

struct request {
    ucp_conn_request_h conn;
    struct request *next;
};

struct ucx {
    struct vv_net *net;
    const struct vvi_ucx_api *api;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_listener_h listener;
    int event_fd, wake_fd;
    struct link *links, *noted, *by_ep[LINK_BUCKETS];
    struct sending *sendings;
    struct receiving *receivings;
    struct request *requests; /* connections that others want */
    struct link *trials[TRIALS_MAX];
    unsigned nr_trials;
    bool ending; /* requests have been given back to UCX */
    bool busy;   /* something has happened since the last look */
};

#define LIST_PUT(list, item)       \
    do {                           \
        (item)->prev = NULL;       \
        (item)->next = (list);     \
        if (list)                  \
            (list)->prev = (item); \
        (list) = (item);           \
    } while (0)

#define LIST_TAKE(list, item)                                           \
    do {                                                                \
        *((item)->prev ? &(item)->prev->next : &(list)) = (item)->next; \
        if ((item)->next)                                               \
            (item)->next->prev = (item)->prev;                          \
    } while (0)

/* ---- links ---- */

static struct link **bucket_of(struct ucx *u, ucp_ep_h ep)
{
    return &u->by_ep[(uintptr_t)ep / 64 % LINK_BUCKETS];
}

static struct link *find_link(struct ucx *u, ucp_ep_h ep)
{
    struct link *k = *bucket_of(u, ep);

    while (k && k->ep != ep)
        k = k->chain;
    return k;
}

static void note(struct link *k, int err)
{
    if (err && !k->err)
        k->err = err;
    if (k->noted)
        return;
    k->noted = true;
    k->next_noted = k->u->noted;
    k->u->noted = k;
    k->u->busy = true;
}

/* ---- is anybody there? ---- */

/*
 * UCX says "not connected" of every connection over TCP that could not be made, whatever the reason. That a
 * machine answers and nobody listens is worth knowing: it proves that the process is gone. So the same
 * address is tried once more, by a plain socket. False: it cannot be tried.
 */
static bool begin_trial(struct link *k)
{
    struct ucx *u = k->u;
    int fd;

    if (k->trial_fd >= 0)
        return true;
    if (u->nr_trials == TRIALS_MAX)
        return false;
    fd = socket(k->addr.sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    if (connect(fd, (const struct sockaddr *)&k->addr.sa, k->addr.bytes) < 0 &&
        errno != EINPROGRESS) {
        note(k, errno == ECONNREFUSED ? -ECONNREFUSED : -ECONNRESET);
        close(fd);
        return true;
    }
    k->trial_fd = fd;
    k->trial_until_ns = vv_now_ns() + TRIAL_NS;
    u->trials[u->nr_trials++] = k;
    return true;
}

static void end_trial(struct link *k)
{
    struct ucx *u = k->u;

    if (k->trial_fd < 0)
        return;
    close(k->trial_fd);
    k->trial_fd = -1;
    for (unsigned i = 0; i < u->nr_trials; i++) {
        if (u->trials[i] == k) {
            u->trials[i] = u->trials[--u->nr_trials];
            return;
        }
    }
}

static void look_at_trials(struct ucx *u)
{
    for (unsigned i = u->nr_trials; i-- > 0;) {
        struct link *k = u->trials[i];
        struct pollfd p = {.fd = k->trial_fd, .events = POLLOUT};
        int err = 0;
        socklen_t bytes = sizeof(err);
        bool done = poll(&p, 1, 0) > 0;
        if (!done && vv_now_ns() < k->trial_until_ns)
            continue;
        if (done && getsockopt(k->trial_fd, SOL_SOCKET, SO_ERROR, &err, &bytes) < 0)
            err = errno;
        note(k, !done ? -EHOSTUNREACH : err == ECONNREFUSED ? -ECONNREFUSED : -ECONNRESET);
        end_trial(k);
    }
}

/* Told by the endpoint, and by each frame that it could not send. */
static void failed(struct link *k, ucs_status_t status)
{
    if (status == UCS_ERR_NOT_CONNECTED && k->c && k->c->state <= CONN_HELLO && k->c->peer &&
        !k->err && begin_trial(k))
        return;
    note(k, vvi_ucx_errno(status));
}

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    failed(arg, status);
}

/* UCX has nothing of it any more. */
static void free_link_if_done(struct link *k)
{
    struct ucx *u = k->u;

    if (!k->closed || k->sending || k->receiving || k->noted)
        return;
    LIST_TAKE(u->links, k);
    free(k);
}

static int make_link(struct ucx *u, struct vvi_conn *c, const ucp_ep_params_t *how)
{
    struct link *k = calloc(1, sizeof(*k));
    ucp_ep_params_t params = *how;
    ucs_status_t status;

    if (!k)
        return -ENOMEM;
    k->u = u;
    k->c = c;
    k->trial_fd = -1;
    params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb = on_error;
    params.err_handler.arg = k;
    status = u->api->ucp_ep_create(u->worker, &params, &k->ep);
    if (status != UCS_OK) {
        free(k);
        return vvi_ucx_errno(status);
    }
    LIST_PUT(u->links, k);
    k->chain = *bucket_of(u, k->ep);
    *bucket_of(u, k->ep) = k;
    c->io = k;
    return 0;
}

static int ucx_connect(void *io, struct vvi_conn *c, const struct vvi_addr *addr)
{
    struct ucx *u = io;
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR,
        .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
        .sockaddr = {.addr = (const struct sockaddr *)&addr->sa, .addrlen = addr->bytes},
    };
    int rc = make_link(u, c, &params);

    if (rc)
        return rc;
    ((struct link *)c->io)->fresh = true;
    ((struct link *)c->io)->addr = *addr;
    note(c->io, 0);
    return 0;
}

/* A request that UCX is done with; or was given back when everything ended. */
static void give_back(struct ucx *u, void *request)
{
    if (!u->ending)
        u->api->ucp_request_free(request);
}

static void on_closed(void *request, ucs_status_t status, void *user)
{
    struct link *k = user;

    (void)status;
    k->closed = true;
    k->close_request = NULL;
    give_back(k->u, request);
    free_link_if_done(k);
}

static void ucx_disconnect(void *io, struct vvi_conn *c)
{
    struct ucx *u = io;
    struct link *k = c->io, **at;
    ucp_request_param_t param = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .cb.send = NULL,
        .flags = UCP_EP_CLOSE_FLAG_FORCE,
    };
    ucs_status_ptr_t request;
    bool stopping;

    if (!k)
        return;
    c->io = NULL;
    k->c = NULL;
    end_trial(k);
    at = bucket_of(u, k->ep);
    while (*at != k)
        at = &(*at)->chain;
    *at = k->chain;
    vv_mutex_lock(&u->net->lock);
    stopping = u->net->stopping;
    vv_mutex_unlock(&u->net->lock);
    /* A goodbye is to arrive; otherwise what is on its way is of no use. What a peer does not take, now
     * that all are being left, never goes in good order. */
    if (stopping && !k->err && !k->sending && !k->receiving)
        param.flags = 0;
    param.cb.send = (ucp_send_nbx_callback_t)on_closed;
    param.user_data = k;
    request = u->api->ucp_ep_close_nbx(k->ep, &param);
    if (UCS_PTR_IS_PTR(request)) {
        k->close_request = request;
    } else {
        k->closed = true;
        free_link_if_done(k);
    }
}

/* ---- sending ---- */

static unsigned ucx_queued(const struct vvi_conn *c)
{
    const struct link *k = c->io;

    return k ? k->sending : 0;
}

static void sent(struct sending *s, ucs_status_t status)
{
    struct link *k = s->k;
    struct ucx *u = k->u;

    LIST_TAKE(u->sendings, s);
    vvi_frame_free(u->net, s->f);
    free(s);
    k->sending--;
    if (status != UCS_OK && k->c)
        failed(k, status);
    free_link_if_done(k);
}

static void on_sent(void *request, ucs_status_t status, void *user)
{
    struct sending *s = user;
    struct ucx *u = s->k->u;

    sent(s, status);
    give_back(u, request);
}

static void ucx_send(void *io, struct vvi_conn *c, struct vvi_frame *f)
{
    struct ucx *u = io;
    struct link *k = c->io;
    struct sending *s = malloc(sizeof(*s));
    bool bulk = f->data_bytes > 0;
    ucp_request_param_t param = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .flags = UCP_AM_SEND_FLAG_REPLY,
        .cb.send = on_sent,
        .user_data = s,
    };
    ucs_status_ptr_t request;

    if (!s || k->err) {
        free(s);
        vvi_frame_free(u->net, f);
        note(k, -ENOMEM);
        return;
    }
    *s = (struct sending){.k = k, .f = f};
    LIST_PUT(u->sendings, s);
    k->sending++;
    request = u->api->ucp_am_send_nbx(k->ep, AM_ID, f->bytes, bulk ? f->head_bytes : VVI_NET_HEAD,
                                      bulk ? f->data : f->bytes + VVI_NET_HEAD,
                                      bulk ? (size_t)f->data_bytes : f->head_bytes - VVI_NET_HEAD,
                                      &param);
    if (UCS_PTR_IS_PTR(request))
        s->request = request;
    else
        sent(s, UCS_PTR_STATUS(request));
}

/* ---- receiving ---- */

/* The payload is there, or will not be. */
static void received(struct receiving *r, int rc)
{
    struct ucx *u = r->u;
    struct link *k = r->k;

    LIST_TAKE(u->receivings, r);
    k->receiving--;
    if (r->call)
        vvi_conn_data_end(u->net, r->call, rc);
    else if (rc == 0 && k->c)
        rc = vvi_conn_frame(k->c, &r->h, r->wire, r->body);
    if (rc && k->c)
        note(k, rc);
    free(r->body);
    free(r);
    free_link_if_done(k);
}

static void on_received(void *request, ucs_status_t status, size_t bytes, void *user)
{
    struct receiving *r = user;
    struct ucx *u = r->u;

    (void)bytes;
    received(r, vvi_ucx_errno(status));
    give_back(u, request);
}

/* By rendezvous: UCX is told where to put it. */
static ucs_status_t receive_later(struct link *k, const struct vvi_head *h, const uint8_t *wire,
                                  struct vv_net_call *call, void *desc, size_t bytes)
{
    struct ucx *u = k->u;
    struct receiving *r = calloc(1, sizeof(*r));
    uint8_t *body = call ? NULL : malloc(bytes);
    ucp_request_param_t param = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
        .cb.recv_am = on_received,
        .user_data = r,
    };
    ucs_status_ptr_t request;

    if (!r || (!call && !body)) {
        free(r);
        free(body);
        if (call)
            vvi_conn_data_end(u->net, call, -ENOMEM);
        note(k, -ENOMEM);
        return UCS_OK;
    }
    *r = (struct receiving){.u = u, .k = k, .call = call, .h = *h, .body = body};
    memcpy(r->wire, wire, VVI_NET_HEAD);
    LIST_PUT(u->receivings, r);
    k->receiving++;
    request =
        u->api->ucp_am_recv_data_nbx(u->worker, desc, call ? call->data : body, bytes, &param);
    if (UCS_PTR_IS_PTR(request))
        r->request = request;
    else
        received(r, vvi_ucx_errno(UCS_PTR_STATUS(request)));
    return UCS_INPROGRESS;
}

static int take_message(struct link *k, const uint8_t *head, size_t head_bytes, void *data,
                        size_t bytes, bool later, ucs_status_t *ret_status)
{
    struct vvi_conn *c = k->c;
    struct vv_net_call *call;
    struct vvi_head h;
    int rc =
        head_bytes < VVI_NET_HEAD ? -EBADMSG : vvi_head_decode(head, c->state == CONN_OPEN, &h);
    bool bulk = rc == 0 && h.kind == VVI_ANSWER && h.data_bytes;

    /* What the header says and what has come are the same, or nothing is believed. */
    if (rc == 0 && (head_bytes != VVI_NET_HEAD + (bulk ? h.body_bytes : 0) ||
                    bytes != (bulk ? h.data_bytes : h.body_bytes)))
        rc = -EBADMSG;
    if (rc) {
        vvi_count(k->u->net, malformed, 1);
        return rc;
    }
    if (!bulk) {
        if (!later)
            return vvi_conn_frame(c, &h, head, data);
        *ret_status = receive_later(k, &h, head, NULL, data, bytes);
        return 0;
    }
    call = vvi_conn_data(c, &h, head, head + VVI_NET_HEAD, &rc);
    if (!call)
        return rc;
    if (later) {
        *ret_status = receive_later(k, &h, head, call, data, bytes);
    } else {
        memcpy(call->data, data, bytes);
        vvi_conn_data_end(k->u->net, call, 0);
    }
    return 0;
}

static ucs_status_t on_message(void *arg, const void *header, size_t header_bytes, void *data,
                               size_t bytes, const ucp_am_recv_param_t *param)
{
    struct ucx *u = arg;
    struct link *k =
        param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP ? find_link(u, param->reply_ep) : NULL;
    ucs_status_t status = UCS_OK;
    int rc;

    u->busy = true;
    if (!k || !k->c || k->err)
        return UCS_OK; /* dropped */
    rc = take_message(k, header, header_bytes, data, bytes,
                      param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV, &status);
    if (rc)
        note(k, rc);
    return status;
}

/* ---- the loop ---- */

static void on_request(ucp_conn_request_h conn, void *arg)
{
    struct ucx *u = arg;
    struct request *r = malloc(sizeof(*r));

    u->busy = true;
    if (!r) {
        (void)u->api->ucp_listener_reject(u->listener, conn);
        return;
    }
    *r = (struct request){.conn = conn, .next = u->requests};
    u->requests = r;
}

static void accept_requests(struct ucx *u)
{
    while (u->requests) {
        struct request *r = u->requests;
        ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST,
                                  .conn_request = r->conn};
        struct vvi_conn *c = vvi_conn_accepted(u->net);
        int rc;
        u->requests = r->next;
        if (!c) {
            (void)u->api->ucp_listener_reject(u->listener, r->conn);
        } else {
            rc = make_link(u, c, &params);
            if (rc)
                vvi_conn_broken(c, rc);
        }
        free(r);
    }
}

static void settle_noted(struct ucx *u)
{
    accept_requests(u);
    while (u->noted) {
        struct link *k = u->noted;
        int rc = k->err;
        u->noted = k->next_noted;
        k->noted = false;
        if (!k->c) {
            free_link_if_done(k);
            continue;
        }
        if (rc == 0 && k->fresh) {
            k->fresh = false;
            rc = vvi_conn_connected(k->c);
            if (rc && !k->err)
                k->err = rc;
            rc = k->err;
        }
        if (rc)
            vvi_conn_broken(k->c, rc);
    }
}

static void progress(struct ucx *u)
{
    for (unsigned i = 0; i < PROGRESS_MAX && u->api->ucp_worker_progress(u->worker); i++)
        u->busy = true;
    if (u->nr_trials)
        look_at_trials(u);
    settle_noted(u);
}

static void sleep_until(struct ucx *u, uint64_t until_ns)
{
    struct pollfd fds[2 + TRIALS_MAX] = {{.fd = u->event_fd, .events = POLLIN},
                                         {.fd = u->wake_fd, .events = POLLIN}};
    uint64_t now = vv_now_ns(), count;
    struct timespec limit;

    for (unsigned i = 0; i < u->nr_trials; i++) {
        fds[2 + i] = (struct pollfd){.fd = u->trials[i]->trial_fd, .events = POLLOUT};
        until_ns = VV_MIN(until_ns, u->trials[i]->trial_until_ns);
    }
    if (until_ns <= now)
        return;
    limit.tv_sec = (time_t)VV_MIN((until_ns - now) / VV_NS_PER_S, 60);
    limit.tv_nsec = (long)((until_ns - now) % VV_NS_PER_S);
    if (ppoll(fds, 2 + u->nr_trials, &limit, NULL) > 0 && fds[1].revents)
        (void)!read(u->wake_fd, &count, sizeof(count));
}

static void ucx_poll(void *io, uint64_t until_ns)
{
    struct ucx *u = io;

    u->busy = false;
    progress(u);
    /* An arm that succeeds says that nothing has come since the last progress. */
    if (u->busy || u->api->ucp_worker_arm(u->worker) != UCS_OK)
        return;
    sleep_until(u, until_ns);
    progress(u);
}

static void ucx_wake(void *io)
{
    struct ucx *u = io;
    uint64_t one = 1;

    (void)!write(u->wake_fd, &one, sizeof(one));
}

/* ---- opening and closing ---- */

/* Endpoints that are being closed get this long. */
static void ucx_settle(void *io, uint64_t until_ns)
{
    struct ucx *u = io;

    while (u->links && vv_now_ns() < until_ns)
        ucx_poll(u, VV_MIN(until_ns, vv_now_ns() + 5 * VV_NS_PER_MS));
}

/* A worker may be destroyed only when nobody holds requests of it. Those that are not done yet go with it. */
static void release_requests(struct ucx *u)
{
    u->ending = true;
    for (struct link *k = u->links; k; k = k->next) {
        if (k->close_request)
            u->api->ucp_request_free(k->close_request);
    }
    for (struct sending *s = u->sendings; s; s = s->next) {
        if (s->request)
            u->api->ucp_request_free(s->request);
    }
    for (struct receiving *r = u->receivings; r; r = r->next) {
        if (r->request)
            u->api->ucp_request_free(r->request);
    }
}

static void ucx_close(void *io)
{
    struct ucx *u = io;

    while (u->requests) {
        struct request *r = u->requests;
        u->requests = r->next;
        (void)u->api->ucp_listener_reject(u->listener, r->conn);
        free(r);
    }
    if (u->listener)
        u->api->ucp_listener_destroy(u->listener);
    release_requests(u);
    if (u->worker)
        u->api->ucp_worker_destroy(u->worker);
    if (u->context)
        u->api->ucp_cleanup(u->context);
    /* What it had not given back is nobody's now. */
    while (u->receivings)
        received(u->receivings, -ESHUTDOWN);
    while (u->sendings) {
        struct sending *s = u->sendings;
        LIST_TAKE(u->sendings, s);
        vvi_frame_free(u->net, s->f);
        free(s);
    }
    while (u->links) {
        struct link *k = u->links;
        LIST_TAKE(u->links, k);
        free(k);
    }
    if (u->wake_fd >= 0)
        close(u->wake_fd);
    free(u);
}

static int make_worker(struct ucx *u)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME,
                           .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
                           .name = "varve"};
    ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    ucp_worker_attr_t attr = {.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER};
    ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = AM_ID,
        .cb = on_message,
        .arg = u,
    };
    ucp_config_t *config;
    ucs_status_t status = u->api->ucp_config_read(NULL, NULL, &config);

    if (status != UCS_OK)
        return vvi_ucx_errno(status);
    status = u->api->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &u->context);
    u->api->ucp_config_release(config);
    if (status == UCS_OK)
        status = u->api->ucp_worker_create(u->context, &worker, &u->worker);
    if (status == UCS_OK)
        status = u->api->ucp_worker_query(u->worker, &attr);
    if (status == UCS_OK && attr.max_am_header < VVI_NET_HEAD + VVI_NET_BULK_BODY)
        return -ENOTSUP;
    if (status == UCS_OK)
        status = u->api->ucp_worker_set_am_recv_handler(u->worker, &handler);
    if (status == UCS_OK)
        status = u->api->ucp_worker_get_efd(u->worker, &u->event_fd);
    return vvi_ucx_errno(status);
}

static int make_listener(struct ucx *u, const struct vvi_addr *addr, uint16_t *ret_port)
{
    ucp_listener_params_t params = {
        .field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
        .sockaddr = {.addr = (const struct sockaddr *)&addr->sa, .addrlen = addr->bytes},
        .conn_handler = {.cb = on_request, .arg = u},
    };
    ucp_listener_attr_t attr = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
    struct vvi_addr own = {.bytes = sizeof(own.sa)};
    ucs_status_t status = u->api->ucp_listener_create(u->worker, &params, &u->listener);

    if (status == UCS_OK)
        status = u->api->ucp_listener_query(u->listener, &attr);
    if (status != UCS_OK)
        return vvi_ucx_errno(status);
    memcpy(&own.sa, &attr.sockaddr, VV_MIN(sizeof(own.sa), sizeof(attr.sockaddr)));
    *ret_port = vvi_addr_port(&own);
    return 0;
}

static int ucx_open(struct vv_net *net, const struct vvi_addr *addr, char *err, size_t err_bytes,
                    void **ret_io, uint16_t *ret_port)
{
    const struct vvi_ucx_api *api;
    struct ucx *u;
    int rc = vvi_ucx_load(err, err_bytes, &api);

    if (rc)
        return rc;
    u = calloc(1, sizeof(*u));
    if (!u)
        return -ENOMEM;
    u->net = net;
    u->api = api;
    u->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    rc = u->wake_fd < 0 ? -errno : make_worker(u);
    if (rc == 0)
        rc = make_listener(u, addr, ret_port);
    if (rc) {
        snprintf(err, err_bytes, "UCX cannot listen: %s", strerror(-rc));
        ucx_close(u);
        return rc;
    }
    *ret_io = u;
    return 0;
}

const struct vvi_net_ops vvi_net_ucx = {
    .from_memory = true,
    .open = ucx_open,
    .close = ucx_close,
    .connect = ucx_connect,
    .send = ucx_send,
    .queued = ucx_queued,
    .disconnect = ucx_disconnect,
    .poll = ucx_poll,
    .settle = ucx_settle,
    .wake = ucx_wake,
};

#else /* HAVE_UCX */

#include <errno.h>
#include <stdio.h>

int vvi_net_ucx_check(char *err, size_t err_bytes)
{
    snprintf(err, err_bytes, "this build has no UCX");
    return -ENOTSUP;
}

static int ucx_open(struct vv_net *net, const struct vvi_addr *listen, char *err, size_t err_bytes,
                    void **ret_io, uint16_t *ret_port)
{
    (void)net;
    (void)listen;
    (void)ret_io;
    (void)ret_port;
    return vvi_net_ucx_check(err, err_bytes);
}

const struct vvi_net_ops vvi_net_ucx = {.open = ucx_open};

#endif
