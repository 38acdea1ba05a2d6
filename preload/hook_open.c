/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The open and fopen families. A file that is opened for reading only, with plain flags, is requested from the
 * daemon. All other calls, and all requests that the daemon declines, are made as without this library, so that the
 * result, errno and side effects are the kernel's. An open for writing is reported before the call, so that no
 * program gets the old content after it, and again when the file is closed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/preload.h"

#define LARGE 0100000 /* O_LARGEFILE of the kernel; libc's is 0 where all files are large */

/* Flags allowed beside O_RDONLY. Others change the file that is opened, or the behaviour of the descriptor. */
#define PLAIN (O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW | LARGE)

typedef int open_fn(const char *, int, ...);
typedef int openat_fn(int, const char *, int, ...);
typedef int open_2_fn(const char *, int);
typedef int openat_2_fn(int, const char *, int);
typedef int creat_fn(const char *, mode_t);
typedef FILE *fopen_fn(const char *, const char *);
typedef FILE *freopen_fn(const char *, const char *, FILE *);

static bool is_write(int flags)
{
    /* O_PATH opens nothing for access; O_TMPFILE names a folder. */
    if ((flags & O_PATH) == O_PATH || (flags & O_TMPFILE) == O_TMPFILE)
        return false;
    return (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0;
}

static bool is_plain_read(int flags)
{
    return (flags & O_ACCMODE) == O_RDONLY && (flags & ~(O_ACCMODE | PLAIN)) == 0;
}

/* After an open for writing: a failed one ends the change; otherwise closing the descriptor does. */
static void opened(struct vvi_preload_change *c, int fd)
{
    int saved = errno;
    struct stat st;

    if (!c->ours)
        return;
    if (fd < 0 || syscall(SYS_fstat, fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        vvi_preload_end(c);
        errno = saved;
        return;
    }
    vvi_preload_wrote(vvi_preload_inode_hash((uint64_t)st.st_ino));
    vvi_preload_writes(fd);
}

/* Returns the daemon's descriptor; -1: the caller opens the file itself. Keeps errno. */
static int from_daemon(int dirfd, const char *path, int flags)
{
    struct vvi_preload_ask ask = {.op = VV_SERVER_OP_OPEN,
                                  .dirfd = dirfd,
                                  .path = path,
                                  .nofollow = (flags & O_NOFOLLOW) != 0,
                                  .cloexec = (flags & O_CLOEXEC) != 0};
    struct vvi_preload_answer a;
    int saved = errno;

    if (!vvi_preload_may_be_ours(path) || !vvi_preload_ask(&ask, &a))
        return -1;
    if ((flags & O_NONBLOCK) && syscall(SYS_fcntl, a.fd, F_SETFL, O_RDONLY | O_NONBLOCK) < 0) {
        syscall(SYS_close, a.fd);
        errno = saved;
        return -1;
    }
    vvi_preload_saw(&a.real, &a.stat);
    return a.fd;
}

static int plain_openat(enum vvi_preload_hook hook, int dirfd, const char *path, int flags,
                        mode_t mode)
{
    void *next = vvi_preload_next(hook);

    switch (next ? hook : VVI_PRELOAD_COUNT) {
    case VVI_PRELOAD_open:
    case VVI_PRELOAD_open64:
    case VVI_PRELOAD___open:
    case VVI_PRELOAD___open64:
        return ((open_fn *)next)(path, flags, mode);
    case VVI_PRELOAD_openat:
    case VVI_PRELOAD_openat64:
        return ((openat_fn *)next)(dirfd, path, flags, mode);
    case VVI_PRELOAD___open_2:
    case VVI_PRELOAD___open64_2:
        return ((open_2_fn *)next)(path, flags);
    case VVI_PRELOAD___openat_2:
    case VVI_PRELOAD___openat64_2:
        return ((openat_2_fn *)next)(dirfd, path, flags);
    default:
        return (int)syscall(SYS_openat, dirfd, path, flags, mode);
    }
}

/* After a call that failed with errno: true if it may be repeated, because a descriptor is free now. `saved`: errno
 * before the call. */
static bool once_more(int saved)
{
    if (errno != EMFILE || !vvi_preload_give_way())
        return false;
    errno = saved;
    return true;
}

/* Below a root that no file system has, only the daemon can answer. */
static int open_sole(int dirfd, const char *path, int flags)
{
    struct vvi_preload_ask ask = {
        .op = VV_SERVER_OP_OPEN, .dirfd = dirfd, .path = path, .cloexec = (flags & O_CLOEXEC) != 0};
    struct vvi_preload_answer a = {.error = EISDIR};

    if (is_write(flags) || (flags & O_TMPFILE) == O_TMPFILE) {
        errno = EROFS;
        return -1;
    }
    if ((flags & O_DIRECTORY) || !vvi_preload_ask(&ask, &a)) {
        if (a.error == EISDIR)
            return vvi_preload_open_folder(dirfd, path, ask.cloexec);
        errno = a.error == ENOENT && (flags & O_CREAT) ? EROFS : a.error;
        return -1;
    }
    if ((flags & O_CREAT) && (flags & O_EXCL)) {
        syscall(SYS_close, a.fd);
        errno = EEXIST;
        return -1;
    }
    if (flags & O_NONBLOCK)
        syscall(SYS_fcntl, a.fd, F_SETFL, O_RDONLY | O_NONBLOCK);
    vvi_preload_saw(&a.real, &a.stat);
    return a.fd;
}

/* Common part of all of them. */
static int do_open(enum vvi_preload_hook hook, int dirfd, const char *path, int flags, mode_t mode)
{
    struct vvi_preload_change c = {
        .dirfd = dirfd, .path = path, .is_new = (flags & O_EXCL) != 0 && (flags & O_CREAT) != 0};
    int fd, saved = errno;

    if (!vvi_preload_on() || !path)
        return plain_openat(hook, dirfd, path, flags, mode);
    if (vvi_preload_is_sole(dirfd, path))
        return open_sole(dirfd, path, flags);
    if (is_plain_read(flags)) {
        fd = from_daemon(dirfd, path, flags);
        if (fd >= 0)
            return fd;
    }
    if (is_write(flags))
        vvi_preload_begin(&c);
    fd = plain_openat(hook, dirfd, path, flags, mode);
    if (fd < 0 && once_more(saved))
        fd = plain_openat(hook, dirfd, path, flags, mode);
    opened(&c, fd);
    return fd;
}

/* The mode argument is passed only if a file may be created. */
#define MODE_OF(flags, last)                                     \
    mode_t mode = 0;                                             \
    if (((flags)&O_CREAT) || ((flags)&O_TMPFILE) == O_TMPFILE) { \
        va_list ap;                                              \
        va_start(ap, last);                                      \
        mode = va_arg(ap, mode_t);                               \
        va_end(ap);                                              \
    }

#define OPEN(name)                                                       \
    HOOK(int, name, const char *path, int flags, ...)                    \
    {                                                                    \
        MODE_OF(flags, flags)                                            \
        return do_open(VVI_PRELOAD_##name, AT_FDCWD, path, flags, mode); \
    }
#define OPENAT(name)                                                  \
    HOOK(int, name, int dirfd, const char *path, int flags, ...)      \
    {                                                                 \
        MODE_OF(flags, flags)                                         \
        return do_open(VVI_PRELOAD_##name, dirfd, path, flags, mode); \
    }

OPEN(open)
OPEN(open64)
OPEN(__open)
OPEN(__open64)
OPENAT(openat)
OPENAT(openat64)

HOOK(int, __open_2, const char *path, int flags)
{
    return do_open(VVI_PRELOAD___open_2, AT_FDCWD, path, flags, 0);
}

HOOK(int, __open64_2, const char *path, int flags)
{
    return do_open(VVI_PRELOAD___open64_2, AT_FDCWD, path, flags, 0);
}

HOOK(int, __openat_2, int dirfd, const char *path, int flags)
{
    return do_open(VVI_PRELOAD___openat_2, dirfd, path, flags, 0);
}

HOOK(int, __openat64_2, int dirfd, const char *path, int flags)
{
    return do_open(VVI_PRELOAD___openat64_2, dirfd, path, flags, 0);
}

static int do_creat(enum vvi_preload_hook hook, const char *path, mode_t mode)
{
    struct vvi_preload_change c = {.dirfd = AT_FDCWD, .path = path};
    creat_fn *next = (creat_fn *)vvi_preload_next(hook);
    int fd, saved = errno;

    if (path && vvi_preload_refuses(AT_FDCWD, path))
        return -1;
    if (path)
        vvi_preload_begin(&c);
    do {
        fd = next ? next(path, mode)
                  : (int)syscall(SYS_openat, AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
    } while (fd < 0 && vvi_preload_on() && once_more(saved));
    opened(&c, fd);
    return fd;
}

HOOK(int, creat, const char *path, mode_t mode)
{
    return do_creat(VVI_PRELOAD_creat, path, mode);
}

HOOK(int, creat64, const char *path, mode_t mode)
{
    return do_creat(VVI_PRELOAD_creat64, path, mode);
}

/* ---- streams ---- */

/* Flags of open for a mode, as far as from_daemon needs them; -1: not for reading only. */
static int flags_of(const char *mode)
{
    int flags = O_RDONLY;

    if (mode[0] != 'r')
        return -1;
    for (const char *at = mode + 1; *at; at++) {
        if (*at == '+' || *at == ',') /* for writing, or with a character set */
            return -1;
        if (*at == 'e')
            flags |= O_CLOEXEC;
    }
    return flags;
}

static bool is_write_mode(const char *mode)
{
    return mode[0] == 'w' || mode[0] == 'a' || strchr(mode, '+') != NULL;
}

/* -1, with errno: also for a folder, which a stream would take for a file. */
static int open_for_stream(const char *path, const char *mode)
{
    int flags = flags_of(mode), fd;

    fd = open_sole(AT_FDCWD, path, is_write_mode(mode) ? O_RDWR : flags < 0 ? O_RDONLY : flags);
    if (fd < 0 || !vvi_preload_is_folder(fd))
        return fd;
    syscall(SYS_close, fd);
    errno = EISDIR;
    return -1;
}

static FILE *do_fopen(enum vvi_preload_hook hook, const char *path, const char *mode)
{
    fopen_fn *next = (fopen_fn *)vvi_preload_next(hook);
    bool on = vvi_preload_on() && path && mode;
    struct vvi_preload_change c = {.dirfd = AT_FDCWD, .path = path};
    int flags = on ? flags_of(mode) : -1, saved = errno;
    FILE *f;

    if (on && vvi_preload_is_sole(AT_FDCWD, path)) {
        int fd = open_for_stream(path, mode);

        f = fd >= 0 ? fdopen(fd, mode) : NULL;
        if (fd >= 0 && !f)
            syscall(SYS_close, fd);
        return f;
    }
    if (flags >= 0) {
        int fd = from_daemon(AT_FDCWD, path, flags);

        f = fd >= 0 ? fdopen(fd, mode) : NULL;
        if (f)
            return f;
        if (fd >= 0)
            syscall(SYS_close, fd);
    }
    if (!next) {
        errno = ENOSYS;
        return NULL;
    }
    if (on && is_write_mode(mode))
        vvi_preload_begin(&c);
    f = next(path, mode);
    if (!f && on && once_more(saved))
        f = next(path, mode);
    opened(&c, f ? fileno(f) : -1);
    return f;
}

HOOK(FILE *, fopen, const char *path, const char *mode)
{
    return do_fopen(VVI_PRELOAD_fopen, path, mode);
}

HOOK(FILE *, fopen64, const char *path, const char *mode)
{
    return do_fopen(VVI_PRELOAD_fopen64, path, mode);
}

/* Opens the stream again through the name of the daemon's descriptor, and then replaces the stream's descriptor by the
 * daemon's, which carries the lock that keeps the file. */
static FILE *reopen(freopen_fn *next, int fd, int flags, const char *mode, FILE *stream)
{
    char link[40];
    FILE *f;

    vvi_preload_link_of(fd, link);
    f = next(link, mode, stream);
    if (f)
        (void)syscall(SYS_dup3, fd, fileno(f), flags & O_CLOEXEC);
    syscall(SYS_close, fd);
    return f;
}

static bool is_room_for_one(void)
{
    int saved = errno;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, "/", O_PATH | O_CLOEXEC);

    if (fd >= 0)
        syscall(SYS_close, fd);
    errno = saved;
    return fd >= 0;
}

static FILE *do_freopen(enum vvi_preload_hook hook, const char *path, const char *mode,
                        FILE *stream)
{
    freopen_fn *next = (freopen_fn *)vvi_preload_next(hook);
    bool on = vvi_preload_on() && path && mode && stream;
    struct vvi_preload_change c = {.dirfd = AT_FDCWD, .path = path};
    int flags = on ? flags_of(mode) : -1, fd = -1, saved;
    FILE *f;

    if (!next) {
        errno = ENOSYS;
        return NULL;
    }
    if (on && vvi_preload_is_sole(AT_FDCWD, path)) {
        fd = open_for_stream(path, mode);
        if (fd >= 0)
            return reopen(next, fd, flags, mode, stream);
        saved = errno;
        fclose(stream);
        errno = saved;
        return NULL;
    }
    /* Without /proc the attempt would close the stream. */
    if (flags >= 0 && syscall(SYS_faccessat, AT_FDCWD, "/proc/self/fd", F_OK) == 0)
        fd = from_daemon(AT_FDCWD, path, flags);
    /* So would an attempt with only one free descriptor: libc opens the new file before it closes the old one. */
    if (fd >= 0 && !is_room_for_one()) {
        syscall(SYS_close, fd);
        fd = -1;
    }
    if (fd >= 0)
        return reopen(next, fd, flags, mode, stream);
    /* The call cannot be repeated, because a failed one closes the stream. */
    if (on && vvi_preload_was_there() && !is_room_for_one())
        (void)vvi_preload_give_way();
    if (on && is_write_mode(mode))
        vvi_preload_begin(&c);
    f = next(path, mode, stream);
    opened(&c, f ? fileno(f) : -1);
    return f;
}

HOOK(FILE *, freopen, const char *path, const char *mode, FILE *stream)
{
    return do_freopen(VVI_PRELOAD_freopen, path, mode, stream);
}

HOOK(FILE *, freopen64, const char *path, const char *mode, FILE *stream)
{
    return do_freopen(VVI_PRELOAD_freopen64, path, mode, stream);
}

/* ---- changes of the root and of namespaces ---- */

HOOK(int, chroot, const char *path)
{
    int (*next)(const char *) = (int (*)(const char *))vvi_preload_next(VVI_PRELOAD_chroot);
    int rc = next ? next(path) : (int)syscall(SYS_chroot, path);

    if (rc == 0)
        vvi_preload_view_changed();
    return rc;
}

HOOK(int, unshare, int flags)
{
    int (*next)(int) = (int (*)(int))vvi_preload_next(VVI_PRELOAD_unshare);
    int rc = next ? next(flags) : (int)syscall(SYS_unshare, flags);

    if (rc == 0)
        vvi_preload_view_changed();
    return rc;
}

HOOK(int, setns, int fd, int type)
{
    int (*next)(int, int) = (int (*)(int, int))vvi_preload_next(VVI_PRELOAD_setns);
    int rc = next ? next(fd, type) : (int)syscall(SYS_setns, fd, type);

    if (rc == 0)
        vvi_preload_view_changed();
    return rc;
}
