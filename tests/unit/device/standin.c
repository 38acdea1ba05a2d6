/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stand-in for the CUDA driver: it is asynchronous, keeps the order, and refuses what the driver refuses. Tests
 * that use it rely on that.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "t.h"
#include "t_cuda.h"

#define MIB ((size_t)1 << 20)

enum {
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    INVALID_CONTEXT = 201,
    ECC = 214,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    DESTROYED = 709,
    ALREADY_REGISTERED = 712,
    NOT_REGISTERED = 713,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    CAPTURE_IMPLICIT = 906,
    UNKNOWN = 999,
};

struct attributes {
    int order, src[2], dst[2];
    unsigned flags;
};

/* X(member, symbol, parameters) */
#define FUNCTIONS(X)                                                                               \
    X(init, "cuInit", (unsigned))                                                                  \
    X(proc, "cuGetProcAddress_v2", (const char *, void **, int, uint64_t, int *))                  \
    X(retain, "cuDevicePrimaryCtxRetain", (void **, int))                                          \
    X(release, "cuDevicePrimaryCtxRelease_v2", (int))                                              \
    X(reset, "cuDevicePrimaryCtxReset_v2", (int))                                                  \
    X(push, "cuCtxPushCurrent_v2", (void *))                                                       \
    X(pop, "cuCtxPopCurrent_v2", (void **))                                                        \
    X(alloc, "cuMemAlloc_v2", (uintptr_t *, size_t))                                               \
    X(mem_free, "cuMemFree_v2", (uintptr_t))                                                       \
    X(info, "cuMemGetInfo_v2", (size_t *, size_t *))                                               \
    X(pin, "cuMemHostRegister_v2", (void *, size_t, unsigned))                                     \
    X(unpin, "cuMemHostUnregister", (void *))                                                      \
    X(attribute, "cuPointerGetAttribute", (void *, int, uintptr_t))                                \
    X(copy, "cuMemcpyAsync", (uintptr_t, uintptr_t, size_t, void *))                               \
    X(batch, "cuMemcpyBatchAsync_v2",                                                              \
      (uintptr_t *, uintptr_t *, size_t *, size_t, struct attributes *, size_t *, size_t, void *)) \
    X(stream, "cuStreamCreate", (void **, unsigned))                                               \
    X(stream_free, "cuStreamDestroy_v2", (void *))                                                 \
    X(stream_query, "cuStreamQuery", (void *))                                                     \
    X(sync, "cuStreamSynchronize", (void *))                                                       \
    X(wait, "cuStreamWaitEvent", (void *, void *, unsigned))                                       \
    X(begin, "cuStreamBeginCapture_v2", (void *, int))                                             \
    X(end, "cuStreamEndCapture", (void *, void **))                                                \
    X(capturing, "cuStreamIsCapturing", (void *, int *))                                           \
    X(exchange, "cuThreadExchangeStreamCaptureMode", (int *))                                      \
    X(host_func, "cuLaunchHostFunc", (void *, void (*)(void *), void *))                           \
    X(event, "cuEventCreate", (void **, unsigned))                                                 \
    X(event_free, "cuEventDestroy_v2", (void *))                                                   \
    X(record, "cuEventRecord", (void *, void *))                                                   \
    X(query, "cuEventQuery", (void *))

static struct {
#define X(member, symbol, params) int(*member) params;
    FUNCTIONS(X)
#undef X
} cu;

static struct t_fake fake;
static void *ctx;

/* A kernel that runs until it is released. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open, entered;
};

#define GATE_INIT                                                         \
    {                                                                     \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false \
    }

static void gate_run(void *arg)
{
    struct gate *g = arg;
    pthread_mutex_lock(&g->lock);
    g->entered = true;
    pthread_cond_broadcast(&g->changed);
    while (!g->open)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static void gate_open(struct gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->open = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

static void gate_wait_entered(struct gate *g)
{
    pthread_mutex_lock(&g->lock);
    while (!g->entered)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static char *host_new(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    T_CHECK(p != MAP_FAILED);
    return p;
}

static uintptr_t dev_new(size_t bytes)
{
    uintptr_t at = 0;
    T_EQ(cu.alloc(&at, bytes), 0);
    return at;
}

static void work_is_asynchronous_and_in_order(void)
{
    struct gate g = GATE_INIT;
    char *h = host_new(MIB), *out = host_new(MIB);
    uintptr_t d = dev_new(MIB);
    void *a, *b, *ev;
    T_EQ(cu.pin(h, MIB, 1), 0);
    T_EQ(cu.pin(out, MIB, 1), 0);
    T_EQ(cu.stream(&a, 1), 0);
    T_EQ(cu.stream(&b, 1), 0);
    T_EQ(cu.event(&ev, 2), 0);
    T_EQ(cu.query(ev), 0);
    T_EQ(cu.host_func(a, gate_run, &g), 0);
    T_EQ(cu.copy(d, (uintptr_t)h, MIB, a), 0);
    T_EQ(cu.record(ev, a), 0);
    T_EQ(cu.wait(b, ev, 0), 0);
    T_EQ(cu.copy((uintptr_t)out, d, MIB, b), 0);
    /* The source may still change: nothing has been copied yet. */
    memset(h, 7, MIB);
    T_EQ(cu.query(ev), NOT_READY);
    T_EQ(cu.stream_query(b), NOT_READY);
    gate_open(&g);
    T_EQ(cu.sync(b), 0);
    T_EQ(cu.query(ev), 0);
    for (size_t i = 0; i < MIB; i++)
        T_EQ(out[i], 7);
    T_EQ(((char *)fake.map((void *)d))[5], 7);
    T_EQ(cu.event_free(ev), 0);
    T_EQ(cu.query(ev), INVALID_HANDLE);
    T_EQ(cu.stream_free(a), 0);
    T_EQ(cu.stream_free(a), INVALID_HANDLE);
    T_EQ(cu.stream_free(b), 0);
    T_EQ(cu.unpin(h), 0);
    T_EQ(cu.unpin(out), 0);
    T_EQ(cu.mem_free(d), 0);
    munmap(h, MIB);
    munmap(out, MIB);
}

static void default_stream_waits_for_blocking_ones(void)
{
    struct gate g = GATE_INIT;
    void *blocking, *other;
    T_EQ(cu.stream(&blocking, 0), 0);
    T_EQ(cu.stream(&other, 1), 0);
    T_EQ(cu.host_func(blocking, gate_run, &g), 0);
    void *on_default, *on_other;
    T_EQ(cu.event(&on_default, 2), 0);
    T_EQ(cu.event(&on_other, 2), 0);
    T_EQ(cu.record(on_default, NULL), 0);
    T_EQ(cu.record(on_other, other), 0);
    T_EQ(cu.sync(other), 0);
    T_EQ(cu.query(on_other), 0);
    T_EQ(cu.query(on_default), NOT_READY);
    gate_open(&g);
    T_EQ(cu.sync(NULL), 0);
    T_EQ(cu.query(on_default), 0);
    T_EQ(cu.event_free(on_default), 0);
    T_EQ(cu.event_free(on_other), 0);
    T_EQ(cu.stream_free(blocking), 0);
    T_EQ(cu.stream_free(other), 0);
}

static void memory_is_limited_and_known(void)
{
    size_t free0, free1, total;
    int type, on_stack;
    T_EQ(cu.info(&free0, &total), 0);
    uintptr_t d = dev_new(3 * MIB), none;
    T_EQ(cu.info(&free1, &total), 0);
    T_EQ(free0 - free1, 3 * MIB);
    T_EQ(cu.alloc(&none, total), OUT_OF_MEMORY);
    T_EQ(cu.alloc(&none, 0), INVALID_VALUE);
    T_EQ(cu.attribute(&type, 2, d + 100), 0);
    T_EQ(type, 2);
    T_EQ(cu.attribute(&type, 2, (uintptr_t)&on_stack), INVALID_VALUE);
    T_EQ(cu.mem_free(d + 512), INVALID_VALUE);
    T_EQ(cu.mem_free(d), 0);
    T_EQ(cu.mem_free(d), INVALID_VALUE);
}

static void registration_is_as_strict(void)
{
    char *h = host_new(4 * MIB);
    uintptr_t d = dev_new(4 * MIB);
    T_EQ(cu.pin(h, MIB, 1), 0);
    T_EQ(cu.pin(h, MIB, 1), ALREADY_REGISTERED);
    T_EQ(cu.pin(h + MIB / 2, MIB, 1), ALREADY_REGISTERED);
    T_EQ(cu.pin(h + MIB, MIB, 1), 0);
    /* Across two registrations, out of one, and into one. */
    T_EQ(cu.copy(d, (uintptr_t)h, 2 * MIB, NULL), INVALID_VALUE);
    T_EQ(cu.copy(d, (uintptr_t)h + MIB, 2 * MIB, NULL), INVALID_VALUE);
    T_EQ(cu.copy((uintptr_t)h + 2 * MIB - 1, d, 1, NULL), 0);
    T_EQ(cu.copy(d, (uintptr_t)h + 3 * MIB, MIB, NULL), 0);
    T_EQ(cu.copy(d + 1, (uintptr_t)h, 4 * MIB, NULL), INVALID_VALUE);
    T_EQ(cu.copy(d + 4 * MIB - 1, (uintptr_t)h, 2, NULL), INVALID_VALUE);
    T_EQ(cu.unpin(h + 4096), NOT_REGISTERED);
    T_EQ(cu.unpin(h), 0);
    T_EQ(cu.unpin(h), NOT_REGISTERED);
    T_EQ(cu.unpin(h + MIB), 0);
    T_EQ(cu.mem_free(d), 0);
    munmap(h, 4 * MIB);
    T_EQ(cu.pin(h, MIB, 1), INVALID_VALUE);
}

/* The source of a pageable copy may be reused after the call; the destination is not written yet. */
static void pageable_copies_are_staged(void)
{
    char *h = malloc(MIB), *out = malloc(MIB);
    uintptr_t d = dev_new(MIB);
    void *s;
    T_CHECK(h && out);
    T_EQ(cu.stream(&s, 1), 0);
    memset(h, 1, MIB);
    T_EQ(cu.copy(d, (uintptr_t)h, MIB, s), 0);
    memset(h, 2, MIB);
    T_EQ(cu.copy((uintptr_t)out, d, MIB, s), 0);
    for (size_t i = 0; i < MIB; i++)
        T_EQ(out[i], 1);
    T_EQ(cu.stream_free(s), 0);
    T_EQ(cu.mem_free(d), 0);
    free(h);
    free(out);
}

static void batches_are_checked(void)
{
    char *h = host_new(MIB);
    uintptr_t d = dev_new(MIB), dst[2] = {d, d + 100}, src[2] = {(uintptr_t)h, (uintptr_t)h + 500};
    size_t bytes[2] = {100, 100}, first = 0;
    struct attributes attr = {.order = 1};
    void *s;
    T_EQ(cu.stream(&s, 1), 0);
    T_EQ(cu.pin(h, MIB, 1), 0);
    memset(h, 3, 100);
    memset(h + 500, 4, 100);
    T_EQ(cu.batch(dst, src, bytes, 2, &attr, &first, 1, s), 0);
    T_EQ(cu.sync(s), 0);
    T_EQ(((char *)fake.map((void *)d))[99], 3);
    T_EQ(((char *)fake.map((void *)d))[100], 4);
    T_EQ(cu.batch(dst, src, bytes, 2, &attr, &first, 1, NULL), INVALID_VALUE);
    T_EQ(cu.batch(dst, src, bytes, 0, &attr, &first, 1, s), INVALID_VALUE);
    attr.order = 0;
    T_EQ(cu.batch(dst, src, bytes, 2, &attr, &first, 1, s), INVALID_VALUE);
    T_EQ(cu.unpin(h), 0);
    T_EQ(cu.stream_free(s), 0);
    T_EQ(cu.mem_free(d), 0);
    munmap(h, MIB);
}

static void contexts_are_needed(void)
{
    void *s, *old, *other;
    T_EQ(cu.pop(&old), 0);
    T_CHECK(old == ctx);
    T_EQ(cu.stream(&s, 1), INVALID_CONTEXT);
    T_EQ(cu.push(ctx), 0);
    T_EQ(cu.stream(&s, 1), 0);
    T_EQ(fake.set("devices", 2), 0);
    T_EQ(cu.retain(&other, 1), 0);
    T_EQ(cu.push(other), 0);
    T_EQ(cu.copy(1, 2, 0, s), INVALID_HANDLE);
    T_EQ(cu.pop(&old), 0);
    T_EQ(cu.release(1), 0);
    T_EQ(cu.push(other), DESTROYED);
    T_EQ(fake.set("devices", 1), 0);
    T_EQ(cu.stream_free(s), 0);
}

static void failures_come_on_demand(void)
{
    uintptr_t d;
    unsigned long long before = fake.calls("cuMemAlloc");
    T_EQ(fake.fail("cuMemAlloc", 2, 1, UNKNOWN), 0);
    d = dev_new(MIB);
    uintptr_t none;
    T_EQ(cu.alloc(&none, MIB), UNKNOWN);
    T_EQ(cu.mem_free(d), 0);
    d = dev_new(MIB);
    T_EQ(fake.calls("cuMemAlloc") - before, 3);
    T_EQ(fake.fail("*", 1, -1, OUT_OF_MEMORY), 0);
    T_EQ(cu.mem_free(d), OUT_OF_MEMORY);
    fake.heal();
    T_EQ(cu.mem_free(d), 0);
    T_EQ(fake.fail("", 1, 1, 1), -1);
    T_EQ(fake.fail("cuInit", 0, 1, 1), -1);
}

static void captures_forbid(void)
{
    void *s, *ev, *graph;
    int status, mode = 2;
    T_EQ(cu.stream(&s, 0), 0);
    T_EQ(cu.event(&ev, 2), 0);
    T_EQ(cu.begin(s, 0), 0);
    T_EQ(cu.capturing(s, &status), 0);
    T_EQ(status, 1);
    T_EQ(cu.record(ev, NULL), CAPTURE_IMPLICIT);
    T_EQ(cu.end(s, &graph), CAPTURE_INVALIDATED);
    T_EQ(cu.begin(s, 0), 0);
    T_EQ(cu.query(ev), CAPTURE_UNSUPPORTED);
    T_EQ(cu.end(s, &graph), CAPTURE_INVALIDATED);
    T_EQ(cu.begin(s, 0), 0);
    T_EQ(cu.exchange(&mode), 0);
    T_EQ(cu.query(ev), 0);
    T_EQ(cu.end(s, &graph), 0);
    T_EQ(cu.exchange(&mode), 0);
    T_EQ(mode, 2);
    T_EQ(cu.event_free(ev), 0);
    T_EQ(cu.stream_free(s), 0);
}

static void children_get_errors(void)
{
    pid_t child = fork();
    int status;
    if (child == 0) {
        uintptr_t d;
        _exit(cu.alloc(&d, MIB) == NOT_INITIALIZED ? 0 : 1);
    }
    T_CHECK(child > 0);
    T_EQ(waitpid(child, &status, 0), child);
    T_EQ(status, 0);
}

static void entry_points_have_versions(void)
{
    void *fn, *named;
    int status;
    T_EQ(cu.proc("cuMemcpyBatchAsync", &fn, 13000, 0, &status), 0);
    memcpy(&named, &cu.batch, sizeof(named));
    T_CHECK(fn == named);
    T_EQ(cu.proc("cuMemcpyBatchAsync", &fn, 12080, 0, &status), 0);
    T_CHECK(fn != named);
    T_EQ(cu.proc("cuMemcpyBatchAsync", &fn, 12000, 0, &status), NOT_FOUND);
    T_EQ(status, 2);
    T_EQ(cu.proc("cuNothing", &fn, 13000, 0, &status), NOT_FOUND);
    T_EQ(status, 1);
}

static void resets_void_everything(void)
{
    struct gate g = GATE_INIT;
    char *h = host_new(MIB);
    uintptr_t d = dev_new(MIB);
    void *s, *ev, *again;
    T_EQ(cu.stream(&s, 1), 0);
    T_EQ(cu.event(&ev, 2), 0);
    T_EQ(cu.pin(h, MIB, 1), 0);
    T_EQ(cu.host_func(s, gate_run, &g), 0);
    T_EQ(cu.copy((uintptr_t)h, d, MIB, s), 0);
    T_EQ(cu.record(ev, s), 0);
    gate_wait_entered(&g);
    /* The copy is dropped; the application's own host function cannot be ended. */
    T_EQ(cu.reset(0), 0);
    T_EQ(fake.live("pending"), 1);
    gate_open(&g);
    while (fake.live("pending"))
        sched_yield();
    T_EQ(cu.query(ev), DESTROYED);
    T_EQ(cu.copy(d, (uintptr_t)h, MIB, s), DESTROYED);
    T_EQ(cu.mem_free(d), DESTROYED);
    T_EQ(fake.live("contexts"), 0);
    T_EQ(fake.live("registrations"), 0);
    T_EQ(cu.retain(&again, 0), 0);
    T_CHECK(again == ctx);
    T_EQ(cu.query(ev), DESTROYED);
    T_EQ(cu.pin(h, MIB, 1), 0);
    T_EQ(cu.unpin(h), 0);
    munmap(h, MIB);
}

/* A code that ends a context does so from any call. */
static void fatal_failures_stick(void)
{
    void *again;
    T_EQ(fake.fail("cuMemGetInfo", 1, 1, ILLEGAL_ADDRESS), 0);
    size_t a, b;
    T_EQ(cu.info(&a, &b), ILLEGAL_ADDRESS);
    T_EQ(cu.info(&a, &b), ILLEGAL_ADDRESS);
    T_EQ(cu.reset(0), 0);
    T_EQ(cu.retain(&again, 0), 0);
    T_EQ(cu.info(&a, &b), 0);
}

/* The last case: nothing works afterwards. */
static void late_failures_stick(void)
{
    char *h = host_new(MIB);
    uintptr_t d = dev_new(MIB);
    void *s;
    T_EQ(cu.stream(&s, 1), 0);
    T_EQ(cu.pin(h, MIB, 1), 0);
    T_EQ(fake.fail_async(2, 1, ILLEGAL_ADDRESS), 0);
    memset(h, 1, MIB);
    T_EQ(cu.copy(d, (uintptr_t)h, MIB, s), 0);
    T_EQ(cu.sync(s), 0);
    T_EQ(cu.copy((uintptr_t)h, d, MIB, s), 0);
    T_EQ(cu.sync(s), ILLEGAL_ADDRESS);
    T_EQ(cu.mem_free(d), ILLEGAL_ADDRESS);
    fake.lose(ECC);
    T_EQ(cu.init(0), ECC);
    munmap(h, MIB);
}

int main(void)
{
    void *lib, *fn;
    T_CHECK(t_fake_load(t_fake_path(false), &lib, &fake));
#define X(member, symbol, params) \
    fn = dlsym(lib, symbol);      \
    T_CHECK(fn);                  \
    memcpy(&cu.member, &fn, sizeof(fn));
    FUNCTIONS(X)
#undef X
    T_EQ(cu.retain(&ctx, 0), NOT_INITIALIZED);
    T_EQ(cu.init(0), 0);
    T_EQ(cu.retain(&ctx, 0), 0);
    T_EQ(cu.push(ctx), 0);

    T_RUN(work_is_asynchronous_and_in_order);
    T_RUN(default_stream_waits_for_blocking_ones);
    T_RUN(memory_is_limited_and_known);
    T_RUN(registration_is_as_strict);
    T_RUN(pageable_copies_are_staged);
    T_RUN(batches_are_checked);
    T_RUN(contexts_are_needed);
    T_RUN(failures_come_on_demand);
    T_RUN(captures_forbid);
    T_RUN(children_get_errors);
    T_RUN(entry_points_have_versions);
    T_EQ(fake.live("streams"), 0);
    T_EQ(fake.live("events"), 0);
    T_EQ(fake.live("allocations"), 0);
    T_RUN(resets_void_everything);
    T_RUN(fatal_failures_stick);
    T_RUN(late_failures_stick);
    return t_done();
}
