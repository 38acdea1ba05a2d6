/* SPDX-License-Identifier: Apache-2.0 */
/* Lending and ordered requests, driven by hand: which requests wait for which, and which do not. */
#include "unit/engine/hand.h"

static const enum vv_policy policies[] = {VV_POLICY_NEXT, VV_POLICY_SCORE, VV_POLICY_SCORE_NOW,
                                          VV_POLICY_FIFO, VV_POLICY_LRU};

static void discard_all(struct drive *d, uint32_t hist, uint64_t n)
{
    for (uint64_t v = 0; v < n; v++)
        T_OK(drive_discard(d, hist, v));
}

/* Pages lent in place are not evicted for any request, and may go once they are given back. */
static void lent_pages_stay(void)
{
    for (unsigned p = 0; p < VV_ARRAY_SIZE(policies); p++) {
        struct drive d;
        struct drive_lend lend = {.used = false};
        uint32_t h = hand_open(&d, "H4S16", policies[p], VV_CORE_CACHED);

        hand_put(&d, h, 0, 2);
        T_OK(drive_lend(&d, &lend, h, 0, 0, 2));
        for (uint64_t v = 1; v < 6; v++)
            hand_put(&d, h, v, 2);
        drive_run(&d);
        T_EQ(hand_resident(&d, h, 0, 0), 2);
        drive_unlend(&d, &lend);
        for (uint64_t v = 6; v < 8; v++)
            hand_put(&d, h, v, 2);
        drive_run(&d);
        T_CHECK(hand_resident(&d, h, 0, 0) < 2 || policies[p] == VV_POLICY_NEXT);
        hand_get(&d, h, 0);
        hand_close(&d);
    }
}

/* Pages of a discarded version stay until they are given back, and are free then. */
static void discarded_while_lent(void)
{
    for (unsigned p = 0; p < VV_ARRAY_SIZE(policies); p++) {
        struct drive d;
        struct drive_lend lend = {.used = false};
        struct vv_core_stats s;
        uint32_t h = hand_open(&d, "H4", policies[p], VV_CORE_CACHED);

        hand_put(&d, h, 0, 2);
        T_OK(drive_lend(&d, &lend, h, 0, 0, 2));
        T_OK(drive_discard(&d, h, 0));
        vv_core_get_stats(d.core, &s);
        T_EQ(s.tier_used_pages[0], 2);
        drive_unlend(&d, &lend);
        vv_core_get_stats(d.core, &s);
        T_EQ(s.tier_used_pages[0], 0);
        hand_close(&d);
    }
}

/* A lease waits until the pages in its way were flushed, and no longer. */
static void a_lease_waits_for_flushes(void)
{
    for (unsigned p = 0; p < VV_ARRAY_SIZE(policies); p++) {
        struct drive d;
        struct drive_call lease, put;
        struct drive_lend lend = {.used = false};
        uint32_t h = hand_open(&d, "H4S16", policies[p], VV_CORE_CACHED);

        for (uint64_t v = 0; v < 4; v++) {
            T_OK(drive_put(&d, &put, h, v, DRIVE_PAGE));
            while (put.pending)
                hand_end(&d, VV_ORDER_APP, VV_TIER_APP, 0, v, 0);
        }
        T_OK(drive_lease(&d, &lease, &lend, h, 2));
        T_CHECK(lease.pending);
        T_OK(drive_finish(&d, &lease));
        T_CHECK(lend.used);
        T_ERR(drive_lease(&d, &lease, &lend, h, 1), -ENOSPC); /* half of it is lent */
        drive_run(&d);
        for (uint64_t v = 0; v < 4; v++)
            hand_get(&d, h, v);
        drive_unlend(&d, &lend);
        hand_close(&d);
    }
}

/* A lease takes the run whose soonest use is the latest: it evicts one version that is wanted late,
 * not many that are wanted next, although their distances add up to more. */
static void a_lease_spares_what_is_next(void)
{
    struct drive d;
    struct drive_call lease;
    struct drive_lend lend = {.used = false};
    uint32_t h = hand_open(&d, "H8S32", VV_POLICY_NEXT, VV_CORE_CACHED);

    for (uint64_t v = 1; v <= 4; v++)
        T_OK(drive_hint(&d, h, v));
    T_OK(drive_hint(&d, h, 0));
    hand_put(&d, h, 0, 4);
    for (uint64_t v = 1; v <= 4; v++)
        hand_put(&d, h, v, 1);
    drive_run(&d);
    T_OK(drive_lease(&d, &lease, &lend, h, 4));
    T_CHECK(!lease.pending && lend.used);
    T_EQ(hand_resident(&d, h, 0, 0), 0);
    for (uint64_t v = 1; v <= 4; v++)
        T_EQ(hand_resident(&d, h, v, 0), 1);
    drive_unlend(&d, &lend);
    hand_close(&d);
}

/* Memory only, and full: a lease fails at once, as a put would, unless pages are being given
 * back. */
static void a_lease_in_vain(void)
{
    for (unsigned p = 0; p < VV_ARRAY_SIZE(policies); p++) {
        struct drive d;
        struct drive_call lease;
        struct drive_lend one = {.used = false}, two = {.used = false};
        uint32_t h = hand_open(&d, "H4", policies[p], VV_CORE_CACHED);

        T_OK(drive_lease(&d, &lease, &one, h, 2));
        T_CHECK(!lease.pending && one.used);
        hand_put(&d, h, 0, 1);
        hand_put(&d, h, 1, 1);
        vv_core_lend_ends(d.core, &one.lend);
        T_OK(drive_lease(&d, &lease, &two, h, 1));
        T_CHECK(lease.pending);
        drive_unlend(&d, &one);
        T_CHECK(!lease.pending && two.used);
        drive_unlend(&d, &two);
        discard_all(&d, h, 2);
        for (uint64_t v = 2; v < 6; v++)
            hand_put(&d, h, v, 1);
        T_OK(drive_lease(&d, &lease, &one, h, 1));
        T_ERR(drive_finish(&d, &lease), -ENOSPC);
        hand_close(&d);
    }
}

/* The pages of leases become a version; if they are in parts, only where copies may be
 * scattered. */
static void a_version_of_leases(void)
{
    for (unsigned p = 0; p < VV_ARRAY_SIZE(policies); p++) {
        struct drive d;
        struct drive_call call;
        struct drive_lend one = {.used = false}, two = {.used = false};
        struct drive_lend *both[] = {&one, &two};
        uint64_t parts[] = {DRIVE_PAGE, 2 * DRIVE_PAGE - 5};
        bool paged = policies[p] == VV_POLICY_NEXT;
        uint32_t h = hand_open(&d, "D8H8S16", policies[p], VV_CORE_CACHED);
        struct vv_core_stats before, after;

        d.app_is_device = true;
        T_OK(drive_lease(&d, &call, &one, h, 1));
        T_OK(drive_lease(&d, &call, &two, h, 2));
        T_EQ(vv_core_lends_join(d.core, parts, 2), paged);
        parts[0]--;
        T_CHECK(!vv_core_lends_join(d.core, parts, 2));
        T_CHECK(vv_core_lends_join(d.core, parts, 1));
        vv_core_get_stats(d.core, &before);
        if (paged)
            T_OK(drive_put_lent(&d, &call, both, 2, h, 7, 3 * DRIVE_PAGE - 5));
        else
            T_ERR(drive_put_lent(&d, &call, both, 2, h, 7, 3 * DRIVE_PAGE - 5), -EINVAL);
        if (!paged)
            T_OK(drive_put_lent(&d, &call, &both[1], 1, h, 7, 2 * DRIVE_PAGE - 5));
        T_CHECK(call.pending);
        T_OK(drive_finish(&d, &call));
        vv_core_get_stats(d.core, &after);
        T_EQ(after.moved_bytes[VV_HOP_D2D], before.moved_bytes[VV_HOP_D2D]);
        T_EQ(hand_resident(&d, h, 7, 0), paged ? 3 : 2);
        drive_run(&d);
        hand_get(&d, h, 7);
        if (!paged)
            drive_unlend(&d, &one);
        T_ERR(drive_lease(&d, &call, &one, h, 5), -ENOSPC);
        hand_close(&d);
    }
}

/* A put that needs no room does not wait behind one that does: its end may make that room. */
static void a_lent_put_overtakes(void)
{
    struct drive d;
    struct drive_call lease, blocked, lent;
    struct drive_lend lend = {.used = false}, *list = &lend;
    uint32_t h = hand_open(&d, "H4S16", VV_POLICY_SCORE, VV_CORE_CACHED);

    T_OK(drive_lease(&d, &lease, &lend, h, 2));
    vv_core_lend_ends(d.core, &lend.lend); /* so that the put waits */
    T_OK(drive_put(&d, &blocked, h, 0, 4 * DRIVE_PAGE));
    T_CHECK(blocked.pending && d.norders == 0);
    T_OK(drive_put_lent(&d, &lent, &list, 1, h, 1, 2 * DRIVE_PAGE));
    T_CHECK(drive_find(&d, VV_ORDER_APP, VV_TIER_APP, 0, 1) >= 0);
    T_OK(drive_finish(&d, &lent));
    T_OK(drive_finish(&d, &blocked));
    hand_close(&d);
}

/* ---- ordered ---- */

/* All orders are issued at once, and then nothing is blocked; the version does not exist before
 * they have ended. */
static void ordered_put(void)
{
    struct drive d;
    struct drive_call put, other, wait;
    struct vv_object_info info;
    uint32_t h = hand_open(&d, "D8H8S64", VV_POLICY_NEXT, VV_CORE_CACHED);

    d.app_is_device = d.ordered = true;
    T_OK(drive_put(&d, &put, h, 0, 8 * DRIVE_PAGE));
    T_EQ(put.req.unissued, 0);
    T_CHECK(put.pending && d.core->ordered == &put.req && !d.core->puts);
    d.ordered = false;
    T_ERR(vv_core_lookup(d.core, h, 0, &info), -ENOENT);
    T_ERR(drive_get(&d, &other, h, 0), -ENOENT);
    T_ERR(drive_put(&d, &other, h, 0, DRIVE_PAGE), -EEXIST);
    T_OK(drive_wait(&d, &wait, h, 0, VV_CORE_CACHED));
    T_CHECK(wait.pending && !d.core->waits);
    T_OK(drive_finish(&d, &put));
    T_CHECK(!wait.pending && wait.req.status == 0);
    T_OK(vv_core_lookup(d.core, h, 0, &info));
    hand_get(&d, h, 0);
    hand_close(&d);
}

static void ordered_put_fails(void)
{
    struct drive d;
    struct drive_call put, wait;
    uint32_t h = hand_open(&d, "D8H8S64", VV_POLICY_NEXT, VV_CORE_CACHED);

    d.app_is_device = d.ordered = true;
    T_OK(drive_put(&d, &put, h, 0, 2 * DRIVE_PAGE));
    d.ordered = false;
    T_OK(drive_wait(&d, &wait, h, 0, VV_CORE_CACHED));
    while (put.pending)
        hand_end(&d, VV_ORDER_APP, VV_TIER_APP, 0, 0, -EIO);
    T_EQ(put.req.status, -EIO);
    T_CHECK(!wait.pending);
    T_EQ(wait.req.status, -EIO);
    hand_put(&d, h, 0, 2);
    hand_close(&d);
}

static void ordered_and_discarded(void)
{
    struct drive d;
    struct drive_call put, wait;
    struct vv_core_stats s;
    uint32_t h = hand_open(&d, "D8H8", VV_POLICY_NEXT, VV_CORE_CACHED);

    d.app_is_device = d.ordered = true;
    T_OK(drive_put(&d, &put, h, 0, 2 * DRIVE_PAGE));
    T_OK(drive_wait(&d, &wait, h, 0, VV_CORE_CACHED));
    T_OK(drive_discard(&d, h, 0));
    T_CHECK(!wait.pending);
    T_EQ(wait.req.status, -ENOENT);
    T_ERR(drive_discard(&d, h, 0), -ENOENT);
    vv_core_get_stats(d.core, &s);
    T_EQ(s.tier_used_pages[0], 2); /* the stream still writes to them */
    T_OK(drive_finish(&d, &put));
    vv_core_get_stats(d.core, &s);
    T_EQ(s.tier_used_pages[0], 0);
    hand_close(&d);
}

/* Cancelled half-way it gets no more orders, and ends when those issued have ended. The version may
 * be written again before that. */
static void ordered_and_cancelled(void)
{
    struct drive d;
    struct drive_call put, wait, again;
    uint32_t h = hand_open(&d, "H2S64", VV_POLICY_NEXT, VV_CORE_CACHED);

    d.ordered = true;
    T_OK(drive_put(&d, &put, h, 0, 5 * DRIVE_PAGE));
    T_CHECK(put.req.unissued > 0 && put.req.inflight > 0 && d.core->puts == &put.req);
    T_OK(drive_wait(&d, &wait, h, 0, VV_CORE_CACHED));
    vv_core_cancel(d.core, &put.req, -ETIMEDOUT, d.now_ns);
    T_ERR(drive_discard(&d, h, 0), -ENOENT);
    T_OK(drive_put(&d, &again, h, 0, 3 * DRIVE_PAGE));
    T_CHECK(put.pending && !wait.pending);
    T_EQ(wait.req.status, -ETIMEDOUT);
    T_ERR(drive_finish(&d, &put), -ETIMEDOUT);
    T_OK(drive_finish(&d, &again));
    T_OK(drive_discard(&d, h, 0));
    T_ERR(drive_discard(&d, h, 0), -ENOENT);
    hand_close(&d);
}

/* The history is dropped while a stream still writes and reads; its number is not reused. */
static void ordered_and_closed(void)
{
    struct drive d;
    struct drive_call put, get;
    uint32_t h = hand_open(&d, "D8H8", VV_POLICY_NEXT, VV_CORE_CACHED);

    d.app_is_device = true;
    hand_put(&d, h, 0, 2);
    drive_run(&d);
    d.ordered = true;
    T_OK(drive_put(&d, &put, h, 1, 2 * DRIVE_PAGE));
    T_OK(drive_get(&d, &get, h, 0));
    vv_core_history_drop(d.core, h, d.now_ns);
    T_CHECK(put.pending && get.pending);
    T_CHECK(drive_history(&d, false, 0, VV_CORE_CACHED) != h);
    T_OK(drive_finish(&d, &put));
    T_OK(drive_finish(&d, &get));
    T_EQ(drive_history(&d, false, 0, VV_CORE_CACHED), h);
    hand_close(&d);
}

/* ---- versions become leases ---- */

static uint32_t once_history(struct drive *d, const char *tiers, enum vv_policy policy)
{
    uint32_t h = hand_open(d, tiers, policy, VV_CORE_CACHED);

    (void)h;
    return drive_history(d, true, 0, VV_CORE_CACHED);
}

/* A version that a slower tier has too gives its pages up; it is read from that tier then. */
static void swapped_for_what_is_below(void)
{
    for (unsigned p = 0; p < VV_ARRAY_SIZE(policies); p++) {
        struct drive d;
        struct drive_call put;
        struct drive_lend lend = {.used = false};
        struct vv_core_stats s;
        uint32_t h = hand_open(&d, "H4S16", policies[p], VV_CORE_CACHED);

        T_ERR(drive_swap(&d, NULL, &lend, h, 0), -ENOENT);
        T_OK(drive_put(&d, &put, h, 0, 2 * DRIVE_PAGE));
        while (put.pending)
            hand_end(&d, VV_ORDER_APP, VV_TIER_APP, 0, 0, 0);
        T_ERR(drive_swap(&d, NULL, &lend, h, 0), -EAGAIN); /* the only copy, and being read */
        drive_run(&d);
        T_OK(drive_swap(&d, NULL, &lend, h, 0));
        T_EQ(hand_resident(&d, h, 0, 0), 0);
        T_EQ(hand_resident(&d, h, 0, 1), 2);
        vv_core_get_stats(d.core, &s);
        T_EQ(s.gets, 1);
        T_EQ(s.moved_bytes[VV_HOP_F2H], 0);
        hand_get(&d, h, 0);
        drive_unlend(&d, &lend);
        hand_close(&d);
    }
}

/* A version that a restore consumes needs no other copy, but no transfer may be reading it. */
static void swapped_and_consumed(void)
{
    for (unsigned p = 0; p < VV_ARRAY_SIZE(policies); p++) {
        struct drive d;
        struct drive_lend lend = {.used = false}, in_place = {.used = false};
        struct vv_object_info info;
        struct vv_core_stats s;
        uint32_t h = once_history(&d, "H4", policies[p]);

        hand_put(&d, h, 0, 2);
        T_OK(drive_lend(&d, &in_place, h, 0, 0, 1));
        T_ERR(drive_swap(&d, NULL, &lend, h, 0), -EAGAIN);
        drive_unlend(&d, &in_place);
        T_OK(drive_swap(&d, NULL, &lend, h, 0));
        T_ERR(vv_core_lookup(d.core, h, 0, &info), -ENOENT);
        vv_core_get_stats(d.core, &s);
        T_EQ(s.tier_used_pages[0], 2);
        drive_trim(&d, &lend, 1);
        vv_core_get_stats(d.core, &s);
        T_EQ(s.tier_used_pages[0], 1);
        drive_unlend(&d, &lend);
        vv_core_get_stats(d.core, &s);
        T_EQ(s.tier_used_pages[0], 0);
        hand_close(&d);
    }
}

/* In an exchange, the pages given back count: only the rest must fit the half that may be lent. */
static void swapped_within_half(void)
{
    struct drive d;
    struct drive_call call;
    struct drive_lend old = {.used = false}, lend = {.used = false};
    uint32_t h = once_history(&d, "H4", VV_POLICY_NEXT);

    T_OK(drive_lease(&d, &call, &old, h, 2));
    hand_put(&d, h, 0, 2);
    T_ERR(drive_swap(&d, NULL, &lend, h, 0), -ENOSPC);
    T_CHECK(old.used);
    T_OK(drive_swap(&d, &old, &lend, h, 0));
    T_CHECK(!old.used && lend.used);
    struct drive_lend *parts[] = {&lend};
    T_OK(drive_put_lent(&d, &call, parts, 1, h, 1, 2 * DRIVE_PAGE)); /* and back */
    T_OK(drive_finish(&d, &call));
    T_OK(drive_swap(&d, NULL, &lend, h, 1));
    drive_unlend(&d, &lend);
    hand_close(&d);
}

/* A version that is wanted again stays; the last time it goes. */
static void not_swapped_while_hinted_again(void)
{
    struct drive d;
    struct drive_lend lend = {.used = false};
    uint32_t h = hand_open(&d, "H4S16", VV_POLICY_NEXT, VV_CORE_CACHED);

    T_OK(drive_hint(&d, h, 0));
    T_OK(drive_hint(&d, h, 0));
    hand_put(&d, h, 0, 2);
    drive_run(&d);
    T_ERR(drive_swap(&d, NULL, &lend, h, 0), -EAGAIN);
    hand_get(&d, h, 0);
    T_OK(drive_swap(&d, NULL, &lend, h, 0));
    drive_unlend(&d, &lend);
    hand_close(&d);
}

int main(void)
{
    T_RUN(lent_pages_stay);
    T_RUN(discarded_while_lent);
    T_RUN(a_lease_waits_for_flushes);
    T_RUN(a_lease_spares_what_is_next);
    T_RUN(a_lease_in_vain);
    T_RUN(a_version_of_leases);
    T_RUN(a_lent_put_overtakes);
    T_RUN(ordered_put);
    T_RUN(ordered_put_fails);
    T_RUN(ordered_and_discarded);
    T_RUN(ordered_and_cancelled);
    T_RUN(ordered_and_closed);
    T_RUN(swapped_for_what_is_below);
    T_RUN(swapped_and_consumed);
    T_RUN(swapped_within_half);
    T_RUN(not_swapped_while_hinted_again);
    return t_done();
}
