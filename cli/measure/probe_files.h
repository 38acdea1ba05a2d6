/* SPDX-License-Identifier: Apache-2.0 */
/* The speed of a disk for files as the library makes them: written once, synced and renamed or not, read back. */
#ifndef CLI_MEASURE_PROBE_FILES_H
#define CLI_MEASURE_PROBE_FILES_H

#include "cli/measure/probe.h"

struct probe_files_opts {
    const char *dir;      /* a folder is made here and removed                    */
    bool direct;          /* past the page cache                                  */
    bool sync;            /* each file is synced and renamed, and its folder synced */
    uint64_t file_bytes;  /* of one file, rounded up to whole blocks              */
    uint64_t total_bytes; /* of all of them: half for each pass                   */
    uint32_t block_bytes; /* of one write or read; a multiple of 4096             */
    unsigned threads;     /* operations in flight; 2 at least                     */
    double seconds;       /* time limit of each of the three passes */
};

/* Runs each pass once, from its first block to its last sync. both_bps: half of the threads write new files while
 * the others read. Errors as of probe_disk. */
VV_WARN_UNUSED int probe_files(const struct probe_files_opts *opts,
                               struct probe_disk_rates *ret_rates);

#endif
