/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations shared by the files of ckpt/. No other module includes it. */
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
    uint32_t elem_bytes; /* size of an element of a vector; 0: not known */
};

/* A version that is on disk but cannot be used. See damage.c. */
struct vvi_damaged {
    uint64_t version, generation;
    int status;
    bool going; /* it is being discarded */
    char *what; /* owned */
};

/* `run_id` wrote the generations from `generation` up to that of the next entry. */
struct vvi_run {
    uint64_t generation, run_id;
};

struct varve_history {
    struct varve_ctx *ctx;           /* immutable */
    char *name;                      /* immutable, owned */
    struct vv_files *files;          /* immutable, owned; NULL at level cached. Files of the remote
                                   folder if there is no local one */
    struct vv_remote_hist *remote;   /* immutable, owned; NULL below level remote */
    struct vv_partner_hist *partner; /* immutable, owned; NULL without partner copies */
    uint32_t hist;                   /* immutable */
    bool overwrite;                  /* immutable: existing versions may be overwritten */
    bool consume_once;               /* immutable */
    bool part;                       /* immutable: read-only part of another rank */
    uint32_t part_rank;              /* immutable: that rank */
    /* Once varve_resume has set it, versions from `next_version` on that earlier runs left may be
     * overwritten too. Synchronization: acquire and release on `resumed`. */
    _Atomic bool resumed;
    _Atomic uint64_t next_version;
    bool ordered;         /* immutable: its order is declared, the library makes the hints */
    struct vvi_run *runs; /* by ascending generation; immutable once open, owned */
    size_t nruns;
    struct varve_history *next; /* Synchronization: ctx->lock */

    struct vv_mutex lock;
    struct vv_idmap regions; /* of struct vvi_region. Synchronization: lock */
    /* A wait has returned the late error of reported_version. Synchronization: lock, both fields.
     * `reported` is also loaded without it, relaxed: by a call concurrent with that wait, which may come
     * before or after it. */
    _Atomic bool reported;
    uint64_t reported_version;
    /* NULL: there was none when the history was opened, and there will be none. Synchronization: the
     * pointer is immutable once open; lock for the content. */
    struct vvi_damaged *damaged;
    size_t ndamaged;
    /* Regions acquired or reserved by the application (region_lease.c). Synchronization: lock. */
    struct vvi_region_lease *region_leases;

    _Atomic uint32_t calls;  /* calls in progress. Relaxed: only detects misuse */
    _Atomic uint32_t leases; /* open leases of lease.c. Relaxed: like calls */
};

enum vvi_call_kind { VVI_CALL_WRITE, VVI_CALL_READ, VVI_CALL_WAIT, VVI_CALL_KINDS };

/* Times of the application's calls. See expect.c. Synchronization: relaxed, fields are independent. */
struct vvi_calls {
    _Atomic uint64_t last_end_ns, compute_ns[VVI_CALL_KINDS], wait_ns;
    _Atomic bool overlap; /* calls of several threads have overlapped */
};

struct varve_ctx {
    pid_t pid; /* immutable once open, like all of this block */
    struct varve_opts opts;
    struct vv_device *device;
    bool run_drawn;         /* the run id was drawn: no other process has it */
    bool wants_gpu;         /* the options ask for a real device */
    struct vv_gds *gds;     /* NULL: off */
    struct vv_budget *disk; /* of the local folder; NULL: none */
    struct vv_spill *spill;
    struct vv_layers
        *layers; /* local and remote folder at level cached; NULL: one of them or none */
    struct vv_budget *shared; /* of the remote folder, with layers; NULL: none */
    struct vv_folder *folder; /* of the engine's files: the local folder, or else the remote one */
    struct vv_remote *remote; /* NULL below level remote */
    struct varve_transport transport; /* zero: none */
    struct vv_partner *partner;       /* NULL: no partner copies */
    struct vv_store *write_store, *read_store;
    struct vv_engine *engine;
    uint32_t trace_id;             /* in traces; never 0 */
    bool trace_file;               /* it records into the trace file */
    struct vv_thread_group *group; /* all threads of the context */
    struct vvi_cores *cores;       /* their processors */
    struct vv_helper *helper;      /* the helper process; NULL: none */

    struct vv_mutex lock;
    struct varve_history *histories; /* Synchronization: lock */
    struct varve_error error;        /* Synchronization: lock */

    _Atomic uint32_t calls;
    /* Figures. Synchronization: relaxed, fields are independent. */
    _Atomic uint64_t checkpoint_bytes, checkpoint_blocked_ns, restore_bytes, restore_blocked_ns;
    _Atomic uint64_t last_distance, last_blocked_ns;
    struct vvi_calls times;
    _Atomic uint64_t failed_calls;
    _Atomic bool closing;

    struct vvi_publisher
        *publisher; /* NULL: off. Owner: the thread that opens and closes the context */
};

/* ---- place_helpers.c ---- */

/* Collects the state before the context has threads and a device. -EINVAL, with a text: an invalid option. */
int vvi_cores_begin(struct varve_ctx *ctx, char *err, size_t err_bytes);
/* Moves the group to processors that the application leaves free. May take about 40 ms, unless opening the
 * device has taken that time. */
void vvi_cores_decide(struct varve_ctx *ctx);
/* Decides again from time to time. On the publisher's thread. */
void vvi_cores_again(struct varve_ctx *ctx);
void vvi_cores_free(struct vvi_cores *c);

struct vvi_cores_report {
    const char *how; /* reason for the processors of the library's threads: "shared", "left", "job",
                        "idle", "given" */
    const char *app; /* the processors that the application may use, as a list */
    unsigned app_cpus; /* their number */
};
void vvi_cores_describe(const struct varve_ctx *ctx, struct vvi_cores_report *ret_report);

/* ---- ckpt_error.c ---- */

/* The operation that failed, and its place, for the error record. */
struct vvi_where {
    const char *operation;
    uint64_t version;
    int region; /* -1: none */
    int tier;   /* -1: none */
};

/* Records a failure and returns `err`. `ctx` NULL: the calling thread's record. */
int vvi_fail(struct varve_ctx *ctx, const struct vvi_where *where, int err, const char *fmt, ...)
    VV_PRINTF(4, 5);

/* The code of another interface behind a failure. */
struct vvi_foreign {
    const char *domain; /* NULL: there is none */
    int code;
    const char *name; /* added to the text; may be empty */
};

/* The code behind this thread's last error from the device; none if `device` is NULL. */
struct vvi_foreign vvi_device_code(struct vv_device *device);

/* Same as vvi_fail, with a foreign code. */
int vvi_fail_foreign(struct varve_ctx *ctx, const struct vvi_where *where, int err,
                     struct vvi_foreign foreign, const char *fmt, ...) VV_PRINTF(5, 6);

/* The name of a tier for users: a setting, not a number. */
const char *vvi_tier_name(const struct varve_ctx *ctx, int tier);

/* ---- explain.c ---- */

/* A text for the reason why a version did not reach a tier. */
const char *vvi_flush_reason(int err);
/* Reports -ENOSPC or -EFBIG of a put: which tier is full or too small, and what to do. */
int vvi_fail_put(struct varve_history *h, uint64_t version, uint64_t size, int rc);
/* Reports a version that could not be flushed; `tier` -1: to the disk. */
int vvi_fail_flush(struct varve_history *h, const char *operation, uint64_t version, int tier,
                   int rc);
/* The same for the first version of the history that could not be flushed. */
int vvi_fail_flush_all(struct varve_history *h, int rc);

/* ---- layout.c: the regions of a version, as the `user` word of its object ---- */

int vvi_layout_new(const struct vv_store_region *regions, uint32_t n, uint64_t *ret_user);
void vvi_layout_retain(void *arg, uint64_t user);
void vvi_layout_release(void *arg, uint64_t user);
uint32_t vvi_layout_describe(void *arg, uint64_t user, uint64_t size,
                             struct vv_store_region *ret_regions, uint32_t max);
uint32_t vvi_layout_count(uint64_t user);
struct vv_store_region vvi_layout_region(uint64_t user, uint64_t size, uint32_t i);
/* The stored region with this number. Errors are those of varve_region_size. */
int vvi_region_stored(struct varve_history *h, uint64_t version, int region,
                      struct vv_store_region *ret_region);

/* ---- checkpoint.c ---- */

/* The stream that orders a call: its driver's handle, NULL for the default stream. */
struct vvi_on_stream {
    void *native;
};

/* Deadline of a stream-ordered call: to the engine 0 means "do not wait". */
uint64_t vvi_on_deadline_ns(int timeout_ms);
/* Records and returns, once, a failure that came after its call had returned. */
int vvi_history_late_error(struct varve_history *h, const char *operation);
/* The same for one version, for calls that read it. */
int vvi_version_late_error(struct varve_history *h, const char *operation, uint64_t version);
/* Records "version N: text of the error". */
int vvi_history_say(struct varve_history *h, const char *operation, uint64_t version, int rc);
/* `on` NULL: a blocking call. */
int vvi_checkpoint(struct varve_history *h, uint64_t version, const struct vvi_on_stream *on,
                   int timeout_ms);
int vvi_restore(struct varve_history *h, uint64_t version, const struct vvi_on_stream *on,
                int timeout_ms);
/* The same for this memory only, as if it were the only protected region. */
int vvi_checkpoint_of(struct varve_history *h, uint64_t version, const struct vvi_region *region,
                      uint64_t deadline_ns);
int vvi_restore_to(struct varve_history *h, uint64_t version, const struct vvi_region *region,
                   uint64_t deadline_ns);
/* Counts a restore of `size` bytes that was made without a copy. */
void vvi_restored(struct varve_history *h, uint64_t version, uint64_t size, uint64_t start_ns);

/* Looks up the version that a restore gets. -ENOENT: there is none, or a stream has not written it yet.
 * Otherwise like vv_engine_lookup, which returns the version that such a stream replaces. */
VV_WARN_UNUSED int vvi_lookup_last(struct varve_history *h, uint64_t version,
                                   struct vv_object_info *ret_info);
/* Waits for a version that a stream has not written yet. 0: it exists, or existed. `on`: the deadline 0 means
 * not to wait. */
int vvi_await_written(struct varve_history *h, const char *operation, uint64_t version, bool on,
                      uint64_t deadline_ns);
/* Reports the place of damaged bytes. */
void vvi_damage_fail(struct varve_history *h, const char *operation,
                     const struct vv_object_info *info);

/* ---- region_lease.c ---- */

/* Number of regions that are lent or reserved now. */
size_t vvi_region_leases_count(struct varve_history *h);

/* ---- ckpt_trace.c ---- */

/* The history's id in traces. */
static inline uint64_t vvi_trace_history(const struct varve_history *h)
{
    return VV_TRACE_HISTORY(h->ctx->trace_id, h->hist);
}

/* Called at the beginning and the end of each call in which the application waits. */
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

/* Joins the trace file of the options, after the rest of the context was made. -EBUSY, -EEXIST, or the error
 * of opening the file, with a text. */
int vvi_trace_open(struct varve_ctx *ctx, char *err, size_t err_bytes);
/* Adds the final figures to the trace, before the engine is freed. */
void vvi_trace_closing(struct varve_ctx *ctx);
/* Leaves the trace file. Returns the error because of which the file is incomplete. */
int vvi_trace_close(struct varve_ctx *ctx);
/* Records that error, and returns it. */
int vvi_trace_fail(const char *file, int rc);

/* ---- ckpt_options.c ---- */

/* Calls back for each key of the configuration with its value as text. */
void vvi_opts_each(const struct varve_opts *opts,
                   void (*fn)(void *arg, const char *key, const char *value), void *arg);

/* The options of a context: `opts`, and the defaults, including the environment, for missing fields (NULL: all
 * fields). -EINVAL with a text. */
int vvi_opts_take(const struct varve_opts *opts, char *err, size_t err_bytes,
                  struct varve_opts *ret_opts);
/* Checks the options and parses their rates. -EINVAL with a text. */
int vvi_opts_check(const struct varve_opts *opts, uint64_t ret_rate[VV_HOP_COUNT], char *err,
                   size_t err_bytes);
/* The rates to which the hops to and from the remote folder are limited; 0: full speed. */
void vvi_opts_remote_rates(const struct varve_opts *opts, uint64_t *ret_f2r, uint64_t *ret_r2f);

/* ---- context.c ---- */

/* Enter and leave bracket a call on a context or history. -EINVAL, or -EPERM in a forked child; then leave is not
 * called. */
int vvi_ctx_enter(struct varve_ctx *ctx);
void vvi_ctx_leave(struct varve_ctx *ctx);
int vvi_history_enter(struct varve_history *h);
void vvi_history_leave(struct varve_history *h);
/* A store of the context's storage, for one thread; closed by its own `close`. */
int vvi_store_open(struct varve_ctx *ctx, struct vv_store **ret_store);

/* ---- publish.c: figures for `varve top` and Prometheus ---- */

/* Starts a thread that publishes figures, if options ask for it. The only error, with a text, is a `metrics` file
 * that cannot be written. */
int vvi_publisher_start(struct varve_ctx *ctx, char *err, size_t err_bytes);
/* Ends the thread, before anything that it reads is freed. Removes the page; the metrics file stays. */
void vvi_publisher_stop(struct varve_ctx *ctx);

/* ---- damage.c: versions whose files were found unusable at opening ---- */

/* Fills in the list, before other threads have the history. -ENOMEM. */
int vvi_damage_find(struct varve_history *h);
void vvi_damage_free(struct varve_history *h);
/* Returns 0 if the version is not in the list. Otherwise returns `refusal` or, if that is 0, the error of its file,
 * recorded with a text. A call with a `refusal` is about to write the version: if the version may be replaced, a
 * damaged file is removed first. */
int vvi_damage_check(struct varve_history *h, const char *operation, uint64_t version, int refusal);
/* Removes the file; waits for the disk. -ENOENT: not in the list. */
int vvi_damage_discard(struct varve_history *h, uint64_t version);

/* ---- expect.c ---- */

struct vvi_expected {
    double speedup_start, speedup,
        actual;          /* over blocking I/O on the slowest layer; 0: not known */
    uint64_t blocked_ns; /* by the model, like `speedup` */
};

/* Counts a call that began at start_ns and has ended now, and returns its time. */
uint64_t vvi_call_ended(struct varve_ctx *ctx, enum vvi_call_kind kind, uint64_t start_ns);
void vvi_expect(const struct varve_ctx *ctx, const struct vv_core_stats *stats,
                struct vvi_expected *ret_expected);

/* ---- open_helper.c ---- */

/* Connects to the helper process of the node, if the options ask for it and it is available. */
void vvi_helper_open(struct varve_ctx *ctx);
void vvi_helper_stats(struct varve_ctx *ctx, struct varve_stats *stats);
struct vv_stats_record;
void vvi_helper_publish(const struct varve_ctx *ctx, struct vv_stats_record *record);
/* Describes the helper process as one more entry of varve_helpers. False: there is none. */
bool vvi_helper_describe(struct varve_ctx *ctx, struct varve_helper *ret_helper);

/* ---- ckpt_spill.c: level cached, data beyond memory ---- */

/* Opens a spill file or layers in the folders of the options. `fast`: options for the local folder's store. */
VV_WARN_UNUSED int vvi_spill_open(struct varve_ctx *ctx, const struct vv_store_opts *fast,
                                  char *err, size_t err_bytes);
uint32_t vvi_spill_pages(const struct varve_ctx *ctx);
/* With layers: the callback pages_gone of struct vv_engine_cfg, and the layers' part of varve_stats. */
void vvi_spill_gone(void *layers, uint32_t first, uint32_t n);
void vvi_spill_stats(struct varve_ctx *ctx, struct varve_stats *stats);

/* True if the options have a shared folder, at level remote or complete. */
bool vvi_is_shared(const struct varve_opts *opts);
/* The run id for the text of option `run`. */
uint64_t vvi_shared_run_id(const char *run);
/* The folder of the engine's files. */
const char *vvi_files_path(const struct varve_ctx *ctx);
/* `store`: options of the local folder's store; f2r, r2f: rates of the hops to and from the shared folder, 0: no
 * limit. */
int vvi_shared_open(struct varve_ctx *ctx, const struct vv_store_opts *store, uint64_t f2r,
                    uint64_t r2f, char *err, size_t err_bytes);
/* Opens the history in the shared folder; h->files, if there is a local folder, is open. */
int vvi_shared_history(struct varve_history *h, char *err, size_t err_bytes);
/* True if a version of this size can fit the local folder. */
bool vvi_shared_fits(const struct varve_ctx *ctx, uint64_t size);
/* These record the error that they return. The version is committed in the engine's folder. */
int vvi_shared_wait(struct varve_history *h, uint64_t version, enum varve_level level,
                    uint64_t deadline_ns);
/* `alone`: only as far as this rank can flush without the others. */
int vvi_shared_flush(struct varve_history *h, const char *operation, bool alone,
                     uint64_t deadline_ns);
int vvi_shared_late_error(struct varve_history *h, const char *operation);
/* ---- ckpt_partner.c: partner copies ---- */

bool vvi_transport_ok(const struct varve_transport *transport);
/* The number of processes of a set that may be lost; 0: no parity. -EINVAL: the option is not off, xor or rs:K. */
int vvi_opts_parity(const struct varve_opts *o, uint32_t *ret_lost);
/* Collective, also after an earlier failure (`status`): opens the context's part, after its folder. */
int vvi_partner_context(struct varve_ctx *ctx, int status, char *err, size_t err_bytes);
/* Collective in the same way. h->files is open unless that failed (`status`). */
int vvi_partner_history(struct varve_history *h, int status, char *err, size_t err_bytes);
/* Called when the engine has adopted the versions that were found: from now on the engine is notified of
 * their copies. */
void vvi_partner_start(struct varve_history *h);
/* With partner copies: notifies the other processes that this one cannot open a history that they are opening.
 * Returns `rc`. */
int vvi_partner_refuse(struct varve_ctx *ctx, const char *name, int rc);
/* Inside a call of the application, on its thread: does the work that is ready. */
void vvi_partner_attend(struct varve_ctx *ctx);
/* Notifies the partner tier that a checkpoint, or the wait for its local level, has failed. */
void vvi_partner_give_up(struct varve_history *h, uint64_t version, int rc);
/* Both record the error that they return; 0 without partner copies. The version is on local disk. */
int vvi_partner_wait(struct varve_history *h, uint64_t version, uint64_t deadline_ns);
int vvi_partner_flush(struct varve_history *h, uint64_t deadline_ns);

/* ---- inquire.c ---- */

/* True if the version may be overwritten. */
bool vvi_replaces(struct varve_history *h, uint64_t version);

/* ---- part.c ---- */

/* Returns 0, or -EROFS with a text: the history is a read-only part. */
int vvi_may_write(struct varve_history *h, const char *operation, uint64_t version);

/* ---- history.c ---- */

int vvi_name_check(const char *name);
/* Adds the history to the engine, with all versions that were found. */
int vvi_history_engine(struct varve_history *h, const struct vv_core_hist_cfg *cfg);
/* Frees a history that is not in the engine. Accepts NULL. */
void vvi_history_free(struct varve_history *h);

/* Checks that a region can be copied, and fills in its kind. -EINVAL, or as varve_protect, with a text. */
VV_WARN_UNUSED int vvi_region_check(struct varve_ctx *ctx, const struct vvi_where *here,
                                    struct vvi_region *r);
/* True, with a text, if memory of the history is lent to the application. */
bool vvi_history_held(struct varve_history *h, char *text, size_t text_bytes);
/* Ends a history that was removed from the context's list. Returns the result of flushing by the deadline; `text`
 * is filled in if that is an error. */
int vvi_history_end(struct varve_history *h, uint64_t deadline_ns, char *text, size_t text_bytes);

#endif
