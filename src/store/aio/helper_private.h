/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the two ends of a helper: messages and names. Both ends run on one machine with the same
 * version number: messages are plain structures, and a helper of another version is refused. */
#ifndef VV_STORE_HELPER_PRIVATE_H
#define VV_STORE_HELPER_PRIVATE_H

#include <sys/socket.h>
#include <sys/un.h>

#include "store/aio/aio_private.h"
#include "store/aio/helper.h"

#define VVI_HELPER_VERSION 1u

enum vvi_helper_kind {
    VVI_HELPER_HELLO = 1, /* to the helper: the first message */
    VVI_HELPER_AREA,      /* memory, with its descriptor */
    VVI_HELPER_FORGET,    /* that memory is not used any more */
    VVI_HELPER_IO,        /* a request, with the descriptor of its file */
    VVI_HELPER_PING,
    VVI_HELPER_WELCOME, /* from the helper: the answer to HELLO */
    VVI_HELPER_DONE,    /* to IO */
    VVI_HELPER_REFUSED, /* to IO: nothing was done */
    VVI_HELPER_PONG
};

struct vvi_helper_seg {
    uint64_t offset; /* in the area */
    uint32_t area, bytes;
};

/* To the helper. */
struct vvi_helper_msg {
    uint32_t kind;
    uint32_t id;     /* of the request, or the area; of HELLO: the version */
    uint64_t offset; /* in the file; of AREA: bytes */
    uint32_t op;     /* enum vv_aio_op: READ or WRITE */
    uint32_t nsegs;
    struct vvi_helper_seg seg[VV_AIO_IOV_MAX]; /* sent as far as it is used */
};

#define VVI_HELPER_MSG_BYTES(nsegs) \
    (offsetof(struct vvi_helper_msg, seg) + (nsegs) * sizeof(struct vvi_helper_seg))

/* From the helper. */
struct vvi_helper_reply {
    uint32_t kind;
    uint32_t id;    /* of WELCOME: the version */
    int64_t result; /* as of preadv and pwritev, or -errno */
    uint64_t cpu_ns;
    int32_t cpu, nice;
    uint32_t threads; /* of WELCOME, as the next */
    char where[VV_HELPER_WHERE];
};

/* The address of a name. Abstract: it exists while a process listens on it, and leaves no file. */
socklen_t vvi_helper_address(const char *name, struct sockaddr_un *ret_addr);
/* The name, or the default for an empty one. */
const char *vvi_helper_name(const char *name);
/* Sends one message with at most one descriptor (-1: none). 0 or -errno. */
int vvi_helper_send(int fd, const void *msg, size_t bytes, int pass_fd, int flags);

/* ---- helper_start.c ---- */

/* Starts the program and waits until it, or another helper, listens. */
int vvi_helper_start(const struct vv_helper_opts *opts, const char *name, char *err,
                     size_t err_bytes);

/* ---- helper_client.c, for aio_helper.c ---- */

enum { VVI_HELPER_CALLS = 256, VVI_HELPER_BITS = 2 };

/* One mover's end. The helper's lock protects the lists; requests on them were sent and have come
 * back. */
struct vvi_helper_port {
    struct vvi_helper_port *next;
    struct vv_aio *inner;                /* kicked when a request comes back; immutable */
    struct vvi_aio_queue answered, redo; /* `result` of the first is the system call's */
};

void vvi_helper_attach(struct vv_helper *h, struct vvi_helper_port *port);
/* Call it with none of the port's requests in flight. */
void vvi_helper_detach(struct vv_helper *h, struct vvi_helper_port *port);
/* Takes the requests that have come back for the port. */
void vvi_helper_collect(struct vv_helper *h, struct vvi_helper_port *port,
                        struct vvi_aio_queue *ret_answered, struct vvi_aio_queue *ret_redo);
/*
 * Sends one attempt of a request, which comes back on one of the port's lists. `iov`, `niov`: the part to
 * transfer. The caller owns `msg` and may use it afterwards. Not 0: the request was not sent and must be
 * carried out here: the helper has ended, the memory or file is not suitable, or too many requests are
 * in flight.
 */
int vvi_helper_call(struct vv_helper *h, struct vvi_helper_port *port, struct vv_aio_req *req,
                    const struct iovec *iov, unsigned niov, struct vvi_helper_msg *msg);

#endif
