/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A layer of storage that has become slower than the one below it, as shared burst buffers do while
 * others use them, is skipped until it recovers. It is not measured while it is not used: so one
 * write now and then is let through, at intervals that grow while the layer stays slow.
 *
 * Plain data; times are passed in. See store/spill/layers.h for who asks.
 */
#ifndef VV_POLICY_REROUTE_H
#define VV_POLICY_REROUTE_H

#include <stdbool.h>
#include <stdint.h>

/* Zeroed: nothing is known, nothing is skipped. */
struct vv_reroute {
    uint64_t own_bytes, next_bytes; /* written so far: how much the rates are worth */
    bool skipped, probing;          /* probing: the write that was let through has not ended */
    uint64_t probe_ns;              /* the next one, from here on */
    uint64_t wait_ns;               /* until the one after that, if it is slow too */
    uint64_t skips, probes;         /* how often so far */
};

/* Is a write that begins now to go past the layer? */
bool vv_reroute_skips(const struct vv_reroute *r, uint64_t now_ns);
/* A write goes to the layer; if that is skipped, as a probe. */
void vv_reroute_begins(struct vv_reroute *r);

/*
 * A write to the layer has ended. `bytes_per_s`: of this one; 0: it failed. `own`, `next`: averages
 * of both layers; 0: not known. True: the layer has recovered, and this write is all that is worth
 * knowing of it.
 */
bool vv_reroute_own(struct vv_reroute *r, uint64_t bytes, double bytes_per_s, double own,
                    double next, uint64_t now_ns);
/* A write to the layer below has ended. */
void vv_reroute_next(struct vv_reroute *r, uint64_t bytes, double own, double next,
                     uint64_t now_ns);

#endif
