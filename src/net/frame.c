/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames and addresses: encoding and decoding. A header may be used only after vvi_head_decode has checked it: its
 * sizes are within the limits for a peer in that state, which is checked before anything is allocated by them; and its
 * checksum, which covers the body too, is right. No side effects, except for memory and the resolver.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/le.h"
#include "net/net_private.h"

#define WIRE_VERSION 1
#define CHECK_AT     56

/* The sum of the header without its sum field, and of the body, as one number. */
static uint64_t check_of(const uint8_t *wire, const void *body, size_t body_bytes)
{
    uint8_t both[16];

    vv_le_put(both, vv_hash64(wire, CHECK_AT), 8);
    vv_le_put(both + 8, vv_hash64(body_bytes ? body : "", body_bytes), 8);
    return vv_hash64(both, sizeof(both));
}

void vvi_head_encode(const struct vvi_head *h, const void *body, uint8_t ret_wire[VVI_NET_HEAD])
{
    vv_le_put(ret_wire, VVI_NET_MAGIC, 4);
    ret_wire[4] = WIRE_VERSION;
    ret_wire[5] = h->kind;
    vv_le_put(ret_wire + 6, h->type, 2);
    vv_le_put(ret_wire + 8, h->id, 8);
    vv_le_put(ret_wire + 16, h->epoch, 8);
    vv_le_put(ret_wire + 24, (uint32_t)h->status, 4);
    vv_le_put(ret_wire + 28, h->body_bytes, 4);
    vv_le_put(ret_wire + 32, h->data_bytes, 8);
    vv_le_put(ret_wire + 40, h->data_sum, 8);
    vv_le_put(ret_wire + 48, h->flags, 4);
    vv_le_put(ret_wire + 52, 0, 4);
    vv_le_put(ret_wire + CHECK_AT, check_of(ret_wire, body, h->body_bytes), 8);
}

int vvi_head_decode(const uint8_t wire[VVI_NET_HEAD], bool proved, struct vvi_head *ret_head)
{
    struct vvi_head h = {
        .kind = wire[5],
        .type = (uint16_t)vv_le_get(wire + 6, 2),
        .id = vv_le_get(wire + 8, 8),
        .epoch = vv_le_get(wire + 16, 8),
        .status = (int32_t)(uint32_t)vv_le_get(wire + 24, 4),
        .body_bytes = (uint32_t)vv_le_get(wire + 28, 4),
        .data_bytes = vv_le_get(wire + 32, 8),
        .data_sum = vv_le_get(wire + 40, 8),
        .flags = (uint32_t)vv_le_get(wire + 48, 4),
    };

    if (vv_le_get(wire, 4) != VVI_NET_MAGIC || wire[4] != WIRE_VERSION)
        return -EBADMSG;
    if (h.kind < VVI_HELLO || h.kind >= VVI_KINDS || h.status > 0)
        return -EBADMSG;
    if (h.body_bytes > (proved ? VV_NET_BODY_MAX : VVI_NET_PROOF_MAX))
        return -EBADMSG;
    if (!proved && h.kind >= VVI_MESSAGE)
        return -EBADMSG;
    if (h.data_bytes > VV_NET_DATA_MAX ||
        (h.data_bytes && h.kind != VVI_REQUEST && h.kind != VVI_ANSWER))
        return -EBADMSG;
    if (h.kind == VVI_ANSWER && h.data_bytes && h.body_bytes > VVI_NET_BULK_BODY)
        return -EBADMSG;
    if (h.flags & VVI_FLAG_APART && (h.kind != VVI_ANSWER || h.data_bytes == 0))
        return -EBADMSG;
    *ret_head = h;
    return 0;
}

bool vvi_head_check(const uint8_t wire[VVI_NET_HEAD], const void *body, size_t body_bytes)
{
    return vv_le_get(wire + CHECK_AT, 8) == check_of(wire, body, body_bytes);
}

struct vvi_frame *vvi_frame_new(const struct vvi_head *h, const void *body)
{
    struct vvi_frame *f = malloc(sizeof(*f) + VVI_NET_HEAD + h->body_bytes);

    if (!f)
        return NULL;
    *f = (struct vvi_frame){.fd = -1, .head_bytes = VVI_NET_HEAD + h->body_bytes};
    vvi_head_encode(h, body, f->bytes);
    if (h->body_bytes)
        memcpy(f->bytes + VVI_NET_HEAD, body, h->body_bytes);
    return f;
}

void vvi_frame_free(struct vv_net *net, struct vvi_frame *f)
{
    if (!f)
        return;
    if (f->peer) {
        vv_mutex_lock(&net->lock);
        struct vvi_peer *p = vvi_peer_find_locked(net, f->peer);
        if (p && p->queued)
            p->queued--;
        vv_mutex_unlock(&net->lock);
    }
    if (f->fd >= 0)
        close(f->fd);
    if (f->data)
        vvi_pool_give(net, f->data, f->data_room);
    free(f);
}

/* ---- addresses ---- */

/* Splits "host:port" or "[host]:port"; host may be empty. */
static int split(const char *text, char *host, size_t host_bytes, const char **ret_port)
{
    const char *colon = strrchr(text, ':'), *from = text;
    size_t n;

    if (!colon || !colon[1] || strlen(text) > VV_NET_ADDR_MAX)
        return -EINVAL;
    n = (size_t)(colon - text);
    if (n >= 2 && text[0] == '[') {
        if (colon[-1] != ']')
            return -EINVAL;
        from++;
        n -= 2;
    } else if (memchr(text, ':', n)) {
        return -EINVAL; /* ambiguous: several colons */
    }
    if (n >= host_bytes)
        return -EINVAL;
    memcpy(host, from, n);
    host[n] = '\0';
    *ret_port = colon + 1;
    return 0;
}

int vvi_addr_parse(const char *text, struct vvi_addr *ret_addr)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *list;
    char host[VV_NET_ADDR_MAX + 1];
    const char *port;
    int rc = split(text, host, sizeof(host), &port);

    if (rc)
        return rc;
    if (!host[0])
        hints.ai_flags |= AI_PASSIVE;
    if (getaddrinfo(host[0] ? host : NULL, port, &hints, &list) != 0)
        return -EINVAL;
    if (list->ai_addrlen > sizeof(ret_addr->sa)) {
        freeaddrinfo(list);
        return -EINVAL;
    }
    *ret_addr = (struct vvi_addr){.bytes = list->ai_addrlen};
    memcpy(&ret_addr->sa, list->ai_addr, list->ai_addrlen);
    freeaddrinfo(list);
    return 0;
}

bool vv_net_addr_is_numeric(const char *addr)
{
    char host[VV_NET_ADDR_MAX + 1];
    const char *port;
    uint8_t bytes[16];

    if (split(addr, host, sizeof(host), &port) != 0)
        return false;
    return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

uint16_t vvi_addr_port(const struct vvi_addr *a)
{
    if (a->sa.ss_family == AF_INET6)
        return ntohs(((const struct sockaddr_in6 *)&a->sa)->sin6_port);
    return ntohs(((const struct sockaddr_in *)&a->sa)->sin_port);
}

void vvi_addr_with_port(const char *text, uint16_t port, char ret_text[VV_NET_ADDR_MAX + 1])
{
    const char *colon = strrchr(text, ':');

    vv_assert(colon);
    snprintf(ret_text, VV_NET_ADDR_MAX + 1, "%.*s:%u", (int)(colon - text), text, (unsigned)port);
}
