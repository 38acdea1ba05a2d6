/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of each kind of order, cancelling, discarding under way, several lives of one version,
 * retention, adoption. */
#include "unit/engine/hand.h"

static struct drive d;

static void a_put_fails(void)
{
    uint32_t h = hand_open(&d, "D2H2F", VV_POLICY_NEXT, VV_CORE_DURABLE);
    struct vv_core_stats stats;
    struct drive_call call, again;

    T_OK(drive_put(&d, &call, h, 1, 2 * DRIVE_PAGE));
    T_ERR(drive_put(&d, &again, h, 1, DRIVE_PAGE), -EEXIST); /* while it is being written */
    hand_end(&d, VV_ORDER_APP, VV_TIER_APP, 0, 1, -EIO);
    T_EQ(call.req.status, -EIO);
    T_CHECK(!hand_object(&d, h, 1));
    vv_core_get_stats(d.core, &stats);
    T_EQ(stats.tier_used_pages[0], 0);
    T_EQ(stats.files_bytes, 0);
    T_EQ(d.nreleased, 1);
    hand_put(&d, h, 1, 2);
    T_ERR(drive_put(&d, &call, h, 1, DRIVE_PAGE), -EEXIST);
    hand_close(&d);
}

static void a_restore_fails(void)
{
    uint32_t h = hand_open(&d, "D2H2F", VV_POLICY_NEXT, VV_CORE_DURABLE);
    struct drive_call call;

    T_ERR(drive_get(&d, &call, h, 1), -ENOENT);
    hand_put(&d, h, 1, 1);
    T_OK(drive_get(&d, &call, h, 1));
    hand_end(&d, VV_ORDER_APP, 0, VV_TIER_APP, 1, -EFAULT);
    T_EQ(call.req.status, -EFAULT);
    hand_get(&d, h, 1);
    hand_close(&d);
}

static void a_read_fails(void)
{
    for (int policy = 0; policy < VV_POLICY_COUNT; policy++) {
        uint32_t h = hand_open(&d, "H2F", (enum vv_policy)policy, VV_CORE_DURABLE);
        struct drive_call call;
        T_OK(drive_adopt(&d, h, 1, 1, 2 * DRIVE_PAGE));
        T_OK(drive_get(&d, &call, h, 1));
        hand_end(&d, VV_ORDER_COPY, 1, 0, 1, -EBADMSG);
        T_EQ(call.req.status, -EBADMSG);
        hand_get(&d, h, 1); /* it may be tried again */
        hand_close(&d);
    }
}

/* A read that was under way before the restore began fails: the restore issues its own, and fails
 * only with that one. */
static void an_older_read_fails(void)
{
    for (int policy = 0; policy < VV_POLICY_COUNT; policy++) {
        uint32_t h = hand_open(&d, "H2F", (enum vv_policy)policy, VV_CORE_DURABLE);
        struct drive_call first, call;
        T_OK(drive_adopt(&d, h, 1, 1, 2 * DRIVE_PAGE));
        T_OK(drive_hint(&d, h, 1));
        drive_start(&d, h);
        T_OK(drive_get(&d, &first, h, 1));
        hand_end(&d, VV_ORDER_COPY, 1, 0, 1, -EIO);
        T_CHECK(first.pending);
        T_OK(drive_get(&d, &call, h, 1)); /* after the read for the first one */
        hand_end(&d, VV_ORDER_COPY, 1, 0, 1, -EIO);
        T_EQ(first.req.status, -EIO);
        T_CHECK(call.pending);
        hand_end(&d, VV_ORDER_COPY, 1, 0, 1, 0);
        T_OK(drive_finish(&d, &call));
        hand_close(&d);
    }
}

/* The put has ended well: the error is reported later, to the next caller, and the bytes stay. */
static void a_flush_fails(void)
{
    uint32_t h = hand_open(&d, "H2F", VV_POLICY_NEXT, VV_CORE_DURABLE);
    struct vv_object_info info;
    struct drive_call call;
    uint64_t version = 0;
    int tier = -1;

    hand_put(&d, h, 1, 1);
    hand_end(&d, VV_ORDER_COPY, 0, 1, 1, -ENOSPC);
    hand_end(&d, VV_ORDER_REMOVE, 0, 0, 1, 0);
    T_EQ(d.norders, 0);
    T_OK(vv_core_lookup(d.core, h, 1, &info));
    T_EQ(info.flush_error, -ENOSPC);
    T_EQ(vv_core_take_error(d.core, h, &version, &tier), -ENOSPC);
    T_EQ(version, 1);
    T_EQ(tier, 1);
    T_EQ(vv_core_take_error(d.core, h, &version, &tier), 0);
    hand_get(&d, h, 1);
    /* A wait tries again, and returns the second failure. */
    T_OK(drive_wait(&d, &call, h, 1, VV_CORE_DURABLE));
    hand_end(&d, VV_ORDER_COPY, 0, 1, 1, -EIO);
    T_EQ(call.req.status, -EIO);
    /* The wait has reported the error. */
    T_EQ(vv_core_take_error(d.core, h, &version, &tier), 0);
    /* A wait for all versions tries again as well. */
    T_OK(drive_wait_all(&d, &call, h));
    T_CHECK(call.pending);
    hand_end(&d, VV_ORDER_COPY, 0, 1, 1, -EIO);
    T_EQ(call.req.status, -EIO);
    T_OK(drive_wait_all(&d, &call, h));
    T_OK(drive_finish(&d, &call));
    T_CHECK(hand_object(&d, h, 1)->durable);
    hand_close(&d);
}

/* One of two writes to a file has failed and the other still runs. A wait meanwhile gets the error, and
 * nothing more is written to that file: a new one is begun when no write to the old one runs. */
static void a_flush_fails_beside_another(void)
{
    struct vv_core_cfg cfg;
    struct drive_call call, all;
    uint64_t spoiled;

    drive_cfg(&cfg, "H8F", VV_POLICY_NEXT);
    cfg.check = true;
    cfg.slots[VV_HOP_H2F] = 2;
    cfg.batch_pages[VV_HOP_H2F] = 1;
    drive_init(&d, &cfg);
    uint32_t h = drive_history(&d, false, 0, VV_CORE_DURABLE);

    hand_put(&d, h, 1, 2);
    T_EQ(d.norders, 2);
    spoiled = hand_object(&d, h, 1)->file_generation;
    hand_end(&d, VV_ORDER_COPY, 0, 1, 1, -ENOSPC);
    T_EQ(d.norders, 1);
    T_OK(drive_wait(&d, &call, h, 1, VV_CORE_DURABLE));
    T_EQ(d.norders, 1);
    T_ERR(call.req.status, -ENOSPC);
    /* The next wait for the version waits for that write, and then tries again. */
    T_OK(drive_wait(&d, &call, h, 1, VV_CORE_DURABLE));
    T_OK(drive_wait_all(&d, &all, h));
    T_EQ(d.norders, 1);
    T_CHECK(call.pending && all.pending);
    hand_end(&d, VV_ORDER_COPY, 0, 1, 1, -ENOSPC); /* the same error once more */
    T_CHECK(hand_object(&d, h, 1)->file_generation != spoiled);
    hand_end(&d, VV_ORDER_REMOVE, 0, 0, 1, 0);
    T_OK(drive_finish(&d, &call));
    T_OK(drive_finish(&d, &all));
    hand_close(&d);
}

static void a_commit_fails(void)
{
    uint32_t h = hand_open(&d, "H2F", VV_POLICY_NEXT, VV_CORE_DURABLE);
    struct drive_call call;
    uint64_t latest = 0;

    hand_put(&d, h, 1, 1);
    T_OK(drive_wait(&d, &call, h, 1, VV_CORE_DURABLE));
    hand_end(&d, VV_ORDER_COPY, 0, 1, 1, 0);
    hand_end(&d, VV_ORDER_COMMIT, 0, 0, 1, -EIO);
    T_EQ(call.req.status, -EIO);
    T_ERR(vv_core_latest(d.core, h, &latest), -ENOENT);
    /* The kernel may have dropped pages that it could not write: the file goes, and all of it is
     * written again from memory, which has kept it. */
    T_EQ(hand_resident(&d, h, 1, 0), 1);
    T_EQ(hand_resident(&d, h, 1, 1), 0);
    hand_end(&d, VV_ORDER_REMOVE, 0, 0, 1, 0);
    T_OK(drive_wait(&d, &call, h, 1, VV_CORE_DURABLE));
    hand_end(&d, VV_ORDER_COPY, 0, 1, 1, 0);
    hand_end(&d, VV_ORDER_COMMIT, 0, 0, 1, 0);
    T_OK(call.req.status);
    T_OK(vv_core_latest(d.core, h, &latest));
    T_EQ(latest, 1);
    hand_close(&d);
}

/* Without a chunk there is no flush, only the commit: it may fail and is tried again. */
static void a_commit_of_nothing_fails(void)
{
    uint32_t h = hand_open(&d, "H2F", VV_POLICY_NEXT, VV_CORE_DURABLE);
    struct drive_call call;
    uint64_t latest = 0;

    T_OK(drive_put(&d, &call, h, 1, 0));
    T_CHECK(!call.pending && call.req.status == 0);
    T_OK(drive_wait(&d, &call, h, 1, VV_CORE_DURABLE));
    T_CHECK(call.pending);
    hand_end(&d, VV_ORDER_COMMIT, 0, 0, 1, -EIO);
    T_EQ(call.req.status, -EIO);
    T_ERR(vv_core_latest(d.core, h, &latest), -ENOENT);
    hand_get(&d, h, 1);
    hand_end(&d, VV_ORDER_REMOVE, 0, 0, 1, 0);
    T_OK(drive_wait(&d, &call, h, 1, VV_CORE_DURABLE));
    hand_end(&d, VV_ORDER_COMMIT, 0, 0, 1, 0);
    T_OK(call.req.status);
    T_OK(vv_core_latest(d.core, h, &latest));
    T_EQ(latest, 1);
    /* Discarded during its commit, and written again. */
    T_OK(drive_put(&d, &call, h, 2, 0));
    T_OK(drive_discard(&d, h, 2));
    T_OK(drive_put(&d, &call, h, 2, 0));
    T_CHECK(!call.pending && call.req.status == 0);
    drive_run(&d);
    T_CHECK(hand_object(&d, h, 2)->durable);
    hand_close(&d);
}

/* The file still takes its space, and the next call gets the error: the version would exist again
 * when the history is opened next. */
static void a_removal_fails(void)
{
    uint32_t h = hand_open(&d, "H2F9", VV_POLICY_NEXT, VV_CORE_DURABLE);
    struct vv_core_stats stats;
    uint64_t version = 0;
    int tier = -1;

    hand_put(&d, h, 1, 1);
    drive_run(&d);
    T_OK(drive_discard(&d, h, 1));
    hand_end(&d, VV_ORDER_REMOVE, 0, 0, 1, -EIO);
    vv_core_get_stats(d.core, &stats);
    T_CHECK(stats.files_bytes > 0);
    T_EQ(vv_core_take_error(d.core, h, &version, &tier), -EIO);
    T_EQ(version, 1);
    /* A wait for all versions tries again. */
    struct drive_call wait;
    T_OK(drive_wait_all(&d, &wait, h));
    drive_run(&d);
    vv_core_get_stats(d.core, &stats);
    T_EQ(stats.files_bytes, 0);
    T_EQ(d.nreleased, 1);
    hand_close(&d);
}

/* A file failed, and could not be removed either. When its version is discarded it must be removed,
 * although no other file replaced it. */
static void a_failed_file_stays(void)
{
    uint32_t h = hand_open(&d, "H2F", VV_POLICY_NEXT, VV_CORE_DURABLE);

    hand_put(&d, h, 1, 1);
    hand_end(&d, VV_ORDER_COPY, 0, 1, 1, 0);
    hand_end(&d, VV_ORDER_COMMIT, 0, 0, 1, -EIO);
    hand_end(&d, VV_ORDER_REMOVE, 0, 0, 1, -EIO);
    T_EQ(d.norders, 0);
    T_OK(drive_discard(&d, h, 1));
    hand_end(&d, VV_ORDER_REMOVE, 0, 0, 1, 0);
    T_EQ(d.norders, 0);
    hand_close(&d);
}

/* The file of an old generation stays, and so does that of a discarded version: the error names the
 * discarded version, which would exist again at the next opening. */
static void two_removals_fail(void)
{
    uint32_t h = hand_open(&d, "H4F", VV_POLICY_NEXT, VV_CORE_DURABLE);
    struct drive_call put;
    uint64_t version = 0;
    int tier = -1;

    hand_put(&d, h, 1, 1);
    hand_put(&d, h, 2, 1);
    drive_run(&d);
    T_OK(drive_replace(&d, &put, h, 1, DRIVE_PAGE));
    T_OK(drive_finish(&d, &put));
    while (drive_find(&d, VV_ORDER_REMOVE, 0, 0, 1) < 0)
        drive_end(&d, 0, 0);
    T_OK(drive_discard(&d, h, 2));
    hand_end(&d, VV_ORDER_REMOVE, 0, 0, 1, -EIO);
    hand_end(&d, VV_ORDER_REMOVE, 0, 0, 2, -EROFS);
    T_EQ(vv_core_take_error(d.core, h, &version, &tier), -EROFS);
    T_EQ(version, 2);
    hand_close(&d);
}

static void cancelled(void)
{
    uint32_t h = hand_open(&d, "H1F", VV_POLICY_NEXT, VV_CORE_DURABLE);
    struct drive_call one, two, get;

    T_OK(drive_put(&d, &one, h, 1, DRIVE_PAGE));
    T_CHECK(!drive_cancel(&d, &one, -ETIMEDOUT)); /* its copy is under way */
    T_OK(drive_put(&d, &two, h, 2, DRIVE_PAGE));
    T_CHECK(two.pending);
    T_CHECK(drive_cancel(&d, &two, -ETIMEDOUT));
    T_EQ(two.req.status, -ETIMEDOUT);
    T_CHECK(!hand_object(&d, h, 2));
    T_OK(drive_finish(&d, &one));
    T_OK(drive_wait(&d, &two, h, 1, VV_CORE_DURABLE));
    T_CHECK(drive_cancel(&d, &two, -ETIMEDOUT));
    drive_run(&d);
    hand_put(&d, h, 3, 1);
    drive_run(&d);
    T_OK(drive_get(&d, &get, h, 1)); /* from disk */
    T_CHECK(drive_cancel(&d, &get, -ETIMEDOUT));
    T_EQ(get.req.status, -ETIMEDOUT);
    drive_run(&d); /* ends the read for the restore */
    hand_get(&d, h, 1);
    vv_core_cancel(d.core, &get.req, -EIO, 0); /* no effect: the request has ended */
    T_EQ(get.req.status, -ETIMEDOUT);
    hand_close(&d);
}

/* Discarded while its flush is in flight and written again at once: two lives at the same time. */
static void discarded_in_flight_and_written_again(void)
{
    uint32_t h = hand_open(&d, "H4F", VV_POLICY_NEXT, VV_CORE_DURABLE);
    struct vv_object_info first, second;
    struct drive_call call;
    int old;

    T_ERR(drive_discard(&d, h, 1), -ENOENT);
    hand_put(&d, h, 1, 1);
    T_OK(vv_core_lookup(d.core, h, 1, &first));
    old = drive_find(&d, VV_ORDER_COPY, 0, 1, 1);
    T_CHECK(old >= 0);
    T_OK(drive_discard(&d, h, 1));
    T_ERR(vv_core_lookup(d.core, h, 1, &second), -ENOENT);
    T_ERR(drive_get(&d, &call, h, 1), -ENOENT);
    T_OK(drive_put(&d, &call, h, 1, 2 * DRIVE_PAGE));
    hand_end(&d, VV_ORDER_APP, VV_TIER_APP, 0, 1, 0);
    T_OK(vv_core_lookup(d.core, h, 1, &second));
    T_CHECK(second.generation > first.generation);
    T_EQ(d.nreleased, 0);
    drive_end(&d, (unsigned)drive_find(&d, VV_ORDER_COPY, 0, 1, 1), 0); /* of the first life */
    T_CHECK(drive_find(&d, VV_ORDER_REMOVE, 0, 0, 1) >= 0);
    drive_run(&d);
    T_EQ(d.nreleased, 1);
    hand_get(&d, h, 1);
    T_OK(drive_wait(&d, &call, h, 1, VV_CORE_DURABLE));
    T_OK(drive_finish(&d, &call));
    hand_close(&d);
}

/* A restore whose version is discarded meanwhile ends with -ENOENT, and never with other bytes. */
static void discarded_while_read(void)
{
    uint32_t h = hand_open(&d, "H4F", VV_POLICY_NEXT, VV_CORE_DURABLE);
    struct drive_call get, wait;

    T_OK(drive_adopt(&d, h, 1, 1, 3 * DRIVE_PAGE));
    T_OK(drive_get(&d, &get, h, 1));
    T_OK(drive_discard(&d, h, 1));
    T_CHECK(drive_find(&d, VV_ORDER_REMOVE, 0, 0, 1) < 0); /* not while it is read */
    drive_run(&d);
    T_EQ(get.req.status, -ENOENT);
    hand_put(&d, h, 2, 1);
    T_OK(drive_wait(&d, &wait, h, 2, VV_CORE_DURABLE));
    T_OK(drive_discard(&d, h, 2));
    T_EQ(wait.req.status, -ENOENT);
    hand_close(&d);
}

static void consumed_once(void)
{
    struct vv_core_cfg cfg;
    struct drive_call call;
    uint32_t h;

    drive_cfg(&cfg, "H4F", VV_POLICY_NEXT);
    cfg.check = true;
    drive_init(&d, &cfg);
    h = drive_history(&d, true, 0, VV_CORE_CACHED);
    hand_put(&d, h, 1, 1);
    hand_get(&d, h, 1); /* does not wait for its flush, which is in flight */
    T_ERR(drive_get(&d, &call, h, 1), -ENOENT);
    drive_run(&d);
    T_EQ(d.nreleased, 1);
    hand_put(&d, h, 1, 1);
    hand_close(&d);
}

static void keeps_the_newest(void)
{
    struct vv_core_cfg cfg;
    uint64_t latest = 0;
    uint32_t h;

    drive_cfg(&cfg, "H4F", VV_POLICY_NEXT);
    cfg.check = true;
    drive_init(&d, &cfg);
    h = drive_history(&d, false, 2, VV_CORE_DURABLE);
    for (uint64_t v = 1; v <= 4; v++) {
        hand_put(&d, h, v, 1);
        T_CHECK(hand_object(&d, h, v > 2 ? v - 2 : 1) !=
                NULL); /* not before newer ones are durable */
        drive_run(&d);
    }
    T_CHECK(!hand_object(&d, h, 2));
    T_CHECK(hand_object(&d, h, 3));
    T_OK(vv_core_latest(d.core, h, &latest));
    T_EQ(latest, 4);
    hand_close(&d);
}

static void adopted(void)
{
    uint32_t h = hand_open(&d, "H4F", VV_POLICY_NEXT, VV_CORE_DURABLE), other;
    struct vv_object_info info;
    struct drive_call call;

    T_OK(drive_adopt(&d, h, 5, 40, 2 * DRIVE_PAGE));
    T_ERR(drive_adopt(&d, h, 5, 39, DRIVE_PAGE), -EEXIST);
    T_OK(drive_adopt(&d, h, 6, 41, 0));
    hand_get(&d, h, 6);
    T_OK(drive_discard(&d, h, 6));
    T_OK(vv_core_lookup(d.core, h, 5, &info));
    T_CHECK(info.durable);
    T_EQ(info.generation, 40);
    T_OK(drive_wait(&d, &call, h, 5, VV_CORE_DURABLE));
    T_CHECK(!call.pending && call.req.status == 0);
    hand_get(&d, h, 5);
    hand_put(&d, h, 6, 1);
    T_OK(vv_core_lookup(d.core, h, 6, &info));
    T_CHECK(info.generation > 40); /* generations never come twice */
    drive_run(&d);
    /* Another history is separate. */
    other = drive_history(&d, false, 0, VV_CORE_CACHED);
    T_ERR(drive_get(&d, &call, other, 5), -ENOENT);
    hand_put(&d, other, 5, 1);
    hand_get(&d, other, 5);
    drive_run(&d);
    /* Forgetting a history removes no committed file. */
    vv_core_history_drop(d.core, h, 0);
    T_CHECK(drive_find(&d, VV_ORDER_REMOVE, 0, 0, 5) < 0);
    hand_close(&d);
}

static void bad_configurations(void)
{
    static const char *const bad[] = {"", "F", "D2F", "H2D2", "FH2", "H2H2", "H1S0", "H1F1S1"};
    struct vv_core_hist_cfg durable = {.level = VV_CORE_DURABLE};
    struct vv_core *core = NULL;
    struct vv_core_cfg cfg;
    uint32_t h;

    for (size_t i = 0; i < VV_ARRAY_SIZE(bad); i++) {
        drive_cfg(&cfg, bad[i], VV_POLICY_NEXT);
        T_ERR(vv_core_new(&cfg, &core), -EINVAL);
    }
    drive_cfg(&cfg, "H1F", VV_POLICY_NEXT);
    cfg.transit_pages = 0;
    T_ERR(vv_core_new(&cfg, &core), -EINVAL);
    cfg.transit_pages = 1;
    cfg.page_bytes = 5000;
    T_ERR(vv_core_new(&cfg, &core), -EINVAL);
    cfg.page_bytes = DRIVE_PAGE;
    cfg.policy = VV_POLICY_COUNT;
    T_ERR(vv_core_new(&cfg, &core), -EINVAL);
    T_CHECK(!core);
    vv_core_free(NULL);
    h = hand_open(&d, "H2S4", VV_POLICY_NEXT, VV_CORE_CACHED);
    T_ERR(vv_core_history_new(d.core, &durable, &h), -EINVAL);
    hand_put(&d, h, 1, 1);
    struct drive_call call;
    T_ERR(drive_wait(&d, &call, h, 1, VV_CORE_DURABLE), -EINVAL);
    T_ERR(drive_wait(&d, &call, h, 2, VV_CORE_CACHED), -ENOENT);
    T_OK(drive_wait(&d, &call, h, 1, VV_CORE_CACHED));
    T_CHECK(!call.pending);
    T_ERR(drive_adopt(&d, h, 7, 1, 10), -EINVAL);
    hand_close(&d);
}

/* The checker detects each of these errors. */
static void checker_sees(void)
{
    uint32_t h = hand_open(&d, "D2H2F", VV_POLICY_NEXT, VV_CORE_DURABLE);
    struct vv_object *obj;
    struct vv_copy *copy;

    hand_put(&d, h, 1, 2);
    obj = hand_object(&d, h, 1);
    copy = obj->copy[0];
    T_CHECK(!vv_core_check(d.core));
#define BREAK(what, value)                   \
    do {                                     \
        __typeof__((what) + 0) was = (what); \
        (what) = (value);                    \
        T_CHECK(vv_core_check(d.core));      \
        (what) = was;                        \
        T_CHECK(!vv_core_check(d.core));     \
    } while (0)
    BREAK(copy->nvalid, 1);
    BREAK(copy->ndirty, copy->ndirty + 1);
    BREAK(copy->state, VV_COPY_INIT);
    BREAK(copy->page[0], copy->page[1]);
    BREAK(obj->nmem, 0);
    BREAK(obj->refs, obj->refs + 1);
    BREAK(obj->dead, true);
    BREAK(obj->down, !obj->down);
    BREAK(vvi_page(d.core, copy, 0)->pins, 9);
    BREAK(vvi_page(d.core, copy, 1)->class, 0xf);
    BREAK(vvi_page(d.core, copy, 1)->state, VV_PAGE_RESERVED);
    BREAK(d.core->tier[0].nevict, 7);
    BREAK(d.core->tier[1].ntransit[0], 0);
    BREAK(d.core->tier[1].ntransit[1], d.core->tier[1].ntransit[1] + 1000);
    BREAK(d.core->tier[1].transit[1][0], d.core->tier[1].transit[0][0]);
    BREAK(d.core->tier[1].transit[0][0], 0);
    if (d.core->tier[1].ntransit[0] > 1)
        BREAK(d.core->tier[1].transit[0][0], d.core->tier[1].transit[0][1]);
    BREAK(d.core->tier[1].arena.page[d.core->tier[1].transit[1][0]].state, VV_PAGE_RESERVED);
    BREAK(d.core->tier[2].used_bytes, 1);
    BREAK(d.core->inflight, 0);
    BREAK(vvi_hist(d.core, h)->nwritten, 4);
    BREAK(vvi_hist(d.core, h)->ready, 1);
    BREAK(copy->heap_pos[HEAP_DIRTY], 3);
#undef BREAK
    hand_close(&d);
}

/* A flush that ran ahead of a put fails after the put has returned success: a late error of the
 * version, which is not flushed any more. */
static void an_error_after_the_promise(void)
{
    uint32_t h = hand_open(&d, "D8H1F", VV_POLICY_NEXT, VV_CORE_DURABLE);
    struct drive_call put;
    uint64_t version = 0;
    int tier = -1;

    T_OK(drive_put(&d, &put, h, 1, 8 * DRIVE_PAGE));
    hand_end(&d, VV_ORDER_APP, VV_TIER_APP, 0, 1, 0);
    hand_end(&d, VV_ORDER_COPY, 0, 1, 1, -EIO);
    T_CHECK(put.pending);
    T_EQ(put.req.error, -EIO);
    vv_core_promise(d.core, &put.req);
    hand_end(&d, VV_ORDER_APP, VV_TIER_APP, 0, 1, 0);
    T_CHECK(!put.pending);
    T_EQ(put.req.status, 0);
    T_EQ(hand_object(&d, h, 1)->copy[0]->ndirty, 0);
    T_EQ(vv_core_take_error(d.core, h, &version, &tier), -EIO);
    T_EQ(version, 1);
    hand_get(&d, h, 1);
    hand_close(&d);
}

int main(void)
{
    T_RUN(a_put_fails);
    T_RUN(a_restore_fails);
    T_RUN(a_read_fails);
    T_RUN(an_older_read_fails);
    T_RUN(a_flush_fails);
    T_RUN(a_flush_fails_beside_another);
    T_RUN(a_commit_fails);
    T_RUN(a_commit_of_nothing_fails);
    T_RUN(a_removal_fails);
    T_RUN(a_failed_file_stays);
    T_RUN(two_removals_fail);
    T_RUN(cancelled);
    T_RUN(discarded_in_flight_and_written_again);
    T_RUN(discarded_while_read);
    T_RUN(consumed_once);
    T_RUN(keeps_the_newest);
    T_RUN(adopted);
    T_RUN(bad_configurations);
    T_RUN(checker_sees);
    T_RUN(an_error_after_the_promise);
    return t_done();
}
