/* SPDX-License-Identifier: Apache-2.0 */
/* The address ranges of the emulated device against a plain list. */
#include "device/host/host_ranges.h"

#include "t.h"

static struct vvi_device_ranges set;

static void add(uintptr_t start, size_t bytes, size_t reserved)
{
    T_OK(vvi_device_ranges_reserve(&set));
    vvi_device_ranges_add(
        &set, (struct vvi_device_range){.start = start, .bytes = bytes, .reserved = reserved});
}

static void borders_are_exact(void)
{
    T_CHECK(!vvi_device_ranges_find(&set, 5));
    T_CHECK(!vvi_device_ranges_touches(&set, 0, SIZE_MAX));
    add(200, 50, 100);
    add(100, 100, 100);
    T_CHECK(!vvi_device_ranges_find(&set, 99));
    T_EQ(vvi_device_ranges_find(&set, 100)->start, 100);
    T_EQ(vvi_device_ranges_find(&set, 199)->start, 100);
    T_EQ(vvi_device_ranges_find(&set, 200)->start, 200);
    T_EQ(vvi_device_ranges_find(&set, 299)->start, 200);
    T_CHECK(!vvi_device_ranges_find(&set, 300));
    T_CHECK(!vvi_device_ranges_touches(&set, 0, 100));
    T_CHECK(vvi_device_ranges_touches(&set, 0, 101));
    T_CHECK(vvi_device_ranges_touches(&set, 299, 1));
    T_CHECK(!vvi_device_ranges_touches(&set, 299, 0));
    T_CHECK(!vvi_device_ranges_touches(&set, 300, SIZE_MAX));
    T_CHECK(vvi_device_ranges_touches(&set, 50, SIZE_MAX));
    vvi_device_ranges_remove(&set, 100);
    T_CHECK(!vvi_device_ranges_find(&set, 150));
    vvi_device_ranges_remove(&set, 200);
    T_EQ(set.n, 0);
}

static void end_of_the_address_space(void)
{
    add(UINTPTR_MAX - 9, 10, 10);
    T_CHECK(vvi_device_ranges_find(&set, UINTPTR_MAX));
    T_CHECK(!vvi_device_ranges_find(&set, UINTPTR_MAX - 10));
    T_CHECK(vvi_device_ranges_touches(&set, UINTPTR_MAX - 20, SIZE_MAX));
    vvi_device_ranges_remove(&set, UINTPTR_MAX - 9);
}

static void random_against_a_list(void)
{
    enum { CELLS = 512 };
    static uint32_t owner[CELLS]; /* start + 1 of the range that holds the cell, or 0 */
    struct t_rng rng = {t_seed()};

    for (int step = 0; step < 20000; step++) {
        uintptr_t p = t_rng_below(&rng, CELLS);
        size_t bytes = 1 + t_rng_below(&rng, VV_MIN(CELLS - p, 12));
        bool taken = false;

        for (size_t i = 0; i < bytes; i++)
            taken |= owner[p + i] != 0;
        T_EQ(vvi_device_ranges_touches(&set, p, bytes), taken);
        if (owner[p]) {
            struct vvi_device_range *r = vvi_device_ranges_find(&set, p);

            T_CHECK(r);
            T_EQ(r->start, owner[p] - 1);
        } else {
            T_CHECK(!vvi_device_ranges_find(&set, p));
        }
        if (!taken) {
            add(p, bytes, bytes);
            for (size_t i = 0; i < bytes; i++)
                owner[p + i] = (uint32_t)p + 1;
        } else if (owner[p] && t_rng_below(&rng, 2)) {
            uint32_t who = owner[p];

            vvi_device_ranges_remove(&set, who - 1);
            for (size_t i = 0; i < CELLS; i++)
                owner[i] = owner[i] == who ? 0 : owner[i];
        }
    }
}

int main(void)
{
    T_RUN(borders_are_exact);
    T_RUN(end_of_the_address_space);
    T_RUN(random_against_a_list);
    vvi_device_ranges_fini(&set);
    return t_done();
}
