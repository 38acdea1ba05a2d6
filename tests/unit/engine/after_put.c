/* SPDX-License-Identifier: Apache-2.0 */
/* Flushes that wait for the end of the put of their object, and flushes that do not. */
#include <string.h>

#include "unit/engine/hand.h"

static struct drive d;

static bool flushing(uint64_t version)
{
    return drive_find(&d, VV_ORDER_COPY, 0, 1, version) >= 0;
}

static void end_one_copy(uint64_t version)
{
    hand_end(&d, VV_ORDER_APP, VV_TIER_APP, 0, version, 0);
}

/* A put of several batches, with the first batch in its pages. */
static uint32_t half_put(const char *tiers, struct drive_call *call, uint32_t pages)
{
    bool files = strchr(tiers, 'F') != NULL;
    uint32_t h = hand_open(&d, tiers, VV_POLICY_NEXT, files ? VV_CORE_DURABLE : VV_CORE_CACHED);
    T_OK(drive_put(&d, call, h, 1, (uint64_t)pages * DRIVE_PAGE));
    end_one_copy(1);
    T_CHECK(call->pending);
    return h;
}

static void alone_it_waits(void)
{
    struct drive_call put;
    uint32_t h = half_put("H16F", &put, 12);
    T_CHECK(!flushing(1));
    T_OK(drive_finish(&d, &put));
    T_CHECK(flushing(1));
    drive_run(&d);
    T_CHECK(hand_object(&d, h, 1)->durable);
    hand_close(&d);
}

/* The put itself needs the room that the flush makes. */
static void not_without_room(void)
{
    struct drive_call put;
    uint32_t h = half_put("H4F", &put, 12);
    T_CHECK(flushing(1));
    T_OK(drive_finish(&d, &put));
    drive_run(&d);
    T_CHECK(hand_object(&d, h, 1)->durable);
    hand_close(&d);
}

/* On a spill tier the flush no longer waits when a request waits for it. In files it waits all the
 * same: see file_waits() in object.c. */
static void not_if_a_request_waits(void)
{
    struct drive_call put, wait;
    uint32_t h = half_put("H16S32", &put, 12);
    T_CHECK(!flushing(1));
    T_OK(drive_wait_all(&d, &wait, h));
    T_CHECK(flushing(1));
    T_OK(drive_finish(&d, &put));
    T_OK(drive_finish(&d, &wait));
    hand_close(&d);
}

/* Other dirty objects are flushed meanwhile. */
static void not_if_others_are_dirty(void)
{
    struct drive_call put;
    uint32_t h = hand_open(&d, "H16F", VV_POLICY_NEXT, VV_CORE_DURABLE);
    hand_put(&d, h, 1, 4);
    T_CHECK(flushing(1));
    T_OK(drive_put(&d, &put, h, 2, (uint64_t)8 * DRIVE_PAGE));
    end_one_copy(2);
    hand_end(&d, VV_ORDER_COPY, 0, 1, 1, 0);
    T_OK(drive_finish(&d, &put));
    drive_run(&d);
    T_CHECK(hand_object(&d, h, 1)->durable && hand_object(&d, h, 2)->durable);
    hand_close(&d);
}

/* After a put that fails or is given up nothing waits for it. */
static void not_for_ever(void)
{
    struct drive_call put;
    uint32_t h = half_put("H16F", &put, 12);
    end_one_copy(1);
    hand_end(&d, VV_ORDER_APP, VV_TIER_APP, 0, 1, -EIO);
    drive_run(&d);
    T_CHECK(!put.pending && put.req.status == -EIO);
    hand_put(&d, h, 2, 2);
    drive_run(&d);
    T_CHECK(hand_object(&d, h, 2)->durable);
    hand_close(&d);
}

int main(void)
{
    T_RUN(alone_it_waits);
    T_RUN(not_without_room);
    T_RUN(not_if_a_request_waits);
    T_RUN(not_if_others_are_dirty);
    T_RUN(not_for_ever);
    return t_done();
}
