/* SPDX-License-Identifier: Apache-2.0 */
/* Targets: places that keep copies of files. One table of operations, and one folder for each backend.
 *
 * A target is a flat set of names; `below` opens another one. A file under a name is complete or absent: it gets
 * its name when it is committed, and a reader that has opened the replaced file still reads that one. Copying,
 * group records and repairs use this table alone, and no paths or descriptors.
 *
 * Errors are negative errnos; -ENOENT: the name does not exist; -ENODATA: the file ends before the range.
 * Threads: several may use a target at once; a file, and `create` of a folder, belong to one thread. */
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
    uint64_t bytes; /* length of the file; of a file being written, the announced length */
};

enum vv_target_open {
    VV_TARGET_READ,
    VV_TARGET_STREAM, /* whole file in order; memory, lengths and offsets are aligned as for a store */
    VV_TARGET_REPAIR /* for writing in place. -EOPNOTSUPP: the target replaces only whole files */
};

struct vv_target_ops {
    const char *name;
    /* `temp`: creates the place if it is missing, and makes the listing a fresh one by creating and removing a
     * file of that name. NULL: -ENOENT if the place is missing. */
    int (*below)(struct vv_target *target, const char *name, const char *temp,
                 struct vv_target **ret_target);
    void (*close)(struct vv_target *target);
    /* Calls visit for every name until it returns non-zero, and returns that. The names include temporary
     * ones whose writer has ended. bytes: length of the file, if the listing tells it. */
    int (*list)(struct vv_target *target,
                int (*visit)(void *user, const char *name, uint64_t bytes), void *user);
    /* Ends uploads that were begun under these names and never committed, if `list` does not show them.
     * NULL: not needed. */
    int (*sweep)(struct vv_target *target, bool (*mine)(void *user, const char *name), void *user);
    int (*remove)(struct vv_target *target, const char *name);
    /* Creates an empty file of that name. */
    int (*touch)(struct vv_target *target, const char *name);
    /* Makes removals durable, and files that were touched, or committed by others. */
    int (*sync)(struct vv_target *target);
    /* Takes an exclusive lock of that name, held until the file is ended; -EBUSY. */
    int (*lock)(struct vv_target *target, const char *name, struct vv_target_file **ret_file);
    int (*open)(struct vv_target *target, const char *name, enum vv_target_open how,
                struct vv_target_file **ret_file);
    /* For files opened with VV_TARGET_READ; several threads at once. */
    int (*get)(struct vv_target_file *file, void *buf, size_t bytes, uint64_t offset);
    /* Creates a file of that length, under the temporary name if the target uses such. */
    int (*create)(struct vv_target *target, const char *name, const char *temp, uint64_t bytes,
                  struct vv_target_file **ret_file);
    /* Writes a piece. `buf` belongs to the target until the next call on the file has returned. */
    int (*put)(struct vv_target_file *file, const void *buf, size_t bytes, uint64_t offset);
    /* Waits until all pieces have arrived; they survive if the file is committed. */
    int (*settle)(struct vv_target_file *file);
    /* Gives the file its name, replacing the file that had it. Once this returns 0 the file survives. */
    int (*commit)(struct vv_target_file *file);
    /* Removes the file if it was not committed. Accepts NULL. */
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

/* Returns 0 also if the name did not exist. */
static inline int vv_target_remove(struct vv_target *target, const char *name)
{
    int rc = target->ops->remove(target, name);
    return rc == -ENOENT ? 0 : rc;
}

/* A folder by its path, or "s3://bucket/prefix". Nothing is created. -ENOENT: the folder does not exist. */
struct vv_os;
VV_WARN_UNUSED int vv_target_open(const struct vv_os *os, const char *place, char *err,
                                  size_t err_bytes, struct vv_target **ret_target);

#endif
