/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of a daemon's counters, so that `status` can report the last minute and the last hour as well as the
 * whole life. A window is the difference between now and the sample at its start. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/lock.h"
#include "cli/cached.h"

#define STEP_NS (5 * VV_NS_PER_S)
#define SAMPLES (60 * 60 / 5 + 1)

struct cached_past {
    struct vv_mutex lock;
    /* Synchronization: lock. A ring; the oldest is overwritten. */
    struct cached_sample samples[SAMPLES];
    size_t nr;
};

struct cached_past *cached_past_new(void)
{
    struct cached_past *p = calloc(1, sizeof(*p));

    if (p)
        vv_mutex_init(&p->lock, "past", VV_RANK_STORE);
    return p;
}

void cached_past_free(struct cached_past *p)
{
    if (!p)
        return;
    vv_mutex_fini(&p->lock);
    free(p);
}

uint64_t cached_left(const struct vv_node_counters *c)
{
    return c->passed_fenced + c->passed_leaving + c->passed_redirect + c->passed_large +
           c->passed_full + c->passed_behind + c->passed_late + c->passed_changing +
           c->passed_error;
}

struct cached_sample cached_sample(const struct vv_node_status *s, uint64_t now_ns)
{
    const struct vv_node_counters *c = &s->counters;

    return (struct cached_sample){.at_ns = now_ns,
                                  .asked = c->opens + cached_left(c),
                                  .hits = c->local + c->memory,
                                  .remote = c->remote,
                                  .left = cached_left(c),
                                  .remote_bytes = c->remote_bytes,
                                  .shared_bytes = s->owner.fetched_bytes};
}

void cached_past_add(struct cached_past *p, const struct cached_sample *now)
{
    vv_mutex_lock(&p->lock);
    if (p->nr == 0 || now->at_ns - p->samples[(p->nr - 1) % SAMPLES].at_ns >= STEP_NS)
        p->samples[p->nr++ % SAMPLES] = *now;
    vv_mutex_unlock(&p->lock);
}

struct cached_sample cached_past_over(struct cached_past *p, const struct cached_sample *now,
                                      uint64_t window_ns)
{
    struct cached_sample since = {0}, d = *now;

    vv_mutex_lock(&p->lock);
    /* The latest sample that is as old as the window, or else the oldest. */
    for (size_t k = 1; k <= VV_MIN(p->nr, (size_t)SAMPLES); k++) {
        since = p->samples[(p->nr - k) % SAMPLES];
        if (now->at_ns - since.at_ns >= window_ns)
            break;
    }
    vv_mutex_unlock(&p->lock);
    d.at_ns = since.at_ns ? now->at_ns - since.at_ns : 0;
    d.asked -= since.asked;
    d.hits -= since.hits;
    d.remote -= since.remote;
    d.left -= since.left;
    d.remote_bytes -= since.remote_bytes;
    d.shared_bytes -= since.shared_bytes;
    return d;
}
