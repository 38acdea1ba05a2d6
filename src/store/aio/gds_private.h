/* SPDX-License-Identifier: Apache-2.0 */
/* GPUDirect Storage as the stores use it: files made known to the library, and threads that carry
 * out requests, because the library's calls return only when they are done. */
#ifndef VV_STORE_GDS_PRIVATE_H
#define VV_STORE_GDS_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/copy.h"
#include "store/aio/gds.h"
#include "store/os.h"

/* A descriptor as the library knows it. */
struct vvi_gds_file;

/* `fd`: opened with O_DIRECT; it stays open until the file was removed. Any thread. */
VV_WARN_UNUSED int vvi_gds_file_add(struct vv_gds *gds, int fd, struct vvi_gds_file **ret_file);
/* The same for the first file in a folder: what the library refuses there it does not do on this
 * machine. -ENOTSUP, and why in `err`. */
VV_WARN_UNUSED int vvi_gds_file_first(struct vv_gds *gds, int fd, bool direct, const char *folder,
                                      char *err, size_t err_bytes, struct vvi_gds_file **ret_file);
/* With no request on it in flight. Accepts NULL. */
void vvi_gds_file_remove(struct vvi_gds_file *file);

/* A stretch of device memory and the place in the file where it goes to or comes from. */
struct vvi_gds_part {
    void *mem;
    uint64_t offset;
    uint64_t bytes;
};

/* Owned by whoever made it; untouched from submit until reap returns it. */
struct vvi_gds_req {
    struct vvi_gds_file *file;
    bool write;
    struct vvi_gds_part *parts; /* consumed: entries change as a transfer goes on */
    size_t nparts;
    /* Memory whose checksums are wanted: of what was read, or of what is written. */
    struct vv_kernel_span *spans;
    size_t nspans;
    uint64_t *sums; /* one for each span, valid if result is 0 */
    /* Instead of all that: copies from unregistered host memory. */
    struct vv_copy_seg *uploads;
    size_t nuploads;
    int result; /* 0: every byte; -ENODATA: the file ended first; or another -errno */
    void *user;
    struct vvi_gds_req *next; /* private */
};

/* A request with room for so many of each in one piece of memory: free() ends it. */
struct vvi_gds_req *vvi_gds_req_new(size_t nparts, size_t nspans, size_t nuploads);

struct vvi_gds_pool;

/* `notify` is called by a thread of the pool each time a request has ended, without a lock. */
VV_WARN_UNUSED int vvi_gds_pool_new(struct vv_gds *gds, const struct vv_os *os,
                                    void (*notify)(void *arg), void *arg,
                                    struct vvi_gds_pool **ret_pool);
/* Finishes what was submitted. Accepts NULL. */
void vvi_gds_pool_free(struct vvi_gds_pool *pool);
void vvi_gds_submit(struct vvi_gds_pool *pool, struct vvi_gds_req *req);
/* One that has ended, or NULL. */
struct vvi_gds_req *vvi_gds_reap(struct vvi_gds_pool *pool);

#endif
