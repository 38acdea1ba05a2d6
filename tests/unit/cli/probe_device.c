/* SPDX-License-Identifier: Apache-2.0 */
/* Every loop runs on the emulated device, at the set rates as far as they can be measured, and leaves no memory on
 * it, also after an error. */
#include "cli/measure/probe_device.h"

#include <math.h>

#include "device/host/host.h"
#include "t.h"

#define BYTES ((size_t)2 << 20)

static struct vv_device *open_device(void)
{
    struct vv_device_host_opts o;
    struct vv_device *d;

    vv_device_host_opts_init(&o);
    o.capacity_bytes = 64 << 20;
    o.lazy = true;
    T_OK(vv_device_open_host(&o, &d));
    return d;
}

static void check_empty(struct vv_device *d)
{
    struct vv_device_host_stats s;

    vv_device_host_stats(d, &s);
    T_EQ(s.n_allocs, 0);
    T_EQ(s.n_slices, 0);
    T_EQ(s.n_events, 0);
    T_EQ(s.n_pending, 0);
}

/* Every loop once. */
static int run_all(struct probe_device *p)
{
    struct probe_pin_opts pin = {
        .bytes = 3 << 19, .slice_bytes = 1 << 19, .pause_ns = 1000, .threads = 2};
    struct probe_copies copies;
    struct probe_pin pinned;
    double bps = 0;
    int rc = probe_device_copy(p, 0.001, 0, &copies);

    if (rc == 0)
        T_CHECK(copies.bps > 0 && copies.median_ns > 0 && copies.worst_ns >= copies.median_ns);
    if (rc == 0)
        rc = probe_device_copy_stream(p, 0.001, &bps);
    for (int dirs = 1; rc == 0 && dirs <= 3; dirs++) {
        static const size_t sizes[] = {BYTES, 1 << 20, 256 << 10};

        for (size_t i = 0; rc == 0 && i < VV_ARRAY_SIZE(sizes); i++) {
            struct probe_link_opts o = {
                .down = dirs & 1, .up = (dirs & 2) != 0, .seg_bytes = sizes[i], .seconds = 0.001};

            bps = -1;
            rc = probe_device_link(p, &o, &bps);
            if (rc == 0)
                T_CHECK(isfinite(bps) && bps > 0);
        }
    }
    if (rc == 0)
        rc = probe_device_pageable(p, true, 0.001, &bps);
    if (rc == 0)
        rc = probe_device_pageable(p, false, 0.001, &bps);
    if (rc == 0)
        rc = probe_device_pin(p, &pin, &pinned);
    if (rc == 0)
        T_CHECK(pinned.pin_bps > 0 && pinned.unpin_bps > 0 && pinned.worst_copy_ns > 0);
    return rc;
}

static void loops(void)
{
    struct vv_device *d = open_device();
    struct vv_device_host_stats s;
    struct probe_device *p;
    struct probe_copies copies;

    T_OK(probe_device_new(d, BYTES, &p));
    T_OK(run_all(p));
    T_OK(probe_device_copy(p, 0, 1000, &copies));
    T_CHECK(copies.median_ns > 0 && copies.worst_ns >= copies.median_ns);
    vv_device_host_stats(d, &s);
    for (int e = 0; e < VV_DEVICE_HOST_ENGINES; e++)
        T_CHECK(s.engine[e].bytes >= BYTES);
    probe_device_free(p);
    check_empty(d);
    vv_device_close(d);
}

/* A device with an exact rate is not measured at more than that. */
static void rates(void)
{
    static const uint64_t rate = 400000000;
    struct vv_device *d = open_device();
    struct probe_link_opts o = {.down = true, .seg_bytes = 256 << 10, .seconds = 0.05};
    struct probe_device *p;
    double bps;

    vv_device_host_set_rate(d, VV_DEVICE_HOST_D2H,
                            (struct vv_device_host_rate){.bytes_per_s = rate});
    T_OK(probe_device_new(d, BYTES, &p));
    T_OK(probe_device_link(p, &o, &bps));
    T_CHECK(bps > 0 && bps <= 1.01 * (double)rate);
    probe_device_free(p);
    vv_device_close(d);
}

static void bad_input(void)
{
    struct vv_device *d = open_device();
    struct probe_link_opts o = {.down = true, .seg_bytes = 1 << 20};
    struct probe_pin_opts pin = {.bytes = 1 << 20, .slice_bytes = 0, .threads = 1};
    struct probe_device *p;
    struct probe_pin pinned;
    struct probe_copies copies;
    double bps = -1;

    T_ERR(probe_device_new(d, 0, &p), -EINVAL);
    T_ERR(probe_device_new(d, 1000, &p), -EINVAL);
    T_ERR(probe_device_new(d, (size_t)128 << 20, &p), -ENOMEM);
    check_empty(d);
    T_OK(probe_device_new(d, BYTES, &p));
    o.down = false;
    T_ERR(probe_device_link(p, &o, &bps), -EINVAL);
    o.down = true;
    o.seg_bytes = 3 << 19;
    T_ERR(probe_device_link(p, &o, &bps), -EINVAL);
    o.seg_bytes = 4096; /* more segments than a batch has room for */
    T_ERR(probe_device_link(p, &o, &bps), -EINVAL);
    T_ERR(probe_device_copy(p, NAN, 0, &copies), -EINVAL);
    T_ERR(probe_device_pin(p, &pin, &pinned), -EINVAL);
    T_CHECK(bps == -1);
    probe_device_free(p);
    probe_device_free(NULL);
    check_empty(d);
    vv_device_close(d);
}

/* The nth call of each operation fails: the probe returns the error, and no memory stays. */
static void failures(void)
{
    static const enum vv_device_op ops[] = {
        VV_DEVICE_OP_MEM_ALLOC,  VV_DEVICE_OP_HOST_REGISTER, VV_DEVICE_OP_STREAM_NEW,
        VV_DEVICE_OP_EVENT_NEW,  VV_DEVICE_OP_COPY_ASYNC,    VV_DEVICE_OP_EVENT_RECORD,
        VV_DEVICE_OP_EVENT_WAIT,
    };

    for (size_t i = 0; i < VV_ARRAY_SIZE(ops); i++) {
        for (uint64_t nth = 1; nth <= 32; nth = nth < 4 ? nth + 1 : 2 * nth) {
            struct vv_device *d = open_device();
            struct probe_device *p = NULL;
            int rc;

            T_OK(vv_device_host_fail(d, ops[i], nth, 1, -EIO));
            rc = probe_device_new(d, BYTES, &p);
            if (rc == 0)
                rc = run_all(p);
            T_CHECK(rc == 0 || rc == -EIO);
            if (nth == 1)
                T_ERR(rc, -EIO);
            probe_device_free(p);
            check_empty(d);
            vv_device_close(d);
        }
    }
}

static void lost(void)
{
    for (uint64_t nth = 1; nth <= 40; nth += 3) {
        struct vv_device *d = open_device();
        struct probe_device *p = NULL;
        int rc;

        T_OK(vv_device_host_lose_at(d, VV_DEVICE_OP_ANY, nth));
        rc = probe_device_new(d, BYTES, &p);
        if (rc == 0)
            rc = run_all(p);
        T_ERR(rc, -ENODEV);
        probe_device_free(p);
        vv_device_close(d);
    }
}

int main(void)
{
    T_RUN(loops);
    T_RUN(rates);
    T_RUN(bad_input);
    T_RUN(failures);
    T_RUN(lost);
    return t_done();
}
