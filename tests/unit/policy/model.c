/* SPDX-License-Identifier: Apache-2.0 */
/* The performance model against figures that can be worked out by hand, including those of the
 * paper. */
#include "policy/model.h"

#include <math.h>

#include "t.h"

#define GIB ((uint64_t)1 << 30)

static void near(double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance))
        t_fail(__FILE__, __LINE__, "%g, not %g", got, want);
}

/* Tables II and III: computing takes 1800 s at every ratio. Where the I/O is not hidden, the
 * paper's expected speed-up is the equation with the times it prints. Where it is hidden, the paper
 * expected somewhat less than its own measured times give. */
static void paper_tables(void)
{
    static const struct {
        double lustre_s, buffer_s, expected;
    } row[] = {{9488.8, 3143.3, 3.59},
               {16066.4, 5235.6, 3.41},
               {24185.8, 7894.1, 3.29},
               {48910.0, 15491.2, 3.27}};
    for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++)
        near(vv_model_speedup(1800 + row[i].lustre_s, 1800, 6, row[i].buffer_s), row[i].expected,
             0.006);
    near(vv_model_speedup(1800 + 864.8, 1800, 6.1, 323.2), 1.43, 0.05);
    near(vv_model_speedup(1800 + 1088.9, 1800, 7.4, 390.6), 1.55, 0.06);
    /* Table IV, 2.9 GiB: 84% of the time on Lustre is I/O, and all of it is hidden. */
    near(vv_model_speedup(1, 0.158, 0, 0.102), 6.33, 0.01);
}

static struct vv_model table_two(uint64_t records)
{
    double lustre = 28008.0 / 48910.0 * (double)GIB, buffer = 28008.0 / 15491.2 * (double)GIB;
    return (struct vv_model){.record_bytes = 4 * GIB,
                             .records = records,
                             .write_kernel_s = 900,
                             .read_kernel_s = 900,
                             .reads = true,
                             .nlayers = 1,
                             .layer = {{buffer, buffer, 0}},
                             .reference = {lustre, lustre, 0}};
}

/* Ratio 1 from sizes and bandwidths: 3500 records of 4 GiB, each way. */
static void from_sizes(void)
{
    struct vv_model m = table_two(3501);
    struct vv_model_answer a = vv_model_ask(&m);
    T_CHECK(a.fits && !a.hides);
    near(a.speedup, 3.27, 0.01);
    near(a.reference_s, 50710, 10);
    near(a.blocked_s, a.wall_s - 1800, 1e-6);
    T_EQ(a.write.binding, 0);
    T_EQ(a.read.binding, 0);
    m.records = 70; /* ratio 50 */
    a = vv_model_ask(&m);
    T_CHECK(a.hides);
    near(a.blocked_s, 0, 1e-9);
    near(a.speedup, (1800 + 864.8) / 1800, 0.1);
}

/* Ten records of 10 bytes. */
static void capacities(void)
{
    struct vv_model m = {.record_bytes = 10,
                         .records = 10,
                         .host_bytes = 20,
                         .nlayers = 2,
                         .layer = {{30, 30, 50}, {10, 5, 0}},
                         .reference = {10, 5, 0}};
    struct vv_model_answer a = vv_model_ask(&m);
    /* 80 bytes to both layers at 40 a second, 30 of them to the second one at 10. */
    near(a.write.io_s, 3, 1e-9);
    T_EQ(a.write.binding, 1);
    near(a.wall_s, 3, 1e-9);
    near(a.reference_s, 10, 1e-9);
    m.reads = true;
    a = vv_model_ask(&m);
    near(a.read.io_s, 6, 1e-9); /* 30 at 5 */
    near(a.reference_s, 30, 1e-9);
    near(a.speedup, 30.0 / 9, 1e-9);
    m.layer[0].capacity_bytes = 79;
    a = vv_model_ask(&m);
    near(a.write.io_s, 2, 1e-9); /* 80 at 40; one byte at 10 takes less */
    T_EQ(a.write.binding, 0);
    m.host_bytes = 100;
    a = vv_model_ask(&m);
    near(a.wall_s, 0, 0);
    T_CHECK(a.hides && a.speedup == 1);
}

/* The longest activity determines the time of each phase. */
static void phases(void)
{
    struct vv_model m = {.record_bytes = 10,
                         .records = 10,
                         .reads = true,
                         .write_kernel_s = 20,
                         .read_kernel_s = 1,
                         .copy_bytes_per_s = 100,
                         .nlayers = 1,
                         .layer = {{10, 10, 0}},
                         .reference = {10, 10, 0}};
    struct vv_model_answer a = vv_model_ask(&m);
    near(a.write.wall_s, 21, 1e-9);
    near(a.read.wall_s, 10, 1e-9);
    near(a.blocked_s, 1 + 9, 1e-9);
    T_EQ(a.write.binding, -1);
    T_EQ(a.read.binding, 0);
    T_CHECK(!a.hides);
    near(a.speedup, 41.0 / 31, 1e-9);
}

static void too_much(void)
{
    struct vv_model m = {.record_bytes = 10, .records = 10, .host_bytes = 99, .nlayers = 0};
    T_CHECK(!vv_model_ask(&m).fits);
    m.host_bytes = 100;
    T_CHECK(vv_model_ask(&m).fits);
    m.host_bytes = 0;
    m.nlayers = 1;
    m.layer[0] = (struct vv_model_layer){10, 0, 0}; /* takes the records and cannot return them */
    T_CHECK(!vv_model_ask(&m).fits);
    m.layer[0] = (struct vv_model_layer){10, 10, 99};
    T_CHECK(!vv_model_ask(&m).fits);
    m.layer[0].capacity_bytes = 100;
    T_CHECK(vv_model_ask(&m).fits);
}

int main(void)
{
    T_RUN(paper_tables);
    T_RUN(from_sizes);
    T_RUN(capacities);
    T_RUN(phases);
    T_RUN(too_much);
    return t_done();
}
