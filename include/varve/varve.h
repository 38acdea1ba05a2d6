/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Varve: moves an application's data down through device memory, host memory and local disk, and
 * brings it back up before the application asks for it. This header declares what all parts of the
 * library share: contexts, options, errors, levels and statistics. Checkpoint histories are in
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

/* How far down a version has been written, and therefore which failures it survives. */
enum varve_level {
    VARVE_LEVEL_CACHED,  /* device or host memory: survives nothing */
    VARVE_LEVEL_LOCAL,   /* local disk, synced, committed by rename: survives the end of the process
                            at any instant */
    VARVE_LEVEL_REMOTE,  /* shared storage, by the same commit: survives the loss of the node */
    VARVE_LEVEL_COMPLETE /* shared storage, by every rank of the job, and one record written last:
                            survives the loss of any rank at any time */
};

enum varve_device_kind {
    VARVE_DEVICE_AUTO, /* a GPU if the process already uses CUDA when the context is opened (the
                          calling thread has a current context, or a primary one is active),
                          otherwise none: programs without CUDA do not pay for it */
    VARVE_DEVICE_CUDA, /* an NVIDIA GPU, on its primary context; an error if there is none */
    VARVE_DEVICE_HOST, /* the emulated device: separate memory and copy engines, on the CPU */
    VARVE_DEVICE_NONE  /* host memory only */
};

enum varve_policy_kind {
    VARVE_POLICY_NEXT,      /* paged, partly resident, farthest next use: the default */
    VARVE_POLICY_SCORE,     /* contiguous windows by score, waits for the window it chose */
    VARVE_POLICY_SCORE_NOW, /* the same, but chooses again at every completion */
    VARVE_POLICY_FIFO,
    VARVE_POLICY_LRU
};

enum varve_local_io {
    VARVE_LOCAL_IO_AUTO,    /* direct where the file system allows it, otherwise buffered */
    VARVE_LOCAL_IO_DIRECT,  /* past the page cache; an error if the file system refuses it */
    VARVE_LOCAL_IO_BUFFERED /* through the page cache */
};

enum varve_local_sync {
    VARVE_LOCAL_SYNC_COMMIT, /* a version on local disk survives a power cut */
    VARVE_LOCAL_SYNC_OFF     /* it survives the end of the process only: nothing is synced */
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
 * New fields are only appended; `opts_size` says how many the program was compiled with.
 */
struct varve_opts {
    size_t opts_size;         /* sizeof(struct varve_opts), as varve_opts_init sets it */
    int device;               /* enum varve_device_kind */
    int policy;               /* enum varve_policy_kind */
    int level;                /* enum varve_level: the level that every version is to reach */
    int local_io;             /* enum varve_local_io */
    uint64_t device_cache;    /* bytes of device memory for copies; 0: no cache on the device */
    uint64_t host_cache;      /* bytes of host memory for copies, including buffers for the disk
                                 (see varve.conf(5)); 0: only what data needs to pass through */
    uint64_t local_cache;     /* limit of bytes on local disk; 0: none */
    uint32_t page_bytes;      /* unit of space and transfer: a power of two, 4 KiB to 64 MiB;
                                 0: 16 KiB to 1 MiB, by the sizes of the caches */
    int32_t rank;             /* rank of this process; part of the names of its files */
    int32_t trace;            /* not 0: record the latest events of each thread in memory */
    int32_t close_timeout_ms; /* how long closing may wait for pending flushes; negative: without
                                 limit */
    char local[VARVE_PATH_BYTES];  /* folder on local disk; empty: no disk tier. Created if missing,
                                      but not the folders above it */
    char remote[VARVE_PATH_BYTES]; /* folder on shared storage, required by levels remote and
                                      complete. At level cached it is the layer behind the local
                                      folder, for data that does not fit there. Not used at level
                                      local. Created if missing, but not the folders above it */
    char rate[VARVE_RATE_BYTES];   /* "d2d=4G,h2f=40M": limit these hops to so many bytes/s; empty:
                                      full speed */
    int32_t device_id;             /* the GPU's number in CUDA; -1: the GPU of the current CUDA
                                      context, else one in use, else the first */
    int32_t gds;                   /* not 0: GPUDirect Storage between device and local disk;
                                      varve_open returns -ENOTSUP where it is not available.
                                      Ignored without a device or a local folder */
    uint64_t run_id; /* identifies this run of the job: the same on every rank, different at every
                        start; 0: drawn at opening. Files carry it, so that versions of the same
                        number from two runs differ. A version that one run writes twice gets a
                        run_id with another lower half. */
    char trace_file[VARVE_PATH_BYTES]; /* file for events, read by `varve trace`; empty: no events
                                          are recorded. "%p" is the process id, "%r" the rank. See
                                          varve/trace.h */
    char stats[VARVE_PATH_BYTES];   /* where figures are published for `varve top`: "auto", "off" or
                                       a folder; a place that cannot be used counts as "off" */
    char metrics[VARVE_PATH_BYTES]; /* file for Prometheus, rewritten every few seconds; empty:
                                       none. %p: process, %r: rank */
    int32_t reserved;               /* must be 0; place of an option that was removed */
    int32_t ranks;             /* number of processes of the job; at level complete rank is below
                                    it. A history that another number of ranks wrote is refused */
    uint64_t remote_rate;      /* limit, in bytes/s, of what all processes of the node together
                                      write to the remote folder; 0: none */
    char run[VARVE_RUN_BYTES]; /* identifies this start of the job, the same on all ranks; empty:
                                      drawn, which works for one rank only */
    uint64_t local_rate; /* limit, in bytes/s, of what all processes of the node together write to
                                      the disk of the local folder; 0: none */
    int32_t partner;     /* not 0: checkpoints have a second copy on another node, at level
                                      local, see varve/transport.h; requires varve_open_mpi or
                                      varve_open_with */
    int32_t partner_timeout_ms;  /* longest time without an answer of the partner to a copy */
    char node[VARVE_NODE_BYTES]; /* failure domain of this process: two processes with the same
                                      name are never partners; empty: name of the machine */
    int32_t helpers;             /* threads that help to copy in host memory; -1: chosen by the
                                      number of processors */
    int32_t helper_nice;         /* priority of the library's threads, -20 to 19 */
    char helper_cores[VARVE_CORES_BYTES]; /* where they run: "auto", "any" or a list, "28-31" */
    int32_t helper_process; /* not 0: one process on the node reads and writes files for all
                               processes with the same helper_name */
    char helper_name[VARVE_NODE_BYTES];    /* empty: one helper for the processes of a batch job, or
                                           for all processes of the user */
    char helper_program[VARVE_PATH_BYTES]; /* path of the program `varve`; empty: searched for */
    int32_t
        spill; /* enum varve_spill: layout of the files of level cached. A hint: it is ignored with
                      GPUDirect Storage, and where the file system cannot free parts of a file */
    char
        rank_cores[VARVE_CORES_BYTES]; /* processors that the job's processes on this node are bound
                                           to, as a list, for helper_cores = auto; empty: detected */
    int32_t local_sync;                /* enum varve_local_sync; at level local and above */
    int32_t parity_set;                /* approximate number of processes in a set; with parity */
    char parity[VARVE_PARITY_BYTES]; /* "off", "xor" or "rs:2": the versions of any one process of a
                                          set ("xor"), or of any two ("rs:2"), are rebuilt from the
                                          others' local disks. At level local, see
                                          varve/transport.h; requires varve_open_mpi or
                                          varve_open_with */
};

/*
 * Fills in the defaults. The file that VARVE_CONFIG names, if it is set, overrides the defaults, and
 * the environment overrides the file (VARVE_HOST_CACHE=4G sets host_cache, and so on). `opts_size` is
 * sizeof(struct varve_opts). -EINVAL: NULL, an impossible size, a malformed variable or line of the
 * file; -ENOENT and the like: the file cannot be read. varve_error(NULL) says what is wrong. Blocks
 * while the file is read.
 */
VARVE_API int varve_opts_init(struct varve_opts *opts, size_t opts_size) VARVE_CHECK;
/*
 * Reads an INI file, then the environment, into `opts`: the file overrides what `opts` holds, and the
 * environment overrides the file. To override both, assign to the fields after this call. -ENOENT and
 * the like: the file cannot be read; -EINVAL: unknown key or malformed value. varve_error(NULL) names
 * file and line. On failure `opts` is unchanged.
 */
VARVE_API int varve_opts_load(struct varve_opts *opts, const char *ini_path) VARVE_CHECK;
/* Sets one option by its configuration key, such as "host_cache", "4G". -EINVAL: unknown key or
 * malformed value. */
VARVE_API int varve_opts_set(struct varve_opts *opts, const char *key,
                             const char *value) VARVE_CHECK;

/*
 * Opens a context: allocates the caches and starts the threads that move data. `opts` may be NULL
 * for the defaults (including VARVE_CONFIG and the environment) and is not needed afterwards. The first
 * part of the host cache is ready when this returns; threads prepare the rest while the context is in
 * use. If that fails, the next checkpoint, restore, flush or start of prefetching on the context returns
 * the error, once, and the context continues with the memory that it has. The caller owns the context
 * and ends it with varve_close.
 *   -EINVAL   an option is invalid, a level lacks its folder, or level `complete` on several ranks
 *             lacks `run`
 *   -ENODEV   no NVIDIA driver, or no GPU that can be used
 *   -ENOTSUP  GPUDirect Storage together with a remote level, or a driver or GPU that is too old
 *   -ENOMEM   a cache cannot be allocated; for the device the text says how much is free
 *   other     the folder cannot be used
 * varve_error(NULL) gives the details.
 */
VARVE_API int varve_open(const struct varve_opts *opts, struct varve_ctx **ret_ctx) VARVE_CHECK;
/*
 * Closes the context and all its histories; NULL is allowed. The context is freed with every result
 * except -EBUSY. At level `local` the call first finishes the flushes that can be finished, for at most
 * `close_timeout_ms`; versions that did not reach the disk by then are dropped, and the result is
 * -ETIMEDOUT or the error that stopped them. Versions that had reached the disk stay. At levels `remote`
 * and `complete` the same holds for the shared folder; closing does not wait for other ranks. At level
 * `cached` everything is dropped. If there is no other error and the end of the trace file could not be
 * written, that error is returned, with a record (varve_last_error) whose operation is "trace"; versions
 * are not affected by it. -EBUSY: another call on the context is in progress, a region is lent or reserved,
 * or a vector has memory of it; the context stays open.
 */
VARVE_API int varve_close(struct varve_ctx *ctx);

/* The part that cannot be used after an error. */
enum varve_scope {
    VARVE_SCOPE_OPERATION, /* only this call failed */
    VARVE_SCOPE_TIER,      /* a tier failed: data that is only there cannot be read */
    VARVE_SCOPE_DEVICE,    /* the device is lost */
    VARVE_SCOPE_CONTEXT    /* the context cannot be used: close it */
};

struct varve_error {
    size_t error_size;  /* in: sizeof(struct varve_error) */
    int err;            /* negative errno, as returned; 0: no error yet */
    int scope;          /* enum varve_scope */
    int tier;           /* index of the tier, fast to slow, or -1 */
    int region;         /* or -1 */
    int code;           /* the original code behind `err`, of the system in `domain`; 0: none */
    uint64_t version;   /* the version concerned, if any */
    char operation[32]; /* "checkpoint", "restore", ... */
    char domain[16];    /* "errno", "cuda", ...: the system that `code` comes from */
    char text[256];     /* readable, one line */
};

/*
 * The record of the last call on the context that failed. With `ctx` NULL: the last failure, in the
 * calling thread, of a call that has no context (varve_opts_init, _load, _set, varve_open,
 * varve_blocks_bytes, varve_tables_plan, ...) or ends it (varve_close, including its -EBUSY). Compare
 * the record's `err` with the result of the call to see that it belongs to it.
 *   -EINVAL   NULL or an impossible size
 *   -ENODATA  nothing has failed yet
 */
VARVE_API int varve_last_error(struct varve_ctx *ctx, struct varve_error *ret_error) VARVE_CHECK;
/*
 * The text of the last call that failed in the calling thread, one line, for a check such as:
 *
 *     if (varve_checkpoint(h, v))
 *         return fprintf(stderr, "%s\n", varve_error(ctx)), 1;
 *
 * `ctx` is the context of the call, or NULL: after varve_open has failed, or if the program has only
 * one context. If the last failure of this thread was on another context, or this thread had none, the
 * text is that of the last failure on `ctx` in any thread. Never NULL; "success" before the first
 * failure. A call that succeeds does not change it. The library owns the string, which is valid until
 * the next call in this thread. Does not block.
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
    VARVE_HOP_D2H, /* device to host */
    VARVE_HOP_H2D, /* host to device */
    VARVE_HOP_H2F, /* host to file */
    VARVE_HOP_F2H  /* file to host */
};

struct varve_stats {
    size_t stats_size;              /* in: sizeof(struct varve_stats) */
    uint64_t checkpoints, restores; /* begun */
    uint64_t restore_hits,
        restore_misses;     /* restores: version complete in the first tier, or not */
    uint64_t hints;         /* versions that varve_hint named */
    uint64_t evicted_pages; /* pages evicted from a cache */
    uint64_t revoked_pages; /* pages prefetched for a hinted restore and evicted before it */
    uint64_t discarded;     /* versions discarded */
    uint64_t versions;      /* objects in the context */
    uint64_t checkpoint_bytes, restore_bytes; /* bytes of regions written, and read back */
    uint64_t checkpoint_blocked_ns;           /* total time of the application's checkpoint calls */
    uint64_t restore_blocked_ns;              /* the same for restores */
    uint64_t moved_bytes[VARVE_HOPS];         /* by each hop, enum varve_hop */
    uint64_t rate[VARVE_HOPS];                /* measured bytes/s of each hop; 0: not known yet */
    uint64_t page_bytes;                      /* unit of space and transfer */
    uint32_t tiers;                       /* number of tiers; arrays list them from fast to slow */
    uint64_t tier_bytes[VARVE_TIERS_MAX]; /* size of each; 0: unlimited */
    uint64_t tier_used_bytes[VARVE_TIERS_MAX]; /* bytes in use of each */
    uint64_t metadata_bytes;                   /* memory of the bookkeeping itself */
    uint64_t last_restore_distance;   /* hinted versions that were ready in the fastest tier when
                                       the last restore began */
    uint64_t last_restore_blocked_ns; /* time of the last restore */
    /* The part of the host cache that is ready. The cache is prepared while the first checkpoints
     * are taken, so this is less than its tier_bytes until then. */
    uint64_t host_ready_bytes;
    /* Bytes of each memory tier in use, integrated over time, in byte-seconds; used_until_ns is the
     * end of the integral (a monotonic clock). The difference between two calls, divided by capacity
     * and time, is the average share in use between them. */
    double tier_used_byte_s[VARVE_TIERS_MAX];
    uint64_t used_until_ns;
    /* Levels remote and complete: bytes of data copied to the shared folder and read from there;
     * chunks read from there because the local copy was bad, and chunks repaired in place. */
    uint64_t remote_written_bytes, remote_read_bytes;
    uint64_t healed_chunks, repaired_chunks;
    /* Level cached with a local and a remote folder, which are two layers, in this order: bytes in use,
     * their maximum so far, and the limit; bytes moved from one layer to the other; and measured
     * bandwidths, 0: not known yet. remote_written_bytes and remote_read_bytes then count the second
     * layer. */
    uint64_t layer_used_bytes[2], layer_peak_bytes[2], layer_bytes[2];
    uint64_t moved_down_bytes, moved_up_bytes;
    uint64_t layer_write_rate[2], layer_read_rate[2];
    /* Partner copies: bytes of checkpoints sent to the partner, and received from others; bytes of
     * disk that others' copies take here; copies that failed; versions recovered when a history was
     * opened, and chunks that varve_history_repair repaired. */
    uint64_t partner_sent_bytes, partner_received_bytes, partner_held_bytes;
    uint64_t partner_errors, partner_recovered, partner_repaired_chunks;
    /* The library's threads: their number, the processor time of these and of those that have ended,
     * and the number of processors that they are bound to, 0: not bound. */
    uint64_t helper_threads, helper_cpu_ns, helper_cores;
    /* Level cached with two layers: how often the local folder was found slower than the remote one,
     * and 1 if writes currently bypass it, until a trial shows that it has recovered. */
    uint64_t layer_skips, layer_skipped;
    /* The helper process of the node: its process id, 0: none; 1 if it is alive; requests and bytes
     * that it has handled for this context, its processor time for them, and requests that this
     * process did itself because the helper had ended or refused them. */
    uint64_t helper_pid, helper_alive, helper_requests, helper_bytes, helper_process_cpu_ns;
    uint64_t helper_redone;
    /* Partner copies: how many were sent to the partner, and received from others, and how many
     * versions of this process have no copy yet, because it is on its way or failed. */
    uint64_t partner_sent, partner_received, partner_pending;
    /* Speed-up over blocking I/O on the slowest layer, for the same computation between calls: what
     * the performance model (varve-model(1)) expects from the bandwidths measured at the start, what
     * it expects from those measured while running, and the actual one; and the time that the model
     * expects calls to take. 0: not known, because nothing has gone to the slowest layer yet or calls
     * of several threads overlap. Bandwidths at the start are those of the first 64 MiB. */
    double expected_speedup_start, expected_speedup, actual_speedup;
    uint64_t expected_blocked_ns;
    uint64_t start_rate[VARVE_HOPS], layer_start_write_rate[2], layer_start_read_rate[2];
    /* Host memory that data passes through to the disk and back. It is part of `host_cache`, whose
     * rest is the tier_bytes of the host tier; with a host_cache below 16 MiB it comes on top. */
    uint64_t buffer_bytes;
};
#define partner_mended_chunks partner_repaired_chunks /* its former name, until 0.3 */

/* Figures of the context since it was opened. The caller sets stats_size. Does not block. -EINVAL:
 * NULL or an impossible size. */
VARVE_API int varve_stats(struct varve_ctx *ctx, struct varve_stats *ret_stats) VARVE_CHECK;

struct varve_helper {
    char name[24];   /* its task: "h2f" moves data from host to file; "process 4711" or "ended 4711"
                        is the helper process of the node, with its work for this context */
    int cpu;         /* processor that it ran on last; -1: not known */
    int nice;        /* its priority */
    uint64_t cpu_ns; /* its processor time */
};

/*
 * Lists the library's threads of a context and its helper process: stores up to `max` of them in
 * `ret_helpers`, which may be NULL if `max` is 0, and their full number in `ret_count`. Does not block.
 */
VARVE_API int varve_helpers(struct varve_ctx *ctx, struct varve_helper *ret_helpers, size_t max,
                            size_t *ret_count) VARVE_CHECK;

/*
 * Memory of the context's device, real or emulated. The caller owns it and frees it with
 * varve_device_free before the context is closed. -ENODEV: the context has no device; -ENOMEM: not
 * enough is free; -EINVAL: 0 bytes.
 */
VARVE_API int varve_device_alloc(struct varve_ctx *ctx, size_t bytes, void **ret_ptr) VARVE_CHECK;
/* Frees memory of varve_device_alloc; NULL is allowed. -EINVAL: any other pointer. */
VARVE_API int varve_device_free(struct varve_ctx *ctx, void *ptr);
/* Copies between host and device memory in any combination, and returns when the copy is done.
 * -ENODEV: the context has no device; otherwise the device's error. */
VARVE_API int varve_device_copy(struct varve_ctx *ctx, void *dst, const void *src,
                                size_t bytes) VARVE_CHECK;

#ifdef __cplusplus
}
#endif

#endif
