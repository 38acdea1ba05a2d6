/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mutexes with a rank, and condition variables on the monotonic clock.
 *
 * A thread takes locks in increasing rank, never two of the same rank. Debug builds (VV_DEBUG) keep
 * the list of locks that each thread holds and report an inversion, a lock taken twice, a lock
 * released by a thread that does not hold it, and a wait on a lock that is not held, before the
 * operation that would deadlock. In release builds only the pthread call is left.
 */
#ifndef VV_BASE_LOCK_H
#define VV_BASE_LOCK_H

#include <pthread.h>
#include <stdint.h>

#include "base/util.h"

/* Every lock of the library, outermost first: X(name, what the lock of this rank protects).
 * docs/locking.md is made from this list. */
#define VV_LOCK_RANKS(X)                                                                       \
    X(CTX, "a context: its histories, its error record, opening and closing")                  \
    X(HISTORY, "one history: protected regions, calls of the application on it")               \
    X(ENGINE, "engine/core and the runtime's queues; short sections, no system call inside")   \
    X(MOVER, "one mover's own list of orders and completions")                                 \
    X(GPUFILE_MAP, "mapping files for a GPU file system, and its copies; calls the device")    \
    X(GPUFILE, "a GPU file system: its files, windows and lists of servers")                   \
    X(OOC_STAGE, "the memory through which blocks of an array and tables are read")            \
    X(OOC, "blocks: slots, runs, the map as sent; tables: plans, a run; calls the device")     \
    X(DEVICE, "a device: allocations, streams, registered memory")                             \
    X(MANIFEST, "the manifest of a dataset cache: adding to it, rewriting it")                 \
    X(PARTNER, "partner copies: sending, receiving and storing the data of messages")          \
    X(STORE, "a storage tier: open files, the spill file's page checksums, the index, pacing") \
    X(GOSSIP, "one node's list of the members of a job")                                       \
    X(NET, "transports: the list of calls, the queue of the I/O thread")                       \
    X(AIO, "an asynchronous I/O queue's thread pool")                                          \
    X(COPY, "the pool of copy threads")                                                        \
    X(THREAD_GROUP, "the members of a thread group")                                           \
    X(TRACE_FILE, "starting and ending a trace file")                                          \
    X(TRACE, "traces: the list of rings, the names, the queue of the file; never two at once") \
    X(STATS, "the thread that publishes figures: its stop flag")                               \
    X(LOG, "the log sink")

enum vv_lock_rank {
#define X(name, text) VV_RANK_##name,
    VV_LOCK_RANKS(X)
#undef X
        VV_RANK_COUNT
};

const char *vv_lock_rank_name(enum vv_lock_rank rank);
const char *vv_lock_rank_text(enum vv_lock_rank rank);

struct vv_mutex {
    pthread_mutex_t mutex;
    const char *name;       /* immutable */
    enum vv_lock_rank rank; /* immutable */
};

struct vv_cond {
    pthread_cond_t cond;
};

/* `name` must outlive the mutex. */
void vv_mutex_init(struct vv_mutex *m, const char *name, enum vv_lock_rank rank);
void vv_mutex_fini(struct vv_mutex *m);
void vv_mutex_lock(struct vv_mutex *m);
void vv_mutex_unlock(struct vv_mutex *m);

/* For vv_assert in `_locked` functions. Always true in release builds, which keep no record. */
bool vv_mutex_held(const struct vv_mutex *m);

void vv_cond_init(struct vv_cond *c);
void vv_cond_fini(struct vv_cond *c);
void vv_cond_signal(struct vv_cond *c);
void vv_cond_broadcast(struct vv_cond *c);
void vv_cond_wait(struct vv_cond *c, struct vv_mutex *m);
/* Returns 0, possibly without a signal, or -ETIMEDOUT once vv_now_ns() has reached the deadline.
 * VV_NEVER_NS: no deadline. */
int vv_cond_wait_until(struct vv_cond *c, struct vv_mutex *m, uint64_t deadline_ns);

#endif
