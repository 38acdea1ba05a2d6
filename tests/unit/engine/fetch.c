/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at the books of a core, so that they are in the caches, changes nothing, in whatever state
 * it is. */
#include "unit/engine/hand.h"

/* Looks, and finds everything as it was. */
static void look(const struct drive *d)
{
    uint64_t before = vv_core_digest(d->core);

    vv_core_fetch(d->core);
    T_EQ(vv_core_digest(d->core), before);
    T_CHECK(vv_core_check(d->core) == NULL);
}

static void looking_changes_nothing(const char *tiers, enum vv_policy policy)
{
    struct drive d;
    struct drive_call call;
    uint32_t hist = hand_open(&d, tiers, policy, VV_CORE_CACHED);

    look(&d); /* no version was ever seen */
    for (uint64_t v = 8; v-- > 0;)
        T_OK(vv_core_hint(d.core, hist, v, d.now_ns));
    look(&d); /* the next one is not written yet */
    for (uint64_t v = 0; v < 8; v++) {
        T_OK(drive_put(&d, &call, hist, v, 2 * DRIVE_PAGE));
        look(&d); /* orders are out */
        T_OK(drive_finish(&d, &call));
        look(&d);
    }
    for (uint64_t v = 8; v-- > 0;) {
        T_OK(drive_get(&d, &call, hist, v));
        look(&d);
        T_OK(drive_finish(&d, &call));
        look(&d);
    }
    T_OK(vv_core_discard(d.core, hist, 7, d.now_ns));
    look(&d); /* no hint is left, and the newest is gone */
    hand_close(&d);
}

static void test_looking(void)
{
    looking_changes_nothing("D6H40", VV_POLICY_NEXT);
    looking_changes_nothing("D6H40", VV_POLICY_SCORE);
    looking_changes_nothing("H40", VV_POLICY_NEXT);
}

int main(void)
{
    T_RUN(test_looking);
    return t_done();
}
