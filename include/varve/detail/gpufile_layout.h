/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU files, internal: the memory that kernels and servers share. Programs include
 * varve/gpufile_device.h and do not use this header.
 *
 * Device memory holds the page cache: frames, their descriptors, the hash table that finds them, the
 * streams (each is the state of an open file of one group of threads), counters, and a copy of the table of
 * mapped windows. Host memory, which the device reads and writes across the link, holds the ring of
 * requests, a mailbox for each part of each stream, the staging memory, the table of files and the
 * table of windows. Every word there has one writer at a time.
 *
 * A request is 16 bytes in two halves of 8, each with a bit that changes with every lap of the ring. So a
 * server sees from either half alone that it has arrived, provided the request one lap earlier was read:
 * the bit is the same two laps apart. The answer is one word of 8 bytes: the request's number in its mailbox,
 * the count of bytes or the error, and how often windows were mapped so far.
 *
 * A request must not read words in host memory that all groups share: a load across the link takes about a
 * microsecond, and loads of the same word by many groups do not overlap. Answers carry this information
 * instead.
 */
#ifndef VARVE_GPUFILE_LAYOUT_H
#define VARVE_GPUFILE_LAYOUT_H

#include <stdint.h>

enum {
    VARVE_G_PARTS = 16, /* mailboxes of a stream: two windows of eight parts */
    VARVE_G_FILES_MAX = 4096,
    VARVE_G_STREAMS_MAX = 16384,
    VARVE_G_VERSIONS = 1 << 16,
    VARVE_G_PATH_MAX = 4096
};

/* ---- a request ----
 *   A: lap 1 | op 3 | stream 14 | part 4 | number 8 | file 12 | low 22 bits of the offset
 *   B: lap 1 | high 41 bits of the offset | bytes 22
 */
enum varve_g_op {
    VARVE_G_READ,
    VARVE_G_WRITE,
    VARVE_G_SYNC,
    VARVE_G_OPEN, /* the path is in the part's staging memory; the answer is the number of the file */
    VARVE_G_STAT,     /* checks a mapped file: 0, or -ENODATA if it has become shorter */
    VARVE_G_READ_PAGE /* READ of a window of one page, into page_staging */
};

struct varve_g_request {
    uint64_t offset;
    uint32_t bytes; /* below 4 MiB */
    uint32_t op, stream, part, number, file;
};

/* An entry of the ring. Synchronization: written by the one group that drew its ticket or, if that group gave
 * up, by the one server that drew it; read by that server; stores of the halves release, loads acquire. With
 * slots, entry 16 s + p belongs to part p of stream s, its lap bit is the lowest bit of the request's number,
 * and it always belongs to the same server. */
struct varve_g_entry {
    uint64_t half[2];
    uint64_t read; /* laps that a server has read. Writer: that server */
    uint64_t
        skip; /* last lap (counted from 1) whose group gave up its ticket. Writer: that group */
    /* Padding, so that one server at a time polls a cache line. The link delivers stores in order, and a
     * store to a line that several processors are reading delays all later ones. */
    uint64_t pad[4];
};

#define VARVE_G_LAP_BIT UINT64_C(0x8000000000000000)

/* ---- an answer: mappings 24 | number 8 | result 32 ---- */
#define VARVE_G_ANSWER(maps, n, res) \
    ((uint64_t)(maps) << 40 | (uint64_t)(uint8_t)(n) << 32 | (uint32_t)(res))
#define VARVE_G_ANSWER_NUMBER(v) ((uint32_t)((v) >> 32) & 0xffu)
#define VARVE_G_ANSWER_MAPS(v)   ((uint32_t)((v) >> 40))
#define VARVE_G_MAPS_MASK        0xffffffu

/* ---- the page cache ----
 * A frame is FREE (its owner may fill it), BUSY (being filled), VALID, or FAILED (its bytes turned out to be
 * outdated), and has a count of pins. Pinning changes its word only by additions, so that a pin that
 * comes too late can be taken back.
 *   FREE -> BUSY     linked into the table, pinned by the thread that fills it
 *   BUSY -> VALID    filled
 *   BUSY -> FAILED   and taken out of the table first
 *   VALID, FAILED -> FREE  by compare and swap, when it is not pinned
 * A frame that is VALID and not linked can no longer be found.
 */
#define VARVE_G_PIN    1u
#define VARVE_G_PINS   0x00ffffffu
#define VARVE_G_STATE  0xc0000000u
#define VARVE_G_FREE   0x00000000u
#define VARVE_G_BUSY   0x40000000u
#define VARVE_G_VALID  0x80000000u
#define VARVE_G_FAILED 0xc0000000u
#define VARVE_G_NONE   0xffffffffu

struct varve_g_frame {
    uint64_t page; /* of the file. Synchronization: relaxed; stable while pinned */
    uint32_t file;
    uint32_t next;   /* in its chain, VARVE_G_NONE: last. Synchronization: the bucket's lock to
                        write, relaxed to read */
    uint32_t word;   /* state and pins */
    uint32_t linked; /* Synchronization: the bucket's lock */
    uint32_t pad[2];
};

struct varve_g_bucket {
    uint32_t lock, head;
};

/* ---- a stream: state of one group while it has a file open; the next group inherits it ---- */
struct varve_g_stream {
    uint64_t cursor; /* extent << 32 | frames taken of it */
    uint32_t taken;  /* a group has it */
    uint32_t lock;   /* of the fields below, and of the links of its extents */
    uint32_t extents;
    uint32_t stuck; /* one bit for each part whose answer timed out. Owner: the group */
    uint8_t number[VARVE_G_PARTS];  /* of the last request of each part. Owner: the group */
    uint64_t ticket[VARVE_G_PARTS]; /* of the last request of each part. Owner: the group */
    /* A write in part 0 whose answer timed out. Owner: the group */
    uint64_t late_off;
    uint32_t late_bytes, late_file; /* late_bytes 0: none */
    uint64_t hits, misses, mapped_bytes, served_bytes, bypassed_bytes, requests, requested_bytes,
        waits_ns;
};

/* Device memory that all groups change. Each field has a cache line of its own. */
struct varve_g_shared {
    uint64_t ticket; /* next ticket of the ring */
    uint64_t pad0[15];
    uint64_t clock; /* of writes */
    uint64_t pad1[15];
    uint32_t extents; /* given out so far */
    uint32_t active;  /* streams in use */
    uint64_t pad2[15];
    uint32_t queue_lock; /* of the one queue, in that mode */
    uint32_t queue_next;
    uint64_t pad3[15];
};

/* Host memory: a file. The other fields are written before `word`. */
struct varve_g_file {
    uint64_t
        word; /* flags (varve_gfile_flags) | 0x80 open, or 0. Synchronization: release, acquire */
    uint64_t bytes;
    uint64_t windows; /* first of the table, plus 1; 0: none */
    uint64_t pad;
};
#define VARVE_G_FILE_OPEN 0x80u
#define VARVE_G_WRITABLE  2u

/* Same values as in varve/gpufile.h, which kernels need not include. */
/* FIXED and SLOTS are for measurements; the public API does not set them. */
enum { VARVE_G_ADAPTIVE, VARVE_G_FIXED, VARVE_G_AHEAD_OFF };
enum { VARVE_G_TICKETS, VARVE_G_SLOTS };

/* Host memory that concerns all groups. */
struct varve_g_host {
    uint64_t servers; /* running */
    uint64_t maps;    /* how often a window was mapped, modulo 2^24 */
    uint64_t pad[14];
};

/* Argument of kernels, by value. */
struct varve_gfs {
    /* device memory */
    struct varve_g_shared *shared;
    struct varve_g_frame *frames;
    struct varve_g_bucket *buckets;
    struct varve_g_stream *streams;
    uint32_t *extent_next; /* links of the extents of a stream, a ring */
    uint64_t *ring_done;   /* laps of each entry of the ring that were answered */
    uint64_t *versions;    /* by hash of the page: the clock of its last write */
    uint64_t *grown;       /* for each file, the end of what kernels wrote */
    uint64_t *windows;     /* cached entries of host_windows: an address; or an odd number, 2 * the
                              count of mappings at which it was not mapped, + 1; or 0 */
    unsigned char *data;   /* of the frames */
    /* host memory, by the device's addresses */
    struct varve_g_entry *ring;
    uint64_t *mailboxes;    /* VARVE_G_PARTS of each stream */
    unsigned char *staging; /* two windows of each stream */
    /* One page for each window. Random reads use only one page of a window, and on both sides of the link
     * pages close together are accessed faster than pages a window apart. NULL: not used. */
    unsigned char *page_staging;
    const struct varve_g_file *files;
    const uint64_t *host_windows; /* device address of each window; 0: not mapped */
    const struct varve_g_host *host;

    uint64_t timeout_ns;
    uint64_t cache_bytes;
    uint32_t page_shift, window_shift;
    uint32_t n_frames, n_buckets, n_streams, n_files, n_ring;
    uint32_t extent_frames, n_extents;
    uint32_t readahead_bytes, split_bytes;
    uint32_t readahead, replace, bypass, queue;
};

#endif
