/* SPDX-License-Identifier: Apache-2.0 */
/* Copying one checkpoint file from target to target, at once or in steps with other work in between; and repairing
 * one from a copy. vvi_*: inside src/store. */
#ifndef VV_STORE_CKCOPY_H
#define VV_STORE_CKCOPY_H

#include "store/files/ckfile.h"
#include "store/remote/group.h"

/* Copies a checkpoint file, verified, from one history's place to another's, and commits it. An existing
 * file is replaced. -EBADMSG: the source is damaged. */
VV_WARN_UNUSED int vv_ckfile_copy(struct vv_target *from, struct vv_target *to, const char *name);

struct vvi_copy {
    struct vv_target_file *src, *dst; /* NULL: not open */
    struct vv_ckfile_info info;
    uint64_t header_sum;
    char *buf[2]; /* one is filled while the other is written */
    size_t buf_bytes;
    unsigned turn; /* index of the one to fill next */
    uint64_t at;   /* bytes of data copied */
};

/* Opens the source and creates the copy, which is written in order. On failure vvi_copy_end need not be called. */
int vvi_copy_begin(struct vvi_copy *c, struct vv_target *from, struct vv_target *to,
                   const char *name);
/* Copies more data, not much above max_bytes: *ret_bytes, 0 when all data has been copied. */
int vvi_copy_step(struct vvi_copy *c, uint64_t max_bytes, uint64_t *ret_bytes);
/* Writes the tables, and commits. `life`: must still be the rank's life; NULL: any. */
int vvi_copy_commit(struct vvi_copy *c, const struct vv_group *life,
                    struct vv_group_file *ret_file);
/* Ends a copy; deletes it if it was not committed. */
void vvi_copy_end(struct vvi_copy *c);

/* Reads the identity of a committed file, for its marker. */
int vvi_copy_identify(struct vv_target *target, const char *name, uint64_t *ret_run_id,
                      struct vv_group_file *ret_file);
/* Rewrites the wrong chunks among bytes [from, to) of a file, in place, with those of a good copy. -EBADMSG:
 * they are not two copies of one file, or both are wrong; -EOPNOTSUPP: the target cannot write in place.
 * *ret_repaired, always set: the number of rewritten chunks. */
int vvi_copy_repair(struct vv_target *good, struct vv_target *bad, const char *name, uint64_t from,
                    uint64_t to, uint64_t *ret_repaired);

/* Reads bytes [from, to) of the data to pages of page_bytes each, each chunk from the copy that has it
 * intact. A file of that name that differs from `id` (but for chunk_bytes) is not a copy. -EBADMSG: a chunk is
 * wrong in both; *ret_bad is a byte of it. */
int vvi_copy_gather(struct vv_target *const target[2], const struct vv_ckfile_id *id, uint64_t from,
                    uint64_t to, void *const *pages, uint32_t page_bytes, uint64_t *ret_bad);

#endif
