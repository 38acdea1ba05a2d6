/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The children of `varve bench shot`.
 *
 * A child that runs the shot is an application: it has memory of its own, on a device or not, and gives it to an
 * engine. On a real device they share only the device's primary context, as any program and the library do; an
 * emulated device is the library's own, and the application borrows it. Baselines use the application's device.
 *
 * A child that measures runs plain loops on the device and stores their rates.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpus.h"
#include "ckpt/ckpt_hooks.h"
#include "cli/measure/probe_device.h"
#include "device/cuda/cuda.h"
#include "device/host/host.h"
#include "lab/shot/bench_shot.h"
#include "lab/shot/probe_baseline.h"

#define BARRIER_POLL_NS (20 * VV_NS_PER_US)
#define READY_WAIT_NS   (UINT64_C(10) * 1000 * VV_NS_PER_MS) /* without any progress */
#define PROBE_SECONDS   0.4
#define PROBE_ALIGN     (UINT64_C(2) << 20)
#define PROBE_FILES     4

/* State of a thread of a child while it runs. */
struct child_env {
    struct bench *bench;
    struct bench_child *child;
};

static int wait_at_barrier(void *arg)
{
    struct bench *b = ((struct child_env *)arg)->bench;
    struct bench_shared *sh = b->shared;
    uint32_t round = atomic_load_explicit(&sh->round, memory_order_acquire);

    if (atomic_fetch_add_explicit(&sh->arrived, 1, memory_order_acq_rel) + 1 ==
        b->opts.procs * b->nr_threads) {
        atomic_store_explicit(&sh->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&sh->round, round + 1, memory_order_release);
        return 0;
    }
    while (atomic_load_explicit(&sh->round, memory_order_acquire) == round) {
        if (atomic_load_explicit(&sh->failed, memory_order_relaxed))
            return -ECANCELED;
        vv_sleep_until_ns(vv_now_ns() + BARRIER_POLL_NS);
    }
    return 0;
}

static void note_progress(void *arg, size_t ops_done)
{
    struct bench_child *c = ((struct child_env *)arg)->child;

    atomic_store_explicit(&c->ops_done, ops_done, memory_order_relaxed);
}

/* ---- devices ---- */

/* The application's own device. The emulated one is as fast as the library's would be. */
static int open_device(const struct bench *b, char *err, struct vv_device **ret_device)
{
    struct vv_device_host_opts o;
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    int rc;

    if (b->opts.device == VARVE_DEVICE_CUDA)
        return vv_device_open_cuda(NULL, err, BENCH_TEXT_BYTES, ret_device);
    vv_device_host_opts_init(&o);
    o.capacity_bytes = (uint64_t)pages * (uint64_t)page;
    o.engine[VV_DEVICE_HOST_D2D].bytes_per_s = b->opts.rate[SHOT_HOP_D2D];
    o.engine[VV_DEVICE_HOST_D2H].bytes_per_s = b->opts.rate[SHOT_HOP_D2H];
    o.engine[VV_DEVICE_HOST_H2D].bytes_per_s = b->opts.rate[SHOT_HOP_H2D];
    rc = vv_device_open_host(&o, ret_device);
    return rc ? bench_fail(err, rc, "emulated device: %s", varve_strerror(rc)) : 0;
}

static int init_app(const struct bench *b, struct vv_device *device, size_t bytes, char *err,
                    struct shot_app *ret_app)
{
    bool own_stream = b->stream || b->opts.calls == SHOT_CALLS_ON;
    int rc = shot_app_init(device, bytes, own_stream, ret_app);

    if (rc == -ENOTSUP)
        return bench_fail(
            err, rc,
            "our kernels, which check every byte, are not in this build or do not run on "
            "this device ('varve doctor' says more)");
    return rc ? bench_fail(err, rc, "memory for the application: %s", varve_strerror(rc)) : 0;
}

/* ---- engines ---- */

static uint64_t tier_bytes(const struct bench *b, enum vv_tier_kind kind)
{
    for (unsigned t = 0; t < b->core.ntiers; t++)
        if (b->core.tier[t].kind == kind)
            return b->core.tier[t].capacity_bytes;
    return 0;
}

/* Each process has a file of its own, with its rank in the name unless the name has one. */
static int set_trace_file(const struct bench *b, struct varve_opts *o)
{
    char name[sizeof(o->trace_file)];
    const char *given = b->opts.trace ? b->opts.trace : o->trace_file;
    bool shared = b->opts.procs > 1 && given[0] && !strstr(given, "%r") && !strstr(given, "%p");
    int n = snprintf(name, sizeof(name), "%s%s", given, shared ? ".%r" : "");

    if (n < 0 || (size_t)n >= sizeof(name))
        return -ENAMETOOLONG;
    memcpy(o->trace_file, name, (size_t)n + 1);
    return 0;
}

static int open_context(const struct bench *b, uint32_t rank, char *err, struct varve_ctx **ret_ctx)
{
    struct varve_opts o;
    struct varve_error error = {.error_size = sizeof(error)};
    int rc = varve_opts_init(&o, sizeof(o));

    if (rc < 0)
        return bench_fail(err, rc, "options: %s", varve_strerror(rc));
    o.device = b->opts.device;
    o.policy = b->opts.policy;
    o.level = b->opts.level;
    o.local_io = b->opts.local_io;
    o.local_sync = b->opts.local_sync;
    o.device_cache = tier_bytes(b, VV_TIER_DEVICE);
    o.host_cache = shot_cap_bytes(&b->opts.host_cache, b->history_bytes, b->opts.page_bytes);
    o.local_cache = shot_cap_bytes(&b->opts.local_cache, b->history_bytes, b->opts.page_bytes);
    o.page_bytes = b->core.page_bytes;
    o.rank = (int32_t)rank;
    snprintf(o.local, sizeof(o.local), "%s", b->folder);
    o.remote[0] = '\0';
    rc = set_trace_file(b, &o);
    if (rc < 0)
        return bench_fail(err, rc, "--trace: too long");
    rc = shot_opts_rates(&b->opts, o.rate, sizeof(o.rate));
    if (rc < 0)
        return bench_fail(err, rc, "--rate: too long");
    rc = varve_open(&o, ret_ctx);
    if (rc < 0)
        return bench_fail(
            err, rc, "opening the library: %s",
            varve_last_error(NULL, &error) == 0 && error.text[0] ? error.text : varve_strerror(rc));
    return 0;
}

/* Opens one history as an engine. */
static int open_history(const struct bench *b, const struct shot_hist *hist, struct shot_varve *v,
                        struct shot_engine **ret_engine)
{
    struct varve_history_opts ho;
    int rc = varve_history_opts_init(&ho, sizeof(ho));

    v->has_disk = b->folder[0] != '\0';
    v->on_stream = b->stream || b->opts.calls == SHOT_CALLS_ON;
    if (rc == 0) {
        ho.consume = hist->consume_once ? VARVE_CONSUME_ONCE : VARVE_CONSUME_KEEP;
        ho.order = hist->order;
        rc = varve_history_open_with(v->ctx, hist->name, &ho, &v->history);
    }
    return rc < 0 ? rc : shot_engine_varve(v, ret_engine);
}

/* Memory is touched before the shot, unless the shot has to begin at once. The library does the same. */
static int uvm_opts(const struct bench *b, char *err, struct shot_uvm_opts *ret_opts)
{
    int rc = shot_uvm_opts_parse(b->opts.uvm, err, BENCH_TEXT_BYTES, ret_opts);

    if (rc == 0 && b->opts.at_once)
        ret_opts->touch = false;
    return rc;
}

static int open_baseline(const struct bench *b, uint32_t rank, struct vv_device *device, char *err,
                         struct shot_engine **ret_engine)
{
    int rc;
    struct shot_baseline o = {
        .device = device,
        .sizes = &b->sizes,
        .device_cache_bytes = tier_bytes(b, VV_TIER_DEVICE),
        .folder = b->folder,
        .rank = rank,
        .direct = b->opts.local_io == VARVE_LOCAL_IO_DIRECT,
        .consume_once = b->opts.consume == SHOT_CONSUME_ONCE,
    };

    switch (b->opts.engine) {
    case SHOT_ENGINE_UVM:
        rc = uvm_opts(b, err, &o.uvm);
        return rc ? rc : shot_engine_uvm(&o, err, BENCH_TEXT_BYTES, ret_engine);
    case SHOT_ENGINE_ONDEMAND:
        return shot_engine_ondemand(&o, err, BENCH_TEXT_BYTES, ret_engine);
    default:
        return shot_engine_file(&o, err, BENCH_TEXT_BYTES, ret_engine);
    }
}

/* ---- running a shot ---- */

/* Everything opened so far, to be closed in reverse order. */
struct opened {
    struct vv_device *device;     /* opened here */
    struct varve_ctx *ctx;        /* of the library, shared by the engines */
    struct shot_app *apps;        /* one for each thread */
    struct shot_engine **engines; /* one for each history */
    uint32_t nr_apps, nr_engines; /* so many are open */
    struct stream_shared streams;
};

/* The memory that a thread needs. */
static size_t app_bytes(const struct bench *b, const struct shot_script *script)
{
    if (b->stream)
        return stream_app_bytes(b->stream, script);
    return (size_t)VV_MAX(script->largest_bytes, UINT64_C(1));
}

/* Memory for each thread, of the size of its largest version. */
static int init_apps(const struct bench *b, const struct shot_work *work, struct vv_device *device,
                     char *err, struct opened *o)
{
    int rc = 0;

    for (; rc == 0 && o->nr_apps < work->nr_threads; o->nr_apps += rc == 0)
        rc = init_app(b, device, app_bytes(b, &work->threads[o->nr_apps]), err,
                      &o->apps[o->nr_apps]);
    return rc;
}

/* Waits until the host cache is ready. The library prepares it while the first checkpoints run, and
 * registering its memory delays other calls of a device. A shot with at_once does not wait. */
static int wait_until_ready(struct varve_ctx *ctx, uint64_t host_bytes, char *err)
{
    struct varve_stats s = {.stats_size = sizeof(s)};
    uint64_t last = 0, seen_ns = vv_now_ns();
    int rc;

    for (;;) {
        rc = varve_stats(ctx, &s);
        if (rc)
            return bench_fail(err, rc, "statistics: %s", varve_strerror(rc));
        /* The rest of a size beyond whole pages is never made ready. */
        if (s.host_ready_bytes >= host_bytes - host_bytes % s.page_bytes)
            return 0;
        if (s.host_ready_bytes > last) {
            last = s.host_ready_bytes;
            seen_ns = vv_now_ns();
        } else if (vv_now_ns() - seen_ns > READY_WAIT_NS) {
            return bench_fail(err, -ETIMEDOUT, "the host cache is not getting ready");
        }
        vv_sleep_until_ns(vv_now_ns() + VV_NS_PER_MS);
    }
}

/* Opens the library, with an application on its device if only the library has that device. */
static int open_with_varve(const struct bench *b, uint32_t rank, const struct shot_work *work,
                           struct bench_child *c, struct opened *o)
{
    uint64_t start = vv_now_ns();
    struct shot_varve v = {.shares = true};
    int rc = open_context(b, rank, c->err, &o->ctx);

    c->open_s = (double)(vv_now_ns() - start) * 1e-9;
    if (rc == 0 && o->nr_apps == 0)
        rc = init_apps(b, work, vv_ckpt_device(o->ctx), c->err, o);
    if (rc)
        return rc;
    v.ctx = o->ctx;
    for (uint32_t h = 0; rc == 0 && h < work->nr_hists; h++) {
        v.stream = o->apps[b->stream ? h : 0].native; /* steps: each stream has a history */
        rc = open_history(b, &work->hists[h], &v, &o->engines[h]);
        o->nr_engines += rc == 0;
    }
    if (rc)
        return bench_fail(c->err, rc, "opening the history: %s", varve_strerror(rc));
    if (b->opts.at_once)
        return 0;
    /* A rest that does not fill a page is never used. */
    rc = wait_until_ready(v.ctx, vv_align_down(tier_bytes(b, VV_TIER_HOST), b->core.page_bytes),
                          c->err);
    c->host_ready_s = (double)(vv_now_ns() - start) * 1e-9;
    return rc;
}

static size_t probe_bytes(const struct bench *b)
{
    uint64_t bytes = b->sizes.total_bytes / b->sizes.nr;

    return (size_t)VV_MIN(VV_MAX(bytes, UINT64_C(64) << 10), UINT64_C(128) << 20);
}

/* Each stream has an engine of its own. */
static int open_stream_baselines(const struct bench *b, const struct shot_work *work, char *err,
                                 struct opened *o)
{
    int rc = 0;

    for (; rc == 0 && o->nr_engines < work->nr_threads; o->nr_engines += rc == 0) {
        uint32_t t = o->nr_engines;
        struct stream_baseline s = {.device = o->device,
                                    .stream = o->apps[t].stream,
                                    .script = &work->threads[t],
                                    .device_bytes =
                                        tier_bytes(b, VV_TIER_DEVICE) / work->nr_threads,
                                    .ahead = b->stream->ahead};

        rc = b->stream->engine == STREAM_ENGINE_POOL
                 ? stream_engine_pool(&s, err, BENCH_TEXT_BYTES, &o->engines[t])
                 : stream_engine_none(&s, err, BENCH_TEXT_BYTES, &o->engines[t]);
    }
    return rc;
}

static int open_all(const struct bench *b, uint32_t rank, const struct shot_work *work,
                    struct bench_child *c, struct opened *o)
{
    bool baseline =
        b->stream ? b->stream->engine != STREAM_ENGINE_VARVE : b->opts.engine != SHOT_ENGINE_VARVE;
    bool own_device = baseline || b->opts.device == VARVE_DEVICE_CUDA;
    uint64_t start;
    int rc;

    o->apps = calloc(work->nr_threads, sizeof(*o->apps));
    o->engines = calloc(work->nr_hists, sizeof(struct shot_engine *));
    if (!o->apps || !o->engines)
        return bench_fail(c->err, -ENOMEM, "out of memory");
    rc = own_device ? open_device(b, c->err, &o->device) : 0;
    /* The application exists before the engine is opened. */
    if (rc == 0 && own_device)
        rc = init_apps(b, work, o->device, c->err, o);
    if (rc)
        return rc;
    if (!baseline)
        return open_with_varve(b, rank, work, c, o);
    start = vv_now_ns();
    if (b->stream) {
        rc = open_stream_baselines(b, work, c->err, o);
    } else {
        rc = open_baseline(b, rank, o->device, c->err, &o->engines[0]);
        o->nr_engines = rc == 0;
    }
    c->open_s = (double)(vv_now_ns() - start) * 1e-9;
    return rc;
}

static int close_all(struct opened *o)
{
    int rc = 0;

    if (o->streams.origin)
        vv_device_event_free(o->apps[0].device, o->streams.origin);
    /* The application's memory may be the library's device's. */
    while (o->nr_apps > 0)
        shot_app_fini(&o->apps[--o->nr_apps]);
    while (o->nr_engines > 0)
        if (shot_engine_close(o->engines[--o->nr_engines]) < 0)
            rc = -EIO;
    if (o->ctx && varve_close(o->ctx) < 0)
        rc = -EIO;
    vv_device_close(o->device);
    free(o->apps);
    free(o->engines);
    return rc;
}

/* A thread of the work. */
struct worker {
    struct child_env env;
    struct shot_run run;
    struct stream_run steps; /* instead of `run`, if the thread has a plan */
    pthread_t thread;
    bool started;
};

static void *run_worker(void *arg)
{
    struct worker *w = arg;
    struct bench_child *c = w->env.child;

    c->rc = w->steps.plan ? stream_run(&w->steps, c->err, sizeof(c->err), &c->trace, &c->stream)
                          : shot_run(&w->run, c->err, sizeof(c->err), &c->trace);
    if (c->rc < 0)
        atomic_store_explicit(&w->env.bench->shared->failed, true, memory_order_relaxed);
    return NULL;
}

/* The calling thread does the work of the first thread. Returns the result of the first thread that failed by itself,
 * and stores its text in c[0]. */
static int run_threads(struct bench *b, uint32_t rank, const struct shot_work *work,
                       struct opened *o, struct bench_child *c)
{
    struct worker *w = calloc(work->nr_threads, sizeof(*w));
    uint32_t failed = 0;
    int rc = 0;

    if (!w)
        return bench_fail(c->err, -ENOMEM, "out of memory");
    for (uint32_t t = work->nr_threads; t-- > 0;) {
        w[t].env = (struct child_env){b, &c[t]};
        w[t].run = (struct shot_run){.script = &work->threads[t],
                                     .engines = o->engines,
                                     .app = &o->apps[t],
                                     .gpu_compute = b->opts.compute == SHOT_COMPUTING_GPU,
                                     .seed = b->opts.seed + rank,
                                     .barrier = wait_at_barrier,
                                     .progress = note_progress,
                                     .arg = &w[t].env};
        w[t].steps = (struct stream_run){.plan = b->stream,
                                         .script = &work->threads[t],
                                         .engine = o->engines[b->stream ? t : 0],
                                         .app = &o->apps[t],
                                         .shared = &o->streams,
                                         .index = t,
                                         .seed = b->opts.seed + t,
                                         .barrier = wait_at_barrier,
                                         .progress = note_progress,
                                         .arg = &w[t].env};
        if (t == 0) {
            run_worker(&w[0]);
        } else if (pthread_create(&w[t].thread, NULL, run_worker, &w[t]) == 0) {
            w[t].started = true;
        } else {
            c[t].rc = bench_fail(c[t].err, -EAGAIN, "a thread cannot be started");
            atomic_store_explicit(&b->shared->failed, true, memory_order_relaxed);
        }
    }
    for (uint32_t t = 0; t < work->nr_threads; t++) {
        if (w[t].started)
            pthread_join(w[t].thread, NULL);
        if (c[t].rc < 0 && (rc == 0 || rc == -ECANCELED)) {
            rc = c[t].rc;
            failed = t;
        }
    }
    if (failed > 0)
        memcpy(c[0].err, c[failed].err, sizeof(c[0].err));
    free(w);
    return rc;
}

int bench_work(const struct bench *b, uint32_t rank, struct shot_work *own,
               const struct shot_work **ret_work)
{
    struct shot_plan plan;

    *own = (struct shot_work){0};
    *ret_work = b->work ? b->work : own;
    if (b->work)
        return 0;
    shot_plan_init(&plan);
    return shot_work_init(&b->opts, &plan, &b->sizes, b->interval_ns, rank, own);
}

/* Binds as a launcher binds a process that it starts: to all processors of the list or, if there are several
 * processes, to one each, in turn. By PMI_SIZE, which launchers set, the library takes it for a process of a job. */
static int bind_as_launched(const struct bench *b, uint32_t rank, char *err)
{
    char procs[16];
    cpu_set_t cpus;
    int rc = 0;

    if (!b->opts.cores)
        return 0;
    if (vv_cpus_parse(b->opts.cores, &cpus) < 0)
        return -EINVAL; /* checked before */
    uint32_t nth = rank % (uint32_t)CPU_COUNT(&cpus);
    for (size_t i = 0; b->opts.procs > 1 && i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &cpus) && nth-- != 0)
            CPU_CLR(i, &cpus);
    snprintf(procs, sizeof(procs), "%" PRIu32, b->opts.procs);
    if (setenv("PMI_SIZE", procs, 1) < 0 || sched_setaffinity(0, sizeof(cpus), &cpus) < 0)
        rc = -errno;
    return rc ? bench_fail(err, rc, "--cores: %s", strerror(-rc)) : 0;
}

/* The processors of the library's threads, and the time that they took. */
static void note_helpers(const struct opened *o, struct bench_child *c)
{
    struct varve_stats s = {.stats_size = sizeof(s)};

    if (!o->ctx || varve_stats(o->ctx, &s) != 0)
        return;
    c->helper_cores = s.helper_cores;
    c->helper_cpu_s = (double)s.helper_cpu_ns * 1e-9;
}

int bench_child_run(struct bench *b, uint32_t rank, struct bench_child *c)
{
    struct shot_work own;
    const struct shot_work *work;
    struct opened o = {0};
    int rc = bench_work(b, rank, &own, &work);

    if (rc < 0)
        return bench_fail(c->err, rc, "script: %s", strerror(-rc));
    rc = bind_as_launched(b, rank, c->err);
    if (rc == 0)
        rc = open_all(b, rank, work, c, &o);
    if (rc == 0)
        rc = run_threads(b, rank, work, &o, c);
    note_helpers(&o, c);
    if (close_all(&o) < 0 && rc == 0)
        rc = bench_fail(c->err, -EIO, "closing the engine failed");
    shot_work_fini(&own);
    return rc;
}

/* ---- measuring ---- */

/* The rate of two transfers, one after the other. */
static double in_turn(double a, double b)
{
    return a > 0 && b > 0 ? 1 / (1 / a + 1 / b) : fmax(a, b);
}

static int expect_ondemand(const struct bench *b, struct vv_device *d, char *err,
                           struct shot_expected *x)
{
    int rc = probe_link_waited(d, probe_bytes(b), PROBE_SECONDS, &x->put_bps, &x->get_bps);

    if (rc)
        return bench_fail(err, rc, "measuring the link: %s", varve_strerror(rc));
    snprintf(x->text, sizeof(x->text), "the link, %.2f GB/s down and %.2f GB/s up",
             x->put_bps / 1e9, x->get_bps / 1e9);
    return 0;
}

static int expect_file(const struct bench *b, struct vv_device *d, char *err,
                       struct shot_expected *x)
{
    double down = 0, up = 0, write_bps = 0, read_bps = 0;
    bool direct = b->opts.local_io == VARVE_LOCAL_IO_DIRECT;
    int rc = probe_link_waited(d, probe_bytes(b), PROBE_SECONDS, &down, &up);

    if (rc)
        return bench_fail(err, rc, "measuring the link: %s", varve_strerror(rc));
    rc = probe_file(b->folder, direct, probe_bytes(b), PROBE_FILES, &write_bps, &read_bps);
    if (rc)
        return bench_fail(err, rc, "measuring files: %s", strerror(-rc));
    x->put_bps = in_turn(down, write_bps);
    x->get_bps = in_turn(up, read_bps);
    snprintf(x->text, sizeof(x->text),
             "link %.2f GB/s and write() %.2f GB/s in turn, read() %.2f and link %.2f", down / 1e9,
             write_bps / 1e9, read_bps / 1e9, up / 1e9);
    return 0;
}

/* The hops that the library uses. */
static int measure_hops(const struct bench *b, struct vv_device *d, struct bench_probe *p)
{
    size_t bytes = vv_align_up(probe_bytes(b), PROBE_ALIGN);
    struct probe_link_opts o = {.seg_bytes = bytes, .seconds = PROBE_SECONDS};
    struct probe_device *probe;
    struct probe_copies copies;
    /* With --load the interval depends on the measured rate. */
    uint64_t interval_ns = b->opts.load > 0 ? 0 : b->opts.interval_ns;
    int rc = probe_device_new(d, bytes, &probe);

    if (rc)
        return rc;
    rc = probe_device_copy(probe, PROBE_SECONDS, interval_ns, &copies);
    if (rc == 0) {
        p->d2d_bps = copies.bps;
        o.down = true;
        rc = probe_device_link(probe, &o, &p->d2h_bps);
    }
    if (rc == 0) {
        o.up = true;
        rc = probe_device_link(probe, &o, &p->link_bps);
    }
    if (rc == 0) {
        o.down = false;
        rc = probe_device_link(probe, &o, &p->h2d_bps);
    }
    probe_device_free(probe);
    return rc;
}

int bench_child_probe(const struct bench *b, struct bench_probe *p)
{
    struct vv_device *d = NULL;
    int rc = open_device(b, p->err, &d);

    if (rc)
        return rc;
    switch (b->opts.engine) {
    case SHOT_ENGINE_UVM: /* no bandwidth explains it: see docs/paper.md */
        break;
    case SHOT_ENGINE_ONDEMAND:
        rc = expect_ondemand(b, d, p->err, &p->expected);
        break;
    case SHOT_ENGINE_FILE:
        rc = expect_file(b, d, p->err, &p->expected);
        break;
    default:
        rc = measure_hops(b, d, p);
        if (rc)
            bench_fail(p->err, rc, "measuring the device: %s", varve_strerror(rc));
        break;
    }
    p->expected.known = rc == 0 && p->expected.put_bps > 0;
    vv_device_close(d);
    return rc;
}
