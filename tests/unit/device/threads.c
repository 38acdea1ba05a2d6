/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many threads on one emulated device, each with its own streams, events and memory: they copy back and forth and
 * check the result; in a second run the device is lost meanwhile. And several threads wait for one event. Meant for
 * ThreadSanitizer.
 */
#include <pthread.h>

#include "unit/device/emulated.h"

enum { THREADS = 4 };

static struct vv_device *d;

struct worker {
    unsigned id;
    uint64_t seed;
    size_t rounds;
    bool may_lose;
    size_t n_lost;
};

#define BLOCK (64 * KIB)
#define SLOTS ((size_t)6)

/* One round of SLOTS blocks: host, device, device in reverse, host. Stops at the first error. */
static int trip(unsigned char *in, unsigned char *out, char *p, struct vv_stream *s[2],
                struct vv_event *ev)
{
    struct vv_copy_seg segs[SLOTS];
    char *q = p + SLOTS * BLOCK;
    int rc;

    for (size_t i = 0; i < SLOTS; i++)
        segs[i] = (struct vv_copy_seg){p + i * BLOCK, in + i * BLOCK, BLOCK};
    rc = vv_device_copy_async(d, s[0], segs, SLOTS);
    for (size_t i = 0; i < SLOTS; i++)
        segs[i] = (struct vv_copy_seg){q + (SLOTS - 1 - i) * BLOCK, p + i * BLOCK, BLOCK};
    if (!rc)
        rc = vv_device_copy_async(d, s[0], segs, SLOTS);
    if (!rc)
        rc = vv_device_event_record(d, ev, s[0]);
    if (!rc)
        rc = vv_device_stream_wait_event(d, s[1], ev);
    for (size_t i = 0; i < SLOTS; i++)
        segs[i] = (struct vv_copy_seg){out + i * BLOCK, q + i * BLOCK, BLOCK};
    if (!rc)
        rc = vv_device_copy_async(d, s[1], segs, SLOTS);
    if (!rc)
        rc = vv_device_event_record(d, ev, s[1]);
    if (!rc)
        rc = vv_device_event_wait(d, ev, -1);
    return rc;
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct t_rng rng = {w->seed};
    size_t bytes = SLOTS * BLOCK;

    for (size_t round = 0; round < w->rounds && !w->n_lost; round++) {
        unsigned char *in = emu_host(bytes), *out = emu_host(bytes);
        struct vv_stream *s[2] = {NULL, NULL};
        struct vv_event *ev = NULL;
        void *p = NULL;
        int rc = 0;

        for (size_t i = 0; i < bytes; i += 64)
            in[i] = (unsigned char)t_rng_u64(&rng);
        if (round % 3)
            rc = vv_device_host_register(d, in, bytes);
        if (!rc && round % 2)
            rc = vv_device_host_register(d, out, bytes);
        if (!rc)
            rc = vv_device_mem_alloc(d, 2 * bytes, &p);
        for (int i = 0; i < 2 && !rc; i++)
            rc = vv_device_stream_new(d, &s[i]);
        if (!rc)
            rc = vv_device_event_new(d, &ev);
        if (!rc)
            rc = trip(in, out, p, s, ev);
        for (size_t i = 0; i < bytes && !rc; i += 64)
            T_EQ(out[(SLOTS - 1 - i / BLOCK) * BLOCK + i % BLOCK], in[i]);
        vv_device_event_free(d, ev);
        vv_device_stream_free(d, s[0]);
        vv_device_stream_free(d, s[1]);
        if (!rc)
            rc = vv_device_mem_free(d, p);
        if (!rc && round % 3)
            rc = vv_device_host_unregister(d, in);
        if (!rc && round % 2)
            rc = vv_device_host_unregister(d, out);
        T_EQ(munmap(in, bytes), 0);
        T_EQ(munmap(out, bytes), 0);
        if (w->may_lose && rc == -ENODEV)
            w->n_lost++;
        else
            T_OK(rc);
    }
    return NULL;
}

static void run(uint64_t lose_at)
{
    struct worker w[THREADS];
    pthread_t thread[THREADS];

    d = emu_open(32 * MIB, false);
    vv_device_host_set_rate(d, VV_DEVICE_HOST_D2H,
                            (struct vv_device_host_rate){UINT64_C(4000000000), 1000});
    vv_device_host_set_register_rate(d, UINT64_C(40000000000));
    if (lose_at)
        T_OK(vv_device_host_lose_at(d, VV_DEVICE_OP_ANY, lose_at));
    for (unsigned i = 0; i < THREADS; i++) {
        w[i] = (struct worker){i, t_seed() + i, t_long() ? 1000 : 40, lose_at != 0, 0};
        T_EQ(pthread_create(&thread[i], NULL, work, &w[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        T_EQ(pthread_join(thread[i], NULL), 0);
        T_EQ(w[i].n_lost, lose_at != 0);
    }
    if (!lose_at) {
        struct vv_device_host_stats st = emu_stats(d);

        T_EQ(st.n_allocs + st.n_slices + st.n_streams + st.n_events + st.n_pending, 0);
    }
    vv_device_close(d);
}

static void together(void)
{
    run(0);
}

static void lost_under_their_hands(void)
{
    for (uint64_t at = 1; at < 400; at += 37)
        run(at);
}

static void *wait_for_event(void *ev)
{
    T_OK(vv_device_event_wait(d, ev, -1));
    return NULL;
}

/* More threads wait for one event than there are changes when it is done: the end of the kernel and the record. A
 * call is counted and begins to wait under one lock, so all of them wait when all are counted. */
static void every_waiter_wakes(void)
{
    pthread_t thread[8];
    struct vv_event *ev;

    d = emu_open(MIB, false);
    ev = emu_event(d);
    T_OK(vv_device_host_app_hold(d));
    T_OK(vv_device_event_record(d, ev, vv_device_host_app_stream(d)));
    for (size_t i = 0; i < VV_ARRAY_SIZE(thread); i++)
        T_EQ(pthread_create(&thread[i], NULL, wait_for_event, ev), 0);
    while (emu_stats(d).calls[VV_DEVICE_OP_EVENT_WAIT] < VV_ARRAY_SIZE(thread))
        vv_sleep_until_ns(vv_now_ns() + 50000);
    vv_device_host_app_release(d);
    for (size_t i = 0; i < VV_ARRAY_SIZE(thread); i++)
        T_EQ(pthread_join(thread[i], NULL), 0);
    vv_device_event_free(d, ev);
    vv_device_close(d);
}

int main(void)
{
    T_RUN(every_waiter_wakes);
    T_RUN(together);
    T_RUN(lost_under_their_hands);
    return t_done();
}
