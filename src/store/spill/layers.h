/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A spill of two layers under one page numbering: one file on a fast folder with a limit (a burst buffer) and one
 * on a slow folder (the file system). The engine sees one arena of pages. The layers decide where a page is, and
 * when it moves:
 *
 *   - A write goes to the layer that will finish it first, so that both work at the same time. If the fast layer
 *     is short of room, versions that are restored last go directly to the slow one.
 *   - While versions are written, pages of those restored last move down, to make room for the next burst. While
 *     versions are restored, those restored next move up.
 *   - A page that was moved up keeps its slot on the slow layer, so that its slot on the fast one can be reclaimed
 *     without a copy.
 *
 * The limit of the fast layer is never exceeded, because every page there occupies one of its slots.
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

/* A version for which next_use is asked. */
struct vv_layers_version {
    uint32_t hist;
    uint64_t version, generation;
    /* The answer. */
    uint64_t rank;  /* how far away its next use is */
    bool gone;      /* the version does not exist */
    bool restoring; /* restores of its history have begun */
    bool present;   /* in memory, or restored and not needed again: do not move it up */
};

struct vv_layers_opts {
    struct {
        const char *folder;
        uint64_t bytes;             /* limit; 0: the space free at opening */
        struct vv_store_opts store; /* the same page size for both */
        struct vv_budget *budget;   /* NULL: none. Outlives the layers */
        uint64_t bytes_per_s;       /* limit on writes of all who share the budget; 0: none */
    } layer[VV_LAYERS];
    uint32_t pages_max; /* of both together; 0: no limit */
    uint32_t trace_id;  /* of the context, in traces */
    /* Fills in the answers. Called with no lock held, inside submit and, from the first write until
     * vv_layers_stop, on threads of the layers. NULL: the restore order is not known. */
    void (*next_use)(void *arg, struct vv_layers_version *versions, size_t n);
    void *arg;
};

VV_WARN_UNUSED int vv_layers_new(const struct vv_layers_opts *opts, char *err, size_t err_bytes,
                                 struct vv_layers **ret_layers);
/* Stops moves and calls of next_use. Call it before the data that next_use reads is freed. */
void vv_layers_stop(struct vv_layers *layers);
/* Call it after its stores were closed. Accepts NULL. */
void vv_layers_free(struct vv_layers *layers);

uint32_t vv_layers_pages(const struct vv_layers *layers);
/* As vv_spill_store. */
VV_WARN_UNUSED int vv_layers_store(struct vv_layers *layers, struct vv_store **ret_store);
/* Notifies the layers that these pages are free again, with no request on them in flight. Any thread; makes no
 * system call except to wake a thread. */
void vv_layers_gone(struct vv_layers *layers, uint32_t first, uint32_t n);

struct vv_layers_stats {
    uint64_t used_bytes[VV_LAYERS], peak_bytes[VV_LAYERS], capacity_bytes[VV_LAYERS];
    uint64_t written_bytes[VV_LAYERS], read_bytes[VV_LAYERS];         /* moves included */
    uint64_t down_bytes, up_bytes;                                    /* moved */
    double write_bytes_per_s[VV_LAYERS], read_bytes_per_s[VV_LAYERS]; /* measured; 0: not yet */
    double start_write_bytes_per_s[VV_LAYERS], start_read_bytes_per_s[VV_LAYERS]; /* first ones */
    uint64_t skips; /* times that the fast layer became slower than the slow one */
    bool skipped;   /* it is slower now */
};
void vv_layers_get_stats(struct vv_layers *layers, struct vv_layers_stats *ret_stats);

#endif
