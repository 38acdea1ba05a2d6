/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing a trace file. There is one for the process at most, shared by all that start it under the
 * same name. A thread takes the records out of the rings and writes them; nobody else waits for the
 * disk but whoever asks to. When writing fails, tracing stops and everything else goes on.
 */
#ifndef VV_TRACE_WRITE_H
#define VV_TRACE_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

/* In a path, "%p" is the number of the process and "%r" the rank. -ENAMETOOLONG. */
VV_WARN_UNUSED int vv_trace_path(const char *pattern, int rank, char *buf, size_t size);

/*
 * Begins a file, or joins those who write it already; vv_trace_write_stop for each success. A file
 * that is there is replaced, if it is a trace; the one that this process has written last is gone on
 * with. A text says what is wrong:
 *   -EBUSY    this process writes another one, or another process this one
 *   -EEXIST   the file is there, and is no trace
 *   other     errors of opening and writing it
 */
VV_WARN_UNUSED int vv_trace_write_start(const char *path, char *err, size_t err_bytes);
/* The last of them has all records written, and ends the file. The error for which writing has stopped, if it
 * has: the file can be read up to there. */
VV_WARN_UNUSED int vv_trace_write_stop(void);
/* Is a file being written? Cheap. Any thread. */
bool vv_trace_writing(void);

/*
 * Data beside the records, copied and written later. Nothing happens without a file.
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

/* About the process and its machine. Takes some milliseconds. */
VV_WARN_UNUSED int vv_trace_meta_machine(void);

/* Waits until what was recorded before the call is in the file. The error for which writing has
 * stopped; 0 without a file. */
VV_WARN_UNUSED int vv_trace_flush(void);

#endif
