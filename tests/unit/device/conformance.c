/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requirements of every device backend, tested through the table of operations alone. VARVE_TEST_DEVICE names the
 * backend ("host" unless set); a new backend adds a row to `backends`.
 *
 * Not in here: permitted differences between backends, and injected failures.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "device/cuda/cuda.h"
#include "device/device.h"
#include "device/host/host.h"
#include "t.h"

#define MIB   ((size_t)1 << 20)
#define BYTES (3 * MIB + 4096)

static struct vv_device *dev;

static int open_host(struct vv_device **ret_device)
{
    struct vv_device_host_opts opts;

    vv_device_host_opts_init(&opts);
    opts.capacity_bytes = 256 * MIB;
    opts.guard = true;
    return vv_device_open_host(&opts, ret_device);
}

static int open_cuda(struct vv_device **ret_device)
{
    char err[256] = "";
    int rc = vv_device_open_cuda(NULL, err, sizeof(err), ret_device);

    if (rc == -ENODEV)
        T_SKIP("%s", err);
    return rc;
}

static const struct backend {
    const char *name;
    int (*open)(struct vv_device **ret_device);
} backends[] = {
    {"host", open_host},
    {"cuda", open_cuda},
};

static unsigned char pattern(uint64_t seed, size_t i)
{
    return (unsigned char)((seed + i) * UINT64_C(0x9e3779b97f4a7c15) >> 56);
}

static void fill(unsigned char *p, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes; i++)
        p[i] = pattern(seed, i);
}

static bool holds(const unsigned char *p, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes; i++) {
        if (p[i] != pattern(seed, i))
            return false;
    }
    return true;
}

static unsigned char *host_new(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    T_CHECK(p != MAP_FAILED);
    return p;
}

static unsigned char *pinned_new(size_t bytes)
{
    unsigned char *p = host_new(bytes);

    T_OK(vv_device_host_register(dev, p, bytes));
    return p;
}

static void pinned_free(unsigned char *p, size_t bytes)
{
    T_OK(vv_device_host_unregister(dev, p));
    T_EQ(munmap(p, bytes), 0);
}

static void *dev_new(size_t bytes)
{
    void *p = NULL;

    T_OK(vv_device_mem_alloc(dev, bytes, &p));
    return p;
}

static void copy(struct vv_stream *s, void *dst, const void *src, size_t bytes)
{
    struct vv_copy_seg seg = {dst, src, bytes};

    T_OK(vv_device_copy_async(dev, s, &seg, 1));
}

static void finish(struct vv_stream *s)
{
    struct vv_event *ev;

    T_OK(vv_device_event_new(dev, &ev));
    T_OK(vv_device_event_record(dev, ev, s));
    T_OK(vv_device_event_wait(dev, ev, -1));
    T_OK(vv_device_event_query(dev, ev));
    vv_device_event_free(dev, ev);
}

static void memory_is_accounted(void)
{
    size_t free0, free1, total0, total1;
    void *p, *none = &free0;

    T_OK(vv_device_mem_info(dev, &free0, &total0));
    T_CHECK(free0 <= total0);
    p = dev_new(64 * MIB);
    T_OK(vv_device_mem_info(dev, &free1, &total1));
    T_EQ(total0, total1);
    T_CHECK(free1 <= free0 - 64 * MIB);
    T_OK(vv_device_mem_free(dev, p));
    T_OK(vv_device_mem_info(dev, &free1, &total1));
    T_EQ(free1, free0);

    T_ERR(vv_device_mem_alloc(dev, total0 + MIB, &none), -ENOMEM);
    T_ERR(vv_device_mem_alloc(dev, 0, &none), -EINVAL);
    T_CHECK(none == &free0);
    T_OK(vv_device_mem_free(dev, NULL));
    T_ERR(vv_device_mem_free(dev, &free0), -EINVAL);
}

static void pointers_have_a_kind(void)
{
    unsigned char *pinned = pinned_new(MIB);
    char *p = dev_new(BYTES);
    int on_stack = 0;
    enum vv_mem_kind kind;
    size_t left;

    T_OK(vv_device_ptr_kind(dev, p, &kind, &left));
    T_EQ(kind, VV_MEM_DEVICE);
    T_EQ(left, BYTES);
    T_OK(vv_device_ptr_kind(dev, p + BYTES - 1, &kind, &left));
    T_EQ(kind, VV_MEM_DEVICE);
    T_EQ(left, 1);
    T_OK(vv_device_ptr_kind(dev, pinned + 4096, &kind, &left));
    T_EQ(kind, VV_MEM_HOST);
    T_EQ(left, MIB - 4096);
    T_OK(vv_device_ptr_kind(dev, &on_stack, &kind, &left));
    T_EQ(kind, VV_MEM_HOST);
    T_CHECK(left == SIZE_MAX);
    T_ERR(vv_device_ptr_kind(dev, NULL, &kind, &left), -EINVAL);
    T_CHECK(left == SIZE_MAX);

    T_OK(vv_device_mem_free(dev, p));
    pinned_free(pinned, MIB);
}

static void shared_memory_is_registered(void)
{
    unsigned char *p = host_new(2 * MIB);
    void *at = NULL, *within = NULL;
    enum vv_mem_kind kind;
    size_t left;

    T_OK(vv_device_host_share(dev, p, MIB, false, &at));
    T_CHECK(at);
    T_OK(vv_device_ptr_kind(dev, p, &kind, &left));
    T_EQ(kind, VV_MEM_HOST);
    T_EQ(left, MIB);
    T_ERR(vv_device_host_share(dev, p, MIB, false, &at), -EEXIST);
    T_OK(vv_device_host_share(dev, p + MIB, MIB, true, &at));
    T_ERR(vv_device_host_share(dev, NULL, MIB, false, &at), -EINVAL);
    T_OK(vv_device_host_address(dev, p, &at));
    T_OK(vv_device_host_address(dev, p + MIB + 4096, &within));
    T_CHECK(at && within);
    T_OK(vv_device_host_unregister(dev, p));
    T_ERR(vv_device_host_address(dev, p, &at), -EINVAL);
    T_ERR(vv_device_host_address(dev, NULL, &at), -EINVAL);
    T_OK(vv_device_host_unregister(dev, p + MIB));
    T_EQ(munmap(p, 2 * MIB), 0);
}

static void registration_is_checked(void)
{
    unsigned char *p = host_new(4 * MIB);

    T_OK(vv_device_host_register(dev, p, MIB));
    T_ERR(vv_device_host_register(dev, p, MIB), -EEXIST);
    T_ERR(vv_device_host_register(dev, p + 4096, 4096), -EEXIST);
    T_OK(vv_device_host_register(dev, p + MIB, MIB));
    T_ERR(vv_device_host_register(dev, NULL, MIB), -EINVAL);
    T_ERR(vv_device_host_register(dev, p + 3 * MIB, 0), -EINVAL);
    T_ERR(vv_device_host_unregister(dev, p + 3 * MIB), -EINVAL);
    T_ERR(vv_device_host_unregister(dev, NULL), -EINVAL);
    T_OK(vv_device_host_unregister(dev, p));
    T_ERR(vv_device_host_unregister(dev, p), -EINVAL);
    T_OK(vv_device_host_unregister(dev, p + MIB));
    T_EQ(munmap(p, 4 * MIB), 0);
}

static void copies_arrive(bool pin)
{
    unsigned char *in = pin ? pinned_new(BYTES) : host_new(BYTES);
    unsigned char *out = pin ? pinned_new(BYTES) : host_new(BYTES);
    void *a = dev_new(BYTES);
    void *b = dev_new(BYTES);
    struct vv_stream *s;

    T_OK(vv_device_stream_new(dev, &s));
    fill(in, BYTES, 1);
    copy(s, a, in, BYTES);
    copy(s, b, a, BYTES);
    copy(s, out, b, BYTES);
    finish(s);
    T_CHECK(holds(out, BYTES, 1));
    vv_device_stream_free(dev, s);

    T_OK(vv_device_mem_free(dev, a));
    T_OK(vv_device_mem_free(dev, b));
    if (pin) {
        pinned_free(in, BYTES);
        pinned_free(out, BYTES);
    } else {
        T_EQ(munmap(in, BYTES), 0);
        T_EQ(munmap(out, BYTES), 0);
    }
}

static void pinned_copies_arrive(void)
{
    copies_arrive(true);
}

static void pageable_copies_arrive(void)
{
    copies_arrive(false);
}

/* A copy does not depend on the slices in which memory was registered. */
static void slices_may_be_crossed(void)
{
    enum { SLICES = 3 };
    size_t each = MIB, bytes = SLICES * MIB, off = MIB / 2 + 8;
    unsigned char *a = host_new(bytes), *b = host_new(bytes);
    unsigned char *d = dev_new(bytes);
    struct vv_stream *s;

    T_OK(vv_device_stream_new(dev, &s));
    for (size_t i = 0; i < SLICES; i++) {
        T_OK(vv_device_host_register(dev, a + i * each, each));
        T_OK(vv_device_host_register(dev, b + i * each, each));
    }
    fill(a, bytes, 5);
    copy(s, d, a, bytes);
    copy(s, b, d, bytes);
    finish(s);
    T_CHECK(holds(b, bytes, 5));
    /* From the middle of one slice to the middle of the last; the other side starts at another offset. */
    fill(a, bytes, 6);
    copy(s, d, a + off, 2 * each);
    copy(s, b + each / 4, d, 2 * each);
    finish(s);
    T_EQ(memcmp(b + each / 4, a + off, 2 * each), 0);
    for (size_t i = 0; i < SLICES; i++) {
        T_OK(vv_device_host_unregister(dev, a + i * each));
        T_OK(vv_device_host_unregister(dev, b + i * each));
    }
    vv_device_stream_free(dev, s);
    T_OK(vv_device_mem_free(dev, d));
    T_EQ(munmap(a, bytes), 0);
    T_EQ(munmap(b, bytes), 0);
}

/* Scattered segments of both kinds of host memory and several directions in one batch. */
static void batches_may_be_mixed(void)
{
    enum { N = 60 };
    const size_t piece = 10000;
    unsigned char *pinned = pinned_new(N * piece);
    unsigned char *paged = malloc(N * piece);
    unsigned char *out = pinned_new(N * piece);
    char *a = dev_new(N * piece);
    char *b = dev_new(N * piece);
    struct vv_copy_seg segs[N];
    struct vv_stream *s;

    T_CHECK(paged);
    fill(pinned, N * piece, 5);
    fill(paged, N * piece, 6);
    T_OK(vv_device_stream_new(dev, &s));
    copy(s, b, pinned, N * piece);
    for (size_t i = 0; i < N; i++) {
        size_t at = i * piece, from = (N - 1 - i) * piece;

        segs[i] = (struct vv_copy_seg){a + at, pinned + from, piece};
        if (i % 3 == 1)
            segs[i].src = paged + from;
        else if (i % 3 == 2)
            segs[i].src = b + from;
        if (i % 10 == 9)
            segs[i].bytes = 0;
    }
    T_OK(vv_device_copy_async(dev, s, segs, N));
    T_OK(vv_device_copy_async(dev, s, NULL, 0));
    memset(segs, 0, sizeof(segs));
    memset(out, 0, N * piece);
    copy(s, out, a, N * piece);
    finish(s);
    for (size_t i = 0; i < N; i++) {
        const unsigned char *want = (i % 3 == 1 ? paged : pinned) + (N - 1 - i) * piece;

        if (i % 10 != 9)
            T_CHECK(memcmp(out + i * piece, want, piece) == 0);
    }
    vv_device_stream_free(dev, s);
    T_OK(vv_device_mem_free(dev, a));
    T_OK(vv_device_mem_free(dev, b));
    pinned_free(pinned, N * piece);
    pinned_free(out, N * piece);
    free(paged);
}

static void bad_copies_are_refused(void)
{
    unsigned char *h = pinned_new(MIB);
    char *p = dev_new(MIB);
    struct vv_stream *s;
    struct vv_copy_seg segs[2] = {{p, h, 100}, {p + MIB - 10, h, 11}};

    T_OK(vv_device_stream_new(dev, &s));
    memset(h, 1, MIB);
    copy(s, p, h, MIB);
    finish(s);

    /* The batch is submitted whole or not at all: the valid first segment is not copied either. */
    memset(h, 2, MIB);
    T_ERR(vv_device_copy_async(dev, s, segs, 2), -EFAULT);
    segs[1] = (struct vv_copy_seg){h, h + 4096, 100};
    T_ERR(vv_device_copy_async(dev, s, segs, 2), -EINVAL);
    segs[1] = (struct vv_copy_seg){NULL, p, 100};
    T_ERR(vv_device_copy_async(dev, s, segs, 2), -EINVAL);
    segs[1] = (struct vv_copy_seg){p, h, SIZE_MAX};
    T_ERR(vv_device_copy_async(dev, s, segs, 2), -EFAULT);
    copy(s, h, p, MIB);
    finish(s);
    for (size_t i = 0; i < MIB; i++)
        T_EQ(h[i], 1);

    vv_device_stream_free(dev, s);
    T_OK(vv_device_mem_free(dev, p));
    pinned_free(h, MIB);
}

static void fresh_events_are_done(void)
{
    struct vv_stream *s;
    struct vv_event *ev;

    T_OK(vv_device_event_new(dev, &ev));
    T_OK(vv_device_stream_new(dev, &s));
    T_OK(vv_device_event_query(dev, ev));
    T_OK(vv_device_event_wait(dev, ev, 0));
    T_OK(vv_device_stream_wait_event(dev, s, ev));
    T_OK(vv_device_event_record(dev, ev, s));
    T_OK(vv_device_event_wait(dev, ev, -1));
    T_OK(vv_device_after_app(dev, s));
    finish(s);
    vv_device_event_free(dev, ev);
    vv_device_event_free(dev, NULL);
    vv_device_stream_free(dev, s);
    vv_device_stream_free(dev, NULL);
}

/* A chain of copies back and forth between two streams; each one reads what the last one wrote. */
static void streams_wait_for_events(void)
{
    enum { LINKS = 40 };
    unsigned char *h = pinned_new(MIB);
    char *p = dev_new((LINKS + 1) * MIB);
    struct vv_stream *s[2];
    struct vv_event *ev;

    T_OK(vv_device_event_new(dev, &ev));
    T_OK(vv_device_stream_new(dev, &s[0]));
    T_OK(vv_device_stream_new(dev, &s[1]));
    fill(h, MIB, 9);
    copy(s[0], p, h, MIB);
    for (size_t i = 0; i < LINKS; i++) {
        /* One event serves all links: a wait applies to its recording at that time. */
        T_OK(vv_device_event_record(dev, ev, s[i % 2]));
        T_OK(vv_device_stream_wait_event(dev, s[(i + 1) % 2], ev));
        copy(s[(i + 1) % 2], p + (i + 1) * MIB, p + i * MIB, MIB);
    }
    copy(s[LINKS % 2], h, p + LINKS * MIB, MIB);
    finish(s[LINKS % 2]);
    T_CHECK(holds(h, MIB, 9));

    vv_device_event_free(dev, ev);
    vv_device_stream_free(dev, s[0]);
    vv_device_stream_free(dev, s[1]);
    T_OK(vv_device_mem_free(dev, p));
    pinned_free(h, MIB);
}

/* Streams and events may be freed while their work is pending; the work is still done. */
static void pending_objects_may_be_freed(void)
{
    unsigned char *h = pinned_new(8 * MIB);
    char *p = dev_new(8 * MIB);
    struct vv_stream *s, *other;
    struct vv_event *ev;

    T_OK(vv_device_stream_new(dev, &s));
    T_OK(vv_device_stream_new(dev, &other));
    T_OK(vv_device_event_new(dev, &ev));
    fill(h, 8 * MIB, 11);
    for (size_t i = 0; i < 8; i++)
        copy(s, p + i * MIB, h + i * MIB, MIB);
    T_OK(vv_device_event_record(dev, ev, s));
    T_OK(vv_device_stream_wait_event(dev, other, ev));
    vv_device_event_free(dev, ev);
    vv_device_stream_free(dev, s);
    copy(other, h, p + MIB, MIB);
    finish(other);
    T_CHECK(holds(h + MIB, 7 * MIB, 11 + MIB));
    T_CHECK(holds(h, MIB, 11 + MIB));
    vv_device_stream_free(dev, other);
    T_OK(vv_device_mem_free(dev, p));
    pinned_free(h, 8 * MIB);
}

/* Freeing memory waits for copies that use it. */
static void free_waits_for_copies(void)
{
    unsigned char *h = pinned_new(16 * MIB);
    struct vv_stream *s;

    T_OK(vv_device_stream_new(dev, &s));
    for (int round = 0; round < 4; round++) {
        char *p = dev_new(16 * MIB);

        fill(h, 64, (uint64_t)round);
        copy(s, p, h, 16 * MIB);
        T_OK(vv_device_mem_free(dev, p));
    }
    finish(s);
    vv_device_stream_free(dev, s);
    pinned_free(h, 16 * MIB);
}

static void polling_ends(void)
{
    unsigned char *h = pinned_new(4 * MIB);
    char *p = dev_new(4 * MIB);
    struct vv_stream *s;
    struct vv_event *ev;
    int rc;

    T_OK(vv_device_stream_new(dev, &s));
    T_OK(vv_device_event_new(dev, &ev));
    copy(s, p, h, 4 * MIB);
    T_OK(vv_device_event_record(dev, ev, s));
    while ((rc = vv_device_event_query(dev, ev)) == -EBUSY)
        vv_sleep_until_ns(vv_now_ns() + 10000);
    T_OK(rc);
    copy(s, p, h, 4 * MIB);
    T_OK(vv_device_event_record(dev, ev, s));
    while ((rc = vv_device_event_wait(dev, ev, 1000)) == -ETIMEDOUT)
        ;
    T_OK(rc);
    vv_device_event_free(dev, ev);
    vv_device_stream_free(dev, s);
    T_OK(vv_device_mem_free(dev, p));
    pinned_free(h, 4 * MIB);
}

/* Times are the device's, and a kernel that fills memory takes at least the requested time. */
static void timed_events_tell_the_time(void)
{
    struct vv_device_info info;
    struct vv_event *from, *to;
    struct vv_stream *s;
    uint64_t ns = 1;
    void *p;

    vv_device_describe(dev, &info);
    T_OK(vv_device_stream_new(dev, &s));
    T_OK(vv_device_mem_alloc(dev, MIB, &p));
    T_OK(vv_device_event_new_timed(dev, &from));
    T_OK(vv_device_event_new_timed(dev, &to));
    T_OK(vv_device_event_record(dev, from, s));
    if (info.kernels)
        T_OK(vv_device_launch(
            dev, s,
            &(struct vv_kernel){
                .kind = VV_KERNEL_FILL, .ptr = p, .bytes = MIB, .ns = 20 * VV_NS_PER_MS}));
    T_OK(vv_device_event_record(dev, to, s));
    T_OK(vv_device_event_wait(dev, to, -1));
    T_OK(vv_device_event_elapsed(dev, from, to, &ns));
    if (info.kernels)
        T_CHECK(ns >= 20 * VV_NS_PER_MS - VV_NS_PER_US); /* a float of milliseconds is truncated */
    T_OK(vv_device_event_elapsed(dev, to, from, &ns));
    if (info.kernels)
        T_EQ(ns, 0);
    vv_device_event_free(dev, from);
    vv_device_event_free(dev, to);
    T_OK(vv_device_mem_free(dev, p));
    vv_device_stream_free(dev, s);
}

int main(void)
{
    const char *name = getenv("VARVE_TEST_DEVICE");
    const struct backend *b = NULL;

    if (!name)
        name = "host";
    for (size_t i = 0; i < VV_ARRAY_SIZE(backends); i++) {
        if (strcmp(backends[i].name, name) == 0)
            b = &backends[i];
    }
    if (!b)
        T_SKIP("no device backend \"%s\" in this build", name);
    T_OK(b->open(&dev));
    T_STREQ(dev->ops->name, name);

    T_RUN(memory_is_accounted);
    T_RUN(pointers_have_a_kind);
    T_RUN(registration_is_checked);
    T_RUN(shared_memory_is_registered);
    T_RUN(pinned_copies_arrive);
    T_RUN(pageable_copies_arrive);
    T_RUN(slices_may_be_crossed);
    T_RUN(batches_may_be_mixed);
    T_RUN(bad_copies_are_refused);
    T_RUN(fresh_events_are_done);
    T_RUN(streams_wait_for_events);
    T_RUN(pending_objects_may_be_freed);
    T_RUN(free_waits_for_copies);
    T_RUN(polling_ends);
    T_RUN(timed_events_tell_the_time);

    vv_device_close(dev);
    vv_device_close(NULL);
    return t_done();
}
