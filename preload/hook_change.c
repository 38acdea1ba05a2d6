/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that change a file by its path. The daemon gets a report before the call, and hands the file out to no program
 * until a second report at the end of the call. So calls after it, in this process or another one, see its result. A
 * call that fails has changed nothing and is reported all the same.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>
#include <utime.h>

#include "preload/preload.h"

/* Libc's function; NULL: it has none. */
#define NEXT(name) ((__typeof__(&name))vvi_preload_next(VVI_PRELOAD_##name))

static int none(void)
{
    errno = ENOSYS;
    return -1;
}

static bool refuses(int at, const char *path)
{
    return path && vvi_preload_refuses(at, path);
}

/* `call` changes the file named by `where`; `still`: it changes nothing below it. */
#define CHANGE(name, at, where, follow, still, call)                             \
    struct vvi_preload_change c = {                                              \
        .dirfd = (at), .path = (where), .nofollow = !(follow), .flat = (still)}; \
    __typeof__(&name) next = NEXT(name);                                         \
    int rc;                                                                      \
    if (refuses((at), (where)))                                                  \
        return -1;                                                               \
    if (where)                                                                   \
        vvi_preload_begin(&c);                                                   \
    rc = next ? next call : none();                                              \
    vvi_preload_end(&c);                                                         \
    return rc

/* A change of two names. If one is a folder, or a link, paths below either are other files afterwards. */
struct pair {
    struct vvi_preload_change a, b;
};

static void begin_both(struct pair *p, int at_a, const char *a, int at_b, const char *b)
{
    p->a = (struct vvi_preload_change){.dirfd = at_a, .path = a, .nofollow = true};
    p->b = (struct vvi_preload_change){.dirfd = at_b, .path = b, .nofollow = true};
    if (!a || !b)
        return;
    vvi_preload_begin(&p->a);
    vvi_preload_begin(&p->b);
    p->a.tree = p->b.tree = p->a.tree || p->b.tree;
}

static void end_both(struct pair *p)
{
    vvi_preload_end(&p->a);
    vvi_preload_end(&p->b);
}

#define CHANGE_BOTH(name, at_a, a, at_b, b, call)     \
    __typeof__(&name) next = NEXT(name);              \
    struct pair p;                                    \
    int rc;                                           \
    if (refuses((at_a), (a)) || refuses((at_b), (b))) \
        return -1;                                    \
    begin_both(&p, at_a, a, at_b, b);                 \
    rc = next ? next call : none();                   \
    end_both(&p);                                     \
    return rc

HOOK(int, rename, const char *from, const char *to)
{
    CHANGE_BOTH(rename, AT_FDCWD, from, AT_FDCWD, to, (from, to));
}

HOOK(int, renameat, int from_at, const char *from, int to_at, const char *to)
{
    CHANGE_BOTH(renameat, from_at, from, to_at, to, (from_at, from, to_at, to));
}

HOOK(int, renameat2, int from_at, const char *from, int to_at, const char *to, unsigned flags)
{
    CHANGE_BOTH(renameat2, from_at, from, to_at, to, (from_at, from, to_at, to, flags));
}

HOOK(int, link, const char *from, const char *to)
{
    CHANGE_BOTH(link, AT_FDCWD, from, AT_FDCWD, to, (from, to));
}

HOOK(int, linkat, int from_at, const char *from, int to_at, const char *to, int flags)
{
    CHANGE_BOTH(linkat, from_at, from, to_at, to, (from_at, from, to_at, to, flags));
}

HOOK(int, symlink, const char *target, const char *path)
{
    CHANGE(symlink, AT_FDCWD, path, false, true, (target, path));
}

HOOK(int, symlinkat, const char *target, int at, const char *path)
{
    CHANGE(symlinkat, at, path, false, true, (target, at, path));
}

HOOK(int, unlink, const char *path)
{
    CHANGE(unlink, AT_FDCWD, path, false, true, (path));
}

HOOK(int, unlinkat, int at, const char *path, int flags)
{
    CHANGE(unlinkat, at, path, false, true, (at, path, flags));
}

HOOK(int, remove, const char *path)
{
    CHANGE(remove, AT_FDCWD, path, false, true, (path));
}

HOOK(int, rmdir, const char *path)
{
    CHANGE(rmdir, AT_FDCWD, path, false, true, (path));
}

HOOK(int, truncate, const char *path, off_t size)
{
    CHANGE(truncate, AT_FDCWD, path, true, true, (path, size));
}

HOOK(int, truncate64, const char *path, off64_t size)
{
    CHANGE(truncate64, AT_FDCWD, path, true, true, (path, size));
}

/* A missing path is never cached, so nothing is reported. Below a sole root the call has to fail with EROFS. */
HOOK(int, mkdir, const char *path, mode_t mode)
{
    __typeof__(&mkdir) next = NEXT(mkdir);

    if (refuses(AT_FDCWD, path))
        return -1;
    return next ? next(path, mode) : none();
}

HOOK(int, mkdirat, int at, const char *path, mode_t mode)
{
    __typeof__(&mkdirat) next = NEXT(mkdirat);

    if (refuses(at, path))
        return -1;
    return next ? next(at, path, mode) : none();
}

/* ---- changes of attributes ---- */

HOOK(int, chmod, const char *path, mode_t mode)
{
    CHANGE(chmod, AT_FDCWD, path, true, false, (path, mode));
}

HOOK(int, fchmodat, int at, const char *path, mode_t mode, int flags)
{
    CHANGE(fchmodat, at, path, !(flags & AT_SYMLINK_NOFOLLOW), false, (at, path, mode, flags));
}

HOOK(int, chown, const char *path, uid_t uid, gid_t gid)
{
    CHANGE(chown, AT_FDCWD, path, true, false, (path, uid, gid));
}

HOOK(int, lchown, const char *path, uid_t uid, gid_t gid)
{
    CHANGE(lchown, AT_FDCWD, path, false, false, (path, uid, gid));
}

HOOK(int, fchownat, int at, const char *path, uid_t uid, gid_t gid, int flags)
{
    CHANGE(fchownat, at, path, !(flags & AT_SYMLINK_NOFOLLOW), false, (at, path, uid, gid, flags));
}

HOOK(int, utime, const char *path, const struct utimbuf *times)
{
    CHANGE(utime, AT_FDCWD, path, true, true, (path, times));
}

HOOK(int, utimes, const char *path, const struct timeval times[2])
{
    CHANGE(utimes, AT_FDCWD, path, true, true, (path, times));
}

HOOK(int, lutimes, const char *path, const struct timeval times[2])
{
    CHANGE(lutimes, AT_FDCWD, path, false, true, (path, times));
}

HOOK(int, utimensat, int at, const char *path, const struct timespec times[2], int flags)
{
    CHANGE(utimensat, at, path, !(flags & AT_SYMLINK_NOFOLLOW), true, (at, path, times, flags));
}
