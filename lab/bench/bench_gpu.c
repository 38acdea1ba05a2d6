/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of one call if the application's data is on a device, and how fast the link is kept
 * busy: the figures that a shot as a whole does not show one by one.
 *
 *     bench_gpu [--device cuda|host] [--size BYTES] [--device-cache BYTES] [--host-cache BYTES]
 *               [--open-cache BYTES] [--rounds N] [--only hit|calls|scattered|link|open]
 *
 * Every buffer is filled by a kernel before it is written, filled with something else before it is
 * restored, and checked by a kernel afterwards, all outside of the times. The exception are the hits while the
 * host cache is being pinned: they are not checked, but one more restore after the last is. A row that misses
 * its bar ends in `!`. Bars are those of an H200 and hold for the default sizes only: ignore them on other
 * GPUs. The emulated device has none. Exit status: 1 a row missed its bar, 77 there is no GPU.
 */
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <varve/ckpt.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "ckpt/ckpt_hooks.h"
#include "cli/common/options.h"
#include "cli/measure/samples.h"
#include "device/device.h"

#define SEED    7
#define ROUNDS  64
#define WAIT_NS (INT64_C(20) * 1000000000)
#define RUNS    64
#define GAP_NS  (4 * VV_NS_PER_MS)
#define FAR_NS  (10 * VV_NS_PER_MS)
#define BUFFERS 2

#define WRITER_KEPT 64

static struct gpu_opts {
    int device;
    uint64_t size, device_cache, host_cache, open_cache;
    uint32_t rounds;
    const char *only; /* NULL: all parts */
} opt = {VARVE_DEVICE_CUDA,
         UINT64_C(128) << 20,
         UINT64_C(4) << 30,
         UINT64_C(48) << 30,
         UINT64_C(32) << 30,
         ROUNDS,
         NULL};

/* The context under test, and its device. */
static struct vv_device *dev;
static struct varve_ctx *ctx;
static struct varve_history *hist;
static _Thread_local struct vv_stream *stream;
static _Thread_local struct vv_event *event;
static char *buf[BUFFERS];
static uint64_t *bad;
static uint64_t host_bytes; /* the context's host cache */
static int missed;

static void check(int rc, const char *what)
{
    if (rc == 0)
        return;
    struct varve_error e = {.error_size = sizeof(e)};
    const char *text = "";
    if (varve_last_error(ctx, &e) == 0)
        text = e.text;
    fprintf(stderr, "%s: %s (%s)\n", what, varve_strerror(rc), text);
    exit(1);
}

static struct vv_device *take_device(void *arg, struct vv_device *inner)
{
    (void)arg;
    dev = inner;
    return inner;
}

static double us_since(uint64_t start_ns)
{
    return (double)(vv_now_ns() - start_ns) / 1e3;
}

static double quantile(double *v, size_t n, double q)
{
    samples_sort(v, n);
    return v[(size_t)(q * (double)(n - 1))];
}

static void head_line(void);

/* bar > 0: at least; bar < 0: at most. */
static void row(const char *what, double value, const char *unit, double bar)
{
    if (opt.device != VARVE_DEVICE_CUDA)
        bar = 0;
    bool miss = (bar > 0 && value < bar) || (bar < 0 && value > -bar);
    char text[32] = "";
    if (bar > 0)
        snprintf(text, sizeof(text), ">= %.0f", bar);
    if (bar < 0)
        snprintf(text, sizeof(text), "<= %.0f", -bar);
    head_line();
    printf("| %-66s | %10.1f %-4s | %9s |%s\n", what, value, unit, text, miss ? " !" : "");
    fflush(stdout);
    missed += miss;
}

/* ---- the device ---- */

static void wait_for(struct vv_stream *s)
{
    check(vv_device_event_record(dev, event, s), "event");
    check(vv_device_event_wait(dev, event, WAIT_NS), "waiting for the device");
}

static void wait_stream(void)
{
    wait_for(stream);
}

static void fill(unsigned b, uint64_t version, uint64_t bytes)
{
    struct vv_kernel k = {
        .kind = VV_KERNEL_FILL, .ptr = buf[b], .bytes = bytes, .seed = SEED, .version = version};
    check(vv_device_launch(dev, stream, &k), "fill");
    wait_stream();
}

/* Bytes from before a restore must not pass for restored ones. */
static void wipe(unsigned b, uint64_t version, uint64_t bytes)
{
    fill(b, ~version, bytes);
}

/* Counts the wrong bytes on the device. */
static void inspect(unsigned b, uint64_t version, uint64_t bytes)
{
    struct vv_kernel k = {.kind = VV_KERNEL_VERIFY,
                          .ptr = buf[b],
                          .bytes = bytes,
                          .seed = SEED,
                          .version = version,
                          .bad = bad};
    check(vv_device_launch(dev, stream, &k), "verify");
    wait_stream();
}

/* Any wrong byte so far ends the run. */
static void verdict(uint64_t version)
{
    uint64_t count = 0;
    check(varve_device_copy(ctx, &count, bad, sizeof(count)), "verify");
    if (count == 0)
        return;
    fprintf(stderr, "version %" PRIu64 " or one before: %" PRIu64 " wrong bytes\n", version, count);
    exit(1);
}

static void verify(unsigned b, uint64_t version, uint64_t bytes)
{
    inspect(b, version, bytes);
    verdict(version);
}

/* Above the first row. */
static void head_line(void)
{
    static bool reported;
    struct vv_device_info info;
    if (reported)
        return;
    reported = true;
    vv_device_describe(dev, &info);
    printf("%s, objects of %" PRIu64 " MiB, device cache %" PRIu64 " MiB, host cache %" PRIu64
           " MiB\n\n",
           info.name, opt.size >> 20, opt.device_cache >> 20, opt.host_cache >> 20);
    printf("| %-66s | %15s | %9s |\n| --- | --- | --- |\n", "what", "measured", "bar");
}

static void open_context(uint64_t host_cache, int consume)
{
    struct varve_opts o;
    uint64_t zero = 0;
    check(varve_opts_init(&o, sizeof(o)), "options");
    o.device = opt.device;
    o.device_cache = opt.device_cache;
    o.host_cache = host_cache;
    o.local[0] = '\0';
    check(varve_open(&o, &ctx), "open");
    struct varve_history_opts ho;
    check(varve_history_opts_init(&ho, sizeof(ho)), "history options");
    ho.consume = consume;
    check(varve_history_open_with(ctx, "gpu", &ho, &hist), "history");
    check(vv_device_stream_new(dev, &stream), "stream");
    check(vv_device_event_new(dev, &event), "event");
    for (unsigned b = 0; b < BUFFERS; b++)
        check(varve_device_alloc(ctx, opt.size, (void **)&buf[b]), "device memory");
    check(varve_device_alloc(ctx, sizeof(*bad), (void **)&bad), "device memory");
    check(varve_device_copy(ctx, bad, &zero, sizeof(zero)), "device memory");
    check(varve_protect(hist, 0, buf[0], opt.size), "protect");
    host_bytes = host_cache;
}

static void close_context(void)
{
    for (unsigned b = 0; b < BUFFERS; b++)
        varve_device_free(ctx, buf[b]);
    varve_device_free(ctx, bad);
    vv_device_event_free(dev, event);
    vv_device_stream_free(dev, stream);
    check(varve_close(ctx), "close");
    ctx = NULL;
}

static struct varve_stats stats(void)
{
    struct varve_stats s = {.stats_size = sizeof(s)};
    check(varve_stats(ctx, &s), "stats");
    return s;
}

/* A rest that does not fill a page is never used. */
static bool host_is_ready(void)
{
    struct varve_stats s = stats();
    return s.host_ready_bytes >= vv_align_down(host_bytes, s.page_bytes);
}

/* Until no hop has moved anything for a while. */
static void settle(void)
{
    while (!host_is_ready())
        vv_sleep_until_ns(vv_now_ns() + VV_NS_PER_MS);
    uint64_t last = UINT64_MAX, sum;
    for (;;) {
        struct varve_stats s = stats();
        sum = 0;
        for (int i = 0; i < VARVE_HOPS; i++)
            sum += s.moved_bytes[i];
        if (sum == last)
            return;
        last = sum;
        vv_sleep_until_ns(vv_now_ns() + 20 * VV_NS_PER_MS);
    }
}

static double gbs(double us, uint64_t bytes)
{
    return (double)bytes / us / 1e3;
}

/* The time between two calls, in which an application waits for its kernels: without sleeping, as
 * CUDA programs do by default, because a processor that has slept is slow for a while. */
static void pause_ns(uint64_t ns)
{
    uint64_t until_ns = vv_now_ns() + ns;
    while (vv_now_ns() < until_ns)
        ;
}

static void gap(void)
{
    pause_ns(GAP_NS);
}

/* ---- the application's side of CUDA ---- */

static struct CUstream_st *app_stream;
static int (*memcpy_async)(uintptr_t dst, uintptr_t src, size_t bytes, void *stream);
static int (*stream_synchronize)(void *stream);

static void *driver_call(void *lib, const char *name)
{
    void *fn = dlsym(lib, name);
    if (!fn) {
        fprintf(stderr, "libcuda.so.1: no %s\n", name);
        exit(1);
    }
    return fn;
}

/* A context that is there before varve_open, as in any program that uses CUDA, and a stream. */
static void use_cuda(void)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW), *context = NULL;
    int device = 0;
    if (!lib) {
        fprintf(stderr, "bench_gpu: %s; --device host is the emulated device\n", dlerror());
        exit(77);
    }
    int (*init)(unsigned) = (int (*)(unsigned))driver_call(lib, "cuInit");
    int (*get)(int *, int) = (int (*)(int *, int))driver_call(lib, "cuDeviceGet");
    int (*retain)(void **, int) =
        (int (*)(void **, int))driver_call(lib, "cuDevicePrimaryCtxRetain");
    int (*set)(void *) = (int (*)(void *))driver_call(lib, "cuCtxSetCurrent");
    int (*create)(void **, unsigned) =
        (int (*)(void **, unsigned))driver_call(lib, "cuStreamCreate");
    memcpy_async = (int (*)(uintptr_t, uintptr_t, size_t, void *))driver_call(lib, "cuMemcpyAsync");
    stream_synchronize = (int (*)(void *))driver_call(lib, "cuStreamSynchronize");
    void *made = NULL;
    if (init(0) || get(&device, 0) || retain(&context, device) || set(context) ||
        create(&made, 1)) {
        fprintf(stderr, "bench_gpu: CUDA cannot be used; --device host is the emulated device\n");
        exit(77);
    }
    app_stream = made;
}

/* ---- a hit, compared with a bare copy ---- */

enum hit_op { HIT_CHECKPOINT, HIT_COPY_OUT, HIT_RESTORE, HIT_COPY_IN, HIT_OPS };

/* Copies an object as a program without the library would: one call of the driver and a wait. The
 * emulated device has no driver. */
static void bare_copy(char *dst, char *src)
{
    struct vv_copy_seg seg = {dst, src, opt.size};
    if (opt.device != VARVE_DEVICE_CUDA) {
        check(vv_device_copy_async(dev, stream, &seg, 1), "copy");
        wait_stream();
        return;
    }
    int code = memcpy_async((uintptr_t)dst, (uintptr_t)src, opt.size, app_stream);
    if (code == 0)
        code = stream_synchronize(app_stream);
    if (code) {
        fprintf(stderr, "bare copy: CUDA error %d\n", code);
        exit(1);
    }
}

/* One operation, `apart_ns` after the last call of the driver, and its time in us. A kernel has just
 * written the application's buffer in all four cases, and another checks every byte that arrived. */
static double hit_once(enum hit_op op, uint64_t version, uint64_t apart_ns)
{
    bool out = op == HIT_CHECKPOINT || op == HIT_COPY_OUT;
    if (out)
        fill(0, version, opt.size);
    else
        wipe(0, version, opt.size);
    pause_ns(apart_ns);
    uint64_t start = vv_now_ns();
    if (op == HIT_CHECKPOINT)
        check(varve_checkpoint(hist, version), "checkpoint");
    else if (op == HIT_RESTORE)
        check(varve_restore(hist, version), "restore");
    else
        bare_copy(buf[out ? 1 : 0], buf[out ? 0 : 1]);
    double us = us_since(start);
    if (op != HIT_CHECKPOINT) /* the restore checks that one */
        inspect(op == HIT_COPY_OUT ? 1 : 0, version, opt.size);
    return us;
}

/* Each of the four, in an order that changes from round to round, so that neither the library's call
 * nor the bare copy always comes first. */
static void hit_round(uint32_t round, uint64_t version, uint64_t apart_ns,
                      double times[HIT_OPS][ROUNDS])
{
    static const enum hit_op order[2][HIT_OPS] = {
        {HIT_CHECKPOINT, HIT_COPY_OUT, HIT_RESTORE, HIT_COPY_IN},
        {HIT_COPY_OUT, HIT_CHECKPOINT, HIT_COPY_IN, HIT_RESTORE}};
    for (int i = 0; i < HIT_OPS; i++) {
        enum hit_op op = order[round % 2][i];
        times[op][round] = hit_once(op, version, apart_ns);
    }
    verdict(version);
    check(varve_discard(hist, version), "discard");
}

static void hit_row(const char *what, const char *when, double us, double bar)
{
    char text[80];
    snprintf(text, sizeof(text), "%s, %s", what, when);
    row(text, us, "us", bar);
}

/* Medians, and by how much the library's call is longer: the goal is for the difference alone. */
static void hit_rows(const char *when, double times[HIT_OPS][ROUNDS], uint32_t n)
{
    double us[HIT_OPS];
    for (int i = 0; i < HIT_OPS; i++)
        us[i] = quantile(times[i], n, 0.5);
    hit_row("bare copy out of the buffer", when, us[HIT_COPY_OUT], 0);
    hit_row("checkpoint into the device cache", when, us[HIT_CHECKPOINT], 0);
    hit_row("  longer than the bare copy", when, us[HIT_CHECKPOINT] - us[HIT_COPY_OUT], -25);
    hit_row("bare copy into the buffer", when, us[HIT_COPY_IN], 0);
    hit_row("restore that hits the device cache", when, us[HIT_RESTORE], 0);
    hit_row("  longer than the bare copy", when, us[HIT_RESTORE] - us[HIT_COPY_IN], -25);
}

static void hits(void)
{
    static double close_by[HIT_OPS][ROUNDS], apart[HIT_OPS][ROUNDS];
    uint64_t version = 0;
    settle();
    struct varve_stats before = stats();
    for (uint32_t i = 0; i < opt.rounds; i++) {
        hit_round(i, version++, 0, close_by);
        hit_round(i, version++, FAR_NS, apart);
    }
    struct varve_stats after = stats();
    uint64_t moved = after.moved_bytes[VARVE_HOP_D2D] - before.moved_bytes[VARVE_HOP_D2D];
    if (after.restore_misses != before.restore_misses || moved != 2 * version * opt.size) {
        fprintf(stderr, "bench_gpu: a call did not hit the device cache\n");
        exit(1);
    }
    hit_rows("back to back", close_by, opt.rounds);
    hit_rows("10 ms apart", apart, opt.rounds);
}

/* ---- one call at a time ---- */

/* The plain copy that all calls are compared with: one after the other, or with time in between, in
 * which the processor forgets the driver. */
static double plain_copy(bool after_gap)
{
    double t[ROUNDS];
    struct vv_copy_seg seg = {buf[1], buf[0], opt.size};
    for (int i = 0; i < ROUNDS; i++) {
        if (after_gap)
            gap();
        uint64_t start = vv_now_ns();
        check(vv_device_copy_async(dev, stream, &seg, 1), "copy");
        wait_stream();
        t[i] = us_since(start);
    }
    return quantile(t, ROUNDS, 0.5);
}

static double contiguous_put, contiguous_get; /* us; 0: not measured */

static void single_calls(void)
{
    uint32_t n = (uint32_t)VV_MIN((uint64_t)opt.rounds, opt.device_cache / opt.size);
    double put[ROUNDS], get[ROUNDS];
    double copy = plain_copy(false);

    settle();

    row("device copy, synchronised each time", gbs(copy, opt.size), "GB/s", 0);
    row("the same, 4 ms after the last call of the driver", gbs(plain_copy(true), opt.size), "GB/s",
        0);
    for (uint32_t v = 0; v < n; v++) {
        fill(0, v, opt.size);
        uint64_t start = vv_now_ns();
        check(varve_checkpoint(hist, v), "checkpoint");
        put[v] = us_since(start);
        gap();
    }
    settle();
    for (uint32_t v = n; v-- > 0;) {
        wipe(0, v, opt.size);
        uint64_t start = vv_now_ns();
        check(varve_restore(hist, v), "restore");
        get[v] = us_since(start);
        verify(0, v, opt.size);
        gap();
    }
    double first_put = put[0], first_get = get[n - 1];
    double p = contiguous_put = quantile(put, n, 0.5);
    double g = contiguous_get = quantile(get, n, 0.5);
    row("checkpoint into the device cache, blocking call, median", gbs(p, opt.size), "GB/s", 0);
    row("  the same, first call", first_put, "us", 0);
    row("  the same, slowest call", put[n - 1], "us", 0);
    row("restore that hits the device cache, blocking call, median", gbs(g, opt.size), "GB/s", 0);
    row("  the same, first call", first_get, "us", 0);
    row("  the same, slowest call", get[n - 1], "us", 0);
}

/* The host's time in a call whose copy is ordered by the application's stream. */
static void stream_calls(void)
{
    uint32_t n = (uint32_t)VV_MIN((uint64_t)opt.rounds, opt.device_cache / opt.size / 2);
    double put[ROUNDS], get[ROUNDS];
    struct vv_stream *app;

    check(vv_device_stream_adopt(dev, app_stream, &app), "stream");
    for (uint32_t v = 0; v < n; v++) {
        fill(0, 500 + v, opt.size);
        uint64_t start = vv_now_ns();
        check(varve_checkpoint_on(hist, 500 + v, app_stream), "checkpoint_on");
        put[v] = us_since(start);
        check(varve_wait(hist, 500 + v, VARVE_LEVEL_CACHED, -1), "wait");
        gap();
    }
    settle();
    for (uint32_t v = n; v-- > 0;) {
        wipe(0, 500 + v, opt.size);
        uint64_t start = vv_now_ns();
        check(varve_restore_on(hist, 500 + v, app_stream), "restore_on");
        get[v] = us_since(start);
        gap();
        wait_for(app); /* the kernel that checks it is on another stream */
        verify(0, 500 + v, opt.size);
        check(varve_discard(hist, 500 + v), "discard");
    }
    vv_device_stream_free(dev, app);
    row("stream-ordered checkpoint, host time per call, median", quantile(put, n, 0.5), "us", -20);
    row("  the same, slowest call", put[n - 1], "us", 0);
    row("stream-ordered restore, host time per call, median", quantile(get, n, 0.5), "us", -20);
    row("  the same, slowest call", get[n - 1], "us", 0);
}

/* Free space in runs of a 64th of the object: small versions side by side, every other one gone. */
static void scattered(void)
{
    uint64_t part = opt.size / RUNS, v = 1000, n = opt.device_cache / part;
    double put[ROUNDS], get[ROUNDS];
    int rounds = 16;

    check(varve_protect(hist, 0, buf[0], part), "protect");
    for (uint64_t i = 0; i < n; i++)
        check(varve_checkpoint(hist, v + i), "checkpoint");
    settle();
    for (uint64_t i = 0; i < n; i += 2)
        check(varve_discard(hist, v + i), "discard");
    check(varve_protect(hist, 0, buf[0], opt.size), "protect");
    for (int i = 0; i < rounds; i++) {
        check(varve_hint(hist, 900), "hint");
        fill(0, 900, opt.size);
        uint64_t start = vv_now_ns();
        check(varve_checkpoint(hist, 900), "checkpoint");
        put[i] = us_since(start);
        for (int k = 0; k < 3; k++)
            gap();              /* it is flushed meanwhile */
        wipe(0, 900, opt.size); /* directly before the restore, as for contiguous_get */
        start = vv_now_ns();
        check(varve_restore(hist, 900), "restore");
        get[i] = us_since(start);
        verify(0, 900, opt.size);
        check(varve_discard(hist, 900), "discard");
        gap();
    }
    row("checkpoint into 64 scattered runs, median",
        gbs(quantile(put, (size_t)rounds, 0.5), opt.size), "GB/s",
        contiguous_put > 0 ? 0.9 * gbs(contiguous_put, opt.size) : 0);
    row("restore from 64 scattered runs, median", gbs(quantile(get, (size_t)rounds, 0.5), opt.size),
        "GB/s", contiguous_get > 0 ? 0.9 * gbs(contiguous_get, opt.size) : 0);
    for (uint64_t i = 1; i < n; i += 2)
        check(varve_discard(hist, v + i), "discard");
}

/* ---- the link ---- */

struct window {
    uint64_t start_ns, down, up;
};

static struct window window_open(void)
{
    struct varve_stats s = stats();
    return (struct window){vv_now_ns(), s.moved_bytes[VARVE_HOP_D2H], s.moved_bytes[VARVE_HOP_H2D]};
}

/* GB/s of the two directions since the window was opened. */
static void window_rates(const struct window *w, double *ret_down, double *ret_up)
{
    struct varve_stats s = stats();
    double ns = (double)(vv_now_ns() - w->start_ns);
    *ret_down = (double)(s.moved_bytes[VARVE_HOP_D2H] - w->down) / ns;
    *ret_up = (double)(s.moved_bytes[VARVE_HOP_H2D] - w->up) / ns;
}

static void put_next(uint64_t version)
{
    fill(0, version, opt.size);
    check(varve_checkpoint(hist, version), "checkpoint");
}

static void get_next(uint64_t version)
{
    check(varve_restore(hist, version), "restore");
    inspect(0, version, opt.size);
}

/* A thread that writes checkpoints of its own as fast as it can, and keeps the last few of them. */
struct writer {
    struct varve_history *h;
    uint64_t kept;
    _Atomic bool stop;
    pthread_t thread;
};

static void *writer_main(void *arg)
{
    struct writer *w = arg;
    check(vv_device_stream_new(dev, &stream), "stream");
    check(vv_device_event_new(dev, &event), "event");
    for (uint64_t v = 0; !atomic_load(&w->stop); v++) {
        fill(1, v, opt.size);
        check(varve_checkpoint(w->h, v), "checkpoint");
        if (v >= w->kept)
            check(varve_discard(w->h, v - w->kept), "discard");
    }
    vv_device_event_free(dev, event);
    vv_device_stream_free(dev, stream);
    return NULL;
}

static void writer_start(struct writer *w)
{
    check(varve_history_open(ctx, "writer", &w->h), "history");
    check(varve_protect(w->h, 0, buf[1], opt.size), "protect");
    check(-pthread_create(&w->thread, NULL, writer_main, w), "thread");
}

static void writer_stop(struct writer *w)
{
    atomic_store(&w->stop, true);
    pthread_join(w->thread, NULL);
    check(varve_history_close(w->h), "history");
}

/* Checkpoints and restores back to back, the device cache being full: the link sets the pace, and
 * filling and checking in between do not keep it from working. Each window moves as many versions as
 * the caches leave: what is written and not yet restored finds room on the host, and the restores
 * before and after the windows are as many as the device holds, which is how far prefetches are ahead.
 *
 * How many bytes were wrong is asked once, at the end: the answer would have to wait for flushes on the
 * same way.
 *
 * In the window of both directions one thread restores and another writes, each at its own pace. It
 * opens when both are at work: until then there is nothing to flush but what the first of these
 * restores have made room for, and a short window would measure that. */
static void link_rates(void)
{
    uint64_t on_device = opt.device_cache / opt.size;
    uint64_t all = opt.host_cache / opt.size - on_device, v = 0, r = 0;
    struct writer writer = {.kept = VV_MIN((uint64_t)WRITER_KEPT, all / 4)};
    all -= writer.kept;
    uint64_t part = (all - 2 * on_device) / 4;
    struct window w;
    double down, up;

    settle();
    for (; v < on_device; v++)
        put_next(v);
    w = window_open();
    for (; v < all; v++)
        put_next(v);
    window_rates(&w, &down, &up);
    row("flush alone, sustained", down, "GB/s", 52);
    settle();

    /* Restore in the order of writing: the versions that were written first are on the host. */
    for (uint64_t i = 0; i < all; i++)
        check(varve_hint(hist, i), "hint");
    check(varve_prefetch_start(hist), "prefetch");
    settle();
    for (; r < on_device; r++)
        get_next(r);
    w = window_open();
    for (; r < on_device + part; r++)
        get_next(r);
    window_rates(&w, &down, &up);
    row("prefetch alone, sustained", up, "GB/s", 52);

    writer_start(&writer);
    for (; r < on_device + 2 * part; r++)
        get_next(r);
    w = window_open();
    for (; r < all - on_device; r++)
        get_next(r);
    window_rates(&w, &down, &up);
    row("flush and prefetch at once, sustained, together", down + up, "GB/s", 95);
    row("  of that, flush", down, "GB/s", 0);
    writer_stop(&writer);
    for (; r < all; r++)
        get_next(r);
    verdict(r);
}

/* ---- opening ---- */

static char grown[256]; /* what the library says when the host cache is ready */

static void keep_log(void *user, enum vv_log_level level, const char *text)
{
    (void)user;
    if (strncmp(text, "host cache: ", strlen("host cache: ")) == 0)
        snprintf(grown, sizeof(grown), "%s", text);
    else if (level >= VV_LOG_WARNING)
        fprintf(stderr, "bench_gpu: %s\n", text);
}

static void opening(void)
{
    static double hits[1 << 16];
    double first_ms, all_ms, slowest = 0, slowest_ms = 0;
    size_t n = 0;
    bool ready;
    vv_log_set_sink(keep_log, NULL, VV_LOG_INFO);
    uint64_t start = vv_now_ns();

    open_context(opt.open_cache, VARVE_CONSUME_KEEP);
    check(varve_checkpoint(hist, 0), "checkpoint");
    first_ms = us_since(start) / 1e3;
    fill(0, 1, opt.size);
    check(varve_checkpoint(hist, 1), "checkpoint");
    /* Hits in the device cache while the rest is being pinned, back to back. */
    do {
        ready = host_is_ready();
        all_ms = us_since(start) / 1e3;
        uint64_t t = vv_now_ns();
        check(varve_restore(hist, 1), "restore");
        double us = us_since(t);
        if (us > slowest)
            slowest_ms = us_since(start) / 1e3;
        slowest = VV_MAX(slowest, us);
        if (n < VV_ARRAY_SIZE(hits))
            hits[n++] = us;
    } while (!ready);
    wipe(0, 1, opt.size);
    check(varve_restore(hist, 1), "restore");
    verify(0, 1, opt.size);
    double median = quantile(hits, n, 0.5);
    row("varve_open until the first checkpoint has returned", first_ms, "ms", -100);
    row("varve_open until all of the host cache is pinned", all_ms, "ms", -2000);
    row("hit in the device cache meanwhile, median", median, "us", 0);
    row("  slowest", slowest, "us", -3000);
    row("  slowest, its end after varve_open began", slowest_ms, "ms", 0);
    start = vv_now_ns();
    close_context();
    row("varve_close", us_since(start) / 1e3, "ms", 0);
    vv_log_set_sink(NULL, NULL, VV_LOG_WARNING);
    printf("\n%s\n", grown);
}

static void calls(void)
{
    single_calls();
    stream_calls();
}

#define PARTS "hit|calls|scattered|link|open"

/* Each on a context of its own; opening() opens it itself. */
static const struct part {
    const char *name;
    int consume; /* -1: it needs none */
    void (*run)(void);
} parts[] = {{"hit", VARVE_CONSUME_KEEP, hits},
             {"calls", VARVE_CONSUME_KEEP, calls},
             {"scattered", VARVE_CONSUME_KEEP, scattered},
             {"link", VARVE_CONSUME_ONCE, link_rates},
             {"open", -1, opening}};

static void run_part(const struct part *p)
{
    if (opt.only && strcmp(opt.only, p->name) != 0)
        return;
    if (p->consume >= 0)
        open_context(opt.host_cache, p->consume);
    p->run();
    if (p->consume >= 0)
        close_context();
}

static int set_device(const char *value, void *arg)
{
    bool host = strcmp(vv_config_device_word(value), "host") == 0;

    ((struct gpu_opts *)arg)->device = host ? VARVE_DEVICE_HOST : VARVE_DEVICE_CUDA;
    return host || strcmp(value, "cuda") == 0 ? 0 : -EINVAL;
}

static int set_only(const char *value, void *arg)
{
    ((struct gpu_opts *)arg)->only = value;
    return VV_MIN(opts_word(PARTS, value), 0);
}

#define AT(field) offsetof(struct gpu_opts, field)

static const struct opt options[] = {
    {OPT_SET, .name = "device", .arg = "cuda|host", .set = set_device, .takes = "cuda or host",
     .help = "host: emulated (cuda)"},
    {OPT_BYTES, .name = "size", .arg = "BYTES", .at = AT(size),
     .help = "of an object, 256K at least (128M)"},
    {OPT_BYTES, .name = "device-cache", .arg = "BYTES", .at = AT(device_cache),
     .help = "4 sizes at least (4G)"},
    {OPT_BYTES, .name = "host-cache", .arg = "BYTES", .at = AT(host_cache),
     .help = "5 times as much as the one on the device at least (48G)"},
    {OPT_BYTES, .name = "open-cache", .arg = "BYTES", .at = AT(open_cache),
     .help = "that of the host in the part 'open' (32G)"},
    {OPT_U32, .name = "rounds", .arg = "N", .at = AT(rounds), .least = 1, .most = ROUNDS,
     .help = "of each measurement (64)"},
    {OPT_SET, .name = "only", .arg = PARTS, .set = set_only, .takes = "one of " PARTS,
     .help = "this part alone (all of them)"},
};

static const struct opts command = {
    .command = "bench_gpu",
    .usage = "[OPTION]...",
    .about = "Measures single calls of the library on a GPU.",
    OPT_LIST(options),
};

/* As opts_parse: -1, or an exit status. */
static int parse(int argc, char **argv)
{
    int first, status = opts_parse(&command, argc, argv, &opt, &first);

    if (status >= 0)
        return status;
    /* Less would not let the link come to a steady pace. */
    if (opt.size >= RUNS * UINT64_C(4096) && opt.device_cache >= 4 * opt.size &&
        opt.host_cache >= 5 * opt.device_cache)
        return -1;
    fprintf(stderr, "bench_gpu: a cache is too small; see --help\n");
    return 2;
}

int main(int argc, char **argv)
{
    struct vv_ckpt_hooks hooks = {.device = take_device};
    int status = parse(argc, argv);

    if (status >= 0)
        return status;
    if (opt.device == VARVE_DEVICE_CUDA)
        use_cuda();
    vv_ckpt_set_hooks(&hooks);
    for (size_t i = 0; i < VV_ARRAY_SIZE(parts); i++)
        run_part(&parts[i]);
    return missed ? 1 : 0;
}
