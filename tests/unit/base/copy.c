/* SPDX-License-Identifier: Apache-2.0 */
#include "base/copy.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/copy_kernels.h"
#include "base/hash.h"
#include "base/topo.h"
#include "t.h"

/* Random segments over two buffers; bytes outside of them stay as they were. */
static void random_segments(struct vv_copy_pool *pool, uint64_t seed, size_t bytes)
{
    struct t_rng rng = {seed};
    unsigned char *src = malloc(bytes), *dst = calloc(1, bytes), *want = calloc(1, bytes);
    struct vv_copy_seg segs[64] = {{0}};
    size_t at = 0, count = 0;

    T_CHECK(src && dst && want);
    for (size_t i = 0; i < bytes; i++)
        src[i] = (unsigned char)(i * 131 + i / 4096 + seed);
    while (count < VV_ARRAY_SIZE(segs) && at < bytes) {
        size_t n = t_rng_below(&rng, bytes / 16);

        n = VV_MIN(n, bytes - at);
        if (t_rng_below(&rng, 8) == 0)
            n = 0;
        segs[count++] = (struct vv_copy_seg){dst + at, src + at, n};
        memcpy(want + at, src + at, n);
        at += n + t_rng_below(&rng, 5000);
    }
    vv_copy_parallel(pool, segs, count);
    T_CHECK(memcmp(dst, want, bytes) == 0);
    free(src);
    free(dst);
    free(want);
}

static void alone(void)
{
    struct vv_copy_pool *pool;

    random_segments(NULL, t_seed(), 3 << 20);
    T_OK(vv_copy_pool_new(0, &pool));
    random_segments(pool, t_seed(), 3 << 20);
    vv_copy_pool_free(pool);
    vv_copy_pool_free(NULL);
    vv_copy_parallel(NULL, NULL, 0);
    T_ERR(vv_copy_pool_new(100000, &pool), -EINVAL);
}

static void with_helpers(void)
{
    struct vv_copy_pool *pool;

    T_OK(vv_copy_pool_new(3, &pool));
    for (uint64_t i = 0; i < 8; i++)
        random_segments(pool, t_seed() + i, (size_t)(1 + i) << 19);
    vv_copy_pool_free(pool);
}

static void automatic(void)
{
    struct vv_copy_pool *pool;
    struct vv_topo topo;

    vv_topo_get(&topo);
    t_note("%u threads, %u cores, %u memory nodes", topo.threads, topo.cores, topo.nodes);
    T_CHECK(topo.cores >= 1 && topo.cores <= topo.threads && topo.nodes >= 1);
    T_OK(vv_copy_pool_new(VV_COPY_HELPERS_AUTO, &pool));
    random_segments(pool, t_seed(), 3 << 20);
    vv_copy_pool_free(pool);
}

static struct vv_copy_pool *shared;

static void *copy_many(void *arg)
{
    for (uint64_t i = 0; i < 4; i++)
        random_segments(shared, (uintptr_t)arg + i, 4 << 20);
    return NULL;
}

static void several_callers(void)
{
    pthread_t threads[3];

    T_OK(vv_copy_pool_new(2, &shared));
    for (uintptr_t i = 0; i < 3; i++)
        T_EQ(pthread_create(&threads[i], NULL, copy_many, (void *)(i * 1000)), 0);
    for (int i = 0; i < 3; i++)
        T_EQ(pthread_join(threads[i], NULL), 0);
    vv_copy_pool_free(shared);
}

/* Every kernel copies every byte and no other, wherever it begins and ends. */
static void kernels(void)
{
    enum { BYTES = 40000, GUARD = 96 };
    static unsigned char src[BYTES + GUARD], dst[BYTES + 2 * GUARD];
    struct t_rng rng = {t_seed()};

    T_CHECK(vv_copy_kernel_usable(VV_COPY_PLAIN) && !vv_copy_kernel_usable(VV_COPY_KERNELS));
    T_CHECK(vv_copy_kernel_usable(vv_copy_kernel_best()));
    t_note("streaming stores: %s, from %zu KiB on", vv_copy_kernel_name(vv_copy_kernel_best()),
           vv_copy_stream_min() >> 10);
    for (size_t i = 0; i < sizeof(src); i++)
        src[i] = (unsigned char)(i * 7 + i / 256);
    for (int k = 0; k < VV_COPY_KERNELS; k++) {
        if (!vv_copy_kernel_usable((enum vv_copy_kernel)k))
            continue;
        for (unsigned i = 0; i < 900; i++) {
            size_t n = i < 600 ? i : t_rng_below(&rng, BYTES);
            size_t from = t_rng_below(&rng, GUARD), to = t_rng_below(&rng, GUARD);
            memset(dst, 0xee, sizeof(dst));
            vv_copy_with((enum vv_copy_kernel)k, dst + to, src + from, n);
            T_CHECK(memcmp(dst + to, src + from, n) == 0);
            for (size_t j = 0; j < sizeof(dst); j++)
                T_CHECK((j >= to && j < to + n) || dst[j] == 0xee);
        }
    }
    T_STREQ(vv_copy_kernel_name(VV_COPY_KERNELS), "unknown");
}

/* A part of a large copy is streamed, alone and with helpers, and the caller sees the bytes that a helper
 * wrote. */
static void parts_of_something_large(void)
{
    struct vv_copy_pool *pool;
    size_t bytes = 5 << 20;
    unsigned char *src = malloc(bytes + 1), *dst = malloc(bytes + 1);

    T_CHECK(src && dst && vv_copy_stream_min() > 0);
    T_OK(vv_copy_pool_new(3, &pool));
    for (unsigned round = 0; round < 6; round++) {
        for (size_t i = 0; i <= bytes; i++)
            src[i] = (unsigned char)(i * 13 + round);
        memset(dst, 0xee, bytes + 1);
        struct vv_copy_seg segs[] = {{dst, src, 70000},
                                     {dst + 70000, src + 70000, bytes - 70000 - round},
                                     {dst + bytes - round, src + bytes - round, round}};
        vv_copy_part(round % 2 ? pool : NULL, segs, 3, vv_copy_stream_min());
        T_CHECK(memcmp(dst, src, bytes) == 0 && dst[bytes] == 0xee);
    }
    vv_copy_pool_free(pool);
    free(src);
    free(dst);
}

/* Checksums are in files: these values may never change. */
static void hash_is_fixed(void)
{
    static const char text[] = "varve";

    T_CHECK(vv_hash64("", 0) == UINT64_C(0x2d06800538d394c2));
    T_CHECK(vv_hash64(text, 5) == vv_hash64(text, 5));
    T_CHECK(vv_hash64(text, 5) != vv_hash64(text, 4));
}

int main(void)
{
    T_RUN(alone);
    T_RUN(with_helpers);
    T_RUN(automatic);
    T_RUN(several_callers);
    T_RUN(kernels);
    T_RUN(parts_of_something_large);
    T_RUN(hash_is_fixed);
    return t_done();
}
