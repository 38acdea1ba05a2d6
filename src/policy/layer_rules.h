/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two layers of storage that work at once, a fast one with a limit and a slow one: which of them a
 * write goes to, and what is moved from one to the other. See store/spill/layers.h.
 */
#ifndef VV_POLICY_LAYER_RULES_H
#define VV_POLICY_LAYER_RULES_H

#include <stdbool.h>
#include <stdint.h>

enum vv_layer { VV_LAYER_FAST, VV_LAYER_SLOW, VV_LAYERS };

struct vv_layer_state {
    uint64_t queued_bytes; /* under way, both directions */
    double bytes_per_s;    /* measured while writing; 0: not known */
    uint64_t free_pages;
};

struct vv_layers_question {
    struct vv_layer_state layer[VV_LAYERS];
    uint64_t bytes;
    uint32_t pages;
    uint64_t low_pages;     /* the fast layer should have so many free */
    uint64_t rank;          /* of what is written: how far away its next use is */
    uint64_t farthest_rank; /* of what the fast layer holds */
    /* It is slower than the slow one, or this write shall tell whether it still is: see reroute.h. */
    bool skip_fast, try_fast;
};

/* The layer that takes the write: the one that will have it first. If the fast one is short of room,
 * what is wanted later than all that it holds goes to the slow one at once, and not by way of the
 * fast one. -1: neither has room. */
int vv_layers_place(const struct vv_layers_question *q);

/* Should room be made on the fast layer? Only while versions are still being written: once they are
 * restored, room comes by itself. */
bool vv_layers_wants_down(uint64_t free_pages, uint64_t low_pages, bool restoring);
/* Should the fast layer be filled? When versions are restored and nobody reads from the slow one;
 * not while it is skipped. */
bool vv_layers_wants_up(bool restoring, bool slow_is_read, bool skip_fast);

#endif
