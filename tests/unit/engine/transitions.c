/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every legal transition of a copy, made by requests and completions; the table refuses every
 * illegal one. Tiers are 0 device, 1 host, 2 files.
 */
#include "base/assert.h"
#include "unit/engine/hand.h"

#define EXPECT_STATE(version, tier, state)                        \
    T_STREQ(vv_copy_state_name(hand_state(&d, h, version, tier)), \
            vv_copy_state_name(VV_COPY_##state))

static struct drive d;

/* INIT -> WRITE_IN_PROGRESS -> WRITE_COMPLETE -> FLUSHED, hop by hop. */
static void checkpointing_path(void)
{
    uint32_t h = hand_open(&d, "D4H4F", VV_POLICY_NEXT, VV_CORE_DURABLE);
    struct drive_call call;

    EXPECT_STATE(1, 0, INIT);
    T_OK(drive_put(&d, &call, h, 1, DRIVE_PAGE));
    EXPECT_STATE(1, 0, WRITE_IN_PROGRESS);
    hand_end(&d, VV_ORDER_APP, VV_TIER_APP, 0, 1, 0);
    T_CHECK(!call.pending);
    EXPECT_STATE(1, 0, WRITE_COMPLETE);
    EXPECT_STATE(1, 1, WRITE_IN_PROGRESS);
    hand_end(&d, VV_ORDER_COPY, 0, 1, 1, 0);
    EXPECT_STATE(1, 0, FLUSHED);
    EXPECT_STATE(1, 1, WRITE_COMPLETE);
    EXPECT_STATE(1, 2, WRITE_IN_PROGRESS);
    hand_end(&d, VV_ORDER_COPY, 1, 2, 1, 0);
    EXPECT_STATE(1, 1, FLUSHED);
    EXPECT_STATE(1, 2, WRITE_COMPLETE);
    hand_end(&d, VV_ORDER_COMMIT, 0, 0, 1, 0);
    T_CHECK(hand_object(&d, h, 1)->durable);
    hand_close(&d);
}

/* INIT -> READ_IN_PROGRESS -> READ_COMPLETE -> CONSUMED, from disk to the device. */
static void prefetching_path(void)
{
    uint32_t h = hand_open(&d, "D4H4F", VV_POLICY_NEXT, VV_CORE_DURABLE);
    struct drive_call call;

    T_OK(drive_adopt(&d, h, 1, 7, DRIVE_PAGE));
    T_OK(drive_hint(&d, h, 1));
    EXPECT_STATE(1, 1, INIT);
    drive_start(&d, h);
    EXPECT_STATE(1, 1, READ_IN_PROGRESS);
    hand_end(&d, VV_ORDER_COPY, 2, 1, 1, 0);
    EXPECT_STATE(1, 1, READ_COMPLETE);
    EXPECT_STATE(1, 0, READ_IN_PROGRESS);
    hand_end(&d, VV_ORDER_COPY, 1, 0, 1, 0);
    EXPECT_STATE(1, 0, READ_COMPLETE);
    T_OK(drive_get(&d, &call, h, 1));
    hand_end(&d, VV_ORDER_APP, 0, VV_TIER_APP, 1, 0);
    T_OK(call.req.status);
    EXPECT_STATE(1, 0, CONSUMED);
    hand_close(&d);
}

/* WRITE_COMPLETE -> READ_COMPLETE: a hint claims the copy before it is flushed. */
static void claimed_before_flushed(void)
{
    uint32_t h = hand_open(&d, "D4H4F", VV_POLICY_NEXT, VV_CORE_DURABLE);
    struct drive_call call;

    T_OK(drive_put(&d, &call, h, 1, DRIVE_PAGE));
    hand_end(&d, VV_ORDER_APP, VV_TIER_APP, 0, 1, 0);
    EXPECT_STATE(1, 0, WRITE_COMPLETE);
    T_OK(drive_hint(&d, h, 1));
    drive_start(&d, h);
    EXPECT_STATE(1, 0, READ_COMPLETE);
    drive_run(&d);
    EXPECT_STATE(1, 0, READ_COMPLETE); /* its flush does not take the claim away */
    T_CHECK(hand_object(&d, h, 1)->durable);
    hand_close(&d);
}

/* FLUSHED -> READ_COMPLETE -> FLUSHED: claimed, then the hint is cleared. READ_COMPLETE again, then
 * consumed, then wanted again. */
static void claimed_released_and_wanted_again(void)
{
    uint32_t h = hand_open(&d, "D4H4F", VV_POLICY_NEXT, VV_CORE_DURABLE);

    hand_put(&d, h, 1, 1);
    drive_run(&d);
    EXPECT_STATE(1, 0, FLUSHED);
    T_OK(drive_hint(&d, h, 1));
    drive_start(&d, h);
    EXPECT_STATE(1, 0, READ_COMPLETE);
    drive_hint_clear(&d, h);
    EXPECT_STATE(1, 0, FLUSHED);
    T_OK(drive_hint(&d, h, 1));
    EXPECT_STATE(1, 0, READ_COMPLETE);
    hand_get(&d, h, 1);
    EXPECT_STATE(1, 0, CONSUMED);
    T_OK(drive_hint(&d, h, 1));
    EXPECT_STATE(1, 0, READ_COMPLETE); /* CONSUMED -> READ_COMPLETE */
    hand_close(&d);
}

/* READ_COMPLETE -> FLUSHED: a hint that is passed over, and a copy from which a blocked put takes a
 * page. */
static void passed_over_and_revoked(void)
{
    uint32_t h = hand_open(&d, "D4H4F", VV_POLICY_NEXT, VV_CORE_DURABLE);

    hand_put(&d, h, 1, 1);
    hand_put(&d, h, 2, 2);
    drive_run(&d);
    T_OK(drive_hint(&d, h, 1));
    for (int i = 0; i < OVERTAKEN_MOST; i++)
        T_OK(drive_hint(&d, h, 2));
    drive_start(&d, h);
    EXPECT_STATE(1, 0, READ_COMPLETE);
    EXPECT_STATE(2, 0, READ_COMPLETE);
    hand_put(&d, h, 3, 2); /* one page is free */
    T_EQ(hand_resident(&d, h, 2, 0), 1);
    EXPECT_STATE(2, 0, FLUSHED);
    EXPECT_STATE(1, 0, READ_COMPLETE);
    for (int i = 0; i < OVERTAKEN_MOST; i++)
        hand_get(&d, h, 2);
    EXPECT_STATE(1, 0, FLUSHED);
    hand_close(&d);
}

/* WRITE_IN_PROGRESS -> INIT: a put that fails, and a flush that fails. */
static void failed_writes(void)
{
    uint32_t h = hand_open(&d, "D4H4F", VV_POLICY_NEXT, VV_CORE_DURABLE);
    struct drive_call call;

    T_OK(drive_put(&d, &call, h, 1, DRIVE_PAGE));
    EXPECT_STATE(1, 0, WRITE_IN_PROGRESS);
    hand_end(&d, VV_ORDER_APP, VV_TIER_APP, 0, 1, -EIO);
    T_EQ(call.req.status, -EIO);
    EXPECT_STATE(1, 0, INIT);
    T_OK(drive_put(&d, &call, h, 2, DRIVE_PAGE));
    hand_end(&d, VV_ORDER_APP, VV_TIER_APP, 0, 2, 0);
    EXPECT_STATE(2, 1, WRITE_IN_PROGRESS);
    hand_end(&d, VV_ORDER_COPY, 0, 1, 2, -EIO);
    EXPECT_STATE(2, 1, INIT);
    EXPECT_STATE(2, 0, WRITE_COMPLETE);
    hand_close(&d);
}

/* READ_IN_PROGRESS -> INIT: a prefetch that fails. */
static void failed_reads(void)
{
    uint32_t h = hand_open(&d, "D4H4F", VV_POLICY_NEXT, VV_CORE_DURABLE);

    T_OK(drive_adopt(&d, h, 1, 7, DRIVE_PAGE));
    T_OK(drive_hint(&d, h, 1));
    drive_start(&d, h);
    EXPECT_STATE(1, 1, READ_IN_PROGRESS);
    hand_end(&d, VV_ORDER_COPY, 2, 1, 1, -EIO);
    EXPECT_STATE(1, 1, INIT);
    T_EQ(d.norders, 0); /* only restores read it */
    hand_get(&d, h, 1);
    hand_close(&d);
}

/* A copy that is restored without having been prefetched is consumed as well. */
static void consumed_without_prefetch(void)
{
    uint32_t h = hand_open(&d, "D4H4F", VV_POLICY_NEXT, VV_CORE_DURABLE);

    hand_put(&d, h, 1, 1);
    EXPECT_STATE(1, 0, WRITE_COMPLETE);
    hand_get(&d, h, 1);
    EXPECT_STATE(1, 0, CONSUMED);
    drive_run(&d);
    T_CHECK(
        hand_object(&d, h, 1)->durable); /* the version is kept, so it is flushed all the same */
    hand_close(&d);
}

/* ---- the table ---- */

static const char legal[VV_COPY_STATE_COUNT][VV_COPY_STATE_COUNT + 1] = {
    /*                          I W C F R P X   (to: INIT, WIP, WC, FLUSHED, RIP, RC, CONSUMED) */
    [VV_COPY_INIT] = ".1..1..",
    [VV_COPY_WRITE_IN_PROGRESS] = "1.1....",
    [VV_COPY_WRITE_COMPLETE] = "...1.1.",
    [VV_COPY_FLUSHED] = ".....1.",
    [VV_COPY_READ_IN_PROGRESS] = "1....1.",
    [VV_COPY_READ_COMPLETE] = "...1..1",
    [VV_COPY_CONSUMED] = ".....1.",
};

static unsigned refused;

static void count_refusal(const char *file, int line, const char *text)
{
    (void)file;
    (void)line;
    T_CHECK(strstr(text, "vv_copy_state_may_change"));
    refused++;
}

static void whole_table(void)
{
    static struct vv_core core; /* for its number in traces */
    struct vv_object obj = {.version = 1};
    struct vv_copy copy = {.obj = &obj};
    unsigned nlegal = 0, nrefused = 0;

    vv_assert_set_handler(count_refusal);
    for (int from = 0; from < VV_COPY_STATE_COUNT; from++)
        for (int to = 0; to < VV_COPY_STATE_COUNT; to++) {
            bool may = legal[from][to] == '1';
            T_EQ(vv_copy_state_may_change((enum vv_copy_state)from, (enum vv_copy_state)to), may);
            nlegal += may;
            copy.state = (uint8_t)from;
            refused = 0;
            vvi_copy_set_state(&core, &copy, (enum vv_copy_state)to);
            nrefused += refused;
#ifdef VV_DEBUG
            T_EQ(refused, !may && from != to);
#endif
        }
    vv_assert_set_handler(NULL);
    t_note("%u legal transitions, %u refused", nlegal, nrefused);
    T_EQ(nlegal, 12);
    T_CHECK(!vv_copy_state_may_change(VV_COPY_STATE_COUNT, VV_COPY_INIT));
    T_CHECK(!vv_copy_state_may_change(VV_COPY_INIT, VV_COPY_STATE_COUNT));
    T_STREQ(vv_copy_state_name(VV_COPY_STATE_COUNT), "unknown");
}

int main(void)
{
    T_RUN(checkpointing_path);
    T_RUN(prefetching_path);
    T_RUN(claimed_before_flushed);
    T_RUN(claimed_released_and_wanted_again);
    T_RUN(passed_over_and_revoked);
    T_RUN(failed_writes);
    T_RUN(failed_reads);
    T_RUN(consumed_without_prefetch);
    T_RUN(whole_table);
    return t_done();
}
