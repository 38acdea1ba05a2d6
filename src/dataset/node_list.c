/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folders of object stores, which are in no file system: the stat of a folder, and its entries, as records in the form
 * in which the kernel gives them to programs (getdents64). Every node makes its own listings and asks no other node.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "dataset/node_private.h"

struct records {
    char *buf;
    size_t at, room, from; /* from: offset of the first record */
    const char *path;
};

static uint64_t folder_inode(const char *path)
{
    return vv_hash64(path, strlen(path)) | 1;
}

static void stat_of(const struct vv_node *n, const char *path, struct vv_server_stat *ret_stat)
{
    *ret_stat = (struct vv_server_stat){
        .dev = vvi_node_dev(n, path),
        .ino = folder_inode(path),
        .mode = S_IFDIR | 0555,
        .uid = (uint32_t)geteuid(),
        .gid = (uint32_t)getegid(),
        .blksize = 65536,
        .nlink = 2,
    };
}

int vvi_node_folder_stat(struct vv_node *n, const char *given, struct vv_server_stat *ret_stat,
                         bool *ret_readable)
{
    char path[VV_DATASET_PATH_MAX + 1];
    int rc = vvi_node_path(n, given, path);

    if (rc < 0 || !vvi_node_is_sole(n, path))
        return -EISDIR;
    stat_of(n, path, ret_stat);
    *ret_readable = true;
    return 0;
}

static int add(struct records *r, const char *name, uint64_t ino, unsigned char type)
{
    size_t bytes = strlen(name);
    size_t reclen = vv_align_up(offsetof(struct vv_server_name, name) + bytes + 1, 8);
    struct vv_server_name *e;

    if (r->at + reclen > r->room) {
        size_t room = VV_MAX(2 * r->room, r->at + reclen + 65536);
        char *more = realloc(r->buf, room);

        if (!more)
            return -ENOMEM;
        r->buf = more;
        r->room = room;
    }
    e = (struct vv_server_name *)(void *)(r->buf + r->at);
    memset(e, 0, reclen);
    r->at += reclen;
    e->ino = ino;
    e->off = (int64_t)(r->at - r->from);
    e->reclen = (uint16_t)reclen;
    e->type = type;
    memcpy((char *)e + offsetof(struct vv_server_name, name), name, bytes);
    return 0;
}

static int add_name(void *user, const char *name, const struct vv_shared_stat *st)
{
    struct records *r = user;
    char path[VV_DATASET_PATH_MAX + 1 + 256];

    if (!S_ISDIR(st->mode))
        return add(r, name, st->gen.inode, DT_REG);
    snprintf(path, sizeof(path), "%s/%s", r->path, name);
    return add(r, name, folder_inode(path), DT_DIR);
}

/* Writes the header, the path, and the two names that every folder has. */
static int begin(struct records *r, const char *path, uint64_t ino)
{
    struct vv_server_folder head = {.magic = VV_SERVER_FOLDER_MAGIC, .version = VV_SERVER_VERSION};
    size_t bytes = strlen(path);
    int rc;

    head.path_bytes = (uint32_t)bytes;
    head.at = r->from = r->at = vv_align_up(sizeof(head) + bytes + 1, 8);
    r->room = r->at + 65536;
    r->buf = calloc(1, r->room);
    if (!r->buf)
        return -ENOMEM;
    memcpy(r->buf, &head, sizeof(head));
    memcpy(r->buf + sizeof(head), path, bytes);
    rc = add(r, ".", ino, DT_DIR);
    return rc < 0 ? rc : add(r, "..", ino, DT_DIR);
}

/* Adds zeros at the end: programs copy a whole struct dirent, which may be longer than the last record. */
static int to_memory(const struct records *r, struct vv_server_stat *stat, int *ret_fd)
{
    struct vv_server_folder *head = (struct vv_server_folder *)(void *)r->buf;
    char name[VV_SERVER_MEMORY_NAME];
    int fd, rc = 0;

    head->bytes = r->at - r->from;
    stat->size = r->at + sizeof(struct dirent);
    vv_server_memory_name(stat, name);
    fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    if (ftruncate(fd, (off_t)stat->size) < 0)
        rc = -errno;
    for (size_t done = 0; done < r->at && rc == 0;) {
        ssize_t n = write(fd, r->buf + done, r->at - done);

        if (n < 0 && errno != EINTR)
            rc = -errno;
        done += n > 0 ? (size_t)n : 0;
    }
    if (rc == 0 && fchmod(fd, VV_SERVER_CONTENT_MODE) < 0)
        rc = -errno;
    if (rc == 0)
        rc = vvi_node_memory_seal(fd, ret_fd);
    close(fd);
    return rc;
}

int vv_node_list(struct vv_node *n, const struct vv_server_ask *ask, int *ret_fd,
                 struct vv_server_stat *ret_stat)
{
    char path[VV_DATASET_PATH_MAX + 1];
    struct records r = {.path = path};
    struct vv_server_stat st;
    int rc = vvi_node_path(n, ask->path, path);

    if (rc < 0)
        return rc;
    if (!vvi_node_is_sole(n, path))
        return -ENOSYS;
    stat_of(n, path, &st);
    rc = begin(&r, path, st.ino);
    if (rc == 0)
        rc = n->shared->list(n->shared, path, add_name, &r);
    if (rc == 0)
        rc = to_memory(&r, &st, ret_fd);
    free(r.buf);
    if (rc == 0)
        *ret_stat = st;
    return rc;
}
