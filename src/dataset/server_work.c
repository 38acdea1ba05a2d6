/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads for requests that have to wait: for a disk, a fetch, another node. A request that finds none idle starts one,
 * up to a limit. Above it requests queue. When the queue is full, requests are declined. Requests of clients that have
 * no other way to the file are queued even then: their number is limited, because each connection has one request at a
 * time. The threads run as long as the server.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread.h"
#include "dataset/server_private.h"

void vv_server_stat_of(const struct stat *st, struct vv_server_stat *ret_stat)
{
    *ret_stat = (struct vv_server_stat){
        .dev = (uint64_t)st->st_dev,
        .ino = (uint64_t)st->st_ino,
        .rdev = (uint64_t)st->st_rdev,
        .mode = (uint32_t)st->st_mode,
        .uid = (uint32_t)st->st_uid,
        .gid = (uint32_t)st->st_gid,
        .blksize = (uint32_t)st->st_blksize,
        .nlink = (uint64_t)st->st_nlink,
        .size = (uint64_t)st->st_size,
        .blocks = (uint64_t)st->st_blocks,
        .atime = {(int64_t)st->st_atim.tv_sec, (uint32_t)st->st_atim.tv_nsec, 0},
        .mtime = {(int64_t)st->st_mtim.tv_sec, (uint32_t)st->st_mtim.tv_nsec, 0},
        .ctime = {(int64_t)st->st_ctim.tv_sec, (uint32_t)st->st_ctim.tv_nsec, 0},
    };
}

int vv_server_marked(int fd, struct vv_server_stat *ret_stat)
{
    struct vv_server_mark mark;
    struct stat st;
    ssize_t n = fgetxattr(fd, VV_SERVER_MARK_NAME, &mark, sizeof(mark));

    if (n < 0)
        return errno == ERANGE ? -ENODATA : -errno;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (n != (ssize_t)sizeof(mark) ||
        !vv_server_mark_read(&mark, (uint64_t)st.st_ino, (uint64_t)st.st_size, ret_stat))
        return -ENODATA;
    return 0;
}

static bool same_file(const struct vv_server_stat *a, const struct vv_server_stat *b)
{
    return a->dev == b->dev && a->ino == b->ino && a->mode == b->mode && a->uid == b->uid &&
           a->gid == b->gid && a->nlink == b->nlink && a->size == b->size &&
           a->blocks == b->blocks && vv_server_ns(&a->mtime) == vv_server_ns(&b->mtime) &&
           vv_server_ns(&a->ctime) == vv_server_ns(&b->ctime);
}

/* True if the mark is in its name. A dropped file of the cache has no name either, and needs an attribute. */
static bool is_memory_file(int fd, const struct stat *st)
{
    int seals = st->st_nlink == 0 ? fcntl(fd, F_GET_SEALS) : -1;

    return seals >= 0 && (seals & F_SEAL_WRITE);
}

int vv_server_mark(int fd, const struct vv_server_stat *stat)
{
    struct vv_server_mark mark;
    struct vv_server_stat is;
    struct stat st;
    int rc;

    if (fstat(fd, &st) < 0)
        return -errno;
    if (is_memory_file(fd, &st))
        return 0;
    rc = vv_server_marked(fd, &is);
    if (rc == 0 && same_file(&is, stat))
        return 0;
    if (rc < 0 && rc != -ENODATA)
        return rc;
    vv_server_mark_make(stat, (uint64_t)st.st_ino, &mark);
    return fsetxattr(fd, VV_SERVER_MARK_NAME, &mark, sizeof(mark), 0) < 0 ? -errno : 0;
}

void vvi_server_do(struct vv_server *d, struct vvi_server_job *job, bool now)
{
    const struct vv_server_ops *ops = d->opts.ops;
    struct vv_server_ask ask = {
        .path = job->path,
        .nofollow = (job->flags & VV_SERVER_NOFOLLOW) != 0,
        .now = now,
        .deadline_ns = job->deadline_ns,
        .inode = job->inode,
        .tree = (job->flags & VV_SERVER_TREE) != 0,
        .begins = (job->flags & VV_SERVER_BEGINS) != 0,
    };

    job->rc = -ENOSYS;
    job->fd = -1;
    job->readable = false;
    switch (job->op) {
    case VV_SERVER_OP_OPEN:
        if (ops->open)
            job->rc = ops->open(d->opts.user, &ask, &job->fd, &job->stat);
        if (job->rc < 0)
            job->fd = -1;
        job->readable = job->rc == 0;
        /* Without the mark, a program that inherits the descriptor sees the content file's inode. Set it before the
         * file enters the index: other programs that open it there do not set it. A file that was fetched ahead of
         * its use comes here with `now` from the first request on, so this thread marks it, once. */
        if (job->rc == 0)
            (void)vv_server_mark(job->fd, &job->stat);
        if (job->rc == 0 && d->opts.index && d->opts.show)
            d->opts.show(d->opts.user, job->path);
        break;
    case VV_SERVER_OP_STAT:
        if (ops->stat)
            job->rc = ops->stat(d->opts.user, &ask, &job->stat, &job->readable);
        /* The file was just checked again: renew its entry in the index. */
        if (job->rc == 0 && d->opts.index && d->opts.show)
            d->opts.show(d->opts.user, job->path);
        break;
    case VV_SERVER_OP_LIST:
        if (ops->list)
            job->rc = ops->list(d->opts.user, &ask, &job->fd, &job->stat);
        if (job->rc < 0)
            job->fd = -1;
        job->readable = job->rc == 0;
        break;
    case VV_SERVER_OP_INVALIDATE:
        if (ops->invalidate)
            job->rc = ops->invalidate(d->opts.user, &ask);
        break;
    case VV_SERVER_OP_HELLO:
    case VV_SERVER_OP_INDEX:
        break;
    }
    if (!now && job->rc == -EAGAIN)
        job->rc = -EBUSY; /* this thread may wait: another call would not help */
}

static void *work(void *arg)
{
    struct vv_server *d = arg;

    vv_mutex_lock(&d->lock);
    for (;;) {
        struct vvi_server_job *job = d->first;

        if (!job) {
            if (d->stop_workers)
                break;
            d->nr_idle++;
            vv_cond_wait(&d->work, &d->lock);
            d->nr_idle--;
            continue;
        }
        d->first = job->next;
        if (!d->first)
            d->last = &d->first;
        d->nr_queued--;
        vv_mutex_unlock(&d->lock);
        if (atomic_load_explicit(&d->stop, memory_order_acquire)) {
            job->rc = -ESHUTDOWN;
            job->fd = -1;
        } else {
            vvi_server_do(d, job, false);
        }
        vvi_server_loop_answer(job);
        vvi_server_loop_ended(job->loop, job);
        vv_mutex_lock(&d->lock);
    }
    vv_mutex_unlock(&d->lock);
    return NULL;
}

int vvi_server_submit(struct vv_server *d, struct vvi_server_job *job)
{
    int rc = 0;

    vv_mutex_lock(&d->lock);
    /* Threads that were woken up for earlier requests are still counted as idle. */
    if (d->nr_idle <= d->nr_queued && d->nr_workers < d->opts.workers_max) {
        if (vv_thread_start(&d->workers[d->nr_workers], work, d) == 0)
            d->nr_workers++;
        else
            vv_log(VV_LOG_WARNING, "server: cannot start a thread");
    }
    if (d->nr_workers == 0 || (d->nr_queued >= d->opts.waiting_max && !job->sole)) {
        rc = -EBUSY;
    } else {
        job->next = NULL;
        *d->last = job;
        d->last = &job->next;
        d->nr_queued++;
    }
    vv_mutex_unlock(&d->lock);
    /* After the unlock, so that the thread that wakes up finds the lock free. */
    if (rc == 0)
        vv_cond_signal(&d->work);
    return rc;
}

void vvi_server_stop_workers(struct vv_server *d)
{
    unsigned nr;

    vv_mutex_lock(&d->lock);
    d->stop_workers = true;
    nr = d->nr_workers;
    vv_cond_broadcast(&d->work);
    vv_mutex_unlock(&d->lock);
    for (unsigned i = 0; i < nr; i++)
        pthread_join(d->workers[i], NULL);
}
