/* SPDX-License-Identifier: Apache-2.0 */
/* The emulated device's memory: capacity, guard, refusals, pageable copies, stalls and waits. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>

#include "device/host/host_private.h"
#include "unit/device/emulated.h"

static void options_are_checked(void)
{
    struct vv_device_host_opts opts = {0};
    struct vv_device *d = NULL;
    size_t free_bytes, total;

    T_ERR(vv_device_open_host(&opts, &d), -EINVAL);
    T_CHECK(!d);
    T_OK(vv_device_open_host(NULL, &d));
    T_OK(vv_device_mem_info(d, &free_bytes, &total));
    T_EQ(total, UINT64_C(1) << 30);
    T_EQ(free_bytes, total);
    vv_device_close(d);
}

static void capacity_is_a_limit(void)
{
    struct vv_device *d = emu_open(MIB, false);
    void *a = emu_alloc(d, MIB - 100), *b, *c = NULL;

    T_ERR(vv_device_mem_alloc(d, 101, &c), -ENOMEM);
    T_ERR(vv_device_mem_alloc(d, SIZE_MAX, &c), -ENOMEM);
    T_CHECK(!c);
    b = emu_alloc(d, 100);
    T_ERR(vv_device_mem_alloc(d, 1, &c), -ENOMEM);
    T_EQ(emu_stats(d).n_allocs, 2);
    T_OK(vv_device_mem_free(d, a));
    T_ERR(vv_device_mem_free(d, a), -EINVAL);
    a = emu_alloc(d, MIB - 100);
    T_ERR(vv_device_mem_free(d, (char *)a + 1), -EINVAL);
    T_OK(vv_device_mem_free(d, b));
    T_EQ(emu_stats(d).n_allocs, 1);
    vv_device_close(d); /* frees everything else */
}

static void guarded_pointers_cannot_be_used(void)
{
    struct vv_device *d = emu_open(MIB, true);
    char *p = emu_alloc(d, 10000);
    char *map = vv_device_host_map(d, p + 5);
    struct vv_stream *s = emu_stream(d);
    char out[10000];
    enum vv_mem_kind kind;
    size_t left;
    void *again;

    T_CHECK(map && map != p + 5);
    T_CHECK(!vv_device_host_map(d, out));
    *map = 'x';
    T_OK(emu_copy(d, s, out, p, sizeof(out)));
    T_EQ(out[5], 'x');

    /* The address space up to the page's end belongs to the allocation, its bytes do not. */
    T_ERR(emu_copy(d, s, out, p + 10000, 1), -EFAULT);
    T_ERR(vv_device_ptr_kind(d, p + 10000, &kind, &left), -EINVAL);

    T_OK(vv_device_mem_free(d, p));
    T_CHECK(!vv_device_host_map(d, p));
    T_ERR(emu_copy(d, s, out, p, 1), -EFAULT);
    T_ERR(vv_device_ptr_kind(d, p, &kind, &left), -EINVAL);
    T_ERR(vv_device_mem_free(d, p), -EINVAL);
    again = emu_alloc(d, 10000);
    T_CHECK(again != p);
    vv_device_stream_free(d, s);
    vv_device_close(d);
}

static sigjmp_buf touched;

static void on_segv(int sig)
{
    (void)sig;
    siglongjmp(touched, 1);
}

static void guarded_pointers_fault(void)
{
    struct vv_device *d = emu_open(MIB, true);
    volatile char *p = emu_alloc(d, 4096);
    struct sigaction act = {.sa_handler = on_segv}, old;
    volatile bool faulted = false;

    T_EQ(sigaction(SIGSEGV, &act, &old), 0);
    if (sigsetjmp(touched, 1))
        faulted = true;
    else
        *p = 1;
    T_EQ(sigaction(SIGSEGV, &old, NULL), 0);
    T_CHECK(faulted);
    vv_device_close(d);
}

static int driver_says(struct vv_device *d, void *dst, const void *src, size_t bytes)
{
    struct vvi_device_host *host = vvi_device_host_of(d);
    struct vv_copy_seg seg = {dst, src, bytes};
    int rc;

    vv_mutex_lock(&host->lock);
    rc = vvi_device_copy_check(host, &seg);
    vv_mutex_unlock(&host->lock);
    return rc;
}

/* A copy may cross slices, and is cut where a driver would refuse it; it must not go from registered memory to
 * unregistered memory. */
static void slices_are_crossed_in_parts(void)
{
    struct vv_device *d = emu_open(4 * MIB, true);
    unsigned char *h = emu_host(4 * MIB);
    char *p = emu_alloc(d, 4 * MIB);
    struct vv_stream *s = emu_stream(d);

    /* [0, 1) unregistered, [1, 2) and [2, 3) two slices, [3, 4) unregistered */
    T_OK(vv_device_host_register(d, h + MIB, MIB));
    T_OK(vv_device_host_register(d, h + 2 * MIB, MIB));
    T_EQ(emu_stats(d).n_slices, 2);
    for (int to_host = 0; to_host < 2; to_host++) {
        static const struct {
            size_t at, bytes;
            int rc, driver;
        } c[] = {
            {0, MIB, 0, 0},
            {MIB, MIB, 0, 0},
            {2 * MIB, MIB, 0, 0},
            {3 * MIB, MIB, 0, 0},
            {0, MIB + 1, -EINVAL, -EINVAL},
            {2 * MIB - 1, 2, 0, -EINVAL},
            {MIB, 2 * MIB, 0, -EINVAL},
            {3 * MIB - 1, 2, -EINVAL, -EINVAL},
            {MIB, 2 * MIB + 1, -EINVAL, -EINVAL},
            {0, 4 * MIB, -EINVAL, -EINVAL},
        };

        for (size_t i = 0; i < VV_ARRAY_SIZE(c); i++) {
            void *dst = to_host ? (void *)(h + c[i].at) : p;
            const void *src = to_host ? p : (void *)(h + c[i].at);
            T_ERR(emu_copy(d, s, dst, src, c[i].bytes), c[i].rc);
            T_ERR(driver_says(d, dst, src, c[i].bytes), c[i].driver);
        }
    }
    T_ERR(vv_device_host_register(d, p, 4096), -EINVAL);
    T_OK(vv_device_host_unregister(d, h + MIB));
    T_OK(emu_copy(d, s, p, h, 2 * MIB));
    T_OK(vv_device_host_unregister(d, h + 2 * MIB));
    T_OK(emu_copy(d, s, p, h, 4 * MIB));
    T_EQ(emu_stats(d).n_slices, 0);
    vv_device_stream_free(d, s);
    T_EQ(munmap(h, 4 * MIB), 0);
    vv_device_close(d);
}

/* Many slices, many segments, both directions: every byte arrives at its place. */
static void parts_add_up(void)
{
    enum { SLICE = 4096, SLICES = 64, SEGS = 20 };
    size_t bytes = (size_t)SLICE * SLICES, each = bytes / SEGS;
    struct vv_device *d = emu_open(4 * MIB, true);
    unsigned char *from = emu_host(bytes), *to = emu_host(bytes);
    char *p = emu_alloc(d, bytes);
    struct vv_stream *s = emu_stream(d);
    struct vv_event *ev = emu_event(d);
    struct vv_copy_seg in[SEGS], out[SEGS];

    for (size_t i = 0; i < bytes; i++)
        from[i] = (unsigned char)(i * 31 + i / 251);
    for (size_t i = 0; i < SLICES; i++) {
        T_OK(vv_device_host_register(d, from + i * SLICE, SLICE));
        T_OK(vv_device_host_register(d, to + i * SLICE, SLICE));
    }
    for (size_t i = 0; i < SEGS; i++) {
        in[i] = (struct vv_copy_seg){p + i * each, from + i * each, each};
        out[i] = (struct vv_copy_seg){to + i * each, p + i * each, each};
    }
    T_OK(vv_device_copy_async(d, s, in, SEGS));
    T_OK(vv_device_copy_async(d, s, out, SEGS));
    T_OK(vv_device_event_record(d, ev, s));
    T_OK(vv_device_event_wait(d, ev, -1));
    T_EQ(memcmp(from, to, each * SEGS), 0);
    vv_device_event_free(d, ev);
    vv_device_stream_free(d, s);
    vv_device_close(d);
    T_EQ(munmap(from, bytes), 0);
    T_EQ(munmap(to, bytes), 0);
}

static void device_ranges_cannot_be_left(void)
{
    struct vv_device *d = emu_open(4 * MIB, false);
    unsigned char *h = emu_host(MIB);
    char *p = emu_alloc(d, MIB), *q = emu_alloc(d, 64 * KIB);
    struct vv_stream *s = emu_stream(d);

    T_OK(emu_copy(d, s, p, h, MIB));
    T_OK(emu_copy(d, s, p + MIB - 1, h, 1));
    T_ERR(emu_copy(d, s, p + 1, h, MIB), -EFAULT);
    T_ERR(emu_copy(d, s, h, p + 1, MIB), -EFAULT);
    T_ERR(emu_copy(d, s, q, p, MIB), -EFAULT);
    T_ERR(emu_copy(d, s, p - 1, h, 2), -EFAULT);
    T_OK(emu_copy(d, s, q, p, 64 * KIB));
    vv_device_stream_free(d, s);
    T_EQ(munmap(h, MIB), 0);
    vv_device_close(d);
}

/* Pageable copies are done when the call returns; pinned ones, behind the same kernel, are not. */
static void pageable_copies_are_synchronous(void)
{
    struct vv_device *d = emu_open(MIB, true);
    unsigned char *pinned = emu_host(4096), *paged = emu_host(4096);
    char *p = emu_alloc(d, 4096);
    struct vv_stream *s = emu_stream(d);
    struct vv_event *ev = emu_event(d);

    T_OK(vv_device_host_register(d, pinned, 4096));
    memset(pinned, 3, 4096);
    T_OK(vv_device_host_app_hold(d));
    T_OK(vv_device_after_app(d, s));
    T_OK(emu_copy(d, s, p, pinned, 4096));
    T_OK(vv_device_event_record(d, ev, s));
    T_ERR(vv_device_event_query(d, ev), -EBUSY);
    T_ERR(vv_device_event_wait(d, ev, 0), -ETIMEDOUT);
    T_ERR(vv_device_event_wait(d, ev, 100000), -ETIMEDOUT);
    vv_device_host_app_release(d);
    T_OK(emu_copy(d, s, paged, p, 4096));
    T_EQ(paged[4095], 3);
    T_OK(vv_device_event_query(d, ev));
    T_EQ(emu_stats(d).n_pending, 0);
    vv_device_event_free(d, ev);
    vv_device_stream_free(d, s);
    T_OK(vv_device_host_unregister(d, pinned));
    T_EQ(munmap(pinned, 4096), 0);
    T_EQ(munmap(paged, 4096), 0);
    vv_device_close(d);
}

struct caller {
    struct vv_device *d;
    void *ptr;
    int (*fn)(struct vv_device *d, void *ptr);
    int rc;
    _Atomic bool done;
};

static void *call(void *arg)
{
    struct caller *c = arg;

    c->rc = c->fn(c->d, c->ptr);
    c->done = true;
    return NULL;
}

/* `fn` must not return while the application's kernel runs. */
static void waits_for_kernels(int (*fn)(struct vv_device *d, void *ptr), struct vv_device *d,
                              void *ptr, enum vv_device_op op)
{
    struct caller c = {.d = d, .ptr = ptr, .fn = fn};
    uint64_t calls = emu_stats(d).calls[op];
    pthread_t thread;

    T_OK(vv_device_host_app_hold(d));
    T_EQ(pthread_create(&thread, NULL, call, &c), 0);
    while (emu_stats(d).calls[op] == calls)
        vv_sleep_until_ns(vv_now_ns() + 100000);
    vv_sleep_until_ns(vv_now_ns() + 2000000); /* long enough for a call that does not wait */
    T_CHECK(!c.done);
    vv_device_host_app_release(d);
    T_EQ(pthread_join(thread, NULL), 0);
    T_OK(c.rc);
}

static void free_and_unregister_wait_for_kernels(void)
{
    struct vv_device *d = emu_open(MIB, true);
    unsigned char *h = emu_host(4096);

    T_OK(vv_device_host_register(d, h, 4096));
    waits_for_kernels(vv_device_host_unregister, d, h, VV_DEVICE_OP_HOST_UNREGISTER);
    waits_for_kernels(vv_device_mem_free, d, emu_alloc(d, 4096), VV_DEVICE_OP_MEM_FREE);
    T_EQ(munmap(h, 4096), 0);
    vv_device_close(d);
}

static int register_mib(struct vv_device *d, void *ptr)
{
    return vv_device_host_register(d, ptr, MIB);
}

/* A call that comes while a slice is being registered does not return before its end. */
static void registering_stalls_other_calls(void)
{
    struct vv_device *d = emu_open(MIB, true);
    unsigned char *h = emu_host(MIB);
    struct caller c = {.d = d, .ptr = h, .fn = register_mib};
    size_t free_bytes, total;
    uint64_t until_ns;
    pthread_t thread;

    vv_device_host_set_register_rate(d, 100 * MIB); /* 10 ms */
    T_EQ(pthread_create(&thread, NULL, call, &c), 0);
    while (!(until_ns = emu_stats(d).stall_until_ns))
        vv_sleep_until_ns(vv_now_ns() + 50000);
    T_OK(vv_device_mem_info(d, &free_bytes, &total));
    T_CHECK(vv_now_ns() >= until_ns);
    T_EQ(pthread_join(thread, NULL), 0);
    T_OK(c.rc);
    T_OK(vv_device_host_unregister(d, h));
    T_EQ(munmap(h, MIB), 0);
    vv_device_close(d);
}

int main(void)
{
    T_RUN(options_are_checked);
    T_RUN(capacity_is_a_limit);
    T_RUN(guarded_pointers_cannot_be_used);
    T_RUN(guarded_pointers_fault);
    T_RUN(slices_are_crossed_in_parts);
    T_RUN(parts_add_up);
    T_RUN(device_ranges_cannot_be_left);
    T_RUN(pageable_copies_are_synchronous);
    T_RUN(free_and_unregister_wait_for_kernels);
    T_RUN(registering_stalls_other_calls);
    return t_done();
}
