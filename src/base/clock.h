/* SPDX-License-Identifier: Apache-2.0 */
/* The monotonic clock, in nanoseconds since an arbitrary start. */
#ifndef VV_BASE_CLOCK_H
#define VV_BASE_CLOCK_H

#include <stdint.h>

#define VV_NS_PER_US UINT64_C(1000)
#define VV_NS_PER_MS UINT64_C(1000000)
#define VV_NS_PER_S  UINT64_C(1000000000)

/* A deadline that never comes. */
#define VV_NEVER_NS UINT64_MAX

uint64_t vv_now_ns(void);

/* Returns at once if the time has passed. Signals do not cut the sleep short. */
void vv_sleep_until_ns(uint64_t deadline_ns);

/* The deadline of a call that may take timeout_ms; negative: without limit. */
uint64_t vv_deadline_ns(int timeout_ms);

#endif
