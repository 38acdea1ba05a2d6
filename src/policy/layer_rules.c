/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/layer_rules.h"

/* A slow layer that was not measured yet counts as this many times slower than the fast one. */
#define UNKNOWN_SLOWER 4

static double rate_of(const struct vv_layers_question *q, enum vv_layer l)
{
    double fast = q->layer[VV_LAYER_FAST].bytes_per_s, slow = q->layer[VV_LAYER_SLOW].bytes_per_s;

    if (l == VV_LAYER_FAST)
        return fast > 0 ? fast : slow * UNKNOWN_SLOWER;
    return slow > 0 ? slow : fast / UNKNOWN_SLOWER;
}

/* Time until the layer will have written it. */
static double done_s(const struct vv_layers_question *q, enum vv_layer l)
{
    return (double)(q->layer[l].queued_bytes + q->bytes) / rate_of(q, l);
}

int vv_layers_place(const struct vv_layers_question *q)
{
    bool fast = q->layer[VV_LAYER_FAST].free_pages >= q->pages;
    bool slow = q->layer[VV_LAYER_SLOW].free_pages >= q->pages;

    if (!fast || !slow)
        return fast ? VV_LAYER_FAST : slow ? VV_LAYER_SLOW : -1;
    if (q->skip_fast || q->try_fast)
        return q->skip_fast ? VV_LAYER_SLOW : VV_LAYER_FAST;
    if (q->layer[VV_LAYER_FAST].free_pages < q->low_pages + q->pages && q->rank >= q->farthest_rank)
        return VV_LAYER_SLOW;
    if (rate_of(q, VV_LAYER_FAST) <= 0)
        return VV_LAYER_FAST; /* neither was measured */
    return done_s(q, VV_LAYER_SLOW) < done_s(q, VV_LAYER_FAST) ? VV_LAYER_SLOW : VV_LAYER_FAST;
}

bool vv_layers_wants_down(uint64_t free_pages, uint64_t low_pages, bool restoring)
{
    return !restoring && free_pages < low_pages;
}

bool vv_layers_wants_up(bool restoring, bool slow_is_read, bool skip_fast)
{
    return restoring && !slow_is_read && !skip_fast;
}
