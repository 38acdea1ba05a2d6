/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a trace file. Whatever it contains, reading it is safe: a block that does not check is
 * passed over and counted, and so is what stands between two good ones. The file may still be being
 * written: what is whole is read.
 *
 * All of it is read into memory. What the structures point to belongs to the file and is read-only;
 * texts are whatever the application gave, without 0 bytes inside, perhaps not UTF-8.
 */
#ifndef VV_TRACE_FILE_H
#define VV_TRACE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/trace.h"

/* What the library or the application said, in the order in which they said it. */
struct vv_trace_pair {
    uint64_t time_ns;
    uint32_t context; /* 0: the process */
    bool note;        /* said by the application */
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
    uint64_t wall_ns;  /* the time of day then, since 1970; 0: not known */
    uint64_t pid;
    uint64_t file_bytes;
    bool complete;             /* closed in order: nothing can be missing at its end */
    uint64_t lost;             /* records that were overwritten before they could be written */
    uint64_t damaged_bytes;    /* passed over */
    uint64_t unknown_blocks;   /* of types that this version does not know: passed over too */
    uint64_t begin_ns, end_ns; /* of what the records span; both clock_ns if there is none */

    const struct vv_trace_record *records; /* by time; those of one thread in order */
    size_t nrecords;
    const struct vv_trace_pair *pairs;
    size_t npairs;
    const struct vv_trace_attachment *attachments;
    size_t nattachments;

    struct vvi_trace_tables *tables; /* private */
};

/*
 *   -EINVAL   this is no trace
 *   -ENOTSUP  of a later format
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

/* The last value that the library gave for a key, or NULL. Keys are in docs/format/trace.md. */
const char *vv_trace_file_meta(const struct vv_trace_file *f, uint32_t context, const char *key);
/* The same of the application. */
const char *vv_trace_file_note(const struct vv_trace_file *f, const char *key);
/* The last one of that name, or NULL. */
const struct vv_trace_attachment *vv_trace_file_attachment(const struct vv_trace_file *f,
                                                           const char *name);
/* The text of a name's number; "?" if the file has none. */
const char *vv_trace_file_name(const struct vv_trace_file *f, uint64_t name);
/* Of a record's kind and its arguments, as the file itself says; "?" and "" where it does not. */
const char *vv_trace_file_kind(const struct vv_trace_file *f, uint32_t kind);
const char *vv_trace_file_arg(const struct vv_trace_file *f, uint32_t kind, unsigned arg);

#endif
