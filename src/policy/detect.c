/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/detect.h"

static int64_t stride_of_first(uint64_t ordinal, uint64_t first, uint64_t last)
{
    if (first == last)
        return 0;
    if (ordinal == first)
        return 1;
    return ordinal == last ? -1 : 0;
}

enum vv_detect_verdict vv_detect_restore(struct vv_detect *d, uint64_t ordinal, uint64_t first,
                                         uint64_t last)
{
    int64_t step = d->any ? (int64_t)(ordinal - d->last) : 0, before = d->step;
    bool was_any = d->any, broken;

    if (was_any && step == 0)
        return VV_DETECT_SAME;
    d->any = true;
    d->last = ordinal;
    d->step = step;
    if (was_any && d->stride != 0 && step == d->stride)
        return VV_DETECT_HELD;
    broken = d->stride != 0;
    d->stride = !broken && was_any && step == before ? step : 0;
    if (d->stride == 0)
        d->stride = stride_of_first(ordinal, first, last);
    if (d->stride)
        return VV_DETECT_FOUND;
    return broken ? VV_DETECT_BROKEN : VV_DETECT_NONE;
}
