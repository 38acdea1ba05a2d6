/* SPDX-License-Identifier: Apache-2.0 */
/* What one event costs, tracing off and on, beside an empty loop and a reading of the clock. One
 * JSON object. */
#include <stdio.h>
#include <stdlib.h>

#include "core/clock.h"
#include "trace/trace.h"

#define EVENTS 5000000
#define ROUNDS 7

static volatile uint64_t sink;

static void empty_loop(void)
{
    for (uint64_t i = 0; i < EVENTS; i++)
        sink = i;
}

static void clock_loop(void)
{
    for (uint64_t i = 0; i < EVENTS; i++)
        sink = vv_now_ns();
}

static void event_loop(void)
{
    for (uint64_t i = 0; i < EVENTS; i++) {
        sink = i;
        vv_trace(VV_TRACE_COPY_START, 1, i, 2, 4096);
    }
}

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;

    return a < b ? -1 : a > b;
}

static double median_ns(void (*loop)(void))
{
    double ns[ROUNDS];

    for (int i = 0; i < ROUNDS; i++) {
        uint64_t start = vv_now_ns();

        loop();
        ns[i] = (double)(vv_now_ns() - start) / EVENTS;
    }
    qsort(ns, ROUNDS, sizeof(ns[0]), by_value);
    return ns[ROUNDS / 2];
}

int main(void)
{
    double empty = median_ns(empty_loop), clock = median_ns(clock_loop), off, on;

    vv_trace_stop();
    off = median_ns(event_loop);
    vv_trace_start(0);
    on = median_ns(event_loop);
    printf("{\"events\": %d, \"loop_ns\": %.2f, \"clock_ns\": %.2f, \"off_ns\": %.2f, \"on_ns\": "
           "%.2f}\n",
           EVENTS, empty, clock, off - empty, on - empty);
    return 0;
}
