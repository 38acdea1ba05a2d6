/* SPDX-License-Identifier: Apache-2.0 */
/* GPUDirect Storage as the stores use it: registered files, and threads that carry out requests,
 * because the library's calls are synchronous. */
#ifndef VV_STORE_GDS_PRIVATE_H
#define VV_STORE_GDS_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/copy.h"
#include "store/aio/gds.h"
#include "store/os.h"

/* A descriptor registered with the library. */
struct vvi_gds_file;

/* `fd`: opened with O_DIRECT; stays open until the file is removed. Any thread. */
VV_WARN_UNUSED int vvi_gds_file_add(struct vv_gds *gds, int fd, struct vvi_gds_file **ret_file);
/* The same for the first file in a folder. If the library refuses it, it does not work for this folder:
 * -ENOTSUP, and the reason in `err`. */
VV_WARN_UNUSED int vvi_gds_file_first(struct vv_gds *gds, int fd, bool direct, const char *folder,
                                      char *err, size_t err_bytes, struct vvi_gds_file **ret_file);
/* Call it with no request on the file in flight. Accepts NULL. */
void vvi_gds_file_remove(struct vvi_gds_file *file);

/* A range of device memory and its place in the file. */
struct vvi_gds_part {
    void *mem;
    uint64_t offset;
    uint64_t bytes;
};

/* The caller owns it and leaves it untouched from submit until reap returns it. */
struct vvi_gds_req {
    struct vvi_gds_file *file;
    bool write;
    struct vvi_gds_part *parts; /* consumed: entries change as a transfer goes on */
    size_t nparts;
    /* Memory to compute checksums of: after it was read, or before it is written. */
    struct vv_kernel_span *spans;
    size_t nspans;
    uint64_t *sums; /* one for each span, valid if result is 0 */
    /* Instead of all the above: copies from unregistered host memory. */
    struct vv_copy_seg *uploads;
    size_t nuploads;
    int result; /* 0: every byte; -ENODATA: the file ended first; or another -errno */
    void *user;
    struct vvi_gds_req *next; /* private */
};

/* A request with room for these numbers of parts, spans and uploads, in one block; free() frees it. */
struct vvi_gds_req *vvi_gds_req_new(size_t nparts, size_t nspans, size_t nuploads);

struct vvi_gds_pool;

/* After each request a thread of the pool calls `notify`, without holding a lock. */
VV_WARN_UNUSED int vvi_gds_pool_new(struct vv_gds *gds, const struct vv_os *os,
                                    void (*notify)(void *arg), void *arg,
                                    struct vvi_gds_pool **ret_pool);
/* Finishes all submitted requests. Accepts NULL. */
void vvi_gds_pool_free(struct vvi_gds_pool *pool);
void vvi_gds_submit(struct vvi_gds_pool *pool, struct vvi_gds_req *req);
/* A request that has ended, or NULL. */
struct vvi_gds_req *vvi_gds_reap(struct vvi_gds_pool *pool);

#endif
