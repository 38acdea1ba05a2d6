/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The statistics page: a small file in memory in which a process publishes figures. There is one
 * for each context; docs/format/stats-page.md has the format.
 *
 * A page is a header, which never changes, and two records. The writer overwrites the older record;
 * every record carries a sequence number and a checksum. A reader takes the newer one that is whole:
 * it never sees figures of two times mixed, never waits for the writer, and gets the last figures
 * of a process that was killed while it wrote.
 *
 * Nothing is mapped: both sides use pread and pwrite, so that a full or truncated file is an error
 * and not a signal.
 *
 * A writer belongs to one thread at a time, and to the process that opened it. Any thread of any
 * process may read at any time.
 */
#ifndef VV_STATS_PAGE_H
#define VV_STATS_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

#define VV_STATS_MAGIC "varvest\n"

enum {
    VV_STATS_FORMAT = 1,
    VV_STATS_TIERS = 8,
    VV_STATS_HOPS = 16,
    VV_STATS_HISTORIES = 16,
    VV_STATS_SLOTS = 2,
    VV_STATS_PATH = 1200,
};

/* Written once. All numbers are in the byte order of the machine: a page is only read on that machine. */
struct vv_stats_header {
    char magic[8];
    uint32_t format;
    uint32_t header_bytes, record_bytes; /* sizes of the writer: fields may be appended */
    uint32_t slots;
    uint64_t checksum;    /* of header_bytes bytes, this one counted as 0 */
    uint64_t pid;         /* in the namespace of the next line */
    uint64_t pid_space;   /* inode of the process namespace; 0: not known */
    uint64_t start_ticks; /* start of the process, from /proc/PID/stat; 0: not known */
    uint64_t opened_unix_ns, opened_ns; /* the context: wall clock, and CLOCK_MONOTONIC */
    uint64_t interval_ns;               /* longest time between two records */
    uint64_t page_bytes;
    uint32_t context; /* index among the contexts of the process, from 0 */
    int32_t rank;
    char version[16];  /* of the library */
    char program[32];  /* short name */
    char command[256]; /* with arguments, separated by blanks; cut */
    char level[16], policy[16], device[16];
    char local[128];     /* folder; cut */
    uint64_t node, boot; /* the machine, and its current boot; 0: not known */
    uint8_t reserved[48];
};

_Static_assert(sizeof(struct vv_stats_header) == 640, "on disk");

struct vv_stats_tier {
    char name[8];            /* "device", "host", "disk", "remote" */
    char kind[8];            /* "memory", "spill", "files" */
    uint64_t capacity_bytes; /* 0: no limit */
    uint64_t ready_bytes;    /* part that is usable already */
    uint64_t used_bytes, dirty_bytes, evictable_bytes;
    uint64_t copies;    /* of versions, whole or in part */
    double used_byte_s; /* used_bytes, integrated over time */
};

struct vv_stats_hop {
    char name[8]; /* "d2h" */
    uint64_t moved_bytes, busy_ns;
    uint64_t orders; /* in progress or queued */
    uint64_t errors;
    uint64_t bytes_per_s; /* estimate used by scheduling; 0: not known yet */
    uint64_t recent_bytes, recent_busy_ns;
};

struct vv_stats_history {
    char name[64]; /* cut */
    uint64_t versions, durable, failed, hints, ready, pending;
    uint32_t predicting, prefetching;
};

/* Calls of one kind. */
struct vv_stats_calls {
    uint64_t count, bytes, blocked_ns;
    uint64_t waiting; /* in progress */
    uint64_t recent_count, recent_bytes, recent_blocked_ns;
};

enum vv_stats_state { VV_STATS_OPEN, VV_STATS_CLOSING, VV_STATS_CLOSED };

/* Recent figures are those of the last recent_ns nanoseconds. */
struct vv_stats_record {
    uint64_t checksum; /* of record_bytes bytes, this one counted as 0 */
    uint64_t seq;      /* from 1 */
    uint64_t time_ns, unix_ns;
    uint64_t recent_ns;
    uint32_t state; /* enum vv_stats_state */
    uint32_t ntiers, nhops;
    uint32_t nhistories; /* listed below; `histories` counts all */
    uint64_t histories;
    struct vv_stats_calls checkpoint, restore;
    uint64_t waiting_ns; /* time since the oldest call in progress began */
    uint64_t hits, misses;
    uint64_t hints, ready; /* unused hints of all histories; those ready to be restored */
    uint64_t last_distance, last_blocked_ns;
    uint64_t versions; /* written, of all histories */
    uint64_t discarded, evicted_pages, revoked_pages;
    uint64_t metadata_bytes;
    uint64_t failed_calls, late_errors, bad_reads, reread;
    uint64_t buffer_bytes;    /* host memory that data passes through to the disk and back */
    uint64_t healed_chunks;   /* read from shared storage because the local copy was bad */
    uint64_t repaired_chunks; /* bad chunks repaired in place */
    uint64_t page_errors;     /* records and metrics files that could not be written */
    struct vv_stats_tier tier[VV_STATS_TIERS];
    struct vv_stats_hop hop[VV_STATS_HOPS];
    struct vv_stats_history history[VV_STATS_HISTORIES];
    /* The library's threads: their number, processor time of running and ended ones, number of processors that
     * they are bound to (0: not bound), and the list of these. */
    uint64_t helper_threads, helper_cpu_ns, helper_cores;
    char helper_where[64];
    /* The helper process of the node: its process id (0: none), 1 if it is alive, its work for this
     * context and the processor time of that, and the processors that it is bound to. */
    uint64_t process_pid, process_alive, process_requests, process_bytes, process_cpu_ns;
    uint64_t process_redone; /* requests that this process did itself */
    char process_where[64];
    /* Partner copies: sent to the partner and received from others, versions without a copy, copies that
     * failed, versions recovered at opening, chunks repaired, and disk used by copies of others. */
    uint64_t partner_on, partner_sent, partner_received, partner_pending, partner_errors;
    uint64_t partner_sent_bytes, partner_received_bytes, partner_held_bytes;
    uint64_t partner_recovered, partner_repaired_chunks;
    /* Speed-up over blocking I/O on the slowest layer: the one that the model expects from bandwidths
     * measured at the start, from those measured while running, and the measured one; 0: not known. */
    double expected_speedup_start, expected_speedup, actual_speedup;
    /* Reason for the processors of the library's threads: "shared" (the application may use them, too),
     * "left" by its threads, of the "job", "idle", "given"; the processors that the application may
     * use, and their number. */
    char helper_how[16], app_where[64];
    uint64_t app_cpus, recent_helper_cpu_ns;
};

_Static_assert(sizeof(struct vv_stats_record) == 4256, "on disk");

/* ---- writing ---- */

struct vv_stats_writer;

/* Makes a page. `folder` NULL: /dev/shm, or else $XDG_RUNTIME_DIR. The caller fills in the fields of
 * `about` that do not describe the process and the format. -ENOENT, -ENOSPC, -EACCES and the like. */
int vv_stats_writer_open(const char *folder, const struct vv_stats_header *about,
                         struct vv_stats_writer **ret_writer) VV_WARN_UNUSED;
/* Publishes a record; sequence number and checksum are filled in. */
int vv_stats_writer_put(struct vv_stats_writer *w, struct vv_stats_record *record) VV_WARN_UNUSED;
/* The header that was written, and the name of the file. */
const struct vv_stats_header *vv_stats_writer_header(const struct vv_stats_writer *w);
const char *vv_stats_writer_path(const struct vv_stats_writer *w);
/* Removes the page. Accepts NULL. */
void vv_stats_writer_close(struct vv_stats_writer *w);

/* Fills in the fields of `about` that describe this process: those that vv_stats_writer_open fills in, except the
 * format. */
void vv_stats_about_process(struct vv_stats_header *about);

/* ---- reading ---- */

enum vv_stats_owner {
    VV_STATS_ALIVE,
    VV_STATS_DEAD,    /* the process has ended without closing */
    VV_STATS_UNKNOWN, /* it lives, or lived, in another process namespace or on another machine */
};

struct vv_stats_page {
    char path[VV_STATS_PATH];
    uint64_t file[2]; /* device and inode, which identify the file */
    int status;       /* 0: header and record are good */
    char error[160];  /* text for a status other than 0 */
    enum vv_stats_owner owner;
    struct vv_stats_header header;
    struct vv_stats_record record;
};

/* Reads one page. -ENOENT: it was removed; -EACCES: of another user; -EAGAIN: it is being made;
 * -EPROTO: of another version of Varve; -EBADMSG: damaged. Texts are terminated and counts within
 * bounds with every content of the file. ret_page->path and error are filled in on failure too. */
int vv_stats_page_read(const char *path, struct vv_stats_page *ret_page) VV_WARN_UNUSED;

/* Calls back for every page of this user in `folder` (NULL: both default folders, and the folders of
 * running processes), good or bad, except those being made. A result other than 0 ends the calls and is
 * returned. A missing folder has no pages. */
int vv_stats_page_each(const char *folder, int (*fn)(void *arg, const struct vv_stats_page *page),
                       void *arg) VV_WARN_UNUSED;

/* The same for the default folders only: cheap. */
int vv_stats_page_each_usual(int (*fn)(void *arg, const struct vv_stats_page *page),
                             void *arg) VV_WARN_UNUSED;

/* Removes the page of a dead process. -ESTALE: there is another file of that name now. */
int vv_stats_page_remove(const struct vv_stats_page *page) VV_WARN_UNUSED;

/* Removes the pages of processes that have ended. Returns their number. */
unsigned vv_stats_clean(const char *folder);

#endif
