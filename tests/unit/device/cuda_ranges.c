/* SPDX-License-Identifier: Apache-2.0 */
/* The table of address ranges: compared with a plain list, and read while it changes. */
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/cuda/cuda_ranges.h"
#include "t.h"

#define UNIT 4096

static void *at(size_t unit)
{
    return (void *)(unit * UNIT);
}

static void ranges_and_gaps_are_found(void)
{
    struct vvi_cuda_ranges r;
    struct vvi_cuda_range got;

    vvi_cuda_ranges_init(&r);
    got = vvi_cuda_ranges_find(&r, 1);
    T_CHECK(got.kind == VVI_CUDA_NONE && got.start == 0 && got.last == UINTPTR_MAX);
    T_OK(vvi_cuda_ranges_add(&r, VVI_CUDA_SLICE, at(10), 2 * UNIT));
    T_OK(vvi_cuda_ranges_add(&r, VVI_CUDA_ALLOC, at(20), 1));
    T_OK(vvi_cuda_ranges_add(&r, VVI_CUDA_SLICE, at(12), UNIT));
    got = vvi_cuda_ranges_find(&r, 12 * UNIT - 1);
    T_CHECK(got.kind == VVI_CUDA_SLICE && got.start == 10 * UNIT && got.last == 12 * UNIT - 1);
    got = vvi_cuda_ranges_find(&r, 13 * UNIT);
    T_CHECK(got.kind == VVI_CUDA_NONE && got.start == 13 * UNIT && got.last == 20 * UNIT - 1);
    got = vvi_cuda_ranges_find(&r, 20 * UNIT);
    T_CHECK(got.kind == VVI_CUDA_ALLOC && got.last == 20 * UNIT);
    got = vvi_cuda_ranges_find(&r, 20 * UNIT + 1);
    T_CHECK(got.kind == VVI_CUDA_NONE && got.start == 20 * UNIT + 1 && got.last == UINTPTR_MAX);

    T_ERR(vvi_cuda_ranges_add(&r, VVI_CUDA_SLICE, at(9), 2 * UNIT), -EEXIST);
    T_ERR(vvi_cuda_ranges_add(&r, VVI_CUDA_SLICE, at(9), 20 * UNIT), -EEXIST);
    T_ERR(vvi_cuda_ranges_add(&r, VVI_CUDA_ALLOC, at(11), 1), -EEXIST);
    T_ERR(vvi_cuda_ranges_remove(&r, VVI_CUDA_ALLOC, at(10)), -EINVAL);
    T_ERR(vvi_cuda_ranges_remove(&r, VVI_CUDA_SLICE, at(11)), -EINVAL);
    T_EQ(vvi_cuda_ranges_first(&r, VVI_CUDA_ALLOC).start, 20 * UNIT);
    T_OK(vvi_cuda_ranges_remove(&r, VVI_CUDA_ALLOC, at(20)));
    T_EQ(vvi_cuda_ranges_first(&r, VVI_CUDA_ALLOC).kind, VVI_CUDA_NONE);
    vvi_cuda_ranges_fini(&r);
}

static void random_changes_match_a_list(void)
{
    enum { UNITS = 600, STEPS = 20000 };
    static unsigned char kind[UNITS + 1]; /* one unit each, so that neighbours touch */
    struct t_rng rng = {t_seed()};
    struct vvi_cuda_ranges r;

    vvi_cuda_ranges_init(&r);
    for (int i = 0; i < STEPS; i++) {
        size_t u = 1 + t_rng_below(&rng, UNITS - 1);
        enum vvi_cuda_range_kind k = t_rng_below(&rng, 2) ? VVI_CUDA_ALLOC : VVI_CUDA_SLICE;
        struct vvi_cuda_range got;

        if (t_rng_below(&rng, 2)) {
            int rc = vvi_cuda_ranges_add(&r, k, at(u), UNIT);

            T_EQ(rc, kind[u] ? -EEXIST : 0);
            if (!rc)
                kind[u] = (unsigned char)k;
        } else {
            int rc = vvi_cuda_ranges_remove(&r, k, at(u));

            T_EQ(rc, kind[u] == k ? 0 : -EINVAL);
            if (!rc)
                kind[u] = 0;
        }
        u = 1 + t_rng_below(&rng, UNITS - 1);
        got = vvi_cuda_ranges_find(&r, u * UNIT + t_rng_below(&rng, UNIT));
        T_EQ(got.kind, kind[u]);
        if (kind[u])
            T_CHECK(got.start == u * UNIT && got.last == u * UNIT + UNIT - 1);
        else
            T_CHECK(got.start <= u * UNIT && got.last >= u * UNIT + UNIT - 1);
    }
    vvi_cuda_ranges_fini(&r);
}

/* Ranges in the lower part stay; those above come and go, and move all entries behind them. */
struct shared {
    struct vvi_cuda_ranges r;
    _Atomic bool stop;
};

enum { FIXED = 50, MOVING = 200 };

static void *reader_main(void *arg)
{
    struct shared *s = arg;
    struct t_rng rng = {7};

    while (!atomic_load(&s->stop)) {
        size_t u = 1000 + 2 * t_rng_below(&rng, FIXED);
        struct vvi_cuda_range got = vvi_cuda_ranges_find(&s->r, u * UNIT + 5);

        T_CHECK(got.kind == VVI_CUDA_SLICE && got.start == u * UNIT &&
                got.last == u * UNIT + UNIT - 1);
        got = vvi_cuda_ranges_find(&s->r, (u + 1) * UNIT);
        T_CHECK(got.kind == VVI_CUDA_NONE && got.start == (u + 1) * UNIT);
    }
    return NULL;
}

static void readers_see_whole_entries(void)
{
    static struct shared s;
    pthread_t reader[2];

    vvi_cuda_ranges_init(&s.r);
    for (size_t i = 0; i < FIXED; i++)
        T_OK(vvi_cuda_ranges_add(&s.r, VVI_CUDA_SLICE, at(1000 + 2 * i), UNIT));
    for (size_t i = 0; i < VV_ARRAY_SIZE(reader); i++)
        T_EQ(pthread_create(&reader[i], NULL, reader_main, &s), 0);
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < MOVING; i++)
            T_OK(vvi_cuda_ranges_add(&s.r, VVI_CUDA_ALLOC, at(1 + 2 * i), UNIT));
        for (size_t i = 0; i < MOVING; i++)
            T_OK(vvi_cuda_ranges_remove(&s.r, VVI_CUDA_ALLOC, at(1 + 2 * (i * 7 % MOVING))));
    }
    atomic_store(&s.stop, true);
    for (size_t i = 0; i < VV_ARRAY_SIZE(reader); i++)
        T_EQ(pthread_join(reader[i], NULL), 0);
    vvi_cuda_ranges_fini(&s.r);
}

/* The upper half of a table; a reader touches it when its search goes up at the middle. */
static struct {
    struct vvi_cuda_ranges r;
    char *upper;
    size_t bytes;
    int faults;
} held;

static void change_meanwhile(int signal)
{
    (void)signal;
    held.faults++;
    T_EQ(mprotect(held.upper, held.bytes, PROT_READ | PROT_WRITE), 0);
    T_OK(vvi_cuda_ranges_remove(&held.r, VVI_CUDA_SLICE, at(1)));
}

/* A reader is stopped in the middle of its search, and all entries move down by one. */
static void change_in_the_middle_of_a_search(void)
{
    enum { N = 8192 }; /* a full table, for which malloc makes a mapping of its own */
    struct sigaction action = {.sa_handler = change_meanwhile}, before;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct vvi_cuda_range got;
    uintptr_t table, end;

    vvi_cuda_ranges_init(&held.r);
    for (size_t i = 0; i < N; i++)
        T_OK(vvi_cuda_ranges_add(&held.r, VVI_CUDA_SLICE, at(1 + i), UNIT));
    table = (uintptr_t)atomic_load(&held.r.table);
    end = table + malloc_usable_size((void *)table);
    held.upper = (char *)((table + (end - table) / 2 + 2 * page) / page * page);
    held.bytes = (end - (uintptr_t)held.upper) / page * page;
    T_EQ(sigaction(SIGSEGV, &action, &before), 0);
    T_EQ(mprotect(held.upper, held.bytes, PROT_NONE), 0);
    got = vvi_cuda_ranges_find(&held.r, (1 + N / 2) * UNIT);
    T_EQ(sigaction(SIGSEGV, &before, NULL), 0);
    T_EQ(held.faults, 1);
    T_CHECK(got.kind == VVI_CUDA_SLICE && got.start == (1 + N / 2) * UNIT);
    vvi_cuda_ranges_fini(&held.r);
}

int main(void)
{
    T_RUN(ranges_and_gaps_are_found);
    T_RUN(random_changes_match_a_list);
    T_RUN(change_in_the_middle_of_a_search);
    T_RUN(readers_see_whole_entries);
    return t_done();
}
