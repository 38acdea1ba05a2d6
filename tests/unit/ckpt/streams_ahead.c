/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that run ahead of the device: calls return while the stream stands still, space is planned
 * on its time line, and every byte is right when it has run. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "ckpt/ckpt_hooks.h"
#include "device/host/host.h"
#include "t.h"
#include "unit/ckpt/ck.h"

enum { PAGE = 4096, MOST = 9 * PAGE, CASES = 60 };

static struct vv_device *device;

static struct vv_device *see_device(void *arg, struct vv_device *inner)
{
    (void)arg;
    device = inner;
    return inner;
}

/* Reports ended events as pending, every other time. A thread that queries two events one by one may see
 * the first pending and the second ended, although the second waited for the first. */
static const struct vv_device_ops *real_ops;
static _Atomic uint64_t asked;

static int late_query(struct vv_device *d, struct vv_event *ev)
{
    struct t_rng rng = {atomic_fetch_add(&asked, 1)};
    return t_rng_u64(&rng) % 2 ? -EBUSY : real_ops->event_query(d, ev);
}

static struct varve_ctx *open_ctx(uint64_t device_pages, uint64_t host_pages, const char *local)
{
    static const struct vv_ckpt_hooks hooks = {.device = see_device};
    struct ck_cfg cfg = {.device = true,
                         .device_cache = device_pages * PAGE,
                         .host_cache = host_pages * PAGE,
                         .local = local,
                         .level = local ? VARVE_LEVEL_LOCAL : VARVE_LEVEL_CACHED};

    vv_ckpt_set_hooks(&hooks);
    struct varve_ctx *ctx = ck_open(&cfg);
    vv_ckpt_set_hooks(NULL);
    return ctx;
}

static struct CUstream_st *stream_new(void)
{
    void *native = NULL;
    T_OK(vv_device_host_native_new(device, &native));
    return native;
}

/* A thread's part: a stream, a history, a buffer. */
struct program {
    struct varve_ctx *ctx;
    struct varve_history *h;
    struct CUstream_st *stream;
    char *buf;
    _Atomic int wrong;
};

/* The work of a stream between two calls. */
struct kernel {
    struct program *p;
    uint64_t version;
    size_t bytes;
};

static void fill(void *arg)
{
    struct kernel *k = arg;
    ck_fill(k->p->buf, k->bytes, k->version, 0);
    free(k);
}

static void look(void *arg)
{
    struct kernel *k = arg;
    atomic_fetch_add(&k->p->wrong, !ck_same(k->p->buf, k->bytes, k->version, 0));
    free(k);
}

static void launch(struct program *p, void (*fn)(void *), uint64_t version, size_t bytes)
{
    struct kernel *k = malloc(sizeof(*k));
    T_CHECK(k);
    *k = (struct kernel){p, version, bytes};
    T_OK(vv_device_host_run(device, p->stream, fn, k));
}

static struct program *program_new(struct varve_ctx *ctx, const char *name, bool once,
                                   enum varve_order order)
{
    struct program *p = calloc(1, sizeof(*p));
    struct varve_history_opts opts;

    T_CHECK(p);
    p->ctx = ctx;
    T_OK(varve_history_opts_init(&opts, sizeof(opts)));
    opts.consume = once ? VARVE_CONSUME_ONCE : VARVE_CONSUME_KEEP;
    opts.order = order;
    T_OK(varve_history_open_with(ctx, name, &opts, &p->h));
    p->stream = stream_new();
    p->buf = ck_alloc(ctx, true, MOST);
    return p;
}

static void program_free(struct program *p)
{
    ck_stream_sync(device, p->stream);
    T_EQ(atomic_load(&p->wrong), 0);
    T_OK(varve_history_close(p->h));
    ck_free(p->ctx, true, p->buf);
    vv_device_host_native_free(device, p->stream);
    free(p);
}

static size_t size_of(uint64_t version)
{
    return (size_t)(1 + (version * 7 + version / 3) % 8) * PAGE + (version % 3) * 40;
}

static void save(struct program *p, uint64_t version)
{
    launch(p, fill, version, size_of(version));
    T_OK(varve_protect(p->h, 0, p->buf, size_of(version)));
    T_OK(varve_checkpoint_on_for(p->h, version, p->stream, CK_LIMIT_MS));
}

static void bring(struct program *p, uint64_t version)
{
    T_OK(varve_protect(p->h, 0, p->buf, size_of(version)));
    T_OK(varve_restore_on_for(p->h, version, p->stream, CK_LIMIT_MS));
    launch(p, look, version, size_of(version));
}

/* ---- one stream ---- */

static void steps(uint64_t device_pages, bool once, enum varve_order order)
{
    struct varve_ctx *ctx = open_ctx(device_pages, 400, NULL);
    struct program *p = program_new(ctx, "h", once, order);
    uint64_t n = 16;

    for (uint64_t step = 0; step < 3; step++) {
        uint64_t first = step * n;
        T_OK(vv_device_host_native_hold(device, p->stream));
        for (uint64_t v = first; v < first + n; v++)
            save(p, v);
        vv_device_host_app_release(device);
        /* The versions are restored while the stream is blocked again. */
        T_OK(varve_wait(p->h, first + n - 1, VARVE_LEVEL_CACHED, CK_LIMIT_MS));
        T_OK(vv_device_host_native_hold(device, p->stream));
        for (uint64_t i = 0; i < n; i++)
            bring(p, order == VARVE_ORDER_FIFO ? first + i : first + n - 1 - i);
        vv_device_host_app_release(device);
    }
    program_free(p);
    T_OK(varve_close(ctx));
}

static void cache_of_any_size(void)
{
    static const enum varve_order orders[] = {VARVE_ORDER_LIFO, VARVE_ORDER_FIFO,
                                              VARVE_ORDER_HINTS};

    for (unsigned i = 0; i < VV_ARRAY_SIZE(orders); i++)
        for (unsigned once = 0; once < 2; once++)
            for (uint64_t pages = 3; pages <= 48; pages *= 2)
                steps(pages, once, orders[i]);
}

/* A call returns while its stream stands still, however full the device is. */
static void calls_do_not_wait_for_the_stream(void)
{
    struct varve_ctx *ctx = open_ctx(8, 200, NULL);
    struct program *p = program_new(ctx, "h", true, VARVE_ORDER_LIFO);

    T_OK(vv_device_host_native_hold(device, p->stream));
    for (uint64_t v = 0; v < 12; v++)
        save(p, v);
    T_EQ(ck_count(p->h), 0);
    T_ERR(varve_wait(p->h, 0, VARVE_LEVEL_CACHED, 0), -ETIMEDOUT);
    vv_device_host_app_release(device);
    for (uint64_t v = 12; v-- > 0;)
        bring(p, v);
    program_free(p);
    T_OK(varve_close(ctx));
}

/* ---- several streams ---- */

static void random_program(struct program *p, uint64_t seed, bool once)
{
    uint64_t next = 0, alive[64], n = 0;
    struct t_rng rng = {seed};

    for (int i = 0; i < CASES; i++) {
        uint64_t r = t_rng_u64(&rng);
        if (n < 4 || (n < 12 && r % 5 < 2)) {
            alive[n++] = next;
            save(p, next++);
        } else {
            uint64_t k = r % 3 ? n - 1 : r / 16 % n;
            bring(p, alive[k]);
            if (once)
                alive[k] = alive[--n];
        }
        if (!once && n == 12) {
            T_OK(varve_discard(p->h, alive[0]));
            alive[0] = alive[--n];
        }
        if (r % 23 == 0)
            ck_stream_sync(device, p->stream);
    }
    for (uint64_t i = 0; i < n; i++)
        bring(p, alive[i]);
}

struct job {
    struct program *p;
    uint64_t seed;
    bool once;
    pthread_t thread;
};

static void *job_main(void *arg)
{
    struct job *j = arg;
    random_program(j->p, j->seed, j->once);
    return NULL;
}

static void run_jobs(unsigned n, uint64_t device_pages, uint64_t host_pages, const char *local)
{
    struct varve_ctx *ctx = open_ctx(device_pages, host_pages, local);
    struct job job[8];
    char name[16];

    for (unsigned i = 0; i < n; i++) {
        snprintf(name, sizeof(name), "h%u", i);
        job[i] = (struct job){.seed = t_seed() + i, .once = i % 2 == 0};
        job[i].p =
            program_new(ctx, name, job[i].once, i % 3 ? VARVE_ORDER_LIFO : VARVE_ORDER_HINTS);
    }
    for (unsigned i = 0; i < n; i++)
        T_EQ(pthread_create(&job[i].thread, NULL, job_main, &job[i]), 0);
    for (unsigned i = 0; i < n; i++)
        pthread_join(job[i].thread, NULL);
    for (unsigned i = 0; i < n; i++)
        program_free(job[i].p);
    T_OK(varve_close(ctx));
}

static void two_streams(void)
{
    run_jobs(2, 24, 400, NULL);
}

static void more_streams_than_lanes(void)
{
    run_jobs(6, 32, 1200, NULL);
}

static void with_a_disk(void)
{
    run_jobs(3, 16, 48, t_tmpdir());
}

/* A copy is reported after the copies that it waited for, in whatever order their events are queried. */
static void asked_late(void)
{
    struct varve_ctx *ctx = open_ctx(12, 400, NULL);
    struct program *p = program_new(ctx, "h", true, VARVE_ORDER_LIFO);
    struct vv_device_ops ops = *device->ops;

    atomic_store(&asked, t_seed());
    real_ops = device->ops;
    ops.event_query = late_query;
    device->ops = &ops;
    for (uint64_t first = 0; first < 640; first += 16) {
        for (uint64_t v = first; v < first + 16; v++)
            save(p, v);
        for (uint64_t v = first + 16; v-- > first;)
            bring(p, v);
    }
    ck_stream_sync(device, p->stream);
    T_OK(varve_flush(p->h, CK_LIMIT_MS));
    program_free(p);
    T_OK(varve_close(ctx));
}

/* A blocked stream does not block others. */
static void others_go_on(void)
{
    struct varve_ctx *ctx = open_ctx(16, 600, NULL);
    struct program *a = program_new(ctx, "a", true, VARVE_ORDER_LIFO);
    struct program *b = program_new(ctx, "b", false, VARVE_ORDER_HINTS);

    for (uint64_t v = 0; v < 4; v++) {
        ck_fill(b->buf, size_of(v), v, 0);
        T_OK(varve_protect(b->h, 0, b->buf, size_of(v)));
        T_OK(varve_checkpoint(b->h, v));
    }
    T_OK(vv_device_host_native_hold(device, a->stream));
    for (uint64_t v = 0; v < 10; v++)
        save(a, v);
    /* Blocking calls, and calls on another stream. */
    for (uint64_t v = 0; v < 4; v++) {
        T_OK(varve_protect(b->h, 0, b->buf, size_of(v)));
        T_OK(varve_restore_for(b->h, v, CK_LIMIT_MS));
        ck_check(b->buf, size_of(v), v, 0);
    }
    for (uint64_t v = 4; v < 12; v++) {
        ck_fill(b->buf, size_of(v), v, 0);
        T_OK(varve_protect(b->h, 0, b->buf, size_of(v)));
        T_OK(varve_checkpoint_for(b->h, v, CK_LIMIT_MS));
    }
    /* Without a kernel, because the emulated device runs kernels one after the other. */
    for (uint64_t v = 12; v < 20; v++) {
        ck_fill(b->buf, size_of(v), v, 0);
        T_OK(varve_protect(b->h, 0, b->buf, size_of(v)));
        T_OK(varve_checkpoint_on_for(b->h, v, b->stream, CK_LIMIT_MS));
        T_OK(varve_wait(b->h, v, VARVE_LEVEL_CACHED, CK_LIMIT_MS));
    }
    vv_device_host_app_release(device);
    for (uint64_t v = 10; v-- > 0;)
        bring(a, v);
    for (uint64_t v = 20; v-- > 0;)
        bring(b, v);
    program_free(a);
    program_free(b);
    T_OK(varve_close(ctx));
}

/* ---- failures ---- */

/* Each operation of the device fails once, at any place: a call fails, or succeeds; what it reported as
 * done is there. */
static void refusals(void)
{
    static const enum vv_device_op ops[] = {
        VV_DEVICE_OP_COPY_ASYNC, VV_DEVICE_OP_EVENT_NEW, VV_DEVICE_OP_EVENT_RECORD,
        VV_DEVICE_OP_STREAM_WAIT_EVENT, VV_DEVICE_OP_STREAM_NEW};

    for (unsigned i = 0; i < VV_ARRAY_SIZE(ops); i++)
        for (uint64_t nth = 1; nth <= 30; nth += 1 + nth / 8) {
            struct varve_ctx *ctx = open_ctx(8, 200, NULL);
            struct program *p = program_new(ctx, "h", nth % 2, VARVE_ORDER_LIFO);
            bool there[10] = {false};
            T_OK(vv_device_host_fail(device, ops[i], nth, 1, -EAGAIN));
            for (uint64_t v = 0; v < 10; v++) {
                launch(p, fill, v, size_of(v));
                T_OK(varve_protect(p->h, 0, p->buf, size_of(v)));
                int rc = varve_checkpoint_on_for(p->h, v, p->stream, CK_LIMIT_MS);
                there[v] = rc == 0;
            }
            vv_device_host_heal(device);
            ck_stream_sync(device, p->stream);
            T_OK(vv_device_host_fail(device, ops[i], nth, 1, -EAGAIN));
            for (uint64_t v = 10; v-- > 0;) {
                T_OK(varve_protect(p->h, 0, p->buf, size_of(v)));
                int rc = varve_restore_on_for(p->h, v, p->stream, CK_LIMIT_MS);
                if (rc == 0)
                    launch(p, look, v, size_of(v));
                T_CHECK(rc != 0 || there[v]);
            }
            vv_device_host_heal(device);
            program_free(p);
            T_OK(varve_close(ctx));
        }
}

int main(void)
{
    T_RUN(calls_do_not_wait_for_the_stream);
    T_RUN(cache_of_any_size);
    T_RUN(two_streams);
    T_RUN(asked_late);
    T_RUN(more_streams_than_lanes);
    T_RUN(with_a_disk);
    T_RUN(others_go_on);
    T_RUN(refusals);
    return t_done();
}
