/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous file I/O with one interface over three backends: io_uring, a pool of threads that
 * call preadv and pwritev, and a helper process with one of these beside it. One thread owns an aio
 * and submits and reaps; only kick may be called from other threads. */
#ifndef VV_STORE_AIO_H
#define VV_STORE_AIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/util.h"
#include "store/os.h"

enum vv_aio_backend { VV_AIO_AUTO, VV_AIO_URING, VV_AIO_THREADS };
/* FSYNC is a full fsync: on a folder, fdatasync may leave out the new entry. RANGE writes out what was written
 * to [offset, offset + bytes): it can be read back from then on, even if a later write-back fails, but only an
 * FSYNC makes it outlive a power cut. bytes 0: the whole file, by fdatasync. */
enum vv_aio_op { VV_AIO_READ, VV_AIO_WRITE, VV_AIO_FSYNC, VV_AIO_RANGE };

static inline bool vv_aio_is_sync(enum vv_aio_op op)
{
    return op == VV_AIO_FSYNC || op == VV_AIO_RANGE;
}

#define VV_AIO_IOV_MAX 512u

/* The caller owns it and leaves it untouched from submit until wait returns it. The iovec array is
 * consumed: its entries change when a transfer goes on after a short one. */
struct vv_aio_req {
    enum vv_aio_op op;
    int fd;
    uint64_t offset;
    uint32_t bytes; /* RANGE */
    struct iovec *iov;
    unsigned niov;  /* at most VV_AIO_IOV_MAX */
    bool may_block; /* buffered I/O: keep the copy away from the submitting thread */
    int result;     /* 0: every byte; -ENODATA: the file ended first; or another -errno */
    void *user;
    struct vv_aio_req *next; /* private */
};

struct vv_aio;

/* depth: requests handed to the kernel at once; more are queued. AUTO takes io_uring where it was
 * compiled in and the kernel allows it. URING fails with -EOPNOTSUPP where it does not. */
VV_WARN_UNUSED int vv_aio_new(const struct vv_os *os, enum vv_aio_backend backend, unsigned depth,
                              struct vv_aio **ret_aio);
/* The same with a helper process, which carries out the requests that it can; NULL: none. */
struct vv_helper;
VV_WARN_UNUSED int vv_aio_new_helped(const struct vv_os *os, enum vv_aio_backend backend,
                                     unsigned depth, struct vv_helper *helper,
                                     struct vv_aio **ret_aio);
/* Waits for the requests in flight. Accepts NULL. */
void vv_aio_free(struct vv_aio *aio);
const char *vv_aio_name(const struct vv_aio *aio);

/* Takes the request; the kernel may see it only at the next flush or wait. Never fails: errors
 * are results. */
void vv_aio_submit(struct vv_aio *aio, struct vv_aio_req *req);
/* Hands everything submitted to the kernel without waiting. */
void vv_aio_flush(struct vv_aio *aio);
/* Returns up to max finished requests. Waits until there is one; 0: kicked; -ETIMEDOUT: timeout_ns
 * passed; any other error: the kernel refuses to wait, nothing changes. timeout_ns 0 polls,
 * negative waits without limit. A kick that came while no thread waited ends the next wait that
 * has nothing to return. */
VV_WARN_UNUSED int vv_aio_wait(struct vv_aio *aio, struct vv_aio_req **ret_reqs, unsigned max,
                               int64_t timeout_ns);
/* Pause between two tries, for a caller that must repeat a failed wait. */
#define VV_AIO_REST_NS UINT64_C(1000000)
/* Any thread. */
void vv_aio_kick(struct vv_aio *aio);

#endif
