/* SPDX-License-Identifier: Apache-2.0 */
/* The operating system as src/store sees it: every system call of the storage tiers goes through
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
    /* Fails with -EEXIST instead of replacing, where the file system can tell. */
    int (*rename)(const struct vv_os *os, int dirfd, const char *from, const char *to,
                  bool may_replace);
    /* Allocates blocks and sets the size. -EOPNOTSUPP where the file system cannot. */
    int (*fallocate)(const struct vv_os *os, int fd, uint64_t offset, uint64_t bytes);
    /* Gives blocks back; they read as zeros. -EOPNOTSUPP as before. NULL: not to be had. */
    int (*punch)(const struct vv_os *os, int fd, uint64_t offset, uint64_t bytes);
    int (*ftruncate)(const struct vv_os *os, int fd, uint64_t bytes);
    int (*fsync)(const struct vv_os *os, int fd);
    int (*file_bytes)(const struct vv_os *os, int fd, uint64_t *ret_bytes);
    /* The length of a file that is not open. -EBADMSG: what has this name is no regular file. */
    int (*stat)(const struct vv_os *os, int dirfd, const char *path, uint64_t *ret_bytes);
    int (*free_bytes)(const struct vv_os *os, int fd, uint64_t *ret_bytes);
    /* One system call each, may be short. */
    int64_t (*pread)(const struct vv_os *os, int fd, void *buf, size_t bytes, uint64_t offset);
    int64_t (*pwrite)(const struct vv_os *os, int fd, const void *buf, size_t bytes,
                      uint64_t offset);
    /* Exclusive lock of the open file, not of the process. -EBUSY if another holds it. */
    int (*lock)(const struct vv_os *os, int fd);
    /* A shared one, which keeps exclusive ones out. Whoever has a copy of the descriptor, by dup, fork
     * or a message, keeps it. -EBUSY if another holds an exclusive one. */
    int (*lock_shared)(const struct vv_os *os, int fd);
    /* Whether an exclusive one could be had: 0, or -EBUSY. Needs no right to write. */
    int (*lock_test)(const struct vv_os *os, int fd);
    /* Closing does not do it while a forked child has the descriptor too. */
    int (*unlock)(const struct vv_os *os, int fd);
    /* Calls visit for every entry but "." and "..", until it returns non-zero. */
    int (*list)(const struct vv_os *os, int dirfd, int (*visit)(void *user, const char *name),
                void *user);
    /* fs-verity: nobody can change the file any more, and the kernel checks what it reads of it. `fd` is open
     * for reading, and nobody may have the file open for writing. -EOPNOTSUPP where there is no such thing. */
    int (*seal)(const struct vv_os *os, int fd);
    /* The digest of a file that is sealed; -ENODATA: it is not. */
    int (*sealed)(const struct vv_os *os, int fd, uint8_t digest[VV_OS_DIGEST]);
    /* For vv_os_boot; NULL: the real one. */
    uint64_t (*boot)(const struct vv_os *os);
    /* Consulted by every backend of aio.h before it hands a request to the kernel. NULL or 0: go
     * on; negative: the request fails with this; positive: transfer at most that many bytes, as
     * a short read or write would. */
    int64_t (*aio)(const struct vv_os *os, enum vv_os_aio op, int fd, uint64_t offset,
                   size_t bytes);
};

/* Which start of the machine this is: another number after each, never 0. Where that cannot be told, another one
 * each time that it is asked for. */
uint64_t vv_os_boot(const struct vv_os *os);

/* The real one; immutable. */
const struct vv_os *vv_os_posix(void);

/* Does sync_file_range write out what it is asked to, on the file system of this file or folder? Some kernels and
 * file systems answer with success and do nothing. */
bool vv_os_syncs_ranges(int fd);

/* Opens a file that others may have put there, without O_CREAT. -EBADMSG: it is no regular file. Does
 * not wait for the other end of a FIFO. */
int vv_os_open_regular(const struct vv_os *os, int dirfd, const char *path, int flags);

/* All of it or an error; a read that meets the end of the file gives -ENODATA. */
int vv_os_read_all(const struct vv_os *os, int fd, void *buf, size_t bytes, uint64_t offset);
int vv_os_write_all(const struct vv_os *os, int fd, const void *buf, size_t bytes, uint64_t offset);

/* Makes the next listing of a folder the server's, where a client may hold an older one: network file
 * systems keep what they have listed for a while, but not past a change of their own. `name`: of a file
 * that is made for it and removed again. */
int vv_os_refresh(const struct vv_os *os, int dirfd, const char *name);

#endif
