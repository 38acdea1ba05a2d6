/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handing files out, and the scrub. In each run of the cache, a file is read as a whole and compared with its checksum
 * before its first descriptor is handed out. A file that does not match, or cannot be read, is dropped, and the
 * caller has to bring it again. At each hand-out, a sealed file must have the digest that it had when this run sealed
 * or verified it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "dataset/dataset_private.h"
#include "dataset/ours.h"

#define READ_BYTES ((size_t)1 << 20)

int vvi_dataset_verify(const struct vv_dataset *d, int fd, uint64_t size, uint64_t sum)
{
    struct vv_hash_stream *hash = vv_hash_stream_new();
    char *buf = malloc(READ_BYTES);
    uint64_t done = 0, bytes = 0;
    int rc = hash && buf ? d->os->file_bytes(d->os, fd, &bytes) : -ENOMEM;

    if (rc == 0 && bytes != size)
        rc = -EBADMSG;
    while (rc == 0 && done < size) {
        size_t n = (size_t)VV_MIN(size - done, READ_BYTES);

        rc = vv_os_read_all(d->os, fd, buf, n, done);
        if (rc == 0)
            vv_hash_stream_add(hash, buf, n);
        done += n;
    }
    if (rc == 0 && vv_hash_stream_value(hash) != sum)
        rc = -EBADMSG;
    vv_hash_stream_free(hash);
    free(buf);
    return rc;
}

/* True if the error means that the file is unusable. */
static bool is_damage(int rc)
{
    return rc == -EBADMSG || rc == -EIO || rc == -ENODATA || rc == -ENOENT || rc == -ELOOP ||
           rc == -EPERM;
}

/* A file that was not verified in this run may have been left by another user who could write in the folder: a
 * link, a FIFO, a file of theirs. */
static int check_ours(struct vv_dataset *d, const char *name)
{
    char why[256];
    int rc, fd = vv_os_open_regular(d->os, d->dirfd, name, O_RDONLY | O_NOFOLLOW);

    if (fd < 0)
        return fd;
    rc = vv_ours_file(fd, name, why, sizeof(why));
    d->os->close(d->os, fd);
    return rc;
}

/* Opens the file of a pinned entry, with the lock that keeps it there. No O_NOFOLLOW: a program that gets the
 * descriptor would see it among its flags. */
static int open_entry(struct vv_dataset *d, const struct vvi_entry *e, bool verified, int *ret_fd)
{
    char name[VVI_DATASET_NAME];
    int fd, rc = 0;

    vvi_dataset_name(name, e->id, false);
    if (!verified)
        rc = check_ours(d, name);
    if (rc < 0)
        return rc;
    fd = d->os->openat(d->os, d->dirfd, name, O_RDONLY, 0);
    if (fd < 0)
        return fd;
    rc = d->os->lock_shared(d->os, fd);
    if (rc < 0) {
        d->os->close(d->os, fd);
        return rc;
    }
    *ret_fd = fd;
    return 0;
}

/* Compares the digest of a pinned entry's file with the known one. The first digest in a run is accepted, because the
 * content has just been verified. */
static int check_seal(struct vv_dataset *d, struct vvi_entry *e, int fd)
{
    uint8_t digest[VV_OS_DIGEST];
    bool known;
    int rc = d->os->sealed(d->os, fd, digest);

    vv_mutex_lock(&d->lock);
    known = e->has_digest;
    if (rc == 0 && !known) {
        e->has_digest = true;
        memcpy(e->digest, digest, sizeof(digest));
    } else if (rc == 0 && memcmp(e->digest, digest, sizeof(digest)) != 0) {
        rc = -EBADMSG;
    }
    vv_mutex_unlock(&d->lock);
    /* The file may have been copied to another disk: then its content is right, but it has no seal. */
    if (!known && (rc == -ENODATA || rc == -EOPNOTSUPP))
        rc = 0;
    return rc;
}

/* True if the file of a pinned entry is missing because the folder is gone. Then no file is damaged. */
static bool is_lost(struct vv_dataset *d, const struct vvi_entry *e, int rc)
{
    bool doomed;

    if (rc != -ENOENT)
        return false;
    if (vvi_dataset_restore(d))
        return true;
    vv_mutex_lock(&d->lock);
    doomed = e->doomed;
    vv_mutex_unlock(&d->lock);
    return doomed;
}

/* Unpins an entry after a check. A damaged one is dropped. */
static void finish(struct vv_dataset *d, struct vvi_entry *e, bool good, bool damaged, bool hit)
{
    if (damaged) {
        vv_log(VV_LOG_WARNING, "dataset: the cached copy of %s is damaged and is dropped", e->path);
        vvi_dataset_doom(d, e);
    }
    vv_mutex_lock(&d->lock);
    e->verified |= good;
    d->stats.damaged += damaged;
    d->stats.hits += hit;
    vvi_dataset_unpin_locked(d, e);
    vv_mutex_unlock(&d->lock);
    if (damaged)
        vvi_dataset_bury(d);
}

/* -ENOENT: no such file here; -ESTALE: another generation. `gen` NULL: any. */
static int find_locked(struct vv_dataset *d, const char *path, const struct vv_dataset_gen *gen,
                       struct vvi_entry **ret_entry)
{
    struct vvi_entry *e = vvi_dataset_find_locked(d, path);

    if (!e)
        return -ENOENT;
    if (gen && !vvi_dataset_same_gen(gen, &e->gen))
        return -ESTALE;
    *ret_entry = e;
    return 0;
}

/* Finds and pins an entry. */
static int look_up(struct vv_dataset *d, const char *path, const struct vv_dataset_gen *gen,
                   struct vvi_entry **ret_entry, bool *ret_verified)
{
    struct vvi_entry *e;
    int rc;

    vv_mutex_lock(&d->lock);
    rc = find_locked(d, path, gen, &e);
    if (rc == 0) {
        e->pins++;
        e->last_use = ++d->clock;
        *ret_verified = e->verified;
        *ret_entry = e;
    } else {
        d->stats.misses++;
    }
    vv_mutex_unlock(&d->lock);
    return rc;
}

int vv_dataset_get(struct vv_dataset *d, const char *path, const struct vv_dataset_gen *gen,
                   int *ret_fd, struct vv_dataset_gen *ret_gen)
{
    struct vvi_entry *e;
    struct vv_dataset_gen its;
    uint64_t bytes = 0;
    bool verified, lost;
    int fd = -1, rc = look_up(d, path, gen, &e, &verified);

    if (rc < 0)
        return rc;
    its = e->gen;
    rc = open_entry(d, e, verified, &fd);
    if (rc == 0 && verified) {
        /* A cheap check that detects a truncated file. */
        rc = d->os->file_bytes(d->os, fd, &bytes);
        if (rc == 0 && bytes != its.size)
            rc = -EBADMSG;
    } else if (rc == 0) {
        rc = vvi_dataset_verify(d, fd, its.size, e->sum);
    }
    if (rc == 0 && e->sealed)
        rc = check_seal(d, e, fd);
    if (rc < 0 && fd >= 0)
        d->os->close(d->os, fd);
    lost = is_lost(d, e, rc);
    finish(d, e, rc == 0, is_damage(rc) && !lost, rc == 0);
    if (rc < 0)
        return lost ? -ENOENT : is_damage(rc) ? -EBADMSG : rc;
    *ret_fd = fd;
    if (ret_gen)
        *ret_gen = its;
    return 0;
}

int vv_dataset_sum(struct vv_dataset *d, const char *path, const struct vv_dataset_gen *gen,
                   uint64_t *ret_sum)
{
    struct vvi_entry *e;
    int rc;

    vv_mutex_lock(&d->lock);
    rc = find_locked(d, path, gen, &e);
    if (rc == 0)
        *ret_sum = e->sum;
    vv_mutex_unlock(&d->lock);
    return rc;
}

int vv_dataset_check(struct vv_dataset *d, const char *path, const struct vv_dataset_gen *gen)
{
    struct vvi_entry *e;
    bool verified, lost;
    int fd = -1, rc = look_up(d, path, gen, &e, &verified);

    if (rc < 0)
        return rc;
    rc = open_entry(d, e, false, &fd);
    if (rc == 0)
        rc = vvi_dataset_verify(d, fd, e->gen.size, e->sum);
    if (fd >= 0)
        d->os->close(d->os, fd);
    lost = is_lost(d, e, rc);
    finish(d, e, rc == 0, is_damage(rc) && !lost, false);
    return lost ? -ENOENT : is_damage(rc) ? -EBADMSG : rc;
}

int vv_dataset_show(struct vv_dataset *d, const char *path, const struct vv_dataset_gen *gen,
                    const char *client_path, const struct vv_server_stat *stat, uint64_t until_ns,
                    bool direct)
{
    struct vvi_entry *e;
    int rc;

    if (!d->opts.index)
        return -ENOSYS;
    vv_mutex_lock(&d->lock);
    rc = find_locked(d, path, gen, &e);
    if (rc == 0 && !e->verified)
        rc = -EAGAIN;
    if (rc == 0)
        vvi_index_put(d->opts.index, e, client_path, stat, until_ns, direct);
    vv_mutex_unlock(&d->lock);
    return rc;
}

void vv_dataset_hide(struct vv_dataset *d)
{
    if (!d->opts.index)
        return;
    vv_mutex_lock(&d->lock);
    for (size_t i = 0; i < d->nr; i++)
        vvi_index_withdraw(d->opts.index, d->all[i]);
    vv_mutex_unlock(&d->lock);
}

int vv_dataset_peek(struct vv_dataset *d, const char *path, struct vv_dataset_gen *ret_gen,
                    bool *ret_verified)
{
    struct vvi_entry *e;

    vv_mutex_lock(&d->lock);
    e = vvi_dataset_find_locked(d, path);
    if (e) {
        *ret_gen = e->gen;
        *ret_verified = e->verified;
    }
    vv_mutex_unlock(&d->lock);
    return e ? 0 : -ENOENT;
}

/* The next file that was not read in this round. NULL: the round is over. */
static struct vvi_entry *next_to_scrub(struct vv_dataset *d)
{
    struct vvi_entry *next = NULL;

    vv_mutex_lock(&d->lock);
    for (bool again = true; again && !next;) {
        while (d->scrub_at < d->nr && !next) {
            struct vvi_entry *e = d->all[d->scrub_at++];

            if (e->state == DATASET_READY && e->round != d->round)
                next = e;
        }
        if (!next) {
            again = d->scrub_again;
            d->scrub_again = false;
            d->scrub_at = 0;
        }
    }
    if (next) {
        next->round = d->round;
        next->pins++;
    } else {
        d->round++;
    }
    vv_mutex_unlock(&d->lock);
    return next;
}

/* Lack of memory or descriptors has prevented the read: the entry stays in this round. */
static void put_back(struct vv_dataset *d, struct vvi_entry *e)
{
    vv_mutex_lock(&d->lock);
    e->round = d->round - 1;
    d->scrub_again = true;
    vv_mutex_unlock(&d->lock);
}

int vv_dataset_scrub(struct vv_dataset *d, uint64_t bytes, bool *ret_around)
{
    uint64_t done = 0;
    int damaged = 0;

    vvi_dataset_bury(d);
    while (done < bytes) {
        struct vvi_entry *e = next_to_scrub(d);
        int fd = -1, rc;
        bool lost;

        if (!e) {
            *ret_around = true;
            return damaged;
        }
        rc = open_entry(d, e, false, &fd);
        if (rc == 0)
            rc = vvi_dataset_verify(d, fd, e->gen.size, e->sum);
        if (fd >= 0)
            d->os->close(d->os, fd);
        done += VV_MAX(e->gen.size, UINT64_C(1));
        lost = is_lost(d, e, rc);
        damaged += is_damage(rc) && !lost;
        if (rc == -ENOMEM || rc == -EMFILE || rc == -ENFILE)
            put_back(d, e);
        finish(d, e, rc == 0, is_damage(rc) && !lost, false);
        if (rc < 0 && !is_damage(rc))
            return rc;
    }
    *ret_around = false;
    return damaged;
}
