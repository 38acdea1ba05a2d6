/* SPDX-License-Identifier: Apache-2.0 */
/* Orders that run ahead, one by one: the effects of a stream that stands still. */
#include <string.h>

#include "model/drive.h"
#include "t.h"

enum { CALLS = 12 };

static struct drive d;
static uint32_t hist;
static struct drive_call call[CALLS];

static void start(const char *tiers)
{
    struct vv_core_cfg cfg;

    drive_cfg(&cfg, tiers, VV_POLICY_NEXT);
    cfg.check = true;
    drive_init(&d, &cfg);
    hist = drive_history(&d, false, 0, VV_CORE_DURABLE);
    memset(call, 0, sizeof(call));
}

/* Ends the order for this version between these tiers. */
static void end(enum vv_order_kind kind, int src, int dst, uint64_t version)
{
    int at = drive_find(&d, kind, src, dst, version);

    T_CHECK(at >= 0);
    drive_end(&d, (unsigned)at, 0);
}

static void put_on(uint64_t version)
{
    d.ordered = true;
    d.stream = 1;
    T_OK(drive_put(&d, &call[version], hist, version, DRIVE_PAGE));
    d.ordered = false;
    d.stream = 0;
}

/* A stream that stands still reads a written version and makes room. The flush of that version to
 * the disk must not wait for the writes that the stream has still to make. */
static void a_reader_does_not_hold_up_the_disk(void)
{
    struct drive_call wait;

    static const uint64_t order[] = {1, 3, 1, 4}; /* the device gives up 8 first, then 2, then 1 */

    start("D4H9F");
    for (unsigned i = 0; i < VV_ARRAY_SIZE(order); i++)
        T_OK(drive_hint(&d, hist, order[i]));
    T_OK(drive_put(&d, &call[5], hist, 5, DRIVE_PAGE));
    end(VV_ORDER_APP, VV_TIER_APP, 0, 5);
    T_OK(drive_put(&d, &call[8], hist, 8, DRIVE_PAGE));
    end(VV_ORDER_APP, VV_TIER_APP, 0, 8);
    T_OK(drive_put(&d, &call[1], hist, 1, DRIVE_PAGE));
    end(VV_ORDER_APP, VV_TIER_APP, 0, 1);
    T_CHECK(drive_find(&d, VV_ORDER_COPY, 0, 1, 1) < 0); /* version 5 is on its way down */
    drive_hold(&d, 1, false);
    d.ordered = true;
    d.stream = 1;
    T_OK(drive_get(&d, &call[0], hist, 1));
    d.ordered = false;
    d.stream = 0;
    for (uint64_t v = 2; v <= 4; v++)
        put_on(v);
    put_on(6);
    T_CHECK(drive_find(&d, VV_ORDER_COPY, 0, 1, 2) >= 0 &&
            drive_find(&d, VV_ORDER_COPY, 0, 1, 2) < drive_find(&d, VV_ORDER_COPY, 0, 1, 1));
    T_OK(drive_wait(&d, &wait, hist, 1, VV_CORE_DURABLE));
    T_EQ(drive_finish(&d, &wait), 0);
    T_CHECK(call[2].pending && call[3].pending && call[4].pending);
    drive_let_go(&d, 1);
    drive_run(&d);
    T_CHECK(!d.wrong[0]);
    drive_fini(&d);
}

static void put_by(uint64_t stream, uint64_t version)
{
    d.ordered = true;
    d.stream = stream;
    T_OK(drive_put(&d, &call[version], hist, version, DRIVE_PAGE));
    d.ordered = false;
    d.stream = 0;
}

/* The first thread of a program puts all it has on its stream just before the second one does. */
static void a_stream_leaves_room_to_another(void)
{
    start("D4H9F");
    put_by(1, 0);
    put_by(2, 1);
    drive_run(&d);
    drive_hold(&d, 1, false);
    drive_hold(&d, 2, false);
    for (uint64_t v = 2; v <= 6; v++)
        put_by(1, v);
    put_by(2, 7);
    put_by(2, 8);
    T_CHECK(drive_find(&d, VV_ORDER_APP, VV_TIER_APP, 0, 7) >= 0);
    T_CHECK(drive_find(&d, VV_ORDER_APP, VV_TIER_APP, 0, 8) >= 0);
    drive_let_go(&d, 2);
    drive_let_go(&d, 1);
    drive_run(&d);
    T_CHECK(!d.wrong[0]);
    drive_fini(&d);
}

int main(void)
{
    T_RUN(a_reader_does_not_hold_up_the_disk);
    T_RUN(a_stream_leaves_room_to_another);
    return t_done();
}
