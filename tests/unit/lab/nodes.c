/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that share a node share its resources, and nothing else. */
#include <math.h>

#include "lab/sim/sim_run.h"
#include "t.h"

static struct shot_opts small_shot(void)
{
    struct shot_opts o;

    shot_opts_init(&o);
    o.ckpts = 24;
    o.size_bytes = 4 << 20;
    o.order = SHOT_ORDER_IRR;
    o.rate[SHOT_HOP_D2D] = UINT64_C(4000000000);
    o.rate[SHOT_HOP_D2H] = o.rate[SHOT_HOP_H2D] = UINT64_C(400000000);
    o.rate[SHOT_HOP_H2F] = o.rate[SHOT_HOP_F2H] = UINT64_C(40000000);
    return o;
}

/* Copies on demand, one after the other: all of the time is that of the link. */
static struct shot_opts link_shot(uint32_t procs)
{
    struct shot_opts o = small_shot();

    o.procs = procs;
    o.interval_ns = 0;
    o.hints = SHOT_HINTS_NONE;
    o.device_cache = (struct shot_cap){0};
    o.host_cache = (struct shot_cap){.bytes = UINT64_C(1) << 30};
    o.local = "none";
    return o;
}

static void run(const struct shot_opts *o, const struct sim_nodes *nodes, struct shot_report *r)
{
    char err[256] = "";
    int rc = sim_run_nodes(o, nodes, err, sizeof(err), r);

    if (rc < 0)
        t_note("%s", err);
    T_OK(rc);
    T_OK(shot_report_check(r, err, sizeof(err)));
}

static void alone_on_a_node(void)
{
    struct shot_opts o = small_shot();
    struct sim_nodes nodes = {.procs = 1, .link_procs = 1};
    struct shot_report a, b;
    char err[256];

    o.procs = 3;
    T_OK(sim_run_shot(&o, err, sizeof(err), &a));
    run(&o, &nodes, &b);
    T_CHECK(a.blocked_checkpoint_s == b.blocked_checkpoint_s);
    T_CHECK(a.blocked_restore_s == b.blocked_restore_s && a.wall_s == b.wall_s);
    shot_report_fini(&a);
    shot_report_fini(&b);
}

static double checkpoint_s(struct shot_opts *o, const struct sim_nodes *nodes)
{
    struct shot_report r;
    double s;

    run(o, nodes, &r);
    s = r.blocked_checkpoint_s / r.nr_procs;
    shot_report_fini(&r);
    return s;
}

static void links_are_shared(void)
{
    struct shot_opts one = link_shot(1), two = link_shot(2), four = link_shot(4);
    struct sim_nodes nodes = {.procs = 4, .link_procs = 2, .link_bps = UINT64_C(400000000)};
    double alone = checkpoint_s(&one, &nodes);
    double paired = checkpoint_s(&two, &nodes);

    T_CHECK(fabs(paired / alone - 2) < 0.05);
    /* The other pair has a link of its own. */
    T_CHECK(fabs(checkpoint_s(&four, &nodes) / paired - 1) < 0.01);
    nodes.link_bps = 0;
    T_CHECK(fabs(checkpoint_s(&two, &nodes) / alone - 1) < 0.01);
    /* Twice the rate for two. */
    nodes.link_bps = UINT64_C(800000000);
    T_CHECK(fabs(checkpoint_s(&two, &nodes) / alone - 1) < 0.05);
}

static void memory_is_shared(void)
{
    struct shot_opts one = link_shot(1), four = link_shot(4);
    struct sim_nodes nodes = {.procs = 4, .link_procs = 1, .memory_bps = UINT64_C(400000000)};
    double alone = checkpoint_s(&one, &nodes);

    T_CHECK(fabs(checkpoint_s(&four, &nodes) / alone - 4) < 0.1);
    nodes.procs = 1; /* nodes of their own */
    T_CHECK(fabs(checkpoint_s(&four, &nodes) / alone - 1) < 0.01);
}

static void disk_is_shared(void)
{
    struct shot_opts one = small_shot(), two = small_shot();
    struct sim_nodes nodes = {.procs = 2, .link_procs = 1};
    struct shot_report a, b;

    two.procs = 2;
    run(&one, &nodes, &a);
    run(&two, &nodes, &b);
    /* The disk decides: twice the work takes about twice the time. */
    T_CHECK(b.wall_s > 1.7 * a.wall_s && b.wall_s < 2.2 * a.wall_s);
    shot_report_fini(&a);
    shot_report_fini(&b);
}

/* More nodes without a barrier: the first node does not notice. With one, all leave together. */
static void nodes_do_not_mix(void)
{
    struct shot_opts two = small_shot(), six = small_shot();
    struct sim_nodes nodes = {.procs = 2, .link_procs = 2, .link_bps = UINT64_C(400000000)};
    struct shot_report a, b;

    two.procs = 2;
    six.procs = 6;
    run(&two, &nodes, &a);
    run(&six, &nodes, &b);
    T_EQ(b.nr_procs, 6);
    for (int i = 0; i < 2; i++) {
        T_CHECK(a.procs[i].blocked_checkpoint_s == b.procs[i].blocked_checkpoint_s);
        T_CHECK(a.procs[i].blocked_restore_s == b.procs[i].blocked_restore_s);
    }
    shot_report_fini(&a);
    shot_report_fini(&b);
    six.barrier = true;
    run(&six, &nodes, &b);
    for (int i = 0; i < 6; i++)
        T_CHECK(b.procs[i].verified && b.procs[i].put_bytes == UINT64_C(24) * (4 << 20));
    shot_report_fini(&b);
}

/* All time is accounted for: computing, blocked, waiting for the flushes or for others. */
static void time_adds_up(void)
{
    struct shot_opts o = small_shot();
    struct sim_nodes nodes = {.procs = 2, .link_procs = 2, .link_bps = UINT64_C(400000000)};

    o.procs = 6;
    for (int barrier = 0; barrier <= 1; barrier++) {
        struct shot_report r;
        double others = 0;

        o.barrier = barrier;
        run(&o, &nodes, &r);
        for (uint32_t i = 0; i < r.nr_procs; i++) {
            const struct shot_proc *p = &r.procs[i];
            double compute =
                (double)r.interval_ns * 1e-9 * (double)(r.nr_puts + r.nr_gets) / r.nr_procs;
            double sum =
                compute + p->blocked_checkpoint_s + p->blocked_restore_s + p->wait_s + p->barrier_s;

            T_CHECK(fabs(p->wall_s - sum) < 1e-6);
            others += p->barrier_s;
        }
        T_CHECK(barrier ? others > 0 : others == 0);
        T_CHECK(fabs(r.barrier_s - others) < 1e-6);
        shot_report_fini(&r);
    }
}

static void bad_nodes(void)
{
    struct shot_opts o = small_shot();
    struct sim_nodes nodes = {.procs = 3, .link_procs = 2};
    struct shot_report r;
    char err[256] = "";

    T_ERR(sim_run_nodes(&o, &nodes, err, sizeof(err), &r), -EINVAL);
    T_CHECK(err[0]);
    nodes = (struct sim_nodes){.procs = 0, .link_procs = 1};
    T_ERR(sim_run_nodes(&o, &nodes, err, sizeof(err), &r), -EINVAL);
    nodes = (struct sim_nodes){.procs = 1, .link_procs = 0};
    T_ERR(sim_run_nodes(&o, &nodes, err, sizeof(err), &r), -EINVAL);
}

int main(void)
{
    T_RUN(alone_on_a_node);
    T_RUN(links_are_shared);
    T_RUN(memory_is_shared);
    T_RUN(disk_is_shared);
    T_RUN(nodes_do_not_mix);
    T_RUN(time_adds_up);
    T_RUN(bad_nodes);
    return t_done();
}
