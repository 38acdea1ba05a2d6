/* SPDX-License-Identifier: Apache-2.0 */
/* Which data makes room for which, and which restores the disk reads for first. */
#include <errno.h>

#include "unit/engine/hand.h"

static struct drive d;

/* While the order is unknown, every object keeps the same share: a put takes part of each, not all
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

/* Small objects share pages: a tier of two pages holds eight of a quarter of one. A whole page is
 * free again when all its parts are. */
static void small_objects_share_pages(void)
{
    enum { SMALL = DRIVE_CUT_PAGE / 4 };
    uint32_t h = hand_open(&d, "H2*", VV_POLICY_NEXT, VV_CORE_CACHED);
    struct drive_call call;

    for (uint64_t v = 1; v <= 8; v++) {
        T_OK(drive_put(&d, &call, h, v, SMALL - v % 2));
        T_OK(drive_finish(&d, &call));
    }
    T_OK(drive_put(&d, &call, h, 9, 1));
    T_ERR(drive_finish(&d, &call), -ENOSPC);
    for (uint64_t v = 1; v <= 8; v++)
        hand_get(&d, h, v);
    for (uint64_t v = 2; v <= 4; v++)
        T_OK(drive_discard(&d, h, v));
    T_OK(drive_put(&d, &call, h, 10, DRIVE_CUT_PAGE / 2 + 1));
    T_ERR(drive_finish(&d, &call), -ENOSPC); /* version 1 is in that page */
    T_OK(drive_discard(&d, h, 1));
    T_OK(drive_put(&d, &call, h, 11, DRIVE_CUT_PAGE / 2 + 1));
    T_OK(drive_finish(&d, &call));
    hand_close(&d);
}

/* If a page is wanted, all parts of the page of the farthest version go, and no more. */
static void parts_make_room_for_a_page(void)
{
    enum { SMALL = DRIVE_CUT_PAGE / 4 };
    uint32_t h = hand_open(&d, "H2S16*", VV_POLICY_NEXT, VV_CORE_CACHED);
    struct drive_call call;
    unsigned here = 0;

    for (uint64_t v = 1; v <= 8; v++) {
        T_OK(drive_put(&d, &call, h, v, SMALL));
        T_OK(drive_finish(&d, &call));
    }
    drive_run(&d);
    T_OK(drive_put(&d, &call, h, 9, DRIVE_CUT_PAGE));
    T_OK(drive_finish(&d, &call));
    for (uint64_t v = 1; v <= 8; v++)
        here += hand_resident(&d, h, v, 0);
    T_EQ(here, 4);
    T_OK(drive_put(&d, &call, h, 10, SMALL)); /* for another part, only that part goes */
    T_OK(drive_finish(&d, &call));
    for (uint64_t v = 1; v <= 10; v++)
        hand_get(&d, h, v);
    hand_close(&d);
}

/* The disk first reads the version that is wanted first, of whichever history. */
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
    drive_start(&d, h[0]); /* begins to read at once */
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

/* At the same distance, the version whose history makes its next call earlier comes first. */
static void next_call_first(void)
{
    uint32_t h[2] = {hand_open(&d, "H16F", VV_POLICY_NEXT, VV_CORE_DURABLE)};
    const uint64_t ended[2] = {900, 400};
    /* Versions of the first are due at 1900, 2900 and 3900, of the second at 1400, 2400 and 3400. */
    const unsigned expected[] = {0, 1, 1, 0, 1, 0};
    unsigned n = 0;

    h[1] = drive_history(&d, false, 0, VV_CORE_DURABLE);
    for (int i = 0; i < 2; i++) {
        for (uint64_t v = 1; v <= 3; v++) {
            T_OK(drive_adopt(&d, h[i], v, v, DRIVE_PAGE));
            T_OK(drive_hint(&d, h[i], v));
        }
        vvi_hist(d.core, h[i])->interval_ns = 1000;
        vvi_hist(d.core, h[i])->last_end_ns = ended[i];
    }
    d.now_ns = VV_MAX(d.now_ns, 1000);
    drive_start(&d, h[0]); /* begins to read at once */
    drive_start(&d, h[1]);
    for (; d.norders > 0; n++) {
        T_EQ(d.order[0]->hist, h[expected[n]]);
        drive_end(&d, 0, 0);
    }
    T_EQ(n, VV_ARRAY_SIZE(expected));
    hand_close(&d);
}

/* While writing, transit pages may also hold data wanted before data that the host has to flush:
 * the put gets the device's page. */
static void passes_while_writing(void)
{
    uint32_t h = hand_open(&d, "D1H2S8", VV_POLICY_NEXT, VV_CORE_CACHED);
    struct drive_call put;

    for (uint64_t v = 4; v >= 1; v--)
        T_OK(drive_hint(&d, h, v));
    for (uint64_t v = 1; v <= 4; v++) {
        T_OK(drive_put(&d, &put, h, v, DRIVE_PAGE));
        hand_end(&d, VV_ORDER_APP, VV_TIER_APP, 0, v, 0);
        T_CHECK(!put.pending);
        if (v <
            4) /* the third one past the host: 1 is being written to the disk, 2 waits for that */
            hand_end(&d, VV_ORDER_COPY, 0, 1, v, 0);
    }
    T_CHECK(drive_find(&d, VV_ORDER_COPY, 1, 2, 1) >= 0);
    hand_close(&d);
}

/* A restore gets chunks that are evicted from the device meanwhile from the host. */
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

/* A hit of 128 MiB is one order also with the pages of a small cache: several orders would take 200
 * us more. */
static void one_order_for_a_hit(void)
{
    struct vv_core_cfg cfg = {.ntiers = 2, .page_bytes = vv_core_page_bytes(640 << 20, 5ULL << 30)};

    cfg.tier[0].capacity_bytes = 640 << 20;
    cfg.tier[1] = cfg.tier[0];
    cfg.tier[1].kind = VV_TIER_HOST;
    vv_core_cfg_tune(&cfg);
    T_CHECK((uint64_t)cfg.batch_pages[VV_HOP_D2D] * cfg.page_bytes >= 128 << 20);
}

/* Transit pages are part of a host cache of 16 MiB and more, a quarter at most; a smaller one has a
 * few beside it; without a disk there are none. The size computed for an object to fit is
 * sufficient. */
static void transit_counts(void)
{
    static const struct {
        uint64_t kib, arena_kib, transit_kib;
        bool disk;
    } want[] = {
        {1 << 20, (1 << 20) - (16 << 10), 16 << 10, true},
        {64 << 10, 48 << 10, 16 << 10, true},
        {40 << 10, 30 << 10, 10 << 10, true},
        {16 << 10, 12 << 10, 4 << 10, true},
        {(16 << 10) - 16, (16 << 10) - 16, 4 << 10, true},
        {64, 64, 4 << 10, true},
        {0, 0, 16 << 10, true},
        {64 << 10, 64 << 10, 0, false},
    };
    for (size_t i = 0; i < VV_ARRAY_SIZE(want); i++) {
        struct vv_core_cfg cfg = {.ntiers = want[i].disk ? 2 : 1, .page_bytes = 16 << 10};
        cfg.tier[0].kind = VV_TIER_HOST;
        cfg.tier[0].capacity_bytes = want[i].kib << 10;
        cfg.tier[1].kind = VV_TIER_FILES;
        vv_core_cfg_tune(&cfg);
        T_EQ(cfg.tier[0].capacity_bytes >> 10, want[i].arena_kib);
        T_EQ((2 * (uint64_t)cfg.transit_pages * cfg.page_bytes) >> 10, want[i].transit_kib);
        for (uint64_t bytes = 1; bytes < 1 << 30; bytes += bytes / 7 + 4099) {
            cfg.transit_pages = 0;
            cfg.tier[0].capacity_bytes = vv_core_host_cache(&cfg, vv_align_up(bytes, 16 << 10));
            vv_core_cfg_tune(&cfg);
            T_CHECK(vv_align_down(cfg.tier[0].capacity_bytes, 16 << 10) >= bytes);
        }
    }
}

int main(void)
{
    T_RUN(same_share_of_every_object);
    T_RUN(small_objects_share_pages);
    T_RUN(parts_make_room_for_a_page);
    T_RUN(nearest_history_first);
    T_RUN(next_call_first);
    T_RUN(passes_while_writing);
    T_RUN(evicted_while_restored);
    T_RUN(one_order_for_a_hit);
    T_RUN(transit_counts);
    return t_done();
}
