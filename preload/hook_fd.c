/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors that files are written to by. Opening one reports the beginning of a change. The end is reported when
 * the descriptor is closed, by any call, or the process ends; calls in between that write to it are not hooked. One bit
 * per number shows that an end has to be reported; a superfluous bit costs one more report.
 *
 * A descriptor that replaces another one (dup2) takes its bit along: shells redirect that way, and closing the first
 * number does not end the change. A program starts with bits for its standard descriptors, if they are open for
 * writing on files below a root.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "preload/preload.h"

#define FDS        65536
#define WORD       64
#define PAGE       4096
#define COPY_BYTES ((size_t)16 << 20) /* at once; callers repeat the call */

#define NEXT(name) ((__typeof__(&name))vvi_preload_next(VVI_PRELOAD_##name))

/* Synchronization: relaxed; if two threads close the same number, the race is the program's own. */
static _Atomic uint64_t writes[FDS / WORD];

static bool is_written(int fd)
{
    return fd >= 0 && fd < FDS &&
           (atomic_load_explicit(&writes[fd / WORD], memory_order_relaxed) >> fd % WORD & 1);
}

void vvi_preload_writes(int fd)
{
    if (fd >= 0 && fd < FDS)
        atomic_fetch_or_explicit(&writes[fd / WORD], UINT64_C(1) << fd % WORD,
                                 memory_order_relaxed);
}

/* Clears the bit, but not in the child of a vfork: it closes its own descriptors, with its parent's memory. */
static void forget(int fd)
{
    if (is_written(fd) && !vvi_preload_is_vfork_child())
        atomic_fetch_and_explicit(&writes[fd / WORD], ~(UINT64_C(1) << fd % WORD),
                                  memory_order_relaxed);
}

/* ---- closing ---- */

HOOK(int, close, int fd)
{
    __typeof__(&close) next = NEXT(close);
    struct vvi_preload_slot *s = NULL;
    struct vvi_preload_change c;
    int rc;

    if (is_written(fd)) {
        s = vvi_preload_closing(fd, &c);
        forget(fd);
    }
    rc = next ? next(fd) : (int)syscall(SYS_close, fd);
    vvi_preload_closed(s, &c);
    return rc;
}

HOOK(int, fclose, FILE *f)
{
    __typeof__(&fclose) next = NEXT(fclose);
    struct vvi_preload_slot *s = NULL;
    struct vvi_preload_change c;
    int rc, fd = f ? fileno(f) : -1;

    if (is_written(fd)) {
        s = vvi_preload_closing(fd, &c);
        forget(fd);
    }
    rc = next ? next(f) : EOF;
    vvi_preload_closed(s, &c);
    return rc;
}

/* Reports all that are still open when the process ends. `flushed`: libc writes nothing after this; otherwise it may
 * still write to all except the standard ones. */
static void end_all(bool flushed)
{
    for (int i = 0; i < FDS / WORD; i++) {
        uint64_t bits = atomic_load_explicit(&writes[i], memory_order_relaxed);

        for (int k = 0; bits >> k; k++) {
            struct vvi_preload_change c;

            if (bits >> k & 1)
                vvi_preload_left(vvi_preload_closing(i * WORD + k, &c), &c,
                                 !flushed && i * WORD + k > 2);
            if (k == WORD - 1)
                break;
        }
    }
}

__attribute__((destructor)) static void finish(void)
{
    if (!vvi_preload_on())
        return;
    /* Libc flushes its streams after this function, so flush stdout here. Try its lock only: another thread may hold it
     * for ever. */
    if (is_written(1) && ftrylockfile(stdout) == 0) {
        fflush_unlocked(stdout);
        funlockfile(stdout);
    }
    end_all(false);
}

HOOK(_Noreturn void, _exit, int status)
{
    if (vvi_preload_on() && !vvi_preload_is_vfork_child())
        end_all(true);
    for (;;)
        syscall(SYS_exit_group, status);
}

HOOK(_Noreturn void, _Exit, int status)
{
    if (vvi_preload_on() && !vvi_preload_is_vfork_child())
        end_all(true);
    for (;;)
        syscall(SYS_exit_group, status);
}

/* Finds the standard descriptors that another program opened for writing to files below a root. */
void vvi_preload_inherit(void)
{
    int saved = errno;

    for (int fd = 0; fd < 3; fd++) {
        struct stat st;

        if (syscall(SYS_fstat, fd, &st) == 0 && S_ISREG(st.st_mode) &&
            (syscall(SYS_fcntl, fd, F_GETFL) & O_ACCMODE) != O_RDONLY && vvi_preload_fd_is_ours(fd))
            vvi_preload_writes(fd);
    }
    errno = saved;
}

/* ---- copies of descriptors ---- */

HOOK(int, dup, int fd)
{
    __typeof__(&dup) next = NEXT(dup);
    int to = next ? next(fd) : (int)syscall(SYS_dup, fd);

    if (to >= 0 && is_written(fd))
        vvi_preload_writes(to);
    return to;
}

/* Makes `to` a copy of `fd`, which closes the file that `to` was open on. */
static int replace(int fd, int to, int (*next)(int, int, int), int flags)
{
    struct vvi_preload_slot *s = NULL;
    struct vvi_preload_change c;
    int rc;

    if (fd != to && is_written(to))
        s = vvi_preload_closing(to, &c);
    rc = next(fd, to, flags);
    if (rc >= 0 && fd != to) {
        bool moves = is_written(fd);

        forget(to);
        if (moves)
            vvi_preload_writes(to);
        forget(moves ? fd : -1);
    }
    vvi_preload_closed(s, &c);
    return rc;
}

static int next_dup2(int fd, int to, int flags)
{
    __typeof__(&dup2) next = NEXT(dup2);

    if (next)
        return next(fd, to);
    return (int)syscall(SYS_dup3, fd, to, flags);
}

static int next_dup3(int fd, int to, int flags)
{
    __typeof__(&dup3) next = NEXT(dup3);

    return next ? next(fd, to, flags) : (int)syscall(SYS_dup3, fd, to, flags);
}

HOOK(int, dup2, int fd, int to)
{
    return replace(fd, to, next_dup2, 0);
}

HOOK(int, dup3, int fd, int to, int flags)
{
    return replace(fd, to, next_dup3, flags);
}

/* True if the descriptor is a copy's, from wherever this process got it. */
static bool is_copy(int fd)
{
    struct vv_server_stat original;
    int saved = errno;
    struct stat st;
    bool is = vvi_preload_on() && syscall(SYS_fstat, fd, &st) == 0 &&
              vvi_preload_original(fd, "", &st, &original);

    errno = saved;
    return is;
}

/* Hides the lock that keeps a copy in the cache. A copy cannot be locked for writing. */
static void hide_lock(int fd, struct flock *lock)
{
    if (lock->l_type == F_RDLCK && lock->l_pid == -1 && is_copy(fd))
        lock->l_type = F_UNLCK;
}

static int do_fcntl(int rc, int fd, int cmd, void *arg)
{
    if (rc >= 0 && (cmd == F_GETLK || cmd == F_OFD_GETLK))
        hide_lock(fd, arg);
    if (rc >= 0 && (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC) && is_written(fd))
        vvi_preload_writes(rc);
    return rc;
}

#define FCNTL(name)                                                                            \
    HOOK(int, name, int fd, int cmd, ...)                                                      \
    {                                                                                          \
        __typeof__(&fcntl) next = (__typeof__(&fcntl))vvi_preload_next(VVI_PRELOAD_##name);    \
        va_list ap;                                                                            \
        void *arg;                                                                             \
                                                                                               \
        va_start(ap, cmd);                                                                     \
        arg = va_arg(ap, void *);                                                              \
        va_end(ap);                                                                            \
        return do_fcntl(next ? next(fd, cmd, arg) : (int)syscall(SYS_fcntl, fd, cmd, arg), fd, \
                        cmd, arg);                                                             \
    }

FCNTL(fcntl)
FCNTL(fcntl64)

/* ---- writing other than by write ---- */

/* Called for the target of the calls below. A file that was not opened here is reported at the first write. */
static void written(int fd)
{
    struct vvi_preload_change c = {.dirfd = fd};
    int saved = errno;
    struct stat st;

    if (fd < 0 || is_written(fd) || !vvi_preload_on() || !vvi_preload_was_there())
        return;
    if (syscall(SYS_fstat, fd, &st) == 0 && S_ISREG(st.st_mode) &&
        (syscall(SYS_fcntl, fd, F_GETFL) & O_ACCMODE) != O_RDONLY) {
        vvi_preload_begin(&c);
        if (c.ours)
            vvi_preload_writes(fd);
    }
    errno = saved;
}

#define FTRUNCATE(name, type)                                               \
    HOOK(int, name, int fd, type size)                                      \
    {                                                                       \
        __typeof__(&name) next = NEXT(name);                                \
        struct vvi_preload_change c = {.dirfd = fd};                        \
        int rc;                                                             \
                                                                            \
        if (vvi_preload_was_there())                                        \
            if (is_written(fd) || vvi_preload_was_there())                  \
                vvi_preload_begin(&c);                                      \
        rc = next ? next(fd, size) : (int)syscall(SYS_ftruncate, fd, size); \
        vvi_preload_end(&c);                                                \
        return rc;                                                          \
    }

FTRUNCATE(ftruncate, off_t)
FTRUNCATE(ftruncate64, off64_t)

#define SENDFILE(name, type)                                          \
    HOOK(ssize_t, name, int to, int from, type *offset, size_t bytes) \
    {                                                                 \
        __typeof__(&name) next = NEXT(name);                          \
                                                                      \
        written(to);                                                  \
        return next ? next(to, from, offset, bytes)                   \
                    : syscall(SYS_sendfile, to, from, offset, bytes); \
    }

SENDFILE(sendfile, off_t)
SENDFILE(sendfile64, off64_t)

/* Copies a part of a copy with read and write: the kernel copies only between files of one file system, and the copy
 * is on another one than its original. Returns the number of bytes, or -1. */
static ssize_t copy_part(int from, off64_t *from_at, int to, off64_t *to_at, size_t bytes)
{
    off64_t at = from_at ? *from_at : syscall(SYS_lseek, from, 0L, SEEK_CUR), skip;
    struct stat st;
    void *map;
    ssize_t n;

    if (at < 0 || syscall(SYS_fstat, from, &st) < 0)
        return -1;
    if (at >= st.st_size)
        return 0;
    if (bytes > (size_t)(st.st_size - at))
        bytes = (size_t)(st.st_size - at);
    if (bytes > COPY_BYTES)
        bytes = COPY_BYTES;
    skip = at % PAGE;
    map = (void *)syscall(SYS_mmap, NULL, bytes + (size_t)skip, PROT_READ, MAP_PRIVATE, from,
                          at - skip);
    if (map == MAP_FAILED)
        return -1;
    n = to_at ? syscall(SYS_pwrite64, to, (char *)map + skip, bytes, *to_at)
              : syscall(SYS_write, to, (char *)map + skip, bytes);
    syscall(SYS_munmap, map, bytes + (size_t)skip);
    if (n <= 0)
        return n;
    if (from_at)
        *from_at += n;
    else
        syscall(SYS_lseek, from, at + n, SEEK_SET);
    if (to_at)
        *to_at += n;
    return n;
}

HOOK(ssize_t, copy_file_range, int from, off64_t *from_at, int to, off64_t *to_at, size_t bytes,
     unsigned flags)
{
    __typeof__(&copy_file_range) next = NEXT(copy_file_range);
    int saved = errno;
    ssize_t n;

    written(to);
    n = next ? next(from, from_at, to, to_at, bytes, flags)
             : syscall(SYS_copy_file_range, from, from_at, to, to_at, bytes, flags);
    if (n >= 0 || (errno != EXDEV && errno != EOPNOTSUPP) || !is_copy(from))
        return n;
    n = copy_part(from, from_at, to, to_at, bytes);
    if (n >= 0)
        errno = saved;
    return n;
}

/* Files of other nodes are in memory files, for which the kernel does not support RWF_NOWAIT. */
static bool in_memory(int fd, int flags)
{
    return (flags & RWF_NOWAIT) && errno == EOPNOTSUPP && is_copy(fd);
}

#define PREADV2(name, type)                                                          \
    HOOK(ssize_t, name, int fd, const struct iovec *iov, int nr, type at, int flags) \
    {                                                                                \
        __typeof__(&name) next = NEXT(name);                                         \
        int saved = errno;                                                           \
        ssize_t n = -1;                                                              \
                                                                                     \
        if (!next)                                                                   \
            errno = ENOSYS;                                                          \
        else                                                                         \
            n = next(fd, iov, nr, at, flags);                                        \
        if (n < 0 && in_memory(fd, flags)) {                                         \
            errno = saved;                                                           \
            n = next(fd, iov, nr, at, flags & ~RWF_NOWAIT);                          \
        }                                                                            \
        return n;                                                                    \
    }

PREADV2(preadv2, off_t)
PREADV2(preadv64v2, off64_t)

#define MMAP(name, type)                                                                       \
    HOOK(void *, name, void *at, size_t bytes, int protection, int flags, int fd, type offset) \
    {                                                                                          \
        __typeof__(&name) next = NEXT(name);                                                   \
                                                                                               \
        if ((protection & PROT_WRITE) && (flags & MAP_TYPE) != MAP_PRIVATE)                    \
            written(fd);                                                                       \
        if (next)                                                                              \
            return next(at, bytes, protection, flags, fd, offset);                             \
        return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);            \
    }

MMAP(mmap, off_t)
MMAP(mmap64, off64_t)
