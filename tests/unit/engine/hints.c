/* SPDX-License-Identifier: Apache-2.0 */
/* The restore order: hints given early, cleared, not followed, given twice, of versions never
 * written; predictions. */
#include "unit/engine/hand.h"

static struct drive d;

/* The version that the disk reads next; 0: none. */
static uint64_t reads_next(void)
{
    for (unsigned i = 0; i < d.norders; i++)
        if (d.order[i]->kind == VV_ORDER_COPY && d.order[i]->hop == VV_HOP_F2H)
            return d.order[i]->version;
    return 0;
}

static void end_read(uint64_t version)
{
    T_EQ(reads_next(), version);
    hand_end(&d, VV_ORDER_COPY, 1, 0, version, 0);
}

/* n versions of one page that are on disk only. */
static uint32_t open_with(const char *tiers, unsigned n)
{
    uint32_t h = hand_open(&d, tiers, VV_POLICY_NEXT, VV_CORE_DURABLE);

    for (uint64_t v = 1; v <= n; v++)
        T_OK(drive_adopt(&d, h, v, v, DRIVE_PAGE));
    return h;
}

static void before_the_version_exists(void)
{
    uint32_t h = hand_open(&d, "H2F", VV_POLICY_NEXT, VV_CORE_DURABLE);
    struct vv_object_info info;

    T_OK(drive_hint(&d, h, 1));
    T_OK(drive_hint(&d, h, 2));
    T_EQ(d.norders, 0);
    T_ERR(vv_core_lookup(d.core, h, 1, &info), -ENOENT);
    T_EQ(vvi_hist(d.core, h)->unwritten, 2);
    hand_put(&d, h, 2, 1);
    T_EQ(vvi_hist(d.core, h)->unwritten, 1);
    T_EQ(vvi_hist(d.core, h)->ready, 1);
    /* The hint became live when the version was written: prefetching claims it where it is. */
    drive_start(&d, h);
    T_EQ(hand_state(&d, h, 2, 0), VV_COPY_READ_COMPLETE);
    T_EQ(hand_object(&d, h, 2)->hint_first - vvi_hist(d.core, h)->head, 1);
    hand_get(&d, h, 2); /* overtakes the hint of 1 */
    T_CHECK(hand_object(&d, h, 1));
    drive_hint_clear(&d, h); /* no record of 1 remains */
    T_CHECK(!hand_object(&d, h, 1));
    hand_close(&d);
}

static void cleared(void)
{
    uint32_t h = open_with("H2F", 2);

    T_OK(drive_hint(&d, h, 1));
    T_OK(drive_hint(&d, h, 2));
    T_OK(drive_hint(&d, h, 7));
    drive_hint_clear(&d, h);
    drive_start(&d, h);
    T_EQ(d.norders, 0);
    T_CHECK(!hand_object(&d, h, 7));
    T_EQ(vvi_hist(d.core, h)->ready, 0);
    T_OK(drive_hint(&d, h, 2));
    end_read(2);
    hand_close(&d);
}

/* A restore out of turn leaves the hints before it alone. */
static void out_of_turn(void)
{
    uint32_t h = open_with("H8F", 6);
    struct drive_call call;

    for (uint64_t v = 1; v <= 6; v++)
        T_OK(drive_hint(&d, h, v));
    T_OK(drive_get(&d, &call, h, 5));
    end_read(5);
    end_read(1);
    end_read(2);
    T_OK(drive_finish(&d, &call));
    T_EQ(hand_object(&d, h, 1)->hint_first - vvi_hist(d.core, h)->head, 0);
    hand_get(&d, h, 1);
    hand_get(&d, h, 2);
    drive_run(&d);
    T_EQ(hand_resident(&d, h, 3, 0), 1);
    T_EQ(vvi_hist(d.core, h)->npassed, 0);
    hand_close(&d);
}

/* Hints that three restores have overtaken are passed over, and fetched after the live ones. */
static void deviated_from(void)
{
    uint32_t h = open_with("H8F", 7);
    struct drive_call call;

    for (uint64_t v = 1; v <= 7; v++)
        T_OK(drive_hint(&d, h, v));
    hand_get(&d, h, 4);
    hand_get(&d, h, 3);
    T_CHECK(!hand_object(&d, h, 1)->passed);
    T_OK(drive_get(&d, &call, h, 6));
    T_CHECK(hand_object(&d, h, 1)->passed && hand_object(&d, h, 2)->passed);
    T_CHECK(!hand_object(&d, h, 1)->hint_first);
    T_EQ(vvi_hint_at(vvi_hist(d.core, h), vvi_hist(d.core, h)->head)->version, 5);
    T_EQ(vvi_hist(d.core, h)->ready, 2);
    drive_run(&d);
    T_OK(drive_finish(&d, &call));
    hand_get(&d, h, 1); /* a passed one may be restored after all */
    T_CHECK(!hand_object(&d, h, 1)->passed);
    hand_close(&d);
}

/* Clearing also forgets versions that were passed over: they are not read any more, and their list
 * does not grow with the number of orders that were given and cleared. */
static void cleared_again_and_again(void)
{
    static const uint64_t order[] = {3, 5, 2, 4}; /* no pattern */
    uint32_t h = open_with("H2F", 6);

    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < 4; i++)
            T_OK(drive_hint(&d, h, order[i]));
        for (int i = 1; i < 4; i++)
            hand_get(&d, h, order[i]); /* the first is passed over */
        T_EQ(vvi_hist(d.core, h)->npassed, 1);
        hand_get(&d, h, order[0]); /* restored after all */
        drive_run(&d);
        T_EQ(vvi_hist(d.core, h)->passed_at, 1);
        drive_hint_clear(&d, h);
        T_EQ(vvi_hist(d.core, h)->npassed, 0);
        T_EQ(vvi_hist(d.core, h)->passed_at, 0);
    }
    T_EQ(reads_next(), 0);
    hand_close(&d);
}

/* A version hinted twice has the distance of its first live hint; each restore takes one. */
static void given_twice(void)
{
    uint32_t h = open_with("H8F", 2);
    struct vv_object *obj;
    struct hist *hist;

    T_OK(drive_hint(&d, h, 1));
    T_OK(drive_hint(&d, h, 2));
    T_OK(drive_hint(&d, h, 1));
    obj = hand_object(&d, h, 1);
    hist = vvi_hist(d.core, h);
    T_EQ(obj->hint_first - hist->head, 0);
    hand_get(&d, h, 1);
    T_EQ(obj->hint_first - hist->head, 1);
    T_CHECK(!obj->consumed); /* wanted again */
    hand_get(&d, h, 2);
    T_EQ(obj->hint_first - hist->head, 0);
    hand_get(&d, h, 1);
    T_EQ(hist->ngiven, 0);
    hand_close(&d);
}

static void never_written(void)
{
    static const uint64_t order[] = {8, 2, 9, 1, 4, 3};
    uint32_t h = open_with("H8F", 4);

    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++)
        T_OK(drive_hint(&d, h, order[i]));
    drive_start(&d, h);
    end_read(2);
    end_read(1);
    end_read(4);
    end_read(3);
    T_EQ(d.norders, 0);
    hand_get(&d, h, 2);
    hand_get(&d, h, 1);
    T_CHECK(hand_object(&d, h, 8) && hand_object(&d, h, 9));
    hand_get(&d, h, 4);
    hand_get(&d, h, 3);
    T_CHECK(!hand_object(&d, h, 8) && !hand_object(&d, h, 9));
    hand_close(&d);
}

/* A discarded version keeps its hints, because it may be written again. */
static void discarded_and_written_again(void)
{
    uint32_t h = open_with("H8F", 2);

    T_OK(drive_hint(&d, h, 1));
    T_OK(drive_hint(&d, h, 2));
    T_OK(drive_discard(&d, h, 1));
    T_EQ(vvi_hist(d.core, h)->unwritten, 1);
    drive_run(&d);
    hand_put(&d, h, 1, 1);
    T_EQ(hand_object(&d, h, 1)->hint_first, vvi_hist(d.core, h)->head);
    T_EQ(vvi_hist(d.core, h)->unwritten, 0);
    hand_get(&d, h, 1);
    hand_close(&d);
}

/* The distance of a restore: hinted versions after it that are complete on the fastest tier, up to
 * the first that is not. */
static void distance(void)
{
    uint32_t h = open_with("H8F", 4);
    struct drive_call call;

    for (uint64_t v = 1; v <= 4; v++)
        T_OK(drive_hint(&d, h, v));
    drive_start(&d, h);
    end_read(1);
    end_read(2);
    end_read(3);
    T_OK(drive_get(&d, &call, h, 1));
    T_EQ(call.req.distance, 2);
    T_OK(drive_finish(&d, &call));
    T_OK(drive_get(&d, &call, h, 2));
    T_EQ(call.req.distance, 2); /* 4 has come in between */
    hand_close(&d);
}

/* The nearest version is fetched first, even if its hint became live late; and never more than
 * there is room for, the transit page being the last. */
static void nearest_first(void)
{
    uint32_t h = open_with("H2F", 4);

    for (uint64_t v = 4; v >= 1; v--)
        T_OK(drive_hint(&d, h, v));
    drive_start(&d, h);
    end_read(4);
    end_read(3);
    end_read(2);
    T_EQ(d.norders, 0); /* full of versions wanted earlier */
    hand_get(&d, h, 4);
    end_read(1);
    hand_close(&d);
}

/* Without hints: one request for the first version predicts the rest, a miss drops the
 * predictions. */
static void predictions(void)
{
    uint32_t h = open_with("H8F", 6);
    struct drive_call call;

    T_OK(drive_get(&d, &call, h, 1));
    T_CHECK(vvi_hist(d.core, h)->npredicted > 0);
    T_EQ(vvi_hist(d.core, h)->tail - vvi_hist(d.core, h)->head, 5);
    end_read(1);
    T_OK(drive_finish(&d, &call));
    drive_run(&d);
    T_EQ(hand_resident(&d, h, 6, 0), 1);
    hand_get(&d, h, 2);
    T_CHECK(vvi_hist(d.core, h)->npredicted > 0);
    hand_get(&d, h, 4);
    T_EQ(vvi_hist(d.core, h)->npredicted, 0);
    T_EQ(vvi_hist(d.core, h)->tail, vvi_hist(d.core, h)->head);
    hand_close(&d);
    /* If a program restores a version several times, it is expected again until another one is
     * restored. */
    h = open_with("H8F", 6);
    hand_get(&d, h, 6);
    T_CHECK(hand_object(&d, h, 6)->consumed);
    hand_get(&d, h, 6);
    T_EQ(hand_object(&d, h, 6)->hint_first, vvi_hist(d.core, h)->head);
    hand_get(&d, h, 5);
    T_CHECK(hand_object(&d, h, 6)->consumed && !hand_object(&d, h, 5)->consumed);
    T_EQ(vvi_hist(d.core, h)->npredicted, 1 + 4);
    hand_close(&d);
}

/* A version that is written while restores go backward is the next to be restored. */
static void written_within_a_pattern(void)
{
    uint32_t h = hand_open(&d, "H8F", VV_POLICY_NEXT, VV_CORE_DURABLE);

    for (uint64_t v = 1; v <= 4; v++)
        hand_put(&d, h, v, 1);
    hand_get(&d, h, 4);
    T_OK(drive_discard(&d, h, 4));
    hand_put(&d, h, 5, 1);
    T_EQ(vvi_hint_at(vvi_hist(d.core, h), vvi_hist(d.core, h)->head)->version, 5);
    T_EQ(vvi_hist(d.core, h)->npredicted, 4);
    hand_get(&d, h, 5);
    T_OK(drive_discard(&d, h, 5));
    hand_get(&d, h, 3);
    T_EQ(vvi_hist(d.core, h)->npredicted, 2);
    hand_close(&d);
}

/* The detector's predictions continue where the hints end. */
static void predictions_behind_hints(void)
{
    uint32_t h = open_with("H8F", 8);
    const struct hist *hist;

    for (uint64_t v = 8; v >= 6; v--)
        T_OK(drive_hint(&d, h, v));
    hand_get(&d, h, 8);
    hist = vvi_hist(d.core, h);
    T_EQ(hist->ngiven, 2);
    T_EQ(hist->npredicted, 5);
    T_OK(drive_hint(&d, h, 5)); /* as predicted */
    T_EQ(hist->ngiven, 3);
    T_EQ(hist->npredicted, 4);
    T_OK(drive_hint(&d, h, 1)); /* not as predicted */
    T_EQ(hist->ngiven, 4);
    T_EQ(hist->npredicted, 0);
    hand_close(&d);
    /* A hint just before each restore adds nothing to the pattern. */
    h = open_with("H8F", 8);
    for (uint64_t v = 8; v >= 1; v--) {
        T_OK(drive_hint(&d, h, v));
        hand_get(&d, h, v);
        T_EQ(vvi_hist(d.core, h)->npredicted, v - 1);
    }
    hand_close(&d);
}

/* Hints that are less accurate than the detector are replaced, and count again when it was
 * wrong. */
static void hints_that_lack_versions(void)
{
    uint32_t h = open_with("H16F", 16);
    const struct hist *hist;

    for (uint64_t v = 16; v > 0; v -= 2)
        T_OK(drive_hint(&d, h, v));
    hist = vvi_hist(d.core, h);
    for (uint64_t v = 16; v > 12; v--)
        hand_get(&d, h, v);
    hist = vvi_hist(d.core, h);
    T_EQ(hist->ngiven, 0);
    T_EQ(hist->npredicted, 12);
    T_OK(drive_hint(&d, h, 3));
    T_EQ(hist->ngiven, 0);
    hand_get(&d, h, 5);
    T_EQ(hist->npredicted, 0);
    T_OK(drive_hint(&d, h, 3));
    T_EQ(hist->ngiven, 1);
    hand_close(&d);
}

/* Hints of versions that are never restored lose their share of the caches after a while. */
static void wrong_hints(void)
{
    static const uint64_t order[WRONG_MOST] = {13, 10, 16, 11, 9, 14, 12, 15};
    uint32_t h = open_with("H16F", 16);
    const struct hist *hist;

    for (uint64_t v = 1; v <= 8; v++)
        T_OK(drive_hint(&d, h, v));
    for (int i = 0; i < WRONG_MOST; i++) {
        hist = vvi_hist(d.core, h);
        T_EQ(hist->ngiven, 8);
        hand_get(&d, h, order[i]);
    }
    hist = vvi_hist(d.core, h);
    T_EQ(hist->ngiven, 0);
    T_EQ(hist->npassed, 8);
    hand_close(&d);
}

/* Nothing is fetched before the first restore or the start. */
static void begins_at_a_restore_or_start(void)
{
    uint32_t h = open_with("H8F", 3);

    T_OK(drive_hint(&d, h, 2));
    T_EQ(d.norders, 0);
    drive_start(&d, h);
    T_EQ(reads_next(), 2);
    hand_close(&d);
    h = open_with("H8F", 3);
    T_OK(drive_hint(&d, h, 1));
    T_OK(drive_hint(&d, h, 3));
    hand_get(&d, h, 1);
    T_EQ(reads_next(), 3);
    hand_close(&d);
}

/* Versions of a declared order are hinted as they are written, and their hints are removed with
 * them. */
static void declared(void)
{
    for (int lifo = 0; lifo < 2; lifo++) {
        struct vv_core_hist_cfg cfg = {.order = lifo ? VV_RESTORE_LIFO : VV_RESTORE_FIFO};
        hand_open(&d, "H3S32", VV_POLICY_NEXT, VV_CORE_CACHED);
        uint32_t h = drive_history_with(&d, &cfg);
        const struct hist *hist;

        for (uint64_t v = 1; v <= 6; v++)
            hand_put(&d, h, v, 1);
        drive_run(&d);
        hist = vvi_hist(d.core, h);
        T_EQ(hist->tail - hist->head, 6);
        for (uint64_t v = 1; v <= 6; v++) {
            uint64_t distance = lifo ? 6 - v : v - 1;
            T_EQ(hand_object(&d, h, v)->hint_first - hist->head, distance);
        }
        /* Last in, first out: the versions written last are also wanted first, so memory holds them.
         * First in, first out: memory may hold the ones or the others. */
        if (lifo)
            for (uint64_t v = 4; v <= 6; v++)
                T_EQ(hand_resident(&d, h, v, 0), 1);
        T_OK(drive_discard(&d, h, lifo ? 6 : 1));
        hist = vvi_hist(d.core, h);
        T_EQ(hist->tail - hist->head, 5);
        hand_put(&d, h, lifo ? 6 : 1, 1); /* written again, it is the newest */
        T_EQ(hand_object(&d, h, lifo ? 6 : 1)->hint_first, lifo ? hist->head : hist->tail - 1);
        for (uint64_t i = 0; i < 6; i++) {
            uint64_t v = lifo ? 6 - i : i < 5 ? 2 + i : 1;
            T_EQ(vvi_hint_at(hist, hist->head)->version, v);
            hand_get(&d, h, v);
            drive_run(&d);
        }
        T_EQ(hist->tail, hist->head);
        hand_put(&d, h, 9, 1);
        T_EQ(hist->tail - hist->head, 1);
        hand_close(&d);
    }
}

/* The number of hints examined while a version without a hint is written and discarded again. */
static uint64_t looked_at(uint32_t h)
{
    struct vv_core_stats before, after;

    vv_core_get_stats(d.core, &before);
    hand_put(&d, h, 1000000, 1);
    drive_run(&d);
    T_OK(drive_discard(&d, h, 1000000));
    drive_run(&d);
    vv_core_get_stats(d.core, &after);
    return after.hints_looked_at - before.hints_looked_at;
}

/* Hints that no restore removes cost nothing, however many there are: of versions that are never
 * written, or that are complete and behind one that is never written. */
static void many_that_stay(void)
{
    enum { HINTS = 200, FEW = 16 };

    for (int written = 0; written < 2; written++) {
        uint32_t h = hand_open(&d, "H250F", VV_POLICY_NEXT, VV_CORE_DURABLE), other;

        other = drive_history(&d, false, 0, VV_CORE_DURABLE);
        d.core->cfg.check = false; /* it counts everything after every call */
        for (uint64_t v = 1; v <= HINTS; v++)
            T_OK(drive_hint(&d, h, v));
        for (uint64_t v = written ? 2 : HINTS; v <= HINTS; v++)
            hand_put(&d, h, v, 1);
        drive_run(&d);
        drive_start(&d, h);
        drive_run(&d);
        d.core->cfg.check = true;
        T_CHECK(looked_at(h) <= FEW);
        T_CHECK(looked_at(other) <= FEW);
        /* Closed hints are opened again, by the first version, which is written after all. */
        hand_put(&d, h, 1, 1);
        drive_run(&d);
        T_EQ(hand_state(&d, h, 1, 0), VV_COPY_READ_COMPLETE);
        T_EQ(vvi_hint_distance_ready(d.core, h), written ? HINTS : 1);
        T_EQ(vvi_hint_distance_ready(d.core, h), written ? HINTS : 1);
        hand_close(&d);
    }
}

/* Versions leave memory and return, behind many that are complete. */
static void opened_again(void)
{
    enum { N = 200 };
    uint32_t h = hand_open(&d, "H220F", VV_POLICY_NEXT, VV_CORE_DURABLE);
    struct vv_core_stats before, after;
    struct drive_call call;

    for (uint64_t v = 1; v <= N; v++) {
        T_OK(drive_hint(&d, h, v));
        hand_put(&d, h, v, 1);
    }
    drive_run(&d);
    drive_start(&d, h);
    T_EQ(vvi_hint_distance_ready(d.core, h), N);
    vv_core_get_stats(d.core, &before);
    /* A large one takes the pages of those wanted last; when it is gone, they are read again. */
    T_OK(drive_put(&d, &call, h, 1000, 60 * (uint64_t)DRIVE_PAGE));
    T_OK(drive_finish(&d, &call));
    drive_run(&d);
    T_OK(drive_discard(&d, h, 1000));
    drive_run(&d);
    T_EQ(vvi_hint_distance_ready(d.core, h), N);
    vv_core_get_stats(d.core, &after);
    T_CHECK(after.evicted_pages > before.evicted_pages);
    T_CHECK(after.hints_looked_at - before.hints_looked_at < 20 * N);
    hand_close(&d);
}

int main(void)
{
    T_RUN(before_the_version_exists);
    T_RUN(cleared);
    T_RUN(out_of_turn);
    T_RUN(deviated_from);
    T_RUN(cleared_again_and_again);
    T_RUN(given_twice);
    T_RUN(never_written);
    T_RUN(discarded_and_written_again);
    T_RUN(distance);
    T_RUN(nearest_first);
    T_RUN(predictions);
    T_RUN(written_within_a_pattern);
    T_RUN(predictions_behind_hints);
    T_RUN(hints_that_lack_versions);
    T_RUN(wrong_hints);
    T_RUN(begins_at_a_restore_or_start);
    T_RUN(declared);
    T_RUN(many_that_stay);
    T_RUN(opened_again);
    return t_done();
}
