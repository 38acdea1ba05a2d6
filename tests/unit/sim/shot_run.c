/* SPDX-License-Identifier: Apache-2.0 */
/* Scripts of every order run against the library, with every byte checked; and wrong bytes do
 * not go unnoticed. */
#include "sim/shot_run.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/pattern.h"
#include "t.h"

struct fixture {
    struct shot_opts opts;
    struct shot_sizes sizes;
    struct shot_script script;
    struct varve_ctx *ctx;
    struct varve_history *history;
    struct shot_trace trace;
    void *buf;
    char err[256];
};

static void set_up(struct fixture *f, enum shot_order order, enum shot_hints hints, bool device)
{
    struct varve_opts o;
    struct varve_history_opts ho;

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
    T_OK(varve_opts_init(&o, sizeof(o)));
    o.device = device ? VARVE_DEVICE_HOST : VARVE_DEVICE_NONE;
    o.device_cache = device ? 64 << 10 : 0;
    o.host_cache = 128 << 10;
    o.page_bytes = 4096;
    snprintf(o.local, sizeof(o.local), "%s", t_tmpdir());
    T_OK(varve_open(&o, &f->ctx));
    T_OK(varve_history_opts_init(&ho, sizeof(ho)));
    ho.consume = f->opts.consume == SHOT_CONSUME_ONCE ? VARVE_CONSUME_ONCE : VARVE_CONSUME_KEEP;
    T_OK(varve_history_open_with(f->ctx, "shot", &ho, &f->history));
    f->trace.put_blocked_s = calloc(f->script.nr_puts, sizeof(double));
    f->trace.get_blocked_s = calloc(f->script.nr_gets, sizeof(double));
    f->trace.distance = calloc(f->script.nr_gets, sizeof(uint32_t));
    f->trace.gaps_ns = calloc(f->script.nr_puts + f->script.nr_gets, sizeof(uint64_t));
    f->buf = malloc(f->script.largest_bytes);
    T_CHECK(f->trace.put_blocked_s && f->trace.get_blocked_s && f->trace.distance &&
            f->trace.gaps_ns && f->buf);
}

static void tear_down(struct fixture *f)
{
    T_OK(varve_history_close(f->history));
    T_OK(varve_close(f->ctx));
    free(f->trace.put_blocked_s);
    free(f->trace.get_blocked_s);
    free(f->trace.distance);
    free(f->trace.gaps_ns);
    free(f->buf);
    shot_script_fini(&f->script);
    shot_sizes_fini(&f->sizes);
}

static int run(struct fixture *f)
{
    struct shot_run r = {.script = &f->script,
                         .ctx = f->ctx,
                         .history = f->history,
                         .has_disk = true,
                         .buf = f->buf,
                         .seed = 5};

    return shot_run(&r, f->err, sizeof(f->err), &f->trace);
}

static void every_order(void)
{
    for (int i = 0; i < 24; i++) {
        struct fixture f = {0};

        set_up(&f, (enum shot_order)(i % 4), (enum shot_hints)(i / 4 % 3), i >= 12);
        if (run(&f) < 0)
            t_fail(__FILE__, __LINE__, "combination %d: %s", i, f.err);
        T_CHECK(f.trace.verified && f.trace.wall_s > 0);
        T_CHECK(f.trace.utilisation > 0 && f.trace.utilisation <= 1);
        for (size_t n = 0; n < f.script.nr_puts + f.script.nr_gets; n++)
            T_CHECK(f.trace.gaps_ns[n] > 0);
        tear_down(&f);
    }
}

/* A version written by somebody else comes back instead of the one that was asked for. */
static void wrong_bytes_are_seen(void)
{
    struct fixture f = {0};
    struct shot_op ops[] = {{SHOT_GET, 1, 1000, 0}};

    set_up(&f, SHOT_ORDER_SEQ, SHOT_HINTS_NONE, false);
    vv_pattern_fill(f.buf, 1000, 5, 2, 0);
    T_OK(varve_protect(f.history, 0, f.buf, 1000));
    T_OK(varve_checkpoint(f.history, 1));
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
    struct shot_op ops[] = {{SHOT_GET, 77, 1000, 0}};

    set_up(&f, SHOT_ORDER_SEQ, SHOT_HINTS_NONE, false);
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
    T_RUN(wrong_bytes_are_seen);
    T_RUN(errors_name_the_version);
    return t_done();
}
