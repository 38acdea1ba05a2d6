/* SPDX-License-Identifier: Apache-2.0 */
/* The emulated device's streams, events and the application's stream. Held kernels make the order
 * deterministic. */
#include "unit/device/emulated.h"

static struct vv_device *d;
static unsigned char *h; /* registered */

static void set_up(void)
{
    d = emu_open(16 * MIB, true);
    h = emu_host(MIB);
    T_OK(vv_device_host_register(d, h, MIB));
}

static void tear_down(void)
{
    T_EQ(emu_stats(d).n_pending, 0);
    T_EQ(emu_stats(d).n_streams, 0);
    T_EQ(emu_stats(d).n_events, 0);
    T_OK(vv_device_host_unregister(d, h));
    T_EQ(munmap(h, MIB), 0);
    vv_device_close(d);
}

struct write_kernel {
    unsigned char *at;
    unsigned char value;
    size_t bytes;
};

static void write_kernel(void *arg)
{
    const struct write_kernel *w = arg;

    memset(w->at, w->value, w->bytes);
}

/* A copy after after_app sees the application's kernel's writes; a copy without it does not have to
 * wait. */
static void after_app_orders(void)
{
    struct vv_stream *s, *free_s;
    struct vv_event *ev, *free_ev;
    unsigned char *p;
    struct write_kernel w;

    set_up();
    s = emu_stream(d);
    free_s = emu_stream(d);
    ev = emu_event(d);
    free_ev = emu_event(d);
    p = emu_alloc(d, 8192);
    w = (struct write_kernel){vv_device_host_map(d, p), 42, 4096};
    T_OK(vv_device_host_app_hold(d));
    T_OK(vv_device_host_app_run(d, write_kernel, &w));
    T_OK(vv_device_after_app(d, s));
    T_OK(emu_copy(d, s, h, p, 4096));
    T_OK(vv_device_event_record(d, ev, s));
    T_OK(emu_copy(d, free_s, h + 4096, p + 4096, 4096));
    T_OK(vv_device_event_record(d, free_ev, free_s));
    T_OK(vv_device_event_wait(d, free_ev, -1));
    T_ERR(vv_device_event_query(d, ev), -EBUSY);
    vv_device_host_app_release(d);
    T_OK(vv_device_event_wait(d, ev, -1));
    T_EQ(h[0], 42);
    T_EQ(h[4095], 42);
    vv_device_event_free(d, ev);
    vv_device_event_free(d, free_ev);
    vv_device_stream_free(d, s);
    vv_device_stream_free(d, free_s);
    tear_down();
}

/* Work that the application launches later does not delay work that was ordered before. */
static void after_app_means_so_far(void)
{
    struct vv_stream *s;
    struct vv_event *ev;

    set_up();
    s = emu_stream(d);
    ev = emu_event(d);
    T_OK(vv_device_host_app_launch(d, 1000));
    T_OK(vv_device_after_app(d, s));
    T_OK(vv_device_host_app_hold(d));
    T_OK(vv_device_event_record(d, ev, s));
    T_OK(vv_device_event_wait(d, ev, -1));
    vv_device_host_app_release(d);
    vv_device_event_free(d, ev);
    vv_device_stream_free(d, s);
    T_OK(vv_device_host_unregister(d, h)); /* waits for the kernel */
    T_OK(vv_device_host_register(d, h, MIB));
    tear_down();
}

/* Copies and events can be put on the application's stream too, and a held kernel holds them. */
static void app_stream_takes_copies(void)
{
    struct vv_stream *app;
    struct vv_event *ev;
    unsigned char *p;

    set_up();
    app = vv_device_host_app_stream(d);
    ev = emu_event(d);
    p = emu_alloc(d, 4096);
    memset(h, 7, 4096);
    T_OK(vv_device_host_app_hold(d));
    T_OK(vv_device_host_app_hold(d));
    T_OK(emu_copy(d, app, p, h, 4096));
    T_OK(emu_copy(d, app, h + 4096, p, 4096));
    T_OK(vv_device_event_record(d, ev, app));
    T_OK(vv_device_after_app(d, app));
    vv_device_host_app_release(d);
    T_ERR(vv_device_event_wait(d, ev, 1000000), -ETIMEDOUT);
    T_EQ(h[4096], 0);
    vv_device_host_app_release(d);
    T_OK(vv_device_event_wait(d, ev, -1));
    T_EQ(h[4096], 7);
    vv_device_event_free(d, ev);
    tear_down();
}

/* An event that is recorded again stands for the later work; earlier waits still apply to the earlier
 * recording. */
static void recording_again(void)
{
    struct vv_stream *held, *s, *waiter;
    struct vv_event *ev, *done;

    set_up();
    held = emu_stream(d);
    s = emu_stream(d);
    waiter = emu_stream(d);
    ev = emu_event(d);
    done = emu_event(d);
    T_OK(vv_device_host_app_hold(d));
    T_OK(vv_device_after_app(d, held));
    T_OK(vv_device_event_record(d, ev, held));
    T_OK(vv_device_stream_wait_event(d, waiter, ev));
    T_OK(vv_device_event_record(d, done, waiter));
    T_ERR(vv_device_event_query(d, ev), -EBUSY);
    T_OK(vv_device_event_record(d, ev, s));
    T_OK(vv_device_event_query(d, ev));
    T_ERR(vv_device_event_query(d, done), -EBUSY);
    vv_device_host_app_release(d);
    T_OK(vv_device_event_wait(d, done, -1));
    vv_device_event_free(d, ev);
    vv_device_event_free(d, done);
    vv_device_stream_free(d, held);
    vv_device_stream_free(d, s);
    vv_device_stream_free(d, waiter);
    tear_down();
}

/* One mark releases many streams, each of which releases the next, without recursion. */
static void long_chains(void)
{
    enum { N = 20000 };
    struct vv_stream *s[2];
    struct vv_event *ev;

    set_up();
    s[0] = emu_stream(d);
    s[1] = emu_stream(d);
    ev = emu_event(d);
    T_OK(vv_device_host_app_hold(d));
    T_OK(vv_device_after_app(d, s[0]));
    for (size_t i = 0; i < N; i++) {
        T_OK(vv_device_event_record(d, ev, s[i % 2]));
        T_OK(vv_device_stream_wait_event(d, s[(i + 1) % 2], ev));
    }
    T_OK(vv_device_event_record(d, ev, s[N % 2]));
    T_ERR(vv_device_event_query(d, ev), -EBUSY);
    vv_device_host_app_release(d);
    T_OK(vv_device_event_wait(d, ev, -1));
    vv_device_event_free(d, ev);
    vv_device_stream_free(d, s[0]);
    vv_device_stream_free(d, s[1]);
    tear_down();
}

/* The three directions do not wait for one another: each can finish while the others are busy. */
static void directions_are_independent(void)
{
    static const struct vv_device_host_rate slow = {.bytes_per_s = 1, .latency_ns = 0};
    static const struct vv_device_host_rate fast = {0};

    for (unsigned quick = 0; quick < VV_DEVICE_HOST_ENGINES; quick++) {
        struct vv_stream *s[VV_DEVICE_HOST_ENGINES];
        struct vv_event *ev[VV_DEVICE_HOST_ENGINES];
        unsigned char *p;

        set_up();
        p = emu_alloc(d, 16384);
        for (unsigned i = 0; i < VV_DEVICE_HOST_ENGINES; i++) {
            void *dst = i == VV_DEVICE_HOST_D2H ? h + 4096 : i == VV_DEVICE_HOST_H2D ? p : p + 4096;
            void *src = i == VV_DEVICE_HOST_H2D ? h + 8192 : p + 8192;

            vv_device_host_set_rate(d, (enum vv_device_host_engine)i, i == quick ? fast : slow);
            s[i] = emu_stream(d);
            ev[i] = emu_event(d);
            T_OK(emu_copy(d, s[i], dst, src, 4096));
            T_OK(vv_device_event_record(d, ev[i], s[i]));
        }
        T_OK(vv_device_event_wait(d, ev[quick], -1));
        for (unsigned i = 0; i < VV_DEVICE_HOST_ENGINES; i++) {
            T_ERR(vv_device_event_query(d, ev[i]), i == quick ? 0 : -EBUSY);
            vv_device_event_free(d, ev[i]);
            vv_device_stream_free(d, s[i]);
        }
        vv_device_close(d); /* does not wait the hour that the others would take */
        T_EQ(munmap(h, MIB), 0);
    }
}

/* Closing with a held kernel, streams, events and memory that were not freed. */
static void close_with_work_pending(void)
{
    struct vv_stream *s;
    struct vv_event *ev;
    unsigned char *p;

    set_up();
    s = emu_stream(d);
    ev = emu_event(d);
    p = emu_alloc(d, MIB);
    T_OK(vv_device_host_app_hold(d));
    T_OK(vv_device_after_app(d, s));
    T_OK(emu_copy(d, s, p, h, MIB));
    T_OK(vv_device_event_record(d, ev, s));
    vv_device_stream_free(d, emu_stream(d));
    vv_device_close(d);
    T_EQ(munmap(h, MIB), 0);
}

int main(void)
{
    T_RUN(after_app_orders);
    T_RUN(after_app_means_so_far);
    T_RUN(app_stream_takes_copies);
    T_RUN(recording_again);
    T_RUN(long_chains);
    T_RUN(directions_are_independent);
    T_RUN(close_with_work_pending);
    return t_done();
}
