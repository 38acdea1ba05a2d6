/* SPDX-License-Identifier: Apache-2.0 */
/* Who makes room for whom, and for whom the disk reads first. */
#include "unit/engine/hand.h"

static struct drive d;

/* While the order is unknown, the same share of every object stays: a put takes a part of each, not all
 * of one. */
static void same_share_of_every_object(void)
{
    uint32_t h = hand_open(&d, "D8H32F", VV_POLICY_NEXT, VV_CORE_CACHED);

    for (uint64_t v = 1; v <= 4; v++) {
        hand_put(&d, h, v, 4);
        drive_run(&d);
    }
    for (uint64_t v = 1; v <= 4; v++)
        T_CHECK(hand_resident(&d, h, v, 0) > 0);
    hand_close(&d);
}

/* The disk reads first what will be wanted first, whichever history it is of. */
static void nearest_history_first(void)
{
    uint32_t h[2] = {hand_open(&d, "H16F", VV_POLICY_NEXT, VV_CORE_DURABLE)};
    unsigned n = 0;

    h[1] = drive_history(&d, false, 0, VV_CORE_DURABLE);
    for (int i = 0; i < 2; i++) {
        for (uint64_t v = 1; v <= 4; v++) {
            T_OK(drive_adopt(&d, h[i], v, v, DRIVE_PAGE));
            T_OK(drive_hint(&d, h[i], v));
        }
        vvi_hist(d.core, h[i])->interval_ns = 1000;
    }
    drive_start(&d, h[0]); /* which begins to read at once */
    drive_start(&d, h[1]);
    while (d.norders > 0) {
        const struct vv_order *o = d.order[0];
        T_EQ(o->version, 1 + n / 2);
        T_EQ(o->hist, h[n % 2]);
        drive_end(&d, 0, 0);
        n++;
    }
    T_EQ(n, 8);
    hand_close(&d);
}

/* A restore gets what was evicted from the device, under its hands, from the host. */
static void evicted_while_restored(void)
{
    uint32_t h = hand_open(&d, "D4H16F", VV_POLICY_NEXT, VV_CORE_CACHED);
    struct drive_call get, put;

    hand_put(&d, h, 1, 4);
    drive_run(&d);
    T_OK(drive_get(&d, &get, h, 1));
    T_OK(drive_put(&d, &put, h, 2, 4 * DRIVE_PAGE));
    T_OK(drive_finish(&d, &put));
    T_OK(drive_finish(&d, &get));
    hand_close(&d);
}

/* A hit of 128 MiB is one order also with the pages of a small cache: several cost 200 us more. */
static void one_order_for_a_hit(void)
{
    struct vv_core_cfg cfg = {.ntiers = 2, .page_bytes = vv_core_page_bytes(640 << 20, 5ULL << 30)};

    cfg.tier[0].capacity_bytes = 640 << 20;
    cfg.tier[1] = cfg.tier[0];
    cfg.tier[1].kind = VV_TIER_HOST;
    vv_core_cfg_tune(&cfg);
    T_CHECK((uint64_t)cfg.batch_pages[VV_HOP_D2D] * cfg.page_bytes >= 128 << 20);
}

int main(void)
{
    T_RUN(same_share_of_every_object);
    T_RUN(nearest_history_first);
    T_RUN(evicted_while_restored);
    T_RUN(one_order_for_a_hit);
    return t_done();
}
