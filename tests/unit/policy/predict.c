/* SPDX-License-Identifier: Apache-2.0 */
/* Measured rates and the times predicted from them; names of policies. */
#include "policy/predict.h"

#include "policy/policy.h"
#include "t.h"

#define MIB ((uint64_t)1 << 20)

static void first_estimate_gives_way(void)
{
    struct vv_rate r;

    vv_rate_init(&r, 100);
    T_EQ((uint64_t)r.bytes_per_s, 100);
    vv_rate_add(&r, 1000, 1000000000);
    T_EQ((uint64_t)r.bytes_per_s, 1000);
    vv_rate_init(&r, 0);
    T_EQ((uint64_t)r.bytes_per_s, 0);
    vv_rate_add(&r, 500, 1000000000);
    T_EQ((uint64_t)r.bytes_per_s, 500);
    vv_rate_add(&r, 0, 5); /* nothing was moved: no measurement */
    vv_rate_add(&r, 5, 0);
    T_EQ((uint64_t)r.bytes_per_s, 500);
}

/* Times are averaged, not speeds: 1 MiB at 1 and 1 MiB at 3 MiB/s take 4/3 s together. */
static void harmonic(void)
{
    struct vv_rate r;

    vv_rate_init(&r, 0);
    vv_rate_add(&r, MIB, 1000000000);
    vv_rate_add(&r, MIB, 333333333);
    T_CHECK(r.bytes_per_s > 1.49 * (double)MIB && r.bytes_per_s < 1.51 * (double)MIB);
}

/* The larger sample counts for more, and old samples for little. */
static void weights(void)
{
    struct vv_rate r;

    vv_rate_init(&r, 0);
    vv_rate_add(&r, 9 * MIB, 9000000000);
    vv_rate_add(&r, MIB, 500000000);
    T_CHECK(r.bytes_per_s < 1.1 * (double)MIB);
    for (int i = 0; i < 100; i++)
        vv_rate_add(&r, 32 * MIB, 32000000000 / 4);
    T_CHECK(r.bytes_per_s > 3.9 * (double)MIB && r.bytes_per_s <= 4.0001 * (double)MIB);
}

/* One delayed copy of 128 MiB among many that take 85 us does not halve the measured speed of the
 * device. */
static void held_up_once(void)
{
    struct vv_rate r;

    vv_rate_init(&r, 0);
    for (int i = 0; i < 200; i++)
        vv_rate_add(&r, 128 * MIB, 85000);
    double before = r.bytes_per_s;
    vv_rate_add(&r, 128 * MIB, 700000);
    T_CHECK(r.bytes_per_s < before && r.bytes_per_s > 0.9 * before);
}

static void predicted_times(void)
{
    T_EQ(vv_predict_transfer_ns(0, 1000, 1000), 1000000000);
    T_EQ(vv_predict_transfer_ns(3000, 1000, 1000), UINT64_C(4000000000));
    T_EQ(vv_predict_transfer_ns(1, 1, 0), 0);
    /* The third from now: three restores, each with its pause and its copy. */
    T_EQ(vv_predict_consumed_ns(2, 5, 1000, 1000000000), 3 * (5 + 1000));
    T_EQ(vv_predict_consumed_ns(0, 0, 1000, 0), 0);
}

static void names(void)
{
    enum vv_policy p = VV_POLICY_LRU;

    for (int i = 0; i < VV_POLICY_COUNT; i++) {
        T_OK(vv_policy_parse(vv_policy_name((enum vv_policy)i), &p));
        T_EQ(p, i);
    }
    T_ERR(vv_policy_parse("nearest", &p), -EINVAL);
    T_ERR(vv_policy_parse(NULL, &p), -EINVAL);
    T_EQ(p, VV_POLICY_COUNT - 1);
    T_STREQ(vv_policy_name(VV_POLICY_COUNT), "unknown");
}

int main(void)
{
    T_RUN(first_estimate_gives_way);
    T_RUN(harmonic);
    T_RUN(weights);
    T_RUN(held_up_once);
    T_RUN(predicted_times);
    T_RUN(names);
    return t_done();
}
