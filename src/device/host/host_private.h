/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of the emulated device. host.c: opening, closing, memory; host_stream.c: streams, events and
 * the order of work; engine.c: the threads that do it; host_kernels.c: our kernels and the application's streams;
 * fault.c: counters and failures.
 *
 * Synchronization: one lock, `lock` of struct vvi_device_host, covers every field here unless noted. It is never held
 * while bytes are copied, a kernel function runs or memory is mapped. `_locked` functions need it held.
 */
#ifndef VV_DEVICE_HOST_PRIVATE_H
#define VV_DEVICE_HOST_PRIVATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/lock.h"
#include "device/host/host.h"
#include "device/host/host_ranges.h"

struct vvi_device_host;

/* The copy engines have the numbers of enum vv_device_host_engine; kernels run on one more. */
#define VVI_DEVICE_ENGINE_APP VV_DEVICE_HOST_ENGINES
#define VVI_DEVICE_N_ENGINES  (VV_DEVICE_HOST_ENGINES + 1)
#define VVI_DEVICE_MAX_RULES  16

/*
 * One recording of an event: pending, then done for good. The event, the record in its stream's queue and every wait
 * for it hold a reference, so that an event may be recorded again or freed while others still wait for its earlier
 * recording.
 */
struct vvi_device_mark {
    size_t refs;
    bool done;
    int err;
    uint64_t time_ns; /* of its end by the stream's clock, or of its submission if that is later */
    struct vv_stream *parked; /* streams whose head waits for this */
};

enum vvi_device_item_kind {
    VVI_DEVICE_ITEM_COPY,
    VVI_DEVICE_ITEM_KERNEL,
    VVI_DEVICE_ITEM_RECORD,
    VVI_DEVICE_ITEM_WAIT,
};

/* One piece of work in a stream. */
struct vvi_device_item {
    enum vvi_device_item_kind kind;
    struct vv_stream *stream;
    struct vvi_device_item *next;       /* in the stream, or in a chain not yet submitted */
    struct vvi_device_item *next_ready; /* in the engine's queue */
    struct vvi_device_item *prev_live, *next_live;
    uint64_t seq; /* grows with submission; orders the live list */
    uint64_t submit_ns;
    uint64_t ready_ns; /* end of the work before it, by the stream's clock */
    bool dispatched;

    /* RECORD, WAIT */
    struct vvi_device_mark *mark;
    bool keep_error; /* leaves the stream's error to the next event */

    /* KERNEL */
    void (*fn)(void *arg);
    void *arg;
    uint64_t run_ns;
    bool hold;
    bool ours;               /* runs `kernel` */
    struct vv_kernel kernel; /* with the processor's addresses */

    /* COPY */
    unsigned engine;
    bool pageable;
    int fail_err;
    uint64_t bytes;
    size_t n_segs;             /* of a HASH: from a span to its checksum */
    struct vv_copy_seg segs[]; /* with the processor's addresses */
};

struct vv_stream {
    struct vv_stream *prev, *next; /* of all streams */
    struct vvi_device_item *head, *tail;
    struct vv_stream *next_runnable, *next_parked;
    uint64_t clock_ns; /* end of its last work, if no thread had ever been late */
    int err;           /* first failure since the last record */
    bool runnable, parked, closing;
    bool native;      /* the application's */
    bool capturing;   /* only with `native` */
    unsigned adopted; /* number of adoptions */
    uint64_t id;      /* never reused */
};

struct vv_event {
    struct vv_event *prev, *next; /* of all events */
    struct vvi_device_mark *mark; /* NULL until recorded */
};

struct vvi_device_engine {
    struct vvi_device_host *device; /* immutable */
    unsigned index;                 /* immutable */
    pthread_t thread;
    bool started;
    struct vv_cond cond; /* work has come, a kernel was released, or the device is being lost */
    struct vvi_device_item *head, *tail;
    uint64_t next_free_ns; /* by the engine's clock */
    double late_ns;        /* how late sleeps have ended, moving average; used by its thread only */
};

enum vvi_device_rule_kind {
    VVI_DEVICE_RULE_NONE,
    VVI_DEVICE_RULE_CALL,
    VVI_DEVICE_RULE_ASYNC,
    VVI_DEVICE_RULE_LOSE,
};

struct vvi_device_rule {
    enum vvi_device_rule_kind kind;
    enum vv_device_op op;
    uint64_t nth;  /* calls until it fires, including this one; 1: it fires now */
    int64_t count; /* times left; negative: for ever */
    int err;
};

struct vvi_device_host {
    struct vv_device base;
    struct vv_mutex lock;

    /* Broadcast, if there are waiters, when a mark or an item is done and when the device is lost.
     */
    struct vv_cond changed;
    unsigned n_waiters;

    struct vv_device_host_opts opts;
    uint64_t used_bytes;
    struct vvi_device_ranges allocs;
    struct vvi_device_ranges slices;
    uint64_t stall_until_ns;

    struct vvi_device_engine engine[VVI_DEVICE_N_ENGINES];
    struct vv_stream *streams;
    struct vv_event *events;
    struct vv_stream *runnable;
    struct vv_stream *app; /* immutable */
    struct vvi_device_item *live_head, *live_tail;
    uint64_t last_seq;
    uint64_t stream_ids;   /* number of ids given */
    uint64_t app_releases; /* not yet used by a held kernel */

    struct vvi_device_rule rules[VVI_DEVICE_MAX_RULES];
    struct vv_device_host_stats stats;

    /* losing: no work starts any more, and queued work ends with -ENODEV. lost: no work is under way, so calls may
     * return -ENODEV. A call that comes in between waits for `lost`. */
    bool losing;
    bool lost;
    bool stop;
};

static inline struct vvi_device_host *vvi_device_host_of(struct vv_device *d)
{
    return (struct vvi_device_host *)d;
}

/* ---- fault.c ---- */

/* Every operation starts here: counts it, waits out a stall, and returns 0 with the lock held, or
 * the injected error or -ENODEV without it. */
VV_WARN_UNUSED int vvi_device_enter(struct vvi_device_host *d, enum vv_device_op op);

/* For operations that cannot fail: counts, and takes the lock. */
void vvi_device_enter_void(struct vvi_device_host *d, enum vv_device_op op);
static inline void vvi_device_leave(struct vvi_device_host *d)
{
    vv_mutex_unlock(&d->lock);
}

/* The error with which the batch now being submitted is to fail later, or 0. */
int vvi_device_async_error_locked(struct vvi_device_host *d);

/* Returns when no work is under way any more. */
void vvi_device_lose_locked(struct vvi_device_host *d);

/* ---- host_stream.c ---- */

VV_WARN_UNUSED int vvi_device_stream_new_locked(struct vvi_device_host *d,
                                                struct vv_stream **ret_stream);
void vvi_device_streams_fini(struct vvi_device_host *d);

/* Nothing more will be submitted to it: frees it now or with its last item. */
void vvi_device_stream_end_locked(struct vvi_device_host *d, struct vv_stream *s);

struct vvi_device_item *vvi_device_item_new(enum vvi_device_item_kind kind, size_t n_segs);

/* Frees a chain that was not submitted. */
void vvi_device_items_free(struct vvi_device_host *d, struct vvi_device_item *chain);

/* Appends a chain to the stream and starts items that are ready. */
void vvi_device_submit_locked(struct vvi_device_host *d, struct vv_stream *s,
                              struct vvi_device_item *chain);

/* The work at the head of its stream has ended at `time_ns` by the stream's clock. Frees the item. */
void vvi_device_item_done_locked(struct vvi_device_host *d, struct vvi_device_item *it, int err,
                                 uint64_t time_ns);

/* Waits for `changed`; -ETIMEDOUT after the deadline. */
int vvi_device_wait_changed_locked(struct vvi_device_host *d, uint64_t deadline_ns);

/* Waits until everything submitted before the call has ended. */
void vvi_device_drain_locked(struct vvi_device_host *d);

int vvi_device_stream_new(struct vv_device *d, struct vv_stream **ret_stream);
void vvi_device_stream_free(struct vv_device *d, struct vv_stream *s);
int vvi_device_event_new(struct vv_device *d, struct vv_event **ret_event);
void vvi_device_event_free(struct vv_device *d, struct vv_event *ev);
int vvi_device_event_record(struct vv_device *d, struct vv_event *ev, struct vv_stream *s);
int vvi_device_event_query(struct vv_device *d, struct vv_event *ev);
int vvi_device_event_wait(struct vv_device *d, struct vv_event *ev, int64_t timeout_ns);
int vvi_device_event_elapsed(struct vv_device *d, struct vv_event *from, struct vv_event *to,
                             uint64_t *ret_ns);
int vvi_device_stream_wait_event(struct vv_device *d, struct vv_stream *s, struct vv_event *ev);
int vvi_device_after_app(struct vv_device *d, struct vv_stream *s);

/* Appends a record of a new mark to the stream and waits for it; the stream's error is left to the next
 * event. */
VV_WARN_UNUSED int vvi_device_sync_locked(struct vvi_device_host *d, struct vv_stream *s);

/* ---- host_copy.c ---- */

/* Checks one copy as a driver would, which refuses copies that cross a border of registered slices; batches are cut
 * so that none does. Lock held. */
VV_WARN_UNUSED int vvi_device_copy_check(const struct vvi_device_host *d,
                                         const struct vv_copy_seg *seg);
int vvi_device_copy_async(struct vv_device *d, struct vv_stream *s, const struct vv_copy_seg *segs,
                          size_t n_segs);

/* ---- host_kernels.c ---- */

int vvi_device_launch(struct vv_device *d, struct vv_stream *s, const struct vv_kernel *k);
int vvi_device_stream_adopt(struct vv_device *d, void *native, struct vv_stream **ret_stream);
int vvi_device_stream_id(struct vv_device *d, struct vv_stream *s, uint64_t *ret_id);
void *vvi_device_stream_native(struct vv_device *d, struct vv_stream *s);
void vvi_device_describe(struct vv_device *d, struct vv_device_info *ret_info);
int vvi_device_last_code(struct vv_device *d, const char **ret_name);

/* Runs any kernel except SPIN, on the compute thread, without the lock. */
void vvi_device_kernel_run(const struct vvi_device_item *it);

/* ---- host.c ---- */

/* A kernel of the application. */
VV_WARN_UNUSED int vvi_device_app_submit(struct vvi_device_host *d, struct vv_stream *s,
                                         void (*fn)(void *arg), void *arg, uint64_t run_ns,
                                         bool hold);

/* ---- engine.c ---- */

VV_WARN_UNUSED int vvi_device_engines_start(struct vvi_device_host *d);

/* To be called after the device was lost, or before anything was submitted. */
void vvi_device_engines_stop(struct vvi_device_host *d);
void vvi_device_engine_push_locked(struct vvi_device_host *d, struct vvi_device_item *it);

#endif
