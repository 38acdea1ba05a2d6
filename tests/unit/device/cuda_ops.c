/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA backend over the stand-in driver: requirements that conformance.c cannot test. Calls of the driver for
 * batches, memory and streams of the application, its unchanged context, and every way in which a device can be
 * lost.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/cuda/cuda.h"
#include "device/cuda/driver.h"
#include "device/cuda/kernels.h"
#include "t.h"
#include "t_cuda.h"

#define MIB ((size_t)1 << 20)

static struct t_fake fake;
static struct vvi_cuda_driver app; /* the application's calls */
static struct {
    unsigned (*cuDevicePrimaryCtxReset)(CUdevice device);
    unsigned (*cuCtxCreate)(CUcontext *ctx, unsigned flags, CUdevice device);
    unsigned (*cuCtxDestroy)(CUcontext ctx);
    unsigned (*cuStreamBeginCapture)(CUstream stream, unsigned mode);
    unsigned (*cuStreamEndCapture)(CUstream stream, void **graph);
    unsigned (*cuLaunchHostFunc)(CUstream stream, void (*fn)(void *arg), void *arg);
} more;
static const char *path;
static struct vv_device *dev;
static struct vv_stream *s;
static struct vv_event *ev;

static void set_up(void)
{
    struct vv_device_cuda_opts opts = {.index = 0, .library = path};
    char err[256] = "";

    if (vv_device_open_cuda(&opts, err, sizeof(err), &dev))
        t_fail(__FILE__, __LINE__, "%s", err);
    T_OK(vv_device_stream_new(dev, &s));
    T_OK(vv_device_event_new(dev, &ev));
}

static void nothing_is_left(void)
{
    T_EQ(fake.live("streams"), 0);
    T_EQ(fake.live("events"), 0);
    T_EQ(fake.live("allocations"), 0);
    T_EQ(fake.live("registrations"), 0);
    T_EQ(fake.live("contexts"), 0);
}

/* Closing frees all objects that are left, so the tests do not. */
static void tear_down(void)
{
    vv_device_close(dev);
    nothing_is_left();
}

static char *host_new(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    T_CHECK(p != MAP_FAILED);
    return p;
}

static void *dev_new(size_t bytes)
{
    void *p = NULL;

    T_OK(vv_device_mem_alloc(dev, bytes, &p));
    return p;
}

static void finish(void)
{
    T_OK(vv_device_event_record(dev, ev, s));
    T_OK(vv_device_event_wait(dev, ev, -1));
}

static void fill(char *p, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++)
        p[i] = (char)(seed + i * 31 + (i >> 12));
}

/* ---- batches ---- */

static void one_segment_is_one_copy(void)
{
    unsigned long long copies, batches;
    char *h = host_new(MIB);
    void *p;

    set_up();
    p = dev_new(MIB);
    T_OK(vv_device_host_register(dev, h, MIB));
    copies = fake.calls("cuMemcpyAsync");
    batches = fake.calls("cuMemcpyBatchAsync");
    T_OK(vv_device_copy_async(dev, s, &(struct vv_copy_seg){p, h, MIB}, 1));
    T_EQ(fake.calls("cuMemcpyAsync") - copies, 1);
    T_EQ(fake.calls("cuMemcpyBatchAsync") - batches, 0);
    finish();
    tear_down();
    T_EQ(munmap(h, MIB), 0);
}

/* Within the device a kernel of ours is faster, except for parts of words of 16 bytes, and for memory that may be on
 * the host at present. */
static void one_segment_within_the_device(void)
{
    static const struct {
        size_t to, from;
        bool managed, kernel;
    } cases[] = {{0, 0, false, true},
                 {64, 16, false, true},
                 {8, 8, false, false},
                 {0, 4, false, false},
                 {0, 0, true, false}};
    struct vv_device_info info;
    CUdeviceptr managed = 0;
    CUcontext ctx;
    char *h = host_new(MIB), *p, *q;

    set_up();
    vv_device_describe(dev, &info);
    if (!info.kernels)
        T_SKIP("kernels were not built");
    T_EQ(app.cuDevicePrimaryCtxRetain(&ctx, 0), 0);
    T_EQ(app.cuCtxPushCurrent(ctx), 0);
    T_EQ(app.cuMemAllocManaged(&managed, MIB, VVI_CU_MEM_ATTACH_GLOBAL), 0);
    p = dev_new(MIB);
    q = dev_new(MIB);
    for (size_t i = 0; i < VV_ARRAY_SIZE(cases); i++) {
        unsigned long long copies = fake.calls("cuMemcpyAsync");
        unsigned long long launches = fake.calls("cuLaunchKernel");
        const char *src = (cases[i].managed ? (char *)managed : q) + cases[i].from;

        T_OK(
            vv_device_copy_async(dev, s, &(struct vv_copy_seg){p + cases[i].to, src, MIB - 64}, 1));
        finish();
        T_EQ(fake.calls("cuLaunchKernel") - launches, cases[i].kernel);
        T_EQ(fake.calls("cuMemcpyAsync") - copies, !cases[i].kernel);
    }
    /* Beside a copy of another direction, which comes last. */
    T_OK(vv_device_host_register(dev, h, MIB));
    unsigned long long launches = fake.calls("cuLaunchKernel");
    T_OK(vv_device_copy_async(dev, s,
                              (struct vv_copy_seg[]){{p, (char *)managed, 4096}, {h, q, 4096}}, 2));
    finish();
    T_EQ(fake.calls("cuLaunchKernel"), launches);
    T_EQ(app.cuMemFree(managed), 0);
    T_EQ(app.cuCtxPopCurrent(&ctx), 0);
    T_EQ(app.cuDevicePrimaryCtxRelease(0), 0);
    tear_down();
    T_EQ(munmap(h, MIB), 0);
}

/* 300 pieces of a page over four slices, some of them across a border, are copied down and back. */
static void pieces_round_trip(unsigned long long *ret_copies, unsigned long long *ret_batches)
{
    enum { N = 300, PIECE = 14000, SLICE = 1 << 20, SLICES = 5 };
    unsigned long long copies = fake.calls("cuMemcpyAsync");
    unsigned long long batches = fake.calls("cuMemcpyBatchAsync");
    char *h = host_new(SLICES * SLICE);
    char *want = malloc(N * PIECE);
    struct vv_copy_seg segs[N];
    char *p = dev_new(N * PIECE);

    T_CHECK(want);
    for (size_t i = 0; i < SLICES; i++)
        T_OK(vv_device_host_register(dev, h + i * SLICE, SLICE));
    fill(h, N * PIECE, 3);
    memcpy(want, h, N * PIECE);
    for (size_t i = 0; i < N; i++) /* scattered: pairs are swapped */
        segs[i] = (struct vv_copy_seg){p + (i ^ 1) * PIECE, h + i * PIECE, PIECE};
    T_OK(vv_device_copy_async(dev, s, segs, N));
    finish();
    memset(h, 0, N * PIECE);
    for (size_t i = 0; i < N; i++)
        segs[i] = (struct vv_copy_seg){h + i * PIECE, p + (i ^ 1) * PIECE, PIECE};
    T_OK(vv_device_copy_async(dev, s, segs, N));
    finish();
    T_CHECK(memcmp(h, want, N * PIECE) == 0);
    *ret_copies = fake.calls("cuMemcpyAsync") - copies;
    *ret_batches = fake.calls("cuMemcpyBatchAsync") - batches;
    for (size_t i = 0; i < SLICES; i++)
        T_OK(vv_device_host_unregister(dev, h + i * SLICE));
    T_EQ(munmap(h, SLICES * SLICE), 0);
    free(want);
}

static void pieces_go_in_batches(void)
{
    unsigned long long copies, batches;

    set_up();
    pieces_round_trip(&copies, &batches);
    T_EQ(copies, 0);
    T_CHECK(batches >= 2 && batches < 10);
    tear_down();
}

static void pieces_go_one_by_one_without_batches(void)
{
    unsigned long long copies, batches;

    set_up();
    T_EQ(fake.fail("cuMemcpyBatchAsync", 1, -1, VVI_CU_NOT_SUPPORTED), 0);
    pieces_round_trip(&copies, &batches);
    T_EQ(copies, 2 * (300 + 4)); /* four borders inside pieces */
    fake.heal();
    tear_down();
}

/* The driver accepts no batches on the default stream. */
static void the_default_stream_takes_pieces(void)
{
    enum { N = 20 };
    struct vv_stream *own;
    struct vv_copy_seg segs[N];
    unsigned long long batches;
    char *h = host_new(MIB), *p;

    set_up();
    own = s;
    T_OK(vv_device_stream_adopt(dev, NULL, &s));
    T_OK(vv_device_host_register(dev, h, MIB));
    p = dev_new(MIB);
    fill(h, MIB, 1);
    for (size_t i = 0; i < N; i++)
        segs[i] = (struct vv_copy_seg){p + i * 4096, h + i * 8192, 4096};
    batches = fake.calls("cuMemcpyBatchAsync");
    T_OK(vv_device_copy_async(dev, s, segs, N));
    finish();
    T_EQ(fake.calls("cuMemcpyBatchAsync"), batches);
    for (size_t i = 0; i < N; i++)
        T_CHECK(memcmp(fake.map(p + i * 4096), h + i * 8192, 4096) == 0);
    vv_device_stream_free(dev, s);
    vv_device_stream_free(dev, own);
    tear_down();
    T_EQ(munmap(h, MIB), 0);
}

/* With and without our kernel, and above the limits of one launch or batch. */
static void scattered_copies_within_the_device(bool kernels)
{
    enum { N = 2000, PIECE = 1000 };
    struct vv_copy_seg *segs = calloc(N, sizeof(*segs));
    char *a, *b;

    T_CHECK(segs);
    T_EQ(fake.set("kernels", kernels), 0);
    set_up();
    a = dev_new(N * PIECE);
    b = dev_new(N * PIECE);
    fill(fake.map(a), N * PIECE, 9);
    for (size_t i = 0; i < N; i++)
        segs[i] = (struct vv_copy_seg){b + (N - 1 - i) * PIECE, a + i * PIECE, PIECE};
    T_OK(vv_device_copy_async(dev, s, segs, N));
    finish();
    for (size_t i = 0; i < N; i++)
        T_CHECK(memcmp((char *)fake.map(b) + (N - 1 - i) * PIECE, (char *)fake.map(a) + i * PIECE,
                       PIECE) == 0);
    tear_down();
    T_EQ(fake.set("kernels", 1), 0);
    free(segs);
}

static void scattered_copies_by_kernel(void)
{
    scattered_copies_within_the_device(true);
}

static void scattered_copies_without_kernels(void)
{
    scattered_copies_within_the_device(false);
}

/* Two segments within the device and a third that begins or ends elsewhere, is empty, or has to be refused. Two
 * allocations, so that both sides change from one to the other. */
static void segments_unlike_the_first(void)
{
    enum { PART = 10000 };
    char *h = host_new(MIB), *a, *b;

    set_up();
    T_OK(vv_device_host_register(dev, h, MIB));
    a = dev_new(3 * PART);
    b = dev_new(3 * PART);
    struct {
        struct vv_copy_seg third;
        int rc;
    } cases[] = {
        {{b + 2 * PART, a + 2 * PART, PART}, 0},
        {{b + 2 * PART, h, PART}, 0},
        {{h, a + 2 * PART, PART}, 0},
        {{b + 2 * PART, a + 2 * PART, 0}, 0},
        {{NULL, NULL, 0}, 0},
        {{b + 2 * PART + 1, a, PART}, -EFAULT},
        {{b, a + 2 * PART + 1, PART}, -EFAULT},
        {{b + 2 * PART, a, SIZE_MAX}, -EFAULT},
        {{b + 2 * PART, NULL, PART}, -EINVAL},
        {{NULL, a + 2 * PART, PART}, -EINVAL},
    };
    /* Once behind a segment in the same two allocations, which are then known, and once behind one in the other
     * direction. */
    for (size_t i = 0; i < 2 * VV_ARRAY_SIZE(cases); i++) {
        const struct vv_copy_seg *third = &cases[i / 2].third;
        struct vv_copy_seg back = {a, b + PART, PART}, on = {b, a + PART, PART};
        struct vv_copy_seg segs[] = {i % 2 ? back : on, i % 2 ? on : back, *third};
        char *to = third->dst == h ? h : (char *)fake.map(b) + 2 * PART;
        const char *from = third->src == h ? h : (char *)fake.map(a) + 2 * PART;

        fill(fake.map(a), 3 * PART, 1);
        fill(fake.map(b), 3 * PART, 2);
        fill(h, PART, 3);
        T_ERR(vv_device_copy_async(dev, s, segs, VV_ARRAY_SIZE(segs)), cases[i / 2].rc);
        finish();
        bool copied = cases[i / 2].rc == 0;
        T_EQ(memcmp(fake.map(b), (char *)fake.map(a) + PART, PART) == 0, copied);
        T_EQ(memcmp(fake.map(a), (char *)fake.map(b) + PART, PART) == 0, copied);
        T_EQ(memcmp(to, from, PART) == 0, copied && third->bytes > 0);
    }
    tear_down();
    T_EQ(munmap(h, MIB), 0);
}

/* A refused piece is an error, even after others were submitted. */
static void failures_of_copies_are_returned(void)
{
    char *h = host_new(MIB), *p;
    struct vv_copy_seg segs[2];
    const char *name;

    set_up();
    p = dev_new(MIB);
    T_OK(vv_device_host_register(dev, h, MIB));
    segs[0] = (struct vv_copy_seg){p, h, 100};
    segs[1] = (struct vv_copy_seg){p + 200, h + 300, 100};
    T_EQ(fake.fail("cuMemcpyBatchAsync", 1, 1, VVI_CU_OUT_OF_MEMORY), 0);
    T_ERR(vv_device_copy_async(dev, s, segs, 2), -ENOMEM);
    T_EQ(vv_device_last_code(dev, &name), VVI_CU_OUT_OF_MEMORY);
    T_STREQ(name, "CUDA_ERROR_OUT_OF_MEMORY");
    /* Errors of our own checks have no code, not even the previous one. */
    T_ERR(vv_device_copy_async(dev, s, &(struct vv_copy_seg){p + 1, h, MIB}, 1), -EFAULT);
    T_EQ(vv_device_last_code(dev, &name), 0);
    T_STREQ(name, "");
    T_EQ(fake.fail("cuMemcpyAsync", 1, 1, 12345), 0);
    T_ERR(vv_device_copy_async(dev, s, segs, 1), -EIO);
    T_EQ(vv_device_last_code(dev, &name), 12345);
    T_OK(vv_device_copy_async(dev, s, segs, 2));
    finish();
    tear_down();
    T_EQ(munmap(h, MIB), 0);
}

/* And no piece is running then: the caller may free the memory at once. */
static void nothing_runs_after_a_failure(void)
{
    enum { N = 300, PIECE = 1000 };
    struct vv_copy_seg segs[N];
    char *h = host_new(MIB), *p;

    T_EQ(fake.set("latency_ns", 30 * 1000 * 1000), 0);
    set_up();
    p = dev_new(MIB);
    T_OK(vv_device_host_register(dev, h, MIB));
    for (size_t i = 0; i < N; i++)
        segs[i] = (struct vv_copy_seg){p + i * 2 * PIECE, h + i * PIECE, PIECE};
    T_EQ(fake.fail("cuMemcpyBatchAsync", 2, 1, VVI_CU_OUT_OF_MEMORY), 0);
    T_ERR(vv_device_copy_async(dev, s, segs, N), -ENOMEM);
    T_EQ(fake.live("pending"), 0);
    /* A batch, and a copy of another kind behind it. */
    segs[1] = (struct vv_copy_seg){h, p, 10};
    T_EQ(fake.fail("cuMemcpyAsync", 2, 1, VVI_CU_OUT_OF_MEMORY), 0);
    T_ERR(vv_device_copy_async(dev, s, segs, 2), -ENOMEM);
    T_EQ(fake.live("pending"), 0);
    T_EQ(fake.set("latency_ns", 0), 0);
    tear_down();
    T_EQ(munmap(h, MIB), 0);
}

/* Two launches of our kernel; the second is refused. */
static void no_kernel_runs_after_a_failure(void)
{
    enum { N = 2000, PIECE = 100 };
    static struct vv_copy_seg segs[N];
    char *h, *p;

    if (!vvi_cuda_kernels_built())
        return;
    h = host_new(MIB);
    T_EQ(fake.set("latency_ns", 30 * 1000 * 1000), 0);
    set_up();
    p = dev_new(MIB);
    for (size_t i = 0; i < N; i++)
        segs[i] = (struct vv_copy_seg){p + i * 2 * PIECE, p + (i * 2 + 1) * PIECE, PIECE};
    T_EQ(fake.fail("cuLaunchKernel", 2, 1, VVI_CU_OUT_OF_MEMORY), 0);
    T_ERR(vv_device_copy_async(dev, s, segs, N), -ENOMEM);
    T_EQ(fake.live("pending"), 0);
    /* A launch that was accepted, and a copy over the link behind it that is refused. */
    T_OK(vv_device_host_register(dev, h, MIB));
    segs[0] = (struct vv_copy_seg){p, p + MIB / 2, 4096};
    segs[1] = (struct vv_copy_seg){h, p, 4096};
    T_EQ(fake.fail("cuMemcpyAsync", 1, 1, VVI_CU_OUT_OF_MEMORY), 0);
    T_ERR(vv_device_copy_async(dev, s, segs, 2), -ENOMEM);
    T_EQ(fake.live("pending"), 0);
    T_EQ(fake.set("latency_ns", 0), 0);
    tear_down();
    T_EQ(munmap(h, MIB), 0);
}

/* ---- memory of the application ---- */

static void foreign_memory_has_a_kind(void)
{
    CUdeviceptr there = 0, managed = 0;
    char *pinned = host_new(MIB);
    enum vv_mem_kind kind;
    void *at = NULL;
    CUcontext ctx;
    size_t left;

    set_up();
    T_EQ(app.cuDevicePrimaryCtxRetain(&ctx, 0), 0);
    T_EQ(app.cuCtxPushCurrent(ctx), 0);
    T_EQ(app.cuMemAlloc(&there, 4 * MIB), 0);
    T_EQ(app.cuMemHostRegister(pinned, MIB, 0), 0);
    T_EQ(app.cuMemAllocManaged(&managed, MIB, VVI_CU_MEM_ATTACH_GLOBAL), 0);
    T_OK(vv_device_ptr_kind(dev, (char *)there + MIB, &kind, &left));
    T_EQ(kind, VV_MEM_DEVICE);
    T_EQ(left, 3 * MIB);
    T_OK(vv_device_ptr_kind(dev, pinned + 1, &kind, &left));
    T_EQ(kind, VV_MEM_HOST);
    T_EQ(left, MIB - 1);
    T_OK(vv_device_host_address(dev, pinned + 1, &at));
    T_CHECK(at == pinned + 1);
    T_ERR(vv_device_host_address(dev, (char *)there, &at), -EINVAL);
    T_OK(vv_device_ptr_kind(dev, (char *)managed, &kind, &left));
    T_EQ(kind, VV_MEM_DEVICE);
    T_EQ(left, MIB);
    T_OK(vv_device_copy_async(dev, s, &(struct vv_copy_seg){(void *)there, pinned, MIB}, 1));
    finish();
    T_EQ(app.cuMemFree(there), 0);
    T_EQ(app.cuMemFree(managed), 0);
    T_EQ(app.cuMemHostUnregister(pinned), 0);
    T_EQ(app.cuCtxPopCurrent(&ctx), 0);
    T_EQ(app.cuDevicePrimaryCtxRelease(0), 0);
    tear_down();
    T_EQ(munmap(pinned, MIB), 0);
}

static void memory_of_others_is_refused(void)
{
    CUdeviceptr elsewhere = 0, apart = 0;
    CUcontext other, own, popped;
    enum vv_mem_kind kind;
    const char *name;
    void *p, *native;
    struct vv_stream *adopted;
    size_t left;

    set_up();
    p = dev_new(4096);
    T_EQ(app.cuDevicePrimaryCtxRetain(&other, 1), 0);
    T_EQ(app.cuCtxPushCurrent(other), 0);
    T_EQ(app.cuMemAlloc(&elsewhere, 4096), 0);
    T_EQ(app.cuStreamCreate((CUstream *)&native, VVI_CU_STREAM_NON_BLOCKING), 0);
    T_ERR(vv_device_ptr_kind(dev, (void *)elsewhere, &kind, &left), -EXDEV);
    T_EQ(vv_device_last_code(dev, &name), 0);
    T_ERR(vv_device_copy_async(dev, s, &(struct vv_copy_seg){p, (void *)elsewhere, 10}, 1), -EXDEV);
    T_ERR(vv_device_stream_adopt(dev, native, &adopted), -EXDEV);
    T_EQ(app.cuStreamDestroy(native), 0);
    T_EQ(app.cuMemFree(elsewhere), 0);
    T_EQ(app.cuCtxPopCurrent(&popped), 0);
    T_CHECK(popped == other);
    T_EQ(app.cuDevicePrimaryCtxRelease(1), 0);

    /* The same device, but not its primary context. */
    T_EQ(more.cuCtxCreate(&own, 0, 0), 0);
    T_EQ(app.cuMemAlloc(&apart, 4096), 0);
    T_ERR(vv_device_ptr_kind(dev, (void *)apart, &kind, &left), -EXDEV);
    T_EQ(app.cuCtxGetCurrent(&popped), 0);
    T_CHECK(popped == own);
    T_EQ(more.cuCtxDestroy(own), 0);
    tear_down();
}

/* ---- order ---- */

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open;
};

static struct gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};

static void gate_run(void *arg)
{
    struct gate *g = arg;

    pthread_mutex_lock(&g->lock);
    while (!g->open)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static void gate_set(bool open)
{
    pthread_mutex_lock(&gate.lock);
    gate.open = open;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

/* Our stream runs ahead of the application's kernel, until after_app. */
static void after_app_waits_for_the_default_stream(void)
{
    CUcontext ctx;
    char *h = host_new(MIB);
    void *p;

    set_up();
    p = dev_new(MIB);
    T_OK(vv_device_host_register(dev, h, MIB));
    T_EQ(app.cuDevicePrimaryCtxRetain(&ctx, 0), 0);
    T_EQ(app.cuCtxPushCurrent(ctx), 0);
    gate_set(false);
    T_EQ(more.cuLaunchHostFunc(NULL, gate_run, &gate), 0);
    T_OK(vv_device_copy_async(dev, s, &(struct vv_copy_seg){p, h, MIB}, 1));
    finish();
    for (int i = 0; i < 2; i++)
        T_OK(vv_device_after_app(dev, s));
    T_OK(vv_device_copy_async(dev, s, &(struct vv_copy_seg){p, h, MIB}, 1));
    T_OK(vv_device_event_record(dev, ev, s));
    T_ERR(vv_device_event_query(dev, ev), -EBUSY);
    T_ERR(vv_device_event_wait(dev, ev, 0), -ETIMEDOUT);
    /* Far longer than the copy takes, so that one that does not wait would have ended. */
    T_ERR(vv_device_event_wait(dev, ev, 1000000000), -ETIMEDOUT);
    gate_set(true);
    T_OK(vv_device_event_wait(dev, ev, -1));
    T_EQ(app.cuCtxPopCurrent(&ctx), 0);
    T_EQ(app.cuDevicePrimaryCtxRelease(0), 0);
    tear_down();
    T_EQ(munmap(h, MIB), 0);
}

/* A stream that is being captured is refused, and queries of our events do not spoil the capture. */
static void captures_are_left_alone(void)
{
    struct vv_stream *adopted;
    CUstream native;
    CUcontext ctx;
    void *graph = NULL;

    set_up();
    T_EQ(app.cuDevicePrimaryCtxRetain(&ctx, 0), 0);
    T_EQ(app.cuCtxPushCurrent(ctx), 0);
    T_EQ(app.cuStreamCreate(&native, VVI_CU_STREAM_NON_BLOCKING), 0);
    T_OK(vv_device_stream_adopt(dev, native, &adopted));
    T_OK(vv_device_event_record(dev, ev, adopted));
    T_OK(vv_device_event_wait(dev, ev, -1));
    vv_device_stream_free(dev, adopted);
    T_EQ(more.cuStreamBeginCapture(native, 0), 0); /* global: the strictest mode */
    T_ERR(vv_device_stream_adopt(dev, native, &adopted), -EBUSY);
    T_OK(vv_device_event_record(dev, ev, s));
    T_OK(vv_device_event_wait(dev, ev, -1));
    T_OK(vv_device_mem_free(dev, dev_new(4096)));
    T_EQ(more.cuStreamEndCapture(native, &graph), 0);
    T_OK(vv_device_stream_adopt(dev, native, &adopted));
    vv_device_stream_free(dev, adopted);
    T_EQ(app.cuStreamDestroy(native), 0); /* only our adoption was freed */

    /* The default stream waits for blocking ones, so a capture of one forbids work on it. */
    T_EQ(app.cuStreamCreate(&native, 0), 0);
    T_EQ(more.cuStreamBeginCapture(native, 0), 0);
    T_ERR(vv_device_after_app(dev, s), -EBUSY);
    T_ERR(vv_device_stream_adopt(dev, NULL, &adopted), -EBUSY);
    T_EQ(more.cuStreamEndCapture(native, &graph), 0);
    T_OK(vv_device_after_app(dev, s));
    T_EQ(app.cuStreamDestroy(native), 0);
    T_EQ(app.cuCtxPopCurrent(&ctx), 0);
    T_EQ(app.cuDevicePrimaryCtxRelease(0), 0);
    tear_down();
}

/* After any call, successful or not. */
static void the_callers_context_is_left_as_found(void)
{
    CUcontext own, now;
    enum vv_mem_kind kind;
    size_t a, b;
    void *p;

    set_up();
    for (int have = 0; have < 2; have++) {
        own = NULL;
        if (have)
            T_EQ(more.cuCtxCreate(&own, 0, 0), 0);
        p = dev_new(MIB);
        T_OK(vv_device_mem_info(dev, &a, &b));
        T_OK(vv_device_ptr_kind(dev, p, &kind, &a));
        T_ERR(vv_device_copy_async(dev, s, &(struct vv_copy_seg){p, NULL, 9}, 1), -EINVAL);
        T_OK(vv_device_copy_async(dev, s, &(struct vv_copy_seg){p, &a, 8}, 1));
        T_OK(vv_device_after_app(dev, s));
        finish();
        T_OK(vv_device_mem_free(dev, p));
        T_ERR(vv_device_mem_free(dev, p), -EINVAL);
        T_EQ(fake.fail("cuMemAlloc", 1, 1, VVI_CU_OUT_OF_MEMORY), 0);
        T_ERR(vv_device_mem_alloc(dev, 64, &p), -ENOMEM);
        T_EQ(app.cuCtxGetCurrent(&now), 0);
        T_CHECK(now == own);
        if (have)
            T_EQ(more.cuCtxDestroy(own), 0);
    }
    tear_down();
}

/* ---- loss ---- */

/* Every call fails, nothing crashes, and the driver is not called. */
static void everything_is_refused(void)
{
    unsigned long long calls = fake.calls("*");
    char *h = host_new(MIB);
    enum vv_mem_kind kind;
    struct vv_device_info info;
    struct vv_stream *other;
    struct vv_event *more_ev;
    const char *name;
    size_t a, b;
    void *p;

    T_ERR(vv_device_mem_alloc(dev, 64, &p), -ENODEV);
    T_ERR(vv_device_mem_free(dev, h), -ENODEV);
    T_ERR(vv_device_mem_info(dev, &a, &b), -ENODEV);
    T_ERR(vv_device_host_register(dev, h, MIB), -ENODEV);
    T_ERR(vv_device_host_unregister(dev, h), -ENODEV);
    T_ERR(vv_device_ptr_kind(dev, h, &kind, &a), -ENODEV);
    T_ERR(vv_device_stream_new(dev, &other), -ENODEV);
    T_ERR(vv_device_stream_adopt(dev, NULL, &other), -ENODEV);
    T_ERR(vv_device_copy_async(dev, s, &(struct vv_copy_seg){h, h, 1}, 1), -ENODEV);
    T_ERR(vv_device_event_new(dev, &more_ev), -ENODEV);
    T_ERR(vv_device_event_record(dev, ev, s), -ENODEV);
    T_ERR(vv_device_event_query(dev, ev), -ENODEV);
    T_ERR(vv_device_event_wait(dev, ev, -1), -ENODEV);
    T_ERR(vv_device_stream_wait_event(dev, s, ev), -ENODEV);
    T_ERR(vv_device_after_app(dev, s), -ENODEV);
    T_ERR(vv_device_launch(dev, s, &(struct vv_kernel){.kind = VV_KERNEL_SPIN}), -ENODEV);
    T_CHECK(vv_device_last_code(dev, &name) != 0 && name[0]);
    vv_device_describe(dev, &info);
    T_CHECK(info.name[0]);
    T_EQ(fake.calls("*"), calls);
    T_EQ(munmap(h, MIB), 0);
}

static void kernels_that_fail_end_the_device(void)
{
    char *h = host_new(MIB);
    const char *name;
    void *p;

    set_up();
    p = dev_new(MIB);
    T_OK(vv_device_host_register(dev, h, MIB));
    T_EQ(fake.fail_async(1, 1, VVI_CU_ILLEGAL_ADDRESS), 0);
    T_OK(vv_device_copy_async(dev, s, &(struct vv_copy_seg){p, h, MIB}, 1));
    /* The record may report the loss already. */
    if (vv_device_event_record(dev, ev, s) == 0)
        T_ERR(vv_device_event_wait(dev, ev, -1), -ENODEV);
    T_EQ(vv_device_last_code(dev, &name), VVI_CU_ILLEGAL_ADDRESS);
    everything_is_refused();
    fake.heal();
    tear_down();
    T_EQ(munmap(h, MIB), 0);
}

static void a_reset_is_found_out(bool used_again)
{
    CUcontext ctx = NULL;
    void *p;

    set_up();
    (void)dev_new(MIB);
    T_EQ(more.cuDevicePrimaryCtxReset(0), 0);
    if (used_again) {
        T_EQ(app.cuDevicePrimaryCtxRetain(&ctx, 0), 0);
        T_EQ(app.cuCtxPushCurrent(ctx), 0);
    }
    T_ERR(vv_device_event_record(dev, ev, s), -ENODEV);
    T_ERR(vv_device_mem_alloc(dev, 64, &p), -ENODEV);
    everything_is_refused();
    vv_device_stream_free(dev, s);
    vv_device_event_free(dev, ev);
    vv_device_close(dev);
    if (used_again) {
        T_EQ(fake.live("contexts"), 1); /* the application's: it must not be released here */
        T_EQ(app.cuCtxPopCurrent(&ctx), 0);
        T_EQ(app.cuDevicePrimaryCtxRelease(0), 0);
    }
    nothing_is_left();
}

static void resets_are_found_out(void)
{
    a_reset_is_found_out(false);
    a_reset_is_found_out(true);
}

/* Closed before the loss was noticed. */
static void closing_after_a_reset_is_safe(void)
{
    set_up();
    (void)dev_new(MIB);
    T_EQ(more.cuDevicePrimaryCtxReset(0), 0);
    vv_device_close(dev);
    nothing_is_left();
}

static void closing_after_the_driver_has_gone_is_safe(void)
{
    set_up();
    (void)dev_new(MIB);
    fake.lose(VVI_CU_DEINITIALIZED);
    vv_device_close(dev);
    fake.lose(0);
}

static void children_get_errors(void)
{
    int status = 0;
    pid_t pid;

    set_up();
    pid = fork();
    T_CHECK(pid >= 0);
    if (pid == 0) {
        void *p;
        unsigned long long calls = fake.calls("*");
        bool ok = vv_device_mem_alloc(dev, 64, &p) == -ENODEV &&
                  vv_device_event_wait(dev, ev, -1) == -ENODEV;

        vv_device_close(dev);
        _exit(ok && fake.calls("*") == calls ? 0 : 1);
    }
    T_EQ(waitpid(pid, &status, 0), pid);
    T_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    T_OK(vv_device_mem_free(dev, dev_new(64)));
    tear_down();
}

/* ---- threads ---- */

struct job {
    unsigned seed;
    pthread_t thread;
};

static void *copies_main(void *arg)
{
    const struct job *job = arg;
    char *h = host_new(MIB), *back = host_new(MIB);
    struct vv_stream *own;
    struct vv_event *end;
    void *p;

    T_OK(vv_device_stream_new(dev, &own));
    T_OK(vv_device_event_new(dev, &end));
    for (int round = 0; round < 10; round++) {
        T_OK(vv_device_mem_alloc(dev, MIB, &p));
        T_OK(vv_device_host_register(dev, h, MIB));
        T_OK(vv_device_host_register(dev, back, MIB));
        fill(h, MIB, job->seed + (unsigned)round);
        T_OK(vv_device_after_app(dev, own));
        T_OK(vv_device_copy_async(dev, own, &(struct vv_copy_seg){p, h, MIB}, 1));
        T_OK(vv_device_copy_async(dev, own, &(struct vv_copy_seg){back, p, MIB}, 1));
        T_OK(vv_device_event_record(dev, end, own));
        T_OK(vv_device_event_wait(dev, end, -1));
        T_CHECK(memcmp(h, back, MIB) == 0);
        T_OK(vv_device_host_unregister(dev, h));
        T_OK(vv_device_host_unregister(dev, back));
        T_OK(vv_device_mem_free(dev, p));
    }
    vv_device_event_free(dev, end);
    vv_device_stream_free(dev, own);
    T_EQ(munmap(h, MIB), 0);
    T_EQ(munmap(back, MIB), 0);
    return NULL;
}

static void many_threads_at_once(void)
{
    struct job jobs[4];

    set_up();
    for (unsigned i = 0; i < VV_ARRAY_SIZE(jobs); i++) {
        jobs[i].seed = i * 100;
        T_EQ(pthread_create(&jobs[i].thread, NULL, copies_main, &jobs[i]), 0);
    }
    for (unsigned i = 0; i < VV_ARRAY_SIZE(jobs); i++)
        T_EQ(pthread_join(jobs[i].thread, NULL), 0);
    tear_down();
}

/* One thread finds the device lost; the others must not wait for ever. */
static void *waits_main(void *arg)
{
    (void)arg;
    T_ERR(vv_device_event_wait(dev, ev, -1), -ENODEV);
    return NULL;
}

static void waiting_ends_with_the_device(void)
{
    CUcontext ctx;
    pthread_t thread;

    set_up();
    T_EQ(app.cuDevicePrimaryCtxRetain(&ctx, 0), 0);
    T_EQ(app.cuCtxPushCurrent(ctx), 0);
    gate_set(false);
    T_EQ(more.cuLaunchHostFunc(NULL, gate_run, &gate), 0);
    T_OK(vv_device_after_app(dev, s));
    T_OK(vv_device_event_record(dev, ev, s));
    T_EQ(pthread_create(&thread, NULL, waits_main, NULL), 0);
    T_EQ(fake.fail("cuMemGetInfo", 1, 1, VVI_CU_ECC_UNCORRECTABLE), 0);
    T_ERR(vv_device_mem_info(dev, &(size_t){0}, &(size_t){0}), -ENODEV);
    T_EQ(pthread_join(thread, NULL), 0);
    everything_is_refused();
    gate_set(true);
    vv_device_close(dev);
    T_EQ(app.cuCtxPopCurrent(&ctx), 0);
    T_EQ(more.cuDevicePrimaryCtxReset(0), 0);
    nothing_is_left();
}

static void load(void)
{
    const struct {
        const char *symbol;
        void *member;
    } wanted[] = {
        {"cuDevicePrimaryCtxReset_v2", &more.cuDevicePrimaryCtxReset},
        {"cuCtxCreate_v2", &more.cuCtxCreate},
        {"cuCtxDestroy_v2", &more.cuCtxDestroy},
        {"cuStreamBeginCapture_v2", &more.cuStreamBeginCapture},
        {"cuStreamEndCapture", &more.cuStreamEndCapture},
        {"cuLaunchHostFunc", &more.cuLaunchHostFunc},
    };
    unsigned int code;
    void *handle;
    char err[256];

    path = t_fake_path(false);
    T_CHECK(t_fake_load(path, &handle, &fake));
    T_EQ(fake.set("devices", 2), 0);
    T_OK(vvi_cuda_driver_load(path, err, sizeof(err), &code, &app));
    for (size_t i = 0; i < VV_ARRAY_SIZE(wanted); i++) {
        *(void **)wanted[i].member = dlsym(handle, wanted[i].symbol);
        T_CHECK(*(void **)wanted[i].member);
    }
}

int main(void)
{
    load();
    T_RUN(one_segment_is_one_copy);
    T_RUN(one_segment_within_the_device);
    T_RUN(pieces_go_in_batches);
    T_RUN(pieces_go_one_by_one_without_batches);
    T_RUN(the_default_stream_takes_pieces);
    T_RUN(scattered_copies_by_kernel);
    T_RUN(scattered_copies_without_kernels);
    T_RUN(segments_unlike_the_first);
    T_RUN(failures_of_copies_are_returned);
    T_RUN(nothing_runs_after_a_failure);
    T_RUN(no_kernel_runs_after_a_failure);
    T_RUN(foreign_memory_has_a_kind);
    T_RUN(memory_of_others_is_refused);
    T_RUN(after_app_waits_for_the_default_stream);
    T_RUN(captures_are_left_alone);
    T_RUN(the_callers_context_is_left_as_found);
    T_RUN(kernels_that_fail_end_the_device);
    T_RUN(resets_are_found_out);
    T_RUN(closing_after_a_reset_is_safe);
    T_RUN(closing_after_the_driver_has_gone_is_safe);
    T_RUN(children_get_errors);
    T_RUN(many_threads_at_once);
    T_RUN(waiting_ends_with_the_device);
    return t_done();
}
