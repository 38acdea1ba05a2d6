/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the runtime that can be looked at alone: segments, generations, order queues, pacing. */
#include "core/clock.h"
#include "engine/runtime_private.h"
#include "t.h"

static void test_segments(void)
{
    static char base[256], app[256];
    struct vv_copy_seg segs[8];

    /* What goes on, on both sides, is one segment. */
    size_t n = vvi_seg_add(segs, 0, base, app, 100);
    n = vvi_seg_add(segs, n, base + 100, app + 100, 50);
    T_EQ(n, 1);
    T_EQ(segs[0].bytes, 150);
    /* A jump on either side is not. */
    n = vvi_seg_add(segs, n, base + 150, app + 151, 10);
    T_EQ(n, 2);
    n = vvi_seg_add(segs, n, base + 161, app + 161, 10);
    T_EQ(n, 3);
}

/* Files of new objects are numbered above all that ever were in the folder, in order; adopted ones
 * keep their number. */
static void test_generations(void)
{
    struct vvi_engine_hist h = {.adopted_max = 7, .first_generation = 20};
    T_EQ(vvi_engine_file_generation(&h, 1), 1);
    T_EQ(vvi_engine_file_generation(&h, 7), 7);
    T_EQ(vvi_engine_file_generation(&h, 8), 20);
    T_EQ(vvi_engine_file_generation(&h, 9), 21);
    h = (struct vvi_engine_hist){.adopted_max = 7, .first_generation = 8};
    T_EQ(vvi_engine_file_generation(&h, 7), 7);
    T_EQ(vvi_engine_file_generation(&h, 8), 8);
    h = (struct vvi_engine_hist){.adopted_max = 0, .first_generation = 1};
    T_EQ(vvi_engine_file_generation(&h, 1), 1);
    T_EQ(vvi_engine_file_generation(&h, 5), 5);
}

static void test_queue(void)
{
    struct vvi_order_queue q = {0};
    struct vv_order o[3] = {0};
    T_CHECK(!vvi_order_pop(&q));
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 3; i++)
            vvi_order_push(&q, &o[i]);
        for (int i = 0; i < 3; i++)
            T_CHECK(vvi_order_pop(&q) == &o[i]);
        T_CHECK(!vvi_order_pop(&q) && !q.tail);
    }
}

/* Copies that follow one another closely end at exact multiples: what a sleep overshoots does not
 * add up. Only the pacer's own books are looked at, not the clock. */
static void test_pacer(void)
{
    struct vvi_pacer p;
    vvi_pacer_init(&p, 1000000000);
    uint64_t start = vv_now_ns() - VV_NS_PER_S;
    vvi_pacer_end(&p, start, 1000);
    T_EQ(p.next_free_ns, start + 1000);
    vvi_pacer_end(&p, start + 60000, 1000); /* a little late */
    T_EQ(p.next_free_ns, start + 2000);
    vvi_pacer_end(&p, start + 100 * VV_NS_PER_MS, 1000); /* after a pause */
    T_EQ(p.next_free_ns, start + 100 * VV_NS_PER_MS + 1000);
    vvi_pacer_end(&p, start, 1000); /* behind another thread's copy */
    T_EQ(p.next_free_ns, start + 100 * VV_NS_PER_MS + 2000);
    vvi_pacer_fini(&p);
    vvi_pacer_init(&p, 0);
    vvi_pacer_end(&p, start, 1000);
    T_EQ(p.next_free_ns, 0);
    vvi_pacer_fini(&p);
}

int main(void)
{
    T_RUN(test_segments);
    T_RUN(test_generations);
    T_RUN(test_queue);
    T_RUN(test_pacer);
    return t_done();
}
