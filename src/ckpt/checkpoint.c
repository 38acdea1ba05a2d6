/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoint and restore, and small related calls.
 *
 * An object is the bytes of its regions, by ascending number, one after the other. A checkpoint copies the
 * list of regions and passes their pieces to the engine. A restore looks the version up, matches the
 * protected regions with the stored ones, and passes pieces to the engine in the stored order, with a hole
 * for every stored region that is not wanted.
 *
 * Between the lookup of a version and getting it, another thread may discard the version and write it again
 * with other regions. The engine compares generations, and the restore repeats the lookup.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "ckpt/ckpt_private.h"
#include "ckpt/face.h"

/* The pieces of one request, on the stack unless there are many. An empty region has no piece. */
struct pieces {
    struct vv_engine_piece few[VVI_PIECES_INLINE];
    struct vv_engine_piece *v;
    size_t n;
    bool device, host; /* some pieces are in device memory, in host memory */
};

static int pieces_alloc(struct pieces *p, size_t n)
{
    p->v = n <= VVI_PIECES_INLINE ? p->few : calloc(n, sizeof(*p->v));
    p->n = 0;
    p->device = p->host = false;
    return p->v ? 0 : -ENOMEM;
}

/* Adds a piece. `ptr` NULL: a hole, whose bytes are skipped. */
static void pieces_add(struct pieces *p, char *ptr, uint64_t bytes, enum vv_mem_kind kind)
{
    p->v[p->n++] = (struct vv_engine_piece){ptr, bytes, kind};
    p->device |= ptr && kind == VV_MEM_DEVICE;
    p->host |= ptr && kind == VV_MEM_HOST;
}

static void pieces_free(struct pieces *p)
{
    if (p->v != p->few)
        free(p->v);
}

/* A copy of the list of regions, so that no lock is held while data moves. */
struct regions {
    struct vvi_region few[VVI_PIECES_INLINE];
    struct vvi_region *v;
    size_t n;
};

static int regions_alloc(struct regions *r, size_t n)
{
    r->n = n;
    r->v = n <= VVI_PIECES_INLINE ? r->few : malloc(n * sizeof(*r->v));
    return r->v ? 0 : -ENOMEM;
}

/* `only`: copies these `n` regions; NULL: the protected ones. */
static int regions_copy(struct varve_history *h, const struct vvi_region *only, size_t n,
                        struct regions *r)
{
    int rc;
    if (only) {
        rc = regions_alloc(r, n);
        if (rc == 0)
            memcpy(r->v, only, n * sizeof(*r->v));
        return rc;
    }
    vv_mutex_lock(&h->lock);
    rc = regions_alloc(r, h->regions.n);
    if (rc == 0 && r->n == 0)
        rc = -ENODATA;
    if (rc == 0) {
        vv_idmap_sort(&h->regions);
        memcpy(r->v, h->regions.v, r->n * sizeof(*r->v));
    }
    vv_mutex_unlock(&h->lock);
    return rc;
}

static void regions_free(struct regions *r)
{
    if (r->v != r->few)
        free(r->v);
}

/* Reports a failure on a stream after its call had returned. `only`: of this version. */
static int stream_error(struct varve_history *h, const char *operation, const uint64_t *only)
{
    enum vv_req_kind kind = VV_REQ_PUT;
    struct vvi_where here = {operation, 0, -1, -1};
    int rc = vv_engine_take_ordered_error(h->ctx->engine, h->hist, only, &here.version, &kind);
    if (rc == 0)
        return 0;
    if (kind == VV_REQ_WAIT)
        return vvi_fail(h->ctx, &here, rc,
                        "version %llu is lost: its copy to the host failed after its room in the "
                        "device cache was used again: %s",
                        (unsigned long long)here.version, vv_strerror(rc));
    return vvi_fail(h->ctx, &here, rc, "version %llu: its stream-ordered %s failed%s: %s",
                    (unsigned long long)here.version, kind == VV_REQ_PUT ? "checkpoint" : "restore",
                    kind == VV_REQ_PUT ? ", the version has its previous content" : "",
                    vv_strerror(rc));
}

/* Reports that, after opening, part of the host cache could not be prepared. */
static int memory_error(struct varve_ctx *ctx, const char *operation)
{
    char text[160];
    int rc = vv_engine_take_memory_error(ctx->engine, text, sizeof(text));
    if (rc == 0)
        return 0;
    struct vvi_where here = {operation, 0, -1, -1};
    for (unsigned t = 0; t < vv_engine_tiers(ctx->engine); t++)
        if (vv_engine_tier_kind(ctx->engine, t) == VV_TIER_HOST)
            here.tier = (int)t;
    return vvi_fail(ctx, &here, rc, "%s. The context continues with the memory that it has", text);
}

/* Reports once a failure that came after its call had returned. */
int vvi_history_late_error(struct varve_history *h, const char *operation)
{
    uint64_t version = 0;
    /* Every call checks, and there is hardly ever an error: a single query of the engine must be enough. */
    bool any = vv_engine_has_error(h->ctx->engine, h->hist);
    int tier = -1, rc = any ? stream_error(h, operation, NULL) : 0;
    if (rc == 0)
        rc = memory_error(h->ctx, operation);
    if (rc)
        return rc;
    while (any && (rc = vv_engine_take_error(h->ctx->engine, h->hist, &version, &tier)) != 0) {
        vv_mutex_lock(&h->lock);
        bool reported = h->reported && h->reported_version == version;
        h->reported = h->reported && !reported;
        vv_mutex_unlock(&h->lock);
        if (reported)
            continue;
        struct vv_object_info info;
        if (vv_engine_lookup(h->ctx->engine, h->hist, version, &info) == 0) {
            vvi_layout_release(NULL, info.user);
            return vvi_fail_flush(h, operation, version, tier, rc);
        }
        struct vvi_where here = {operation, version, -1, tier};
        return vvi_fail(h->ctx, &here, rc,
                        "the file of discarded version %llu could not be removed from %.80s: %s",
                        (unsigned long long)version, vvi_files_path(h->ctx), vv_strerror(rc));
    }
    return vvi_shared_late_error(h, operation);
}

/* Reports a stream-ordered put or restore of the version that failed. The version has its previous content,
 * which a restore must not return without this error. */
int vvi_version_late_error(struct varve_history *h, const char *operation, uint64_t version)
{
    return vv_engine_has_error(h->ctx->engine, h->hist) ? stream_error(h, operation, &version) : 0;
}

static const char *why_refused(const struct varve_history *h, const char *operation, int rc)
{
    bool vector = strncmp(operation, "write", 5) == 0;
    switch (rc) {
    case -ENODATA:
        return "no region is protected: call varve_protect first";
    case -ENOENT:
        return h->consume_once ? "no such version; each is gone after its first restore "
                                 "(VARVE_CONSUME_ONCE)"
                               : "no such version; varve_versions lists those that are there";
    case -EEXIST:
        return vector ? "it exists, written by this vector or by another of its history; vectors "
                        "that number their records separately need a history of its own each, and "
                        "`overwrite` in the history's options replaces records"
                      : "it exists; to replace a version, open the history with `overwrite`";
    case -EBUSY:
        return "the stream is being captured into a graph";
    case -EAGAIN:
        return "the call would have to wait";
    case -EIDRM:
        return "the job has removed it, or written the history again, since the part was opened";
    case -EINVAL:
        return "the stream does not exist, or memory of a region has been freed";
    case -ENOMEM:
        return h->ctx->device ? "no memory, or no more events of the device" : vv_strerror(rc);
    case -ENODEV:
        return h->ctx->device ? vv_strerror(rc)
                              : "a stream was given, but the context has no device";
    default:
        return vv_strerror(rc);
    }
}

int vvi_history_say(struct varve_history *h, const char *operation, uint64_t version, int rc)
{
    struct vvi_where here = {operation, version, -1, -1};
    const char *why = why_refused(h, operation, rc);
    /* If another thread found the device lost, this thread has no device code. */
    return vvi_fail_foreign(h->ctx, &here, rc,
                            vvi_device_code(rc == -ENODEV ? h->ctx->device : NULL),
                            "version %llu: %s", (unsigned long long)version, why);
}

/* ---- checkpoint ---- */

static int layout_of(const struct regions *r, struct pieces *p, uint64_t *ret_size,
                     uint64_t *ret_user)
{
    struct vv_store_region few[VVI_PIECES_INLINE];
    struct vv_store_region *list = r->n <= VVI_PIECES_INLINE ? few : malloc(r->n * sizeof(*list));
    uint64_t size = 0;
    if (!list)
        return -ENOMEM;
    int rc = pieces_alloc(p, r->n);
    for (size_t i = 0; i < r->n && rc == 0; i++) {
        const struct vvi_region *g = &r->v[i];
        if (size + g->bytes > INT64_MAX)
            rc = -EFBIG;
        size += g->bytes;
        list[i] =
            (struct vv_store_region){.id = g->id, .elem_bytes = g->elem_bytes, .bytes = g->bytes};
        if (g->bytes > 0)
            pieces_add(p, g->ptr, g->bytes, g->kind);
    }
    if (rc == 0)
        rc = vvi_layout_new(list, (uint32_t)r->n, ret_user);
    if (rc == 0)
        *ret_size = size;
    if (list != few)
        free(list);
    return rc;
}

uint64_t vvi_on_deadline_ns(int timeout_ms)
{
    return timeout_ms == 0 ? 0 : vv_deadline_ns(timeout_ms);
}

/* The processor copies host memory, and its copies cannot be put on a stream: wait until the stream has
 * executed its earlier work, and continue without a stream. `ret_polls`: the call must not wait, so -ETIMEDOUT
 * becomes -EAGAIN. */
static int leave_stream(struct varve_history *h, const struct pieces *p,
                        const struct vvi_on_stream **on, uint64_t *deadline_ns, bool *ret_polls)
{
    int rc = 0;
    *ret_polls = false;
    if (!*on)
        return 0;
    if (!h->ctx->device)
        rc = (*on)->native ? -ENODEV : 0;
    else if (p->n == 0)
        rc = 0; /* nothing is copied */
    else if (p->host || !p->device)
        rc = vv_engine_stream_wait(h->ctx->engine, (*on)->native, *deadline_ns);
    else
        return 0;
    if (*deadline_ns == 0) {
        *deadline_ns = vv_now_ns();
        *ret_polls = true;
    }
    *on = NULL;
    return rc;
}

/* One call of the application. */
struct call {
    struct varve_history *h;
    uint64_t version, deadline_ns;
    const struct vvi_on_stream *on;
    const struct vvi_region *only; /* `nonly` regions; NULL: the protected ones */
    size_t nonly;
    bool replace;      /* of a checkpoint: the version may exist */
    uint64_t size;     /* size of the version, once it is known */
    uint32_t distance; /* of a completed restore */
};

static struct call call_of(struct varve_history *h, uint64_t version,
                           const struct vvi_on_stream *on, int timeout_ms)
{
    return (struct call){
        .h = h,
        .version = version,
        .deadline_ns = on ? vvi_on_deadline_ns(timeout_ms) : vv_deadline_ns(timeout_ms),
        .on = on,
    };
}

static int put(struct call *c)
{
    struct varve_history *h = c->h;
    struct varve_ctx *ctx = h->ctx;
    const struct vvi_on_stream *on = c->on;
    uint64_t version = c->version, deadline_ns = c->deadline_ns, size = 0, user = 0;
    struct regions r = {.n = 0};
    struct pieces p = {.n = 0};
    int rc = regions_copy(h, c->only, c->nonly, &r);
    if (rc == 0)
        rc = layout_of(&r, &p, &size, &user);
    c->size = size;
    if (rc == 0 && !vvi_shared_fits(ctx, size)) {
        vvi_layout_release(NULL, user);
        rc = -EFBIG;
    }
    if (rc == 0) {
        struct vv_engine_app app = {
            .pieces = p.v, .npieces = p.n, .device = p.device, .replace = c->replace};
        bool polls;
        rc = leave_stream(h, &p, &on, &deadline_ns, &polls);
        if (rc)
            vvi_layout_release(NULL, user);
        else if (on)
            rc = vv_engine_put_on(ctx->engine, h->hist, version, size, user, &app, on->native,
                                  deadline_ns);
        else
            rc = vv_engine_put(ctx->engine, h->hist, version, size, user, &app, deadline_ns);
        if (rc == -ETIMEDOUT && polls)
            rc = -EAGAIN;
    }
    if (rc == 0 && atomic_load_explicit(&h->reported, memory_order_relaxed)) {
        vv_mutex_lock(&h->lock);
        h->reported = h->reported && h->reported_version != version;
        vv_mutex_unlock(&h->lock);
    }
    pieces_free(&p);
    regions_free(&r);
    if (rc == -ENOSPC || (rc == -EFBIG && size <= INT64_MAX))
        return vvi_fail_put(h, version, size, rc);
    return rc ? vvi_history_say(h, c->only && c->only->elem_bytes ? "write" : "checkpoint", version,
                                rc)
              : 0;
}

static int checkpoint(struct call *c)
{
    uint64_t start_ns = vv_now_ns();
    struct varve_history *h = c->h;
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    vvi_trace_call(h, VV_TRACE_CALL_CHECKPOINT, c->version);
    rc = vvi_may_write(h, "checkpoint", c->version);
    if (rc == 0)
        rc = vvi_history_late_error(h, "checkpoint");
    if (rc == 0)
        rc = vvi_damage_check(h, "checkpoint", c->version, -EEXIST);
    if (rc == 0) {
        c->replace = vvi_replaces(h, c->version);
        rc = put(c);
    }
    if (rc == 0)
        h->ctx->checkpoint_bytes += c->size;
    vvi_partner_give_up(h, c->version, rc);
    vvi_partner_attend(h->ctx);
    vvi_call_ended(h->ctx, VVI_CALL_WRITE, start_ns);
    vvi_trace_call_end(h, VV_TRACE_CALL_CHECKPOINT, c->version, c->size, rc);
    vvi_history_leave(h);
    return rc;
}

int vvi_checkpoint(struct varve_history *h, uint64_t version, const struct vvi_on_stream *on,
                   int timeout_ms)
{
    struct call call = call_of(h, version, on, timeout_ms);
    return checkpoint(&call);
}

int vvi_checkpoint_of(struct varve_history *h, uint64_t version, const struct vvi_region *region,
                      uint64_t deadline_ns)
{
    struct call call = {
        .h = h, .version = version, .deadline_ns = deadline_ns, .only = region, .nonly = 1};
    return checkpoint(&call);
}

/* One of the `_of` and `_to` calls, on regions passed to the call. */
static int on_given(struct call *c, const char *operation, const struct varve_region *given,
                    size_t n, int (*made)(struct call *))
{
    struct varve_history *h = c->h;
    struct regions r = {.n = 0};
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    rc = n == 0 || !given ? -ENODATA : regions_alloc(&r, n);
    if (rc) {
        struct vvi_where here = {operation, c->version, -1, -1};
        vvi_fail(h->ctx, &here, rc, "version %llu: %s", (unsigned long long)c->version,
                 rc == -ENODATA ? "no region is given" : vv_strerror(rc));
    }
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct vvi_where here = {operation, c->version, given[i].region, -1};
        r.v[i] = (struct vvi_region){.id = given[i].region,
                                     .kind = VV_MEM_HOST,
                                     .ptr = given[i].ptr,
                                     .bytes = given[i].bytes};
        if (i > 0 && r.v[i].id <= r.v[i - 1].id)
            rc = vvi_fail(h->ctx, &here, -EINVAL,
                          "region %d comes after region %d: numbers must ascend", r.v[i].id,
                          r.v[i - 1].id);
        else
            rc = vvi_region_check(h->ctx, &here, &r.v[i]);
    }
    c->only = r.v;
    c->nonly = n;
    if (rc == 0)
        rc = made(c);
    if (r.n > 0)
        regions_free(&r);
    vvi_history_leave(h);
    return rc;
}

int varve_checkpoint_of(struct varve_history *h, uint64_t version,
                        const struct varve_region *regions, size_t n, int timeout_ms)
{
    struct call call = call_of(h, version, NULL, timeout_ms);
    return on_given(&call, "checkpoint", regions, n, checkpoint);
}

int varve_checkpoint_of_on(struct varve_history *h, uint64_t version,
                           const struct varve_region *regions, size_t n, struct CUstream_st *stream,
                           int timeout_ms)
{
    struct vvi_on_stream on = {stream};
    struct call call = call_of(h, version, &on, timeout_ms);
    return on_given(&call, "checkpoint", regions, n, checkpoint);
}

int varve_checkpoint_for(struct varve_history *h, uint64_t version, int timeout_ms)
{
    struct call call = call_of(h, version, NULL, timeout_ms);
    return checkpoint(&call);
}

int varve_checkpoint(struct varve_history *h, uint64_t version)
{
    struct call call = call_of(h, version, NULL, -1);
    return checkpoint(&call);
}

/* ---- restore ---- */

static int match_fail(struct varve_history *h, uint64_t version, const struct vvi_region *g, int rc,
                      uint64_t stored)
{
    struct vvi_where here = {"restore", version, g->id, -1};
    unsigned long long v = version, bytes = stored;
    if (rc == -ESRCH)
        return vvi_fail(h->ctx, &here, rc,
                        "version %llu has no region %d: unprotect it, or restore into those that "
                        "the version has (varve_restore_to)",
                        v, g->id);
    return vvi_fail(h->ctx, &here, rc,
                    "region %d of version %llu has %llu bytes, the buffer only %zu", g->id, v,
                    bytes, g->bytes);
}

/* Both lists have ascending numbers, so one pass matches them. */
static int match(struct varve_history *h, const struct vv_object_info *info,
                 const struct regions *r, struct pieces *p)
{
    uint32_t nstored = vvi_layout_count(info->user);
    size_t at = 0;
    int rc = pieces_alloc(p, nstored);
    if (rc)
        return vvi_history_say(h, "restore", info->version, rc);
    for (uint32_t i = 0; i < nstored; i++) {
        struct vv_store_region s = vvi_layout_region(info->user, info->size, i);
        const struct vvi_region *g = at < r->n ? &r->v[at] : NULL;
        if (g && g->id < s.id)
            break;
        if (g && g->id != s.id)
            g = NULL;
        at += g != NULL;
        if (g && g->bytes < s.bytes)
            return match_fail(h, info->version, g, -ENOBUFS, s.bytes);
        if (s.bytes > 0)
            pieces_add(p, g ? g->ptr : NULL, s.bytes, g ? g->kind : VV_MEM_HOST);
    }
    return at == r->n ? 0 : match_fail(h, info->version, &r->v[at], -ESRCH, 0);
}

/* Reports the place of damaged bytes. A checksum covers a chunk, which may have the end of one region and the
 * beginning of others: the first of these regions is named. */
void vvi_damage_fail(struct varve_history *h, const char *operation,
                     const struct vv_object_info *info)
{
    struct vvi_where here = {operation, info->version, -1, -1};
    unsigned long long v = info->version;
    uint64_t from = 0, to = 0, at = 0;
    if (vv_engine_damage(h->ctx->engine, h->hist, info->version, info->generation, &here.tier,
                         &from, &to)) {
        vvi_history_say(h, operation, info->version, -EBADMSG);
        return;
    }
    for (uint32_t i = 0; i < vvi_layout_count(info->user); i++) {
        struct vv_store_region s = vvi_layout_region(info->user, info->size, i);
        at += s.bytes;
        if (at > from) {
            here.region = s.id;
            break;
        }
    }
    to = VV_MIN(to, info->size);
    vvi_fail(h->ctx, &here, -EBADMSG,
             "version %llu, region %d: its bytes in %s are damaged (within %llu to %llu of the "
             "version)",
             v, here.region, h->part ? "the remote folder" : vvi_tier_name(h->ctx, here.tier),
             (unsigned long long)from, (unsigned long long)to);
}

int vvi_lookup_last(struct varve_history *h, uint64_t version, struct vv_object_info *ret_info)
{
    struct vv_object_info info;
    int rc = vv_engine_lookup(h->ctx->engine, h->hist, version, &info);
    if (rc == 0 && info.pending) {
        vvi_layout_release(NULL, info.user);
        return -ENOENT;
    }
    if (rc == 0)
        *ret_info = info;
    return rc;
}

int vvi_await_written(struct varve_history *h, const char *operation, uint64_t version, bool on,
                      uint64_t deadline_ns)
{
    int rc = vv_engine_wait(h->ctx->engine, h->hist, version, VV_CORE_CACHED,
                            deadline_ns ? deadline_ns : vv_now_ns());
    if (rc == -ETIMEDOUT && on && deadline_ns == 0)
        rc = -EAGAIN;
    if (rc && rc != -ETIMEDOUT && rc != -EAGAIN) {
        int late = stream_error(h, operation, &version);
        if (late)
            return late;
    }
    return rc ? vvi_history_say(h, operation, version, rc) : 0;
}

/* One attempt to restore. -ESTALE: the version was replaced or written meanwhile. */
static int get(struct call *c, const struct regions *r)
{
    struct varve_history *h = c->h;
    const struct vvi_on_stream *on = c->on;
    uint64_t version = c->version, deadline_ns = c->deadline_ns;
    struct vv_object_info info;
    int rc = vvi_lookup_last(h, version, &info);
    if (rc == -ENOENT) {
        rc = vvi_await_written(h, "restore", version, on != NULL, deadline_ns);
        return rc ? rc : -ESTALE;
    }
    if (rc)
        return vvi_history_say(h, "restore", version, rc);
    struct pieces p = {.n = 0};
    rc = match(h, &info, r, &p);
    if (rc == 0) {
        struct vv_engine *e = h->ctx->engine;
        struct vv_engine_app app = {.pieces = p.v, .npieces = p.n, .device = p.device};
        bool polls;
        rc = leave_stream(h, &p, &on, &deadline_ns, &polls);
        if (rc == 0 && on)
            rc = vv_engine_get_on(e, h->hist, version, info.generation, &app, on->native,
                                  deadline_ns, &c->distance);
        else if (rc == 0)
            rc = vv_engine_get(e, h->hist, version, info.generation, &app, deadline_ns,
                               &c->distance);
        if (rc == -ETIMEDOUT && polls)
            rc = -EAGAIN;
        if (rc == -EBADMSG)
            vvi_damage_fail(h, "restore", &info);
        else if (rc && rc != -ESTALE)
            vvi_history_say(h, "restore", version, rc);
    }
    if (rc == 0)
        c->size = info.size;
    pieces_free(&p);
    vvi_layout_release(NULL, info.user);
    return rc;
}

static void restore_ended(const struct call *c, uint64_t start_ns, int rc)
{
    struct varve_history *h = c->h;
    if (rc == 0) {
        h->ctx->restore_bytes += c->size;
        h->ctx->last_distance = c->distance;
    }
    h->ctx->last_blocked_ns = vvi_call_ended(h->ctx, VVI_CALL_READ, start_ns);
    if (rc == 0)
        vv_trace(VV_TRACE_DISTANCE, vvi_trace_history(h), c->version, c->distance, 0);
    vvi_trace_call_end(h, VV_TRACE_CALL_RESTORE, c->version, c->size, rc);
}

static int restore(struct call *c)
{
    uint64_t start_ns = vv_now_ns();
    struct varve_history *h = c->h;
    struct regions r = {.n = 0};
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    vvi_trace_call(h, VV_TRACE_CALL_RESTORE, c->version);
    /* Late errors of other versions are reported by other calls. */
    rc = vvi_version_late_error(h, "restore", c->version);
    if (rc == 0)
        rc = vvi_damage_check(h, "restore", c->version, 0);
    if (rc == 0 && (rc = regions_copy(h, c->only, c->nonly, &r)) != 0)
        vvi_history_say(h, "restore", c->version, rc);
    while (rc == 0 && (rc = get(c, &r)) == -ESTALE)
        rc = 0;
    regions_free(&r);
    restore_ended(c, start_ns, rc);
    vvi_history_leave(h);
    return rc;
}

int vvi_restore(struct varve_history *h, uint64_t version, const struct vvi_on_stream *on,
                int timeout_ms)
{
    struct call call = call_of(h, version, on, timeout_ms);
    return restore(&call);
}

int vvi_restore_to(struct varve_history *h, uint64_t version, const struct vvi_region *region,
                   uint64_t deadline_ns)
{
    struct call call = {
        .h = h, .version = version, .deadline_ns = deadline_ns, .only = region, .nonly = 1};
    return restore(&call);
}

int vv_ckpt_read_region(struct varve_history *h, uint64_t version, int region, void *ptr,
                        size_t bytes)
{
    struct vvi_region only = {.id = region, .kind = VV_MEM_HOST, .ptr = ptr, .bytes = bytes};
    return vvi_restore_to(h, version, &only, vv_deadline_ns(-1));
}

void vvi_restored(struct varve_history *h, uint64_t version, uint64_t size, uint64_t start_ns)
{
    struct vv_core_hist_stats stats;
    struct call call = {.h = h, .version = version, .size = size};
    vv_engine_get_hist_stats(h->ctx->engine, h->hist, &stats);
    call.distance = (uint32_t)stats.ready;
    restore_ended(&call, start_ns, 0);
}

int varve_restore_to(struct varve_history *h, uint64_t version, const struct varve_region *regions,
                     size_t n, int timeout_ms)
{
    struct call call = call_of(h, version, NULL, timeout_ms);
    return on_given(&call, "restore", regions, n, restore);
}

int varve_restore_to_on(struct varve_history *h, uint64_t version,
                        const struct varve_region *regions, size_t n, struct CUstream_st *stream,
                        int timeout_ms)
{
    struct vvi_on_stream on = {stream};
    struct call call = call_of(h, version, &on, timeout_ms);
    return on_given(&call, "restore", regions, n, restore);
}

int varve_restore_for(struct varve_history *h, uint64_t version, int timeout_ms)
{
    struct call call = call_of(h, version, NULL, timeout_ms);
    return restore(&call);
}

int varve_restore(struct varve_history *h, uint64_t version)
{
    struct call call = call_of(h, version, NULL, -1);
    return restore(&call);
}

int vvi_region_stored(struct varve_history *h, uint64_t version, int region,
                      struct vv_store_region *ret_region)
{
    struct vv_object_info info;
    struct vvi_where here = {"region_size", version, region, -1};
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    rc = vvi_damage_check(h, "region_size", version, 0);
    if (rc) {
        vvi_history_leave(h);
        return rc;
    }
    rc = vv_engine_lookup(h->ctx->engine, h->hist, version, &info);
    if (rc) {
        vvi_history_say(h, "region_size", version, rc);
    } else {
        struct vv_store_region s = {.id = -1};
        for (uint32_t low = 0, high = vvi_layout_count(info.user); low < high && s.id != region;) {
            uint32_t mid = low + (high - low) / 2;
            s = vvi_layout_region(info.user, info.size, mid);
            *(s.id < region ? &low : &high) = s.id < region ? mid + 1 : mid;
        }
        rc = s.id == region && region >= 0 ? 0 : -ESRCH;
        if (rc == 0)
            *ret_region = s;
        vvi_layout_release(NULL, info.user);
        if (rc)
            vvi_fail(h->ctx, &here, rc, "version %llu has no region %d",
                     (unsigned long long)version, region);
    }
    vvi_history_leave(h);
    return rc;
}

int varve_region_size(struct varve_history *h, uint64_t version, int region, size_t *ret_bytes)
{
    struct vv_store_region stored;
    if (!ret_bytes)
        return vvi_fail(NULL, &(struct vvi_where){"region_size", version, region, -1}, -EINVAL,
                        "ret_bytes is NULL");
    int rc = vvi_region_stored(h, version, region, &stored);
    if (rc == 0)
        *ret_bytes = stored.bytes;
    return rc;
}

/* ---- hints ---- */

int varve_hint(struct varve_history *h, uint64_t version)
{
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    struct vvi_where here = {"hint", version, -1, -1};
    if (h->ordered)
        rc = vvi_fail(h->ctx, &here, -EINVAL,
                      "history %.60s has a declared order: the library makes its hints", h->name);
    else if ((rc = vv_engine_hint(h->ctx->engine, h->hist, version)) != 0)
        vvi_history_say(h, "hint", version, rc);
    vvi_history_leave(h);
    return rc;
}

int varve_hint_clear(struct varve_history *h)
{
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    vv_engine_hint_clear(h->ctx->engine, h->hist);
    vvi_history_leave(h);
    return 0;
}

int varve_prefetch_start(struct varve_history *h)
{
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    rc = vvi_history_late_error(h, "prefetch_start");
    if (rc == 0)
        vv_engine_prefetch_start(h->ctx->engine, h->hist);
    vvi_history_leave(h);
    return rc;
}

/* ---- waiting ---- */

static int level_fail(struct varve_history *h, uint64_t version, int level)
{
    static const char *const names[] = {"cached", "local", "remote", "complete"};
    struct vvi_where here = {"wait", version, -1, -1};
    if (level < VARVE_LEVEL_CACHED || level > VARVE_LEVEL_COMPLETE)
        return vvi_fail(h->ctx, &here, -EINVAL, "there is no level %d", level);
    return vvi_fail(h->ctx, &here, -EINVAL,
                    "level %s is above this context's level, %s: set level higher", names[level],
                    names[h->ctx->opts.level]);
}

/* Reports the engine's result of a wait. */
static int wait_fail(struct varve_history *h, uint64_t version, int rc)
{
    int late = rc == -ETIMEDOUT ? 0 : stream_error(h, "wait", &version);
    if (late)
        return late;
    if (rc == -ETIMEDOUT || rc == -ENOENT)
        return vvi_history_say(h, "wait", version, rc);
    vvi_fail_flush(h, "wait", version, -1, rc);
    vv_mutex_lock(&h->lock);
    h->reported = true;
    h->reported_version = version;
    vv_mutex_unlock(&h->lock);
    return rc;
}

int varve_wait(struct varve_history *h, uint64_t version, enum varve_level level, int timeout_ms)
{
    uint64_t start_ns = vv_now_ns();
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    vvi_trace_call(h, VV_TRACE_CALL_WAIT, version);
    if ((int)level < VARVE_LEVEL_CACHED || (int)level > h->ctx->opts.level) {
        rc = level_fail(h, version, (int)level);
    } else if ((rc = vvi_damage_check(h, "wait", version, 0)) == 0 &&
               (rc = stream_error(h, "wait", &version)) == 0) {
        uint64_t deadline_ns = vv_deadline_ns(timeout_ms);
        rc = vv_engine_wait(h->ctx->engine, h->hist, version,
                            level == VARVE_LEVEL_CACHED ? VV_CORE_CACHED : VV_CORE_DURABLE,
                            deadline_ns);
        vvi_partner_give_up(h, version, rc);
        if (rc)
            rc = wait_fail(h, version, rc);
        else if (level >= VARVE_LEVEL_REMOTE)
            rc = vvi_shared_wait(h, version, level, deadline_ns);
        else if (level == VARVE_LEVEL_LOCAL)
            rc = vvi_partner_wait(h, version, deadline_ns);
    }
    vvi_trace_call_end(h, VV_TRACE_CALL_WAIT, version, 0, rc);
    vvi_call_ended(h->ctx, VVI_CALL_WAIT, start_ns);
    vvi_history_leave(h);
    return rc;
}

int varve_flush(struct varve_history *h, int timeout_ms)
{
    uint64_t start_ns = vv_now_ns();
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    vvi_trace_call(h, VV_TRACE_CALL_FLUSH, 0);
    rc = vvi_history_late_error(h, "flush");
    uint64_t deadline_ns = vv_deadline_ns(timeout_ms);
    if (rc) {
        /* The caller may have discarded a version, which must not come back. */
        (void)!vv_engine_wait_gone(h->ctx->engine, h->hist, deadline_ns);
    } else {
        rc = vv_engine_wait_all(h->ctx->engine, h->hist, deadline_ns);
        if (rc)
            vvi_fail_flush_all(h, rc);
        else if (h->remote)
            rc = vvi_shared_flush(h, "flush", false, deadline_ns);
        else
            rc = vvi_partner_flush(h, deadline_ns);
        /* Versions that reached the level may have made older files removable. */
        if (rc == 0 && h->remote)
            rc = vv_engine_wait_all(h->ctx->engine, h->hist, deadline_ns);
        if (rc == 0)
            rc = vvi_history_late_error(h, "flush"); /* of removals that ended meanwhile */
    }
    vvi_trace_call_end(h, VV_TRACE_CALL_FLUSH, 0, 0, rc);
    vvi_call_ended(h->ctx, VVI_CALL_WAIT, start_ns);
    vvi_history_leave(h);
    return rc;
}

/* ---- versions ---- */

int varve_discard(struct varve_history *h, uint64_t version)
{
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    int readonly = vvi_may_write(h, "discard", version);
    rc = readonly ? readonly : vv_engine_discard(h->ctx->engine, h->hist, version);
    if (rc == -ENOENT)
        rc = vvi_damage_discard(h, version);
    if (rc && !readonly)
        vvi_history_say(h, "discard", version, rc);
    vvi_history_leave(h);
    return rc;
}

int varve_revert(struct varve_history *h, uint64_t version)
{
    struct vvi_where here = {"revert", version, -1, -1};
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    int readonly = vvi_may_write(h, "revert", version);
    rc = readonly ? readonly : vv_engine_take_back(h->ctx->engine, h->hist, version);
    if (rc == -EALREADY)
        vvi_fail(h->ctx, &here, rc,
                 "version %llu has reached its level and cannot be reverted; varve_discard "
                 "removes it",
                 (unsigned long long)version);
    else if (rc && !readonly)
        vvi_history_say(h, "revert", version, rc);
    vvi_history_leave(h);
    return rc;
}

int varve_confirm(struct varve_history *h, uint64_t version)
{
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    int readonly = vvi_may_write(h, "confirm", version);
    rc = readonly ? readonly : vv_engine_confirm(h->ctx->engine, h->hist, version);
    if (rc && !readonly)
        vvi_history_say(h, "confirm", version, rc);
    vvi_history_leave(h);
    return rc;
}

int varve_latest(struct varve_history *h, uint64_t *ret_version)
{
    struct vvi_where here = {"latest", 0, -1, -1};
    if (!ret_version)
        return vvi_fail(NULL, &here, -EINVAL, "ret_version is NULL");
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    rc = vv_engine_latest(h->ctx->engine, h->hist, ret_version);
    if (rc)
        vvi_fail(h->ctx, &here, rc, "no version has reached the level");
    vvi_history_leave(h);
    return rc;
}

struct version_list {
    uint64_t *versions;
    size_t max, n;
};

static void version_add(void *arg, const struct vv_object_info *info)
{
    struct version_list *list = arg;
    if (list->n < list->max)
        list->versions[list->n] = info->version;
    list->n++;
}

int varve_versions(struct varve_history *h, uint64_t *ret_versions, size_t max, size_t *ret_count)
{
    static const struct vvi_where here = {"versions", 0, -1, -1};
    if (!ret_count || (max > 0 && !ret_versions))
        return vvi_fail(NULL, &here, -EINVAL, "ret_count or ret_versions is NULL");
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    struct version_list list = {ret_versions, max, 0};
    vv_engine_each(h->ctx->engine, h->hist, version_add, &list);
    *ret_count = list.n;
    vvi_history_leave(h);
    return 0;
}
