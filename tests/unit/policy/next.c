/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of `next`, one by one. */
#include "policy/next.h"

#include "t.h"

static uint64_t hinted(uint64_t distance)
{
    return vv_next_rank(VV_USE_HINTED, distance);
}

/* A page with a live hint is nearer than any without; a consumed one is farthest. */
static void order_of_ranks(void)
{
    T_CHECK(hinted(3) < hinted(4));
    T_CHECK(hinted(UINT32_MAX) < vv_next_rank(VV_USE_FIRST, 0));
    T_CHECK(vv_next_rank(VV_USE_FIRST, 2) < vv_next_rank(VV_USE_UNKNOWN, 0));
    T_CHECK(vv_next_rank(VV_USE_UNKNOWN, vv_next_position(9, 10)) <
            vv_next_rank(VV_USE_CONSUMED, 0));
    T_EQ(vv_next_use(hinted(7)), VV_USE_HINTED);
    T_EQ(vv_next_use(vv_next_rank(VV_USE_CONSUMED, 7)), VV_USE_CONSUMED);
}

/* Every object keeps the same share, whatever its size. */
static void positions(void)
{
    T_EQ(vv_next_position(0, 5), 0);
    T_EQ(vv_next_position(2, 4), vv_next_position(50, 100));
    T_CHECK(vv_next_position(1, 4) < vv_next_position(30, 100));
    T_CHECK(vv_next_position(UINT32_MAX - 1, UINT32_MAX) < (UINT64_C(1) << VV_NEXT_POSITION_BITS));
}

static void a_blocked_application_takes_what_may_go(void)
{
    struct vv_next_question q = {
        .rank = hinted(9), .rank_after = UINT64_MAX, .victim = hinted(0), .victim_expected = true};

    q.purpose = VV_FOR_PUT;
    T_CHECK(vv_next_may_evict(&q));
    q.purpose = VV_FOR_DEMAND;
    T_CHECK(vv_next_may_evict(&q));
    /* Prefetches and exchanges take only what they may. */
    q.purpose = VV_FOR_PREFETCH;
    q.victim_in_memory = q.disk_has_time = true;
    T_CHECK(!vv_next_may_evict(&q));
    q.purpose = VV_FOR_DEMOTE;
    q.victim = vv_next_rank(VV_USE_CONSUMED, 0);
    T_CHECK(!vv_next_may_evict(&q));
}

static void a_prefetch_is_careful(void)
{
    struct vv_next_question q = {.purpose = VV_FOR_PREFETCH,
                                 .phase = VV_PHASE_RESTORING,
                                 .rank = hinted(1),
                                 .rank_after = UINT64_MAX,
                                 .victim = hinted(5),
                                 .victim_expected = true};

    /* The victim will be wanted, and only the disk could bring it back, which has no time. */
    T_CHECK(!vv_next_may_evict(&q));
    /* Except for a page that will be wanted again before it. */
    q.rank_after = hinted(6);
    T_CHECK(!vv_next_may_evict(&q));
    q.rank_after = hinted(4);
    T_CHECK(vv_next_may_evict(&q));
    q.rank_after = UINT64_MAX;
    q.disk_has_time = true;
    T_CHECK(vv_next_may_evict(&q));
    q.disk_has_time = false;
    q.victim_in_memory = true;
    T_CHECK(vv_next_may_evict(&q));
    q.victim_in_memory = false;
    q.victim = vv_next_rank(VV_USE_UNKNOWN, 0);
    q.victim_expected = false;
    T_CHECK(vv_next_may_evict(&q));
    q.rank = q.victim; /* pages of equal rank do not replace each other */
    T_CHECK(!vv_next_may_evict(&q));
}

static void a_flush_makes_room_only_when_puts_press(void)
{
    struct vv_next_question q = {.purpose = VV_FOR_FLUSH,
                                 .phase = VV_PHASE_WRITING,
                                 .rank = hinted(2),
                                 .rank_after = UINT64_MAX,
                                 .victim = hinted(6),
                                 .victim_expected = true};

    T_CHECK(!vv_next_may_evict(&q));
    q.headroom_low = true;
    T_CHECK(vv_next_may_evict(&q));
    q.phase = VV_PHASE_WAITING;
    T_CHECK(!vv_next_may_evict(&q));
    q.phase = VV_PHASE_RESTORING;
    T_CHECK(!vv_next_may_evict(&q));
    /* A consumed page goes for any nearer one. */
    q.victim = vv_next_rank(VV_USE_CONSUMED, 0);
    q.victim_expected = false;
    T_CHECK(vv_next_may_evict(&q));
}

/* Between restores a put, or a flush for it, takes no page that the disk would have to bring back
 * before the new version is wanted, unless nothing else would ever make room. */
static void between_restores_a_put_spares_what_comes_back(void)
{
    struct vv_next_question q = {.purpose = VV_FOR_PUT,
                                 .phase = VV_PHASE_WRITING,
                                 .rank = hinted(6),
                                 .rank_after = UINT64_MAX,
                                 .victim = hinted(2),
                                 .victim_expected = true,
                                 .headroom_low = true,
                                 .mixed = true};

    T_CHECK(!vv_next_may_evict(&q));
    q.stands_still = true;
    T_CHECK(vv_next_may_evict(&q));
    q.stands_still = false;
    q.disk_has_time = true;
    T_CHECK(vv_next_may_evict(&q));
    q.disk_has_time = false;
    q.victim_in_memory = true;
    T_CHECK(vv_next_may_evict(&q));
    q.victim_in_memory = false;
    q.victim = hinted(6);
    T_CHECK(vv_next_may_evict(&q));
    q.victim = hinted(2);
    q.purpose = VV_FOR_FLUSH;
    T_CHECK(!vv_next_may_evict(&q));
    q.disk_has_time = true;
    T_CHECK(vv_next_may_evict(&q));
    q.disk_has_time = false;
    q.mixed = false;
    T_CHECK(vv_next_may_evict(&q));
}

static void time_of_the_disk(void)
{
    /* Ten restores, 1 s apart; 9 s, then 11 s of reads. */
    T_CHECK(vv_next_disk_has_time(10, 1000000000, 9000, 1000));
    T_CHECK(!vv_next_disk_has_time(10, 1000000000, 11000, 1000));
    T_CHECK(!vv_next_disk_has_time(10, 1000000000, 1, 0)); /* rate unknown */
    T_CHECK(!vv_next_disk_has_time(0, 0, 0, 1000));
    T_CHECK(vv_next_disk_has_time(UINT32_MAX, UINT32_MAX, UINT64_MAX / 2, UINT64_MAX / 2));
}

/* A version that has to become durable is written beside reads while they leave time for all of it,
 * otherwise now and then. */
static void writes_beside_reads(void)
{
    /* Ten restores, 1 s apart; reads and writes of 9 s, then of 11 s. */
    T_CHECK(vv_next_write_beside_reads(10, 1000000000, 6000, 3000, 1000, 0));
    T_CHECK(!vv_next_write_beside_reads(10, 1000000000, 6000, 5000, 1000, 0));
    T_CHECK(!vv_next_write_beside_reads(10, 1000000000, 6000, 5000, 1000, VV_NEXT_WRITE_TURN - 1));
    T_CHECK(vv_next_write_beside_reads(10, 1000000000, 6000, 5000, 1000, VV_NEXT_WRITE_TURN));
}

/* The disk gets room for the very next version, as much as it reads in one interval. For later
 * versions, and for more, it has to wait, because that would evict others. */
static void idle_disks(void)
{
    /* A restore each second, 1000 bytes a second. */
    T_CHECK(vv_next_disk_idles(0, 999, 1000000000, 1000));
    T_CHECK(!vv_next_disk_idles(0, 1000, 1000000000, 1000));
    T_CHECK(!vv_next_disk_idles(1, 1, 1000000000, 1000));
    T_CHECK(!vv_next_disk_idles(UINT32_MAX, 0, 1000000000, 1000));
    T_CHECK(!vv_next_disk_idles(0, 1, 1000000000, 0)); /* rate unknown */
    T_CHECK(!vv_next_disk_idles(0, 1, 0, 1000));
}

int main(void)
{
    T_RUN(order_of_ranks);
    T_RUN(positions);
    T_RUN(a_blocked_application_takes_what_may_go);
    T_RUN(a_prefetch_is_careful);
    T_RUN(a_flush_makes_room_only_when_puts_press);
    T_RUN(between_restores_a_put_spares_what_comes_back);
    T_RUN(time_of_the_disk);
    T_RUN(writes_beside_reads);
    T_RUN(idle_disks);
    return t_done();
}
