/* SPDX-License-Identifier: Apache-2.0 */
/* Common to the aio backends: choosing one, the bookkeeping of short transfers, and the fault hook. A
 * short read or write is not an error; the backend submits the rest again until the request is
 * complete, the file ends or the kernel refuses. */
#include "store/aio/aio.h"

#include <errno.h>

#include "base/assert.h"
#include "store/aio/aio_private.h"

int vv_aio_new(const struct vv_os *os, enum vv_aio_backend backend, unsigned depth,
               struct vv_aio **ret_aio)
{
    if (!os)
        os = vv_os_posix();
    if (depth == 0 || depth > 1024)
        return -EINVAL;
    if (backend != VV_AIO_THREADS) {
        int rc = vvi_aio_uring_new(os, depth, ret_aio);
        /* Old kernels, seccomp filters and sysctls all refuse with different codes; with AUTO each
         * of them leads to threads. */
        if (rc == 0 || backend == VV_AIO_URING)
            return rc;
    }
    return vvi_aio_threads_new(os, depth, ret_aio);
}

void vv_aio_free(struct vv_aio *aio)
{
    if (aio)
        aio->ops->free(aio);
}

const char *vv_aio_name(const struct vv_aio *aio)
{
    return aio->ops->name;
}

void vv_aio_submit(struct vv_aio *aio, struct vv_aio_req *req)
{
    vv_assert(vv_aio_is_sync(req->op) || (req->niov > 0 && req->niov <= VV_AIO_IOV_MAX));
    req->result = 0;
    aio->ops->submit(aio, req);
}

void vv_aio_flush(struct vv_aio *aio)
{
    aio->ops->flush(aio);
}

int vv_aio_wait(struct vv_aio *aio, struct vv_aio_req **ret_reqs, unsigned max, int64_t timeout_ns)
{
    return aio->ops->wait(aio, ret_reqs, max, timeout_ns);
}

void vv_aio_kick(struct vv_aio *aio)
{
    aio->ops->kick(aio);
}

void vvi_aio_advance(struct vv_aio_req *req, size_t n)
{
    req->offset += n;
    while (req->niov > 0 && n >= req->iov->iov_len) {
        n -= req->iov->iov_len;
        req->iov++;
        req->niov--;
    }
    if (n > 0) {
        req->iov->iov_base = (char *)req->iov->iov_base + n;
        req->iov->iov_len -= n;
    }
}

size_t vvi_aio_left(const struct vv_aio_req *req)
{
    size_t bytes = 0;
    for (unsigned i = 0; i < req->niov; i++)
        bytes += req->iov[i].iov_len;
    return bytes;
}

bool vvi_aio_answer(struct vv_aio_req *req, int64_t n)
{
    if (n == -EINTR || n == -EAGAIN)
        return false;
    if (n < 0) {
        req->result = (int)n;
        return true;
    }
    if (vv_aio_is_sync(req->op))
        return true;
    if (n == 0) {
        /* Nothing transferred and no error: for a read, the end of the file. A write that makes no
         * progress would be repeated for ever. */
        req->result = req->op == VV_AIO_READ ? -ENODATA : -EIO;
        return true;
    }
    vvi_aio_advance(req, (size_t)n);
    return req->niov == 0;
}

int vvi_aio_attempt(const struct vv_aio *aio, const struct vv_aio_req *req, struct iovec *cut,
                    const struct iovec **ret_iov, unsigned *ret_niov)
{
    *ret_iov = req->iov;
    *ret_niov = req->niov;
    if (!aio->os->aio)
        return 0;
    static const enum vv_os_aio ops[] = {
        [VV_AIO_READ] = VV_OS_AIO_READ,
        [VV_AIO_WRITE] = VV_OS_AIO_WRITE,
        [VV_AIO_FSYNC] = VV_OS_AIO_FSYNC,
        [VV_AIO_RANGE] = VV_OS_AIO_RANGE,
    };
    int64_t rc = aio->os->aio(aio->os, ops[req->op], req->fd, req->offset,
                              vv_aio_is_sync(req->op) ? 0 : vvi_aio_left(req));
    if (rc < 0)
        return (int)rc;
    if (rc > 0 && !vv_aio_is_sync(req->op)) {
        cut->iov_base = req->iov->iov_base;
        cut->iov_len = VV_MIN((size_t)rc, req->iov->iov_len);
        *ret_iov = cut;
        *ret_niov = 1;
    }
    return 0;
}
