/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A layer of storage that has become slower than the one below it, as shared burst buffers do while
 * others use them, is skipped until it recovers. While it is not used it cannot be measured. So one
 * write now and then is let through, at intervals that grow while the layer stays slow.
 *
 * Plain data; times are passed in. store/spill/layers.h uses it.
 */
#ifndef VV_POLICY_REROUTE_H
#define VV_POLICY_REROUTE_H

#include <stdbool.h>
#include <stdint.h>

/* Zeroed: no measurement, nothing is skipped. */
struct vv_reroute {
    uint64_t own_bytes, next_bytes; /* written so far: the evidence behind the rates */
    bool skipped, probing;          /* probing: the write that was let through has not ended */
    uint64_t probe_ns;              /* earliest time of the next probe */
    uint64_t wait_ns;               /* time from a probe that is slow to the next probe */
    uint64_t skips, probes;         /* their numbers so far */
};

/* True if a write that begins now must skip the layer. */
bool vv_reroute_skips(const struct vv_reroute *r, uint64_t now_ns);
/* A write goes to the layer; if the layer is skipped, as a probe. */
void vv_reroute_begins(struct vv_reroute *r);

/*
 * A write to the layer has ended. `bytes_per_s`: of this one; 0: it failed. `own`, `next`: averages
 * of both layers; 0: unknown. True: the layer has recovered, and only this write counts as a
 * measurement of it.
 */
bool vv_reroute_own(struct vv_reroute *r, uint64_t bytes, double bytes_per_s, double own,
                    double next, uint64_t now_ns);
/* A write to the layer below has ended. */
void vv_reroute_next(struct vv_reroute *r, uint64_t bytes, double own, double next,
                     uint64_t now_ns);

#endif
