/* SPDX-License-Identifier: Apache-2.0 */
/* The expected time of the application's next call, in virtual time. */
#include "engine/runtime/gaps.h"

#include "t.h"

#define US UINT64_C(1000)

/* One call of `took` after a gap; returns the time of its end. */
static uint64_t call(struct vvi_gaps *p, uint64_t now, uint64_t gap, uint64_t took)
{
    vvi_gaps_begin(p, now + gap);
    vvi_gaps_end(p, now + gap + took);
    return now + gap + took;
}

/* Slices are registered between the calls of a program that makes one every 10 ms: none is under way
 * when a call comes, and most of the time is used. */
static void between_calls(void)
{
    const uint64_t slice = 800 * US, rest = 100 * US, gap = 10000 * US;
    struct vvi_gaps p = {0};
    uint64_t now = 1, used = 0, spent = 0;

    for (int i = 0; i < 100; i++) {
        /* The call is late now and then, by less than the tolerance. */
        uint64_t next = now + gap + (uint64_t)(i % 5) * 100 * US, at = now;
        while (at < next) {
            uint64_t until = vvi_gaps_wait(&p, at, slice);
            if (until) {
                T_CHECK(until > at);
                at = VV_MIN(until, next);
                continue;
            }
            at += slice;
            if (i > 2) {
                T_CHECK(at <= next);
                used += slice;
            }
            at += rest;
        }
        if (i > 2)
            spent += next - now;
        now = call(&p, next, 0, 100 * US);
    }
    T_CHECK(used * 10 > spent * 7);
}

/* Before the second call nothing is expected; a wait for a call that does not come is short. */
static void unknown(void)
{
    struct vvi_gaps p = {0};
    uint64_t now = 1000 * US;

    T_EQ(vvi_gaps_wait(&p, now, 500 * US), 0);
    now = call(&p, now, 0, 100 * US);
    T_EQ(vvi_gaps_wait(&p, now, 500 * US), 0);
    now = call(&p, now, 8000 * US, 100 * US);
    T_EQ(vvi_gaps_wait(&p, now, 500 * US), 0);
    T_EQ(vvi_gaps_wait(&p, now + 7500 * US, 500 * US), 0);
    T_EQ(vvi_gaps_wait(&p, now + 7501 * US, 500 * US), now + 9000 * US);
    T_EQ(vvi_gaps_wait(&p, now + 8999 * US, 500 * US), now + 9000 * US);
    T_EQ(vvi_gaps_wait(&p, now + 9000 * US, 500 * US), 0);
    /* A longer gap may have been an exception; a shorter one counts at once. */
    now = call(&p, now, 40000 * US, 100 * US);
    T_CHECK(vvi_gaps_wait(&p, now + 7900 * US, 500 * US) > 0);
    now = call(&p, now, 2000 * US, 100 * US);
    T_CHECK(vvi_gaps_wait(&p, now + 1900 * US, 500 * US) > 0);
}

/* Nothing waits for calls that are so close to one another that nothing fits in between. */
static void too_close(void)
{
    struct vvi_gaps p = {0};
    uint64_t now = 1;

    for (int i = 0; i < 10; i++) {
        now = call(&p, now, 700 * US, 100 * US);
        for (uint64_t at = now; at < now + 800 * US; at += 50 * US)
            T_EQ(vvi_gaps_wait(&p, at, 800 * US), 0);
    }
}

int main(void)
{
    T_RUN(between_calls);
    T_RUN(unknown);
    T_RUN(too_close);
    return t_done();
}
