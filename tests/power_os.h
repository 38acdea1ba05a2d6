/* SPDX-License-Identifier: Apache-2.0 */
/* An OS table whose power can be cut. It counts calls; before the Nth the power is cut, and every call from
 * then on fails with -EIO and does nothing. power_os_lose() then undoes a random part of what was not synced:
 *   - each write by itself: kept, dropped, or torn between two sectors, in any order;
 *   - for each folder, the last few creations, renames and removals since its last fsync.
 * With `all` everything not synced is undone. A file's data counts as synced when the fsync is
 * called: the store calls it after its writes have ended. Sizes and allocated blocks are not
 * undone: a dropped write leaves zeros, or the earlier bytes. */
#ifndef POWER_OS_H
#define POWER_OS_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/os.h"
#include "t.h"

enum { POWER_SECTOR = 512, POWER_NAME = 128 };
enum power_kind { POWER_CREATE, POWER_RENAME, POWER_UNLINK };

struct power_write {
    dev_t dev;
    ino_t ino;
    int fd; /* owned, buffered */
    uint64_t offset;
    size_t bytes;
    char *old;
};

struct power_name {
    dev_t dev;
    ino_t ino;
    int dirfd; /* owned */
    enum power_kind kind;
    char from[POWER_NAME], to[POWER_NAME];
    int grave; /* number of the saved file; -1: none */
};

struct power_os {
    struct vv_os os; /* first */
    const struct vv_os *real;
    pthread_mutex_t lock;
    long at; /* the power is cut before this call; 0: never */
    long count;
    bool dead;
    bool all;                           /* everything not synced is lost, not a random part */
    struct power_os *peers, *next_peer; /* nodes that share a folder; immutable once they run */
    const char *graveyard;
    int ngraves;
    struct power_write *writes;
    size_t nwrites, writes_room;
    struct power_name *names;
    size_t nnames, names_room;
    uint64_t kept, dropped, torn, undone; /* counted by power_os_lose */
};

static inline struct power_os *power_of(const struct vv_os *os)
{
    return (struct power_os *)(uintptr_t)os;
}

/* Lock held on return; false, without the lock: the power is cut. */
static inline bool power_enter(const struct vv_os *os)
{
    struct power_os *p = power_of(os);
    pthread_mutex_lock(&p->lock);
    p->count++;
    if (p->at != 0 && p->count >= p->at)
        p->dead = true;
    bool dead = p->dead;
    if (dead)
        pthread_mutex_unlock(&p->lock);
    return !dead;
}

static inline void power_leave(const struct vv_os *os)
{
    pthread_mutex_unlock(&power_of(os)->lock);
}

/* ---- keeping earlier contents ---- */

static inline void power_log_write(struct power_os *p, int fd, uint64_t offset, size_t bytes)
{
    char path[64];
    struct stat st;
    T_OK(fstat(fd, &st));
    if (p->nwrites == p->writes_room) {
        p->writes_room = p->writes_room ? 2 * p->writes_room : 64;
        p->writes = realloc(p->writes, p->writes_room * sizeof(*p->writes));
    }
    struct power_write *w = &p->writes[p->nwrites++];
    *w = (struct power_write){.dev = st.st_dev, .ino = st.st_ino, .offset = offset, .bytes = bytes};
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    w->fd = open(path, O_RDWR | O_CLOEXEC);
    T_CHECK(w->fd >= 0);
    w->old = calloc(1, bytes);
    T_CHECK(pread(w->fd, w->old, bytes, (off_t)offset) >= 0);
}

static inline struct power_name *power_log_name(struct power_os *p, int dirfd, enum power_kind kind,
                                                const char *from, const char *to)
{
    struct stat st;
    int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    T_CHECK(fd >= 0);
    T_OK(fstat(fd, &st));
    if (p->nnames == p->names_room) {
        p->names_room = p->names_room ? 2 * p->names_room : 64;
        p->names = realloc(p->names, p->names_room * sizeof(*p->names));
    }
    struct power_name *n = &p->names[p->nnames++];
    *n = (struct power_name){
        .dev = st.st_dev, .ino = st.st_ino, .dirfd = fd, .kind = kind, .grave = -1};
    snprintf(n->from, sizeof(n->from), "%s", from);
    snprintf(n->to, sizeof(n->to), "%s", to);
    return n;
}

static inline void power_grave(const struct power_os *p, int number, char path[512])
{
    snprintf(path, 512, "%s/%d", p->graveyard, number);
}

/* Saves the file of that name, if it exists. */
static inline void power_bury(struct power_os *p, struct power_name *n, const char *name)
{
    char path[512];
    power_grave(p, p->ngraves, path);
    if (linkat(n->dirfd, name, AT_FDCWD, path, 0) == 0)
        n->grave = p->ngraves++;
}

static inline void power_names_synced(struct power_os *p, const struct stat *st)
{
    size_t kept = 0;
    for (size_t i = 0; i < p->nnames; i++) {
        struct power_name *n = &p->names[i];
        if (n->dev == st->st_dev && n->ino == st->st_ino)
            close(n->dirfd);
        else
            p->names[kept++] = *n;
    }
    p->nnames = kept;
}

static inline void power_synced(struct power_os *p, int fd)
{
    struct stat st;
    size_t kept = 0;
    T_OK(fstat(fd, &st));
    for (size_t i = 0; i < p->nwrites; i++) {
        struct power_write *w = &p->writes[i];
        if (w->dev == st.st_dev && w->ino == st.st_ino) {
            close(w->fd);
            free(w->old);
        } else {
            p->writes[kept++] = *w;
        }
    }
    p->nwrites = kept;
    power_names_synced(p, &st);
}

/* An fsync of a shared folder, by any node, is one for all of them. */
static inline void power_synced_for_all(const struct power_os *by, int fd)
{
    struct stat st;
    T_OK(fstat(fd, &st));
    for (struct power_os *p = by->peers; p; p = p->next_peer) {
        if (p == by)
            continue;
        pthread_mutex_lock(&p->lock);
        power_names_synced(p, &st);
        pthread_mutex_unlock(&p->lock);
    }
}

/* ---- the calls ---- */

static inline int power_openat(const struct vv_os *os, int dirfd, const char *path, int flags,
                               unsigned mode)
{
    struct power_os *p = power_of(os);
    if (!power_enter(os))
        return -EIO;
    bool fresh = (flags & O_CREAT) && faccessat(dirfd, path, F_OK, 0) != 0;
    int fd = p->real->openat(p->real, dirfd, path, flags, mode);
    if (fd >= 0 && fresh)
        power_log_name(p, dirfd, POWER_CREATE, path, "");
    power_leave(os);
    return fd;
}

static inline int power_close(const struct vv_os *os, int fd)
{
    return power_of(os)->real->close(power_of(os)->real, fd);
}

static inline int power_mkdirat(const struct vv_os *os, int dirfd, const char *path, unsigned mode)
{
    if (!power_enter(os))
        return -EIO;
    int rc = power_of(os)->real->mkdirat(power_of(os)->real, dirfd, path, mode);
    power_leave(os);
    return rc;
}

static inline int power_unlinkat(const struct vv_os *os, int dirfd, const char *path)
{
    struct power_os *p = power_of(os);
    if (!power_enter(os))
        return -EIO;
    int rc = -ENOENT;
    if (faccessat(dirfd, path, F_OK, 0) == 0) {
        power_bury(p, power_log_name(p, dirfd, POWER_UNLINK, path, ""), path);
        rc = p->real->unlinkat(p->real, dirfd, path);
    }
    power_leave(os);
    return rc;
}

static inline int power_rename(const struct vv_os *os, int dirfd, const char *from, const char *to,
                               bool may_replace)
{
    struct power_os *p = power_of(os);
    if (!power_enter(os))
        return -EIO;
    struct power_name *n = power_log_name(p, dirfd, POWER_RENAME, from, to);
    power_bury(p, n, to);
    int rc = p->real->rename(p->real, dirfd, from, to, may_replace);
    if (rc < 0) {
        close(n->dirfd);
        p->nnames--;
    }
    power_leave(os);
    return rc;
}

static inline int power_fallocate(const struct vv_os *os, int fd, uint64_t offset, uint64_t bytes)
{
    if (!power_enter(os))
        return -EIO;
    int rc = power_of(os)->real->fallocate(power_of(os)->real, fd, offset, bytes);
    power_leave(os);
    return rc;
}

static inline int power_ftruncate(const struct vv_os *os, int fd, uint64_t bytes)
{
    if (!power_enter(os))
        return -EIO;
    int rc = power_of(os)->real->ftruncate(power_of(os)->real, fd, bytes);
    power_leave(os);
    return rc;
}

static inline int power_fsync(const struct vv_os *os, int fd)
{
    if (!power_enter(os))
        return -EIO;
    power_synced(power_of(os), fd);
    power_leave(os);
    power_synced_for_all(power_of(os), fd);
    return 0;
}

static inline int power_file_bytes(const struct vv_os *os, int fd, uint64_t *ret_bytes)
{
    return power_of(os)->real->file_bytes(power_of(os)->real, fd, ret_bytes);
}

static inline int power_stat(const struct vv_os *os, int dirfd, const char *path,
                             uint64_t *ret_bytes)
{
    return power_of(os)->real->stat(power_of(os)->real, dirfd, path, ret_bytes);
}

static inline int power_free_bytes(const struct vv_os *os, int fd, uint64_t *ret_bytes)
{
    return power_of(os)->real->free_bytes(power_of(os)->real, fd, ret_bytes);
}

static inline int64_t power_pread(const struct vv_os *os, int fd, void *buf, size_t bytes,
                                  uint64_t offset)
{
    if (!power_enter(os))
        return -EIO;
    int64_t n = power_of(os)->real->pread(power_of(os)->real, fd, buf, bytes, offset);
    power_leave(os);
    return n;
}

static inline int64_t power_pwrite(const struct vv_os *os, int fd, const void *buf, size_t bytes,
                                   uint64_t offset)
{
    if (!power_enter(os))
        return -EIO;
    power_log_write(power_of(os), fd, offset, bytes);
    int64_t n = power_of(os)->real->pwrite(power_of(os)->real, fd, buf, bytes, offset);
    power_leave(os);
    return n;
}

static inline int power_lock(const struct vv_os *os, int fd)
{
    return power_of(os)->real->lock(power_of(os)->real, fd);
}

static inline int power_unlock(const struct vv_os *os, int fd)
{
    return power_of(os)->real->unlock(power_of(os)->real, fd);
}

static inline int power_list(const struct vv_os *os, int dirfd,
                             int (*visit)(void *user, const char *name), void *user)
{
    struct power_os *p = power_of(os);
    if (!power_enter(os))
        return -EIO;
    power_leave(os); /* visit may make other calls */
    return p->real->list(p->real, dirfd, visit, user);
}

static inline int64_t power_aio(const struct vv_os *os, enum vv_os_aio op, int fd, uint64_t offset,
                                size_t bytes)
{
    if (!power_enter(os))
        return -EIO;
    if (op == VV_OS_AIO_WRITE)
        power_log_write(power_of(os), fd, offset, bytes);
    else if (op == VV_OS_AIO_FSYNC)
        power_synced(power_of(os), fd);
    power_leave(os);
    return 0;
}

static inline void power_os_init(struct power_os *p, long at)
{
    memset(p, 0, sizeof(*p));
    pthread_mutex_init(&p->lock, NULL);
    p->real = vv_os_posix();
    p->at = at;
    p->graveyard = t_tmpdir();
    p->os = (struct vv_os){
        .openat = power_openat,
        .close = power_close,
        .mkdirat = power_mkdirat,
        .unlinkat = power_unlinkat,
        .rename = power_rename,
        .fallocate = power_fallocate,
        .ftruncate = power_ftruncate,
        .fsync = power_fsync,
        .file_bytes = power_file_bytes,
        .stat = power_stat,
        .free_bytes = power_free_bytes,
        .pread = power_pread,
        .pwrite = power_pwrite,
        .lock = power_lock,
        .unlock = power_unlock,
        .list = power_list,
        .aio = power_aio,
    };
}

/* ---- losing ---- */

static inline void power_undo_name(struct power_os *p, const struct power_name *n)
{
    char grave[512] = "";
    if (n->grave >= 0)
        power_grave(p, n->grave, grave);
    if (n->kind == POWER_CREATE)
        unlinkat(n->dirfd, n->from, 0);
    else if (n->kind == POWER_RENAME)
        renameat(n->dirfd, n->to, n->dirfd, n->from);
    if (grave[0])
        T_OK(linkat(AT_FDCWD, grave, n->dirfd, n->kind == POWER_RENAME ? n->to : n->from, 0));
    p->undone++;
}

static inline bool power_same_folder(const struct power_name *a, const struct power_name *b)
{
    return a->dev == b->dev && a->ino == b->ino;
}

/* Undoes the last few changes of each folder, newest first. */
static inline void power_lose_names(struct power_os *p, struct t_rng *rng)
{
    bool *done = calloc(p->nnames + 1, sizeof(*done));
    for (size_t i = p->nnames; i-- > 0;) {
        if (done[i])
            continue;
        size_t all = 0;
        for (size_t k = 0; k <= i; k++)
            all += power_same_folder(&p->names[k], &p->names[i]);
        size_t lose = p->all ? all : t_rng_below(rng, all + 1);
        for (size_t k = i + 1; k-- > 0;) {
            if (!power_same_folder(&p->names[k], &p->names[i]) || done[k])
                continue;
            done[k] = true;
            if (lose > 0) {
                lose--;
                power_undo_name(p, &p->names[k]);
            }
        }
    }
    free(done);
}

static inline void power_lose_write(struct power_os *p, struct power_write *w, struct t_rng *rng)
{
    size_t sectors = (w->bytes + POWER_SECTOR - 1) / POWER_SECTOR;
    size_t from = 0, to = sectors;
    switch (p->all ? 1 : t_rng_below(rng, 3)) {
    case 0:
        p->kept++;
        return;
    case 1:
        p->dropped++;
        break;
    default: /* the sectors between two of them are lost */
        from = t_rng_below(rng, sectors);
        to = from + t_rng_below(rng, sectors - from + 1);
        p->torn++;
        break;
    }
    size_t begin = from * POWER_SECTOR,
           end = to * POWER_SECTOR < w->bytes ? to * POWER_SECTOR : w->bytes;
    if (end > begin)
        T_CHECK(pwrite(w->fd, w->old + begin, end - begin, (off_t)(w->offset + begin)) >= 0);
}

/* Cuts the power now. */
static inline void power_os_cut(struct power_os *p)
{
    pthread_mutex_lock(&p->lock);
    p->dead = true;
    pthread_mutex_unlock(&p->lock);
}

/* Call it with everything closed. Afterwards the table is not used any more. */
static inline void power_os_lose(struct power_os *p, struct t_rng *rng)
{
    for (size_t i = p->nwrites; i-- > 0;) {
        if (p->dead)
            power_lose_write(p, &p->writes[i], rng);
        close(p->writes[i].fd);
        free(p->writes[i].old);
    }
    if (p->dead)
        power_lose_names(p, rng);
    for (size_t i = 0; i < p->nnames; i++)
        close(p->names[i].dirfd);
    for (int i = 0; i < p->ngraves; i++) {
        char path[512];
        power_grave(p, i, path);
        unlink(path);
    }
    free(p->writes);
    free(p->names);
    pthread_mutex_destroy(&p->lock);
}

#endif
