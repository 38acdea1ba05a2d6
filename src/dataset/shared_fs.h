/* SPDX-License-Identifier: Apache-2.0 */
/* Where files come from, as the dataset cache sees it: a table of calls. Folders of the shared file system are one
 * backend (shared_fs.c), prefixes of buckets in an object store the other (shared_s3.c); a third one of the same kind
 * goes by the root that a path lies below (shared_roots.c). */
#ifndef VV_DATASET_SHARED_FS_H
#define VV_DATASET_SHARED_FS_H

#include "dataset/dataset.h"

/* What there is to know of a file. Whatever changes, of the fields outside of `gen`, changes its ctime
 * too, and so its generation; except for the time of the last access, which nobody gets to see. */
struct vv_shared_stat {
    struct vv_dataset_gen gen;
    uint32_t mode, uid, gid, nlink, blksize;
    uint32_t direct; /* 1: no link was on the way to it */
    uint32_t whole;  /* 1: it is replaced as a whole, and never read in the middle of a change */
    uint64_t dev, blocks;
    uint64_t atime_ns; /* when it was looked at */
    uint64_t btime_ns; /* 0: the file system does not tell */
    uint64_t age_ns;   /* so long ago this was found out; 0: just now */
};

/* For clients. */
void vv_shared_stat_to_wire(const struct vv_shared_stat *st, struct vv_server_stat *ret_stat);

struct vv_shared {
    /* What the file is now. -ENOENT, -EISDIR, -EACCES (not below a root, or not a file), or another error. */
    int (*look)(const struct vv_shared *s, const char *path, struct vv_shared_stat *ret_stat);
    /* Opens it for reading, and tells what it is. */
    int (*open)(const struct vv_shared *s, const char *path, intptr_t *ret_file,
                struct vv_shared_stat *ret_stat);
    /* One call, may be short; 0: the end. In order from the first byte on is fastest. */
    int64_t (*read)(const struct vv_shared *s, intptr_t file, void *buf, size_t bytes,
                    uint64_t offset);
    /* What an open one is now. */
    int (*look_again)(const struct vv_shared *s, intptr_t file, struct vv_shared_stat *ret_stat);
    void (*close)(const struct vv_shared *s, intptr_t file);
    void (*free)(struct vv_shared *s);
    /* Whether programs get to a path through the cache alone, as it is in no file system that they see. NULL: to none. */
    bool (*sole)(const struct vv_shared *s, const char *path);
    /* What is in a folder below which that is so: visits each name, in their order, until it returns non-zero, and
     * returns that. -ENOENT, -ENOTDIR. */
    int (*list)(const struct vv_shared *s, const char *path,
                int (*visit)(void *user, const char *name, const struct vv_shared_stat *st),
                void *user);
};

/* Folders of the shared file system: absolute paths, which are resolved once, here. A path
 * may lead through links, but where it ends has to be below a root. -EINVAL: none, or one that is not
 * absolute; -ENOENT and other errors of resolving; -ENOMEM. */
VV_WARN_UNUSED int vv_shared_new(const char *const *roots, size_t nr_roots,
                                 struct vv_shared **ret_shared);
/* Accepts NULL. */
void vv_shared_free(struct vv_shared *s);

/* Objects of a store (s3://bucket/prefix), as files below `path`. What is there is known from listings, each of which counts
 * for `revalidate_ns`, or if it took long for ten times as long as it took; 0: for good. -EINVAL, -ENOTSUP (no
 * libcurl) and the errors of vv_s3_new, with a text in `err`. The store is not asked. */
VV_WARN_UNUSED int vv_shared_s3_new(const char *url, const char *path, uint64_t revalidate_ns,
                                    char *err, size_t err_bytes, struct vv_shared **ret_shared);

/* ---- roots, as settings name them ---- */

/* FOLDER, or s3://BUCKET/PREFIX=FOLDER, which need not be there. */
struct vv_root {
    char *path; /* without a slash at its end, but for "/" */
    char *url;  /* NULL: a folder of the shared file system */
};

/* The next one of a list with colons in between, as strsep gives it: the colon of an address is none of them. */
char *vv_root_next(char **list);
/* Takes one apart. -EINVAL, with a text in `err`; -ENOMEM. */
VV_WARN_UNUSED int vv_root_parse(const char *text, struct vv_root *ret_root, char *err,
                                 size_t err_bytes);
void vv_root_fini(struct vv_root *r);
/* The device of what is below it, for programs; of an address only. */
uint64_t vv_root_dev(const struct vv_root *r);
/* Takes "." and ".." out of a path in which there are no links. */
void vv_root_clean(char *path);

/* All of them together. The errors of the two above, with a text in `err`. */
VV_WARN_UNUSED int vv_shared_roots_new(const char *const *roots, size_t nr_roots,
                                       uint64_t revalidate_ns, char *err, size_t err_bytes,
                                       struct vv_shared **ret_shared);

#endif
