/* SPDX-License-Identifier: Apache-2.0 */
/* Which of two layers takes a write, and when data is moved. */
#include "policy/layer_rules.h"

#include "t.h"

#define MB 1000000u

static struct vv_layers_question q;

static void ask(uint64_t fast_queued, uint64_t slow_queued, int want)
{
    q.layer[VV_LAYER_FAST].queued_bytes = fast_queued;
    q.layer[VV_LAYER_SLOW].queued_bytes = slow_queued;
    T_EQ(vv_layers_place(&q), want);
}

static void plenty(void)
{
    q = (struct vv_layers_question){.layer = {{0, 30 * MB, 1000}, {0, 10 * MB, 1000}},
                                    .bytes = MB,
                                    .pages = 4,
                                    .farthest_rank = 100};
}

/* The layer that will finish the write sooner. */
static void earliest(void)
{
    plenty();
    ask(0, 0, VV_LAYER_FAST);
    ask(2 * MB - 1, 0, VV_LAYER_FAST);
    ask(2 * MB, 0, VV_LAYER_FAST); /* 3 MB at 30 MB/s take as long as 1 MB at 10 MB/s */
    ask(2 * MB + 1, 0, VV_LAYER_SLOW);
    ask(2 * MB + 1, 1, VV_LAYER_FAST);
    ask(20 * MB, 5 * MB, VV_LAYER_SLOW);
    q.layer[VV_LAYER_FAST].bytes_per_s = MB; /* it has become the slower one */
    ask(0, 0, VV_LAYER_SLOW);
    ask(0, 9 * MB, VV_LAYER_FAST);
}

static void unknown_rates(void)
{
    plenty();
    q.layer[VV_LAYER_FAST].bytes_per_s = q.layer[VV_LAYER_SLOW].bytes_per_s = 0;
    ask(100 * MB, 0, VV_LAYER_FAST);
    q.layer[VV_LAYER_FAST].bytes_per_s = 8 * MB; /* the slow one counts as a quarter of that */
    ask(2 * MB, 0, VV_LAYER_FAST);
    ask(4 * MB, 0, VV_LAYER_SLOW);
    q.layer[VV_LAYER_FAST].bytes_per_s = 0;
    q.layer[VV_LAYER_SLOW].bytes_per_s = 2 * MB;
    ask(4 * MB, 0, VV_LAYER_SLOW);
}

static void room(void)
{
    plenty();
    q.layer[VV_LAYER_FAST].free_pages = 3;
    ask(0, 100 * MB, VV_LAYER_SLOW);
    q.layer[VV_LAYER_SLOW].free_pages = 3;
    ask(0, 0, -1);
    q.layer[VV_LAYER_FAST].free_pages = 4;
    ask(100 * MB, 0, VV_LAYER_FAST);
}

/* If the fast layer is short of room, data wanted last does not go through it. */
static void farthest(void)
{
    plenty();
    q.low_pages = 100;
    q.layer[VV_LAYER_FAST].free_pages = 103;
    q.rank = 99;
    ask(0, 0, VV_LAYER_FAST);
    q.rank = 100;
    ask(0, 0, VV_LAYER_SLOW);
    q.layer[VV_LAYER_FAST].free_pages = 104;
    ask(0, 0, VV_LAYER_FAST);
}

static void moves(void)
{
    T_CHECK(vv_layers_wants_down(9, 10, false));
    T_CHECK(!vv_layers_wants_down(10, 10, false));
    T_CHECK(!vv_layers_wants_down(0, 10, true));
    T_CHECK(vv_layers_wants_up(true, false, false));
    T_CHECK(!vv_layers_wants_up(true, true, false));
    T_CHECK(!vv_layers_wants_up(false, false, false));
}

int main(void)
{
    T_RUN(earliest);
    T_RUN(unknown_rates);
    T_RUN(room);
    T_RUN(farthest);
    T_RUN(moves);
    return t_done();
}
