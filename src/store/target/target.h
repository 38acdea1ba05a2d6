/* SPDX-License-Identifier: Apache-2.0 */
/* Targets: places that keep copies of files. One table of operations, and one folder for each backend.
 *
 * A target is a flat set of names; `below` gives another one. What a name holds is whole or not there: a file
 * gets its name when it is committed, and a reader of an older file of that name keeps it. Copying, group
 * records and repairs go through the table and know neither paths nor descriptors.
 *
 * Errors are negative errnos; -ENOENT: there is no such name, -ENODATA: the file ends before that.
 * Threads: a target may be used by several at once; a file by one, and the folder's `create` by one. */
#ifndef VV_STORE_TARGET_H
#define VV_STORE_TARGET_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

struct vv_target;

#define VV_TARGET_BYTES_UNKNOWN UINT64_MAX

struct vv_target_file {
    const struct vv_target_ops *ops;
    uint64_t bytes; /* the length of the file; of one that is being written, what was announced */
};

enum vv_target_open {
    VV_TARGET_READ,
    VV_TARGET_STREAM, /* all of it in order: memory, lengths and offsets are aligned as for a store */
    VV_TARGET_REPAIR /* for writing in place. -EOPNOTSUPP: the target replaces whole files only */
};

struct vv_target_ops {
    const char *name;
    /* `temp`: creates the place if it is missing, and makes sure of a fresh listing by a file of that name
     * that is made and removed again. NULL: -ENOENT if it is missing. */
    int (*below)(struct vv_target *target, const char *name, const char *temp,
                 struct vv_target **ret_target);
    void (*close)(struct vv_target *target);
    /* Calls visit for every name until it returns non-zero, and returns that. Temporary names that
     * nobody writes any more may be among them. bytes: the length of the file, where that is known without
     * another look. */
    int (*list)(struct vv_target *target,
                int (*visit)(void *user, const char *name, uint64_t bytes), void *user);
    /* Ends what was begun under these names and never committed, where `list` does not show it. NULL:
     * there is no such thing. */
    int (*sweep)(struct vv_target *target, bool (*mine)(void *user, const char *name), void *user);
    int (*remove)(struct vv_target *target, const char *name);
    /* An empty file of that name. */
    int (*touch)(struct vv_target *target, const char *name);
    /* What was removed stays removed, and what was touched, or committed by others, stays. */
    int (*sync)(struct vv_target *target);
    /* An exclusive lock by that name until the file is ended; -EBUSY. */
    int (*lock)(struct vv_target *target, const char *name, struct vv_target_file **ret_file);
    int (*open)(struct vv_target *target, const char *name, enum vv_target_open how,
                struct vv_target_file **ret_file);
    /* Of a file opened with VV_TARGET_READ: several threads at once. */
    int (*get)(struct vv_target_file *file, void *buf, size_t bytes, uint64_t offset);
    /* A new file of that length, under the temporary name where the target has such. */
    int (*create)(struct vv_target *target, const char *name, const char *temp, uint64_t bytes,
                  struct vv_target_file **ret_file);
    /* A piece. `buf` is the target's until the next call on the file has returned. */
    int (*put)(struct vv_target_file *file, const void *buf, size_t bytes, uint64_t offset);
    /* All pieces have arrived, and survive if the file is committed. */
    int (*settle)(struct vv_target_file *file);
    /* The file has its name, in place of another one that had it. When this returns 0 it survives. */
    int (*commit)(struct vv_target_file *file);
    /* Removes what was not committed. Accepts NULL. */
    void (*end)(struct vv_target_file *file);
};

struct vv_target {
    const struct vv_target_ops *ops;
};

static inline void vv_target_end(struct vv_target_file *file)
{
    if (file)
        file->ops->end(file);
}

static inline void vv_target_close(struct vv_target *target)
{
    if (target)
        target->ops->close(target);
}

/* 0 also if it was not there. */
static inline int vv_target_remove(struct vv_target *target, const char *name)
{
    int rc = target->ops->remove(target, name);
    return rc == -ENOENT ? 0 : rc;
}

/* A folder by its path, or "s3://bucket/prefix". Nothing is created. -ENOENT: there is no such folder. */
struct vv_os;
VV_WARN_UNUSED int vv_target_open(const struct vv_os *os, const char *place, char *err,
                                  size_t err_bytes, struct vv_target **ret_target);

#endif
