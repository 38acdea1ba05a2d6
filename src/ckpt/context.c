/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts: varve_open makes the following parts, and varve_close frees them.
 *
 *   device    a GPU or the emulated one, by the options; the application uses the memory beyond the
 *             cache
 *   storage   level cached: a spill file if there is a folder, and a second one on the layer below if there
 *             are two; level local: a folder of files; above that, a remote folder behind it, or the remote
 *             folder alone
 *   gds       GPUDirect Storage between device and storage, if the options ask for it
 *   engine    on top of these
 *
 * Threads: many threads may use a context. ctx->lock protects the list of histories and the error record, and is
 * never held during a wait. `calls` counts calls in progress, so that closing during a call is an error instead of
 * a crash; it cannot make that safe.
 *
 * A context belongs to the process that opened it, `pid`: a forked child has none of the threads, and must not
 * remove its parent's files.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/pid.h"
#include "base/thread_group.h"
#include "ckpt/ckpt_hooks.h"
#include "ckpt/ckpt_private.h"
#include "device/cuda/cuda.h"
#include "device/host/host.h"
#include "trace/trace.h"

#define DEVICE_WAIT_NS ((int64_t)1000000000)

/* Synchronization: none; see ckpt_hooks.h. */
static const struct vv_ckpt_hooks *hooks;

void vv_ckpt_set_hooks(const struct vv_ckpt_hooks *new_hooks)
{
    hooks = new_hooks;
}

struct vv_device *vv_ckpt_device(struct varve_ctx *ctx)
{
    return ctx->device;
}

int vvi_ctx_enter(struct varve_ctx *ctx)
{
    static const struct vvi_where here = {"enter", 0, -1, -1};
    if (!ctx)
        return vvi_fail(NULL, &here, -EINVAL, "the context is NULL: it is not open");
    /* Do not use the context's record: its lock may have been held at the fork. */
    if (ctx->pid != vv_pid())
        return vvi_fail(NULL, &here, -EPERM,
                        "the context was opened before fork(): open one in this process");
    atomic_fetch_add_explicit(&ctx->calls, 1, memory_order_relaxed);
    return 0;
}

void vvi_ctx_leave(struct varve_ctx *ctx)
{
    atomic_fetch_sub_explicit(&ctx->calls, 1, memory_order_release);
}

int vv_ckpt_enter(struct varve_ctx *ctx)
{
    return vvi_ctx_enter(ctx);
}

void vv_ckpt_leave(struct varve_ctx *ctx)
{
    vvi_ctx_leave(ctx);
}

int vvi_history_enter(struct varve_history *h)
{
    static const struct vvi_where here = {"enter", 0, -1, -1};
    if (!h)
        return vvi_fail(NULL, &here, -EINVAL, "the history is NULL: it is not open");
    int rc = vvi_ctx_enter(h->ctx);
    if (rc == 0)
        atomic_fetch_add_explicit(&h->calls, 1, memory_order_relaxed);
    return rc;
}

void vvi_history_leave(struct varve_history *h)
{
    struct varve_ctx *ctx = h->ctx;
    atomic_fetch_sub_explicit(&h->calls, 1, memory_order_release);
    vvi_ctx_leave(ctx);
}

static int emulated_open(struct varve_ctx *ctx, const uint64_t rate[VV_HOP_COUNT])
{
    struct vv_device_host_opts o;
    vv_device_host_opts_init(&o);
    /* The emulated device gets as much memory as the machine has: the application allocates from it too. */
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    o.capacity_bytes = (uint64_t)pages * (uint64_t)page;
    o.engine[VV_DEVICE_HOST_D2D].bytes_per_s = rate[VV_HOP_D2D];
    o.engine[VV_DEVICE_HOST_D2H].bytes_per_s = rate[VV_HOP_D2H];
    o.engine[VV_DEVICE_HOST_H2D].bytes_per_s = rate[VV_HOP_H2D];
    return vv_device_open_host(&o, &ctx->device);
}

static int cuda_open(struct varve_ctx *ctx, const uint64_t rate[VV_HOP_COUNT], char *err,
                     size_t err_bytes)
{
    struct vv_device_cuda_opts o = {.index = ctx->opts.device_id};
    char why[224] = "";
    if (rate[VV_HOP_D2D] || rate[VV_HOP_D2H] || rate[VV_HOP_H2D]) {
        snprintf(err, err_bytes,
                 "rate: d2d, d2h and h2d can be slowed down on the emulated device only "
                 "(device = host)");
        return -EINVAL;
    }
    int rc = vv_device_open_cuda(&o, why, sizeof(why), &ctx->device);
    if (rc)
        snprintf(err, err_bytes, "device = %s: %s",
                 ctx->opts.device == VARVE_DEVICE_CUDA ? "cuda" : "auto", why);
    return rc;
}

static int device_open(struct varve_ctx *ctx, const uint64_t rate[VV_HOP_COUNT], char *err,
                       size_t err_bytes)
{
    int kind = ctx->opts.device;
    int rc = 0;
    if (kind == VARVE_DEVICE_AUTO)
        kind = vv_device_cuda_in_use() ? VARVE_DEVICE_CUDA : VARVE_DEVICE_NONE;
    ctx->wants_gpu = kind == VARVE_DEVICE_CUDA;
    if (ctx->wants_gpu)
        rc = cuda_open(ctx, rate, err, err_bytes);
    else if (kind == VARVE_DEVICE_HOST)
        rc = emulated_open(ctx, rate);
    if (rc == 0 && ctx->device && hooks && hooks->device)
        ctx->device = hooks->device(hooks->arg, ctx->device);
    return rc;
}

static int gds_open(struct varve_ctx *ctx, char *err, size_t err_bytes)
{
    char why[224] = "";
    if (!ctx->opts.gds || !ctx->device || !ctx->opts.local[0])
        return 0;
    int rc = vv_gds_open(ctx->device, NULL, why, sizeof(why), &ctx->gds);
    if (rc)
        snprintf(err, err_bytes, "gds = on: %s", why);
    return rc;
}

int vvi_store_open(struct varve_ctx *ctx, struct vv_store **ret_store)
{
    struct vv_store *store = NULL, *inner;
    int rc = ctx->folder   ? vv_folder_store(ctx->folder, &store)
             : ctx->layers ? vv_layers_store(ctx->layers, &store)
                           : vv_spill_store(ctx->spill, &store);
    if (rc)
        return rc;
    inner = store;
    if (ctx->disk && !ctx->layers)
        rc = vv_budget_store(ctx->disk, inner, ctx->opts.page_bytes, ctx->opts.local_rate, &store);
    if (rc == 0 && hooks && hooks->store)
        store = hooks->store(hooks->arg, store);
    if (rc == 0 && ctx->remote) {
        inner = store;
        rc = vv_remote_store(ctx->remote, inner, &store);
    }
    if (rc == 0 && ctx->partner) {
        inner = store;
        rc = vv_partner_store(ctx->partner, inner, &store);
    }
    if (rc) { /* the wrapper around the device failed */
        inner->ops->close(inner);
        return rc;
    }
    *ret_store = store;
    return 0;
}

/* Opens the budget of the disk that the local folder is, or will be, on. */
static int budget_open(struct varve_ctx *ctx)
{
    struct stat st;
    char path[VARVE_PATH_BYTES + 4];
    size_t n = strlen(ctx->opts.local);
    snprintf(path, sizeof(path), "%s", ctx->opts.local);
    if (stat(path, &st) != 0) {
        while (n > 0 && path[n - 1] == '/')
            n--;
        while (n > 0 && path[n - 1] != '/')
            n--;
        snprintf(path + n, sizeof(path) - n, ".");
    }
    return vv_budget_new(path, VV_BUDGET_DISK, NULL, &ctx->disk);
}

/* True if the old file stays until the new one is committed. After a failed commit both exist, and a limit may
 * not have room for both. */
static bool written_stays(const struct varve_opts *opts)
{
    return opts->local[0] && opts->local_cache == 0;
}

static int storage_open(struct varve_ctx *ctx, const uint64_t rate[VV_HOP_COUNT], char *err,
                        size_t err_bytes)
{
    static const enum vv_store_mode mode[] = {VV_STORE_AUTO, VV_STORE_DIRECT, VV_STORE_BUFFERED};
    const struct varve_opts *opts = &ctx->opts;
    if (!opts->local[0] && (!opts->remote[0] || opts->level == VARVE_LEVEL_LOCAL))
        return 0;
    struct vv_store_opts o;
    vv_store_opts_init(&o);
    o.mode = mode[opts->local_io];
    o.page_bytes = opts->page_bytes;
    o.write_bytes_per_s = rate[VV_HOP_H2F];
    o.read_bytes_per_s = rate[VV_HOP_F2H];
    o.gds = ctx->gds;
    o.helper = ctx->helper;
    o.record_files = opts->spill == VARVE_SPILL_RECORD;
    if (hooks && hooks->os)
        o.os = hooks->os;
    int rc = opts->local[0] ? budget_open(ctx) : 0;
    if (rc == 0 && vvi_is_shared(opts)) {
        uint64_t f2r, r2f;
        vvi_opts_remote_rates(opts, &f2r, &r2f);
        rc = vvi_shared_open(ctx, &o, f2r, r2f, err, err_bytes);
    }
    if (rc == 0 && vvi_is_shared(opts) && !opts->local[0]) {
        ctx->folder = vv_remote_folder(ctx->remote);
    } else if (rc == 0 && opts->level >= VARVE_LEVEL_LOCAL) {
        o.unsynced = opts->local_sync == VARVE_LOCAL_SYNC_OFF;
        o.written_stays = written_stays(opts);
        rc = vv_folder_new(opts->local, &o, err, err_bytes, &ctx->folder);
    } else if (rc == 0) {
        rc = vvi_spill_open(ctx, &o, err, err_bytes);
    }
    return rc;
}

/* Opens the movers' stores. */
static int stores_open(struct varve_ctx *ctx)
{
    if (!ctx->folder && !ctx->spill && !ctx->layers)
        return 0;
    int rc = vvi_store_open(ctx, &ctx->write_store);
    return rc ? rc : vvi_store_open(ctx, &ctx->read_store);
}

static int engine_open(struct varve_ctx *ctx, const uint64_t rate[VV_HOP_COUNT], char *err,
                       size_t err_bytes)
{
    const struct varve_opts *opts = &ctx->opts;
    bool spilling = ctx->spill || ctx->layers;
    struct vv_engine_cfg cfg = {
        .page_bytes = opts->page_bytes,
        .device_cache_bytes = opts->device_cache,
        .host_cache_bytes = opts->host_cache,
        .disk_bytes = spilling ? (uint64_t)vvi_spill_pages(ctx) * opts->page_bytes
                      : opts->local[0] && !ctx->remote
                          /* The rest is for copies of others. */
                          ? (ctx->partner ? vv_partner_own_bytes(ctx->partner) : opts->local_cache)
                          : 0, /* the remote tier enforces that limit */
        .disk = spilling ? VV_TIER_SPILL : VV_TIER_FILES,
        .written_stays = ctx->folder && written_stays(opts),
        .device = ctx->device,
        .write_store = ctx->write_store,
        .read_store = ctx->read_store,
        .gds = ctx->gds,
        .policy = (enum vv_policy)opts->policy,
        .write_limit = opts->local_rate,
        .trace_id = ctx->trace_id,
        .retain_user = vvi_layout_retain,
        .release_user = vvi_layout_release,
        .describe_user = vvi_layout_describe,
        .pages_gone = ctx->layers ? vvi_spill_gone : NULL,
        .pages_arg = ctx->layers,
        .group = ctx->group,
        .helper = ctx->helper,
        .copy_helpers = opts->helpers < 0    ? 0
                        : opts->helpers == 0 ? -1
                                             : opts->helpers,
    };
    memcpy(cfg.rate, rate, sizeof(cfg.rate));
#if defined(VV_DEBUG) && !defined(__SANITIZE_THREAD__)
    cfg.check =
        true; /* a full walk: under ThreadSanitizer it takes minutes and finds nothing more */
#endif
    return vv_engine_open(&cfg, err, err_bytes, &ctx->engine);
}

/* Accepts half-open contexts. Returns the error of the trace file. */
static int ctx_free(struct varve_ctx *ctx)
{
    vvi_trace_closing(ctx);
    vvi_publisher_stop(ctx);
    vv_layers_stop(ctx->layers); /* its threads query the engine */
    vv_engine_close(ctx->engine);
    int traced = vvi_trace_close(ctx); /* all that the engine recorded is in it */
    if (ctx->write_store)
        ctx->write_store->ops->close(ctx->write_store);
    if (ctx->read_store)
        ctx->read_store->ops->close(ctx->read_store);
    vv_partner_free(ctx->partner);
    vv_spill_free(ctx->spill);
    vv_layers_free(ctx->layers);
    vv_budget_free(ctx->shared);
    if (!ctx->remote || ctx->folder != vv_remote_folder(ctx->remote))
        vv_folder_free(ctx->folder);
    vv_remote_free(ctx->remote);
    vv_budget_free(ctx->disk);
    vv_gds_close(ctx->gds);
    vv_device_close(ctx->device);
    vv_helper_close(ctx->helper);
    vv_thread_group_free(ctx->group);
    vvi_cores_free(ctx->cores);
    vv_mutex_fini(&ctx->lock);
    free(ctx);
    return traced;
}

/* The driver's code behind a failed opening of the context: of the device, or of opening the device. */
static struct vvi_foreign open_code(const struct varve_ctx *ctx)
{
    if (ctx->device || !ctx->wants_gpu)
        return vvi_device_code(ctx->device);
    const char *name;
    int code = vv_device_cuda_open_code(&name);
    return (struct vvi_foreign){code ? "cuda" : NULL, code, ""}; /* the text has the name */
}

/* Opens the parts that do not need the other processes of the job. */
static int open_alone(struct varve_ctx *ctx, const struct varve_opts *opts,
                      uint64_t rate[VV_HOP_COUNT], char *err, size_t err_bytes)
{
    int rc = vvi_opts_take(opts, err, err_bytes, &ctx->opts);
    uint32_t parity = 0;
    if (rc == 0 && vvi_opts_parity(&ctx->opts, &parity) == 0 && parity == 0 && ctx->transport.ranks)
        ctx->opts.partner = 1;
    if (rc == 0)
        rc = vvi_opts_check(&ctx->opts, rate, err, err_bytes);
    if (rc == 0 && (ctx->opts.partner || parity > 0) && !ctx->transport.ranks) {
        rc = -EINVAL;
        snprintf(err, err_bytes, "%s: the processes of a job open together, with varve_open_mpi",
                 parity > 0 ? "parity" : "partner");
    }
    if (rc == 0)
        rc = vv_thread_group_new(ctx->opts.helper_cores, ctx->opts.helper_nice, err, err_bytes,
                                 &ctx->group);
    if (rc == 0)
        rc = vvi_cores_begin(ctx, err, err_bytes);
    if (rc == 0)
        rc = device_open(ctx, rate, err, err_bytes);
    if (rc == 0)
        vvi_cores_decide(ctx);
    vv_thread_group_enter(
        ctx->group); /* after the device: threads of the emulated one do not belong to it */
    if (rc == 0 && ctx->opts.page_bytes == 0)
        ctx->opts.page_bytes =
            vv_core_page_bytes(ctx->device ? ctx->opts.device_cache : 0, ctx->opts.host_cache);
    ctx->run_drawn = ctx->opts.run_id == 0 && !ctx->opts.run[0];
    if (rc == 0 && ctx->opts.run_id == 0)
        ctx->opts.run_id = ctx->opts.run[0] ? vvi_shared_run_id(ctx->opts.run) : vv_files_draw_id();
    if (rc == 0)
        rc = gds_open(ctx, err, err_bytes);
    if (rc == 0)
        vvi_helper_open(ctx);
    return rc ? rc : storage_open(ctx, rate, err, err_bytes);
}

static int open_rest(struct varve_ctx *ctx, const uint64_t rate[VV_HOP_COUNT], char *err,
                     size_t err_bytes)
{
    int rc = stores_open(ctx);
    if (rc == 0)
        rc = engine_open(ctx, rate, err, err_bytes);
    if (rc == 0)
        rc = vvi_trace_open(ctx, err, err_bytes);
    if (rc == 0)
        rc = vvi_publisher_start(ctx, err, err_bytes);
    return rc;
}

int varve_open_with(const struct varve_opts *opts, const struct varve_transport *transport,
                    struct varve_ctx **ret_ctx)
{
    static const struct vvi_where in_open = {"open", 0, -1, -1};
    uint64_t rate[VV_HOP_COUNT] = {0};
    char err[256] = "";
    if (transport && !vvi_transport_ok(transport))
        return vvi_fail(
            NULL, &in_open, -EINVAL,
            "the transport is invalid: check transport_size, rank, ranks and its functions");
    struct varve_ctx *ctx = calloc(1, sizeof(*ctx));
    if (!ctx) {
        /* The other processes get this error in their collective call. */
        uint64_t most;
        int met = transport ? transport->most(transport->arg, ENOMEM, &most) : 0;
        (void)met;
        return vvi_fail(NULL, &in_open, -ENOMEM, "no memory for a context");
    }
    vv_mutex_init(&ctx->lock, "context", VV_RANK_CTX);
    ctx->pid = vv_pid();
    ctx->trace_id = vv_trace_new_context();
    ctx->error.tier = ctx->error.region = -1;
    if (transport)
        ctx->transport = *transport;
    struct vv_thread_group *before = vv_thread_group_enter(NULL);
    int rc = ret_ctx ? open_alone(ctx, opts, rate, err, sizeof(err)) : -EINVAL;
    if (!ret_ctx)
        snprintf(err, sizeof(err), "ret_ctx is NULL");
    if (transport)
        rc = vvi_partner_context(ctx, rc, err, sizeof(err));
    if (rc == 0) {
        rc = open_rest(ctx, rate, err, sizeof(err));
        int all = transport ? vv_partner_agree(ctx->partner, rc) : rc;
        if (rc == 0 && all)
            snprintf(err, sizeof(err), "another process failed: %s", vv_strerror(all));
        rc = all;
    }
    vv_thread_group_enter(before);
    if (rc) {
        vvi_fail_foreign(NULL, &in_open, rc, open_code(ctx), "%s", err[0] ? err : vv_strerror(rc));
        (void)ctx_free(ctx);
        return rc;
    }
    *ret_ctx = ctx;
    return 0;
}

int varve_open(const struct varve_opts *opts, struct varve_ctx **ret_ctx)
{
    return varve_open_with(opts, NULL, ret_ctx);
}

int varve_close(struct varve_ctx *ctx)
{
    static const struct vvi_where here = {"close", 0, -1, -1};
    char text[256] = "", held[96];
    if (!ctx)
        return 0;
    if (ctx->pid != vv_pid())
        return vvi_fail(NULL, &here, -EPERM, "the context belongs to another process");
    /* Pairs with the release in vvi_ctx_leave: the effects of those calls are visible. */
    if (atomic_load_explicit(&ctx->calls, memory_order_acquire) != 0)
        return vvi_fail(NULL, &here, -EBUSY,
                        "a call on the context is in progress, or blocks, tables or a file "
                        "system of it are open");
    for (struct varve_history *h = ctx->histories; h; h = h->next)
        if (vvi_history_held(h, held, sizeof(held)))
            return vvi_fail(NULL, &here, -EBUSY, "history %.60s: %s", h->name, held);
    vv_trace(VV_TRACE_CALL_START, VV_TRACE_CALL_CLOSE, VV_TRACE_HISTORY(ctx->trace_id, 0), 0, 0);
    /* One deadline for all histories: the option limits the time of closing. */
    uint64_t deadline_ns = vv_deadline_ns(ctx->opts.close_timeout_ms);
    int result = 0;
    atomic_store_explicit(&ctx->closing, true, memory_order_relaxed);
    while (ctx->histories) {
        struct varve_history *h = ctx->histories;
        vv_mutex_lock(&ctx->lock); /* the publisher still runs */
        ctx->histories = h->next;
        vv_mutex_unlock(&ctx->lock);
        char *more = result ? NULL : text; /* the first error is reported */
        int rc = vvi_history_end(h, deadline_ns, more, more ? sizeof(text) : 0);
        if (rc && !result)
            result = rc;
    }
    if (result)
        vvi_fail(NULL, &here, result, "%s", text);
    vv_trace5(VV_TRACE_CALL_END, VV_TRACE_CALL_CLOSE, VV_TRACE_HISTORY(ctx->trace_id, 0), 0, 0,
              (uint64_t)(int64_t)result);
    struct varve_transport transport = ctx->transport;
    snprintf(text, sizeof(text), "%s", ctx->opts.trace_file);
    int traced = ctx_free(ctx);
    if (transport.close)
        transport.close(transport.arg);
    /* An error of versions is reported before an error of their trace. */
    return result || !traced ? result : vvi_trace_fail(text, traced);
}

static void tier_stats(const struct varve_ctx *ctx, const struct vv_core_stats *c,
                       struct varve_stats *s)
{
    for (unsigned t = 0; t < s->tiers; t++) {
        s->tier_bytes[t] = c->tier_pages[t] * s->page_bytes;
        s->tier_used_bytes[t] = c->tier_used_pages[t] * s->page_bytes;
        if (vv_engine_tier_kind(ctx->engine, t) == VV_TIER_HOST)
            s->host_ready_bytes = c->tier_ready_pages[t] * s->page_bytes;
        s->tier_used_byte_s[t] = c->tier_used_page_ns[t] * (double)s->page_bytes * 1e-9;
        if (vv_engine_tier_kind(ctx->engine, t) == VV_TIER_FILES) {
            s->tier_bytes[t] = ctx->opts.local_cache;
            s->tier_used_bytes[t] = c->files_bytes;
        }
    }
}

static void remote_stats(const struct varve_ctx *ctx, struct varve_stats *s)
{
    struct vv_remote_stats r;
    vv_remote_get_stats(ctx->remote, &r);
    s->remote_written_bytes = r.written_bytes;
    s->remote_read_bytes = r.read_bytes;
    s->healed_chunks = r.healed_chunks;
    s->repaired_chunks = r.repaired_chunks;
    if (ctx->opts.local[0] && ctx->opts.local_cache)
        s->tier_used_bytes[s->tiers - 1] = r.local_bytes;
}

static void partner_stats(const struct varve_ctx *ctx, struct varve_stats *s)
{
    struct vv_partner_stats p;
    vv_partner_get_stats(ctx->partner, &p);
    s->partner_sent = p.sent;
    s->partner_received = p.received;
    s->partner_pending = p.pending;
    s->partner_sent_bytes = p.sent_bytes;
    s->partner_received_bytes = p.received_bytes;
    s->partner_held_bytes = p.held_bytes;
    s->partner_errors = p.errors;
    s->partner_recovered = p.recovered;
    s->partner_repaired_chunks = p.repaired_chunks;
}

int varve_stats(struct varve_ctx *ctx, struct varve_stats *ret_stats)
{
    static const struct vvi_where here = {"stats", 0, -1, -1};
    if (!ret_stats || ret_stats->stats_size < sizeof(size_t) || ret_stats->stats_size > 1u << 20)
        return vvi_fail(NULL, &here, -EINVAL,
                        "NULL, or stats_size is not sizeof(struct varve_stats)");
    int rc = vvi_ctx_enter(ctx);
    if (rc)
        return rc;
    struct vv_core_stats c;
    vv_engine_get_stats(ctx->engine, &c);
    size_t bytes = VV_MIN(ret_stats->stats_size, sizeof(*ret_stats));
    struct varve_stats s = {
        .stats_size = bytes,
        .checkpoints = c.puts,
        .restores = c.gets,
        .restore_hits = c.hits,
        .restore_misses = c.misses,
        .hints = c.hints,
        .evicted_pages = c.evicted_pages,
        .revoked_pages = c.revoked_pages,
        .discarded = c.discarded,
        .versions = c.objects,
        .checkpoint_bytes = ctx->checkpoint_bytes,
        .restore_bytes = ctx->restore_bytes,
        .checkpoint_blocked_ns = ctx->checkpoint_blocked_ns,
        .restore_blocked_ns = ctx->restore_blocked_ns,
        .page_bytes = ctx->opts.page_bytes,
        .tiers = vv_engine_tiers(ctx->engine),
        .metadata_bytes = c.object_bytes,
        .buffer_bytes = c.transit_pages * ctx->opts.page_bytes,
        .last_restore_distance = ctx->last_distance,
        .last_restore_blocked_ns = ctx->last_blocked_ns,
        .used_until_ns = c.now_ns,
    };
    for (int i = 0; i < VARVE_HOPS; i++) {
        s.moved_bytes[i] = c.moved_bytes[i];
        s.rate[i] = c.rate[i];
        s.start_rate[i] = c.start_rate[i];
    }
    tier_stats(ctx, &c, &s);
    if (ctx->remote)
        remote_stats(ctx, &s);
    if (ctx->layers)
        vvi_spill_stats(ctx, &s);
    if (ctx->partner)
        partner_stats(ctx, &s);
    struct vv_thread_group_stats group;
    vv_thread_group_get_stats(ctx->group, &group);
    s.helper_threads = group.threads;
    s.helper_cpu_ns = group.cpu_ns;
    s.helper_cores = group.cores;
    if (ctx->helper)
        vvi_helper_stats(ctx, &s);
    struct vvi_expected e;
    vvi_expect(ctx, &c, &e);
    s.expected_speedup_start = e.speedup_start;
    s.expected_speedup = e.speedup;
    s.actual_speedup = e.actual;
    s.expected_blocked_ns = e.blocked_ns;
    memcpy(ret_stats, &s, bytes);
    vvi_ctx_leave(ctx);
    return 0;
}

int varve_helpers(struct varve_ctx *ctx, struct varve_helper *ret_helpers, size_t max,
                  size_t *ret_count)
{
    static const struct vvi_where here = {"helpers", 0, -1, -1};
    if (!ret_count || (max > 0 && !ret_helpers))
        return vvi_fail(NULL, &here, -EINVAL, "ret_count or ret_helpers is NULL");
    int rc = vvi_ctx_enter(ctx);
    if (rc)
        return rc;
    struct vv_thread_group_member *list = calloc(max ? max : 1, sizeof(*list));
    if (list) {
        size_t n = vv_thread_group_list(ctx->group, list, max);
        for (size_t i = 0; i < VV_MIN(n, max); i++) {
            ret_helpers[i] = (struct varve_helper){
                .cpu = list[i].cpu, .nice = list[i].nice, .cpu_ns = list[i].cpu_ns};
            snprintf(ret_helpers[i].name, sizeof(ret_helpers[i].name), "%s",
                     list[i].name[0] ? list[i].name : "helper");
        }
        struct varve_helper process;
        if (vvi_helper_describe(ctx, &process)) {
            if (n < max)
                ret_helpers[n] = process;
            n++;
        }
        *ret_count = n;
    } else {
        rc = vvi_fail(ctx, &here, -ENOMEM, "no memory for a list of %zu threads", max);
    }
    free(list);
    vvi_ctx_leave(ctx);
    return rc;
}

/* ---- memory of the device ---- */

int varve_device_alloc(struct varve_ctx *ctx, size_t bytes, void **ret_ptr)
{
    static const struct vvi_where here = {"device_alloc", 0, -1, -1};
    int rc = vvi_ctx_enter(ctx);
    if (rc)
        return rc;
    if (!ret_ptr || bytes == 0)
        rc = vvi_fail(ctx, &here, -EINVAL, "bytes is 0, or ret_ptr is NULL");
    else if (!ctx->device)
        rc = vvi_fail(ctx, &here, -ENODEV, "the context has no device");
    else
        rc = vv_device_mem_alloc(ctx->device, bytes, ret_ptr);
    if (rc && ctx->device && ret_ptr && bytes)
        vvi_fail_foreign(ctx, &here, rc, vvi_device_code(ctx->device),
                         "%zu bytes of device memory: %s", bytes, vv_strerror(rc));
    vvi_ctx_leave(ctx);
    return rc;
}

int varve_device_free(struct varve_ctx *ctx, void *ptr)
{
    static const struct vvi_where here = {"device_free", 0, -1, -1};
    int rc = vvi_ctx_enter(ctx);
    if (rc)
        return rc;
    if (ptr) {
        rc = ctx->device ? vv_device_mem_free(ctx->device, ptr) : -EINVAL;
        if (rc)
            vvi_fail_foreign(ctx, &here, rc, vvi_device_code(ctx->device), "%p: %s", ptr,
                             rc == -EINVAL ? "this is not memory of varve_device_alloc"
                                           : vv_strerror(rc));
    }
    vvi_ctx_leave(ctx);
    return rc;
}

static int device_copy(struct vv_device *d, void *dst, const void *src, size_t bytes)
{
    struct vv_copy_seg seg = {dst, src, bytes};
    struct vv_stream *stream = NULL;
    struct vv_event *event = NULL;
    int rc = vv_device_stream_new(d, &stream);
    if (rc)
        return rc;
    rc = vv_device_event_new(d, &event);
    if (rc == 0)
        rc = vv_device_after_app(d, stream);
    if (rc == 0)
        rc = vv_device_copy_async(d, stream, &seg, 1);
    if (rc == 0)
        rc = vv_device_event_record(d, event, stream);
    if (rc == 0)
        do
            rc = vv_device_event_wait(d, event, DEVICE_WAIT_NS);
        while (rc == -ETIMEDOUT);
    vv_device_event_free(d, event);
    vv_device_stream_free(d, stream);
    return rc;
}

int varve_device_copy(struct varve_ctx *ctx, void *dst, const void *src, size_t bytes)
{
    static const struct vvi_where here = {"device_copy", 0, -1, -1};
    int rc = vvi_ctx_enter(ctx);
    if (rc)
        return rc;
    if (!dst || !src)
        rc = vvi_fail(ctx, &here, -EINVAL, "a pointer is NULL");
    else if (!ctx->device)
        rc = vvi_fail(ctx, &here, -ENODEV, "the context has no device");
    else if (bytes > 0 && (rc = device_copy(ctx->device, dst, src, bytes)) != 0)
        vvi_fail_foreign(ctx, &here, rc, vvi_device_code(ctx->device), "copy of %zu bytes: %s",
                         bytes, vv_strerror(rc));
    vvi_ctx_leave(ctx);
    return rc;
}
