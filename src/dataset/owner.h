/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The owner of files: it keeps them in its cache, fetches each from the shared file system on the first request, once
 * for all requests, and checks from time to time that it is unchanged. A caller gets a descriptor of one
 * generation, whole, that was current at some time within the last `revalidate`.
 *
 * Threads: any. A thread that asks may do the work for others that ask for the same file.
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
    uint64_t records;         /* at least so many paths are remembered; 0: 8192 */
    /* A caller does not wait for a larger file that is not here, if it can read it elsewhere; 0: all wait. */
    uint64_t wait_max;
    /* Called after a file was fetched from the shared file system, by the thread that did, with no lock held. May be
     * NULL. */
    void (*brought)(void *user, const char *path, const struct vv_shared_stat *st);
    void *user;
};

struct vv_owner;

VV_WARN_UNUSED int vv_owner_new(const struct vv_owner_opts *opts, struct vv_owner **ret_owner);
/* No call may be running. The cache and the shared file system stay the caller's. Accepts NULL. */
void vv_owner_free(struct vv_owner *o);

/* Returns a descriptor as vv_dataset_get does. If another thread fetches or checks the same file, waits until
 * `deadline_ns` at most; fetching it in this thread takes as long as the shared file system does.
 *   -EFBIG, -ENOSPC  it cannot be kept here: the caller reads the shared file system
 *   -ETIMEDOUT       another thread is still working on it
 *   -EAGAIN          it changed during each read, or so shortly before that the write may not have ended: the
 *                    caller reads the shared file system
 *   -ETXTBSY         it is being changed (vv_owner_change)
 *   -EINPROGRESS     larger than wait_max, and not here, or not verified: see vv_owner_get_large
 *   -ENOENT, -EACCES and other errors of the shared file system, or of the cache */
VV_WARN_UNUSED int vv_owner_get(struct vv_owner *o, const char *path, uint64_t deadline_ns,
                                int *ret_fd, struct vv_shared_stat *ret_stat);

/* The same for any size. */
VV_WARN_UNUSED int vv_owner_get_large(struct vv_owner *o, const char *path, uint64_t deadline_ns,
                                      int *ret_fd, struct vv_shared_stat *ret_stat);

/* Ends fetches under way, and refuses new ones: -ESHUTDOWN. */
void vv_owner_stop(struct vv_owner *o);

/* Describes the file as the next descriptor of it would; fetches nothing. The same errors, except for those of the
 * cache. */
VV_WARN_UNUSED int vv_owner_stat(struct vv_owner *o, const char *path, uint64_t deadline_ns,
                                 struct vv_shared_stat *ret_stat);

/* The same if the file is here, was checked recently enough, and is verified: without waiting and without a call of the
 * shared file system. -EAGAIN: otherwise. `ret_age_ns` (may be NULL): time since the check. */
VV_WARN_UNUSED int vv_owner_get_now(struct vv_owner *o, const char *path, int *ret_fd,
                                    struct vv_shared_stat *ret_stat, uint64_t *ret_age_ns);

/* Describes the file if this or another node checked it recently enough. -EAGAIN. */
VV_WARN_UNUSED int vv_owner_stat_now(struct vv_owner *o, const char *path,
                                     struct vv_shared_stat *ret_stat, uint64_t *ret_age_ns);

/* Lets clients open it themselves, as `client_path`, as long as vv_owner_get_now would return it. After any error they
 * go on asking. `dev`: of the file, if this node has not checked it. */
void vv_owner_show(struct vv_owner *o, const char *path, const char *client_path, uint64_t dev);

/* Number of invalidations of a path, as far as recorded. */
uint64_t vv_owner_changes(struct vv_owner *o, const char *path);

/* An age for reports that must not count: the file was invalidated where they come from. */
#define VV_OWNER_TOO_OLD (UINT64_MAX / 4)

/* Records the report of another node, which checked the file `age_ns` ago. `changes`: vv_owner_changes before that
 * node was asked. False: it does not count, because the file was invalidated since, or another generation is
 * recorded. */
bool vv_owner_heard(struct vv_owner *o, const char *path, uint64_t changes,
                    const struct vv_shared_stat *st, uint64_t age_ns);

/* Nodes were out of reach, and may have changed files without a report. With revalidate 0, checks are valid for one
 * second from now on, and for good again once VV_OWNER_DOUBT_NS have passed: by then all nodes reach each other. */
#define VV_OWNER_DOUBT_NS (10 * VV_NS_PER_S)
void vv_owner_doubt(struct vv_owner *o);

/* The result of the last check, and its age. -ENOENT: none. */
VV_WARN_UNUSED int vv_owner_recall(struct vv_owner *o, const char *path,
                                   struct vv_shared_stat *ret_stat, uint64_t *ret_age_ns);

/* Fetches a file before it is requested, unless it is here or under way. It is wanted at `next_use`, and evicts only
 * files that are wanted later. The same errors. */
VV_WARN_UNUSED int vv_owner_bring(struct vv_owner *o, const char *path, uint64_t next_use);

/* The file has been written to: it is not handed out any more, and the next request checks it. */
void vv_owner_invalidate(struct vv_owner *o, const char *path);

/* How long a change that has begun keeps a file from being handed out, if its end is not reported. */
#define VV_OWNER_HOLD_NS (2 * VV_NS_PER_S)

struct vv_owner_change {
    const char *path;
    uint64_t inode; /* of the file; 0: not known, or none. Its other names are invalidated too */
    /* A folder or a link: invalidates everything below it, and everything reached through any link. */
    bool tree;
    /* The change is about to be made. Until the same call without `begins`, or until VV_OWNER_HOLD_NS have passed,
     * requests for the file fail with -ETXTBSY, so that nothing is cached in between. */
    bool begins;
};

/* The same for one kind of change, and for all names that it concerns. `gone` (may be NULL): called for each of them,
 * with no lock held. */
void vv_owner_change(struct vv_owner *o, const struct vv_owner_change *c,
                     void (*gone)(void *user, const char *path), void *user);

struct vv_owner_stats {
    uint64_t looks;   /* checks of files on the shared file system, without reading them */
    uint64_t fetches; /* files read from it */
    uint64_t fetched_bytes;
    uint64_t waits;   /* for another thread that was fetching the same file */
    uint64_t changed; /* checks that found another generation */
    uint64_t passed;  /* -EFBIG and -ENOSPC */
    uint64_t records; /* of files, now */
    /* Files that are being read from the shared file system now, their bytes, and the bytes of them that are here. */
    uint64_t coming, coming_bytes, coming_done;
};

void vv_owner_stats(struct vv_owner *o, struct vv_owner_stats *ret_stats);

#endif
