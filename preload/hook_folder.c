/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folders below roots that no file system has. The daemon lists one as a memory file of records in the kernel's form. A
 * descriptor of it is opened without access, so that it serves as a starting point (openat, fstatat) and gives no
 * bytes; calls that read the folder map the records. A DIR of such a folder is one of a fixed number of structures
 * here; its address distinguishes it from libc's.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/preload.h"

_Static_assert(sizeof(struct dirent) == sizeof(struct dirent64) &&
                   offsetof(struct dirent, d_name) == offsetof(struct vv_server_name, name) &&
                   offsetof(struct dirent, d_reclen) == offsetof(struct vv_server_name, reclen),
               "one record for both families, and the kernel's");

#define FOLDERS 256

#define NEXT(name) ((__typeof__(&name))vvi_preload_next(VVI_PRELOAD_##name))

struct open_folder {
    /* Stored with release, taken with acquire. Its owner uses the other members. */
    atomic_bool busy;
    int fd;
    char *map;
    size_t bytes; /* of the map */
    char *records;
    size_t end, at;
};

static struct open_folder table[FOLDERS];

/* NULL: the DIR is libc's. */
static struct open_folder *ours(DIR *dir)
{
    uintptr_t at = (uintptr_t)dir, first = (uintptr_t)table;

    return at >= first && at < first + sizeof(table) ? (struct open_folder *)(void *)dir : NULL;
}

static int fail(int error)
{
    errno = error;
    return -1;
}

/* ---- opening ---- */

static int reopen(int fd, int flags)
{
    char link[40];

    vvi_preload_link_of(fd, link);
    return (int)syscall(SYS_openat, AT_FDCWD, link, flags);
}

int vvi_preload_open_folder(int dirfd, const char *path, bool cloexec)
{
    struct vvi_preload_ask ask = {
        .op = VV_SERVER_OP_LIST, .dirfd = dirfd, .path = path, .cloexec = true};
    struct vvi_preload_answer a = {.error = EIO};
    int fd;

    if (!vvi_preload_ask(&ask, &a))
        return fail(a.error ? a.error : EIO);
    vvi_preload_saw(&a.real, &a.stat);
    fd = reopen(a.fd, O_PATH | (cloexec ? O_CLOEXEC : 0));
    syscall(SYS_close, a.fd);
    return fd;
}

/* Maps the daemon's records, after a check of their header. */
static bool map_records(struct open_folder *f)
{
    struct vv_server_folder head;
    int fd = reopen(f->fd, O_RDONLY | O_CLOEXEC);
    struct stat st;

    if (fd < 0)
        return false;
    f->map = MAP_FAILED;
    if (syscall(SYS_fstat, fd, &st) == 0 && (size_t)st.st_size > sizeof(head)) {
        f->bytes = (size_t)st.st_size;
        f->map = mmap(NULL, f->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    }
    syscall(SYS_close, fd);
    if (f->map == MAP_FAILED)
        return false;
    memcpy(&head, f->map, sizeof(head));
    if (head.magic == VV_SERVER_FOLDER_MAGIC && head.version == VV_SERVER_VERSION &&
        head.at <= f->bytes && head.bytes <= f->bytes - head.at) {
        f->records = f->map + head.at;
        f->end = head.bytes;
        f->at = 0;
        return true;
    }
    munmap(f->map, f->bytes);
    errno = EIO;
    return false;
}

static DIR *take(int fd)
{
    for (int i = 0; i < FOLDERS; i++) {
        struct open_folder *f = &table[i];
        bool was = false;

        if (!atomic_compare_exchange_strong_explicit(&f->busy, &was, true, memory_order_acquire,
                                                     memory_order_relaxed))
            continue;
        f->fd = fd;
        if (map_records(f))
            return (DIR *)(void *)f;
        atomic_store_explicit(&f->busy, false, memory_order_release);
        return NULL;
    }
    errno = EMFILE;
    return NULL;
}

HOOK(DIR *, opendir, const char *path)
{
    __typeof__(&opendir) next = NEXT(opendir);
    DIR *dir;
    int fd;

    if (vvi_preload_on() && path && vvi_preload_is_sole(AT_FDCWD, path)) {
        fd = vvi_preload_open_folder(AT_FDCWD, path, true);
        dir = fd < 0 ? NULL : take(fd);
        if (fd >= 0 && !dir)
            syscall(SYS_close, fd);
        return dir;
    }
    if (next)
        return next(path);
    errno = ENOSYS;
    return NULL;
}

HOOK(DIR *, fdopendir, int fd)
{
    __typeof__(&fdopendir) next = NEXT(fdopendir);

    if (vvi_preload_on() && vvi_preload_is_folder(fd))
        return take(fd);
    if (next)
        return next(fd);
    errno = ENOSYS;
    return NULL;
}

/* ---- reading ---- */

static void *record(struct open_folder *f)
{
    struct vv_server_name e;
    char *at = f->records + f->at;

    if (f->end - f->at < sizeof(e))
        return NULL;
    memcpy(&e, at, sizeof(e));
    if (e.reclen < sizeof(e) || e.reclen > f->end - f->at)
        return NULL;
    f->at += e.reclen;
    return at;
}

HOOK(struct dirent *, readdir, DIR *dir)
{
    __typeof__(&readdir) next = NEXT(readdir);
    struct open_folder *f = ours(dir);

    return f ? record(f) : next ? next(dir) : NULL;
}

HOOK(struct dirent64 *, readdir64, DIR *dir)
{
    __typeof__(&readdir64) next = NEXT(readdir64);
    struct open_folder *f = ours(dir);

    return f ? record(f) : next ? next(dir) : NULL;
}

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

HOOK(int, readdir_r, DIR *dir, struct dirent *entry, struct dirent **ret_entry)
{
    __typeof__(&readdir_r) next = NEXT(readdir_r);
    struct open_folder *f = ours(dir);
    struct dirent *e;

    if (!f)
        return next ? next(dir, entry, ret_entry) : ENOSYS;
    e = record(f);
    if (e)
        memcpy(entry, e, e->d_reclen);
    *ret_entry = e ? entry : NULL;
    return 0;
}

HOOK(int, readdir64_r, DIR *dir, struct dirent64 *entry, struct dirent64 **ret_entry)
{
    __typeof__(&readdir64_r) next = NEXT(readdir64_r);
    struct open_folder *f = ours(dir);
    struct dirent64 *e;

    if (!f)
        return next ? next(dir, entry, ret_entry) : ENOSYS;
    e = record(f);
    if (e)
        memcpy(entry, e, e->d_reclen);
    *ret_entry = e ? entry : NULL;
    return 0;
}

HOOK(void, seekdir, DIR *dir, long at)
{
    __typeof__(&seekdir) next = NEXT(seekdir);
    struct open_folder *f = ours(dir);

    if (f)
        f->at = at >= 0 && (size_t)at <= f->end ? (size_t)at : f->end;
    else if (next)
        next(dir, at);
}

HOOK(void, rewinddir, DIR *dir)
{
    __typeof__(&rewinddir) next = NEXT(rewinddir);
    struct open_folder *f = ours(dir);

    if (f)
        f->at = 0;
    else if (next)
        next(dir);
}

HOOK(long, telldir, DIR *dir)
{
    __typeof__(&telldir) next = NEXT(telldir);
    struct open_folder *f = ours(dir);

    return f ? (long)f->at : next ? next(dir) : fail(ENOSYS);
}

HOOK(int, dirfd, DIR *dir)
{
    __typeof__(&dirfd) next = NEXT(dirfd);
    struct open_folder *f = ours(dir);

    return f ? f->fd : next ? next(dir) : fail(ENOSYS);
}

HOOK(int, closedir, DIR *dir)
{
    __typeof__(&closedir) next = NEXT(closedir);
    struct open_folder *f = ours(dir);
    int fd;

    if (!f)
        return next ? next(dir) : fail(ENOSYS);
    fd = f->fd;
    munmap(f->map, f->bytes);
    atomic_store_explicit(&f->busy, false, memory_order_release);
    return (int)syscall(SYS_close, fd);
}
