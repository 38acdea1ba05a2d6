/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of the stand-in. One lock guards everything except the bytes being copied; an entry point takes
 * it on entry (fake_enter) and drops it on return (fake_leave). Handles given to the caller are addresses of the
 * structures below and are looked up in their lists, so that a stale or foreign one is refused instead of followed.
 *
 * Names, values and argument lists are those of the driver's published interface, declared again here so that no
 * toolkit is needed.
 */
#ifndef FAKE_CUDA_PRIVATE_H
#define FAKE_CUDA_PRIVATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The entry points are declared by the driver's header, which is not needed here. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define API __attribute__((visibility("default")))

enum {
    FAKE_OK = 0,
    FAKE_INVALID_VALUE = 1,
    FAKE_OUT_OF_MEMORY = 2,
    FAKE_NOT_INITIALIZED = 3,
    FAKE_DEINITIALIZED = 4,
    FAKE_NO_DEVICE = 100,
    FAKE_INVALID_DEVICE = 101,
    FAKE_INVALID_CONTEXT = 201,
    FAKE_NO_BINARY_FOR_GPU = 209,
    FAKE_INVALID_HANDLE = 400,
    FAKE_NOT_FOUND = 500,
    FAKE_NOT_READY = 600,
    FAKE_ILLEGAL_ADDRESS = 700,
    FAKE_CONTEXT_IS_DESTROYED = 709,
    FAKE_ALREADY_REGISTERED = 712,
    FAKE_NOT_REGISTERED = 713,
    FAKE_NOT_SUPPORTED = 801,
    FAKE_CAPTURE_UNSUPPORTED = 900,
    FAKE_CAPTURE_INVALIDATED = 901,
    FAKE_CAPTURE_UNMATCHED = 903,
    FAKE_CAPTURE_IMPLICIT = 906,
    FAKE_CAPTURED_EVENT = 907,
};

enum { FAKE_MAX_DEVICES = 8 };

/* ---- control.c: entry and return, settings, failures ---- */

struct fake_entry {
    const char *name;
    unsigned long long calls;
    struct fake_entry *next;
    bool known;
};

struct fake_settings {
    long long devices, memory, version, kernels, guard;
    long long rate_d2d, rate_d2h, rate_h2d, latency_ns, rate_register;
    char hide[512];
};

enum fake_need {
    FAKE_NEED_NOTHING = 0,
    FAKE_NEED_INIT = 1,
    FAKE_NEED_CTX = 2 | FAKE_NEED_INIT, /* a living context is current */
    FAKE_NEED_CALM = 4, /* refused while a capture is active and the thread's mode is not relaxed */
};

extern struct fake_settings fake_set;
extern pthread_mutex_t fake_lock;
extern pthread_cond_t fake_done; /* some work has finished, or an object is gone */
extern bool fake_inited;
extern int fake_lost;

/* 0 with the lock held, or the code to return. */
int fake_enter(struct fake_entry *e, unsigned need);
int fake_leave(int rc);
/* CUDA is initialised: it belongs to this process from now on, until the exit handlers run. */
void fake_start(void);
/* Called before a copy or kernel is accepted: the code with which it fails later, or 0. */
int fake_late_failure(void);
bool fake_hidden(const char *name);
uint64_t fake_now_ns(void);

#define ENTER(entry, need)                           \
    static struct fake_entry fe_ = {.name = #entry}; \
    int fe_rc_ = fake_enter(&fe_, (need));           \
    if (fe_rc_)                                      \
    return fe_rc_
#define LEAVE(rc) return fake_leave(rc)

/* ---- context.c ---- */

struct fake_stream;

struct fake_ctx {
    struct fake_ctx *next;
    int dev;
    bool primary;
    bool alive;
    unsigned life; /* counts destructions: objects of an earlier life are void */
    unsigned users;
    unsigned long long id;
    int error; /* sticky: error of failed work */
    struct fake_stream *legacy, *per_thread;
};

extern struct fake_ctx *fake_contexts;

struct fake_ctx *fake_current(void);
/* 0 if the current context can take work, or the code. */
int fake_ctx_usable(const struct fake_ctx *c);
/* Destroys the context's objects. Drops the lock while it waits for running work. */
void fake_ctx_destroy(struct fake_ctx *c);
/* The primary context of a device, active or not; made at first use. NULL: no such device. */
struct fake_ctx *fake_primary(int dev);

/* ---- memory.c ---- */

enum fake_kind { FAKE_DEVICE, FAKE_MANAGED, FAKE_HOST_ALLOC, FAKE_REGISTERED };

struct fake_mem {
    uintptr_t at; /* the application's address */
    char *real;   /* the address of the bytes */
    size_t bytes;
    enum fake_kind kind;
    struct fake_ctx *ctx;
    unsigned life;
    unsigned flags;
    uint64_t id;
};

struct fake_mem *fake_mem_find(uintptr_t at);
/* Finds the bytes of a range; *ret_mem is NULL for memory that the driver does not know. Refuses a range
 * that exceeds its allocation or is registered in part. */
int fake_mem_range(uintptr_t at, size_t bytes, char **ret_real, const struct fake_mem **ret_mem);
bool fake_mem_is_device(const struct fake_mem *m);
/* Frees all memory of the context, after it has ended. */
void fake_mem_drop(struct fake_ctx *c, unsigned life);
size_t fake_mem_count(bool registered);

/* ---- stream.c ---- */

struct fake_seg {
    char *dst;
    const char *src;
    size_t bytes;
};

enum fake_op_kind { FAKE_OP_MARK, FAKE_OP_WAIT, FAKE_OP_COPY, FAKE_OP_SET, FAKE_OP_CALL };

/* One piece of work on a stream. References: the queue, the stream's `last`, events, waits. */
struct fake_op {
    struct fake_op *next;
    unsigned refs;
    enum fake_op_kind kind;
    bool done;
    uint64_t number; /* counts submissions */
    uint64_t end_ns;
    int fail; /* code that ends the context when it runs */
    struct fake_op *target;
    struct fake_seg *segs;
    size_t n_segs;
    char *staging;
    uint64_t pace_bytes_per_s;
    uint32_t value; /* SET: the word, of `width` bytes */
    unsigned width;
    void (*fn)(void *arg); /* CALL */
    void *arg;
    void (*free_arg)(void *arg);
};

struct fake_stream {
    struct fake_stream *next;
    struct fake_ctx *ctx;
    unsigned life;
    unsigned refs;
    bool nonblocking;
    bool destroyed; /* the handle is void */
    bool thread;
    struct fake_op *head, *tail; /* not started yet */
    struct fake_op *current;     /* running, no longer in the queue */
    bool busy;                   /* touches memory, without the lock */
    struct fake_op *last;        /* submitted */
    pthread_cond_t work;
    int capture; /* 0 none, 1 active, 2 invalidated */
    int capture_mode;
    uint64_t capture_id;
    pthread_t capture_thread;
    unsigned long long id;
};

/* Finds the stream of a handle, in the current context. */
int fake_stream_find(void *handle, struct fake_stream **ret_stream);
struct fake_op *fake_op_new(enum fake_op_kind kind);
/* Takes over the caller's reference. 0 or the code; during a capture nothing runs. */
int fake_submit(struct fake_stream *s, struct fake_op *op);
void fake_op_unref(struct fake_op *op);
void fake_op_wait(struct fake_op *op);
/* Waits for all work submitted in contexts of the device. Drops the lock meanwhile. */
void fake_drain(int dev);
/* Drops queued work, and waits for running work of the device. Drops the lock meanwhile. */
void fake_streams_drop(struct fake_ctx *c, unsigned life);
/* Returns when no copy or kernel of the context is running; drops the lock meanwhile. */
void fake_streams_stop(const struct fake_ctx *c);
struct fake_stream *fake_stream_make(struct fake_ctx *c, bool nonblocking);
/* A capture of any thread may forbid calls that block or free: 0 or the code. */
int fake_capture_check(void);
size_t fake_stream_live(const char *what);

/* ---- kernel.c ---- */
void fake_modules_drop(struct fake_ctx *c, unsigned life);

#endif
