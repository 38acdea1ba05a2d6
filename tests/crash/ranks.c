/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs at level complete: all ranks killed at once, at a random instant, in each life; and many ranks on one machine.
 * job.h says what must hold; kills at numbered calls are in matrix.c. */
#include <varve/varve.h>

#include "base/clock.h"
#include "crash/job.h"
#include "t.h"

static struct job job; /* large */

/* Kills all ranks at once, at a random instant. */
static void test_all_at_once(void)
{
    struct t_rng rng = {t_seed() ^ 77};
    uint64_t n = t_cases(12, 600);
    job_init(&job, VARVE_LEVEL_COMPLETE, 4, true);
    for (uint64_t i = 0; i < n; i++) {
        struct job_fault f = {.trouble = JOB_KILL_ALL, .victim = -1};
        if (job_is_full(&job))
            job_init(&job, VARVE_LEVEL_COMPLETE, 4, true);
        f.at = (long)t_rng_below(&rng, 60000);
        job_live(&job, &f);
        if (i % 3 == 2)
            job_live_on(&job);
    }
    job_live_on(&job);
    t_note("%llu times all of 4 ranks killed", (unsigned long long)n);
}

static double seconds_of_a_life(void)
{
    uint64_t start_ns = vv_now_ns();
    job_live_on(&job);
    return (double)(vv_now_ns() - start_ns) / 1e9;
}

/* 64 ranks commit, and start again, also on other nodes, and after one of them was killed. */
static void test_many_ranks(void)
{
    int ranks = t_sanitized() && !t_long() ? 8 : JOB_RANKS;
    job_init(&job, VARVE_LEVEL_COMPLETE, ranks, true);
    double first = seconds_of_a_life();
    job_move(&job);
    double second = seconds_of_a_life();
    T_EQ(job.latest[0], JOB_PER_LIFE);
    job_live(&job, &(struct job_fault){.trouble = JOB_KILL, .victim = ranks / 2, .at = 60});
    job_live_on(&job);
    job_live_on(&job);
    T_CHECK(job.latest[0] >= 3 * JOB_PER_LIFE);
    t_note("%d ranks: %llu reports that a version is complete; %d versions written and "
           "committed in "
           "%.2f s, found on other nodes and %d more written in %.2f s",
           ranks, (unsigned long long)job.reports, JOB_PER_LIFE, first, JOB_PER_LIFE, second);
}

int main(void)
{
    T_RUN(test_all_at_once);
    T_RUN(test_many_ranks);
    return t_done();
}
