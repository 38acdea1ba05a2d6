/* SPDX-License-Identifier: Apache-2.0 */
/* Files of a folder.
 *
 * A commit is: temporary name, fsync, rename, fsync of the folder. Blocks are allocated when a file of more than
 * a block is created, so that a full disk is an error of `create`.
 *
 * Pieces are written by the folder's aio, if there is one, while the caller reads the next: at most one at a time,
 * and every other call on the file waits for it. The call that waited returns its error. */
#define _GNU_SOURCE
#include "store/target/folder/target_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "store/store_private.h"

struct file {
    struct vv_target_fd fd;
    const struct vv_target_folder *folder; /* of a file being created */
    char *name, *temp;                     /* owned; NULL: the file has its name */
    struct vv_aio *aio;
    struct vv_aio_req req;
    struct iovec iov;
    bool writing, locked;
};

static const struct vv_target_ops ops;

static struct vv_target_folder *folder_of(struct vv_target *t)
{
    return (struct vv_target_folder *)t;
}

static struct file *file_of(struct vv_target_file *f)
{
    return (struct file *)f;
}

/* ---- the folder ---- */

void vv_target_folder_init(struct vv_target_folder *folder, const struct vv_os *os, int dirfd)
{
    *folder = (struct vv_target_folder){.base = {&ops}, .os = os, .dirfd = dirfd};
}

struct vv_target *vv_target_cwd(void)
{
    static struct vv_target_folder cwd = {.base = {&ops}, .dirfd = AT_FDCWD};
    cwd.os = vv_os_posix();
    return &cwd.base;
}

static int folder_below(struct vv_target *t, const char *name, const char *temp,
                        struct vv_target **ret_target)
{
    const struct vv_target_folder *above = folder_of(t);
    const struct vv_os *os = above->os;
    int rc = 0;
    if (temp) {
        rc = os->mkdirat(os, above->dirfd, name, 0777);
        /* Sync even if the folder existed: the process that made it may have lost power before it synced. */
        if (rc == 0 || rc == -EEXIST)
            rc = os->fsync(os, above->dirfd);
    }
    int fd = rc < 0 ? rc : os->openat(os, above->dirfd, name, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return fd;
    struct vv_target_folder *folder = malloc(sizeof(*folder));
    rc = !folder ? -ENOMEM : temp ? vv_os_refresh(os, fd, temp) : 0;
    if (rc < 0) {
        os->close(os, fd);
        free(folder);
        return rc;
    }
    vv_target_folder_init(folder, os, fd);
    *ret_target = &folder->base;
    return 0;
}

static void folder_close(struct vv_target *t)
{
    struct vv_target_folder *folder = folder_of(t);
    folder->os->close(folder->os, folder->dirfd);
    free(folder);
}

struct visitor {
    int (*visit)(void *user, const char *name, uint64_t bytes);
    void *user;
};

static int visit_name(void *user, const char *name)
{
    const struct visitor *v = user;
    return v->visit(v->user, name, VV_TARGET_BYTES_UNKNOWN);
}

static int folder_list(struct vv_target *t,
                       int (*visit)(void *user, const char *name, uint64_t bytes), void *user)
{
    const struct vv_target_folder *folder = folder_of(t);
    struct visitor v = {visit, user};
    return folder->os->list(folder->os, folder->dirfd, visit_name, &v);
}

static int folder_remove(struct vv_target *t, const char *name)
{
    const struct vv_target_folder *folder = folder_of(t);
    return folder->os->unlinkat(folder->os, folder->dirfd, name);
}

static int folder_touch(struct vv_target *t, const char *name)
{
    const struct vv_target_folder *folder = folder_of(t);
    int fd = folder->os->openat(folder->os, folder->dirfd, name, O_WRONLY | O_CREAT, 0666);
    if (fd < 0)
        return fd;
    folder->os->close(folder->os, fd);
    return 0;
}

static int folder_sync(struct vv_target *t)
{
    const struct vv_target_folder *folder = folder_of(t);
    return folder->os->fsync(folder->os, folder->dirfd);
}

/* ---- one file ---- */

int vv_target_fd_init(struct vv_target_fd *file, const struct vv_os *os, int fd)
{
    *file = (struct vv_target_fd){.base = {&ops, 0}, .os = os, .fd = fd};
    return os->file_bytes(os, fd, &file->base.bytes);
}

/* Takes over the descriptor, even on failure. */
static int file_new(const struct vv_os *os, int fd, struct file **ret_file)
{
    struct file *f = fd < 0 ? NULL : calloc(1, sizeof(*f));
    if (fd < 0)
        return fd;
    if (!f) {
        os->close(os, fd);
        return -ENOMEM;
    }
    f->fd = (struct vv_target_fd){.base = {&ops, 0}, .os = os, .fd = fd};
    *ret_file = f;
    return 0;
}

static void file_end(struct vv_target_file *t);

static int folder_open(struct vv_target *t, const char *name, enum vv_target_open how,
                       struct vv_target_file **ret_file)
{
    const struct vv_target_folder *folder = folder_of(t);
    const struct vv_os *os = folder->os;
    struct file *f;
    int rc = file_new(os,
                      vvi_store_openat(os, folder->dirfd, name,
                                       how == VV_TARGET_REPAIR ? O_RDWR : O_RDONLY,
                                       how == VV_TARGET_STREAM && folder->direct),
                      &f);
    if (rc < 0)
        return rc;
    rc = os->file_bytes(os, f->fd.fd, &f->fd.base.bytes);
    if (rc < 0)
        file_end(&f->fd.base);
    else
        *ret_file = &f->fd.base;
    return rc;
}

static int folder_lock(struct vv_target *t, const char *name, struct vv_target_file **ret_file)
{
    const struct vv_target_folder *folder = folder_of(t);
    const struct vv_os *os = folder->os;
    struct file *f;
    int rc = file_new(os, os->openat(os, folder->dirfd, name, O_RDWR | O_CREAT, 0666), &f);
    if (rc < 0)
        return rc;
    rc = os->lock(os, f->fd.fd);
    f->locked = rc == 0;
    if (rc < 0)
        file_end(&f->fd.base);
    else
        *ret_file = &f->fd.base;
    return rc;
}

static int folder_create(struct vv_target *t, const char *name, const char *temp, uint64_t bytes,
                         struct vv_target_file **ret_file)
{
    const struct vv_target_folder *folder = folder_of(t);
    const struct vv_os *os = folder->os;
    struct file *f;
    int rc = file_new(
        os, vvi_store_openat(os, folder->dirfd, temp, O_RDWR | O_CREAT | O_TRUNC, folder->direct),
        &f);
    if (rc < 0)
        return rc;
    f->folder = folder;
    f->aio = folder->aio;
    f->fd.base.bytes = bytes;
    f->name = strdup(name);
    f->temp = strdup(temp);
    if (!f->name || !f->temp) {
        (void)os->unlinkat(os, folder->dirfd, temp);
        rc = -ENOMEM;
    } else if (bytes > VV_STORE_ALIGN) {
        rc = os->fallocate(os, f->fd.fd, 0, bytes);
    }
    if (rc < 0 && rc != -EOPNOTSUPP) {
        file_end(&f->fd.base);
        return rc;
    }
    *ret_file = &f->fd.base;
    return 0;
}

static int file_get(struct vv_target_file *t, void *buf, size_t bytes, uint64_t offset)
{
    const struct vv_target_fd *f = (struct vv_target_fd *)t;
    return vv_os_read_all(f->os, f->fd, buf, bytes, offset);
}

/* Waits for the write in flight and returns its result. */
static int file_wait(struct file *f)
{
    struct vv_aio_req *done;
    int n;
    if (!f->writing)
        return 0;
    while ((n = vv_aio_wait(f->aio, &done, 1, -1)) != 1)
        if (n < 0)
            vv_sleep_until_ns(vv_now_ns() + VV_AIO_REST_NS);
    f->writing = false;
    return f->req.result;
}

static int file_put(struct vv_target_file *t, const void *buf, size_t bytes, uint64_t offset)
{
    struct file *f = file_of(t);
    if (!f->aio)
        return vv_os_write_all(f->fd.os, f->fd.fd, buf, bytes, offset);
    int rc = file_wait(f);
    if (rc < 0)
        return rc;
    f->iov = (struct iovec){.iov_base = (void *)(uintptr_t)buf, .iov_len = bytes};
    f->req = (struct vv_aio_req){.op = VV_AIO_WRITE,
                                 .fd = f->fd.fd,
                                 .offset = offset,
                                 .iov = &f->iov,
                                 .niov = 1,
                                 .may_block = !f->folder->direct};
    f->writing = true;
    vv_aio_submit(f->aio, &f->req);
    vv_aio_flush(f->aio);
    return 0;
}

static int file_settle(struct vv_target_file *t)
{
    struct file *f = file_of(t);
    int rc = file_wait(f);
    return rc < 0 ? rc : f->fd.os->fsync(f->fd.os, f->fd.fd);
}

static int file_commit(struct vv_target_file *t)
{
    struct file *f = file_of(t);
    const struct vv_os *os = f->fd.os;
    int rc = os->rename(os, f->folder->dirfd, f->temp, f->name, true);
    if (rc < 0)
        return rc;
    free(f->temp);
    f->temp = NULL;
    return os->fsync(os, f->folder->dirfd);
}

static void file_end(struct vv_target_file *t)
{
    struct file *f = file_of(t);
    const struct vv_os *os = f->fd.os;
    (void)file_wait(f);
    if (f->locked)
        (void)os->unlock(os, f->fd.fd);
    os->close(os, f->fd.fd);
    if (f->temp)
        (void)os->unlinkat(os, f->folder->dirfd, f->temp);
    free(f->name);
    free(f->temp);
    free(f);
}

static const struct vv_target_ops ops = {.name = "folder",
                                         .below = folder_below,
                                         .close = folder_close,
                                         .list = folder_list,
                                         .remove = folder_remove,
                                         .touch = folder_touch,
                                         .sync = folder_sync,
                                         .lock = folder_lock,
                                         .open = folder_open,
                                         .get = file_get,
                                         .create = folder_create,
                                         .put = file_put,
                                         .settle = file_settle,
                                         .commit = file_commit,
                                         .end = file_end};
