/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stat and access families. By path: a file below a root is requested from the daemon, and the file system is asked
 * if the daemon declines. By descriptor: the kernel is asked always; if the descriptor is a copy's, the result
 * describes the original: device, inode, mode, owner and times are the same both ways, because programs compare them.
 * Paths that lead to a descriptor (/proc/self/fd/0, /dev/stdin) are treated like one.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "preload/preload.h"

_Static_assert(sizeof(struct stat) == sizeof(struct stat64), "one structure for both families");

typedef int stat_fn(const char *, struct stat *);
typedef int fstat_fn(int, struct stat *);
typedef int fstatat_fn(int, const char *, struct stat *, int);
typedef int xstat_fn(int, const char *, struct stat *);
typedef int fxstat_fn(int, int, struct stat *);
typedef int fxstatat_fn(int, int, const char *, struct stat *, int);

static struct timespec timespec_of(const struct vv_server_time *t)
{
    return (struct timespec){(time_t)t->sec, (long)t->nsec};
}

static void fill_stat(const struct vv_server_stat *from, struct stat *st)
{
    memset(st, 0, sizeof(*st));
    st->st_dev = (dev_t)from->dev;
    st->st_ino = (ino_t)from->ino;
    st->st_mode = (mode_t)from->mode;
    st->st_nlink = (nlink_t)from->nlink;
    st->st_uid = (uid_t)from->uid;
    st->st_gid = (gid_t)from->gid;
    st->st_rdev = (dev_t)from->rdev;
    st->st_size = (off_t)from->size;
    st->st_blksize = (blksize_t)from->blksize;
    st->st_blocks = (blkcnt_t)from->blocks;
    st->st_atim = timespec_of(&from->atime);
    st->st_mtim = timespec_of(&from->mtime);
    st->st_ctim = timespec_of(&from->ctime);
}

static bool from_daemon(int dirfd, const char *path, bool nofollow,
                        struct vvi_preload_answer *ret_answer)
{
    struct vvi_preload_ask ask = {.op = VV_SERVER_OP_STAT,
                                  .dirfd = dirfd,
                                  .path = path,
                                  .nofollow = nofollow,
                                  .cloexec = true};

    return vvi_preload_may_be_ours(path) && vvi_preload_ask(&ask, ret_answer);
}

/* Below a root that no file system has, only the daemon can answer. */
static bool is_sole(int dirfd, const char *path)
{
    return vvi_preload_on() && path && vvi_preload_is_sole(dirfd, path);
}

static int ask_sole(int dirfd, const char *path, struct vv_server_stat *ret_stat)
{
    struct vvi_preload_answer a = {.error = 0};

    if (from_daemon(dirfd, path, false, &a)) {
        *ret_stat = a.stat;
        return 0;
    }
    errno = a.error ? a.error : EIO;
    return -1;
}

static int fail(int error)
{
    errno = error;
    return -1;
}

/* True if a path may lead to an open descriptor. */
static bool leads_to_fd(const char *path)
{
    return strncmp(path, "/proc/", 6) == 0 || strncmp(path, "/dev/", 5) == 0;
}

/* Replaces the kernel's result for a descriptor, or for a path (fd -1), by the original's if it is a copy. */
static int amend(int rc, int fd, const char *path, struct stat *st)
{
    struct vv_server_stat original;

    if (rc == 0 && (fd >= 0 || leads_to_fd(path)) && vvi_preload_original(fd, path, st, &original))
        fill_stat(&original, st);
    return rc;
}

/* ---- by path ---- */

/* Calls the hook's own function, or the kernel. */
static int plain_stat(enum vvi_preload_hook hook, int dirfd, const char *path, int flags,
                      struct stat *st)
{
    void *next = vvi_preload_next(hook);

    switch (next ? hook : VVI_PRELOAD_COUNT) {
    case VVI_PRELOAD_stat:
    case VVI_PRELOAD_stat64:
    case VVI_PRELOAD_lstat:
    case VVI_PRELOAD_lstat64:
        return ((stat_fn *)next)(path, st);
    case VVI_PRELOAD_fstatat:
    case VVI_PRELOAD_fstatat64:
        return ((fstatat_fn *)next)(dirfd, path, st, flags);
    default:
        return (int)syscall(SYS_newfstatat, dirfd, path, st, flags);
    }
}

#define STAT_FLAGS (AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT)

static int do_stat(enum vvi_preload_hook hook, int dirfd, const char *path, int flags,
                   struct stat *st)
{
    struct vvi_preload_answer a;
    int rc;

    if (!vvi_preload_on() || !path || !st)
        return plain_stat(hook, dirfd, path, flags, st);
    if (is_sole(dirfd, path)) {
        if (ask_sole(dirfd, path, &a.stat) < 0)
            return -1;
        if (!vvi_preload_can_write(st, sizeof(*st)))
            return fail(EFAULT);
        fill_stat(&a.stat, st);
        return 0;
    }
    if ((flags & ~STAT_FLAGS) == 0 &&
        from_daemon(dirfd, path, (flags & AT_SYMLINK_NOFOLLOW) != 0, &a) &&
        vvi_preload_can_write(st, sizeof(*st))) {
        fill_stat(&a.stat, st);
        return 0;
    }
    rc = plain_stat(hook, dirfd, path, flags, st);
    if (rc != 0)
        return rc;
    if ((flags & AT_EMPTY_PATH) && *path == '\0')
        return amend(rc, dirfd, path, st);
    return (flags & AT_SYMLINK_NOFOLLOW) ? rc : amend(rc, -1, path, st);
}

#define STAT(name, flags)                                                \
    HOOK(int, name, const char *path, struct stat *st)                   \
    {                                                                    \
        return do_stat(VVI_PRELOAD_##name, AT_FDCWD, path, (flags), st); \
    }
#define FSTATAT(name)                                                        \
    HOOK(int, name, int dirfd, const char *path, struct stat *st, int flags) \
    {                                                                        \
        return do_stat(VVI_PRELOAD_##name, dirfd, path, flags, st);          \
    }

STAT(stat, 0)
STAT(stat64, 0)
STAT(lstat, AT_SYMLINK_NOFOLLOW)
STAT(lstat64, AT_SYMLINK_NOFOLLOW)
FSTATAT(fstatat)
FSTATAT(fstatat64)

/* The legacy calls begin with a version of the structure; only today's is handled here. */
#if defined(__x86_64__)
#define STAT_VERSION 1
#else
#define STAT_VERSION 0
#endif

static int bad_version(void)
{
    errno = EINVAL;
    return -1;
}

/* Another version goes to libc, if it has the function. */
static int legacy(enum vvi_preload_hook hook, int version, int dirfd, const char *path, int flags,
                  struct stat *st)
{
    void *next = vvi_preload_next(hook);

    if (version == STAT_VERSION)
        return do_stat(hook, dirfd, path, flags, st);
    if (!next)
        return bad_version();
    if (hook == VVI_PRELOAD___fxstatat || hook == VVI_PRELOAD___fxstatat64)
        return ((fxstatat_fn *)next)(version, dirfd, path, st, flags);
    return ((xstat_fn *)next)(version, path, st);
}

#define XSTAT(name, flags)                                                       \
    HOOK(int, name, int version, const char *path, struct stat *st)              \
    {                                                                            \
        return legacy(VVI_PRELOAD_##name, version, AT_FDCWD, path, (flags), st); \
    }
#define FXSTATAT(name)                                                                    \
    HOOK(int, name, int version, int dirfd, const char *path, struct stat *st, int flags) \
    {                                                                                     \
        return legacy(VVI_PRELOAD_##name, version, dirfd, path, flags, st);               \
    }

XSTAT(__xstat, 0)
XSTAT(__xstat64, 0)
XSTAT(__lxstat, AT_SYMLINK_NOFOLLOW)
XSTAT(__lxstat64, AT_SYMLINK_NOFOLLOW)
FXSTATAT(__fxstatat)
FXSTATAT(__fxstatat64)

/* ---- by descriptor ---- */

static int do_fstat(enum vvi_preload_hook hook, int fd, struct stat *st)
{
    fstat_fn *next = (fstat_fn *)vvi_preload_next(hook);
    int rc = next ? next(fd, st) : (int)syscall(SYS_fstat, fd, st);

    return vvi_preload_on() && st ? amend(rc, fd, "", st) : rc;
}

static int do_fxstat(enum vvi_preload_hook hook, int version, int fd, struct stat *st)
{
    fxstat_fn *next = (fxstat_fn *)vvi_preload_next(hook);
    int rc;

    if (!next && version != STAT_VERSION)
        return bad_version();
    rc = next ? next(version, fd, st) : (int)syscall(SYS_fstat, fd, st);
    return vvi_preload_on() && st && version == STAT_VERSION ? amend(rc, fd, "", st) : rc;
}

HOOK(int, fstat, int fd, struct stat *st)
{
    return do_fstat(VVI_PRELOAD_fstat, fd, st);
}

HOOK(int, fstat64, int fd, struct stat *st)
{
    return do_fstat(VVI_PRELOAD_fstat64, fd, st);
}

HOOK(int, __fxstat, int version, int fd, struct stat *st)
{
    return do_fxstat(VVI_PRELOAD___fxstat, version, fd, st);
}

HOOK(int, __fxstat64, int version, int fd, struct stat *st)
{
    return do_fxstat(VVI_PRELOAD___fxstat64, version, fd, st);
}

/* ---- statx ---- */

static struct statx_timestamp statx_time_of(const struct vv_server_time *t)
{
    return (struct statx_timestamp){.tv_sec = t->sec, .tv_nsec = t->nsec};
}

static void fill_statx(const struct vv_server_stat *from, struct statx *st)
{
    memset(st, 0, sizeof(*st));
    st->stx_mask = STATX_BASIC_STATS;
    st->stx_blksize = from->blksize;
    st->stx_nlink = (uint32_t)from->nlink;
    st->stx_uid = from->uid;
    st->stx_gid = from->gid;
    st->stx_mode = (uint16_t)from->mode;
    st->stx_ino = from->ino;
    st->stx_size = from->size;
    st->stx_blocks = from->blocks;
    st->stx_atime = statx_time_of(&from->atime);
    st->stx_mtime = statx_time_of(&from->mtime);
    st->stx_ctime = statx_time_of(&from->ctime);
    st->stx_dev_major = major((dev_t)from->dev);
    st->stx_dev_minor = minor((dev_t)from->dev);
    st->stx_rdev_major = major((dev_t)from->rdev);
    st->stx_rdev_minor = minor((dev_t)from->rdev);
    if (from->btime.sec != 0 || from->btime.nsec != 0) {
        st->stx_mask |= STATX_BTIME;
        st->stx_btime = statx_time_of(&from->btime);
    }
}

/* Replaces the result for a descriptor, or for a path, by the original's. */
static void amend_statx(int fd, const char *path, struct statx *st)
{
    struct vv_server_stat original;
    int saved = errno;
    struct stat real;

    /* Ask again: the caller's mask may leave out fields that identify the file. */
    if (S_ISREG(st->stx_mode) &&
        (fd >= 0 ? syscall(SYS_fstat, fd, &real)
                 : syscall(SYS_newfstatat, AT_FDCWD, path, &real, 0)) == 0 &&
        vvi_preload_original(fd, path, &real, &original))
        fill_statx(&original, st);
    errno = saved;
}

HOOK(int, statx, int dirfd, const char *path, int flags, unsigned mask, struct statx *st)
{
    int (*next)(int, const char *, int, unsigned, struct statx *) = (int (*)(
        int, const char *, int, unsigned, struct statx *))vvi_preload_next(VVI_PRELOAD_statx);
    bool on = vvi_preload_on() && path && st;
    struct vvi_preload_answer a;
    int rc;

    if (on && is_sole(dirfd, path)) {
        if (ask_sole(dirfd, path, &a.stat) < 0)
            return -1;
        if (!vvi_preload_can_write(st, sizeof(*st)))
            return fail(EFAULT);
        fill_statx(&a.stat, st);
        return 0;
    }
    if (on && (flags & ~(STAT_FLAGS | AT_STATX_DONT_SYNC)) == 0 &&
        (mask & ~(STATX_BASIC_STATS | STATX_BTIME)) == 0 &&
        from_daemon(dirfd, path, (flags & AT_SYMLINK_NOFOLLOW) != 0, &a) &&
        vvi_preload_can_write(st, sizeof(*st))) {
        fill_statx(&a.stat, st);
        return 0;
    }
    rc = next ? next(dirfd, path, flags, mask, st)
              : (int)syscall(SYS_statx, dirfd, path, flags, mask, st);
    if (rc != 0 || !on)
        return rc;
    if ((flags & AT_EMPTY_PATH) && *path == '\0')
        amend_statx(dirfd, path, st);
    else if (!(flags & AT_SYMLINK_NOFOLLOW) && leads_to_fd(path))
        amend_statx(-1, path, st);
    return rc;
}

/* ---- attributes ---- */

/* Hides the mark, so that programs that copy attributes do not copy it. */
HOOK(ssize_t, flistxattr, int fd, char *list, size_t bytes)
{
    ssize_t (*next)(int, char *, size_t) =
        (ssize_t(*)(int, char *, size_t))vvi_preload_next(VVI_PRELOAD_flistxattr);
    ssize_t n = next ? next(fd, list, bytes) : syscall(SYS_flistxattr, fd, list, bytes);

    if (n <= 0 || bytes == 0 || !vvi_preload_on())
        return n;
    for (char *at = list; at < list + n;) {
        size_t len = strnlen(at, (size_t)(list + n - at));

        if (len == sizeof(VV_SERVER_MARK_NAME) - 1 && memcmp(at, VV_SERVER_MARK_NAME, len) == 0 &&
            at + len < list + n) {
            memmove(at, at + len + 1, (size_t)(list + n - at) - len - 1);
            return n - (ssize_t)len - 1;
        }
        at += len + 1;
    }
    return n;
}

/* Files and links that no file system has have no attributes. */
typedef ssize_t getxattr_fn(const char *, const char *, void *, size_t);
typedef ssize_t listxattr_fn(const char *, char *, size_t);
typedef ssize_t readlinkat_fn(int, const char *, char *, size_t);

static int nothing(int dirfd, const char *path, int error)
{
    struct vv_server_stat st;

    return ask_sole(dirfd, path, &st) < 0 ? -1 : fail(error);
}

#define GETXATTR(name)                                                                 \
    HOOK(ssize_t, name, const char *path, const char *attr, void *value, size_t bytes) \
    {                                                                                  \
        getxattr_fn *next = (getxattr_fn *)vvi_preload_next(VVI_PRELOAD_##name);       \
                                                                                       \
        if (is_sole(AT_FDCWD, path))                                                   \
            return nothing(AT_FDCWD, path, ENODATA);                                   \
        return next ? next(path, attr, value, bytes)                                   \
                    : syscall(SYS_##name, path, attr, value, bytes);                   \
    }
#define LISTXATTR(name)                                                                 \
    HOOK(ssize_t, name, const char *path, char *list, size_t bytes)                     \
    {                                                                                   \
        listxattr_fn *next = (listxattr_fn *)vvi_preload_next(VVI_PRELOAD_##name);      \
        struct vv_server_stat st;                                                       \
                                                                                        \
        if (is_sole(AT_FDCWD, path))                                                    \
            return ask_sole(AT_FDCWD, path, &st);                                       \
        return next ? next(path, list, bytes) : syscall(SYS_##name, path, list, bytes); \
    }

GETXATTR(getxattr)
GETXATTR(lgetxattr)
LISTXATTR(listxattr)
LISTXATTR(llistxattr)

static ssize_t do_readlink(enum vvi_preload_hook hook, int dirfd, const char *path, char *buf,
                           size_t bytes)
{
    void *next = vvi_preload_next(hook);

    if (is_sole(dirfd, path))
        return nothing(dirfd, path, EINVAL);
    if (!next)
        return syscall(SYS_readlinkat, dirfd, path, buf, bytes);
    return hook == VVI_PRELOAD_readlink ? ((listxattr_fn *)next)(path, buf, bytes)
                                        : ((readlinkat_fn *)next)(dirfd, path, buf, bytes);
}

HOOK(ssize_t, readlink, const char *path, char *buf, size_t bytes)
{
    return do_readlink(VVI_PRELOAD_readlink, AT_FDCWD, path, buf, bytes);
}

HOOK(ssize_t, readlinkat, int dirfd, const char *path, char *buf, size_t bytes)
{
    return do_readlink(VVI_PRELOAD_readlinkat, dirfd, path, buf, bytes);
}

/* ---- access ---- */

typedef int access_fn(const char *, int);
typedef int faccessat_fn(int, const char *, int, int);

/* The file can be read if the daemon has it open for this user; otherwise the answer is unknown. */
static bool is_readable(int dirfd, const char *path, int mode, bool nofollow)
{
    struct vvi_preload_answer a;

    return vvi_preload_on() && path && (mode & ~R_OK) == 0 &&
           from_daemon(dirfd, path, nofollow, &a) && (mode == F_OK || a.readable);
}

static int access_sole(int dirfd, const char *path, int mode)
{
    struct vv_server_stat st;

    if (ask_sole(dirfd, path, &st) < 0)
        return -1;
    if (mode & W_OK)
        return fail(EROFS);
    return (mode & X_OK) && !S_ISDIR(st.mode) ? fail(EACCES) : 0;
}

static int do_access(enum vvi_preload_hook hook, const char *path, int mode)
{
    access_fn *next = (access_fn *)vvi_preload_next(hook);

    if (is_sole(AT_FDCWD, path))
        return access_sole(AT_FDCWD, path, mode);
    if (is_readable(AT_FDCWD, path, mode, false))
        return 0;
    return next ? next(path, mode) : (int)syscall(SYS_faccessat, AT_FDCWD, path, mode);
}

HOOK(int, access, const char *path, int mode)
{
    return do_access(VVI_PRELOAD_access, path, mode);
}

HOOK(int, euidaccess, const char *path, int mode)
{
    return do_access(VVI_PRELOAD_euidaccess, path, mode);
}

HOOK(int, eaccess, const char *path, int mode)
{
    return do_access(VVI_PRELOAD_eaccess, path, mode);
}

HOOK(int, faccessat, int dirfd, const char *path, int mode, int flags)
{
    faccessat_fn *next = (faccessat_fn *)vvi_preload_next(VVI_PRELOAD_faccessat);

    if (is_sole(dirfd, path))
        return access_sole(dirfd, path, mode);
    if ((flags & ~(AT_EACCESS | AT_SYMLINK_NOFOLLOW)) == 0 &&
        is_readable(dirfd, path, mode, (flags & AT_SYMLINK_NOFOLLOW) != 0))
        return 0;
    if (next)
        return next(dirfd, path, mode, flags);
    return (int)syscall(SYS_faccessat, dirfd, path, mode);
}
