/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests on the side that answers them. A request object is self-contained: it has the serial number of its
 * connection, never a pointer to it, because the connection may be gone when it is answered.
 *
 * The thread that answers reads the file and computes the checksum of bulk data. So the bytes are in memory when the
 * I/O thread sends them, and a slow disk delays only its own request. Without a checksum, and if the caller states
 * that the bytes are in memory already, nothing is read here: the I/O thread sends them from the file. The file may
 * change before they are sent; then the receiver's checksum does not match.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "net/serve.h"

#define READ_BYTES (UINT64_C(256) << 10)

int vvi_serve(struct vvi_conn *c, const struct vvi_head *h, const void *body)
{
    struct vv_net *net = c->net;
    struct vv_net_req *req;
    struct vv_net_msg m;

    if (!net->opts.events.request)
        return vvi_serve_refuse(c, h, -EOPNOTSUPP);
    /* Answers that are queued because the peer does not receive them count as well. */
    if (c->serving + net->ops->queued(c) >= net->opts.serving_max)
        return vvi_serve_refuse(c, h, -EBUSY);
    req = malloc(sizeof(*req) + h->body_bytes);
    if (!req)
        return vvi_serve_refuse(c, h, -ENOMEM);
    *req = (struct vv_net_req){
        .net = net,
        .serial = c->serial,
        .id = h->id,
        .data_max = h->data_bytes,
        .deadline_ns = vv_now_ns() + VV_MIN(h->data_sum, UINT64_MAX / 2),
        .no_sum = h->flags & VVI_FLAG_NO_SUM,
    };
    if (h->body_bytes)
        memcpy(req->body, body, h->body_bytes);
    c->serving++;
    vv_mutex_lock(&net->lock);
    net->nr_reqs++;
    vv_mutex_unlock(&net->lock);
    m = (struct vv_net_msg){.from = c->from,
                            .epoch = h->epoch,
                            .type = h->type,
                            .body = req->body,
                            .body_bytes = h->body_bytes};
    net->opts.events.request(net->opts.events.user, req, &m);
    return 0;
}

int vvi_serve_refuse(struct vvi_conn *c, const struct vvi_head *h, int status)
{
    struct vvi_head answer = {.kind = VVI_ANSWER,
                              .flags = VVI_FLAG_REFUSED,
                              .id = h->id,
                              .status = status,
                              .epoch = vv_net_epoch(c->net)};
    struct vvi_frame *f;

    /* A peer that keeps sending requests and never receives an answer gets no more memory. */
    if (c->net->ops->queued(c) > 2 * c->net->opts.serving_max)
        return -ENOBUFS;
    f = vvi_frame_new(&answer, NULL);
    if (!f)
        return -ENOMEM;
    vvi_conn_send(c, f);
    return 0;
}

uint64_t vv_net_req_deadline_ns(const struct vv_net_req *req)
{
    return req->deadline_ns;
}

uint64_t vv_net_req_data_max(const struct vv_net_req *req)
{
    return req->data_max;
}

/* Reads a range of a file, into `ret_all` or, if that is NULL, piece by piece into a buffer. ret_sum may be NULL. */
static int read_range(struct vv_net *net, const struct vv_net_reply *r, uint8_t *ret_all,
                      uint64_t *ret_sum)
{
    struct vv_hash_stream *hash = ret_all || !ret_sum ? NULL : vv_hash_stream_new();
    size_t room = 0;
    uint8_t *buf = ret_all ? ret_all : vvi_pool_take(net, READ_BYTES, &room);
    int rc = (ret_all || !ret_sum || hash) && buf ? 0 : -ENOMEM;

    for (uint64_t at = 0; rc == 0 && at < r->data_bytes;) {
        size_t want = (size_t)VV_MIN(r->data_bytes - at, ret_all ? r->data_bytes : READ_BYTES);
        ssize_t n = pread(r->fd, ret_all ? buf + at : buf, want, (off_t)(r->offset + at));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            rc = n < 0 ? -errno : -ENODATA;
            break;
        }
        if (hash)
            vv_hash_stream_add(hash, buf, (size_t)n);
        at += (uint64_t)n;
    }
    if (rc == 0 && ret_sum)
        *ret_sum = ret_all ? vv_hash64(ret_all, r->data_bytes) : vv_hash_stream_value(hash);
    if (!ret_all)
        vvi_pool_give(net, buf, room);
    vv_hash_stream_free(hash);
    return rc;
}

/* Prepares bulk data for a frame, and its sum, unless ret_sum is NULL. Data that has to be read is kept in memory while
 * there is room, and sent from there. */
static int take_data(struct vv_net *net, const struct vv_net_reply *r, struct vvi_frame *data,
                     uint64_t *ret_sum)
{
    bool as_it_is = r->in_memory && !ret_sum && !r->data && !net->ops->from_memory;
    int rc;

    if (!as_it_is && (r->data || net->ops->from_memory ||
                      vvi_pool_out(net) + r->data_bytes <= net->opts.memory_max)) {
        data->data = vvi_pool_take(net, r->data_bytes, &data->data_room);
        if (!data->data)
            return -ENOMEM;
        if (!r->data)
            return read_range(net, r, data->data, ret_sum);
        memcpy(data->data, r->data, r->data_bytes);
        if (ret_sum)
            *ret_sum = vv_hash64(data->data, r->data_bytes);
        return 0;
    }
    rc = as_it_is ? 0 : read_range(net, r, NULL, ret_sum);
    if (rc)
        return rc;
    data->fd = fcntl(r->fd, F_DUPFD_CLOEXEC, 0);
    data->offset = r->offset;
    return data->fd < 0 ? -errno : 0;
}

static int send_answer(struct vv_net_req *req, const struct vvi_head *h, const void *body,
                       struct vvi_frame *data)
{
    struct vvi_frame *f = vvi_frame_new(h, body);
    int rc;

    if (!f)
        return -ENOMEM;
    f->serial = req->serial;
    f->answer = true;
    f->data = data->data;
    f->data_room = data->data_room;
    f->fd = data->fd;
    f->offset = data->offset;
    f->data_bytes = h->data_bytes;
    data->data = NULL;
    data->fd = -1;
    rc = vvi_net_submit(req->net, f);
    if (rc)
        vvi_frame_free(req->net, f);
    return rc;
}

static void release_data(struct vv_net *net, struct vvi_frame *data)
{
    if (data->data)
        vvi_pool_give(net, data->data, data->data_room);
    if (data->fd >= 0)
        close(data->fd);
}

int vv_net_respond(struct vv_net_req *req, const struct vv_net_reply *reply)
{
    struct vv_net *net = req->net;
    struct vvi_frame data = {.fd = -1};
    struct vvi_head h = {.kind = VVI_ANSWER, .id = req->id, .epoch = vv_net_epoch(net)};
    bool too_much = reply->data_bytes > req->data_max || reply->body_bytes > VV_NET_BODY_MAX ||
                    (reply->data_bytes && reply->body_bytes > VVI_NET_BULK_BODY);
    uint64_t sum = 0;
    int rc = too_much ? -EMSGSIZE : 0, sent;

    if (rc == 0 && reply->data_bytes)
        rc = take_data(net, reply, &data, req->no_sum ? NULL : &sum);
    if (rc) {
        h.status = rc == -EMSGSIZE || rc == -ENODATA ? rc : -EIO;
        release_data(net, &data);
        data = (struct vvi_frame){.fd = -1};
        sent = send_answer(req, &h, NULL, &data);
    } else {
        h.status = VV_MIN(reply->status, 0);
        h.body_bytes = (uint32_t)reply->body_bytes;
        h.data_bytes = reply->data_bytes;
        h.data_sum = sum;
        h.flags = req->no_sum && reply->data_bytes ? VVI_FLAG_NO_SUM : 0;
        sent = send_answer(req, &h, reply->body, &data);
        release_data(net, &data);
    }
    vv_mutex_lock(&net->lock);
    net->nr_reqs--;
    vv_mutex_unlock(&net->lock);
    free(req);
    return rc ? rc : sent;
}
