/* SPDX-License-Identifier: Apache-2.0 */
/* Bandwidths of memory and disk, measured by plain loops that share nothing with the engine. */
#ifndef CLI_MEASURE_PROBE_H
#define CLI_MEASURE_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

#define PROBE_THREADS_MAX 256

/* Copies between two buffers of `bytes`, divided among `threads`, again and again for `seconds`. Returns the rate
 * of the fastest round. -ENOMEM, -EINVAL, -EAGAIN (no thread). */
VV_WARN_UNUSED int probe_memcpy(size_t bytes, unsigned threads, double seconds, double *ret_bps);

/* The speed at which `threads` fault in fresh memory, `bytes` of it again and again for `seconds`, with huge pages
 * where the system gives them. The same errors. */
VV_WARN_UNUSED int probe_touch(size_t bytes, unsigned threads, bool huge, double seconds,
                               double *ret_bps);

/* ---- disk ---- */

struct probe_disk_opts {
    const char *dir;      /* the file is made here, without a name */
    bool direct;          /* past the page cache */
    uint64_t file_bytes;  /* rounded up to whole blocks               */
    uint32_t block_bytes; /* of one write or read; a multiple of 4096 */
    unsigned threads;     /* operations in flight                     */
    double seconds;       /* for each of the three loops */
};

struct probe_disk_rates {
    double write_bps;
    double read_bps;
    double both_bps; /* half of the threads write while the others read: the sum */
};

/* -EINVAL also when the file system refuses direct access; -ENOSPC and other errors of the file. */
VV_WARN_UNUSED int probe_disk(const struct probe_disk_opts *opts,
                              struct probe_disk_rates *ret_rates);

/* The same step by step, on one file. `threads` is the most that a loop may use. On a slow disk the file is made
 * smaller than requested, so that writing it does not take much longer than four times `seconds` (0: no limit).
 * One thread uses it. */
struct probe_disk;

VV_WARN_UNUSED int probe_disk_open(const struct probe_disk_opts *opts,
                                   struct probe_disk **ret_disk);
/* No file stays behind. Accepts NULL. */
void probe_disk_close(struct probe_disk *disk);

uint64_t probe_disk_file_bytes(const struct probe_disk *disk);

enum probe_disk_op { PROBE_WRITE, PROBE_READ, PROBE_BOTH };

/* Block after block, `depth` of them in flight, for `seconds`; the fastest round.
 */
VV_WARN_UNUSED int probe_disk_loop(struct probe_disk *disk, enum probe_disk_op op, unsigned depth,
                                   double seconds, double *ret_bps);

/* The whole file once: written and synced, or dropped from the page cache and read. This is the speed of a
 * buffered file in the long run. */
VV_WARN_UNUSED int probe_disk_pass(struct probe_disk *disk, enum probe_disk_op op, unsigned depth,
                                   double *ret_bps);

/* One block written and synced, `times` times: the median. */
VV_WARN_UNUSED int probe_disk_sync(struct probe_disk *disk, unsigned times, uint64_t *ret_ns);

/* True if two measurements of the same thing differ by more than `tolerance` (0.1: 10%) of the smaller one. */
bool probe_differs(double a, double b, double tolerance);

#endif
