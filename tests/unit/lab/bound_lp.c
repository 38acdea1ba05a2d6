/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The linear program as a second opinion. It has every rule of the bound's edges, so the bound is never above it;
 * and no simulation is faster than either.
 */
#include "lab/shot/bound_lp.h"

#include <math.h>

#include "lab/sim/set.h"
#include "lab/sim/sim_run.h"
#include "t.h"

#define GAP(seconds) ((uint64_t)((seconds)*1e9))
#define MB           UINT64_C(1000000)

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-5 * (1 + fabs(a) + fabs(b));
}

static void by_hand(void)
{
    struct bound_event ev[] = {{BOUND_PUT, 1, 10 * MB, 0, 0},
                               {BOUND_PUT, 2, 10 * MB, GAP(3), 0},
                               {BOUND_FENCE, 0, 0, 0, 0},
                               {BOUND_GET, 1, 0, GAP(4), 0},
                               {BOUND_GET, 2, 0, GAP(2), 0}};
    struct bound_hop hop = {10 * (double)MB, 2 * (double)MB, 2 * (double)MB, 0};
    struct bound_params p = {.consume_once = true, .hops = &hop, .nr_hops = 1};
    double s = 0;
    int rc = bound_lp(ev, 5, &p, &s);

    if (rc == -ENOTSUP)
        T_SKIP("GLPK (libglpk) is not installed");
    T_OK(rc);
    /* 10 MB down, 6 of them in the gap; then 10 up, 4 of them in the gap between the gets. */
    T_CHECK(near(s, 2 + 3));
    ev[3].version = 7;
    T_ERR(bound_lp(ev, 5, &p, &s), -EINVAL);
}

/* Cases of the set that are small enough. */
static void never_below_the_bound(void)
{
    uint32_t nr = (uint32_t)t_cases(60, 3000), most = t_long() ? 32 : 16, tried = 0, above = 0;

    for (uint32_t id = 0; id < nr; id++) {
        struct sim_set_case c;
        struct shot_work work;
        struct shot_report r;
        char err[512] = "";
        double blocked;

        sim_set_draw(1, id, &c);
        if (sim_set_objects(&c) > most)
            continue;
        c.opts.lp = true;
        T_OK(shot_work_make(&c.opts, &c.plan, err, sizeof(err), &work));
        if (sim_run_work("test", &c.opts, &work, err, sizeof(err), &r) < 0)
            t_fail(__FILE__, __LINE__, "case %u: %s", id, err);
        blocked = r.blocked_checkpoint_s + r.blocked_restore_s;
        if (r.lp_s < r.bound_s * (1 - 1e-4) || r.lp_s > blocked / SHOT_MIN_BOUND_RATIO)
            t_fail(__FILE__, __LINE__, "case %u: blocked %g, program %g, bound %g", id, blocked,
                   r.lp_s, r.bound_s);
        tried++;
        above += r.lp_s > 1.01 * r.bound_s;
        shot_report_fini(&r);
        shot_work_fini(&work);
    }
    t_note("%u cases, in %u the program is above the bound by more than 1%%", tried, above);
    T_CHECK(tried > 0);
}

int main(void)
{
    T_RUN(by_hand);
    T_RUN(never_below_the_bound);
    return t_done();
}
