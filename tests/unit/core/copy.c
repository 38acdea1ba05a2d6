/* SPDX-License-Identifier: Apache-2.0 */
#include "core/copy.h"

#include <pthread.h>
#include <stdlib.h>

#include "core/hash.h"
#include "core/topo.h"
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
    T_RUN(hash_is_fixed);
    return t_done();
}
