/* SPDX-License-Identifier: Apache-2.0 */
/* Bandwidths of memory and disk, measured by plain loops that share nothing with the engine. */
#ifndef VARVE_SIM_PROBE_H
#define VARVE_SIM_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/util.h"

/* Copies between two buffers of `bytes`, shared out to `threads`, again and again for `seconds`;
 * the rate of the fastest round. -ENOMEM, -EINVAL, -EAGAIN (no thread). */
VV_WARN_UNUSED int probe_memcpy(size_t bytes, unsigned threads, double seconds, double *ret_bps);

struct probe_disk_opts {
    const char *dir;      /* the file is made here and has no name    */
    bool direct;          /* past the page cache                      */
    uint64_t file_bytes;  /* rounded up to whole blocks               */
    uint32_t block_bytes; /* of one write or read; a multiple of 4096 */
    unsigned threads;     /* operations in flight                     */
    double seconds;       /* for each of the three loops              */
};

struct probe_disk_rates {
    double write_bps;
    double read_bps;
    double both_bps; /* half of the threads write while the others read: the sum */
};

/* -EINVAL also when the file system refuses direct access; -ENOSPC and other errors of the file. */
VV_WARN_UNUSED int probe_disk(const struct probe_disk_opts *opts,
                              struct probe_disk_rates *ret_rates);

/* Whether two measurements of the same thing are more than `tolerance` (0.1: 10%) of the smaller
 * apart. */
bool probe_differs(double a, double b, double tolerance);

#endif
