/* SPDX-License-Identifier: Apache-2.0 */
/* Copying one checkpoint file from folder to folder, at once or in steps, with other work in between; and repairing one
 * from a copy. vvi_*: inside src/store. */
#ifndef VV_STORE_CKCOPY_H
#define VV_STORE_CKCOPY_H

#include "store/aio/aio.h"
#include "store/files/ckfile.h"
#include "store/remote/group.h"

/* Copies a checkpoint file, verified, from one history's folder to another's, as a commit. A file
 * that is there is replaced. -EBADMSG: the source is damaged. */
VV_WARN_UNUSED int vv_ckfile_copy(const struct vv_os *os, int src_dirfd, int dst_dirfd,
                                  const char *name);

struct vvi_copy {
    const struct vv_os *os;
    int src_dirfd, dst_dirfd;
    bool src_direct, dst_direct;
    char name[VV_CKFILE_NAME_MAX], temp[VV_CKFILE_NAME_MAX];
    int src, dst; /* -1: not open */
    struct vv_ckfile_info info;
    char *buf[2]; /* one is filled while the other is being written; the second with an aio only */
    size_t buf_bytes;
    unsigned turn; /* which is filled next */
    /* The write under way. */
    struct vv_aio *aio; /* NULL: writes are waited for at once */
    struct vv_aio_req req;
    struct iovec iov;
    bool writing;
    uint64_t at; /* bytes of data copied */
    bool created;
};

/* Opens the source and creates the temporary file. On failure there is nothing to end. `aio`: the
 * caller's, for this copy alone until it has ended; what was read is then written while the next is
 * read. NULL: one after the other. */
int vvi_copy_begin(struct vvi_copy *c, const struct vv_os *os, struct vv_aio *aio, int src_dirfd,
                   bool src_direct, int dst_dirfd, bool dst_direct, const char *name);
/* Moves some more, not much above max_bytes: *ret_bytes, 0 when all data has been copied. */
int vvi_copy_step(struct vvi_copy *c, uint64_t max_bytes, uint64_t *ret_bytes);
/* Tables, fsync, rename, fsync of the folder. `life`: that it must be the rank's; NULL: any. */
int vvi_copy_commit(struct vvi_copy *c, const struct vv_group *life,
                    struct vv_group_file *ret_file);
/* Ends a copy, removing what was not committed. */
void vvi_copy_end(struct vvi_copy *c);

/* What a committed file is, for its marker. */
int vvi_copy_identify(const struct vv_os *os, int dirfd, const char *name, uint64_t *ret_run_id,
                      struct vv_group_file *ret_file);
/* Rewrites the wrong chunks among bytes [from, to) of a file, in place, with those of a good copy.
 * -EBADMSG: they are not two copies of one file, or both are wrong. *ret_repaired is set always: the
 * chunks that were put right. */
int vvi_copy_mend(const struct vv_os *os, int good_dirfd, int bad_dirfd, const char *name,
                  uint64_t from, uint64_t to, uint64_t *ret_repaired);

/* Reads bytes [from, to) of the data, chunk by chunk from whichever of two copies has it good, to
 * pages of page_bytes each. -EBADMSG: a chunk is wrong in both, *ret_bad is a byte of it. */
int vvi_copy_gather(const struct vv_os *os, const int dirfd[2], const char *name, uint64_t from,
                    uint64_t to, void *const *pages, uint32_t page_bytes, uint64_t *ret_bad);

#endif
