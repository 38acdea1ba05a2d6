/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A spill of two layers: pages of a file on a fast folder with a limit (a burst buffer) and of one on
 * a slow folder (the file system), under one numbering. The engine sees one arena of pages; where a
 * page is, and when it moves, is decided here:
 *
 *   - A write goes to the layer that will have it first, so that both work at once; if the fast one is
 *     short of room, what is wanted last goes to the slow one at once.
 *   - While versions are written, pages of those wanted last move down, so that the fast layer has
 *     room for the next burst; while versions are restored, those wanted next move up.
 *   - A page that was moved up keeps its place on the slow layer, so that its place on the fast one
 *     can be had back for nothing.
 *
 * The limit of the fast layer is never exceeded: a page has a slot there or it has not.
 *
 * Threads: see layers.c.
 */
#ifndef VV_STORE_LAYERS_H
#define VV_STORE_LAYERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"
#include "policy/layer_rules.h"
#include "store/store.h"

struct vv_budget;
struct vv_layers;

/* A version, as whoever knows the restore order is asked about it. */
struct vv_layers_version {
    uint32_t hist;
    uint64_t version, generation;
    /* The answer. */
    uint64_t rank;  /* how far away its next use is */
    bool gone;      /* there is no such version */
    bool restoring; /* restores of its history have begun */
    bool
        present; /* it is in memory, or was restored and is not wanted again: nothing to bring up */
};

struct vv_layers_opts {
    struct {
        const char *folder;
        uint64_t bytes;             /* at most; 0: what is free when it is opened */
        struct vv_store_opts store; /* the same page size for both */
        struct vv_budget *budget;   /* NULL: none. Outlives the layers */
        uint64_t bytes_per_s;       /* of writes, for all who share the budget; 0: no limit */
    } layer[VV_LAYERS];
    uint32_t pages_max; /* of both together; 0: no limit */
    uint32_t trace_id;  /* of the context, in traces */
    /* Called with no lock held, inside submit and, from the first write until vv_layers_stop, on threads
     * of the layers. NULL: nothing is known of any order. */
    void (*next_use)(void *arg, struct vv_layers_version *versions, size_t n);
    void *arg;
};

VV_WARN_UNUSED int vv_layers_new(const struct vv_layers_opts *opts, char *err, size_t err_bytes,
                                 struct vv_layers **ret_layers);
/* Nothing moves between the layers any more, and next_use is not called: before what it asks goes. */
void vv_layers_stop(struct vv_layers *layers);
/* After its stores were closed. Accepts NULL. */
void vv_layers_free(struct vv_layers *layers);

uint32_t vv_layers_pages(const struct vv_layers *layers);
/* As vv_spill_store. */
VV_WARN_UNUSED int vv_layers_store(struct vv_layers *layers, struct vv_store **ret_store);
/* These pages hold nothing any more, and no request on them is under way. Any thread; makes no system
 * call but to wake a thread. */
void vv_layers_gone(struct vv_layers *layers, uint32_t first, uint32_t n);

struct vv_layers_stats {
    uint64_t used_bytes[VV_LAYERS], peak_bytes[VV_LAYERS], capacity_bytes[VV_LAYERS];
    uint64_t written_bytes[VV_LAYERS], read_bytes[VV_LAYERS];         /* moves included */
    uint64_t down_bytes, up_bytes;                                    /* moved */
    double write_bytes_per_s[VV_LAYERS], read_bytes_per_s[VV_LAYERS]; /* measured; 0: not yet */
    double start_write_bytes_per_s[VV_LAYERS], start_read_bytes_per_s[VV_LAYERS]; /* of the first */
    uint64_t skips; /* times that the fast layer had become slower than the slow one */
    bool skipped;   /* and is now */
};
void vv_layers_get_stats(struct vv_layers *layers, struct vv_layers_stats *ret_stats);

#endif
