/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations shared by the files of trace/. No other module includes it. */
#ifndef VV_TRACE_PRIVATE_H
#define VV_TRACE_PRIVATE_H

#include "trace/trace.h"

/* ---- trace.c ---- */

/* Turns events for a trace file on or off. When turned on, the rings are drained from this point on,
 * and every thread announces itself again with its next event. */
void vvi_trace_file_wants(bool on);

/* Takes records out of the rings, oldest first in each, at most `max`; adds what was overwritten
 * before it could be taken to *lost. Returns their number; fewer than `max`: the rings were
 * empty at some time. One thread at a time: the writer of the trace file. */
size_t vvi_trace_drain(struct vv_trace_record *ret_records, size_t max, uint64_t *lost);

/* For qsort: orders records by time; those of one time by thread and sequence. */
int vvi_trace_by_time(const void *x, const void *y);

/* ---- names.c ---- */

/* The number of names, which are numbered from 0. Any thread. */
uint32_t vvi_trace_names(void);
/* The text of an existing name. */
const char *vvi_trace_name_text(uint32_t name);

#endif
