/* SPDX-License-Identifier: Apache-2.0 */
/* Scripts of every order run against the library and the baselines, with every byte checked; and wrong bytes are
 * noticed. */
#include "lab/shot/shot_run.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "ckpt/ckpt_hooks.h"
#include "device/cuda/cuda.h"
#include "device/host/host.h"
#include "t.h"
#include "t_cuda.h"

struct fixture {
    struct shot_opts opts;
    struct shot_sizes sizes;
    struct shot_script script;
    struct shot_engine *engine;
    struct vv_device *device; /* baselines */
    struct shot_app app;
    struct shot_trace trace;
    struct shot_uvm_opts uvm;
    bool gpu_compute;
    char err[256];
};

/* Script and trace. */
static void set_up_script(struct fixture *f, enum shot_order order, enum shot_hints hints)
{
    shot_opts_init(&f->opts);
    f->opts.ckpts = 9;
    f->opts.size_bytes = 50001;
    f->opts.order = order;
    f->opts.hints = hints;
    f->opts.slots = 3;
    f->opts.wait = order != SHOT_ORDER_BINOMIAL;
    f->opts.consume = order == SHOT_ORDER_BINOMIAL ? SHOT_CONSUME_KEEP : SHOT_CONSUME_ONCE;
    T_OK(shot_sizes_init(&f->opts, f->err, sizeof(f->err), &f->sizes));
    T_OK(shot_script_init(&f->opts, &f->sizes, 100000, 0, &f->script));
    f->trace.put_blocked_s = calloc(f->script.nr_puts, sizeof(double));
    f->trace.get_blocked_s = calloc(f->script.nr_gets, sizeof(double));
    f->trace.distance = calloc(f->script.nr_gets, sizeof(uint32_t));
    f->trace.gaps_ns = calloc(f->script.nr_puts + f->script.nr_gets, sizeof(uint64_t));
    T_CHECK(f->trace.put_blocked_s && f->trace.get_blocked_s && f->trace.distance &&
            f->trace.gaps_ns);
}

static void set_up(struct fixture *f, enum shot_order order, enum shot_hints hints, bool device,
                   bool on_stream)
{
    struct varve_opts o;
    struct varve_history_opts ho;
    struct varve_ctx *ctx;
    struct varve_history *history;

    set_up_script(f, order, hints);
    T_OK(varve_opts_init(&o, sizeof(o)));
    o.device = device ? VARVE_DEVICE_HOST : VARVE_DEVICE_NONE;
    o.device_cache = device ? 64 << 10 : 0;
    o.host_cache = 128 << 10;
    o.page_bytes = 4096;
    snprintf(o.local, sizeof(o.local), "%s", t_tmpdir());
    T_OK(varve_open(&o, &ctx));
    T_OK(varve_history_opts_init(&ho, sizeof(ho)));
    ho.consume = f->opts.consume == SHOT_CONSUME_ONCE ? VARVE_CONSUME_ONCE : VARVE_CONSUME_KEEP;
    T_OK(varve_history_open_with(ctx, "shot", &ho, &history));
    T_OK(shot_app_init(vv_ckpt_device(ctx), f->script.largest_bytes, on_stream, &f->app));
    T_OK(shot_engine_varve(&(struct shot_varve){.ctx = ctx,
                                                .history = history,
                                                .has_disk = true,
                                                .on_stream = on_stream,
                                                .stream = f->app.native},
                           &f->engine));
    f->gpu_compute = device;
}

static void set_up_baseline(struct fixture *f, enum shot_order order, enum shot_engine_kind engine,
                            enum shot_hints hints, struct vv_device *device, bool direct)
{
    struct shot_baseline o = {.device = device, .folder = t_tmpdir(), .direct = direct};
    int rc;

    set_up_script(f, order, hints);
    o.sizes = &f->sizes;
    o.device_cache_bytes = 3 * f->opts.size_bytes;
    o.consume_once = f->opts.consume == SHOT_CONSUME_ONCE;
    o.uvm = f->uvm;
    f->device = device;
    T_OK(shot_app_init(device, f->script.largest_bytes, false, &f->app));
    rc = engine == SHOT_ENGINE_UVM ? shot_engine_uvm(&o, f->err, sizeof(f->err), &f->engine)
         : engine == SHOT_ENGINE_FILE
             ? shot_engine_file(&o, f->err, sizeof(f->err), &f->engine)
             : shot_engine_ondemand(&o, f->err, sizeof(f->err), &f->engine);
    if (rc)
        t_fail(__FILE__, __LINE__, "%s", f->err);
}

static void tear_down(struct fixture *f)
{
    shot_app_fini(&f->app);
    T_OK(shot_engine_close(f->engine));
    vv_device_close(f->device);
    free(f->trace.put_blocked_s);
    free(f->trace.get_blocked_s);
    free(f->trace.distance);
    free(f->trace.gaps_ns);
    shot_script_fini(&f->script);
    shot_sizes_fini(&f->sizes);
}

static int run(struct fixture *f)
{
    struct shot_run r = {.script = &f->script,
                         .engines = &f->engine,
                         .app = &f->app,
                         .gpu_compute = f->gpu_compute,
                         .seed = 5};

    return shot_run(&r, f->err, sizeof(f->err), &f->trace);
}

static void every_order(void)
{
    for (int i = 0; i < 24; i++) {
        struct fixture f = {0};

        /* Each order with each of the hints, with a device or without. */
        if (t_sanitized() && !t_long() && (i + i / 4 + i / 12) % 2)
            continue;
        set_up(&f, (enum shot_order)(i % 4), (enum shot_hints)(i / 4 % 3), i >= 12, false);
        if (run(&f) < 0)
            t_fail(__FILE__, __LINE__, "combination %d: %s", i, f.err);
        T_CHECK(f.trace.verified && f.trace.wall_s > 0);
        T_CHECK(f.trace.utilisation > 0 && f.trace.utilisation <= 1);
        T_CHECK(f.trace.first_utilisation > 0 && f.trace.first_utilisation <= 1);
        for (size_t n = 0; n < f.script.nr_puts + f.script.nr_gets; n++)
            T_CHECK(f.trace.gaps_ns[n] > 0);
        tear_down(&f);
    }
}

static void check_run(struct fixture *f, int i);

/* Calls in the order of a stream. */
static void on_a_stream(void)
{
    for (int i = 0; i < 4; i++) {
        struct fixture f = {0};

        set_up(&f, (enum shot_order)i, SHOT_HINTS_ALL, true, true);
        check_run(&f, i);
    }
}

static void check_run(struct fixture *f, int i)
{
    if (run(f) < 0)
        t_fail(__FILE__, __LINE__, "combination %d: %s", i, f->err);
    T_CHECK(f->trace.verified && f->trace.wall_s > 0);
    tear_down(f);
}

static struct vv_device *emulated(void)
{
    struct vv_device_host_opts opts;
    struct vv_device *d;

    vv_device_host_opts_init(&opts);
    opts.capacity_bytes = 64 << 20;
    opts.guard = true;
    T_OK(vv_device_open_host(&opts, &d));
    return d;
}

static void baselines(void)
{
    for (int i = 0; i < 8; i++) {
        struct fixture f = {0};

        set_up_baseline(&f, (enum shot_order)(i % 4),
                        i < 4 ? SHOT_ENGINE_ONDEMAND : SHOT_ENGINE_FILE, SHOT_HINTS_ALL, emulated(),
                        false);
        check_run(&f, i);
    }
}

/* The driver provides managed memory: over the stand-in, or a GPU. In every variant. */
static void managed(void)
{
    static const struct shot_uvm_opts ways[] = {
        {.touch = true, .ahead = 2, .step_bytes = 4096, .yield = true},
        {.ahead = 0},
        {.ahead = 64, .step_bytes = 40000, .fetch = true},
    };
    struct vv_device_cuda_opts opts = {.index = 0};
    char err[256];

    if (!t_device_is_cuda())
        opts.library = t_fake_path(false);
    for (int i = 0; i < 36; i++) {
        struct fixture f = {.uvm = ways[i / 12]};
        struct vv_device_info info;
        struct vv_device *d;

        T_OK(vv_device_open_cuda(&opts, err, sizeof(err), &d));
        vv_device_describe(d, &info);
        if (!info.kernels) {
            vv_device_close(d);
            return; /* built without kernels: bytes could not be checked */
        }
        set_up_baseline(&f, (enum shot_order)(i % 4), SHOT_ENGINE_UVM, (enum shot_hints)(i / 4 % 3),
                        d, false);
        check_run(&f, i);
    }
}

static void managed_needs_cuda(void)
{
    struct vv_device *d = emulated();
    struct shot_sizes sizes = {.bytes = (uint64_t[]){1000}, .nr = 1, .largest_bytes = 1000};
    struct shot_baseline o = {.device = d, .sizes = &sizes};
    struct shot_engine *e = NULL;
    char err[256] = "";

    T_CHECK(shot_engine_uvm(&o, err, sizeof(err), &e) < 0);
    T_CHECK(!e && strstr(err, "uvm: "));
    vv_device_close(d);
}

/* A version of another writer comes back instead of the requested one. */
static void wrong_bytes_are_seen(void)
{
    struct fixture f = {0};
    struct shot_op ops[] = {{.kind = SHOT_GET, .version = 1, .bytes = 1000}};

    set_up(&f, SHOT_ORDER_SEQ, SHOT_HINTS_NONE, false, false);
    T_OK(shot_app_fill(&f.app, 1000, 5, 2));
    T_OK(f.engine->ops->prepare(f.engine, f.app.buf, 1000));
    T_OK(f.engine->ops->checkpoint(f.engine, 1, f.app.buf, 1000));
    shot_script_fini(&f.script);
    f.script = (struct shot_script){.ops = ops, .nr_ops = 1, .nr_gets = 1, .largest_bytes = 1000};
    T_OK(run(&f));
    T_CHECK(!f.trace.verified && strstr(f.err, "version 1"));
    f.script = (struct shot_script){0};
    tear_down(&f);
}

static void errors_name_the_version(void)
{
    struct fixture f = {0};
    struct shot_op ops[] = {{.kind = SHOT_GET, .version = 77, .bytes = 1000}};

    set_up(&f, SHOT_ORDER_SEQ, SHOT_HINTS_NONE, false, false);
    shot_script_fini(&f.script);
    f.script = (struct shot_script){.ops = ops, .nr_ops = 1, .nr_gets = 1, .largest_bytes = 1000};
    T_ERR(run(&f), -ENOENT);
    T_CHECK(strstr(f.err, "restore 77"));
    f.script = (struct shot_script){0};
    tear_down(&f);
}

int main(void)
{
    T_RUN(every_order);
    T_RUN(on_a_stream);
    T_RUN(baselines);
    T_RUN(managed);
    T_RUN(managed_needs_cuda);
    T_RUN(wrong_bytes_are_seen);
    T_RUN(errors_name_the_version);
    return t_done();
}
