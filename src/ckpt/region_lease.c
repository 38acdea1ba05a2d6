/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions lent to the application: acquired for reading, reserved for writing.
 *
 * The engine lends memory; this file keeps the list of lent regions. An entry is made before the engine lends the
 * memory, so that two threads cannot get the same region. It is `busy` while a call works on it: another call on the
 * same region fails with -EBUSY instead of waiting. The list is short, because at most half of a tier is lent, and is
 * searched from the front.
 *
 * h->lock protects the list and is not held while the engine works. A busy entry belongs to the thread that set
 * `busy`; the list may grow meanwhile, so entries are pointers.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "ckpt/ckpt_private.h"

struct vvi_region_lease {
    struct vvi_region_lease *next;
    uint64_t version;
    int region;
    bool reserved; /* for writing; otherwise acquired for reading */
    bool busy;
    bool leaving; /* it is being released */
    uint64_t bytes;
    struct vv_engine_lend *lend; /* NULL: a reserved region without bytes */
};

/* ---- the list ---- */

static struct vvi_region_lease *lease_find_locked(struct varve_history *h, uint64_t version,
                                                  int region, bool reserved)
{
    struct vvi_region_lease *l = h->region_leases;
    while (l && (l->version != version || l->region != region || l->reserved != reserved))
        l = l->next;
    return l;
}

/* Makes a new entry, busy. -EEXIST: the region has one. `ret_others`: the version had other entries. */
static int lease_new(struct varve_history *h, uint64_t version, int region, bool reserved,
                     struct vvi_region_lease **ret_lease, bool *ret_others)
{
    struct vvi_region_lease *l = calloc(1, sizeof(*l));
    bool others = false;
    if (!l)
        return -ENOMEM;
    *l = (struct vvi_region_lease){
        .version = version, .region = region, .reserved = reserved, .busy = true};
    vv_mutex_lock(&h->lock);
    int rc = lease_find_locked(h, version, region, reserved) ? -EEXIST : 0;
    for (const struct vvi_region_lease *o = h->region_leases; o; o = o->next)
        others |= o->version == version && o->reserved == reserved;
    if (rc == 0) {
        l->next = h->region_leases;
        h->region_leases = l;
    }
    vv_mutex_unlock(&h->lock);
    if (rc) {
        free(l);
        return rc;
    }
    *ret_lease = l;
    *ret_others = others;
    return 0;
}

static void lease_drop(struct varve_history *h, struct vvi_region_lease *lease)
{
    vv_mutex_lock(&h->lock);
    struct vvi_region_lease **at = &h->region_leases;
    while (*at != lease)
        at = &(*at)->next;
    *at = lease->next;
    vv_mutex_unlock(&h->lock);
    free(lease);
}

static void lease_settle(struct varve_history *h, struct vvi_region_lease *lease)
{
    vv_mutex_lock(&h->lock);
    lease->busy = lease->leaving = false;
    vv_mutex_unlock(&h->lock);
}

size_t vvi_region_leases_count(struct varve_history *h)
{
    size_t n = 0;
    vv_mutex_lock(&h->lock);
    for (const struct vvi_region_lease *l = h->region_leases; l; l = l->next)
        n++;
    vv_mutex_unlock(&h->lock);
    return n;
}

/* ---- errors ---- */

static int lend_fail(struct varve_history *h, const char *operation, uint64_t version, int region,
                     uint64_t bytes, int rc)
{
    struct vvi_where here = {operation, version, region, -1};
    unsigned long long v = version;
    struct vv_core_stats stats;
    uint64_t most;
    char want[VV_BYTES_TEXT], half[VV_BYTES_TEXT];
    if (rc != -ENOSPC)
        return vvi_history_say(h, operation, version, rc);
    vv_engine_get_stats(h->ctx->engine, &stats);
    most = stats.tier_pages[0] / 2 * h->ctx->opts.page_bytes;
    here.tier = 0;
    return vvi_fail(h->ctx, &here, rc,
                    "version %llu, region %d: there is no contiguous %s in %s; at most half of it "
                    "(%s) is lent at a time; %s",
                    v, region, vv_bytes_human(bytes, want, sizeof(want)), vvi_tier_name(h->ctx, 0),
                    vv_bytes_human(most, half, sizeof(half)),
                    bytes > most ? "make the cache larger"
                                 : "release, commit or abort what is lent");
}

static int say_region(struct varve_history *h, const char *operation, uint64_t version, int region,
                      int rc, const char *what)
{
    struct vvi_where here = {operation, version, region, -1};
    return vvi_fail(h->ctx, &here, rc, "version %llu, region %d: %s", (unsigned long long)version,
                    region, what);
}

/* ---- reading ---- */

/* Place of the region in the version. */
static int region_at(const struct vv_object_info *info, int region, uint64_t *ret_from,
                     uint64_t *ret_bytes)
{
    uint64_t from = 0;
    for (uint32_t i = 0; i < vvi_layout_count(info->user); i++) {
        struct vv_store_region s = vvi_layout_region(info->user, info->size, i);
        if (s.id == region) {
            *ret_from = from;
            *ret_bytes = s.bytes;
            return 0;
        }
        from += s.bytes;
    }
    return -ESRCH;
}

/* One attempt on the current version. -ESTALE: the version was replaced meanwhile. */
static int acquire_once(struct varve_history *h, struct vvi_region_lease *lease, bool again,
                        void *native, uint64_t deadline_ns, void **ret_ptr)
{
    struct vv_engine *e = h->ctx->engine;
    struct vv_object_info info;
    uint64_t from = 0;
    int rc = vvi_lookup_last(h, lease->version, &info);
    if (rc == -ENOENT) {
        rc = vvi_await_written(h, "acquire", lease->version, true, deadline_ns);
        return rc ? rc : -ESTALE;
    }
    if (rc)
        return vvi_history_say(h, "acquire", lease->version, rc);
    rc = region_at(&info, lease->region, &from, &lease->bytes);
    if (rc) {
        say_region(h, "acquire", lease->version, lease->region, rc, "there is no such region");
    } else {
        rc = vv_engine_acquire(e, h->hist, lease->version, info.generation, from, lease->bytes,
                               again, native, deadline_ns, &lease->lend, ret_ptr);
        if (rc == -EBADMSG)
            vvi_damage_fail(h, "acquire", &info);
        else if (rc && rc != -ESTALE)
            lend_fail(h, "acquire", lease->version, lease->region, lease->bytes, rc);
    }
    vvi_layout_release(NULL, info.user);
    return rc;
}

static int acquire(struct varve_history *h, uint64_t version, int region, void *native,
                   uint64_t deadline_ns, void **ret_ptr, size_t *ret_bytes)
{
    struct vvi_region_lease *lease;
    void *ptr = NULL;
    bool again;
    int rc = lease_new(h, version, region, false, &lease, &again);
    if (rc)
        return say_region(h, "acquire", version, region, rc == -EEXIST ? -EBUSY : rc,
                          rc == -EEXIST ? "it is lent already" : vv_strerror(rc));
    do
        rc = acquire_once(h, lease, again, native, deadline_ns, &ptr);
    while (rc == -ESTALE);
    if (rc) {
        lease_drop(h, lease);
        return rc;
    }
    h->ctx->restore_bytes += lease->bytes;
    *ret_ptr = ptr;
    *ret_bytes = lease->bytes;
    lease_settle(h, lease);
    return 0;
}

/* Traces the number of next versions that are ready, like a restore. */
static void trace_distance(struct varve_history *h, uint64_t version)
{
    struct vv_core_hist_stats stats;
    if (!vv_trace_enabled())
        return;
    vv_engine_get_hist_stats(h->ctx->engine, h->hist, &stats);
    vv_trace(VV_TRACE_DISTANCE, vvi_trace_history(h), version, stats.ready, 0);
}

int varve_acquire_for(struct varve_history *h, uint64_t version, int region,
                      struct CUstream_st *stream, int timeout_ms, void **ret_ptr, size_t *ret_bytes)
{
    uint64_t start_ns = vv_now_ns();
    if (!ret_ptr || !ret_bytes)
        return vvi_fail(NULL, &(struct vvi_where){"acquire", version, region, -1}, -EINVAL,
                        "ret_ptr or ret_bytes is NULL");
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    vvi_trace_call(h, VV_TRACE_CALL_ACQUIRE, version);
    rc = vvi_version_late_error(h, "acquire", version);
    if (rc == 0)
        rc = vvi_damage_check(h, "acquire", version, 0);
    if (rc == 0)
        rc =
            acquire(h, version, region, stream, vvi_on_deadline_ns(timeout_ms), ret_ptr, ret_bytes);
    vvi_call_ended(h->ctx, VVI_CALL_READ, start_ns);
    if (rc == 0)
        trace_distance(h, version);
    vvi_trace_call_end(h, VV_TRACE_CALL_ACQUIRE, version, rc ? 0 : *ret_bytes, rc);
    vvi_history_leave(h);
    return rc;
}

int varve_acquire(struct varve_history *h, uint64_t version, int region, struct CUstream_st *stream,
                  void **ret_ptr, size_t *ret_bytes)
{
    return varve_acquire_for(h, version, region, stream, -1, ret_ptr, ret_bytes);
}

int varve_release(struct varve_history *h, uint64_t version, int region, struct CUstream_st *stream)
{
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    bool last = true, busy = false;
    vv_mutex_lock(&h->lock);
    struct vvi_region_lease *lease = lease_find_locked(h, version, region, false);
    if (lease) {
        busy = lease->busy;
        lease->busy = true;
        lease->leaving |= !busy;
    }
    /* If several threads release at the same time, exactly one is the last. */
    for (const struct vvi_region_lease *l = h->region_leases; l; l = l->next)
        last &= l->leaving || l->version != version || l->reserved;
    vv_mutex_unlock(&h->lock);
    if (!lease) {
        rc = say_region(h, "release", version, region, -ENOENT, "it is not lent");
    } else if (busy) {
        rc = say_region(h, "release", version, region, -EBUSY, "another call works on it");
    } else {
        bool back = false;
        if (stream && !h->ctx->device)
            rc = -ENODEV;
        else
            rc = vv_engine_release(h->ctx->engine, lease->lend, last, stream, &back);
        if (back)
            lease_drop(h, lease);
        else
            lease_settle(h, lease);
        if (rc)
            vvi_history_say(h, "release", version, rc);
    }
    vvi_history_leave(h);
    return rc;
}

/* ---- writing ---- */

static int reserve(struct varve_history *h, uint64_t version, int region, size_t bytes,
                   uint64_t deadline_ns, void **ret_ptr)
{
    struct vv_engine *e = h->ctx->engine;
    struct vvi_region_lease *lease;
    void *ptr = NULL;
    bool others;
    if (vv_engine_exists(e, h->hist, version))
        return say_region(h, "reserve", version, region, -EEXIST, "the version exists");
    int rc = lease_new(h, version, region, true, &lease, &others);
    if (rc)
        return say_region(h, "reserve", version, region, rc,
                          rc == -EEXIST ? "it is reserved already" : vv_strerror(rc));
    lease->bytes = bytes;
    if (bytes > 0)
        rc = vv_engine_reserve(e, h->hist, bytes, deadline_ns, &lease->lend, &ptr);
    if (rc) {
        lease_drop(h, lease);
        return lend_fail(h, "reserve", version, region, bytes, rc);
    }
    *ret_ptr = ptr;
    lease_settle(h, lease);
    return 0;
}

int varve_reserve_for(struct varve_history *h, uint64_t version, int region, size_t bytes,
                      struct CUstream_st *stream, int timeout_ms, void **ret_ptr)
{
    uint64_t start_ns = vv_now_ns();
    if (!ret_ptr || region < 0 || bytes > INT64_MAX)
        return vvi_fail(NULL, &(struct vvi_where){"reserve", version, region, -1}, -EINVAL,
                        "ret_ptr is NULL, region %d negative, or %zu bytes too many", region,
                        bytes);
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    vvi_trace_call(h, VV_TRACE_CALL_RESERVE, version);
    rc = vvi_may_write(h, "reserve", version);
    if (rc == 0)
        rc = vvi_history_late_error(h, "reserve");
    if (rc == 0)
        rc = vvi_damage_check(h, "reserve", version, -EEXIST);
    if (rc == 0) {
        rc = vv_engine_stream_check(h->ctx->engine, stream);
        if (rc)
            vvi_history_say(h, "reserve", version, rc);
    }
    if (rc == 0)
        rc = reserve(h, version, region, bytes, vvi_on_deadline_ns(timeout_ms), ret_ptr);
    vvi_call_ended(h->ctx, VVI_CALL_WRITE, start_ns);
    vvi_trace_call_end(h, VV_TRACE_CALL_RESERVE, version, bytes, rc);
    vvi_history_leave(h);
    return rc;
}

int varve_reserve(struct varve_history *h, uint64_t version, int region, size_t bytes,
                  struct CUstream_st *stream, void **ret_ptr)
{
    return varve_reserve_for(h, version, region, bytes, stream, -1, ret_ptr);
}

/* The reserved regions of one version, by ascending number, marked busy by this thread. */
struct parts {
    struct vvi_region_lease **lease;
    struct vv_store_region *region;
    size_t n;
    /* The regions that are not empty. */
    struct vv_engine_lend **lend;
    uint64_t *bytes;
    size_t nlends;
};

static void parts_free(struct parts *p)
{
    free(p->lease);
    free(p->lend);
    free(p->bytes);
    free(p->region);
}

static int lease_order(const void *a, const void *b)
{
    const struct vvi_region_lease *const *x = a, *const *y = b;
    return (*x)->region < (*y)->region ? -1 : (*x)->region > (*y)->region;
}

static int parts_alloc(struct parts *p, size_t n)
{
    p->lease = calloc(n, sizeof(struct vvi_region_lease *));
    p->lend = calloc(n, sizeof(struct vv_engine_lend *));
    p->bytes = calloc(n, sizeof(*p->bytes));
    p->region = calloc(n, sizeof(*p->region));
    return p->lease && p->lend && p->bytes && p->region ? 0 : -ENOMEM;
}

/* -ENODATA: nothing is reserved; -EBUSY: another call works on a region. */
static int parts_take(struct varve_history *h, uint64_t version, struct parts *p)
{
    size_t n = vvi_region_leases_count(h);
    int rc = n ? parts_alloc(p, n) : -ENODATA;
    if (rc)
        return rc;
    vv_mutex_lock(&h->lock);
    for (struct vvi_region_lease *l = h->region_leases; l && rc == 0; l = l->next) {
        if (!l->reserved || l->version != version)
            continue;
        rc = l->busy || p->n == n ? -EBUSY : 0;
        if (rc == 0)
            p->lease[p->n++] = l;
    }
    for (size_t i = 0; i < p->n && rc == 0; i++)
        p->lease[i]->busy = true;
    vv_mutex_unlock(&h->lock);
    if (rc == 0 && p->n == 0)
        rc = -ENODATA;
    if (rc)
        return rc;
    qsort(p->lease, p->n, sizeof(struct vvi_region_lease *), lease_order);
    for (size_t i = 0; i < p->n; i++) {
        p->region[i] =
            (struct vv_store_region){.id = p->lease[i]->region, .bytes = p->lease[i]->bytes};
        if (!p->lease[i]->lend)
            continue;
        p->lend[p->nlends] = p->lease[i]->lend;
        p->bytes[p->nlends++] = p->lease[i]->bytes;
    }
    return 0;
}

static void parts_end(struct varve_history *h, struct parts *p, bool kept)
{
    for (size_t i = 0; i < p->n; i++) {
        if (kept)
            lease_settle(h, p->lease[i]);
        else
            lease_drop(h, p->lease[i]);
    }
}

static int parts_fail(struct varve_history *h, const char *operation, uint64_t version, int rc)
{
    struct vvi_where here = {operation, version, -1, -1};
    unsigned long long v = version;
    if (rc == -ENODATA)
        return vvi_fail(h->ctx, &here, rc, "version %llu: no region is reserved", v);
    if (rc == -EBUSY)
        return vvi_fail(h->ctx, &here, rc, "version %llu: another call works on a reserved region",
                        v);
    return vvi_history_say(h, operation, version, rc);
}

/* Commits empty regions: nothing was lent, and there is no work on a stream to wait for. */
static int commit_empty(struct varve_history *h, uint64_t version, uint64_t user,
                        uint64_t deadline_ns)
{
    struct vv_engine_app none = {.npieces = 0};
    int rc = vv_engine_put(h->ctx->engine, h->hist, version, 0, user, &none,
                           deadline_ns ? deadline_ns : vv_now_ns());
    return rc == -ETIMEDOUT && deadline_ns == 0 ? -EAGAIN : rc;
}

static int commit(struct varve_history *h, uint64_t version, void *native, uint64_t deadline_ns,
                  uint64_t *size_out)
{
    struct parts p = {.n = 0};
    uint64_t user = 0, size = 0;
    bool kept = true;
    int rc = parts_take(h, version, &p);
    if (rc) {
        parts_free(&p);
        return parts_fail(h, "commit", version, rc);
    }
    for (size_t i = 0; i < p.nlends; i++)
        size += p.bytes[i];
    *size_out = size;
    rc = vv_engine_stream_check(h->ctx->engine, native);
    if (rc == 0)
        rc = vvi_layout_new(p.region, (uint32_t)p.n, &user);
    if (rc == 0 && p.nlends > 0)
        rc = vv_engine_commit(h->ctx->engine, h->hist, version, user, p.lend, p.bytes, p.nlends,
                              native, deadline_ns, &kept);
    else if (rc == 0)
        rc = commit_empty(h, version, user, deadline_ns);
    if (rc == 0)
        h->ctx->checkpoint_bytes += size;
    parts_end(h, &p, rc && kept);
    parts_free(&p);
    if (rc == -ENOSPC || rc == -EFBIG)
        return vvi_fail_put(h, version, size, rc);
    return rc ? vvi_history_say(h, "commit", version, rc) : 0;
}

int varve_commit_for(struct varve_history *h, uint64_t version, struct CUstream_st *stream,
                     int timeout_ms)
{
    uint64_t start_ns = vv_now_ns();
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    uint64_t size = 0;
    vvi_trace_call(h, VV_TRACE_CALL_COMMIT, version);
    rc = vvi_history_late_error(h, "commit");
    if (rc == 0)
        rc = commit(h, version, stream, vvi_on_deadline_ns(timeout_ms), &size);
    vvi_call_ended(h->ctx, VVI_CALL_WRITE, start_ns);
    vvi_trace_call_end(h, VV_TRACE_CALL_COMMIT, version, size, rc);
    vvi_history_leave(h);
    return rc;
}

int varve_commit(struct varve_history *h, uint64_t version, struct CUstream_st *stream)
{
    return varve_commit_for(h, version, stream, -1);
}

int varve_abort(struct varve_history *h, uint64_t version)
{
    int rc = vvi_history_enter(h);
    if (rc)
        return rc;
    struct parts p = {.n = 0};
    rc = parts_take(h, version, &p);
    if (rc == 0) {
        for (size_t i = 0; i < p.nlends; i++)
            vv_engine_unlend(h->ctx->engine, p.lend[i]);
        parts_end(h, &p, false);
    } else {
        parts_fail(h, "abort", version, rc);
    }
    parts_free(&p);
    vvi_history_leave(h);
    return rc;
}
