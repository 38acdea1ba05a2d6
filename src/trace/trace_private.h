/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of trace/ share. Nothing outside includes it. */
#ifndef VV_TRACE_PRIVATE_H
#define VV_TRACE_PRIVATE_H

#include "trace/trace.h"

/* ---- trace.c ---- */

/* A trace file wants events, or wants them no more. Turned on, the rings are drained from here on,
 * and every thread announces itself anew with its next event. */
void vvi_trace_file_wants(bool on);

/* Takes records out of the rings, oldest first in each, at most `max`; adds what was overwritten
 * before it could be taken to *lost. Returns how many there are; fewer than `max`: the rings were
 * empty for a moment. One thread at a time, which is the writer of the trace file. */
size_t vvi_trace_drain(struct vv_trace_record *ret_records, size_t max, uint64_t *lost);

/* For qsort: the order of records in time; of one time, by thread and as they were made. */
int vvi_trace_by_time(const void *x, const void *y);

/* ---- names.c ---- */

/* Names are numbered from 0; there are so many. Any thread. */
uint32_t vvi_trace_names(void);
/* The text of a name that there is. */
const char *vvi_trace_name_text(uint32_t name);

#endif
