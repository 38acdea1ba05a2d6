/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of progress, one by one: which data makes room for which, and which requests fail at
 * once. */
#include "unit/engine/hand.h"

static struct drive d;

/* Every page holds a prefetched copy: a put takes the page of the copy that is wanted last, which
 * is also on the disk. */
static void a_put_revokes_the_farthest(void)
{
    for (int policy = 0; policy < VV_POLICY_COUNT; policy++) {
        uint32_t h = hand_open(&d, "H2F", (enum vv_policy)policy, VV_CORE_DURABLE);
        struct vv_core_stats stats;
        hand_put(&d, h, 1, 1);
        hand_put(&d, h, 2, 1);
        drive_run(&d);
        T_OK(drive_hint(&d, h, 2));
        T_OK(drive_hint(&d, h, 1));
        drive_start(&d, h);
        T_EQ(hand_state(&d, h, 1, 0), VV_COPY_READ_COMPLETE);
        T_EQ(hand_state(&d, h, 2, 0), VV_COPY_READ_COMPLETE);
        hand_put(&d, h, 3, 1);
        vv_core_get_stats(d.core, &stats);
        T_CHECK(stats.revoked_pages > 0);
        T_EQ(hand_resident(&d, h, 3, 0), 1);
        if (policy != VV_POLICY_FIFO && policy != VV_POLICY_LRU)
            T_EQ(hand_resident(&d, h, 2, 0), 1);
        hand_get(&d, h, 2);
        hand_get(&d, h, 1);
        hand_close(&d);
    }
}

/* A prefetch takes no page of a claimed copy that is wanted earlier. */
static void a_prefetch_revokes_nothing_nearer(void)
{
    for (int policy = 0; policy < VV_POLICY_COUNT; policy++) {
        uint32_t h = hand_open(&d, "H2F", (enum vv_policy)policy, VV_CORE_DURABLE);
        struct vv_core_stats stats;
        for (uint64_t v = 1; v <= 4; v++)
            T_OK(drive_adopt(&d, h, v, v, DRIVE_PAGE));
        for (uint64_t v = 1; v <= 4; v++)
            T_OK(drive_hint(&d, h, v));
        drive_start(&d, h);
        drive_run(&d);
        T_EQ(hand_resident(&d, h, 1, 0), 1);
        T_EQ(hand_resident(&d, h, 2, 0), 1);
        vv_core_get_stats(d.core, &stats);
        T_EQ(stats.evicted_pages, 0);
        hand_close(&d);
    }
}

/* The number of disk reads under way, and the first of them. */
static unsigned reads_out(int *ret_first)
{
    unsigned n = 0;

    *ret_first = -1;
    for (unsigned i = d.norders; i > 0; i--) {
        if (d.order[i - 1]->hop != VV_HOP_F2H)
            continue;
        *ret_first = (int)i - 1;
        n++;
    }
    return n;
}

/* Restores come as fast as the disk reads. A version that is still to be written is written beside
 * the reads once in a while, not whenever the last write has ended: its level is durable, but no
 * call waits for it. */
static void restores_beside_a_write(bool other)
{
    enum { READ = 160, FIRST = 1000, SECOND = 1001, OTHER = 2000 };
    struct vv_core_cfg cfg;
    struct drive_call call;
    unsigned nreads = 0, turn = 0;
    int i;

    drive_cfg(&cfg, "H16W", VV_POLICY_NEXT);
    cfg.check = cfg.disk_shared = true;
    cfg.slots[VV_HOP_F2H] = 2;
    cfg.slots[VV_HOP_H2F] = 1;
    drive_init(&d, &cfg);
    uint32_t h = drive_history(&d, false, 0, VV_CORE_DURABLE);
    for (uint64_t v = 1; v <= READ; v++)
        T_OK(drive_adopt(&d, h, v, v, DRIVE_PAGE));
    for (uint64_t v = FIRST; v <= SECOND; v++) {
        T_OK(drive_put(&d, &call, h, v, DRIVE_PAGE));
        hand_end(&d, VV_ORDER_APP, VV_TIER_APP, 0, v, 0);
    }
    T_CHECK(drive_find(&d, VV_ORDER_COPY, 0, 1, FIRST) >= 0);
    if (other) {
        uint32_t g = drive_history(&d, false, 0, VV_CORE_CACHED);
        T_OK(drive_put(&d, &call, g, OTHER, DRIVE_PAGE));
        hand_end(&d, VV_ORDER_APP, VV_TIER_APP, 0, OTHER, 0);
    }
    for (uint64_t v = 1; v <= READ; v++)
        T_OK(drive_hint(&d, h, v));
    drive_start(&d, h);
    hand_end(&d, VV_ORDER_COPY, 0, 1, FIRST, 0);
    for (uint64_t v = 1; v <= READ && turn == 0; v++) {
        T_CHECK(reads_out(&i) == 2);
        drive_end(&d, (unsigned)i, 0);
        nreads++;
        T_OK(drive_get(&d, &call, h, v));
        hand_end(&d, VV_ORDER_APP, 0, VV_TIER_APP, v, 0);
        T_CHECK(!call.pending);
        if (drive_find(&d, VV_ORDER_COPY, 0, 1, SECOND) >= 0)
            turn = nreads;
    }
    T_CHECK(turn >= VV_NEXT_WRITE_TURN / 2 && turn <= VV_NEXT_WRITE_TURN);
    drive_run(&d);
    T_CHECK(hand_object(&d, h, SECOND)->durable);
    hand_close(&d);
}

static void writes_give_way_to_reads(void)
{
    restores_beside_a_write(false);
}

/* A version of level cached is not written before one that has to become durable. */
static void a_cached_version_holds_up_no_durable_one(void)
{
    restores_beside_a_write(true);
}

/* The host is full and being flushed: a flush from the device goes through a transit page. */
static void a_flush_passes_a_full_host(void)
{
    uint32_t h = hand_open(&d, "D2H1F", VV_POLICY_NEXT, VV_CORE_DURABLE);
    struct drive_call one, two;
    int i;

    T_OK(drive_put(&d, &one, h, 1, DRIVE_PAGE));
    hand_end(&d, VV_ORDER_APP, VV_TIER_APP, 0, 1, 0);
    hand_end(&d, VV_ORDER_COPY, 0, 1, 1, 0);
    T_CHECK(drive_find(&d, VV_ORDER_COPY, 1, 2, 1) >= 0);
    T_OK(drive_put(&d, &two, h, 2, DRIVE_PAGE));
    hand_end(&d, VV_ORDER_APP, VV_TIER_APP, 0, 2, 0);
    i = drive_find(&d, VV_ORDER_COPY, 0, 1, 2);
    T_CHECK(i >= 0);
    T_CHECK(d.order[i]->dst_page[0] >= 1); /* behind the arena */
    drive_run(&d);
    T_CHECK(hand_object(&d, h, 2)->durable);
    T_EQ(hand_resident(&d, h, 2, 1), 0); /* and did not stay there */
    hand_close(&d);
}

/* No cache at all: objects of any size are streamed, down and up. */
static void without_cache_space(void)
{
    for (int policy = 0; policy < VV_POLICY_COUNT; policy++) {
        uint32_t h = hand_open(&d, "H0F", (enum vv_policy)policy, VV_CORE_DURABLE);
        hand_put(&d, h, 1, 9);
        hand_put(&d, h, 2, 1);
        drive_run(&d);
        hand_get(&d, h, 1);
        hand_get(&d, h, 2);
        hand_get(&d, h, 1);
        hand_close(&d);
    }
}

/* An object larger than the device goes to the host; one larger than the host passes through it. */
static void larger_than_a_tier(void)
{
    for (int policy = 0; policy < VV_POLICY_COUNT; policy++) {
        uint32_t h = hand_open(&d, "D2H4F", (enum vv_policy)policy, VV_CORE_DURABLE);
        hand_put(&d, h, 1, 3);
        hand_put(&d, h, 2, 12);
        drive_run(&d);
        hand_get(&d, h, 2);
        hand_get(&d, h, 1);
        hand_close(&d);
    }
}

/* Nothing in flight, no page that may go: the put fails at once and leaves nothing behind. */
static void no_space_at_once(void)
{
    for (int policy = 0; policy < VV_POLICY_COUNT; policy++) {
        uint32_t h = hand_open(&d, "H2", (enum vv_policy)policy, VV_CORE_CACHED);
        struct drive_call call;
        hand_put(&d, h, 1, 2);
        T_OK(drive_put(&d, &call, h, 2, DRIVE_PAGE));
        T_CHECK(!call.pending);
        T_EQ(call.req.status, -ENOSPC);
        T_EQ(d.norders, 0);
        T_CHECK(!hand_object(&d, h, 2));
        hand_get(&d, h, 1);
        T_OK(drive_discard(&d, h, 1));
        hand_put(&d, h, 2, 2);
        hand_close(&d);
    }
}

static void too_large_for_all_tiers(void)
{
    uint32_t h = hand_open(&d, "D1H2", VV_POLICY_NEXT, VV_CORE_CACHED);
    struct drive_call call;

    T_ERR(drive_put(&d, &call, h, 1, 4 * DRIVE_PAGE), -EFBIG);
    T_OK(drive_put(&d, &call, h, 2, 0));
    T_CHECK(!call.pending && call.req.status == 0);
    hand_get(&d, h, 2);
    T_OK(drive_put(&d, &call, h, 1, 3 * DRIVE_PAGE)); /* spread over both */
    T_OK(drive_finish(&d, &call));
    hand_get(&d, h, 1);
    hand_close(&d);
    h = hand_open(&d, "D1H2", VV_POLICY_FIFO, VV_CORE_CACHED);
    T_ERR(drive_put(&d, &call, h, 1, 3 * DRIVE_PAGE), -EFBIG); /* must fit one of them */
    hand_close(&d);
}

/* The files tier has a capacity: beyond it -ENOSPC, until something is removed from it. */
static void a_full_files_tier(void)
{
    uint32_t h = hand_open(&d, "H2F7", VV_POLICY_NEXT, VV_CORE_DURABLE);
    struct vv_core_stats stats;
    struct drive_call call;

    hand_put(&d, h, 1, 1); /* header, one page, checksums: 3 pages on disk */
    hand_put(&d, h, 2, 1);
    T_ERR(drive_put(&d, &call, h, 3, 6 * DRIVE_PAGE), -EFBIG);
    drive_run(&d);
    int rc = drive_put(&d, &call, h, 3, DRIVE_PAGE);
    if (rc == 0)
        rc = call.req.status;
    T_EQ(rc, -ENOSPC);
    T_OK(drive_discard(&d, h, 1));
    drive_run(&d);
    hand_put(&d, h, 3, 1);
    vv_core_get_stats(d.core, &stats);
    T_CHECK(stats.files_bytes <= 7 * DRIVE_PAGE);
    hand_close(&d);
}

/* A read that a restore waits for precedes prefetches. */
static void demand_before_prefetch(void)
{
    uint32_t h = hand_open(&d, "H4F", VV_POLICY_NEXT, VV_CORE_DURABLE);
    struct drive_call call;

    for (uint64_t v = 1; v <= 4; v++)
        T_OK(drive_adopt(&d, h, v, v, DRIVE_PAGE));
    for (uint64_t v = 1; v <= 3; v++)
        T_OK(drive_hint(&d, h, v));
    drive_start(&d, h);
    T_CHECK(drive_find(&d, VV_ORDER_COPY, 1, 0, 1) >= 0);
    T_OK(drive_get(&d, &call, h, 4));
    hand_end(&d, VV_ORDER_COPY, 1, 0, 1, 0);
    T_CHECK(drive_find(&d, VV_ORDER_COPY, 1, 0, 4) >= 0);
    T_CHECK(drive_find(&d, VV_ORDER_COPY, 1, 0, 2) < 0);
    T_OK(drive_finish(&d, &call));
    hand_close(&d);
}

/* Flushes: the version wanted last comes first. */
static void flush_farthest_first(void)
{
    uint32_t h = hand_open(&d, "H4F", VV_POLICY_NEXT, VV_CORE_DURABLE);

    for (uint64_t v = 1; v <= 4; v++)
        T_OK(drive_hint(&d, h, v));
    for (uint64_t v = 1; v <= 4; v++) {
        struct drive_call call;
        T_OK(drive_put(&d, &call, h, v, DRIVE_PAGE));
        hand_end(&d, VV_ORDER_APP, VV_TIER_APP, 0, v, 0);
    }
    hand_end(&d, VV_ORDER_COPY, 0, 1, 1, 0); /* it was alone when it began */
    T_CHECK(drive_find(&d, VV_ORDER_COPY, 0, 1, 4) >= 0);
    hand_end(&d, VV_ORDER_COPY, 0, 1, 4, 0);
    T_CHECK(drive_find(&d, VV_ORDER_COPY, 0, 1, 3) >= 0);
    hand_close(&d);
}

/* A restore is served from the resident part while flushes of the same object are pending. */
static void served_from_where_it_is(void)
{
    uint32_t h = hand_open(&d, "H2F", VV_POLICY_NEXT, VV_CORE_DURABLE);
    struct drive_call call;

    T_OK(drive_put(&d, &call, h, 1, DRIVE_PAGE));
    hand_end(&d, VV_ORDER_APP, VV_TIER_APP, 0, 1, 0);
    T_CHECK(drive_find(&d, VV_ORDER_COPY, 0, 1, 1) >= 0); /* in flight from here on */
    T_OK(drive_get(&d, &call, h, 1));
    hand_end(&d, VV_ORDER_APP, 0, VV_TIER_APP, 1, 0);
    T_CHECK(!call.pending && call.req.status == 0);
    drive_run(&d);
    hand_put(&d, h, 2, 2);
    drive_run(&d);
    hand_put(&d, h, 3, 1); /* takes one page of version 2 */
    T_EQ(hand_resident(&d, h, 2, 0), 1);
    T_OK(drive_get(&d, &call, h, 2));
    T_CHECK(drive_find(&d, VV_ORDER_APP, 0, VV_TIER_APP, 2) >= 0);
    T_CHECK(drive_find(&d, VV_ORDER_COPY, 1, 0, 2) >= 0);
    T_OK(drive_finish(&d, &call));
    hand_close(&d);
}

/* All of the device is being read: the put goes straight to the host, and is prefetched from there
 * like any other version. */
static void a_put_goes_to_the_host_when_the_device_cannot_take_it(void)
{
    uint32_t h = hand_open(&d, "D2H4", VV_POLICY_NEXT, VV_CORE_CACHED);
    struct drive_call get, put;

    hand_put(&d, h, 1, 2);
    drive_run(&d);
    T_OK(drive_get(&d, &get, h, 1));
    T_CHECK(drive_find(&d, VV_ORDER_APP, 0, VV_TIER_APP, 1) >= 0);
    T_OK(drive_put(&d, &put, h, 2, 2 * DRIVE_PAGE));
    hand_end(&d, VV_ORDER_APP, VV_TIER_APP, 1, 2, 0);
    T_CHECK(!put.pending);
    T_EQ(hand_resident(&d, h, 2, 1), 2);
    T_OK(drive_finish(&d, &get));
    hand_get(&d, h, 2);
    hand_get(&d, h, 1);
    hand_close(&d);
}

int main(void)
{
    T_RUN(a_put_revokes_the_farthest);
    T_RUN(a_prefetch_revokes_nothing_nearer);
    T_RUN(writes_give_way_to_reads);
    T_RUN(a_cached_version_holds_up_no_durable_one);
    T_RUN(a_flush_passes_a_full_host);
    T_RUN(without_cache_space);
    T_RUN(larger_than_a_tier);
    T_RUN(no_space_at_once);
    T_RUN(too_large_for_all_tiers);
    T_RUN(a_full_files_tier);
    T_RUN(demand_before_prefetch);
    T_RUN(flush_farthest_first);
    T_RUN(served_from_where_it_is);
    T_RUN(a_put_goes_to_the_host_when_the_device_cannot_take_it);
    return t_done();
}
