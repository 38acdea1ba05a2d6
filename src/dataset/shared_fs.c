/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of the real shared file system, and only those below the roots. The place that a path led to decides whether
 * it is allowed, not its spelling. The path is opened without access (O_PATH), which neither waits nor touches the
 * file. The kernel gives the place of that descriptor. Then the same object is opened for reading, through the
 * descriptor. So a link that is changed in between has no effect.
 *
 * Immutable once made; any thread.
 */
#include "dataset/shared_fs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/clock.h"

struct real {
    struct vv_shared ops; /* first: the functions get a pointer to it */
    char **roots;         /* resolved */
    size_t nr_roots;
};

static bool is_below(const struct real *r, const char *path)
{
    for (size_t i = 0; i < r->nr_roots; i++) {
        size_t n = strlen(r->roots[i]);

        /* The root "/" ends in a slash, others are followed by one. */
        if (strncmp(path, r->roots[i], n) == 0 && (r->roots[i][n - 1] == '/' || path[n] == '/'))
            return true;
    }
    return false;
}

static uint64_t ns_of(const struct statx_timestamp *t)
{
    return (uint64_t)t->tv_sec * VV_NS_PER_S + t->tv_nsec;
}

static void stat_of(const struct statx *from, struct vv_shared_stat *st)
{
    *st = (struct vv_shared_stat){
        .gen = {.size = from->stx_size,
                .mtime_ns = ns_of(&from->stx_mtime),
                .ctime_ns = ns_of(&from->stx_ctime),
                .inode = from->stx_ino},
        .mode = from->stx_mode,
        .uid = from->stx_uid,
        .gid = from->stx_gid,
        .nlink = from->stx_nlink,
        .blksize = from->stx_blksize,
        .dev = (uint64_t)makedev(from->stx_dev_major, from->stx_dev_minor),
        .blocks = from->stx_blocks,
        .atime_ns = ns_of(&from->stx_atime),
        .btime_ns = from->stx_mask & STATX_BTIME ? ns_of(&from->stx_btime) : 0,
    };
}

/* The state of an open file, as its server has it now. Network file systems cache attributes for seconds, or a
 * minute, and fstat returns these: a change would be seen late, and one during a read not at all. */
static int ask(int fd, struct vv_shared_stat *ret_stat)
{
    struct statx st;

    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_BASIC_STATS | STATX_BTIME, &st) <
        0)
        return -errno;
    stat_of(&st, ret_stat);
    return 0;
}

static struct vv_server_time time_of(uint64_t ns)
{
    int64_t sec = (int64_t)ns / (int64_t)VV_NS_PER_S, rest = (int64_t)ns % (int64_t)VV_NS_PER_S;

    if (rest < 0) { /* before 1970 */
        sec--;
        rest += (int64_t)VV_NS_PER_S;
    }
    return (struct vv_server_time){.sec = sec, .nsec = (uint32_t)rest};
}

void vv_shared_stat_to_wire(const struct vv_shared_stat *st, struct vv_server_stat *ret_stat)
{
    *ret_stat = (struct vv_server_stat){
        .dev = st->dev,
        .ino = st->gen.inode,
        .mode = st->mode,
        .uid = st->uid,
        .gid = st->gid,
        .blksize = st->blksize,
        .nlink = st->nlink,
        .size = st->gen.size,
        .blocks = st->blocks,
        .atime = time_of(st->atime_ns),
        .mtime = time_of(st->gen.mtime_ns),
        .ctime = time_of(st->gen.ctime_ns),
        .btime = time_of(st->btime_ns),
    };
}

/* Resolves a path. The descriptor gives no access. */
static int find(const struct real *r, const char *path, int *ret_fd, struct vv_shared_stat *found)
{
    char link[40], where[PATH_MAX];
    ssize_t n;
    int fd, rc;

    if (path[0] != '/')
        return -EINVAL;
    fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, where, sizeof(where) - 1);
    rc = n < 0 ? -errno : ask(fd, found);
    if (rc == 0) {
        where[n] = '\0';
        if (!is_below(r, where))
            rc = -EACCES;
        else if (!S_ISREG(found->mode))
            rc = S_ISDIR(found->mode) ? -EISDIR : -EACCES;
    }
    if (rc < 0) {
        close(fd);
        return rc;
    }
    found->direct = strcmp(where, path) == 0;
    *ret_fd = fd;
    return 0;
}

static int real_look(const struct vv_shared *s, const char *path, struct vv_shared_stat *ret_stat)
{
    struct vv_shared_stat found;
    int fd, rc = find((const struct real *)s, path, &fd, &found);

    if (rc < 0)
        return rc;
    close(fd);
    *ret_stat = found;
    return 0;
}

static int real_look_again(const struct vv_shared *s, intptr_t file,
                           struct vv_shared_stat *ret_stat)
{
    (void)s;
    return ask((int)file, ret_stat);
}

static int real_open(const struct vv_shared *s, const char *path, intptr_t *ret_file,
                     struct vv_shared_stat *ret_stat)
{
    struct vv_shared_stat found;
    uint32_t direct;
    char link[40];
    int fd, file, rc = find((const struct real *)s, path, &fd, &found);

    if (rc < 0)
        return rc;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    file = open(link, O_RDONLY | O_CLOEXEC);
    direct = found.direct;
    rc = file < 0 ? -errno : real_look_again(s, file, &found);
    close(fd);
    if (rc < 0) {
        if (file >= 0)
            close(file);
        return rc;
    }
    *ret_file = file;
    *ret_stat = found;
    ret_stat->direct = direct;
    return 0;
}

static int64_t real_read(const struct vv_shared *s, intptr_t file, void *buf, size_t bytes,
                         uint64_t offset)
{
    ssize_t n;

    (void)s;
    do {
        n = pread((int)file, buf, bytes, (off_t)offset);
    } while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

static void real_close(const struct vv_shared *s, intptr_t file)
{
    (void)s;
    close((int)file);
}

static void real_free(struct vv_shared *s)
{
    struct real *r = (struct real *)s;

    for (size_t i = 0; i < r->nr_roots; i++)
        free(r->roots[i]);
    free(r->roots);
    free(r);
}

int vv_shared_new(const char *const *roots, size_t nr_roots, struct vv_shared **ret_shared)
{
    struct real *r;
    int rc = 0;

    if (nr_roots == 0)
        return -EINVAL;
    r = calloc(1, sizeof(*r));
    if (!r)
        return -ENOMEM;
    r->ops = (struct vv_shared){.look = real_look,
                                .open = real_open,
                                .read = real_read,
                                .look_again = real_look_again,
                                .close = real_close,
                                .free = real_free};
    r->roots = calloc(nr_roots, sizeof(*r->roots));
    if (!r->roots)
        rc = -ENOMEM;
    for (size_t i = 0; i < nr_roots && rc == 0; i++) {
        r->roots[i] = roots[i][0] == '/' ? realpath(roots[i], NULL) : NULL;
        if (!r->roots[i])
            rc = roots[i][0] == '/' ? -errno : -EINVAL;
        else
            r->nr_roots++;
    }
    if (rc < 0) {
        vv_shared_free(&r->ops);
        return rc;
    }
    *ret_shared = &r->ops;
    return 0;
}

void vv_shared_free(struct vv_shared *s)
{
    if (s)
        s->free(s);
}
