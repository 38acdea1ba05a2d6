/* SPDX-License-Identifier: Apache-2.0 */
/* A layer that becomes slower than the next one is skipped, tried now and then, and used again. */
#include "policy/reroute.h"

#include "policy/layer_rules.h"
#include "t.h"

#define MIB (UINT64_C(1) << 20)
#define S   UINT64_C(1000000000)

static struct vv_reroute r;

static void known(double own, double next)
{
    r = (struct vv_reroute){0};
    T_CHECK(!vv_reroute_own(&r, MIB, own, own, next, 10 * S));
    vv_reroute_next(&r, MIB, own, next, 10 * S);
}

static void when_slower(void)
{
    known(100, 50);
    T_CHECK(!r.skipped && !vv_reroute_skips(&r, 10 * S));
    known(50, 50);
    T_CHECK(!r.skipped);
    known(41, 50); /* not for a small difference */
    T_CHECK(!r.skipped);
    known(39, 50);
    T_CHECK(r.skipped && r.skips == 1 && vv_reroute_skips(&r, 10 * S));
}

static void not_on_first_impressions(void)
{
    r = (struct vv_reroute){0};
    vv_reroute_next(&r, 100 * MIB, 0, 50, 10 * S);
    T_CHECK(!vv_reroute_own(&r, MIB - 1, 1, 1, 50, 10 * S) && !r.skipped);
    T_CHECK(!vv_reroute_own(&r, MIB, 0, 1, 50, 10 * S) &&
            !r.skipped); /* a failed write does not count */
    T_CHECK(!vv_reroute_own(&r, 1, 1, 1, 50, 10 * S) && r.skipped);
    r = (struct vv_reroute){0};
    T_CHECK(!vv_reroute_own(&r, 100 * MIB, 1, 1, 0, 10 * S) && !r.skipped);
    vv_reroute_next(&r, MIB - 1, 1, 50, 10 * S);
    T_CHECK(!r.skipped);
}

/* One write at a time, at 1, 1, 2, 4, ... 32 s, while it stays slow. */
static void probes(void)
{
    uint64_t now = 10 * S, wait[] = {1, 1, 2, 4, 8, 16, 32, 32, 32};
    known(10, 50);
    for (unsigned i = 0; i < sizeof(wait) / sizeof(wait[0]); i++) {
        T_CHECK(vv_reroute_skips(&r, now + wait[i] * S - 1));
        now += wait[i] * S;
        T_CHECK(!vv_reroute_skips(&r, now));
        vv_reroute_begins(&r);
        T_EQ(r.probes, i + 1);
        T_CHECK(vv_reroute_skips(&r, now)); /* the next write skips the layer */
        vv_reroute_begins(&r);              /* unless there is no room elsewhere */
        T_EQ(r.probes, i + 1);
        T_CHECK(!vv_reroute_own(&r, MIB, i % 2 ? 49 : 0, 10, 50, now));
    }
    T_EQ(r.skips, 1);
    now += 32 * S;
    vv_reroute_begins(&r);
    T_CHECK(vv_reroute_own(&r, MIB, 50, 10, 50, now));
    T_CHECK(!r.skipped && !vv_reroute_skips(&r, now));
    /* Slow again: skipped again, after enough bytes. */
    T_CHECK(!vv_reroute_own(&r, MIB - 1, 10, 10, 50, now) && !r.skipped);
    T_CHECK(!vv_reroute_own(&r, 1, 10, 10, 50, now) && r.skipped);
    T_EQ(r.skips, 2);
    T_CHECK(vv_reroute_skips(&r, now + S - 1) && !vv_reroute_skips(&r, now + S));
}

/* A write that began before the layer was skipped is no measurement. */
static void stragglers(void)
{
    known(10, 50);
    T_CHECK(!vv_reroute_own(&r, MIB, 90, 10, 50, 10 * S) && r.skipped);
    vv_reroute_next(&r, MIB, 10, 50, 10 * S);
    T_CHECK(r.skipped && r.skips == 1);
}

/* The effect: writes go to the layer below, as long as that has room. */
static void places(void)
{
    struct vv_layers_question q = {.layer = {{0, 30e6, 100}, {80000000, 10e6, 100}},
                                   .bytes = 1000000,
                                   .pages = 4,
                                   .farthest_rank = 100};
    T_EQ(vv_layers_place(&q), VV_LAYER_FAST);
    q.skip_fast = true;
    T_EQ(vv_layers_place(&q), VV_LAYER_SLOW);
    q.layer[VV_LAYER_SLOW].free_pages = 3;
    T_EQ(vv_layers_place(&q), VV_LAYER_FAST);
    q.layer[VV_LAYER_SLOW].free_pages = 100;
    q.layer[VV_LAYER_FAST].bytes_per_s = 1; /* a probe goes there at any rate */
    q.skip_fast = false;
    T_EQ(vv_layers_place(&q), VV_LAYER_SLOW);
    q.try_fast = true;
    T_EQ(vv_layers_place(&q), VV_LAYER_FAST);
    T_CHECK(!vv_layers_wants_up(true, false, true) && vv_layers_wants_up(true, false, false));
}

int main(void)
{
    T_RUN(when_slower);
    T_RUN(not_on_first_impressions);
    T_RUN(probes);
    T_RUN(stragglers);
    T_RUN(places);
    return t_done();
}
