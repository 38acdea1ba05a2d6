/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the aio backends. */
#ifndef VV_STORE_AIO_PRIVATE_H
#define VV_STORE_AIO_PRIVATE_H

#include "store/aio/aio.h"

/* Flags of sync_file_range for RANGE: the call also waits for writes that were under way before, and reports
 * their errors. */
#define VVI_AIO_RANGE_FLAGS \
    (SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER)

struct vv_aio {
    const struct vvi_aio_ops *ops;
    const struct vv_os *os;
    unsigned depth;
};

struct vvi_aio_ops {
    const char *name;
    void (*free)(struct vv_aio *aio);
    void (*submit)(struct vv_aio *aio, struct vv_aio_req *req);
    void (*flush)(struct vv_aio *aio);
    int (*wait)(struct vv_aio *aio, struct vv_aio_req **ret_reqs, unsigned max, int64_t timeout_ns);
    void (*kick)(struct vv_aio *aio);
};

/* First in, first out. */
struct vvi_aio_queue {
    struct vv_aio_req *head, **tail;
};

static inline void vvi_aio_queue_init(struct vvi_aio_queue *q)
{
    q->head = NULL;
    q->tail = &q->head;
}

static inline void vvi_aio_queue_push(struct vvi_aio_queue *q, struct vv_aio_req *req)
{
    req->next = NULL;
    *q->tail = req;
    q->tail = &req->next;
}

static inline struct vv_aio_req *vvi_aio_queue_pop(struct vvi_aio_queue *q)
{
    struct vv_aio_req *req = q->head;
    if (req) {
        q->head = req->next;
        if (!q->head)
            q->tail = &q->head;
        req->next = NULL;
    }
    return req;
}

/* Moves the start of a request past n transferred bytes. */
void vvi_aio_advance(struct vv_aio_req *req, size_t n);
size_t vvi_aio_left(const struct vv_aio_req *req);
/* Handles the kernel's answer to one attempt. True: the request has ended and its result is set. */
bool vvi_aio_answer(struct vv_aio_req *req, int64_t n);

/* Applies the fault hook to one attempt. Negative: fail the request with it. Otherwise the array and
 * count to use: the request's own, or, for a transfer cut short, one entry in *cut. */
int vvi_aio_attempt(const struct vv_aio *aio, const struct vv_aio_req *req, struct iovec *cut,
                    const struct iovec **ret_iov, unsigned *ret_niov);

int vvi_aio_uring_new(const struct vv_os *os, unsigned depth, struct vv_aio **ret_aio);
int vvi_aio_threads_new(const struct vv_os *os, unsigned depth, struct vv_aio **ret_aio);

#endif
