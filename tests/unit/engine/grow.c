/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tier whose pages become ready while it is in use: its full size decides what fits, the ready
 * pages decide what has room. Requests that wait continue when more pages are ready, or fail when
 * no more come.
 */
#include <errno.h>

#include "model/drive.h"
#include "t.h"
#include "unit/engine/hand.h"

static void start(struct drive *d, const char *tiers, enum vv_policy policy)
{
    struct vv_core_cfg cfg;

    drive_cfg(&cfg, tiers, policy);
    cfg.check = true;
    drive_init(d, &cfg);
}

static uint64_t ready_pages(const struct drive *d, unsigned tier)
{
    struct vv_core_stats s;

    vv_core_get_stats(d->core, &s);
    T_EQ(s.tier_used_pages[tier] <= s.tier_ready_pages[tier], 1);
    return s.tier_ready_pages[tier];
}

/* A put waits with nothing in flight, takes pages as they come, and ends when it has all it
 * needs. */
static void a_put_waits_for_pages(void)
{
    for (int policy = 0; policy < VV_POLICY_COUNT; policy++) {
        static struct drive d;
        struct drive_call put, get;
        start(&d, "h4", (enum vv_policy)policy);
        uint32_t h = drive_history(&d, false, 0, VV_CORE_CACHED);
        T_OK(drive_put(&d, &put, h, 1, 3 * DRIVE_PAGE));
        T_CHECK(put.pending);
        T_EQ(d.norders, 0);
        while (put.pending && d.norders == 0)
            T_CHECK(drive_grow(&d, 0));
        /* Page by page, or as soon as it fits whole. */
        T_EQ(ready_pages(&d, 0), policy == VV_POLICY_NEXT ? 1 : 3);
        T_OK(drive_finish(&d, &put));
        T_CHECK(ready_pages(&d, 0) == 3);
        T_OK(drive_get(&d, &get, h, 1));
        T_OK(drive_finish(&d, &get));
        T_CHECK(drive_grow(&d, 0));
        T_CHECK(!drive_grow(&d, 0));
        drive_fini(&d);
    }
}

/* The full size, not the ready pages, decides that an object can never fit: it is refused at
 * once. */
static void capacity_is_the_full_one(void)
{
    for (int policy = 0; policy < VV_POLICY_COUNT; policy++) {
        static struct drive d;
        struct drive_call put;
        start(&d, "h4", (enum vv_policy)policy);
        uint32_t h = drive_history(&d, false, 0, VV_CORE_CACHED);
        T_ERR(drive_put(&d, &put, h, 1, 5 * DRIVE_PAGE), -EFBIG);
        T_OK(drive_put(&d, &put, h, 1, 4 * DRIVE_PAGE));
        T_CHECK(put.pending);
        T_OK(drive_finish(&d, &put));
        drive_fini(&d);
    }
}

/* No more pages come: requests that wait for more fail, and those that fit continue. */
static void stopping_fails_requests_that_wait(void)
{
    for (int policy = 0; policy < VV_POLICY_COUNT; policy++) {
        static struct drive d;
        struct drive_call large, small, get;
        start(&d, "h4", (enum vv_policy)policy);
        uint32_t h = drive_history(&d, false, 0, VV_CORE_CACHED);
        T_CHECK(drive_grow(&d, 0) && drive_grow(&d, 0));
        T_OK(drive_put(&d, &large, h, 1, 3 * DRIVE_PAGE));
        while (d.norders)
            drive_end(&d, 0, 0);
        T_CHECK(large.pending);
        T_OK(drive_put(&d, &small, h, 2, DRIVE_PAGE));
        T_CHECK(small.pending);
        drive_grow_stop(&d, 0);
        T_CHECK(!large.pending);
        T_EQ(large.req.status, -EFBIG);
        T_OK(drive_finish(&d, &small));
        T_ERR(drive_put(&d, &large, h, 3, 3 * DRIVE_PAGE), -EFBIG);
        T_OK(drive_get(&d, &get, h, 2));
        T_OK(drive_finish(&d, &get));
        drive_grow_stop(&d, 0); /* a second call has no effect */
        T_CHECK(!drive_grow(&d, 0));
        drive_fini(&d);
    }
}

/* Admitted for the full size, the put is too large now: it streams to its file instead. */
static void stopping_lets_a_put_stream(void)
{
    for (int policy = 0; policy < VV_POLICY_COUNT; policy++)
        for (unsigned ready = 0; ready < 3; ready++) {
            static struct drive d;
            struct drive_call put, get;
            start(&d, "h8F", (enum vv_policy)policy);
            uint32_t h = drive_history(&d, false, 0, VV_CORE_DURABLE);
            T_OK(drive_put(&d, &put, h, 1, 4 * DRIVE_PAGE));
            for (unsigned i = 0; i < ready; i++)
                T_CHECK(drive_grow(&d, 0));
            while (d.norders)
                drive_end(&d, 0, 0);
            T_CHECK(put.pending);
            drive_grow_stop(&d, 0);
            T_OK(drive_finish(&d, &put));
            T_OK(drive_wait(&d, &put, h, 1, VV_CORE_DURABLE));
            T_OK(drive_finish(&d, &put));
            T_OK(drive_get(&d, &get, h, 1));
            T_OK(drive_finish(&d, &get));
            drive_fini(&d);
        }
}

/* The cache above takes a checkpoint while no page of the host is ready; its flush waits, and
 * continues with the first page. */
static void flushes_wait_for_pages(void)
{
    static struct drive d;
    struct drive_call put, next;

    start(&d, "D2h4", VV_POLICY_NEXT);
    uint32_t h = drive_history(&d, false, 0, VV_CORE_CACHED);
    T_OK(drive_put(&d, &put, h, 1, 2 * DRIVE_PAGE));
    drive_end(&d, 0, 0);
    T_CHECK(!put.pending);
    T_EQ(put.req.status, 0);
    T_EQ(d.norders, 0);
    T_OK(drive_put(&d, &next, h, 2, DRIVE_PAGE));
    T_CHECK(next.pending);
    T_CHECK(drive_grow(&d, 1));
    T_CHECK(drive_find(&d, VV_ORDER_COPY, 0, 1, 1) >= 0);
    T_OK(drive_finish(&d, &next));
    T_EQ(ready_pages(&d, 1), 1);
    drive_fini(&d);
}

/* A restore of a version in a file needs no page of the cache, and continues while it grows. */
static void restores_do_not_wait(void)
{
    for (int policy = 0; policy < VV_POLICY_COUNT; policy++) {
        static struct drive d;
        struct drive_call get;
        start(&d, "h4F", (enum vv_policy)policy);
        uint32_t h = drive_history(&d, false, 0, VV_CORE_DURABLE);
        T_OK(drive_adopt(&d, h, 1, 1, 3 * DRIVE_PAGE));
        T_OK(drive_get(&d, &get, h, 1));
        while (get.pending && d.norders)
            drive_end(&d, 0, 0);
        T_CHECK(!get.pending);
        T_EQ(get.req.status, 0);
        T_EQ(ready_pages(&d, 0), 0);
        drive_fini(&d);
    }
}

int main(void)
{
    T_RUN(a_put_waits_for_pages);
    T_RUN(capacity_is_the_full_one);
    T_RUN(stopping_fails_requests_that_wait);
    T_RUN(stopping_lets_a_put_stream);
    T_RUN(flushes_wait_for_pages);
    T_RUN(restores_do_not_wait);
    return t_done();
}
