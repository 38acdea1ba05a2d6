/* SPDX-License-Identifier: Apache-2.0 */
/* Pages that are released when they were written to a file that is not committed yet, and commits
 * that fail then: step by step. */
#include <errno.h>

#include "unit/engine/hand.h"

static struct drive d;

/* A put of pages that there is room for, ended; other orders stay under way. */
static void put(uint32_t h, uint64_t version, uint32_t pages)
{
    struct drive_call call;

    T_OK(drive_put(&d, &call, h, version, (uint64_t)pages * DRIVE_PAGE));
    while (call.pending)
        hand_end(&d, VV_ORDER_APP, VV_TIER_APP, 0, version, 0);
    T_EQ(call.req.status, 0);
}

static uint32_t in_memory(uint32_t h, uint64_t version)
{
    return hand_resident(&d, h, version, 0);
}

/* Version 1 has two pages, both written to its file. Version 2 takes one of them in memory; then the
 * commit of version 1 fails. */
static uint32_t begin(void)
{
    uint32_t h = hand_open(&d, "H2W", VV_POLICY_NEXT, VV_CORE_DURABLE);

    put(h, 1, 2);
    T_CHECK(drive_find(&d, VV_ORDER_COPY, 0, 1, 1) >= 0);
    hand_end(&d, VV_ORDER_COPY, 0, 1, 1, 0);
    T_EQ(in_memory(h, 1), 2);
    put(h, 2, 1);
    T_EQ(in_memory(h, 1), 1);
    hand_end(&d, VV_ORDER_COMMIT, 0, 1, 1, -EIO);
    T_EQ(hand_object(&d, h, 1)->flush_err, -EIO);
    T_CHECK(drive_find(&d, VV_ORDER_REMOVE, 0, 0, 1) <
            0); /* the file has a page that memory lacks */
    return h;
}

/* While a page is being written, a copy of it in another tier is not permanent either. */
static void not_before_it_is_written(void)
{
    uint32_t h = hand_open(&d, "H2W", VV_POLICY_NEXT, VV_CORE_DURABLE);
    struct drive_call call;

    put(h, 1, 2);
    T_OK(drive_put(&d, &call, h, 2, DRIVE_PAGE));
    T_CHECK(call.pending);
    T_EQ(in_memory(h, 1), 2);
    T_CHECK(drive_find(&d, VV_ORDER_APP, VV_TIER_APP, 0, 2) < 0);
    hand_end(&d, VV_ORDER_COPY, 0, 1, 1, 0);
    hand_end(&d, VV_ORDER_APP, VV_TIER_APP, 0, 2, 0);
    T_EQ(call.req.status, 0);
    drive_run(&d);
    hand_get(&d, h, 1);
    hand_close(&d);
}

static void from_both(void)
{
    uint32_t h = begin();
    struct drive_call wait;

    T_OK(drive_wait(&d, &wait, h, 1, VV_CORE_DURABLE));
    hand_end(&d, VV_ORDER_SALVAGE, 0, 0, 1, 0);
    T_OK(drive_finish(&d, &wait));
    drive_run(&d);
    T_CHECK(hand_object(&d, h, 1)->durable);
    hand_get(&d, h, 1);
    hand_close(&d);
}

static void cannot_be_read_back(void)
{
    uint32_t h = begin();
    struct drive_call wait;

    T_OK(drive_wait(&d, &wait, h, 1, VV_CORE_DURABLE));
    hand_end(&d, VV_ORDER_SALVAGE, 0, 0, 1, -EBADMSG);
    while (wait.pending)
        drive_end(&d, 0, 0);
    T_EQ(wait.req.status, -EBADMSG);
    T_CHECK(!hand_object(&d, h, 1)->durable);
    T_OK(drive_wait(&d, &wait, h, 1, VV_CORE_DURABLE)); /* the error may have been temporary */
    T_OK(drive_finish(&d, &wait));
    drive_run(&d);
    hand_get(&d, h, 1);
    hand_close(&d);
}

/* After a failure memory keeps what it has until a file is committed: otherwise two failed files
 * would have to be combined. */
static void fails_again(void)
{
    uint32_t h = begin();
    struct drive_call wait, call;

    T_OK(drive_wait(&d, &wait, h, 1, VV_CORE_DURABLE));
    hand_end(&d, VV_ORDER_SALVAGE, 0, 0, 1, 0);
    if (drive_find(&d, VV_ORDER_COPY, 0, 1, 2) >= 0)
        hand_end(&d, VV_ORDER_COPY, 0, 1, 2, -ENOSPC);
    hand_end(&d, VV_ORDER_COPY, 0, 1, 1, 0);
    T_CHECK(drive_find(&d, VV_ORDER_COMMIT, 0, 1, 1) >= 0);
    T_OK(drive_put(&d, &call, h, 3, DRIVE_PAGE));
    T_EQ(in_memory(h, 1), 1);
    hand_end(&d, VV_ORDER_COMMIT, 0, 1, 1, -EIO);
    T_EQ(wait.req.status, -EIO);
    T_EQ(in_memory(h, 1), 1);
    T_OK(drive_wait(&d, &wait, h, 1, VV_CORE_DURABLE));
    T_OK(drive_finish(&d, &wait));
    drive_run(&d);
    hand_get(&d, h, 1);
    hand_close(&d);
}

/* Both files are removed with the version. */
static void discarded(void)
{
    uint32_t h = begin();
    struct drive_call wait;

    T_OK(drive_wait(&d, &wait, h, 1, VV_CORE_DURABLE));
    hand_end(&d, VV_ORDER_SALVAGE, 0, 0, 1, -EIO);
    T_OK(drive_discard(&d, h, 1));
    drive_run(&d);
    for (unsigned i = 0; i < d.nfiles; i++)
        T_CHECK(!d.file[i].used || d.file[i].version != 1);
    hand_close(&d);
}

int main(void)
{
    T_RUN(not_before_it_is_written);
    T_RUN(from_both);
    T_RUN(cannot_be_read_back);
    T_RUN(fails_again);
    T_RUN(discarded);
    return t_done();
}
