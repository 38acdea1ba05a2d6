/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two layers of storage that work at once, a fast one with a limit and a slow one: which of them
 * takes a write, and which data moves from one to the other. See store/spill/layers.h.
 */
#ifndef VV_POLICY_LAYER_RULES_H
#define VV_POLICY_LAYER_RULES_H

#include <stdbool.h>
#include <stdint.h>

enum vv_layer { VV_LAYER_FAST, VV_LAYER_SLOW, VV_LAYERS };

struct vv_layer_state {
    uint64_t queued_bytes; /* under way, both directions */
    double bytes_per_s;    /* measured while writing; 0: unknown */
    uint64_t free_pages;
};

struct vv_layers_question {
    struct vv_layer_state layer[VV_LAYERS];
    uint64_t bytes;
    uint32_t pages;
    uint64_t low_pages;     /* minimum number of free pages of the fast layer */
    uint64_t rank;          /* of the data to write: how far away its next use is */
    uint64_t farthest_rank; /* of the data on the fast layer */
    /* The fast layer is slower than the slow one; this write tests whether it still is. See
     * reroute.h. */
    bool skip_fast, try_fast;
};

/* The layer that takes the write: the one that will finish it first. If the fast layer is short of
 * room, data whose next use is later than that of all its data goes to the slow layer directly. -1:
 * neither has room. */
int vv_layers_place(const struct vv_layers_question *q);

/* True if data must move from the fast layer to make room there. False once versions are restored:
 * room then appears by itself. */
bool vv_layers_wants_down(uint64_t free_pages, uint64_t low_pages, bool restoring);
/* True if data should move up to the fast layer: while versions are restored, nothing is read from
 * the slow layer, and the fast layer is not skipped. */
bool vv_layers_wants_up(bool restoring, bool slow_is_read, bool skip_fast);

#endif
