/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy: pure decisions. A snapshot goes in, a decision comes out: no lock, no clock, no I/O; no
 * allocation except for a map of nodes (place.h).
 */
#ifndef VV_POLICY_POLICY_H
#define VV_POLICY_POLICY_H

enum vv_policy {
    VV_POLICY_NEXT,      /* paged, partly resident, farthest next use: the default */
    VV_POLICY_SCORE,     /* Algorithm 1: contiguous, commits to a window and waits for it */
    VV_POLICY_SCORE_NOW, /* the same scores, but searches again at every completion */
    VV_POLICY_FIFO,
    VV_POLICY_LRU,
    VV_POLICY_COUNT,
};

const char *vv_policy_name(enum vv_policy policy);
int vv_policy_parse(const char *name, enum vv_policy *ret_policy);

#endif
