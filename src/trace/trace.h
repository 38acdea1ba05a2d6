/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Event records. Each thread writes fixed-size records into a ring of its own, without a lock;
 * anybody may collect all rings into one list while they are being written. Off, an event costs one
 * load and one branch that is never taken.
 */
#ifndef VV_TRACE_TRACE_H
#define VV_TRACE_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/util.h"

#define VV_TRACE_ARGS 5

/* X(kind, name, names of the arguments). Exporters and tests read the names from here. Append only.
 */
#define VV_TRACE_KINDS(X)                                                     \
    X(NONE, "none", "", "", "", "", "")                                       \
    X(STATE, "state", "object", "tier", "from", "to", "")                     \
    X(COPY_START, "copy-start", "hop", "object", "chunk", "bytes", "")        \
    X(COPY_END, "copy-end", "hop", "object", "chunk", "bytes", "status")      \
    X(EVICT, "evict", "object", "tier", "chunk", "bytes", "")                 \
    X(REQUEST_START, "request-start", "request", "object", "bytes", "", "")   \
    X(REQUEST_END, "request-end", "request", "object", "bytes", "status", "") \
    X(HINT, "hint", "object", "distance", "", "", "")                         \
    X(ERROR, "error", "error", "tier", "object", "chunk", "")                 \
    X(PHASE, "phase", "phase", "", "", "", "")                                \
    X(RESERVE, "reserve", "object", "tier", "bytes", "", "")                  \
    X(COMMIT, "commit", "object", "tier", "bytes", "", "")

enum vv_trace_kind {
#define X(kind, ...) VV_TRACE_##kind,
    VV_TRACE_KINDS(X)
#undef X
        VV_TRACE_KIND_COUNT
};

struct vv_trace_record {
    uint64_t seq;     /* number of the record in its ring, from 1 */
    uint64_t time_ns; /* vv_now_ns() */
    uint32_t kind;    /* enum vv_trace_kind */
    uint32_t thread;  /* the kernel's thread id */
    uint64_t arg[VV_TRACE_ARGS];
};

_Static_assert(sizeof(struct vv_trace_record) == 64, "a record is one cache line");

struct vv_trace_log {
    struct vv_trace_record
        *records; /* by time; those of one thread in the order they were written */
    size_t count;
    uint64_t
        lost; /* written since the last reset, but overwritten, or dropped for want of memory */
};

/* Records per thread; rounded up to a power of two. */
#define VV_TRACE_RING_DEFAULT 65536

/* Turns tracing on. `ring_records` (0: the default) is the size of rings made from now on. Any
 * thread. */
void vv_trace_start(size_t ring_records);
void vv_trace_stop(void);

/* Forgets all that was written so far. Any thread, also while others write. */
void vv_trace_reset(void);

/* Collects what the rings hold, sorted. Any thread, also while others write: a record that is being
 * overwritten is left out and counted as lost. -ENOMEM. */
VV_WARN_UNUSED int vv_trace_snapshot(struct vv_trace_log *ret_log);
void vv_trace_log_fini(struct vv_trace_log *log);

/* "?" beyond the last kind. */
const char *vv_trace_kind_name(uint32_t kind);
/* "" where the kind has no such argument. */
const char *vv_trace_arg_name(uint32_t kind, unsigned arg);

/* Synchronization: relaxed. A thread that sees the flag late writes or misses an event around the
 * switch. */
extern _Atomic bool vvi_trace_on;
void vvi_trace_write(enum vv_trace_kind kind, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
                     uint64_t e);

static inline bool vv_trace_enabled(void)
{
    return __builtin_expect(atomic_load_explicit(&vvi_trace_on, memory_order_relaxed), 0);
}

static inline void vv_trace5(enum vv_trace_kind kind, uint64_t a, uint64_t b, uint64_t c,
                             uint64_t d, uint64_t e)
{
    if (vv_trace_enabled())
        vvi_trace_write(kind, a, b, c, d, e);
}

static inline void vv_trace(enum vv_trace_kind kind, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    vv_trace5(kind, a, b, c, d, 0);
}

#endif
