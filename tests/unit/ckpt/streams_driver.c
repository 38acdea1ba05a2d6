/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that run ahead on streams of a driver (the stand-in for CUDA's): behaviour of streams and events that
 * the emulated device does not have. A host function on the stream checks every byte of a finished call.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/cuda/driver.h"
#include "t.h"
#include "t_cuda.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, MOST = 4 * PAGE, VERSIONS = 12, MANY = 6 };

static struct t_fake fake;
static struct vvi_cuda_driver app;
static CUcontext cuda;
static int (*host_func)(CUstream stream, void (*fn)(void *), void *arg);

/* Blocks a stream until it is opened. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open;
};

static void gate_pass(void *arg)
{
    struct gate *g = arg;

    pthread_mutex_lock(&g->lock);
    while (!g->open)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static void gate_set(struct gate *g, bool open)
{
    pthread_mutex_lock(&g->lock);
    g->open = open;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

struct program {
    struct varve_ctx *ctx;
    struct varve_history *h;
    CUstream stream;
    char *buf, *mem; /* device memory, and where the processor finds it */
    struct gate gate, *others;
    _Atomic int wrong;
};

struct kernel {
    struct program *p;
    uint64_t version;
};

static size_t size_of(uint64_t version)
{
    return (size_t)(1 + version % 4) * PAGE - version % 3 * 40;
}

static void fill(void *arg)
{
    struct kernel *k = arg;

    ck_fill(k->p->mem, size_of(k->version), k->version, 0);
    free(k);
}

static void look(void *arg)
{
    struct kernel *k = arg;

    atomic_fetch_add(&k->p->wrong, !ck_same(k->p->mem, size_of(k->version), k->version, 0));
    free(k);
}

static void launch(struct program *p, void (*fn)(void *), uint64_t version)
{
    struct kernel *k = malloc(sizeof(*k));

    T_CHECK(k);
    *k = (struct kernel){p, version};
    T_EQ(host_func(p->stream, fn, k), 0);
}

static int save(struct program *p, uint64_t version)
{
    launch(p, fill, version);
    T_OK(varve_protect(p->h, 0, p->buf, size_of(version)));
    return varve_checkpoint_on_for(p->h, version, p->stream, CK_LIMIT_MS);
}

static void bring(struct program *p, uint64_t version)
{
    T_OK(varve_protect(p->h, 0, p->buf, size_of(version)));
    T_OK(varve_restore_on_for(p->h, version, p->stream, CK_LIMIT_MS));
    launch(p, look, version);
}

static struct varve_ctx *open_ctx(uint64_t device_pages)
{
    struct varve_opts o;
    struct varve_ctx *ctx;

    ck_opts(&(struct ck_cfg){.device_cache = device_pages * PAGE, .host_cache = 800 * PAGE}, &o);
    o.device = VARVE_DEVICE_CUDA;
    T_OK(varve_open(&o, &ctx));
    return ctx;
}

static struct program *program_new(struct varve_ctx *ctx, const char *name)
{
    struct program *p = calloc(1, sizeof(*p));
    struct varve_history_opts opts;
    void *buf;

    T_CHECK(p);
    p->ctx = ctx;
    pthread_mutex_init(&p->gate.lock, NULL);
    pthread_cond_init(&p->gate.changed, NULL);
    T_OK(varve_history_opts_init(&opts, sizeof(opts)));
    opts.order = VARVE_ORDER_LIFO;
    opts.consume = VARVE_CONSUME_ONCE;
    T_OK(varve_history_open_with(ctx, name, &opts, &p->h));
    T_OK(varve_device_alloc(ctx, MOST, &buf));
    p->buf = buf;
    p->mem = fake.map(buf);
    T_CHECK(p->mem);
    T_EQ(app.cuStreamCreate(&p->stream, VVI_CU_STREAM_NON_BLOCKING), 0);
    return p;
}

static void program_free(struct program *p)
{
    T_EQ(app.cuStreamSynchronize(p->stream), 0);
    T_EQ(atomic_load(&p->wrong), 0);
    T_OK(varve_history_close(p->h));
    T_OK(varve_device_free(p->ctx, p->buf));
    T_EQ(app.cuStreamDestroy(p->stream), 0);
    free(p);
}

static void hold(struct program *p)
{
    gate_set(&p->gate, false);
    T_EQ(host_func(p->stream, gate_pass, &p->gate), 0);
}

/* No event can be made any more while no work of the stream has ended: calls fail with an error, and lose
 * nothing. */
static void events_run_out(void)
{
    for (unsigned nth = 1; nth <= 24; nth += 1 + nth / 6) {
        struct varve_ctx *ctx = open_ctx(8);
        struct program *p = program_new(ctx, "h");
        bool there[VERSIONS + 1] = {false};
        unsigned refused = 0;

        hold(p);
        T_EQ(fake.fail("cuEventCreate", nth, -1, VVI_CU_OUT_OF_MEMORY), 0);
        for (uint64_t v = 0; v < VERSIONS; v++) {
            int rc = save(p, v);
            there[v] = rc == 0;
            if (rc == 0)
                continue;
            T_EQ(rc, -ENOMEM);
            ck_error(ctx, -ENOMEM, "no more events of the device");
            refused++;
        }
        T_CHECK(refused > 0 || nth > VERSIONS);
        fake.heal();
        gate_set(&p->gate, true);
        there[VERSIONS] = save(p, VERSIONS) == 0;
        T_CHECK(there[VERSIONS]);
        for (uint64_t v = VERSIONS + 1; v-- > 0;)
            if (there[v])
                bring(p, v);
        program_free(p);
        T_OK(varve_close(ctx));
    }
    T_EQ(fake.live("events"), 0);
}

/* The application destroys a stream that still has work, and the handle of the next one is the same. */
static void a_handle_comes_again(void)
{
    struct varve_ctx *ctx = open_ctx(8);
    struct program *p = program_new(ctx, "h");
    unsigned again = 0;

    for (unsigned round = 0; round < 30; round++) {
        CUstream before = p->stream;
        hold(p);
        for (uint64_t v = 0; v < VERSIONS; v++)
            T_OK(save(p, round * VERSIONS + v));
        gate_set(&p->gate, true);
        if (round % 2)
            T_EQ(app.cuStreamSynchronize(p->stream), 0);
        T_EQ(app.cuStreamDestroy(p->stream), 0);
        T_EQ(app.cuStreamCreate(&p->stream, VVI_CU_STREAM_NON_BLOCKING), 0);
        again += p->stream == before;
        for (uint64_t v = VERSIONS; v-- > 0;) {
            uint64_t version = round * VERSIONS + v;
            T_OK(varve_wait(p->h, version, VARVE_LEVEL_CACHED, CK_LIMIT_MS));
            bring(p, version);
        }
    }
    printf("%u handles of 30 came again\n", again);
    program_free(p);
    T_OK(varve_close(ctx));
}

/* More streams than may run ahead, all of them blocked while each gets work. */
static void more_streams_than_lanes(void)
{
    struct varve_ctx *ctx = open_ctx(64);
    struct program *p[MANY];
    char name[] = "0";

    for (unsigned i = 0; i < MANY; i++) {
        name[0] = (char)('0' + i);
        p[i] = program_new(ctx, name);
    }
    for (unsigned i = 0; i < MANY; i++)
        hold(p[i]);
    for (uint64_t v = 0; v < VERSIONS; v++)
        for (unsigned i = 0; i < MANY; i++)
            T_OK(save(p[i], v));
    for (unsigned i = MANY; i-- > 0;)
        gate_set(&p[i]->gate, true);
    for (uint64_t v = VERSIONS; v-- > 0;)
        for (unsigned i = 0; i < MANY; i++)
            bring(p[i], v);
    for (unsigned i = 0; i < MANY; i++)
        program_free(p[i]);
    T_OK(varve_close(ctx));
}

static void *fill_and_open(void *arg)
{
    struct program *p = arg;

    T_EQ(app.cuCtxPushCurrent(cuda), 0);
    for (uint64_t v = 0; v < VERSIONS; v++)
        T_OK(save(p, v));
    gate_set(p->others, true);
    for (uint64_t v = VERSIONS; v-- > 0;)
        bring(p, v);
    return NULL;
}

/* The stream of each thread continues when the other thread has made its checkpoints, in a cache for a third of
 * them: no call may wait for the other stream. */
static void streams_that_wait_for_threads(void)
{
    for (unsigned round = 0; round < 20; round++) {
        struct varve_ctx *ctx = open_ctx(20);
        struct program *a = program_new(ctx, "a"), *b = program_new(ctx, "b");
        pthread_t thread;

        a->others = &b->gate;
        b->others = &a->gate;
        hold(a);
        hold(b);
        T_EQ(pthread_create(&thread, NULL, fill_and_open, a), 0);
        fill_and_open(b);
        T_EQ(pthread_join(thread, NULL), 0);
        program_free(a);
        program_free(b);
        T_OK(varve_close(ctx));
    }
}

/* With room in the device cache a call costs one driver event, and earlier work of the stream does not make it
 * more expensive. */
static void one_event_a_call(void)
{
    struct varve_ctx *ctx = open_ctx(100);
    struct program *p = program_new(ctx, "h");
    unsigned long long before;

    hold(p);
    T_OK(save(p, 0)); /* makes what all of them need */
    before = fake.calls("cuEventRecord");
    for (uint64_t v = 1; v < VERSIONS; v++)
        T_OK(save(p, v));
    T_EQ(fake.calls("cuEventRecord") - before, VERSIONS - 1);
    gate_set(&p->gate, true);
    T_OK(varve_wait(p->h, VERSIONS - 1, VARVE_LEVEL_CACHED, CK_LIMIT_MS));
    for (uint64_t v = VERSIONS; v-- > 0;)
        bring(p, v);
    program_free(p);
    T_OK(varve_close(ctx));
}

int main(void)
{
    unsigned int code;
    void *handle;
    char err[256];

    T_CHECK(t_fake_load(t_fake_path(false), &handle, &fake));
    T_OK(vvi_cuda_driver_load(NULL, err, sizeof(err), &code, &app));
    *(void **)&host_func = dlsym(handle, "cuLaunchHostFunc");
    T_CHECK(host_func);
    T_EQ(app.cuDevicePrimaryCtxRetain(&cuda, 0), 0);
    T_EQ(app.cuCtxPushCurrent(cuda), 0);
    T_RUN(one_event_a_call);
    T_RUN(events_run_out);
    T_RUN(a_handle_comes_again);
    T_RUN(more_streams_than_lanes);
    T_RUN(streams_that_wait_for_threads);
    vvi_cuda_driver_unload(&app);
    return t_done();
}
