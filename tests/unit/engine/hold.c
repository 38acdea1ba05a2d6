/* SPDX-License-Identifier: Apache-2.0 */
/* Versions that are written anew, step by step: when the old file goes, and when it does not. */
#include <errno.h>

#include "unit/engine/hand.h"

static struct drive d;

/* Committed files of a version. */
static unsigned files(uint64_t version)
{
    unsigned n = 0;

    for (unsigned i = 0; i < d.nfiles; i++)
        n += d.file[i].used && d.file[i].committed && d.file[i].version == version;
    return n;
}

static bool removing(uint64_t version)
{
    return drive_find(&d, VV_ORDER_REMOVE, 0, 0, version) >= 0;
}

static void committed(uint32_t h, uint64_t version)
{
    struct drive_call call;

    T_OK(drive_wait(&d, &call, h, version, VV_CORE_DURABLE));
    T_OK(drive_finish(&d, &call));
}

static void old_goes_after_the_commit(void)
{
    uint32_t h = hand_open(&d, "H4F", VV_POLICY_NEXT, VV_CORE_DURABLE);
    struct drive_call call;
    struct vv_object_info info;

    hand_put(&d, h, 1, 1);
    committed(h, 1);
    drive_run(&d);
    T_OK(drive_supersede(&d, h, 1));
    T_ERR(vv_core_lookup(d.core, h, 1, &info), -ENOENT);
    T_ERR(drive_get(&d, &call, h, 1), -ENOENT);
    T_ERR(drive_supersede(&d, h, 1), -ENOENT);
    T_CHECK(!removing(1));
    hand_put(&d, h, 1, 2);
    T_OK(drive_wait(&d, &call, h, 1, VV_CORE_DURABLE));
    while (drive_find(&d, VV_ORDER_COMMIT, 0, 0, 1) < 0)
        drive_end(&d, 0, 0);
    T_CHECK(!removing(1));
    T_EQ(files(1), 1);
    hand_end(&d, VV_ORDER_COMMIT, 0, 0, 1, 0);
    T_EQ(files(1), 2);
    T_CHECK(removing(1));
    drive_run(&d);
    T_EQ(files(1), 1);
    hand_get(&d, h, 1);
    hand_close(&d);
}

/* As long as the new one cannot be committed, the old one stays. */
static void commit_fails(void)
{
    uint32_t h = hand_open(&d, "H4F", VV_POLICY_NEXT, VV_CORE_DURABLE);
    struct drive_call call;

    hand_put(&d, h, 1, 1);
    committed(h, 1);
    drive_run(&d);
    T_OK(drive_supersede(&d, h, 1));
    hand_put(&d, h, 1, 1);
    T_OK(drive_wait(&d, &call, h, 1, VV_CORE_DURABLE));
    while (drive_find(&d, VV_ORDER_COMMIT, 0, 0, 1) < 0)
        drive_end(&d, 0, 0);
    hand_end(&d, VV_ORDER_COMMIT, 0, 0, 1, -EIO);
    T_EQ(call.req.status, -EIO);
    drive_run(&d);
    T_EQ(files(1), 1);
    /* Discarding the new one takes the old one with it. */
    T_OK(drive_discard(&d, h, 1));
    drive_run(&d);
    T_EQ(files(1), 0);
    hand_close(&d);
}

/* Written anew twice, before the first time has got anywhere. */
static void twice(void)
{
    uint32_t h = hand_open(&d, "H4F", VV_POLICY_NEXT, VV_CORE_DURABLE);

    hand_put(&d, h, 1, 1);
    committed(h, 1);
    drive_run(&d);
    T_OK(drive_supersede(&d, h, 1));
    hand_put(&d, h, 1, 1);
    T_OK(drive_supersede(&d, h, 1));
    T_EQ(files(1), 1);
    hand_put(&d, h, 1, 1);
    T_EQ(files(1), 1);
    committed(h, 1);
    drive_run(&d);
    T_EQ(files(1), 1);
    hand_get(&d, h, 1);
    hand_close(&d);
}

/* A put that comes to nothing: the version is what it was, hints and all. */
static void revived(void)
{
    uint32_t h = hand_open(&d, "H4F", VV_POLICY_NEXT, VV_CORE_DURABLE);

    hand_put(&d, h, 1, 2);
    committed(h, 1);
    drive_run(&d);
    T_ERR(drive_revive(&d, h, 1), -ENOENT);
    T_OK(drive_hint(&d, h, 1));
    T_OK(drive_supersede(&d, h, 1));
    T_OK(drive_revive(&d, h, 1));
    hand_get(&d, h, 1);
    T_OK(drive_supersede(&d, h, 1));
    hand_put(&d, h, 1, 1);
    T_ERR(drive_revive(&d, h, 1), -EEXIST);
    committed(h, 1);
    drive_run(&d);
    T_EQ(files(1), 1);
    hand_close(&d);
}

/* So is one whose put was taken and ran out of time: before its first page, or with copies on a stream. */
static void revived_after_cancelling(void)
{
    for (int started = 0; started < 2; started++) {
        uint32_t h = hand_open(&d, "H4F", VV_POLICY_NEXT, VV_CORE_DURABLE);
        struct drive_call other, put;

        hand_put(&d, h, 1, 2);
        committed(h, 1);
        drive_run(&d);
        d.ordered = true;
        if (!started)
            T_OK(drive_put(&d, &other, h, 2, 4 * DRIVE_PAGE));
        T_OK(drive_supersede(&d, h, 1));
        T_OK(drive_put(&d, &put, h, 1, (started ? 20 : 3) * DRIVE_PAGE));
        T_EQ(put.req.inflight > 0, started);
        vv_core_cancel(d.core, &put.req, -ETIMEDOUT, d.now_ns);
        T_OK(drive_revive(&d, h, 1));
        T_EQ(put.pending, started);
        T_ERR(drive_finish(&d, &put), -ETIMEDOUT);
        if (!started)
            T_OK(drive_finish(&d, &other));
        d.ordered = false;
        drive_run(&d);
        T_EQ(files(1), 1);
        hand_get(&d, h, 1);
        hand_close(&d);
    }
}

/* Superseded while it is read: the reader gets its bytes or an error, and the file waits for it. */
static void while_read(void)
{
    uint32_t h = hand_open(&d, "H4F", VV_POLICY_NEXT, VV_CORE_DURABLE);
    struct drive_call get;

    T_OK(drive_adopt(&d, h, 1, 1, 3 * DRIVE_PAGE));
    T_OK(drive_get(&d, &get, h, 1));
    T_OK(drive_supersede(&d, h, 1));
    T_CHECK(!removing(1));
    drive_run(&d);
    T_CHECK(!removing(1));
    T_EQ(files(1), 1);
    hand_put(&d, h, 1, 1);
    committed(h, 1);
    drive_run(&d);
    T_EQ(files(1), 1);
    hand_close(&d);
}

int main(void)
{
    T_RUN(old_goes_after_the_commit);
    T_RUN(commit_fails);
    T_RUN(twice);
    T_RUN(revived);
    T_RUN(revived_after_cancelling);
    T_RUN(while_read);
    return t_done();
}
