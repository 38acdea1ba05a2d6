/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <errno.h>
#include <time.h>

uint64_t vv_now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * VV_NS_PER_S + (uint64_t)ts.tv_nsec;
}

void vv_sleep_until_ns(uint64_t deadline_ns)
{
    struct timespec ts = {
        .tv_sec = (time_t)(deadline_ns / VV_NS_PER_S),
        .tv_nsec = (long)(deadline_ns % VV_NS_PER_S),
    };

    /* The deadline is absolute: an interrupted sleep can be continued without drift. */
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
        ;
}

uint64_t vv_deadline_ns(int timeout_ms)
{
    if (timeout_ms < 0)
        return VV_NEVER_NS;
    return vv_now_ns() + (uint64_t)timeout_ms * VV_NS_PER_MS;
}
