/* SPDX-License-Identifier: Apache-2.0 */
#include "model/faults.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "fault_os.h"

static struct fault_os table;
static struct faults *state;

void faults_heal(struct faults *f)
{
    atomic_store(&f->full, 0);
    atomic_store(&f->gone, 0);
    atomic_store(&f->once, 0);
}

bool faults_active(struct faults *f)
{
    return atomic_load(&f->full) || atomic_load(&f->gone) || atomic_load(&f->once);
}

static unsigned folder_of_path(const char *path)
{
    return strstr(path, "/near") ? FAULTS_NEAR : strstr(path, "/far") ? FAULTS_FAR : 0;
}

static unsigned folder_of(int fd)
{
    char link[64], path[1200];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof(path) - 1);
    if (n < 0)
        return 0;
    path[n] = 0;
    return folder_of_path(path);
}

static unsigned folder_at(int dirfd, const char *path)
{
    return path[0] == '/' ? folder_of_path(path) : dirfd >= 0 ? folder_of(dirfd) : 0;
}

static void count(void)
{
    if (atomic_load(&state->kill_in) > 0 && atomic_fetch_sub(&state->kill_in, 1) == 1)
        kill(getpid(), SIGKILL);
}

static bool hit(bool fails)
{
    if (fails)
        atomic_fetch_add(&state->hits, 1);
    return fails;
}

static bool once(enum faults_once what, unsigned folder)
{
    unsigned expected = what;
    return atomic_load(&state->once) == what && (folder & atomic_load(&state->once_at)) &&
           hit(atomic_compare_exchange_strong(&state->once, &expected, 0));
}

static bool sync_fails(int fd)
{
    struct stat st;
    if (atomic_load(&state->once) == FAULTS_FSYNC && once(FAULTS_FSYNC, folder_of(fd)))
        return true;
    return atomic_load(&state->once) == FAULTS_FOLDER && fstat(fd, &st) == 0 &&
           S_ISDIR(st.st_mode) && once(FAULTS_FOLDER, folder_of(fd));
}

static bool full(int fd)
{
    unsigned bits = atomic_load(&state->full);
    return bits && hit((folder_of(fd) & bits) != 0);
}

static bool gone(int dirfd, const char *path)
{
    unsigned bits = atomic_load(&state->gone);
    return bits && hit((folder_at(dirfd, path) & bits) != 0);
}

static int f_openat(const struct vv_os *os, int dirfd, const char *path, int flags, unsigned mode)
{
    count();
    if (gone(dirfd, path))
        return -ENOENT;
    if (atomic_load(&state->once) == FAULTS_OPEN && once(FAULTS_OPEN, folder_at(dirfd, path)))
        return -EIO;
    return fault_openat(os, dirfd, path, flags, mode);
}

static int f_mkdirat(const struct vv_os *os, int dirfd, const char *path, unsigned mode)
{
    count();
    return gone(dirfd, path) ? -ENOENT : fault_mkdirat(os, dirfd, path, mode);
}

/* Not -ENOENT, which would mean that the file is gone for good. */
static int f_unlinkat(const struct vv_os *os, int dirfd, const char *path)
{
    count();
    if (gone(dirfd, path) ||
        (atomic_load(&state->once) == FAULTS_UNLINK && once(FAULTS_UNLINK, folder_at(dirfd, path))))
        return -EIO;
    return fault_unlinkat(os, dirfd, path);
}

static int f_rename(const struct vv_os *os, int dirfd, const char *from, const char *to,
                    bool may_replace)
{
    count();
    if (gone(dirfd, from) ||
        (atomic_load(&state->once) == FAULTS_RENAME && once(FAULTS_RENAME, folder_at(dirfd, from))))
        return -EIO;
    return fault_rename(os, dirfd, from, to, may_replace);
}

static int f_fallocate(const struct vv_os *os, int fd, uint64_t offset, uint64_t bytes)
{
    count();
    return full(fd) ? -ENOSPC : fault_fallocate(os, fd, offset, bytes);
}

static int f_fsync(const struct vv_os *os, int fd)
{
    count();
    return sync_fails(fd) ? -EIO : fault_fsync(os, fd);
}

static int64_t f_pwrite(const struct vv_os *os, int fd, const void *buf, size_t bytes,
                        uint64_t offset)
{
    count();
    return full(fd) ? -ENOSPC : fault_pwrite(os, fd, buf, bytes, offset);
}

static int f_list(const struct vv_os *os, int dirfd, int (*visit)(void *user, const char *name),
                  void *user)
{
    count();
    return gone(dirfd, "") ? -EIO : fault_list(os, dirfd, visit, user);
}

static int64_t f_aio(const struct vv_os *os, enum vv_os_aio op, int fd, uint64_t offset,
                     size_t bytes)
{
    count();
    if (op == VV_OS_AIO_WRITE && full(fd))
        return -ENOSPC;
    if ((op == VV_OS_AIO_FSYNC || op == VV_OS_AIO_RANGE) && sync_fails(fd))
        return -EIO;
    return fault_aio(os, op, fd, offset, bytes);
}

const struct vv_os *faults_os(struct faults *f)
{
    state = f;
    fault_os_init(&table);
    table.os.openat = f_openat;
    table.os.mkdirat = f_mkdirat;
    table.os.unlinkat = f_unlinkat;
    table.os.rename = f_rename;
    table.os.fallocate = f_fallocate;
    table.os.fsync = f_fsync;
    table.os.pwrite = f_pwrite;
    table.os.list = f_list;
    table.os.aio = f_aio;
    return &table.os;
}
