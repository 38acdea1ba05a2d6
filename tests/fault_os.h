/* SPDX-License-Identifier: Apache-2.0 */
/* An OS table that fails on purpose: it counts calls and, at the Nth of the selected ones, fails it (once or from
 * then on), or kills the process before it. */
#ifndef FAULT_OS_H
#define FAULT_OS_H

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "store/os.h"

enum fault_call {
    FAULT_OPENAT,
    FAULT_MKDIRAT,
    FAULT_UNLINKAT,
    FAULT_RENAME,
    FAULT_FALLOCATE,
    FAULT_PUNCH,
    FAULT_FTRUNCATE,
    FAULT_FSYNC,
    FAULT_FILE_BYTES,
    FAULT_STAT,
    FAULT_FREE_BYTES,
    FAULT_PREAD,
    FAULT_PWRITE,
    FAULT_LOCK,
    FAULT_SEAL,
    FAULT_LIST,
    FAULT_AIO_READ,
    FAULT_AIO_WRITE,
    FAULT_AIO_FSYNC,
    FAULT_AIO_RANGE,
    FAULT_CALLS
};

enum fault_mode { FAULT_NONE, FAULT_ONCE, FAULT_FOREVER, FAULT_KILL };

struct fault_os {
    struct vv_os os; /* first: the functions get a pointer to it */
    const struct vv_os *real;
    _Atomic(enum fault_mode) mode; /* Synchronization: atomic; tests change it while threads run */
    unsigned calls;                /* bit set of fault_call; 0: all */
    long at;                       /* 1: the first */
    int err;
    int64_t short_bytes; /* > 0: every read and write transfers at most this */
    /* Synchronization: counters, from any thread. */
    atomic_long count;
    atomic_long per_call[FAULT_CALLS];
    atomic_int descriptors; /* open descriptors */
};

/* True: this call fails. Close never fails, because the test itself would then leak a descriptor. */
static inline bool fault_hit(const struct vv_os *os, enum fault_call call)
{
    struct fault_os *f = (struct fault_os *)(uintptr_t)os;
    atomic_fetch_add(&f->per_call[call], 1);
    if (f->calls != 0 && !(f->calls & 1u << call))
        return false;
    long n = atomic_fetch_add(&f->count, 1) + 1;
    if (f->mode == FAULT_KILL && n == f->at)
        kill(getpid(), SIGKILL);
    return (f->mode == FAULT_ONCE && n == f->at) || (f->mode == FAULT_FOREVER && n >= f->at);
}

#define FAULT_REAL(os) (((const struct fault_os *)(os))->real)
#define FAULT_ERR(os)  (-((const struct fault_os *)(os))->err)
#define FAULT_FORWARD(call, name, ...) \
    return fault_hit(os, call) ? FAULT_ERR(os) : FAULT_REAL(os)->name(FAULT_REAL(os), __VA_ARGS__)

static inline int fault_openat(const struct vv_os *os, int dirfd, const char *path, int flags,
                               unsigned mode)
{
    if (fault_hit(os, FAULT_OPENAT))
        return FAULT_ERR(os);
    int fd = FAULT_REAL(os)->openat(FAULT_REAL(os), dirfd, path, flags, mode);
    if (fd >= 0)
        atomic_fetch_add(&((struct fault_os *)(uintptr_t)os)->descriptors, 1);
    return fd;
}

static inline int fault_close(const struct vv_os *os, int fd)
{
    atomic_fetch_sub(&((struct fault_os *)(uintptr_t)os)->descriptors, 1);
    return FAULT_REAL(os)->close(FAULT_REAL(os), fd);
}

static inline int fault_mkdirat(const struct vv_os *os, int dirfd, const char *path, unsigned mode)
{
    FAULT_FORWARD(FAULT_MKDIRAT, mkdirat, dirfd, path, mode);
}

static inline int fault_unlinkat(const struct vv_os *os, int dirfd, const char *path)
{
    FAULT_FORWARD(FAULT_UNLINKAT, unlinkat, dirfd, path);
}

static inline int fault_rename(const struct vv_os *os, int dirfd, const char *from, const char *to,
                               bool may_replace)
{
    FAULT_FORWARD(FAULT_RENAME, rename, dirfd, from, to, may_replace);
}

static inline int fault_fallocate(const struct vv_os *os, int fd, uint64_t offset, uint64_t bytes)
{
    FAULT_FORWARD(FAULT_FALLOCATE, fallocate, fd, offset, bytes);
}

static inline int fault_punch(const struct vv_os *os, int fd, uint64_t offset, uint64_t bytes)
{
    FAULT_FORWARD(FAULT_PUNCH, punch, fd, offset, bytes);
}

static inline int fault_ftruncate(const struct vv_os *os, int fd, uint64_t bytes)
{
    FAULT_FORWARD(FAULT_FTRUNCATE, ftruncate, fd, bytes);
}

static inline int fault_fsync(const struct vv_os *os, int fd)
{
    FAULT_FORWARD(FAULT_FSYNC, fsync, fd);
}

static inline int fault_file_bytes(const struct vv_os *os, int fd, uint64_t *ret_bytes)
{
    FAULT_FORWARD(FAULT_FILE_BYTES, file_bytes, fd, ret_bytes);
}

static inline int fault_stat(const struct vv_os *os, int dirfd, const char *path,
                             uint64_t *ret_bytes)
{
    FAULT_FORWARD(FAULT_STAT, stat, dirfd, path, ret_bytes);
}

static inline int fault_free_bytes(const struct vv_os *os, int fd, uint64_t *ret_bytes)
{
    FAULT_FORWARD(FAULT_FREE_BYTES, free_bytes, fd, ret_bytes);
}

static inline int64_t fault_pread(const struct vv_os *os, int fd, void *buf, size_t bytes,
                                  uint64_t offset)
{
    if (((const struct fault_os *)os)->short_bytes > 0)
        bytes = VV_MIN(bytes, (size_t)((const struct fault_os *)os)->short_bytes);
    FAULT_FORWARD(FAULT_PREAD, pread, fd, buf, bytes, offset);
}

static inline int64_t fault_pwrite(const struct vv_os *os, int fd, const void *buf, size_t bytes,
                                   uint64_t offset)
{
    if (((const struct fault_os *)os)->short_bytes > 0)
        bytes = VV_MIN(bytes, (size_t)((const struct fault_os *)os)->short_bytes);
    FAULT_FORWARD(FAULT_PWRITE, pwrite, fd, buf, bytes, offset);
}

static inline int fault_lock(const struct vv_os *os, int fd)
{
    FAULT_FORWARD(FAULT_LOCK, lock, fd);
}

static inline int fault_lock_shared(const struct vv_os *os, int fd)
{
    FAULT_FORWARD(FAULT_LOCK, lock_shared, fd);
}

static inline int fault_lock_test(const struct vv_os *os, int fd)
{
    FAULT_FORWARD(FAULT_LOCK, lock_test, fd);
}

static inline int fault_seal(const struct vv_os *os, int fd)
{
    FAULT_FORWARD(FAULT_SEAL, seal, fd);
}

static inline int fault_sealed(const struct vv_os *os, int fd, uint8_t digest[VV_OS_DIGEST])
{
    FAULT_FORWARD(FAULT_SEAL, sealed, fd, digest);
}

/* Never fails, like close. */
static inline int fault_unlock(const struct vv_os *os, int fd)
{
    return FAULT_REAL(os)->unlock(FAULT_REAL(os), fd);
}

static inline int fault_list(const struct vv_os *os, int dirfd,
                             int (*visit)(void *user, const char *name), void *user)
{
    FAULT_FORWARD(FAULT_LIST, list, dirfd, visit, user);
}

static inline int64_t fault_aio(const struct vv_os *os, enum vv_os_aio op, int fd, uint64_t offset,
                                size_t bytes)
{
    (void)fd;
    (void)offset;
    const struct fault_os *f = (const struct fault_os *)os;
    if (fault_hit(os, op == VV_OS_AIO_READ    ? FAULT_AIO_READ
                      : op == VV_OS_AIO_WRITE ? FAULT_AIO_WRITE
                      : op == VV_OS_AIO_FSYNC ? FAULT_AIO_FSYNC
                                              : FAULT_AIO_RANGE))
        return FAULT_ERR(os);
    return bytes > (size_t)f->short_bytes ? f->short_bytes : 0;
}

/* Counts calls; nothing fails until mode, at, err and calls are set. */
static inline void fault_os_init(struct fault_os *f)
{
    memset(f, 0, sizeof(*f));
    f->real = vv_os_posix();
    f->err = EIO;
    f->os = (struct vv_os){
        .openat = fault_openat,
        .close = fault_close,
        .mkdirat = fault_mkdirat,
        .unlinkat = fault_unlinkat,
        .rename = fault_rename,
        .fallocate = fault_fallocate,
        .punch = fault_punch,
        .ftruncate = fault_ftruncate,
        .fsync = fault_fsync,
        .file_bytes = fault_file_bytes,
        .stat = fault_stat,
        .free_bytes = fault_free_bytes,
        .pread = fault_pread,
        .pwrite = fault_pwrite,
        .lock = fault_lock,
        .lock_shared = fault_lock_shared,
        .lock_test = fault_lock_test,
        .unlock = fault_unlock,
        .seal = fault_seal,
        .sealed = fault_sealed,
        .list = fault_list,
        .aio = fault_aio,
    };
}

#endif
