/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trace files on disk: docs/format/trace.md. A header, then blocks, each with its own length and checksum, one after the
 * other. Little endian, like all supported machines.
 */
#ifndef VV_TRACE_FORMAT_H
#define VV_TRACE_FORMAT_H

#include <stdint.h>

#define VV_TRACE_MAGIC       "VARVETR\n"
#define VV_TRACE_FORMAT      1u
#define VV_TRACE_BLOCK_MAGIC UINT32_C(0x42545656) /* "VVTB" */
#define VV_TRACE_BLOCK_ALIGN 8u
/* No block is longer: a longer length means damage. */
#define VV_TRACE_BLOCK_MAX (UINT64_C(65) << 20)

struct vv_trace_head {
    char magic[8];
    uint32_t format;
    uint32_t head_bytes;
    uint64_t clock_ns; /* the records' monotonic clock when the file was begun */
    uint64_t wall_ns;  /* the time of day at that time, since 1970 */
    uint64_t pid;
    uint64_t zero[2];
    uint64_t sum; /* of all before it */
};

_Static_assert(sizeof(struct vv_trace_head) == 64, "on disk");

enum vv_trace_block_type {
    VV_TRACE_BLOCK_META = 1, /* the library's pairs about process, machine and contexts */
    VV_TRACE_BLOCK_NOTE,     /* the application's pairs, in the same form */
    VV_TRACE_BLOCK_NAMES,
    VV_TRACE_BLOCK_KINDS, /* names of the records and their arguments */
    VV_TRACE_BLOCK_RECORDS,
    VV_TRACE_BLOCK_ATTACHMENT,
    VV_TRACE_BLOCK_END, /* the file was closed */
};

/* Header of a block, before the payload, which is followed by zeros up to a multiple of VV_TRACE_BLOCK_ALIGN. The header
 * has its own sum, so that the length can be trusted before the payload is read. */
struct vv_trace_block {
    uint32_t magic;
    uint32_t type;
    uint64_t bytes;       /* of the payload */
    uint64_t number;      /* of the block, from 0 */
    uint64_t payload_sum; /* of the payload and the zeros */
    uint64_t sum;         /* of all before it */
};

_Static_assert(sizeof(struct vv_trace_block) == 40, "on disk");

/* META and NOTE: this structure, then for each pair two lengths (4 bytes each), key and value. */
struct vv_trace_pairs {
    uint64_t time_ns;
    uint32_t context; /* 0: the process */
    uint32_t count;
};

/* NAMES and KINDS: this structure, then for each entry its number and length (4 bytes each) and its text. The text of a
 * kind is its name and the names of its arguments, each followed by a 0 byte. */
struct vv_trace_texts {
    uint32_t count;
    uint32_t zero;
};

/* RECORDS: this structure, then records. */
struct vv_trace_batch {
    uint64_t time_ns; /* time at which they were taken from the rings */
    uint64_t lost;    /* records lost since the file was begun, or continued */
};

/* ATTACHMENT: this structure, then name, type and bytes. */
struct vv_trace_attached {
    uint64_t time_ns;
    uint32_t name_bytes, type_bytes;
};

struct vv_trace_closing {
    uint64_t time_ns;
    uint64_t records, lost; /* in total */
};

#endif
