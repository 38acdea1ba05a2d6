/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VV_DATASET_DOOR_PRIVATE_H
#define VV_DATASET_DOOR_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/lock.h"
#include "dataset/door.h"

struct vvi_door_loop;

/* One connection. Owned by its loop's thread. */
struct vvi_door_conn {
    struct vvi_door_loop *loop;
    int fd;                   /* -1: ended; freed when nothing refers to it any more */
    bool greeted, deaf;       /* deaf: nothing is read from it */
    struct vvi_door_job *job; /* what it waits for, or NULL */
    struct vvi_door_conn *prev, *next;
};

/* A request, and what became of it. Belongs to its connection's loop, to the queue, to one worker, and to
 * the loop again, in this order. */
struct vvi_door_job {
    struct vvi_door_loop *loop; /* immutable */
    struct vvi_door_conn
        *conn; /* the loop's alone at all times; NULL: nobody waits for it any more */
    uint64_t id;
    uint64_t told_ns; /* the loop's alone: when the client last heard of it */
    enum vv_door_op op;
    uint32_t flags;
    uint64_t inode; /* of a change */
    uint64_t deadline_ns;
    struct vvi_door_job *next;
    struct vv_mutex lock; /* rank STORE, nests with nothing */
    /* Synchronization: lock. A client whose request waits on another thread is answered by that one, unless the loop has
     * taken the job back; `sock` is good that long. */
    bool taken_back, answered;
    int sock, send_rc;
    /* The answer. */
    int rc, fd;
    bool readable;
    struct vv_door_stat stat;
    char path[VV_DOOR_PATH_MAX + 1];
};

/* Counters that several threads add to. Synchronization: relaxed; they are only looked at. */
struct vvi_door_counts {
    _Atomic uint64_t clients, accepted, refused, broken, opens, stats, writes, waited, yourself,
        late, full;
};

struct vvi_door_loop {
    struct vv_door *door;
    pthread_t thread;
    bool started;
    int epoll_fd, event_fd;
    /* Owned by the thread. */
    struct vvi_door_conn *conns;
    struct vvi_door_conn *dead; /* to be freed when the events at hand are through */
    unsigned waiting;           /* connections with a job */
    struct vvi_door_job *job;   /* for the next request; most need none of their own */
    struct vv_mutex lock;       /* rank STORE, nests with nothing */
    /* Synchronization: lock. */
    struct vvi_door_job *ended;
    bool awake; /* it was woken up for them */
};

struct vv_door {
    /* Immutable once open. */
    struct vv_door_opts opts;
    char *socket_path;
    uint64_t socket_dev, socket_ino;
    int listen_fd, lock_fd;
    unsigned uid;
    char welcome[VV_DOOR_MSG_MAX]; /* what HELLO is answered with, after vv_door_reply */
    size_t welcome_bytes;
    struct vvi_door_loop *loops;
    struct vvi_door_counts counts;
    _Atomic bool stop; /* stored with release before the loops are woken */

    struct vv_mutex lock; /* rank STORE, nests with nothing */
    struct vv_cond work;
    /* Synchronization: lock. */
    struct vvi_door_job *first, **last;
    unsigned nr_queued, nr_idle, nr_workers;
    bool stop_workers;
    pthread_t *workers;
};

static inline void vvi_door_add(_Atomic uint64_t *count, uint64_t n)
{
    atomic_fetch_add_explicit(count, n, memory_order_relaxed);
}

/* door.c: says beside the socket that the daemon is alive, or (0) that it has ended. */
void vvi_door_beat(struct vv_door *d, uint64_t now_ns);

/* door_work.c: asks the table, with what the job says. */
void vvi_door_do(struct vv_door *d, struct vvi_door_job *job, bool now);
/* Hands a job to a thread that may wait. -EBUSY: too many wait already. */
int vvi_door_submit(struct vv_door *d, struct vvi_door_job *job);
/* Until all that was submitted has come back. */
void vvi_door_stop_workers(struct vv_door *d);

/* door_loop.c */
int vvi_door_loop_start(struct vv_door *d, struct vvi_door_loop *loop);
/* Ends its thread. Jobs may still come back. */
void vvi_door_loop_stop(struct vvi_door_loop *loop);
/* When none can any more. */
void vvi_door_loop_free(struct vvi_door_loop *loop);
/* From a thread that may wait: answers the client of a job, if it still waits. */
void vvi_door_loop_answer(struct vvi_door_job *job);
/* From any thread: a job has ended. */
void vvi_door_loop_ended(struct vvi_door_loop *loop, struct vvi_door_job *job);

#endif
