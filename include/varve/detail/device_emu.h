/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device code in threads: implements varve/detail/device_dual.h on the processor. Only that header includes
 * this one, if VARVE_EMULATE is defined.
 *
 * Launching. varve_emu_launch runs a function of one argument as a kernel, and returns when it has ended:
 *
 *     varve_emu_launch(blocks, threads, resident, seed, kernel, argument);
 *
 * is kernel<<<blocks, threads>>>(argument). A block has 64 threads at most, a multiple of the warp size,
 * which is 2 here. `resident` blocks run at once, or all with 0. Each of their threads is a thread of the
 * process, which takes the next block when all threads of its block have ended the previous one, as on a
 * GPU. `seed` seeds the random numbers.
 *
 * Delays. varve_emu_jitter, 0 by default, is the number of atomic operations in 1000, chosen at random, that
 * yield the processor, so that one run sees interleavings that would otherwise be rare.
 *
 * Compiling. C11 and later, strict or not; strict C99 needs _POSIX_C_SOURCE. Programs are linked with -pthread
 * on systems with a separate thread library.
 *
 * Everything is static: kernels and the code that launches them are in one file.
 */
#ifndef VARVE_DEVICE_EMU_H
#define VARVE_DEVICE_EMU_H

#include <stddef.h>
#include <stdint.h>

#if defined(VARVE_EMULATE) && !defined(__CUDACC__)

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define VARVE_D_FN   static inline __attribute__((unused))
#define VARVE_D_COLD static __attribute__((unused))
#define VARVE_D_WARP 2u

enum { VARVE_EMU_THREADS_MAX = 64, VARVE_EMU_SHARED_MAX = 16 };

struct varve_emu_barrier {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned n, arrived, turn;
};

struct varve_emu_shared {
    const void *key; /* one for each place in the source */
    void *ptr;
};

/* A place for a resident block; it runs one block after another. */
struct varve_emu_block {
    unsigned index, blocks, threads;
    struct varve_emu_barrier barrier, warp[VARVE_EMU_THREADS_MAX / VARVE_D_WARP];
    uint64_t slot[VARVE_EMU_THREADS_MAX]; /* values that threads of a warp exchange */
    pthread_mutex_t lock;                 /* of `shared` */
    struct varve_emu_shared shared[VARVE_EMU_SHARED_MAX];
    struct varve_emu_grid *grid;
};

struct varve_emu_grid {
    void (*fn)(void *arg);
    void *arg;
    unsigned blocks, next;
    uint64_t seed;
};

struct varve_emu_thread {
    struct varve_emu_block *block;
    unsigned index;
    uint64_t rng;
    pthread_t id;
};

static __thread struct varve_emu_thread *varve_emu_self __attribute__((unused));

/* How many of 1000 atomic operations yield the processor. Set while nothing runs. */
static unsigned varve_emu_jitter __attribute__((unused));

VARVE_D_FN void varve_emu_barrier_init(struct varve_emu_barrier *b, unsigned n)
{
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->changed, NULL);
    b->n = n;
    b->arrived = b->turn = 0;
}

VARVE_D_FN void varve_emu_barrier_fini(struct varve_emu_barrier *b)
{
    pthread_mutex_destroy(&b->lock);
    pthread_cond_destroy(&b->changed);
}

/* Threads mostly arrive soon after one another: yielding a few times costs less than sleeping. */
enum { VARVE_EMU_PATIENCE = 16 };

VARVE_D_FN void varve_emu_barrier_wait(struct varve_emu_barrier *b)
{
    unsigned turn = __atomic_load_n(&b->turn, __ATOMIC_RELAXED), i;

    if (__atomic_add_fetch(&b->arrived, 1, __ATOMIC_ACQ_REL) == b->n) {
        __atomic_store_n(&b->arrived, 0, __ATOMIC_RELAXED); /* before any thread can arrive again */
        pthread_mutex_lock(&b->lock);
        __atomic_store_n(&b->turn, turn + 1, __ATOMIC_RELEASE);
        pthread_cond_broadcast(&b->changed);
        pthread_mutex_unlock(&b->lock);
        return;
    }
    for (i = 0; i < VARVE_EMU_PATIENCE; i++) {
        if (__atomic_load_n(&b->turn, __ATOMIC_ACQUIRE) != turn)
            return;
        sched_yield();
    }
    pthread_mutex_lock(&b->lock);
    while (__atomic_load_n(&b->turn, __ATOMIC_ACQUIRE) == turn)
        pthread_cond_wait(&b->changed, &b->lock);
    pthread_mutex_unlock(&b->lock);
}

VARVE_D_FN void varve_emu_perhaps(void)
{
    struct varve_emu_thread *self = varve_emu_self;

    if (!varve_emu_jitter || !self)
        return;
    self->rng = self->rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    if ((self->rng >> 33) % 1000 < varve_emu_jitter)
        sched_yield();
}

/* ---- indices of this thread ---- */

VARVE_D_FN unsigned varve_d_thread(void)
{
    return varve_emu_self->index;
}

VARVE_D_FN unsigned varve_d_threads(void)
{
    return varve_emu_self->block->threads;
}

VARVE_D_FN unsigned varve_d_block(void)
{
    return varve_emu_self->block->index;
}

VARVE_D_FN unsigned varve_d_blocks(void)
{
    return varve_emu_self->block->blocks;
}

/* ---- barriers, shuffles and votes ---- */

VARVE_D_FN void varve_d_sync_block(void)
{
    varve_emu_barrier_wait(&varve_emu_self->block->barrier);
}

VARVE_D_FN void varve_d_sync_warp(void)
{
    varve_emu_barrier_wait(&varve_emu_self->block->warp[varve_emu_self->index / VARVE_D_WARP]);
}

VARVE_D_FN uint64_t varve_d_shfl64_warp(uint64_t v, unsigned lane)
{
    struct varve_emu_block *b = varve_emu_self->block;
    unsigned me = varve_emu_self->index;
    uint64_t got;

    b->slot[me] = v;
    varve_d_sync_warp();
    got = b->slot[me / VARVE_D_WARP * VARVE_D_WARP + lane];
    varve_d_sync_warp();
    return got;
}

VARVE_D_FN uint32_t varve_d_shfl32_warp(uint32_t v, unsigned lane)
{
    return (uint32_t)varve_d_shfl64_warp(v, lane);
}

VARVE_D_FN uint32_t varve_d_ballot_warp(int v)
{
    uint32_t bits = 0;
    unsigned i;

    for (i = 0; i < VARVE_D_WARP; i++)
        bits |= (uint32_t)(varve_d_shfl64_warp(v != 0, i) != 0) << i;
    return bits;
}

/* The block's memory for `key`. The content that an earlier block left is overwritten with junk, not with
 * zeros: memory of a block starts undefined. */
VARVE_D_FN void *varve_emu_shared(const void *key, size_t bytes)
{
    struct varve_emu_block *b = varve_emu_self->block;
    void *ptr = NULL;
    unsigned i;

    pthread_mutex_lock(&b->lock);
    for (i = 0; i < VARVE_EMU_SHARED_MAX && b->shared[i].key && b->shared[i].key != key; i++)
        ;
    if (i < VARVE_EMU_SHARED_MAX) {
        if (!b->shared[i].key) {
            b->shared[i].ptr = malloc(bytes);
            b->shared[i].key = key;
            if (b->shared[i].ptr)
                memset(b->shared[i].ptr, 0xa5, bytes);
        }
        ptr = b->shared[i].ptr;
    }
    pthread_mutex_unlock(&b->lock);
    if (!ptr)
        abort(); /* more than 16 places, or no memory: no GPU would have started such a kernel */
    return ptr;
}

#define VARVE_D_SHARED(type, name) \
    static const char name##_key_; \
    type *const name = (type *)varve_emu_shared(&name##_key_, sizeof(type))

/* ---- words ---- */

#define VARVE_D_LOAD(name, order, bits)                     \
    VARVE_D_FN uint##bits##_t name(const uint##bits##_t *p) \
    {                                                       \
        varve_emu_perhaps();                                \
        return __atomic_load_n(p, order);                   \
    }
#define VARVE_D_STORE(name, order, bits)                      \
    VARVE_D_FN void name(uint##bits##_t *p, uint##bits##_t v) \
    {                                                         \
        varve_emu_perhaps();                                  \
        __atomic_store_n(p, v, order);                        \
    }
#define VARVE_D_RMW(name, op, order, bits)                              \
    VARVE_D_FN uint##bits##_t name(uint##bits##_t *p, uint##bits##_t v) \
    {                                                                   \
        varve_emu_perhaps();                                            \
        return __atomic_fetch_##op(p, v, order);                        \
    }
#define VARVE_D_CAS(name, order, bits)                                                       \
    VARVE_D_FN uint##bits##_t name(uint##bits##_t *p, uint##bits##_t want, uint##bits##_t v) \
    {                                                                                        \
        varve_emu_perhaps();                                                                 \
        __atomic_compare_exchange_n(p, &want, v, 0, order, __ATOMIC_ACQUIRE);                \
        return want;                                                                         \
    }

VARVE_D_LOAD(varve_d_load32_dev, __ATOMIC_RELAXED, 32)
VARVE_D_LOAD(varve_d_load64_dev, __ATOMIC_RELAXED, 64)
VARVE_D_LOAD(varve_d_acquire32_dev, __ATOMIC_ACQUIRE, 32)
VARVE_D_LOAD(varve_d_acquire64_dev, __ATOMIC_ACQUIRE, 64)
VARVE_D_LOAD(varve_d_load64_sys, __ATOMIC_RELAXED, 64)
VARVE_D_LOAD(varve_d_acquire64_sys, __ATOMIC_ACQUIRE, 64)
VARVE_D_STORE(varve_d_store32_dev, __ATOMIC_RELAXED, 32)
VARVE_D_STORE(varve_d_store64_dev, __ATOMIC_RELAXED, 64)
VARVE_D_STORE(varve_d_release32_dev, __ATOMIC_RELEASE, 32)
VARVE_D_STORE(varve_d_release64_dev, __ATOMIC_RELEASE, 64)
VARVE_D_STORE(varve_d_store64_sys, __ATOMIC_RELAXED, 64)
VARVE_D_STORE(varve_d_release64_sys, __ATOMIC_RELEASE, 64)

VARVE_D_FN void varve_d_release64x2_sys(uint64_t *p, uint64_t a, uint64_t b)
{
    varve_d_release64_sys(&p[1], b);
    varve_d_release64_sys(&p[0], a);
}

VARVE_D_RMW(varve_d_add32_dev, add, __ATOMIC_RELAXED, 32)
VARVE_D_RMW(varve_d_add64_dev, add, __ATOMIC_RELAXED, 64)
VARVE_D_RMW(varve_d_add32_acquire_dev, add, __ATOMIC_ACQUIRE, 32)
VARVE_D_RMW(varve_d_add32_release_dev, add, __ATOMIC_RELEASE, 32)
VARVE_D_RMW(varve_d_or64_dev, or, __ATOMIC_RELAXED, 64)
VARVE_D_CAS(varve_d_cas32_dev, __ATOMIC_ACQ_REL, 32)
VARVE_D_CAS(varve_d_cas64_dev, __ATOMIC_ACQ_REL, 64)
VARVE_D_CAS(varve_d_cas32_acquire_dev, __ATOMIC_ACQUIRE, 32)

VARVE_D_FN uint64_t varve_d_max64_dev(uint64_t *p, uint64_t v)
{
    uint64_t old = __atomic_load_n(p, __ATOMIC_RELAXED);

    while (old < v &&
           !__atomic_compare_exchange_n(p, &old, v, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    return old;
}

/* ThreadSanitizer does not see fences: protocols express ordering in loads and stores. */
VARVE_D_FN void varve_d_fence_dev(void)
{
    __atomic_thread_fence(__ATOMIC_ACQ_REL);
}

VARVE_D_FN void varve_d_fence_sys(void)
{
    __atomic_thread_fence(__ATOMIC_ACQ_REL);
}

/* Each word orders for itself here. */
VARVE_D_RMW(varve_d_add32_early_dev, add, __ATOMIC_ACQUIRE, 32)
VARVE_D_RMW(varve_d_add32_late_dev, add, __ATOMIC_RELEASE, 32)
VARVE_D_STORE(varve_d_store32_late_dev, __ATOMIC_RELEASE, 32)

VARVE_D_FN void varve_d_acquire_all_dev(void)
{
}

VARVE_D_FN void varve_d_release_all_dev(void)
{
}

/* ---- time ---- */

VARVE_D_FN uint64_t varve_d_now_ns(void)
{
    struct timespec t;

#if defined(CLOCK_MONOTONIC)
    clock_gettime(CLOCK_MONOTONIC, &t);
#elif defined(TIME_UTC)
    timespec_get(&t, TIME_UTC); /* strict C has only the time of day, which may be set back */
#else
#error "emulated kernels in strict C99 need _POSIX_C_SOURCE 200809L, defined before any header"
#endif
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

VARVE_D_FN void varve_d_pause(unsigned ns)
{
    (void)ns;
    sched_yield();
}

/* ---- sixteen bytes at once ---- */

typedef struct {
    uint64_t x, y;
} varve_d_v16;

VARVE_D_FN varve_d_v16 varve_d_load16(const void *p)
{
    return *(const varve_d_v16 *)p;
}

VARVE_D_FN void varve_d_store16(void *p, varve_d_v16 v)
{
    *(varve_d_v16 *)p = v;
}

/* ---- launching ---- */

VARVE_D_FN void *varve_emu_thread_main(void *arg)
{
    struct varve_emu_thread *self = (struct varve_emu_thread *)arg;
    struct varve_emu_block *b = self->block;
    struct varve_emu_grid *g = b->grid;
    unsigned i;

    varve_emu_self = self;
    for (;;) {
        varve_d_sync_block();
        if (self->index == 0) {
            b->index = __atomic_fetch_add(&g->next, 1, __ATOMIC_RELAXED);
            for (i = 0; i < VARVE_EMU_SHARED_MAX; i++) {
                free(b->shared[i].ptr);
                b->shared[i].key = b->shared[i].ptr = NULL;
            }
        }
        varve_d_sync_block();
        if (b->index >= g->blocks)
            break;
        self->rng = g->seed + b->index * UINT64_C(0x9e3779b97f4a7c15) + self->index;
        g->fn(g->arg);
    }
    varve_emu_self = NULL;
    return NULL;
}

/*
 * Runs fn(arg) in `blocks` blocks of `threads` threads, 64 at most and a multiple of VARVE_D_WARP,
 * `resident` blocks at once, 0: all. Returns when all have ended. `seed` seeds the random numbers of
 * varve_emu_jitter. -EINVAL: no blocks, or an invalid number of threads; -ENOMEM. If a thread cannot be
 * started, the process aborts: the rest of its block would wait for ever.
 */
VARVE_D_FN int varve_emu_launch(unsigned blocks, unsigned threads, unsigned resident, uint64_t seed,
                                void (*fn)(void *), void *arg)
{
    struct varve_emu_grid g = {fn, arg, blocks, 0, seed};
    struct varve_emu_block *b;
    struct varve_emu_thread *t;
    unsigned i, k;

    if (!blocks || !threads || threads > VARVE_EMU_THREADS_MAX || threads % VARVE_D_WARP)
        return -EINVAL;
    if (!resident || resident > blocks)
        resident = blocks;
    b = (struct varve_emu_block *)calloc(resident, sizeof(*b));
    t = (struct varve_emu_thread *)calloc((size_t)resident * threads, sizeof(*t));
    if (!b || !t) {
        free(b);
        free(t);
        return -ENOMEM;
    }
    for (i = 0; i < resident; i++) {
        b[i].blocks = blocks;
        b[i].threads = threads;
        b[i].grid = &g;
        pthread_mutex_init(&b[i].lock, NULL);
        varve_emu_barrier_init(&b[i].barrier, threads);
        for (k = 0; k < threads / VARVE_D_WARP; k++)
            varve_emu_barrier_init(&b[i].warp[k], VARVE_D_WARP);
        for (k = 0; k < threads; k++) {
            t[i * threads + k].block = &b[i];
            t[i * threads + k].index = k;
            if (pthread_create(&t[i * threads + k].id, NULL, varve_emu_thread_main,
                               &t[i * threads + k]))
                abort();
        }
    }
    for (i = 0; i < resident * threads; i++)
        pthread_join(t[i].id, NULL);
    for (i = 0; i < resident; i++) {
        varve_emu_barrier_fini(&b[i].barrier);
        for (k = 0; k < threads / VARVE_D_WARP; k++)
            varve_emu_barrier_fini(&b[i].warp[k]);
        pthread_mutex_destroy(&b[i].lock);
    }
    free(b);
    free(t);
    return 0;
}

#endif

#endif
