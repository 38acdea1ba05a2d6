/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rates and latencies of the emulated device. Checked: work never ends before its time, and the engines' own clocks
 * add up. The difference from the exact time depends on the machine and is printed, not checked.
 */
#include "unit/device/emulated.h"

enum { DEPTH = 4 };

static const char *const engine_name[VV_DEVICE_HOST_ENGINES] = {"d2d", "d2h", "h2d"};

struct setup {
    struct vv_device *d;
    struct vv_stream *s;
    struct vv_event *ev[DEPTH];
    unsigned char *h;
    unsigned char *p;
    size_t bytes;
};

static void set_up(struct setup *u, size_t bytes, bool pin)
{
    u->d = emu_open(2 * bytes, false);
    u->bytes = bytes;
    u->s = emu_stream(u->d);
    for (size_t i = 0; i < DEPTH; i++)
        u->ev[i] = emu_event(u->d);
    u->h = emu_host(bytes);
    memset(u->h, 1, bytes);
    if (pin)
        T_OK(vv_device_host_register(u->d, u->h, bytes));
    u->p = emu_alloc(u->d, 2 * bytes);
}

static void tear_down(struct setup *u)
{
    T_EQ(emu_stats(u->d).n_pending, 0);
    for (size_t i = 0; i < DEPTH; i++)
        vv_device_event_free(u->d, u->ev[i]);
    vv_device_stream_free(u->d, u->s);
    vv_device_close(u->d);
    T_EQ(munmap(u->h, u->bytes), 0);
}

static void submit(struct setup *u, unsigned engine)
{
    void *dst = engine == VV_DEVICE_HOST_D2H ? u->h : u->p + u->bytes;
    void *src = engine == VV_DEVICE_HOST_H2D ? u->h : u->p;

    T_OK(emu_copy(u->d, u->s, dst, src, u->bytes));
}

/* Runs `n` batches, `depth` of them in flight; returns the time from the first submission to the last
 * event. */
static uint64_t run_batches(struct setup *u, unsigned engine, size_t n, size_t depth)
{
    uint64_t start_ns = vv_now_ns();

    for (size_t i = 0; i < n; i++) {
        if (i >= depth)
            T_OK(vv_device_event_wait(u->d, u->ev[i % depth], -1));
        submit(u, engine);
        T_OK(vv_device_event_record(u->d, u->ev[i % depth], u->s));
    }
    for (size_t i = 0; i < depth; i++)
        T_OK(vv_device_event_wait(u->d, u->ev[i], -1));
    return vv_now_ns() - start_ns;
}

static void check_rate(unsigned engine, size_t bytes, size_t n, size_t depth,
                       struct vv_device_host_rate rate)
{
    uint64_t want_ns =
        n * (rate.latency_ns + (uint64_t)((double)bytes * 1e9 / (double)rate.bytes_per_s));
    struct vv_device_host_stats st;
    uint64_t took_ns;
    struct setup u;

    set_up(&u, bytes, true);
    vv_device_host_set_rate(u.d, (enum vv_device_host_engine)engine, rate);
    took_ns = run_batches(&u, engine, n, depth);
    st = emu_stats(u.d);
    T_CHECK(took_ns >= want_ns);
    T_EQ(st.engine[engine].batches, n);
    T_EQ(st.engine[engine].bytes, n * bytes);
    T_EQ(st.engine[engine].busy_ns, want_ns);
    t_note("%s %5zu KiB at %5.0f MB/s + %3llu us, %zu in flight: %+.2f%%", engine_name[engine],
           bytes / KIB, (double)rate.bytes_per_s / 1e6,
           (unsigned long long)(rate.latency_ns / 1000), depth,
           100.0 * ((double)took_ns / (double)want_ns - 1.0));
    tear_down(&u);
}

static void rates_hold(void)
{
    static const size_t sizes[] = {4 * KIB, 64 * KIB, 256 * KIB, 1 * MIB, 8 * MIB};
    static const uint64_t rates[] = {UINT64_C(4000000000), UINT64_C(400000000)};

    for (unsigned e = 0; e < VV_DEVICE_HOST_ENGINES; e++) {
        for (size_t i = 0; i < VV_ARRAY_SIZE(sizes); i++) {
            for (size_t k = 0; k < VV_ARRAY_SIZE(rates); k++) {
                /* About 25 ms each. */
                size_t n = VV_MAX(rates[k] / 40 / sizes[i], 2);

                check_rate(e, sizes[i], n, DEPTH, (struct vv_device_host_rate){rates[k], 0});
            }
        }
    }
    check_rate(VV_DEVICE_HOST_D2H, 256 * KIB, 200, 2,
               (struct vv_device_host_rate){UINT64_C(4000000000), 20000});
    check_rate(VV_DEVICE_HOST_D2H, 256 * KIB, 200, 1,
               (struct vv_device_host_rate){UINT64_C(4000000000), 0});
    check_rate(VV_DEVICE_HOST_D2H, 8 * MIB, 8, 1,
               (struct vv_device_host_rate){UINT64_C(4000000000), 0});
}

static void latency_alone(void)
{
    struct setup u;

    set_up(&u, 4096, true);
    vv_device_host_set_rate(u.d, VV_DEVICE_HOST_H2D,
                            (struct vv_device_host_rate){.latency_ns = 500000});
    T_CHECK(run_batches(&u, VV_DEVICE_HOST_H2D, 10, DEPTH) >= 10 * 500000);
    tear_down(&u);
}

static void pageable_copies_have_their_rate(void)
{
    uint64_t start_ns;
    struct setup u;

    set_up(&u, MIB, false);
    vv_device_host_set_pageable_rate(u.d, 200 * MIB);
    start_ns = vv_now_ns();
    submit(&u, VV_DEVICE_HOST_H2D);
    T_CHECK(vv_now_ns() - start_ns >= 5000000);
    T_EQ(emu_stats(u.d).engine[VV_DEVICE_HOST_H2D].busy_ns, 5000000);
    /* Copies between device addresses are never pageable. */
    submit(&u, VV_DEVICE_HOST_D2D);
    T_OK(vv_device_event_record(u.d, u.ev[0], u.s));
    T_OK(vv_device_event_wait(u.d, u.ev[0], -1));
    tear_down(&u);
}

/* Two streams on one engine share its rate. */
static void streams_share_an_engine(void)
{
    struct vv_stream *other;
    struct vv_event *ev;
    uint64_t start_ns;
    struct setup u;

    set_up(&u, MIB, true);
    other = emu_stream(u.d);
    ev = emu_event(u.d);
    vv_device_host_set_rate(u.d, VV_DEVICE_HOST_H2D,
                            (struct vv_device_host_rate){.bytes_per_s = 500 * MIB});
    start_ns = vv_now_ns();
    for (int i = 0; i < 5; i++) {
        submit(&u, VV_DEVICE_HOST_H2D);
        T_OK(emu_copy(u.d, other, u.p, u.h, MIB));
    }
    T_OK(vv_device_event_record(u.d, u.ev[0], u.s));
    T_OK(vv_device_event_record(u.d, ev, other));
    T_OK(vv_device_event_wait(u.d, u.ev[0], -1));
    T_OK(vv_device_event_wait(u.d, ev, -1));
    T_CHECK(vv_now_ns() - start_ns >= 20000000);
    vv_device_event_free(u.d, ev);
    vv_device_stream_free(u.d, other);
    tear_down(&u);
}

static void kernels_take_their_time(void)
{
    struct vv_event *ev;
    struct setup u;
    uint64_t start_ns;

    set_up(&u, 4096, true);
    ev = u.ev[0];
    start_ns = vv_now_ns();
    T_OK(vv_device_host_app_launch(u.d, 2000000));
    T_OK(vv_device_host_app_launch(u.d, 3000000));
    T_OK(vv_device_after_app(u.d, u.s));
    T_OK(vv_device_event_record(u.d, ev, u.s));
    T_OK(vv_device_event_wait(u.d, ev, -1));
    T_CHECK(vv_now_ns() - start_ns >= 5000000);
    tear_down(&u);
}

int main(void)
{
    T_RUN(rates_hold);
    T_RUN(latency_alone);
    T_RUN(pageable_copies_have_their_rate);
    T_RUN(streams_share_an_engine);
    T_RUN(kernels_take_their_time);
    return t_done();
}
