/* SPDX-License-Identifier: Apache-2.0 */
/* Independent pieces of work on several threads, and pseudo-random numbers. */
#ifndef CLI_COMMON_PARALLEL_H
#define CLI_COMMON_PARALLEL_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

#define SIM_JOBS_MAX 64u

/* Progress of a long calculation, for a display. */
struct sim_progress {
    _Atomic uint64_t done; /* relaxed: for the display */
    uint64_t all;
};

/* Calls fn(arg, i) for every i below nr, on up to `jobs` threads, one of them the caller's. Only fn for i writes
 * the result of i, and all results can be read when this returns. `progress` may be NULL. */
void sim_parallel(unsigned jobs, size_t nr, void (*fn)(void *arg, size_t i), void *arg,
                  struct sim_progress *progress);

/* A Weyl sequence, mixed. Any state is allowed. */
static inline uint64_t sim_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* In [0, n). */
static inline uint64_t sim_random_below(uint64_t *state, uint64_t n)
{
    return (uint64_t)((unsigned __int128)sim_random(state) * n >> 64);
}

/* In [0, 1). */
static inline double sim_random_real(uint64_t *state)
{
    return (double)(sim_random(state) >> 11) * 0x1p-53;
}

#endif
