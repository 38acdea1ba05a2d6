/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of a GPU file system: numbers, descriptors, and the table that kernels read.
 *
 * Invariants: an entry of the table is filled in before its word marks the file as open. Descriptors are closed only
 * after the word is cleared and every server has been seen between two requests. The same holds for descriptors that
 * servers opened for themselves. Servers open files for themselves because the kernel updates a reference count and a
 * read position in each open file: threads that read small pieces of one open file would contend for that cache line. A
 * number is reused only after the cache has been emptied, so that a page of a closed file is never taken for a page of
 * another.
 *
 * Threads: any. A server registers files for kernels that open them by path.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "gpufile/gpufile_private.h"

struct vvi_gpufile_file *vvi_gpufile_file_locked(struct varve_gpufs *fs, uint32_t id)
{
    struct vvi_gpufile_file *f = id < VARVE_G_FILES_MAX ? &fs->files[id] : NULL;

    return f && f->used && !f->closing ? f : NULL;
}

/* Opens the file that is open as fd again, for reading; its path may lead elsewhere by now. Returns a descriptor, or a
 * negative errno, for example without /proc. */
static int reopen(struct varve_gpufs *fs, int fd, int flags)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", fd);
    return fs->os->openat(fs->os, AT_FDCWD, path, O_RDONLY | O_NONBLOCK | flags, 0);
}

/* Opens the same file for direct I/O. -1: the file is read through the page cache, because its file system has no
 * direct I/O, or because it cannot be opened again or turns out to be another file. */
static int open_direct(struct varve_gpufs *fs, int fd, const struct stat *st)
{
    int direct = reopen(fs, fd, O_DIRECT);
    struct stat now;

    if (direct < 0)
        return -1;
    if (fstat(direct, &now) == 0 && now.st_dev == st->st_dev && now.st_ino == st->st_ino)
        return direct;
    (void)fs->os->close(fs->os, direct);
    return -1;
}

/* Opens the descriptors of a file. Returns the errors of open, and those of varve_gpufs_register. */
static int open_fds(struct varve_gpufs *fs, const char *path, int flags, int *ret_fd,
                    int *ret_direct, struct stat *ret_st)
{
    int how = flags & VARVE_GFILE_WRITE ? O_RDWR : O_RDONLY;
    int fd, rc = 0;

    if (flags & VARVE_GFILE_CREATE)
        how |= O_CREAT;
    fd = fs->os->openat(fs->os, AT_FDCWD, path, how | O_NONBLOCK, 0666);
    if (fd < 0)
        return fd;
    if (fstat(fd, ret_st) < 0)
        rc = -errno;
    else if (!S_ISREG(ret_st->st_mode))
        rc = S_ISDIR(ret_st->st_mode) ? -EISDIR : -EINVAL;
    if (rc) {
        (void)fs->os->close(fs->os, fd);
        return rc;
    }
    *ret_fd = fd;
    *ret_direct = fs->opts.direct ? open_direct(fs, fd, ret_st) : -1;
    return 0;
}

static void close_fds(struct varve_gpufs *fs, int fd, int direct)
{
    if (fd >= 0)
        (void)fs->os->close(fs->os, fd);
    if (direct >= 0)
        (void)fs->os->close(fs->os, direct);
}

int vvi_gpufile_own_open(struct varve_gpufs *fs, int fd)
{
    int own = -1;

    if (atomic_fetch_add_explicit(&fs->n_own, 1, memory_order_relaxed) < fs->own_limit)
        own = reopen(fs, fd, 0);
    if (own >= 0)
        return own;
    atomic_fetch_sub_explicit(&fs->n_own, 1, memory_order_relaxed);
    return -1;
}

static struct vvi_gpufile_own *own_new(void)
{
    struct vvi_gpufile_own *own = calloc(VVI_GPUFILE_SERVERS_MAX, sizeof(*own));

    for (int i = 0; own && i < VVI_GPUFILE_SERVERS_MAX; i++)
        own[i].fd = -1;
    return own;
}

static void own_free(struct varve_gpufs *fs, struct vvi_gpufile_own *own)
{
    for (int i = 0; own && i < VVI_GPUFILE_SERVERS_MAX; i++)
        if (own[i].fd >= 0) {
            (void)fs->os->close(fs->os, own[i].fd);
            atomic_fetch_sub_explicit(&fs->n_own, 1, memory_order_relaxed);
        }
    free(own);
}

/* Finds a known file and adds `users` to its count. Files are compared by inode, not by name: two numbers
 * for one file would have pages of their own, and a write through one would not be seen through the
 * other. Read-only and writable opens differ, because files for writing are not mapped. The inode is not
 * reused while the file is open here. A read-only file whose size has changed gets a new number:
 * kernels rely on the size that a number had when it was registered. */
static bool find_locked(struct varve_gpufs *fs, const struct stat *st, int flags, uint32_t users,
                        uint32_t *ret_id)
{
    for (uint32_t i = 0; i < VARVE_G_FILES_MAX; i++) {
        struct vvi_gpufile_file *f = vvi_gpufile_file_locked(fs, i);

        if (f && f->flags == flags && f->dev == st->st_dev && f->ino == st->st_ino &&
            (flags & VARVE_GFILE_WRITE || f->bytes == (uint64_t)st->st_size)) {
            f->users += users;
            f->by_path |= users == 0;
            *ret_id = i;
            return true;
        }
    }
    return false;
}

/* Takes the first gap in the table of windows for a file that may be mapped: its place, plus 1; 0: there is none. */
static uint64_t take_windows_locked(struct varve_gpufs *fs, uint64_t n)
{
    uint64_t found = 0, at = 0;

    for (; at < VVI_GPUFILE_WINDOWS && found < n; at++)
        found = fs->windows[at].taken ? 0 : found + 1;
    if (n == 0 || found < n)
        return 0;
    for (uint64_t i = at - n; i < at; i++)
        fs->windows[i].taken = true;
    return at - n + 1;
}

/* Adds an open file. If it succeeds, the table owns the descriptors. */
static int add_locked(struct varve_gpufs *fs, struct vvi_gpufile_own *own, int flags, int fd,
                      int direct, const struct stat *st, uint32_t *ret_id)
{
    struct vvi_gpufile_file *f;
    uint64_t bytes = (uint64_t)st->st_size;
    uint32_t id = fs->next_id;

    if (fs->n_files == fs->opts.files || fs->used_ids == VARVE_G_FILES_MAX)
        return -EMFILE;
    while (fs->files[id].used)
        id = (id + 1) % VARVE_G_FILES_MAX;
    fs->next_id = (id + 1) % VARVE_G_FILES_MAX;
    fs->used_ids++;
    fs->n_files++;
    f = &fs->files[id];
    *f = (struct vvi_gpufile_file){.used = true,
                                   .own = own,
                                   .flags = flags,
                                   .dev = st->st_dev,
                                   .ino = st->st_ino,
                                   .bytes = bytes,
                                   .fd = -1,
                                   .direct_fd = -1};
    if (!(flags & VARVE_GFILE_WRITE)) {
        f->n_windows = vv_div_up(bytes, fs->opts.window_bytes);
        f->windows = take_windows_locked(fs, f->n_windows);
    }
    atomic_store_explicit(&f->fd, fd, memory_order_release);
    atomic_store_explicit(&f->direct_fd, direct, memory_order_release);
    fs->table[id].bytes = bytes;
    fs->table[id].windows = f->windows;
    /* Pairs with the acquire of kernels that open it. */
    __atomic_store_n(&fs->table[id].word, (uint64_t)flags | VARVE_G_FILE_OPEN, __ATOMIC_RELEASE);
    *ret_id = id;
    return 0;
}

/* The access that kernels get. Files for writing are readable, too; VARVE_GFILE_CREATE makes no difference. */
static int kind(int flags)
{
    return VARVE_GFILE_READ | (flags & VARVE_GFILE_WRITE);
}

static bool flags_good(int flags)
{
    if (!(flags & (VARVE_GFILE_READ | VARVE_GFILE_WRITE)) || flags & ~15)
        return false;
    return flags & VARVE_GFILE_WRITE || !(flags & VARVE_GFILE_CREATE);
}

int vvi_gpufile_register(struct varve_gpufs *fs, const char *path, int flags, uint32_t users,
                         uint32_t *ret_id)
{
    struct vvi_gpufile_own *own;
    struct stat st;
    bool known;
    int fd = -1, direct = -1, rc;

    if (!path || !path[0])
        return -ENOENT;
    if (!flags_good(flags))
        return -EINVAL;
    if (stat(path, &st) == 0) {
        vv_mutex_lock(&fs->lock);
        known = find_locked(fs, &st, kind(flags), users, ret_id);
        vv_mutex_unlock(&fs->lock);
        if (known)
            return 0;
    }
    rc = open_fds(fs, path, flags, &fd, &direct, &st);
    if (rc)
        return rc;
    own = own_new();
    if (!own)
        rc = -ENOMEM;
    vv_mutex_lock(&fs->lock);
    /* Another thread may have registered it meanwhile, and the path may lead elsewhere by now. */
    known = rc == 0 && find_locked(fs, &st, kind(flags), users, ret_id);
    if (rc == 0 && !known)
        rc = add_locked(fs, own, kind(flags), fd, direct, &st, ret_id);
    if (rc == 0 && !known) {
        fs->files[*ret_id].users = users;
        fs->files[*ret_id].by_path = users == 0;
    }
    vv_mutex_unlock(&fs->lock);
    if (rc || known) {
        close_fds(fs, fd, direct);
        free(own);
    }
    return rc;
}

int vvi_gpufile_check_locked(struct varve_gpufs *fs, struct vvi_gpufile_file *f)
{
    uint64_t now = f->bytes;
    int rc = 0;

    /* Reads by servers detect a shorter file themselves. */
    if (f->mapped)
        rc = fs->os->file_bytes(fs->os, atomic_load_explicit(&f->fd, memory_order_acquire), &now);
    if (rc == 0 && now < f->bytes)
        f->shorter = true;
    return rc ? rc : f->shorter ? -ENODATA : 0;
}

/* Removes one user. 1: it was the last, and the caller forgets the file; 0: others remain; -EINVAL. A file
 * that kernels have opened by path has no users: the first to unregister it is the last. */
static int leave_locked(struct varve_gpufs *fs, uint32_t id)
{
    struct vvi_gpufile_file *f = vvi_gpufile_file_locked(fs, id);

    if (!f)
        return -EINVAL;
    if (f->users > 1) {
        f->users--;
        return 0;
    }
    f->closing = true;
    return 1;
}

/* Closes a file whose `closing` is set; no kernel uses it. Only one thread calls this for a file. -ENODATA: kernels may
 * have read bytes behind its end from a mapping. */
static int forget(struct varve_gpufs *fs, uint32_t id)
{
    struct vvi_gpufile_file *f = &fs->files[id];
    int fd, direct, rc = 0;

    __atomic_store_n(&fs->table[id].word, 0, __ATOMIC_RELEASE);
    vv_mutex_lock(&fs->lock);
    if (f->mapped)
        rc = vvi_gpufile_check_locked(fs, f);
    vv_mutex_unlock(&fs->lock);
    vvi_gpufile_unmap_file(fs, id);
    fd = atomic_exchange(&f->fd, -1);
    direct = atomic_exchange(&f->direct_fd, -1);
    vv_mutex_lock(&fs->map_lock); /* servers neither start nor stop */
    vvi_gpufile_servers_pass(fs);
    vv_mutex_unlock(&fs->map_lock);
    close_fds(fs, fd, direct);
    own_free(fs, f->own);
    vv_mutex_lock(&fs->lock);
    f->own = NULL;
    f->used = false; /* from here on another file may get the number */
    fs->n_files--;
    for (uint64_t i = 0; f->windows && i < f->n_windows; i++)
        fs->windows[f->windows - 1 + i].taken = false;
    f->windows = f->n_windows = 0;
    vv_mutex_unlock(&fs->lock);
    return rc == -ENODATA ? rc : 0;
}

int vvi_gpufile_files_fini(struct varve_gpufs *fs)
{
    int rc = 0;

    for (uint32_t i = 0; i < VARVE_G_FILES_MAX; i++)
        if (fs->files[i].used) {
            int one = forget(fs, i); /* no other thread uses it any more */
            rc = rc ? rc : one;
        }
    return rc;
}

/* Undoes a registration whose number was never returned. A kernel that has opened the file keeps it, and so
 * does a thread that registered it meanwhile; the file may also have been unregistered since. A number that was never
 * returned can be reused at once: no page of it is in the cache. */
static void take_back(struct varve_gpufs *fs, uint32_t id)
{
    struct vvi_gpufile_file *f = &fs->files[id];
    bool last = false;

    vv_mutex_lock(&fs->lock);
    if (vvi_gpufile_file_locked(fs, id) && f->users) {
        f->users--;
        last = f->closing = f->users == 0 && !f->by_path;
    }
    vv_mutex_unlock(&fs->lock);
    if (!last)
        return;
    (void)forget(fs, id);
    vv_mutex_lock(&fs->lock);
    if (fs->next_id == (id + 1) % VARVE_G_FILES_MAX && !f->used) {
        fs->next_id = id;
        fs->used_ids--;
    }
    vv_mutex_unlock(&fs->lock);
}

static bool map_written(int flags)
{
    return flags & VARVE_GFILE_MAP && flags & VARVE_GFILE_WRITE;
}

/* Records a text for the caller: the error number alone does not explain enough. */
static int register_failed(struct varve_gpufs *fs, const char *path, int flags, int rc)
{
    const char *op = "gpufs_register";

    if (!path || !path[0])
        return vvi_gpufile_fail(fs, op, rc, "no path");
    if (!flags_good(flags) || map_written(flags))
        return vvi_gpufile_fail(fs, op, rc,
                                "%s: flags %u: READ or WRITE, CREATE only with WRITE, and MAP only "
                                "without",
                                path, (unsigned)flags);
    if (rc == -EINVAL)
        return vvi_gpufile_fail(fs, op, rc, "%s is not a regular file", path);
    if (rc == -EMFILE)
        return vvi_gpufile_fail(fs, op, rc,
                                "%s: there are %u files already, as many as `files` allows, or as "
                                "the process may have open",
                                path, fs->opts.files);
    /* The system's text: for these errors our own would speak of a version, not of a file. */
    return vvi_gpufile_fail(fs, op, rc, "cannot open %s: %s", path, strerror(-rc));
}

int varve_gpufs_register(struct varve_gpufs *fs, const char *path, int flags, uint32_t *ret_id)
{
    const char *why;
    uint32_t id;
    int rc;

    if (!fs || !ret_id)
        return vvi_gpufile_fail(fs, "gpufs_register", -EINVAL,
                                "no file system, or nowhere to put the file's number");
    rc = map_written(flags) ? -EINVAL : vvi_gpufile_register(fs, path, flags, 1, &id);
    if (rc)
        return register_failed(fs, path, flags, rc);
    if (flags & VARVE_GFILE_MAP && fs->files[id].bytes) {
        rc = vvi_gpufile_map(fs, id, 0, 0, NULL, &why);
        if (rc && rc != -ENOSPC) {
            take_back(fs, id);
            return vvi_gpufile_fail(fs, "gpufs_register", rc, "%s cannot be mapped: %s", path, why);
        }
    }
    *ret_id = id;
    return 0;
}

int varve_gpufs_unregister(struct varve_gpufs *fs, uint32_t id)
{
    static const uint64_t zero;
    const char *op = "gpufs_unregister";
    bool all_used;
    int rc, cleared;

    if (!fs)
        return vvi_gpufile_fail(fs, op, -EINVAL, "no file system");
    vv_mutex_lock(&fs->lock);
    rc = leave_locked(fs, id);
    vv_mutex_unlock(&fs->lock);
    if (rc < 0)
        return vvi_gpufile_fail(fs, op, rc, "file %u: no file has this number", id);
    if (rc == 0)
        return 0;
    vv_mutex_lock(&fs->map_lock);
    cleared = vvi_gpufile_copy(fs, &fs->view.grown[id], &zero, sizeof(zero));
    vv_mutex_unlock(&fs->map_lock);
    rc = forget(fs, id);
    if (cleared)
        return vvi_gpufile_fail(fs, op, cleared, "file %u: %s", id, vv_strerror(cleared));
    vv_mutex_lock(&fs->lock);
    all_used = fs->used_ids >= VARVE_G_FILES_MAX / 2;
    vv_mutex_unlock(&fs->lock);
    /* Numbers run out only after thousands of files; then the cache is emptied. */
    if (all_used && vvi_gpufile_drop(fs) == 0) {
        vv_mutex_lock(&fs->lock);
        fs->used_ids = fs->n_files;
        vv_mutex_unlock(&fs->lock);
    }
    return rc ? vvi_gpufile_fail(fs, op, rc,
                                 "file %u: it was mapped, and has become shorter than "
                                 "it was then",
                                 id)
              : 0;
}
