/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Event records. Each thread writes fixed-size records into its own ring, without a lock; any thread may
 * collect all rings into one list while they are being written. When tracing is off, an event costs one
 * load and one branch.
 */
#ifndef VV_TRACE_TRACE_H
#define VV_TRACE_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

#define VV_TRACE_ARGS 5

/*
 * X(kind, name, names of the arguments). Exporters and tests use these names. The numbers
 * are in trace files: append only.
 *
 * history   VV_TRACE_HISTORY: context and number of the history in it; HISTORY_OPEN names it
 * object    the version
 * tier      index in the context's tiers, fast to slow
 * route     VV_TRACE_ROUTE: the hop, its source tier and its destination tier
 * status    0 or a negative errno value
 * name, phase   VV_TRACE_NAME: numbers of vv_trace_name()
 */
#define VV_TRACE_KINDS(X)                                                          \
    X(NONE, "none", "", "", "", "", "")                                            \
    X(STATE, "state", "history", "object", "tier", "from", "to")                   \
    X(COPY_START, "copy-start", "route", "history", "object", "chunk", "bytes")    \
    X(COPY_END, "copy-end", "route", "history", "object", "chunk", "status")       \
    X(EVICT, "evict", "history", "object", "tier", "chunk", "pages")               \
    X(REQUEST_START, "request-start", "request", "history", "object", "bytes", "") \
    X(REQUEST_END, "request-end", "request", "history", "object", "status", "")    \
    X(HINT, "hint", "history", "object", "position", "", "")                       \
    X(ERROR, "error", "history", "object", "tier", "chunk", "status")              \
    X(PHASE_BEGIN, "phase-begin", "phase", "", "", "", "")                         \
    X(PHASE_END, "phase-end", "", "", "", "", "")                                  \
    X(COMMIT_START, "commit-start", "history", "object", "bytes", "", "")          \
    X(COMMIT_END, "commit-end", "history", "object", "status", "", "")             \
    X(CALL_START, "call-start", "call", "history", "object", "", "")               \
    X(CALL_END, "call-end", "call", "history", "object", "bytes", "status")        \
    X(DISTANCE, "distance", "history", "object", "distance", "", "")               \
    X(OCCUPANCY, "occupancy", "context", "tier", "bytes", "ready", "")             \
    X(HISTORY_OPEN, "history-open", "history", "name", "", "", "")                 \
    X(HISTORY_CLOSE, "history-close", "history", "", "", "", "")                   \
    X(DISCARD, "discard", "history", "object", "", "", "")                         \
    X(THREAD, "thread", "name", "role", "", "", "")                                \
    X(LOST, "lost", "records", "", "", "", "")                                     \
    X(REMOTE, "remote", "history", "object", "bytes", "complete", "")              \
    X(HEAL, "heal", "history", "object", "from", "to", "status")

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

/* X(call, name, what the application waits for in it). The numbers stand in trace files: append
 * only. */
#define VV_TRACE_CALLS(X)              \
    X(CHECKPOINT, "checkpoint", WRITE) \
    X(RESTORE, "restore", READ)        \
    X(RESERVE, "reserve", WRITE)       \
    X(COMMIT, "commit", WRITE)         \
    X(ACQUIRE, "acquire", READ)        \
    X(WAIT, "wait", OTHER)             \
    X(FLUSH, "flush", OTHER)           \
    X(CLOSE, "close", OTHER)

enum vv_trace_call {
#define X(call, ...) VV_TRACE_CALL_##call,
    VV_TRACE_CALLS(X)
#undef X
        VV_TRACE_CALL_COUNT
};

/* Roles of threads. */
enum vv_trace_role { VV_TRACE_ROLE_APP, VV_TRACE_ROLE_LIBRARY };

#define VV_TRACE_HISTORY(context, hist)   ((uint64_t)(context) << 32 | (uint32_t)(hist))
#define VV_TRACE_HISTORY_CONTEXT(history) ((uint32_t)((history) >> 32))
#define VV_TRACE_HISTORY_NUMBER(history)  ((uint32_t)(history))
/* Tiers are numbered from -1, the application. */
#define VV_TRACE_ROUTE(hop, src_tier, dst_tier) \
    ((uint64_t)(hop) | (uint64_t)((src_tier) + 1) << 8 | (uint64_t)((dst_tier) + 1) << 16)
/* Hops that the engine does not execute itself: between local files and remote ones. Their numbers
 * follow those of the engine's hops; the numbers of their tiers are above those of every context. */
enum { VV_TRACE_HOP_F2R = 6, VV_TRACE_HOP_R2F };
enum { VV_TRACE_TIER_FILE = 252, VV_TRACE_TIER_REMOTE };
#define VV_TRACE_ROUTE_HOP(route) ((uint32_t)(route)&0xff)
#define VV_TRACE_ROUTE_SRC(route) ((int)((route) >> 8 & 0xff) - 1)
#define VV_TRACE_ROUTE_DST(route) ((int)((route) >> 16 & 0xff) - 1)

struct vv_trace_log {
    struct vv_trace_record
        *records; /* by time; those of one thread in the order they were written */
    size_t count;
    uint64_t
        lost; /* written since the last reset, but overwritten, or dropped because of lack of memory */
};

/* Records per thread; rounded up to a power of two. */
#define VV_TRACE_RING_DEFAULT 65536

/* Turns recording in memory on. `ring_records` (0: the default) is the size of rings made from now
 * on. Any thread. When it is off, events are still recorded while a trace file is being written. */
void vv_trace_start(size_t ring_records);
void vv_trace_stop(void);

/* Discards all records written so far. Any thread, also while others write. */
void vv_trace_reset(void);

/* Collects the records of all rings, sorted. Any thread, also while others write: a record that is being
 * overwritten is left out and counted as lost. -ENOMEM. */
VV_WARN_UNUSED int vv_trace_snapshot(struct vv_trace_log *ret_log);
void vv_trace_log_fini(struct vv_trace_log *log);

/* The number of a text, the same for equal texts; they are kept to the end of the process. At most
 * VV_TRACE_NAME_BYTES of it count. NULL: "(unnamed)". VV_TRACE_NAME_OTHER when there are too many, or
 * memory is lacking. Any thread; a text that was seen before takes no lock. */
enum { VV_TRACE_NAME_UNNAMED, VV_TRACE_NAME_OTHER, VV_TRACE_NAME_BYTES = 255 };
uint32_t vv_trace_name(const char *text);

/* Names the calling thread in traces, as one of the library's; the name is a constant. Threads that do
 * not make this call count as the application's, and appear under their names in the system. */
void vv_trace_thread(const char *name);

/* Returns a number for a context, unique in the process and never 0. */
uint32_t vv_trace_new_context(void);

/* The name of a call; "?" beyond the last. */
const char *vv_trace_call_name(uint32_t call);

/* The name of a kind; "?" beyond the last. */
const char *vv_trace_kind_name(uint32_t kind);
/* The name of an argument; "" if the kind has no such argument. */
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

/* The same for an event at another time. */
void vv_trace_at(uint64_t time_ns, enum vv_trace_kind kind, const uint64_t arg[VV_TRACE_ARGS]);

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
