/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of one stream. The host puts a whole step on the stream without waiting: for each call the kernel before
 * or after it, an event on either side of the call, and the call. Then it waits for the end of the step and reads
 * the events.
 *
 * The kernel that represents computing writes the object before its checkpoint, or checks it after its restore. It
 * lasts as long as requested in both cases: every byte is checked, and the check changes no time. Bytes that a
 * restore did not bring cannot pass for right: each object of each step has a pattern of its own, and restores
 * have memory of their own.
 *
 * Times are the device's. The stream stalls between the two events of a call, and where an engine makes it wait for
 * memory that a kernel is to write, which counts with the checkpoint after it; the rest of the step is kernels. The
 * first step warms up and does not count. The trace has the best of the other steps: the one whose last stream ended
 * after the shortest time.
 *
 * One thread for each stream; they meet before and after each step.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <varve/trace.h>

#include "base/clock.h"
#include "lab/shot/shot_run.h"
#include "lab/shot/stream.h"

#define WARM_STEPS   1
#define MEMORY_ALIGN 4096

/* A call of a step. */
struct call {
    struct vv_event *placed; /* of an engine with memory of its own: the memory may be written */
    struct vv_event *before, *after;
    double host_s; /* the host's time in the call */
    bool put;
};

struct worker {
    const struct stream_run *run;
    struct shot_trace *trace;
    struct stream_figures *figures;
    char *err;
    size_t err_size;
    struct call *calls;
    size_t nr_calls, next; /* of the step */
    struct vv_event *end;
    double *put_host_s, *get_host_s; /* of every step that counts */
    size_t nr_put_host, nr_get_host;
    uint64_t step;
    uint64_t compute_ns;     /* of the next kernel */
    struct vv_kernel verify; /* of the last restore; bytes 0: none */
    struct shot_sample first;
    double best_s;
};

VV_PRINTF(3, 4)
static int fail(struct worker *w, int rc, const char *fmt, ...)
{
    char what[96], why[256] = "";
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    w->run->engine->ops->explain(w->run->engine, rc, why, sizeof(why));
    snprintf(w->err, w->err_size, "%s: %s", what, why);
    return rc;
}

static int device_fail(struct worker *w, int rc, const char *what)
{
    if (rc < 0)
        snprintf(w->err, w->err_size, "%s: %s", what, varve_strerror(rc));
    return rc;
}

/* ---- a step ---- */

size_t stream_app_bytes(const struct stream_plan *plan, const struct shot_script *script)
{
    size_t one = vv_align_up((size_t)script->largest_bytes, (size_t)MEMORY_ALIGN);

    return plan->engine == STREAM_ENGINE_VARVE ? 2 * one : MEMORY_ALIGN;
}

/* Each version of each step has a number of its own. */
static uint64_t version_of(const struct worker *w, const struct shot_op *op)
{
    return w->step * w->run->script->nr_puts + op->version;
}

static int record(struct worker *w, struct vv_event *ev)
{
    return vv_device_event_record(w->run->app->device, ev, w->run->app->stream);
}

/* Gets the object of a call from the engine, or the application. The host's time in it counts for the call. */
static int place(struct worker *w, const struct shot_op *op, bool reads, void **ret_buf)
{
    struct shot_engine *e = w->run->engine;
    uint64_t start = vv_now_ns();
    int rc = 0;

    if (e->ops->place)
        rc = e->ops->place(e, version_of(w, op), reads, ret_buf);
    else
        *ret_buf = (char *)w->run->app->buf + (reads ? w->run->app->bytes / 2 : 0);
    w->calls[w->next].host_s = (double)(vv_now_ns() - start) * 1e-9;
    if (rc < 0)
        return fail(w, rc, "memory for version %" PRIu64, op->version);
    return e->ops->place ? device_fail(w, record(w, w->calls[w->next].placed), "event") : 0;
}

/* Between its events. */
static int call(struct worker *w, const struct shot_op *op, void *buf)
{
    struct shot_engine *e = w->run->engine;
    struct call *c = &w->calls[w->next++];
    bool put = op->kind == SHOT_PUT;
    uint64_t start;
    int rc = record(w, c->before);

    if (rc)
        return device_fail(w, rc, "event");
    start = vv_now_ns();
    rc = put ? e->ops->checkpoint(e, version_of(w, op), buf, op->bytes)
             : e->ops->restore(e, version_of(w, op), buf, op->bytes);
    c->host_s += (double)(vv_now_ns() - start) * 1e-9;
    c->put = put;
    if (rc < 0)
        return fail(w, rc, "%s of version %" PRIu64, put ? "checkpoint" : "restore", op->version);
    return device_fail(w, record(w, c->after), "event");
}

static int put_or_get(struct worker *w, const struct shot_op *op)
{
    struct shot_app *app = w->run->app;
    struct shot_engine *e = w->run->engine;
    struct vv_kernel k = {.kind = op->kind == SHOT_PUT ? VV_KERNEL_FILL : VV_KERNEL_VERIFY,
                          .bytes = op->bytes,
                          .seed = w->run->seed,
                          .version = version_of(w, op),
                          .bad = app->bad};
    int rc = place(w, op, op->kind == SHOT_GET, &k.ptr);

    if (rc)
        return rc;
    if (op->kind == SHOT_PUT) {
        k.ns = w->compute_ns;
        rc = device_fail(w, vv_device_launch(app->device, app->stream, &k), "kernel");
    } else {
        w->verify = k;
    }
    w->compute_ns = 0;
    if (rc == 0 && e->ops->prepare && (rc = e->ops->prepare(e, k.ptr, op->bytes)) < 0)
        return fail(w, rc, "protect");
    return rc ? rc : call(w, op, k.ptr);
}

/* The kernel before a checkpoint, which is launched with it, or the one after a restore. */
static int compute(struct worker *w, uint64_t ns)
{
    struct shot_app *app = w->run->app;
    int rc;

    if (!w->verify.bytes) {
        w->compute_ns = ns;
        return 0;
    }
    w->verify.ns = ns;
    rc = vv_device_launch(app->device, app->stream, &w->verify);
    w->verify.bytes = 0;
    return device_fail(w, rc, "kernel");
}

static int perform(struct worker *w, const struct shot_op *op)
{
    struct shot_engine *e = w->run->engine;
    int rc = 0;

    switch (op->kind) {
    case SHOT_COMPUTE:
        return compute(w, op->ns);
    case SHOT_PUT:
    case SHOT_GET:
        return put_or_get(w, op);
    case SHOT_HINT:
        rc = e->ops->hint(e, version_of(w, op));
        return rc < 0 ? fail(w, rc, "hint of version %" PRIu64, op->version) : 0;
    default: /* a program that runs ahead has no moment to start prefetching */
        return 0;
    }
}

/* All streams begin together. */
static int begin_step(struct worker *w)
{
    const struct stream_run *run = w->run;
    int rc = run->barrier(run->arg);

    if (rc == 0 && run->index == 0)
        rc = device_fail(w, record(w, run->shared->origin), "event");
    if (rc == 0)
        rc = run->barrier(run->arg);
    if (rc == 0 && run->index > 0)
        rc = device_fail(
            w, vv_device_stream_wait_event(run->app->device, run->app->stream, run->shared->origin),
            "event");
    return rc;
}

static int read_bad(struct worker *w)
{
    struct shot_app *app = w->run->app;
    uint64_t before = app->known_bad;
    struct vv_copy_seg seg = {&app->known_bad, app->bad, sizeof(app->known_bad)};
    int rc = vv_device_copy_async(app->device, app->stream, &seg, 1);

    if (rc == 0)
        rc = record(w, app->event);
    if (rc == 0)
        rc = vv_device_event_wait(app->device, app->event, -1);
    if (rc)
        return device_fail(w, rc, "verifying");
    if (app->known_bad > before && w->trace->verified) {
        w->trace->verified = false;
        snprintf(w->err, w->err_size, "step %" PRIu64 ": %" PRIu64 " bytes are wrong", w->step,
                 app->known_bad - before);
    }
    return 0;
}

/* ---- figures ---- */

static int since_origin(struct worker *w, struct vv_event *ev, uint64_t *ret_ns)
{
    int rc = vv_device_event_elapsed(w->run->app->device, w->run->shared->origin, ev, ret_ns);

    return device_fail(w, rc, "time of an event");
}

/* The calls of this step as those of the trace. */
static int keep_calls(struct worker *w)
{
    struct shot_trace *t = w->trace;
    size_t puts = 0, gets = 0;
    uint64_t last = 0;

    for (size_t i = 0; i < w->nr_calls; i++) {
        struct call *c = &w->calls[i];
        uint64_t placed = last, before, after, stall;
        int rc = since_origin(w, c->before, &before);

        if (rc == 0)
            rc = since_origin(w, c->after, &after);
        if (rc == 0 && c->put && w->run->engine->ops->place)
            rc = since_origin(w, c->placed, &placed);
        if (rc)
            return rc;
        placed = VV_MAX(placed, last);
        before = VV_MAX(before, placed);
        after = VV_MAX(after, before);
        stall = placed - last + after - before;
        t->gaps_ns[i] = before - placed;
        *(c->put ? &t->put_blocked_s[puts++] : &t->get_blocked_s[gets++]) = (double)stall * 1e-9;
        last = after;
    }
    return 0;
}

static void keep_host_times(struct worker *w)
{
    for (size_t i = 0; i < w->nr_calls; i++)
        if (w->calls[i].put)
            w->put_host_s[w->nr_put_host++] = w->calls[i].host_s;
        else
            w->get_host_s[w->nr_get_host++] = w->calls[i].host_s;
}

/* The step has ended on this stream. */
static int end_step(struct worker *w)
{
    const struct stream_run *run = w->run;
    uint64_t *ends = run->shared->end_ns[w->step % 2], last = 0;
    double step_s;
    int rc = read_bad(w);

    if (rc == 0)
        rc = since_origin(w, w->end, &ends[run->index]);
    if (rc == 0)
        rc = run->barrier(run->arg);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < run->plan->streams; i++)
        last = VV_MAX(last, ends[i]);
    if (w->step < WARM_STEPS)
        return 0;
    step_s = (double)last * 1e-9;
    w->figures->step_s[w->figures->nr_steps++] = step_s;
    keep_host_times(w);
    if (w->best_s > 0 && step_s >= w->best_s)
        return 0;
    w->best_s = step_s;
    w->trace->wall_s = (double)ends[run->index] * 1e-9;
    return keep_calls(w);
}

static int run_step(struct worker *w)
{
    const struct stream_run *run = w->run;
    const struct shot_script *script = run->script;
    int rc = begin_step(w);

    if (rc == 0 && w->step == WARM_STEPS)
        run->engine->ops->sample(run->engine, &w->first);
    w->next = 0;
    for (size_t i = 0; rc == 0 && i < script->nr_ops; i++)
        rc = perform(w, &script->ops[i]);
    if (rc == 0)
        rc = device_fail(w, record(w, w->end), "event");
    if (rc == 0)
        rc = device_fail(w, vv_device_event_wait(run->app->device, w->end, -1), "the step");
    return rc ? rc : end_step(w);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static void median_and_longest(double *x, size_t n, double *ret)
{
    qsort(x, n, sizeof(*x), compare);
    ret[0] = n ? x[n / 2] : 0;
    ret[1] = n ? x[n - 1] : 0;
}

static void finish_figures(struct worker *w)
{
    struct stream_figures *f = w->figures;
    struct shot_sample last;

    median_and_longest(w->put_host_s, w->nr_put_host, f->put_host_s);
    median_and_longest(w->get_host_s, w->nr_get_host, f->get_host_s);
    w->run->engine->ops->sample(w->run->engine, &last);
    f->moved_down_bytes = last.moved_down_bytes - w->first.moved_down_bytes;
    f->moved_up_bytes = last.moved_up_bytes - w->first.moved_up_bytes;
    f->restores = last.restores - w->first.restores;
    f->ready = last.ready - w->first.ready;
    memcpy(w->trace->rate, last.rate, sizeof(w->trace->rate));
}

static int worker_init(struct worker *w)
{
    struct vv_device *d = w->run->app->device;
    size_t steps = w->run->plan->steps;
    int rc;

    w->nr_calls = w->run->script->nr_puts + w->run->script->nr_gets;
    w->calls = calloc(w->nr_calls + 1, sizeof(*w->calls));
    w->put_host_s = calloc(steps * w->run->script->nr_puts + 1, sizeof(double));
    w->get_host_s = calloc(steps * w->run->script->nr_gets + 1, sizeof(double));
    if (!w->calls || !w->put_host_s || !w->get_host_s)
        return device_fail(w, -ENOMEM, "memory for the figures");
    rc = vv_device_event_new_timed(d, &w->end);
    if (rc == 0 && w->run->index == 0)
        rc = vv_device_event_new_timed(d, &w->run->shared->origin);
    for (size_t i = 0; rc == 0 && i < w->nr_calls; i++) {
        rc = vv_device_event_new_timed(d, &w->calls[i].placed);
        if (rc == 0)
            rc = vv_device_event_new_timed(d, &w->calls[i].before);
        if (rc == 0)
            rc = vv_device_event_new_timed(d, &w->calls[i].after);
    }
    return device_fail(w, rc, "events");
}

static void worker_fini(struct worker *w)
{
    struct vv_device *d = w->run->app->device;

    for (size_t i = 0; w->calls && i < w->nr_calls; i++) {
        vv_device_event_free(d, w->calls[i].placed);
        vv_device_event_free(d, w->calls[i].before);
        vv_device_event_free(d, w->calls[i].after);
    }
    vv_device_event_free(d, w->end);
    free(w->calls);
    free(w->put_host_s);
    free(w->get_host_s);
}

int stream_run(const struct stream_run *run, char *err, size_t err_size, struct shot_trace *trace,
               struct stream_figures *figures)
{
    struct worker w = {
        .run = run, .trace = trace, .figures = figures, .err = err, .err_size = err_size};
    int rc = worker_init(&w);

    trace->verified = true;
    *figures = (struct stream_figures){0};
    for (; rc == 0 && w.step < WARM_STEPS + run->plan->steps; w.step++) {
        varve_trace_begin("step");
        rc = run_step(&w);
        varve_trace_end();
        run->progress(run->arg, (w.step + 1) * run->script->nr_ops);
    }
    /* The figures of the engine are those of all streams. */
    if (rc == 0)
        rc = run->barrier(run->arg);
    if (rc == 0)
        finish_figures(&w);
    worker_fini(&w);
    return rc;
}
