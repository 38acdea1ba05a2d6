/* SPDX-License-Identifier: Apache-2.0 */
/* The shared file system as the dataset cache sees it: a table, so that tests have one of their own. */
#ifndef VV_DATASET_SHARED_FS_H
#define VV_DATASET_SHARED_FS_H

#include "dataset/dataset.h"

/* What there is to know of a file. Whatever changes, of the fields outside of `gen`, changes its ctime
 * too, and so its generation; except for the time of the last access, which nobody gets to see. */
struct vv_shared_stat {
    struct vv_dataset_gen gen;
    uint32_t mode, uid, gid, nlink, blksize;
    uint32_t direct; /* 1: no link was on the way to it */
    uint64_t dev, blocks;
    uint64_t atime_ns; /* when it was looked at */
    uint64_t btime_ns; /* 0: the file system does not tell */
};

/* For clients. */
void vv_shared_stat_to_door(const struct vv_shared_stat *st, struct vv_door_stat *ret_stat);

struct vv_shared {
    /* What the file is now. -ENOENT, -EISDIR, -EACCES (not below a root, or not a file), or another error. */
    int (*look)(const struct vv_shared *s, const char *path, struct vv_shared_stat *ret_stat);
    /* Opens it for reading, and tells what it is. */
    int (*open)(const struct vv_shared *s, const char *path, int *ret_file,
                struct vv_shared_stat *ret_stat);
    /* One call, may be short; 0: the end. */
    int64_t (*read)(const struct vv_shared *s, int file, void *buf, size_t bytes, uint64_t offset);
    /* What an open one is now. */
    int (*look_again)(const struct vv_shared *s, int file, struct vv_shared_stat *ret_stat);
    void (*close)(const struct vv_shared *s, int file);
};

/* The real one, for files below some folders: absolute paths, which are resolved once, here. A path
 * may lead through links, but where it ends has to be below a root. -EINVAL: none, or one that is not
 * absolute; -ENOENT and other errors of resolving; -ENOMEM. */
VV_WARN_UNUSED int vv_shared_new(const char *const *roots, size_t nr_roots,
                                 struct vv_shared **ret_shared);
/* Accepts NULL. Only of what vv_shared_new made. */
void vv_shared_free(struct vv_shared *s);

#endif
