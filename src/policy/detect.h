/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pattern detector, for applications that give no hints: recognises forward, reverse and
 * strided restores from the requests themselves. One request is enough when it is for the first or
 * the last version: adjoint codes begin there.
 */
#ifndef VV_POLICY_DETECT_H
#define VV_POLICY_DETECT_H

#include <stdbool.h>
#include <stdint.h>

struct vv_detect {
    uint64_t last;  /* ordinal of the last restore */
    int64_t stride; /* predicted; 0: none */
    int64_t step;   /* the latest one */
    bool any;       /* there was a restore */
};

enum vv_detect_verdict {
    VV_DETECT_NONE,   /* no pattern known */
    VV_DETECT_SAME,   /* the same version again: no information about the order */
    VV_DETECT_FOUND,  /* a pattern begins here: predict along `stride` */
    VV_DETECT_HELD,   /* the request was the predicted one */
    VV_DETECT_BROKEN, /* it was not, and begins no pattern: drop every prediction */
};

/* To be called at each restore, with the ordinal of the version (its place in the order of
 * writing); `first` and `last` are the ordinals of the oldest and the newest existing version. */
enum vv_detect_verdict vv_detect_restore(struct vv_detect *d, uint64_t ordinal, uint64_t first,
                                         uint64_t last);

#endif
