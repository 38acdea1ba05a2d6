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

    d->any = true;
    d->last = ordinal;
    d->step = step;
    if (was_any && d->stride != 0 && step == d->stride)
        return VV_DETECT_HELD;
    broken = d->stride != 0;
    d->stride = 0;
    if (broken)
        return VV_DETECT_BROKEN;
    if (!was_any)
        d->stride = stride_of_first(ordinal, first, last);
    else if (step != 0 && step == before)
        d->stride = step;
    return d->stride ? VV_DETECT_FOUND : VV_DETECT_NONE;
}
