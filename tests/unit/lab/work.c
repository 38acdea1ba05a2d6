/* SPDX-License-Identifier: Apache-2.0 */
/* Workloads: the text, errors in it, the generators, and the simulation of both. */
#include "lab/shot/work.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <varve/ckpt.h>

#include "lab/sim/sim_run.h"
#include "t.h"

static int read_text(const char *text, char *err, size_t err_size, struct shot_work *ret_work)
{
    FILE *f = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
    int rc;

    T_CHECK(f);
    rc = shot_work_read(f, "file", err, err_size, ret_work);
    fclose(f);
    return rc;
}

static struct shot_work work_of(const char *text)
{
    struct shot_work work;
    char err[512];
    int rc = read_text(text, err, sizeof(err), &work);

    if (rc < 0)
        t_fail(__FILE__, __LINE__, "%s", err);
    return work;
}

static void refused(const char *text, const char *message)
{
    struct shot_work work = {.nr_hists = 77};
    char err[512];

    T_ERR(read_text(text, err, sizeof(err), &work), -EINVAL);
    T_EQ(work.nr_hists, 77);
    T_STREQ(err, message);
}

static void every_statement(void)
{
    struct shot_work w = work_of("# a comment\n"
                                 "set host-cache 64M\n"
                                 "set no-bound\n"
                                 "history a once lifo\n"
                                 "history b-2 keep\n"
                                 "\n"
                                 "put 1 8M # the first history\n"
                                 "put b-2:1 1.5K\n"
                                 "hint 1 b-2:3..1\n"
                                 "compute 1.5ms\n"
                                 "wait\n"
                                 "start b-2\n"
                                 "get b-2:1\n"
                                 "barrier\n"
                                 "discard b-2:1\n"
                                 "get 1\n"
                                 "thread\n"
                                 "\tbarrier  \n"
                                 "compute 300ns");
    const struct shot_op *op = w.threads[0].ops;

    T_EQ(w.nr_settings, 2);
    T_STREQ(w.settings[0].name, "--host-cache");
    T_STREQ(w.settings[0].value, "64M");
    T_CHECK(!w.settings[1].value && w.settings[1].line == 3);
    T_EQ(w.nr_hists, 2);
    T_CHECK(w.hists[0].consume_once && w.hists[0].order == VARVE_ORDER_LIFO);
    T_CHECK(!w.hists[1].consume_once && w.hists[1].order == VARVE_ORDER_HINTS);
    T_EQ(w.nr_threads, 2);
    T_EQ(w.threads[0].nr_ops, 13);
    T_CHECK(op[0].kind == SHOT_PUT && op[0].hist == 0 && op[0].bytes == 8 << 20);
    T_CHECK(op[1].kind == SHOT_PUT && op[1].hist == 1 && op[1].bytes == 1536);
    for (int i = 0; i < 4; i++)
        T_CHECK(op[2 + i].kind == SHOT_HINT && op[2 + i].version == (i ? 4u - (unsigned)i : 1u));
    T_CHECK(op[6].kind == SHOT_COMPUTE && op[6].ns == 1500000);
    T_CHECK(op[7].kind == SHOT_WAIT_FLUSH && op[7].hist == 0);
    T_CHECK(op[8].kind == SHOT_START && op[8].hist == 1);
    T_CHECK(op[9].kind == SHOT_GET && op[9].bytes == 1536 && !op[9].once && op[9].line == 13);
    T_CHECK(op[10].kind == SHOT_BARRIER && op[11].kind == SHOT_DISCARD);
    T_CHECK(op[12].kind == SHOT_GET && op[12].once);
    T_EQ(w.threads[0].nr_puts, 2);
    T_EQ(w.threads[0].nr_gets, 2);
    T_EQ(w.threads[0].get_bytes, (8 << 20) + 1536);
    T_EQ(w.peak_live_bytes, (8 << 20) + 1536);
    T_CHECK(w.threads[1].nr_ops == 2 && w.threads[1].ops[1].ns == 300);
    shot_work_fini(&w);
    shot_work_fini(&w);
    shot_work_fini(NULL);
}

static void what_is_wrong(void)
{
    refused("", "file:1: the script does nothing, expected an operation such as put 0 8M");
    refused("put 1 8M\nput 2\n", "file:2: put lacks a size, expected put VERSION SIZE");
    refused("put\n", "file:1: put lacks a version, expected put VERSION SIZE");
    refused("put x 8M\n", "file:1: 'x' is not a version, expected a number such as 12 or a "
                          "history's, h:12");
    refused("put 1 0\n", "file:1: '0' is not a size, expected one such as 4096, 64K, 8M or 1.5G");
    refused("put 1 8M 3\n", "file:1: '3' is one word too many, expected the end of the line");
    refused("get\n", "file:1: get lacks a version, expected get VERSION");
    refused("hint\n", "file:1: a version is missing, expected one such as 12, h:12 or 12..3");
    refused("hint 3..x\n", "file:1: '3..x' is not a version, expected a number such as 12 or a "
                           "history's, h:12");
    refused("compute 10\n",
            "file:1: '10' is not a time, expected one such as 10ms, 1.5s, 20us or 300ns");
    refused("compute -1s\n",
            "file:1: '-1s' is not a time, expected one such as 10ms, 1.5s, 20us or 300ns");
    refused("fetch 1\n",
            "file:1: 'fetch' is not a statement, expected put, get, hint, discard, compute, wait, "
            "start, barrier, thread, history or set");
    refused("put 1 8M\nput h:1 8M\n",
            "file:2: there is no history 'h', expected one that was declared");
    refused("history h\nhistory h\n",
            "file:2: history 'h' is declared twice, expected another name");
    refused("history 1\n",
            "file:1: '1' is not a name, expected letters, digits, - and _ (31 at most)");
    refused("history h twice\n",
            "file:1: 'twice' is not known of a history, expected once, keep, fifo or lifo");
    refused("put 1 8M\nhistory h\n",
            "file:2: history 'h' comes late, expected before the first operation");
    refused("put 1 8M\nset page 1M\n",
            "file:2: set page comes late, expected before the first operation");
    refused("set\n",
            "file:1: set lacks a name, expected an option such as host-cache, and its value");
}

/* Errors that no single line shows. */
static void what_makes_no_sense(void)
{
    refused("put 1 8M\n\nput 1 8M\n",
            "file:3: version 1 is put again, expected a discard before: it exists");
    refused("put 1 8M\nget 2\n",
            "file:2: version 2 is restored, expected a put before: it does not exist");
    refused("history h once\nput 1 8M\nget 1\nget 1\n",
            "file:4: version 1 is restored, expected a put before: it does not exist");
    refused("put 1 8M\ndiscard 1 1\n",
            "file:2: version 1 is discarded, expected a put before: it does not exist");
    refused("put 1 8M\nthread\nput 1 8M\n",
            "file:3: version 1 is put by two threads, expected one");
    refused("put 1 8M\ndiscard 1\nput 1 8M\nthread\nget 1\n",
            "file:5: version 1 is restored, expected a single put: another thread writes it");
    refused("put 1 8M\nbarrier\nthread\nput 2 8M\n",
            "file:4: thread 1 has 0 barriers, expected 1 as the first thread");
}

static void same_work(const struct shot_work *a, const struct shot_work *b)
{
    T_EQ(a->nr_hists, b->nr_hists);
    T_EQ(a->nr_threads, b->nr_threads);
    T_EQ(a->peak_live_bytes, b->peak_live_bytes);
    for (uint32_t h = 0; h < a->nr_hists; h++) {
        T_STREQ(a->hists[h].name, b->hists[h].name);
        T_EQ(a->hists[h].consume_once, b->hists[h].consume_once);
        T_EQ(a->hists[h].order, b->hists[h].order);
    }
    for (uint32_t t = 0; t < a->nr_threads; t++) {
        T_EQ(a->threads[t].nr_ops, b->threads[t].nr_ops);
        for (size_t i = 0; i < a->threads[t].nr_ops; i++) {
            struct shot_op x = a->threads[t].ops[i], y = b->threads[t].ops[i];
            T_CHECK(x.kind == y.kind && x.version == y.version && x.bytes == y.bytes &&
                    x.ns == y.ns && x.hist == y.hist && x.once == y.once);
        }
    }
}

static struct shot_work printed_and_read(const struct shot_work *w)
{
    struct shot_work back;
    char err[512], *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);

    T_CHECK(f);
    shot_work_print(f, w);
    fclose(f);
    T_OK(read_text(text, err, sizeof(err), &back));
    free(text);
    return back;
}

static struct shot_opts options(struct t_rng *r)
{
    static const int caches[] = {1, 8, 40};
    struct shot_opts o;

    shot_opts_init(&o);
    o.ckpts = 6 + (uint32_t)t_rng_below(r, 20);
    o.size_bytes = UINT64_C(1) << (16 + t_rng_below(r, 5));
    o.seed = t_rng_below(r, 1000);
    o.load = 0.5 * (double)(1 + t_rng_below(r, 4));
    o.hints = (int)t_rng_below(r, SHOT_HINTS_WRONG + 1);
    o.order = (int)t_rng_below(r, SHOT_ORDER_BINOMIAL);
    o.wait = false;
    o.slots = 3;
    o.device_cache = (struct shot_cap){.share = caches[t_rng_below(r, 3)] / 100.0};
    o.host_cache = (struct shot_cap){.share = caches[t_rng_below(r, 3)] / 100.0};
    o.page_bytes = 16384;
    o.rate[SHOT_HOP_D2D] = 4000000000;
    o.rate[SHOT_HOP_D2H] = o.rate[SHOT_HOP_H2D] = 400000000;
    o.rate[SHOT_HOP_H2F] = o.rate[SHOT_HOP_F2H] = 40000000;
    return o;
}

/* One of each kind and more, with random options. */
static struct shot_work generated(struct t_rng *r, unsigned n, struct shot_opts *ret_opts)
{
    struct shot_opts o = options(r);
    struct shot_plan plan;
    struct shot_work work;
    char err[256];

    shot_plan_init(&plan);
    plan.kind = (int)(n % (SHOT_KIND_ACTIVATIONS + 1));
    plan.vary = (int)t_rng_below(r, SHOT_VARY_TAIL + 1);
    plan.rounds = 1 + (uint32_t)t_rng_below(r, 3);
    plan.distance = 1 + (uint32_t)t_rng_below(r, 30);
    plan.repeat = 1 + (uint32_t)t_rng_below(r, 2);
    plan.threads = 1 + (uint32_t)t_rng_below(r, 2);
    if (plan.kind == SHOT_KIND_REVOLVE) {
        o.order = SHOT_ORDER_BINOMIAL;
        o.consume = SHOT_CONSUME_KEEP;
        plan.repeat = 1;
    }
    T_OK(shot_work_make(&o, &plan, err, sizeof(err), &work));
    *ret_opts = o;
    return work;
}

/* Each kind: it can be printed and read back, and runs, no faster than its bound. */
static void generators(void)
{
    struct t_rng r = {t_seed()};
    unsigned nr = t_long() ? 600 : 36;

    for (unsigned n = 0; n < nr; n++) {
        struct shot_opts o;
        struct shot_work work = generated(&r, n, &o), back = printed_and_read(&work);
        struct shot_report report;
        char err[512] = "";

        same_work(&work, &back);
        if (sim_run_work("test", &o, &back, err, sizeof(err), &report) < 0)
            t_fail(__FILE__, __LINE__, "workload %u: %s", n, err);
        T_EQ(report.nr_procs, work.nr_threads);
        T_CHECK(report.has_bound && report.bound_s > 0);
        if (shot_report_check(&report, err, sizeof(err)) < 0)
            t_fail(__FILE__, __LINE__, "workload %u: %s", n, err);
        shot_report_fini(&report);
        shot_work_fini(&work);
        shot_work_fini(&back);
    }
}

static void same_figures(const struct shot_report *a, const struct shot_report *b)
{
    T_CHECK(a->blocked_checkpoint_s == b->blocked_checkpoint_s);
    T_CHECK(a->blocked_restore_s == b->blocked_restore_s);
    T_CHECK(a->bound_s == b->bound_s && a->bound_ratio == b->bound_ratio);
    T_CHECK(a->wall_s == b->wall_s && a->wait_s == b->wait_s);
    T_CHECK(a->prefetch_distance_mean == b->prefetch_distance_mean);
    T_CHECK(a->utilisation == b->utilisation);
    T_EQ(memcmp(&a->machine, &b->machine, sizeof(a->machine)), 0);
}

/* A shot, and the script that a generator printed of it. */
static void script_of_a_shot(void)
{
    struct t_rng r = {t_seed() ^ 1};

    for (int n = 0; n < 24; n++) {
        struct shot_opts o = options(&r);
        struct shot_plan plan;
        struct shot_work work, back;
        struct shot_report a, b;
        char err[256];

        o.wait = n % 2;
        shot_plan_init(&plan);
        T_OK(shot_work_make(&o, &plan, err, sizeof(err), &work));
        back = printed_and_read(&work);
        T_OK(sim_run_shot(&o, err, sizeof(err), &a));
        T_OK(sim_run_work("test", &o, &back, err, sizeof(err), &b));
        same_figures(&a, &b);
        shot_report_fini(&a);
        shot_report_fini(&b);
        shot_work_fini(&work);
        shot_work_fini(&back);
    }
}

static double blocked_of(const struct shot_opts *o, const char *text, uint32_t thread)
{
    struct shot_work work = work_of(text);
    struct shot_report report;
    char err[512] = "";
    double s;

    if (sim_run_work("test", o, &work, err, sizeof(err), &report) < 0)
        t_fail(__FILE__, __LINE__, "%s", err);
    s = report.procs[thread].blocked_checkpoint_s + report.procs[thread].blocked_restore_s;
    shot_report_fini(&report);
    shot_work_fini(&work);
    return s;
}

/* Threads run at the same time: each is blocked by its own calls, and links serve one after the other. */
static void threads(void)
{
    struct t_rng r = {1};
    struct shot_opts o = options(&r);

    o.device_cache = o.host_cache = (struct shot_cap){.bytes = 64 << 20};
    o.rate[SHOT_HOP_D2D] = 1 << 20; /* a second for each mebibyte */
    T_CHECK(fabs(blocked_of(&o, "put 0 1M\n", 0) - 1) < 1e-6);
    T_CHECK(fabs(blocked_of(&o, "compute 1s\nput 0 1M\nthread\nput 1 1M\n", 0) - 1) < 1e-6);
    T_CHECK(fabs(blocked_of(&o, "put 0 1M\nthread\nput 1 1M\n", 0) +
                 blocked_of(&o, "put 0 1M\nthread\nput 1 1M\n", 1) - 4) < 1.1);
    /* One reads what the other wrote. */
    T_CHECK(blocked_of(&o, "put 0 1M\nbarrier\nthread\nbarrier\nget 0\n", 1) > 0);
}

static void latencies(void)
{
    struct t_rng r = {1};
    struct shot_opts o = options(&r);
    double without, with;

    o.device_cache = o.host_cache = (struct shot_cap){.bytes = 64 << 20};
    o.page_bytes = 1 << 20;
    without = blocked_of(&o, "put 0 1M\nput 1 1M\nget 0\n", 0);
    o.latency_ns[SHOT_HOP_D2D] = 1000000;
    with = blocked_of(&o, "put 0 1M\nput 1 1M\nget 0\n", 0);
    T_CHECK(fabs(with - without - 0.003) < 1e-6);
}

int main(void)
{
    T_RUN(every_statement);
    T_RUN(what_is_wrong);
    T_RUN(what_makes_no_sense);
    T_RUN(generators);
    T_RUN(script_of_a_shot);
    T_RUN(threads);
    T_RUN(latencies);
    return t_done();
}
