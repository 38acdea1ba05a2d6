/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traces: a file that records what an application and the library did, and when.
 *
 * A trace is switched on by an option of a context (`trace_file`, VARVE_TRACE_FILE=run.vtrace) and
 * ends when the last context with this option is closed. A process has one trace file, with the events
 * of all contexts and threads. The library records its own events; the functions here add those of the
 * application, so that a timeline can show what was computed while data moved. `varve trace` turns the
 * file into pictures, tables and a report.
 *
 * Without a trace these functions do nothing and return at once. They take no context, so code without
 * one can be marked as well. Any thread may call them at any time.
 */
#ifndef VARVE_TRACE_H
#define VARVE_TRACE_H

#include <varve/varve.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Not 0 while events are being recorded. For applications that prepare data only for the trace. */
VARVE_API int varve_trace_on(void);

/*
 * Mark phases of the calling thread, such as "forward" or "imaging": varve_trace_begin begins a phase,
 * varve_trace_end ends the one that the thread began last. Phases may be nested. The name is copied.
 * Use few different names, since each is kept to the end: after some thousands, further names become
 * "(other)". NULL is "(unnamed)". An end without a beginning is ignored, and a phase that never ends
 * lasts to the end of the trace. Does not block; takes less than a tenth of a microsecond.
 */
VARVE_API void varve_trace_begin(const char *phase);
VARVE_API void varve_trace_end(void);

enum { VARVE_TRACE_NOTE_BYTES = 65536 };
/*
 * Adds a line of text to the trace, for reports: "grid", "512 x 512 x 256". Reports show the last line
 * with a key. Both strings are copied; does not wait for the disk.
 *   -EINVAL   NULL, an empty key, or more than VARVE_TRACE_NOTE_BYTES together
 *   -ENOMEM
 */
VARVE_API int varve_trace_note(const char *key, const char *value) VARVE_CHECK;

/*
 * Adds a whole file to the trace, such as a picture for the report. `name` says what it is ("image",
 * "velocity model"), `type` is its media type ("image/png"). The bytes are copied; does not wait for
 * the disk. Reports show the last file with a name.
 *   -EINVAL   NULL, an empty name or type, or either longer than 255 bytes
 *   -EFBIG    more than VARVE_TRACE_ATTACH_BYTES
 *   -ENOMEM
 */
#define VARVE_TRACE_ATTACH_BYTES ((size_t)64 << 20)
VARVE_API int varve_trace_attach(const char *name, const char *type, const void *bytes,
                                 size_t size) VARVE_CHECK;

/*
 * Returns when all events recorded before the call are in the file (given to the operating system, not
 * synced). 0: they are, or there is no trace file. Otherwise the error that stopped writing, such as
 * -ENOSPC: the file can be read up to there, and the application continues without a trace.
 */
VARVE_API int varve_trace_flush(void) VARVE_CHECK;

#ifdef __cplusplus
}
#endif

#endif
