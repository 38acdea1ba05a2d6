/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The emulation of thread blocks: every block and thread runs once, barriers hold and order memory, values pass
 * between the threads of a warp, each block has its own memory, and messages between blocks and the processor arrive
 * whole. Under ThreadSanitizer a missing barrier shows as a race.
 */
#define VARVE_EMULATE 1
#include <varve/detail/device_dual.h>

#include <stdbool.h>
#include <unistd.h>

#include "t.h"

enum { BLOCKS = 7, THREADS = 8, RESIDENT = 3, ROUNDS = 20 };

struct sums {
    uint64_t total;
    uint32_t runs[BLOCKS][THREADS];
    bool wrong;
};

/* Sums over the block through its memory, again and again. */
static void add_up(void *arg)
{
    struct sums *s = arg;
    VARVE_D_SHARED(uint64_t, sum);
    unsigned me = varve_d_thread();

    s->runs[varve_d_block()][me]++;
    for (unsigned round = 0; round < ROUNDS; round++) {
        if (me == 0)
            *sum = 0;
        varve_d_sync_block();
        for (unsigned t = 0; t < varve_d_threads(); t++) {
            if (t == me)
                *sum += me + round;
            varve_d_sync_block();
        }
        if (*sum != THREADS * (THREADS - 1) / 2 + THREADS * round)
            s->wrong = true;
        varve_d_sync_block();
    }
    if (me == 0)
        varve_d_add64_dev(&s->total, *sum);
}

static void blocks_and_barriers(void)
{
    struct sums s = {0};

    varve_emu_jitter = 50;
    T_OK(varve_emu_launch(BLOCKS, THREADS, RESIDENT, t_seed(), add_up, &s));
    T_CHECK(!s.wrong);
    T_EQ(s.total, BLOCKS * (THREADS * (THREADS - 1) / 2 + THREADS * (ROUNDS - 1)));
    for (unsigned b = 0; b < BLOCKS; b++)
        for (unsigned t = 0; t < THREADS; t++)
            T_EQ(s.runs[b][t], 1);
}

static void between_lanes(void *arg)
{
    bool *wrong = arg;
    unsigned warp = varve_d_warp(), lane = varve_d_lane();

    for (unsigned i = 0; i < ROUNDS; i++) {
        unsigned from = i % VARVE_D_WARP;
        uint64_t big = UINT64_C(1) << 40 | warp << 8 | lane;

        if (varve_d_shfl64_warp(big, from) != (UINT64_C(1) << 40 | warp << 8 | from) ||
            varve_d_shfl32_warp(lane + i, from) != from + i ||
            varve_d_ballot_warp(lane == from) != 1u << from)
            *wrong = true;
    }
}

static void lanes(void)
{
    bool wrong = false;

    T_OK(varve_emu_launch(BLOCKS, THREADS, 0, t_seed(), between_lanes, &wrong));
    T_CHECK(!wrong);
}

/* One lock in device memory, taken by one thread of each warp. */
struct locked {
    uint32_t lock;
    uint64_t count; /* deliberately not atomic */
};

static void count_under_lock(void *arg)
{
    struct locked *l = arg;

    for (unsigned i = 0; i < ROUNDS; i++) {
        if (varve_d_lane() == 0) {
            while (varve_d_cas32_dev(&l->lock, 0, 1) != 0)
                varve_d_pause(20);
            l->count++;
            varve_d_release32_dev(&l->lock, 0);
        }
        varve_d_sync_warp();
    }
}

static void locks(void)
{
    struct locked l = {0};

    T_OK(varve_emu_launch(BLOCKS, THREADS, RESIDENT, t_seed(), count_under_lock, &l));
    T_EQ(l.count, BLOCKS * THREADS / VARVE_D_WARP * ROUNDS);
}

/* A block and the processor use a buffer in turn. */
struct turns {
    uint64_t to_host, to_device; /* one writer each */
    uint64_t buffer[THREADS];
    bool wrong;
};

static void answer(void *arg)
{
    struct turns *t = arg;
    unsigned me = varve_d_thread();

    for (uint64_t i = 1; i <= ROUNDS; i++) {
        t->buffer[me] = i * me;
        varve_d_sync_block();
        if (me == 0) {
            varve_d_release64_sys(&t->to_host, i);
            while (varve_d_acquire64_sys(&t->to_device) != i)
                varve_d_pause(100);
        }
        varve_d_sync_block();
        if (t->buffer[me] != i * me + 1)
            t->wrong = true;
    }
}

static void *serve(void *arg)
{
    struct turns *t = arg;

    for (uint64_t i = 1; i <= ROUNDS; i++) {
        while (__atomic_load_n(&t->to_host, __ATOMIC_ACQUIRE) != i)
            sched_yield();
        for (unsigned k = 0; k < THREADS; k++)
            t->buffer[k]++;
        __atomic_store_n(&t->to_device, i, __ATOMIC_RELEASE);
    }
    return NULL;
}

static void messages(void)
{
    struct turns t = {0};
    pthread_t server;

    T_OK(-pthread_create(&server, NULL, serve, &t));
    T_OK(varve_emu_launch(1, THREADS, 1, t_seed(), answer, &t));
    T_OK(-pthread_join(server, NULL));
    T_CHECK(!t.wrong);
}

static void bad_launches(void)
{
    T_ERR(varve_emu_launch(0, 2, 1, 1, answer, NULL), -EINVAL);
    T_ERR(varve_emu_launch(1, 3, 1, 1, answer, NULL), -EINVAL);
    T_ERR(varve_emu_launch(1, VARVE_EMU_THREADS_MAX + 2, 1, 1, answer, NULL), -EINVAL);
}

int main(void)
{
    T_RUN(blocks_and_barriers);
    T_RUN(lanes);
    T_RUN(locks);
    T_RUN(messages);
    T_RUN(bad_launches);
    return t_done();
}
