/* SPDX-License-Identifier: Apache-2.0 */
/* The simulation of placement: figures that follow from theory, and independence of threads. */
#include "lab/ring/ring_sim.h"

#include <math.h>
#include <pthread.h>

#include "t.h"

static struct ring_sim_result run(struct ring_sim_opts o)
{
    struct sim_progress progress = {.all = ring_sim_steps(&o)};
    struct ring_sim_result r;

    o.jobs = o.jobs ? o.jobs : 1;
    T_OK(ring_sim_run(&o, &progress, &r));
    T_EQ(progress.done, progress.all);
    return r;
}

static const struct ring_sim_opts small = {
    .scheme = VV_PLACE_HRW, .nodes = 64, .files = 8192, .trials = 64, .seed = 5, .checks = 500};

/* m files fall on n nodes at random: n (1 - (1 - 1/n)^m) of them get one. */
static void hrw_as_chance_has_it(void)
{
    struct ring_sim_result r = run(small);
    double n = 63, m = 128, want = n * (1 - pow(1 - 1 / n, m));

    T_CHECK(fabs(r.receivers_mean - want) < 2);
    T_CHECK(r.receivers_sd > 0 && r.receivers_sd < 6);
    T_CHECK(fabs(r.files_per_receiver_mean - m / want) < 0.2);
    T_CHECK(r.max_over_mean > 1.1 && r.max_over_mean < 1.5);
    T_CHECK(r.max_over_mean_worst >= r.max_over_mean_after);
    T_CHECK(r.healthy_moved_fraction == 0 && r.away_fraction == 0);
    T_EQ(r.vnodes, 0);
}

static void bounded_is_even(void)
{
    static const uint64_t weights[] = {1, 2, 3};
    struct ring_sim_opts o = small;
    struct ring_sim_result r;

    o.scheme = VV_PLACE_HRW_BOUNDED;
    r = run(o);
    T_CHECK(r.max_over_mean <= 1.05 && r.max_over_mean_worst <= 1.05);
    T_CHECK(r.healthy_moved_fraction == 0 && r.away_fraction > 0 && r.away_fraction < 0.1);
    o.weights = weights;
    o.nr_weights = 3;
    r = run(o);
    T_CHECK(r.max_over_mean <= 1.05 && r.max_over_mean_worst <= 1.05);
    o.limit_pct = 200;
    T_CHECK(run(o).max_over_mean > 1.05);
}

/* A ring spreads the files of a node over as many others as it has points, at most. */
static void ring_and_its_points(void)
{
    struct ring_sim_opts o = small;
    double before = 0;

    o.scheme = VV_PLACE_RING;
    for (unsigned v = 1; v <= 64; v *= 4) {
        struct ring_sim_result r;

        o.vnodes = v;
        r = run(o);
        T_EQ(r.vnodes, v);
        T_CHECK(r.receivers_mean > before && r.receivers_mean <= v);
        T_CHECK(r.healthy_moved_fraction == 0);
        before = r.receivers_mean;
    }
}

/* All but one in n files move when n nodes become n - 1. */
static void mod_moves_nearly_all(void)
{
    struct ring_sim_opts o = small;
    struct ring_sim_result r;

    o.scheme = VV_PLACE_MOD;
    r = run(o);
    T_CHECK(fabs(r.healthy_moved_fraction - 62.0 / 63) < 0.01);
    T_CHECK(r.receivers_mean == 63);
}

static void threads_change_nothing(void)
{
    for (int s = 0; s < VV_PLACE_SCHEMES; s++) {
        struct ring_sim_opts o = small;
        struct ring_sim_result one, many;

        o.scheme = (enum vv_place_scheme)s;
        o.trials = 10;
        one = run(o);
        o.jobs = 7;
        many = run(o);
        T_CHECK(memcmp(&one, &many, sizeof(one)) == 0);
        o.seed++;
        T_CHECK(s == VV_PLACE_MOD || run(o).files_per_receiver_mean != one.files_per_receiver_mean);
    }
}

static void refused(void)
{
    struct ring_sim_opts o = small;
    struct ring_sim_result r;

    o.nodes = 1;
    T_ERR(ring_sim_run(&o, NULL, &r), -EINVAL);
    o = small;
    o.trials = 0;
    T_ERR(ring_sim_run(&o, NULL, &r), -EINVAL);
    o = small;
    o.scheme = VV_PLACE_HRW_BOUNDED;
    o.limit_pct = 50;
    T_ERR(ring_sim_run(&o, NULL, &r), -EINVAL);
    o = small;
    o.nodes = 2;
    o.files = 1;
    o.trials = 3;
    T_OK(ring_sim_run(&o, NULL, &r));
}

int main(void)
{
    T_RUN(hrw_as_chance_has_it);
    T_RUN(bounded_is_even);
    T_RUN(ring_and_its_points);
    T_RUN(mod_moves_nearly_all);
    T_RUN(threads_change_nothing);
    T_RUN(refused);
    return t_done();
}
