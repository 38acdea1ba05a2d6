/* SPDX-License-Identifier: Apache-2.0 */
/* The judgement of hints and predictions over many restores: what is forgotten, and when. */
#include "unit/engine/hand.h"

static struct drive d;

/* n versions of one page, on disk only. */
static uint32_t open_with(const char *tiers, unsigned n)
{
    uint32_t h = hand_open(&d, tiers, VV_POLICY_NEXT, VV_CORE_DURABLE);

    for (uint64_t v = 1; v <= n; v++)
        T_OK(drive_adopt(&d, h, v, v, DRIVE_PAGE));
    return h;
}

/* A hint confirms the first prediction and no other, also after the queue has wrapped in its
 * ring. */
static void confirms_the_first_only(void)
{
    uint32_t h = hand_open(&d, "H200F", VV_POLICY_NEXT, VV_CORE_DURABLE);
    const struct hist *hist;
    uint64_t v;

    for (v = 1; v <= 6; v++)
        hand_put(&d, h, v, 1);
    for (uint64_t g = 1; g <= 62; g++) {
        hand_get(&d, h, g);
        hand_put(&d, h, v++, 1);
    }
    hist = vvi_hist(d.core, h);
    T_CHECK(hist->npredicted > 3);
    T_OK(drive_hint(&d, h, vvi_hint_at(hist, hist->head + 3)->version));
    T_EQ(hist->ngiven, 1);
    T_EQ(hist->npredicted, 0);
    hand_close(&d);
}

/* Hints that are right half of the time stay. */
static void half_right(void)
{
    static const uint64_t other[] = {40, 55, 33, 61, 47, 38, 59, 44, 50, 36, 63, 41};
    static const uint64_t hinted[] = {5, 20, 9, 27, 3, 17, 24, 12, 30, 7, 15, 22};
    uint32_t h = open_with("H64F", 64);

    for (int i = 0; i < 12; i++) {
        T_OK(drive_hint(&d, h, hinted[i]));
        hand_get(&d, h, other[i]);
        hand_get(&d, h, hinted[i]);
    }
    T_EQ(vvi_hist(d.core, h)->npassed, 0);
    hand_close(&d);
}

/* Hints in the reverse order are passed over as soon as a second restore goes the other way. */
static void reversed(void)
{
    uint32_t h = open_with("H64F", 16);
    const struct hist *hist;

    for (uint64_t v = 1; v <= 16; v++)
        T_OK(drive_hint(&d, h, v));
    hand_get(&d, h, 16);
    hist = vvi_hist(d.core, h);
    T_CHECK(hist->ngiven > 0);
    hand_get(&d, h, 15);
    T_EQ(hist->ngiven, 0);
    T_CHECK(hist->npredicted > 0);
    hand_close(&d);
}

/* Wrong hints of one shot do not count against those of the next. */
static void next_shot(void)
{
    static const uint64_t order[] = {20, 29, 18, 26, 31, 19, 24};
    uint32_t h = open_with("H64F", 16);
    const struct hist *hist;

    for (uint64_t v = 16; v > 0; v -= 2)
        T_OK(drive_hint(&d, h, v));
    for (uint64_t v = 16; v >= 1; v--)
        hand_get(&d, h, v);
    for (uint64_t v = 17; v <= 32; v++)
        hand_put(&d, h, v, 1);
    for (int i = 0; i < 7; i++)
        T_OK(drive_hint(&d, h, order[i]));
    hand_get(&d, h, 22); /* neither hinted nor predicted */
    hist = vvi_hist(d.core, h);
    T_EQ(hist->ngiven, 7);
    hand_close(&d);
}

/* A version that was read with `keep` is not consumed, whether it was expected or not. */
static void kept(void)
{
    uint32_t h = open_with("H8F", 6);

    for (int i = 0; i < 2; i++) {
        struct drive_call call = {0};
        T_OK(drive_get(&d, &call, h, 1));
        call.req.keep = true;
        T_OK(drive_finish(&d, &call));
    }
    hand_get(&d, h, 2);
    T_CHECK(!hand_object(&d, h, 1)->consumed);
    hand_close(&d);
}

/* A version expected a second time does not hide the prediction behind it. */
static void predicted_behind_a_repeat(void)
{
    uint32_t h = hand_open(&d, "H32F", VV_POLICY_NEXT, VV_CORE_DURABLE);

    for (uint64_t v = 1; v <= 8; v++)
        hand_put(&d, h, v, 1);
    hand_get(&d, h, 8);
    hand_get(&d, h, 8);
    hand_get(&d, h, 7);
    hand_put(&d, h, 9, 1);
    hand_get(&d, h, 9);
    hand_get(&d, h, 6);
    T_CHECK(vvi_hist(d.core, h)->npredicted >= 5);
    hand_close(&d);
}

/* The queue of a declared order has no empty end: its ring does not grow with past versions. */
static void ring_stays_small(void)
{
    struct vv_core_hist_cfg cfg = {.order = VV_RESTORE_LIFO};
    uint32_t h;

    hand_open(&d, "H3S300", VV_POLICY_NEXT, VV_CORE_CACHED);
    h = drive_history_with(&d, &cfg);
    hand_put(&d, h, 1, 1);
    for (uint64_t v = 2; v <= 200; v++) {
        hand_put(&d, h, v, 1);
        hand_get(&d, h, v - 1);
        drive_run(&d);
        T_OK(drive_discard(&d, h, v - 1));
        drive_run(&d);
    }
    T_EQ(vvi_hist(d.core, h)->tail - vvi_hist(d.core, h)->head, 1);
    T_EQ(vvi_hist(d.core, h)->ring_size, 64);
    hand_close(&d);
}

/* Restores before a hint was given do not count as overtaking it. */
static void not_overtaken_before(void)
{
    static const uint64_t first[] = {3, 17, 9, 22, 5, 28}, then[] = {12, 31, 14, 36};
    uint32_t h = open_with("H64F", 40);

    for (int i = 0; i < 6; i++)
        T_OK(drive_hint(&d, h, first[i]));
    hand_get(&d, h, 28);
    hand_get(&d, h, 5);
    for (int i = 0; i < 4; i++)
        T_OK(drive_hint(&d, h, then[i]));
    hand_get(&d, h, 14);
    hand_get(&d, h, 36);
    T_CHECK(!hand_object(&d, h, 12)->passed);
    hand_close(&d);
}

int main(void)
{
    T_RUN(confirms_the_first_only);
    T_RUN(half_right);
    T_RUN(reversed);
    T_RUN(next_shot);
    T_RUN(kept);
    T_RUN(predicted_behind_a_repeat);
    T_RUN(ring_stays_small);
    T_RUN(not_overtaken_before);
    return t_done();
}
