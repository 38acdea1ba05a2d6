/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our kernels on the CUDA backend: over the stand-in driver, or on a GPU with VARVE_TEST_DEVICE=cuda. Contents equal
 * the processor's, wrong bytes are counted, and copies of one and of many segments of every size and alignment are
 * right, byte for byte.
 */
#include <stdlib.h>

#include "base/hash.h"
#include "base/pattern.h"
#include "device/cuda/cuda.h"
#include "device/cuda/gather.h"
#include "t.h"
#include "t_cuda.h"

#define MIB ((size_t)1 << 20)

static struct vv_device *dev;
static struct vv_stream *s;
static struct vv_event *ev;

static void set_up(bool old)
{
    struct vv_device_cuda_opts opts = {.index = 0};
    struct vv_device_info info;
    char err[256] = "";

    if (!t_device_is_cuda())
        opts.library = t_fake_path(old);
    if (vv_device_open_cuda(&opts, err, sizeof(err), &dev))
        t_fail(__FILE__, __LINE__, "%s", err);
    vv_device_describe(dev, &info);
    if (!info.kernels)
        T_SKIP("kernels were not built");
    T_OK(vv_device_stream_new(dev, &s));
    T_OK(vv_device_event_new(dev, &ev));
}

static void tear_down(void)
{
    vv_device_event_free(dev, ev);
    vv_device_stream_free(dev, s);
    vv_device_close(dev);
}

static void finish(void)
{
    T_OK(vv_device_event_record(dev, ev, s));
    T_OK(vv_device_event_wait(dev, ev, -1));
}

static void copy(void *dst, const void *src, size_t bytes)
{
    T_OK(vv_device_copy_async(dev, s, &(struct vv_copy_seg){dst, src, bytes}, 1));
    finish();
}

static void *alloc(size_t bytes)
{
    void *p;

    T_OK(vv_device_mem_alloc(dev, bytes, &p));
    return p;
}

static void launch(enum vv_kernel_kind kind, void *ptr, size_t bytes, uint64_t *bad)
{
    struct vv_kernel k = {.kind = kind,
                          .ptr = ptr,
                          .bytes = bytes,
                          .seed = 3,
                          .version = 9,
                          .offset = 64,
                          .bad = bad};

    T_OK(vv_device_launch(dev, s, &k));
    finish();
}

static void fills_and_counts(void)
{
    static const size_t lengths[] = {0, 1, 8, 15, 16, 17, 100003, MIB / 2, MIB / 2 - 5};
    unsigned char *host = malloc(MIB), *p;
    uint64_t *bad, count = 0, want = 0;

    set_up(false);
    p = alloc(MIB);
    bad = alloc(8);
    T_CHECK(host);
    copy(bad, &count, 8);
    for (size_t i = 0; i < VV_ARRAY_SIZE(lengths); i++) {
        size_t n = lengths[i];

        memset(host, 0xee, MIB);
        copy(p, host, MIB);
        launch(VV_KERNEL_FILL, p, n, NULL);
        copy(host, p, MIB);
        T_CHECK(vv_pattern_verify(host, n, 3, 9, 64, NULL));
        T_EQ(host[n], 0xee);
        launch(VV_KERNEL_VERIFY, p, n, bad);
        copy(&count, bad, 8);
        T_EQ(count, want);
        if (n == 0)
            continue;
        host[0] ^= 0x10;
        host[n / 2] ^= 0x01;
        host[n - 1] ^= 0x80;
        copy(p, host, MIB);
        launch(VV_KERNEL_VERIFY, p, n, bad);
        copy(&count, bad, 8);
        want += vv_pattern_count_bad(host, n, 3, 9, 64);
        T_EQ(count, want);
    }
    T_CHECK(want > 0);
    launch(VV_KERNEL_SPIN, NULL, 0, NULL);
    free(host);
    tear_down();
}

/* Checksums equal the processor's, for every kind of length: up to the limit of the short ones, around blocks of 1
 * KiB, and with more blocks than a tile of the kernel has. */
static void hashes(void)
{
    static const size_t lengths[] = {
        0,   1,    3,    4,    8,    9,     16,    17,        128,           129,   240,
        241, 1024, 1025, 4096, 5000, 65536, 65543, 256 << 10, 256 << 10 | 1, 700001};
    enum { N = VV_ARRAY_SIZE(lengths) };
    struct vv_kernel_span spans[N];
    struct vv_kernel k = {.kind = VV_KERNEL_HASH, .spans = spans, .n_spans = N};
    uint64_t sums[N + 1], guard = 0x5555;
    unsigned char *host = malloc(2 * MIB), *p;
    size_t at = 0;

    set_up(false);
    p = alloc(2 * MIB);
    k.sums = alloc(sizeof(sums));
    T_CHECK(host);
    for (size_t i = 0; i < 2 * MIB; i++)
        host[i] = (unsigned char)(i * 131 + (i >> 8) * 29);
    copy(p, host, 2 * MIB);
    copy(k.sums + N, &guard, sizeof(guard));
    for (size_t i = 0; i < N; i++) {
        spans[i] = (struct vv_kernel_span){p + at, lengths[i]};
        at += (lengths[i] + 7) / 8 * 8;
    }
    T_CHECK(at <= 2 * MIB);
    T_OK(vv_device_launch(dev, s, &k));
    memset(spans, 0, sizeof(spans)); /* the call has copied them */
    finish();
    copy(sums, k.sums, sizeof(sums));
    at = 0;
    for (size_t i = 0; i < N; i++) {
        T_EQ(sums[i], vv_hash64(host + at, lengths[i]));
        at += (lengths[i] + 7) / 8 * 8;
    }
    T_EQ(sums[N], guard);

    spans[0] = (struct vv_kernel_span){p, 2 * MIB + 1};
    k.n_spans = 1;
    T_ERR(vv_device_launch(dev, s, &k), -EFAULT);
    spans[0] = (struct vv_kernel_span){p + 4, 16};
    T_ERR(vv_device_launch(dev, s, &k), -EINVAL);
    spans[0] = (struct vv_kernel_span){host, 16};
    T_ERR(vv_device_launch(dev, s, &k), -EINVAL);
    k.n_spans = VV_KERNEL_SPANS + 1;
    T_ERR(vv_device_launch(dev, s, &k), -EINVAL);
    finish();
    free(host);
    tear_down();
}

static void refuses(void)
{
    static uint64_t in_host[4];
    unsigned char *p;
    struct vv_kernel k = {.kind = VV_KERNEL_FILL, .bytes = 16};

    set_up(false);
    p = alloc(MIB);
    k.ptr = p + 8;
    T_ERR(vv_device_launch(dev, s, &k), -EINVAL);
    k.ptr = in_host;
    T_ERR(vv_device_launch(dev, s, &k), -EINVAL);
    k.ptr = p;
    k.bytes = MIB + 1;
    T_ERR(vv_device_launch(dev, s, &k), -EFAULT);
    k.bytes = 16;
    k.offset = 4;
    T_ERR(vv_device_launch(dev, s, &k), -EINVAL);
    k.kind = VV_KERNEL_VERIFY;
    k.offset = 0;
    k.bad = in_host;
    T_ERR(vv_device_launch(dev, s, &k), -EINVAL);
    k.kind = (enum vv_kernel_kind)99;
    T_ERR(vv_device_launch(dev, s, &k), -EINVAL);
    finish(); /* none of these calls has harmed the device */
    tear_down();
}

/* A single segment: every byte of it and none beside it is copied, at any size and place. */
static void copies_one(void)
{
    enum { ROOM = 1 << 20, SIDE = 64 };
    static const size_t sizes[] = {1,    15,   16,    17,    4080,  4095,           4096,
                                   4097, 8192, 12289, 65536, 99991, ROOM - 2 * SIDE};
    static const size_t places[][2] = {{0, 0}, {16, 0}, {0, 48}, {8, 8}, {3, 3}, {4, 1}};
    unsigned char *host = malloc(ROOM), *want = malloc(ROOM), *got = malloc(ROOM), *src, *dst;

    set_up(false);
    T_CHECK(host && want && got);
    src = alloc(ROOM);
    dst = alloc(ROOM);
    vv_pattern_fill(host, ROOM, 11, 2, 0);
    copy(src, host, ROOM);
    for (size_t i = 0; i < VV_ARRAY_SIZE(sizes); i++) {
        for (size_t k = 0; k < VV_ARRAY_SIZE(places); k++) {
            size_t to = SIDE + places[k][0], from = places[k][1];
            size_t n = VV_MIN(sizes[i], (size_t)ROOM - VV_MAX(to, from));

            memset(want, 0x5a, ROOM);
            copy(dst, want, ROOM);
            memcpy(want + to, host + from, n);
            copy(dst + to, src + from, n);
            copy(got, dst, ROOM);
            T_CHECK(memcmp(got, want, ROOM) == 0);
        }
    }
    tear_down();
    free(host);
    free(want);
    free(got);
}

/* Segments in order with gaps of a few bytes, in another order on the other side; sizes from one byte to several tiles.
 * Compared with the processor's copy of the same table. */
static void gather_one(size_t n_segs, uint64_t seed, bool aligned)
{
    struct vv_copy_seg *segs = calloc(n_segs, sizeof(*segs));
    size_t *size = calloc(n_segs, sizeof(*size)), *at = calloc(n_segs, sizeof(*at));
    size_t room = 0, used = 0;
    unsigned char *src, *dst, *host, *want, *got;

    T_CHECK(segs && size && at);
    for (size_t i = 0; i < n_segs; i++) {
        uint64_t r = vv_pattern_word(seed, 1, i);

        size[i] = 1 + (r >> 33) % (r % 64 == 0 ? 5 * VVI_GATHER_TILE / 2 : 300);
        if (aligned)
            size[i] = vv_align_up(size[i], 16);
        room += size[i] + 64;
    }
    src = alloc(room);
    dst = alloc(room);
    host = malloc(room);
    want = malloc(room);
    got = malloc(room);
    T_CHECK(host && want && got);
    vv_pattern_fill(host, room, seed, 2, 0);
    copy(src, host, room);
    memset(want, 0x5a, room);
    copy(dst, want, room);
    for (size_t i = 0; i < n_segs; i++) {
        at[i] = used + (aligned ? 0 : vv_pattern_word(seed, 3, i) >> 40 & 31);
        used = vv_align_up(at[i] + size[i], aligned ? 16 : 1);
    }
    used = 0;
    for (size_t i = 0; i < n_segs; i++) {
        size_t j = n_segs - 1 - i; /* the last first */

        used += aligned ? 0 : vv_pattern_word(seed, 4, i) >> 40 & 31;
        segs[i] = (struct vv_copy_seg){dst + used, src + at[j], size[j]};
        memcpy(want + used, host + at[j], size[j]);
        used = vv_align_up(used + size[j], aligned ? 16 : 1);
    }
    T_OK(vv_device_copy_async(dev, s, segs, n_segs));
    finish();
    copy(got, dst, room);
    T_CHECK(memcmp(got, want, room) == 0);
    T_OK(vv_device_mem_free(dev, src));
    T_OK(vv_device_mem_free(dev, dst));
    free(host);
    free(want);
    free(got);
    free(segs);
    free(size);
    free(at);
}

static void gather_all(void)
{
    static const size_t counts[] = {1,
                                    2,
                                    3,
                                    64,
                                    VVI_GATHER_FEW,
                                    VVI_GATHER_FEW + 1,
                                    VVI_GATHER_SMALL,
                                    VVI_GATHER_SMALL + 1,
                                    VVI_GATHER_MIDDLE,
                                    VVI_GATHER_MIDDLE + 1,
                                    VVI_GATHER_LARGE,
                                    VVI_GATHER_LARGE + 1};

    for (size_t i = 0; i < VV_ARRAY_SIZE(counts); i++) {
        gather_one(counts[i], i, true);
        gather_one(counts[i], 100 + i, false);
    }
}

static void gathers(void)
{
    set_up(false);
    gather_all();
    tear_down();
}

/* A driver that accepts only small parameters. */
static void gathers_in_small_launches(void)
{
    set_up(!t_device_is_cuda());
    gather_all();
    tear_down();
}

/* Finds the segment of each tile of a table, as a block of the kernel does. */
static void find_all(const struct vvi_gather_large *t, bool alike)
{
    uint32_t i = 0;

    for (uint32_t tile = 0; tile < t->head.n_tiles; tile++) {
        uint32_t first = UINT32_MAX, found;

        while (t->seg[i].end_tile <= tile)
            i++;
        found = vvi_gather_find(&t->head, t->seg, tile, &first);
        T_EQ(found, i);
        T_EQ(first, i ? t->seg[i - 1].end_tile : 0);
        if (alike)
            T_EQ(vvi_gather_guess(&t->head, tile), i);
    }
}

static void finds_segments(void)
{
    static struct vvi_gather_large t;

    for (uint32_t n = 1; n <= VVI_GATHER_LARGE; n += n < VVI_GATHER_SMALL + 2 ? 1 : 97) {
        for (unsigned kind = 0; kind < 6; kind++) { /* 1, 3, 32 tiles each; or different numbers */
            uint32_t tiles = 0;

            for (uint32_t i = 0; i < n; i++) {
                uint64_t r = vv_pattern_word(n, kind, i);
                const uint32_t size[] = {
                    1, 3, 32, 1 + (uint32_t)(r >> 40) % 40, i == n - 1 ? 999 : 1, i == 0 ? 999 : 1};

                tiles += size[kind];
                t.seg[i].end_tile = tiles;
            }
            t.head = (struct vvi_gather_head){n, tiles, vvi_gather_segs_per_tile(n, tiles)};
            find_all(&t, kind < 3);
        }
    }
    /* Nearly the largest number of tiles: the guess is rounded up, and must stay within the table. */
    for (uint32_t i = 0; i < VVI_GATHER_LARGE; i++)
        t.seg[i].end_tile = (i + 1) * (VVI_GATHER_MAX_BYTES / VVI_GATHER_TILE) - 1;
    t.head.n_segs = VVI_GATHER_LARGE;
    t.head.n_tiles = t.seg[VVI_GATHER_LARGE - 1].end_tile;
    t.head.segs_per_tile = vvi_gather_segs_per_tile(t.head.n_segs, t.head.n_tiles);
    T_EQ(vvi_gather_guess(&t.head, t.head.n_tiles - 1), VVI_GATHER_LARGE - 1);
    for (uint32_t i = 0, first; i < VVI_GATHER_LARGE; i++) {
        T_EQ(vvi_gather_find(&t.head, t.seg, t.seg[i].end_tile - 1, &first), i);
        T_EQ(vvi_gather_find(&t.head, t.seg, first, &first), i);
    }
}

int main(void)
{
    T_RUN(fills_and_counts);
    T_RUN(hashes);
    T_RUN(refuses);
    T_RUN(finds_segments);
    T_RUN(copies_one);
    T_RUN(gathers);
    T_RUN(gathers_in_small_launches);
    return t_done();
}
