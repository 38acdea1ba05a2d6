/* SPDX-License-Identifier: Apache-2.0 */
/* The operating system as src/store sees it. Every system call of the storage tiers goes through
 * one table, so that a test can fail, shorten or kill at any of them. Functions return 0 (or a
 * count, or a descriptor) and a negative errno on failure. */
#ifndef VV_STORE_OS_H
#define VV_STORE_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum vv_os_aio { VV_OS_AIO_READ, VV_OS_AIO_WRITE, VV_OS_AIO_FSYNC, VV_OS_AIO_RANGE };

#define VV_OS_DIGEST 32

struct vv_os {
    int (*openat)(const struct vv_os *os, int dirfd, const char *path, int flags, unsigned mode);
    int (*close)(const struct vv_os *os, int fd);
    int (*mkdirat)(const struct vv_os *os, int dirfd, const char *path, unsigned mode);
    int (*unlinkat)(const struct vv_os *os, int dirfd, const char *path);
    /* Fails with -EEXIST instead of replacing, if the file system supports that. */
    int (*rename)(const struct vv_os *os, int dirfd, const char *from, const char *to,
                  bool may_replace);
    /* Allocates blocks and sets the size. -EOPNOTSUPP where the file system cannot. */
    int (*fallocate)(const struct vv_os *os, int fd, uint64_t offset, uint64_t bytes);
    /* Frees blocks; they read as zeros. -EOPNOTSUPP where the file system cannot. NULL: not supported. */
    int (*punch)(const struct vv_os *os, int fd, uint64_t offset, uint64_t bytes);
    int (*ftruncate)(const struct vv_os *os, int fd, uint64_t bytes);
    int (*fsync)(const struct vv_os *os, int fd);
    int (*file_bytes)(const struct vv_os *os, int fd, uint64_t *ret_bytes);
    /* Length of a file that is not open. -EBADMSG: the name is not a regular file. */
    int (*stat)(const struct vv_os *os, int dirfd, const char *path, uint64_t *ret_bytes);
    int (*free_bytes)(const struct vv_os *os, int fd, uint64_t *ret_bytes);
    /* One system call each, may be short. */
    int64_t (*pread)(const struct vv_os *os, int fd, void *buf, size_t bytes, uint64_t offset);
    int64_t (*pwrite)(const struct vv_os *os, int fd, const void *buf, size_t bytes,
                      uint64_t offset);
    /* Exclusive lock of the open file, not of the process. -EBUSY if another holds it. */
    int (*lock)(const struct vv_os *os, int fd);
    /* Shared lock, which keeps exclusive ones out. Every copy of the descriptor, by dup, fork or a
     * message, holds it. -EBUSY if another open file holds an exclusive one. */
    int (*lock_shared)(const struct vv_os *os, int fd);
    /* 0 if an exclusive lock could be taken, -EBUSY otherwise. Needs no write permission. */
    int (*lock_test)(const struct vv_os *os, int fd);
    /* Close is not enough while a forked child also has the descriptor. */
    int (*unlock)(const struct vv_os *os, int fd);
    /* Calls visit for every entry except "." and "..", until visit returns non-zero. */
    int (*list)(const struct vv_os *os, int dirfd, int (*visit)(void *user, const char *name),
                void *user);
    /* fs-verity: the file becomes read-only for ever, and the kernel verifies every read. `fd` is
     * open for reading, and no descriptor may be open for writing. -EOPNOTSUPP if the file system
     * has no fs-verity. */
    int (*seal)(const struct vv_os *os, int fd);
    /* Digest of a sealed file. -ENODATA: the file is not sealed. */
    int (*sealed)(const struct vv_os *os, int fd, uint8_t digest[VV_OS_DIGEST]);
    /* For vv_os_boot; NULL: the real one. */
    uint64_t (*boot)(const struct vv_os *os);
    /* Called by every backend of aio.h before it hands a request to the kernel. NULL or 0: go on;
     * negative: the request fails with this; positive: transfer at most that many bytes, as a short
     * read or write would. */
    int64_t (*aio)(const struct vv_os *os, enum vv_os_aio op, int fd, uint64_t offset,
                   size_t bytes);
};

/* Identifies this boot of the machine: a different number after each, never 0. If the boot cannot
 * be identified, each call returns a different number. */
uint64_t vv_os_boot(const struct vv_os *os);

/* The real one; immutable. */
const struct vv_os *vv_os_posix(void);

/* True if sync_file_range writes data out on the file system of this file or folder. On some
 * kernels and file systems it returns success and does nothing. */
bool vv_os_syncs_ranges(int fd);

/* Opens a file that other processes may have put there, without O_CREAT. -EBADMSG: not a regular
 * file. Does not wait for the other end of a FIFO. */
int vv_os_open_regular(const struct vv_os *os, int dirfd, const char *path, int flags);

/* Transfer all bytes or fail; a read past the end of the file gives -ENODATA. */
int vv_os_read_all(const struct vv_os *os, int fd, void *buf, size_t bytes, uint64_t offset);
int vv_os_write_all(const struct vv_os *os, int fd, const void *buf, size_t bytes, uint64_t offset);

/* Makes the next listing of a folder come from the server. Network file systems cache listings
 * for a while, but discard the cached one when the client itself changes the folder: so a file
 * `name` is created and removed. */
int vv_os_refresh(const struct vv_os *os, int dirfd, const char *name);

#endif
