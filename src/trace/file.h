/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a trace file. Reading is safe with any content: a bad block is skipped and counted, and so are bytes between
 * two good blocks. The file may still be being written: the complete blocks are read.
 *
 * The whole file is read into memory. The data that the structures point to belongs to the file and is read-only; texts
 * come from the application and may not be UTF-8, but have no 0 bytes inside.
 */
#ifndef VV_TRACE_FILE_H
#define VV_TRACE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/trace.h"

/* A key and its value from the library or the application, in the order of writing. */
struct vv_trace_pair {
    uint64_t time_ns;
    uint32_t context; /* 0: the process */
    bool note;        /* from the application */
    const char *key, *value;
};

struct vv_trace_attachment {
    uint64_t time_ns;
    const char *name, *type;
    const void *bytes;
    size_t size;
};

struct vv_trace_file {
    uint64_t clock_ns; /* the records' clock when the file was begun */
    uint64_t wall_ns;  /* the time of day at that time, since 1970; 0: not known */
    uint64_t pid;
    uint64_t file_bytes;
    bool complete;             /* closed properly: nothing is missing at its end */
    uint64_t lost;             /* records that were overwritten before they could be written */
    uint64_t damaged_bytes;    /* skipped */
    uint64_t unknown_blocks;   /* of types unknown to this version: skipped too */
    uint64_t begin_ns, end_ns; /* time span of the records; both clock_ns if there is none */

    const struct vv_trace_record *records; /* by time; those of one thread in order */
    size_t nrecords;
    const struct vv_trace_pair *pairs;
    size_t npairs;
    const struct vv_trace_attachment *attachments;
    size_t nattachments;

    struct vvi_trace_tables *tables; /* private */
};

/*
 * Reads a file.
 *   -EINVAL   it is not a trace
 *   -ENOTSUP  it has a later format
 *   -ENOMEM, and errors of opening and reading
 * `err` gets a text.
 */
VV_WARN_UNUSED int vv_trace_file_open(const char *path, char *err, size_t err_bytes,
                                      struct vv_trace_file **ret_file);
/* The same for bytes in memory, which are not needed afterwards. */
VV_WARN_UNUSED int vv_trace_file_parse(const void *bytes, size_t size, char *err, size_t err_bytes,
                                       struct vv_trace_file **ret_file);
/* Accepts NULL. */
void vv_trace_file_free(struct vv_trace_file *f);

/* The last value of a key from the library, or NULL. Keys are in docs/format/trace.md. */
const char *vv_trace_file_meta(const struct vv_trace_file *f, uint32_t context, const char *key);
/* The same from the application. */
const char *vv_trace_file_note(const struct vv_trace_file *f, const char *key);
/* The last attachment of that name, or NULL. */
const struct vv_trace_attachment *vv_trace_file_attachment(const struct vv_trace_file *f,
                                                           const char *name);
/* The text of a name by its number; "?" if the file has none. */
const char *vv_trace_file_name(const struct vv_trace_file *f, uint64_t name);
/* The name of a record's kind, and the names of its arguments, from the file; "?" and "" if it has none. */
const char *vv_trace_file_kind(const struct vv_trace_file *f, uint32_t kind);
const char *vv_trace_file_arg(const struct vv_trace_file *f, uint32_t kind, unsigned arg);

#endif
