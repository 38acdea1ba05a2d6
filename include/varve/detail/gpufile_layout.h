/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU files, inside: the memory that kernels and servers share. Programs include
 * varve/gpufile_device.h and look at none of this.
 *
 * Device memory holds the page cache: frames, their descriptors, the hash table that finds them, the
 * streams (what an open file of one group of threads owns), counters, and a copy of the table of
 * mapped windows. Host memory, which the device reads and writes across the link, holds the ring of
 * requests, a mailbox for each part of each stream, the staging memory, the table of files and the
 * table of windows. Every word there has one writer at a time.
 *
 * A request is 16 bytes in two halves of 8, each with a bit that changes with every lap of the ring, so
 * that a server knows from either half alone whether it is there, once the request a lap earlier has
 * been read: one of two laps earlier looks the same. Its answer is one word of 8 bytes: the request's number
 * in its mailbox, the count of bytes or the error, and how often windows were mapped so far.
 *
 * Words of the host that all groups would look at for every request are kept out of the way of requests:
 * a load across the link takes about a microsecond, and loads of the same word by many groups do not
 * overlap. What they would say comes with the answers instead.
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
    VARVE_G_STAT,     /* whether the file, if mapped, is as long as it was: 0, or -ENODATA */
    VARVE_G_READ_PAGE /* READ of a window that has one page, to its place among those */
};

struct varve_g_request {
    uint64_t offset;
    uint32_t bytes; /* below 4 MiB */
    uint32_t op, stream, part, number, file;
};

/* An entry of the ring. Synchronization: written by the one group that drew its ticket, or if that gave up by
 * the one server that drew it, and read by that server; stores of the halves release, loads acquire. With slots, entry 16 s + p belongs to
 * part p of stream s, its bit for the lap is the lowest of the request's number, and one server has it
 * for good. */
struct varve_g_entry {
    uint64_t half[2];
    uint64_t read; /* laps that a server has read. Writer: that server */
    uint64_t
        skip; /* laps, if the group that drew the ticket gave up: the last of those. Writer: it */
    /* One server at a time looks at a line. The link delivers stores in order, and one to a line that
     * several processors are reading holds up all that come after it. */
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
 * A frame is FREE for its owner to fill, BUSY while it is filled, VALID, or FAILED: what it was filled with
 * turned out to be old; and pinned by so many. Its word changes by additions alone, so that a pin that
 * comes too late can be taken back.
 *   FREE -> BUSY     linked into the table, pinned by who fills it
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

/* ---- a stream: what one group owns while it has a file open, and leaves to the next ---- */
struct varve_g_stream {
    uint64_t cursor; /* extent << 32 | frames taken of it */
    uint32_t taken;  /* a group has it */
    uint32_t lock;   /* of the fields below, and of the links of its extents */
    uint32_t extents;
    uint32_t stuck; /* one bit for each part whose answer was given up. Owner: the group */
    uint8_t number[VARVE_G_PARTS];  /* of the last request of each part. Owner: the group */
    uint64_t ticket[VARVE_G_PARTS]; /* which it drew. Owner: the group */
    /* A write in part 0 whose answer was given up. Owner: the group */
    uint64_t late_off;
    uint32_t late_bytes, late_file; /* bytes 0: none */
    uint64_t hits, misses, mapped_bytes, served_bytes, bypassed_bytes, requests, requested_bytes,
        waits_ns;
};

/* Device memory that all groups change. Each on a line of its own. */
struct varve_g_shared {
    uint64_t ticket; /* the next of the ring */
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

/* Host memory: a file. Written before its word is. */
struct varve_g_file {
    uint64_t
        word; /* flags (varve_gfile_flags) | 0x80 open, or 0. Synchronization: release, acquire */
    uint64_t bytes;
    uint64_t windows; /* first of the table, plus 1; 0: none */
    uint64_t pad;
};
#define VARVE_G_FILE_OPEN 0x80u
#define VARVE_G_WRITABLE  2u

/* As in varve/gpufile.h, which kernels need not include. */
/* FIXED and SLOTS are not set by the public API: measurements compare with them. */
enum { VARVE_G_ADAPTIVE, VARVE_G_FIXED, VARVE_G_AHEAD_OFF };
enum { VARVE_G_TICKETS, VARVE_G_SLOTS };

/* Host memory: what concerns all. */
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
    uint64_t *grown;       /* bytes of each file, as far as kernels wrote */
    uint64_t *windows;     /* what was seen of host_windows: an address; or, odd, how many mappings
                              there had been when it was not there, doubled; or 0 */
    unsigned char *data;   /* of the frames */
    /* host memory, by the device's addresses */
    struct varve_g_entry *ring;
    uint64_t *mailboxes;    /* VARVE_G_PARTS of each stream */
    unsigned char *staging; /* two windows of each stream */
    /* A page for each of them: random reads use no more of a window, and pages close together are found
     * faster than pages that are a window apart, on both sides of the link. NULL: not done. */
    unsigned char *page_staging;
    const struct varve_g_file *files;
    const uint64_t *host_windows; /* where each is, by the device's addresses; 0: not mapped */
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
