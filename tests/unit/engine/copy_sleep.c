/* SPDX-License-Identifier: Apache-2.0 */
/* The sleep of movers while the device copies: in virtual time, with links of every speed. */
#include "engine/runtime/copy_sleep.h"

#include "t.h"

#define MIB     ((uint64_t)1 << 20)
#define LOOK_NS 20000

/* One copy that takes copy_ns; returns the delay with which its end is noticed. */
static uint64_t one(struct vvi_copy_sleep *n, uint64_t bytes, uint64_t copy_ns)
{
    uint64_t now = vvi_copy_sleep_ns(n, bytes);
    bool overslept = now >= copy_ns;

    while (now < copy_ns)
        now += LOOK_NS;
    vvi_copy_sleep_learn(n, bytes, now, overslept);
    return now - copy_ns;
}

/* Copies of one size at one speed: after some of them, the mover sleeps through most of each copy,
 * and never past its end. */
static void steady(void)
{
    for (uint64_t per_mib = 20000; per_mib < 1000000000; per_mib *= 3) {
        struct vvi_copy_sleep n;

        vvi_copy_sleep_init(&n);
        for (int i = 0; i < 100; i++) {
            uint64_t late = one(&n, 32 * MIB, 32 * per_mib);

            T_CHECK(late <= LOOK_NS);
            if (i >= 80)
                T_CHECK(vvi_copy_sleep_ns(&n, 32 * MIB) > 32 * per_mib * 7 / 10);
        }
    }
}

/* One delayed copy does not delay those behind it; some in a row delay them little. */
static void held_up(void)
{
    for (int in_a_row = 1; in_a_row <= 4; in_a_row++) {
        struct vvi_copy_sleep n;
        uint64_t copy_ns = 32 * 20000, late = 0;

        vvi_copy_sleep_init(&n);
        for (int i = 0; i < 50; i++)
            one(&n, 32 * MIB, copy_ns);
        for (int i = 0; i < in_a_row; i++)
            one(&n, 32 * MIB, 1000 * copy_ns);
        for (int i = 0; i < 50; i++) {
            uint64_t l = one(&n, 32 * MIB, copy_ns);

            late += l > LOOK_NS ? l : 0;
        }
        T_CHECK(in_a_row > 1 || late == 0);
        T_CHECK(late <= 3 * copy_ns);
    }
}

/* The duration of the first copy is unknown, and may be much longer than that of all others. */
static void slow_at_first(void)
{
    struct vvi_copy_sleep n;

    vvi_copy_sleep_init(&n);
    one(&n, 50000, 100000000);
    T_CHECK(vvi_copy_sleep_ns(&n, 50000) <= LOOK_NS);
}

/* A faster link is learnt within a few copies. */
static void faster(void)
{
    struct vvi_copy_sleep n;
    int i;

    vvi_copy_sleep_init(&n);
    for (i = 0; i < 100; i++)
        one(&n, 8 * MIB, 8 * 1000000);
    for (i = 0; i < 100 && one(&n, 8 * MIB, 8 * 20000) > LOOK_NS; i++)
        continue;
    T_CHECK(i < 20);
}

/* Small copies end within the shortest sleep; the estimate for large ones must not come from
 * them. */
static void tiny(void)
{
    struct vvi_copy_sleep n;

    vvi_copy_sleep_init(&n);
    for (int i = 0; i < 1000; i++)
        one(&n, 1, 1);
    T_CHECK(one(&n, 64 * MIB, 64 * 20000) <= LOOK_NS);
    for (int i = 0; i < 100; i++)
        one(&n, 64 * MIB, 64 * 20000);
    T_CHECK(vvi_copy_sleep_ns(&n, 64 * MIB) > 64 * 20000 / 2);
}

int main(void)
{
    T_RUN(steady);
    T_RUN(held_up);
    T_RUN(slow_at_first);
    T_RUN(faster);
    T_RUN(tiny);
    return t_done();
}
