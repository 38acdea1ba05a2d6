/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/common/parallel.h"

#include <pthread.h>

#include "base/thread.h"

struct work {
    void (*fn)(void *arg, size_t i);
    void *arg;
    size_t nr;
    _Atomic size_t next; /* relaxed: it only has to be a different number for each thread */
    struct sim_progress *progress;
};

static void *run(void *arg)
{
    struct work *w = arg;

    for (;;) {
        size_t i = atomic_fetch_add_explicit(&w->next, 1, memory_order_relaxed);

        if (i >= w->nr)
            return NULL;
        w->fn(w->arg, i);
        if (w->progress)
            atomic_fetch_add_explicit(&w->progress->done, 1, memory_order_relaxed);
    }
}

void sim_parallel(unsigned jobs, size_t nr, void (*fn)(void *arg, size_t i), void *arg,
                  struct sim_progress *progress)
{
    struct work w = {.fn = fn, .arg = arg, .nr = nr, .progress = progress};
    pthread_t threads[SIM_JOBS_MAX];
    unsigned started = 0;

    /* Fewer threads than requested are enough. */
    while (started + 1 < jobs && started < SIM_JOBS_MAX &&
           vv_thread_start(&threads[started], run, &w) == 0)
        started++;
    run(&w);
    for (unsigned i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}
