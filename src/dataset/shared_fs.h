/* SPDX-License-Identifier: Apache-2.0 */
/* The source of files for the dataset cache: a table of calls. Folders of the shared file system are one backend
 * (shared_fs.c), prefixes of buckets in an object store the other (shared_s3.c). A third table of the same kind chooses
 * by the root that a path lies below (shared_roots.c). */
#ifndef VV_DATASET_SHARED_FS_H
#define VV_DATASET_SHARED_FS_H

#include "dataset/dataset.h"

/* The description of a file. A change of any field outside of `gen` changes the ctime too, and so the generation;
 * except for the time of the last access, which programs never get. */
struct vv_shared_stat {
    struct vv_dataset_gen gen;
    uint32_t mode, uid, gid, nlink, blksize;
    uint32_t direct; /* 1: no link was on the way to it */
    uint32_t whole;  /* 1: it is replaced as a whole, and never read in the middle of a change */
    uint64_t dev, blocks;
    uint64_t atime_ns; /* when it was checked */
    uint64_t btime_ns; /* 0: the file system does not report it */
    uint64_t age_ns;   /* of this description; 0: just made */
};

/* For clients. */
void vv_shared_stat_to_wire(const struct vv_shared_stat *st, struct vv_server_stat *ret_stat);

struct vv_shared {
    /* Describes the file as it is now. -ENOENT, -EISDIR, -EACCES (outside of the roots, or not a file), or others. */
    int (*look)(const struct vv_shared *s, const char *path, struct vv_shared_stat *ret_stat);
    /* Opens it for reading, and describes it. */
    int (*open)(const struct vv_shared *s, const char *path, intptr_t *ret_file,
                struct vv_shared_stat *ret_stat);
    /* One call, may be short; 0: the end. Reading in order from the first byte is fastest. */
    int64_t (*read)(const struct vv_shared *s, intptr_t file, void *buf, size_t bytes,
                    uint64_t offset);
    /* Describes an open file as it is now. */
    int (*look_again)(const struct vv_shared *s, intptr_t file, struct vv_shared_stat *ret_stat);
    void (*close)(const struct vv_shared *s, intptr_t file);
    void (*free)(struct vv_shared *s);
    /* True if programs get the path only through the cache, as it is in no file system that they see. May be NULL. */
    bool (*sole)(const struct vv_shared *s, const char *path);
    /* Lists a folder of such a path: visits each name, in order, until that returns non-zero, and returns that value.
     * -ENOENT, -ENOTDIR. */
    int (*list)(const struct vv_shared *s, const char *path,
                int (*visit)(void *user, const char *name, const struct vv_shared_stat *st),
                void *user);
};

/* Folders of the shared file system: absolute paths, which are resolved once, here. A path may lead through links, but
 * must end below a root. -EINVAL: no root, or one that is not absolute; -ENOENT and other errors of resolving;
 * -ENOMEM. */
VV_WARN_UNUSED int vv_shared_new(const char *const *roots, size_t nr_roots,
                                 struct vv_shared **ret_shared);
/* Accepts NULL. */
void vv_shared_free(struct vv_shared *s);

/* Objects of a store (s3://bucket/prefix), as files below `path`. They are found by listings. A listing is valid for
 * `revalidate_ns`, or for ten times its own duration if that is longer; 0: for good. -EINVAL, -ENOTSUP (no libcurl)
 * and the errors of vv_s3_new, with a text in `err`. This call makes no request. */
VV_WARN_UNUSED int vv_shared_s3_new(const char *url, const char *path, uint64_t revalidate_ns,
                                    char *err, size_t err_bytes, struct vv_shared **ret_shared);

/* ---- roots, as settings name them ---- */

/* FOLDER, or s3://BUCKET/PREFIX=FOLDER, which need not exist. */
struct vv_root {
    char *path; /* without a slash at its end, except for "/" */
    char *url;  /* NULL: a folder of the shared file system */
};

/* The next root of a list with colons in between, as with strsep; the colon of an address does not separate. */
char *vv_root_next(char **list);
/* Parses a root. -EINVAL, with a text in `err`; -ENOMEM. */
VV_WARN_UNUSED int vv_root_parse(const char *text, struct vv_root *ret_root, char *err,
                                 size_t err_bytes);
void vv_root_fini(struct vv_root *r);
/* The device of files below an address, for programs. */
uint64_t vv_root_dev(const struct vv_root *r);
/* Removes "." and ".." from a path without links. */
void vv_root_clean(char *path);

/* All roots in one table. The errors of vv_shared_new and vv_shared_s3_new, with a text in `err`. */
VV_WARN_UNUSED int vv_shared_roots_new(const char *const *roots, size_t nr_roots,
                                       uint64_t revalidate_ns, char *err, size_t err_bytes,
                                       struct vv_shared **ret_shared);

#endif
