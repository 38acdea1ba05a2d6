/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Varve: an application's data laid down through device memory, host memory and local disk, and
 * brought back up before the application asks for it. This header has what all faces of the library
 * share: contexts, options, errors, levels and statistics. The checkpoint history is in
 * <varve/ckpt.h>.
 *
 * Conventions. Functions return 0 or a negative errno value. Outputs come last, are named `ret_`,
 * and are written only on success. The library never prints, aborts or exits. Structures that may
 * grow start with their size.
 *
 * Threads. Every function may be called from any thread, and calls on one context from several
 * threads at once, except that a handle must not be used during or after the call that closes it.
 *
 * Fork. A context belongs to the process that opened it. In a forked child every call on it returns
 * -EPERM and changes nothing; the child opens its own context.
 */
#ifndef VARVE_VARVE_H
#define VARVE_VARVE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define VARVE_API   __attribute__((visibility("default")))
#define VARVE_CHECK __attribute__((warn_unused_result))
#else
#define VARVE_API
#define VARVE_CHECK
#endif

struct varve_ctx;

/* How far the bytes of a version have come, and so what they survive. */
enum varve_level {
    VARVE_LEVEL_CACHED,  /* device or host memory: survives nothing */
    VARVE_LEVEL_LOCAL,   /* local disk, synced, committed by rename: survives the end of the process
                            at any instant */
    VARVE_LEVEL_REMOTE,  /* shared storage, by the same commit: survives the loss of the node */
    VARVE_LEVEL_COMPLETE /* shared storage on every rank of the job, with one record written last:
                            survives the loss of any rank half-way through */
};

enum varve_device_kind {
    VARVE_DEVICE_AUTO, /* a GPU if the process uses CUDA when the context is opened (a context is
                          current in the calling thread, or a primary one active), otherwise none:
                          programs that do not use CUDA do not pay for it */
    VARVE_DEVICE_CUDA, /* an NVIDIA GPU, on its primary context; an error where there is none */
    VARVE_DEVICE_HOST, /* the emulated device: separate memory and copy engines, on the CPU */
    VARVE_DEVICE_NONE  /* host memory only */
};

enum varve_policy_kind {
    VARVE_POLICY_NEXT,      /* paged, partly resident, farthest next use: the default */
    VARVE_POLICY_SCORE,     /* contiguous windows by score, waits for the window it chose */
    VARVE_POLICY_SCORE_NOW, /* the same, but looks again at every completion */
    VARVE_POLICY_FIFO,
    VARVE_POLICY_LRU
};

enum varve_local_io {
    VARVE_LOCAL_IO_AUTO,    /* direct where the file system allows it, otherwise buffered */
    VARVE_LOCAL_IO_DIRECT,  /* past the page cache; an error where the file system refuses */
    VARVE_LOCAL_IO_BUFFERED /* through the page cache */
};

enum varve_local_sync {
    VARVE_LOCAL_SYNC_COMMIT, /* what is on local disk survives a power cut */
    VARVE_LOCAL_SYNC_OFF /* it survives the end of the process; the kernel writes when it likes */
};

enum varve_spill {
    VARVE_SPILL_SHARED, /* one file in each folder for all versions */
    VARVE_SPILL_RECORD  /* one for each version */
};

enum {
    VARVE_PATH_BYTES = 1024,
    VARVE_RATE_BYTES = 1024,
    VARVE_RUN_BYTES = 256,
    VARVE_NODE_BYTES = 256,
    VARVE_PARITY_BYTES = 16,
    VARVE_CORES_BYTES = 256
};

/*
 * Options of a context. Plain data: it may be copied, and the library keeps no pointer into it.
 * Fields are only ever appended; `opts_size` tells how many the program knows.
 */
struct varve_opts {
    size_t opts_size;         /* sizeof(struct varve_opts), as varve_opts_init sets it */
    int device;               /* enum varve_device_kind */
    int policy;               /* enum varve_policy_kind */
    int level;                /* enum varve_level: how far every version shall come */
    int local_io;             /* enum varve_local_io */
    uint64_t device_cache;    /* bytes of device memory for copies; 0: no cache on the device */
    uint64_t host_cache;      /* bytes of host memory for copies, buffers for the disk included (see
                                 varve.conf(5)); 0: only what is needed to pass through */
    uint64_t local_cache;     /* bytes on local disk at most; 0: no limit of ours */
    uint32_t page_bytes;      /* unit of space and transfer: a power of two, 4 KiB to 64 MiB;
                                 0: 64 KiB to 1 MiB, by the sizes of the caches */
    int32_t rank;             /* of this process; part of the names of its files */
    int32_t trace;            /* not 0: record events in memory, the last of each thread */
    int32_t close_timeout_ms; /* how long closing may wait for pending flushes; negative: without
                                 limit */
    char local[VARVE_PATH_BYTES]; /* folder on local disk; empty: no disk tier. Created if missing,
                                      but not the folders above it */
    char
        remote[VARVE_PATH_BYTES]; /* folder on shared storage, for levels remote and complete, which
                                      need it; at level cached the layer behind the local folder, for
                                      what does not fit there; not used at level local. Created if
                                      missing, but not the folders above it */
    char rate[VARVE_RATE_BYTES];  /* "d2d=4G,h2f=40M": slow these hops down to so many bytes/s;
                                      empty: full speed */
    int32_t device_id;            /* which GPU, as CUDA counts; -1: that of the current CUDA
                                      context, or else one in use, or else the first */
    int32_t gds;                  /* not 0: GPUDirect Storage between device and local disk, or
                                      -ENOTSUP from varve_open; not used without either of them */
    uint64_t run_id; /* of this life of the job, the same on every rank, another one at every start;
                        0: drawn at opening. Files carry it, so that versions of the same number
                        from two lives of a job differ; with another lower half, so do versions
                        that one life writes twice. */
    char trace_file[VARVE_PATH_BYTES]; /* where events are recorded, for `varve trace`; empty: they
                                          are not. "%p" is the process id, "%r" the rank. See
                                          varve/trace.h */
    char stats[VARVE_PATH_BYTES];   /* where figures are published for `varve top`: "auto", "off" or
                                       a folder; a place that cannot be used counts as "off" */
    char metrics[VARVE_PATH_BYTES]; /* file for Prometheus, rewritten every few seconds; empty:
                                       none. %p: process, %r: rank */
    int32_t reserved;               /* 0; not used, keeps the place of an option that is gone */
    int32_t ranks;             /* processes of the job; rank is below it at level complete. What
                                    several wrote another number of them is refused */
    uint64_t remote_rate;      /* bytes/s that all processes of the node together write to the
                                      remote folder at most; 0: no limit */
    char run[VARVE_RUN_BYTES]; /* what tells this start of the job from all others, the same on
                                      all ranks; empty: drawn, for one rank only */
    uint64_t local_rate; /* bytes/s that all processes of the node together write to the disk of
                                      the local folder at most; 0: no limit */
    int32_t partner;     /* not 0: checkpoints have a second copy on another node, at level
                                      local, see varve/transport.h; needs varve_open_mpi or
                                      varve_open_with */
    int32_t partner_timeout_ms;  /* how long the partner may leave a copy unanswered */
    char node[VARVE_NODE_BYTES]; /* what processes call alike that are lost together; empty: the
                                      machine */
    int32_t helpers;             /* threads that help to copy in host memory; -1: by the machine */
    int32_t helper_nice;         /* priority of the library's threads, -20 to 19 */
    char helper_cores[VARVE_CORES_BYTES]; /* where they run: "auto", "any" or a list, "28-31" */
    int32_t helper_process; /* not 0: one process on the node reads and writes files for all who
                               name it alike */
    char helper_name[VARVE_NODE_BYTES]; /* empty: processes of a batch job, or all of the user's */
    char helper_program[VARVE_PATH_BYTES]; /* the program `varve`; empty: it is looked for */
    int32_t
        spill; /* enum varve_spill: files of level cached; a hint, for file systems that can give
                      parts of a file back, without GPUDirect Storage */
    char
        rank_cores[VARVE_CORES_BYTES]; /* processors that the job's processes on this node are bound
                                           to, as a list, for helper_cores = auto; empty: found out */
    int32_t local_sync;                /* enum varve_local_sync: levels from local on */
    int32_t parity_set;                /* processes of a set, about; with parity */
    char
        parity[VARVE_PARITY_BYTES]; /* "off", "xor" or "rs:2": what any one process of a set, or any
                                          two, have lost comes back from the others' local disks. At level
                                          local, see varve/transport.h; needs varve_open_mpi or
                                          varve_open_with */
};

/*
 * Fills in the defaults, overridden by the file that VARVE_CONFIG names if it is set, and that by the
 * environment (VARVE_HOST_CACHE=4G sets host_cache, and so on). `opts_size` is sizeof(struct
 * varve_opts). -EINVAL: NULL, an absurd size, a malformed variable or line of the file; -ENOENT and the
 * like: the file cannot be read. varve_error(NULL) names what is wrong. Blocks while the file is read.
 */
VARVE_API int varve_opts_init(struct varve_opts *opts, size_t opts_size) VARVE_CHECK;
/*
 * Reads an INI file over what `opts` holds, and the environment over that: the environment
 * overrides the file, the file the defaults. Values that the program wants to insist on are
 * assigned after this call. -ENOENT and the like: the file cannot be read; -EINVAL: unknown key or
 * malformed value. varve_error(NULL) tells file and line. On failure `opts` is as before.
 */
VARVE_API int varve_opts_load(struct varve_opts *opts, const char *ini_path) VARVE_CHECK;
/* Sets one option by its configuration key, such as "host_cache", "4G". -EINVAL: unknown key or
 * malformed value. */
VARVE_API int varve_opts_set(struct varve_opts *opts, const char *key,
                             const char *value) VARVE_CHECK;

/*
 * Opens a context: allocates the caches and starts the threads that move data. `opts` may be NULL
 * for the defaults (VARVE_CONFIG and the environment included) and is not needed afterwards. The first part of the host
 * cache is ready when this returns; threads make the rest while the context is in use. If that
 * fails, the next checkpoint, restore, flush or start of prefetching on the context returns the
 * error, once, and the context goes on with what there is. The caller owns the context and ends it
 * with varve_close.
 *   -EINVAL   an option makes no sense, a level without its folder, or level `complete` on several
 *             ranks without `run`
 *   -ENODEV   no NVIDIA driver, or no GPU that can be used
 *   -ENOTSUP  GPUDirect Storage together with a remote level, or a driver or GPU that is too old
 *   -ENOMEM   a cache cannot be allocated; for the device the text says how much is free
 *   other     the folder cannot be used
 * varve_error(NULL) tells more.
 */
VARVE_API int varve_open(const struct varve_opts *opts, struct varve_ctx **ret_ctx) VARVE_CHECK;
/*
 * Closes the context and all its histories; NULL is allowed. The context is gone whatever the
 * result, but for -EBUSY. At level `local` it first finishes the flushes that can be finished, for at most
 * `close_timeout_ms`; what did not reach the disk by then is dropped, and the result is -ETIMEDOUT
 * or the error that held it up. Versions that had reached the disk stay. At levels `remote` and
 * `complete` the same holds for the shared folder; closing does not wait for other ranks. At level
 * `cached` everything is dropped. If there is no other error and the trace file could not be written to
 * its end, that error is returned, with a record (varve_last_error) whose operation is "trace":
 * versions have been treated as said above. No other call on the context may be in progress, no region lent
 * or reserved, and no vector may have memory of it: -EBUSY otherwise, and the context stays open.
 */
VARVE_API int varve_close(struct varve_ctx *ctx);

/* The part that cannot be used after an error. */
enum varve_scope {
    VARVE_SCOPE_OPERATION, /* this call only */
    VARVE_SCOPE_TIER,      /* a tier: data that is only there cannot be had */
    VARVE_SCOPE_DEVICE,    /* the device is lost */
    VARVE_SCOPE_CONTEXT    /* the context: close it */
};

struct varve_error {
    size_t error_size;  /* in: sizeof(struct varve_error) */
    int err;            /* negative errno, as returned; 0: no error yet */
    int scope;          /* enum varve_scope */
    int tier;           /* index of the tier, fast to slow, or -1 */
    int region;         /* or -1 */
    int code;           /* the foreign code behind `err`, in the terms of `domain`; 0: none */
    uint64_t version;   /* of the history, where one is concerned */
    char operation[32]; /* "checkpoint", "restore", ... */
    char domain[16];    /* "errno", "cuda", ...: whose code `code` is */
    char text[256];     /* readable, one line */
};

/*
 * The record of the last call on the context that failed. With `ctx` NULL: the last failure, in the
 * calling thread, of a call that has no context (varve_opts_init, _load, _set, varve_open,
 * varve_blocks_bytes, varve_tables_plan, ...) or ends it (varve_close), -EBUSY of it included. The
 * record's `err` tells whether it is that of the error one has.
 *   -EINVAL   NULL or absurd size
 *   -ENODATA  nothing has failed yet
 */
VARVE_API int varve_last_error(struct varve_ctx *ctx, struct varve_error *ret_error) VARVE_CHECK;
/*
 * The text of the last call that failed in the calling thread, one line, for the check in one line:
 *
 *     if (varve_checkpoint(h, v))
 *         return fprintf(stderr, "%s\n", varve_error(ctx)), 1;
 *
 * `ctx` is the context of the call, or NULL: after varve_open has failed, or where the program has
 * only one. If the last failure of this thread was on another context, or it had none, the text is
 * that of the last failure on `ctx` in any thread. Never NULL; "success" before the first failure. A
 * call that succeeds leaves it as it is. The library owns the string, which is valid until the next
 * call in this thread. Does not block.
 */
VARVE_API const char *varve_error(struct varve_ctx *ctx);
/* A readable text for a result of this library, never NULL. The string is constant. Safe in any
 * thread. */
VARVE_API const char *varve_strerror(int err);
/* The version of the library, such as "0.2.0". */
VARVE_API const char *varve_version(void);

enum { VARVE_TIERS_MAX = 4, VARVE_HOPS = 6 };

/* The hops, in the order in which struct varve_stats lists them. */
enum varve_hop {
    VARVE_HOP_D2D, /* within a device */
    VARVE_HOP_H2H, /* between the application's host memory and the host cache */
    VARVE_HOP_D2H,
    VARVE_HOP_H2D,
    VARVE_HOP_H2F, /* host to file */
    VARVE_HOP_F2H
};

struct varve_stats {
    size_t stats_size;                     /* in: sizeof(struct varve_stats) */
    uint64_t checkpoints, restores;        /* that were begun */
    uint64_t restore_hits, restore_misses; /* complete in the first tier when asked for, or not */
    uint64_t hints;                        /* versions that varve_hint named */
    uint64_t evicted_pages;                /* that made room in a cache */
    uint64_t revoked_pages; /* brought up for a restore that was hinted, and given up before it */
    uint64_t discarded;     /* versions */
    uint64_t versions;      /* objects that the context knows of */
    uint64_t checkpoint_bytes, restore_bytes; /* of regions, written and read back */
    uint64_t checkpoint_blocked_ns;       /* time that calls of the application took, added up */
    uint64_t restore_blocked_ns;          /* the same of restores */
    uint64_t moved_bytes[VARVE_HOPS];     /* by each hop, enum varve_hop */
    uint64_t rate[VARVE_HOPS];            /* measured bytes/s of each hop; 0: not known yet */
    uint64_t page_bytes;                  /* unit of space and transfer */
    uint32_t tiers;                       /* how many there are, fast to slow */
    uint64_t tier_bytes[VARVE_TIERS_MAX]; /* of each; 0: no limit of ours */
    uint64_t tier_used_bytes[VARVE_TIERS_MAX]; /* of each, in use */
    uint64_t metadata_bytes;                   /* memory that the bookkeeping itself takes */
    uint64_t last_restore_distance;   /* hinted versions ready in the fastest tier when the last
                                       restore came */
    uint64_t last_restore_blocked_ns; /* how long it took */
    /* The part of the host cache that is ready: it is made while the first checkpoints are
     * taken. Less than its tier_bytes until then. */
    uint64_t host_ready_bytes;
    /* How many bytes of each memory tier were in use for how many seconds, added up over time, and
     * until when (a monotonic clock). The difference between two calls, over capacity and time, is
     * the share that was in use between them. */
    double tier_used_byte_s[VARVE_TIERS_MAX];
    uint64_t used_until_ns;
    /* Levels remote and complete: bytes of data copied to the shared folder and read from there;
     * chunks read from there because the local copy was bad, and chunks put right where they
     * were. */
    uint64_t remote_written_bytes, remote_read_bytes;
    uint64_t healed_chunks, repaired_chunks;
    /* Level cached with a local and a remote folder, which are two layers, in this order: bytes in use,
     * the most that ever were, and the limit; bytes that were moved from the one to the other; and the
     * bandwidths measured, 0: not known yet. The two figures before are the second layer's then. */
    uint64_t layer_used_bytes[2], layer_peak_bytes[2], layer_bytes[2];
    uint64_t moved_down_bytes, moved_up_bytes;
    uint64_t layer_write_rate[2], layer_read_rate[2];
    /* Partner copies: bytes of checkpoints copied to the partner and for others; bytes of disk that
     * others' copies take here; copies that failed; versions that came back when a history was
     * opened, and chunks that varve_history_repair repaired. */
    uint64_t partner_sent_bytes, partner_received_bytes, partner_held_bytes;
    uint64_t partner_errors, partner_recovered, partner_repaired_chunks;
    /* The library's threads: how many there are, the processor time that they, and those that have
     * ended, took, and the processors that they are bound to; 0: none. */
    uint64_t helper_threads, helper_cpu_ns, helper_cores;
    /* Three layers: how often the local folder was found slower than the remote one, and whether
     * writes go past it now, until a trial shows that it has recovered. */
    uint64_t layer_skips, layer_skipped;
    /* The helper process of the node: its number, 0: none; whether it is there; what it has read and
     * written for this context, the processor time that it took for that, and requests that were done
     * in this process because it had ended or refused them. */
    uint64_t helper_pid, helper_alive, helper_requests, helper_bytes, helper_process_cpu_ns;
    uint64_t helper_redone;
    /* Partner copies: how many were made, to the partner and for others, and how many versions here
     * have none yet, because it is on its way or because it failed. */
    uint64_t partner_sent, partner_received, partner_pending;
    /* The speed-up over blocking I/O on the slowest layer, computing as between the calls so far: what
     * the performance model (varve-model(1)) expects of the bandwidths measured at the start and of
     * those measured while running, and what came of it; and how long it expects calls to take. 0: not
     * known, as long as nothing has gone to the slowest layer, or where calls of several threads
     * overlap. Bandwidths at the start are those of the first 64 MiB. */
    double expected_speedup_start, expected_speedup, actual_speedup;
    uint64_t expected_blocked_ns;
    uint64_t start_rate[VARVE_HOPS], layer_start_write_rate[2], layer_start_read_rate[2];
    /* Host memory that data passes through to the disk and back. With the tier_bytes of the host tier
     * it makes up `host_cache`, or comes on top of one below 16 MiB. */
    uint64_t buffer_bytes;
};
#define partner_mended_chunks partner_repaired_chunks /* its former name, until 0.3 */

/* Figures of the context since it was opened. Caller sets stats_size. Does not block. -EINVAL:
 * NULL, absurd size. */
VARVE_API int varve_stats(struct varve_ctx *ctx, struct varve_stats *ret_stats) VARVE_CHECK;

struct varve_helper {
    char name[24];   /* what it does: "h2f" moves from host to file; "process 4711" or "ended 4711":
                        the helper process of the node, with what it did for this context */
    int cpu;         /* the processor that it ran on last; -1: not known */
    int nice;        /* its priority */
    uint64_t cpu_ns; /* processor time that it has taken */
};

/*
 * The library's threads of a context, and its helper process: up to `max` of them in `ret_helpers`, which may be NULL if
 * `max` is 0, and how many there are in `ret_count`. Does not block.
 */
VARVE_API int varve_helpers(struct varve_ctx *ctx, struct varve_helper *ret_helpers, size_t max,
                            size_t *ret_count) VARVE_CHECK;

/*
 * Memory of the context's device, real or emulated. The caller owns it and frees it with
 * varve_device_free before the context is closed. -ENODEV: the context has no device; -ENOMEM: not
 * so much is free; -EINVAL: 0 bytes.
 */
VARVE_API int varve_device_alloc(struct varve_ctx *ctx, size_t bytes, void **ret_ptr) VARVE_CHECK;
/* Frees memory of varve_device_alloc; NULL is allowed. -EINVAL: not such a pointer. */
VARVE_API int varve_device_free(struct varve_ctx *ctx, void *ptr);
/* Copies between any two of host and device memory, and returns when it is done. -ENODEV, or the
 * device's error. */
VARVE_API int varve_device_copy(struct varve_ctx *ctx, void *dst, const void *src,
                                size_t bytes) VARVE_CHECK;

#ifdef __cplusplus
}
#endif

#endif
