/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timelines for other programs and for people. Each function writes to a stream that the caller opened, and
 * returns -EIO if that failed, or -ENOMEM.
 */
#ifndef CLI_REPORT_TRACE_EXPORT_H
#define CLI_REPORT_TRACE_EXPORT_H

#include <stdio.h>

#include "trace/timeline.h"

/* The JSON that ui.perfetto.dev and chrome://tracing read. */
VV_WARN_UNUSED int trace_export_chrome(FILE *f, const struct vv_timeline *t);

/* One <svg> element: a lane for each thread of the application and for each mover, and how full the
 * tiers were. No script, no font and no file from elsewhere; light on a light page and dark on a dark
 * one. The part between the two times; both 0: all of it. */
VV_WARN_UNUSED int trace_export_svg(FILE *f, const struct vv_timeline *t, uint64_t from_ns,
                                    uint64_t to_ns);

/* Comma-separated, with a line of headings. Times in nanoseconds from the first event. */
enum trace_table {
    TRACE_TABLE_SPANS,
    TRACE_TABLE_ITERATIONS,
    TRACE_TABLE_OCCUPANCY,
    TRACE_TABLE_RECORDS, /* as they are in the file */
};
VV_WARN_UNUSED int trace_export_csv(FILE *f, const struct vv_timeline *t, enum trace_table table);

#endif
