/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The set of random workloads: cases are the same every time, small enough, and run to their end with right
 * bytes and no faster than the bound. A sample of it; all of it with VARVE_TEST_LONG.
 */
#include "lab/sim/set.h"

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

static void run_cases(int hints)
{
    uint32_t nr = (uint32_t)t_cases(48, 3000);

    for (uint32_t id = 0; id < nr; id++) {
        struct sim_set_case c;
        struct sim_set_result r;
        char err[512] = "";

        sim_set_draw(1, id, &c);
        c.opts.hints = hints;
        if (sim_set_run(&c, err, sizeof(err), &r) < 0)
            t_fail(__FILE__, __LINE__, "case %u: %s", id, err);
        T_CHECK(r.bound_s > 0 && r.object_s > 0);
    }
}

static void all_hints(void)
{
    run_cases(SHOT_HINTS_ALL);
}

static void no_hints(void)
{
    run_cases(SHOT_HINTS_NONE);
}

static void wrong_hints(void)
{
    run_cases(SHOT_HINTS_WRONG);
}

int main(void)
{
    T_RUN(cases_repeat);
    T_RUN(all_hints);
    T_RUN(no_hints);
    T_RUN(wrong_hints);
    return t_done();
}
