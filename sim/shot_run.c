/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The application of a shot. Blocked time is what passes inside varve_checkpoint and varve_restore.
 * Everything else between two calls is the gap: filling or verifying the buffer is part of the
 * compute time that the script asks for, and lengthens it if it takes longer. Gaps are recorded as
 * they were, because the bound is only valid for those.
 *
 * One thread. It stops at the first error; wrong bytes do not stop it.
 */
#include "sim/shot_run.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "core/clock.h"
#include "core/pattern.h"

struct state {
    const struct shot_run *run;
    struct shot_trace *trace;
    char *err;
    size_t err_size;
    uint64_t free_since_ns; /* the last call returned, or the wait ended */
    uint64_t compute_until_ns;
    size_t puts, gets, samples;
    double utilisation; /* sum over the samples */
};

VV_PRINTF(3, 4)
static int fail(struct state *s, int rc, const char *fmt, ...)
{
    struct varve_error error = {.error_size = sizeof(error)};
    size_t n = 0;
    va_list ap;

    va_start(ap, fmt);
    if (s->err_size)
        n = (size_t)vsnprintf(s->err, s->err_size, fmt, ap);
    va_end(ap);
    if (n >= s->err_size)
        return rc;
    if (varve_last_error(s->run->ctx, &error) == 0 && error.err == rc && error.text[0])
        snprintf(s->err + n, s->err_size - n, ": %s", error.text);
    else
        snprintf(s->err + n, s->err_size - n, ": %s", varve_strerror(rc));
    return rc;
}

/* How full the memory tiers are now. */
static void sample(struct state *s, const struct varve_stats *stats)
{
    uint32_t tiers = stats->tiers - s->run->has_disk;
    double used = 0, all = 0;

    for (uint32_t t = 0; t < tiers && t < VARVE_TIERS_MAX; t++) {
        used += (double)stats->tier_used_bytes[t];
        all += (double)stats->tier_bytes[t];
    }
    if (all > 0) {
        s->utilisation += used / all;
        s->samples++;
    }
}

/* Ends the gap before a call. */
static uint64_t begin_call(struct state *s)
{
    uint64_t now;

    vv_sleep_until_ns(s->compute_until_ns);
    now = vv_now_ns();
    s->trace->gaps_ns[s->puts + s->gets] = now - s->free_since_ns;
    return now;
}

static int put(struct state *s, const struct shot_op *op)
{
    const struct shot_run *run = s->run;
    struct varve_stats stats = {.stats_size = sizeof(stats)};
    uint64_t start, end;
    int rc;

    vv_pattern_fill(run->buf, op->bytes, run->seed, op->version, 0);
    rc = varve_protect(run->history, 0, run->buf, op->bytes);
    if (rc < 0)
        return fail(s, rc, "protect");
    start = begin_call(s);
    rc = varve_checkpoint(run->history, op->version);
    end = vv_now_ns();
    if (rc < 0)
        return fail(s, rc, "checkpoint %" PRIu64, op->version);
    s->trace->put_blocked_s[s->puts++] = (double)(end - start) * 1e-9;
    s->free_since_ns = s->compute_until_ns = end;
    if (varve_stats(run->ctx, &stats) == 0)
        sample(s, &stats);
    return 0;
}

static int get(struct state *s, const struct shot_op *op)
{
    const struct shot_run *run = s->run;
    struct varve_stats stats = {.stats_size = sizeof(stats)};
    uint64_t start, end;
    size_t bad = 0;
    int rc = varve_protect(run->history, 0, run->buf, op->bytes);

    if (rc < 0)
        return fail(s, rc, "protect");
    /* What the last call left there must not pass for what this one brings. */
    memset(run->buf, 0, op->bytes);
    start = begin_call(s);
    rc = varve_restore(run->history, op->version);
    end = vv_now_ns();
    if (rc < 0)
        return fail(s, rc, "restore %" PRIu64, op->version);
    s->trace->get_blocked_s[s->gets] = (double)(end - start) * 1e-9;
    s->free_since_ns = s->compute_until_ns = end;
    if (varve_stats(run->ctx, &stats) == 0) {
        s->trace->distance[s->gets] =
            (uint32_t)VV_MIN(stats.last_restore_distance, (uint64_t)UINT32_MAX);
        sample(s, &stats);
    }
    s->gets++;
    if (!vv_pattern_verify(run->buf, op->bytes, run->seed, op->version, 0, &bad) &&
        s->trace->verified) {
        s->trace->verified = false;
        snprintf(s->err, s->err_size, "version %" PRIu64 ": byte %zu is wrong", op->version, bad);
    }
    return 0;
}

static int wait_flush(struct state *s)
{
    uint64_t start = vv_now_ns();
    int rc = varve_flush(s->run->history, -1);

    if (rc < 0)
        return fail(s, rc, "flush");
    s->free_since_ns = s->compute_until_ns = vv_now_ns();
    s->trace->wait_s += (double)(s->free_since_ns - start) * 1e-9;
    return 0;
}

static int perform(struct state *s, const struct shot_op *op)
{
    const struct shot_run *run = s->run;
    int rc = 0;

    switch (op->kind) {
    case SHOT_COMPUTE:
        s->compute_until_ns += op->ns;
        return 0;
    case SHOT_BARRIER:
        /* Whoever comes early waits here, after its compute time. */
        vv_sleep_until_ns(s->compute_until_ns);
        return run->barrier ? run->barrier(run->arg) : 0;
    case SHOT_HINT:
        rc = varve_hint(run->history, op->version);
        break;
    case SHOT_PUT:
        return put(s, op);
    case SHOT_WAIT_FLUSH:
        return wait_flush(s);
    case SHOT_START:
        rc = varve_prefetch_start(run->history);
        break;
    case SHOT_GET:
        return get(s, op);
    case SHOT_DISCARD:
        rc = varve_discard(run->history, op->version);
        break;
    }
    return rc < 0 ? fail(s, rc, "version %" PRIu64, op->version) : 0;
}

int shot_run(const struct shot_run *run, char *err, size_t err_size, struct shot_trace *trace)
{
    struct state s = {.run = run, .trace = trace, .err = err, .err_size = err_size};
    uint64_t start;
    int rc = 0;

    trace->wait_s = 0;
    trace->verified = true;
    /* Fault the buffer in: the first call must not pay for it. */
    memset(run->buf, 0, run->script->largest_bytes);
    if (run->barrier)
        rc = run->barrier(run->arg);
    start = s.free_since_ns = s.compute_until_ns = vv_now_ns();
    for (size_t i = 0; rc == 0 && i < run->script->nr_ops; i++) {
        rc = perform(&s, &run->script->ops[i]);
        if (run->progress)
            run->progress(run->arg, i + 1);
    }
    trace->wall_s = (double)(vv_now_ns() - start) * 1e-9;
    trace->utilisation = s.samples ? s.utilisation / (double)s.samples : 0;
    return rc;
}
