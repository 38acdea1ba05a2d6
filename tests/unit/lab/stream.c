/* SPDX-License-Identifier: Apache-2.0 */
/* Steps on streams: the copies of the baselines, that a pool never writes memory that is still in use, and that
 * wrong bytes are noticed. */
#include "lab/shot/stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "device/host/host.h"
#include "lab/shot/report.h"
#include "lab/shot/shot_run.h"
#include "lab/sim/sim_run.h"
#include "t.h"

struct fixture {
    struct shot_opts opts;
    struct stream_plan plan;
    struct shot_work work;
    struct vv_device *device;
    struct shot_app app;
    struct shot_engine *engine;
    struct stream_shared shared;
    struct shot_trace trace;
    struct stream_figures figures;
    char err[256];
};

static int no_barrier(void *arg)
{
    (void)arg;
    return 0;
}

static void no_progress(void *arg, size_t ops_done)
{
    (void)arg;
    (void)ops_done;
}

static struct stream_baseline baseline(const struct fixture *f, uint64_t device_bytes)
{
    return (struct stream_baseline){.device = f->device,
                                    .stream = f->app.stream,
                                    .script = &f->work.threads[0],
                                    .device_bytes = device_bytes,
                                    .ahead = 2};
}

/* A link so slow that everything on it lags behind the kernels. */
static void set_up(struct fixture *f, enum shot_order order, int engine)
{
    struct vv_device_host_opts o;
    const struct shot_script *s;

    *f = (struct fixture){.plan = {.engine = engine,
                                   .blocks = 6,
                                   .streams = 1,
                                   .steps = 2,
                                   .forward_ns = 50000,
                                   .backward_ns = 100000}};
    shot_opts_init(&f->opts);
    f->opts.sizes = "16K,64K,50000";
    f->opts.ckpts = 18;
    f->opts.order = order;
    f->opts.wait = false;
    f->opts.hints = order == SHOT_ORDER_IRR ? SHOT_HINTS_ALL : SHOT_HINTS_NONE;
    T_OK(stream_work_make(&f->opts, &f->plan, f->err, sizeof(f->err), &f->work));
    s = &f->work.threads[0];
    vv_device_host_opts_init(&o);
    o.engine[VV_DEVICE_HOST_D2H].bytes_per_s = 40000000;
    o.engine[VV_DEVICE_HOST_H2D].bytes_per_s = 40000000;
    T_OK(vv_device_open_host(&o, &f->device));
    T_OK(shot_app_init(f->device, stream_app_bytes(&f->plan, s), true, &f->app));
    f->trace.put_blocked_s = calloc(s->nr_puts, sizeof(double));
    f->trace.get_blocked_s = calloc(s->nr_gets, sizeof(double));
    f->trace.gaps_ns = calloc(s->nr_puts + s->nr_gets, sizeof(uint64_t));
    T_CHECK(f->trace.put_blocked_s && f->trace.get_blocked_s && f->trace.gaps_ns);
}

static int run(struct fixture *f)
{
    struct stream_run r = {.plan = &f->plan,
                           .script = &f->work.threads[0],
                           .engine = f->engine,
                           .app = &f->app,
                           .shared = &f->shared,
                           .seed = 7,
                           .barrier = no_barrier,
                           .progress = no_progress};

    return stream_run(&r, f->err, sizeof(f->err), &f->trace, &f->figures);
}

static void tear_down(struct fixture *f)
{
    vv_device_event_free(f->device, f->shared.origin);
    T_OK(shot_engine_close(f->engine));
    shot_app_fini(&f->app);
    vv_device_close(f->device);
    shot_work_fini(&f->work);
    free(f->trace.put_blocked_s);
    free(f->trace.get_blocked_s);
    free(f->trace.gaps_ns);
}

/* Kernels last as long as requested; with the stalls they are the step. */
static void check_times(const struct fixture *f)
{
    double kernels = 0, stalls = 0;

    for (size_t i = 0; i < 36; i++)
        kernels += (double)f->trace.gaps_ns[i] * 1e-9;
    for (size_t i = 0; i < 18; i++)
        stalls += f->trace.put_blocked_s[i] + f->trace.get_blocked_s[i];
    T_EQ(f->figures.nr_steps, 2);
    T_CHECK(kernels >= 17 * (50e-6 + 100e-6) / 3);
    T_CHECK(f->trace.wall_s >= kernels + stalls + 100e-6 / 3 - 1e-6);
}

/* With two objects in each half of its memory, and all of the step. */
static void a_pool_moves_everything(void)
{
    static const enum shot_order orders[] = {SHOT_ORDER_REV, SHOT_ORDER_SEQ, SHOT_ORDER_IRR};

    for (size_t i = 0; i < 2 * VV_ARRAY_SIZE(orders); i++) {
        struct fixture f;
        struct stream_baseline b;

        set_up(&f, orders[i / 2], STREAM_ENGINE_POOL);
        b = baseline(&f, i % 2 ? 2 * (128 << 10) : 8 << 20);
        T_OK(stream_engine_pool(&b, f.err, sizeof(f.err), &f.engine));
        T_OK(run(&f));
        T_CHECK(f.trace.verified);
        T_EQ(f.figures.moved_down_bytes, 2 * 6 * (16384 + 65536 + 50000));
        T_EQ(f.figures.moved_up_bytes, f.figures.moved_down_bytes);
        check_times(&f);
        tear_down(&f);
    }
}

static void nothing_is_saved(void)
{
    struct fixture f;
    struct stream_baseline b;

    set_up(&f, SHOT_ORDER_REV, STREAM_ENGINE_NONE);
    b = baseline(&f, 0);
    T_OK(stream_engine_none(&b, f.err, sizeof(f.err), &f.engine));
    T_OK(run(&f));
    T_CHECK(f.trace.verified);
    T_EQ(f.figures.moved_down_bytes + f.figures.moved_up_bytes, 0);
    check_times(&f);
    tear_down(&f);
}

static void a_pool_needs_room(void)
{
    struct fixture f;
    struct stream_baseline b;

    set_up(&f, SHOT_ORDER_REV, STREAM_ENGINE_POOL);
    b = baseline(&f, 2 * 65536 - 4096);
    T_ERR(stream_engine_pool(&b, f.err, sizeof(f.err), &f.engine), -EFBIG);
    T_CHECK(strstr(f.err, "expected 128 KiB at least"));
    tear_down(&f);
}

/* One restore brings nothing: the kernel behind it sees what the memory had before. */
static struct shot_engine_ops forgetful;
static const struct shot_engine_ops *honest;

static int forget(struct shot_engine *e, uint64_t version, bool reads, void **ret_buf)
{
    int rc = honest->place(e, version, reads, ret_buf);

    if (reads && version == 2 * 18 + 5)
        rc = honest->place(e, version + 1, reads, ret_buf);
    return rc;
}

static void wrong_bytes_are_seen(void)
{
    struct fixture f;
    struct stream_baseline b;

    set_up(&f, SHOT_ORDER_REV, STREAM_ENGINE_NONE);
    b = baseline(&f, 0);
    T_OK(stream_engine_none(&b, f.err, sizeof(f.err), &f.engine));
    honest = f.engine->ops;
    forgetful = *honest;
    forgetful.place = forget;
    f.engine->ops = &forgetful;
    T_OK(run(&f));
    T_CHECK(!f.trace.verified);
    T_CHECK(strstr(f.err, "step 2: ") && strstr(f.err, "bytes are wrong"));
    f.engine->ops = honest;
    tear_down(&f);
}

static void lists_of_sizes(void)
{
    struct shot_opts o;
    struct shot_sizes sizes;
    char err[256];

    T_EQ(shot_sizes_listed(NULL), 1);
    T_EQ(shot_sizes_listed("16K,64K,50000"), 3);
    T_EQ(shot_sizes_listed("8M"), 1);
    T_EQ(shot_sizes_listed("8M,"), 1);
    T_EQ(shot_sizes_listed("table.csv:3"), 1);
    shot_opts_init(&o);
    o.sizes = "1K,2K";
    o.ckpts = 3;
    T_OK(shot_sizes_init(&o, err, sizeof(err), &sizes));
    T_EQ(sizes.bytes[0], 1024);
    T_EQ(sizes.bytes[1], 2048);
    T_EQ(sizes.bytes[2], 1024);
    T_EQ(sizes.largest_bytes, 2048);
    shot_sizes_fini(&sizes);
}

/* A simulated run is a schedule: no stream of it stalls for less than the bound of all streams together. */
static void no_schedule_is_below_the_bound(void)
{
    static const char *const sizes[] = {"64K,256K,256K", "256K", "64K", "300000,4K,4K,900000"};
    struct t_rng rng = {t_seed()};
    size_t runs = t_long() ? 3000 : 300, near = 0;

    for (size_t i = 0; i < runs; i++) {
        struct stream_plan plan = {.blocks = 4 + (uint32_t)(t_rng_u64(&rng) % 40),
                                   .streams = 2 + (uint32_t)(t_rng_u64(&rng) % 3),
                                   .forward_ns = t_rng_u64(&rng) % 2000000,
                                   .backward_ns = t_rng_u64(&rng) % 2000000};
        struct shot_work work;
        struct shot_opts o;
        struct shot_report r;
        char err[256];

        shot_opts_init(&o);
        o.sizes = sizes[t_rng_u64(&rng) % VV_ARRAY_SIZE(sizes)];
        o.ckpts = plan.blocks * (uint32_t)shot_sizes_listed(o.sizes);
        o.order = (int)(t_rng_u64(&rng) % 3);
        o.hints = o.order == SHOT_ORDER_IRR ? SHOT_HINTS_ALL : SHOT_HINTS_NONE;
        o.wait = false;
        o.page_bytes = 16384;
        o.local = i % 3 ? "none" : NULL;
        o.device_cache.share = 0.1 + (double)(t_rng_u64(&rng) % 100) / 150;
        o.host_cache.share = i % 3 ? 2 : 0.3;
        o.rate[SHOT_HOP_D2D] = 20000000000;
        o.rate[SHOT_HOP_D2H] = o.rate[SHOT_HOP_H2D] = 1000000000;
        o.rate[SHOT_HOP_H2F] = o.rate[SHOT_HOP_F2H] = 500000000;
        T_OK(stream_work_make(&o, &plan, err, sizeof(err), &work));
        T_OK(sim_run_work("stream", &o, &work, err, sizeof(err), &r));
        T_OK(stream_report_bound(&r, &work));
        shot_report_finish(&r);
        for (uint32_t t = 0; t < r.nr_procs; t++) {
            const struct shot_proc *p = &r.procs[t];

            T_CHECK(p->bound.total_s <=
                    (p->blocked_checkpoint_s + p->blocked_restore_s) * (1 + 1e-9) + 1e-6);
        }
        near += r.bound_ratio < 1.1;
        shot_report_fini(&r);
        shot_work_fini(&work);
    }
    T_CHECK(near > runs / 10);
}

int main(void)
{
    T_RUN(a_pool_moves_everything);
    T_RUN(nothing_is_saved);
    T_RUN(a_pool_needs_room);
    T_RUN(wrong_bytes_are_seen);
    T_RUN(lists_of_sizes);
    T_RUN(no_schedule_is_below_the_bound);
    return t_done();
}
