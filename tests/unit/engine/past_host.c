/* SPDX-License-Identifier: Apache-2.0 */
/* GPUDirect Storage in the core: chunks that would only pass through a full host tier go past
 * it. */
#include "unit/engine/hand.h"

static struct drive d;

enum { DEVICE, HOST, DISK };

/* Version 1 fills the host and is being written to the disk. A second write may run beside that: it
 * is for version 2. */
static uint32_t with_full_host(const char *tiers, enum vv_policy policy)
{
    struct vv_core_cfg cfg;
    struct drive_call one;

    drive_cfg(&cfg, tiers, policy);
    cfg.check = true;
    cfg.slots[VV_HOP_H2F] = 2;
    drive_init(&d, &cfg);
    uint32_t h = drive_history(&d, false, 0, VV_CORE_DURABLE);
    T_OK(drive_put(&d, &one, h, 1, DRIVE_PAGE));
    hand_end(&d, VV_ORDER_APP, VV_TIER_APP, DEVICE, 1, 0);
    hand_end(&d, VV_ORDER_COPY, DEVICE, HOST, 1, 0);
    T_CHECK(drive_find(&d, VV_ORDER_COPY, HOST, DISK, 1) >= 0);
    return h;
}

static void put(uint32_t h, uint64_t version, uint64_t bytes)
{
    struct drive_call call;

    T_OK(drive_put(&d, &call, h, version, bytes));
    hand_end(&d, VV_ORDER_APP, VV_TIER_APP, DEVICE, version, 0);
    T_CHECK(!call.pending);
}

static void a_flush_goes_past(void)
{
    uint32_t h = with_full_host("D4H1F+", VV_POLICY_NEXT);

    put(h, 2, DRIVE_PAGE);
    int i = drive_find(&d, VV_ORDER_COPY, DEVICE, DISK, 2);
    T_CHECK(i >= 0);
    T_EQ(d.order[i]->hop, VV_HOP_H2F);
    T_EQ(drive_find(&d, VV_ORDER_COPY, DEVICE, HOST, 2), -1);
    hand_end(&d, VV_ORDER_COPY, DEVICE, DISK, 2, 0);
    T_CHECK(!hand_object(&d, h, 2)->durable); /* and not before the commit */
    T_CHECK(drive_find(&d, VV_ORDER_COMMIT, 0, 0, 2) >= 0);
    drive_run(&d);
    T_CHECK(hand_object(&d, h, 2)->durable);
    T_EQ(hand_resident(&d, h, 2, HOST), 0);
    T_EQ(hand_resident(&d, h, 2, DEVICE), 1);
    hand_close(&d);
}

/* The last page is not full: it has to be padded, in host memory. */
static void the_end_goes_through(void)
{
    uint32_t h = with_full_host("D4H1F+", VV_POLICY_NEXT);

    put(h, 2, 2 * DRIVE_PAGE + 100);
    int i = drive_find(&d, VV_ORDER_COPY, DEVICE, DISK, 2);
    T_CHECK(i >= 0);
    T_EQ(d.order[i]->chunk0, 0);
    T_EQ(d.order[i]->nchunks, 2);
    i = drive_find(&d, VV_ORDER_COPY, DEVICE, HOST, 2);
    T_CHECK(i >= 0);
    T_EQ(d.order[i]->chunk0, 2);
    drive_run(&d);
    T_CHECK(hand_object(&d, h, 2)->durable);
    hand_close(&d);
}

/* With other policies, or without the setting: through the host, as before. */
static void nothing_goes_past_unasked(void)
{
    for (int policy = 0; policy <= VV_POLICY_COUNT; policy++) {
        bool all = policy == VV_POLICY_COUNT;
        if (policy == VV_POLICY_NEXT && !all)
            continue;
        uint32_t h =
            with_full_host(all ? "D4H1F" : "D4H1F+", all ? VV_POLICY_NEXT : (enum vv_policy)policy);
        put(h, 2, DRIVE_PAGE);
        T_EQ(drive_find(&d, VV_ORDER_COPY, DEVICE, DISK, 2), -1);
        drive_run(&d);
        T_CHECK(hand_object(&d, h, 2)->durable);
        hand_close(&d);
    }
}

static void a_failed_write_is_reported(void)
{
    uint32_t h = with_full_host("D4H1F+", VV_POLICY_NEXT);
    uint64_t version = 0;
    int tier = -1;

    put(h, 2, DRIVE_PAGE);
    hand_end(&d, VV_ORDER_COPY, DEVICE, DISK, 2, -EIO);
    drive_run(&d);
    T_EQ(hand_resident(&d, h, 2, DEVICE), 1);
    T_EQ(vv_core_take_error(d.core, h, &version, &tier), -EIO);
    T_EQ(version, 2);
    T_EQ(tier, DISK);
    hand_get(&d, h, 2);
    hand_close(&d);
}

/* A host without pages: prefetches come straight to the device. */
static void open_for_prefetch(uint32_t *ret_hist)
{
    *ret_hist = hand_open(&d, "D2H0F+", VV_POLICY_NEXT, VV_CORE_DURABLE);
    T_OK(drive_adopt(&d, *ret_hist, 1, 1, DRIVE_PAGE + 100));
    T_OK(drive_hint(&d, *ret_hist, 1));
    drive_start(&d, *ret_hist);
}

static void a_prefetch_comes_past(void)
{
    uint32_t h;

    open_for_prefetch(&h);
    int i = drive_find(&d, VV_ORDER_COPY, DISK, DEVICE, 1);
    T_CHECK(i >= 0);
    T_EQ(d.order[i]->hop, VV_HOP_F2H);
    drive_run(&d);
    T_EQ(hand_resident(&d, h, 1, DEVICE), 2); /* the unfilled end too */
    T_EQ(hand_state(&d, h, 1, DEVICE), VV_COPY_READ_COMPLETE);
    hand_get(&d, h, 1);
    hand_close(&d);
}

/* A restore that waits for the version reads through the host. */
static void a_restore_does_not_fail_with_a_prefetch(void)
{
    struct drive_call get;
    uint32_t h;

    open_for_prefetch(&h);
    T_OK(drive_get(&d, &get, h, 1));
    T_CHECK(get.pending);
    hand_end(&d, VV_ORDER_COPY, DISK, DEVICE, 1, -EBADMSG);
    T_EQ(hand_resident(&d, h, 1, DEVICE), 0);
    T_OK(drive_finish(&d, &get));
    hand_close(&d);
}

/* Prefetches do not take pages from a lease that waits for a run of device pages: room only
 * grows. */
static void a_lease_is_not_overtaken(void)
{
    uint32_t h = hand_open(&d, "D4H0F+", VV_POLICY_NEXT, VV_CORE_DURABLE);
    struct drive_call call, get;
    struct drive_lend lend = {0};

    T_OK(drive_adopt(&d, h, 1, 1, DRIVE_PAGE));
    put(h, 2, 3 * DRIVE_PAGE);
    drive_run(&d);
    T_OK(drive_hint(&d, h, 2));
    T_OK(drive_get(&d, &get, h, 2)); /* holds all but one page */
    T_EQ(drive_find(&d, VV_ORDER_COPY, DISK, DEVICE, 1), -1);
    T_OK(drive_lease(&d, &call, &lend, h, 2));
    T_CHECK(call.pending);
    T_OK(drive_hint(&d, h, 1));
    drive_start(&d, h);
    T_EQ(drive_find(&d, VV_ORDER_COPY, DISK, DEVICE, 1), -1);
    T_OK(drive_finish(&d, &get));
    T_OK(drive_finish(&d, &call));
    drive_unlend(&d, &lend);
    hand_get(&d, h, 1);
    hand_get(&d, h, 2);
    hand_close(&d);
}

int main(void)
{
    T_RUN(a_flush_goes_past);
    T_RUN(the_end_goes_through);
    T_RUN(nothing_goes_past_unasked);
    T_RUN(a_failed_write_is_reported);
    T_RUN(a_prefetch_comes_past);
    T_RUN(a_restore_does_not_fail_with_a_prefetch);
    T_RUN(a_lease_is_not_overtaken);
    return t_done();
}
