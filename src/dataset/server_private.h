/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VV_DATASET_SERVER_PRIVATE_H
#define VV_DATASET_SERVER_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/lock.h"
#include "dataset/server.h"

struct vvi_server_loop;

/* One connection. Owned by its loop's thread. */
struct vvi_server_conn {
    struct vvi_server_loop *loop;
    int fd;                     /* -1: ended; freed once nothing refers to it */
    bool greeted, deaf;         /* deaf: nothing is read from it */
    struct vvi_server_job *job; /* its request that waits, or NULL */
    struct vvi_server_conn *prev, *next;
};

/* A request and its result. Its owner is first the connection's loop, then the queue, then one worker, then the loop
 * again. */
struct vvi_server_job {
    struct vvi_server_loop *loop; /* immutable */
    struct vvi_server_conn *conn; /* only the loop uses it; NULL: no client waits for it any more */
    uint64_t id;
    uint64_t pending_ns; /* only the loop uses it: time of the last message to the client */
    enum vv_server_op op;
    uint32_t flags;
    uint64_t inode; /* of a change */
    bool sole;      /* the client has no other way to the file: it waits without a limit */
    uint64_t deadline_ns;
    struct vvi_server_job *next;
    struct vv_mutex lock; /* rank STORE; no other lock is taken under it */
    /* Synchronization: lock. The worker that has the job answers the client, unless the loop has taken the job back;
     * `sock` is valid until the loop does. */
    bool taken_back, answered;
    int sock, send_rc;
    /* The result. */
    int rc, fd;
    bool readable;
    struct vv_server_stat stat;
    char path[VV_SERVER_PATH_MAX + 1];
};

/* Counters that several threads add to. Synchronization: relaxed; they are only reported. */
struct vvi_server_counts {
    _Atomic uint64_t clients, accepted, refused, broken, opens, stats, writes, waited, declined,
        late, full;
};

struct vvi_server_loop {
    struct vv_server *server;
    pthread_t thread;
    bool started;
    int epoll_fd, event_fd;
    /* Only its thread uses these. */
    struct vvi_server_conn *conns;
    struct vvi_server_conn *dead; /* freed after the current events */
    unsigned waiting;             /* connections with a job */
    struct vvi_server_job *job;   /* for the next request; most requests need no other one */
    struct vv_mutex lock;         /* rank STORE; no other lock is taken under it */
    /* Synchronization: lock. */
    struct vvi_server_job *ended;
    bool awake; /* it was woken up for `ended` */
};

struct vv_server {
    /* Immutable once open. */
    struct vv_server_opts opts;
    char *socket_path;
    uint64_t socket_dev, socket_ino;
    int listen_fd, lock_fd;
    unsigned uid;
    char welcome[VV_SERVER_MSG_MAX]; /* the answer to HELLO, after vv_server_reply */
    size_t welcome_bytes;
    struct vvi_server_loop *loops;
    struct vvi_server_counts counts;
    _Atomic bool stop; /* stored with release before the loops are woken up */

    struct vv_mutex lock; /* rank STORE; no other lock is taken under it */
    struct vv_cond work;
    /* Synchronization: lock. */
    struct vvi_server_job *first, **last;
    unsigned nr_queued, nr_idle, nr_workers;
    bool stop_workers;
    pthread_t *workers;
};

static inline void vvi_server_add(_Atomic uint64_t *count, uint64_t n)
{
    atomic_fetch_add_explicit(count, n, memory_order_relaxed);
}

/* server.c: writes beside the socket that the daemon is alive, or (0) that it has ended. */
void vvi_server_heartbeat(struct vv_server *d, uint64_t now_ns);

/* server_work.c: calls the table for a job. */
void vvi_server_do(struct vv_server *d, struct vvi_server_job *job, bool now);
/* Hands a job to a thread that may wait. -EBUSY: too many wait already. */
int vvi_server_submit(struct vv_server *d, struct vvi_server_job *job);
/* Waits until all submitted jobs have come back. */
void vvi_server_stop_workers(struct vv_server *d);

/* server_loop.c */
int vvi_server_loop_start(struct vv_server *d, struct vvi_server_loop *loop);
/* Ends the loop's thread. Jobs may still come back. */
void vvi_server_loop_stop(struct vvi_server_loop *loop);
/* To be called when no job can come back. */
void vvi_server_loop_free(struct vvi_server_loop *loop);
/* In a thread that may wait: answers the client of a job, if it still waits. */
void vvi_server_loop_answer(struct vvi_server_job *job);
/* In any thread: hands a job that has ended back to its loop. */
void vvi_server_loop_ended(struct vvi_server_loop *loop, struct vvi_server_job *job);

#endif
