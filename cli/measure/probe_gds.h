/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Speed between a disk and a device, both ways that the library has: through host memory, and past it with
 * libcufile. Chunks are written and read by the library's own store, checksums included, so both ways are measured
 * with their whole cost.
 *
 * Threads: one at a time.
 */
#ifndef CLI_MEASURE_PROBE_GDS_H
#define CLI_MEASURE_PROBE_GDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"
#include "device/device.h"

struct probe_gds;

struct probe_gds_opts {
    struct vv_device *device;
    const char *dir;
    uint64_t file_bytes; /* without a name, and removed when the process ends */
};

struct probe_gds_rates {
    double through_bps, past_bps; /* of the fastest rounds */
};

/* Writes the file once, so that reads find data. -ENOTSUP: no GPUDirect Storage, with the reason in `err`;
 * otherwise the error of the disk or the device. */
VV_WARN_UNUSED int probe_gds_new(const struct probe_gds_opts *opts, char *err, size_t err_bytes,
                                 struct probe_gds **ret_probe);
/* Accepts NULL. */
void probe_gds_free(struct probe_gds *probe);

/* Takes turns between the two ways, for about `seconds` in all. */
VV_WARN_UNUSED int probe_gds_compare(struct probe_gds *probe, bool write, double seconds,
                                     struct probe_gds_rates *ret_rates);

#endif
