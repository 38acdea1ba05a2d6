/* SPDX-License-Identifier: Apache-2.0 */
/* Traces through the public interface: an application's marks and calls are in the file. */
#include <varve/ckpt.h>
#include <varve/trace.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/util.h"
#include "t.h"
#include "trace/timeline.h"

enum { BYTES = 200000, VERSIONS = 12 };

static char path[1024];

static int open_with(const char *file, struct varve_ctx **ret_ctx)
{
    struct varve_opts o;

    T_OK(varve_opts_init(&o, sizeof(o)));
    o.device = VARVE_DEVICE_NONE;
    o.host_cache = 1 << 20;
    o.page_bytes = 65536;
    o.rank = 5;
    snprintf(o.local, sizeof(o.local), "%s", t_tmpdir());
    T_OK(varve_opts_set(&o, "trace_file", file));
    return varve_open(&o, ret_ctx);
}

static void work(struct varve_ctx *ctx, const char *name)
{
    static _Thread_local char data[BYTES];
    struct varve_history *h;

    T_OK(varve_history_open(ctx, name, &h));
    T_OK(varve_protect(h, 0, data, sizeof(data)));
    for (uint64_t v = VERSIONS; v-- > 0;)
        T_OK(varve_hint(h, v));
    varve_trace_begin("forward");
    for (uint64_t v = 0; v < VERSIONS; v++) {
        varve_trace_begin("compute");
        memset(data, (int)v, sizeof(data));
        varve_trace_end();
        T_OK(varve_checkpoint(h, v));
    }
    varve_trace_end();
    T_OK(varve_flush(h, -1));
    for (uint64_t v = VERSIONS; v-- > 0;) {
        T_OK(varve_restore(h, v));
        T_EQ(data[0], v);
    }
    T_ERR(varve_restore(h, 999), -ENOENT);
    T_OK(varve_discard(h, 0));
    T_OK(varve_history_close(h));
}

struct reading {
    struct vv_trace_file *f;
    struct vv_timeline *t;
};

static struct reading read_back(const char *file)
{
    struct reading r;
    char err[256] = "";

    if (vv_trace_file_open(file, err, sizeof(err), &r.f))
        t_fail(__FILE__, __LINE__, "%s", err);
    T_CHECK(r.f->complete && r.f->damaged_bytes == 0 && r.f->lost == 0);
    T_OK(vv_timeline_new(r.f, &r.t));
    return r;
}

static void forget(struct reading r)
{
    vv_timeline_free(r.t);
    vv_trace_file_free(r.f);
}

static void whole_run(void)
{
    struct varve_ctx *ctx;

    T_EQ(varve_trace_on(), 0);
    snprintf(path, sizeof(path), "%s/run.%%r.vtrace", t_tmpdir());
    T_OK(open_with(path, &ctx));
    T_EQ(varve_trace_on(), 1);
    T_OK(varve_trace_note("grid", "12 x 12"));
    T_OK(varve_trace_attach("image", "image/png", "\x89PNG", 4));
    work(ctx, "field");
    T_OK(varve_trace_flush());
    T_OK(varve_close(ctx));
    T_EQ(varve_trace_on(), 0);
    char *rank = strstr(path, "%r"); /* the file has the number in its place */
    snprintf(rank, 16, "5.vtrace");

    struct reading r = read_back(path);
    T_EQ(r.t->totals.checkpoints, VERSIONS);
    T_EQ(r.t->totals.restores, VERSIONS);
    T_EQ(r.t->totals.checkpoint_bytes, VERSIONS * BYTES);
    T_EQ(r.t->totals.hints, VERSIONS);
    T_EQ(r.t->totals.discards, 1);
    T_CHECK(r.t->phased);
    T_EQ(r.t->nhistories, 1);
    T_STREQ(r.t->histories[0].name, "field");
    T_EQ(r.t->niterations, 2 * VERSIONS + 1);
    T_EQ(r.t->iterations[2 * VERSIONS].status, -ENOENT);
    T_EQ(r.t->iterations[VERSIONS].version, VERSIONS - 1);
    T_CHECK(r.t->iterations[VERSIONS].distance != VV_NO_DISTANCE);
    T_STREQ(vv_trace_file_note(r.f, "grid"), "12 x 12");
    T_EQ(vv_trace_file_attachment(r.f, "image")->size, 4);
    uint32_t context = VV_TRACE_HISTORY_CONTEXT(r.t->histories[0].history);
    T_STREQ(vv_trace_file_meta(r.f, context, "config.host_cache"), "1M");
    T_STREQ(vv_trace_file_meta(r.f, context, "config.rank"), "5");
    T_STREQ(vv_trace_file_meta(r.f, context, "tier.0"), "host");
    T_STREQ(vv_trace_file_meta(r.f, context, "tier.1"), "spill");
    const char *moved = vv_trace_file_meta(r.f, context, "moved.h2f");
    T_CHECK(moved && vv_trace_file_meta(r.f, context, "rate.h2f.start"));
    T_CHECK(strcmp(moved, "0") == 0 || vv_trace_file_meta(r.f, context, "speed-up expected"));
    size_t phases = 0, movers = 0;
    for (size_t i = 0; i < r.t->nlanes; i++) {
        const struct vv_lane *l = &r.t->lanes[i];
        movers += l->kind == VV_LANE_MOVER;
        for (size_t k = 0; k < l->nspans; k++) {
            phases += l->spans[k].kind == VV_SPAN_PHASE;
            if (l->kind == VV_LANE_MOVER)
                T_STREQ(vv_timeline_history(r.t, l->spans[k].history, l->spans[k].start_ns),
                        "field");
        }
    }
    T_EQ(phases, VERSIONS + 1);
    T_EQ(movers, 3); /* h2h, h2f, f2h */
    T_EQ(r.t->lanes[0].kind, VV_LANE_APP);
    /* All versions entered the host by h2h and left it by h2h. */
    T_EQ(r.t->lanes[1].bytes, 2 * VERSIONS * BYTES);
    T_CHECK(r.t->noccupancy >= 1 && r.t->occupancy[0].peak_bytes <= 1 << 20);
    forget(r);
}

/* Memory that is lent: a version is one iteration when it is committed and one when it is acquired,
 * which tells how far ahead it was as a restore does. */
static void lent(void)
{
    struct varve_history *h;
    struct varve_ctx *ctx;
    size_t bytes;
    void *p;

    snprintf(path, sizeof(path), "%s/lent.vtrace", t_tmpdir());
    T_OK(open_with(path, &ctx));
    T_OK(varve_history_open(ctx, "field", &h));
    for (uint64_t v = 0; v < 2; v++) {
        T_OK(varve_reserve(h, v, 0, BYTES, NULL, &p));
        memset(p, (int)v, BYTES);
        T_OK(varve_commit(h, v, NULL));
    }
    T_OK(varve_hint(h, 1));
    T_OK(varve_hint(h, 0));
    for (uint64_t v = 2; v-- > 0;) {
        T_OK(varve_acquire(h, v, 0, NULL, &p, &bytes));
        T_OK(varve_release(h, v, 0, NULL));
    }
    T_OK(varve_history_close(h));
    T_OK(varve_close(ctx));

    struct reading r = read_back(path);
    T_EQ(r.t->niterations, 4);
    T_CHECK(!r.t->iterations[1].restore && r.t->iterations[2].restore);
    T_EQ(r.t->iterations[0].distance, VV_NO_DISTANCE);
    T_EQ(r.t->iterations[2].distance, 1);
    T_EQ(r.t->iterations[3].distance, 0);
    forget(r);
}

static void *work_in_thread(void *arg)
{
    work(arg, "other");
    return NULL;
}

/* Two contexts, two threads, one file. Histories of both have the same numbers, and the reader can distinguish them. */
static void two_contexts(void)
{
    struct varve_ctx *a, *b, *c;
    struct varve_error e = {.error_size = sizeof(e)};
    pthread_t thread;

    snprintf(path, sizeof(path), "%s/t", t_tmpdir());
    T_OK(open_with(path, &a));
    T_OK(open_with(path, &b));
    T_ERR(open_with("/nowhere/else", &c), -EBUSY);
    T_OK(varve_last_error(NULL, &e));
    T_CHECK(strstr(e.text, "trace_file: /nowhere/else: this process is writing"));
    T_EQ(pthread_create(&thread, NULL, work_in_thread, b), 0);
    work(a, "field");
    T_EQ(pthread_join(thread, NULL), 0);
    T_OK(varve_close(a));
    T_EQ(varve_trace_on(), 1);
    T_OK(varve_close(b));
    T_EQ(varve_trace_on(), 0);
    struct reading r = read_back(path);
    T_EQ(r.t->ncontexts, 2);
    T_EQ(r.t->nhistories, 2);
    T_CHECK(r.t->histories[0].history != r.t->histories[1].history);
    T_EQ(r.t->totals.checkpoints, 2 * VERSIONS);
    size_t field = 0;
    for (size_t i = 0; i < r.t->niterations; i++)
        field += strcmp(vv_timeline_history(r.t, r.t->iterations[i].history,
                                            r.t->iterations[i].start_ns),
                        "field") == 0;
    T_EQ(field, 2 * VERSIONS + 1);
    forget(r);
}

/* Copies to a shared folder, which the engine does not make itself, have lanes as well. */
static void remote(void)
{
    struct varve_opts o;
    struct varve_ctx *ctx;
    bool seen = false;

    T_OK(varve_opts_init(&o, sizeof(o)));
    o.device = VARVE_DEVICE_NONE;
    o.host_cache = 1 << 20;
    o.level = VARVE_LEVEL_REMOTE;
    snprintf(o.local, sizeof(o.local), "%s", t_tmpdir());
    snprintf(o.remote, sizeof(o.remote), "%s", t_tmpdir());
    snprintf(o.trace_file, sizeof(o.trace_file), "%s/t", t_tmpdir());
    T_OK(varve_open(&o, &ctx));
    work(ctx, "field");
    T_OK(varve_close(ctx));
    struct reading r = read_back(o.trace_file);
    for (size_t i = 0; i < r.t->nlanes; i++) {
        const struct vv_lane *l = &r.t->lanes[i];
        if (l->kind != VV_LANE_MOVER || l->hop != VV_TRACE_HOP_F2R)
            continue;
        seen = true;
        T_STREQ(l->label, "f2r file to remote");
        T_CHECK(l->bytes >= (VERSIONS - 1) * BYTES); /* version 0 was discarded */
        T_CHECK(!l->spans[0].up);
        T_STREQ(vv_timeline_tier(r.t, l->context, l->spans[0].src_tier), "disk");
        T_STREQ(vv_timeline_tier(r.t, l->context, l->spans[0].dst_tier), "remote");
        T_STREQ(vv_timeline_history(r.t, l->spans[0].history, l->spans[0].start_ns), "field");
    }
    T_CHECK(seen);
    forget(r);
}

static void refusals(void)
{
    struct varve_ctx *ctx;
    struct varve_error e = {.error_size = sizeof(e)};
    char *large = calloc(1, VARVE_TRACE_NOTE_BYTES + 1);

    T_ERR(open_with("/nowhere/at/all", &ctx), -ENOENT);
    T_OK(varve_last_error(NULL, &e));
    T_CHECK(strstr(e.text, "trace_file: /nowhere/at/all"));
    T_EQ(varve_trace_on(), 0);
    T_CHECK(large);
    memset(large, 'x', VARVE_TRACE_NOTE_BYTES);
    T_ERR(varve_trace_note(NULL, "x"), -EINVAL);
    T_ERR(varve_trace_note("", "x"), -EINVAL);
    T_ERR(varve_trace_note("x", NULL), -EINVAL);
    T_ERR(varve_trace_note("x", large), -EINVAL);
    T_ERR(varve_trace_attach("", "a/b", "x", 1), -EINVAL);
    T_ERR(varve_trace_attach("x", large, "x", 1), -EINVAL);
    T_ERR(varve_trace_attach("x", "a/b", NULL, 1), -EINVAL);
    T_ERR(varve_trace_attach("x", "a/b", "x", VARVE_TRACE_ATTACH_BYTES + 1), -EFBIG);
    /* Without a trace: nothing happens. */
    varve_trace_begin("x");
    varve_trace_begin(NULL);
    varve_trace_end();
    varve_trace_end();
    varve_trace_end();
    T_OK(varve_trace_note("a", "b"));
    T_OK(varve_trace_attach("a", "b", "c", 1));
    T_OK(varve_trace_flush());
    free(large);
}

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;

    T_OK(getrlimit(RLIMIT_FSIZE, &limit));
    limit.rlim_cur = bytes == RLIM_INFINITY ? limit.rlim_max : bytes;
    T_OK(setrlimit(RLIMIT_FSIZE, &limit));
}

static void closing_fails(struct varve_ctx *ctx)
{
    struct varve_error e = {.error_size = sizeof(e)};

    T_ERR(varve_close(ctx), -EFBIG);
    T_OK(varve_last_error(NULL, &e));
    T_STREQ(e.operation, "trace");
    T_CHECK(strstr(e.text, "trace_file: ") && strstr(e.text, "not whole"));
}

/* A trace without room on the disk: closing its context returns the error, and the next trace is whole again. */
static void full(void)
{
    static char large[1 << 20];
    struct varve_ctx *a, *b;

    snprintf(path, sizeof(path), "%s/t", t_tmpdir());
    T_OK(open_with(path, &a));
    T_OK(open_with(path, &b));
    limit_files(1 << 19);
    T_OK(varve_trace_attach("large", "a/b", large, sizeof(large)));
    T_ERR(varve_trace_flush(), -EFBIG);
    closing_fails(a);
    closing_fails(b);
    limit_files(RLIM_INFINITY);

    /* No call asked before. */
    T_OK(open_with(path, &a));
    limit_files(1 << 19);
    T_OK(varve_trace_attach("large", "a/b", large, sizeof(large)));
    closing_fails(a);
    limit_files(RLIM_INFINITY);

    snprintf(path, sizeof(path), "%s/t", t_tmpdir());
    T_OK(open_with(path, &a));
    work(a, "field");
    T_OK(varve_close(a));
    forget(read_back(path));
}

/* The older option: events stay in memory. */
static void memory_only(void)
{
    struct varve_opts o;
    struct varve_ctx *ctx;

    T_OK(varve_opts_init(&o, sizeof(o)));
    o.device = VARVE_DEVICE_NONE;
    o.host_cache = 8 << 20;
    o.trace = 1;
    T_OK(varve_open(&o, &ctx));
    T_EQ(varve_trace_on(), 1);
    work(ctx, "field");
    T_OK(varve_trace_note("a", "b"));
    T_OK(varve_close(ctx));
    struct vv_trace_log log;
    T_OK(vv_trace_snapshot(&log));
    T_CHECK(log.count > VERSIONS);
    vv_trace_log_fini(&log);
    vv_trace_stop();
}

int main(void)
{
    T_RUN(refusals);
    T_RUN(whole_run);
    T_RUN(lent);
    T_RUN(two_contexts);
    T_RUN(remote);
    T_RUN(full);
    T_RUN(memory_only);
    return t_done();
}
