/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traces: what an application and the library did, and when, as a file.
 *
 * A trace is switched on by an option of a context (`trace_file`, VARVE_TRACE_FILE=run.vtrace) and
 * ends when the last context that has it is closed. It is the process's: one file, with the events
 * of all contexts and threads. The library records its own events; the functions here add what only
 * the application knows, so that a timeline can show what was computed while data moved. `varve
 * trace` turns the file into pictures, tables and a report.
 *
 * Without a trace all of these return at once and do nothing. They take no context: code that has
 * none can be marked as well. Any thread may call them at any time.
 */
#ifndef VARVE_TRACE_H
#define VARVE_TRACE_H

#include <varve/varve.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Not 0 while events are being recorded. For applications that prepare something for the trace only. */
VARVE_API int varve_trace_on(void);

/*
 * The calling thread begins a phase, such as "forward" or "imaging", and ends the one it began last.
 * Phases may be nested. The name is copied; there should be few different ones, as each is kept to
 * the end: of more than some thousands the rest is called "(other)". NULL is "(unnamed)". An end
 * without a beginning is ignored, and a phase that never ends lasts to the end of the trace. Does
 * not block; takes less than a tenth of a microsecond.
 */
VARVE_API void varve_trace_begin(const char *phase);
VARVE_API void varve_trace_end(void);

/*
 * Keeps a line of text with the trace, for reports: "grid", "512 x 512 x 256". Of several with the
 * same key the last is shown. Both strings are copied; does not wait for the disk.
 *   -EINVAL   NULL, an empty key, or more than VARVE_TRACE_NOTE_BYTES together
 *   -ENOMEM
 */
enum { VARVE_TRACE_NOTE_BYTES = 65536 };
VARVE_API int varve_trace_note(const char *key, const char *value) VARVE_CHECK;

/*
 * Keeps a whole file with the trace, such as a picture that the report shall show: `name` says what
 * it is ("image", "velocity model"), `type` of which kind ("image/png"). The bytes are copied; does
 * not wait for the disk. Of several with the same name the last is shown.
 *   -EINVAL   NULL, an empty name or type, or either longer than 255 bytes
 *   -EFBIG    more than VARVE_TRACE_ATTACH_BYTES
 *   -ENOMEM
 */
#define VARVE_TRACE_ATTACH_BYTES ((size_t)64 << 20)
VARVE_API int varve_trace_attach(const char *name, const char *type, const void *bytes,
                                 size_t size) VARVE_CHECK;

/*
 * Returns when all that was recorded before the call is in the file (given to the operating system,
 * not synced). 0: it is, or there is no trace file. Otherwise the error for which writing has
 * stopped, such as -ENOSPC: the file can be read up to there, and the application goes on without.
 */
VARVE_API int varve_trace_flush(void) VARVE_CHECK;

#ifdef __cplusplus
}
#endif

#endif
