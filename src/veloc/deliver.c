/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that the application writes itself also appear under their original names, for other programs: VELOC's
 * documentation promises this for files on persistent storage. A thread gets the working file, copies it beside the
 * original name, syncs it and renames it, so that a reader finds a whole file, the old one or the new one. Restarts do
 * not use these files, but Varve's own copy.
 *
 * The thread is started with the first file and ends with the client. Files of one name are delivered in order. If the
 * process is killed, pending files are not delivered.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "veloc/veloc_private.h"

enum { PIECE_BYTES = 1 << 20 };

struct file {
    struct file *next;
    char *from, *to; /* owned */
};

struct vvi_veloc_deliverer {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    /* Synchronization: lock, all fields below. */
    struct file *first, **last;
    unsigned pending;
    bool stopping;
    int err;         /* first failure since the last report */
    char which[256]; /* name of that file */
};

static int copy_bytes(int in, int out)
{
    char *piece = malloc(PIECE_BYTES);
    int rc = piece ? 0 : -ENOMEM;
    while (rc == 0) {
        ssize_t n = read(in, piece, PIECE_BYTES);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            rc = n < 0 ? -errno : 1;
            break;
        }
        for (ssize_t at = 0; rc == 0 && at < n;) {
            ssize_t put = write(out, piece + at, (size_t)(n - at));
            if (put < 0 && errno != EINTR)
                rc = -errno;
            at += put > 0 ? put : 0;
        }
    }
    free(piece);
    return rc == 1 ? 0 : rc;
}

static int deliver(const struct file *f)
{
    char temp[PATH_MAX];
    if (snprintf(temp, sizeof(temp), "%s.varve-tmp", f->to) >= (int)sizeof(temp))
        return -ENAMETOOLONG;
    int in = open(f->from, O_RDONLY | O_CLOEXEC);
    if (in < 0)
        return -errno;
    int out = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int rc = out < 0 ? -errno : copy_bytes(in, out);
    if (rc == 0 && fsync(out))
        rc = -errno;
    if (out >= 0 && close(out) && rc == 0)
        rc = -errno;
    close(in);
    if (rc == 0 && rename(temp, f->to))
        rc = -errno;
    if (rc && out >= 0)
        unlink(temp);
    return rc;
}

static void file_free(struct file *f)
{
    if (!f)
        return;
    free(f->from);
    free(f->to);
    free(f);
}

static void *deliverer_main(void *arg)
{
    struct vvi_veloc_deliverer *d = arg;
    pthread_mutex_lock(&d->lock);
    for (;;) {
        struct file *f = d->first;
        if (!f && d->stopping)
            break;
        if (!f) {
            pthread_cond_wait(&d->work, &d->lock);
            continue;
        }
        d->first = f->next;
        if (!d->first)
            d->last = &d->first;
        pthread_mutex_unlock(&d->lock);
        int rc = deliver(f);
        unlink(f->from);
        pthread_mutex_lock(&d->lock);
        if (rc && !d->err) {
            d->err = rc;
            snprintf(d->which, sizeof(d->which), "%s", f->to);
        }
        d->pending--;
        pthread_cond_broadcast(&d->done);
        file_free(f);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

/* Starts a thread with all signals blocked: handlers of the application must not run in it. */
static int start_thread(struct vvi_veloc_deliverer *d)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = -pthread_create(&d->thread, NULL, deliverer_main, d);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

static int deliverer_new(struct vvi_veloc_deliverer **ret_d)
{
    struct vvi_veloc_deliverer *d = calloc(1, sizeof(*d));
    if (!d)
        return -ENOMEM;
    d->last = &d->first;
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->work, NULL);
    pthread_cond_init(&d->done, NULL);
    int rc = start_thread(d);
    if (rc) {
        free(d);
        return rc;
    }
    *ret_d = d;
    return 0;
}

int vvi_veloc_deliver(struct vvi_veloc *c, const char *from, const char *to)
{
    int rc = c->deliverer ? 0 : deliverer_new(&c->deliverer);
    if (rc)
        return rc;
    struct file *f = calloc(1, sizeof(*f));
    if (f) {
        f->from = strdup(from);
        f->to = strdup(to);
    }
    if (!f || !f->from || !f->to) {
        file_free(f);
        return -ENOMEM;
    }
    pthread_mutex_lock(&c->deliverer->lock);
    *c->deliverer->last = f;
    c->deliverer->last = &f->next;
    c->deliverer->pending++;
    pthread_cond_signal(&c->deliverer->work);
    pthread_mutex_unlock(&c->deliverer->lock);
    return 0;
}

int vvi_veloc_delivered(struct vvi_veloc *c, bool wait)
{
    struct vvi_veloc_deliverer *d = c->deliverer;
    if (!d)
        return 0;
    pthread_mutex_lock(&d->lock);
    while (wait && d->pending > 0)
        pthread_cond_wait(&d->done, &d->lock);
    int rc = d->pending > 0 ? -ETIMEDOUT : d->err;
    if (rc == d->err && rc) {
        vvi_veloc_say(c, "%s: %s", d->which, strerror(-rc));
        d->err = 0;
    }
    pthread_mutex_unlock(&d->lock);
    return rc;
}

void vvi_veloc_deliverer_free(struct vvi_veloc *c)
{
    struct vvi_veloc_deliverer *d = c->deliverer;
    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    d->stopping = true;
    pthread_cond_signal(&d->work);
    pthread_mutex_unlock(&d->lock);
    pthread_join(d->thread, NULL);
    pthread_cond_destroy(&d->done);
    pthread_cond_destroy(&d->work);
    pthread_mutex_destroy(&d->lock);
    free(d);
    c->deliverer = NULL;
}
