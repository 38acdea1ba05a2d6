/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our kernels and the application's streams on the emulated device: words equal the processor's, every wrong byte is
 * counted, in the order of the stream, and bad arguments are refused.
 */
#include "base/hash.h"
#include "base/pattern.h"
#include "device/host/host.h"
#include "emulated.h"

#define SEED    7
#define VERSION 11

static struct vv_device *dev;
static struct vv_stream *s;
static struct vv_event *ev;

static void set_up(void)
{
    dev = emu_open(8 * MIB, true);
    s = emu_stream(dev);
    ev = emu_event(dev);
}

static void tear_down(void)
{
    vv_device_event_free(dev, ev);
    vv_device_stream_free(dev, s);
    T_EQ(emu_stats(dev).n_streams, 0);
    vv_device_close(dev);
}

static void finish(struct vv_stream *stream)
{
    T_OK(vv_device_event_record(dev, ev, stream));
    T_OK(vv_device_event_wait(dev, ev, -1));
}

static struct vv_kernel kernel(enum vv_kernel_kind kind, void *ptr, size_t bytes, uint64_t *bad)
{
    return (struct vv_kernel){
        .kind = kind, .ptr = ptr, .bytes = bytes, .seed = SEED, .version = VERSION, .bad = bad};
}

static void fills_and_counts(void)
{
    unsigned char *p, *map;
    uint64_t *bad, *count;
    struct vv_kernel k;

    set_up();
    p = emu_alloc(dev, MIB);
    bad = emu_alloc(dev, 8);
    map = vv_device_host_map(dev, p);
    count = vv_device_host_map(dev, bad);

    memset(map, 0xee, MIB);
    k = kernel(VV_KERNEL_FILL, p, 100003, NULL);
    k.offset = 4096;
    T_OK(vv_device_launch(dev, s, &k));
    finish(s);
    T_CHECK(vv_pattern_verify(map, 100003, SEED, VERSION, 4096, NULL));
    T_EQ(map[100003], 0xee);

    k.kind = VV_KERNEL_VERIFY;
    k.bad = bad;
    T_OK(vv_device_launch(dev, s, &k));
    finish(s);
    T_EQ(*count, 0);
    map[0] ^= 1;
    map[77777] ^= 0x80;
    map[100002] ^= 0xff;
    T_OK(vv_device_launch(dev, s, &k));
    T_OK(vv_device_launch(dev, s, &k));
    finish(s);
    T_EQ(*count, 6); /* it adds */

    /* Zero bytes are valid, at the very end of an allocation too. */
    k.bytes = 0;
    k.ptr = p + MIB - 16;
    T_OK(vv_device_launch(dev, s, &k));
    finish(s);
    T_EQ(*count, 6);
    tear_down();
}

static void in_stream_order(void)
{
    unsigned char *p, *q;
    uint64_t *bad, *count;
    struct vv_kernel fill, spin = {.kind = VV_KERNEL_SPIN, .ns = VV_NS_PER_MS}, verify;

    set_up();
    p = emu_alloc(dev, MIB);
    q = emu_alloc(dev, MIB);
    bad = emu_alloc(dev, 8);
    count = vv_device_host_map(dev, bad);
    fill = kernel(VV_KERNEL_FILL, p, MIB, NULL);
    verify = kernel(VV_KERNEL_VERIFY, q, MIB, bad);
    T_OK(vv_device_launch(dev, s, &spin));
    T_OK(vv_device_launch(dev, s, &fill));
    T_OK(emu_copy(dev, s, q, p, MIB));
    T_OK(vv_device_launch(dev, s, &verify));
    finish(s);
    T_EQ(*count, 0);
    T_CHECK(vv_pattern_verify(vv_device_host_map(dev, q), MIB, SEED, VERSION, 0, NULL));
    tear_down();
}

static void hashes(void)
{
    static const size_t length[] = {0, 1, 7, 16, 100, 240, 241, 4096, 65536, 65537};
    struct vv_kernel_span spans[VV_ARRAY_SIZE(length)];
    unsigned char *p, *map;
    uint64_t *sums, *got;
    size_t at = 0;

    set_up();
    p = emu_alloc(dev, MIB);
    sums = emu_alloc(dev, VV_KERNEL_SPANS * sizeof(*sums));
    map = vv_device_host_map(dev, p);
    got = vv_device_host_map(dev, sums);
    struct vv_kernel fill = kernel(VV_KERNEL_FILL, p, MIB, NULL);
    struct vv_kernel k = {
        .kind = VV_KERNEL_HASH, .spans = spans, .n_spans = VV_ARRAY_SIZE(length), .sums = sums};

    for (size_t i = 0; i < VV_ARRAY_SIZE(length); i++) {
        spans[i] = (struct vv_kernel_span){p + at, length[i]};
        at += (length[i] + 7) / 8 * 8;
    }
    T_OK(vv_device_launch(dev, s, &fill));
    T_OK(vv_device_launch(dev, s, &k));
    memset(spans, 0, sizeof(spans)); /* the call has copied them */
    finish(s);
    at = 0;
    for (size_t i = 0; i < VV_ARRAY_SIZE(length); i++) {
        T_EQ(got[i], vv_hash64(map + at, length[i]));
        at += (length[i] + 7) / 8 * 8;
    }
    spans[0] = (struct vv_kernel_span){p, MIB + 1};
    k.n_spans = 1;
    T_EQ(vv_device_launch(dev, s, &k), -EFAULT);
    spans[0] = (struct vv_kernel_span){p + 4, 16};
    T_EQ(vv_device_launch(dev, s, &k), -EINVAL);
    spans[0] = (struct vv_kernel_span){p, 16};
    k.sums = sums + VV_KERNEL_SPANS;
    T_CHECK(vv_device_launch(dev, s, &k) < 0);
    k.sums = sums;
    k.n_spans = VV_KERNEL_SPANS + 1;
    T_EQ(vv_device_launch(dev, s, &k), -EINVAL);
    k.n_spans = 0;
    T_EQ(vv_device_launch(dev, s, &k), -EINVAL);
    tear_down();
}

static void refuses(void)
{
    static uint64_t in_host[4];
    unsigned char *p;
    uint64_t *bad;
    struct vv_kernel k;

    set_up();
    p = emu_alloc(dev, MIB);
    bad = emu_alloc(dev, 8);
    k = kernel(VV_KERNEL_FILL, p + 8, 16, NULL);
    T_EQ(vv_device_launch(dev, s, &k), -EINVAL);
    k = kernel(VV_KERNEL_FILL, p, MIB + 1, NULL);
    T_EQ(vv_device_launch(dev, s, &k), -EFAULT);
    k = kernel(VV_KERNEL_FILL, in_host, 16, NULL);
    T_EQ(vv_device_launch(dev, s, &k), -EINVAL);
    k = kernel(VV_KERNEL_FILL, p, 16, NULL);
    k.offset = 4;
    T_EQ(vv_device_launch(dev, s, &k), -EINVAL);
    k = kernel(VV_KERNEL_VERIFY, p, 16, in_host);
    T_EQ(vv_device_launch(dev, s, &k), -EINVAL);
    k = kernel(VV_KERNEL_VERIFY, p, 16, (uint64_t *)(void *)((char *)bad + 4));
    T_EQ(vv_device_launch(dev, s, &k), -EINVAL);
    k.kind = (enum vv_kernel_kind)99;
    T_EQ(vv_device_launch(dev, s, &k), -EINVAL);
    tear_down();
}

static void lost_with_kernels_pending(void)
{
    struct vv_kernel k;
    unsigned char *p;

    set_up();
    p = emu_alloc(dev, MIB);
    k = kernel(VV_KERNEL_FILL, p, MIB, NULL);
    T_OK(vv_device_host_app_hold(dev));
    T_OK(vv_device_launch(dev, s, &k));
    T_OK(vv_device_event_record(dev, ev, s));
    vv_device_host_lose(dev);
    T_EQ(vv_device_event_wait(dev, ev, -1), -ENODEV);
    T_EQ(vv_device_launch(dev, s, &k), -ENODEV);
    tear_down();
}

static void adopts_the_legacy_stream(void)
{
    struct vv_stream *app = NULL, *again = NULL;
    unsigned char *p;
    struct vv_kernel k;

    set_up();
    p = emu_alloc(dev, MIB);
    k = kernel(VV_KERNEL_FILL, p, MIB, NULL);
    T_OK(vv_device_stream_adopt(dev, NULL, &app));
    T_CHECK(app == vv_device_host_app_stream(dev));
    T_OK(vv_device_stream_adopt(dev, NULL, &again));
    T_EQ(emu_stats(dev).n_streams, 3);
    T_OK(vv_device_host_app_hold(dev));
    T_OK(vv_device_launch(dev, app, &k));
    T_OK(vv_device_event_record(dev, ev, app));
    T_EQ(vv_device_event_query(dev, ev), -EBUSY);
    vv_device_stream_free(dev, app);
    vv_device_stream_free(dev, again);
    vv_device_host_app_release(dev);
    T_OK(vv_device_event_wait(dev, ev, -1));
    T_CHECK(vv_pattern_verify(vv_device_host_map(dev, p), MIB, SEED, VERSION, 0, NULL));
    tear_down();
}

static void adopts_other_streams(void)
{
    struct vv_stream *mine = NULL, *none = NULL;
    void *native;
    int no_stream;

    set_up();
    T_OK(vv_device_host_native_new(dev, &native));
    T_EQ(vv_device_stream_adopt(dev, &no_stream, &none), -EINVAL);
    T_EQ(vv_device_stream_adopt(dev, s, &none), -EINVAL); /* our own stream cannot be adopted */
    vv_device_host_native_capture(dev, native, true);
    T_EQ(vv_device_stream_adopt(dev, native, &none), -EBUSY);
    T_CHECK(!none);
    vv_device_host_native_capture(dev, native, false);
    T_OK(vv_device_stream_adopt(dev, native, &mine));
    T_OK(vv_device_host_native_hold(dev, native));
    T_OK(vv_device_event_record(dev, ev, mine));
    T_EQ(vv_device_event_query(dev, ev), -EBUSY);
    vv_device_stream_free(dev, mine);
    vv_device_host_native_free(dev, native); /* with work pending, as drivers allow */
    T_EQ(vv_device_stream_adopt(dev, native, &none), -EINVAL);
    vv_device_host_app_release(dev);
    T_OK(vv_device_event_wait(dev, ev, -1));
    vv_device_host_native_free(dev, NULL);
    tear_down();
}

static void tells_what_it_is(void)
{
    struct vv_device_info info;
    const char *name = NULL;

    set_up();
    vv_device_describe(dev, &info);
    T_CHECK(info.kernels && info.name[0] && !info.pci_bus_id[0]);
    vv_device_host_lose(dev);
    vv_device_describe(dev, &info);
    T_EQ(vv_device_last_code(dev, &name), 0);
    T_STREQ(name, "");
    tear_down();
}

int main(void)
{
    T_RUN(fills_and_counts);
    T_RUN(in_stream_order);
    T_RUN(hashes);
    T_RUN(refuses);
    T_RUN(lost_with_kernels_pending);
    T_RUN(adopts_the_legacy_stream);
    T_RUN(adopts_other_streams);
    T_RUN(tells_what_it_is);
    return t_done();
}
