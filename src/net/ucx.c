/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bulk data as UCX active messages, by rendezvous: from the memory of the sender's pool to that of the
 * receiver's, by RDMA where there is any. On the I/O thread.
 *
 * Everything else stays with TCP (tcp.c): connections, the proof of the token, requests, answers. The asking side
 * sends the address of its UCX worker and a random key on its connection (REACH). The answering side sends the answer
 * by TCP, marked "the data comes apart", and the data by UCX, with the key and the number of the call. Either may
 * arrive first. The checksum is in the answer, so that bytes from another sender are never accepted.
 *
 * If UCX fails for a sender, at once or later, the same answer is sent again with the data inside, by TCP, as long as
 * that connection lives, and so are all that follow. So UCX can make transfers faster, and never fails one that TCP
 * could make. The death of a peer is noticed by TCP.
 *
 * UCX decides when it releases memory. A buffer that UCX is receiving into is given to the call
 * only when all data has come; a buffer that UCX is sending from stays until the transfer is done.
 * Buffers that it has not released when the worker is destroyed are released then.
 *
 * UCX calls back from within its progress function, where endpoints must not be closed: failed ones are marked, and
 * closed afterwards.
 */
#include "net/ucx.h"

#include <errno.h>
#include <stdio.h>

#if HAVE_UCX

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/le.h"
#include "net/ucx_api.h"

enum { AM_ID = 7, PROGRESS_MAX = 256, KEY = 16, EARLY_MAX = 256, SETTLE_MS = 300 };

#define APART_MIN (UINT64_C(64) << 10) /* less does not justify a second message */

/* The UCX endpoint for the peer of a connection. */
struct link {
    struct vvi_ucx *u;
    struct vvi_conn *c; /* NULL: it is gone */
    ucp_ep_h ep;
    uint8_t key[KEY];
    unsigned sending;
    bool failed; /* not used any more */
    bool closing, closed;
    void *close_request; /* UCX's, until it is done */
    struct link *next, *prev;
};

/* An answer whose data UCX is sending. */
struct sending {
    struct link *k;
    uint64_t serial;
    struct vvi_frame *f;   /* with its data, as TCP would send it */
    uint8_t head[KEY + 8]; /* of the message */
    void *request;         /* UCX's */
    struct sending *next, *prev;
};

/* Data that is expected, has come early, or is being received. */
struct expected {
    struct vvi_ucx *u;
    uint64_t id, serial;
    struct vv_net_call *call; /* NULL: the call has ended, or its answer has not come yet */
    void *desc;               /* came early: UCX's */
    size_t desc_bytes;
    void *buf; /* being received */
    size_t room;
    uint64_t bytes;
    void *request; /* UCX's */
    struct expected *next, *prev;
};

struct vvi_ucx {
    struct vv_net *net;
    const struct vvi_ucx_api *api;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_address_t *address;
    size_t address_bytes;
    uint8_t key[KEY];
    int event_fd;
    struct link *links;
    struct sending *sendings;
    struct expected *expected;
    unsigned nr_early;
    bool ending;  /* requests have been given back */
    bool trouble; /* a link has failed, and is to be closed */
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

/* Releases a request that UCX is done with, or that was ended with the worker. */
static void give_back(struct vvi_ucx *u, void *request)
{
    if (!u->ending)
        u->api->ucp_request_free(request);
}

/* ---- links ---- */

static void free_link_if_done(struct link *k)
{
    if (!k->closed || k->sending)
        return;
    if (k->c)
        k->c->apart = NULL;
    LIST_TAKE(k->u->links, k);
    free(k);
}

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    struct link *k = arg;

    (void)ep;
    (void)status;
    k->failed = true;
    k->u->trouble = true;
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

static void close_link(struct link *k)
{
    ucp_request_param_t param = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .flags = UCP_EP_CLOSE_FLAG_FORCE,
        .cb.send = on_closed,
        .user_data = k,
    };
    ucs_status_ptr_t request;

    if (k->closing)
        return;
    k->closing = true;
    k->failed = true;
    request = k->u->api->ucp_ep_close_nbx(k->ep, &param);
    if (UCS_PTR_IS_PTR(request)) {
        k->close_request = request;
    } else {
        k->closed = true;
        free_link_if_done(k);
    }
}

void vvi_ucx_reached(struct vvi_ucx *u, struct vvi_conn *c, const void *body, size_t bytes)
{
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = (const ucp_address_t *)((const uint8_t *)body + KEY),
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler.cb = on_error,
    };
    struct link *k;

    if (c->apart || bytes <= KEY)
        return;
    k = calloc(1, sizeof(*k));
    if (!k)
        return;
    k->u = u;
    k->c = c;
    memcpy(k->key, body, KEY);
    params.err_handler.arg = k;
    if (u->api->ucp_ep_create(u->worker, &params, &k->ep) != UCS_OK) {
        free(k);
        return;
    }
    LIST_PUT(u->links, k);
    c->apart = k;
}

struct vvi_frame *vvi_ucx_reach(struct vvi_ucx *u)
{
    struct vvi_head h = {.kind = VVI_REACH,
                         .epoch = vv_net_epoch(u->net),
                         .body_bytes = (uint32_t)(KEY + u->address_bytes)};
    uint8_t *body = malloc(KEY + u->address_bytes);
    struct vvi_frame *f;

    if (!body)
        return NULL;
    memcpy(body, u->key, KEY);
    memcpy(body + KEY, u->address, u->address_bytes);
    f = vvi_frame_new(&h, body);
    free(body);
    return f;
}

/* ---- sending ---- */

unsigned vvi_ucx_queued(const struct vvi_conn *c)
{
    const struct link *k = c->apart;

    return k ? k->sending : 0;
}

/* UCX has ended sending an answer's data, successfully or not. */
static void sent(struct sending *s, ucs_status_t status)
{
    struct link *k = s->k;
    struct vvi_ucx *u = k->u;
    struct vvi_conn *c = status == UCS_OK ? NULL : vvi_conn_find(u->net, s->serial);

    LIST_TAKE(u->sendings, s);
    k->sending--;
    if (status != UCS_OK) {
        k->failed = true;
        u->trouble = true;
    }
    if (c && c->state == CONN_OPEN)
        u->net->ops->send(u->net->io, c, s->f); /* by TCP, because the link has failed */
    else
        vvi_frame_free(u->net, s->f);
    free(s);
    free_link_if_done(k);
}

static void on_sent(void *request, ucs_status_t status, void *user)
{
    struct sending *s = user;
    struct vvi_ucx *u = s->k->u;

    sent(s, status);
    give_back(u, request);
}

/* Copies the answer without its data. */
static struct vvi_frame *without_data(const struct vvi_frame *f)
{
    struct vvi_frame *bare;
    struct vvi_head h;

    if (vvi_head_decode(f->bytes, true, &h) != 0)
        return NULL;
    h.flags |= VVI_FLAG_APART;
    bare = vvi_frame_new(&h, f->bytes + VVI_NET_HEAD);
    if (bare) {
        bare->serial = f->serial;
        bare->answer = f->answer;
    }
    return bare;
}

struct vvi_frame *vvi_ucx_send(struct vvi_ucx *u, struct vvi_conn *c, struct vvi_frame *f)
{
    struct link *k = c->apart;
    ucp_request_param_t param = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .flags = UCP_AM_SEND_FLAG_RNDV,
        .cb.send = on_sent,
    };
    struct vvi_frame *bare;
    struct sending *s;
    ucs_status_ptr_t request;

    if (!k || k->failed || f->data_bytes < APART_MIN || !f->data)
        return NULL;
    s = calloc(1, sizeof(*s));
    bare = s ? without_data(f) : NULL;
    if (!bare) {
        free(s);
        return NULL;
    }
    *s = (struct sending){.k = k, .serial = c->serial, .f = f};
    memcpy(s->head, k->key, KEY);
    memcpy(s->head + KEY, f->bytes + 8, 8); /* the number of the call */
    param.user_data = s;
    LIST_PUT(u->sendings, s);
    k->sending++;
    request = u->api->ucp_am_send_nbx(k->ep, AM_ID, s->head, sizeof(s->head), f->data,
                                      (size_t)f->data_bytes, &param);
    if (UCS_PTR_IS_PTR(request))
        s->request = request;
    else
        sent(s, UCS_PTR_STATUS(request));
    return bare;
}

/* ---- receiving ---- */

static struct expected *find_expected(struct vvi_ucx *u, uint64_t id)
{
    struct expected *e = u->expected;

    /* Skip one that is still being received for a call that has ended. */
    while (e && (e->id != id || (e->buf && !e->call)))
        e = e->next;
    return e;
}

static void drop_expected(struct expected *e)
{
    struct vvi_ucx *u = e->u;

    LIST_TAKE(u->expected, e);
    if (e->desc) {
        u->nr_early--;
        if (!u->ending)
            u->api->ucp_am_data_release(u->worker, e->desc);
    }
    if (e->buf)
        vvi_pool_give(u->net, e->buf, e->room);
    free(e);
}

/* All data has come, or the transfer has failed. After a failure the call goes on waiting: the
 * sender sends again by TCP, or is gone. */
static void received(struct expected *e, int rc)
{
    struct vv_net_call *call = e->call;
    struct vvi_ucx *u = e->u;

    e->request = NULL;
    if (call && rc == 0) {
        call->data = e->buf;
        call->data_room = e->room;
        call->data_bytes = e->bytes;
        e->buf = NULL;
        vvi_count(u->net, apart_bytes, e->bytes);
        drop_expected(e);
        vvi_conn_data_end(u->net, call, 0);
    } else if (call) {
        vvi_pool_give(u->net, e->buf, e->room);
        e->buf = NULL;
    } else {
        drop_expected(e);
    }
}

static void on_received(void *request, ucs_status_t status, size_t bytes, void *user)
{
    struct expected *e = user;
    struct vvi_ucx *u = e->u;

    (void)bytes;
    received(e, vvi_ucx_errno(status));
    give_back(u, request);
}

/* A waiting call and its data are both there. False: the data is not taken. */
static bool receive(struct expected *e, void *desc, size_t bytes)
{
    struct vvi_ucx *u = e->u;
    ucp_request_param_t param = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
        .cb.recv_am = on_received,
        .user_data = e,
    };
    ucs_status_ptr_t request;

    if (bytes != e->bytes || e->buf)
        return false;
    e->buf = vvi_pool_take(u->net, bytes, &e->room);
    if (!e->buf)
        return false;
    request = u->api->ucp_am_recv_data_nbx(u->worker, desc, e->buf, bytes, &param);
    if (UCS_PTR_IS_PTR(request))
        e->request = request;
    else
        received(e, vvi_ucx_errno(UCS_PTR_STATUS(request)));
    return true;
}

/* Detaches the data from its call, which has ended. Memory that UCX is receiving into stays until
 * the transfer is done. */
static struct vv_net_call *let_go(struct expected *e)
{
    struct vv_net_call *call = e->call;

    e->call = NULL;
    if (!e->request)
        drop_expected(e);
    return call;
}

/* Keeps data that came before its answer, if its call is waiting. */
static ucs_status_t keep_early(struct vvi_ucx *u, uint64_t id, void *desc, size_t bytes)
{
    struct expected *e;

    if (u->nr_early == EARLY_MAX || !vvi_call_goes_on(u->net, id))
        return UCS_OK;
    e = calloc(1, sizeof(*e));
    if (!e)
        return UCS_OK;
    *e = (struct expected){.u = u, .id = id, .desc = desc, .desc_bytes = bytes};
    LIST_PUT(u->expected, e);
    u->nr_early++;
    return UCS_INPROGRESS;
}

static ucs_status_t on_message(void *arg, const void *header, size_t header_bytes, void *data,
                               size_t bytes, const ucp_am_recv_param_t *param)
{
    struct vvi_ucx *u = arg;
    struct expected *e;
    uint64_t id;

    if (header_bytes != KEY + 8 || memcmp(header, u->key, KEY) != 0 ||
        !(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
        vvi_count(u->net, malformed, 1);
        return UCS_OK; /* dropped */
    }
    id = vv_le_get((const uint8_t *)header + KEY, 8);
    e = find_expected(u, id);
    if (!e)
        return keep_early(u, id, data, bytes);
    if (e->desc || !e->call)
        return UCS_OK;
    if (receive(e, data, bytes))
        return UCS_INPROGRESS;
    vvi_conn_data_end(u->net, let_go(e), -EBADMSG);
    return UCS_OK;
}

void vvi_ucx_expect(struct vvi_ucx *u, struct vvi_conn *c, uint64_t id, struct vv_net_call *call,
                    uint64_t bytes)
{
    struct expected *e = find_expected(u, id);
    void *desc = e ? e->desc : NULL;
    size_t desc_bytes = e ? e->desc_bytes : 0;

    if (e && !desc) {
        vvi_conn_data_end(u->net, call, -EBADMSG); /* a second answer */
        return;
    }
    if (!e) {
        e = calloc(1, sizeof(*e));
        if (!e) {
            vvi_conn_data_end(u->net, call, -ENOMEM);
            return;
        }
        e->u = u;
        e->id = id;
        LIST_PUT(u->expected, e);
    }
    e->serial = c->serial;
    e->call = call;
    e->bytes = bytes;
    if (!desc)
        return;
    e->desc = NULL;
    u->nr_early--;
    if (!receive(e, desc, desc_bytes)) {
        u->api->ucp_am_data_release(u->worker, desc);
        vvi_conn_data_end(u->net, let_go(e), -EBADMSG);
    }
}

struct vv_net_call *vvi_ucx_give_up(struct vvi_ucx *u, const struct vvi_conn *c, uint64_t id)
{
    struct expected *e = find_expected(u, id);

    if (!e || !e->call || e->serial != c->serial)
        return NULL;
    return let_go(e);
}

void vvi_ucx_part(struct vvi_ucx *u, struct vvi_conn *c)
{
    struct link *k = c->apart;

    if (k) {
        k->c = NULL;
        c->apart = NULL;
        close_link(k);
    }
    for (struct expected *e = u->expected, *next; e; e = next) {
        next = e->next;
        if (e->call && e->serial == c->serial)
            vvi_conn_data_end(u->net, let_go(e), -ECONNRESET);
    }
}

/* ---- the loop ---- */

/* Closes failed links, and releases data that came early for calls that have ended. */
static void tidy(struct vvi_ucx *u)
{
    for (struct link *k = u->links, *next; u->trouble && k; k = next) {
        next = k->next;
        if (k->failed)
            close_link(k);
    }
    u->trouble = false;
    for (struct expected *e = u->nr_early ? u->expected : NULL, *next; e; e = next) {
        next = e->next;
        if (e->desc && !vvi_call_goes_on(u->net, e->id))
            drop_expected(e);
    }
}

int vvi_ucx_fd(const struct vvi_ucx *u)
{
    return u->event_fd;
}

void vvi_ucx_progress(struct vvi_ucx *u)
{
    for (unsigned i = 0; i < PROGRESS_MAX && u->api->ucp_worker_progress(u->worker); i++)
        ;
    tidy(u);
}

bool vvi_ucx_may_sleep(struct vvi_ucx *u)
{
    return u->api->ucp_worker_arm(u->worker) == UCS_OK;
}

/* ---- opening and closing ---- */

/* A worker may be destroyed only after all its requests have been released. Those that are not done are destroyed
 * with it. */
static void release_requests(struct vvi_ucx *u)
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
    for (struct expected *e = u->expected; e; e = e->next) {
        if (e->request)
            u->api->ucp_request_free(e->request);
        if (e->desc)
            u->api->ucp_am_data_release(u->worker, e->desc);
    }
}

static void settle(struct vvi_ucx *u)
{
    uint64_t until = vv_now_ns() + SETTLE_MS * VV_NS_PER_MS;

    for (struct link *k = u->links, *next; k; k = next) {
        next = k->next;
        close_link(k);
    }
    while ((u->links || u->expected) && vv_now_ns() < until) {
        vvi_ucx_progress(u);
        vv_sleep_until_ns(vv_now_ns() + VV_NS_PER_MS / 10);
    }
}

void vvi_ucx_close(struct vvi_ucx *u)
{
    if (!u)
        return;
    if (u->worker) {
        settle(u);
        release_requests(u);
        if (u->address)
            u->api->ucp_worker_release_address(u->worker, u->address);
        u->api->ucp_worker_destroy(u->worker);
    }
    if (u->context)
        u->api->ucp_cleanup(u->context);
    while (u->expected) {
        vv_assert(!u->expected->call);
        drop_expected(u->expected);
    }
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
    free(u);
}

static int make_worker(struct vvi_ucx *u)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME,
                           .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
                           .name = "varve"};
    ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SERIALIZED};
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
        status = u->api->ucp_worker_set_am_recv_handler(u->worker, &handler);
    if (status == UCS_OK)
        status = u->api->ucp_worker_get_efd(u->worker, &u->event_fd);
    if (status == UCS_OK)
        status = u->api->ucp_worker_get_address(u->worker, &u->address, &u->address_bytes);
    if (status == UCS_OK && u->address_bytes > VV_NET_BODY_MAX - KEY)
        return -EMSGSIZE;
    return vvi_ucx_errno(status);
}

int vvi_ucx_open(struct vv_net *net, char *err, size_t err_bytes, struct vvi_ucx **ret_ucx)
{
    const struct vvi_ucx_api *api;
    struct vvi_ucx *u;
    int rc = vvi_ucx_load(err, err_bytes, &api);

    if (rc)
        return rc;
    u = calloc(1, sizeof(*u));
    if (!u)
        return -ENOMEM;
    u->net = net;
    u->api = api;
    rc = getrandom(u->key, KEY, 0) == KEY ? make_worker(u) : -EIO;
    if (rc) {
        snprintf(err, err_bytes, "UCX cannot be used: %s", strerror(-rc));
        vvi_ucx_close(u);
        return rc;
    }
    *ret_ucx = u;
    return 0;
}

#else /* HAVE_UCX */

int vvi_net_ucx_check(char *err, size_t err_bytes)
{
    snprintf(err, err_bytes, "this build has no UCX");
    return -ENOTSUP;
}

int vvi_ucx_open(struct vv_net *net, char *err, size_t err_bytes, struct vvi_ucx **ret_ucx)
{
    (void)net;
    (void)ret_ucx;
    return vvi_net_ucx_check(err, err_bytes);
}

/* The functions below are called only with a result of vvi_ucx_open. */
void vvi_ucx_close(struct vvi_ucx *u)
{
    (void)u;
}

int vvi_ucx_fd(const struct vvi_ucx *u)
{
    (void)u;
    return -1;
}

void vvi_ucx_progress(struct vvi_ucx *u)
{
    (void)u;
}

bool vvi_ucx_may_sleep(struct vvi_ucx *u)
{
    (void)u;
    return true;
}

struct vvi_frame *vvi_ucx_reach(struct vvi_ucx *u)
{
    (void)u;
    return NULL;
}

void vvi_ucx_reached(struct vvi_ucx *u, struct vvi_conn *c, const void *body, size_t bytes)
{
    (void)u;
    (void)c;
    (void)body;
    (void)bytes;
}

struct vvi_frame *vvi_ucx_send(struct vvi_ucx *u, struct vvi_conn *c, struct vvi_frame *f)
{
    (void)u;
    (void)c;
    (void)f;
    return NULL;
}

unsigned vvi_ucx_queued(const struct vvi_conn *c)
{
    (void)c;
    return 0;
}

void vvi_ucx_expect(struct vvi_ucx *u, struct vvi_conn *c, uint64_t id, struct vv_net_call *call,
                    uint64_t bytes)
{
    (void)u;
    (void)c;
    (void)id;
    (void)call;
    (void)bytes;
}

struct vv_net_call *vvi_ucx_give_up(struct vvi_ucx *u, const struct vvi_conn *c, uint64_t id)
{
    (void)u;
    (void)c;
    (void)id;
    return NULL;
}

void vvi_ucx_part(struct vvi_ucx *u, struct vvi_conn *c)
{
    (void)u;
    (void)c;
}

#endif
