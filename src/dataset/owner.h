/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the owner of files does: it has each of them in its cache, brings it from the shared file system
 * when it is first asked for, once however many ask, and looks from time to time whether it is still the
 * same. Whoever asks gets a descriptor of one generation, whole, that was the file's at some time within
 * the last `revalidate`.
 *
 * Threads: any. A thread that asks may do the work for others who ask for the same file.
 */
#ifndef VV_DATASET_OWNER_H
#define VV_DATASET_OWNER_H

#include "base/clock.h"
#include "dataset/dataset.h"
#include "dataset/shared_fs.h"

struct vv_owner_opts {
    struct vv_dataset *cache;
    const struct vv_shared *shared;
    uint64_t revalidate_ns;   /* 0: files never change */
    uint64_t (*now_ns)(void); /* NULL: the real clock */
    uint64_t records;         /* so many files are remembered, whatever they are; 0: 8192 */
    uint64_t wait_max; /* no caller waits for a larger file that is not here, if he can read it
                               * elsewhere; 0: all do */
    /* A file has been brought from the shared file system: called by the thread that did, with no lock
     * held. NULL: nobody wants to know. */
    void (*brought)(void *user, const char *path, const struct vv_shared_stat *st);
    void *user;
};

struct vv_owner;

VV_WARN_UNUSED int vv_owner_new(const struct vv_owner_opts *opts, struct vv_owner **ret_owner);
/* Nobody is in a call. The cache and the shared file system are the caller's. Accepts NULL. */
void vv_owner_free(struct vv_owner *o);

/* A descriptor as vv_dataset_get gives it. Waits, until `deadline_ns` at most, for somebody who is
 * bringing or looking at the same file; bringing it itself takes as long as the shared file system does.
 *   -EFBIG, -ENOSPC  it cannot be kept here: the caller reads the shared file system itself
 *   -ETIMEDOUT       somebody else is still at it
 *   -EAGAIN          it changed all the time while it was read, or so shortly before that the one who changed it
 *                    may not have been done: the caller reads the shared file system itself
 *   -ETXTBSY         somebody is changing it (vv_owner_change)
 *   -EINPROGRESS     larger than wait_max, and not here, or not verified: see vv_owner_get_large
 *   -ENOENT, -EACCES and other errors of the shared file system, or of the cache */
VV_WARN_UNUSED int vv_owner_get(struct vv_owner *o, const char *path, uint64_t deadline_ns,
                                int *ret_fd, struct vv_shared_stat *ret_stat);

/* The same however large it is. */
VV_WARN_UNUSED int vv_owner_get_large(struct vv_owner *o, const char *path, uint64_t deadline_ns,
                                      int *ret_fd, struct vv_shared_stat *ret_stat);

/* What is being brought is given up, and nothing is begun any more: -ESHUTDOWN. */
void vv_owner_stop(struct vv_owner *o);

/* What the file is, as the next descriptor of it would be; nothing is brought. The same errors, but for
 * those of the cache. */
VV_WARN_UNUSED int vv_owner_stat(struct vv_owner *o, const char *path, uint64_t deadline_ns,
                                 struct vv_shared_stat *ret_stat);

/* The same if it is here, looked at not too long ago, and verified: without waiting and without a call on
 * the shared file system. -EAGAIN: it is not. `ret_age_ns`, or NULL: how long ago it was looked at. */
VV_WARN_UNUSED int vv_owner_get_now(struct vv_owner *o, const char *path, int *ret_fd,
                                    struct vv_shared_stat *ret_stat, uint64_t *ret_age_ns);

/* What it is, if that was found out not too long ago, here or by others. -EAGAIN. */
VV_WARN_UNUSED int vv_owner_stat_now(struct vv_owner *o, const char *path,
                                     struct vv_shared_stat *ret_stat, uint64_t *ret_age_ns);

/* Lets clients open it themselves, as `client_path`, as long as vv_owner_get_now would give it. Whatever keeps
 * that from being possible keeps them asking. `dev`: of the file, where nobody here has looked at it. */
void vv_owner_show(struct vv_owner *o, const char *path, const char *client_path, uint64_t dev);

/* How often it was invalidated, as far as that is remembered. */
uint64_t vv_owner_changes(struct vv_owner *o, const char *path);

/* The age of news that does not count: it was invalidated where it comes from. */
#define VV_OWNER_TOO_OLD (UINT64_MAX / 4)

/* What was known of it so long ago, by somebody who had looked, is what it is. `changes`: as it was before he was
 * asked. False: it is not, because it was invalidated since, or another generation is known by now. */
bool vv_owner_heard(struct vv_owner *o, const char *path, uint64_t changes,
                    const struct vv_shared_stat *st, uint64_t age_ns);

/* Nodes were out of reach, and may have changed files without a report. With revalidate 0 looks count for a second from now
 * on, and for good again once VV_OWNER_DOUBT_NS have passed: by then all nodes reach each other. */
#define VV_OWNER_DOUBT_NS (10 * VV_NS_PER_S)
void vv_owner_doubt(struct vv_owner *o);

/* What it was when it was last looked at, and how long ago that is. -ENOENT: never. */
VV_WARN_UNUSED int vv_owner_recall(struct vv_owner *o, const char *path,
                                   struct vv_shared_stat *ret_stat, uint64_t *ret_age_ns);

/* Brings a file before anybody asks for it, unless it is here, or being brought; it is wanted at
 * `next_use`, and takes the place only of what is wanted later. The same errors. */
VV_WARN_UNUSED int vv_owner_bring(struct vv_owner *o, const char *path, uint64_t next_use);

/* The file has been written to: it is handed out no more, and looked at again by the next who asks. */
void vv_owner_invalidate(struct vv_owner *o, const char *path);

/* How long a change that was begun keeps a file from being handed out, if no report says that it has ended. */
#define VV_OWNER_HOLD_NS (2 * VV_NS_PER_S)

struct vv_owner_change {
    const char *path;
    uint64_t
        inode; /* of the file that is there; 0: not known, or none. Its other names are invalidated too */
    bool
        tree; /* a folder or a link: so is what is below it, and what is reached through any link */
    /* The change is about to be made. Until the same is said without this, or VV_OWNER_HOLD_NS have passed, the
     * file is left to the caller (-ETXTBSY), so that nothing is cached between the two. */
    bool begins;
};

/* The same for one way of changing it, and for all names that it concerns. `gone`, or NULL: called for each of them,
 * with no lock held. */
void vv_owner_change(struct vv_owner *o, const struct vv_owner_change *c,
                     void (*gone)(void *user, const char *path), void *user);

struct vv_owner_stats {
    uint64_t looks;   /* at files on the shared file system, without reading them */
    uint64_t fetches; /* files read from it */
    uint64_t fetched_bytes;
    uint64_t waits;   /* for somebody who was bringing the same file */
    uint64_t changed; /* files that were another generation when looked at */
    uint64_t passed;  /* -EFBIG and -ENOSPC */
    uint64_t records; /* of files, now */
    /* Files that are being read from the shared file system now, their bytes, and how many of them are here. */
    uint64_t coming, coming_bytes, coming_done;
};

void vv_owner_stats(struct vv_owner *o, struct vv_owner_stats *ret_stats);

#endif
