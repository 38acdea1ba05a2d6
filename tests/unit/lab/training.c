/* SPDX-License-Identifier: Apache-2.0 */
/* Training under failures: results that follow from the parameters. */
#include "lab/sim/training.h"

#include <math.h>
#include <pthread.h>

#include "t.h"

/* No jitter, and the shared file system costs its round trips only. */
static struct training_opts plain(void)
{
    struct training_opts o = {.scheme = VV_PLACE_HRW, .nodes = 16, .runs = 4, .seed = 3, .jobs = 1};

    training_params_init(&o.params);
    o.params.samples = 16384;
    o.params.dataset_gb = 10;
    o.params.gpus = 2;
    o.params.global_batch = 256;
    o.params.open_s = 0.04;
    o.params.sample_s = 0.06;
    o.params.step_s = 0.5;
    o.params.jitter_s = 0;
    o.params.launch_s = 30;
    o.params.spread = 0;
    o.params.restart_s = 20;
    o.params.shared_ops = 1e12;
    o.params.shared_gbps = 1e9;
    o.params.trip_s = 0.05;
    return o;
}

static void run(const struct training_opts *o, struct training_row *rows)
{
    struct sim_progress progress = {.all = o->runs};

    T_OK(training_run(o, &progress, rows));
    T_EQ(progress.done, o->runs);
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b)) + 1e-12;
}

/* 16 nodes of 2 processes, batches of 8, 64 steps: all of it can be added up. */
static void no_failure(void)
{
    struct training_opts o = plain();
    struct training_row rows[TRAINING_MODES];
    double epoch = 64 * (8 * 0.1 + 0.5), first = epoch + 64 * 8 * 2 * 0.05;

    o.params.failures = 0;
    run(&o, rows);
    for (int m = 0; m < TRAINING_MODES; m++) {
        T_CHECK(near(rows[m].epoch_s, epoch));
        T_CHECK(near(rows[m].baseline_s, 30 + first + 4 * epoch));
        T_EQ(rows[m].mode, m);
        T_EQ(rows[m].nodes, 16);
    }
}

/* Without lost files, a failure costs a restart, the work since the epoch began, and the smaller number of nodes
 * from then on. */
static void restarts(void)
{
    struct training_opts o = plain();
    struct training_row rows[TRAINING_MODES];
    double clean = 64 * 1.3, fewer = 69 * 1.3; /* 16384 / (30 * 8) = 68.3 */

    o.params.failures = 1;
    o.params.early = 0; /* at the beginning of an epoch, so nothing is done twice */
    o.params.epochs = 2;
    run(&o, rows);
    T_CHECK(near(rows[TRAINING_REPLICAS].total_s - rows[0].baseline_s, 20 + fewer - clean));
    T_CHECK(near(rows[TRAINING_REPLICAS].victim_epoch_s, fewer));
    T_CHECK(near(rows[TRAINING_REPLICAS].overhead, rows[TRAINING_REPLICAS].overhead_restart));
    T_CHECK(rows[TRAINING_REPLICAS].total_sd < 1e-3);
    /* Started again from nothing. */
    T_CHECK(near(rows[TRAINING_NONE].total_s, 2 * rows[0].baseline_s - clean));
    T_CHECK(rows[TRAINING_NONE].overhead_reads == 0);
    /* Twice as much work is lost, on average, if failures may strike twice as late. */
    o.params.early = 1;
    o.runs = 200;
    run(&o, rows);
    T_CHECK(fabs(rows[TRAINING_REPLICAS].total_s - rows[0].baseline_s - 20 - (fewer - clean) -
                 clean / 2) < clean / 10);
}

/* Files of the dead node: read again in every epoch, or once, or never. */
static void shared_reads(void)
{
    struct training_opts o = plain();
    struct training_row rows[TRAINING_MODES];
    double lost = 16384.0 / 16;

    o.params.failures = 1;
    o.params.early = 0;
    o.params.epochs = 2;
    run(&o, rows);
    T_CHECK(fabs(rows[TRAINING_REDIRECT].shared_reads - lost) < lost / 8);
    T_CHECK(rows[TRAINING_DEMAND].shared_reads == rows[TRAINING_REDIRECT].shared_reads);
    T_CHECK(rows[TRAINING_RECACHE].shared_reads == rows[TRAINING_REDIRECT].shared_reads);
    T_EQ(rows[TRAINING_REPLICAS].shared_reads, 0);
    o.params.epochs = 12;
    o.runs = 30;
    run(&o, rows);
    T_CHECK(rows[TRAINING_REDIRECT].shared_reads > 3 * rows[TRAINING_DEMAND].shared_reads);
    T_CHECK(fabs(rows[TRAINING_DEMAND].shared_reads - lost) < lost / 8);
}

/* Ten round trips instead of two, of the slowest process in each step. The restart is long enough to fetch all
 * files behind it; if it is not, processes wait. */
static void waiting(void)
{
    struct training_opts o = plain();
    struct training_row rows[TRAINING_MODES];
    double reads;

    o.params.failures = 1;
    o.params.early = 0;
    o.params.epochs = 2;
    run(&o, rows);
    reads = rows[TRAINING_REDIRECT].overhead_reads;
    T_CHECK(reads > 0.05);
    T_CHECK(near(rows[TRAINING_DEMAND].overhead_reads, reads / 5));
    T_CHECK(near(rows[TRAINING_RECACHE].overhead_reads, 0));
    T_CHECK(rows[TRAINING_REDIRECT].victim_epoch_s > rows[TRAINING_DEMAND].victim_epoch_s);
    o.params.restart_s = 0;
    run(&o, rows);
    T_CHECK(rows[TRAINING_RECACHE].overhead_reads > 0);
    T_CHECK(rows[TRAINING_RECACHE].overhead_reads < rows[TRAINING_DEMAND].overhead_reads);
    /* Batches that are read ahead hide reads that are short compared with a step. */
    o.params.read_ahead = 2;
    run(&o, rows);
    T_CHECK(rows[TRAINING_REDIRECT].overhead_reads < reads / 2);
    T_CHECK(rows[TRAINING_DEMAND].overhead_reads < 0.01);
    /* A shared file system that is the bottleneck makes a step as long as its reads. */
    o.params.read_ahead = 0;
    o.params.trip_s = 0;
    o.params.shared_ops = 100;
    run(&o, rows);
    T_CHECK(rows[TRAINING_REDIRECT].overhead_reads * rows[0].baseline_s >
            0.8 * 10 * 16384 / 16 / 100);
}

static void threads_change_nothing(void)
{
    struct training_row one[TRAINING_MODES], many[TRAINING_MODES];
    struct training_opts o = plain();

    o.params.jitter_s = 0.1;
    o.params.spread = 0.7;
    run(&o, one);
    o.jobs = 5;
    run(&o, many);
    T_CHECK(memcmp(one, many, sizeof(one)) == 0);
    o.seed = 4;
    run(&o, many);
    T_CHECK(one[1].total_s != many[1].total_s);
}

static void parameters(void)
{
    struct training_opts o = plain();
    struct training_row rows[TRAINING_MODES];
    struct training_params *p = &o.params;

    T_OK(training_params_set(p, "epochs", 7));
    T_CHECK(p->epochs == 7);
    T_ERR(training_params_set(p, "epochs", 1), -EINVAL);
    T_ERR(training_params_set(p, "epochs", (double)NAN), -EINVAL);
    T_ERR(training_params_set(p, "epoch", 7), -EINVAL);
    p->failures = 16;
    T_ERR(training_run(&o, NULL, rows), -EINVAL);
    p->failures = 15;
    T_OK(training_run(&o, NULL, rows));
    o.runs = 0;
    T_ERR(training_run(&o, NULL, rows), -EINVAL);
}

int main(void)
{
    T_RUN(no_failure);
    T_RUN(restarts);
    T_RUN(shared_reads);
    T_RUN(waiting);
    T_RUN(threads_change_nothing);
    T_RUN(parameters);
    return t_done();
}
