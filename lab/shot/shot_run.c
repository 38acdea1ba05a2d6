/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The application of a shot. Blocked time is the time inside the calls that checkpoint and restore. The rest
 * between two calls is the gap: filling or verifying the buffer is part of the script's compute time, and
 * lengthens it if it takes longer. Measured gaps are recorded, because the bound is valid for them only.
 *
 * One thread. It stops at the first error; wrong bytes do not stop it.
 */
#include "lab/shot/shot_run.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include <varve/trace.h>

#include "base/clock.h"

struct state {
    const struct shot_run *run;
    struct shot_trace *trace;
    char *err;
    size_t err_size;
    uint64_t free_since_ns; /* the last call returned, or the wait ended */
    uint64_t compute_until_ns;
    uint64_t put_bytes;
    size_t puts, gets, samples;
    double utilisation; /* sum over the samples */
    bool full;          /* the bytes to hold exceed the fastest tier */
    bool backward;      /* restores have begun, or are waited for */
    struct shot_sample when_full, last;
};

VV_PRINTF(3, 4)
static int fail(struct state *s, int rc, const char *fmt, ...)
{
    struct shot_engine *e = s->run->engines[0]; /* all of one context */
    char what[96], why[256] = "";
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    e->ops->explain(e, rc, why, sizeof(why));
    snprintf(s->err, s->err_size, "%s: %s", what, why);
    return rc;
}

/* Errors of the application's own memory. */
static int app_fail(struct state *s, int rc, const char *what)
{
    snprintf(s->err, s->err_size, "%s: %s", what, varve_strerror(rc));
    return rc;
}

/* The present use of the caches. */
static void sample(struct state *s)
{
    struct shot_sample now;

    s->run->engines[0]->ops->sample(s->run->engines[0], &now);
    if (now.cache_bytes > 0) {
        s->utilisation += (double)now.used_bytes / (double)now.cache_bytes;
        s->samples++;
    }
    if (!s->full && now.first_bytes > 0 && s->put_bytes >= now.first_bytes) {
        s->full = true;
        s->when_full = now;
    }
    s->last = now;
}

/* Computes until the requested time is over. */
static int compute(struct state *s)
{
    if (s->run->gpu_compute)
        return shot_app_compute(s->run->app, s->compute_until_ns);
    vv_sleep_until_ns(s->compute_until_ns);
    return 0;
}

/* A process that arrives early waits, after its compute time. */
static int pass_barrier(struct state *s)
{
    uint64_t start;
    int rc = compute(s);

    if (rc)
        return app_fail(s, rc, "computing");
    start = vv_now_ns();
    rc = s->run->barrier ? s->run->barrier(s->run->arg) : 0;
    s->trace->barrier_s += (double)(vv_now_ns() - start) * 1e-9;
    return rc;
}

/* Ends the gap before a call. */
static int begin_call(struct state *s, uint64_t *ret_start)
{
    int rc = compute(s);

    if (rc)
        return app_fail(s, rc, "computing");
    sample(s);
    *ret_start = vv_now_ns();
    s->trace->gaps_ns[s->puts + s->gets] = *ret_start - s->free_since_ns;
    return 0;
}

static struct shot_engine *engine_of(const struct state *s, const struct shot_op *op)
{
    return s->run->engines[op->hist];
}

/* Versions of one number differ from history to history. */
static uint64_t seed_of(const struct state *s, const struct shot_op *op)
{
    return s->run->seed + op->hist * UINT64_C(0x9e3779b97f4a7c15);
}

static int prepare(struct state *s, const struct shot_op *op)
{
    struct shot_engine *e = engine_of(s, op);
    int rc = e->ops->prepare ? e->ops->prepare(e, s->run->app->buf, op->bytes) : 0;

    return rc ? fail(s, rc, "protect") : 0;
}

static int put(struct state *s, const struct shot_op *op)
{
    const struct shot_run *run = s->run;
    struct shot_engine *e = engine_of(s, op);
    uint64_t start = 0, end;
    int rc = shot_app_fill(run->app, op->bytes, seed_of(s, op), op->version);

    if (rc)
        return app_fail(s, rc, "filling");
    rc = prepare(s, op);
    if (rc == 0)
        rc = begin_call(s, &start);
    if (rc)
        return rc;
    rc = e->ops->checkpoint(e, op->version, run->app->buf, op->bytes);
    end = vv_now_ns();
    if (rc < 0)
        return fail(s, rc, "checkpoint %" PRIu64, op->version);
    s->trace->put_blocked_s[s->puts++] = (double)(end - start) * 1e-9;
    s->free_since_ns = s->compute_until_ns = end;
    s->put_bytes += op->bytes;
    return 0;
}

static int verify(struct state *s, const struct shot_op *op)
{
    const struct shot_run *run = s->run;
    uint64_t bad = 0;
    int rc = shot_app_verify(run->app, op->bytes, seed_of(s, op), op->version, &bad);

    if (rc)
        return app_fail(s, rc, "verifying");
    if (bad > 0 && s->trace->verified) {
        s->trace->verified = false;
        snprintf(s->err, s->err_size,
                 "version %" PRIu64 ": %" PRIu64 " of %" PRIu64 " bytes are wrong", op->version,
                 bad, op->bytes);
    }
    return 0;
}

static int get(struct state *s, const struct shot_op *op)
{
    const struct shot_run *run = s->run;
    struct shot_engine *e = engine_of(s, op);
    struct shot_sample after;
    uint64_t start = 0, end;
    int rc = prepare(s, op);

    /* Clear the buffer: the bytes of the last call must not pass for those of this one. */
    if (rc == 0) {
        rc = shot_app_fill(run->app, op->bytes, ~seed_of(s, op), op->version);
        if (rc)
            return app_fail(s, rc, "filling");
        rc = begin_call(s, &start);
    }
    if (rc)
        return rc;
    rc = e->ops->restore(e, op->version, run->app->buf, op->bytes);
    end = vv_now_ns();
    if (rc < 0)
        return fail(s, rc, "restore %" PRIu64, op->version);
    e->ops->sample(e, &after);
    s->trace->distance[s->gets] = (uint32_t)VV_MIN(after.distance, (uint64_t)UINT32_MAX);
    s->trace->get_blocked_s[s->gets++] = (double)(end - start) * 1e-9;
    s->free_since_ns = s->compute_until_ns = end;
    return verify(s, op);
}

static int wait_flush(struct state *s, const struct shot_op *op)
{
    struct shot_engine *e = engine_of(s, op);
    uint64_t start = vv_now_ns();
    int rc = e->ops->flush(e);

    if (rc < 0)
        return fail(s, rc, "flush");
    s->free_since_ns = s->compute_until_ns = vv_now_ns();
    s->trace->wait_s += (double)(s->free_since_ns - start) * 1e-9;
    return 0;
}

static int perform(struct state *s, const struct shot_op *op)
{
    struct shot_engine *e = engine_of(s, op);
    int rc = 0;

    switch (op->kind) {
    case SHOT_COMPUTE:
        s->compute_until_ns += op->ns;
        return 0;
    case SHOT_BARRIER:
        return pass_barrier(s);
    case SHOT_HINT:
        rc = e->ops->hint(e, op->version);
        break;
    case SHOT_PUT:
        return put(s, op);
    case SHOT_WAIT_FLUSH:
        return wait_flush(s, op);
    case SHOT_START:
        rc = e->ops->start(e);
        break;
    case SHOT_GET:
        return get(s, op);
    case SHOT_DISCARD:
        rc = e->ops->discard(e, op->version);
        break;
    }
    return rc < 0 ? fail(s, rc, "version %" PRIu64, op->version) : 0;
}

/* Phases for a trace: forward until the checkpoints are over. */
static void mark_phase(struct state *s, const struct shot_op *op)
{
    bool turns = op->kind == SHOT_WAIT_FLUSH || op->kind == SHOT_START || op->kind == SHOT_GET;

    if (s->backward || !turns)
        return;
    s->backward = true;
    varve_trace_end();
    varve_trace_begin("backward");
}

/* The utilisation of the fastest tier, from when it was full to the last call, which began at `last`. */
static double first_utilisation(const struct state *s)
{
    double seconds = (double)(s->last.time_ns - s->when_full.time_ns) * 1e-9;

    if (!s->full || s->last.time_ns <= s->when_full.time_ns)
        return 0;
    /* A tier that is always full has a share of 1, or a little more by rounding. */
    return fmin(1, (s->last.first_used_byte_s - s->when_full.first_used_byte_s) /
                       ((double)s->last.first_bytes * seconds));
}

int shot_run(const struct shot_run *run, char *err, size_t err_size, struct shot_trace *trace)
{
    struct state s = {.run = run, .trace = trace, .err = err, .err_size = err_size};
    uint64_t start;
    int rc = 0;

    trace->wait_s = trace->barrier_s = 0;
    trace->verified = true;
    if (run->barrier)
        rc = run->barrier(run->arg);
    start = s.free_since_ns = s.compute_until_ns = vv_now_ns();
    varve_trace_begin("forward");
    for (size_t i = 0; rc == 0 && i < run->script->nr_ops; i++) {
        mark_phase(&s, &run->script->ops[i]);
        rc = perform(&s, &run->script->ops[i]);
        if (run->progress)
            run->progress(run->arg, i + 1);
    }
    varve_trace_end();
    trace->wall_s = (double)(vv_now_ns() - start) * 1e-9;
    trace->utilisation = s.samples ? s.utilisation / (double)s.samples : 0;
    trace->first_utilisation = first_utilisation(&s);
    memcpy(trace->rate, s.last.rate, sizeof(trace->rate));
    return rc;
}
