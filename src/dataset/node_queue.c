/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work for other threads. Requests of other nodes arrive on the net's thread, which all peers share and which must not
 * block. There are several queues, because jobs of one kind wait for jobs of another kind on other nodes; in one
 * queue they would wait behind each other for ever. A SLOW job waits until the others have listed the files that they
 * hold (LIST). A job that gives a copy away (BACK) waits until a COPY job of the other node has stored it. COPY and
 * LARGE jobs wait for bytes that a FAST or SLOW job of another node sends. FAST and LIST jobs wait for no other node.
 * So no circle of waits can form, and every queue moves.
 *
 * A thread is started when a job finds none idle, up to a limit, and stays.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/thread.h"
#include "dataset/node_private.h"

#define FAST_MIN     4
#define FAST_MAX     16
#define BACK_THREADS 4
#define LARGE_MAX    2
#define ROOM         16384

struct vvi_job *vvi_node_job_new(const char *path)
{
    size_t n = strlen(path) + 1;
    struct vvi_job *job = calloc(1, sizeof(*job) + n);

    if (job)
        memcpy(job->path, path, n);
    return job;
}

static void *work(void *arg)
{
    struct vvi_queue *q = arg;

    vv_mutex_lock(&q->lock);
    for (;;) {
        struct vvi_job *job;
        bool stop;

        while (!q->first && !q->stop) {
            q->idle++;
            vv_cond_wait(&q->more, &q->lock);
            q->idle--;
        }
        job = q->first;
        if (!job)
            break;
        q->first = job->next;
        if (!q->first)
            q->last = &q->first;
        q->nr--;
        stop = q->stop;
        vv_mutex_unlock(&q->lock);
        job->fn(q->node, job, stop);
        vv_mutex_lock(&q->lock);
    }
    vv_mutex_unlock(&q->lock);
    return NULL;
}

int vvi_node_queue_push(struct vv_node *n, enum vvi_queue_kind kind, struct vvi_job *job)
{
    struct vvi_queue *q = &n->queue[kind];
    int rc = 0;

    vv_mutex_lock(&q->lock);
    if (q->stop)
        rc = -ESHUTDOWN;
    else if (q->nr >= q->room)
        rc = -EBUSY;
    if (rc == 0 && q->idle <= q->nr && q->threads < q->max &&
        vv_thread_start(&q->thread[q->threads], work, q) == 0)
        q->threads++;
    /* Without a thread the job would never run. */
    if (rc == 0 && q->threads == 0)
        rc = -EBUSY;
    if (rc == 0) {
        job->next = NULL;
        *q->last = job;
        q->last = &job->next;
        q->nr++;
    }
    vv_mutex_unlock(&q->lock);
    /* After the unlock, so that the thread that wakes up finds the lock free. */
    if (rc == 0)
        vv_cond_signal(&q->more);
    return rc;
}

bool vvi_node_queue_waits(struct vv_node *n, enum vvi_queue_kind kind)
{
    bool waits;

    vv_mutex_lock(&n->queue[kind].lock);
    waits = n->queue[kind].nr > 0;
    vv_mutex_unlock(&n->queue[kind].lock);
    return waits;
}

int vvi_node_queue_start(struct vv_node *n)
{
    /* Sending files computes their checksums: some gigabytes a second for each thread. */
    long cores = sysconf(_SC_NPROCESSORS_ONLN) / 4;
    unsigned fast = (unsigned)VV_MIN(VV_MAX(cores, (long)FAST_MIN), (long)FAST_MAX);
    const unsigned max[VVI_QUEUES] = {fast, 0, 1, BACK_THREADS, BACK_THREADS, LARGE_MAX};
    static const char *const name[VVI_QUEUES] = {"fast", "slow", "list", "copy", "back", "large"};

    for (int i = 0; i < VVI_QUEUES; i++) {
        struct vvi_queue *q = &n->queue[i];

        q->node = n;
        q->last = &q->first;
        q->room = ROOM;
        q->max = max[i] ? max[i] : VV_MIN(n->opts.workers, (unsigned)VV_ARRAY_SIZE(q->thread));
        vv_mutex_init(&q->lock, name[i], VV_RANK_STORE);
        vv_cond_init(&q->more);
    }
    return 0;
}

void vvi_node_queue_stop(struct vv_node *n)
{
    for (int i = 0; i < VVI_QUEUES; i++) {
        struct vvi_queue *q = &n->queue[i];

        vv_mutex_lock(&q->lock);
        q->stop = true;
        vv_cond_broadcast(&q->more);
        vv_mutex_unlock(&q->lock);
    }
    for (int i = 0; i < VVI_QUEUES; i++) {
        struct vvi_queue *q = &n->queue[i];

        for (unsigned k = 0; k < q->threads; k++)
            pthread_join(q->thread[k], NULL);
        vv_assert(!q->first);
        vv_cond_fini(&q->more);
        vv_mutex_fini(&q->lock);
    }
}
