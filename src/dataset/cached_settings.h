/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of the daemon `varve cached`; the keys are in cached_table.h. */
#ifndef VV_DATASET_CACHED_H
#define VV_DATASET_CACHED_H

#include "base/settings.h"
#include "dataset/node.h"

/* Files above this share of the capacity evict only copies. */
#define VV_CACHED_BIG_PCT 5

struct vv_cached {
    char roots[VV_CONFIG_TEXT], cache[VV_CONFIG_TEXT], node[VV_CONFIG_TEXT], listen[VV_CONFIG_TEXT];
    char advertise[VV_CONFIG_TEXT], peers[VV_CONFIG_TEXT], meet[VV_CONFIG_TEXT];
    char token[VV_CONFIG_TEXT], socket[VV_CONFIG_TEXT], metrics[VV_CONFIG_TEXT];
    char log[VV_CONFIG_TEXT];
    uint64_t capacity, max_file, expected, memory, memory_file, direct_above;
    int high, low, revalidate, scrub, transport, mode, replicas, scheme, vnodes, limit;
    int patience, period, workers, ahead, lazy, verity, log_level;
};

/* They come from files, variables and flags as those of the library do: section [cached], VARVE_CACHED_*. */
extern const struct vv_settings vv_cached_settings;

/* Fills in settings that were not given and follow from others: the name of the node, capacity, max_file, socket.
 * Returns -EINVAL or a system error, with a text in `err`. */
VV_WARN_UNUSED int vv_cached_complete(struct vv_cached *c, char *err, size_t err_bytes);

/* Sets the path of the socket for programs, as vv_cached_complete does. */
VV_WARN_UNUSED int vv_cached_socket(struct vv_cached *c, char *err, size_t err_bytes);
/* The path of the control socket beside it. -ENAMETOOLONG. */
VV_WARN_UNUSED int vv_cached_control(const struct vv_cached *c, char *buf, size_t size);

/* Reads the peers from a file. -EINVAL with a text; freed with free(). */
VV_WARN_UNUSED int vv_cached_peers(const char *path, char *err, size_t err_bytes,
                                   struct vv_member_info **ret_peers, size_t *ret_nr);

#endif
