/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storing files. A fill has an entry, reserved space, and a file under a temporary name. The entry prevents a second
 * fill of the same file. Its checksum is computed while the bytes are written. In one step the file becomes visible and
 * an older generation ends: a reader gets one of the two generations, whole.
 *
 * Where kernel and file system can, a file is sealed (fs-verity) before it gets its name. From then on the kernel
 * checks every page that it reads of the file against a tree of hashes, also for programs that have it open. A
 * file that cannot be sealed is stored without a seal.
 *
 * Nothing is synced. After a crash a content file may lack bytes that its record in the manifest covers; then its
 * checksum does not match when it is first handed out.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/log.h"
#include "dataset/dataset_private.h"

#define FULL_LOG_NS (600 * VV_NS_PER_S)

/* Logs that the disk is full before the cache has reached its capacity, but not for each file.
 * Files that find no room are read from the shared file system, and no other message says so. */
static int log_full(struct vv_dataset *d, int rc)
{
    uint64_t now_ns = vv_now_ns();
    uint64_t next_ns = atomic_load_explicit(&d->full_log_ns, memory_order_relaxed);
    char capacity[VV_BYTES_TEXT];

    if ((rc == -ENOSPC || rc == -EDQUOT) && now_ns >= next_ns &&
        atomic_compare_exchange_strong_explicit(&d->full_log_ns, &next_ns, now_ns + FULL_LOG_NS,
                                                memory_order_relaxed, memory_order_relaxed))
        vv_log(VV_LOG_WARNING,
               "dataset: %s before %s of files are cached: files without room are read from the "
               "shared file system; make room on the disk, or lower the capacity",
               strerror(-rc), vv_bytes_human(d->opts.capacity, capacity, sizeof(capacity)));
    return rc;
}

/* Adds an entry for a new file to the table. */
static int claim(struct vv_dataset *d, const struct vv_dataset_want *want, struct vvi_entry *e,
                 uint64_t *ret_rank)
{
    struct vvi_entry *ready, *other;
    int rc = 0;

    vv_mutex_lock(&d->lock);
    ready = vvi_dataset_find_locked(d, want->path);
    if (ready && vvi_dataset_same_gen(&ready->gen, &want->gen))
        rc = -EEXIST;
    for (other = vv_table_find(&d->by_path, e->hash); other && rc == 0;
         other = vv_table_same(other))
        if (other->state == DATASET_FILLING && strcmp(other->path, want->path) == 0)
            rc = -EALREADY;
    if (rc == 0) {
        e->id = d->next_id++;
        e->state = DATASET_FILLING;
        e->pins = 1;
        e->next_use = want->next_use;
        e->last_use = ++d->clock;
        e->copy = want->copy;
        /* Rank 0 is for files that a request waits for. */
        *ret_rank = want->ahead ? VV_MAX(vvi_dataset_rank_locked(d, want->next_use, e->last_use),
                                         (uint64_t)1)
                                : 0;
        /* One file must not evict a large share of all others. */
        if (d->opts.big_file && want->gen.size > d->opts.big_file)
            *ret_rank = vvi_dataset_rank_of_copies();
        rc = vvi_dataset_add_locked(d, e);
    }
    vv_mutex_unlock(&d->lock);
    return rc;
}

/* Frees the entry of a failed fill, and `bytes` reserved for it. */
static void unclaim(struct vv_dataset *d, struct vvi_entry *e, uint64_t bytes)
{
    vv_mutex_lock(&d->lock);
    vvi_dataset_used_locked(d, -(int64_t)bytes);
    vvi_dataset_set_state_locked(d, e, DATASET_GONE);
    vvi_dataset_unpin_locked(d, e);
    vv_mutex_unlock(&d->lock);
}

/* Removes the file of a failed fill. False: it is still there, and is counted until the folder is opened
 * again, which removes it. */
static bool unlink_temp(struct vv_dataset *d, const struct vvi_entry *e)
{
    char name[VVI_DATASET_NAME];
    int rc;

    vvi_dataset_name(name, e->id, true);
    rc = d->os->unlinkat(d->os, d->dirfd, name);
    return rc == 0 || rc == -ENOENT;
}

static int create(struct vv_dataset *d, const struct vvi_entry *e, int *ret_fd, bool *ret_left)
{
    char name[VVI_DATASET_NAME];
    int fd, rc = 0;

    *ret_left = false;

    vvi_dataset_name(name, e->id, true);
    fd = d->os->openat(d->os, d->dirfd, name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd == -ENOENT && vvi_dataset_restore(d))
        fd = d->os->openat(d->os, d->dirfd, name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0)
        return fd == -ENOENT ? -ENOSPC : log_full(d, fd);
    /* Allocate now, so that a full disk fails here and not in the middle of the file. */
    if (e->gen.size > 0)
        rc = d->os->fallocate(d->os, fd, 0, e->gen.size);
    if (rc < 0 && rc != -EOPNOTSUPP) {
        d->os->close(d->os, fd);
        *ret_left = !unlink_temp(d, e);
        return log_full(d, rc);
    }
    *ret_fd = fd;
    return 0;
}

int vv_dataset_begin(struct vv_dataset *d, const struct vv_dataset_want *want,
                     struct vv_dataset_fill **ret_fill)
{
    uint64_t bytes = 0, rank = 0, room = 0, space;
    size_t length = strlen(want->path);
    struct vv_dataset_fill *f;
    struct vvi_entry *e;
    bool left, spare;
    int rc;

    if (length == 0)
        return -EINVAL;
    if (length > VV_DATASET_PATH_MAX)
        return -ENAMETOOLONG;
    if ((d->opts.max_file && want->gen.size > d->opts.max_file) ||
        want->gen.size > d->opts.capacity)
        return -EFBIG;
    space =
        vvi_dataset_space(want->gen.size, atomic_load_explicit(&d->seals, memory_order_relaxed));
    if (space > d->opts.capacity)
        return -EFBIG;
    /* Refuse copies early: when there is little room, most copies find none. */
    spare = want->copy && !want->ahead;
    if (spare && !vvi_dataset_may_copy(d, space, &room))
        return -ENOSPC;
    f = calloc(1, sizeof(*f));
    e = vvi_dataset_entry_new(want->path, &want->gen);
    if (f)
        f->hash = vv_hash_stream_new();
    if (!f || !e || !f->hash) {
        rc = -ENOMEM;
        goto free_both;
    }
    e->space = space;
    rc = claim(d, want, e, &rank);
    if (rc < 0)
        goto free_both;
    rc = spare ? vvi_dataset_reserve_copy(d, space, room) : vvi_dataset_reserve(d, space, rank);
    if (rc < 0)
        goto give_up;
    rc = create(d, e, &f->fd, &left);
    if (rc < 0) {
        bytes = left ? 0 : space;
        goto give_up;
    }
    f->d = d;
    f->e = e;
    *ret_fill = f;
    return 0;

give_up:
    unclaim(d, e, bytes);
    e = NULL;
free_both:
    vvi_dataset_entry_free(e);
    if (f)
        vv_hash_stream_free(f->hash);
    free(f);
    return rc;
}

int vv_dataset_write(struct vv_dataset_fill *f, const void *buf, size_t bytes)
{
    const struct vv_os *os = f->d->os;
    int rc;

    if (bytes > f->e->gen.size - f->written)
        return -EFBIG;
    rc = vv_os_write_all(os, f->fd, buf, bytes, f->written);
    if (rc < 0)
        return log_full(f->d, rc);
    vv_hash_stream_add(f->hash, buf, bytes);
    f->written += bytes;
    return 0;
}

static void fill_free(struct vv_dataset_fill *f)
{
    vv_hash_stream_free(f->hash);
    free(f);
}

void vv_dataset_abort(struct vv_dataset_fill *f)
{
    if (!f)
        return;
    if (f->fd >= 0)
        f->d->os->close(f->d->os, f->fd);
    unclaim(f->d, f->e, unlink_temp(f->d, f->e) ? f->e->space : 0);
    fill_free(f);
}

/* Dooms all other entries of this path. manifest.lock must be held. At most one of them is ready: the caller removes
 * its record from the manifest after releasing dataset->lock. */
static bool doom_others_locked(struct vv_dataset *d, const char *path, const struct vvi_entry *but,
                               struct vvi_entry **ret_ready)
{
    struct vvi_entry *e = vv_table_find(&d->by_path, vv_hash64(path, strlen(path))), *next;
    bool any = false;

    *ret_ready = NULL;
    for (; e; e = next) {
        next = vv_table_same(e);
        if (e == but || e->state == DATASET_FILLING || strcmp(e->path, path) != 0)
            continue;
        any = true;
        e->doomed = true; /* a GOING entry can return only as DOOMED */
        if (e->state != DATASET_READY)
            continue;
        e->pins++;
        *ret_ready = e;
        vvi_dataset_set_state_locked(d, e, DATASET_DOOMED);
    }
    return any;
}

/* ---- seals ---- */

int vvi_dataset_try_seal(struct vv_dataset *d)
{
    static const char name[] = "verity.tmp";
    const struct vv_os *os = d->os;
    int fd, rc = os->unlinkat(os, d->dirfd, name); /* an earlier run may have left it sealed */

    fd = rc < 0 && rc != -ENOENT
             ? rc
             : os->openat(os, d->dirfd, name, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (fd < 0)
        return fd;
    rc = vv_os_write_all(os, fd, "v", 1, 0);
    os->close(os, fd);
    fd = rc < 0 ? rc : os->openat(os, d->dirfd, name, O_RDONLY, 0);
    if (fd >= 0) {
        rc = os->seal(os, fd);
        os->close(os, fd);
    } else {
        rc = fd;
    }
    (void)os->unlinkat(os, d->dirfd, name);
    return rc;
}

/* Seals the whole file of a fill under its temporary name. Closes the writer first, as sealing requires. */
static void seal(struct vv_dataset_fill *f, const char *temp)
{
    struct vv_dataset *d = f->d;
    struct vvi_entry *e = f->e;
    int fd, rc;

    if (!atomic_load_explicit(&d->seals, memory_order_relaxed))
        return;
    d->os->close(d->os, f->fd);
    f->fd = -1;
    fd = d->os->openat(d->os, d->dirfd, temp, O_RDONLY, 0);
    rc = fd < 0 ? fd : d->os->seal(d->os, fd);
    if (rc == 0) {
        e->sealed = true;
        e->has_digest = d->os->sealed(d->os, fd, e->digest) == 0;
    }
    if (fd >= 0)
        d->os->close(d->os, fd);
    if (rc == 0)
        return;
    if ((rc == -EOPNOTSUPP || rc == -EPERM || rc == -EACCES) &&
        atomic_exchange_explicit(&d->seals, false, memory_order_relaxed))
        vv_log(VV_LOG_DEBUG, "dataset: files are not sealed: %s", strerror(-rc));
    vv_mutex_lock(&d->lock);
    d->stats.unsealed += rc != -EOPNOTSUPP;
    vv_mutex_unlock(&d->lock);
}

/* Frees the space that was reserved for a seal, if there is none. */
static void settle_space_locked(struct vv_dataset *d, struct vvi_entry *e)
{
    uint64_t space = vvi_dataset_space(e->gen.size, e->sealed);

    vvi_dataset_used_locked(d, -(int64_t)(e->space - space));
    e->space = space;
}

int vv_dataset_commit(struct vv_dataset_fill *f, const uint64_t *sum)
{
    char temp[VVI_DATASET_NAME], name[VVI_DATASET_NAME];
    uint64_t value = vv_hash_stream_value(f->hash);
    struct vv_dataset *d = f->d;
    struct vvi_entry *former;
    int rc = 0;

    if (f->written != f->e->gen.size)
        rc = -ENODATA;
    else if (sum && *sum != value)
        rc = -EBADMSG;
    vvi_dataset_name(temp, f->e->id, true);
    vvi_dataset_name(name, f->e->id, false);
    if (rc == 0) {
        seal(f, temp);
        rc = d->os->rename(d->os, d->dirfd, temp, name, false);
        /* The folder was deleted meanwhile. The open file still exists. */
        if (rc == -ENOENT)
            rc = -ENOSPC;
    }
    if (rc < 0) {
        vv_dataset_abort(f);
        return rc;
    }
    if (f->fd >= 0)
        d->os->close(d->os, f->fd);
    vv_mutex_lock(&d->manifest.lock);
    vv_mutex_lock(&d->lock);
    f->e->sum = value;
    f->e->verified = true;
    f->e->round = d->round;
    settle_space_locked(d, f->e);
    vvi_dataset_set_state_locked(d, f->e, DATASET_READY);
    (void)doom_others_locked(d, f->e->path, f->e, &former);
    vv_mutex_unlock(&d->lock);
    vvi_manifest_list_locked(d, f->e);
    if (former)
        vvi_manifest_unlist_locked(d, former);
    vv_mutex_unlock(&d->manifest.lock);
    vv_mutex_lock(&d->lock);
    vvi_dataset_unpin_locked(d, f->e);
    if (former)
        vvi_dataset_unpin_locked(d, former);
    vv_mutex_unlock(&d->lock);
    fill_free(f);
    vvi_dataset_bury(d);
    return 0;
}

/* The entry of a path, pinned, if it is a copy; NULL otherwise. */
static struct vvi_entry *take_copy(struct vv_dataset *d, const char *path)
{
    struct vvi_entry *e;

    vv_mutex_lock(&d->lock);
    e = vvi_dataset_find_locked(d, path);
    if (e && e->copy)
        e->pins++;
    else
        e = NULL;
    vv_mutex_unlock(&d->lock);
    return e;
}

bool vv_dataset_keeps(struct vv_dataset *d, const char *path)
{
    struct vvi_entry *e;
    bool keeps;

    vv_mutex_lock(&d->lock);
    e = vvi_dataset_find_locked(d, path);
    keeps = e && !e->copy;
    vv_mutex_unlock(&d->lock);
    return keeps;
}

void vv_dataset_own(struct vv_dataset *d, const char *path)
{
    struct vvi_entry *e = take_copy(d, path);

    if (!e)
        return;
    vv_mutex_lock(&d->manifest.lock);
    if (e->copy) {
        vvi_dataset_own(d, e);
        vvi_manifest_own_locked(d, e);
    }
    vv_mutex_unlock(&d->manifest.lock);
    vv_mutex_lock(&d->lock);
    vvi_dataset_unpin_locked(d, e);
    vv_mutex_unlock(&d->lock);
}

int vv_dataset_drop(struct vv_dataset *d, const char *path)
{
    struct vvi_entry *e;
    bool any;

    vv_mutex_lock(&d->manifest.lock);
    vv_mutex_lock(&d->lock);
    any = doom_others_locked(d, path, NULL, &e);
    vv_mutex_unlock(&d->lock);
    if (e)
        vvi_manifest_unlist_locked(d, e);
    vv_mutex_unlock(&d->manifest.lock);
    if (e) {
        vv_mutex_lock(&d->lock);
        vvi_dataset_unpin_locked(d, e);
        vv_mutex_unlock(&d->lock);
    }
    vvi_dataset_bury(d);
    return any ? 0 : -ENOENT;
}
