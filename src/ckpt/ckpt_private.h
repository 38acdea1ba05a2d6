/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of ckpt/ share. Nothing outside includes it. */
#ifndef VV_CKPT_PRIVATE_H
#define VV_CKPT_PRIVATE_H

#include <stdarg.h>
#include <stdatomic.h>
#include <sys/types.h>

#include <varve/ckpt.h>
#include <varve/transport.h>
#include <varve/varve.h>

#include "base/idmap.h"
#include "base/lock.h"
#include "engine/runtime/runtime.h"
#include "store/budget.h"
#include "store/partner/partner.h"
#include "store/remote/remote.h"
#include "store/spill/layers.h"
#include "trace/trace.h"

enum { VVI_PIECES_INLINE = 8, VVI_NAME_MAX = 200 };
#define VVI_NAME_RULE "a name has 1 to 200 bytes, no '/', no leading dot" /* VVI_NAME_MAX */

struct vvi_region {
    int id;
    enum vv_mem_kind kind;
    char *ptr;
    size_t bytes;
    uint32_t elem_bytes; /* of a vector; 0: not known */
};

/* A version that is on disk but cannot be used. See damage.c. */
struct vvi_damaged {
    uint64_t version, generation;
    int status;
    bool going; /* being discarded */
    char *what; /* owned */
};

/* Generations from `generation` on, up to the next of its kind, were written by `run_id`. */
struct vvi_run {
    uint64_t generation, run_id;
};

struct varve_history {
    struct varve_ctx *ctx;         /* immutable */
    char *name;                    /* immutable, owned */
    struct vv_files *files;        /* immutable, owned; NULL at level cached. Without a local folder
                                   it is the remote's */
    struct vv_remote_hist *remote; /* immutable, owned; NULL below level remote */
    struct vv_partner_hist *partner; /* immutable, owned; NULL without partner copies */
    uint32_t hist;                   /* immutable */
    bool overwrite;                  /* immutable: versions that exist may be written anew */
    bool consume_once;               /* immutable */
    bool part;                       /* immutable: for reading only, another rank's */
    uint32_t part_rank;              /* immutable: which */
    /* So may those that earlier runs left from `next_version` on, once varve_resume has set it.
     * Synchronization: acquire and release on `resumed`. */
    _Atomic bool resumed;
    _Atomic uint64_t next_version;
    bool ordered;         /* immutable: its order is declared, hints are ours */
    struct vvi_run *runs; /* by ascending generation; immutable once open, owned */
    size_t nruns;
    struct varve_history *next; /* Synchronization: ctx->lock */

    struct vv_mutex lock;
    struct vv_idmap regions; /* of struct vvi_region. Synchronization: lock */
    /* A wait has returned the late error of told_version. Synchronization: lock, both; whether there
     * is one is also looked at without it, relaxed: by a call beside that wait, which may come before
     * or after it. */
    _Atomic bool told;
    uint64_t told_version;
    /* NULL: there was none when it was opened, and there will be none. The pointer is immutable once
     * open; the rest: Synchronization: lock. */
    struct vvi_damaged *damaged;
    size_t ndamaged;
    /* Regions acquired or reserved by the application (region_lease.c). Synchronization: lock. */
    struct vvi_region_lease *region_leases;

    _Atomic uint32_t calls;  /* in progress. Relaxed: only tells misuse from use */
    _Atomic uint32_t leases; /* of lease.c, not given back. Relaxed: as calls */
};

enum vvi_call_kind { VVI_CALL_WRITE, VVI_CALL_READ, VVI_CALL_WAIT, VVI_CALL_KINDS };

/* When the application called. See expect.c. Synchronization: relaxed, each counts for itself. */
struct vvi_calls {
    _Atomic uint64_t last_end_ns, compute_ns[VVI_CALL_KINDS], wait_ns;
    _Atomic bool overlap; /* calls of several threads did */
};

struct varve_ctx {
    pid_t pid; /* immutable, as is all of this block once open */
    struct varve_opts opts;
    struct vv_device *device;
    bool run_drawn;         /* its run id was drawn: no other process has it */
    bool wants_gpu;         /* the device is, or should have been, a real one */
    struct vv_gds *gds;     /* NULL: off */
    struct vv_budget *disk; /* of the local folder; NULL: none */
    struct vv_spill *spill;
    struct vv_layers
        *layers; /* local and remote folder at level cached; NULL: one of them or none */
    struct vv_budget *shared; /* of the remote folder, with layers; NULL: none */
    struct vv_folder *folder; /* of the engine's files; without a local one the remote's own */
    struct vv_remote *remote; /* NULL below level remote */
    struct varve_transport transport; /* zero: none */
    struct vv_partner *partner;       /* NULL: no partner copies */
    struct vv_store *write_store, *read_store;
    struct vv_engine *engine;
    uint32_t trace_id;             /* in traces; never 0 */
    bool trace_file;               /* it has a part in the trace file */
    struct vv_thread_group *group; /* all threads of the context */
    struct vvi_cores *cores;       /* where they run */
    struct vv_helper *helper;      /* the helper process; NULL: none */

    struct vv_mutex lock;
    struct varve_history *histories; /* Synchronization: lock */
    struct varve_error error;        /* Synchronization: lock */

    _Atomic uint32_t calls;
    /* Figures. Synchronization: relaxed, each counts for itself. */
    _Atomic uint64_t checkpoint_bytes, checkpoint_blocked_ns, restore_bytes, restore_blocked_ns;
    _Atomic uint64_t last_distance, last_blocked_ns;
    struct vvi_calls times;
    _Atomic uint64_t failed_calls;
    _Atomic bool closing;

    struct vvi_publisher *publisher; /* NULL: off. Owner: who opens and closes the context */
};

/* ---- place_helpers.c ---- */

/* What there is before the context has threads, and a device; -EINVAL, with a text: an option. */
int vvi_cores_begin(struct varve_ctx *ctx, char *err, size_t err_bytes);
/* Has the group run where the application leaves room. May take some 40 ms if a device was opened
 * faster than that. */
void vvi_cores_decide(struct varve_ctx *ctx);
/* Looks again, now and then. On the publisher's thread. */
void vvi_cores_again(struct varve_ctx *ctx);
void vvi_cores_free(struct vvi_cores *c);

struct vvi_cores_told {
    const char *
        how; /* why the library's threads are where they are: "shared", "left", "job", "idle", "given" */
    const char *app;   /* the processors that the application may use, as a list */
    unsigned app_cpus; /* how many */
};
void vvi_cores_tell(const struct varve_ctx *ctx, struct vvi_cores_told *ret_told);

/* ---- ckpt_error.c ---- */

/* Where and what failed, for the error record. */
struct vvi_where {
    const char *operation;
    uint64_t version;
    int region; /* -1: none */
    int tier;   /* -1: none */
};

/* Records a failure and returns `err`. `ctx` NULL: the calling thread's record. */
int vvi_fail(struct varve_ctx *ctx, const struct vvi_where *where, int err, const char *fmt, ...)
    VV_PRINTF(4, 5);

/* Somebody else's code behind a failure. */
struct vvi_foreign {
    const char *domain; /* NULL: there is none */
    int code;
    const char *name; /* added to the text; may be empty */
};

/* The code behind the last error that this thread got from the device; none if that is NULL. */
struct vvi_foreign vvi_device_code(struct vv_device *device);

/* As vvi_fail, with a foreign code. */
int vvi_fail_foreign(struct varve_ctx *ctx, const struct vvi_where *where, int err,
                     struct vvi_foreign foreign, const char *fmt, ...) VV_PRINTF(5, 6);

/* What a user calls a tier: a setting, not a number. */
const char *vvi_tier_name(const struct varve_ctx *ctx, int tier);

/* ---- explain.c ---- */

/* Why a version did not reach a tier. */
const char *vvi_flush_reason(int err);
/* -ENOSPC or -EFBIG of a put: says what is full, or too small, and what to do about it. */
int vvi_fail_put(struct varve_history *h, uint64_t version, uint64_t size, int rc);
/* A version that could not be flushed; `tier` -1: to the disk. */
int vvi_fail_flush(struct varve_history *h, const char *operation, uint64_t version, int tier,
                   int rc);
/* The same for the first of the history's versions that could not. */
int vvi_fail_flush_all(struct varve_history *h, int rc);

/* ---- layout.c: the regions of a version, as the `user` word of its object ---- */

int vvi_layout_new(const struct vv_store_region *regions, uint32_t n, uint64_t *ret_user);
void vvi_layout_retain(void *arg, uint64_t user);
void vvi_layout_release(void *arg, uint64_t user);
uint32_t vvi_layout_describe(void *arg, uint64_t user, uint64_t size,
                             struct vv_store_region *ret_regions, uint32_t max);
uint32_t vvi_layout_count(uint64_t user);
struct vv_store_region vvi_layout_region(uint64_t user, uint64_t size, uint32_t i);
/* The stored region of this number. As varve_region_size. */
int vvi_region_stored(struct varve_history *h, uint64_t version, int region,
                      struct vv_store_region *ret_region);

/* ---- checkpoint.c ---- */

/* The stream that orders a call: its driver's handle, NULL for the default stream. */
struct vvi_on_stream {
    void *native;
};

/* Deadline of a call that a stream orders: 0 is "do not wait" to the engine. */
uint64_t vvi_on_deadline_ns(int timeout_ms);
/* What failed after its call had returned, told once: recorded, and returned. */
int vvi_history_late_error(struct varve_history *h, const char *operation);
/* The same of one version, for calls that read it. */
int vvi_version_late_error(struct varve_history *h, const char *operation, uint64_t version);
/* Records "version N: text of the error". */
int vvi_history_say(struct varve_history *h, const char *operation, uint64_t version, int rc);
/* `on` NULL: as blocking calls. */
int vvi_checkpoint(struct varve_history *h, uint64_t version, const struct vvi_on_stream *on,
                   int timeout_ms);
int vvi_restore(struct varve_history *h, uint64_t version, const struct vvi_on_stream *on,
                int timeout_ms);
/* The same for this memory alone, as if it were the one region protected. */
int vvi_checkpoint_of(struct varve_history *h, uint64_t version, const struct vvi_region *region,
                      uint64_t deadline_ns);
int vvi_restore_to(struct varve_history *h, uint64_t version, const struct vvi_region *region,
                   uint64_t deadline_ns);
/* Counts as a restore of `size` bytes that has been made, without one. */
void vvi_restored(struct varve_history *h, uint64_t version, uint64_t size, uint64_t start_ns);

/* What a restore gets. -ENOENT: there is none, or a stream has still to write it. Otherwise as
 * vv_engine_lookup, which answers from the version that such a stream replaces. */
VV_WARN_UNUSED int vvi_lookup_last(struct varve_history *h, uint64_t version,
                                   struct vv_object_info *ret_info);
/* A version that a stream has still to write may be waited for; 0: it is there, or was. `on`: the
 * deadline 0 means not to wait. */
int vvi_await_written(struct varve_history *h, const char *operation, uint64_t version, bool on,
                      uint64_t deadline_ns);
/* Says where the bytes are that did not verify. */
void vvi_damage_fail(struct varve_history *h, const char *operation,
                     const struct vv_object_info *info);

/* ---- region_lease.c ---- */

/* Regions that are lent or reserved now. */
size_t vvi_region_leases_count(struct varve_history *h);

/* ---- ckpt_trace.c ---- */

/* The history as traces know it. */
static inline uint64_t vvi_trace_history(const struct varve_history *h)
{
    return VV_TRACE_HISTORY(h->ctx->trace_id, h->hist);
}

/* Around each call in which the application waits. */
static inline void vvi_trace_call(const struct varve_history *h, enum vv_trace_call call,
                                  uint64_t version)
{
    vv_trace(VV_TRACE_CALL_START, call, vvi_trace_history(h), version, 0);
}

static inline void vvi_trace_call_end(const struct varve_history *h, enum vv_trace_call call,
                                      uint64_t version, uint64_t bytes, int status)
{
    vv_trace5(VV_TRACE_CALL_END, call, vvi_trace_history(h), version, bytes,
              (uint64_t)(int64_t)status);
}

/* Begins what the options ask for, when the rest of the context is there. -EBUSY, -EEXIST, or the
 * error of opening the file, with a text. */
int vvi_trace_open(struct varve_ctx *ctx, char *err, size_t err_bytes);
/* What can only be said at the end, while the engine is there. */
void vvi_trace_closing(struct varve_ctx *ctx);
/* The context's part in the trace ends. The error for which the file is not whole. */
int vvi_trace_close(struct varve_ctx *ctx);
/* Records that, and returns it. */
int vvi_trace_fail(const char *file, int rc);

/* ---- ckpt_options.c ---- */

/* Calls back for each key of the configuration with its value as text. */
void vvi_opts_each(const struct varve_opts *opts,
                   void (*fn)(void *arg, const char *key, const char *value), void *arg);

/* The options of a context: `opts`, and the defaults, environment included, for whatever it has not
 * (NULL: everything). -EINVAL with a text. */
int vvi_opts_take(const struct varve_opts *opts, char *err, size_t err_bytes,
                  struct varve_opts *ret_opts);
/* What a context needs to know beyond struct varve_opts. -EINVAL with a text. */
int vvi_opts_check(const struct varve_opts *opts, uint64_t ret_rate[VV_HOP_COUNT], char *err,
                   size_t err_bytes);
/* What the hops to and from the remote folder are slowed down to; 0: full speed. */
void vvi_opts_remote_rates(const struct varve_opts *opts, uint64_t *ret_f2r, uint64_t *ret_r2f);

/* ---- context.c ---- */

/* Brackets a call on a context or history. -EINVAL, or -EPERM in a forked child; then no leave. */
int vvi_ctx_enter(struct varve_ctx *ctx);
void vvi_ctx_leave(struct varve_ctx *ctx);
int vvi_history_enter(struct varve_history *h);
void vvi_history_leave(struct varve_history *h);
/* A store of the context's storage, for one thread; closed by its own `close`. */
int vvi_store_open(struct varve_ctx *ctx, struct vv_store **ret_store);

/* ---- publish.c: figures for `varve top` and Prometheus ---- */

/* Starts a thread that publishes them, if options ask for it. Only a `metrics` file that cannot be
 * written is an error, with a text. */
int vvi_publisher_start(struct varve_ctx *ctx, char *err, size_t err_bytes);
/* Ends it, before anything that it looks at is taken apart. The page goes, the metrics file stays.
 */
void vvi_publisher_stop(struct varve_ctx *ctx);

/* ---- damage.c: versions whose files were found unusable at opening ---- */

/* Fills in the list, before anybody else has the history. -ENOMEM. */
int vvi_damage_find(struct varve_history *h);
void vvi_damage_free(struct varve_history *h);
/* 0, or for a version of the list `refusal` (0: what is wrong with its file), recorded with a
 * text. With a `refusal` the version is to be written: if it may be replaced, a damaged file is removed. */
int vvi_damage_check(struct varve_history *h, const char *operation, uint64_t version, int refusal);
/* Removes the file; waits for the disk. -ENOENT: not in the list. */
int vvi_damage_discard(struct varve_history *h, uint64_t version);

/* ---- expect.c ---- */

struct vvi_expected {
    double speedup_start, speedup,
        actual;          /* over blocking I/O on the slowest layer; 0: not known */
    uint64_t blocked_ns; /* by the model, as `speedup` */
};

/* A call that began then has ended: counts what it took, and returns it. */
uint64_t vvi_call_ended(struct varve_ctx *ctx, enum vvi_call_kind kind, uint64_t start_ns);
void vvi_expect(const struct varve_ctx *ctx, const struct vv_core_stats *stats,
                struct vvi_expected *ret_expected);

/* ---- open_helper.c ---- */

/* The helper process of the node, if it is wanted and can be had. */
void vvi_helper_open(struct varve_ctx *ctx);
void vvi_helper_stats(struct varve_ctx *ctx, struct varve_stats *stats);
struct vv_stats_record;
void vvi_helper_publish(const struct varve_ctx *ctx, struct vv_stats_record *record);
/* As one more of the library's helpers. False: there is none. */
bool vvi_helper_describe(struct varve_ctx *ctx, struct varve_helper *ret_helper);

/* ---- ckpt_spill.c: level cached, what memory does not hold ---- */

/* With the folders that are given. `fast`: the store of the local one. */
VV_WARN_UNUSED int vvi_spill_open(struct varve_ctx *ctx, const struct vv_store_opts *fast,
                                  char *err, size_t err_bytes);
uint32_t vvi_spill_pages(const struct varve_ctx *ctx);
/* With the layers. Both as struct vv_engine_cfg and varve_stats have it. */
void vvi_spill_gone(void *layers, uint32_t first, uint32_t n);
void vvi_spill_stats(struct varve_ctx *ctx, struct varve_stats *stats);

/* Is there a shared folder behind the local one? */
bool vvi_is_shared(const struct varve_opts *opts);
/* The id that a text stands for. */
uint64_t vvi_shared_run_id(const char *run);
/* Where the engine's files are. */
const char *vvi_files_path(const struct varve_ctx *ctx);
/* `store`: as for the local folder; rates of the hops to and from the shared folder, 0: none. */
int vvi_shared_open(struct varve_ctx *ctx, const struct vv_store_opts *store, uint64_t f2r,
                    uint64_t r2f, char *err, size_t err_bytes);
/* Opens the history's shared half; h->files, if there is a local folder, is open. */
int vvi_shared_history(struct varve_history *h, char *err, size_t err_bytes);
/* Can a version of this size be brought to the local folder at all? */
bool vvi_shared_fits(const struct varve_ctx *ctx, uint64_t size);
/* All of these record what they return. The version is committed in the engine's folder. */
int vvi_shared_wait(struct varve_history *h, uint64_t version, enum varve_level level,
                    uint64_t deadline_ns);
/* `alone`: as far as this rank can bring them without the others. */
int vvi_shared_flush(struct varve_history *h, const char *operation, bool alone,
                     uint64_t deadline_ns);
int vvi_shared_late_error(struct varve_history *h, const char *operation);
/* ---- ckpt_partner.c: partner copies ---- */

bool vvi_transport_ok(const struct varve_transport *transport);
/* Collective, whatever has failed before (`status`): opens the context's half, after its folder. */
/* How many of a set may be lost; 0: no parity. -EINVAL: the option is not off, xor or rs:K. */
int vvi_opts_parity(const struct varve_opts *o, uint32_t *ret_lost);
int vvi_partner_context(struct varve_ctx *ctx, int status, char *err, size_t err_bytes);
/* Collective in the same way; h->files is open, if that has not failed. */
int vvi_partner_history(struct varve_history *h, int status, char *err, size_t err_bytes);
/* The engine has the versions that were found, and hears of their copies from now on. */
void vvi_partner_start(struct varve_history *h);
/* With partner copies: this process cannot open a history that the others are opening, and they hear of
 * it. Returns `rc`. */
int vvi_partner_refuse(struct varve_ctx *ctx, const char *name, int rc);
/* Inside of a call of the application, on its thread: does what can be done at once. */
void vvi_partner_attend(struct varve_ctx *ctx);
/* A checkpoint, or the local half of waiting for one, has failed. */
void vvi_partner_give_up(struct varve_history *h, uint64_t version, int rc);
/* Both record what they return; 0 without partner copies. The version is on local disk. */
int vvi_partner_wait(struct varve_history *h, uint64_t version, uint64_t deadline_ns);
int vvi_partner_flush(struct varve_history *h, uint64_t deadline_ns);

/* ---- inquire.c ---- */

/* May it be overwritten? */
bool vvi_replaces(struct varve_history *h, uint64_t version);

/* ---- part.c ---- */

/* 0, or -EROFS with a text: it is a part of another job's history. */
int vvi_may_write(struct varve_history *h, const char *operation, uint64_t version);

/* ---- history.c ---- */

int vvi_name_check(const char *name);
/* The history as the engine knows it, with all that was found. */
int vvi_history_engine(struct varve_history *h, const struct vv_core_hist_cfg *cfg);
/* Of one that the engine does not know, or not any more. Accepts NULL. */
void vvi_history_free(struct varve_history *h);

/* Is it a region that can be copied? Fills in its kind. -EINVAL, or as varve_protect, with a text. */
VV_WARN_UNUSED int vvi_region_check(struct varve_ctx *ctx, const struct vvi_where *here,
                                    struct vvi_region *r);
/* Is memory of it in the application's hands? Then a text. */
bool vvi_history_held(struct varve_history *h, char *text, size_t text_bytes);
/* Ends a history that is out of the context's list; returns what flushing by the deadline came to.
 * `text` is filled in if that is an error. */
int vvi_history_end(struct varve_history *h, uint64_t deadline_ns, char *text, size_t text_bytes);

#endif
