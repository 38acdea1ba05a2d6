/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The set of random workloads: cases are the same every time and small enough, and end with right bytes, no faster
 * than the bound and no farther from it than today. A sample of it; all of it with VARVE_TEST_LONG.
 */
#include "lab/sim/set.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "t.h"

static void cases_repeat(void)
{
    unsigned kinds = 0, varied = 0;

    for (uint32_t id = 0; id < 200; id++) {
        struct sim_set_case a, b;
        struct shot_work work;
        char err[256], what[64];

        sim_set_draw(1, id, &a);
        sim_set_draw(1, id, &b);
        T_CHECK(a.plan.kind == b.plan.kind && a.opts.size_bytes == b.opts.size_bytes &&
                a.opts.rate[SHOT_HOP_F2H] == b.opts.rate[SHOT_HOP_F2H]);
        sim_set_draw(2, id, &b);
        varied += a.opts.size_bytes != b.opts.size_bytes;
        sim_set_describe(&a, what, sizeof(what));
        T_CHECK(what[0]);
        kinds |= 1u << a.plan.kind;
        T_OK(shot_work_make(&a.opts, &a.plan, err, sizeof(err), &work));
        T_CHECK(work.threads[0].nr_puts <= SIM_SET_OBJECTS && work.threads[0].nr_gets > 0);
        shot_work_fini(&work);
    }
    T_EQ(kinds, (1u << (SHOT_KIND_ACTIVATIONS + 1)) - 1);
    T_CHECK(varied > 190);
}

#define SAMPLE 120
#define WHOLE  3000

/*
 * The present results of the policy, with a little room. A change that makes it worse fails here; one that makes
 * it better lowers the limits. Times are virtual, so the figures are the same on every machine. The mean shows a
 * loss in many cases, the counts a loss in one class of them.
 */
struct limits {
    double mean;     /* blocked time over the bound, geometric */
    uint32_t far;    /* cases above 1.1 times the bound and one object */
    uint32_t behind; /* cases in which all hints take more than 1.05 times this, and one object */
};

struct series {
    const char *name;
    int hints;
    struct limits sample, whole;
};

static const struct series series[] = {
    {"all hints", SHOT_HINTS_ALL, {1.27, 27, 0}, {1.377, 780, 0}},
    {"one hint", SHOT_HINTS_ONE, {1.29, 30, 6}, {1.407, 800, 119}},
    {"no hints", SHOT_HINTS_NONE, {1.62, 45, 6}, {1.851, 1292, 78}},
    {"late hints", SHOT_HINTS_LATE, {1.61, 46, 7}, {1.857, 1326, 100}},
    {"wrong hints", SHOT_HINTS_WRONG, {2.0, 77, 5}, {2.356, 1902, 46}},
};

static struct sim_set_result run_case(uint32_t id, int hints)
{
    struct sim_set_case c;
    struct sim_set_result r = {0};
    char err[512] = "";

    sim_set_draw(1, id, &c);
    c.opts.hints = hints;
    if (sim_set_run(&c, err, sizeof(err), &r) < 0)
        t_fail(__FILE__, __LINE__, "case %u: %s", id, err);
    T_CHECK(r.bound_s > 0 && r.object_s > 0);
    return r;
}

/* `all`: blocked time with all hints, case by case. */
static struct limits reach(int hints, uint32_t nr, double *all)
{
    struct limits l = {0};
    double sum = 0;

    for (uint32_t id = 0; id < nr; id++) {
        struct sim_set_result r = run_case(id, hints);

        if (hints == SHOT_HINTS_ALL)
            all[id] = r.blocked_s;
        sum += log(r.blocked_s / r.bound_s);
        l.far += r.blocked_s - r.object_s > 1.1 * r.bound_s;
        l.behind += all[id] - r.object_s > 1.05 * r.blocked_s;
    }
    l.mean = exp(sum / nr);
    return l;
}

/* Under a sanitizer fewer cases run, and only have to run. */
static void no_ground_lost(void)
{
    uint32_t nr = (uint32_t)t_cases(SAMPLE, WHOLE);
    double *all = calloc(nr, sizeof(*all));

    T_CHECK(all);
    for (size_t i = 0; i < VV_ARRAY_SIZE(series); i++) {
        const struct limits *most = nr == WHOLE ? &series[i].whole : &series[i].sample;
        struct limits l = reach(series[i].hints, nr, all);

        if (nr < SAMPLE)
            continue;
        if (l.mean > most->mean || l.far > most->far || l.behind > most->behind)
            t_fail(__FILE__, __LINE__,
                   "%s: mean ratio %.4f, %u cases far off, %u behind; expected %.4f, %u and %u at "
                   "most; "
                   "see 'varve sim set --cases %u'",
                   series[i].name, l.mean, l.far, l.behind, most->mean, most->far, most->behind,
                   nr);
    }
    free(all);
}

int main(void)
{
    T_RUN(cases_repeat);
    T_RUN(no_ground_lost);
    return t_done();
}
