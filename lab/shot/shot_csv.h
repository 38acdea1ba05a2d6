/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of every call of a shot, one line each, for plotting. */
#ifndef LAB_SHOT_SHOT_CSV_H
#define LAB_SHOT_SHOT_CSV_H

#include "lab/shot/report.h"
#include "lab/shot/work.h"

/* Figures of the script that was run, or with `work` NULL of the shot. Columns: process or thread, call
 * (checkpoint or restore), iteration (from 0, within its kind), version, bytes, blocked_s, gbps, prefetch_distance
 * (restores only). An existing file is replaced. Errors of the file, -ENOMEM, with a line of text. */
VV_WARN_UNUSED int shot_csv_write(const char *path, const struct shot_report *report,
                                  const struct shot_work *work, char *err, size_t err_size);

#endif
