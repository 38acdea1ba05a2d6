/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing a trace file. A process has at most one, shared by all callers that start it under the
 * same name. A thread takes the records out of the rings and writes them; other threads wait for the
 * disk only in start, stop and flush. When writing fails, tracing stops and everything else continues.
 */
#ifndef VV_TRACE_WRITE_H
#define VV_TRACE_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

/* Expands "%p", the process id, and "%r", the rank, in a path. -ENAMETOOLONG. */
VV_WARN_UNUSED int vv_trace_path(const char *pattern, int rank, char *buf, size_t size);

/*
 * Begins a file, or joins the callers of the file that is being written; call vv_trace_write_stop for
 * each success. An existing trace is replaced, except that the file that this process wrote last is
 * continued. `err` gets a text:
 *   -EBUSY    this process writes another file, or another process writes this one
 *   -EEXIST   the file exists and is not a trace
 *   other     errors of opening and writing it
 */
VV_WARN_UNUSED int vv_trace_write_start(const char *path, char *err, size_t err_bytes);
/* The last caller's stop writes all remaining records and ends the file. Returns the error that stopped
 * writing, if any: the file can be read up to there. */
VV_WARN_UNUSED int vv_trace_write_stop(void);
/* True if a file is being written. Cheap. Any thread. */
bool vv_trace_writing(void);

/*
 * Data besides the records, copied and written later. Does nothing without a file.
 *
 * vv_trace_meta     key and value, about a context or, with 0, the process
 * vv_trace_note     the same from the application
 * vv_trace_attach   a whole file
 *
 * -ENOMEM; -EFBIG: more than a block can hold.
 */
VV_WARN_UNUSED int vv_trace_meta(uint32_t context, const char *key, const char *value);
VV_WARN_UNUSED int vv_trace_note(const char *key, const char *value);
VV_WARN_UNUSED int vv_trace_attach(const char *name, const char *type, const void *bytes,
                                   size_t size);

/* Describes the process and its machine. Takes some milliseconds. */
VV_WARN_UNUSED int vv_trace_meta_machine(void);

/* Waits until all events recorded before the call are in the file. Returns the error that stopped
 * writing; 0 without a file. */
VV_WARN_UNUSED int vv_trace_flush(void);

#endif
