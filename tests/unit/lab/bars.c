/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bars of lab/bench/bench_shot_matrix.c, on a sample of its cases small enough for every build: in
 * virtual time, so that the machine does not matter. The seed chooses the loads and permutations;
 * VARVE_TEST_LONG takes more of them.
 */
#include "lab/sim/sim_run.h"
#include "t.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define BAR_BOUND    1.10
#define BAR_IRR      1.25 /* two of the eight permutations reach 1.23; the others stay below 1.10 */
#define BAR_LOCAL    1.12 /* level local */
#define BAR_NO_HINTS 1.3
#define BAR_POLICY   1.02

static const char *const orders[] = {"seq", "rev", "irr"};
static const char *const loads[] = {"0.5", "1", "2", "4"};
/* Device and host: 10% and 40% of the history together. */
static const char *const caches[][2] = {{"2.5%", "7.5%"}, {"10%", "30%"}};

struct cell {
    unsigned variable, cache, no_wait, order, load;
    const char *hints, *policy;
    const char *more[4]; /* the arguments of a series, if not NULL */
    unsigned seed, ckpts;
};

static struct t_rng rng;
static char sizes[4096];

/* A random case. */
static struct cell any_cell(void)
{
    return (struct cell){
        .variable = (unsigned)t_rng_below(&rng, 2),
        .cache = (unsigned)t_rng_below(&rng, 2),
        .no_wait = (unsigned)t_rng_below(&rng, 2),
        .order = (unsigned)t_rng_below(&rng, 3),
        .load = (unsigned)t_rng_below(&rng, 4),
        .hints = "all",
        .policy = "next",
        .seed = 1 + (unsigned)t_rng_below(&rng, 8),
        .ckpts = 96,
    };
}

static void run(const struct cell *c, struct shot_report *ret_report)
{
    char ckpts[16], seed[16], err[256] = "";
    snprintf(ckpts, sizeof(ckpts), "%u", c->ckpts);
    snprintf(seed, sizeof(seed), "%u", c->seed);
    const char *argv[] = {"shot",
                          "--ckpts",
                          ckpts,
                          "--seed",
                          seed,
                          "--rate",
                          "d2d=4G,d2h=400M,h2d=400M,h2f=40M,f2h=40M",
                          "--device-cache",
                          caches[c->cache][0],
                          "--host-cache",
                          caches[c->cache][1],
                          "--order",
                          orders[c->order],
                          "--load",
                          loads[c->load],
                          "--hints",
                          c->hints,
                          "--policy",
                          c->policy,
                          "--scale",
                          c->variable ? "0.0625" : "1",
                          c->variable ? "--sizes" : "--size",
                          c->variable ? sizes : "8M",
                          c->no_wait ? "--no-wait" : "--wait",
                          c->more[0],
                          c->more[1],
                          c->more[2],
                          c->more[3]};
    struct shot_opts opts;
    int argc = 0;

    while (argc < (int)VV_ARRAY_SIZE(argv) && argv[argc])
        argc++;
    T_EQ(shot_opts_parse("bars", argc, (char **)argv, &opts), -1);
    int rc = sim_run_shot(&opts, err, sizeof(err), ret_report);
    if (rc == 0)
        rc = shot_report_check(ret_report, err, sizeof(err));
    if (rc < 0)
        t_note("%s", err);
    T_OK(rc);
}

static double blocked(const struct cell *c, double *ret_bound_s)
{
    struct shot_report r;

    run(c, &r);
    double s = r.blocked_checkpoint_s + r.blocked_restore_s;
    *ret_bound_s = r.bound_s;
    shot_report_fini(&r);
    return s;
}

static void tell(const struct cell *c, double value)
{
    t_note("%s, caches %s and %s, %s, %s, u = %s, hints %s, seed %u: %.3f",
           c->variable ? "variable" : "uniform", caches[c->cache][0], caches[c->cache][1],
           c->no_wait ? "no-wait" : "wait", orders[c->order], loads[c->load], c->hints, c->seed,
           value);
}

static unsigned samples(void)
{
    return (unsigned)t_cases(5, 100);
}

static void all_hints_stay_near_the_bound(void)
{
    for (unsigned i = 0; i < samples(); i++) {
        struct cell c = any_cell();
        double bound_s, ratio = blocked(&c, &bound_s) / bound_s;
        double bar = c.order == 2 ? BAR_IRR : BAR_BOUND;

        if (!(ratio <= bar))
            tell(&c, ratio);
        T_CHECK(ratio <= bar);
    }
}

static void no_hints_stay_near_all_hints(void)
{
    for (unsigned i = 0; i < samples(); i++) {
        struct cell c = any_cell();
        double bound_s;

        c.order %= 2;
        double all = blocked(&c, &bound_s);
        c.hints = "none";
        double none = blocked(&c, &bound_s);
        if (!(none <= BAR_NO_HINTS * all))
            tell(&c, none / all);
        T_CHECK(none <= BAR_NO_HINTS * all);
    }
}

static void default_is_no_slower_than_fifo_and_lru(void)
{
    for (unsigned i = 0; i < samples(); i++) {
        struct cell c = any_cell();
        double bound_s;

        c.variable = 1;
        double mine = blocked(&c, &bound_s);
        c.policy = i % 2 ? "fifo" : "lru";
        double other = blocked(&c, &bound_s);
        if (!(mine <= BAR_POLICY * other))
            tell(&c, mine / other);
        T_CHECK(mine <= BAR_POLICY * other);
    }
}

/* Committed files are no slower than a spill file: pending writes give way to reads. */
static void committed_files_stay_near_the_bound(void)
{
    for (unsigned i = 0; i < samples(); i++) {
        struct cell c = any_cell();
        double bound_s, ratio, bar = c.order == 2 ? BAR_IRR : BAR_LOCAL;

        c.more[0] = "--level";
        c.more[1] = "local";
        ratio = blocked(&c, &bound_s) / bound_s;
        if (!(ratio <= bar))
            tell(&c, ratio);
        T_CHECK(ratio <= bar);
    }
}

/* A process that arrives early at a barrier has more time between its calls than its script says, and a smaller
 * bound: a report that ignores that is refused. */
static void waiting_at_a_barrier_counts_as_time(void)
{
    struct cell c = {.variable = 1,
                     .no_wait = 1,
                     .order = 2,
                     .load = 2,
                     .hints = "all",
                     .policy = "next",
                     .more = {"--procs", "4"},
                     .seed = 1,
                     .ckpts = 24};
    struct shot_report apart, together;
    unsigned lower = 0;

    run(&c, &apart);
    c.more[2] = "--barrier";
    run(&c, &together);
    /* Waiting for others counts as computing for the bound; the slowest process waits for no other. */
    for (uint32_t i = 0; i < together.nr_procs; i++) {
        T_CHECK(together.procs[i].bound.total_s <= apart.procs[i].bound.total_s);
        lower += together.procs[i].bound.total_s < apart.procs[i].bound.total_s;
    }
    T_CHECK(lower > 0);
    shot_report_fini(&apart);
    shot_report_fini(&together);
}

/* Without a device the first copy has a rate of its own, in the simulation as in the bound. */
static void host_copies_have_their_own_rate(void)
{
    struct cell c = {.cache = 1,
                     .hints = "all",
                     .policy = "next",
                     .more = {"--device", "none", "--rate", "h2h=100M"},
                     .seed = 1,
                     .ckpts = 8};
    struct shot_report r;

    run(&c, &r);
    T_CHECK(fabs(r.blocked_checkpoint_s - 8 * (8 << 20) / 100e6) < 1e-6);
    shot_report_fini(&r);
}

int main(void)
{
    snprintf(sizes, sizeof(sizes), "%s/lab/data/rtm-sizes-30x8.csv",
             getenv("SOURCE_DIR") ? getenv("SOURCE_DIR") : ".");
    rng.state = t_seed();
    T_RUN(all_hints_stay_near_the_bound);
    T_RUN(committed_files_stay_near_the_bound);
    T_RUN(no_hints_stay_near_all_hints);
    T_RUN(default_is_no_slower_than_fifo_and_lru);
    T_RUN(waiting_at_a_barrier_counts_as_time);
    T_RUN(host_copies_have_their_own_rate);
    return t_done();
}
