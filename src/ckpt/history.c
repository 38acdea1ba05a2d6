/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Histories: opening, closing, protected regions.
 *
 * At level local a history owns a struct vv_files, whose lock on the folder excludes other processes. Opening finds
 * every committed version, and the engine adopts them in the order of writing (generations grow with every version
 * written). At level cached a name only has to be unique within the context.
 *
 * h->lock protects the regions. It is held while they are read or changed, never while data moves: a checkpoint uses
 * a copy of the list.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "ckpt/ckpt_private.h"
#include "device/cuda/cuda.h"

int varve_history_opts_init(struct varve_history_opts *opts, size_t opts_size)
{
    static const struct vvi_where here = {"options", 0, -1, -1};
    if (!opts || opts_size < sizeof(size_t) || opts_size > 1u << 20)
        return vvi_fail(NULL, &here, -EINVAL,
                        "opts is NULL, or opts_size, %zu, is not the size of the structure",
                        opts_size);
    memset(opts, 0, opts_size);
    opts->opts_size = opts_size;
    return 0;
}

int vvi_name_check(const char *name)
{
    size_t n = name ? strnlen(name, VVI_NAME_MAX + 1) : 0;
    return n == 0 || n > VVI_NAME_MAX || name[0] == '.' || strchr(name, '/') ? -EINVAL : 0;
}

/* ---- versions found on disk ---- */

struct found {
    uint64_t version, generation, size, user, run_id;
};

struct found_list {
    struct found *v;
    size_t n, cap;
};

static int found_add(void *arg, const struct vv_files_entry *entry)
{
    struct found_list *list = arg;
    if (list->n == list->cap) {
        size_t cap = VV_MAX(2 * list->cap, (size_t)64);
        struct found *more = realloc(list->v, cap * sizeof(*more));
        if (!more)
            return -ENOMEM;
        list->v = more;
        list->cap = cap;
    }
    struct found f = {entry->version, entry->generation, entry->size, 0, entry->run_id};
    int rc = vvi_layout_new(entry->regions, entry->nregions, &f.user);
    if (rc == 0)
        list->v[list->n++] = f;
    return rc;
}

static int found_order(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    if (x->generation != y->generation)
        return x->generation < y->generation ? -1 : 1;
    return x->version < y->version ? -1 : x->version > y->version;
}

/* Generations grow with every version written, so those of one run are consecutive: the list has one entry for each
 * run with versions left, independent of the number of versions. The engine continues the numbers after the last
 * adopted version. */
static int note_runs(struct varve_history *h, const struct found_list *list)
{
    size_t n = 1;
    for (size_t i = 0; i < list->n; i++)
        n += i == 0 || list->v[i].run_id != list->v[i - 1].run_id;
    h->runs = calloc(n, sizeof(*h->runs));
    if (!h->runs)
        return -ENOMEM;
    for (size_t i = 0; i < list->n; i++)
        if (i == 0 || list->v[i].run_id != list->v[i - 1].run_id)
            h->runs[h->nruns++] = (struct vvi_run){list->v[i].generation, list->v[i].run_id};
    h->runs[h->nruns++] =
        (struct vvi_run){list->n ? list->v[list->n - 1].generation + 1 : 0,
                         h->remote ? vv_remote_run_id(h->remote) : h->ctx->opts.run_id};
    return 0;
}

static int adopt_all(struct varve_history *h)
{
    struct found_list list = {0};
    size_t adopted = 0;
    int rc = h->remote  ? vv_remote_list(h->remote, found_add, &list)
             : h->files ? vv_files_list(h->files, found_add, &list)
                        : 0;
    if (list.n > 1)
        qsort(list.v, list.n, sizeof(*list.v), found_order);
    if (rc == 0)
        rc = note_runs(h, &list);
    for (; rc == 0 && adopted < list.n; adopted++) {
        const struct found *f = &list.v[adopted];
        bool reached = h->remote    ? vv_remote_has_reached(h->remote, f->version, f->generation)
                       : h->partner ? vv_partner_has_copy(h->partner, f->version, f->generation)
                                    : true;
        rc = vv_engine_adopt(h->ctx->engine, h->hist, f->version, f->generation, f->size, f->user,
                             reached);
        if (rc)
            break;
    }
    for (size_t i = adopted; i < list.n; i++)
        vvi_layout_release(NULL, list.v[i].user);
    free(list.v);
    return rc;
}

/* ---- open and close ---- */

void vvi_history_free(struct varve_history *h)
{
    if (!h)
        return;
    vv_partner_close(h->partner);
    if (!h->remote || h->files != vv_remote_files(h->remote)) {
        struct vv_files *local = h->files;
        vv_remote_close(h->remote);
        vv_files_close(local);
    } else {
        vv_remote_close(h->remote);
    }
    vv_mutex_fini(&h->lock);
    vvi_damage_free(h);
    vv_idmap_fini(&h->regions);
    free(h->runs);
    free(h->name);
    free(h);
}

int vvi_history_engine(struct varve_history *h, const struct vv_core_hist_cfg *cfg)
{
    struct varve_ctx *ctx = h->ctx;
    int rc = vv_engine_history_new(ctx->engine, cfg, h->files,
                                   h->remote    ? vv_remote_first_generation(h->remote)
                                   : h->partner ? vv_partner_first_generation(h->partner)
                                   : h->files   ? vv_files_first_generation(h->files)
                                                : 0,
                                   &h->hist);
    if (rc)
        return rc;
    rc = adopt_all(h);
    if (rc == 0 && h->files)
        rc = vvi_damage_find(h);
    if (rc) {
        if (h->remote)
            vv_remote_stop(h->remote);
        vv_engine_history_drop(ctx->engine, h->hist);
    }
    return rc;
}

/* Like vvi_history_engine, for all processes of the job together: all succeed or all fail. */
static int opened_by_all(struct varve_history *h, const struct vv_core_hist_cfg *cfg, char *err,
                         size_t err_bytes)
{
    int rc = vvi_history_engine(h, cfg), all = vv_partner_agree(h->ctx->partner, rc);
    if (rc == 0 && all) {
        snprintf(err, err_bytes, "another process failed: %s", vv_strerror(all));
        vv_engine_history_drop(h->ctx->engine, h->hist);
    }
    return all;
}

/* True if other processes compare the run ids of versions. If this process drew its id for itself, none does, and
 * counting how often versions are written would waste memory. */
static bool runs_compared(const struct varve_ctx *ctx)
{
    return ctx->folder &&
           (!ctx->run_drawn || ctx->opts.ranks > 1 || ctx->opts.level == VARVE_LEVEL_COMPLETE);
}

static int history_new(struct varve_ctx *ctx, const char *name,
                       const struct varve_history_opts *opts, char *err, size_t err_bytes,
                       struct varve_history **ret_history)
{
    struct vv_core_hist_cfg cfg = {
        .consume_once = opts->consume == VARVE_CONSUME_ONCE,
        .keep = opts->keep,
        .keep_every = opts->keep_every,
        .level = ctx->folder ? VV_CORE_DURABLE : VV_CORE_CACHED,
        .hold = ctx->remote || ctx->partner,
        .copies = ctx->partner != NULL,
        .confirm = opts->confirm != 0,
        .editions = runs_compared(ctx),
        .order = opts->order == VARVE_ORDER_FIFO   ? VV_RESTORE_FIFO
                 : opts->order == VARVE_ORDER_LIFO ? VV_RESTORE_LIFO
                                                   : VV_RESTORE_BY_HINTS,
    };
    struct varve_history *h = calloc(1, sizeof(*h));
    if (!h)
        return vvi_partner_refuse(ctx, name, -ENOMEM);
    h->ctx = ctx;
    h->regions.bytes = sizeof(struct vvi_region);
    h->overwrite = opts->overwrite != 0;
    h->consume_once = cfg.consume_once;
    h->ordered = opts->order != VARVE_ORDER_HINTS;
    vv_mutex_init(&h->lock, "history", VV_RANK_HISTORY);
    h->name = strdup(name);
    int rc = h->name ? 0 : -ENOMEM;
    if (rc == 0 && ctx->folder && (!ctx->remote || ctx->opts.local[0])) {
        struct vv_files_opts files = {
            .run_id = ctx->opts.run_id,
            .all_generations = ctx->remote || (ctx->partner && vv_partner_parity(ctx->partner)),
            /* At level complete the group records decide, not files left here. */
            .ranks = ctx->opts.level < VARVE_LEVEL_COMPLETE ? (uint32_t)ctx->opts.ranks : 0};
        rc = vv_files_open(ctx->folder, name, (uint32_t)ctx->opts.rank, &files, err, err_bytes,
                           &h->files);
    }
    if (rc == 0 && ctx->remote)
        rc = vvi_shared_history(h, err, err_bytes);
    if (ctx->partner) {
        rc = vvi_partner_history(h, rc, err, err_bytes);
        if (rc == 0)
            rc = opened_by_all(h, &cfg, err, err_bytes);
        if (rc) {
            vvi_history_free(h);
        } else {
            vvi_partner_start(h);
            *ret_history = h;
        }
        return rc;
    }
    if (rc == 0)
        rc = vvi_history_engine(h, &cfg);
    if (rc) {
        vvi_history_free(h);
        return rc;
    }
    if (h->remote)
        vv_remote_start(h->remote, vvi_trace_history(h));
    *ret_history = h;
    return 0;
}

static int history_opts_take(const struct varve_history_opts *opts, char *err, size_t err_bytes,
                             struct varve_history_opts *ret_opts)
{
    *ret_opts = (struct varve_history_opts){.opts_size = sizeof(*ret_opts)};
    if (!opts)
        return 0;
    if (opts->opts_size < sizeof(size_t) || opts->opts_size > 1u << 20) {
        snprintf(err, err_bytes,
                 "opts_size is %zu: call varve_history_opts_init on the options first",
                 opts->opts_size);
        return -EINVAL;
    }
    memcpy(ret_opts, opts, VV_MIN(opts->opts_size, sizeof(*ret_opts)));
    if (ret_opts->consume != VARVE_CONSUME_KEEP && ret_opts->consume != VARVE_CONSUME_ONCE) {
        snprintf(err, err_bytes, "consume is %d: it takes VARVE_CONSUME_KEEP or VARVE_CONSUME_ONCE",
                 (int)ret_opts->consume);
        return -EINVAL;
    }
    if (ret_opts->order < VARVE_ORDER_HINTS || ret_opts->order > VARVE_ORDER_LIFO) {
        snprintf(err, err_bytes,
                 "order is %d: it takes VARVE_ORDER_HINTS, VARVE_ORDER_FIFO or VARVE_ORDER_LIFO",
                 (int)ret_opts->order);
        return -EINVAL;
    }
    return 0;
}

static bool name_in_use_locked(const struct varve_ctx *ctx, const char *name)
{
    for (const struct varve_history *h = ctx->histories; h; h = h->next)
        if (!h->part && strcmp(h->name, name) == 0)
            return true;
    return false;
}

int varve_history_open_with(struct varve_ctx *ctx, const char *name,
                            const struct varve_history_opts *opts,
                            struct varve_history **ret_history)
{
    static const struct vvi_where here = {"history_open", 0, -1, -1};
    struct varve_history_opts o;
    struct varve_history *h = NULL;
    char err[256] = "";
    int rc = vvi_ctx_enter(ctx);
    if (rc)
        return rc;
    if (!ret_history) {
        rc = -EINVAL;
        snprintf(err, sizeof(err), "ret_history is NULL");
    } else if (vvi_name_check(name)) {
        rc = -EINVAL;
        snprintf(err, sizeof(err), "'%.40s': " VVI_NAME_RULE, name ? name : "");
    } else {
        rc = history_opts_take(opts, err, sizeof(err), &o);
    }
    if (rc)
        vvi_partner_refuse(ctx, name, rc);
    if (rc == 0)
        rc = history_new(ctx, name, &o, err, sizeof(err), &h);
    if (rc == 0) {
        vv_mutex_lock(&ctx->lock);
        if (name_in_use_locked(ctx, name)) {
            rc = -EBUSY;
        } else {
            h->next = ctx->histories;
            ctx->histories = h;
        }
        vv_mutex_unlock(&ctx->lock);
        if (rc) {
            snprintf(
                err, sizeof(err),
                "history %s is open already in this process: use its handle, or close it first",
                name);
            if (h->remote)
                vv_remote_stop(h->remote);
            if (h->partner)
                vv_partner_stop(h->partner);
            vv_engine_history_drop(ctx->engine, h->hist);
            vvi_history_free(h);
        }
    }
    if (rc) {
        vvi_fail(ctx, &here, rc, "%s", err[0] ? err : vv_strerror(rc));
    } else {
        if (vv_trace_enabled())
            vv_trace(VV_TRACE_HISTORY_OPEN, vvi_trace_history(h), vv_trace_name(name), 0, 0);
        *ret_history = h;
    }
    vvi_ctx_leave(ctx);
    return rc;
}

int varve_history_open(struct varve_ctx *ctx, const char *name, struct varve_history **ret_history)
{
    return varve_history_open_with(ctx, name, NULL, ret_history);
}

struct varve_ctx *varve_history_ctx(struct varve_history *h)
{
    return h ? h->ctx : NULL;
}

/* Versions lost when a history ends. */
struct lost {
    uint64_t n, version; /* number of versions, and the first one */
    int err;             /* reason why that one is not on disk */
};

static void not_durable(void *arg, const struct vv_object_info *info)
{
    struct lost *lost = arg;
    if (info->durable)
        return;
    if (lost->n++ == 0) {
        lost->version = info->version;
        lost->err = info->flush_error ? info->flush_error : -EIO;
    }
}

/* Collects late errors that were not reported and that closing would hide: the file of a discarded version could not
 * be removed, so the version is there again at the next opening. (A failed flush shows in the version itself.) */
static void not_removed(struct varve_history *h, struct lost *unremoved)
{
    struct vv_object_info info;
    uint64_t version = 0;
    int tier, err;
    while ((err = vv_engine_take_error(h->ctx->engine, h->hist, &version, &tier)) != 0) {
        if (vv_engine_lookup(h->ctx->engine, h->hist, version, &info) == 0) {
            vvi_layout_release(NULL, info.user);
        } else if (unremoved->n++ == 0) {
            unremoved->version = version;
            unremoved->err = err;
        }
    }
}

static int say_unremoved(const struct varve_history *h, const struct lost *unremoved, char *text,
                         size_t text_bytes)
{
    snprintf(
        text, text_bytes,
        "history %.60s: the file of discarded version %llu could not be removed from %.80s: %s",
        h->name, (unsigned long long)unremoved->version, vvi_files_path(h->ctx),
        vv_strerror(unremoved->err));
    return unremoved->err;
}

/* Called when every version has reached the level: removes older generations and versions. Calls of this run can no
 * longer overwrite versions of earlier runs, so `keep` counts the versions of earlier runs now. A failed removal is
 * tried once more. */
static int let_go(struct varve_history *h, uint64_t deadline_ns, char *text, size_t text_bytes)
{
    struct vv_engine *e = h->ctx->engine;
    struct lost unremoved = {0};
    int rc = 0;
    vv_engine_acknowledge(e, h->hist, NULL);
    for (int i = 0; i < 2 && rc == 0 && (i == 0 || unremoved.n); i++) {
        unremoved = (struct lost){0};
        rc = vv_engine_wait_all(e, h->hist, deadline_ns);
        not_removed(h, &unremoved);
    }
    /* Files that are not removed in time are removed by a later run. */
    return unremoved.n ? say_unremoved(h, &unremoved, text, text_bytes) : 0;
}

/* Waits for the application's streams. Returns an error of them that was not reported yet. */
static int end_ordered(struct varve_history *h, uint64_t deadline_ns, char *text, size_t text_bytes)
{
    struct vv_engine *e = h->ctx->engine;
    enum vv_req_kind kind;
    uint64_t version = 0;
    int rc = vv_engine_wait_ordered(e, h->hist, deadline_ns);
    if (rc) {
        snprintf(text, text_bytes,
                 "a stream has not executed its checkpoints and restores in time");
        return rc;
    }
    rc = vv_engine_take_ordered_error(e, h->hist, NULL, &version, &kind);
    if (rc)
        snprintf(text, text_bytes, "the stream-ordered %s of version %llu failed: %s",
                 kind == VV_REQ_PUT ? "checkpoint" : "restore", (unsigned long long)version,
                 vv_strerror(rc));
    return rc;
}

int vvi_history_end(struct varve_history *h, uint64_t deadline_ns, char *text, size_t text_bytes)
{
    struct varve_ctx *ctx = h->ctx;
    char late[160] = "";
    int rc = 0, ordered = end_ordered(h, deadline_ns, late, sizeof(late));
    if (ctx->folder) {
        struct lost lost = {0}, unremoved = {0};
        not_removed(h, &unremoved);
        rc = vv_engine_wait_all(ctx->engine, h->hist, deadline_ns);
        not_removed(h, &unremoved);
        vv_engine_each(ctx->engine, h->hist, not_durable, &lost);
        if (rc == 0)
            rc = lost.err;
        if (rc == 0 && unremoved.n) {
            rc = say_unremoved(h, &unremoved, text, text_bytes);
        } else if (rc && lost.n == 0) {
            snprintf(text, text_bytes, "history %.60s: %s", h->name, vv_strerror(rc));
        } else if (rc) {
            snprintf(text, text_bytes,
                     "history %.60s: %llu version%s did not reach %s, %.80s, and %s lost, "
                     "version %llu first: %s",
                     h->name, (unsigned long long)lost.n, lost.n == 1 ? "" : "s",
                     ctx->opts.local[0] ? "local disk" : "the remote folder", vvi_files_path(ctx),
                     lost.n == 1 ? "is" : "are", (unsigned long long)lost.version,
                     vvi_flush_reason(rc));
        }
    }
    if (rc == 0 && ordered) {
        rc = ordered;
        snprintf(text, text_bytes, "history %.60s: %s", h->name, late);
    }
    vv_trace(VV_TRACE_HISTORY_CLOSE, vvi_trace_history(h), 0, 0, 0);
    if (h->partner) {
        uint64_t version = 0;
        char what[64];
        int copied = vv_partner_flush(h->partner, deadline_ns, &version);
        if (rc == 0 && copied) {
            rc = copied;
            snprintf(text, text_bytes,
                     "history %.60s: version %llu is on local disk, but %s is not safe: %s",
                     h->name, (unsigned long long)version, vv_partner_what(ctx->partner, what),
                     vvi_flush_reason(rc));
        }
        if (rc == 0)
            rc = let_go(h, deadline_ns, text, text_bytes);
        vv_partner_linger(h->partner, true, deadline_ns);
        vv_partner_stop(h->partner);
    }
    if (h->remote) {
        uint64_t version = 0;
        int shared = vv_remote_wait_all(h->remote, true, deadline_ns, &version);
        if (rc == 0 && shared) {
            rc = shared;
            snprintf(text, text_bytes, "history %.60s: version %llu did not reach %.80s: %s",
                     h->name, (unsigned long long)version, ctx->opts.remote, vvi_flush_reason(rc));
        }
        if (shared == 0 && rc == 0)
            rc = let_go(h, deadline_ns, text, text_bytes);
        vv_remote_stop(h->remote);
    }
    vv_engine_history_drop(ctx->engine, h->hist);
    vvi_history_free(h);
    return rc;
}

bool vvi_history_held(struct varve_history *h, char *text, size_t text_bytes)
{
    size_t lent = vvi_region_leases_count(h);
    uint32_t leases = atomic_load_explicit(&h->leases, memory_order_relaxed);
    if (lent)
        snprintf(text, text_bytes, "%zu region%s lent or reserved; give %s back first", lent,
                 lent == 1 ? " is" : "s are", lent == 1 ? "it" : "them");
    else
        snprintf(text, text_bytes, "%u vector%s memory of it; free %s first", leases,
                 leases == 1 ? " has" : "s have", leases == 1 ? "it" : "them");
    return lent || leases;
}

int varve_history_close(struct varve_history *h)
{
    static const struct vvi_where here = {"history_close", 0, -1, -1};
    char text[256] = "";
    if (!h)
        return 0;
    struct varve_ctx *ctx = h->ctx;
    int rc = vvi_ctx_enter(ctx);
    if (rc)
        return rc;
    /* Pairs with the release in vvi_history_leave. */
    if (atomic_load_explicit(&h->calls, memory_order_acquire) != 0) {
        rc = vvi_fail(ctx, &here, -EBUSY, "history %.60s: a call on it is in progress", h->name);
        vvi_ctx_leave(ctx);
        return rc;
    }
    char held[96];
    if (vvi_history_held(h, held, sizeof(held))) {
        rc = vvi_fail(ctx, &here, -EBUSY, "history %.60s: %s", h->name, held);
        vvi_ctx_leave(ctx);
        return rc;
    }
    vv_mutex_lock(&ctx->lock);
    for (struct varve_history **at = &ctx->histories; *at; at = &(*at)->next) {
        if (*at == h) {
            *at = h->next;
            break;
        }
    }
    vv_mutex_unlock(&ctx->lock);
    uint64_t history = vvi_trace_history(h);
    vvi_trace_call(h, VV_TRACE_CALL_CLOSE, 0);
    rc = vvi_history_end(h, vv_deadline_ns(ctx->opts.close_timeout_ms), text, sizeof(text));
    vv_trace5(VV_TRACE_CALL_END, VV_TRACE_CALL_CLOSE, history, 0, 0, (uint64_t)(int64_t)rc);
    if (rc)
        vvi_fail(ctx, &here, rc, "%s", text);
    vvi_ctx_leave(ctx);
    return rc;
}

/* ---- regions ---- */

static int region_set(struct varve_history *h, const struct vvi_region *region)
{
    int rc = 0;
    vv_mutex_lock(&h->lock);
    struct vvi_region *there = vv_idmap_find(&h->regions, region->id);
    if (there)
        *there = *region;
    else
        rc = vv_idmap_add(&h->regions, region);
    vv_mutex_unlock(&h->lock);
    return rc;
}

/* Determines the kind of a region's memory, host or device, and checks that all of it exists. */
static int region_kind(struct varve_ctx *ctx, const struct vvi_where *here, struct vvi_region *r)
{
    size_t left = 0;
    if (!ctx->wants_gpu && vv_device_cuda_owns(r->ptr))
        return vvi_fail(ctx, here, -ENODEV,
                        "region %d: %p is memory of a GPU, and the context was opened without one: "
                        "open it with device = cuda, or with auto after CUDA was first used",
                        r->id, (void *)r->ptr);
    if (!ctx->device)
        return 0;
    int rc = vv_device_ptr_kind(ctx->device, r->ptr, &r->kind, &left);
    if (rc == -EXDEV)
        return vvi_fail(ctx, here, rc,
                        "region %d: %p is memory of another GPU, or of a CUDA context that is not "
                        "the primary one; device_id chooses the GPU",
                        r->id, (void *)r->ptr);
    if (rc)
        return vvi_fail_foreign(ctx, here, rc, vvi_device_code(ctx->device), "region %d at %p: %s",
                                r->id, (void *)r->ptr, vv_strerror(rc));
    if (r->kind == VV_MEM_DEVICE && left < r->bytes)
        return vvi_fail(ctx, here, -EFAULT,
                        "region %d: %zu bytes at %p, but the memory ends after %zu", r->id,
                        r->bytes, (void *)r->ptr, left);
    return 0;
}

int vvi_region_check(struct varve_ctx *ctx, const struct vvi_where *here, struct vvi_region *r)
{
    if (r->id < 0)
        return vvi_fail(ctx, here, -EINVAL, "region %d: a region's number must be 0 or more",
                        r->id);
    if (!r->ptr && r->bytes > 0)
        return vvi_fail(ctx, here, -EINVAL,
                        "region %d: the pointer is NULL, and the size %zu bytes; only an empty "
                        "region needs no memory",
                        r->id, r->bytes);
    if (r->bytes > INT64_MAX)
        return vvi_fail(ctx, here, -EINVAL,
                        "region %d: %zu bytes are more than any memory holds; is the size "
                        "negative?",
                        r->id, r->bytes);
    return r->bytes > 0 ? region_kind(ctx, here, r) : 0;
}

int varve_protect(struct varve_history *h, int region, void *ptr, size_t bytes)
{
    struct vvi_where here = {"protect", 0, region, -1};
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    struct vvi_region r = {.id = region, .kind = VV_MEM_HOST, .ptr = ptr, .bytes = bytes};
    rc = vvi_region_check(h->ctx, &here, &r);
    if (rc == 0) {
        rc = region_set(h, &r);
        if (rc)
            vvi_fail(h->ctx, &here, rc, "no memory for region %d", region);
    }
    vvi_history_leave(h);
    return rc;
}

int varve_unprotect(struct varve_history *h, int region)
{
    struct vvi_where here = {"unprotect", 0, region, -1};
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    vv_mutex_lock(&h->lock);
    const struct vvi_region *there = vv_idmap_find(&h->regions, region);
    if (there)
        vv_idmap_remove(&h->regions, region);
    vv_mutex_unlock(&h->lock);
    if (!there)
        rc = vvi_fail(h->ctx, &here, -ENOENT, "region %d is not protected", region);
    vvi_history_leave(h);
    return rc;
}
