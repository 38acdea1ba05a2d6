/* SPDX-License-Identifier: Apache-2.0 */
/* The real operating system behind struct vv_os. Stateless and thread-safe. Interrupted calls are
 * repeated here, so that no caller has to handle EINTR. */
#define _GNU_SOURCE
#include "store/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>
#if __has_include(<linux/fsverity.h>)
#include <linux/fsverity.h>
#endif

#include "base/clock.h"
#include "base/hash.h"

#define RETRY(result, call) \
    do {                    \
        (result) = (call);  \
    } while ((result) < 0 && errno == EINTR)

static int posix_openat(const struct vv_os *os, int dirfd, const char *path, int flags,
                        unsigned mode)
{
    (void)os;
    int fd;
    RETRY(fd, openat(dirfd, path, flags | O_CLOEXEC, mode));
    return fd < 0 ? -errno : fd;
}

static int posix_close(const struct vv_os *os, int fd)
{
    (void)os;
    /* The descriptor is closed even if close was interrupted: never repeat it. */
    return close(fd) < 0 && errno != EINTR ? -errno : 0;
}

static int posix_mkdirat(const struct vv_os *os, int dirfd, const char *path, unsigned mode)
{
    (void)os;
    return mkdirat(dirfd, path, mode) < 0 ? -errno : 0;
}

static int posix_unlinkat(const struct vv_os *os, int dirfd, const char *path)
{
    (void)os;
    return unlinkat(dirfd, path, 0) < 0 ? -errno : 0;
}

static int posix_rename(const struct vv_os *os, int dirfd, const char *from, const char *to,
                        bool may_replace)
{
    (void)os;
    if (!may_replace) {
        if (renameat2(dirfd, from, dirfd, to, RENAME_NOREPLACE) == 0)
            return 0;
        if (errno != EINVAL && errno != ENOSYS)
            return -errno;
    }
    return renameat(dirfd, from, dirfd, to) < 0 ? -errno : 0;
}

static int posix_fallocate_(const struct vv_os *os, int fd, uint64_t offset, uint64_t bytes)
{
    (void)os;
    int rc;
    RETRY(rc, fallocate(fd, 0, (off_t)offset, (off_t)bytes));
    return rc < 0 ? -errno : 0;
}

static int posix_punch(const struct vv_os *os, int fd, uint64_t offset, uint64_t bytes)
{
    (void)os;
    int rc;
    RETRY(rc,
          fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)bytes));
    return rc < 0 ? -errno : 0;
}

static int posix_ftruncate(const struct vv_os *os, int fd, uint64_t bytes)
{
    (void)os;
    int rc;
    RETRY(rc, ftruncate(fd, (off_t)bytes));
    return rc < 0 ? -errno : 0;
}

static int posix_fsync(const struct vv_os *os, int fd)
{
    (void)os;
    int rc;
    RETRY(rc, fsync(fd));
    return rc < 0 ? -errno : 0;
}

static int posix_file_bytes(const struct vv_os *os, int fd, uint64_t *ret_bytes)
{
    (void)os;
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    *ret_bytes = (uint64_t)st.st_size;
    return 0;
}

static int posix_stat(const struct vv_os *os, int dirfd, const char *path, uint64_t *ret_bytes)
{
    (void)os;
    struct stat st;
    if (fstatat(dirfd, path, &st, 0) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EBADMSG;
    *ret_bytes = (uint64_t)st.st_size;
    return 0;
}

static int posix_free_bytes(const struct vv_os *os, int fd, uint64_t *ret_bytes)
{
    (void)os;
    struct statvfs sv;
    if (fstatvfs(fd, &sv) < 0)
        return -errno;
    *ret_bytes = (uint64_t)sv.f_bavail * sv.f_frsize;
    return 0;
}

static int64_t posix_pread(const struct vv_os *os, int fd, void *buf, size_t bytes, uint64_t offset)
{
    (void)os;
    ssize_t n;
    RETRY(n, pread(fd, buf, bytes, (off_t)offset));
    return n < 0 ? -errno : n;
}

static int64_t posix_pwrite(const struct vv_os *os, int fd, const void *buf, size_t bytes,
                            uint64_t offset)
{
    (void)os;
    ssize_t n;
    RETRY(n, pwrite(fd, buf, bytes, (off_t)offset));
    return n < 0 ? -errno : n;
}

/* A lock of the open file description: it keeps out other handles of the same process too, and
 * closing an unrelated descriptor of the file does not drop it. */
static int lock_as(int fd, short type)
{
    struct flock fl = {.l_type = type, .l_whence = SEEK_SET};
    int rc;
    RETRY(rc, fcntl(fd, F_OFD_SETLK, &fl));
    if (rc < 0)
        return errno == EAGAIN || errno == EACCES ? -EBUSY : -errno;
    return 0;
}

static int posix_lock(const struct vv_os *os, int fd)
{
    (void)os;
    return lock_as(fd, F_WRLCK);
}

static int posix_lock_shared(const struct vv_os *os, int fd)
{
    (void)os;
    return lock_as(fd, F_RDLCK);
}

static int posix_lock_test(const struct vv_os *os, int fd)
{
    (void)os;
    struct flock fl = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int rc;
    RETRY(rc, fcntl(fd, F_OFD_GETLK, &fl));
    if (rc < 0)
        return -errno;
    return fl.l_type == F_UNLCK ? 0 : -EBUSY;
}

#if defined(FS_IOC_ENABLE_VERITY) && defined(FS_IOC_MEASURE_VERITY)
/* Kernels and file systems without fs-verity fail with one of these codes. */
static int seal_error(int err)
{
    return err == ENOTTY || err == ENOSYS ? -EOPNOTSUPP : -err;
}

static int posix_seal(const struct vv_os *os, int fd)
{
    (void)os;
    struct fsverity_enable_arg arg = {
        .version = 1, .hash_algorithm = FS_VERITY_HASH_ALG_SHA256, .block_size = 4096};
    int rc;
    RETRY(rc, ioctl(fd, FS_IOC_ENABLE_VERITY, &arg));
    return rc < 0 ? seal_error(errno) : 0;
}

static int posix_sealed(const struct vv_os *os, int fd, uint8_t digest[VV_OS_DIGEST])
{
    (void)os;
    /* The digest follows the head. A union, because a structure that ends in a flexible array cannot be
     * the first of two members. */
    union {
        struct fsverity_digest head;
        uint8_t bytes[sizeof(struct fsverity_digest) + VV_OS_DIGEST];
    } d = {.head = {.digest_size = VV_OS_DIGEST}};
    if (ioctl(fd, FS_IOC_MEASURE_VERITY, &d) < 0)
        return errno == EOVERFLOW ? -ENODATA : seal_error(errno);
    if (d.head.digest_size != VV_OS_DIGEST)
        return -ENODATA;
    memcpy(digest, d.bytes + sizeof(struct fsverity_digest), VV_OS_DIGEST);
    return 0;
}
#else
static int posix_seal(const struct vv_os *os, int fd)
{
    (void)os;
    (void)fd;
    return -EOPNOTSUPP;
}

static int posix_sealed(const struct vv_os *os, int fd, uint8_t digest[VV_OS_DIGEST])
{
    (void)os;
    (void)fd;
    (void)digest;
    return -EOPNOTSUPP;
}
#endif

static int posix_unlock(const struct vv_os *os, int fd)
{
    (void)os;
    struct flock fl = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    int rc;
    RETRY(rc, fcntl(fd, F_OFD_SETLK, &fl));
    return rc < 0 ? -errno : 0;
}

static int posix_list(const struct vv_os *os, int dirfd, int (*visit)(void *user, const char *name),
                      void *user)
{
    (void)os;
    int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    DIR *dir = fdopendir(fd);
    if (!dir) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    int rc = 0;
    while (rc == 0) {
        errno = 0;
        struct dirent *e = readdir(dir);
        if (!e) {
            rc = -errno;
            break;
        }
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            rc = visit(user, e->d_name);
    }
    closedir(dir);
    return rc;
}

const struct vv_os *vv_os_posix(void)
{
    static const struct vv_os os = {
        .openat = posix_openat,
        .close = posix_close,
        .mkdirat = posix_mkdirat,
        .unlinkat = posix_unlinkat,
        .rename = posix_rename,
        .fallocate = posix_fallocate_,
        .punch = posix_punch,
        .ftruncate = posix_ftruncate,
        .fsync = posix_fsync,
        .file_bytes = posix_file_bytes,
        .stat = posix_stat,
        .free_bytes = posix_free_bytes,
        .pread = posix_pread,
        .pwrite = posix_pwrite,
        .lock = posix_lock,
        .lock_shared = posix_lock_shared,
        .lock_test = posix_lock_test,
        .unlock = posix_unlock,
        .list = posix_list,
        .seal = posix_seal,
        .sealed = posix_sealed,
    };
    return &os;
}

int vv_os_open_regular(const struct vv_os *os, int dirfd, const char *path, int flags)
{
    struct stat st;
    uint64_t bytes;
    int fd = os->openat(os, dirfd, path, flags | O_NONBLOCK, 0);
    if (fd < 0) /* open of other kinds of file fails with various codes */
        return os->stat(os, dirfd, path, &bytes) == -EBADMSG ? -EBADMSG : fd;
    /* fstat, not stat: the name could be another file by now. */
    int rc = fstat(fd, &st) < 0 ? -errno : S_ISREG(st.st_mode) ? 0 : -EBADMSG;
    /* O_NONBLOCK is removed, because with it io_uring would fail reads that have to wait. */
    if (rc == 0 && fcntl(fd, F_SETFL, flags & O_DIRECT) < 0)
        rc = -errno;
    if (rc < 0)
        os->close(os, fd);
    return rc < 0 ? rc : fd;
}

uint64_t vv_os_boot(const struct vv_os *os)
{
    char text[64];
    uint64_t boot = 0;
    if (os->boot)
        return os->boot(os);
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text)) : 0;
    if (fd >= 0)
        close(fd);
    if (n > 0)
        boot = vv_hash64(text, (size_t)n);
    else if (getrandom(&boot, sizeof(boot), 0) != (ssize_t)sizeof(boot))
        boot = vv_now_ns();
    return boot != 0 ? boot : 1;
}

int vv_os_read_all(const struct vv_os *os, int fd, void *buf, size_t bytes, uint64_t offset)
{
    size_t done = 0;
    while (done < bytes) {
        int64_t n = os->pread(os, fd, (char *)buf + done, bytes - done, offset + done);
        if (n < 0)
            return (int)n;
        if (n == 0)
            return -ENODATA;
        done += (size_t)n;
    }
    return 0;
}

int vv_os_write_all(const struct vv_os *os, int fd, const void *buf, size_t bytes, uint64_t offset)
{
    size_t done = 0;
    while (done < bytes) {
        int64_t n = os->pwrite(os, fd, (const char *)buf + done, bytes - done, offset + done);
        if (n < 0)
            return (int)n;
        if (n == 0)
            return -EIO;
        done += (size_t)n;
    }
    return 0;
}

bool vv_os_syncs_ranges(int fd)
{
    struct utsname name;
    struct statfs fs;
    unsigned major, minor;
    /* Before Linux 5.2 it skips pages that it would have to wait for. */
    if (uname(&name) < 0 || sscanf(name.release, "%u.%u", &major, &minor) != 2 || major < 5 ||
        (major == 5 && minor < 2) || fstatfs(fd, &fs) < 0)
        return false;
    switch ((unsigned long)fs.f_type) {
    case 0xef53:     /* ext2, ext3, ext4 */
    case 0x58465342: /* XFS */
    case 0x9123683e: /* btrfs */
    case 0x01021994: /* tmpfs */
    case 0xf2f52010: /* F2FS */
        return true;
    }
    /* Overlayfs, for example, has no pages of its own. */
    return false;
}

int vv_os_refresh(const struct vv_os *os, int dirfd, const char *name)
{
    /* A file left behind by an earlier call would make the open change nothing. */
    int rc = os->unlinkat(os, dirfd, name);
    if (rc < 0 && rc != -ENOENT)
        return rc;
    int fd = os->openat(os, dirfd, name, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (fd < 0)
        return fd;
    os->close(os, fd);
    rc = os->unlinkat(os, dirfd, name);
    return rc == -ENOENT ? 0 : rc;
}
