/* SPDX-License-Identifier: Apache-2.0 */
/* The rates that a core measures, and the transfers that it does not use as a measurement. */
#include "unit/engine/hand.h"

#define HELD_UP_NS UINT64_C(1000000000)

static double device_rate(const struct drive *d)
{
    return d->core->hop[VV_HOP_D2D].rate.bytes_per_s;
}

/* If the device has one part of a version and the other comes over the link, the end of the first
 * may be seen only when the second has ended: that is no measurement of the device. A version that
 * is whole on the device is one. */
static void test_parts_teach_nothing(void)
{
    struct drive d;
    struct drive_call call;
    uint32_t hist = hand_open(&d, "D6H40", VV_POLICY_NEXT, VV_CORE_CACHED);

    hand_put(&d, hist, 0, 4);
    drive_run(&d);
    double before = device_rate(&d);
    T_CHECK(before > 0);
    T_OK(drive_get(&d, &call, hist, 0));
    d.now_ns += HELD_UP_NS;
    T_OK(drive_finish(&d, &call));
    T_CHECK(device_rate(&d) < before);

    hand_put(&d, hist, 1, 4);
    drive_run(&d);
    T_EQ(hand_resident(&d, hist, 0, 0), 2);
    T_EQ(hand_resident(&d, hist, 0, 1), 4);
    before = device_rate(&d);
    T_OK(drive_get(&d, &call, hist, 0));
    T_CHECK(drive_find(&d, VV_ORDER_APP, 0, VV_TIER_APP, 0) >= 0);
    T_CHECK(drive_find(&d, VV_ORDER_APP, 1, VV_TIER_APP, 0) >= 0);
    d.now_ns += HELD_UP_NS;
    T_OK(drive_finish(&d, &call));
    T_CHECK(device_rate(&d) == before);
    hand_close(&d);
}

int main(void)
{
    T_RUN(test_parts_teach_nothing);
    return t_done();
}
